//! Shared test support: a flow with its table and a clock.
#![allow(dead_code)]

pub mod programs;

use ccplane_datapath::{
    Capabilities, Command, CommandError, Compat, Flow, OperatorLimits, Outcome, ProgramTable,
    Signals, Transport, Update,
};
use ccplane_units::{Duration, Time};
use programs::Code;

/// Flow with its table. Applies the flow's outcomes to the transport, and takes every report at
/// once unless `queue` is false.
pub struct Rig {
    pub table: ProgramTable,
    pub flow: Flow<16>,
    pub transport: Transport,
    pub reports: Vec<(Time, Vec<u64>)>,
    /// False while the report queue is full.
    pub queue: bool,
}

pub const MSS_BYTES: u64 = 1448;

/// Limits that never apply unless a test changes them.
pub fn no_limits() -> OperatorLimits {
    OperatorLimits {
        min_cwnd: 1,
        max_cwnd: u64::MAX,
        max_rate: u64::MAX,
        agent_timeout: Duration::MAX,
    }
}

impl Rig {
    /// Creates a flow at time 1 s that was set to program 1.
    pub fn new(code: &Code) -> Rig {
        Rig::with(code, no_limits(), Compat::Documented)
    }

    pub fn with(code: &Code, limits: OperatorLimits, compat: Compat) -> Rig {
        let now = Time::from_micros(1_000_000);
        let mut rig = Rig {
            table: ProgramTable::with_compat(limits, Capabilities(u64::MAX), compat),
            flow: Flow::new(now, 10 * MSS_BYTES),
            transport: Transport {
                cwnd: 10 * MSS_BYTES,
                rate: 0,
                ssthresh: u64::MAX,
                now,
            },
            reports: Vec::new(),
            queue: true,
        };
        rig.table
            .install(code.program(1))
            .expect("room for a program");
        rig.set_program(1, &[]).expect("program 1 is installed");
        rig
    }

    pub fn set_program(&mut self, uid: u32, updates: &[Update]) -> Result<(), CommandError> {
        self.flow.apply(
            self.transport.now,
            &Command::SetProgram { uid, updates },
            &self.table,
        )
    }

    pub fn update(&mut self, updates: &[Update]) -> Result<(), CommandError> {
        self.flow
            .apply(self.transport.now, &Command::Update(updates), &self.table)
    }

    pub fn advance_us(&mut self, us: u64) {
        self.transport.now += Duration::from_micros(us);
    }

    pub fn ack(&mut self, signals: Signals) -> Outcome {
        let outcome = self.flow.on_ack(&self.transport, &signals, &self.table);
        self.took(outcome)
    }

    pub fn deadline(&mut self) -> Outcome {
        let outcome = self.flow.on_deadline(&self.transport, &self.table);
        self.took(outcome)
    }

    /// Advances by `us` without an ACK, calling the flow at each of its deadlines; returns the
    /// number of calls.
    pub fn advance_without_acks_us(&mut self, us: u64) -> usize {
        let end = self.transport.now + Duration::from_micros(us);
        let mut calls = 0;
        while let Some(next) = self.flow.next_deadline().filter(|&next| next <= end) {
            self.transport.now = self.transport.now.max(next);
            let _ = self.deadline();
            calls += 1;
            assert!(calls < 10_000, "a flow that keeps its timer busy");
        }
        self.transport.now = end;
        calls
    }

    pub fn last_report(&self) -> &[u64] {
        &self.reports.last().expect("a report").1
    }

    fn took(&mut self, outcome: Outcome) -> Outcome {
        self.transport.cwnd = outcome.cwnd.unwrap_or(self.transport.cwnd);
        self.transport.rate = outcome.rate.unwrap_or(self.transport.rate);
        self.transport.ssthresh = outcome.ssthresh.unwrap_or(self.transport.ssthresh);
        if outcome.report.is_some() && self.queue {
            self.reports
                .push((self.transport.now, self.flow.report(&self.table).to_vec()));
            self.flow.report_queued(&self.table);
        }
        outcome
    }
}

/// ACK of `bytes` bytes.
pub fn ack_of(bytes: u64) -> Signals {
    Signals {
        bytes_acked: bytes,
        packets_acked: bytes.div_ceil(MSS_BYTES),
        rtt_sample_us: 20_000,
        srtt_us: 20_000,
        mss: MSS_BYTES,
        ..Signals::default()
    }
}
