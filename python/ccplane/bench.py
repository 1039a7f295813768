"""Benchmark of the Python interface: `python -m ccplane.bench [--json]`. Needs an idle machine and
a release build, and takes some minutes.

Results are medians with 95 % confidence intervals; measurements that are compared are interleaved.
A shared machine may run at half speed for seconds at a time, so the callbacks, which take little
time, are measured between all other parts. Environments are measured if Gymnasium is installed.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

import ccplane

from . import _ccplane

TURNS = 15
WINDOW = 200_000
PROGRAM = """
(def (Report (volatile acked 0)))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (fallthrough))
(when (> Micros Flow.srtt_us) (:= Micros 0) (report))
"""
# Targets; True means that higher is better.
AIMS = {
    "callback_ns": (800.0, False),
    "batch_ns": (300.0, False),
    "attach_ns": (150.0, False),
    "sim_python_overhead_pct": (5.0, False),
    "import_ms": (50.0, False),
    "env_steps_per_s": (45_000.0, True),
    "env_steps_10mbit_per_s": (280_000.0, True),
    "reset_us": (80.0, False),
    "gymnasium_us": (3.0, False),
    "env_vector_speedup": (1.85, True),
    "dask_ratio": (1.15, False),
}


class Aimd(ccplane.Algorithm[list[int]]):
    """Shape of an AIMD algorithm with a constant window, since there is no datapath."""

    name = "still"
    needs: ClassVar[Iterable[str]] = ("cwnd", "rtt")
    programs: ClassVar[Mapping[str, str | type[ccplane.Fold]]] = {"fold": PROGRAM}

    def open(self, info: ccplane.FlowInfo, flow: ccplane.Flow) -> list[int]:
        flow.program("fold")
        flow.cwnd = WINDOW
        return [WINDOW]

    def on_report(self, state: list[int], report: Any, flow: ccplane.Flow) -> None:
        if report.acked > 0:
            state[0] = WINDOW
        flow.cwnd = state[0]


class Empty(Aimd):
    """Algorithm with an empty callback."""

    name = "empty"

    def on_report(self, state: list[int], report: Any, flow: ccplane.Flow) -> None:
        pass


class Arrays(Aimd):
    """Same algorithm with one callback for all flows."""

    name = "arrays"

    def on_reports(self, batch: ccplane.Batch[list[int]]) -> None:
        batch.cwnd = np.where(batch["acked"] > 0, np.uint64(WINDOW), np.uint64(0))


def interval(values: list[float]) -> dict[str, float]:
    """Returns the median and its 95 % confidence interval, from order statistics."""
    ordered = sorted(values)
    aside = max(0, int(len(ordered) / 2 - 0.98 * len(ordered) ** 0.5))
    return {"median": statistics.median(ordered), "low": ordered[aside], "high": ordered[-1 - aside]}


def seconds(contender: str) -> float:
    """Returns the wall-clock time of one simulated minute."""
    link = {"dumbbell": {"rate": "96mbit", "rtt": "20ms", "queue": "droptail:1bdp"}}
    scenario = {"contenders": ["reno"], "duration": "60s", "topology": link, "workload": [{"bulk": {"flows": 1}}]}
    begun = time.perf_counter()
    ccplane.run(scenario, contenders=[contender], threads=1, algorithms=[Aimd])
    return time.perf_counter() - begun


def callbacks() -> list[tuple[float, float, float]]:
    """Measures an agent and a class, without a datapath."""
    turns: list[tuple[float, float, float]] = []
    for _ in range(TURNS):
        empty = _ccplane.drive(Empty, 1, False, 20_000) - _ccplane.drive(None, 1, False, 20_000)
        turns.append((_ccplane.drive(Aimd, 1, False, 20_000), _ccplane.drive(Arrays, 256, True, 200), empty))
        time.sleep(0.3)
    return turns


def simulated() -> dict[str, dict[str, float]]:
    """Compares a class with a program text that sends the same reports but calls no Python."""
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "still.ccp")
        with open(text, "w", encoding="utf-8") as file:
            file.write(f"(algorithm stays (needs cwnd rtt) (init Cwnd {WINDOW})){PROGRAM}")
        seconds(text)
        pairs = [(seconds("still"), seconds(text)) for _ in range(TURNS)]
    return {"sim_python_overhead_pct": interval([(ours / theirs - 1) * 100 for ours, theirs in pairs])}


def imports() -> dict[str, dict[str, float]]:
    """Measures the import in a fresh interpreter."""
    code = "import time; a = time.perf_counter(); import ccplane; print(time.perf_counter() - a)"
    told = [subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(TURNS)]
    return {"import_ms": interval([float(text) * 1e3 for text in told])}


def environments() -> dict[str, dict[str, float]]:
    """Measures steps of 20 ms on a full link."""
    import gymnasium

    from .env import Link, LinkVector

    def link(rate: str) -> dict[str, Any]:
        return {"duration": "36000s", "topology": {"dumbbell": {"rate": rate, "rtt": "20ms", "queue": "droptail:1bdp"}}, "workload": [{"bulk": {"flows": 1}}]}

    def fill(env: Any, rate: float) -> None:
        env.reset(seed=1)
        # Grow the window from ten segments to one BDP.
        for _ in range(4):
            env.step(np.full(env.action_space.shape, np.log2(rate * 0.02 / 8 / 14480) / 4, np.float32))

    def per_step(env: Any, count: int) -> float:
        stay = np.zeros(env.action_space.shape, np.float32)
        begun = time.perf_counter()
        for _ in range(count):
            env.step(stay)
        return (time.perf_counter() - begun) / count

    figures: dict[str, list[float]] = {}
    for name, rate in [("env_steps_per_s", 96e6), ("env_steps_10mbit_per_s", 10e6)]:
        env = Link(link(f"{rate / 1e6:.0f}mbit"), steps=10**9)
        fill(env, rate)
        figures[name] = [1 / per_step(env, 2_000) for _ in range(TURNS)]
    wrapped = gymnasium.make("ccplane/Link-v0", scenario=link("10mbit"), steps=10**9)
    fill(wrapped, 10e6)
    figures["gymnasium_us"] = [(per_step(wrapped, 2_000) - per_step(env, 2_000)) * 1e6 for _ in range(TURNS)]
    figures["reset_us"] = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        for seed in range(100):
            env.reset(seed=seed)
        figures["reset_us"].append((time.perf_counter() - begun) / 100 * 1e6)
    many = [LinkVector(num_envs=64, scenario=link("96mbit"), threads=threads, steps=10**9) for threads in (1, 2)]
    for vector in many:
        fill(vector, 96e6)
    figures["env_vector_speedup"] = [per_step(many[0], 30) / per_step(many[1], 30) for _ in range(TURNS)]
    return {name: interval(values) for name, values in figures.items()}


def clusters() -> dict[str, dict[str, float]]:
    """Compares a sweep on a Dask cluster of two worker processes with one on two threads."""
    distributed: Any = importlib.import_module("dask.distributed")
    grid: dict[str, Any] = {
        "seeds": "1..100",
        "scenario": {"duration": "10s", "topology": {"dumbbell": {"rate": "20mbit", "rtt": "20ms"}}, "workload": [{"bulk": {}}]},
        "grid": {"contenders": ["reno", "cubic", "copa"]},
    }

    def seconds(folder: str, executor: Any) -> float:
        begun = time.perf_counter()
        ccplane.sweep(grid, executor, out=folder, threads=None if executor else 2, progress=False)
        return time.perf_counter() - begun

    ratios: list[float] = []
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, distributed.Client(cluster) as client:
        # The first sweep imports the package in the workers.
        for turn in range(TURNS // 3 + 1):
            with tempfile.TemporaryDirectory() as folder:
                dask = seconds(os.path.join(folder, "dask"), client.get_executor())
                threads = seconds(os.path.join(folder, "threads"), None)
            ratios += [dask / threads] if turn else []
    return {"dask_ratio": interval(ratios)}


def main() -> None:
    """Runs all measurements and prints each result with its target."""
    # Read the load average before this program adds to it.
    provenance = json.loads(_ccplane.provenance("python -m ccplane.bench --json"))
    turns = callbacks()
    figures = simulated() | imports()
    turns += callbacks()
    try:
        figures |= environments()
    except ModuleNotFoundError as missing:
        print(f"bench: skipping the environments: {missing}", file=sys.stderr)
    try:
        figures |= clusters()
    except ModuleNotFoundError as missing:
        print(f"bench: skipping Dask: {missing}", file=sys.stderr)
    turns += callbacks()
    names = ("callback_ns", "batch_ns", "attach_ns")
    figures = {name: interval([turn[n] for turn in turns]) for n, name in enumerate(names)} | figures
    if "--json" in sys.argv[1:]:
        whole: dict[str, Any] = {name: figure["median"] for name, figure in figures.items()}
        whole["intervals"] = {name: [figure["low"], figure["high"]] for name, figure in figures.items()}
        whole["references"] = {name: aim for name, (aim, _) in AIMS.items()}
        whole |= {"python": sys.version.split()[0], "provenance": provenance}
        print(json.dumps(whole))
        return
    for name, figure in figures.items():
        aim, more = AIMS[name]
        met, missed = figure["high"] <= aim, figure["low"] > aim
        if more:
            met, missed = figure["low"] >= aim, figure["high"] < aim
        verdict = "met" if met else "missed" if missed else "inconclusive"
        print(f"{name:26} {figure['median']:10.1f} [{figure['low']:.1f}, {figure['high']:.1f}]  target {aim:g}: {verdict}")


if __name__ == "__main__":
    main()
