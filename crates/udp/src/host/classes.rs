//! What a [`Host`] does about classes below the ordinary one: it reads how they were marked on
//! arrival, and hands over what leaves in them only where nothing of class 0 waits, and little of
//! their own.

use std::io;

use ccplane_qdisc::marking;
use ccplane_units::Time;

use super::Host;
use super::sending::BURST;
use crate::ahead::Ahead;
use crate::error::UdpError;
use crate::socket::{Inbox, Marks, Socket};
use ccplane_transport::{Kind, MAX_CLASSES, Segment, Side};

/// Bytes of the kernel's memory that a datagram of at most an Ethernet packet takes while it waits.
const OVERHEAD: usize = 832;

/// How a datagram was marked when it arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub ecn: u8,
    /// `None` where nobody looked.
    pub dscp: Option<u8>,
}

impl From<Marks> for Seen {
    fn from(marks: Marks) -> Seen {
        Seen {
            ecn: marks.ecn,
            dscp: Some(marks.dscp),
        }
    }
}

/// What a host keeps for them.
pub(super) struct Classes {
    /// Data came in one, or may leave in one: whoever has neither pays nothing.
    in_use: bool,
    /// Whether data may leave in them.
    sends: bool,
    /// Somebody sends data in them, and is told how it was marked on arrival.
    pub reads_marks: bool,
    pub ahead: Ahead,
    /// Whose turn was the last one.
    turn: u64,
}

impl Classes {
    pub fn new(socket: &Socket, sends: bool) -> Classes {
        Classes {
            in_use: sends,
            sends,
            reads_marks: false,
            ahead: Ahead::new(socket.send_buffer()),
            turn: 0,
        }
    }

    /// Nobody sends data in them any more.
    pub fn end(&mut self) {
        (self.in_use, self.reads_marks) = (self.sends, false);
    }
}

impl Host {
    /// Notes in which class a segment that was sent in a lower one has arrived. Nobody looked at
    /// the marks of the first that a peer sends: those are taken to be as they were.
    #[cold]
    pub(super) fn see(&mut self, segment: &mut Segment, dscp: Option<u8>) {
        segment.band = dscp.map_or(segment.class, marking::class_of);
        if segment.kind == Kind::Data {
            (self.classes.in_use, self.classes.reads_marks) = (true, true);
        }
    }

    /// Takes what has arrived with its marks, but without stamps.
    pub(super) fn receive_marked(&mut self, inbox: &mut Inbox) -> io::Result<(bool, bool)> {
        let now = self.clock.now();
        let received = self.socket.receive_marked(inbox)?;
        let came = (!received.is_empty(), received.is_full());
        let mut side = Side::default();
        received.each(|address, marks, _, datagram| {
            self.take_datagram((now, now), address, marks.into(), datagram, &mut side);
        });
        Ok(came)
    }

    /// Sends what connections have in the lower classes, the highest of them first, as far as the
    /// kernel is to be given any, and at most [`BURST`] of them: then class 0 has its turn again.
    /// Whether there was anything.
    pub(super) fn transmit_low(&mut self) -> Result<bool, UdpError> {
        let now = self.clock.now();
        let waits = match self.classes.in_use && !self.blocked {
            true => self.waiting_classes(now),
            false => 0,
        };
        if waits & !1 == 0 {
            // A look that is due would end every wait at once, and nothing here would take it.
            self.classes.ahead.forget();
        }
        if waits & 1 != 0 || waits == 0 {
            return Ok(false);
        }
        // What the batch holds of class 0 is to be counted, and to be before all of this.
        self.flush()?;
        let mut sent = 0;
        while sent < BURST && !self.blocked {
            let socket = &self.socket;
            let waiting = || socket.unsent().unwrap_or_default();
            let room = self.classes.ahead.room(now, waiting) / (self.datagram + OVERHEAD);
            let most = room.min(BURST - sent);
            let mut count = 0;
            for class in (1..MAX_CLASSES).filter(|class| waits >> class & 1 != 0) {
                count += self.transmit_class(class, most - count, now)?;
            }
            sent += count;
            if count < most {
                break;
            }
            if count == room {
                // A device that has taken all of it at once may have more.
                self.flush()?;
                if self.socket.unsent().unwrap_or_default() > 0 || room == 0 {
                    if self.waiting_classes(now) != 0 {
                        self.classes.ahead.hold(now);
                    }
                    break;
                }
            }
        }
        Ok(sent > 0)
    }

