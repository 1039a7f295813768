//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation), per packet as in Linux.

use ccplane_units::{Duration, Time};

/// Delivery-rate sample: packets delivered over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Packets delivered while the sampled one was in flight, including it. 0: no sample.
    pub delivered: u32,
    /// Interval in which they were sent.
    pub send_elapsed: Duration,
    /// Interval in which they were acknowledged.
    pub ack_elapsed: Duration,
    /// The application limited sending during the sample.
    pub app_limited: bool,
}

impl RateSample {
    /// Rate over the ACK interval, bytes/s.
    #[inline]
    pub fn ack_rate(&self, mss: u64) -> u64 {
        bytes_per_sec(self.delivered, mss, self.ack_elapsed)
    }

    /// Rate over the send interval, bytes/s.
    #[inline]
    pub fn send_rate(&self, mss: u64) -> u64 {
        bytes_per_sec(self.delivered, mss, self.send_elapsed)
    }
}

#[inline]
fn bytes_per_sec(packets: u32, mss: u64, time: Duration) -> u64 {
    // Above 18 GB the product does not fit into 64 bits.
    let bytes = u64::from(packets) * mss;
    match (bytes.checked_mul(1_000_000_000), time.as_nanos()) {
        (_, 0) => 0,
        (Some(scaled), ns) => scaled / ns,
        (None, ns) => {
            u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX)
        }
    }
}

/// Sampling state of a connection or of one of its paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryRate {
    /// Packets delivered so far, wrapping.
    delivered: u32,
    /// Until `delivered` reaches this value (if not 0), samples are application-limited.
    app_limited: u32,
    /// Time of the last delivery.
    delivered_time: Time,
    /// Transmission time of the latest delivered packet, from which the send interval counts.
    first_sent_time: Time,
}

/// Sampling state stored with each packet, from transmission to delivery.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stamp {
    delivered: u32,
    delivered_ago: u32,
    first_sent_ago: u32,
}

/// Times are stored as distances before the packet's transmission, in units of 2^4 ns: 32 bits hold
/// 68 s.
const UNIT_NANOS_LOG: u32 = 4;

impl DeliveryRate {
    /// Records a transmission. `idle`: nothing else is in flight, so a new flight starts.
    #[inline(always)]
    pub fn on_send(&mut self, now: Time, idle: bool) -> Stamp {
        if idle {
            self.first_sent_time = now;
            self.delivered_time = now;
        }
        let ago = |then: Time| (now.since(then).as_nanos() >> UNIT_NANOS_LOG) as u32;
        Stamp {
            delivered: self.delivered,
            delivered_ago: ago(self.delivered_time),
            first_sent_ago: ago(self.first_sent_time),
        }
    }

    /// Packets delivered so far, wrapping.
    #[inline(always)]
    pub fn delivered(&self) -> u32 {
        self.delivered
    }

    /// Returns true if the application limits sending now. Store it with the packet's [`Stamp`].
    #[inline(always)]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// Records the delivery of `newly` packets. The tuple describes the one sent last: its
    /// transmission time, its stamp, and whether it was application-limited.
    #[inline(always)]
    pub fn on_delivered(
        &mut self,
        (at, stamp, app_limited): (Time, &Stamp, bool),
        newly: u32,
        now: Time,
        min_rtt: Duration,
    ) -> RateSample {
        self.delivered = self.delivered.wrapping_add(newly);
        self.delivered_time = now;
        self.first_sent_time = at;
        if self.app_limited != 0 && (self.delivered.wrapping_sub(self.app_limited) as i32) > 0 {
            self.app_limited = 0;
        }
        let span = |ago: u32| Duration::from_nanos(u64::from(ago) << UNIT_NANOS_LOG);
        let send = span(stamp.first_sent_ago);
        let ack = now.since(at) + span(stamp.delivered_ago);
        // An interval below the minimum RTT means that a retransmission was taken for its original
        // (section 4.1.4).
        let valid = send.max(ack) >= min_rtt;
        RateSample {
            delivered: if valid {
                self.delivered.wrapping_sub(stamp.delivered)
            } else {
                0
            },
            send_elapsed: send,
            ack_elapsed: ack,
            app_limited,
        }
    }

