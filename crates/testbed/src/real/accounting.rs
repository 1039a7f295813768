//! Workload generators in real time, and the accounting of their flows. Independent of the
//! transport.
//!
//! A transport asks [`next_time`](Account::next_time), carries out what [`poll`](Account::poll)
//! returns, and reports the outcome.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ccplane_lab::Error;
use ccplane_lab::metrics;
use ccplane_lab::record::WorkloadRecord;
use ccplane_lab::result::{Completion, Sample};
use ccplane_lab::traffic_kind::TrafficKind;
use ccplane_units::{Duration, Rate, Time};
use ccplane_workload::{Action, NodeId, WorkloadGenerator};

use super::hosts::{NamespaceHost, PathSide};
use super::{RealPlan, RealWorkload};

/// A workload in progress.
#[derive(Debug)]
struct DrivenWorkload {
    generator: WorkloadGenerator,
    traffic: TrafficKind,
    /// Flow numbers by slot.
    flows_by_slot: Vec<u32>,
    /// Finite flows that have not ended.
    pending: u64,
    /// Bytes that accepting applications read. For exchanges: bytes of complete responses. For
    /// datagrams: bytes on the wire.
    received: Arc<AtomicU64>,
    /// Exchanges already included in `received`.
    exchanges: usize,
    /// Value of `received` when counting began.
    warmup_bytes: u64,
}

impl DrivenWorkload {
    fn count_exchanges(&mut self) {
        let all = self.generator.exchanges();
        let fresh = all.get(self.exchanges..).unwrap_or_default();
        let bytes: u64 = fresh.iter().map(|exchange| exchange.response.get()).sum();
        self.exchanges = all.len();
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// State of a flow.
#[derive(Debug)]
pub(super) struct RealFlow {
    pub workload: usize,
    slot: Option<u32>,
    /// Side and space of the host that opens it.
    pub side: PathSide,
    pub space: usize,
    bytes: Option<u64>,
    started: Time,
    finished: Option<Time>,
    failed: bool,
    /// The flow was on its datapath's fallback at the end.
    pub fell_back: bool,
    /// Segments that the opener retransmitted.
    pub retransmitted: u64,
    /// Bytes that the accepting application read.
    pub received: Arc<AtomicU64>,
    /// Value of `received` when counting began.
    warmup_bytes: u64,
}

impl RealFlow {
    /// Returns true if the workload is notified of its progress and may write more.
    pub fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Returns true if the flow is finite, not driven by its workload, and still open.
    fn is_pending(&self) -> bool {
        self.slot.is_none() && self.bytes.is_some() && self.finished.is_none() && !self.failed
    }
}

/// A flow to open.
pub(super) struct Opening {
    pub workload: usize,
    /// Host that opens it.
    pub from: NamespaceHost,
    pub bytes: Option<u64>,
    pub follow: bool,
}

/// Workloads and flows of a run.
#[derive(Debug)]
pub(super) struct Account {
    workloads: Vec<DrivenWorkload>,
    flows: Vec<RealFlow>,
    /// Bytes count for goodput.
    is_counting: bool,
    /// Time of the generators; monotonic.
    now: Time,
}

/// Completion times of flows on an idle path, by the direction of their data.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnloadedTimes {
    pub rtt: Duration,
    /// Rate at which each [`PathSide`] can send.
    pub rates: [Option<Rate>; 2],
}

impl UnloadedTimes {
    /// Returns the completion time of `bytes` from this side on an idle path, nanoseconds.
    fn completion_ns(&self, from: PathSide, bytes: u64) -> u64 {
        metrics::alone_ns(self.rtt, self.rates[from.index()], bytes)
    }
}

/// Samples of a flow, with the index of its workload.
pub(super) type FlowSamples = (usize, Vec<Sample>);

/// Received bytes of a workload over time: nanoseconds since the start of the run, and bytes until
/// then.
pub(super) type Course = Vec<(u64, u64)>;

/// Received bytes of each workload over time. Recorded only for several workloads; for a single one
/// the samples of its flows are enough.
#[derive(Debug)]
pub(super) struct Courses {
    counters: Vec<Arc<AtomicU64>>,
    courses: Vec<Course>,
}

impl Courses {
    pub fn new(account: &Account) -> Courses {
        let counters = account.counters();
        let counters = if counters.len() > 1 {
            counters
        } else {
            Vec::new()
        };
        Courses {
            courses: vec![Course::new(); counters.len()],
            counters,
        }
    }

