//! QUIC, with one of the supported stacks: a socket per host, algorithm and DSCP, opened when first
//! needed. All hosts share the runtime of an algorithm.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use ccplane_algorithms::Registry;
use ccplane_datapath::OperatorLimits;
use ccplane_emu::Emulator;
use ccplane_lab::Error;
use ccplane_lab::result::TcpInfo;
use ccplane_lab::{Contender, read};
use ccplane_link::AgentAddress;
use ccplane_link::identity::Identity;
use ccplane_linux::remote_algorithms;
use ccplane_quic::host::{HostError, HostOptions, Native, QuicCongestion, QuicHost, QuicStats};
use ccplane_quic::{QuicPlane, Stack};
use ccplane_units::Duration;
use ccplane_workload::NodeId;

use super::ends::{FLOW_ID_BYTES, FlowIdStatus, UserEnd, UserEnds};
use crate::ends::inside;
use crate::error::BackendError;
use crate::real::RealPlan;
use crate::real::accounting::place;
use crate::steer::agent_of;

/// Limit of connections per host, as with the other transports.
const CONNECTIONS_MAX: usize = 1 << 16;
/// Source of payload bytes.
static ZERO_BLOCK: [u8; 1 << 16] = [0; 1 << 16];

pub(super) struct QuicEnds<'r> {
    stack: Stack,
    emulator: &'r Emulator,
    plan: &'r RealPlan,
    registry: &'r Registry,
    agent: Option<&'r AgentAddress>,
    identity: Identity,
    hosts: Vec<QuicHost>,
    /// By host, first workload with the same algorithm, DSCP, and true if it accepts.
    host_index: HashMap<(NodeId, usize, u8, bool), usize>,
    /// By first workload with the same algorithm.
    controls: HashMap<usize, QuicCongestion>,
    /// Partial flow IDs of accepted connections.
    partial_flow_ids: HashMap<UserEnd, Vec<u8>>,
}

impl<'r> QuicEnds<'r> {
    /// Creates an empty set.
    pub fn new(
        stack: Stack,
        emulator: &'r Emulator,
        plan: &'r RealPlan,
        registry: &'r Registry,
        agent: Option<&'r AgentAddress>,
    ) -> Result<QuicEnds<'r>, Error> {
        let identity = Identity::new().map_err(|why| broken(why.into()))?;
        Ok(QuicEnds {
            stack,
            emulator,
            plan,
            registry,
            agent,
            identity,
            hosts: Vec::new(),
            host_index: HashMap::new(),
            controls: HashMap::new(),
            partial_flow_ids: HashMap::new(),
        })
    }

    /// Returns the index of the host for a workload's algorithm at a node.
    fn host(&mut self, workload: usize, node: NodeId, accepts: bool) -> Result<usize, Error> {
        let (plan, emulator) = (self.plan, self.emulator);
        let wanted = plan.workloads.get(workload).ok_or(Error::NoContender)?;
        let contender = wanted.contender.as_ref().ok_or(Error::NoContender)?;
        let same = plan
            .workloads
            .iter()
            .position(|other| other.contender == wanted.contender);
        let same = same.unwrap_or(workload);
        // ACKs and responses are not marked.
        let dscp = if accepts { 0 } else { wanted.dscp };
        let key = (node, same, dscp, accepts);
        if let Some(at) = self.host_index.get(&key) {
            return Ok(*at);
        }
        let congestion = self.control(same, contender)?;
        let host = place(plan, node)?;
        let options = HostOptions {
            stack: self.stack,
            local: SocketAddr::new(host.address, 0),
            // A connection may buffer this much at either end. TCP's socket buffer is twice that,
            // since the kernel charges for overhead.
            window: (plan.socket_buffer / 2).clamp(1 << 20, 1 << 29),
            idle_timeout: None,
            max_rate: None,
            qlog: None,
            dscp,
            connections_max: CONNECTIONS_MAX,
            per_address: CONNECTIONS_MAX,
            // Accepting ends use the contender if it is native, and otherwise Cubic, as in all
            // backends.
            congestion: match congestion {
                QuicCongestion::Steered(_) if accepts => QuicCongestion::Native(Native::Cubic),
                congestion => congestion,
            },
        };
        let identity = &self.identity;
        let bind = || {
            let bound = if accepts {
                QuicHost::listen(options, identity)
            } else {
                QuicHost::bind(options, Some(identity.fingerprint()))
            };
            bound.map_err(io::Error::other)
        };
        let bound = inside(
            host.side.namespace(emulator),
            "open a UDP socket in a namespace",
            bind,
        )?;
        let at = self.hosts.len();
        self.hosts.push(bound);
        self.host_index.insert(key, at);
        Ok(at)
    }

    /// Returns the control that sets the windows: an algorithm in its own thread, an agent in
    /// another process, or the stack itself.
    fn control(&mut self, workload: usize, contender: &Contender) -> Result<QuicCongestion, Error> {
        if let Some(known) = self.controls.get(&workload) {
            return Ok(known.clone());
        }
        let (stack, limits) = (self.stack, OperatorLimits::default());
        let control = match (contender, agent_of(contender, self.agent)?) {
            (Contender::Native { name }, _) => {
                QuicCongestion::Native(Native::by_name(stack, name).map_err(BackendError::from)?)
            }
            (
                Contender::Ccplane { name, parameters }
                | Contender::Remote {
                    name, parameters, ..
                },
                None,
            ) => {
                let algorithm = self.registry.by_name(name, &read(parameters))?;
                QuicCongestion::Steered(
                    QuicPlane::in_process(stack, algorithm, limits).map_err(BackendError::from)?,
                )
            }
            (Contender::Ccplane { .. } | Contender::Remote { .. }, Some(agent)) => {
                let name = contender.agent_name();
                // Checked here because an agent without the algorithm would run the flow with its
                // first one.
                remote_algorithms(&agent, &[&name], limits.agent_timeout)
                    .map_err(BackendError::from)?;
                QuicCongestion::Steered(
                    QuicPlane::with_agent(stack, &agent, &name, limits)
                        .map_err(BackendError::from)?,
                )
            }
        };
        self.controls.insert(workload, control.clone());
        Ok(control)
    }
}

