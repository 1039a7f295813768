//! Kernel TCP as a datapath of the agent: events from rings and tables, commands into mapped
//! memory.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

use ccplane_datapath::{Capabilities, INSTRS_MAX, OperatorLimits, Update, VARS_MAX};
use ccplane_units::Duration;
use ccplane_wire::{DatapathInfo, Refusal, Tags, WireCommand, WireEvent};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::clock;
use crate::cost::Cost;
use crate::error::LoadError;
use crate::map::layout::{self, PROGRAMS_MAX};
use crate::map::memory::Access;
use crate::map::table::{FlowView, Flows};
use crate::registration::holder::{BenchMemory, Holder};
use crate::registration::live::LiveRegistration;
use crate::registration::load::{self, AlgorithmSpec, LoadedObject, RegistrationOptions};
use crate::registration::lock::NameLock;

/// Capabilities of the kernel datapath for every algorithm. [`Capabilities::ONE_WAY_DELAY`] is
/// added if registrations use timestamps ([`RegistrationOptions::stamps`]), and
/// [`Capabilities::TIMERS`] if algorithms want timers ([`AlgorithmSpec::wants`]). Without timers a
/// guard on `Micros` is evaluated only on ACKs, which saves copying the registers on each. A timer
/// cannot access the socket: its report is sent on time, but window and rate that it sets take
/// effect with the next ACK or timeout.
pub const CAPABILITIES: Capabilities = Capabilities::CWND
    .union(Capabilities::PACING)
    .union(Capabilities::RTT)
    .union(Capabilities::DELIVERY_RATE)
    .union(Capabilities::ECN)
    .union(Capabilities::RECOVERY)
    .union(Capabilities::KEEPS_WINDOW);

/// Algorithms registered with this host's kernel.
///
/// Flow numbers are `generation << 32 | algorithm << 24 | slot`: they are unique among live flows,
/// and the number of an ended flow is recognised. Dropping this unregisters the algorithms unless
/// they are pinned. Sockets that use them keep their connections and continue in fallback.
///
/// Only loading, adopting and detaching need capabilities. Afterwards it can be used by an
/// unprivileged thread ([`run_agent_unprivileged`](crate::run_agent_unprivileged)). Programs
/// installed later are compiled by a thread that [`load`](Kernel::load) starts with its caller's
/// capabilities.
pub struct Kernel {
    algorithms: Vec<LiveRegistration>,
    epoll: Epoll,
    limits: OperatorLimits,
    /// [`CAPABILITIES`] and those that depend on the registrations.
    capabilities: Capabilities,
    /// Answers to commands, delivered by the next [`poll`](Kernel::poll).
    pending_events: VecDeque<WireEvent<'static>>,
}

/// Counters of one algorithm since its registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlgorithmCounters {
    /// Live flows.
    pub flows: u64,
    /// Flows opened.
    pub opened: u64,
    /// Reports sent.
    pub reports: u64,
    /// Reports that did not fit in the ring. A later report carries their values.
    pub ring_lost: u64,
    /// Flows that fell back to NewReno: the agent was silent or released them, or their standalone
    /// program faulted.
    pub fallbacks: u64,
    /// Arithmetic faults of programs.
    pub faults: u64,
    /// Live flows without a table slot. They run NewReno, invisible to the agent, until they get
    /// one.
    pub without_slot: u64,
    /// Flows that got no slot when they started.
    pub table_full: u64,
    /// Part of `table_full`: the share of the flow's network namespace was used up although slots
    /// were free.
    pub share_full: u64,
    /// Timestamp exchanges that gave a one-way delay.
    pub stamps: u64,
    /// Timestamp exchanges that are impossible.
    pub stamps_dropped: u64,
}