    /// Takes a sample at this time.
    pub fn sample(&mut self, at_ns: u64) {
        for (course, counter) in self.courses.iter_mut().zip(&self.counters) {
            course.push((at_ns, counter.load(Ordering::Relaxed)));
        }
    }

    /// Takes the final sample and returns all courses.
    pub fn finish(mut self, elapsed_ns: u64) -> Vec<Course> {
        self.sample(elapsed_ns);
        self.courses
    }
}

impl Account {
    /// Creates the accounting of a run that has not started.
    pub fn new(plan: &RealPlan) -> Result<Account, Error> {
        let machine = |(which, workload): (u32, &RealWorkload)| {
            let running = WorkloadGenerator::new(workload.spec.clone(), plan.seed, which)
                .map_err(|error| Error::traffic("start a workload", "")(io::Error::other(error)))?;
            Ok(DrivenWorkload {
                generator: running,
                traffic: TrafficKind::from_workload(&workload.spec.kind),
                flows_by_slot: Vec::new(),
                pending: 0,
                received: Arc::default(),
                exchanges: 0,
                warmup_bytes: 0,
            })
        };
        let machines = (0..).zip(&plan.workloads).map(machine);
        Ok(Account {
            workloads: machines.collect::<Result<_, Error>>()?,
            flows: Vec::new(),
            is_counting: false,
            now: Time::ZERO,
        })
    }

    /// Returns what a workload sends.
    pub fn traffic(&self, workload: usize) -> TrafficKind {
        self.workloads
            .get(workload)
            .map_or(TrafficKind::Finite, |machine| machine.traffic)
    }

    /// Returns the counter for bytes that accepting applications of a workload read, or for
    /// datagrams that arrive. For exchanges it is a dummy: responses count when they are complete.
    pub fn read_counter(&self, workload: usize) -> Arc<AtomicU64> {
        let machine = self.workloads.get(workload);
        let machine = machine.filter(|machine| machine.traffic != TrafficKind::Exchanges);
        machine
            .map(|machine| machine.received.clone())
            .unwrap_or_default()
    }

    /// Returns the counters of received bytes, by workload.
    pub fn counters(&self) -> Vec<Arc<AtomicU64>> {
        self.workloads
            .iter()
            .map(|machine| machine.received.clone())
            .collect()
    }

    /// Returns true if bytes count for goodput.
    pub fn is_counting(&self) -> bool {
        self.is_counting
    }

    /// Starts counting bytes for goodput.
    pub fn end_warm_up(&mut self) {
        self.is_counting = true;
        for machine in &mut self.workloads {
            machine.warmup_bytes = machine.received.load(Ordering::Relaxed);
        }
        for flow in &mut self.flows {
            flow.warmup_bytes = flow.received.load(Ordering::Relaxed);
        }
    }

    /// Returns the time of the next poll, unless data arrives before.
    pub fn next_time(&self) -> Option<Time> {
        let each = self
            .workloads
            .iter()
            .filter_map(|machine| machine.generator.next_time());
        each.min()
    }

    /// Returns an action due by `now` and its workload. The caller repeats until it is `None`.
    pub fn poll(&mut self, now: Time) -> Option<(usize, Action)> {
        self.now = self.now.max(now);
        let now = self.now;
        let mut all = self.workloads.iter_mut().enumerate();
        all.find_map(|(which, machine)| Some((which, machine.generator.poll(now)?)))
    }

    /// Starts a flow and returns its number.
    pub fn open(&mut self, now: Time, opening: Opening) -> u32 {
        let number = self.flows.len() as u32;
        let mut slot = None;
        if let Some(machine) = self.workloads.get_mut(opening.workload) {
            if opening.follow {
                slot = Some(machine.flows_by_slot.len() as u32);
                machine.flows_by_slot.push(number);
            } else {
                machine.pending += u64::from(opening.bytes.is_some());
            }
        }
        self.flows.push(RealFlow {
            workload: opening.workload,
            slot,
            side: opening.from.side,
            space: opening.from.space,
            bytes: opening.bytes,
            started: now,
            finished: None,
            failed: false,
            fell_back: false,
            retransmitted: 0,
            received: Arc::default(),
            warmup_bytes: 0,
        });
        number
    }

