//! Sampling of a simulation, and its raw record at the end.

use std::collections::BTreeMap;

use ccplane_sim::{
    AppId, BundleId, ConnectionError, FlowId, FlowView, LinkId, NodeId, SimError, World,
};
use ccplane_units::{Duration, Rate, Time};

use super::bundles;
use crate::contender::Contender;
use crate::metrics;
use crate::record::WorkloadRecord;
use crate::result::{BundleMetrics, BundleSample, Completion, Sample, TcpInfo};
use crate::scenario::{BundleSettings, Scenario};
use crate::traffic_kind::{SAMPLED_FLOWS_MAX, TrafficKind};

/// `tcp_info`'s ssthresh before the first loss.
const TCP_INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// Workload of the scenario in the simulation.
pub(super) struct WorkloadPart {
    pub app: AppId,
    pub name: String,
    /// Congestion control; `None` for datagrams.
    pub contender: Option<Contender>,
    /// True if it counts towards the contender's metrics.
    pub compared: bool,
    /// True if the run ends after it and all other awaited workloads have ended.
    pub awaited: bool,
    pub traffic: TrafficKind,
}

impl WorkloadPart {
    /// Returns true if its goodput consists of its flows' bytes.
    pub fn has_flows(&self) -> bool {
        matches!(
            self.traffic,
            TrafficKind::Unbounded | TrafficKind::Finite | TrafficKind::Messages { .. }
        )
    }
}

/// Samples of all workloads.
pub(super) struct Sampler<'p> {
    workloads: &'p [WorkloadPart],
    /// Payload of a full segment, bytes.
    mss: u16,
    /// Number of flows at the last sample.
    flows_seen: usize,
    sampled: Vec<SampledFlow>,
    /// Received bytes over time per workload; empty if there is only one.
    courses: Vec<Course>,
    bundles: Vec<(BundleId, Vec<BundleSample>)>,
    /// Bytes received before the end of the warm-up.
    warmup_bytes: WarmupBytes,
}

/// Bytes received during warm-up.
#[derive(Default)]
struct WarmupBytes {
    flows: BTreeMap<FlowId, u64>,
    /// Bytes in exchanges and datagrams, per workload.
    others: Vec<u64>,
}

/// Sampled flow.
struct SampledFlow {
    flow: FlowId,
    workload: usize,
    samples: Vec<Sample>,
}

/// Received bytes of a workload over time.
#[derive(Default)]
struct Course {
    /// Bytes of flows and exchanges that have ended.
    completed_bytes: u64,
    /// Flows that have not ended.
    open_flows: Vec<FlowId>,
    /// Number of exchanges counted in `over`.
    exchanges: usize,
    points: Vec<(u64, u64)>,
}

