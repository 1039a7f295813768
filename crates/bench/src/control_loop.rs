//! `ccplane bench control-loop`: report to algorithm to update and back, through a real agent.

use std::time::Duration;

use ccplane_lab::metrics::Distribution;
use ccplane_link::WaitStrategy;
use ccplane_linux::bench::{AgentLoop, measure_mapped};
use ccplane_report::TargetRange;
use ccplane_testbed::control_loop::{self, ControlLoop};

use crate::peers::{Against, ROUNDS, Who, client};
use crate::rounds::medians;
use crate::{Error, Figures, over_tls};

const EXCHANGES: usize = 50_000;
const RUNS: usize = 3;
/// Of the plain client, a round: some 50 µs each.
const CLIENT_EXCHANGES: usize = 20_000;
/// Of portus' time, where the client sleeps.
const OF_PORTUS: TargetRange = TargetRange::AtMost(0.5);
/// As the reference was loaded: as many hogs as this kind of machine has cores.
const HOGS: usize = 2;

/// Runs the benchmark. `lacks`: what this host lacks to load BPF programs, so that the mapped link
/// is left out.
pub fn run(against: &Against, lacks: Option<String>) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    for (waits, key) in [
        (client::Waits::Sleeping, "ccp_client"),
        (client::Waits::Looking, "ccp_client_spin"),
    ] {
        let rounds = against.rounds(true, |path| {
            let [p50, p95, _] = percentiles_us(&client::times(path, waits, CLIENT_EXCHANGES)?);
            Ok([p50, p95])
        })?;
        for (at, percentile) in ["p50_us", "p95_us"].into_iter().enumerate() {
            let key = format!("{key}_{percentile}");
            rounds.add(&mut figures, at, &key, "us");
            rounds.add_ratio(&mut figures, at, &key, Who::Portus, OF_PORTUS);
        }
    }
    figures.note(format!(
        "ccp_client: a plain CCP datapath that sleeps (_spin: looks) until the answer comes, and the agent in a process of its own; `_bound`: a peer that does nothing but answer; {ROUNDS} rounds in turns of {CLIENT_EXCHANGES} exchanges, medians; of ratios the least and the most"
    ));
    let unix = |hogs| {
        let options = ControlLoop {
            exchanges: EXCHANGES,
            busy_threads: hogs,
            wait_strategy: WaitStrategy::default(),
        };
        medians(RUNS, || {
            Ok::<_, Error>(percentiles_us(&control_loop::times(&options)?))
        })
    };
    let [p50, p95, p99] = unix(0)?;
    let [_, _, loaded_p99] = unix(HOGS)?;
    figures.add("unix_p50_us", p50, "us");
    figures.add("unix_p95_us", p95, "us").at_most(12.0);
    figures.add("unix_p99_us", p99, "us");
    figures
        .add("unix_loaded_p99_us", loaded_p99, "us")
        .at_most(60.0);
    figures.note(format!(
        "unix: version-1 messages over a Unix datagram socket, {EXCHANGES} exchanges, medians of {RUNS} runs; loaded: {HOGS} CPU hogs"
    ));
    let tls = || Ok::<_, Error>(percentiles_us(&over_tls::times(EXCHANGES)?));
    let [p50, p95, p99] = medians(RUNS, tls)?;
    figures.add("tls_p50_us", p50, "us").at_most(30.0);
    figures.add("tls_p95_us", p95, "us").at_most(60.0);
    figures.add("tls_p99_us", p99, "us");
    figures.note(format!(
        "tls: version-2 messages over TLS 1.3 on loopback, {EXCHANGES} exchanges, medians of {RUNS} runs; both sides look before they sleep"
    ));
    if let Some(lacks) = lacks {
        figures.note(format!("mapped: not measured: {lacks}"));
        return Ok(figures);
    }
    let mapped = |hogs| {
        let times = || measure_mapped(AgentLoop::Polling, EXCHANGES, hogs);
        medians(RUNS, || Ok::<_, Error>(percentiles_us(&times()?)))
    };
    let [p50, p95, p99] = mapped(0)?;
    let [_, _, loaded_p99] = mapped(HOGS)?;
    figures.add("mapped_p50_us", p50, "us");
    figures.add("mapped_p95_us", p95, "us").at_most(3.0);
    figures.add("mapped_p99_us", p99, "us");
    figures.add("mapped_loaded_p99_us", loaded_p99, "us");
    figures.note("mapped: from the report's submission to the kernel's ring to the window in the mapped flow table, both sides polling");
    Ok(figures)
}

/// What 50, 95 and 99 of 100 exchanges took at most, µs.
pub fn percentiles_us(times: &[Duration]) -> [f64; 3] {
    let times = Distribution::new(times.iter().map(|time| time.as_secs_f64() * 1e6));
    [0.5, 0.95, 0.99].map(|share| times.quantile(share).unwrap_or(f64::NAN))
}
