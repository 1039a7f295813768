//! Functions of `ccplane.h`. Each validates its arguments, calls the plane, and returns an error
//! code.

use std::ffi::{CStr, c_char, c_int};
use std::mem::{MaybeUninit, offset_of};

use ::ccplane_datapath::{Capabilities, OperatorLimits, Outcome, Signals, Transport};
use ccplane_agent::FlowInfo;
use ccplane_units::{Bytes, Duration, Rate, Time};

use crate::caller_memory::{ErrorCode, OutStruct, call, catch_panic, text, view};
use crate::handle::{EnteredHandle, ccplane_datapath};
use crate::plane::{CPlane, PlaneOptions, address};
use crate::types::*;

/// All capabilities of the header.
const ALL_CAPABILITIES: u64 = 255;

/// Opens a datapath: starts the algorithm's thread, or connects to an agent. Returns null on
/// failure and stores the reason in `error`, unless that is null.
///
/// # Safety
///
/// Both structs are null or as large as their size fields state, and their strings are
/// null-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_open(
    options: *const ccplane_options,
    error: *mut ccplane_error,
) -> *mut ccplane_datapath {
    // SAFETY: the caller guarantees that `options` is null or as large as stated, with
    // null-terminated strings.
    let open = || unsafe { open(options) };
    match catch_panic(open, Err((CCPLANE_EPANIC, String::new()))) {
        Ok(plane) => ccplane_datapath::new(plane),
        Err((code, why)) => {
            // SAFETY: the caller guarantees that `error` is null or as large as stated.
            if let Ok(room) = unsafe { OutStruct::at(error) } {
                let why = if why.is_empty() {
                    error_text(code).to_string_lossy().into_owned()
                } else {
                    why
                };
                room.fill(&to_error(code, &why));
            }
            std::ptr::null_mut()
        }
    }
}

/// Opens a flow and stores its number, which is never 0, in `*flow`.
///
/// # Safety
///
/// `datapath` is null or from ccplane_open, `info` is null or as large as its size field states,
/// and `flow` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_flow_open(
    datapath: *mut ccplane_datapath,
    now_ns: u64,
    info: *const ccplane_flow_info,
    flow: *mut u64,
) -> c_int {
    call(|| {
        let mut room = MaybeUninit::uninit();
        // SAFETY: the caller guarantees that `datapath` is null or from ccplane_open, and that
        // `info` is null or as large as stated.
        let (mut plane, info) =
            unsafe { (EnteredHandle::enter(datapath)?, view(info, &mut room)?) };
        if flow.is_null() {
            return Err(CCPLANE_ENULL);
        }
        // SAFETY: the caller guarantees that the strings of `info` are null-terminated.
        let info = unsafe { flow_info(info) }?;
        let number = plane.open_flow(Time::from_nanos(now_ns), info)?;
        // SAFETY: `flow` is not null, and the caller guarantees that it is valid for writing; it
        // need not be aligned.
        unsafe { flow.write_unaligned(number) };
        Ok(())
    })
}

/// Processes an ACK or a timeout; call it exactly once for each. It does not wait for the algorithm
/// and does not allocate.
///
/// # Safety
///
/// `datapath` is null or from ccplane_open, and the structs are null or as large as their size
/// fields state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_on_ack(
    datapath: *mut ccplane_datapath,
    flow: u64,
    transport: *const ccplane_transport,
    signals: *const ccplane_signals,
    outcome: *mut ccplane_outcome,
) -> c_int {
    call(|| {
        let (mut room, mut more) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the caller guarantees that `datapath` is null or from ccplane_open, and that the
        // structs are null or as large as stated.
        let (transport, signals, to, mut plane) = unsafe {
            (
                view(transport, &mut room)?,
                view(signals, &mut more)?,
                OutStruct::at(outcome)?,
                EnteredHandle::enter(datapath)?,
            )
        };
        let transport = transport_of(transport);
        let outcome = plane.on_ack(flow, &transport, signals_of(signals))?;
        to.fill(&outcome_of(&transport, &outcome));
        Ok(())
    })
}

