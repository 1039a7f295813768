//! Latency of a decision over mapped memory: from a report in the ring, through the agent, to the
//! control words in the table.
//!
//! A BPF program without TCP (`bpf/loop.bpf.c`), and the thread that calls it, stand in for the
//! kernel; ring, table and agent are the real ones. That thread polls for the answer. The agent
//! runs in the product's loop, which sleeps, or in one that polls ([`AgentLoop`]).

mod decision;

pub use decision::{DecisionCost, decision_cost};

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use ccplane_agent::{Agent, Algorithm, Control, DatapathId, FlowInfo, Programs, Report};
use ccplane_datapath::OperatorLimits;
use ccplane_units::{Bytes, Duration};
use ccplane_wire::WireEvent;
use libbpf_rs::{MapCore, ObjectBuilder, ProgramInput};

use crate::clock;
use crate::drive::run_agent;
use crate::error::LoadError;
use crate::kernel::Kernel;
use crate::map::layout::{self, CTL_PENDING, FLOW_LIVE, FlowSlot};
use crate::map::memory::{Access, Plain, SharedMemory};
use crate::registration::holder::BenchMemory;
use crate::registration::load::{AlgorithmSpec, RegistrationOptions};

static OBJECT: &[u8] = include_bytes!("../bpf/prebuilt/loop.bpf.o");

/// Mirrors `struct outbox`.
#[repr(C)]
struct Outbox {
    sent_ns: AtomicU64,
    size: AtomicU64,
    words: [AtomicU64; 32],
}

// SAFETY: `Outbox` is `repr(C)` and consists of atomics only, so every bit pattern is valid and
// concurrent writes are no data race.
unsafe impl Plain for Outbox {}

/// Answers every report with a window. The benches use different names, since names are global to
/// the host.
struct Echo(&'static str);

impl Algorithm for Echo {
    type Flow = ();

    fn name(&self) -> &str {
        self.0
    }

    fn programs(&self) -> Programs {
        Programs::new().with(
            "echo",
            "(def (Report (acked 0) (lost 0) (rtt 0) (rate 0) (inflight 0) (timeout false)))
             (when true (:= Report.acked Ack.bytes_acked) (report))",
        )
    }

    fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("echo", &[]);
    }

    fn on_report(&mut self, (): &mut (), report: &Report<'_>, control: &mut Control<'_>) {
        control.set_cwnd(Bytes::new(report.get("acked").unwrap_or(0)));
    }
}

/// Loop that runs the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentLoop {
    /// The product's loop ([`run_agent`]), which sleeps until a report wakes it. A report follows
    /// the previous answer after 100 µs, so that the loop sleeps before each.
    Sleeping,
    /// A loop that polls and never sleeps. Each report follows the previous answer at once.
    Polling,
}

/// Time from an answer to the next report for [`AgentLoop::Sleeping`]: much longer than the loop
/// needs to go to sleep.
const REPORT_INTERVAL: Duration = Duration::from_micros(100);
/// Generation of the only flow.
const GENERATION: u32 = 1;
/// Exchanges before the measurement, to warm up caches, page tables and branch predictors of both
/// sides.
const WARMUP_EXCHANGES: usize = 1000;

/// Returns the time of each of `exchanges`, from submission of the report in the kernel to arrival
/// of the window in the table, while `hogs` other threads keep CPUs busy.
pub fn measure_mapped(
    agent_loop: AgentLoop,
    exchanges: usize,
    hogs: usize,
) -> Result<Vec<std::time::Duration>, LoadError> {
    let mut agent = Agent::default();
    agent
        .add(Echo("bench_loop"))
        .map_err(|error| LoadError::Mismatch(format!("the benchmark's program: {error}")))?;
    let specs: Vec<AlgorithmSpec> = agent
        .hosted_algorithms()
        .map(|hosted| AlgorithmSpec::from(&**hosted))
        .collect();
    let options = RegistrationOptions {
        limits: OperatorLimits {
            agent_timeout: Duration::from_secs(10),
            ..OperatorLimits::default()
        },
        flows: 1,
        ..RegistrationOptions::default()
    };
    let mut kernel = Kernel::load(&specs, &options)?;
    let memory = kernel.bench_memory()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..hogs {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        scope.spawn(|| match agent_loop {
            AgentLoop::Sleeping => run_agent(&mut kernel, &mut agent, &stop, &mut ()),
            AgentLoop::Polling => run_polling(&mut kernel, &mut agent, &stop),
        });
        let pause = match agent_loop {
            AgentLoop::Sleeping => REPORT_INTERVAL,
            AgentLoop::Polling => Duration::ZERO,
        };
        let measured =
            KernelSide::open(&memory).and_then(|datapath| datapath.measure(exchanges, pause));
        stop.store(true, Relaxed);
        measured
    })
}

/// Like `run_agent`, but polls without sleeping.
fn run_polling(kernel: &mut Kernel, agent: &mut Agent, stop: &AtomicBool) {
    crate::privilege::raise_thread_priority();
    let datapath = kernel.info();
    agent.handle(clock::now(), DatapathId(0), WireEvent::Ready { datapath });
    while !stop.load(Relaxed) {
        kernel.drain(&mut |batch| agent.handle_batch(clock::now(), DatapathId(0), &batch));
        while let Some((_, command)) = agent.poll() {
            kernel.apply(&command);
        }
    }
}

