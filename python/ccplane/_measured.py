"""Runs on real packets: `ccplane run` in a forked copy of this process, which has the classes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
import weakref
from collections.abc import Generator, Sequence
from typing import Any

from . import Error, _ccplane
from ._fork import fork

# Settings of a scenario that are paths, each with its value.
PATH = re.compile(r"""(\b(?:file|trace)["']?\s*=\s*)("(?:[^"\\\n]|\\.)+"|'[^'\n]+')""")


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
        file = given
        if is_text:
            file = os.path.join(folder, "scenario.toml")
            with _os_errors(file), open(file, "w", encoding="utf-8") as text:
                text.write(_with_absolute_paths(given))
        words = ["run", file, "--datapath", datapath, "--json", "--out", _results(folder)]
        for contender in contenders or ():
            words += ["--alg", contender]
        words += [] if seeds is None else ["--seeds", seeds]
        call = f"ccplane.run(…, datapath={datapath!r})"
        status, printed, logged = _run(["ccplane", *words], classes, call)
        if status != 0:
            problem = (
                _problem(printed) or logged.strip() or f"the run ended with exit code {status}"
            )
            raise Error(problem.replace(file, "scenario") if is_text else problem)
        # Warnings, and tracebacks of callbacks.
        sys.stderr.write(logged)
        return Folder(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _results(folder: str) -> str:
    return os.path.join(folder, "results")


def _with_absolute_paths(text: str) -> str:
    """Makes the paths in a scenario independent of the folder of its file. They start at the
    working directory."""

    def absolute(setting: re.Match[str]) -> str:
        try:
            path = tomllib.loads(f"path = {setting[2]}")["path"]
        except tomllib.TOMLDecodeError:
            # The command reports it, with its position.
            return setting[0]
        return setting[1] + json.dumps(os.path.join(os.getcwd(), path), ensure_ascii=False)

    return PATH.sub(absolute, text)


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


def _run(words: Sequence[str], classes: Sequence[Any], call: str) -> tuple[int | None, str, str]:
    """Runs a command to its end, or until Ctrl-C. Its results name the `call` in place of the
    command line, which has temporary files. Returns its exit code, output and messages."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as messages,
    ):

        def child() -> None:
            # Jupyter asks programs for colours.
            os.environ["NO_COLOR"] = "1"
            os.environ["CCPLANE_COMMAND_LINE"] = call
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
