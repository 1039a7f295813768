//! What a congestion-control algorithm implements.

use ccplane_datapath::Capabilities;
use ccplane_units::Duration;
use ccplane_wire::{FlowInfo, FlowStats, Refusal};

use crate::{Batch, Control, Programs, Report};

/// A congestion-control algorithm. One object serves all flows that chose it; its callbacks run on
/// one thread.
///
/// Required: a name, the datapath programs, what to do when a flow opens and when it reports.
/// `open` must set one of the programs ([`Control::program`]), or the flow never reports.
pub trait Algorithm: Send {
    /// State of one flow. State that flows share lives in `self`.
    type Flow: Send;

    /// The name by which flows choose it.
    fn name(&self) -> &str;

    /// Its name among the kernel's congestion controls, at most 15 of `[A-Za-z0-9_.]`. By default
    /// `ccp_` and the name, without what the kernel does not allow.
    fn kernel_name(&self) -> String {
        let allowed = self
            .name()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        "ccp_".chars().chain(allowed).take(15).collect()
    }

    /// The programs that it sets on flows, by name. Asked once, when it is added to an agent.
    fn programs(&self) -> Programs;

    /// What a datapath must be able to do; a flow of one that cannot is refused, with the names of
    /// what is missing.
    fn needs(&self) -> Capabilities {
        Capabilities::CWND
    }

    /// What it needs and what it uses where it is there. Whoever sets a datapath up switches that
    /// on: time stamps of both ends cost bytes in every packet, so that no flow carries them
    /// unasked.
    fn wants(&self) -> Capabilities {
        self.needs()
    }

    /// How long a report may wait, with others, before the agent is woken for it. Shorter reacts
    /// faster and costs CPU: every wake-up takes some microseconds of a core. Urgent reports (loss,
    /// timeout, undo) never wait.
    fn latency(&self) -> Duration {
        Duration::from_millis(1)
    }

    /// A flow began, or is taken over while it lives ([`FlowInfo::live`]). The pacing rate of
    /// whoever steered it before is lifted first, unless this algorithm or a program of it sets
    /// rates ([`Capabilities::PACING`] among what it wants).
    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Self::Flow;

    /// A flow's program reported. Reports of a program that is no longer the flow's do not arrive
    /// here.
    fn on_report(&mut self, flow: &mut Self::Flow, report: &Report<'_>, control: &mut Control<'_>);

    /// Several reports came at once. Override it to decide over flows together; by default each
    /// goes to `on_report`.
    fn on_reports(&mut self, batch: &mut Batch<'_, Self::Flow>, control: &mut Control<'_>) {
        while let Some((flow, report)) = batch.next(control) {
            self.on_report(flow, &report, control);
        }
    }

    /// The time set with [`Control::after`] came. `control` has no flow of its own here: see
    /// [`Control::flow`].
    fn on_timer(&mut self, _control: &mut Control<'_>) {}

    /// The datapath did not do what this flow asked; by default the agent's log has said so and
    /// that is all.
    fn on_refused(&mut self, _flow: &mut Self::Flow, _why: &Refusal, _control: &mut Control<'_>) {}

    /// The flow ended, or its datapath is gone.
    fn on_close(&mut self, _flow: Self::Flow, _last: &FlowStats) {}

    /// Whether it waits for a decision from outside of the agent: a simulation that is run from
    /// decision to decision stops there.
    fn undecided(&self) -> bool {
        false
    }

    /// The program that decides everything, where one does. A datapath that can start it on every
    /// flow by itself needs no agent then, and calls none of this.
    fn alone(&self) -> Option<Alone> {
        None
    }
}

/// What a datapath has to know of a program that needs no agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// Its name among [`Algorithm::programs`].
    pub program: &'static str,
    /// The control variable that is 1 on a flow that lived before ([`FlowInfo::live`]).
    pub lived: Option<&'static str>,
}

/// An [`Algorithm`] of any flow type, together with its flows: what an agent holds. Made by
/// [`boxed`].
pub trait DynAlgorithm: Send + sealed::Sealed {
    /// See [`Algorithm::name`].
    fn name(&self) -> &str;
    /// See [`Algorithm::kernel_name`].
    fn kernel_name(&self) -> String;
    /// See [`Algorithm::programs`].
    fn programs(&self) -> Programs;
    /// See [`Algorithm::needs`].
    fn needs(&self) -> Capabilities;
    /// See [`Algorithm::wants`].
    fn wants(&self) -> Capabilities;
    /// See [`Algorithm::latency`].
    fn latency(&self) -> Duration;
    #[doc(hidden)]
    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> u32;
    #[doc(hidden)]
    fn on_reports(&mut self, reports: crate::report::Raw<'_>, control: &mut Control<'_>);
    #[doc(hidden)]
    fn on_timer(&mut self, control: &mut Control<'_>);
    #[doc(hidden)]
    fn on_refused(&mut self, slot: u32, why: &Refusal, control: &mut Control<'_>);
    #[doc(hidden)]
    fn on_close(&mut self, slot: u32, last: &FlowStats);
    /// See [`Algorithm::undecided`].
    fn undecided(&self) -> bool;
    /// See [`Algorithm::alone`].
    fn alone(&self) -> Option<Alone>;
}

/// An algorithm in the form that [`Agent::add_boxed`](crate::Agent::add_boxed) takes.
pub fn boxed<A: Algorithm + 'static>(algorithm: A) -> Box<dyn DynAlgorithm> {
    Box::new(WithFlows {
        algorithm,
        flows: Vec::new(),
        free: Vec::new(),
    })
}

mod sealed {
    pub trait Sealed {}
    impl<A: super::Algorithm> Sealed for super::WithFlows<A> {}
}

struct WithFlows<A: Algorithm> {
    algorithm: A,
    flows: Vec<Option<A::Flow>>,
    free: Vec<u32>,
}

impl<A: Algorithm> DynAlgorithm for WithFlows<A> {
    fn name(&self) -> &str {
        self.algorithm.name()
    }

    fn kernel_name(&self) -> String {
        self.algorithm.kernel_name()
    }

    fn programs(&self) -> Programs {
        self.algorithm.programs()
    }

    fn needs(&self) -> Capabilities {
        self.algorithm.needs()
    }

    fn wants(&self) -> Capabilities {
        self.algorithm.wants()
    }

    fn latency(&self) -> Duration {
        self.algorithm.latency()
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> u32 {
        let flow = Some(self.algorithm.open(info, control));
        match self.free.pop() {
            Some(slot) => {
                self.flows[slot as usize] = flow;
                slot
            }
            None => {
                self.flows.push(flow);
                (self.flows.len() - 1) as u32
            }
        }
    }

    fn on_reports(&mut self, reports: crate::report::Raw<'_>, control: &mut Control<'_>) {
        self.algorithm
            .on_reports(&mut Batch::new(reports, &mut self.flows), control);
    }

    fn on_timer(&mut self, control: &mut Control<'_>) {
        self.algorithm.on_timer(control);
    }

    fn on_refused(&mut self, slot: u32, why: &Refusal, control: &mut Control<'_>) {
        if let Some(Some(flow)) = self.flows.get_mut(slot as usize) {
            self.algorithm.on_refused(flow, why, control);
        }
    }

    fn on_close(&mut self, slot: u32, last: &FlowStats) {
        if let Some(flow) = self.flows.get_mut(slot as usize).and_then(Option::take) {
            self.free.push(slot);
            self.algorithm.on_close(flow, last);
        }
    }

    fn undecided(&self) -> bool {
        self.algorithm.undecided()
    }

    fn alone(&self) -> Option<Alone> {
        self.algorithm.alone()
    }
}
