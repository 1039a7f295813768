# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "Bundles in pass-through mode next to a Cubic flow, and after it"
# source = "ours: the Bundler paper has no bundles next to others' elastic traffic"
# takes = "2 minutes on two cores; 10 seconds with --quick"
# keep = ["bundles"]
# ///
import polars as pl

from bundles import PASS_THROUGH, mode_share, within
from paper import Paper, cell, plt

LABELS = {"native:cubic": "no box", "bundler": "bundler"}
CUBIC_S, END_S = (20, 50), 110
# Each bundle has some seconds to react to the Cubic flow's start and stop.
SPANS = {"before": (5, CUBIC_S[0]), "beside": (CUBIC_S[0] + 5, CUBIC_S[1]), "after": (CUBIC_S[1] + 10, END_S)}

paper = Paper(
    remarks=[
        "Bundles in pass-through mode are as elastic as their end hosts, so each bundle may detect the other one and "
        "stay in this mode because of it. The Cubic flow is there from 20 to 50 s."],
    deviations=["There is no paper to compare with, and no target: the page shows how far the election reaches."])

runs = paper.runs()
samples = paper.series("bundles").filter(contender="bundler")
for name, span in SPANS.items():
    share = samples.filter(within(*span)).group_by("run", "bundle").agg(share=mode_share(PASS_THROUGH))
    # The first two bundles, as columns.
    for number in (1, 2):
        own = share.filter(bundle=f"near{number} -> far{number}")
        own = own.select("run", pl.col("share").alias(f"{name}_{number}"))
        runs = runs.join(own, on="run", how="left", maintain_order="left")

slowdowns = [f"workload.web{number}.slowdown_{kind}" for kind in ("p50", "p99") for number in (1, 2)]
shares = [f"{name}_{number}" for name in SPANS for number in (1, 2)]
rows = []
for (bundles,), own in runs.group_by("bundles", maintain_order=True):
    found = {name: own.filter(contender=name) for name in LABELS}
    text = f"{bundles:.0f} bundles, first bundle"
    for key, what, column, contender in (
            ("beside_share", "share of time in pass-through mode, 25 to 50 s", "beside_1", "bundler"),
            ("after_share", "share of time in pass-through mode, 60 to 110 s", "after_1", "bundler"),
            ("median", "median slowdown of responses", slowdowns[0], "bundler"),
            ("median_status_quo", "median slowdown of responses without boxes", slowdowns[0], "native:cubic")):
        paper.compare(f"{key}_{bundles:.0f}", f"{what}: {text}", found[contender][column].mean())
    rows += [[f"{bundles:.0f}", LABELS[name], *(cell(table[column].mean()) for column in slowdowns),
              *(cell(None if table[column].mean() is None else table[column].mean() * 100, 1) for column in shares)]
             for name, table in found.items()]

numbers = runs["bundles"].unique().sort()
figure, axes = plt.subplots(1, len(numbers), sharey=True, figsize=(8, 3))
for axis, bundles in zip(axes, numbers):
    axis.axvspan(*CUBIC_S, color="0.9", label="Cubic flow")
    # One point per second: the share of runs and samples.
    own = samples.filter(bundles=bundles).group_by("bundle", s=pl.col("time_ns") // 10**9).agg(
        share=mode_share(PASS_THROUGH)).sort("bundle", "s")
    for number, ((bundle,), course) in enumerate(own.group_by("bundle", maintain_order=True), 1):
        axis.plot(course["s"] + 0.5, course["share"] * 100, label=f"bundle {number}")
    axis.set(title=f"{bundles:.0f} bundles", xlabel="time, s", xlim=(0, END_S), ylim=(0, 105))
axes[0].set_ylabel("in pass-through mode, % of runs")
figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
paper.figure(figure, "Bundles in pass-through mode over time")
paper.table("The first two bundles: slowdown of responses, and share of time in pass-through mode; means over seeds",
            ["bundles", "", *(f"{which} slowdown {kind}" for kind in ("p50", "p99") for which in ("first", "second")),
             *(f"{which} {name}, %" for name in ("before Cubic", "with Cubic", "after Cubic")
               for which in ("first", "second"))], rows)
paper.finish()
