//! DCTCP, RFC 8257.
//!
//! All of it runs in the datapath. At an RTT of 20 µs an action of the agent would arrive two
//! windows late, and α changes once per window. The agent receives α and the marks in each report
//! and controls only Reno's growth.

use std::str::FromStr;

use ccplane_agent::{DynAlgorithm, FlowInfo, box_algorithm};

use crate::window::{AckedRound, LawProgram, WindowLaw};
use crate::{
    AlgorithmDoc, BadParameter, LossBasedAlgorithm, ParameterDoc, Parameters, SlowStartExit,
    WindowOptions,
};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "dctcp",
    doc: "DCTCP (RFC 8257): reduces the window in proportion to ECN-marked packets; for \
        datacentres only",
    parameters: &[
        WindowOptions::REPORT,
        WindowOptions::SLOW_START,
        ParameterDoc {
            name: "gain",
            default: "1/16",
            values: "1/N, N from 2 to 1024",
            doc: "g, the weight of a window's fraction of marks in α (RFC 8257, 4.2): a larger g \
                reacts faster and oscillates more",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let gain = parameters.read("gain", Gain(INVERSE_GAIN_WINDOWS))?;
    Ok(box_algorithm(LossBasedAlgorithm::new(
        Dctcp { gain },
        WindowOptions::read(parameters, Default::default())?,
        SlowStartExit::Off,
    )))
}

/// 1/g, windows (RFC 8257, 4.2: 1/16 is in use; 1 would not smooth). A smaller value follows the
/// marks of each window and halves the window at a burst. A larger one takes more windows to
/// converge than a short flow has.
const INVERSE_GAIN_WINDOWS: u64 = 16;

/// α = 1 in the program's fixed-point format. With Linux' 10 bits, α stops decaying below 1/64.
/// With 20 bits it stops below 1/65536, less than one packet of any window here.
const ALPHA_UNIT: u64 = 1 << 20;

/// 1/g.
#[derive(Clone, Copy, Debug)]
struct Gain(u64);

impl FromStr for Gain {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Gain, &'static str> {
        let windows = text.strip_prefix("1/").and_then(|n| n.trim().parse().ok());
        windows
            .filter(|n| (2..=1024).contains(n))
            .map(Gain)
            .ok_or("expected 1/N with N from 2 to 1024, such as 1/16")
    }
}

/// Reno's growth (RFC 8257, 3.4) and reaction to losses (3.5). A reduction for marks multiplies the
/// window by 1 − α/2 (3.3).
struct Dctcp {
    gain: Gain,
}

impl WindowLaw for Dctcp {
    type State = ();