impl<'p> Sampler<'p> {
    pub fn new(parts: &'p [WorkloadPart], bundles: Vec<BundleId>, mss: u16) -> Sampler<'p> {
        let courses = if parts.len() > 1 { parts.len() } else { 0 };
        Sampler {
            workloads: parts,
            mss,
            flows_seen: 0,
            sampled: Vec::new(),
            courses: (0..courses).map(|_| Course::default()).collect(),
            bundles: bundles
                .into_iter()
                .map(|bundle| (bundle, Vec::new()))
                .collect(),
            warmup_bytes: WarmupBytes::default(),
        }
    }

    /// Ends the warm-up: goodput counts from here on.
    pub fn end_warm_up(&mut self, sim: &World) {
        let views = sim
            .flows()
            .filter_map(|flow| Some((flow, sim.flow(flow)?.received)));
        self.warmup_bytes = WarmupBytes {
            flows: views.collect(),
            others: self
                .workloads
                .iter()
                .map(|part| beside_flows(sim, part))
                .collect(),
        };
    }

    /// Samples all workloads.
    pub fn sample(&mut self, sim: &World, now: u64) {
        for flow in sim.flows().skip(self.flows_seen) {
            self.flows_seen += 1;
            let Some((at, part)) = sim
                .flow(flow)
                .and_then(|view| part_of(self.workloads, &view))
            else {
                continue;
            };
            if part.traffic == TrafficKind::Unbounded && self.has_room(at, part) {
                self.sampled.push(SampledFlow {
                    flow,
                    workload: at,
                    samples: Vec::new(),
                });
            }
            if let Some(course) = self.courses.get_mut(at).filter(|_| part.has_flows()) {
                course.open_flows.push(flow);
            }
        }
        for sampled in &mut self.sampled {
            if let Some(view) = sim.flow(sampled.flow) {
                sampled.samples.push(sample(&view, now, self.mss));
            }
        }
        for (part, course) in self.workloads.iter().zip(&mut self.courses) {
            course.sample(sim, part, now);
        }
        for (bundle, samples) in &mut self.bundles {
            samples.extend(bundles::sample(sim, *bundle, now));
        }
    }

    /// Returns true if one more flow of this workload is sampled. Compared workloads share one
    /// limit; every other workload has its own.
    fn has_room(&self, at: usize, part: &WorkloadPart) -> bool {
        let together = |other: usize| match part.compared {
            true => self
                .workloads
                .get(other)
                .is_some_and(|other| other.compared),
            false => other == at,
        };
        let taken = self
            .sampled
            .iter()
            .filter(|sampled| together(sampled.workload));
        taken.count() < SAMPLED_FLOWS_MAX
    }

    /// Returns the metrics of the bundles, and their samples.
    pub fn bundles(
        &mut self,
        sim: &World,
        scenario: &Scenario,
        drawn: LinkId,
    ) -> (Vec<BundleMetrics>, Vec<Vec<BundleSample>>) {
        let of = |(at, (bundle, mut samples)): (usize, (BundleId, Vec<BundleSample>))| {
            bundles::fill_actual(sim, bundle, drawn, &mut samples);
            let name = scenario
                .bundles
                .get(at)
                .map(BundleSettings::title)
                .unwrap_or_default();
            (
                bundles::bundle_metrics(sim, bundle, name, &samples, scenario.warm_up),
                samples,
            )
        };
        std::mem::take(&mut self.bundles)
            .into_iter()
            .enumerate()
            .map(of)
            .unzip()
    }

    /// Returns the sampled flows in the order of the result: compared flows by start, then the
    /// flows of other workloads.
    pub fn flows(&self) -> Vec<FlowId> {
        let place = |sampled: &SampledFlow| match self.workloads.get(sampled.workload) {
            Some(part) if part.compared => (false, 0),
            _ => (true, sampled.workload),
        };
        let mut all: Vec<(_, FlowId)> = self
            .sampled
            .iter()
            .map(|one| (place(one), one.flow))
            .collect();
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, flow)| flow).collect()
    }

    /// Returns the record of every workload. Goodput counts from `warm` on.
    pub fn records(
        self,
        sim: &World,
        seed: u64,
        span: Duration,
        warm: Duration,
    ) -> Result<Vec<WorkloadRecord>, SimError> {
        let mut views: Vec<Vec<(u64, FlowView)>> =
            self.workloads.iter().map(|_| Vec::new()).collect();
        for flow in sim.flows() {
            let Some(mut view) = sim.flow(flow) else {
                continue;
            };
            view.received -= self.warmup_bytes.flows.get(&flow).copied().unwrap_or(0);
            let of = part_of(self.workloads, &view).and_then(|(at, _)| views.get_mut(at));
            if let Some(views) = of {
                views.push((flow.index() as u64, view));
            }
        }
        let mut records = Vec::with_capacity(self.workloads.len());
        let mut alone = IdleCompletionTimes {
            sim,
            cache: BTreeMap::new(),
        };
        for (at, (part, views)) in self.workloads.iter().zip(&views).enumerate() {
            let mut record = match part.traffic {
                TrafficKind::Unbounded => lasting(views, span.saturating_sub(warm)),
                TrafficKind::Finite => finite(views, span),
                TrafficKind::Messages { .. } => WorkloadRecord {
                    unfinished: sim
                        .workload(part.app)
                        .map_or(0, |workload| workload.unfinished()),
                    ..finite(views, span)
                },
                TrafficKind::Exchanges | TrafficKind::Datagrams => WorkloadRecord {
                    received: beside_flows(sim, part)
                        - self.warmup_bytes.others.get(at).copied().unwrap_or(0),
                    ..WorkloadRecord::default()
                },
            };
            record.completed = alone.completed(part, views, seed)?;
            (record.name, record.contender) = (part.name.clone(), part.contender.clone());
            record.compared = part.compared;
            let is_false = |view: &FlowView| view.failure == Some(ConnectionError::FalseReceipt);
            record.false_receipts = views.iter().filter(|(_, view)| is_false(view)).count() as u64;
            record.failed = record.failed.max(record.false_receipts);
            records.push(record);
        }
        for (record, course) in records.iter_mut().zip(self.courses) {
            record.course = course.points;
        }
        for sampled in self.sampled {
            if let Some(record) = records.get_mut(sampled.workload) {
                record.flows.push(sampled.samples);
            }
        }
        Ok(records)
    }
}

