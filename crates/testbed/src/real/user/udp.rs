//! ccplane's transport over UDP: a socket per host, algorithm and DSCP, opened when first needed.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use ccplane_agent::Agent;
use ccplane_agent::datapath::InlineChannel;
use ccplane_algorithms::Registry;
use ccplane_datapath::{Capabilities, OperatorLimits};
use ccplane_emu::Emulator;
use ccplane_lab::Error;
use ccplane_lab::result::{SecondLoop, TcpInfo};
use ccplane_lab::transport::native;
use ccplane_lab::{Contender, read};
use ccplane_link::{AgentAddress, RemoteChannel};
use ccplane_linux::remote_algorithms;
use ccplane_qdisc::Ecn;
use ccplane_transport::{Connection, ConnectionStats, Native, Rc3, RecoveryPhase, TransportConfig};
use ccplane_udp::{DATAGRAM_BYTES_DEFAULT, Stamping, UdpCongestion, UdpError, UdpHost, UdpOptions};
use ccplane_units::Duration;
use ccplane_workload::NodeId;

use super::ends::{FLOW_ID_BYTES, FlowIdStatus, UserEnd, UserEnds};
use crate::ends::inside;
use crate::error::BackendError;
use crate::real::RealPlan;
use crate::real::accounting::place;
use crate::steer::agent_of;

/// Limit of incoming connections per host.
const INCOMING_CONNECTIONS_MAX: usize = 1 << 16;

/// The hosts of a run over UDP.
pub(super) struct UdpEnds<'r> {
    emulator: &'r Emulator,
    plan: &'r RealPlan,
    registry: &'r Registry,
    agent: Option<&'r AgentAddress>,
    rc3: Option<Rc3>,
    hosts: Vec<UdpHost>,
    /// By host, first workload with the same algorithm, DSCP, and true if it accepts.
    host_index: HashMap<(NodeId, usize, u8, bool), (usize, UdpCongestion)>,
}

