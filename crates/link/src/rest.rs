//! A listener that could not accept is left alone for a moment.

use std::io;

use ccplane_units::{Duration, Time};

use super::warning::Warning;

/// How long the listener rests after it could not accept, at the limit of descriptors for example.
/// A connection that waits makes the listener readable all the time: much shorter would spin, much
/// longer would keep datapaths waiting after the limit is raised or another datapath has gone.
const REST: Duration = Duration::from_millis(100);

/// Whether a listener rests.
#[derive(Debug, Default)]
pub(super) struct Rest {
    until: Option<Time>,
    warning: Warning,
}

impl Rest {
    /// It could not accept: it rests from now on.
    pub fn begin(&mut self, now: Time, why: &io::Error) {
        self.until = Some(now + REST);
        if let Some(times) = self.warning.due(now) {
            tracing::warn!(%why, times, "cannot accept a datapath: it waits; raise the limit of open files if that is it");
        }
    }

    /// True while it rests. A rest that is over ends here.
    pub fn lasts(&mut self, now: Time) -> bool {
        self.until = self.until.filter(|until| now < *until);
        self.until.is_some()
    }

    /// True if it rested at the last look.
    pub fn is_on(&self) -> bool {
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_begins_with_a_failure_and_ends_with_a_look() {
        let (mut rest, now) = (Rest::default(), Time::from_micros(5));
        assert!(!rest.lasts(now) && !rest.is_on());
        rest.begin(now, &io::Error::other("no descriptor is left"));
        assert!(rest.lasts(now) && rest.is_on());
        assert!(!rest.lasts(now + REST) && !rest.is_on());
    }
}
