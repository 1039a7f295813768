from collections.abc import Callable, Sequence
from typing import Any, final

class Error(Exception):
    """Raised when an operation fails. The text states what failed, why, and the fix."""

@final
class Flow:
    """Flow under control. Settings made in a callback reach the datapath as one command when the
    callback returns."""

    @property
    def id(self) -> int:
        """Number of the flow within this algorithm object, from 0."""
    @property
    def capabilities(self) -> list[str]:
        """Capabilities of the flow's datapath."""
    cwnd: int
    """Sets the congestion window, bytes. The datapath clamps it to the operator's limits.
    Write-only: the current value is in reports."""
    rate: int
    """Sets the pacing rate, bytes per second."""
    ssthresh: int
    """Sets the slow-start threshold, bytes."""
    def set(self, name: str, value: int) -> None:
        """Sets a control variable of the flow's program."""
    def program(self, name: str, **variables: int) -> None:
        """Installs one of the algorithm's programs on the flow, with values of its control
        variables."""
    def after(self, delay: str) -> None:
        """Schedules `on_timer` after a delay such as "10ms". An algorithm has one timer; scheduling
        it again replaces the deadline."""

@final
class Control:
    """Argument of `on_timer`: access to all flows, and the timer."""

    def flow(self, id: int) -> Flow | None:
        """Returns the live flow with this number, or `None`."""
    def flows(self) -> list[Flow]:
        """Returns all live flows, ordered by number."""
    def after(self, delay: str) -> None:
        """Schedules `on_timer` after a delay such as "10ms"."""

@final
class FlowInfo:
    """Properties of a flow when it opens."""

    mss: int
    init_cwnd: int
    cwnd: int
    ssthresh: int
    rate: int
    srtt_us: int
    live: bool
    local: str
    peer: str
    tags: dict[str, str]

@final
class FlowStats:
    """Totals over the lifetime of a flow; zero if the datapath does not count them."""

    bytes_acked: int
    packets_lost: int
    reports: int
    lifetime_s: float

@final
class RunResult:
    def summary_json(self) -> str: ...
    @property
    def digest(self) -> str | None: ...
    def write(self, folder: str) -> str: ...

Told = tuple[bytes, list[float], bool]

@final
class PolicyFlow:
    """Flow of a policy on any datapath: turns reports into observations, and actions into windows.
    """

    def __new__(cls, step: str, observe: Sequence[str], history: int, act: str, mss: int, init_cwnd: int) -> PolicyFlow: ...
    def observe(self, report: Sequence[int]) -> bytes: ...
    def decide(self, action: Sequence[float]) -> tuple[int, int]: ...

@final
class Episode:
    """Simulation with externally controlled windows of its contender."""

    def __new__(cls, step: str, observe: Sequence[str], history: int, act: str, classes: Sequence[Any], folder: str) -> Episode: ...
    def reset(self, given: str, is_text: bool, seed: int, each: bool) -> int: ...
    def look(self, n: int) -> Told: ...
    def step(self, action: Sequence[float]) -> tuple[Told, bool]: ...
    def step_each(self, actions: Sequence[tuple[int, Sequence[float]]]) -> tuple[int, bool]: ...
    @property
    def digest(self) -> str | None: ...

@final
class SweepPlan:
    """Plan of a sweep: every scenario was checked."""

    def __new__(cls, name: str, text: str, folder: str, classes: Sequence[Any]) -> SweepPlan: ...
    @property
    def runs(self) -> int: ...
    def files(self) -> list[str]: ...
    def run(self, index: int, flows: bool) -> str: ...
    def run_missing(
        self,
        store: SweepStore,
        threads: int | None,
        flows: bool,
        progress: Callable[[float], None] | None,
    ) -> None: ...

@final
class SweepStore:
    """Result folder of a sweep, locked while the object exists."""

    def __new__(cls, out: str, plan: SweepPlan) -> SweepStore: ...
    def missing(self, plan: SweepPlan) -> list[int]: ...
    def add(self, rows: Sequence[str]) -> None: ...
    def write(self, plan: SweepPlan, flows: bool, command: str) -> tuple[int, int, int]: ...

def behaviour() -> str: ...
def step_many(episodes: Sequence[Episode], actions: Sequence[Sequence[float]], threads: int) -> tuple[bytes, bytes, bytes, bytes]: ...
def drive(cls: Any, flows: int, together: bool, rounds: int) -> float: ...
def policy_program(step: str) -> str: ...
def step_seconds(step: str) -> float | None: ...
def policy_names() -> tuple[list[str], list[str]]: ...
def command(words: Sequence[str], classes: Sequence[Any]) -> int: ...
def check(text: str) -> str: ...
def compile(text: str) -> str: ...
def html(summary: str) -> str: ...
def interpreter_ends() -> None: ...
def provenance(command: str) -> str: ...
def simulate(
    given: str,
    folder: str,
    is_text: bool,
    classes: Sequence[Any],
    contenders: Sequence[str] | None,
    seeds: str | None,
    threads: int | None,
) -> RunResult: ...
