//! Programs of each algorithm, shared by the flows of a datapath, and the heartbeat of each.

use std::sync::Arc;

use ccplane_datapath::{
    self as datapath, Capabilities, Flow, OperatorLimits, Program, ProgramTable,
};
use ccplane_units::Time;
use ccplane_wire::{DatapathInfo, Refusal, WireCommand, WireEvent};

/// Maximum programs per algorithm; further ones are refused.
pub const PROGRAMS_MAX: usize = 8;

/// Maximum number of algorithms. An agent hosts a few dozen at most. Names are external input, so
/// without a limit an agent that sends garbage could fill memory.
pub const ALGORITHMS_MAX: usize = 64;

/// Maximum variables of a program; one with more is refused. Cubic's program uses 28, and each
/// takes 8 bytes per flow.
pub const FLOW_VARS_MAX: usize = 32;

/// Programs of every algorithm on one datapath, for a datapath that interprets them. The datapath
/// stores the flows, and with each the [`TableId`] of its program.
#[derive(Debug)]
pub struct ProgramTables {
    /// Tables by algorithm, in the order of first use.
    tables: Vec<(Arc<str>, ProgramTable<PROGRAMS_MAX>)>,
    /// Empty table of flows that have no program yet; it makes them fall back if none arrives.
    empty: Box<ProgramTable<PROGRAMS_MAX>>,
}

/// A datapath may be moved by value on the stack of a thread, which may be small (2 MiB in Rust). A
/// program table takes 90 kB, so none is stored inline.
const _: () = assert!(size_of::<ProgramTables>() <= 64);

/// Index of the program table of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId(u32);

impl TableId {
    /// No table: the flow has no program yet.
    pub const NO_TABLE: TableId = TableId(u32::MAX);
}

impl ProgramTables {
    /// Creates an empty set for a datapath with these capabilities and the operator's limits.
    pub fn new(limits: OperatorLimits, capabilities: Capabilities) -> ProgramTables {
        ProgramTables {
            tables: Vec::new(),
            empty: Box::new(ProgramTable::new(limits, capabilities)),
        }
    }

    /// Describes the datapath to an agent.
    pub fn describe(&self, id: u32, kind: &str) -> DatapathInfo {
        DatapathInfo {
            id,
            kind: kind.to_owned(),
            capabilities: self.empty.capabilities,
            max_programs: PROGRAMS_MAX as u32,
            max_instrs: datapath::INSTRS_MAX as u32,
            max_vars: FLOW_VARS_MAX as u32,
            agent_timeout: Some(self.empty.limits.agent_timeout),
        }
    }

    /// Programs of a flow, for its calls.
    #[inline(always)]
    pub fn get(&self, table: TableId) -> &ProgramTable<PROGRAMS_MAX> {
        match self.tables.get(table.0 as usize) {
            Some((_, programs)) => programs,
            None => &self.empty,
        }
    }