impl<'r> UdpEnds<'r> {
    /// Creates an empty set.
    pub fn new(
        emulator: &'r Emulator,
        plan: &'r RealPlan,
        registry: &'r Registry,
        agent: Option<&'r AgentAddress>,
        rc3: Option<Rc3>,
    ) -> UdpEnds<'r> {
        UdpEnds {
            emulator,
            plan,
            registry,
            agent,
            rc3,
            hosts: Vec::new(),
            host_index: HashMap::new(),
        }
    }

    /// Returns the index of the host for a workload's algorithm at a node, and the control of the
    /// connections that it opens.
    fn host(
        &mut self,
        workload: usize,
        node: NodeId,
        accepts: bool,
    ) -> Result<(usize, UdpCongestion), Error> {
        let (plan, emulator) = (self.plan, self.emulator);
        let Some(wanted) = plan.workloads.get(workload) else {
            return Err(Error::NoContender);
        };
        let same = plan
            .workloads
            .iter()
            .position(|other| other.contender == wanted.contender);
        // ACKs and responses are not marked.
        let dscp = if accepts { 0 } else { wanted.dscp };
        let key = (node, same.unwrap_or(workload), dscp, accepts);
        if let Some((at, congestion)) = self.host_index.get(&key) {
            return Ok((*at, congestion.clone()));
        }
        let contender = wanted.contender.as_ref().ok_or(Error::NoContender)?;
        let host = place(plan, node)?;
        let options = UdpOptions {
            local: SocketAddr::new(host.address, 0),
            dscp,
            ..self.options(contender, wanted.capabilities)
        };
        let bind = || UdpHost::bind(options).map_err(io::Error::other);
        let mut bound = inside(
            host.side.namespace(emulator),
            "open a UDP socket in a namespace",
            bind,
        )?;
        let congestion = if accepts {
            bound.listen(INCOMING_CONNECTIONS_MAX).map_err(broken)?;
            UdpCongestion::Native(Native::cubic())
        } else {
            self.congestion(contender, &mut bound)?
        };
        let at = self.hosts.len();
        self.hosts.push(bound);
        self.host_index.insert(key, (at, congestion.clone()));
        Ok((at, congestion))
    }

    fn connection(&self, (place, id): UserEnd) -> Option<&Connection> {
        self.hosts.get(place)?.connection(id)
    }

    /// Returns the options of both ends' sockets.
    fn options(&self, contender: &Contender, wants: Capabilities) -> UdpOptions {
        let stamps = wants.contains(Capabilities::ONE_WAY_DELAY);
        // Accepting ends use the contender if it is native, and otherwise Cubic, as in the
        // simulator.
        let accepted = match contender {
            Contender::Native { name } => native(name).unwrap_or_else(|_| Native::cubic()),
            Contender::Ccplane { .. } | Contender::Remote { .. } => Native::cubic(),
        };
        let config = TransportConfig {
            ecn: match wants.contains(Capabilities::ECN) {
                true => Ecn::Ect0,
                false => Ecn::NotEct,
            },
            stamps,
            restart_after_idle: !wants.contains(Capabilities::KEEPS_WINDOW),
            rc3: self.rc3,
            ..TransportConfig::default()
        };
        UdpOptions {
            local: SocketAddr::from(([0; 4], 0)),
            datagram_bytes: DATAGRAM_BYTES_DEFAULT,
            // A connection may buffer this much at either end. TCP's socket buffer is twice that,
            // since the kernel charges for overhead.
            window: (self.plan.socket_buffer / 2).clamp(1 << 20, 1 << 29),
            tls: None,
            dscp: 0,
            config,
            stamping: if stamps {
                Stamping::Software
            } else {
                Stamping::Off
            },
            link_rate: None,
            accept_congestion: accepted,
        }
    }

    /// Returns the control that sets the windows: an agent in this thread, an agent in another
    /// process, or the transport itself.
    fn congestion(
        &self,
        contender: &Contender,
        host: &mut UdpHost,
    ) -> Result<UdpCongestion, Error> {
        let limits = OperatorLimits::default();
        let agent = agent_of(contender, self.agent)?;
        let name = match (contender, agent) {
            (Contender::Native { name }, _) => {
                return Ok(UdpCongestion::Native(native(name)?));
            }
            (
                Contender::Ccplane { name, parameters }
                | Contender::Remote {
                    name, parameters, ..
                },
                None,
            ) => {
                let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
                agent.add_boxed(self.registry.by_name(name, &read(parameters))?)?;
                host.set_agent(InlineChannel::new(agent), limits);
                name.clone()
            }
            (Contender::Ccplane { .. } | Contender::Remote { .. }, Some(agent)) => {
                let name = contender.agent_name();
                // Checked here because an agent without the algorithm would run the flow with its
                // first one.
                remote_algorithms(&agent, &[&name], limits.agent_timeout)
                    .map_err(BackendError::from)?;
                let remote = agent.connection(&name);
                let link = RemoteChannel::connect(remote, host.now())
                    .map_err(|why| BackendError::from(ccplane_linux::RemoteError::from(why)))?;
                host.set_agent(link, limits);
                name
            }
        };
        Ok(UdpCongestion::Steered(name))
    }
}

