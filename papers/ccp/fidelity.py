# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Reno and Cubic outside the datapath against the datapath's own, on three links"
# source = "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.1.1, figures 9 and 10"
# takes = "11 hours, which may be interrupted (three minutes with --datapath sim); three minutes with --quick"
# keep = ["bins"]
# agents = "contenders"
# ///
import numpy as np
import polars as pl

from distributions import distance, distance_within, gap_from, jackknife, ks, pooled
from paper import Paper, agents, cell, plt

LABELS = {"fixed": "fixed", "cell": "cell", "cell_acks": "cell, ACKs limited too", "drop": "drop"}
# Contenders of ccplane: suffix of the keys, label, and whether the result has a target. The first
# one of each algorithm is ccplane's default, and `split=agent` is the paper's case. Two of Cubic
# are only simulated.
ALGORITHMS = {
    "reno": {"reno": ("", "datapath and agent", True), "reno:split=agent": ("_agent", "agent only, each RTT", True)},
    "cubic": {
        "cubic": ("", "datapath and agent", True),
        "cubic:report=rtt": ("_rtt", "datapath and agent, each RTT", False),
        "cubic:hystart=off": ("_no_hystart", "datapath and agent, no HyStart", False),
        "cubic:split=agent:report=rtt": ("_agent", "agent only, each RTT", True),
        "cubic:split=agent:report=10ms": ("_agent_10ms", "agent only, every 10 ms", True),
        "cubic:split=periodic:report=10ms": ("_periodic_10ms", "agent only, every 10 ms, losses too", False),
    },
}
STYLES = {
    "native": "C1--", "datapath and agent": "C0", "datapath and agent, each RTT": "C9",
    "datapath and agent, no HyStart": "C6", "agent only, each RTT": "C3", "agent only, every 10 ms": "C2",
    "agent only, every 10 ms, losses too": "k:",
}
UNITS = {"throughput": "throughput_mbit", "delay": "delay_ms"}
PUBLISHED = {"throughput": '"nearly identical"', "delay": '"close"'}
# Ranges of simulator ÷ kernel.
AGREEMENT = {"goodput_mbit": ("goodput", 0.97, 1.03), "delay_mean_ms": ("delay", 0.9, 1.1), "dropped": ("drops", 0.667, 1.5)}

paper = Paper(
    remarks=[
        "Throughput and mean queueing delay are those of every round-trip time, as in the paper. On kernel TCP the "
        "distance is the mean Kolmogorov-Smirnov distance between halves of the runs of both sides; the one between "
        "halves of the native runs is the part that is chance. Simulated runs come in pairs with the same losses, and "
        "the distance is that of all runs of both sides. The paper gives no number: the target is 1.5 times the "
        "distance among native runs, at least 0.05, and 0.03 for simulated delay.",
        "In the case \"agent only\" the agent computes every window, as in CCP. Losses and timeouts are reported at once, "
        "except in the case \"losses too\". Cubic with a report each RTT is what CCP's Cubic does by default; ccplane's "
        "Cubic reports at least every 10 ms. HyStart examines single ACKs, so that an agent cannot run it."],
    deviations=[
        "ccplane's emulator (or simulator) instead of Mahimahi; this host's kernel instead of Linux 4.14; throughput counted "
        "at the link's exit, with slow start.",
        "The cellular link is generated, with the statistics of recorded links, instead of the paper's recording of "
        "Verizon's LTE. Mahimahi limits the ACKs by a trace, too: this is the link `cell_acks`. On the other links ACKs are "
        "delayed but not limited in rate.",
        "The paper's Reno and Cubic are portus' own. They are measured if the command names an agent that has them. "
        "ccplane's Reno and Cubic with `split=agent` are always shown: their program only measures, and the agent computes "
        "every window. Detection of losses and proportional rate reduction remain in the transport."])


def shown(results):
    """Returns the distances of throughput and delay as text."""
    return ", ".join("–" if one is None else f"{getattr(one, 'value', one):.3f}" for one in results)