/// Processes a flow's deadline. Early or repeated calls are harmless.
///
/// # Safety
///
/// Same as ccplane_on_ack.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_on_deadline(
    datapath: *mut ccplane_datapath,
    flow: u64,
    transport: *const ccplane_transport,
    outcome: *mut ccplane_outcome,
) -> c_int {
    call(|| {
        let mut room = MaybeUninit::uninit();
        // SAFETY: the caller guarantees that `datapath` is null or from ccplane_open, and that the
        // structs are null or as large as stated.
        let (transport, to, mut plane) = unsafe {
            (
                view(transport, &mut room)?,
                OutStruct::at(outcome)?,
                EnteredHandle::enter(datapath)?,
            )
        };
        let transport = transport_of(transport);
        let outcome = plane.on_deadline(flow, &transport)?;
        to.fill(&outcome_of(&transport, &outcome));
        Ok(())
    })
}

/// Returns the time at which to call ccplane_on_deadline for a flow if no ACK arrives before, ns;
/// for flow 0, the latest time of the next ccplane_turn. UINT64_MAX if there is no deadline or no
/// such flow.
///
/// # Safety
///
/// `datapath` is null or from ccplane_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_next_deadline(datapath: *mut ccplane_datapath, flow: u64) -> u64 {
    let next = || {
        // SAFETY: the caller guarantees that `datapath` is null or from ccplane_open.
        let mut plane = unsafe { EnteredHandle::enter(datapath) }?;
        plane.next_deadline(flow)
    };
    match catch_panic(next, Err(CCPLANE_EPANIC)) {
        Ok(Some(due)) => due.as_nanos(),
        Ok(None) | Err(_) => u64::MAX,
    }
}

/// Receives the agent's commands and sends pending messages. Call it when ccplane_fd is readable,
/// when the deadline of flow 0 (ccplane_next_deadline) has passed, and at least three times per
/// `fallback_after_ns`, since it also processes the agent's heartbeats.
///
/// # Safety
///
/// `datapath` is null or from ccplane_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_turn(datapath: *mut ccplane_datapath, now_ns: u64) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that `datapath` is null or from ccplane_open.
        let mut plane = unsafe { EnteredHandle::enter(datapath) }?;
        plane.process(Time::from_nanos(now_ns));
        Ok(())
    })
}

/// Returns a descriptor that becomes readable when ccplane_turn has commands to receive. Call it
/// again after every turn, since a new connection to an agent has another descriptor. Do not read
/// or close it. Returns a negative code if there is none.
///
/// # Safety
///
/// `datapath` is null or from ccplane_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_fd(datapath: *mut ccplane_datapath) -> c_int {
    // SAFETY: the caller guarantees that `datapath` is null or from ccplane_open.
    let fd = || unsafe { EnteredHandle::enter(datapath) }.map(|plane| plane.fd());
    match catch_panic(fd, Err(CCPLANE_EPANIC)) {
        Ok(fd) => fd.unwrap_or(CCPLANE_ENOFD),
        Err(code) => code,
    }
}

/// Closes a flow, with the totals of acknowledged bytes and lost packets; 0 if not counted.
///
/// # Safety
///
/// `datapath` is null or from ccplane_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_flow_close(
    datapath: *mut ccplane_datapath,
    now_ns: u64,
    flow: u64,
    bytes_acked: u64,
    packets_lost: u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that `datapath` is null or from ccplane_open.
        let mut plane = unsafe { EnteredHandle::enter(datapath) }?;
        plane.close_flow(
            Time::from_nanos(now_ns),
            flow,
            Bytes::new(bytes_acked),
            packets_lost,
        )
    })
}

/// Stores the totals of a datapath in `stats`.
///
/// # Safety
///
/// `datapath` is null or from ccplane_open, and `stats` is null or as large as its size field
/// states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_get_stats(
    datapath: *mut ccplane_datapath,
    stats: *mut ccplane_stats,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that `datapath` is null or from ccplane_open, and that
        // `stats` is null or as large as stated.
        let (room, plane) = unsafe { (OutStruct::at(stats)?, EnteredHandle::enter(datapath)?) };
        let done = plane.stats();
        room.fill(&ccplane_stats {
            size: 0,
            opened: done.opened,
            closed: done.closed,
            reports: done.reports,
            fallbacks: done.fallbacks,
        });
        Ok(())
    })
}

