//! An algorithm in a thread of its own, and the bundles it controls.
//!
//! A callback that is slow or hangs delays no packet: the bundles stay in open mode until the
//! algorithm responds again.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use ccplane_agent::datapath::{Datapath, DatapathCore, FlowMut};
use ccplane_agent::{
    Agent, AgentOptions, DatapathId, DynAlgorithm, FlowId, FlowInfo, ProgramTables,
};
use ccplane_bundle::CAPABILITIES;
use ccplane_datapath::OperatorLimits;
use ccplane_link::{AgentThread, DatapathLink};
use ccplane_link::{Pollable, ThreadChannel, ThreadLink, thread_channel};
use ccplane_units::{Bytes, Time};
use ccplane_wire::WireCommand;
use nix::poll::PollFlags;

use super::error::GatewayError;

/// Latest gauges of the algorithm's bundles, by bundle id.
type LatestGauges = Arc<Mutex<BTreeMap<u64, Vec<(&'static str, f64)>>>>;

/// Datapath side of an algorithm.
pub(crate) struct BundleSteering {
    datapath: Datapath<ThreadChannel>,
    gauges: LatestGauges,
    /// Keeps the algorithm's thread alive; dropping it stops the thread.
    _thread: AgentThread,
}

impl BundleSteering {
    /// Starts the algorithm in a new thread.
    pub fn start(
        now: Time,
        algorithm: Box<dyn DynAlgorithm>,
    ) -> Result<BundleSteering, GatewayError> {
        let name = algorithm.name().to_owned();
        let failed = |why: String| GatewayError::Algorithm {
            algorithm: name.clone(),
            why,
        };
        let missing = algorithm.required_capabilities().missing_from(CAPABILITIES);
        if !missing.is_empty() {
            let names: Vec<&str> = missing.names().collect();
            return Err(failed(format!(
                "it needs {}, which bundles do not provide",
                names.join(", ")
            )));
        }
        let mut agent = Agent::new(AgentOptions::default());
        agent
            .add_boxed(algorithm)
            .map_err(|why| failed(why.to_string()))?;
        let (way, served) = thread_channel()?;
        let said = LatestGauges::default();
        let link = GaugeRecorder {
            link: served,
            gauges: Arc::clone(&said),
            id: DatapathId(0),
        };
        let thread = AgentThread::start("gateway-agent", agent, link)
            .map_err(|why| failed(why.to_string()))?;
        let tables = ProgramTables::new(OperatorLimits::default(), CAPABILITIES);
        Ok(BundleSteering {
            datapath: Datapath::new(
                now,
                DatapathCore::new(std::process::id(), "gateway", tables, way),
            ),
            gauges: said,
            _thread: thread,
        })
    }

    /// Opens a bundle. `mtu`: bytes of a full packet on the wire.
    pub fn open(&mut self, now: Time, bundle: u64, mtu: u32) {
        let info = FlowInfo {
            mss: Bytes::new(mtu.into()),
            ..FlowInfo::default()
        };
        self.datapath.open(now, bundle, info);
        self.datapath.poll(now);
    }

    /// Closes a bundle. `arrived` are bytes, `lost` packets.
    pub fn close(&mut self, now: Time, bundle: u64, arrived: u64, lost: u64) {
        self.datapath.close(now, bundle, Bytes::new(arrived), lost);
        locked(&self.gauges).remove(&bundle);
    }

    /// Returns the bundle's flow, for calls of its sendbox.
    pub fn bundle(&mut self, bundle: u64) -> Option<FlowMut<'_, ThreadChannel, FlowInfo>> {
        self.datapath.flow(bundle)
    }

    /// Applies the algorithm's commands and sends it the pending reports.
    pub fn process(&mut self, now: Time) {
        self.datapath.poll(now);
    }

    /// Returns the latest gauges of a bundle.
    pub fn gauges(&self, bundle: u64) -> Vec<(&'static str, f64)> {
        locked(&self.gauges)
            .get(&bundle)
            .cloned()
            .unwrap_or_default()
    }

    /// Returns a descriptor that is readable when commands are pending.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.datapath.channel().as_fd()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Agent side of the channel. It stores the algorithm's gauges before it forwards a command.
struct GaugeRecorder {
    link: ThreadLink,
    gauges: LatestGauges,
    id: DatapathId,
}

impl DatapathLink for GaugeRecorder {
    fn set_id_base(&mut self, base: u32) {
        self.id = DatapathId(base);
        self.link.set_id_base(base);
    }

    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool {
        self.link.receive(agent, now)
    }

    fn send(&mut self, agent: &mut Agent, now: Time, to: DatapathId, command: &WireCommand) {
        let flow = match command {
            WireCommand::SetProgram { flow, .. }
            | WireCommand::Update { flow, .. }
            | WireCommand::Release { flow } => Some(*flow),
            _ => None,
        };
        if let Some(flow) = flow {
            let values = agent.gauges(FlowId {
                datapath: self.id,
                flow,
            });
            let mut said = locked(&self.gauges);
            let noted = said.entry(flow).or_default();
            noted.clear();
            noted.extend_from_slice(values);
        }
        self.link.send(agent, now, to, command);
    }

    fn flush(&mut self, agent: &mut Agent) -> bool {
        self.link.flush(agent)
    }

    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        self.link.watch(watched);
    }
}
