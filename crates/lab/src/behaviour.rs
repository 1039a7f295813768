//! Behaviour of an algorithm alone on the standard link, per RTT: a table for comparison and a
//! chart for the documentation.
//!
//! The link is the one of CCP's evaluation (96 Mbit/s, 20 ms, a queue of one BDP). The tables are
//! test snapshots and the charts are files in `docs/algorithms`. Both are simulator output, so a
//! change of behaviour shows as a diff.

use std::sync::Arc;

use ccplane_agent::Agent;
use ccplane_algorithms::{Parameters, Registry};
use ccplane_datapath::Capabilities;
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_report::Table;
use ccplane_report::chart::{self, Axis, Chart, ChartSeries};
use ccplane_sim::{
    FlowControl, FlowSpec, LinkSpec, ProbeSpec, ProbeTarget, SimError, SimOptions, Simulation,
    SteerOptions, default_transport, topology,
};
use ccplane_units::{Duration, Rate, Time};

use crate::error::Error;
use crate::transport::switched_on;

/// Link of CCP's evaluation (papers/ccp-evaluation, figure 3).
const LINK_RATE: Rate = Rate::from_bits_per_sec(96_000_000);
const RTT: Duration = Duration::from_millis(20);
/// Time span of the window in that figure.
const RUN_DURATION: Duration = Duration::from_secs(15);
/// Number of rounds that the table lists one by one: slow start, its end and the following rounds.
/// Afterwards the table lists every tenth round.
const TABLE_ROUNDS_FULL: u64 = 60;
/// Marking threshold for algorithms that need ECN, packets. It exceeds C × RTT / 7 = 23 packets
/// (Alizadeh et al., SIGCOMM 2010, section 3.4). A smaller threshold lets the link run empty, a
/// larger one lengthens the queue.
const MARKING_THRESHOLD_PACKETS: u64 = 27;

/// One round: one base RTT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BehaviourRound {
    /// End of the round.
    pub at: Time,
    /// Congestion window at the end of the round, segments.
    pub cwnd: f64,
    /// Pacing rate at the end of the round; `None` without pacing.
    pub pacing_mbit: Option<f64>,
    /// Smoothed RTT at the end of the round; 0 before the first sample.
    pub srtt_ms: f64,
    /// Mean sojourn time at the bottleneck of packets that arrived in the round; `None` if none
    /// did.
    pub delay_ms: Option<f64>,
    /// Goodput of the round.
    pub goodput_mbit: f64,
    /// Packets dropped by the queue in the round.
    pub drops: u64,
    /// Packets marked by the queue in the round.
    pub marks: u64,
}

/// Runs the algorithm with default parameters for 15 s. Algorithms that need ECN get a queue that
/// marks.
pub fn alone(registry: &Registry, name: &str) -> Result<Vec<BehaviourRound>, Error> {
    let algorithm = registry.by_name(name, &Parameters::new())?;
    let wants = algorithm.requested_capabilities();
    let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
    agent.add_boxed(algorithm)?;
    simulate(agent, name, wants).map_err(|error| Error::Internal {
        contender: name.to_owned(),
        seed: SimOptions::default().seed,
        what: error.to_string(),
        repeat: format!("ccplane run --datapath sim --alg {name}"),
    })
}

fn simulate(
    agent: Agent,
    name: &str,
    wants: Capabilities,
) -> Result<Vec<BehaviourRound>, SimError> {
    let queue = if wants.contains(Capabilities::ECN) {
        QueueSpec::Ecn {
            threshold: Size::Packets(MARKING_THRESHOLD_PACKETS),
            limit: Size::MilliBdp(1_000),
        }
    } else {
        QueueSpec::ONE_BDP
    };
    let network = topology::dumbbell(
        1,
        &LinkSpec::wire(Duration::ZERO),
        LinkSpec::new(LINK_RATE, RTT / 2).with_queue(queue, RTT),
        LinkSpec::wire(RTT / 2),
    )?;
    let place = |what: &str| SimError::InvalidTopology(format!("the dumbbell has no {what}"));
    let from = network.find_node("left1").ok_or_else(|| place("left1"))?;
    let to = network.find_node("right1").ok_or_else(|| place("right1"))?;
    let link = network
        .find_link("bottleneck")
        .ok_or_else(|| place("bottleneck"))?;
    let transport = switched_on((*default_transport()).clone(), wants);
    let mss = f64::from(transport.mss);

    let mut sim = Simulation::new(network, SimOptions::default())?;
    let agent = sim.host_agent(agent, SteerOptions::default());
    let flow = FlowSpec::new(from, to)
        .with_congestion(FlowControl::Steered(agent, Arc::from(name)))
        .with_transport(Arc::new(transport));
    sim.add_flow(flow)?;
    let probe = sim.add_probe(ProbeSpec::new(RTT).link(link).flows(ProbeTarget::First(1)))?;
    sim.run_until(Time::ZERO + RUN_DURATION)?;
    let seen = sim.probe(probe).ok_or_else(|| place("probe"))?;
    let (Some(link), Some(flow)) = (seen.links().first(), seen.flows().first()) else {
        return Err(place("series"));
    };

    let grown = |column: &[u64], i: usize| {
        let before = i
            .checked_sub(1)
            .and_then(|i| column.get(i))
            .copied()
            .unwrap_or(0);
        column
            .get(i)
            .copied()
            .unwrap_or(before)
            .saturating_sub(before)
    };
    let of = |column: &[u64], i: usize| column.get(i).copied().unwrap_or(0);
    let round = |i: usize| {
        let accepted = grown(&link.accepted, i);
        let pacing = of(&flow.rate, i);
        BehaviourRound {
            at: Time::from_nanos(of(&link.time, i)),
            cwnd: of(&flow.cwnd, i) as f64 / mss,
            pacing_mbit: (pacing > 0).then(|| pacing as f64 * 8.0 / 1e6),
            srtt_ms: of(&flow.srtt, i) as f64 / 1e6,
            delay_ms: (accepted > 0)
                .then(|| grown(&link.sojourn_sum, i) as f64 / accepted as f64 / 1e6),
            goodput_mbit: grown(&flow.received, i) as f64 * 8.0 / RTT.as_secs_f64() / 1e6,
            drops: grown(&link.dropped, i),
            marks: grown(&link.marked, i),
        }
    };
    Ok((0..link.time.len()).map(round).collect())
}

