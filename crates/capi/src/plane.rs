//! Implementation of the header's functions: the flows of a program, and the algorithm that
//! controls them, in this process or in an agent.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use ccplane_agent::datapath::{
    AgentChannel, DatapathCore, FlowState, Incoming, InlineChannel, record_outcome,
};
use ccplane_agent::{Agent, AgentOptions, DynAlgorithm, FlowInfo, ProgramTables};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_datapath::{Capabilities, OperatorLimits, Outcome, Signals, SteeredFlow, Transport};
use ccplane_link::{AgentAddress, AgentThread, remote_agent_timeout};
use ccplane_link::{Pollable, RemoteChannel, thread_channel};
use ccplane_units::{Bytes, Duration, Time};

use crate::caller_memory::ErrorCode;
use crate::types::*;

/// Maximum number of flows: 32 bits of a flow number are the slot.
const FLOWS_MAX: usize = u32::MAX as usize;

/// Time to wait for the algorithm's thread when its datapath is closed. If a callback takes longer,
/// the thread is left running and ends with the process.
const THREAD_END_TIMEOUT: Duration = Duration::from_millis(100);

/// Options of a plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneOptions<'a> {
    pub algorithm: Option<&'a str>,
    pub agent: Option<&'a str>,
    pub capabilities: Capabilities,
    pub same_thread: bool,
    pub limits: OperatorLimits,
    /// Set if the fallback time was configured; otherwise it depends on the round-trip time to a
    /// remote agent.
    pub fallback_configured: bool,
}

/// Error while opening a plane.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct PlaneError {
    pub code: ErrorCode,
    why: String,
}

fn failed(code: ErrorCode, why: impl ToString) -> PlaneError {
    let why = why.to_string();
    PlaneError { code, why }
}

/// Datapath with its flows.
pub(crate) struct CPlane {
    core: DatapathCore<Box<dyn Pollable>>,
    flows: Vec<FlowSlot>,
    free: Vec<u32>,
    /// Algorithm that flows request.
    requested_algorithm: String,
    /// Sends reports at once. Not for an agent on the same thread, which would then run within the
    /// call for an ACK; it waits for the next turn.
    flush_at_once: bool,
    stats: PlaneStats,
    agent: Option<AgentThread>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlaneStats {
    pub opened: u64,
    pub closed: u64,
    pub reports: u64,
    pub fallbacks: u64,
}

/// Slot of a flow with its generation, which makes the numbers of earlier flows invalid.
struct FlowSlot {
    generation: u32,
    flow: Option<FlowState<FlowUserData>>,
}

/// User data of a flow.
struct FlowUserData {
    info: FlowInfo,
    in_fallback: bool,
}

impl CPlane {
    /// Opens a plane. A requested agent must be reachable.
    pub fn open(wanted: &PlaneOptions<'_>) -> Result<CPlane, PlaneError> {
        let asks_for = match (wanted.agent, wanted.algorithm) {
            (Some(_), Some(algorithm)) => algorithm.to_owned(),
            _ => String::new(),
        };
        let mut limits = wanted.limits;
        let (way, agent): (Box<dyn Pollable>, _) = match (wanted.agent, wanted.algorithm) {
            (Some(address), _) => {
                let way = connect_remote(address, &asks_for)?;
                if let (false, Some(round_trip)) = (wanted.fallback_configured, way.round_trip()) {
                    limits.agent_timeout = remote_agent_timeout(round_trip);
                }
                (Box::new(way), None)
            }
            (None, None) => {
                return Err(failed(
                    CCPLANE_EALGORITHM,
                    "algorithm and agent are both null; set one of them",
                ));
            }
            (None, Some(algorithm)) => {
                let agent = create_agent(algorithm, wanted.capabilities)?;
                if wanted.same_thread {
                    (Box::new(InlineChannel::new(agent)), None)
                } else {
                    let (way, served) =
                        thread_channel().map_err(|why| failed(CCPLANE_ESYSTEM, why))?;
                    let thread = AgentThread::start("ccplane-agent", agent, served);
                    (
                        Box::new(way),
                        Some(thread.map_err(|why| failed(CCPLANE_ESYSTEM, why))?),
                    )
                }
            }
        };
        let mut plane = CPlane::with_channel(way, limits, wanted.capabilities);
        plane.requested_algorithm = asks_for;
        plane.flush_at_once = !wanted.same_thread || wanted.agent.is_some();
        plane.agent = agent;
        Ok(plane)
    }

