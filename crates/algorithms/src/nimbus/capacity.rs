//! Estimate of the bottleneck capacity from the measurements of one sender.
//!
//! Data never arrives faster than the bottleneck sends, so the maximum of R is a lower bound, and
//! equals the capacity if the flow filled the link alone at some time. (The paper uses this
//! maximum; its reference never expires it.) Next to other flows the maximum decays to the flow's
//! share, and with µ too low, the flow's own pulse appears in ẑ = µ·S/R − S as if the cross traffic
//! were elastic. Therefore the pulse is evaluated too
//! ([`Reading::capacity`](super::elasticity::Reading)). Next to inelastic traffic it yields the
//! capacity. Alone it yields the exact capacity, even after a decrease.

use ccplane_units::{Duration, Time};

use super::elasticity;

/// Length of one part of the maximum filter; a rate expires after [`FILTER_PARTS`] of them. Long
/// enough that every 5 s window in it may have been disturbed. If the flow is alone, a decrease of
/// the capacity is recognized sooner.
const FILTER_PART_LENGTH: Duration = Duration::from_secs(10);
const FILTER_PARTS: usize = 3;
/// Gain of the moving average of R (reference, branch master): 50 ms, so that a burst of ACKs is
/// not taken for the capacity.
const RECEIVE_RATE_GAIN: f64 = 0.2;

/// Consecutive `Shared` readings, 100 ms apart, that must agree ...
const AGREEING_READINGS_MIN: u32 = 30;
/// ... within this fraction. While cross traffic changes, readings are arbitrary until the change
/// has left the window.
const READING_TOLERANCE: f64 = 0.05;

/// Capacity estimate.
#[derive(Clone, Copy, Debug, Default)]
pub struct CapacityEstimate {
    /// Moving average of R.
    received: f64,
    /// Maximum of each part, the current part first, bytes/s.
    part_maxima: [f64; FILTER_PARTS],
    since: Time,
    /// First of the agreeing `Shared` readings, bytes/s, and their number.
    shared_reading: f64,
    agreeing_readings: u32,
}

impl CapacityEstimate {
    /// Adds a sample of R, bytes/s, once per interval. With `ages` false, the filter does not
    /// expire: next to competing flows R is only the flow's share of the link.
    pub fn push(&mut self, now: Time, received: f64, ages: bool) {
        self.received = if self.received == 0.0 {
            received
        } else {
            self.received + RECEIVE_RATE_GAIN * (received - self.received)
        };
        if !ages {
            self.since = self.since.max(now);
        } else if now.since(self.since) >= FILTER_PART_LENGTH {
            self.part_maxima.rotate_right(1);
            self.part_maxima[0] = 0.0;
            self.since = now;
        }
        self.raise(self.received);
    }

    /// Processes a reading. Returns true if it updated the estimate.
    pub fn learn(&mut self, reading: elasticity::Capacity) -> bool {
        match reading {
            elasticity::Capacity::Alone(rate) => {
                self.part_maxima = [rate, 0.0, 0.0];
                return true;
            }
            elasticity::Capacity::Shared(rate)
                if (rate / self.shared_reading - 1.0).abs() <= READING_TOLERANCE =>
            {
                self.agreeing_readings += 1;
                if self.agreeing_readings >= AGREEING_READINGS_MIN {
                    self.raise(rate);
                    return true;
                }
            }
            elasticity::Capacity::Shared(rate) => {
                (self.shared_reading, self.agreeing_readings) = (rate, 1)
            }
            elasticity::Capacity::Unknown => self.agreeing_readings = 0,
        }
        false
    }

    /// Returns µ, bytes/s; 0 before the first sample.
    pub fn get(&self) -> f64 {
        self.part_maxima.iter().copied().fold(0.0, f64::max)
    }

    fn raise(&mut self, rate: f64) {
        self.part_maxima[0] = self.part_maxima[0].max(rate);
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
        let mut estimate = CapacityEstimate::default();
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
    fn the_base_rtt_does_not_expire_next_to_competitors() {
        let mut estimate = CapacityEstimate::default();
        (0..100).for_each(|_| estimate.push(at(0), 12e6, true));
        (1..1000).for_each(|second| estimate.push(at(second), 3e6, false));
        assert!(estimate.get() > 11e6);
        // From here on the filter expires again.
        (1000..1009).for_each(|second| estimate.push(at(second), 3e6, true));
        assert!(estimate.get() > 11e6);
    }

    #[test]
    fn the_base_rtt_falls_immediately_when_alone() {
        let mut estimate = CapacityEstimate::default();
        (0..100).for_each(|_| estimate.push(at(0), 12e6, true));
        let _ = estimate.learn(elasticity::Capacity::Unknown);
        assert!(estimate.get() > 11.9e6);
        let _ = estimate.learn(elasticity::Capacity::Alone(6e6));
        assert_eq!(estimate.get(), 6e6);
    }

    #[test]
    fn persistent_pulse_measurements_next_to_others_count() {
        let mut estimate = CapacityEstimate::default();
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
        let mut estimate = CapacityEstimate::default();
        (0..100).for_each(|_| estimate.push(at(0), 12e6, true));
        estimate.push(at(0), 24e6, true);
        assert!(estimate.get() < 15e6);
    }
}
