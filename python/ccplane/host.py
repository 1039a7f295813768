"""Control from a program of your own: TCP of this host, and datapaths in other processes."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Generator, Sequence
from typing import Any

from . import Algorithm, Error, _ccplane
from ._fork import fork


@contextlib.contextmanager
def attach(
    algorithms: Sequence[type[Algorithm[Any]]],
    *,
    system: bool = False,
    cgroup: str | os.PathLike[str] | None = None,
    to: str | None = None,
    port: str | None = None,
    percent: int | None = None,
    keep: bool = False,
    min_cwnd: str | None = None,
    max_cwnd: str | None = None,
    max_rate: str | None = None,
    fallback_after: str | None = None,
    metrics: str | None = None,
) -> Generator[list[str], None, None]:
    """Controls the TCP flows of this host for the duration of a `with` block, like `ccplane attach`
    (docs/attach.md). Yields the kernel names of the algorithms.

    Requires the privileges of `ccplane attach`. The classes run in a forked copy of this process,
    so changes made by callbacks are not visible here. Values are texts as on the command line:
    `min_cwnd="4kB"`, `max_rate="50mbit"`.
    """
    words = ["ccplane", "attach", "--alg", ",".join(str(algorithm.name) for algorithm in algorithms)]
    options = {
        "--cgroup": cgroup, "--to": to, "--port": port, "--percent": percent, "--metrics": metrics,
    }  # fmt: skip
    for option, value in options.items():
        if value is not None:
            words += [option, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    limits = {"min_cwnd": min_cwnd, "max_cwnd": max_cwnd, "max_rate": max_rate, "fallback_after": fallback_after}
    given = [f"{name}={value}" for name, value in limits.items() if value is not None]
    words += ["--limits", ",".join(given)] if given else []
    words += ["--system"] if system else []
    words += ["--keep"] if keep else []
    said, says = os.pipe()
    process = fork(functools.partial(_steer, words, list(algorithms), said, says), "ccplane attach")
    os.close(says)
    names: list[str] = []
    try:
        with open(said, encoding="utf-8") as lines:
            for line in lines:
                name, registered, _ = line.partition(": registered")
                if registered:
                    names.append(name)
                if len(names) == len(algorithms):
                    break
            else:
                process.join()
                raise Error("the algorithms could not be attached; see the messages of `attach` above")
            yield names
    finally:
        if process.is_alive():
            process.terminate()
        process.join()


def _steer(words: list[str], algorithms: list[type[Algorithm[Any]]], said: int, says: int) -> None:
    os.close(said)
    os.dup2(says, 1)
    os.close(says)
    os._exit(_ccplane.command(words, algorithms))


class Agent:
    """Agent for datapaths in other processes (docs/agents.md). Needs no privileges."""

    def __init__(self, algorithms: Sequence[type[Algorithm[Any]]]) -> None:
        self._algorithms = list(algorithms)

    def serve(self, *, unix: str | os.PathLike[str] | None = None, ccp: str | os.PathLike[str] | None = None) -> None:
        """Serves until Ctrl-C or SIGTERM, on ccplane's own socket (`unix`, for `ccplane attach
        --agent`), on CCP's (`ccp`), or on both."""
        words = ["ccplane", "agent", "--alg", ",".join(str(algorithm.name) for algorithm in self._algorithms)]
        for option, path in (("--unix", unix), ("--ccp", ccp)):
            if path is not None:
                words += [option, os.fspath(path)]
        if len(words) == 4:
            raise ValueError("an agent needs a socket; give `unix`, `ccp` or both")
        if _ccplane.command(words, self._algorithms) != 0:
            raise Error("the agent failed; see its messages above")
