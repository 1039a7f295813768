//! The ladder of slides 9 to 17 on a model: one TCP sender straight to one receiver, 10 Gbit/s,
//! whose true times are known, and what is measured of the same packets at each step, stamped by
//! ever better clocks.

use std::collections::BTreeMap;

use ccplane_datapath::burst::{LinkPacket, calibrate_batch};
use ccplane_datapath::{ExchangeStamps, OneWay};
use ccplane_sim::{
    Carrier, Duty, FlowControl, FlowSpec, LinkSpec, LinkStep, Network, PacketEvent, Pairs,
    SimError, SimOptions, Simulation, StampClock, StampModel, Tracer, TransportConfig, Workload,
    WorkloadSpec, default_transport,
};
use ccplane_transport::{Native, SegmentKind};
use ccplane_units::{Duration, Rate, Time};

use ccplane_lab::metrics::Distribution;

/// The link, both ways.
const RATE: Rate = Rate::from_bits_per_sec(10_000_000_000);
const DELAY: Duration = Duration::from_micros(5);
/// What else goes the acknowledgements' way: half of the link, in packets that come as they like.
const BACK: Rate = Rate::from_bits_per_sec(5_000_000_000);
/// A full packet.
const FULL: u32 = 1_500;

/// A passage through a host's stack, from TCP to the driver or back: exponential. Four of them in a
/// round trip have a 99th percentile of 10.0 times the mean, which this makes the slide's 710 µs.
const STACK: StampModel = StampModel {
    jitter: Duration::from_micros(71),
    ..StampModel::EXACT
};
/// The driver's stamps: a burst of 16 full packets that is handed over has one; and so has what
/// comes within 10 µs, a usual interrupt timer.
const HANDED: StampModel = StampModel {
    batch: Duration::from_micros(20),
    ..StampModel::EXACT
};
const NOTICED: StampModel = StampModel {
    batch: Duration::from_micros(10),
    ..StampModel::EXACT
};
/// Clocks of a host that stamps (departures, arrivals).
const STACKS: Clocks = (STACK, STACK);
const DRIVERS: Clocks = (HANDED, NOTICED);
const PACED: Clocks = (StampModel::EXACT, NOTICED);
const TRUE: Clocks = (StampModel::EXACT, StampModel::EXACT);
/// How far apart the clocks drift where they do.
const DRIFT_PPB: i64 = 20_000;

/// What a host stamps departures by, and arrivals.
type Clocks = (StampModel, StampModel);

/// An exchange: when the data was through its link, when it had arrived, when its answer was given
/// to the link there, when that had arrived; bytes of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    left: Time,
    came: Time,
    answered: Time,
    back: Time,
    data: u32,
    answer: u32,
}

/// What is spread how far above its least, µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub p50: f64,
    pub p99: f64,
}

impl Spread {
    /// Of values in nanoseconds.
    pub fn of(values: impl Iterator<Item = i64> + Clone) -> Spread {
        let least = values.clone().min().unwrap_or(0);
        let above = Distribution::new(values.map(|value| (value - least) as f64 / 1e3));
        let at = |p| above.quantile(p).unwrap_or(0.0);
        Spread {
            p50: at(0.5),
            p99: at(0.99),
        }
    }
}

/// The steps of the ladder, from the worst.
pub(super) const STEPS: [&str; 6] = [
    "stack's RTT",
    "stamped below the sender's stack",
    "receiver's delay subtracted",
    "paced, then stamped",
    "calibrated by transmission time",
    "one way",
];