/// Returns the table: the first 60 rounds one by one, then every tenth round with its state and the
/// drops, marks and mean goodput since the previous row.
pub fn rows(rounds: &[BehaviourRound]) -> String {
    let optional =
        |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
    let mut rows = Vec::new();
    let (mut drops, mut marks, mut goodput, mut since) = (0, 0, 0.0, 0);
    for (n, round) in (1..).zip(rounds) {
        (drops, marks) = (drops + round.drops, marks + round.marks);
        (goodput, since) = (goodput + round.goodput_mbit, since + 1);
        if n > TABLE_ROUNDS_FULL && n % 10 != 0 {
            continue;
        }
        rows.push(vec![
            format!("{:.2}", round.at.as_secs_f64()),
            format!("{:.1}", round.cwnd),
            optional(round.pacing_mbit),
            format!("{:.2}", round.srtt_ms),
            optional(round.delay_ms),
            format!("{:.2}", goodput / f64::from(since)),
            drops.to_string(),
            marks.to_string(),
        ]);
        (drops, marks, goodput, since) = (0, 0, 0.0, 0);
    }
    let headings = [
        "time\ns",
        "cwnd\nsegments",
        "pacing\nMbit/s",
        "srtt\nms",
        "delay\nms",
        "goodput\nMbit/s",
        "drops\npackets",
        "marks\npackets",
    ];
    Table::new(headings, rows).to_text()
}

/// Returns the chart: window and pacing rate over time, with the queueing delay below.
pub fn picture(name: &str, rounds: &[BehaviourRound]) -> String {
    let series = |value: fn(&BehaviourRound) -> Option<f64>| -> Vec<(f64, Option<f64>)> {
        rounds
            .iter()
            .map(|round| (round.at.as_secs_f64(), value(round)))
            .collect()
    };
    let line = |label: &str, colour: usize, points| ChartSeries {
        label: label.to_owned(),
        colour,
        points,
        ..ChartSeries::default()
    };
    let bdp = LINK_RATE.bytes_in(RTT).get() as f64 / 1_500.0;
    let seconds = || Axis::linear("time, s").with_range(0.0, RUN_DURATION.as_secs_f64());
    let paced = rounds.iter().any(|round| round.pacing_mbit.is_some());
    // A rate is drawn as the window that it fills in one RTT, so both share an axis.
    let as_window = |mbit: f64| mbit * 1e6 / 8.0 * RTT.as_secs_f64() / 1_500.0;
    let mut window = vec![line("window", 0, series(|round| Some(round.cwnd)))];
    if paced {
        let rate = rounds
            .iter()
            .map(|round| (round.at.as_secs_f64(), round.pacing_mbit.map(as_window)));
        window.push(line("pacing rate × 20 ms", 1, rate.collect()));
    }
    let top = rounds
        .iter()
        .map(|round| round.cwnd.max(round.pacing_mbit.map_or(0.0, as_window)))
        .fold(2.0 * bdp, f64::max);
    let charts = [
        Chart {
            title: format!("{name} alone on 96 Mbit/s, 20 ms: segments"),
            x: seconds(),
            // The axis ends at four BDP, so that an overshoot of slow start does not flatten the
            // rest.
            y: Axis::linear("").with_range(0.0, (top * 1.1).min(4.0 * bdp)),
            lines: window,
            guides: vec![
                (bdp, "BDP".to_owned()),
                (2.0 * bdp, "queue full".to_owned()),
            ],
        },
        Chart {
            title: "queueing delay, ms".to_owned(),
            x: seconds(),
            y: Axis::linear("").with_range(0.0, 22.0),
            lines: vec![line("", 2, series(|round| round.delay_ms))],
            guides: vec![(20.0, "queue full".to_owned())],
        },
    ];
    chart::standalone(
        &charts,
        &format!("{name}: window, pacing rate and queueing delay over 15 s on the standard link"),
    )
}
