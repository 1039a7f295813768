//! Round-trip time: smoothed (RFC 6298), minimum, and retransmission timeout.

use ccplane_units::{Duration, Time};

/// The minimum RTT covers the last five minutes, as Linux's `tcp_min_rtt_wlen`. A shorter window
/// forgets the empty path while a queue stands. A longer one keeps the RTT of a path that no longer
/// exists. The filter has two windows of half that time, in ticks of 2^30 ns.
const HALF_WINDOW_TICKS: u32 = 140;
/// The minimum of a window is stored in units of 2^4 ns, so that 32 bits hold 68 s.
const UNIT_NANOS_LOG: u32 = 4;

/// RTT estimator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    /// Smoothed RTT, ns times 8; 0 before the first sample.
    srtt: u64,
    /// RTTVAR, ns times 4. Before the first sample it is non-zero if the handshake timed out.
    rttvar: u64,
    /// Minimum of this window and the one before, ns; 0 before the first sample.
    min: u64,
    /// Minimum of this window, in units of 2^4 ns.
    window_min: u32,
    /// End of this window, in ticks.
    window_end: u32,
}

impl Rtt {
    /// Adds a sample (RFC 6298 sections 2.2 and 2.3, α = 1/8 and β = 1/4).
    #[inline(always)]
    pub fn sample(&mut self, rtt: Duration, now: Time) {
        // 0 means that there is no sample.
        let ns = rtt.as_nanos().max(1);
        if self.srtt == 0 {
            return self.init(ns, now);
        }
        let error = ns as i64 - (self.srtt >> 3) as i64;
        self.srtt = self.srtt.wrapping_add_signed(error).max(1);
        self.rttvar = self.rttvar - (self.rttvar >> 2) + error.unsigned_abs();
        let coarse = to_units(ns);
        if coarse <= self.window_min {
            self.window_min = coarse;
            self.min = self.min.min(ns);
        }
        if ticks(now) >= self.window_end {
            self.min = (u64::from(self.window_min) << UNIT_NANOS_LOG).max(1);
            self.window_min = u32::MAX;
            self.window_end = ticks(now) + HALF_WINDOW_TICKS;
        }
    }

    #[cold]
    fn init(&mut self, ns: u64, now: Time) {
        *self = Rtt {
            srtt: ns << 3,
            rttvar: ns << 1,
            min: ns,
            window_min: to_units(ns),
            window_end: ticks(now) + HALF_WINDOW_TICKS,
        };
    }

    /// Records a timeout of the handshake: until the first sample the RTO is three times the
    /// initial one (RFC 6298 section 5.7).
    pub fn on_handshake_timeout(&mut self) {
        if !self.has_sample() {
            self.rttvar = 1;
        }
    }

    /// Returns true after the first sample.
    #[inline(always)]
    pub fn has_sample(&self) -> bool {
        self.srtt != 0
    }

    /// Smoothed RTT; zero before the first sample.
    #[inline(always)]
    pub fn srtt(&self) -> Duration {
        Duration::from_nanos(self.srtt >> 3)
    }

    /// Minimum RTT; zero before the first sample.
    #[inline(always)]
    pub fn min_rtt(&self) -> Duration {
        Duration::from_nanos(self.min)
    }

    /// Returns SRTT + max(4·RTTVAR, `min_rto`): Linux's variant, never below RFC 6298's.
    #[inline]
    pub fn rto(&self, initial: Duration, min_rto: Duration) -> Duration {
        if self.has_sample() {
            self.srtt() + Duration::from_nanos(self.rttvar).max(min_rto)
        } else if self.rttvar != 0 {
            initial * HANDSHAKE_TIMEOUT_RTO_FACTOR
        } else {
            initial
        }
    }
}

/// RFC 6298 section 5.7: 3 s instead of 1 s.
const HANDSHAKE_TIMEOUT_RTO_FACTOR: u64 = 3;

#[inline(always)]
fn to_units(ns: u64) -> u32 {
    u32::try_from(ns >> UNIT_NANOS_LOG).unwrap_or(u32::MAX)
}

#[inline(always)]
fn ticks(now: Time) -> u32 {
    (now.as_nanos() >> 30) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_sample_gives_three_times_itself() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(Duration::from_secs(1), MS), Duration::from_secs(1));
        rtt.sample(MS * 100, Time::ZERO);
        assert_eq!(rtt.srtt(), MS * 100);
        // RFC 6298 section 2.2: RTTVAR = R/2, RTO = SRTT + 4·RTTVAR
        assert_eq!(rtt.rto(Duration::from_secs(1), MS), MS * 300);
        assert_eq!(
            rtt.rto(Duration::from_secs(1), Duration::from_secs(1)),
            MS * 1100
        );
    }

    /// RFC 6298 section 5.7.
    #[test]
    fn a_handshake_that_timed_out_triples_the_initial_rto() {
        let mut rtt = Rtt::default();
        rtt.on_handshake_timeout();
        assert_eq!(rtt.rto(Duration::from_secs(1), MS), Duration::from_secs(3));
        rtt.sample(MS * 100, Time::ZERO);
        assert_eq!(rtt.rto(Duration::from_secs(1), MS), MS * 300);
        rtt.on_handshake_timeout();
        assert_eq!(
            rtt.rto(Duration::from_secs(1), MS),
            MS * 300,
            "a sample has more weight"
        );
    }

    #[test]
    fn later_samples_count_an_eighth_and_a_quarter() {
        let mut rtt = Rtt::default();
        rtt.sample(MS * 100, Time::ZERO);
        rtt.sample(MS * 180, Time::ZERO);
        // SRTT = 7/8·100 + 180/8; RTTVAR = 3/4·50 + |100-180|/4
        assert_eq!(rtt.srtt(), MS * 110);
        assert_eq!(
            rtt.rto(Duration::from_secs(1), MS),
            Duration::from_micros(110_000 + 4 * 57_500)
        );
    }

    #[test]
    fn the_minimum_rtt_expires_after_five_minutes() {
        let mut rtt = Rtt::default();
        rtt.sample(MS, Time::ZERO);
        let mut now = Time::ZERO;
        for second in 1..=301u64 {
            now = Time::ZERO + Duration::from_secs(second);
            rtt.sample(MS * 2, now);
            if second < 150 {
                assert_eq!(rtt.min_rtt(), MS);
            }
        }
        assert_eq!(rtt.min_rtt(), MS * 2, "at {now:?}");
    }
}
