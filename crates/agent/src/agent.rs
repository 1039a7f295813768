//! Agent state machine: events in, commands out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ccplane_datapath::Capabilities;
use ccplane_lang as lang;
use ccplane_units::{Duration, Rate, Time};
use ccplane_wire::{DatapathInfo, FlowInfo, FlowStats, Offer, Refusal, WireCommand, WireEvent};

use crate::flows::{FlowEntry, Flows};
use crate::gauges::Gauges;
use crate::log_budget::{LogBudget, LogPermit};
use crate::report::RawReports;
use crate::{
    Algorithm, Control, DatapathId, DynAlgorithm, FlowId, HostedAlgorithm, HostedProgram,
    box_algorithm,
};

#[cfg(test)]
mod tests;

/// Hosts algorithms and their flows on any number of datapaths; see the [crate].
///
/// A driver passes each event with its arrival time, polls until no command is left, sleeps at most
/// until [`next_deadline`](Agent::next_deadline), and then calls
/// [`on_deadline`](Agent::on_deadline).
#[derive(Default)]
pub struct Agent {
    algorithms: Vec<Box<dyn DynAlgorithm>>,
    core: Core,
    options: AgentOptions,
    /// Flow indices of a batch, reused so that a batch does not allocate.
    batch: Vec<u32>,
}

/// Options of an agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentOptions {
    /// Treatment of a flow that asks for an unknown algorithm.
    pub unknown_algorithm: UnknownAlgorithm,
}

/// Treatment of a flow that asks for an unknown algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownAlgorithm {
    /// The flow gets the algorithm that was added first. CCP's kernel module always asks for
    /// `reno`.
    #[default]
    First,
    /// The flow is left to its datapath's fallback, and this is logged.
    Refuse,
}

/// Reason why an algorithm could not be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// A program does not compile.
    #[error("program `{program}` of algorithm `{algorithm}` does not compile")]
    Program {
        /// Name of the algorithm.
        algorithm: String,
        /// Name of the program.
        program: String,
        /// Compiler diagnostics.
        #[source]
        why: lang::Diagnostics,
    },
    /// The fields of the report struct differ from the program's report variables, in name or
    /// order.
    #[error(
        "program `{program}` of algorithm `{algorithm}` reports ({}), but the struct {reads} has \
        ({}); use the same names in the same order",
        reported.join(", "),
        fields.join(", ")
    )]
    Fields {
        /// Name of the algorithm.
        algorithm: String,
        /// Name of the program.
        program: String,
        /// Type name of the struct.
        reads: &'static str,
        /// Report variables of the program, in order.
        reported: Vec<String>,
        /// Fields of the struct, in order.
        fields: &'static [&'static str],
    },
    /// The name is already in use.
    #[error("the algorithm `{0}` already exists; give each algorithm its own name and kernel name")]
    Duplicate(String),
}

/// Minimum time between two heartbeats to a datapath. The interval follows from the agent timeout
/// that the datapath reports, and a timeout of a nanosecond would keep the agent busy. A longer
/// minimum would leave a datapath with a timeout of 300 µs on its fallback.
pub const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_micros(100);

/// Number of retired flows closed per step. With fewer, the algorithms are notified later; with
/// more, a disconnecting datapath with many flows delays the others.
const CLOSES_PER_STEP_MAX: usize = 1_024;

/// Counters of an algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlgorithmStats {
    /// Live flows.
    pub flows: u64,
    /// Flows opened, including those taken over.
    pub opened: u64,
    /// Flows taken over while live.
    pub taken_over: u64,
    /// Flows refused because their datapath lacks a capability.
    pub refused_flows: u64,
    /// Reports handled.
    pub reports: u64,
    /// Urgent reports among them.
    pub urgent_reports: u64,
    /// Dropped reports of a program that the flow no longer runs.
    pub stale_reports: u64,
    /// Dropped reports with the wrong number of fields.
    pub malformed_reports: u64,
    /// Commands for flows.
    pub commands: u64,
    /// Commands refused by a datapath.
    pub refusals: u64,
    /// Unknown names of variables or programs used by the algorithm.
    pub unknown_names: u64,
    /// Callbacks that raised an exception, for algorithms in a language with exceptions
    /// ([`Control::count_exception`]).
    pub exceptions: u64,
}

