//! Kernel TCP as a datapath of the agent: events out of rings and tables, commands into mapped words.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

use ccplane_datapath::{Capabilities, Limits, MAX_INSTRS, MAX_VARS, Program, Target, Update, VarKind};
use ccplane_units::{Bytes, Duration, Time};
use ccplane_wire::{Command, DatapathInfo, Event, FlowStats, Refusal};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::clock;
use crate::error::LoadError;
use crate::layout::{self, PADS, PROGRAMS, Record};
use crate::load::{self, AlgorithmSpec, Loaded, Memory, Options};
use crate::lock::NameLock;
use crate::memory::Access;
use crate::programs;
use crate::table::{FlowView, Words, number};

/// What the kernel datapath does for an algorithm. No [`Capabilities::TIMERS`]: a guard on `Micros` is looked at on the
/// ACK clock, since a BPF timer cannot reach the socket.
pub const CAPABILITIES: Capabilities = Capabilities::CWND
    .with(Capabilities::PACING)
    .with(Capabilities::RTT)
    .with(Capabilities::DELIVERY_RATE)
    .with(Capabilities::ECN)
    .with(Capabilities::RECOVERY);

/// Algorithms registered with this host's kernel.
///
/// Flows are numbered `generation << 32 | algorithm << 24 | slot`: unique among those that live, and a number of a flow
/// that ended is recognised. When this is dropped the algorithms are unregistered, unless they were pinned; sockets that
/// use them keep their connections and go on under the fallback.
pub struct Kernel {
    algorithms: Vec<Registered>,
    epoll: Epoll,
    limits: Limits,
    /// Answers to commands, for the next [`poll`](Kernel::poll).
    answers: VecDeque<Event<'static>>,
}

/// Counters of one algorithm, since it was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Flows that live now.
    pub flows: u64,
    /// Flows opened.
    pub opened: u64,
    /// Reports sent.
    pub reports: u64,
    /// Reports that found the ring full; their values went out with a later one.
    pub ring_lost: u64,
    /// Flows that fell back to NewReno.
    pub fallbacks: u64,
    /// Faults of programs.
    pub faults: u64,
    /// Flows that found the table full, and run NewReno.
    pub table_full: u64,
}

struct Registered {
    name: Arc<str>,
    kernel_name: String,
    latency: Duration,
    memory: Memory,
    programs: [Option<Arc<Program>>; PROGRAMS],
    /// What the agent knows of the flow in each slot.
    known: Vec<Known>,
    /// `close_lost` when the table was last looked through for flows that ended unheard.
    close_lost: u64,
    pins: Option<PathBuf>,
    /// What holds the registration; nothing for an adopted one, which its pins hold.
    _held: Option<(libbpf_rs::Link, libbpf_rs::Object)>,
    _lock: NameLock,
}

/// A flow that was announced to the agent; generation 0: none.
#[derive(Clone, Copy, Default)]
struct Known {
    generation: u32,
    epoch: u32,
    /// Slot of the program last set by the agent, plus 1; 0: none.
    program: u32,
}

impl Kernel {
    /// Registers every algorithm, or none: the first that fails takes the others with it.
    pub fn load(algorithms: &[AlgorithmSpec], options: &Options) -> Result<Kernel, LoadError> {
        let mut kernel = Kernel::empty(options.limits)?;
        for spec in algorithms {
            if !load::valid_name(&spec.kernel_name) {
                return Err(LoadError::BadName(spec.kernel_name.clone()));
            }
            let lock = NameLock::take(&spec.kernel_name)?;
            crate::pin::refuse_attached(&spec.kernel_name)?;
            crate::pin::remove_leftover(&spec.kernel_name)?;
            let Loaded {
                mut link,
                object,
                memory,
                links,
            } = load::load(spec, options)?;
            let mut programs = [const { None }; PROGRAMS];
            for (index, program) in spec.programs.iter().take(PADS).enumerate() {
                if memory.programs[index].tag.load(Relaxed) == program.uid() {
                    programs[index] = Some(program.clone());
                }
            }
            let pins = match options.pin {
                true => Some(crate::pin::pin(&spec.kernel_name, &mut link, &object, links)?),
                false => None,
            };
            kernel.add(spec, memory, programs, pins, Some((link, object)), lock)?;
        }
        Ok(kernel)
    }

