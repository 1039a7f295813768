//! Interface that a congestion-control algorithm implements.

use ccplane_datapath::Capabilities;
use ccplane_units::Duration;
use ccplane_wire::{FlowInfo, FlowStats, Refusal};

use crate::{Control, Programs, Report, ReportBatch};

/// Congestion-control algorithm. One object serves all flows that chose it; its callbacks run on
/// one thread.
///
/// Required: a name, the datapath programs, and callbacks for new flows and reports. `open` must
/// set one of the programs ([`Control::set_program`]), or the flow never reports.
///
/// ```
/// use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report};
/// use ccplane_units::Bytes;
///
/// /// One more segment per RTT; half the window after a loss.
/// struct Aimd;
///
/// impl Algorithm for Aimd {
///     /// Window and segment size, bytes.
///     type Flow = (u64, u64);
///
///     fn name(&self) -> &str {
///         "aimd"
///     }
///
///     fn programs(&self) -> Programs {
///         Programs::new().with(
///             "fold",
///             "(def (Report (volatile lost 0)))
///             (when true (:= Report.lost (+ Report.lost Ack.lost_pkts_sample)) (fallthrough))
///             (when (> Micros Flow.srtt_us) (:= Micros 0) (report))",
///         )
///     }
///
///     fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Self::Flow {
///         control.set_program("fold", &[]);
///         (info.cwnd.get(), info.mss.get())
///     }
///
///     fn on_report(
///         &mut self,
///         (cwnd, mss): &mut Self::Flow,
///         report: &Report<'_>,
///         control: &mut Control<'_>,
///     ) {
///         *cwnd = match report.get("lost") {
///             Some(0) => *cwnd + *mss,
///             _ => (*cwnd / 2).max(2 * *mss),
///         };
///         control.set_cwnd(Bytes::new(*cwnd));
///     }
/// }
///
/// let mut agent = ccplane_agent::Agent::new(ccplane_agent::AgentOptions::default());
/// agent.add(Aimd)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Algorithm: Send {
    /// State of one flow. Shared state belongs in `self`.
    type Flow: Send;

    /// Name by which flows choose it.
    fn name(&self) -> &str;

    /// Name among the kernel's congestion controls, at most 15 characters of `[A-Za-z0-9_.]`. By
    /// default `ccp_` and the name, without characters that the kernel does not allow.
    fn kernel_name(&self) -> String {
        let allowed = self
            .name()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        "ccp_".chars().chain(allowed).take(15).collect()
    }

    /// Programs that it sets on flows, by name. Called once, when it is added to an agent.
    fn programs(&self) -> Programs;

    /// Capabilities that it requires. A flow of a datapath without them is refused, and the log
    /// names the missing ones.
    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
    }

    /// Required and optional capabilities. A datapath enables the optional ones only if an
    /// algorithm wants them: time stamps of both ends, for example, cost bytes in every packet.
    fn requested_capabilities(&self) -> Capabilities {
        self.required_capabilities()
    }

    /// Maximum time that a report waits to be batched with others before the agent is woken. A
    /// shorter time reacts faster but costs CPU: every wake-up takes a few microseconds of a core.
    /// Urgent reports (loss, timeout, undo) never wait.
    fn latency(&self) -> Duration {
        Duration::from_millis(1)
    }

    /// Handles a new flow, or a live one that is taken over ([`FlowInfo::live`]). The pacing rate
    /// of the previous control is removed first, unless this algorithm or one of its programs sets
    /// rates ([`Capabilities::PACING`] among the wanted capabilities).
    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Self::Flow;

    /// Handles a report of a flow's program. Reports of a program that the flow no longer runs are
    /// dropped before this call.
    fn on_report(&mut self, flow: &mut Self::Flow, report: &Report<'_>, control: &mut Control<'_>);

    /// Handles several reports that arrived together. Override it to decide for several flows at
    /// once; by default each report goes to `on_report`.
    fn on_reports(&mut self, batch: &mut ReportBatch<'_, Self::Flow>, control: &mut Control<'_>) {
        while let Some((flow, report)) = batch.next(control) {
            self.on_report(flow, &report, control);
        }
    }

    /// Handles the timer set with [`Control::set_timer`]. `control` has no flow of its own here:
    /// see [`Control::flow`].
    fn on_timer(&mut self, _control: &mut Control<'_>) {}

    /// Handles a command of this flow that the datapath refused. The agent has already logged it;
    /// the default does nothing else.
    fn on_refused(&mut self, _flow: &mut Self::Flow, _why: &Refusal, _control: &mut Control<'_>) {}

    /// Handles the end of the flow or of its datapath.
    fn on_close(&mut self, _flow: Self::Flow, _last: &FlowStats) {}

    /// Returns true if the algorithm waits for an external decision. A simulation that runs from
    /// decision to decision stops there.
    fn awaiting_action(&self) -> bool {
        false
    }

    /// Standalone program: a program that needs no decisions of the algorithm, if there is one. A
    /// datapath that can start it on every flow needs no agent, and calls nothing else here.
    fn standalone(&self) -> Option<StandaloneProgram> {
        None
    }
}

/// Description of a standalone program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandaloneProgram {
    /// Name of the program in [`Algorithm::programs`].
    pub program: &'static str,
    /// Control variable that is set to 1 on a flow that was already live ([`FlowInfo::live`]).
    pub live_flag: Option<&'static str>,
}

