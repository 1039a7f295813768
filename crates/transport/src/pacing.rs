//! Pacing without tokens: when the next packet may leave.

use ccplane_units::{Duration, Time};

/// Percent of cwnd/srtt, as Linux' `tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`: in slow start room to double each round,
/// after it enough that the window and not the pacing limits.
const SLOW_START: u64 = 200;
const AVOIDANCE: u64 = 120;

/// Nanoseconds a byte are kept times 2^this.
const FRACTION: u32 = 20;

/// When packets may leave. The rate is beside, as most flows have none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    /// The next packet leaves not before.
    pub next: Time,
    pace: Option<Box<Pace>>,
}

#[derive(Clone, Copy, Debug)]
struct Pace {
    /// bytes/s, not 0.
    rate: u64,
    /// What a byte takes, ns times 2^FRACTION.
    per_byte: u64,
    /// The rate comes from the congestion control and holds until it says another.
    ordered: bool,
}

impl Pacer {
    /// The rate in force, bytes/s; 0: not paced.
    #[inline(always)]
    pub fn rate(&self) -> u64 {
        self.pace.as_ref().map_or(0, |pace| pace.rate)
    }

    /// What is due within `quantum` may leave now.
    #[inline(always)]
    pub fn allows(&self, now: Time, quantum: Duration) -> bool {
        self.next <= now + quantum
    }

    /// A packet of so many bytes leaves. A driver that is late by less than a packet, or the quantum, does not lose the time.
    #[inline(always)]
    pub fn on_send(&mut self, bytes: u64, now: Time, quantum: Duration) {
        if let Some(pace) = self.pace.as_deref() {
            let gap = Duration::from_nanos(bytes.saturating_mul(pace.per_byte) >> FRACTION);
            let late = now.since(self.next) > gap.max(quantum);
            self.next = if late { now - quantum } else { self.next } + gap;
        }
    }

    /// The congestion control orders a rate, in bytes/s; 0 ends pacing.
    #[cold]
    pub fn order(&mut self, rate: u64) {
        if rate == 0 {
            *self = Pacer::default();
        } else {
            self.set(rate, true);
        }
    }

    /// Follows window and RTT, where nobody ordered a rate.
    #[inline]
    pub fn follow(&mut self, cwnd: u64, ssthresh: u64, srtt: Duration) {
        if srtt == Duration::ZERO || self.pace.as_ref().is_some_and(|pace| pace.ordered) {
            return;
        }
        let percent = if cwnd < ssthresh / 2 { SLOW_START } else { AVOIDANCE };
        let rate = match cwnd.saturating_mul(percent).checked_mul(10_000_000) {
            Some(scaled) => scaled / srtt.as_nanos(),
            None => (u128::from(cwnd) * u128::from(percent) * 10_000_000 / u128::from(srtt.as_nanos())) as u64,
        };
        self.set(rate.max(1), false);
    }

    fn set(&mut self, rate: u64, ordered: bool) {
        let pace = Pace {
            rate,
            per_byte: (1_000_000_000 << FRACTION) / rate,
            ordered,
        };
        match &mut self.pace {
            Some(place) => **place = pace,
            None => self.pace = Some(Box::new(pace)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_at_the_rate() {
        let mut pacer = Pacer::default();
        assert!(pacer.allows(Time::ZERO, Duration::ZERO));
        pacer.follow(100_000, u64::MAX, Duration::from_millis(100));
        assert_eq!(pacer.rate(), 2_000_000, "200 % of 1 MB/s in slow start");
        pacer.follow(100_000, 100_000, Duration::from_millis(100));
        assert_eq!(pacer.rate(), 1_200_000, "120 % after it");
        let mut now = Time::from_micros(1_000_000);
        for _ in 0..1200 {
            pacer.on_send(1000, now, Duration::ZERO);
            assert!(!pacer.allows(now, Duration::ZERO));
            now = pacer.next;
        }
        let took = now.since(Time::from_micros(1_000_000)).as_micros();
        assert!(
            (998_000..=1_000_100).contains(&took),
            "1.2 MB at 1.2 MB/s took {took} µs"
        );
    }

    #[test]
    fn a_late_driver_catches_up_within_its_quantum() {
        let (mut pacer, quantum) = (Pacer::default(), Duration::from_micros(500));
        pacer.order(1_000_000_000); // 1 µs for 1000 bytes
        let mut now = Time::from_micros(10_000);
        let mut sent = 0;
        for _ in 0..1000 {
            while pacer.allows(now, quantum) {
                pacer.on_send(1000, now, quantum);
                sent += 1;
            }
            now = pacer.next + Duration::from_micros(60);
        }
        let rate = sent * 1000 / now.since(Time::from_micros(10_000)).as_micros();
        assert!((980..=1010).contains(&rate), "{rate} instead of 1000 bytes a µs");
    }

    #[test]
    fn an_order_holds() {
        let mut pacer = Pacer::default();
        pacer.order(5);
        pacer.follow(100_000, u64::MAX, Duration::from_millis(1));
        assert_eq!(pacer.rate(), 5);
    }
}
