//! Per-packet data of bundles: the packet number, or a message between the boxes. Stored apart from
//! the packets, because few simulations have bundles.

use ccplane_bundle::{Feedback, Notice};

/// Bundle data of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BundlePacketData {
    /// The packet is in no bundle.
    #[default]
    None,
    /// Data packet with its number in the bundle.
    Number { bundle: u32, number: u64 },
    /// Notice from the sendbox, which also has a number.
    Notice {
        bundle: u32,
        number: u64,
        notice: Notice,
    },
    /// Feedback from the receivebox; `place` is its index in [`BundlePacketTable::feedback`].
    Feedback { bundle: u32, index: u32 },
}

/// Bundle data of all packets, indexed by packet.
#[derive(Debug, Default)]
pub(crate) struct BundlePacketTable {
    data: Vec<BundlePacketData>,
    /// Feedback in flight, and free slots.
    feedback: Vec<Option<Feedback>>,
    free: Vec<u32>,
}

impl BundlePacketTable {
    #[inline(always)]
    pub fn get(&self, packet: u32) -> BundlePacketData {
        self.data.get(packet as usize).copied().unwrap_or_default()
    }

    pub fn set(&mut self, packet: u32, aside: BundlePacketData) {
        let at = packet as usize;
        if self.data.len() <= at {
            self.data.resize(at + 1, BundlePacketData::None);
        }
        self.data[at] = aside;
    }

    /// Attaches feedback to a packet.
    pub fn attach_feedback(&mut self, packet: u32, bundle: u32, feedback: Feedback) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.feedback.push(None);
            (self.feedback.len() - 1) as u32
        });
        self.feedback[place as usize] = Some(feedback);
        self.set(
            packet,
            BundlePacketData::Feedback {
                bundle,
                index: place,
            },
        );
    }

    /// Returns the feedback in this slot.
    pub fn feedback_at(&mut self, place: u32) -> Option<Feedback> {
        self.feedback.get(place as usize).copied().flatten()
    }

    /// Clears the data of a packet that left the network.
    #[inline(always)]
    pub fn clear(&mut self, packet: u32) {
        if let Some(aside) = self.data.get_mut(packet as usize)
            && let BundlePacketData::Feedback { index: place, .. } = std::mem::take(aside)
        {
            self.feedback[place as usize] = None;
            self.free.push(place);
        }
    }

    pub fn memory(&self) -> usize {
        self.data.capacity() * size_of::<BundlePacketData>()
            + self.feedback.capacity() * size_of::<Option<Feedback>>()
            + self.free.capacity() * 4
    }
}
