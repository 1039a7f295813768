# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "The queue of two senders at 1 and 10 Gbit/s, DX and DCTCP"
# source = "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slides 27-29, 32"
# takes = "3 minutes on two cores; 30 seconds with --quick"
# keep = ["delays"]
# ///
import polars as pl

from paper import Paper, cell, plt

LABELS = {"dx": "DX", "dx_hw": "DX, hardware-like stamps", "dx_sw": "DX, software-like stamps",
          "dx_paper": "DX, paper's rules", "dx_paper_hw": "DX, paper's rules, hardware-like stamps",
          "dx_paper_sw": "DX, paper's rules, software-like stamps", "dctcp": "DCTCP",
          "steered_dctcp": "DCTCP of ccplane"}
STYLES = {"dx": "C0", "dx_hw": "C1", "dx_sw": "C2", "dx_paper": "C0:", "dx_paper_hw": "C1:", "dx_paper_sw": "C2:",
          "dctcp": "C3", "steered_dctcp": "C4--"}
USED = 0.9
PUBLISHED = {"1g": 5.33, "10g": 1.57}
# Transmission of a full packet on kernel TCP's links.
OWN_US = {"100m": 120, "1g": 12, "1g_tbf": 12}
# Part of it in the record of the link: a packet leaves a token bucket at once.
RECORDED_US = OWN_US | {"1g_tbf": 0}
SUFFIXES = {"100m": "", "1g": "_1g", "1g_tbf": "_1g_tbf"}
PAPER_10G = "1.6 (slide 32; abstract: 1.57), kind of stamps not stated"

paper = Paper(
    remarks=[
        "Both sides count a packet's own transmission alike: the simulator's and the emulator's logs have the time "
        "from a packet's arrival at the queue to the departure of its last bit. The ratio of these times is the one "
        "that is compared with 5.33 and 1.6. It always exists, because a time is never 0, and it is the smaller of "
        "the two, so it does not favour DX. The ratio of the waiting times alone, without the own transmission, is "
        "reported next to it; if half of DX's packets do not wait, it has no bound. The slides compare queue lengths "
        "(slide 27) and do not state if the packet in transmission counts.",
        "Slide 29 has two lines at 10 Gbit/s, for hardware and software stamps, and none for exact ones. With --quick "
        "there are one round trip, two seeds and a fifth of a second."],
    deviations=[
        "The slides state no round trip, marking threshold or buffer. Ours: 100 µs plus the packets' own transmission; "
        "K = 20 packets at 1 Gbit/s and 65 at 10, g = 1/16, the usual values for DCTCP; 250 packets of buffer.",
        "A simulator instead of a testbed: our transport instead of Linux 3.13, and an ACK per packet. Exact stamps "
        "have no noise. The noise of the testbed's stamps at 10 Gbit/s is not in the slides, so its ratio may belong "
        "to either kind of noise, or to neither.",
        "Kernel TCP: DCTCP's threshold is 20 packets on both links, the value in use at 1 Gbit/s. If the emulator was "
        "late at 1 Gbit/s, or if the goodput is less than half of Cubic's, the ratio is left out. The kernel's token "
        "bucket (1g_tbf) is on time, but marks no packets and adds no delay: DX is compared with Cubic there, and the "
        "round trip is that of the host.",
        "\"DX\" adds a packet per two RTTs, and a short queue counts as none. \"DX, paper's rules\" has the slides' law "
        "alone: docs/algorithms/dx.md lists both."])

# Waiting time is the queueing delay without the packet's own transmission.
packet_us = 1500 * 8 / pl.col("rate_mbit")
split = pl.col("case").str.split(" ")
axes = {"rate": split.list.get(1), "rtt": (pl.col("rtt_ms") * 1e3).round(3), "name": split.list.get(0)}
waits = [(pl.col(f"delay_{kind}_ms") * 1e3 - packet_us).clip(0).alias(f"wait_{kind}_us") for kind in ("p50", "p99")]
columns = ["delay_p50_ms", "wait_mean_us", "wait_p50_us", "wait_p99_us", "utilisation", "queue_drops"]
runs = paper.runs().with_columns(*waits, **axes).group_by(list(axes), maintain_order=True).agg(pl.col(columns).mean())
found = {(row["rate"], row["rtt"], row["name"]): row for row in runs.iter_rows(named=True)}
p50 = {(rate, name): row["delay_p50_ms"] for (rate, rtt, name), row in found.items() if rtt == 100}

