//! Pacing: the time of the next packet, and the number of packets sent together.
//!
//! A driver with a real clock cannot send each packet at its own time: a wake-up costs more than a
//! packet. Packets are therefore sent in batches. A batch starts when everything before it would
//! have been sent at the rate, and contains what is due within the duration of the batch. Then
//! nothing is sent until that duration is over, however many acknowledgements arrive. The long-term
//! rate does not depend on the batch size. A late driver starts the next batch sooner, but no batch
//! grows because of it: each is one system call.
//!
//! A rate set by the congestion control counts payload, as its delivery rates and Linux's pacing
//! do. If it counted headers, an algorithm that sends at the measured rate would slow down each
//! time. The operator's limit counts whole packets.
//!
//! RC3 has no congestion control. If it is enabled, the operator's limit covers class 0 and RC3
//! together.

use ccplane_units::{Duration, Time};

use crate::send::rtt::Rtt;

/// Percentage of cwnd/SRTT, as in Linux's `tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`. In slow
/// start the window can double per round. After it the window, not pacing, limits the rate.
const SLOW_START_PERCENT: u64 = 200;
const CONGESTION_AVOIDANCE_PERCENT: u64 = 120;

/// Fraction bits of the time per byte in nanoseconds.
const FRACTION_BITS: u32 = 20;

/// log2 of the maximum batch in bytes: 64 KiB, the limit of one system call and the longest burst
/// of Linux's `tcp_tso_autosize`. Larger batches overflow short queues; smaller ones wake a fast
/// sender more often.
const BATCH_BYTES_LOG_MAX: u32 = 16;

/// Minimum number of batches per SRTT.
const BATCHES_PER_SRTT_MIN: u64 = 4;

/// If the minimum RTT is below 2^9 µs, [`BATCH_BYTES_LOG_MAX`] limits a batch instead of
/// [`BATCHES_PER_SRTT_MIN`]. The limit halves with every further 2^9 µs (Linux's
/// `tcp_tso_rtt_log`). Such a path lies within a room: losses are repaired quickly there, and a
/// quarter of its RTT would be one or two packets.
const NEAR_RTT_MICROS_LOG: u32 = 9;

/// Maximum delay of the next packet due to a rate set by the control, as in Linux's fq. The next
/// rate may be higher, and a delay in progress is not recomputed. A longer maximum stalls a flow
/// whose rate was low for a moment. A shorter one exceeds rates of less than a packet in that time.
const PACING_DELAY_MAX: Duration = Duration::from_secs(1);

/// Transmission schedule. The rate is boxed, as most flows have none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    /// Class 0 sends nothing before this time.
    pub next_send: Time,
    pace: Option<Box<Pace>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Rate, bytes/s; not 0.
    rate: u64,
    /// True if the rate comes from the congestion control. It holds until the control changes it.
    set_by_control: bool,
    /// True if the operator's limit covers RC3 too.
    limits_rc3: bool,
    /// Class 0: payload at the rate, whole packets at the operator's limit.
    class0: Schedule,
    /// Class 0 and RC3 together: whole packets at the operator's limit.
    limit: Schedule,
}

/// Batch schedule at a rate.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    /// Time per byte, ns times 2^FRACTION. 0: no rate.
    time_per_byte: u64,
    /// Nothing is sent before this time.
    next_send: Time,
    /// Time at which everything sent so far would have been sent at the rate.
    due: Time,
    /// The batch continues while `due` is below this time.
    batch_end: Time,
}

impl Pacer {
    /// Creates a pacer with the operator's limit, bytes/s; `u64::MAX`: none. `shared`: the limit
    /// covers RC3.
    pub fn new(limit: u64, shared: bool) -> Pacer {
        let mut pacer = Pacer::default();
        if limit != u64::MAX {
            pacer.set_rate(limit, limit, false);
        }
        if let Some(pace) = pacer.pace.as_deref_mut() {
            pace.limits_rc3 = shared;
        }
        pacer
    }

    pub fn heap_bytes(&self) -> usize {
        self.pace.as_ref().map_or(0, |_| size_of::<Pace>())
    }

