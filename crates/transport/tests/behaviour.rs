//! Behaviour of a connection in the situations that the RFCs describe.

use crate::wire::{Bottleneck, Delay, Pair, ms, secs};
use ccplane_transport::{
    ConnectionError, ConnectionState, Ecn, Native, Rc3, RecoveryPhase, Segment, SegmentKind,
    TransportConfig,
};
use ccplane_units::{Duration, Time};

const MSS_BYTES: u64 = 1448;

const ONE_LEVEL: Rc3 = Rc3 {
    levels: 1,
    first_level_segments: 40,
    distance_max: 1 << 17,
    verify: true,
};

fn reno() -> [Native; 2] {
    [Native::new_reno(), Native::new_reno()]
}

fn every_ack() -> TransportConfig {
    TransportConfig {
        ack_every: 1,
        ..TransportConfig::default()
    }
}

/// A path of 10 ms each way that drops the segments selected by `lose`.
fn losing(
    mut lose: impl FnMut(usize, &Segment) -> bool,
) -> impl FnMut(Time, usize, &mut Segment, &mut Vec<Time>) {
    move |now, from, segment, arrivals| {
        if !lose(from, segment) {
            arrivals.push(now + ms(10));
        }
    }
}

#[test]
fn one_lost_segment_costs_one_retransmission_and_halves_the_window() {
    let path =
        losing(|_, s| s.kind == SegmentKind::Data && s.number.0 == 12 && s.transmission == 1);
    let mut pair = Pair::new(&every_ack(), reno(), path, [60 * MSS_BYTES, 0]);
    let mut recovering = 0;
    while pair.step(secs(1)) {
        let connection = pair.connection(0);
        recovering = recovering.max(connection.phase() as u8);
        if connection.phase() == RecoveryPhase::Recovery {
            assert!(connection.in_flight() <= 22, "{}", connection.in_flight());
        }
        if connection.all_acked() {
            break;
        }
    }
    let stats = pair.connection(0).stats();
    assert_eq!((stats.retransmitted, stats.lost, stats.timeouts), (1, 1, 0));
    assert_eq!(recovering, RecoveryPhase::Recovery as u8);
    // Detected by SACKs of later segments: 12 of a window of 22, which halves.
    assert_eq!(stats.ssthresh, 11 * MSS_BYTES);
    assert_eq!(pair.received(1), 60 * MSS_BYTES);
}

/// The path delivers requests and drops everything else for 9 s. By then the client repeats its
/// request every 4 s, and the last one is late: a server with a timer of 4 s from the first or the
/// previous request would have failed.
#[test]
fn a_server_waits_for_a_client_that_still_asks() {
    let patient = TransportConfig {
        max_rto: Duration::from_secs(4),
        open_retries: 20,
        ..every_ack()
    };
    let path = |now: Time, from: usize, segment: &mut Segment, arrivals: &mut Vec<Time>| {
        let through = now >= secs(9);
        if through || (from, segment.kind) == (0, SegmentKind::Open) {
            arrivals.push(now + if through { ms(500) } else { ms(10) });
        }
    };
    let mut pair = Pair::new(&patient, reno(), path, [5 * MSS_BYTES, 0]);
    while pair.received(1) < 5 * MSS_BYTES {
        assert!(pair.step(secs(60)), "{:?}", pair.connection(1).failure());
    }
}

/// RFC 8985 section 7: only a probe can reveal the loss of the last segment.
#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    let path = losing(|_, s| s.kind == SegmentKind::Data && s.number.0 == 4 && s.transmission == 1);
    let mut pair = Pair::new(&every_ack(), reno(), path, [5 * MSS_BYTES, 0]);
    while pair.received(1) < 5 * MSS_BYTES {
        assert!(pair.step(secs(1)));
    }
    let stats = pair.connection(0).stats();
    assert_eq!((stats.retransmitted, stats.timeouts), (1, 0));
    // Sent at 20 ms, its neighbours acknowledged at 40 ms, the probe 2 SRTT later, and a one-way
    // delay of 10 ms.
    assert_eq!(pair.now, Time::from_micros(90_000));
    while !pair.connection(0).all_acked() {
        assert!(pair.step(secs(2)));
    }
    // RFC 8985 section 7.4: the probe repaired a loss, which causes a reduction.
    assert_eq!(pair.connection(0).stats().ssthresh, 5 * MSS_BYTES);
}

