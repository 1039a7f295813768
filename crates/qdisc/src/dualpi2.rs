//! DualPI2: one queue for traffic that answers marks finely (L4S) and one for the rest, coupled so
//! that flows in both get alike rates (RFC 9332, appendix A).

use std::collections::VecDeque;

use ccplane_units::{Duration, Time};

use crate::qdisc::try_mark;
use crate::{Backlog, DropReason, Drops, Ecn, Limit, Packet, Qdisc, Verdict};

/// 1, as parts of 2³².
const ONE: u64 = 1 << 32;

/// Updates made up for in one call, a minute's worth: in that time without a call everything has
/// settled.
const UPDATES_AT_ONCE: u32 = 1 << 12;

/// Settings of DualPI2; names and defaults are those of Linux' `dualpi2`, which are the RFC's for a
/// largest round-trip time of 100 ms (appendix A.1), rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualPi2Config {
    /// The wait that the classic queue is held at, 15 ms. Smaller and the line idles under few
    /// flows.
    pub target: Duration,
    /// How often the probability is updated, 16 ms.
    pub tupdate: Duration,
    /// Integral gain, mHz: 160, from 0.1 × `tupdate` / (100 ms)². Larger overshoots, smaller finds
    /// the target slowly.
    pub alpha: u64,
    /// Proportional gain, mHz: 3200, about 0.3 / 100 ms. Larger oscillates, smaller lets bursts
    /// stand.
    pub beta: u64,
    /// k, 2: what marks of the low-latency queue are more likely than the root of the classic
    /// probability. A scalable flow and a Reno flow of one round-trip time then get the same rate
    /// (section 2.1; 2 is the nearest whole number).
    pub coupling_factor: u64,
    /// From this wait on packets of the low-latency queue are marked, 1 ms, if another waits
    /// behind: too small for what one packet takes on the line would mark everything.
    pub step_thresh: Duration,
    /// Over this much more waiting the marks become certain (a ramp, as in the RFC: 400 µs from 800
    /// µs on); zero is a step, as in Linux.
    pub range: Duration,
    /// Per cent of the line for the classic queue while both have packets, 10: an L4S flow that
    /// does not answer marks takes no more than the rest.
    pub classic_protection: u64,
}

impl DualPi2Config {
    /// The defaults.
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

/// A pair of queues under DualPI2.
///
/// Drops and marks come at even distances, by the RFC's `recur`, so that no random number is drawn.
#[derive(Clone, Debug)]
pub struct DualPi2<P> {
    config: DualPi2Config,
    /// Of both together.
    limit: Limit,
    mtu: u32,
    low_latency: Half<P>,
    classic: Half<P>,
    /// p', the linear probability, in parts of 2³².
    base: u64,
    /// The longer of the two waits at the last update.
    last_wait: Duration,
    /// `None` before the first packet.
    next_update: Option<Time>,
    /// What the classic queue is owed, in bytes × per cent: it is served while this is above zero.
    credit: i64,
}

#[derive(Clone, Debug)]
struct Half<P> {
    waiting: VecDeque<(Time, P)>,
    bytes: u64,
    /// The part of a signal that has come together so far, in parts of 2³².
    count: u64,
}

impl<P: Packet> Half<P> {
    fn new() -> Half<P> {
        Half {
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

    /// How long the oldest packet has waited.
    fn wait(&self, now: Time) -> Duration {
        self.waiting
            .front()
            .map_or(Duration::ZERO, |(arrived, _)| now.since(*arrived))
    }

    /// Whether the next signal is due, which come with this likelihood.
    fn recur(&mut self, likelihood: u64) -> bool {
        self.count += likelihood.min(ONE);
        let due = self.count > ONE;
        if due {
            self.count -= ONE;
        }
        due
    }
}

impl<P: Packet> DualPi2<P> {
    /// A pair of empty queues for packets of at most `mtu` bytes, which together hold at most
    /// `limit`.
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
            low_latency: Half::new(),
            classic: Half::new(),
            base: 0,
            last_wait: Duration::ZERO,
            next_update: None,
            credit: 0,
        };
        queue.forget_credit();
        queue
    }