impl Kernel {
    /// Registers all algorithms, or none: if one fails, the others are unregistered.
    pub fn load(
        algorithms: &[AlgorithmSpec],
        options: &RegistrationOptions,
    ) -> Result<Kernel, LoadError> {
        crate::privilege::require_capabilities()?;
        let mut kernel = Kernel::empty(options.limits)?;
        if options.stamps.is_some() {
            kernel.capabilities = CAPABILITIES.union(Capabilities::ONE_WAY_DELAY);
        }
        for spec in algorithms {
            if !load::valid_name(&spec.kernel_name) {
                return Err(LoadError::BadName(spec.kernel_name.clone()));
            }
            let mut lock = NameLock::acquire(&spec.kernel_name)?;
            crate::registration::pin::ensure_not_attached(&spec.kernel_name)?;
            kernel
                .check_capabilities(spec, spec.has_timers())
                .map_err(|why| LoadError::Lacks {
                    name: spec.kernel_name.clone(),
                    why,
                })?;
            crate::registration::pin::unregister_leftover(&spec.kernel_name)?;
            let LoadedObject {
                mut link,
                object,
                memory,
                pads,
                features,
            } = load::load(spec, options)?;
            let pins = match options.pin {
                true => Some(crate::registration::pin::pin(
                    &spec.kernel_name,
                    &mut link,
                    &object,
                    features.links,
                )?),
                false => None,
            };
            if let Some(pins) = &pins {
                lock.lock_pins(pins)?;
            }
            let places = std::array::from_fn(|place| pads.get(place).cloned().flatten());
            let holder = Holder::new(link, object, pads, spec, options, features);
            let mut algorithm =
                LiveRegistration::new(spec, memory, places, pins, Some(holder), lock);
            for program in &spec.programs {
                if let Err(refusal) = algorithm.install(program) {
                    tracing::warn!(uid = program.uid(), %refusal, "a declared program has a slot");
                }
            }
            kernel.add(algorithm)?;
            kernel.activate_last()?;
        }
        kernel.detect_timers();
        Ok(kernel)
    }

    /// Takes over algorithms that an earlier process attached with [`RegistrationOptions::pin`].
    /// Their live flows are announced with their current windows at the next
    /// [`poll`](Kernel::poll).
    pub fn adopt(
        algorithms: &[AlgorithmSpec],
        limits: &OperatorLimits,
    ) -> Result<Kernel, LoadError> {
        crate::privilege::require_capabilities()?;
        let mut kernel = Kernel::empty(*limits)?;
        for spec in algorithms {
            let mut lock = NameLock::acquire(&spec.kernel_name)?;
            let (path, memory) = crate::registration::pin::open(&spec.kernel_name, Access::Write)?;
            lock.lock_pins(&path)?;
            if crate::stamp::storage(&spec.kernel_name).is_some() {
                kernel.capabilities = CAPABILITIES.union(Capabilities::ONE_WAY_DELAY);
            }
            kernel
                .check_capabilities(spec, memory.plane().timed.load(Relaxed) != 0)
                .map_err(|why| LoadError::Lacks {
                    name: spec.kernel_name.clone(),
                    why,
                })?;
            load::set_limits(memory.plane(), limits);
            load::set_home_namespace(memory.plane())?;
            let places = std::array::from_fn(|place| {
                let tag = memory.programs[place].tag.load(Acquire);
                spec.programs
                    .iter()
                    .find(|program| program.uid() == tag)
                    .cloned()
            });
            kernel.add(LiveRegistration::new(
                spec,
                memory,
                places,
                Some(path),
                None,
                lock,
            ))?;
            kernel.activate_last()?;
            let index = kernel.algorithms.len() - 1;
            let opened = kernel.algorithms[index].take_over(index);
            kernel.pending_events.extend(opened);
        }
        kernel.detect_timers();
        Ok(kernel)
    }

    /// Sets the tags of all flows announced from now on, including live flows whose announcement is
    /// pending.
    pub fn set_tags(&mut self, tags: &Tags) {
        for algorithm in &mut self.algorithms {
            algorithm.tags = tags.clone();
        }
        for answer in &mut self.pending_events {
            if let WireEvent::FlowOpened { info, .. } = answer {
                info.tags = tags.clone();
            }
        }
    }

