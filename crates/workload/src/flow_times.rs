//! Planned lifetimes of flows without end, shared by the generator that opens them and the code
//! that evaluates them.

use ccplane_units::{Duration, Time};

use crate::{ActiveTime, Carrier, Workload};

#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowTimes {
    span: ActiveTime,
    stagger: Duration,
    lifetime: Option<Duration>,
}

impl FlowTimes {
    pub fn new(span: ActiveTime, stagger: Duration, lasts: Option<Duration>) -> FlowTimes {
        FlowTimes {
            span,
            stagger,
            lifetime: lasts,
        }
    }

    /// Returns the planned start of flow `n`, counted from 0.
    pub fn start_time(self, n: u64) -> Time {
        self.span.start + self.stagger * n
    }

    /// Returns the abort time of flow `n`, or `None` if it lasts until the end of the run.
    pub fn abort_time(self, n: u64) -> Option<Time> {
        let own = self.lifetime.map(|lasts| self.start_time(n) + lasts);
        match (own, self.span.stop) {
            (Some(own), Some(stop)) => Some(own.min(stop)),
            (own, stop) => own.or(stop),
        }
    }
}

impl Workload {
    /// Returns the planned start of flow `n` (counted from 0) and its abort time, if any. `None` if
    /// the workload's flows have a size. The random offset of `spread` is not included.
    pub fn planned_times(
        &self,
        n: u64,
        start: Time,
        stop: Option<Time>,
    ) -> Option<(Time, Option<Time>)> {
        let span = ActiveTime { start, stop };
        let planned = match self {
            Workload::Bulk {
                bytes: None,
                stagger,
                lifetime: lasts,
                ..
            } => FlowTimes::new(span, *stagger, *lasts),
            Workload::Paced {
                carrier: Carrier::Stream { .. },
                ..
            } => FlowTimes::new(span, Duration::ZERO, None),
            _ => return None,
        };
        Some((planned.start_time(n), planned.abort_time(n)))
    }
}
