//! Order of a packet log: within each flow, packets are in the order of their arrival.
//!
//! A full queue drops a packet long before the packets ahead of it leave. Logged at that moment,
//! the drop would make them look out of order. It is held until they have left, or a packet behind
//! it leaves.

use std::collections::{HashMap, VecDeque};

use ccplane_units::Time;

use super::LogEntry;

/// Packets in a queue, per flow in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct FlowOrder {
    flows: HashMap<u32, VecDeque<CaptureEntry>>,
}

#[derive(Debug)]
struct CaptureEntry {
    /// Frame number, and index in the frame.
    packet: (u32, u16),
    /// Log entry, if the packet was dropped.
    dropped: Option<Box<LogEntry>>,
}

impl FlowOrder {
    /// Records the arrival of a packet at the queue.
    pub(crate) fn on_arrived(&mut self, flow: u32, packet: (u32, u16)) {
        let dropped = None;
        self.flows
            .entry(flow)
            .or_default()
            .push_back(CaptureEntry { packet, dropped });
    }

    /// Records that a packet left the queue or was dropped, and appends every entry that is due to
    /// `out`.
    pub(crate) fn on_removed(
        &mut self,
        flow: u32,
        packet: (u32, u16),
        sight: LogEntry,
        out: &mut Vec<LogEntry>,
    ) {
        let now = sight.at;
        let Some(entries) = self.flows.get_mut(&flow) else {
            out.push(sight);
            return;
        };
        let found = match sight.dropped {
            // Usually the newest packet.
            Some(_) => entries.iter().rposition(|entry| entry.packet == packet),
            None => entries.iter().position(|entry| entry.packet == packet),
        };
        match found {
            Some(index) if sight.dropped.is_some() => {
                entries[index].dropped = Some(Box::new(sight))
            }
            Some(index) => {
                entries.remove(index);
                // Packets that this one overtakes stay.
                let mut earlier: VecDeque<CaptureEntry> = entries.drain(..index).collect();
                earlier.retain_mut(|entry| emit(entry, now, out));
                out.push(sight);
                for entry in earlier.into_iter().rev() {
                    entries.push_front(entry);
                }
            }
            None => out.push(sight),
        }
        while let Some(front) = entries.front_mut()
            && !emit(front, now, out)
        {
            entries.pop_front();
        }
        if entries.is_empty() {
            self.flows.remove(&flow);
        }
    }

    /// Appends the entries that are still held, at the end of a log.
    pub(crate) fn flush(&mut self, now: Time, out: &mut Vec<LogEntry>) {
        for (_, entries) in self.flows.drain() {
            for mut entry in entries {
                emit(&mut entry, now, out);
            }
        }
    }
}

/// Appends the entry of a dropped packet with the current time. Returns true if the packet is still
/// in the queue.
fn emit(entry: &mut CaptureEntry, now: Time, out: &mut Vec<LogEntry>) -> bool {
    let Some(mut sight) = entry.dropped.take() else {
        return true;
    };
    sight.early = now.since(sight.at);
    sight.at = now;
    out.push(*sight);
    false
}

#[cfg(test)]
mod tests {
    use ccplane_qdisc::DropReason;

    use super::*;

    /// Returns the frames in log order, with the logged time and how much earlier each was dropped,
    /// ms.
    fn log(steps: &[(u64, u32, Option<DropReason>)], arrived: u32) -> Vec<(u32, u64, u64)> {
        let mut order = FlowOrder::default();
        (0..arrived).for_each(|frame| order.on_arrived(1, (frame, 0)));
        let mut out = Vec::new();
        for (ms, frame, dropped) in steps {
            let mut sight = LogEntry::plain(Time::from_micros(ms * 1_000), *frame as u16);
            sight.dropped = *dropped;
            order.on_removed(1, (*frame, 0), sight, &mut out);
        }
        assert!(order.flows.is_empty(), "no packet is held for ever");
        let shown = |sight: &LogEntry| {
            let ms = |ns: u64| ns / 1_000_000;
            (
                sight.bytes.into(),
                ms(sight.at.as_nanos()),
                ms(sight.early.as_nanos()),
            )
        };
        out.iter().map(shown).collect()
    }

    #[test]
    fn a_drop_follows_the_packets_ahead_of_it() {
        let full = Some(DropReason::Full);
        // 2 finds the queue full; 3 arrives after 0 has left.
        let steps = [(1, 2, full), (2, 0, None), (3, 1, None), (4, 3, None)];
        assert_eq!(log(&steps, 4), [(0, 2, 0), (1, 3, 0), (2, 3, 2), (3, 4, 0)]);
        // Nothing is ahead of a drop at the head.
        let aqm = Some(DropReason::Aqm);
        assert_eq!(log(&[(1, 0, aqm), (1, 1, None)], 2), [(0, 1, 0), (1, 1, 0)]);
        // An overtaking packet does not release the waiting ones.
        let steps = [(1, 1, full), (2, 2, None), (3, 0, None)];
        assert_eq!(log(&steps, 3), [(1, 2, 1), (2, 2, 0), (0, 3, 0)]);
    }
}
