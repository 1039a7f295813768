# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Accuracy of a measured delay: a known queue, the stack's RTT, and better timestamps in steps"
# source = "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slides 7 to 20"
# takes = "3 minutes; 20 seconds with --quick"
# ///
from paper import Paper, cell, distribution, pl, plt, quantile

PACKET_10G_US = 1.2
STEPS = ["stack's RTT", "timestamps below the sender's stack", "receiver's delay subtracted", "paced, then stamped",
         "calibrated by transmission time", "one way"]
CAUSES = {"idle stack": "stacks of both hosts", "idle driver": "bursts and batches of both hosts",
          "busy": "queues of the reverse path", "idle drift": "clocks that drift apart by 20 ppm"}

paper = Paper(
    remarks=[
        "A known queue, slides 19 and 20: sender 1 saturates the link with one TCP connection, sender 2 sends a packet "
        "of 1,500 bytes every 25 ms, sender 1 computes the queueing delay from the time stamps of its own packets, and "
        "the switch's queue is the truth. A packet of sender 1 counts as delayed if it waits for at least half a "
        "packet's time. A packet of sender 2 counts as detected if the delayed packets after it have, on average, a "
        "measured delay at least half a packet's time above the others.",
        "The steps, modelled: the true times are those of one TCP connection over a simulated link of 10 Gbit/s, whose "
        "ACKs share their path with 5 Gbit/s of other packets. Each passage through a stack takes an exponential time "
        "with a mean of 71 µs, so that the 99th percentile of four together is slide 8's 710 µs; the first step is "
        "therefore no result. Drivers give 20 µs of departures one timestamp, that of the first, and 10 µs of arrivals "
        "one, that of their end. The last step leaves batches whose last packet did not arrive at their end."],
    deviations=[
        "The slides' values of the single steps are pictures without numbers: only slide 8's 710 µs can be compared. "
        "Their host had one NIC of 10 Gbit/s and Linux 3.13. Ours are virtual devices between two namespaces.",
        "Slides 19 and 20 do not state sender 1's window. In the simulator it is the path's, ten packets, so the queue "
        "is empty again a round trip after a packet of sender 2. The sender 1 of real packets is a connection of this "
        "kernel that writes a segment per packet time, at 99 % of 100 Mbit/s: at 1 Gbit/s neither a thread nor the "
        "emulator is accurate to the 12 µs of a packet. Its delays are of one direction, from the kernel's time stamps "
        "in the driver and on arrival. Sender 2's packets are UDP, without the answers of a ping.",
        "A further measurement exchanges the roles and has a long queue: one TCP connection keeps a buffer of 250 "
        "packets full, and the packets that pass every 25 ms measure. The connection's own link in the simulator has "
        "10 Gbit/s, so that the queue is in the switch; on real packets the queue is the emulator's at 100 Mbit/s, "
        "whose log has every packet."])
real = len(paper.runs("linux")) > 0


def read(name, datapath):
    """Returns the rows of each run. All times are in ns."""
    table = paper.series(name, datapath)
    table = table.with_columns(pl.col(one).cast(pl.Int64) for one in table.columns if one[0] in "tmu")
    if name == "exchanges":
        t1, t2, t3, t4 = pl.col("t1"), pl.col("t2"), pl.col("t3"), pl.col("t4")
        table = table.with_columns(total=t4 - t1, inside=t3 - t2, one_way=t2 - t1, rtt=t4 - t1 - (t3 - t2))
    return {run: own for (run,), own in table.group_by("run", maintain_order=True)}


def spread(values):
    """Returns the median and the 99th percentile above the minimum, µs."""
    return [quantile(values - values.min(), share) / 1e3 for share in (0.5, 0.99)]