/// RFC 6298 section 5: without ACKs the RTO doubles; slow start follows.
#[test]
fn timeouts_back_off() {
    let mut sendings = Vec::new();
    let mut pair = Pair::new(&every_ack(), reno(), Delay(ms(10)), [30 * MSS_BYTES, 0]);
    pair.log = Some(Vec::new());
    while pair.received(1) < 10 * MSS_BYTES {
        assert!(pair.step(secs(1)));
    }
    // From now on the path is down for two seconds, and packets in flight are lost too.
    let away = pair.now;
    pair.lose_all();
    pair.path = Delay(Duration::from_secs(1_000_000));
    while pair.now < away + Duration::from_secs(2) {
        if !pair.step(secs(10)) {
            break;
        }
    }
    for (at, _, segment) in pair
        .log
        .iter()
        .flatten()
        .filter(|(at, from, s)| *from == 0 && *at > away && s.kind == SegmentKind::Data)
    {
        if segment.transmission > 1 {
            sendings.push((at.since(away).as_millis(), segment.number.0));
        }
    }
    let gaps: Vec<u64> = sendings
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .collect();
    assert!(sendings.len() >= 3, "{sendings:?}");
    // Timeouts of the same segment with doubling intervals. (The probe before them was new data.)
    assert!(sendings.iter().all(|(_, number)| *number == sendings[0].1));
    assert!(
        gaps.windows(2).all(|gap| gap[1] == gap[0] * 2),
        "{sendings:?}"
    );
    assert_eq!(pair.connection(0).phase(), RecoveryPhase::Loss);
    assert_eq!(pair.connection(0).window(), 1);
}

/// A pause of the path, longer than the RTO and without loss: the echo reveals it, and the window
/// is restored (RFC 3522).
#[test]
fn a_spurious_timeout_is_undone() {
    let pause = (Time::from_micros(45_000), Time::from_micros(900_000));
    let path = move |now: Time, _: usize, _: &mut Segment, arrivals: &mut Vec<Time>| {
        let at = now + ms(10);
        arrivals.push(if at >= pause.0 && at < pause.1 {
            pause.1 + Duration::from_nanos(now.as_nanos() / 1000)
        } else {
            at
        });
    };
    let mut pair = Pair::new(&every_ack(), reno(), path, [400 * MSS_BYTES, 0]);
    let (mut before, mut undone) = (0, false);
    while !pair.connection(0).all_acked() && pair.step(secs(10)) {
        let connection = pair.connection(0);
        if connection.stats().timeouts == 0 {
            before = connection.cwnd();
        } else if connection.phase() == RecoveryPhase::Open && !undone {
            undone = true;
            assert!(
                connection.cwnd() >= before,
                "{} after {before}",
                connection.cwnd()
            );
            assert_eq!(connection.ssthresh(), u64::MAX);
        }
    }
    assert!(undone && pair.connection(0).stats().timeouts > 0);
    assert_eq!(pair.received(1), 400 * MSS_BYTES);
}

/// Reordering by less than a quarter of the RTT causes no loss once RACK has seen it; a first
/// spurious reduction is undone.
#[test]
fn reordering_is_learnt_and_undone() {
    let mut count = 0u64;
    let path = move |now: Time, from: usize, segment: &mut Segment, arrivals: &mut Vec<Time>| {
        count += 1;
        let late = from == 0 && segment.kind == SegmentKind::Data && count.is_multiple_of(7);
        arrivals.push(
            now + ms(10)
                + if late {
                    ms(4)
                } else {
                    Duration::from_nanos(count)
                },
        );
    };
    let mut pair = Pair::new(&every_ack(), reno(), path, [3000 * MSS_BYTES, 0]);
    while !pair.connection(0).all_acked() {
        assert!(pair.step(secs(100)));
    }
    let stats = pair.connection(0).stats();
    assert!(stats.retransmitted < 60, "{stats:?}");
    assert_eq!(stats.timeouts, 0);
    assert_eq!(stats.ssthresh, u64::MAX, "nothing was lost: {stats:?}");
}

