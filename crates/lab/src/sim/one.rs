//! One run: one contender, one seed.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use ccplane_agent::Agent;
use ccplane_algorithms::{Parameters, Registry};
use ccplane_datapath::Capabilities;
use ccplane_qdisc::LineSpec;
use ccplane_sim::{
    AppId, Change as SimChange, Congestion, Crossing, FlowId, FlowView, LinkId, Native, NodeId, PacketLog, Pairs,
    SimError, SimOptions, Simulation, SteerOptions, TraceFlow, Tracer, Workload, WorkloadSpec, World,
};
use ccplane_units::{Bytes, Duration, Rate, Time};

use super::Watch;
use super::plan::Plan;
use crate::error::Error;
use crate::experiment::Contender;
use crate::figures::{capacity, flow_figures};
use crate::heard::{self, Heard};
use crate::metrics::{self, Distribution};
use crate::result::{
    Audit, Completion, ContenderResult, Figures, HostFigures, LinkFigures, Sample, SecondLoop, Series, SimulationAudit,
    TcpInfo,
};
use crate::scenario::{Kind, Scenario};

/// Flows that are looked at in time; of more, the first ones.
const MOST_SAMPLED: usize = 64;

/// What the kernel says where there was no loss yet.
const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// What all runs of a scenario share.
pub(super) struct Job<'s> {
    pub(super) scenario: &'s Scenario,
    pub(super) plan: &'s Plan,
    pub(super) registry: &'s Registry,
    pub(super) bin: Duration,
    pub(super) watch: &'s dyn Watch,
    /// Where each run leaves a log of the drawn link's packets.
    pub(super) packet_logs: Option<&'s Path>,
}

/// A flow, and the looks at it.
type Looks = (FlowId, Vec<Sample>);

/// Bytes that flows had received at a time.
type Received = BTreeMap<FlowId, u64>;

/// The workloads that are compared.
#[derive(Default)]
struct Compared {
    /// Those whose flows end when their bytes have arrived.
    finite: Vec<AppId>,
    /// Those whose flows last.
    lasting: Vec<AppId>,
    /// Those whose connections carry requests and responses.
    loops: Vec<AppId>,
}

