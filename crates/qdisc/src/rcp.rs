//! Router of the Rate Control Protocol: computes one fair rate for all flows and stamps it on
//! packets.
//!
//! Dukkipati, Kobayashi, Zhang-Shen and McKeown, Processor Sharing Flows in the Internet, IWQoS
//! 2005; Dukkipati and McKeown, Why Flow-Completion Time is the Right Metric for Congestion
//! Control, CCR 36(1), 2006. Every T = min(d, 10 ms) the offered rate becomes
//!
//! > R ← R (1 + (T/d) (α (C − y) − β q/d) / C)
//!
//! where C is the capacity of the line, y the arrival rate since the last update, q the queue
//! length and d the average RTT of the flows. The average is computed as in the authors' simulator:
//! the byte-weighted mean of the RTTs carried by the packets of an interval moves d with a gain of
//! T/d if it is longer, and of (R/C) (mean/d) (T/d) if it is shorter.

use ccplane_units::{Duration, Rate, Time};

use crate::{Backlog, DropTail, Drops, Limit, Packet, Qdisc, Verdict};

/// Maximum update interval, which keeps the router responsive at long RTTs.
const UPDATE_INTERVAL_MAX: Duration = Duration::from_millis(10);

/// Average RTT before the first sample.
const RTT_INITIAL: Duration = Duration::from_millis(200);

/// Minimum offered rate, bytes per second, so that every flow keeps sending. The authors' value.
const OFFERED_RATE_MIN: u64 = 16_000;

/// Minimum average RTT. Below it the updates would cost more than they gain.
const RTT_MIN: Duration = Duration::from_micros(1);

/// Maximum number of updates per call. After that many without a call the remaining change is below
/// rounding.
const UPDATES_PER_CALL_MAX: u32 = 1 << 12;

/// Settings of RCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcpConfig {
    /// α, thousandths: 400. Gain on spare capacity.
    pub alpha: u64,
    /// β, thousandths: 400. Gain on the queue. With α = β = 0.4 the system is stable for all delays
    /// (2005, section 3).
    pub beta: u64,
    /// Initial rate in per cent of the capacity, 5. A higher rate starts flows faster but overflows
    /// the queue when many start; RC3's authors compare with 100.
    pub init: u64,
}

impl RcpConfig {
    /// Defaults of the authors.
    pub const DEFAULT: RcpConfig = RcpConfig {
        alpha: 400,
        beta: 400,
        init: 5,
    };
}

/// Drop-tail queue with RCP.
#[derive(Clone, Debug)]
pub struct Rcp<P> {
    config: RcpConfig,
    /// C in the equation above.
    capacity: Rate,
    queue: DropTail<P>,
    /// R, bytes per second.
    rate: u64,
    /// d in the equation above.
    rtt: Duration,
    /// `None` before the first packet.
    next_update: Option<Time>,
    /// T of the current interval.
    interval: Duration,
    /// Bytes that arrived since the last update, in total and with an RTT sample.
    arrived_bytes: u64,
    sampled_bytes: u64,
    /// Σ RTT in ns × bytes of the packets with a sample.
    rtt_sum: u128,
}

impl<P: Packet> Rcp<P> {
    /// Creates an empty queue for a line of rate `capacity`.
    pub fn new(config: RcpConfig, capacity: Rate, limit: Limit) -> Rcp<P> {
        let first = u128::from(capacity.bytes_per_sec()) * u128::from(config.init) / 100;
        Rcp {
            config,
            capacity,
            queue: DropTail::new(limit),
            rate: clamp_rate(first as i128, capacity),
            rtt: RTT_INITIAL,
            next_update: None,
            interval: RTT_INITIAL.min(UPDATE_INTERVAL_MAX),
            arrived_bytes: 0,
            sampled_bytes: 0,
            rtt_sum: 0,
        }
    }

    /// Returns the rate offered to every flow.
    pub fn rate(&self) -> Rate {
        Rate::from_bytes_per_sec(self.rate)
    }