    /// Creates a plane whose agent is on the same thread, at the other end of `way`.
    pub fn with_channel(
        channel: Box<dyn Pollable>,
        limits: OperatorLimits,
        capabilities: Capabilities,
    ) -> CPlane {
        let tables = ProgramTables::new(limits, capabilities);
        let mut plane = CPlane {
            core: DatapathCore::new(std::process::id(), "c", tables, channel),
            flows: Vec::new(),
            free: Vec::new(),
            requested_algorithm: String::new(),
            flush_at_once: false,
            stats: PlaneStats::default(),
            agent: None,
        };
        plane.announce(Time::ZERO);
        plane.core.channel.flush(Time::ZERO);
        plane
    }

    /// Opens a flow and returns its number, which is unique and never 0.
    pub fn open_flow(&mut self, now: Time, mut info: FlowInfo) -> Result<u64, ErrorCode> {
        info.algorithm.clone_from(&self.requested_algorithm);
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.flows.len() < FLOWS_MAX => {
                self.flows.push(FlowSlot {
                    generation: 0,
                    flow: None,
                });
                (self.flows.len() - 1) as u32
            }
            None => return Err(CCPLANE_EFULL),
        };
        let place = &mut self.flows[index as usize];
        place.generation += 1;
        let number = u64::from(place.generation) << 32 | u64::from(index);
        let kept = FlowUserData {
            info: info.clone(),
            in_fallback: false,
        };
        place.flow = Some(self.core.open(now, number, info, kept));
        self.stats.opened += 1;
        self.core.channel.flush(now);
        Ok(number)
    }

    /// Closes a flow.
    pub fn close_flow(
        &mut self,
        now: Time,
        number: u64,
        acked: Bytes,
        lost: u64,
    ) -> Result<(), ErrorCode> {
        let flow = find(&mut self.flows, number).ok_or(CCPLANE_ENOFLOW)?;
        self.core.close(now, number, flow, acked, lost);
        self.core.channel.flush(now);
        let index = number as u32;
        let place = &mut self.flows[index as usize];
        place.flow = None;
        // A slot whose generations are exhausted is not reused.
        if place.generation < u32::MAX {
            self.free.push(index);
        }
        self.stats.closed += 1;
        Ok(())
    }

    /// Processes an ACK or a timeout. Allocates only if an agent on the same thread has more
    /// reports waiting than ever before.
    #[inline]
    pub fn on_ack(
        &mut self,
        number: u64,
        transport: &Transport,
        signals: &Signals,
    ) -> Result<Outcome, ErrorCode> {
        let flow = find(&mut self.flows, number).ok_or(CCPLANE_ENOFLOW)?;
        let outcome = self.core.flow_mut(number, flow).on_ack(transport, signals);
        flow.user_data.update(transport, &outcome, &mut self.stats);
        self.on_outcome(transport.now, &outcome);
        Ok(outcome)
    }

    /// Processes a flow's deadline.
    pub fn on_deadline(
        &mut self,
        number: u64,
        transport: &Transport,
    ) -> Result<Outcome, ErrorCode> {
        let flow = find(&mut self.flows, number).ok_or(CCPLANE_ENOFLOW)?;
        let outcome = self.core.flow_mut(number, flow).on_deadline(transport);
        flow.user_data.update(transport, &outcome, &mut self.stats);
        self.on_outcome(transport.now, &outcome);
        Ok(outcome)
    }

    /// Returns a flow's deadline; for flow 0, the latest time of the next turn.
    pub fn next_deadline(&mut self, number: u64) -> Result<Option<Time>, ErrorCode> {
        if number == 0 {
            return Ok(self.core.channel.next_deadline());
        }
        let flow = find(&mut self.flows, number).ok_or(CCPLANE_ENOFLOW)?;
        Ok(flow.flow().next_deadline())
    }

    /// Receives the agent's commands and sends pending messages.
    pub fn process(&mut self, now: Time) {
        self.core.channel.poll(now);
        while let Some(brought) = self.core.channel.recv(now) {
            match brought {
                Incoming::AgentConnected => self.announce(now),
                Incoming::Command(command) => {
                    let flows = &mut self.flows;
                    self.core
                        .apply_command(now, &command, |number| find(flows, number));
                }
            }
        }
        self.core.channel.flush(now);
    }

    /// Returns the descriptor to wait for before a turn.
    pub fn fd(&self) -> Option<RawFd> {
        self.core.channel.as_fd().map(|fd| fd.as_raw_fd())
    }

