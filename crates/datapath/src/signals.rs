//! Congestion signals that a datapath passes to the engine at every ACK: one struct for all
//! datapaths.

use ccplane_units::Time;

use crate::bytecode::{INFINITY, reg};

/// Congestion signals at one ACK or timeout. Signals that a datapath cannot provide stay zero, as
/// its [`Capabilities`] declare. Terms follow Linux's `rate_sample` and RFC 9002.
///
/// The order of the fields is the order of the registers (see [`crate::reg`]). It is frozen for 0
/// to 14, CCP's primitives. The engine sets `Ack.now` (5) from `now`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Signals {
    /// 0 `Ack.bytes_acked`: bytes newly acknowledged cumulatively.
    pub bytes_acked: u64,
    /// 1 `Ack.bytes_misordered`: bytes newly SACKed, out of order.
    pub bytes_misordered: u64,
    /// 2 `Ack.ecn_bytes`: bytes acknowledged by this ACK that carried an ECN echo.
    pub ecn_bytes: u64,
    /// 3 `Ack.ecn_packets`: packets acknowledged by this ACK that carried an ECN echo.
    pub ecn_packets: u64,
    /// 4 `Ack.lost_pkts_sample`: packets newly marked lost at this ACK.
    pub lost_pkts_sample: u64,
    /// 5 `Ack.now`: set by the engine, µs since the epoch of the transport's clock.
    pub now_us: u64,
    /// 6 `Ack.packets_acked`: packets newly acknowledged cumulatively.
    pub packets_acked: u64,
    /// 7 `Ack.packets_misordered`: packets newly SACKed.
    pub packets_misordered: u64,
    /// 8 `Flow.bytes_in_flight`.
    pub bytes_in_flight: u64,
    /// 9 `Flow.bytes_pending`: bytes written by the application and not yet acknowledged.
    pub bytes_pending: u64,
    /// 10 `Flow.packets_in_flight`.
    pub packets_in_flight: u64,
    /// 11 `Flow.rate_incoming`: delivery rate over the receive interval, bytes/s.
    pub rate_incoming: u64,
    /// 12 `Flow.rate_outgoing`: rate over the send interval of the same packets, bytes/s.
    pub rate_outgoing: u64,
    /// 13 `Flow.rtt_sample_us`: RTT sample of this ACK in µs; programs read 0 (none) as 0xffffffff.
    /// A run by timer reads the last ACK's sample again, as CCP's programs expect
    /// (`docs/language.md`, "Time").
    pub rtt_sample_us: u64,
    /// 14 `Flow.was_timeout`: 1 if this call is due to a retransmission timeout.
    pub was_timeout: u64,
    /// 15 `Flow.srtt_us`: smoothed RTT, µs; programs read 0 (no sample yet) as 0xffffffff.
    pub srtt_us: u64,
    /// 16 `Flow.min_rtt_us`: the transport's windowed minimum RTT, µs; programs read 0 as
    /// 0xffffffff.
    pub min_rtt_us: u64,
    /// 17 `Flow.mss`: payload of a full segment, bytes.
    pub mss: u64,
    /// 18 `Flow.app_limited`: 1 if the rate sample is application-limited.
    pub app_limited: u64,
    /// 19 `Flow.in_recovery`: 1 while the transport repairs losses (in fast recovery or after a
    /// timeout).
    pub in_recovery: u64,
    /// 20 `Flow.undone`: 1 if this event showed that the last reduction was spurious, and the
    /// transport undid it.
    pub undone: u64,
    /// 21 `Flow.cwnd_limited`: 1 if the window, not the application, limited sending in the last
    /// round.
    pub cwnd_limited: u64,
    /// 22 `Ack.owd_ns`: one-way delay of the packet that triggered this ACK, ns, as computed by
    /// [`crate::OneWay`]; programs read 0 (no stamps with this ACK) as 0xffffffff.
    pub owd_ns: u64,
    /// 23 `Ack.rtt_ns`: its round-trip time from four stamps, (t4 - t1) - (t3 - t2), ns; programs
    /// read 0 as 0xffffffff.
    pub rtt_ns: u64,
    /// 24 `Flow.min_owd_ns`: windowed minimum of signal 22, ns; programs read 0 (no sample yet) as
    /// 0xffffffff.
    pub min_owd_ns: u64,
    /// 25 `Flow.min_rtt_ns`: windowed minimum of signal 23, ns; programs read 0 (no sample yet) as
    /// 0xffffffff.
    pub min_rtt_ns: u64,
    /// 26 `Flow.queue_delay_ns`: queueing delay of the packet that was stamped last, ns. Valid only
    /// with signal 27; otherwise read as 0xffffffff, because 0 would mean an empty queue.
    pub queue_delay_ns: u64,
    /// 27 `Flow.queue_delay_valid`: 1 if signal 26 is at most a round trip old at an ACK; a run by
    /// timer reads 0.
    pub queue_delay_valid: u64,
    /// 28 `Flow.paced`: 1 if the flow is paced, at the algorithm's rate or by its host (Linux's
    /// `sk_pacing_status`: fq, or a limit of the socket; a QUIC stack's own pacer).
    pub paced: u64,
}

