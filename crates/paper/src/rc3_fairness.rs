//! What the reproduction of RC3 asked for: how do flows of different round trips and access rates
//! share what the lower classes carry at one bottleneck?
//!
//! Nothing in the second loop aims at fairness: within a class a router serves packets as they
//! come, and drops the last of the lowest class first. So who comes faster gets more, and the
//! levels keep short flows' bytes before long ones'.

use ccplane_algorithms::Registry;
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{
    FlowId, FlowSpec, LinkId, LinkSpec, LinkStep, Network, PacketEvent, SimError, SimOptions,
    Simulation, Tracer,
};
use ccplane_units::{Duration, Rate, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use serde::{Deserialize, Serialize};

use super::page::{Findings, cell};
use super::rc3_theory::reduction;
use super::rc3_who::{Control, Start, shared};
use super::simulations::{self, Job};
use super::{Datapath, Experiment, Options, Outcome};
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::{self, Distribution};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rc3-fairness",
    title: "How 2 to 100 flows with a second loop share a bottleneck",
    source: "asked for by Crognale and Wilson, CS244 2015, critique of their reproduction of RC3 (Mittal et al., NSDI 2014)",
    takes: "1 minute on two cores; 20 seconds with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: super::Run::Code(fairness),
};

/// The bottleneck, and its buffer: a round trip of 40 ms, as in the paper.
const GBIT: u64 = 1;
const BUFFER: u64 = 5_000_000;
/// Sizes of short and long flows: 137 packets reach into the second level, 13,699 into the fourth.
const SHORT: u64 = 200_020;
const LONG: u64 = 20_000_000;
/// Round trips and access rates where they differ.
const RTTS_MS: [u64; 5] = [10, 20, 50, 100, 200];
const ACCESS_MBIT: [u64; 3] = [10, 100, 1_000];
/// Where they do not.
const RTT_MS: u64 = 40;
/// Flows begin within this time.
const SPREAD_NS: u64 = 50_000_000;
/// Shares are counted from the beginning until the first long flow has ended, seen so often.
const LOOK: Duration = Duration::from_millis(5);
/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(600);
/// Classes: the ordinary one and four levels.
const CLASSES: usize = 5;
/// The stream of random numbers for start times.
const STREAM: u128 = 0x6661_6972;

/// Flows at one bottleneck: every other one is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    start: Start,
    flows: u64,
    /// Round trips and access rates differ.
    mixed: bool,
    seed: u64,
}

/// A flow, and what became of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Flow {
    bytes: u64,
    rtt_ms: u64,
    access_mbit: u64,
    /// From asking for the connection to the last byte, s.
    seconds: f64,
    /// What of each class came through the bottleneck in the counted time, bytes on the wire.
    through: [u64; CLASSES],
}

/// What was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Shared {
    flows: Vec<Flow>,
    /// In the whole run, of each class: payload that hosts sent, and what the bottleneck dropped
    /// and let through.
    sent: [u64; CLASSES],
    dropped: [u64; CLASSES],
    carried: [u64; CLASSES],
}

/// Counts data at the bottleneck and at the hosts' own links.
#[derive(Debug, Default)]
struct Count {
    bottleneck: Option<LinkId>,
    through: Vec<[u64; CLASSES]>,
    totals: Shared,
}

impl Tracer for Count {
    fn on_packet_event(&mut self, _now: Time, seen: &PacketEvent<'_>) {
        let (Some(flow), false) = (seen.flow, seen.backward || seen.segment.length == 0) else {
            return;
        };
        let class = usize::from(seen.segment.class).min(CLASSES - 1);
        let add = |counts: &mut [u64; CLASSES], bytes: u64| {
            if let Some(count) = counts.get_mut(class) {
                *count += bytes;
            }
        };
        let (payload, bytes) = (u64::from(seen.segment.length), u64::from(seen.bytes));
        match seen.step {
            LinkStep::Arrived if Some(seen.link) == self.bottleneck => {
                add(&mut self.totals.carried, payload);
                if let Some(through) = self.through.get_mut(flow.index()) {
                    add(through, bytes);
                }
            }
            LinkStep::Dropped(_) => add(&mut self.totals.dropped, payload),
            // A host's own link never drops: what comes there is what is sent.
            LinkStep::Queued
                if Some(seen.link) != self.bottleneck && self.is_first(seen.link, flow) =>
            {
                add(&mut self.totals.sent, payload);
            }
            _ => {}
        }
    }
}

impl Count {
    /// Hosts were made in the order of their flows, each with its four links: the first leads from
    /// the sender.
    fn is_first(&self, link: LinkId, flow: FlowId) -> bool {
        link.index() == 2 + 4 * flow.index()
    }
}

