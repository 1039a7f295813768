//! The memory that `bpf/stamp.bpf.c` and its loader share: `bpf/stamp_plane.h` in Rust.

use std::fs::File;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::device::Place;

/// Congestion controls that may want stamps. `CCP_STAMP_NAMES`.
pub(crate) const NAMES: usize = 8;
/// Namespaces that may be named. `CCP_STAMP_NAMESPACES`.
pub(crate) const NAMESPACES: usize = 4;

/// Devices that are remembered. `CCP_STAMP_DEVICES`.
pub(crate) const DEVICES: usize = 8;

/// `struct ccp_stamp_plane`
#[repr(C)]
pub(crate) struct Plane {
    pub names: [[AtomicU64; 2]; NAMES],
    pub netns: [AtomicU64; NAMESPACES],
    unused: [u64; 4],
    pub devices: [DeviceNote; DEVICES],
    pub counters: [CpuCounters; 64],
}

/// What a device was before, for whoever detaches: what [`Place`] says, where a kill does not reach
/// it.
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

    /// Written before the device is touched: whenever this process is killed, what it did by then
    /// can be undone.
    pub fn write(&self, place: &Place) {
        self.netns.store(place.cookie, Relaxed);
        self.gso_max_segs.store(place.gso_max_segs, Relaxed);
        self.filters.store(place.filters, Relaxed);
        self.made_clsact.store(place.made_clsact.into(), Relaxed);
        // Last, because it says that there is a note.
        self.index.store(place.index, Release);
    }

    pub fn netns(&self) -> u64 {
        self.netns.load(Relaxed)
    }

    /// Filters, not links, have its programs.
    pub fn has_filters(&self) -> bool {
        self.filters.load(Relaxed) != 0
    }

    /// The device, in its namespace.
    pub fn place(&self, namespace: File) -> Place {
        Place {
            index: self.index.load(Acquire),
            namespace,
            cookie: self.netns(),
            gso_max_segs: self.gso_max_segs.load(Relaxed),
            filters: self.filters.load(Relaxed),
            made_clsact: self.made_clsact.load(Relaxed) != 0,
        }
    }
}

/// `struct ccp_stamp_counters`
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

/// What happened to time stamps since they were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampCounters {
    /// Packets stamped as they left.
    pub departed: u64,
    /// Super-packets that were not stamped, because their segments would have shared one stamp.
    pub bursts: u64,
    /// Packets stamped as they came.
    pub arrived: u64,
    /// SYN and SYN-ACK that carried the option.
    pub offers: u64,
    /// Connections whose two ends agreed on stamps, counted at each end that is here.
    pub agreed: u64,
    /// Connections that wanted stamps and whose peer does not know them.
    pub not_agreed: u64,
    /// Exchanges of stamps that arrived whole.
    pub samples: u64,
    /// Options that came in by a device that does not stamp.
    pub unstamped: u64,
    /// Options that are not as they should be.
    pub malformed: u64,
    /// Segments whose other options, such as SACK, left too little room: a lost sample. Not those
    /// whose other options left none at all, for which the kernel does not call the program.
    pub no_room: u64,
}

impl Plane {
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

    /// Sockets of these congestion controls ask for stamps.
    pub fn want(&self, kernel_names: &[&str]) {
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
