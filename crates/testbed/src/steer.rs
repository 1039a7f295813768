//! One algorithm that controls this host's kernel TCP: in a thread of this process, in an agent of
//! another process, or standalone, if its datapath program makes all decisions. The thread then
//! only collects reports.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use ccplane_agent::{Agent, HostedAlgorithm};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_datapath::Capabilities;
use ccplane_lab::Error;
use ccplane_lab::report_log::ReportLog;
use ccplane_lab::{Contender, read};
use ccplane_link::{AgentAddress, AgentConnection, remote_agent_timeout};
use ccplane_linux::stamp::StampPrograms;
use ccplane_linux::{
    AlgorithmCounters, AlgorithmSpec, Cost, Flows, Kernel, LoadError, RegistrationOptions,
    remote_algorithms, run_agent, run_reader, run_relay,
};
use nix::unistd::{Pid, gettid};

use crate::error::BackendError;
use crate::event_listener::EventListener;

/// Slots of the flow table of a run. A run has its own network namespace, and a namespace may hold
/// at most a quarter of the table.
const FLOW_TABLE_SLOTS: u32 = 4 * 4096;

/// Returns the agent in another process that runs a contender: the one that the contender names, or
/// else `default`. `None`: this process runs it, or the datapath itself.
pub fn agent_of(
    contender: &Contender,
    default: Option<&AgentAddress>,
) -> Result<Option<AgentAddress>, BackendError> {
    match contender {
        Contender::Native { .. } => Ok(None),
        Contender::Ccplane { .. } => Ok(default.cloned()),
        Contender::Remote { agent, .. } => {
            agent
                .parse()
                .map(Some)
                .map_err(|why| BackendError::AgentAddress {
                    contender: contender.to_string(),
                    why,
                })
        }
    }
}

/// Returns the capabilities that an algorithm in another process requests; `None` for contenders
/// that name no agent.
pub(crate) fn requested_of_agent(
    contender: &Contender,
) -> Result<Option<Capabilities>, BackendError> {
    let Some(agent) = agent_of(contender, None)? else {
        return Ok(None);
    };
    let timeout = RegistrationOptions::default().limits.agent_timeout;
    let found = remote_algorithms(&agent, &[&contender.agent_name()], timeout)?;
    Ok(Some(requested(&found.algorithms)))
}

fn requested(algorithms: &[AlgorithmSpec]) -> Capabilities {
    let none = Capabilities::default();
    algorithms
        .iter()
        .fold(none, |all, one| all.union(one.wants))
}

/// A registered algorithm and the thread that runs it or reads its reports. It is unregistered on
/// [`finish`](Self::finish) or drop.
pub struct SteeredAlgorithm {
    kernel_name: String,
    capabilities: Capabilities,
    /// Thread ID.
    thread_id: Pid,
    thread: Option<JoinHandle<AlgorithmRecord>>,
    stop: Arc<AtomicBool>,
    reports: Arc<AtomicU64>,
    /// Flows of the algorithm, as the kernel sees them.
    flows: Flows,
    /// Timestamping programs that are not attached yet, if the algorithm wants them.
    stamps: Option<StampPrograms>,
}

/// Record of an algorithm when it is unregistered.
#[derive(Debug, Default)]
pub struct AlgorithmRecord {
    /// Counters of the datapath.
    pub counters: AlgorithmCounters,
    /// Reports that the algorithm received.
    pub report_log: ReportLog,
    /// The agent in another process was gone at the end.
    pub agent_gone: bool,
    /// Run time of the BPF programs, if the kernel measured it.
    pub costs: Vec<Cost>,
}

/// Executor of the algorithm's callbacks.
enum CallbackExecutor {
    Agent(Box<Agent>),
    /// No callbacks. The metadata names the fields of the reports.
    NoCallbacks(Arc<HostedAlgorithm>),
    Remote(Box<dyn AgentConnection>),
}

