//! What the flows of one algorithm share in one datapath: its programs, its owner's limits, its
//! sign of life.

use ccplane_units::{Duration, Time};

use crate::command::Refused;
use crate::lower::Code;
use crate::program::Program;
use crate::signals::Capabilities;

/// What the owner of a datapath lets an algorithm do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The window never falls below this many bytes. Below one segment a flow could stop for good.
    pub min_cwnd: u64,
    /// The window never exceeds this many bytes.
    pub max_cwnd: u64,
    /// The pacing rate never exceeds this many bytes/s; `u64::MAX` is no limit. A flow under a
    /// limit is always paced.
    pub max_rate: u64,
    /// An algorithm whose last heartbeat is older than this is silent, and its flows run the
    /// fallback. Too short and a pause of the agent's scheduling takes control away; too long and a
    /// dead agent's window stands that much longer.
    pub fallback_after: Duration,
}

impl Default for Limits {
    /// From one segment of IPv6's smallest link (1280 bytes less headers) to no limit, and half a
    /// second of silence.
    fn default() -> Limits {
        Limits {
            min_cwnd: 1220,
            max_cwnd: u64::MAX,
            max_rate: u64::MAX,
            fallback_after: Duration::from_millis(500),
        }
    }
}

impl Limits {
    /// `wanted` (bytes), brought within the limits.
    #[inline(always)]
    pub(crate) fn cwnd(&self, wanted: u64) -> u64 {
        wanted.max(self.min_cwnd).min(self.max_cwnd)
    }

    /// `wanted` (bytes/s), brought within the limits. 0 is the rate of a flow that is not paced,
    /// which exceeds every limit.
    #[inline(always)]
    pub(crate) fn rate(&self, wanted: u64) -> u64 {
        if wanted == 0 && self.max_rate != u64::MAX {
            self.max_rate
        } else {
            wanted.min(self.max_rate)
        }
    }
}

/// How closely to follow the reference where its documentation says something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// As CCP documents it.
    #[default]
    Documented,
    /// As libccp does it, for differential tests: one `(fallthrough)` holds for every later clause
    /// of the same call, programs run on the ACK clock only, and setting a program drops updates
    /// that were still waiting.
    Libccp,
}

impl SlotRef {
    /// No program: no slot that holds one has this generation.
    pub const NONE: SlotRef = SlotRef {
        uid: 0,
        generation: 0,
        slot: 0,
    };
}

/// The programs of one algorithm in one datapath, with what else its flows share. `P` is the number
/// of programs.
#[derive(Clone, Debug)]
pub struct ProgramTable<const P: usize = 8> {
    slots: [Slot; P],
    /// The owner's limits.
    pub limits: Limits,
    /// What this datapath can do; a program that needs more is refused.
    pub capabilities: Capabilities,
    compat: Compat,
    heartbeat: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    installed: Option<Installed>,
    /// Counts what happened to this slot, so that a flow notices that its program is no longer the
    /// one it was set to.
    generation: u32,
}

/// A program in both its forms.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub program: Program,
    pub code: Code,
}

/// Where a flow's program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRef {
    pub uid: u32,
    pub generation: u32,
    pub slot: u16,
}

impl<const P: usize> ProgramTable<P> {
    /// An empty table.
    pub fn new(limits: Limits, capabilities: Capabilities) -> ProgramTable<P> {
        ProgramTable {
            slots: core::array::from_fn(|_| Slot::default()),
            limits,
            capabilities,
            compat: Compat::default(),
            heartbeat: None,
        }
    }

    /// An empty table whose programs run as `compat` says.
    pub fn with_compat(
        limits: Limits,
        capabilities: Capabilities,
        compat: Compat,
    ) -> ProgramTable<P> {
        ProgramTable {
            compat,
            ..ProgramTable::new(limits, capabilities)
        }
    }

    /// How closely it follows the reference.
    pub fn compat(&self) -> Compat {
        self.compat
    }

    /// Adds a program, or replaces the one of the same number: flows that run it start the new one
    /// afresh at their next call.
    pub fn install(&mut self, program: Program) -> Result<(), Refused> {
        let missing = program.needs().missing_from(self.capabilities);
        if !missing.is_empty() {
            return Err(Refused::Missing(missing));
        }
        let same = self
            .slots
            .iter()
            .position(|slot| slot.uid() == Some(program.uid()));
        let free = || self.slots.iter().position(|slot| slot.installed.is_none());
        let Some(slot) = same.or_else(free).and_then(|n| self.slots.get_mut(n)) else {
            return Err(Refused::TableFull { places: P });
        };
        if slot.program() != Some(&program) {
            let code = Code::new(&program, self.compat == Compat::Libccp);
            slot.set(Some(Installed { program, code }));
        }
        Ok(())
    }

    /// Takes a program out; a flow that still runs it is on the fallback until it is set another.
    /// True if it was there.
    pub fn remove(&mut self, uid: u32) -> bool {
        match self.slots.iter_mut().find(|slot| slot.uid() == Some(uid)) {
            Some(slot) => {
                slot.set(None);
                true
            }
            None => false,
        }
    }

    /// The program of number `uid`.
    pub fn get(&self, uid: u32) -> Option<&Program> {
        self.programs().find(|program| program.uid() == uid)
    }

    /// All programs.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.slots.iter().filter_map(Slot::program)
    }

    /// The algorithm was alive at `now`.
    pub fn heartbeat(&mut self, now: Time) {
        self.heartbeat = Some(self.heartbeat.map_or(now, |last| last.max(now)));
    }

    /// The last sign of life, if there was one.
    pub fn last_heartbeat(&self) -> Option<Time> {
        self.heartbeat
    }

    /// Where the program of number `uid` is.
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

    /// The program at `slot`, if it is still the one that was there.
    #[inline(always)]
    pub(crate) fn at(&self, slot: SlotRef) -> Option<&Installed> {
        let found = self.slots.get(usize::from(slot.slot))?;
        if found.generation == slot.generation {
            found.installed.as_ref()
        } else {
            None
        }
    }
}

impl Slot {
    fn program(&self) -> Option<&Program> {
        self.installed.as_ref().map(|installed| &installed.program)
    }

    fn uid(&self) -> Option<u32> {
        self.program().map(Program::uid)
    }

    fn set(&mut self, installed: Option<Installed>) {
        self.installed = installed;
        // From 1 on, since 0 is what a flow without a program looks for.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
    }
}
