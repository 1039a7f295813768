//! Flow: its variables, its clock and the state set by its agent; runs at every ACK and every
//! deadline.

use ccplane_units::{Duration, Time};

use crate::bytecode::{VarKind, reg};
use crate::clock::ProgramClock;
use crate::command::{Command, CommandError, CommandTarget, Update};
use crate::fallback::Fallback;
use crate::interpreter::{self, Registers};
use crate::last_state::LastState;
use crate::lower::{self, LARGE_FILE_REGISTERS, LoweredCode, SMALL_FILE_REGISTERS, slot_of};
use crate::outcome::{Outcome, RequestedControls, Urgency};
use crate::program::Program;
use crate::signals::{SignalSource, Signals, Transport};
use crate::table::{Compat, InstalledProgram, OperatorLimits, ProgramTable, SlotRef};

/// Minimum time between two runs by timer without an ACK in between. A program such as `(when (>
/// Micros 0) (report) (:= Micros 0))` would otherwise keep a CPU busy with an idle flow. A longer
/// time would delay the timers of flows with an RTT of this order; those run on the ACK clock
/// nearly always.
const TIMER_RUN_INTERVAL_MIN: Duration = Duration::from_micros(100);

/// Flow with room for `V` variables, at most 64. Plain data without allocations or pointers.
///
/// The fields that every ACK accesses come first, so that a flow that is not in the cache costs few
/// cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Flow<const V: usize = 16> {
    program: SlotRef,
    faults: u32,
    /// A report is due and not yet queued.
    pending_report: Option<Urgency>,
    /// `pending` holds updates for the next call.
    has_updates: bool,
    /// No agent is in control, so the flow runs the built-in NewReno.
    fallback_active: bool,
    /// The agent has released the flow, until it sets a program.
    released: bool,
    /// `Micros`.
    clock: ProgramClock,
    /// Time at which the next guard that waits for `Micros` becomes true.
    timer: Time,
    /// Time at which the agent times out, as of the last check.
    agent_timeout_at: Time,
    last_state: LastState,
    vars: [u64; V],
    fallback: Fallback,
    /// Time at which the flow opened.
    opened: Time,
    pending: PendingUpdates,
}

/// Values set by the agent since the last call. 0 means unset, as in CCP: no window, rate or
/// threshold is 0.
#[derive(Clone, Copy, Debug, Default)]
struct PendingUpdates {
    cwnd: u64,
    rate: u64,
    ssthresh: u64,
    micros: Option<u64>,
    since: Time,
}

impl<const V: usize> Flow<V> {
    /// Creates a flow without a program. `initial_cwnd` is its window in bytes: up to it, the
    /// fallback assumes that the flow is in its first slow start.
    pub fn new(now: Time, initial_cwnd: u64) -> Flow<V> {
        const { assert!(V <= crate::VARS_MAX, "a program has at most 64 variables") }
        Flow {
            program: SlotRef::NONE,
            faults: 0,
            pending_report: None,
            has_updates: false,
            fallback_active: false,
            released: false,
            clock: ProgramClock::starting_at(now),
            timer: Time::MAX,
            agent_timeout_at: now,
            opened: now,
            vars: [0; V],
            last_state: LastState::default(),
            fallback: Fallback::new(initial_cwnd),
            pending: PendingUpdates::default(),
        }
    }

    /// Processes the signals of one ACK or timeout, and returns the changes for the transport. Call
    /// it exactly once for each.
    #[inline]
    pub fn on_ack<const P: usize>(
        &mut self,
        transport: &Transport,
        signals: &Signals,
        programs: &ProgramTable<P>,
    ) -> Outcome {
        let mut wanted = RequestedControls::from_transport(transport);
        let program = self.begin(transport, programs, &mut wanted);
        if let Some(installed) = program {
            let urgent = signals.lost_pkts_sample | signals.was_timeout | signals.undone != 0;
            let urgency = if urgent {
                Urgency::Urgent
            } else {
                Urgency::Normal
            };
            let run = ProgramRun {
                now: transport.now,
                compat: programs.compat(),
                urgency,
            };
            if installed.code.is_small()
                && usize::from(lower::VARS_SLOT) + V <= SMALL_FILE_REGISTERS
            {
                self.run::<SMALL_FILE_REGISTERS>(installed, signals, run, &mut wanted);
            } else {
                self.run::<LARGE_FILE_REGISTERS>(installed, signals, run, &mut wanted);
            }
        }
        if self.fallback_active {
            wanted = self.fallback.step(transport, signals);
        }
        self.outcome(transport, wanted, &programs.limits)
    }

