//! Swift: G. Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the
//! Datacenter", SIGCOMM 2020.
//!
//! The program is the paper's algorithm 1: on each ACK the window grows while the RTT is below the
//! target, and it shrinks by the relative excess at most once per RTT. The agent sets the target,
//! which depends on the window (section 3.5) and needs a square root. An action that is a few RTTs
//! late is computed from a window that differs little. Windows below one packet are paced.
//!
//! The paper has no slow start. Here the window doubles each RTT until the target delay is first
//! reached, because one packet per RTT takes minutes to fill a path of 100 ms at 1 Gbit/s. A window
//! W sends 2 W in a round, whose last packets wait for W. The first packet that waits for a quarter
//! of the BDP is acknowledged when the window is 1 to 1.5 BDP, so the queue hardly exceeds the
//! target.
//!
//! The paper splits the RTT into fabric and endpoint delay with timestamps from both NICs and keeps
//! a window for each (section 3.2). No datapath here has these timestamps. The whole RTT is
//! compared with the fabric target, so a slow receiver looks like a queue.

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::Duration;

use crate::base_rtt::{BaseRtt, FULL_SIZED_SAMPLE_CONDITION};
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "swift",
    doc: "Swift (SIGCOMM 2020): keeps the RTT at a target that grows as the window shrinks; paces \
        windows below one packet",
    parameters: &[
        ParameterDoc {
            name: "base",
            default: "auto",
            values: "auto | a duration such as 25us",
            doc: "base target, including propagation (section 3.5); auto: 1.25 times the minimum \
                RTT of full-sized packets",
        },
        ParameterDoc {
            name: "hops",
            default: "0",
            values: "0 to 64",
            doc: "switches on the path (topology scaling), each of which adds `hop` to the target",
        },
        ParameterDoc {
            name: "hop",
            default: "3us",
            values: "a duration",
            doc: "addition to the target per switch (the paper's ħ)",
        },
        ParameterDoc {
            name: "fs_range",
            default: "auto",
            values: "auto | a duration such as 100us",
            doc: "maximum that small windows add to the target (flow scaling); auto: 5 times the \
                base target",
        },
        ParameterDoc {
            name: "fs_min",
            default: "0.1",
            values: "packets, above 0 and below fs_max",
            doc: "window at or below which all of fs_range is added",
        },
        ParameterDoc {
            name: "fs_max",
            default: "100",
            values: "a number of packets",
            doc: "window from which nothing is added",
        },
        ParameterDoc {
            name: "ai",
            default: "1",
            values: "packets per RTT, above 0 to 64",
            doc: "additive increase",
        },
        ParameterDoc {
            name: "beta",
            default: "0.8",
            values: "above 0 to 1",
            doc: "multiplicative decrease: fraction of the excess delay by which the window falls",
        },
        ParameterDoc {
            name: "max_mdf",
            default: "0.5",
            values: "above 0 and below 1",
            doc: "maximum decrease of the window; also the decrease on loss",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let fs_max = parameters.in_range("fs_max", FS_MAX_CWND, 0.0, 1e6)?;
    let hops: u32 = parameters.read("hops", 0)?;
    let per_hop: Duration = parameters.read("hop", HOP_SCALING)?;
    Ok(box_algorithm(Swift {
        target: TargetDelay {
            base: parameters.micros_or_auto("base")?,
            hops: per_hop.as_secs_f64() * 1e6 * f64::from(hops.min(64)),
            range: parameters.micros_or_auto("fs_range")?,
            fs_min: parameters.in_range("fs_min", FS_MIN_CWND, 0.0, fs_max * 0.99)?,
            fs_max,
        },
        ai: parameters.in_range("ai", AI, 0.0, 64.0)?,
        beta: parameters.in_range("beta", BETA, 0.0, 1.0)?,
        max_mdf: parameters.in_range("max_mdf", MAX_MDF, 0.0, 0.99)?,
    }))
}

// The paper names most constants without giving values. These are the values of the packet
// simulator htsim (facts/dx.md 6), whose authors call them guesses. `hops` starts from 0 because
// `auto` measures the path including its switches.

/// Additive increase, packets per RTT. A larger one takes free capacity sooner and overshoots the
/// target by more.
const AI: f64 = 1.0;
/// β. With a smaller one, a queue takes more RTTs to drain.
const BETA: f64 = 0.8;
/// Upper bound of one decrease. A larger bound lets a single late sample empty the path.
const MAX_MDF: f64 = 0.5;
/// ħ: htsim's base target of 20 µs divided by 6.55. A smaller ħ starves flows that cross more
/// switches. A larger one allows them longer queues.
const HOP_SCALING: Duration = Duration::from_micros(3);
/// `fs_min_cwnd` and `fs_max_cwnd`, packets. A wider span spreads the same range over more window
/// sizes.
const FS_MIN_CWND: f64 = 0.1;
const FS_MAX_CWND: f64 = 100.0;
/// `fs_range` relative to the base target. With less, the windows of many flows oscillate around
/// the target (section 3.5).
const FS_RANGE: f64 = 5.0;
/// Base target of `auto` relative to the minimum RTT: a quarter of an RTT of queueing. With less,
/// noise keeps the link from filling. Not in the paper.
const AUTO_TARGET_RTT_RATIO: f64 = 1.25;
/// Consecutive timeouts after which the window drops to the minimum (RETX_RESET_THRESHOLD, htsim's
/// value). With fewer, a burst of losses resets it.
const RETX_RESET_THRESHOLD: u64 = 5;
/// Consecutive samples at or above the target that end slow start. With fewer, noise ends it. With
/// more, the window grows for longer. Not in the paper.
const SLOW_START_EXIT_SAMPLES: u64 = 4;
/// Minimum window in hundredths of a packet: one packet per 100 RTTs. A larger minimum fills the
/// queue in an incast of as many flows as the path holds packets. A smaller one leaves a flow
/// without feedback for too long. Not in the paper.
const WINDOW_PACKET_PERCENT_MIN: u64 = 1;
/// Target before the first report, µs: larger than any RTT, so that a flow starts by growing.
const TARGET_UNKNOWN_US: u64 = INFINITY;
/// Unit of the program's window: 1/1024 byte, so that growth by less than a byte per ACK
/// accumulates. The window is at most 1 GiB.
const WINDOW_UNITS_PER_BYTE: f64 = 1024.0;
const WINDOW_UNITS_MAX: u64 = 1 << 40;

/// Target delay (section 3.5). Times in µs, windows in packets.
#[derive(Clone, Copy, Debug)]
struct TargetDelay {
    base: Option<f64>,
    hops: f64,
    range: Option<f64>,
    fs_min: f64,
    fs_max: f64,
}

impl TargetDelay {
    /// Section 3.5: base + hops·ħ + max(0, min(α/√cwnd + β, fs_range)), with α = fs_range /
    /// (1/√fs_min − 1/√fs_max) and β = −α/√fs_max.
    fn delay(&self, window: f64, least_rtt: f64) -> f64 {
        let base = self.base.unwrap_or(least_rtt * AUTO_TARGET_RTT_RATIO);
        let range = self.range.unwrap_or(base * FS_RANGE);
        let root = |packets: f64| 1.0 / libm::sqrt(packets.max(1e-6));
        let alpha = range / (root(self.fs_min) - root(self.fs_max));
        let scaling = alpha * (root(window) - root(self.fs_max));
        base + self.hops + scaling.clamp(0.0, range)
    }
}

struct Swift {
    target: TargetDelay,
    ai: f64,
    beta: f64,
    max_mdf: f64,
}

/// State of a flow.
struct SwiftFlow {
    mss: f64,
    base_rtt: BaseRtt,
    /// Target delay installed in the program, µs.
    installed_target: u64,
}

impl Algorithm for Swift {
    type Flow = SwiftFlow;

    fn name(&self) -> &str {
        "swift"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("swift", self.program())
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
            .union(Capabilities::PACING)
            .union(Capabilities::RTT)
            .union(Capabilities::RECOVERY)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> SwiftFlow {
        // A flow that is taken over skips slow start.
        control.set_program("swift", &[("slow", u64::from(!info.live))]);
        SwiftFlow {
            mss: info.mss.get().max(1) as f64,
            base_rtt: BaseRtt::new(),
            installed_target: TARGET_UNKNOWN_US,
        }
    }

    fn on_report(&mut self, flow: &mut SwiftFlow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[
            _acked,
            _lost,
            _timeouts,
            _decreases,
            _rtt,
            full_rtt,
            min_rtt,
            window,
        ] = report.fields()
        else {
            return;
        };
        let Some(base) = flow.base_rtt.update(full_rtt, min_rtt) else {
            return;
        };
        let target = self.target.delay(
            window as f64 / WINDOW_UNITS_PER_BYTE / flow.mss,
            base as f64,
        );
        // The cast saturates. The target is at least 1 µs.
        let target = (libm::rint(target) as u64).clamp(1, TARGET_UNKNOWN_US);
        if target != flow.installed_target {
            flow.installed_target = target;
            control.set_variable("target", target);
        }
    }
}

impl Swift {
    /// Returns the program: algorithm 1. `window` is in 1/1024 byte, and factors are in units of
    /// 1/1024. It reports once per RTT, at most once per millisecond, and whenever the window has
    /// moved by a quarter, which changes the flow scaling by an eighth.
    ///
    /// Cwnd is at least two packets, so that receivers that delay ACKs respond. Smaller windows are
    /// enforced by the pacing rate. 1000gbit disables pacing.
    fn program(&self) -> String {
        let parts = |share: f64| libm::rint(share * 1024.0) as u64;
        let (ai, beta, least_kept) = (
            parts(self.ai).max(1),
            parts(self.beta),
            1024 - parts(self.max_mdf),
        );
        format!(
            "(def
    (Report
        (volatile acked 0) (volatile lost 0) (volatile timeouts 0) (volatile decreases 0)
        (volatile rtt +infinity) (volatile full_rtt +infinity) (min_rtt +infinity) (window 0))
    (target {TARGET_UNKNOWN_US}) (slow true) (late 0) (last_cut 0) (retries 0) (told 0)
    (rtt 0) (sampled false) (above false) (lossy false) (due false) (kept 0))
(when (== Report.window 0)
    (:= Report.window (* Cwnd 1024))
    (:= told Report.window)
    (fallthrough))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked Ack.bytes_misordered))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.min_rtt Flow.min_rtt_us)
    # A timer run reads the last ACK's sample again.
    (:= sampled (&& (< Flow.rtt_sample_us +infinity) \
        (> (+ Ack.packets_acked Ack.packets_misordered) 0)))
    (:= rtt (if sampled Flow.rtt_sample_us Flow.srtt_us))
    (if sampled (:= Report.rtt (min Report.rtt rtt)))
    (if {FULL_SIZED_SAMPLE_CONDITION}
        (:= Report.full_rtt (min Report.full_rtt rtt)))
    (:= lossy (|| Flow.was_timeout (> Ack.lost_pkts_sample 0)))
    (:= late (if sampled (if (>= rtt target) (+ late 1) 0)))
    (:= slow (&& slow (! lossy) (< late {SLOW_START_EXIT_SAMPLES})))
    (:= above (&& sampled (>= rtt target) (! slow)))
    (:= due (|| (== last_cut 0) (>= (diff Ack.now last_cut) rtt)))
    (:= retries (if (> Ack.packets_acked 0) 0))
    (fallthrough))
