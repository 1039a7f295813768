//! The control loop over CCP's messages: report → algorithm → update and back, through a real
//! socket.
//!
//! Agent and datapath are two threads of this process, joined by a Unix datagram socket as they
//! would be in two. The datapath is one without traffic ([`IdleDatapath`]), the algorithm does as
//! little as one can that answers ([`LoopAlgorithm`]).
#![expect(
    clippy::disallowed_methods,
    reason = "it times what real sockets and threads do"
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

/// How to time the control loop.
#[derive(Clone, Copy, Debug)]
pub struct ControlLoop {
    /// Exchanges timed, after a tenth as many that are not.
    pub exchanges: usize,
    /// Threads that keep a CPU busy meanwhile.
    pub hogs: usize,
    /// How agent and datapath wait.
    pub waiting: WaitStrategy,
}

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The agent's side.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The datapath's side.
    #[error("the bench's datapath: {0}")]
    Datapath(#[from] io::Error),
    /// The agent did not answer.
    #[error("the agent did not answer within 5 s")]
    Silent,
}

/// What an agent did while it served.
#[derive(Clone, Debug)]
pub struct ServeStats {
    /// What it counted of the algorithm.
    pub stats: AlgorithmStats,
    /// CPU time of its thread.
    pub cpu: Duration,
}

/// Times report → algorithm → update and back: each exchange's time.
pub fn times(options: &ControlLoop) -> Result<Vec<Duration>, LoopError> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..options.hogs {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let run = with_agent(true, options.waiting, |agent| {
            let mut datapath = IdleDatapath::new(agent, 1)?;
            let mut times = Vec::with_capacity(options.exchanges);
            let (clock, mut spinner) = (ThreadClock::new(), Spinner::new(options.waiting));
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

/// Runs an agent on a thread of its own, and `datapath` on this one with the path to reach it; what
/// the agent did. `updates`: it answers reports.
pub fn with_agent<T>(
    updates: bool,
    waiting: WaitStrategy,
    datapath: impl FnOnce(&Path) -> Result<T, LoopError>,
) -> Result<(T, ServeStats), LoopError> {
    let path = fresh_path("agent");
    let mut link = Datagram::bind(&path)?;
    serving(&mut link, updates, waiting, || datapath(&path))
}

/// The same over any link.
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

/// A path that no other socket of this machine uses.
pub fn fresh_path(what: &str) -> PathBuf {
    static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!(
        "ccplane-bench-{}-{number}.{what}",
        std::process::id()
    ))
}
