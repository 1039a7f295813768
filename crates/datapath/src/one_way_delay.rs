//! One-way queueing delay from the time stamps of both ends, whose clocks are independent (DX,
//! slides 9 to 18).
//!
//! A packet is sent at t1 and arrives at t2. Its acknowledgement is sent at t3 and arrives at t4.
//! t2 and t3 are read from the peer's clock. `t2 - t1` is the delay of the forward path plus the
//! unknown offset of the clocks. Its excess over its minimum is the packet's queueing delay, for
//! any offset, and whatever happens to the acknowledgements. `(t4 - t1) - (t3 - t2)` does not
//! contain the offset but includes both directions. The forward queueing delay is at most that sum
//! of both directions. The estimate is therefore the smaller of the two, each relative to its own
//! minimum:
//!
//! - Clocks that drift apart by d raise the first by at most d times [`MIN_FILTER_WINDOW`], and
//!   only if the return path is equally busy all that time; the minimum immediately follows clocks
//!   that drift together. Hence 0 <= error <= min(d * [`MIN_FILTER_WINDOW`], queueing delay and
//!   noise of the return path).
//! - If a clock is set forward, the round-trip form limits the estimate for one window. If it is
//!   set back, the next packet that finds the queues empty corrects the minimum.
//! - A queue that stands for a whole window without ever emptying is taken for the path, as with
//!   every minimum.
//!
//! Stamps count nanoseconds modulo 2^32, the size of a stamp in the TCP option. All differences are
//! computed modulo 2^32, so a delay must stay below 2.1 s.

use ccplane_units::{Duration, Time};

use crate::signals::Signals;
use crate::two_bucket_min::{HalfWindowMin, MinSample};

/// Window of the minima, of which they cover the last 5 to 10 s. A shorter one forgets the empty
/// path while a queue stands. A longer one keeps the error of a drifting clock, or the delay of a
/// route that no longer exists, for that long.
pub const MIN_FILTER_WINDOW: Duration = Duration::from_secs(10);

/// Four stamps of one exchange. t2 and t3 come from the peer's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeStamps {
    /// Transmission of the data.
    pub t1: Time,
    /// Arrival of the data at the peer.
    pub t2: Time,
    /// Transmission of the acknowledgement by the peer.
    pub t3: Time,
    /// Arrival of the acknowledgement.
    pub t4: Time,
}

/// Estimate of the one-way queueing delay of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneWay {
    forward: HalfWindowMin<WrappingNanos>,
    round_trip: HalfWindowMin<WrappingNanos>,
    /// Time of the last sample.
    sampled_at: Time,
    /// Last sample, ns: excess over the minimum forward delay, round trip, and queueing delay.
    forward_excess: u32,
    rtt: u32,
    queue: u32,
    dropped: u32,
}

impl OneWay {
    /// Adds the stamps of an exchange that ended at `now`, which may come from another clock than
    /// t1 and t4. Returns false if they are implausible, and counts them.
    pub fn sample(&mut self, now: Time, stamps: &ExchangeStamps) -> bool {
        let [t1, t2, t3, t4] =
            [stamps.t1, stamps.t2, stamps.t3, stamps.t4].map(|t| t.as_nanos() as u32);
        let (forward, peer_hold_time, total) = (
            t2.wrapping_sub(t1),
            t3.wrapping_sub(t2),
            t4.wrapping_sub(t1),
        );
        let possible = (total as i32) > 0 && peer_hold_time < total;
        if !possible {
            self.dropped = self.dropped.saturating_add(1);
            return false;
        }
        self.rtt = total - peer_hold_time;
        self.forward_excess = excess(&mut self.forward, forward, now);
        self.queue = self
            .forward_excess
            .min(excess(&mut self.round_trip, self.rtt, now));
        self.sampled_at = now;
        true
    }

    /// Returns the forward queueing delay of a packet. `None` if the last sample is older than a
    /// round trip, `rtt`.
    #[inline]
    pub fn queue_delay(&self, now: Time, rtt: Duration) -> Option<Duration> {
        let valid = self.round_trip.get().is_some() && now.since(self.sampled_at) <= rtt;
        valid.then_some(Duration::from_nanos(u64::from(self.queue)))
    }

