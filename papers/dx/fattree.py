# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Completion times of web search over a fat tree of 192 hosts"
# source = "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slides 30 and 31"
# takes = "15 minutes on two cores; 1 minute with --quick"
# keep = ["flows"]
# ///
import math

import polars as pl
import scipy.stats

from distributions import jackknife_variance
from paper import Estimate, Paper, cell, mean, plt, quantile

LABELS = {"dx": "DX", "dx_freshest": "DX, samples=freshest", "dx_paper": "DX, paper's rules", "dctcp": "DCTCP"}
LINKS = {"1us": "1 µs", "2us": "2 µs", "4us_1us": "4/1 µs", "5us_4us": "5/4 µs"}
SIZES = ["0–10 KB", "10–100 KB", "100 KB–1 MB", "1–10 MB", "10 MB–"]
SMALL, LARGE = SIZES[0], SIZES[-1]
KINDS = {"mean": mean, "median": lambda values: quantile(values, 0.5), "p99": lambda values: quantile(values, 0.99)}
# Slide 31: times faster, times slower.
SLIDE = {SMALL: (2.6, 6.0), LARGE: (1.2, 1.1)}

paper = Paper(
    remarks=[
        "10 simulations of 1,000 flows at each point (2 of 600 with --quick), pooled, with the same flows for every "
        "algorithm; 15 % of them are small and 3 % large. A completion time starts with the connection's first packet: "
        "1.5 RTTs pass before the first byte of data arrives.",
        "Slide 31 has two numbers for each of its two size classes, without their statistic, load and link delays. "
        "The first number as the mean, and the reconstruction's delays at 60 % as the point to compare with, were "
        "chosen before the first run.",
        "Intervals are 95 %, by a jackknife that leaves out one seed at a time for both algorithms alike, with "
        "Student's t on the logarithm of the ratio. A quantile of 30 large flows per seed has a wide one.",
        "The load is the average utilisation of the racks' uplinks, 640 Gbit/s together, by flows between racks, "
        "including headers. Hosts' own links carry 0.34 times as much."],
    deviations=[
        "The slides state 192 hosts, 56 switches and three tiers. The links between them, 10 Gbit/s for all, 4 µs per "
        "link and 1 µs per host, 250 packets of 1,538 bytes per port, and one path per flow are those of the same "
        "group's later simulations (ExpressPass, 2017), which have the same number of hosts and switches.",
        "Sizes are the web-search table of the same later scripts, the closest to the authors of the three encodings "
        "in use.",
        "K = 65 packets and g = 1/16 for DCTCP, the usual values; initial window 10, minimum RTO 4 ms, an ACK per "
        "packet, for all. The simulator is ours, not ns-2, and time stamps are exact.",
        "\"DX\" adds a packet per two RTTs, and a short queue counts as none. \"DX, paper's rules\" has the slides' law "
        "alone: docs/algorithms/dx.md lists both."])

split = pl.col("case").str.split(" ")
axes = [split.list.get(0).alias("name"), split.list.get(1).alias("links"), "load"]
counts = ["drops_anywhere", "timeouts", "flows_unfinished"]
of_runs = {row[:3]: row[3:] for row in paper.runs().group_by(axes).agg(pl.col(counts).mean()).rows()}
# "equiprobable" is the least value that 99 % of the flows do not exceed.
time = pl.col("completion_ms")
flows = paper.flows().drop_nulls("completion_ms").with_columns(
    *axes, pl.col("bytes").cut([1e4, 1e5, 1e6, 9_999_999], labels=SIZES).cast(pl.String).alias("size"))
pooled = flows.group_by("name", "links", "load", "size").agg(
    mean=time.mean(), median=time.quantile(0.5, "equiprobable"), p99=time.quantile(0.99, "equiprobable"))
times = {(*row[:4], kind): value for row in pooled.rows() for kind, value in zip(KINDS, row[4:])}
of_seeds = {}
for *point, seed, values in flows.filter(pl.col("size").is_in([SMALL, LARGE])).group_by(
        "name", "links", "load", "size", "seed").agg(time).rows():
    of_seeds.setdefault(tuple(point), {})[seed] = values


