//! RC3, figure 15, on real packets: kernel TCP and our transport through the emulated path. 15(b)
//! as it is, and both parts with time stretched as in the repeated testbed: 100 Mbit/s and an RTT
//! that is longer by the factor by which the rate is lower. `papers/rc3/fct.toml` simulates the
//! figure.

mod flow;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_algorithms::Registry;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::{Error, Progress};
use ccplane_testbed::longest_stall;
use ccplane_testbed::machine::MachineWatch;
use ccplane_testbed::traffic::{monotonic_ns, wait_until};
use ccplane_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use self::flow::{Path, Sender, Testbed};
use super::program::{Program, Tables, disturbances_cell};
use super::{Datapath, Options};

pub(super) const PROGRAM: Program = Program {
    script: "rc3/fct",
    on: &[Datapath::Linux],
    repeats: None,
    measure,
};

/// Sizes of the flows, bytes.
const SIZES: [u64; 7] = [1_460, 7_300, 14_600, 73_000, 146_000, 730_000, 1_460_000];

/// One setup of the figure.
#[derive(Debug)]
struct Setup {
    name: &'static str,
    path: Path,
    /// Factor by which time runs slower.
    stretch: u32,
}

const SETUPS: [Setup; 3] = [
    Setup {
        name: "1g",
        path: Path {
            rate: Rate::from_bits_per_sec(1_000_000_000),
            delay: Duration::from_millis(10),
        },
        stretch: 1,
    },
    Setup {
        name: "1g_by10",
        path: Path {
            rate: Rate::from_bits_per_sec(100_000_000),
            delay: Duration::from_millis(100),
        },
        stretch: 10,
    },
    Setup {
        name: "10g_by100",
        path: Path {
            rate: Rate::from_bits_per_sec(100_000_000),
            delay: Duration::from_secs(1),
        },
        stretch: 100,
    },
];

/// Flows of one sender in one setup.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Flows {
    /// Size of each flow in bytes, and its time in ms.
    flows: Vec<(u64, f64)>,
    on_time: bool,
    disturbances: Vec<String>,
}

/// Row of the table of runs.
#[derive(Serialize)]
struct RunRow {
    run: String,
    setup: &'static str,
    sender: &'static str,
    rtt_ms: f64,
    stretch: u32,
    complaints: Option<&'static str>,
    disturbances: Option<String>,
}

/// Row of the table of flows.
#[derive(Serialize)]
struct FlowRow {
    run: String,
    bytes: u64,
    took_ms: f64,
}

fn measure(
    options: &Options,
    _: Datapath,
    _: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let (mut runs, mut flows) = (Vec::new(), Vec::new());
    for (n, setup) in SETUPS.iter().enumerate() {
        progress.on_progress(n as f64 / SETUPS.len() as f64, setup.name);
        for (sender, measured) in run_setup(setup, options, progress)? {
            let run = format!("{} {}", setup.name, sender.name());
            flows.extend(measured.flows.iter().map(|(bytes, took_ms)| FlowRow {
                run: run.clone(),
                bytes: *bytes,
                took_ms: *took_ms,
            }));
            runs.push(RunRow {
                run,
                setup: setup.name,
                sender: sender.name(),
                rtt_ms: 2e3 * setup.path.delay.as_secs_f64(),
                stretch: setup.stretch,
                complaints: (!measured.on_time).then_some("the emulator was late"),
                disturbances: disturbances_cell(&measured.disturbances),
            });
        }
    }
    let mut tables = Tables::default();
    tables.add("runs", &runs)?;
    tables.add("flows", &flows)?;
    Ok(tables)
}

/// Runs all senders of a setup: one after the other at full speed, all at once with stretched time,
/// which leaves the machine idle.
fn run_setup(
    setup: &Setup,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<(Sender, Flows)>, Error> {
    /// Interval at which the threads check for a cancellation.
    const POLL_INTERVAL: Duration = Duration::from_millis(50);
    let stop = AtomicBool::new(false);
    let (senders, stop) = (Sender::ALL, &stop);
    let per_thread = if setup.stretch == 1 { senders.len() } else { 1 };
    let run_group = |group: &[Sender]| -> Result<Vec<(Sender, Flows)>, Error> {
        let run = |sender: &Sender| Ok((*sender, run(setup, *sender, options, stop)?));
        group.iter().map(run).collect()
    };
    thread::scope(|scope| {
        let groups = senders.chunks(per_thread);
        let threads: Vec<_> = groups
            .map(|group| scope.spawn(move || run_group(group)))
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            if progress.is_cancelled() {
                stop.store(true, Ordering::Relaxed);
            }
            wait_until(monotonic_ns() + POLL_INTERVAL.as_nanos());
        }
        let mut all = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(group) => all.append(&mut group?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}

/// Makes the flows of one sender, or reads them from an earlier run.
fn run(
    setup: &Setup,
    sender: Sender,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Flows, Error> {
    let count = match (options.quick, setup.stretch) {
        (true, 100) => 1,
        (true, _) => 3,
        (false, _) => 10,
    };
    let rtt_ms = 2e3 * setup.path.delay.as_secs_f64();
    let make = || {
        let testbed = Testbed::start(setup.path, sender)?;
        let watch = MachineWatch::start();
        // The first flow is slower, because caches are cold.
        testbed.flows(SIZES[0], 1, stop)?;
        let mut flows = Vec::new();
        for bytes in SIZES {
            let took = testbed.flows(bytes, count, stop)?;
            flows.extend(took.iter().map(|took| (bytes, took.as_secs_f64() * 1e3)));
        }
        let disturbances = watch.finish().disturbances(longest_stall(rtt_ms));
        Ok(Flows {
            flows,
            on_time: testbed.finish()?,
            disturbances,
        })
    };
    options.parts().part(
        &format!("flows-{}-{}.json", setup.name, sender.name()),
        &format!("{count} flows"),
        |flows: &Flows| Disturbed::from(&flows.disturbances),
        make,
    )
}
