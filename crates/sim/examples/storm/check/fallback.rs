//! Invariant of the fallback: a flow whose agent is silent enters the fallback within the agent
//! timeout, and leaves it when the agent returns.
//!
//! The model records the datapath's commands and events only and is independent of the datapath's
//! own logic.

use std::collections::{BTreeMap, BTreeSet};

use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

use super::Violation;

/// Model of the datapath; see the module.
#[derive(Debug)]
pub struct Model {
    fallback_after: Duration,
    /// Per algorithm, in order of appearance: its name, the time of its last heartbeat, and its
    /// programs.
    tables: Vec<(String, Option<Time>, BTreeSet<u32>)>,
    /// Index into `tables` of each flow's program.
    flows: BTreeMap<u64, usize>,
    /// Command in execution, and whether it was refused.
    doing: Option<(WireCommand, bool)>,
    seen: BTreeMap<u64, FallbackState>,
}

#[derive(Clone, Copy, Debug)]
struct FallbackState {
    /// Index into `tables` of its program.
    table: Option<usize>,
    /// Time of the last change of `table`.
    since: Time,
    /// Last heartbeat, and the bytes acknowledged at the first check after it.
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

    pub fn command(&mut self, now: Time, command: &WireCommand) {
        if let WireCommand::Heartbeat { algorithm } | WireCommand::Install { algorithm, .. } =
            command
        {
            if !self.tables.iter().any(|(name, ..)| **name == **algorithm) {
                self.tables
                    .push((algorithm.to_string(), None, BTreeSet::new()));
            }
            let table = self
                .tables
                .iter_mut()
                .find(|(name, ..)| **name == **algorithm);
            if let (WireCommand::Heartbeat { .. }, Some(table)) = (command, table) {
                table.1 = Some(now);
            }
        }
        self.doing = Some((command.clone(), false));
    }

    /// Records an event of the datapath.
    pub fn answer(&mut self, event: &WireEvent<'_>) {
        match (event, &mut self.doing) {
            (WireEvent::Refused { .. }, Some((_, refused))) => *refused = true,
            (WireEvent::FlowClosed { flow, .. }, _) => {
                self.flows.remove(flow);
                self.seen.remove(flow);
            }
            _ => {}
        }
    }

    /// Records the completion of the last command.
    pub fn settle(&mut self) {
        match self.doing.take() {
            Some((WireCommand::Install { algorithm, program }, false)) => {
                let table = self
                    .tables
                    .iter_mut()
                    .find(|(name, ..)| **name == *algorithm);
                if let Some((.., programs)) = table {
                    programs.insert(program.uid());
                }
            }
            Some((WireCommand::SetProgram { flow, uid, .. }, false)) => {
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

    /// Checks an open flow that started at `opened`. With corrupted messages (`lie`), its program
    /// may be unable to run.
    pub fn check(
        &mut self,
        now: Time,
        flow: u64,
        opened: Time,
        (falls_back, acked): (bool, u64),
        lie: bool,
    ) -> Result<(), Violation> {
        let table = self.flows.get(&flow).copied();
        let heard = table.and_then(|table| self.tables.get(table)?.1);
        let fresh = FallbackState {
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
                "no message from the agent since {last}, but the flow is not in fallback"
            ));
        }
        let acked_then = seen.acked;
        if now < deadline && falls_back && heard.is_some() && acked > acked_then && !lie {
            return Err(format!(
                "message from its agent at {last}, but the flow is still in fallback"
            ));
        }
        Ok(())
    }
}
