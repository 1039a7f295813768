//! The workloads of a run on ccplane's transport over UDP.
//!
//! The caller's thread does everything. A host of the scenario has a socket of its own for each algorithm, at its address; connections
//! between the same two hosts under the same algorithm share the two sockets, so that to a fair queue they are one flow.

mod net;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use ccplane_algorithms::Registry;
use ccplane_emu::Emulator;
use ccplane_transport::udp::{Host, UdpError};
use ccplane_transport::{Phase, Stats, Tail};
use ccplane_units::{Duration, Time};
use ccplane_workload::Action;

use self::net::Net;
use super::drive::{Account, Courses, Opening, Sampled, place};
use super::events::Events;
use super::tcp::{alone, in_result};
use super::{RealPlan, Recorded, hosts, socket};
use crate::error::Error;
use crate::packets::RemoteAgent;
use crate::result::{Sample, SecondLoop, TcpInfo};
use crate::sends::{MOST_SAMPLED, Sends};
use crate::traffic::monotonic_ns;

/// How long nothing may happen before it looks around.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes with which every stream begins: which flow it is. They count for nobody.
const NAME: usize = 4;

/// Runs the plan over an emulator that was just started; see [`super::tcp::run`]. `tail` is RC3's second loop. Also what second loops did.
pub(crate) fn run(
    emulator: &Emulator,
    plan: &RealPlan,
    registry: &Registry,
    agent: Option<&RemoteAgent>,
    tail: Option<Tail>,
    mut look: impl FnMut(Duration, u64) -> bool,
) -> Result<(Recorded, Option<SecondLoop>), Error> {
    socket::allow_many_files();
    hosts::settle(emulator, [])?;
    let account = Account::new(plan)?;
    let mut loops = Loop {
        net: Net::new(emulator, plan, registry, agent, tail),
        events: Events::new(emulator.control(), &plan.events),
        courses: Courses::of(&account),
        account,
        live: Vec::new(),
        named: HashMap::new(),
        nameless: Vec::new(),
        sampled: Vec::new(),
        total: 0,
        tails: SecondLoop::default(),
        started_ns: monotonic_ns(),
    };
    loops.run(&mut look)?;
    let elapsed_ns = loops.now().as_nanos().max(1);
    let (senders, sampled) = loops.end(elapsed_ns);
    let courses = loops.courses.finish(elapsed_ns);
    let recorded = Recorded {
        started_ns: loops.started_ns,
        elapsed_ns,
        workloads: loops
            .account
            .records(plan, elapsed_ns, sampled, courses, &alone(emulator)),
        senders,
    };
    Ok((recorded, tail.map(|_| loops.tails)))
}

/// A connection that lives.
struct Live {
    flow: u32,
    /// Its opener's host and its name there.
    opener: (usize, u64),
    /// The same of the accepting end, once it is known which it is.
    accepter: Option<(usize, u64)>,
    /// Bytes to write, after its name.
    left: [u64; 2],
    finish: [bool; 2],
    finished: [bool; 2],
    /// Bytes that were read, and at how many the machine is told; 0 for nothing awaited. First at the accepting end.
    read: [u64; 2],
    total: [u64; 2],
    awaited: [u64; 2],
    /// Bytes of the name that are not written yet.
    name: usize,
}

struct Loop<'r> {
    net: Net<'r>,
    events: Events,
    account: Account,
    courses: Courses,
    live: Vec<Live>,
    /// Where a flow that lives is in `live`.
    named: HashMap<u32, usize>,
    /// Connections that were accepted and have not told their name.
    nameless: Vec<(usize, u64)>,
    /// Flows that are looked at: the flow, its workload, its sender, what was seen.
    sampled: Vec<(u32, usize, SocketAddr, Vec<Sample>)>,
    total: u64,
    tails: SecondLoop,
    started_ns: u64,
}

/// A socket that works no more spoils every flow.
fn broken(error: UdpError) -> Error {
    Error::traffic("send over the path", "")(io::Error::other(error))
}

