//! Agents inside the simulation, and the datapath flows that they steer.
//!
//! A steered flow runs its program at every ACK at once. Its reports reach the agent, and the agent's commands the flow,
//! after a delay each: reading, deciding and writing take time outside a simulation.

use std::collections::VecDeque;
use std::sync::Arc;

use ccplane_agent::{Agent, AlgorithmStats, DatapathId, DatapathInfo, FlowInfo, FlowStats};
use ccplane_datapath::{self as datapath, Limits, Outcome, ProgramTable, Urgency};
use ccplane_transport::{CAPABILITIES, Control, Event as Happened, Native};
use ccplane_units::{Bytes, Duration, Time};
use ccplane_wire::{Command, Event, Refusal};

/// An agent of a simulation, numbered in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub(crate) u32);

/// How an agent is connected to the flows that it steers.
#[derive(Clone, Copy, Debug)]
pub struct SteerOptions {
    /// How old a report is when the agent sees it.
    pub to_agent: Duration,
    /// How long a command takes to the flow.
    pub from_agent: Duration,
    /// What the owner of the hosts allows.
    pub limits: Limits,
}

impl Default for SteerOptions {
    /// 20 µs each way, what CCP's authors measured between a kernel and its agent (papers/ccp-evaluation).
    fn default() -> SteerOptions {
        SteerOptions {
            to_agent: Duration::from_micros(20),
            from_agent: Duration::from_micros(20),
            limits: Limits::default(),
        }
    }
}

/// Variables of a program, and programs of an algorithm, that there is room for. Cubic's own program has 28 variables.
pub(crate) const VARS: usize = 32;
pub(crate) const PROGRAMS: usize = 8;

/// An agent with what lies between it and its flows.
pub(crate) struct Host {
    agent: Agent,
    id: DatapathId,
    options: SteerOptions,
    tables: Vec<(Arc<str>, ProgramTable<PROGRAMS>)>,
    /// The empty table of flows that have no program yet: it makes them fall back when none comes.
    nobody: ProgramTable<PROGRAMS>,
    to_agent: VecDeque<(Time, Message)>,
    from_agent: VecDeque<(Time, Command)>,
    /// When the next of either is due, if that is planned, and when the agent's next deadline is.
    pub due: Time,
    pub deadline: Time,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A flow under an agent.
#[derive(Debug)]
pub(crate) struct Steered {
    pub flow: datapath::Flow<VARS>,
    pub host: u32,
    table: u32,
    pub in_fallback: bool,
}

/// What a steered flow takes in memory more than one under a native control, bytes.
pub const STEERED_FLOW_EXTRA_BYTES: usize = size_of::<Option<Steered>>() - size_of::<Native>();

#[expect(clippy::large_enum_variant, reason = "nearly all of them are reports")]
enum Message {
    Report {
        flow: u32,
        program: u32,
        urgent: bool,
        count: u8,
        fields: [u64; VARS],
    },
    Opened(u32, Box<FlowInfo>),
    Closed(u32, FlowStats),
    Refused(Option<u32>, u32, Refusal),
    Installed(u32),
}

impl Host {
    pub fn new(agent: Agent, options: SteerOptions, index: u32) -> Host {
        let mut host = Host {
            agent,
            id: DatapathId(index),
            options,
            tables: Vec::new(),
            nobody: ProgramTable::new(options.limits, CAPABILITIES),
            to_agent: VecDeque::new(),
            from_agent: VecDeque::new(),
            due: Time::MAX,
            deadline: Time::MAX,
        };
        // The agent is there before the simulation begins: its programs are in place at time 0.
        let info = DatapathInfo {
            id: index,
            kind: "sim".to_owned(),
            capabilities: CAPABILITIES,
            max_programs: PROGRAMS as u32,
            max_instrs: datapath::MAX_INSTRS as u32,
            max_vars: VARS as u32,
            fallback_after: Some(options.limits.fallback_after),
        };
        host.agent.handle(Time::ZERO, host.id, Event::Ready { datapath: info });
        while let Some((_, command)) = host.agent.poll() {
            match command {
                Command::Install { algorithm, program } => host.install(Time::ZERO, &algorithm, &program),
                Command::Heartbeat { algorithm } => host.table_of(&algorithm).heartbeat(Time::ZERO),
                Command::SetProgram { .. } | Command::Update { .. } => {}
            }
        }
        host
    }

