# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Noise against headroom: utilisation and queue of a link of 10 Gbit/s with 10 senders"
# source = "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slide 26"
# takes = "2 minutes on two cores; 15 seconds with --quick"
# keep = []
# ///
import polars as pl

from paper import Paper, plt

RULES = {"dx": "DX", "paper": "DX, paper's rules"}
LABELS = {"0ns": "0", "1200ns": "1.2 µs", "4800ns": "4.8 µs", "19200ns": "19.2 µs", "76800ns": "76.8 µs",
          "auto": "automatic"}
PACKET_US = 1500 * 8 / 10e9 * 1e6
MEASURES = {"utilisation": ("Utilisation", "%", 100), "queue_packets": ("Mean queue", "packets", 1)}

paper = Paper(
    remarks=[
        "Each of the four time stamps of a packet has independent noise; the one-way delay uses two of them. DX "
        "measures delays above the minimum of the last seconds. With normal noise that minimum is three to four "
        "standard deviations below the mean, so noise looks like a queue of that length. Exponential noise, as of a "
        "software stack, has most values near its minimum. Without headroom every flow reacts to noise, and the link "
        "is not full. A headroom that covers the noise fills the link at the cost of a queue."],
    deviations=[
        "The slides have the title of this figure without its content. Ours: 10 senders, 10 Gbit/s, a round trip of "
        "100 µs, no batches, synchronised clocks.",
        "\"DX\" adds a packet per two RTTs, \"DX, paper's rules\" one per RTT (docs/algorithms/dx.md). The slides give "
        "neither a headroom nor a rule for it; the automatic one is ours."])

runs = paper.runs().with_columns(
    noise_us=(pl.col("jitter_ms") * 1e3).round(3), queue_packets=pl.col("wait_mean_us") / PACKET_US,
    rules=pl.when(pl.col("algorithm").str.contains("rules=paper")).then(pl.lit("paper")).otherwise(pl.lit("dx")))
means = runs.group_by("shape", "noise_us", "headroom", "rules", maintain_order=True).agg(pl.col(list(MEASURES)).mean())
found = {}
for row in means.iter_rows(named=True):
    shape, noise, headroom, rules = row["shape"], row["noise_us"], row["headroom"], row["rules"]
    name, suffix = f"{shape}_{noise * 1e3:.0f}ns", "" if rules == "dx" else "_paper"
    found[rules, shape, noise, headroom] = row["utilisation"]
    if headroom == "auto" and noise in (1, 10) and rules == "dx":
        paper.compare(f"util_auto_{name}", f"utilisation, automatic headroom, {shape} noise of {noise:g} µs",
                      row["utilisation"], at_least=0.95)
    elif headroom == "0ns" and noise in (0, 1) and rules == "paper":
        paper.compare(f"util_paper_{name}",
                      f"utilisation, paper's rules without headroom, {shape} noise of {noise:g} µs", row["utilisation"])
    paper.record(f"util_{name}_{headroom}{suffix}", row["utilisation"])
    paper.record(f"queue_{name}_{headroom}_packets{suffix}", row["queue_packets"])

for (shape, rules), own in means.group_by("shape", "rules", maintain_order=True):
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.3))
    for axis, (measure, (what, unit, times)) in zip(axes, MEASURES.items()):
        table = own.pivot("headroom", index="noise_us", values=measure)
        for headroom, label in LABELS.items():
            axis.plot(table["noise_us"], table[headroom] * times, "o-", label=label)
        axis.set(title=f"{RULES[rules]}, {shape} noise", xlabel="standard deviation of each time stamp, µs",
                 ylabel=f"{what.lower()}, {unit}", ylim=(0, None))
        paper.table(f"{what}, {unit}, {RULES[rules]}, {shape} noise; means over seeds",
                    ["noise, µs", *(f"headroom {label}" for label in LABELS.values())],
                    [[f"{row['noise_us']:g}", *(f"{row[name] * times:.1f}" for name in LABELS)]
                     for row in table.iter_rows(named=True)])
    figure.legend(*axes[0].get_legend_handles_labels(), title="headroom", loc="outside right")
    paper.figure(figure, f"Noise against headroom, {RULES[rules]}, {shape} noise")


def lowest(rules, headroom, noise_max):
    """Returns the lowest utilisation up to this noise, in percent."""
    return min(value for (law, _, noise, room), value in found.items()
               if (law, room) == (rules, headroom) and noise <= noise_max) * 100


paper.remarks.insert(0, (
    f"With the automatic headroom DX uses at least {lowest('dx', 'auto', 1):.0f} % of the link up to a noise of 1 µs, "
    f"and at least {lowest('dx', 'auto', 10):.0f} % up to 10 µs. Without it DX uses {lowest('dx', '0ns', 0):.0f} % "
    f"if there is no noise, and {lowest('paper', '0ns', 0):.0f} % by the paper's rules; a noise of 0.5 µs leaves "
    f"{lowest('dx', '0ns', 0.5):.1f} and {lowest('paper', '0ns', 0.5):.1f} %. Conditions: 10 flows, 10 Gbit/s, 100 µs, "
    "independent noise of each time stamp. The slides have no value to compare with."))
paper.finish()
