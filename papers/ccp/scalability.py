# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Throughput and CPU from 1 to 1,024 flows"
# source = "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.2.2, figure 13"
# takes = "11 hours (ten runs of 30 s of each, as in the paper); a minute and a half with --quick"
# ///
from paper import Paper, cell, plt
from turns import Turns, plus_minus

CONTENDERS = [(name.format(algorithm), algorithm) for algorithm in ("reno", "cubic")
              for name in ("native:{}", "{}:report=ack", "{}:report=10ms")]
# Part of keys, label, suffix of the contender.
REPORTS = (("", "every 10 ms", "10ms"), ("_per_ack", "per ACK", "ack"))
# CPU use of the machine over a run, and over each second of it.
CPU, CPU_OF_SECOND = "machine_cpu_percent", "cpu_percent"


def agent(turns, n, contender):
    """Returns reports per second and the agent's CPU, percent of one, as text; None for a native algorithm."""
    if contender.startswith("native"):
        return None, None
    return (cell(turns.spread(n, contender, column)[0], digits)
            for column, digits in (("reports_per_s", 0), ("agent_cpu_percent", 1)))


paper = Paper(
    deviations=[
        "Memory-to-memory senders and receivers of ccplane instead of iperf; a receiver is woken once per megabyte, under "
        "every contender. This machine and its kernel instead of the paper's four cores of 2.8 GHz and Linux 4.14.",
        "The limited link is a pair of virtual devices on this machine with a token bucket instead of two machines. Its "
        "rate is the highest of 10, 5, 2 and 1 Gbit/s that leaves CPU to spare. CPU use includes the receivers, so the "
        "paper's \"under 8 %\" has no counterpart."])
loopback, limited = Turns(paper), Turns(paper, "limited")
all_flows, gbit = sorted(loopback.runs["flows"].unique()), limited.runs["rate_gbit"][0]
for algorithm, suffix in (("reno", ""), ("cubic", "_cubic")):
    native = f"native:{algorithm}"
    for key, label, report in REPORTS:
        ours = f"{algorithm}:report={report}"
        for n in (n for n in all_flows if n in (1, 16, 64, 1024)):
            paper.compare(f"goodput_ratio{key}_{n}{suffix}", f"{algorithm} {label}, {n} flows: loopback goodput ÷ native",
                          loopback.ratio(n, ours, native), "matches the kernel's" if n <= 64 else "", at_least=0.95)
        for n in (n for n in all_flows if n in (1, 16, 64)):
            paper.compare(f"cpu_ratio{key}_{n}{suffix}", f"{algorithm} {label}, {n} flows: CPU ÷ native at {gbit} Gbit/s",
                          limited.ratio(n, ours, native, CPU), "2.0 on average from 16 to 64" if n >= 16 else "",
                          at_most=1.05)
most = max(n for n in all_flows if n <= 64)
paper.compare("cubic_to_reno_goodput", f"Cubic ÷ Reno, every 10 ms, {most} flows: loopback goodput",
              loopback.ratio(most, "cubic:report=10ms", "reno:report=10ms"), "does not affect performance",
              at_least=0.95, at_most=1.05)
paper.results["wire_gbit"] = gbit
# Goodput and CPU over all seconds, reports and the agent's CPU over runs.
for n in (n for n in all_flows if n in (1, 16, 64, 1024)):
    for algorithm, suffix in (("reno", ""), ("cubic", "_cubic")):
        for key, contender in (("_native", f"native:{algorithm}"),
                               *((key, f"{algorithm}:report={report}") for key, _, report in REPORTS)):
            for name, (value, deviation) in (
                    ("goodput_gbit", loopback.sampled(n, contender)),
                    ("wire_goodput_gbit", limited.sampled(n, contender)),
                    ("wire_cpu_percent", limited.sampled(n, contender, CPU_OF_SECOND))):
                paper.record(f"{name}{key}_{n}{suffix}", value)
                paper.record(f"{name}_sd{key}_{n}{suffix}", deviation)
            if key == "_native":
                continue
            for place, turns in (("", loopback), ("wire_", limited)):
                for column in ("reports_per_s", "agent_cpu_percent"):
                    paper.record(f"{place}{column}{key}_{n}{suffix}", turns.spread(n, contender, column)[0])

figure, axes = plt.subplots(1, 2, figsize=(9, 4))
for axis, title, values in ((axes[0], "throughput over loopback, Gbit/s", loopback.sampled),
                            (axes[1], f"CPU at {gbit} Gbit/s, % of one", lambda *of: limited.sampled(*of, CPU_OF_SECOND))):
    for contender, algorithm in CONTENDERS:
        means, deviations = zip(*(values(n, contender) for n in all_flows))
        axis.errorbar(all_flows, means, deviations, fmt="o--" if contender.startswith("native") else "o-", capsize=2,
                      label=contender)
    axis.set(title=title, xlabel="flows", ylim=(0, None))
    axis.set_xscale("log", base=2)
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
paper.figure(figure, "Mean and standard deviation over all seconds of all runs, as in figure 13")
paper.table("All contenders", ["flows", "", "loopback, Gbit/s", "reports/s", "agent's CPU, %", "limited, Gbit/s", "CPU, %",
                               "reports/s", "agent's CPU, %"], [
    [n, contender, plus_minus(loopback.sampled(n, contender)), *agent(loopback, n, contender),
     plus_minus(limited.sampled(n, contender)), plus_minus(limited.sampled(n, contender, CPU_OF_SECOND)),
     *agent(limited, n, contender)] for n in all_flows for contender, _ in CONTENDERS])
loopback.describe(paper)
paper.remarks.append(
    "Goodput and CPU use are means and standard deviations over all seconds of all runs; reports and the agent's CPU are "
    "means over runs. CPU use is that of the whole machine: senders, receivers and agent. The agent's CPU is that of its "
    "thread. Both are in percent of one CPU.")
paper.finish()
