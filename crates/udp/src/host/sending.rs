//! Send path of a [`UdpHost`]: connection by connection, into batches of equal destination, size
//! and marks.

use std::io;

use ccplane_qdisc::marking;
use ccplane_units::Time;
use nix::errno::Errno;

use super::UdpHost;
use crate::batch::GsoBatch;
use crate::endpoint::Endpoint;
use crate::error::UdpError;
use crate::flow::UdpFlow;
use crate::socket::DatagramMarks;
use ccplane_transport::{Segment, SegmentKind, SideData};

/// Segments sent per connection before the socket is read again: a few of the kernel's batches.
/// With a larger burst ACKs wait longer; with a smaller one each turn of the loop does little.
pub(super) const BURST_SEGMENTS: usize = 256;

impl UdpHost {
    /// Sends what the connections have to send. Returns true if there was anything.
    pub(super) fn transmit(&mut self) -> Result<bool, UdpError> {
        let mut busy = false;
        if self.blocked {
            self.flush()?;
        }
        let mut after = None;
        while let Some(id) = self.next_flow(after) {
            after = Some(id);
            busy |= self.transmit_flow(id)?;
        }
        busy |= self.transmit_low()?;
        if !self.blocked {
            self.flush()?;
        }
        Ok(busy)
    }

    pub(super) fn next_flow(&self, after: Option<u64>) -> Option<u64> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.flows
            .range((from, Unbounded))
            .next()
            .map(|(id, _)| *id)
    }

    /// Sends the class 0 data of a connection. Returns true if there was any.
    fn transmit_flow(&mut self, id: u64) -> Result<bool, UdpError> {
        let now = self.clock.now();
        let mut sent = 0;
        while sent < BURST_SEGMENTS && !self.blocked && self.transmit_one(id, 0, now)? {
            sent += 1;
        }
        Ok(sent > 0)
    }

    /// Adds the connection's next segment of a class to the batch, if there is one; sends the batch
    /// first if the segment does not belong to it. The connection is looked up only once: a second
    /// lookup costs 20 instructions per packet.
    #[inline]
    pub(super) fn transmit_one(&mut self, id: u64, class: u8, now: Time) -> Result<bool, UdpError> {
        let Some(flow) = self.flows.get_mut(&id) else {
            return Ok(false);
        };
        let mut side = SideData::default();
        let Some(segment) = flow.transmit(now, class, &mut side) else {
            return Ok(false);
        };
        let marks = DatagramMarks {
            ecn: segment.ecn as u8,
            dscp: match segment.class {
                0 => self.dscp,
                low => marking::dscp_of(low),
            },
        };
        let mut said = None;
        if let Some(stamps) = &mut self.stamps
            && segment.kind == SegmentKind::Data
            && segment.has_side()
            && side.stamped
            && self.socket.stamps_departures()
        {
            side.t1 = stamps.departures.unique_time(side.t1);
            said = Some(side.t1);
        }
        if segment.kind == SegmentKind::Open && segment.transmission > 1 {
            self.resend_hello(id, &segment, &mut side, marks)?;
            return Ok(true);
        }
        if segment.has_flag(Segment::PROOF_FLAG) {
            return self.transmit_proof(id, &segment, &mut side, (marks, said));
        }
        if segment.kind == SegmentKind::Data && u64::from(segment.length) > flow.connection.mss() {
            self.transmit_parts(id, &segment, &side, marks)?;
            return Ok(true);
        }
        if segment.has_flag(Segment::PROBE_FLAG) {
            self.flush()?;
            self.send_single(id, &segment, &mut side, marks)?;
            return Ok(true);
        }
        let (batch, segment) = (&mut self.batch, (id, &segment));
        let outcome = put(
            &mut self.endpoint,
            batch,
            flow,
            segment,
            &mut side,
            (marks, said),
        );
        self.on_put(outcome)
    }

    /// Sends a segment that proves a client's address, after the last handshake flight if that is
    /// due.
    #[cold]
    fn transmit_proof(
        &mut self,
        id: u64,
        segment: &Segment,
        side: &mut SideData,
        marks: (DatagramMarks, Option<Time>),
    ) -> Result<bool, UdpError> {
        self.end_handshake(id, segment, marks.0)?;
        if self.blocked {
            // The segment counts as lost in the network.
            return Ok(true);
        }
        let Some(flow) = self.flows.get_mut(&id) else {
            return Ok(false);
        };
        let outcome = put(
            &mut self.endpoint,
            &mut self.batch,
            flow,
            (id, segment),
            side,
            marks,
        );
        self.on_put(outcome)
    }

    /// Sends the batch if a segment did not belong to it. Returns false if the connection's keys
    /// are worn out.
    #[inline]
    pub(super) fn on_put(&mut self, outcome: PutOutcome) -> Result<bool, UdpError> {
        match outcome {
            PutOutcome::Added => Ok(true),
            PutOutcome::Full => self.flush().map(|()| true),
            PutOutcome::KeysExhausted => Ok(false),
        }
    }

    /// Sends the last flight of a client's handshake, if it is due.
    fn end_handshake(
        &mut self,
        id: u64,
        segment: &Segment,
        marks: DatagramMarks,
    ) -> Result<(), UdpError> {
        self.endpoint.begin_flight(id, segment);
        while !self.blocked
            && let Some((length, to)) = self.endpoint.write_flight(id, self.batch.buffer())
        {
            if !self.batch.add(length, to, marks, None) {
                self.flush()?;
            }
            // The next datagram may be longer, which would not fit into the same call.
            if !self.blocked {
                self.flush()?;
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), UdpError> {
        let first = self.batch.first();
        self.blocked = false;
        let departures = self.stamps.as_mut().map(|stamps| &mut stamps.departures);
        match self.batch.send(&mut self.socket, departures) {
            Ok(()) => Ok(()),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                self.blocked = true;
                Ok(())
            }
            Err(why) if why.raw_os_error() == Some(Errno::EMSGSIZE as i32) => {
                self.too_long(first, why)
            }
            Err(why) => self.on_socket_error(why, "send"),
        }
    }
}

/// Outcome of adding a segment to the batch.
pub(super) enum PutOutcome {
    Added,
    /// The batch must be sent first.
    Full,
    /// The connection's keys are worn out.
    KeysExhausted,
}

/// Encodes a segment into the batch.
#[inline]
pub(super) fn put(
    endpoint: &mut Endpoint,
    batch: &mut GsoBatch,
    flow: &mut UdpFlow,
    (id, segment): (u64, &Segment),
    side: &mut SideData,
    (marks, said): (DatagramMarks, Option<Time>),
) -> PutOutcome {
    let prove = |side: &SideData| flow.connection.prove(segment, side);
    let fill = |out: &mut [u8]| flow.copy_payload(segment, out);
    let Some((length, to)) = endpoint.write(id, segment, side, batch.buffer(), prove, fill) else {
        if endpoint.keys_exhausted(id) {
            flow.connection.abort();
            return PutOutcome::KeysExhausted;
        }
        // Without keys the peer cannot be notified of the abort.
        let untold = segment.kind == SegmentKind::Abort;
        debug_assert!(untold, "the segment does not fit its datagram: {segment:?}");
        return PutOutcome::Added;
    };
    match batch.add(length, to, marks, said) {
        true => PutOutcome::Added,
        false => PutOutcome::Full,
    }
}
