//! Lower priority classes of a [`UdpHost`]. Reads the DSCP with which their segments arrive, and
//! sends them only while no class 0 data waits and little lower-class data is queued in the kernel.

use std::io;

use ccplane_qdisc::marking;
use ccplane_units::Time;

use super::UdpHost;
use super::sending::BURST_SEGMENTS;
use crate::error::UdpError;
use crate::queue_limit::QueueLimit;
use crate::socket::{DatagramMarks, Inbox, Socket};
use ccplane_transport::{CLASS_COUNT, Segment, SegmentKind, SideData};

/// Kernel overhead in bytes of a queued datagram up to the size of an Ethernet packet.
const KERNEL_OVERHEAD_BYTES: usize = 832;

/// IP header marks of a received datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramMark {
    pub ecn: u8,
    /// `None` if the DSCP was not read.
    pub dscp: Option<u8>,
}

impl From<DatagramMarks> for DatagramMark {
    fn from(marks: DatagramMarks) -> DatagramMark {
        DatagramMark {
            ecn: marks.ecn,
            dscp: Some(marks.dscp),
        }
    }
}

/// State of the lower classes of a host.
pub(super) struct Classes {
    /// Set if data arrives or may be sent in lower classes; otherwise they cost nothing.
    in_use: bool,
    /// Set if data may be sent in lower classes.
    sends_lower_classes: bool,
    /// Set if a peer sends data in lower classes and gets the received DSCP reported.
    pub reads_marks: bool,
    pub queue_limit: QueueLimit,
    /// Connection that sent last in round-robin order.
    last_flow: u64,
}

impl Classes {
    pub fn new(socket: &Socket, sends: bool) -> Classes {
        Classes {
            in_use: sends,
            sends_lower_classes: sends,
            reads_marks: false,
            queue_limit: QueueLimit::new(socket.send_buffer()),
            last_flow: 0,
        }
    }

    /// Disables the lower classes for receiving: no peer uses them any more.
    pub fn stop_receiving(&mut self) {
        (self.in_use, self.reads_marks) = (self.sends_lower_classes, false);
    }
}

impl UdpHost {
    /// Records the class in which a lower-class segment arrived. The DSCP is not read yet for the
    /// first such segments of a peer; they are assumed to have kept their class.
    #[cold]
    pub(super) fn record_band(&mut self, segment: &mut Segment, dscp: Option<u8>) {
        segment.band = dscp.map_or(segment.class, marking::class_of);
        if segment.kind == SegmentKind::Data {
            (self.classes.in_use, self.classes.reads_marks) = (true, true);
        }
    }

    /// Receives datagrams with their marks, but without timestamps.
    pub(super) fn receive_marked(&mut self, inbox: &mut Inbox) -> io::Result<(bool, bool)> {
        let now = self.clock.now();
        let received = self.socket.receive_marked(inbox)?;
        let came = (!received.is_empty(), received.is_full());
        let mut side = SideData::default();
        received.for_each(|address, marks, _, datagram| {
            self.on_datagram((now, now), address, marks.into(), datagram, &mut side);
        });
        Ok(came)
    }

    /// Sends lower-class data, highest priority first, within the limit on bytes queued in the
    /// kernel and at most [`BURST_SEGMENTS`] segments, so that class 0 is served again soon.
    /// Returns true if there was anything.
    pub(super) fn transmit_low(&mut self) -> Result<bool, UdpError> {
        let now = self.clock.now();
        let waits = match self.classes.in_use && !self.blocked {
            true => self.waiting_classes(now),
            false => 0,
        };
        if waits & !1 == 0 {
            // A pending check would keep waking the host, since only the code below would reset it.
            self.classes.queue_limit.cancel_check();
        }
        if waits & 1 != 0 || waits == 0 {
            return Ok(false);
        }
        // Class 0 data in the batch must be counted and sent before any lower-class data.
        self.flush()?;
        let mut sent = 0;
        while sent < BURST_SEGMENTS && !self.blocked {
            let socket = &self.socket;
            let waiting = || socket.unsent().unwrap_or_default();
            let room = self.classes.queue_limit.allowance(now, waiting)
                / (self.datagram_bytes + KERNEL_OVERHEAD_BYTES);
            let most = room.min(BURST_SEGMENTS - sent);
            let mut count = 0;
            for class in (1..CLASS_COUNT).filter(|class| waits >> class & 1 != 0) {
                count += self.transmit_class(class, most - count, now)?;
            }
            sent += count;
            if count < most {
                break;
            }
            if count == room {
                // A device that has taken everything at once may be given more.
                self.flush()?;
                if self.socket.unsent().unwrap_or_default() > 0 || room == 0 {
                    if self.waiting_classes(now) != 0 {
                        self.classes.queue_limit.schedule_check(now);
                    }
                    break;
                }
            }
        }
        Ok(sent > 0)
    }

