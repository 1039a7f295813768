# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "An algorithm that computes for long, at loopback speed"
# source = "ours, for a claim of Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 2.2"
# takes = "5 minutes; 20 seconds with --quick"
# ///
from paper import Paper, line, plt
from turns import Turns

NATIVE, TIMES, FLOWS = "native:reno", ("0us", "100us", "1ms", "10ms"), (1, 8)

paper = Paper(
    remarks=[
        "The agent's thread has a lower priority than senders (nice 10). The callback computes on a core of its own as "
        "long as there is one. With as many flows as cores its computation takes CPU time from the senders, as in the "
        "native run next to a thread of the same priority that computes as much."],
    deviations=[
        "The paper has no figure for this, only the statement that \"it is possible to build algorithms that perform "
        "complex computations and yet achieve high throughput\"."])
turns = Turns(paper)
figure, axis = plt.subplots()
for flows in FLOWS:
    ratios = [turns.ratio(flows, f"slow_reno:takes={takes}", NATIVE) for takes in TIMES]
    for takes, ratio in zip(TIMES, ratios):
        # No target: the native run has all CPUs, so the ratio depends on the machine.
        paper.compare(f"slow_{takes}_ratio_{flows}", f"goodput ÷ native, callback of {takes}, {flows} flows", ratio)
    line(axis, range(len(TIMES)), ratios, f"{flows} flows")
    paper.record(f"slow_native_gbit_{flows}", turns.spread(flows, NATIVE, "goodput_gbit")[0])
matched = {flows: turns.matched_ratio(flows, "slow_reno:takes=1ms") for flows in FLOWS}
for flows, ratio in matched.items():
    paper.compare(f"slow_1ms_ratio_fair_{flows}", "goodput ÷ native next to a thread that computes as much, callback of "
                  f"1 ms, {flows} flows", ratio, at_least=0.95)
worst = min((ratio for ratio in matched.values() if ratio), key=lambda ratio: ratio.low or ratio.value, default=None)
paper.compare("slow_1ms_ratio_fair", "the worst of these", worst, at_least=0.95)
axis.axhline(1, color="0.5", linestyle="--", linewidth=1)
axis.set(xlabel="time of a callback", ylabel="goodput ÷ native", ylim=(0, 1.2))
axis.set_xticks(range(len(TIMES)), TIMES)
axis.legend()
paper.figure(figure, "Goodput of Reno with a callback that computes, divided by that of the kernel's own Reno")
turns.describe(paper)
paper.finish()
