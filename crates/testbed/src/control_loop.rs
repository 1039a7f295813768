//! The control loop over CCP's messages: report → algorithm → update, through a real socket.
//!
//! Agent and datapath are two threads of this process, connected by a Unix datagram socket as two
//! processes would be. The datapath has no traffic ([`IdleDatapath`]), and the algorithm does the
//! minimum that answers every report ([`LoopAlgorithm`]).
#![expect(
    clippy::disallowed_methods,
    reason = "it measures real sockets and threads"
)]

mod answer;
mod datapath;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ccplane_agent::{Agent, AgentOptions, AlgorithmStats};
use ccplane_link::{Datagram, DatapathLink, LinkError, Spinner, ThreadClock, WaitStrategy, serve};

use crate::cpu;

pub use answer::{LoopAlgorithm, PROGRAM};
pub use datapath::IdleDatapath;

/// Parameters of a measurement of the control loop.
#[derive(Clone, Copy, Debug)]
pub struct ControlLoop {
    /// Timed exchanges. A tenth as many untimed ones precede them as a warm-up.
    pub exchanges: usize,
    /// Threads that keep a CPU busy during the measurement.
    pub busy_threads: usize,
    /// Wait strategy of agent and datapath.
    pub wait_strategy: WaitStrategy,
}

/// Reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// Error of the agent.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Error of the datapath.
    #[error("the datapath of the benchmark failed: {0}")]
    Datapath(#[from] io::Error),
    /// The agent did not answer in time.
    #[error("the agent did not answer within 5 s")]
    AgentTimeout,
}

/// Statistics of an agent that has finished serving.
#[derive(Clone, Debug)]
pub struct ServeStats {
    /// Counters that the agent kept for the algorithm.
    pub stats: AlgorithmStats,
    /// CPU time of the agent's thread.
    pub cpu: Duration,
}

/// Measures report → algorithm → update and returns the time of each exchange.
pub fn times(options: &ControlLoop) -> Result<Vec<Duration>, LoopError> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..options.busy_threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let run = with_agent(true, options.wait_strategy, |agent| {
            let mut datapath = IdleDatapath::new(agent, 1)?;
            let mut times = Vec::with_capacity(options.exchanges);
            let (clock, mut spinner) = (ThreadClock::new(), Spinner::new(options.wait_strategy));
            for exchange in 0..options.exchanges + options.exchanges / 10 {
                let start = Instant::now();
                datapath.report(1, 1)?;
                datapath.wait_for_update(clock, &mut spinner)?;
                if exchange >= options.exchanges / 10 {
                    times.push(start.elapsed());
                }
            }
            Ok(times)
        });
        stop.store(true, Ordering::Relaxed);
        run.map(|(times, _)| times)
    })
}

/// Runs an agent on its own thread and `datapath` on the calling thread, with the path of the
/// agent's socket. Returns the result and the agent's statistics. `updates`: the agent answers
/// reports.
pub fn with_agent<T>(
    updates: bool,
    waiting: WaitStrategy,
    datapath: impl FnOnce(&Path) -> Result<T, LoopError>,
) -> Result<(T, ServeStats), LoopError> {
    let path = fresh_path("agent");
    let mut link = Datagram::bind(&path)?;
    serving(&mut link, updates, waiting, || datapath(&path))
}

/// Runs agent and datapath like [`with_agent`], over any link.
pub fn serving<T>(
    link: &mut (dyn DatapathLink + Send),
    updates: bool,
    waiting: WaitStrategy,
    datapath: impl FnOnce() -> Result<T, LoopError>,
) -> Result<(T, ServeStats), LoopError> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let agent = scope.spawn(|| -> Result<ServeStats, LoopError> {
            let mut agent = Agent::new(AgentOptions::default());
            agent
                .add(LoopAlgorithm { updates })
                .map_err(io::Error::other)?;
            serve(&mut agent, &mut [link], waiting, &stop)?;
            Ok(ServeStats {
                stats: agent.stats(answer::ALGORITHM_NAME).unwrap_or_default(),
                cpu: Duration::from_nanos(cpu::this_thread_ns()),
            })
        });
        let result = datapath();
        stop.store(true, Ordering::Relaxed);
        let served = match agent.join() {
            Ok(served) => served?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok((result?, served))
    })
}

/// Returns a socket path that no other test or process uses.
pub fn fresh_path(what: &str) -> PathBuf {
    static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!(
        "ccplane-bench-{}-{number}.{what}",
        std::process::id()
    ))
}
