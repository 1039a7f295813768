//! Packets in flight: 64 bytes each, in a slab, with SACK ranges and timestamps stored separately.

use ccplane_qdisc::Ecn;
use ccplane_transport::{Segment, SideData};

use crate::bundle::BundlePacketTable;
use crate::rcp_header::RcpHeaders;
use crate::receipt::Receipts;

pub(crate) const NO_INDEX: u32 = u32::MAX;

/// Packet of one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct SimPacket {
    pub segment: Segment,
    /// Destination endpoint, and the flow. The flow identifies late packets whose flow has ended.
    pub end: u32,
    pub flow: u32,
    /// Destination host.
    pub to: u32,
    /// Hash that selects the path.
    pub hash: u32,
    /// Index of the SACK ranges and timestamps, if any.
    pub side: u32,
    /// Size on the wire, bytes.
    pub bytes: u32,
}

/// Memory of a packet, bytes.
pub const PACKET_BYTES: usize = size_of::<SimPacket>();
const _: () = assert!(PACKET_BYTES == 64);

/// All packets in flight.
#[derive(Debug, Default)]
pub(crate) struct PacketArena {
    pub(crate) packets: Vec<SimPacket>,
    free: Vec<u32>,
    pub(crate) sides: Vec<SideData>,
    free_sides: Vec<u32>,
    /// Empty side, for packets without one. It also holds the side of a packet under construction.
    pub no_side: SideData,
    /// RCP headers.
    pub rcp_headers: RcpHeaders,
    /// Bundle data of packets.
    pub bundle_data: BundlePacketTable,
    /// Nonces of flows that prove receipt.
    pub receipts: Receipts,
    /// Number of packets ever created, and of packets freed.
    pub created: u64,
    pub freed: u64,
}

impl PacketArena {
    /// Returns the slot of the next packet and of its side, to be filled before
    /// [`made`](PacketArena::made) allocates them.
    #[inline(always)]
    pub fn next_slot(&mut self) -> (u32, &mut SimPacket, &mut SideData) {
        let id = match self.free.last() {
            Some(id) => *id,
            None => self.grow(),
        };
        (id, &mut self.packets[id as usize], &mut self.no_side)
    }

    /// Allocates the packet that was written to its [`place`](PacketArena::place), with its side if
    /// `with_side`.
    #[inline(always)]
    pub fn allocate(&mut self, id: u32, with_side: bool) {
        self.free.pop();
        self.created += 1;
        if with_side {
            self.store_side(id);
        }
    }

    /// Grows by an eighth: doubling would leave up to half of the memory of a large network unused.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> u32 {
        if self.packets.len() == self.packets.capacity() {
            self.packets.reserve_exact(64.max(self.packets.len() / 8));
        }
        let id = self.packets.len() as u32;
        self.packets.push(SimPacket::default());
        self.free.push(id);
        id
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> &SimPacket {
        &self.packets[id as usize]
    }

    #[inline(always)]
    pub fn get_mut(&mut self, id: u32) -> &mut SimPacket {
        &mut self.packets[id as usize]
    }

    /// Frees a packet.
    #[inline(always)]
    pub fn release(&mut self, id: u32) {
        self.freed += 1;
        self.rcp_headers.clear(id);
        self.bundle_data.clear(id);
        self.free.push(id);
        let side = self.packets[id as usize].side;
        if side != NO_INDEX {
            self.free_sides.push(side);
        }
    }

    /// Returns the side of a packet, if it has one.
    #[inline(always)]
    pub fn side(&self, side: u32) -> Option<&SideData> {
        match side {
            NO_INDEX => None,
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

    /// Returns the number of packets in flight.
    pub fn len(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    /// Returns the memory used, bytes.
    pub fn memory(&self) -> usize {
        self.packets.capacity() * size_of::<SimPacket>()
            + self.sides.capacity() * size_of::<SideData>()
            + (self.free.capacity() + self.free_sides.capacity()) * 4
            + self.rcp_headers.heap_bytes()
            + self.bundle_data.memory()
            + self.receipts.heap_bytes()
    }

    fn store_side(&mut self, packet: u32) {
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
