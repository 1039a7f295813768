//! Which flows live: by datapath and number, in constant time and without allocation once they are open.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A datapath, numbered by the driver of its link. A number is not used again while the agent runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatapathId(pub u32);

/// A flow of a datapath.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// Its datapath.
    pub datapath: DatapathId,
    /// The number that the datapath allotted.
    pub flow: u64,
}

/// A flow as the agent knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub id: FlowId,
    /// Index of its algorithm.
    pub algorithm: u16,
    /// Where the algorithm keeps its state.
    pub slot: u32,
    /// Index of its program among the algorithm's; `None` before the first is set.
    pub program: Option<u16>,
    /// The one before, which it still runs if the datapath refuses the new one.
    pub previous: Option<u16>,
}

/// All live flows. An index stays valid until its flow is removed.
#[derive(Default)]
pub(crate) struct Flows {
    index: HashMap<FlowId, u32, BuildHasherDefault<Mix>>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Flows {
    pub fn insert(&mut self, entry: Entry) -> u32 {
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = Some(entry);
                at
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        };
        self.index.insert(entry.id, at);
        at
    }

    pub fn find(&self, id: FlowId) -> Option<u32> {
        self.index.get(&id).copied()
    }

    pub fn get(&self, at: u32) -> Option<&Entry> {
        self.entries.get(at as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.entries.get_mut(at as usize)?.as_mut()
    }

    pub fn remove(&mut self, id: FlowId) -> Option<Entry> {
        let at = self.index.remove(&id)?;
        self.free.push(at);
        self.entries.get_mut(at as usize)?.take()
    }

    /// Those of one datapath, in order of their numbers, so that a run is the same every time.
    pub fn of(&self, datapath: DatapathId) -> Vec<FlowId> {
        let mut ids: Vec<FlowId> = self
            .index
            .keys()
            .filter(|id| id.datapath == datapath)
            .copied()
            .collect();
        ids.sort_unstable();
        ids
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }
}

/// Multiply and rotate each word. Flow numbers come from a datapath that the host's owner chose, not from the network,
/// so that nobody gains from collisions.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}
