//! Hosts that send to one over a bottleneck, in the simulator: what packets wait there, how full it is, who gets how much.

use ccplane_algorithms::Registry;
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{Config, FlowId, FlowSpec, LinkSpec, SimError, SimOptions, Simulation, settings, topology};
use ccplane_units::{Bytes, Duration, Rate, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use serde::{Deserialize, Serialize};

use super::simulations::{self, Job};
use super::who::{Who, marking_threshold};
use ccplane_lab::Error;
use ccplane_lab::metrics::{self, Distribution};

/// One run.
#[derive(Clone)]
pub(super) struct ManyToOne<'r> {
    pub registry: &'r Registry,
    /// The experiment, for whoever repeats it.
    pub experiment: &'static str,
    pub who: Who,
    /// The rate of every link.
    pub gbit: u64,
    /// Round trip without a queue and without the time that packets take to be sent.
    pub rtt: Duration,
    pub senders: Senders,
    /// Nothing is measured before.
    pub warm: Duration,
    /// The run's end.
    pub until: Duration,
    /// Between two looks at what the receiver has of each flow.
    pub bin: Duration,
    pub seed: u64,
}

/// A round trip without a queue. A network of a few switches and hosts without the kernel's stack has about so much; with it a
/// link of 10 Gbit/s holds 83 packets, less than three for each of 30 senders.
pub(super) const RTT: Duration = Duration::from_micros(100);

impl<'r> ManyToOne<'r> {
    /// What the experiments have in common: one sender under DX at 10 Gbit/s, for a twentieth of a second that counts.
    pub fn of(registry: &'r Registry, experiment: &'static str) -> ManyToOne<'r> {
        let warm = Duration::from_millis(50);
        ManyToOne {
            registry,
            experiment,
            who: Who::Dx,
            gbit: 10,
            rtt: RTT,
            senders: Senders::Always(1),
            warm,
            until: warm * 2,
            bin: Duration::from_millis(10),
            seed: 1,
        }
    }
}

/// Who sends, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Senders {
    /// So many, all the time; they begin within a millisecond.
    Always(u32),
    /// So many that join one after the other, so far apart, and leave one after the other in the same order.
    JoinAndLeave(u32, Duration),
}

impl Senders {
    fn count(self) -> u32 {
        match self {
            Senders::Always(count) | Senders::JoinAndLeave(count, _) => count,
        }
    }

    /// When the `n`-th joins, but for a jitter.
    fn joins(self, n: u64) -> Duration {
        match self {
            Senders::Always(_) => Duration::ZERO,
            Senders::JoinAndLeave(_, apart) => apart * n,
        }
    }

    /// When it leaves.
    fn leaves(self, n: u64) -> Option<Duration> {
        match self {
            Senders::Always(_) => None,
            Senders::JoinAndLeave(count, apart) => Some(apart * (u64::from(count) + n)),
        }
    }
}

/// Packets of 1,500 bytes that the bottleneck holds: the buffers of the same group's later simulations. No contender here
/// fills them.
const BUFFER: u64 = 250;
/// Bytes of a full packet.
const PACKET: u64 = 1_500;
/// Steps of the distribution that is kept.
const STEPS: u32 = 1_000;
/// The stream of random numbers for start times.
const STREAM: u128 = 0x6d61_6e79;
/// Starts are spread over so much.
const SPREAD_NS: u64 = 1_000_000;

/// What was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    /// How long packets waited at the bottleneck before their own transmission began, µs: the thousandths of the distribution.
    waited_us: Vec<f64>,
    /// Its mean, µs.
    pub mean_us: f64,
    /// What a full packet takes to be sent there, µs.
    pub packet_us: f64,
    /// The share of the bottleneck's capacity that was used.
    pub utilisation: f64,
    /// Packets that it dropped, and packets sent again, in the whole run.
    pub drops: u64,
    pub retransmissions: u64,
    /// Of each sender, what arrived in each bin, Mbit/s.
    pub rates: Vec<Vec<f64>>,
}

