# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Two and three bundles at one bottleneck"
# source = "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021, section 7.3, competing bundles"
# takes = "10 minutes on two cores; 20 seconds with --quick"
# keep = ["bundles"]
# ///
from bundles import DELAY, PASS_THROUGH, mode_share, sendbox_queue_ms, within
from paper import Paper, bars, cell, estimate, mean, pl, plt

LABELS = {"status_quo": "no sendbox", "copa": "bundler", "basic": "bundler, BasicDelay"}
WARM_S = 5
# Median slowdowns of both bundles at 1:1 and at 2:1, read from the paper's figure.
PUBLISHED = {"no sendbox": [3.06, 3.07, 3.05, 2.85], "bundler": [1.17, 1.16, 1.18, 1.13]}

paper = Paper(
    remarks=["Each bundle has responses and one Cubic flow without end, which waits in its own sendbox. There is no "
             "other traffic: a sendbox in pass-through mode takes another bundle for elastic traffic."],
    deviations=[
        "The paper has no configuration of this figure, and no result for three bundles.",
        "The published sendboxes pulse at the same frequencies all the time, and none follows another; here one pulses "
        "and the others follow it."])

runs, samples = paper.runs(), paper.series("bundles")
end_s = samples["time_ns"].max() / 1e9
from_samples = samples.filter(within(WARM_S, end_s)).group_by("run", "bundle").agg(
    passing=mode_share(PASS_THROUGH), sendbox_ms=sendbox_queue_ms(DELAY, PASS_THROUGH))
from_runs = [runs.select(
    "run", "split", "case", "goodput_mbit", "delay_p50_ms", "delay_p95_ms", number=pl.lit(number),
    bundle=pl.lit(f"near{number} -> far{number}"), p50=pl.col(f"workload.web{number}.slowdown_p50"),
    p99=pl.col(f"workload.web{number}.slowdown_p99")) for number in (1, 2, 3)]
bundles = pl.concat(from_runs).drop_nulls("p50").join(from_samples, on=["run", "bundle"], maintain_order="left")
means = bundles.drop("run", "bundle").group_by("split", "case", "number").mean()


def largest(column, splits, cases=("copa", "basic")):
    """Returns the largest of the means over seeds of all bundles."""
    return means.filter(pl.col("split").is_in(splits), pl.col("case").is_in(cases))[column].max()


for split, name in (("1:1", "1_1"), ("2:1", "2_1")):
    paper.compare(f"median_{name}_max", f"median slowdown, split {split}: larger of both bundles and both laws",
                  largest("p50", [split]), {"1:1": "1.17", "2:1": "1.18"}[split], at_most=1.3)
for split, name in (("1:1", "1_1"), ("2:1", "2_1")):
    paper.compare(f"median_{name}_status_quo", f"the same without sendboxes, split {split}",
                  largest("p50", [split], ["status_quo"]), {"1:1": "3.07", "2:1": "3.05"}[split])
paper.compare("queue_p95_ms", "queue in the network, 95th percentile, ms: longest of both splits and both laws",
              largest("delay_p95_ms", ["1:1", "2:1"]), "both maintain low queueing in the network", at_most=25.0)
paper.compare("false_passing_share", "share of the time in pass-through mode: largest of bundles, splits and laws",
              largest("passing", ["1:1", "2:1"]), at_most=0.02)
paper.compare("three_median_max", "median slowdown of three bundles: largest of bundles and laws",
              largest("p50", ["1:1:1"]), at_most=1.3)
paper.compare("three_queue_p95_ms", "queue in the network with three bundles, 95th percentile, ms",
              largest("delay_p95_ms", ["1:1:1"]), at_most=25.0)
paper.compare("three_false_passing_share", "share of the time in pass-through mode of three: largest",
              largest("passing", ["1:1:1"]), at_most=0.02)


def compare_medians(runs, prefix="", where=""):
    """Adds the median of each of two bundles by split and case, and whether both fall at 2:1.

    Returns the medians."""
    medians = {}
    for split in ("1:1", "2:1"):
        for case in ("status_quo", "copa"):
            own = runs.filter(split=split, case=case)
            for number in (1, 2):
                median = mean(own[f"workload.web{number}.slowdown_p50"])
                paper.record(f"{prefix}median_{split.replace(':', '_')}_{case}_{number}", median)
                medians[split, case, number] = median
    fall = [medians["2:1", "copa", number] < medians["2:1", "status_quo", number] for number in (1, 2)]
    paper.state(f"{prefix}both_benefit", f"both bundles' medians fall with sendboxes, split 2:1{where}",
                all(fall), "they do: from 3.05 and 2.85 to 1.18 and 1.13")
    return medians


compare_medians(runs)
kernel = paper.runs("linux")
if len(kernel):
    medians = compare_medians(kernel, "kernel_", ", kernel TCP and gateways")
    paper.compare("kernel_two_median_max", "kernel TCP and gateways: median slowdown, split 1:1, larger of two",
                  max(medians["1:1", "copa", number] for number in (1, 2)), at_most=1.4)
    paper.compare("kernel_two_queue_p95_ms", "kernel TCP and gateways: queue in the network, 95th percentile, ms",
                  mean(kernel.filter(case="copa", split="1:1")["delay_p95_ms"]))

pairs = [("1:1", 1), ("1:1", 2), ("2:1", 1), ("2:1", 2)]
figure, axis = plt.subplots()
bars(axis, [f"{split}, bundle {number}" for split, number in pairs],
     {LABELS[case]: [estimate(bundles.filter(split=split, case=case, number=number)["p50"])
                     for split, number in pairs] for case in ("status_quo", "copa")}, PUBLISHED)
axis.set(ylabel="median slowdown", ylim=(0, 3.8))
axis.legend(ncols=3, loc="upper left")
paper.figure(figure, "Median slowdown of the responses of two bundles, with the split of 84 Mbit/s between them")

columns = {
    "slowdown p50": ("p50", 2), "p99": ("p99", 1), "pass-through, %": ("passing_pct", 1),
    "sendbox queue, ms": ("sendbox_ms", 0), "goodput of all, Mbit/s": ("goodput_mbit", 1),
    "network queue p50, ms": ("delay_p50_ms", 1), "p95, ms": ("delay_p95_ms", 1)}
rows = means.with_columns(passing_pct=100 * pl.col("passing")).sort("split", "number").rows(named=True)
paper.table("Each bundle, and the bottleneck; means over seeds", ["split", "bundle", "", *columns],
            [[row["split"], row["number"], label, *(cell(row[column], digits) for column, digits in columns.values())]
             for case, label in LABELS.items() for row in rows if row["case"] == case])
paper.finish()
