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
use ccplane_lab::sends::{SAMPLED_FLOWS_MAX, Sends};
use ccplane_linux::Flows;
use ccplane_units::{Duration, Time};
use ccplane_workload::{Action, NodeId};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::RealPlan;
use super::accepters::{ServerOrder, WriteArrival};
use super::drive::{Account, Opening, place};
use super::events::PendingChanges;
use super::hosts::NamespaceHost;
use super::mail::Mailbox;
use super::marks::WriteMarks;
use super::socket::{self, BLOCK_BYTES, ConnectError, DATAGRAM_HEADER_BYTES};
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
    pub told: Mailbox<WriteArrival>,
    pub watched: Mutex<Vec<WatchedFlow>>,
    /// Bytes received by all connections, in both directions.
    pub total: AtomicU64,
    pub stop: AtomicBool,
}

/// Result of the senders' loop.
pub(super) struct ClientResult {
    pub account: Account,
    /// Final `tcp_info` of the flows that were open at the end.
    pub last: HashMap<u32, TcpInfo>,
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
    left: u64,
    /// Bytes written so far or still to be written.
    total: u64,
    finish: bool,
    /// The stream has been shut down.
    shut: bool,
    /// Direction to the opener: bytes read, bytes that the other end was asked to write, and writes
    /// whose arrival is awaited.
    read: u64,
    answers: u64,
    awaited: WriteMarks,
    watched: EpollFlags,
}

/// State of the event loop.
pub(super) struct Openers<'r> {
    plan: &'r RealPlan,
    targets: &'r [OpenTarget],
    /// By space.
    namespaces: Vec<Namespace>,
    /// Space that this thread has entered.
    inside: Option<usize>,
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
    watches: Vec<usize>,
    started_ns: u64,
    block: Box<[u8]>,
}