    /// Returns a flow by its number.
    pub fn flow(&self, number: u32) -> Option<&RealFlow> {
        self.flows.get(number as usize)
    }

    /// Returns a flow by its number, mutably.
    pub fn flow_mut(&mut self, number: u32) -> Option<&mut RealFlow> {
        self.flows.get_mut(number as usize)
    }

    /// Returns the number of the flow in a workload's slot.
    pub fn flow_in_slot(&self, workload: usize, slot: u32) -> Option<u32> {
        self.workloads
            .get(workload)?
            .flows_by_slot
            .get(slot as usize)
            .copied()
    }

    /// Records that the oldest write of a flow has been read. `back`: in the direction to the
    /// opener.
    pub fn on_received(&mut self, at: Time, number: u32, back: bool) {
        self.now = self.now.max(at);
        let Some(flow) = self.flows.get_mut(number as usize) else {
            return;
        };
        let ends = flow.is_pending() && !back;
        if !back {
            flow.finished.get_or_insert(at);
        }
        if let Some(machine) = self.workloads.get_mut(flow.workload) {
            machine.pending -= u64::from(ends);
            if let Some(slot) = flow.slot {
                machine.generator.on_received(self.now, slot, back);
                machine.count_exchanges();
            }
        }
    }

    /// Records that a flow ended prematurely.
    pub fn on_failed(&mut self, number: u32) {
        if let Some(flow) = self.flows.get_mut(number as usize) {
            let ends = flow.is_pending();
            // A finite flow whose data has arrived completely has not failed.
            flow.failed |= flow.finished.is_none() || flow.slot.is_some();
            if let Some(machine) = self.workloads.get_mut(flow.workload) {
                machine.pending -= u64::from(ends);
            }
        }
    }

    /// Returns true if all flows of these workloads have ended and no more will start; false for an
    /// empty list.
    pub fn are_complete(&self, workloads: &[usize]) -> bool {
        let mut all = workloads
            .iter()
            .filter_map(|which| self.workloads.get(*which));
        !workloads.is_empty()
            && all.all(|machine| machine.pending == 0 && machine.generator.has_ended())
    }

    /// Returns the records of all workloads over `elapsed_ns`. `courses` has an entry per workload
    /// or none.
    pub fn records(
        &self,
        plan: &RealPlan,
        elapsed_ns: u64,
        mut sampled: Vec<FlowSamples>,
        mut courses: Vec<Course>,
        alone: &UnloadedTimes,
    ) -> Vec<WorkloadRecord> {
        let counted_ns = elapsed_ns.saturating_sub(plan.warm_up.as_nanos()).max(1);
        let each = self.workloads.iter().zip(&plan.workloads).enumerate();
        each.map(|(which, (machine, workload))| {
            let numbered = || {
                (0..)
                    .zip(&self.flows)
                    .filter(move |(_, flow)| flow.workload == which)
            };
            let flows = || numbered().map(|(_, flow)| flow);
            let again = flows().map(|flow| flow.retransmitted).sum();
            let mut record = WorkloadRecord {
                name: workload.spec.name.clone(),
                contender: workload.contender.clone(),
                compared: workload.compared,
                received: machine
                    .received
                    .load(Ordering::Relaxed)
                    .saturating_sub(machine.warmup_bytes),
                course: courses
                    .get_mut(which)
                    .map(std::mem::take)
                    .unwrap_or_default(),
                fell_back: flows().filter(|flow| flow.fell_back).count() as u64,
                failed: flows().filter(|flow| flow.failed).count() as u64,
                ..WorkloadRecord::default()
            };
            match machine.traffic {
                TrafficKind::Unbounded => {
                    let goodput = |flow: &RealFlow| {
                        let received = flow
                            .received
                            .load(Ordering::Relaxed)
                            .saturating_sub(flow.warmup_bytes);
                        metrics::mbits(received, counted_ns)
                    };
                    record.retransmitted = Some(again);
                    record.goodputs = flows().map(goodput).collect();
                    record.start_ranks = numbered().map(|(number, _)| number).collect();
                    let ours = sampled
                        .iter_mut()
                        .filter(|(workload, _)| *workload == which);
                    record.flows = ours.map(|(_, samples)| std::mem::take(samples)).collect();
                }
                TrafficKind::Finite => {
                    record.retransmitted = Some(again);
                    record.completed = flows()
                        .filter_map(|flow| completion(flow, plan.seed, alone))
                        .collect();
                    record.unfinished =
                        flows().filter(|flow| flow.finished.is_none()).count() as u64;
                }
                // Retransmissions of the accepting ends are unknown.
                TrafficKind::Exchanges => {
                    record.completed = self.exchanges(machine, plan.seed, alone)
                }
                TrafficKind::Messages { requested } => {
                    record.retransmitted = Some(again);
                    // A request takes half a round trip.
                    let asked = if requested {
                        alone.rtt / 2
                    } else {
                        Duration::ZERO
                    };
                    record.completed = self.messages(machine, plan.seed, alone, asked);
                    record.unfinished = machine.generator.unfinished();
                }
                TrafficKind::Datagrams => {}
            }
            record
        })
        .collect()
    }

