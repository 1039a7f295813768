//! CCP, SIGCOMM 2018, section 7.2.1, figure 12: how long a message takes to the other side and
//! back, over each way that there is between a datapath and its agent.
//!
//! As in the paper, first without any algorithm: a Unix socket whose other end echoes in another
//! process, and Netlink, where the kernel acknowledges a message that asks for nothing. Then
//! ccplane's own links with what they carry: a report, through an agent and its algorithm, and the
//! update that answers it. Each idle, and with threads that compute without pause.

mod echo;
mod local;

use ccplane_algorithms::Registry;
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::Distribution;
use ccplane_link::WaitStrategy;
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_testbed::BackendError;
use ccplane_testbed::control_loop::{self, ControlLoop};
use serde::{Deserialize, Serialize};

use super::page::Findings;
use super::{Datapath, Experiment, Options, Outcome};

pub use echo::{COMMAND as ECHO_COMMAND, serve as echo};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp-ipc",
    title: "To the agent and back: latency of each way",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.2.1, figure 12",
    takes: "a minute; ten seconds with --quick",
    on: &[Datapath::Linux],
    repeats: None,
    run: super::Run::Code(ipc),
};

/// A way, and how it is measured: so many exchanges, with so many threads that compute.
struct Way {
    key: &'static str,
    name: &'static str,
    /// The paper's kind of measurement: an echo, nothing decided.
    echo: bool,
    times: fn(usize, usize) -> Result<Vec<std::time::Duration>, Error>,
}

const WAYS: [Way; 5] = [
    Way {
        key: "unix_echo",
        name: "Unix socket, echo by a process",
        echo: true,
        times: echo::unix,
    },
    Way {
        key: "netlink_echo",
        name: "Netlink, the kernel's acknowledgement",
        echo: true,
        times: echo::netlink,
    },
    Way {
        key: "datagram",
        name: "Unix datagrams (CCP's messages), agent and algorithm",
        echo: false,
        times: datagram,
    },
    Way {
        key: "local",
        name: "ccplane's local socket, agent and algorithm",
        echo: false,
        times: local::times,
    },
    Way {
        key: "mapped",
        name: "kernel and back through BPF maps, agent and algorithm",
        echo: false,
        times: mapped,
    },
];

/// As many threads as the machine has CPUs on the paper's kind of load test; the reference was
/// loaded so too.
const HOGS: [(usize, &str); 2] = [(0, "idle"), (2, "loaded")];

/// What is kept of a measurement: its quantiles in thousandths, µs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Quantiles(Vec<f64>);

impl Quantiles {
    fn of(times: Vec<std::time::Duration>) -> Quantiles {
        let times = Distribution::new(times.into_iter().map(|time| time.as_secs_f64() * 1e6));
        Quantiles(
            (0..=1_000)
                .filter_map(|i| times.quantile(f64::from(i) / 1_000.0))
                .collect(),
        )
    }

    fn at(&self, thousandth: usize) -> Option<f64> {
        self.0.get(thousandth).copied()
    }
}

fn ipc(options: &Options, _registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    let exchanges = if options.quick { 5_000 } else { 100_000 };
    let (parts, key) = (options.parts(), exchanges.to_string());
    let mut measured = Vec::new();
    for (n, way) in WAYS.iter().enumerate() {
        for (hogs, load) in HOGS {
            let done = (2 * n + hogs.min(1)) as f64;
            progress.on_progress(
                done / (2 * WAYS.len()) as f64,
                &format!("{}, {load}", way.name),
            );
            if progress.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let name = format!("{}-{load}.json", way.key);
            let quantiles = match parts.kept::<Quantiles>(&name, &key) {
                Some(quantiles) => quantiles,
                None => {
                    let quantiles = Quantiles::of((way.times)(exchanges, hogs)?);
                    parts.keep(&name, &key, &quantiles)?;
                    quantiles
                }
            };
            measured.push((way, load, quantiles));
        }
    }
    findings(&measured, exchanges).finish(&EXPERIMENT, options)
}