/// The application stops reading: the window closes, is probed with backoff, and opens again.
#[test]
fn a_closed_window_is_probed_and_opens() {
    let config = TransportConfig {
        receive_buffer: 20 * MSS_BYTES as u32,
        ..every_ack()
    };
    let mut pair = Pair::new(&config, reno(), Delay(ms(10)), [100 * MSS_BYTES, 0]);
    pair.ends[1].reads = false;
    pair.log = Some(Vec::new());
    pair.run(secs(10));
    assert_eq!(pair.received(1), 20 * MSS_BYTES);
    let probes: Vec<u64> = pair
        .log
        .iter()
        .flatten()
        .filter(|(_, from, segment)| *from == 0 && segment.has_flag(Segment::PROBE_FLAG))
        .map(|(at, ..)| at.as_micros())
        .collect();
    assert!((4..8).contains(&probes.len()), "{probes:?}");
    assert!(
        probes
            .windows(3)
            .all(|three| three[2] - three[1] > three[1] - three[0]),
        "{probes:?}"
    );
    pair.ends[1].reads = true;
    pair.run(secs(100));
    assert!(pair.is_over());
    assert_eq!(pair.received(1), 100 * MSS_BYTES);
    assert_eq!(pair.connection(0).stats().retransmitted, 0);
}

/// Marks are counted exactly even with delayed ACKs, and cause one reduction per round.
#[test]
fn marks_are_echoed_exactly() {
    for (native, least, most) in [(Native::new_reno(), 40, 100), (Native::dctcp(), 60, 100)] {
        let config = TransportConfig {
            ecn: Ecn::Ect0,
            ..TransportConfig::default()
        };
        let mut path = Bottleneck::new(125_000_000, Duration::from_micros(50), 400_000);
        path.mark_from = 30_000;
        let mut pair = Pair::new(&config, [native, Native::new_reno()], path, [40_000_000, 0]);
        while !pair.connection(0).all_acked() {
            assert!(pair.step(secs(10)));
        }
        let stats = pair.connection(0).stats();
        assert_eq!(u64::from(stats.marked), pair.path.marked);
        assert_eq!((stats.retransmitted, pair.path.dropped), (0, 0));
        let ideal = 40_000_000u64 * 1500 / 1448 * 1_000_000 / 125_000_000;
        let utilisation = ideal * 100 / pair.now.as_micros();
        assert!((least..=most).contains(&utilisation), "{utilisation} %");
    }
}

/// t1 and t4 come from the sender's clock, t2 and t3 from the receiver's: each exchange gives the
/// RTT despite different clocks.
#[test]
fn four_stamps_of_every_exchange() {
    let config = TransportConfig {
        stamps: true,
        ..every_ack()
    };
    let mut pair = Pair::new(&config, reno(), Delay(ms(10)), [50 * MSS_BYTES, 0]);
    let mut seen = 0;
    while !pair.connection(0).all_acked() && pair.step(secs(1)) {
        if let Some(stamps) = pair.connection(0).stamps() {
            seen += 1;
            assert_eq!(stamps.t2, stamps.t1 + ms(10));
            assert_eq!(stamps.t3, stamps.t2);
            assert_eq!(stamps.t4, stamps.t3 + ms(10));
        }
    }
    assert!(seen >= 50, "{seen}");
}

