//! What paths carry: found by hellos of all sizes, tried again while a connection is open
//! ([`PathSize`]), and noticed when it becomes less.

use std::io;
use std::net::SocketAddr;

use ccplane_units::{Duration, Time};

use super::Host;
use super::sending::put;
use crate::codec::PART;
use crate::endpoint::{mss, sizes};
use crate::error::UdpError;
use crate::parts::parts;
use crate::path::PathSize;
use crate::socket::Marks;
use ccplane_transport::{Kind, Part, Proof, Segment, Side, State};

impl Host {
    /// How long the search for what a path carries rests where three probes were not answered, or a
    /// handshake found less than full datagrams: [`RAISE`](crate::RAISE), unless this says
    /// otherwise, before connections open. Shorter is for tests.
    pub fn search_paths_after(&mut self, raise: Duration) {
        self.raise = raise;
    }

    /// Bytes of the largest packet that the path of a connection carries, IP header included.
    pub fn packet(&self, id: u64) -> Option<usize> {
        let headers = if self.socket.local().is_ipv4() {
            28
        } else {
            48
        };
        Some(headers + self.endpoint.size(id)?)
    }

    /// A hello that was not answered leaves again in every size that its path may carry.
    pub(super) fn search(
        &mut self,
        id: u64,
        hello: &Segment,
        side: &mut Side,
        marks: Marks,
    ) -> Result<(), UdpError> {
        let mut hello = *hello;
        let full = self.endpoint.size(id).unwrap_or(self.datagram);
        for step in 1..=sizes(full).count() {
            // Nothing may be added before what waits has left: as if the network had lost the rest.
            if self.blocked {
                return Ok(());
            }
            hello.transmission = step as u8;
            let written = self.endpoint.write(
                id,
                &hello,
                side,
                self.batch.room(),
                |_| Proof::default(),
                |_| (),
            );
            if let Some((length, to)) = written
                && !self.batch.add(length, to, marks, None)
            {
                self.flush()?;
            }
            // Each by itself: one that the device does not take is no loss to the others.
            self.flush()?;
        }
        Ok(())
    }

    /// Sends the probes that are due, and begins the search of connections that have opened.
    #[cold]
    pub(super) fn look_at_paths(&mut self, now: Time) -> Result<(), UdpError> {
        let mut after = None;
        while let Some(id) = self.next_flow(after) {
            after = Some(id);
            let Some(flow) = self.flows.get_mut(&id) else {
                continue;
            };
            if flow.connection.state() != State::Open {
                continue;
            }
            let known = self.endpoint.size(id).zip(self.endpoint.most(id));
            let (size, most) = known.unwrap_or((self.datagram, self.datagram));
            let raise = self.raise;
            let path = flow
                .path
                .get_or_insert_with(|| PathSize::new(now, size, most, raise));
            // Where the kernel has no room a probe would be lost, and say nothing of the path.
            if self.blocked {
                path.put_off(now);
            } else if let Some(size) = path.probe(now, flow.connection.srtt()) {
                self.send_probe(id, size)?;
            }
        }
        Ok(())
    }

    /// A datagram of so many bytes, by itself.
    fn send_probe(&mut self, id: u64, size: usize) -> Result<(), UdpError> {
        self.flush()?;
        self.probing = Some(id);
        let sent = self.send_about(id, Kind::PathProbe, size);
        self.probing = None;
        sent
    }

    /// The peer tries what the path carries, and a datagram of so many bytes has arrived.
    #[cold]
    pub(super) fn answer_probe(&mut self, id: u64, size: usize) {
        if let Err(why) = self.send_about(id, Kind::PathReply, size) {
            self.broken.get_or_insert(why);
        }
    }

    fn send_about(&mut self, id: u64, kind: Kind, size: usize) -> Result<(), UdpError> {
        let mut segment = Segment::default();
        (segment.kind, segment.length) = (kind, u16::try_from(size).unwrap_or(u16::MAX));
        let marks = Marks {
            ecn: 0,
            dscp: self.dscp,
        };
        self.send_alone(id, &segment, &mut Side::default(), marks)
    }

