//! One registered algorithm: its mapped memory, its programs, and the flows known to the agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use ccplane_datapath::{CommandTarget, Program, Update, VarKind};
use ccplane_units::{Bytes, Time};
use ccplane_wire::{FlowStats, Refusal, Tags, WireEvent};

use crate::clock;
use crate::map::layout::{self, FlowSlot, PAD_COUNT, PROGRAMS_MAX, ReportRecord};
use crate::map::table::{StagedWords, flow_number};
use crate::registration::holder::Holder;
use crate::registration::load::{AlgorithmSpec, RegistrationMemory};
use crate::registration::lock::NameLock;
use crate::registration::programs;

/// Records per batch: enough to amortise the overhead, few enough to leave room in the ring while
/// the agent works.
const BATCH_RECORDS_MAX: usize = 256;

pub(crate) struct LiveRegistration {
    pub spec: AlgorithmSpec,
    pub memory: RegistrationMemory,
    pub pins: Option<PathBuf>,
    /// Tags announced with each flow.
    pub tags: Tags,
    programs: [Option<Arc<Program>>; PROGRAMS_MAX],
    /// The flow in each slot as known to the agent.
    announced: Vec<AnnouncedFlow>,
    /// `close_lost` when the table was last scanned for flows without a closing record.
    close_lost: u64,
    /// `None` for an adopted registration, which its pins hold.
    pub holder: Option<Holder>,
    _lock: NameLock,
}

/// A flow that was announced to the agent; generation 0: none.
#[derive(Clone, Copy, Default)]
struct AnnouncedFlow {
    generation: u32,
    epoch: u32,
    /// Index of the program last set by the agent, plus 1; 0: none.
    program: u32,
}

impl LiveRegistration {
    pub fn new(
        spec: &AlgorithmSpec,
        memory: RegistrationMemory,
        programs: [Option<Arc<Program>>; PROGRAMS_MAX],
        pins: Option<PathBuf>,
        holder: Option<Holder>,
        lock: NameLock,
    ) -> LiveRegistration {
        LiveRegistration {
            spec: spec.clone(),
            announced: vec![AnnouncedFlow::default(); memory.table.len()],
            memory,
            tags: Tags::default(),
            programs,
            close_lost: 0,
            pins,
            holder,
            _lock: lock,
        }
    }

