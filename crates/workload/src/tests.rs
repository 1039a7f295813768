//! Tests of the generators, driven by a script instead of a simulation.

use ccplane_units::stats::mean_and_variance;
use ccplane_units::{Bytes, Duration, Rate, Time};
use proptest::prelude::*;

use super::*;

fn node(n: u32) -> NodeId {
    NodeId(n)
}

fn spec(kind: Workload) -> WorkloadSpec {
    WorkloadSpec {
        name: "test".into(),
        pairs: Pairs::one(node(0), node(1)),
        kind,
        start: Time::ZERO,
        stop: None,
    }
}

fn seconds(s: u64) -> Time {
    Time::ZERO + Duration::from_secs(s)
}

/// Returns the actions of an open-loop workload up to a time. Checks that `next_time` never lies in
/// the past.
fn run(spec: WorkloadSpec, seed: u64, until: Time) -> Vec<(Time, Action)> {
    let mut running = WorkloadGenerator::new(spec, seed, 0).expect("a valid workload");
    let mut done = Vec::new();
    let mut now = Time::ZERO;
    while let Some(next) = running.next_time().filter(|next| *next < until) {
        assert!(next >= now, "{next:?} is before {now:?}");
        now = next;
        let before = done.len();
        while let Some(action) = running.poll(now) {
            done.push((now, action));
        }
        // A wake-up may produce no action (a source goes off), but then `next_time` must advance.
        assert!(
            done.len() > before || running.next_time() != Some(now),
            "it is woken repeatedly at {now:?}"
        );
    }
    assert_eq!(running.poll(now), None);
    done
}

fn sizes_of(actions: &[(Time, Action)]) -> Vec<u64> {
    let bytes = actions.iter().filter_map(|(_, action)| match action {
        Action::Open { bytes, .. } => *bytes,
        _ => None,
    });
    bytes.collect()
}

/// Returns the Kolmogorov-Smirnov distance between sizes and their table.
fn distance(mut sizes: Vec<u64>, table: &SizeTable) -> f64 {
    sizes.sort_unstable();
    let n = sizes.len() as f64;
    let mut worst: f64 = 0.0;
    let mut below = 0;
    for group in sizes.chunk_by(|a, b| a == b) {
        let size = Bytes::new(group[0]);
        // Compares both sides of the step in the empirical distribution.
        let before = table.cumulative_share(Bytes::new(size.get() - 1));
        worst = worst.max((before - below as f64 / n).abs());
        below += group.len();
        worst = worst.max((table.cumulative_share(size) - below as f64 / n).abs());
    }
    worst
}

#[test]
fn sizes_follow_their_tables() {
    let count = 40_000;
    for (name, _) in SizeTable::names() {
        let table = SizeTable::named(name).expect(name);
        let poisson = Workload::Poisson {
            arrivals: Arrivals::PerSecond(1e6),
            sizes: table.clone(),
            flows: Some(count),
        };
        let sizes = sizes_of(&run(spec(poisson), 5, Time::MAX));
        assert_eq!(sizes.len() as u64, count);
        // The distance exceeds 1.95 / sqrt(n) with probability 0.001 (Kolmogorov). Rounding sizes
        // down to a byte shifts the small sizes of `caida` by up to 1/10,000 in share.
        let distance = distance(sizes, &table);
        assert!(
            distance < 1.95 / (count as f64).sqrt() + 1e-4,
            "{name}: {distance}"
        );
    }
}