impl Share {
    /// Round trip and access rate of the `n`-th pair of flows, one of which is short and one long.
    fn path(self, n: u64) -> (u64, u64) {
        if !self.mixed {
            return (RTT_MS, GBIT * 1_000);
        }
        let pick = |all: &[u64], n: u64| {
            all.get((n % all.len() as u64) as usize)
                .copied()
                .unwrap_or(RTT_MS)
        };
        // Five and three have no common divisor: 15 pairs have all combinations.
        (pick(&RTTS_MS, n), pick(&ACCESS_MBIT, n + 2))
    }
}

impl Job for Share {
    type Result = Shared;

    fn name(&self) -> String {
        let mixed = if self.mixed { "mixed" } else { "alike" };
        format!("{}-{}-{mixed}-{}", self.start.key(), self.flows, self.seed)
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn run(&self) -> Result<Shared, Error> {
        let broken = simulations::broken(&self.name(), self.seed, EXPERIMENT.name);
        let limit = Size::Bytes(BUFFER);
        let (bands, shared_buffer) = (CLASSES as u8, true);
        let queue = QueueSpec::Prio {
            bands,
            shared: shared_buffer,
            limit,
        };
        let rate = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        let mut network = Network::new();
        let (left, right) = (network.add_switch("left"), network.add_switch("right"));
        let narrow = LinkSpec::new(rate(GBIT * 1_000), Duration::ZERO);
        let (bottleneck, _) = network.add_duplex_link(
            left,
            right,
            narrow
                .clone()
                .with_queue(queue, Duration::from_millis(RTT_MS)),
            narrow.clone(),
        );
        network.name_link(bottleneck, "bottleneck");
        let mut ends = Vec::new();
        for n in 0..self.flows {
            let (rtt, access) = self.path(n / 2);
            let (from, to) = (
                network.add_host(format!("from{n}")),
                network.add_host(format!("to{n}")),
            );
            let link = LinkSpec::new(rate(access), Duration::from_micros(rtt * 500));
            network.add_duplex_link(from, left, link.clone(), link);
            network.add_duplex_link(right, to, narrow.clone(), narrow.clone());
            ends.push((from, to, rtt, access));
        }
        let count = Count {
            bottleneck: Some(bottleneck),
            through: vec![[0; CLASSES]; ends.len()],
            totals: Shared::default(),
        };
        let mut sim = Simulation::with_tracer(network, SimOptions::seeded(self.seed), count)
            .map_err(&broken)?;
        let transport = shared(self.start.transport());
        let mut random = Pcg64::new(u128::from(self.seed), STREAM);
        let mut flows = Vec::new();
        for (n, (from, to, ..)) in ends.iter().enumerate() {
            let flow = FlowSpec::new(*from, *to)
                .with_bytes(if n % 2 == 0 { SHORT } else { LONG })
                .starting_at(Time::from_nanos(random.next_u64() % SPREAD_NS))
                .with_congestion(Control::Reno.congestion())
                .with_transport(transport.clone());
            flows.push(sim.add_flow(flow).map_err(&broken)?);
        }
        let mut now = Time::ZERO;
        let over = |sim: &Simulation<Count>| {
            let finished =
                |flow: &FlowId| sim.flow(*flow).is_some_and(|view| view.finished.is_some());
            flows.iter().skip(1).step_by(2).any(finished)
        };
        while !over(&sim) && now < Time::ZERO + PATIENCE {
            now += LOOK;
            sim.run_until(now).map_err(&broken)?;
        }
        let through = sim.tracer().through.clone();
        let ended = sim.run_flows(Time::ZERO + PATIENCE).map_err(&broken)?;
        if !ended {
            return Err(broken(SimError::InvalidTopology(
                "flows did not end within ten minutes".to_owned(),
            )));
        }
        let views = sim.flows().filter_map(|flow| sim.flow(flow));
        let tracer = sim.tracer();
        let flows = views
            .zip(&ends)
            .zip(&through)
            .filter_map(|((view, end), through)| {
                Some(Flow {
                    bytes: view.bytes?,
                    rtt_ms: end.2,
                    access_mbit: end.3,
                    seconds: view.finished?.since(view.started).as_secs_f64(),
                    through: *through,
                })
            });
        Ok(Shared {
            flows: flows.collect(),
            ..tracer.totals.clone()
        })
    }
}

impl Shared {
    /// Of flows of this size: Jain's index of what came through the bottleneck in these classes.
    fn jain(&self, bytes: u64, classes: std::ops::Range<usize>) -> Option<f64> {
        let own = self.flows.iter().filter(|flow| flow.bytes == bytes);
        let shares: Vec<f64> = own
            .map(|flow| {
                flow.through
                    .get(classes.clone())
                    .map_or(0, |all| all.iter().sum::<u64>()) as f64
            })
            .collect();
        metrics::jain(&shares)
    }

