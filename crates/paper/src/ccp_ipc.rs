//! Latency between a datapath and its agent over each channel, for `papers/ccp/ipc.py`.
//!
//! As in CCP's paper (SIGCOMM 2018, section 7.2.1), first without an algorithm: a Unix socket with
//! an echo in another process, and Netlink, where the kernel acknowledges a message without a
//! request. Then ccplane's own channels with their content: a report, through an agent and its
//! algorithm, and the update that answers it. Each on an idle machine, and next to threads that
//! compute without pause.

mod echo;
mod local;

use std::time::Duration;

use ccplane_algorithms::Registry;
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::Distribution;
use ccplane_link::WaitStrategy;
use ccplane_linux::bench::{AgentLoop, measure_mapped};
use ccplane_testbed::BackendError;
use ccplane_testbed::control_loop::{self, ControlLoop};
use serde::Serialize;

use super::program::{Program, Tables};
use super::{Datapath, Options};

pub use echo::{COMMAND as ECHO_COMMAND, serve as echo};

pub(super) const PROGRAM: Program = Program {
    script: "ccp/ipc",
    on: &[Datapath::Linux],
    repeats: None,
    measure,
};

/// Channel, and the function that measures it with a number of exchanges and of busy threads.
struct Channel {
    name: &'static str,
    times: fn(usize, usize) -> Result<Vec<Duration>, Error>,
}

const CHANNELS: [Channel; 6] = [
    Channel {
        name: "unix_echo",
        times: echo::unix,
    },
    Channel {
        name: "netlink_echo",
        times: echo::netlink,
    },
    Channel {
        name: "datagram",
        times: datagram,
    },
    Channel {
        name: "local",
        times: local::times,
    },
    Channel {
        name: "mapped",
        times: |exchanges, busy_threads| mapped(AgentLoop::Polling, exchanges, busy_threads),
    },
    Channel {
        name: "mapped_sleeping",
        times: |exchanges, busy_threads| mapped(AgentLoop::Sleeping, exchanges, busy_threads),
    },
];

/// Number of busy threads of each load. The paper's reference had as many as the machine has CPUs.
const LOADS: [(usize, &str); 2] = [(0, "idle"), (2, "loaded")];

/// Row of the table of runs.
#[derive(Serialize)]
struct RunRow {
    run: String,
    channel: &'static str,
    load: &'static str,
    exchanges: usize,
}

/// Quantile of the latency of a run.
#[derive(Serialize)]
struct QuantileRow {
    run: String,
    permille: usize,
    latency_us: f64,
}

fn measure(
    options: &Options,
    _datapath: Datapath,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let exchanges = if options.quick { 5_000 } else { 100_000 };
    let (parts, key) = (options.parts(), exchanges.to_string());
    let (mut runs, mut quantiles) = (Vec::new(), Vec::new());
    for channel in &CHANNELS {
        for (busy_threads, load) in LOADS {
            let name = format!("{}-{load}", channel.name);
            let done = runs.len() as f64 / (CHANNELS.len() * LOADS.len()) as f64;
            progress.on_progress(done, &name);
            if progress.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let file = format!("{name}.json");
            let permilles = match parts.kept::<Vec<f64>>(&file, &key) {
                Some(permilles) => permilles,
                None => {
                    let permilles = permilles((channel.times)(exchanges, busy_threads)?);
                    parts.keep(&file, &key, &permilles)?;
                    permilles
                }
            };
            quantiles.extend(
                (0..)
                    .zip(permilles)
                    .map(|(permille, latency_us)| QuantileRow {
                        run: name.clone(),
                        permille,
                        latency_us,
                    }),
            );
            runs.push(RunRow {
                run: name,
                channel: channel.name,
                load,
                exchanges,
            });
        }
    }
    let mut tables = Tables::default();
    tables.add("runs", &runs)?;
    tables.add("latency", &quantiles)?;
    Ok(tables)
}

/// Returns the quantiles of 0 to 1,000 thousandths, µs.
fn permilles(times: Vec<Duration>) -> Vec<f64> {
    let times = Distribution::new(times.into_iter().map(|time| time.as_secs_f64() * 1e6));
    (0..=1_000)
        .filter_map(|permille| times.quantile(f64::from(permille) / 1_000.0))
        .collect()
}

/// Times report and update in CCP's messages.
fn datagram(exchanges: usize, busy_threads: usize) -> Result<Vec<Duration>, Error> {
    let options = ControlLoop {
        exchanges,
        busy_threads,
        wait_strategy: WaitStrategy::default(),
    };
    control_loop::times(&options)
        .map_err(|error| Error::traffic("time the control loop", "")(std::io::Error::other(error)))
}

/// Times report and update through the kernel's ring buffer and the mapped table.
fn mapped(
    agent_loop: AgentLoop,
    exchanges: usize,
    busy_threads: usize,
) -> Result<Vec<Duration>, Error> {
    measure_mapped(agent_loop, exchanges, busy_threads)
        .map_err(|why| BackendError::Kernel(why).into())
}

/// Runs `work` next to threads that compute.
fn next_to_busy_threads<T>(count: usize, work: impl FnOnce() -> T) -> T {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = work();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permilles_are_in_microseconds() {
        let permilles = permilles((1..=1_000).map(Duration::from_micros).collect());
        assert_eq!((permilles.len(), permilles[950]), (1_001, 950.0));
    }

    /// The channels that need no privileges and no other process.
    #[test]
    fn every_channel_times_all_exchanges() {
        for channel in CHANNELS
            .iter()
            .filter(|channel| ["netlink_echo", "datagram", "local"].contains(&channel.name))
        {
            let times = (channel.times)(50, 0);
            let times = times.unwrap_or_else(|error| panic!("{}: {error}", channel.name));
            assert_eq!(times.len(), 50, "{}", channel.name);
            assert!(times.iter().all(|time| !time.is_zero()), "{}", channel.name);
        }
    }
}