    /// Number of exchanges with implausible stamps.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Writes signals 22 to 27. `fresh`: the last sample is from this ACK; `rtt`: its validity, the
    /// smoothed RTT. Stamps do not reveal the absolute level of one-way delays; as in NTP, the
    /// empty path is assumed to be symmetric.
    #[inline]
    pub fn write(&self, now: Time, fresh: bool, rtt: Duration, signals: &mut Signals) {
        let Some(min_round_trip) = self.round_trip.get() else {
            return;
        };
        // No value reaches infinity: round trips, and differences from a minimum, are below 2^31.
        let known = |ns: u64| ns.max(1);
        let least = u64::from(min_round_trip.0);
        signals.min_rtt_ns = known(least);
        signals.min_owd_ns = known(least / 2);
        if fresh {
            signals.rtt_ns = known(u64::from(self.rtt));
            signals.owd_ns = known(least / 2 + u64::from(self.forward_excess));
        }
        if let Some(queue) = self.queue_delay(now, rtt) {
            signals.queue_delay_ns = queue.as_nanos();
            signals.queue_delay_valid = 1;
        }
    }
}

/// Nanoseconds modulo 2^32. Two values are compared by their difference, which must be below 2^31.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WrappingNanos(u32);

impl MinSample for WrappingNanos {
    #[inline]
    fn lesser(self, other: WrappingNanos) -> WrappingNanos {
        if (self.0.wrapping_sub(other.0) as i32) < 0 {
            self
        } else {
            other
        }
    }
}

