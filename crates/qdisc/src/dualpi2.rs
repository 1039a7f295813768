//! DualPI2 (RFC 9332, appendix A): a low-latency queue for L4S traffic and a queue for classic
//! traffic, coupled so that flows in both get about the same rate.

use std::collections::VecDeque;

use ccplane_units::{Duration, Time};

use crate::qdisc::try_mark;
use crate::{Backlog, DropReason, Drops, Ecn, Limit, Packet, Qdisc, Verdict};

/// Probability 1 in fixed point (32 fractional bits).
const PROBABILITY_ONE: u64 = 1 << 32;

/// Maximum number of updates per call, about a minute's worth. After a minute without calls the
/// controller has settled.
const UPDATES_PER_CALL_MAX: u32 = 1 << 12;

/// Settings of DualPI2. Names and defaults follow Linux' `dualpi2`, which rounds the RFC's values
/// for a maximum RTT of 100 ms (appendix A.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualPi2Config {
    /// Target delay of the classic queue, 15 ms. With a lower one the link idles under few flows.
    pub target: Duration,
    /// Update interval of the probability, 16 ms.
    pub tupdate: Duration,
    /// Integral gain, mHz: 160, from 0.1 × `tupdate` / (100 ms)². A larger gain overshoots; a
    /// smaller one converges slowly.
    pub alpha: u64,
    /// Proportional gain, mHz: 3200, about 0.3 / 100 ms. A larger gain oscillates; a smaller one
    /// lets bursts build a queue.
    pub beta: u64,
    /// Coupling factor k, 2: ratio of the low-latency marking probability to the square root of the
    /// classic drop probability. With 2 a scalable flow and a Reno flow of the same RTT get about
    /// equal rates (section 2.1; 2 is the nearest integer).
    pub coupling_factor: u64,
    /// Sojourn time above which low-latency packets are marked, 1 ms, provided that another packet
    /// is waiting. A threshold below the transmission time of one packet would otherwise mark
    /// everything.
    pub step_thresh: Duration,
    /// Width of the marking ramp above `step_thresh` (the RFC's ramp covers 400 µs from 800 µs on).
    /// Zero is a step, as in Linux.
    pub range: Duration,
    /// Share of the link for the classic queue while both queues have packets, 10 %. It bounds the
    /// damage of an L4S flow that ignores marks.
    pub classic_protection: u64,
}

impl DualPi2Config {
    /// Defaults of Linux' `dualpi2`.
    pub const DEFAULT: DualPi2Config = DualPi2Config {
        target: Duration::from_millis(15),
        tupdate: Duration::from_millis(16),
        alpha: 160,
        beta: 3_200,
        coupling_factor: 2,
        step_thresh: Duration::from_millis(1),
        range: Duration::ZERO,
        classic_protection: 10,
    };
}

/// Pair of queues managed by DualPI2.
///
/// Drops and marks are spaced evenly by the RFC's `recur` function instead of drawn at random.
#[derive(Clone, Debug)]
pub struct DualPi2<P> {
    config: DualPi2Config,
    /// Limit on both queues together.
    limit: Limit,
    mtu: u32,
    low_latency: CoupledQueue<P>,
    classic: CoupledQueue<P>,
    /// Base probability p', 32-bit fixed point.
    base_probability: u64,
    /// The longer of the two queue delays at the last update.
    prev_queue_delay: Duration,
    /// `None` before the first packet.
    next_update: Option<Time>,
    /// Credit of the classic queue, bytes × per cent. It is served first while the credit is
    /// positive.
    credit: i64,
}

#[derive(Clone, Debug)]
struct CoupledQueue<P> {
    waiting: VecDeque<(Time, P)>,
    bytes: u64,
    /// Accumulated probability for `recur`, 32-bit fixed point.
    count: u64,
}

impl<P: Packet> CoupledQueue<P> {
    fn new() -> CoupledQueue<P> {
        CoupledQueue {
            waiting: VecDeque::new(),
            bytes: 0,
            count: 0,
        }
    }

    fn push(&mut self, now: Time, packet: P) {
        self.bytes += u64::from(packet.bytes());
        self.waiting.push_back((now, packet));
    }

    fn pop(&mut self) -> Option<(Time, P)> {
        let (arrived, packet) = self.waiting.pop_front()?;
        self.bytes -= u64::from(packet.bytes());
        Some((arrived, packet))
    }

    /// Returns the sojourn time of the oldest packet.
    fn sojourn(&self, now: Time) -> Duration {
        self.waiting
            .front()
            .map_or(Duration::ZERO, |(arrived, _)| now.since(*arrived))
    }

    /// Accumulates `likelihood` and returns true whenever a signal is due.
    fn recur(&mut self, likelihood: u64) -> bool {
        self.count += likelihood.min(PROBABILITY_ONE);
        let due = self.count > PROBABILITY_ONE;
        if due {
            self.count -= PROBABILITY_ONE;
        }
        due
    }
}

impl<P: Packet> DualPi2<P> {
    /// Creates two empty queues for packets of at most `mtu` bytes; `limit` applies to their sum.
    pub fn new(config: DualPi2Config, limit: Limit, mtu: u32) -> DualPi2<P> {
        let config = DualPi2Config {
            classic_protection: config.classic_protection.min(100),
            tupdate: config.tupdate.max(Duration::from_micros(1)),
            ..config
        };
        let mut queue = DualPi2 {
            config,
            limit,
            mtu,
            low_latency: CoupledQueue::new(),
            classic: CoupledQueue::new(),
            base_probability: 0,
            prev_queue_delay: Duration::ZERO,
            next_update: None,
            credit: 0,
        };
        queue.reset_credit();
        queue
    }