/// Closes a datapath with its remaining flows and ends its thread. Later calls with it return
/// CCPLANE_ECLOSED.
///
/// # Safety
///
/// `datapath` is null or from ccplane_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccplane_close(datapath: *mut ccplane_datapath) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that `datapath` is null or from ccplane_open.
        drop(unsafe { EnteredHandle::enter(datapath) }?.close());
        Ok(())
    })
}

/// Returns the description of an error code; never null.
#[unsafe(no_mangle)]
pub extern "C" fn ccplane_strerror(code: c_int) -> *const c_char {
    error_text(code).as_ptr()
}

/// Returns the version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn ccplane_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

fn error_text(code: ErrorCode) -> &'static CStr {
    match code {
        CCPLANE_OK => c"done",
        CCPLANE_ENULL => c"a required pointer is null",
        CCPLANE_ESIZE => {
            c"the size of a struct is not set, is too small, or is of a newer header with fields \
              set that this library does not support"
        }
        CCPLANE_ECLOSED => c"the datapath was closed",
        CCPLANE_EBUSY => {
            c"another thread is in a call for this datapath; only one may be at a time"
        }
        CCPLANE_ENOFLOW => c"unknown flow: it was closed or never opened",
        CCPLANE_EVALUE => {
            c"invalid value: a string that is not UTF-8, an address, unknown flags, or \
              contradictory limits"
        }
        CCPLANE_EALGORITHM => c"unknown algorithm or parameters",
        CCPLANE_ECAPABILITY => {
            c"the algorithm needs capabilities that the datapath does not declare"
        }
        CCPLANE_EAGENT => c"the agent cannot be reached",
        CCPLANE_ESYSTEM => c"the system cannot create a thread or file descriptor",
        CCPLANE_ENOFD => {
            c"no file descriptor to wait on: the algorithm runs in the caller's thread"
        }
        CCPLANE_EFULL => c"the table of flows is full",
        CCPLANE_EPANIC => c"bug in ccplane; please report the text on standard error",
        _ => c"not an error code of ccplane",
    }
}

/// Opens a plane with validated options.
///
/// # Safety
///
/// Same as [`ccplane_open`].
unsafe fn open(options: *const ccplane_options) -> Result<CPlane, (ErrorCode, String)> {
    let plain = |code: ErrorCode| (code, String::new());
    let mut room = MaybeUninit::uninit();
    // SAFETY: the caller guarantees that `options` is null or as large as stated.
    let options = unsafe { view(options, &mut room) }.map_err(plain)?;
    // SAFETY: the caller guarantees that the strings are null or null-terminated.
    let (algorithm, agent) = unsafe { (text(options.algorithm), text(options.agent)) };
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let default = OperatorLimits::default();
    let limits = OperatorLimits {
        min_cwnd: or(options.min_cwnd, default.min_cwnd),
        max_cwnd: or(options.max_cwnd, default.max_cwnd),
        max_rate: or(options.max_rate, default.max_rate),
        agent_timeout: Duration::from_nanos(or(
            options.fallback_after_ns,
            default.agent_timeout.as_nanos(),
        )),
    };
    let wrong = |why: &str| Err((CCPLANE_EVALUE, why.to_owned()));
    if limits.min_cwnd > limits.max_cwnd {
        return wrong("min_cwnd is above max_cwnd");
    }
    if options.flags & !CCPLANE_SAME_THREAD != 0 || options.capabilities & !ALL_CAPABILITIES != 0 {
        return wrong(
            "unknown flag or capability: the library is older than the header, or the struct was \
            not set to 0",
        );
    }
    if options.capabilities & CCPLANE_CAN_CWND == 0 {
        return wrong(
            "CCPLANE_CAN_CWND is missing in capabilities; a datapath must at least set a window",
        );
    }
    let wanted = PlaneOptions {
        algorithm: algorithm.map_err(plain)?,
        agent: agent.map_err(plain)?,
        capabilities: Capabilities(options.capabilities),
        same_thread: options.flags & CCPLANE_SAME_THREAD != 0,
        limits,
        fallback_configured: options.fallback_after_ns != 0,
    };
    CPlane::open(&wanted).map_err(|why| (why.code, why.to_string()))
}

