"""CCP's Python interface on top of ccplane. An algorithm written for CCP runs unchanged, on kernel
TCP and for CCP datapaths.

Differences from CCP's pyportus: requires Python 3.11 or later, values may have 64 bits, `r.Cwnd`
and `r.Rate` are the values that the flow set last, `close()` of a flow object is called when the
flow ends, and `"char"` works. Programs have the semantics of CCP (docs/language.md).
"""

from __future__ import annotations

import ipaddress
import os
import re
import tempfile
from collections.abc import Iterable
from typing import Any

import ccplane

__all__ = ["AlgBase", "Datapath", "DatapathInfo", "algorithm", "start", "try_compile"]


class DatapathInfo:
    """Properties of a new flow: sizes in bytes, IPv4 addresses as integers (0 for others), ports.
    """

    def __init__(self, number: int, info: ccplane.FlowInfo) -> None:
        self.sock_id = number
        self.init_cwnd, self.mss = info.init_cwnd, info.mss
        self.src_ip, self.src_port = _address(info.local)
        self.dst_ip, self.dst_port = _address(info.peer)


def _address(text: str) -> tuple[int, int]:
    host, _, port = text.rpartition(":")
    try:
        return int(ipaddress.IPv4Address(host)), int(port)
    except ValueError:
        return 0, int(port or 0)


Field = tuple[str, int]


class Datapath:
    """Handle with which a flow sets programs and variables."""

    def __init__(self, flow: ccplane.Flow) -> None:
        self._flow = flow
        self._set: dict[str, int] = {"Cwnd": 0, "Rate": 0}

    def set_program(self, program_name: str, fields: Iterable[Field] | None = None) -> None:
        """Installs a program, with values of `Cwnd`, `Rate` and control variables."""
        given = list(fields or ())
        self._flow.program(program_name, **{name: value for name, value in given if name not in self._set})
        self.update_fields([field for field in given if field[0] in self._set])

    def update_field(self, field_name: str, new_value: int) -> None:
        """Sets `Cwnd`, `Rate` or a control variable."""
        if field_name in self._set:
            self._set[field_name] = new_value
        if field_name == "Cwnd":
            self._flow.cwnd = new_value
        elif field_name == "Rate":
            self._flow.rate = new_value
        else:
            self._flow.set(field_name, new_value)

    def update_fields(self, fields: Iterable[Field]) -> None:
        """Sets several fields."""
        for name, value in fields:
            self.update_field(name, value)


class _Report:
    """Report whose attribute `r.acked` is the program's `Report.acked`."""

    __slots__ = ("_report", "_set")

    def __init__(self, report: Any, values: dict[str, int]) -> None:
        self._report = report
        self._set = values

    def __getattr__(self, name: str) -> int:
        if name in self._set:
            return self._set[name]
        value: int = getattr(self._report, name)
        return value


class AlgBase:
    """Base class of algorithms. `datapath_programs(self)` returns a dict of names and program
    texts, and `new_flow(self, datapath, datapath_info)` returns an object with `on_report(self,
    r)`."""

    def datapath_programs(self) -> dict[str, str]:
        """Returns program texts by name."""
        raise NotImplementedError

    def new_flow(self, datapath: Datapath, datapath_info: DatapathInfo) -> Any:
        """Returns the object that handles a new flow."""
        raise NotImplementedError


def try_compile(text: str) -> str:
    """Returns the error of a program, or an empty string if it compiles."""
    try:
        ccplane.check(_as_ccp_means_it(text))
    except ccplane.Error as why:
        return str(why)
    return ""


def _as_ccp_means_it(text: str) -> str:
    return re.sub(r"\(\s*def\b", "(def (compat libccp)", text, count=1)


def algorithm(alg: AlgBase) -> type[ccplane.Algorithm[Any]]:
    """Converts the algorithm to a ccplane class, for `ccplane.run` and `ccplane.main`."""
    kind = type(alg)
    if not isinstance(alg, AlgBase):
        raise TypeError(f"{kind.__name__} is no subclass of pyportus.AlgBase")
    for method in ("datapath_programs", "new_flow"):
        if getattr(kind, method) is getattr(AlgBase, method):
            raise NotImplementedError(f"{kind.__name__} does not have the method {method}, which every algorithm has")
    texts = {name: _as_ccp_means_it(text) for name, text in alg.datapath_programs().items()}

    class Adapted(ccplane.Algorithm[tuple[Any, Datapath]]):
        __doc__ = kind.__doc__ or f"{kind.__name__}, written for CCP"
        name = kind.__name__
        programs = texts

        def open(self, info: ccplane.FlowInfo, flow: ccplane.Flow) -> tuple[Any, Datapath]:
            datapath = Datapath(flow)
            return alg.new_flow(datapath, DatapathInfo(flow.id, info)), datapath

        def on_report(self, state: tuple[Any, Datapath], report: Any, flow: ccplane.Flow) -> None:
            own, datapath = state
            own.on_report(_Report(report, datapath._set))

        def on_close(self, state: tuple[Any, Datapath], last: ccplane.FlowStats) -> None:
            close = getattr(state[0], "close", None)
            if close is not None:
                close()

    return Adapted


def start(ipc: str, alg: AlgBase, identifier: str = "portus") -> int:
    """Runs the algorithm until Ctrl-C.

    `"netlink"` and `"char"` control the TCP flows of this host; a socket selects the algorithm as
    `ccp_` followed by the class name. `"unix"` serves CCP datapaths.
    """
    adapted = algorithm(alg)
    if ipc in ("netlink", "char"):
        return ccplane.main([adapted], ["attach", "--alg", adapted.name])
    if ipc == "unix":
        folder = os.path.join(tempfile.gettempdir(), "ccp")
        os.makedirs(folder, exist_ok=True)
        return ccplane.main([adapted], ["agent", "--alg", adapted.name, "--ccp", os.path.join(folder, identifier)])
    raise ValueError(f"there is no {ipc!r}: it is netlink, char or unix")
