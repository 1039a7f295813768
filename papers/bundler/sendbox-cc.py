# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Congestion control at the sendbox: Copa, BasicDelay, BBR, bundler and autorate"
# source = "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021, impact of congestion control"
# takes = "15 minutes, 4 of them simulated; a minute with --quick, 5 seconds with --datapath sim"
# ///
from math import nan

from paper import Paper, bars, cell, estimate, mean, plt

CASES = {"status_quo": "no sendbox", "copa": "Copa", "basic": "BasicDelay", "bbr": "BBR", "bundler": "bundler",
         "autorate": "autorate"}
# Medians of the paper for all responses, then those read from its figure. It has no bundler or autorate.
PUBLISHED = {
    "": ("all", [1.76, 1.09, 1.32, 1.91]), "size.<= 10kB.": ("up to 10 kB", [1.70, 1.09, 1.32, 1.86]),
    "size.<= 1MB.": ("10 kB to 1 MB", [4.53, 2.94, 3.39, 7.18]),
    "size.> 1MB.": ("more than 1 MB", [9.78, 5.40, 6.67, 17.5]),
}

paper = Paper(
    remarks=[
        "Copa (δ = 0.125) runs in its default mode only, as in the paper, and would yield to a competing flow that "
        "fills the queue. BasicDelay is bundler with law=basic.",
        "Slowdowns are of the responses that ended within the run's 400 s. An algorithm that leaves many unfinished "
        "has none of their times in its percentiles.",
        "autorate is given the link's rate: at most 96 Mbit/s, 60 Mbit/s at the start. The others are given none."],
    deviations=[
        "The paper's BBR keeps the highest rate that it ever measured, without a window, start-up or drain, and adds a "
        "queue in the network to the one in the sendbox. Ours is BBR as in its draft.",
        "The paper's Copa keeps the minimum RTT of the whole run and sends a window per RTT without a pacing gain. "
        "Ours keeps the minimum of 10 s.",
        "The published runs of BasicDelay were given the link's rate, 96 Mbit/s. Ours measure it.",
        "As in bundler-overview: CoDel with a target of 100 ms in the network; the request is not sent as a packet.",
        "On kernel TCP a run has 20,000 responses, and a sendbox's packets have 60 bytes of tunnel."])

runs = paper.runs()
runs_of = {case: runs.filter(case=case) for case in CASES}
published = {"status_quo": "1.76", "copa": "1.09", "basic": "1.32", "bbr": "1.91"}
targets = {"copa": 1.12, "basic": 1.32}
for case, label in CASES.items():
    paper.compare(f"median_{case}", f"median slowdown, {label}", mean(runs_of[case]["slowdown_p50"]),
                  published.get(case, ""), at_most=targets.get(case))

kernel = paper.runs("linux")
if len(kernel):
    for case in published:
        paper.compare(f"kernel_median_{case}", f"kernel TCP and gateways: median slowdown, {CASES[case]}",
                      mean(kernel.filter(case=case)["slowdown_p50"]), published[case])

figure, axes = plt.subplots(1, len(PUBLISHED), figsize=(9, 3.2))
for axis, (size, (title, values)) in zip(axes, PUBLISHED.items()):
    medians = {"ours": [estimate(own[f"{size}slowdown_p50"]) for own in runs_of.values()]}
    bars(axis, list(CASES.values()), medians, {"ours": values + [nan] * (len(CASES) - len(values))})
    axis.set(title=title, ylim=(0, None))
    axis.tick_params("x", rotation=90)
axes[0].set_ylabel("median slowdown")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
paper.figure(figure, "Median slowdown of responses by size, with each algorithm at the sendbox; "
             "lines: 95 % intervals over seeds")


def table(title, columns):
    """Adds a table of means over seeds, with (column, factor, digits) for each heading."""
    rows = []
    for case, own in runs_of.items():
        means = [(mean(own[column] * factor), digits) for column, factor, digits in columns.values()]
        rows.append([CASES[case], *(cell(value, digits) for value, digits in means)])
    paper.table(title, ["", *columns], rows)


table("Slowdown by size; means over seeds", {
    "all p50": ("slowdown_p50", 1, 2), "p99": ("slowdown_p99", 1, 1),
    "≤ 10 kB p50": ("size.<= 10kB.slowdown_p50", 1, 2), "≤ 10 kB p99": ("size.<= 10kB.slowdown_p99", 1, 1),
    "≤ 1 MB p50": ("size.<= 1MB.slowdown_p50", 1, 2), "≤ 1 MB p99": ("size.<= 1MB.slowdown_p99", 1, 1),
    "> 1 MB p50": ("size.> 1MB.slowdown_p50", 1, 2), "unfinished": ("flows_unfinished", 1, 0)})
table("The link, and queueing delay in the network and in the sendbox; means over seeds", {
    "goodput, Mbit/s": ("goodput_mbit", 1, 1), "network p50, ms": ("delay_p50_ms", 1, 1),
    "network p95, ms": ("delay_p95_ms", 1, 1), "sendbox, ms": ("bundle.near -> far.box_queue_ms", 1, 1),
    "open, % of time": ("bundle.near -> far.open_share", 100, 1), "drops": ("drops_anywhere", 1, 0)})
paper.finish()
