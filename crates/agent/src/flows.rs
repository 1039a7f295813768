//! Live flows by datapath and number.

use std::collections::BTreeMap;

/// Identifier of a datapath, assigned by the driver of its link. A freed identifier is reused after
/// all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatapathId(pub u32);

/// Identifier of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// Datapath of the flow.
    pub datapath: DatapathId,
    /// Number assigned by the datapath.
    pub flow: u64,
}

/// The agent's entry of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowEntry {
    pub id: FlowId,
    pub algorithm: u16,
    /// Slot of the algorithm's state.
    pub slot: u32,
    /// Index of its program in the algorithm's list; `None` before the first is set.
    pub program: Option<u16>,
    /// The previous program, which the flow still runs if the datapath refuses the new one.
    pub previous: Option<u16>,
}

/// Indices of flows by number. A datapath chooses the numbers of its flows, so this is a tree: no
/// choice of numbers makes an operation longer than the depth of the tree, and the order is the
/// same in every run.
type FlowIndices = BTreeMap<u64, u32>;

/// All live flows. An index stays valid until its flow is removed.
#[derive(Default)]
pub(crate) struct Flows {
    /// Per datapath, so that the flows of one datapath do not slow down operations of another.
    live: BTreeMap<DatapathId, FlowIndices>,
    /// Flows of datapaths that are gone or restarted. They are closed a few at a time.
    retired: BTreeMap<DatapathId, FlowIndices>,
    entries: Vec<Option<FlowEntry>>,
    free: Vec<u32>,
    count: usize,
}

impl Flows {
    pub fn insert(&mut self, entry: FlowEntry) -> u32 {
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
        let numbers = self.live.entry(entry.id.datapath).or_default();
        if numbers.insert(entry.id.flow, at).is_none() {
            self.count += 1;
        }
        at
    }

    pub fn find(&self, id: FlowId) -> Option<u32> {
        self.live.get(&id.datapath)?.get(&id.flow).copied()
    }

    pub fn get(&self, at: u32) -> Option<&FlowEntry> {
        self.entries.get(at as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, at: u32) -> Option<&mut FlowEntry> {
        self.entries.get_mut(at as usize)?.as_mut()
    }

    pub fn remove(&mut self, id: FlowId) -> Option<FlowEntry> {
        let at = self.live.get_mut(&id.datapath)?.remove(&id.flow)?;
        self.count -= 1;
        self.release(at)
    }

    fn release(&mut self, at: u32) -> Option<FlowEntry> {
        self.free.push(at);
        self.entries.get_mut(at as usize)?.take()
    }

    /// Retires all flows of a datapath in constant time, and returns their number. The caller
    /// closes them with [`Flows::remove_retired`] and [`Flows::next_retired`].
    pub fn retire(&mut self, datapath: DatapathId) -> usize {
        let mut fewer = self.live.remove(&datapath).unwrap_or_default();
        let retired = fewer.len();
        self.count -= retired;
        if retired == 0 {
            return 0;
        }
        let more = self.retired.entry(datapath).or_default();
        if fewer.len() > more.len() {
            std::mem::swap(&mut fewer, more);
        }
        // A reused number is no longer retired, so the two have no number in common.
        more.extend(fewer);
        retired
    }

    /// Removes a retired flow whose number is reused.
    pub fn remove_retired(&mut self, id: FlowId) -> Option<FlowEntry> {
        let numbers = self.retired.get_mut(&id.datapath)?;
        let at = numbers.remove(&id.flow)?;
        if numbers.is_empty() {
            self.retired.remove(&id.datapath);
        }
        self.release(at)
    }

    /// Removes the next retired flow, in the order of datapaths and numbers.
    pub fn next_retired(&mut self) -> Option<FlowEntry> {
        let mut first = self.retired.first_entry()?;
        let next = first.get_mut().pop_first();
        if first.get().is_empty() {
            first.remove();
        }
        self.release(next?.1)
    }

    pub fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Returns true for a datapath that opened a flow and was not retired since.
    pub fn has_datapath(&self, datapath: DatapathId) -> bool {
        self.live.contains_key(&datapath)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Number of a datapath's flows that take memory, including retired ones.
    pub fn retained(&self, datapath: DatapathId) -> usize {
        let of =
            |all: &BTreeMap<DatapathId, FlowIndices>| all.get(&datapath).map_or(0, BTreeMap::len);
        of(&self.live) + of(&self.retired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(datapath: u32, flow: u64) -> FlowEntry {
        let datapath = DatapathId(datapath);
        let id = FlowId { datapath, flow };
        FlowEntry {
            id,
            algorithm: 0,
            slot: 0,
            program: None,
            previous: None,
        }
    }

    #[test]
    fn retired_flows_leave_in_order_and_free_their_memory() {
        let mut flows = Flows::default();
        for flow in [3, 1, 2] {
            flows.insert(entry(1, flow));
            flows.insert(entry(2, flow));
        }
        assert_eq!((flows.len(), flows.retire(DatapathId(1))), (6, 3));
        assert_eq!((flows.len(), flows.retained(DatapathId(1))), (3, 3));
        // A reused number is no longer retired.
        assert!(flows.remove_retired(entry(1, 2).id).is_some());
        flows.insert(entry(1, 2));
        assert_eq!(flows.retire(DatapathId(1)), 1);
        let left: Vec<u64> = std::iter::from_fn(|| Some(flows.next_retired()?.id.flow)).collect();
        assert_eq!(left, [1, 2, 3]);
        assert!(!flows.has_retired() && flows.len() == 3);
        assert_eq!(
            (flows.retained(DatapathId(1)), flows.retained(DatapathId(2))),
            (0, 3)
        );
        flows.insert(entry(1, 9));
        assert_eq!(flows.entries.len(), 6);
    }
}
