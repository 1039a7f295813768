//! Types of `ccplane.h`: structs with their units, flags and error codes.
#![allow(non_camel_case_types, reason = "the names in C")]

use std::ffi::{c_char, c_int};

/// Success.
pub const CCPLANE_OK: c_int = 0;
/// A required pointer is null.
pub const CCPLANE_ENULL: c_int = -1;
/// A struct's size is not set, too small, or larger than in this library with additional fields
/// that are not 0.
pub const CCPLANE_ESIZE: c_int = -2;
/// The datapath was closed.
pub const CCPLANE_ECLOSED: c_int = -3;
/// Another thread is in a call for this datapath.
pub const CCPLANE_EBUSY: c_int = -4;
/// No such flow: it was closed or never opened.
pub const CCPLANE_ENOFLOW: c_int = -5;
/// Invalid value: a string that is not UTF-8, an address, unknown flags, or contradictory limits.
pub const CCPLANE_EVALUE: c_int = -6;
/// Unknown algorithm or invalid parameters.
pub const CCPLANE_EALGORITHM: c_int = -7;
/// The algorithm needs a capability that the datapath does not have.
pub const CCPLANE_ECAPABILITY: c_int = -8;
/// The agent cannot be reached.
pub const CCPLANE_EAGENT: c_int = -9;
/// The operating system cannot create a thread or a descriptor.
pub const CCPLANE_ESYSTEM: c_int = -10;
/// There is no descriptor: the algorithm runs on the caller's thread.
pub const CCPLANE_ENOFD: c_int = -11;
/// Too many flows.
pub const CCPLANE_EFULL: c_int = -12;
/// Internal error of this library. The call had no effect; the datapath continues to work.
pub const CCPLANE_EPANIC: c_int = -13;

/// Enforces a window: never more than `cwnd` in flight. Required.
pub const CCPLANE_CAN_CWND: u64 = 1;
/// Paces at the rate set by the algorithm.
pub const CCPLANE_CAN_PACING: u64 = 2;
/// Measures round-trip times.
pub const CCPLANE_CAN_RTT: u64 = 4;
/// Measures delivery rates.
pub const CCPLANE_CAN_DELIVERY_RATE: u64 = 8;
/// Counts ECN marks.
pub const CCPLANE_CAN_ECN: u64 = 16;
/// Calls ccplane_on_deadline on time, so that conditions on `Micros` can fire without an ACK.
pub const CCPLANE_CAN_TIMERS: u64 = 32;
/// Handles loss recovery: reduces the window towards `ssthresh` (RFC 9937) and undoes spurious
/// reductions.
pub const CCPLANE_CAN_RECOVERY: u64 = 64;
/// Measures one-way delays.
pub const CCPLANE_CAN_ONE_WAY_DELAY: u64 = 128;

/// Runs the algorithm on the caller's thread within ccplane_turn, for virtual time and for programs
/// without threads. A slow algorithm blocks the caller.
pub const CCPLANE_SAME_THREAD: u64 = 1;

/// `cwnd` of an outcome differs from the current one.
pub const CCPLANE_CWND: u32 = 1;
/// `rate` of an outcome differs from the current one.
pub const CCPLANE_RATE: u32 = 2;
/// `ssthresh` of an outcome differs from the current one.
pub const CCPLANE_SSTHRESH: u32 = 4;
/// `cwnd` is a configured limit; the algorithm did not set a new window.
pub const CCPLANE_LIMITED: u32 = 8;
/// The flow runs the library's NewReno because of an agent timeout.
pub const CCPLANE_FALLBACK: u32 = 16;
/// A report was sent or is queued.
pub const CCPLANE_REPORTED: u32 = 32;

/// Options of ccplane_open. Set `size` to the struct's size and unused fields to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_options {
    /// Size of this struct, bytes.
    pub size: usize,
    /// Algorithm with parameters: `cubic`, `cubic:report=10ms`, or the path of a program file,
    /// `./mine.ccp:gain=2`. With an agent: the algorithm that flows request, or null for the
    /// agent's first.
    pub algorithm: *const c_char,
    /// Address of an agent: `unix:PATH` of `ccplane agent --unix PATH`, `tls://HOST:PORT?keys=DIR`
    /// of `ccplane agent --tls` on another host, or `ccp:PATH` of a CCP agent. Null to run the
    /// algorithm in this process.
    pub agent: *const c_char,
    /// Capabilities of the datapath, CCPLANE_CAN_*. An algorithm that needs more is rejected.
    pub capabilities: u64,
    /// CCPLANE_SAME_THREAD, or 0.
    pub flags: u64,
    /// Minimum window, bytes; 0: 1220.
    pub min_cwnd: u64,
    /// Maximum window, bytes; 0: no limit.
    pub max_cwnd: u64,
    /// Maximum pacing rate, bytes/s; 0: no limit.
    pub max_rate: u64,
    /// Agent timeout, ns, after which flows run NewReno until the agent responds again. 0: half a
    /// second; with an agent on another host, 200 ms plus 3 round-trip times, measured when
    /// connecting.
    pub fallback_after_ns: u64,
}

/// Error of ccplane_open. Set `size` to the struct's size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_error {
    /// Size of this struct, bytes.
    pub size: usize,
    /// Error code, CCPLANE_E*.
    pub code: i64,
    /// Description with a hint for the user; null-terminated.
    pub message: [c_char; 496],
}