/// Signals 0 to 21.
pub(crate) type BaseSignals = [u64; reg::STAMPS as usize];
/// Signals 22 to 27, from stamps.
pub(crate) type StampSignals = [u64; (reg::PACED - reg::STAMPS) as usize];

/// Source of the signals of a run, as programs read them.
pub(crate) trait SignalSource {
    /// Signals that every program gets.
    fn base(&self) -> BaseSignals;
    /// Signals from stamps. They are separate because few programs read them: filling them for all
    /// programs made an ACK a seventh more expensive.
    fn stamp_signals(&self) -> StampSignals;
    /// Signal 28. Separate for the same reason: filled for all programs, it raised the cost of an
    /// ACK from 34.3 to 36.5 ns for Reno and from 47.8 to 52.3 ns for BBR (`bench datapath`,
    /// medians of eight runs).
    fn paced(&self) -> u64;
}

impl SignalSource for Signals {
    #[inline(always)]
    fn base(&self) -> BaseSignals {
        [
            self.bytes_acked,
            self.bytes_misordered,
            self.ecn_bytes,
            self.ecn_packets,
            self.lost_pkts_sample,
            self.now_us,
            self.packets_acked,
            self.packets_misordered,
            self.bytes_in_flight,
            self.bytes_pending,
            self.packets_in_flight,
            self.rate_incoming,
            self.rate_outgoing,
            infinity_if_unknown(self.rtt_sample_us),
            self.was_timeout,
            infinity_if_unknown(self.srtt_us),
            infinity_if_unknown(self.min_rtt_us),
            self.mss,
            self.app_limited,
            self.in_recovery,
            self.undone,
            self.cwnd_limited,
        ]
    }

    #[inline(always)]
    fn stamp_signals(&self) -> StampSignals {
        let valid = self.queue_delay_valid != 0;
        [
            infinity_if_unknown(self.owd_ns),
            infinity_if_unknown(self.rtt_ns),
            infinity_if_unknown(self.min_owd_ns),
            infinity_if_unknown(self.min_rtt_ns),
            if valid { self.queue_delay_ns } else { INFINITY },
            u64::from(valid),
        ]
    }

    #[inline(always)]
    fn paced(&self) -> u64 {
        self.paced
    }
}

/// Returns infinity for 0, an unknown time.
#[inline(always)]
fn infinity_if_unknown(us: u64) -> u64 {
    if us == 0 { INFINITY } else { us }
}

/// Transport state passed with every call in addition to the [`Signals`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Congestion window in force, bytes.
    pub cwnd: u64,
    /// Pacing rate in force, bytes/s; 0 when not paced.
    pub rate: u64,
    /// Slow-start threshold in force, bytes; `u64::MAX` before the first loss.
    pub ssthresh: u64,
    /// Time of the call.
    pub now: Time,
}

