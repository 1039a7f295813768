//! `ccplane bench control-loop`: report to algorithm to update and back, through a real agent.

use ccplane_agent::bench::{ControlLoop, Latencies, client, control_loop};
use ccplane_agent::link::Waiting;
use ccplane_report::Aim;

use super::Figures;
use super::against::{AgainstArgs, ROUNDS, Who};
use crate::doctor;
use crate::exit::{Failure, Kind};

const EXCHANGES: usize = 50_000;
/// Of the plain client, a round: some 50 µs each.
const CLIENT_EXCHANGES: usize = 20_000;
/// Of portus' time, where the client sleeps.
const OF_PORTUS: Aim = Aim::AtMost(0.5);
/// As the reference was loaded: as many hogs as this kind of machine has cores.
const HOGS: usize = 2;

/// Runs the benchmark.
pub fn run(args: &AgainstArgs) -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    for (waits, key) in [
        (client::Waits::Sleeping, "ccp_client"),
        (client::Waits::Looking, "ccp_client_spin"),
    ] {
        let times = args.rounds(true, |path| {
            let all = client::latencies(path, waits, CLIENT_EXCHANGES)?;
            Ok(vec![all.p50_us, all.p95_us])
        })?;
        for (rounds, percentile) in times.iter().zip(["p50_us", "p95_us"]) {
            let key = format!("{key}_{percentile}");
            rounds.add(&mut figures, &key, "us");
            rounds.add_ratio(&mut figures, &key, Who::Portus, OF_PORTUS);
        }
    }
    figures.note(format!(
        "ccp_client: a plain CCP datapath that sleeps (_spin: looks) until the answer comes, and the agent in a process of its own; `_bound`: a peer that does nothing but answer; {ROUNDS} rounds in turns of {CLIENT_EXCHANGES} exchanges, medians; of ratios the least and the most"
    ));
    let unix = |hogs, exchanges| {
        let options = ControlLoop {
            exchanges,
            hogs,
            waiting: Waiting::default(),
        };
        control_loop(&options).map_err(|e| Failure::new(Kind::Failed, e))
    };
    let idle = median(&[unix(0, EXCHANGES)?, unix(0, EXCHANGES)?, unix(0, EXCHANGES)?]);
    let loaded = median(&[unix(HOGS, EXCHANGES)?, unix(HOGS, EXCHANGES)?, unix(HOGS, EXCHANGES)?]);
    figures.add("unix_p50_us", idle.p50_us, "us", None, "");
    figures.add("unix_p95_us", idle.p95_us, "us", Some(Aim::AtMost(12.0)), "");
    figures.add("unix_p99_us", idle.p99_us, "us", None, "");
    figures.add("unix_loaded_p99_us", loaded.p99_us, "us", Some(Aim::AtMost(60.0)), "");
    figures.note(format!(
        "unix: version-1 messages over a Unix datagram socket, {EXCHANGES} exchanges, medians of 3 runs; loaded: {HOGS} CPU hogs"
    ));
    if let Err(missing) = doctor::require(&[doctor::Need::KernelTcp]) {
        figures.note(format!("mapped: not measured: {missing}"));
        return Ok(figures);
    }
    let mapped = |hogs| ccplane_linux::bench::mapped_loop(EXCHANGES, hogs).map_err(|e| Failure::new(Kind::Failed, e));
    let idle = median(&[mapped(0)?, mapped(0)?, mapped(0)?]);
    let loaded = median(&[mapped(HOGS)?, mapped(HOGS)?, mapped(HOGS)?]);
    figures.add("mapped_p50_us", idle.p50_us, "us", None, "");
    figures.add("mapped_p95_us", idle.p95_us, "us", Some(Aim::AtMost(3.0)), "");
    figures.add("mapped_p99_us", idle.p99_us, "us", None, "");
    figures.add("mapped_loaded_p99_us", loaded.p99_us, "us", None, "");
    figures.note("mapped: from the report's submission to the kernel's ring to the window in the mapped flow table, both sides polling");
    Ok(figures)
}

/// Figure by figure.
fn median(runs: &[Latencies]) -> Latencies {
    let middle = |figure: fn(&Latencies) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Latencies {
        p50_us: middle(|l| l.p50_us),
        p95_us: middle(|l| l.p95_us),
        p99_us: middle(|l| l.p99_us),
        p999_us: middle(|l| l.p999_us),
    }
}
