//! The workloads of a run on a transport in user space: ccplane's own over UDP ([`udp`]), or QUIC
//! ([`quic`]).
//!
//! The caller's thread does everything except QUIC's algorithms, which have their own threads. A
//! host of the scenario has a socket for each algorithm and band, bound to the host's address.
//! Connections between the same two hosts under the same algorithm and in the same band share the
//! two sockets, so a fair queue sees one flow.

mod datagrams;
mod ends;
mod quic;
mod udp;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use ccplane_algorithms::Registry;
use ccplane_emu::Emulator;
use ccplane_lab::Error;
use ccplane_lab::result::{Sample, SecondLoop};
use ccplane_lab::traffic_kind::{SAMPLED_FLOWS_MAX, TrafficKind};
use ccplane_link::AgentAddress;
use ccplane_transport::Rc3;
use ccplane_units::{Duration, Time};
use ccplane_workload::Action;

use self::datagrams::UserDatagrams;
use self::ends::{FLOW_ID_BYTES, FlowIdStatus, UserEnd, UserEnds};
use self::quic::QuicEnds;
use self::udp::UdpEnds;
use super::accounting::{Account, Courses, FlowSamples, Opening, place};
use super::events::PendingChanges;
use super::tcp::in_result;
use super::write_marks::WriteMarks;
use super::{RealPath, RealPlan, RealRecord, hosts, socket};
use crate::traffic::monotonic_ns;
use crate::transport_kind::TransportKind;

/// Interval at which an idle loop checks its timers.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs the plan over a new emulator; see [`super::tcp::run`]. `rc3` enables RC3's second loop,
/// whose counters are returned too.
pub(crate) fn run(
    emulator: &Emulator,
    plan: &RealPlan,
    registry: &Registry,
    agent: Option<&AgentAddress>,
    (over, rc3): (TransportKind, Option<Rc3>),
    look: impl FnMut(Duration, u64) -> bool,
) -> Result<(RealRecord, Option<SecondLoop>), Error> {
    match over {
        TransportKind::Quic(stack) => {
            let ends = QuicEnds::new(stack, emulator, plan, registry, agent)?;
            drive(emulator, plan, ends, None, look)
        }
        TransportKind::Tcp | TransportKind::Udp => {
            let ends = UdpEnds::new(emulator, plan, registry, agent, rc3);
            drive(emulator, plan, ends, rc3, look)
        }
    }
}

fn drive<E: UserEnds>(
    emulator: &Emulator,
    plan: &RealPlan,
    ends: E,
    rc3: Option<Rc3>,
    mut look: impl FnMut(Duration, u64) -> bool,
) -> Result<(RealRecord, Option<SecondLoop>), Error> {
    socket::allow_many_files();
    let path = RealPath::from(emulator);
    hosts::settle(path.namespaces, [])?;
    let account = Account::new(plan)?;
    let mut loops = Loop {
        plan,
        ends,
        datagrams: UserDatagrams::new(emulator, plan),
        events: PendingChanges::new(path.control, &plan.events),
        courses: Courses::new(&account),
        account,
        connections: Vec::new(),
        by_flow: HashMap::new(),
        unidentified: Vec::new(),
        sampled: Vec::new(),
        total: 0,
        second_loops: SecondLoop::default(),
        started_ns: monotonic_ns(),
    };
    loops.run(&mut look)?;
    let elapsed_ns = loops.now().as_nanos().max(1);
    let (senders, sampled) = loops.end(elapsed_ns);
    let courses = loops.courses.finish(elapsed_ns);
    let recorded = RealRecord {
        started_ns: loops.started_ns,
        elapsed_ns,
        workloads: loops
            .account
            .records(plan, elapsed_ns, sampled, courses, &path.unloaded),
        senders,
    };
    Ok((recorded, rc3.map(|_| loops.second_loops)))
}

