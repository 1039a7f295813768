# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Noise of the time stamps at which DCTCP / DX is the paper's 1.6 at 10 Gbit/s"
# source = "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slides 8 to 32"
# takes = "8 minutes on two cores; 15 seconds with --quick"
# ///
import math

import polars as pl

from paper import Paper, cell, line, paired_ratio, plt

LABELS = {"dx": "DX", "paper": "DX, paper's rules", "paper_auto": "DX, paper's rules, our headroom"}
PUBLISHED = {1.57: "1.57 (abstract)", 1.6: "1.6 (slide 32)"}
PACKET_US = 1500 * 8 / 10e9 * 1e6
# A short queue on an idle link is no result.
USED = 0.9
# Noise at which the model of slide 8's stack has its 710 µs.
SLIDE_8_US = 71

paper = Paper(
    remarks=[
        "The noise is the standard deviation of each of the four time stamps of a packet. Exponential noise is of one "
        "sign, as from a software stack; normal noise has both signs, as in a NIC. With batches, packets within 20 µs "
        "share a time stamp, as under interrupt coalescing, and each batch has one draw of the noise. The delays "
        "include the packet's own transmission, as in dx-testbed.",
        "A ratio is the geometric mean over seeds, with its 95 % interval. It is left out if the link is used to less "
        "than 90 %. Between two sizes of noise the logarithm of the ratio is interpolated linearly.",
        "Slide 8's stack varies by 710 µs per round trip. An exponential noise of 71 µs per time stamp has that as its "
        "99th percentile. Time stamps below the stack have less noise (slides 11 to 16), but the slides do not state "
        "how much."],
    deviations=[
        "The slides state no round trip, threshold, buffer or noise. Ours are those of dx-testbed: two flows, a round "
        "trip of 100 µs, K = 65 packets for DCTCP, 250 packets of buffer. Clocks are synchronised and do not drift, "
        "and noise is independent from packet to packet or from batch to batch.",
        "The slides give neither a headroom nor a rule for it. \"DX, paper's rules\" has none; \"DX, paper's rules, "
        "our headroom\" has ccplane's, which follows the measured noise, and the other curves have a fixed one."])

runs = paper.runs()
found = {}
for row in runs.iter_rows(named=True):
    noise = None if row["noise_ms"] is None else round(row["noise_ms"] * 1e3, 3)
    batch = None if row["coalescing_ms"] is None else round(row["coalescing_ms"] * 1e3, 3)
    case = row["case"] if row.get("room_ms") is None else f"paper_{row['room_ms'] * 1e3:g}us"
    found.setdefault((case, row["distribution"], batch, noise), {})[row["seed"]] = row
rooms = sorted({float(case[6:-2]) for case, *_ in found if case not in LABELS and case != "dctcp"})
LABELS |= {f"paper_{room:g}us": f"DX, paper's rules, headroom {room:g} µs" for room in rooms}
dctcp = next(own for (case, *_), own in found.items() if case == "dctcp")


def ratio(own, wait=False):
    """Returns DCTCP's median delay over DX's, seed by seed; None on an idle link. `wait`: without own transmission."""
    if not own or sum(row["utilisation"] for row in own.values()) / len(own) < USED:
        return None

    def delay(row):
        return row["delay_p50_ms"] * 1e3 - (PACKET_US if wait else 0)

    return paired_ratio([(delay(dctcp[seed]), delay(row)) for seed, row in own.items() if seed in dctcp])


def crossing(points, target):
    """Returns the lowest noise at which the ratio falls to the target, interpolated; None if it stays above."""
    for (low, above), (high, below) in zip(points, points[1:]):
        if None not in (above, below) and above.value >= target > below.value:
            share = math.log(above.value / target) / math.log(above.value / below.value)
            return low + share * (high - low)
    return None


