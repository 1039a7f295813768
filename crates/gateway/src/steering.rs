//! An algorithm of a gateway, in a thread of its own, and the bundles that it steers.
//!
//! A callback that takes long, or never returns, delays no packet: its bundles are open until it is
//! heard again.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use ccplane_agent::datapath::{Datapath, Lent, Shared};
use ccplane_agent::{Agent, DatapathId, DynAlgorithm, FlowId, FlowInfo, Options, Tables};
use ccplane_bundle::CAPABILITIES;
use ccplane_datapath::Limits;
use ccplane_link::{AgentThread, Link};
use ccplane_link::{Beside, Pollable, Served, beside};
use ccplane_units::{Bytes, Time};
use ccplane_wire::Command;
use nix::poll::PollFlags;

use super::error::GatewayError;

/// What algorithms say of their bundles, by the bundle's number.
type Said = Arc<Mutex<BTreeMap<u64, Vec<(&'static str, f64)>>>>;

/// The datapath's end of an algorithm.
pub(crate) struct Steering {
    datapath: Datapath<Beside>,
    said: Said,
    /// It ends with this.
    _thread: AgentThread,
}

impl Steering {
    /// Starts the algorithm's thread.
    pub fn start(now: Time, algorithm: Box<dyn DynAlgorithm>) -> Result<Steering, GatewayError> {
        let name = algorithm.name().to_owned();
        let failed = |why: String| GatewayError::Algorithm {
            algorithm: name.clone(),
            why,
        };
        let missing = algorithm.needs().missing_from(CAPABILITIES);
        if !missing.is_empty() {
            let names: Vec<&str> = missing.names().collect();
            return Err(failed(format!(
                "it needs {}, which a bundle does not have",
                names.join(", ")
            )));
        }
        let mut agent = Agent::new(Options::default());
        agent
            .add_boxed(algorithm)
            .map_err(|why| failed(why.to_string()))?;
        let (way, served) = beside()?;
        let said = Said::default();
        let link = Overheard {
            served,
            said: Arc::clone(&said),
            id: DatapathId(0),
        };
        let thread = AgentThread::start("gateway-agent", agent, link)
            .map_err(|why| failed(why.to_string()))?;
        let tables = Tables::new(Limits::default(), CAPABILITIES);
        Ok(Steering {
            datapath: Datapath::new(now, Shared::new(std::process::id(), "gateway", tables, way)),
            said,
            _thread: thread,
        })
    }

    /// A bundle begins, with packets of at most so many bytes on the wire.
    pub fn open(&mut self, now: Time, bundle: u64, mtu: u32) {
        let info = FlowInfo {
            mss: Bytes::new(mtu.into()),
            ..FlowInfo::default()
        };
        self.datapath.open(now, bundle, info);
        self.datapath.turn(now);
    }

    /// A bundle ends, of which so many bytes arrived and so many packets were lost.
    pub fn close(&mut self, now: Time, bundle: u64, arrived: u64, lost: u64) {
        self.datapath.close(now, bundle, Bytes::new(arrived), lost);
        locked(&self.said).remove(&bundle);
    }

    /// A bundle, for a call of its sendbox.
    pub fn bundle(&mut self, bundle: u64) -> Option<Lent<'_, Beside, FlowInfo>> {
        self.datapath.flow(bundle)
    }

    /// Takes what the algorithm ordered, and sends what it is to hear.
    pub fn turn(&mut self, now: Time) {
        self.datapath.turn(now);
    }

    /// What the algorithm said last of a bundle.
    pub fn said(&self, bundle: u64) -> Vec<(&'static str, f64)> {
        locked(&self.said).get(&bundle).cloned().unwrap_or_default()
    }

    /// What to wait on for orders.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.datapath.way().as_fd()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The agent's end, which notes what algorithms say of their bundles.
struct Overheard {
    served: Served,
    said: Said,
    id: DatapathId,
}

impl Link for Overheard {
    fn number_from(&mut self, base: u32) {
        self.id = DatapathId(base);
        self.served.number_from(base);
    }

    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool {
        self.served.receive(agent, now)
    }

    fn send(&mut self, agent: &mut Agent, now: Time, to: DatapathId, command: &Command) {
        let flow = match command {
            Command::SetProgram { flow, .. }
            | Command::Update { flow, .. }
            | Command::Release { flow } => Some(*flow),
            _ => None,
        };
        if let Some(flow) = flow {
            let values = agent.gauges(FlowId {
                datapath: self.id,
                flow,
            });
            let mut said = locked(&self.said);
            let noted = said.entry(flow).or_default();
            noted.clear();
            noted.extend_from_slice(values);
        }
        self.served.send(agent, now, to, command);
    }

    fn flush(&mut self, agent: &mut Agent) -> bool {
        self.served.flush(agent)
    }

    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        self.served.watch(watched);
    }
}
