//! CCP, SIGCOMM 2018, section 7.3, figure 14: does it suffice to decide now and then where a round
//! trip takes 20 µs?
//!
//! Fifty hosts each send a request to one host, at the same time but for a jitter of microseconds.
//! The figure is the time of the last byte of the last request, as a multiple of the same under a
//! window that changes at every ACK in the datapath. As in the paper, two delays model an agent
//! outside of the datapath: the age of a report when it is heard, and the interval between reports.
//! Between two reports the window stands still ([`outside`]). ccplane's own Reno runs beside it;
//! its program raises the window in slow start and reduces it at a loss.

mod shown;

use std::sync::Arc;

use ccplane_agent::Agent;
use ccplane_algorithms::{Parameters, Registry};
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{
    FlowControl, FlowSpec, LinkSpec, Native, SimError, SimOptions, Simulation, SteerOptions,
    TransportConfig, default_transport, topology,
};
use ccplane_units::{Duration, Rate, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use self::shown::Results;
use super::outside;
use super::replay::{Message, Replay};
use super::simulations::{self, Job};
use super::{Datapath, Experiment, Options, Outcome};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp-incast",
    title: "Reporting intervals in an incast of 50 at 10 and 40 Gbit/s",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.3, figure 14",
    takes: "5 minutes on two cores; half a minute with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: super::Run::Code(incast),
};

/// Who sends to one.
const SENDERS: u32 = 50;
/// Packets of a request.
const SIZES: [u64; 3] = [10, 100, 1_000];
/// From one report to the next, µs. The paper has 10 to 500 at 10 Gbit/s and more at 40.
const INTERVALS: [u64; 8] = [10, 20, 50, 100, 200, 500, 1_000, 2_000];
/// Those of `--quick`: what the paper's statements are about.
const QUICK_INTERVALS: [u64; 5] = [10, 100, 500, 1_000, 2_000];
/// How old a report is when the agent hears it (the paper's, from its measurements of IPC).
const STALENESS: Duration = Duration::from_micros(20);
/// When the requests start: connections are open and have their programs.
const BEGIN: Duration = Duration::from_millis(1);
/// A tail longer than this is no completion: retransmission timeouts double from 200 ms.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the paper does not tell.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SetUp {
    name: &'static str,
    /// Packets that the switch holds for the receiver; `None` for as many as come.
    buffer: Option<u32>,
    /// Segments.
    initial_window: u16,
    min_rto: Duration,
}

/// The first set-up's figures are set beside the paper's: it is nearest to what the paper says.
/// With a buffer of 100 packets or less, retransmission timeouts decide much of the tail, and all
/// of it with timeouts of 200 ms. Where the buffer has no limit, enough packets are always in
/// flight, and little depends on the interval.
const SET_UPS: &[SetUp] = &[
    SetUp {
        name: "IW 2, 250 packets, RTO 1 ms",
        buffer: Some(250),
        initial_window: 2,
        min_rto: Duration::from_millis(1),
    },
    SetUp {
        name: "IW 10, 100 packets, RTO 1 ms",
        buffer: Some(100),
        initial_window: 10,
        min_rto: Duration::from_millis(1),
    },
    SetUp {
        name: "IW 2, 100 packets, RTO 1 ms",
        buffer: Some(100),
        initial_window: 2,
        min_rto: Duration::from_millis(1),
    },
    SetUp {
        name: "IW 2, 50 packets, RTO 1 ms",
        buffer: Some(50),
        initial_window: 2,
        min_rto: Duration::from_millis(1),
    },
    SetUp {
        name: "IW 2, 100 packets, RTO 200 ms",
        buffer: Some(100),
        initial_window: 2,
        min_rto: Duration::from_millis(200),
    },
    SetUp {
        name: "IW 1, 250 packets, RTO 1 ms",
        buffer: Some(250),
        initial_window: 1,
        min_rto: Duration::from_millis(1),
    },
    SetUp {
        name: "IW 1, unlimited",
        buffer: None,
        initial_window: 1,
        min_rto: Duration::from_millis(1),
    },
    SetUp {
        name: "IW 10, unlimited",
        buffer: None,
        initial_window: 10,
        min_rto: Duration::from_millis(1),
    },
];

