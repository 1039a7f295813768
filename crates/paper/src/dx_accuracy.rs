//! DX, slides 7 to 20: packets with the timestamps of several clocks, and packets that pass a queue
//! of known length. `papers/dx/accuracy.py` computes the accuracy of the measured delays.

mod real;
mod simulated;

use std::collections::BTreeSet;

use ccplane_algorithms::Registry;
use ccplane_lab::scenario::StampErrors;
use ccplane_lab::{Error, Progress};
use ccplane_units::Duration;
use serde::Serialize;

use crate::program::{Program, Tables};
use crate::{Datapath, Options, simulations};

pub(crate) const PROGRAM: Program = Program {
    script: "dx/accuracy",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: None,
    measure,
};

const SEED: u64 = 1;

#[derive(Serialize)]
struct Run {
    run: &'static str,
    /// Interfaces of this host that can stamp every packet in hardware: `eth0 on, eth1 off`.
    hardware_clocks: String,
    disturbances: Option<String>,
}

/// Timestamps of a packet and of its answer, ns, with the names of NTP; 0 on real packets if
/// unknown.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Exchange {
    run: &'static str,
    t1: i64,
    t2: i64,
    t3: i64,
    t4: i64,
    /// Round trip in user space.
    user: Option<i64>,
}

/// Queueing delay of a packet and its measured value, ns.
#[derive(Clone, Copy, Debug, Serialize)]
struct Probe {
    run: &'static str,
    truth: i64,
    measured: i64,
}

fn measure(
    options: &Options,
    datapath: Datapath,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let length = |full, quick| Duration::from_millis(if options.quick { quick } else { full });
    let mut tables = Tables::default();
    let (exchanges, probes, disturbances) = match datapath {
        Datapath::Sim => {
            let broken = simulations::broken("stamps", SEED, "dx-accuracy");
            let (exchanges, mut probes) =
                simulated::exchanges(SEED, length(200, 50)).map_err(&broken)?;
            for (run, stamps) in [
                ("exact", StampErrors::EXACT_TIMESTAMPS),
                ("hardware", StampErrors::HARDWARE_TIMESTAMPS),
                ("software", StampErrors::SOFTWARE_TIMESTAMPS),
            ] {
                let length = length(10_000, 3_000);
                probes.extend(simulated::probes(run, &stamps, SEED, length).map_err(&broken)?);
            }
            (exchanges, probes, None)
        }
        Datapath::Linux => {
            let exchanges = real::direct(length(20_000, 2_000))?;
            progress.on_progress(0.5, "a known queue");
            if progress.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let (probes, disturbances) = real::emulated(length(60_000, 5_000))?;
            (exchanges, probes, disturbances)
        }
    };
    tables.add("exchanges", &exchanges)?;
    tables.add("probes", &probes)?;
    let runs = exchanges.iter().map(|exchange| exchange.run);
    let runs: BTreeSet<&str> = runs.chain(probes.iter().map(|probe| probe.run)).collect();
    let clocks = hardware_clocks();
    let run = |run| Run {
        run,
        hardware_clocks: clocks.clone(),
        disturbances: disturbances.clone().filter(|_| run == real::EMULATOR),
    };
    tables.add("runs", &runs.into_iter().map(run).collect::<Vec<_>>())?;
    Ok(tables)
}

fn hardware_clocks() -> String {
    let devices = std::fs::read_dir("/sys/class/net").into_iter().flatten();
    let clocks = devices.flatten().filter_map(|device| {
        let name = device.file_name().into_string().ok()?;
        let clock = ccplane_host::timestamping(&name).ok()?;
        let state = if clock.hardware_on { "on" } else { "off" };
        (clock.sends_hardware && clock.receives_hardware).then(|| format!("{name} {state}"))
    });
    let mut clocks: Vec<String> = clocks.collect();
    clocks.sort();
    clocks.join(", ")
}
