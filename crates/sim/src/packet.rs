//! Packets on their way: 64 bytes each, in a slab, with SACK ranges and time stamps aside.

use ccplane_qdisc::Ecn;
use ccplane_transport::{Segment, Side};

use crate::bundle::Asides;
use crate::offer::Offers;
use crate::receipt::Receipts;

pub(crate) const NONE: u32 = u32::MAX;

/// A packet: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Packet {
    pub segment: Segment,
    /// The end of a flow that it is for, and the flow, by which a late packet of a flow that is
    /// gone is known.
    pub end: u32,
    pub flow: u32,
    /// The host that it is for.
    pub to: u32,
    /// By which paths are chosen.
    pub hash: u32,
    /// Its SACK ranges and time stamps, if it has any.
    pub side: u32,
    /// Size on the wire, bytes.
    pub bytes: u32,
}

/// What a packet takes in memory, bytes.
pub const PACKET_BYTES: usize = size_of::<Packet>();
const _: () = assert!(PACKET_BYTES == 64);

/// All packets that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    pub(crate) packets: Vec<Packet>,
    free: Vec<u32>,
    pub(crate) sides: Vec<Side>,
    free_sides: Vec<u32>,
    /// The side of packets without one: empty, but for the moment in which a packet with one is
    /// made.
    pub no_side: Side,
    /// What packets of flows under RCP carry.
    pub offers: Offers,
    /// What packets of bundles carry.
    pub asides: Asides,
    /// Nonces in packets of flows that prove receipt.
    pub receipts: Receipts,
    /// How many were ever made, and of those how many are no more.
    pub made: u64,
    pub gone: u64,
}

impl Packets {
    /// The place of the next packet, to be written before it is [`made`](Packets::made), and that
    /// of its side.
    #[inline(always)]
    pub fn place(&mut self) -> (u32, &mut Packet, &mut Side) {
        let id = match self.free.last() {
            Some(id) => *id,
            None => self.grow(),
        };
        (id, &mut self.packets[id as usize], &mut self.no_side)
    }

    /// The packet that was written to its [`place`](Packets::place) is one, perhaps with what was
    /// written to that of its side.
    #[inline(always)]
    pub fn made(&mut self, id: u32, with_side: bool) {
        self.free.pop();
        self.made += 1;
        if with_side {
            self.keep_side(id);
        }
    }

    /// Twice the room at every growth would leave half of it empty in a large network.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> u32 {
        if self.packets.len() == self.packets.capacity() {
            self.packets.reserve_exact(64.max(self.packets.len() / 8));
        }
        let id = self.packets.len() as u32;
        self.packets.push(Packet::default());
        self.free.push(id);
        id
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> &Packet {
        &self.packets[id as usize]
    }

    #[inline(always)]
    pub fn get_mut(&mut self, id: u32) -> &mut Packet {
        &mut self.packets[id as usize]
    }

    /// The packet is no more.
    #[inline(always)]
    pub fn drop(&mut self, id: u32) {
        self.gone += 1;
        self.offers.forget(id);
        self.asides.forget(id);
        self.free.push(id);
        let side = self.packets[id as usize].side;
        if side != NONE {
            self.free_sides.push(side);
        }
    }

    /// The side of a packet, if it has one.
    #[inline(always)]
    pub fn side(&self, side: u32) -> Option<&Side> {
        match side {
            NONE => None,
            side => self.sides.get(side as usize),
        }
    }

    pub fn mark(&mut self, id: u32) -> bool {
        let ecn = &mut self.packets[id as usize].segment.ecn;
        let capable = ecn.is_capable();
        if capable {
            *ecn = Ecn::Ce;
        }
        capable
    }

    /// How many are on their way.
    pub fn len(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    /// Bytes of memory taken.
    pub fn memory(&self) -> usize {
        self.packets.capacity() * size_of::<Packet>()
            + self.sides.capacity() * size_of::<Side>()
            + (self.free.capacity() + self.free_sides.capacity()) * 4
            + self.offers.heap_bytes()
            + self.asides.memory()
            + self.receipts.heap_bytes()
    }

    fn keep_side(&mut self, packet: u32) {
        let side = std::mem::take(&mut self.no_side);
        self.packets[packet as usize].side = match self.free_sides.pop() {
            Some(id) => {
                self.sides[id as usize] = side;
                id
            }
            None => {
                self.sides.push(side);
                (self.sides.len() - 1) as u32
            }
        };
    }
}