/// Who decides the window, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The transport's own Reno, at every ACK: the paper's baseline.
    Datapath,
    /// The paper's model: an agent alone, every so many µs.
    Outside(u64),
    /// ccplane's Reno, which reports as often.
    Ccplane(u64),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Who::Datapath => f.write_str("datapath"),
            Who::Outside(us) => write!(f, "outside-{us}us"),
            Who::Ccplane(us) => write!(f, "ccplane-{us}us"),
        }
    }
}

/// A point of the figure: the tails of all its seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    set_up: &'static SetUp,
    gbit: u64,
    rtt_us: u64,
    packets: u64,
    who: Who,
    seeds: u64,
}

impl Job for Point {
    /// µs from the first start to the last byte, seed by seed.
    type Result = Vec<f64>;

    fn name(&self) -> String {
        let place = SET_UPS
            .iter()
            .position(|set_up| set_up == self.set_up)
            .unwrap_or(0);
        format!(
            "{place}-{}g-{}us-{}p-{}",
            self.gbit, self.rtt_us, self.packets, self.who
        )
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn run(&self) -> Result<Vec<f64>, Error> {
        (1..=self.seeds)
            .map(|seed| {
                self.tail(seed)
                    .map_err(simulations::broken(&self.name(), seed, EXPERIMENT.name))
            })
            .collect()
    }
}

impl Point {
    /// One simulation.
    fn tail(&self, seed: u64) -> Result<f64, SimError> {
        let rate = Rate::from_bits_per_sec(self.gbit * 1_000_000_000);
        let rtt = Duration::from_micros(self.rtt_us);
        let queue = match self.set_up.buffer {
            Some(packets) => QueueSpec::DropTail(Size::Packets(packets.into())),
            None => QueueSpec::UNLIMITED,
        };
        let link = LinkSpec::new(rate, rtt / 4).with_queue(QueueSpec::UNLIMITED, rtt);
        let network = topology::incast(SENDERS, &link, link.clone().with_queue(queue, rtt))?;
        let host = |name: String| {
            network
                .find_node(&name)
                .ok_or_else(|| SimError::InvalidTopology(format!("no host {name}")))
        };
        let receiver = host("receiver".to_owned())?;
        let senders = (1..=SENDERS)
            .map(|n| host(format!("sender{n}")))
            .collect::<Result<Vec<_>, _>>()?;
        let mut sim = Simulation::new(network, SimOptions::seeded(seed))?;
        let congestion = self.congestion(&mut sim)?;
        let transport = Arc::new(TransportConfig {
            initial_window: self.set_up.initial_window,
            min_rto: self.set_up.min_rto,
            ack_every: 1,
            restart_after_idle: false,
            ..TransportConfig::clone(&default_transport())
        });
        let mss = u64::from(transport.mss);
        let specs = senders.iter().map(|sender| {
            let spec = FlowSpec::new(*sender, receiver).with_congestion(congestion.clone());
            spec.with_transport(transport.clone())
        });
        let mut random = Pcg64::new(u128::from(seed), STREAM);
        let mut messages: Vec<Message> = (0..SENDERS)
            .map(|connection| Message {
                at: Duration::from_nanos(random.next_u64() % jitter_ns(self.gbit)),
                connection,
                bytes: self.packets * mss,
            })
            .collect();
        messages.sort_by_key(|message| message.at);
        let first = messages
            .first()
            .map_or(Duration::ZERO, |message| message.at);
        let starts: Vec<Duration> = messages.iter().map(|message| message.at).collect();
        let app = Replay::start(&mut sim, specs.collect(), messages, Time::ZERO + BEGIN);
        // In steps, so that it ends soon after the last byte.
        let mut until = Time::ZERO + BEGIN;
        while !sim.app::<Replay>(app).is_some_and(Replay::finished) {
            if until > Time::ZERO + PATIENCE {
                return Err(SimError::InvalidTopology(
                    "a request did not complete within a minute".to_owned(),
                ));
            }
            until += Duration::from_millis(1);
            sim.run_until(until)?;
        }
        let took = sim.app::<Replay>(app).into_iter().flat_map(Replay::took);
        let ends = took
            .zip(starts)
            .filter_map(|(took, start)| Some(start + took?));
        let last = ends.max().unwrap_or(Duration::ZERO);
        Ok(last.saturating_sub(first).as_nanos() as f64 / 1e3)
    }