impl Seen {
    /// The waiting time that this share of the packets did not exceed, µs.
    pub fn waited(&self, share: f64) -> f64 {
        let at = (share * f64::from(STEPS)).round() as usize;
        self.waited_us.get(at).copied().unwrap_or(0.0)
    }

    /// The same with the packet's own transmission: never 0, and so always good for a ratio. It is the length of the queue
    /// that a packet makes by coming, in time.
    pub fn delay(&self, share: f64) -> f64 {
        self.waited(share) + self.packet_us
    }

    /// The distribution of [`delay`](Seen::delay) as a curve.
    pub fn curve(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let shares = (0..=STEPS).step_by(5).map(|step| f64::from(step) / f64::from(STEPS));
        shares.map(|share| (self.delay(share), share))
    }
}

impl Job for ManyToOne<'_> {
    type Result = Seen;

    fn name(&self) -> String {
        let senders = match self.senders {
            Senders::Always(count) => format!("{count}"),
            Senders::JoinAndLeave(count, _) => format!("{count}-join"),
        };
        let (who, gbit, rtt) = (self.who.key(), self.gbit, self.rtt.as_micros());
        format!("{who}-{gbit}g-{rtt}us-{senders}-{}", self.seed)
    }

    fn key(&self) -> String {
        format!(
            "{:?} {} {} {:?} {} {} {} {}",
            self.who, self.gbit, self.rtt, self.senders, self.warm, self.until, self.bin, self.seed
        )
    }

    fn run(&self) -> Result<Seen, Error> {
        let broken = simulations::broken(&self.name(), self.seed, self.experiment);
        let (mut sim, flows) = self.make(&broken)?;
        let bottleneck = sim.network().link_named("bottleneck");
        let bottleneck = bottleneck.ok_or_else(|| broken(SimError::Shape("no bottleneck".to_owned())))?;
        sim.observe(bottleneck).map_err(&broken)?;
        let flows = flows.into_iter().map(|flow| sim.add_flow(flow));
        let flows: Vec<FlowId> = flows.collect::<Result<_, _>>().map_err(&broken)?;
        let mut rates = vec![Vec::new(); flows.len()];
        let mut received = vec![0; flows.len()];
        let mut now = Duration::ZERO;
        while now < self.until {
            for (flow, n) in flows.iter().zip(0..) {
                if self.senders.leaves(n) == Some(now) {
                    sim.abort(*flow);
                }
            }
            now = now + self.bin;
            sim.run_until(Time::ZERO + now).map_err(&broken)?;
            for ((flow, rates), before) in flows.iter().zip(&mut rates).zip(&mut received) {
                let has = sim.flow(*flow).map_or(*before, |view| view.received);
                rates.push(metrics::mbits(has.saturating_sub(*before), self.bin.as_nanos()));
                *before = has;
            }
        }
        let rate = self.rate();
        let span = (Time::ZERO + self.warm)..(Time::ZERO + self.until);
        let left = || {
            let crossings = sim.crossings(bottleneck).iter();
            crossings.filter(|crossing| span.contains(&crossing.left))
        };
        let waited = Distribution::new(left().map(|crossing| {
            let own = rate.time_for(Bytes::new(crossing.bytes.into()));
            crossing.sojourn.saturating_sub(own).as_nanos() as f64 / 1e3
        }));
        let bytes: u64 = left().map(|crossing| u64::from(crossing.bytes)).sum();
        let capacity = rate.bytes_in(self.until.saturating_sub(self.warm)).get();
        let steps = (0..=STEPS).map(|step| waited.quantile(f64::from(step) / f64::from(STEPS)).unwrap_or(0.0));
        Ok(Seen {
            waited_us: steps.collect(),
            mean_us: waited.mean().unwrap_or(0.0),
            packet_us: rate.time_for(Bytes::new(PACKET)).as_nanos() as f64 / 1e3,
            utilisation: bytes as f64 / capacity.max(1) as f64,
            drops: sim.link(bottleneck).map_or(0, |link| link.queue_drops),
            retransmissions: flows
                .iter()
                .filter_map(|flow| sim.flow(*flow))
                .map(|view| view.retransmitted)
                .sum(),
            rates,
        })
    }
}

