//! Every signal that the transport passes to programs, compared with the simulation's ground truth:
//! packets sent, dropped, marked and received, and their times. The table in
//! `transport/src/control.rs` specifies the signals.
//!
//! The same packets are also passed to the path of a QUIC connection, which has to derive the same
//! signals, except where its own table differs.

#[path = "signals/quic.rs"]
mod quic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ccplane_agent::{Agent, AgentOptions, Algorithm, Control, Programs, Report};
use ccplane_qdisc::{DelayModel, Ecn, LossModel};
use ccplane_sim::{
    DataDirection, FlowControl, FlowSpec, LinkId, LinkSpec, LinkStep, LinkView, Network,
    NetworkChange, PacketEvent, SimOptions, Simulation, SteerOptions, Tracer, TransportConfig,
    default_transport,
};
use ccplane_transport::SegmentKind;
use ccplane_units::{Duration, Rate, Time};
use ccplane_wire::FlowInfo;

const MSS: u64 = 1448;

/// All signals. A program has room for 16 variables, so each half takes a run of its own.
const HALVES: [&[&str]; 2] = [
    &[
        "Ack.now",
        "Ack.bytes_acked",
        "Ack.bytes_misordered",
        "Ack.ecn_bytes",
        "Ack.ecn_packets",
        "Ack.lost_pkts_sample",
        "Ack.packets_acked",
        "Ack.packets_misordered",
        "Flow.bytes_in_flight",
        "Flow.bytes_pending",
        "Flow.packets_in_flight",
    ],
    &[
        "Ack.now",
        "Flow.rate_incoming",
        "Flow.rate_outgoing",
        "Flow.rtt_sample_us",
        "Flow.was_timeout",
        "Flow.srtt_us",
        "Flow.min_rtt_us",
        "Flow.mss",
        "Flow.app_limited",
        "Flow.in_recovery",
        "Flow.undone",
        "Flow.cwnd_limited",
        "Flow.paced",
    ],
];

/// Signals of one call, by name.
type Row = BTreeMap<&'static str, u64>;

/// Reports every call and keeps the window constant, in packets.
struct Watcher {
    fields: &'static [&'static str],
    window: u64,
    rows: Arc<Mutex<Vec<Row>>>,
}

impl Algorithm for Watcher {
    type Flow = ();

    fn name(&self) -> &str {
        "watcher"
    }

    fn programs(&self) -> Programs {
        let variables: String = (0..self.fields.len())
            .map(|n| format!("(volatile v{n} 0) "))
            .collect();
        let copies: String = self
            .fields
            .iter()
            .enumerate()
            .map(|(n, f)| format!("(:= Report.v{n} {f}) "))
            .collect();
        let window = self.window * MSS;
        let text =
            format!("(def (Report {variables})) (when true {copies} (:= Cwnd {window}) (report))");
        Programs::new().with("all", text)
    }

    fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("all", &[]);
    }

    fn on_report(&mut self, _flow: &mut (), report: &Report<'_>, _control: &mut Control<'_>) {
        let row = self
            .fields
            .iter()
            .copied()
            .zip(report.fields().iter().copied())
            .collect();
        self.rows.lock().unwrap().push(row);
    }
}

/// Event at one end of the path.
#[derive(Clone, Debug)]
enum Moment {
    /// The sender sends segment `number` for the n-th time.
    Sent { number: u32, transmission: u8 },
    /// The receiver gets it.
    Arrived { number: u32, transmission: u8 },
    /// The sender gets an ACK. `marks` is the number of CE marks seen by the receiver so far.
    Heard {
        ack: u32,
        sacked: Vec<(u32, u32)>,
        echo: (u32, u8),
        marks: u32,
    },
}

/// Events at both ends in order, and the number of data packets dropped.
#[derive(Default)]
struct Trace {
    moments: Vec<(Time, Moment)>,
    dropped: u64,
}

