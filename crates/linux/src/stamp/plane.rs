//! Memory shared by `bpf/stamp.bpf.c` and its loader: `bpf/stamp_plane.h` in Rust.

use std::fs::File;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::device::DeviceState;

/// `CCP_STAMP_NAMES`: congestion controls that may use timestamps.
pub(crate) const NAMES_MAX: usize = 8;
/// `CCP_STAMP_NAMESPACES`: network namespaces that may be listed.
pub(crate) const NAMESPACES_MAX: usize = 4;

/// `CCP_STAMP_DEVICES`: devices with a note.
pub(crate) const DEVICES_MAX: usize = 8;

/// Mirrors `struct ccp_stamp_plane`.
#[repr(C)]
pub(crate) struct StampPlane {
    pub names: [[AtomicU64; 2]; NAMES_MAX],
    pub netns: [AtomicU64; NAMESPACES_MAX],
    unused: [u64; 4],
    pub devices: [DeviceNote; DEVICES_MAX],
    pub counters: [CpuCounters; 64],
}

/// Previous configuration of a device, as in [`DeviceState`], in memory that survives a kill of the
/// process.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct DeviceNote {
    netns: AtomicU64,
    index: AtomicU32,
    gso_max_segs: AtomicU32,
    filters: AtomicU32,
    made_clsact: AtomicU32,
}

impl DeviceNote {
    pub fn is_free(&self) -> bool {
        self.index.load(Acquire) == 0
    }

    pub fn clear(&self) {
        self.index.store(0, Release);
    }

    /// Writes the note before the device is changed, so that a kill at any time leaves enough to
    /// undo the changes.
    pub fn write(&self, state: &DeviceState) {
        self.netns.store(state.cookie, Relaxed);
        self.gso_max_segs.store(state.gso_max_segs, Relaxed);
        self.filters.store(state.filters, Relaxed);
        self.made_clsact.store(state.made_clsact.into(), Relaxed);
        // Last, because a non-zero index marks the note as valid.
        self.index.store(state.index, Release);
    }

    pub fn netns(&self) -> u64 {
        self.netns.load(Relaxed)
    }

    /// Returns true if its programs are filters rather than links.
    pub fn has_filters(&self) -> bool {
        self.filters.load(Relaxed) != 0
    }

    /// Returns the device, given its namespace.
    pub fn to_device_state(&self, namespace: File) -> DeviceState {
        DeviceState {
            index: self.index.load(Acquire),
            namespace,
            cookie: self.netns(),
            gso_max_segs: self.gso_max_segs.load(Relaxed),
            filters: self.filters.load(Relaxed),
            made_clsact: self.made_clsact.load(Relaxed) != 0,
        }
    }
}

/// Mirrors `struct ccp_stamp_counters`.
#[repr(C)]
pub(crate) struct CpuCounters {
    departed: AtomicU64,
    bursts: AtomicU64,
    arrived: AtomicU64,
    offers: AtomicU64,
    agreed: AtomicU64,
    not_agreed: AtomicU64,
    samples: AtomicU64,
    unstamped: AtomicU64,
    malformed: AtomicU64,
    no_room: AtomicU64,
    unused: [u64; 6],
}

/// Timestamp counters since attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampCounters {
    /// Packets stamped on departure.
    pub departed: u64,
    /// Super-packets, not stamped because their segments would share one timestamp.
    pub bursts: u64,
    /// Packets stamped on arrival.
    pub arrived: u64,
    /// SYN and SYN-ACK packets with the option.
    pub offers: u64,
    /// Connections that agreed on timestamps, counted at each end on this host.
    pub agreed: u64,
    /// Connections that offered timestamps to a peer that does not support them.
    pub not_agreed: u64,
    /// Complete exchanges of timestamps.
    pub samples: u64,
    /// Options that arrived through a device without stamping.
    pub unstamped: u64,
    /// Invalid options.
    pub malformed: u64,
    /// Segments whose other options, such as SACK, left too little room, which costs a sample.
    /// Segments with no room at all are not counted, since the kernel does not call the program for
    /// them.
    pub no_room: u64,
}

impl StampPlane {
    pub fn counters(&self) -> StampCounters {
        let of = |what: fn(&CpuCounters) -> &AtomicU64| {
            self.counters
                .iter()
                .map(|cpu| what(cpu).load(Relaxed))
                .sum::<u64>()
        };
        StampCounters {
            departed: of(|cpu| &cpu.departed),
            bursts: of(|cpu| &cpu.bursts),
            arrived: of(|cpu| &cpu.arrived),
            offers: of(|cpu| &cpu.offers),
            agreed: of(|cpu| &cpu.agreed),
            not_agreed: of(|cpu| &cpu.not_agreed),
            samples: of(|cpu| &cpu.samples),
            unstamped: of(|cpu| &cpu.unstamped),
            malformed: of(|cpu| &cpu.malformed),
            no_room: of(|cpu| &cpu.no_room),
        }
    }

    /// Sets the congestion controls whose sockets request timestamps.
    pub fn set_names(&self, kernel_names: &[&str]) {
        for (slot, name) in self.names.iter().zip(kernel_names) {
            let mut bytes = [0; 16];
            let length = name.len().min(15);
            bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
            for (word, bytes) in slot.iter().zip(bytes.chunks_exact(8)) {
                let mut eight = [0; 8];
                eight.copy_from_slice(bytes);
                word.store(u64::from_ne_bytes(eight), Relaxed);
            }
        }
    }
}
