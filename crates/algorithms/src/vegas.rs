//! TCP Vegas: Brakmo and Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global
//! Internet", IEEE JSAC 13(8), 1995, in the variant of Linux (`net/ipv4/tcp_vegas.c`).
//!
//! The program measures each round trip, doubles the window until a queue builds up, and reports at
//! the end of each round. The agent then adds a segment, removes one, or holds the window.

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::Capabilities;

use crate::loss_reduction::{
    DELIVERED_BYTES, GROWTH_CONDITION, REPORT_VARIABLES, STATE_CLAUSE, STATE_VARIABLES,
    halving_clauses,
};
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "vegas",
    doc: "Vegas (Brakmo and Peterson 1995, as in Linux): keeps 2 to 4 segments in the queue",
    parameters: &[
        ParameterDoc {
            name: "alpha",
            default: "2",
            values: "segments",
            doc: "if fewer are in the queue, the window grows by one segment",
        },
        ParameterDoc {
            name: "beta",
            default: "4",
            values: "segments, at least alpha",
            doc: "if more are in the queue, the window shrinks by one segment",
        },
        ParameterDoc {
            name: "gamma",
            default: "1",
            values: "segments",
            doc: "if more are in the queue, slow start ends",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let vegas = Vegas {
        alpha: parameters.read("alpha", ALPHA)?,
        beta: parameters.read("beta", BETA)?,
        gamma: parameters.read("gamma", GAMMA)?,
    };
    if vegas.beta < vegas.alpha {
        let expected = format!("must be at least alpha, {}", vegas.alpha);
        return Err(BadParameter::value(
            "beta",
            vegas.beta.to_string(),
            expected,
        ));
    }
    Ok(box_algorithm(vegas))
}

/// α, β and γ of Linux, segments. The paper uses 1 and 3, or 2 and 4, for α and β (section 4.3),
/// and 1 for γ (section 4.4). With a smaller α the link idles when an ACK is late. With a larger β
/// the queue is longer, and flows that start later, which mistake that queue for propagation delay,
/// hold more of it.
const ALPHA: u64 = 2;
const BETA: u64 = 4;
const GAMMA: u64 = 1;

/// A round with this many RTT samples or fewer is not conclusive because all of them may be from
/// delayed ACKs. The window then grows as in Reno.
const INCONCLUSIVE_SAMPLES_MAX: u64 = 2;

/// Vegas, with thresholds in segments.
pub struct Vegas {
    alpha: u64,
    beta: u64,
    gamma: u64,
}

/// Change of the window by one segment. The discriminants are the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowStep {
    Hold = 0,
    Up = 1,
    Down = 2,
}

impl Vegas {
    /// The paper's Diff · BaseRTT, (Expected − Actual) · BaseRTT, estimates the flow's segments in
    /// the queue: window · (rtt − base)/base. Integer arithmetic, as in Linux.
    fn step(&self, window: u64, samples: u64, rtt: u64, base: u64) -> WindowStep {
        if samples <= INCONCLUSIVE_SAMPLES_MAX {
            return WindowStep::Up;
        }
        let waiting = window
            .saturating_mul(rtt.saturating_sub(base))
            .checked_div(base)
            .unwrap_or(0);
        match waiting {
            _ if waiting > self.beta => WindowStep::Down,
            _ if waiting < self.alpha => WindowStep::Up,
            _ => WindowStep::Hold,
        }
    }
}

impl Algorithm for Vegas {
    /// Segment size, bytes.
    type Flow = u64;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("vegas", program())
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
            .union(Capabilities::RTT)
            .union(Capabilities::RECOVERY)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> u64 {
        let live = u64::from(info.live);
        control.set_program("vegas", &[("gamma", self.gamma), ("recovering", live)]);
        info.mss.get().max(1)
    }

    fn on_report(&mut self, mss: &mut u64, report: &Report<'_>, control: &mut Control<'_>) {
        let &[
            _,
            _,
            rounds,
            samples,
            rtt,
            base,
            _,
            reductions,
            cwnd,
            ssthresh,
        ] = report.fields()
        else {
            return;
        };
        // The program handles slow start, and a reduction supersedes this round's measurement.
        if rounds == 0 || reductions > 0 || cwnd < ssthresh {
            return;
        }
        match self.step(cwnd / *mss, samples, rtt, base) {
            WindowStep::Hold => {}
            step => control.set_variable("step", step as u64),
        }
    }
}

/// Returns the program. A round ends when more is acknowledged than was in flight at its start
/// (Linux: an ACK beyond `beg_snd_nxt`), and lasts at least a millisecond: below that, wake-ups
/// cost more than a change of one segment. Rounds that include a recovery are not measured
/// (`vegas_disable`).
///
/// Slow start grows on every ACK, as in Linux (in the paper, every other round). It ends at the end
/// of a round with more than γ segments in the queue. The window then falls to the round's rate
/// times the base RTT, plus one segment.
fn program() -> String {
    let halve = halving_clauses();
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile lost 0) (volatile rounds 0) (samples 0) (rtt +infinity) \
        (base +infinity)
        {REPORT_VARIABLES})
    (gamma {GAMMA}) (step 0) {STATE_VARIABLES}
    (round_size 0) (round_acked 0) (round_began 0) (round_samples 0) (round_rtt +infinity) \
    (fresh false))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (if (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.packets_acked Ack.packets_misordered) 0))
        (do (:= Report.base (min Report.base Flow.rtt_sample_us))
            (:= round_rtt (min round_rtt Flow.rtt_sample_us))
            (:= round_samples (+ round_samples 1))))
    (:= round_acked (+ round_acked Ack.bytes_acked))
    (:= fresh (|| Flow.in_recovery (&& (> round_acked round_size) \
        (> (diff Ack.now round_began) 1ms))))
    (fallthrough))
{halve}
(when (&& fresh (! Flow.in_recovery))
    (:= Report.samples round_samples)
    (:= Report.rtt round_rtt)
    (:= Report.rounds (+ Report.rounds 1))
    (report)
    # Slow start ends if the window times (rtt - base) / base exceeds gamma segments.
    (if (&& (< Cwnd Ssthresh) (> round_samples {INCONCLUSIVE_SAMPLES_MAX})
            (>= (* Cwnd (diff round_rtt Report.base)) (* (+ gamma 1) Flow.mss Report.base)))
        (do (:= Cwnd (min Cwnd (+ (/ (* Cwnd Report.base) round_rtt) Flow.mss)))
            (:= Ssthresh (min Ssthresh Cwnd))))
    (fallthrough))
(when fresh
    (:= round_acked 0)
    (:= round_size Flow.bytes_in_flight)
    (:= round_began Ack.now)
    (:= round_samples 0)
    (:= round_rtt +infinity)
    (fallthrough))
(when {GROWTH_CONDITION}
    (:= Cwnd (+ Cwnd (min {DELIVERED_BYTES} (diff Ssthresh Cwnd))))
    (if (== step 1) (:= Cwnd (+ Cwnd Flow.mss)))
    (fallthrough))
(when (&& (== step 2) (! (|| Flow.in_recovery recovering)))
    (:= Cwnd (max (diff Cwnd Flow.mss) (* 2 Flow.mss)))
    (:= Ssthresh (min Ssthresh Cwnd))
    (fallthrough))
# An order applies to one step. An order received while the flow may not grow is dropped: the next
# round repeats it.
(when true
    (:= step 0)
    (fallthrough))
{STATE_CLAUSE}
"
    )
}

#[cfg(test)]
mod tests;
