"""Congestion-control plane: algorithms as Python classes, on kernel TCP, over UDP and in a
deterministic simulator.

>>> import ccplane
>>> sorted(ccplane.check("(def (Report (volatile acked 0))) (when true (report))"))
['controls', 'reports']
"""

from __future__ import annotations

import atexit
import copy
import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

from . import _ccplane, _gym, _toml
from ._ccplane import Control, Error, Flow, FlowInfo, FlowStats
from .fold import (
    AckSignals,
    FlowSignals,
    Fold,
    FoldError,
    FoldWarning,
    Report,
    diff,
    ewma,
    infinity,
    report,
    reset,
    volatile,
    wrapped_max,
)

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.figure import Figure

    from .batch import Batch
    from .host import Agent, attach
    from .policies import PolicySpec, policy
    from .sweeps import sweep
    from .tables import Table

__all__ = [
    "AckSignals",
    "Agent",
    "Algorithm",
    "Batch",
    "Control",
    "Error",
    "Flow",
    "FlowInfo",
    "FlowSignals",
    "FlowStats",
    "Fold",
    "FoldError",
    "FoldWarning",
    "PolicySpec",
    "Report",
    "Result",
    "Table",
    "attach",
    "check",
    "diff",
    "ewma",
    "infinity",
    "main",
    "policy",
    "report",
    "reset",
    "run",
    "sweep",
    "volatile",
    "wrapped_max",
]


# Imported on first use: these import numpy or multiprocessing, which take longer than the rest of
# the package.
_ELSEWHERE = {"Agent": "host", "Batch": "batch", "PolicySpec": "policies", "Table": "tables", "attach": "host", "policy": "policies", "sweep": "sweeps"}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f".{_ELSEWHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


State = TypeVar("State")


class Algorithm(Generic[State]):
    """Base class of congestion-control algorithms.

    A class sets `name` and `programs`, and defines `open` and `on_report`. One object serves all
    flows that selected the algorithm, and its callbacks run on one thread. The optional callbacks
    are `on_timer(control)`, `on_refused(state, why, flow)` and `on_close(state, last)`. A class may
    define `on_reports(batch)` in place of `on_report`; it receives all reports of a wake-up as
    arrays (`Batch`).

    If a callback raises an exception, its flow is no longer controlled and continues with the
    NewReno of its datapath. Other flows are unaffected. The first exception is printed with its
    traceback.
    """

    name: ClassVar[str]
    """Name that selects the algorithm; in the kernel it is ccp_NAME."""
    programs: ClassVar[Mapping[str, str | type[Fold]]]
    """Datapath programs by name, each a text (docs/language.md) or a `Fold` class. They run at
    every ACK."""
    needs: ClassVar[Iterable[str]] = ("cwnd",)
    """Capabilities that the datapath must have. Flows of a datapath without them are refused."""
    latency: ClassVar[str] = "1ms"
    """Time that a report may wait for others before the agent is woken. A shorter time reacts
    faster and costs more CPU."""
    parameters: ClassVar[Mapping[str, Any]] = {}
    """Parameters that `--alg name:key=value` can set, with their defaults. They are passed to the
    constructor as keywords, converted to the type of the default."""

    def open(self, info: FlowInfo, flow: Flow) -> State:
        """Called when a flow opens, or is taken over while it is running. Returns the state of the
        flow, which the other callbacks receive. A flow reports only after this method has set a
        program on it."""
        raise NotImplementedError

    def on_report(self, state: State, report: Any, flow: Flow) -> None:
        """Called for each report of the flow's program. `report.NAME` is a report variable,
        `report.urgent` is true after a loss, a timeout or an undo, and `report.now_us` is the time
        in microseconds."""
        raise NotImplementedError


Contender = (
    str
    | type[Algorithm[Any]]
    | Algorithm[Any]
    | tuple[type[Algorithm[Any]], Mapping[str, Any]]
    | Callable[[], Algorithm[Any]]
)
"""Name as on the command line, class, object, `(Class, {keyword: value})`, or a function without
parameters that returns an object, such as a lambda or a `functools.partial`."""


