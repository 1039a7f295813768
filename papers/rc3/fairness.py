# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "How 2 to 100 flows with a second loop share a bottleneck"
# source = "Crognale and Wilson, CS244 2015, critique of their reproduction of RC3 (Mittal et al., NSDI 2014)"
# takes = "1 minute on two cores; 20 seconds with --quick"
# ///
import polars as pl

from paper import Paper, cell, jain, mean, plt
from rc3_model import saving

SHORT, LONG = 200_020, 20_000_000

paper = Paper(
    remarks=[
        "Nothing in the second loop aims at fairness: within a class a router serves packets in their order, and drops "
        "the last one of the lowest class first. A flow with more packets per second gets more, and the levels keep "
        "the bytes of short flows ahead of those of long ones.",
        "One flow per host, every other one of 200 KB and of 20 MB. All start within 50 ms; a bottleneck of 1 Gbit/s "
        "with 5 MB shared by five bands. Mixed: round trips of 10 to 200 ms and access rates of 10 Mbit/s to 1 Gbit/s "
        "in all combinations.",
        "Waste is payload that hosts sent in addition to the flows' own bytes, percent of those: dropped at the "
        "bottleneck or sent by both loops. It delays no ordinary packet; it costs the hosts' links and the routers "
        "before the bottleneck."],
    deviations=["The paper has no such experiment: there is no value to compare with."])

# Flows and classes of a run, by the axes start, flows and paths: one element per seed.
point = ["start", "flows", "paths"]
flows, classes = ({key: [own for _, own in group.group_by("run", maintain_order=True)]
                   for key, group in paper.series(name).group_by(point, maintain_order=True)}
                  for name in ("flows", "classes"))
counts = sorted({key[1] for key in flows})
most = counts[-1]


def jain_of(key, size, *columns):
    """Returns Jain's index of what passed the bottleneck until the first long flow ended, mean over seeds."""
    return mean(jain(own.filter(bytes=size).select(pl.sum_horizontal(columns)).to_series().to_list()) for own in flows[key])


def carried(key, number):
    """Returns the share of a class in what the bottleneck carried, percent."""
    return mean(100 * own["carried_bytes"][number] / own["carried_bytes"].sum() for own in classes[key])


def waste(key):
    return mean(100 * (sent["sent_bytes"].sum() / own["bytes"].sum() - 1) for sent, own in zip(classes[key], flows[key]))


def dropped(key):
    """Returns how much of the payload sent in lower classes was dropped, percent."""
    lower = [own.filter(pl.col("class") > 0).sum() for own in classes[key]]
    return mean(100 * own["dropped_bytes"][0] / max(own["sent_bytes"][0], 1) for own in lower)


def mean_ms(key, **which):
    return mean(own.filter(**which)["completion_ms"].mean() for own in flows[key])


mixed = ("rc3", most, "mixed")
for paths, key, what in (("mixed", "low_priority_jain", "round trips and access rates mixed"),
                         ("alike", "low_priority_jain_alike", "all paths alike")):
    paper.compare(key, f"Jain's index of the long flows' bytes in lower classes, {most} flows, {what}",
                  jain_of(("rc3", most, paths), LONG, "lower_bytes"))
paper.record("low_priority_waste_pct", waste(mixed))
paper.record("low_priority_dropped_pct", dropped(mixed))

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2))
for number, paths in enumerate(("alike", "mixed")):
    keys = [("rc3", count, paths) for count in counts]
    fair = [jain_of(key, LONG, "lower_bytes") or float("nan") for key in keys]
    axes[0].plot(counts, fair, f"C{number}o-", label=f"paths {paths}")
    axes[1].plot(counts, [waste(key) for key in keys], f"C{number}o-", label=f"paths {paths}")
axes[0].set(xlabel="flows", ylabel="Jain's index, long flows", ylim=(0, 1))
axes[1].set(xlabel="flows", ylabel="waste, %", ylim=(0, None))
axes[0].legend()
paper.figure(figure, "Fairness of the lower classes, and waste, by the number of flows")

rows = []
for count in counts:
    for paths in ("alike", "mixed"):
        key = ("rc3", count, paths)
        rows.append([count, paths, *(cell(carried(key, number), 1) for number in range(5)),
                     cell(jain_of(key, LONG, "lower_bytes"), 3), cell(jain_of(key, LONG, "ordinary_bytes"), 3),
                     cell(jain_of(key, SHORT, "ordinary_bytes", "lower_bytes"), 3),
                     cell(waste(key), 1), cell(dropped(key), 1),
                     *(cell(mean_ms((start, count, paths), bytes=size), 0)
                       for size in (SHORT, LONG) for start in ("tcp", "rc3"))])
paper.table("What the bottleneck carried by class, %; Jain's indices until the first long flow ended; waste; what was "
            "dropped of classes 1 to 4; mean completion times, ms",
            ["flows", "paths", "class 0", "1", "2", "3", "4", "Jain, long, 1 to 4", "long, 0", "short, all", "waste, %",
             "dropped, %", "short, TCP", "short, RC3", "long, TCP", "long, RC3"], rows)
rows = []
for column, unit in (("rtt_ms", "ms"), ("access_mbit", "Mbit/s")):
    for value in flows[mixed][0][column].unique().sort():
        row = [f"{value} {unit}"]
        for size in (SHORT, LONG):
            tcp, rc3 = (mean_ms((start, most, "mixed"), bytes=size, **{column: value}) for start in ("tcp", "rc3"))
            row += [cell(tcp, 0), cell(rc3, 0), cell(saving(tcp, rc3), 1)]
        rows.append(row)
paper.table(f"{most} flows, mixed: mean completion times by round trip and by access rate, ms",
            ["class", "short, TCP", "RC3", "saved, %", "long, TCP", "RC3", "saved, %"], rows)
paper.finish()
