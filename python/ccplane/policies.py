"""Policies: what decides from observations, in a simulation that is learned in and on real packets alike."""

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
    """When a policy decides, on what, and what it changes (docs/learning.md). It is checked when it is used."""

    step: str = "20ms"
    """`"20ms"`, `"1rtt"`, or `"report"`: once a round trip, and at losses."""
    observe: Sequence[str] = OBSERVE
    """Names of features."""
    history: int = 1
    """How many steps an observation remembers."""
    act: str = "cwnd_factor"
    """`cwnd_factor`, `rate_factor` or `cwnd_rate`."""

    def __post_init__(self) -> None:
        if isinstance(self.observe, str):
            raise TypeError(f"observe is {self.observe!r}: it is a list of names, so write [{self.observe!r}]")
        PolicyFlow(self.step, list(self.observe), self.history, self.act, 1448, 14480)

    @property
    def numbers(self) -> int:
        """How many numbers an action has."""
        return 2 if self.act == "cwnd_rate" else 1


def policy(spec: PolicySpec, act: Callable[[Floats], Any], *, name: str = "policy") -> type[Algorithm[PolicyFlow]]:
    """A policy as an algorithm, for `ccplane.run`, `ccplane.main` and all else that takes a class.

    `act` gets the observation, `history` times the features, the oldest first, and answers one number, or one for each of what `spec.act` changes,
    from -1 to 1. Observations and windows are computed by the code that the environments use.
    """

    class Policy(Algorithm[PolicyFlow]):
        """A policy that was learned or written."""

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
