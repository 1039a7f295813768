# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Errors of the sendbox's RTT and receive rate"
# source = "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021, section 4.5 and its microbenchmark"
# takes = "2 minutes on two cores; 10 seconds with --quick"
# keep = ["bundles"]
# ///
from bundles import quantile_of, with_errors, within
from paper import Paper, cell, pl, plt

BOUNDARIES = {"counter": "counter", "hash": "hash of the header"}
ERRORS = {"rtt_error_ms": "error of the RTT, ms", "rate_error_mbit": "error of the receive rate, Mbit/s"}
WARM_S = 5
# 80 % of the paper's estimates are within these errors.
PUBLISHED = {"rtt_error_ms": 1.2, "rate_error_mbit": 4}

paper = Paper(
    remarks=[
        "A boundary of an epoch is every Nth packet if a counter in the tunnel's header determines it, and every Nth "
        "on average if a hash of the packet's header does, as in the paper: some of these epochs are four times as "
        "long."],
    deviations=[
        "The paper does not define the reference of an estimate. Here the age of an estimate is part of its error.",
        "The paper's 90 traces are 10 of each delay and rate, of a site whose load is not given. Here it is 7/8 of the "
        "link."])

samples = paper.series("bundles")
samples = with_errors(samples.filter(within(WARM_S, samples["time_ns"].max() / 1e9)))
quantiles = {f"{column}_{name}": quantile_of(pl.col(column), share)
             for column in ERRORS for name, share in (("p50", 0.5), ("p80", 0.8), ("p95", 0.95))}
overall = {boundaries: own.select(**quantiles).row(0, named=True)
           for (boundaries,), own in samples.group_by("boundaries")}
for boundaries, prefix in (("counter", ""), ("hash", "sampled_")):
    paper.compare(f"{prefix}rtt_error_p80_ms", f"error of the RTT, 80th percentile, ms; boundaries by {boundaries}",
                  overall[boundaries]["rtt_error_ms_p80"], "1.2", at_most=1.2)
    paper.compare(f"{prefix}rate_error_p80_mbit",
                  f"error of the receive rate, 80th percentile, Mbit/s; boundaries by {boundaries}",
                  overall[boundaries]["rate_error_mbit_p80"], "4", at_most=4.0)

figure, axes = plt.subplots(1, 2, sharey=True, figsize=(8, 3.4))
for axis, (column, label) in zip(axes, ERRORS.items()):
    for boundaries, name in BOUNDARIES.items():
        errors = samples.filter(boundaries=boundaries)[column].sort()
        step = len(errors) // 1000 + 1
        axis.plot(errors.gather_every(step), [number / len(errors) for number in range(0, len(errors), step)],
                  label=f"boundaries by {name}")
    axis.plot(PUBLISHED[column], 0.8, "kD", label="paper")
    axis.set(xlabel=label, xlim=(0, 1.5 * PUBLISHED[column]), ylim=(0, 1))
axes[0].set_ylabel("share of samples")
axes[0].legend(loc="lower right")
paper.figure(figure, "Distribution of the errors at all RTTs and rates together")

table = samples.group_by("boundaries", "rtt", "rate").agg(**quantiles).sort("boundaries", "rtt", "rate")
paper.table("Errors; samples of all seeds together",
            ["boundaries by", "RTT, ms", "Mbit/s", "RTT p50, ms", "p80", "p95", "rate p50, Mbit/s", "p80", "p95"],
            [[BOUNDARIES[row[0]], cell(row[1], 0), cell(row[2], 0), *map(cell, row[3:])] for row in table.rows()])
paper.finish()
