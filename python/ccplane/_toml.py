"""TOML writer for the types that occur in scenarios; the standard library has only a reader."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def dumps(table: Mapping[str, Any]) -> str:
    """Returns the text of a table, with each value on one line."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of a scenario must be a string, not {key!r}")
    return _string(key)


def _string(text: str) -> str:
    # TOML refuses escaped surrogates, and a bare delete character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    # Keeps its type in the branches below.
    inside: Any = value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in inside.items())
        return "{" + pairs + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(inner) for inner in inside) + "]"
    raise TypeError(f"a scenario cannot contain a {type(value).__name__}: {value!r}")
