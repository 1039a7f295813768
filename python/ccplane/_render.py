"""Charts of an episode, for `render_mode` of the environments."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._ccplane import Error, step_seconds

MODES = ("human", "rgb_array")
FPS = 25.0
"""Frames per second of a video if the length of a step depends on the RTT: steps of 40 ms."""
SIZE = (640, 480)
"""Width and height of a frame, pixels."""
DPI = 100

Frame = NDArray[np.uint8]


def metadata(step: str, modes: Sequence[str] = MODES) -> dict[str, Any]:
    """Returns an environment's metadata for rendering. A video shows simulated time."""
    length_s = step_seconds(step)
    fps = FPS if length_s is None else 1 / length_s
    return {"render_modes": list(modes), "render_fps": fps}


def chart(mode: str | None, modes: Sequence[str] = MODES) -> Chart | None:
    """Returns a chart for a render mode, or `None` if the mode is `None`."""
    if mode is None:
        return None
    if mode not in modes:
        raise ValueError(f"unknown render_mode {mode!r}; use {', '.join(map(repr, modes))} or None")
    try:
        importlib.import_module("matplotlib.figure")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "render_mode needs matplotlib; run pip install 'ccplane[plot]'"
        ) from None
    return Chart(mode)


class Chart:
    """Goodput, RTT and window of an episode's flows over time, in a window or as pixels."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._flows: dict[int, list[tuple[float, float, float, float]]] = {}
        self._time = 0.0
        self._link = (0.0, 0.0)
        self._figure: Any = _window() if mode == "human" else _canvas()
        self._axes: Any = self._figure.subplots(3, 1, sharex=True)
        # Fixed, so that equal episodes have equal pixels.
        self._figure.subplots_adjust(left=0.12, right=0.97, bottom=0.1, top=0.97, hspace=0.12)

    def clear(self) -> None:
        """Starts an episode."""
        self._flows = {}
        self._time = 0.0

    def add(self, infos: Mapping[int, Mapping[str, float]]) -> None:
        """Adds the last step of each flow. A window shows it at once."""
        for flow, info in infos.items():
            # A flow that starts later begins where the others are.
            points = self._flows.setdefault(flow, [])
            time = (points[-1][0] if points else self._time) + info["elapsed"]
            # The RTT is 0 until the first ACK.
            points.append(
                (time, info["goodput"] * 8 / 1e6, info["rtt"] * 1e3 or np.nan, info["cwnd"] / 1e3)
            )
            self._link = (info["link_rate"] * 8 / 1e6, info["link_rtt"] * 1e3)
        self._time = max((points[-1][0] for points in self._flows.values()), default=0.0)
        if self._mode == "human":
            self.frame()

    def frame(self) -> Frame | None:
        """Draws the episode. Returns its pixels, or `None` if it is shown in a window."""
        if not self._flows:
            raise Error("there is no episode to render; call reset first")
        if self._figure is None or (self._mode == "human" and not self._is_open()):
            return None
        for row, label in enumerate(("goodput [Mbit/s]", "RTT [ms]", "window [kB]")):
            axis = self._axes[row]
            axis.clear()
            axis.set_ylabel(label)
            axis.grid(alpha=0.3)
            top = self._link[row] if row < len(self._link) else 0.0
            if top > 0:
                axis.axhline(top, color="grey", linewidth=1, linestyle="dashed", label="link")
            for flow, points in self._flows.items():
                values = [point[row + 1] for point in points]
                top = max(top, np.nanmax([0.0, *values]))
                axis.plot([point[0] for point in points], values, linewidth=1, label=f"flow {flow}")
            axis.set_ylim(0, 1.1 * top or 1)
            axis.set_xlim(0, max(self._time, 1.0))
        self._axes[0].legend(fontsize="small", loc="lower right")
        self._axes[2].set_xlabel("time [s]")
        canvas = self._figure.canvas
        canvas.draw()
        if self._mode == "human":
            canvas.flush_events()
            return None
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def _is_open(self) -> bool:
        """Returns False after the user has closed the window."""
        import matplotlib.pyplot

        return matplotlib.pyplot.fignum_exists(self._figure.number)

    def close(self) -> None:
        """Closes the window."""
        if self._mode == "human" and self._figure is not None:
            import matplotlib.pyplot

            matplotlib.pyplot.close(self._figure)
        self._figure = None


def _settings() -> dict[str, Any]:
    return {"figsize": (SIZE[0] / DPI, SIZE[1] / DPI), "dpi": DPI}


def _canvas() -> Any:
    """Returns a figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(**_settings())
    FigureCanvasAgg(figure)
    return figure


def _window() -> Any:
    """Returns a figure in a new window. Raises `Error` if this session cannot open one."""
    # `plt.figure` is partially typed.
    plt: Any = importlib.import_module("matplotlib.pyplot")
    try:
        figure: Any = plt.figure(**_settings())
    except ImportError as why:
        raise Error(
            f"render_mode='human' cannot open a window: {why}; use render_mode='rgb_array'"
        ) from None
    if getattr(figure.canvas, "required_interactive_framework", None) is None:
        plt.close(figure)
        hint = "install a toolkit such as PyQt6, or set MPLBACKEND"
        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            hint = "set DISPLAY or WAYLAND_DISPLAY"
        raise Error(
            "render_mode='human' opens a window, which matplotlib's backend "
            f"{plt.get_backend()!r} cannot do; use render_mode='rgb_array', or {hint}"
        )
    figure.canvas.manager.set_window_title("ccplane")
    figure.show()
    return figure
