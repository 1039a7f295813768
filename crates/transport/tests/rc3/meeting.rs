//! Interaction of both loops and losses: RC3 does not affect class 0.

use ccplane_transport::{
    Connection, Native, Range, Rc3Stop, RecoveryPhase, Segment, SegmentKind, SequenceNumber,
    SideData, TransportConfig,
};
use ccplane_units::{Duration, Time};

use super::{
    INITIAL_WINDOW_SEGMENTS, IdleControl, MSS_BYTES, class_delays, count, cubic, no_loss, open,
    plain, rc3, reno, run, send_all, sent,
};
use crate::wire::{Bottleneck, Delay, Pair, Path, ms, secs};

/// Both loops send some segments, as RC3's copies are in flight when class 0 reaches them. Nothing
/// is marked lost or retransmitted, and duplicates that are not retransmissions are not reported.
#[test]
fn case_05_both_loops_send_the_same_segment() {
    for control in [reno(), cubic()] {
        let mut pair = run(
            &rc3(),
            control,
            class_delays(ms(13), no_loss),
            500 * MSS_BYTES,
        );
        pair.run(secs(1));
        let stats = pair.connection(0).stats();
        let tail = pair
            .connection(0)
            .rc3_stats()
            .expect("the second loop was used");
        assert!(tail.duplicates > 10, "{tail:?}");
        assert_eq!((stats.retransmitted, stats.lost, stats.timeouts), (0, 0, 0));
        assert_eq!(stats.ssthresh, u64::MAX);
        assert_eq!(pair.connection(0).phase(), RecoveryPhase::Open);
    }
}

/// Acknowledges in a class; the segment `echo` triggered the ACK.
fn acknowledge(
    client: &mut Connection,
    now: Time,
    class: u8,
    (ack, echo): (u32, u32),
    ranges: &[std::ops::Range<u32>],
) {
    let mut segment = Segment::default();
    (segment.class, segment.band, segment.ack, segment.window) =
        (class, class, SequenceNumber(ack), 1 << 20);
    (segment.echo, segment.echo_transmission) = (SequenceNumber(echo), 1);
    let mut side = SideData::default();
    for range in ranges {
        side.push(Range {
            start: SequenceNumber(range.start),
            end: SequenceNumber(range.end),
        });
        segment.flags = Segment::SIDE_FLAG;
    }
    client.handle(now, &segment, &side, &mut Native::new_reno());
}

