//! FQ-CoDel (RFC 8290): one CoDel queue per flow, deficit round robin, new flows first.

use std::collections::VecDeque;

use ccplane_units::Time;

use crate::bucket::Buckets;
use crate::codel::CodelQueue;
use crate::{Backlog, CodelConfig, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// Maximum number of packets dropped from the fattest flow when the queue is over its limit (it
/// loses at most half its bytes). Finding the fattest flow scans all queues, so drops are batched
/// (section 4.1; Linux' value).
const DROP_BATCH_PACKETS_MAX: u32 = 64;

/// Settings of FQ-CoDel; the defaults follow RFC 8290 section 5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodelConfig {
    /// CoDel settings of every flow queue; ECN is on by default.
    pub codel: CodelConfig,
    /// Number of flow queues, 1024. Flows whose hashes collide share one. With n flows and m
    /// queues, about n/m of the flows share a queue with another.
    pub flows: u32,
    /// Bytes per round, 1514: one full-sized Ethernet frame. A smaller quantum favours small
    /// packets.
    pub quantum: u32,
}

impl FqCodelConfig {
    /// Defaults of RFC 8290.
    pub const DEFAULT: FqCodelConfig = FqCodelConfig {
        codel: CodelConfig {
            ecn: true,
            ..CodelConfig::DEFAULT
        },
        flows: 1_024,
        quantum: 1_514,
    };
}

/// Queue managed by FQ-CoDel.
#[derive(Clone, Debug)]
pub struct FqCodel<P> {
    config: FqCodelConfig,
    limit: Limit,
    mtu: u32,
    buckets: Buckets,
    flows: Vec<FlowQueue<P>>,
    /// Indices of the flows that have just started to send.
    new: VecDeque<u32>,
    /// Indices of the flows that have had a turn.
    old: VecDeque<u32>,
    backlog: Backlog,
}

#[derive(Clone, Debug)]
struct FlowQueue<P> {
    queue: CodelQueue<P>,
    /// Remaining deficit, bytes.
    credits: i64,
    /// The flow is in `new` or `old`.
    listed: bool,
}

impl<P: Packet> FqCodel<P> {
    /// Creates an empty queue for packets of at most `mtu` bytes. `limit` applies to all flows
    /// together; the seed perturbs the flow hash.
    pub fn new(config: FqCodelConfig, limit: Limit, mtu: u32, seed: u64) -> FqCodel<P> {
        let config = FqCodelConfig {
            flows: config.flows.max(1),
            quantum: config.quantum.max(1),
            ..config
        };
        let flow = || FlowQueue {
            queue: CodelQueue::default(),
            credits: 0,
            listed: false,
        };
        FqCodel {
            config,
            limit,
            mtu,
            buckets: Buckets::new(config.flows, seed),
            flows: (0..config.flows).map(|_| flow()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }

    /// Drops from the head of the flow with the most bytes. Returns true if the packet that was
    /// just enqueued on flow `arriving` was dropped.
    fn drop_from_fattest(&mut self, arriving: usize, drops: &mut impl Drops<P>) -> bool {
        let size = |index: &usize| {
            let backlog = self.flows[*index].queue.backlog;
            (backlog.bytes, backlog.packets)
        };
        // Ties go to the lowest index, to be deterministic.
        let fattest = (0..self.flows.len())
            .rev()
            .max_by_key(size)
            .unwrap_or(arriving);
        let queue = &mut self.flows[fattest].queue;
        let enough = queue.backlog.bytes / 2;
        let (mut packets, mut bytes) = (0, 0);
        while let Some((_, packet)) = queue.pop() {
            packets += 1;
            bytes += u64::from(packet.bytes());
            self.backlog.remove(packet.bytes());
            if fattest == arriving && queue.backlog.packets == 0 {
                drops.dropped(packet, DropReason::Full);
                return true;
            }
            drops.dropped(packet, DropReason::PushedOut);
            if packets >= DROP_BATCH_PACKETS_MAX || bytes >= enough {
                break;
            }
        }
        false
    }
}

impl<P: Packet> Qdisc<P> for FqCodel<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        let index = self.buckets.index_of(packet.flow_hash());
        self.backlog.add(packet.bytes());
        let flow = &mut self.flows[index];
        flow.queue.push(now, packet);
        if !flow.listed {
            flow.listed = true;
            flow.credits = i64::from(self.config.quantum);
            self.new.push_back(index as u32);
        }
        while self.limit.is_exceeded_by(self.backlog) {
            if self.drop_from_fattest(index, drops) {
                return Verdict::Dropped(DropReason::Full);
            }
        }
        Verdict::Queued
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let flow = &mut self.flows[index as usize];
            if flow.credits <= 0 {
                flow.credits += i64::from(self.config.quantum);
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let before = flow.queue.backlog;
            let packet = flow.queue.dequeue(&self.config.codel, self.mtu, now, drops);
            self.backlog.packets -= before.packets - flow.queue.backlog.packets;
            self.backlog.bytes -= before.bytes - flow.queue.backlog.bytes;
            if let Some(packet) = packet {
                flow.credits -= i64::from(packet.bytes());
                return Some(packet);
            }
            list.pop_front();
            if is_new {
                // A flow that empties goes through the old list before it can be new again.
                // Otherwise it could starve the old flows (section 4.2).
                self.old.push_back(index);
            } else {
                flow.listed = false;
            }
        }
    }

    fn next_ready(&self) -> Option<Time> {
        (self.backlog.packets > 0).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
