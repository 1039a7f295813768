//! State shared by the flows of one algorithm in a datapath: its programs, the operator's limits,
//! and the last heartbeat.

use ccplane_units::{Duration, Time};

use crate::command::CommandError;
use crate::lower::LoweredCode;
use crate::program::Program;
use crate::signals::Capabilities;

/// Limits that the operator of a datapath sets for an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorLimits {
    /// Minimum window, bytes. Below one segment a flow could stall.
    pub min_cwnd: u64,
    /// Maximum window, bytes.
    pub max_cwnd: u64,
    /// Maximum pacing rate, bytes/s; `u64::MAX` is no limit. A flow with a limit is always paced.
    pub max_rate: u64,
    /// Agent timeout: an algorithm whose last heartbeat is older than this is silent, and its flows
    /// run the fallback. If it is too short, a scheduling delay of the agent takes control away; if
    /// it is too long, the window of a dead agent stays that much longer.
    pub agent_timeout: Duration,
}

impl Default for OperatorLimits {
    /// From one segment on IPv6's minimum link MTU (1280 bytes less headers) to no limit, with an
    /// agent timeout of half a second.
    fn default() -> OperatorLimits {
        OperatorLimits {
            min_cwnd: 1220,
            max_cwnd: u64::MAX,
            max_rate: u64::MAX,
            agent_timeout: Duration::from_millis(500),
        }
    }
}

impl OperatorLimits {
    /// Clamps a window in bytes to the limits.
    #[inline(always)]
    pub(crate) fn clamp_cwnd(&self, wanted: u64) -> u64 {
        wanted.max(self.min_cwnd).min(self.max_cwnd)
    }

    /// Clamps a rate in bytes/s to the limits. 0 is the rate of a flow that is not paced, which
    /// exceeds every limit.
    #[inline(always)]
    pub(crate) fn clamp_rate(&self, wanted: u64) -> u64 {
        if wanted == 0 && self.max_rate != u64::MAX {
            self.max_rate
        } else {
            wanted.min(self.max_rate)
        }
    }
}

/// Choice between the reference's documentation and its behaviour where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// As documented by CCP.
    #[default]
    Documented,
    /// As implemented by libccp, for differential tests: one `(fallthrough)` applies to all later
    /// clauses of the same call, programs run on the ACK clock only, and setting a program drops
    /// pending updates.
    Libccp,
}

impl SlotRef {
    /// No program: no slot in use has this generation.
    pub const NONE: SlotRef = SlotRef {
        uid: 0,
        generation: 0,
        slot: 0,
    };
}

/// Programs of one algorithm in one datapath, with the other state that its flows share. `P` is the
/// number of slots.
#[derive(Clone, Debug)]
pub struct ProgramTable<const P: usize = 8> {
    slots: [ProgramSlot; P],
    /// Operator's limits.
    pub limits: OperatorLimits,
    /// Capabilities of this datapath; a program that requires more is refused.
    pub capabilities: Capabilities,
    compat: Compat,
    heartbeat: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct ProgramSlot {
    installed: Option<InstalledProgram>,
    /// Counts the changes of this slot, so that a flow detects that its program was replaced or
    /// removed.
    generation: u32,
}

/// Program in both its forms.
#[derive(Clone, Debug)]
pub(crate) struct InstalledProgram {
    pub program: Program,
    pub code: LoweredCode,
}

/// Reference to a flow's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRef {
    pub uid: u32,
    pub generation: u32,
    pub slot: u16,
}

impl<const P: usize> ProgramTable<P> {
    /// Creates an empty table.
    pub fn new(limits: OperatorLimits, capabilities: Capabilities) -> ProgramTable<P> {
        ProgramTable {
            slots: core::array::from_fn(|_| ProgramSlot::default()),
            limits,
            capabilities,
            compat: Compat::default(),
            heartbeat: None,
        }
    }

