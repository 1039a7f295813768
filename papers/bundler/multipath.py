# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Packets out of order over one path and over several"
# source = "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021, sections 5.2 and 7.6"
# takes = "3 minutes on two cores; 10 seconds with --quick"
# keep = ["bundles"]
# ///
import polars as pl

from paper import Paper, cell, mean, plt

BALANCING = {"false": "flow", "true": "packet"}
BUNDLE = "bundle.near -> far."

paper = Paper(
    remarks=[
        "A bundle is opened, so that the sendbox sets no rate, if at least 5 % of its packets are out of order. All "
        "packets have the tunnel's sequence number here, and each flow, or each packet, takes a path of its own.",
        "A router that balances by a hash of the outer header sends the whole tunnel over one path. Then no packet is "
        "out of order, and the bundle is not opened."],
    deviations=[
        "The paper counts feedback that is out of order; here it is packets.",
        "The paths have equal shares of the rate. The last has 1.5 times the delay of the first, and each has a "
        "queue of as many packets as the whole rate carries in 30 ms. In the paper the paths are imbalanced, "
        "without numbers.",
        "The paper's published topology has no paths at all (`ecmp` is fixed to none): its results are of a branch.",
        "The paper has no balancing of packets, only of flows."])

changes = paper.series("bundle_changes")
opened = changes.filter(mode="open", reason="multipath")["run"].to_list() if len(changes) else []
runs = paper.runs().with_columns(
    balancing=pl.col("per_packet").replace_strict(BALANCING), opened=pl.col("run").is_in(opened),
    out_of_order_pct=100 * pl.col(f"{BUNDLE}out_of_order_share"), open_pct=100 * pl.col(f"{BUNDLE}open_share"))
# The result of a rate, an RTT and a number of paths is the mean over seeds.
points = runs.group_by("balancing", "rate", "rtt", "paths", maintain_order=True).agg(
    pl.col("out_of_order_pct", "open_pct").mean())
single, several = points.filter(pl.col("paths") == 1), points.filter(pl.col("paths") > 1)
least = {balancing: several.filter(balancing=balancing)["out_of_order_pct"].min() for balancing in BALANCING.values()}

paper.compare("ooo_max_single_pct", "packets out of order over one path, %, maximum of all rates and RTTs",
              single["out_of_order_pct"].max(), "0.4", at_most=0.4)
paper.compare("ooo_min_multi_pct", "over several paths, %, minimum", least["flow"], "20", at_least=20.0)
paper.compare("ooo_min_sprayed_pct", "over several paths, a path for each packet, %, minimum", least["packet"])
paper.compare("disabled_wrong", "share of runs opened over one path, or not opened over several",
              mean((runs["opened"] != (runs["paths"] > 1)).cast(float)), "0", at_most=0.0)

figure, axes = plt.subplots(1, 2, sharey=True, figsize=(8, 3.2))
rtts = points["rtt"].unique().sort()
for axis, balancing in zip(axes, BALANCING.values()):
    # Both kinds of balancing are the same over one path.
    shown = pl.concat([single, several.filter(balancing=balancing)])
    for number, rtt in enumerate(rtts):
        for index, (_, own) in enumerate(shown.filter(rtt=rtt).group_by("rate", maintain_order=True)):
            axis.plot(own["paths"], own["out_of_order_pct"], "o-", color=f"C{number}", linewidth=0.8,
                      label=None if index else f"RTT {rtt:.0f} ms")
    axis.axhline(20, color="black", linestyle="--", linewidth=1, label="paper: minimum over several paths")
    axis.axhline(0.4, color="black", linestyle=":", linewidth=1, label="paper: maximum over one path")
    axis.axhline(5, color="C3", linestyle="-.", linewidth=1, label="threshold")
    axis.set(title=f"a path for each {balancing}", xlabel="paths", xscale="log", ylim=(-3, 105))
    axis.set_xticks(points["paths"].unique().sort(), [f"{paths:.0f}" for paths in points["paths"].unique().sort()])
    axis.minorticks_off()
axes[0].set_ylabel("packets out of order, %")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=7)
paper.figure(figure, "Packets out of order by the number of paths; a line per rate")

paths = sorted(points["paths"].unique())
for column, digits, title in (("out_of_order_pct", 2, "Packets out of order, %"), ("open_pct", 1, "Time open, %")):
    rows = []
    for (balancing, rate, rtt), own in points.group_by("balancing", "rate", "rtt", maintain_order=True):
        values = dict(own.select("paths", column).rows())
        rows.append([balancing, f"{rate:.0f}", f"{rtt:.0f}", *(cell(values.get(number), digits) for number in paths)])
    paper.table(f"{title}, by the number of paths; means over seeds",
                ["a path for each", "rate, Mbit/s", "RTT, ms", *(f"{number:.0f}" for number in paths)], rows)
paper.finish()