impl<'r> Openers<'r> {
    /// Creates the loop. `diags` has a socket for each namespace.
    pub fn new(
        plan: &'r RealPlan,
        targets: &'r [OpenTarget],
        namespaces: Vec<Namespace>,
        diags: Vec<Diag>,
        shared: &'r RunState,
        account: Account,
        events: PendingChanges,
    ) -> io::Result<Openers<'r>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(
            &shared.told,
            EpollEvent::new(EpollFlags::EPOLLIN, MAILBOX_TOKEN),
        )?;
        Ok(Openers {
            plan,
            targets,
            namespaces,
            inside: None,
            diags,
            shared,
            epoll,
            account,
            events,
            steered: Vec::new(),
            flows: HashMap::new(),
            datagrams: HashMap::new(),
            watches: vec![0; plan.workloads.len()],
            started_ns: 0,
            block: vec![0x5a; BLOCK_BYTES].into_boxed_slice(),
        })
    }

    /// Sets the algorithms whose flows are checked for the fallback at the end.
    pub fn steered_by(mut self, algorithms: Vec<Flows>) -> Openers<'r> {
        self.steered = algorithms;
        self
    }

    /// Runs until the plan's duration is over or `stop` is set.
    pub fn run(mut self, started_ns: u64) -> Result<ClientResult, Error> {
        self.started_ns = started_ns;
        let end = Time::ZERO + self.plan.duration;
        let mut ready = [EpollEvent::empty(); EVENTS_PER_TURN_MAX];
        loop {
            let now = self.act_until_now()?;
            if self.account.over(&self.plan.until) {
                self.shared.stop.store(true, Ordering::Relaxed);
                self.shared.orders.wake();
            }
            if now >= end || self.shared.stop.load(Ordering::Relaxed) {
                return Ok(self.end());
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
        let warm = Time::ZERO + self.plan.warm;
        let warm = (!self.account.counts()).then_some(warm);
        let due = [self.account.next_time(), self.events.next_time(), warm];
        due.into_iter().flatten().min()
    }

    /// Applies all actions that are due.
    fn act_until_now(&mut self) -> Result<Time, Error> {
        let now = self.now();
        self.events.apply(now)?;
        if !self.account.counts() && now >= Time::ZERO + self.plan.warm {
            self.account.count_from_here();
        }
        while let Some((workload, action)) = self.account.poll(now) {
            self.act(now, workload, action)?;
        }
        Ok(now)
    }

    /// Serves short flows first. Between bulk flows it applies actions that have become due.
    fn serve(&mut self, ready: &[EpollEvent]) -> Result<(), Error> {
        let much = |openers: &Openers, event: &EpollEvent| {
            let flow = openers.flows.get(&(event.data() as u32));
            event.data() != MAILBOX_TOKEN && flow.is_some_and(|flow| flow.left > BULK_BYTES_MIN)
        };
        let mut bulk = Vec::new();
        for event in ready {
            if event.data() == MAILBOX_TOKEN {
                self.hear()?;
            } else if much(self, event) {
                bulk.push(event);
            } else {
                self.turn(event.data() as u32, event.events())?;
            }
        }
        for event in bulk.into_iter().take(BULK_WRITES_PER_TURN_MAX) {
            self.turn(event.data() as u32, event.events())?;
            if self.next_time().is_some_and(|due| due <= self.now()) {
                self.act_until_now()?;
            }
        }
        Ok(())
    }

    /// Processes arrivals at the other end.
    fn hear(&mut self) -> Result<(), Error> {
        for WriteArrival { flow, at_ns } in self.shared.told.take() {
            let at = Time::from_nanos(at_ns.saturating_sub(self.started_ns));
            if self.account.flow(flow).is_some_and(|flow| !flow.follows()) {
                // `tcp_info` is read before the connection closes, since the kernel discards it
                // then.
                self.look(flow);
            }
            self.account.received(at, flow, false);
        }
        self.act_until_now()?;
        Ok(())
    }

    fn act(&mut self, now: Time, workload: usize, action: Action) -> Result<(), Error> {
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
                back,
                bytes,
                finish,
            } => {
                let flow = self.account.in_slot(workload, slot);
                // A write to a broken flow is dropped.
                if let Some((flow, opened)) =
                    flow.and_then(|flow| Some((flow, self.flows.get_mut(&flow)?)))
                {
                    if back {
                        opened.answers += bytes;
                        if bytes > 0 {
                            opened.awaited.push(opened.answers);
                        }
                        self.shared.orders.send(ServerOrder::Answer {
                            flow,
                            bytes,
                            finish,
                        });
                    } else {
                        opened.left = opened.left.saturating_add(bytes);
                        opened.total = opened.total.saturating_add(bytes);
                        opened.finish |= finish;
                        if bytes > 0 {
                            let total = opened.total;
                            self.shared.orders.send(ServerOrder::Await { flow, total });
                        }
                        self.turn(flow, EpollFlags::EPOLLOUT)?;
                    }
                }
                Ok(())
            }
            Action::Abandon { slot } => {
                if let Some(flow) = self.account.in_slot(workload, slot) {
                    self.look(flow);
                    if let Some(opened) = self.flows.remove(&flow) {
                        traffic::reset_on_close(&opened.stream);
                    }
                }
                Ok(())
            }
            Action::Datagram { from, to, bytes } => self.datagram(workload, from, to, bytes),
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
        let (here, there) = self.places(from, to)?;
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
        let (congestion, buffer) = (&target.congestion, self.plan.buffer);
        let stream = match socket::connect(here.address, peer, congestion, buffer, bytes.is_some())
        {
            Ok(stream) => stream,
            Err(ConnectError::Connection) => {
                self.account.failed(flow);
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
            received: [received.clone(), self.account.read(workload)],
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
            left: bytes.unwrap_or(u64::MAX),
            total: bytes.unwrap_or(u64::MAX),
            finish,
            shut: false,
            read: 0,
            answers: 0,
            awaited: WriteMarks::default(),
            watched: EpollFlags::EPOLLOUT,
        };
        self.flows.insert(flow, opened);
        if let Some(watches) = self.watches.get_mut(workload)
            && self.account.sends(workload) == Sends::Lasting
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
                .watched
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.push(watched);
        }
        Ok(())
    }

    /// Returns two hosts on different sides of the bottleneck.
    fn places(&self, from: NodeId, to: NodeId) -> Result<(NamespaceHost, NamespaceHost), Error> {
        let (here, there) = (place(self.plan, from)?, place(self.plan, to)?);
        if !here.reaches(there) {
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
        if self.inside != Some(space)
            && let Some(namespace) = self.namespaces.get(space)
        {
            namespace
                .enter()
                .map_err(|error| BackendError::from_host(error, false))?;
            self.inside = Some(space);
        }
        Ok(())
    }

    fn datagram(
        &mut self,
        workload: usize,
        from: NodeId,
        to: NodeId,
        bytes: u32,
    ) -> Result<(), Error> {
        let key = (workload, from, to);
        if !self.datagrams.contains_key(&key) {
            let (here, there) = self.places(from, to)?;
            self.enter(here.space)?;
            let Some(target) = self.targets.get(workload) else {
                return Ok(());
            };
            let to = SocketAddr::new(there.address, port(&target.sinks, there));
            let socket = socket::datagrams(here.address, to)
                .map_err(Error::traffic("open a socket for datagrams", ""))?;
            self.datagrams.insert(key, socket);
        }
        let payload = bytes.saturating_sub(DATAGRAM_HEADER_BYTES) as usize;
        if let (Some(socket), Some(payload)) = (self.datagrams.get(&key), self.block.get(..payload))
        {
            // A send error counts as a loss, like a drop in the network.
            let _ = socket.send(payload);
        }
        Ok(())
    }

    /// Reads and writes at most one block. An error ends only this connection.
    fn turn(&mut self, flow: u32, events: EpollFlags) -> Result<(), Error> {
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
            match opened.stream.read(&mut self.block) {
                Ok(0) => ended = true,
                Ok(count) => {
                    opened.read += count as u64;
                    self.shared.total.fetch_add(count as u64, Ordering::Relaxed);
                    answered = opened.awaited.pass(opened.read);
                }
                Err(error) => broken = !idle(&error),
            }
        }
        if opened.left > 0 && !broken && !ended {
            let most = BLOCK_BYTES.min(usize::try_from(opened.left).unwrap_or(BLOCK_BYTES));
            match opened.stream.write(&self.block[..most]) {
                Ok(count) if opened.left < u64::MAX => opened.left -= count as u64,
                Ok(_) => {}
                Err(error) => broken = !idle(&error),
            }
        }
        if broken || ended && !opened.shut {
            self.fail(flow);
            return Ok(());
        }
        if ended {
            self.flows.remove(&flow);
            return Ok(());
        }
        let ends = opened.left == 0 && opened.finish && !opened.shut;
        let mut wanted = EpollFlags::EPOLLIN;
        wanted.set(EpollFlags::EPOLLOUT, opened.left > 0);
        if wanted != opened.watched
            && self
                .epoll
                .modify(&opened.stream, &mut EpollEvent::new(wanted, flow.into()))
                .is_ok()
        {
            opened.watched = wanted;
        }
        if ends {
            self.finish(flow);
        }
        if answered > 0 {
            let now = self.now();
            (0..answered).for_each(|_| self.account.received(now, flow, true));
            self.act_until_now()?;
        }
        Ok(())
    }

    /// Ends the stream after its last byte has been written.
    fn finish(&mut self, flow: u32) {
        // A finite flow is queried when its last byte has arrived.
        if self.account.flow(flow).is_some_and(|flow| flow.follows()) {
            self.look(flow);
        }
        if let Some(opened) = self.flows.get_mut(&flow) {
            opened.shut = true;
            // An error of a broken connection appears at its next turn.
            let _ = opened.stream.shutdown(Shutdown::Write);
        }
    }

    fn fail(&mut self, flow: u32) {
        self.account.failed(flow);
        self.flows.remove(&flow);
        self.shared.orders.send(ServerOrder::Forget { flow });
    }

    /// Returns the kernel's `tcp_info` of a flow and stores its retransmissions.
    fn look(&mut self, flow: u32) -> Option<TcpInfo> {
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
        if !workload.is_some_and(|workload| workload.wants.contains(Capabilities::ECN)) {
            return Ok(());
        }
        match self.look(flow) {
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
    fn end(mut self) -> ClientResult {
        let alive: Vec<u32> = self.flows.keys().copied().collect();
        let last = alive
            .into_iter()
            .filter_map(|flow| Some((flow, self.look(flow)?)))
            .collect();
        let steered = self.steered.iter().flat_map(Flows::live);
        let on_fallback: HashSet<SocketAddr> = steered
            .filter(|flow| flow.fallback)
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
            last,
        }
    }
}
