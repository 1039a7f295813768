//! The machines of a run's workloads in real time, and the account of their flows: the same whatever carries the bytes.
//!
//! Whoever carries them asks [`next_time`](Account::next_time), does what [`poll`](Account::poll) wants, and tells what became of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ccplane_units::{Duration, Rate, Time};
use ccplane_workload::{Action, Carrier, NodeId, Running, Workload};

use super::hosts::Side;
use super::{RealPlan, RealWorkload};
use crate::error::Error;
use crate::metrics;
use crate::record::WorkloadRecord;
use crate::result::{Completion, Sample};

/// What a workload's figures are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Flows that last.
    Lasting,
    /// Flows that end when their bytes have arrived.
    Finite,
    /// Connections that carry requests and responses.
    Exchanges,
    /// Connections that carry messages, one after the other.
    Messages,
    /// Datagrams.
    Datagrams,
}

impl Role {
    pub fn of(kind: &Workload) -> Role {
        match kind {
            Workload::Bulk { bytes: None, .. } => Role::Lasting,
            Workload::Paced {
                carrier: Carrier::Datagrams { .. },
                ..
            } => Role::Datagrams,
            Workload::Paced { .. } => Role::Lasting,
            Workload::Requests { .. } => Role::Exchanges,
            Workload::Messages { .. } => Role::Messages,
            Workload::Bulk { .. }
            | Workload::Poisson { .. }
            | Workload::Bursts { .. }
            | Workload::List { .. }
            | Workload::Trace { .. } => Role::Finite,
        }
    }
}

/// A workload at work.
#[derive(Debug)]
struct Machine {
    running: Running,
    role: Role,
    /// Flows by their slots.
    slots: Vec<u32>,
    /// Flows with an end that have not come to it.
    pending: u64,
    /// Bytes on the wire of datagrams that arrived.
    datagrams: Arc<AtomicU64>,
}

/// What is known of a flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub workload: usize,
    slot: Option<u32>,
    /// Where its opener is.
    pub side: Side,
    bytes: Option<u64>,
    started: Time,
    finished: Option<Time>,
    failed: bool,
    /// Segments that its opener sent again.
    pub retransmitted: u64,
    /// Bytes that the accepting application read.
    pub received: Arc<AtomicU64>,
}

impl Flow {
    /// Whether its workload hears of it and may write more.
    pub fn follows(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether it has an end of its own that it has not come to.
    fn is_pending(&self) -> bool {
        self.slot.is_none() && self.bytes.is_some() && self.finished.is_none() && !self.failed
    }
}

/// A flow to open.
pub(super) struct Opening {
    pub workload: usize,
    pub side: Side,
    pub bytes: Option<u64>,
    pub follow: bool,
}

/// Workloads and flows of a run.
#[derive(Debug)]
pub(super) struct Account {
    machines: Vec<Machine>,
    flows: Vec<Flow>,
    /// The machines' time, which never goes back.
    now: Time,
}

/// How long flows take alone, by the direction of their data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    pub rtt: Duration,
    /// By [`Side`]: what it sends at.
    pub rates: [Option<Rate>; 2],
}

impl Alone {
    /// Nanoseconds for so many bytes from this side: at the link's rate, and one round trip (Bundler, EuroSys 2021, section 7.1).
    fn takes(&self, from: Side, bytes: u64) -> u64 {
        let sending = self.rates[from.index()].map_or(0, |rate| {
            u128::from(bytes) * 1_000_000_000 / u128::from(rate.bytes_per_sec().max(1))
        });
        let sending = u64::try_from(sending).unwrap_or(u64::MAX);
        self.rtt.as_nanos().saturating_add(sending)
    }
}

/// Samples of a flow, with the workload that it is of.
pub(super) type Sampled = (usize, Vec<Sample>);

impl Account {
    /// Nothing has happened yet.
    pub fn new(plan: &RealPlan) -> Result<Account, Error> {
        let machine = |(which, workload): (u32, &RealWorkload)| {
            let running = Running::new(workload.spec.clone(), plan.seed, which)
                .map_err(|error| Error::traffic("begin a workload", "")(io::Error::other(error)))?;
            Ok(Machine {
                running,
                role: Role::of(&workload.spec.kind),
                slots: Vec::new(),
                pending: 0,
                datagrams: Arc::default(),
            })
        };
        let machines = (0..).zip(&plan.workloads).map(machine);
        Ok(Account {
            machines: machines.collect::<Result<_, Error>>()?,
            flows: Vec::new(),
            now: Time::ZERO,
        })
    }