    /// Sets whether an agent or a standalone program controls the algorithm added last.
    fn activate_last(&mut self) -> Result<(), LoadError> {
        let Some(algorithm) = self.algorithms.last_mut() else {
            return Ok(());
        };
        let name = algorithm.spec.kernel_name.clone();
        algorithm
            .activate()
            .map_err(|why| LoadError::NoPlace { name, why })
    }

    /// Replaces the standalone program, for live flows too. Live flows interpret it. New flows run
    /// it compiled once it is, if a pad is free. On a refusal the previous program stays.
    pub fn replace(&mut self, spec: &AlgorithmSpec) -> Result<(), Refusal> {
        let of_that_name =
            |algorithm: &LiveRegistration| algorithm.spec.kernel_name == spec.kernel_name;
        let unknown = || {
            Refusal::Other(format!(
                "{} is not registered with this kernel",
                spec.kernel_name
            ))
        };
        let index = self
            .algorithms
            .iter()
            .position(of_that_name)
            .ok_or_else(unknown)?;
        let timed = self.algorithms[index].memory.plane().timed.load(Relaxed) != 0;
        self.check_capabilities(spec, timed)?;
        self.algorithms[index].replace(spec)
    }

    /// Checks that the datapath has the capabilities that a standalone program needs. For other
    /// programs the agent checks, per flow. `timed`: the flows have timers.
    fn check_capabilities(&self, spec: &AlgorithmSpec, timed: bool) -> Result<(), Refusal> {
        let timers = match timed {
            true => Capabilities::TIMERS,
            false => Capabilities::default(),
        };
        let missing = spec.needs.missing_from(self.capabilities.union(timers));
        match spec.standalone {
            Some(_) if !missing.is_empty() => Err(Refusal::MissingCapabilities(missing)),
            _ => Ok(()),
        }
    }

    /// Adds the timer capability if all algorithms have timers.
    fn detect_timers(&mut self) {
        let mut planes = self
            .algorithms
            .iter()
            .map(|algorithm| algorithm.memory.plane());
        if !self.algorithms.is_empty() && planes.all(|plane| plane.timed.load(Relaxed) != 0) {
            self.capabilities = self.capabilities.union(Capabilities::TIMERS);
        }
    }

    /// Returns the shared memory of the first algorithm from the datapath's side, for the bench.
    pub(crate) fn bench_memory(&self) -> Result<BenchMemory, LoadError> {
        let mismatch = || LoadError::Mismatch("nothing is registered".to_owned());
        let holder = self
            .algorithms
            .first()
            .and_then(|a| a.holder.as_ref())
            .ok_or_else(mismatch)?;
        holder.bench_memory()
    }

