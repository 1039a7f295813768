//! Programs in CCP's INSTALL, in both directions.
//!
//! An event is four u32: first instruction and number of instructions of the condition, then of the
//! body. An instruction is a u8 operation and three registers (result, left, right), each a u8 type
//! and a u32 index or constant. Instructions that define the variables come first. The result of
//! the condition goes to the implicit register 0.

mod decode;
mod encode;

pub(crate) use encode::EncodedProgram;

use ccplane_datapath::INFINITY;

use super::{class, implicit};
use crate::message_reader::{MessageReader, PutField};
use crate::{NotExpressible, WireError};

/// Maximum instructions: the reference datapath counts them in a u8 and loops for ever at 256.
const INSTRS_MAX: usize = 255;
/// Temporaries of the reference datapath; writes beyond them are lost.
const TEMPS_MAX: usize = 8;
/// Report registers of the reference datapath, and also control registers.
const VARS_MAX: usize = 110;
/// Local registers that the reference's compiler uses; further locals become control registers.
const LOCALS_MAX: usize = 6;
/// Initial value that means +infinity to the reference.
const DEF_INFINITY: u64 = 0x3fff_ffff;

/// Numbers of the operations.
mod op {
    pub const ADD: u8 = 0;
    pub const BIND: u8 = 1;
    pub const DEF: u8 = 2;
    pub const DIV: u8 = 3;
    pub const EQUIV: u8 = 4;
    pub const EWMA: u8 = 5;
    pub const GT: u8 = 6;
    pub const IF: u8 = 7;
    pub const LT: u8 = 8;
    pub const MAX: u8 = 9;
    pub const MAXWRAP: u8 = 10;
    pub const MIN: u8 = 11;
    pub const MUL: u8 = 12;
    pub const NOTIF: u8 = 13;
    pub const SUB: u8 = 14;
}

/// Register in the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg {
    class: u8,
    index: u32,
}

const FLAG: Reg = Reg {
    class: class::IMPLICIT,
    index: implicit::FLAG,
};
const CONTINUE: Reg = Reg {
    class: class::IMPLICIT,
    index: implicit::CONTINUE,
};

impl Reg {
    fn constant(value: u64) -> Result<Reg, WireError> {
        if value < 1 << 31 || value == INFINITY {
            Ok(Reg {
                class: class::IMMEDIATE,
                index: value as u32,
            })
        } else {
            Err(WireError::NotExpressible(NotExpressible::Constant(value)))
        }
    }

    fn read(body: &mut MessageReader<'_>) -> Result<Reg, WireError> {
        Ok(Reg {
            class: body.u8()?,
            index: body.u32()?,
        })
    }

    fn write(self, out: &mut Vec<u8>) {
        out.put_u8(self.class);
        out.put_u32(self.index);
    }
}

/// Instruction in the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawInstr {
    op: u8,
    result: Reg,
    left: Reg,
    right: Reg,
}

impl RawInstr {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_u8(self.op);
        [self.result, self.left, self.right]
            .into_iter()
            .for_each(|r| r.write(out));
    }
}

/// Event in the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent {
    guard: u32,
    guard_len: u32,
    body: u32,
    body_len: u32,
}

impl RawEvent {
    pub fn write(&self, out: &mut Vec<u8>) {
        [self.guard, self.guard_len, self.body, self.body_len]
            .into_iter()
            .for_each(|n| out.put_u32(n));
    }
}

/// INSTALL with checked lengths and unchecked contents.
#[derive(Clone, Copy, Debug)]
pub struct Install<'a> {
    /// Number of the program.
    pub program: u32,
    events: &'a [[u8; 16]],
    instrs: &'a [[u8; 16]],
}

impl<'a> Install<'a> {
    /// Number of instructions, including those that define variables.
    pub fn instructions(&self) -> usize {
        self.instrs.len()
    }

    /// Hash of the program's contents, independent of the agent's number for it; never 0. An agent
    /// numbers its programs anew when it restarts, so its numbers mean nothing to a datapath that
    /// keeps running.
    pub fn identity(&self) -> u32 {
        let lengths = (self.events.len() as u64).to_le_bytes();
        let bytes = lengths
            .iter()
            .chain(self.events.iter().flatten())
            .chain(self.instrs.iter().flatten());
        // FNV-1a.
        let hash = bytes.fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        hash.max(1)
    }

    pub(super) fn read(mut body: MessageReader<'a>, says: usize) -> Result<Install<'a>, WireError> {
        let (program, events, instrs) = (body.u32()?, body.u32()? as usize, body.u32()? as usize);
        let (chunks, over) = body.into_remaining().as_chunks();
        let needs = events.saturating_add(instrs);
        if needs != chunks.len() || !over.is_empty() {
            let needs = needs.saturating_mul(16).saturating_add(20);
            return Err(WireError::LengthMismatch {
                what: "INSTALL",
                says,
                needs,
            });
        }
        let (events, instrs) = chunks.split_at(events);
        Ok(Install {
            program,
            events,
            instrs,
        })
    }
}