fn findings(measured: &[(&Way, &str, Quantiles)], exchanges: usize) -> Findings {
    let mut findings = Findings::default();
    let mut rows = Vec::new();
    for (way, load, quantiles) in measured {
        let shown = |thousandth| {
            quantiles
                .at(thousandth)
                .map_or("–".to_owned(), |us| format!("{us:.1}"))
        };
        rows.push(vec![
            way.name.to_owned(),
            (*load).to_owned(),
            shown(500),
            shown(950),
            shown(990),
            shown(999),
        ]);
        let key = format!("ipc_{}_{load}_p95_us", way.key);
        findings.figure(format!("ipc_{}_{load}_p50_us", way.key), quantiles.at(500));
        if *load == "idle" {
            let paper = if way.echo { "below 30" } else { "" };
            findings.compare(
                &key,
                &format!("{}: p95, µs", way.name),
                quantiles.at(950),
                paper,
                TargetRange::AtMost(30.0),
            );
        } else {
            findings.figure(key, quantiles.at(950));
        }
    }
    findings.table(
        "Latency, µs",
        &["way", "load", "p50", "p95", "p99", "p99.9"],
        rows,
    );
    let panel = |load: &str| Chart {
        title: format!("{load}: share of exchanges"),
        x: Axis::log("µs"),
        y: Axis::linear("").with_range(0.0, 1.0),
        lines: measured
            .iter()
            .filter(|(_, other, _)| *other == load)
            .enumerate()
            .map(|(n, (way, _, quantiles))| {
                // To the 99th percentile, as the paper draws it.
                let points = quantiles.0.iter().take(991).enumerate();
                ChartSeries::new(way.key, n, points.map(|(i, us)| (*us, i as f64 / 1e3)))
            })
            .collect(),
        guides: Vec::new(),
    };
    findings.picture(
        "Distribution of the latency over each way",
        &HOGS.map(|(_, load)| panel(load)),
    );
    findings.remark(format!(
        "{exchanges} exchanges of each; loaded: two threads that compute without pause. The paper's are echoes without \
         algorithm or update; the others take a report through an agent, its algorithm and back with an update. `local` and \
         `datagram` look for messages for some time before they sleep, `mapped` does nothing but look, the echoes sleep."
    ));
    findings.deviation(
        "The paper's character device is not rebuilt: it was a kernel module of its own, whose place the mapped memory takes. \
         Its Netlink messages went to such a module; ours go to the kernel's own routing socket, which acknowledges them at once.",
    );
    findings
}

/// Report and update in CCP's messages.
fn datagram(exchanges: usize, hogs: usize) -> Result<Vec<std::time::Duration>, Error> {
    let options = ControlLoop {
        exchanges,
        busy_threads: hogs,
        wait_strategy: WaitStrategy::default(),
    };
    control_loop::times(&options)
        .map_err(|error| Error::traffic("time the control loop", "")(std::io::Error::other(error)))
}

/// Report and update through the kernel's ring buffer and the mapped table.
fn mapped(exchanges: usize, hogs: usize) -> Result<Vec<std::time::Duration>, Error> {
    ccplane_linux::bench::measure_mapped(exchanges, hogs)
        .map_err(|why| BackendError::Kernel(why).into())
}

/// Runs `work` beside threads that compute.
fn beside_hogs<T>(hogs: usize, work: impl FnOnce() -> T) -> T {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..hogs {
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
    fn quantiles_stand_beside_the_papers() {
        let times = (1..=1_000).map(std::time::Duration::from_micros).collect();
        let measured = [
            (&WAYS[0], "idle", Quantiles::of(times)),
            (&WAYS[4], "loaded", Quantiles::default()),
        ];
        let findings = findings(&measured, 1_000);
        assert_eq!(findings.figures()["ipc_unix_echo_idle_p95_us"], 950.0);
        assert!(findings.figures()["ipc_mapped_loaded_p95_us"].is_null());
    }

    /// Those that need no privileges and no process of ours.
    #[test]
    fn every_way_gives_as_many_times_as_there_were_exchanges() {
        for way in WAYS
            .iter()
            .filter(|way| ["netlink_echo", "datagram", "local"].contains(&way.key))
        {
            let times = (way.times)(50, 0).unwrap_or_else(|error| panic!("{}: {error}", way.key));
            assert_eq!(times.len(), 50, "{}", way.key);
            assert!(times.iter().all(|time| !time.is_zero()), "{}", way.key);
        }
    }
}