/// An open connection.
struct UserConnection {
    flow: u32,
    opener: UserEnd,
    /// The accepting end, once its flow ID has arrived.
    accepter: Option<UserEnd>,
    /// Bytes to write after the flow ID.
    unsent: [u64; 2],
    finish: [bool; 2],
    finished: [bool; 2],
    /// Bytes read, bytes written or to be written, and writes whose arrival is awaited. Index 0 is
    /// the direction to the accepting end.
    read: [u64; 2],
    total: [u64; 2],
    awaited_writes: [WriteMarks; 2],
    /// Bytes of the flow ID still to be written.
    unsent_id_bytes: usize,
}

struct Loop<'r, E> {
    plan: &'r RealPlan,
    ends: E,
    datagrams: UserDatagrams<'r>,
    events: PendingChanges,
    account: Account,
    courses: Courses,
    connections: Vec<UserConnection>,
    /// Index in `live` by flow number.
    by_flow: HashMap<u32, usize>,
    /// Accepted connections whose flow ID has not arrived.
    unidentified: Vec<UserEnd>,
    /// Sampled flows: flow, workload, sender, samples.
    sampled: Vec<(u32, usize, SocketAddr, Vec<Sample>)>,
    total: u64,
    second_loops: SecondLoop,
    started_ns: u64,
}

