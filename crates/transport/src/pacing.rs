//! Pacing without tokens: when the next packet may leave.

use ccplane_datapath::{Outcome};
use ccplane_units::{Duration, Time};

/// Percent of cwnd/srtt, as Linux' `tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`: in slow start room to double each round,
/// after it enough that the window and not the pacing limits.
const SLOW_START: u64 = 200;
const AVOIDANCE: u64 = 120;

/// Nanoseconds a byte are kept times 2^this.
const FRACTION: u32 = 20;

/// When packets may leave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    /// The next packet leaves not before.
    pub next: Time,
    /// bytes/s; 0: not paced.
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
        self.rate
    }

    #[inline(always)]
    pub fn allows(&self, now: Time) -> bool {
        self.next <= now
    }

    /// A packet of so many bytes leaves. A driver that comes late catches up by one packet.
    #[inline(always)]
    pub fn on_send(&mut self, bytes: u64, now: Time) {
        if self.rate != 0 {
            let gap = Duration::from_nanos(bytes.saturating_mul(self.per_byte) >> FRACTION);
            self.next = self.next.max(now - gap) + gap;
        }
    }

    /// The congestion control orders a rate, in bytes/s.
    #[cold]
    pub fn order(&mut self, outcome: &Outcome) {
        if let Some(rate) = outcome.rate {
            self.ordered = rate != 0;
            self.set(rate);
        }
    }

    /// Follows window and RTT, where nobody ordered a rate.
    #[inline]
    pub fn follow(&mut self, cwnd: u64, ssthresh: u64, srtt: Duration) {
        if self.ordered || srtt == Duration::ZERO {
            return;
        }
        let percent = if cwnd < ssthresh / 2 { SLOW_START } else { AVOIDANCE };
        let scaled = cwnd.saturating_mul(percent).checked_mul(10_000_000);
        let rate = match scaled {
            Some(scaled) => scaled / srtt.as_nanos(),
            None => (u128::from(cwnd) * u128::from(percent) * 10_000_000 / u128::from(srtt.as_nanos())) as u64,
        };
        self.set(rate.max(1));
    }

    fn set(&mut self, rate: u64) {
        self.rate = rate;
        self.per_byte = (1_000_000_000u64 << FRACTION).checked_div(rate).unwrap_or(0);
        if rate == 0 {
            self.next = Time::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_at_the_rate() {
        let mut pacer = Pacer::default();
        assert!(pacer.allows(Time::ZERO));
        pacer.follow(100_000, u64::MAX, Duration::from_millis(100));
        assert_eq!(pacer.rate(), 2_000_000, "200 % of 1 MB/s in slow start");
        pacer.follow(100_000, 100_000, Duration::from_millis(100));
        assert_eq!(pacer.rate(), 1_200_000, "120 % after it");
        let mut now = Time::from_micros(1_000_000);
        for _ in 0..1200 {
            pacer.on_send(1000, now);
            assert!(!pacer.allows(now));
            now = pacer.next;
        }
        let took = now.since(Time::from_micros(1_000_000)).as_micros();
        assert!((998_000..=1_000_100).contains(&took), "1.2 MB at 1.2 MB/s took {took} µs");
    }

    #[test]
    fn an_order_holds() {
        let mut pacer = Pacer::default();
        pacer.order(&Outcome {
            rate: Some(5),
            ..Outcome::default()
        });
        pacer.follow(100_000, u64::MAX, Duration::from_millis(1));
        assert_eq!(pacer.rate(), 5);
    }
}
