//! One simulated run: one contender, one seed.

use std::fs;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use ccplane_agent::Agent;
use ccplane_algorithms::Registry;
use ccplane_datapath::Capabilities;
use ccplane_qdisc::LineSpec;
use ccplane_sim::{
    AgentId, BundleId, FlowControl, FlowId, LinkId, Native, NetworkChange, PacketLog, SimError,
    SimOptions, Simulation, SteerOptions, Tracer, TransportConfig, World,
};
use ccplane_units::{Bytes, Duration, Time};

use super::put_stamps;
use super::sampling::{Sampler, WorkloadPart};
use crate::capacity::{Carrying, capacity_course, could_carry};
use crate::contender::{Contender, read};
use crate::error::Error;
use crate::metrics::Distribution;
use crate::progress::Progress;
use crate::record::{LinkRecord, RunMetrics, RunRecord};
use crate::report_log::{self, ReportLog};
use crate::result::{
    Audit, ContenderResult, HostMetrics, LinkMetrics, SecondLoop, SimulationAudit,
};
use crate::scenario::plan::Plan;
use crate::scenario::{Scenario, Topology};
use crate::traffic_kind::TrafficKind;
use crate::transport;

/// Data shared by all runs of a scenario.
pub(super) struct Job<'s> {
    pub(super) scenario: &'s Scenario,
    pub(super) plan: Plan,
    /// Options of every host's transport.
    transport: Arc<TransportConfig>,
    pub(super) registry: &'s Registry,
    pub(super) bin: Duration,
    /// Folder for each run's log of the drawn link's packets.
    pub(super) packet_logs: Option<&'s Path>,
}