groups = sorted({key[1:3] for key in found if key[1] is not None}, key=lambda group: (group[1], group[0]))
sizes = sorted({key[3] for key in found if key[3] is not None})
titles = {group: f"{group[0]} noise" + (f", batches of {group[1]:g} µs" if group[1] else "") for group in groups}
wide, high = min(len(groups), 2), math.ceil(len(groups) / 2)
figure, panels = plt.subplots(high, wide, sharex=True, sharey=True, squeeze=False, figsize=(4 * wide, 2.6 * high + 0.8))
rows, reached = [], {}
for axis, (shape, batch) in zip(panels.flat, groups):
    for case, label in LABELS.items():
        points = [(noise, ratio(found.get((case, shape, batch, noise)))) for noise in sizes]
        name = f"{case}_{shape}" + ("_batch" if batch else "")
        line(axis, sizes, [one for _, one in points], label, linestyle="--" if case.endswith("us") else "-")
        for noise, one in points:
            own = found.get((case, shape, batch, noise))
            if not own:
                continue
            key, used = f"{name}_{noise * 1e3:.0f}ns", sum(row["utilisation"] for row in own.values()) / len(own)
            waiting = ratio(own, wait=True)
            paper.record(f"stack_ratio_{key}", one)
            paper.record(f"stack_ratio_wait_{key}", waiting)
            paper.record(f"stack_util_{key}", used)
            middle = sum(row["delay_p50_ms"] for row in own.values()) / len(own) * 1e3
            rows.append([titles[shape, batch], label, f"{noise:g}", cell(middle), cell(used * 100, 1),
                         None if one is None else f"{one.value:.2f}"
                         + ("" if one.low is None else f" ({one.low:.2f} to {one.high:.2f})"),
                         None if waiting is None else cell(waiting.value)])
        for target in PUBLISHED:
            at = crossing(points, target)
            reached[case, shape, batch, target] = at
            paper.compare(f"stack_noise_{name}_{target:g}".replace(".", "_"),
                          f"noise at which DCTCP / {label} falls to {target:g}, µs, {titles[shape, batch]}", at,
                          "not stated")
            if at is not None:
                axis.plot(at, target, "kD", zorder=3)
        # The curve ends where the noise empties the link.
        idle = next((noise for noise, one in points if one is None), None)
        least = min(((one.value, noise) for noise, one in points if one is not None), default=None)
        reached[case, shape, batch, "idle"], reached[case, shape, batch, "least"] = idle, least
        paper.record(f"stack_idle_{name}_us", idle)
        paper.record(f"stack_least_{name}", least and least[0])
    for target, style in zip(PUBLISHED, (":", "--")):
        axis.axhline(target, color="0.4", linestyle=style, linewidth=1, label=PUBLISHED[target])
    axis.axvline(SLIDE_8_US, color="0.7", linestyle="-.", linewidth=1, label="slide 8's stack")
    axis.set(title=titles[shape, batch], yscale="log")
    # Linear up to the smallest noise, so that 0 has a place.
    axis.set_xscale("symlog", linthresh=sizes[1] if len(sizes) > 1 else 1)
    axis.set_xlim(-0.2 * sizes[1] if len(sizes) > 1 else None, 1.3 * sizes[-1])
for axis in panels[-1]:
    axis.set_xlabel("noise of each time stamp, µs")
for axis in panels[:, 0]:
    axis.set_ylabel("median delay, DCTCP / DX")
figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
paper.figure(figure, "Ratio of the median queueing delays over the noise of the time stamps, 10 Gbit/s, 100 µs, two "
             "flows; the diamonds are the noise at which it is the paper's ratio. A curve ends where the link is used "
             "to less than 90 %")
paper.table("Median queueing delay with own transmission, utilisation, and the ratio to DCTCP's",
            ["", "", "noise, µs", "median, µs", "utilisation, %", "DCTCP / DX", "without own transmission"], rows)


def words(case, shape, batch):
    """Returns the noise of the paper's ratio, or the nearest that there is, as text."""
    at, idle, least = (reached[case, shape, batch, what] for what in (1.6, "idle", "least"))
    if at is not None:
        return f"{titles[shape, batch]}: 1.6 at {at:.1f} µs"
    if least is None:
        return f"{titles[shape, batch]}: the link is never used to 90 %"
    text = f"{titles[shape, batch]}: the lowest ratio is {least[0]:.1f}, at {least[1]:g} µs"
    return text if idle is None else text + f", and from {idle:g} µs on the link is used to less than 90 %"


paper.remarks.insert(0, " ".join(
    f"{label}: " + "; ".join(words(case, *group) for group in groups) + "."
    for case, label in LABELS.items()))
paper.finish()