    pub fn stats(&self) -> PlaneStats {
        self.stats
    }

    #[inline(always)]
    fn on_outcome(&mut self, now: Time, outcome: &Outcome) {
        if outcome.report.is_some() {
            self.stats.reports += 1;
            if self.flush_at_once {
                self.core.channel.flush(now);
            }
        }
    }

    fn announce(&mut self, now: Time) {
        let flows = self.flows.iter().enumerate().filter_map(|(index, place)| {
            let number = u64::from(place.generation) << 32 | index as u64;
            Some((number, place.flow.as_ref()?.user_data.info.clone()))
        });
        self.core.announce(now, flows);
    }
}

#[inline(always)]
fn find(flows: &mut [FlowSlot], number: u64) -> Option<&mut FlowState<FlowUserData>> {
    let place = flows.get_mut(number as u32 as usize)?;
    if u64::from(place.generation) != number >> 32 {
        return None;
    }
    place.flow.as_mut()
}

impl FlowUserData {
    /// Records the state of the flow, for an agent that takes over.
    #[inline(always)]
    fn update(&mut self, transport: &Transport, outcome: &Outcome, stats: &mut PlaneStats) {
        record_outcome(&mut self.info, transport, outcome);
        if outcome.fallback != self.in_fallback {
            self.in_fallback = outcome.fallback;
            stats.fallbacks += u64::from(outcome.fallback);
        }
    }
}

fn connect_remote(address: &str, asks_for: &str) -> Result<RemoteChannel, PlaneError> {
    let address: AgentAddress = address.parse().map_err(|why| failed(CCPLANE_EVALUE, why))?;
    RemoteChannel::connect(address.connection(asks_for), Time::ZERO)
        .map_err(|why| failed(CCPLANE_EAGENT, why))
}

/// Creates an agent for one algorithm: `cubic`, `cubic:report=10ms`, `./mine.ccp:gain=2`.
fn create_agent(text: &str, capabilities: Capabilities) -> Result<Agent, PlaneError> {
    let unknown = |why: &dyn ToString| failed(CCPLANE_EALGORITHM, why.to_string());
    let mut parts = text.trim().split(':');
    let name = parts.next().unwrap_or_default();
    let mut parameters = Parameters::new();
    for part in parts {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| unknown(&format!("`{part}` does not have the form name=value")))?;
        parameters = parameters.with(key.trim(), value.trim());
    }
    let registry = Registry::builtin().with_files(|path| std::fs::read_to_string(path));
    let algorithm = registry
        .by_name(name, &parameters)
        .map_err(|why| unknown(&why))?;
    can_run(&*algorithm, capabilities)?;
    let mut agent = Agent::new(AgentOptions::default());
    agent.add_boxed(algorithm).map_err(|why| unknown(&why))?;
    Ok(agent)
}

fn can_run(algorithm: &dyn DynAlgorithm, capabilities: Capabilities) -> Result<(), PlaneError> {
    let missing = algorithm.required_capabilities().missing_from(capabilities);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.names().collect();
    let why = format!(
        "{} needs {}, which the datapath does not declare (ccplane_options.capabilities)",
        algorithm.name(),
        names.join(", ")
    );
    Err(failed(CCPLANE_ECAPABILITY, why))
}

impl Drop for CPlane {
    /// Closes the channel before waiting for the thread, which ends when its datapath is gone. No
    /// thread may remain in a library that is unloaded.
    fn drop(&mut self) {
        let Some(thread) = self.agent.take() else {
            return;
        };
        // Dropping the channel wakes the thread.
        self.core.channel = Box::new(ClosedChannel);
        thread.stop_and_join(THREAD_END_TIMEOUT);
    }
}

/// Channel of a datapath that is being closed.
struct ClosedChannel;

impl AgentChannel for ClosedChannel {
    fn try_report(&mut self, _now: Time, _report: &ccplane_wire::WireEvent<'_>) -> bool {
        false
    }

    fn send(&mut self, _now: Time, _event: ccplane_wire::WireEvent<'static>) {}

    fn recv(&mut self, _now: Time) -> Option<Incoming> {
        None
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

impl Pollable for ClosedChannel {}

/// Parses a flow's address; unspecified if there is none.
pub(crate) fn address(text: Option<&str>) -> Result<SocketAddr, ErrorCode> {
    match text {
        None => Ok(FlowInfo::default().local),
        Some(text) => text.parse().map_err(|_| CCPLANE_EVALUE),
    }
}
