# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "A single flow over loopback: native, a report for every ACK, a report every 10 ms"
# source = "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 2.2, table 1"
# takes = "10 minutes; half a minute with --quick"
# agents = "contenders"
# ///
import numpy as np

from paper import Paper, agents, cell, plt
from turns import Turns

# Contender, name in keys, label, the paper's goodput in Gbit/s. The paper's case is `split=agent`.
# Targets apply to ccplane's default division of work.
CONTENDERS = (("native:reno", "native", "native", 43), ("reno:report=ack", "per_ack", "per ACK", 29),
              ("reno:report=10ms", "10ms", "every 10 ms", 41),
              ("reno:split=agent:report=ack", "agent_per_ack", "agent only, per ACK", 29),
              ("reno:split=agent:report=rtt", "agent_rtt", "agent only, each RTT", None),
              ("reno:split=agent:report=10ms", "agent_10ms", "agent only, every 10 ms", 41))
NATIVE = CONTENDERS[0][0]

paper = Paper(
    remarks=[
        "In the case \"agent only\" the agent computes every window, as in CCP. The CPU of an agent in another process is "
        "not measured: its row has the thread that passes on messages."],
    deviations=[
        "Memory-to-memory senders and receivers of ccplane instead of iperf; a receiver is woken once per megabyte, under "
        "every contender. This machine and its kernel instead of the paper's four cores of 2.8 GHz and Linux 4.14.",
        "The paper's Reno is portus' own, in another process. It is measured if the command names an agent that has it. "
        "ccplane's Reno with `split=agent` in a thread is always shown."])
turns = Turns(paper)
others = agents(turns.runs["contender"], "reno").items()
contenders = CONTENDERS + tuple((name, f"agent{suffix}", name, None) for name, suffix in others)
for contender, key, label, gbit in contenders[1:]:
    target = {} if key.startswith("agent") else {"at_least": 0.95}
    paper.compare(f"interval_{key}_ratio", f"goodput {label} ÷ native", turns.ratio(1, contender, NATIVE),
                  "" if gbit is None else f"{gbit / 43:.2f} ({gbit} of 43 Gbit/s)", **target)
rows, ours = [], []
for contender, key, label, gbit in contenders:
    mean, deviation = turns.spread(1, contender, "goodput_gbit")
    paper.record(f"interval_{key}_gbit", mean)
    ours.append((mean, deviation))
    reports, cpu = (turns.spread(1, contender, column)[0] for column in ("reports_per_s", "agent_cpu_percent"))
    paper.record(f"interval_{key}_reports_per_s", reports)
    paper.record(f"interval_{key}_agent_cpu_percent", cpu)
    rows.append([label, cell(mean, 1), cell(deviation, 1), gbit, cell(reports, 0), cell(cpu, 1)])
paper.table("Throughput", ["", "ours, Gbit/s", "standard deviation", "the paper's, Gbit/s", "reports/s",
                           "agent's CPU, % of one"], rows)

figure, axis = plt.subplots()
places = range(len(contenders))
axis.errorbar(places, *zip(*ours), fmt="o", capsize=4, label="ours")
axis.plot(places, [np.nan if one[3] is None else one[3] for one in contenders], "kD", label="paper")
axis.set_xticks(places, [one[2].replace(", ", "\n").replace("@", "\n@") for one in contenders])
axis.set(ylabel="throughput, Gbit/s", ylim=(0, None))
axis.legend()
paper.figure(figure, "Throughput of a single flow over loopback, mean and standard deviation over runs (table 1)")
turns.describe(paper)
paper.finish()
