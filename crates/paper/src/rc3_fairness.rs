//! Simulations of how flows with RC3's second loop share the lower classes of a bottleneck.
//! `papers/rc3/fairness.py` evaluates them. No scenario counts packets by class.

use std::sync::Arc;

use ccplane_algorithms::Registry;
use ccplane_lab::{Error, Progress};
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_sim::{
    FlowControl, FlowId, FlowSpec, LinkId, LinkSpec, LinkStep, Native, Network, PacketEvent,
    SimError, SimOptions, Simulation, Tracer, TransportConfig,
};
use ccplane_transport::Rc3;
use ccplane_units::{Duration, Rate, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use serde::{Deserialize, Serialize};

use super::program::{Program, Tables};
use super::simulations::{self, Job};
use super::{Datapath, Options, rc3_transport};

pub(super) const PROGRAM: Program = Program {
    script: "rc3/fairness",
    on: &[Datapath::Sim],
    repeats: None,
    measure,
};

/// Capacity of the bottleneck's queue: 1 Gbit/s times 40 ms, as in the paper.
const BUFFER_BYTES: u64 = 5_000_000;
const BOTTLENECK_MBIT: u64 = 1_000;
/// Short flows of 137 packets reach the second level, long ones of 13,699 packets the fourth.
const SHORT_BYTES: u64 = 200_020;
const LONG_BYTES: u64 = 20_000_000;
/// RTTs and access rates of mixed paths.
const RTTS_MS: [u64; 5] = [10, 20, 50, 100, 200];
const ACCESS_MBIT: [u64; 3] = [10, 100, 1_000];
/// RTT of equal paths.
const RTT_MS: u64 = 40;
/// Flows start within this time.
const SPREAD_NS: u64 = 50_000_000;
/// Interval of the checks for the end of the first long flow.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// A run that takes longer fails.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The ordinary class and the four levels of the second loop.
const CLASSES: usize = 5;
/// Stream of random numbers for start times.
const STREAM: u128 = 0x6661_6972;

/// Simulation of flows at one bottleneck. Every other flow is short.
#[derive(Clone, Copy, Debug)]
struct Run {
    rc3: bool,
    flows: u64,
    /// True if RTTs and access rates differ.
    mixed: bool,
    seed: u64,
}

/// Result of a flow, and row of the table of flows.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Flow {
    run: String,
    bytes: u64,
    rtt_ms: u64,
    access_mbit: u64,
    completion_ms: f64,
    /// Bytes of the ordinary class and of the lower ones that passed the bottleneck until the first
    /// long flow ended.
    ordinary_bytes: u64,
    lower_bytes: u64,
}

/// Payload of a class in the whole run, and row of the table of classes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ClassBytes {
    run: String,
    class: usize,
    /// Sent by hosts.
    sent_bytes: u64,
    /// Dropped by the bottleneck, and passed.
    dropped_bytes: u64,
    carried_bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Done {
    flows: Vec<Flow>,
    classes: Vec<ClassBytes>,
}

/// Row of the table of runs.
#[derive(Serialize)]
struct RunRow {
    run: String,
    start: &'static str,
    flows: u64,
    paths: &'static str,
}

fn measure(
    options: &Options,
    _: Datapath,
    _: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let (counts, seeds) = match options.quick {
        true => (&[2, 10, 60][..], 1),
        false => (&[2, 10, 30, 60, 100][..], 5),
    };
    let mut jobs = Vec::new();
    for &flows in counts {
        for (mixed, rc3) in [(false, true), (false, false), (true, true), (true, false)] {
            jobs.extend((1..=seeds).map(|seed| Run {
                rc3,
                flows,
                mixed,
                seed,
            }));
        }
    }
    let done = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    let runs: Vec<RunRow> = jobs.iter().map(Run::row).collect();
    let (flows, classes): (Vec<_>, Vec<_>) = done
        .into_iter()
        .map(|done| (done.flows, done.classes))
        .unzip();
    let mut tables = Tables::default();
    tables.add("runs", &runs)?;
    tables.add("flows", &flows.concat())?;
    tables.add("classes", &classes.concat())?;
    Ok(tables)
}