    /// Percent of the payload that was sent beyond the flows' own bytes: what came twice, or was
    /// dropped.
    fn waste(&self) -> f64 {
        let own: u64 = self.flows.iter().map(|flow| flow.bytes).sum();
        let sent: u64 = self.sent.iter().sum();
        100.0 * (sent as f64 / own.max(1) as f64 - 1.0)
    }

    /// Percent of the payload sent in lower classes that the bottleneck dropped.
    fn dropped(&self) -> f64 {
        let low = |counts: &[u64; CLASSES]| counts.iter().skip(1).sum::<u64>() as f64;
        100.0 * low(&self.dropped) / low(&self.sent).max(1.0)
    }

    /// Percent of what the bottleneck carried that was of this class.
    fn share(&self, class: usize) -> f64 {
        let all: u64 = self.carried.iter().sum();
        100.0 * self.carried.get(class).copied().unwrap_or(0) as f64 / all.max(1) as f64
    }

    fn mean_ms(&self, of: impl Fn(&Flow) -> bool) -> Option<f64> {
        let times = self
            .flows
            .iter()
            .filter(|flow| of(flow))
            .map(|flow| flow.seconds * 1e3);
        Distribution::new(times).mean()
    }
}

fn fairness(
    options: &Options,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let (counts, seeds) = match options.quick {
        true => (&[2, 10, 60][..], 1),
        false => (&[2, 10, 30, 60, 100][..], 5),
    };
    let points = counts
        .iter()
        .flat_map(|flows| [false, true].map(|mixed| (*flows, mixed)));
    let points = points
        .flat_map(|(flows, mixed)| [Start::Rc3, Start::Tcp].map(|start| (start, flows, mixed)));
    let jobs: Vec<Share> = points
        .flat_map(|(start, flows, mixed)| (1..=seeds).map(move |seed| (start, flows, mixed, seed)))
        .map(|(start, flows, mixed, seed)| Share {
            start,
            flows,
            mixed,
            seed,
        })
        .collect();
    let done = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    let results = Results(jobs.iter().zip(&done).collect());
    findings(&results, counts).finish(&EXPERIMENT, options)
}

struct Results<'a>(Vec<(&'a Share, &'a Shared)>);

impl Results<'_> {
    /// The mean over seeds.
    fn mean(
        &self,
        start: Start,
        flows: u64,
        mixed: bool,
        figure: impl Fn(&Shared) -> Option<f64>,
    ) -> Option<f64> {
        let meant = |job: &Share| (job.start, job.flows, job.mixed) == (start, flows, mixed);
        simulations::mean(&self.0, meant, figure)
    }
}

fn findings(results: &Results, counts: &[u64]) -> Findings {
    let mut findings = Findings::default();
    let most = counts.last().copied().unwrap_or(2);
    for (mixed, key, what) in [
        (
            true,
            "low_priority_jain",
            "round trips and access rates mixed",
        ),
        (false, "low_priority_jain_alike", "all paths alike"),
    ] {
        findings.compare(
            key,
            &format!(
                "Jain's index of the long flows' bytes of lower classes, {most} flows, {what}"
            ),
            results.mean(Start::Rc3, most, mixed, |shared| {
                shared.jain(LONG, 1..CLASSES)
            }),
            "",
            None,
        );
    }
    findings.figure(
        "low_priority_waste_pct",
        results.mean(Start::Rc3, most, true, |shared| Some(shared.waste())),
    );
    findings.figure(
        "low_priority_dropped_pct",
        results.mean(Start::Rc3, most, true, |shared| Some(shared.dropped())),
    );
    let cases = counts
        .iter()
        .flat_map(|flows| [false, true].map(|mixed| (*flows, mixed)));
    let rows = cases.map(|(flows, mixed)| {
        let mean = |start, figure: &dyn Fn(&Shared) -> Option<f64>| {
            results.mean(start, flows, mixed, figure)
        };
        let mut row = vec![
            flows.to_string(),
            if mixed { "mixed" } else { "alike" }.to_owned(),
        ];
        row.extend(
            (0..CLASSES)
                .map(|class| cell(mean(Start::Rc3, &|shared| Some(shared.share(class))), 1)),
        );
        row.push(cell(
            mean(Start::Rc3, &|shared| shared.jain(LONG, 1..CLASSES)),
            3,
        ));
        row.push(cell(mean(Start::Rc3, &|shared| shared.jain(LONG, 0..1)), 3));
        row.push(cell(
            mean(Start::Rc3, &|shared| shared.jain(SHORT, 0..CLASSES)),
            3,
        ));
        row.push(cell(mean(Start::Rc3, &|shared| Some(shared.waste())), 1));
        row.push(cell(mean(Start::Rc3, &|shared| Some(shared.dropped())), 1));
        for bytes in [SHORT, LONG] {
            for start in [Start::Tcp, Start::Rc3] {
                row.push(cell(
                    mean(start, &|shared| shared.mean_ms(|flow| flow.bytes == bytes)),
                    0,
                ));
            }
        }
        row
    });
    findings.table(
        "What the bottleneck carried by class, %; Jain's indices until the first long flow has ended; waste; what of classes 1 to 4 was dropped; completion times, ms",
        &[
            "flows",
            "paths",
            "class 0",
            "1",
            "2",
            "3",
            "4",
            "Jain, long\n1 to 4",
            "Jain, long\n0",
            "Jain, short\nall",
            "waste\n%",
            "dropped\n%",
            "short\nTCP",
            "short\nRC3",
            "long\nTCP",
            "long\nRC3",
        ],
        rows.collect(),
    );
    classes(&mut findings, results, most);
    findings.remark(
        "One flow a host, every other one of 200 KB and of 20 MB, all begin within 50 ms; a bottleneck of 1 Gbit/s with 5 MB shared \
         by five bands. Mixed: round trips of 10 to 200 ms and access rates of 10 Mbit/s to 1 Gbit/s in all combinations.",
    );
    findings.remark(
        "Waste is payload that hosts sent beyond the flows' own bytes, percent of those: dropped at the bottleneck or sent by both \
         loops. It takes no ordinary packet's place; it costs the hosts' links and the routers in front of the bottleneck.",
    );
    findings.deviation("The paper has no such experiment: there is no figure to compare with.");
    findings
}