/// Description of a new flow. Set `size` to the struct's size and unknown fields to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_flow_info {
    /// Size of this struct, bytes.
    pub size: usize,
    /// Payload of a full packet, bytes. Required.
    pub mss: u64,
    /// Initial window, bytes; 0: ten full packets.
    pub init_cwnd: u64,
    /// Slow-start threshold, bytes; 0: none yet.
    pub ssthresh: u64,
    /// Pacing rate, bytes/s; 0: not paced.
    pub rate: u64,
    /// Smoothed round-trip time, ns; 0: unknown.
    pub srtt_ns: u64,
    /// 1: an existing flow that continues with the values given here.
    pub live: u64,
    /// Sender's address and port, `192.0.2.1:4000` or `[2001:db8::1]:4000`, or null.
    pub local: *const c_char,
    /// Receiver's address and port, or null.
    pub peer: *const c_char,
}

/// State of the transport at a call. Set `size` to the struct's size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_transport {
    /// Size of this struct, bytes.
    pub size: usize,
    /// Current time, ns, of any clock that never runs backwards.
    pub now_ns: u64,
    /// Current window, bytes.
    pub cwnd: u64,
    /// Current pacing rate, bytes/s; 0: not paced.
    pub rate: u64,
    /// Current slow-start threshold, bytes; UINT64_MAX: none yet.
    pub ssthresh: u64,
}

/// Signals of one ACK or timeout. Set `size` to the struct's size and unknown fields to 0. A struct
/// that ends after `was_timeout`, the last of CCP's signals, is accepted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_signals {
    /// Size of this struct, bytes.
    pub size: usize,
    /// Bytes newly acknowledged cumulatively.
    pub bytes_acked: u64,
    /// Bytes newly acknowledged selectively, out of order.
    pub bytes_misordered: u64,
    /// Bytes acknowledged by this ACK that carried an ECN mark.
    pub ecn_bytes: u64,
    /// Packets acknowledged by this ACK that carried an ECN mark.
    pub ecn_packets: u64,
    /// Packets newly declared lost.
    pub lost_pkts_sample: u64,
    /// Ignored: the time is in ccplane_transport.
    pub reserved: u64,
    /// Packets newly acknowledged cumulatively.
    pub packets_acked: u64,
    /// Packets newly acknowledged selectively.
    pub packets_misordered: u64,
    /// Bytes in flight after this event.
    pub bytes_in_flight: u64,
    /// Bytes that the application has written and that are not acknowledged.
    pub bytes_pending: u64,
    /// Packets in flight after this event.
    pub packets_in_flight: u64,
    /// Delivery rate over the interval of the ACKs, bytes/s.
    pub rate_incoming: u64,
    /// Send rate over the interval in which the same packets were sent, bytes/s.
    pub rate_outgoing: u64,
    /// Round-trip time sample of this ACK, us; 0: none.
    pub rtt_sample_us: u64,
    /// 1: this call is caused by a retransmission timeout.
    pub was_timeout: u64,
    /// Smoothed round-trip time, us.
    pub srtt_us: u64,
    /// Smallest round-trip time of the last minutes, us.
    pub min_rtt_us: u64,
    /// Payload of a full packet, bytes.
    pub mss: u64,
    /// 1: the rate sample was limited by the application.
    pub app_limited: u64,
    /// 1: loss recovery is in progress.
    pub in_recovery: u64,
    /// 1: the last reduction was spurious, and the transport undid it.
    pub undone: u64,
    /// 1: the window, not the application, limited sending in the last round.
    pub cwnd_limited: u64,
    /// One-way delay of the acknowledged packet, ns; only differences matter, so the clocks need
    /// not be synchronized.
    pub owd_ns: u64,
    /// Round-trip time of the acknowledged packet without the peer's delay, ns.
    pub rtt_ns: u64,
    /// Smallest one-way delay of the last minutes, ns.
    pub min_owd_ns: u64,
    /// Smallest round-trip time of the last minutes, ns.
    pub min_rtt_ns: u64,
    /// Queueing delay of the packet, ns. Used only with `queue_delay_valid`.
    pub queue_delay_ns: u64,
    /// 1: `queue_delay_ns` is at most one round-trip time old.
    pub queue_delay_valid: u64,
    /// 1: packets are paced, at the rate set by the algorithm or by the transport itself.
    pub paced: u64,
}

/// Settings for the transport from now on. Set `size` to the struct's size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_outcome {
    /// Size of this struct, bytes.
    pub size: usize,
    /// CCPLANE_CWND and so on: the changed values and the reasons.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
    /// Window, bytes. Like the next two fields it is always set, changed or not.
    pub cwnd: u64,
    /// Pacing rate, bytes/s; 0: not paced.
    pub rate: u64,
    /// Slow-start threshold, bytes; UINT64_MAX: none.
    pub ssthresh: u64,
}

/// Totals of a datapath. Set `size` to the struct's size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_stats {
    /// Size of this struct, bytes.
    pub size: usize,
    /// Flows opened.
    pub opened: u64,
    /// Flows closed.
    pub closed: u64,
    /// Reports sent to the agent.
    pub reports: u64,
    /// Number of times that a flow fell back to NewReno.
    pub fallbacks: u64,
}
