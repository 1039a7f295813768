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
    paused_until: Option<Time>,
    warning: Warning,
}

impl AcceptBackoff {
    /// Starts a pause after a failed `accept`.
    pub fn pause(&mut self, now: Time, why: &io::Error) {
        self.paused_until = Some(now + ACCEPT_BACKOFF);
        if let Some(times) = self.warning.due(now) {
            tracing::warn!(%why, times, "cannot accept a connection; it stays pending (if the \
                limit of open files is reached, raise it)");
        }
    }

    /// Returns whether the pause lasts; ends it if it is over.
    pub fn check_paused(&mut self, now: Time) -> bool {
        self.paused_until = self.paused_until.filter(|until| now < *until);
        self.paused_until.is_some()
    }

    /// Returns whether the listener was paused at the last call of `lasts`.
    pub fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_backoff_starts_with_a_failure_and_ends_with_a_poll() {
        let (mut rest, now) = (AcceptBackoff::default(), Time::from_micros(5));
        assert!(!rest.check_paused(now) && !rest.is_paused());
        rest.pause(now, &io::Error::other("all file descriptors are in use"));
        assert!(rest.check_paused(now) && rest.is_paused());
        assert!(!rest.check_paused(now + ACCEPT_BACKOFF) && !rest.is_paused());
    }
}
