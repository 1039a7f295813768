//! The client of the delay meter: makes probes, and remembers what became of them.

use ccplane_units::Time;

use super::packet::{Kind, Packet};
use crate::key::Key;

/// One probe and its reply. Times are ns; 0 is unknown. `came`, `taken`, `made` and `answer_left` are of the responder's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// When the client was about to send the probe.
    pub sent: u64,
    /// t1, when the probe left, by the kernel's stamp.
    pub left: u64,
    /// t2, when it came, by the kernel's stamp.
    pub came: u64,
    /// When the responder had it in hand.
    pub taken: u64,
    /// When the responder made the reply.
    pub made: u64,
    /// t3, when the reply left, by the kernel's stamp.
    pub answer_left: u64,
    /// t4, when it came, by the kernel's stamp.
    pub arrived: u64,
    /// When the client had it in hand.
    pub read: u64,
}

impl Exchange {
    /// Whether there was a reply.
    pub fn is_answered(&self) -> bool {
        self.read != 0
    }
}

/// Counts of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Probes sent.
    pub sent: u32,
    /// Probes that this host did not take, and which count as nothing else.
    pub unsent: u32,
    /// Probes up to the last that was answered; what became of later ones nobody knows.
    pub judged: u32,
    /// Of them, those that came there.
    pub received: u32,
    /// Left without a reply by the responder's limit.
    pub refused: u32,
    /// Replies that it sent.
    pub replies: u32,
    /// Replies that came.
    pub answered: u32,
    /// Probes that came a second time, or whose reply did.
    pub repeated: u32,
    /// Replies that came after a later one.
    pub reordered: u32,
    /// Datagrams that were none of this measurement's.
    pub foreign: u32,
}

impl Tally {
    /// Probes lost on the way there, of those judged.
    pub fn lost_there(&self) -> u32 {
        self.judged.saturating_sub(self.received)
    }

    /// Replies lost on the way back, of those sent.
    pub fn lost_back(&self) -> u32 {
        self.replies.saturating_sub(self.answered)
    }
}

/// What a datagram was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The responder knows us.
    Answer,
    /// It answers a probe.
    Reply,
    /// None of ours.
    Foreign,
}

/// Makes probes, and remembers what became of them.
pub struct Client {
    id: u64,
    server: Option<u64>,
    key: Option<Key>,
    exchanges: Vec<Exchange>,
    tally: Tally,
    /// The last number that was answered.
    furthest: Option<u32>,
    /// The responder's real time less its clock's, ns.
    real: i64,
    /// The stamps of the other end are its interface's.
    interface: bool,
}

impl Client {
    /// A client of this random identifier, which must not be 0.
    pub fn new(id: u64, key: Option<Key>) -> Client {
        Client {
            id: id.max(1),
            server: None,
            key,
            exchanges: Vec::new(),
            tally: Tally::default(),
            furthest: None,
            real: 0,
            interface: false,
        }
    }

    /// Writes a hello of `out.len()` bytes.
    pub fn hello(&self, out: &mut [u8]) -> bool {
        let hello = Packet {
            client: self.id,
            ..Packet::default()
        };
        hello.write(self.key.as_ref(), out)
    }

    /// Writes the next probe, of `out.len()` bytes, which is about to be sent; its number. `None` before there was an answer.
    pub fn probe(&mut self, now: Time, out: &mut [u8]) -> Option<u32> {
        let number = u32::try_from(self.exchanges.len()).ok()?;
        let probe = Packet {
            kind: Kind::Probe,
            client: self.id,
            server: self.server?,
            number,
            ..Packet::default()
        };
        if !probe.write(self.key.as_ref(), out) {
            return None;
        }
        self.exchanges.push(Exchange {
            sent: now.as_nanos(),
            ..Exchange::default()
        });
        self.tally.sent += 1;
        Some(number)
    }

    /// The last probe was not sent after all: its number is the next one's.
    pub fn take_back(&mut self) {
        if self.exchanges.pop().is_some() {
            self.tally.sent -= 1;
            self.tally.unsent += 1;
        }
    }

    /// The probe left then.
    pub fn left(&mut self, number: u32, at: Time) {
        if let Some(exchange) = self.exchanges.get_mut(number as usize) {
            exchange.left = at.as_nanos();
        }
    }

    /// A datagram came: by the kernel's stamp at `stamp`, and now it is read.
    pub fn handle(&mut self, now: Time, stamp: Option<Time>, datagram: &[u8]) -> Heard {
        match Packet::read(self.key.as_ref(), datagram) {
            Ok(packet) if packet.client == self.id => match packet.kind {
                Kind::Answer if self.server.is_none() => {
                    (self.server, self.real) = (Some(packet.server), packet.made as i64);
                    return Heard::Answer;
                }
                Kind::Answer => return Heard::Answer, // to another hello of ours
                Kind::Reply if self.server == Some(packet.server) && self.reply(now, stamp, &packet) => {
                    return Heard::Reply;
                }
                _ => {}
            },
            _ => {}
        }
        self.tally.foreign += 1;
        Heard::Foreign
    }

