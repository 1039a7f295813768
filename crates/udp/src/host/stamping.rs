//! Timestamps of a [`UdpHost`]: when its socket reports them, how they are read, and immediate ACKs
//! of timestamped data.

use std::io;

use ccplane_units::Time;

use super::RECEIVE_MARGIN_BYTES;
use super::UdpHost;
use crate::error::UdpError;
use crate::host_timestamps::{DelayHistogram, HostTimestamps};
use crate::kernel_timestamps::Stamping;
use crate::socket::Inbox;
use ccplane_transport::SideData;

impl UdpHost {
    /// Returns the one-way queueing delays of a connection's packets, as far as timestamps are
    /// known.
    pub fn delays(&self, id: u64) -> Option<&DelayHistogram> {
        self.flows.get(&id).and_then(|flow| flow.delays.as_deref())
    }

    /// Returns the number of ACKs without a sample because the departure time was unknown.
    pub fn missed_departures(&self) -> u64 {
        self.stamps
            .as_ref()
            .map_or(0, |stamps| stamps.departures.missed())
    }

    /// Receives datagrams with kernel timestamps.
    pub(super) fn receive_stamped(&mut self, inbox: &mut Inbox) -> io::Result<(bool, bool)> {
        let received = self
            .socket
            .receive_timestamped(inbox, self.datagram_bytes + RECEIVE_MARGIN_BYTES)?;
        let came = (!received.is_empty(), received.is_full());
        let headers = if self.socket.local().is_ipv4() {
            28
        } else {
            48
        };
        let now = self.read_departures();
        if let Some(stamps) = &mut self.stamps {
            received
                .stamps(|stamp, length| stamps.on_received(stamp, now, headers + length as u32));
            stamps.complete_batch();
        }
        let mut side = SideData::default();
        let mut place = 0;
        received.for_each(|address, marks, _, datagram| {
            let arrived = self
                .stamps
                .as_ref()
                .map_or(now, |stamps| stamps.arrival(place, now));
            place += 1;
            self.on_datagram((now, arrived), address, marks.into(), datagram, &mut side);
        });
        Ok(came)
    }

    /// Reads transmit timestamps, which must precede the processing of ACKs for the same packets.
    /// Returns the current time.
    pub(super) fn read_departures(&mut self) -> Time {
        let Some(stamps) = &mut self.stamps else {
            return self.clock.now();
        };
        let now = stamps.begin_batch();
        let headers = if self.socket.local().is_ipv4() {
            28
        } else {
            48
        };
        // Without transmit timestamps the error queue holds only errors, which `receive` also
        // returns.
        if self.socket.stamps_departures()
            && let Some(why) = self
                .socket
                .read_departures(|number, stamp| stamps.on_departed(number, stamp, now, headers))
        {
            self.record_error(why);
        }
        now
    }

    /// Enables kernel receive timestamps. If that fails, peers get user-space times.
    pub(super) fn enable_timestamps(&mut self) {
        self.wants_stamps = false;
        if let Err(why) = self.socket.set_timestamping(self.stamping, false) {
            tracing::warn!(
                "{}; timestamps are taken in user space instead",
                UdpError::Stamps(why)
            );
            self.stamping = Stamping::Off;
            return;
        }
        self.batch.set_limit(self.socket.batch_max());
        self.stamps = Some(Box::new(HostTimestamps::new(self.clock, self.link_rate)));
    }

    /// Disables timestamps, which make packets more expensive, once no peer sends timestamped data.
    pub(super) fn disable_timestamps(&mut self) {
        if self.socket.set_timestamping(Stamping::Off, false).is_ok() {
            self.batch.set_limit(self.socket.batch_max());
            self.stamps = None;
        }
    }

    /// Acknowledges timestamped data at once, so that each datagram of a receive call gets an ACK
    /// of its own.
    pub(super) fn acknowledge(&mut self, id: u64, now: Time) -> Result<(), UdpError> {
        // If data is sent as well, the ACK follows it.
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
    use crate::flow::UdpCongestion;
    use crate::host::{DATAGRAM_BYTES_DEFAULT, UdpOptions};
    use ccplane_transport::{CLASS_COUNT, Native, Rc3, TransportConfig};

    fn host(stamps: bool) -> UdpHost {
        UdpHost::bind(UdpOptions {
            local: "127.0.0.1:0".parse().unwrap(),
            datagram_bytes: DATAGRAM_BYTES_DEFAULT,
            window: 1 << 20,
            tls: None,
            dscp: 0,
            stamping: Stamping::Software,
            link_rate: None,
            config: TransportConfig {
                rc3: Some(Rc3::default()),
                stamps,
                ..TransportConfig::default()
            },
            accept_congestion: Native::cubic(),
        })
        .unwrap()
    }

    /// Timestamped class 0 data is acknowledged by the call that receives it. In a lower class the
    /// ACK waits until no higher class has anything to send, as data would.
    #[test]
    fn only_class_0_is_answered_at_once() {
        let (mut client, mut server) = (host(true), host(false));
        server.listen(1).unwrap();
        let congestion = UdpCongestion::Native(Native::cubic());
        let id = client.connect(server.local(), congestion).unwrap();
        let accepted = loop {
            client.poll(Duration::ZERO).unwrap();
            server.poll(Duration::ZERO).unwrap();
            if let Some(accepted) = server.accept() {
                break accepted;
            }
        };
        client.write_buffer(id)[..200_000].fill(1);
        client.commit_write(id, 200_000);
        let mut classes = 0;
        for class in 0..CLASS_COUNT {
            while client.transmit_one(id, class, client.now()).unwrap() {
                classes |= 1 << class;
            }
            client.flush().unwrap();
            server.receive().unwrap();
            let owed = server.connection(accepted).unwrap().classes(server.now());
            assert_eq!(
                owed,
                classes & !1,
                "class 0 is acknowledged at once, lower classes wait"
            );
            assert_eq!(server.batch.is_empty(), class != 0, "class {class}");
            server.flush().unwrap();
        }
        assert_eq!(classes, 0b111);
        server.poll(Duration::ZERO).unwrap();
        assert_eq!(
            server.connection(accepted).unwrap().classes(server.now()),
            0
        );
    }
}
