//! Liveness of the peer. The connection's own timer backs off exponentially and would send only six
//! probes in ten seconds. This module probes often enough to distinguish loss from a dead peer:
//! with 30 % loss in each direction half of the probes are answered, and all twelve remain
//! unanswered once in four thousand cases.

use std::time::Instant;

use ccplane_units::{Duration, Time};

/// Unanswered probes after which a silent peer is given up.
pub const UNANSWERED_PROBES_MAX: u32 = 12;
/// Interval of probes after a refusal.
const REFUSAL_CONFIRM_INTERVAL: Duration = Duration::from_millis(200);
/// Consecutive refused probes, with nothing received in between, that end the connection. A single
/// refusal can be forged, or answer an earlier datagram.
const REFUSALS_MIN: u64 = 3;

/// Action to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LivenessVerdict {
    /// None.
    Wait,
    /// Send a probe.
    Probe,
    /// Give up: the peer does not answer.
    TimedOut,
    /// Give up: the peer's host reports that its port is closed.
    Refused,
}

/// Liveness of one connection.
#[derive(Clone, Debug)]
pub struct Liveness {
    timeout: Duration,
    /// Start of the current silence.
    silence_start: Time,
    probes_sent: u32,
    last_probe: Time,
    /// Refusals counted when the silence began.
    refusals: u64,
    /// Refusals counted at the last probe, and the number of consecutive refused probes.
    refusals_at_probe: u64,
    refused_probes: u64,
}

impl Liveness {
    /// Starts at `now`. `timeout`: silence after which the peer is given up; 10 s for interactive
    /// use.
    pub fn new(now: Time, timeout: Duration) -> Liveness {
        Liveness {
            timeout,
            silence_start: now,
            probes_sent: 0,
            last_probe: now,
            refusals: 0,
            refusals_at_probe: 0,
            refused_probes: 0,
        }
    }

    /// Returns the next action, given the time of the last received packet and the number of
    /// datagrams refused by the peer's host so far.
    pub fn poll(&mut self, now: Time, last_received: Time, refusals: u64) -> LivenessVerdict {
        if last_received > self.silence_start {
            *self = Liveness {
                silence_start: last_received,
                last_probe: last_received,
                refusals,
                refusals_at_probe: refusals,
                ..Liveness::new(last_received, self.timeout)
            };
        }
        if self.probes_sent >= UNANSWERED_PROBES_MAX
            && now.since(self.silence_start) >= self.timeout
        {
            return LivenessVerdict::TimedOut;
        }
        let refused = refusals > self.refusals;
        let every = if refused {
            REFUSAL_CONFIRM_INTERVAL
        } else {
            self.timeout / u64::from(UNANSWERED_PROBES_MAX + 1)
        };
        if now.since(self.last_probe) < every {
            return LivenessVerdict::Wait;
        }
        // Evaluates the previous probe.
        if refused && self.probes_sent > 0 {
            self.refused_probes = if refusals > self.refusals_at_probe {
                self.refused_probes + 1
            } else {
                0
            };
            if self.refused_probes >= REFUSALS_MIN {
                return LivenessVerdict::Refused;
            }
        }
        self.refusals_at_probe = refusals;
        self.probes_sent += 1;
        self.last_probe = now;
        LivenessVerdict::Probe
    }
}

/// Multiple of --timeout after which a live receiver without progress is given up. A disk may need
/// minutes to store a file.
pub const STALL_TIMEOUTS: u64 = 30;

/// Time since the peer's last progress, while progress is expected of it.
#[derive(Clone, Copy, Debug)]
pub struct PeerProgress {
    count: u64,
    last_progress: Instant,
}

impl PeerProgress {
    /// Starts at `now`.
    pub fn new(now: Instant) -> PeerProgress {
        PeerProgress {
            count: 0,
            last_progress: now,
        }
    }

