# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Twelve algorithms on kernel TCP and in the simulator, on three links"
# source = "ours: no simulator's page says how far its results are from real packets"
# takes = "36 minutes, as root on an idle machine; 5 with --quick; 1 with --datapath sim"
# keep = []
# ///
import polars as pl

from paper import Paper, bars, cell, estimate, mean, paired_ratio, plt

LABELS = {
    "native:cubic": "Cubic, native", "cubic": "Cubic", "native:reno": "Reno, native", "reno": "Reno", "bbr": "BBR",
    "bbr3": "BBRv3", "copa": "Copa", "vegas": "Vegas", "nimbus": "Nimbus", "ledbat++": "LEDBAT++",
    "vivace": "PCC Vivace", "dx": "DX"}
LINKS = {"48 Mbit/s, 40 ms, 2 BDP": "48m", "96 Mbit/s, 20 ms, 1 BDP": "96m",
         "12 Mbit/s, 80 ms, 1 BDP, 0.1 % lost": "12m"}
DATAPATHS = {"sim": "simulator", "linux": "kernel TCP"}
# Column, name, unit, margin around 1, and the value below which differences do not matter.
MEASURES = {
    "goodput": ("goodput_mbit", "goodput", "goodput, Mbit/s", 0.05, 0),
    "delay": ("delay_mean_ms", "mean queueing delay", "queueing delay, ms", 0.1, 1),
    "drops": ("drops", "drops", "drops", 0.1, 20)}

paper = Paper(
    remarks=[
        "The same scenario runs on both datapaths, and ccplane's algorithms are the same code on both. On kernel TCP, "
        "packets are real, in real time, behind an emulated link of the same rate, delay and queue. Native algorithms "
        "are the kernel's own on kernel TCP, and those of the simulator's transport in the simulator.",
        "Ratios are geometric means over pairs of runs with the same seed, with a 95 % confidence interval of "
        "Student's t over the pairs. A target is met if the whole interval is within the margin. A simulation without "
        "loss is the same for every seed.",
        "The emulated link loses the same packets as the simulated one, counted from the first, and the simulated "
        "transport sends paced segments in bursts of 1 ms, as Linux does."],
    deviations=["There is no paper to compare with: the margins are ours, chosen before the runs."])


def pairs_of(one, other, column, least):
    """Returns the values of the same seed; values below `least` count as `least`."""
    both = one.join(other, on="seed").select(pl.max_horizontal(column, pl.lit(least)).cast(float),
                                             pl.max_horizontal(f"{column}_right", pl.lit(least)).cast(float)).rows()
    return [(1.0, 1.0) if left == right else (left, right) for left, right in both]


tables = {datapath: paper.runs(datapath) for datapath in DATAPATHS}
tables = {datapath: table.with_columns(drops=pl.col("queue_drops") + pl.col("random_losses")).sort("seed")
          for datapath, table in tables.items() if len(table)}
ran = [table.select("case", "contender").unique().rows() for table in tables.values()]
points = [(link, name) for link in LINKS for name in LABELS if any((link, name) in rows for rows in ran)]
for key, (column, what, unit, margin, least) in MEASURES.items():
    for link, name in points:
        own = {datapath: table.filter(case=link, contender=name) for datapath, table in tables.items()}
        point = f"{LINKS[link]}_{name.replace(':', '_').replace('+', 'p')}"
        for datapath, table in own.items():
            paper.record(f"{datapath}_{column}_{point}", mean(table[column]))
        if len(own) == 2:
            ratio = paired_ratio(pairs_of(own["linux"], own["sim"], column, least))
            # A single pair has no interval, and is not judged.
            target = {} if ratio and ratio.low is None else {"at_least": 1 - margin, "at_most": 1 + margin}
            paper.compare(f"{key}_{point}", f"{what} of {LABELS[name]}, kernel / simulator: {link}", ratio, **target)

for link in LINKS:
    names = [name for case, name in points if case == link]
    if not names:
        continue
    found = {datapath: {name: table.filter(case=link, contender=name) for name in names}
             for datapath, table in tables.items()}
    figure, axes = plt.subplots(len(MEASURES), 1, sharex=True, figsize=(8, 6))
    for axis, (column, _, unit, *_) in zip(axes, MEASURES.values()):
        estimates = {DATAPATHS[datapath]: [estimate(table[column]) for table in own.values()]
                     for datapath, own in found.items()}
        bars(axis, [LABELS[name] for name in names], estimates)
        axis.set_ylabel(unit)
    axes[-1].tick_params(axis="x", rotation=40)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    paper.figure(figure, f"{link}: means over runs, with 95 % intervals")
    paper.table(f"{link}; means over runs",
                ["", *(f"{unit}, {DATAPATHS[datapath]}" for _, _, unit, *_ in MEASURES.values() for datapath in found)],
                [[LABELS[name], *(cell(mean(own[name][column]), 0 if column == "drops" else 2)
                                  for column, *_ in MEASURES.values() for own in found.values())] for name in names])
paper.finish()