    /// Whether it has an algorithm of this name; an empty one is the first.
    pub fn offers(&self, algorithm: &str) -> bool {
        let mut hosted = self.agent.hosted();
        match algorithm {
            "" => hosted.next().is_some(),
            _ => hosted.any(|hosted| *hosted.name == *algorithm || hosted.kernel_name == algorithm),
        }
    }

    pub fn stats(&self, algorithm: &str) -> Option<AlgorithmStats> {
        self.agent.stats(algorithm)
    }

    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    pub fn open(&mut self, now: Time, flow: u32, info: FlowInfo) {
        self.tell(now, Message::Opened(flow, Box::new(info)));
    }

    pub fn close(&mut self, now: Time, flow: u32, stats: FlowStats) {
        self.tell(now, Message::Closed(flow, stats));
    }

    fn tell(&mut self, now: Time, message: Message) {
        self.to_agent.push_back((now + self.options.to_agent, message));
    }

    /// When something reaches either side next.
    pub fn next_due(&self) -> Time {
        let agent = self.to_agent.front().map_or(Time::MAX, |(due, _)| *due);
        let flows = self.from_agent.front().map_or(Time::MAX, |(due, _)| *due);
        agent.min(flows)
    }

    pub fn next_deadline(&self) -> Time {
        self.agent.next_deadline().unwrap_or(Time::MAX)
    }

    /// The agent gets what has come by now.
    pub fn deliver(&mut self, now: Time) {
        while let Some((due, _)) = self.to_agent.front()
            && *due <= now
            && let Some((_, message)) = self.to_agent.pop_front()
        {
            let event = match &message {
                Message::Report {
                    flow,
                    program,
                    urgent,
                    count,
                    fields,
                } => Event::Report {
                    flow: u64::from(*flow),
                    program: *program,
                    urgent: *urgent,
                    fields: fields.get(..usize::from(*count)).unwrap_or_default(),
                },
                Message::Opened(flow, info) => Event::FlowOpened {
                    flow: u64::from(*flow),
                    info: info.as_ref().clone(),
                },
                Message::Closed(flow, stats) => Event::FlowClosed {
                    flow: u64::from(*flow),
                    stats: *stats,
                },
                Message::Refused(flow, program, why) => Event::Refused {
                    flow: flow.map(u64::from),
                    program: *program,
                    why: why.clone(),
                },
                Message::Installed(program) => Event::Installed { program: *program },
            };
            self.agent.handle(now, self.id, event);
        }
        self.collect(now);
    }

    /// The agent's deadline has come.
    pub fn on_deadline(&mut self, now: Time) {
        self.agent.on_deadline(now);
        self.collect(now);
    }

    fn collect(&mut self, now: Time) {
        while let Some((_, command)) = self.agent.poll() {
            self.from_agent.push_back((now + self.options.from_agent, command));
        }
    }

    /// The next command that reaches a flow now; the flow's number. Others are done at once.
    pub fn next_command(&mut self, now: Time) -> Option<(u32, Command)> {
        while let Some((due, _)) = self.from_agent.front()
            && *due <= now
            && let Some((_, command)) = self.from_agent.pop_front()
        {
            match &command {
                Command::Install { algorithm, program } => self.install(now, algorithm, program),
                Command::Heartbeat { algorithm } => self.table_of(algorithm).heartbeat(now),
                Command::SetProgram { flow, .. } | Command::Update { flow, .. } => {
                    return Some((u32::try_from(*flow).unwrap_or(u32::MAX), command));
                }
            }
        }
        None
    }