    /// Takes over algorithms that an earlier process attached with [`Options::pin`]: their live flows are announced,
    /// with their windows of now, at the next [`poll`](Kernel::poll).
    pub fn adopt(algorithms: &[AlgorithmSpec], limits: &Limits) -> Result<Kernel, LoadError> {
        let mut kernel = Kernel::empty(*limits)?;
        for spec in algorithms {
            let lock = NameLock::take(&spec.kernel_name)?;
            let (path, memory) = crate::pin::open(&spec.kernel_name, Access::Write)?;
            let plane = memory.plane();
            load::set_limits(plane, limits);
            // Heartbeat before takeover: no flow may see the new agent and call it silent.
            plane.heartbeat_ns.store(clock::now().as_nanos(), SeqCst);
            plane.agent.fetch_add(1, SeqCst);
            let mut programs = [const { None }; PROGRAMS];
            for program in &spec.programs {
                let place = memory
                    .programs
                    .iter()
                    .position(|p| p.tag.load(Acquire) == program.uid());
                if let Some(place) = place {
                    programs[place] = Some(program.clone());
                }
            }
            kernel.add(spec, memory, programs, Some(path), None, lock)?;
            let index = kernel.algorithms.len() - 1;
            let opened = kernel.algorithms[index].take_over(index);
            kernel.answers.extend(opened);
        }
        Ok(kernel)
    }

    fn empty(limits: Limits) -> Result<Kernel, LoadError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(std::io::Error::from)
            .map_err(LoadError::io("creating an epoll instance"))?;
        Ok(Kernel {
            algorithms: Vec::new(),
            epoll,
            limits,
            answers: VecDeque::new(),
        })
    }

    fn add(
        &mut self,
        spec: &AlgorithmSpec,
        memory: Memory,
        programs: [Option<Arc<Program>>; PROGRAMS],
        pins: Option<PathBuf>,
        held: Option<(libbpf_rs::Link, libbpf_rs::Object)>,
        lock: NameLock,
    ) -> Result<(), LoadError> {
        // Edge-triggered: what wakes is the kernel's decision to wake (bpf/report.h), not that something waits.
        self.epoll
            .add(
                memory.ring.as_fd(),
                EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0),
            )
            .map_err(std::io::Error::from)
            .map_err(LoadError::io("watching the ring"))?;
        let known = vec![Known::default(); memory.table.len()];
        self.algorithms.push(Registered {
            name: spec.name.clone(),
            kernel_name: spec.kernel_name.clone(),
            latency: spec.latency,
            memory,
            programs,
            known,
            close_lost: 0,
            pins,
            _held: held,
            _lock: lock,
        });
        Ok(())
    }

    /// What it says of itself to the agent, as [`Event::Ready`].
    pub fn info(&self) -> DatapathInfo {
        DatapathInfo {
            id: std::process::id(),
            kind: "linux".to_owned(),
            capabilities: CAPABILITIES,
            max_programs: PROGRAMS as u32,
            max_instrs: MAX_INSTRS as u32,
            max_vars: MAX_VARS as u32,
            fallback_after: Some(self.limits.fallback_after),
        }
    }

    /// Hands every event that waits to `sink`, without waiting and without a system call. The number of events.
    pub fn drain(&mut self, sink: &mut impl FnMut(Event<'_>)) -> usize {
        let mut events = 0;
        let mut count = |event: Event<'_>| {
            events += 1;
            sink(event);
        };
        for algorithm in &self.algorithms {
            algorithm.memory.plane().reader.store(layout::READER_RUNNING, SeqCst);
        }
        while let Some(event) = self.answers.pop_front() {
            count(event);
        }
        for (index, algorithm) in self.algorithms.iter_mut().enumerate() {
            algorithm.drain(index, &mut count);
        }
        events
    }

    /// Sleeps until something urgent happens, a first report comes after a silence, or `timeout` passes. `busy`: reports
    /// keep coming, so rather than being woken by each, sleep for as long as the algorithms allow them to wait.
    pub fn sleep(&self, timeout: Duration, busy: bool) {
        let latency = self.algorithms.iter().map(|a| a.latency).min().unwrap_or(timeout);
        let short = timeout.min(latency);
        if busy {
            return self.wait(short, layout::READER_POLLING);
        }
        // A report that looked at the reader's state just before it changed wakes nobody: it waits for the short sleep.
        let started = clock::now();
        self.wait(short, layout::READER_IDLE);
        let rest = timeout.saturating_sub(clock::now().since(started));
        let woken = self
            .algorithms
            .iter()
            .any(|a| a.memory.plane().reader.load(Relaxed) == layout::READER_RUNNING);
        if rest > Duration::ZERO && !woken {
            self.wait(rest, layout::READER_IDLE);
        }
    }

    fn wait(&self, timeout: Duration, state: u32) {
        for algorithm in &self.algorithms {
            algorithm.memory.plane().reader.store(state, SeqCst);
        }
        fence(SeqCst);
        let rings = || self.algorithms.iter().map(|a| &a.memory.ring);
        let stay = match state {
            layout::READER_IDLE => rings().all(|ring| ring.is_empty()),
            _ => !rings().any(|ring| ring.has_urgent()),
        };
        if stay && self.answers.is_empty() {
            crate::memory::epoll_wait(&self.epoll.0, timeout);
        }
        for algorithm in &self.algorithms {
            algorithm.memory.plane().reader.store(layout::READER_RUNNING, SeqCst);
        }
    }

    /// [`drain`](Kernel::drain), after a [`sleep`](Kernel::sleep) of at most `timeout` where nothing waited.
    pub fn poll(&mut self, timeout: Duration, sink: &mut impl FnMut(Event<'_>)) -> usize {
        match self.drain(sink) {
            0 if timeout > Duration::ZERO => {
                self.sleep(timeout, false);
                self.drain(sink)
            }
            events => events,
        }
    }

    /// Does as the agent says, without a system call. A refusal comes back as an event.
    pub fn apply(&mut self, command: &Command) {
        let (flow, program, result) = match command {
            Command::Heartbeat { algorithm } => {
                self.heartbeat(algorithm);
                return;
            }
            Command::Install { algorithm, program } => {
                let index = self.algorithms.iter().position(|a| a.name == *algorithm);
                let result = match index {
                    Some(index) => self.algorithms[index].install(program),
                    None => Err(Refusal::Other(format!(
                        "`{algorithm}` is not registered with this kernel"
                    ))),
                };
                if result.is_ok() {
                    self.answers.push_back(Event::Installed { program: program.uid() });
                }
                (None, program.uid(), result)
            }
            Command::SetProgram { flow, uid, updates } => {
                let result = self.command(*flow, Some(*uid), updates.as_slice());
                (Some(*flow), *uid, result)
            }
            Command::Update { flow, updates } => (Some(*flow), 0, self.command(*flow, None, updates.as_slice())),
        };
        if let Err(why) = result {
            self.answers.push_back(Event::Refused { flow, program, why });
        }
    }

    /// The thread that runs the callbacks of `algorithm` is alive.
    pub fn heartbeat(&self, algorithm: &str) {
        for registered in self.algorithms.iter().filter(|a| *a.name == *algorithm) {
            registered
                .memory
                .plane()
                .heartbeat_ns
                .store(clock::now().as_nanos(), Relaxed);
        }
    }

    fn command(&mut self, flow: u64, uid: Option<u32>, updates: &[Update]) -> Result<(), Refusal> {
        let algorithm = self
            .algorithms
            .get_mut((flow >> 24 & 0xff) as usize)
            .ok_or(Refusal::UnknownFlow)?;
        algorithm.command((flow & 0xff_ffff) as usize, (flow >> 32) as u32, uid, updates)
    }

    /// The flows that live, as the kernel shows them.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> {
        let algorithms = self.algorithms.iter().enumerate();
        algorithms.flat_map(|(index, algorithm)| algorithm.memory.flows(index, &algorithm.kernel_name))
    }

    /// Counters by algorithm: its name, its kernel name, its counts.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &str, Counters)> {
        self.algorithms
            .iter()
            .map(|a| (&*a.name, &*a.kernel_name, crate::counters::sum(a.memory.plane())))
    }

    /// Puts other limits into force, for live flows too.
    pub fn set_limits(&mut self, limits: &Limits) {
        self.limits = *limits;
        for algorithm in &self.algorithms {
            load::set_limits(algorithm.memory.plane(), limits);
        }
    }

    /// Where the pinned algorithms are pinned.
    pub fn pins(&self) -> impl Iterator<Item = &PathBuf> {
        self.algorithms.iter().filter_map(|a| a.pins.as_ref())
    }
}