#[test]
fn poisson_arrivals_have_exponential_gaps_of_the_right_mean() {
    let link = Rate::from_bits_per_sec(96_000_000);
    let table = SizeTable::named("caida").expect("a published table");
    let poisson = Workload::Poisson {
        arrivals: Arrivals::Load {
            share: 0.875,
            link_rate: link,
        },
        sizes: table,
        flows: Some(50_000),
    };
    let actions = run(spec(poisson), 1, Time::MAX);
    let times: Vec<f64> = actions.iter().map(|(at, _)| at.as_nanos() as f64).collect();
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let n = gaps.len() as f64;
    let (mean, variance) = mean_and_variance(&gaps).expect("gaps");
    // Bundler's workload at 84 Mbit/s: 499.4 requests per second.
    let expected = 1e9 / (0.875 * 12_000_000.0 / 21_025.0);
    assert!(((1e9 / expected) - 499.43_f64).abs() < 0.1);
    // Four standard errors: 1/sqrt(n) for the mean, sqrt(8/n) for the variance.
    assert!(
        (mean / expected - 1.0).abs() < 4.0 / n.sqrt(),
        "mean {mean}, not {expected}"
    );
    assert!(
        (variance / (expected * expected) - 1.0).abs() < 4.0 * (8.0 / n).sqrt(),
        "variance {variance}"
    );
    // The distribution is exponential: 1 - 1/e of the gaps are below the mean, to half a per cent.
    let below = gaps.iter().filter(|gap| **gap < expected).count() as f64 / n;
    assert!((below - 0.632_12).abs() < 0.008, "{below}");
}

#[test]
fn load_is_the_share_of_the_link_that_its_bytes_take() {
    let link = Rate::from_bits_per_sec(1_000_000_000);
    let poisson = Workload::Poisson {
        arrivals: Arrivals::Load {
            share: 0.5,
            link_rate: link,
        },
        sizes: SizeTable::named("hadoop").expect("a published table"),
        flows: None,
    };
    let bytes: u64 = sizes_of(&run(spec(poisson), 9, seconds(100))).iter().sum();
    let load = bytes as f64 / 100.0 / link.bytes_per_sec() as f64;
    // The standard deviation of the sizes is about 5 times their mean, and there are about 32,800
    // flows: 0.5 ± 4 × 5 / 181 × 0.5.
    assert!((load - 0.5).abs() < 0.055, "{load}");
}

#[test]
fn bulk_flows_start_one_after_the_other_and_end_when_told() {
    let mut bulk = spec(Workload::Bulk {
        flows: 2,
        bytes: None,
        stagger: Duration::from_secs(1),
        spread: Duration::ZERO,
        lifetime: None,
    });
    bulk.pairs = Pairs::List(vec![(node(0), node(2)), (node(1), node(2))]);
    bulk.start = seconds(1);
    bulk.stop = Some(seconds(10));
    let open = |from: u32| Action::Open {
        from: node(from),
        to: node(2),
        bytes: None,
        finish: false,
        follow: true,
    };
    let mut expected = vec![
        (seconds(1), open(0)),
        (seconds(2), open(1)),
        (seconds(3), open(0)),
        (seconds(4), open(1)),
    ];
    expected.extend((0..4).map(|slot| (seconds(10), Action::Abort { slot })));
    assert_eq!(run(bulk.clone(), 1, Time::MAX), expected);
    // Flows that would start after the stop do not start; flows with a size are not aborted.
    bulk.stop = Some(seconds(3));
    bulk.kind = Workload::Bulk {
        flows: 2,
        bytes: Some(Bytes::new(5)),
        stagger: Duration::from_secs(1),
        spread: Duration::ZERO,
        lifetime: None,
    };
    assert_eq!(sizes_of(&run(bulk, 1, Time::MAX)), [5, 5]);
}

