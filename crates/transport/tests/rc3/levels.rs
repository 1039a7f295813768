//! Segments sent by RC3, and their classes.

use ccplane_transport::{
    Connection, Native, Rc3, Rc3Stop, Segment, SegmentKind, SequenceNumber, SideData,
    TransportConfig,
};
use ccplane_units::Time;

use super::{
    INITIAL_WINDOW_SEGMENTS, IdleControl, MSS_BYTES, class_delays, count, no_loss, open, plain,
    rc3, reno, run, send_all, sent,
};
use crate::wire::{Delay, Pair, ms, secs};

#[test]
fn case_01_what_fits_the_initial_window_is_as_without_it() {
    for bytes in [
        1,
        MSS_BYTES,
        INITIAL_WINDOW_SEGMENTS * MSS_BYTES - 1,
        INITIAL_WINDOW_SEGMENTS * MSS_BYTES,
    ] {
        let [with, without] =
            [rc3(), plain()].map(|config| run(&config, reno(), Delay(ms(10)), bytes));
        assert_eq!(with.log, without.log, "{bytes} bytes");
        assert_eq!(with.connection(0).rc3_stats(), None);
        assert_eq!(
            with.connection(0).memory_bytes(),
            without.connection(0).memory_bytes()
        );
    }
}

/// Also if pacing delays the initial window.
#[test]
fn case_01_pacing_does_not_let_the_second_loop_have_the_initial_window() {
    let config = TransportConfig {
        pacing: true,
        ..rc3()
    };
    let pair = run(
        &config,
        reno(),
        Delay(ms(10)),
        INITIAL_WINDOW_SEGMENTS * MSS_BYTES,
    );
    assert_eq!(pair.connection(0).rc3_stats(), None);
}

#[test]
fn case_02_one_packet_more_than_the_initial_window() {
    let pair = run(
        &rc3(),
        reno(),
        class_delays(ms(9), no_loss),
        (INITIAL_WINDOW_SEGMENTS + 1) * MSS_BYTES,
    );
    let low: Vec<_> = sent(&pair)
        .into_iter()
        .filter(|(_, segment)| segment.class != 0)
        .collect();
    let [(at, segment)] = low.as_slice() else {
        panic!("{low:?}");
    };
    assert_eq!(
        (segment.class, segment.number, segment.offset()),
        (1, SequenceNumber(10), INITIAL_WINDOW_SEGMENTS * MSS_BYTES)
    );
    assert_eq!(*at, Time::ZERO + ms(20), "with the initial window");
    // The request, the answer and the one-way delay: as a flow that fits the initial window.
    assert_eq!(
        pair.connection(0)
            .rc3_stats()
            .map(|tail| tail.delivered_bytes),
        Some(MSS_BYTES)
    );
}

/// Distances 1 to 40 from the end are in class 1, up to 440 in class 2, up to 4,440 in class 3, all
/// others in class 4.
#[test]
fn case_03_edges_of_the_levels() {
    let expected = |place: u64| match place {
        0..=40 => 1,
        41..=440 => 2,
        441..=4_440 => 3,
        _ => 4,
    };
    for tail in [40, 41, 440, 441, 4_440, 4_441, 5_000] {
        let segments = INITIAL_WINDOW_SEGMENTS + tail;
        let mut pair = Pair::new(&rc3(), reno(), Delay(ms(10)), [segments * MSS_BYTES, 0]);
        pair.log = Some(Vec::new());
        pair.run(Time::ZERO + ms(25));
        let low: Vec<_> = sent(&pair)
            .into_iter()
            .filter(|(_, segment)| segment.class != 0)
            .collect();
        assert_eq!(low.len() as u64, tail);
        for (place, (_, segment)) in (1..).zip(&low) {
            assert_eq!(u64::from(segment.number.0), segments - place, "backwards");
            assert_eq!(segment.class, expected(place), "place {place} of {tail}");
        }
    }
}

