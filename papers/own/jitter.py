# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "A gateway on a path with jitter"
# source = "ours: Wi-Fi, LTE and satellite paths delay each packet by a time of its own"
# takes = "4 minutes on two cores; 20 seconds with --quick"
# keep = ["flows", "samples"]
# ///
import polars as pl

from paper import Paper, cell, line, mean, paired_ratio, plt, quantile

LOADS = {"one": "1 download", "eight": "8 downloads"}
# The load runs from 10 s to the end.
START_S, END_S = 10, 40

paper = Paper(
    remarks=[
        "Constants were chosen on seeds 101 and 102.",
        "Each direction of the path delays a packet by 25 ms plus or minus the jitter, uniformly distributed and in "
        "order. In-order delivery turns jitter into delay: a packet waits for the slowest of the packets just before "
        "it, so the delay grows with the load even without a queue.",
        "A call of 1 Mbit/s runs from the start, the load from 10 s on, and closed loops of 40-byte exchanges from "
        "12 s on. The exchanges stand for the delay of the call. Their excess is the completion time minus that on an "
        "idle path."],
    deviations=["There is no paper to compare with."])

at = pl.col("time_ns").is_in([START_S * 10**9, END_S * 10**9])
received = paper.series("samples").filter(pl.col("flow").is_null(), at, workload="load").group_by("run").agg(
    mbit=(pl.col("received_bytes").max() - pl.col("received_bytes").min()) * 8 / 1e6 / (END_S - START_S))
# The slowdown is the completion time divided by that on an idle path.
excess = paper.flows().filter(workload="exchange").drop_nulls("completion_ms").group_by("run").agg(
    excess=(pl.col("completion_ms") - pl.col("completion_ms") / pl.col("slowdown")).sort())
runs = paper.runs().join(received, on="run").join(excess, on="run").with_columns(
    p95_ms=pl.col("excess").map_elements(lambda values: quantile(values, 0.95), pl.Float64))
points = runs.sort("case", "rate_mbit", "jitter_ms", "seed", descending=[True, False, False, False])

rows, pairs = [], {}
for (case, rate, jitter), own in points.group_by("case", "rate_mbit", "jitter_ms", maintain_order=True):
    plain, bundler = own.filter(contender="native:cubic"), own.filter(contender="bundler")
    ratios = [mean(bundler[measure]) / mean(plain[measure]) for measure in ("mbit", "p95_ms")]
    name, path = f"{rate:g}_{jitter:g}_{case}", f"{rate:g} Mbit/s, ± {jitter:g} ms, {LOADS[case]}"
    paper.compare(f"goodput_{name}", f"goodput with / without box, {path}", ratios[0], at_least=0.85)
    paper.compare(f"exchange_p95_{name}", f"p95 of an exchange's excess with / without box, {path}", ratios[1],
                  at_most=1.0)
    for measure in ("mbit", "p95_ms"):
        pairs[case, rate, jitter, measure] = paired_ratio(list(zip(bundler[measure], plain[measure])))
    rows.append([LOADS[case], f"{rate:g}", f"{jitter:g}", *(cell(mean(own["mbit"]), 1) for own in (plain, bundler)),
                 *(cell(mean(own["p95_ms"]), 0) for own in (plain, bundler)),
                 *(cell(mean(bundler[f"bundle.near -> far.{mode}_share"]) * 100, 0) for mode in ("passing", "open"))])

jitters = sorted({jitter for _, _, jitter, _ in pairs})
figure, axes = plt.subplots(2, 2, sharex=True, sharey="col", figsize=(8, 5))
for row, (case, label) in zip(axes, LOADS.items()):
    for axis, measure, what, target in zip(row, ("mbit", "p95_ms"), ("goodput", "p95 excess"), (0.85, 1)):
        for rate in sorted({rate for _, rate, _, _ in pairs}):
            line(axis, jitters, [pairs[case, rate, jitter, measure] for jitter in jitters], f"{rate:g} Mbit/s")
        axis.axhline(target, color="0.5", linestyle="--", linewidth=1, label="target")
        axis.set(title=label, ylabel=f"{what}, ratio", ylim=(0, 1.3))
for axis in axes[1]:
    axis.set_xlabel("jitter, ± ms")
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
paper.figure(figure, "Goodput of the load, and excess of the exchanges, with / without box: geometric mean over seeds")
paper.table("Goodput of the load, and excess of the exchanges; means over seeds",
            ["load", "rate, Mbit/s", "jitter, ± ms", "goodput without box, Mbit/s", "with box",
             "excess p95 without box, ms", "with box", "pass-through mode, %", "open, %"], rows)
paper.finish()
