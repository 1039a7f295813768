"""The class of a program's reports: a tuple, so that a field costs an index and not a search."""

from __future__ import annotations

import collections
from typing import Any


def report_class(names: tuple[str, ...]) -> type:
    """A tuple with a field for each of these names, and `urgent` and `now_us` behind them. `report["acked"]` is `report.acked`."""
    # Its fields are read by code in C.
    named: Any = collections.namedtuple
    base = named("Report", [*(name.replace(".", "_") for name in names), "urgent", "now_us"], rename=True)

    def get(self: Any, key: Any) -> Any:
        return getattr(self, key) if isinstance(key, str) else tuple.__getitem__(self, key)

    return type("Report", (base,), {"__slots__": (), "__getitem__": get})
