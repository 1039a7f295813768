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
        "100 µs, no batches, synchronised clocks."])

runs = paper.runs().with_columns(
    noise_us=(pl.col("jitter_ms") * 1e3).round(3), queue_packets=pl.col("wait_mean_us") / PACKET_US)
means = runs.group_by("shape", "noise_us", "headroom", maintain_order=True).agg(pl.col(list(MEASURES)).mean())
for row in means.iter_rows(named=True):
    shape, noise, headroom = row["shape"], row["noise_us"], row["headroom"]
    name = f"{shape}_{noise * 1e3:.0f}ns"
    if headroom == "auto" and noise in (1, 10):
        paper.compare(f"util_auto_{name}", f"utilisation, automatic headroom, {shape} noise of {noise:g} µs",
                      row["utilisation"], at_least=0.95)
    paper.record(f"util_{name}_{headroom}", row["utilisation"])
    paper.record(f"queue_{name}_{headroom}_packets", row["queue_packets"])

for shape, own in means.group_by("shape", maintain_order=True):
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.3))
    for axis, (measure, (what, unit, times)) in zip(axes, MEASURES.items()):
        table = own.pivot("headroom", index="noise_us", values=measure)
        for headroom, label in LABELS.items():
            axis.plot(table["noise_us"], table[headroom] * times, "o-", label=label)
        axis.set(title=f"{shape[0]} noise", xlabel="standard deviation of each time stamp, µs",
                 ylabel=f"{what.lower()}, {unit}", ylim=(0, None))
        paper.table(f"{what}, {unit}, {shape[0]} noise; means over seeds",
                    ["noise, µs", *(f"headroom {label}" for label in LABELS.values())],
                    [[f"{row['noise_us']:g}", *(f"{row[name] * times:.1f}" for name in LABELS)]
                     for row in table.iter_rows(named=True)])
    figure.legend(*axes[0].get_legend_handles_labels(), title="headroom", loc="outside right")
    paper.figure(figure, f"Noise against headroom, {shape[0]} noise")
paper.finish()
