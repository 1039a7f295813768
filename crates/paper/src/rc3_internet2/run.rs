//! One simulation of a wide-area network: the same flows, however they begin.

use ccplane_sim::{
    AppId, Arrivals, Pairs, SimError, SimOptions, Simulation, SizeTable, Workload, WorkloadSpec,
};
use ccplane_units::{Bytes, Duration, Rate, Time};
use serde::{Deserialize, Serialize};

use super::super::rc3_theory::{ELEVEN, MOST_PACKETS, Means, PAYLOAD, WIRE, reduction};
use super::super::rc3_who::{Control, Start, shared};
use super::super::simulations::{self, Job};
use super::net::{Net, Queues};

/// The experiment's name.
pub(super) const NAME: &str = "rc3-internet2";
use ccplane_lab::Error;
use ccplane_lab::metrics::Distribution;

/// Flow sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Every whole number of packets up to 2,107, by the data-mining table.
    Continuous,
    /// The authors' eleven.
    Eleven,
}

impl Sizes {
    fn table(self) -> Option<SizeTable> {
        match self {
            Sizes::Continuous => SizeTable::named("datamining-rc3"),
            Sizes::Eleven => {
                let all: f64 = ELEVEN.iter().map(|(_, share)| share).sum();
                let mut below = 0.0;
                let atoms = ELEVEN.iter().flat_map(|(packets, share)| {
                    let before = below;
                    below += share / all;
                    [
                        (packets * PAYLOAD, before),
                        (packets * PAYLOAD, below.min(1.0)),
                    ]
                });
                SizeTable::new(&atoms.collect::<Vec<_>>()).ok()
            }
        }
    }
}

/// A simulation: all flows, or two groups of them that begin differently, each with its own
/// arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub net: Net,
    pub sizes: Sizes,
    /// Percent of every link's capacity, headers included.
    pub load: u64,
    /// Percent of the flows that are in the first group; with 100 there is no other.
    pub share: u64,
    /// How the flows of either group begin.
    pub starts: (Start, Start),
    /// Flows that begin within this time count.
    pub measured: Duration,
    pub seed: u64,
}

/// Flows that begin before do not count: the network fills. Longer than slow start of the longest
/// flow takes.
const WARM: Duration = Duration::from_millis(600);
/// Flows arrive for so long after the last one that counts, so that its packets meet those of
/// others.
const AFTER: Duration = Duration::from_millis(300);
/// Beside that, so many times what the longest flow takes to be sent.
const LONGEST: u64 = 2;
/// What has not ended so long after the last arrival never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// What became of the flows that count, group by group, in the order of their arrivals: the same
/// flows in every simulation of the same seed, load, sizes and groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    pub groups: Vec<Vec<Flow>>,
    /// Packets dropped anywhere, and sent by hosts, in the whole run.
    pub drops: u64,
    pub sent: u64,
    /// Packets sent again in class 0, and timeouts, of the flows that count.
    pub retransmitted: u64,
    pub timeouts: u64,
    /// Bytes that their second loops brought, and how many of those loops stopped because of what
    /// the path does.
    pub rc3_bytes: u64,
    pub stopped: u64,
}

/// A flow: its bytes, and ns from asking for the connection to the last byte, if it ended.
pub(super) type Flow = (u64, Option<u64>);

impl Run {
    /// The paper's baseline, with all flows alike.
    pub fn new(start: Start, measured: Duration) -> Run {
        Run {
            net: Net::BASE,
            sizes: Sizes::Continuous,
            load: 30,
            share: 100,
            starts: (start, start),
            measured,
            seed: 1,
        }
    }

    /// The same with every flow under plain TCP: what it is compared with.
    pub fn plain(self) -> Run {
        Run {
            net: Net {
                strips: false,
                ..self.net
            },
            starts: (Start::Tcp, Start::Tcp),
            ..self
        }
    }

    fn queues(self) -> Queues {
        let starts = [self.starts.0, self.starts.1];
        match starts.iter().any(|start| start.uses_bands()) {
            true => Queues::Bands,
            false if starts.contains(&Start::Rcp) => Queues::Rcp,
            false => Queues::Plain,
        }
    }

    /// Payload that flows bring in a second, over all hosts.
    fn offered(self, hosts: u64) -> Rate {
        let each = self.net.access().bytes_per_sec() / 100 * self.load;
        Rate::from_bytes_per_sec(each * hosts / WIRE * PAYLOAD)
    }
}

impl Job for Run {
    type Result = Done;