impl<'s> Job<'s> {
    /// Plans the scenario. All its algorithms must exist.
    pub(super) fn new(scenario: &'s Scenario, registry: &'s Registry) -> Result<Job<'s>, Error> {
        check(scenario, registry)?;
        Ok(Job {
            scenario,
            plan: Plan::new(scenario).map_err(Error::Scenario)?,
            transport: Arc::new(transport::config(&scenario.transport)),
            registry,
            bin: Duration::ZERO,
            packet_logs: None,
        })
    }

    /// Returns the transport options for a congestion control with these requirements. The
    /// scenario's own setting of ECN takes precedence.
    fn transport(&self, wants: Capabilities) -> Arc<TransportConfig> {
        let decided = match self.scenario.transport.ecn {
            Some(_) => Capabilities::ECN,
            None => Capabilities::default(),
        };
        let wants = wants.missing_from(decided);
        if wants.is_empty() {
            return self.transport.clone();
        }
        Arc::new(transport::switched_on((*self.transport).clone(), wants))
    }

    /// Runs one contender with one seed; `contender` is `None` if every workload names its
    /// algorithm.
    pub(super) fn simulate(
        &self,
        contender: Option<&Contender>,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<ContenderResult, Error> {
        let options = SimOptions::seeded(seed);
        let network = self.plan.network.clone();
        let Some(folder) = self.packet_logs else {
            let sim =
                Simulation::new(network, options).map_err(|error| self.convert_error(error))?;
            return Ok(self.drive(sim, contender, seed, progress)?.0);
        };
        let label = contender.map_or_else(|| self.scenario.mixture(), Contender::to_string);
        let name = label.replace([':', '/', ' '], "-");
        // A leading dot, as in `./mine.ccp`, would make a hidden file.
        let name = name.trim_start_matches(['.', '-']);
        let path = folder.join(format!("{name}-{seed}.pcapng"));
        let unwritten = |error: &dyn std::error::Error| Error::PacketLog {
            path: path.clone(),
            why: error.to_string(),
        };
        let file = fs::create_dir_all(folder).and_then(|()| fs::File::create(&path));
        let writer = BufWriter::new(file.map_err(|error| unwritten(&error))?);
        let log = PacketLog::new(writer, &network, &[self.plan.main_link])
            .map_err(|error| unwritten(&error))?;
        let sim = Simulation::with_tracer(network, options, log)
            .map_err(|error| self.convert_error(error))?;
        let (result, sim) = self.drive(sim, contender, seed, progress)?;
        sim.into_tracer()
            .finish()
            .map_err(|error| unwritten(&error))?;
        Ok(result)
    }

    /// Runs the simulation to its end, with any tracer.
    fn drive<T: Tracer>(
        &self,
        mut sim: Simulation<T>,
        contender: Option<&Contender>,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<(ContenderResult, Simulation<T>), Error> {
        let begun = Stopwatch::start();
        let told = |error: SimError| self.convert_error(error);
        sim.record_crossings(self.plan.main_link).map_err(told)?;
        self.prepare(&mut sim).map_err(told)?;
        let mut controls = RunControls::new(self, contender);
        let bundles = self.add_bundles(&mut sim, &mut controls, seed)?;
        let parts = self.add_workloads(&mut sim, &mut controls, seed)?;
        let (mut looks, span) = self.advance(&mut sim, &parts, bundles, progress)?;
        let report_log = controls.report_log(&sim, &looks.flows());
        let raised = controls.exception_complaints(&sim);
        let warm = self.scenario.warm_up;
        let bundles = looks.bundles(&sim, self.scenario, self.plan.main_link);
        let record = RunRecord {
            span,
            warm_up: warm,
            started_ns: 0,
            link: self.link(&sim, span),
            workloads: looks.records(&sim, seed, span, warm).map_err(told)?,
        };
        let mut result = self.result(&sim, contender, &parts, record, report_log, begun);
        (result.metrics.bundles, result.series.bundles) = bundles;
        result.audit.own = raised;
        Ok((result, sim))
    }

    /// Schedules the changes of the network and sets the hosts' options.
    pub(super) fn prepare(&self, sim: &mut World) -> Result<(), SimError> {
        for (at, change) in &self.plan.events {
            sim.schedule(*at, change.clone())?;
        }
        if let Some(stamps) = &self.scenario.stamps {
            put_stamps(stamps, sim, self.plan.stamped_hosts.iter().copied())?;
        }
        if self.scenario.transport.proof_of_receipt == Some(true) {
            sim.require_proof();
        }
        for host in &self.plan.concealing_hosts {
            sim.conceal_losses(*host)?;
        }
        Ok(())
    }

    pub(super) fn convert_error(&self, error: SimError) -> Error {
        match error {
            SimError::Stalled { .. } | SimError::NotConserved { .. } => broken(error.to_string()),
            SimError::Network(error) => Error::Scenario(self.scenario.network_problem(&error)),
            error => {
                let (source, span) = (self.scenario.source(), &self.scenario.topology_span);
                Error::Scenario(source.problem_from_error(span.clone(), "here", &error))
            }
        }
    }

    /// Adds every workload.
    pub(super) fn add_workloads<'j>(
        &'j self,
        sim: &mut World,
        controls: &mut RunControls<'j>,
        seed: u64,
    ) -> Result<Vec<WorkloadPart>, Error> {
        let mut parts = Vec::with_capacity(self.plan.workloads.len());
        for workload in &self.plan.workloads {
            let spec = workload.spec(seed);
            let sends = TrafficKind::from_workload(&spec.kind);
            let control = workload.control(controls.contender);
            let (congestion, wants) = match control {
                Some(control) => (
                    controls.flow_control(sim, control)?,
                    crate::wants(control, self.registry)?,
                ),
                None if workload.uncontrolled => (
                    FlowControl::Native(Native::cubic()),
                    Capabilities::default(),
                ),
                // The check of the scenario guarantees a contender for a workload without an
                // algorithm.
                None => return Err(broken("a workload has no algorithm".to_owned())),
            };
            let app = sim
                .add_workload_in_band(spec, congestion, self.transport(wants), workload.band)
                .map_err(|error| self.convert_error(error))?;
            parts.push(WorkloadPart {
                app,
                name: workload.name.clone(),
                contender: control.cloned(),
                compared: workload.compared,
                awaited: workload.awaited,
                traffic: sends,
            });
        }
        Ok(parts)
    }

    /// Advances the time step by step and samples every workload at each step. Returns the samples
    /// and the time span.
    fn advance<'p, T: Tracer>(
        &self,
        sim: &mut Simulation<T>,
        parts: &'p [WorkloadPart],
        bundles: Vec<BundleId>,
        progress: &dyn Progress,
    ) -> Result<(Sampler<'p>, Duration), Error> {
        let (end, step) = (
            self.scenario.duration.as_nanos(),
            self.scenario.sample_every.as_nanos(),
        );
        let mut looks = Sampler::new(parts, bundles, self.transport.mss);
        let awaited: Vec<_> = parts
            .iter()
            .filter(|part| part.awaited)
            .map(|part| part.app)
            .collect();
        let warm = self.scenario.warm_up.as_nanos();
        let mut now = 0;
        loop {
            let at = Time::from_nanos(now);
            let over = if awaited.is_empty() {
                sim.run_until(at).map(|()| false)
            } else {
                sim.run_workloads(&awaited, at)
            };
            let over = over.map_err(|error| self.convert_error(error))?;
            if over {
                now = sim.now().as_nanos();
            }
            looks.sample(sim, now);
            if over || now >= end {
                // A scenario without flows ends at once; rates still divide by its length.
                return Ok((looks, Duration::from_nanos(now.max(1))));
            }
            let next = (now + step).min(end);
            if (now + 1..=next).contains(&warm) {
                sim.run_until(Time::from_nanos(warm))
                    .map_err(|error| self.convert_error(error))?;
                looks.end_warm_up(sim);
            }
            progress.on_progress(next as f64 / end.max(1) as f64, "");
            if progress.is_cancelled() {
                return Err(Error::Interrupted);
            }
            now = next;
        }
    }

    /// Returns the record of the drawn link.
    fn link(&self, sim: &World, span: Duration) -> LinkRecord {
        let end = Time::ZERO + span;
        let link = sim.link(self.plan.main_link);
        // A departure is logged when the packet arrives, so some lie after the end.
        let inside = sim
            .crossings(self.plan.main_link)
            .iter()
            .filter(|c| c.departure < end);
        LinkRecord {
            departures: inside
                .map(|c| {
                    (
                        c.departure.as_nanos(),
                        c.sojourn.as_nanos(),
                        u64::from(c.bytes),
                    )
                })
                .collect(),
            capacity: self.could_carry(self.plan.main_link, self.scenario.warm_up, span),
            queue_drops: link.map_or(0, |link| link.queue_drops),
            random_losses: link.map_or(0, |link| link.losses),
        }
    }

    fn result(
        &self,
        sim: &World,
        contender: Option<&Contender>,
        parts: &[WorkloadPart],
        record: RunRecord,
        report_log: Option<ReportLog>,
        begun: Stopwatch,
    ) -> ContenderResult {
        let span = record.span;
        let waited_mean_us = self.waited_mean_us(&record.link);
        let RunMetrics {
            mut metrics,
            workloads,
            algorithms,
            mut series,
            complaints,
        } = record.into_metrics(self.bin, &self.scenario.report.size_classes);
        series.waited_mean_us = waited_mean_us;
        series.capacity_mbit = capacity_course(self.bin, span, |from, to| {
            self.could_carry(self.plan.main_link, from, to)
        });
        series.dropped_anywhere = Some(sim.counters().dropped);
        series.timeouts = Some(timeouts(sim, parts));
        metrics.links = self.links(sim, span);
        metrics.second_loop = self
            .scenario
            .transport
            .rc3
            .is_some()
            .then(|| second_loop(sim, parts));
        let reports_per_s = report_log
            .as_ref()
            .map(|log| log.count() as f64 / span.as_secs_f64());
        series.heard = report_log.unwrap_or_default();
        let counters = sim.counters();
        let label = contender.map_or_else(|| self.scenario.mixture(), Contender::to_string);
        ContenderResult {
            algorithm: contender.map_or(label.clone(), |c| c.algorithm().to_owned()),
            native: contender.is_some_and(Contender::is_native),
            kernel_name: contender.map_or(String::new(), |c| c.algorithm().to_owned()),
            agent_gone: None,
            metrics,
            workloads,
            algorithms,
            host: HostMetrics {
                reports_per_s,
                wall_s: begun.elapsed_s(),
                ..HostMetrics::default()
            },
            audit: Audit {
                emulator: None,
                simulation: Some(SimulationAudit {
                    events: counters.events,
                    hops: counters.hops,
                    digest: format!("{:016x}", sim.digest()),
                    alike: true,
                }),
                disturbed: Vec::new(),
                own: Vec::new(),
                sound: complaints.is_empty(),
                complaints,
            },
            spread: None,
            series,
            label,
        }
    }

    /// Returns the mean waiting time at the drawn link before a packet's transmission, µs, after
    /// the warm-up; `None` if the link's rate varies.
    fn waited_mean_us(&self, link: &LinkRecord) -> Option<f64> {
        let changes = |(_, change): &(Time, NetworkChange)| match change {
            NetworkChange::Line(link, _) => *link == self.plan.main_link,
            _ => false,
        };
        let LineSpec::Constant(rate) = self.plan.network.spec(self.plan.main_link)?.line else {
            return None;
        };
        if self.plan.events.iter().any(changes) {
            return None;
        }
        let waited = link
            .departures_after(self.scenario.warm_up)
            .map(|(_, sojourn, bytes)| {
                let own = rate.transmission_time(Bytes::new(*bytes)).as_nanos();
                sojourn.saturating_sub(own) as f64 / 1e3
            });
        Distribution::new(waited).mean()
    }

    /// Returns the bytes that a link could carry between two times.
    fn could_carry(&self, link: LinkId, from: Duration, to: Duration) -> f64 {
        let Some(spec) = self.plan.network.spec(link) else {
            return 0.0;
        };
        let changes = self.plan.events.iter().filter_map(|(at, change)| {
            let change = match change {
                NetworkChange::Line(of, next) if *of == link => Carrying::Line(next),
                NetworkChange::Up(of) if *of == link => Carrying::Up(true),
                NetworkChange::Down(of) if *of == link => Carrying::Up(false),
                _ => return None,
            };
            Some((at.since(Time::ZERO), change))
        });
        could_carry(&spec.line, changes, from, to)
    }

    fn links(&self, sim: &World, span: Duration) -> Vec<LinkMetrics> {
        let one = |link: &LinkId| {
            let view = sim.link(*link)?;
            let capacity = self.could_carry(*link, Duration::ZERO, span);
            let delivered = view.accepted_bytes.saturating_sub(view.backlog.bytes);
            Some(LinkMetrics {
                name: self.plan.network.link_name(*link),
                utilisation: (capacity > 0.0).then(|| delivered as f64 / capacity),
                delivered_bytes: delivered,
                drops: view.queue_drops,
                marks: view.marked,
                delay_mean_ms: view.sojourn_sum.as_nanos() as f64
                    / 1e6
                    / view.accepted.max(1) as f64,
            })
        };
        self.plan.links.iter().filter_map(one).collect()
    }
}