impl<E: UserEnds> Loop<'_, E> {
    fn now(&self) -> Time {
        Time::from_nanos(monotonic_ns().saturating_sub(self.started_ns))
    }

    fn run(&mut self, look: &mut impl FnMut(Duration, u64) -> bool) -> Result<(), Error> {
        let plan = self.plan;
        let end = Time::ZERO + plan.duration;
        let every = plan.sample_every.max(Duration::from_millis(1));
        let mut next_look = Time::ZERO;
        loop {
            let now = self.now();
            self.events.apply(now)?;
            if !self.account.is_counting() && now >= Time::ZERO + plan.warm_up {
                self.account.end_warm_up();
            }
            while let Some((workload, action)) = self.account.poll(now) {
                self.execute_action(now, workload, action)?;
            }
            if now >= end || self.account.are_complete(&plan.awaited_workloads) {
                return Ok(());
            }
            if now >= next_look {
                self.sample(now);
                self.courses.sample(now.as_nanos());
                if !look(now.since(Time::ZERO), self.total) {
                    return Ok(());
                }
                next_look = (next_look + every).max(now);
            }
            let due = [
                self.account.next_time(),
                self.events.next_time(),
                Some(next_look),
            ];
            let due = due.into_iter().flatten().fold(end, Time::min);
            self.ends.poll(due.since(now).min(STOP_POLL_INTERVAL))?;
            self.serve();
        }
    }

    /// Reads all data that has arrived, and writes as much as fits.
    fn serve(&mut self) {
        while let Some(end) = self.ends.accept() {
            self.unidentified.push(end);
        }
        let (ends, named, live) = (&mut self.ends, &self.by_flow, &mut self.connections);
        self.unidentified
            .retain(|end| match ends.read_flow_id(*end) {
                FlowIdStatus::Pending => true,
                FlowIdStatus::Closed => false,
                FlowIdStatus::Received(name) => {
                    let flow = u32::from_be_bytes(name);
                    if let Some(live) = named.get(&flow).and_then(|at| live.get_mut(*at)) {
                        live.accepter = Some(*end);
                    }
                    false
                }
            });
        let mut at = 0;
        while let Some(live) = self.connections.get_mut(at) {
            let flow = live.flow;
            let (arrived, over, failed) = live.transfer(&mut self.ends);
            if let Some(known) = self.account.flow(flow) {
                let before = known.received.swap(live.read[0], Ordering::Relaxed);
                let workload = self.account.read_counter(known.workload);
                workload.fetch_add(live.read[0] - before, Ordering::Relaxed);
            }
            self.total += arrived.bytes;
            let now = Time::from_nanos(monotonic_ns().saturating_sub(self.started_ns));
            for back in [false, true] {
                for _ in 0..arrived.writes[usize::from(back)] {
                    self.account.on_received(now, flow, back);
                }
            }
            if failed {
                self.account.on_failed(flow);
            }
            if over || failed {
                self.remove(at);
            } else {
                at += 1;
            }
        }
        self.datagrams.drain_sinks();
    }

    /// Removes a connection and keeps its counters.
    fn remove(&mut self, at: usize) {
        let live = self.connections.swap_remove(at);
        self.by_flow.remove(&live.flow);
        if let Some(moved) = self.connections.get(at) {
            self.by_flow.insert(moved.flow, at);
        }
        self.record_counters(&live);
        for end in [Some(live.opener), live.accepter].into_iter().flatten() {
            self.ends.close(end);
        }
    }

    fn record_counters(&mut self, live: &UserConnection) {
        if let Some(flow) = self.account.flow_mut(live.flow) {
            flow.retransmitted = self
                .ends
                .retransmitted(live.opener)
                .unwrap_or(flow.retransmitted);
        }
        let rc3 = self.ends.second_loop(live.opener);
        self.second_loops = [&self.second_loops, &rc3].into_iter().sum();
    }

    fn sample(&mut self, now: Time) {
        for (flow, _, _, samples) in &mut self.sampled {
            let mut sample = samples.last().copied().unwrap_or_default();
            if now.as_nanos() <= sample.at_ns && !samples.is_empty() {
                continue;
            }
            sample.at_ns = now.as_nanos();
            if let Some(known) = self.account.flow(*flow) {
                sample.received = known.received.load(Ordering::Relaxed);
            }
            let live = self
                .by_flow
                .get(flow)
                .and_then(|at| self.connections.get(*at));
            if let Some(seen) = live.and_then(|live| self.ends.tcp_info(live.opener)) {
                sample.tcp = seen;
            }
            samples.push(sample);
        }
    }

    /// Takes a final sample and closes all connections. Returns the senders in the order of the
    /// result, and the samples by workload.
    fn end(&mut self, elapsed_ns: u64) -> (Vec<SocketAddr>, Vec<FlowSamples>) {
        self.sample(Time::from_nanos(elapsed_ns));
        for live in &self.connections {
            if let Some(flow) = self.account.flow_mut(live.flow) {
                flow.fell_back = self.ends.fell_back(live.opener);
            }
        }
        while !self.connections.is_empty() {
            self.remove(self.connections.len() - 1);
        }
        let mut senders: Vec<_> = self
            .sampled
            .iter()
            .map(|(_, workload, sender, _)| (in_result(self.plan, *workload), *sender))
            .collect();
        senders.sort_by_key(|(place, _)| *place);
        let sampled = std::mem::take(&mut self.sampled).into_iter();
        (
            senders.into_iter().map(|(_, sender)| sender).collect(),
            sampled
                .map(|(_, workload, _, samples)| (workload, samples))
                .collect(),
        )
    }

    fn execute_action(&mut self, now: Time, workload: usize, action: Action) -> Result<(), Error> {
        match action {
            Action::Open {
                from,
                to,
                bytes,
                finish,
                follow,
            } => {
                let opening = Opening {
                    workload,
                    from: place(self.plan, from)?,
                    bytes,
                    follow,
                };
                let flow = self.account.open(now, opening);
                let (opener, local) = self.ends.connect(workload, from, to)?;
                let left = bytes.unwrap_or(u64::MAX);
                self.by_flow.insert(flow, self.connections.len());
                self.connections.push(UserConnection {
                    flow,
                    opener,
                    accepter: None,
                    unsent: [left, 0],
                    finish: [finish, false],
                    finished: [false; 2],
                    read: [0; 2],
                    total: [left, 0],
                    awaited_writes: [
                        WriteMarks::starting_with(bytes.unwrap_or(0)),
                        WriteMarks::default(),
                    ],
                    unsent_id_bytes: FLOW_ID_BYTES,
                });
                let watched = self
                    .sampled
                    .iter()
                    .filter(|(_, of, _, _)| *of == workload)
                    .count();
                if self.account.traffic(workload) == TrafficKind::Unbounded
                    && watched < SAMPLED_FLOWS_MAX
                {
                    let begun = Sample {
                        at_ns: now.as_nanos(),
                        ..Sample::default()
                    };
                    self.sampled.push((flow, workload, local, vec![begun]));
                }
            }
            Action::Write {
                slot,
                backward: back,
                bytes,
                finish,
            } => {
                let flow = self.account.flow_in_slot(workload, slot);
                let at = flow.and_then(|flow| self.by_flow.get(&flow));
                // A write to a broken flow is dropped.
                if let Some(live) = at.and_then(|at| self.connections.get_mut(*at)) {
                    let way = usize::from(back);
                    live.unsent[way] = live.unsent[way].saturating_add(bytes);
                    live.total[way] = live.total[way].saturating_add(bytes);
                    live.finish[way] |= finish;
                    if bytes > 0 {
                        live.awaited_writes[way].push(live.total[way]);
                    }
                    live.write(&mut self.ends);
                }
            }
            Action::Abort { slot } => {
                let flow = self.account.flow_in_slot(workload, slot);
                if let Some(at) = flow.and_then(|flow| self.by_flow.get(&flow)).copied() {
                    self.remove(at);
                }
            }
            Action::Datagram { from, to, bytes } => {
                let counted = self.account.read_counter(workload);
                self.datagrams.send(workload, from, to, bytes, counted)?;
            }
        }
        Ok(())
    }
}

