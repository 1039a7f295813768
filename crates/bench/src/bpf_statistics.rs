//! The kernel's run-time statistics of BPF programs.

use std::fs;

/// Setting that enables the statistics.
const SYSCTL: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Enables the statistics. The previous setting is restored on drop.
pub(crate) struct BpfStatistics(Option<String>);

impl BpfStatistics {
    pub(crate) fn enable() -> BpfStatistics {
        let before = fs::read_to_string(SYSCTL).ok();
        let _ = fs::write(SYSCTL, "1");
        BpfStatistics(before)
    }
}

impl Drop for BpfStatistics {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(SYSCTL, before.trim());
        }
    }
}
