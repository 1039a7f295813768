//! Backends on real packets: kernel TCP, ccplane's transport over UDP, and QUIC, each through a
//! bottleneck that exists for one run. It is emulated, or, for kernel TCP, a token bucket of the
//! kernel.

use ccplane_algorithms::Registry;
use ccplane_datapath::Capabilities;
use ccplane_emu::{DEVICE_NAME, EmuConfig, Emulator, PathDirection, Timing};
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::capacity::MTU;
use ccplane_lab::capacity::capacity_course;
use ccplane_lab::metrics;
use ccplane_lab::record::{LinkRecord, RunMetrics, RunRecord};
use ccplane_lab::report_log::ReportLog;
use ccplane_lab::result::{ContenderResult, HostMetrics, Setup};
use ccplane_lab::scenario::plan::Plan;
use ccplane_lab::scenario::{LinkSettings, Scenario, Topology};
use ccplane_lab::transport;
use ccplane_lab::{Backend, PreparedRun};
use ccplane_lab::{Contender, read, suggestions};
use ccplane_link::AgentAddress;
use ccplane_linux::AlgorithmCounters;
use ccplane_qdisc::LinkSeeds;
use ccplane_quic::Stack;
use ccplane_quic::host::{Native, built_in};
use ccplane_units::{Bytes, Duration, Rate};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::audit::{audit, mishaps};
use crate::cpu::Reading;
use crate::ends::TrafficEnds;
use crate::error::BackendError;
use crate::link_report::LinkReport;
use crate::machine::{MachineState, MachineWatch};
use crate::real::{
    self, Layout, RealPath, RealPlan, RealRecord, RegisteredControls, Sites, could_carry,
    emulated_link, supported_layout, unreachable_pairs,
};
use crate::stamping::Stamping;
use crate::steer::{AlgorithmRecord, SteeredAlgorithm, agent_of, requested_of_agent};
use crate::tap::LinkTap;
use crate::traffic;
use crate::transport_kind::TransportKind;
use crate::wire::{self, BridgedPair};

/// A shorter run has no complete bin; the smallest bin is 10 ms wide.
const DURATION_MIN: Duration = Duration::from_millis(100);

/// Throughput and delay are binned by the round-trip time, as in the papers, but not finer than
/// this: on a slow link smaller bins hold only a handful of packets.
const BIN_WIDTH_MIN: Duration = Duration::from_millis(10);

/// Rate that the emulator sustains on every machine it is tested on (docs/emulator.md).
const LINK_RATE_MAX: Rate = Rate::from_bytes_per_sec(125_000_000);

/// Backend on real packets.
#[derive(Clone, Debug)]
pub struct RealPackets {
    /// Transport of the flows.
    pub transport: TransportKind,
    /// Strategy with which the emulator waits for a packet's departure time.
    pub timing: Timing,
    /// Agent in another process that runs the algorithms of contenders that name no agent. `None`:
    /// this process runs them.
    pub agent: Option<AgentAddress>,
    /// Delays the start of each workload by up to a round trip, drawn from the run's seed. It is
    /// for repeated runs: with equal starts they would be copies of one run. Without it the flows
    /// start as they do in the simulator.
    pub random_starts: bool,
}

impl RealPackets {
    /// Returns the backend with defaults: algorithms in this process, flows that start on time.
    pub fn new(over: TransportKind) -> RealPackets {
        RealPackets {
            transport: over,
            timing: Timing::default(),
            agent: None,
            random_starts: false,
        }
    }
}

impl Backend for RealPackets {
    fn prepare<'s>(
        &'s self,
        scenario: &'s Scenario,
        registry: &'s Registry,
    ) -> Result<Box<dyn PreparedRun + 's>, Error> {
        Ok(Box::new(PreparedPath::new(scenario, registry, self)?))
    }

    fn is_real(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        match self.transport {
            TransportKind::Tcp => "Linux TCP",
            TransportKind::Udp => "ccplane's transport over UDP",
            TransportKind::Quic(Stack::Noq) => "QUIC (noq)",
            TransportKind::Quic(Stack::Quinn) => "QUIC (quinn)",
            TransportKind::Quic(Stack::S2n) => "QUIC (s2n-quic)",
        }
    }

    fn supports_rate(&self, scenario: &Scenario) -> bool {
        let rate = layout(scenario, self.transport).map(|layout| layout.forward().line.mean_rate());
        rate.is_ok_and(|rate| {
            rate.is_some_and(|rate| rate.bytes_per_sec() <= LINK_RATE_MAX.bytes_per_sec())
        })
    }
}