def slides(place, kind, packet_us):
    """Returns the packets of sender 1, µs, with the accuracy of their measured delays in packets."""
    table = paper.series("saturated", place)
    if not len(table) or kind not in table.columns:
        return None, {}
    table = table.select(pl.col("at", "truth", kind, "probes").cast(pl.Int64)).drop_nulls()
    if not len(table):
        return None, {}
    truth, measured = pl.col("truth") / 1e3, pl.col(kind) / 1e3
    if place == "linux":
        # Both include constants: propagation, transmission and the clocks' offset.
        truth, measured = truth - truth.min(), measured - measured.min()
    table = table.select("probes", at_ms=pl.col("at") / 1e6, truth=truth, measured=measured)
    table = table.with_columns(error=(pl.col("measured") - pl.col("truth")) / packet_us,
                               delayed=pl.col("truth") >= packet_us / 2, found=pl.col("measured") >= packet_us / 2)
    errors = table["error"].abs()
    means = table.filter(pl.col("probes") > 0).group_by("probes").agg(
        step=(pl.col("measured").filter("delayed").mean() - pl.col("measured").filter(~pl.col("delayed")).mean())
        / packet_us)["step"].drop_nulls()
    share = {True: table.filter("delayed")["found"].mean(), False: table.filter(~pl.col("delayed"))["found"].mean()}
    return table, {
        "p50_packets": errors.quantile(0.5, "equiprobable"), "p99_packets": errors.quantile(0.99, "equiprobable"),
        "worst_packets": errors.max(), "hits": share[True], "false_alarms": share[False],
        "detected": (means >= 0.5).mean(), "step_packets": means.median(), "probes": len(means),
        "packets": len(table), "truth_max_packets": table["truth"].max() / packet_us}


# Slides 19 and 20 as they are. A packet takes 12 µs at 1 Gbit/s and 120 µs at 100 Mbit/s.
KINDS = [("sim", kind, 12, f"simulated, 1 Gbit/s, {kind}{like} time stamps")
         for kind, like in (("exact", ""), ("hardware", "-like"), ("software", "-like"))]
KINDS += [("linux", "kernel", 120, "real packets, 100 Mbit/s, the kernel's time stamps")] if real else []
rows, (figure, (time_axis, near_axis, error_axis)) = [], plt.subplots(1, 3, figsize=(10, 3.3))
for place, kind, packet_us, where in KINDS:
    packets, found = slides(place, kind, packet_us)
    key, matches = f"slides_{kind}", "matches the switch (slide 20)"
    paper.compare(f"{key}_p50_packets",
                  f"slides 19, 20: error of sender 1's queueing delay in packets, median, {where}",
                  found.get("p50_packets"), matches, at_most={"exact": 0, "hardware": 0.5, "kernel": 0.5}.get(kind))
    paper.compare(f"{key}_detected", f"slides 19, 20: share of sender 2's single packets that are detected, {where}",
                  found.get("detected"), "single packets (slide 20)",
                  at_least={"exact": 1, "hardware": 0.99, "kernel": 0.9}.get(kind))
    for name in ("p99_packets", "worst_packets", "hits", "false_alarms", "step_packets", "probes", "packets",
                 "truth_max_packets"):
        paper.record(f"{key}_{name}", found.get(name))
    rows.append([where, found.get("packets"), found.get("probes"), cell(found.get("truth_max_packets"), 1),
                 *(cell(found.get(f"{name}_packets"), 3) for name in ("p50", "p99", "worst")),
                 *(None if found.get(name) is None else f"{found[name] * 100:.1f}"
                   for name in ("hits", "false_alarms", "detected")), cell(found.get("step_packets"))])
    if packets is None:
        continue
    short = "real packets" if place == "linux" else kind + ("" if kind == "exact" else "-like")
    error_axis.plot(*distribution(packets["error"], 400), label=short)
    if place == "sim":
        # The delayed packets of sender 1 and every tenth of the others, and all around the second packet of sender 2.
        shown = packets.with_row_index().filter(pl.col("delayed") | (pl.col("index") % 10 == 0))
        start = packets.filter(pl.col("probes") >= 2)["at_ms"].min() or 0.0
        for axis, own in ((time_axis, shown.filter(pl.col("probes").is_between(1, 3))),
                          (near_axis, packets.filter((pl.col("at_ms") - start).is_between(-0.1, 0.25)))):
            if kind == "exact":
                axis.plot(own["at_ms"], own["truth"] / packet_us, "k-", label="switch's queue", zorder=4, linewidth=1)
            else:
                axis.plot(own["at_ms"], own["measured"] / packet_us, ".", label=f"measured, {kind}-like",
                          markersize=1 if axis is time_axis else 4, zorder=3 if kind == "hardware" else 2)
