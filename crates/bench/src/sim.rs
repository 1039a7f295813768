//! `ccplane bench sim`: what a packet over a link costs the simulator, and what a flow, a packet
//! and a host take in memory.
//!
//! A hop is one packet over one link, data and acknowledgements alike.

mod cost;
mod scenarios;

use std::process::Command;

use ccplane_sim::{PACKET_BYTES, STEERED_FLOW_EXTRA_BYTES};
use ccplane_units::Time;

use crate::{Error, Figures};

use cost::{RUNS, cost, parallel_speedup};
pub use scenarios::incast;
use scenarios::{BIG_QUEUE, dumbbell, fat_tree, idle_flow_bytes, incast_10000};

/// Simulated ms of the two runs under callgrind, whose difference leaves out the start of the
/// process and slow start.
const UNDER_CALLGRIND_MS: [u64; 2] = [5, 25];

/// Only so many ms of the 50-to-1 incast: its hops. It is what runs under callgrind, as `ccplane
/// bench sim --only-incast-ms`.
pub fn only_incast(length_ms: u64) -> Result<u64, Error> {
    let mut sim = incast(50, 250, false)?;
    sim.run_until(ms(length_ms))?;
    Ok(sim.counters().hops)
}

/// Runs the benchmark: about a minute.
pub fn run() -> Result<Figures, Error> {
    let incast50 = cost(RUNS, Time::ZERO, ms(1_000), || incast(50, 250, false))?;
    let steered = cost(RUNS, Time::ZERO, ms(1_000), || incast(50, 250, true))?;
    let many = cost(RUNS, ms(100), ms(400), incast_10000)?;
    let tree = cost(RUNS, Time::ZERO, ms(1), || fat_tree(16))?;
    let small = cost(RUNS, Time::ZERO, ms(60_000), || dumbbell(160, 1))?;
    let big = cost(RUNS, Time::ZERO, ms(60_000), || dumbbell(BIG_QUEUE, 1))?;
    let all = [&incast50, &steered, &many, &tree, &small, &big];
    let hops: u64 = all.iter().map(|cost| cost.hops).sum();
    let spent: f64 = all.iter().map(|cost| cost.cpu_s).sum();

    let mut figures = Figures::default();
    let mut at_most =
        |key: &str, value: f64, unit: &'static str, aim: f64, reference: &'static str| {
            figures.add(key, value, unit).at_most(aim).beside(reference);
        };
    let a_hop = "ns a hop";
    at_most(
        "incast50_ns_per_hop",
        incast50.ns_per_hop(),
        a_hop,
        35.0,
        "htsim 101 (NewReno only), ns-3 7470",
    );
    at_most(
        "incast50_ccp_ns_per_hop",
        steered.ns_per_hop(),
        a_hop,
        45.0,
        "",
    );
    at_most(
        "incast10000_ns_per_hop",
        many.ns_per_hop(),
        a_hop,
        90.0,
        "htsim 390",
    );
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
    at_most("dumbbell_wall_s", small.wall_s, "s", 0.06, "ns-3 7.6");
    let ratio = big.ns_per_hop() / small.ns_per_hop();
    at_most("big_window_ratio", ratio, "x a hop", 1.3, "ns-3 26");
    let events = incast50.events_per_hop();
    at_most("events_per_hop", events, "", 1.1, "htsim 2.0, ns-3 3.3");
    let idle = idle_flow_bytes()? as f64;
    at_most(
        "idle_flow_bytes",
        idle,
        "bytes",
        1_024.0,
        "htsim 3600, ns-3 82000",
    );
    let extra = STEERED_FLOW_EXTRA_BYTES as f64;
    at_most("steered_flow_extra_bytes", extra, "bytes", 512.0, "");
    at_most("packet_bytes", PACKET_BYTES as f64, "bytes", 64.0, "");
    figures
        .add("parallel_speedup", parallel_speedup()?, "x one core")
        .at_least(1.9);
    figures
        .add("hops_per_s_total", hops as f64 / spent, "1/s")
        .beside("htsim 9.9 M, ns-3 0.13 M (incast of 50)");
    match instructions_per_hop() {
        Ok(instructions) => {
            figures
                .add("instructions_per_hop", instructions, "")
                .beside("htsim 1147, ns-3 46812")
                .at_most(450.0);
        }
        Err(why) => figures.note(format!("no instructions_per_hop: {why}")),
    }
    figures.note(format!(
        "medians of {RUNS} runs on one core, in its processor time but for dumbbell_wall_s ({:.4} s of processor time); a hop is a packet over a link, data and ACKs alike; events and instructions \
         are those of the incast of 50; 11,000-packet window: {:.1} ns a hop, 160-packet queue: {:.1}",
        small.cpu_s,
        big.ns_per_hop(),
        small.ns_per_hop()
    ));
    Ok(figures)
}

fn ms(ms: u64) -> Time {
    Time::from_micros(ms * 1_000)
}

/// Instructions a hop by callgrind, which a busy machine does not disturb: two runs of this
/// program, their difference.
fn instructions_per_hop() -> Result<f64, String> {
    let mut counted = Vec::new();
    for length in UNDER_CALLGRIND_MS {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .args(["sim", "--only-incast-ms", &length.to_string()])
            .output()
            .map_err(|error| {
                format!("valgrind does not start ({error}); install it for this figure")
            })?;
        let said = String::from_utf8_lossy(&output.stderr);
        // The last line of its summary: `==123== Collected : 456`.
        let instructions = said.lines().find_map(|line| {
            line.split_once("Collected : ")?
                .1
                .trim()
                .parse::<u64>()
                .ok()
        });
        let hops = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse::<u64>()
            .ok();
        match instructions.zip(hops) {
            Some(both) => counted.push(both),
            None => return Err("callgrind did not count".to_owned()),
        }
    }
    match counted.as_slice() {
        [(few, short), (many, long)] if long > short => {
            Ok(many.saturating_sub(*few) as f64 / (long - short) as f64)
        }
        _ => Err("the longer run had no more hops".to_owned()),
    }
}
