# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "The 99th percentile of slowdown: connection of a response and length of a run"
# source = "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021, traffic generator of its evaluation"
# takes = "2 minutes on two cores; 5 seconds with --quick"
# keep = ["flows"]
# ///
from paper import Paper, cell, mean, plt, quantile

PICKS = {"random": "random", "last": "pool"}
# Label, colour, and the 99th percentile of the paper's overview.
CASES = {"status_quo": ("no sendbox", "C0", 79.37), "in_network": ("SFQ in the network", "C2", 27.49),
         "bundler": ("bundler", "C1", 41.38)}

paper = Paper(
    remarks=[
        "Random: each response is sent over one of 200 connections, chosen at random, after the responses that are "
        "queued on it, as in the authors' generator. Pool: it is sent over the idle connection that was busy last. "
        "Arrivals and sizes are the same.",
        "A response of 50 MB takes seconds. With random connections, every small response behind it on its connection "
        "waits as long; two such waits in a hundred responses are the 99th percentile. A longer run has more of the "
        "large responses."],
    deviations=["The paper does not state whether a percentile is of one run or of all runs together. Both are here."])

runs = paper.runs()
flows = paper.flows(columns=["pick", "count", "case", "slowdown"])
points = [(pick, count, case) for pick in PICKS for count in runs["count"].unique().sort() for case in CASES]


def runs_of(point):
    return runs.filter(**dict(zip(("pick", "count", "case"), point)))


def slowdowns(point):
    """Returns the slowdowns of all runs of a point, in ascending order."""
    return flows.filter(**dict(zip(("pick", "count", "case"), point)))["slowdown"].drop_nulls().sort()


pooled = {point: quantile(slowdowns(point), 0.99) for point in points}
results = {
    "p99": ("99th percentile of slowdown", {point: mean(runs_of(point)["slowdown_p99"]) for point in points}),
    "pooled_p99": ("99th percentile of all runs together", pooled),
    "median": ("median slowdown", {point: mean(runs_of(point)["slowdown_p50"]) for point in points}),
}
for name, (what, values) in results.items():
    for (pick, count, case), value in values.items():
        paper.compare(f"{name}_{pick}_{count / 1000:.0f}k_{case}",
                      f"{what}, {PICKS[pick]} connection, {count:,.0f} responses, {CASES[case][0]}", value)

longest = runs["count"].max()
figure, axes = plt.subplots(1, 2, sharex=True, sharey=True, figsize=(7.5, 3.2))
for axis, (pick, title) in zip(axes, PICKS.items()):
    for case, (label, colour, published) in CASES.items():
        values = slowdowns((pick, longest, case))
        # Ranks from the largest value down. A point for each value would make the figure too large.
        ranks = sorted({max(round(len(values) * 10 ** (-step / 50)), 1) for step in range(201)})
        axis.plot(values.gather([len(values) - rank for rank in ranks]), [rank / len(values) for rank in ranks],
                  color=colour, label=label)
        axis.plot(published, 0.01, "D", color=colour, markeredgecolor="black", markersize=6, label=f"{label}, paper")
    axis.axhline(0.01, color="0.6", linewidth=0.8, linestyle="--")
    axis.set(title=f"{title} connection", xlabel="slowdown", xscale="log", yscale="log", ylim=(1e-4, 1))
axes[0].set_ylabel("share of responses with at least this slowdown")
axes[1].legend(fontsize=7)
paper.figure(figure, f"Slowdown of responses, {longest:,.0f} a run, all runs together; dashed: 99th percentile")

rows = []
for pick, count, case in points:
    own = runs_of((pick, count, case))
    rows.append([PICKS[pick], f"{count:,.0f}", CASES[case][0], cell(mean(own["slowdown_p50"])),
                 cell(mean(own["slowdown_p99"]), 1), cell(pooled[pick, count, case], 1),
                 cell(mean(own["size.<= 10kB.slowdown_p99"]), 1), cell(mean(own["goodput_mbit"]), 1)])
paper.table("Slowdown by connection and length of a run; means over seeds, and p99 of all runs together",
            ["connection", "responses", "", "p50", "p99", "p99 together", "≤ 10 kB p99", "goodput, Mbit/s"], rows)
paper.finish()
