"""Runs on real packets: `ccplane run` in a forked copy of this process, which has the classes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

from . import Error, _ccplane
from ._fork import fork


class Folder:
    """Result of a run in a temporary folder, which is removed with this object."""

    def __init__(self, folder: str, command: str) -> None:
        self._folder = folder
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        # The command line of the child has temporary files.
        self._summary = json.dumps(summary | {"command": command})

    def summary_json(self) -> str:
        return self._summary

    @property
    def digest(self) -> str | None:
        return None

    def write(self, folder: str, /) -> str:
        shutil.copytree(self._folder, folder, dirs_exist_ok=True)
        return os.path.join(folder, "report.html")


def run(
    datapath: str,
    given: str,
    is_text: bool,
    classes: Sequence[Any],
    contenders: Sequence[str] | None,
    seeds: str | None,
) -> Folder:
    """Runs a scenario on a datapath with real packets. Raises `Error` with the message of the
    command."""
    out, file = tempfile.mkdtemp(prefix="ccplane-"), given
    try:
        if is_text:
            # Relative paths of a scenario start at its folder, which is the working directory for
            # a text.
            number, file = tempfile.mkstemp(prefix="scenario-", suffix=".toml", dir=os.getcwd())
            with open(number, "w", encoding="utf-8") as text:
                text.write(given)
        words = ["ccplane", "run", file, "--datapath", datapath, "--json", "--out", out, "--force"]
        for contender in contenders or ():
            words += ["--alg", contender]
        words += [] if seeds is None else ["--seeds", seeds]
        status, printed, logged = _run(words, classes)
        if status != 0:
            problem = (
                _problem(printed) or logged.strip() or f"the run ended with exit code {status}"
            )
            raise Error(problem.replace(file, "scenario") if is_text else problem)
        # Warnings, and tracebacks of callbacks.
        sys.stderr.write(logged)
        return Folder(out, f"ccplane.run(…, datapath={datapath!r})")
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    finally:
        if file != given:
            os.unlink(file)


def _problem(printed: str) -> str | None:
    """Returns the error that the command printed as JSON, with its hint."""
    try:
        answer = json.loads(printed)
    except json.JSONDecodeError:
        return None
    return "; ".join(filter(None, (answer.get("error"), answer.get("hint"))))


def _run(words: Sequence[str], classes: Sequence[Any]) -> tuple[int | None, str, str]:
    """Runs a command to its end, or until Ctrl-C. Returns its exit code, output and messages."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as messages,
    ):

        def child() -> None:
            # Jupyter asks programs for colours.
            os.environ["NO_COLOR"] = "1"
            os.dup2(output.fileno(), 1)
            os.dup2(messages.fileno(), 2)
            # A notebook replaces Python's streams, and `_exit` flushes no buffer.
            sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)
            sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)
            os._exit(_ccplane.command(list(words), list(classes)))

        process = fork(child, "ccplane run")
        try:
            process.join()
        finally:
            if process.is_alive():
                # The command removes its network namespaces.
                process.terminate()
                process.join()
        output.seek(0)
        messages.seek(0)
        return process.exitcode, output.read(), messages.read()
