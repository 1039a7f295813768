//! Congestion control as the connection sees it: told of every ACK and timeout, it answers with
//! window, rate and threshold.
//!
//! The connection does the rest for every control alike, as ccplane's datapath in Linux does: it
//! decides when a reduction begins and ends, brings the window to the threshold by proportional
//! rate reduction (RFC 9937), goes to one segment after a timeout, and undoes what proves spurious.
//!
//! How the connection derives the signals (the order is that of [`Signals`]):
//!
//! | signal | derivation |
//! | --- | --- |
//! | `Ack.bytes_acked`, `packets_acked` | what the cumulative ACK newly covers: bytes; packets, less those SACKed before |
//! | `Ack.bytes_misordered`, `packets_misordered` | what SACK ranges newly cover beyond the cumulative ACK |
//! | `Ack.ecn_bytes`, `ecn_packets` | growth of the peer's counts of data that arrived with CE (accurate ECN), so exact, late acknowledgements included |
//! | `Ack.lost_pkts_sample` | packets newly marked lost, by RACK or by a timeout |
//! | `Flow.bytes_in_flight`, `packets_in_flight` | sent, less acknowledged, SACKed and lost; segments of classes above 0 never; bytes: packets times the MSS |
//! | `Flow.bytes_pending` | written and not cumulatively acknowledged |
//! | `Flow.rate_outgoing`, `rate_incoming` | what was delivered while the latest delivered packet was on its way, over the time that its sending took and over the time that its ACKs took (draft-cheng-iccrg-delivery-rate-estimation); 0 without a valid sample |
//! | `Flow.rtt_sample_us` | time since the latest sending of the latest newly delivered packet; none where it is not known which transmission arrived |
//! | `Flow.was_timeout` | 1 in the one call that a retransmission timeout makes; the window shown there is the one before |
//! | `Flow.srtt_us`, `min_rtt_us` | RFC 6298's smoothed RTT; the least sample of the last five minutes (as Linux) |
//! | `Flow.mss` | most payload in a segment |
//! | `Flow.app_limited` | 1 when the application had nothing to send while the sampled packets were sent |
//! | `Flow.in_recovery` | 1 from the loss, mark or timeout that began it until all that was sent before is acknowledged |
//! | `Flow.undone` | 1 in the call that finds the reduction spurious |
//! | `Ack.owd_ns` to `Flow.queue_delay_valid` | [`OneWay`](ccplane_datapath::OneWay) over the stamps that came with this ACK: with [`Config::stamps`](crate::Config::stamps) each acknowledgement answers the packet that arrived last before it |
//! | `Flow.cwnd_limited` | as Linux' `tcp_is_cwnd_limited`: the window was full at some time in the last round, or, in slow start, more than half full |
//! | `Flow.paced` | a rate is in force: the control's, the owner's limit, or [`Config::pacing`](crate::Config::pacing)'s |

use ccplane_datapath::{Outcome, Signals, Transport};
use ccplane_units::{Duration, Time};

use crate::connection::Connection;
use crate::send::rate::RateSample;

/// Decides window, rate and threshold of one connection.
pub trait Control {
    /// An agent or program sets the window, so that the connection does not touch it for lack of
    /// use.
    const STEERED: bool = false;

    /// An ACK of class 0 or a timeout. Where [`Ack::reduces`] is set a reduction begins, and the
    /// outcome has to say the threshold to which it leads; half the window where it says none.
    fn on_event(&mut self, event: &Event<'_>) -> Outcome;

    /// When to call [`Connection::on_control_deadline`].
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// The deadline has come, without an ACK.
    fn on_deadline(&mut self, _event: &Event<'_>) -> Outcome {
        Outcome::default()
    }
}

/// What one ACK or timeout brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// Bytes newly acknowledged cumulatively.
    pub bytes: u64,
    /// Packets newly acknowledged cumulatively that had not been SACKed before.
    pub packets: u32,
    /// Packets newly SACKed.
    pub sacked: u32,
    /// Bytes newly SACKed.
    pub sacked_bytes: u32,
    /// Packets newly marked lost.
    pub lost: u32,
    /// Packets of data that newly turned out to have arrived with CE.
    pub ce_packets: u32,
    /// Bytes in them.
    pub ce_bytes: u32,
    /// RTT sample; zero without one.
    pub rtt: Duration,
    /// Delivery-rate sample.
    pub rate: RateSample,
    /// A retransmission timeout, not an ACK.
    pub timeout: bool,
    /// The last reduction was spurious, and is undone.
    pub undone: bool,
    /// A reduction begins with this event.
    pub reduces: bool,
    /// It brought the stamps of an exchange.
    pub stamped: bool,
}

impl Ack {
    /// Packets newly delivered, in order or out of it.
    #[inline(always)]
    pub fn delivered(&self) -> u32 {
        self.packets + self.sacked
    }
}

/// One call: what happened, and the connection that it happened to.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The moment of the call.
    pub now: Time,
    /// What happened.
    pub ack: Ack,
    pub(crate) connection: &'a Connection,
}

impl<'a> Event<'a> {
    /// The connection.
    #[inline(always)]
    pub fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// What a datapath flow wants to know beside the signals.
    #[inline(always)]
    pub fn transport(&self) -> Transport {
        Transport {
            cwnd: self.connection.steered_cwnd(),
            rate: self.connection.rate(),
            ssthresh: self.connection.ssthresh(),
            now: self.now,
        }
    }

    /// Everything a program may ask for.
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
            now_us: 0,
            packets_acked: u64::from(ack.packets),
            packets_misordered: u64::from(ack.sacked),
            bytes_in_flight: flying * mss,
            bytes_pending: connection.pending(),
            packets_in_flight: flying,
            rate_incoming: ack.rate.incoming(mss),
            rate_outgoing: ack.rate.outgoing(mss),
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
