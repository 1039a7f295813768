//! Hostile peers: their cost is bounded and counted, and no byte is wrong.

use std::sync::Arc;

use ccplane_transport::{
    CLASS_COUNT, Connection, Native, Range, Rc3Stop, Segment, SegmentKind, SequenceNumber,
    SideData, TransportConfig,
};
use ccplane_units::Time;

use super::{INITIAL_WINDOW_SEGMENTS, MSS_BYTES, count, open, rc3, reno, run, send_all, sent};
use crate::wire::{Pair, ms, secs};

/// Acknowledgements of data that was never sent have no effect.
#[test]
fn data_that_was_never_sent_is_acknowledged() {
    let (mut client, _, now) = open(rc3(), 100 * MSS_BYTES);
    // Only the initial window was sent: nothing of the tail is cut yet.
    for _ in 0..INITIAL_WINDOW_SEGMENTS {
        client
            .transmit(now, 0, &mut SideData::default())
            .expect("the initial window");
    }
    let before = (client.stats(), client.in_flight());
    for class in [0, 1, 2, 4, 7] {
        for (start, end) in [(10, 20), (50, 60), (0, 1 << 31), (5, 4), (u32::MAX, 12)] {
            let mut ack = Segment::default();
            (ack.class, ack.band, ack.ack, ack.flags) =
                (class, class, SequenceNumber(end), Segment::SIDE_FLAG);
            let mut side = SideData::default();
            side.push(Range {
                start: SequenceNumber(start),
                end: SequenceNumber(end),
            });
            if class == 0 {
                // In class 0 it acknowledges only segments that were sent.
                ack.ack = SequenceNumber(end.max(INITIAL_WINDOW_SEGMENTS as u32 + 1));
            }
            client.handle(now + ms(20), &ack, &side, &mut Native::new_reno());
        }
    }
    let stats = client.stats();
    assert_eq!(
        (stats.acked, stats.sent, client.in_flight()),
        (before.0.acked, before.0.sent, before.1)
    );
    let rest = send_all(&mut client, now + ms(20));
    assert!(
        rest.iter().any(|segment| segment.number.0 == 99),
        "its end is still sent"
    );
}

/// Acknowledgements of the part of the tail that is cut but not sent have no effect either.
#[test]
fn acks_of_the_unsent_tail_have_no_effect() {
    for class in [0, 1, 3] {
        let (mut client, ..) = open(rc3(), 100 * MSS_BYTES);
        let now = Time::ZERO + ms(20);
        for _ in 0..INITIAL_WINDOW_SEGMENTS {
            client
                .transmit(now, 0, &mut SideData::default())
                .expect("the initial window");
        }
        for _ in 0..5 {
            client
                .transmit(now, 1, &mut SideData::default())
                .expect("the end of the tail");
        }
        client.finish();
        for (start, end) in [(10, 100), (50, 60), (90, 96), (9, 50)] {
            let mut ack = Segment::default();
            (ack.class, ack.band, ack.ack, ack.flags) =
                (class, class, SequenceNumber(end), Segment::SIDE_FLAG);
            (ack.echo, ack.echo_transmission) = (SequenceNumber(0), 1);
            let mut side = SideData::default();
            side.push(Range {
                start: SequenceNumber(start),
                end: SequenceNumber(end),
            });
            client.handle(now + ms(20), &ack, &side, &mut Native::new_reno());
        }
        assert_eq!(client.stats().acked, 0, "class {class}");
        let rest = send_all(&mut client, now + ms(20));
        let sent = |number| {
            rest.iter()
                .any(|segment| segment.number == SequenceNumber(number))
        };
        assert!((10..95).all(sent), "class {class}: the rest is sent");
    }
}

