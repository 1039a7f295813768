# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "A single flow over loopback: native, a report for every ACK, a report every 10 ms"
# source = "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 2.2, table 1"
# takes = "5 minutes; 15 seconds with --quick"
# ///
from paper import Paper, cell, plt
from turns import Turns

# Contender, name in keys, label, the paper's goodput in Gbit/s.
CONTENDERS = (("native:reno", "native", "native", 43), ("reno:report=ack", "per_ack", "per ACK", 29),
              ("reno:report=10ms", "10ms", "every 10 ms", 41))
NATIVE = CONTENDERS[0][0]

paper = Paper(
    deviations=[
        "Memory-to-memory senders and receivers of ccplane instead of iperf; a receiver is woken once per megabyte, under "
        "every contender. This machine and its kernel instead of the paper's four cores of 2.8 GHz and Linux 4.14."])
turns = Turns(paper)
for contender, key, label, gbit in CONTENDERS[1:]:
    paper.compare(f"interval_{key}_ratio", f"goodput {label} ÷ native", turns.ratio(1, contender, NATIVE),
                  f"{gbit / 43:.2f} ({gbit} of 43 Gbit/s)", at_least=0.95)
rows, ours = [], []
for contender, key, label, gbit in CONTENDERS:
    mean, deviation = turns.spread(1, contender, "goodput_gbit")
    paper.record(f"interval_{key}_gbit", mean)
    ours.append((mean, deviation))
    rows.append([label, cell(mean, 1), cell(deviation, 1), gbit, cell(turns.spread(1, contender, "reports_per_s")[0], 0)])
paper.table("Throughput", ["", "ours, Gbit/s", "standard deviation", "the paper's, Gbit/s", "reports/s"], rows)

figure, axis = plt.subplots()
places = range(len(CONTENDERS))
axis.errorbar(places, *zip(*ours), fmt="o", capsize=4, label="ours")
axis.plot(places, [one[3] for one in CONTENDERS], "kD", label="paper")
axis.set_xticks(places, [one[2] for one in CONTENDERS])
axis.set(ylabel="throughput, Gbit/s", ylim=(0, None))
axis.legend()
paper.figure(figure, "Throughput of a single flow over loopback, mean and standard deviation over runs (table 1)")
turns.describe(paper)
paper.finish()
