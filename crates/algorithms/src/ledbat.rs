//! LEDBAT++: draft-irtf-iccrg-ledbat-plus-plus, the less-than-best-effort control of Windows, based
//! on LEDBAT (RFC 6817).
//!
//! The program adjusts the window on each ACK by the queueing delay and performs a slowdown when
//! the agent requests one. The agent keeps ten minutes of base delays, sets the gain derived from
//! them, and schedules the slowdowns.

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Duration, Time};

use crate::loss_reduction::{
    DELIVERED_BYTES, GROWTH_CONDITION, REPORT_VARIABLES, STATE_CLAUSE, STATE_VARIABLES,
    halving_clauses,
};
use crate::windowed_min::WindowedMin;
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "ledbat++",
    doc: "LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus): background traffic that yields to all \
        other traffic",
    parameters: &[ParameterDoc {
        name: "target",
        default: "60ms",
        values: "a duration such as 60ms",
        doc: "queueing delay above which the window shrinks",
    }],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let target = parameters.read("target", TARGET_DELAY)?;
    if target.as_micros() == 0 {
        return Err(BadParameter::value(
            "target",
            target.to_string(),
            "must be at least 1us",
        ));
    }
    Ok(box_algorithm(LedbatPlusPlus { target }))
}

/// Target queueing delay (draft section 4.5; RFC 6817 allows at most 100 ms). With a smaller
/// target, RTT noise stops the flow. With a larger one, other flows on the link notice the queue.
const TARGET_DELAY: Duration = Duration::from_millis(60);
/// Upper bound of 1/GAIN: growth is at most this many times slower than Reno's (section 4.2).
const INVERSE_GAIN_MAX: u64 = 16;
/// Time between slowdowns as a multiple of the last one's duration (section 4.4). Slowdowns then
/// take at most a tenth of the capacity. A smaller factor costs more capacity. A larger one leaves
/// a latecomer with a wrong base delay for longer.
const SLOWDOWN_INTERVAL_FACTOR: u64 = 9;
/// RTTs from the end of the initial slow start to the first slowdown (section 4.4).
const INITIAL_SLOWDOWN_RTTS: u64 = 2;
/// Filter window of the base delay (RFC 6817, section 4.2: ten minutes). A shorter window soon
/// absorbs a queue kept by other flows. A longer one mistakes a route change to a longer path for a
/// queue.
const BASE_HISTORY: Duration = Duration::from_secs(600);

/// LEDBAT++.
pub struct LedbatPlusPlus {
    target: Duration,
}

/// State of a flow.
pub struct LedbatFlow {
    base_delay: WindowedMin,
    /// Values installed in the program: base delay in µs, and 1/GAIN.
    installed: (u64, u64),
    phase: LedbatPhase,
}

/// Phase of the slowdown cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LedbatPhase {
    /// Initial slow start.
    Starting,
    /// Until the next slowdown is due.
    Steady { next: Time },
    /// Slowdown requested at `since`, when the program had begun `made` slowdowns.
    Slowing { since: Time, slowdowns: u64 },
}

/// 1/GAIN = min(16, ceil(2·TARGET/base)), section 4.2. Equals Reno's growth from a base delay of
/// twice the target on, and is slower on shorter paths.
fn divisor(target_us: u64, base_us: u64) -> u64 {
    target_us
        .saturating_mul(2)
        .div_ceil(base_us.max(1))
        .clamp(1, INVERSE_GAIN_MAX)
}

impl LedbatPhase {
    /// Returns the phase after a report. `avoiding`: the window has reached ssthresh. `made`:
    /// slowdowns that the program has begun. `srtt`: smoothed RTT, µs.
    fn next(self, now: Time, avoiding: bool, slowdowns: u64, srtt: u64) -> LedbatPhase {
        match self {
            LedbatPhase::Starting if avoiding => LedbatPhase::Steady {
                next: now + Duration::from_micros(srtt) * INITIAL_SLOWDOWN_RTTS,
            },
            LedbatPhase::Steady { next } if avoiding && now >= next => LedbatPhase::Slowing {
                since: now,
                slowdowns,
            },
            LedbatPhase::Slowing {
                since,
                slowdowns: before,
            } if avoiding && slowdowns > before => LedbatPhase::Steady {
                next: now + now.since(since) * SLOWDOWN_INTERVAL_FACTOR,
            },
            phase => phase,
        }
    }
}

impl Algorithm for LedbatPlusPlus {
    type Flow = LedbatFlow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn kernel_name(&self) -> String {
        "ccp_ledbatpp".to_owned()
    }

