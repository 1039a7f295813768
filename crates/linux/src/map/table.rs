//! The mapped flow table: what the kernel shows of a flow, and the words that steer it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use ccplane_datapath::{Target, Update};
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::{FlowInfo, Tags};

use crate::map::layout::{self, Control, LIVE, PENDING, Plane, STEP, Shown, Slot, VARS, WRITING};
use crate::map::memory::Shared;

/// A flow as its datapath shows it at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowView {
    /// Its number, see [`crate::Kernel`].
    pub flow: u64,
    /// The algorithm's kernel name.
    pub algorithm: String,
    /// The sender's address, which is this host's.
    pub local: SocketAddr,
    /// The receiver's address.
    pub peer: SocketAddr,
    /// When it began, on CLOCK_MONOTONIC.
    pub opened: Time,
    /// Its last ACK or timeout.
    pub last: Time,
    /// The uid of its program; `None` before one was set.
    pub program: Option<u32>,
    /// Congestion window.
    pub cwnd: Bytes,
    /// Slow-start threshold; `u64::MAX` before the first loss.
    pub ssthresh: Bytes,
    /// The pacing rate that program or agent set; 0 where none did.
    pub rate: Rate,
    /// Smoothed RTT.
    pub srtt: Duration,
    /// The delivery rate of its last sample.
    pub delivered_rate: Rate,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// Bytes acknowledged.
    pub acked: Bytes,
    /// Packets marked lost.
    pub lost: u64,
    /// Packets sent again, as of its last ACK of a repair.
    pub retransmits: u64,
    /// Reports made.
    pub reports: u64,
    /// Faults that its programs met.
    pub faults: u64,
    /// How often it fell back to NewReno.
    pub fallbacks: u64,
    /// When it last did, on CLOCK_MONOTONIC.
    pub fallback_at: Option<Time>,
    /// NewReno steers it now: the agent is silent or gave it up, or its program needs no agent and
    /// faults.
    pub fallback: bool,
    /// The agent has spoken and steers.
    pub owned: bool,
    /// Its queueing delay is known from time stamps of both ends, not older than a round trip.
    pub stamped: bool,
    /// Linux's `tcp_ca_state`: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u16,
}

/// What is to be set, gathered from one command.
#[derive(Default)]
pub(crate) struct Words<'a> {
    /// The program's slot and its tag.
    pub program: Option<(u32, u32)>,
    /// The flow is given up; what was to be set is not.
    pub release: bool,
    pub updates: &'a [Update],
}

/// A flow's number: unique among those that live, and that of one that ended is recognised.
pub(crate) fn number(algorithm: usize, slot: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | (algorithm as u64) << 24 | slot as u64
}

/// The table of a registration's flows, as its memory is mapped. Clones share the mapping.
#[derive(Clone)]
pub(crate) struct Table {
    plane: Arc<Shared<Plane>>,
    slots: Arc<Shared<Slot>>,
}

/// The flows of a kernel's algorithms, for whoever looks on from another thread: also while an
/// algorithm hangs.
#[derive(Clone)]
pub struct Flows(pub(crate) Vec<(String, Table)>);

impl Flows {
    /// Those that live, as the kernel shows them.
    pub fn live(&self) -> impl Iterator<Item = FlowView> {
        let tables = self.0.iter().enumerate();
        tables.flat_map(|(index, (algorithm, table))| table.flows(index, algorithm))
    }
}

impl std::ops::Deref for Table {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        &self.slots
    }
}

impl Table {
    pub fn new(plane: Shared<Plane>, slots: Shared<Slot>) -> Table {
        Table {
            plane: Arc::new(plane),
            slots: Arc::new(slots),
        }
    }

    pub fn plane(&self) -> &Plane {
        &self.plane[0]
    }

    /// Slots and generations of the flows that live.
    pub fn live(&self) -> impl Iterator<Item = (usize, u32)> {
        let used = (self.plane().fresh.load(Relaxed) as usize).min(self.len());
        self[..used]
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.shown.state.load(Acquire) == LIVE)
            .map(|(index, slot)| (index, slot.shown.generation.load(Relaxed)))
    }

    /// What the kernel shows of them.
    pub fn flows(&self, index: usize, algorithm: &str) -> impl Iterator<Item = FlowView> {
        self.live().map(move |(slot, generation)| {
            self[slot].view(number(index, slot, generation), algorithm)
        })
    }
}

impl Slot {
    /// True while flow `generation` lives here.
    pub fn holds(&self, generation: u32) -> bool {
        self.shown.state.load(Acquire) == LIVE && self.shown.generation.load(Relaxed) == generation
    }