    /// Handles a command of the agent and returns the event to send to it. `find` returns the live
    /// flow of a number.
    pub fn handle<'f>(
        &mut self,
        now: Time,
        command: &WireCommand,
        find: impl FnOnce(u64) -> Option<(&'f mut Flow<FLOW_VARS_MAX>, &'f mut TableId)>,
    ) -> Option<WireEvent<'static>> {
        let (number, uid, command) = match command {
            WireCommand::Install { algorithm, program } => {
                return Some(self.install(algorithm, program));
            }
            WireCommand::Offer(_) => return None,
            WireCommand::Heartbeat { algorithm } => {
                if let Some(table) = self.table_of_algorithm(algorithm) {
                    table.record_heartbeat(now);
                }
                return None;
            }
            WireCommand::SetProgram { flow, uid, updates } => {
                let updates = updates.as_slice();
                (
                    *flow,
                    *uid,
                    datapath::Command::SetProgram { uid: *uid, updates },
                )
            }
            WireCommand::Update { flow, updates } => {
                (*flow, 0, datapath::Command::Update(updates.as_slice()))
            }
            WireCommand::Release { flow } => (*flow, 0, datapath::Command::Release),
        };
        let found = find(number).ok_or(Refusal::UnknownFlow);
        let applied = found.and_then(|(flow, table)| self.apply(now, &command, flow, table));
        applied.err().map(|why| WireEvent::Refused {
            flow: Some(number),
            program: uid,
            why,
        })
    }

    fn apply(
        &self,
        now: Time,
        command: &datapath::Command<'_>,
        flow: &mut Flow<FLOW_VARS_MAX>,
        table: &mut TableId,
    ) -> Result<(), Refusal> {
        let (place, uid) = match command {
            datapath::Command::SetProgram { uid, .. } => (self.table_of_program(*uid), *uid),
            datapath::Command::Update(_) => (*table, 0),
            datapath::Command::Release => return Ok(flow.apply(now, command, self.get(*table))?),
        };
        let (_, programs) = self
            .tables
            .get(place.0 as usize)
            .ok_or(Refusal::UnknownProgram(uid))?;
        flow.apply(now, command, programs)?;
        *table = place;
        Ok(())
    }

    fn install(&mut self, algorithm: &Arc<str>, program: &Program) -> WireEvent<'static> {
        let uid = program.uid();
        let installed = match self.table_of_algorithm(algorithm) {
            Some(table) => table.install(program.clone()).map_err(Refusal::from),
            None => Err(Refusal::TableFull),
        };
        match installed {
            Ok(()) => WireEvent::Installed { program: uid },
            Err(why) => WireEvent::Refused {
                flow: None,
                program: uid,
                why,
            },
        }
    }

    /// Returns the table that holds this program.
    fn table_of_program(&self, uid: u32) -> TableId {
        let place = self
            .tables
            .iter()
            .position(|(_, table)| table.get(uid).is_some());
        place.map_or(TableId::NO_TABLE, |place| TableId(place as u32))
    }

    /// Returns the table of this algorithm. If all slots are in use, a new one replaces a table
    /// without programs, which no flow runs; `None` if there is none.
    fn table_of_algorithm(
        &mut self,
        algorithm: &Arc<str>,
    ) -> Option<&mut ProgramTable<PROGRAMS_MAX>> {
        let known = self.tables.iter().position(|(name, _)| name == algorithm);
        let place = match known {
            Some(place) => place,
            None => {
                let table = ProgramTable::new(self.empty.limits, self.empty.capabilities);
                let entry = (algorithm.clone(), table);
                if self.tables.len() < ALGORITHMS_MAX {
                    self.tables.push(entry);
                    self.tables.len() - 1
                } else {
                    let unused =
                        |(_, table): &(_, ProgramTable<_>)| table.programs().next().is_none();
                    let place = self.tables.iter().position(unused)?;
                    self.tables[place] = entry;
                    place
                }
            }
        };
        Some(&mut self.tables[place].1)
    }
}

#[cfg(test)]
mod tests {
    use ccplane_lang::ProgramLimits as Language;
    use ccplane_wire::Updates;

    use super::*;

    const START_TIME: Time = Time::from_micros(1_000);

    fn install(algorithm: &str, uid: u32) -> WireCommand {
        let source = "(def (Report (volatile acked 0)) (gain 1)) \
                      (when true (:= Report.acked gain) (report))";
        let program = ccplane_lang::compile(source, &Language::default()).expect("it compiles");
        WireCommand::Install {
            algorithm: algorithm.into(),
            program: Arc::new(program.code().with_uid(uid)),
        }
    }

    fn nothing() -> Updates {
        std::iter::empty().collect()
    }

    fn set(uid: u32) -> WireCommand {
        WireCommand::SetProgram {
            flow: 1,
            uid,
            updates: nothing(),
        }
    }

    #[test]
    fn a_flow_runs_the_program_it_was_set_to_under_the_heartbeat_of_its_algorithm() {
        let mut tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
        let (mut flow, mut table) = (Flow::new(START_TIME, 10_000), TableId::NO_TABLE);
        let mut tell = |tables: &mut ProgramTables, command: &WireCommand| {
            let answer = tables.handle(START_TIME, command, |number| {
                (number == 1).then_some((&mut flow, &mut table))
            });
            (answer, table)
        };
        for (algorithm, uid) in [("one", 10), ("other", 20)] {
            let (answer, _) = tell(&mut tables, &install(algorithm, uid));
            assert_eq!(answer, Some(WireEvent::Installed { program: uid }));
        }
        let other = "other".into();
        assert_eq!(
            tell(&mut tables, &WireCommand::Heartbeat { algorithm: other }).0,
            None
        );
        let (answer, table) = tell(&mut tables, &set(20));
        assert_eq!(
            (answer, tables.get(table).last_heartbeat()),
            (None, Some(START_TIME))
        );
        let (answer, table) = tell(&mut tables, &set(10));
        assert_eq!((answer, tables.get(table).last_heartbeat()), (None, None));
        let (answer, after) = tell(&mut tables, &set(30));
        let refused = WireEvent::Refused {
            flow: Some(1),
            program: 30,
            why: Refusal::UnknownProgram(30),
        };
        assert_eq!(
            (answer, after),
            (Some(refused), table),
            "the flow keeps its values"
        );
    }

