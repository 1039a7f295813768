//! Transitions into and out of traffic-passing mode.
//!
//! A bundle *enters* the mode when delay control is futile. Buffer-filling traffic takes what the
//! law yields, and the queue remains: within two seconds a law would yield everything. Next to
//! cross traffic the bundle therefore keeps two fifths of its rate of 5 s ago. It enters the mode
//! if the law demands less than that and the queue is still twice its target after a second.
//! Inelastic traffic takes what it needs of the rest, and the queue drains. Nimbus' η reacts later,
//! because a pulse takes seconds to fill its window, and it mistakes other bundles for elastic
//! traffic. It detected no case that this rule missed.
//!
//! A bundle *leaves* the mode only on evidence that there is no elastic traffic; the absence of a
//! signal is not evidence. For ACK-clocked traffic, ẑ mirrors R at every frequency, since what
//! arrives of one does not arrive of the other. For inelastic traffic, R contains only the pulse,
//! and ẑ none of it. |ẑ| over |R| at the pulse frequency, provided that the pulse is prominent in
//! R, is therefore near 1 or near 0. η compares ẑ with itself at other frequencies, at which it
//! mirrors R too, and is 0.6 to 6 next to a single Cubic flow.

use ccplane_units::{Duration, Time};

use crate::nimbus::{NimbusMode, Reading};

/// Fraction of the rate of 5 s ago to keep next to cross traffic. With less, the site starves
/// before it passes. With more, inelastic traffic that needs half of the link, such as a second
/// bundle, keeps the queue.
const KEPT_RATE_SHARE: f64 = 0.4;
/// A queue of this multiple of its target ...
const QUEUE_EXCESS_RATIO: f64 = 2.0;
/// ... for this long, while the law demands less than is kept, belongs to traffic that does not
/// yield. The law alone shortens a queue faster.
const QUEUE_EXCESS_PERIOD: Duration = Duration::from_secs(1);
/// Fraction of 5 s with a queue below which the traffic that filled the queue has ended (Nimbus'
/// switch).
const QUEUE_TIME_SHARE_MIN: f64 = 0.1;
/// Cross traffic below this fraction of the link, averaged over 5 s, is treated as absent. Next to
/// a busy site a Cubic flow has a tenth, and at times a twentieth.
const CROSS_ABSENT: f64 = 0.03;
/// The pulse is prominent if R at its frequency exceeds the neighbouring R by this factor.
/// Otherwise R there is noise, which ẑ mirrors.
const PULSE_PROMINENCE_MIN: f64 = 3.0;
/// Ratio |ẑ|/|R| below which there is no elastic traffic: 0.5 to 1.5 with ACK-clocked traffic, 0 to
/// 0.1 with a constant rate, up to 0.3 with Poisson arrivals.
const ELASTIC_RESPONSE_MIN: f64 = 0.3;
/// Samples in which a response is measured: 2.56 s, so that traffic that has ended soon expires.
/// With 3.2 s a bundle returns 0.4 to 0.8 s later, and leaves as rarely while other traffic remains
/// (seeds 101 to 140). With 5.12 s, responses of traffic that had ended persisted for that long.
pub(super) const RESPONSE_SAMPLES: usize = 256;
/// Gain of the moving average of the response per sample interval: a time constant of one second,
/// as for η in the reference.
const RESPONSE_GAIN: f64 = 0.01;

/// Mode, and the evidence against it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassThrough {
    mode: NimbusMode,
    /// Time since which the queue has been excessive although the law demands less than is kept.
    excessive_since: Option<Time>,
    /// Averaged |ẑ| over |R| at the pulse frequency. Starts at 1: traffic is elastic until proven
    /// otherwise.
    avg_response: f64,
}

impl PassThrough {
    /// Starts in this mode, without evidence.
    pub fn new(mode: NimbusMode) -> PassThrough {
        PassThrough {
            mode,
            excessive_since: None,
            avg_response: 1.0,
        }
    }

    /// Returns the mode.
    pub fn mode(&self) -> NimbusMode {
        self.mode
    }

    /// Returns the fraction of the pulse in R to which cross traffic responds, 0 to 1; 0 in delay
    /// mode.
    pub fn response(&self) -> f64 {
        match self.mode {
            NimbusMode::Delay => 0.0,
            NimbusMode::Competitive => self.avg_response,
        }
    }

