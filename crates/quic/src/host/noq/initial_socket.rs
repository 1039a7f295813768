//! Datagrams of peers without a connection: their socket and its rate limits.

use std::net::IpAddr;
use std::time::Instant;

use ccplane_udp::{DatagramMarks, FirstByte, GcraBucket, Inbox, Socket, SourceLimiter};
use ccplane_units::{Duration, Time};
use noq_proto::Transmit;

/// First byte of an Initial packet of QUIC version 1 (RFC 9000, section 17.2.2).
const INITIAL_FIRST_BYTE: FirstByte = FirstByte {
    mask: 0xf0,
    value: 0xc0,
};
/// Initial packets per second and burst of one source, per connection that it may hold. A handshake
/// takes three.
const SOURCE_INITIALS_PER_SECOND: u64 = 8;
const SOURCE_INITIALS_BURST: u64 = 16;
/// Duration of flood mode after the last datagram over a limit.
const FLOOD_HOLD_TIME: std::time::Duration = std::time::Duration::from_secs(1);
/// Responses per second and burst for all unverified peers. Most are Retry packets of about 150
/// bytes.
const ANSWERS_PER_SECOND: u64 = 1_000;
const ANSWERS_BURST: u64 = 300;
/// Pause after reading Initial packets in a flood, as a multiple of the time that it took: a flood
/// gets at most a quarter of the thread.
const PAUSE_FACTOR: u32 = 3;
/// Longest such pause.
const PAUSE_MAX: std::time::Duration = std::time::Duration::from_millis(50);

/// Socket for Initial packets of a listening host.
pub(super) struct InitialSocket {
    pub socket: Socket,
    pub inbox: Inbox,
    sources: SourceLimiter,
    answers: GcraBucket,
    start: Instant,
    flooded_until: Instant,
    paused_until: Instant,
}

impl InitialSocket {
    /// Moves Initial packets from the socket of connections to a socket of their own.
    pub fn new(
        connections: &Socket,
        per_address: usize,
        now: Instant,
    ) -> std::io::Result<InitialSocket> {
        let per_address = per_address as u64;
        Ok(InitialSocket {
            socket: connections.split_handshakes(INITIAL_FIRST_BYTE)?,
            inbox: Inbox::new(),
            sources: SourceLimiter::new(
                per_address * SOURCE_INITIALS_PER_SECOND,
                per_address * SOURCE_INITIALS_BURST,
            ),
            answers: GcraBucket::new(ANSWERS_PER_SECOND, ANSWERS_BURST),
            start: now,
            flooded_until: now,
            paused_until: now,
        })
    }

    fn time(&self, now: Instant) -> Time {
        Time::ZERO + Duration::from(now.saturating_duration_since(self.start))
    }

    /// Returns true if this source is within its share.
    pub fn admit(&mut self, now: Instant, address: IpAddr) -> bool {
        let time = self.time(now);
        let admitted = self.sources.admit(time, address);
        if !admitted {
            self.record_flood(now);
        }
        admitted
    }

    /// Enters flood mode after a peer has exceeded a limit.
    pub fn record_flood(&mut self, now: Instant) {
        self.flooded_until = now + FLOOD_HOLD_TIME;
    }

    /// Returns the end of the pause, if there is one.
    pub fn paused_until(&self, now: Instant) -> Option<Instant> {
        (self.paused_until > now).then_some(self.paused_until)
    }

    /// Starts a pause in flood mode, after Initial packets were read from `begin` to `end`.
    pub fn pause(&mut self, begin: Instant, end: Instant) {
        if self.flooded_until <= end {
            return;
        }
        let spent = end.saturating_duration_since(begin);
        self.paused_until = end + (spent * PAUSE_FACTOR).min(PAUSE_MAX);
    }

    /// Sends a response. Over the rate limit or without room it is dropped, and the client will
    /// retry.
    pub fn respond(&mut self, now: Instant, transmit: &Transmit, contents: &[u8]) {
        let time = self.time(now);
        if self.answers.admit(time) {
            let contents = contents.get(..transmit.size).unwrap_or(contents);
            let size = contents.len().max(1);
            let _ = self.socket.send(
                transmit.destination,
                contents,
                size,
                DatagramMarks::default(),
            );
        }
    }
}