/// Flows end in the order of their starts despite the random offsets; `stop` aborts the rest.
#[test]
fn flows_that_last_a_time_leave_one_after_the_other() {
    let bulk = |spread| {
        let mut bulk = spec(Workload::Bulk {
            flows: 1,
            bytes: None,
            stagger: Duration::from_secs(1),
            spread,
            lifetime: Some(Duration::from_millis(2_500)),
        });
        bulk.pairs = Pairs::List((0..4).map(|n| (node(n), node(4))).collect());
        bulk.start = seconds(1);
        bulk.stop = Some(seconds(6));
        bulk
    };
    let ms = |ms| Time::ZERO + Duration::from_millis(ms);
    let actions = run(bulk(Duration::ZERO), 1, Time::MAX);
    let order: Vec<(Time, Option<u32>)> = actions
        .iter()
        .map(|(at, action)| match action {
            Action::Open { follow: true, .. } => (*at, None),
            Action::Abort { slot } => (*at, Some(*slot)),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (ms(1_000), None),
        (ms(2_000), None),
        (ms(3_000), None),
        (ms(3_500), Some(0)),
        (ms(4_000), None),
        (ms(4_500), Some(1)),
        (ms(5_500), Some(2)),
        (ms(6_000), Some(3)),
    ];
    assert_eq!(order, expected);
    let left = |actions: &[(Time, Action)]| -> Vec<(Time, Action)> {
        let left = |(_, action): &&(Time, Action)| matches!(action, Action::Abort { .. });
        actions.iter().filter(left).copied().collect()
    };
    let late = run(bulk(Duration::from_millis(10)), 1, Time::MAX);
    assert_eq!(left(&late), left(&actions));
    assert_ne!(late, actions);
}

/// Each pair has one flow, in the order of the drawn starts, and another seed draws other starts.
#[test]
fn starts_are_spread() {
    let mut bulk = spec(Workload::Bulk {
        flows: 1,
        bytes: None,
        stagger: Duration::ZERO,
        spread: Duration::from_millis(1),
        lifetime: None,
    });
    bulk.pairs = Pairs::List((0..20).map(|n| (node(n), node(20))).collect());
    bulk.start = seconds(1);
    let starts = |seed| -> Vec<(Time, NodeId)> {
        let opened = run(bulk.clone(), seed, Time::MAX).into_iter();
        let from = |(at, action)| match action {
            Action::Open { from, .. } => (at, from),
            other => panic!("{other:?}"),
        };
        opened.map(from).collect()
    };
    let (one, other) = (starts(1), starts(2));
    assert!(one.is_sorted() && one != other && one == starts(1));
    let inside = seconds(1)..seconds(1) + Duration::from_millis(1);
    assert!(one.iter().all(|(at, _)| inside.contains(at)));
    let mut hosts: Vec<NodeId> = one.iter().map(|(_, from)| *from).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, (0..20).map(node).collect::<Vec<_>>());
}

#[test]
fn bursts_come_together() {
    let mut incast = spec(Workload::Bursts {
        sizes: SizeTable::fixed(Bytes::new(20_000)),
        interval: Duration::from_millis(300),
        bursts: Some(2),
    });
    incast.pairs = Pairs::AllToAll {
        from: vec![node(0), node(1), node(2)],
        to: vec![node(2)],
    };
    let times: Vec<u64> = run(incast, 1, Time::MAX)
        .iter()
        .map(|(at, _)| at.as_micros() / 1_000)
        .collect();
    assert_eq!(times, [0, 0, 300, 300]);
}

#[test]
fn a_trace_is_played() {
    let flow = |ms, to, bytes| TraceFlow {
        at: Duration::from_millis(ms),
        from: node(7),
        to: node(to),
        bytes: Bytes::new(bytes),
    };
    let mut trace = spec(Workload::Trace {
        flows: vec![flow(0, 1, 10), flow(5, 2, 20), flow(5, 3, 30)],
    });
    trace.pairs = Pairs::List(vec![]);
    trace.start = seconds(1);
    let actions = run(trace.clone(), 1, Time::MAX);
    let told: Vec<(u64, u64)> = actions
        .iter()
        .zip(sizes_of(&actions))
        .map(|((at, _), n)| (at.as_micros(), n))
        .collect();
    assert_eq!(told, [(1_000_000, 10), (1_005_000, 20), (1_005_000, 30)]);
    trace.kind = Workload::Trace {
        flows: vec![flow(5, 1, 10), flow(4, 2, 20)],
    };
    let error = WorkloadGenerator::new(trace, 1, 0).map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the workload `test`: flow 1 of the trace starts before the previous one; sort the trace \
         by time"
    );
}

