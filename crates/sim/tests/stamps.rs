//! Timestamp noise: it follows its distribution, changes no schedule, and is deterministic per
//! seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccplane_datapath::{ExchangeStamps, OneWay};
use ccplane_qdisc::LineSpec;
use ccplane_sim::{
    FlowSpec, JitterShape, LinkSpec, LinkStep, Network, NetworkError, PacketEvent, SimError,
    SimOptions, Simulation, StampModel, Tracer, TransportConfig, default_transport,
};
use ccplane_transport::SegmentKind;
use ccplane_units::stats::{mean_and_variance, nearest_rank};
use ccplane_units::{Duration, Rate, Time};

/// Timestamps of every data packet with the true times, by packet number, and every exchange as
/// seen by its sender.
#[derive(Default)]
struct StampLog {
    sent: BTreeMap<u32, u64>,
    /// (t1, true t1, t2, true t2)
    data: Vec<[u64; 4]>,
    last_arrival: Option<(u32, u64)>,
    moves: u64,
    /// ACKs as they arrive, with the timestamps of the exchange.
    answers: Vec<(Time, ExchangeStamps)>,
}

impl Tracer for StampLog {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        self.moves = self
            .moves
            .wrapping_mul(31)
            .wrapping_add(now.as_nanos() ^ u64::from(seen.link.index() as u32));
        let (Some(side), segment) = (seen.side.filter(|side| side.stamped), seen.segment) else {
            return;
        };
        let first = seen.link.index() == 0 && !seen.backward;
        match (seen.step, segment.kind) {
            (LinkStep::Queued, SegmentKind::Data) if first => {
                self.sent.insert(segment.number.0, now.as_nanos());
            }
            (LinkStep::Arrived, SegmentKind::Data) if !first => {
                self.last_arrival = Some((segment.number.0, now.as_nanos()))
            }
            (LinkStep::Queued, SegmentKind::Ack) if seen.link.index() == 2 => {
                // The ACK echoes the last arrival.
                let Some((number, arrived)) = self.last_arrival else {
                    return;
                };
                let Some(sent) = self.sent.get(&number) else {
                    return;
                };
                self.data
                    .push([side.t1.as_nanos(), *sent, side.t2.as_nanos(), arrived]);
            }
            (LinkStep::Arrived, SegmentKind::Ack) if seen.link.index() == 3 => {
                let (t1, t2, t3) = (side.t1, side.t2, side.t3);
                self.answers.push((
                    now,
                    ExchangeStamps {
                        t1,
                        t2,
                        t3,
                        t4: now,
                    },
                ));
            }
            _ => {}
        }
    }
}

/// A sender and a receiver on either side of a switch, links of 1 Gbit/s and 10 µs: 20 ms of Cubic
/// with timestamps in every packet, paced at 200 Mbit/s or unpaced.
fn run(
    seed: u64,
    sender: Option<StampModel>,
    receiver: Option<StampModel>,
    paced: bool,
) -> Simulation<StampLog> {
    run_from(1_000_000_000, seed, [sender, receiver], paced)
}

/// Runs [`run`]'s scenario with `access`, the rate of the sender's own link in bit/s.
fn run_from(
    access: u64,
    seed: u64,
    models: [Option<StampModel>; 2],
    paced: bool,
) -> Simulation<StampLog> {
    let mut network = Network::new();
    let (a, switch, b) = (
        network.add_host("a"),
        network.add_switch("switch"),
        network.add_host("b"),
    );
    let link = LinkSpec::new(
        Rate::from_bits_per_sec(1_000_000_000),
        Duration::from_micros(10),
    );
    for (from, to) in [(a, switch), (switch, b), (b, switch), (switch, a)] {
        network.add_link(from, to, link.clone());
    }
    let first = network
        .links()
        .next()
        .and_then(|link| network.spec_mut(link))
        .expect("the first of four links");
    first.line = LineSpec::Constant(Rate::from_bits_per_sec(access));
    let mut sim = Simulation::with_tracer(network, SimOptions::seeded(seed), StampLog::default())
        .expect("valid");
    for (host, model) in [a, b].into_iter().zip(models) {
        if let Some(model) = model {
            sim.set_stamps(host, model).expect("a host");
        }
    }
    let config = (*default_transport()).clone().stamped();
    let transport = Arc::new(TransportConfig {
        max_rate: paced.then(|| Rate::from_bits_per_sec(200_000_000)),
        ..config
    });
    sim.add_flow(FlowSpec::new(a, b).with_transport(transport))
        .expect("a valid flow");
    sim.run_until(Time::from_micros(20_000))
        .expect("the run succeeds");
    sim
}

