"""AIMD, a starting point for your own algorithm: adds one segment to the window per round trip, and
multiplies the window by `back` after a loss.

    python -m ccplane run --alg ./aimd.py --vs cubic
"""

from dataclasses import dataclass
from typing import Any

import ccplane


@dataclass
class Window:
    """State of a flow, in bytes."""

    cwnd: int
    mss: int


class Aimd(ccplane.Algorithm[Window]):
    """Additive increase, multiplicative decrease."""

    name = "aimd"
    needs = ("cwnd", "recovery")
    parameters = {"back": 0.5}
    programs = {
        "fold": """
        # Runs in the datapath on every ACK. Reports once per round trip, and at the first loss of
        # an episode.
        (def (Report (volatile lost false)) (repairing false))
        (when (|| Flow.was_timeout (&& Flow.in_recovery (! repairing)))   # once per loss episode
            (:= Report.lost true)
            (:= repairing true)
            (:= Micros 0)
            (report))
        (when (> Micros Flow.srtt_us)                                     # a round trip has passed
            (:= repairing Flow.in_recovery)
            (:= Micros 0)
            (report))
        """
    }

    def __init__(self, back: float = 0.5) -> None:
        if not 0.1 <= back <= 0.95:
            raise ValueError(f"back is {back}: expected 0.1 to 0.95")
        self.back = back

    def open(self, info: ccplane.FlowInfo, flow: ccplane.Flow) -> Window:
        flow.program("fold")
        return Window(info.cwnd, info.mss)

    def on_report(self, state: Window, report: Any, flow: ccplane.Flow) -> None:
        if report.lost:
            state.cwnd = max(int(state.cwnd * self.back), 2 * state.mss)
            flow.ssthresh = state.cwnd  # target of the datapath's recovery
        else:
            state.cwnd += state.mss
        flow.cwnd = state.cwnd


if __name__ == "__main__":
    raise SystemExit(ccplane.main([Aimd]))