    /// Starts over for a new agent: announces all live flows and discards pending commands and
    /// records.
    pub fn take_over(&mut self, index: usize) -> Vec<WireEvent<'static>> {
        let plane = self.memory.plane();
        // Heartbeat before takeover: no flow may see the new agent and consider it silent.
        plane.heartbeat_ns.store(clock::now().as_nanos(), SeqCst);
        plane.agent.fetch_add(1, SeqCst);
        self.memory.ring.skip();
        self.close_lost = crate::registration::counters::close_lost(self.memory.plane());
        let live: Vec<(usize, u32)> = self.memory.table.live().collect();
        let opened = live.into_iter().map(|(slot, generation)| {
            let entry = &self.memory.table[slot];
            entry.control.clear();
            self.announced[slot] = AnnouncedFlow {
                generation,
                epoch: entry.status.epoch.load(Relaxed),
                program: 0,
            };
            WireEvent::FlowOpened {
                flow: flow_number(index, slot, generation),
                info: entry.info(&self.spec.name, &self.tags, true),
            }
        });
        opened.collect()
    }

    /// Passes all records to `sink`, in batches: while the agent works on one, the kernel can use
    /// the rest of the ring.
    pub fn drain(&mut self, index: usize, sink: &mut impl FnMut(Vec<WireEvent<'_>>)) {
        let LiveRegistration {
            memory,
            announced: known,
            spec,
            tags,
            ..
        } = self;
        let (ring, table) = (&mut memory.ring, &memory.table);
        let mut left = ring.capacity();
        loop {
            let batch = ring.batch(BATCH_RECORDS_MAX);
            if batch.records.is_empty() {
                let end = batch.end;
                ring.release(end);
                break;
            }
            let events = batch.records.iter().filter_map(|words| {
                let (record, rest) = ReportRecord::split(words)?;
                let slot = record.slot as usize;
                let (known, entry) = (known.get_mut(slot)?, table.get(slot)?);
                translate(index, &record, rest, known, entry, (&spec.name, tags))
            });
            sink(events.collect());
            let end = batch.end;
            left = left.saturating_sub(ring.release(end));
            // Bounds the loop if the kernel writes as fast as this reads.
            if left == 0 {
                break;
            }
        }
        self.report_lost_closings(index, sink);
    }

    /// Reports flows that ended while the ring was full.
    fn report_lost_closings(&mut self, index: usize, sink: &mut impl FnMut(Vec<WireEvent<'_>>)) {
        let lost = crate::registration::counters::close_lost(self.memory.plane());
        if lost == self.close_lost {
            return;
        }
        self.close_lost = lost;
        let table = &self.memory.table;
        let ended = self
            .announced
            .iter_mut()
            .enumerate()
            .filter_map(|(slot, known)| {
                if known.generation == 0 || table[slot].is_live(known.generation) {
                    return None;
                }
                let flow = flow_number(index, slot, known.generation);
                *known = AnnouncedFlow::default();
                let stats = FlowStats::default();
                Some(WireEvent::FlowClosed { flow, stats })
            });
        sink(ended.collect());
    }

    /// Installs a program, which keeps its index. It gets a free pad if possible and is interpreted
    /// until an object with its code is registered; without a free pad it stays in the interpreter.
    pub fn install(&mut self, program: &Arc<Program>) -> Result<(), Refusal> {
        if self.program_index(program.uid()).is_some() {
            return Ok(());
        }
        let code = crate::codegen::interpreter_code(program);
        if code.len() > layout::CODE_INSNS_MAX {
            return Err(Refusal::InvalidProgram(format!(
                "{} instructions are too many",
                code.len()
            )));
        }
        let never_used = |place: &usize| self.memory.programs[*place].tag.load(Relaxed) == 0;
        let compiler = self
            .holder
            .as_ref()
            .filter(|holder| holder.can_compile(program));
        let free = compiler
            .and_then(|_| (0..PAD_COUNT).find(never_used))
            .or_else(|| (PAD_COUNT..PROGRAMS_MAX).find(never_used))
            .or_else(|| (PAD_COUNT..PROGRAMS_MAX).find(|&place| self.is_abandoned(place)))
            .ok_or(Refusal::TableFull)?;
        programs::write(&self.memory.programs[free], program, &code);
        self.programs[free] = Some(program.clone());
        if let Some(holder) = self.holder.as_mut().filter(|_| free < PAD_COUNT) {
            holder.compile(free, program);
        }
        Ok(())
    }

    /// Returns true if new flows run the program as generated code.
    pub fn is_compiled(&self, uid: u32) -> bool {
        self.program_index(uid)
            .is_some_and(|place| match &self.holder {
                Some(holder) => holder.is_compiled(place),
                // Adopted: a program in a pad without interpreter code is compiled.
                None => {
                    place < PAD_COUNT && self.memory.programs[place].code_len.load(Relaxed) == 0
                }
            })
    }

    /// Returns true if the index holds an earlier agent's program that no flow runs.
    fn is_abandoned(&self, index: usize) -> bool {
        let runs = |slot: usize| self.memory.table[slot].status.program.load(Relaxed) as usize;
        self.programs[index].is_none()
            && self
                .memory
                .table
                .live()
                .all(|(slot, _)| runs(slot) != index)
    }

    fn program_index(&self, uid: u32) -> Option<usize> {
        self.programs
            .iter()
            .position(|p| p.as_ref().is_some_and(|p| p.uid() == uid))
    }

    /// Writes a command for flow `generation` in `slot`.
    pub fn command(
        &mut self,
        slot: usize,
        generation: u32,
        uid: Option<u32>,
        updates: &[Update],
    ) -> Result<(), Refusal> {
        let place = match uid {
            Some(uid) => Some(
                self.program_index(uid)
                    .ok_or(Refusal::UnknownProgram(uid))?,
            ),
            None => None,
        };
        let known = self
            .announced
            .get_mut(slot)
            .filter(|known| known.generation == generation && generation != 0);
        let known = known.ok_or(Refusal::UnknownFlow)?;
        let runs = place.or_else(|| (known.program as usize).checked_sub(1));
        let program = runs.and_then(|place| self.programs[place].as_deref());
        for update in updates {
            if let CommandTarget::Var(index) = update.target {
                // No program is known if the flow was announced again after a fallback in the same
                // batch: the agent's response to earlier reports arrives first.
                let vars = program.map(Program::vars).ok_or(Refusal::UnknownFlow)?;
                if vars
                    .get(usize::from(index))
                    .is_none_or(|var| var.kind != VarKind::Control)
                {
                    let what = format!(
                        "variable {index} of a program with {} variables",
                        vars.len()
                    );
                    return Err(Refusal::BadTarget(what));
                }
            }
        }
        if let Some(place) = place {
            known.program = place as u32 + 1;
        }
        let words = StagedWords {
            program: place.zip(uid).map(|(place, uid)| (place as u32, uid)),
            updates,
            release: false,
        };
        self.memory.table[slot]
            .control
            .write(generation, known.epoch, &words);
        Ok(())
    }

    /// Releases flow `generation` in `slot` to NewReno until a program is set.
    pub fn release(&mut self, slot: usize, generation: u32) -> Result<(), Refusal> {
        let known = self.announced.get_mut(slot);
        let known = known.filter(|known| known.generation == generation && generation != 0);
        let known = known.ok_or(Refusal::UnknownFlow)?;
        known.program = 0;
        let words = StagedWords {
            release: true,
            ..StagedWords::default()
        };
        self.memory.table[slot]
            .control
            .write(generation, known.epoch, &words);
        Ok(())
    }

    /// Makes all flows run the standalone program, live flows from their next ACK on. Without one
    /// an agent controls the flows.
    pub fn activate(&mut self) -> Result<(), Refusal> {
        let own = match self.spec.standalone.clone() {
            None => 0,
            Some(alone) => {
                self.install(&alone.program)?;
                let uid = alone.program.uid();
                let place = self
                    .program_index(uid)
                    .ok_or(Refusal::UnknownProgram(uid))?;
                layout::encode_standalone(uid, place, alone.resumed_var, alone.sets_rate)
            }
        };
        let plane = self.memory.plane();
        // `Kernel::drain` overwrites this if there is a reader.
        let reader = if own == 0 {
            layout::READER_IDLE
        } else {
            layout::READER_ABSENT
        };
        plane.reader.store(reader, SeqCst);
        plane.own.store(own, SeqCst);
        Ok(())
    }

    /// Replaces the standalone program and frees the index of the previous one.
    pub fn replace(&mut self, spec: &AlgorithmSpec) -> Result<(), Refusal> {
        let before = std::mem::replace(&mut self.spec, spec.clone());
        if let Err(why) = self.activate() {
            self.spec = before;
            return Err(why);
        }
        let uid = |spec: &AlgorithmSpec| spec.standalone.as_ref().map(|alone| alone.program.uid());
        if let Some(place) = uid(&before)
            .filter(|old| Some(*old) != uid(spec))
            .and_then(|old| self.program_index(old))
        {
            self.programs[place] = None;
        }
        Ok(())
    }
}

impl Drop for LiveRegistration {
    fn drop(&mut self) {
        // Sockets keep the object that they run. Unless `own` is cleared, their flows would run the
        // program with no means to stop it. The same applies if another process detached it and a
        // changed program was set afterwards.
        let gone = |pins: &PathBuf| pins.try_exists().is_ok_and(|there| !there);
        if self.pins.as_ref().is_none_or(gone) {
            self.memory.plane().own.store(0, SeqCst);
        }
    }
}

/// Converts a record to an event and updates the known flow.
fn translate<'a>(
    index: usize,
    record: &ReportRecord,
    rest: &'a [u64],
    known: &mut AnnouncedFlow,
    entry: &FlowSlot,
    (algorithm, tags): (&str, &Tags),
) -> Option<WireEvent<'a>> {
    let flow = flow_number(index, record.slot as usize, record.generation);
    match record.kind {
        layout::REC_OPEN if known.generation == record.generation => {
            // Announced already, at a takeover.
            known.epoch = record.epoch;
            None
        }
        layout::REC_OPEN | layout::REC_RESUME => {
            if !entry.is_live(record.generation) {
                return None; // ended already
            }
            *known = AnnouncedFlow {
                generation: record.generation,
                epoch: record.epoch,
                program: 0,
            };
            let info = entry.info(algorithm, tags, record.kind == layout::REC_RESUME);
            Some(WireEvent::FlowOpened { flow, info })
        }
        // The flow was never announced, or has been closed.
        _ if known.generation != record.generation => None,
        layout::REC_REPORT => {
            known.epoch = record.epoch;
            Some(WireEvent::Report {
                flow,
                program: record.tag,
                urgent: record.flags & layout::REC_URGENT != 0,
                fields: rest,
            })
        }
        layout::REC_CLOSE => {
            *known = AnnouncedFlow::default();
            let word = |index| rest.get(index).copied().unwrap_or(0);
            let opened = Time::from_micros(word(layout::closing::OPENED_US));
            let stats = FlowStats {
                bytes_acked: Bytes::new(word(layout::closing::BYTES_ACKED)),
                packets_lost: word(layout::closing::PACKETS_LOST),
                reports: word(layout::closing::REPORT_COUNT),
                lifetime: Time::from_micros(record.time_us).since(opened),
            };
            Some(WireEvent::FlowClosed { flow, stats })
        }
        _ => None,
    }
}