    fn empty(limits: OperatorLimits) -> Result<Kernel, LoadError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(std::io::Error::from)
            .map_err(LoadError::io("creating an epoll instance"))?;
        Ok(Kernel {
            algorithms: Vec::new(),
            epoll,
            limits,
            capabilities: CAPABILITIES,
            pending_events: VecDeque::new(),
        })
    }

    fn add(&mut self, algorithm: LiveRegistration) -> Result<(), LoadError> {
        // Edge-triggered: the kernel decides when to wake the reader (bpf/ring.h), not the
        // presence of data.
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
        self.epoll
            .add(algorithm.memory.ring.as_fd(), event)
            .map_err(std::io::Error::from)
            .map_err(LoadError::io("watching the ring"))?;
        self.algorithms.push(algorithm);
        Ok(())
    }

    /// Prepares for a new agent: the live flows are announced to it, with their current windows, at
    /// the next [`poll`](Kernel::poll).
    pub fn announce(&mut self) {
        self.pending_events.clear();
        for (index, algorithm) in self.algorithms.iter_mut().enumerate() {
            self.pending_events.extend(algorithm.take_over(index));
        }
    }

    /// Makes [`sleep`](Kernel::sleep) return also when `fd` is readable. Closing `fd` removes it.
    pub fn add_wakeup(&self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        Ok(self
            .epoll
            .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?)
    }

    /// Returns the description of this datapath for [`WireEvent::Ready`].
    pub fn info(&self) -> DatapathInfo {
        DatapathInfo {
            id: std::process::id(),
            kind: "linux".to_owned(),
            capabilities: self.capabilities,
            max_programs: PROGRAMS_MAX as u32,
            max_instrs: INSTRS_MAX as u32,
            max_vars: VARS_MAX as u32,
            agent_timeout: Some(self.limits.agent_timeout),
        }
    }

    /// Passes all pending events to `sink`, in batches, without waiting and without a system call.
    /// Returns the number of events.
    pub fn drain(&mut self, sink: &mut impl FnMut(Vec<WireEvent<'_>>)) -> usize {
        let mut events = 0;
        let mut count = |batch: Vec<WireEvent<'_>>| {
            events += batch.len();
            sink(batch);
        };
        for algorithm in &self.algorithms {
            algorithm
                .memory
                .plane()
                .reader
                .store(layout::READER_RUNNING, SeqCst);
        }
        if !self.pending_events.is_empty() {
            count(self.pending_events.drain(..).collect());
        }
        for (index, algorithm) in self.algorithms.iter_mut().enumerate() {
            algorithm.drain(index, &mut count);
        }
        events
    }

    /// Sleeps until an urgent record, the first report after a period without any, or `timeout`.
    /// With `busy`, reports are frequent: instead of waking for each, sleeps up to the latency that
    /// the algorithms allow.
    pub fn sleep(&self, timeout: Duration, busy: bool) {
        let latency = self
            .algorithms
            .iter()
            .map(|a| a.spec.latency)
            .min()
            .unwrap_or(timeout);
        let short = timeout.min(latency);
        match busy {
            true => self.set_reader(layout::READER_POLLING),
            false => self.set_reader(layout::READER_IDLE),
        }
        // A report that read the reader's state just before it changed wakes nobody. The end of the
        // short sleep finds it.
        let wait = |timeout| crate::map::memory::epoll_wait(&self.epoll.0, timeout);
        if !self.has_work(busy) && !wait(short) && !busy && !self.has_work(busy) {
            wait(timeout.saturating_sub(short));
        }
        self.set_reader(layout::READER_RUNNING);
    }

    fn set_reader(&self, state: u32) {
        for algorithm in &self.algorithms {
            algorithm.memory.plane().reader.store(state, SeqCst);
        }
        fence(SeqCst);
    }

    /// Returns true if events are pending; with `busy`, urgent ones.
    fn has_work(&self, busy: bool) -> bool {
        let mut rings = self.algorithms.iter().map(|a| &a.memory.ring);
        !self.pending_events.is_empty()
            || rings.any(|ring| {
                if busy {
                    ring.has_urgent()
                } else {
                    !ring.is_empty()
                }
            })
    }

    /// Like [`drain`](Kernel::drain), but sleeps up to `timeout` first if nothing is pending.
    pub fn poll(&mut self, timeout: Duration, sink: &mut impl FnMut(Vec<WireEvent<'_>>)) -> usize {
        match self.drain(sink) {
            0 if timeout > Duration::ZERO => {
                self.sleep(timeout, false);
                self.drain(sink)
            }
            events => events,
        }
    }

    /// Applies a command of the agent without a system call. A refusal is returned as an event.
    pub fn apply(&mut self, command: &WireCommand) {
        let (flow, program, result) = match command {
            WireCommand::Offer(_) => return,
            WireCommand::Heartbeat { algorithm } => {
                self.heartbeat(algorithm);
                return;
            }
            WireCommand::Install { algorithm, program } => {
                let index = self
                    .algorithms
                    .iter()
                    .position(|a| a.spec.name == *algorithm);
                let result = match index {
                    Some(index) => self.algorithms[index].install(program),
                    None => Err(Refusal::Other(format!(
                        "`{algorithm}` is not registered with this kernel"
                    ))),
                };
                if result.is_ok() {
                    self.pending_events.push_back(WireEvent::Installed {
                        program: program.uid(),
                    });
                }
                (None, program.uid(), result)
            }
            WireCommand::SetProgram { flow, uid, updates } => {
                let result = self.command(*flow, Some(*uid), updates.as_slice());
                (Some(*flow), *uid, result)
            }
            WireCommand::Update { flow, updates } => (
                Some(*flow),
                0,
                self.command(*flow, None, updates.as_slice()),
            ),
            WireCommand::Release { flow } => (Some(*flow), 0, self.release(*flow)),
        };
        if let Err(why) = result {
            self.pending_events
                .push_back(WireEvent::Refused { flow, program, why });
        }
    }

    /// Renews the heartbeat of `algorithm`: the thread that runs its callbacks is alive.
    pub fn heartbeat(&self, algorithm: &str) {
        for registered in self
            .algorithms
            .iter()
            .filter(|a| *a.spec.name == *algorithm)
        {
            registered
                .memory
                .plane()
                .heartbeat_ns
                .store(clock::now().as_nanos(), Relaxed);
        }
    }

    fn release(&mut self, flow: u64) -> Result<(), Refusal> {
        let algorithm = self.algorithms.get_mut((flow >> 24 & 0xff) as usize);
        let algorithm = algorithm.ok_or(Refusal::UnknownFlow)?;
        algorithm.release((flow & 0xff_ffff) as usize, (flow >> 32) as u32)
    }

    fn command(&mut self, flow: u64, uid: Option<u32>, updates: &[Update]) -> Result<(), Refusal> {
        let algorithm = self
            .algorithms
            .get_mut((flow >> 24 & 0xff) as usize)
            .ok_or(Refusal::UnknownFlow)?;
        algorithm.command(
            (flow & 0xff_ffff) as usize,
            (flow >> 32) as u32,
            uid,
            updates,
        )
    }

    /// Returns the live flows, as published by the kernel.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> {
        let algorithms = self.algorithms.iter().enumerate();
        algorithms.flat_map(|(index, algorithm)| {
            algorithm
                .memory
                .table
                .flows(index, &algorithm.spec.kernel_name)
        })
    }

    /// Returns the mapped tables of the algorithms.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &crate::map::table::FlowTable> {
        self.algorithms
            .iter()
            .map(|algorithm| &algorithm.memory.table)
    }

    /// Returns the flows for use by another thread.
    pub fn observe_flows(&self) -> Flows {
        let table = |algorithm: &LiveRegistration| {
            (
                algorithm.spec.kernel_name.clone(),
                algorithm.memory.table.clone(),
            )
        };
        Flows(self.algorithms.iter().map(table).collect())
    }

    /// Returns name, kernel name and counters of each algorithm.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &str, AlgorithmCounters)> {
        self.algorithms.iter().map(|a| {
            (
                &*a.spec.name,
                &*a.spec.kernel_name,
                crate::registration::counters::read(&a.memory),
            )
        })
    }

    /// Returns the run time of each BPF program of the registrations that this process holds. The
    /// kernel counts only while `kernel.bpf_stats_enabled` is 1, and includes its own overhead of
    /// some tens of ns per call.
    pub fn run_times(&self) -> Vec<Cost> {
        self.algorithms
            .iter()
            .filter_map(|algorithm| algorithm.holder.as_ref())
            .flat_map(Holder::run_times)
            .collect()
    }

    /// Returns true if new flows run program `uid` as generated code. A program installed later is
    /// compiled within a moment, if it fits a pad and one is free.
    pub fn is_compiled(&self, uid: u32) -> bool {
        self.algorithms
            .iter()
            .any(|algorithm| algorithm.is_compiled(uid))
    }

    /// Sets new limits, for live flows too.
    pub fn set_limits(&mut self, limits: &OperatorLimits) {
        self.limits = *limits;
        for algorithm in &self.algorithms {
            load::set_limits(algorithm.memory.plane(), limits);
        }
    }

    /// Returns the table size of each algorithm, in flows.
    pub fn slots(&self) -> impl Iterator<Item = usize> {
        self.algorithms.iter().map(|a| a.memory.table.len())
    }

    /// Returns the folders of the pinned algorithms.
    pub fn pins(&self) -> impl Iterator<Item = &PathBuf> {
        self.algorithms.iter().filter_map(|a| a.pins.as_ref())
    }
}
