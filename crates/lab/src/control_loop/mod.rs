//! How fast the agent is, measured over a real socket against a datapath that speaks version 1.
//!
//! [`control_loop`] times report → algorithm → update and back; [`throughput`] counts reports, and updates that
//! answer them. Agent and datapath are two threads of this process, joined by a Unix datagram socket as they would be
//! in two. [`client`] measures an agent in another process, ours ([`answer()`]) or somebody else's.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod answer;
pub mod client;
mod datapath;
mod peer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::link::{Clock, Datagram, LinkError, Spinner, Waiting, serve};
use crate::{Agent, AlgorithmStats, Options};
use answer::{Answer, NAME};
use datapath::Mock;

pub use peer::{answer, bound};

/// How to time the control loop.
#[derive(Clone, Copy, Debug)]
pub struct ControlLoop {
    /// Exchanges timed, after a tenth as many that are not.
    pub exchanges: usize,
    /// Threads that keep a CPU busy meanwhile.
    pub hogs: usize,
    /// How agent and datapath wait.
    pub waiting: Waiting,
}

/// Times of exchanges, µs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Half took at most this.
    pub p50_us: f64,
    /// 95 of 100.
    pub p95_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p999_us: f64,
}

impl Latencies {
    /// The percentiles of these times; 0 where there are none.
    pub fn of(mut times: Vec<Duration>) -> Latencies {
        times.sort_unstable();
        let at = |part: f64| {
            let index = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
            times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        Latencies {
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
        }
    }
}

/// How to measure throughput.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Flows that report in turn.
    pub flows: u32,
    /// Answer each report with an update.
    pub updates: bool,
    /// Reports in a datagram. CCP's messages allow it; the reference's datapaths send one.
    pub reports_per_datagram: usize,
    /// For how long.
    pub duration: Duration,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// Reports that the algorithm got, a second.
    pub reports_per_s: f64,
    /// Updates that the datapath got, a second.
    pub updates_per_s: f64,
    /// CPU time of the agent's thread for each report, µs: what a core of its own could do follows from it, also on a
    /// machine that is busy with other things.
    pub cpu_us_per_report: f64,
}

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
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

/// Times report → algorithm → update and back.
pub fn control_loop(options: &ControlLoop) -> Result<Latencies, BenchError> {
    control_loop_times(options).map(Latencies::of)
}

/// The same, each exchange's time.
pub fn control_loop_times(options: &ControlLoop) -> Result<Vec<Duration>, BenchError> {
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
            let mut datapath = Mock::new(agent, 1)?;
            let mut times = Vec::with_capacity(options.exchanges);
            let (clock, mut spinner) = (Clock::new(), Spinner::new(options.waiting));
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
        run.map(|(times, ..)| times)
    })
}

/// Counts what the agent gets through when a datapath reports as fast as it can.
pub fn throughput(load: &Load) -> Result<Throughput, BenchError> {
    let ((elapsed, updates), stats, cpu) = with_agent(load.updates, Waiting::default(), |agent| {
        let mut datapath = Mock::new(agent, load.flows)?;
        let start = Instant::now();
        let (mut next, mut updates) = (0, 0);
        while start.elapsed() < load.duration {
            for _ in 0..load.reports_per_datagram.max(1) {
                next = next % load.flows + 1;
                datapath.add_report(next);
            }
            updates += datapath.send_all()? + datapath.take_updates()?;
        }
        let elapsed = start.elapsed();
        Ok((elapsed.as_secs_f64(), updates))
    })?;
    Ok(Throughput {
        reports_per_s: stats.reports as f64 / elapsed,
        updates_per_s: updates as f64 / elapsed,
        cpu_us_per_report: cpu.as_secs_f64() * 1e6 / stats.reports.max(1) as f64,
    })
}

/// Runs an agent on a thread of its own, and `datapath` on this one with the path to reach it.
fn with_agent<T>(
    updates: bool,
    waiting: Waiting,
    datapath: impl FnOnce(&Path) -> Result<T, BenchError>,
) -> Result<(T, AlgorithmStats, Duration), BenchError> {
    let path = a_path("agent");
    let mut link = Datagram::bind(&path)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let agent = scope.spawn(|| {
            let mut agent = Agent::new(Options::default());
            agent.add(Answer { updates }).expect("the program above compiles");
            let served = serve(&mut agent, &mut [&mut link], waiting, &stop);
            served.map(|()| (agent.stats(NAME).unwrap_or_default(), cpu_of_this_thread()))
        });
        let result = datapath(&path);
        stop.store(true, Ordering::Relaxed);
        let (stats, cpu) = match agent.join() {
            Ok(served) => served?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok((result?, stats, cpu))
    })
}

fn cpu_of_this_thread() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else {
        return Duration::ZERO;
    };
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(us.unsigned_abs())
}

/// A path that no other bench of this machine uses.
fn a_path(what: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("ccplane-bench-{}-{number}.{what}", std::process::id()))
}
