//! Control law of the delay mode: one of Nimbus' laws, within a bundle's bounds.

use crate::nimbus::{Basic, Copa, DelayInputs, DelayMode, QueueTargetBounds};

/// Maximum target queue, seconds. Not in the reference, where a fifth of 200 ms would be 40 ms of
/// delay for everyone. A pulse of a quarter of the link needs 6.6 ms at 6 Hz. With 6 ms, a bundle
/// left traffic-passing mode next to a Cubic flow in one of ten runs (seeds 1 to 10). With 10 ms,
/// everyone waits longer without benefit.
const QUEUE_TARGET_SECONDS_MAX: f64 = 0.008;
/// Maximum on long paths, as a fraction of the base RTT. Not in the reference. With less, the link
/// is idle at times. With more, paths below 160 ms have an unnecessarily long queue ...
const LONG_PATH_QUEUE_RTT_SHARE: f64 = 0.05;
/// ... up to this limit, seconds.
const LONG_PATH_QUEUE_SECONDS_MAX: f64 = 0.010;
/// Target without cross traffic, as a fraction of the base RTT: no pulse needs a queue then. Not in
/// the reference. A longer queue delays every exchange: at 50 ms, a target of 4 ms adds 0.8 ms over
/// 3 ms (seeds 1 to 5).
const EXCLUSIVE_QUEUE_RTT_SHARE: f64 = 0.06;
/// Minimum of that target, seconds. Lower values have no visible benefit: 3 and 2 ms perform alike
/// at half load (seeds 1 to 5).
const EXCLUSIVE_QUEUE_SECONDS_MIN: f64 = 0.003;
/// Minimum target queue, packets at the capacity: below it, a single packet looks like an excessive
/// queue.
const QUEUE_TARGET_PACKETS_MIN: f64 = 4.0;
/// Maximum change of Copa's window per RTT, as a fraction per second of base RTT. Not in the
/// reference. An eighth at 50 ms, where it equals a velocity of 32 at 96 Mbit/s. A response takes
/// an RTT and two ticks. Without this bound, the queue oscillates between empty and six times its
/// target at 20 ms. A lower bound is slower to use capacity that other flows leave.
const WINDOW_CHANGE_PER_RTT_SECOND: f64 = 2.5;
/// Target queue as a fraction of the base RTT (the reference's 1.2 and 1.25).
const COPA_QUEUE_RTT_SHARE: f64 = 0.20;
const BASIC_DELAY_QUEUE_RTT_SHARE: f64 = 0.25;
/// Minimum rate as a fraction of the capacity (reference).
const RATE_CAPACITY_SHARE_MIN: f64 = 0.05;
/// Minimum rate, bytes/s: 1 Mbit/s, the lower bound of Bundler's sendbox.
pub(super) const RATE_BYTES_PER_SECOND_MIN: f64 = 125_000.0;
/// Maximum rate as a fraction of the capacity, so that an estimate that is too low by half can
/// still grow to the true value.
const RATE_CAPACITY_SHARE_MAX: f64 = 2.0;

/// Control law with its state.
#[derive(Clone, Copy, Debug)]
pub(super) enum BundleLaw {
    Copa(Copa),
    Basic(Basic),
}

impl BundleLaw {
    /// Starts at a rate, bytes/s, with this RTT and base RTT, seconds.
    pub fn starting_at(mode: DelayMode, rate: f64, rtt: f64, base: f64) -> BundleLaw {
        match mode {
            DelayMode::Copa => BundleLaw::Copa(Copa::with_window(rate * rtt)),
            DelayMode::Basic => BundleLaw::Basic(Basic::starting_at(rtt / base)),
        }
    }

    /// Returns the bounds of the target queue for a capacity, bytes/s, and a base RTT, seconds.
    /// `alone`: there is no cross traffic that a pulse would have to detect.
    pub fn bounds(capacity: f64, mss: f64, base: f64, alone: bool) -> QueueTargetBounds {
        let longest = (LONG_PATH_QUEUE_RTT_SHARE * base)
            .clamp(QUEUE_TARGET_SECONDS_MAX, LONG_PATH_QUEUE_SECONDS_MAX);
        let most = match alone {
            true => (EXCLUSIVE_QUEUE_RTT_SHARE * base)
                .max(EXCLUSIVE_QUEUE_SECONDS_MIN)
                .min(longest),
            false => longest,
        };
        QueueTargetBounds {
            min: QUEUE_TARGET_PACKETS_MIN * mss / capacity,
            max: most,
            step: WINDOW_CHANGE_PER_RTT_SECOND * base,
        }
    }

