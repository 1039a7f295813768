//! Event loop of the senders. It owns the workload generators: it opens, writes and aborts as they
//! ask, and reports arrivals to them.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ccplane_datapath::Capabilities;
use ccplane_host::Namespace;
use ccplane_lab::Error;
use ccplane_lab::result::TcpInfo;
use ccplane_lab::traffic_kind::{SAMPLED_FLOWS_MAX, TrafficKind};
use ccplane_linux::Flows;
use ccplane_units::{Duration, Time};
use ccplane_workload::{Action, NodeId};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::RealPlan;
use super::accounting::{Account, Opening, place};
use super::events::PendingChanges;
use super::hosts::NamespaceHost;
use super::mailbox::Mailbox;
use super::server::{ServerOrder, WriteArrival};
use super::socket::{self, BLOCK_BYTES, ConnectError, DATAGRAM_HEADER_BYTES};
use super::write_marks::WriteMarks;
use crate::diag::Diag;
use crate::error::BackendError;
use crate::traffic::{self, monotonic_ns};

/// Events processed before anything else gets a turn.
const EVENTS_PER_TURN_MAX: usize = 64;
/// Bulk flows that may write a block per batch of events. The others wait until short flows have
/// had another turn.
const BULK_WRITES_PER_TURN_MAX: usize = 8;
/// Flows with more unsent bytes than this count as bulk.
const BULK_BYTES_MIN: u64 = 2 * BLOCK_BYTES as u64;
/// Interval at which an idle loop checks if the run has ended.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Epoll token of the mailbox. All other tokens are flow numbers.
const MAILBOX_TOKEN: u64 = u64::MAX;

/// Destination of a workload's connections and datagrams.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenTarget {
    /// Congestion control of its senders.
    pub congestion: String,
    /// Ports of its listeners, by space.
    pub listeners: Vec<u16>,
    /// Ports of its datagram sinks, by space.
    pub sinks: Vec<u16>,
}

/// A flow that is sampled.
#[derive(Clone, Debug)]
pub(super) struct WatchedFlow {
    pub flow: u32,
    pub workload: usize,
    /// Space of its sender.
    pub space: usize,
    /// Time since the start of the run.
    pub started: Time,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub received: Arc<AtomicU64>,
}

/// State shared by the two loops and the sampling thread.
pub(super) struct RunState {
    pub orders: Mailbox<ServerOrder>,
    pub arrivals: Mailbox<WriteArrival>,
    pub sampled: Mutex<Vec<WatchedFlow>>,
    /// Bytes received by all connections, in both directions.
    pub total: AtomicU64,
    pub stop: AtomicBool,
}

/// Result of the senders' loop.
pub(super) struct ClientResult {
    pub account: Account,
    /// Final `tcp_info` of the flows that were open at the end.
    pub final_info: HashMap<u32, TcpInfo>,
}

/// Returns the port in a host's space.
fn port(ports: &[u16], host: NamespaceHost) -> u16 {
    ports.get(host.space).copied().unwrap_or_default()
}

/// An open connection.
#[derive(Debug)]
struct OpenConnection {
    stream: TcpStream,
    local: SocketAddr,
    peer: SocketAddr,
    /// The handshake is complete.
    open: bool,
    /// Bytes to write; `u64::MAX` is unlimited.
    unsent: u64,
    /// Bytes written so far or still to be written.
    total: u64,
    finish: bool,
    /// The stream has been shut down.
    is_shut_down: bool,
    /// Direction to the opener: bytes read, bytes that the other end was asked to write, and writes
    /// whose arrival is awaited.
    read: u64,
    requested_bytes: u64,
    awaited_writes: WriteMarks,
    interest: EpollFlags,
}

/// State of the event loop.
pub(super) struct ClientLoop<'r> {
    plan: &'r RealPlan,
    targets: &'r [OpenTarget],
    /// By space.
    namespaces: Vec<Namespace>,
    /// Space that this thread has entered.
    entered_space: Option<usize>,
    diags: Vec<Diag>,
    shared: &'r RunState,
    epoll: Epoll,
    account: Account,
    events: PendingChanges,
    /// Flows of ccplane's algorithms, as the kernel sees them.
    steered: Vec<Flows>,
    /// By flow number.
    flows: HashMap<u32, OpenConnection>,
    datagrams: HashMap<(usize, NodeId, NodeId), UdpSocket>,
    /// Number of sampled flows, by workload.
    sampled_flows: Vec<usize>,
    started_ns: u64,
    buffer: Box<[u8]>,
}