    /// What a workload's figures are made of.
    pub fn role(&self, workload: usize) -> Role {
        self.machines.get(workload).map_or(Role::Finite, |machine| machine.role)
    }

    /// Where datagrams of a workload are counted that arrive.
    pub fn datagrams(&self, workload: usize) -> Arc<AtomicU64> {
        let machine = self.machines.get(workload);
        machine.map(|machine| machine.datagrams.clone()).unwrap_or_default()
    }

    /// When to poll next, if nothing arrives before.
    pub fn next_time(&self) -> Option<Time> {
        let each = self.machines.iter().filter_map(|machine| machine.running.next_time());
        each.min()
    }

    /// What is to be done by now, by which workload; to be asked until it is nothing more.
    pub fn poll(&mut self, now: Time) -> Option<(usize, Action)> {
        self.now = self.now.max(now);
        let now = self.now;
        let mut all = self.machines.iter_mut().enumerate();
        all.find_map(|(which, machine)| Some((which, machine.running.poll(now)?)))
    }

    /// A flow begins; its number.
    pub fn open(&mut self, now: Time, opening: Opening) -> u32 {
        let number = self.flows.len() as u32;
        let mut slot = None;
        if let Some(machine) = self.machines.get_mut(opening.workload) {
            if opening.follow {
                slot = Some(machine.slots.len() as u32);
                machine.slots.push(number);
            } else {
                machine.pending += u64::from(opening.bytes.is_some());
            }
        }
        self.flows.push(Flow {
            workload: opening.workload,
            slot,
            side: opening.side,
            bytes: opening.bytes,
            started: now,
            finished: None,
            failed: false,
            retransmitted: 0,
            received: Arc::default(),
        });
        number
    }

    /// A flow by its number.
    pub fn flow(&self, number: u32) -> Option<&Flow> {
        self.flows.get(number as usize)
    }

    /// The same, to change it.
    pub fn flow_mut(&mut self, number: u32) -> Option<&mut Flow> {
        self.flows.get_mut(number as usize)
    }

    /// The number of the flow in a workload's slot.
    pub fn in_slot(&self, workload: usize, slot: u32) -> Option<u32> {
        self.machines.get(workload)?.slots.get(slot as usize).copied()
    }

    /// All that was written to a flow in a direction has been read.
    pub fn received(&mut self, at: Time, number: u32, back: bool) {
        self.now = self.now.max(at);
        let Some(flow) = self.flows.get_mut(number as usize) else {
            return;
        };
        let ends = flow.is_pending() && !back;
        if !back {
            flow.finished.get_or_insert(at);
        }
        if let Some(machine) = self.machines.get_mut(flow.workload) {
            machine.pending -= u64::from(ends);
            if let Some(slot) = flow.slot {
                machine.running.received(self.now, slot, back);
            }
        }
    }

    /// A flow has ended before its time.
    pub fn failed(&mut self, number: u32) {
        if let Some(flow) = self.flows.get_mut(number as usize) {
            let ends = flow.is_pending();
            // What broke once everything had arrived has done its work.
            flow.failed |= flow.finished.is_none() || flow.slot.is_some();
            if let Some(machine) = self.machines.get_mut(flow.workload) {
                machine.pending -= u64::from(ends);
            }
        }
    }

    /// Whether all flows of these workloads have ended and no more will come; never where there are none.
    pub fn over(&self, workloads: &[usize]) -> bool {
        let mut all = workloads.iter().filter_map(|which| self.machines.get(*which));
        !workloads.is_empty() && all.all(|machine| machine.pending == 0 && machine.running.ended())
    }