/// Object-safe form of an [`Algorithm`] with the state of its flows. Created by [`box_algorithm`].
pub trait DynAlgorithm: Send + sealed::Seal {
    /// See [`Algorithm::name`].
    fn name(&self) -> &str;
    /// See [`Algorithm::kernel_name`].
    fn kernel_name(&self) -> String;
    /// See [`Algorithm::programs`].
    fn programs(&self) -> Programs;
    /// See [`Algorithm::required_capabilities`].
    fn required_capabilities(&self) -> Capabilities;
    /// See [`Algorithm::requested_capabilities`].
    fn requested_capabilities(&self) -> Capabilities;
    /// See [`Algorithm::latency`].
    fn latency(&self) -> Duration;
    #[doc(hidden)]
    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> u32;
    #[doc(hidden)]
    fn on_reports(&mut self, reports: crate::report::RawReports<'_>, control: &mut Control<'_>);
    #[doc(hidden)]
    fn on_timer(&mut self, control: &mut Control<'_>);
    #[doc(hidden)]
    fn on_refused(&mut self, slot: u32, why: &Refusal, control: &mut Control<'_>);
    #[doc(hidden)]
    fn on_close(&mut self, slot: u32, last: &FlowStats);
    /// See [`Algorithm::awaiting_action`].
    fn awaiting_action(&self) -> bool;
    /// See [`Algorithm::standalone`].
    fn standalone(&self) -> Option<StandaloneProgram>;
}

/// Boxes an algorithm for [`Agent::add_boxed`](crate::Agent::add_boxed).
pub fn box_algorithm<A: Algorithm + 'static>(algorithm: A) -> Box<dyn DynAlgorithm> {
    Box::new(BoxedAlgorithm {
        algorithm,
        flows: Vec::new(),
        free: Vec::new(),
    })
}

mod sealed {
    pub trait Seal {}
    impl<A: super::Algorithm> Seal for super::BoxedAlgorithm<A> {}
}

struct BoxedAlgorithm<A: Algorithm> {
    algorithm: A,
    flows: Vec<Option<A::Flow>>,
    free: Vec<u32>,
}

impl<A: Algorithm> DynAlgorithm for BoxedAlgorithm<A> {
    fn name(&self) -> &str {
        self.algorithm.name()
    }

    fn kernel_name(&self) -> String {
        self.algorithm.kernel_name()
    }

    fn programs(&self) -> Programs {
        self.algorithm.programs()
    }

    fn required_capabilities(&self) -> Capabilities {
        self.algorithm.required_capabilities()
    }

    fn requested_capabilities(&self) -> Capabilities {
        self.algorithm.requested_capabilities()
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

    fn on_reports(&mut self, reports: crate::report::RawReports<'_>, control: &mut Control<'_>) {
        self.algorithm
            .on_reports(&mut ReportBatch::new(reports, &mut self.flows), control);
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

    fn awaiting_action(&self) -> bool {
        self.algorithm.awaiting_action()
    }

    fn standalone(&self) -> Option<StandaloneProgram> {
        self.algorithm.standalone()
    }
}
