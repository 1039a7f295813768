"""Reports of many flows as numpy arrays."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

State = TypeVar("State")
Numbers = NDArray[np.uint64]


class Batch(Generic[State]):
    """Reports of one program that arrived in one wake-up. A flow that reported twice occurs twice;
    the last setting wins."""

    __slots__ = ("_asked", "fields", "ids", "names", "now_us", "states", "urgent")

    ids: Numbers
    """Flow numbers, shape (n,)."""
    fields: Numbers
    """Report variables, shape (n, k); `names` are the columns."""
    names: tuple[str, ...]
    urgent: NDArray[np.bool_]
    """True if the report includes a loss, a timeout or an undo, shape (n,)."""
    now_us: int
    states: list[State]
    """Return value of `open` for each flow."""

    def __init__(self, ids: bytes, fields: bytes, names: tuple[str, ...], urgent: bytes, now_us: int, states: list[State]) -> None:
        self.ids = np.frombuffer(ids, np.uint64)
        self.fields = np.frombuffer(bytearray(fields), np.uint64).reshape(len(states), len(names))
        self.names = names
        self.urgent = np.frombuffer(urgent, np.bool_)
        self.now_us = now_us
        self.states = states
        self._asked: list[tuple[str, bytes]] = []

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, name: str) -> Numbers:
        """Returns the column of a report variable."""
        try:
            return self.fields[:, self.names.index(name)]
        except ValueError:
            raise KeyError(f"unknown report variable {name}; use one of {', '.join(self.names)}") from None

    def set(self, name: str, values: Any) -> None:
        """Sets a control variable of each flow's program."""
        self._ask(f"={name}", values)

    @property
    def cwnd(self) -> NoReturn:
        """Sets the windows, bytes; 0 leaves a flow unchanged. Write-only."""
        raise AttributeError("cwnd is write-only; the current value is in reports")

    @cwnd.setter
    def cwnd(self, values: Any) -> None:
        self._ask("cwnd", values)

    @property
    def rate(self) -> NoReturn:
        """Sets the pacing rates, bytes per second; 0 leaves a flow unchanged. Write-only."""
        raise AttributeError("rate is write-only; the current value is in reports")

    @rate.setter
    def rate(self, values: Any) -> None:
        self._ask("rate", values)

    @property
    def ssthresh(self) -> NoReturn:
        """Sets the slow-start thresholds, bytes; 0 leaves a flow unchanged. Write-only."""
        raise AttributeError("ssthresh is write-only; the current value is in reports")

    @ssthresh.setter
    def ssthresh(self, values: Any) -> None:
        self._ask("ssthresh", values)

    def _ask(self, name: str, values: Any) -> None:
        array = np.asarray(values)
        called = name.removeprefix("=")
        if array.shape != (len(self.states),):
            raise ValueError(f"{called} has the shape {array.shape}, but this batch has {len(self.states)} flows; use ({len(self.states)},)")
        if array.dtype.kind == "i":
            if (array < 0).any():
                raise ValueError(f"{called} contains {array.min()}; use values from 0 to 2**64-1")
        elif array.dtype.kind != "u":
            raise TypeError(f"{called} has the type {array.dtype}, but must be whole numbers; write .astype(np.uint64)")
        self._asked.append((name, array.astype(np.uint64, copy=False).tobytes()))
