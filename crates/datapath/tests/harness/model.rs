//! Plain model of the bytecode, written from its definition; the interpreter must agree with it.

use ccplane_datapath::{
    Compat, INFINITY, Instr, Op, Outcome, Program, Signals, Transport, Urgency, Var, VarKind, reg,
};
use ccplane_units::Time;

pub struct Model<'a> {
    program: &'a Program,
    compat: Compat,
    vars: Vec<u64>,
    /// Time at which `Micros` was 0, ns.
    zero: i128,
    timer: Option<Time>,
    state: Signals,
    report: Option<Urgency>,
    faults: u32,
    after: [u64; 3],
    longest: usize,
}

impl Model<'_> {
    pub fn new(program: &Program, compat: Compat, now: Time) -> Model<'_> {
        Model {
            program,
            compat,
            vars: program.vars().iter().map(|var| var.init).collect(),
            zero: i128::from(now.as_nanos()),
            timer: None,
            state: Signals::default(),
            report: None,
            faults: 0,
            after: [0; 3],
            longest: 0,
        }
    }

    pub fn on_ack(&mut self, transport: &Transport, signals: &Signals) {
        self.state = *signals;
        let urgent = signals.lost_pkts_sample > 0 || signals.was_timeout > 0 || signals.undone > 0;
        self.run(
            transport,
            signals,
            if urgent {
                Urgency::Urgent
            } else {
                Urgency::Normal
            },
        );
    }

    pub fn on_deadline(&mut self, transport: &Transport) {
        self.after = [transport.cwnd, transport.rate, transport.ssthresh];
        if self.timer.is_some_and(|timer| timer <= transport.now) {
            let quiet = Signals {
                bytes_acked: 0,
                bytes_misordered: 0,
                ecn_bytes: 0,
                ecn_packets: 0,
                lost_pkts_sample: 0,
                packets_acked: 0,
                packets_misordered: 0,
                was_timeout: 0,
                undone: 0,
                owd_ns: 0,
                rtt_ns: 0,
                queue_delay_valid: 0,
                ..self.state
            };
            self.run(transport, &quiet, Urgency::Normal);
            let earliest = Time::from_nanos(transport.now.as_nanos().saturating_add(100_000));
            self.timer = self.timer.map(|timer| timer.max(earliest));
        }
    }

    pub fn outcome(&self, transport: &Transport) -> Outcome {
        let changed = |new: u64, old: u64| {
            if new == 0 || new == old {
                None
            } else {
                Some(new)
            }
        };
        let [cwnd, rate, ssthresh] = self.after;
        Outcome {
            cwnd: changed(cwnd, transport.cwnd),
            rate: changed(rate, transport.rate),
            ssthresh: changed(ssthresh, transport.ssthresh),
            clamped: false,
            report: self.report,
            fallback: false,
        }
    }

    pub fn report(&self) -> &[u64] {
        &self.vars[..self
            .program
            .vars()
            .iter()
            .filter(|var| var.kind == VarKind::Report)
            .count()]
    }

    pub fn report_queued(&mut self) {
        self.report = None;
        reset(self.program.vars(), &mut self.vars);
    }

    pub fn faults(&self) -> u32 {
        self.faults
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.timer
    }

    /// Maximum number of instructions executed by one call.
    pub fn longest_run(&self) -> usize {
        self.longest
    }

    fn run(&mut self, transport: &Transport, signals: &Signals, urgency: Urgency) {
        let now = i128::from(transport.now.as_nanos());
        let mut machine = Machine {
            registers: [0; 128],
            faults: 0,
            waits: None,
            instrs: 0,
        };
        machine.load(signals);
        let registers = &mut machine.registers;
        registers[5] = transport.now.as_micros();
        let micros = (now - self.zero).max(0) as u64 / 1000;
        registers[usize::from(reg::MICROS)] = micros;
        registers[usize::from(reg::CWND)] = transport.cwnd;
        registers[usize::from(reg::RATE)] = transport.rate;
        registers[usize::from(reg::SSTHRESH)] = transport.ssthresh;
        registers[usize::from(reg::CONSTANT_ONE)] = 1;
        let first = usize::from(reg::VARS);
        registers[first..first + self.vars.len()].copy_from_slice(&self.vars);

        let sticky = self.compat == Compat::Libccp;
        let (mut waited, mut stale) = (false, false);
        let clauses = self.program.clauses();
        let waits = |n: usize| {
            self.range(clauses[n].guard_start, clauses[n].body_start)
                .iter()
                .any(|i| i.op == Op::After)
        };
        for (n, clause) in clauses.iter().enumerate() {
            waited |= waits(n);
            machine.execute(self.range(clause.guard_start, clause.body_start));
            if machine.get(clause.flag) == 0 {
                continue;
            }
            if !sticky {
                machine.set(reg::SHOULD_CONTINUE, 0);
            }
            machine.execute(self.range(clause.body_start, clause.body_end));
            stale |= waited;
            if machine.get(reg::SHOULD_CONTINUE) == 0 {
                stale |= (n + 1..clauses.len()).any(waits);
                break;
            }
        }
        self.longest = self.longest.max(machine.instrs);
        self.faults = self.faults.saturating_add(machine.faults);
        self.vars = machine.registers[first..first + self.vars.len()].to_vec();
        if machine.get(reg::MICROS) != micros {
            self.zero = now - (i128::from(machine.get(reg::MICROS)) * 1000).min(1 << 62);
        }
        self.after = [reg::CWND, reg::RATE, reg::SSTHRESH].map(|register| machine.get(register));

        let mut waits_for = if stale {
            self.look_ahead(&machine)
        } else {
            machine.waits
        };
        let report = machine.get(reg::SHOULD_REPORT) != 0;
        if report || machine.get(reg::SHOULD_RESET) != 0 {
            if report {
                self.report = self.report.max(Some(urgency));
            } else {
                reset(self.program.vars(), &mut self.vars);
            }
            reset(self.program.vars(), &mut machine.registers[first..]);
            waits_for = [waits_for, self.look_ahead(&machine)]
                .into_iter()
                .flatten()
                .min();
        }
        self.timer = waits_for.filter(|_| !sticky).and_then(|waits_for| {
            // A time 584 years ahead counts as never.
            let due = waits_for.checked_add(1)?.checked_mul(1000)?;
            let at = now + (i128::from(due) - (now - self.zero).max(0)).max(0);
            u64::try_from(at)
                .ok()
                .filter(|&at| at != u64::MAX)
                .map(Time::from_nanos)
        });
    }

    /// Smallest value of `Micros` that a guard waits to exceed.
    fn look_ahead(&self, machine: &Machine) -> Option<u64> {
        let mut ahead = Machine {
            waits: None,
            ..machine.clone()
        };
        for clause in self.program.clauses() {
            ahead.execute(self.range(clause.guard_start, clause.body_start));
        }
        ahead.waits
    }

    fn range(&self, start: u16, end: u16) -> &[Instr] {
        &self.program.instrs()[usize::from(start)..usize::from(end)]
    }
}