    fn programs(&self) -> Programs {
        Programs::new().with("ledbat", program())
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
            .union(Capabilities::RTT)
            .union(Capabilities::RECOVERY)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> LedbatFlow {
        let target = self.target.as_micros();
        let live = u64::from(info.live);
        control.set_program("ledbat", &[("target", target), ("recovering", live)]);
        LedbatFlow {
            base_delay: WindowedMin::new(BASE_HISTORY),
            installed: (INFINITY, INVERSE_GAIN_MAX),
            phase: LedbatPhase::Starting,
        }
    }

    fn on_report(&mut self, flow: &mut LedbatFlow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[_, _, rtt, srtt, made, _, _, cwnd, ssthresh] = report.fields() else {
            return;
        };
        let now = control.now();
        if let Some(base) = flow.base_delay.update(now, rtt) {
            let told = (base, divisor(self.target.as_micros(), base));
            if told != flow.installed {
                flow.installed = told;
                control.set_variable("base", told.0);
                control.set_variable("divisor", told.1);
            }
        }
        let srtt = if srtt < INFINITY { srtt } else { 0 };
        let phase = flow.phase.next(now, cwnd >= ssthresh, made, srtt);
        if matches!(phase, LedbatPhase::Slowing { .. }) && phase != flow.phase {
            control.set_variable("slow_down", 1);
        }
        flow.phase = phase;
    }
}

/// Returns the program. Section numbers are the draft's.
///
/// The queueing delay (4.5: from the RTT instead of the one-way delay) is the minimum of the last
/// four samples (RFC 6817's CURRENT_FILTER) minus the base. The window grows by GAIN per RTT: one
/// segment per `divisor` windows acknowledged (4.3). Above the target it shrinks by the fraction
/// (delay/target − 1) per window acknowledged, at most by half (4.3 with Constant 1), and never
/// below two segments. Slow start grows by GAIN times the data acknowledged. The initial slow start
/// ends when the delay exceeds three quarters of the target (4.1). A slowdown (4.4) sets ssthresh
/// to the window, holds two segments for two RTTs, and returns by slow start.
fn program() -> String {
    let (target, halve) = (TARGET_DELAY.as_micros(), halving_clauses());
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile lost 0) (volatile rtt +infinity) (srtt 0) (slowdowns 0)
        {REPORT_VARIABLES})
    (base +infinity) (divisor {INVERSE_GAIN_MAX}) (target {target}) (slow_down false) \
    {STATE_VARIABLES}
    (rtt1 +infinity) (rtt2 +infinity) (rtt3 +infinity) (rtt4 +infinity)
    (delay 0) (resume 0) (credit 0) (price 0))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.srtt Flow.srtt_us)
    (fallthrough))
(when (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.bytes_acked Ack.bytes_misordered) 0))
    (:= rtt4 rtt3)
    (:= rtt3 rtt2)
    (:= rtt2 rtt1)
    (:= rtt1 Flow.rtt_sample_us)
    (:= base (min base rtt1))
    (:= Report.rtt (min Report.rtt rtt1))
    (:= delay (diff (min rtt1 rtt2 rtt3 rtt4) base))
    (fallthrough))
{halve}
(when (&& slow_down (>= Cwnd Ssthresh) (! (|| Flow.in_recovery recovering)))
    (:= Ssthresh Cwnd)
    (:= Cwnd (* 2 Flow.mss))
    (:= resume (+ Ack.now (* 2 Flow.srtt_us)))
    (:= slow_down false)
    (:= Report.slowdowns (+ Report.slowdowns 1))
    (fallthrough))
(when (&& (> Ssthresh +infinity) (> delay (* target 3/4)))
    (:= Ssthresh Cwnd)
    (report)
    (fallthrough))
(when (&& (> delay target) (>= Cwnd Ssthresh) (! (|| Flow.in_recovery recovering)))
    (:= Cwnd (max (diff Cwnd (/ (* Ack.bytes_acked (min (* 2 (- delay target)) target)) \
        (* 2 target))) (* 2 Flow.mss)))
    (:= Ssthresh (min Ssthresh Cwnd))
    (fallthrough))
(when (&& {GROWTH_CONDITION} (>= Ack.now resume))
    (:= price (* divisor (if (< Cwnd Ssthresh) Flow.mss Cwnd)))
    (:= credit (+ (min credit price) {DELIVERED_BYTES}))
    (:= Cwnd (+ Cwnd (* Flow.mss (/ credit price))))
    (:= credit (diff credit (* price (/ credit price))))
    (fallthrough))
{STATE_CLAUSE}
(when (> Micros (max Flow.srtt_us 1ms))
    (:= Micros 0)
    (report))
"
    )
}

#[cfg(test)]
mod tests;