fn model() -> StampModel {
    StampModel::EXACT
}

fn quantile(mut values: Vec<i64>, p: f64) -> f64 {
    values.sort_unstable();
    nearest_rank(&values, p).expect("values") as f64
}

#[test]
fn an_exact_model_is_none_and_noise_moves_nothing() {
    let plain = run(1, None, None, false);
    assert!(plain.tracer().data.len() > 1_000);
    assert!(
        plain
            .tracer()
            .data
            .iter()
            .all(|[t1, sent, t2, arrived]| t1 == sent && t2 == arrived)
    );
    let exact = run(1, Some(model()), Some(model()), false);
    assert_eq!(
        (&exact.tracer().data, exact.tracer().moves),
        (&plain.tracer().data, plain.tracer().moves)
    );
    let noisy = StampModel {
        jitter: Duration::from_micros(50),
        batch: Duration::from_micros(30),
        offset_ns: -7_000_000_000,
        drift_ppb: 90_000,
        calibrate: true,
        ..model()
    };
    let noisy = run(1, Some(noisy), Some(noisy), false);
    assert_eq!(noisy.tracer().moves, plain.tracer().moves);
    assert_ne!(noisy.tracer().data, plain.tracer().data);
}

#[test]
fn the_same_seed_makes_the_same_noise() {
    let noise = StampModel {
        jitter: Duration::from_micros(5),
        ..model()
    };
    let stamps = |seed| run(seed, Some(noise), Some(noise), true).into_tracer().data;
    assert_eq!(stamps(1), stamps(1));
    assert_ne!(stamps(1), stamps(2));
    // Each endpoint has its own random numbers.
    let only = run(1, None, Some(noise), true).into_tracer().data;
    let both = stamps(1);
    assert!(
        only.iter()
            .zip(&both)
            .all(|(only, both)| only[2] == both[2] && only[0] == only[1])
    );
}

/// Departure timestamps are early and arrival timestamps late, by the distribution.
#[test]
fn jitter_is_distributed_as_described() {
    let jitter = Duration::from_micros(5);
    let noise = StampModel { jitter, ..model() };
    let data = run(3, Some(noise), Some(noise), true).into_tracer().data;
    let early: Vec<i64> = data
        .iter()
        .map(|[t1, sent, ..]| *sent as i64 - *t1 as i64)
        .collect();
    let late: Vec<i64> = data
        .iter()
        .map(|[.., t2, arrived]| *t2 as i64 - *arrived as i64)
        .collect();
    for errors in [early, late] {
        assert!(errors.iter().all(|error| *error >= 0), "{errors:?}");
        let (p50, p99) = (
            quantile(errors.clone(), 0.5),
            quantile(errors.clone(), 0.99),
        );
        assert!((p50 / 5_000.0 - 0.69).abs() < 0.15, "{p50}");
        assert!((p99 / 5_000.0 - 4.6).abs() < 1.5, "{p99}");
    }
    let normal = StampModel {
        shape: JitterShape::Normal,
        ..noise
    };
    let data = run(3, Some(normal), None, true).into_tracer().data;
    let errors: Vec<i64> = data
        .iter()
        .map(|[t1, sent, ..]| *sent as i64 - *t1 as i64)
        .collect();
    let n = errors.len();
    let errors: Vec<f64> = errors.into_iter().map(|error| error as f64).collect();
    let (mean, variance) = mean_and_variance(&errors).expect("errors");
    let deviation = variance.sqrt();
    assert!(
        n > 300 && mean.abs() < 1_000.0 && (deviation / 5_000.0 - 1.0).abs() < 0.15,
        "{n} {mean} {deviation}"
    );
}