/// State that callbacks access through [`Control`].
#[derive(Default)]
pub(crate) struct Core {
    pub flows: Flows,
    pub gauges: Gauges,
    entries: Vec<AlgorithmEntry>,
    datapaths: BTreeMap<DatapathId, ConnectedDatapath>,
    commands: VecDeque<(DatapathId, WireCommand)>,
    orphan_events: u64,
    /// See [`Agent::work`].
    work_units: u64,
    /// Tenant names of datapaths that have one.
    tenants: BTreeMap<DatapathId, Arc<str>>,
    /// The number of tenants is bounded by the number of keys. Budgets are kept, so that
    /// reconnecting does not refill one.
    log_budgets: BTreeMap<LogBudgetOwner, LogBudget>,
    /// The warning that flows cannot be released was logged; once is enough for all flows.
    no_release_logged: bool,
}

/// Tenant or datapath whose budget a log line is charged to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LogBudgetOwner {
    Tenant(Arc<str>),
    Datapath(DatapathId),
}

struct AlgorithmEntry {
    hosted: Arc<HostedAlgorithm>,
    stats: AlgorithmStats,
    timer: Option<Time>,
}

struct ConnectedDatapath {
    info: DatapathInfo,
    /// Next heartbeat and the interval; `None` if the datapath needs none.
    heartbeat: Option<(Time, Duration)>,
}

impl Agent {
    /// Creates an agent without algorithms.
    pub fn new(options: AgentOptions) -> Agent {
        Agent {
            options,
            ..Agent::default()
        }
    }

    /// Adds an algorithm and compiles its programs. The first one added also serves flows that ask
    /// for none.
    pub fn add(&mut self, algorithm: impl Algorithm + 'static) -> Result<(), AddError> {
        self.add_boxed(box_algorithm(algorithm))
    }

    /// Adds a boxed algorithm.
    pub fn add_boxed(&mut self, algorithm: Box<dyn DynAlgorithm>) -> Result<(), AddError> {
        let (name, kernel_name) = (algorithm.name().to_owned(), algorithm.kernel_name());
        self.add_as(name, kernel_name, algorithm)
    }

    /// The same under other names, for flows and for the kernel: an agent can host one algorithm
    /// with several sets of parameters.
    pub fn add_as(
        &mut self,
        name: String,
        kernel_name: String,
        algorithm: Box<dyn DynAlgorithm>,
    ) -> Result<(), AddError> {
        if self
            .hosted_algorithms()
            .any(|h| *h.name == *name || h.kernel_name == kernel_name)
        {
            return Err(AddError::Duplicate(name));
        }
        let mut programs: Vec<HostedProgram> = Vec::new();
        for declared in algorithm.programs().sources() {
            let program = &*declared.name;
            let taken = |uid| {
                self.hosted_algorithms()
                    .flat_map(|h| &h.programs)
                    .chain(&programs)
                    .any(|p| p.uid == uid)
            };
            let compiled = HostedProgram::compile(&name, declared, taken).map_err(|why| {
                AddError::Program {
                    algorithm: name.clone(),
                    program: program.to_owned(),
                    why,
                }
            })?;
            if let Some(reports) = declared.report_type
                && !compiled.report_names().eq(reports.names.iter().copied())
            {
                return Err(AddError::Fields {
                    algorithm: name,
                    program: program.to_owned(),
                    reads: reports.type_name,
                    reported: compiled.report_names().map(str::to_owned).collect(),
                    fields: reports.names,
                });
            }
            programs.push(compiled);
        }
        let hosted = Arc::new(HostedAlgorithm {
            name: name.into(),
            kernel_name,
            required: algorithm.required_capabilities(),
            requested: algorithm.requested_capabilities(),
            latency: algorithm.latency(),
            programs,
            standalone: algorithm.standalone(),
        });
        for datapath in self.core.datapaths.keys().copied().collect::<Vec<_>>() {
            self.core.install(datapath, &hosted);
        }
        self.core.entries.push(AlgorithmEntry {
            hosted,
            stats: AlgorithmStats::default(),
            timer: None,
        });
        self.algorithms.push(algorithm);
        Ok(())
    }

