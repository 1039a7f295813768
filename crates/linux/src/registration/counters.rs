//! Counters of a plane, which are per CPU.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::kernel::AlgorithmCounters;
use crate::map::layout::{CpuCounters, PlaneLayout};
use crate::registration::load::RegistrationMemory;

/// Returns the counters summed over all CPUs, and the number of live flows that are not in the
/// table.
pub(crate) fn read(memory: &RegistrationMemory) -> AlgorithmCounters {
    let counters = sum(memory.plane());
    AlgorithmCounters {
        without_slot: counters
            .flows
            .saturating_sub(memory.table.live().count() as u64),
        ..counters
    }
}

fn sum(plane: &PlaneLayout) -> AlgorithmCounters {
    let of = |what: fn(&CpuCounters) -> &AtomicU64| {
        plane
            .counters
            .iter()
            .map(|cpu| what(cpu).load(Relaxed))
            .sum::<u64>()
    };
    let (opened, closed) = (of(|cpu| &cpu.flows), of(|cpu| &cpu.closed));
    AlgorithmCounters {
        flows: opened.saturating_sub(closed),
        opened,
        reports: of(|cpu| &cpu.reports),
        ring_lost: of(|cpu| &cpu.ring_lost),
        fallbacks: of(|cpu| &cpu.fallbacks),
        faults: of(|cpu| &cpu.faults),
        without_slot: 0,
        table_full: of(|cpu| &cpu.table_full),
        share_full: of(|cpu| &cpu.share_full),
        stamps: of(|cpu| &cpu.stamps),
        stamps_dropped: of(|cpu| &cpu.stamps_dropped),
    }
}

/// Returns the number of flows whose closing record did not fit in the ring.
pub(crate) fn close_lost(plane: &PlaneLayout) -> u64 {
    plane
        .counters
        .iter()
        .map(|cpu| cpu.close_lost.load(Relaxed))
        .sum()
}
