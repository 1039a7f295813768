//! `ccplane bench dx`: DX on kernel TCP next to the kernel's Cubic. It measures the cost of DX's
//! time stamps, queue and goodput over token buckets of 100 Mbit/s to 1 Gbit/s and over the
//! emulator, and DX's queueing delay while the ACK path is flooded.

mod emulated;
mod routed;

use ccplane_algorithms::Registry;
use ccplane_lab::Contender;
use ccplane_lab::stats::median_ratio;
use ccplane_units::{Duration, Rate};
use serde_json::json;

use crate::rounds::median;
use crate::{Error, Figures};

/// A token bucket in the kernel, and the flows over it.
#[derive(Clone, Copy, Debug)]
struct Link {
    rate: Rate,
    /// Bytes that pass at once.
    burst: u64,
    /// Bytes that wait at most.
    queue: u64,
    flows: usize,
    /// Suffix of the link's metrics.
    suffix: &'static str,
}

const RATE: Rate = Rate::from_bits_per_sec(100_000_000);
/// Of the proof's token bucket, bytes.
const QUEUE: u64 = 400_000;

/// The proof's link. Its burst is two frames and a half: the kernel's timer is late by less than
/// their time.
const SLOW: Link = Link {
    rate: RATE,
    burst: 4_000,
    queue: QUEUE,
    flows: 1,
    suffix: "",
};

/// Faster links with two flows, as in `ccplane paper dx-testbed`. The bursts are what the links
/// bring in 128 µs, by which the kernel's timer is late on a virtual machine: with less the link
/// does not reach its rate.
const FAST: [Link; 3] = [
    Link::fast(200, "_200m"),
    Link::fast(500, "_500m"),
    Link::fast(1_000, "_1g"),
];

impl Link {
    const fn fast(mbit: u64, suffix: &'static str) -> Link {
        Link {
            rate: Rate::from_bits_per_sec(mbit * 1_000_000),
            burst: mbit * 16,
            queue: QUEUE,
            flows: 2,
            suffix,
        }
    }
}

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
    /// Over the proof's link in the kernel, and over the faster ones.
    slow: Turn,
    fast: [Turn; FAST.len()],
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

/// DX and the kernel's Cubic, one after the other, over a token bucket in the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Median queueing delay under DX, from time stamps.
    queue_p50_us: f64,
    /// Median queueing delay under Cubic, from its round trips.
    queue_cubic_p50_us: f64,
    goodput_mbit: f64,
    goodput_cubic_mbit: f64,
    /// Times that a flow under DX fell back to NewReno.
    fallbacks: u64,
    /// Faults of DX's program.
    faults: u64,
}

impl Turn {
    fn goodput_ratio(&self) -> f64 {
        self.goodput_mbit / self.goodput_cubic_mbit
    }
}

/// Measures. `step` hears the share that is done and what comes next, and says whether to go on.
pub fn run(
    options: &Options,
    registry: &Registry,
    step: impl FnMut(f64, &str) -> bool,
) -> Result<Figures, Error> {
    Ok(figures(&rounds(options, registry, step)?))
}

fn rounds(
    options: &Options,
    registry: &Registry,
    mut step: impl FnMut(f64, &str) -> bool,
) -> Result<Vec<Round>, ccplane_lab::Error> {
    if options.rounds == 0 {
        return Err(ccplane_lab::Error::InvalidParameter {
            what: "the number of rounds",
            value: "0".into(),
            fix: "give at least 1, better 5",
        });
    }
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        let mut go = |part: usize, what: &str| {
            let share = (PARTS * number + part) as f64 / (PARTS * options.rounds) as f64;
            step(share, what)
                .then_some(())
                .ok_or(ccplane_lab::Error::Interrupted)
        };
        let mut round = Round::default();
        go(0, "DX and Cubic in turns, in the kernel")?;
        round.slow = routed::in_turns(options, &SLOW, registry)?;
        for (at, (turn, link)) in round.fast.iter_mut().zip(&FAST).enumerate() {
            go(
                2 + 2 * at,
                &format!("DX and Cubic in turns, in the kernel, {}", link.rate),
            )?;
            *turn = routed::in_turns(options, link, registry)?;
        }
        go(2 + 2 * FAST.len(), "the ACK path flooded")?;
        routed::flooded(options, registry, &mut round)?;
        go(3 + 2 * FAST.len(), "DX and Cubic in turns, emulated")?;
        emulated::in_turns(options, registry, &mut round)?;
        rounds.push(round);
    }
    Ok(rounds)
}