    /// Returns the classes in which any connection has data, as a bit set.
    fn waiting_classes(&self, now: Time) -> u8 {
        let each = self.flows.values().map(|flow| flow.connection.classes(now));
        each.fold(0, |all, classes| all | classes)
    }

    /// Sends at most `most` segments of a class, round-robin over the connections.
    fn transmit_class(
        &mut self,
        class: u8,
        segments_max: usize,
        now: Time,
    ) -> Result<usize, UdpError> {
        if segments_max == 0 {
            return Ok(0);
        }
        let mut sent = 0;
        let mut id = self
            .next_flow(Some(self.classes.last_flow))
            .or(self.next_flow(None));
        let first = id;
        while let Some(flow) = id {
            while sent < segments_max && !self.blocked && self.transmit_one(flow, class, now)? {
                sent += 1;
            }
            self.classes.last_flow = flow;
            if sent == segments_max || self.blocked {
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
    use crate::flow::UdpCongestion;
    use crate::host::{DATAGRAM_BYTES_DEFAULT, UdpOptions};
    use crate::kernel_timestamps::Stamping;
    use ccplane_transport::{Native, Rc3, TransportConfig};

    fn host(rc3: Option<Rc3>) -> UdpHost {
        UdpHost::bind(UdpOptions {
            local: "127.0.0.1:0".parse().unwrap(),
            datagram_bytes: DATAGRAM_BYTES_DEFAULT,
            window: 1 << 16,
            tls: None,
            dscp: 0,
            stamping: Stamping::Off,
            link_rate: None,
            config: TransportConfig {
                rc3,
                ..TransportConfig::default()
            },
            accept_congestion: Native::cubic(),
        })
        .unwrap()
    }

    /// Reading marks and checking for lower-class data costs something on every turn. Once the last
    /// peer that uses lower classes is gone, the remaining ones pay nothing.
    #[test]
    fn idle_lower_classes_cost_nothing() {
        let mut server = host(None);
        server.listen(3).unwrap();
        let mut open = |rc3| {
            let mut client = host(rc3);
            let id = client
                .connect(server.local(), UdpCongestion::Native(Native::cubic()))
                .unwrap();
            let accepted = loop {
                client.poll(Duration::ZERO).unwrap();
                server.poll(Duration::ZERO).unwrap();
                if let Some(accepted) = server.accept() {
                    break accepted;
                }
            };
            let room = client.write_buffer(id);
            let bytes = room.len();
            room.fill(1);
            client.commit_write(id, bytes);
            for class in 0..CLASS_COUNT {
                while client.transmit_one(id, class, client.now()).unwrap() {}
            }
            client.flush().unwrap();
            while server.receive().unwrap() {}
            (client, accepted)
        };
        let (_one, plain) = open(None);
        let (_two, with_rc3) = open(Some(Rc3::default()));
        let (_three, other) = open(Some(Rc3::default()));
        let pays = |server: &UdpHost| (server.classes.in_use, server.classes.reads_marks);
        for (gone, still) in [(with_rc3, true), (other, false), (plain, false)] {
            assert!(server.connection(gone).is_some());
            server.remove(gone);
            assert_eq!(pays(&server), (still, still));
        }
    }

    /// Held-back data may be gone before the check is due: the connection has closed, class 0 has
    /// sent it, or the socket buffer is full.
    #[test]
    fn polls_without_waiters_set_no_timer() {
        for (rc3, blocked) in [
            (None, false),
            (Some(Rc3::default()), false),
            (Some(Rc3::default()), true),
        ] {
            let mut host = host(rc3);
            host.classes.queue_limit.schedule_check(host.now());
            while host
                .classes
                .queue_limit
                .next_check()
                .is_some_and(|look| host.now() < look)
            {}
            host.blocked = blocked;
            assert!(!host.transmit_low().unwrap());
            let before = host.now();
            host.wait(Duration::from_millis(20)).unwrap();
            let waited = host.now().since(before);
            // A writable socket ends a blocked wait at once, and this one is writable.
            assert!(blocked || waited >= Duration::from_millis(19), "{waited:?}");
            assert_eq!(host.classes.queue_limit.next_check(), None);
        }
    }
}
