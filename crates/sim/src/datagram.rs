//! Datagrams: cross traffic without connections.

use std::collections::{BTreeMap, VecDeque};

use ccplane_network::{
    NodeId,
    random::{self, Purpose},
};
use ccplane_transport::{CLASS_COUNT, Segment, SegmentKind, SequenceNumber};
use ccplane_units::{Duration, Time};

use crate::app::AppId;
use crate::packet::{NO_INDEX, SimPacket};
use crate::{SimError, World, event::EventKind};

/// Counters of an application's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramStats {
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Sum of the one-way delays.
    pub delay_sum: Duration,
}

/// Datagrams of all applications. `waiting` holds, per host, the datagrams created at the current
/// time, which are sent at its end.
#[derive(Debug, Default)]
pub(crate) struct DatagramTable {
    stats: Vec<DatagramStats>,
    waiting: BTreeMap<u32, VecDeque<SimPacket>>,
}

/// The send time is stored in the 48-bit offset field of the segment.
const SEND_TIME_MASK: u64 = (1 << 48) - 1;

impl World {
    /// Sends a datagram of `bytes` on the wire in this priority band. It goes to the host's link
    /// immediately, ahead of queued segments.
    pub fn send_datagram(
        &mut self,
        app: AppId,
        from: NodeId,
        to: NodeId,
        bytes: u32,
        band: u8,
    ) -> Result<(), SimError> {
        let (from, to) = (self.host_index(from)?, self.host_index(to)?);
        let index = app.0 as usize;
        if self.datagrams.stats.len() <= index {
            self.datagrams
                .stats
                .resize(index + 1, DatagramStats::default());
        }
        let stats = &mut self.datagrams.stats[index];
        let mut segment = Segment::default();
        segment.kind = SegmentKind::Data;
        segment.band = band.min(CLASS_COUNT - 1);
        segment.number = SequenceNumber(stats.sent as u32);
        // Source: a datagram has no flow to derive it from.
        segment.echo = SequenceNumber(from);
        segment.set_offset(self.now.as_nanos() & SEND_TIME_MASK);
        stats.sent += 1;
        let pair = random::mix(u64::from(from) << 32 | u64::from(to)) as u32;
        let waiting = self.datagrams.waiting.entry(from).or_default();
        waiting.push_back(SimPacket {
            segment,
            end: NO_INDEX,
            flow: app.0,
            to,
            hash: random::seed(self.options.seed, Purpose::Paths, pair ^ app.0) as u32,
            side: NO_INDEX,
            bytes,
        });
        self.events.push(self.now, EventKind::Datagram, from);
        Ok(())
    }

    /// Returns the counters of an application's datagrams.
    pub fn datagram_stats(&self, app: AppId) -> DatagramStats {
        self.datagrams
            .stats
            .get(app.0 as usize)
            .copied()
            .unwrap_or_default()
    }
}

impl DatagramTable {
    /// Returns the next datagram of a host, in order of creation.
    pub fn pop_next(&mut self, host: u32) -> Option<SimPacket> {
        self.waiting.get_mut(&host)?.pop_front()
    }

    /// Records the arrival of a datagram.
    pub fn record_arrival(&mut self, now: Time, packet: &SimPacket) {
        if let Some(stats) = self.stats.get_mut(packet.flow as usize) {
            stats.received += 1;
            stats.received_bytes += u64::from(packet.bytes);
            let taken = now.as_nanos().wrapping_sub(packet.segment.offset()) & SEND_TIME_MASK;
            stats.delay_sum = stats.delay_sum + Duration::from_nanos(taken);
        }
    }
}