#[test]
fn every_pair_plays_the_list() {
    let mut list = spec(Workload::List {
        flows: vec![
            (Duration::ZERO, Bytes::new(10)),
            (Duration::from_millis(50), Bytes::new(20)),
            (Duration::from_millis(50), Bytes::new(30)),
        ],
    });
    list.pairs = Pairs::List(vec![(node(0), node(2)), (node(1), node(2))]);
    list.start = seconds(1);
    let actions = run(list.clone(), 1, Time::MAX);
    let told: Vec<(u64, u32, u64)> = actions
        .iter()
        .filter_map(|(at, action)| match action {
            Action::Open {
                from,
                bytes: Some(bytes),
                finish: true,
                follow: false,
                ..
            } => Some((at.as_micros() / 1_000, from.0, *bytes)),
            _ => None,
        })
        .collect();
    let expected = [
        (1_000, 0, 10),
        (1_000, 1, 10),
        (1_050, 0, 20),
        (1_050, 1, 20),
        (1_050, 0, 30),
        (1_050, 1, 30),
    ];
    assert_eq!(told, expected);
    // Flows that would start after the stop do not start.
    list.stop = Some(seconds(1) + Duration::from_millis(50));
    let mut running = WorkloadGenerator::new(list.clone(), 1, 0).expect("a valid workload");
    assert!(!running.has_ended());
    assert!(std::iter::from_fn(|| running.poll(seconds(1))).count() == 2 && running.has_ended());
    let mut refused = |flows| {
        list.kind = Workload::List { flows };
        WorkloadGenerator::new(list.clone(), 1, 0)
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let ms = Duration::from_millis;
    assert!(refused(vec![]).contains("its list is empty"));
    assert!(refused(vec![(ms(0), Bytes::new(0))]).contains("no bytes"));
    let backwards = refused(vec![(ms(5), Bytes::new(1)), (ms(4), Bytes::new(1))]);
    assert!(backwards.contains("sort the list by time"), "{backwards}");
}

#[test]
fn a_constant_rate_does_not_drift() {
    let mut constant = spec(Workload::Paced {
        rate: Rate::from_bits_per_sec(7_000_000),
        duty: Duty::Always,
        carrier: Carrier::Stream { write: 1_448 },
    });
    constant.stop = Some(seconds(1_000));
    let actions = run(constant, 3, Time::MAX);
    let (
        first,
        Action::Open {
            bytes: Some(opened),
            ..
        },
    ) = actions[0]
    else {
        panic!("it begins with {:?}", actions[0]);
    };
    let last = actions.last().expect("at least one action");
    assert_eq!((last.0, last.1), (seconds(1_000), write(0, 0, true)));
    let written = actions.iter().map(|(_, action)| match action {
        Action::Write { bytes, .. } => *bytes,
        _ => 0,
    });
    let bytes = opened + written.sum::<u64>();
    // 875,000 bytes/s from the first write, which is within one interval of the start, to the stop.
    assert!(first.as_nanos() < 1_448 * 1_000_000_000 / 875_000 + 1);
    let expected = seconds(1_000).since(first).as_nanos() as u128 * 875_000 / 1_000_000_000;
    assert!(
        u128::from(bytes).abs_diff(expected) <= 1,
        "{bytes} bytes, not {expected}"
    );
    // All gaps but the last are equal to within a nanosecond.
    let gap = |pair: &[(Time, Action)]| pair[1].0.since(pair[0].0).as_nanos();
    assert!(
        actions[..actions.len() - 1]
            .windows(2)
            .all(|pair| (1_654_857..=1_654_858).contains(&gap(pair)))
    );
}

fn write(slot: u32, bytes: u64, finish: bool) -> Action {
    Action::Write {
        slot,
        backward: false,
        bytes,
        finish,
    }
}

#[test]
fn on_off_sources_send_while_on() {
    let duty = Duty::OnOff {
        on: DurationDistribution::Fixed(Duration::from_millis(10)),
        off: DurationDistribution::Fixed(Duration::from_millis(90)),
    };
    let on_off = Workload::Paced {
        rate: Rate::from_bits_per_sec(8_000_000),
        duty,
        carrier: Carrier::Stream { write: 3_000 },
    };
    // 10,000 bytes per on period: three writes of 3 ms each, and the remainder for the last
    // millisecond.
    let actions = run(spec(on_off), 1, seconds(1));
    let phase = actions[0].0.as_nanos();
    assert!(phase < 3_000_000);
    let told: Vec<(u64, u64)> = actions[..8]
        .iter()
        .map(|(at, action)| match action {
            Action::Open {
                bytes: Some(bytes), ..
            }
            | Action::Write { bytes, .. } => (at.as_nanos() - phase, *bytes),
            other => panic!("{other:?}"),
        })
        .collect();
    let ms = 1_000_000;
    assert_eq!(
        told,
        [
            (0, 3_000),
            (3 * ms, 3_000),
            (6 * ms, 3_000),
            (9 * ms, 1_000)
        ]
        .into_iter()
        .chain([
            (100 * ms, 3_000),
            (103 * ms, 3_000),
            (106 * ms, 3_000),
            (109 * ms, 1_000)
        ])
        .collect::<Vec<_>>()
    );

    // With exponential times the long-term rate is the rate times the duty cycle.
    let duty = Duty::OnOff {
        on: DurationDistribution::Exponential(Duration::from_millis(10)),
        off: DurationDistribution::Exponential(Duration::from_millis(30)),
    };
    let datagrams = Workload::Paced {
        rate: Rate::from_bits_per_sec(8_000_000),
        duty,
        carrier: Carrier::Datagrams {
            bytes: 100,
            poisson: false,
        },
    };
    let sent = run(spec(datagrams), 1, seconds(400)).len() as f64 * 100.0;
    // 10,000 cycles, each with a standard deviation of about its mean: 250,000 bytes/s ± 4 %.
    assert!(
        (sent / 400.0 / 250_000.0 - 1.0).abs() < 0.05,
        "{}",
        sent / 400.0
    );
}

#[test]
fn datagrams_of_a_poisson_process() {
    let poisson = Workload::Paced {
        rate: Rate::from_bits_per_sec(80_000_000),
        duty: Duty::Always,
        carrier: Carrier::Datagrams {
            bytes: 1_000,
            poisson: true,
        },
    };
    let actions = run(spec(poisson), 2, seconds(5));
    // 10,000 packets per second; the counts of 10 ms windows have variance and mean 100.
    let mut counts = [0_f64; 500];
    for (at, action) in &actions {
        assert!(matches!(action, Action::Datagram { bytes: 1_000, .. }));
        counts[(at.as_nanos() / 10_000_000) as usize] += 1.0;
    }
    let (mean, variance) = mean_and_variance(&counts).expect("counts");
    assert!((mean - 100.0).abs() < 1.8, "{mean}");
    assert!((70.0..135.0).contains(&variance), "{variance}");
}

/// Answers requests after 2 ms and responses after 3 ms.
#[test]
fn requests_go_round_in_a_closed_loop() {
    let mut closed = spec(Workload::Requests {
        connections: 2,
        request: SizeTable::fixed(Bytes::new(200)),
        response: SizeTable::new(&[(1_000, 0.0), (2_000, 1.0)]).expect("ascending points"),
        think_time: DurationDistribution::Fixed(Duration::from_millis(5)),
    });
    closed.stop = Some(Time::ZERO + Duration::from_millis(25));
    let mut running = WorkloadGenerator::new(closed, 4, 0).expect("a valid workload");
    let mut arrivals = std::collections::BTreeSet::new();
    let (mut opened, mut log) = (0, Vec::new());
    let ms = |ms| Duration::from_millis(ms);
    let mut now = Time::ZERO;
    loop {
        while let Some((at, slot, back)) = arrivals.pop_first() {
            if at > now {
                arrivals.insert((at, slot, back));
                break;
            }
            running.on_received(now, slot, back);
        }
        while let Some(action) = running.poll(now) {
            match action {
                Action::Open { bytes, follow, .. } => {
                    assert_eq!((bytes, follow), (Some(200), true));
                    arrivals.insert((now + ms(2), opened, false));
                    opened += 1;
                }
                Action::Write {
                    slot,
                    backward: back,
                    bytes,
                    finish,
                } => {
                    assert_eq!(finish, bytes == 0);
                    log.push((now.as_micros() / 1_000, slot, back, finish));
                    if !finish {
                        arrivals.insert((now + ms(if back { 3 } else { 2 }), slot, back));
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        let next = [running.next_time(), arrivals.first().map(|first| first.0)]
            .into_iter()
            .flatten()
            .min();
        match next {
            Some(next) => now = next,
            None => break,
        }
    }
    // Requests at 0, 10 and 20 ms; at 30 ms the stop has passed, and both ends close.
    let of_first: Vec<_> = log
        .iter()
        .filter(|entry| entry.1 == 0)
        .map(|e| (e.0, e.2, e.3))
        .collect();
    assert_eq!(
        of_first,
        [
            (2, true, false),
            (10, false, false),
            (12, true, false),
            (20, false, false),
            (22, true, false),
            (25, false, true),
            (25, true, true)
        ]
    );
    let exchanges = running.exchanges();
    assert_eq!(exchanges.len(), 6);
    for (n, exchange) in exchanges.iter().enumerate() {
        assert_eq!(exchange.connection as usize, n % 2);
        assert_eq!(exchange.finished.since(exchange.started), ms(5));
        assert_eq!(exchange.request, Bytes::new(200));
        assert!((1_000..=2_000).contains(&exchange.response.get()));
    }
    // Unexpected deliveries are ignored.
    running.on_received(now, 0, true);
    running.on_received(now, 99, false);
    assert_eq!((running.poll(now), running.exchanges().len()), (None, 6));
}

#[test]
fn what_can_never_send_is_refused() {
    let refused = |spec: WorkloadSpec| {
        WorkloadGenerator::new(spec, 1, 0)
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let table = || SizeTable::fixed(Bytes::new(1));
    let bulk = |flows, bytes: Option<u64>| Workload::Bulk {
        flows,
        bytes: bytes.map(Bytes::new),
        stagger: Duration::ZERO,
        spread: Duration::ZERO,
        lifetime: None,
    };
    let lasting = |bytes, ms| Workload::Bulk {
        flows: 1,
        bytes,
        stagger: Duration::ZERO,
        spread: Duration::ZERO,
        lifetime: Some(Duration::from_millis(ms)),
    };
    let poisson = |arrivals| Workload::Poisson {
        arrivals,
        sizes: table(),
        flows: None,
    };
    let paced = |rate, on, write| Workload::Paced {
        rate: Rate::from_bytes_per_sec(rate),
        duty: Duty::OnOff {
            on: DurationDistribution::Fixed(Duration::from_secs(on)),
            off: DurationDistribution::Fixed(Duration::ZERO),
        },
        carrier: Carrier::Stream { write },
    };
    for (kind, why) in [
        (bulk(0, None), "no flows"),
        (bulk(1, Some(0)), "no bytes"),
        (Workload::Trace { flows: Vec::new() }, "its trace is empty"),
        (lasting(None, 0), "lifetime of its flows is 0"),
        (
            lasting(Some(Bytes::new(1)), 1),
            "end after a number of bytes",
        ),
        (poisson(Arrivals::PerSecond(0.0)), "never arrive"),
        (poisson(Arrivals::PerSecond(f64::NAN)), "never arrive"),
        (
            poisson(Arrivals::Rate(Rate::from_bytes_per_sec(0))),
            "never arrive",
        ),
        (paced(0, 1, 1), "rate is 0"),
        (paced(1, 0, 1), "never on"),
        (paced(1, 1, 0), "0 bytes at a time"),
        (bulk(u32::MAX, None), "the limit is 16777216"),
    ] {
        let said = refused(spec(kind));
        assert!(said.contains(why), "{said}");
        assert!(said.contains("`test`"), "{said}");
    }
    let mut alone = spec(bulk(1, None));
    alone.pairs = Pairs::AllToAll {
        from: vec![node(1)],
        to: vec![node(1)],
    };
    assert!(refused(alone).contains("no pair of two different hosts"));
}

fn any_kind() -> impl Strategy<Value = Workload> {
    let ms = |range: std::ops::Range<u64>| range.prop_map(Duration::from_millis);
    let pause = prop_oneof![
        ms(1..50).prop_map(DurationDistribution::Fixed),
        ms(1..50).prop_map(DurationDistribution::Exponential)
    ];
    let table = prop_oneof![
        Just(SizeTable::named("caida").expect("a published table")),
        (1_u64..100_000).prop_map(|n| SizeTable::fixed(Bytes::new(n))),
    ];
    let rate = (10_000_u64..10_000_000).prop_map(Rate::from_bytes_per_sec);
    let duty = prop_oneof![
        Just(Duty::Always),
        (pause.clone(), pause).prop_map(|(on, off)| Duty::OnOff { on, off })
    ];
    let carrier = prop_oneof![
        (100_u32..3_000).prop_map(|write| Carrier::Stream { write }),
        (100_u32..3_000, any::<bool>())
            .prop_map(|(bytes, poisson)| Carrier::Datagrams { bytes, poisson }),
    ];
    prop_oneof![
        (1_u32..5, prop::option::of(1_u64..9), ms(0..100)).prop_map(|(flows, bytes, stagger)| {
            Workload::Bulk {
                flows,
                bytes: bytes.map(Bytes::new),
                stagger,
                spread: Duration::ZERO,
                lifetime: None,
            }
        }),
        (1_u32..5, ms(0..100), ms(0..200), ms(1..500)).prop_map(
            |(flows, stagger, spread, lasts)| Workload::Bulk {
                flows,
                bytes: None,
                stagger,
                spread,
                lifetime: Some(lasts),
            }
        ),
        (rate, duty, carrier).prop_map(|(rate, duty, carrier)| Workload::Paced {
            rate,
            duty,
            carrier
        }),
        (
            1.0_f64..2_000.0,
            table.clone(),
            prop::option::of(1_u64..500)
        )
            .prop_map(|(n, sizes, flows)| {
                Workload::Poisson {
                    arrivals: Arrivals::PerSecond(n),
                    sizes,
                    flows,
                }
            }),
        (table, ms(1..100), prop::option::of(1_u64..9)).prop_map(|(sizes, interval, bursts)| {
            Workload::Bursts {
                sizes,
                interval,
                bursts,
            }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The same seed gives the same flows. Nothing happens before the start, and after the stop
    /// streams only end.
    #[test]
    fn is_a_function_of_its_seed_and_keeps_its_time(
        kind in any_kind(),
        seed: u64,
        stop in 1_u64..1_500,
    ) {
        let lasts = matches!(
            kind,
            Workload::Bulk {
                lifetime: Some(_),
                ..
            }
        );
        let mut spec = spec(kind);
        spec.pairs = Pairs::AllToAll {
            from: vec![node(0), node(1)],
            to: vec![node(1), node(2)],
        };
        spec.start = Time::ZERO + Duration::from_millis(200);
        spec.stop = Some(Time::ZERO + Duration::from_millis(stop));
        let actions = run(spec.clone(), seed, seconds(2));
        prop_assert_eq!(&actions, &run(spec.clone(), seed, seconds(2)));
        let mut slots = 0;
        for (at, action) in &actions {
            prop_assert!(*at >= spec.start);
            let late = Some(*at) >= spec.stop;
            match action {
                Action::Open {
                    from, to, follow, ..
                } => {
                    prop_assert!(from != to && !late);
                    slots += u32::from(*follow);
                }
                Action::Datagram { from, to, .. } => prop_assert!(from != to && !late),
                Action::Write {
                    slot,
                    bytes,
                    finish,
                    ..
                } => {
                    prop_assert!(*slot < slots);
                    prop_assert_eq!(late, *finish);
                    prop_assert_eq!(*finish, *bytes == 0);
                }
                Action::Abort { slot } => prop_assert!((late || lasts) && *slot < slots),
            }
        }
        // Every stream is ended and every endless flow aborted exactly once.
        let ends = actions.iter().filter(|(_, action)| {
            matches!(
                action,
                Action::Write { finish: true, .. } | Action::Abort { .. }
            )
        });
        prop_assert_eq!(ends.count() as u32, slots);
    }

    /// Another seed or another index gives other times.
    #[test]
    fn workloads_are_independent(seed: u64) {
        let poisson = |seed, which| {
            let kind = Workload::Poisson {
                arrivals: Arrivals::PerSecond(10.0),
                sizes: SizeTable::named("websearch").expect("a published table"),
                flows: None,
            };
            WorkloadGenerator::new(spec(kind), seed, which).map(|running| running.next_time())
        };
        prop_assert_ne!(poisson(seed, 0), poisson(seed, 1));
        prop_assert_ne!(poisson(seed, 0), poisson(seed.wrapping_add(1), 0));
    }
}