impl Job<'_> {
    /// Runs one contender with one seed; `contender` is none where every workload has its own algorithm.
    pub(super) fn run(&self, contender: Option<&Contender>, seed: u64) -> Result<ContenderResult, Error> {
        let options = SimOptions::seeded(seed);
        let network = self.plan.network.clone();
        let Some(folder) = self.packet_logs else {
            let sim = Simulation::new(network, options).map_err(|error| self.told(error))?;
            return Ok(self.drive(sim, contender, seed)?.0);
        };
        let label = contender.map_or_else(|| self.mixture(), Contender::to_string);
        let path = folder.join(format!("{}-{seed}.pcapng", label.replace([':', '/', ' '], "-")));
        let unwritten = |error: &dyn std::error::Error| Error::PacketLog {
            path: path.clone(),
            why: error.to_string(),
        };
        let file = fs::create_dir_all(folder).and_then(|()| fs::File::create(&path));
        let writer = BufWriter::new(file.map_err(|error| unwritten(&error))?);
        let log = PacketLog::new(writer, &network, &[self.plan.main]).map_err(|error| unwritten(&error))?;
        let sim = Simulation::with_tracer(network, options, log).map_err(|error| self.told(error))?;
        let (result, sim) = self.drive(sim, contender, seed)?;
        sim.into_tracer().finish().map_err(|error| unwritten(&error))?;
        Ok(result)
    }

    /// Runs it to its end, whoever looks on.
    fn drive<T: Tracer>(
        &self,
        mut sim: Simulation<T>,
        contender: Option<&Contender>,
        seed: u64,
    ) -> Result<(ContenderResult, Simulation<T>), Error> {
        let begun = crate::traffic::monotonic_ns();
        let told = |error: SimError| self.told(error);
        sim.observe(self.plan.main).map_err(told)?;
        for (at, change) in &self.plan.events {
            sim.schedule(*at, change.clone()).map_err(told)?;
        }
        if let Some(stamps) = &self.scenario.stamps {
            stamps.put(&mut sim, self.plan.stamped.iter().copied()).map_err(told)?;
        }
        let mut controls = Controls::new(self, contender);
        let compared = self.add_workloads(&mut sim, &mut controls, seed)?;
        let (looks, before) = self.advance(&mut sim, &compared)?;
        let (flows, samples): (Vec<FlowId>, _) = looks.into_iter().unzip();
        let heard = controls.heard(&sim, &flows);
        let result = self.result(&sim, contender, seed, &compared, samples, &before, heard, begun)?;
        Ok((result, sim))
    }

    fn told(&self, error: SimError) -> Error {
        match error {
            SimError::Stalled { .. } | SimError::NotConserved { .. } => broken(error.to_string()),
            error => Error::Scenario(super::plan::told(self.scenario, &error)),
        }
    }

    /// Adds every workload; those that are compared.
    fn add_workloads(&self, sim: &mut World, controls: &mut Controls, seed: u64) -> Result<Compared, Error> {
        let mut compared = Compared::default();
        for (index, workload) in self.scenario.workloads.iter().enumerate() {
            let pairs = self.plan.pairs(index, seed);
            let kind = match (&workload.kind, &pairs) {
                (Kind::Of(kind), _) => kind.clone(),
                (Kind::Trace { flows }, Pairs::Each(pairs)) => Workload::Trace {
                    flows: flows
                        .iter()
                        .zip(pairs)
                        .map(|(flow, (from, to))| TraceFlow {
                            at: flow.at,
                            from: *from,
                            to: *to,
                            bytes: flow.bytes,
                        })
                        .collect(),
                },
                (Kind::Trace { .. }, _) => return Err(broken("a trace without its hosts".to_owned())),
            };
            let spec = WorkloadSpec {
                name: workload.name.clone(),
                pairs,
                kind,
                start: Time::ZERO + workload.start,
                stop: workload.stop.map(|stop| Time::ZERO + stop),
            };
            let congestion = if workload.heeds_nothing() {
                Congestion::Native(Native::cubic())
            } else {
                controls.of(sim, workload.algorithm.as_ref())?
            };
            let wants = if workload.heeds_nothing() {
                Capabilities::default()
            } else {
                controls.wants(workload.algorithm.as_ref())?
            };
            let transport = self.plan.transport(self.scenario, wants);
            let id = sim
                .add_workload(spec, congestion, transport)
                .map_err(|error| self.told(error))?;
            let ours = workload.algorithm.is_none() || self.scenario.contenders.is_empty();
            if !ours || workload.heeds_nothing() {
                continue;
            }
            match workload.kind {
                Kind::Of(Workload::Requests { .. }) => compared.loops.push(id),
                Kind::Of(Workload::Bulk { bytes: None, .. } | Workload::Paced { .. }) => compared.lasting.push(id),
                Kind::Of(_) | Kind::Trace { .. } => compared.finite.push(id),
            }
        }
        Ok(compared)
    }

    /// Lets the time pass, with a look at the first lasting flows at each step; also gives what every flow had received when
    /// the counting began.
    fn advance<T: Tracer>(
        &self,
        sim: &mut Simulation<T>,
        compared: &Compared,
    ) -> Result<(Vec<Looks>, Received), Error> {
        let (end, step) = (self.scenario.duration.as_nanos(), self.scenario.sample_every.as_nanos());
        let mut sampled: Vec<(FlowId, Vec<Sample>)> = Vec::new();
        let (warm, mut before) = (self.scenario.warm.as_nanos(), None);
        let mut seen = 0;
        let mut now = 0;
        loop {
            sim.run_until(Time::from_nanos(now)).map_err(|error| self.told(error))?;
            for flow in sim.flows().skip(seen) {
                seen += 1;
                let lasting = sim.flow(flow).is_some_and(|view| is_of(&view, &compared.lasting));
                if lasting && sampled.len() < MOST_SAMPLED {
                    sampled.push((flow, Vec::new()));
                }
            }
            for (flow, series) in &mut sampled {
                if let Some(view) = sim.flow(*flow) {
                    series.push(sample(&view, now, self.plan.transport.mss));
                }
            }
            if now >= end {
                return Ok((sampled, before.unwrap_or_default()));
            }
            let next = (now + step).min(end);
            if warm > 0 && next >= warm && before.is_none() {
                sim.run_until(Time::from_nanos(warm))
                    .map_err(|error| self.told(error))?;
                let views = sim.flows().filter_map(|flow| Some((flow, sim.flow(flow)?.received)));
                before = Some(views.collect());
            }
            self.watch.advanced(Duration::from_nanos(next - now));
            if self.watch.cancelled() {
                return Err(Error::Interrupted);
            }
            now = next;
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a run left, told once")]
    fn result(
        &self,
        sim: &World,
        contender: Option<&Contender>,
        seed: u64,
        compared: &Compared,
        samples: Vec<Vec<Sample>>,
        before: &Received,
        heard: Option<Heard>,
        begun: u64,
    ) -> Result<ContenderResult, Error> {
        let elapsed = self.scenario.duration;
        let (end, span) = (Time::ZERO + elapsed, elapsed.as_nanos());
        let warm = self.scenario.warm;
        let counted = elapsed.saturating_sub(warm).as_nanos();
        let crossings = sim.crossings(self.plan.main);
        let counts = Time::ZERO + warm..end;
        // A departure is known when the packet comes: some lie behind the end.
        let left = || {
            let inside = crossings.iter().filter(|c| counts.contains(&c.left));
            inside.map(|c| (c.left.as_nanos(), c.sojourn.as_nanos() as f64 / 1e6, u64::from(c.bytes)))
        };
        let width = self.bin.as_nanos();
        let delays = Distribution::new(left().map(|(_, ms, _)| ms));
        let delivered: u64 = left().map(|(_, _, bytes)| bytes).sum();
        let at = |p| delays.quantile(p).unwrap_or(0.0);
        let link = sim.link(self.plan.main);
        let capacity = self.could_carry(self.plan.main, warm);
        let of = |apps: &[AppId]| -> Vec<FlowView> {
            let views = sim.flows().filter_map(|flow| {
                let view = sim.flow(flow)?;
                let uncounted = before.get(&flow).copied().unwrap_or(0);
                Some(FlowView {
                    received: view.received - uncounted,
                    ..view
                })
            });
            views.filter(|view| is_of(view, apps)).collect()
        };
        let (views, finite) = (of(&compared.lasting), of(&compared.finite));
        let goodputs: Vec<f64> = views
            .iter()
            .map(|view| metrics::mbits(view.received, counted))
            .collect();
        let all = || views.iter().chain(&finite);
        let completed = self.completed(sim, &finite, &compared.loops, seed)?;
        let unfinished = finite
            .iter()
            .filter(|flow| flow.finished.is_none() && flow.started < end)
            .count() as u64;
        let completions = (!finite.is_empty() || !completed.is_empty())
            .then(|| super::seeds::completions(&completed, unfinished, &self.scenario.report.size_classes));
        let received: u64 = all().map(|view| view.received).sum();
        let exchanged: u64 = compared
            .loops
            .iter()
            .filter_map(|app| sim.workload(*app))
            .flat_map(|workload| workload.exchanges())
            .filter(|exchange| exchange.finished >= Time::ZERO + warm)
            .map(|exchange| exchange.response.get())
            .sum();
        let figures = Figures {
            goodput_mbit: metrics::mbits(received + exchanged, counted),
            utilisation: if capacity > 0.0 {
                delivered as f64 / capacity
            } else {
                0.0
            },
            delay_mean_ms: delays.mean().unwrap_or(0.0),
            delay_p50_ms: at(0.5),
            delay_p95_ms: at(0.95),
            delay_p99_ms: at(0.99),
            retransmissions: all().map(|view| view.retransmitted).sum(),
            queue_drops: link.map_or(0, |link| link.queue_drops),
            random_losses: link.map_or(0, |link| link.losses),
            jain: metrics::jain(&goodputs),
            flows: samples.iter().map(|samples| flow_figures(samples, span)).collect(),
            completions,
            links: self.links(sim),
            one_way: None,
            second_loop: self.scenario.transport.tail.is_some().then(|| {
                let ours = |view: &FlowView| is_of(view, &compared.lasting) || is_of(view, &compared.finite);
                let flows = sim
                    .flows()
                    .filter(|flow| sim.flow(*flow).is_some_and(|view| ours(&view)));
                let tails: Vec<_> = flows.filter_map(|flow| sim.tail(flow)).collect();
                SecondLoop::of(tails.iter().map(|(sent, _)| sent))
            }),
        };
        let mut complaints: Vec<String> = Vec::new();
        let silent = views.iter().filter(|view| view.in_fallback).count();
        if silent > 0 {
            complaints.push(format!(
                "{silent} flows fell back to NewReno, because the algorithm was silent for too long"
            ));
        }
        let failed = all().filter(|view| view.failure.is_some()).count();
        if failed > 0 {
            complaints.push(format!("{failed} flows were given up after too many timeouts"));
        }
        let counters = sim.counters();
        let label = contender.map_or_else(|| self.mixture(), Contender::to_string);
        Ok(ContenderResult {
            algorithm: contender.map_or(label.clone(), |c| c.algorithm().to_owned()),
            native: contender.is_some_and(Contender::is_native),
            kernel_name: contender.map_or(String::new(), |c| c.algorithm().to_owned()),
            figures,
            host: HostFigures {
                reports_per_s: heard.as_ref().map(|heard| heard.count() as f64 / elapsed.as_secs_f64()),
                wall_s: Some(crate::traffic::monotonic_ns().saturating_sub(begun) as f64 / 1e9),
                ..HostFigures::default()
            },
            audit: Audit {
                emulator: None,
                simulation: Some(SimulationAudit {
                    events: counters.events,
                    hops: counters.hops,
                    digest: format!("{:016x}", sim.digest()),
                }),
                disturbed: Vec::new(),
                own: Vec::new(),
                sound: complaints.is_empty(),
                complaints,
            },
            spread: None,
            series: Series {
                bin_ns: width,
                throughput_mbit: metrics::bin_bytes(left().map(|(at, _, bytes)| (at, bytes)), width, span)
                    .into_iter()
                    .map(|bytes| metrics::mbits(bytes, width))
                    .collect(),
                delay_ms: metrics::bin_means(left().map(|(at, ms, _)| (at, ms)), width, span),
                flows: samples,
                heard: heard.unwrap_or_default(),
                completed,
                waited_mean_us: self.waited_mean_us(crossings.iter().filter(|c| counts.contains(&c.left))),
                delay_thousandths_ms: (0..=1_000).map(|n| at(f64::from(n) / 1e3)).collect(),
                ..Series::default()
            },
            label,
        })
    }

    /// What a run is called in which every workload has its own algorithm.
    fn mixture(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        for name in self.scenario.workloads.iter().filter_map(|w| w.algorithm.as_ref()) {
            if !names.contains(&name.to_string()) {
                names.push(name.to_string());
            }
        }
        names.join(" and ")
    }

    /// Flows and responses that ended.
    fn completed(
        &self,
        sim: &World,
        finite: &[FlowView],
        loops: &[AppId],
        seed: u64,
    ) -> Result<Vec<Completion>, Error> {
        let mut alone = Alone {
            sim,
            known: BTreeMap::new(),
        };
        let mut completed = Vec::new();
        let mut add = |from, to, started: Time, finished: Time, bytes: u64| -> Result<(), Error> {
            completed.push(Completion {
                seed,
                started_ns: started.as_nanos(),
                bytes,
                took_ns: finished.since(started).as_nanos(),
                alone_ns: alone.takes(from, to, bytes).map_err(|error| self.told(error))?,
            });
            Ok(())
        };
        for flow in finite {
            if let (Some(finished), Some(bytes)) = (flow.finished, flow.bytes) {
                add(flow.from, flow.to, flow.started, finished, bytes)?;
            }
        }
        for app in loops {
            let connections: Vec<FlowView> = sim
                .flows()
                .filter_map(|flow| sim.flow(flow))
                .filter(|view| view.app == Some(*app))
                .collect();
            for exchange in sim.workload(*app).map_or(&[][..], |workload| workload.exchanges()) {
                // The response comes from where the request went.
                if let Some(connection) = connections.get(exchange.connection as usize) {
                    let (from, to) = (connection.to, connection.from);
                    add(from, to, exchange.started, exchange.finished, exchange.response.get())?;
                }
            }
        }
        Ok(completed)
    }

    /// Mean time that these packets waited at the drawn link before their own transmission began, µs, where its rate is steady.
    fn waited_mean_us<'c>(&self, crossings: impl Iterator<Item = &'c Crossing>) -> Option<f64> {
        let changes =
            |change: &(Time, SimChange)| matches!(&change.1, SimChange::Line(link, _) if *link == self.plan.main);
        let LineSpec::Constant(rate) = self.plan.network.spec(self.plan.main)?.line else {
            return None;
        };
        let waited = |crossing: &Crossing| {
            let own = rate.time_for(Bytes::new(crossing.bytes.into()));
            crossing.sojourn.saturating_sub(own).as_nanos() as f64 / 1e3
        };
        let steady = !self.plan.events.iter().any(changes);
        steady
            .then(|| Distribution::new(crossings.map(waited)).mean())
            .flatten()
    }

    /// Bytes that a link could carry from then to the end: at each time with the line that it then had, nothing while down.
    fn could_carry(&self, link: LinkId, from: Duration) -> f64 {
        let Some(spec) = self.plan.network.spec(link) else {
            return 0.0;
        };
        let mut changes: Vec<(Duration, &SimChange)> = self
            .plan
            .events
            .iter()
            .map(|(at, change)| (at.since(Time::ZERO), change))
            .collect();
        changes.sort_by_key(|(at, _)| *at);
        let (mut line, mut up, mut since, mut bytes) = (spec.line.clone(), true, Duration::ZERO, 0.0);
        for (at, change) in changes {
            let (next, runs) = match change {
                SimChange::Line(of, next) if *of == link => (next.clone(), up),
                SimChange::Up(of) if *of == link => (line.clone(), true),
                SimChange::Down(of) if *of == link => (line.clone(), false),
                _ => continue,
            };
            if up {
                let since = since.max(from);
                bytes += capacity(&line, since, at.saturating_sub(since));
            }
            (line, up, since) = (next, runs, at);
        }
        if up {
            let since = since.max(from);
            bytes += capacity(&line, since, self.scenario.duration.saturating_sub(since));
        }
        bytes
    }

    fn links(&self, sim: &World) -> Vec<LinkFigures> {
        let one = |link: &LinkId| {
            let view = sim.link(*link)?;
            let capacity = self.could_carry(*link, Duration::ZERO);
            let delivered = view.accepted_bytes.saturating_sub(view.backlog.bytes);
            Some(LinkFigures {
                name: self.plan.network.link_name(*link),
                utilisation: (capacity > 0.0).then(|| delivered as f64 / capacity),
                delivered_bytes: delivered,
                drops: view.queue_drops,
                marks: view.marked,
                delay_mean_ms: view.sojourn_sum.as_nanos() as f64 / 1e6 / view.accepted.max(1) as f64,
            })
        };
        self.plan.links.iter().filter_map(one).collect()
    }
}