    fn name(&self) -> String {
        let Net {
            shape,
            access_mbit,
            delays,
            loss,
            strips,
        } = self.net;
        let strips = if strips { "-strips" } else { "" };
        let (first, second) = (self.starts.0.key(), self.starts.1.key());
        let who = if self.share == 100 {
            first
        } else {
            format!("{first}{}-{second}", self.share)
        };
        let sizes = if self.sizes == Sizes::Eleven {
            "-eleven"
        } else {
            ""
        };
        let (shape, load, ms) = (shape.key(), self.load, self.measured.as_millis());
        format!(
            "{shape}-{access_mbit}m-{delays}-{loss}ppm{strips}-{load}{sizes}-{who}-{ms}ms-{}",
            self.seed
        )
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn run(&self) -> Result<Done, Error> {
        let broken = simulations::broken(&self.name(), self.seed, NAME);
        let (network, pairs) = self.net.build(self.queues()).map_err(&broken)?;
        let hosts = network.hosts().count() as u64;
        let mut sim = Simulation::new(network, SimOptions::seeded(self.seed)).map_err(&broken)?;
        let longest = self
            .net
            .access()
            .transmission_time(Bytes::new(MOST_PACKETS * WIRE))
            * LONGEST;
        let counts = (Time::ZERO + WARM + longest)..(Time::ZERO + WARM + longest + self.measured);
        let end = counts.end + AFTER + longest;
        let offered = self.offered(hosts).bytes_per_sec();
        let groups = [
            (self.share, self.starts.0),
            (100 - self.share, self.starts.1),
        ];
        let mut apps: Vec<AppId> = Vec::new();
        for (share, start) in groups.into_iter().filter(|(share, _)| *share > 0) {
            let spec = WorkloadSpec {
                name: start.label(),
                pairs: Pairs::List(pairs.clone()),
                kind: Workload::Poisson {
                    arrivals: Arrivals::Rate(Rate::from_bytes_per_sec(offered / 100 * share)),
                    sizes: self.sizes.table().ok_or_else(|| {
                        broken(SimError::InvalidTopology(
                            "no such table of sizes".to_owned(),
                        ))
                    })?,
                    flows: None,
                },
                start: Time::ZERO,
                stop: Some(end),
            };
            let (congestion, transport) =
                (start.congestion(Control::Reno), shared(start.transport()));
            let app = sim.add_workload_in_band(spec, congestion, transport, start.band());
            apps.push(app.map_err(&broken)?);
        }
        sim.run_until(end).map_err(&broken)?;
        sim.run_flows(end + PATIENCE).map_err(&broken)?;
        let mut done = Done {
            groups: vec![Vec::new(); apps.len()],
            drops: sim.counters().dropped,
            sent: sim.counters().sent,
            ..Done::default()
        };
        for (flow, view) in sim.flows().filter_map(|flow| Some((flow, sim.flow(flow)?))) {
            let group = apps.iter().position(|app| view.app == Some(*app));
            let Some(group) = group.and_then(|group| done.groups.get_mut(group)) else {
                continue;
            };
            if let Some(bytes) = view.bytes.filter(|_| counts.contains(&view.started)) {
                let took = view.finished.map(|at| at.since(view.started).as_nanos());
                group.push((bytes, took));
                done.retransmitted += view.retransmitted;
                done.timeouts += view.timeouts;
                if let Some((rc3, _)) = sim.rc3(flow) {
                    done.rc3_bytes += rc3.delivered_bytes;
                    done.stopped += u64::from(rc3.stopped.is_some());
                }
            }
        }
        Ok(done)
    }
}

impl Done {
    /// All flows, of all groups.
    pub fn all(&self) -> Vec<Flow> {
        self.groups.concat()
    }

