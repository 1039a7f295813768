//! Packets on their way: 64 bytes each, in a slab, with SACK ranges and time stamps aside.

use ccplane_qdisc::Ecn;
use ccplane_transport::{Segment, Side};

pub(crate) const NONE: u32 = u32::MAX;

/// A packet: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Packet {
    pub segment: Segment,
    /// The end of a flow that it is for, and the flow, by which a late packet of a flow that is gone is known.
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
    packets: Vec<Packet>,
    free: Vec<u32>,
    sides: Vec<Side>,
    free_sides: Vec<u32>,
    /// How many were ever made, and of those how many are no more.
    pub made: u64,
    pub gone: u64,
}

impl Packets {
    #[inline(always)]
    pub fn add(&mut self, mut packet: Packet, side: &Side) -> u32 {
        self.made += 1;
        packet.side = match packet.segment.has_side() {
            true => self.add_side(side),
            false => NONE,
        };
        match self.free.pop() {
            Some(id) => {
                self.packets[id as usize] = packet;
                id
            }
            None => self.add_new(packet),
        }
    }

    /// Twice the room at every growth would leave half of it empty in a large network.
    #[cold]
    #[inline(never)]
    fn add_new(&mut self, packet: Packet) -> u32 {
        if self.packets.len() == self.packets.capacity() {
            self.packets.reserve_exact(64.max(self.packets.len() / 8));
        }
        self.packets.push(packet);
        (self.packets.len() - 1) as u32
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> &Packet {
        &self.packets[id as usize]
    }

    #[inline(always)]
    pub fn get_mut(&mut self, id: u32) -> &mut Packet {
        &mut self.packets[id as usize]
    }

    /// The packet is no more; what it was.
    #[inline(always)]
    pub fn remove(&mut self, id: u32) -> Packet {
        self.gone += 1;
        self.free.push(id);
        self.packets[id as usize]
    }

    /// The side of a packet.
    pub fn side(&self, side: u32) -> Option<&Side> {
        self.sides.get(side as usize)
    }

    /// Takes the side of a packet that was removed.
    #[inline]
    pub fn take_side(&mut self, side: u32) -> Side {
        self.free_sides.push(side);
        self.sides[side as usize]
    }

    /// The packet is dropped.
    pub fn drop(&mut self, id: u32) -> Packet {
        let packet = self.remove(id);
        if packet.side != NONE {
            self.free_sides.push(packet.side);
        }
        packet
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
    }

    fn add_side(&mut self, side: &Side) -> u32 {
        match self.free_sides.pop() {
            Some(id) => {
                self.sides[id as usize] = *side;
                id
            }
            None => {
                self.sides.push(*side);
                (self.sides.len() - 1) as u32
            }
        }
    }
}