impl Loop<'_> {
    fn now(&self) -> Time {
        Time::from_nanos(monotonic_ns().saturating_sub(self.started_ns))
    }

    fn run(&mut self, look: &mut impl FnMut(Duration, u64) -> bool) -> Result<(), Error> {
        let plan = self.net.plan;
        let end = Time::ZERO + plan.duration;
        let every = plan.sample_every.max(Duration::from_millis(1));
        let mut next_look = Time::ZERO;
        loop {
            let now = self.now();
            self.events.apply(now)?;
            if !self.account.counts() && now >= Time::ZERO + plan.warm {
                self.account.count_from_here();
            }
            while let Some((workload, action)) = self.account.poll(now) {
                self.act(now, workload, action)?;
            }
            if now >= end || self.account.over(&plan.until) {
                return Ok(());
            }
            if now >= next_look {
                self.sample(now);
                self.courses.look(now.as_nanos());
                if !look(now.since(Time::ZERO), self.total) {
                    return Ok(());
                }
                next_look = (next_look + every).max(now);
            }
            let due = [self.account.next_time(), self.events.next_time(), Some(next_look)];
            let due = due.into_iter().flatten().fold(end, Time::min);
            Host::turn_all(&mut self.net.hosts, due.since(now).min(LOOK)).map_err(broken)?;
            self.serve();
        }
    }

    /// Reads all that came and writes all that there is room for.
    fn serve(&mut self) {
        for (place, host) in self.net.hosts.iter_mut().enumerate() {
            while let Some(id) = host.accepted() {
                self.nameless.push((place, id));
            }
        }
        let (hosts, named, live) = (&mut self.net.hosts, &self.named, &mut self.live);
        self.nameless.retain(|(place, id)| {
            let Some(host) = hosts.get_mut(*place) else {
                return false;
            };
            let (first, second) = host.arrived(*id);
            let mut begin = first.iter().chain(second).copied();
            let name: Option<Vec<u8>> = (0..NAME).map(|_| begin.next()).collect();
            let Some(name) = name else {
                return host.connection(*id).is_some();
            };
            host.take(*id, NAME);
            let flow = name.iter().fold(0, |flow, byte| flow << 8 | u32::from(*byte));
            if let Some(live) = named.get(&flow).and_then(|at| live.get_mut(*at)) {
                live.accepter = Some((*place, *id));
            }
            false
        });
        let mut at = 0;
        while let Some(live) = self.live.get_mut(at) {
            let flow = live.flow;
            let (arrived, over, failed) = live.turn(&mut self.net.hosts);
            if let Some(known) = self.account.flow(flow) {
                let before = known.received.swap(live.read[0], Ordering::Relaxed);
                let workload = self.account.read(known.workload);
                workload.fetch_add(live.read[0] - before, Ordering::Relaxed);
            }
            self.total += arrived.bytes;
            let now = Time::from_nanos(monotonic_ns().saturating_sub(self.started_ns));
            for back in [false, true] {
                if arrived.all[usize::from(back)] {
                    self.account.received(now, flow, back);
                }
            }
            if failed {
                self.account.failed(flow);
            }
            if over || failed {
                self.remove(at);
            } else {
                at += 1;
            }
        }
        self.net.swallow();
    }

    /// A connection ends, well or not: what it counted is kept.
    fn remove(&mut self, at: usize) {
        let live = self.live.swap_remove(at);
        self.named.remove(&live.flow);
        if let Some(moved) = self.live.get(at) {
            self.named.insert(moved.flow, at);
        }
        self.note(&live);
        for (place, id) in [Some(live.opener), live.accepter].into_iter().flatten() {
            if let Some(host) = self.net.hosts.get_mut(place) {
                // Tells the peer, where there is one; an error of the socket shows with the next turn.
                let _ = host.abort(id);
            }
        }
    }

    fn note(&mut self, live: &Live) {
        let (place, id) = live.opener;
        let Some(connection) = self.net.hosts.get(place).and_then(|host| host.connection(id)) else {
            return;
        };
        if let Some(flow) = self.account.flow_mut(live.flow) {
            flow.retransmitted = connection.stats().retransmitted.into();
        }
        let tail = SecondLoop::of(connection.tail_stats().into_iter());
        self.tails = [&self.tails, &tail].into_iter().sum();
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
            let live = self.named.get(flow).and_then(|at| self.live.get(*at));
            let connection = live.and_then(|live| self.net.hosts.get(live.opener.0)?.connection(live.opener.1));
            if let Some(connection) = connection {
                sample.tcp = tcp(&connection.stats(), connection.mss(), connection.phase());
            }
            samples.push(sample);
        }
    }

    /// A last look, and every connection is gone: senders in the order of the result, samples by workload.
    fn end(&mut self, elapsed_ns: u64) -> (Vec<SocketAddr>, Vec<Sampled>) {
        self.sample(Time::from_nanos(elapsed_ns));
        for live in &self.live {
            let (place, id) = live.opener;
            let fell_back = self.net.hosts.get(place).and_then(|host| host.in_fallback(id));
            if let Some(flow) = self.account.flow_mut(live.flow) {
                flow.fell_back = fell_back.unwrap_or(false);
            }
        }
        while !self.live.is_empty() {
            self.remove(self.live.len() - 1);
        }
        let mut senders: Vec<_> = self
            .sampled
            .iter()
            .map(|(_, workload, sender, _)| (in_result(self.net.plan, *workload), *sender))
            .collect();
        senders.sort_by_key(|(place, _)| *place);
        let sampled = std::mem::take(&mut self.sampled).into_iter();
        (
            senders.into_iter().map(|(_, sender)| sender).collect(),
            sampled.map(|(_, workload, _, samples)| (workload, samples)).collect(),
        )
    }

    fn act(&mut self, now: Time, workload: usize, action: Action) -> Result<(), Error> {
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
                    from: place(self.net.plan, from)?,
                    bytes,
                    follow,
                };
                let flow = self.account.open(now, opening);
                let (server, _) = self.net.host(workload, to, true)?;
                let (client, congestion) = self.net.host(workload, from, false)?;
                let local = self.net.hosts.get(client).map(Host::local);
                let Some((local, peer)) = local.zip(self.net.hosts.get(server).map(Host::local)) else {
                    return Ok(());
                };
                let Some(host) = self.net.hosts.get_mut(client) else {
                    return Ok(());
                };
                let id = host.connect(peer, congestion).map_err(broken)?;
                let left = bytes.unwrap_or(u64::MAX);
                self.named.insert(flow, self.live.len());
                self.live.push(Live {
                    flow,
                    opener: (client, id),
                    accepter: None,
                    left: [left, 0],
                    finish: [finish, false],
                    finished: [false; 2],
                    read: [0; 2],
                    total: [left, 0],
                    awaited: [bytes.unwrap_or(0), 0],
                    name: NAME,
                });
                let watched = self.sampled.iter().filter(|(_, of, _, _)| *of == workload).count();
                if self.account.sends(workload) == Sends::Lasting && watched < MOST_SAMPLED {
                    let begun = Sample {
                        at_ns: now.as_nanos(),
                        ..Sample::default()
                    };
                    self.sampled.push((flow, workload, local, vec![begun]));
                }
            }
            Action::Write {
                slot,
                back,
                bytes,
                finish,
            } => {
                let flow = self.account.in_slot(workload, slot);
                let at = flow.and_then(|flow| self.named.get(&flow));
                // A flow that broke takes no more; nothing is to be done about it.
                if let Some(live) = at.and_then(|at| self.live.get_mut(*at)) {
                    let way = usize::from(back);
                    live.left[way] = live.left[way].saturating_add(bytes);
                    live.total[way] = live.total[way].saturating_add(bytes);
                    live.finish[way] |= finish;
                    if bytes > 0 {
                        live.awaited[way] = live.total[way];
                    }
                    live.fill(&mut self.net.hosts);
                }
            }
            Action::Abandon { slot } => {
                let flow = self.account.in_slot(workload, slot);
                if let Some(at) = flow.and_then(|flow| self.named.get(&flow)).copied() {
                    self.remove(at);
                }
            }
            Action::Datagram { from, to, bytes } => {
                let counted = self.account.read(workload);
                self.net.datagram(workload, from, to, bytes, counted)?;
            }
        }
        Ok(())
    }
}