/// Runs of a round.
const PARTS: usize = 5 + 2 * FAST.len();

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
        .add("kernel_queue_p50_us", of(|r| r.slow.queue_p50_us), "us")
        .at_most(200.0)
        .beside("our proof, veth and TBF: 164; a packet takes 120");
    figures
        .add(
            "kernel_queue_cubic_p50_us",
            of(|r| r.slow.queue_cubic_p50_us),
            "us",
        )
        .beside("our proof, veth and TBF: 28357");
    let goodputs: Vec<(f64, f64)> = rounds
        .iter()
        .map(|r| (r.slow.goodput_ratio(), 1.0))
        .collect();
    figures
        .add("goodput_ratio", of(|r| r.slow.goodput_ratio()), "x cubic")
        .at_least(0.97)
        .in_turns(median_ratio(&goodputs).and_then(|ratio| ratio.interval))
        .beside("our proof: 0.972");
    for (at, link) in FAST.iter().enumerate() {
        let turns = || rounds.iter().map(move |round| &round.fast[at]);
        let of = |value: fn(&Turn) -> f64| median(turns().map(value));
        let key = |name: &str| format!("{name}{}", link.suffix);
        let goodputs: Vec<(f64, f64)> = turns().map(|turn| (turn.goodput_ratio(), 1.0)).collect();
        let judged = link.suffix == "_1g";
        let ratio = figures
            .add(key("goodput_ratio"), of(Turn::goodput_ratio), "x cubic")
            .in_turns(median_ratio(&goodputs).and_then(|ratio| ratio.interval));
        if judged {
            ratio.at_least(0.9);
        }
        figures.add(key("goodput_mbit"), of(|t| t.goodput_mbit), "Mbit/s");
        figures.add(
            key("goodput_cubic_mbit"),
            of(|t| t.goodput_cubic_mbit),
            "Mbit/s",
        );
        let queue = figures.add(key("queue_p50_us"), of(|t| t.queue_p50_us), "us");
        if judged {
            queue.at_most(200.0);
        }
        figures.add(
            key("queue_cubic_p50_us"),
            of(|t| t.queue_cubic_p50_us),
            "us",
        );
    }
    // Unmoved: no more than what the queue may be without anything on the way back.
    figures
        .add("flooded_owd_p50_us", of(|r| r.flooded_owd_p50_us), "us")
        .at_most(200.0)
        .beside("our proof: 7.9");
    figures
        .add("flooded_rtt_p50_us", of(|r| r.flooded_rtt_p50_us), "us")
        .beside("our proof: 29186");
    figures
        .add(
            "emulated_queue_p50_us",
            of(|r| r.emulated_queue_p50_us),
            "us",
        )
        .beside("the emulator's log");
    figures
        .add(
            "emulated_queue_cubic_p50_us",
            of(|r| r.emulated_queue_cubic_p50_us),
            "us",
        )
        .beside("the emulator's log");
    figures
        .add(
            "emulated_goodput_ratio",
            of(|r| r.emulated_goodput_ratio),
            "x cubic",
        )
        .beside("a packet waits for the emulator's thread too");
    figures
        .add("queue_error_p50_us", of(|r| r.queue_error_p50_us), "us")
        .beside("stamps against the emulator's log");
    // Of the way in the kernel: whoever failed, every round counts.
    let turn = |turn: &Turn| {
        json!({
            "goodput_ratio": turn.goodput_ratio(),
            "kernel_queue_p50_us": turn.queue_p50_us,
            "fallbacks": turn.fallbacks,
            "faults": turn.faults,
        })
    };
    let round = |round: &Round| {
        let mut all = turn(&round.slow);
        for (fast, link) in round.fast.iter().zip(&FAST) {
            all[link.suffix.trim_start_matches('_')] = turn(fast);
        }
        all
    };
    figures.fact("rounds", rounds.iter().map(round).collect::<Vec<_>>());
    figures.note(
        "One flow, 100 Mbit/s, a queue of 400 kB; _200m, _500m and _1g: two flows and that rate. In the kernel: virtual devices and a router with a token bucket (TBF); kernel_queue is \
         what packets took from device to device above the least of them, kernel_queue_cubic the round trip that TCP measured \
         above the least of it. Flooded: the same with Cubic filling the way of the ACKs, 100 Mbit/s and 400 kB too; flooded_owd is \
         from time stamps, flooded_rtt what TCP itself measured. Emulated: 200 us through the emulator, queues of the link's own log, above the \
         time of a packet on the wire. Costs are the kernel's bpf_stats, with their own overhead.",
    );
    figures
}
