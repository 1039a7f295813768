//! The other end of the delay meter: answers probes, and nobody else.
//!
//! A hello is answered statelessly, from a secret alone, with no more bytes than it has. The identifier in the answer proves,
//! when it returns in a probe, that the client receives at its address ([`Cookies`]). A probe is answered with a datagram of its
//! own size. So a forged address draws no more bytes than were sent to provoke them. All answers together keep below a limit;
//! what exceeds it, hellos included, is counted and not answered.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use ccplane_units::{Bytes, Duration, Rate, Time};

use super::packet::{HEADER, Kind, Packet};
use crate::key::Key;
use ccplane_udp::endpoint::Cookies;

/// Clients at a time, 100 bytes each and what is untold.
const MOST: usize = 1024;
/// Departures that a client was not told yet, as several replies left between two of its probes: more than a call sends.
const MOST_UNTOLD: usize = 64;
/// A client that was not heard for so long is forgotten. Its identifier is good for [`VALID`](ccplane_udp::endpoint::VALID), longer than this.
const IDLE: Duration = Duration::from_secs(15);
/// What may leave at once under the limit. Shorter refuses the bursts of several clients; longer lets more through at once.
const BURST: Duration = Duration::from_millis(50);

/// Answers probes, and nobody else: no forged address draws more than was sent to provoke it, and all answers together keep below a limit.
pub struct Responder {
    cookies: Cookies,
    key: Option<Key>,
    limit: Rate,
    /// Bytes that may leave, and since when.
    tokens: u64,
    filled: Time,
    /// By the identifier that they were given.
    clients: BTreeMap<u64, Client>,
    counters: Counters,
}

struct Client {
    address: SocketAddr,
    heard: Time,
    received: u32,
    replies: u32,
    refused: u32,
    /// Replies whose departure is known and was not told yet.
    untold: VecDeque<(u32, u64)>,
}

/// When a datagram came: what the responder knows of it.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// The present.
    pub now: Time,
    /// By the kernel's stamp, if there is one.
    pub stamp: Option<Time>,
    /// That is the interface's.
    pub interface: bool,
    /// Real time less the clock of all these times, ns.
    pub real: i64,
}

/// What became of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Probes answered.
    pub answered: u64,
    /// Hellos answered.
    pub hellos: u64,
    /// Not the meter's, or of another key.
    pub garbage: u64,
    /// Of identifiers that are not, or no longer, good for their address; replies and answers.
    pub unknown: u64,
    /// Beyond the limit.
    pub limited: u64,
    /// From one client too many.
    pub full: u64,
    /// Answers that this host did not send.
    pub unsent: u64,
}

/// An answer to send: how long it is, and for a reply whose probe it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Bytes.
    pub length: usize,
    /// The client's identifier here, and its probe's number.
    pub of: Option<(u64, u32)>,
}

