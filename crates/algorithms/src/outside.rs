//! Windows that come from outside: what steps a simulation from decision to decision, as an
//! environment for learning does.
//!
//! [`Outside`] is the algorithm. Each of its flows has a seat: when the flow's program reports, the
//! seat has what happened since its last decision, and a simulation stops there
//! (`Simulation::run_until_decision`). Whoever holds the [`Seats`] decides, and goes on; the
//! decision takes the way of every other command. [`Observer`] and [`Actor`] are what stands
//! between reports and numbers that are learned from. They are the same where a learned policy runs
//! on real packets.

mod act;
mod observe;

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccplane_agent::{Algorithm, Control, FlowId, FlowInfo, FlowStats, Programs, Report};
use ccplane_datapath::Capabilities;
use ccplane_units::{Bytes, Duration, Rate, Time};

pub use act::{Act, Actor};
pub use observe::{Feature, Interval, LEAST, MOST, Observer, Totals};

use crate::AlgorithmDoc;

/// What a registry says of it.
pub const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "outside",
    doc: "windows and rates come from outside of the agent",
    parameters: &[],
};

/// The name of its program.
pub const PROGRAM: &str = "outside";

/// When a decision is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Each time so much time has passed, whatever arrives. Far below an RTT, most steps see
    /// nothing new.
    Every(Duration),
    /// Once a smoothed RTT.
    RoundTrip,
    /// Once a smoothed RTT, and at once at losses and timeouts.
    Report,
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        match text {
            "1rtt" => Ok(Step::RoundTrip),
            "report" => Ok(Step::Report),
            _ => match text.parse::<Duration>() {
                Ok(every) if every >= Duration::from_millis(1) => Ok(Step::Every(every)),
                _ => Err("it is a time from 1ms on such as `20ms`, `1rtt` or `report`".to_owned()),
            },
        }
    }
}

impl Step {
    /// The text of the program that reports when a decision is due.
    pub fn program(self) -> String {
        let decide = match self {
            Step::Every(every) => format!("(>= Micros {})", every.as_nanos() / 1000),
            Step::RoundTrip => "(>= Micros Flow.srtt_us)".to_owned(),
            Step::Report => {
                "(|| (> Ack.lost_pkts_sample 0) Flow.was_timeout (>= Micros Flow.srtt_us))"
                    .to_owned()
            }
        };
        include_str!("outside/outside.ccp").replace("(when DECIDE", &format!("(when {decide}"))
    }
}

/// What is decided for a flow. What is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The window.
    pub cwnd: Option<Bytes>,
    /// The pacing rate.
    pub rate: Option<Rate>,
}

/// A flow that is steered from outside.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The flow, as its agent knows it.
    pub flow: FlowId,
    /// What was known of it when it opened.
    pub info: FlowInfo,
    /// When a decision became due, and what had happened since the last; `None` while none is.
    pub due: Option<(Time, Totals)>,
    /// The flow has ended.
    pub closed: bool,
    decision: Option<Decision>,
}

impl Seat {
    /// Decides. It comes into force when the simulation goes on.
    pub fn decide(&mut self, decision: Decision) {
        self.due = None;
        self.decision = Some(decision);
    }
}

/// The seats of all flows of an [`Outside`], in the order in which these opened. Clones are the
/// same seats.
#[derive(Clone, Debug, Default)]
pub struct Seats(Arc<Mutex<Vec<Seat>>>);

impl Seats {
    /// All of them.
    pub fn lock(&self) -> MutexGuard<'_, Vec<Seat>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The algorithm. Flows that nobody decides for keep the window that they began with.
#[derive(Debug)]
pub struct Outside {
    step: Step,
    seats: Seats,
}

impl Outside {
    /// One whose flows take these seats.
    pub fn new(step: Step, seats: Seats) -> Outside {
        Outside { step, seats }
    }
}

impl Algorithm for Outside {
    type Flow = FlowId;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().reporting::<Totals>(PROGRAM, self.step.program())
    }

    fn needs(&self) -> Capabilities {
        Capabilities::CWND
            .with(Capabilities::RTT)
            .with(Capabilities::TIMERS)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> FlowId {
        control.program(PROGRAM, &[]);
        let flow = control.this().unwrap_or_default();
        self.seats.lock().push(Seat {
            flow,
            info: info.clone(),
            due: None,
            closed: false,
            decision: None,
        });
        flow
    }

    fn on_report(&mut self, flow: &mut FlowId, report: &Report<'_>, control: &mut Control<'_>) {
        let mut seats = self.seats.lock();
        // A flow's number is free for another when it has ended: the seat is the last of that
        // number.
        let seat = seats.iter_mut().rev().find(|seat| seat.flow == *flow);
        if let (Some(seat), Some(totals)) = (seat, report.read::<Totals>()) {
            seat.due = Some((control.now(), totals));
            // What is decided comes into force at the same moment, and before anything later.
            control.after(Duration::ZERO);
        }
    }

    fn on_timer(&mut self, control: &mut Control<'_>) {
        for seat in self.seats.lock().iter_mut() {
            seat.due = None;
            let Some(decision) = seat.decision.take() else {
                continue;
            };
            let Some(mut flow) = control.flow(seat.flow) else {
                continue;
            };
            if let Some(cwnd) = decision.cwnd {
                flow.cwnd(cwnd);
            }
            if let Some(rate) = decision.rate {
                flow.rate(rate);
            }
        }
    }

    fn on_close(&mut self, flow: FlowId, _last: &FlowStats) {
        let mut seats = self.seats.lock();
        if let Some(seat) = seats.iter_mut().rev().find(|seat| seat.flow == flow) {
            seat.closed = true;
            seat.due = None;
        }
    }

    fn undecided(&self) -> bool {
        self.seats.lock().iter().any(|seat| seat.due.is_some())
    }
}

#[cfg(test)]
mod tests {
    use ccplane_agent::boxed;

    use super::*;
    use crate::script::Script;

    #[test]
    fn steps_are_read_and_make_programs() {
        for (text, step) in [
            ("20ms", Step::Every(Duration::from_millis(20))),
            ("1rtt", Step::RoundTrip),
            ("report", Step::Report),
        ] {
            assert_eq!(text.parse(), Ok(step));
            let program = ccplane_lang::compile(&step.program(), &ccplane_lang::Limits::default());
            let program = program.unwrap_or_else(|why| panic!("{text}: {why}"));
            assert!(
                program
                    .report_names()
                    .eq(<Totals as ccplane_agent::Fields>::NAMES.iter().copied())
            );
        }
        for wrong in ["20", "1us", "2rtt", ""] {
            assert!(wrong.parse::<Step>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_decision_is_due_at_each_step_with_what_happened_in_it() {
        let seats = Seats::default();
        let outside = Outside::new(Step::Every(Duration::from_millis(10)), seats.clone());
        let mut script = Script::of(boxed(outside)).expect("it needs what all have");
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