impl UserEnds for UdpEnds<'_> {
    fn connect(
        &mut self,
        workload: usize,
        from: NodeId,
        to: NodeId,
    ) -> Result<(UserEnd, SocketAddr), Error> {
        let (server, _) = self.host(workload, to, true)?;
        let (client, congestion) = self.host(workload, from, false)?;
        let peer = self
            .hosts
            .get(server)
            .map(UdpHost::local)
            .ok_or(Error::NoContender)?;
        let host = self.hosts.get_mut(client).ok_or(Error::NoContender)?;
        let id = host.connect(peer, congestion).map_err(broken)?;
        Ok(((client, id), host.local()))
    }

    fn accept(&mut self) -> Option<UserEnd> {
        let mut hosts = self.hosts.iter_mut().enumerate();
        hosts.find_map(|(place, host)| Some((place, host.accept()?)))
    }

    fn read_flow_id(&mut self, (place, id): UserEnd) -> FlowIdStatus {
        let Some(host) = self.hosts.get_mut(place) else {
            return FlowIdStatus::Closed;
        };
        let (first, second) = host.received(id);
        let mut begin = first.iter().chain(second);
        let mut name = [0; FLOW_ID_BYTES];
        for byte in &mut name {
            match begin.next() {
                Some(arrived) => *byte = *arrived,
                None if host.connection(id).is_some() => return FlowIdStatus::Pending,
                None => return FlowIdStatus::Closed,
            }
        }
        host.consume(id, FLOW_ID_BYTES);
        FlowIdStatus::Received(name)
    }

    fn read(&mut self, (place, id): UserEnd) -> usize {
        let Some(host) = self.hosts.get_mut(place) else {
            return 0;
        };
        let (first, second) = host.received(id);
        let count = first.len() + second.len();
        if count > 0 {
            host.consume(id, count);
        }
        count
    }

    fn write(&mut self, (place, id): UserEnd, bytes: &[u8]) -> usize {
        let Some(host) = self.hosts.get_mut(place) else {
            return 0;
        };
        let room = host.write_buffer(id);
        let count = bytes.len().min(room.len());
        room.iter_mut()
            .zip(bytes)
            .for_each(|(place, byte)| *place = *byte);
        if count > 0 {
            host.commit_write(id, count);
        }
        count
    }

    fn write_fill(&mut self, (place, id): UserEnd, most: usize) -> usize {
        let Some(host) = self.hosts.get_mut(place) else {
            return 0;
        };
        let count = host.write_buffer(id).len().min(most);
        if count > 0 {
            host.commit_write(id, count);
        }
        count
    }

    fn finish(&mut self, (place, id): UserEnd) {
        if let Some(host) = self.hosts.get_mut(place) {
            host.finish(id);
        }
    }

    fn has_failed(&self, end: UserEnd) -> bool {
        self.connection(end)
            .is_none_or(|connection| connection.failure().is_some())
    }

    fn close(&mut self, (place, id): UserEnd) {
        if let Some(host) = self.hosts.get_mut(place) {
            // An error of the socket is reported at the next turn.
            let _ = host.abort(id);
        }
    }

    fn tcp_info(&mut self, end: UserEnd) -> Option<TcpInfo> {
        let connection = self.connection(end)?;
        Some(tcp(
            &connection.stats(),
            connection.mss(),
            connection.phase(),
        ))
    }

    fn retransmitted(&mut self, end: UserEnd) -> Option<u64> {
        Some(self.connection(end)?.stats().retransmitted.into())
    }

    fn fell_back(&self, (place, id): UserEnd) -> bool {
        let known = self.hosts.get(place).and_then(|host| host.in_fallback(id));
        known.unwrap_or(false)
    }

    fn second_loop(&self, end: UserEnd) -> SecondLoop {
        SecondLoop::from_stats(
            self.connection(end)
                .and_then(|connection| connection.rc3_stats())
                .into_iter(),
        )
    }

    fn poll(&mut self, longest: Duration) -> Result<(), Error> {
        UdpHost::poll_all(&mut self.hosts, longest).map_err(broken)
    }
}

/// A broken socket ends the run: it would affect every flow.
fn broken(error: UdpError) -> Error {
    Error::traffic("send over the path", "")(io::Error::other(error))
}

/// Converts to `tcp_info`. Fields that the transport does not count are 0.
fn tcp(stats: &ConnectionStats, mss: u64, phase: RecoveryPhase) -> TcpInfo {
    let segments = |bytes: u64| u32::try_from(bytes / mss.max(1)).unwrap_or(u32::MAX);
    let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    TcpInfo {
        ca_state: match phase {
            RecoveryPhase::Open => 0,
            RecoveryPhase::Reduction => 2,
            RecoveryPhase::Recovery => 3,
            RecoveryPhase::Loss => 4,
        },
        mss: mss as u32,
        unacked: stats.in_flight,
        srtt_us: us(stats.srtt),
        ssthresh: segments(stats.ssthresh).min(0x7fff_ffff),
        cwnd: segments(stats.cwnd),
        retrans: stats.retransmitted,
        pacing_rate: if stats.pacing_rate == 0 {
            u64::MAX
        } else {
            stats.pacing_rate
        },
        delivered_ce: stats.marked,
        bytes_acked: stats.acked,
        min_rtt_us: us(stats.min_rtt),
        bytes_retrans: u64::from(stats.retransmitted) * mss,
        ..TcpInfo::default()
    }
}