/// Tracer that counts data packets at the bottleneck and at the hosts' own links.
#[derive(Debug)]
struct Counters {
    bottleneck: LinkId,
    /// Bytes on the wire of each flow through the bottleneck, by class.
    flows: Vec<[u64; CLASSES]>,
    classes: [ClassBytes; CLASSES],
}

impl Tracer for Counters {
    fn on_packet_event(&mut self, _now: Time, event: &PacketEvent<'_>) {
        let (Some(flow), false) = (event.flow, event.backward || event.segment.length == 0) else {
            return;
        };
        let class = usize::from(event.segment.class).min(CLASSES - 1);
        let Some(counts) = self.classes.get_mut(class) else {
            return;
        };
        let payload = u64::from(event.segment.length);
        match event.step {
            LinkStep::Arrived if event.link == self.bottleneck => {
                counts.carried_bytes += payload;
                let through = self.flows.get_mut(flow.index());
                if let Some(bytes) = through.and_then(|classes| classes.get_mut(class)) {
                    *bytes += u64::from(event.bytes);
                }
            }
            LinkStep::Dropped(_) => counts.dropped_bytes += payload,
            // A host's own link never drops, so all packets that it queues are sent.
            LinkStep::Queued if is_own_link(event.link, flow) => counts.sent_bytes += payload,
            _ => {}
        }
    }
}

/// Returns true for the link from the sender of a flow. The two links of the bottleneck are the
/// first ones. Then each flow's hosts have four links, of which the first begins at the sender.
fn is_own_link(link: LinkId, flow: FlowId) -> bool {
    link.index() == 2 + 4 * flow.index()
}

impl Run {
    fn row(&self) -> RunRow {
        RunRow {
            run: self.name(),
            start: if self.rc3 { "rc3" } else { "tcp" },
            flows: self.flows,
            paths: if self.mixed { "mixed" } else { "alike" },
        }
    }

    /// Returns the RTT in ms and the access rate in Mbit/s of the `n`-th pair of flows, a short one
    /// and a long one.
    fn path(self, n: u64) -> (u64, u64) {
        let pick = |all: &[u64], n: u64| all.get((n % all.len() as u64) as usize).copied();
        // Five and three have no common divisor, so 15 pairs have all combinations.
        match (pick(&RTTS_MS, n), pick(&ACCESS_MBIT, n + 2)) {
            (Some(rtt), Some(rate)) if self.mixed => (rtt, rate),
            _ => (RTT_MS, BOTTLENECK_MBIT),
        }
    }

    fn transport(self) -> Arc<TransportConfig> {
        Arc::new(TransportConfig {
            rc3: self.rc3.then(Rc3::default),
            ..rc3_transport::tcp()
        })
    }
}

impl Job for Run {
    type Result = Done;