    fn name(&self) -> &'static str {
        "dctcp"
    }

    fn beta(&self) -> &'static str {
        "0.5"
    }

    /// RFC 8257, 3.3. An observation window ends when the data in flight at its start is
    /// acknowledged (steps 4 and 7). M is the fraction of its packets that were marked (step 5,
    /// where the RFC counts bytes; packets as in Linux). α ← α(1−g) + gM (step 6), clamped (4.2),
    /// and can reach 0. It starts at 1, so the first mark halves the window. A reduction removes
    /// α/2 of the window in whole segments (step 9), none if that is less than one, as in Linux. A
    /// loss halves the window, as in conventional TCP (3.5).
    fn additions(&self) -> LawProgram {
        let Gain(gain) = self.gain;
        LawProgram {
            report: format!(" (alpha {ALPHA_UNIT}) (volatile marks 0)"),
            declarations: " (window_size 0) (window_acked 0) (delivered 0) (marked 0)".to_owned(),
            clauses: format!(
                "
(when true
    (:= Report.marks (+ Report.marks Ack.ecn_packets))
    (:= marked (+ marked Ack.ecn_packets))
    (:= delivered (+ delivered Ack.packets_acked Ack.packets_misordered))
    (:= window_acked (+ window_acked Ack.bytes_acked))
    (fallthrough))
(when (&& (>= window_acked window_size) (> delivered 0))
    (:= Report.alpha (diff Report.alpha (max (/ Report.alpha {gain}) (min Report.alpha 1))))
    (:= Report.alpha (min {ALPHA_UNIT} (+ Report.alpha \
        (/ (* (min marked delivered) {ALPHA_UNIT}) (* delivered {gain})))))
    (:= window_size Flow.bytes_in_flight)
    (:= window_acked 0)
    (:= delivered 0)
    (:= marked 0)
    (fallthrough))"
            ),
            reduced_window: format!(
                "(diff Report.before (* MSS (/ (* Report.before \
                 (if (|| Flow.was_timeout (> Ack.lost_pkts_sample 0)) {ALPHA_UNIT} Report.alpha)) \
                 (* MSS {}))))",
                2 * ALPHA_UNIT
            ),
            ecn: true,
        }
    }

    fn open(&self, _info: &FlowInfo) {}

    fn growth(&self, (): &mut (), _round: &AckedRound) -> f64 {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use ccplane_datapath::{Capabilities, Signals};
    use ccplane_units::Duration;

    use crate::script::{Script, everything};

    const RTT: Duration = Duration::from_millis(20);

    /// Returns a flow of 100 segments in congestion avoidance after `windows` windows, each
    /// acknowledged by one ACK with `marked` of its 100 packets CE-marked.
    fn after(windows: usize, marked: u64) -> Script {
        let mut script = Script::new("dctcp", "");
        (script.transport.cwnd, script.transport.ssthresh) = (100_000, 50_000);
        for _ in 0..windows {
            let _ = script.ack(RTT, |s| window(s, marked));
        }
        script.transport.cwnd = 100_000;
        script
    }

    fn window(s: &mut Signals, marked: u64) {
        (s.bytes_acked, s.packets_acked, s.bytes_in_flight) = (100_000, 100, 100_000);
        (s.ecn_packets, s.ecn_bytes, s.cwnd_limited) = (marked, marked * 1_000, 0);
    }

    /// Acts as a transport at the start of a reduction for a mark: halves ssthresh, then runs the
    /// program.
    fn reduce(script: &mut Script, change: impl FnOnce(&mut Signals)) -> f64 {
        let before = script.transport.cwnd;
        script.transport.ssthresh = before / 2;
        let _ = script.ack(Duration::ZERO, |s| {
            (
                s.in_recovery,
                s.bytes_acked,
                s.packets_acked,
                s.cwnd_limited,
            ) = (1, 1_000, 1, 0);
            change(s);
        });
        script.transport.ssthresh as f64 / before as f64
    }

    /// α = (15/16)^n after n windows without marks; the window is multiplied by 1 − α/2.
    #[test]
    fn alpha_decays_by_a_sixteenth_a_window() {
        for (windows, alpha) in [(1, 0.9375), (16, 0.356_07), (100, 0.001_57)] {
            let kept = reduce(&mut after(windows, 0), |_| {});
            // The result is rounded to whole segments of 100.
            assert!(
                (kept - (1.0 - alpha / 2.0)).abs() < 1e-2,
                "{windows}: {kept}"
            );
        }
    }

    /// α = F + (1 − F)(15/16)^n if a fraction F of each window is marked.
    #[test]
    fn alpha_moves_to_the_fraction_of_marks() {
        for (windows, fraction) in [(1, 0.2), (10, 0.5), (200, 0.3)] {
            let kept = reduce(&mut after(windows, (fraction * 100.0) as u64), |_| {});
            let alpha = fraction + (1.0 - fraction) * libm::pow(15.0 / 16.0, windows as f64);
            assert!(
                (kept - (1.0 - alpha / 2.0)).abs() < 1e-2,
                "{windows}: {kept}, α = {alpha}"
            );
        }
    }

    #[test]
    fn a_first_mark_halves() {
        assert_eq!(reduce(&mut after(0, 0), |s| s.ecn_packets = 1), 0.5);
    }

    #[test]
    fn a_loss_halves_whatever_alpha_is() {
        assert_eq!(reduce(&mut after(100, 0), |s| s.lost_pkts_sample = 1), 0.5);
    }

    /// The transport ends a reduction and begins the next in one call, so the program never runs
    /// outside of recovery.
    #[test]
    fn marks_of_the_next_window_reduce_again() {
        let mut script = after(16, 0);
        let first = reduce(&mut script, |_| {});
        script.transport.cwnd = script.transport.ssthresh;
        let still = script.transport.ssthresh;
        let _ = script.ack(Duration::ZERO, |s| {
            (s.in_recovery, s.bytes_acked, s.packets_acked) = (1, 1_000, 1)
        });
        assert_eq!(script.transport.ssthresh, still, "one reduction a window");
        let second = reduce(&mut script, |_| {});
        assert!(
            (first - second).abs() < 1e-2,
            "{first} and then {second}, not half"
        );
        assert_eq!(script.faults(), 0);
    }

    #[test]
    fn before_a_first_reduction_there_is_no_threshold_to_overflow() {
        let mut script = Script::new("dctcp", "");
        for _ in 0..5 {
            script.round(RTT);
        }
        assert!(
            script.window() > 100 && script.faults() == 0,
            "{} faults",
            script.faults()
        );
    }

    #[test]
    fn a_datapath_without_ecn_counts_is_refused() {
        let without = Capabilities(everything().0 & !Capabilities::ECN.0);
        assert!(Script::on(without, "dctcp", "").is_none());
    }
}