    fn congestion(&self, sim: &mut Simulation) -> Result<FlowControl, SimError> {
        let wrong = |error: &dyn std::fmt::Display| SimError::InvalidTopology(error.to_string());
        let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
        let name = match self.who {
            Who::Datapath => return Ok(FlowControl::Native(Native::new_reno())),
            Who::Outside(us) => {
                let algorithm = outside::reporting(Duration::from_micros(us));
                agent.add_boxed(algorithm).map_err(|e| wrong(&e))?;
                outside::NAME
            }
            Who::Ccplane(us) => {
                let parameters = Parameters::new().with("report", format!("{us}us"));
                let algorithm = Registry::builtin()
                    .by_name("reno", &parameters)
                    .map_err(|e| wrong(&e))?;
                agent.add_boxed(algorithm).map_err(|e| wrong(&e))?;
                "reno"
            }
        };
        let options = SteerOptions {
            to_agent: STALENESS,
            from_agent: Duration::ZERO,
            ..SteerOptions::default()
        };
        let agent = sim.host_agent(agent, options);
        Ok(FlowControl::Steered(agent, Arc::from(name)))
    }
}

/// The stream of random numbers for start times.
const STREAM: u128 = 0x696e_6361_7374;

/// Starts are spread over less than 10 µs at 10 Gbit/s and 2.5 µs at 40 (the paper's).
fn jitter_ns(gbit: u64) -> u64 {
    100_000 / gbit.max(1)
}

/// All points of a set-up at a rate and round trip.
fn points(set_up: &'static SetUp, intervals: &[u64], seeds: u64, ccplane: bool) -> Vec<Point> {
    let mut points = Vec::new();
    for (gbit, rtt_us) in RATES
        .iter()
        .flat_map(|gbit| ROUND_TRIPS.map(|rtt| (*gbit, rtt)))
    {
        for packets in SIZES {
            let outside = intervals.iter().map(|us| Who::Outside(*us));
            let ours = intervals
                .iter()
                .filter(|_| ccplane)
                .map(|us| Who::Ccplane(*us));
            points.extend(
                std::iter::once(Who::Datapath)
                    .chain(outside)
                    .chain(ours)
                    .map(|who| Point {
                        set_up,
                        gbit,
                        rtt_us,
                        packets,
                        who,
                        seeds,
                    }),
            );
        }
    }
    points
}

const RATES: [u64; 2] = [10, 40];
/// The paper's text has 20 µs, and calls 500 µs 50 round trips and 100 µs 10, which makes one 10
/// µs.
const ROUND_TRIPS: [u64; 2] = [20, 10];

fn incast(
    options: &Options,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    // The paper's 50 seeds for the figures that are compared with it. The other set-ups, which show
    // what depends on what, have fewer.
    let (first, others, intervals) = if options.quick {
        (5, 5, &QUICK_INTERVALS[..])
    } else {
        (50, 20, &INTERVALS[..])
    };
    let points: Vec<Point> = SET_UPS
        .iter()
        .enumerate()
        .flat_map(|(n, set_up)| {
            points(
                set_up,
                intervals,
                if n == 0 { first } else { others },
                n == 0,
            )
        })
        .collect();
    let tails = simulations::run(&points, options.threads, &options.parts(), progress)?;
    let results = Results(points.iter().copied().zip(tails).collect());
    shown::findings(&results, intervals, SET_UPS).finish(&EXPERIMENT, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fifty requests of ten packets take the link's time for 500 packets, whoever decides, and the
    /// same each time.
    #[test]
    fn a_small_incast_fills_the_link() {
        for who in [Who::Datapath, Who::Outside(100), Who::Ccplane(100)] {
            let point = Point {
                set_up: SET_UPS
                    .iter()
                    .find(|set_up| set_up.buffer.is_none() && set_up.initial_window == 10)
                    .unwrap(),
                gbit: 10,
                rtt_us: 20,
                packets: 10,
                who,
                seeds: 2,
            };
            let tails = point.run().unwrap();
            // 500 × 1,500 bytes at 10 Gbit/s are 600 µs; half a round trip, the jitter and the
            // first hop come on top.
            assert!(
                tails.iter().all(|us| (600.0..640.0).contains(us)),
                "{who}: {tails:?}"
            );
            assert_eq!(tails, point.run().unwrap());
        }
    }
}