class _Maker:
    """Contender made by a function, with the class attributes of the objects it makes."""

    parameters: Mapping[str, Any] = {}

    def __init__(self, make: Callable[[], Algorithm[Any]]) -> None:
        self._make = make
        self._class = type(make())
        self.name = self._class.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._class, name)

    def __call__(self) -> Algorithm[Any]:
        return self._make()


def _maker(contender: Any) -> Any:
    """Returns a class or function that makes objects of the contender: each run gets one of its
    own."""
    if isinstance(contender, type):
        return contender
    if isinstance(contender, tuple):
        cls, given = cast(tuple[type[Algorithm[Any]], Mapping[str, Any]], contender)
        return _Maker(functools.partial(cls, **given))
    make: Any = contender
    if isinstance(contender, Algorithm) or not callable(contender):
        make = functools.partial(copy.deepcopy, contender)
    return _Maker(make)


class _RunResult(Protocol):
    """Result of a run in the simulator, or in a folder (`_measured.Folder`)."""

    def summary_json(self) -> str: ...
    @property
    def digest(self) -> str | None: ...
    def write(self, folder: str, /) -> str: ...


class Result:
    """Result of a run. A notebook shows it as a table with one row per contender."""

    def __init__(self, inner: _RunResult) -> None:
        self._inner = inner
        self._summary: dict[str, Any] | None = None
        self._tables: dict[str, Table] | None = None

    @property
    def metrics(self) -> Table:
        """Metrics of the run, one row per contender: `contender`, `goodput_mbit`, `utilisation`,
        `delay_mean_ms` and the other numbers of `figures` in `summary.json`. Means over several
        runs have the ends of their intervals in `NAME_low` and `NAME_high`."""
        from . import tables

        return tables.metrics(self.summary["contenders"])

    def to_pandas(self, table: str = "metrics") -> pandas.DataFrame:
        """Returns `metrics`, or another of `tables`, as a pandas data frame (`pip install
        'ccplane[pandas]'`)."""
        return self._table(table).to_pandas()

    def to_polars(self, table: str = "metrics") -> polars.DataFrame:
        """Returns `metrics`, or another of `tables`, as a polars data frame (`pip install
        'ccplane[polars]'`)."""
        return self._table(table).to_polars()

    def _table(self, name: str) -> Table:
        if name == "metrics":
            return self.metrics
        if name not in self.tables:
            raise KeyError(f"this run has no table {name!r}; use one of metrics, {', '.join(self.tables)}")
        return self.tables[name]

    @property
    def tables(self) -> dict[str, Table]:
        """Tables of the run by name: `series`, `bins`, `flows`, `reports`, and others that depend
        on the scenario (docs/results-format.md)."""
        if self._tables is None:
            from . import tables

            self._tables = tables.read(self.write)
        return self._tables

    @property
    def summary(self) -> dict[str, Any]:
        """All metrics, as in `summary.json` (docs/results-format.md)."""
        if self._summary is None:
            summary: dict[str, Any] = json.loads(self._inner.summary_json())
            self._summary = summary
        return self._summary

    @property
    def digest(self) -> str | None:
        """Hash of all events. The same scenario and seed give the same digest on every machine."""
        return self._inner.digest

    def write(self, folder: str | os.PathLike[str]) -> str:
        """Writes the page, the data and the scenario to a folder, like `ccplane run --out`, and
        returns the path of the page."""
        return str(self._inner.write(os.fspath(folder)))

    def plot(self) -> Figure:
        """Plots congestion windows, goodput and queueing delay over time, one column per contender.

        Returns a matplotlib figure (`pip install 'ccplane[plot]'`). If the run had several seeds,
        the figure shows the seed whose series are in `tables`.
        """
        from . import plots

        return plots.draw([c["label"] for c in self.summary["contenders"]], self.tables)

    def __repr__(self) -> str:
        names = ", ".join(c["label"] for c in self.summary["contenders"])
        return f"<ccplane.Result of {names}>"

    def _repr_html_(self) -> str:
        """Returns the tables that a notebook shows: those of `ccplane run`."""
        return _ccplane.html(self._inner.summary_json())


