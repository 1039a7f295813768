//! Rate-limited warnings: at most one per second, with the number of occurrences since the last.

use ccplane_units::{Duration, Time};

/// Interval between warnings. A shorter one would fill the log; a longer one would hide that the
/// problem persists.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Rate limiter of one kind of warning.
#[derive(Debug, Default)]
pub(super) struct Warning {
    count: u64,
    last_logged: Option<Time>,
}

impl Warning {
    /// Counts an occurrence. Returns the number since the last warning if another one is due.
    pub fn due(&mut self, now: Time) -> Option<u64> {
        self.count += 1;
        if self
            .last_logged
            .is_some_and(|said| now.since(said) < WARNING_INTERVAL)
        {
            return None;
        }
        self.last_logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_are_logged_once_per_second_with_their_count() {
        let mut warning = Warning::default();
        let said: Vec<u64> = (0..2_500)
            .filter_map(|ms| warning.due(Time::ZERO + Duration::from_millis(ms)))
            .collect();
        assert_eq!(said, [1, 1_000, 1_000]);
    }
}