    /// Runs the flow's deadline; call it at [`Flow::next_deadline`]. It applies the agent's
    /// updates, runs the program if one of its guards has become true (with the last known state
    /// and no new events), and starts the fallback if the agent has timed out. Calling it early or
    /// twice does no harm.
    pub fn on_deadline<const P: usize>(
        &mut self,
        transport: &Transport,
        programs: &ProgramTable<P>,
    ) -> Outcome {
        let now = transport.now;
        let mut wanted = RequestedControls::from_transport(transport);
        let staged = self.has_updates;
        let program = self.begin(transport, programs, &mut wanted);
        if let Some(installed) = program
            && programs.compat() == Compat::Documented
        {
            let due = has_passed(self.timer, now);
            if due || (staged && self.update_timer(installed, now, wanted)) {
                let last = self.last_state;
                let run = ProgramRun {
                    now,
                    compat: programs.compat(),
                    urgency: Urgency::Normal,
                };
                self.run::<LARGE_FILE_REGISTERS>(installed, &last, run, &mut wanted);
                self.timer = self.timer.max(now + TIMER_RUN_INTERVAL_MIN);
            }
        }
        if self.fallback_active {
            wanted = RequestedControls::from_transport(transport);
        }
        self.outcome(transport, wanted, &programs.limits)
    }

    /// Returns when to call [`Flow::on_deadline`] if there is no ACK before. A transport with
    /// nothing in flight and nothing to send may call it later, as there is nothing to measure.
    pub fn next_deadline(&self) -> Option<Time> {
        let staged = if self.has_updates {
            self.pending.since
        } else {
            Time::MAX
        };
        let next = self.timer.min(self.agent_timeout_at).min(staged);
        (next != Time::MAX).then_some(next)
    }

    /// Accepts a command, which takes effect at the next call. It is accepted or refused as a
    /// whole. While the flow is on the fallback, windows, rates and thresholds are ignored: a
    /// returning agent must send a heartbeat first.
    pub fn apply<const P: usize>(
        &mut self,
        now: Time,
        command: &Command<'_>,
        programs: &ProgramTable<P>,
    ) -> Result<(), CommandError> {
        let updates = match *command {
            Command::SetProgram { uid, updates } => {
                let (slot, program) = programs
                    .find(uid)
                    .ok_or(CommandError::UnknownProgram { uid })?;
                Self::fits(program)?;
                check_targets(updates, Some(program))?;
                if programs.compat() == Compat::Libccp {
                    self.pending = PendingUpdates::default();
                }
                self.start(slot, program);
                // The new program may belong to another agent, whose last heartbeat differs.
                self.agent_timeout_at = self.agent_timeout_at.min(now);
                updates
            }
            Command::Update(updates) => {
                self.relocate(programs);
                check_targets(
                    updates,
                    self.current(programs).map(|installed| &installed.program),
                )?;
                updates
            }
            Command::Release => {
                self.release(now);
                return Ok(());
            }
        };
        for &Update { target, value } in updates {
            match target {
                // No code reads a control variable before the next call, so it is set immediately.
                CommandTarget::Var(index) => {
                    if let Some(var) = self.vars.get_mut(usize::from(index)) {
                        *var = value;
                    }
                }
                CommandTarget::Cwnd => self.pending.cwnd = value,
                CommandTarget::Rate => self.pending.rate = value,
                CommandTarget::Ssthresh => self.pending.ssthresh = value,
                CommandTarget::Micros => self.pending.micros = Some(value),
            }
        }
        self.pending.since = match programs.compat() {
            Compat::Documented if self.has_updates => self.pending.since.min(now),
            Compat::Documented => now,
            // The reference has no clock but the ACKs.
            Compat::Libccp => Time::MAX,
        };
        self.has_updates = true;
        Ok(())
    }

    /// Fields of a report: the values of the report variables, in order of declaration.
    pub fn report<const P: usize>(&self, programs: &ProgramTable<P>) -> &[u64] {
        let fields = self
            .current(programs)
            .map_or(0, |installed| installed.program.report_vars());
        self.vars.get(..fields).unwrap_or_default()
    }

    /// Records that the report was queued: volatile variables return to their initial values. Until
    /// this call they continue to accumulate, so that a full queue delays measurements but loses
    /// none.
    pub fn report_queued<const P: usize>(&mut self, programs: &ProgramTable<P>) {
        self.pending_report = None;
        if let Some(InstalledProgram { program, .. }) = self.current(programs) {
            reset_volatiles(program, &mut self.vars);
        }
    }

