//! What `ccplane.h` declares beside functions: structs, their units, and codes.
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::{c_char, c_int};

/// Done.
pub const CCPLANE_OK: c_int = 0;
/// A pointer is null that must not be.
pub const CCPLANE_ENULL: c_int = -1;
/// A struct does not say its size, is too short for what it is for, or is newer than this library
/// and uses what only a newer one has.
pub const CCPLANE_ESIZE: c_int = -2;
/// The datapath was closed.
pub const CCPLANE_ECLOSED: c_int = -3;
/// Another thread is in a call for this datapath.
pub const CCPLANE_EBUSY: c_int = -4;
/// No such flow: it was closed, or never opened.
pub const CCPLANE_ENOFLOW: c_int = -5;
/// A value that cannot be: a text that is not UTF-8, limits that contradict each other, flags that
/// do not exist.
pub const CCPLANE_EVALUE: c_int = -6;
/// No such algorithm, or not with these parameters.
pub const CCPLANE_EALGORITHM: c_int = -7;
/// The algorithm needs what the datapath says that it cannot do.
pub const CCPLANE_ECAPABILITY: c_int = -8;
/// No agent is there, or there is no way to one.
pub const CCPLANE_EAGENT: c_int = -9;
/// The system gives no thread or descriptor.
pub const CCPLANE_ESYSTEM: c_int = -10;
/// There is nothing to wait on: the algorithm runs in the caller's thread.
pub const CCPLANE_ENOFD: c_int = -11;
/// No room for another flow.
pub const CCPLANE_EFULL: c_int = -12;
/// A mistake of this library. Nothing of the call counts; the datapath goes on.
pub const CCPLANE_EPANIC: c_int = -13;

/// It sets a window: it sends no more than `cwnd`. Every datapath does.
pub const CCPLANE_CAN_CWND: u64 = 1;
/// It paces at a rate that the algorithm sets.
pub const CCPLANE_CAN_PACING: u64 = 2;
/// It measures round-trip times.
pub const CCPLANE_CAN_RTT: u64 = 4;
/// It measures delivery rates.
pub const CCPLANE_CAN_DELIVERY_RATE: u64 = 8;
/// It counts ECN marks.
pub const CCPLANE_CAN_ECN: u64 = 16;
/// It calls ccplane_on_deadline in time, so that conditions on `Micros` fire without an ACK.
pub const CCPLANE_CAN_TIMERS: u64 = 32;
/// It repairs losses by itself: reduces towards `ssthresh` (RFC 9937), and undoes what was
/// spurious.
pub const CCPLANE_CAN_RECOVERY: u64 = 64;
/// It measures one-way delay.
pub const CCPLANE_CAN_ONE_WAY_DELAY: u64 = 128;

/// The algorithm runs in the caller's thread, within ccplane_turn: for virtual time, and for
/// programs without threads. One that takes long keeps the caller waiting.
pub const CCPLANE_SAME_THREAD: u64 = 1;

/// `cwnd` of an outcome is another than the call gave.
pub const CCPLANE_CWND: u32 = 1;
/// So is `rate`.
pub const CCPLANE_RATE: u32 = 2;
/// So is `ssthresh`.
pub const CCPLANE_SSTHRESH: u32 = 4;
/// `cwnd` is an owner's limit, and nobody asked for another window.
pub const CCPLANE_LIMITED: u32 = 8;
/// The flow runs the library's own NewReno, since its agent is silent.
pub const CCPLANE_FALLBACK: u32 = 16;
/// A report left, or waits for room.
pub const CCPLANE_REPORTED: u32 = 32;

/// How a datapath is opened. Set `size` to its size, and what is not used to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_options {
    /// Bytes of this struct.
    pub size: usize,
    /// An algorithm by name, with parameters: `cubic`, `cubic:report=10ms`, or the path of a text,
    /// `./mine.ccp:gain=2`. With an agent: what flows ask for, or null for the agent's first.
    pub algorithm: *const c_char,
    /// Where an agent serves: `unix:PATH` of `ccplane agent --unix PATH`,
    /// `tls://HOST:PORT?keys=DIR` of `ccplane agent --tls` on another host, `ccp:PATH` of a CCP
    /// agent. Null: the algorithm runs in this process.
    pub agent: *const c_char,
    /// CCPLANE_CAN_*: what the datapath can do. An algorithm that needs more is refused.
    pub capabilities: u64,
    /// CCPLANE_SAME_THREAD, or 0.
    pub flags: u64,
    /// The window never falls below so many bytes; 0: 1220.
    pub min_cwnd: u64,
    /// The window never exceeds so many bytes; 0: no limit.
    pub max_cwnd: u64,
    /// The pacing rate never exceeds so many bytes/s; 0: no limit.
    pub max_rate: u64,
    /// After so long a silence of the agent, ns, flows run NewReno until it is heard again. 0: half
    /// a second; with an agent on another host 200 ms and 3 round trips, which are measured when it
    /// is connected.
    pub fallback_after_ns: u64,
}

/// Why a datapath could not be opened. Set `size` to its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_error {
    /// Bytes of this struct.
    pub size: usize,
    /// CCPLANE_E*.
    pub code: i64,
    /// In words, with what helps; ends with a 0.
    pub message: [c_char; 496],
}

