//! DX, slides 30 and 31: web search over a fat tree of 192 hosts; how long do small and large flows take?
//!
//! The slides give the tree's size and two numbers for each of two classes of flows; which statistic and which load they
//! are of is not said. Delays, buffers and how hosts are linked are those of the same group's later simulations with as
//! many hosts and switches. Every contender has the same flows.

mod shown;

use ccplane_algorithms::Registry;
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{
    Arrivals, Config, Pairs, SimError, SimOptions, Simulation, SizeTable, Workload, WorkloadSpec, settings, topology,
};
use ccplane_units::{Duration, Rate, Time};
use serde::{Deserialize, Serialize};

use self::shown::Results;
use super::simulations::{self, Job};
use super::who::{Who, marking_threshold};
use super::{Datapath, Experiment, Options, Outcome};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "dx-fattree",
    title: "Completion times of web search over a fat tree of 192 hosts",
    source: "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slides 30 and 31",
    takes: "15 minutes on two cores; 1 minute with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: super::Run::Code(fattree),
};

/// Of the capacity of the links that lead from racks upwards, which are the narrow ones, the share that the flows between
/// racks take with their headers, percent.
const LOADS: [u64; 4] = [20, 40, 60, 80];
/// The cell whose ratios stand beside the slides', whatever the others have: the reconstruction's delays, and the load in the middle of
/// those that the group's later papers use.
const FIXED: Cell = Cell {
    delay: Delay::Reconstructed,
    load: 60,
};
const CONTENDERS: [Who; 2] = [Who::Dx, Who::Dctcp];
/// With the reconstruction's delays, DX that grows twice as often as well, to show what that would be worth.
const WITH_FRESHEST: [Who; 3] = [Who::Dx, Who::DxFreshest, Who::Dctcp];
/// Simulations of each cell: fewer, and single large flows decide a cell's 99th percentile.
const SEEDS: u64 = 10;
/// Flows of one simulation. Ten of them make 1,500 small and 300 large ones a cell.
const FLOWS: u64 = 1_000;

/// How long links are. The slides do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    /// 1 µs each.
    One,
    /// 2 µs each.
    Two,
    /// 4 µs a link and 1 µs a host (the group's later scripts): a host's own link takes 5, of which its host is 1.
    Reconstructed,
    /// 5 µs a host's link and 4 µs another, and 1 µs a host.
    Longer,
}

impl Delay {
    const ALL: [Delay; 4] = [Delay::One, Delay::Two, Delay::Reconstructed, Delay::Longer];

    /// Of a host's link with its host, and of a link between switches, µs.
    fn micros(self) -> (u64, u64) {
        match self {
            Delay::One => (1, 1),
            Delay::Two => (2, 2),
            Delay::Reconstructed => (5, 4),
            Delay::Longer => (6, 4),
        }
    }

    /// For names of files and figures.
    fn key(self) -> &'static str {
        match self {
            Delay::One => "1us",
            Delay::Two => "2us",
            Delay::Reconstructed => "4us_1us",
            Delay::Longer => "5us_4us",
        }
    }

    /// For a person.
    fn label(self) -> &'static str {
        match self {
            Delay::One => "1 µs",
            Delay::Two => "2 µs",
            Delay::Reconstructed => "4/1 µs",
            Delay::Longer => "5/4 µs",
        }
    }
}

/// Where a table has a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    delay: Delay,
    /// Percent.
    load: u64,
}

impl Cell {
    fn key(self) -> String {
        format!("{}_{}", self.delay.key(), self.load)
    }

    fn contenders(self) -> &'static [Who] {
        match self.delay == FIXED.delay {
            true => &WITH_FRESHEST,
            false => &CONTENDERS,
        }
    }
}

