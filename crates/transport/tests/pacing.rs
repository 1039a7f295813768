//! Pacing: the rate over any interval, batches of a quantum, and no loss of throughput when the
//! window limits sending.

use crate::wire::{Delay, Pair, Path, ms, secs};
use ccplane_datapath::Outcome;
use ccplane_transport::{
    CongestionControl, ControlEvent, Native, Rc3, Segment, SegmentKind, TransportConfig,
};
use ccplane_units::{Duration, Rate, Time};

const QUANTUM: Duration = Duration::from_micros(500);

fn limited(mbit: u64, quantum: Duration) -> TransportConfig {
    TransportConfig {
        max_rate: Some(Rate::from_bits_per_sec(mbit * 1_000_000)),
        pacing_quantum: quantum,
        ack_every: 1,
        ..TransportConfig::default()
    }
}

/// Times at which end 0 sent data, and bytes with headers.
fn departures<P: Path, C: CongestionControl>(pair: &Pair<P, C>) -> Vec<(Time, u64)> {
    let log = pair.log.as_deref().unwrap_or_default();
    let data = |(at, from, segment): &(Time, usize, Segment)| {
        (*from == 0 && segment.kind == SegmentKind::Data)
            .then_some((*at, u64::from(segment.length) + 52))
    };
    log.iter().filter_map(data).collect()
}

/// Maximum of the bytes sent in any interval beyond the rate.
fn largest_burst(departures: &[(Time, u64)], rate: Rate) -> u64 {
    let (mut level, mut last, mut most) = (0, Time::ZERO, 0);
    for (at, bytes) in departures {
        level = rate
            .bytes_in(at.since(last))
            .get()
            .min(level)
            .abs_diff(level)
            + bytes;
        (last, most) = (*at, most.max(level));
    }
    most
}

/// Rate in an interval, bytes/s.
fn rate_from(departures: &[(Time, u64)], from: Time, to: Time) -> f64 {
    let bytes: u64 = departures
        .iter()
        .filter(|(at, _)| *at > from)
        .map(|(_, bytes)| bytes)
        .sum();
    bytes as f64 / to.since(from).as_secs_f64()
}

#[test]
fn a_limit_holds_over_any_time_and_is_used_to_the_full() {
    let natives = [
        (Native::new_reno(), false),
        (Native::cubic(), false),
        (Native::cubic(), true),
    ];
    for (mbit, one_way, quantum) in [
        (1, 10_000, QUANTUM),
        (100, 10_000, QUANTUM),
        (1000, 10_000, QUANTUM),
        (1000, 25, QUANTUM),
        (1000, 500, QUANTUM),
        (100, 10_000, Duration::ZERO),
        (1000, 100, Duration::ZERO),
    ] {
        for (native, pacing) in natives.clone() {
            let config = TransportConfig {
                pacing,
                ..limited(mbit, quantum)
            };
            let what =
                format!("{mbit} Mbit/s, {one_way} µs, {quantum}, {native:?}, pacing {pacing}");
            let rate = config.max_rate.unwrap();
            let path = Delay(Duration::from_micros(one_way));
            let mut pair = Pair::new(&config, [native, Native::new_reno()], path, [1 << 40, 0]);
            pair.log = Some(Vec::new());
            pair.run(secs(1));
            let sent = departures(&pair);
            let burst = largest_burst(&sent, rate);
            let allowed = rate.bytes_in(quantum * 2).get() + 2 * 1500;
            assert!(
                burst <= allowed,
                "a burst of {burst} bytes, {allowed} allowed: {what}"
            );
            let used =
                rate_from(&sent, Time::ZERO + ms(500), secs(1)) / rate.bytes_per_sec() as f64;
            assert!(
                (0.97..1.01).contains(&used),
                "{used:.3} of the limit is used: {what}"
            );
        }
    }
}

#[test]
fn acknowledgements_between_batches_let_nothing_leave() {
    let config = limited(1000, QUANTUM);
    let mut pair = Pair::new(
        &config,
        [Native::cubic(), Native::new_reno()],
        Delay(ms(10)),
        [1 << 40, 0],
    );
    pair.log = Some(Vec::new());
    pair.run(secs(1));
    let mut times: Vec<Time> = departures(&pair).iter().map(|(at, _)| *at).collect();
    times.retain(|at| *at > Time::ZERO + ms(500));
    let packets = times.len();
    times.dedup();
    let shortest = times
        .windows(2)
        .map(|pair| pair[1].since(pair[0]))
        .min()
        .unwrap();
    // In whole packets of 12 µs each.
    assert!(
        shortest + Duration::from_micros(12) > QUANTUM,
        "two batches within {shortest}"
    );
    let each = packets / times.len();
    assert!((40..=42).contains(&each), "{each} packets per batch");
}