/// What a look at a connection found.
#[derive(Default)]
struct Arrived {
    bytes: u64,
    /// All that was awaited, at the accepting end and at the opener's.
    all: [bool; 2],
}

impl Live {
    /// Reads and writes at both ends; what arrived, whether it is over, whether it has failed.
    fn turn(&mut self, hosts: &mut [Host]) -> (Arrived, bool, bool) {
        let mut arrived = Arrived::default();
        let readers = [self.accepter, Some(self.opener)];
        for (way, reader) in readers.into_iter().enumerate() {
            let Some((host, id)) = reader.and_then(|(place, id)| Some((hosts.get_mut(place)?, id))) else {
                continue;
            };
            let (first, second) = host.arrived(id);
            let count = first.len() + second.len();
            if count == 0 {
                continue;
            }
            host.take(id, count);
            self.read[way] += count as u64;
            arrived.bytes += count as u64;
            if self.awaited[way] > 0 && self.read[way] >= self.awaited[way] {
                self.awaited[way] = 0;
                arrived.all[way] = true;
            }
        }
        self.fill(hosts);
        let (place, id) = self.opener;
        let connection = hosts.get(place).and_then(|host| host.connection(id));
        let failed = connection.is_none_or(|connection| connection.failure().is_some());
        // What it had to say has arrived, and nobody says anything any more.
        let said =
            self.finished[0] && self.left[1] == 0 && self.read[0] >= self.total[0] && self.read[1] >= self.total[1];
        (arrived, said, failed && !said)
    }

