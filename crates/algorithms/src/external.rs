//! External control: an environment for reinforcement learning steps a simulation from decision to
//! decision.
//!
//! [`ExternalControl`] is the algorithm. Each of its flows has a seat. When the flow's program
//! reports, the seat holds the measurements since the last decision, and the simulation stops
//! (`Simulation::run_until_decision`). The owner of the [`ControlledFlows`] decides and resumes.
//! The decision reaches the datapath like any other command. [`Observer`] and [`ActionMapper`]
//! convert between reports and the policy's numbers. They are the same where a trained policy runs
//! on real packets.

mod action;
mod observation;

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccplane_agent::{Algorithm, Control, FlowId, FlowInfo, FlowStats, Programs, Report};
use ccplane_datapath::Capabilities;
use ccplane_units::{Bytes, Duration, Rate, Time};

pub use action::{ActionKind, ActionMapper};
pub use observation::{FEATURE_MAX, FEATURE_MIN, Feature, Observer, ProgramTotals, StepInterval};

use crate::AlgorithmDoc;

/// Registry entry of the algorithm.
pub const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "outside",
    doc: "an external program sets the windows and rates",
    parameters: &[],
};

/// Name of the only program.
pub const PROGRAM_NAME: &str = "outside";

/// Condition for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepSize {
    /// At a fixed interval, with or without new ACKs. If it is far below an RTT, most steps carry
    /// no new measurement.
    Every(Duration),
    /// Once per smoothed RTT.
    RoundTrip,
    /// Once per smoothed RTT, and at once at losses and timeouts.
    Report,
}

impl FromStr for StepSize {
    type Err = String;

    fn from_str(text: &str) -> Result<StepSize, String> {
        match text {
            "1rtt" => Ok(StepSize::RoundTrip),
            "report" => Ok(StepSize::Report),
            _ => match text.parse::<Duration>() {
                Ok(every) if every >= Duration::from_millis(1) => Ok(StepSize::Every(every)),
                _ => Err(
                    "expected a duration of at least 1ms such as `20ms`, or `1rtt` or `report`"
                        .to_owned(),
                ),
            },
        }
    }
}

impl StepSize {
    /// Returns the program that reports when a decision is due.
    pub fn program(self) -> String {
        let decide = match self {
            StepSize::Every(every) => format!("(>= Micros {})", every.as_nanos() / 1000),
            StepSize::RoundTrip => "(>= Micros Flow.srtt_us)".to_owned(),
            StepSize::Report => {
                "(|| (> Ack.lost_pkts_sample 0) Flow.was_timeout (>= Micros Flow.srtt_us))"
                    .to_owned()
            }
        };
        include_str!("external/external.ccp").replace("(when DECIDE", &format!("(when {decide}"))
    }
}

/// Action on a flow. `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Window.
    pub cwnd: Option<Bytes>,
    /// Pacing rate.
    pub rate: Option<Rate>,
}

/// Externally controlled flow.
#[derive(Clone, Debug)]
pub struct ControlledFlow {
    /// Identifier in the agent.
    pub flow: FlowId,
    /// Description of the flow when it opened.
    pub info: FlowInfo,
    /// Time at which a decision became due, and the measurements since the last one; `None` if no
    /// decision is due.
    pub due: Option<(Time, ProgramTotals)>,
    /// The flow has ended.
    pub closed: bool,
    decision: Option<Decision>,
}

impl ControlledFlow {
    /// Sets the decision. It takes effect when the simulation resumes.
    pub fn decide(&mut self, decision: Decision) {
        self.due = None;
        self.decision = Some(decision);
    }
}

/// Seats of all flows of an [`ExternalControl`], in the order in which the flows opened. Clones
/// share the seats.
#[derive(Clone, Debug, Default)]
pub struct ControlledFlows(Arc<Mutex<Vec<ControlledFlow>>>);

