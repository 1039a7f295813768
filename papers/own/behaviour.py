# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Every algorithm on paths that are not steady links"
# source = "ours: each path is one on which a public bug report or a user found a fault"
# takes = "25 minutes, as root on an idle machine; 1 with --datapath sim"
# keep = []
# ///
import polars as pl

from paper import Paper, cell, plt

LABELS = {
    "native:cubic": "Cubic, native", "cubic": "Cubic", "native:reno": "Reno, native", "reno": "Reno",
    "native:bbr": "BBR, native", "bbr": "BBR", "bbr3": "BBRv3", "copa": "Copa", "vegas": "Vegas", "nimbus": "Nimbus",
    "ledbat++": "LEDBAT++", "vivace": "PCC Vivace", "swift": "Swift", "timely": "TIMELY", "dx": "DX"}
CONDITIONS = {
    "idle": "after 6 s idle", "policer": "behind a policer", "jitter": "±5 ms of jitter",
    "stretch": "an ACK per 24 packets", "long": "RTT of 1.1 s", "many": "50 flows", "outage": "10 s without link",
    "short": "RTT of 1 ms"}
DATAPATHS = {"sim": "simulator", "linux": "kernel TCP"}
MEASURES = {"use": "utilisation", "resent": "retransmitted_segments", "stall_ms": "stall_max_ms", "jain": "jain"}

paper = Paper(
    remarks=[
        "The same scenario runs on both datapaths. Native algorithms are the kernel's own on kernel TCP, and those of "
        "the simulator's transport in the simulator.",
        "A stall is the longest time without new data at the receiver's application while data is outstanding. On the "
        "path with 50 flows the BDP is 1.7 packets per flow."],
    deviations=["There is no paper to compare with."])

for datapath, place in DATAPATHS.items():
    runs = paper.runs(datapath)
    if not len(runs):
        continue
    columns = [*MEASURES.values(), "delay_p50_ms"]
    means = runs.group_by("case", "contender", maintain_order=True).agg(pl.col(columns).mean())
    found = {(row["case"], row["contender"]): row for row in means.iter_rows(named=True)}
    conditions = [name for name in CONDITIONS if any(case == name for case, _ in found)]
    contenders = [name for name in LABELS if any(contender == name for _, contender in found)]
    for (condition, contender), row in found.items():
        name = contender.replace(":", "_").replace("+", "p")
        for key, column in MEASURES.items():
            if key != "jain" or condition in ("many", "short"):
                paper.record(f"{key}_{condition}_{name}_{datapath}", row[column])

    used = [[100 * found[condition, name]["utilisation"] for condition in conditions] for name in contenders]
    figure, axis = plt.subplots(figsize=(2.2 + 0.8 * len(conditions), 4.8))
    shades = axis.imshow(used, vmin=0, vmax=100, cmap="viridis", aspect="auto")
    for y, values in enumerate(used):
        for x, value in enumerate(values):
            axis.text(x, y, f"{value:.0f}", ha="center", va="center", color="w" if value < 60 else "k", fontsize=8)
    axis.set_xticks(range(len(conditions)), [CONDITIONS[name] for name in conditions], rotation=30, ha="right")
    axis.set_yticks(range(len(contenders)), [LABELS[name] for name in contenders])
    axis.grid(False)
    figure.colorbar(shades, label="utilisation, %")
    paper.figure(figure, f"Utilisation of the bottleneck, %, {place}")
    for condition in conditions:
        own = [(LABELS[name], found[condition, name]) for name in contenders]
        paper.table(f"{CONDITIONS[condition]}, {place}",
                    ["", "utilisation, %", "retransmitted segments", "stall, ms", "queueing delay p50, ms"],
                    [[label, cell(row["utilisation"] * 100, 1), cell(row["retransmitted_segments"], 0),
                      cell(row["stall_max_ms"], 0), cell(row["delay_p50_ms"])] for label, row in own])
paper.finish()
