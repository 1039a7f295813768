//! Messages of the agent: each is read, validated, and applied or rejected as a whole.

use std::ffi::c_int;

use ccplane_wire::v1;

use super::connection::CcpConnection;
use super::functions::{_turn_off_fto_timer, connection_slots, lookup, shared_state, time};
use super::layout::{ccp_counts, ccp_datapath, code};

/// Processes the first message in `bytes`, as libccp does. A rejected message is counted by its
/// reason.
///
/// # Safety
///
/// `datapath` was passed to [`ccp_init`].
pub(super) unsafe fn handle_message(
    datapath: *mut ccp_datapath,
    bytes: &[u8],
) -> Result<(), c_int> {
    // SAFETY: the caller guarantees that `datapath` is valid, and no reference to the shared state
    // is live.
    let shared = unsafe { shared_state(datapath) }?;
    let message = first_message(bytes).inspect_err(|_| shared.counts.malformed += 1)?;
    // SAFETY: the caller guarantees that `datapath` is valid. Stopping the timer may call the log
    // callback, so the shared state is borrowed again afterwards.
    let (shared, now) = unsafe {
        _turn_off_fto_timer(datapath);
        let now = time(datapath);
        (shared_state(datapath)?, now)
    };
    // SAFETY: the caller guarantees that `datapath` is valid. The state of a connection and the
    // shared state are separate allocations.
    let state = |sid: u32| unsafe {
        let conn = lookup(datapath, sid)?;
        (*conn)
            .state
            .cast::<CcpConnection>()
            .as_mut()
            .ok_or(code::UNKNOWN_CONNECTION)
    };
    let known = |sid: u32, counts: &mut ccp_counts| state(sid).inspect_err(|_| counts.unknown += 1);
    match message {
        v1::V1Message::Install(install) => {
            // SAFETY: the caller guarantees that `datapath` is valid.
            let places = unsafe { connection_slots(datapath) } as u32;
            let runs = |uid| {
                (1..=places).any(|sid| state(sid).is_ok_and(|state| state.program() == Some(uid)))
            };
            shared.install(&install, runs)
        }
        v1::V1Message::UpdateField { flow, updates } => {
            known(flow, &mut shared.counts)?.update_fields(now, updates, shared)
        }
        v1::V1Message::ChangeProgram {
            flow,
            program,
            updates,
        } => known(flow, &mut shared.counts)?.change_program(now, program, updates, shared),
        // Unreachable: `first` accepts no other type.
        _ => Err(code::READ_INVALID_HEADER_TYPE),
    }
}

/// Returns the first message in `bytes`, with validated lengths.
fn first_message(bytes: &[u8]) -> Result<v1::V1Message<'_>, c_int> {
    let &[k0, k1, l0, l1, ..] = bytes else {
        return Err(code::BUFSIZE_TOO_SMALL);
    };
    let wrong = match u16::from_le_bytes([k0, k1]) {
        2 => code::INSTALL_TYPE_MISMATCH,
        3 => code::UPDATE_TYPE_MISMATCH,
        4 => code::CHANGE_TYPE_MISMATCH,
        _ => return Err(code::READ_INVALID_HEADER_TYPE),
    };
    let length = usize::from(u16::from_le_bytes([l0, l1]));
    if length > v1::MESSAGE_BYTES_MAX {
        return Err(code::MSG_TOO_LONG);
    }
    let message = bytes.get(..length).ok_or(code::BUFSIZE_TOO_SMALL)?;
    match v1::messages(message).next() {
        Some(Ok(message)) => Ok(message),
        _ => Err(wrong),
    }
}
