//! Rows of the tables, and the packets of slides 19 and 20.

use serde::Serialize;

/// Run of slides 19 and 20.
pub(super) const SATURATED: &str = "saturated";

/// Headers have 68 bytes, 16 of them timestamps.
pub(super) const DATA_BYTES: u32 = 1_500;
pub(super) const ACK_BYTES: u32 = 68;

/// Timestamps of a packet and of its answer, ns, with the names of NTP; 0 on real packets if
/// unknown.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Exchange {
    pub run: &'static str,
    pub t1: i64,
    pub t2: i64,
    pub t3: i64,
    pub t4: i64,
    /// Round trip in user space.
    pub user: Option<i64>,
}

/// Queueing delay of a packet and its measured value, ns.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Probe {
    pub run: &'static str,
    pub truth: i64,
    pub measured: i64,
}

/// Packet of the connection that saturates the link (slides 19 and 20): its delay in the switch's
/// queue, and the values that its sender computes from time stamps. All times are in ns.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SwitchSample {
    pub run: &'static str,
    /// Arrival at the queue.
    pub at: i64,
    /// Packets of the other sender that arrived at the queue before this one.
    pub probes: u64,
    pub truth: i64,
    /// Queueing delay by exact stamps and by models of the clocks, in the simulator.
    pub exact: Option<i64>,
    pub hardware: Option<i64>,
    pub software: Option<i64>,
    /// One-way delay by the kernel's stamps, on real packets.
    pub kernel: Option<i64>,
}
