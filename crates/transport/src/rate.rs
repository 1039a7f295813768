//! Delivery-rate samples: draft-cheng-iccrg-delivery-rate-estimation, as Linux keeps them per packet.

use ccplane_units::{Duration, Time};

use crate::scoreboard::Sent;

/// What a packet newly delivered says of the rate: so much was delivered over this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Packets delivered while the sampled one was on its way, itself included; 0: no sample.
    pub delivered: u32,
    /// The time over which they had been sent.
    pub send: Duration,
    /// The time over which they were acknowledged.
    pub ack: Duration,
    /// The application had nothing more to send at some time in between.
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
    // At most 2^32 * 2^16 bytes: only above 18 million does a microsecond count not do, and there u128 helps.
    let bytes = u64::from(packets) * mss;
    match (bytes.checked_mul(1_000_000_000), time.as_nanos()) {
        (_, 0) => 0,
        (Some(scaled), ns) => scaled / ns,
        (None, ns) => u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX),
    }
}

/// What a connection keeps for the samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// Packets delivered so far, wrapping.
    pub delivered: u32,
    /// While `delivered` is before this (and it is not 0), samples are limited by the application.
    pub app_limited: u32,
    /// When the last packet was delivered.
    pub delivered_at: Time,
    /// When the latest delivered packet was sent: the sending of the flight after it began there.
    pub first_sent: Time,
}

/// Per packet, times are kept as how long before its sending they were, in units of 2^4 ns, so that 32 bits hold 68 s.
const UNIT: u32 = 4;

impl Rate {
    /// A packet is sent. `idle`: nothing else is in flight, so that a new flight begins.
    #[inline(always)]
    pub fn on_send(&mut self, sent: &mut Sent, now: Time, idle: bool) {
        if idle {
            self.first_sent = now;
            self.delivered_at = now;
        }
        let ago = |then: Time| (now.since(then).as_nanos() >> UNIT) as u32;
        sent.delivered = self.delivered;
        sent.delivered_ago = ago(self.delivered_at);
        sent.first_sent_ago = ago(self.first_sent);
        sent.set_app_limited(self.app_limited != 0);
    }

    /// `newly` packets were delivered, of which `sent` was sent last.
    #[inline(always)]
    pub fn on_delivered(&mut self, sent: &Sent, newly: u32, now: Time, min_rtt: Duration) -> RateSample {
        self.delivered = self.delivered.wrapping_add(newly);
        self.delivered_at = now;
        self.first_sent = sent.at;
        if self.app_limited != 0 && (self.delivered.wrapping_sub(self.app_limited) as i32) > 0 {
            self.app_limited = 0;
        }
        let span = |ago: u32| Duration::from_nanos(u64::from(ago) << UNIT);
        let send = span(sent.first_sent_ago);
        let ack = now.since(sent.at) + span(sent.delivered_ago);
        // An interval below the shortest RTT comes from a retransmission taken for its original (section 4.1.4).
        let valid = send.max(ack) >= min_rtt;
        RateSample {
            delivered: if valid {
                self.delivered.wrapping_sub(sent.delivered)
            } else {
                0
            },
            send,
            ack,
            app_limited: sent.app_limited(),
        }
    }

    /// The application has nothing more to send while `flying` packets are on their way and the window has room.
    #[inline(always)]
    pub fn limit_by_application(&mut self, flying: u32) {
        self.app_limited = self.delivered.wrapping_add(flying).max(1);
    }
}
