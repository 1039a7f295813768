//! What an ACK costs: `cargo run --release -p ccplane-datapath --example ns_per_ack`.
//!
//! Prints the least and the median over short runs of the time an ACK takes, for one flow and for 10,000 flows visited in
//! random order. With `count reno|bbr ACKS FLOWS` as arguments it only runs that many ACKs, for counting instructions
//! under `valgrind --tool=callgrind` or cache misses under `--tool=cachegrind`.

mod programs;

use std::hint::black_box;
use std::time::Instant;

use ccplane_datapath::{Capabilities, Command, Flow, Limits, Program, ProgramTable, Signals, Transport};
use ccplane_units::Time;

/// ACKs of a run: few, so that on a busy machine some runs are undisturbed.
const ACKS: usize = 50_000;
/// Steps of the random order before it repeats.
const ORDER: usize = 1 << 16;
const RUNS: usize = 101;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, which, acks, flows] = args.as_slice()
        && mode == "count"
    {
        let code = match which.as_str() {
            "reno" => programs::reno_fold(10_000),
            "bbr" => programs::bbr_probe_bw(),
            _ => programs::Code::default(),
        };
        let program = code.program(1);
        let acks = acks.parse().expect("a number of ACKs");
        let flows = flows.parse().expect("a number of flows");
        Bench::new(program, flows).run(acks);
        return;
    }
    println!("flow of 16 variables: {} bytes", size_of::<Flow<16>>());
    for (name, code) in [
        ("reno 10 ms fold", programs::reno_fold(10_000)),
        ("bbr probe_bw", programs::bbr_probe_bw()),
    ] {
        let [one, many] = [1, 10_000].map(|flows| spread(|| Bench::new(code.program(1), flows).ns_per_ack()));
        println!(
            "{name}, one flow: median {:.1} ns an ACK, least {:.1}",
            one.median, one.least
        );
        println!(
            "{name}, 10,000 flows in random order: median {:.1} ns an ACK, least {:.1}",
            many.median, many.least
        );
        println!(
            "{name}, ratio: of medians {:.2}, of least {:.2}",
            many.median / one.median,
            many.least / one.least
        );
    }
}

struct Spread {
    least: f64,
    median: f64,
}

fn spread(mut run: impl FnMut() -> f64) -> Spread {
    let mut results: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    results.sort_by(f64::total_cmp);
    Spread {
        least: results[0],
        median: results[RUNS / 2],
    }
}

struct Bench {
    now: Time,
    table: ProgramTable,
    flows: Vec<Flow<16>>,
    order: Box<[u32; ORDER]>,
}

impl Bench {
    fn new(program: Program, flows: usize) -> Bench {
        let mut table = ProgramTable::new(Limits::default(), Capabilities(u64::MAX));
        let uid = program.uid();
        table.install(program).expect("room in the table");
        let mut all = vec![Flow::new(Time::ZERO, 14480); flows];
        for flow in &mut all {
            flow.apply(Time::ZERO, &Command::SetProgram { uid, updates: &[] }, &table)
                .expect("a known program");
        }
        // A fixed linear congruence gives the same order every time; the order is made beforehand, so that the time is the flows' alone.
        let mut state = 1u64;
        let mut order = Box::new([0; ORDER]);
        for next in order.iter_mut() {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *next = ((state >> 33) % flows as u64) as u32;
        }
        Bench {
            now: Time::ZERO,
            table,
            flows: all,
            order,
        }
    }

    fn ns_per_ack(&mut self) -> f64 {
        self.run(ACKS / 10);
        let start = Instant::now();
        self.run(ACKS);
        start.elapsed().as_nanos() as f64 / ACKS as f64
    }

    /// ACKs of a flow at 10 µs distance, its reports taken at once.
    fn run(&mut self, acks: usize) {
        let spacing = 10_000 / self.flows.len() as u64;
        let mut transport = Transport {
            cwnd: 144_800,
            rate: 0,
            ssthresh: 100_000,
            now: self.now,
        };
        let signals = Signals {
            bytes_acked: 1448,
            packets_acked: 1,
            bytes_in_flight: 144_800,
            packets_in_flight: 100,
            rate_incoming: 12_000_000,
            rate_outgoing: 12_000_000,
            rtt_sample_us: 20_000,
            srtt_us: 20_000,
            min_rtt_us: 20_000,
            mss: 1448,
            ..Signals::default()
        };
        for n in 0..acks {
            transport.now = Time::from_nanos(transport.now.as_nanos() + spacing);
            self.table.heartbeat(transport.now);
            let flow = &mut self.flows[self.order[n % ORDER] as usize];
            let outcome = flow.on_ack(black_box(&transport), black_box(&signals), &self.table);
            if outcome.report.is_some() {
                black_box(flow.report(&self.table));
                flow.report_queued(&self.table);
            }
            let _ = black_box(outcome);
        }
        self.now = transport.now;
    }
}
