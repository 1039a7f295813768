# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Queueing delay and utilisation of a link of 10 Gbit/s with 10, 20 and 30 senders"
# source = "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slide 26"
# takes = "1 minute on two cores; 10 seconds with --quick"
# keep = ["delays"]
# ///
import polars as pl

from paper import Paper, plt

LABELS = {"dx": "DX", "dx_paper": "DX, paper's rules", "dctcp": "DCTCP", "swift": "Swift"}
PACKET_US = 1500 * 8 / 10e9 * 1e6

paper = Paper(
    remarks=[
        "Flows that add one packet per RTT build a queue of one packet per sender before the first feedback arrives: "
        "36 µs with 30 senders. Swift keeps a delay above the base RTT by design."],
    deviations=[
        "The slides have the title of this figure without its content. Ours: 10 Gbit/s, a round trip of 100 µs, exact "
        "time stamps, K = 65 packets for DCTCP.",
        "\"DX\" adds a packet per two RTTs, and a short queue counts as none. \"DX, paper's rules\" has the slides' law "
        "alone: docs/algorithms/dx.md lists both."])

# Waiting time is the queueing delay without the packet's own transmission.
runs = paper.runs().with_columns(
    ((pl.col(f"delay_{share}_ms") * 1e3 - PACKET_US).clip(0).alias(f"wait_{share}_us") for share in ("p50", "p99")))
columns = ["utilisation", "delay_p50_ms", "wait_mean_us", "wait_p50_us", "wait_p99_us", "queue_drops"]
means = runs.group_by("senders", "case", maintain_order=True).agg(pl.col(columns).mean())
delays = paper.series("delays").group_by("senders", "case", "share").agg(pl.col("delay_ms").mean()).sort("share")

numbers = means["senders"].unique().sort()
figure, axes = plt.subplots(1, len(numbers), sharey=True, figsize=(8, 3.5))
rows, ratios, utilisations = [], {"dx": [], "dx_paper": []}, {"dx": [], "dx_paper": []}
for senders, axis in zip(numbers, axes):
    of = {row["case"]: row for row in means.filter(senders=senders).iter_rows(named=True)}
    for name in ratios:
        utilisations[name].append(of[name]["utilisation"])
        ratios[name].append(of["dctcp"]["delay_p50_ms"] / of[name]["delay_p50_ms"])
        target = {"utilisation": 0.99, "ratio": 1.0} if name == "dx" else {}
        paper.compare(f"util_{senders:.0f}_senders{name[2:]}", f"utilisation, {senders:.0f} senders, {LABELS[name]}",
                      utilisations[name][-1], at_least=target.get("utilisation"))
        paper.compare(f"ratio_{senders:.0f}_senders{name[2:]}",
                      f"median queueing delay, DCTCP / {LABELS[name]}, {senders:.0f} senders", ratios[name][-1],
                      at_least=target.get("ratio"))
    for name, label in LABELS.items():
        row, own = of[name], delays.filter(senders=senders, case=name)
        axis.plot(own["delay_ms"] * 1e3, own["share"], label=f"{label}: {row['utilisation'] * 100:.1f} %")
        rows.append([f"{senders:.0f}", label, *(f"{row[f'wait_{kind}_us']:.2f}" for kind in ("mean", "p50", "p99")),
                     f"{row['utilisation'] * 100:.2f}", f"{row['queue_drops']:.0f}"])
    axis.set(title=f"{senders:.0f} senders", xlabel="queueing delay, µs", xscale="log", xlim=(1, 400), ylim=(0, 1.75))
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axis.legend(fontsize=7, loc="upper left", title="utilisation", title_fontsize=7)
axes[0].set_ylabel("share of packets")
paper.figure(figure, "Distribution of the queueing delay, including the packet's own transmission of 1.2 µs")
paper.table("Waiting time at the bottleneck, and utilisation; means over seeds",
            ["senders", "", "waiting mean, µs", "p50, µs", "p99, µs", "utilisation, %", "drops"], rows)
shares = {name: min(values) for name, values in utilisations.items()}
factors = {name: f"{min(values):.1f} to {max(values):.1f}" for name, values in ratios.items()}
paper.remarks.insert(0, (
    f"DX's median queueing delay is {factors['dx']} times below DCTCP's at a utilisation of at least "
    f"{shares['dx']:.3f}; by the paper's rules alone {factors['dx_paper']} times at a utilisation of at least "
    f"{shares['dx_paper']:.3f}. Conditions: 10 to 30 long flows on 10 Gbit/s with the same round trip of 100 µs, exact "
    "time stamps. The slides have no value to compare with."))
paper.finish()
