# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "A group of flows on two hosts that takes one flow's share, or keeps to one limit, and the cost of a far agent"
# source = "ccplane's own, for an expectation of Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018"
# takes = "45 minutes (a minute of it simulated); two minutes with --quick"
# ///
import polars as pl

from paper import Estimate, Paper, cell, estimate, mean, paired_ratio, plt

LIMIT_MBIT = 40
DISTANCES = {20: "20us", 1_000: "1ms", 10_000: "10ms", 50_000: "50ms"}
SETTINGS = {
    **{("share", us): f"a group as one flow, agent {name} away" for us, name in DISTANCES.items()},
    ("bare", 20): "a group as one flow, bare hosts", ("flows", 20): "two flows of Cubic", ("apart", 20): "eight flows and one",
    **{("limit", us): f"a group of 40 Mbit/s, agent {name} away" for us, name in DISTANCES.items()},
    ("limit-beside", 20): "the same next to a flow"}
SETUP = ("8 members on two hosts, one agent, 96 Mbit/s, 20 ms, a drop-tail queue of one BDP. All flows start within the "
         "first second; results are from {steady_s} s to {end_s} s. A member is idle from {idle_s} s to {returns_s} s, and "
         "one is killed at {killed_s} s. An agent's distance is the time that a report takes to it, and a command back. ")
REMARKS = {
    "sim": "All hosts pace, as with Linux's fq, and a packet takes up to 500 µs in its host at random; the row of bare hosts "
           "is without both. Constants and that time in a host were chosen on other seeds.",
    "linux": "Hosts are namespaces of one kernel, each with a registration of its own and a connection over TLS to the agent, "
             "whose distance an emulated path makes. Every socket is paced by TCP (SO_MAX_PACING_RATE), and none of the row "
             "of bare hosts."}
# Flow 8 is the one next to the group.
MBIT, PHASE, MEMBER = pl.col("goodput_mbit"), pl.col("phase"), pl.col("flow") < 8
SENDS = MBIT.filter(MEMBER, pl.col("sends") == 1)
BETWEEN, SOON = PHASE.is_in(["steady", "idle", "returned", "killed"]), PHASE.str.starts_with("soon")


def measured(on):
    """Returns the runs of each setting with their goodput, Jain's index and distance from the limit."""
    phases = paper.series("phases", on, ["run", "phase", "flow", "sends", "goodput_mbit"]).group_by("run", "phase").agg(
        group=MBIT.filter(MEMBER).sum(), other=MBIT.filter(~MEMBER).sum(),
        jain=pl.when(SENDS.len() > 1).then(SENDS.sum() ** 2 / (SENDS.len() * (SENDS ** 2).sum())))
    off = (pl.col("group") / LIMIT_MBIT - 1).abs() * 100
    own = phases.group_by("run").agg(
        pl.col("group", "other").filter(PHASE == "all").first(), pl.col("group", "other").filter(PHASE == "idle").first().name.prefix("idle_"),
        fairness=pl.col("jain").filter(BETWEEN).min(), soon=pl.col("jain").filter(SOON).mean(), limit_error=off.filter(BETWEEN).max())
    rows = paper.runs(on).join(own, on="run", maintain_order="left").with_columns(both=pl.col("group") + pl.col("other"))
    return {setting: rows.filter(sharing=setting[0], distance_us=setting[1]).sort("seed") for setting in SETTINGS}


def ratio(runs, prefix=""):
    return paired_ratio(list(zip(runs[f"{prefix}group"], runs[f"{prefix}other"])))


def cost(far, near, column):
    """Returns the loss of goodput of runs with a far agent, per cent."""
    kept = paired_ratio(list(zip(far[column], near[column])))
    ends = (kept.value, kept.high, kept.low) if kept else ()
    return Estimate(*(None if end is None else (1 - end) * 100 for end in ends)) if kept else None


