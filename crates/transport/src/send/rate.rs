//! Delivery-rate samples: draft-cheng-iccrg-delivery-rate-estimation, as Linux keeps them per
//! packet.

use ccplane_units::{Duration, Time};

/// A delivery-rate sample: so many packets were delivered over this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Packets delivered while the sampled one was in flight, itself included. 0: no sample.
    pub delivered: u32,
    /// The time over which they had been sent.
    pub send: Duration,
    /// The time over which they were acknowledged.
    pub ack: Duration,
    /// The application limited sending at some time in between.
    pub app_limited: bool,
}

impl RateSample {
    /// bytes/s over the time of the ACKs.
    #[inline]
    pub fn incoming(&self, mss: u64) -> u64 {
        over(self.delivered, mss, self.ack)
    }

    /// bytes/s over the time of the sending.
    #[inline]
    pub fn outgoing(&self, mss: u64) -> u64 {
        over(self.delivered, mss, self.send)
    }
}

#[inline]
fn over(packets: u32, mss: u64, time: Duration) -> u64 {
    // Above 18 GB the product does not fit in 64 bits.
    let bytes = u64::from(packets) * mss;
    match (bytes.checked_mul(1_000_000_000), time.as_nanos()) {
        (_, 0) => 0,
        (Some(scaled), ns) => scaled / ns,
        (None, ns) => {
            u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX)
        }
    }
}

/// What a sender keeps for the samples, of a connection or of one path of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryRate {
    /// Packets delivered so far, wrapping.
    delivered: u32,
    /// While `delivered` is before this (and this is not 0), samples are limited by the
    /// application.
    app_limited: u32,
    /// When the last packet was delivered.
    delivered_at: Time,
    /// When the latest delivered packet was sent. The next flight's sending time counts from there.
    first_sent: Time,
}

/// What a packet keeps for its sample, from sending to delivery.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stamp {
    delivered: u32,
    delivered_ago: u32,
    first_sent_ago: u32,
}

/// Times are stored as distances before the packet's sending, in units of 2^4 ns: 32 bits hold 68
/// s.
const UNIT: u32 = 4;

impl DeliveryRate {
    /// A packet is sent. `idle`: nothing else is in flight, so a new flight begins.
    #[inline(always)]
    pub fn on_send(&mut self, now: Time, idle: bool) -> Stamp {
        if idle {
            self.first_sent = now;
            self.delivered_at = now;
        }
        let ago = |then: Time| (now.since(then).as_nanos() >> UNIT) as u32;
        Stamp {
            delivered: self.delivered,
            delivered_ago: ago(self.delivered_at),
            first_sent_ago: ago(self.first_sent),
        }
    }

    /// Packets delivered so far, wrapping.
    #[inline(always)]
    pub fn delivered(&self) -> u32 {
        self.delivered
    }

    /// Whether the application limits sending now. Keep it with the packet, beside its [`Stamp`].
    #[inline(always)]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// `newly` packets were delivered. The one sent last left at `at`, with this stamp, and limited
    /// by the application or not.
    #[inline(always)]
    pub fn on_delivered(
        &mut self,
        (at, stamp, app_limited): (Time, &Stamp, bool),
        newly: u32,
        now: Time,
        min_rtt: Duration,
    ) -> RateSample {
        self.delivered = self.delivered.wrapping_add(newly);
        self.delivered_at = now;
        self.first_sent = at;
        if self.app_limited != 0 && (self.delivered.wrapping_sub(self.app_limited) as i32) > 0 {
            self.app_limited = 0;
        }
        let span = |ago: u32| Duration::from_nanos(u64::from(ago) << UNIT);
        let send = span(stamp.first_sent_ago);
        let ack = now.since(at) + span(stamp.delivered_ago);
        // An interval below the least RTT means that a retransmission was taken for its original
        // (section 4.1.4).
        let valid = send.max(ack) >= min_rtt;
        RateSample {
            delivered: if valid {
                self.delivered.wrapping_sub(stamp.delivered)
            } else {
                0
            },
            send,
            ack,
            app_limited,
        }
    }

    /// The application has nothing more to send while `flying` packets are on their way and the
    /// window has room.
    #[inline(always)]
    pub fn limit_by_application(&mut self, flying: u32) {
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

    /// Sections 3.1 and 3.2: the sample is what was delivered between the packet's sending and its
    /// delivery, over the longer of the time in which that was sent and the time in which it was
    /// acknowledged.
    #[test]
    fn a_sample_spans_what_was_delivered_while_its_packet_flew() {
        let mut rate = DeliveryRate::default();
        // Ten packets, one a millisecond, acknowledged one every two.
        let stamps: Vec<Stamp> = (0..10).map(|n| rate.on_send(at(n), n == 0)).collect();
        let mut last = RateSample::default();
        for n in 0..10 {
            last = rate.on_delivered((at(n), &stamps[n as usize], false), 1, at(20 + 2 * n), RTT);
        }
        // All of the flight: nothing was delivered when the last one left.
        assert_eq!(last.delivered, 10);
        assert_eq!(last.send, Duration::from_millis(9));
        // 18 ms after the first ACK, which came 20 ms after the flight began.
        assert_eq!(last.ack, Duration::from_millis(38));
        assert_eq!(last.incoming(1_000), 10 * 1_000 * 1_000 / 38);
        assert_eq!(last.outgoing(1_000), 10 * 1_000 * 1_000 / 9);
    }

    /// Section 3.1.3: what an application does not send is no sign of a slow path, until what was
    /// in flight by then is delivered.
    #[test]
    fn samples_are_limited_by_the_application_until_its_last_packet_is_delivered() {
        let mut rate = DeliveryRate::default();
        let first = rate.on_send(at(0), true);
        rate.limit_by_application(1);
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
            "the packet of that moment is delivered, and none after it"
        );
        assert!(
            rate.on_delivered((at(1), &second, limited), 1, at(21), RTT)
                .app_limited
        );
        assert!(!rate.is_app_limited());
    }

    /// Section 4.1.4: an interval shorter than the least RTT is no sample.
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

    /// Silence between two flights counts for neither.
    #[test]
    fn a_new_flight_begins_anew() {
        let mut rate = DeliveryRate::default();
        let stamp = rate.on_send(at(0), true);
        rate.on_delivered((at(0), &stamp, false), 1, at(20), RTT);
        let stamp = rate.on_send(at(10_000), true);
        let sample = rate.on_delivered((at(10_000), &stamp, false), 1, at(10_020), RTT);
        assert_eq!(
            (sample.delivered, sample.send, sample.ack),
            (1, Duration::ZERO, RTT)
        );
    }

    #[test]
    fn rates_of_many_bytes_do_not_overflow() {
        let second = Duration::from_secs(1);
        assert_eq!(over(u32::MAX, 65_535, second), u64::from(u32::MAX) * 65_535);
        assert_eq!(over(5, 1_000, Duration::ZERO), 0);
    }
}