def ratio(links, load, size, kind, name, over):
    """Returns the ratio of completion times of two algorithms."""
    found = [times.get((which, links, load, size, kind)) for which in (name, over)]
    return None if None in found else found[0] / found[1]


def interval(links, load, size, kind, name, over):
    """Returns the same ratio with its 95 % interval, by a jackknife over the seeds of both."""
    all_seeds = ratio(links, load, size, kind, name, over)
    sides = [of_seeds.get((which, links, load, size), {}) for which in (name, over)]
    seeds = sorted(set(sides[0]) & set(sides[1]))
    if all_seeds is None or len(seeds) < 2:
        return all_seeds
    logs = []
    for left_out in seeds:
        rest = [seed for seed in seeds if seed != left_out]
        one, other = (KINDS[kind]([value for seed in rest for value in side[seed]]) for side in sides)
        logs.append(math.log(one / other))
    half = jackknife_variance(logs) ** 0.5 * float(scipy.stats.t.ppf(0.975, len(logs) - 1))
    return Estimate(all_seeds, all_seeds * math.exp(-half), all_seeds * math.exp(half))


for name, label in LABELS.items():
    paper.compare(f"unfinished_{name}", f"unfinished flows at 4/1 µs and 60 %, {label}",
                  of_runs[name, "4us_1us", 60][2], at_most=None if name == "dx_paper" else 0.0)
gains = {}
for size, kind, published, what in (
        (SMALL, "mean", 2.6, "DCTCP / DX"), (SMALL, "p99", 6.0, "DCTCP / DX"),
        (LARGE, "mean", 1.2, "DX / DCTCP"), (LARGE, "p99", 1.1, "DX / DCTCP")):
    key = "small" if size == SMALL else "large"
    for name, suffix, rules in (("dx", "", ""), ("dx_paper", "_paper", ", paper's rules")):
        pair = ("dctcp", name) if size == SMALL else (name, "dctcp")
        target = {} if rules else {"at_least" if size == SMALL else "at_most": published}
        gains[name, size, kind] = ratio("4us_1us", 60, size, kind, *pair)
        paper.compare(f"{key}_fct_{kind}_ratio{suffix}",
                      f"completion time at 4/1 µs and 60 %, {size}, {kind}, {what}{rules}",
                      interval("4us_1us", 60, size, kind, *pair),
                      f"{published:g} (slide 31; {kind} is our reading)", **target)
    for name, links, load in of_runs:
        if name == "dx_freshest":
            paper.record(f"{key}_fct_{kind}_freshest_over_after_{links}_{load:g}",
                         ratio(links, load, size, kind, "dx_freshest", "dx"))

# All cells: each statistic of both size classes, with the numbers of the slide that its interval contains.
cells = {}
for size, key in ((SMALL, "small"), (LARGE, "large")):
    for kind in KINDS:
        for name, links, load in of_runs:
            if name in ("dx", "dx_paper"):
                pair = ("dctcp", name) if size == SMALL else (name, "dctcp")
                one = cells[name, links, load, size, kind] = paper.record(
                    f"{key}_fct_{kind}_ratio{name[2:]}_{links}_{load:g}", interval(links, load, size, kind, *pair))


def agrees(one, published):
    """Returns whether the interval contains the published ratio, and its ends differ by less than a factor of two."""
    if one is None or one.low is None or one.high >= 2 * one.low:
        return False
    return one.low <= published <= one.high


def cell_text(name, links, load, size, kind):
    """Returns the statistic, its ratio and interval, and the numbers of the slide in the interval."""
    one = cells[name, links, load, size, kind]
    if one is None:
        return None
    text = f"{kind} {one.value:.2f}" + ("" if one.low is None else f" [{one.low:.2f}, {one.high:.2f}]")
    marks = [f"{published:g}" for published in SLIDE[size] if agrees(one, published)]
    return text + (f" = {', '.join(marks)}" if marks else "")


def pairs_of(name, links, load, size):
    """Returns the pairs of statistics that have both numbers of the slide, in its order."""
    first, second = SLIDE[size]
    return [f"{one} and {other}" for one in KINDS for other in KINDS if one != other
            and agrees(cells[name, links, load, size, one], first)
            and agrees(cells[name, links, load, size, other], second)]


