//! RED: drops or marks at random, with a probability that grows with the average queue size (Floyd
//! and Jacobson, Random Early Detection Gateways for Congestion Avoidance, IEEE/ACM Transactions on
//! Networking 1(4), 1993).

use std::collections::VecDeque;

use ccplane_units::{Duration, Probability, Time};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use crate::qdisc::try_mark;
use crate::{Backlog, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// PCG stream of the decisions.
const DECISION_STREAM: u64 = 0x0072_6564;

/// Probability 1 in fixed point (32 fractional bits).
const PROBABILITY_ONE: u64 = Probability::ALWAYS.parts();

/// Fractional bits of the average: with a weight of 0.002 a single packet must still change it.
const AVERAGE_FRACTION_BITS: u32 = 24;

/// Settings of RED; section 6 of the paper discusses the first four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedConfig {
    /// Average queue below which no packet is dropped. Too low a value drops bursts that would have
    /// drained.
    pub min: u64,
    /// Average queue from which the probability rises from `probability` to 1 at twice `max` (the
    /// "gentle" variant, Floyd 2000). At least twice `min`, to avoid synchronised losses.
    pub max: u64,
    /// `min` and `max` count bytes instead of packets. The drop probability does not depend on the
    /// size of the packet (RFC 7141).
    pub in_bytes: bool,
    /// Probability at `max`.
    pub probability: Probability,
    /// Weight of the current queue in the average, 0.002. A larger weight follows bursts; a smaller
    /// one responds too late.
    pub weight: Probability,
    /// Transmission time of a typical packet. While the queue is idle, the average decays once per
    /// this time.
    pub packet_time: Duration,
    /// Marks ECN-capable packets instead of dropping them, up to an average of twice `max`.
    pub ecn: bool,
    /// Hard limit.
    pub limit: Limit,
}

/// Queue managed by RED.
#[derive(Clone, Debug)]
pub struct Red<P> {
    config: RedConfig,
    waiting: VecDeque<P>,
    backlog: Backlog,
    /// Average queue in fixed point with [`AVERAGE_FRACTION_BITS`] fractional bits.
    average: u128,
    /// Packets since the last drop or mark, or since the average exceeded `min`; -1 while it is
    /// below.
    count: i64,
    idle_since: Option<Time>,
    rng: Pcg32,
}

/// Decision on an arriving packet.
enum RedDecision {
    Accept,
    Signal,
    Drop,
}

impl<P: Packet> Red<P> {
    /// Creates an empty queue.
    pub fn new(config: RedConfig, seed: u64) -> Red<P> {
        Red {
            config: RedConfig {
                max: config.max.max(config.min.saturating_add(1)),
                ..config
            },
            waiting: VecDeque::new(),
            backlog: Backlog::default(),
            average: 0,
            count: -1,
            idle_since: Some(Time::ZERO),
            rng: Pcg32::new(seed, DECISION_STREAM),
        }
    }

    /// Returns the average queue, rounded down, in the unit of the thresholds.
    pub fn average(&self) -> u64 {
        (self.average >> AVERAGE_FRACTION_BITS) as u64
    }

    /// Computes avg ← (1 - w) avg + w q or, after an idle time of m packets, avg ← (1 - w)^m avg.
    fn update_average(&mut self, now: Time) {
        let weight = u128::from(self.config.weight.parts());
        if let Some(since) = self.idle_since.take() {
            let idle = now.since(since).as_nanos();
            let packets = idle
                .checked_div(self.config.packet_time.as_nanos())
                .unwrap_or(u64::MAX);
            let kept = u128::from(power(PROBABILITY_ONE - self.config.weight.parts(), packets));
            self.average = (self.average * kept) >> 32;
        } else {
            let queue = if self.config.in_bytes {
                self.backlog.bytes
            } else {
                self.backlog.packets
            };
            let queue = u128::from(queue) << AVERAGE_FRACTION_BITS;
            self.average =
                (self.average * (u128::from(PROBABILITY_ONE) - weight) + queue * weight) >> 32;
        }
    }