    /// A segment without data, in no batch: a virtual network passes or drops one as a whole, and
    /// what comes with it may be too long for the path. Where there is no room it is as good as
    /// lost on the way.
    #[cold]
    pub(super) fn send_alone(
        &mut self,
        id: u64,
        segment: &Segment,
        side: &mut Side,
        marks: Marks,
    ) -> Result<(), UdpError> {
        if self.blocked {
            return Ok(());
        }
        let connection = self.flows.get(&id).map(|flow| &flow.connection);
        let prove = |side: &Side| {
            connection.map_or(Proof::default(), |connection| {
                connection.prove(segment, side)
            })
        };
        let written = self
            .endpoint
            .write(id, segment, side, self.batch.room(), prove, |_| ());
        if let Some((length, to)) = written
            && !self.batch.add(length, to, marks, None)
        {
            self.flush()?;
        }
        self.flush()
    }

    /// A probe of so many bytes has arrived at the other end.
    #[cold]
    pub(super) fn on_path_reply(&mut self, now: Time, id: u64, size: usize) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if flow
            .path
            .as_mut()
            .is_some_and(|path| path.on_reply(now, size))
        {
            tracing::debug!("the path carries datagrams of {size} bytes");
            self.fit(id);
        }
    }

    /// Full datagrams of a connection do not arrive any more.
    #[cold]
    pub(super) fn narrow(&mut self, now: Time, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if flow
            .path
            .as_mut()
            .is_some_and(|path| path.on_black_hole(now))
        {
            tracing::info!("full packets do not arrive any more: shorter ones are sent");
            self.fit(id);
        }
    }

    /// Datagrams and segments of a connection are as long as its path carries.
    fn fit(&mut self, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let Some(size) = flow.path.as_ref().map(PathSize::size) else {
            return;
        };
        self.endpoint.resize(id, size);
        let mss = mss(size, self.sealed, self.config.stamps);
        flow.connection.set_mss(mss);
    }

    /// What waits to be sent again was cut for a wider path: it leaves in parts, which have the
    /// side data and the end with the last.
    #[cold]
    pub(super) fn transmit_parts(
        &mut self,
        id: u64,
        segment: &Segment,
        side: &Side,
        marks: Marks,
    ) -> Result<(), UdpError> {
        let Some(flow) = self.flows.get(&id) else {
            return Ok(());
        };
        let step = (flow.connection.mss() as u16).saturating_sub(PART as u16);
        for (begin, end) in parts(segment.length, step) {
            // Nothing may be added before what waits has left: as if the network had lost the rest.
            if self.blocked {
                return Ok(());
            }
            let (mut segment, mut side) = (*segment, *side);
            if end < segment.length {
                side = Side::default();
                segment.flags &= !Segment::FIN;
            }
            side.part = Part {
                begin,
                whole: segment.length,
            };
            segment.flags |= Segment::SIDE;
            segment.set_offset(segment.offset() + u64::from(begin));
            segment.length = end - begin;
            let Some(flow) = self.flows.get_mut(&id) else {
                return Ok(());
            };
            let (batch, segment) = (&mut self.batch, (id, &segment));
            let outcome = put(
                &mut self.endpoint,
                batch,
                flow,
                segment,
                &mut side,
                (marks, None),
            );
            if !self.settle(outcome)? {
                break;
            }
        }
        Ok(())
    }

    /// A datagram is longer than this host's own link takes.
    pub(super) fn too_long(
        &mut self,
        first: Option<(SocketAddr, usize)>,
        why: io::Error,
    ) -> Result<(), UdpError> {
        let now = self.clock.now();
        if let Some(id) = self.probing {
            let path = self.flows.get_mut(&id).and_then(|flow| flow.path.as_mut());
            path.into_iter().for_each(|path| path.on_refused(now));
            return Ok(());
        }
        // A hello finds out what it takes.
        if self
            .flows
            .values()
            .any(|flow| flow.connection.state() == State::Opening)
        {
            self.note_trouble(why);
            return Ok(());
        }
        let Some((address, size)) = first else {
            return Ok(());
        };
        // What was made before its path became narrower is lost, and made anew.
        let mut after = None;
        while let Some(id) = self.next_flow(after) {
            after = Some(id);
            let carries = self.endpoint.size(id).filter(|carries| *carries >= size);
            if carries.is_some() && self.endpoint.address(id) == Some(address) {
                self.narrow(now, id);
                // There is nothing shorter to send to it; the others go on.
                if self.endpoint.size(id) == carries {
                    self.note_trouble(io::Error::other(UdpError::TooLong { address, size }));
                    if let Some(flow) = self.flows.get_mut(&id) {
                        flow.connection.abort();
                    }
                }
            }
        }
        Ok(())
    }
}
