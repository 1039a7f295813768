//! Functions of `ccp.h`. The structs are memory of the caller, and its callbacks may call the
//! library again, so nothing in them is borrowed during a callback.
//!
//! As in libccp, the caller has to serialize the calls for a datapath and initialize the memory of
//! connections to zero.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU16, Ordering};

use ccplane_units::Time;
use ccplane_wire::v1;

use super::connection::{CcpConnection, create};
use super::layout::{ccp_connection, ccp_counts, ccp_datapath, ccp_datapath_info, code};
use super::messages::handle_message;
use super::shared::CcpPrograms;
use crate::caller_memory::catch_panic;
use crate::types::CCPLANE_EPANIC;

/// Interval after which a CREATE that could not be sent is retried, µs.
const CREATE_RETRY_INTERVAL_US: u64 = 100_000;

const LOG_INFO: c_int = 2;
const LOG_WARN: c_int = 3;

/// Initializes a datapath and announces it to the agent. `datapath` must be filled in as described
/// in `ccp.h`.
///
/// # Safety
///
/// `datapath` is null or fully initialized; it and its connections are neither moved nor freed
/// before [`ccp_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_init(datapath: *mut ccp_datapath, id: u32) -> c_int {
    // SAFETY: the caller guarantees that `datapath` is null or initialized.
    status(|| unsafe {
        let filled = datapath.as_ref().is_some_and(|dp| {
            let calls = dp.set_cwnd.is_some() && dp.set_rate_abs.is_some() && dp.send_msg.is_some();
            let clock = dp.now.is_some() && dp.since_usecs.is_some() && dp.after_usecs.is_some();
            let sizes = dp.max_connections > 0 && dp.max_programs > 0 && dp.fto_us > 0;
            calls && clock && sizes && !dp.ccp_active_connections.is_null()
        });
        if !filled {
            return Err(code::MISSING_ARG);
        }
        let shared = Box::new(CcpPrograms::new((*datapath).max_programs));
        (*datapath).programs = Box::into_raw(shared).cast();
        (*datapath).log = (*datapath).log.or(Some(silent));
        (*datapath).time_zero = (*datapath).now.map_or(0, |now| now());
        (*datapath).last_msg_sent = 0;
        (*datapath)._in_fallback = 0;
        let mut ready = Vec::new();
        v1::ready(&mut ready, id);
        if send(datapath, &ready) < 0 {
            log(
                datapath,
                LOG_WARN,
                "cannot announce the datapath to the agent: send_msg failed",
            );
        }
        Ok(())
    })
}

/// Frees a datapath with its remaining connections.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_free(datapath: *mut ccp_datapath) {
    // SAFETY: the caller guarantees that `datapath` is null or initialized. Pointers boxed by
    // `ccp_init` and `ccp_connection_start` are freed once, since they are null afterwards.
    status(|| unsafe {
        ensure_alive(datapath)?;
        for place in 0..connection_slots(datapath) {
            let conn = (*datapath).ccp_active_connections.add(place);
            if usize::from((*conn).index) == place + 1 {
                drop(take_state(conn));
                (*conn).index = 0;
            }
        }
        drop(Box::from_raw((*datapath).programs.cast::<CcpPrograms>()));
        (*datapath).programs = std::ptr::null_mut();
        Ok(())
    });
}