order = sorted(of_runs, key=lambda point: (list(LINKS).index(point[1]), point[2], list(LABELS).index(point[0])))
loads = sorted({load for _, links, load in of_runs if links == "4us_1us"})
figure, panels = plt.subplots(2, 2, figsize=(7, 5), sharex=True)
for row, size, key, values in zip(panels, (SMALL, LARGE), ("small", "large"), ((2.6, 6.0), (1.2, 1.1))):
    for axis, kind, published in zip(row, ("mean", "p99"), values):
        for name in ("dx", "dx_paper", "dctcp"):
            axis.plot(loads, [times[name, "4us_1us", load, size, kind] for load in loads], "o-", label=LABELS[name])
        at, factor = times["dctcp", "4us_1us", 60, size, kind], published if size == SMALL else 1 / published
        axis.plot(60, at / factor, "kD", label="DX by the paper's ratio")
        axis.set(title=f"{size}, {kind}", ylim=(0, 1.1 * axis.get_ylim()[1]), ylabel="completion time, ms")
for axis in panels[1]:
    axis.set_xlabel("load, %")
panels[0][0].legend()
paper.figure(figure, "Completion times by load, link delays of the reconstruction. The paper's ratios are drawn at "
             "60 %, which is our reading")
both = []
rows = []
for name, links, load in order:
    if name in ("dx", "dx_paper"):
        found = {size: pairs_of(name, links, load, size) for size in SLIDE}
        if all(found.values()):
            both.append(f"{LINKS[links]}, {load:g} %, {LABELS[name]}")
        rows.append([LINKS[links], f"{load:g}", LABELS[name],
                     *(cell_text(name, links, load, size, kind) for size in SLIDE for kind in KINDS),
                     "; ".join(found[SMALL]) or None, "; ".join(found[LARGE]) or None])
paper.record("slide_31_cells", len(both))
paper.table("All cells: small flows, times faster than DCTCP's, and large flows, times slower, with 95 % intervals; = "
            "marks a number of slide 31 inside an interval of less than a factor of two; the last columns have the "
            "statistics of which both are",
            ["links", "load, %", "", *(f"{size}, {kind}" for size in SLIDE for kind in KINDS), "2.6 and 6.0",
             "1.2 and 1.1"], rows)
paper.table("Completion time under DCTCP relative to DX: above 1 DX is faster",
            ["links", "load, %", "", *(f"{kind} {size}" for kind in ("mean", "p99") for size in SIZES)],
            [[LINKS[links], f"{load:g}", LABELS[name], *(cell(ratio(links, load, size, kind, "dctcp", name))
                                                         for kind in ("mean", "p99") for size in SIZES)]
             for name, links, load in order if name in ("dx", "dx_paper")])
for kind in ("mean", "p99"):
    paper.table(f"Completion time, {kind}, µs; mean number of drops anywhere, timeouts and unfinished flows per run",
                ["links", "load, %", "", *SIZES, "drops", "timeouts", "unfinished"],
                [[LINKS[links], f"{load:g}", LABELS[name],
                  *(cell(times[name, links, load, size, kind] * 1e3, 0) for size in SIZES),
                  *(cell(value, 1) for value in of_runs[name, links, load])] for name, links, load in order])
reached = {name: "{:.2f} and {:.2f}, {:.2f} and {:.2f}".format(
    *(gains[name, size, kind] for size in (SMALL, LARGE) for kind in ("mean", "p99"))) for name in ("dx", "dx_paper")}
paper.remarks.insert(0, (
    "The slide has 2.6 and 6.0 for small flows (times faster than DCTCP's), 1.2 and 1.1 for large ones (times slower). "
    f"At 4/1 µs and 60 % DX has {reached['dx']}; by the paper's rules {reached['dx_paper']}. Small flows gain more "
    "if links are shorter and queues are a larger part of their time. Cells whose intervals contain both pairs of the "
    f"slide, for some statistics: {'; '.join(both) or 'none'}."))
paper.finish()
