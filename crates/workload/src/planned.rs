//! When flows without end are there, as it is planned: what opens them and what looks at results
//! agree on it.

use ccplane_units::{Duration, Time};

use crate::{Carrier, Span, Workload};

/// The times of flows that come one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    span: Span,
    stagger: Duration,
    lasts: Option<Duration>,
}

impl Planned {
    pub fn new(span: Span, stagger: Duration, lasts: Option<Duration>) -> Planned {
        Planned {
            span,
            stagger,
            lasts,
        }
    }

    /// When the `n`-th flow is to start, counted from 0.
    pub fn starts(self, n: u64) -> Time {
        self.span.start + self.stagger * n
    }

    /// When it is given up if it has no end; `None`: not before the run's end.
    pub fn leaves(self, n: u64) -> Option<Time> {
        let own = self.lasts.map(|lasts| self.starts(n) + lasts);
        match (own, self.span.stop) {
            (Some(own), Some(stop)) => Some(own.min(stop)),
            (own, stop) => own.or(stop),
        }
    }
}

impl Workload {
    /// When the `n`-th flow without end of such a workload is to start, counted from 0, and when it
    /// is given up where that is before the run's end; `None` where its flows have ends. By how
    /// much a flow starts later is drawn.
    pub fn planned(&self, n: u64, start: Time, stop: Option<Time>) -> Option<(Time, Option<Time>)> {
        let span = Span { start, stop };
        let planned = match self {
            Workload::Bulk {
                bytes: None,
                stagger,
                lasts,
                ..
            } => Planned::new(span, *stagger, *lasts),
            Workload::Paced {
                carrier: Carrier::Stream { .. },
                ..
            } => Planned::new(span, Duration::ZERO, None),
            _ => return None,
        };
        Some((planned.starts(n), planned.leaves(n)))
    }
}