    /// What became of every workload in so many nanoseconds.
    pub fn records(
        &self,
        plan: &RealPlan,
        elapsed_ns: u64,
        sampled: Vec<Sampled>,
        alone: &Alone,
    ) -> Vec<WorkloadRecord> {
        let mut sampled: Vec<Sampled> = sampled;
        let each = self.machines.iter().zip(&plan.workloads).enumerate();
        each.map(|(which, (machine, workload))| {
            let flows = || self.flows.iter().filter(move |flow| flow.workload == which);
            let received = |flow: &Flow| flow.received.load(Ordering::Relaxed);
            let all = flows().map(received).sum();
            let mut record = WorkloadRecord {
                name: workload.spec.name.clone(),
                contender: workload.contender.clone(),
                compared: workload.compared,
                received: all,
                retransmitted: workload.contender.as_ref().map(|_| flows().map(|flow| flow.retransmitted).sum()),
                ..WorkloadRecord::default()
            };
            record.failed = flows().filter(|flow| flow.failed).count() as u64;
            match machine.role {
                Role::Lasting => {
                    let goodput = |flow| metrics::mbits(received(flow), elapsed_ns);
                    record.goodputs = flows().map(goodput).collect();
                    let ours = sampled.iter_mut().filter(|(workload, _)| *workload == which);
                    record.flows = ours.map(|(_, samples)| std::mem::take(samples)).collect();
                }
                Role::Finite => {
                    record.completed = flows().filter_map(|flow| completion(flow, plan.seed, alone)).collect();
                    record.unfinished = flows().filter(|flow| flow.finished.is_none()).count() as u64;
                }
                Role::Exchanges => {
                    record.completed = self.exchanges(machine, plan.seed, alone);
                    record.received = record.completed.iter().map(|response| response.bytes).sum();
                }
                Role::Messages => {
                    record.completed = self.messages(machine, plan.seed, alone);
                    record.unfinished = machine.running.unfinished();
                }
                Role::Datagrams => record.received = machine.datagrams.load(Ordering::Relaxed),
            }
            record
        })
        .collect()
    }

    /// Responses that arrived. One comes from where the request went.
    fn exchanges(&self, machine: &Machine, seed: u64, alone: &Alone) -> Vec<Completion> {
        let one = |exchange: &ccplane_workload::Exchange| {
            let flow = machine.slots.get(exchange.connection as usize);
            let flow = self.flow(*flow?)?;
            Some(Completion {
                seed,
                started_ns: exchange.started.as_nanos(),
                bytes: exchange.response.get(),
                took_ns: exchange.finished.since(exchange.started).as_nanos(),
                waited_ns: 0,
                alone_ns: alone.takes(flow.side.other(), exchange.response.get()),
            })
        };
        machine.running.exchanges().iter().filter_map(one).collect()
    }

    /// Messages that arrived: from when their sender had them.
    fn messages(&self, machine: &Machine, seed: u64, alone: &Alone) -> Vec<Completion> {
        let one = |message: &ccplane_workload::Message| {
            let flow = machine.slots.get(message.connection as usize);
            let flow = self.flow(*flow?)?;
            Some(Completion {
                seed,
                started_ns: message.arrived.as_nanos(),
                bytes: message.bytes.get(),
                took_ns: message.finished.since(message.arrived).as_nanos(),
                waited_ns: message.started.since(message.arrived).as_nanos(),
                alone_ns: alone.takes(flow.side, message.bytes.get()),
            })
        };
        machine.running.messages().iter().filter_map(one).collect()
    }
}

fn completion(flow: &Flow, seed: u64, alone: &Alone) -> Option<Completion> {
    let (finished, bytes) = flow.finished.zip(flow.bytes)?;
    Some(Completion {
        seed,
        started_ns: flow.started.as_nanos(),
        bytes,
        took_ns: finished.since(flow.started).as_nanos(),
        waited_ns: 0,
        alone_ns: alone.takes(flow.side, bytes),
    })
}

/// Where a workload's host is that an action names.
pub(super) fn place(plan: &RealPlan, node: NodeId) -> Result<super::hosts::Host, Error> {
    plan.hosts.get(node).ok_or_else(|| {
        let what = io::Error::other(format!("host {} is at neither side of the bottleneck", node.index()));
        Error::traffic("find a host", "name hosts of both sides, such as left1 and right1")(what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_a_flow_takes_its_bytes_at_the_links_rate_and_a_round_trip() {
        let alone = Alone {
            rtt: Duration::from_millis(20),
            rates: [Some(Rate::from_bytes_per_sec(1_000_000)), None],
        };
        assert_eq!(alone.takes(Side::Left, 50_000), 70_000_000);
        assert_eq!(alone.takes(Side::Right, 50_000), 20_000_000);
    }
}
