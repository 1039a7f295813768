"""A congestion-control plane: algorithms as Python classes, on kernel TCP, over UDP and in a deterministic simulator.

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
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

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
    from matplotlib.figure import Figure

    from .batch import Batch
    from .host import Agent, attach
    from .policies import PolicySpec, policy
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
    "volatile",
    "wrapped_max",
]


# What takes longer to import than all else, and is needed by few.
_ELSEWHERE = {"Agent": "host", "Batch": "batch", "PolicySpec": "policies", "Table": "tables", "attach": "host", "policy": "policies"}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f".{_ELSEWHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


State = TypeVar("State")


class Algorithm(Generic[State]):
    """A congestion-control algorithm. One object serves all flows that chose it; its callbacks run on one thread.

    A class sets `name` and `programs`, and has `open` and `on_report`. In place of `on_report`, `on_reports(batch)` gets all reports that came
    together as arrays (`Batch`). The other callbacks, `on_timer(control)`, `on_refused(state, why, flow)` and `on_close(state, last)`, are
    optional.

    A callback that raises ends the steering of its flow, and of no other: that runs NewReno in its datapath from then on. The first
    exception is printed with its traceback.
    """

    name: ClassVar[str]
    """The name by which flows choose it; the kernel knows it as ccp_NAME."""
    programs: ClassVar[Mapping[str, str | type[Fold]]]
    """Names of the programs that run in the datapath at every ACK, and their texts (docs/language.md) or `Fold` classes."""
    needs: ClassVar[Iterable[str]] = ("cwnd",)
    """What a datapath must be able to do; a flow of one that cannot is refused."""
    latency: ClassVar[str] = "1ms"
    """How long a report may wait, with others, before the agent is woken. Shorter reacts faster and costs CPU."""
    parameters: ClassVar[Mapping[str, Any]] = {}
    """Names and defaults of what `--alg name:key=value` can set: keywords of the class, of the types of the defaults."""

    def open(self, info: FlowInfo, flow: Flow) -> State:
        """A flow begins, or is taken over while it lives. Sets a program on it, or it never reports; gives the state that is
        kept of it."""
        raise NotImplementedError

    def on_report(self, state: State, report: Any, flow: Flow) -> None:
        """The flow's program reported: `report.NAME` of each report variable, `report.urgent`, `report.now_us`."""
        raise NotImplementedError


Contender = (
    str
    | type[Algorithm[Any]]
    | Algorithm[Any]
    | tuple[type[Algorithm[Any]], Mapping[str, Any]]
    | Callable[[], Algorithm[Any]]
)
"""A name as on the command line, a class, an object, `(Class, {keyword: value})`, or a function without parameters that makes an object:
a lambda or a `functools.partial`."""


class _Maker:
    """A contender made by a function, with the attributes of the class of what it makes."""

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
    """The class or the function that makes the objects of a contender: each run has its own."""
    if isinstance(contender, type):
        return contender
    if isinstance(contender, tuple):
        cls, given = contender
        return _Maker(functools.partial(cls, **given))
    if isinstance(contender, Algorithm) or not callable(contender):
        return _Maker(functools.partial(copy.deepcopy, contender))
    return _Maker(contender)


class Result:
    """What a run gave."""

    def __init__(self, inner: _ccplane.RunResult) -> None:
        self._inner = inner
        self._summary: dict[str, Any] | None = None
        self._tables: dict[str, Table] | None = None

    @property
    def tables(self) -> dict[str, Table]:
        """The tables of the run by name: `series`, `bins`, `flows`, `reports`, and those that it has beside (docs/results-format.md)."""
        if self._tables is None:
            from . import tables

            self._tables = tables.read(self.write)
        return self._tables

    @property
    def summary(self) -> dict[str, Any]:
        """All figures, as `summary.json` has them (docs/results-format.md)."""
        if self._summary is None:
            self._summary = json.loads(self._inner.summary_json())
        return self._summary

    @property
    def digest(self) -> str | None:
        """A hash of all that happened: the same scenario and seed give the same on every machine."""
        return self._inner.digest

    def write(self, folder: str | os.PathLike[str]) -> str:
        """Writes the page, the figures and the scenario to a folder, as `ccplane run --out`; gives the path of the page."""
        return str(self._inner.write(os.fspath(folder)))

    def plot(self) -> Figure:
        """Windows and goodput of the flows and the link's queueing delay over time, a column for each contender, as a figure of matplotlib
        (`pip install 'ccplane[plot]'`). Of several seeds it shows the one whose series are in `tables`."""
        from . import plots

        return plots.draw([c["label"] for c in self.summary["contenders"]], self.tables)

    def __repr__(self) -> str:
        names = ", ".join(c["label"] for c in self.summary["contenders"])
        return f"<ccplane.Result of {names}>"


def run(
    scenario: str | os.PathLike[str] | Mapping[str, Any],
    *,
    contenders: Sequence[Contender] | None = None,
    seeds: int | range | str | None = None,
    threads: int | None = None,
    algorithms: Sequence[type[Algorithm[Any]]] = (),
) -> Result:
    """Runs a scenario in the simulator.

    `scenario` is the name of one that comes with ccplane, a path, the text of a file, or a dict of the same keys
    (docs/scenarios.md). `contenders` replace those of the scenario, which then needs none. Each is a name as on the command line, a class, an
    object, `(Class, {keyword: value})`, or a function that makes an object. `algorithms` are classes that the scenario or a contender names,
    with parameters. The result does not depend on `threads`.

    >>> result = run({"contenders": ["reno"], "duration": "2s", "topology": {"dumbbell": {"rate": "10mbit", "rtt": "20ms"}},
    ...               "workload": [{"bulk": {"flows": 1}}]})
    >>> result.summary["contenders"][0]["label"]
    'reno'
    """
    classes = list(algorithms)
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
                # Two of one class: each has a row of its own.
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
    return Result(_ccplane.simulate(given, folder, is_text, classes, names, _seeds(seeds), threads))


def _seeds(seeds: int | range | str | None) -> str | None:
    if isinstance(seeds, range):
        if seeds.step != 1 or not seeds:
            raise ValueError(f"{seeds} are no seeds: range(1, 51) are 1 to 50")
        return f"{seeds.start}..{seeds.stop - 1}"
    return None if seeds is None else str(seeds)


def check(text: str) -> dict[str, list[str]]:
    """Compiles a datapath program: the names of its report variables and of its control variables. What is wrong is an `Error` with place and
    fix.

    >>> check("(def (Report (volatile acked 0))) (when true (report))")
    {'controls': [], 'reports': ['acked']}
    """
    found: dict[str, list[str]] = json.loads(_ccplane.check(text))
    return dict(sorted(found.items()))


def main(algorithms: Sequence[type[Algorithm[Any]]] = (), arguments: Sequence[str] | None = None) -> int:
    """The command `ccplane` with these algorithms in it: `raise SystemExit(ccplane.main([Mine]))` at the end of a file gives it
    `python mine.py run --alg mine --vs native:cubic`, `python mine.py evaluate --alg mine`, `python mine.py attach --alg mine`, and the rest.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return _ccplane.command(["ccplane", *words], list(algorithms))


_gym.register_when_imported()
atexit.register(_ccplane.interpreter_ends)