impl Registered {
    /// The first look of a new agent: nothing that was said to the one before it counts.
    fn take_over(&mut self, index: usize) -> Vec<Event<'static>> {
        self.memory.ring.skip();
        self.close_lost = crate::counters::close_lost(self.memory.plane());
        let live: Vec<(usize, u32)> = self.memory.live().collect();
        let opened = live.into_iter().map(|(slot, generation)| {
            let entry = &self.memory.table[slot];
            entry.control.clear();
            self.known[slot] = Known {
                generation,
                epoch: entry.shown.epoch.load(Relaxed),
                program: 0,
            };
            Event::FlowOpened {
                flow: number(index, slot, generation),
                info: entry.info(&self.kernel_name, true),
            }
        });
        opened.collect()
    }

    fn drain(&mut self, index: usize, sink: &mut impl FnMut(Event<'_>)) {
        let Registered {
            memory,
            known,
            kernel_name,
            ..
        } = self;
        let (ring, table) = (&mut memory.ring, &memory.table);
        ring.drain(&mut |words| {
            let Some((record, rest)) = Record::split(words) else {
                return;
            };
            let slot = record.slot as usize;
            let (Some(known), Some(entry)) = (known.get_mut(slot), table.get(slot)) else {
                return;
            };
            let flow = number(index, slot, record.generation);
            match record.kind {
                layout::REC_OPEN if known.generation == record.generation => known.epoch = record.epoch,
                layout::REC_OPEN | layout::REC_RESUME => {
                    if !entry.holds(record.generation) {
                        return; // it ended already, and its closing follows
                    }
                    let live = record.kind == layout::REC_RESUME;
                    *known = Known {
                        generation: record.generation,
                        epoch: record.epoch,
                        program: 0,
                    };
                    let info = entry.info(kernel_name, live);
                    sink(Event::FlowOpened { flow, info });
                }
                _ if known.generation != record.generation => {} // of a flow that was never announced, or ended
                layout::REC_REPORT => {
                    known.epoch = record.epoch;
                    sink(Event::Report {
                        flow,
                        program: record.tag,
                        urgent: record.flags & layout::REC_URGENT != 0,
                        fields: rest,
                    });
                }
                layout::REC_CLOSE => {
                    *known = Known::default();
                    let word = |index| rest.get(index).copied().unwrap_or(0);
                    let opened = Time::from_micros(word(layout::closing::OPENED_US));
                    let stats = FlowStats {
                        bytes_acked: Bytes::new(word(layout::closing::ACKED)),
                        packets_lost: word(layout::closing::LOST),
                        reports: word(layout::closing::REPORTS),
                        lifetime: Time::from_micros(record.time_us).since(opened),
                    };
                    sink(Event::FlowClosed { flow, stats });
                }
                _ => {}
            }
        });
        self.find_lost_closings(index, sink);
    }

    /// Flows that ended while the ring was full.
    fn find_lost_closings(&mut self, index: usize, sink: &mut impl FnMut(Event<'_>)) {
        let lost = crate::counters::close_lost(self.memory.plane());
        if lost == self.close_lost {
            return;
        }
        self.close_lost = lost;
        for (slot, known) in self.known.iter_mut().enumerate() {
            if known.generation != 0 && !self.memory.table[slot].holds(known.generation) {
                let flow = number(index, slot, known.generation);
                *known = Known::default();
                let stats = FlowStats::default();
                sink(Event::FlowClosed { flow, stats });
            }
        }
    }

    /// Keeps a program: in the place where it is already, else in the interpreter.
    fn install(&mut self, program: &Arc<Program>) -> Result<(), Refusal> {
        if self.place(program.uid()).is_some() {
            return Ok(());
        }
        let live: Vec<u32> = self
            .memory
            .live()
            .map(|(slot, _)| self.memory.table[slot].shown.program.load(Relaxed))
            .collect();
        let free = (PADS..PROGRAMS)
            .find(|&place| self.memory.programs[place].tag.load(Relaxed) == 0)
            .or_else(|| {
                (PADS..PROGRAMS).find(|&place| self.programs[place].is_none() && !live.contains(&(place as u32)))
            })
            .ok_or(Refusal::TableFull)?;
        let code = crate::codegen::interpreter_code(program);
        if code.len() > layout::CODE {
            return Err(Refusal::Invalid(format!("{} instructions are too many", code.len())));
        }
        programs::write(&self.memory.programs[free], program, &code);
        self.programs[free] = Some(program.clone());
        Ok(())
    }

    fn place(&self, uid: u32) -> Option<usize> {
        self.programs
            .iter()
            .position(|p| p.as_ref().is_some_and(|p| p.uid() == uid))
    }

    fn command(&mut self, slot: usize, generation: u32, uid: Option<u32>, updates: &[Update]) -> Result<(), Refusal> {
        let place = match uid {
            Some(uid) => Some(self.place(uid).ok_or(Refusal::UnknownProgram(uid))?),
            None => None,
        };
        let known = self
            .known
            .get_mut(slot)
            .filter(|known| known.generation == generation && generation != 0);
        let known = known.ok_or(Refusal::UnknownFlow)?;
        let runs = place.or_else(|| (known.program as usize).checked_sub(1));
        let program = runs.and_then(|place| self.programs[place].as_deref());
        for update in updates {
            if let Target::Var(index) = update.target {
                let vars = program.map(Program::vars).unwrap_or_default();
                if vars
                    .get(usize::from(index))
                    .is_none_or(|var| var.kind != VarKind::Control)
                {
                    let what = format!("variable {index} of a program with {} variables", vars.len());
                    return Err(Refusal::BadTarget(what));
                }
            }
        }
        if let Some(place) = place {
            known.program = place as u32 + 1;
        }
        let words = Words {
            program: place.zip(uid).map(|(place, uid)| (place as u32, uid)),
            updates,
        };
        self.memory.table[slot].control.write(generation, known.epoch, &words);
        Ok(())
    }
}