    /// Returns true if `count` has not changed for `limit` while it was the peer's turn throughout.
    pub fn has_stalled(
        &mut self,
        now: Instant,
        count: u64,
        is_its_turn: bool,
        limit: Duration,
    ) -> bool {
        if count != self.count || !is_its_turn {
            *self = PeerProgress {
                count,
                last_progress: now,
            };
        }
        now.saturating_duration_since(self.last_progress) > limit.to_std()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
    const TIME_STEP: Duration = Duration::from_millis(50);

    /// Simulates `seconds`. `answers` decides the fate of each probe: answered, refused, or
    /// neither. Returns when and why the peer was given up, and the number of probes.
    fn run(
        seconds: u64,
        mut answers: impl FnMut(u32) -> (bool, bool),
    ) -> (Option<(Duration, LivenessVerdict)>, u32) {
        let (mut heard, mut refusals, mut asked) = (Time::ZERO, 0, 0);
        let mut liveness = Liveness::new(Time::ZERO, SILENCE_TIMEOUT);
        let mut now = Time::ZERO;
        while now < Time::ZERO + Duration::from_secs(seconds) {
            now += TIME_STEP;
            match liveness.poll(now, heard, refusals) {
                LivenessVerdict::Wait => {}
                LivenessVerdict::Probe => {
                    asked += 1;
                    let (answered, refused) = answers(asked);
                    heard = if answered { now } else { heard };
                    refusals += u64::from(refused);
                }
                over => return (Some((now.since(Time::ZERO), over)), asked),
            }
        }
        (None, asked)
    }

    #[test]
    fn a_silent_peer_times_out_after_ten_seconds_and_twelve_probes() {
        let (over, asked) = run(60, |_| (false, false));
        let (after, verdict) = over.unwrap();
        assert_eq!(verdict, LivenessVerdict::TimedOut);
        assert!(
            after >= SILENCE_TIMEOUT && after <= SILENCE_TIMEOUT + Duration::from_secs(1),
            "{after}"
        );
        assert!(asked >= UNANSWERED_PROBES_MAX);
    }

    #[test]
    fn a_refusal_counts_only_if_confirmed() {
        let (over, _) = run(60, |_| (false, true));
        let (after, verdict) = over.unwrap();
        assert_eq!(verdict, LivenessVerdict::Refused);
        assert!(after < Duration::from_secs(3), "{after}");
        // Single refusals are ignored if the peer answers the next probe.
        let (over, _) = run(60, |n| (n % 2 == 0, n % 2 == 1));
        assert_eq!(over, None);
    }

    #[test]
    fn a_live_peer_is_probed_and_kept() {
        let (over, asked) = run(120, |_| (true, false));
        assert_eq!(over, None);
        assert!(asked > 100, "{asked}");
    }

    #[test]
    fn a_stall_is_a_period_without_progress() {
        let limit = Duration::from_secs(2);
        #[expect(
            clippy::disallowed_methods,
            reason = "an origin of times, which are independent of the clock"
        )]
        let begin = Instant::now();
        let at = |seconds: u64| begin + std::time::Duration::from_secs(seconds);
        let mut progress = PeerProgress::new(begin);
        assert!(!progress.has_stalled(at(2), 0, true, limit));
        assert!(progress.has_stalled(at(3), 0, true, limit));
        assert!(
            !progress.has_stalled(at(4), 1, true, limit),
            "data was received"
        );
        assert!(
            !progress.has_stalled(at(9), 1, false, limit),
            "the source pauses"
        );
        assert!(!progress.has_stalled(at(11), 1, true, limit));
        assert!(progress.has_stalled(at(12), 1, true, limit));
    }

    proptest! {
        #[test]
        fn a_peer_that_answers_one_probe_in_ten_is_kept(first in 1u32..10) {
            let (over, _) = run(200, |n| (n % 10 == first % 10, false));
            prop_assert_eq!(over, None);
        }
    }
}
