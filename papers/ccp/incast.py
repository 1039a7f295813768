# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Reporting intervals in an incast of 50 at 10 and 40 Gbit/s"
# source = "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.3, figure 14"
# takes = "20 minutes on two cores; a minute with --quick"
# ///
import polars as pl

from paper import Paper, cell, plt

MSS = 1448
# The paper's model, and ccplane's Reno.
MODEL, OWN = "reno:split=periodic", "reno"
POINT = ["setup", "gbit", "rtt", "packets"]

runs = Paper().runs().with_columns(
    pl.col("gbit", "interval").cast(pl.Int64), rtt=(pl.col("rtt_ms") * 1e3).round().cast(pl.Int64),
    packets=pl.col("fixed_bytes").cast(pl.Int64) // MSS,
    # Of 50 values the 99th percentile is the largest.
    tail_us=pl.when(pl.col("flows_unfinished") == 0).then(pl.col("completion_p99_ms") * 1e3))
tails = runs.group_by(*POINT, "contender", "interval", maintain_order=True).agg(pl.col("tail_us").mean())
base = tails.filter(contender="native:reno").select(*POINT, base_us="tail_us")
tails = tails.join(base, on=POINT, maintain_order="left").with_columns(ratio=pl.col("tail_us") / pl.col("base_us"))
setups, intervals = tails["setup"].unique(maintain_order=True).to_list(), tails["interval"].drop_nulls().unique().sort().to_list()
sizes, longest = sorted(tails["packets"].unique()), max(intervals)
found = {tuple(row[name] for name in (*POINT, "contender", "interval")): row["ratio"] for row in tails.iter_rows(named=True)}


def worst(contender, gbit, rtts, packets, reported):
    """Returns the largest ratio of the first set-up over these round trips, sizes and intervals."""
    return max(found[setups[0], gbit, rtt, size, contender, interval]
               for rtt in rtts for size in packets for interval in reported)


paper = Paper(
    remarks=[
        "Ratios are of means over 50 seeds (5 with --quick) of the longest completion time of the 50 requests. In the "
        "model of the paper the agent alone decides, in slow start and at losses too; ccplane's Reno does both in its "
        "datapath program and leaves to the agent how fast the window grows, so that it does not depend on the interval."],
    deviations=[
        "The paper names neither congestion control nor buffer, initial window or retransmission timeout: ours are Reno, "
        "and for the results next to the paper's an initial window of 2, a buffer of 250 packets and a minimum timeout of "
        "1 ms: of the set-ups in the table these are nearest to its statements.",
        "The simulator is ours, not ns-2: every packet is acknowledged at once, SACK and RACK find losses, and "
        "connections are open when the requests start.",
        "Results of round trips of 10 µs are next to those of 20: the paper's text has 20, and calls 100 µs ten of them."])

for rtt, suffix in ((20, ""), (10, "_rtt10")):
    def compare(key, what, *point, paper_value="", **target):
        paper.compare(f"incast_{key}{suffix}", f"{what}, RTT {rtt} µs", worst(*point), paper_value, **target)

    compare("10g_500us_ratio", "10 Gbit/s, every 500 µs, worst size", MODEL, 10, [rtt], sizes, [500],
            paper_value="within 1.15 (text), at most 1.20 (caption)", at_most=1.2)
    for size in sizes:
        own = (40, [rtt], [size])
        compare(f"40g_100us_{size}", f"40 Gbit/s, every 100 µs, {size} packets", MODEL, *own, [100],
                paper_value="within 1.10", at_most=1.1)
        compare(f"40g_500us_{size}", f"40 Gbit/s, every 500 µs, {size} packets", MODEL, *own, [500])
        compare(f"40g_1ms_{size}", f"40 Gbit/s, every 1 ms, {size} packets", MODEL, *own, [1000],
                paper_value="1 ms is enough to avoid degradation (caption)", at_most=1.1)
        compare(f"40g_ccplane_{size}", f"ccplane's Reno, 40 Gbit/s, worst interval, {size} packets", OWN, *own, intervals)
        slows = {"paper_value": "over 2", "at_least": 2.0} if size == 100 else {
            "paper_value": "does not slow with the interval", "at_most": 1.1}
        compare(f"40g_longest_{size}", f"40 Gbit/s, every {longest / 1e3:g} ms, {size} packets", MODEL, *own, [longest], **slows)
for gbit in (10, 40):
    paper.compare(f"incast_{gbit}g_ccplane_longest", f"ccplane's Reno, {gbit} Gbit/s, every {longest / 1e3:g} ms, worst size",
                  worst(OWN, gbit, (20, 10), sizes, [longest]), at_most=1.1)

figure, panels = plt.subplots(1, 2, sharey=True, figsize=(8, 3.5))
for axis, gbit in zip(panels, (10, 40)):
    for contender, style, label in ((MODEL, "o-", "packets"), (OWN, "o--", "packets, ccplane")):
        for number, size in enumerate(sizes):
            axis.plot(intervals, [worst(contender, gbit, [20], [size], [interval]) for interval in intervals], style,
                      color=f"C{number}", label=f"{size:,} {label}")
    axis.axhline(1, color="0.5", linewidth=0.8)
    axis.set(title=f"{gbit} Gbit/s", xlabel="reporting interval, µs", xscale="log", ylim=(0, 3))
panels[0].set_ylabel("tail completion ÷ that in the datapath")
panels[1].legend(fontsize=7, ncols=2)
paper.figure(figure, f"Mean tail completion over that of a window in the datapath, {setups[0]}, RTT 20 µs, by the reporting interval")
for contender, what in ((MODEL, "the paper's model"), (OWN, "ccplane's Reno")):
    paper.table(f"Mean tail completion over that of a window in the datapath, {what}",
                ["set-up", "Gbit/s", "RTT, µs", "packets", "datapath, µs", *(f"{interval} µs" for interval in intervals)],
                [[*point, cell(us, 0), *(cell(found.get((*point, contender, interval))) for interval in intervals)]
                 for *point, us in base.iter_rows()])
paper.finish()