    /// Hosted algorithms, in the order of addition.
    pub fn hosted_algorithms(&self) -> impl Iterator<Item = &Arc<HostedAlgorithm>> {
        self.core.entries.iter().map(|h| &h.hosted)
    }

    /// Counters of the algorithm with this name.
    pub fn stats(&self, algorithm: &str) -> Option<AlgorithmStats> {
        self.core
            .entries
            .iter()
            .find(|h| *h.hosted.name == *algorithm)
            .map(|h| h.stats)
    }

    /// Number of events for flows that are not open here: refused flows, and reports that crossed a
    /// close.
    pub fn orphan_events(&self) -> u64 {
        self.core.orphan_events
    }

    /// Number of live flows of all algorithms.
    pub fn flow_count(&self) -> usize {
        self.core.flows.len()
    }

    /// Latest gauges of a flow, by name; see [`Control::gauge`].
    pub fn gauges(&self, flow: FlowId) -> &[(&'static str, f64)] {
        self.core.gauges.get(flow)
    }

    /// Returns true if an algorithm waits for an external decision; see
    /// [`Algorithm::awaiting_action`].
    pub fn awaiting_action(&self) -> bool {
        self.algorithms
            .iter()
            .any(|algorithm| algorithm.awaiting_action())
    }

    /// Sets the tenant of a datapath, such as the owner of a TLS key. Datapaths of a tenant share
    /// its limits. A datapath without a tenant has its own limits.
    pub fn set_tenant(&mut self, datapath: DatapathId, name: Arc<str>) {
        self.core.tenants.insert(datapath, name);
    }

    /// Units of work so far: one per event, per command, and per flow that ended because its
    /// datapath restarted. A link that serves several tenants uses it to share time fairly.
    pub fn work_units(&self) -> u64 {
        self.core.work_units
    }

    /// Number of a datapath's flows that take memory here.
    pub fn retained_flows(&self, datapath: DatapathId) -> usize {
        self.core.flows.retained(datapath)
    }

    /// Returns true if the flow is live here.
    pub fn is_open(&self, id: FlowId) -> bool {
        self.core.flows.find(id).is_some()
    }

    /// Takes a log line from the budget of a datapath's tenant; `None` if the budget is exhausted.
    pub fn take_log_permit(&mut self, now: Time, datapath: DatapathId) -> Option<LogPermit> {
        self.core.take_log_permit(now, datapath)
    }

    /// Handles one event.
    pub fn handle(&mut self, now: Time, from: DatapathId, event: WireEvent<'_>) {
        if !matches!(event, WireEvent::Report { .. }) {
            self.core.work_units += 1;
        }
        match event {
            WireEvent::Report { .. } => self.reports(now, from, std::slice::from_ref(&event)),
            WireEvent::Ready { datapath } => self.ready(now, from, datapath),
            WireEvent::FlowOpened { flow, info } => self.open(
                now,
                FlowId {
                    datapath: from,
                    flow,
                },
                &info,
            ),
            WireEvent::FlowClosed { flow, stats } => match self.close(
                FlowId {
                    datapath: from,
                    flow,
                },
                &stats,
            ) {
                true => {}
                false => self.core.orphan_events += 1,
            },
            WireEvent::Refused { flow, program, why } => {
                self.refused(now, from, flow, program, &why)
            }
            WireEvent::Installed { program } => {
                tracing::debug!(datapath = from.0, program, "program installed")
            }
        }
    }

    /// Handles events that arrived together. Adjacent reports for one algorithm are delivered as
    /// one [`Batch`](crate::ReportBatch).
    pub fn handle_batch(&mut self, now: Time, from: DatapathId, mut events: &[WireEvent<'_>]) {
        while let Some(first) = events.first() {
            let reports = events
                .iter()
                .take_while(|e| matches!(e, WireEvent::Report { .. }))
                .count();
            let (head, tail) = events.split_at(reports.max(1));
            match reports {
                0 => self.handle(now, from, first.clone()),
                _ => self.reports(now, from, head),
            }
            events = tail;
        }
    }

    /// Handles the disconnection of a datapath: its flows are closed.
    pub fn on_disconnect(&mut self, from: DatapathId) {
        self.core.flows.retire(from);
        self.close_retired();
        self.core.datapaths.remove(&from);
        self.core.tenants.remove(&from);
        self.core
            .log_budgets
            .remove(&LogBudgetOwner::Datapath(from));
    }

    /// Returns the next command and the datapath it is for.
    pub fn poll(&mut self) -> Option<(DatapathId, WireCommand)> {
        // Commands for a disconnected datapath are dropped here, so that a disconnection need not
        // search the queue.
        let core = &mut self.core;
        while let Some((to, command)) = core.commands.pop_front() {
            if core.datapaths.contains_key(&to) || core.flows.has_datapath(to) {
                return Some((to, command));
            }
        }
        None
    }

    /// Time at which [`on_deadline`](Agent::on_deadline) is due: a timer of an algorithm or a
    /// heartbeat.
    pub fn next_deadline(&self) -> Option<Time> {
        let timers = self.core.entries.iter().filter_map(|h| h.timer);
        let heartbeats = self
            .core
            .datapaths
            .values()
            .filter_map(|d| Some(d.heartbeat?.0));
        let closes = self.core.flows.has_retired().then_some(Time::ZERO);
        timers.chain(heartbeats).chain(closes).min()
    }

    /// Runs everything due at `now`.
    pub fn on_deadline(&mut self, now: Time) {
        self.close_retired();
        for index in 0..self.core.entries.len() {
            if self.core.entries[index].timer.is_some_and(|due| due <= now) {
                self.core.entries[index].timer = None;
                self.algorithms[index].on_timer(&mut Control::new(
                    now,
                    &mut self.core,
                    index as u16,
                    None,
                ));
            }
        }
        self.core.heartbeats(now);
    }

    fn ready(&mut self, now: Time, from: DatapathId, info: DatapathInfo) {
        // A repeated READY means that the datapath has lost its state including its flows; it
        // announces those that are live.
        self.core.work_units += self.core.flows.retire(from) as u64;
        self.close_retired();
        if let Some(LogPermit { suppressed }) = self.core.take_log_permit(now, from) {
            tracing::info!(
                datapath = from.0, kind = %info.kind, id = info.id, suppressed, "datapath ready"
            );
        }
        // A third of the agent timeout: one heartbeat may be lost and the next one late by an
        // interval.
        let heartbeat = info
            .agent_timeout
            .map(|silence| (now, (silence / 3).max(HEARTBEAT_INTERVAL_MIN)));
        self.core
            .datapaths
            .insert(from, ConnectedDatapath { info, heartbeat });
        for hosted in self.hosted_algorithms().cloned().collect::<Vec<_>>() {
            self.core.install(from, &hosted);
        }
        self.core.heartbeats(now);
    }

    fn open(&mut self, now: Time, id: FlowId, info: &FlowInfo) {
        self.close(id, &FlowStats::default());
        if let Some(entry) = self.core.flows.remove_retired(id) {
            self.notify_closed(entry, &FlowStats::default());
        }
        let Some(algorithm) = self.find_algorithm(&info.algorithm) else {
            if let Some(LogPermit { suppressed }) = self.core.take_log_permit(now, id.datapath) {
                let have: Vec<&str> = self.hosted_algorithms().map(|h| &*h.name).collect();
                tracing::warn!(
                    flow = id.flow,
                    wanted = %info.algorithm,
                    have = %have.join(", "),
                    suppressed,
                    "unknown algorithm; the flow stays on the datapath's fallback"
                );
            }
            return;
        };
        let host = &mut self.core.entries[algorithm];
        let offered = self
            .core
            .datapaths
            .get(&id.datapath)
            .map(|d| d.info.capabilities)
            .unwrap_or_default();
        let missing = host.hosted.required.missing_from(offered);
        if !missing.is_empty() {
            host.stats.refused_flows += 1;
            let hosted = Arc::clone(&host.hosted);
            if let Some(LogPermit { suppressed }) = self.core.take_log_permit(now, id.datapath) {
                tracing::warn!(
                    flow = id.flow,
                    algorithm = %hosted.name,
                    missing = %missing.names().collect::<Vec<_>>().join(", "),
                    suppressed,
                    "the datapath lacks a capability of the algorithm; the flow stays on the \
                    datapath's fallback"
                );
            }
            return;
        }
        host.stats.opened += 1;
        host.stats.flows += 1;
        host.stats.taken_over += u64::from(info.live);
        // An algorithm that sets no rate would keep the rate of the previous control for ever.
        let frees =
            info.live && info.rate > Rate::from_bytes_per_sec(0) && !host.hosted.sets_rate();
        let algorithm = algorithm as u16;
        let at = self.core.flows.insert(FlowEntry {
            id,
            algorithm,
            slot: u32::MAX,
            program: None,
            previous: None,
        });
        let mut control = Control::new(now, &mut self.core, algorithm, Some(at));
        if frees {
            control.set_rate(Rate::from_bytes_per_sec(u64::MAX));
        }
        let slot = self.algorithms[algorithm as usize].open(info, &mut control);
        drop(control);
        if let Some(entry) = self.core.flows.get_mut(at) {
            entry.slot = slot;
        }
    }

    fn find_algorithm(&self, name: &str) -> Option<usize> {
        let named = self
            .hosted_algorithms()
            .position(|h| *h.name == *name || h.kernel_name == name);
        let first = (!self.algorithms.is_empty()).then_some(0);
        match self.options.unknown_algorithm {
            _ if named.is_some() => named,
            _ if name.is_empty() => first,
            UnknownAlgorithm::First => first,
            UnknownAlgorithm::Refuse => None,
        }
    }

    fn close(&mut self, id: FlowId, stats: &FlowStats) -> bool {
        let Some(entry) = self.core.flows.remove(id) else {
            return false;
        };
        self.notify_closed(entry, stats);
        true
    }

    /// Notifies the algorithm that a removed flow ended.
    fn notify_closed(&mut self, entry: FlowEntry, stats: &FlowStats) {
        self.core.gauges.remove(entry.id);
        self.core.stats_mut(entry.algorithm).flows -= 1;
        self.algorithms[entry.algorithm as usize].on_close(entry.slot, stats);
    }

    /// Closes a number of retired flows; if there are more, the next deadline is immediate.
    fn close_retired(&mut self) {
        for _ in 0..CLOSES_PER_STEP_MAX {
            let Some(entry) = self.core.flows.next_retired() else {
                return;
            };
            self.notify_closed(entry, &FlowStats::default());
        }
    }

    /// Delivers reports; all `events` must be reports.
    fn reports(&mut self, now: Time, from: DatapathId, mut events: &[WireEvent<'_>]) {
        self.core.work_units += events.len() as u64;
        while !events.is_empty() {
            self.batch.clear();
            let mut algorithm = None;
            for event in events {
                let WireEvent::Report { flow, .. } = *event else {
                    break;
                };
                let at = self.core.flows.find(FlowId {
                    datapath: from,
                    flow,
                });
                let Some((at, entry)) = at.and_then(|at| Some((at, self.core.flows.get(at)?)))
                else {
                    break;
                };
                if algorithm.is_some_and(|a| a != entry.algorithm) {
                    break;
                }
                algorithm = Some(entry.algorithm);
                self.batch.push(at);
            }
            let Some(algorithm) = algorithm else {
                self.core.orphan_events += 1;
                events = &events[1..];
                continue;
            };
            let (head, tail) = events.split_at(self.batch.len());
            let hosted = self.core.entries[algorithm as usize].hosted.clone();
            let raw = RawReports {
                events: head,
                flows: &self.batch,
                programs: &hosted.programs,
            };
            let mut control = Control::new(now, &mut self.core, algorithm, None);
            self.algorithms[algorithm as usize].on_reports(raw, &mut control);
            drop(control);
            events = tail;
        }
    }

    fn refused(
        &mut self,
        now: Time,
        from: DatapathId,
        flow: Option<u64>,
        program: u32,
        why: &Refusal,
    ) {
        // The flow ended, or returned from the datapath's own control, while the command was in
        // flight. This is normal and does not concern the current algorithm.
        if *why == Refusal::UnknownFlow {
            tracing::debug!(
                datapath = from.0,
                flow,
                "a command arrived after the end of its flow"
            );
            return;
        }
        let flow = flow.and_then(|flow| {
            self.core.flows.find(FlowId {
                datapath: from,
                flow,
            })
        });
        let Some((at, entry)) = flow.and_then(|at| Some((at, *self.core.flows.get(at)?))) else {
            let known = self
                .hosted_algorithms()
                .flat_map(|h| &h.programs)
                .find(|p| p.uid == program);
            let name = known.map_or("unknown", |p| &p.name);
            // An algorithm may offer a program per kind of datapath, so this is not a warning. A
            // flow that is set a missing program causes one.
            let name = name.to_owned();
            let Some(LogPermit { suppressed }) = self.core.take_log_permit(now, from) else {
                return;
            };
            return match why {
                Refusal::Unsupported(_) | Refusal::MissingCapabilities(_) => {
                    tracing::info!(datapath = from.0, program = name, %why, suppressed, "the \
                        datapath cannot run a program")
                }
                _ => {
                    tracing::warn!(
                        datapath = from.0, program = name, %why, suppressed,
                        "a datapath refused a program"
                    )
                }
            };
        };
        let said =
            *why == Refusal::NoRelease && std::mem::replace(&mut self.core.no_release_logged, true);
        self.core.stats_mut(entry.algorithm).refusals += 1;
        let current = entry.program.and_then(|index| {
            self.core
                .hosted(entry.algorithm)
                .programs
                .get(index as usize)
        });
        if current.is_some_and(|current| current.uid == program)
            && let Some(entry) = self.core.flows.get_mut(at)
        {
            entry.program = entry.previous;
        }
        if !said && let Some(LogPermit { suppressed }) = self.core.take_log_permit(now, from) {
            tracing::warn!(
                datapath = from.0, flow = entry.id.flow, %why, suppressed,
                "a datapath refused a command"
            );
        }
        let mut control = Control::new(now, &mut self.core, entry.algorithm, Some(at));
        self.algorithms[entry.algorithm as usize].on_refused(entry.slot, why, &mut control);
    }
}

impl Core {
    pub fn hosted(&self, algorithm: u16) -> &HostedAlgorithm {
        &self.entries[algorithm as usize].hosted
    }

    pub fn stats_mut(&mut self, algorithm: u16) -> &mut AlgorithmStats {
        &mut self.entries[algorithm as usize].stats
    }

    pub fn capabilities(&self, datapath: DatapathId) -> Option<Capabilities> {
        Some(self.datapaths.get(&datapath)?.info.capabilities)
    }

    pub fn tenant(&self, datapath: DatapathId) -> Option<Arc<str>> {
        self.tenants.get(&datapath).cloned()
    }

    pub fn set_timer(&mut self, algorithm: u16, due: Time) {
        self.entries[algorithm as usize].timer = Some(due);
    }

    fn take_log_permit(&mut self, now: Time, datapath: DatapathId) -> Option<LogPermit> {
        let owner = match self.tenants.get(&datapath) {
            Some(name) => LogBudgetOwner::Tenant(Arc::clone(name)),
            None => LogBudgetOwner::Datapath(datapath),
        };
        self.log_budgets.entry(owner).or_default().take(now)
    }

    pub fn push_command(&mut self, to: DatapathId, command: WireCommand) {
        self.work_units += 1;
        self.commands.push_back((to, command));
    }

    fn install(&mut self, to: DatapathId, hosted: &HostedAlgorithm) {
        let offer = Offer {
            name: hosted.name.clone(),
            kernel_name: hosted.kernel_name.clone(),
            required: hosted.required,
            requested: hosted.requested,
            latency: hosted.latency,
        };
        self.push_command(to, WireCommand::Offer(Arc::new(offer)));
        for program in &hosted.programs {
            self.push_command(
                to,
                WireCommand::Install {
                    algorithm: hosted.name.clone(),
                    program: program.code.clone(),
                },
            );
        }
    }

    fn heartbeats(&mut self, now: Time) {
        let due = self.datapaths.iter_mut().filter_map(|(id, datapath)| {
            let (due, every) = datapath.heartbeat.as_mut()?;
            (*due <= now).then(|| *due = now + *every)?;
            Some(*id)
        });
        for to in due {
            for host in &self.entries {
                self.commands.push_back((
                    to,
                    WireCommand::Heartbeat {
                        algorithm: host.hosted.name.clone(),
                    },
                ));
            }
        }
    }
}
