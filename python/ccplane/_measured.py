"""Runs on real packets: `ccplane run` in a forked copy of this process, which has the classes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Generator, Sequence
from typing import Any

from . import Error, _ccplane
from ._fork import fork

class Folder:
    """Result of a run in a temporary folder, which is removed with this object."""

    def __init__(self, folder: str) -> None:
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._results = _results(folder)
        with _os_errors(self._results):
            with open(os.path.join(self._results, "summary.json"), encoding="utf-8") as file:
                self._summary = file.read()

    def summary_json(self) -> str:
        return self._summary

    @property
    def digest(self) -> str | None:
        return None

    def write(self, folder: str, /) -> str:
        with _os_errors(folder):
            shutil.copytree(self._results, folder, dirs_exist_ok=True)
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
    with _os_errors("no temporary folder"):
        folder = tempfile.mkdtemp(prefix="ccplane-")
    try:
        words = ["run", "-" if is_text else given, "--datapath", datapath, "--json", "--out", _results(folder)]
        for contender in contenders or ():
            words += ["--alg", contender]
        words += [] if seeds is None else ["--seeds", seeds]
        call = f"ccplane.run(…, datapath={datapath!r})"
        text = given if is_text else ""
        status, printed, logged = _run(["ccplane", *words], classes, call, text)
        if status != 0:
            problem = (
                _problem(printed) or logged.strip() or f"the run ended with exit code {status}"
            )
            if is_text and problem.startswith("standard input"):
                problem = "scenario" + problem.removeprefix("standard input")
            raise Error(problem)
        # Warnings, and tracebacks of callbacks.
        sys.stderr.write(logged)
        return Folder(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _results(folder: str) -> str:
    return os.path.join(folder, "results")


@contextlib.contextmanager
def _os_errors(path: str) -> Generator[None]:
    """Raises an `OSError` as `Error`. `path` is named if the error has no path."""
    try:
        yield
    except shutil.Error as why:
        # A copy of a folder, with a list of files that failed.
        _, path, reason = why.args[0][0]
        raise Error(f"{path}: {reason}") from None
    except OSError as why:
        raise Error(f"{why.filename or path}: {why.strerror or why}") from None


def _problem(printed: str) -> str | None:
    """Returns the error that the command printed as JSON, with its hint."""
    try:
        answer = json.loads(printed)
    except json.JSONDecodeError:
        return None
    return "; ".join(filter(None, (answer.get("error"), answer.get("hint"))))


def _run(
    words: Sequence[str], classes: Sequence[Any], call: str, text: str
) -> tuple[int | None, str, str]:
    """Runs a command with a text as its standard input to its end, or until Ctrl-C. Its results name
    the `call` in place of the command line, which has temporary files. Returns its exit code,
    output and messages."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as scenario,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as messages,
    ):

        scenario.write(text)
        scenario.flush()
        os.lseek(scenario.fileno(), 0, os.SEEK_SET)

        def child() -> None:
            # Jupyter asks programs for colours.
            os.environ["NO_COLOR"] = "1"
            os.environ["CCPLANE_COMMAND_LINE"] = call
            os.dup2(scenario.fileno(), 0)
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
