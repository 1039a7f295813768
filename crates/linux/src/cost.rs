//! Run time of BPF programs, from the kernel's statistics.

use std::os::fd::AsFd;

use libbpf_rs::{Object, Program};

/// Run time of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Name in the source, such as `bpf/stamp.bpf.c`.
    pub program: String,
    /// Total run time, ns.
    pub ns: u64,
    /// Number of calls.
    pub calls: u64,
}

/// Returns the statistics of each program of an object since it was loaded. They count only while
/// `kernel.bpf_stats_enabled` is 1, and include their own overhead of some tens of ns per call.
pub(crate) fn run_times(object: &Object) -> Vec<Cost> {
    let ours: Vec<u32> = object
        .progs_mut()
        .filter_map(|p| Program::id_from_fd(p.as_fd()).ok())
        .collect();
    libbpf_rs::query::ProgInfoIter::default()
        .filter(|info| ours.contains(&info.id))
        .map(|info| Cost {
            program: info.name.to_string_lossy().into_owned(),
            ns: info.run_time_ns,
            calls: info.run_cnt,
        })
        .collect()
}
