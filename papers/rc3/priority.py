# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "A high-priority flow takes the link from a low-priority flow, at a host and at a switch"
# source = "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014, figures 16 and 17"
# takes = "10 seconds; 3 seconds with --quick"
# keep = ["samples"]
# ///
import polars as pl

from paper import Paper, cell, plt

LINK_MBIT = 100 * 1460 / 1500
ORDERS = {"high_joins": "high joins low", "low_joins": "low joins high"}

paper = Paper(
    remarks=[
        "At the host, the link takes low-priority packets only while no high-priority packet waits. At the switch, the "
        "two bands of the port share 250 packets, and a high-priority packet pushes low-priority packets out."],
    deviations=[
        "Figures 16 and 17 are pictures without numbers. Rates and delays are those of Crognale and Wilson (CS244, "
        "2015), whose flows ran for a minute with one sample per second. The target of 0.95 is ours."])

runs = paper.runs()
share = runs["workload.high.goodput_mbit"] / LINK_MBIT
paper.compare("priority_high_share", "share of the link of the high-priority flow while both send, minimum of four "
              "cases", share.min(), at_least=0.95)
for place, order, value in zip(runs["place"], runs["order"], share):
    paper.record(f"priority_high_share_{place}_{order}", value)

# Rows without a flow have the total of a workload.
mbit = pl.col("received_bytes").diff() * 8 / 1e6 / (pl.col("time_ns").diff() / 1e9)
rates = paper.series("samples").filter(pl.col("flow").is_null()).sort("run", "workload", "time_ns").with_columns(
    s=pl.col("time_ns") / 1e9, mbit=mbit.over("run", "workload"))
half_s = rates["s"].max() / 2
rows, figure, axes = [], *plt.subplots(2, 2, sharex=True, sharey=True, figsize=(8, 4.5))
for axis, run in zip(axes.flat, runs.iter_rows(named=True)):
    own, alone = rates.filter(run=run["run"]), {}
    for workload, color in (("high", "C0"), ("low", "C1")):
        course = own.filter(workload=workload)
        axis.plot(course["s"] - 0.5, course["mbit"], color, label=f"{workload} priority")
        alone[workload] = course.filter(pl.col("s").is_between(1, half_s, "right"))["mbit"].mean()
    axis.axvline(half_s, color="0.5", linestyle=":", linewidth=1)
    axis.axhline(LINK_MBIT, color="0.5", linestyle="--", linewidth=1, label="link")
    axis.set(title=f"at a {run['place']}, {ORDERS[run['order']]}", ylim=(0, 120))
    rows.append([run["place"], ORDERS[run["order"]], *(cell(alone[name], 1) for name in ("high", "low")),
                 *(cell(run[f"workload.{name}.goodput_mbit"], 1) for name in ("high", "low"))])
for axis in axes[1]:
    axis.set_xlabel("time, s")
for axis in axes[:, 0]:
    axis.set_ylabel("goodput, Mbit/s")
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
paper.figure(figure, "Goodput over time, as in the paper's figures 16 (host) and 17 (switch); the second flow starts "
             "at the dotted line")
paper.table("Goodput, Mbit/s, of 97.3; without the first second after a flow starts",
            ["at a", "", "first half: high", "low", "both: high", "low"], rows)
paper.finish()