def run(
    scenario: str | os.PathLike[str] | Mapping[str, Any],
    *,
    contenders: Sequence[Contender] | None = None,
    seeds: int | range | str | None = None,
    threads: int | None = None,
    algorithms: Sequence[type[Algorithm[Any]]] = (),
    datapath: str = "sim",
) -> Result:
    """Runs a scenario in the simulator, or on real packets.

    `scenario` is the name of a scenario shipped with ccplane, a path, the text of a scenario file,
    or a dict with the same keys (docs/scenarios.md). `contenders` replaces the contenders of the
    scenario. Each is a name as on the command line, a class, an object,
    `(Class, {keyword: value})`, or a function that returns an object. `algorithms` lists classes
    that the scenario or a contender refers to by name, with parameters. The result does not depend
    on `threads`.

    `datapath="linux"` runs on this host's kernel TCP behind an emulated link, in real time, as
    root; `"udp"` and `"quic"` are the other values of `ccplane run --datapath`. Each seed is one run
    of every contender. The run takes place in a forked copy of this process, so changes made by
    callbacks are not visible here.

    >>> result = run({"contenders": ["reno"], "duration": "2s", "topology": {"dumbbell": {"rate": "10mbit", "rtt": "20ms"}},
    ...               "workload": [{"bulk": {"flows": 1}}]})
    >>> result.summary["contenders"][0]["label"]
    'reno'
    """
    if datapath != "sim" and threads is not None:
        raise ValueError(f"threads={threads} applies to the simulator only; remove it for datapath={datapath!r}")
    classes: list[Any] = list(algorithms)
    names: list[str] | None = None
    if contenders is not None:
        names = []
        for contender in contenders:
            if isinstance(contender, str):
                names.append(contender)
                continue
            maker = _maker(contender)
            name = str(getattr(maker, "name", contender))
            if name in names:
                # Number further contenders of one class, so that each has a row of its own.
                maker = maker if isinstance(maker, _Maker) else _Maker(maker)
                name += str(1 + sum(other.rstrip("0123456789") == name for other in names))
                maker.name = name
            classes.append(maker)
            names.append(name)
    folder = os.getcwd()
    if isinstance(scenario, Mapping):
        if names is not None:
            scenario = {**scenario, "contenders": names}
        given, is_text = _toml.dumps(scenario), True
    else:
        given = os.fspath(scenario)
        is_text = "\n" in given
    if datapath == "sim":
        return Result(_ccplane.simulate(given, folder, is_text, classes, names, _seeds(seeds), threads))
    from . import _measured

    return Result(_measured.run(datapath, given, is_text, classes, names, _seeds(seeds)))


def _seeds(seeds: int | range | str | None) -> str | None:
    if isinstance(seeds, range):
        if seeds.step != 1 or not seeds:
            raise ValueError(f"{seeds} is not a valid range of seeds; use a non-empty range with step 1, as range(1, 51) for 1 to 50")
        return f"{seeds.start}..{seeds.stop - 1}"
    return None if seeds is None else str(seeds)


def check(text: str) -> dict[str, list[str]]:
    """Compiles a datapath program and returns the names of its report and control variables. Raises
    `Error`, with position and fix, if the program is invalid.

    >>> check("(def (Report (volatile acked 0))) (when true (report))")
    {'controls': [], 'reports': ['acked']}
    """
    found: dict[str, list[str]] = json.loads(_ccplane.check(text))
    return dict(sorted(found.items()))


def main(algorithms: Sequence[type[Algorithm[Any]]] = (), arguments: Sequence[str] | None = None) -> int:
    """Runs the command `ccplane` with these algorithms added, and returns its exit code.

    With `raise SystemExit(ccplane.main([Mine]))` at its end, a file `mine.py` has the commands
    `python mine.py run --alg mine --vs native:cubic`, `python mine.py evaluate --alg mine`,
    `python mine.py attach --alg mine`, and so on.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return _ccplane.command(["ccplane", *words], list(algorithms))


_gym.register_when_imported()
atexit.register(_ccplane.interpreter_ends)
