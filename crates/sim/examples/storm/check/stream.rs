//! Invariant of the byte stream: the data that a receiver reports is the data that arrived at its
//! host, from offset 0 without a gap, a duplicate or a reordering.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccplane_sim::{LinkStep, Network, NodeId, PacketEvent, Tracer};
use ccplane_transport::SegmentKind;
use ccplane_units::Time;

use super::Violation;

/// Packets of every flow as seen at their sending and receiving hosts.
#[derive(Clone, Debug)]
pub struct Streams(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
pub struct Inner {
    /// Source and destination node of each link.
    links: Vec<(NodeId, NodeId)>,
    pub flows: Vec<Stream>,
    pub wrong: Option<Violation>,
}

#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Offset and length of each data segment, by packet number.
    segments: BTreeMap<u32, (u64, u16)>,
    /// Data segments sent, including retransmissions.
    pub sent: u64,
    /// Contiguous bytes received, and ranges received beyond them.
    pub whole: u64,
    beyond: BTreeMap<u64, u64>,
    /// Arrival time of the latest data.
    pub latest: Time,
}

impl Streams {
    pub fn new(network: &Network, flows: usize) -> Streams {
        let links = network
            .links()
            .filter_map(|link| network.endpoints(link))
            .collect();
        Streams(Arc::new(Mutex::new(Inner {
            links,
            flows: vec![Stream::default(); flows],
            wrong: None,
        })))
    }

    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracer for Streams {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        if seen.backward || seen.segment.kind != SegmentKind::Data {
            return;
        }
        let mut inner = self.inner();
        let Some((from, to)) = inner.links.get(seen.link.index()).copied() else {
            return;
        };
        let Some(stream) = seen.flow.and_then(|flow| inner.flows.get_mut(flow.index())) else {
            return;
        };
        let (number, place) = (
            seen.segment.number.0,
            (seen.segment.offset(), seen.segment.length),
        );
        if from == seen.from && seen.step == LinkStep::Queued {
            stream.sent += 1;
            let first = *stream.segments.entry(number).or_insert(place);
            if first != place {
                let wrong = format!(
                    "segment {number} was {first:?} (offset, length), but is now {place:?}"
                );
                inner.wrong.get_or_insert(wrong);
            }
        } else if to == seen.to && seen.step == LinkStep::Arrived {
            stream.latest = now;
            stream.arrive(place.0, place.0 + u64::from(place.1));
        }
    }
}

impl Stream {
    /// Returns the number of distinct segments sent.
    pub fn segments(&self) -> u64 {
        self.segments.len() as u64
    }

    fn arrive(&mut self, start: u64, end: u64) {
        if start > self.whole {
            let known = self.beyond.entry(start).or_insert(end);
            *known = end.max(*known);
            return;
        }
        self.whole = self.whole.max(end);
        while let Some(first) = self
            .beyond
            .first_entry()
            .filter(|first| *first.key() <= self.whole)
        {
            self.whole = self.whole.max(first.remove());
        }
    }

    /// Compares the receiver's count of received bytes and the sender's of acknowledged bytes with
    /// the observations.
    pub fn check(&self, received: u64, acked: u64) -> Result<(), Violation> {
        if received != self.whole {
            return Err(format!(
                "{received} bytes received in order, but {} arrived",
                self.whole
            ));
        }
        if acked > received {
            return Err(format!(
                "{acked} bytes acknowledged, but {received} received"
            ));
        }
        Ok(())
    }
}
