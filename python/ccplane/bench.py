"""What Python costs: `python -m ccplane.bench [--json]`, on an idle machine, with a release build.

A class whose callback sets a window is held against a text that makes the same reports, for which nothing is called. The two take turns;
figures are medians with the interval that holds them with 95 %.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import ccplane

from . import _ccplane

PAIRS = 15
WINDOW = 200_000
# `WHEN` is how often there is a report.
PROGRAM = """
(def (Report (volatile acked 0)))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (fallthrough))
(when WHEN (:= Micros 0) (report))
"""
EVERY = {"ack": "(> Ack.bytes_acked 0)", "rtt": "(> Micros Flow.srtt_us)"}
AIMS = {"callback_ns": 800.0, "sim_python_overhead_pct": 5.0, "import_ms": 50.0}


class Still(ccplane.Algorithm[None]):
    """A window that stays, set at every report."""

    name = "still"
    needs = ("cwnd", "rtt")
    programs = {every: PROGRAM.replace("WHEN", when) for every, when in EVERY.items()}
    parameters = {"every": "ack"}
    reports = 0

    def __init__(self, every: str = "ack") -> None:
        self.every = every

    def open(self, info: ccplane.FlowInfo, flow: ccplane.Flow) -> None:
        flow.program(self.every)
        flow.cwnd = WINDOW

    def on_report(self, state: None, report: Any, flow: ccplane.Flow) -> None:
        if report.acked > 0:
            Still.reports += 1
            flow.cwnd = WINDOW


def seconds(contender: str, duration: str) -> float:
    """How long a run takes, of the simulator alone."""
    link = {"dumbbell": {"rate": "96mbit", "rtt": "20ms", "queue": "droptail:1bdp"}}
    scenario = {"contenders": ["reno"], "duration": duration, "topology": link, "workload": [{"bulk": {"flows": 1}}]}
    begun = time.perf_counter()
    ccplane.run(scenario, contenders=[contender], threads=1, algorithms=[Still])
    return time.perf_counter() - begun


def interval(values: list[float]) -> dict[str, float]:
    """Median, and the ranks around it between which it is with 95 %."""
    ordered = sorted(values)
    aside = max(0, int(len(ordered) / 2 - 0.98 * len(ordered) ** 0.5))
    return {"median": statistics.median(ordered), "low": ordered[aside], "high": ordered[-1 - aside]}


def measure() -> dict[str, dict[str, float]]:
    """All figures."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for every, duration in [("ack", "10s"), ("rtt", "60s")]:
            text = os.path.join(folder, f"{every}.ccp")
            with open(text, "w", encoding="utf-8") as file:
                head = f"(algorithm still_{every} (needs cwnd rtt) (init Cwnd {WINDOW}))"
                file.write(head + PROGRAM.replace("WHEN", EVERY[every]))
            python = f"still:every={every}"
            seconds(text, duration)
            Still.reports = 0
            seconds(python, duration)
            reports = Still.reports
            pairs = [(seconds(python, duration), seconds(text, duration)) for _ in range(PAIRS)]
            if every == "ack":
                figures["callback_ns"] = interval([(ours - theirs) / reports * 1e9 for ours, theirs in pairs])
            else:
                figures["sim_python_overhead_pct"] = interval([(ours / theirs - 1) * 100 for ours, theirs in pairs])
    imports = []
    for _ in range(PAIRS):
        code = "import time; a = time.perf_counter(); import ccplane; print(time.perf_counter() - a)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        imports.append(float(done.stdout) * 1e3)
    figures["import_ms"] = interval(imports)
    return figures


def main() -> None:
    """Measures, and prints each figure beside its aim."""
    # Before the load is our own.
    provenance = json.loads(_ccplane.provenance("python -m ccplane.bench --json"))
    figures = measure()
    if "--json" in sys.argv[1:]:
        whole: dict[str, Any] = {name: figure["median"] for name, figure in figures.items()}
        whole["intervals"] = {name: [figure["low"], figure["high"]] for name, figure in figures.items()}
        whole |= {"python": sys.version.split()[0], "references": AIMS, "provenance": provenance}
        print(json.dumps(whole))
        return
    for name, figure in figures.items():
        verdict = "met" if figure["high"] <= AIMS[name] else "missed" if figure["low"] > AIMS[name] else "undecided"
        print(f"{name:26} {figure['median']:8.1f} [{figure['low']:.1f}, {figure['high']:.1f}]  aim {AIMS[name]:.0f}: {verdict}")


if __name__ == "__main__":
    main()
