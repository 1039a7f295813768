# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "To the agent and back: latency of each channel"
# source = "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.2.1, figure 12"
# takes = "two minutes; ten seconds with --quick"
# ///
from paper import Paper, cell, plt

# Label, and the paper's 95th percentile, which is that of echoes.
CHANNELS = {
    "unix_echo": ("Unix socket, echo by a process", "below 30"),
    "netlink_echo": ("Netlink, the kernel's acknowledgement", "below 30"),
    "datagram": ("Unix datagrams (CCP's messages), agent and algorithm", ""),
    "local": ("ccplane's local socket, agent and algorithm", ""),
    "mapped": ("kernel and back through BPF maps, an agent that polls", ""),
    "mapped_sleeping": ("kernel and back through BPF maps, the product's agent, which sleeps", ""),
}
LOADS = ("idle", "loaded")

paper = Paper(deviations=[
    "The paper's character device is not rebuilt: it was a kernel module of its own, whose place the mapped memory takes. "
    "Its Netlink messages went to such a module; ours go to the kernel's own routing socket, which acknowledges them at "
    "once."])
latency = paper.series("latency", "linux", columns=["channel", "load", "permille", "latency_us"])
us = {(channel, load, permille): value for channel, load, permille, value in latency.iter_rows()}

rows = []
for channel, (label, published) in CHANNELS.items():
    for load in LOADS:
        key = f"ipc_{channel}_{load}"
        paper.record(f"{key}_p50_us", us[channel, load, 500])
        if load == "idle":
            paper.compare(f"{key}_p95_us", f"{label}: p95, µs", us[channel, load, 950], published, at_most=30.0)
        else:
            paper.record(f"{key}_p95_us", us[channel, load, 950])
        rows.append([label, load, *(cell(us[channel, load, permille], 1) for permille in (500, 950, 990, 999))])
paper.table("Latency, µs", ["channel", "load", "p50", "p95", "p99", "p99.9"], rows)

figure, panels = plt.subplots(1, 2, sharey=True, figsize=(8, 3.5))
for axis, load in zip(panels, LOADS):
    for channel in CHANNELS:
        # To the 99th percentile, as in the paper.
        permilles = range(991)
        axis.plot([us[channel, load, permille] for permille in permilles],
                  [permille / 1000 for permille in permilles], label=channel)
    axis.set(title=load, xlabel="latency, µs", xscale="log", ylim=(0, 1))
panels[0].set_ylabel("share of exchanges")
panels[1].legend(fontsize=7)
paper.figure(figure, "Distribution of the latency over each channel")
paper.remarks.append(
    f"{paper.runs('linux')['exchanges'][0]:,} exchanges of each; loaded: two threads that compute without pause. The "
    "paper's are echoes without algorithm or update; the others take a report through an agent, its algorithm and back "
    "with an update. `local` and `datagram` poll for some time before they sleep, `mapped` polls without sleeping, and "
    "the echoes sleep. `mapped_sleeping` is the loop of `ccplane attach`: it sleeps until a report wakes it, and a report "
    "comes 100 µs after the last answer, so that it sleeps before each.")
paper.finish()
