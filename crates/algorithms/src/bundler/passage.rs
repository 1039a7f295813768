//! When a bundle lets traffic pass, and when no longer.
//!
//! The mode *passes* when delay control is useless. Traffic that fills the queue takes what the law
//! leaves, and the queue stays: a law that went on would leave everything within two seconds. So
//! beside others the bundle keeps two fifths of its rate of 5 s ago. It passes where the law wants
//! less than that and the queue is still twice its aim after a second. Traffic that does not answer
//! gets what it needs of the rest, and the queue goes. Nimbus' η comes later, since a pulse takes
//! seconds to fill its window, and finds other bundles elastic. Beside this rule it found nobody
//! else.
//!
//! It *leaves* passing only on evidence that no answering traffic is there. That nothing is seen is
//! no evidence. For traffic with an ACK clock ẑ mirrors R at every frequency: what arrives of the
//! one does not arrive of the other. For traffic that does not answer only our pulse is in R, and
//! none of it in ẑ. So |ẑ| over |R| at the pulse, where that stands out of R, is near 1 or near 0.
//! η compares ẑ with itself at other frequencies, which it mirrors too, and is 0.6 to 6 beside one
//! Cubic flow.

use ccplane_units::{Duration, Time};

use crate::nimbus::{Mode, Reading};

/// What is kept beside others of the rate of 5 s ago. Less, and the site starves before it passes.
/// More, and traffic that does not answer and wants half of the link, as a second bundle does,
/// keeps the queue.
const KEEPS: f64 = 0.4;
/// A queue of so many times its aim ...
const TOO_LONG: f64 = 2.0;
/// ... for so long, while the law wants less than is kept, is somebody's who does not give way. The
/// law itself takes less to shorten it.
const IN_VAIN: Duration = Duration::from_secs(1);
/// Where there was a queue in less than this part of 5 s, whoever filled it has gone (Nimbus'
/// switch).
const GONE: f64 = 0.1;
/// Cross traffic of less than this part of the link on average over 5 s is nobody. Beside a busy
/// site a Cubic flow has a tenth, and for seconds a twentieth.
const NOBODY: f64 = 0.03;
/// The pulse stands out of R where R is so many times higher at it than beside. Less, and R there
/// is noise, which ẑ mirrors.
const STANDS_OUT: f64 = 3.0;
/// What of R is in ẑ, below which nobody answers. ACK clocks have 0.5 to 1.5, a constant rate 0 to
/// 0.1, Poisson arrivals up to 0.3.
const NO_ANSWER: f64 = 0.3;
/// Samples in which an answer is looked for: 2.56 s, in which those who went are not for long. A
/// bundle is back 0.4 to 0.8 s later by 3.2 s, and leaves as seldom while others are there (seeds
/// 101 to 140); 5.12 s kept the answers of who had gone for as long.
pub(super) const LATELY: usize = 256;
/// Weight of a new answer for each sample interval: one second's average (as η's in the reference).
const GAIN: f64 = 0.01;

/// The mode and what speaks against it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    mode: Mode,
    /// Since when the queue has been too long though the law wants less than is kept.
    in_vain: Option<Time>,
    /// |ẑ| over |R| at the pulse, averaged. Others answer until the contrary has been seen.
    answer: f64,
}

impl Passage {
    /// In this mode, about which nothing is known.
    pub fn of(mode: Mode) -> Passage {
        Passage {
            mode,
            in_vain: None,
            answer: 1.0,
        }
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How much of the pulse in R others answered with, 0 to 1; 0 in delay mode.
    pub fn answer(&self) -> f64 {
        match self.mode {
            Mode::Delay => 0.0,
            Mode::Competitive => self.answer,
        }
    }

    /// The rate that a bundle keeps beside others when it had so much 5 s ago, bytes/s, of a link
    /// of this capacity.
    pub fn keeps(had: f64, capacity: f64) -> f64 {
        KEEPS * had.min(capacity)
    }

    /// The queue and its aim, seconds, and whether the law wants less than is kept.
    pub fn seen(&mut self, now: Time, queue: f64, aim: f64, wants_less: bool) {
        if queue < TOO_LONG * aim {
            self.in_vain = None;
        } else if wants_less {
            self.in_vain.get_or_insert(now);
        }
    }

    /// Whether a bundle in delay mode is to pass.
    pub fn enters(&self, now: Time) -> bool {
        self.mode == Mode::Delay
            && self
                .in_vain
                .is_some_and(|since| now.since(since) >= IN_VAIN)
    }

    /// In passing: whether it is to leave. `reading` is of the whole window, `count` samples after
    /// the last reading. `lately` is of the last [`LATELY`] samples, in which this bundle pulsed
    /// all the time.
    pub fn leaves(
        &mut self,
        reading: &Reading,
        lately: &Reading,
        capacity: f64,
        count: u32,
    ) -> bool {
        let answer = if lately.prominence >= STANDS_OUT {
            lately.answer.min(1.0)
        } else {
            1.0
        };
        let gain = 1.0 - libm::pow(1.0 - GAIN, f64::from(count));
        self.answer += gain * (answer - self.answer);
        reading.standing < NOBODY * capacity || self.answer < NO_ANSWER
    }

    /// The queue in the network is gone, whatever the pulse shows.
    pub fn is_over(reading: &Reading) -> bool {
        reading.busy < GONE
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
            cross: standing * MU,
            standing: standing * MU,
            answer,
            prominence,
            busy: 1.0,
            busy_now: 1.0,
            capacity: Capacity::Unknown,
        }
    }

    /// When it leaves, in tenths of a second, of so many.
    fn leaves(reading: Reading, tenths: u32) -> Option<u32> {
        let mut passage = Passage::of(Mode::Competitive);
        (1..=tenths).find(|_| passage.leaves(&reading, &reading, MU, 10))
    }

    #[test]
    fn a_queue_that_stays_though_the_law_gave_way_is_a_reason_to_pass() {
        let mut passage = Passage::of(Mode::Delay);
        let mut enters = |n: u64, queue: f64, wants_less: bool| {
            passage.seen(at(10 * n), queue, 0.01, wants_less);
            passage.enters(at(10 * n))
        };
        // Long, but the law has not given way as far as it may.
        assert!((0..300).all(|n| !enters(n, 0.05, false)));
        // It goes now and then: then it is the law's.
        assert!((300..1_300).all(|n| !enters(n, if n % 90 == 0 { 0.015 } else { 0.05 }, true)));
        assert!(!enters(1_300, 0.015, true));
        assert_eq!(
            (1_301..1_500).find(|n| enters(*n, 0.05, true)),
            Some(1_401),
            "a second of it"
        );
    }

    #[test]
    fn no_answer_to_a_pulse_that_arrives_is_a_reason_to_leave_and_an_unseen_one_is_none() {
        assert_eq!(leaves(reading(0.8, 5.0, 0.2), 1_000), None);
        // One second's average from 1 to 0.1 passes 0.3 after ln(0.9 / 0.2) = 1.5 s.
        assert_eq!(leaves(reading(0.1, 5.0, 0.2), 1_000), Some(15));
        assert_eq!(leaves(reading(0.1, 2.0, 0.2), 1_000), None);
        assert_eq!(
            leaves(reading(0.8, 5.0, 0.02), 1_000),
            Some(1),
            "nobody is there"
        );
        let empty = Reading {
            busy: 0.05,
            ..reading(0.8, 5.0, 0.2)
        };
        assert!(Passage::is_over(&empty) && !Passage::is_over(&reading(0.8, 5.0, 0.2)));
    }
}
