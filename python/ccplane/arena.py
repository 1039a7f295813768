"""Scores of candidates, for search programs (docs/arena.md).

>>> evaluate("reno", suite="gate")["passed"]
1.0
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from . import Error


def evaluate(
    candidate: str | os.PathLike[str],
    *,
    suite: str = "quick",
    against: Sequence[str] = ("cubic", "bbr3", "copa"),
    held_out: int | None = None,
    threads: int = 1,
    timeout: float = 120.0,
    user: str | int | None = None,
) -> dict[str, Any]:
    """Scores one candidate: the path of a program text or Python file, or a name, optionally with
    parameters (`./mine.py:back=0.7`).

    Returns a dict in the form that frameworks for evolutionary search expect: `combined_score`,
    `passed` (1 or 0, the gate), each part of the score, each check of the gate, and `reasons`, a
    list of sentences on what failed. A candidate that cannot be read, crashes, attempts something
    forbidden or takes longer than `timeout` seconds gets the score 0, with the reason.

    The candidate runs in a process of its own. A Python file is sandboxed there and runs as `user`
    (by default `nobody`, if called by root).
    """
    # Isolated mode (-I) imports no modules from the working directory.
    words = [sys.executable, "-I", "-m", "ccplane", "arena", os.fspath(candidate), "--suite", suite, "--against", ",".join(against), "--json"]
    if held_out is not None:
        words += ["--held-out", str(held_out)]
    if user is not None:
        words += ["--sandbox", str(user)]
    environment = {**os.environ, "CCPLANE_THREADS": str(threads)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment)
    try:
        told, said = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return _failed(f"it took longer than {timeout:g} s")
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    try:
        answer = json.loads(told)
    except json.JSONDecodeError:
        # Exit code 2 is a usage error, independent of the candidate.
        if process.returncode == 2:
            raise Error(said.strip()) from None
        return _failed(said.strip() or f"it ended with exit code {process.returncode}")
    if "candidates" not in answer:
        raise Error(answer["error"])
    standing = answer["candidates"][0]
    # The traceback of a candidate that raised is on stderr.
    reasons = [*standing["reasons"], *([said.strip()] if "Traceback" in said else [])]
    found: dict[str, Any] = {"combined_score": standing.get("score") or 0.0, "passed": float(standing["gate_passed"])}
    found |= standing.get("parts") or {}
    found |= {f"gate_{check['name']}": check["value"] or 0.0 for check in standing["gate"]}
    return found | {"reasons": reasons}


def evaluate_all(
    candidates: Sequence[str | os.PathLike[str]],
    executor: concurrent.futures.Executor | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Scores several candidates like `evaluate`, with its `options`, and returns their dicts in the
    same order.

    An executor (`concurrent.futures.ProcessPoolExecutor`, or
    `dask.distributed.Client(...).get_executor()` for a cluster) scores them in its workers, which
    receive the candidates' files. Without one they are scored one after the other.
    """
    tasks = [_candidate(candidate) for candidate in candidates]
    if executor is None:
        return [_evaluate_copy(*task, options) for task in tasks]
    futures = [executor.submit(_evaluate_copy, *task, options) for task in tasks]
    return [future.result() for future in futures]


def _candidate(candidate: str | os.PathLike[str]) -> tuple[str, str, bytes | None]:
    """Returns the name of a candidate's file, its parameters and its content; `None` for an
    algorithm of ccplane."""
    name, separator, parameters = os.fspath(candidate).partition(":")
    if not name.endswith((".ccp", ".py")):
        return name, separator + parameters, None
    try:
        with open(name, "rb") as file:
            return os.path.basename(name), separator + parameters, file.read()
    except OSError as why:
        raise Error(f"{name}: {why.strerror}") from None


def _evaluate_copy(name: str, parameters: str, content: bytes | None, options: dict[str, Any]) -> dict[str, Any]:
    """Scores a candidate whose file is on another machine."""
    if content is None:
        return evaluate(name + parameters, **options)
    with tempfile.TemporaryDirectory(prefix="ccplane-candidate-") as folder:
        # The candidate's process runs as another user.
        os.chmod(folder, 0o755)
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(content)
        return evaluate(path + parameters, **options)


def _failed(why: str) -> dict[str, Any]:
    return {"combined_score": 0.0, "passed": 0.0, "reasons": [why]}