    /// Returns the average RTT.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Runs all updates that are due by `now`.
    fn update(&mut self, now: Time) {
        let mut next = self.next_update.unwrap_or(now + self.interval);
        let mut updates = 0;
        while next <= now && next < Time::MAX {
            updates += 1;
            let at = if updates > UPDATES_PER_CALL_MAX {
                now
            } else {
                next
            };
            self.update_rtt();
            self.update_rate();
            self.interval = self.rtt.min(UPDATE_INTERVAL_MAX);
            next = at + self.interval;
            (self.arrived_bytes, self.sampled_bytes, self.rtt_sum) = (0, 0, 0);
        }
        self.next_update = Some(next);
    }

    fn update_rtt(&mut self) {
        let Some(mean) = self.rtt_sum.checked_div(u128::from(self.sampled_bytes)) else {
            return;
        };
        let (d, t) = (
            u128::from(self.rtt.as_nanos()),
            u128::from(self.interval.as_nanos()),
        );
        let capacity = u128::from(self.capacity.bytes_per_sec().max(1));
        let d = if mean >= d {
            d + ((mean - d) * t / d)
        } else {
            // d (1 - g) + g mean, g = (R/C) (mean/d) (T/d). The two ratios below 1 are in 32-bit
            // fixed point.
            let share = (u128::from(self.rate) << 32) / capacity;
            let gain = ((share * ((mean << 32) / d)) >> 32) * t / d;
            d - (((d - mean) * gain.min(1 << 32)) >> 32)
        };
        let d = Duration::from_nanos(u64::try_from(d).unwrap_or(u64::MAX));
        self.rtt = d.clamp(RTT_MIN, Duration::from_secs(100));
    }

    fn update_rate(&mut self) {
        let (d, t) = (
            i128::from(self.rtt.as_nanos()),
            i128::from(self.interval.as_nanos()),
        );
        let capacity = i128::from(self.capacity.bytes_per_sec().max(1));
        let came = i128::from(self.arrived_bytes) * 1_000_000_000 / t;
        let drains = i128::from(self.queue.backlog().bytes) * 1_000_000_000 / d;
        let spare = i128::from(self.config.alpha).saturating_mul(capacity - came);
        let queued = i128::from(self.config.beta).saturating_mul(drains);
        let rate = i128::from(self.rate);
        let change = (rate * t).saturating_mul(spare.saturating_sub(queued)) / d / capacity / 1_000;
        self.rate = clamp_rate(rate.saturating_add(change), self.capacity);
    }
}

/// Clamps a rate to between the minimum and the capacity.
fn clamp_rate(rate: i128, capacity: Rate) -> u64 {
    let rate_max = capacity.bytes_per_sec();
    rate.clamp(
        i128::from(OFFERED_RATE_MIN.min(rate_max)),
        i128::from(rate_max),
    ) as u64
}