/// Starts a connection; null if no slot is free. The agent is notified now or by a later
/// [`ccp_invoke`].
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`]; `flow_info` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_connection_start(
    datapath: *mut ccp_datapath,
    r#impl: *mut c_void,
    flow_info: *mut ccp_datapath_info,
) -> *mut ccp_connection {
    // SAFETY: the caller guarantees that the pointers are null or valid. A slot is owned by the
    // call that changed its index from 0.
    let start = || unsafe {
        ensure_alive(datapath).ok()?;
        let info = *flow_info.as_ref()?;
        let place = (0..connection_slots(datapath)).find(|place| {
            let index = &raw mut (*(*datapath).ccp_active_connections.add(*place)).index;
            let taken = AtomicU16::from_ptr(index).compare_exchange(
                0,
                *place as u16 + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            taken.is_ok()
        })?;
        let conn = (*datapath).ccp_active_connections.add(place);
        let state = Box::new(CcpConnection::new(time(datapath), info.init_cwnd));
        (*conn).last_create_msg_sent = 0;
        (*conn).prims = Default::default();
        (*conn).flow_info = info;
        (*conn).state = Box::into_raw(state).cast();
        (*conn).impl_ = r#impl;
        (*conn).datapath = datapath;
        announce(datapath, conn);
        Some(conn)
    };
    catch_panic(start, None).unwrap_or(std::ptr::null_mut())
}

/// Ends a connection and notifies the agent.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_connection_free(datapath: *mut ccp_datapath, sid: u16) {
    // SAFETY: the caller guarantees that `datapath` is null or initialized.
    status(|| unsafe {
        let conn = lookup(datapath, sid.into())?;
        if let Some(state) = take_state(conn) {
            shared_state(datapath)?.counts.faults += u64::from(state.faults());
        }
        let mut closed = Vec::new();
        // Cannot fail: a message without fields always fits.
        let _ = v1::measure(&mut closed, sid.into(), 0, &[]);
        send(datapath, &closed);
        AtomicU16::from_ptr(&raw mut (*conn).index).store(0, Ordering::Release);
        Ok(())
    });
}

/// Returns the connection with this number; null if there is none.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_connection_lookup(
    datapath: *mut ccp_datapath,
    sid: u16,
) -> *mut ccp_connection {
    // SAFETY: the caller guarantees that `datapath` is null or initialized.
    catch_panic(
        || unsafe { lookup(datapath, sid.into()) },
        Err(CCPLANE_EPANIC),
    )
    .unwrap_or(std::ptr::null_mut())
}

/// Returns the caller's data of a connection.
///
/// # Safety
///
/// `conn` is null or from [`ccp_connection_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_get_impl(conn: *mut ccp_connection) -> *mut c_void {
    // SAFETY: the caller guarantees that `conn` is null or valid.
    unsafe { conn.as_ref() }.map_or(std::ptr::null_mut(), |conn| conn.impl_)
}

/// Sets the caller's data of a connection.
///
/// # Safety
///
/// `conn` is null or from [`ccp_connection_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_set_impl(conn: *mut ccp_connection, ptr: *mut c_void) {
    // SAFETY: the caller guarantees that `conn` is null or valid.
    if let Some(conn) = unsafe { conn.as_mut() } {
        conn.impl_ = ptr;
    }
}

/// Processes a message of the agent. An invalid message is rejected as a whole and counted, and the
/// code gives the reason.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`]; `buf` is null or valid for `bufsize` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_read_msg(
    datapath: *mut ccp_datapath,
    buf: *mut c_char,
    bufsize: c_int,
) -> c_int {
    // SAFETY: the caller guarantees that `datapath` is null or initialized, and that `buf` is null
    // or valid for `bufsize` bytes.
    status(|| unsafe {
        ensure_alive(datapath)?;
        if buf.is_null() {
            return Err(code::NULL_ARG);
        }
        let size = usize::try_from(bufsize).map_err(|_| code::BUFSIZE_NEGATIVE)?;
        let bytes = std::slice::from_raw_parts(buf.cast::<u8>(), size);
        let heard = handle_message(datapath, bytes);
        let counts = &mut shared_state(datapath)?.counts;
        counts.messages += 1;
        if let Err(code) = heard {
            counts.refused += 1;
            let refused = counts.refused;
            // Limits the log of an agent that sends only invalid messages.
            if refused.is_power_of_two() {
                let words = format!("refused a message of the agent: {code}; {refused} so far");
                log(datapath, LOG_WARN, &words);
            }
        }
        heard
    })
}

/// Processes an ACK or a timeout: runs the connection's program on `conn->prims`.
///
/// # Safety
///
/// `conn` is null or from [`ccp_connection_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_invoke(conn: *mut ccp_connection) -> c_int {
    // SAFETY: the caller guarantees that `conn` is null or valid, and that its datapath is live.
    status(|| unsafe {
        if conn.is_null() {
            return Err(code::NULL_ARG);
        }
        let datapath = (*conn).datapath;
        if datapath.is_null() {
            return Err(code::CONNECTION_NOT_INITIALIZED);
        }
        ensure_alive(datapath)?;
        if timed_out(datapath) {
            return Err(code::FALLBACK_TIMED_OUT);
        }
        let now = time(datapath);
        let state = (*conn)
            .state
            .cast::<CcpConnection>()
            .as_mut()
            .ok_or(code::PRIV_IS_NULL)?;
        if !state.announced {
            announce(datapath, conn);
            return Ok(());
        }
        let asked = state.invoke(now, (*conn).index, &(*conn).prims, shared_state(datapath)?)?;
        // Callbacks may follow from here on, so nothing is borrowed.
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        if let (Some(cwnd), Some(set)) = (asked.outcome.cwnd, (*datapath).set_cwnd) {
            set(conn, narrow(cwnd));
        }
        if let (Some(rate), Some(set)) = (asked.outcome.rate, (*datapath).set_rate_abs) {
            set(conn, narrow(rate));
        }
        if let Some(report) = asked.report {
            let sent = send(datapath, &report.0);
            // The callback may have freed the connection or the datapath.
            let shared = shared_state(datapath)?;
            let count = if sent < 0 {
                &mut shared.counts.reports_kept
            } else {
                &mut shared.counts.reports
            };
            *count += 1;
            if let Some(state) = (*conn).state.cast::<CcpConnection>().as_mut() {
                state.on_report_sent(report, sent >= 0, shared);
            }
        }
        Ok(())
    })
}