/// Capabilities of a datapath. An algorithm declares those it requires; a datapath without them
/// refuses it and names the missing ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Sets a congestion window.
    pub const CWND: Capabilities = Capabilities(1);
    /// Paces at a rate that the algorithm sets.
    pub const PACING: Capabilities = Capabilities(1 << 1);
    /// RTT samples.
    pub const RTT: Capabilities = Capabilities(1 << 2);
    /// Delivery-rate samples.
    pub const DELIVERY_RATE: Capabilities = Capabilities(1 << 3);
    /// ECN counts per ACK.
    pub const ECN: Capabilities = Capabilities(1 << 4);
    /// Conditions on `Micros` fire at their time without an ACK.
    pub const TIMERS: Capabilities = Capabilities(1 << 5);
    /// The datapath does loss recovery itself (PRR towards ssthresh, undo).
    pub const RECOVERY: Capabilities = Capabilities(1 << 6);
    /// One-way delay from the time stamps of both ends, at least if the peer stamps too.
    pub const ONE_WAY_DELAY: Capabilities = Capabilities(1 << 7);
    /// The window stays unchanged over an idle time. Without this capability the datapath restarts
    /// from a small window, as RFC 5681 section 4.1 requires of algorithms without pacing.
    pub const KEEPS_WINDOW: Capabilities = Capabilities(1 << 8);

    const NAMES: [(Capabilities, &'static str); 9] = [
        (Self::CWND, "a congestion window"),
        (Self::PACING, "pacing"),
        (Self::RTT, "RTT samples"),
        (Self::DELIVERY_RATE, "delivery-rate samples"),
        (Self::ECN, "ECN counts"),
        (Self::TIMERS, "timers"),
        (Self::RECOVERY, "loss recovery in the datapath"),
        (Self::ONE_WAY_DELAY, "one-way delay"),
        (Self::KEEPS_WINDOW, "a window kept over idle times"),
    ];

    /// Keywords by which a program's header requires capabilities, in the order of their bits.
    const KEYWORDS: [&str; 9] = [
        "cwnd",
        "pacing",
        "rtt",
        "delivery_rate",
        "ecn",
        "timers",
        "recovery",
        "one_way_delay",
        "keeps_window",
    ];

    /// Returns the capability with this keyword.
    pub fn from_keyword(word: &str) -> Option<Capabilities> {
        let bit = Self::KEYWORDS.iter().position(|known| *known == word)?;
        Some(Capabilities(1 << bit))
    }

    /// Keywords of all capabilities.
    pub fn keywords() -> impl Iterator<Item = &'static str> {
        Self::KEYWORDS.into_iter()
    }

    /// Union of both sets.
    #[must_use]
    pub const fn union(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 | other.0)
    }

    /// Capabilities in `self` that `offered` lacks.
    #[must_use]
    pub const fn missing_from(self, offered: Capabilities) -> Capabilities {
        Capabilities(self.0 & !offered.0)
    }

    /// Returns true if all of `other` is in the set.
    pub const fn contains(self, other: Capabilities) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns true if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Human-readable names of the capabilities in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .filter(move |(bit, _)| self.0 & bit.0 != 0)
            .map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_and_a_name_stand_for_the_same_capability() {
        let by_word: Vec<_> = Capabilities::keywords()
            .map(|word| Capabilities::from_keyword(word).expect("a word"))
            .collect();
        let named = Capabilities::NAMES.map(|(capability, _)| capability);
        assert_eq!(by_word, named);
        for (capability, name) in Capabilities::NAMES {
            assert!(capability.names().eq([name]));
        }
        assert_eq!(Capabilities::from_keyword("warp"), None);
    }

    #[test]
    fn sets_are_joined_and_compared() {
        let both = Capabilities::CWND.union(Capabilities::RTT);
        assert_eq!(both.union(Capabilities::RTT), both);
        assert_eq!(both.missing_from(Capabilities::CWND), Capabilities::RTT);
        assert!(both.contains(Capabilities::RTT) && !Capabilities::RTT.contains(both));
        assert!(both.missing_from(both).is_empty() && !both.is_empty());
        assert!(both.names().eq(["a congestion window", "RTT samples"]));
    }
}