    #[test]
    fn unbounded_names_use_bounded_memory() {
        let mut tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
        let tell = |tables: &mut ProgramTables, command: &WireCommand| {
            tables.handle(START_TIME, command, |_| None)
        };
        assert_eq!(
            tell(&mut tables, &install("first", 1)),
            Some(WireEvent::Installed { program: 1 })
        );
        for n in 0..1_000 {
            let algorithm = n.to_string().into();
            assert_eq!(
                tell(&mut tables, &WireCommand::Heartbeat { algorithm }),
                None
            );
        }
        assert_eq!(tables.tables.len(), ALGORITHMS_MAX);
        // New algorithms replace those without programs.
        let taken = (2..=ALGORITHMS_MAX as u32)
            .map(|uid| tell(&mut tables, &install(&format!("own {uid}"), uid)));
        assert!(
            taken
                .into_iter()
                .all(|answer| matches!(answer, Some(WireEvent::Installed { .. })))
        );
        let refused = WireEvent::Refused {
            flow: None,
            program: 100,
            why: Refusal::TableFull,
        };
        assert_eq!(tell(&mut tables, &install("one more", 100)), Some(refused));
        assert_eq!(
            (tables.table_of_program(1), tables.tables.len()),
            (TableId(0), ALGORITHMS_MAX)
        );
    }

    #[test]
    fn a_flow_is_released_whatever_it_runs() {
        let mut tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
        tables.handle(START_TIME, &install("one", 10), |_| None);
        tables.handle(
            START_TIME,
            &WireCommand::Heartbeat {
                algorithm: "one".into(),
            },
            |_| None,
        );
        let (mut flow, mut table) = (Flow::new(START_TIME, 10_000), TableId::NO_TABLE);
        for command in [
            WireCommand::Release { flow: 1 },
            set(10),
            WireCommand::Release { flow: 1 },
        ] {
            let answer = tables.handle(START_TIME, &command, |_| Some((&mut flow, &mut table)));
            assert_eq!(answer, None, "{command:?}");
        }
        assert_eq!(flow.program_uid(), None);
        let gone = tables.handle(START_TIME, &WireCommand::Release { flow: 2 }, |_| None);
        let refused = WireEvent::Refused {
            flow: Some(2),
            program: 0,
            why: Refusal::UnknownFlow,
        };
        assert_eq!(gone, Some(refused));
    }

    #[test]
    fn impossible_commands_are_refused() {
        let mut tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
        let (mut flow, mut table) = (Flow::new(START_TIME, 10_000), TableId::NO_TABLE);
        let update = |flow| WireCommand::Update {
            flow,
            updates: nothing(),
        };
        let refused = |flow, why| {
            let program = 0;
            Some(WireEvent::Refused { flow, program, why })
        };
        let gone = tables.handle(START_TIME, &update(2), |_| None);
        assert_eq!(gone, refused(Some(2), Refusal::UnknownFlow));
        let early = tables.handle(START_TIME, &update(1), |_| Some((&mut flow, &mut table)));
        assert_eq!(early, refused(Some(1), Refusal::UnknownProgram(0)));
        for uid in 0..PROGRAMS_MAX as u32 {
            tables.handle(START_TIME, &install("one", uid), |_| None);
        }
        let full = tables.handle(START_TIME, &install("one", 99), |_| None);
        assert!(
            matches!(
                full,
                Some(WireEvent::Refused {
                    flow: None,
                    program: 99,
                    ..
                })
            ),
            "{full:?}"
        );
    }
}
