//! The mapped programs: metadata and interpreter code.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

use ccplane_datapath::{Program, VARS_MAX};

use crate::map::layout::{CODE_INSNS_MAX, PROGRAM_VARS_MAX, ProgramSlot};

const _: () = assert!(VARS_MAX <= PROGRAM_VARS_MAX);

/// Writes a program into a free slot. `code` is for the interpreter; a program in a pad needs none.
/// The uid is the tag: flows are set to slot and tag together, so a flow with a stale tag does not
/// run a later program of the slot.
pub(crate) fn write(slot: &ProgramSlot, program: &Program, code: &[[u8; 16]]) {
    slot.tag.store(0, Relaxed);
    fence(Release);
    let mut volatiles = 0;
    for (index, var) in program.vars().iter().enumerate() {
        slot.init[index].store(var.init, Relaxed);
        volatiles |= u64::from(var.volatile) << index;
    }
    for init in &slot.init[program.vars().len()..] {
        init.store(0, Relaxed);
    }
    for (to, from) in slot.code.iter().zip(code) {
        // Two 8-byte halves.
        let (low, high) = from.split_at(8);
        to[0].store(
            u64::from_le_bytes(low.try_into().expect("8 bytes")),
            Relaxed,
        );
        to[1].store(
            u64::from_le_bytes(high.try_into().expect("8 bytes")),
            Relaxed,
        );
    }
    slot.code_len
        .store(code.len().min(CODE_INSNS_MAX) as u32, Relaxed);
    slot.report_vars
        .store(program.report_vars() as u32, Relaxed);
    slot.volatiles.store(volatiles, Relaxed);
    slot.tag.store(program.uid(), Release);
}