for axis, title in ((time_axis, "three packets of sender 2, simulated"), (near_axis, "the second one")):
    axis.set(xlabel="ms", ylabel="queueing delay, packets", title=title, ylim=(-0.1, 2.5))
near_axis.legend(fontsize=7)
error_axis.set(xlabel="error, packets", ylabel="share of packets", xlim=(-1.5, 2.5))
error_axis.legend(fontsize=7, loc="lower right")
paper.figure(figure, "Slides 19 and 20: sender 1 saturates the link and measures, sender 2 sends a packet every 25 ms. "
             "Right: distribution of the error, in packets of the link")
paper.table("Slides 19 and 20: error of the queueing delay that sender 1 measures, in packets of the link; delayed "
            "packets of sender 1 that it finds, others that it takes for delayed, and packets of sender 2 that it "
            "detects, %",
            ["", "packets", "of sender 2", "longest wait", "error, p50", "p99", "maximum", "delayed and found",
             "false alarms", "detected", "median step"], rows)

# The stack's delay moves the packets of a real host. In the simulator it is added to the timestamps. The model's noise
# was fitted to the first step.
sim = read("exchanges", "sim")
steps = {"sim": [None, sim["driver"]["total"] - sim["stack"]["inside"], sim["driver"]["rtt"], sim["paced"]["rtt"],
                 sim["calibrated"]["rtt"], sim["calibrated"]["one_way"]]}
if real:
    found = read("exchanges", "linux")
    bursts, paced = (found[run].filter(pl.min_horizontal("t1", "t2", "t3", "t4") > 0) for run in ("bursts", "paced"))
    steps["real"] = [bursts["user"], bursts["total"], bursts["rtt"], paced["rtt"], None, paced["one_way"]]
    alone = found["connection"].filter(pl.col("t4") < bursts["t1"].min())["total"]
    above = (alone - alone.min()) / 1e3
    paper.compare("stack_rtt_spread_us", "the stack's RTT, maximum above the minimum, µs", above.max(), "710 (slide 8)")
    paper.compare("stack_rtt_spread_packets", "packets at 10 Gbit/s", above.max() / PACKET_10G_US, "592 (slide 8)")
    paper.compare("stack_rtt_p99_us", "its 99th percentile above the minimum, µs", quantile(above, 0.99))
    paper.record("stack_rtt_least_us", alone.min() / 1e3)
    paper.record("stack_rtt_p50_us", quantile(above, 0.5))
    figure, axis = plt.subplots(subplot_kw={"xscale": "log", "xlabel": "µs", "ylabel": "share of writes"})
    axis.plot(*distribution(above, 1000))
    paper.figure(figure, "The stack's RTT above its minimum; one TCP connection over a pair of virtual devices")
    clocks = paper.runs("linux")["hardware_clocks"][0] or ""
    paper.results["hardware_clocks"] = len(clocks.split(", ")) if clocks else 0
    paper.remarks += [
        f"Real packets: a pair of virtual devices between two namespaces of this host. {len(alone)} writes of 16 KB at "
        "1 Gbit/s, each from the time at which TCP passes it to the device until its ACK arrives. For the steps "
        f"{len(bursts) + len(paced)} UDP packets of full size and their answers next to that connection, in bursts of "
        "16 up to the third step and one by one from the fourth. Such devices take no time to transmit, so there is "
        "nothing to calibrate by; both hosts have one clock.",
        f"Interfaces that can stamp every packet in hardware: {clocks or 'none'} (`hwstamp_ctl -i NAME -t 1 -r 1` "
        "enables it). They are not used here, but by `ccplane send --stamps hardware` to another host, which prints "
        "the one-way queueing delay."]