/// Control with a fixed window.
struct FixedWindow(u64);

impl CongestionControl for FixedWindow {
    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        Outcome {
            cwnd: Some(self.0 * event.connection().mss()),
            ..Outcome::default()
        }
    }
}

#[test]
fn a_window_that_limits_loses_nothing_by_batches() {
    for one_way in [25, 100, 250, 500, 1000, 10_000] {
        for window in [2, 10, 20, 40, 50, 80, 150, 1000, 3000] {
            let with = |quantum| {
                let config = limited(1000, quantum);
                let path = Delay(Duration::from_micros(one_way));
                let mut pair = Pair::new(
                    &config,
                    [FixedWindow(window), FixedWindow(10)],
                    path,
                    [1 << 40, 0],
                );
                pair.log = Some(Vec::new());
                pair.run(Time::ZERO + ms(150));
                rate_from(
                    &departures(&pair),
                    Time::ZERO + ms(50),
                    Time::ZERO + ms(150),
                )
            };
            let (smooth, batched) = (with(Duration::ZERO), with(QUANTUM));
            let part = batched / smooth;
            assert!(
                (0.97..1.03).contains(&part),
                "{part:.3} of the throughput, {one_way} µs each way, a window of {window}"
            );
        }
    }
}

/// Neither the pacing rate nor the window of class 0 applies to RC3's tail, and the tail takes
/// nothing from that rate.
#[test]
fn the_tail_is_not_paced_like_class_0() {
    for quantum in [Duration::ZERO, QUANTUM] {
        let config = TransportConfig {
            pacing: true,
            rc3: Some(Rc3::default()),
            ..limited(1000, quantum)
        };
        let rate = config.max_rate.unwrap();
        // 346 segments, at a packet per millisecond in class 0. The limit allows the whole tail in
        // 4 ms.
        let mut pair = Pair::new(
            &config,
            [FixedWindow(10), FixedWindow(10)],
            Delay(ms(10)),
            [500_000, 0],
        );
        pair.log = Some(Vec::new());
        pair.run(Time::ZERO + ms(39));
        let left = |low: bool| -> Vec<Time> {
            let data = pair.log.iter().flatten();
            data.filter(|(_, from, segment)| {
                *from == 0 && segment.kind == SegmentKind::Data && (segment.class != 0) == low
            })
            .map(|(at, ..)| *at)
            .collect()
        };
        let (first, tail) = (left(false), left(true));
        assert_eq!((first.len(), tail.len()), (10, 336));
        let took = |times: &[Time]| {
            times[times.len() - 1]
                .since(Time::ZERO + ms(20))
                .as_micros()
        };
        assert!(
            (3_400..4_700).contains(&took(&tail)),
            "{} µs for the tail",
            took(&tail)
        );
        assert!(
            (8_400..9_600).contains(&took(&first)),
            "{} µs for class 0",
            took(&first)
        );
        let burst = largest_burst(&departures(&pair), rate);
        let allowed = rate.bytes_in(quantum * 2).get() + 2 * 1500;
        assert!(
            burst <= allowed,
            "a burst of {burst} bytes, {allowed} allowed"
        );
    }
}

/// The window does not apply to RC3's tail, but the operator's limit does, and class 0 goes first.
#[test]
fn the_tail_keeps_to_the_limit_and_leaves_last() {
    let config = TransportConfig {
        rc3: Some(Rc3 {
            levels: 1,
            ..Rc3::default()
        }),
        ..limited(10, QUANTUM)
    };
    let rate = config.max_rate.unwrap();
    let mut pair = Pair::new(
        &config,
        [Native::cubic(), Native::new_reno()],
        Delay(ms(10)),
        [500_000, 0],
    );
    pair.log = Some(Vec::new());
    while !pair.connection(0).all_acked() {
        assert!(pair.step(secs(10)));
    }
    let low = |(_, from, segment): &&(Time, usize, Segment)| {
        *from == 0 && segment.class == 1 && segment.kind == SegmentKind::Data
    };
    let tail = pair.log.iter().flatten().filter(low).count();
    assert!(tail > 4, "{tail} segments of the tail");
    let burst = largest_burst(&departures(&pair), rate);
    assert!(
        burst <= rate.bytes_in(QUANTUM * 2).get() + 2 * 1500,
        "{burst} bytes at once"
    );
    let took = pair.now.since(Time::ZERO).as_secs_f64();
    assert!(
        (0.4..0.6).contains(&took),
        "500 kB at 10 Mbit/s took {took} s"
    );
}