fn reset(vars: &[Var], values: &mut [u64]) {
    for (value, var) in values.iter_mut().zip(vars).filter(|(_, var)| var.volatile) {
        *value = var.init;
    }
}

#[derive(Clone)]
struct Machine {
    registers: [u64; 128],
    faults: u32,
    waits: Option<u64>,
    instrs: usize,
}

impl Machine {
    fn get(&self, register: u8) -> u64 {
        self.registers[usize::from(register)]
    }

    fn set(&mut self, register: u8, value: u64) {
        self.registers[usize::from(register)] = value;
    }

    fn load(&mut self, s: &Signals) {
        let known = |us: u64| if us == 0 { INFINITY } else { us };
        let values = [
            (0, s.bytes_acked),
            (1, s.bytes_misordered),
            (2, s.ecn_bytes),
            (3, s.ecn_packets),
            (4, s.lost_pkts_sample),
            (6, s.packets_acked),
            (7, s.packets_misordered),
            (8, s.bytes_in_flight),
            (9, s.bytes_pending),
            (10, s.packets_in_flight),
            (11, s.rate_incoming),
            (12, s.rate_outgoing),
            (13, known(s.rtt_sample_us)),
            (14, s.was_timeout),
            (15, known(s.srtt_us)),
            (16, known(s.min_rtt_us)),
            (17, s.mss),
            (18, s.app_limited),
            (19, s.in_recovery),
            (20, s.undone),
            (21, s.cwnd_limited),
            (22, known(s.owd_ns)),
            (23, known(s.rtt_ns)),
            (24, known(s.min_owd_ns)),
            (25, known(s.min_rtt_ns)),
            (
                26,
                if s.queue_delay_valid == 1 {
                    s.queue_delay_ns
                } else {
                    INFINITY
                },
            ),
            (27, s.queue_delay_valid),
            (28, s.paced),
        ];
        for (register, value) in values {
            self.set(register, value);
        }
    }

