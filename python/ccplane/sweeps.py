"""Sweeps: a grid of runs, on this machine or by an executor on many (docs/sweeps.md)."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import csv
import dataclasses
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, cast

from . import Algorithm, Error, _ccplane, _toml, tables

# Seconds that a task of an executor should take: long compared with its submission, short compared
# with the loss of a worker.
_TASK_SECONDS = 1.0
# Maximum number of runs per task.
_TASK_RUNS_MAX = 1024
# Tasks that are submitted and not finished. Fewer leave workers of a large cluster idle; more delay
# the reaction to Ctrl-C.
_TASKS_MAX = 256


@dataclasses.dataclass(frozen=True)
class _Task:
    """Runs of a sweep, with everything that a worker on another machine needs."""

    version: str
    name: str
    text: str
    folder: str
    files: tuple[tuple[str, bytes], ...]
    algorithms: tuple[type[Algorithm[Any]], ...]
    flows: bool
    indices: tuple[int, ...]


def sweep(
    grid: str | os.PathLike[str] | Mapping[str, Any],
    executor: concurrent.futures.Executor | None = None,
    *,
    out: str | os.PathLike[str],
    threads: int | None = None,
    flows: bool = False,
    algorithms: Sequence[type[Algorithm[Any]]] = (),
    progress: bool = True,
) -> tables.Table:
    """Runs every point of a grid with every seed in the simulator, and returns a table with one row
    per run.

    `grid` is the path of a sweep file, its text, or a dict with the same keys (docs/sweeps.md).
    `out` is the folder of the results, as of `ccplane sweep --out`: runs that are finished in it are
    not repeated, also after Ctrl-C or a crash. `flows` stores a row per flow in `flows.parquet`.
    `algorithms` lists classes that contenders refer to by name.

    Without an `executor` the runs take place on `threads` threads of this process. An executor
    (`concurrent.futures.ProcessPoolExecutor`, or `dask.distributed.Client(...).get_executor()` for
    a cluster) runs them in its workers, which need the same version of ccplane and none of the
    files. The table is the same.

    >>> import tempfile
    >>> grid = {"scenario": "01-one-flow", "grid": {"contenders": ["reno", "cubic"], "duration": ["1s"]}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = sweep(grid, out=folder, progress=False)
    >>> [str(name) for name in table["contender"]]
    ['reno', 'cubic']
    """
    name, text, folder = _read(grid)
    plan = _ccplane.SweepPlan(name, text, folder, list(algorithms))
    store = _ccplane.SweepStore(os.fspath(out), plan)
    try:
        with _bar(progress) as show:
            if executor is None:
                plan.run_missing(store, threads, flows, show)
            else:
                if threads is not None:
                    raise ValueError(f"threads={threads} has no effect with an executor; set the number of its workers")
                task = _Task(_version(), name, text, folder, _files(plan, folder), tuple(algorithms), flows, ())
                _distribute(executor, task, plan, store, show)
    finally:
        # Also after Ctrl-C: the tables contain the finished runs.
        failed = store.write(plan, flows, "ccplane.sweep(…)")[2]
    if failed:
        print(f"{failed} runs failed; the column error has the reasons", file=sys.stderr)
    return read(out)


def read(out: str | os.PathLike[str]) -> tables.Table:
    """Returns the table of a result folder."""
    path = os.path.join(out, "runs.csv")
    try:
        with open(path, encoding="utf-8", newline="") as lines:
            names, *rows = csv.reader(lines)
    except OSError as why:
        raise Error(f"{path}: {why.strerror}; give the folder of a sweep") from None
    cells: list[tuple[str, ...]] = list(zip(*rows)) if rows else [()] * len(names)
    # An identity may consist of digits only.
    words = ("run", "digest", "contender", "algorithm", "error", "complaints")
    columns = {name: tables.column(column, is_text=name in words) for name, column in zip(names, cells)}
    return tables.Table(columns)


def _read(grid: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns the name, the text and the folder of a sweep."""
    if isinstance(grid, Mapping):
        scenario: Any = grid.get("scenario")
        if scenario is not None and not isinstance(scenario, Mapping):
            path = os.fspath(cast("str | os.PathLike[str]", scenario))
            # Workers have copies of the files in other folders.
            grid = {**grid, "scenario": os.path.relpath(path) if os.path.isabs(path) else path}
        return "sweep", _toml.dumps(grid), os.getcwd()
    given = os.fspath(grid)
    if "\n" in given:
        return "sweep", given, os.getcwd()
    try:
        with open(given, encoding="utf-8") as file:
            return given, file.read(), os.path.dirname(os.path.abspath(given))
    except OSError as why:
        raise Error(f"{given}: {why.strerror}") from None


def _version() -> str:
    from importlib import metadata

    return f"{metadata.version('ccplane')}, behaviour {_ccplane.behaviour()}"


def _files(plan: _ccplane.SweepPlan, folder: str) -> tuple[tuple[str, bytes], ...]:
    """Returns the files that the runs need, with their absolute paths."""
    found: list[tuple[str, bytes]] = []
    for path in plan.files():
        full = os.path.normpath(os.path.join(folder, path))
        with open(full, "rb") as file:
            found.append((full, file.read()))
    return tuple(found)


@contextlib.contextmanager
def _bar(progress: bool) -> Generator[Callable[[float], None] | None]:
    """Shows the share done and the time left on a terminal."""
    if not progress or not sys.stderr.isatty():
        yield None
        return
    begun = time.monotonic()

    def show(share: float) -> None:
        left = (time.monotonic() - begun) * (1 - share) / share if share > 0 else None
        text = "" if left is None else f", {left:.0f} s left"
        print(f"\rsweep: {100 * share:3.0f} %{text}\x1b[K", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _distribute(
    executor: concurrent.futures.Executor,
    task: _Task,
    plan: _ccplane.SweepPlan,
    store: _ccplane.SweepStore,
    show: Callable[[float], None] | None,
) -> None:
    """Runs the missing runs in the workers of an executor."""
    waiting = collections.deque(store.missing(plan))
    total, done, runs = len(waiting), 0, 1
    pending: set[concurrent.futures.Future[tuple[list[str], float]]] = set()
    try:
        while waiting or pending:
            while waiting and len(pending) < _TASKS_MAX:
                indices = tuple(waiting.popleft() for _ in range(min(runs, len(waiting))))
                pending.add(executor.submit(_work, dataclasses.replace(task, indices=indices)))
            finished, pending = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
            # The rows of all finished tasks are stored before the error of another one is raised.
            for future in sorted(finished, key=lambda future: future.exception() is not None):
                rows, seconds = future.result()
                store.add(rows)
                done += len(rows)
                # The first tasks have one run each and show how long a run takes.
                each = seconds / max(1, len(rows))
                runs = max(1, min(_TASK_RUNS_MAX, int(_TASK_SECONDS / each) if each > 0 else 1))
            if show is not None:
                show(done / total)
    finally:
        for future in pending:
            future.cancel()


def _work(task: _Task) -> tuple[list[str], float]:
    """Makes runs in a worker. Returns their rows and the seconds that they took."""
    own = _version()
    if own != task.version:
        raise Error(f"this worker has ccplane {own}, but the sweep was started by {task.version}; install the same version on all workers")
    plan = _plan(task.name, task.text, task.folder, task.files, task.algorithms)[0]
    begun = time.monotonic()
    rows = [plan.run(index, task.flows) for index in task.indices]
    return rows, time.monotonic() - begun


@functools.lru_cache(maxsize=4)
def _plan(
    name: str,
    text: str,
    folder: str,
    files: tuple[tuple[str, bytes], ...],
    algorithms: tuple[type[Algorithm[Any]], ...],
) -> tuple[_ccplane.SweepPlan, tempfile.TemporaryDirectory[str]]:
    """Plans a sweep from copies of its files, which exist as long as the plan. A worker keeps the
    plan for its next tasks."""
    root = tempfile.TemporaryDirectory(prefix="ccplane-sweep-")
    # All paths keep their relation to the folder of the sweep.
    below = os.path.join(root.name, folder.lstrip(os.sep))
    os.makedirs(below, exist_ok=True)
    for path, content in files:
        copy = os.path.join(root.name, path.lstrip(os.sep))
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(copy, "wb") as file:
            file.write(content)
    return _ccplane.SweepPlan(name, text, below, list(algorithms)), root
