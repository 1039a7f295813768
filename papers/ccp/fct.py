# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Flow completion times of 100,000 flows under Reno"
# source = "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.1.2, figure 11"
# takes = "two hours (a minute of it simulated); two and a half minutes with --quick"
# keep = ["flows"]
# agents = "control"
# ///
import polars as pl

from paper import Paper, agents, cell, distribution, paired_ratio, plt

# Bounds of the classes, bytes: the paper's 10 KB and 1 MB.
SMALL, LARGE = 10_000, 1_000_000
SIZE = pl.col("bytes")
CLASSES = {"all": pl.lit(True), "small": SIZE <= SMALL, "medium": (SIZE > SMALL) & (SIZE <= LARGE), "large": SIZE > LARGE}
# Key: what, class, quantile, the paper's ratio, and the largest difference from 1.
STATEMENTS = {
    "fct_p50": ("all flows, median", "all", 0.5, "0.9998", 0.03),
    "fct_p75": ("all flows, p75", "all", 0.75, "1.03", 0.03),
    "fct_p95": ("all flows, p95", "all", 0.95, "1.30", 0.03),
    "fct_small_p50": ("at most 10 KB, median", "small", 0.5, "essentially unaffected", 0.03),
    "fct_medium_p50": ("10 KB to 1 MB, median", "medium", 0.5, "0.93", 0.03),
    "fct_large_p50": ("above 1 MB, median", "large", 0.5, "1.22", 0.05),
}
# Suffix of the keys, and label. Controls with a request are compared with native with a request.
CONTROLS = {"ccplane-rtt": ("", "each RTT"), "ccplane-10ms": ("_10ms", "every 10 ms"),
            "outside-rtt": ("_outside", "all outside, each RTT"), "outside-10ms": ("_outside_10ms", "all outside, 10 ms"),
            "native-again": ("_native", "native once more"),
            "ccplane-rtt-request": ("_request", "each RTT, with requests"),
            "outside-rtt-request": ("_outside_request", "all outside, each RTT, with requests")}
# Flows and MB of small flows, of large flows, and MB of all (section 7.1.2).
PAPER_LIST = [97_606, 487.0, 95, 907.0, 1_700.0]

paper = Paper(
    remarks=[
        "Ratios of completion times, ccplane over native, each quantile list by list: their geometric mean, and its 95 % "
        "confidence interval over the lists, by Student's t. `all outside` leaves the window altogether to the agent, as "
        "the paper's CCP did. With --quick there are the first few thousand flows of a few lists, too few large ones "
        "to say anything."],
    deviations=[
        "The CAIDA curve is the one that Bundler's evaluation published; of its draws those are taken that are composed "
        "as the paper's. A flow's time counts from its arrival: one that comes while another is under way on its "
        "connection waits for it, as in the generator that the authors used.",
        "The servers need no request: what travels to them from the client is left out, half a round trip of each flow. In "
        "the results with requests the client sends one of 100 bytes for each flow, and the flow's time begins with it, as "
        "in the paper.",
        "Kernel TCP runs over ccplane's emulator instead of Mahimahi, both ends on this machine, with this host's kernel "
        "instead of Linux 4.14. In the simulator, its transport stands for the kernel's TCP.",
        "The paper's Reno is portus' own. It is measured if the command names an agent that has it. ccplane's Reno "
        "with `split=agent` is always shown."])
tables = {on: paper.flows(on, columns=["list", "control", "bytes", "completion_ms"]) for on in ("linux", "sim")}
tables = {on: flows.with_columns(pl.col("list").cast(pl.Int64)) for on, flows in tables.items() if len(flows)}

rows = [["the paper", *(cell(value, 0) for value in PAPER_LIST), None]]
listed = list(tables.values())[-1].filter(control="native")
for (name,), own in listed.group_by("list", maintain_order=True):
    small, large = (own.filter(CLASSES[size])["bytes"] for size in ("small", "large"))
    values = [len(small), small.sum() / 1e6, len(large), large.sum() / 1e6, own["bytes"].sum() / 1e6]
    off = max(abs(ours / theirs - 1) for ours, theirs in zip(values, PAPER_LIST))
    rows.append([f"list {name}", *(cell(value, 0) for value in values), cell(off * 100, 1)])
paper.table("What was sent", ["", "≤ 10 KB, flows", "MB", "> 1 MB, flows", "MB", "all, MB", "off by at most, %"], rows)

main = {}
for on, place in (("linux", "kernel"), ("sim", "simulator")):
    if on not in tables:
        continue
    prefix = "sim_" if on == "sim" and len(tables) == 2 else ""
    quantiles = {}
    for key, (_, size, share, *_) in STATEMENTS.items():
        rank = (pl.len() * share).ceil().cast(pl.Int64).clip(1) - 1
        own = tables[on].filter(CLASSES[size]).group_by("list", "control").agg(pl.col("completion_ms").sort().get(rank))
        quantiles[key] = {(name, control): ms for name, control, ms in own.iter_rows()}
    lists = tables[on]["list"].unique(maintain_order=True)
    outside = agents(tables[on]["control"].unique(maintain_order=True), "reno")
    controls = CONTROLS | {name: (suffix, name) for name, suffix in outside.items()}
    for control, (suffix, label) in controls.items():
        if control not in tables[on]["control"]:
            continue
        for key, (what, size, share, published, off) in STATEMENTS.items():
            base = "native-request" if control.endswith("-request") else "native"
            pairs = [(quantiles[key].get((name, control)), quantiles[key].get((name, base))) for name in lists]
            ratio = paired_ratio([pair for pair in pairs if None not in pair])
            if control == "ccplane-rtt":
                main.setdefault(on, []).append(None if ratio is None else ratio.value - 1)
            # The targets are ccplane's: neither the paper's way nor chance has one.
            target = {"at_least": 1 - off, "at_most": 1 + off} if control.startswith("ccplane") else {}
            paper.compare(f"{prefix}{key}_ratio{suffix}", f"{place}, {label}: {what}", ratio,
                          "" if control == "native-again" else published, **target)
    figure, panels = plt.subplots(1, 3, sharey=True, figsize=(8.5, 3.2))
    for axis, (size, title, until_s) in zip(panels, (("small", "0–10 KB", 0.5), ("medium", "10 KB–1 MB", 2), ("large", "1 MB+", 10))):
        for control in ("native", "native-request", *controls):
            own = tables[on].filter(CLASSES[size], pl.col("control") == control)["completion_ms"]
            if len(own):
                times, shares = distribution(own, 400)
                axis.plot(times / 1e3, shares, "--" if control.startswith("native") else "-", label=control)
        axis.set(title=title, xlabel="s", xlim=(0, until_s), ylim=(0, 1))
    panels[0].set_ylabel("share of flows")
    panels[2].legend(fontsize=7)
    paper.figure(figure, f"Flow completion times, {place}, all lists")

paper.results["fct_from"] = "kernel" if "linux" in tables else "simulator"
if len(main) == 2:
    large = [pair for pair in zip(main["linux"], main["sim"]) if None not in pair and max(map(abs, pair)) > 0.03]
    paper.results["fct_signs_agree"] = all((kernel > 0) == (simulated > 0) for kernel, simulated in large)
paper.finish()