    /// Number of the flow's program, which its reports carry.
    pub fn program_uid(&self) -> Option<u32> {
        (self.program != SlotRef::NONE).then_some(self.program.uid)
    }

    /// Number of faults so far: overflows, divisions by 0, differences below 0. Saturates.
    pub fn faults(&self) -> u32 {
        self.faults
    }

    /// Time at which the flow opened.
    pub fn opened(&self) -> Time {
        self.opened
    }

    /// Returns true while the flow runs the built-in NewReno, because its agent is silent or has
    /// released it.
    pub fn in_fallback(&self) -> bool {
        self.fallback_active
    }
}

impl<const V: usize> Flow<V> {
    /// Programs with at most this many variables leave the rest of the flow, and its cache lines,
    /// untouched.
    const SMALL_PROGRAM_VARS_MAX: usize = if V < 8 { V } else { 8 };

    /// Starts a call: checks whether the agent has timed out, applies its updates, and finds the
    /// program to run.
    #[inline(always)]
    fn begin<'a, const P: usize>(
        &mut self,
        transport: &Transport,
        programs: &'a ProgramTable<P>,
        wanted: &mut RequestedControls,
    ) -> Option<&'a InstalledProgram> {
        let mut program = self.current(programs);
        // A heartbeat can only postpone the timeout: before it, with a program to run, there is
        // nothing to check.
        if transport.now >= self.agent_timeout_at || self.fallback_active || program.is_none() {
            program = self.update_agent_state(transport.now, programs, wanted);
        }
        if self.has_updates {
            self.apply_pending(transport.now, wanted);
        }
        program
    }

    /// Checks whether an agent is in control: it has sent a heartbeat recently, and the program is
    /// still installed.
    #[cold]
    fn update_agent_state<'a, const P: usize>(
        &mut self,
        now: Time,
        programs: &'a ProgramTable<P>,
        wanted: &mut RequestedControls,
    ) -> Option<&'a InstalledProgram> {
        self.relocate(programs);
        let program = self.current(programs);
        let last_heartbeat = programs.last_heartbeat().unwrap_or(self.opened);
        let deadline = last_heartbeat + programs.limits.agent_timeout;
        let orphan = program.is_none() && (self.program_uid().is_some() || self.released);
        if orphan {
            // There is no program to run, and the fields of its report are unknown.
            self.timer = Time::MAX;
            self.pending_report = None;
        }
        let silent = has_passed(deadline, now) || orphan;
        if silent != self.fallback_active {
            self.fallback_active = silent;
            wanted.rate = self.fallback.prior_rate().unwrap_or(wanted.rate);
            self.fallback = Fallback::new(self.fallback.initial_cwnd);
        }
        self.agent_timeout_at = if silent { Time::MAX } else { deadline };
        program
    }

    #[cold]
    fn apply_pending(&mut self, now: Time, wanted: &mut RequestedControls) {
        let pending = core::mem::take(&mut self.pending);
        self.has_updates = false;
        if let Some(micros) = pending.micros {
            self.clock.set(now, micros);
        }
        wanted.set(pending.cwnd, pending.rate, pending.ssthresh);
    }

    /// Runs the program once on these signals, and stores the results.
    #[inline(always)]
    fn run<const N: usize>(
        &mut self,
        installed: &InstalledProgram,
        signals: &impl SignalSource,
        ProgramRun {
            now,
            compat,
            urgency,
        }: ProgramRun,
        wanted: &mut RequestedControls,
    ) {
        let InstalledProgram { program, code } = installed;
        let mut registers = Registers([0; N]);
        self.load(&mut registers, signals, now, *wanted, installed);
        let micros = registers.get(MICROS_SLOT);
        if program.uses_timers() {
            self.store_state(&registers, installed);
        }
        let trace = interpreter::run(code, &mut registers);

        let (few, more) = self.vars.split_at_mut(Self::SMALL_PROGRAM_VARS_MAX);
        few.copy_from_slice(&registers.0[VARS_SLOT..VARS_SLOT + Self::SMALL_PROGRAM_VARS_MAX]);
        if program.vars().len() > Self::SMALL_PROGRAM_VARS_MAX {
            more.copy_from_slice(
                &registers.0[VARS_SLOT + Self::SMALL_PROGRAM_VARS_MAX..VARS_SLOT + V],
            );
        }
        if trace.faults != 0 {
            self.faults = self.faults.saturating_add(trace.faults);
        }
        if registers.get(MICROS_SLOT) != micros {
            self.clock.set(now, registers.get(MICROS_SLOT));
        }
        wanted.set(
            registers.get(CWND_SLOT),
            registers.get(RATE_SLOT),
            registers.get(SSTHRESH_SLOT),
        );
        let mut waits_for = trace.next_threshold;
        if registers.get(SHOULD_REPORT_SLOT) | registers.get(SHOULD_RESET_SLOT) != 0 {
            waits_for = waits_for.min(self.report_or_reset(program, code, &mut registers, urgency));
        }
        self.timer = match compat {
            Compat::Documented => self.clock.time_exceeding(waits_for, now),
            Compat::Libccp => Time::MAX,
        };
    }

    /// Requests the report, or else resets; returns the threshold of the guards after the volatile
    /// variables were reset.
    #[cold]
    fn report_or_reset<const N: usize>(
        &mut self,
        program: &Program,
        code: &LoweredCode,
        registers: &mut Registers<N>,
        urgency: Urgency,
    ) -> u64 {
        if registers.get(SHOULD_REPORT_SLOT) != 0 {
            self.pending_report = self.pending_report.max(Some(urgency));
        } else {
            reset_volatiles(program, &mut self.vars);
        }
        if !program.uses_timers() {
            return u64::MAX;
        }
        reset_volatiles(program, &mut registers.0[VARS_SLOT..]);
        interpreter::evaluate_waiting_guards(code, registers).next_threshold
    }

    /// Sets the timer after an update without an ACK. Returns true if a guard is already true.
    fn update_timer(
        &mut self,
        installed: &InstalledProgram,
        now: Time,
        wanted: RequestedControls,
    ) -> bool {
        let InstalledProgram { program, code } = installed;
        if !program.uses_timers() {
            return false;
        }
        let mut registers = Registers([0; LARGE_FILE_REGISTERS]);
        self.load(&mut registers, &self.last_state, now, wanted, installed);
        let ahead = interpreter::evaluate_waiting_guards(code, &mut registers);
        // The previous threshold still holds: it comes from a run after an ACK.
        self.timer = self
            .timer
            .min(self.clock.time_exceeding(ahead.next_threshold, now));
        ahead.is_ready
    }

    /// Stores the state among the signals in the registers.
    #[inline(always)]
    fn store_state<const N: usize>(
        &mut self,
        registers: &Registers<N>,
        InstalledProgram { program, code }: &InstalledProgram,
    ) {
        if let Some(plain) = registers.0.first_chunk() {
            self.last_state.store_base(plain);
        }
        if N == LARGE_FILE_REGISTERS
            && program.reads_stamps()
            && let Some(stamped) = registers.0.last_chunk()
        {
            self.last_state.store_stamped(stamped);
        }
        if program.reads_paced() {
            self.last_state
                .store_paced(registers.get(code.slot(reg::PACED)));
        }
    }

    /// Fills the registers.
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        registers: &mut Registers<N>,
        signals: &impl SignalSource,
        now: Time,
        wanted: RequestedControls,
        InstalledProgram { program, code }: &InstalledProgram,
    ) {
        if let Some(first) = registers.0.first_chunk_mut() {
            *first = signals.base();
        }
        if N == LARGE_FILE_REGISTERS
            && program.reads_stamps()
            && let Some(last) = registers.0.last_chunk_mut()
        {
            *last = signals.stamp_signals();
        }
        registers.set(reg::ACK_NOW, now.as_micros());
        // In the order of their slots: the state ends where the variables begin, so that little is
        // left to clear.
        let state = [
            self.clock.micros(now),
            wanted.cwnd,
            wanted.rate,
            wanted.ssthresh,
            0,
            0,
            0,
            1,
        ];
        registers.0[VARS_SLOT - state.len()..VARS_SLOT].copy_from_slice(&state);
        let (few, more) = self.vars.split_at(Self::SMALL_PROGRAM_VARS_MAX);
        registers.0[VARS_SLOT..VARS_SLOT + Self::SMALL_PROGRAM_VARS_MAX].copy_from_slice(few);
        if program.vars().len() > Self::SMALL_PROGRAM_VARS_MAX {
            registers.0[VARS_SLOT + Self::SMALL_PROGRAM_VARS_MAX..VARS_SLOT + V]
                .copy_from_slice(more);
        }
        // After the variables, where an unused variable may lie.
        if program.reads_paced() {
            registers.set(code.slot(reg::PACED), signals.paced());
        }
    }

    #[inline(always)]
    fn outcome(
        &self,
        transport: &Transport,
        wanted: RequestedControls,
        limits: &OperatorLimits,
    ) -> Outcome {
        Outcome {
            report: self.pending_report,
            fallback: self.fallback_active,
            ..wanted.outcome(transport, limits)
        }
    }

    /// Returns the program, if it is still in the slot where the flow found it.
    #[inline(always)]
    fn current<'a, const P: usize>(
        &self,
        programs: &'a ProgramTable<P>,
    ) -> Option<&'a InstalledProgram> {
        programs.resolve(self.program)
    }

    /// Finds the program again if its slot has changed; a replaced program is restarted.
    #[cold]
    fn relocate<const P: usize>(&mut self, programs: &ProgramTable<P>) {
        if self.current(programs).is_some() {
            return;
        }
        if let Some((slot, program)) = self.program_uid().and_then(|uid| programs.find(uid))
            && Self::fits(program).is_ok()
        {
            self.start(slot, program);
            self.pending.micros.get_or_insert(0);
            self.has_updates = true;
        }
    }

    /// Drops the program and its updates. The next call checks whether an agent is in control.
    fn release(&mut self, now: Time) {
        self.program = SlotRef::NONE;
        self.released = true;
        self.pending_report = None;
        self.has_updates = false;
        self.pending = PendingUpdates::default();
        self.timer = Time::MAX;
        if !self.fallback_active {
            self.agent_timeout_at = self.agent_timeout_at.min(now);
        }
    }

    /// Starts `program` with its variables at their initial values; `Micros` is 0 from the next
    /// call on.
    fn start(&mut self, slot: SlotRef, program: &Program) {
        self.program = slot;
        self.released = false;
        self.vars = [0; V];
        for (var, declared) in self.vars.iter_mut().zip(program.vars()) {
            *var = declared.init;
        }
        self.timer = Time::MAX;
        self.pending_report = None;
        self.pending.micros = Some(0);
    }

    fn fits(program: &Program) -> Result<(), CommandError> {
        let has = program.vars().len();
        if has > V {
            Err(CommandError::TooManyVars { has, room: V })
        } else {
            Ok(())
        }
    }
}