/// A driver's stamps may come from a clock other than the connection's: with any clock offset the
/// queueing delay is the same, and valid for as long.
#[test]
fn stamps_of_another_clock() {
    let config = TransportConfig {
        stamps: true,
        ..every_ack()
    };
    let run = |clocks: [fn(Time) -> Time; 2]| {
        let path = Bottleneck::new(12_500_000, ms(5), 100 * (MSS_BYTES + 52));
        let mut pair = Pair::new(&config, reno(), path, [400 * MSS_BYTES, 0]);
        pair.clocks = clocks;
        let mut queues = Vec::new();
        while !pair.connection(0).all_acked() && pair.step(secs(9)) {
            let sender = pair.connection(0);
            if sender.stamps().is_some() {
                queues.push(sender.one_way().queue_delay(pair.now, sender.srtt()));
            }
        }
        assert_eq!(pair.connection(0).one_way().dropped(), 0);
        queues
    };
    let plain = run([|now| now; 2]);
    assert!(plain.len() > 400 && plain.iter().any(|queue| *queue > Some(ms(1))));
    let shifted = run([
        |now| Time::from_nanos(now.as_nanos().wrapping_sub(3_000_000_000)),
        |now| Time::from_nanos(now.as_nanos() + (1 << 45)),
    ]);
    assert_eq!(shifted, plain);
}

/// Implausible stamps give no sample, and are counted.
#[test]
fn samples_that_cannot_be_true_are_dropped_and_counted() {
    let config = TransportConfig {
        stamps: true,
        ..every_ack()
    };
    let mut pair = Pair::new(&config, reno(), Delay(ms(10)), [50 * MSS_BYTES, 0]);
    // Every acknowledgement arrives before the segment that triggered it was sent.
    pair.clocks = [
        |now| Time::from_nanos((1 << 50) - now.as_nanos()),
        |now| now,
    ];
    while !pair.connection(0).all_acked() && pair.step(secs(1)) {}
    let sender = pair.connection(0);
    let dropped = sender.stats().samples_dropped;
    assert!((50..60).contains(&dropped), "{dropped}");
    assert_eq!(sender.one_way().queue_delay(pair.now, sender.srtt()), None);
    assert_eq!(pair.received(1), 50 * MSS_BYTES);
}

/// The tail is sent in class 1 from its end, while class 0 starts from the front. The flow ends
/// when both have met. Class 1 takes nothing from class 0: the window is the same, and overtaking
/// causes no loss.
#[test]
fn the_tail_goes_in_a_class_below() {
    let config = TransportConfig {
        rc3: Some(ONE_LEVEL),
        ..every_ack()
    };
    let path = |now: Time, _: usize, segment: &mut Segment, arrivals: &mut Vec<Time>| {
        // Class 1 is overtaken all the time.
        arrivals.push(now + ms(10) + ms(3) * u64::from(segment.class));
    };
    let mut pair = Pair::new(&config, reno(), path, [500 * MSS_BYTES, 0]);
    while pair.received(1) < 500 * MSS_BYTES {
        assert!(pair.step(secs(5)));
    }
    // A handshake and the one-way delay of the tail; slow start alone would take six round trips.
    assert_eq!(pair.now, Time::from_micros(33_000));
    while !pair.connection(0).all_acked() {
        assert!(pair.step(secs(5)));
    }
    let stats = pair.connection(0).stats();
    assert_eq!((stats.retransmitted, stats.lost, stats.timeouts), (0, 0, 0));
    assert_eq!(stats.ssthresh, u64::MAX);
    assert!(stats.cwnd <= 21 * MSS_BYTES, "{}", stats.cwnd / MSS_BYTES);

    // All of class 1 is lost: as without RC3.
    let ends = [None, Some(ONE_LEVEL)].map(|tail| {
        let path = losing(|_, segment| segment.class == 1);
        let config = TransportConfig {
            rc3: tail,
            ..every_ack()
        };
        let mut pair = Pair::new(&config, reno(), path, [500 * MSS_BYTES, 0]);
        while pair.received(1) < 500 * MSS_BYTES {
            assert!(pair.step(secs(5)));
        }
        (
            pair.now,
            pair.connection(0).cwnd(),
            pair.connection(0).stats().retransmitted,
        )
    });
    assert_eq!(ends[0], ends[1]);
}

