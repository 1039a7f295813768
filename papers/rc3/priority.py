# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "A high-priority flow takes the link from a low-priority flow, at a host and at a switch"
# source = "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014, figures 16 and 17"
# takes = "5 minutes; 40 seconds with --quick, 3 with --datapath sim"
# keep = ["samples"]
# ///
import polars as pl

from paper import Paper, cell, plt

ORDERS = {"high_joins": "high joins low", "low_joins": "low joins high"}

paper = Paper(
    remarks=[
        "At the host, the link takes low-priority packets only while no high-priority packet waits. At the switch, the "
        "two bands of the port share 250 packets, and a high-priority packet pushes low-priority packets out."],
    deviations=[
        "Figures 16 and 17 are pictures without numbers. Rates and delays are from Crognale and Wilson (CS244, "
        "2015), whose flows ran for a minute with one sample per second. The target of 0.95 is ours.",
        "On real packets, the emulated link's queue is the only one with bands: the flows have one address in the case "
        "`host`, and two in the same namespace in `switch`, and no kernel forwards their packets."])


def compare_shares(key, shares, where):
    """Adds the shares of the link of the high-priority flow by place and order, and their minimum."""
    paper.compare(key, f"share of the link of the high-priority flow while both send, minimum of four cases{where}",
                  min(shares.values()), at_least=0.95)
    for (place, order), value in shares.items():
        paper.record(f"{key}_{place}_{order}", value)


def draw(rates, half_s, link_mbit, caption):
    """Draws the rates of both flows in each case. The second flow starts after `half_s`."""
    figure, axes = plt.subplots(2, 2, sharex=True, sharey=True, figsize=(8, 4.5))
    for axis, ((place, order), own) in zip(axes.flat, rates.group_by("place", "order", maintain_order=True)):
        for workload, color in (("high", "C0"), ("low", "C1")):
            course = own.filter(workload=workload)
            axis.plot(course["middle_s"], course["mbit"], color, label=f"{workload} priority")
        axis.axvline(half_s, color="0.5", linestyle=":", linewidth=1)
        axis.axhline(link_mbit, color="0.5", linestyle="--", linewidth=1, label="link")
        axis.set(title=f"at a {place}, {ORDERS[order]}", ylim=(0, 120))
    for axis in axes[1]:
        axis.set_xlabel("time, s")
    for axis in axes[:, 0]:
        axis.set_ylabel("goodput, Mbit/s")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    paper.figure(figure, f"{caption}; the second flow starts at the dotted line")


def add_table(title, alone, both):
    """Adds the rates of the flows by place, order and workload: of the first one alone, and while both send."""
    paper.table(title, ["at a", "", "first half: high", "low", "both: high", "low"],
                [[place, ORDERS[order], *(cell(rates[place, order, workload], 1) for rates in (alone, both)
                                          for workload in ("high", "low"))]
                 for place, order, workload in alone if workload == "high"])


def mean_rates(rates):
    means = rates.group_by("place", "order", "workload", maintain_order=True).agg(pl.col("mbit").mean())
    return {row[:3]: row[3] for row in means.iter_rows()}


def evaluate(datapath, key, payload_bytes, sample_s, settle_s, caption, where=""):
    """Adds the results of one datapath. Samples within `settle_s` after a flow starts do not count: the queue still
    holds packets from before."""
    runs, samples = paper.runs(datapath), paper.series("samples", datapath)
    link_mbit = 100 * payload_bytes / 1500
    both = {(row["place"], row["order"], workload): row[f"workload.{workload}.goodput_mbit"]
            for row in runs.iter_rows(named=True) for workload in ("high", "low")}
    compare_shares(key, {name[:2]: value / link_mbit for name, value in both.items() if name[2] == "high"}, where)
    # Rows without a flow have the total of a workload.
    mbit = pl.col("received_bytes").diff() * 8 / 1e6 / (pl.col("time_ns").diff() / 1e9)
    rates = samples.filter(pl.col("flow").is_null()).sort("place", "order", "time_ns").with_columns(
        s=pl.col("time_ns") / 1e9, mbit=mbit.over("run", "workload")).with_columns(middle_s=pl.col("s") - sample_s / 2)
    half_s = rates["s"].max() / 2
    draw(rates, half_s, link_mbit, f"Goodput over time{caption}")
    add_table(f"Goodput, Mbit/s, of {link_mbit:.1f}{where}; without the first {settle_s * 1000:,.0f} ms after a flow starts",
              mean_rates(rates.filter(pl.col("middle_s").is_between(settle_s, half_s))), both)


evaluate("sim", "priority_high_share", 1460, 1, 1, ", as in the paper's figures 16 (host) and 17 (switch)")
if len(paper.runs("linux")):
    paper.remarks.append(
        "Real packets: kernel TCP under Cubic. The packets of the low-priority flow have DSCP 1, and the bands of the "
        "emulated link share 250 packets. Bytes that wait for a retransmission when counting begins count as read later: "
        "a share can exceed 1 by them.")
    sample_s, settle_s = (0.2, 0.4) if paper.quick else (1, 1)
    evaluate("linux", "priority_high_share_packets", 1448, sample_s, settle_s, ", real packets", ", real packets")
paper.finish()