/// The bottleneck of a run. Dropping it removes its namespaces and devices.
enum RealLink {
    Emulated(Emulator),
    /// A token bucket of the kernel. The record ends before the namespaces.
    TokenBucket {
        tap: LinkTap,
        pair: BridgedPair,
    },
}

impl RealLink {
    fn ends(&self) -> TrafficEnds {
        match self {
            RealLink::Emulated(emulator) => TrafficEnds::of(emulator),
            RealLink::TokenBucket { pair, .. } => TrafficEnds {
                sender: pair.ends.sender.clone(),
                receiver: pair.ends.receiver.clone(),
                address: pair.ends.address,
            },
        }
    }

    /// Removes the path and returns its record. `bpf`: BPF programs are loaded too.
    fn finish(self, bpf: bool) -> Result<LinkReport, Error> {
        match self {
            RealLink::Emulated(emulator) => {
                let report = emulator.finish();
                let report = report.map_err(|error| BackendError::from_emulator(error, bpf))?;
                Ok(LinkReport::Emulated(Box::new(report)))
            }
            RealLink::TokenBucket { tap, .. } => Ok(LinkReport::TokenBucket(tap.finish()?)),
        }
    }
}

/// A scenario prepared for one bottleneck.
struct PreparedPath<'s> {
    scenario: &'s Scenario,
    registry: &'s Registry,
    packets: &'s RealPackets,
    plan: Plan,
    layout: Layout,
    /// Round-trip time without queueing.
    rtt: Duration,
    setup: Setup,
}