    /// Returns the target queue, seconds.
    pub fn queue_target(&self, base: f64, bounds: QueueTargetBounds) -> f64 {
        let part = match self {
            BundleLaw::Copa(_) => COPA_QUEUE_RTT_SHARE,
            BundleLaw::Basic(_) => BASIC_DELAY_QUEUE_RTT_SHARE,
        };
        (part * base).min(bounds.max).max(bounds.min)
    }

    /// Returns the rate after `elapsed` seconds with `lost` bytes. If the site sends less than its
    /// rate (`limited`), the current rate has not been tested, so Copa's window may only decrease.
    /// A burst then builds up in the site's own queue, not in the network.
    pub fn rate(
        &mut self,
        now: &DelayInputs,
        elapsed: f64,
        lost: f64,
        limited: bool,
        rate: f64,
    ) -> f64 {
        let next = match self {
            BundleLaw::Copa(copa) => {
                let mut tried = *copa;
                let next = tried.rate(now, elapsed);
                if limited && next >= rate {
                    rate
                } else {
                    *copa = tried;
                    next
                }
            }
            BundleLaw::Basic(basic) => {
                basic.update_target(now, lost);
                basic.rate(now)
            }
        };
        next.clamp(floor(now.mu), max_rate(now.mu))
    }

    /// Raises the law to at least `rate`, bytes/s, at this RTT, seconds.
    pub fn raise_to(&mut self, rate: f64, rtt: f64) {
        if let BundleLaw::Copa(copa) = self {
            copa.raise_to(rate * rtt);
        }
    }
}

/// Returns the minimum rate, bytes/s.
pub(super) fn floor(capacity: f64) -> f64 {
    (RATE_CAPACITY_SHARE_MIN * capacity).max(RATE_BYTES_PER_SECOND_MIN)
}

/// Returns the maximum rate, bytes/s.
pub(super) fn max_rate(capacity: f64) -> f64 {
    (RATE_CAPACITY_SHARE_MAX * capacity).max(RATE_BYTES_PER_SECOND_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(rtt: f64) -> DelayInputs {
        DelayInputs {
            s: 10e6,
            z: 0.0,
            mu: 12e6,
            rtt,
            base_rtt: 0.1,
            acked: 100_000.0,
            mss: 1_500.0,
            target_bounds: BundleLaw::bounds(12e6, 1_500.0, 0.1, false),
        }
    }

    #[test]
    fn the_target_is_a_bounded_fraction_of_the_rtt() {
        for (which, base, capacity, alone, expected) in [
            (DelayMode::Copa, 0.2, 12e6, false, 0.010),
            (DelayMode::Copa, 0.1, 12e6, false, 0.008),
            (DelayMode::Copa, 0.02, 12e6, false, 0.004),
            (DelayMode::Basic, 0.02, 12e6, false, 0.005),
            (DelayMode::Copa, 0.2, 12e6, true, 0.010),
            (DelayMode::Copa, 0.1, 12e6, true, 0.006),
            (DelayMode::Copa, 0.05, 12e6, true, 0.003),
            (DelayMode::Copa, 0.01, 12e6, true, 0.002),
            // Four packets at 1 Mbit/s.
            (DelayMode::Copa, 0.02, 125_000.0, true, 0.048),
        ] {
            let aim = BundleLaw::starting_at(which, 1e6, base, base)
                .queue_target(base, BundleLaw::bounds(capacity, 1_500.0, base, alone));
            assert!(
                (aim - expected).abs() < 1e-9,
                "{which:?} {base} {capacity}: {aim}"
            );
        }
    }

    #[test]
    fn an_application_limited_site_gets_no_higher_rate() {
        let mut law = BundleLaw::starting_at(DelayMode::Copa, 10e6, 0.1, 0.1);
        assert_eq!(law.rate(&now(0.1), 0.01, 0.0, true, 10e6), 10e6);
        assert!(law.rate(&now(0.1), 0.01, 0.0, false, 10e6) > 10e6);
        assert!(law.rate(&now(0.15), 0.01, 0.0, true, 10e6) < 10e6);
    }

    #[test]
    fn the_rate_stays_within_its_bounds() {
        let mut law = BundleLaw::starting_at(DelayMode::Basic, 10e6, 0.1, 0.1);
        let full = DelayInputs {
            s: 1e6,
            z: 11e6,
            ..now(5.0)
        };
        assert_eq!(law.rate(&full, 0.01, 0.0, false, 10e6), 600_000.0);
        let wide = DelayInputs {
            s: 100e6,
            ..now(0.1)
        };
        assert_eq!(law.rate(&wide, 0.01, 0.0, false, 10e6), 24e6);
        let slow = DelayInputs {
            mu: 50_000.0,
            ..now(5.0)
        };
        assert_eq!(law.rate(&slow, 0.01, 0.0, false, 10e6), 125_000.0);
    }
}
