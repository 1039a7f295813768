//! Hellos of strangers, apart from the datagrams of connections.
//!
//! Under TLS a listening [`Host`] receives them at a socket of their own, which also sends what
//! answers them. A flood fills the buffers of that socket only, and gets a part of the thread's
//! time.

use std::net::SocketAddr;

use ccplane_transport::Side;
use ccplane_units::{Duration, Time};

use super::Host;
use super::classes::Seen;
use crate::codec::HELLO;
use crate::error::{UdpError, passes};
use crate::limiter::{Bucket, SourceLimiter};
use crate::socket::{Inbox, Marks, Socket};

/// Hellos of one source, per second and at once. A sender tries eleven sizes of a hello at most,
/// and many senders may share an address.
const SOURCE_RATE: u64 = 50;
const SOURCE_BURST: u64 = 100;
/// Answers to all strangers, per second and at once. Most are cookies of 60 bytes.
const ANSWER_RATE: u64 = 1_000;
const ANSWER_BURST: u64 = 300;
/// Hellos are not read for this multiple of the time that the last ones took: a flood gets a
/// quarter of the thread at most.
const PAUSE_FACTOR: u64 = 3;
/// Longest such pause. A thread that was not scheduled for long does not make newcomers wait as
/// long.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Time between two looks for hellos while the thread never waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The socket of hellos and its limits.
pub(super) struct Handshakes {
    pub socket: Socket,
    /// Lent out while it is read.
    inbox: Option<Box<Inbox>>,
    sources: SourceLimiter,
    answers: Bucket,
    /// Nothing is read before.
    paused_until: Time,
    /// The wait ended because something arrived.
    pub is_readable: bool,
    next_look: Time,
}

impl Handshakes {
    pub fn new(socket: Socket) -> Handshakes {
        Handshakes {
            socket,
            inbox: Some(Box::default()),
            sources: SourceLimiter::new(SOURCE_RATE, SOURCE_BURST),
            answers: Bucket::new(ANSWER_RATE, ANSWER_BURST),
            paused_until: Time::ZERO,
            is_readable: false,
            next_look: Time::ZERO,
        }
    }

    /// Returns the end of the pause, if there is one.
    pub fn paused_until(&self, now: Time) -> Option<Time> {
        (self.paused_until > now).then_some(self.paused_until)
    }
}

impl Host {
    /// Reads hellos if that is due. Returns true if there were any.
    pub(super) fn receive_handshakes(&mut self) -> Result<bool, UdpError> {
        let begin = self.now();
        let Some(handshakes) = &mut self.handshakes else {
            return Ok(false);
        };
        let due = handshakes.is_readable || handshakes.next_look <= begin;
        if !due || handshakes.paused_until(begin).is_some() {
            return Ok(false);
        }
        handshakes.is_readable = false;
        handshakes.next_look = begin + LOOK_INTERVAL;
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
        let mut side = Side::default();
        received.each(|address, ecn, datagram| {
            let handshakes = self.handshakes.as_mut();
            if handshakes.is_some_and(|handshakes| handshakes.sources.admit(begin, address.ip())) {
                let seen = Seen { ecn, dscp: None };
                self.take_datagram((begin, begin), address, seen, datagram, &mut side);
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
        match self.broken.take() {
            Some(why) => Err(why),
            None => Ok(any),
        }
    }

    /// Sends an answer to a stranger, in datagrams of `each` bytes. It is lost where there is no
    /// room: the client asks again.
    pub(super) fn send_answer(&mut self, address: SocketAddr, length: usize, each: usize) {
        let now = self.clock.now();
        let answer = &self.answer[..length];
        let sent = match &mut self.handshakes {
            Some(handshakes) => {
                handshakes.answers.admit(now)
                    && handshakes
                        .socket
                        .send(address, answer, each, Marks::default())
                        .is_ok()
            }
            None => self
                .socket
                .send_each(address, answer, each, Marks::default())
                .is_ok(),
        };
        self.unanswered += u64::from(!sent);
    }

    /// Hellos that were not answered: beyond the limits, or for want of room.
    pub fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Splits hellos off the socket.
    pub(super) fn split_handshakes(&mut self) -> Result<(), UdpError> {
        let split = self.socket.split_handshakes(HELLO);
        let socket = split.map_err(|why| UdpError::Socket {
            what: "bind a socket for hellos",
            why,
        })?;
        self.handshakes = Some(Box::new(Handshakes::new(socket)));
        Ok(())
    }
}
