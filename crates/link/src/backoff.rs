//! Exponential backoff between attempts to connect to an agent.

use ccplane_agent::rng::SplitMix64;
use ccplane_units::{Duration, Time};

use super::LinkError;

/// Initial wait. A shorter one causes many attempts while an agent restarts; a longer one keeps
/// flows on the fallback.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// Upper bound of the wait. A longer one keeps flows on the fallback after the agent is back; a
/// shorter one adds load to an overloaded agent.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Lifetime after which a connection counts as successful and resets the wait. If it were shorter,
/// an agent that accepts connections and closes them at once would be contacted without backoff.
const SUCCESS_LIFETIME: Duration = Duration::from_secs(1);

/// Wait that doubles with each failure and is reduced by up to half at random, so that the
/// datapaths of an agent do not reconnect at the same moment.
#[derive(Debug)]
pub(super) struct Backoff {
    wait: Duration,
    next_attempt: Time,
    connected: Option<Time>,
    rng: SplitMix64,
}

impl Backoff {
    /// Creates a backoff that allows the first attempt immediately.
    pub fn new(dice: SplitMix64) -> Backoff {
        Backoff {
            wait: WAIT_MIN,
            next_attempt: Time::ZERO,
            connected: None,
            rng: dice,
        }
    }

    /// Returns the earliest time of the next attempt.
    pub fn next_attempt(&self) -> Time {
        self.next_attempt
    }

    /// Returns an error if it is too early for an attempt.
    pub fn admit(&self, now: Time) -> Result<(), LinkError> {
        match now < self.next_attempt {
            true => Err(LinkError::Waiting(self.next_attempt.since(now))),
            false => Ok(()),
        }
    }

    /// Records a successful connection.
    pub fn connected(&mut self, now: Time) {
        self.connected = Some(now);
    }

    /// Records a failed attempt or a lost connection.
    pub fn on_failure(&mut self, now: Time) {
        if self
            .connected
            .take()
            .is_some_and(|since| now.since(since) >= SUCCESS_LIFETIME)
        {
            self.wait = WAIT_MIN;
        }
        self.schedule(now, self.wait);
        self.wait = (self.wait * 2).min(WAIT_MAX);
    }

    /// Records that no agent serves on this host. An attempt costs only one system call, so the
    /// wait does not grow.
    pub fn on_absent(&mut self, now: Time) {
        self.schedule(now, WAIT_MIN);
    }

    fn schedule(&mut self, now: Time, wait: Duration) {
        let wait_min = wait / 2;
        self.next_attempt =
            now + wait_min + Duration::from_nanos(self.rng.below(wait_min.as_nanos() + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds_and_differ_between_datapaths() {
        let waits = |seed| {
            let (mut backoff, mut now) = (Backoff::new(SplitMix64(seed)), Time::ZERO);
            let mut wait = || {
                backoff.on_failure(now);
                let wait = backoff.next_attempt().since(now);
                now = backoff.next_attempt();
                wait
            };
            (0..12).map(|_| wait()).collect::<Vec<Duration>>()
        };
        let mut wait_max = Duration::from_millis(100);
        for wait in waits(1) {
            assert!(
                wait >= wait_max / 2 && wait <= wait_max,
                "{wait} of {wait_max}"
            );
            wait_max = (wait_max * 2).min(WAIT_MAX);
        }
        assert_ne!(waits(1), waits(2));
    }

    #[test]
    fn only_connections_of_a_second_reset_the_backoff() {
        let (mut backoff, mut now) = (Backoff::new(SplitMix64(1)), Time::ZERO);
        let mut lasts = |time| {
            now = now.max(backoff.next_attempt());
            backoff.connected(now);
            now += time;
            backoff.on_failure(now);
            backoff.next_attempt().since(now)
        };
        for _ in 0..10 {
            lasts(Duration::from_millis(1));
        }
        assert!(lasts(Duration::from_millis(999)) >= WAIT_MAX / 2);
        assert!(lasts(SUCCESS_LIFETIME) <= WAIT_MIN);
        assert!(lasts(Duration::ZERO) > WAIT_MIN / 2);
    }

    #[test]
    fn an_absent_agent_is_polled_ten_times_a_second() {
        let (mut backoff, mut now, mut attempts) = (Backoff::new(SplitMix64(3)), Time::ZERO, 0);
        while now < Time::ZERO + Duration::from_secs(10) {
            backoff.on_absent(now);
            now = backoff.next_attempt();
            attempts += 1;
        }
        assert!((100..=200).contains(&attempts), "{attempts}");
    }
}
