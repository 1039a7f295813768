//! Interface between connection and congestion control: the connection reports every ACK and
//! timeout; the control returns window, rate and threshold.
//!
//! The connection does the rest for every control, as ccplane's datapath in Linux does: it decides
//! when a reduction starts and ends, moves the window to the threshold by proportional rate
//! reduction (RFC 9937), reduces it to one segment after a timeout, and undoes spurious reductions.
//!
//! Derivation of the signals, in the order of [`Signals`]:
//!
//! - `Ack.bytes_acked`, `packets_acked`: newly covered by the cumulative ACK, in bytes; in packets,
//!   without those SACKed before.
//! - `Ack.bytes_misordered`, `packets_misordered`: newly covered by SACK ranges beyond the
//!   cumulative ACK.
//! - `Ack.ecn_bytes`, `ecn_packets`: increase of the peer's counts of data received with CE
//!   (accurate ECN), hence exact even if ACKs are lost or late.
//! - `Ack.lost_pkts_sample`: packets newly marked lost, by RACK or by a timeout.
//! - `Flow.bytes_in_flight`, `packets_in_flight`: sent minus acknowledged, SACKed and lost, without
//!   classes above 0; bytes are packets times the MSS.
//! - `Flow.bytes_pending`: written and not cumulatively acknowledged.
//! - `Flow.rate_outgoing`, `rate_incoming`: packets delivered while the latest delivered packet was
//!   in flight, over the interval in which they were sent and over the interval in which they were
//!   acknowledged (draft-cheng-iccrg-delivery-rate-estimation); 0 without a valid sample.
//! - `Flow.rtt_sample_us`: time since the last transmission of the latest newly delivered packet;
//!   none if it is ambiguous which transmission arrived.
//! - `Flow.was_timeout`: 1 in the one call of a retransmission timeout; the window shown there is
//!   the window before it.
//! - `Flow.srtt_us`, `min_rtt_us`: RFC 6298's smoothed RTT; the minimum sample of the last five
//!   minutes, as in Linux.
//! - `Flow.mss`: maximum payload per segment.
//! - `Flow.app_limited`: 1 if the application had nothing to send while the sampled packets were
//!   sent.
//! - `Flow.in_recovery`: 1 from the loss, mark or timeout that started the reduction until
//!   everything sent before it is acknowledged.
//! - `Flow.undone`: 1 in the call that finds the reduction spurious.
//! - `Ack.owd_ns` to `Flow.queue_delay_valid`: [`OneWay`](ccplane_datapath::OneWay) over the stamps
//!   in this ACK. With [`Config::stamps`](crate::TransportConfig::stamps) each acknowledgement
//!   carries the stamps of the last packet that arrived before it.
//! - `Flow.cwnd_limited`: as Linux's `tcp_is_cwnd_limited`: the window was full at some time in the
//!   last round, or, in slow start, more than half full.
//! - `Flow.paced`: a pacing rate is in force, set by the control, by the operator's limit, or by
//!   [`Config::pacing`](crate::TransportConfig::pacing).

use ccplane_datapath::{Outcome, Signals, Transport};
use ccplane_units::{Duration, Time};

use crate::connection::Connection;
use crate::send::rate::RateSample;

/// Congestion control of one connection: sets its window, rate and threshold.
///
/// ```
/// use ccplane_datapath::Outcome;
/// use ccplane_transport::{CongestionControl, ControlEvent};
///
/// /// Slow start without an end: a byte more for each byte acknowledged.
/// struct Greedy;
///
/// impl CongestionControl for Greedy {
///     fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
///         Outcome {
///             cwnd: Some(event.transport().cwnd + event.ack.bytes),
///             ..Outcome::default()
///         }
///     }
/// }
/// ```
pub trait CongestionControl {
    /// True if an agent or program sets the window, so that the connection does not reduce it for
    /// lack of use.
    const STEERED: bool = false;

    /// Handles an ACK of class 0 or a timeout. If [`Ack::starts_reduction`] is set, a reduction
    /// starts, and the outcome must set its target as the threshold; the default is half the
    /// window.
    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome;

    /// Returns when to call [`Connection::on_control_deadline`].
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Handles the deadline, independently of ACKs.
    fn on_deadline(&mut self, _event: &ControlEvent<'_>) -> Outcome {
        Outcome::default()
    }
}

/// Result of one ACK or timeout.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// Bytes newly acknowledged by the cumulative ACK.
    pub bytes: u64,
    /// Packets newly acknowledged by the cumulative ACK, without those SACKed before.
    pub packets: u32,
    /// Packets newly SACKed.
    pub sacked: u32,
    /// Bytes newly SACKed.
    pub sacked_bytes: u32,
    /// Packets newly marked lost.
    pub lost: u32,
    /// Data packets newly reported as received with CE.
    pub ce_packets: u32,
    /// Bytes in those packets.
    pub ce_bytes: u32,
    /// RTT sample; zero if there is none.
    pub rtt: Duration,
    /// Delivery-rate sample.
    pub rate: RateSample,
    /// The event is a retransmission timeout, not an ACK.
    pub timeout: bool,
    /// The last reduction was spurious and is undone.
    pub undone: bool,
    /// A reduction starts with this event.
    pub starts_reduction: bool,
    /// The ACK completed an exchange of time stamps.
    pub stamped: bool,
}