struct ProgramRun {
    now: Time,
    compat: Compat,
    urgency: Urgency,
}

/// Checks that an agent may set the targets.
fn check_targets(updates: &[Update], program: Option<&Program>) -> Result<(), CommandError> {
    for &Update { target, .. } in updates {
        if let CommandTarget::Var(index) = target {
            let vars = program.ok_or(CommandError::NoProgram)?.vars();
            let control = |var: &crate::Var| var.kind == VarKind::Control;
            if !vars.get(usize::from(index)).is_some_and(control) {
                return Err(CommandError::BadTarget {
                    target,
                    vars: vars.len() as u8,
                });
            }
        }
    }
    Ok(())
}

/// Sets the volatile variables to their initial values.
fn reset_volatiles(program: &Program, vars: &mut [u64]) {
    for (var, declared) in vars.iter_mut().zip(program.vars()) {
        if declared.volatile {
            *var = declared.init;
        }
    }
}

/// Returns true if a deadline has passed. `Time::MAX` means none.
#[inline(always)]
fn has_passed(deadline: Time, now: Time) -> bool {
    now >= deadline && deadline != Time::MAX
}

const VARS_SLOT: usize = lower::VARS_SLOT as usize;
const MICROS_SLOT: u8 = slot_of(reg::MICROS);
const CWND_SLOT: u8 = slot_of(reg::CWND);
const RATE_SLOT: u8 = slot_of(reg::RATE);
const SSTHRESH_SLOT: u8 = slot_of(reg::SSTHRESH);
const SHOULD_REPORT_SLOT: u8 = slot_of(reg::SHOULD_REPORT);
const SHOULD_RESET_SLOT: u8 = slot_of(reg::SHOULD_RESET);

/// Flow that a transport calls, with its programs and the channel for its reports.
pub trait SteeredFlow {
    /// Handles an ACK or a timeout; see [`Flow::on_ack`].
    fn on_ack(&mut self, transport: &Transport, signals: &Signals) -> Outcome;

    /// Handles the flow's deadline; see [`Flow::on_deadline`].
    fn on_deadline(&mut self, transport: &Transport) -> Outcome;

    /// Returns when [`on_deadline`](SteeredFlow::on_deadline) is due.
    fn next_deadline(&self) -> Option<Time>;
}
