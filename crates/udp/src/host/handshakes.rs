//! Hellos of unverified clients, separate from the datagrams of connections.
//!
//! Under TLS a listening [`UdpHost`] receives them on a second socket, which also sends the
//! answers. A flood fills only that socket's buffers and gets a bounded share of the thread's time.

use std::net::SocketAddr;

use ccplane_transport::SideData;
use ccplane_units::{Duration, Time};

use super::UdpHost;
use super::classes::DatagramMark;
use crate::codec::HELLO_FIRST_BYTE;
use crate::error::{UdpError, passes};
use crate::limiter::{GcraBucket, SourceLimiter};
use crate::socket::{DatagramMarks, Inbox, Socket};

/// Hellos per second and burst of one source. A client tries at most eleven hello sizes, and many
/// clients may share an address.
const SOURCE_HELLOS_PER_SECOND: u64 = 50;
const SOURCE_HELLOS_BURST: u64 = 100;
/// Answers per second and burst for all unverified clients. Most are cookies of 60 bytes.
const ANSWERS_PER_SECOND: u64 = 1_000;
const ANSWERS_BURST: u64 = 300;
/// Pause after reading hellos, as a multiple of the time that it took: a flood gets at most a
/// quarter of the thread.
const PAUSE_FACTOR: u64 = 3;
/// Longest such pause. If the thread was descheduled while reading, new clients do not wait as long
/// again.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Interval between polls for hellos while the thread never waits.
const HELLO_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Socket of the hellos and its rate limits.
pub(super) struct Handshakes {
    pub socket: Socket,
    /// Taken out while it is being read.
    inbox: Option<Box<Inbox>>,
    sources: SourceLimiter,
    answers: GcraBucket,
    /// End of the current pause.
    paused_until: Time,
    /// Set when poll reported the socket readable.
    pub is_readable: bool,
    next_check: Time,
}

impl Handshakes {
    pub fn new(socket: Socket) -> Handshakes {
        Handshakes {
            socket,
            inbox: Some(Box::default()),
            sources: SourceLimiter::new(SOURCE_HELLOS_PER_SECOND, SOURCE_HELLOS_BURST),
            answers: GcraBucket::new(ANSWERS_PER_SECOND, ANSWERS_BURST),
            paused_until: Time::ZERO,
            is_readable: false,
            next_check: Time::ZERO,
        }
    }

    /// Returns the end of the pause, if there is one.
    pub fn paused_until(&self, now: Time) -> Option<Time> {
        (self.paused_until > now).then_some(self.paused_until)
    }
}

impl UdpHost {
    /// Reads hellos if that is due. Returns true if there were any.
    pub(super) fn receive_handshakes(&mut self) -> Result<bool, UdpError> {
        let begin = self.now();
        let Some(handshakes) = &mut self.handshakes else {
            return Ok(false);
        };
        let due = handshakes.is_readable || handshakes.next_check <= begin;
        if !due || handshakes.paused_until(begin).is_some() {
            return Ok(false);
        }
        handshakes.is_readable = false;
        handshakes.next_check = begin + HELLO_POLL_INTERVAL;
        let mut inbox = handshakes.inbox.take().unwrap_or_default();
        let received = match handshakes.socket.receive(&mut inbox) {
            Ok(received) => received,
            Err(why) if passes(&why) => {
                handshakes.inbox = Some(inbox);
                return Ok(true);
            }
            Err(why) => {
                let what = "receive hellos";
                return Err(UdpError::Socket { what, why });
            }
        };
        let (any, more) = (!received.is_empty(), received.is_full());
        let mut side = SideData::default();
        received.for_each(|address, ecn, datagram| {
            let handshakes = self.handshakes.as_mut();
            if handshakes.is_some_and(|handshakes| handshakes.sources.admit(begin, address.ip())) {
                let seen = DatagramMark { ecn, dscp: None };
                self.on_datagram((begin, begin), address, seen, datagram, &mut side);
            } else {
                self.unanswered += 1;
            }
        });
        let end = self.now();
        if let Some(handshakes) = &mut self.handshakes {
            handshakes.inbox = Some(inbox);
            handshakes.is_readable = more;
            if any {
                handshakes.paused_until = end + (end.since(begin) * PAUSE_FACTOR).min(PAUSE_MAX);
            }
        }
        match self.pending_error.take() {
            Some(why) => Err(why),
            None => Ok(any),
        }
    }

    /// Sends an answer to an unverified client, in datagrams of `each` bytes. If the socket has no
    /// room the answer is dropped, and the client will retry.
    pub(super) fn send_answer(&mut self, address: SocketAddr, length: usize, each: usize) {
        let now = self.clock.now();
        let answer = &self.answer[..length];
        let sent = match &mut self.handshakes {
            Some(handshakes) => {
                handshakes.answers.admit(now)
                    && handshakes
                        .socket
                        .send(address, answer, each, DatagramMarks::default())
                        .is_ok()
            }
            None => self
                .socket
                .send_numbered(address, answer, each, DatagramMarks::default())
                .is_ok(),
        };
        self.unanswered += u64::from(!sent);
    }

    /// Returns the number of unanswered hellos: over the rate limits, or without room in the
    /// socket.
    pub fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Moves hellos to a socket of their own.
    pub(super) fn split_handshakes(&mut self) -> Result<(), UdpError> {
        let split = self.socket.split_handshakes(HELLO_FIRST_BYTE);
        let socket = split.map_err(|why| UdpError::Socket {
            what: "bind the socket for hellos",
            why,
        })?;
        self.handshakes = Some(Box::new(Handshakes::new(socket)));
        Ok(())
    }
}