    fn name(&self) -> String {
        let (start, paths) = (
            if self.rc3 { "rc3" } else { "tcp" },
            if self.mixed { "mixed" } else { "alike" },
        );
        format!("{start}-{}-{paths}-{}", self.flows, self.seed)
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn run(&self) -> Result<Done, Error> {
        let failed = simulations::broken(&self.name(), self.seed, "rc3-fairness");
        let rate = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        let queue = QueueSpec::Prio {
            bands: CLASSES as u8,
            shared: true,
            limit: Size::Bytes(BUFFER_BYTES),
        };
        let mut network = Network::new();
        let (left, right) = (network.add_switch("left"), network.add_switch("right"));
        let fast = LinkSpec::new(rate(BOTTLENECK_MBIT), Duration::ZERO);
        let narrow = fast
            .clone()
            .with_queue(queue, Duration::from_millis(RTT_MS));
        let (bottleneck, _) = network.add_duplex_link(left, right, narrow, fast.clone());
        let mut hosts = Vec::new();
        for n in 0..self.flows {
            let (rtt_ms, access_mbit) = self.path(n / 2);
            let from = network.add_host(format!("from{n}"));
            let to = network.add_host(format!("to{n}"));
            let link = LinkSpec::new(rate(access_mbit), Duration::from_micros(rtt_ms * 500));
            network.add_duplex_link(from, left, link.clone(), link);
            network.add_duplex_link(right, to, fast.clone(), fast.clone());
            hosts.push((from, to));
        }
        let counters = Counters {
            bottleneck,
            flows: vec![[0; CLASSES]; hosts.len()],
            classes: Default::default(),
        };
        let mut sim = Simulation::with_tracer(network, SimOptions::seeded(self.seed), counters)
            .map_err(&failed)?;
        let mut random = Pcg64::new(u128::from(self.seed), STREAM);
        let mut flows = Vec::new();
        for (n, (from, to)) in hosts.into_iter().enumerate() {
            let flow = FlowSpec::new(from, to)
                .with_bytes(if n % 2 == 0 { SHORT_BYTES } else { LONG_BYTES })
                .starting_at(Time::from_nanos(random.next_u64() % SPREAD_NS))
                .with_congestion(FlowControl::Native(Native::new_reno()))
                .with_transport(self.transport());
            flows.push(sim.add_flow(flow).map_err(&failed)?);
        }
        let mut now = Time::ZERO;
        let ended = |sim: &Simulation<Counters>, flow: &FlowId| {
            sim.flow(*flow).is_some_and(|view| view.finished.is_some())
        };
        let long = flows.iter().skip(1).step_by(2);
        while !long.clone().any(|flow| ended(&sim, flow)) && now < Time::ZERO + TIMEOUT {
            now += CHECK_INTERVAL;
            sim.run_until(now).map_err(&failed)?;
        }
        let through = sim.tracer().flows.clone();
        if !sim.run_flows(Time::ZERO + TIMEOUT).map_err(&failed)? {
            let what = "flows did not end within ten minutes".to_owned();
            return Err(failed(SimError::InvalidTopology(what)));
        }
        let results = (0..)
            .zip(&flows)
            .zip(&through)
            .filter_map(|((n, flow), through)| {
                let (view, (rtt_ms, access_mbit)) = (sim.flow(*flow)?, self.path(n / 2));
                let [ordinary_bytes, lower @ ..] = through;
                Some(Flow {
                    run: self.name(),
                    bytes: view.bytes?,
                    rtt_ms,
                    access_mbit,
                    completion_ms: view.finished?.since(view.started).as_secs_f64() * 1e3,
                    ordinary_bytes: *ordinary_bytes,
                    lower_bytes: lower.iter().sum(),
                })
            });
        let mut classes = sim.tracer().classes.clone();
        for (class, counts) in classes.iter_mut().enumerate() {
            (counts.run, counts.class) = (self.name(), class);
        }
        Ok(Done {
            flows: results.collect(),
            classes: classes.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rc3: bool, flows: u64, mixed: bool) -> Done {
        let run = Run {
            rc3,
            flows,
            mixed,
            seed: 1,
        };
        run.run().unwrap()
    }

    #[test]
    fn plain_flows_use_the_ordinary_class_only() {
        let done = run(false, 2, false);
        let [ordinary, lower @ ..] = &done.classes[..] else {
            panic!("no classes");
        };
        assert!(lower.iter().all(|class| class.sent_bytes == 0));
        let own: u64 = done.flows.iter().map(|flow| flow.bytes).sum();
        assert!((own..own * 101 / 100).contains(&ordinary.sent_bytes));
        // 20 MB take 164 ms at 1 Gbit/s, and longer with slow start.
        let took = done.flows[1].completion_ms;
        assert!((500.0..1_000.0).contains(&took), "{took} ms");
    }

    #[test]
    fn flows_on_equal_paths_share_the_lower_classes() {
        let jain = |done: &Done| {
            let long = done.flows.iter().filter(|flow| flow.bytes == LONG_BYTES);
            let shares: Vec<f64> = long.map(|flow| flow.lower_bytes as f64).collect();
            ccplane_lab::metrics::jain(&shares).unwrap()
        };
        let done = run(true, 10, false);
        assert_eq!(done.flows.len(), 10);
        let (alike, mixed) = (jain(&done), jain(&run(true, 10, true)));
        assert!(alike > 0.6, "{alike}");
        assert!(mixed < alike, "{mixed}");
        let carried: u64 = done.classes.iter().map(|class| class.carried_bytes).sum();
        let own: u64 = done.flows.iter().map(|flow| flow.bytes).sum();
        assert!(carried >= own, "{carried} {own}");
    }
}
