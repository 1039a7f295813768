//! What the bottleneck carries, as far as one sender can know.
//!
//! Nothing arrives faster than the bottleneck sends, so the largest R is a lower bound, and the
//! capacity where we filled the link alone at some time (what the paper and its reference take, the
//! latter for ever). Beside others that bound decays to our share, and with too small a capacity
//! our own pulse shows up in ẑ = µ·S/R − S as if others answered. Therefore the pulse is asked too
//! ([`Reading::capacity`](super::elasticity::Reading)): beside traffic that does not answer it
//! shows the capacity, and alone it shows it exactly, also one that has become less.

use ccplane_units::{Duration, Time};

use super::elasticity;

/// How long an estimate holds, in parts: a rate that was seen two parts ago still counts. Long
/// enough that every 5 s window in it may have been disturbed; a capacity that fell is known sooner
/// where we are alone.
const PART: Duration = Duration::from_secs(10);
const PARTS: usize = 3;
/// Weight of a new sample of R in its average (reference, branch master): 50 ms, so that a burst of
/// ACKs is not a capacity.
const GAIN: f64 = 0.2;

/// `Shared` readings in a row, a tenth of a second apart, that have to agree ...
const AGREE: u32 = 30;
/// ... within this part: while others come and go the pulse shows anything, for as long as they are
/// in its window.
const WITHIN: f64 = 0.05;

/// The estimate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    /// R, averaged.
    received: f64,
    /// The largest of each part, the current one first, bytes/s.
    most: [f64; PARTS],
    since: Time,
    /// What the pulse showed first of readings that agree, bytes/s, and how many do.
    shown: f64,
    agree: u32,
}

impl Estimate {
    /// A sample of R, bytes/s, each interval. `ages`: time counts. While others compete it does
    /// not, since what we receive then is our share and says nothing of the link.
    pub fn push(&mut self, now: Time, received: f64, ages: bool) {
        self.received = if self.received == 0.0 {
            received
        } else {
            self.received + GAIN * (received - self.received)
        };
        if !ages {
            self.since = self.since.max(now);
        } else if now.since(self.since) >= PART {
            self.most.rotate_right(1);
            self.most[0] = 0.0;
            self.since = now;
        }
        self.raise(self.received);
    }

    /// What the pulse says. Whether it has said it for long enough to be believed.
    pub fn learn(&mut self, reading: elasticity::Capacity) -> bool {
        match reading {
            elasticity::Capacity::Alone(rate) => {
                self.most = [rate, 0.0, 0.0];
                return true;
            }
            elasticity::Capacity::Shared(rate) if (rate / self.shown - 1.0).abs() <= WITHIN => {
                self.agree += 1;
                if self.agree >= AGREE {
                    self.raise(rate);
                    return true;
                }
            }
            elasticity::Capacity::Shared(rate) => (self.shown, self.agree) = (rate, 1),
            elasticity::Capacity::Unknown => self.agree = 0,
        }
        false
    }

    /// µ, bytes/s; 0 before the first sample.
    pub fn get(&self) -> f64 {
        self.most.iter().copied().fold(0.0, f64::max)
    }

    fn raise(&mut self, rate: f64) {
        self.most[0] = self.most[0].max(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn it_rises_at_once_and_expires() {
        let mut estimate = Estimate::default();
        (0..100).for_each(|_| estimate.push(at(0), 12e6, true));
        assert!((estimate.get() / 12e6 - 1.0).abs() < 1e-6);
        for second in 1..100 {
            estimate.push(at(second), 3e6, true);
            let held = estimate.get() > 11e6;
            assert_eq!(held, second < 30, "at {second} s: {}", estimate.get());
        }
        assert!(estimate.get() < 3.1e6);
    }

    #[test]
    fn beside_competitors_it_does_not_age() {
        let mut estimate = Estimate::default();
        (0..100).for_each(|_| estimate.push(at(0), 12e6, true));
        (1..1000).for_each(|second| estimate.push(at(second), 3e6, false));
        assert!(estimate.get() > 11e6);
        // From then on time counts again.
        (1000..1009).for_each(|second| estimate.push(at(second), 3e6, true));
        assert!(estimate.get() > 11e6);
    }

    #[test]
    fn alone_it_falls_at_once() {
        let mut estimate = Estimate::default();
        (0..100).for_each(|_| estimate.push(at(0), 12e6, true));
        let _ = estimate.learn(elasticity::Capacity::Unknown);
        assert!(estimate.get() > 11.9e6);
        let _ = estimate.learn(elasticity::Capacity::Alone(6e6));
        assert_eq!(estimate.get(), 6e6);
    }

    #[test]
    fn what_the_pulse_shows_beside_others_counts_when_it_lasts() {
        let mut estimate = Estimate::default();
        (0..100).for_each(|_| estimate.push(at(0), 6e6, true));
        for n in 0..100 {
            let _ = estimate.learn(elasticity::Capacity::Shared(if n % 20 < 10 {
                13e6
            } else {
                20e6
            }));
            assert!(estimate.get() < 6.1e6);
        }
        let believed = (0..30)
            .filter(|_| estimate.learn(elasticity::Capacity::Shared(12e6)))
            .count();
        assert_eq!(believed, 1, "the thirtieth");
        assert_eq!(estimate.get(), 12e6);
    }

    #[test]
    fn a_burst_is_averaged() {
        let mut estimate = Estimate::default();
        (0..100).for_each(|_| estimate.push(at(0), 12e6, true));
        estimate.push(at(0), 24e6, true);
        assert!(estimate.get() < 15e6);
    }
}