impl Tracer for Trace {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        let segment = seen.segment;
        let data = segment.kind == SegmentKind::Data && !seen.backward;
        match seen.step {
            // The first link belongs to the sender.
            LinkStep::Queued if data && seen.link.index() == 0 => self.moments.push((
                now,
                Moment::Sent {
                    number: segment.number.0,
                    transmission: segment.transmission,
                },
            )),
            LinkStep::Dropped(_) if data => self.dropped += 1,
            // The third link leads to the receiver.
            LinkStep::Arrived if data && seen.link.index() == 2 => self.moments.push((
                now,
                Moment::Arrived {
                    number: segment.number.0,
                    transmission: segment.transmission,
                },
            )),
            LinkStep::Arrived if seen.backward && seen.link.index() == 1 => {
                let ranges = seen.side.map_or(&[][..], |side| side.ranges());
                self.moments.push((
                    now,
                    Moment::Heard {
                        ack: segment.ack.0,
                        sacked: ranges
                            .iter()
                            .map(|range| (range.start.0, range.end.0))
                            .collect(),
                        echo: (segment.echo.0, segment.echo_transmission),
                        marks: segment.ce_packets,
                    },
                ));
            }
            _ => {}
        }
    }
}

/// Change of the path at a time in ms.
type PlannedChange = (u64, fn(LinkId) -> NetworkChange);

/// Path and transfer of a test.
struct Case {
    /// Bottleneck rate, Mbit/s; the base RTT is 40 ms.
    rate: u64,
    queue: &'static str,
    loss: LossModel,
    ecn: Ecn,
    /// Constant window, packets.
    window: u64,
    /// Length, packets; `None` for an unlimited transfer.
    length: Option<u64>,
    /// Packets written after 1 s.
    later: u64,
    /// Changes with their times in ms.
    changes: Vec<PlannedChange>,
    /// Duration, ms.
    until: u64,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            rate: 20,
            queue: "droptail:1000p",
            loss: LossModel::NONE,
            ecn: Ecn::NotEct,
            window: 60,
            length: None,
            later: 0,
            changes: Vec::new(),
            until: 5_000,
        }
    }
}

/// Result of a case: all signals at each call, and the ground truth.
struct Outcome {
    rows: Vec<Row>,
    moments: Vec<(Time, Moment)>,
    dropped: u64,
    link: LinkView,
}

const ONE_WAY_DELAY: Duration = Duration::from_millis(20);

/// RTT sample of the handshake: 40 ms plus the serialization of 52 bytes at 20 Mbit/s.
const HANDSHAKE_US: u64 = 40_020;

fn run(case: &Case) -> Outcome {
    let [(rows, sim, link), (more, again, _)] = HALVES.map(|fields| one(case, fields));
    assert_eq!(
        sim.digest(),
        again.digest(),
        "reading other signals changes nothing"
    );
    assert_eq!(rows.len(), more.len());
    let rows = rows.into_iter().zip(more).map(|(mut row, more)| {
        assert_eq!(row["Ack.now"], more["Ack.now"]);
        row.extend(more);
        row
    });
    let link = sim.link(link).unwrap();
    let Trace { moments, dropped } = sim.into_tracer();
    Outcome {
        rows: rows.collect(),
        moments,
        dropped,
        link,
    }
}

impl Outcome {
    /// Returns the signals of a QUIC connection's path for the same packets.
    fn over_quic(&self, case: &Case) -> Vec<Row> {
        quic::rows(case, &self.moments)
    }
}