#[test]
fn case_03_fewer_levels_and_other_sizes() {
    let one = Rc3 {
        levels: 1,
        ..Rc3::default()
    };
    assert!(
        [1, 40, 41, 5_000]
            .map(|place| one.class_at(place))
            .iter()
            .all(|class| *class == 1)
    );
    let two = Rc3 {
        levels: 2,
        first_level_segments: 3,
        ..Rc3::default()
    };
    assert_eq!(
        [3, 4, 33, 34, u64::MAX].map(|place| two.class_at(place)),
        [1, 2, 2, 2, 2]
    );
    // No configuration puts a segment in class 0 or above the highest level.
    let odd = |levels, first| Rc3 {
        levels,
        first_level_segments: first,
        ..Rc3::default()
    };
    assert_eq!(
        [odd(0, 40), odd(9, 0), odd(255, u32::MAX)].map(|tail| tail.class_at(u64::MAX)),
        [1, 4, 4]
    );
}

#[test]
fn case_04_a_size_that_is_not_a_multiple_of_a_segment() {
    for rest in [1, 7, MSS_BYTES - 1] {
        for segments in [
            INITIAL_WINDOW_SEGMENTS,
            INITIAL_WINDOW_SEGMENTS + 1,
            INITIAL_WINDOW_SEGMENTS + 60,
        ] {
            let bytes = segments * MSS_BYTES + rest;
            let pair = run(&rc3(), reno(), class_delays(ms(10), no_loss), bytes);
            let first_low = sent(&pair)
                .into_iter()
                .find(|(_, segment)| segment.class != 0);
            let (_, last) = first_low.expect("it has a tail");
            assert_eq!(
                (u64::from(last.length), last.offset()),
                (rest, segments * MSS_BYTES)
            );
            assert!(last.has_flag(Segment::FIN_FLAG));
            assert_eq!(pair.received(1), bytes);
            // Request, answer, one-way delay of the data and of its acknowledgement.
            assert_eq!(pair.now, Time::ZERO + ms(40), "{bytes} bytes");
        }
    }
}

/// RC3 respects the peer's window, continues when it opens, and a zero window is probed.
#[test]
fn case_12_the_peers_window_limits_the_tail() {
    let small = TransportConfig {
        receive_buffer: 30 * MSS_BYTES as u32,
        ..plain()
    };
    let mut pair = Pair::with([rc3(), small], reno(), Delay(ms(10)), [200 * MSS_BYTES, 0]);
    pair.log = Some(Vec::new());
    let mut seen = 0;
    while !pair.all_acked() {
        assert!(pair.step(secs(100)));
        let log = pair.log.as_ref().expect("it is kept");
        let edge = log.iter().filter(|(_, from, _)| *from == 1);
        let edge = edge
            .map(|(_, _, s)| u64::from(s.ack.0) * MSS_BYTES + u64::from(s.window))
            .max();
        for (_, from, segment) in &log[seen..] {
            if *from == 0 && segment.kind == SegmentKind::Data {
                let end = segment.offset() + u64::from(segment.length);
                assert!(
                    end <= edge.expect("it was answered"),
                    "{segment:?} beyond {edge:?}"
                );
            }
        }
        seen = log.len();
    }
    assert_eq!(pair.received(1), 200 * MSS_BYTES);
    assert_eq!(
        pair.connection(1)
            .rc3_arrivals()
            .map(|arrived| arrived.refused),
        Some(0)
    );
    assert!(
        count(&pair, 1) + count(&pair, 2) > 20,
        "a window that opens has its own tail"
    );

    // The application does not read: the tail fills the window and stops.
    let small = TransportConfig {
        receive_buffer: 30 * MSS_BYTES as u32,
        ..plain()
    };
    let mut pair = Pair::with([rc3(), small], reno(), Delay(ms(10)), [200 * MSS_BYTES, 0]);
    pair.ends[1].reads = false;
    pair.log = Some(Vec::new());
    pair.run(secs(5));
    assert_eq!(pair.received(1), 30 * MSS_BYTES);
    let sent_low = count(&pair, 1) + count(&pair, 2) + count(&pair, 3) + count(&pair, 4);
    assert_eq!(sent_low, 20);
    let probes = pair
        .log
        .iter()
        .flatten()
        .filter(|(_, _, segment)| segment.has_flag(Segment::PROBE_FLAG));
    assert!(probes.count() >= 3, "a closed window is probed");
    pair.ends[1].reads = true;
    pair.run(secs(100));
    assert_eq!(pair.received(1), 200 * MSS_BYTES);
}