/// All links.
const GBIT: u64 = 10;
/// Links from racks upwards, and of 191 other hosts those in other racks.
const UPLINKS: u64 = 64;
const ELSEWHERE: (u64, u64) = (186, 191);
/// What a port holds, packets of 1,538 bytes (facts of the same group's scripts).
const BUFFER: u64 = 250 * 1_538;
/// Bytes of a full packet.
const PACKET: u64 = 1_500;
/// The least timeout, for the first packet of a connection as well: the one of the same group's DCTCP scripts. Longer, and a
/// handful of lost packets decides the tail.
const MIN_RTO: Duration = Duration::from_millis(4);
/// A flow that has not ended so long after the last one began never does.
const PATIENCE: Duration = Duration::from_secs(20);

/// One contender in one cell.
struct Run<'r> {
    registry: &'r Registry,
    who: Who,
    cell: Cell,
    flows: u64,
    seed: u64,
}

/// What became of the flows.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Done {
    /// Of each flow its bytes, and ns from asking for the connection to the last byte.
    flows: Vec<(u64, u64)>,
    /// Packets dropped anywhere, and timeouts of all flows.
    drops: u64,
    timeouts: u64,
}

impl Job for Run<'_> {
    type Result = Done;

    fn name(&self) -> String {
        format!("{}-{}-{}", self.who.key(), self.cell.key(), self.seed)
    }

    fn key(&self) -> String {
        format!(
            "{:?}, {:?}, {} flows, seed {}",
            self.who, self.cell, self.flows, self.seed
        )
    }

    fn run(&self) -> Result<Done, Error> {
        let broken = simulations::broken(&self.name(), self.seed, EXPERIMENT.name);
        let limit = Size::Bytes(BUFFER);
        let queue = if self.who.heeds_marks() {
            let threshold = Size::Bytes(marking_threshold(GBIT) * PACKET);
            QueueSpec::Ecn { threshold, limit }
        } else {
            QueueSpec::DropTail(limit)
        };
        let (access, fabric) = self.cell.delay.micros();
        let network = topology::tree_192_with(queue, Duration::from_micros(access), Duration::from_micros(fabric));
        let mut sim = Simulation::new(network, SimOptions::seeded(self.seed)).map_err(&broken)?;
        let own = Config {
            min_rto: MIN_RTO,
            initial_rto: MIN_RTO,
            ack_every: 1,
            ..Config::clone(&settings())
        };
        let payload = u64::from(own.mss);
        let (congestion, transport) = self.who.join(&mut sim, self.registry, own)?;
        let hosts: Vec<_> = sim.network().hosts().collect();
        let spec = WorkloadSpec {
            name: "web search".to_owned(),
            pairs: Pairs::Every {
                from: hosts.clone(),
                to: hosts,
            },
            kind: Workload::Poisson {
                arrivals: Arrivals::Rate(offered(self.cell.load, payload)),
                sizes: SizeTable::named("websearch-kaist")
                    .ok_or_else(|| broken(SimError::Shape("no such table of sizes".to_owned())))?,
                flows: Some(self.flows),
            },
            start: Time::ZERO,
            stop: None,
        };
        let app = sim.add_workload(spec, congestion, transport).map_err(&broken)?;
        let step = Duration::from_millis(10);
        let (mut now, mut open, mut last) = (Time::ZERO, 0, Time::ZERO);
        loop {
            now += step;
            sim.run_until(now).map_err(&broken)?;
            let all = sim
                .workload(app)
                .is_some_and(|workload| workload.opened() == self.flows);
            if !all {
                last = now;
                continue;
            }
            // Flows end in any order, but nearly: those at the front that are over need no second look.
            let over = |flow: &_| sim.flow(*flow).is_some_and(|view| view.finished.is_some());
            open += sim.flows().skip(open).take_while(over).count();
            if open as u64 == self.flows {
                break;
            }
            if now.since(last) > PATIENCE {
                let why = "flows did not end within 20 s of the last arrival".to_owned();
                return Err(broken(SimError::Shape(why)));
            }
        }
        let views: Vec<_> = sim.flows().filter_map(|flow| sim.flow(flow)).collect();
        let took = views.iter().filter_map(|view| {
            let took = view.finished?.since(view.started);
            Some((view.bytes?, took.as_nanos()))
        });
        Ok(Done {
            flows: took.collect(),
            drops: sim.counters().dropped,
            timeouts: views.iter().map(|view| view.timeouts).sum(),
        })
    }
}

