//! What a [`Host`] does about time stamps: when its socket has them, what it reads of them, and who
//! is answered at once.

use std::io;

use ccplane_units::Time;

use super::BEYOND;
use super::Host;
use crate::error::UdpError;
use crate::socket::Inbox;
use crate::stamped::Stamping;
use crate::stamps::{Delays, HostStamps};
use ccplane_transport::Side;

impl Host {
    /// One-way queueing delays of what a connection sent, as far as its stamps tell.
    pub fn delays(&self, id: u64) -> Option<&Delays> {
        self.flows.get(&id).and_then(|flow| flow.delays.as_deref())
    }

    /// Acknowledgements that brought no sample, as the departure of what they answer was not known.
    pub fn missed_departures(&self) -> u64 {
        self.stamps
            .as_ref()
            .map_or(0, |stamps| stamps.departures.missed())
    }

    /// The same with the kernel's stamps.
    pub(super) fn receive_stamped(&mut self, inbox: &mut Inbox) -> io::Result<(bool, bool)> {
        let received = self.socket.receive_each(inbox, self.datagram + BEYOND)?;
        let came = (!received.is_empty(), received.is_full());
        let headers = if self.socket.local().is_ipv4() {
            28
        } else {
            48
        };
        let now = self.read_departures();
        if let Some(stamps) = &mut self.stamps {
            received.stamps(|stamp, length| stamps.came(stamp, now, headers + length as u32));
            stamps.complete();
        }
        let mut side = Side::default();
        let mut place = 0;
        received.each(|address, marks, _, datagram| {
            let arrived = self
                .stamps
                .as_ref()
                .map_or(now, |stamps| stamps.arrival(place, now));
            place += 1;
            self.take_datagram((now, arrived), address, marks.into(), datagram, &mut side);
        });
        Ok(came)
    }

    /// Reads what the kernel says of what was sent, before what came is looked at: what is answered
    /// has left. The present.
    pub(super) fn read_departures(&mut self) -> Time {
        let Some(stamps) = &mut self.stamps else {
            return self.clock.now();
        };
        let now = stamps.begin();
        let headers = if self.socket.local().is_ipv4() {
            28
        } else {
            48
        };
        // Without stamps of departures nothing but errors can be there, which come back from
        // `receive` as well.
        if self.socket.stamps_departures()
            && let Some(why) = self
                .socket
                .departures(|number, stamp| stamps.left(number, stamp, now, headers))
        {
            self.note_trouble(why);
        }
        now
    }

    /// From now on the kernel stamps what comes. Where it does not, whoever asked has the times of
    /// user space.
    pub(super) fn begin_stamps(&mut self) {
        self.wants_stamps = false;
        if let Err(why) = self.socket.stamp(self.stamping, false) {
            tracing::warn!(
                "{}; a peer's are answered with this process's",
                UdpError::Stamps(why)
            );
            self.stamping = Stamping::Off;
            return;
        }
        self.batch.limit(self.socket.batch());
        self.stamps = Some(Box::new(HostStamps::new(self.clock, self.link)));
    }

    /// Nobody's data is stamped any more: without stamps a packet costs less.
    pub(super) fn end_stamps(&mut self) {
        if self.socket.stamp(Stamping::Off, false).is_ok() {
            self.batch.limit(self.socket.batch());
            self.stamps = None;
        }
    }

    /// Answers stamped data at once: what came behind it in the same call is to have an answer of
    /// its own.
    pub(super) fn acknowledge(&mut self, id: u64, now: Time) -> Result<(), UdpError> {
        // Where data leaves as well, an acknowledgement follows it.
        for _ in 0..2 {
            if self.blocked || !self.transmit_one(id, 0, now)? {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Duration;

    use super::*;
    use crate::flow::Congestion;
    use crate::host::{DATAGRAM, Options};
    use ccplane_transport::{Config, MAX_CLASSES, Native, Rc3};

    fn host(stamps: bool) -> Host {
        Host::bind(Options {
            local: "127.0.0.1:0".parse().unwrap(),
            datagram: DATAGRAM,
            window: 1 << 20,
            tls: None,
            dscp: 0,
            stamping: Stamping::Software,
            link: None,
            config: Config {
                rc3: Some(Rc3::default()),
                stamps,
                ..Config::default()
            },
            accepted: Native::cubic(),
        })
        .unwrap()
    }

    /// Stamped data of class 0 is answered by the call that brings it. In a lower class an answer
    /// waits until nothing of a higher one does, as data would.
    #[test]
    fn only_class_0_is_answered_at_once() {
        let (mut client, mut server) = (host(true), host(false));
        server.listen(1).unwrap();
        let congestion = Congestion::Native(Native::cubic());
        let id = client.connect(server.local(), congestion).unwrap();
        let accepted = loop {
            client.turn(Duration::ZERO).unwrap();
            server.turn(Duration::ZERO).unwrap();
            if let Some(accepted) = server.accepted() {
                break accepted;
            }
        };
        client.room(id)[..200_000].fill(1);
        client.wrote(id, 200_000);
        let mut classes = 0;
        for class in 0..MAX_CLASSES {
            while client.transmit_one(id, class, client.now()).unwrap() {
                classes |= 1 << class;
            }
            client.flush().unwrap();
            server.receive().unwrap();
            let owed = server.connection(accepted).unwrap().classes(server.now());
            assert_eq!(
                owed,
                classes & !1,
                "class 0 is answered already, what is below waits"
            );
            assert_eq!(server.batch.is_empty(), class != 0, "class {class}");
            server.flush().unwrap();
        }
        assert_eq!(classes, 0b111);
        server.turn(Duration::ZERO).unwrap();
        assert_eq!(
            server.connection(accepted).unwrap().classes(server.now()),
            0
        );
    }
}