fn one(case: &Case, fields: &'static [&'static str]) -> (Vec<Row>, Simulation<Trace>, LinkId) {
    let mut network = Network::new();
    let (sender, receiver) = (network.add_host("sender"), network.add_host("receiver"));
    let switch = network.add_switch("switch");
    let wire = LinkSpec::wire(Duration::ZERO);
    network.add_duplex_link(sender, switch, wire.clone(), wire);
    let forward = LinkSpec::new(
        Rate::from_bits_per_sec(case.rate * 1_000_000),
        ONE_WAY_DELAY,
    )
    .with_queue(case.queue.parse().unwrap(), ONE_WAY_DELAY * 2)
    .with_loss(case.loss);
    let (link, _) =
        network.add_duplex_link(switch, receiver, forward, LinkSpec::wire(ONE_WAY_DELAY));
    let mut sim =
        Simulation::with_tracer(network, SimOptions::default(), Trace::default()).unwrap();
    for (ms, change) in &case.changes {
        sim.schedule(Time::from_nanos(ms * 1_000_000), change(link))
            .unwrap();
    }
    let rows = Arc::default();
    let mut agent = Agent::new(AgentOptions::default());
    agent
        .add(Watcher {
            fields,
            window: case.window,
            rows: Arc::clone(&rows),
        })
        .unwrap();
    let options = SteerOptions {
        to_agent: Duration::ZERO,
        from_agent: Duration::ZERO,
        ..SteerOptions::default()
    };
    let agent = sim.host_agent(agent, options);
    let transport = TransportConfig {
        ecn: case.ecn,
        initial_window: case.window as u16,
        ..(*default_transport()).clone()
    };
    let spec = FlowSpec::new(sender, receiver)
        .with_congestion(FlowControl::Steered(agent, "watcher".into()))
        .with_transport(Arc::new(transport));
    let spec = FlowSpec {
        bytes: case.length.map(|packets| packets * MSS),
        finish: case.later == 0,
        ..spec
    };
    let flow = sim.add_flow(spec).unwrap();
    if case.later > 0 {
        sim.run_until(Time::from_nanos(1_000_000_000)).unwrap();
        assert!(sim.write(flow, DataDirection::Forward, case.later * MSS, true));
    }
    sim.run_until(Time::from_nanos(case.until * 1_000_000))
        .unwrap();
    let rows = std::mem::take(&mut *rows.lock().unwrap());
    (rows, sim, link)
}

/// Sender's state reconstructed from sent packets and received ACKs.
#[derive(Default)]
struct Model {
    /// Last transmission time and transmission count per segment.
    sent: BTreeMap<u32, (Time, u8)>,
    una: u32,
    next: u32,
    sacked: BTreeSet<u32>,
    /// Retransmissions.
    repeated: u64,
    /// Segments reported lost.
    lost: u64,
    /// Recovery lasts until everything before this number is acknowledged.
    repair_until: Option<u32>,
}