    fn execute(&mut self, instrs: &[Instr]) {
        let mut n = 0;
        while n < instrs.len() {
            let i = instrs[n];
            n += 1;
            self.instrs += 1;
            let (a, old) = (self.get(i.a), self.get(i.dst));
            let b = if i.has_imm && i.op != Op::Ewma {
                i.imm
            } else {
                self.get(i.b)
            };
            let (wide_a, wide_b) = (u128::from(a), u128::from(b));
            let (num, den) = (u128::from(i.imm >> 32), u128::from(i.imm & 0xffff_ffff));
            let value: u128 = match i.op {
                Op::Move => wide_b,
                Op::Add => self.fit(wide_a + wide_b),
                Op::Sub if b > a => self.fault(0),
                Op::Sub => wide_a - wide_b,
                Op::Diff => wide_a.saturating_sub(wide_b),
                Op::Mul => self.fit(wide_a * wide_b),
                Op::Div if b == 0 => self.fault(0),
                Op::Div => wide_a / wide_b,
                Op::MulRatio => wide_a * num / den,
                Op::Max => wide_a.max(wide_b),
                Op::Min => wide_a.min(wide_b),
                Op::MaxWrap => max_wrap(a, b),
                Op::Eq => u128::from(a == b),
                Op::Ne => u128::from(a != b),
                Op::Gt => u128::from(a > b),
                Op::Ge => u128::from(a >= b),
                Op::Lt => u128::from(a < b),
                Op::Le => u128::from(a <= b),
                Op::After if self.get(reg::MICROS) > b => 1,
                Op::After => {
                    self.waits = Some(self.waits.map_or(b, |waits| waits.min(b)));
                    0
                }
                Op::And => u128::from(a != 0 && b != 0),
                Op::Or => u128::from(a != 0 || b != 0),
                Op::Not => u128::from(b == 0),
                Op::If => u128::from(if a != 0 { b } else { old }),
                Op::NotIf => u128::from(if a == 0 { b } else { old }),
                Op::Ewma => average(num, den, old, b),
                Op::EwmaVar if a > 10 => {
                    self.faults = self.faults.saturating_add(1);
                    average(10, 10, old, b)
                }
                Op::EwmaVar => average(wide_a, 10, old, b),
                Op::SkipIfZero => {
                    if a == 0 {
                        n += usize::try_from(i.imm).expect("a checked distance");
                    }
                    continue;
                }
            };
            self.set(i.dst, u64::try_from(value).unwrap_or(u64::MAX));
        }
    }

    fn fit(&mut self, value: u128) -> u128 {
        if value > u128::from(u64::MAX) {
            self.fault(u128::MAX)
        } else {
            value
        }
    }

    fn fault(&mut self, value: u128) -> u128 {
        self.faults = self.faults.saturating_add(1);
        value
    }
}

fn average(num: u128, den: u128, old: u64, new: u64) -> u128 {
    if old == 0 {
        u128::from(new)
    } else {
        (num * u128::from(old) + (den - num) * u128::from(new)) / den
    }
}

/// The reference's rule: distances in both directions around 2^32, of which the one that wraps is
/// one short.
fn max_wrap(a: u64, b: u64) -> u128 {
    let distance = |from: u32, to: u32| {
        if to > from {
            to - from
        } else {
            u32::MAX - from + to
        }
    };
    let [a32, b32] = [a as u32, b as u32];
    u128::from(match (a, b) {
        (0, _) => b,
        (_, 0) => a,
        _ if distance(b32, a32) < distance(a32, b32) => u64::from(a32),
        _ => u64::from(b32),
    })
}
