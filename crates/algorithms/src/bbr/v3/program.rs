//! The program of version 3. It measures loss rounds and ends precautionary probes.

use super::control::{DEFAULT_CWND_GAIN, PROBE_BW_DOWN_PACING_GAIN, STARTUP_PACING_GAIN};
use crate::bbr::paced;
use crate::bbr::program::{self, Version};
use crate::bbr::report::ReportEvents;

/// Returns the program. A loss round lasts from the first loss until data sent after it is
/// acknowledged (section 5.5.10.3, UpdateLatestDeliverySignals). `marks`: the datapath counts ECN
/// marks.
pub(super) fn program_source(marks: bool) -> String {
    let stopped = ReportEvents::PROBE_STOPPED;
    let (marked_bytes, marked_packets) = if marks {
        ("Ack.ecn_bytes", "Ack.ecn_packets")
    } else {
        ("0", "0")
    };
    let down = paced(PROBE_BW_DOWN_PACING_GAIN);
    program::program_source(&Version {
        gains: (paced(STARTUP_PACING_GAIN), DEFAULT_CWND_GAIN),
        report: "
        (loss_rounds 0) (volatile latest 0) (volatile volume 0) (marked 0)",
        control: " (probing 1)",
        sample: format!(
            "
    (:= Report.latest (max Report.latest bw))
    (if (< Flow.rtt_sample_us +infinity)
        (:= Report.volume (max Report.volume (/ (* bw Flow.rtt_sample_us) 1000000))))
    (:= Report.marked (+ Report.marked {marked_bytes}))"
        ),
        clauses: format!(
            "
# A loss round starts with the first loss and ends when the data in flight at that time is
# acknowledged or lost.
(when (&& (> loss_end 0) (> (+ Report.delivered Report.lost) loss_end))
    (:= loss_end 0)
    (:= Report.loss_rounds (+ Report.loss_rounds 1))
    (report)
    (fallthrough))
(when (> (+ Ack.lost_pkts_sample {marked_packets}) 0)
    (if (== loss_end 0) (:= loss_end (+ Report.delivered Report.lost Flow.bytes_in_flight)))
    (if (> probing 0) (report))
    (fallthrough))
# A precautionary probe has reached the data in flight at which the last one lost too much.
(when (&& (== probing 2) (>= Report.flight cap))
    (:= probing 1)
    (:= gain {down})
    (:= Report.events (+ Report.events {stopped}))
    (report)
    (fallthrough))"
        ),
        drained: "(max bdp budget)",
        target: "(+ (max (+ (/ (* bdp cwnd_gain) 10000) bonus) budget) \
            (if (> cwnd_gain 20000) (* 2 Flow.mss) 0))",
        cwnd_after_loss: "Cwnd",
        repair: "",
        conserve: "",
    })
}