/// Compares counts, times and packets in flight at every ACK of a transfer with 1 % loss.
#[test]
fn every_ack_is_reported_exactly() {
    let outcome = run(&Case {
        loss: "1%".parse().unwrap(),
        ..Case::default()
    });
    let mut rows = outcome.rows.iter();
    let mut model = Model::default();
    let (mut checked, mut least) = (0, HANDSHAKE_US);
    for (now, moment) in &outcome.moments {
        match moment {
            Moment::Sent {
                number,
                transmission,
            } => {
                model.sent.insert(*number, (*now, *transmission));
                model.next = model.next.max(number + 1);
                model.repeated += u64::from(*transmission > 1);
            }
            Moment::Arrived { .. } => {}
            Moment::Heard {
                ack, sacked, echo, ..
            } => {
                let (una, before) = (model.una, model.sacked.clone());
                let covered: Vec<u32> = (una..(*ack).max(una))
                    .filter(|n| !before.contains(n))
                    .collect();
                model.una = una.max(*ack);
                model
                    .sacked
                    .extend(sacked.iter().flat_map(|(start, end)| *start..*end));
                model.sacked.retain(|n| *n >= model.una);
                let fresh: Vec<u32> = model.sacked.difference(&before).copied().collect();
                if covered.is_empty() && fresh.is_empty() && model.una == una {
                    continue;
                }
                let row = rows.next().expect("one call per ACK with new information");
                let us = |time: Time| time.as_nanos() / 1000;
                assert_eq!(row["Ack.now"], us(*now));
                let is = |name: &str, value: u64| {
                    assert_eq!(row[name], value, "{name} at {now:?}: {row:?}")
                };
                is("Ack.bytes_acked", u64::from(model.una - una) * MSS);
                is("Ack.packets_acked", covered.len() as u64);
                is("Ack.packets_misordered", fresh.len() as u64);
                is("Ack.bytes_misordered", fresh.len() as u64 * MSS);
                // Packets known to be lost and not retransmitted yet are not in flight.
                let lost = row["Ack.lost_pkts_sample"];
                model.lost += lost;
                let outstanding = u64::from(model.next - model.una) - model.sacked.len() as u64;
                let flying = outstanding - (model.lost - model.repeated);
                is("Flow.packets_in_flight", flying);
                is("Flow.bytes_in_flight", flying * MSS);
                // Newly delivered segment that was sent last, if the transmission that arrived is
                // known.
                let latest = covered
                    .iter()
                    .chain(&fresh)
                    .map(|n| (model.sent[n].0, *n))
                    .max();
                let sample = latest.and_then(|(at, n)| {
                    let transmission = model.sent[&n].1;
                    (transmission == 1 || *echo == (n, transmission))
                        .then(|| now.since(at).as_nanos() / 1000)
                });
                is("Flow.rtt_sample_us", sample.unwrap_or(u64::from(u32::MAX)));
                least = least.min(sample.unwrap_or(u64::MAX));
                is("Flow.min_rtt_us", least);
                is("Flow.mss", MSS);
                is("Flow.was_timeout", 0);
                is("Flow.undone", 0);
                is("Flow.app_limited", 0);
                if model.repair_until.is_some_and(|high| model.una >= high) {
                    model.repair_until = None;
                }
                if lost > 0 && model.repair_until.is_none() {
                    model.repair_until = Some(model.next);
                }
                is("Flow.in_recovery", u64::from(model.repair_until.is_some()));
                checked += 1;
            }
        }
    }
    assert_eq!(rows.next(), None);
    assert!(
        checked > 1_000 && model.lost > 20,
        "{checked} calls, {} losses",
        model.lost
    );
    // Losses of the last RTT are not detected yet.
    assert!(
        (outcome.dropped - 3..=outcome.dropped).contains(&model.lost),
        "{} of {}",
        model.lost,
        outcome.dropped
    );
}