impl UserEnds for QuicEnds<'_> {
    fn connect(
        &mut self,
        workload: usize,
        from: NodeId,
        to: NodeId,
    ) -> Result<(UserEnd, SocketAddr), Error> {
        let server = self.host(workload, to, true)?;
        let client = self.host(workload, from, false)?;
        let peer = self
            .hosts
            .get(server)
            .map(QuicHost::local)
            .ok_or(Error::NoContender)?;
        let host = self.hosts.get_mut(client).ok_or(Error::NoContender)?;
        let id = host.connect(peer).map_err(broken)?;
        Ok(((client, id), host.local()))
    }

    fn accept(&mut self) -> Option<UserEnd> {
        let mut hosts = self.hosts.iter_mut().enumerate();
        hosts.find_map(|(place, host)| Some((place, host.accept()?)))
    }

    fn read_flow_id(&mut self, end: UserEnd) -> FlowIdStatus {
        let Some(host) = self.hosts.get_mut(end.0) else {
            return FlowIdStatus::Closed;
        };
        let name = self.partial_flow_ids.entry(end).or_default();
        host.read(end.1, FLOW_ID_BYTES - name.len(), |bytes| {
            name.extend_from_slice(bytes)
        });
        match <[u8; FLOW_ID_BYTES]>::try_from(name.as_slice()) {
            Ok(name) => {
                self.partial_flow_ids.remove(&end);
                FlowIdStatus::Received(name)
            }
            Err(_) if host.failure(end.1).is_some() => {
                self.partial_flow_ids.remove(&end);
                FlowIdStatus::Closed
            }
            Err(_) => FlowIdStatus::Pending,
        }
    }

    fn read(&mut self, (place, id): UserEnd) -> usize {
        self.hosts
            .get_mut(place)
            .map_or(0, |host| host.read(id, usize::MAX, |_| ()))
    }

    fn write(&mut self, (place, id): UserEnd, bytes: &[u8]) -> usize {
        self.hosts
            .get_mut(place)
            .map_or(0, |host| host.write(id, bytes))
    }

    fn write_fill(&mut self, end: UserEnd, most: usize) -> usize {
        self.write(end, ZERO_BLOCK.get(..most).unwrap_or(&ZERO_BLOCK))
    }

    fn finish(&mut self, (place, id): UserEnd) {
        if let Some(host) = self.hosts.get_mut(place) {
            host.finish(id);
        }
    }

    fn has_failed(&self, (place, id): UserEnd) -> bool {
        self.hosts
            .get(place)
            .is_none_or(|host| host.failure(id).is_some())
    }

    fn close(&mut self, (place, id): UserEnd) {
        if let Some(host) = self.hosts.get_mut(place) {
            host.close(id, true);
        }
    }

    fn tcp_info(&mut self, (place, id): UserEnd) -> Option<TcpInfo> {
        Some(tcp(&self.hosts.get_mut(place)?.stats(id)?))
    }

    fn retransmitted(&mut self, (place, id): UserEnd) -> Option<u64> {
        Some(self.hosts.get_mut(place)?.stats(id)?.lost)
    }

    /// A stack does not identify the controller of a connection: after one fallback, this returns
    /// true for all connections of the algorithm.
    fn fell_back(&self, (place, _): UserEnd) -> bool {
        let of = self
            .host_index
            .iter()
            .find(|(_, at)| **at == place)
            .map(|((_, workload, ..), _)| workload);
        let control = of.and_then(|workload| self.controls.get(workload));
        matches!(control, Some(QuicCongestion::Steered(plane)) if plane.stats().fallbacks > 0)
    }

    fn poll(&mut self, longest: Duration) -> Result<(), Error> {
        QuicHost::poll_all(&mut self.hosts, longest).map_err(broken)
    }
}

/// A broken socket ends the run: it would affect every flow.
fn broken(error: HostError) -> Error {
    Error::traffic("send over the path", "")(io::Error::other(error))
}

/// Converts to `tcp_info`. Fields that the stack does not report are 0.
fn tcp(stats: &QuicStats) -> TcpInfo {
    let mss = u64::from(stats.mtu).max(1);
    let packets = |bytes: u64| u32::try_from(bytes / mss).unwrap_or(u32::MAX);
    TcpInfo {
        mss: stats.mtu.into(),
        srtt_us: u32::try_from(stats.srtt.as_micros()).unwrap_or(u32::MAX),
        ssthresh: packets(stats.ssthresh.unwrap_or(u64::MAX)).min(0x7fff_ffff),
        cwnd: packets(stats.cwnd),
        retrans: u32::try_from(stats.lost).unwrap_or(u32::MAX),
        pacing_rate: stats.pacing_rate.unwrap_or(u64::MAX),
        bytes_retrans: stats.lost * mss,
        ..TcpInfo::default()
    }
}
