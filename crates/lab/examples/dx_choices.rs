//! Effects of DX's design choices (docs/algorithms/dx.md): each combination in the simulator, and
//! the decrease rules in a model of synchronous rounds. Prints the tables of that page. With
//! contenders as arguments, such as `dx:samples=freshest`, prints a row for each of them.

use std::sync::Arc;

use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_lab::metrics::jain;
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{
    FlowControl, FlowSpec, JitterShape, LinkSpec, SimOptions, Simulation, StampModel, SteerOptions,
    default_transport, topology,
};
use ccplane_units::{Duration, Rate, Time, stats};

type Failure = Box<dyn std::error::Error>;

/// Path of the tables: 10 Gbit/s and 100 µs, a BDP of 83 packets. A run lasts 300 ms, of which the
/// last 100 ms count.
const RATE: Rate = Rate::from_bits_per_sec(10_000_000_000);
const RTT: Duration = Duration::from_micros(100);
const COUNTED_TIME: Duration = Duration::from_millis(100);
const WARM_UP_TIME: Duration = Duration::from_millis(200);
/// Buffer of the switch, packets, as in DCTCP's evaluation. No queue measured here is longer.
const BUFFER: u64 = 1_000;
const SENDERS: [u32; 4] = [2, 10, 20, 30];
const SEEDS: u64 = 3;

/// Result of one run.
#[derive(Clone, Copy, Default)]
struct Outcome {
    /// Share of the link's capacity in use.
    used: f64,
    /// Mean queue length seen by a packet, packets.
    queue: f64,
    /// Jain's index of the goodputs.
    jain: f64,
}

/// Runs `senders` over one bottleneck, with these time stamp errors at every host.
fn run(contender: &str, senders: u32, stamps: StampModel, seed: u64) -> Result<Outcome, Failure> {
    let (name, parameters) = contender.split_once(':').unwrap_or((contender, ""));
    let parameters: Parameters = parameters.replace(':', ",").parse()?;
    let algorithm = Registry::builtin().by_name(name, &parameters)?;
    let stamped = algorithm
        .requested_capabilities()
        .contains(ccplane_datapath::Capabilities::ONE_WAY_DELAY);
    let mut agent = Agent::new(AgentOptions::default());
    agent.add_boxed(algorithm)?;
    let link = LinkSpec::new(RATE, RTT / 4);
    let queue = QueueSpec::DropTail(Size::Packets(BUFFER));
    let network = topology::incast(senders, &link.clone(), link.with_queue(queue, RTT))?;
    let (Some(to), Some(bottleneck)) = (
        network.find_node("receiver"),
        network.find_link("bottleneck"),
    ) else {
        return Err("the incast has no receiver behind a bottleneck".into());
    };
    let from: Vec<_> = (1..=senders)
        .filter_map(|n| network.find_node(&format!("sender{n}")))
        .collect();
    let mut sim = Simulation::new(network, SimOptions::seeded(seed))?;
    for host in from.iter().chain([&to]) {
        sim.set_stamps(*host, stamps)?;
    }
    sim.record_crossings(bottleneck)?;
    let agent = sim.host_agent(agent, SteerOptions::default());
    let transport = (*default_transport()).clone();
    let transport = Arc::new(if stamped {
        transport.stamped()
    } else {
        transport
    });
    let flows = (0..).zip(&from).map(|(n, from)| {
        // Starts are spread over ten RTTs, in an order that depends on the seed.
        let start = Time::ZERO + Duration::from_nanos(n * (37_000 + seed * 7_919) % 1_000_000);
        sim.add_flow(
            FlowSpec::new(*from, to)
                .starting_at(start)
                .with_congestion(FlowControl::Steered(agent, Arc::from(name)))
                .with_transport(transport.clone()),
        )
    });
    let flows: Vec<_> = flows.collect::<Result<_, _>>()?;
    let got = |sim: &Simulation| -> Vec<u64> {
        flows
            .iter()
            .map(|flow| sim.flow(*flow).map_or(0, |view| view.received))
            .collect()
    };
    sim.run_until(Time::ZERO + WARM_UP_TIME)?;
    let before = got(&sim);
    sim.run_until(Time::ZERO + WARM_UP_TIME + COUNTED_TIME)?;
    let goodputs: Vec<f64> = got(&sim)
        .iter()
        .zip(&before)
        .map(|(after, before)| (after - before) as f64)
        .collect();
    let counted: Vec<_> = sim
        .crossings(bottleneck)
        .iter()
        .filter(|c| {
            (Time::ZERO + WARM_UP_TIME..Time::ZERO + WARM_UP_TIME + COUNTED_TIME)
                .contains(&c.departure)
        })
        .collect();
    let packet = 1_500e9 / RATE.bytes_per_sec() as f64;
    let bytes: u64 = counted.iter().map(|c| u64::from(c.bytes)).sum();
    let waited = counted
        .iter()
        .map(|c| (c.sojourn.as_nanos() as f64 - packet).max(0.0));
    Ok(Outcome {
        used: bytes as f64 / (RATE.bytes_per_sec() as f64 * COUNTED_TIME.as_secs_f64()),
        queue: stats::mean(waited).unwrap_or(0.0) / packet,
        jain: jain(&goodputs).unwrap_or(1.0),
    })
}

