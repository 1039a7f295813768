//! Stochastic fairness queueing: one queue per flow hash, round robin, drops from the longest
//! queue.
//!
//! McKenney, Stochastic Fairness Queueing, INFOCOM 1990, with Linux' choices. Turns are counted in
//! bytes, by deficit round robin (Shreedhar and Varghese, SIGCOMM 1995). The hash is perturbed
//! once, by the seed.

use std::cmp::Reverse;
use std::collections::VecDeque;

use ccplane_units::Time;

use crate::bucket::Buckets;
use crate::longest::LongestQueueTree;
use crate::{Backlog, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// Settings of SFQ; the defaults follow Linux' `sfq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SfqConfig {
    /// Maximum length of one queue, 127 packets, even if the total limit is in bytes. It limits a
    /// single flow of full-sized packets to 190 kB; raise it together with the limit if one flow
    /// has to fill a long path.
    pub depth: u32,
    /// Maximum number of backlogged flows, 127. Packets of further flows are dropped.
    pub flows: u32,
    /// Number of hash buckets, 1024. Flows in the same bucket share a queue.
    pub divisor: u32,
    /// Bytes per turn; `None` means one MTU. A smaller quantum favours small packets.
    pub quantum: Option<u32>,
}

impl SfqConfig {
    /// Defaults of Linux' `sfq`.
    pub const DEFAULT: SfqConfig = SfqConfig {
        depth: 127,
        flows: 127,
        divisor: 1_024,
        quantum: None,
    };
}

/// Stochastic fairness queue.
#[derive(Clone, Debug)]
pub struct Sfq<P> {
    config: SfqConfig,
    limit: Limit,
    quantum: i64,
    buckets: Buckets,
    /// Slot of each backlogged bucket, or [`NO_SLOT`].
    slot_of: Vec<u32>,
    slots: Vec<SfqSlot<P>>,
    /// Unused slots.
    free_slots: Vec<u32>,
    /// Backlogged slots in round-robin order.
    active_slots: VecDeque<u32>,
    /// Counter of turns.
    turn_count: u64,
    longest: LongestQueueTree,
    backlog: Backlog,
}

/// Marks a bucket without a slot. Most of a sendbox's many buckets have none, and an `Option<u32>`
/// would take twice the memory.
const NO_SLOT: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct SfqSlot<P> {
    bucket: usize,
    waiting: VecDeque<P>,
    /// Bytes waiting.
    bytes: u64,
    /// Remaining deficit, bytes.
    allotment: i64,
    /// Value of the turn counter when the current turn was assigned.
    turn_number: u64,
}

impl<P: Packet> Sfq<P> {
    /// Creates an empty queue for packets of at most `mtu` bytes. `limit` applies to all flows
    /// together; the seed perturbs the flow hash. Linux' limit of 127 packets is too small for a
    /// fast link with many flows: Bundler's sendbox uses 1.875 MB, 156 ms at 96 Mbit/s.
    pub fn new(config: SfqConfig, limit: Limit, mtu: u32, seed: u64) -> Sfq<P> {
        let config = SfqConfig {
            divisor: config.divisor.max(1),
            depth: config.depth.max(1),
            ..config
        };
        Sfq {
            config,
            limit,
            quantum: i64::from(config.quantum.unwrap_or(mtu).max(1)),
            buckets: Buckets::new(config.divisor, seed),
            slot_of: vec![NO_SLOT; config.divisor as usize],
            slots: Vec::new(),
            free_slots: Vec::new(),
            active_slots: VecDeque::new(),
            turn_count: 0,
            longest: LongestQueueTree::default(),
            backlog: Backlog::default(),
        }
    }

    /// Returns the slot of a bucket and allocates one if needed; `None` if there are too many
    /// flows.
    fn slot(&mut self, bucket: usize) -> Option<usize> {
        if self.slot_of[bucket] != NO_SLOT {
            return Some(self.slot_of[bucket] as usize);
        }
        if self.active_slots.len() >= self.config.flows as usize {
            return None;
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(SfqSlot {
                bucket,
                waiting: VecDeque::new(),
                bytes: 0,
                allotment: 0,
                turn_number: 0,
            });
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].bucket = bucket;
        self.slot_of[bucket] = slot;
        Some(slot as usize)
    }

    /// Returns the longest queue; ties go to the earliest turn. The length is measured in the unit
    /// of the limit, so that the flow that uses most of the scarce resource loses packets.
    fn longest(&mut self) -> usize {
        let in_bytes = matches!(self.limit, Limit::Bytes(_));
        let slots = &self.slots;
        self.longest.find_longest(slots.len(), |slot| {
            let slot = &slots[slot];
            let length = if in_bytes {
                slot.bytes
            } else {
                slot.waiting.len() as u64
            };
            (length, Reverse(slot.turn_number))
        })
    }