    /// Rate in force, bytes/s; 0: not paced.
    #[inline(always)]
    pub fn rate(&self) -> u64 {
        self.pace.as_ref().map_or(0, |pace| pace.rate)
    }

    /// Returns true if a packet of class 0 may be sent.
    #[inline(always)]
    pub fn can_send(&self, now: Time) -> bool {
        self.next_send <= now
    }

    /// Time before which RC3 sends nothing. Class 0 does not send before it either.
    pub fn next_rc3(&self) -> Time {
        self.pace
            .as_ref()
            .map_or(Time::ZERO, |pace| pace.limit.next_send)
    }

    /// Records a packet of class 0 with its bytes of payload and headers. A batch takes at most
    /// `quantum`. A driver that is late by less than a packet or the quantum loses no sending time.
    #[inline(always)]
    pub fn on_send(&mut self, payload: u64, headers: u64, now: Time, quantum: Duration, rtt: &Rtt) {
        if let Some(pace) = self.pace.as_deref_mut() {
            let limit = pace.limit.transmission_time(payload + headers);
            let gap = pace
                .class0
                .transmission_time(payload)
                .min(PACING_DELAY_MAX)
                .max(limit);
            pace.class0.on_send(gap, now, quantum, rtt);
            self.next_send = pace.class0.next_send;
            if pace.limits_rc3 {
                pace.limit.on_send(limit, now, quantum, rtt);
                self.next_send = self.next_send.max(pace.limit.next_send);
            }
        }
    }

    /// Records a packet of RC3; `bytes` includes its headers.
    pub fn on_send_rc3(&mut self, bytes: u64, now: Time, quantum: Duration, rtt: &Rtt) {
        if let Some(pace) = self.pace.as_deref_mut().filter(|pace| pace.limits_rc3) {
            let gap = pace.limit.transmission_time(bytes);
            pace.limit.on_send(gap, now, quantum, rtt);
            self.next_send = self.next_send.max(pace.limit.next_send);
        }
    }

    /// Sets the rate of the congestion control, bytes/s. 0 removes it; the operator's limit
    /// remains.
    #[cold]
    pub fn set_control_rate(&mut self, rate: u64, limit: u64) {
        if rate != 0 {
            self.set_rate(rate, limit, true);
        } else if limit != u64::MAX {
            self.set_rate(limit, limit, false);
        } else {
            *self = Pacer::default();
        }
    }

    /// Sets the rate from window and RTT, unless the control has set one.
    #[inline]
    pub fn set_window_rate(&mut self, cwnd: u64, ssthresh: u64, srtt: Duration, limit: u64) {
        if srtt == Duration::ZERO || self.pace.as_ref().is_some_and(|pace| pace.set_by_control) {
            return;
        }
        let percent = if cwnd < ssthresh / 2 {
            SLOW_START_PERCENT
        } else {
            CONGESTION_AVOIDANCE_PERCENT
        };
        let rate = match cwnd.saturating_mul(percent).checked_mul(10_000_000) {
            Some(scaled) => scaled / srtt.as_nanos(),
            None => {
                let scaled = u128::from(cwnd) * u128::from(percent) * 10_000_000;
                u64::try_from(scaled / u128::from(srtt.as_nanos())).unwrap_or(u64::MAX)
            }
        };
        self.set_rate(rate, limit, false);
    }

    fn set_rate(&mut self, rate: u64, limit: u64, ordered: bool) {
        let rate = rate.min(limit).max(1);
        let per_byte = |rate: u64| (1_000_000_000 << FRACTION_BITS) / rate;
        let pace = self.pace.get_or_insert_default();
        (pace.rate, pace.set_by_control) = (rate, ordered);
        pace.class0.time_per_byte = per_byte(rate);
        pace.limit.time_per_byte = if limit == u64::MAX {
            0
        } else {
            per_byte(limit.max(1))
        };
    }
}

