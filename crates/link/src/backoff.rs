//! Time between two attempts to connect to an agent.

use ccplane_agent::dice::Dice;
use ccplane_units::{Duration, Time};

use super::LinkError;

/// The first wait. A shorter one makes many attempts while an agent restarts; a longer one leaves
/// flows on the fallback.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// The longest wait. A longer one leaves flows on the fallback after the agent is back; a shorter
/// one troubles an agent that is overloaded.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A connection that lasts for this long is good: the wait after it is the first one again. With a
/// shorter time, an agent that accepts connections and breaks them at once is connected to over and
/// over.
const GOOD_AFTER: Duration = Duration::from_secs(1);

/// Waits that double with each failure, less up to half at random, so that the datapaths of an
/// agent do not all come back at the same moment.
#[derive(Debug)]
pub(super) struct Backoff {
    wait: Duration,
    until: Time,
    connected: Option<Time>,
    dice: Dice,
}

impl Backoff {
    /// Allows the first attempt at once.
    pub fn new(dice: Dice) -> Backoff {
        Backoff {
            wait: WAIT_MIN,
            until: Time::ZERO,
            connected: None,
            dice,
        }
    }

    /// When the next attempt may begin.
    pub fn until(&self) -> Time {
        self.until
    }

    /// Refuses an attempt that would begin too early.
    pub fn admit(&self, now: Time) -> Result<(), LinkError> {
        match now < self.until {
            true => Err(LinkError::Waiting(self.until.since(now))),
            false => Ok(()),
        }
    }

    /// Records that a connection is there.
    pub fn connected(&mut self, now: Time) {
        self.connected = Some(now);
    }

    /// Records that an attempt failed or a connection was lost.
    pub fn failed(&mut self, now: Time) {
        if self
            .connected
            .take()
            .is_some_and(|since| now.since(since) >= GOOD_AFTER)
        {
            self.wait = WAIT_MIN;
        }
        self.rest(now, self.wait);
        self.wait = (self.wait * 2).min(WAIT_MAX);
    }

    /// Records that no agent serves on this host: the next attempt costs a system call, so the wait
    /// does not grow.
    pub fn absent(&mut self, now: Time) {
        self.rest(now, WAIT_MIN);
    }

    fn rest(&mut self, now: Time, wait: Duration) {
        let half = wait / 2;
        self.until = now + half + Duration::from_nanos(self.dice.below(half.as_nanos() + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds_and_differ_between_datapaths() {
        let waits = |seed| {
            let (mut backoff, mut now) = (Backoff::new(Dice(seed)), Time::ZERO);
            let mut wait = || {
                backoff.failed(now);
                let wait = backoff.until().since(now);
                now = backoff.until();
                wait
            };
            (0..12).map(|_| wait()).collect::<Vec<Duration>>()
        };
        let mut most = Duration::from_millis(100);
        for wait in waits(1) {
            assert!(wait >= most / 2 && wait <= most, "{wait} of {most}");
            most = (most * 2).min(WAIT_MAX);
        }
        assert_ne!(waits(1), waits(2));
    }

    #[test]
    fn a_connection_that_lasted_a_second_resets_the_wait_and_a_short_one_does_not() {
        let (mut backoff, mut now) = (Backoff::new(Dice(1)), Time::ZERO);
        let mut lasts = |time| {
            now = now.max(backoff.until());
            backoff.connected(now);
            now += time;
            backoff.failed(now);
            backoff.until().since(now)
        };
        for _ in 0..10 {
            lasts(Duration::from_millis(1));
        }
        assert!(lasts(Duration::from_millis(999)) >= WAIT_MAX / 2);
        assert!(lasts(GOOD_AFTER) <= WAIT_MIN);
        assert!(lasts(Duration::ZERO) > WAIT_MIN / 2);
    }

    #[test]
    fn an_absent_agent_is_looked_for_ten_times_a_second() {
        let (mut backoff, mut now, mut attempts) = (Backoff::new(Dice(3)), Time::ZERO, 0);
        while now < Time::ZERO + Duration::from_secs(10) {
            backoff.absent(now);
            now = backoff.until();
            attempts += 1;
        }
        assert!((100..=200).contains(&attempts), "{attempts}");
    }
}