/// Completion times by round trip and by access rate.
fn classes(findings: &mut Findings, results: &Results, flows: u64) {
    let by = |label: String, of: &dyn Fn(&Flow) -> bool| {
        let mut row = vec![label];
        for bytes in [SHORT, LONG] {
            let mean = |start| {
                results.mean(start, flows, true, |shared| {
                    shared.mean_ms(|flow| flow.bytes == bytes && of(flow))
                })
            };
            let (tcp, rc3) = (mean(Start::Tcp), mean(Start::Rc3));
            let saved = tcp.zip(rc3).map(|(tcp, rc3)| reduction(tcp, rc3));
            row.extend([cell(tcp, 0), cell(rc3, 0), cell(saved, 1)]);
        }
        row
    };
    let rtts = RTTS_MS
        .iter()
        .map(|ms| by(format!("{ms} ms"), &|flow| flow.rtt_ms == *ms));
    let rates = ACCESS_MBIT
        .iter()
        .map(|mbit| by(format!("{mbit} Mbit/s"), &|flow| flow.access_mbit == *mbit));
    findings.table(
        format!("{flows} flows, mixed: mean completion times by round trip and by access rate, ms"),
        &[
            "class",
            "short\nTCP",
            "short\nRC3",
            "saved\n%",
            "long\nTCP",
            "long\nRC3",
            "saved\n%",
        ],
        rtts.chain(rates).collect(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: Start, flows: u64, mixed: bool) -> Shared {
        let share = Share {
            start,
            flows,
            mixed,
            seed: 1,
        };
        share.run().unwrap()
    }

    #[test]
    fn plain_flows_send_nothing_below_and_hardly_anything_twice() {
        let shared = run(Start::Tcp, 2, false);
        assert_eq!(shared.share(0), 100.0);
        assert_eq!(shared.sent.iter().skip(1).sum::<u64>(), 0);
        assert!(shared.waste() < 1.0, "{}", shared.waste());
        // 20 MB at 1 Gbit/s take 164 ms; slow start takes more.
        let long = shared.mean_ms(|flow| flow.bytes == LONG).unwrap();
        assert!((500.0..1_000.0).contains(&long), "{long} ms");
    }

    #[test]
    fn flows_on_paths_alike_share_what_is_below() {
        let shared = run(Start::Rc3, 10, false);
        assert_eq!(shared.flows.len(), 10);
        let jain = shared.jain(LONG, 1..CLASSES).unwrap();
        assert!(jain > 0.6, "{jain}");
        let mixed = run(Start::Rc3, 10, true);
        let uneven = mixed.jain(LONG, 1..CLASSES).unwrap();
        assert!(uneven < jain, "{uneven}");
        let carried: u64 = shared.carried.iter().sum();
        let own: u64 = shared.flows.iter().map(|flow| flow.bytes).sum();
        assert!(carried >= own, "{carried} {own}");
    }
}
