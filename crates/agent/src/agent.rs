//! The state machine: events in, commands out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ccplane_datapath::Capabilities;
use ccplane_lang as lang;
use ccplane_units::{Duration, Rate, Time};
use ccplane_wire::{Command, DatapathInfo, Event, FlowInfo, FlowStats, Offer, Refusal};

use crate::flows::{Entry, Flows};
use crate::gauges::Gauges;
use crate::lines::{Allowed, LineBudget};
use crate::report::Raw;
use crate::{Algorithm, Control, DatapathId, DynAlgorithm, FlowId, Hosted, HostedProgram, boxed};

/// Hosts algorithms and their flows on any number of datapaths. See the [crate].
///
/// A driver gives it every event with the time at which it arrived, then polls until no command is
/// left, sleeps at most until [`next_deadline`](Agent::next_deadline) and calls
/// [`on_deadline`](Agent::on_deadline).
#[derive(Default)]
pub struct Agent {
    algorithms: Vec<Box<dyn DynAlgorithm>>,
    core: Core,
    options: Options,
    /// Flows of a batch, kept so that a batch allocates nothing.
    batch: Vec<u32>,
}

/// How an agent behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What becomes of a flow that asks for an algorithm that is not here.
    pub unknown: UnknownAlgorithm,
}

/// What becomes of a flow that asks for an algorithm that is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownAlgorithm {
    /// It gets the one that was added first. CCP's kernel module asks for `reno` whatever the user
    /// wants.
    #[default]
    First,
    /// It is left to its datapath's fallback, and the log says so.
    Refuse,
}

/// Why an algorithm could not be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// A program does not compile.
    #[error("program `{program}` of algorithm `{algorithm}` does not compile")]
    Program {
        /// The algorithm.
        algorithm: String,
        /// The program.
        program: String,
        /// What is wrong, and where.
        #[source]
        why: lang::Diagnostics,
    },
    /// The struct that reports are read into has other fields than the program, or in another
    /// order.
    #[error(
        "program `{program}` of algorithm `{algorithm}` reports ({}), but the struct {reads} has ({}): the same names in the same order are needed",
        reported.join(", "),
        fields.join(", ")
    )]
    Fields {
        /// The algorithm.
        algorithm: String,
        /// The program.
        program: String,
        /// The struct.
        reads: &'static str,
        /// The program's report variables, in order.
        reported: Vec<String>,
        /// The struct's fields, in order.
        fields: &'static [&'static str],
    },
    /// The name is in use.
    #[error("there is an algorithm `{0}` already: give each its own name and kernel name")]
    Duplicate(String),
}

/// The least time between two heartbeats for one datapath. The silence allowed is the datapath's
/// word: one that says a nanosecond would keep the agent busy with nothing else. Longer would leave
/// a datapath that allows 300 us on its fallback.
pub const LEAST_HEARTBEAT: Duration = Duration::from_micros(100);

/// Retired flows that are closed at once. With fewer, the algorithms hear later that flows are
/// gone; with more, a datapath with many flows keeps the others waiting when it goes.
const CLOSES_AT_ONCE: usize = 1_024;

/// What an algorithm did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlgorithmStats {
    /// Flows that live now.
    pub flows: u64,
    /// Flows opened, taken over ones included.
    pub opened: u64,
    /// Flows taken over while they lived.
    pub taken_over: u64,
    /// Flows refused because their datapath lacks something.
    pub refused_flows: u64,
    /// Reports handled.
    pub reports: u64,
    /// Of these, urgent ones.
    pub urgent_reports: u64,
    /// Reports of a program that was the flow's no longer: dropped.
    pub stale_reports: u64,
    /// Reports with the wrong number of fields: dropped.
    pub malformed_reports: u64,
    /// Commands made for flows.
    pub commands: u64,
    /// Commands that a datapath refused.
    pub refusals: u64,
    /// Names of variables or programs, used by the algorithm, that do not exist.
    pub unknown_names: u64,
    /// Callbacks that raised, of algorithms in a language in which they can
    /// ([`Control::exception`]).
    pub exceptions: u64,
}