impl Schedule {
    /// Transmission time of `bytes` at the rate.
    #[inline(always)]
    fn transmission_time(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(self.time_per_byte) >> FRACTION_BITS)
    }

    /// Records a packet; the next one is due `gap` later.
    #[inline(always)]
    fn on_send(&mut self, gap: Duration, now: Time, quantum: Duration, rtt: &Rtt) {
        let late = now.since(self.due) > gap.max(quantum);
        let due = if late { now - quantum } else { self.due };
        if due >= self.batch_end {
            self.batch_end = due + self.batch_duration(quantum, rtt);
        }
        self.due = due + gap;
        if self.due + gap > self.batch_end {
            (self.batch_end, self.next_send) = (self.due, self.due);
        }
    }

    /// Duration of a batch at the rate.
    #[inline]
    fn batch_duration(&self, quantum: Duration, rtt: &Rtt) -> Duration {
        if quantum == Duration::ZERO {
            return quantum;
        }
        let takes = |log: u32| Duration::from_nanos(self.time_per_byte >> (FRACTION_BITS - log));
        let shrinks = (rtt.min_rtt().as_micros() >> NEAR_RTT_MICROS_LOG)
            .min(u64::from(BATCH_BYTES_LOG_MAX)) as u32;
        let part = (rtt.srtt() / BATCHES_PER_SRTT_MIN).max(takes(BATCH_BYTES_LOG_MAX - shrinks));
        quantum.min(takes(BATCH_BYTES_LOG_MAX)).min(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNLIMITED: u64 = u64::MAX;

    fn rtt(micros: u64) -> Rtt {
        let mut rtt = Rtt::default();
        rtt.sample(Duration::from_micros(micros), Time::ZERO);
        rtt
    }

    /// Sends all packets of `bytes` bytes that may be sent now, and returns their number.
    fn batch(pacer: &mut Pacer, bytes: u64, now: Time, quantum: Duration, rtt: &Rtt) -> u64 {
        let mut sent = 0;
        while pacer.can_send(now) {
            pacer.on_send(bytes, 0, now, quantum, rtt);
            sent += 1;
        }
        sent
    }

    #[test]
    fn packets_leave_at_the_rate() {
        let mut pacer = Pacer::default();
        assert!(pacer.can_send(Time::ZERO));
        pacer.set_window_rate(100_000, u64::MAX, Duration::from_millis(100), UNLIMITED);
        assert_eq!(pacer.rate(), 2_000_000, "200 % of 1 MB/s in slow start");
        pacer.set_window_rate(100_000, 100_000, Duration::from_millis(100), UNLIMITED);
        assert_eq!(pacer.rate(), 1_200_000, "120 % after it");
        let mut now = Time::from_micros(1_000_000);
        for _ in 0..1200 {
            pacer.on_send(1000, 40, now, Duration::ZERO, &rtt(100_000));
            assert!(!pacer.can_send(now));
            now = pacer.next_send;
        }
        let took = now.since(Time::from_micros(1_000_000)).as_micros();
        assert!(
            (998_000..=1_000_100).contains(&took),
            "1.2 MB at 1.2 MB/s took {took} µs"
        );
    }

    #[test]
    fn window_rates_are_exact_for_every_window() {
        let rate = |cwnd: u64, ssthresh: u64, rtt_ms: u64| {
            let mut pacer = Pacer::default();
            pacer.set_window_rate(cwnd, ssthresh, Duration::from_millis(rtt_ms), UNLIMITED);
            pacer.rate()
        };
        // The higher percentage ends at half the threshold.
        assert_eq!(rate(49_999, 100_000, 100), 999_980);
        assert_eq!(rate(50_000, 100_000, 100), 600_000);
        assert_eq!(rate(50_000, 100_000, 0), 0, "without an RTT");
        // The largest product of 64 bits, and larger ones.
        assert_eq!(rate(9_223_372_036, UNLIMITED, 100), 184_467_440_720);
        assert_eq!(rate(9_223_372_040, UNLIMITED, 100), 184_467_440_800);
        assert_eq!(rate(20_000_000_000, UNLIMITED, 100), 400_000_000_000);
        assert_eq!(rate(20_000_000_000, 0, 100), 240_000_000_000);
        assert_eq!(rate(u64::MAX, 0, 1), u64::MAX);
    }

    #[test]
    fn a_late_driver_catches_up_within_its_quantum() {
        let (mut pacer, quantum, rtt) = (Pacer::default(), Duration::from_micros(500), rtt(20_000));
        pacer.set_control_rate(100_000_000, UNLIMITED); // 10 µs for 1000 bytes
        let mut now = Time::from_micros(10_000);
        let mut sent = 0;
        for round in 0..1000 {
            sent += batch(&mut pacer, 1000, now, quantum, &rtt);
            now = pacer.next_send + Duration::from_micros(60 + round % 400);
        }
        let rate = sent * 1000 / now.since(Time::from_micros(10_000)).as_micros();
        assert!(
            (98..=101).contains(&rate),
            "{rate} instead of 100 bytes per µs"
        );
    }

    #[test]
    fn missed_slots_are_not_made_up() {
        let (mut pacer, quantum, rtt) = (Pacer::default(), Duration::from_micros(500), rtt(20_000));
        pacer.set_control_rate(100_000_000, UNLIMITED);
        let now = Time::from_micros(10_000);
        batch(&mut pacer, 1000, now, quantum, &rtt);
        let later = now + Duration::from_secs(1);
        let burst = batch(&mut pacer, 1000, later, quantum, &rtt);
        assert_eq!(burst, 100, "the quantum that it missed, and its own");
    }

    #[test]
    fn a_batch_leaves_at_once_and_nothing_until_it_would_have_left_at_the_rate() {
        let (mut pacer, quantum, rtt) = (Pacer::default(), Duration::from_micros(500), rtt(20_000));
        pacer.set_control_rate(100_000_000, UNLIMITED);
        let mut now = Time::from_micros(10_000);
        batch(&mut pacer, 1000, now, quantum, &rtt); // the first also uses the quantum before it
        for _ in 0..10 {
            now = pacer.next_send;
            assert_eq!(batch(&mut pacer, 1000, now, quantum, &rtt), 50);
            assert!(
                !pacer.can_send(now + Duration::from_micros(499)),
                "for any number of calls"
            );
            assert_eq!(pacer.next_send, now + quantum);
        }
        // Late by 60 µs: the batch has the same size, and the next one follows after 440 µs.
        now = pacer.next_send + Duration::from_micros(60);
        assert_eq!(batch(&mut pacer, 1000, now, quantum, &rtt), 50);
        assert_eq!(pacer.next_send, now + Duration::from_micros(440));
        // A batch that the window interrupted may continue until its time has passed.
        now = pacer.next_send;
        for _ in 0..20 {
            pacer.on_send(1000, 0, now, quantum, &rtt);
        }
        now += Duration::from_micros(300);
        assert_eq!(batch(&mut pacer, 1000, now, quantum, &rtt), 30);
        assert_eq!(pacer.next_send, now + Duration::from_micros(200));
    }

    #[test]
    fn a_batch_is_a_part_of_the_round_trip_and_what_the_kernel_takes_at_once() {
        let quantum = Duration::from_micros(500);
        let batch = |rate: u64, rtt: &Rtt| {
            let mut pacer = Pacer::default();
            pacer.set_control_rate(rate, UNLIMITED);
            let pace = pacer.pace.unwrap();
            pace.class0.batch_duration(quantum, rtt).as_micros()
        };
        let gigabit = 125_000_000;
        assert_eq!(batch(gigabit, &rtt(20_000)), 500);
        assert_eq!(batch(gigabit, &rtt(1_600)), 400, "a quarter");
        assert_eq!(
            batch(gigabit, &rtt(50)),
            500,
            "64 KiB where the path is short"
        );
        assert_eq!(batch(gigabit, &rtt(600)), 262, "32 KiB");
        assert_eq!(batch(10 * gigabit, &rtt(20_000)), 52, "64 KiB");
        assert_eq!(batch(10 * gigabit, &rtt(1_600)), 52);
        assert_eq!(batch(gigabit, &Rtt::default()), 500);
        assert_eq!(batch(1, &rtt(u64::MAX >> 16)), 500);
        assert_eq!(batch(u64::MAX, &rtt(20_000)), 0);
    }

    #[test]
    fn an_order_holds() {
        let mut pacer = Pacer::default();
        pacer.set_control_rate(5, UNLIMITED);
        pacer.set_window_rate(100_000, u64::MAX, Duration::from_millis(1), UNLIMITED);
        assert_eq!(pacer.rate(), 5);
        pacer.set_control_rate(0, UNLIMITED);
        assert_eq!(pacer.rate(), 0);
    }

    #[test]
    fn a_rate_that_was_low_for_a_moment_is_forgotten_in_a_second() {
        let now = Time::from_micros(100_000_000);
        let mut pacer = Pacer::default();
        pacer.set_control_rate(1, UNLIMITED);
        pacer.on_send(1000, 40, now, Duration::ZERO, &rtt(20_000));
        pacer.set_control_rate(1_000_000, UNLIMITED);
        assert_eq!(pacer.next_send, now + PACING_DELAY_MAX);
        // The operator's limit applies however low it is.
        let mut pacer = Pacer::new(100, false);
        pacer.set_control_rate(1, 100);
        pacer.on_send(1000, 0, now, Duration::ZERO, &rtt(20_000));
        assert_eq!(pacer.next_send, now + Duration::from_secs(10));
    }

    #[test]
    fn operator_limits_cap_every_agent_rate() {
        let mut pacer = Pacer::new(1000, false);
        assert_eq!(pacer.rate(), 1000);
        pacer.set_window_rate(100_000, u64::MAX, Duration::from_millis(1), 1000);
        assert_eq!(pacer.rate(), 1000);
        for (order, rate) in [(5, 5), (2000, 1000), (u64::MAX, 1000), (0, 1000)] {
            pacer.set_control_rate(order, 1000);
            assert_eq!(pacer.rate(), rate, "ordered {order}");
        }
    }

    #[test]
    fn agent_rates_count_payload_and_operator_limits_whole_packets() {
        let now = Time::from_micros(10_000);
        let gap = |order: u64, limit: u64| {
            let mut pacer = Pacer::new(limit, false);
            pacer.set_control_rate(order, limit);
            pacer.on_send(1000, 40, now, Duration::ZERO, &rtt(20_000));
            pacer.next_send.since(now).as_micros()
        };
        assert_eq!(gap(1_000_000, UNLIMITED), 1000);
        assert_eq!(gap(1_000_000, 2_000_000), 1000);
        assert_eq!(gap(2_000_000, 1_000_000), 1040);
        assert_eq!(gap(0, 1_000_000), 1040);
        assert_eq!(
            gap(990_000, 1_000_000),
            1040,
            "with its headers above the limit"
        );
    }

    #[test]
    fn operator_limits_cover_both_loops_and_agent_rates_class_0() {
        let (rtt, quantum) = (rtt(20_000), Duration::ZERO);
        let mut pacer = Pacer::new(1_000_000, true);
        pacer.set_control_rate(100_000, 1_000_000);
        let start = Time::from_micros(1_000_000);
        pacer.on_send(1000, 0, start, quantum, &rtt);
        let ten = start + Duration::from_millis(10);
        assert_eq!(pacer.next_send, ten, "as ordered");
        for n in 1..=10 {
            assert_eq!(pacer.next_rc3(), start + Duration::from_millis(n));
            pacer.on_send_rc3(1000, pacer.next_rc3(), quantum, &rtt);
        }
        assert_eq!(
            pacer.next_send,
            ten + Duration::from_millis(1),
            "after the last segment of the second loop, and no more"
        );
        pacer.on_send(1000, 0, pacer.next_send, quantum, &rtt);
        assert_eq!(
            pacer.next_send,
            ten + Duration::from_millis(10),
            "the full rate is used"
        );
        assert_eq!(pacer.next_rc3(), ten + Duration::from_millis(2));
    }
}