    /// Those of one group.
    pub fn group(&self, group: usize) -> &[Flow] {
        self.groups.get(group).map_or(&[], Vec::as_slice)
    }
}

/// The flows that ended in both simulations: their bytes, and seconds in the one and in the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Both(Vec<(u64, f64, f64)>);

impl Both {
    /// Of the same flows in two simulations.
    pub fn of(before: &[Flow], after: &[Flow]) -> Both {
        let pairs = before.iter().zip(after);
        let ended = pairs.filter_map(|((bytes, before), (same, after))| {
            let seconds = |ns: u64| ns as f64 / 1e9;
            (bytes == same).then_some((*bytes, seconds((*before)?), seconds((*after)?)))
        });
        Both(ended.collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Those of sizes from so many bytes up to fewer than so many.
    pub fn between(&self, from: u64, to: u64) -> Both {
        Both(
            self.0
                .iter()
                .filter(|(bytes, ..)| (from..to).contains(bytes))
                .copied()
                .collect(),
        )
    }

    fn means(&self) -> (Means, Means) {
        let (mut before, mut after) = (Means::default(), Means::default());
        for (bytes, one, other) in &self.0 {
            before.add(1.0, *bytes as f64, *one);
            after.add(1.0, *bytes as f64, *other);
        }
        (before, after)
    }

    /// Mean seconds over flows, before and after.
    pub fn over_flows(&self) -> Option<(f64, f64)> {
        let (before, after) = self.means();
        before.over_flows().zip(after.over_flows())
    }

    /// The same over bytes.
    pub fn over_bytes(&self) -> Option<(f64, f64)> {
        let (before, after) = self.means();
        before.over_bytes().zip(after.over_bytes())
    }

    /// Percent by which the mean over flows is lower.
    pub fn saved(&self) -> Option<f64> {
        self.over_flows()
            .map(|(before, after)| reduction(before, after))
    }

    /// The same over bytes.
    pub fn saved_of_bytes(&self) -> Option<f64> {
        self.over_bytes()
            .map(|(before, after)| reduction(before, after))
    }

    /// Seconds that this share of the flows did not exceed, before and after.
    pub fn quantile(&self, share: f64) -> Option<(f64, f64)> {
        let of = |which: fn(&(u64, f64, f64)) -> f64| {
            Distribution::new(self.0.iter().map(which)).quantile(share)
        };
        of(|flow| flow.1).zip(of(|flow| flow.2))
    }

    /// Percent by which the mean of this size is lower, of one size after the other.
    pub fn by_size(&self) -> Vec<(u64, usize, Option<f64>)> {
        let mut sizes: Vec<u64> = self.0.iter().map(|(bytes, ..)| *bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let one = |bytes| {
            let of = self.between(bytes, bytes + 1);
            (bytes, of.len(), of.saved())
        };
        sizes.into_iter().map(one).collect()
    }
}

/// What was simulated.
pub(super) struct Results<'a>(pub Vec<(&'a Run, &'a Done)>);

impl Results<'_> {
    pub fn done(&self, run: Run) -> Option<&Done> {
        self.0
            .iter()
            .find(|(job, _)| **job == run)
            .map(|(_, done)| *done)
    }

    /// All its flows beside those of plain TCP.
    pub fn both(&self, run: Run) -> Both {
        match self.done(run.plain()).zip(self.done(run)) {
            Some((plain, done)) => Both::of(&plain.all(), &done.all()),
            None => Both::default(),
        }
    }

    /// The same of one group.
    pub fn both_of(&self, run: Run, group: usize) -> Both {
        match self.done(run.plain()).zip(self.done(run)) {
            Some((plain, done)) => Both::of(plain.group(group), done.group(group)),
            None => Both::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At a twentieth of the rate, so that a test is quick.
    fn run(start: Start) -> Run {
        Run {
            net: Net {
                access_mbit: 50,
                ..Net::BASE
            },
            ..Run::new(start, Duration::from_millis(1_000))
        }
    }

    #[test]
    fn the_same_flows_come_however_they_begin() {
        let (tcp, rc3) = (
            run(Start::Tcp).run().unwrap(),
            run(Start::Rc3).run().unwrap(),
        );
        let sizes = |done: &Done| done.all().iter().map(|flow| flow.0).collect::<Vec<_>>();
        assert_eq!(sizes(&tcp), sizes(&rc3));
        assert!(sizes(&tcp).len() > 1_000, "{}", sizes(&tcp).len());
        let both = Both::of(&tcp.all(), &rc3.all());
        assert_eq!(both.len(), sizes(&tcp).len());
        // Small flows have no second loop, and large ones are much faster with it.
        let small = both.between(0, 4 * PAYLOAD + 1).saved().unwrap();
        assert!((-2.0..10.0).contains(&small), "{small}");
        let large = |done: &Done| {
            let both = Both::of(&tcp.all(), &done.all());
            both.between(100_000, 500_000).saved().unwrap()
        };
        let blind = run(Start::Blind).run().unwrap();
        assert!(large(&blind) > 40.0, "{}", large(&blind));
        // On these slow links class 0 itself fills queues at times, which is taken for harm where
        // somebody watches.
        assert!(large(&rc3) > 35.0, "{}", large(&rc3));
        assert!(
            rc3.stopped > 0 && rc3.stopped * 40 < both.len() as u64,
            "{}",
            rc3.stopped
        );
        assert_eq!(run(Start::Rc3).run().unwrap(), rc3);
    }

    #[test]
    fn two_groups_are_told_apart_and_bring_the_load_together() {
        let mixed = Run {
            share: 30,
            starts: (Start::Rc3, Start::Tcp),
            ..run(Start::Rc3)
        };
        let (done, plain) = (mixed.run().unwrap(), mixed.plain().run().unwrap());
        assert_eq!(done.groups.len(), 2);
        let (first, second) = (done.group(0).len() as f64, done.group(1).len() as f64);
        assert!(
            (first / (first + second) - 0.3).abs() < 0.05,
            "{first} {second}"
        );
        let sizes = |flows: &[Flow]| flows.iter().map(|flow| flow.0).collect::<Vec<_>>();
        assert_eq!(sizes(done.group(1)), sizes(plain.group(1)));
    }

    #[test]
    fn the_eleven_sizes_are_atoms() {
        let table = Sizes::Eleven.table().unwrap();
        let mean = table.mean() / PAYLOAD as f64;
        assert!((mean - 107.5).abs() < 0.01, "{mean}");
        for (share, packets) in [
            (0.0, 1),
            (0.52, 1),
            (0.53, 2),
            (0.73, 3),
            (0.77, 5),
            (0.999, 2_107),
        ] {
            assert_eq!(table.quantile(share).get(), packets * PAYLOAD, "{share}");
        }
        let mean = Sizes::Continuous.table().unwrap().mean() / PAYLOAD as f64;
        assert!((mean - 78.6).abs() < 0.1, "{mean}");
    }
}