impl Course {
    fn sample(&mut self, sim: &World, part: &WorkloadPart, now: u64) {
        let over = &mut self.completed_bytes;
        let mut received = 0;
        self.open_flows.retain(|flow| match sim.flow(*flow) {
            Some(view) if view.finished.is_some() => {
                *over += view.received;
                false
            }
            Some(view) => {
                received += view.received;
                true
            }
            None => false,
        });
        let exchanges = exchanges(sim, part);
        for exchange in exchanges.iter().skip(self.exchanges) {
            *over += exchange.response.get();
        }
        self.exchanges = exchanges.len();
        if part.traffic == TrafficKind::Datagrams {
            received = beside_flows(sim, part);
        }
        self.points.push((now, self.completed_bytes + received));
    }
}

/// Returns the bytes that a workload received in responses and datagrams, outside its own flows.
fn beside_flows(sim: &World, part: &WorkloadPart) -> u64 {
    match part.traffic {
        TrafficKind::Exchanges => exchanges(sim, part)
            .iter()
            .map(|exchange| exchange.response.get())
            .sum(),
        TrafficKind::Datagrams => sim.datagram_stats(part.app).received_bytes,
        TrafficKind::Unbounded | TrafficKind::Finite | TrafficKind::Messages { .. } => 0,
    }
}

/// Returns the workload of a flow.
fn part_of<'p>(parts: &'p [WorkloadPart], view: &FlowView) -> Option<(usize, &'p WorkloadPart)> {
    let app = view.app?;
    parts.iter().enumerate().find(|(_, part)| part.app == app)
}

fn exchanges<'s>(sim: &'s World, part: &WorkloadPart) -> &'s [ccplane_sim::Exchange] {
    let workload = sim
        .workload(part.app)
        .filter(|_| part.traffic == TrafficKind::Exchanges);
    workload.map_or(&[], |workload| workload.exchanges())
}

/// Returns true if a flow ended prematurely. A flow that its workload aborts, at its stop or after
/// its lifetime, did not fail.
fn failed(view: &FlowView) -> bool {
    view.failure
        .is_some_and(|failure| failure != ConnectionError::Aborted)
}

fn lasting(views: &[(u64, FlowView)], span: Duration) -> WorkloadRecord {
    let all = || views.iter().map(|(_, view)| view);
    WorkloadRecord {
        received: all().map(|view| view.received).sum(),
        retransmitted: Some(all().map(|view| view.retransmitted).sum()),
        goodputs: all()
            .map(|view| metrics::mbits(view.received, span.as_nanos()))
            .collect(),
        start_ranks: views.iter().map(|(index, _)| *index).collect(),
        fell_back: all().filter(|view| view.in_fallback).count() as u64,
        failed: all().filter(|view| failed(view)).count() as u64,
        ..WorkloadRecord::default()
    }
}

fn finite(views: &[(u64, FlowView)], span: Duration) -> WorkloadRecord {
    let all = || views.iter().map(|(_, view)| view);
    let end = Time::ZERO + span;
    WorkloadRecord {
        received: all().map(|view| view.received).sum(),
        retransmitted: Some(all().map(|view| view.retransmitted).sum()),
        unfinished: all()
            .filter(|flow| flow.finished.is_none() && flow.started < end)
            .count() as u64,
        failed: all().filter(|view| failed(view)).count() as u64,
        ..WorkloadRecord::default()
    }
}