(when Flow.was_timeout
    (:= retries (+ retries 1))
    (:= Report.timeouts (+ Report.timeouts 1))
    (fallthrough))
(when (&& sampled (! above) (! lossy) (|| Flow.cwnd_limited (< Report.window (* 2048 Flow.mss))))
    (:= Report.window (+ Report.window (if (&& slow (< target {TARGET_UNKNOWN_US}))
        (* 1024 Flow.mss (+ Ack.packets_acked Ack.packets_misordered))
        (/ (* 1024 {ai} Flow.mss Flow.mss (+ Ack.packets_acked Ack.packets_misordered))
           (max Report.window (* 1024 Flow.mss))))))
    (fallthrough))
(when (&& due (|| above lossy))
    (:= kept (max {least_kept} (diff 1024 (/ (* {beta} (diff rtt target)) (max rtt 1)))))
    (:= kept (if lossy {least_kept}))
    (:= Report.window (/ (* Report.window kept) 1024))
    (:= Report.decreases (+ Report.decreases 1))
    (:= last_cut (max Ack.now 1))
    (fallthrough))
(when (>= retries {RETX_RESET_THRESHOLD})
    (:= Report.window 0)
    (fallthrough))
(when true
    (:= Report.window (min {WINDOW_UNITS_MAX} (max Report.window (/ (* {} Flow.mss) 100))))
    (:= Cwnd (max (/ Report.window 1024) (* 2 Flow.mss)))
    (:= Ssthresh Cwnd)
    (:= Rate (if (&& (< Report.window (* 2048 Flow.mss)) (< Flow.srtt_us +infinity))
        (max 1 (/ (* Report.window 1000000) (* 1024 Flow.srtt_us)))
        (if (> Rate 0) 1000gbit 0)))
    (if lossy (report))
    (fallthrough))