# A short queue on an idle link is no result. Targets are for the default rules, and for the delay with the packet's own
# transmission. The ratios of the waiting times alone have `wait` in their keys.
wait = {(rate, name): row["wait_p50_us"] for (rate, rtt, name), row in found.items() if rtt == 100}


def quotient(of, rate, name):
    """Returns DCTCP's median over another one's, None on an idle link or if half of the packets do not wait."""
    idle = found[rate, 100, name]["utilisation"] < USED
    return None if idle or not of[rate, name] else of[rate, "dctcp"] / of[rate, name]


ratios = {key: quotient(p50, *key) for key in p50 if key[1].startswith("dx")}
for rules, label in (("", "DX"), ("_paper", "DX by the paper's rules")):
    for stamps, suffix, rate, published, least in (
            ("exact", "", "1g", "5.33 (slides 28, 32)", 5.33), ("exact", "", "10g", PAPER_10G, 1.6),
            ("hardware-like", "_hw", "10g", PAPER_10G, 1.0), ("software-like", "_sw", "10g", PAPER_10G, 1.0)):
        name, what = f"dx{rules}{suffix}", f"DCTCP / {label}, {rate[:-1]} Gbit/s, {stamps} stamps"
        paper.compare(f"ratio_{rate}{rules}{suffix}", f"median queueing delay, {what}",
                      ratios[rate, name], published, at_least=None if rules else least)
        paper.compare(f"ratio_wait_{rate}{rules}{suffix}", f"median waiting time without own transmission, {what}",
                      quotient(wait, rate, name))
paper.state("ordered_10g", "DX's median queueing delay is lower with hardware-like than with software-like stamps, "
            "10 Gbit/s", p50["10g", "dx_hw"] < p50["10g", "dx_sw"], "yes (slide 29)")
for rate, name in ratios:
    paper.compare(f"util_{rate}{name[2:]}", f"utilisation, {rate[:-1]} Gbit/s, {LABELS[name]}",
                  found[rate, 100, name]["utilisation"], at_least=None if "paper" in name else 0.98)

delays = paper.series("delays").with_columns(**axes)
delays = delays.group_by("rate", "rtt", "name", "share").agg(pl.col("delay_ms").mean())
figure, panels = plt.subplots(1, 2, sharey=True, figsize=(8, 4))
for axis, rate in zip(panels, PUBLISHED):
    for name in ("dx", "dx_paper", "dctcp"):
        paper.record(f"queue_p50_{rate}_{name}_us", found[rate, 100, name]["wait_p50_us"])
    for name, label in LABELS.items():
        if (rate, name) in p50:
            own = delays.filter(rate=rate, rtt=100, name=name).sort("share")
            axis.plot(own["delay_ms"] * 1e3, own["share"], STYLES[name], label=label)
    axis.plot(p50[rate, "dctcp"] * 1e3 / PUBLISHED[rate], 0.5, "kD", label="DX by the paper's ratio of medians")
    axis.set(title=f"{rate[:-1]} Gbit/s", xlabel="queueing delay, µs", xscale="log", ylim=(0, 1),
             xlim=(10, 1000) if rate == "1g" else (1, 200))
panels[0].set_ylabel("share of packets")
figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
paper.figure(figure, "Distribution of the queueing delay, including the packet's own transmission; round trip 100 µs")
paper.table("Queueing at the bottleneck, and utilisation; means over seeds",
            ["Gbit/s", "RTT, µs", "", "waiting p50, µs", "with own transmission, µs", "waiting mean, µs",
             "waiting p99, µs", "p50 over DCTCP's", "utilisation, %", "drops"],
            [[rate[:-1], f"{rtt:g}", LABELS[name], cell(row["wait_p50_us"]), cell(row["delay_p50_ms"] * 1e3),
              cell(row["wait_mean_us"]), cell(row["wait_p99_us"]),
              cell(row["delay_p50_ms"] / found[rate, rtt, "dctcp"]["delay_p50_ms"], 3), cell(row["utilisation"] * 100),
              cell(row["queue_drops"], 0)] for (rate, rtt, name), row in found.items()])

kernel, goodputs = paper.runs("linux"), {}
if len(kernel):
    # Both delays in µs: waiting, and waiting with the packet's own transmission.
    part = pl.col("link").replace_strict(RECORDED_US)
    recorded = [pl.col(f"delay_{kind}_ms") * 1e3 - part for kind in ("p50", "p99")]
    names = pl.col("case").str.split(" ")
    kernel = kernel.with_columns(case=names.list.get(0), link=names.list.get(1))
    kernel = kernel.with_columns(
        own_us=pl.col("link").replace_strict(OWN_US), wait_p50_us=recorded[0].clip(0), wait_p99_us=recorded[1].clip(0))
    kernel = kernel.with_columns(full_p50_us=recorded[0] + pl.col("own_us"), full_p99_us=recorded[1] + pl.col("own_us"))