    /// Applies a command to its flow; `None` for a flow that is gone.
    pub fn apply(&mut self, now: Time, number: u32, flow: Option<&mut Steered>, command: &Command) {
        let (uid, updates) = match command {
            Command::SetProgram { uid, updates, .. } => (Some(*uid), updates),
            Command::Update { updates, .. } => (None, updates),
            Command::Install { .. } | Command::Heartbeat { .. } => return,
        };
        let result = match flow {
            None => Err(Refusal::UnknownFlow),
            Some(steered) => {
                let table = match uid {
                    Some(uid) => self.tables.iter().position(|(_, table)| table.get(uid).is_some()),
                    None => Some(steered.table as usize).filter(|table| *table < self.tables.len()),
                };
                match table.and_then(|index| Some((index, &self.tables.get(index)?.1))) {
                    None => Err(Refusal::UnknownProgram(uid.unwrap_or(0))),
                    Some((index, programs)) => {
                        let command = match uid {
                            Some(uid) => datapath::Command::SetProgram {
                                uid,
                                updates: updates.as_slice(),
                            },
                            None => datapath::Command::Update(updates.as_slice()),
                        };
                        let applied = steered.flow.apply(now, &command, programs);
                        if applied.is_ok() {
                            steered.table = index as u32;
                        }
                        applied.map_err(Refusal::from)
                    }
                }
            }
        };
        if let Err(why) = result {
            self.tell(now, Message::Refused(Some(number), uid.unwrap_or(0), why));
        }
    }

    fn install(&mut self, now: Time, algorithm: &Arc<str>, program: &Arc<datapath::Program>) {
        let uid = program.uid();
        let message = match self.table_of(algorithm).install(program.as_ref().clone()) {
            Ok(()) => Message::Installed(uid),
            Err(why) => Message::Refused(None, uid, why.into()),
        };
        self.tell(now, message);
    }

    fn table_of(&mut self, algorithm: &Arc<str>) -> &mut ProgramTable<PROGRAMS> {
        let index = match self.tables.iter().position(|(name, _)| name == algorithm) {
            Some(index) => index,
            None => {
                let table = ProgramTable::new(self.options.limits, CAPABILITIES);
                self.tables.push((algorithm.clone(), table));
                self.tables.len() - 1
            }
        };
        &mut self.tables[index].1
    }
}

impl Steered {
    pub fn new(now: Time, host: u32, initial_window: Bytes) -> Steered {
        Steered {
            flow: datapath::Flow::new(now, initial_window.get()),
            host,
            table: u32::MAX,
            in_fallback: false,
        }
    }
}

/// A steered flow and its agent, as the transport sees them.
pub(crate) struct Steering<'a> {
    pub steered: &'a mut Steered,
    pub host: &'a mut Host,
    /// The flow's number.
    pub number: u32,
}

impl Steering<'_> {
    #[inline(always)]
    fn answer(
        &mut self,
        now: Time,
        run: impl FnOnce(&mut datapath::Flow<VARS>, &ProgramTable<PROGRAMS>) -> Outcome,
    ) -> Outcome {
        let host = &mut *self.host;
        let programs = host
            .tables
            .get(self.steered.table as usize)
            .map_or(&host.nobody, |(_, table)| table);
        let outcome = run(&mut self.steered.flow, programs);
        self.steered.in_fallback = outcome.fallback;
        if let Some(urgency) = outcome.report {
            let values = self.steered.flow.report(programs);
            let mut fields = [0; VARS];
            for (field, value) in fields.iter_mut().zip(values) {
                *field = *value;
            }
            let message = Message::Report {
                flow: self.number,
                program: self.steered.flow.program_uid().unwrap_or(0),
                urgent: urgency == Urgency::Urgent,
                count: values.len().min(VARS) as u8,
                fields,
            };
            host.to_agent.push_back((now + host.options.to_agent, message));
            self.steered.flow.report_queued(programs);
        }
        outcome
    }
}

impl Control for Steering<'_> {
    const STEERED: bool = true;

    #[inline(always)]
    fn on_event(&mut self, event: &Happened<'_>) -> Outcome {
        self.answer(event.now, |flow, programs| {
            flow.on_ack(&event.transport(), &event.signals(), programs)
        })
    }

    fn next_deadline(&self) -> Option<Time> {
        self.steered.flow.next_deadline()
    }

    fn on_deadline(&mut self, event: &Happened<'_>) -> Outcome {
        self.answer(event.now, |flow, programs| {
            flow.on_deadline(&event.transport(), programs)
        })
    }
}