def evaluate(on, prefix, place):
    """Adds the results of one datapath."""
    runs = measured(on)
    near, limited = runs["share", 20], runs["limit", 20]

    def compare(key, what, result, **target):
        paper.compare(f"{prefix}group_{key}", f"{place}{what}", result, **target)

    compare("share_ratio", "goodput of the group ÷ that of the flow next to it", ratio(near), at_least=0.9, at_most=1.1)
    compare("jain", "Jain's index of the members that send, the worst phase", estimate(near["fairness"]), at_least=0.95)
    compare("limit_error_pct", "distance of the sum from its limit, the worst phase, %", estimate(limited["limit_error"]), at_most=2.0)
    compare("delay_cost_pct_10ms", "goodput that the group loses with an agent 10 ms away, %",
            cost(runs["share", 10_000], near, "group"), at_most=5.0)
    compare("soon_jain", "Jain's index over ten round trips, ten after a return or a kill", estimate(near["soon"]), at_least=0.95)
    compare("idle_share_ratio", "the group ÷ the flow next to it while a member is idle", ratio(near, "idle_"))
    compare("flows_ratio", "two flows of Cubic, one ÷ the other", ratio(runs["flows", 20]))
    compare("apart_ratio", "the eight as flows of their own ÷ the flow next to them", ratio(runs["apart", 20]))
    compare("bare_ratio", "the group ÷ the flow next to it, hosts that neither pace nor take time", ratio(runs["bare", 20]))
    values = {"jain_least": near["fairness"].min(), "limit_jain": mean(limited["fairness"]),
              "limit_beside_error_pct": mean(runs["limit-beside", 20]["limit_error"])}
    for us, name in DISTANCES.items():
        far = runs["share", us]
        values |= {f"share_ratio_{name}": ratio(far), f"jain_{name}": mean(far["fairness"]), f"soon_jain_{name}": mean(far["soon"]),
                   f"drops_{name}": mean(far["queue_drops"]), f"queue_ms_{name}": mean(far["delay_mean_ms"]),
                   f"limit_error_pct_{name}": mean(runs["limit", us]["limit_error"])}
        for part, column in (("", "group"), ("_other", "other"), ("_link", "both")):
            values |= {f"delay{part}_cost_pct_{name}": cost(far, near, column)} if us > 20 else {}
    for key, value in values.items():
        paper.record(f"{prefix}group_{key}", value)

    figure, panels = plt.subplots(2, 2, figsize=(8.5, 6))
    for axis, sharing, column, label in (
            (panels[0, 0], "share", "group", "group"), (panels[0, 0], "share", "other", "the flow next to it"),
            (panels[0, 0], "share", "both", "together"), (panels[0, 1], "share", "fairness", "the worst phase"),
            (panels[0, 1], "share", "soon", "ten round trips after a change"), (panels[1, 0], "limit", "limit_error", "the worst phase")):
        points = [(us / 1e3, mean(runs[sharing, us][column])) for us in DISTANCES if len(runs[sharing, us])]
        axis.plot(*zip(*points), "o-", label=label)
        axis.set(xlabel="distance of the agent, ms", xscale="log")
    panels[0, 0].set(ylabel="goodput, Mbit/s", ylim=(0, 100))
    panels[0, 1].set(ylabel="Jain's index, at least 0.95", ylim=(0.5, 1))
    panels[1, 0].set(ylabel="distance from the limit, at most 2 %", ylim=(0, 5))
    course = paper.series("course", on, ["run", "time_s", "flow", "goodput_mbit"]).filter(run=near["run"][0])
    for label, flows in (("group", range(8)), ("the flow next to it", [8]), ("a member", [0]), ("the idle one", [3]), ("the killed one", [7])):
        own = course.filter(pl.col("flow").is_in(list(flows))).group_by("time_s", maintain_order=True).agg(MBIT.sum())
        panels[1, 1].plot(own["time_s"], own["goodput_mbit"], linewidth=1, label=label)
    panels[1, 1].set(xlabel="time, s", ylabel="goodput of a run, Mbit/s", ylim=(0, 96))
    for axis in panels.flat:
        axis.legend(fontsize=7)
    paper.figure(figure, f"{place}Effect of the agent's distance, and the run with the first seed")
    columns = {"group": 1, "other": 1, "fairness": 3, "delay_mean_ms": 1, "queue_drops": 0}
    paper.table(f"{place}Means over seeds", ["", "group, Mbit/s", "the other, Mbit/s", "Jain's index, worst phase", "queue, ms", "drops"],
                [[SETTINGS[setting], *(cell(mean(own[column]), digits) for column, digits in columns.items())]
                 for setting, own in runs.items() if len(own)])
    paper.remarks.append(place + SETUP.format(**near.row(0, named=True)) + REMARKS[on])


paper = Paper(deviations=["There is no published experiment of this kind: CCP's paper names the use and measures none."])
evaluate("sim", "", "")
if len(kernel := paper.runs("linux")):
    evaluate("linux", "kernel_", "kernel TCP: ")
    paper.results["kernel_group_fallbacks"] = int(kernel["fallbacks"].sum())
paper.finish()
