//! Sockets of a run over UDP, made where a flow first needs them.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ccplane_agent::Agent;
use ccplane_agent::datapath::{Here, There};
use ccplane_algorithms::Registry;
use ccplane_datapath::{Capabilities, Limits};
use ccplane_emu::Emulator;
use ccplane_linux::remote_algorithms;
use ccplane_qdisc::Ecn;
use ccplane_transport::udp::{Congestion, DATAGRAM, Host, Options, Stamping};
use ccplane_transport::{Config, Native, Tail};
use ccplane_workload::NodeId;

use super::broken;
use crate::contender::{Contender, read};
use crate::ends::inside;
use crate::error::Error;
use crate::packets::RemoteAgent;
use crate::real::RealPlan;
use crate::real::drive::place;
use crate::real::socket::{self, DATAGRAM_HEADERS};

/// Connections that a host takes from others at a time.
const MOST: usize = 1 << 16;

/// See the module.
pub(super) struct Net<'r> {
    emulator: &'r Emulator,
    pub plan: &'r RealPlan,
    registry: &'r Registry,
    agent: Option<&'r RemoteAgent>,
    tail: Option<Tail>,
    pub hosts: Vec<Host>,
    /// By host, the first workload of its algorithm, and whether it accepts.
    places: HashMap<(NodeId, usize, bool), (usize, Congestion)>,
    /// For datagrams, by workload, sender and receiver.
    sockets: HashMap<(usize, NodeId, NodeId), UdpSocket>,
    /// Where they are taken, by workload and receiver.
    sinks: HashMap<(usize, NodeId), (UdpSocket, Arc<AtomicU64>)>,
}

