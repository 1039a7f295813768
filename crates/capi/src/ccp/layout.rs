//! The structs of `ccp.h`, field for field as the reference has them, and its codes.
#![allow(
    non_camel_case_types,
    non_snake_case,
    reason = "the names of the reference"
)]
#![allow(missing_docs, reason = "`ccp.h` says what each field is")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// What the reference says where something is wrong; `ccp.h` has all of its codes.
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

/// What the datapath measured since the last `ccp_invoke`.
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
    /// C's `bool`, taken as a byte: what a caller wrote there need not be 0 or 1.
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

/// What the agent is told of a flow.
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

/// A connection, in memory of the caller's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ccp_connection {
    /// Its number, from 1 on; 0: the place is free.
    pub index: u16,
    pub last_create_msg_sent: u64,
    pub prims: ccp_primitives,
    pub flow_info: ccp_datapath_info,
    /// This library's.
    pub state: *mut c_void,
    /// The caller's.
    pub impl_: *mut c_void,
    pub datapath: *mut ccp_datapath,
}

/// A datapath, in memory of the caller's.
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
    /// C's `bool`, as a byte.
    pub _in_fallback: u8,
    pub max_programs: usize,
    /// This library's.
    pub programs: *mut c_void,
    /// The caller's.
    pub impl_: *mut c_void,
}

/// What was heard from the agent, and what of it was refused. Not of the reference.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ccp_counts {
    /// Messages that came.
    pub messages: u64,
    /// Of them, those that were refused, for one of the next reasons.
    pub refused: u64,
    /// Cut, of a wrong length, or of a type that an agent does not send.
    pub malformed: u64,
    /// Programs that the check did not pass: too many instructions, variables or temporaries,
    /// registers or operations that do not exist.
    pub programs: u64,
    /// Programs for which there was no room.
    pub table_full: u64,
    /// Updates of what a program does not have or an agent may not set.
    pub updates: u64,
    /// For a connection or a program that is not there.
    pub unknown: u64,
    /// Reports that left.
    pub reports: u64,
    /// Reports that `send_msg` did not take: what they say stayed in the connection.
    pub reports_kept: u64,
    /// Operations without a result, for which another value was taken, of connections that have
    /// ended: `(/ x 0)`, for example.
    pub faults: u64,
}

// Where the reference's own header puts them on a 64-bit machine.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ccp_primitives>() == 88 && offset_of!(ccp_primitives, rtt_sample_us) == 32);
    assert!(offset_of!(ccp_primitives, snd_rate) == 72);
    assert!(size_of::<ccp_datapath_info>() == 88);
    assert!(size_of::<ccp_connection>() == 216 && offset_of!(ccp_connection, prims) == 16);
    assert!(offset_of!(ccp_connection, state) == 192);
    assert!(size_of::<ccp_datapath>() == 128 && offset_of!(ccp_datapath, programs) == 112);
};