    /// Returns the completed exchanges. Response data flows from the accepting side.
    fn exchanges(
        &self,
        machine: &DrivenWorkload,
        seed: u64,
        alone: &UnloadedTimes,
    ) -> Vec<Completion> {
        let one = |exchange: &ccplane_workload::Exchange| {
            let flow = machine.flows_by_slot.get(exchange.connection as usize);
            let flow = self.flow(*flow?)?;
            Some(Completion {
                seed,
                started_ns: exchange.started.as_nanos(),
                bytes: exchange.response.get(),
                took_ns: exchange.finished.since(exchange.started).as_nanos(),
                waited_ns: 0,
                alone_ns: alone.completion_ns(flow.side.opposite(), exchange.response.get()),
            })
        };
        machine
            .generator
            .exchanges()
            .iter()
            .filter_map(one)
            .collect()
    }

    /// Returns the delivered messages, timed from when the sender had them, plus `asked` for the
    /// request.
    fn messages(
        &self,
        machine: &DrivenWorkload,
        seed: u64,
        alone: &UnloadedTimes,
        asked: Duration,
    ) -> Vec<Completion> {
        let one = |message: &ccplane_workload::DeliveredMessage| {
            let flow = machine.flows_by_slot.get(message.connection as usize);
            let flow = self.flow(*flow?)?;
            Some(Completion {
                seed,
                started_ns: message.arrived.as_nanos().saturating_sub(asked.as_nanos()),
                bytes: message.bytes.get(),
                took_ns: (message.finished.since(message.arrived) + asked).as_nanos(),
                waited_ns: message.started.since(message.arrived).as_nanos(),
                alone_ns: alone.completion_ns(flow.side, message.bytes.get()),
            })
        };
        machine
            .generator
            .messages()
            .iter()
            .filter_map(one)
            .collect()
    }
}

fn completion(flow: &RealFlow, seed: u64, alone: &UnloadedTimes) -> Option<Completion> {
    let (finished, bytes) = flow.finished.zip(flow.bytes)?;
    Some(Completion {
        seed,
        started_ns: flow.started.as_nanos(),
        bytes,
        took_ns: finished.since(flow.started).as_nanos(),
        waited_ns: 0,
        alone_ns: alone.completion_ns(flow.side, bytes),
    })
}

/// Returns the location of a host that an action names.
pub(super) fn place(plan: &RealPlan, node: NodeId) -> Result<NamespaceHost, Error> {
    plan.hosts.get(node).ok_or_else(|| {
        let what = io::Error::other(format!(
            "host {} is on neither side of the bottleneck",
            node.index()
        ));
        Error::traffic(
            "find a host",
            "choose hosts on both sides, such as left1 and right1",
        )(what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_a_flow_takes_its_bytes_at_the_links_rate_and_a_round_trip() {
        let alone = UnloadedTimes {
            rtt: Duration::from_millis(20),
            rates: [Some(Rate::from_bytes_per_sec(1_000_000)), None],
        };
        assert_eq!(alone.completion_ns(PathSide::Left, 50_000), 70_000_000);
        assert_eq!(alone.completion_ns(PathSide::Right, 50_000), 20_000_000);
    }
}