/// A peer that reports the whole tail as received in class 0: RC3 stops with that reason.
#[test]
fn everything_is_said_to_have_come_in_class_0() {
    let strip = |now: Time, _: usize, s: &mut Segment, arrivals: &mut Vec<Time>| {
        s.band = 0;
        arrivals.push(now + ms(10));
    };
    let pair = run(&rc3(), reno(), strip, 3_000 * MSS_BYTES);
    let tail = pair
        .connection(0)
        .rc3_stats()
        .expect("the second loop was used");
    assert!(
        matches!(tail.stopped, Some(Rc3Stop::Marking { class: 1..=4 })),
        "{tail:?}"
    );
    assert!(
        tail.stopped
            .is_some_and(|why| why.to_string().contains("arrived in class 0"))
    );
    assert_eq!(tail.stopped.map(Rc3Stop::kind), Some("marking lost"));
    // The rest of the connection is unaffected.
    let mut pair = Pair::new(&rc3(), reno(), strip, [100 * MSS_BYTES, 0]);
    pair.ends[0].finishes = false;
    pair.log = Some(Vec::new());
    pair.run(secs(1));
    let before = sent(&pair).len() as u64 - count(&pair, 0);
    pair.connection_mut(0).write(500 * MSS_BYTES);
    pair.run(secs(2));
    assert_eq!(pair.received(1), 600 * MSS_BYTES);
    assert_eq!(
        sent(&pair).len() as u64 - count(&pair, 0),
        before,
        "nothing more of the second loop"
    );
    // Without verification RC3 continues.
    let blind = TransportConfig {
        rc3: Some(ccplane_transport::Rc3 {
            verify: false,
            ..ccplane_transport::Rc3::default()
        }),
        ..rc3()
    };
    let pair = run(&blind, reno(), strip, 300 * MSS_BYTES);
    assert_eq!(
        pair.connection(0).rc3_stats().and_then(|tail| tail.stopped),
        None
    );
    assert!(
        pair.connection(1)
            .rc3_arrivals()
            .is_some_and(|arrived| arrived.remarked > 200)
    );
}

/// A peer that sends in the highest class and in undefined classes: the former is acknowledged
/// below class 0, with bounded memory; the latter are dropped.
#[test]
fn everything_is_sent_in_the_highest_or_no_class() {
    let (mut server, ..) = open(rc3(), 100 * MSS_BYTES);
    let now = Time::ZERO + ms(20);
    send_all(&mut server, now);
    let before = server.memory_bytes();
    let mut answered = 0;
    for n in 0..50_000u32 {
        let mut data = Segment::default();
        (data.kind, data.length, data.number) = (SegmentKind::Data, 100, SequenceNumber(2 * n + 1));
        (data.class, data.band, data.transmission) = ((n % 16) as u8, (n % 256) as u8, 1);
        data.set_offset(u64::from(2 * n + 1) * 100);
        server.handle(now, &data, &SideData::default(), &mut Native::new_reno());
        let answers = send_all(&mut server, now);
        match data.class {
            class @ 0..CLASS_COUNT => assert!(
                answers.iter().all(|answer| answer.class == class),
                "{answers:?}"
            ),
            _ => assert_eq!(answers, [], "class {}", data.class),
        }
        answered += answers.len();
    }
    assert_eq!(answered, 25_000);
    assert_eq!(
        server.rc3_arrivals().map(|arrived| arrived.refused),
        Some(25_000)
    );
    // 16,384 ranges of 24 bytes, with spare capacity: further ranges count as lost.
    assert!(
        server.memory_bytes() < before + (1 << 20),
        "{}",
        server.memory_bytes()
    );
}

/// A peer that sends beyond the advertised window: dropped and counted.
#[test]
fn a_flood_beyond_the_window() {
    let config = Arc::new(TransportConfig {
        receive_buffer: 50 * MSS_BYTES as u32,
        ..rc3()
    });
    let mut side = SideData::default();
    let mut peer = Connection::connect(&config, Time::ZERO);
    let request = peer.transmit(Time::ZERO, 0, &mut side).expect("a request");
    let mut server = Connection::accept(&config, Time::ZERO, &request).expect("a connection");
    let mut control = Native::new_reno();
    let flood = |server: &mut Connection, control: &mut Native, numbers: std::ops::Range<u32>| {
        for n in numbers {
            let mut data = Segment::default();
            (data.kind, data.length, data.number, data.flags) = (
                SegmentKind::Data,
                MSS_BYTES as u16,
                SequenceNumber(n),
                Segment::PROOF_FLAG,
            );
            (data.class, data.band, data.transmission) = (1 + (n % 4) as u8, 1, 1);
            data.set_offset(u64::from(n) * MSS_BYTES);
            server.handle(Time::ZERO, &data, &SideData::default(), control);
        }
    };
    flood(&mut server, &mut control, 1..10_000);
    let arrived = server.rc3_arrivals().expect("something came");
    // Segment 49 is the last that fits; the first is missing.
    assert_eq!(
        (arrived.refused, arrived.held_bytes),
        (10_000 - 50, 49 * MSS_BYTES)
    );
    assert_eq!(server.readable(), 0);
    flood(&mut server, &mut control, 0..1);
    assert_eq!(server.readable(), 50 * MSS_BYTES);
    assert_eq!(
        server.rc3_arrivals().map(|arrived| arrived.held_bytes),
        Some(0)
    );
}
