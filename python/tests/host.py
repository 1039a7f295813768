"""Interpreters and users for tests that run candidates."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import ccplane


def skip(why: str, *, package: bool = False) -> NoReturn:
    """Skips a test that this host cannot run. Fails instead under CCPLANE_NO_SKIP=1, unless
    `scripts/python` could not fetch `package`."""
    if os.environ.get("CCPLANE_NO_SKIP") == "1" and not (package and os.environ.get("CCPLANE_NO_PACKAGES") == "1"):
        raise AssertionError(f"SKIPPED: {why}")
    raise unittest.SkipTest(why)


def readable(interpreter: str, code: str = "") -> bool:
    """Returns True if the user `nobody` can run the interpreter."""
    try:
        return subprocess.run([interpreter, "-I", "-c", code], user="nobody", cwd="/", check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def environment(folder: str) -> str | None:
    """Returns an interpreter with the ccplane package, in a new environment that the user `nobody`
    can read."""
    base = next((path for path in (getattr(sys, "_base_executable", ""), "/usr/bin/python3") if readable(path)), None)
    if base is None:
        return None
    subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(Path(folder, "lib").glob("python3*/site-packages"))
    shutil.copytree(Path(ccplane.__file__).parent, packages / "ccplane")
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    return f"{folder}/bin/python3"


def interpreter() -> tuple[str, str | None]:
    """Returns an interpreter for tests, and the user to run candidates as."""
    if os.geteuid() != 0 or USER_OF_THIS is None:
        return sys.executable, None
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    made = environment(f"{folder}/environment")
    return (made, None) if made is not None and readable(made, "import ccplane") else (sys.executable, "root")


def becomes(true: Callable[[], bool], within_s: float = 10) -> bool:
    """Waits until a condition is true; returns False on timeout."""
    until = time.monotonic() + within_s
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def read(path: Path) -> bytes:
    """Returns the content of a /proc file; empty if the process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


USER_OF_THIS = "root" if os.geteuid() == 0 and not readable(sys.executable, "import ccplane") else None
AS_OF_THIS = [] if USER_OF_THIS is None else ["--sandbox", USER_OF_THIS]
PYTHON, USER = interpreter()
AS = [] if USER is None else ["--sandbox", USER]
