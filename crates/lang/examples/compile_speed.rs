//! Compile time: the median over many runs, for a Reno and a BBR program.
//!
//! `cargo run --release -p ccplane-lang --example compile_speed`
#![expect(
    clippy::disallowed_methods,
    reason = "it measures how long the compiler takes"
)]

use std::hint::black_box;
use std::time::Instant;

use ccplane_lang::{ProgramLimits, compile};
use ccplane_units::stats::upper_rank;

const RENO: &str = include_str!("../tests/programs/reno_interval.ccp");
const BBR: &str = include_str!("../tests/programs/bbr_probe_bw.ccp");

fn main() {
    for (name, source) in [("reno", RENO), ("bbr", BBR)] {
        let mut ns: Vec<u128> = (0..20_000).map(|_| once(source)).collect();
        ns.sort_unstable();
        let us = |p: f64| upper_rank(&ns, p).expect("runs") as f64 / 1e3;
        println!(
            "{name}: {} characters, median {:.2} µs, p99 {:.2} µs",
            source.len(),
            us(0.5),
            us(0.99)
        );
    }
}

fn once(source: &str) -> u128 {
    let start = Instant::now();
    let program = compile(black_box(source), &ProgramLimits::default());
    let ns = start.elapsed().as_nanos();
    black_box(program).unwrap_or_else(|why| panic!("{why}"));
    ns
}
