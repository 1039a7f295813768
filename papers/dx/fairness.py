# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Fairness, and stability of throughput, of 2 to 30 flows at 10 Gbit/s"
# source = "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slide 26"
# takes = "1 minute on two cores; 10 seconds with --quick"
# keep = ["samples"]
# ///
import polars as pl

from paper import Paper, estimate, line, plt

LABELS = {"dx": "DX", "dx_paper": "DX, paper's rules", "dctcp": "DCTCP", "swift": "Swift"}
WARM_MS, SAMPLE_MS = 100, 1
# Short-term unfairness may average out, so throughput is averaged over 1, 10 and 100 ms.
INTERVALS_MS = [1, 10, 100]

paper = Paper(
    remarks=[
        "Jain's index is the mean over intervals, the variation (standard deviation of a flow's throughput over its "
        "mean) the mean over flows."],
    deviations=[
        "The slides have the title of this figure without its content. Ours: 10 Gbit/s, a round trip of 100 µs that "
        "all flows share, exact time stamps, K = 65 packets for DCTCP.",
        "\"DX\" adds a packet per two RTTs, and a short queue counts as none. \"DX, paper's rules\" has the slides' law "
        "alone: docs/algorithms/dx.md lists both."])

samples = paper.series("samples").drop_nulls("flow").sort("run", "flow", "time_ns").with_columns(
    rate=pl.col("received_bytes").cast(pl.Float64).diff().over("run", "flow"),
    ms=pl.col("time_ns") / 1e6 - SAMPLE_MS - WARM_MS).filter(pl.col("ms") >= 0)
runs = paper.runs()
for interval in INTERVALS_MS:
    rates = samples.group_by("run", "flow", pl.col("ms") // interval).agg(pl.col("rate").mean())
    rate = pl.col("rate")
    jain = rate.sum() ** 2 / (rate.len() * (rate**2).sum())
    index = rates.group_by("run", "ms").agg(jain.alias(f"jain_{interval}"))
    # A flow without any throughput has no variation.
    variation = (rate.std(ddof=0) / rate.mean()).fill_nan(None).alias(f"variation_{interval}")
    for table in (index, rates.group_by("run", "flow").agg(variation)):
        runs = runs.join(table.group_by("run").agg(pl.col(table.columns[-1]).mean()), on="run", maintain_order="left")

names = [f"{measure}_{interval}" for measure in ("jain", "variation") for interval in INTERVALS_MS]
rows, found = [], {}
for (flows, name), own in runs.group_by("senders", "case", maintain_order=True):
    found[flows, name] = {measure: estimate(own[measure]) for measure in names}
    if name == "dx":
        paper.compare(f"jain_{flows:.0f}_flows", f"Jain's index over 10 ms, {flows:.0f} flows, DX",
                      found[flows, name]["jain_10"].value, at_least=0.95)
    elif name == "dx_paper":
        paper.compare(f"jain_{flows:.0f}_flows_paper", f"Jain's index over 10 ms, {flows:.0f} flows, {LABELS[name]}",
                      found[flows, name]["jain_10"].value)
    rows.append([f"{flows:.0f}", LABELS[name], *(f"{found[flows, name][measure].value:.3f}" for measure in names)])

numbers = sorted({flows for flows, _ in found})
figure, axes = plt.subplots(1, 2, figsize=(8, 3.3))
for name, label in LABELS.items():
    for axis, measure in zip(axes, ("jain_10", "variation_10")):
        line(axis, numbers, [found[flows, name][measure] for flows in numbers], label)
axes[0].set(xlabel="flows", ylabel="Jain's index over 10 ms", ylim=(0, 1.02))
axes[1].set(xlabel="flows", ylabel="standard deviation / mean over 10 ms", ylim=(0, None))
axes[0].legend()
paper.figure(figure, "Fairness between flows, and variation of each flow's throughput, over 10 ms")
paper.table("Jain's index, and a flow's standard deviation over its mean, of throughputs over 1, 10 and 100 ms",
            ["flows", "", "index 1 ms", "10 ms", "100 ms", "variation 1 ms", "10 ms", "100 ms"], rows)
worst = {name: min((found[flows, name]["jain_10"].value, flows) for flows in numbers) for name in ("dx", "dx_paper")}
paper.remarks.insert(0, (
    f"Jain's index of DX over 10 ms is at least {worst['dx'][0]:.2f} (with {worst['dx'][1]:.0f} flows); by the paper's "
    f"rules alone it is at least {worst['dx_paper'][0]:.2f} (with {worst['dx_paper'][1]:.0f}). Conditions: 10 Gbit/s, "
    "flows that start within 1 ms and have the same round trip of 100 µs, exact time stamps. The slides have no value "
    "to compare with."))
paper.finish()