/// The kernel's side of an exchange.
struct KernelSide<'a> {
    object: libbpf_rs::Object,
    outbox: SharedMemory<Outbox>,
    slot: &'a FlowSlot,
}

impl<'a> KernelSide<'a> {
    fn open(memory: &'a BenchMemory) -> Result<KernelSide<'a>, LoadError> {
        let failed = |source| LoadError::Bpf {
            what: "loading the benchmark's BPF object",
            log: String::new(),
            source,
        };
        let mut open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(failed)?;
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some("ring") => map.reuse_fd(memory.ring.as_fd()).map_err(failed)?,
                Some("plane") => map.reuse_fd(memory.plane.as_fd()).map_err(failed)?,
                _ => {}
            }
        }
        let object = open.load().map_err(failed)?;
        let map = object.maps().find(|map| map.name() == "outbox");
        let map = map.ok_or_else(|| {
            LoadError::Mismatch(
                "the benchmark's object has no \
                outbox"
                    .to_owned(),
            )
        })?;
        let outbox = SharedMemory::map(map.as_fd(), 1, Access::Write)
            .map_err(LoadError::io("mapping the outbox"))?;
        let slot = &memory.table[0];
        slot.status.generation.store(GENERATION, Relaxed);
        slot.status.mss.store(1448, Relaxed);
        slot.status.state.store(FLOW_LIVE, Release);
        Ok(KernelSide {
            object,
            outbox,
            slot,
        })
    }

    /// Measures the exchanges, with a pause before each.
    fn measure(
        &self,
        exchanges: usize,
        pause: Duration,
    ) -> Result<Vec<std::time::Duration>, LoadError> {
        self.post(layout::REC_OPEN, 0, &[])?;
        self.take_control_words();
        let program = self.slot.control.tag.load(Relaxed);
        let mut took = Vec::with_capacity(exchanges);
        for n in 0..WARMUP_EXCHANGES + exchanges {
            let due = clock::now() + pause;
            while clock::now() < due {
                std::hint::spin_loop();
            }
            self.post(
                layout::REC_REPORT,
                program,
                &[100_000 + n as u64, 0, 20_000, 1_000_000, 10, 0],
            )?;
            self.take_control_words();
            let sent = self.outbox[0].sent_ns.load(Relaxed);
            if n >= WARMUP_EXCHANGES {
                took.push(clock::now().as_nanos().saturating_sub(sent));
            }
        }
        Ok(took
            .into_iter()
            .map(std::time::Duration::from_nanos)
            .collect())
    }

    fn post(&self, kind: u16, tag: u32, fields: &[u64]) -> Result<(), LoadError> {
        let generation = u64::from(GENERATION);
        let header = [
            u64::from(kind),
            generation,
            u64::from(tag) << 32,
            clock::now().as_micros(),
        ];
        let outbox = &self.outbox[0];
        let words = header.iter().chain(fields);
        for (to, from) in outbox.words.iter().zip(words) {
            to.store(*from, Relaxed);
        }
        outbox
            .size
            .store(8 * (header.len() + fields.len()) as u64, Relaxed);
        let program = self
            .object
            .progs_mut()
            .find(|program| program.name() == "post");
        let program = program.ok_or_else(|| {
            LoadError::Mismatch("the benchmark's object has no `post`".to_owned())
        })?;
        let output = program
            .test_run(ProgramInput::default())
            .map_err(|source| LoadError::Bpf {
                what: "running the benchmark's BPF program",
                log: String::new(),
                source,
            })?;
        match output.return_value {
            0 => Ok(()),
            code => Err(LoadError::Mismatch(format!(
                "the ring accepted no record: {}",
                code as i32
            ))),
        }
    }

    /// Returns true if control words are pending for [`answer`](KernelSide::answer).
    fn has_control_words(&self) -> bool {
        self.slot.control.lock.load(Acquire) & (layout::CTL_WRITING | CTL_PENDING) == CTL_PENDING
    }

    /// Waits for control words and takes them, as the kernel does.
    fn take_control_words(&self) {
        let lock = &self.slot.control.lock;
        loop {
            let seen = lock.load(Acquire);
            let ready = seen & (layout::CTL_WRITING | CTL_PENDING) == CTL_PENDING;
            if ready
                && lock
                    .compare_exchange(seen, seen & !CTL_PENDING, AcqRel, Relaxed)
                    .is_ok()
            {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{missing_requirement, skip};

    #[test]
    fn decisions_come_back() {
        if let Some(reason) = missing_requirement() {
            return skip("decisions_come_back", &reason);
        }
        for agent_loop in [AgentLoop::Polling, AgentLoop::Sleeping] {
            let times =
                measure_mapped(agent_loop, 200, 0).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(times.len(), 200);
            assert!(times.iter().all(|time| !time.is_zero()), "{times:?}");
        }
    }
}
