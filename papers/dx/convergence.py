# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Five flows join and leave a link of 10 Gbit/s"
# source = "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slide 26 (title only)"
# takes = "1 minute on two cores; 10 seconds with --quick"
# keep = ["samples"]
# ///
from paper import Paper, jain, mean, plt, quantile

LABELS = {"dx": "DX", "dx_paper": "DX, paper's rules", "dctcp": "DCTCP", "swift": "Swift"}
SAMPLE_MS, CONVERGED, HOLD = 1, 0.95, 5

paper = Paper(
    remarks=[
        "Converged: Jain's index of the throughputs of 1 ms is at least 0.95 in 5 consecutive samples. 0.95 is the "
        "index of two flows with 61 and 39 % of the link, and of five flows that are each within a fifth of their "
        "share. A flow that leaves does so at once. If flows never converge, the time until the next change counts."],
    deviations=[
        "The slides have the title of this figure without its content. Ours: five flows, 10 Gbit/s, a round trip of "
        "100 µs, exact time stamps, K = 65 packets for DCTCP. A change every 100 ms, with --quick every 30 ms.",
        "\"DX\" adds a packet per two RTTs, and a short queue counts as none. \"DX, paper's rules\" has the slides' law "
        "alone: docs/algorithms/dx.md lists both."])


def rates(flow):
    """Returns the throughput of a flow in every sample, Gbit/s."""
    samples = flow.sort("time_ns").select("time_ns", "received_bytes").rows()
    found = {}
    for (_, before), (at, received) in zip(samples, samples[1:]):
        found[round(at / 1e6 / SAMPLE_MS)] = (received - before) * 8 / 1e6 / SAMPLE_MS
    return found


def convergence_ms(flows, end_ms):
    """Returns the time from each change of the set of flows to convergence."""
    starts = sorted({time for start, end, _ in flows for time in (start, end)} | {end_ms})
    times = []
    for begin, end in zip(starts, starts[1:]):
        present = [rate for start, leave, rate in flows if start <= begin < leave]
        fair = [(jain([rate.get(at + 1, 0) for rate in present]) or 0) >= CONVERGED for at in range(end_ms + HOLD)]
        candidates = (at for at in range(begin, end) if all(fair[at:at + HOLD]))
        if len(present) > 1:
            times.append((next(candidates, end) - begin) * SAMPLE_MS)
    return times


series = paper.series("samples").drop_nulls("flow")
rows, medians, figure, axes = [], {}, *plt.subplots(1, len(LABELS), sharey=True, figsize=(9, 3))
end_ms = round(series["time_ns"].max() / 1e6)
for axis, (name, label) in zip(axes, LABELS.items()):
    own, times = series.filter(case=name), []
    for (run,), received in own.group_by("run", maintain_order=True):
        flows = [
            (round(start * 1e3), end_ms if end is None else round(end * 1e3), rates(flow))
            for (_, start, end), flow in received.group_by("flow", "start_s", "end_s", maintain_order=True)]
        times += convergence_ms(flows, end_ms)
        if run == own["run"][0]:
            for number, (_, _, rate) in enumerate(flows, 1):
                axis.plot(list(rate), list(rate.values()), label=f"flow {number}", linewidth=0.8)
    axis.set(title=label, xlabel="time, ms", ylim=(0, 10))
    medians[name] = quantile(times, 0.5)
    paper.compare(f"convergence_p50_ms_{name}", f"ms until the index is 0.95 after a change, median, {label}",
                  medians[name])
    runs = paper.runs().filter(case=name)
    packet_ms = 1500 * 8 / 10e9 * 1e3
    wait = [mean([max(value - packet_ms, 0) * 1e3 for value in runs[f"delay_{share}_ms"]]) for share in ("p50", "p99")]
    rows.append([label, f"{quantile(times, 0.5):.1f}", f"{max(times):.1f}", f"{mean(runs['utilisation']) * 100:.2f}",
                 *(f"{value:.2f}" for value in wait), f"{mean(runs['queue_drops']):.0f}"])
axes[0].set_ylabel("throughput, Gbit/s")
axes[0].legend()
paper.figure(figure, "Throughput of each flow over time")
paper.table("After each join and leave; the whole run, with its slow starts",
            ["", "converged p50, ms", "worst, ms", "utilisation, %", "waiting p50, µs", "p99, µs", "drops"], rows)
paper.remarks.insert(0, (
    f"DX's flows have equal shares {medians['dx']:.0f} ms after a flow joins or leaves, in the median; by the paper's "
    f"rules alone {medians['dx_paper']:.0f} ms, under DCTCP {medians['dctcp']:.0f} ms. Conditions: five flows on 10 "
    "Gbit/s with the same round trip of 100 µs and exact time stamps. The slides have no value to compare with."))
paper.finish()
