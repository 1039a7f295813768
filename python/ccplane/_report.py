"""Report class of a program: a tuple, so that a field costs an index and not a lookup."""

from __future__ import annotations

import collections
from typing import Any


def report_class(names: tuple[str, ...]) -> type:
    """Returns a tuple class with these fields, followed by `urgent` and `now_us`. `report["acked"]`
    is `report.acked`."""
    # Named tuples have field accessors written in C.
    named: Any = collections.namedtuple
    base = named("Report", [*(name.replace(".", "_") for name in names), "urgent", "now_us"], rename=True)

    item: Any = base.__getitem__

    def get(self: Any, key: Any) -> Any:
        return getattr(self, key) if isinstance(key, str) else item(self, key)

    return type("Report", (base,), {"__slots__": (), "__getitem__": get})