impl SteeredAlgorithm {
    /// Registers the algorithm of a contender with the kernel, and starts the thread of its
    /// reports, which stores the first `keep` of them. The algorithm runs in the agent that the
    /// contender names, or else in `agent`, or else in this thread, which then has low priority if
    /// `low_priority` is set, for an algorithm with long computations. Returns `None` for a
    /// congestion control of the datapath itself.
    pub fn start(
        contender: &Contender,
        registry: &Registry,
        agent: Option<&AgentAddress>,
        keep: usize,
        low_priority: bool,
    ) -> Result<Option<SteeredAlgorithm>, Error> {
        if let Some(agent) = agent_of(contender, agent)? {
            let name = contender.agent_name();
            return SteeredAlgorithm::start_remote(&agent, &name, None, keep).map(Some);
        }
        match contender {
            Contender::Ccplane { name, parameters } => {
                let parameters = read(parameters);
                SteeredAlgorithm::start_here(registry, name, &parameters, keep, low_priority)
                    .map(Some)
            }
            Contender::Remote { .. } | Contender::Native { .. } => Ok(None),
        }
    }

    /// Registers an algorithm that runs in this process.
    fn start_here(
        registry: &Registry,
        name: &str,
        parameters: &Parameters,
        keep: usize,
        low_priority: bool,
    ) -> Result<SteeredAlgorithm, Error> {
        let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
        let algorithm = registry.by_name(name, parameters)?;
        let wants = algorithm.requested_capabilities();
        agent.add_boxed(algorithm)?;
        let specs = agent
            .hosted_algorithms()
            .map(|hosted| AlgorithmSpec::from(&**hosted))
            .collect();
        let alone = agent
            .hosted_algorithms()
            .find(|hosted| hosted.standalone.is_some())
            .cloned();
        let by = alone.map_or_else(
            || CallbackExecutor::Agent(Box::new(agent)),
            CallbackExecutor::NoCallbacks,
        );
        SteeredAlgorithm::launch(
            specs,
            wants,
            by,
            RegistrationOptions::default(),
            keep,
            low_priority,
        )
    }

    /// Registers an algorithm that an agent in another process runs. The thread relays messages
    /// between datapath and agent. `kernel_name`: congestion control name for sockets, if it
    /// differs from the agent's name for the algorithm.
    pub fn start_remote(
        agent: &AgentAddress,
        name: &str,
        kernel_name: Option<&str>,
        keep: usize,
    ) -> Result<SteeredAlgorithm, Error> {
        let mut options = RegistrationOptions::default();
        let asked = remote_algorithms(agent, &[name], options.limits.agent_timeout)
            .map_err(BackendError::from)?;
        if let Some(round_trip) = asked.round_trip {
            options.limits.agent_timeout = remote_agent_timeout(round_trip);
        }
        let mut found = asked.algorithms;
        if let Some(kernel_name) = kernel_name {
            found
                .iter_mut()
                .for_each(|one| kernel_name.clone_into(&mut one.kernel_name));
        }
        let wants = requested(&found);
        let remote = agent.connection(name);
        SteeredAlgorithm::launch(
            found,
            wants,
            CallbackExecutor::Remote(remote),
            options,
            keep,
            false,
        )
    }

