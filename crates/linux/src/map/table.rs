//! The mapped flow table: the state that the kernel publishes, and the control words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use ccplane_datapath::{CommandTarget, Update};
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::{FlowInfo, Tags};

use crate::map::layout::{
    self, CTL_PENDING, CTL_STEP, CTL_WRITING, ControlWords, FLOW_LIVE, FlowSlot, FlowStatus,
    PROGRAM_VARS_MAX, PlaneLayout,
};
use crate::map::memory::SharedMemory;

/// State of a flow as currently published by the datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowView {
    /// Flow number, see [`crate::Kernel`].
    pub flow: u64,
    /// Kernel name of the algorithm.
    pub algorithm: String,
    /// Address of the sender, this host.
    pub local: SocketAddr,
    /// Address of the receiver.
    pub peer: SocketAddr,
    /// Start of the flow, on CLOCK_MONOTONIC.
    pub opened: Time,
    /// Time of the last ACK or timeout.
    pub last_activity: Time,
    /// Uid of the program; `None` before one is set.
    pub program: Option<u32>,
    /// Congestion window.
    pub cwnd: Bytes,
    /// Slow-start threshold; `u64::MAX` before the first loss.
    pub ssthresh: Bytes,
    /// Pacing rate set by program or agent; 0 if none is set.
    pub rate: Rate,
    /// Smoothed RTT.
    pub srtt: Duration,
    /// Delivery rate of the last sample.
    pub delivered_rate: Rate,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// Bytes acknowledged.
    pub acked: Bytes,
    /// Packets marked lost.
    pub lost: u64,
    /// Retransmitted packets, as of the last ACK during recovery.
    pub retransmits: u64,
    /// Reports of the program.
    pub reports: u64,
    /// Arithmetic faults of the flow's programs.
    pub faults: u64,
    /// Number of fallbacks to NewReno.
    pub fallbacks: u64,
    /// Start of the last fallback, on CLOCK_MONOTONIC.
    pub fallback_at: Option<Time>,
    /// NewReno controls the flow: the agent is silent or released it, or its standalone program
    /// faults.
    pub in_fallback: bool,
    /// The agent has set something and controls the flow.
    pub agent_controlled: bool,
    /// The queueing delay is known from timestamps of both ends, no older than a round trip.
    pub has_queue_delay: bool,
    /// Linux's `tcp_ca_state`: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u16,
}

/// Control words of one command.
#[derive(Default)]
pub(crate) struct StagedWords<'a> {
    /// Index of the program and its tag.
    pub program: Option<(u32, u32)>,
    /// Releases the flow; pending words are discarded.
    pub release: bool,
    pub updates: &'a [Update],
}

/// Returns the number of a flow: unique among live flows, and an ended flow is recognised by its
/// generation.
pub(crate) fn flow_number(algorithm: usize, slot: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | (algorithm as u64) << 24 | slot as u64
}

/// The mapped flow table of a registration. Clones share the mapping.
#[derive(Clone)]
pub(crate) struct FlowTable {
    plane: Arc<SharedMemory<PlaneLayout>>,
    slots: Arc<SharedMemory<FlowSlot>>,
}

/// The flows of a kernel's algorithms, for observers in other threads. Usable even while an
/// algorithm hangs.
#[derive(Clone)]
pub struct Flows(pub(crate) Vec<(String, FlowTable)>);

impl Flows {
    /// Returns the live flows, as published by the kernel.
    pub fn live(&self) -> impl Iterator<Item = FlowView> {
        let tables = self.0.iter().enumerate();
        tables.flat_map(|(index, (algorithm, table))| table.flows(index, algorithm))
    }
}

impl std::ops::Deref for FlowTable {
    type Target = [FlowSlot];

    fn deref(&self) -> &[FlowSlot] {
        &self.slots
    }
}

impl FlowTable {
    pub fn new(plane: SharedMemory<PlaneLayout>, slots: SharedMemory<FlowSlot>) -> FlowTable {
        FlowTable {
            plane: Arc::new(plane),
            slots: Arc::new(slots),
        }
    }

    pub fn plane(&self) -> &PlaneLayout {
        &self.plane[0]
    }

    /// Returns slot and generation of every live flow.
    pub fn live(&self) -> impl Iterator<Item = (usize, u32)> {
        let used = (self.plane().fresh.load(Relaxed) as usize).min(self.len());
        self[..used]
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.status.state.load(Acquire) == FLOW_LIVE)
            .map(|(index, slot)| (index, slot.status.generation.load(Relaxed)))
    }

    /// Returns the published state of the live flows.
    pub fn flows(&self, index: usize, algorithm: &str) -> impl Iterator<Item = FlowView> {
        self.live().map(move |(slot, generation)| {
            self[slot].view(flow_number(index, slot, generation), algorithm)
        })
    }
}