/// Progress of a connection in one turn.
#[derive(Default)]
struct PollResult {
    bytes: u64,
    /// Completed writes, at the accepting end and at the opener.
    writes: [usize; 2],
}

impl UserConnection {
    /// Reads and writes at both ends. Returns the progress, and whether the connection is complete
    /// or has failed.
    fn transfer(&mut self, ends: &mut impl UserEnds) -> (PollResult, bool, bool) {
        let mut arrived = PollResult::default();
        let readers = [self.accepter, Some(self.opener)];
        for (way, reader) in readers.into_iter().enumerate() {
            let count = reader.map_or(0, |end| ends.read(end));
            if count == 0 {
                continue;
            }
            self.read[way] += count as u64;
            arrived.bytes += count as u64;
            arrived.writes[way] = self.awaited_writes[way].remove_read(self.read[way]);
        }
        self.write(ends);
        let failed = ends.has_failed(self.opener);
        // Complete: the opener has finished, and all data has arrived in both directions.
        let said = self.finished[0]
            && self.unsent[1] == 0
            && self.read[0] >= self.total[0]
            && self.read[1] >= self.total[1];
        (arrived, said, failed && !said)
    }

    /// Writes as much as fits, at both ends.
    fn write(&mut self, ends: &mut impl UserEnds) {
        let writers = [Some(self.opener), self.accepter];
        for (way, writer) in writers.into_iter().enumerate() {
            let Some(end) = writer else { continue };
            while way == 0 && self.unsent_id_bytes > 0 {
                let name = self.flow.to_be_bytes();
                let rest = name
                    .get(FLOW_ID_BYTES - self.unsent_id_bytes..)
                    .unwrap_or_default();
                let count = ends.write(end, rest);
                if count == 0 {
                    break;
                }
                self.unsent_id_bytes -= count;
            }
            while self.unsent[way] > 0 && (way == 1 || self.unsent_id_bytes == 0) {
                let count =
                    ends.write_fill(end, usize::try_from(self.unsent[way]).unwrap_or(usize::MAX));
                if count == 0 {
                    break;
                }
                if self.unsent[way] < u64::MAX {
                    self.unsent[way] -= count as u64;
                }
            }
            if self.unsent[way] == 0 && self.finish[way] && !self.finished[way] {
                self.finished[way] = true;
                ends.finish(end);
            }
        }
    }
}
