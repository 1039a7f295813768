//! `ccplane bench datapath`: the engine alone, fed from memory. CPU time of this thread, so that a
//! busy machine disturbs little; medians.

use std::hint::black_box;

use ccplane_datapath::{
    Capabilities, Command, Flow, OperatorLimits, ProgramTable, Signals, Transport,
};
use ccplane_testbed::cpu::this_thread_ns;
use ccplane_units::{Duration, Time};

use crate::rounds::{Turns, median};
use crate::{Error, Figures};

const RENO: &str = include_str!("programs/reno_10ms.ccp");
const PROBE_BW: &str = include_str!("programs/bbr_probe_bw.ccp");

/// Odd, so that a median is a run.
const RUNS: usize = 15;
/// ACKs a run: some 10 ms, many scheduler ticks shorter than the whole and many clock readings
/// longer than one.
const ACKS: usize = 400_000;
const MANY: usize = 10_000;
/// Between two ACKs of a flow: a delayed ACK on 192 Mbit/s, so that one ACK in 80 reports.
const ACK_GAP: Duration = Duration::from_micros(125);

/// Runs the benchmark.
pub fn run() -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let reno = ns_per_ack(RENO, 1)?;
    figures
        .add("reno_10ms_ns", reno, "ns an ACK")
        .at_most(30.0)
        .beside("libccp 239 on such a VM");
    let bbr = ns_per_ack(PROBE_BW, 1)?;
    figures
        .add("bbr_probe_bw_ns", bbr, "ns an ACK")
        .at_most(45.0)
        .beside("libccp 324 on such a VM");
    figures
        .add("flow_bytes", size_of::<Flow<16>>() as f64, "bytes")
        .at_most(512.0)
        .beside("libccp 3224 (priv_state and connection)");
    let turns = Turns::take(5, &[1, MANY], |_, count| ns_per_ack(RENO, count))?;
    figures
        .add(
            "flows_10000_ratio",
            median(turns.ratios(MANY, 1, |ns| *ns)),
            "x one flow",
        )
        .at_most(1.5)
        .beside("libccp 1.0 with 1000 flows, at 239 ns");
    figures
        .add("compile_reno_us", compile_us(RENO)?, "us")
        .at_most(10.0)
        .beside("portus 20.5 on such a VM");
    figures.note(format!(
        "CPU time, medians of {RUNS} runs of {ACKS} ACKs; the interpreter, with Flow::on_ack around it"
    ));
    Ok(figures)
}

/// Flows under the program, ready to take ACKs.
fn flows(source: &str, count: usize) -> Result<(ProgramTable, Vec<Flow<16>>), Error> {
    let program = ccplane_lang::compile(source, &Default::default())?;
    let limits = OperatorLimits {
        agent_timeout: Duration::MAX,
        ..OperatorLimits::default()
    };
    let mut table = ProgramTable::new(limits, Capabilities(u64::MAX));
    let refused = |e| Error::failed(format!("the engine refuses the program: {e}"));
    table.install(program.code().with_uid(1)).map_err(refused)?;
    table.record_heartbeat(Time::ZERO);
    let mut flow = Flow::new(Time::ZERO, 14_480);
    let set = Command::SetProgram {
        uid: 1,
        updates: &[],
    };
    flow.apply(Time::ZERO, &set, &table).map_err(refused)?;
    Ok((table, vec![flow; count]))
}

/// Returns the CPU time per ACK of `count` flows under a program, in the interpreter.
pub(crate) fn ns_per_ack(source: &str, count: usize) -> Result<f64, Error> {
    let (table, mut flows) = flows(source, count)?;
    let order = shuffled(count);
    let gap_ns = ACK_GAP.as_nanos();
    let signals = Signals {
        bytes_acked: 2896,
        packets_acked: 2,
        packets_in_flight: 160,
        bytes_in_flight: 231_680,
        rate_incoming: 12_000_000,
        rate_outgoing: 12_000_000,
        rtt_sample_us: 20_000,
        srtt_us: 20_000,
        min_rtt_us: 20_000,
        mss: 1448,
        cwnd_limited: 1,
        ..Signals::default()
    };
    let (mut acks, mut reports) = (0u64, 0u64);
    let mut samples = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let begun = this_thread_ns();
        for _ in 0..ACKS.div_ceil(count) {
            for &at in &order {
                acks += 1;
                let now = Time::from_nanos(acks * gap_ns / count as u64);
                let transport = Transport {
                    cwnd: 231_680,
                    rate: 12_000_000,
                    ssthresh: u64::MAX,
                    now,
                };
                let flow = &mut flows[at as usize];
                let outcome = flow.on_ack(black_box(&transport), black_box(&signals), &table);
                if outcome.report.is_some() {
                    reports += 1;
                    black_box(flow.report(&table));
                    flow.report_queued(&table);
                }
                let _ = black_box(outcome);
            }
        }
        samples.push((this_thread_ns() - begun) as f64 / (ACKS.div_ceil(count) * count) as f64);
    }
    if reports == 0 {
        return Err(Error::failed(
            "the benchmark's program never reported: its figure would mean nothing",
        ));
    }
    Ok(median(samples))
}

fn compile_us(source: &str) -> Result<f64, Error> {
    let mut samples = Vec::new();
    for _ in 0..RUNS {
        const EACH: u64 = 300;
        let begun = this_thread_ns();
        for _ in 0..EACH {
            black_box(ccplane_lang::compile(
                black_box(source),
                &Default::default(),
            )?);
        }
        samples.push((this_thread_ns() - begun) as f64 / EACH as f64 / 1e3);
    }
    Ok(median(samples))
}

/// 0 to `count` in an order that no prefetcher guesses (Fisher-Yates over an LCG of Knuth's), the
/// same each time.
fn shuffled(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut state = 1u64;
    for i in (1..count).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order
}
