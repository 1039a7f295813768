//! Proof of receipt: nonces of packets, and receivers that conceal losses. Stored apart from
//! packets and endpoints, because few simulations use them.

use std::collections::{BTreeMap, BTreeSet};

use ccplane_network::{
    NodeId,
    random::{self, Purpose},
};
use ccplane_transport::{Connection, Proof, Segment, SegmentKind, SequenceNumber};

use crate::packet::{NO_INDEX, PacketArena};
use crate::{SimError, World};

/// Nonces of all packets, and the state of receivers that conceal losses.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    /// Flows prove receipt, or hosts conceal losses.
    is_on: bool,
    /// Flows that start from now on prove receipt.
    is_required: bool,
    /// Hosts whose receivers conceal losses.
    concealing_hosts: BTreeSet<u32>,
    /// Indexed by packet; empty if no flow proves receipt.
    proofs: Vec<Proof>,
    /// Per endpoint of a concealing host: its flow, and the number after the furthest segment that
    /// arrived.
    furthest: BTreeMap<u32, (u32, SequenceNumber)>,
}

impl Receipts {
    /// Returns true if packets carry nonces or receivers conceal losses.
    #[inline(always)]
    pub fn is_enabled(&self) -> bool {
        self.is_on
    }

    /// Returns the nonces of a packet; zero if no flow proves receipt.
    #[inline]
    pub fn proof(&self, packet: u32) -> Proof {
        match self.proofs.get(packet as usize) {
            Some(proof) => *proof,
            None => Proof::default(),
        }
    }

    /// Initialises the state of an endpoint. Its index may have belonged to an earlier flow.
    pub fn start_end(&mut self, e: u32, flow: u32, host: u32, first: SequenceNumber) {
        self.furthest.remove(&e);
        if self.concealing_hosts.contains(&host) {
            self.furthest.insert(e, (flow, first));
        }
    }

    pub fn heap_bytes(&self) -> usize {
        self.proofs.capacity() * size_of::<Proof>()
            + self.furthest.len() * size_of::<(u32, (u32, SequenceNumber))>()
    }
}

impl PacketArena {
    /// Records the arrival of a segment at an endpoint that conceals losses.
    #[cold]
    #[inline(never)]
    pub fn record_arrival(&mut self, id: u32) {
        let Some(packet) = self.packets.get(id as usize) else {
            return;
        };
        if packet.segment.kind == SegmentKind::Data
            && packet.segment.class == 0
            && let Some((flow, furthest)) = self.receipts.furthest.get_mut(&packet.end)
            && *flow == packet.flow
        {
            *furthest = furthest.max(packet.segment.number.wrapping_add(1));
        }
    }

    /// Adds the nonces to a packet of an endpoint. An endpoint that conceals losses acknowledges
    /// everything up to the furthest segment and reports no SACK ranges.
    #[cold]
    #[inline(never)]
    pub fn attach_proof(&mut self, id: u32, e: u32, connection: &Connection) {
        let Some(packet) = self.packets.get_mut(id as usize) else {
            return;
        };
        let segment = &mut packet.segment;
        let side = match packet.side {
            NO_INDEX => &mut self.no_side,
            side => &mut self.sides[side as usize],
        };
        if self.receipts.is_required {
            let at = id as usize;
            if self.receipts.proofs.len() <= at {
                self.receipts.proofs.resize(at + 1, Proof::default());
            }
            self.receipts.proofs[at] = connection.prove(segment, side);
        }
        if let Some((_, furthest)) = self.receipts.furthest.get(&e)
            && matches!(segment.kind, SegmentKind::Ack | SegmentKind::Data)
        {
            segment.ack = segment.ack.max(*furthest);
            while side.pop() {}
            if side.is_empty() {
                segment.flags &= !Segment::SIDE_FLAG;
            }
        }
    }
}

impl World {
    /// Requires receivers of flows that start from now on to prove receipt, as the transport over
    /// UDP does.
    pub fn require_proof(&mut self) {
        let receipts = &mut self.packets.receipts;
        (receipts.is_required, receipts.is_on) = (true, true);
    }

    /// Makes receivers at this host conceal losses in flows that start from now on: they
    /// acknowledge everything up to the furthest segment received.
    pub fn conceal_losses(&mut self, host: NodeId) -> Result<(), SimError> {
        let host = self.host_index(host)?;
        self.packets.receipts.concealing_hosts.insert(host);
        self.packets.receipts.is_on = true;
        Ok(())
    }

    /// Requires the peer of an endpoint to prove receipt, if that is enabled.
    #[inline]
    pub(crate) fn require_proof_of(&self, e: u32, flow: u32, connection: &mut Connection) {
        if self.packets.receipts.is_required {
            let word = |half: u64| {
                let half = random::mix(u64::from(e & 1) << 1 | half);
                random::seed(self.options.seed ^ half, Purpose::Nonces, flow)
            };
            let key = u128::from(word(0)) << 64 | u128::from(word(1));
            connection.require_proof(&key.to_le_bytes());
        }
    }
}