for link, suffix in SUFFIXES.items() if len(kernel) else ():
    own = {row["case"]: row for row in kernel.filter(link=link).iter_rows(named=True)}
    where = "1gbit/s over the kernel's token bucket" if link == "1g_tbf" else f"{link}bit/s"
    for case, row in own.items():
        paper.record(f"real_goodput_{case}_mbit{suffix}", row["goodput_mbit"])
        paper.record(f"real_queue_{case}_p50_us{suffix}".replace("_dx", ""), row["full_p50_us"])
    for case, rules, label in (("dx", "", "DX"), ("dx_paper", "_paper", "DX by the paper's rules")):
        goodputs[case, link] = own[case]["goodput_mbit"] / own["cubic"]["goodput_mbit"]
        paper.record(f"real_goodput_ratio{rules}{suffix}", goodputs[case, link])
        # The token bucket marks no packets: Cubic takes DCTCP's role.
        other, title = ("dctcp", "DCTCP") if "dctcp" in own else ("cubic", "Cubic")
        late = link != "100m" and any(own[name]["complaints"] for name in (case, other))
        unsound = late or goodputs[case, link] < 0.5
        full, alone = ([own[name][f"{kind}_p50_us"] for name in (other, case)] for kind in ("full", "wait"))
        published = ("5.33 at 1 Gbit/s (slides 28, 32)", 5.33) if other == "dctcp" else ("", None)
        paper.compare(f"queue_ratio_{other}{rules}{suffix}",
                      f"kernel TCP, {where}: median queueing delay, {title} / {label}",
                      None if unsound else full[0] / full[1],
                      published[0], at_least=None if rules else published[1])
        paper.compare(f"queue_ratio_wait_{other}{rules}{suffix}",
                      f"kernel TCP, {where}: median waiting time without own transmission, {title} / {label}",
                      None if unsound or not alone[1] else alone[0] / alone[1])
if len(kernel):
    paper.table("Two senders on kernel TCP, through the emulator, and through the kernel's token bucket (1g_tbf)",
                ["link", "", "goodput, Mbit/s", "waiting p50, µs", "with own transmission, µs", "p99, µs", "drops"],
                [[row["link"], row["case"], cell(row["goodput_mbit"]), cell(row["wait_p50_us"], 0),
                  cell(row["full_p50_us"], 0), cell(row["full_p99_us"], 0), row["queue_drops"]]
                 for row in kernel.iter_rows(named=True)])


def reached(rate, name, published):
    """Returns whether a ratio reaches the published one, as text."""
    ratio, used = ratios[rate, name], f"utilisation {found[rate, 100, name]['utilisation']:.3f}"
    if ratio is None:
        return f"has no ratio, since the link is idle ({used})"
    return f"{'holds' if ratio >= published else 'does not hold'} ({ratio:.1f}, {used})"


paper.remarks.insert(0, (
    f"Simulated, a queueing delay 5.33 times below DCTCP's at 1 Gbit/s {reached('1g', 'dx', 5.33)}; by the paper's "
    f"rules alone it {reached('1g', 'dx_paper', 5.33)}. With exact stamps, 1.6 times at 10 Gbit/s "
    f"{reached('10g', 'dx', 1.6)}; by the paper's rules it {reached('10g', 'dx_paper', 1.6)}, and with software-like "
    f"stamps it {reached('10g', 'dx_paper_sw', 1.6)}. Conditions: two long flows, a round trip of 100 µs, marking at "
    "20 and 65 packets, the packet's own transmission included. The factor grows with the marking threshold, which the "
    "slides do not state."))
if len(kernel):
    paper.remarks[0] += (
        f" On kernel TCP DX has {goodputs['dx', '100m']:.2f} of Cubic's goodput at 100 Mbit/s and "
        f"{goodputs['dx', '1g']:.2f} at 1 Gbit/s; by the paper's rules {goodputs['dx_paper', '100m']:.2f} and "
        f"{goodputs['dx_paper', '1g']:.2f}, because without a headroom delays inside the hosts count as queues. Over "
        f"the kernel's token bucket at 1 Gbit/s the shares are {goodputs['dx', '1g_tbf']:.2f} and "
        f"{goodputs['dx_paper', '1g_tbf']:.2f}.")
paper.finish()
