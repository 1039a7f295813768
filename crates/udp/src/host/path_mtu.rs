//! Path MTU of a [`UdpHost`]'s connections: found by hellos of all sizes, probed again while a
//! connection is open ([`PmtuSearch`]), and reduced after a black hole.

use std::io;
use std::net::SocketAddr;

use ccplane_units::{Duration, Time};

use super::UdpHost;
use super::sending::put;
use crate::codec::PART_FIELD_BYTES;
use crate::endpoint::{hello_sizes, mss};
use crate::error::UdpError;
use crate::pmtu_search::PmtuSearch;
use crate::reassembly::parts;
use crate::socket::DatagramMarks;
use ccplane_transport::{ConnectionState, Proof, Segment, SegmentKind, SegmentPart, SideData};

impl UdpHost {
    /// Sets the pause of the path MTU search after three unanswered probes, or after a handshake
    /// that found a reduced size; [`RAISE`](crate::PMTU_RAISE_TIMER) by default. Applies to
    /// connections opened later; shorter pauses are for tests.
    pub fn set_raise_timer(&mut self, raise: Duration) {
        self.raise_timer = raise;
    }

    /// Returns the largest packet that the path of a connection carries, bytes including the IP
    /// header.
    pub fn packet_bytes(&self, id: u64) -> Option<usize> {
        let headers = if self.socket.local().is_ipv4() {
            28
        } else {
            48
        };
        Some(headers + self.endpoint.size(id)?)
    }

    /// Sends an unanswered hello again in every size that the path may carry.
    pub(super) fn resend_hello(
        &mut self,
        id: u64,
        hello: &Segment,
        side: &mut SideData,
        marks: DatagramMarks,
    ) -> Result<(), UdpError> {
        let mut hello = *hello;
        let full = self.endpoint.size(id).unwrap_or(self.datagram_bytes);
        for step in 1..=hello_sizes(full).count() {
            // The batch accepts nothing while it is blocked: the rest counts as lost in the
            // network.
            if self.blocked {
                return Ok(());
            }
            hello.transmission = step as u8;
            let written = self.endpoint.write(
                id,
                &hello,
                side,
                self.batch.buffer(),
                |_| Proof::default(),
                |_| (),
            );
            if let Some((length, to)) = written
                && !self.batch.add(length, to, marks, None)
            {
                self.flush()?;
            }
            // Each hello is a batch of its own, so that one that the device rejects does not affect
            // the others.
            self.flush()?;
        }
        Ok(())
    }

    /// Sends due probes, and starts the search for newly opened connections.
    #[cold]
    pub(super) fn search_due_paths(&mut self, now: Time) -> Result<(), UdpError> {
        let mut after = None;
        while let Some(id) = self.next_flow(after) {
            after = Some(id);
            let Some(flow) = self.flows.get_mut(&id) else {
                continue;
            };
            if flow.connection.state() != ConnectionState::Open {
                continue;
            }
            let known = self.endpoint.size(id).zip(self.endpoint.size_max(id));
            let (size, most) = known.unwrap_or((self.datagram_bytes, self.datagram_bytes));
            let raise = self.raise_timer;
            let path = flow
                .path
                .get_or_insert_with(|| PmtuSearch::new(now, size, most, raise));
            // With a full send buffer the probe would be lost without any information about the
            // path.
            if self.blocked {
                path.postpone(now);
            } else if let Some(size) = path.probe(now, flow.connection.srtt()) {
                self.send_probe(id, size)?;
            }
        }
        Ok(())
    }

    /// Sends a probe of `size` bytes in a batch of its own.
    fn send_probe(&mut self, id: u64, size: usize) -> Result<(), UdpError> {
        self.flush()?;
        self.probing = Some(id);
        let sent = self.send_path_segment(id, SegmentKind::PathProbe, size);
        self.probing = None;
        sent
    }

    /// Answers a probe of `size` bytes from the peer.
    #[cold]
    pub(super) fn answer_probe(&mut self, id: u64, size: usize) {
        if let Err(why) = self.send_path_segment(id, SegmentKind::PathReply, size) {
            self.pending_error.get_or_insert(why);
        }
    }

