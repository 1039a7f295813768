//! What packets of bundles carry beside themselves: their number, or a message between the boxes.
//! Few simulations have bundles, so it is kept apart from the packets.

use ccplane_bundle::{Feedback, Notice};

/// What one packet carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Aside {
    /// Nothing: it is in no bundle now.
    #[default]
    Nothing,
    /// It is the packet of this number in a bundle.
    Number { bundle: u32, number: u64 },
    /// It is a bundle's own, with what the sendbox says, under a number too.
    Notice {
        bundle: u32,
        number: u64,
        notice: Notice,
    },
    /// It is from a receivebox; which feedback, of those that are under way.
    Feedback { bundle: u32, place: u32 },
}

/// What all packets carry, by their places.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    of: Vec<Aside>,
    /// Feedback under way, and places of it that are free.
    feedback: Vec<Option<Feedback>>,
    free: Vec<u32>,
}

impl Asides {
    #[inline(always)]
    pub fn get(&self, packet: u32) -> Aside {
        self.of.get(packet as usize).copied().unwrap_or_default()
    }

    pub fn set(&mut self, packet: u32, aside: Aside) {
        let at = packet as usize;
        if self.of.len() <= at {
            self.of.resize(at + 1, Aside::Nothing);
        }
        self.of[at] = aside;
    }

    /// A packet carries this feedback from now on.
    pub fn send(&mut self, packet: u32, bundle: u32, feedback: Feedback) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.feedback.push(None);
            (self.feedback.len() - 1) as u32
        });
        self.feedback[place as usize] = Some(feedback);
        self.set(packet, Aside::Feedback { bundle, place });
    }

    /// The feedback that a packet carried there.
    pub fn receive(&mut self, place: u32) -> Option<Feedback> {
        self.feedback.get(place as usize).copied().flatten()
    }

    /// The packet is no more.
    #[inline(always)]
    pub fn forget(&mut self, packet: u32) {
        if let Some(aside) = self.of.get_mut(packet as usize)
            && let Aside::Feedback { place, .. } = std::mem::take(aside)
        {
            self.feedback[place as usize] = None;
            self.free.push(place);
        }
    }

    pub fn memory(&self) -> usize {
        self.of.capacity() * size_of::<Aside>()
            + self.feedback.capacity() * size_of::<Option<Feedback>>()
            + self.free.capacity() * 4
    }
}