/// Checks that the simulator supports the link, and that every algorithm of the scenario exists, in
/// this process.
fn check(scenario: &Scenario, registry: &Registry) -> Result<(), Error> {
    if let Topology::Dumbbell { bottleneck, .. } = &scenario.topology
        && let Some(burst) = bottleneck.tbf_burst
    {
        return Err(Error::InvalidParameter {
            what: "`tbf_burst`",
            value: burst.to_string(),
            fix: "it is unsupported in the simulator, which has no kernel: remove it, use \
                  --datapath linux, or simulate a token bucket with `queue = \"tbf:...\"`",
        });
    }
    for contender in scenario.controls() {
        match contender {
            Contender::Native { name } => drop(transport::native(name)?),
            Contender::Remote { .. } => return Err(Error::remote_in_simulator(contender)),
            Contender::Ccplane { name, parameters } => {
                registry.by_name(name, &read(parameters))?;
            }
        }
    }
    Ok(())
}

/// Returns the number of retransmission timeouts on connections of compared workloads.
fn timeouts(sim: &World, parts: &[WorkloadPart]) -> u64 {
    let ours = |app| parts.iter().any(|part| part.app == app && part.compared);
    let views = sim.flows().filter_map(|flow| sim.flow(flow));
    views
        .filter(|view| view.app.is_some_and(ours))
        .map(|view| view.timeouts)
        .sum()
}

