"""Results as HTML, for notebooks."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tables import Table

# Metrics that a notebook shows, with their headings; the others are in `Result.metrics`.
COLUMNS = {
    "goodput_mbit": "goodput [Mbit/s]",
    "utilisation": "utilisation [%]",
    "delay_mean_ms": "mean delay [ms]",
    "delay_p95_ms": "95 % delay [ms]",
    "retransmitted_segments": "retransmitted segments",
    "queue_drops": "queue drops",
    "jain": "Jain index",
}


def result(summary: Mapping[str, Any], metrics: Table) -> str:
    """Returns a table with one row per contender. It has no style of its own, so that it follows
    the notebook's light or dark theme."""
    names = [
        name
        for name in COLUMNS
        if name in metrics and any(math.isfinite(value) for value in metrics[name])
    ]
    heads = "".join(f"<th>{html.escape(COLUMNS[name])}</th>" for name in names)
    rows = ""
    for row in range(metrics.rows):
        cells = "".join(f"<td>{_cell(metrics, name, row)}</td>" for name in names)
        rows += f"<tr><th>{html.escape(str(metrics['contender'][row]))}</th>{cells}</tr>"
    below = "".join(f"<p>{html.escape(text)}</p>" for text in _remarks(summary))
    title = html.escape(summary.get("title") or "ccplane")
    head = f"<caption>{title}</caption><thead><tr><th></th>{heads}</tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>{below}"


def _cell(metrics: Table, name: str, row: int) -> str:
    value = float(metrics[name][row])
    if not math.isfinite(value):
        return "–"
    scale = 100 if name == "utilisation" else 1
    low = float(metrics[f"{name}_low"][row]) if f"{name}_low" in metrics else value
    high = float(metrics[f"{name}_high"][row]) if f"{name}_high" in metrics else value
    text = _number(value * scale)
    return text if low == high else f"{text} [{_number(low * scale)}, {_number(high * scale)}]"


def _number(value: float) -> str:
    """Returns a number with three significant digits, or all digits before the point."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return (
        f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
        if value != int(value)
        else f"{value:,.0f}"
    )


def _remarks(summary: Mapping[str, Any]) -> list[str]:
    """Returns the run's note, and for each contender its failures and the datapath's complaints."""
    found: list[str] = [summary["note"]] if summary.get("note") else []
    for contender in summary["contenders"]:
        audit: Mapping[str, list[str]] = contender.get("audit") or {}
        complaints = [*audit.get("own", ()), *audit.get("complaints", ())]
        found += [f"{contender['label']}: {'; '.join(complaints)}"] if complaints else []
    return found