impl Responder {
    /// With a secret that is random and new at each start, the clients' key if there is one, and the limit of all that leaves (UDP payload).
    pub fn new(secret: [u8; 32], key: Option<Key>, limit: Rate, now: Time) -> Responder {
        Responder {
            cookies: Cookies::new(secret),
            key,
            limit,
            tokens: capacity(limit),
            filled: now,
            clients: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// Takes a datagram; what is to be sent back is in `out`, if anything is.
    pub fn handle(&mut self, came: &Came, from: SocketAddr, datagram: &[u8], out: &mut [u8]) -> Option<Answer> {
        let Ok(packet) = Packet::read(self.key.as_ref(), datagram) else {
            self.counters.garbage += 1;
            return None;
        };
        match packet.kind {
            Kind::Hello => self.hello(came, from, &packet, out),
            Kind::Probe => self.probe(came, from, &packet, datagram.len(), out),
            Kind::Answer | Kind::Reply => {
                self.counters.unknown += 1;
                None
            }
        }
    }

    fn hello(&mut self, came: &Came, from: SocketAddr, hello: &Packet, out: &mut [u8]) -> Option<Answer> {
        if !self.spend(came.now, HEADER) {
            self.counters.limited += 1;
            return None;
        }
        let answer = Packet {
            kind: Kind::Answer,
            client: hello.client,
            server: self.cookies.issue(came.now, from, hello.client),
            made: came.real as u64,
            ..Packet::default()
        };
        self.counters.hellos += 1;
        let length = HEADER;
        answer
            .write(self.key.as_ref(), out.get_mut(..length)?)
            .then_some(Answer { length, of: None })
    }

    fn probe(
        &mut self,
        came: &Came,
        from: SocketAddr,
        probe: &Packet,
        length: usize,
        out: &mut [u8],
    ) -> Option<Answer> {
        let now = came.now;
        let known = self
            .clients
            .get(&probe.server)
            .is_some_and(|client| client.address == from);
        if !known {
            if !self.cookies.knows(now, from, probe.client, probe.server) {
                self.counters.unknown += 1;
                return None;
            }
            if self.clients.len() >= MOST {
                self.clients.retain(|_, client| now.since(client.heard) < IDLE);
            }
            if self.clients.len() >= MOST {
                self.counters.full += 1;
                return None;
            }
            let client = Client {
                address: from,
                heard: now,
                received: 0,
                replies: 0,
                refused: 0,
                untold: VecDeque::new(),
            };
            self.clients.insert(probe.server, client);
        }
        let may = self.spend(now, length);
        let client = self.clients.get_mut(&probe.server)?;
        client.heard = now;
        client.received = client.received.wrapping_add(1);
        if !may {
            client.refused = client.refused.wrapping_add(1);
            self.counters.limited += 1;
            return None;
        }
        client.replies = client.replies.wrapping_add(1);
        let reply = Packet {
            kind: Kind::Reply,
            client: probe.client,
            server: probe.server,
            number: probe.number,
            reply: client.replies,
            received: client.received,
            refused: client.refused,
            came: came.stamp.map_or(0, Time::as_nanos),
            taken: now.as_nanos(),
            made: now.as_nanos(),
            earlier: client.untold.pop_front().unwrap_or_default(),
            interface: came.interface,
        };
        self.counters.answered += 1;
        reply
            .write(self.key.as_ref(), out.get_mut(..length)?)
            .then_some(Answer {
                length,
                of: Some((probe.server, probe.number)),
            })
    }

    /// A reply left then, by the kernel's stamp: the client is told with a later one.
    pub fn left(&mut self, (client, number): (u64, u32), at: Time) {
        if let Some(client) = self.clients.get_mut(&client) {
            if client.untold.len() == MOST_UNTOLD {
                client.untold.pop_front();
            }
            client.untold.push_back((number, at.as_nanos()));
        }
    }

    /// What became of datagrams so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Clients heard within a moment.
    pub fn clients(&self, now: Time) -> usize {
        self.clients
            .values()
            .filter(|client| now.since(client.heard) < IDLE)
            .count()
    }

    fn spend(&mut self, now: Time, bytes: usize) -> bool {
        let passed = now.since(self.filled);
        let earned = self.limit.bytes_in(passed).get();
        let tokens = self.tokens.saturating_add(earned);
        if tokens >= capacity(self.limit) {
            (self.tokens, self.filled) = (capacity(self.limit), now);
        } else if earned > 0 {
            // Of a byte that is not whole yet, its time is kept.
            (self.tokens, self.filled) = (tokens, self.filled + self.limit.time_for(Bytes::new(earned)));
        }
        let may = self.tokens >= bytes as u64;
        if may {
            self.tokens -= bytes as u64;
        }
        may
    }
}

/// One datagram at least.
fn capacity(limit: Rate) -> u64 {
    limit.bytes_in(BURST).get().max(super::packet::LONGEST as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_micros(90_000_000);

    fn came(now: Time) -> Came {
        Came {
            now,
            stamp: Some(now - Duration::from_micros(3)),
            interface: false,
            real: 1_000,
        }
    }

    fn responder(limit: Rate) -> Responder {
        Responder::new([5; 32], None, limit, NOW)
    }

    fn datagram(packet: Packet, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        assert!(packet.write(None, &mut out));
        out
    }

    fn client(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    fn exchange(responder: &mut Responder, now: Time, from: SocketAddr, sent: &[u8]) -> Option<(Packet, usize)> {
        let mut out = [0; super::super::packet::LONGEST];
        let answer = responder.handle(&came(now), from, sent, &mut out)?;
        assert!(answer.length <= sent.len(), "more than was asked with");
        Some((Packet::read(None, &out[..answer.length]).unwrap(), answer.length))
    }

    fn hello() -> Packet {
        Packet {
            client: 77,
            ..Packet::default()
        }
    }

    fn probe(server: u64, number: u32) -> Packet {
        Packet {
            kind: Kind::Probe,
            client: 77,
            server,
            number,
            ..Packet::default()
        }
    }

    #[test]
    fn a_client_is_answered_once_it_has_proved_its_address() {
        let mut responder = responder(Rate::from_bits_per_sec(10_000_000));
        let (us, other) = (client("192.0.2.1:5000"), client("192.0.2.2:5000"));
        let (answer, length) = exchange(&mut responder, NOW, us, &datagram(hello(), 1400)).unwrap();
        assert_eq!(
            (answer.kind, answer.client, answer.made, length),
            (Kind::Answer, 77, 1_000, HEADER)
        );
        assert_eq!(responder.clients(NOW), 0, "nothing is kept for a hello");

        // Who only heard of the identifier, and who made one up, gets nothing.
        assert_eq!(
            exchange(&mut responder, NOW, other, &datagram(probe(answer.server, 0), 500)),
            None
        );
        assert_eq!(
            exchange(&mut responder, NOW, us, &datagram(probe(answer.server ^ 1, 0), 500)),
            None
        );
        for number in 0..3 {
            let (reply, length) =
                exchange(&mut responder, NOW, us, &datagram(probe(answer.server, number), 500)).unwrap();
            assert_eq!((reply.kind, reply.number, length), (Kind::Reply, number, 500));
            assert_eq!(
                (reply.received, reply.reply, reply.refused),
                (number + 1, number + 1, 0)
            );
            assert_eq!((reply.came, reply.taken), (NOW.as_nanos() - 3_000, NOW.as_nanos()));
            let before = if number == 0 {
                (0, 0)
            } else {
                (number - 1, 1_000 * u64::from(number))
            };
            assert_eq!(reply.earlier, before);
            responder.left((answer.server, number), Time::from_micros(u64::from(number) + 1));
        }
        // Replies and answers are for clients; garbage is garbage.
        assert_eq!(exchange(&mut responder, NOW, us, &datagram(answer, 200)), None);
        assert_eq!(exchange(&mut responder, NOW, us, b"GET / HTTP/1.1"), None);
        let expected = Counters {
            answered: 3,
            hellos: 1,
            garbage: 1,
            unknown: 3,
            ..Counters::default()
        };
        assert_eq!(responder.counters(), expected);
    }

    #[test]
    fn all_answers_together_keep_below_the_limit() {
        // 1 Mbit/s: 125 bytes a millisecond.
        let mut responder = responder(Rate::from_bits_per_sec(1_000_000));
        let us = client("[2001:db8::1]:9");
        let (answer, _) = exchange(&mut responder, NOW, us, &datagram(hello(), HEADER)).unwrap();
        let mut bytes = 0;
        let mut last = Packet::default();
        for ms in 0..2_000u64 {
            let now = NOW + Duration::from_millis(ms);
            for _ in 0..5 {
                if let Some((reply, length)) =
                    exchange(&mut responder, now, us, &datagram(probe(answer.server, 1), 250))
                {
                    (bytes, last) = (bytes + length, reply);
                }
            }
        }
        let allowed = 250_000 + super::super::packet::LONGEST;
        assert!((240_000..=allowed).contains(&bytes), "{bytes} bytes in 2 s");
        assert_eq!(last.received, last.reply + last.refused);
        assert!(last.refused > 8_000);
        // Hellos are no way around it.
        let now = NOW + Duration::from_secs(2);
        let hellos = (0..1_000).filter(|_| exchange(&mut responder, now, us, &datagram(hello(), 300)).is_some());
        assert!(hellos.count() < 100);
    }

    /// At 1,000 bytes/s a datagram every 1.9 ms earns 1.9 bytes, not one.
    #[test]
    fn the_limit_loses_nothing_between_datagrams() {
        let mut responder = responder(Rate::from_bits_per_sec(8_000));
        let passed = |n: u64| NOW + Duration::from_micros(1_900) * n;
        assert!(
            responder.spend(NOW, super::super::packet::LONGEST),
            "what it begins with"
        );
        let sent = (1..=10_000).filter(|n| responder.spend(passed(*n), 100)).count();
        assert_eq!(sent, 190);
    }

    #[test]
    fn clients_are_bounded_and_forgotten_when_they_are_silent() {
        let mut responder = responder(Rate::from_bits_per_sec(10_000_000_000));
        let opens = |responder: &mut Responder, now: Time, n: usize| {
            let from = SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 9));
            let (answer, _) = exchange(responder, now, from, &datagram(hello(), 100)).unwrap();
            exchange(responder, now, from, &datagram(probe(answer.server, 0), 100)).is_some()
        };
        for n in 0..MOST {
            assert!(opens(&mut responder, NOW + Duration::from_micros(n as u64), n));
        }
        let now = NOW + Duration::from_secs(1);
        assert!(!opens(&mut responder, now, MOST));
        assert_eq!((responder.counters().full, responder.clients(now)), (1, MOST));
        let later = now + IDLE;
        assert!(opens(&mut responder, later, MOST));
        assert_eq!(responder.clients(later), 1);
    }
}