impl ControlledFlows {
    /// Locks and returns all seats.
    pub fn lock(&self) -> MutexGuard<'_, Vec<ControlledFlow>> {
        // No code path panics while holding the lock, so a poisoned lock is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Algorithm without a law of its own. A flow without decisions keeps its initial window.
#[derive(Debug)]
pub struct ExternalControl {
    step: StepSize,
    flows: ControlledFlows,
}

impl ExternalControl {
    /// Creates the algorithm; its flows add themselves to `seats`.
    pub fn new(step: StepSize, flows: ControlledFlows) -> ExternalControl {
        ExternalControl { step, flows }
    }
}

impl Algorithm for ExternalControl {
    type Flow = FlowId;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with_report::<ProgramTotals>(PROGRAM_NAME, self.step.program())
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
            .union(Capabilities::RTT)
            .union(Capabilities::TIMERS)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> FlowId {
        control.set_program(PROGRAM_NAME, &[]);
        let flow = control.flow_id().unwrap_or_default();
        self.flows.lock().push(ControlledFlow {
            flow,
            info: info.clone(),
            due: None,
            closed: false,
            decision: None,
        });
        flow
    }

    fn on_report(&mut self, flow: &mut FlowId, report: &Report<'_>, control: &mut Control<'_>) {
        let mut seats = self.flows.lock();
        // Flow identifiers are reused after a flow ends, so the last matching seat is the current
        // one.
        let seat = seats.iter_mut().rev().find(|seat| seat.flow == *flow);
        if let (Some(seat), Some(totals)) = (seat, report.read::<ProgramTotals>()) {
            seat.due = Some((control.now(), totals));
            // The decision takes effect at the same simulated time, before any later event.
            control.set_timer(Duration::ZERO);
        }
    }

    fn on_timer(&mut self, control: &mut Control<'_>) {
        for seat in self.flows.lock().iter_mut() {
            seat.due = None;
            let Some(decision) = seat.decision.take() else {
                continue;
            };
            let Some(mut flow) = control.flow(seat.flow) else {
                continue;
            };
            if let Some(cwnd) = decision.cwnd {
                flow.set_cwnd(cwnd);
            }
            if let Some(rate) = decision.rate {
                flow.set_rate(rate);
            }
        }
    }

    fn on_close(&mut self, flow: FlowId, _last: &FlowStats) {
        let mut seats = self.flows.lock();
        if let Some(seat) = seats.iter_mut().rev().find(|seat| seat.flow == flow) {
            seat.closed = true;
            seat.due = None;
        }
    }

    fn awaiting_action(&self) -> bool {
        self.flows.lock().iter().any(|seat| seat.due.is_some())
    }
}

#[cfg(test)]
mod tests {
    use ccplane_agent::box_algorithm;

    use super::*;
    use crate::script::Script;

    #[test]
    fn steps_are_read_and_make_programs() {
        for (text, step) in [
            ("20ms", StepSize::Every(Duration::from_millis(20))),
            ("1rtt", StepSize::RoundTrip),
            ("report", StepSize::Report),
        ] {
            assert_eq!(text.parse(), Ok(step));
            let program =
                ccplane_lang::compile(&step.program(), &ccplane_lang::ProgramLimits::default());
            let program = program.unwrap_or_else(|why| panic!("{text}: {why}"));
            assert!(
                program
                    .report_names()
                    .eq(<ProgramTotals as ccplane_agent::Fields>::NAMES
                        .iter()
                        .copied())
            );
        }
        for wrong in ["20", "1us", "2rtt", ""] {
            assert!(wrong.parse::<StepSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_decision_is_due_at_each_step_with_what_happened_in_it() {
        let seats = ControlledFlows::default();
        let outside =
            ExternalControl::new(StepSize::Every(Duration::from_millis(10)), seats.clone());
        let mut script =
            Script::of(box_algorithm(outside)).expect("every datapath has the capabilities");
        let began = script.transport.cwnd;
        let mut lost = 0;
        while seats.lock()[0].due.is_none() {
            script.ack(Duration::from_millis(3), |signals| {
                signals.lost_pkts_sample = 1
            });
            lost += 1;
        }
        assert!(
            (4..=5).contains(&lost),
            "ten milliseconds are in the fourth, or in the fifth"
        );
        let totals = seats.lock()[0]
            .due
            .map(|(_, totals)| (totals.lost, totals.cwnd));
        assert_eq!(totals, Some((lost, began)));
    }
}
