//! A warning that a flood cannot repeat: at most once a second, with how often it would have been
//! said.

use ccplane_units::{Duration, Time};

/// Between two warnings. Shorter would fill a log, longer would hide that the trouble lasts.
const EVERY: Duration = Duration::from_secs(1);

/// Counts what is worth a warning.
#[derive(Debug, Default)]
pub(super) struct Warning {
    count: u64,
    said: Option<Time>,
}

impl Warning {
    /// It happened; how often since the last warning, if another is due.
    pub fn due(&mut self, now: Time) -> Option<u64> {
        self.count += 1;
        if self.said.is_some_and(|said| now.since(said) < EVERY) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_said_once_a_second_with_its_count() {
        let mut warning = Warning::default();
        let said: Vec<u64> = (0..2_500)
            .filter_map(|ms| warning.due(Time::ZERO + Duration::from_millis(ms)))
            .collect();
        assert_eq!(said, [1, 1_000, 1_000]);
    }
}