    /// Returns p'², the drop or mark probability of classic packets, 32-bit fixed point.
    pub fn classic_probability(&self) -> u64 {
        ((u128::from(self.base_probability) * u128::from(self.base_probability)) >> 32) as u64
    }

    /// Returns k p', the marking probability that the classic queue imposes on low-latency packets,
    /// 32-bit fixed point. 1 or more means overload.
    pub fn coupled_probability(&self) -> u64 {
        self.base_probability
            .saturating_mul(self.config.coupling_factor)
    }

    /// `dualpi2_update`, run once for every interval that has passed.
    fn update(&mut self, now: Time) {
        let mut next = self.next_update.unwrap_or(now + self.config.tupdate);
        let mut updates = 0;
        while next <= now && next < Time::MAX {
            updates += 1;
            let at = if updates > UPDATES_PER_CALL_MAX {
                now
            } else {
                next
            };
            let wait = self.classic.sojourn(at).max(self.low_latency.sojourn(at));
            let ns = |duration: Duration| i128::from(duration.as_nanos());
            let integral = i128::from(self.config.alpha) * (ns(wait) - ns(self.config.target));
            let proportional =
                i128::from(self.config.beta) * (ns(wait) - ns(self.prev_queue_delay));
            // The gains are in mHz and the delays in ns.
            let change =
                (integral + proportional) * i128::from(PROBABILITY_ONE) / 1_000_000_000_000;
            self.base_probability = (i128::from(self.base_probability) + change)
                .clamp(0, i128::from(PROBABILITY_ONE)) as u64;
            self.prev_queue_delay = wait;
            next = at + self.config.tupdate;
        }
        self.next_update = Some(next);
    }

    /// Returns the native marking probability of a low-latency packet with the sojourn time `wait`.
    fn native_probability(&self, wait: Duration) -> u64 {
        let threshold = self.config.step_thresh;
        if wait < threshold || self.low_latency.waiting.is_empty() {
            return 0;
        }
        let above = u128::from(wait.saturating_sub(threshold).as_nanos());
        let range = u128::from(self.config.range.as_nanos());
        (above << 32)
            .checked_div(range)
            .map_or(PROBABILITY_ONE, |ramp| {
                ramp.min(u128::from(PROBABILITY_ONE)) as u64
            })
    }

    /// Returns true if the low-latency queue is served next. It has priority except for the classic
    /// queue's share, kept by weighted round robin. Section 4.2.2 requires some protection from
    /// starvation; the weights follow Linux.
    fn low_latency_is_next(&self) -> bool {
        let (low_latency, classic) = (&self.low_latency.waiting, &self.classic.waiting);
        !low_latency.is_empty() && (classic.is_empty() || self.credit <= 0)
    }

    fn reset_credit(&mut self) {
        self.credit = (2 * self.config.classic_protection as i64 - 100) * i64::from(self.mtu);
    }

    /// Applies marking and dropping to a low-latency packet; `None` if it was dropped.
    fn mark_or_drop_low_latency(
        &mut self,
        wait: Duration,
        mut packet: P,
        drops: &mut impl Drops<P>,
    ) -> Option<P> {
        let coupled = self.coupled_probability();
        if coupled < PROBABILITY_ONE {
            let likelihood = self.native_probability(wait).max(coupled);
            if self.low_latency.recur(likelihood) {
                packet.mark_ce();
            }
            return Some(packet);
        }
        // Overload: marks are not enough, so this queue drops like the classic one (appendix A.2).
        if self.low_latency.recur(self.classic_probability()) {
            drops.dropped(packet, DropReason::Aqm);
            return None;
        }
        if self.low_latency.recur(coupled) {
            packet.mark_ce();
        }
        Some(packet)
    }

    /// Applies marking and dropping to a classic packet; `None` if it was dropped.
    fn mark_or_drop_classic(&mut self, mut packet: P, drops: &mut impl Drops<P>) -> Option<P> {
        if self.classic.recur(self.classic_probability()) {
            let overload = self.coupled_probability() >= PROBABILITY_ONE;
            if overload || !try_mark(&mut packet) {
                drops.dropped(packet, DropReason::Aqm);
                return None;
            }
        }
        Some(packet)
    }
}

impl<P: Packet> Qdisc<P> for DualPi2<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        self.update(now);
        // Requires room for an MTU, so that large packets are not dropped more often than small
        // ones (figure 3, line 2).
        if !self
            .limit
            .admits(self.backlog(), self.mtu.max(packet.bytes()))
        {
            drops.dropped(packet, DropReason::Full);
            return Verdict::Dropped(DropReason::Full);
        }
        match packet.ecn() {
            Ecn::Ect1 | Ecn::Ce => self.low_latency.push(now, packet),
            Ecn::NotEct | Ecn::Ect0 => self.classic.push(now, packet),
        }
        Verdict::Queued
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.update(now);
        loop {
            let share = self.config.classic_protection as i64;
            let passed = if self.low_latency_is_next() {
                let (arrived, packet) = self.low_latency.pop()?;
                if !self.classic.waiting.is_empty() {
                    self.credit += share * i64::from(packet.bytes());
                }
                self.mark_or_drop_low_latency(now.since(arrived), packet, drops)
            } else if let Some((_, packet)) = self.classic.pop() {
                if !self.low_latency.waiting.is_empty() {
                    self.credit -= (100 - share) * i64::from(packet.bytes());
                }
                self.mark_or_drop_classic(packet, drops)
            } else {
                self.reset_credit();
                return None;
            };
            if passed.is_some() {
                return passed;
            }
        }
    }

    fn next_ready(&self) -> Option<Time> {
        (self.backlog().packets > 0).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        Backlog {
            packets: (self.low_latency.waiting.len() + self.classic.waiting.len()) as u64,
            bytes: self.low_latency.bytes + self.classic.bytes,
        }
    }
}
