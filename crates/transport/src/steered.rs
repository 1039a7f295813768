//! A connection steered by an agent: a `datapath` flow behind the [`Control`] trait.

use ccplane_datapath::{Capabilities, Flow, Outcome, ProgramTable, Urgency};
use ccplane_units::Time;

use crate::control::{Control, Event};

/// What a connection can do for whoever steers it, wherever it runs. With [`Config::stamps`](crate::Config::stamps) also
/// [`Capabilities::ONE_WAY_DELAY`].
pub const CAPABILITIES: Capabilities = Capabilities::CWND
    .with(Capabilities::PACING)
    .with(Capabilities::RTT)
    .with(Capabilities::DELIVERY_RATE)
    .with(Capabilities::ECN)
    .with(Capabilities::TIMERS)
    .with(Capabilities::RECOVERY);

/// Where reports go.
pub trait Reports {
    /// Takes a report, its fields in the order of declaration. False when there is no room: nothing that was measured is
    /// lost then, the next call offers it again.
    fn take(&mut self, now: Time, urgency: Urgency, program: u32, fields: &[u64]) -> bool;
}

/// Lends a flow, its programs and the way of its reports to one call of a connection.
#[derive(Debug)]
pub struct Steered<'a, R, const V: usize = 16, const P: usize = 8> {
    /// The flow.
    pub flow: &'a mut Flow<V>,
    /// The programs of its algorithm.
    pub programs: &'a ProgramTable<P>,
    /// Where its reports go.
    pub reports: &'a mut R,
}

impl<R: Reports, const V: usize, const P: usize> Steered<'_, R, V, P> {
    #[inline(always)]
    fn report(&mut self, now: Time, outcome: Outcome) -> Outcome {
        if let Some(urgency) = outcome.report {
            let program = self.flow.program_uid().unwrap_or_default();
            if self
                .reports
                .take(now, urgency, program, self.flow.report(self.programs))
            {
                self.flow.report_queued(self.programs);
            }
        }
        outcome
    }
}

impl<R: Reports, const V: usize, const P: usize> Control for Steered<'_, R, V, P> {
    const STEERED: bool = true;

    #[inline(always)]
    fn on_event(&mut self, event: &Event<'_>) -> Outcome {
        let outcome = self.flow.on_ack(&event.transport(), &event.signals(), self.programs);
        self.report(event.now, outcome)
    }

    #[inline]
    fn next_deadline(&self) -> Option<Time> {
        self.flow.next_deadline()
    }

    fn on_deadline(&mut self, event: &Event<'_>) -> Outcome {
        let outcome = self.flow.on_deadline(&event.transport(), self.programs);
        self.report(event.now, outcome)
    }
}
