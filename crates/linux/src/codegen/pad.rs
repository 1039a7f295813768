//! Writes generated code into a pad of the compiled BPF object before it is loaded.
//!
//! A pad is a global function `ccp_fold_N` whose body repeats `r0 = 0`. Code of any length can
//! overwrite part of it without moving anything else, so the object's relocations, line and type
//! information stay valid. The code is followed by `r0 = 0; if r0 == 0 goto <end of the pad>`: in
//! the verifier's first pass, which rejects dead code, the unused tail is reachable; in its second
//! pass the jump is always taken, and the tail is removed.

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};

use crate::codegen::asm::Insn;

/// Slots of a pad that are not available to generated code: `r0 = 0`, the jump, and its target.
pub const OVERHEAD_SLOTS: usize = 3;

const SLOT_BYTES: usize = 8;

/// A pad could not be filled. In each case the object is not the one that this crate was built
/// with.
#[derive(Debug, thiserror::Error)]
pub enum PadError {
    /// The bytes are not an ELF object.
    #[error("the BPF object cannot be read: {0}; rebuild it with crates/linux/bpf/build.sh")]
    Object(#[from] object::Error),
    /// The pad does not exist.
    #[error("the BPF object has no function {symbol}; rebuild it with crates/linux/bpf/build.sh")]
    Missing {
        /// Name of the missing function.
        symbol: String,
    },
    /// The pad has fewer consecutive free slots than the code needs: it is smaller than expected,
    /// or filled already.
    #[error(
        "{symbol} in the BPF object has {room} free instruction slots and {needed} are needed; \
         fill a fresh copy of the object"
    )]
    NoRoom {
        /// Name of the pad's function.
        symbol: String,
        /// Slots available to generated code.
        room: usize,
        /// Slots of the generated code.
        needed: usize,
    },
}

/// Writes `code` into pad number `pad` of a copy of the object.
pub fn patch(object: &mut [u8], pad: usize, code: &[Insn]) -> Result<(), PadError> {
    let symbol = format!("ccp_fold_{pad}");
    let (start, slots) = empty_slots(object, &symbol)?;
    if code.len() + OVERHEAD_SLOTS > slots {
        let (room, needed) = (slots.saturating_sub(OVERHEAD_SLOTS), code.len());
        return Err(PadError::NoRoom {
            symbol,
            room,
            needed,
        });
    }
    // The last empty slot is kept as the target of the jump.
    let over_tail = slots - code.len() - OVERHEAD_SLOTS;
    let distance = i16::try_from(over_tail).map_err(|_| PadError::NoRoom {
        symbol,
        room: i16::MAX as usize,
        needed: over_tail,
    })?;
    let end = [Insn::CLEAR_RESULT, Insn::skip_if_result_is_zero(distance)];
    let places = object[start..start + slots * SLOT_BYTES].chunks_exact_mut(SLOT_BYTES);
    for (place, insn) in places.zip(code.iter().chain(&end)) {
        place.copy_from_slice(&insn.to_bytes());
    }
    Ok(())
}

/// Returns the file offset of the pad's first empty slot and the number of consecutive empty slots.
fn empty_slots(object: &[u8], symbol: &str) -> Result<(usize, usize), PadError> {
    let missing = || PadError::Missing {
        symbol: symbol.to_owned(),
    };
    let elf = ElfFile64::<object::LittleEndian>::parse(object)?;
    let function = elf
        .symbols()
        .find(|s| s.name() == Ok(symbol))
        .ok_or_else(missing)?;
    let section = elf.section_by_index(function.section_index().ok_or_else(missing)?)?;
    let (offset, _) = section.file_range().ok_or_else(missing)?;
    // In an object file a symbol's address is its offset in its section.
    let body = section
        .data_range(function.address(), function.size())?
        .ok_or_else(missing)?;
    let start = usize::try_from(offset + function.address()).map_err(|_| missing())?;
    // The compiler may spill the argument first; r1 keeps it.
    let occupied = |slot: &&[u8]| **slot != Insn::CLEAR_RESULT.to_bytes();
    let prologue = body.chunks_exact(SLOT_BYTES).take_while(occupied).count();
    let slots = body
        .chunks_exact(SLOT_BYTES)
        .skip(prologue)
        .take_while(|slot| !occupied(slot))
        .count();
    Ok((start + prologue * SLOT_BYTES, slots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::PAD_SLOTS_MAX;

    static OBJECT: &[u8] = include_bytes!("../../bpf/prebuilt/ccplane.bpf.o");

    /// Slots that differ from the shipped object.
    fn changed(object: &[u8]) -> Vec<[u8; SLOT_BYTES]> {
        let slots = object.chunks(SLOT_BYTES).zip(OBJECT.chunks(SLOT_BYTES));
        let changed = slots
            .filter(|(now, before)| now != before)
            .map(|(now, _)| now);
        changed
            .map(|slot| slot.try_into().expect("a whole slot"))
            .collect()
    }

    #[test]
    fn filling_a_pad_changes_only_its_code() {
        for pad in 0..4 {
            let mut object = OBJECT.to_vec();
            let code = [Insn::skip_if_result_is_zero(1), Insn::EXIT];
            patch(&mut object, pad, &code).expect("the object has four pads");
            let over_tail = i16::try_from(PAD_SLOTS_MAX - code.len()).expect(
                "the value is below \
                2048",
            );
            // The `r0 = 0` before the jump is unchanged filler.
            let expected =
                [code[0], code[1], Insn::skip_if_result_is_zero(over_tail)].map(Insn::to_bytes);
            assert_eq!(changed(&object), expected);
        }
    }

    #[test]
    fn a_pad_takes_as_much_as_it_has_room_for() {
        let mut object = OBJECT.to_vec();
        patch(&mut object, 0, &[Insn::EXIT; PAD_SLOTS_MAX]).expect("it fits exactly");
        let refused = patch(&mut OBJECT.to_vec(), 1, &[Insn::EXIT; PAD_SLOTS_MAX + 1])
            .expect_err("one instruction too many");
        assert!(
            matches!(
                refused,
                PadError::NoRoom {
                    room: PAD_SLOTS_MAX,
                    ..
                }
            ),
            "{refused}"
        );
        let refused = patch(&mut object, 0, &[Insn::EXIT]).expect_err("it is filled");
        assert!(matches!(refused, PadError::NoRoom { .. }), "{refused}");
    }

    #[test]
    fn objects_without_pads_are_refused() {
        let refused = patch(&mut OBJECT.to_vec(), 4, &[]).expect_err("there are four");
        assert!(matches!(refused, PadError::Missing { .. }), "{refused}");
        assert!(matches!(patch(&mut [], 0, &[]), Err(PadError::Object(_))));
        for length in (0..OBJECT.len()).step_by(997) {
            // Must not panic; most prefixes are rejected.
            let _ = patch(&mut OBJECT[..length].to_vec(), 0, &[Insn::EXIT]);
        }
    }
}