    fn reply(&mut self, now: Time, stamp: Option<Time>, reply: &Packet) -> bool {
        let Some(exchange) = self.exchanges.get_mut(reply.number as usize) else {
            return false;
        };
        if exchange.is_answered() {
            self.tally.repeated += 1;
            return true;
        }
        *exchange = Exchange {
            came: reply.came,
            taken: reply.taken,
            made: reply.made,
            arrived: stamp.map_or(0, Time::as_nanos),
            read: now.as_nanos(),
            ..*exchange
        };
        let (before, left) = reply.earlier;
        if left != 0
            && let Some(earlier) = self.exchanges.get_mut(before as usize)
        {
            earlier.answer_left = left;
        }
        self.interface |= reply.interface;
        let tally = &mut self.tally;
        tally.answered += 1;
        if self.furthest.is_some_and(|furthest| reply.number < furthest) {
            tally.reordered += 1;
        }
        self.furthest = self.furthest.max(Some(reply.number));
        tally.judged = self.furthest.map_or(0, |furthest| furthest + 1);
        tally.received = tally.received.max(reply.received).min(tally.judged);
        tally.refused = tally.refused.max(reply.refused);
        tally.replies = tally.replies.max(reply.reply);
        true
    }

    /// Whether the responder has answered the hello.
    pub fn is_known(&self) -> bool {
        self.server.is_some()
    }

    /// Counts so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// All exchanges, in the order in which the probes were sent, and what the responder's real time was ahead of its clock, ns; and
    /// whether its stamps are its interface's.
    pub fn into_parts(self) -> (Vec<Exchange>, i64, bool) {
        (self.exchanges, self.real, self.interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::HEADER;

    fn at(us: u64) -> Time {
        Time::from_micros(us)
    }

    #[test]
    fn losses_are_told_apart_by_direction() {
        let mut client = Client::new(5, None);
        let mut out = [0; HEADER];
        assert_eq!(client.probe(at(1), &mut out), None, "nobody has answered yet");
        assert!(client.hello(&mut out));
        let answer = Packet {
            kind: Kind::Answer,
            client: 5,
            server: 9,
            made: 40,
            ..Packet::default()
        };
        answer.write(None, &mut out);
        assert_eq!(client.handle(at(1), None, &out), Heard::Answer);
        for number in 0..10 {
            assert_eq!(client.probe(at(10 * u64::from(number) + 10), &mut out), Some(number));
            client.left(number, at(10 * u64::from(number) + 11));
        }
        // 2 and 3 are lost on the way there, the reply to 5 on the way back, 7 overtakes 6, 8 and 9 are under way.
        let mut reply = |number: u32, received: u32, earlier: (u32, u64)| {
            let packet = Packet {
                kind: Kind::Reply,
                client: 5,
                server: 9,
                number,
                reply: received,
                received,
                came: 1_000 + u64::from(number),
                taken: 2_000,
                made: 2_100,
                earlier,
                ..Packet::default()
            };
            packet.write(None, &mut out);
            client.handle(at(500 + u64::from(number)), Some(at(499 + u64::from(number))), &out)
        };
        let heard = [
            reply(0, 1, (0, 0)),
            reply(1, 2, (0, 2_222)),
            reply(4, 3, (1, 3_333)),
            reply(7, 6, (6, 7_777)),
            reply(6, 5, (5, 6_666)),
            reply(6, 5, (5, 6_666)),
        ];
        assert_eq!(heard, [Heard::Reply; 6]);
        assert_eq!(reply(10, 6, (0, 0)), Heard::Foreign, "a probe that was never sent");
        let tally = client.tally();
        assert_eq!(
            (tally.sent, tally.judged, tally.received, tally.replies, tally.answered),
            (10, 8, 6, 6, 5)
        );
        assert_eq!((tally.lost_there(), tally.lost_back()), (2, 1));
        assert_eq!((tally.reordered, tally.repeated, tally.foreign), (1, 1, 1));
        // One that this host does not take is no loss of the path's.
        assert_eq!(client.probe(at(600), &mut out), Some(10));
        client.take_back();
        assert_eq!((client.tally().sent, client.tally().unsent), (10, 1));
        let (exchanges, real, _) = client.into_parts();
        assert_eq!((exchanges.len(), real), (10, 40));
        let expected = Exchange {
            sent: 10_000,
            left: 11_000,
            came: 1_000,
            taken: 2_000,
            made: 2_100,
            answer_left: 2_222,
            arrived: 499_000,
            read: 500_000,
        };
        assert_eq!(exchanges[0], expected);
        assert!(!exchanges[2].is_answered() && exchanges[6].answer_left == 7_777);
    }
}
