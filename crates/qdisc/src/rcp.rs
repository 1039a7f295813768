//! The Rate Control Protocol's router: it offers every flow the same rate, and writes it on the packets that pass.
//!
//! Dukkipati, Kobayashi, Zhang-Shen and McKeown, Processor Sharing Flows in the Internet, IWQoS 2005; Dukkipati and
//! McKeown, Why Flow-Completion Time is the Right Metric for Congestion Control, CCR 36(1), 2006. Every
//! T = min(d, 10 ms) the offered rate becomes
//!
//! > R ← R (1 + (T/d) (α (C − y) − β q/d) / C)
//!
//! with the line's rate C, the rate y of what came in since the last time, the queue q and the average round-trip
//! time d of the flows. The average is the authors' simulator's: the mean round-trip time that packets carried in the
//! interval, weighted by bytes, moves d by T/d where it is longer and by (R/C) (mean/d) (T/d) where it is shorter.

use ccplane_units::{Duration, Rate, Time};

use crate::{Backlog, DropTail, Drops, Limit, Packet, Qdisc, Verdict};

/// The longest time between two updates: so that a long round trip does not make the router slow.
const UPDATE: Duration = Duration::from_millis(10);

/// The average round-trip time before any packet told one.
const FIRST_RTT: Duration = Duration::from_millis(200);

/// No flow is ever offered less, bytes per second: one that has got so little must still come back. As the authors'.
const LEAST: u64 = 16_000;

/// Shortest round-trip time that counts: below it an update would take more than it is worth.
const SHORTEST_RTT: Duration = Duration::from_micros(1);

/// Updates made up for in one call: what a longer silence would still change is less than rounding.
const UPDATES_AT_ONCE: u32 = 1 << 12;

/// Settings of RCP's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcpConfig {
    /// α, thousandths: 400. How fast spare capacity is handed out.
    pub alpha: u64,
    /// β, thousandths: 400. How fast a queue is drained; stable for all delays with α = β = 0.4 (2005, section 3).
    pub beta: u64,
    /// Per cent of the capacity that the first flows are offered, 5. More starts flows faster and, when many start,
    /// overflows the queue.
    pub init: u64,
}

impl RcpConfig {
    /// The defaults.
    pub const DEFAULT: RcpConfig = RcpConfig {
        alpha: 400,
        beta: 400,
        init: 5,
    };
}

/// A drop-tail queue that stamps rates.
#[derive(Clone, Debug)]
pub struct Rcp<P> {
    config: RcpConfig,
    /// C
    capacity: Rate,
    queue: DropTail<P>,
    /// R, bytes per second.
    rate: u64,
    /// d
    rtt: Duration,
    /// `None` before the first packet.
    next_update: Option<Time>,
    /// T of the interval that runs.
    interval: Duration,
    /// Bytes since the last update: all, and those that carried a round-trip time.
    came: u64,
    timed: u64,
    /// Σ round-trip time in ns × bytes of the latter.
    rtt_sum: u128,
}

impl<P: Packet> Rcp<P> {
    /// An empty queue for a line that carries `capacity`.
    pub fn new(config: RcpConfig, capacity: Rate, limit: Limit) -> Rcp<P> {
        let first = u128::from(capacity.bytes_per_sec()) * u128::from(config.init) / 100;
        Rcp {
            config,
            capacity,
            queue: DropTail::new(limit),
            rate: within(first as i128, capacity),
            rtt: FIRST_RTT,
            next_update: None,
            interval: FIRST_RTT.min(UPDATE),
            came: 0,
            timed: 0,
            rtt_sum: 0,
        }
    }

    /// The rate that flows are offered.
    pub fn rate(&self) -> Rate {
        Rate::from_bytes_per_sec(self.rate)
    }

    /// The average round-trip time.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Every update that is due by `now`.
    fn update(&mut self, now: Time) {
        let mut next = self.next_update.unwrap_or(now + self.interval);
        let mut updates = 0;
        while next <= now && next < Time::MAX {
            updates += 1;
            let at = if updates > UPDATES_AT_ONCE { now } else { next };
            self.average_rtt();
            self.change_rate();
            self.interval = self.rtt.min(UPDATE);
            next = at + self.interval;
            (self.came, self.timed, self.rtt_sum) = (0, 0, 0);
        }
        self.next_update = Some(next);
    }

    fn average_rtt(&mut self) {
        let Some(mean) = self.rtt_sum.checked_div(u128::from(self.timed)) else {
            return;
        };
        let (d, t) = (u128::from(self.rtt.as_nanos()), u128::from(self.interval.as_nanos()));
        let capacity = u128::from(self.capacity.bytes_per_sec().max(1));
        let d = if mean >= d {
            d + ((mean - d) * t / d)
        } else {
            // d (1 - g) + g mean, g = (R/C) (mean/d) (T/d): the two ratios below 1 in parts of 2³².
            let share = (u128::from(self.rate) << 32) / capacity;
            let gain = ((share * ((mean << 32) / d)) >> 32) * t / d;
            d - (((d - mean) * gain.min(1 << 32)) >> 32)
        };
        let d = Duration::from_nanos(u64::try_from(d).unwrap_or(u64::MAX));
        self.rtt = d.clamp(SHORTEST_RTT, Duration::from_secs(100));
    }

    fn change_rate(&mut self) {
        let (d, t) = (i128::from(self.rtt.as_nanos()), i128::from(self.interval.as_nanos()));
        let capacity = i128::from(self.capacity.bytes_per_sec().max(1));
        let came = i128::from(self.came) * 1_000_000_000 / t;
        let drains = i128::from(self.queue.backlog().bytes) * 1_000_000_000 / d;
        let spare = i128::from(self.config.alpha).saturating_mul(capacity - came);
        let queued = i128::from(self.config.beta).saturating_mul(drains);
        let rate = i128::from(self.rate);
        let change = (rate * t).saturating_mul(spare.saturating_sub(queued)) / d / capacity / 1_000;
        self.rate = within(rate.saturating_add(change), self.capacity);
    }
}

/// A rate that may be offered: from the least to the capacity.
fn within(rate: i128, capacity: Rate) -> u64 {
    let most = capacity.bytes_per_sec();
    rate.clamp(i128::from(LEAST.min(most)), i128::from(most)) as u64
}

impl<P: Packet> Qdisc<P> for Rcp<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut impl Drops<P>) -> Verdict {
        self.update(now);
        let bytes = u64::from(packet.bytes());
        self.came += bytes;
        if let Some(stamp) = packet.rate_stamp()
            && stamp.rtt > Duration::ZERO
        {
            self.timed += bytes;
            self.rtt_sum += u128::from(stamp.rtt.as_nanos()) * u128::from(bytes);
        }
        self.queue.enqueue(now, packet, drops)
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.update(now);
        let mut packet = self.queue.dequeue(now, drops)?;
        let offered = self.rate();
        if let Some(stamp) = packet.rate_stamp() {
            stamp.rate = stamp.rate.min(offered);
        }
        Some(packet)
    }

    fn next_ready(&self) -> Option<Time> {
        self.queue.next_ready()
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }
}
