//! Pause after a listener failed to accept a connection.

use std::io;

use ccplane_units::{Duration, Time};

use super::warning::Warning;

/// Pause after a failed `accept`, for example at the descriptor limit. The pending connection keeps
/// the listener readable: a much shorter pause would spin; a much longer one would delay datapaths
/// after a descriptor becomes free.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Pause state of a listener.
#[derive(Debug, Default)]
pub(super) struct AcceptBackoff {
    until: Option<Time>,
    warning: Warning,
}

impl AcceptBackoff {
    /// Starts a pause after a failed `accept`.
    pub fn begin(&mut self, now: Time, why: &io::Error) {
        self.until = Some(now + ACCEPT_BACKOFF);
        if let Some(times) = self.warning.due(now) {
            tracing::warn!(%why, times, "cannot accept a connection; it stays pending (if the \
                limit of open files is reached, raise it)");
        }
    }

    /// Returns whether the pause lasts; ends it if it is over.
    pub fn lasts(&mut self, now: Time) -> bool {
        self.until = self.until.filter(|until| now < *until);
        self.until.is_some()
    }

    /// Returns whether the listener was paused at the last call of `lasts`.
    pub fn is_on(&self) -> bool {
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_backoff_starts_with_a_failure_and_ends_with_a_poll() {
        let (mut rest, now) = (AcceptBackoff::default(), Time::from_micros(5));
        assert!(!rest.lasts(now) && !rest.is_on());
        rest.begin(now, &io::Error::other("all file descriptors are in use"));
        assert!(rest.lasts(now) && rest.is_on());
        assert!(!rest.lasts(now + ACCEPT_BACKOFF) && !rest.is_on());
    }
}
