//! Structs of `ccp.h` with libccp's fields in libccp's order, and its error codes.
#![allow(
    non_camel_case_types,
    non_snake_case,
    reason = "the names of the reference"
)]
#![allow(missing_docs, reason = "`ccp.h` says what each field is")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// Error codes used here; `ccp.h` lists all of libccp's.
pub(crate) mod code {
    use std::ffi::c_int;

    pub const OK: c_int = 0;
    pub const MISSING_ARG: c_int = -11;
    pub const NULL_ARG: c_int = -12;
    pub const BUFSIZE_NEGATIVE: c_int = -21;
    pub const BUFSIZE_TOO_SMALL: c_int = -22;
    pub const MSG_TOO_LONG: c_int = -23;
    pub const READ_INVALID_HEADER_TYPE: c_int = -32;
    pub const READ_INVALID_OP: c_int = -33;
    pub const READ_REG_NOT_ALLOWED: c_int = -34;
    pub const INSTALL_TYPE_MISMATCH: c_int = -41;
    pub const INSTALL_TOO_MANY_EXPR: c_int = -42;
    pub const INSTALL_TOO_MANY_INSTR: c_int = -43;
    pub const UPDATE_TYPE_MISMATCH: c_int = -51;
    pub const UPDATE_INVALID_REG_TYPE: c_int = -53;
    pub const CHANGE_TYPE_MISMATCH: c_int = -61;
    pub const UNKNOWN_CONNECTION: c_int = -71;
    pub const CONNECTION_NOT_INITIALIZED: c_int = -73;
    pub const PROG_TABLE_FULL: c_int = -81;
    pub const PROG_NOT_FOUND: c_int = -82;
    pub const PRIV_IS_NULL: c_int = -95;
    pub const PROG_IS_NULL: c_int = -96;
    pub const FALLBACK_TIMED_OUT: c_int = -101;
}

/// Measurements since the last `ccp_invoke`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ccp_primitives {
    pub bytes_acked: u32,
    pub packets_acked: u32,
    pub bytes_misordered: u32,
    pub packets_misordered: u32,
    pub ecn_bytes: u32,
    pub ecn_packets: u32,
    pub lost_pkts_sample: u32,
    /// C's `bool` as a byte, since the caller may have stored a value other than 0 and 1.
    pub was_timeout: u8,
    pub rtt_sample_us: u64,
    pub rate_outgoing: u64,
    pub rate_incoming: u64,
    pub bytes_in_flight: u32,
    pub packets_in_flight: u32,
    pub snd_cwnd: u32,
    pub snd_rate: u64,
    pub bytes_pending: u32,
}

/// Description of a flow for the agent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ccp_datapath_info {
    pub init_cwnd: u32,
    pub mss: u32,
    pub src_ip: u32,
    pub src_port: u32,
    pub dst_ip: u32,
    pub dst_port: u32,
    pub congAlg: [c_char; 64],
}

/// Connection, in memory of the caller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ccp_connection {
    /// Number of the connection, from 1 on; 0 if the slot is free.
    pub index: u16,
    pub last_create_msg_sent: u64,
    pub prims: ccp_primitives,
    pub flow_info: ccp_datapath_info,
    /// Owned by this library.
    pub state: *mut c_void,
    /// Owned by the caller.
    pub impl_: *mut c_void,
    pub datapath: *mut ccp_datapath,
}

/// Datapath, in memory of the caller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ccp_datapath {
    pub set_cwnd: Option<unsafe extern "C" fn(*mut ccp_connection, u32)>,
    pub set_rate_abs: Option<unsafe extern "C" fn(*mut ccp_connection, u32)>,
    pub send_msg: Option<unsafe extern "C" fn(*mut ccp_datapath, *mut c_char, c_int) -> c_int>,
    pub log: Option<unsafe extern "C" fn(*mut ccp_datapath, c_int, *const c_char, c_int)>,
    pub time_zero: u64,
    pub now: Option<unsafe extern "C" fn() -> u64>,
    pub since_usecs: Option<unsafe extern "C" fn(u64) -> u64>,
    pub after_usecs: Option<unsafe extern "C" fn(u64) -> u64>,
    pub max_connections: usize,
    pub ccp_active_connections: *mut ccp_connection,
    pub fto_us: u64,
    pub last_msg_sent: u64,
    /// C's `bool` as a byte.
    pub _in_fallback: u8,
    pub max_programs: usize,
    /// Owned by this library.
    pub programs: *mut c_void,
    /// Owned by the caller.
    pub impl_: *mut c_void,
}

/// Counts of received and rejected messages. Not part of libccp.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ccp_counts {
    /// Messages received.
    pub messages: u64,
    /// Messages rejected, for one of the following five reasons.
    pub refused: u64,
    /// Truncated, of a wrong length, or of a type that an agent does not send.
    pub malformed: u64,
    /// Invalid programs: too many instructions, variables or temporaries, or unknown registers or
    /// operations.
    pub programs: u64,
    /// Programs for which there was no room.
    pub table_full: u64,
    /// Updates of a variable that does not exist or that an agent may not set.
    pub updates: u64,
    /// Messages for an unknown connection or program.
    pub unknown: u64,
    /// Reports sent.
    pub reports: u64,
    /// Reports that `send_msg` rejected; their values were kept in the connection.
    pub reports_kept: u64,
    /// Arithmetic faults of closed connections, such as `(/ x 0)`, for which a substitute value was
    /// used.
    pub faults: u64,
}

// Offsets in libccp's header on a 64-bit machine.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ccp_primitives>() == 88 && offset_of!(ccp_primitives, rtt_sample_us) == 32);
    assert!(offset_of!(ccp_primitives, snd_rate) == 72);
    assert!(size_of::<ccp_datapath_info>() == 88);
    assert!(size_of::<ccp_connection>() == 216 && offset_of!(ccp_connection, prims) == 16);
    assert!(offset_of!(ccp_connection, state) == 192);
    assert!(size_of::<ccp_datapath>() == 128 && offset_of!(ccp_datapath, programs) == 112);
};
