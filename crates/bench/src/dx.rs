//! `ccplane bench dx`: DX on kernel TCP over a link of 100 Mbit/s. It measures the cost of its time stamps, the queue that it
//! leaves in turns with the kernel's Cubic, and what it sees of the forward path while the path of its ACKs is flooded.

mod emulated;
mod routed;

use ccplane_algorithms::Registry;
use ccplane_lab::Contender;
use ccplane_lab::stats::median_ratio;
use ccplane_units::{Duration, Rate};
use serde_json::json;

use crate::rounds::median;
use crate::{Error, Figures};

const RATE: Rate = Rate::from_bits_per_sec(100_000_000);
/// Of the proof's token bucket, bytes.
const QUEUE: u64 = 400_000;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured beside the kernel's Cubic: DX, or something else that is steered.
    pub contender: Contender,
    /// Length of each run.
    pub run: Duration,
    /// Runs of each kind.
    pub rounds: usize,
}

/// What one round showed.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The program that stamps departures, a packet.
    egress_ns: f64,
    /// The program that stamps arrivals, a packet.
    ingress_ns: f64,
    /// The program at the sockets, a call.
    option_ns: f64,
    /// Median queueing delay in the kernel's token bucket under DX, from time stamps.
    queue_p50_us: f64,
    /// Under the kernel's Cubic, from its round trips.
    queue_cubic_p50_us: f64,
    /// DX's goodput over Cubic's there.
    goodput_ratio: f64,
    /// Times that a flow under DX fell back to NewReno there.
    fallbacks: u64,
    /// Faults of DX's program there.
    faults: u64,
    /// Median queueing delay of the way there, from time stamps, while the way back is flooded.
    flooded_owd_p50_us: f64,
    /// TCP's smoothed RTT meanwhile.
    flooded_rtt_p50_us: f64,
    /// Median queueing delay at the emulated link under DX, by its log.
    emulated_queue_p50_us: f64,
    /// Under the kernel's Cubic.
    emulated_queue_cubic_p50_us: f64,
    /// DX's goodput over Cubic's there.
    emulated_goodput_ratio: f64,
    /// Median distance of the queueing delay from stamps to the link's own.
    queue_error_p50_us: f64,
}

/// Measures. `step` hears the share that is done and what comes next, and says whether to go on.
pub fn run(options: &Options, registry: &Registry, step: impl FnMut(f64, &str) -> bool) -> Result<Figures, Error> {
    Ok(figures(&rounds(options, registry, step)?))
}

fn rounds(
    options: &Options,
    registry: &Registry,
    mut step: impl FnMut(f64, &str) -> bool,
) -> Result<Vec<Round>, ccplane_lab::Error> {
    if options.rounds == 0 {
        return Err(ccplane_lab::Error::Bad {
            what: "the number of rounds",
            value: "0".into(),
            fix: "give at least 1, better 5",
        });
    }
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        let mut go = |part: usize, what: &str| {
            let share = (5 * number + part) as f64 / (5 * options.rounds) as f64;
            step(share, what).then_some(()).ok_or(ccplane_lab::Error::Interrupted)
        };
        let mut round = Round::default();
        go(0, "DX and Cubic in turns, in the kernel")?;
        routed::in_turns(options, registry, &mut round)?;
        go(2, "the ACK path flooded")?;
        routed::flooded(options, registry, &mut round)?;
        go(3, "DX and Cubic in turns, emulated")?;
        emulated::in_turns(options, registry, &mut round)?;
        rounds.push(round);
    }
    Ok(rounds)
}

/// Medians over the rounds.
fn figures(rounds: &[Round]) -> Figures {
    let mut figures = Figures::default();
    let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value));
    figures
        .add("egress_ns", of(|r| r.egress_ns), "ns a packet")
        .at_most(400.0)
        .beside("our proof: 457");
    figures
        .add("ingress_ns", of(|r| r.ingress_ns), "ns a packet")
        .at_most(400.0)
        .beside("our proof: 504");
    figures
        .add("option_ns", of(|r| r.option_ns), "ns a call")
        .beside("reserving, writing and reading the option");
    figures
        .add("kernel_queue_p50_us", of(|r| r.queue_p50_us), "us")
        .at_most(200.0)
        .beside("our proof, veth and TBF: 164; a packet takes 120");
    figures
        .add("kernel_queue_cubic_p50_us", of(|r| r.queue_cubic_p50_us), "us")
        .beside("our proof, veth and TBF: 28357");
    let goodputs: Vec<(f64, f64)> = rounds.iter().map(|round| (round.goodput_ratio, 1.0)).collect();
    figures
        .add("goodput_ratio", of(|r| r.goodput_ratio), "x cubic")
        .at_least(0.97)
        .in_turns(median_ratio(&goodputs).and_then(|ratio| ratio.interval))
        .beside("our proof: 0.972");
    // Unmoved: no more than what the queue may be without anything on the way back.
    figures
        .add("flooded_owd_p50_us", of(|r| r.flooded_owd_p50_us), "us")
        .at_most(200.0)
        .beside("our proof: 7.9");
    figures
        .add("flooded_rtt_p50_us", of(|r| r.flooded_rtt_p50_us), "us")
        .beside("our proof: 29186");
    figures
        .add("emulated_queue_p50_us", of(|r| r.emulated_queue_p50_us), "us")
        .beside("the emulator's log");
    figures
        .add(
            "emulated_queue_cubic_p50_us",
            of(|r| r.emulated_queue_cubic_p50_us),
            "us",
        )
        .beside("the emulator's log");
    figures
        .add("emulated_goodput_ratio", of(|r| r.emulated_goodput_ratio), "x cubic")
        .beside("a packet waits for the emulator's thread too");
    figures
        .add("queue_error_p50_us", of(|r| r.queue_error_p50_us), "us")
        .beside("stamps against the emulator's log");
    // Of the way in the kernel: whoever failed, every round counts.
    let round = |round: &Round| {
        json!({
            "goodput_ratio": round.goodput_ratio,
            "kernel_queue_p50_us": round.queue_p50_us,
            "fallbacks": round.fallbacks,
            "faults": round.faults,
        })
    };
    figures.fact("rounds", rounds.iter().map(round).collect::<Vec<_>>());
    figures.note(
        "One flow, 100 Mbit/s, a queue of 400 kB. In the kernel: virtual devices and a router with a token bucket (TBF); kernel_queue is \
         what packets took from device to device above the least of them, kernel_queue_cubic the round trip that TCP measured \
         above the least of it. Flooded: the same with Cubic filling the way of the ACKs, 100 Mbit/s and 400 kB too; flooded_owd is \
         from time stamps, flooded_rtt what TCP itself measured. Emulated: 200 us through the emulator, queues of the link's own log, above the \
         time of a packet on the wire. Costs are the kernel's bpf_stats, with their own overhead.",
    );
    figures
}
