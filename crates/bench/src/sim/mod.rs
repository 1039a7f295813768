//! `ccplane bench sim`: what a packet over a link costs the simulator, and what a flow, a packet and a host take in memory.

use std::process::Command;

use ccplane_sim::bench::{self, Cost, RUNS};
use ccplane_sim::{PACKET_BYTES, STEERED_FLOW_EXTRA_BYTES, SimError};
use ccplane_units::Time;
use clap::Args;

use ccplane_report::Aim;

use super::Figures;
use crate::exit::{Failure, Kind};

/// What to run.
#[derive(Args)]
pub struct SimArgs {
    /// Only so many ms of the 50-to-1 incast, and nothing printed but its hops: what is run under callgrind.
    #[arg(long, hide = true)]
    only_incast_ms: Option<u64>,
}

/// Simulated ms of the two runs under callgrind, whose difference leaves out the start of the process and slow start.
const UNDER_CALLGRIND_MS: [u64; 2] = [5, 25];

/// Runs the benchmark: about a minute.
pub fn run(args: &SimArgs) -> Result<Option<Figures>, Failure> {
    if let Some(length) = args.only_incast_ms {
        let mut sim = bench::incast(50, 250, false).map_err(fail)?;
        sim.run_until(ms(length)).map_err(fail)?;
        println!("{}", sim.counters().hops);
        return Ok(None);
    }
    let mut figures = Figures::default();
    let mut all: Vec<Cost> = Vec::new();
    let mut keep = |cost: Cost| {
        all.push(cost);
        cost
    };

    let incast = keep(bench::cost(RUNS, Time::ZERO, ms(1_000), || bench::incast(50, 250, false)).map_err(fail)?);
    let steered = keep(bench::cost(RUNS, Time::ZERO, ms(1_000), || bench::incast(50, 250, true)).map_err(fail)?);
    let many = keep(bench::cost(RUNS, ms(100), ms(400), bench::incast_10000).map_err(fail)?);
    let tree = keep(bench::cost(RUNS, Time::ZERO, ms(1), || bench::fat_tree(16)).map_err(fail)?);
    let dumbbell = keep(bench::cost(RUNS, Time::ZERO, ms(60_000), || bench::dumbbell(160, 1)).map_err(fail)?);
    let big = keep(bench::cost(RUNS, Time::ZERO, ms(60_000), || bench::dumbbell(bench::BIG_QUEUE, 1)).map_err(fail)?);
    let hops: u64 = all.iter().map(|cost| cost.hops).sum();
    let spent: f64 = all.iter().map(|cost| cost.cpu_s).sum();

    let mut at_most = |key: &str, value: f64, unit: &'static str, aim: f64, reference: &'static str| {
        figures.add(key, value, unit, Some(Aim::AtMost(aim)), reference);
    };
    let a_hop = "ns a hop";
    at_most(
        "incast50_ns_per_hop",
        incast.ns_per_hop(),
        a_hop,
        35.0,
        "htsim 101 (NewReno only), ns-3 7470",
    );
    at_most("incast50_ccp_ns_per_hop", steered.ns_per_hop(), a_hop, 45.0, "");
    at_most("incast10000_ns_per_hop", many.ns_per_hop(), a_hop, 90.0, "htsim 390");
    at_most(
        "fattree1024_ns_per_hop",
        tree.ns_per_hop(),
        a_hop,
        200.0,
        "htsim NDP 3300, Swift 1710",
    );
    at_most(
        "fattree1024_bytes_per_host",
        tree.memory as f64 / 1024.0,
        "bytes",
        8_192.0,
        "htsim 170000",
    );
    at_most("dumbbell_wall_s", dumbbell.wall_s, "s", 0.06, "ns-3 7.6");
    at_most(
        "big_window_ratio",
        big.ns_per_hop() / dumbbell.ns_per_hop(),
        "x a hop",
        1.3,
        "ns-3 26",
    );
    at_most(
        "events_per_hop",
        incast.events_per_hop(),
        "",
        1.1,
        "htsim 2.0, ns-3 3.3",
    );
    let idle = bench::idle_flow_bytes().map_err(fail)? as f64;
    at_most("idle_flow_bytes", idle, "bytes", 1_024.0, "htsim 3600, ns-3 82000");
    at_most(
        "steered_flow_extra_bytes",
        STEERED_FLOW_EXTRA_BYTES as f64,
        "bytes",
        512.0,
        "",
    );
    at_most("packet_bytes", PACKET_BYTES as f64, "bytes", 64.0, "");
    let speedup = bench::parallel_speedup().map_err(fail)?;
    figures.add("parallel_speedup", speedup, "x one core", Some(Aim::AtLeast(1.9)), "");
    figures.add(
        "hops_per_s_total",
        hops as f64 / spent,
        "1/s",
        None,
        "htsim 9.9 M, ns-3 0.13 M (incast of 50)",
    );
    match instructions_per_hop() {
        Ok(instructions) => figures.add("instructions_per_hop", instructions, "", None, "htsim 1147, ns-3 46812"),
        Err(why) => figures.note(format!("no instructions_per_hop: {why}")),
    }
    figures.note(format!(
        "medians of {RUNS} runs on one core, in its processor time but for dumbbell_wall_s ({:.4} s of processor time); a hop is a packet over a link, data and ACKs alike; events and instructions \
         are those of the incast of 50; 11,000-packet window: {:.1} ns a hop, 160-packet queue: {:.1}",
        dumbbell.cpu_s,
        big.ns_per_hop(),
        dumbbell.ns_per_hop()
    ));
    Ok(Some(figures))
}

fn ms(ms: u64) -> Time {
    Time::from_micros(ms * 1_000)
}

fn fail(error: SimError) -> Failure {
    Failure::new(Kind::Failed, error)
}

/// Instructions a hop by callgrind, which a busy machine does not disturb: two runs of this program, their difference.
fn instructions_per_hop() -> Result<f64, String> {
    let mut counted = Vec::new();
    for length in UNDER_CALLGRIND_MS {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .args(["bench", "sim", "--only-incast-ms", &length.to_string()])
            .output()
            .map_err(|error| format!("valgrind does not start ({error}); install it for this figure"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        // The last line of its summary: `==123== Collected : 456`.
        let instructions = said
            .lines()
            .find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
        let hops = String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().ok();
        match instructions.zip(hops) {
            Some(both) => counted.push(both),
            None => return Err("callgrind did not count".to_owned()),
        }
    }
    match counted.as_slice() {
        [(few, short), (many, long)] if long > short => Ok(many.saturating_sub(*few) as f64 / (long - short) as f64),
        _ => Err("the longer run had no more hops".to_owned()),
    }
}