impl<'s> PreparedPath<'s> {
    /// Validates the scenario before any resource is created.
    fn new(
        scenario: &'s Scenario,
        registry: &'s Registry,
        packets: &'s RealPackets,
    ) -> Result<PreparedPath<'s>, Error> {
        let (over, agent) = (packets.transport, packets.agent.as_ref());
        let own = scenario.workload_controls();
        for contender in scenario.controls() {
            known(contender, over, registry, agent)?;
        }
        if let Topology::Dumbbell {
            bottleneck,
            reverse,
            ..
        } = &scenario.topology
        {
            check(scenario, bottleneck, bottleneck.delay + reverse.delay)?;
        }
        if let TransportKind::Quic(stack) = over {
            built_in(stack).map_err(BackendError::from)?;
        }
        let layout = layout(scenario, over)?;
        let rtt = layout.rtt();
        check(scenario, layout.forward(), rtt)?;
        let plan = Plan::new(scenario).map_err(Error::Scenario)?;
        let mut parts = unreachable_pairs(&layout, &plan);
        if !scenario.bundles.is_empty() {
            if agent.is_some() || scenario.controls().any(|one| one.agent().is_some()) {
                parts.push(
                    "[[bundle]] with an agent in another process: a site's gateway runs its own \
                     agent"
                        .to_owned(),
                );
            }
            for contender in own.chain(scenario.bundle_host_algorithm()) {
                if ccplane_lab::wants(contender, registry)?.contains(Capabilities::ONE_WAY_DELAY) {
                    parts.push(format!(
                        "`{contender}` with [[bundle]]: its time stamps are read on the emulated \
                         link, where the tunnel hides them"
                    ));
                }
            }
        }
        if !parts.is_empty() {
            return Err(unsupported(scenario, parts));
        }
        let datapath = match over {
            TransportKind::Udp if scenario.transport.rc3.is_some() => {
                "ccplane's transport over UDP, with RC3's second loop"
            }
            _ => packets.name(),
        };
        let mut setup = Setup::new(scenario, &plan, datapath, rtt.max(BIN_WIDTH_MIN));
        setup.socket_buffer_bytes = (over == TransportKind::Tcp).then(|| buffer(&setup));
        Ok(PreparedPath {
            scenario,
            registry,
            packets,
            plan,
            layout,
            rtt,
            setup,
        })
    }

    /// Returns the path of a run with this seed.
    fn config(&self, seed: u64) -> EmuConfig {
        let [forward, reverse] = [0, 1].map(|way| {
            let (name, link) = &self.layout.links[way];
            // Seeds of the simulated link, so that the n-th packet has the same fate here and in
            // the simulator.
            let seeds = match self.plan.network.find_link(name) {
                Some(link) => link.seeds(seed),
                None => LinkSeeds::from_seed(seed.wrapping_add(way as u64)),
            };
            emulated_link(link, seeds)
        });
        EmuConfig {
            forward,
            reverse,
            mtu: MTU,
            timing: self.packets.timing,
            ..EmuConfig::default()
        }
    }

    /// Returns the plan of a run with this seed.
    fn plan(
        &self,
        contender: Option<&Contender>,
        seed: u64,
        controls: &RegisteredControls,
    ) -> Result<RealPlan, Error> {
        let wants = |contender: &Contender| {
            if controls.steered(contender).is_none()
                && let Some(requested) = requested_of_agent(contender)?
            {
                return Ok(requested);
            }
            match (
                &self.packets.agent,
                controls.wants(contender, self.registry),
            ) {
                // An agent in another process may have algorithms that are unknown here.
                (Some(_), wants) => Ok(wants.unwrap_or_default()),
                (None, wants) => wants,
            }
        };
        let mut plan = RealPlan::of(
            self.scenario,
            &self.layout,
            &self.plan,
            contender,
            seed,
            buffer(&self.setup),
            wants,
        )?;
        if self.packets.random_starts {
            for (workload, stream) in plan.workloads.iter_mut().zip(START_STREAM..) {
                let drawn = Pcg64::new(u128::from(seed), stream).next_u64();
                workload.spec.start += Duration::from_nanos(drawn % self.rtt.as_nanos().max(1));
            }
        }
        Ok(plan)
    }

    /// Creates the path of a run with this seed.
    fn start_link(&self, seed: u64, bpf: bool) -> Result<RealLink, Error> {
        let Some(bucket) = self.layout.token_bucket() else {
            let emulator = Emulator::start(self.config(seed))
                .map_err(|error| BackendError::from_emulator(error, bpf))?;
            return Ok(RealLink::Emulated(emulator));
        };
        let pair = wire::bridged(bucket)?;
        let tap = LinkTap::start(&pair.bridge, wire::BRIDGE_DEVICES)?;
        Ok(RealLink::TokenBucket { tap, pair })
    }

    /// Returns the record of the link in the report.
    fn link(&self, plan: &RealPlan, recorded: &RealRecord, report: &LinkReport) -> LinkRecord {
        let span = Duration::from_nanos(recorded.elapsed_ns);
        let capacity = could_carry(
            &self.layout.forward().line,
            PathDirection::Forward,
            &plan.events,
            plan.warm_up,
            span,
        );
        report.record(recorded.started_ns, recorded.elapsed_ns, capacity)
    }

    /// Runs over TCP on a path created for this run. All resources are removed even on failure.
    fn run_tcp(
        &self,
        contender: Option<&Contender>,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<ContenderResult, Error> {
        let own = self.scenario.workload_controls();
        // The contender that controls bundles is not a congestion control of the kernel.
        let hosts = self.scenario.bundle_host_algorithm().or(contender);
        let mut controls = RegisteredControls::start(
            hosts.into_iter().chain(own),
            self.registry,
            self.packets.agent.as_ref(),
        )?;
        let bpf = controls.algorithms_mut().next().is_some();
        let plan = self.plan(contender, seed, &controls)?;
        let link = self.start_link(seed, bpf)?;
        let mut sites = match &link {
            RealLink::Emulated(emulator) => Sites::start(
                emulator,
                &self.layout,
                self.scenario,
                contender,
                self.registry,
                seed,
            )?,
            RealLink::TokenBucket { .. } => Sites::none(),
        };
        let ends = link.ends();
        // Only one algorithm can have its stamps: the contender, or else the first that wants any.
        let mut steered: Vec<_> = controls.algorithms_mut().collect();
        steered.sort_by_key(|(known, _)| Some(*known) != contender);
        let stamps = steered
            .into_iter()
            .find_map(|(_, steered)| steered.take_stamps());
        let mut stamping = stamps
            .map(|stamps| Stamping::start(stamps, &ends, [DEVICE_NAME; 2]))
            .transpose()?;

        let mine = contender.and_then(|contender| controls.steered(contender));
        let (thread, reports) = (mine.map(SteeredAlgorithm::thread), || {
            mine.map_or(0, SteeredAlgorithm::reports)
        });
        let (before, reports_before, watch) =
            (Reading::now(thread), reports(), MachineWatch::start());
        let mut shown = RunView::new(self.scenario.duration, progress);
        let namespaces = sites.namespaces();
        if let Some(restart) = self.scenario.transport.restart_after_idle {
            let ends = [&ends.sender, &ends.receiver];
            for inside in ends.into_iter().chain(&namespaces) {
                let (name, value) = ("net/ipv4/tcp_slow_start_after_idle", u8::from(restart));
                let set = inside.set_sysctl(name, &value.to_string());
                set.map_err(|error| BackendError::from_host(error, bpf))?;
            }
        }
        let path = match &link {
            RealLink::Emulated(emulator) => RealPath::from(emulator),
            RealLink::TokenBucket { pair, .. } => {
                RealPath::fixed(&pair.ends, self.layout.forward().line.mean_rate())
            }
        };
        let recorded = real::tcp::run(path, namespaces, &plan, &controls, |gone, received| {
            if let Some(stamping) = &mut stamping {
                stamping.collect();
            }
            sites.sample();
            shown.report(gone, received)
        })?;
        let (after, reports) = (Reading::now(thread), reports() - reports_before);
        let machine = watch.finish();
        let boxes = sites.finish(self.scenario, recorded.started_ns)?;
        let report = link.finish(bpf)?;
        if progress.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let kernel_name = hosts.filter(|hosts| Some(*hosts) == contender);
        let kernel_name = kernel_name.map_or(String::new(), |contender| {
            controls.kernel_name(contender).to_owned()
        });
        let told = controls.finish()?;
        // Fallback states of flows are read only at the end, when short flows may be over, so the
        // counters are consulted as well.
        let abandoned =
            |finished: &AlgorithmRecord| finished.agent_gone && finished.counters.fallbacks > 0;
        let abandoned = told.iter().filter(|(_, finished)| abandoned(finished));
        let abandoned: Vec<Contender> = abandoned.map(|(contender, _)| contender.clone()).collect();
        let (mine, others): (Vec<_>, Vec<_>) = told
            .into_iter()
            .partition(|(known, _)| Some(known) == contender);
        let mine = mine.into_iter().next().map(|(_, finished)| finished);
        let (counters, heard) = mine
            .map(|finished| (finished.counters, finished.report_log))
            .unzip();
        let measured = stamping
            .map(|stamping| stamping.finish(&report, recorded.started_ns, recorded.elapsed_ns));
        let (elapsed_ns, received) = (recorded.elapsed_ns, received(&recorded));
        let mut result = self.result(
            contender, &plan, recorded, &report, &machine, counters, heard, &abandoned,
        );
        (result.metrics.bundles, result.series.bundles) = (boxes.metrics, boxes.samples);
        result.audit.own.extend(boxes.side_effects);
        if let Some(measured) = measured {
            result.metrics.one_way = measured.metrics();
            result.series.stamped = measured.packets;
        }
        // Problems of ccplane's other algorithms in this run are included in the audit.
        for (known, finished) in others {
            let each = mishaps(&finished.counters)
                .into_iter()
                .map(|what| format!("{known}: {what}"));
            result.audit.own.extend(each);
        }
        let (process, machine_cpu, agent) = after.percent_since(&before);
        result.kernel_name = kernel_name;
        result.host = HostMetrics {
            reports_per_s: counters.map(|_| reports as f64 * 1e9 / elapsed_ns.max(1) as f64),
            agent_cpu_percent: counters.map(|_| agent),
            process_cpu_percent: Some(process),
            machine_cpu_percent: Some(machine_cpu),
            cpu_s_per_gb: Some(after.process_s_since(&before) * 1e9 / received.max(1) as f64),
            wall_s: None,
        };
        Ok(result)
    }

    /// Runs over a transport in user space, like `run_tcp`.
    fn run_user_space(
        &self,
        contender: Option<&Contender>,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<ContenderResult, Error> {
        let plan = self.plan(contender, seed, &RegisteredControls::empty())?;
        let emulator = Emulator::start(self.config(seed))
            .map_err(|error| BackendError::from_emulator(error, false))?;
        let (before, watch) = (Reading::now(None), MachineWatch::start());
        let mut shown = RunView::new(self.scenario.duration, progress);
        let rc3 = self.scenario.transport.rc3.map(transport::rc3);
        let look = |gone, received| shown.report(gone, received);
        let (recorded, second_loop) = real::user::run(
            &emulator,
            &plan,
            self.registry,
            self.packets.agent.as_ref(),
            (self.packets.transport, rc3),
            look,
        )?;
        let (after, machine) = (Reading::now(None), watch.finish());
        let report = RealLink::Emulated(emulator).finish(false)?;
        if progress.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let received = received(&recorded);
        let mut result = self.result(
            contender,
            &plan,
            recorded,
            &report,
            &machine,
            None,
            None,
            &[],
        );
        result.metrics.second_loop = second_loop;
        let (process, machine_cpu, _) = after.percent_since(&before);
        result.host = HostMetrics {
            process_cpu_percent: Some(process),
            machine_cpu_percent: Some(machine_cpu),
            cpu_s_per_gb: Some(after.process_s_since(&before) * 1e9 / received.max(1) as f64),
            ..HostMetrics::default()
        };
        Ok(result)
    }

    #[expect(clippy::too_many_arguments, reason = "outcome of a run, reported once")]
    fn result(
        &self,
        contender: Option<&Contender>,
        plan: &RealPlan,
        recorded: RealRecord,
        report: &LinkReport,
        machine: &MachineState,
        counters: Option<AlgorithmCounters>,
        heard: Option<ReportLog>,
        abandoned: &[Contender],
    ) -> ContenderResult {
        let abandoned = self.contenders_in_fallback(&recorded, abandoned);
        let link = self.link(plan, &recorded, report);
        let (bin, span) = (
            self.rtt.max(BIN_WIDTH_MIN),
            Duration::from_nanos(recorded.elapsed_ns),
        );
        let record = RunRecord {
            span,
            warm_up: plan.warm_up,
            started_ns: recorded.started_ns,
            link,
            workloads: recorded.workloads,
        };
        let RunMetrics {
            metrics,
            workloads,
            algorithms,
            mut series,
            complaints,
        } = record.into_metrics(bin, &self.scenario.report.size_classes);
        let line = &self.layout.forward().line;
        series.capacity_mbit = capacity_course(bin, span, |from, to| {
            could_carry(line, PathDirection::Forward, &plan.events, from, to)
        });
        series.heard = heard.unwrap_or_default().with_flow_order(&recorded.senders);
        let mut audit = audit(report, &metrics, &self.setup, machine, counters);
        audit.own.extend(complaints);
        let label = contender.map_or_else(|| self.scenario.mixture(), Contender::to_string);
        let mut result = ContenderResult {
            algorithm: contender.map_or(label.clone(), |c| c.algorithm().to_owned()),
            native: contender.is_some_and(Contender::is_native),
            kernel_name: String::new(),
            metrics,
            workloads,
            algorithms,
            host: HostMetrics::default(),
            audit,
            spread: None,
            series,
            label,
            agent_gone: None,
        };
        for contender in &abandoned {
            result.name_fallback(contender);
        }
        result
    }

    /// Returns the contenders with flows on the fallback at the end, because the agent in another
    /// process had gone or was silent. They include `known`.
    fn contenders_in_fallback(&self, recorded: &RealRecord, known: &[Contender]) -> Vec<Contender> {
        let mut abandoned = known.to_vec();
        let fallen = recorded
            .workloads
            .iter()
            .filter(|workload| workload.fell_back > 0);
        for contender in fallen.filter_map(|workload| workload.contender.as_ref()) {
            let is_remote = self.packets.agent.is_some() || contender.agent().is_some();
            if is_remote && !abandoned.contains(contender) {
                abandoned.push(contender.clone());
            }
        }
        abandoned
    }
}

impl PreparedRun for PreparedPath<'_> {
    fn setup(&self) -> Setup {
        self.setup.clone()
    }

    fn run(
        &self,
        contender: Option<&Contender>,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<ContenderResult, Error> {
        match self.packets.transport {
            TransportKind::Tcp => self.run_tcp(contender, seed, progress),
            TransportKind::Udp | TransportKind::Quic(_) => {
                self.run_user_space(contender, seed, progress)
            }
        }
    }
}

/// PCG stream from which the start of the first workload is drawn; each further workload uses the
/// next stream.
const START_STREAM: u128 = 0x73_7461_7274 << 32;

/// Returns the size of socket buffers for a path and its queue. An unlimited queue counts as one
/// second of the link's rate.
fn buffer(setup: &Setup) -> usize {
    let queue = setup
        .queue_bytes
        .unwrap_or((setup.rate_mbit * 125e3) as u64);
    traffic::buffer_for(Bytes::new(setup.bdp_bytes.saturating_add(queue)))
}

/// Returns the bytes received by all workloads.
fn received(recorded: &RealRecord) -> u64 {
    recorded
        .workloads
        .iter()
        .map(|workload| workload.received)
        .sum()
}

/// Progress of a run, as reported to the caller.
struct RunView<'p> {
    length: Duration,
    progress: &'p dyn Progress,
    last_report: (Duration, u64),
}

