from collections.abc import Sequence
from typing import Any, final

class Error(Exception):
    """Something could not be done; the text says what, why, and what helps."""

@final
class Flow:
    """A flow to steer. What a callback sets reaches the datapath when it returns, as one command."""

    @property
    def id(self) -> int:
        """Its number among the flows of this algorithm object, from 0."""
    @property
    def capabilities(self) -> list[str]:
        """What its datapath can do."""
    cwnd: int
    """Sets the congestion window, bytes. The datapath keeps it within its owner's limits. It cannot be read: what holds is in reports."""
    rate: int
    """Sets the pacing rate, bytes a second."""
    ssthresh: int
    """Sets the slow-start threshold, bytes."""
    def set(self, name: str, value: int) -> None:
        """Sets a control variable of the flow's program."""
    def program(self, name: str, **variables: int) -> None:
        """Sets a program of the algorithm on the flow, with values of its control variables."""
    def after(self, delay: str) -> None:
        """Calls `on_timer` after this long, as "10ms". An algorithm has one timer: setting it again moves it."""

@final
class Control:
    """What `on_timer` is given: other flows, and the timer."""

    def flow(self, id: int) -> Flow | None:
        """The live flow of that number."""
    def flows(self) -> list[Flow]:
        """All live flows, in order of their numbers."""
    def after(self, delay: str) -> None:
        """Calls `on_timer` after this long, as "10ms"."""

@final
class FlowInfo:
    """What is known of a flow when it opens."""

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
    """Totals over a flow's life; zero where the datapath does not count."""

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
    """A policy's flow on any datapath: from reports to observations, from actions to windows."""

    def __new__(cls, step: str, observe: Sequence[str], history: int, act: str, mss: int, init_cwnd: int) -> PolicyFlow: ...
    def observe(self, report: Sequence[int]) -> bytes: ...
    def decide(self, action: Sequence[float]) -> tuple[int, int]: ...

@final
class Episode:
    """A simulation whose contender's windows come from outside."""

    def __new__(cls, step: str, observe: Sequence[str], history: int, act: str, classes: Sequence[Any], folder: str) -> Episode: ...
    def reset(self, given: str, is_text: bool, seed: int, each: bool) -> int: ...
    def look(self, n: int) -> Told: ...
    def step(self, action: Sequence[float]) -> tuple[Told, bool]: ...
    def step_each(self, actions: Sequence[tuple[int, Sequence[float]]]) -> tuple[int, bool]: ...
    @property
    def digest(self) -> str | None: ...

def step_many(episodes: Sequence[Episode], actions: Sequence[Sequence[float]], threads: int) -> tuple[bytes, bytes, bytes, bytes]: ...
def drive(cls: Any, flows: int, together: bool, rounds: int) -> float: ...
def policy_program(step: str) -> str: ...
def policy_names() -> tuple[list[str], list[str]]: ...
def command(words: Sequence[str], classes: Sequence[Any]) -> int: ...
def check(text: str) -> str: ...
def compile(text: str) -> str: ...
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