/// A flow that begins. Set `size` to its size, and what is not known to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_flow_info {
    /// Bytes of this struct.
    pub size: usize,
    /// Payload of a full packet, bytes. Needed.
    pub mss: u64,
    /// The window that the flow starts with, bytes; 0: ten full packets.
    pub init_cwnd: u64,
    /// The slow-start threshold, bytes; 0: none yet.
    pub ssthresh: u64,
    /// The pacing rate, bytes/s; 0: not paced.
    pub rate: u64,
    /// Smoothed round-trip time, ns; 0: not known.
    pub srtt_ns: u64,
    /// 1: it lived before, and goes on from the window given here.
    pub live: u64,
    /// The sender's address and port, `192.0.2.1:4000` or `[2001:db8::1]:4000`, or null.
    pub local: *const c_char,
    /// The receiver's.
    pub peer: *const c_char,
}

/// The transport's state at a call. Set `size` to its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_transport {
    /// Bytes of this struct.
    pub size: usize,
    /// The moment of the call, ns of any clock that does not go back.
    pub now_ns: u64,
    /// The window in force, bytes.
    pub cwnd: u64,
    /// The pacing rate in force, bytes/s; 0: not paced.
    pub rate: u64,
    /// The slow-start threshold in force, bytes; UINT64_MAX: none yet.
    pub ssthresh: u64,
}

/// What one ACK or timeout brought. Set `size` to its size, and what is not known to 0. A struct
/// that ends after `was_timeout` will do: these are the signals that CCP has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_signals {
    /// Bytes of this struct.
    pub size: usize,
    /// Bytes newly cumulatively acknowledged.
    pub bytes_acked: u64,
    /// Bytes newly selectively acknowledged, out of order.
    pub bytes_misordered: u64,
    /// Bytes acknowledged here that carried an ECN mark.
    pub ecn_bytes: u64,
    /// The same in packets.
    pub ecn_packets: u64,
    /// Packets newly taken for lost.
    pub lost_pkts_sample: u64,
    /// Not read: the library has the time from ccplane_transport.
    pub reserved: u64,
    /// Packets newly cumulatively acknowledged.
    pub packets_acked: u64,
    /// Packets newly selectively acknowledged.
    pub packets_misordered: u64,
    /// Bytes in flight, after this event.
    pub bytes_in_flight: u64,
    /// Bytes that the application has written and that are not acknowledged.
    pub bytes_pending: u64,
    /// Packets in flight, after this event.
    pub packets_in_flight: u64,
    /// Delivery rate over the time of the acknowledgements, bytes/s.
    pub rate_incoming: u64,
    /// Rate over the time in which the same packets were sent, bytes/s.
    pub rate_outgoing: u64,
    /// Round-trip time of this ACK, us; 0: no sample.
    pub rtt_sample_us: u64,
    /// 1: this call is due to a retransmission timeout.
    pub was_timeout: u64,
    /// Smoothed round-trip time, us.
    pub srtt_us: u64,
    /// Least round-trip time of the last minutes, us.
    pub min_rtt_us: u64,
    /// Payload of a full packet, bytes.
    pub mss: u64,
    /// 1: the rate sample was limited by the application.
    pub app_limited: u64,
    /// 1: losses are being repaired.
    pub in_recovery: u64,
    /// 1: the last reduction proved spurious, and the transport undid it.
    pub undone: u64,
    /// 1: the window, not the application, limited sending in the last round.
    pub cwnd_limited: u64,
    /// One-way delay of the packet that this ACK answers, ns; only differences count, the clocks
    /// need not agree.
    pub owd_ns: u64,
    /// Round-trip time of it without the peer's delay, ns.
    pub rtt_ns: u64,
    /// Least one-way delay of the last minutes, ns.
    pub min_owd_ns: u64,
    /// Least round-trip time of the last minutes, ns.
    pub min_rtt_ns: u64,
    /// What the packet waited in queues, ns. Only with the next.
    pub queue_delay_ns: u64,
    /// 1: `queue_delay_ns` is no older than a round trip.
    pub queue_delay_valid: u64,
    /// 1: what is sent is spaced out in time, at the rate that the algorithm set or by the
    /// transport itself.
    pub paced: u64,
}

/// What the transport is to do from now on. Set `size` to its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_outcome {
    /// Bytes of this struct.
    pub size: usize,
    /// CCPLANE_CWND and so on: what is another than before, and why.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// The window, bytes. Like the next two it is always there, changed or not.
    pub cwnd: u64,
    /// The pacing rate, bytes/s; 0: not paced.
    pub rate: u64,
    /// The slow-start threshold, bytes; UINT64_MAX: none.
    pub ssthresh: u64,
}

/// What a datapath has done so far. Set `size` to its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ccplane_stats {
    /// Bytes of this struct.
    pub size: usize,
    /// Flows that were opened.
    pub opened: u64,
    /// Of them, those that were closed.
    pub closed: u64,
    /// Reports to the agent.
    pub reports: u64,
    /// How often a flow fell back to NewReno.
    pub fallbacks: u64,
}