/// Stores the counts of received and rejected messages. Not part of libccp.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`]; `counts` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ccp_get_counts(
    datapath: *mut ccp_datapath,
    counts: *mut ccp_counts,
) -> c_int {
    // SAFETY: the caller guarantees that both pointers are null or valid.
    status(|| unsafe {
        let shared = shared_state(datapath)?;
        *counts.as_mut().ok_or(code::NULL_ARG)? = shared.counts;
        Ok(())
    })
}

/// Starts the `fto_us` timer after a message could not be sent.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _update_fto_timer(datapath: *mut ccp_datapath) {
    // SAFETY: the caller guarantees that `datapath` is null or initialized.
    status(|| unsafe {
        ensure_alive(datapath)?;
        if (*datapath).last_msg_sent == 0 {
            (*datapath).last_msg_sent = (*datapath).now.map_or(0, |now| now());
        }
        Ok(())
    });
}

/// Returns true if the timer has expired.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _check_fto(datapath: *mut ccp_datapath) -> bool {
    // SAFETY: the caller guarantees that `datapath` is null or initialized.
    catch_panic(
        || unsafe { ensure_alive(datapath).is_ok() && timed_out(datapath) },
        false,
    )
}

/// Stops the timer after a message from the agent.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _turn_off_fto_timer(datapath: *mut ccp_datapath) {
    // SAFETY: the caller guarantees that `datapath` is null or initialized.
    status(|| unsafe {
        ensure_alive(datapath)?;
        if (*datapath)._in_fallback != 0 {
            log(datapath, LOG_INFO, "the agent responds again");
        }
        (*datapath)._in_fallback = 0;
        (*datapath).last_msg_sent = 0;
        Ok(())
    });
}

fn status(body: impl FnOnce() -> Result<(), c_int>) -> c_int {
    match catch_panic(body, Err(CCPLANE_EPANIC)) {
        Ok(()) => code::OK,
        Err(code) => code,
    }
}

/// Returns the state shared by a datapath's connections.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`], and no other reference to the shared state is
/// live while the result is used.
pub(super) unsafe fn shared_state<'a>(
    datapath: *mut ccp_datapath,
) -> Result<&'a mut CcpPrograms, c_int> {
    if datapath.is_null() {
        return Err(code::NULL_ARG);
    }
    // SAFETY: the caller guarantees that `datapath` is initialized; `programs` is null or was boxed
    // by `ccp_init`, and the caller holds no other reference to it.
    unsafe { (*datapath).programs.cast::<CcpPrograms>().as_mut() }.ok_or(code::PROG_IS_NULL)
}

/// Returns an error if the datapath is null, not initialized or freed.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`].
unsafe fn ensure_alive(datapath: *mut ccp_datapath) -> Result<(), c_int> {
    // SAFETY: the caller guarantees that `datapath` is null or valid.
    match unsafe { datapath.as_ref() } {
        None => Err(code::NULL_ARG),
        Some(dp) if dp.programs.is_null() => Err(code::PROG_IS_NULL),
        Some(_) => Ok(()),
    }
}

/// Returns the number of connection slots: numbers have 16 bits, and 0 is invalid.
///
/// # Safety
///
/// `datapath` was passed to [`ccp_init`].
pub(super) unsafe fn connection_slots(datapath: *mut ccp_datapath) -> usize {
    // SAFETY: the caller guarantees that `datapath` is valid.
    unsafe { (*datapath).max_connections }.min(usize::from(u16::MAX) - 1)
}

/// Returns the live connection with this number.
///
/// # Safety
///
/// `datapath` is null or was passed to [`ccp_init`].
pub(super) unsafe fn lookup(
    datapath: *mut ccp_datapath,
    sid: u32,
) -> Result<*mut ccp_connection, c_int> {
    // SAFETY: the caller guarantees that `datapath` is null or initialized; the index is checked
    // against the number of slots.
    unsafe {
        ensure_alive(datapath)?;
        let place = (sid as usize)
            .checked_sub(1)
            .filter(|place| *place < connection_slots(datapath));
        let conn = (*datapath)
            .ccp_active_connections
            .add(place.ok_or(code::UNKNOWN_CONNECTION)?);
        let lives = u32::from((*conn).index) == sid && !(*conn).state.is_null();
        lives.then_some(conn).ok_or(code::UNKNOWN_CONNECTION)
    }
}