impl Ack {
    /// Packets newly delivered, by cumulative or selective acknowledgement.
    #[inline(always)]
    pub fn delivered(&self) -> u32 {
        self.packets + self.sacked
    }
}

/// Argument of a [`CongestionControl`] call: an event and its connection.
#[derive(Clone, Copy, Debug)]
pub struct ControlEvent<'a> {
    /// Time of the call.
    pub now: Time,
    /// Result of the ACK or timeout.
    pub ack: Ack,
    pub(crate) connection: &'a Connection,
}

impl<'a> ControlEvent<'a> {
    /// The connection.
    #[inline(always)]
    pub fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// Returns the transport state that a datapath flow takes next to the signals.
    #[inline(always)]
    pub fn transport(&self) -> Transport {
        Transport {
            cwnd: self.connection.control_cwnd(),
            rate: self.connection.rate(),
            ssthresh: self.connection.ssthresh(),
            now: self.now,
        }
    }

    /// Returns all signals that a program can read.
    #[inline(always)]
    pub fn signals(&self) -> Signals {
        let (ack, connection) = (&self.ack, self.connection);
        let mss = connection.mss();
        let flying = u64::from(connection.in_flight());
        let mut signals = Signals {
            bytes_acked: ack.bytes,
            bytes_misordered: u64::from(ack.sacked_bytes),
            ecn_bytes: u64::from(ack.ce_bytes),
            ecn_packets: u64::from(ack.ce_packets),
            lost_pkts_sample: u64::from(ack.lost),
            packets_acked: u64::from(ack.packets),
            packets_misordered: u64::from(ack.sacked),
            bytes_in_flight: flying * mss,
            bytes_pending: connection.pending(),
            packets_in_flight: flying,
            rate_incoming: ack.rate.ack_rate(mss),
            rate_outgoing: ack.rate.send_rate(mss),
            rtt_sample_us: ack.rtt.as_micros(),
            was_timeout: u64::from(ack.timeout),
            srtt_us: connection.srtt().as_micros(),
            min_rtt_us: connection.min_rtt().as_micros(),
            mss,
            app_limited: u64::from(ack.rate.app_limited),
            in_recovery: u64::from(connection.in_recovery()),
            undone: u64::from(ack.undone),
            cwnd_limited: u64::from(connection.cwnd_limited()),
            paced: u64::from(connection.rate() != 0),
            ..Signals::default()
        };
        connection.write_stamps(self.now, ack.stamped, &mut signals);
        signals
    }
}

#[cfg(test)]
mod tests {
    use ccplane_datapath::Signals;

    use crate::config::TransportConfig;
    use crate::test_harness::{TestEnd, ack};

    /// Sends segments 0 to 4, and 5 to 9 five milliseconds later, which fill the window.
    fn ten_segments(pacing: bool) -> TestEnd {
        let mut end = TestEnd::with_config(TransportConfig {
            initial_window: 10,
            pacing,
            ..TransportConfig::default()
        });
        end.write(5);
        end.advance_ms(5);
        end.write(5);
        end.connection.write(7_000);
        end
    }

    #[test]
    fn an_ack_sets_every_signal_of_its_event() {
        let mut end = ten_segments(false);
        end.advance_ms(28);
        end.deliver_ack(ack(2).sack(5..8).ce_marked(2));
        let expected = Signals {
            bytes_acked: 2_000,
            packets_acked: 2,
            bytes_misordered: 3_000,
            packets_misordered: 3,
            ecn_bytes: 2_000,
            ecn_packets: 2,
            lost_pkts_sample: 3,
            bytes_in_flight: 2_000,
            packets_in_flight: 2,
            bytes_pending: 15_000,
            // Five packets in 5 ms of sending and in 33 ms of acknowledgements.
            rate_outgoing: 1_000_000,
            rate_incoming: 151_515,
            rtt_sample_us: 28_000,
            srtt_us: 21_000,
            min_rtt_us: 20_000,
            mss: 1_000,
            app_limited: 1,
            in_recovery: 1,
            cwnd_limited: 1,
            ..Signals::default()
        };
        assert_eq!(end.signals, expected);
    }

    #[test]
    fn signals_of_a_paced_connection_without_losses() {
        let mut end = ten_segments(true);
        end.advance_ms(20);
        end.deliver_ack(ack(2));
        assert_eq!(end.signals.paced, 0, "the first RTT sample sets the rate");
        end.deliver_ack(ack(4));
        let signals = end.signals;
        assert_eq!((signals.paced, signals.in_recovery), (1, 0));
        assert_eq!((signals.was_timeout, signals.undone), (0, 0));
        assert_eq!(signals.packets_in_flight, 6);
    }

    #[test]
    fn a_timeout_and_its_undo_are_reported_once() {
        let mut end = ten_segments(false);
        // The first timer is the tail-loss probe's, the second one the retransmission timeout.
        for _ in 0..2 {
            end.wait_for_timer();
            end.send_all();
        }
        assert_eq!(end.signals.was_timeout, 1);
        assert_eq!((end.signals.in_recovery, end.signals.undone), (1, 0));
        end.advance_ms(1);
        end.deliver_ack(ack(10).echo(9, 1));
        assert_eq!((end.signals.was_timeout, end.signals.undone), (0, 1));
    }
}