/// A stream written in pieces: no segment is sent twice, and the ends of the pieces are not all in
/// class 1.
#[test]
fn case_13_many_writes_do_not_have_it_all_in_the_first_class() {
    let (mut client, _, now) = open(rc3(), INITIAL_WINDOW_SEGMENTS * MSS_BYTES);
    let first = send_all(&mut client, now);
    assert_eq!(first.len() as u64, INITIAL_WINDOW_SEGMENTS);
    let mut low = Vec::new();
    for _ in 0..200 {
        client.write(5 * MSS_BYTES);
        low.extend(send_all(&mut client, now));
    }
    assert_eq!(low.len(), 1_000);
    let mut numbers: Vec<u32> = low.iter().map(|segment| segment.number.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 1_000, "each once");
    let of = |class| low.iter().filter(|segment| segment.class == class).count();
    assert_eq!([of(1), of(2), of(3), of(4)], [40, 400, 560, 0]);
    assert_eq!(
        client.rc3_stats().map(|tail| tail.sent),
        Some([40, 400, 560, 0])
    );
}

/// Small writes do not become small packets: only one short packet is in flight at a time.
#[test]
fn case_13_short_writes_share_segments() {
    let (mut client, _, now) = open(rc3(), INITIAL_WINDOW_SEGMENTS * MSS_BYTES);
    send_all(&mut client, now);
    let mut low = Vec::new();
    for _ in 0..100 {
        client.write(100);
        low.extend(send_all(&mut client, now));
    }
    let lengths: Vec<u16> = low.iter().map(|segment| segment.length).collect();
    assert_eq!(lengths[0], 100, "the first leaves at once");
    assert_eq!(
        lengths.len(),
        10,
        "the others wait for a full segment: {lengths:?}"
    );
    assert!(
        lengths[1..]
            .iter()
            .all(|length| u64::from(*length) == MSS_BYTES)
    );
    let mut ack = Segment::default();
    (ack.class, ack.band, ack.ack) = (1, 1, SequenceNumber(0));
    (ack.flags, ack.window) = (Segment::SIDE_FLAG, 1 << 20);
    let mut side = SideData::default();
    side.push(ccplane_transport::Range {
        start: SequenceNumber(10),
        end: SequenceNumber(20),
    });
    client.handle(
        Time::from_micros(30_000),
        &ack,
        &side,
        &mut Native::new_reno(),
    );
    client.finish();
    let rest: Vec<u16> = send_all(&mut client, now)
        .iter()
        .map(|segment| segment.length)
        .collect();
    assert_eq!(rest, [900], "the end of the stream waits for nothing");
}

/// RC3 sends the end of each burst, however many there were before, and its state is bounded.
#[test]
fn case_13_very_many_bursts() {
    let bursts = 20_000;
    let mut pair = Pair::new(
        &rc3(),
        [IdleControl, IdleControl],
        class_delays(ms(5), no_loss),
        [0, 0],
    );
    pair.ends[0].finishes = false;
    for burst in 1..=bursts {
        pair.run(Time::ZERO + ms(30 * burst));
        pair.connection_mut(0)
            .write((INITIAL_WINDOW_SEGMENTS + 2) * MSS_BYTES);
    }
    pair.run(Time::ZERO + ms(30 * (bursts + 1)));
    let sender = pair.connection(0);
    let tail = sender.rc3_stats().expect("the second loop was used");
    assert_eq!((tail.sent, tail.stopped), ([2 * bursts, 0, 0, 0], None));
    assert_eq!(tail.delivered_bytes, 2 * bursts * MSS_BYTES);
    assert!(
        sender.memory_bytes() < 80_000,
        "{} bytes",
        sender.memory_bytes()
    );
}