fn to_error(code: ErrorCode, why: &str) -> ccplane_error {
    let mut error = ccplane_error {
        size: 0,
        code: code.into(),
        message: [0; 496],
    };
    // The last byte stays 0, and no UTF-8 character is cut.
    let most = error.message.len() - 1;
    let end = (0..=most.min(why.len()))
        .rev()
        .find(|end| why.is_char_boundary(*end))
        .unwrap_or(0);
    for (to, from) in error.message.iter_mut().zip(&why.as_bytes()[..end]) {
        *to = *from as c_char;
    }
    error
}

/// Converts the description of a flow.
///
/// # Safety
///
/// The strings of `info` are null or null-terminated.
unsafe fn flow_info(info: &ccplane_flow_info) -> Result<FlowInfo, ErrorCode> {
    if info.mss == 0 || info.mss > 1 << 20 || info.live > 1 {
        return Err(CCPLANE_EVALUE);
    }
    let cwnd = Bytes::new(if info.init_cwnd == 0 {
        10 * info.mss
    } else {
        info.init_cwnd
    });
    // SAFETY: the caller guarantees that the strings are null or null-terminated.
    let (local, peer) = unsafe { (text(info.local)?, text(info.peer)?) };
    Ok(FlowInfo {
        algorithm: String::new(),
        init_cwnd: cwnd,
        mss: Bytes::new(info.mss),
        local: address(local)?,
        peer: address(peer)?,
        cwnd,
        ssthresh: Bytes::new(if info.ssthresh == 0 {
            u64::MAX
        } else {
            info.ssthresh
        }),
        rate: Rate::from_bytes_per_sec(info.rate),
        srtt: Duration::from_nanos(info.srtt_ns),
        live: info.live == 1,
        ..FlowInfo::default()
    })
}

#[inline(always)]
fn transport_of(transport: &ccplane_transport) -> Transport {
    Transport {
        cwnd: transport.cwnd,
        rate: transport.rate,
        ssthresh: transport.ssthresh,
        now: Time::from_nanos(transport.now_ns),
    }
}

const _: () = {
    assert!(size_of::<ccplane_signals>() == size_of::<usize>() + size_of::<Signals>());
    macro_rules! same {
        ($($field:ident),*) => { $(
            assert!(
                offset_of!(ccplane_signals, $field)
                    == size_of::<usize>() + offset_of!(Signals, $field)
            );
        )* };
    }
    same!(
        bytes_acked,
        bytes_misordered,
        ecn_bytes,
        ecn_packets,
        lost_pkts_sample,
        packets_acked,
        packets_misordered
    );
    same!(
        bytes_in_flight,
        bytes_pending,
        packets_in_flight,
        rate_incoming,
        rate_outgoing,
        rtt_sample_us,
        was_timeout
    );
    same!(
        srtt_us,
        min_rtt_us,
        mss,
        app_limited,
        in_recovery,
        undone,
        cwnd_limited
    );
    same!(
        owd_ns,
        rtt_ns,
        min_owd_ns,
        min_rtt_ns,
        queue_delay_ns,
        queue_delay_valid,
        paced
    );
};

/// Reinterprets C's struct as the engine's signals, which have the same layout; nothing is copied.
#[inline(always)]
fn signals_of(signals: &ccplane_signals) -> &Signals {
    let start: *const ccplane_signals = signals;
    // SAFETY: from `bytes_acked` on, the fields are those of `Signals` in the same order and all
    // are `u64`, as asserted above. The pointer is derived from the whole struct, so it may access
    // all of them.
    unsafe {
        &*start
            .byte_add(offset_of!(ccplane_signals, bytes_acked))
            .cast::<Signals>()
    }
}

#[inline(always)]
fn outcome_of(transport: &Transport, outcome: &Outcome) -> ccplane_outcome {
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    ccplane_outcome {
        size: 0,
        flags: flag(outcome.cwnd.is_some(), CCPLANE_CWND)
            | flag(outcome.rate.is_some(), CCPLANE_RATE)
            | flag(outcome.ssthresh.is_some(), CCPLANE_SSTHRESH)
            | flag(outcome.clamped, CCPLANE_LIMITED)
            | flag(outcome.fallback, CCPLANE_FALLBACK)
            | flag(outcome.report.is_some(), CCPLANE_REPORTED),
        reserved: 0,
        cwnd: outcome.cwnd.unwrap_or(transport.cwnd),
        rate: outcome.rate.unwrap_or(transport.rate),
        ssthresh: outcome.ssthresh.unwrap_or(transport.ssthresh),
    }
}
