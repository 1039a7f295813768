"""Algorithms that are Python files, as `--alg ./mine.py` names them."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import traceback
from typing import Any

from . import Algorithm, Error


@functools.cache
def load(path: str) -> type[Algorithm[Any]]:
    """The algorithm of a file, which has one. A file is read once: what changes it meanwhile changes no run that has begun."""
    full = os.path.abspath(path)
    if not os.path.exists(full):
        raise Error(f"{path}: there is no such file")
    name = "ccplane_file_" + "".join(c if c.isalnum() else "_" for c in full)
    spec = importlib.util.spec_from_file_location(name, full)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # The file may import modules of its own folder. The folder comes last: a `json.py` in it
    # replaces no module of Python's.
    folder = os.path.dirname(full)
    sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except Exception as why:
        said = "".join(traceback.format_exception(type(why), why, why.__traceback__)).strip()
        raise Error(f"{path} cannot be read as Python:\n{said}") from None
    finally:
        # The last one: the folder may also have been on the path before.
        if folder in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]
    # Classes that are written there, and policies that are made there.
    own = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Algorithm)]
    found = list({one for one in own if one.__module__ == name or one.__qualname__.startswith("policy.<locals>")})
    if len(found) != 1:
        names = ", ".join(sorted(one.__name__ for one in found)) or "none"
        raise Error(f"{path} is to have one class of ccplane.Algorithm, and has {names}; a file of several runs by itself, with ccplane.main([…]) at its end")
    return found[0]