impl FlowSlot {
    /// Returns true if flow `generation` is alive in this slot.
    pub fn is_live(&self, generation: u32) -> bool {
        self.status.state.load(Acquire) == FLOW_LIVE
            && self.status.generation.load(Relaxed) == generation
    }

    pub fn view(&self, flow: u64, algorithm: &str) -> FlowView {
        let shown = &self.status;
        let flags = shown.flags.load(Relaxed);
        let fallback_us = shown.fallback_us.load(Relaxed);
        FlowView {
            flow,
            algorithm: algorithm.to_owned(),
            local: shown.address(&shown.local, &shown.local_port),
            peer: shown.address(&shown.peer, &shown.peer_port),
            opened: Time::from_micros(shown.opened_us.load(Relaxed)),
            last_activity: Time::from_micros(shown.last_us.load(Relaxed)),
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
            in_fallback: flags & layout::SHOW_FALLBACK != 0,
            agent_controlled: flags & layout::SHOW_OWNED != 0,
            has_queue_delay: flags & layout::SHOW_STAMPED != 0,
            ca_state: shown.ca_state.load(Relaxed),
        }
    }

    /// Returns the description of a flow for an agent, at its start or at a takeover.
    pub fn info(&self, algorithm: &str, tags: &Tags, live: bool) -> FlowInfo {
        let shown = &self.status;
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

impl FlowStatus {
    fn address(
        &self,
        address: &[std::sync::atomic::AtomicU8; 16],
        port: &std::sync::atomic::AtomicU16,
    ) -> SocketAddr {
        let bytes: [u8; 16] = std::array::from_fn(|n| address[n].load(Relaxed));
        let ip: IpAddr = if i32::from(self.family.load(Relaxed)) == libc::AF_INET {
            Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
        } else {
            // Shows an IPv4 peer of an IPv6 socket as IPv4.
            Ipv6Addr::from(bytes).to_canonical()
        };
        SocketAddr::new(ip, port.load(Relaxed))
    }
}

impl ControlWords {
    /// Writes control words for flow `generation`, merged with words that it has not taken yet.
    /// There is one writer per table.
    ///
    /// `epoch`: epoch of the last record of the flow that the agent has seen.
    pub fn write(&self, generation: u32, epoch: u32, words: &StagedWords) {
        // From here on the kernel takes no words. A set that it took before, it took whole
        // (bpf/control.h).
        let before = self.lock.fetch_or(CTL_WRITING, AcqRel);
        let waits = before & CTL_PENDING != 0 && self.generation.load(Relaxed) == generation;
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
            set |= layout::CTL_SET_PROGRAM;
            set &= !layout::CTL_RELEASE;
            // Pending variables belong to another program, and its clock starts when it is set.
            set &= !layout::CTL_SET_MICROS;
            mask = 0;
        }
        if words.release {
            (set, mask) = (layout::CTL_RELEASE, 0);
        }
        for update in words.updates {
            let (word, flag) = match update.target {
                CommandTarget::Var(index) => {
                    let index = usize::from(index) % PROGRAM_VARS_MAX;
                    self.vars[index].store(update.value, Relaxed);
                    mask |= 1 << index;
                    continue;
                }
                // By convention, 0 leaves a window, rate or threshold unchanged.
                CommandTarget::Cwnd | CommandTarget::Rate | CommandTarget::Ssthresh
                    if update.value == 0 =>
                {
                    continue;
                }
                CommandTarget::Cwnd => (&self.cwnd, layout::CTL_SET_CWND),
                CommandTarget::Rate => (&self.rate, layout::CTL_SET_RATE),
                CommandTarget::Ssthresh => (&self.ssthresh, layout::CTL_SET_SSTHRESH),
                CommandTarget::Micros => (&self.micros, layout::CTL_SET_MICROS),
            };
            word.store(update.value, Relaxed);
            set |= flag;
        }
        self.set.store(set, Relaxed);
        self.var_mask.store(mask, Relaxed);
        let count = (before & !(CTL_WRITING | CTL_PENDING)).wrapping_add(CTL_STEP);
        self.lock.store(count | CTL_PENDING, Release);
    }

    /// Discards pending words, whose writer no longer exists.
    pub fn clear(&self) {
        let before = self.lock.fetch_or(CTL_WRITING, AcqRel);
        let count = (before & !(CTL_WRITING | CTL_PENDING)).wrapping_add(CTL_STEP);
        self.lock.store(count, Release);
    }
}
