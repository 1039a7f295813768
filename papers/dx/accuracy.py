# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Accuracy of a measured delay: the stack's RTT, better timestamps in steps, and a known queue"
# source = "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slides 7 to 20"
# takes = "2 minutes; 20 seconds with --quick"
# ///
from paper import Paper, cell, distribution, pl, plt, quantile

PACKET_10G_US = 1.2
STEPS = ["stack's RTT", "timestamps below the sender's stack", "receiver's delay subtracted", "paced, then stamped",
         "calibrated by transmission time", "one way"]
CAUSES = {"idle stack": "stacks of both hosts", "idle driver": "bursts and batches of both hosts",
          "busy": "queues of the reverse path", "idle drift": "clocks that drift apart by 20 ppm"}

paper = Paper(
    remarks=[
        "Modelled: the true times are those of one TCP connection over a simulated link of 10 Gbit/s, whose ACKs share "
        "their path with 5 Gbit/s of other packets. Each passage through a stack takes an exponential time with a mean "
        "of 71 µs, so that the 99th percentile of four together is slide 8's 710 µs; the first step is therefore no "
        "result. Drivers give 20 µs of departures one timestamp, that of the first, and 10 µs of arrivals one, that of "
        "their end. The last step leaves batches whose last packet did not arrive at their end."],
    deviations=[
        "The slides' values of the single steps are pictures without numbers: only slide 8's 710 µs can be compared. "
        "Their host had one NIC of 10 Gbit/s and Linux 3.13. Ours are virtual devices between two namespaces.",
        "Slides 18 to 20 have a switch whose queue is known, and a sender that saturates 1 Gbit/s. Ours are the "
        "simulator's switch, with 10 Gbit/s for the first sender's own link so that the queue is in the switch, and "
        "the emulator's queue at 100 Mbit/s, whose log has every packet. One TCP connection fills a buffer of 250 "
        "packets; on real packets it is this kernel's."])
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
    paper.compare(f"{key}_p50_packets", f"error of the queueing delay in packets, median, {where}", p50, slide,
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
paper.figure(figure, "Waiting time of a packet every 25 ms in a queue that another sender fills")
paper.table("Error of the queueing delay, packet by packet, µs",
            ["", "packets", "longest wait", "error, p50", "p99", "maximum", "transmission of a packet"], rows)
paper.finish()