/// A batch shares one timestamp: its start when sent, its end when received. With calibration,
/// packets at line rate keep their spacing to within a thousandth.
#[test]
fn batches_share_a_stamp_and_calibration_takes_them_apart() {
    let batch = Duration::from_micros(100);
    let raw = StampModel { batch, ..model() };
    let data = run(1, Some(raw), Some(raw), false).into_tracer().data;
    let busy = |data: &[[u64; 4]]| data[data.len() / 2..].to_vec();
    for [t1, sent, t2, arrived] in busy(&data) {
        assert!(t1 <= sent && sent - t1 < 100_000, "{t1} {sent}");
        assert!(t2 >= arrived && t2 - arrived <= 100_000, "{t2} {arrived}");
    }
    let distinct = |n: usize| {
        busy(&data)
            .windows(2)
            .filter(|w| w[0][n] != w[1][n])
            .count()
    };
    assert!(distinct(0) * 5 < busy(&data).len() && distinct(2) * 5 < busy(&data).len());
    let calibrated = StampModel {
        calibrate: true,
        ..raw
    };
    let data = run(1, Some(calibrated), Some(calibrated), false)
        .into_tracer()
        .data;
    // 1,500 bytes take 12 µs.
    for w in busy(&data).windows(2) {
        let error = |n: usize, truth: usize| {
            (w[1][n] as i64 - w[0][n] as i64).abs_diff(w[1][truth] as i64 - w[0][truth] as i64)
        };
        assert!(error(0, 1) <= 12_100, "{w:?}");
        assert!(error(2, 3) <= 12_100, "{w:?}");
    }
    let mean = |data: &[[u64; 4]], n: usize, truth: usize| {
        let errors: Vec<i64> = busy(data)
            .iter()
            .map(|row| row[n] as i64 - row[truth] as i64)
            .collect();
        quantile(errors.clone(), 0.99) - quantile(errors, 0.01)
    };
    assert!(mean(&data, 2, 3) < 15_000.0, "{}", mean(&data, 2, 3));
}

/// Clocks with a large offset and drift: timestamps are off by seconds, but the queueing delay only
/// by the drift over the age of the minimum.
#[test]
fn offset_and_drift_leave_the_queueing_delay() {
    let queues = |sender: Option<StampModel>, receiver: Option<StampModel>| {
        let sim = run_from(10_000_000_000, 1, [sender, receiver], false);
        let mut one_way = OneWay::default();
        let mut queues = Vec::new();
        for (now, answer) in &sim.tracer().answers {
            // Without a model at the sender, as here, t4 is exact.
            assert!(one_way.sample(*now, answer));
            queues.push(
                one_way
                    .queue_delay(*now, Duration::ZERO)
                    .expect("fresh")
                    .as_nanos() as i64,
            );
        }
        assert_eq!(one_way.dropped(), 0);
        queues
    };
    let truth = queues(None, None);
    assert!(truth.len() > 1_000 && truth.iter().max() > Some(&1_000_000));
    for (offset_ns, drift_ppb) in [
        (3_000_000_000, 0),
        (-3_000_000_000, 0),
        (1 << 60, 50_000),
        (-5, -50_000),
    ] {
        let clock = StampModel {
            offset_ns,
            drift_ppb,
            ..model()
        };
        let measured = queues(None, Some(clock));
        // 20 ms at 50 ppm are 1 µs.
        let most = if drift_ppb == 0 { 0 } else { 1_000 };
        let worst = measured
            .iter()
            .zip(&truth)
            .map(|(m, t)| (m - t).abs())
            .max();
        assert!(
            worst <= Some(most),
            "{offset_ns} ns, {drift_ppb} ppb: {worst:?}"
        );
    }
}

#[test]
fn only_hosts_have_clocks() {
    let mut network = Network::new();
    let (a, switch) = (network.add_host("a"), network.add_switch("switch"));
    network.add_link(a, switch, LinkSpec::wire(Duration::ZERO));
    let mut sim = Simulation::new(network, SimOptions::default()).expect("valid");
    assert!(matches!(
        sim.set_stamps(switch, StampModel::EXACT),
        Err(SimError::Network(NetworkError::NotAHost(_)))
    ));
    assert!(sim.set_stamps(a, StampModel::EXACT).is_ok());
}