impl<'r> Net<'r> {
    /// None are made yet.
    pub fn new(
        emulator: &'r Emulator,
        plan: &'r RealPlan,
        registry: &'r Registry,
        agent: Option<&'r RemoteAgent>,
        tail: Option<Tail>,
    ) -> Net<'r> {
        Net {
            emulator,
            plan,
            registry,
            agent,
            tail,
            hosts: Vec::new(),
            places: HashMap::new(),
            sockets: HashMap::new(),
            sinks: HashMap::new(),
        }
    }

    /// Counts the datagrams that have arrived.
    pub fn swallow(&self) {
        for (sink, received) in self.sinks.values() {
            let mut buffer = [0; 2048];
            // Whatever the network says of a datagram, the next one may come.
            while let Ok(count) = sink.recv(&mut buffer) {
                received.fetch_add(count as u64 + u64::from(DATAGRAM_HEADERS), Ordering::Relaxed);
            }
        }
    }

    /// The socket of a host for a workload's algorithm, and what controls connections that it opens.
    pub fn host(&mut self, workload: usize, node: NodeId, accepts: bool) -> Result<(usize, Congestion), Error> {
        let (plan, emulator) = (self.plan, self.emulator);
        let Some(wanted) = plan.workloads.get(workload) else {
            return Err(Error::NoContender);
        };
        let same = plan
            .workloads
            .iter()
            .position(|other| other.contender == wanted.contender);
        let key = (node, same.unwrap_or(workload), accepts);
        if let Some((at, congestion)) = self.places.get(&key) {
            return Ok((*at, congestion.clone()));
        }
        let contender = wanted.contender.as_ref().ok_or(Error::NoContender)?;
        let host = place(plan, node)?;
        let options = Options {
            local: SocketAddr::new(host.address, 0),
            ..self.options(contender, wanted.wants)
        };
        let bind = || Host::bind(options).map_err(io::Error::other);
        let mut bound = inside(host.side.namespace(emulator), "open a UDP socket in a namespace", bind)?;
        let congestion = if accepts {
            bound.listen(MOST).map_err(broken)?;
            Congestion::Native(Native::cubic())
        } else {
            self.congestion(contender, &mut bound)?
        };
        let at = self.hosts.len();
        self.hosts.push(bound);
        self.places.insert(key, (at, congestion.clone()));
        Ok((at, congestion))
    }

    /// Of both ends' sockets.
    fn options(&self, contender: &Contender, wants: Capabilities) -> Options {
        let stamps = wants.contains(Capabilities::ONE_WAY_DELAY);
        // What accepts sends back under the same control where it is the transport's own, else under Cubic, as in the simulator.
        let accepted = match contender {
            Contender::Native { name } => crate::sim::native(name).unwrap_or_else(|_| Native::cubic()),
            Contender::Ccplane { .. } => Native::cubic(),
        };
        let config = Config {
            ecn: match wants.contains(Capabilities::ECN) {
                true => Ecn::Ect0,
                false => Ecn::NotEct,
            },
            stamps,
            tail: self.tail,
            ..Config::default()
        };
        Options {
            local: SocketAddr::from(([0; 4], 0)),
            datagram: DATAGRAM,
            // A connection has memory for this at either end; the socket buffer of TCP counts everything twice.
            window: (self.plan.buffer / 2).clamp(1 << 20, 1 << 29),
            key: None,
            dscp: 0,
            config,
            stamping: if stamps { Stamping::Software } else { Stamping::Off },
            link: None,
            accepted,
        }
    }

    /// Who decides windows: an agent in this thread, one in another process, or the transport itself.
    fn congestion(&self, contender: &Contender, host: &mut Host) -> Result<Congestion, Error> {
        let (name, parameters) = match contender {
            Contender::Native { name } => return Ok(Congestion::Native(crate::sim::native(name)?)),
            Contender::Ccplane { name, parameters } => (name, parameters),
        };
        let limits = Limits::default();
        match self.agent {
            None => {
                let mut agent = Agent::new(ccplane_agent::Options::default());
                agent.add_boxed(self.registry.by_name(name, &read(parameters))?)?;
                host.steer(Here::new(agent), limits);
            }
            Some(agent) => {
                // An agent serves a flow whose algorithm it lacks by the first that it has.
                remote_algorithms(&agent.address, &[name], limits.fallback_after)?;
                let remote = agent.address.remote(name, agent.silence);
                let link = There::connect(remote, host.now()).map_err(ccplane_linux::RemoteError::from)?;
                host.steer(link, limits);
            }
        }
        Ok(Congestion::Steered(name.clone()))
    }

    /// Sends a datagram.
    pub fn datagram(
        &mut self,
        workload: usize,
        from: NodeId,
        to: NodeId,
        bytes: u32,
        counted: Arc<AtomicU64>,
    ) -> Result<(), Error> {
        let (here, there) = (place(self.plan, from)?, place(self.plan, to)?);
        let sink = (workload, to);
        if !self.sinks.contains_key(&sink) {
            let open = || {
                let sink = socket::sink(self.plan.buffer)?;
                Ok((sink.local_addr()?, sink))
            };
            let (_, opened) = inside(
                there.side.namespace(self.emulator),
                "take datagrams in a namespace",
                open,
            )?;
            self.sinks.insert(sink, (opened, counted));
        }
        let key = (workload, from, to);
        if !self.sockets.contains_key(&key)
            && let Some((sink, _)) = self.sinks.get(&sink)
        {
            let port = sink
                .local_addr()
                .map_err(Error::traffic("read a socket's address", ""))?
                .port();
            let to = SocketAddr::new(there.address, port);
            let open = || socket::datagrams(here.address, to);
            let opened = inside(here.side.namespace(self.emulator), "open a socket for datagrams", open)?;
            self.sockets.insert(key, opened);
        }
        let payload = vec![0; bytes.saturating_sub(DATAGRAM_HEADERS) as usize];
        if let Some(socket) = self.sockets.get(&key) {
            // What the host cannot send is lost, as what the network cannot carry.
            let _ = socket.send(&payload);
        }
        Ok(())
    }
}