    pub fn view(&self, flow: u64, algorithm: &str) -> FlowView {
        let shown = &self.shown;
        let flags = shown.flags.load(Relaxed);
        let fallback_us = shown.fallback_us.load(Relaxed);
        FlowView {
            flow,
            algorithm: algorithm.to_owned(),
            local: shown.address(&shown.local, &shown.local_port),
            peer: shown.address(&shown.peer, &shown.peer_port),
            opened: Time::from_micros(shown.opened_us.load(Relaxed)),
            last: Time::from_micros(shown.last_us.load(Relaxed)),
            program: Some(shown.tag.load(Relaxed)).filter(|&tag| tag != 0),
            cwnd: Bytes::new(shown.cwnd.load(Relaxed)),
            ssthresh: Bytes::new(shown.ssthresh.load(Relaxed)),
            rate: Rate::from_bytes_per_sec(shown.rate.load(Relaxed)),
            srtt: Duration::from_micros(shown.srtt_us.load(Relaxed).into()),
            delivered_rate: Rate::from_bytes_per_sec(shown.delivered_rate.load(Relaxed)),
            mss: Bytes::new(shown.mss.load(Relaxed).into()),
            acked: Bytes::new(shown.acked.load(Relaxed)),
            lost: shown.lost.load(Relaxed),
            retransmits: shown.retransmits.load(Relaxed),
            reports: shown.reports.load(Relaxed),
            faults: shown.faults.load(Relaxed),
            fallbacks: shown.fallbacks.load(Relaxed),
            fallback_at: (fallback_us != 0).then(|| Time::from_micros(fallback_us)),
            fallback: flags & layout::SHOW_FALLBACK != 0,
            owned: flags & layout::SHOW_OWNED != 0,
            stamped: flags & layout::SHOW_STAMPED != 0,
            ca_state: shown.ca_state.load(Relaxed),
        }
    }

    /// What an agent is told at the beginning, or when it takes over.
    pub fn info(&self, algorithm: &str, tags: &Tags, live: bool) -> FlowInfo {
        let shown = &self.shown;
        let mss = u64::from(shown.mss.load(Relaxed));
        FlowInfo {
            algorithm: algorithm.to_owned(),
            init_cwnd: Bytes::new(u64::from(shown.init_cwnd.load(Relaxed)) * mss),
            mss: Bytes::new(mss),
            local: shown.address(&shown.local, &shown.local_port),
            peer: shown.address(&shown.peer, &shown.peer_port),
            cwnd: Bytes::new(shown.cwnd.load(Relaxed)),
            ssthresh: Bytes::new(shown.ssthresh.load(Relaxed)),
            rate: Rate::from_bytes_per_sec(shown.rate.load(Relaxed)),
            srtt: Duration::from_micros(shown.srtt_us.load(Relaxed).into()),
            live,
            tags: tags.clone(),
        }
    }
}

impl Shown {
    fn address(
        &self,
        address: &[std::sync::atomic::AtomicU8; 16],
        port: &std::sync::atomic::AtomicU16,
    ) -> SocketAddr {
        let bytes: [u8; 16] = std::array::from_fn(|n| address[n].load(Relaxed));
        let ip: IpAddr = if i32::from(self.family.load(Relaxed)) == libc::AF_INET {
            Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
        } else {
            // An IPv4 peer of an IPv6 socket reads as what it is.
            Ipv6Addr::from(bytes).to_canonical()
        };
        SocketAddr::new(ip, port.load(Relaxed))
    }
}

impl Control {
    /// Writes words for flow `generation`, merged with what it did not take yet. One writer per
    /// table.
    ///
    /// `epoch`: of the last record of the flow that the agent has seen.
    pub fn write(&self, generation: u32, epoch: u32, words: &Words) {
        // From here on the kernel takes nothing; what it took before, it took whole
        // (bpf/control.h).
        let before = self.lock.fetch_or(WRITING, AcqRel);
        let waits = before & PENDING != 0 && self.generation.load(Relaxed) == generation;
        let (mut set, mut mask) = if waits {
            (self.set.load(Relaxed), self.var_mask.load(Relaxed))
        } else {
            (0, 0)
        };
        self.generation.store(generation, Relaxed);
        self.epoch.store(epoch, Relaxed);
        if let Some((program, tag)) = words.program {
            self.program.store(program, Relaxed);
            self.tag.store(tag, Relaxed);
            set |= layout::SET_PROGRAM;
            set &= !layout::RELEASE;
            // Variables of another program; and its clock starts when it is set.
            set &= !layout::SET_MICROS;
            mask = 0;
        }
        if words.release {
            (set, mask) = (layout::RELEASE, 0);
        }
        for update in words.updates {
            let (word, flag) = match update.target {
                Target::Var(index) => {
                    let index = usize::from(index) % VARS;
                    self.vars[index].store(update.value, Relaxed);
                    mask |= 1 << index;
                    continue;
                }
                // As everywhere, 0 leaves a window, rate or threshold as it is.
                Target::Cwnd | Target::Rate | Target::Ssthresh if update.value == 0 => continue,
                Target::Cwnd => (&self.cwnd, layout::SET_CWND),
                Target::Rate => (&self.rate, layout::SET_RATE),
                Target::Ssthresh => (&self.ssthresh, layout::SET_SSTHRESH),
                Target::Micros => (&self.micros, layout::SET_MICROS),
            };
            word.store(update.value, Relaxed);
            set |= flag;
        }
        self.set.store(set, Relaxed);
        self.var_mask.store(mask, Relaxed);
        let count = (before & !(WRITING | PENDING)).wrapping_add(STEP);
        self.lock.store(count | PENDING, Release);
    }

    /// Takes back what waits: its writer is gone.
    pub fn clear(&self) {
        let before = self.lock.fetch_or(WRITING, AcqRel);
        let count = (before & !(WRITING | PENDING)).wrapping_add(STEP);
        self.lock.store(count, Release);
    }
}