spreads = {place: [None if step is None else spread(step) for step in own] for place, own in steps.items()}
figure, axis = plt.subplots()
for color, (place, own) in enumerate(spreads.items()):
    for index, (name, style) in enumerate([("p50", "o--"), ("p99", "o-")]):
        values = {number: step[index] for number, step in enumerate(own, 1) if step}
        for number, value in values.items():
            paper.record(f"ladder_{place}_{number}_{name}_us", value)
        axis.plot(values.keys(), [max(value, 1e-3) for value in values.values()], f"C{color}{style}",
                  label=f"{'modelled' if place == 'sim' else 'real packets'}, {name}")
axis.axhline(PACKET_10G_US, color="0.5", linestyle=":", label="a packet at 10 Gbit/s")
axis.set(yscale="log", xlim=(0.8, 6.2), xlabel="step", ylabel="spread above the minimum, µs")
axis.legend()
paper.figure(figure, "Better timestamps: " + "; ".join(f"{number} {step}" for number, step in enumerate(STEPS, 1)))
paper.table("Spread of each measurement above its minimum, µs",
            ["measured", "modelled, p50", "p99", *(["real packets, p50", "p99"] if real else [])],
            [[step, *(cell(one) for own in spreads.values() for one in own[number] or [None] * 2)]
             for number, step in enumerate(STEPS)])
probes = read("probes", "sim")
computed = spread(pl.Series([0, *probes.pop("idle drift")["measured"]]))
causes = [[cause, spread(sim[run]["rtt"]), spread(sim[run]["one_way"])] for run, cause in CAUSES.items()]
causes.append(["the same, as ccplane computes it", causes[-1][1], computed])
paper.table("Effect of each cause alone, modelled, µs",
            ["cause", "RTT by timestamps, p50", "p99", "one way, p50", "p99"],
            [[cause, *map(cell, rtt + one_way)] for cause, rtt, one_way in causes])

rows, (figure, panels) = [], plt.subplots(1 + real, squeeze=False, figsize=(6.4, 2.4 * (1 + real)))
for name, own in (probes | (read("probes", "linux") if real else {})).items():
    emulated = name == "emulator"
    where = "real packets, 100 Mbit/s" if emulated else f"simulated, 1 Gbit/s, {name} timestamps"
    packet_us = 120 if emulated else 12
    # On real packets both include constants: propagation, transmission and the clocks' offset.
    truth, measured = ((own[one] - (own[one].min() if emulated else 0)) / 1e3 for one in ("truth", "measured"))
    errors = [quantile((measured - truth).abs(), share) for share in (0.5, 0.99, 1)]
    p50, p99, worst = (error / packet_us for error in errors)
    key, slide = ("accuracy", "matches packet by packet (slide 20)") if emulated else (f"accuracy_sim_{name}", "")
    paper.compare(f"{key}_p50_packets",
                  f"roles exchanged: error of the queueing delay in packets, median, {where}", p50, slide,
                  at_most={"exact": 0, "emulator": 1}.get(name))
    paper.record(f"{key}_p99_packets" if emulated else f"{key}_worst_packets", p99 if emulated else worst)
    rows.append([where, len(own), cell(truth.max(), 0), *map(cell, errors), cell(packet_us, 1)])
    if name in ("exact", "emulator"):
        paper.record("accuracy_p50_packets", p50)
        axis, times = panels[int(emulated), 0], [number * 0.025 for number in range(len(own))]
        axis.plot(times, truth / 1e3, "-", times, measured / 1e3, "--")
        axis.set(title=where, xlabel="s", ylabel="ms")
        axis.legend(["queue", "measured"])
paper.results["accuracy_of"] = "real packets" if real else "simulated"
paper.figure(figure, "Roles exchanged: waiting time of a packet every 25 ms in a long queue that another sender "
             "fills")
paper.table("Roles exchanged: error of the queueing delay, packet by packet, µs",
            ["", "packets", "longest wait", "error, p50", "p99", "maximum", "transmission of a packet"], rows)
paper.finish()