/// Both report the same for an ACK that both report, with three exceptions. A path's left edge does
/// not wait for lost packets, so until a loss is repaired its in-order and misordered counts
/// differ; its recovery ends sooner; and for a retransmitted segment it identifies the transmission
/// that arrived.
#[test]
fn quic_signals_match_the_reference_at_every_ack() {
    let case = Case {
        loss: "1%".parse().unwrap(),
        ..Case::default()
    };
    let outcome = run(&case);
    let path: BTreeMap<u64, Row> = outcome
        .over_quic(&case)
        .into_iter()
        .map(|row| (row["Ack.now"], row))
        .collect();
    // Losses detected by a timer are reported in separate calls.
    let mut losses = path
        .values()
        .map(|row| (row["Ack.now"], row["Ack.lost_pkts_sample"]))
        .peekable();
    let (mut theirs_lost, mut ours_lost) = (0u64, 0u64);
    let (mut whole, mut flights, mut samples, mut rates) = (0, 0, 0, 0);
    let (mut recoveries, mut bytes) = ([(false, 0u64); 2], [0u64; 2]);
    for row in &outcome.rows {
        let now = row["Ack.now"];
        let Some(own) = path.get(&now) else {
            panic!("a call without information at {now}: {row:?}")
        };
        theirs_lost += row["Ack.lost_pkts_sample"];
        while let Some((_, lost)) = losses.next_if(|(at, _)| *at <= now) {
            ours_lost += lost;
        }
        let sum = |row: &Row, names: [&str; 2]| names.iter().map(|name| row[name]).sum::<u64>();
        let packets = ["Ack.packets_acked", "Ack.packets_misordered"];
        assert_eq!(sum(own, packets), sum(row, packets), "{row:?}, {own:?}");
        let is = |name: &str| assert_eq!(own[name], row[name], "{name}: {row:?}, {own:?}");
        [
            "Flow.mss",
            "Flow.was_timeout",
            "Flow.undone",
            "Flow.app_limited",
        ]
        .into_iter()
        .for_each(is);
        if row["Flow.rtt_sample_us"] != u64::from(u32::MAX) {
            is("Flow.rtt_sample_us");
            samples += 1;
        }
        let calm = row["Flow.in_recovery"] == 0 && own["Flow.in_recovery"] == 0;
        for (sum, row) in bytes.iter_mut().zip([row, own]) {
            *sum += row["Ack.bytes_acked"];
        }
        // The call that ends recovery reports everything beyond the repaired loss.
        let was_calm = recoveries.iter().all(|(repairing, _)| !repairing);
        if calm && was_calm && theirs_lost == ours_lost {
            [
                "Ack.packets_acked",
                "Ack.bytes_acked",
                "Ack.packets_misordered",
            ]
            .into_iter()
            .for_each(is);
            whole += 1;
        }
        if theirs_lost == ours_lost {
            ["Flow.packets_in_flight", "Flow.bytes_in_flight"]
                .into_iter()
                .for_each(is);
            flights += 1;
        }
        if calm && row["Flow.rate_incoming"] > 0 && own["Flow.rate_incoming"] > 0 {
            for name in ["Flow.rate_incoming", "Flow.rate_outgoing", "Flow.srtt_us"] {
                assert!(
                    own[name].abs_diff(row[name]) <= row[name] / 50,
                    "{name}: {row:?}, {own:?}"
                );
            }
            rates += 1;
        }
        assert!(
            own["Flow.min_rtt_us"] <= row["Flow.min_rtt_us"],
            "{row:?}, {own:?}"
        );
        for ((was, count), row) in recoveries.iter_mut().zip([row, own]) {
            let is = row["Flow.in_recovery"] == 1;
            *count += u64::from(is && !*was);
            *was = is;
        }
    }
    println!(
        "{whole} whole, {flights} flights, {samples} samples, {rates} rates of {}",
        outcome.rows.len()
    );
    assert!(whole > 500 && flights > 1_000 && samples > 1_000 && rates > 500);
    assert!(
        theirs_lost.abs_diff(ours_lost) <= 3,
        "{theirs_lost}, {ours_lost}"
    );
    assert!(
        bytes[0].abs_diff(bytes[1]) <= case.window * MSS,
        "{bytes:?} acknowledged"
    );
    let [(_, theirs), (_, ours)] = recoveries;
    assert!(ours >= theirs && theirs > 10, "{theirs} reductions, {ours}");
}

/// With a window larger than the BDP, the bottleneck determines the rate, and the window the queue.
#[test]
fn rates_and_round_trips_are_those_of_a_full_bottleneck() {
    let case = Case {
        window: 100,
        ..Case::default()
    };
    let outcome = run(&case);
    let payload = 20e6 / 8.0 * MSS as f64 / 1500.0;
    // 100 packets of 1500 bytes at 20 Mbit/s.
    let round_trip = 60_000.0;
    let near = |row: &Row, name: &str, expected: f64, percent: f64| {
        let off = (row[name] as f64 / expected - 1.0).abs() * 100.0;
        assert!(
            off <= percent,
            "{name}: {} instead of {expected}",
            row[name]
        );
    };
    for (rows, paced) in [(&outcome.rows, 0), (&outcome.over_quic(&case), 1)] {
        let late = rows.iter().filter(|row| row["Ack.now"] > 1_000_000);
        let mut calls = 0;
        for row in late {
            near(row, "Flow.rate_incoming", payload, 1.5);
            near(row, "Flow.rate_outgoing", payload, 1.5);
            near(row, "Flow.srtt_us", round_trip, 2.0);
            near(row, "Flow.rtt_sample_us", round_trip, 2.0);
            near(row, "Flow.min_rtt_us", HANDSHAKE_US as f64, 0.01);
            assert_eq!((row["Flow.cwnd_limited"], row["Flow.app_limited"]), (1, 0));
            assert_eq!(row["Flow.paced"], paced);
            calls += 1;
        }
        assert!(calls > 1_000, "{calls}");
    }
}

