# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Cubic's window over time, in the datapath and outside of it"
# source = "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.1, figure 8"
# takes = "15 minutes; a minute and a half with --quick"
# keep = ["samples"]
# ///
import itertools

import numpy as np

from distributions import jackknife
from paper import Paper, mean, plt

SAMPLE_S = 0.01
# Slow start and its end differ from run to run.
SETTLED_S = 2
# More than a period of Cubic's sawtooth on this link, which is some seconds.
SHIFT_MAX_S = 10
# Contenders of ccplane: suffix of the keys, label. `split=agent` is the paper's case.
CONTENDERS = {
    "cubic": ("", "datapath and agent"),
    "cubic:split=agent:report=rtt": ("_agent", "agent only, each RTT"),
    "cubic:split=agent:report=10ms": ("_agent_10ms", "agent only, every 10 ms"),
}
# Least overlap of two curves, as a share of the shorter one: a good fit of their ends alone means nothing.
OVERLAP = 0.5

paper = Paper(
    remarks=[
        "Two runs never begin their sawtooths at the same moment, so curves are aligned before they are compared: one is "
        "shifted in time to where the root mean square of their differences is least. The same between two native runs "
        "is the part of it that is chance. Windows in segments, sampled every 10 ms from the second second on. In the "
        "simulator nothing is random: one run of each. In the case \"agent only\" the agent computes every window, as in CCP."],
    deviations=[
        "ccplane's emulator (or simulator) instead of Mahimahi, and this host's kernel instead of Linux 4.14. The paper "
        "names no queue for this figure: one BDP, as in its other figures on this link. It shows the two curves and "
        "gives no distance.",
        "The paper's Cubic is portus' own. It is not measured here: ccplane's Cubic with `split=agent` is "
        "shown instead."])


def aligned(one, other):
    """Returns the least RMS difference of two curves over shifts of the first in time, and the shift in samples."""
    shorter = min(len(one), len(other))
    overlap = max(int(shorter * OVERLAP), 1)
    most = min(shorter - overlap, round(SHIFT_MAX_S / SAMPLE_S))
    found = []
    for shift in range(-most, most + 1):
        left, right = (one, other[shift:]) if shift >= 0 else (one[-shift:], other)
        count = min(len(left), len(right))
        if count >= overlap:
            found.append((float(np.sqrt(np.mean((left[:count] - right[:count]) ** 2))), shift))
    return min(found)


def share(ours, native):
    """Returns the mean distance of ours to native curves, divided by the mean native window; None without runs."""
    distances = mean([aligned(one, other)[0] for one in ours for other in native])
    return None if distances is None else distances / float(np.mean(np.concatenate(native)))


for datapath, label, target in (("linux", "kernel TCP", 0.1), ("sim", "simulator", 0.06)):
    samples = paper.series("samples", datapath)
    if not len(samples):
        continue
    prefix = "sim_" if datapath == "sim" and len(paper.runs("linux")) else ""
    curves = {name: [] for name in ("native:cubic", *CONTENDERS)}
    for (contender, _), run in samples.group_by("contender", "run", maintain_order=True):
        curves[contender].append(run.sort("time_ns")["cwnd_segments"].to_numpy().astype(float))
    skip = round(SETTLED_S / SAMPLE_S)
    settled = {name: [curve[skip:] for curve in own] for name, own in curves.items()}
    native = settled["native:cubic"]
    chance = mean([aligned(one, other)[0] for one, other in itertools.combinations(native, 2)])
    window = float(np.mean(np.concatenate(native)))
    paper.record(f"{prefix}cwnd_rms_native_segments", chance)
    among = "" if chance is None else f" (among native runs {chance / window:.3f})"
    figure, axes = plt.subplots(1 + len(CONTENDERS), 1, sharex=True, sharey=True, figsize=(7, 7.5))

    def draw(axis, title, case, curve, by):
        for name, own, moved, style in ((case, curve, by, "C0"), ("native", curves["native:cubic"][0], 0, "C1--")):
            axis.plot((np.arange(len(own)) + moved) * SAMPLE_S, own, style, label=name)
        axis.axhline(320, color="0.5", linewidth=0.8, label="BDP and queue")
        axis.set(title=title, ylabel="window, segments", ylim=(0, None), xlim=(0, None))
        axis.legend(ncols=3, loc="lower right", fontsize=7)

    draw(axes[0], "as measured", CONTENDERS["cubic"][1], curves["cubic"][0], 0)
    for axis, (name, (suffix, case)) in zip(axes[1:], CONTENDERS.items()):
        ours = settled[name]
        paper.record(f"{prefix}cwnd_rms{suffix}_segments", mean([aligned(one, other)[0] for one in ours for other in native]))
        paper.compare(f"{prefix}cwnd_rms{suffix}_share", f"{label}, {case}: RMS distance of aligned windows ÷ mean window of "
                      f"{window:.0f} segments{among}", jackknife(ours, native, share), '"closely match"', at_most=target)
        shift = aligned(ours[0], native[0])[1]
        draw(axis, f"{case}, shifted by {shift * SAMPLE_S:.2f} s", case, curves[name][0], shift)
    axes[-1].set_xlabel("time, s")
    paper.figure(figure, f"Window of Cubic over time, {label}")
paper.finish()
