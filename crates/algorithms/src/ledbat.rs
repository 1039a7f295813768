//! LEDBAT++: draft-irtf-iccrg-ledbat-plus-plus, the less-than-best-effort control of Windows, on
//! top of LEDBAT (RFC 6817).
//!
//! The program grows and shrinks the window at each ACK by the queueing delay, and goes through a
//! slowdown by itself once the agent orders one. The agent keeps ten minutes of base delays, sets
//! the gain that follows from them, and decides when to slow down.

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, boxed};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Duration, Time};

use crate::least::Least;
use crate::repair::{DECLARED, DELIVERED, MAY_GROW, REMEMBER, REPORTED, halve};
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "ledbat++",
    doc: "LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus): background traffic that yields to all other",
    parameters: &[ParameterDoc {
        name: "target",
        default: "60ms",
        values: "a duration such as 60ms",
        doc: "queueing delay above which the window shrinks",
    }],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let target = parameters.read("target", TARGET)?;
    if target.as_micros() == 0 {
        return Err(BadParameter::value(
            "target",
            target.to_string(),
            "it is at least 1us",
        ));
    }
    Ok(boxed(LedbatPlusPlus { target }))
}

/// The draft's target delay (section 4.5; RFC 6817 has 100 ms at most). Less, and noise in the RTT
/// stops the flow; more, and those who share the link feel it.
const TARGET: Duration = Duration::from_millis(60);
/// Most by which growth is slower than Reno's (section 4.2).
const MOST_DIVISOR: u64 = 16;
/// A slowdown comes this many times its predecessor's duration after that ended (section 4.4): a
/// tenth of the capacity at most. More often costs capacity, more rarely leaves newcomers longer
/// with a wrong base delay.
const QUIET: u64 = 9;
/// The first comes so many RTTs after the initial slow start (section 4.4).
const FIRST_AFTER: u64 = 2;
/// The base delay is the least RTT of so long (RFC 6817, section 4.2: ten minutes). Shorter, and a
/// queue that others keep is soon taken for the path; longer, and a longer path after a change of
/// route is taken for a queue.
const BASE_HISTORY: Duration = Duration::from_secs(600);

/// The algorithm.
pub struct LedbatPlusPlus {
    target: Duration,
}

/// State of a flow.
pub struct Flow {
    base: Least,
    /// What the program has: base delay in µs, divisor of the gain.
    told: (u64, u64),
    phase: Phase,
}

/// Where a flow is in its cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In the initial slow start.
    Starting,
    /// Until the next slowdown is due.
    Steady { next: Time },
    /// A slowdown was ordered at this time, when so many had been made.
    Slowing { since: Time, made: u64 },
}

/// 1/GAIN = min(16, ceil(2·TARGET/base)), section 4.2: on a path as long as twice the target as
/// fast as Reno, on shorter ones slower.
fn divisor(target_us: u64, base_us: u64) -> u64 {
    target_us
        .saturating_mul(2)
        .div_ceil(base_us.max(1))
        .clamp(1, MOST_DIVISOR)
}

impl Phase {
    /// What a report makes of it: `avoiding` whether the window has reached the threshold, `made`
    /// the number of slowdowns that the program began, `srtt` in µs.
    fn after(self, now: Time, avoiding: bool, made: u64, srtt: u64) -> Phase {
        match self {
            Phase::Starting if avoiding => Phase::Steady {
                next: now + Duration::from_micros(srtt) * FIRST_AFTER,
            },
            Phase::Steady { next } if avoiding && now >= next => {
                Phase::Slowing { since: now, made }
            }
            Phase::Slowing {
                since,
                made: before,
            } if avoiding && made > before => Phase::Steady {
                next: now + now.since(since) * QUIET,
            },
            phase => phase,
        }
    }
}

impl Algorithm for LedbatPlusPlus {
    type Flow = Flow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn kernel_name(&self) -> String {
        "ccp_ledbatpp".to_owned()
    }

    fn programs(&self) -> Programs {
        Programs::new().with("ledbat", program())
    }

    fn needs(&self) -> Capabilities {
        Capabilities::CWND
            .with(Capabilities::RTT)
            .with(Capabilities::RECOVERY)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Flow {
        let target = self.target.as_micros();
        let live = u64::from(info.live);
        control.program("ledbat", &[("target", target), ("recovering", live)]);
        Flow {
            base: Least::over(BASE_HISTORY),
            told: (INFINITY, MOST_DIVISOR),
            phase: Phase::Starting,
        }
    }

    fn on_report(&mut self, flow: &mut Flow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[_, _, rtt, srtt, made, _, _, cwnd, ssthresh] = report.fields() else {
            return;
        };
        let now = control.now();
        if let Some(base) = flow.base.update(now, rtt) {
            let told = (base, divisor(self.target.as_micros(), base));
            if told != flow.told {
                flow.told = told;
                control.set("base", told.0);
                control.set("divisor", told.1);
            }
        }
        let srtt = if srtt < INFINITY { srtt } else { 0 };
        let phase = flow.phase.after(now, cwnd >= ssthresh, made, srtt);
        if matches!(phase, Phase::Slowing { .. }) && phase != flow.phase {
            control.set("slow_down", 1);
        }
        flow.phase = phase;
    }
}

/// The program's text. Sections are the draft's.
///
/// The queueing delay (4.5, on the RTT in place of the one-way delay) is the least of the last four
/// samples (RFC 6817's CURRENT_FILTER), less the base. The window grows by GAIN per RTT: one
/// segment for each `divisor` windows acknowledged (4.3). Above the target it loses the part
/// (delay/target − 1) for each window acknowledged, at most half (4.3 with Constant 1), and never
/// falls below two segments. Slow start grows by GAIN of what is acknowledged. The initial one ends
/// when the delay passes three quarters of the target (4.1). A slowdown (4.4) keeps the window as
/// threshold, holds two segments for two RTTs, and returns by slow start.
fn program() -> String {
    let (target, halve) = (TARGET.as_micros(), halve());
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile lost 0) (volatile rtt +infinity) (srtt 0) (slowdowns 0)
        {REPORTED})
    (base +infinity) (divisor {MOST_DIVISOR}) (target {target}) (slow_down false) {DECLARED}
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
    (:= Cwnd (max (diff Cwnd (/ (* Ack.bytes_acked (min (* 2 (- delay target)) target)) (* 2 target))) (* 2 Flow.mss)))
    (:= Ssthresh (min Ssthresh Cwnd))
    (fallthrough))
(when (&& {MAY_GROW} (>= Ack.now resume))
    (:= price (* divisor (if (< Cwnd Ssthresh) Flow.mss Cwnd)))
    (:= credit (+ (min credit price) {DELIVERED}))
    (:= Cwnd (+ Cwnd (* Flow.mss (/ credit price))))
    (:= credit (diff credit (* price (/ credit price))))
    (fallthrough))
{REMEMBER}
(when (> Micros (max Flow.srtt_us 1ms))
    (:= Micros 0)
    (report))
"
    )
}

#[cfg(test)]
mod tests;
