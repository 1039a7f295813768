"""Loader of algorithms in Python files (`--alg ./mine.py`)."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import traceback
import types
from typing import Any

from . import Algorithm, Error


class _Given(importlib.machinery.SourceFileLoader):
    """Loader for the content of a file that another process has read."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self.source = source
        lines = importlib.util.decode_source(source).splitlines(keepends=True)
        # Gives tracebacks their source lines.
        linecache.cache[path] = (len(source), None, lines, path)

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self.source, self.path)


@functools.cache
def load(path: str, given: tuple[os.PathLike[str], bytes] | None = None) -> type[Algorithm[Any]]:
    """Returns the algorithm class of a file, which must contain exactly one. A file is read once,
    so later changes affect no run that has started.

    `given`: absolute path and content of the file, for a process that may not be allowed to read
    it.
    """
    full = os.path.abspath(path) if given is None else os.fspath(given[0])
    if given is None and not os.path.exists(full):
        raise Error(f"{path}: there is no such file")
    name = "ccplane_file_" + "".join(c if c.isalnum() else "_" for c in full)
    try:
        loader = None if given is None else _Given(name, full, given[1])
    except (SyntaxError, UnicodeError) as why:
        raise Error(f"{path} is not valid Python:\n{why}") from None
    spec = importlib.util.spec_from_file_location(name, full, loader=loader)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # The file may import modules of its own folder. The folder comes last on the path, so that a
    # `json.py` in it does not shadow the standard library's.
    folder = os.path.dirname(full)
    sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except Exception as why:
        said = "".join(traceback.format_exception(type(why), why, why.__traceback__)).strip()
        if isinstance(why, ImportError) and not os.access(folder, os.R_OK | os.X_OK):
            said += f"\nThe user of this process cannot read the folder {folder}; make it readable or select another user with --sandbox."
        raise Error(f"cannot import {path}:\n{said}") from None
    finally:
        # Remove the last occurrence: the folder may have been on the path before.
        if folder in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]
    # Classes defined in the file, and policies made in it.
    values: list[Any] = list(vars(module).values())
    own: list[type[Algorithm[Any]]] = [value for value in values if isinstance(value, type) and issubclass(value, Algorithm)]
    found = list({one for one in own if one.__module__ == name or one.__qualname__.startswith("policy.<locals>")})
    if len(found) != 1:
        names = ", ".join(sorted(one.__name__ for one in found)) or "none"
        raise Error(f"{path} must have exactly one subclass of ccplane.Algorithm, but has {names}; to run several, call ccplane.main([…]) at the end of the file")
    return found[0]