/// Once nothing is in flight, the record of sent segments is freed: an idle connection keeps only
/// the statistics.
#[test]
fn case_13_a_connection_at_rest_remembers_no_bursts() {
    let mut pair = Pair::new(
        &rc3(),
        [IdleControl, IdleControl],
        class_delays(ms(5), no_loss),
        [0, 0],
    );
    pair.ends[0].finishes = false;
    for burst in 1..=200 {
        pair.run(Time::ZERO + ms(30 * burst));
        // The last one has no tail and is acknowledged without a timer.
        let tail = if burst < 200 { 2 } else { 0 };
        pair.connection_mut(0)
            .write((INITIAL_WINDOW_SEGMENTS + tail) * MSS_BYTES);
    }
    pair.run(Time::ZERO + ms(30 * 200 + 500));
    let sender = pair.connection(0);
    assert!(
        sender.memory_bytes() < 1_500,
        "{} bytes",
        sender.memory_bytes()
    );
    assert_eq!(
        sender.rc3_stats().map(|tail| tail.sent),
        Some([2 * 199, 0, 0, 0])
    );
}

/// `shrink` frees the same memory immediately.
#[test]
fn case_13_a_driver_that_wants_memory_back_gets_that_of_bursts() {
    let (mut client, _, mut now) = open(rc3(), INITIAL_WINDOW_SEGMENTS * MSS_BYTES);
    send_all(&mut client, now);
    let mut next = INITIAL_WINDOW_SEGMENTS as u32;
    for _ in 0..500 {
        answer(&mut client, &mut now, next);
        client.write((INITIAL_WINDOW_SEGMENTS + 2) * MSS_BYTES);
        for class in [0, 1] {
            while client.has_segment(now, class) {
                client
                    .transmit(now, class, &mut SideData::default())
                    .expect("data");
            }
        }
        next += INITIAL_WINDOW_SEGMENTS as u32 + 2;
    }
    answer(&mut client, &mut now, next);
    assert!(
        client.memory_bytes() > 5_000,
        "{} bytes",
        client.memory_bytes()
    );
    client.shrink();
    assert!(
        client.memory_bytes() < 1_500,
        "{} bytes",
        client.memory_bytes()
    );
    assert_eq!(
        client.rc3_stats().map(|tail| tail.sent),
        Some([2 * 500, 0, 0, 0])
    );
}

/// Acknowledges everything before `next` in class 0, a round trip later.
fn answer(client: &mut Connection, now: &mut Time, next: u32) {
    *now += ms(20);
    let mut ack = Segment::default();
    (ack.ack, ack.window) = (SequenceNumber(next), 1 << 20);
    (ack.echo, ack.echo_transmission) = (SequenceNumber(next - 1), 1);
    client.handle(*now, &ack, &SideData::default(), &mut IdleControl);
}

/// Returns a connection whose RC3 has just stopped with the maximum number of ranges, and its time.
fn scattered() -> (Connection, Time) {
    let (mut client, _, now) = open(rc3(), INITIAL_WINDOW_SEGMENTS * MSS_BYTES);
    send_all(&mut client, now);
    while client.rc3_stats().is_none_or(|tail| tail.stopped.is_none()) {
        client.write(3 * MSS_BYTES);
        let class = client.classes(now).trailing_zeros() as u8;
        client
            .transmit(now, class, &mut SideData::default())
            .expect("the last of a piece");
    }
    (client, now)
}

