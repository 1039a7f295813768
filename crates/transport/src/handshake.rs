//! Handshake of one round trip, after which the client sends. The server need not keep state for a
//! client that has not proved its address: its driver may answer with a cookie, drop the state, and
//! call `accept` when the cookie returns.
//!
//! A client sets [`Segment::PROOF_FLAG`] on every segment from the server's first answer until it
//! receives the next segment from the server. The driver attaches the cookie to those.

use ccplane_qdisc::CLASS_COUNT;
use ccplane_units::{Duration, Time};

use crate::connection::{Connection, ConnectionState};
use crate::error::ConnectionError;
use crate::number::SequenceNumber;
use crate::segment::{Segment, SegmentKind};

/// Minimum MSS accepted from a peer; smaller values are raised to it, as in Linux
/// (`tcp_min_snd_mss`). A hostile peer with an MSS of one byte would cost its sender a thousand
/// times the work. IPv6 guarantees far more.
pub const PEER_MSS_MIN: u16 = 48;

impl Connection {
    /// Handles a connection request, new or repeated. A client without an answer repeats it after
    /// at most `max_rto`. The server waits for twice that time, as one request may be delayed more
    /// than the one before.
    pub(crate) fn on_open(&mut self, now: Time, segment: &Segment) {
        self.apply_peer_limits(segment);
        self.receiver.set_echo(segment.number, segment.transmission);
        self.flags.handshake_due = true;
        self.last_received = now;
        self.deadline = now + self.config.max_rto * 2;
    }

    /// Sends the client's request again immediately, for example because the server asked for a
    /// cookie. The answer gives an RTT sample.
    pub fn resend_open(&mut self) {
        if self.state == ConnectionState::Opening {
            self.flags.handshake_due = true;
            self.unanswered = 0;
            self.invalidate();
        }
    }

    /// Takes over the peer's MSS and window from the handshake.
    fn apply_peer_limits(&mut self, segment: &Segment) {
        let least = PEER_MSS_MIN.min(self.mss);
        if segment.length < self.mss {
            self.mss = segment.length.max(least);
            self.set_cwnd(u64::from(self.config.initial_window.max(1)) * self.mss());
        }
        self.peer_window_end = self.flight.una_offset() + u64::from(segment.window);
    }

