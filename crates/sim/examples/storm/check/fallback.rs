//! A flow whose agent is silent is on the fallback within its time, and comes back with the agent.
//!
//! The model knows what the datapath was told and what it answered, and nothing of how the datapath
//! judges.

use std::collections::{BTreeMap, BTreeSet};

use ccplane_units::{Duration, Time};
use ccplane_wire::{Command, Event};

use super::Wrong;

/// See the module.
#[derive(Debug)]
pub struct Model {
    fallback_after: Duration,
    /// By algorithm, in the order in which they were heard of: the last sign of life, and the
    /// programs.
    tables: Vec<(String, Option<Time>, BTreeSet<u32>)>,
    /// In which table a flow's program is.
    flows: BTreeMap<u64, usize>,
    /// What the datapath is doing, and whether it has refused.
    doing: Option<(Command, bool)>,
    seen: BTreeMap<u64, Seen>,
}

/// What was seen of a flow.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// In which table its program was.
    table: Option<usize>,
    /// From when on it has been there.
    since: Time,
    /// The last sign of life, and what was acknowledged by then.
    heard: Option<Time>,
    acked: u64,
}

impl Model {
    pub fn new(fallback_after: Duration) -> Model {
        Model {
            fallback_after,
            tables: Vec::new(),
            flows: BTreeMap::new(),
            doing: None,
            seen: BTreeMap::new(),
        }
    }

    /// The datapath gets a command now.
    pub fn command(&mut self, now: Time, command: &Command) {
        if let Command::Heartbeat { algorithm } | Command::Install { algorithm, .. } = command {
            if !self.tables.iter().any(|(name, ..)| **name == **algorithm) {
                self.tables
                    .push((algorithm.to_string(), None, BTreeSet::new()));
            }
            let table = self
                .tables
                .iter_mut()
                .find(|(name, ..)| **name == **algorithm);
            if let (Command::Heartbeat { .. }, Some(table)) = (command, table) {
                table.1 = Some(now);
            }
        }
        self.doing = Some((command.clone(), false));
    }

    /// The datapath says something.
    pub fn answer(&mut self, event: &Event<'_>) {
        match (event, &mut self.doing) {
            (Event::Refused { .. }, Some((_, refused))) => *refused = true,
            (Event::FlowClosed { flow, .. }, _) => {
                self.flows.remove(flow);
                self.seen.remove(flow);
            }
            _ => {}
        }
    }

    /// The datapath has done what it was told.
    pub fn settle(&mut self) {
        match self.doing.take() {
            Some((Command::Install { algorithm, program }, false)) => {
                let table = self
                    .tables
                    .iter_mut()
                    .find(|(name, ..)| **name == *algorithm);
                if let Some((.., programs)) = table {
                    programs.insert(program.uid());
                }
            }
            Some((Command::SetProgram { flow, uid, .. }, false)) => {
                if let Some(table) = self
                    .tables
                    .iter()
                    .position(|(.., programs)| programs.contains(&uid))
                {
                    self.flows.insert(flow, table);
                }
            }
            _ => {}
        }
    }

    /// Looks at a flow that is open, and was begun at `opened`. Where agents `lie`, its program may
    /// be one that cannot run.
    pub fn check(
        &mut self,
        now: Time,
        flow: u64,
        opened: Time,
        (falls_back, acked): (bool, u64),
        lie: bool,
    ) -> Result<(), Wrong> {
        let table = self.flows.get(&flow).copied();
        let heard = table.and_then(|table| self.tables.get(table)?.1);
        let fresh = Seen {
            table,
            since: now,
            heard,
            acked,
        };
        let seen = self.seen.entry(flow).or_insert(fresh);
        if seen.table != table {
            *seen = fresh;
        }
        if seen.heard != heard {
            (seen.heard, seen.acked) = (heard, acked);
        }
        let last = heard.unwrap_or(opened);
        let deadline = last + self.fallback_after;
        if now > deadline.max(seen.since) && !falls_back {
            return Err(format!(
                "nobody was heard since {last}, and it is not on the fallback"
            ));
        }
        let acked_then = seen.acked;
        if now < deadline && falls_back && heard.is_some() && acked > acked_then && !lie {
            return Err(format!(
                "its agent was heard at {last}, and it is still on the fallback"
            ));
        }
        Ok(())
    }
}
