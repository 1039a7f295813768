# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Response times of a site with the queue in the network and in a sendbox"
# source = "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021, overview of its evaluation"
# takes = "4 minutes on two cores; 5 seconds with --quick"
# keep = ["flows"]
# ///
from bundles import quantile_of
from paper import Paper, bars, cell, estimate, mean, paired_ratio, pl, plt

LABELS = {"status_quo": "no sendbox", "in_network": "SFQ in the network", "bundler": "bundler",
          "bundler_60": "bundler, 60 bytes of tunnel", "fifo": "bundler, FIFO"}
SIZES = {"size.<= 10kB.": "≤ 10 kB", "size.<= 1MB.": "≤ 1 MB", "size.> 1MB.": "> 1 MB"}
# Medians of all responses and of each size, read from the paper's figure; and 99th percentiles.
PUBLISHED = {"status_quo": [1.76, 1.70, 4.53, 9.78], "in_network": [1.07, 1.07, 2.90, 4.33],
             "bundler": [1.26, 1.25, 3.41, 6.74], "fifo": [2.13, 2.09, 5.27, 8.69]}
PUBLISHED_P99 = {"status_quo": "79.4", "in_network": "27.5", "bundler": "41.4"}

paper = Paper(
    remarks=[
        "The 99th percentile is that of small responses that wait behind a large one on their connection: "
        "bundler-connections has it by connection and by length of a run. The network's queue is that of the link of "
        "96 Mbit/s, with the packet's own transmission."],
    deviations=[
        "In the paper's text the bottleneck has a buffer of three bandwidth-delay products; its artefact has "
        "CoDel with a target of 100 ms, an interval of 5 ms and 2,000 packets in its other experiments, as here, and a "
        "target of 200 ms in this one.",
        "The paper's overview has a median of 1.26 under the name of Copa, its figure on congestion control has 1.09 "
        "for Copa and 1.32 for BasicDelay, and the artefact's configuration of the overview uses BasicDelay. `bundler` "
        "uses Nimbus' form of Copa.",
        "The published run was given the link's rate. Here it is measured.",
        "The request is not sent as a packet: its time on the empty path, 25 ms, is added to a response's time. A "
        "response uses one of 200 connections at random, as in the authors' generator. The wait for earlier responses "
        "on this connection is part of its time.",
        "SFQ in the network has room for 1,200 packets, as the artefact's fair queue.",
        "Percentiles are means over ten runs of 100,000 responses each; the paper does not describe how it combines "
        "its runs. About twenty responses of a run have half of its bytes, so that some runs have 60 Mbit/s to send "
        "and others all that the link can carry."])

runs = paper.runs()
medians = {case: mean(runs.filter(case=case)["slowdown_p50"]) for case in LABELS}
targets = {"status_quo": {"at_least": 1.5, "at_most": 2.0}, "in_network": {"at_most": 1.1},
           "bundler": {"at_most": 1.26}}
for case, label in LABELS.items():
    published = str(PUBLISHED[case][0]) if case in PUBLISHED else ""
    paper.compare(f"median_{case}", f"median slowdown, {label}", medians[case], published, **targets.get(case, {}))
pooled = paper.flows(columns=["case", "slowdown"]).drop_nulls().group_by("case").agg(
    quantile_of(pl.col("slowdown"), 0.5))
for case in ("status_quo", "in_network", "bundler"):
    paper.compare(f"pooled_median_{case}", f"median slowdown of the responses of all runs together, {LABELS[case]}",
                  pooled.filter(case=case)["slowdown"][0])
paper.state("fifo_is_worse", "bundler's median is below that with a FIFO", medians["bundler"] < medians["fifo"],
            "it is: 1.26 and 2.13")
for case in ("status_quo", "in_network", "bundler", "fifo"):
    paper.compare(f"p99_{case}", f"99th percentile of slowdowns, {LABELS[case]}",
                  mean(runs.filter(case=case)["slowdown_p99"]), PUBLISHED_P99.get(case, ""))

kernel = paper.runs("linux")
if len(kernel):
    for case in ("status_quo", "in_network", "fifo"):
        paper.compare(f"kernel_median_{case}", f"kernel TCP: median slowdown, {LABELS[case]}",
                      mean(kernel.filter(case=case)["slowdown_p50"]))
    gateways = kernel.filter(case="bundler_60")
    paper.compare("kernel_median_bundler", "kernel TCP and gateways: median slowdown, bundler",
                  mean(gateways["slowdown_p50"]), "1.26", at_most=1.35)
    paper.compare("kernel_p99_bundler", "kernel TCP and gateways: 99th percentile of slowdowns, bundler",
                  mean(gateways["slowdown_p99"]))
    pairs = gateways.join(runs.filter(case="bundler_60"), on="seed").select("slowdown_p50", "slowdown_p50_right").rows()
    paper.compare("kernel_over_sim_bundler", "median slowdown of bundler, kernel over simulator, both with 60 bytes",
                  paired_ratio(pairs), at_least=0.9, at_most=1.1)

figure, axis = plt.subplots(figsize=(8, 3.6))
bars(axis, ["all", *SIZES.values()],
     {LABELS[case]: [estimate(runs.filter(case=case)[f"{size}slowdown_p50"]) for size in ("", *SIZES)]
      for case in PUBLISHED}, {LABELS[case]: values for case, values in PUBLISHED.items()})
axis.set(xlabel="size of the response", ylabel="median slowdown", ylim=(0, None))
axis.legend(loc="upper left")
paper.figure(figure, "Median slowdown of responses by size; intervals over runs")

columns = {"all p50": ("slowdown_p50", 2), "p99": ("slowdown_p99", 1)}
for size, label in SIZES.items():
    columns |= {f"{label} p50": (f"{size}slowdown_p50", 2), f"{label} p99": (f"{size}slowdown_p99", 1)}
link = {"goodput, Mbit/s": ("goodput_mbit", 1), "queue p50, ms": ("delay_p50_ms", 1), "p95, ms": ("delay_p95_ms", 1),
        "drops": ("drops_anywhere", 0), "retransmitted": ("retransmitted_segments", 0),
        "pass-through, share": ("bundle.near -> far.passing_share", 3)}
for title, shown in (("Slowdowns by size; means over seeds", columns), ("The link; means over seeds", link)):
    paper.table(title, ["", *shown], [
        [label, *(cell(mean(runs.filter(case=case)[column]), digits) for column, digits in shown.values())]
        for case, label in LABELS.items()])
paper.finish()