    /// Fills the segment of the handshake, or of an abort.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_handshake(&mut self, now: Time, segment: &mut Segment) {
        self.flags.handshake_due = false;
        segment.number = SequenceNumber(self.config.first_number);
        segment.ack = self.receiver.next;
        segment.window = self.config.receive_buffer;
        segment.length = self.config.mss;
        segment.kind = match self.state {
            ConnectionState::Opening => {
                if self.unanswered == 0 {
                    self.last_received = now;
                }
                SegmentKind::Open
            }
            ConnectionState::Accepting => {
                (segment.echo, segment.echo_transmission) = self.receiver.echo();
                SegmentKind::OpenReply
            }
            _ => {
                segment.number = self.flight.next();
                segment.length = 0;
                return segment.kind = SegmentKind::Abort;
            }
        };
        self.unanswered = self.unanswered.saturating_add(1);
        segment.transmission = self.unanswered;
        self.last_new_data = now;
    }

    /// Handles segments other than data and ACKs of an open connection. Returns true if the segment
    /// still has to be processed as data or ACK.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_slow_path(&mut self, now: Time, segment: &Segment) -> bool {
        self.invalidate();
        if segment.class >= CLASS_COUNT {
            self.receiver.count_refused();
            return false;
        }
        match (segment.kind, self.state) {
            (_, ConnectionState::Closed) => false,
            (SegmentKind::Abort, _) => {
                self.fail(ConnectionError::Reset);
                false
            }
            (SegmentKind::Open, ConnectionState::Accepting) => {
                self.on_open(now, segment);
                false
            }
            (SegmentKind::OpenReply, ConnectionState::Opening) => {
                self.apply_peer_limits(segment);
                self.sample_handshake(now, segment.echo_transmission);
                self.last_received = now;
                self.state = ConnectionState::ValidatingAddress;
                self.on_established(now);
                self.receiver.schedule_ack();
                false
            }
            (SegmentKind::Data | SegmentKind::Ack, ConnectionState::Accepting)
                if segment.has_flag(Segment::PROOF_FLAG) =>
            {
                self.sample_handshake(now, 0);
                self.state = ConnectionState::Open;
                self.on_established(now);
                // If the driver dropped the state, it has already answered.
                self.flags.handshake_due = false;
                self.ack_if_requested(segment);
                true
            }
            (SegmentKind::Data | SegmentKind::Ack, ConnectionState::ValidatingAddress) => {
                self.state = ConnectionState::Open;
                self.unanswered = 0;
                self.ack_if_requested(segment);
                true
            }
            (
                SegmentKind::Data | SegmentKind::Ack,
                ConnectionState::Open | ConnectionState::Draining,
            ) => {
                self.ack_if_requested(segment);
                true
            }
            // Late or premature.
            _ => false,
        }
    }

    /// Handles segments that require an immediate acknowledgement.
    fn ack_if_requested(&mut self, segment: &Segment) {
        let proof = segment.has_flag(Segment::PROOF_FLAG) && segment.kind == SegmentKind::Ack;
        if proof || segment.has_flag(Segment::PROBE_FLAG) {
            self.receiver.schedule_ack();
        }
    }

    /// Takes the first RTT sample. `echo`: the answered transmission of the request; 0 if the
    /// answer does not carry it. On a path with an RTT above the initial RTO every request is
    /// repeated before its answer arrives, and only the echo identifies the request (Karn's
    /// algorithm). A connection created from the proof of address alone has no sample.
    fn sample_handshake(&mut self, now: Time, echo: u8) {
        let sent = match echo {
            0 if self.unanswered == 1 => Some(self.last_new_data),
            0 => None,
            _ if echo == self.unanswered => Some(self.last_new_data),
            1 => Some(self.last_received),
            _ => None,
        };
        if let Some(rtt) = sent.map(|sent| now.since(sent))
            && rtt > Duration::ZERO
        {
            self.rtt.sample(rtt, now);
        }
    }

    fn on_established(&mut self, now: Time) {
        if self.unanswered > 1 {
            self.rtt.on_handshake_timeout();
        }
        self.receiver
            .set_echo(SequenceNumber(self.config.first_number), 0);
        self.backoff = 0;
        self.unanswered = 0;
        self.last_delivery = now;
        self.last_new_data = now;
        if self.config.jump_start {
            let all = self.written.min(self.peer_window_end) - self.flight.una_offset();
            self.set_cwnd(self.cwnd().max(all));
            self.ssthresh = self.cwnd();
        }
        self.update_pacing_rate();
        self.rearm();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::TransportConfig;
    use crate::native::Native;
    use crate::segment::SideData;

    const START: Time = Time::from_micros(1_000_000);
    const FIRST_NUMBER: u32 = 7;

    fn config() -> Arc<TransportConfig> {
        Arc::new(TransportConfig {
            first_number: FIRST_NUMBER,
            ..TransportConfig::default()
        })
    }

    fn send(connection: &mut Connection, now: Time) -> Segment {
        let segment = connection.transmit(now, 0, &mut SideData::default());
        segment.expect("a segment of the handshake is due")
    }

    fn deliver(connection: &mut Connection, now: Time, segment: &Segment) {
        let mut control = Native::new_reno();
        connection.handle(now, segment, &SideData::default(), &mut control);
    }

    #[test]
    fn a_server_opens_only_if_the_client_proves_its_address() {
        for (kind, length) in [(SegmentKind::Data, 100), (SegmentKind::Ack, 0)] {
            let mut client = Connection::connect(&config(), START);
            let request = send(&mut client, START);
            let mut server = Connection::accept(&config(), START, &request).expect("a request");
            send(&mut server, START);
            let mut segment = Segment::default();
            (segment.kind, segment.length) = (kind, length);
            (segment.number, segment.ack) = (request.number, request.number);
            let mut state_after = |flags| {
                segment.flags = flags;
                deliver(&mut server, START, &segment);
                (server.state(), server.received())
            };
            assert_eq!(state_after(0), (ConnectionState::Accepting, 0), "{kind:?}");
            assert_eq!(
                state_after(Segment::PROOF_FLAG),
                (ConnectionState::Open, u64::from(length)),
                "{kind:?}"
            );
        }
    }

    /// RFC 6298 section 3 (Karn): the answer echoes the transmission of the request that it
    /// answers, so it gives an RTT sample although the request was repeated.
    #[test]
    fn the_answer_to_a_repeated_request_gives_its_rtt() {
        let (repeated, answered) = (
            START + Duration::from_secs(1),
            START + Duration::from_millis(1_100),
        );
        for (transmission, rtt_ms) in [(1, 1_100), (2, 100)] {
            let mut client = Connection::connect(&config(), START);
            let mut request = send(&mut client, START);
            client.on_timeout(repeated, &mut Native::new_reno());
            let again = send(&mut client, repeated);
            if transmission == 2 {
                request = again;
            }
            let mut server = Connection::accept(&config(), repeated, &request).expect("a request");
            let answer = send(&mut server, repeated);
            assert_eq!(
                (answer.echo, answer.echo_transmission),
                (SequenceNumber(FIRST_NUMBER), transmission)
            );
            deliver(&mut client, answered, &answer);
            assert_eq!(client.srtt(), Duration::from_millis(rtt_ms));
        }
    }
}
