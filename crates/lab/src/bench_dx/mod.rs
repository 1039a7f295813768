//! DX on kernel TCP: what its time stamps cost, the queue that it leaves beside the kernel's Cubic, and what it sees of the
//! way there while the way of its ACKs is flooded.

mod emulated;
mod routed;

use ccplane_algorithms::Registry;
use ccplane_units::{Duration, Rate};

use crate::error::Error;
use crate::experiment::Contender;
use crate::metrics::Distribution;
use crate::stats::median_ratio;

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

/// What rounds showed.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Each, in order.
    pub rounds: Vec<Figures>,
    /// Medians over the rounds; fallbacks and faults of all.
    pub medians: Figures,
    /// Where the 95 % interval of the median goodput ratio ends, of a bootstrap over rounds; nothing with one round.
    pub goodput_interval: Option<(f64, f64)>,
}

/// What one round showed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// The program that stamps departures, a packet.
    pub egress_ns: f64,
    /// The program that stamps arrivals, a packet.
    pub ingress_ns: f64,
    /// The program at the sockets, a call.
    pub option_ns: f64,
    /// Median queueing delay in the kernel's token bucket under DX, from time stamps.
    pub queue_p50_us: f64,
    /// Under the kernel's Cubic, from its round trips.
    pub queue_cubic_p50_us: f64,
    /// DX's goodput over Cubic's there.
    pub goodput_ratio: f64,
    /// Times that a flow under DX fell back to NewReno there.
    pub fallbacks: u64,
    /// Faults of DX's program there.
    pub faults: u64,
    /// Median queueing delay of the way there, from time stamps, while the way back is flooded.
    pub flooded_owd_p50_us: f64,
    /// TCP's smoothed RTT meanwhile.
    pub flooded_rtt_p50_us: f64,
    /// Median queueing delay at the emulated link under DX, by its log.
    pub emulated_queue_p50_us: f64,
    /// Under the kernel's Cubic.
    pub emulated_queue_cubic_p50_us: f64,
    /// DX's goodput over Cubic's there.
    pub emulated_goodput_ratio: f64,
    /// Median distance of the queueing delay from stamps to the link's own.
    pub queue_error_p50_us: f64,
}

/// Measures. `next` hears how far it is and what comes, and says whether to go on.
pub fn run(options: &Options, registry: &Registry, mut next: impl FnMut(f64, &str) -> bool) -> Result<Measured, Error> {
    if options.rounds == 0 {
        return Err(Error::Bad {
            what: "the number of rounds",
            value: "0".into(),
            fix: "give at least 1, better 5",
        });
    }
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let share = |part: usize| (5 * round + part) as f64 / (5 * options.rounds) as f64;
        let mut go = |part, what: &str| {
            if next(share(part), what) {
                Ok(())
            } else {
                Err(Error::Interrupted)
            }
        };
        let mut figures = Figures::default();
        go(0, "DX and Cubic in turns, in the kernel")?;
        routed::in_turns(options, registry, &mut figures)?;
        go(2, "the ACK path flooded")?;
        routed::flooded(options, registry, &mut figures)?;
        go(3, "DX and Cubic in turns, emulated")?;
        emulated::in_turns(options, registry, &mut figures)?;
        rounds.push(figures);
    }
    let median = |of: fn(&Figures) -> f64| {
        Distribution::new(rounds.iter().map(of))
            .quantile(0.5)
            .unwrap_or(f64::NAN)
    };
    let goodput: Vec<(f64, f64)> = rounds.iter().map(|round| (round.goodput_ratio, 1.0)).collect();
    let medians = Figures {
        egress_ns: median(|f| f.egress_ns),
        ingress_ns: median(|f| f.ingress_ns),
        option_ns: median(|f| f.option_ns),
        queue_p50_us: median(|f| f.queue_p50_us),
        queue_cubic_p50_us: median(|f| f.queue_cubic_p50_us),
        goodput_ratio: median(|f| f.goodput_ratio),
        fallbacks: rounds.iter().map(|round| round.fallbacks).sum(),
        faults: rounds.iter().map(|round| round.faults).sum(),
        flooded_owd_p50_us: median(|f| f.flooded_owd_p50_us),
        flooded_rtt_p50_us: median(|f| f.flooded_rtt_p50_us),
        emulated_queue_p50_us: median(|f| f.emulated_queue_p50_us),
        emulated_queue_cubic_p50_us: median(|f| f.emulated_queue_cubic_p50_us),
        emulated_goodput_ratio: median(|f| f.emulated_goodput_ratio),
        queue_error_p50_us: median(|f| f.queue_error_p50_us),
    };
    Ok(Measured {
        goodput_interval: median_ratio(&goodput).and_then(|ratio| ratio.interval),
        medians,
        rounds,
    })
}
