# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib", "polars", "scipy"]
# [tool.ccplane]
# title = "What the second loop and larger initial windows save, by the model and simulated"
# source = "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014, section 2 and figure 2"
# takes = "a second"
# ///
import math

from paper import Paper, cell, plt
from rc3_model import AUTHORS, PAYLOAD, rc3_seconds, saving, tcp_seconds

LABELS = {"tcp": "TCP", "rc3": "RC3", "iw10": "initial window 10", "iw50": "initial window 50"}

paper = Paper(
    remarks=[
        "The model has no queue and no other flow; A is the rate that other traffic leaves, here 0.7 Gbit/s, and the "
        "round trip is 40 ms. The steps are those of a window's packets. Simulated: one flow on a link of that rate, "
        "NewReno.",
        "Flows larger than the path's capacity of 2,333 packets: the two loops meet in flight, and some packets are "
        "sent twice, the second time in a lower class, where they do not delay the flow."],
    deviations=[
        "The link has the rate that other traffic leaves, instead of carrying other traffic, as in rc3-internet2."])


def model(case, packets):
    """Returns the completion time by the model, s."""
    if case == "rc3":
        return rc3_seconds(packets)
    return tcp_seconds(packets, window={"iw10": 10, "iw50": 50}.get(case, 4))


simulated = {(row["case"], int(row["size"]) // PAYLOAD): row["completion_mean_ms"] / 1e3
             for row in paper.runs().iter_rows(named=True)}
sizes = sorted({packets for _, packets in simulated})


def error(case, packets):
    """Returns the difference of the simulated time from the model, percent."""
    return 100 * (simulated[case, packets] / model(case, packets) - 1)


def saved(time, case, packets):
    return saving(time("tcp", packets), time(case, packets))


def measured(case, packets):
    return simulated[case, packets]


paper.compare("model_max_error_pp", "the model and the authors' curve, largest difference over their eleven sizes, "
              "percentage points", max(abs(saved(model, "rc3", n) - percent) for n, percent in AUTHORS.items()),
              "their data", at_most=0.02)
for case, label in LABELS.items():
    paper.compare(f"model_sim_max_error_pct_{case}", "simulated completion time and the model, the same sizes, largest "
                  f"difference, %: {label}", max(abs(error(case, n)) for n in AUTHORS), at_most=0.5)

fine = sorted({int(math.exp(step / 320 * math.log(50_000))) for step in range(321)})
figure, axis = plt.subplots()
for number, case in enumerate(("rc3", "iw10", "iw50")):
    axis.plot([n * PAYLOAD / 1e3 for n in fine], [saved(model, case, n) for n in fine], f"C{number}--", linewidth=1,
              label=f"{LABELS[case]}, model")
    axis.plot([n * PAYLOAD / 1e3 for n in sizes], [saved(measured, case, n) for n in sizes], f"C{number}o",
              label=LABELS[case])
axis.set(xscale="log", xlabel="size, KB", ylabel="time saved, %", ylim=(0, 100))
axis.legend(ncols=3, fontsize=7, loc="upper left")
paper.figure(figure, "Percent of TCP's completion time that is saved, by size, as in the paper's figure 2")
windows = [(time, case) for case in ("iw10", "iw50") for time in (model, measured)]
paper.table("Percent of TCP's completion time that is saved",
            ["bytes", "packets", "RC3, authors", "RC3, model", "RC3, simulated", "IW 10, model", "IW 10, simulated",
             "IW 50, model", "IW 50, simulated", "TCP, ms", "RC3, ms", "TCP off model, %", "RC3 off model, %"],
            [[n * PAYLOAD, n, cell(AUTHORS.get(n), 3), cell(saved(model, "rc3", n), 3),
              cell(saved(measured, "rc3", n)), *(cell(saved(time, case, n), 1) for time, case in windows),
              *(cell(simulated[case, n] * 1e3) for case in ("tcp", "rc3")),
              *(cell(error(case, n)) for case in ("tcp", "rc3"))] for n in sizes])
paper.finish()
