# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Benefit of a sendbox at lower load"
# source = "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021, cut section on offered load"
# takes = "5 minutes on two cores; 5 seconds with --quick"
# ///
from paper import Paper, cell, estimate, line, mean, plt

CASES = {"status_quo": "no sendbox", "bundler": "bundler"}

paper = Paper(deviations=[
    "The paper has no numbers for this experiment, only the statement that the benefit shrinks with the load. The "
    "medians at 84 Mbit/s are from its overview.",
    "As in bundler-overview: CoDel with a target of 100 ms in the network; the sendbox measures the link's rate; the "
    "request is not sent as a packet."])

runs = paper.runs()
loads = runs["rate_mbit"].unique().sort()
runs_of = {(load, case): runs.filter(rate_mbit=load, case=case) for load in loads for case in CASES}


def reduction_pct(column, load):
    """Returns the reduction of a mean over seeds compared with no sendbox, percent."""
    without, bundler = (mean(runs_of[load, case][column]) for case in CASES)
    return 100 * (1 - bundler / without)


for load in loads:
    paper.compare(f"reduction_{load:.0f}_pct", f"median slowdown, % below no sendbox, {load:.0f} Mbit/s",
                  reduction_pct("slowdown_p50", load), "28 in its overview" if load == 84 else "", at_least=0.0)
for load in loads:
    paper.compare(f"p99_reduction_{load:.0f}_pct", f"99th percentile, % below no sendbox, {load:.0f} Mbit/s",
                  reduction_pct("slowdown_p99", load), "48 in its overview" if load == 84 else "")

# Results of the paper's overview, at 84 Mbit/s.
published = {"slowdown_p50": {"status_quo": 1.76, "bundler": 1.26},
             "slowdown_p99": {"status_quo": 79.37, "bundler": 41.38}}
figure, axes = plt.subplots(1, 2, figsize=(7.5, 3))
for axis, (column, title) in zip(axes, {"slowdown_p50": "median", "slowdown_p99": "99th percentile"}.items()):
    for number, (case, label) in enumerate(CASES.items()):
        means = [estimate(runs_of[load, case][column]) for load in loads]
        line(axis, loads, means, label, color=f"C{number}")
        axis.plot(84, published[column][case], "D", color=f"C{number}", markeredgecolor="black",
                  markersize=6, label=f"{label}, paper")
    axis.set(title=title, xlabel="offered load, Mbit/s", ylabel="slowdown", ylim=(0, None), xticks=list(loads))
axes[0].legend(fontsize=8)
paper.figure(figure, "Slowdown of responses by offered load on a link of 96 Mbit/s; lines: 95 % intervals over seeds")

columns = {
    "all p50": ("slowdown_p50", 2), "p99": ("slowdown_p99", 1),
    "≤ 10 kB p50": ("size.<= 10kB.slowdown_p50", 2), "≤ 10 kB p99": ("size.<= 10kB.slowdown_p99", 1),
    "≤ 1 MB p50": ("size.<= 1MB.slowdown_p50", 2), "≤ 1 MB p99": ("size.<= 1MB.slowdown_p99", 1),
    "> 1 MB p50": ("size.> 1MB.slowdown_p50", 2), "goodput, Mbit/s": ("goodput_mbit", 1),
    "queue p95, ms": ("delay_p95_ms", 1),
}
rows = [[f"{load:.0f}", CASES[case], *(cell(mean(own[column]), digits) for column, digits in columns.values())]
        for (load, case), own in runs_of.items()]
paper.table("Slowdown by size; means over seeds", ["load, Mbit/s", "", *columns], rows)
paper.finish()