    /// p'², with which classic packets are dropped or marked, in parts of 2³².
    pub fn classic_probability(&self) -> u64 {
        ((u128::from(self.base) * u128::from(self.base)) >> 32) as u64
    }

    /// k p', with which the classic queue makes low-latency packets be marked, in parts of 2³²; 1
    /// or more is overload.
    pub fn coupled_probability(&self) -> u64 {
        self.base.saturating_mul(self.config.coupling_factor)
    }

    /// `dualpi2_update`, for every interval that has passed.
    fn update(&mut self, now: Time) {
        let mut next = self.next_update.unwrap_or(now + self.config.tupdate);
        let mut updates = 0;
        while next <= now && next < Time::MAX {
            updates += 1;
            let at = if updates > UPDATES_AT_ONCE { now } else { next };
            let wait = self.classic.wait(at).max(self.low_latency.wait(at));
            let ns = |duration: Duration| i128::from(duration.as_nanos());
            let integral = i128::from(self.config.alpha) * (ns(wait) - ns(self.config.target));
            let proportional = i128::from(self.config.beta) * (ns(wait) - ns(self.last_wait));
            // mHz × ns.
            let change = (integral + proportional) * i128::from(ONE) / 1_000_000_000_000;
            self.base = (i128::from(self.base) + change).clamp(0, i128::from(ONE)) as u64;
            self.last_wait = wait;
            next = at + self.config.tupdate;
        }
        self.next_update = Some(next);
    }

    /// The native likelihood of a mark in the low-latency queue for a packet that waited so long.
    fn native(&self, wait: Duration) -> u64 {
        let threshold = self.config.step_thresh;
        if wait < threshold || self.low_latency.waiting.is_empty() {
            return 0;
        }
        let above = u128::from(wait.saturating_sub(threshold).as_nanos());
        let range = u128::from(self.config.range.as_nanos());
        (above << 32)
            .checked_div(range)
            .map_or(ONE, |ramp| ramp.min(u128::from(ONE)) as u64)
    }

    /// Whether the low-latency queue is next. It has priority, except for the classic queue's share
    /// by weighted round robin. Section 4.2.2 asks for some protection from starvation; the weights
    /// are Linux'.
    fn low_latency_is_next(&self) -> bool {
        let (low_latency, classic) = (&self.low_latency.waiting, &self.classic.waiting);
        !low_latency.is_empty() && (classic.is_empty() || self.credit <= 0)
    }

    fn forget_credit(&mut self) {
        self.credit = (2 * self.config.classic_protection as i64 - 100) * i64::from(self.mtu);
    }

    /// A low-latency packet past its queue; `None` if it was dropped.
    fn pass_low_latency(
        &mut self,
        wait: Duration,
        mut packet: P,
        drops: &mut impl Drops<P>,
    ) -> Option<P> {
        let coupled = self.coupled_probability();
        if coupled < ONE {
            let likelihood = self.native(wait).max(coupled);
            if self.low_latency.recur(likelihood) {
                packet.mark_ce();
            }
            return Some(packet);
        }
        // Overload: marks no longer help, and this queue drops as the other does (appendix A.2).
        if self.low_latency.recur(self.classic_probability()) {
            drops.dropped(packet, DropReason::Aqm);
            return None;
        }
        if self.low_latency.recur(coupled) {
            packet.mark_ce();
        }
        Some(packet)
    }

    /// A classic packet past its queue; `None` if it was dropped.
    fn pass_classic(&mut self, mut packet: P, drops: &mut impl Drops<P>) -> Option<P> {
        if self.classic.recur(self.classic_probability()) {
            let overload = self.coupled_probability() >= ONE;
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
        // Room for the largest packet, so that large ones are not at a disadvantage (figure 3, line
        // 2).
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
                self.pass_low_latency(now.since(arrived), packet, drops)
            } else if let Some((_, packet)) = self.classic.pop() {
                if !self.low_latency.waiting.is_empty() {
                    self.credit -= (100 - share) * i64::from(packet.bytes());
                }
                self.pass_classic(packet, drops)
            } else {
                self.forget_credit();
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