/// What callbacks may touch, through [`Control`].
#[derive(Default)]
pub(crate) struct Core {
    pub flows: Flows,
    pub gauges: Gauges,
    hosts: Vec<Host>,
    datapaths: BTreeMap<DatapathId, Datapath>,
    commands: VecDeque<(DatapathId, Command)>,
    orphans: u64,
    /// See [`Agent::work`].
    work: u64,
    /// Names of the tenants of datapaths that have one.
    tenants: BTreeMap<DatapathId, Arc<str>>,
    /// Tenants are as many as keys were made, and stay: coming back does not fill a budget.
    lines: BTreeMap<LineOwner, LineBudget>,
    /// It was said that flows cannot be released; that holds for many.
    no_release_said: bool,
}

/// Who answers for a line of the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LineOwner {
    Tenant(Arc<str>),
    Datapath(DatapathId),
}

struct Host {
    hosted: Arc<Hosted>,
    stats: AlgorithmStats,
    timer: Option<Time>,
}

struct Datapath {
    info: DatapathInfo,
    /// The next heartbeat and the time between two; `None` where there are none.
    heartbeat: Option<(Time, Duration)>,
}

impl Agent {
    /// An agent without algorithms.
    pub fn new(options: Options) -> Agent {
        Agent {
            options,
            ..Agent::default()
        }
    }

    /// Adds an algorithm and compiles its programs. The first added also serves flows that ask for
    /// none.
    pub fn add(&mut self, algorithm: impl Algorithm + 'static) -> Result<(), AddError> {
        self.add_boxed(boxed(algorithm))
    }