#[test]
fn every_connection_ends() {
    // No answer.
    let mut pair = Pair::new(&every_ack(), reno(), losing(|_, _| true), [MSS_BYTES, 0]);
    pair.run(secs(100_000));
    assert_eq!(pair.connection(0).state(), ConnectionState::Closed);
    assert_eq!(
        pair.connection(0).failure(),
        Some(ConnectionError::NoAnswer(7))
    );
    // The path goes down for good.
    let mut pair = Pair::new(
        &every_ack(),
        reno(),
        losing(|from, s| from == 1 && s.kind != SegmentKind::OpenReply),
        [MSS_BYTES, 0],
    );
    pair.run(secs(100_000));
    assert!(matches!(
        pair.connection(0).failure(),
        Some(ConnectionError::TimedOut(15))
    ));
    // The peer aborts.
    let mut pair = Pair::new(&every_ack(), reno(), Delay(ms(10)), [10_000_000, 0]);
    pair.run(Time::from_micros(100_000));
    pair.connection_mut(1).abort();
    pair.run(secs(10));
    assert_eq!(pair.connection(0).failure(), Some(ConnectionError::Reset));
    assert_eq!(pair.connection(1).failure(), Some(ConnectionError::Aborted));
}

/// RFC 6298 section 5.7 and section 3 (Karn): on a path with an RTT above the initial RTO the
/// request is repeated before its answer arrives. The echo in the answer identifies the request, so
/// that the first RTT sample is exact and no flow starts with a spurious timeout.
#[test]
fn the_handshake_measures_paths_longer_than_the_initial_rto() {
    for rtt_ms in [600, 1_100, 2_000, 2_900] {
        let mut pair = Pair::new(
            &TransportConfig::default(),
            reno(),
            Delay(ms(rtt_ms / 2)),
            [200_000, 0],
        );
        pair.run(secs(60));
        let stats = pair.connection(0).stats();
        assert_eq!(stats.acked, 200_000, "{rtt_ms} ms");
        assert_eq!((stats.timeouts, stats.retransmitted), (0, 0), "{rtt_ms} ms");
        assert_eq!(stats.min_rtt, ms(rtt_ms), "{rtt_ms} ms");
    }
}

/// RFC 2018 section 4 and RFC 2883: contents of an ACK beyond its number.
#[test]
fn ranges_come_latest_first_and_duplicates_before_them() {
    use ccplane_transport::{Connection, Range, SequenceNumber, SideData};
    let config = std::sync::Arc::new(every_ack());
    let mut side = SideData::default();
    let mut client = Connection::connect(&config, Time::ZERO);
    let open = client
        .transmit(Time::ZERO, 0, &mut side)
        .expect("a request");
    let mut server = Connection::accept(&config, Time::ZERO, &open).expect("a connection");
    let mut control = Native::new_reno();
    let mut arrive = |n: u32| {
        let mut segment = Segment::default();
        segment.kind = SegmentKind::Data;
        segment.flags = Segment::PROOF_FLAG;
        segment.number = SequenceNumber(n);
        segment.length = 100;
        segment.transmission = 1;
        segment.set_offset(u64::from(n) * 100);
        server.handle(Time::ZERO, &segment, &SideData::default(), &mut control);
        let mut side = SideData::default();
        let ack = server
            .transmit(Time::ZERO, 0, &mut side)
            .expect("an ACK at once");
        let plain = |range: &Range| (range.start.0, range.end.0);
        (
            ack.ack.0,
            side.duplicate().as_ref().map(plain),
            side.ranges().iter().map(plain).collect::<Vec<_>>(),
        )
    };
    assert_eq!(arrive(0), (1, None, vec![]));
    assert_eq!(arrive(2), (1, None, vec![(2, 3)]));
    assert_eq!(arrive(4), (1, None, vec![(4, 5), (2, 3)]));
    assert_eq!(arrive(8), (1, None, vec![(8, 9), (4, 5), (2, 3)]));
    assert_eq!(arrive(3), (1, None, vec![(2, 5), (8, 9)]));
    assert_eq!(arrive(3), (1, Some((3, 4)), vec![(2, 5), (8, 9)]));
    assert_eq!(arrive(12), (1, None, vec![(12, 13), (2, 5), (8, 9)]));
    assert_eq!(arrive(1), (5, None, vec![(12, 13), (8, 9)]));
    assert_eq!(arrive(0), (5, Some((0, 1)), vec![(12, 13), (8, 9)]));
}