(when (|| (> Micros (max Flow.srtt_us 1000)) (> Report.window (* told 5/4)) \
    (< Report.window (* told 3/4)))
    (:= told Report.window)
    (:= Micros 0)
    (report))
",
            WINDOW_PACKET_PERCENT_MIN * 1024
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{MSS, Script, everything};

    /// A target of 30 ms at any window, over a path of 20 ms.
    const CONSTANT_TARGET_PARAMETERS: &str = "base=30ms,fs_range=1us";
    const RTT: Duration = Duration::from_millis(20);

    fn rtt(script: &mut Script, after: Duration, millis: u64) {
        let _ = script.ack(after, |s| {
            (s.rtt_sample_us, s.srtt_us) = (millis * 1000, millis * 1000);
        });
    }

    /// Returns a flow in slow start with its target installed: the first report has been acted on.
    fn starting() -> Script {
        let mut script = Script::new("swift", CONSTANT_TARGET_PARAMETERS);
        script.round(RTT);
        script.round(RTT);
        script
    }

    /// Returns a flow after slow start whose last decrease was 300 ms ago.
    fn settled() -> Script {
        let mut script = starting();
        for _ in 0..SLOW_START_EXIT_SAMPLES {
            rtt(&mut script, Duration::from_millis(1), 30);
        }
        for _ in 0..15 {
            let _ = script.ack(RTT, |s| s.cwnd_limited = 0);
        }
        script
    }

    #[test]
    fn the_window_doubles_until_samples_reach_the_target() {
        let mut script = starting();
        for _ in 0..4 {
            let before = script.window();
            script.round(RTT);
            assert_eq!(script.window(), 2 * before);
        }
        // Fewer consecutive late samples are treated as noise.
        for _ in 1..SLOW_START_EXIT_SAMPLES {
            rtt(&mut script, Duration::from_millis(1), 40);
        }
        let before = script.window();
        script.round(RTT);
        assert_eq!(script.window(), 2 * before);
        for _ in 0..SLOW_START_EXIT_SAMPLES {
            rtt(&mut script, Duration::from_millis(1), 30);
        }
        let peak = script.transport.cwnd;
        script.round(RTT);
        let growth = script.transport.cwnd - peak;
        assert!(
            (MSS * 9 / 10..=MSS).contains(&growth),
            "{growth} bytes in an RTT"
        );
    }

    /// 20 µs for the handshake and 140 µs for full packets: the target follows the latter, and a
    /// small packet does not change it.
    #[test]
    fn the_base_delay_is_that_of_full_packets() {
        let mut script = Script::new("swift", "fs_range=1us");
        let mut target = 0;
        let mut last = |bytes: u64, us: u64| {
            for _ in 0..3 {
                let _ = script.ack(Duration::from_millis(2), |s| {
                    (s.bytes_acked, s.rtt_sample_us, s.srtt_us, s.min_rtt_us) = (bytes, us, us, 20);
                });
                target = script.orders.values().last().copied().unwrap_or(target);
            }
            target
        };
        assert_eq!(
            last(100, 22),
            25,
            "1.25 handshakes while all packets are small"
        );
        assert_eq!(last(MSS, 140), 175);
        assert_eq!(last(100, 22), 175);
    }

    #[test]
    fn below_the_target_the_window_grows_by_a_packet_an_rtt() {
        let mut script = settled();
        let before = script.transport.cwnd;
        for _ in 0..5 {
            script.round(RTT);
        }
        let grown = script.transport.cwnd - before;
        assert!(
            (4 * MSS..=5 * MSS).contains(&grown),
            "{grown} bytes in 5 RTTs"
        );
        assert_eq!(script.faults(), 0);
    }

    /// 1 − 0.8 · (40 − 30)/40 = 0.8. At 300 ms the formula gives 0.28, but max_mdf limits the
    /// decrease to half.
    #[test]
    fn above_it_the_window_falls_by_the_excess_once_an_rtt() {
        for (millis, kept) in [(40, 0.8), (300, 0.5)] {
            let mut script = settled();
            let before = script.transport.cwnd as f64;
            rtt(&mut script, Duration::from_millis(1), millis);
            let after = script.transport.cwnd;
            assert!(
                (after as f64 / before - kept).abs() < 0.01,
                "{before} -> {after}"
            );
            rtt(&mut script, Duration::from_millis(millis / 2), millis);
            assert_eq!(script.transport.cwnd, after, "not again within an RTT");
            rtt(&mut script, Duration::from_millis(millis), millis);
            assert!(script.transport.cwnd < after, "again after one");
        }
    }

    #[test]
    fn a_loss_takes_max_mdf_and_five_timeouts_nearly_all() {
        let mut script = settled();
        let before = script.transport.cwnd as f64;
        let _ = script.ack(Duration::from_millis(1), |s| s.lost_pkts_sample = 1);
        assert!((script.transport.cwnd as f64 / before - 0.5).abs() < 0.01);
        for _ in 0..5 {
            let _ = script.ack(Duration::from_millis(200), |s| {
                (
                    s.was_timeout,
                    s.packets_acked,
                    s.bytes_acked,
                    s.rtt_sample_us,
                ) = (1, 0, 0, 0);
            });
        }
        assert_eq!(script.window(), 2, "two packets are in flight at least");
        // A hundredth of a packet of 1000 bytes per 20 ms.
        assert_eq!(script.transport.rate, 10 * 1_000_000 / 20_000);
    }

    #[test]
    fn below_two_packets_the_window_is_a_rate() {
        let mut script = settled();
        for _ in 0..5 {
            rtt(&mut script, Duration::from_millis(400), 300);
        }
        // 24 packets halved five times: 0.75 packets per 300 ms.
        let rate = script.transport.rate;
        assert_eq!(script.window(), 2);
        assert!((2_000..=2_700).contains(&rate), "{rate}");
        for _ in 0..60 {
            script.round(RTT);
        }
        assert!(
            script.window() > 10 && script.transport.rate > 1_000_000_000,
            "and no more when it has grown"
        );
    }

    #[test]
    fn a_datapath_without_pacing_is_refused() {
        let without = Capabilities(everything().0 & !Capabilities::PACING.0);
        assert!(Script::on(without, "swift", "").is_none());
    }

    fn target(base: Option<f64>, range: Option<f64>) -> TargetDelay {
        TargetDelay {
            base,
            hops: 0.0,
            range,
            fs_min: FS_MIN_CWND,
            fs_max: FS_MAX_CWND,
        }
    }

    /// By hand: 1/√0.1 − 1/√100 = 3.1623 − 0.1 = 3.0623, so α = 100/3.0623 = 32.656 and β = −3.2656
    /// for a range of 100 µs.
    #[test]
    fn the_target_is_the_papers_curve() {
        let target = target(Some(25.0), Some(100.0));
        let at = |window| target.delay(window, 20.0);
        assert!(
            (at(1.0) - (25.0 + 32.656 - 3.2656)).abs() < 1e-3,
            "{}",
            at(1.0)
        );
        assert!(
            (at(16.0) - (25.0 + 8.164 - 3.2656)).abs() < 1e-3,
            "{}",
            at(16.0)
        );
        assert_eq!(at(100.0), 25.0, "from fs_max on there is nothing more");
        assert_eq!(at(5000.0), 25.0);
        assert!((at(0.1) - 125.0).abs() < 1e-9, "all of the range at fs_min");
        assert_eq!(at(0.001), 125.0);
        assert_eq!(at(0.0), 125.0, "no window is no division by zero");
    }

    #[test]
    fn switches_and_the_measured_path_raise_the_target() {
        let hops = TargetDelay {
            hops: 9.0,
            ..target(Some(25.0), Some(100.0))
        };
        assert_eq!(hops.delay(100.0, 20.0), 34.0);
        let auto = target(None, None);
        assert_eq!(auto.delay(100.0, 20.0), 25.0);
        assert!((auto.delay(0.1, 20.0) - 150.0).abs() < 1e-9);
    }

    #[test]
    fn parameters_out_of_range_are_refused_by_name() {
        for (text, part) in [
            ("beta=0", "beta"),
            ("max_mdf=1", "max_mdf"),
            ("fs_min=200", "fs_min"),
            ("ai=-1", "ai"),
            ("beta=NaN", "beta"),
            ("base=soon", "auto"),
        ] {
            let error = make(&text.parse().expect("well-formed"))
                .map(|_| ())
                .expect_err(text)
                .to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