fn is_of(view: &FlowView, apps: &[AppId]) -> bool {
    view.app.is_some_and(|app| apps.contains(&app))
}

/// A look at a flow in the terms of Linux TCP.
fn sample(view: &FlowView, at_ns: u64, mss: u16) -> Sample {
    let mss = u64::from(mss).max(1);
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let ssthresh = if view.ssthresh == u64::MAX {
        NO_SSTHRESH
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

/// How long flows take alone, by their ends.
struct Alone<'s> {
    sim: &'s World,
    /// Round trip, and the lowest rate there.
    known: BTreeMap<(NodeId, NodeId), (Duration, Option<Rate>)>,
}

impl Alone<'_> {
    /// Nanoseconds for so many bytes: at the lowest rate, and one round trip (Bundler, EuroSys 2021, section 7.1).
    fn takes(&mut self, from: NodeId, to: NodeId, bytes: u64) -> Result<u64, SimError> {
        let (rtt, rate) = match self.known.get(&(from, to)) {
            Some(known) => *known,
            None => {
                let (there, back) = (self.sim.path(from, to)?, self.sim.path(to, from)?);
                let base = (there.delay + back.delay, there.rate);
                self.known.insert((from, to), base);
                base
            }
        };
        let sending = rate.map_or(0, |rate| {
            u128::from(bytes) * 1_000_000_000 / u128::from(rate.bytes_per_sec().max(1))
        });
        Ok(rtt
            .as_nanos()
            .saturating_add(u64::try_from(sending).unwrap_or(u64::MAX)))
    }
}