impl ManyToOne<'_> {
    fn rate(&self) -> Rate {
        Rate::from_bits_per_sec(self.gbit * 1_000_000_000)
    }

    /// The network, and the flows to come.
    fn make(&self, broken: &dyn Fn(SimError) -> Error) -> Result<(Simulation, Vec<FlowSpec>), Error> {
        let limit = Size::Packets(BUFFER);
        let queue = if self.who.heeds_marks() {
            let threshold = Size::Packets(marking_threshold(self.gbit));
            QueueSpec::Ecn { threshold, limit }
        } else {
            QueueSpec::DropTail(limit)
        };
        let access = LinkSpec::new(self.rate(), self.rtt / 4).with_queue(QueueSpec::UNLIMITED, self.rtt);
        let count = self.senders.count();
        let network = topology::incast(count, &access, access.clone().with_queue(queue, self.rtt)).map_err(&broken)?;
        let host = |name: String| {
            let found = network.node(&name);
            found.ok_or_else(|| broken(SimError::Shape(format!("no host {name}"))))
        };
        let receiver = host("receiver".to_owned())?;
        let hosts = (1..=count)
            .map(|n| host(format!("sender{n}")))
            .collect::<Result<Vec<_>, _>>()?;
        let mut sim = Simulation::new(network, SimOptions::seeded(self.seed)).map_err(&broken)?;
        // Every packet is acknowledged, whoever sends: what DX needs is no advantage then.
        let own = Config {
            ack_every: 1,
            ..Config::clone(&settings())
        };
        let (congestion, transport) = self.who.join(&mut sim, self.registry, own)?;
        let mut random = Pcg64::new(u128::from(self.seed), STREAM);
        let flows = hosts.into_iter().zip(0u64..).map(|(from, n)| {
            let jitter = Duration::from_nanos(random.next_u64() % SPREAD_NS);
            FlowSpec::new(from, receiver)
                .at(Time::ZERO + self.senders.joins(n) + jitter)
                .under(congestion.clone())
                .with(transport.clone())
        });
        Ok((sim, flows.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(who: Who, senders: Senders) -> Seen {
        let registry = Registry::builtin();
        let job = ManyToOne {
            who,
            gbit: 1,
            senders,
            warm: Duration::from_millis(40),
            until: Duration::from_millis(80),
            bin: Duration::from_millis(1),
            ..ManyToOne::of(&registry, "dx-testbed")
        };
        job.run().unwrap()
    }

    /// DCTCP's queue stands about its threshold of 20 packets, 240 µs, and what the senders get is what the link carries.
    #[test]
    fn what_is_seen_of_dctcp_is_what_its_threshold_makes() {
        let seen = run(Who::Dctcp, Senders::Always(2));
        assert_eq!(seen.packet_us, 12.0);
        assert!((150.0..300.0).contains(&seen.waited(0.5)), "{}", seen.waited(0.5));
        assert_eq!(seen.delay(0.5), seen.waited(0.5) + 12.0);
        assert!(
            seen.utilisation > 0.999 && seen.utilisation < 1.001,
            "{}",
            seen.utilisation
        );
        let goodput: f64 = seen
            .rates
            .iter()
            .map(|rates| rates[40..80].iter().sum::<f64>() / 40.0)
            .sum();
        assert!((goodput / 965.3 - 1.0).abs() < 0.002, "1448 of 1500 bytes: {goodput}");
        assert!(
            seen.curve()
                .zip(seen.curve().skip(1))
                .all(|(a, b)| a.0 <= b.0 && a.1 < b.1)
        );
    }

    #[test]
    fn flows_join_and_leave() {
        let seen = run(Who::Dctcp, Senders::JoinAndLeave(2, Duration::from_millis(20)));
        let at = |flow: usize, bin: usize| seen.rates[flow][bin];
        assert!(at(0, 10) > 900.0 && at(1, 10) == 0.0);
        // One that joins behind a standing queue is marked at once, and grows by a packet a round trip.
        assert!(at(0, 35) > 250.0 && at(1, 35) > 10.0);
        assert!(at(0, 50) == 0.0 && at(1, 50) > 900.0);
        assert!(at(1, 70) == 0.0);
    }
}
