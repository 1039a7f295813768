# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "A sendbox on a link whose rate varies"
# source = "not in a paper; cake-autorate is current practice on such links"
# takes = "3 minutes on two cores; 5 seconds with --quick"
# keep = ["flows", "bundles"]
# ///
from bundles import DELAY, PASS_THROUGH, mode_share, quantile_of, sendbox_queue_ms, within
from paper import Paper, bars, cell, estimate, pl, plt

LABELS = {"status_quo": "no sendbox", "bundler": "bundler", "autorate": "autorate", "fixed": "shaper of 43 Mbit/s"}
LINKS = {"cellular": "cellular", "halved": "96, from 30 s on 48 Mbit/s", "doubled": "48, from 30 s on 96 Mbit/s"}

paper = Paper(
    remarks=[
        "autorate and the shaper are given rates that fit all three links: 10, 40 and 96 Mbit/s, and 43 Mbit/s, nine "
        "tenths of 48. bundler is given none.",
        "Small responses share the sendbox with four Cubic flows without end. SFQ serves the responses first, so that "
        "their times show the queue in the network."],
    deviations=[
        "The paper has no link whose rate varies. The cellular link is generated with "
        "the statistics of a recorded one, 48 Mbit/s on average. It is not a model of any particular network."])

runs, samples = paper.runs(), paper.series("bundles")
completion = pl.col("completion_ms")
flows = paper.flows(columns=["run", "workload", "completion_ms"]).filter(workload="web").drop_nulls()
times = flows.group_by("run").agg(
    p50=quantile_of(completion, 0.5), p95=quantile_of(completion, 0.95), p99=quantile_of(completion, 0.99))
bundles = samples.filter(within(0, samples["time_ns"].max() / 1e9)).group_by("run").agg(
    passing_pct=100 * mode_share(PASS_THROUGH), sendbox_ms=sendbox_queue_ms(DELAY, PASS_THROUGH))
results = runs.join(times, on="run", maintain_order="left").join(bundles, on="run", maintain_order="left")


def of(link, case, column):
    """Returns a result of all seeds."""
    return results.filter(path=link, case=case)[column]


for links, suffix in ((["cellular"], ""), (["halved", "doubled"], "_{}")):
    for key, what, column, target in (
            ("p95_vs_autorate", "95th percentile of small responses' times over autorate's", "p95", {"at_most": 1.0}),
            ("goodput_vs_autorate", "goodput over autorate's", "goodput_mbit", {"at_least": 1.0})):
        for link in links:
            ratio = of(link, "bundler", column).mean() / of(link, "autorate", column).mean()
            paper.compare(key + suffix.format(link), f"{what}, link {LINKS[link]}", ratio, **target)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
for axis, (column, label) in zip(axes, {"p95": "95th percentile of small responses, ms",
                                        "goodput_mbit": "goodput, Mbit/s"}.items()):
    bars(axis, ["cellular", "96, then 48\nMbit/s", "48, then 96\nMbit/s"],
         {label: [estimate(of(link, case, column)) for link in LINKS] for case, label in LABELS.items()})
    axis.set(ylabel=label, ylim=(0, None))
axes[0].legend(fontsize=8)
paper.figure(figure, "Times of small responses and goodput of the site by link")

columns = {
    "responses p50, ms": "p50", "p95, ms": "p95", "p99, ms": "p99", "goodput, Mbit/s": "goodput_mbit",
    "network queue p50, ms": "delay_p50_ms", "p95, ms ": "delay_p95_ms", "sendbox queue, ms": "sendbox_ms",
    "pass-through, %": "passing_pct"}
paper.table("Times of small responses, goodput and queues; means over seeds", ["link", "", *columns],
            [[LINKS[link], label, *(cell(of(link, case, column).mean(), 1) for column in columns.values())]
             for link in LINKS for case, label in LABELS.items()])
paper.finish()
