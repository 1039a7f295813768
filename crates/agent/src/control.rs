//! Interface of an algorithm to its flows.

use std::sync::Arc;

use ccplane_datapath::{Capabilities, CommandTarget, Update};
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::{Updates, WireCommand};

use crate::agent::{AlgorithmStats, Core};
use crate::flows::FlowEntry;
use crate::{FlowId, HostedAlgorithm};

/// Handle of a callback to the flow it is called for, to other flows of the same algorithm, and to
/// the algorithm's timer.
///
/// Everything that a callback sets on a flow is sent as one command when it returns, so that the
/// datapath applies it atomically.
pub struct Control<'a> {
    now: Time,
    core: &'a mut Core,
    algorithm: u16,
    flow: Option<u32>,
    staged: PendingCommand,
}

#[derive(Default)]
struct PendingCommand {
    release: bool,
    program: Option<u16>,
    updates: Updates,
}

impl<'a> Control<'a> {
    pub(crate) fn new(
        now: Time,
        core: &'a mut Core,
        algorithm: u16,
        flow: Option<u32>,
    ) -> Control<'a> {
        Control {
            now,
            core,
            algorithm,
            flow,
            staged: PendingCommand::default(),
        }
    }

    /// Current time; the only clock of an algorithm.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The flow of this callback; `None` in [`on_timer`](crate::Algorithm::on_timer).
    pub fn flow_id(&self) -> Option<FlowId> {
        Some(self.core.flows.get(self.flow?)?.id)
    }

    /// Capabilities of the flow's datapath; empty without a flow.
    pub fn capabilities(&self) -> Capabilities {
        self.flow_id()
            .and_then(|id| self.core.capabilities(id.datapath))
            .unwrap_or_default()
    }

    /// Name of the TLS key of the flow's datapath; `None` for a datapath on this host, which has no
    /// key. A shared budget of a group is divided among keys first, as one key can have any number
    /// of flows.
    pub fn tenant(&self) -> Option<Arc<str>> {
        self.core.tenant(self.flow_id()?.datapath)
    }

    /// Sets the congestion window. The datapath clamps it to the operator's limits.
    pub fn set_cwnd(&mut self, window: Bytes) {
        self.stage(CommandTarget::Cwnd, window.get());
    }

    /// Sets the pacing rate.
    pub fn set_rate(&mut self, rate: Rate) {
        self.stage(CommandTarget::Rate, rate.bytes_per_sec());
    }

    /// Sets the slow-start threshold, to which the datapath's recovery reduces the window after a
    /// loss.
    pub fn set_ssthresh(&mut self, threshold: Bytes) {
        self.stage(CommandTarget::Ssthresh, threshold.get());
    }

    /// Sets a control variable of the flow's program. An unknown name is logged and counted
    /// ([`AlgorithmStats::unknown_names`]), and has no other effect.
    pub fn set_variable(&mut self, variable: &str, value: u64) {
        match self.control_variable(variable) {
            Some(index) => self.stage(CommandTarget::Var(index), value),
            None => self.count_unknown_name("control variable", variable),
        }
    }

    /// Publishes a named value of the flow for display, such as a mode or an estimate. It has no
    /// effect on the datapath. The latest value of each name is kept, for at most 16 names per
    /// flow, and read by [`Agent::gauges`](crate::Agent::gauges).
    pub fn gauge(&mut self, name: &'static str, value: f64) {
        if let Some(flow) = self.flow_id() {
            self.core.gauges.set(flow, name, value);
        }
    }

    /// Sets a program of the algorithm on the flow, with values of its control variables. Variables
    /// that are not named start at their initial values, and `Micros` at 0.
    pub fn set_program(&mut self, name: &str, variables: &[(&str, u64)]) {
        let Some(program) = self.hosted().program_by_name(name) else {
            return self.count_unknown_name("program", name);
        };
        // Variables staged before belong to the old program; their indices mean others in the new
        // one.
        if self
            .staged
            .updates
            .as_slice()
            .iter()
            .any(|u| matches!(u.target, CommandTarget::Var(_)))
        {
            self.send_staged();
        }
        let program = program as u16;
        self.staged.release = false;
        self.staged.program = Some(program);
        if let Some(entry) = self.flow.and_then(|at| self.core.flows.get_mut(at)) {
            entry.previous = entry.program.replace(program);
        }
        for (variable, value) in variables {
            self.set_variable(variable, *value);
        }
    }

    /// Returns the flow to its datapath's own NewReno until a program is set again
    /// ([`Control::set_program`]). Anything else set on it in this callback is dropped, and its
    /// program no longer reports. A CCP datapath does not support this; the algorithm then gets
    /// [`Refusal::NoRelease`] in [`on_refused`](crate::Algorithm::on_refused).
    ///
    /// [`Refusal::NoRelease`]: ccplane_wire::Refusal::NoRelease
    pub fn release(&mut self) {
        self.staged = PendingCommand {
            release: true,
            ..PendingCommand::default()
        };
        if let Some(entry) = self.flow.and_then(|at| self.core.flows.get_mut(at)) {
            (entry.program, entry.previous) = (None, None);
        }
    }

    /// Counts a callback that raised an exception: the algorithm's metrics then include whatever
    /// ran instead.
    pub fn count_exception(&mut self) {
        self.stats_mut().exceptions += 1;
    }

    /// Calls [`on_timer`](crate::Algorithm::on_timer) after `delay`. An algorithm has one timer:
    /// setting it again moves it.
    pub fn set_timer(&mut self, delay: Duration) {
        self.core.set_timer(self.algorithm, self.now + delay);
    }

    /// Returns the handle of another flow of the same algorithm; `None` if no such flow is live.
    pub fn flow(&mut self, id: FlowId) -> Option<Control<'_>> {
        let at = self.core.flows.find(id)?;
        let entry = self.core.flows.get(at)?;
        (entry.algorithm == self.algorithm)
            .then(|| Control::new(self.now, self.core, self.algorithm, Some(at)))
    }

    /// Sends what is staged and switches to another flow.
    pub(crate) fn switch_to(&mut self, flow: u32) -> Option<FlowEntry> {
        self.send_staged();
        self.flow = Some(flow);
        self.core.flows.get(flow).copied()
    }

    pub(crate) fn stats_mut(&mut self) -> &mut AlgorithmStats {
        self.core.stats_mut(self.algorithm)
    }

    fn hosted(&self) -> &HostedAlgorithm {
        self.core.hosted(self.algorithm)
    }

    fn control_variable(&self, name: &str) -> Option<u8> {
        let entry = self.core.flows.get(self.flow?)?;
        self.hosted()
            .programs
            .get(entry.program? as usize)?
            .control(name)
    }

    fn stage(&mut self, target: CommandTarget, value: u64) {
        self.staged.updates.push(Update { target, value });
    }

    fn count_unknown_name(&mut self, what: &str, name: &str) {
        let algorithm = self.hosted().name.clone();
        let stats = self.stats_mut();
        stats.unknown_names += 1;
        if stats.unknown_names == 1 {
            tracing::warn!(%algorithm, name, "unknown {what}; compare the spelling with the \
                algorithm's programs");
        }
    }

    fn send_staged(&mut self) {
        if self.staged.program.is_none() && self.staged.updates.is_empty() && !self.staged.release {
            return;
        }
        let PendingCommand {
            release,
            program,
            updates,
        } = std::mem::take(&mut self.staged);
        let Some(id) = self.flow_id() else { return };
        let command = match program {
            Some(index) => {
                let Some(program) = self.hosted().programs.get(index as usize) else {
                    return;
                };
                WireCommand::SetProgram {
                    flow: id.flow,
                    uid: program.uid,
                    updates,
                }
            }
            // A window set after the release has no effect: the datapath's own control sets it.
            None if release => WireCommand::Release { flow: id.flow },
            None => WireCommand::Update {
                flow: id.flow,
                updates,
            },
        };
        self.stats_mut().commands += 1;
        self.core.push_command(id.datapath, command);
    }
}

impl Drop for Control<'_> {
    fn drop(&mut self) {
        self.send_staged();
    }
}
