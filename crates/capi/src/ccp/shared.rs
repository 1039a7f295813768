//! State shared by a datapath's connections: the agent's programs, and the counts of rejected
//! messages.

use std::ffi::c_int;

use ::ccplane_datapath::{Capabilities, Compat, OperatorLimits, Program, ProgramTable};
use ccplane_agent::ccp_datapath as what_ccp_has;
use ccplane_units::Duration;
use ccplane_wire::{WireError, v1};

use super::layout::{ccp_counts, code};

/// Programs per table. A table takes 90 kB and is allocated when the previous one is full.
const TABLE_PROGRAMS: usize = 8;
/// Upper limit of the caller's `max_programs`, which bounds the memory that an agent can use.
const PROGRAMS_MAX: usize = 1024;
/// Maximum number of instructions: libccp counts them in a byte and loops forever at 256.
const INSTRUCTIONS_MAX: usize = 255;

pub(crate) type CcpProgramTable = ProgramTable<TABLE_PROGRAMS>;

/// Programs by the agent's numbers, and counts.
pub(crate) struct CcpPrograms {
    tables: Vec<Box<CcpProgramTable>>,
    programs_max: usize,
    /// Programs of previous agents, oldest first. They are evicted if there is no room.
    old: Vec<u32>,
    pub counts: ccp_counts,
}

impl CcpPrograms {
    pub fn new(max_programs: usize) -> CcpPrograms {
        CcpPrograms {
            tables: Vec::new(),
            programs_max: max_programs.min(PROGRAMS_MAX),
            old: Vec::new(),
            counts: ccp_counts::default(),
        }
    }

    /// Returns the index of the table with this program. It does not change while a connection runs
    /// the program.
    pub fn table_index(&self, uid: u32) -> Option<usize> {
        self.tables
            .iter()
            .position(|table| table.get(uid).is_some())
    }

    /// Returns the table at an index.
    #[inline]
    pub fn table(&self, place: usize) -> Option<&CcpProgramTable> {
        self.tables.get(place).map(|table| &**table)
    }

    /// Installs a program and replaces one with the same number. `runs` returns true if a
    /// connection runs the given program.
    pub fn install(
        &mut self,
        install: &v1::program::Install<'_>,
        runs: impl Fn(u32) -> bool,
    ) -> Result<(), c_int> {
        let program = self
            .decode(install)
            .inspect_err(|_| self.counts.programs += 1)?;
        let uid = program.uid();
        // A new agent counts from 1, so all existing programs belong to previous ones.
        if uid == 1 {
            self.old = self.programs().map(Program::uid).collect();
        }
        self.old.retain(|old| *old != uid);
        if self.table_index(uid).is_none() && self.programs().count() >= self.programs_max {
            let unused = self.old.iter().position(|old| !runs(*old));
            let unused = unused.map(|place| self.old.remove(place));
            let Some(unused) = unused else {
                self.counts.table_full += 1;
                return Err(code::PROG_TABLE_FULL);
            };
            for table in &mut self.tables {
                table.remove(unused);
            }
        }
        let table = self.table_for(uid);
        table.install(program).map_err(|_| {
            self.counts.programs += 1;
            code::READ_REG_NOT_ALLOWED
        })
    }

    fn decode(&self, install: &v1::program::Install<'_>) -> Result<Program, c_int> {
        if install.instructions() > INSTRUCTIONS_MAX {
            return Err(code::INSTALL_TOO_MANY_INSTR);
        }
        install.decode().map_err(|why| match why {
            WireError::UnknownValue {
                what: "operation", ..
            } => code::READ_INVALID_OP,
            WireError::UnknownValue { .. } => code::READ_REG_NOT_ALLOWED,
            WireError::InvalidProgram(_) | WireError::TooLong { .. } => code::INSTALL_TOO_MANY_EXPR,
            _ => code::INSTALL_TYPE_MISMATCH,
        })
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        self.tables.iter().flat_map(|table| table.programs())
    }

    /// Returns the table with this program, or with room for it.
    fn table_for(&mut self, uid: u32) -> &mut CcpProgramTable {
        let room = || {
            self.tables
                .iter()
                .position(|table| table.programs().count() < TABLE_PROGRAMS)
        };
        let place = self.table_index(uid).or_else(room).unwrap_or_else(|| {
            // libccp has neither an agent timeout nor configured limits.
            let limits = OperatorLimits {
                min_cwnd: 0,
                max_cwnd: u64::MAX,
                max_rate: u64::MAX,
                agent_timeout: Duration::MAX,
            };
            let capabilities: Capabilities = what_ccp_has(0).capabilities;
            self.tables.push(Box::new(CcpProgramTable::with_compat(
                limits,
                capabilities,
                Compat::Libccp,
            )));
            self.tables.len() - 1
        });
        &mut self.tables[place]
    }
}
