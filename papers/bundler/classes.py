# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "FQ-CoDel and strict priority in the sendbox"
# source = "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021, scheduling policies beyond SFQ"
# takes = "2 minutes on two cores; 5 seconds with --quick"
# keep = ["flows"]
# ///
import polars as pl

from bundles import quantile_of
from paper import Paper, cell, distribution, mean, plt

CASES = {"status_quo": "no sendbox", "sfq": "SFQ", "fq_codel": "FQ-CoDel", "priority": "strict priority"}

paper = Paper(
    remarks=[
        "The time of an exchange is its time above that on the empty path, which is 50 ms: the paper's median of "
        "4.25 ms cannot include the path.",
        "With strict priority, exchanges and responses are in the first class, and ten Cubic flows without end in the "
        "second. A lower class keeps a twentieth of what the sendbox sends."],
    deviations=[
        "The text of this section is not available, only its results, the closed loop of 40-byte exchanges and the "
        "number of classes, two. Ours is one set-up for both: ten such loops, 42 Mbit/s of responses of `caida`, and "
        "ten Cubic flows.",
        "According to the paper, the tail of strict priority is 47 % better than SFQ's. Its own numbers, 10.52 and "
        "41.38, differ by 75 %.",
        "As in bundler-overview: CoDel with a target of 100 ms in the network; the sendbox measures the link's rate; "
        "the request of a response is not sent as a packet. The requests of the loops are."])

runs = paper.runs()
flows = paper.flows(columns=["case", "seed", "workload", "completion_ms", "slowdown"]).drop_nulls("completion_ms")
flows = flows.with_columns(excess_ms=pl.col("completion_ms") * (1 - 1 / pl.col("slowdown")))
exchanges, responses = flows.filter(workload="ping"), flows.filter(workload="web")
excess = exchanges.group_by("case", "seed").agg(
    p50=quantile_of(pl.col("excess_ms"), 0.5), p99=quantile_of(pl.col("excess_ms"), 0.99))


def excess_ms(case, share):
    return mean(excess.filter(case=case)[share])


def mean_of(case, column):
    return mean(runs.filter(case=case)[column])


same = "the same without a sendbox"
paper.compare("rtt_p50_ms", "exchange above the empty path, median, ms, FQ-CoDel", excess_ms("fq_codel", "p50"),
              "4.25", at_most=6.0)
paper.compare("rtt_p50_status_quo_ms", same, excess_ms("status_quo", "p50"), "122")
paper.compare("rtt_p99_ms", "99th percentile, ms, FQ-CoDel", excess_ms("fq_codel", "p99"), "15.3")
paper.compare("rtt_p99_status_quo_ms", same, excess_ms("status_quo", "p99"), "152")
paper.compare("high_median", "median slowdown of responses, first class of strict priority",
              mean_of("priority", "workload.web.slowdown_p50"), "1.07", at_most=1.1)
paper.compare("high_median_status_quo", same, mean_of("status_quo", "workload.web.slowdown_p50"), "3.07")
paper.compare("high_p99", "99th percentile", mean_of("priority", "workload.web.slowdown_p99"), "10.5")
paper.compare("high_p99_status_quo", same, mean_of("status_quo", "workload.web.slowdown_p99"), "202")

figure, axes = plt.subplots(1, 2, sharey=True, figsize=(8, 3.2))
# Median and 99th percentile.
published = {"excess_ms": {"status_quo": (122, 152), "fq_codel": (4.25, 15.3)},
             "slowdown": {"status_quo": (3.07, 202), "priority": (1.07, 10.5)}}
for axis, table, column in zip(axes, (exchanges, responses), published):
    for number, (case, label) in enumerate(CASES.items()):
        axis.plot(*distribution(table.filter(case=case)[column]), color=f"C{number}", label=label)
        if case in published[column]:
            axis.plot(published[column][case], (0.5, 0.99), "D", color=f"C{number}", markeredgecolor="black",
                      markersize=6, label=f"{label}, paper")
    axis.legend(fontsize=7, loc="upper left" if column == "excess_ms" else "lower right")
axes[0].set(title="exchanges of 40 bytes", xlabel="time above the empty path, ms", xscale="log", xlim=(0.3, 300),
            ylabel="share")
axes[1].set(title="responses", xlabel="slowdown", xscale="log")
paper.figure(figure, "Distribution of the times of exchanges and of the slowdown of responses, all runs together")

columns = {
    "responses p50": ("workload.web.slowdown_p50", 2), "responses p99": ("workload.web.slowdown_p99", 1),
    "≤ 10 kB p50": ("workload.web.size.<= 10kB.slowdown_p50", 2), "web, Mbit/s": ("workload.web.goodput_mbit", 1),
    "bulk, Mbit/s": ("workload.bulk.goodput_mbit", 1),
    "network p50, ms": ("delay_p50_ms", 1), "network p95, ms": ("delay_p95_ms", 1),
}
rows = []
for case, label in CASES.items():
    rows.append([label, cell(excess_ms(case, "p50")), cell(excess_ms(case, "p99"), 1),
                 *(cell(mean_of(case, column), digits) for column, digits in columns.values())])
paper.table("Exchanges above the empty path, slowdown of responses, and goodput; means over seeds",
            ["", "exchanges p50, ms", "exchanges p99, ms", *columns], rows)
paper.finish()