/// Returns the mean over seeds.
fn mean(contender: &str, senders: u32, stamps: StampModel) -> Result<Outcome, Failure> {
    let mut sum = Outcome::default();
    for seed in 1..=SEEDS {
        let one = run(contender, senders, stamps, seed)?;
        sum.used += one.used / SEEDS as f64;
        sum.queue += one.queue / SEEDS as f64;
        sum.jain += one.jain / SEEDS as f64;
    }
    Ok(sum)
}

/// Prints a row of a table: utilisation, mean queue and Jain's index per number of senders.
fn row(label: &str, contender: &str, stamps: StampModel) -> Result<(), Failure> {
    print!("| {label} ");
    for senders in SENDERS {
        let Outcome { used, queue, jain } = mean(contender, senders, stamps)?;
        print!("| {:.1} %, {queue:.1}, {jain:.2} ", used * 100.0);
    }
    println!("|");
    Ok(())
}

fn head(what: &str) {
    println!("\n| {what} | 2 senders | 10 | 20 | 30 |\n| --- | --- | --- | --- | --- |");
}

/// Returns stamp errors with exponential jitter of this mean.
fn jitter(nanos: u64) -> StampModel {
    StampModel {
        jitter: Duration::from_nanos(nanos),
        shape: JitterShape::Exponential,
        ..StampModel::EXACT
    }
}

/// Prints the decrease rules in synchronous rounds: at the end of a round all senders see the same
/// queue and then change their windows. A cell has the utilisation on average and in the worst
/// round, and the longest queue.
fn rounds() {
    type Rule = fn(w: f64, q: f64, r: f64) -> f64;
    let rules: [(&str, Rule); 4] = [
        ("V = R·W/(W−1)", |w, q, r| {
            w * (1.0 - q * (w - 1.0) / (r * w))
        }),
        ("V = R + Q", |w, q, r| w * (1.0 - q / (r + q))),
        ("V = R", |w, q, r| w * (1.0 - q / r)),
        ("each drains all of the queue", |w, q, _| w - q),
    ];
    // BDP, packets.
    let r = RATE.bytes_per_sec() as f64 * RTT.as_secs_f64() / 1_500.0;
    for (label, rule) in rules {
        print!("| {label} ");
        for senders in SENDERS.map(f64::from) {
            let mut window = r / senders;
            let (mut used, mut worst, mut longest) = (0.0, 1.0_f64, 0.0_f64);
            const ROUNDS: u32 = 2_000;
            for _ in 0..ROUNDS {
                let queue = (senders * window - r).max(0.0);
                let share = (senders * window / r).min(1.0);
                (used, worst, longest) = (used + share, worst.min(share), longest.max(queue));
                // A queue below a thousandth of a packet is a rounding error.
                window = if queue > 1e-3 {
                    rule(window, queue, r).max(1.0)
                } else {
                    window + 1.0
                };
            }
            print!(
                "| {:.1} %, {:.1} %, {longest:.1} ",
                used / f64::from(ROUNDS) * 100.0,
                worst * 100.0
            );
        }
        println!("|");
    }
}

fn main() -> Result<(), Failure> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    if !named.is_empty() {
        for (what, stamps) in [
            ("exact", StampModel::EXACT),
            ("0.2 µs", jitter(200)),
            ("2 µs", jitter(2_000)),
        ] {
            head(what);
            for contender in &named {
                row(contender, contender, stamps)?;
            }
        }
        return Ok(());
    }
    head("rules");
    for parameters in [
        "rules=extended",
        "rules=paper",
        "rules=paper:samples=window",
        "rules=paper:window=floor",
        "rules=paper:headroom=1p",
        "rules=paper:headroom=auto",
    ] {
        let label = format!("`{}`", parameters.replace(':', ","));
        row(&label, &format!("dx:{parameters}"), StampModel::EXACT)?;
    }
    head("samples, headroom");
    for samples in ["window", "freshest", "after"] {
        for headroom in ["0p", "1p", "auto"] {
            let contender = format!("dx:samples={samples}:headroom={headroom}");
            row(
                &format!("`{samples}`, `{headroom}`"),
                &contender,
                StampModel::EXACT,
            )?;
        }
    }
    head("window, headroom");
    for window in ["floor", "ceil", "fractional"] {
        for headroom in ["0p", "auto"] {
            let contender = format!("dx:window={window}:headroom={headroom}");
            row(
                &format!("`{window}`, `{headroom}`"),
                &contender,
                StampModel::EXACT,
            )?;
        }
    }
    head("jitter of stamps, headroom");
    for nanos in [200, 1_000, 2_000] {
        for headroom in ["1p", "2us", "4us", "8us", "16us", "auto"] {
            let label = format!("{} µs, `{headroom}`", nanos as f64 / 1e3);
            row(&label, &format!("dx:headroom={headroom}"), jitter(nanos))?;
        }
    }
    head("rule");
    rounds();
    Ok(())
}