    fn launch(
        specs: Vec<AlgorithmSpec>,
        wants: Capabilities,
        by: CallbackExecutor,
        options: RegistrationOptions,
        keep: usize,
        behind: bool,
    ) -> Result<SteeredAlgorithm, Error> {
        let stamped = wants.contains(Capabilities::ONE_WAY_DELAY);
        let kernel_name = specs
            .first()
            .map(|spec| spec.kernel_name.clone())
            .unwrap_or_default();
        let stamps = stamped
            .then(|| StampPrograms::load(&[&kernel_name], true))
            .transpose()
            .map_err(BackendError::Kernel)?;
        let options = RegistrationOptions {
            stamps: stamps
                .as_ref()
                .map(StampPrograms::storage)
                .transpose()
                .map_err(BackendError::Kernel)?,
            flows: FLOW_TABLE_SLOTS,
            ..options
        };
        let stop = Arc::new(AtomicBool::new(false));
        let reports = Arc::new(AtomicU64::new(0));
        // The datapath is loaded by the thread that runs it, which reports the result through this
        // channel.
        let (tell, told) = mpsc::sync_channel::<Result<(Pid, Flows), LoadError>>(1);
        let body = {
            let (stop, reports) = (stop.clone(), reports.clone());
            move || {
                let mut kernel = match Kernel::load(&specs, &options) {
                    Ok(kernel) => kernel,
                    Err(error) => {
                        let _ = tell.send(Err(error));
                        return AlgorithmRecord::default();
                    }
                };
                if behind {
                    // No privilege is needed. On failure the thread keeps its priority.
                    let _ = ccplane_host::lower_priority();
                }
                let _ = tell.send(Ok((gettid(), kernel.observe_flows())));
                let mut agent_gone = false;
                let heard = match by {
                    CallbackExecutor::Agent(mut agent) => {
                        let hosted: Vec<_> = agent.hosted_algorithms().cloned().collect();
                        let mut listener = EventListener::new(
                            hosted.iter().map(|hosted| &**hosted),
                            &reports,
                            keep,
                        );
                        run_agent(&mut kernel, &mut agent, &stop, &mut listener);
                        listener.into_log()
                    }
                    CallbackExecutor::NoCallbacks(hosted) => {
                        let mut listener =
                            EventListener::new([&*hosted].into_iter(), &reports, keep);
                        run_reader(&mut kernel, &stop, &mut listener);
                        listener.into_log()
                    }
                    CallbackExecutor::Remote(mut remote) => {
                        // The field names of the agent's programs are not known here.
                        let mut listener = EventListener::new([].into_iter(), &reports, keep);
                        run_relay(&mut kernel, &mut *remote, &stop, &mut listener);
                        agent_gone = !remote.is_connected();
                        listener.into_log()
                    }
                };
                let counters = kernel
                    .counters()
                    .next()
                    .map(|(_, _, counters)| counters)
                    .unwrap_or_default();
                AlgorithmRecord {
                    counters,
                    report_log: heard,
                    agent_gone,
                    costs: kernel.run_times(),
                }
            }
        };
        let thread = thread::Builder::new()
            .name("ccplane-agent".to_owned())
            .spawn(body)
            .map_err(Error::traffic("start the algorithm's thread", ""))?;
        match told.recv() {
            Ok(Ok((id, flows))) => Ok(SteeredAlgorithm {
                kernel_name,
                capabilities: wants,
                thread_id: id,
                thread: Some(thread),
                stop,
                reports,
                flows,
                stamps,
            }),
            Ok(Err(error)) => {
                let _ = thread.join();
                Err(BackendError::Kernel(error).into())
            }
            Err(_) => match thread.join() {
                Err(payload) => panic::resume_unwind(payload),
                Ok(_) => Err(BackendError::AgentEnded.into()),
            },
        }
    }

    /// Takes the timestamping programs, which the caller attaches to the path. `None` if the
    /// algorithm wants none or they were taken before.
    pub fn take_stamps(&mut self) -> Option<StampPrograms> {
        self.stamps.take()
    }

    /// Returns the capabilities of a path that the algorithm needs or can use.
    pub(crate) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Returns the congestion control name that sockets select.
    pub fn kernel_name(&self) -> &str {
        &self.kernel_name
    }

    /// Returns the thread that runs the algorithm.
    pub(crate) fn thread(&self) -> Pid {
        self.thread_id
    }

    /// Returns the flows as the kernel sees them. It works even if the algorithm's thread hangs.
    pub(crate) fn flows(&self) -> &Flows {
        &self.flows
    }

    /// Returns the number of reports that the algorithm has received.
    pub(crate) fn reports(&self) -> u64 {
        self.reports.load(Ordering::Relaxed)
    }

    /// Stops and unregisters the algorithm.
    pub fn finish(mut self) -> Result<AlgorithmRecord, Error> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => Ok(outcome),
            Some(Err(payload)) => panic::resume_unwind(payload),
            None => Err(BackendError::AgentEnded.into()),
        }
    }
}

impl Drop for SteeredAlgorithm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}
