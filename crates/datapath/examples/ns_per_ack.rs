//! What an ACK costs: `cargo run --release -p ccplane-datapath --example ns_per_ack`.
//!
//! Prints the median over runs of the time an ACK takes, for one flow and for 10,000 flows visited in random order. With
//! `count reno|bbr N` as arguments it only runs N ACKs of one flow, for counting instructions under `valgrind --tool=callgrind`.

mod programs;

use std::hint::black_box;
use std::time::Instant;

use ccplane_datapath::{Capabilities, Command, Flow, Limits, Program, ProgramTable, Signals, Transport};
use ccplane_units::Time;

const ACKS: usize = 1_000_000;
const RUNS: usize = 9;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, which, acks] = args.as_slice()
        && mode == "count"
    {
        let program = if which == "bbr" {
            programs::bbr_probe_bw()
        } else {
            programs::reno_fold(10_000)
        }
        .program(1);
        let acks = acks.parse().expect("a number of ACKs");
        Bench::new(program, 1).run(acks);
        return;
    }
    println!("flow of 16 variables: {} bytes", size_of::<Flow<16>>());
    for (name, code) in [
        ("reno 10 ms fold", programs::reno_fold(10_000)),
        ("bbr probe_bw", programs::bbr_probe_bw()),
    ] {
        let one = median(|| Bench::new(code.program(1), 1).ns_per_ack());
        let many = median(|| Bench::new(code.program(1), 10_000).ns_per_ack());
        println!(
            "{name}: {one:.1} ns an ACK, {many:.1} ns with 10,000 flows in random order, ratio {:.2}",
            many / one
        );
    }
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut results: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    results.sort_by(f64::total_cmp);
    results[RUNS / 2]
}

struct Bench {
    table: ProgramTable,
    flows: Vec<Flow<16>>,
    order: Vec<u32>,
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
        let order = (0..1 << 16)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                ((state >> 33) % flows as u64) as u32
            })
            .collect();
        Bench {
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
            now: Time::ZERO,
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
            let flow = &mut self.flows[self.order[n % self.order.len()] as usize];
            let outcome = flow.on_ack(black_box(&transport), black_box(&signals), &self.table);
            if outcome.report.is_some() {
                black_box(flow.report(&self.table));
                flow.report_queued(&self.table);
            }
            let _ = black_box(outcome);
        }
    }
}