/// Bytes of flows a second that make this load, percent; `payload` bytes of a packet are theirs.
fn offered(load: u64, payload: u64) -> Rate {
    let (elsewhere, all) = ELSEWHERE;
    let bits = UPLINKS * GBIT * 1_000_000_000 / 100 * load;
    Rate::from_bits_per_sec(bits / elsewhere * all / PACKET * payload)
}

fn fattree(options: &Options, registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    let (delays, loads, seeds, flows) = if options.quick {
        (&[FIXED.delay][..], &[20, FIXED.load][..], 2, 600)
    } else {
        (&Delay::ALL[..], &LOADS[..], SEEDS, FLOWS)
    };
    let cells: Vec<Cell> = delays
        .iter()
        .flat_map(|delay| {
            loads.iter().map(|load| Cell {
                delay: *delay,
                load: *load,
            })
        })
        .collect();
    let mut jobs = Vec::new();
    for cell in cells.iter().rev() {
        for &who in cell.contenders() {
            jobs.extend((1..=seeds).map(|seed| Run {
                registry,
                who,
                cell: *cell,
                flows,
                seed,
            }));
        }
    }
    let done = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    let results = Results(
        jobs.iter()
            .zip(&done)
            .map(|(job, done)| (job.who, job.cell, done))
            .collect(),
    );
    shown::findings(&results, &cells, seeds, flows).finish(&EXPERIMENT, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 80 % of 640 Gbit/s leave their racks; 186 of 191 flows do, and 1448 of 1500 bytes are theirs.
    #[test]
    fn the_load_is_of_the_uplinks_with_headers() {
        let gbit = offered(80, 1_448).bits_per_sec() as f64 / 1e9;
        assert!(
            (gbit - 512.0 * 191.0 / 186.0 * 1_448.0 / 1_500.0).abs() < 1e-3,
            "{gbit}"
        );
    }

    /// Few flows on an empty tree: each takes two round trips at most and its bytes, the same ones under either control.
    #[test]
    fn flows_take_what_the_tree_says() {
        let registry = Registry::builtin();
        let run = |who, seed| {
            let run = Run {
                registry: &registry,
                who,
                cell: Cell { load: 1, ..FIXED },
                flows: 40,
                seed,
            };
            run.run().unwrap()
        };
        let (one, other) = (run(Who::Dctcp, 3), run(Who::Swift, 3));
        let sizes = |done: &Done| done.flows.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>();
        assert_eq!(sizes(&one), sizes(&other));
        assert_eq!((one.flows.len(), one.drops, one.timeouts), (40, 0, 0));
        for (bytes, ns) in &one.flows {
            // In one rack 5 + 5 µs each way; over the core 26.
            let alone = *bytes as f64 * 8.0 / 10.0;
            assert!(*ns as f64 >= alone + 30_000.0, "{bytes} bytes in {ns} ns");
            assert!(*bytes > 14_480 || *ns < 150_000, "{bytes} bytes in {ns} ns");
        }
        let again = run(Who::Dctcp, 3);
        assert_eq!(one.flows, again.flows);
    }

    /// A few hundred flows at half of the uplinks' capacity: small ones do not wait behind large ones under DX.
    #[test]
    fn small_flows_hardly_wait_under_dx() {
        let registry = Registry::builtin();
        let slowest = |who| {
            let run = Run {
                registry: &registry,
                who,
                cell: Cell { load: 50, ..FIXED },
                flows: 400,
                seed: 1,
            };
            let done = run.run().unwrap();
            let small = done.flows.iter().filter(|(bytes, _)| *bytes <= 10_000);
            small.map(|(_, ns)| *ns).max().unwrap()
        };
        let (dx, dctcp) = (slowest(Who::Dx), slowest(Who::Dctcp));
        assert!(dx < 200_000 && dctcp > 2 * dx, "{dx} ns, {dctcp} ns");
    }
}