/// An ACK of many packets grows the window by at most `growth_limit` packets (RFC 3465, L = 2), and
/// by all of them without a limit.
#[test]
fn slow_start_counts_so_many_packets_of_an_ack() {
    let windows = [0, 2, 8].map(|growth_limit| {
        let config = TransportConfig {
            initial_window: 9,
            ack_every: 8,
            quick_acks: 0,
            growth_limit,
            ..TransportConfig::default()
        };
        let mut pair = Pair::new(&config, reno(), Delay(ms(10)), [1 << 40, 0]);
        // A handshake and a round trip: the first packet proves the client's address and is
        // acknowledged alone, then eight.
        pair.run(Time::from_micros(45_000));
        pair.connection(0).window()
    });
    assert_eq!(windows, [18, 12, 18]);
}

/// JumpStart: the whole flow is sent evenly within the first round trip, and arrives half a round
/// trip later.
#[test]
fn a_jump_start_spreads_the_flow_over_the_first_round_trip() {
    let config = TransportConfig {
        jump_start: true,
        pacing: true,
        ..every_ack()
    };
    let mut pair = Pair::new(&config, reno(), Delay(ms(10)), [500 * MSS_BYTES, 0]);
    pair.run(Time::from_micros(20_500));
    assert_eq!(pair.connection(0).cwnd(), 500 * MSS_BYTES);
    let early = pair.connection(0).stats().sent / MSS_BYTES;
    assert!(
        early < 30,
        "{early} of 500 packets within half a millisecond"
    );
    while pair.received(1) < 500 * MSS_BYTES {
        assert!(pair.step(secs(5)));
    }
    // A handshake, a round trip at 120 % of its rate, and the one-way delay of the last packet.
    let took = pair.now.as_micros();
    assert!((46_000..47_500).contains(&took), "{took} µs");
    while !pair.connection(0).all_acked() {
        assert!(pair.step(secs(5)));
    }
    let stats = pair.connection(0).stats();
    assert_eq!(
        (stats.retransmitted, stats.lost, stats.ssthresh),
        (0, 0, 500 * MSS_BYTES)
    );
    assert!(
        stats.cwnd <= 502 * MSS_BYTES,
        "slow start is over: {}",
        stats.cwnd / MSS_BYTES
    );
}

#[test]
fn a_narrower_path_gets_shorter_segments_and_the_window_stays() {
    let mut longest = 0;
    let path = losing(|from, segment| {
        if from == 0 && segment.kind == SegmentKind::Data {
            longest = segment.length;
        }
        false
    });
    let mut pair = Pair::new(&every_ack(), reno(), path, [200 * MSS_BYTES, 0]);
    while pair.received(1) < 50 * MSS_BYTES {
        assert!(pair.step(secs(2)));
    }
    let cwnd = pair.connection(0).cwnd();
    pair.connection_mut(0).set_mss(1000);
    assert_eq!(
        (pair.connection(0).mss(), pair.connection(0).cwnd()),
        (1000, cwnd)
    );
    while !pair.connection(0).all_acked() && pair.step(secs(10)) {}
    assert_eq!(pair.received(1), 200 * MSS_BYTES);
    // The path MTU grows again; the segment size stays within the configuration.
    let cwnd = pair.connection(0).cwnd();
    pair.connection_mut(0).set_mss(u16::MAX);
    assert_eq!(
        (pair.connection(0).mss(), pair.connection(0).cwnd()),
        (MSS_BYTES, cwnd)
    );
    drop(pair);
    assert!(longest <= 1000, "{longest}");
}

/// A keep-alive probe is acknowledged at once, without data on either side.
#[test]
fn a_probe_is_answered_at_once() {
    let mut pair = Pair::new(
        &TransportConfig::default(),
        reno(),
        Delay(ms(10)),
        [1_000, 0],
    );
    pair.ends.iter_mut().for_each(|end| end.finishes = false);
    pair.run(secs(5));
    pair.now = secs(5);
    assert!(pair.connection(0).last_received() < secs(1));
    pair.connection_mut(0).probe();
    pair.run(secs(6));
    assert_eq!(pair.connection(0).last_received(), secs(5) + ms(20));
    assert_eq!(pair.received(1), 1_000);
}