/// Adds a delay, ns, to its minimum filter. Returns its excess over the minimum.
#[inline]
fn excess(filter: &mut HalfWindowMin<WrappingNanos>, delay: u32, now: Time) -> u32 {
    let half = MIN_FILTER_WINDOW.as_nanos() / 2;
    let min = filter.update(now.as_nanos(), half, WrappingNanos(delay));
    delay.wrapping_sub(min.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytecode::INFINITY;
    use crate::signals::SignalSource;

    const NANOS_PER_MICRO: u64 = 1000;
    const NANOS_PER_MILLI: u64 = 1_000_000;

    /// Two hosts, 50 µs apart, whose clocks differ by `offset` ns and drift apart by `ppm`.
    #[derive(Clone, Copy)]
    struct Clocks {
        offset: i64,
        ppm: i64,
    }

    impl Clocks {
        /// Stamps of a packet sent at `t` with queueing delay `there`, and of its acknowledgement
        /// with queueing delay `back`.
        fn exchange(self, t: u64, there: u64, back: u64) -> ExchangeStamps {
            let peer = |t: u64| {
                Time::from_nanos(
                    t.wrapping_add_signed(self.offset + t as i64 / 1_000_000 * self.ppm),
                )
            };
            let t2 = t + 50 * NANOS_PER_MICRO + there;
            let t3 = t2 + 3 * NANOS_PER_MICRO;
            ExchangeStamps {
                t1: Time::from_nanos(t),
                t2: peer(t2),
                t3: peer(t3),
                t4: Time::from_nanos(t3 + 50 * NANOS_PER_MICRO + back),
            }
        }
    }

    fn take(one_way: &mut OneWay, stamps: &ExchangeStamps) -> bool {
        one_way.sample(stamps.t4, stamps)
    }

    fn queue(one_way: &OneWay) -> u64 {
        one_way
            .queue_delay(one_way.sampled_at, Duration::ZERO)
            .expect("valid")
            .as_nanos()
    }

    #[test]
    fn clock_offset_and_reverse_queue_cancel_out() {
        for offset in [0, 1, -1, 1 << 31, -(1 << 40), 1 << 40, i64::from(u32::MAX)] {
            let clocks = Clocks { offset, ppm: 0 };
            let mut one_way = OneWay::default();
            let start = 1 << 50;
            assert!(take(&mut one_way, &clocks.exchange(start, 0, 0)));
            for n in 1..5_000u64 {
                let (there, back) = (
                    n * 7919 % 400 * NANOS_PER_MICRO,
                    n * 104_729 % 30_000 * NANOS_PER_MICRO,
                );
                // The return path queues at least as much as the forward path, so the round trip
                // alone would not show the forward delay.
                assert!(take(
                    &mut one_way,
                    &clocks.exchange(start + n * NANOS_PER_MILLI, there, there + back)
                ));
                assert_eq!(queue(&one_way), there, "offset {offset}, packet {n}");
            }
        }
    }

    #[test]
    fn drift_is_bounded_by_its_window_and_by_the_queue_of_the_way_back() {
        for (ppm, back) in [
            (100, 0),
            (-100, 0),
            (100, 30 * NANOS_PER_MILLI),
            (-100, 30 * NANOS_PER_MILLI),
            (20, 30 * NANOS_PER_MILLI),
            (100, 40 * NANOS_PER_MICRO),
        ] {
            let clocks = Clocks {
                offset: 12_345,
                ppm,
            };
            let mut one_way = OneWay::default();
            let mut worst = 0;
            for n in 0..60_000u64 {
                let there = if n % 8 == 0 {
                    0
                } else {
                    n * 7919 % 400 * NANOS_PER_MICRO
                };
                // The return path was idle once, so that its minimum is known.
                let waits = if n == 0 { 0 } else { back };
                take(
                    &mut one_way,
                    &clocks.exchange(n * NANOS_PER_MILLI + NANOS_PER_MILLI, there, waits),
                );
                let error = queue(&one_way) as i64 - there as i64;
                assert!(
                    error >= -i64::from(NANOS_PER_MICRO as u32),
                    "{ppm} ppm: too small by {error} ns"
                );
                worst = worst.max(error);
            }
            let bound = (ppm.max(0) as u64 * MIN_FILTER_WINDOW.as_nanos() / 1_000_000).min(back)
                + NANOS_PER_MICRO;
            assert!(
                worst <= bound as i64,
                "{ppm} ppm: {worst} ns, bound {bound} ns"
            );
        }
    }

    #[test]
    fn a_clock_that_is_set_leaves_the_round_trip_form() {
        for step in [
            NANOS_PER_MILLI as i64,
            -(NANOS_PER_MILLI as i64),
            900 * NANOS_PER_MILLI as i64,
        ] {
            let mut one_way = OneWay::default();
            for n in 0..40_000u64 {
                let offset = if n >= 1_000 { step } else { 0 };
                let there = n * 7919 % 400 * NANOS_PER_MICRO;
                take(
                    &mut one_way,
                    &Clocks { offset, ppm: 0 }.exchange(
                        n * NANOS_PER_MILLI + NANOS_PER_MILLI,
                        there,
                        10 * NANOS_PER_MICRO,
                    ),
                );
                let error = queue(&one_way).abs_diff(there);
                // The path is empty every 400 packets.
                let learning = n < 400 || (1_000..1_400).contains(&n);
                assert!(
                    learning || error <= 10 * NANOS_PER_MICRO,
                    "step {step}, packet {n}: {error} ns"
                );
            }
        }
    }

    #[test]
    fn impossible_stamps_are_dropped_and_counted() {
        let good = Clocks { offset: 5, ppm: 0 }.exchange(NANOS_PER_MILLI, 0, 0);
        let mut one_way = OneWay::default();
        assert!(take(&mut one_way, &good));
        let before = one_way;
        let bad = [
            ExchangeStamps {
                t4: good.t1,
                ..good
            },
            ExchangeStamps {
                t4: Time::from_nanos(good.t1.as_nanos() - 1),
                ..good
            },
            ExchangeStamps {
                t3: Time::from_nanos(good.t2.as_nanos() - 1),
                ..good
            },
            ExchangeStamps {
                t3: good.t2 + Duration::from_millis(1),
                ..good
            },
        ];
        for stamps in &bad {
            assert!(!take(&mut one_way, stamps), "{stamps:?}");
        }
        assert_eq!(one_way.dropped(), 4);
        assert_eq!(
            OneWay {
                dropped: 0,
                ..one_way
            },
            before
        );
    }

    #[test]
    fn a_sample_older_than_a_round_trip_is_not_valid_and_a_program_sees_infinity() {
        let mut one_way = OneWay::default();
        let mut signals = Signals::default();
        one_way.write(Time::ZERO, false, Duration::MAX, &mut signals);
        assert_eq!(signals, Signals::default());
        take(
            &mut one_way,
            &Clocks { offset: 0, ppm: 0 }.exchange(NANOS_PER_MILLI, 0, 0),
        );
        let rtt = Duration::from_micros(103);
        let seen = |now: Time, fresh: bool| {
            let mut signals = Signals::default();
            one_way.write(now, fresh, rtt, &mut signals);
            signals.stamp_signals()
        };
        assert_eq!(
            seen(one_way.sampled_at, true),
            [
                50 * NANOS_PER_MICRO,
                100 * NANOS_PER_MICRO,
                50 * NANOS_PER_MICRO,
                100 * NANOS_PER_MICRO,
                0,
                1
            ]
        );
        assert_eq!(
            seen(one_way.sampled_at + rtt, false),
            [
                INFINITY,
                INFINITY,
                50 * NANOS_PER_MICRO,
                100 * NANOS_PER_MICRO,
                0,
                1
            ]
        );
        let late = one_way.sampled_at + rtt + Duration::from_nanos(1);
        assert_eq!(
            seen(late, false),
            [
                INFINITY,
                INFINITY,
                50 * NANOS_PER_MICRO,
                100 * NANOS_PER_MICRO,
                INFINITY,
                0
            ]
        );
    }
}
