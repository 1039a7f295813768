"""Child processes that have the classes of this one."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from multiprocessing.process import BaseProcess


def fork(target: Callable[[], None], name: str) -> BaseProcess:
    """Starts a function in a copy of this process: classes cannot be sent to a new interpreter."""
    process = multiprocessing.get_context("fork").Process(target=target, name=name)
    with warnings.catch_warnings():
        # Python 3.12 warns if this process has threads, as a notebook always does. The child runs
        # the native module and the user's callbacks; glibc and Python reset their own locks.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        process.start()
    return process