    /// Writes as much as there is room for, at both ends.
    fn fill(&mut self, hosts: &mut [Host]) {
        let writers = [Some(self.opener), self.accepter];
        for (way, writer) in writers.into_iter().enumerate() {
            let Some((host, id)) = writer.and_then(|(place, id)| Some((hosts.get_mut(place)?, id))) else {
                continue;
            };
            while way == 0 && self.name > 0 {
                let room = host.room(id);
                let name = self.flow.to_be_bytes();
                let rest = name.get(NAME - self.name..).unwrap_or_default();
                let count = rest.len().min(room.len());
                if count == 0 {
                    break;
                }
                room.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
                host.wrote(id, count);
                self.name -= count;
            }
            while self.left[way] > 0 && (way == 1 || self.name == 0) {
                // What is in it does not matter.
                let room = host.room(id).len();
                let count = room.min(usize::try_from(self.left[way]).unwrap_or(usize::MAX));
                if count == 0 {
                    break;
                }
                host.wrote(id, count);
                if self.left[way] < u64::MAX {
                    self.left[way] -= count as u64;
                }
            }
            if self.left[way] == 0 && self.finish[way] && !self.finished[way] {
                self.finished[way] = true;
                host.finish(id);
            }
        }
    }
}

/// In the terms of Linux TCP; what the transport does not count is 0.
fn tcp(stats: &Stats, mss: u64, phase: Phase) -> TcpInfo {
    let segments = |bytes: u64| u32::try_from(bytes / mss.max(1)).unwrap_or(u32::MAX);
    let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    TcpInfo {
        ca_state: match phase {
            Phase::Open => 0,
            Phase::Reduction => 2,
            Phase::Recovery => 3,
            Phase::Loss => 4,
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