medians = {}
for datapath, label in (("linux", "kernel TCP"), ("sim", "simulator")):
    runs = paper.runs(datapath)
    if not len(runs):
        continue
    prefix = "sim_" if datapath == "sim" and medians else ""
    runs = runs.with_columns(dropped=pl.col("queue_drops") + pl.col("random_losses"))
    algorithms = {algorithm: known | {name: (suffix, name, False) for name, suffix in agents(runs["contender"], algorithm).items()}
                  for algorithm, known in ALGORITHMS.items()}
    columns = ["goodput_mbit", "utilisation", "delay_mean_ms", "delay_p95_ms", "retransmitted_segments", "dropped"]
    found = runs.group_by("case", "contender", maintain_order=True).agg(pl.len(), pl.col(columns).median())
    medians[datapath] = {(row["case"], row["contender"]): row for row in found.iter_rows(named=True)}
    # Hundredths: 10 kbit/s and 10 µs, a fraction of a packet in either unit.
    bins = paper.series("bins", datapath).with_columns(pl.col("throughput_mbit", "delay_ms").round(2, mode="half_away_from_zero"))
    values = {key: [run[list(UNITS.values())] for _, run in own.group_by("run", maintain_order=True)]
              for key, own in bins.group_by("case", "contender", maintain_order=True)}
    distances = {}
    links = [link for link in LABELS if (link, "native:reno") in values]
    for link in links:
        for algorithm, contenders in algorithms.items():
            for what, column in UNITS.items():
                base = f"{prefix}ks_{what}_{link}_{algorithm}"
                native = [run[column].drop_nulls().to_list() for run in values[link, f"native:{algorithm}"]]
                chance = distance_within(native) if datapath == "linux" else None
                paper.record(f"{base}_native", chance)
                target = 0.03 if (datapath, what) == ("sim", "delay") else max(round(1.5 * (chance or 0), 3), 0.05)
                among = "" if chance is None else f" (among native runs {chance:.3f})"
                for name, (suffix, case, judged) in contenders.items():
                    if (link, name) not in values:
                        continue
                    ours = [run[column].drop_nulls().to_list() for run in values[link, name]]
                    result = jackknife(ours, native, distance) if datapath == "linux" else ks(pooled(ours), pooled(native))
                    distances[link, name, what] = result
                    paper.compare(f"{base}{suffix}",
                                  f"{label}, {LABELS[link]}, {algorithm}, {case}: {what}, KS distance{among}", result,
                                  PUBLISHED[what], **({"at_most": target} if judged else {}))
                    if (datapath, what) == ("sim", "delay"):
                        paper.record(f"{base}{suffix}_above_1ms", gap_from(pooled(ours), pooled(native), 1.0))
    paper.table(f"KS distance from native, {label}: throughput, delay",
                ["algorithm", "division of work", *(LABELS[link] for link in links)],
                [[algorithm, case, *(shown(distances.get((link, name, what)) for what in UNITS) for link in links)]
                 for algorithm, contenders in algorithms.items() for name, (_, case, _) in contenders.items()
                 if (links[0], name) in values])
    for what, column in UNITS.items():
        figure, panels = plt.subplots(2, len(links), sharey=True, figsize=(10, 5))
        for row, algorithm in zip(panels, ALGORITHMS):
            for axis, link in zip(row, links):
                cases = {f"native:{algorithm}": "native"} | {name: case for name, (_, case, _) in algorithms[algorithm].items()}
                for name, case in cases.items():
                    if (link, name) not in values:
                        continue
                    own = np.sort(pooled(run[column].drop_nulls() for run in values[link, name]))
                    axis.plot(own, np.arange(1, len(own) + 1) / len(own), STYLES.get(case, "C4"), label=case, linewidth=1)
                axis.set(title=f"{LABELS[link]}, {algorithm}", ylim=(0, 1))
        figure.legend(*panels[1, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)
        figure.supxlabel(f"{what}, {'Mbit/s' if what == 'throughput' else 'ms'}")
        figure.supylabel("share of round-trip times")
        paper.figure(figure, f"Distribution of {what} over round-trip times, all runs, {label}")
    paper.table(f"Medians over runs, {label}",
                ["link", "algorithm", "runs", "goodput, Mbit/s", "utilisation, %", "delay mean, ms", "p95, ms", "retransmitted"],
                [[link, name, row["len"], cell(row["goodput_mbit"]), cell(row["utilisation"] * 100, 1),
                  cell(row["delay_mean_ms"]), cell(row["delay_p95_ms"]), cell(row["retransmitted_segments"], 0)]
                 for (link, name), row in medians[datapath].items()])

if len(medians) == 2:
    for algorithm in ALGORITHMS:
        kernel, simulated = (medians[on]["fixed", algorithm] for on in ("linux", "sim"))
        for column, (what, low, high) in AGREEMENT.items():
            ours, base = simulated[column], kernel[column]
            ratio = 1.0 if ours == base else ours / base if base else None
            paper.compare(f"agree_{what}_fixed_{algorithm}", f"simulator ÷ kernel, fixed, {algorithm}: {what}", ratio,
                          at_least=low, at_most=high)
paper.finish()