/// The ranges are freed when class 0 has passed them, and when the connection ends.
#[test]
fn case_13_pieces_are_forgotten_after_the_second_loop_has_stopped() {
    let pieces = 16 << 14;
    let (mut client, mut now) = scattered();
    let before = client.memory_bytes();
    assert!(before > pieces);
    let mut next = INITIAL_WINDOW_SEGMENTS as u32;
    // 2^14 pieces of three segments, and as many segments as are remembered.
    while next <= INITIAL_WINDOW_SEGMENTS as u32 + (4 << 14) + INITIAL_WINDOW_SEGMENTS as u32 {
        answer(&mut client, &mut now, next);
        client.write(INITIAL_WINDOW_SEGMENTS * MSS_BYTES);
        while client.has_segment(now, 0) {
            let data = client
                .transmit(now, 0, &mut SideData::default())
                .expect("data");
            next = data.number.0 + 1;
        }
    }
    let after = client.memory_bytes();
    assert!(
        after + pieces < before + 1_000,
        "{before} bytes before, {after} after"
    );

    let (mut client, _) = scattered();
    client.abort();
    assert!(
        client.memory_bytes() < 1_500,
        "{} bytes",
        client.memory_bytes()
    );
}

/// Pieces of which little more than the last segment is sent before the next piece: the sent
/// segments finally lie in more ranges than are tracked, and RC3 stops with that reason.
#[test]
fn case_13_more_pieces_than_are_remembered() {
    let (mut client, _, now) = open(rc3(), INITIAL_WINDOW_SEGMENTS * MSS_BYTES);
    send_all(&mut client, now);
    for piece in 1.. {
        client.write(3 * MSS_BYTES);
        let class = client.classes(now).trailing_zeros() as u8;
        let last = client.transmit(now, class, &mut SideData::default());
        assert!(
            last.is_some_and(|segment| segment.class > 0),
            "piece {piece}"
        );
        if let Some(why) = client.rc3_stats().and_then(|tail| tail.stopped) {
            assert_eq!((why, piece), (Rc3Stop::Scattered, 1 << 14));
            assert_eq!(why.kind(), "too scattered");
            break;
        }
    }
    assert_eq!(client.classes(now), 0, "nothing is promised any more");
}

/// Data written after RC3 had reached its end, and an end of the stream later than its last byte.
#[test]
fn case_13_growth_and_a_late_end() {
    let mut pair = Pair::new(
        &rc3(),
        reno(),
        class_delays(ms(10), no_loss),
        [100 * MSS_BYTES, 0],
    );
    pair.ends[0].finishes = false;
    pair.log = Some(Vec::new());
    pair.run(Time::ZERO + ms(100));
    assert_eq!(pair.received(1), 100 * MSS_BYTES);
    pair.connection_mut(0).write(300 * MSS_BYTES + 5);
    pair.run(Time::ZERO + ms(200));
    assert_eq!(pair.received(1), 400 * MSS_BYTES + 5);
    let before = sent(&pair).len();
    pair.ends[0].finishes = true;
    pair.run(secs(10));
    assert!(pair.is_over() && pair.connection(1).all_received());
    let end = &sent(&pair)[before..];
    assert_eq!(end.len(), 1);
    let (_, end) = end[0];
    assert!(
        end.has_flag(Segment::FIN_FLAG) && end.class == 0 && end.length == 0,
        "{end:?}"
    );
}

/// The state machine's part of the case: each segment has one class, so no packet belongs to two
/// levels at a boundary. The drivers that send in batches have their own test.
#[test]
fn case_20_no_packet_spans_two_levels() {
    let pair = run(
        &rc3(),
        reno(),
        class_delays(ms(10), no_loss),
        (INITIAL_WINDOW_SEGMENTS + 500) * MSS_BYTES,
    );
    for (_, segment) in sent(&pair) {
        assert!(u64::from(segment.length) <= MSS_BYTES);
        assert_eq!(segment.class, segment.band);
    }
    assert_eq!(
        [count(&pair, 1), count(&pair, 2), count(&pair, 3)],
        [40, 400, 60]
    );
}
