//! DX, slides 7 to 20: packets with the timestamps of several clocks, and packets that pass a queue
//! of known length. `papers/dx/accuracy.py` computes the accuracy of the measured delays.

mod real;
mod rows;
mod segments;
mod simulated;
mod switch;

use std::collections::{BTreeMap, BTreeSet};

use ccplane_algorithms::Registry;
use ccplane_lab::scenario::StampErrors;
use ccplane_lab::{Error, Progress};
use ccplane_units::Duration;
use serde::Serialize;

use rows::{Exchange, Probe, SATURATED, SwitchSample};

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

/// Results of a datapath.
struct Measured {
    exchanges: Vec<Exchange>,
    probes: Vec<Probe>,
    saturated: Vec<SwitchSample>,
    /// Disturbances of the machine, by run.
    disturbances: BTreeMap<&'static str, String>,
}

fn measure(
    options: &Options,
    datapath: Datapath,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let length = |full, quick| Duration::from_millis(if options.quick { quick } else { full });
    let mut tables = Tables::default();
    let measured = match datapath {
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
            Measured {
                exchanges,
                probes,
                saturated: switch::samples(SEED, length(10_000, 1_000)).map_err(&broken)?,
                disturbances: BTreeMap::new(),
            }
        }
        Datapath::Linux => {
            let cancelled = |share, what| {
                progress.on_progress(share, what);
                match progress.is_cancelled() {
                    true => Err(Error::Interrupted),
                    false => Ok(()),
                }
            };
            let exchanges = real::direct(length(20_000, 2_000))?;
            cancelled(0.4, "a saturated link")?;
            let (saturated, of_saturated) = segments::samples(length(30_000, 3_000))?;
            cancelled(0.6, "a known queue")?;
            let (probes, of_probes) = real::emulated(length(60_000, 5_000))?;
            let disturbances = [(SATURATED, of_saturated), (real::EMULATOR, of_probes)];
            Measured {
                exchanges,
                probes,
                saturated,
                disturbances: disturbances
                    .into_iter()
                    .filter_map(|(run, cell)| Some((run, cell?)))
                    .collect(),
            }
        }
    };
    tables.add("exchanges", &measured.exchanges)?;
    tables.add("probes", &measured.probes)?;
    tables.add(SATURATED, &measured.saturated)?;
    let runs = measured.exchanges.iter().map(|exchange| exchange.run);
    let runs = runs.chain(measured.probes.iter().map(|probe| probe.run));
    let runs: BTreeSet<&str> = runs.chain([SATURATED]).collect();
    let clocks = hardware_clocks();
    let run = |run| Run {
        run,
        hardware_clocks: clocks.clone(),
        disturbances: measured.disturbances.get(run).cloned(),
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