/// What a step measures, and the causes of error that it still has.
pub(super) struct Ladder {
    pub steps: [Spread; 6],
    /// What each cause makes alone: its name, in the RTT, one way.
    pub causes: Vec<(&'static str, Spread, Spread)>,
}

/// Runs it.
pub(super) fn climb(seed: u64, length: Duration) -> Result<Ladder, SimError> {
    let exchanges = exchanges(seed, length)?;
    Ok(Ladder {
        steps: steps(&exchanges, seed),
        causes: causes(&exchanges, seed),
    })
}

/// The stamps of all exchanges under these clocks of the sender and the receiver: (t1, t2, t3, t4).
fn stamped(exchanges: &[Exchange], seed: u64, sender: Clocks, receiver: Clocks) -> Vec<[i64; 4]> {
    let clock = |which: u32, model| StampClock::new(model, seed, which, [RATE; 2]);
    let (mut t1, mut t4) = (clock(0, sender.0), clock(1, sender.1));
    let (mut t3, mut t2) = (clock(2, receiver.0), clock(3, receiver.1));
    let ns = |time: Time| time.as_nanos() as i64;
    let one = |e: &Exchange| {
        [
            ns(t1.departure(e.left, e.data)),
            ns(t2.arrival(e.came, e.data)),
            ns(t3.departure(e.answered, e.answer)),
            ns(t4.arrival(e.back, e.answer)),
        ]
    };
    exchanges.iter().map(one).collect()
}

/// Arrivals as a receiver calibrates them that has the whole batch: those of one stamp are traced
/// back from the last.
fn calibrated(stamps: &[[i64; 4]], which: usize, bytes: impl Fn(usize) -> u32) -> Vec<i64> {
    let mut all: Vec<LinkPacket> = Vec::with_capacity(stamps.len());
    for (n, stamp) in stamps.iter().enumerate() {
        all.push(LinkPacket {
            stamp: Time::from_nanos(stamp[which] as u64),
            bytes: bytes(n),
        });
    }
    for batch in all.chunk_by_mut(|a, b| a.stamp == b.stamp) {
        calibrate_batch(batch, RATE);
    }
    all.iter()
        .map(|passing| passing.stamp.as_nanos() as i64)
        .collect()
}

fn steps(exchanges: &[Exchange], seed: u64) -> [Spread; 6] {
    let stack = stamped(exchanges, seed, STACKS, STACKS);
    let driver = stamped(exchanges, seed, DRIVERS, DRIVERS);
    let released = stamped(exchanges, seed, PACED, PACED);
    let t2 = calibrated(&released, 1, |n| exchanges.get(n).map_or(FULL, |e| e.data));
    let t4 = calibrated(&released, 3, |n| {
        exchanges.get(n).map_or(FULL, |e| e.answer)
    });
    // What the stack takes moves the packets of a real host; here it is added, as if it had.
    let inside = |[_, t2, t3, _]: &[i64; 4]| t2 - t3;
    let total = |[t1, _, _, t4]: &[i64; 4]| t4 - t1;
    [
        Spread::of(stack.iter().map(|s| total(s) + inside(s))),
        Spread::of(driver.iter().zip(&stack).map(|(d, s)| total(d) + inside(s))),
        Spread::of(driver.iter().map(|d| total(d) + inside(d))),
        Spread::of(released.iter().map(|r| total(r) + inside(r))),
        Spread::of(
            released
                .iter()
                .zip(t2.iter().zip(&t4))
                .map(|(r, (t2, t4))| t4 - r[0] + t2 - r[2]),
        ),
        Spread::of(released.iter().zip(&t2).map(|(r, t2)| t2 - r[0])),
    ]
}

/// Each cause with everything else exact.
fn causes(exchanges: &[Exchange], seed: u64) -> Vec<(&'static str, Spread, Spread)> {
    let rtt = |stamps: &[[i64; 4]]| {
        Spread::of(stamps.iter().map(|[t1, t2, t3, t4]| (t4 - t1) - (t3 - t2)))
    };
    let there = |stamps: &[[i64; 4]]| Spread::of(stamps.iter().map(|[t1, t2, ..]| t2 - t1));
    // The way back as if it were empty, where it is not what is asked about.
    let idle: Vec<Exchange> = exchanges
        .iter()
        .map(|e| Exchange {
            back: e.answered + DELAY,
            ..*e
        })
        .collect();
    let mut all = Vec::new();
    for (name, clocks, exchanges) in [
        ("stack of both hosts", STACKS, &idle[..]),
        ("bursts and batches of both hosts", DRIVERS, &idle[..]),
        ("queues of the way back", TRUE, exchanges),
    ] {
        let stamps = stamped(exchanges, seed, clocks, clocks);
        all.push((name, rtt(&stamps), there(&stamps)));
    }
    let drifting = StampModel {
        drift_ppb: DRIFT_PPB,
        ..StampModel::EXACT
    };
    let stamps = stamped(&idle, seed, TRUE, (drifting, drifting));
    all.push((
        "clocks that drift apart by 20 ppm",
        rtt(&stamps),
        there(&stamps),
    ));
    let mut one_way = OneWay::default();
    let mut queues = Vec::with_capacity(stamps.len());
    for (stamp, exchange) in stamps.iter().zip(&idle) {
        let [t1, t2, t3, t4] = stamp.map(|ns| Time::from_nanos(ns as u64));
        one_way.sample(exchange.back, &ExchangeStamps { t1, t2, t3, t4 });
        let queue = one_way.queue_delay(exchange.back, Duration::ZERO);
        queues.push(queue.map_or(0, |queue| queue.as_nanos() as i64));
    }
    let zero = std::iter::once(0);
    let kept = Spread::of(zero.chain(queues.iter().copied()));
    all.push(("the same, as ccplane takes it", rtt(&stamps), kept));
    all
}

/// The link between two hosts, its flow, and what comes the other way.
fn exchanges(seed: u64, length: Duration) -> Result<Vec<Exchange>, SimError> {
    let mut network = Network::new();
    let (a, b) = (network.add_host("sender"), network.add_host("receiver"));
    let link = LinkSpec::new(RATE, DELAY);
    network.add_duplex_link(a, b, link.clone(), link);
    let mut sim = Simulation::with_tracer(network, SimOptions::seeded(seed), Truth::default())?;
    let config = TransportConfig {
        // Enough for the link and its round trip, and no more: the flow never has a queue but its
        // own host's.
        receive_buffer: 64_000,
        ..TransportConfig::clone(&default_transport()).stamped()
    };
    sim.add_flow(FlowSpec::new(a, b).with_transport(std::sync::Arc::new(config)))?;
    let back = WorkloadSpec {
        name: "back".to_owned(),
        pairs: Pairs::List(vec![(b, a)]),
        kind: Workload::Paced {
            rate: BACK,
            duty: Duty::Always,
            carrier: Carrier::Datagrams {
                bytes: FULL,
                poisson: true,
            },
        },
        start: Time::ZERO,
        stop: None,
    };
    sim.add_workload(
        back,
        FlowControl::Native(Native::cubic()),
        default_transport(),
    )?;
    sim.run_until(Time::ZERO + length)?;
    Ok(sim.into_tracer().exchanges)
}

/// Sees when packets really were where.
#[derive(Default)]
struct Truth {
    /// By the number of the data: when it was through, had arrived, and was answered.
    under_way: BTreeMap<u32, Exchange>,
    exchanges: Vec<Exchange>,
}

impl Tracer for Truth {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        let segment = seen.segment;
        if seen.flow.is_none() {
            return;
        }
        match (seen.step, segment.kind, seen.backward) {
            (LinkStep::Arrived, SegmentKind::Data, false) => {
                let left = Time::from_nanos(now.as_nanos().saturating_sub(DELAY.as_nanos()));
                let exchange = Exchange {
                    left,
                    came: now,
                    answered: now,
                    back: now,
                    data: seen.bytes,
                    answer: 0,
                };
                self.under_way.insert(segment.number.0, exchange);
            }
            (LinkStep::Queued, SegmentKind::Ack, true) => {
                if let Some(exchange) = self.under_way.get_mut(&segment.echo.0) {
                    (exchange.answered, exchange.answer) = (now, seen.bytes);
                }
            }
            (LinkStep::Arrived, SegmentKind::Ack, true) => {
                if let Some(exchange) = self.under_way.remove(&segment.echo.0)
                    && exchange.answer > 0
                {
                    self.exchanges.push(Exchange {
                        back: now,
                        ..exchange
                    });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step is at least as good as the one before, the first is the slide's, and the last is
    /// what batches with gaps leave.
    #[test]
    fn each_step_of_the_ladder_helps() {
        let ladder = climb(1, Duration::from_millis(20)).unwrap();
        let p99 = ladder.steps.map(|step| step.p99);
        assert!((500.0..900.0).contains(&p99[0]), "{p99:?}");
        assert!(
            p99.windows(2).all(|pair| pair[1] <= pair[0] * 1.02),
            "{p99:?}"
        );
        assert!(p99[5] < 2.0, "{p99:?}");
        let cause = |name: &str| {
            ladder
                .causes
                .iter()
                .find(|(n, ..)| n.starts_with(name))
                .unwrap()
        };
        assert_eq!(cause("queues").2, Spread { p50: 0.0, p99: 0.0 });
        assert!(cause("queues").1.p99 > 1.0);
        // 20 ms at 20 ppm are 0.4 µs.
        let (_, _, drift) = cause("clocks");
        assert!((0.35..0.45).contains(&drift.p99), "{drift:?}");
        assert!(cause("the same").2.p99 <= 0.01);
    }
}