impl<P: Packet> Qdisc<P> for Rcp<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut impl Drops<P>) -> Verdict {
        self.update(now);
        let bytes = u64::from(packet.bytes());
        self.arrived_bytes += bytes;
        if let Some(stamp) = packet.rate_stamp()
            && stamp.rtt > Duration::ZERO
        {
            self.sampled_bytes += bytes;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stamp;

    struct StampedPacket(Stamp);

    impl Packet for StampedPacket {
        fn bytes(&self) -> u32 {
            1_000
        }

        fn rate_stamp(&mut self) -> Option<&mut Stamp> {
            Some(&mut self.0)
        }
    }

    fn stamped(rate: u64) -> StampedPacket {
        StampedPacket(Stamp {
            rate: Rate::from_bytes_per_sec(rate),
            rtt: Duration::from_millis(40),
        })
    }

    const CAPACITY: u64 = 125_000_000;

    /// Returns a queue without a limit at a link of `CAPACITY`.
    fn unlimited<P: Packet>() -> Rcp<P> {
        let rate = Rate::from_bytes_per_sec(CAPACITY);
        Rcp::new(RcpConfig::DEFAULT, rate, Limit::Unlimited)
    }

    /// Runs `flows` flows of 40 ms RTT that send at the rate offered half an RTT ago. Returns the
    /// final rate, the mean queue of the last quarter and the average RTT.
    fn run(flows: u64) -> (u64, u64, Duration) {
        let mut queue = unlimited();
        let mut offers = std::collections::VecDeque::from(vec![CAPACITY / 20; 200]);
        let (mut owed, mut served, mut queued) = (0, 0, 0);
        let steps = 40_000;
        // Steps of 100 µs.
        for step in 0..steps {
            let now = Time::from_micros(step * 100);
            let offered = offers.pop_front().expect("200 of them");
            owed += offered * flows / 10_000;
            while owed >= 1_000 {
                owed -= 1_000;
                queue.enqueue(now, stamped(u64::MAX), &mut |_, _| {});
            }
            served += CAPACITY / 10_000;
            let mut last = None;
            while served >= 1_000
                && let Some(packet) = queue.dequeue(now, &mut |_, _| {})
            {
                served -= 1_000;
                last = Some(packet.0.rate.bytes_per_sec());
            }
            served = served.min(1_000);
            offers.push_back(last.unwrap_or(queue.rate().bytes_per_sec()));
            if step >= steps * 3 / 4 {
                queued += queue.backlog().bytes;
            }
        }
        (
            queue.rate().bytes_per_sec(),
            queued / (steps / 4),
            queue.rtt(),
        )
    }

    #[test]
    fn every_flow_is_offered_its_share_and_the_queue_drains() {
        for flows in [2, 10, 50] {
            let (rate, queued, rtt) = run(flows);
            let share = CAPACITY / flows;
            assert!(
                rate.abs_diff(share) < share / 50,
                "{flows} flows: {rate}, not {share}"
            );
            assert!(
                queued < CAPACITY / 1_000,
                "{queued} bytes, a millisecond or more"
            );
            // The average falls slowly if each flow has a small share of the line (the authors'
            // gain).
            let rtt_max_ms = if flows == 2 { 42 } else { 190 };
            assert!(
                (40..rtt_max_ms).contains(&rtt.as_millis()),
                "{flows} flows: {rtt}"
            );
        }
    }

    #[test]
    fn one_update_is_the_equation() {
        let mut queue = unlimited();
        for _ in 0..500 {
            queue.enqueue(
                Time::ZERO,
                StampedPacket(Stamp {
                    rtt: Duration::ZERO,
                    ..stamped(0).0
                }),
                &mut |_, _| {},
            );
        }
        queue.update(Time::from_micros(10_000));
        // R = 6.25 MB/s, T = 10 ms, d = 200 ms, y = 50 MB/s, q = 500 kB.
        let (c, y, q) = (125e6, 50e6, 500e3);
        let expected = 6.25e6 * (1.0 + 0.01 / 0.2 * (0.4 * (c - y) - 0.4 * q / 0.2) / c);
        assert!(
            (queue.rate().bytes_per_sec() as f64 - expected).abs() < 2.0,
            "{}, not {expected}",
            queue.rate()
        );
    }

    #[test]
    fn the_average_round_trip_rises_faster_than_it_falls() {
        // Starts at 200 ms with T = 10 ms and R/C = 1/20.
        for (rtt_ms, expected_us) in [
            (400, 200_000 + 200_000 / 20),
            (40, 200_000 - 160_000 / 20 / 5 / 20),
        ] {
            let mut queue = unlimited();
            let rtt = Duration::from_millis(rtt_ms);
            queue.enqueue(
                Time::ZERO,
                StampedPacket(Stamp {
                    rtt,
                    ..stamped(0).0
                }),
                &mut |_, _| {},
            );
            queue.update(Time::from_micros(10_000));
            assert!(
                queue.rtt().as_micros().abs_diff(expected_us) <= 1,
                "{rtt_ms} ms: {}",
                queue.rtt()
            );
        }
    }

    #[test]
    fn the_lowest_offer_on_the_way_stays() {
        let mut queue = unlimited();
        for rate in [1_000, u64::MAX] {
            queue.enqueue(Time::ZERO, stamped(rate), &mut |_, _| {});
        }
        let mut offer = || {
            queue
                .dequeue(Time::ZERO, &mut |_, _| {})
                .map(|p| p.0.rate.bytes_per_sec())
        };
        assert_eq!((offer(), offer()), (Some(1_000), Some(CAPACITY / 20)));
    }
}
