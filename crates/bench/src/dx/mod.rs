//! `ccplane bench dx`: DX on kernel TCP over an emulated link of 100 Mbit/s, Cubic in turns with it.

use ccplane_agent::Agent;
use ccplane_datapath::Capabilities;
use ccplane_lab::Contender;
use ccplane_lab::bench_dx::{self, Options};
use ccplane_report::Aim;
use ccplane_units::Duration;
use clap::Args;
use serde_json::json;

use super::Figures;
use crate::Registry;
use crate::exit::{Failure, Kind};
use crate::run::{failure, percent_bar};
use crate::{doctor, interrupt};

/// How much to measure.
#[derive(Args)]
pub struct DxArgs {
    /// The algorithm, with parameters: `dx:headroom=200us`.
    #[arg(long, value_name = "NAME", default_value = "dx")]
    alg: Contender,
    /// Length of each run.
    #[arg(long, default_value = "5s")]
    duration: Duration,
    /// Runs of each kind; the figures are medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// The queue is told from time stamps, which the kernel's own controls and those that go without have none of.
fn check(alg: &Contender, registry: &Registry) -> Result<(), Failure> {
    let mut agent = Agent::new(ccplane_agent::Options::default());
    crate::attach::add(&mut agent, alg, registry)?;
    if agent
        .hosted()
        .all(|hosted| hosted.wants.contains(Capabilities::ONE_WAY_DELAY))
    {
        return Ok(());
    }
    Err(Failure::text(
        Kind::Usage,
        format!("`{alg}` asks for no time stamps, from which the queue is told"),
    )
    .hint("give dx with other parameters, such as dx:headroom=200us, or another algorithm of delay"))
}

/// Runs the benchmark.
pub fn run(args: &DxArgs, registry: &Registry) -> Result<Figures, Failure> {
    check(&args.alg, registry)?;
    doctor::require(&[doctor::Need::Emulator, doctor::Need::KernelTcp])?;
    let options = Options {
        contender: args.alg.clone(),
        run: args.duration,
        rounds: args.rounds,
    };
    let stop = interrupt::flag()?;
    let bar = percent_bar();
    let measured = bench_dx::run(&options, registry, |share, next| {
        bar.set_message(next.to_owned());
        bar.set_position((share * 100.0) as u64);
        !interrupt::raised(&stop)
    });
    bar.finish_and_clear();
    let measured = measured.map_err(failure)?;
    let m = &measured.medians;
    let mut figures = Figures::default();
    let at_most = |us: f64| Some(Aim::AtMost(us));
    figures.add(
        "egress_ns",
        m.egress_ns,
        "ns a packet",
        at_most(400.0),
        "our proof: 457",
    );
    figures.add(
        "ingress_ns",
        m.ingress_ns,
        "ns a packet",
        at_most(400.0),
        "our proof: 504",
    );
    figures.add(
        "option_ns",
        m.option_ns,
        "ns a call",
        None,
        "reserving, writing and reading the option",
    );
    figures.add(
        "kernel_queue_p50_us",
        m.queue_p50_us,
        "us",
        at_most(200.0),
        "our proof, veth and TBF: 164; a packet takes 120",
    );
    figures.add(
        "kernel_queue_cubic_p50_us",
        m.queue_cubic_p50_us,
        "us",
        None,
        "our proof, veth and TBF: 28357",
    );
    figures.add_ratio(
        "goodput_ratio",
        m.goodput_ratio,
        "x cubic",
        measured.goodput_interval,
        Aim::AtLeast(0.97),
        "our proof: 0.972",
    );
    // Unmoved: no more than what the queue may be without anything on the way back.
    figures.add(
        "flooded_owd_p50_us",
        m.flooded_owd_p50_us,
        "us",
        at_most(200.0),
        "our proof: 7.9",
    );
    figures.add(
        "flooded_rtt_p50_us",
        m.flooded_rtt_p50_us,
        "us",
        None,
        "our proof: 29186",
    );
    figures.add(
        "emulated_queue_p50_us",
        m.emulated_queue_p50_us,
        "us",
        None,
        "the emulator's log",
    );
    figures.add(
        "emulated_queue_cubic_p50_us",
        m.emulated_queue_cubic_p50_us,
        "us",
        None,
        "the emulator's log",
    );
    figures.add(
        "emulated_goodput_ratio",
        m.emulated_goodput_ratio,
        "x cubic",
        None,
        "a packet waits for the emulator's thread too",
    );
    figures.add(
        "queue_error_p50_us",
        m.queue_error_p50_us,
        "us",
        None,
        "stamps against the emulator's log",
    );
    // Of the way in the kernel: whoever failed, every round counts.
    let round = |round: &bench_dx::Figures| {
        json!({
            "goodput_ratio": round.goodput_ratio,
            "kernel_queue_p50_us": round.queue_p50_us,
            "fallbacks": round.fallbacks,
            "faults": round.faults,
        })
    };
    figures.fact("rounds", measured.rounds.iter().map(round).collect::<Vec<_>>());
    figures.note(
        "One flow, 100 Mbit/s, a queue of 400 kB. In the kernel: virtual devices and a router with a token bucket (TBF); kernel_queue is \
         what packets took from device to device above the least of them, kernel_queue_cubic the round trip that TCP measured \
         above the least of it. Flooded: the same with Cubic filling the way of the ACKs, 100 Mbit/s and 400 kB too; flooded_owd is \
         from time stamps, flooded_rtt what TCP itself measured. Emulated: 200 us through the emulator, queues of the link's own log, above the \
         time of a packet on the wire. Costs are the kernel's bpf_stats, with their own overhead.",
    );
    Ok(figures)
}
