//! What an algorithm can do.

use std::sync::Arc;

use ccplane_datapath::{Capabilities, Target, Update};
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::{Command, Updates};

use crate::agent::{AlgorithmStats, Core};
use crate::flows::Entry;
use crate::{FlowId, Hosted};

/// How a callback steers: the flow it is called for, another flow of the same algorithm, and the
/// algorithm's timer.
///
/// What a callback sets on a flow travels as one command when it returns, so that the datapath sees
/// all of it at once.
pub struct Control<'a> {
    now: Time,
    core: &'a mut Core,
    algorithm: u16,
    flow: Option<u32>,
    staged: Staged,
}

#[derive(Default)]
struct Staged {
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
            staged: Staged::default(),
        }
    }

    /// The present moment; the only clock there is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The flow that this steers; `None` in [`on_timer`](crate::Algorithm::on_timer).
    pub fn this(&self) -> Option<FlowId> {
        Some(self.core.flows.get(self.flow?)?.id)
    }

    /// What the flow's datapath can do; nothing when there is no flow.
    pub fn capabilities(&self) -> Capabilities {
        self.this()
            .and_then(|id| self.core.capabilities(id.datapath))
            .unwrap_or_default()
    }

    /// Name of the TLS key behind the flow's datapath; `None` for a datapath on this host, which
    /// has no key. What a group shares is divided among keys first, as one key can have any number
    /// of flows.
    pub fn tenant(&self) -> Option<Arc<str>> {
        self.core.tenant(self.this()?.datapath)
    }

    /// Sets the congestion window. The datapath keeps it within its owner's limits.
    pub fn cwnd(&mut self, window: Bytes) {
        self.stage(Target::Cwnd, window.get());
    }

    /// Sets the pacing rate.
    pub fn rate(&mut self, rate: Rate) {
        self.stage(Target::Rate, rate.bytes_per_sec());
    }

    /// Sets the slow-start threshold: where the datapath's recovery brings the window after a loss.
    pub fn ssthresh(&mut self, threshold: Bytes) {
        self.stage(Target::Ssthresh, threshold.get());
    }

    /// Sets a control variable of the flow's program. A name that the program does not have is
    /// logged and counted ([`AlgorithmStats::unknown_names`]), and changes nothing.
    pub fn set(&mut self, variable: &str, value: u64) {
        match self.control_variable(variable) {
            Some(index) => self.stage(Target::Var(index), value),
            None => self.unknown("control variable", variable),
        }
    }

    /// Says a value of the flow for people to see, under a name: a mode, an estimate. It has no
    /// effect on the datapath; the latest value of each name is kept, of at most 16 names a flow,
    /// and read by [`Agent::gauges`](crate::Agent::gauges).
    pub fn gauge(&mut self, name: &'static str, value: f64) {
        if let Some(flow) = self.this() {
            self.core.gauges.set(flow, name, value);
        }
    }

    /// Sets a program of the algorithm on the flow, with values of its control variables; variables
    /// that are not named start at their initial values, and `Micros` at 0.
    pub fn program(&mut self, name: &str, variables: &[(&str, u64)]) {
        let Some(program) = self.hosted().program_by_name(name) else {
            return self.unknown("program", name);
        };
        // Variables staged before are of the old program: they would mean others in the new one.
        if self
            .staged
            .updates
            .as_slice()
            .iter()
            .any(|u| matches!(u.target, Target::Var(_)))
        {
            self.flush();
        }
        let program = program as u16;
        self.staged.release = false;
        self.staged.program = Some(program);
        if let Some(entry) = self.flow.and_then(|at| self.core.flows.get_mut(at)) {
            entry.previous = entry.program.replace(program);
        }
        for (variable, value) in variables {
            self.set(variable, *value);
        }
    }

    /// Gives the flow to its datapath's own NewReno until it is set a program
    /// ([`Control::program`]). What was set on it in this callback is dropped, and its program
    /// reports no more. A datapath that cannot do that, which is one of CCP's, answers with
    /// [`Refusal::NoRelease`] to [`on_refused`](crate::Algorithm::on_refused).
    ///
    /// [`Refusal::NoRelease`]: ccplane_wire::Refusal::NoRelease
    pub fn release(&mut self) {
        self.staged = Staged {
            release: true,
            ..Staged::default()
        };
        if let Some(entry) = self.flow.and_then(|at| self.core.flows.get_mut(at)) {
            (entry.program, entry.previous) = (None, None);
        }
    }

    /// Counts a callback that raised: figures of such an algorithm are those of whatever it ran
    /// instead.
    pub fn exception(&mut self) {
        self.stats_mut().exceptions += 1;
    }

    /// Calls [`on_timer`](crate::Algorithm::on_timer) after this long. An algorithm has one timer:
    /// setting it again moves it.
    pub fn after(&mut self, delay: Duration) {
        self.core.set_timer(self.algorithm, self.now + delay);
    }

    /// Steers another flow of the same algorithm; `None` if no such flow lives.
    pub fn flow(&mut self, id: FlowId) -> Option<Control<'_>> {
        let at = self.core.flows.find(id)?;
        let entry = self.core.flows.get(at)?;
        (entry.algorithm == self.algorithm)
            .then(|| Control::new(self.now, self.core, self.algorithm, Some(at)))
    }

    /// Sends what is staged and turns to another flow.
    pub(crate) fn turn_to(&mut self, flow: u32) -> Option<Entry> {
        self.flush();
        self.flow = Some(flow);
        self.core.flows.get(flow).copied()
    }

    pub(crate) fn stats_mut(&mut self) -> &mut AlgorithmStats {
        self.core.stats_mut(self.algorithm)
    }

    fn hosted(&self) -> &Hosted {
        self.core.hosted(self.algorithm)
    }

    fn control_variable(&self, name: &str) -> Option<u8> {
        let entry = self.core.flows.get(self.flow?)?;
        self.hosted()
            .programs
            .get(entry.program? as usize)?
            .control(name)
    }

    fn stage(&mut self, target: Target, value: u64) {
        self.staged.updates.push(Update { target, value });
    }

    fn unknown(&mut self, what: &str, name: &str) {
        let algorithm = self.hosted().name.clone();
        let stats = self.stats_mut();
        stats.unknown_names += 1;
        if stats.unknown_names == 1 {
            tracing::warn!(%algorithm, name, "no such {what}: check the spelling against the algorithm's programs");
        }
    }

    fn flush(&mut self) {
        if self.staged.program.is_none() && self.staged.updates.is_empty() && !self.staged.release {
            return;
        }
        let Staged {
            release,
            program,
            updates,
        } = std::mem::take(&mut self.staged);
        let Some(id) = self.this() else { return };
        let command = match program {
            Some(index) => {
                let Some(program) = self.hosted().programs.get(index as usize) else {
                    return;
                };
                Command::SetProgram {
                    flow: id.flow,
                    uid: program.uid,
                    updates,
                }
            }
            // A window after it is nobody's: the datapath's own control sets it.
            None if release => Command::Release { flow: id.flow },
            None => Command::Update {
                flow: id.flow,
                updates,
            },
        };
        self.stats_mut().commands += 1;
        self.core.send(id.datapath, command);
    }
}

impl Drop for Control<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
