//! FQ-CoDel: a queue under CoDel for every flow, served in turn, new flows first (RFC 8290).

use std::collections::VecDeque;

use ccplane_units::Time;

use crate::bucket::Buckets;
use crate::codel::Controlled;
use crate::{Backlog, CodelConfig, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// When the queue is over its limit, the fattest flow loses up to this many packets, or half its
/// bytes: finding it takes a look at every flow, which one packet would not be worth (section 4.1;
/// as in Linux).
const BATCH: u32 = 64;

/// Settings of FQ-CoDel (RFC 8290 section 5.2 for the defaults).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodelConfig {
    /// Every flow's CoDel; marks by default.
    pub codel: CodelConfig,
    /// How many queues, 1024. Flows whose hashes meet share one: with n flows and m queues one in
    /// m/n does.
    pub flows: u32,
    /// Bytes that a flow may send in its turn, 1514: one full frame. Less gives small packets an
    /// advantage.
    pub quantum: u32,
}

impl FqCodelConfig {
    /// The defaults.
    pub const DEFAULT: FqCodelConfig = FqCodelConfig {
        codel: CodelConfig {
            ecn: true,
            ..CodelConfig::DEFAULT
        },
        flows: 1_024,
        quantum: 1_514,
    };
}

/// A queue under FQ-CoDel.
#[derive(Clone, Debug)]
pub struct FqCodel<P> {
    config: FqCodelConfig,
    limit: Limit,
    mtu: u32,
    buckets: Buckets,
    flows: Vec<Flow<P>>,
    /// Flows that have just begun to send, by index.
    new: VecDeque<u32>,
    /// Flows that have had a turn.
    old: VecDeque<u32>,
    backlog: Backlog,
}

#[derive(Clone, Debug)]
struct Flow<P> {
    queue: Controlled<P>,
    /// Bytes that it may still send in its turn.
    credits: i64,
    /// It is on one of the lists.
    listed: bool,
}

impl<P: Packet> FqCodel<P> {
    /// An empty queue for packets of at most `mtu` bytes; what waits in all flows together is at
    /// most `limit`, and the seed decides which flows share a queue.
    pub fn new(config: FqCodelConfig, limit: Limit, mtu: u32, seed: u64) -> FqCodel<P> {
        let config = FqCodelConfig {
            flows: config.flows.max(1),
            quantum: config.quantum.max(1),
            ..config
        };
        let flow = || Flow {
            queue: Controlled::default(),
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

    /// Drops from the head of the flow with the most bytes, and says whether the packet that has
    /// just come to the tail of flow `arriving` was among them.
    fn drop_from_fattest(&mut self, arriving: usize, drops: &mut impl Drops<P>) -> bool {
        let size = |index: &usize| {
            let backlog = self.flows[*index].queue.backlog;
            (backlog.bytes, backlog.packets)
        };
        // The first of the fattest, so that it is always the same one.
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
            if packets >= BATCH || bytes >= enough {
                break;
            }
        }
        false
    }
}

impl<P: Packet> Qdisc<P> for FqCodel<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        let index = self.buckets.of(packet.flow_hash());
        self.backlog.add(packet.bytes());
        let flow = &mut self.flows[index];
        flow.queue.push(now, packet);
        if !flow.listed {
            flow.listed = true;
            flow.credits = i64::from(self.config.quantum);
            self.new.push_back(index as u32);
        }
        while self.limit.exceeded(self.backlog) {
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
                // A flow that is empty for a moment does not become new again before the old ones
                // had their turn (section 4.2: otherwise it could starve them).
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