impl<'r> ClientLoop<'r> {
    /// Creates the loop. `diags` has a socket for each namespace.
    pub fn new(
        plan: &'r RealPlan,
        targets: &'r [OpenTarget],
        namespaces: Vec<Namespace>,
        diags: Vec<Diag>,
        shared: &'r RunState,
        account: Account,
        events: PendingChanges,
    ) -> io::Result<ClientLoop<'r>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(
            &shared.arrivals,
            EpollEvent::new(EpollFlags::EPOLLIN, MAILBOX_TOKEN),
        )?;
        Ok(ClientLoop {
            plan,
            targets,
            namespaces,
            entered_space: None,
            diags,
            shared,
            epoll,
            account,
            events,
            steered: Vec::new(),
            flows: HashMap::new(),
            datagrams: HashMap::new(),
            sampled_flows: vec![0; plan.workloads.len()],
            started_ns: 0,
            buffer: vec![0x5a; BLOCK_BYTES].into_boxed_slice(),
        })
    }

    /// Sets the algorithms whose flows are checked for the fallback at the end.
    pub fn with_algorithms(mut self, algorithms: Vec<Flows>) -> ClientLoop<'r> {
        self.steered = algorithms;
        self
    }

    /// Runs until the plan's duration is over or `stop` is set.
    pub fn run(mut self, started_ns: u64) -> Result<ClientResult, Error> {
        self.started_ns = started_ns;
        let end = Time::ZERO + self.plan.duration;
        let mut ready = [EpollEvent::empty(); EVENTS_PER_TURN_MAX];
        loop {
            let now = self.apply_due_actions()?;
            if self.account.are_complete(&self.plan.awaited_workloads) {
                self.shared.stop.store(true, Ordering::Relaxed);
                self.shared.orders.wake();
            }
            if now >= end || self.shared.stop.load(Ordering::Relaxed) {
                return Ok(self.into_result());
            }
            let due = self.next_time().unwrap_or(end).min(end);
            let wait = due.since(now).min(STOP_POLL_INTERVAL);
            let count = socket::ready(&self.epoll, &mut ready, wait)
                .map_err(Error::traffic("wait for connections", ""))?;
            self.serve(ready.get(..count).unwrap_or_default())?;
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(monotonic_ns().saturating_sub(self.started_ns))
    }

    fn next_time(&self) -> Option<Time> {
        let warm = Time::ZERO + self.plan.warm_up;
        let warm = (!self.account.is_counting()).then_some(warm);
        let due = [self.account.next_time(), self.events.next_time(), warm];
        due.into_iter().flatten().min()
    }

    /// Applies all actions that are due.
    fn apply_due_actions(&mut self) -> Result<Time, Error> {
        let now = self.now();
        self.events.apply(now)?;
        if !self.account.is_counting() && now >= Time::ZERO + self.plan.warm_up {
            self.account.end_warm_up();
        }
        while let Some((workload, action)) = self.account.poll(now) {
            self.execute_action(now, workload, action)?;
        }
        Ok(now)
    }

    /// Serves short flows first. Between bulk flows it applies actions that have become due.
    fn serve(&mut self, ready: &[EpollEvent]) -> Result<(), Error> {
        let much = |openers: &ClientLoop, event: &EpollEvent| {
            let flow = openers.flows.get(&(event.data() as u32));
            event.data() != MAILBOX_TOKEN && flow.is_some_and(|flow| flow.unsent > BULK_BYTES_MIN)
        };
        let mut bulk = Vec::new();
        for event in ready {
            if event.data() == MAILBOX_TOKEN {
                self.process_arrivals()?;
            } else if much(self, event) {
                bulk.push(event);
            } else {
                self.serve_connection(event.data() as u32, event.events())?;
            }
        }
        for event in bulk.into_iter().take(BULK_WRITES_PER_TURN_MAX) {
            self.serve_connection(event.data() as u32, event.events())?;
            if self.next_time().is_some_and(|due| due <= self.now()) {
                self.apply_due_actions()?;
            }
        }
        Ok(())
    }

    /// Processes arrivals at the other end.
    fn process_arrivals(&mut self) -> Result<(), Error> {
        for WriteArrival { flow, at_ns } in self.shared.arrivals.take() {
            let at = Time::from_nanos(at_ns.saturating_sub(self.started_ns));
            if self.account.flow(flow).is_some_and(|flow| !flow.has_slot()) {
                // `tcp_info` is read before the connection closes, since the kernel discards it
                // then.
                self.query_info(flow);
            }
            self.account.on_received(at, flow, false);
        }
        self.apply_due_actions()?;
        Ok(())
    }

    fn execute_action(&mut self, now: Time, workload: usize, action: Action) -> Result<(), Error> {
        match action {
            Action::Open {
                from,
                to,
                bytes,
                finish,
                follow,
            } => self.open(now, workload, (from, to), bytes, finish, follow),
            Action::Write {
                slot,
                backward: back,
                bytes,
                finish,
            } => {
                let flow = self.account.flow_in_slot(workload, slot);
                // A write to a broken flow is dropped.
                if let Some((flow, opened)) =
                    flow.and_then(|flow| Some((flow, self.flows.get_mut(&flow)?)))
                {
                    if back {
                        opened.requested_bytes += bytes;
                        if bytes > 0 {
                            opened.awaited_writes.push(opened.requested_bytes);
                        }
                        self.shared.orders.send(ServerOrder::WriteBack {
                            flow,
                            bytes,
                            finish,
                        });
                    } else {
                        opened.unsent = opened.unsent.saturating_add(bytes);
                        opened.total = opened.total.saturating_add(bytes);
                        opened.finish |= finish;
                        if bytes > 0 {
                            let total = opened.total;
                            self.shared
                                .orders
                                .send(ServerOrder::AwaitRead { flow, total });
                        }
                        self.serve_connection(flow, EpollFlags::EPOLLOUT)?;
                    }
                }
                Ok(())
            }
            Action::Abort { slot } => {
                if let Some(flow) = self.account.flow_in_slot(workload, slot) {
                    self.query_info(flow);
                    if let Some(opened) = self.flows.remove(&flow) {
                        traffic::reset_on_close(&opened.stream);
                    }
                }
                Ok(())
            }
            Action::Datagram { from, to, bytes } => self.send_datagram(workload, from, to, bytes),
        }
    }

    fn open(
        &mut self,
        now: Time,
        workload: usize,
        (from, to): (NodeId, NodeId),
        bytes: Option<u64>,
        finish: bool,
        follow: bool,
    ) -> Result<(), Error> {
        let (here, there) = self.host_pair(from, to)?;
        let flow = self.account.open(
            now,
            Opening {
                workload,
                from: here,
                bytes,
                follow,
            },
        );
        self.enter(here.space)?;
        let Some(target) = self.targets.get(workload) else {
            return Ok(());
        };
        let peer = SocketAddr::new(there.address, port(&target.listeners, there));
        let (congestion, buffer) = (&target.congestion, self.plan.socket_buffer);
        let dscp = self.plan.dscp(workload);
        let connected = socket::connect(
            here.address,
            peer,
            congestion,
            buffer,
            bytes.is_some(),
            dscp,
        );
        let stream = match connected {
            Ok(stream) => stream,
            Err(ConnectError::Connection) => {
                self.account.on_failed(flow);
                return Ok(());
            }
            Err(ConnectError::Socket(error)) => {
                return Err(Error::traffic(
                    "open a connection",
                    "many concurrent flows need many open files (ulimit -n)",
                )(error));
            }
        };
        let failed = |error| Error::traffic("open a connection", "")(error);
        let local = stream.local_addr().map_err(failed)?;
        let received = self.account.flow(flow).map(|flow| flow.received.clone());
        let received = received.unwrap_or_default();
        self.shared.orders.send(ServerOrder::Expect {
            peer: local,
            flow,
            received: [received.clone(), self.account.read_counter(workload)],
            awaited: bytes.unwrap_or(0),
        });
        self.epoll
            .add(&stream, EpollEvent::new(EpollFlags::EPOLLOUT, flow.into()))
            .map_err(|error| failed(error.into()))?;
        let opened = OpenConnection {
            stream,
            local,
            peer,
            open: false,
            unsent: bytes.unwrap_or(u64::MAX),
            total: bytes.unwrap_or(u64::MAX),
            finish,
            is_shut_down: false,
            read: 0,
            requested_bytes: 0,
            awaited_writes: WriteMarks::default(),
            interest: EpollFlags::EPOLLOUT,
        };
        self.flows.insert(flow, opened);
        if let Some(watches) = self.sampled_flows.get_mut(workload)
            && self.account.traffic(workload) == TrafficKind::Unbounded
            && *watches < SAMPLED_FLOWS_MAX
        {
            *watches += 1;
            let watched = WatchedFlow {
                flow,
                workload,
                space: here.space,
                started: now,
                local,
                peer,
                received,
            };
            let mut all = self
                .shared
                .sampled
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.push(watched);
        }
        Ok(())
    }

    /// Returns two hosts on different sides of the bottleneck.
    fn host_pair(&self, from: NodeId, to: NodeId) -> Result<(NamespaceHost, NamespaceHost), Error> {
        let (here, there) = (place(self.plan, from)?, place(self.plan, to)?);
        if !here.can_reach(there) {
            let what = format!("{} cannot reach {} over it", here.address, there.address);
            return Err(Error::traffic(
                "send across the bottleneck",
                "choose a sender and a receiver on different sides",
            )(io::Error::other(what)));
        }
        Ok((here, there))
    }

    /// Enters a space; this thread's new sockets then belong to it.
    fn enter(&mut self, space: usize) -> Result<(), Error> {
        if self.entered_space != Some(space)
            && let Some(namespace) = self.namespaces.get(space)
        {
            namespace
                .enter()
                .map_err(|error| BackendError::from_host(error, false))?;
            self.entered_space = Some(space);
        }
        Ok(())
    }

    fn send_datagram(
        &mut self,
        workload: usize,
        from: NodeId,
        to: NodeId,
        bytes: u32,
    ) -> Result<(), Error> {
        let key = (workload, from, to);
        if !self.datagrams.contains_key(&key) {
            let (here, there) = self.host_pair(from, to)?;
            self.enter(here.space)?;
            let Some(target) = self.targets.get(workload) else {
                return Ok(());
            };
            let to = SocketAddr::new(there.address, port(&target.sinks, there));
            let socket = socket::datagrams(here.address, to, self.plan.dscp(workload))
                .map_err(Error::traffic("open a socket for datagrams", ""))?;
            self.datagrams.insert(key, socket);
        }
        let payload = bytes.saturating_sub(DATAGRAM_HEADER_BYTES) as usize;
        if let (Some(socket), Some(payload)) =
            (self.datagrams.get(&key), self.buffer.get(..payload))
        {
            // A send error counts as a loss, like a drop in the network.
            let _ = socket.send(payload);
        }
        Ok(())
    }

    /// Reads and writes at most one block. An error ends only this connection.
    fn serve_connection(&mut self, flow: u32, events: EpollFlags) -> Result<(), Error> {
        let Some(opened) = self.flows.get_mut(&flow) else {
            return Ok(());
        };
        if !opened.open {
            if socket::outcome(&opened.stream).is_err() {
                self.fail(flow);
                return Ok(());
            }
            if opened.stream.peer_addr().is_err() {
                // An event before the end of the handshake.
                return Ok(());
            }
            opened.open = true;
            self.check_ecn(flow)?;
        }
        let Some(opened) = self.flows.get_mut(&flow) else {
            return Ok(());
        };
        let idle = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            )
        };
        let (mut broken, mut ended, mut answered) = (false, false, 0);
        if events != EpollFlags::EPOLLOUT {
            match opened.stream.read(&mut self.buffer) {
                Ok(0) => ended = true,
                Ok(count) => {
                    opened.read += count as u64;
                    self.shared.total.fetch_add(count as u64, Ordering::Relaxed);
                    answered = opened.awaited_writes.remove_read(opened.read);
                }
                Err(error) => broken = !idle(&error),
            }
        }
        if opened.unsent > 0 && !broken && !ended {
            let most = BLOCK_BYTES.min(usize::try_from(opened.unsent).unwrap_or(BLOCK_BYTES));
            match opened.stream.write(&self.buffer[..most]) {
                Ok(count) if opened.unsent < u64::MAX => opened.unsent -= count as u64,
                Ok(_) => {}
                Err(error) => broken = !idle(&error),
            }
        }
        if broken || ended && !opened.is_shut_down {
            self.fail(flow);
            return Ok(());
        }
        if ended {
            self.flows.remove(&flow);
            return Ok(());
        }
        let ends = opened.unsent == 0 && opened.finish && !opened.is_shut_down;
        let mut wanted = EpollFlags::EPOLLIN;
        wanted.set(EpollFlags::EPOLLOUT, opened.unsent > 0);
        if wanted != opened.interest
            && self
                .epoll
                .modify(&opened.stream, &mut EpollEvent::new(wanted, flow.into()))
                .is_ok()
        {
            opened.interest = wanted;
        }
        if ends {
            self.finish(flow);
        }
        if answered > 0 {
            let now = self.now();
            (0..answered).for_each(|_| self.account.on_received(now, flow, true));
            self.apply_due_actions()?;
        }
        Ok(())
    }

    /// Ends the stream after its last byte has been written.
    fn finish(&mut self, flow: u32) {
        // A finite flow is queried when its last byte has arrived.
        if self.account.flow(flow).is_some_and(|flow| flow.has_slot()) {
            self.query_info(flow);
        }
        if let Some(opened) = self.flows.get_mut(&flow) {
            opened.is_shut_down = true;
            // An error of a broken connection appears at its next turn.
            let _ = opened.stream.shutdown(Shutdown::Write);
        }
    }

    fn fail(&mut self, flow: u32) {
        self.account.on_failed(flow);
        self.flows.remove(&flow);
        self.shared.orders.send(ServerOrder::Discard { flow });
    }

    /// Returns the kernel's `tcp_info` of a flow and stores its retransmissions.
    fn query_info(&mut self, flow: u32) -> Option<TcpInfo> {
        let opened = self.flows.get(&flow)?;
        let known = self.account.flow_mut(flow)?;
        let diag = self.diags.get_mut(known.space)?;
        // The connection may already be closed.
        let info = diag.query(opened.local, opened.peer).ok().flatten()?;
        known.retransmitted = info.retrans.into();
        Some(info)
    }

    /// Refuses a connection without ECN if its algorithm relies on marks: it would see none and
    /// take every queue to be empty.
    fn check_ecn(&mut self, flow: u32) -> Result<(), Error> {
        let workload = self.account.flow(flow).map(|flow| flow.workload);
        let workload = workload.and_then(|workload| self.plan.workloads.get(workload));
        if !workload.is_some_and(|workload| workload.capabilities.contains(Capabilities::ECN)) {
            return Ok(());
        }
        match self.query_info(flow) {
            Some(info) if !info.ecn => Err(Error::traffic(
                "use ECN",
                "check that the kernel supports ECN (net.ipv4.tcp_ecn)",
            )(io::Error::other(
                "a connection did not negotiate ECN, so queues may not mark its packets",
            ))),
            _ => Ok(()),
        }
    }

    /// Queries all open flows a last time and resets them: queued data does not count for any
    /// result.
    fn into_result(mut self) -> ClientResult {
        let alive: Vec<u32> = self.flows.keys().copied().collect();
        let last = alive
            .into_iter()
            .filter_map(|flow| Some((flow, self.query_info(flow)?)))
            .collect();
        let steered = self.steered.iter().flat_map(Flows::live);
        let on_fallback: HashSet<SocketAddr> = steered
            .filter(|flow| flow.in_fallback)
            .map(|flow| flow.local)
            .collect();
        for (number, opened) in &self.flows {
            if let Some(flow) = self.account.flow_mut(*number) {
                flow.fell_back = on_fallback.contains(&opened.local);
            }
            traffic::reset_on_close(&opened.stream);
        }
        ClientResult {
            account: self.account,
            final_info: last,
        }
    }
}