/// Returns the sum of the second loops' statistics over the compared flows.
fn second_loop(sim: &World, parts: &[WorkloadPart]) -> SecondLoop {
    let ours = |app| {
        parts
            .iter()
            .any(|part| part.app == app && part.compared && part.has_flows())
    };
    let flows = sim.flows().filter(|flow| {
        sim.flow(*flow)
            .is_some_and(|view| view.app.is_some_and(ours))
    });
    let loops: Vec<_> = flows.filter_map(|flow| sim.rc3(flow)).collect();
    SecondLoop::from_stats(loops.iter().map(|(sent, _)| sent))
}

/// Congestion controls of a run. Each algorithm has one agent.
pub(super) struct RunControls<'j> {
    job: &'j Job<'j>,
    contender: Option<&'j Contender>,
    agents: Vec<(Contender, AgentId)>,
    /// Agents of bundles, which are created with the smaller set of capabilities that bundles have.
    bundle_agents: Vec<(Contender, AgentId)>,
}

impl<'j> RunControls<'j> {
    pub(super) fn new(job: &'j Job<'j>, contender: Option<&'j Contender>) -> RunControls<'j> {
        RunControls {
            job,
            contender,
            agents: Vec::new(),
            bundle_agents: Vec::new(),
        }
    }

    /// Returns the control of a workload's connections.
    fn flow_control(
        &mut self,
        sim: &mut World,
        which: &'j Contender,
    ) -> Result<FlowControl, Error> {
        match which {
            Contender::Native { name } => Ok(FlowControl::Native(transport::native(name)?)),
            Contender::Ccplane { name, .. } => {
                let agent = self.agent(sim, which, false)?;
                Ok(FlowControl::Steered(agent, Arc::from(name.as_str())))
            }
            Contender::Remote { .. } => Err(Error::remote_in_simulator(which)),
        }
    }

    /// Returns the agent of one of ccplane's algorithms, and creates it if needed.
    fn agent(
        &mut self,
        sim: &mut World,
        which: &Contender,
        of_bundles: bool,
    ) -> Result<AgentId, Error> {
        let Contender::Ccplane { name, parameters } = which else {
            return Err(broken(format!("no agent for {which}")));
        };
        let agents = if of_bundles {
            &self.bundle_agents
        } else {
            &self.agents
        };
        if let Some((_, agent)) = agents.iter().find(|(contender, _)| contender == which) {
            return Ok(*agent);
        }
        let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
        agent.add_boxed(self.job.registry.by_name(name, &read(parameters))?)?;
        let mut options = SteerOptions {
            keep_reports: report_log::REPORTS_MAX,
            ..SteerOptions::default()
        };
        if let Some(staleness) = self.job.scenario.staleness {
            (options.to_agent, options.from_agent) = (staleness, staleness);
        }
        if of_bundles {
            options.capabilities = ccplane_bundle::CAPABILITIES;
        }
        let id = sim.host_agent(agent, options);
        let agents = if of_bundles {
            &mut self.bundle_agents
        } else {
            &mut self.agents
        };
        agents.push((which.clone(), id));
        Ok(id)
    }

    /// Returns the agent of a bundle; `None` leaves the bundle open.
    pub(super) fn bundle_agent(
        &mut self,
        sim: &mut World,
        own: Option<&'j Contender>,
    ) -> Result<Option<(AgentId, String)>, Error> {
        match own.or(self.contender) {
            None | Some(Contender::Native { .. }) => Ok(None),
            Some(which @ Contender::Ccplane { name, .. }) => {
                let agent = self.agent(sim, which, true)?;
                Ok(Some((agent, name.clone())))
            }
            Some(which @ Contender::Remote { .. }) => Err(Error::remote_in_simulator(which)),
        }
    }

    /// Returns a sentence for every algorithm whose callbacks raised an exception.
    fn exception_complaints(&self, sim: &World) -> Vec<String> {
        let agents = self.agents.iter().chain(&self.bundle_agents);
        let counted = agents.filter_map(|(contender, agent)| {
            let stats = sim.algorithm(*agent, contender.algorithm())?;
            (stats.exceptions > 0).then_some((contender, stats.exceptions))
        });
        counted
            .map(|(contender, exceptions)| {
                let callbacks = if exceptions == 1 {
                    "a callback".to_owned()
                } else {
                    format!("{exceptions} callbacks")
                };
                format!(
                    "{callbacks} of {contender} raised an exception, and its flows ran \
                    NewReno afterwards"
                )
            })
            .collect()
    }

    /// Returns the log of the reports that the contender's algorithm received from these flows.
    fn report_log(&self, sim: &World, flows: &[FlowId]) -> Option<ReportLog> {
        let contender = self.contender?;
        let mut agents = self.agents.iter().chain(&self.bundle_agents);
        let (_, agent) = agents.find(|(known, _)| known == contender)?;
        let stats = sim.algorithm(*agent, contender.algorithm())?;
        Some(ReportLog::from_simulation(
            sim,
            *agent,
            stats.reports,
            flows,
        ))
    }
}

/// Creates an internal error; the caller adds contender and seed.
pub fn broken(what: String) -> Error {
    Error::Internal {
        contender: String::new(),
        seed: 0,
        what,
        repeat: String::new(),
    }
}

/// Stopwatch for the wall time of a run. There is no clock in a browser.
struct Stopwatch(#[cfg(not(target_family = "wasm"))] std::time::Instant);

#[cfg(not(target_family = "wasm"))]
#[expect(
    clippy::disallowed_methods,
    reason = "the elapsed time of a run is not part of its result"
)]
impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch(std::time::Instant::now())
    }

    fn elapsed_s(&self) -> Option<f64> {
        Some(self.0.elapsed().as_secs_f64())
    }
}

#[cfg(target_family = "wasm")]
impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch()
    }

    fn elapsed_s(&self) -> Option<f64> {
        None
    }
}