    /// Marks the flow as application-limited: it has nothing more to send while `flying` packets
    /// are in flight and the window has room.
    #[inline(always)]
    pub fn set_app_limited(&mut self, flying: u32) {
        self.app_limited = self.delivered.wrapping_add(flying).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(1_000 + ms)
    }

    /// Sections 3.1 and 3.2: the sample counts the data delivered between the packet's transmission
    /// and its delivery, over the longer of the send interval and the ACK interval.
    #[test]
    fn a_sample_spans_what_was_delivered_while_its_packet_flew() {
        let mut rate = DeliveryRate::default();
        // Ten packets, sent every millisecond and acknowledged every two.
        let stamps: Vec<Stamp> = (0..10).map(|n| rate.on_send(at(n), n == 0)).collect();
        let mut last = RateSample::default();
        for n in 0..10 {
            last = rate.on_delivered((at(n), &stamps[n as usize], false), 1, at(20 + 2 * n), RTT);
        }
        // The whole flight: nothing was delivered when the last packet was sent.
        assert_eq!(last.delivered, 10);
        assert_eq!(last.send_elapsed, Duration::from_millis(9));
        // 18 ms after the first ACK, which arrived 20 ms after the start of the flight.
        assert_eq!(last.ack_elapsed, Duration::from_millis(38));
        assert_eq!(last.ack_rate(1_000), 10 * 1_000 * 1_000 / 38);
        assert_eq!(last.send_rate(1_000), 10 * 1_000 * 1_000 / 9);
    }

    /// Section 3.1.3: samples are application-limited until the data in flight at that time is
    /// delivered.
    #[test]
    fn samples_are_limited_by_the_application_until_its_last_packet_is_delivered() {
        let mut rate = DeliveryRate::default();
        let first = rate.on_send(at(0), true);
        rate.set_app_limited(1);
        assert!(rate.is_app_limited());
        let second = rate.on_send(at(1), false);
        let limited = rate.is_app_limited();
        assert!(
            !rate
                .on_delivered((at(0), &first, false), 1, at(20), RTT)
                .app_limited
        );
        assert!(
            rate.is_app_limited(),
            "the packet of that time is delivered, and no later one"
        );
        assert!(
            rate.on_delivered((at(1), &second, limited), 1, at(21), RTT)
                .app_limited
        );
        assert!(!rate.is_app_limited());
    }

    /// Section 4.1.4: an interval shorter than the minimum RTT gives no sample.
    #[test]
    fn an_interval_below_the_least_rtt_is_no_sample() {
        let mut rate = DeliveryRate::default();
        let stamp = rate.on_send(at(0), true);
        assert_eq!(
            rate.on_delivered((at(0), &stamp, false), 1, at(19), RTT)
                .delivered,
            0
        );
        let stamp = rate.on_send(at(30), true);
        assert_eq!(
            rate.on_delivered((at(30), &stamp, false), 1, at(50), RTT)
                .delivered,
            1
        );
        assert_eq!(rate.delivered(), 2);
    }

    /// The idle time between two flights counts for neither.
    #[test]
    fn a_new_flight_begins_anew() {
        let mut rate = DeliveryRate::default();
        let stamp = rate.on_send(at(0), true);
        rate.on_delivered((at(0), &stamp, false), 1, at(20), RTT);
        let stamp = rate.on_send(at(10_000), true);
        let sample = rate.on_delivered((at(10_000), &stamp, false), 1, at(10_020), RTT);
        assert_eq!(
            (sample.delivered, sample.send_elapsed, sample.ack_elapsed),
            (1, Duration::ZERO, RTT)
        );
    }

    #[test]
    fn rates_of_many_bytes_do_not_overflow() {
        let second = Duration::from_secs(1);
        assert_eq!(
            bytes_per_sec(u32::MAX, 65_535, second),
            u64::from(u32::MAX) * 65_535
        );
        assert_eq!(bytes_per_sec(5, 1_000, Duration::ZERO), 0);
    }
}