    /// Classes in which anybody has something to send, a bit each.
    fn waiting_classes(&self, now: Time) -> u8 {
        let each = self.flows.values().map(|flow| flow.connection.classes(now));
        each.fold(0, |all, classes| all | classes)
    }

    /// Sends at most so many segments of a class, of one connection after the other, beginning
    /// behind the one whose turn was the last.
    fn transmit_class(&mut self, class: u8, most: usize, now: Time) -> Result<usize, UdpError> {
        if most == 0 {
            return Ok(0);
        }
        let mut sent = 0;
        let mut id = self
            .next_flow(Some(self.classes.turn))
            .or(self.next_flow(None));
        let first = id;
        while let Some(flow) = id {
            while sent < most && !self.blocked && self.transmit_one(flow, class, now)? {
                sent += 1;
            }
            self.classes.turn = flow;
            if sent == most || self.blocked {
                break;
            }
            id = self
                .next_flow(Some(flow))
                .or(self.next_flow(None))
                .filter(|id| Some(*id) != first);
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Duration;

    use super::*;
    use crate::flow::Congestion;
    use crate::host::{DATAGRAM, Options};
    use crate::stamped::Stamping;
    use ccplane_transport::{Config, Native, Rc3};

    fn host(rc3: Option<Rc3>) -> Host {
        Host::bind(Options {
            local: "127.0.0.1:0".parse().unwrap(),
            datagram: DATAGRAM,
            window: 1 << 16,
            tls: None,
            dscp: 0,
            stamping: Stamping::Off,
            link: None,
            config: Config {
                rc3,
                ..Config::default()
            },
            accepted: Native::cubic(),
        })
        .unwrap()
    }

    /// Reading marks and looking for what waits cost something with every turn: once the last peer
    /// that sends in lower classes is gone, those that are left pay nothing.
    #[test]
    fn lower_classes_cost_nothing_once_who_sent_in_them_is_gone() {
        let mut server = host(None);
        server.listen(3).unwrap();
        let mut open = |rc3| {
            let mut client = host(rc3);
            let id = client
                .connect(server.local(), Congestion::Native(Native::cubic()))
                .unwrap();
            let accepted = loop {
                client.turn(Duration::ZERO).unwrap();
                server.turn(Duration::ZERO).unwrap();
                if let Some(accepted) = server.accepted() {
                    break accepted;
                }
            };
            let room = client.room(id);
            let bytes = room.len();
            room.fill(1);
            client.wrote(id, bytes);
            for class in 0..MAX_CLASSES {
                while client.transmit_one(id, class, client.now()).unwrap() {}
            }
            client.flush().unwrap();
            while server.receive().unwrap() {}
            (client, accepted)
        };
        let (_one, plain) = open(None);
        let (_two, with_rc3) = open(Some(Rc3::default()));
        let (_three, other) = open(Some(Rc3::default()));
        let pays = |server: &Host| (server.classes.in_use, server.classes.reads_marks);
        for (gone, still) in [(with_rc3, true), (other, false), (plain, false)] {
            assert!(server.connection(gone).is_some());
            server.remove(gone);
            assert_eq!(pays(&server), (still, still));
        }
    }

    /// What was held back may be gone before the look is due: the connection has ended, class 0 has
    /// sent it, the socket's buffer is full.
    #[test]
    fn a_look_that_nobody_waits_for_wakes_nobody() {
        for (rc3, blocked) in [
            (None, false),
            (Some(Rc3::default()), false),
            (Some(Rc3::default()), true),
        ] {
            let mut host = host(rc3);
            host.classes.ahead.hold(host.now());
            while host
                .classes
                .ahead
                .look()
                .is_some_and(|look| host.now() < look)
            {}
            host.blocked = blocked;
            assert!(!host.transmit_low().unwrap());
            let before = host.now();
            host.wait(Duration::from_millis(20)).unwrap();
            let waited = host.now().since(before);
            // A socket with room to write is told so at once, and here it has room.
            assert!(blocked || waited >= Duration::from_millis(19), "{waited:?}");
            assert_eq!(host.classes.ahead.look(), None);
        }
    }
}