    /// Creates an empty table with the given compatibility.
    pub fn with_compat(
        limits: OperatorLimits,
        capabilities: Capabilities,
        compat: Compat,
    ) -> ProgramTable<P> {
        ProgramTable {
            compat,
            ..ProgramTable::new(limits, capabilities)
        }
    }

    /// Compatibility with the reference.
    pub fn compat(&self) -> Compat {
        self.compat
    }

    /// Adds a program, or replaces the one with the same number: flows that run it restart it at
    /// their next call.
    pub fn install(&mut self, program: Program) -> Result<(), CommandError> {
        let missing = program
            .required_capabilities()
            .missing_from(self.capabilities);
        if !missing.is_empty() {
            return Err(CommandError::MissingCapabilities(missing));
        }
        let same = self
            .slots
            .iter()
            .position(|slot| slot.uid() == Some(program.uid()));
        let free = || self.slots.iter().position(|slot| slot.installed.is_none());
        let Some(slot) = same.or_else(free).and_then(|n| self.slots.get_mut(n)) else {
            return Err(CommandError::TableFull { places: P });
        };
        if slot.program() != Some(&program) {
            let code = LoweredCode::new(&program, self.compat == Compat::Libccp);
            slot.set(Some(InstalledProgram { program, code }));
        }
        Ok(())
    }

    /// Removes a program. A flow that still runs it uses the fallback until another is set. Returns
    /// true if it was installed.
    pub fn remove(&mut self, uid: u32) -> bool {
        match self.slots.iter_mut().find(|slot| slot.uid() == Some(uid)) {
            Some(slot) => {
                slot.set(None);
                true
            }
            None => false,
        }
    }

    /// Returns the program with number `uid`.
    pub fn get(&self, uid: u32) -> Option<&Program> {
        self.programs().find(|program| program.uid() == uid)
    }

    /// All programs.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.slots.iter().filter_map(ProgramSlot::program)
    }

    /// Records a heartbeat of the algorithm at `now`.
    pub fn record_heartbeat(&mut self, now: Time) {
        self.heartbeat = Some(self.heartbeat.map_or(now, |last| last.max(now)));
    }

    /// Time of the last heartbeat.
    pub fn last_heartbeat(&self) -> Option<Time> {
        self.heartbeat
    }

    /// Returns the slot of the program with number `uid`.
    pub(crate) fn find(&self, uid: u32) -> Option<(SlotRef, &Program)> {
        self.slots.iter().enumerate().find_map(|(n, slot)| {
            let program = slot.program().filter(|program| program.uid() == uid)?;
            let slot = SlotRef {
                uid,
                generation: slot.generation,
                slot: n as u16,
            };
            Some((slot, program))
        })
    }

    /// Returns the program in `slot`, unless the slot has changed.
    #[inline(always)]
    pub(crate) fn resolve(&self, slot: SlotRef) -> Option<&InstalledProgram> {
        let found = self.slots.get(usize::from(slot.slot))?;
        if found.generation == slot.generation {
            found.installed.as_ref()
        } else {
            None
        }
    }
}

impl ProgramSlot {
    fn program(&self) -> Option<&Program> {
        self.installed.as_ref().map(|installed| &installed.program)
    }

    fn uid(&self) -> Option<u32> {
        self.program().map(Program::uid)
    }

    fn set(&mut self, installed: Option<InstalledProgram>) {
        self.installed = installed;
        // From 1 on, since 0 is the generation of a flow without a program.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_number_until_it_is_removed() {
        let mut table = ProgramTable::<2>::new(OperatorLimits::default(), Capabilities::default());
        let program = |uid| Program::check(uid, &[], &[], &[]).expect("an empty program");
        for uid in [5, 6] {
            table.install(program(uid)).expect("there is room");
        }
        let found = [4, 5, 6].map(|uid| table.get(uid).map(Program::uid));
        assert_eq!(found, [None, Some(5), Some(6)]);
        let full = table.install(program(7));
        assert_eq!(full, Err(CommandError::TableFull { places: 2 }));
        assert_eq!((table.remove(5), table.remove(5)), (true, false));
        assert!(table.get(5).is_none());
    }
}