    fn send_path_segment(
        &mut self,
        id: u64,
        kind: SegmentKind,
        size: usize,
    ) -> Result<(), UdpError> {
        let mut segment = Segment::default();
        (segment.kind, segment.length) = (kind, u16::try_from(size).unwrap_or(u16::MAX));
        let marks = DatagramMarks {
            ecn: 0,
            dscp: self.dscp,
        };
        self.send_single(id, &segment, &mut SideData::default(), marks)
    }

    /// Sends a segment without data in a batch of its own. A virtual network passes or drops a
    /// batch as a whole, and other datagrams in it may be too long for the path. With a full send
    /// buffer the segment counts as lost in the network.
    #[cold]
    pub(super) fn send_single(
        &mut self,
        id: u64,
        segment: &Segment,
        side: &mut SideData,
        marks: DatagramMarks,
    ) -> Result<(), UdpError> {
        if self.blocked {
            return Ok(());
        }
        let connection = self.flows.get(&id).map(|flow| &flow.connection);
        let prove = |side: &SideData| {
            connection.map_or(Proof::default(), |connection| {
                connection.prove(segment, side)
            })
        };
        let written = self
            .endpoint
            .write(id, segment, side, self.batch.buffer(), prove, |_| ());
        if let Some((length, to)) = written
            && !self.batch.add(length, to, marks, None)
        {
            self.flush()?;
        }
        self.flush()
    }

    /// Handles the answer to a probe of `size` bytes.
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
            self.apply_path_mtu(id);
        }
    }

    /// Reduces the datagram size after full datagrams have stopped arriving.
    #[cold]
    pub(super) fn on_black_hole(&mut self, now: Time, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if flow
            .path
            .as_mut()
            .is_some_and(|path| path.on_black_hole(now))
        {
            tracing::info!("full packets are lost; sending shorter packets");
            self.apply_path_mtu(id);
        }
    }

    /// Applies the current path MTU to datagrams and segments.
    fn apply_path_mtu(&mut self, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let Some(size) = flow.path.as_ref().map(PmtuSearch::size) else {
            return;
        };
        self.endpoint.set_size(id, size);
        let mss = mss(size, self.sealed, self.config.stamps);
        flow.connection.set_mss(mss);
    }

    /// Retransmits a segment that was cut for a larger path MTU, in parts. The last part carries
    /// the side data and FIN.
    #[cold]
    pub(super) fn transmit_parts(
        &mut self,
        id: u64,
        segment: &Segment,
        side: &SideData,
        marks: DatagramMarks,
    ) -> Result<(), UdpError> {
        let Some(flow) = self.flows.get(&id) else {
            return Ok(());
        };
        let step = (flow.connection.mss() as u16).saturating_sub(PART_FIELD_BYTES as u16);
        for (begin, end) in parts(segment.length, step) {
            // The batch accepts nothing while it is blocked: the rest counts as lost in the
            // network.
            if self.blocked {
                return Ok(());
            }
            let (mut segment, mut side) = (*segment, *side);
            if end < segment.length {
                side = SideData::default();
                segment.flags &= !Segment::FIN_FLAG;
            }
            side.part = SegmentPart {
                begin,
                whole: segment.length,
            };
            segment.flags |= Segment::SIDE_FLAG;
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
            if !self.on_put(outcome)? {
                break;
            }
        }
        Ok(())
    }

    /// Handles `EMSGSIZE`: a datagram is too long for this host's own link.
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
        // The hello search finds a size that the link takes.
        if self
            .flows
            .values()
            .any(|flow| flow.connection.state() == ConnectionState::Opening)
        {
            self.record_error(why);
            return Ok(());
        }
        let Some((address, size)) = first else {
            return Ok(());
        };
        // Datagrams built before the size was reduced are lost and retransmitted.
        let mut after = None;
        while let Some(id) = self.next_flow(after) {
            after = Some(id);
            let carries = self.endpoint.size(id).filter(|carries| *carries >= size);
            if carries.is_some() && self.endpoint.address(id) == Some(address) {
                self.on_black_hole(now, id);
                // There is no smaller size: only this connection fails.
                if self.endpoint.size(id) == carries {
                    self.record_error(io::Error::other(UdpError::TooLong { address, size }));
                    if let Some(flow) = self.flows.get_mut(&id) {
                        flow.connection.abort();
                    }
                }
            }
        }
        Ok(())
    }
}