    /// Returns the rate to keep next to cross traffic, given the rate of 5 s ago and the capacity,
    /// bytes/s.
    pub fn rate_to_keep(prior_rate: f64, capacity: f64) -> f64 {
        KEPT_RATE_SHARE * prior_rate.min(capacity)
    }

    /// Updates with the queue and its target, seconds, and whether the law demands less than is
    /// kept.
    pub fn update(&mut self, now: Time, queue: f64, target: f64, wants_less: bool) {
        if queue < QUEUE_EXCESS_RATIO * target {
            self.excessive_since = None;
        } else if wants_less {
            self.excessive_since.get_or_insert(now);
        }
    }

    /// Returns true if a bundle in delay mode should pass.
    pub fn should_enter(&self, now: Time) -> bool {
        self.mode == NimbusMode::Delay
            && self
                .excessive_since
                .is_some_and(|since| now.since(since) >= QUEUE_EXCESS_PERIOD)
    }

    /// Returns true if a bundle in traffic-passing mode should leave it. `reading` covers the whole
    /// window, `count` samples after the last reading. `lately` covers the last
    /// [`RESPONSE_SAMPLES`] samples, in which this bundle always pulsed.
    pub fn should_leave(
        &mut self,
        reading: &Reading,
        recent: &Reading,
        capacity: f64,
        count: u32,
    ) -> bool {
        let answer = if recent.prominence >= PULSE_PROMINENCE_MIN {
            recent.response.min(1.0)
        } else {
            1.0
        };
        let gain = 1.0 - libm::pow(1.0 - RESPONSE_GAIN, f64::from(count));
        self.avg_response += gain * (answer - self.avg_response);
        reading.mean_z < CROSS_ABSENT * capacity || self.avg_response < ELASTIC_RESPONSE_MIN
    }

    /// Returns true if the queue in the network is gone, regardless of the pulse.
    pub fn is_over(reading: &Reading) -> bool {
        reading.busy_fraction < QUEUE_TIME_SHARE_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nimbus::Capacity;

    const MU: f64 = 12e6;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn reading(answer: f64, prominence: f64, standing: f64) -> Reading {
        Reading {
            eta: 1.0,
            recent_z: standing * MU,
            mean_z: standing * MU,
            response: answer,
            prominence,
            busy_fraction: 1.0,
            recent_busy_fraction: 1.0,
            capacity: Capacity::Unknown,
        }
    }

    /// Returns when the mode ends, in tenths of a second, within `tenths`.
    fn leaves(reading: Reading, tenths: u32) -> Option<u32> {
        let mut passage = PassThrough::new(NimbusMode::Competitive);
        (1..=tenths).find(|_| passage.should_leave(&reading, &reading, MU, 10))
    }

    #[test]
    fn a_queue_that_survives_yielding_causes_pass_through() {
        let mut passage = PassThrough::new(NimbusMode::Delay);
        let mut enters = |n: u64, queue: f64, wants_less: bool| {
            passage.update(at(10 * n), queue, 0.01, wants_less);
            passage.should_enter(at(10 * n))
        };
        // The queue is long, but the law has not yielded as far as it may.
        assert!((0..300).all(|n| !enters(n, 0.05, false)));
        // The queue drains now and then, so it is the law's own.
        assert!((300..1_300).all(|n| !enters(n, if n % 90 == 0 { 0.015 } else { 0.05 }, true)));
        assert!(!enters(1_300, 0.015, true));
        assert_eq!(
            (1_301..1_500).find(|n| enters(*n, 0.05, true)),
            Some(1_401),
            "a second of it"
        );
    }

    #[test]
    fn an_unanswered_pulse_ends_pass_through() {
        assert_eq!(leaves(reading(0.8, 5.0, 0.2), 1_000), None);
        // With a time constant of 1 s, the average from 1 to 0.1 passes 0.3 after ln(0.9 / 0.2) =
        // 1.5 s.
        assert_eq!(leaves(reading(0.1, 5.0, 0.2), 1_000), Some(15));
        assert_eq!(leaves(reading(0.1, 2.0, 0.2), 1_000), None);
        assert_eq!(
            leaves(reading(0.8, 5.0, 0.02), 1_000),
            Some(1),
            "nobody is there"
        );
        let empty = Reading {
            busy_fraction: 0.05,
            ..reading(0.8, 5.0, 0.2)
        };
        assert!(PassThrough::is_over(&empty) && !PassThrough::is_over(&reading(0.8, 5.0, 0.2)));
    }
}