/// A segment that both sent and RC3 delivered counts once, whichever acknowledgement reports it
/// first.
#[test]
fn case_05_what_came_of_both_loops_by_the_second() {
    // RC3's 10 to 13 have arrived, and only the initial window of class 0.
    let first = |client: &mut Connection, now| acknowledge(client, now, 0, (14, 9), &[]);
    let ranges = |client: &mut Connection, now| {
        acknowledge(client, now, 0, (10, 9), std::slice::from_ref(&(11..14)))
    };
    let second = |client: &mut Connection, now| acknowledge(client, now, 2, (14, 13), &[]);
    type Tells<'a> = &'a dyn Fn(&mut Connection, Time);
    let orders: [&[Tells<'_>]; 4] = [
        &[&first, &second],
        &[&second, &first],
        &[&ranges, &first, &second],
        &[&second, &ranges, &first],
    ];
    for (order, tell) in orders.into_iter().enumerate() {
        let (mut client, _, mut now) = open(rc3(), 100 * MSS_BYTES);
        send_all(&mut client, now);
        now += ms(20);
        acknowledge(&mut client, now, 0, (10, 9), &[]);
        let of_both = send_all(&mut client, now);
        assert!(of_both.len() > 4 && of_both.iter().all(|segment| segment.class == 0));
        for tell in tell {
            tell(&mut client, now + ms(9));
        }
        let tail = client.rc3_stats().expect("the second loop was used");
        assert_eq!(tail.arrived.iter().sum::<u64>(), 4, "order {order}");
        assert_eq!(tail.delivered_bytes, 0, "order {order}");
    }
}

/// A duplicate in class 0 may concern a retransmission: it is reported in class 0, in any order of
/// arrivals and transmissions in the lower classes.
#[test]
fn case_05_a_duplicate_of_class_0_is_told_in_class_0() {
    for came in [[0, 1], [1, 0]] {
        for leaves in [[0, 1], [1, 0]] {
            let (mut client, mut server, now) = open(rc3(), 100 * MSS_BYTES);
            let mut control = Native::new_reno();
            let data = [(); 2].map(|()| {
                client
                    .transmit(now, 0, &mut SideData::default())
                    .expect("data")
            });
            for segment in &data {
                server.handle(now, segment, &SideData::default(), &mut control);
            }
            send_all(&mut server, now);
            for class in came {
                let mut again = data[usize::from(class)];
                (again.class, again.band) = (class, class);
                server.handle(now, &again, &SideData::default(), &mut control);
            }
            for class in leaves {
                let mut side = SideData::default();
                let ack = server.transmit(now, class, &mut side).expect("it is owed");
                assert!(ack.has_side());
                let told = side.duplicate().map(|range| range.start);
                assert_eq!(
                    told,
                    Some(SequenceNumber(u32::from(class))),
                    "{came:?}, {leaves:?}"
                );
            }
        }
    }
}

/// In a repair, a duplicate of a segment that both sent does not prove a spurious retransmission.
#[test]
fn case_05_a_meeting_in_a_repair_undoes_nothing() {
    // The first segment is lost; RC3's copies of the next ones arrive after those of class 0.
    let lose = |from: usize, s: &Segment| {
        from == 0 && s.class == 0 && s.number.0 == 0 && s.transmission == 1
    };
    let mut pair = Pair::new(
        &rc3(),
        reno(),
        class_delays(ms(29), lose),
        [60 * MSS_BYTES, 0],
    );
    let mut reduced = false;
    while !pair.all_acked() {
        assert!(pair.step(secs(10)));
        reduced |= pair.connection(0).phase() == RecoveryPhase::Recovery;
    }
    let stats = pair.connection(0).stats();
    assert!(reduced && stats.retransmitted == 1, "{stats:?}");
    assert!(
        pair.connection(0)
            .rc3_stats()
            .is_some_and(|tail| tail.duplicates > 0)
    );
    assert_eq!(stats.ssthresh, 5 * MSS_BYTES, "the reduction stands");
}

/// An acknowledgement that covers segments class 0 never sent: to the middle, and to the end.
#[test]
fn case_06_the_bump() {
    // The tail overtakes class 0: when class 0 has filled the front, everything has arrived.
    let mut pair = Pair::new(
        &rc3(),
        reno(),
        class_delays(ms(5), no_loss),
        [100 * MSS_BYTES, 0],
    );
    pair.log = Some(Vec::new());
    while !pair.all_acked() {
        assert!(pair.step(secs(10)));
    }
    assert_eq!(
        pair.now,
        Time::ZERO + ms(40),
        "with the acknowledgement of the initial window"
    );
    assert_eq!(count(&pair, 0), INITIAL_WINDOW_SEGMENTS);
    let sender = pair.connection(0);
    assert_eq!((sender.in_flight(), sender.outstanding()), (0, 0));
    pair.run(secs(100));
    assert!(
        pair.is_over() && pair.connection(0).stats().timeouts == 0,
        "no timer is left"
    );

    // With a hole the ACK advances to the hole, and from there to the end. No other ACK reports the
    // arrivals.
    let lose =
        |from: usize, s: &Segment| s.class != 0 && (from == 1 || (50..53).contains(&s.number.0));
    let late = run(&rc3(), reno(), class_delays(ms(5), lose), 100 * MSS_BYTES);
    let tail = late
        .connection(0)
        .rc3_stats()
        .expect("the second loop was used");
    assert_eq!(tail.skips, 2, "{tail:?}");
    assert_eq!(late.connection(0).stats().retransmitted, 0);
    assert_eq!(count(&late, 0), INITIAL_WINDOW_SEGMENTS + 3);
    // The window grows per packet of class 0, however much the acknowledgement covered.
    assert!(late.connection(0).cwnd() <= (INITIAL_WINDOW_SEGMENTS + count(&late, 0)) * MSS_BYTES);
}

/// If nothing of RC3 arrives, class 0 sends the same packets at the same times as without RC3.
#[test]
fn case_07_all_of_it_is_lost() {
    for control in [reno(), cubic()] {
        for bytes in [
            (INITIAL_WINDOW_SEGMENTS + 1) * MSS_BYTES,
            73_000,
            146_001,
            1_459_999,
        ] {
            let lose = |_: usize, s: &Segment| s.class != 0;
            let with = run(&rc3(), control.clone(), class_delays(ms(10), lose), bytes);
            let without = run(&plain(), control.clone(), class_delays(ms(10), lose), bytes);
            let mut first = sent(&with);
            first.retain(|(_, segment)| segment.class == 0);
            assert_eq!(first, sent(&without), "{bytes} bytes");
            assert_eq!(with.now, without.now);
            assert_eq!(with.connection(0).cwnd(), without.connection(0).cwnd());
            let tail = with
                .connection(0)
                .rc3_stats()
                .expect("the second loop was used");
            assert_eq!(
                (tail.in_flight, tail.delivered_bytes, tail.arrived),
                (0, 0, [0; 4])
            );
        }
    }
}

/// Only holes in the tail are retransmitted, in class 0.
#[test]
fn case_08_holes_in_the_tail() {
    for hole in [1, 3, 20] {
        let missing = 40..40 + hole;
        let lose = |_: usize, s: &Segment| {
            s.class != 0 && s.kind == SegmentKind::Data && missing.contains(&s.number.0)
        };
        let pair = run(&rc3(), reno(), class_delays(ms(8), lose), 200 * MSS_BYTES);
        let of_first: Vec<u32> = sent(&pair)
            .iter()
            .filter(|(_, s)| s.class == 0)
            .map(|(_, s)| s.number.0)
            .collect();
        let expected: Vec<u32> = (0..INITIAL_WINDOW_SEGMENTS as u32)
            .chain(missing.clone())
            .collect();
        assert_eq!(of_first, expected);
        let tail = pair
            .connection(0)
            .rc3_stats()
            .expect("the second loop was used");
        assert_eq!(tail.unconfirmed().iter().sum::<u64>(), u64::from(hole));
        assert_eq!(tail.delivered_bytes, (190 - u64::from(hole)) * MSS_BYTES);
    }
}

/// Losses in the initial window after everything else has arrived: no new data can reveal them.
#[test]
fn case_09_losses_of_the_first_loop_when_the_tail_is_there() {
    for lost in [
        vec![9],
        vec![8, 9],
        vec![0],
        vec![0, 9],
        vec![3, 4, 5, 6, 7, 8, 9],
    ] {
        let lose = |from: usize, s: &Segment| {
            from == 0
                && s.class == 0
                && s.kind == SegmentKind::Data
                && s.transmission == 1
                && lost.contains(&s.number.0)
        };
        let pair = run(&rc3(), reno(), class_delays(ms(5), lose), 100 * MSS_BYTES);
        let stats = pair.connection(0).stats();
        assert_eq!(stats.timeouts, 0, "{lost:?}: a probe finds it: {stats:?}");
        assert!(pair.now < Time::ZERO + ms(200), "{lost:?}: {:?}", pair.now);
        assert!(
            stats.ssthresh < u64::MAX,
            "{lost:?}: a loss of class 0 causes a reduction"
        );
    }
}

/// Lost, late or reordered acknowledgements of RC3 cost only duplicates.
#[test]
fn case_10_its_acknowledgements_are_lost_late_or_reordered() {
    let all = |now: Time,
               from: usize,
               s: &mut Segment,
               arrivals: &mut Vec<Time>,
               late: &dyn Fn(u32) -> Option<Duration>| {
        let low_ack = from == 1 && s.class != 0;
        match low_ack.then(|| late(s.echo.0)) {
            Some(None) => {}
            Some(Some(late)) => arrivals.push(now + ms(10) + late),
            None => arrivals.push(now + ms(10)),
        }
    };
    let ways: [&dyn Fn(u32) -> Option<Duration>; 4] = [
        &|_| None,
        &|_| Some(ms(200)),
        &|number| Some(ms(u64::from(number % 7))),
        &|number| (number % 3 != 0).then_some(ms(1)),
    ];
    for (way, late) in ways.into_iter().enumerate() {
        let path = |now: Time, from: usize, s: &mut Segment, arrivals: &mut Vec<Time>| {
            all(now, from, s, arrivals, late)
        };
        let pair = run(&rc3(), reno(), path, 400 * MSS_BYTES);
        let stats = pair.connection(0).stats();
        assert_eq!(
            (stats.retransmitted, stats.lost, stats.timeouts),
            (0, 0, 0),
            "way {way}"
        );
        assert!(pair.now < Time::ZERO + ms(120), "way {way}: {:?}", pair.now);
    }
}

/// A timeout of class 0 keeps the record of segments that RC3 delivered.
#[test]
fn case_11_a_timeout_keeps_the_scoreboard() {
    let away = Time::ZERO + ms(30)..Time::ZERO + ms(500);
    let path = |now: Time, _: usize, s: &mut Segment, arrivals: &mut Vec<Time>| {
        // Nothing of class 0 passes, not even acknowledgements.
        if s.class != 0 || !away.contains(&(now + ms(10))) {
            arrivals.push(now + ms(10));
        }
    };
    let pair = run(&rc3(), reno(), path, 300 * MSS_BYTES);
    assert!(pair.connection(0).stats().timeouts > 0);
    let of_tail = sent(&pair)
        .iter()
        .filter(|(_, s)| s.class == 0 && u64::from(s.number.0) >= INITIAL_WINDOW_SEGMENTS)
        .count();
    assert!(
        of_tail <= 1,
        "{of_tail} of the tail were retransmitted, at most a probe"
    );
}

/// A peer that SACKed the first missing segment and never acknowledges it has discarded it.
#[test]
fn case_11_a_peer_that_reneges_gets_it_again() {
    let mut control = Native::new_reno();
    let (mut client, _, mut now) = open(rc3(), 100 * MSS_BYTES);
    for class in 0..3 {
        while client.has_segment(now, class) {
            client.transmit(now, class, &mut SideData::default());
        }
    }
    let mut ack = Segment::default();
    (ack.flags, ack.window, ack.echo, ack.echo_transmission) =
        (Segment::SIDE_FLAG, 1 << 20, SequenceNumber(9), 1);
    let mut side = SideData::default();
    let everything = Range {
        start: SequenceNumber(0),
        end: SequenceNumber(100),
    };
    side.push(everything);
    now += ms(20);
    client.handle(now, &ack, &side, &mut control);
    let mut again = Vec::new();
    while let Some(at) = client.next_timeout().filter(|at| *at < secs(2)) {
        now = at;
        client.on_timeout(now, &mut control);
        while client.has_segment(now, 0) {
            again.extend(client.transmit(now, 0, &mut SideData::default()));
        }
    }
    assert!(
        again
            .iter()
            .any(|segment| segment.number == SequenceNumber(0)),
        "{again:?}"
    );
}

/// SACKs of the tail from a reneging peer no longer count, whether class 0 had skipped the segments
/// or not; a segment that arrives again counts once.
#[test]
fn case_11_a_peer_that_reneges_on_the_tail() {
    for (said, flying, brought) in [
        ([50..100, 0..10].as_slice(), 40, 50),
        (std::slice::from_ref(&(0..100)), 0, 90),
    ] {
        let (mut client, _, mut now) = open(rc3(), 100 * MSS_BYTES);
        send_all(&mut client, now);
        let figures = |client: &Connection| {
            let tail = client.rc3_stats().expect("the second loop was used");
            let arrived = tail.arrived.iter().sum::<u64>();
            (tail.in_flight, arrived, tail.delivered_bytes)
        };
        now += ms(20);
        acknowledge(&mut client, now, 0, (0, 9), said);
        assert_eq!(figures(&client), (flying, brought, brought * MSS_BYTES));
        for _ in 0..4 {
            if client.stats().timeouts == 0 {
                now = client.next_timeout().expect("a timer");
                client.on_timeout(now, &mut Native::new_reno());
            }
        }
        assert_eq!(client.stats().timeouts, 1);
        assert_eq!(figures(&client), (if flying > 0 { 90 } else { 0 }, 0, 0));
        if flying > 0 {
            acknowledge(&mut client, now, 0, (0, 9), said);
            assert_eq!(figures(&client), (flying, brought, brought * MSS_BYTES));
        }
    }
}

/// `shrink` keeps the record of a partly delivered tail: its segments would otherwise count again.
#[test]
fn case_11_memory_that_is_given_back_forgets_nothing_of_the_tail() {
    let (mut client, _, mut now) = open(rc3(), 100 * MSS_BYTES);
    send_all(&mut client, now);
    now += ms(20);
    let tell = |client: &mut Connection| {
        acknowledge(client, now, 1, (0, 99), std::slice::from_ref(&(50..100)))
    };
    tell(&mut client);
    let before = *client.rc3_stats().expect("the second loop was used");
    assert_eq!(before.delivered_bytes, 50 * MSS_BYTES);
    client.shrink();
    tell(&mut client);
    assert_eq!(client.rc3_stats(), Some(&before));
}

#[test]
fn case_14_numbers_wrap_within_the_tail() {
    for before in [0, 1, 5, 10, 11, 60, 99] {
        let config = TransportConfig {
            first_number: u32::MAX - before,
            ..rc3()
        };
        let lose = |_: usize, s: &Segment| {
            s.class != 0 && s.kind == SegmentKind::Data && s.number.0.is_multiple_of(5)
        };
        let pair = run(&config, reno(), class_delays(ms(9), lose), 100 * MSS_BYTES);
        assert_eq!(pair.connection(0).stats().retransmitted, 0);
    }
}

/// Returns the window after each acknowledgement of class 0, and the RTTs, with the losses of
/// `lose`.
fn windows(
    control: [Native; 2],
    low: Duration,
    bytes: u64,
    lose: impl FnMut(usize, &Segment) -> bool,
) -> (Vec<u64>, Duration, Duration) {
    let mut pair = Pair::new(&rc3(), control, class_delays(low, lose), [bytes, 0]);
    pair.log = Some(Vec::new());
    let mut windows = Vec::new();
    let mut acks = 0;
    while !pair.all_acked() {
        assert!(pair.step(secs(100)));
        let sender = pair.connection(0);
        // One for each packet of class 0 reported as received.
        if sender.stats().delivered != acks {
            acks = sender.stats().delivered;
            windows.push(sender.cwnd());
        }
    }
    (
        windows,
        pair.connection(0).srtt(),
        pair.connection(0).min_rtt(),
    )
}

/// The window of class 0 per acknowledgement is the same with and without RC3's acknowledgements,
/// and those give no RTT sample.
#[test]
fn case_15_the_first_loops_window_does_not_depend_on_the_second() {
    for control in [reno(), cubic()] {
        for low in [8, 10, 13, 19, 31] {
            let bytes = 800 * MSS_BYTES;
            let (with, srtt, least) = windows(control.clone(), ms(low), bytes, no_loss);
            let (without, ..) = windows(control.clone(), ms(low), bytes, |from, s| {
                from == 1 && s.class != 0
            });
            let (alone, ..) = windows(control.clone(), ms(low), bytes, |_, s| s.class != 0);
            let both = with.len().min(without.len());
            assert!(both >= INITIAL_WINDOW_SEGMENTS as usize);
            assert_eq!(with[..both], without[..both], "the tail takes {low} ms");
            assert_eq!(
                with[..both],
                alone[..both],
                "as without the second loop; the tail takes {low} ms"
            );
            assert_eq!((srtt, least), (ms(20), ms(20)), "the tail takes {low} ms");
        }
    }
}

/// Time stamps belong to class 0: an acknowledgement of another class neither carries nor consumes
/// any.
#[test]
fn case_15_the_second_loop_takes_no_stamps() {
    let mut control = Native::new_reno();
    let (mut client, mut server, left) = open(rc3().stamped(), 100 * MSS_BYTES);
    let (came, answered) = (Time::ZERO + ms(31), Time::ZERO + ms(33));
    for class in [0, 1] {
        let mut side = SideData::default();
        let data = client.transmit(left, class, &mut side).expect("data");
        assert!(data.kind == SegmentKind::Data && side.stamped);
        server.handle(came, &data, &side, &mut control);
    }
    let mut low = SideData::default();
    let ack = server
        .transmit(answered, 1, &mut low)
        .expect("of the tail's");
    assert!(ack.class == 1 && ack.has_side() && !low.stamped);
    let mut first = SideData::default();
    server
        .transmit(answered, 0, &mut first)
        .expect("of the first's");
    assert!(first.stamped);
    assert_eq!((first.t1, first.t2, first.t3), (left, came, answered));
}

/// The window is also the same if packets of class 0 are lost: the same ones in both runs, by their
/// order of transmission.
#[test]
fn case_15_with_the_same_losses_of_the_first_loop() {
    for lost in [2, 7, 9] {
        let lose = |low_acks: bool| {
            move |from: usize, s: &Segment| {
                let first = from == 0
                    && s.class == 0
                    && s.number.0 == lost
                    && s.transmission == 1
                    && s.kind == SegmentKind::Data;
                first || (from == 1 && s.class != 0 && !low_acks)
            }
        };
        let (with, ..) = windows(reno(), ms(13), 400 * MSS_BYTES, lose(true));
        let (without, ..) = windows(reno(), ms(13), 400 * MSS_BYTES, lose(false));
        let both = with.len().min(without.len());
        assert_eq!(with[..both], without[..both], "segment {lost} is lost");
    }
}

/// If one acknowledgement covers segments still in flight in class 0, a full window stays full and
/// no burst is sent.
#[test]
fn case_15_a_bump_does_not_empty_the_window() {
    // RC3's copies arrive just before those of class 0 in the second round.
    let path = class_delays(ms(29), no_loss);
    let mut pair = Pair::new(&rc3(), reno(), path, [2_000 * MSS_BYTES, 0]);
    let mut flying = 0u64;
    pair.log = Some(Vec::new());
    let mut most = Vec::new();
    while pair.received(1) < 2_000 * MSS_BYTES {
        let before = pair.log.as_ref().map_or(0, Vec::len);
        assert!(pair.step(secs(10)));
        let log = pair.log.as_ref().expect("it is kept");
        let left = log[before..]
            .iter()
            .filter(|(_, from, s)| *from == 0 && s.class == 0 && s.kind == SegmentKind::Data);
        flying = left.count() as u64;
        most.push(flying);
    }
    let burst = most.iter().skip(3).max().copied().unwrap_or_default();
    assert!(burst <= 3, "{burst} packets of class 0 at once ({flying})");
}

/// Drops of RC3's packets in the host do not affect the window of class 0.
#[test]
fn case_16_local_drops() {
    for every in [1, 2, 3] {
        let lose = |from: usize, s: &Segment| {
            from == 0 && s.class != 0 && s.number.0.is_multiple_of(every)
        };
        let (with, ..) = windows(reno(), ms(10), 600 * MSS_BYTES, lose);
        let (alone, ..) = windows(reno(), ms(10), 600 * MSS_BYTES, |_, s| s.class != 0);
        let both = with.len().min(alone.len());
        assert_eq!(with[..both], alone[..both]);
    }
}

/// A window of four gives fewer RTT samples per round than the check needs. The samples of several
/// rounds are combined, so that RC3 stops even with such a small window.
#[test]
fn case_17_a_small_window_blocked_by_its_tail() {
    let config = TransportConfig {
        initial_window: 4,
        ack_every: 2,
        ..rc3()
    };
    // A queue without classes: pieces that saturate the link keep 50 ms of queue in it.
    let link = Bottleneck::new(1_250_000, ms(10), u64::MAX);
    let stopped = in_pieces(&config, link);
    assert!(
        matches!(
            stopped,
            Some(Rc3Stop::Delay { with, without }) if with > ms(40) && without < ms(25)
        ),
        "{stopped:?}"
    );
    assert_eq!(stopped.map(Rc3Stop::kind), Some("class 0 waits"));
    // If they do not share a queue, RC3 continues.
    assert_eq!(in_pieces(&config, Delay(ms(10))), None);
    assert_eq!(in_pieces(&config, class_delays(ms(60), no_loss)), None);
}

/// Writes forty pieces of 60 segments, one every 50 ms, with a fixed window. Returns the reason why
/// RC3 stopped.
fn in_pieces(config: &TransportConfig, path: impl Path) -> Option<Rc3Stop> {
    let mut pair = Pair::new(config, [IdleControl, IdleControl], path, [0, 0]);
    pair.ends[0].finishes = false;
    for piece in 1..=40 {
        pair.connection_mut(0).write(60 * MSS_BYTES);
        pair.run(Time::ZERO + ms(50 * piece));
    }
    let sender = pair.connection(0);
    assert_eq!(sender.window(), 4);
    sender
        .rc3_stats()
        .expect("the second loop was used")
        .stopped
}
