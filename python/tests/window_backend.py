"""Matplotlib backend with windows that exist only in memory, for tests without a display."""

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

SHOWN: list[object] = []
FLUSHED: list[object] = []


class FigureManager(FigureManagerBase):
    """Window that records that it is shown."""

    def show(self) -> None:
        SHOWN.append(self)


class FigureCanvas(FigureCanvasAgg):
    """Canvas of a window."""

    # Matplotlib's name of a session without a display.
    required_interactive_framework = "headless"
    manager_class = FigureManager

    def flush_events(self) -> None:
        FLUSHED.append(self)