/// Samples a flow, in the terms of Linux TCP.
fn sample(view: &FlowView, at_ns: u64, mss: u16) -> Sample {
    let mss = u64::from(mss).max(1);
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let ssthresh = if view.ssthresh == u64::MAX {
        TCP_INFINITE_SSTHRESH
    } else {
        small(view.ssthresh / mss)
    };
    Sample {
        at_ns,
        received: view.received,
        tcp: TcpInfo {
            mss: small(mss),
            cwnd: small(view.cwnd / mss),
            ssthresh,
            srtt_us: small(view.srtt.as_micros()),
            min_rtt_us: small(view.min_rtt.as_micros()),
            unacked: view.in_flight,
            lost: 0,
            retrans: small(view.retransmitted),
            bytes_retrans: view.retransmitted * mss,
            bytes_acked: view.acked,
            pacing_rate: if view.rate == 0 { u64::MAX } else { view.rate },
            ..TcpInfo::default()
        },
    }
}

/// Completion times on an idle path, cached by pair of hosts.
struct IdleCompletionTimes<'s> {
    sim: &'s World,
    cache: BTreeMap<(NodeId, NodeId), IdlePath>,
}

/// Idle path.
#[derive(Clone, Copy)]
struct IdlePath {
    rtt: Duration,
    /// One-way delay of the reverse direction, which a request takes.
    reverse_delay: Duration,
    /// Lowest rate of the forward direction.
    rate: Option<Rate>,
}

impl IdleCompletionTimes<'_> {
    /// Returns the completed flows and responses of a workload.
    fn completed(
        &mut self,
        part: &WorkloadPart,
        views: &[(u64, FlowView)],
        seed: u64,
    ) -> Result<Vec<Completion>, SimError> {
        let sim = self.sim;
        let mut completed = Vec::new();
        let requested = part.traffic == TrafficKind::Messages { requested: true };
        let mut add =
            |from, to, [came, started, finished]: [Time; 3], bytes: u64| -> Result<(), SimError> {
                let took = finished.since(came);
                let (asked, alone_ns) = match self.path(from, to) {
                    // If the path no longer exists at the end, its idle time is unknown. Only
                    // compared workloads need it.
                    Err(_) if !part.compared => (Duration::ZERO, took.as_nanos()),
                    path => {
                        let path = path?;
                        let asked = if requested {
                            path.reverse_delay
                        } else {
                            Duration::ZERO
                        };
                        (asked, metrics::alone_ns(path.rtt, path.rate, bytes))
                    }
                };
                completed.push(Completion {
                    seed,
                    started_ns: came.as_nanos().saturating_sub(asked.as_nanos()),
                    bytes,
                    took_ns: (took + asked).as_nanos(),
                    waited_ns: started.since(came).as_nanos(),
                    alone_ns,
                });
                Ok(())
            };
        if part.traffic == TrafficKind::Finite {
            for (_, flow) in views {
                if let (Some(finished), Some(bytes)) = (flow.finished, flow.bytes) {
                    add(
                        flow.from,
                        flow.to,
                        [flow.started, flow.started, finished],
                        bytes,
                    )?;
                }
            }
        }
        for exchange in exchanges(sim, part) {
            // The response is sent by the host to which the request went.
            if let Some((_, connection)) = views.get(exchange.connection as usize) {
                let (from, to) = (connection.to, connection.from);
                let times = [exchange.started, exchange.started, exchange.finished];
                add(from, to, times, exchange.response.get())?;
            }
        }
        let workload = sim
            .workload(part.app)
            .filter(|_| matches!(part.traffic, TrafficKind::Messages { .. }));
        for message in workload.map_or(&[][..], |workload| workload.messages()) {
            if let Some((_, connection)) = views.get(message.connection as usize) {
                let times = [message.arrived, message.started, message.finished];
                add(connection.from, connection.to, times, message.bytes.get())?;
            }
        }
        Ok(completed)
    }

    /// Returns the idle path between two hosts.
    fn path(&mut self, from: NodeId, to: NodeId) -> Result<IdlePath, SimError> {
        if let Some(known) = self.cache.get(&(from, to)) {
            return Ok(*known);
        }
        let (there, back) = (self.sim.path(from, to)?, self.sim.path(to, from)?);
        let path = IdlePath {
            rtt: there.delay + back.delay,
            reverse_delay: back.delay,
            rate: there.rate,
        };
        self.cache.insert((from, to), path);
        Ok(path)
    }
}