impl<'p> RunView<'p> {
    fn new(length: Duration, progress: &'p dyn Progress) -> RunView<'p> {
        let seen = (Duration::ZERO, 0);
        RunView {
            length,
            progress,
            last_report: seen,
        }
    }

    /// Reports progress and returns false if the run was cancelled.
    fn report(&mut self, gone: Duration, received: u64) -> bool {
        let (span, bytes) = (
            gone.saturating_sub(self.last_report.0),
            received.saturating_sub(self.last_report.1),
        );
        let goodput = format!("{:7.1} Mbit/s", metrics::mbits(bytes, span.as_nanos()));
        self.progress
            .on_progress(gone.as_secs_f64() / self.length.as_secs_f64(), &goodput);
        self.last_report = (gone, received);
        !self.progress.is_cancelled()
    }
}

/// Returns the layout of the hosts if real packets support the scenario.
fn layout(scenario: &Scenario, over: TransportKind) -> Result<Layout, Error> {
    supported_layout(scenario, over).map_err(|parts| unsupported(scenario, parts))
}

/// Returns the error that lists all unsupported parts.
fn unsupported(scenario: &Scenario, parts: Vec<String>) -> Error {
    Error::NotOnLinux {
        file: scenario.file.clone(),
        parts,
    }
}

/// Rejects values with which no measurement is possible.
fn check(scenario: &Scenario, link: &LinkSettings, rtt: Duration) -> Result<(), Error> {
    let bad = |what, value: String, fix| Err(Error::InvalidParameter { what, value, fix });
    if link.line.mean_rate().is_none() {
        return bad(
            "the link's rate",
            "unlimited".into(),
            "a run needs a bottleneck; give one, such as --rate 96mbit",
        );
    }
    if link.line.mean_rate() == Some(Rate::from_bytes_per_sec(0)) {
        return bad(
            "the link's rate",
            "0".into(),
            "give a rate above 0, such as --rate 96mbit",
        );
    }
    if scenario.duration < DURATION_MIN {
        return bad(
            "the duration",
            scenario.duration.to_string(),
            "use at least 100ms, preferably 15s",
        );
    }
    if rtt > Duration::from_secs(10) {
        return bad(
            "the round-trip time",
            rtt.to_string(),
            "use at most 10s; above that connections time out",
        );
    }
    Ok(())
}

/// Checks that the algorithm exists and can run on this transport.
fn known(
    contender: &Contender,
    over: TransportKind,
    registry: &Registry,
    agent: Option<&AgentAddress>,
) -> Result<(), Error> {
    if let (Contender::Native { name }, TransportKind::Quic(stack)) = (contender, over) {
        return Ok(Native::by_name(stack, name)
            .map(drop)
            .map_err(BackendError::from)?);
    }
    match contender {
        // Only the agent in the other process can check the name.
        Contender::Ccplane { .. } if agent.is_some() => Ok(()),
        Contender::Remote { .. } => Ok(agent_of(contender, None).map(drop)?),
        Contender::Ccplane { name, parameters } => {
            let algorithm = registry.by_name(name, &read(parameters))?;
            if let TransportKind::Quic(stack) = over {
                stack.can_run(&*algorithm).map_err(BackendError::from)?;
            }
            Ok(())
        }
        Contender::Native { name } if over == TransportKind::Udp => {
            transport::native(name).map(drop)
        }
        Contender::Native { name } if traffic::exists(name) => Ok(()),
        Contender::Native { name } => {
            let known = traffic::available();
            let near = suggestions(name, known.iter().map(String::as_str))
                .into_iter()
                .map(str::to_owned)
                .collect();
            Err(Error::from(BackendError::UnknownNative {
                name: name.clone(),
                near,
                known,
            }))
        }
    }
}