    /// Drops the last packet of the longest queue and returns the slot of that queue.
    fn drop_from_longest(&mut self, arriving: usize, drops: &mut impl Drops<P>) -> usize {
        let longest = self.longest();
        if let Some(packet) = self.slots[longest].waiting.pop_back() {
            self.slots[longest].bytes -= u64::from(packet.bytes());
            self.longest.mark_changed(longest);
            self.backlog.remove(packet.bytes());
            let is_arrival = longest == arriving;
            drops.dropped(
                packet,
                if is_arrival {
                    DropReason::Full
                } else {
                    DropReason::PushedOut
                },
            );
        }
        if self.slots[longest].waiting.is_empty() {
            self.active_slots.retain(|slot| *slot as usize != longest);
            self.release(longest);
        }
        longest
    }

    /// Frees the slot of a queue that became empty.
    fn release(&mut self, slot: usize) {
        self.slot_of[self.slots[slot].bucket] = NO_SLOT;
        self.free_slots.push(slot as u32);
    }
}

impl<P: Packet> Qdisc<P> for Sfq<P> {
    fn enqueue(&mut self, _now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        let bucket = self.buckets.index_of(packet.flow_hash());
        let slot = self.slot(bucket);
        let Some(slot) =
            slot.filter(|&slot| self.slots[slot].waiting.len() < self.config.depth as usize)
        else {
            drops.dropped(packet, DropReason::Full);
            return Verdict::Dropped(DropReason::Full);
        };
        self.backlog.add(packet.bytes());
        let flow = &mut self.slots[slot];
        flow.bytes += u64::from(packet.bytes());
        flow.waiting.push_back(packet);
        if flow.waiting.len() == 1 {
            flow.allotment = self.quantum;
            flow.turn_number = self.turn_count;
            self.turn_count += 1;
            self.active_slots.push_back(slot as u32);
        }
        self.longest.mark_changed(slot);
        // A limit in packets is exceeded by one packet at most; a limit in bytes may take several
        // small packets to restore.
        while self.limit.is_exceeded_by(self.backlog) {
            if self.drop_from_longest(slot, drops) == slot {
                return Verdict::Dropped(DropReason::Full);
            }
        }
        Verdict::Queued
    }

    fn dequeue(&mut self, _now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        loop {
            let slot = *self.active_slots.front()?;
            let flow = &mut self.slots[slot as usize];
            if flow.allotment <= 0 {
                flow.allotment += self.quantum;
                flow.turn_number = self.turn_count;
                self.turn_count += 1;
                self.longest.mark_changed(slot as usize);
                self.active_slots.rotate_left(1);
                continue;
            }
            let packet = flow.waiting.pop_front()?;
            flow.allotment -= i64::from(packet.bytes());
            flow.bytes -= u64::from(packet.bytes());
            self.longest.mark_changed(slot as usize);
            self.backlog.remove(packet.bytes());
            if flow.waiting.is_empty() {
                self.active_slots.pop_front();
                self.release(slot as usize);
            }
            return Some(packet);
        }
    }

    fn next_ready(&self) -> Option<Time> {
        (self.backlog.packets > 0).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    struct FlowPacket(u32, u32);

    impl Packet for FlowPacket {
        fn bytes(&self) -> u32 {
            self.0
        }

        fn flow_hash(&self) -> u32 {
            self.1
        }
    }

    proptest! {
        /// Reference model: a linear scan over all queues.
        #[test]
        fn it_is_the_longest_that_loses(
            in_bytes: bool,
            steps in proptest::collection::vec(
                (0_u32..30, 1_u32..4, 0_u32..3, any::<bool>()),
                1..400,
            ),
        ) {
            let limit = if in_bytes {
                Limit::Bytes(3_000)
            } else {
                Limit::Packets(60)
            };
            let config = SfqConfig {
                quantum: Some(100),
                ..SfqConfig::DEFAULT
            };
            let mut queue = Sfq::new(config, limit, 100, 1);
            let mut nowhere = |_: FlowPacket, _| {};
            for (flow, size, leave, look) in steps {
                queue.enqueue(
                    Time::ZERO,
                    FlowPacket(size * 50, flow.wrapping_mul(0x0137_a5b1)),
                    &mut nowhere,
                );
                for _ in 0..leave / 2 {
                    queue.dequeue(Time::ZERO, &mut nowhere);
                }
                if look && queue.backlog().packets > 0 {
                    let length = |at: &usize| {
                        let slot = &queue.slots[queue.active_slots[*at] as usize];
                        if in_bytes {
                            slot.bytes
                        } else {
                            slot.waiting.len() as u64
                        }
                    };
                    let longest = (0..queue.active_slots.len())
                        .rev()
                        .max_by_key(length)
                        .map(|at| queue.active_slots[at] as usize);
                    prop_assert_eq!(Some(queue.longest()), longest);
                }
            }
        }
    }
}