/// The congestion controls of a run: agents are made once for each algorithm.
struct Controls<'j> {
    job: &'j Job<'j>,
    contender: Option<&'j Contender>,
    agents: Vec<(Contender, ccplane_sim::AgentId)>,
}

impl<'j> Controls<'j> {
    fn new(job: &'j Job<'j>, contender: Option<&'j Contender>) -> Controls<'j> {
        Controls {
            job,
            contender,
            agents: Vec::new(),
        }
    }

    /// The control of a workload: its own, or the contender's.
    fn of(&mut self, sim: &mut World, own: Option<&Contender>) -> Result<Congestion, Error> {
        let Some(which) = own.or(self.contender) else {
            // The scenario was checked: whoever has no algorithm has a contender.
            return Err(broken("a workload without an algorithm".to_owned()));
        };
        match which {
            Contender::Native { name } => Ok(Congestion::Native(native(name)?)),
            Contender::Ccplane { name, parameters } => {
                let known = self.agents.iter().find(|(contender, _)| contender == which);
                let agent = match known {
                    Some((_, agent)) => *agent,
                    None => {
                        let parameters = parameters
                            .iter()
                            .fold(Parameters::new(), |all, (name, value)| all.with(name, value));
                        let mut agent = Agent::new(ccplane_agent::Options::default());
                        agent.add_boxed(self.job.registry.by_name(name, &parameters)?)?;
                        let mut options = SteerOptions {
                            keep_reports: heard::KEPT,
                            ..SteerOptions::default()
                        };
                        if let Some(staleness) = self.job.scenario.staleness {
                            (options.to_agent, options.from_agent) = (staleness, staleness);
                        }
                        let id = sim.host_agent(agent, options);
                        self.agents.push((which.clone(), id));
                        id
                    }
                };
                Ok(Congestion::Steered(agent, Arc::from(name.as_str())))
            }
        }
    }

    /// What has to be switched on for that control.
    fn wants(&self, own: Option<&Contender>) -> Result<Capabilities, Error> {
        let which = own.or(self.contender);
        Ok(which.map_or(Ok(Capabilities::default()), |contender| {
            contender.wants(self.job.registry)
        })?)
    }

    /// What the contender's algorithm heard of these flows.
    fn heard(&self, sim: &World, flows: &[FlowId]) -> Option<Heard> {
        let contender = self.contender?;
        let (_, agent) = self.agents.iter().find(|(known, _)| known == contender)?;
        let stats = sim.algorithm(*agent, contender.algorithm())?;
        Some(Heard::simulated(sim, *agent, stats.reports, flows))
    }
}

/// What should not happen; who ran with which seed is added where it is known.
pub(super) fn broken(what: String) -> Error {
    Error::Broken {
        contender: String::new(),
        seed: 0,
        what,
        repeat: String::new(),
    }
}

/// A control of the transport's own.
pub(crate) fn native(name: &str) -> Result<Native, Error> {
    name.parse().map_err(|_| Error::UnknownControl {
        name: name.to_owned(),
        known: Native::NAMES.iter().map(|name| (*name).to_owned()).collect(),
        near: crate::suggestions(name, Native::NAMES.iter().copied())
            .into_iter()
            .map(str::to_owned)
            .collect(),
    })
}
