//! RED: drops or marks at random, more likely the longer the queue is on average (Floyd and Jacobson, Random Early
//! Detection Gateways for Congestion Avoidance, IEEE/ACM Transactions on Networking 1(4), 1993).

use std::collections::VecDeque;

use ccplane_units::{Duration, Probability, Time};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use crate::qdisc::try_mark;
use crate::{Backlog, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// The stream of random numbers that decisions are drawn from.
const STREAM: u64 = 0x0072_6564;

/// 1, as parts of 2³².
const ONE: u64 = Probability::ALWAYS.parts();

/// Places behind the point of the average: fine enough that a weight of 0.002 sees the last packet.
const PLACES: u32 = 24;

/// Settings of RED (section 6 of the paper for the first four).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedConfig {
    /// Below this average nothing is dropped. Too small, and bursts are dropped that would have drained.
    pub min: u64,
    /// From this average on, twice as steeply and more (the "gentle" variant, Floyd 2000): up to twice `max`, where
    /// everything is dropped. At least twice `min`, so that flows are not hit together.
    pub max: u64,
    /// Whether `min` and `max` count bytes; otherwise packets. A packet's size does not change what becomes of it
    /// (RFC 7141).
    pub in_bytes: bool,
    /// The probability at `max`.
    pub probability: Probability,
    /// How much the present queue counts in the average, 0.002. Larger follows bursts, smaller comes too late.
    pub weight: Probability,
    /// What a typical packet takes on the line: in that time an idle queue ages the average by one packet.
    pub packet_time: Duration,
    /// Whether packets that understand marks are marked instead of dropped, up to twice `max`.
    pub ecn: bool,
    /// What waits at most.
    pub limit: Limit,
}

/// A queue under RED.
#[derive(Clone, Debug)]
pub struct Red<P> {
    config: RedConfig,
    waiting: VecDeque<P>,
    backlog: Backlog,
    /// Times 2^[`PLACES`].
    average: u128,
    /// Packets since the last one that was dropped or marked, or since the average rose above `min`; -1 below it.
    count: i64,
    idle_since: Option<Time>,
    draws: Pcg32,
}

/// What becomes of an arrival.
enum Fate {
    Passes,
    Signals,
    Dropped,
}

impl<P: Packet> Red<P> {
    /// An empty queue.
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
            draws: Pcg32::new(seed, STREAM),
        }
    }

    /// The average queue, rounded down, in the unit of the thresholds.
    pub fn average(&self) -> u64 {
        (self.average >> PLACES) as u64
    }

    /// avg ← (1 - w) avg + w q; after an idle time of m packets, avg ← (1 - w)^m avg.
    fn update_average(&mut self, now: Time) {
        let weight = u128::from(self.config.weight.parts());
        if let Some(since) = self.idle_since.take() {
            let idle = now.since(since).as_nanos();
            let packets = idle.checked_div(self.config.packet_time.as_nanos()).unwrap_or(u64::MAX);
            let kept = u128::from(power(ONE - self.config.weight.parts(), packets));
            self.average = (self.average * kept) >> 32;
        } else {
            let queue = if self.config.in_bytes {
                self.backlog.bytes
            } else {
                self.backlog.packets
            };
            let queue = u128::from(queue) << PLACES;
            self.average = (self.average * (u128::from(ONE) - weight) + queue * weight) >> 32;
        }
    }

    fn decide(&mut self) -> Fate {
        let scaled = |threshold: u64| u128::from(threshold) << PLACES;
        let (min, max) = (scaled(self.config.min), scaled(self.config.max));
        let at_max = u128::from(self.config.probability.parts());
        let likelihood = if self.average < min {
            self.count = -1;
            return Fate::Passes;
        } else if self.average < max {
            at_max * (self.average - min) / (max - min)
        } else if self.average < 2 * max {
            at_max + (u128::from(ONE) - at_max) * (self.average - max) / max
        } else {
            self.count = 0;
            return Fate::Dropped;
        };
        self.count += 1;
        // p / (1 - count p), so that the packets between two signals are distributed uniformly (section 7), without
        // dividing.
        let spread = u128::from(ONE).saturating_sub(u128::from(self.count.unsigned_abs()) * likelihood);
        let draw = u128::from(self.draws.next_u32());
        if draw * spread < likelihood << 32 {
            self.count = 0;
            return Fate::Signals;
        }
        Fate::Passes
    }
}

impl<P: Packet> Qdisc<P> for Red<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut impl Drops<P>) -> Verdict {
        self.update_average(now);
        let passes = match self.decide() {
            Fate::Passes => true,
            Fate::Signals => self.config.ecn && try_mark(&mut packet),
            Fate::Dropped => false,
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

/// `base` to the power of `exponent`, both base and result as parts of 2³².
fn power(base: u64, exponent: u64) -> u64 {
    let multiply = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 32) as u64;
    let (mut result, mut square, mut left) = (ONE, base, exponent);
    while left > 0 && result > 0 {
        if left & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        left >>= 1;
    }
    result
}
