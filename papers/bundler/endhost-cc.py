# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Reno, Cubic and BBR at the end hosts of a site with a sendbox"
# source = "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021, impact of congestion control"
# takes = "20 minutes, 6 of them simulated; 2 with --quick, 5 seconds with --datapath sim"
# ///

from paper import Paper, bars, cell, estimate, mean, plt

HOSTS = {"reno": "Reno", "cubic": "Cubic", "bbr": "BBR"}
CASES = {"status_quo": "no sendbox", "bundler": "bundler"}
SIZES = {"size.<= 10kB.": "up to 10 kB", "size.<= 1MB.": "10 kB to 1 MB", "size.> 1MB.": "more than 1 MB"}
# Medians read from the paper's figure, under Reno, Cubic and BBR.
PUBLISHED = {
    "size.<= 10kB.": {"no sendbox": [1.60, 1.95, 2.43], "bundler": [1.29, 1.29, 1.30]},
    "size.<= 1MB.": {"no sendbox": [4.18, 4.88, 4.35], "bundler": [3.43, 3.51, 2.10]},
    "size.> 1MB.": {"no sendbox": [7.46, 10.5, 6.86], "bundler": [6.99, 7.86, 6.27]},
}

paper = Paper(
    remarks=["Without a sendbox, the paper's figure has 1.95 for small responses under Cubic and its overview 1.70: "
             "the two were run with different kernel buffers."],
    deviations=[
        "In the simulator BBR is ccplane's BBR, controlled by its agent. The paper's is version 1, of Linux 4.15 or "
        "5.4; on kernel TCP, ours is the kernel's version 1.",
        "As in bundler-overview: CoDel with a target of 100 ms in the network; the sendbox measures the link's rate; "
        "the request is not sent as a packet.",
        "On kernel TCP a run has 20,000 responses, and a sendbox's packets have 60 bytes of tunnel."])

runs = paper.runs()
runs_of = {(hosts, case): runs.filter(hosts=hosts, case=case) for hosts in HOSTS for case in CASES}
targets = {"bbr": ("58", 58.0), "cubic": ("28 in its overview", None), "reno": ("benefits remain", 0.0)}
# Medians of the paper's text, under Cubic and BBR.
MEDIANS = {("cubic", "status_quo"): "1.62", ("bbr", "status_quo"): "2.68", ("cubic", "bundler"): "1.08",
           ("bbr", "bundler"): "1.14"}


def compare_medians(runs, prefix="", where=""):
    """Adds the median under each algorithm of the hosts in each case, and by how much a sendbox lowers it."""
    for hosts, (published, target) in targets.items():
        median = {case: mean(runs.filter(hosts=hosts, case=case)["slowdown_p50"]) for case in CASES}
        what = f"median slowdown under {HOSTS[hosts]}"
        paper.compare(f"{prefix}reduction_{hosts}_pct", f"{what}, % below no sendbox{where}",
                      100 * (1 - median["bundler"] / median["status_quo"]), published, at_least=target)
        for case, value in median.items():
            paper.compare(f"{prefix}median_{case}_{hosts}", f"{what}, {CASES[case]}{where}", value,
                          MEDIANS.get((hosts, case), ""))


compare_medians(runs)
kernel = paper.runs("linux")
if len(kernel):
    compare_medians(kernel, "kernel_", ", kernel TCP and gateways")

figure, axes = plt.subplots(1, len(PUBLISHED), figsize=(8, 3))
for axis, (size, published) in zip(axes, PUBLISHED.items()):
    column = f"{size}slowdown_p50"
    medians = {label: [estimate(runs_of[hosts, case][column]) for hosts in HOSTS] for case, label in CASES.items()}
    bars(axis, list(HOSTS.values()), medians, published)
    axis.set(title=SIZES[size], ylim=(0, None))
axes[0].set_ylabel("median slowdown")
axes[0].legend(fontsize=7)
paper.figure(figure, "Median slowdown of responses of three sizes, by the congestion control of the end hosts; "
             "lines: 95 % intervals over seeds")

columns = {
    "all p50": ("slowdown_p50", 2), "p99": ("slowdown_p99", 1),
    "≤ 10 kB p50": ("size.<= 10kB.slowdown_p50", 2), "≤ 10 kB p99": ("size.<= 10kB.slowdown_p99", 1),
    "≤ 1 MB p50": ("size.<= 1MB.slowdown_p50", 2), "≤ 1 MB p99": ("size.<= 1MB.slowdown_p99", 1),
    "> 1 MB p50": ("size.> 1MB.slowdown_p50", 2), "goodput, Mbit/s": ("goodput_mbit", 1),
    "queue p50, ms": ("delay_p50_ms", 1), "queue p95, ms": ("delay_p95_ms", 1), "drops": ("drops_anywhere", 0),
}
rows = [[HOSTS[hosts], CASES[case], *(cell(mean(own[column]), digits) for column, digits in columns.values())]
        for (hosts, case), own in runs_of.items()]
paper.table("Slowdown by size; means over seeds", ["hosts", "", *columns], rows)
paper.finish()
