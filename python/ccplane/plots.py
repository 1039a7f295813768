"""Plots of a run with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .tables import Table

# Number of averaging intervals over a flow's lifetime: arrivals are bursty, so goodput is averaged.
BINS = 100


def draw(contenders: Sequence[str], tables: Mapping[str, Table]) -> Figure:
    """Plots window and goodput of each flow, and queueing delay of the link, one column per
    contender."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("plots need matplotlib; run pip install 'ccplane[plot]'") from None

    class Shown(Figure):
        """Figure that a notebook shows without `%matplotlib inline`."""

        def _repr_png_(self) -> bytes:
            png = io.BytesIO()
            self.savefig(png, format="png")  # pyright: ignore[reportUnknownMemberType]
            return png.getvalue()

    figure = Shown(figsize=(1 + 4.5 * len(contenders), 7.5), layout="constrained")
    axes: Any = figure.subplots(3, len(contenders), squeeze=False, sharex=True, sharey="row")
    for row, what in enumerate(("window [kB]", "goodput [Mbit/s]", "queueing delay [ms]")):
        axes[row, 0].set_ylabel(what)
    for column, contender in enumerate(contenders):
        windows, goodput, delay = axes[:, column]
        windows.set_title(contender)
        delay.set_xlabel("time [s]")
        series = tables["series"].where(contender=contender)
        flows = np.unique(series["flow"])
        for flow in flows:
            of = series.where(flow=flow)
            time, received = of["time_s"], of["received_bytes"]
            windows.plot(time, of["cwnd_bytes"] / 1e3, linewidth=1, label=f"flow {flow}")
            if len(time) > 1:
                edges = np.linspace(float(time[0]), float(time[-1]), BINS + 1)
                mbit = np.diff(np.interp(edges, time, received)) * 8 / 1e6
                goodput.plot((edges[1:] + edges[:-1]) / 2, mbit / np.diff(edges), linewidth=1)
        if 1 < len(flows) <= 8:
            windows.legend(fontsize="small")
        bins = tables["bins"].where(contender=contender)
        delay.plot(bins["time_s"], bins["delay_ms"], linewidth=1, color="black")
    for axis in axes.flat:
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    return figure