    /// The same for an algorithm whose type is not known.
    pub fn add_boxed(&mut self, algorithm: Box<dyn DynAlgorithm>) -> Result<(), AddError> {
        let (name, kernel_name) = (algorithm.name().to_owned(), algorithm.kernel_name());
        if self
            .hosted()
            .any(|h| *h.name == *name || h.kernel_name == kernel_name)
        {
            return Err(AddError::Duplicate(name));
        }
        let mut programs: Vec<HostedProgram> = Vec::new();
        for declared in algorithm.programs().declared() {
            let program = &*declared.name;
            let taken = |uid| {
                self.hosted()
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
            if let Some(reports) = declared.reports
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
        let hosted = Arc::new(Hosted {
            name: name.into(),
            kernel_name,
            needs: algorithm.needs(),
            wants: algorithm.wants(),
            latency: algorithm.latency(),
            programs,
            alone: algorithm.alone(),
        });
        for datapath in self.core.datapaths.keys().copied().collect::<Vec<_>>() {
            self.core.install(datapath, &hosted);
        }
        self.core.hosts.push(Host {
            hosted,
            stats: AlgorithmStats::default(),
            timer: None,
        });
        self.algorithms.push(algorithm);
        Ok(())
    }

    /// The algorithms, in the order in which they were added.
    pub fn hosted(&self) -> impl Iterator<Item = &Arc<Hosted>> {
        self.core.hosts.iter().map(|h| &h.hosted)
    }

    /// What the algorithm of this name did so far.
    pub fn stats(&self, algorithm: &str) -> Option<AlgorithmStats> {
        self.core
            .hosts
            .iter()
            .find(|h| *h.hosted.name == *algorithm)
            .map(|h| h.stats)
    }

    /// Events of flows that are not open here: refused ones, and reports that crossed a close.
    pub fn orphan_events(&self) -> u64 {
        self.core.orphans
    }

    /// Flows that live now, of all algorithms.
    pub fn flows(&self) -> usize {
        self.core.flows.len()
    }

    /// What the algorithm of a flow said of it last, by name; see [`Control::gauge`].
    pub fn gauges(&self, flow: FlowId) -> &[(&'static str, f64)] {
        self.core.gauges.of(flow)
    }

    /// Whether an algorithm waits for a decision from outside; see [`Algorithm::undecided`].
    pub fn undecided(&self) -> bool {
        self.algorithms
            .iter()
            .any(|algorithm| algorithm.undecided())
    }

    /// Names the tenant that answers for a datapath, such as the holder of a TLS key. Datapaths of
    /// one tenant share what is limited per tenant. One without a name answers for itself.
    pub fn set_tenant(&mut self, datapath: DatapathId, name: Arc<str>) {
        self.core.tenants.insert(datapath, name);
    }

    /// Units of work done so far: one per event, per command, and per flow that a datapath ended by
    /// beginning anew. A link that serves several tenants divides its time among them by this.
    pub fn work(&self) -> u64 {
        self.core.work
    }

    /// Number of flows of a datapath that take memory here.
    pub fn flows_held(&self, datapath: DatapathId) -> usize {
        self.core.flows.held(datapath)
    }

    /// Returns true for a flow that lives here.
    pub fn is_open(&self, id: FlowId) -> bool {
        self.core.flows.find(id).is_some()
    }

    /// Takes a line out of the log's budget of a datapath's tenant; `None` where it is used up.
    pub fn line(&mut self, now: Time, datapath: DatapathId) -> Option<Allowed> {
        self.core.line(now, datapath)
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Time, from: DatapathId, event: Event<'_>) {
        if !matches!(event, Event::Report { .. }) {
            self.core.work += 1;
        }
        match event {
            Event::Report { .. } => self.reports(now, from, std::slice::from_ref(&event)),
            Event::Ready { datapath } => self.ready(now, from, datapath),
            Event::FlowOpened { flow, info } => self.open(
                now,
                FlowId {
                    datapath: from,
                    flow,
                },
                &info,
            ),
            Event::FlowClosed { flow, stats } => match self.close(
                FlowId {
                    datapath: from,
                    flow,
                },
                &stats,
            ) {
                true => {}
                false => self.core.orphans += 1,
            },
            Event::Refused { flow, program, why } => self.refused(now, from, flow, program, &why),
            Event::Installed { program } => {
                tracing::debug!(datapath = from.0, program, "program installed")
            }
        }
    }

    /// Takes events that arrived together: adjacent reports of one algorithm reach it as one
    /// [`Batch`](crate::Batch).
    pub fn handle_all(&mut self, now: Time, from: DatapathId, mut events: &[Event<'_>]) {
        while let Some(first) = events.first() {
            let reports = events
                .iter()
                .take_while(|e| matches!(e, Event::Report { .. }))
                .count();
            let (head, tail) = events.split_at(reports.max(1));
            match reports {
                0 => self.handle(now, from, first.clone()),
                _ => self.reports(now, from, head),
            }
            events = tail;
        }
    }

    /// A datapath is gone: its flows close.
    pub fn disconnected(&mut self, from: DatapathId) {
        self.core.flows.retire(from);
        self.close_retired();
        self.core.datapaths.remove(&from);
        self.core.tenants.remove(&from);
        self.core.lines.remove(&LineOwner::Datapath(from));
    }

    /// The next command, and whom it is for.
    pub fn poll(&mut self) -> Option<(DatapathId, Command)> {
        // Commands for a datapath that is gone are dropped here: its end does not search the queue.
        let core = &mut self.core;
        while let Some((to, command)) = core.commands.pop_front() {
            if core.datapaths.contains_key(&to) || core.flows.knows(to) {
                return Some((to, command));
            }
        }
        None
    }

    /// When [`on_deadline`](Agent::on_deadline) is due next: a timer of an algorithm or a
    /// heartbeat.
    pub fn next_deadline(&self) -> Option<Time> {
        let timers = self.core.hosts.iter().filter_map(|h| h.timer);
        let heartbeats = self
            .core
            .datapaths
            .values()
            .filter_map(|d| Some(d.heartbeat?.0));
        let closes = self.core.flows.has_retired().then_some(Time::ZERO);
        timers.chain(heartbeats).chain(closes).min()
    }

    /// Does what is due at `now`.
    pub fn on_deadline(&mut self, now: Time) {
        self.close_retired();
        for index in 0..self.core.hosts.len() {
            if self.core.hosts[index].timer.is_some_and(|due| due <= now) {
                self.core.hosts[index].timer = None;
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
        // A datapath that says so again has lost its state, its flows with it: it announces those
        // that live.
        self.core.work += self.core.flows.retire(from) as u64;
        self.close_retired();
        if let Some(Allowed { suppressed }) = self.core.line(now, from) {
            tracing::info!(datapath = from.0, kind = %info.kind, id = info.id, suppressed, "datapath ready");
        }
        // A third of the silence allowed: one heartbeat may be late by as much again and one lost.
        let heartbeat = info
            .fallback_after
            .map(|silence| (now, (silence / 3).max(LEAST_HEARTBEAT)));
        self.core
            .datapaths
            .insert(from, Datapath { info, heartbeat });
        for hosted in self.hosted().cloned().collect::<Vec<_>>() {
            self.core.install(from, &hosted);
        }
        self.core.heartbeats(now);
    }

    fn open(&mut self, now: Time, id: FlowId, info: &FlowInfo) {
        self.close(id, &FlowStats::default());
        if let Some(entry) = self.core.flows.remove_retired(id) {
            self.end(entry, &FlowStats::default());
        }
        let Some(algorithm) = self.choose(&info.algorithm) else {
            if let Some(Allowed { suppressed }) = self.core.line(now, id.datapath) {
                tracing::warn!(
                    flow = id.flow,
                    wanted = %info.algorithm,
                    have = %self.hosted().map(|h| &*h.name).collect::<Vec<_>>().join(", "),
                    suppressed,
                    "no such algorithm here: the flow stays with its datapath's fallback"
                );
            }
            return;
        };
        let host = &mut self.core.hosts[algorithm];
        let offered = self
            .core
            .datapaths
            .get(&id.datapath)
            .map(|d| d.info.capabilities)
            .unwrap_or_default();
        let missing = host.hosted.needs.missing_from(offered);
        if !missing.is_empty() {
            host.stats.refused_flows += 1;
            let hosted = Arc::clone(&host.hosted);
            if let Some(Allowed { suppressed }) = self.core.line(now, id.datapath) {
                tracing::warn!(
                    flow = id.flow,
                    algorithm = %hosted.name,
                    missing = %missing.names().collect::<Vec<_>>().join(", "),
                    suppressed,
                    "the datapath lacks what the algorithm needs: the flow stays with the datapath's fallback"
                );
            }
            return;
        }
        host.stats.opened += 1;
        host.stats.flows += 1;
        host.stats.taken_over += u64::from(info.live);
        // An algorithm that sets no rate would be held for ever to that of whoever steered the flow
        // before.
        let frees = info.live && info.rate > Rate::from_bytes_per_sec(0) && !host.hosted.paces();
        let algorithm = algorithm as u16;
        let at = self.core.flows.insert(Entry {
            id,
            algorithm,
            slot: u32::MAX,
            program: None,
            previous: None,
        });
        let mut control = Control::new(now, &mut self.core, algorithm, Some(at));
        if frees {
            control.rate(Rate::from_bytes_per_sec(u64::MAX));
        }
        let slot = self.algorithms[algorithm as usize].open(info, &mut control);
        drop(control);
        if let Some(entry) = self.core.flows.get_mut(at) {
            entry.slot = slot;
        }
    }

    fn choose(&self, name: &str) -> Option<usize> {
        let named = self
            .hosted()
            .position(|h| *h.name == *name || h.kernel_name == name);
        let first = (!self.algorithms.is_empty()).then_some(0);
        match self.options.unknown {
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
        self.end(entry, stats);
        true
    }

    /// Tells the algorithm that a removed flow ended.
    fn end(&mut self, entry: Entry, stats: &FlowStats) {
        self.core.gauges.forget(entry.id);
        self.core.stats_mut(entry.algorithm).flows -= 1;
        self.algorithms[entry.algorithm as usize].on_close(entry.slot, stats);
    }

    /// Closes some retired flows; the next deadline is at once while there are more.
    fn close_retired(&mut self) {
        for _ in 0..CLOSES_AT_ONCE {
            let Some(entry) = self.core.flows.next_retired() else {
                return;
            };
            self.end(entry, &FlowStats::default());
        }
    }

    /// All are reports.
    fn reports(&mut self, now: Time, from: DatapathId, mut events: &[Event<'_>]) {
        self.core.work += events.len() as u64;
        while !events.is_empty() {
            self.batch.clear();
            let mut algorithm = None;
            for event in events {
                let Event::Report { flow, .. } = *event else {
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
                self.core.orphans += 1;
                events = &events[1..];
                continue;
            };
            let (head, tail) = events.split_at(self.batch.len());
            let hosted = self.core.hosts[algorithm as usize].hosted.clone();
            let raw = Raw {
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
        // The ordinary end of a flow that was being steered, or its return from the datapath's own
        // control: nothing that whoever steers it now has said.
        if *why == Refusal::UnknownFlow {
            tracing::debug!(datapath = from.0, flow, "a command came too late");
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
                .hosted()
                .flat_map(|h| &h.programs)
                .find(|p| p.uid == program);
            let name = known.map_or("unknown", |p| &p.name);
            // An algorithm may offer a program for each kind of datapath; a flow that is set a
            // missing one says so louder.
            let name = name.to_owned();
            let Some(Allowed { suppressed }) = self.core.line(now, from) else {
                return;
            };
            return match why {
                Refusal::Unsupported(_) | Refusal::Missing(_) => {
                    tracing::info!(datapath = from.0, program = name, %why, suppressed, "not a program for it")
                }
                _ => {
                    tracing::warn!(datapath = from.0, program = name, %why, suppressed, "a datapath refused a program")
                }
            };
        };
        let said =
            *why == Refusal::NoRelease && std::mem::replace(&mut self.core.no_release_said, true);
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
        if !said && let Some(Allowed { suppressed }) = self.core.line(now, from) {
            tracing::warn!(datapath = from.0, flow = entry.id.flow, %why, suppressed, "a datapath refused a command");
        }
        let mut control = Control::new(now, &mut self.core, entry.algorithm, Some(at));
        self.algorithms[entry.algorithm as usize].on_refused(entry.slot, why, &mut control);
    }
}

impl Core {
    pub fn hosted(&self, algorithm: u16) -> &Hosted {
        &self.hosts[algorithm as usize].hosted
    }

    pub fn stats_mut(&mut self, algorithm: u16) -> &mut AlgorithmStats {
        &mut self.hosts[algorithm as usize].stats
    }

    pub fn capabilities(&self, datapath: DatapathId) -> Option<Capabilities> {
        Some(self.datapaths.get(&datapath)?.info.capabilities)
    }

    pub fn tenant(&self, datapath: DatapathId) -> Option<Arc<str>> {
        self.tenants.get(&datapath).cloned()
    }

    pub fn set_timer(&mut self, algorithm: u16, due: Time) {
        self.hosts[algorithm as usize].timer = Some(due);
    }

    fn line(&mut self, now: Time, datapath: DatapathId) -> Option<Allowed> {
        let owner = match self.tenants.get(&datapath) {
            Some(name) => LineOwner::Tenant(Arc::clone(name)),
            None => LineOwner::Datapath(datapath),
        };
        self.lines.entry(owner).or_default().take(now)
    }

    pub fn send(&mut self, to: DatapathId, command: Command) {
        self.work += 1;
        self.commands.push_back((to, command));
    }

    fn install(&mut self, to: DatapathId, hosted: &Hosted) {
        let offer = Offer {
            name: hosted.name.clone(),
            kernel_name: hosted.kernel_name.clone(),
            needs: hosted.needs,
            wants: hosted.wants,
            latency: hosted.latency,
        };
        self.send(to, Command::Offer(Arc::new(offer)));
        for program in &hosted.programs {
            self.send(
                to,
                Command::Install {
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
            for host in &self.hosts {
                self.commands.push_back((
                    to,
                    Command::Heartbeat {
                        algorithm: host.hosted.name.clone(),
                    },
                ));
            }
        }
    }
}