/// Less data than the window allows, and more data later.
#[test]
fn application_limits_are_reported() {
    let (length, later) = (40, 20);
    let case = Case {
        window: 100,
        length: Some(length),
        later,
        ..Case::default()
    };
    let outcome = run(&case);
    for (rows, is_quic) in [(&outcome.rows, false), (&outcome.over_quic(&case), true)] {
        let mut acked = 0;
        for row in rows {
            acked += row["Ack.bytes_acked"];
            let more = row["Ack.now"] > 1_000_000;
            let written = if more { length + later } else { length };
            // A QUIC stack does not report unsent data, so the signal equals the bytes in flight.
            let pending = if is_quic {
                row["Flow.bytes_in_flight"]
            } else {
                written * MSS - acked
            };
            assert_eq!(row["Flow.bytes_pending"], pending);
            assert_eq!(row["Flow.cwnd_limited"], 0, "{row:?}");
            // The first packets were sent before the application ran out of data, the later ones
            // after it.
            assert_eq!(row["Flow.app_limited"], u64::from(more), "{row:?}");
        }
        assert_eq!(acked, (length + later) * MSS);
    }
}

/// Every CE mark is counted exactly once.
#[test]
fn every_mark_is_reported_once() {
    let case = Case {
        queue: "ecn:20p",
        ecn: Ecn::Ect0,
        window: 100,
        length: Some(2_000),
        ..Case::default()
    };
    let outcome = run(&case);
    assert!(outcome.link.marked > 100, "{}", outcome.link.marked);
    for rows in [&outcome.rows, &outcome.over_quic(&case)] {
        let sum = |name: &str| rows.iter().map(|row| row[name]).sum::<u64>();
        assert_eq!(sum("Ack.ecn_packets"), outcome.link.marked);
        assert_eq!(sum("Ack.ecn_bytes"), outcome.link.marked * MSS);
        assert_eq!(sum("Ack.lost_pkts_sample"), 0);
    }
}

/// An outage of a second causes one or more timeouts; a delay that grows by a second causes a
/// spurious one.
#[test]
fn spurious_timeouts_are_reported_and_undone() {
    let outage: Vec<PlannedChange> = vec![(2_000, NetworkChange::Down), (3_000, NetworkChange::Up)];
    let case = Case {
        changes: outage,
        ..Case::default()
    };
    let outcome = run(&case);
    let sum = |rows: &[Row], name: &str| rows.iter().map(|row| row[name]).sum::<u64>();
    let timeouts = sum(&outcome.rows, "Flow.was_timeout");
    assert!((2..=4).contains(&timeouts), "{timeouts}");
    assert_eq!(sum(&outcome.rows, "Flow.undone"), 0);
    // A QUIC stack reports persistent congestion once instead of probe timeouts.
    let path = outcome.over_quic(&case);
    assert_eq!(
        (sum(&path, "Flow.was_timeout"), sum(&path, "Flow.undone")),
        (1, 0)
    );

    let longer: Vec<PlannedChange> = vec![(2_000, |link| {
        NetworkChange::Delay(
            link,
            DelayModel::Fixed(ONE_WAY_DELAY + Duration::from_secs(1)),
        )
    })];
    let case = Case {
        changes: longer,
        ..Case::default()
    };
    let outcome = run(&case);
    assert!(sum(&outcome.rows, "Flow.was_timeout") >= 1);
    assert_eq!(sum(&outcome.rows, "Flow.undone"), 1);
    assert_eq!(outcome.dropped, 0);
    // Without an ACK the stack declares no losses, so there is nothing to undo.
    let path = outcome.over_quic(&case);
    let told =
        ["Ack.lost_pkts_sample", "Flow.was_timeout", "Flow.undone"].map(|name| sum(&path, name));
    assert_eq!(told, [0, 0, 0]);
}
