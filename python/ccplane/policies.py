"""Policies: functions from observations to actions, for simulations and real packets alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import Algorithm, _ccplane
from ._ccplane import Flow, FlowInfo, PolicyFlow

Floats = NDArray[np.float32]

OBSERVE = ("rtt_ratio", "rtt_gradient", "loss", "send_ratio", "delivery", "window")


@dataclass(frozen=True)
class PolicySpec:
    """Decision interval, observation and action of a policy (docs/learning.md). Validated on
    creation."""

    step: str = "20ms"
    """Decision interval: `"20ms"`, `"1rtt"`, or `"report"` for once per round trip and at losses.
    """
    observe: Sequence[str] = OBSERVE
    """Names of the features."""
    history: int = 1
    """Number of steps in an observation, the last one included."""
    act: str = "cwnd_factor"
    """Controlled quantity: `cwnd_factor`, `rate_factor` or `cwnd_rate`."""

    def __post_init__(self) -> None:
        if isinstance(self.observe, str):
            raise TypeError(f"observe is {self.observe!r}, but must be a list of names; write [{self.observe!r}]")
        PolicyFlow(self.step, list(self.observe), self.history, self.act, 1448, 14480)

    @property
    def numbers(self) -> int:
        """Number of values in an action."""
        return 2 if self.act == "cwnd_rate" else 1


def policy(spec: PolicySpec, act: Callable[[Floats], Any], *, name: str = "policy") -> type[Algorithm[PolicyFlow]]:
    """Turns a policy into an algorithm class, for `ccplane.run`, `ccplane.main` and anything else
    that takes a class.

    `act` receives the observation, `history` sets of features with the oldest first. It returns one
    number from -1 to 1, or two for `cwnd_rate`. Observations and windows are computed by the same
    code as in the environments.
    """

    class Policy(Algorithm[PolicyFlow]):
        """Learned or hand-written policy."""

        programs = {"policy": _ccplane.policy_program(spec.step)}
        needs = ("cwnd", "rtt", "timers") if spec.act == "cwnd_factor" else ("cwnd", "pacing", "rtt", "timers")

        def open(self, info: FlowInfo, flow: Flow) -> PolicyFlow:
            flow.program("policy")
            return PolicyFlow(spec.step, list(spec.observe), spec.history, spec.act, info.mss, info.cwnd)

        def on_report(self, state: PolicyFlow, report: Any, flow: Flow) -> None:
            seen = np.frombuffer(state.observe(tuple(report)), np.float32)
            cwnd, rate = state.decide(np.atleast_1d(np.asarray(act(seen), np.float32)).tolist())
            flow.cwnd = cwnd
            if rate > 0:
                flow.rate = rate

    Policy.name = name
    return Policy