    fn decide(&mut self) -> RedDecision {
        let scaled = |threshold: u64| u128::from(threshold) << AVERAGE_FRACTION_BITS;
        let (min, max) = (scaled(self.config.min), scaled(self.config.max));
        let at_max = u128::from(self.config.probability.parts());
        let likelihood = if self.average < min {
            self.count = -1;
            return RedDecision::Accept;
        } else if self.average < max {
            at_max * (self.average - min) / (max - min)
        } else if self.average < 2 * max {
            at_max + (u128::from(PROBABILITY_ONE) - at_max) * (self.average - max) / max
        } else {
            self.count = 0;
            return RedDecision::Drop;
        };
        self.count += 1;
        // Equivalent to p / (1 - count p) without a division. It spreads the signals uniformly
        // (section 7).
        let spread = u128::from(PROBABILITY_ONE)
            .saturating_sub(u128::from(self.count.unsigned_abs()) * likelihood);
        let draw = u128::from(self.rng.next_u32());
        if draw * spread < likelihood << 32 {
            self.count = 0;
            return RedDecision::Signal;
        }
        RedDecision::Accept
    }
}

impl<P: Packet> Qdisc<P> for Red<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut impl Drops<P>) -> Verdict {
        self.update_average(now);
        let passes = match self.decide() {
            RedDecision::Accept => true,
            RedDecision::Signal => self.config.ecn && try_mark(&mut packet),
            RedDecision::Drop => false,
        };
        let reason = if !passes {
            DropReason::Aqm
        } else if !self.config.limit.admits(self.backlog, packet.bytes()) {
            DropReason::Full
        } else {
            self.backlog.add(packet.bytes());
            self.waiting.push_back(packet);
            return Verdict::Queued;
        };
        if self.waiting.is_empty() {
            self.idle_since = Some(now);
        }
        drops.dropped(packet, reason);
        Verdict::Dropped(reason)
    }

    fn dequeue(&mut self, now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        let packet = self.waiting.pop_front()?;
        self.backlog.remove(packet.bytes());
        if self.waiting.is_empty() {
            self.idle_since = Some(now);
        }
        Some(packet)
    }

    fn next_ready(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

/// Raises `base` to `exponent`; base and result are in 32-bit fixed point.
fn power(base: u64, exponent: u64) -> u64 {
    let multiply = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 32) as u64;
    let (mut result, mut square, mut left) = (PROBABILITY_ONE, base, exponent);
    while left > 0 && result > 0 {
        if left & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        left >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Ecn;

    struct Plain(Ecn);

    impl Packet for Plain {
        fn bytes(&self) -> u32 {
            1_000
        }

        fn ecn(&self) -> Ecn {
            self.0
        }

        fn mark_ce(&mut self) {
            self.0 = Ecn::Ce;
        }
    }

    fn config() -> RedConfig {
        RedConfig {
            min: 5,
            max: 15,
            in_bytes: false,
            probability: Probability::from_parts(PROBABILITY_ONE / 10),
            weight: Probability::from_parts(PROBABILITY_ONE / 20),
            packet_time: Duration::from_millis(1),
            ecn: false,
            limit: Limit::Unlimited,
        }
    }

    proptest! {
        /// Reference model: figure 2 of the paper with the gentle part, in floating point, on the
        /// same random numbers.
        #[test]
        fn it_does_what_the_paper_says(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..3_000_000), 1..600),
        ) {
            let mut red = Red::new(config(), 9);
            let mut draws = Pcg32::new(9, DECISION_STREAM);
            let (mut avg, mut count, mut q_time) = (0.0_f64, -1_i32, Some(0.0));
            let (min, max, max_p, weight) = (5.0, 15.0, 0.1, 0.05);
            let mut now = 0;
            for (arrives, gap) in steps {
                now += gap;
                let at = Time::from_nanos(now);
                if !arrives && red.waiting.len() < 20 {
                    red.dequeue(at, &mut |_, _| {});
                    if red.waiting.is_empty() && q_time.is_none() {
                        q_time = Some(now as f64);
                    }
                    continue;
                }
                let queue = red.waiting.len();
                match q_time.take() {
                    None => avg += weight * (queue as f64 - avg),
                    Some(since) => {
                        let m = ((now as f64 - since) / 1e6).floor();
                        avg *= libm::pow(1.0 - weight, m);
                    }
                }
                let p_b = if avg < min {
                    0.0
                } else if avg < max {
                    max_p * (avg - min) / (max - min)
                } else {
                    max_p + (1.0 - max_p) * (avg - max) / max
                };
                let mut close = false;
                let dropped = if avg < min {
                    count = -1;
                    false
                } else if avg >= 2.0 * max {
                    count = 0;
                    true
                } else {
                    count += 1;
                    let p_a = p_b / (1.0 - f64::from(count) * p_b);
                    let draw = f64::from(draws.next_u32()) / PROBABILITY_ONE as f64;
                    close = (draw - p_a).abs() < 1e-4;
                    let hit = !(0.0..=1.0).contains(&p_a) || draw < p_a;
                    if hit {
                        count = 0;
                    }
                    hit
                };
                let verdict = red.enqueue(at, Plain(Ecn::NotEct), &mut |_, _| {});
                prop_assert!(
                    (red.average as f64 / (1 << AVERAGE_FRACTION_BITS) as f64 - avg).abs() < 1e-3
                );
                // Close to a threshold or a draw, fixed point and floating point may decide
                // differently.
                let near = |threshold: f64| (avg - threshold).abs() < 1e-3;
                prop_assume!(!close && !near(min) && !near(max) && !near(2.0 * max));
                prop_assert_eq!(verdict == Verdict::Dropped(DropReason::Aqm), dropped);
                if dropped && red.waiting.is_empty() {
                    q_time = Some(now as f64);
                }
            }
        }
    }

    #[test]
    fn what_is_signalled_grows_with_the_average() {
        // The queue is held at a constant length, and the average converges to it.
        let signalled = |length: usize, ecn: bool| {
            let mut red = Red::new(RedConfig { ecn, ..config() }, 1);
            let (mut marked, mut dropped) = (0, 0);
            for _ in 0..20_000 {
                match red.enqueue(Time::ZERO, Plain(Ecn::Ect0), &mut |_, _| {}) {
                    Verdict::Queued => {
                        marked += usize::from(red.waiting.back().is_some_and(|p| p.0 == Ecn::Ce))
                    }
                    Verdict::Dropped(_) => dropped += 1,
                }
                if red.waiting.len() > length {
                    red.waiting.pop_back();
                    red.backlog.remove(1_000);
                }
            }
            (marked, dropped)
        };
        assert_eq!(signalled(4, false), (0, 0), "below min");
        // At an average of 10, p is 0.05. With uniform spacing between 1 and 1/p, one packet in
        // 10.5 is signalled (section 7 of the paper).
        let (_, half_way) = signalled(10, false);
        assert!((1_700..2_100).contains(&half_way), "{half_way}");
        let (marked, dropped) = signalled(10, true);
        assert!(
            (1_700..2_100).contains(&marked) && dropped == 0,
            "{marked} {dropped}"
        );
        let (marked, dropped) = signalled(40, true);
        assert!(
            dropped > 0 && marked > 0,
            "above twice max, ECN-capable packets are dropped too: {dropped}"
        );
    }

    #[test]
    fn powers_are_those_of_floating_point() {
        for (base, exponent) in [
            (0.998, 1),
            (0.998, 100),
            (0.5, 31),
            (0.999_9, 100_000),
            (0.9, 0),
        ] {
            let expected = libm::pow(base, exponent as f64);
            let got = power((base * PROBABILITY_ONE as f64) as u64, exponent) as f64
                / PROBABILITY_ONE as f64;
            assert!(
                (got - expected).abs() < 1e-6,
                "{base}^{exponent}: {got}, not {expected}"
            );
        }
        assert_eq!(power(PROBABILITY_ONE - 1, u64::MAX), 0);
        assert_eq!(power(PROBABILITY_ONE, u64::MAX), PROBABILITY_ONE);
    }
}