/// Removes the library's state from a connection.
///
/// # Safety
///
/// `conn` is a slot of the datapath.
unsafe fn take_state(conn: *mut ccp_connection) -> Option<Box<CcpConnection>> {
    // SAFETY: the caller guarantees a valid slot. `state` is null or was boxed by
    // `ccp_connection_start`, and is set to null here.
    unsafe {
        let state = std::mem::replace(&mut (*conn).state, std::ptr::null_mut());
        (!state.is_null()).then(|| Box::from_raw(state.cast::<CcpConnection>()))
    }
}

/// Returns the time since [`ccp_init`].
///
/// # Safety
///
/// `datapath` was passed to [`ccp_init`].
pub(super) unsafe fn time(datapath: *mut ccp_datapath) -> Time {
    // SAFETY: the caller guarantees that `datapath` is valid.
    unsafe {
        let zero = (*datapath).time_zero;
        Time::from_micros((*datapath).since_usecs.map_or(0, |since| since(zero)))
    }
}

/// Returns true if the fallback timer has expired, and logs it once.
///
/// # Safety
///
/// `datapath` was passed to [`ccp_init`].
unsafe fn timed_out(datapath: *mut ccp_datapath) -> bool {
    // SAFETY: the caller guarantees that `datapath` is valid.
    unsafe {
        let since = (*datapath).last_msg_sent;
        let out = since != 0
            && (*datapath)
                .since_usecs
                .is_some_and(|passed| passed(since) > (*datapath).fto_us);
        if out && (*datapath)._in_fallback == 0 {
            (*datapath)._in_fallback = 1;
            log(
                datapath,
                LOG_WARN,
                "the agent does not accept messages; ccp_invoke has no effect until it responds",
            );
        }
        out
    }
}

/// Passes a message to the caller's `send_msg`. Nothing may be borrowed, since the callback may
/// call the library.
///
/// # Safety
///
/// `datapath` was passed to [`ccp_init`].
unsafe fn send(datapath: *mut ccp_datapath, message: &[u8]) -> c_int {
    // SAFETY: the caller guarantees that `datapath` is valid. The callback takes `char *` only
    // because libccp's declaration lacks `const`.
    unsafe {
        let Some(send) = (*datapath).send_msg else {
            return code::MISSING_ARG;
        };
        let sent = send(
            datapath,
            message.as_ptr().cast_mut().cast(),
            message.len() as c_int,
        );
        if sent < 0 {
            _update_fto_timer(datapath);
        }
        sent
    }
}

/// Announces a connection to the agent, unless that was attempted recently.
///
/// # Safety
///
/// Both pointers are valid, and nothing in them is borrowed.
unsafe fn announce(datapath: *mut ccp_datapath, conn: *mut ccp_connection) {
    // SAFETY: the caller guarantees that both pointers are valid.
    unsafe {
        let last = (*conn).last_create_msg_sent;
        let passed = (*datapath).since_usecs.map_or(0, |since| since(last));
        if last != 0 && passed < CREATE_RETRY_INTERVAL_US {
            return;
        }
        (*conn).last_create_msg_sent = (*datapath).now.map_or(0, |now| now());
        let sent = send(datapath, &create((*conn).index, &(*conn).flow_info));
        if let Some(state) = (*conn).state.cast::<CcpConnection>().as_mut() {
            state.announced |= sent >= 0;
        }
    }
}

unsafe extern "C" fn silent(_: *mut ccp_datapath, _: c_int, _: *const c_char, _: c_int) {}

/// Passes a line to the caller's log.
///
/// # Safety
///
/// `datapath` was passed to [`ccp_init`]. Nothing may be borrowed, since the callback may call the
/// library.
unsafe fn log(datapath: *mut ccp_datapath, level: c_int, words: &str) {
    let Ok(words) = CString::new(words) else {
        return;
    };
    // SAFETY: the caller guarantees that `datapath` is valid.
    if let Some(log) = unsafe { (*datapath).log } {
        // SAFETY: the callback is the caller's, and `words` lives during the call.
        unsafe {
            log(
                datapath,
                level,
                words.as_ptr(),
                words.count_bytes() as c_int,
            )
        };
    }
}
