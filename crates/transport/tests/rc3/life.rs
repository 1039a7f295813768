//! RC3: both directions, end of a connection, memory, wasted transmissions.

use ccplane_transport::{
    Connection, ConnectionError, ConnectionState, Native, Segment, SegmentKind, SequenceNumber,
    SideData, TransportConfig,
};
use ccplane_units::Time;

use super::{
    INITIAL_WINDOW_SEGMENTS, MSS_BYTES, class_delays, count, no_loss, rc3, reno, run, sent,
};
use crate::wire::{Delay, Pair, ms, secs};

/// Both ends use RC3: data of either end acknowledges the other's data of its class.
#[test]
fn case_21_both_directions_at_once() {
    let config = TransportConfig {
        receive_buffer: 60 * MSS_BYTES as u32,
        ..rc3()
    };
    let mut pair = Pair::new(
        &config,
        reno(),
        class_delays(ms(9), no_loss),
        [300 * MSS_BYTES, 250 * MSS_BYTES],
    );
    pair.log = Some(Vec::new());
    pair.run(secs(100));
    assert!(pair.is_over());
    assert_eq!(
        (pair.received(1), pair.received(0)),
        (300 * MSS_BYTES, 250 * MSS_BYTES)
    );
    let log = pair.log.as_ref().expect("it is kept");
    let carries = |(_, _, s): &&(Time, usize, Segment)| {
        s.kind == SegmentKind::Data && s.class != 0 && s.echo_band != 0
    };
    assert!(
        log.iter().filter(carries).count() > 0,
        "data carries acknowledgements of its class"
    );
    for end in 0..2 {
        let stats = pair.connection(end).stats();
        assert_eq!((stats.retransmitted, stats.timeouts), (0, 0));
        assert!(
            pair.connection(end)
                .rc3_stats()
                .is_some_and(|tail| tail.delivered_bytes > 100 * MSS_BYTES)
        );
    }
}

/// Abort while the tail is in flight: nothing of it is sent afterwards, and late arrivals do no
/// harm.
#[test]
fn case_22_a_reset_with_a_tail_under_way() {
    for who in 0..2 {
        let mut pair = Pair::new(
            &rc3(),
            reno(),
            class_delays(ms(40), no_loss),
            [3_000 * MSS_BYTES, 0],
        );
        pair.log = Some(Vec::new());
        pair.run(Time::ZERO + ms(35));
        pair.connection_mut(who).abort();
        let before = sent(&pair).len();
        let told = Time::ZERO + ms(46);
        pair.run(told);
        let after = sent(&pair).len();
        pair.run(secs(100));
        assert_eq!(
            sent(&pair).len(),
            after,
            "nothing more after the peer's announcement"
        );
        assert!(who == 1 || after == before, "nor after giving up");
        assert_eq!(
            pair.connection(who).failure(),
            Some(ConnectionError::Aborted)
        );
        assert_eq!(
            pair.connection(1 - who).failure(),
            Some(ConnectionError::Reset)
        );
        assert_eq!(pair.connection(0).classes(pair.now) & !1, 0);
        for end in 0..2 {
            assert_eq!(pair.connection(end).state(), ConnectionState::Closed);
        }
    }
}

/// Segments of the tail that arrive after the end of the connection are dropped.
#[test]
fn case_22_late_packets_of_a_finished_stream() {
    let mut pair = Pair::new(
        &rc3(),
        reno(),
        class_delays(ms(400), no_loss),
        [60 * MSS_BYTES, 0],
    );
    pair.run(secs(100));
    assert!(pair.is_over());
    assert_eq!(pair.received(1), 60 * MSS_BYTES);
    assert!((0..2).all(|end| pair.connection(end).failure().is_none()));
}

/// Requests and answers are lost. Segments sent before the server's confirmation carry the proof of
/// address, including those of the tail, and nothing is sent before the answer.
#[test]
fn case_23_the_handshake_is_repeated() {
    for lost in 0..3 {
        let mut seen = 0;
        let lose = move |_: usize, s: &Segment| {
            let of_handshake = matches!(s.kind, SegmentKind::Open | SegmentKind::OpenReply);
            seen += u32::from(of_handshake);
            of_handshake && seen <= lost
        };
        let pair = run(&rc3(), reno(), class_delays(ms(10), lose), 100 * MSS_BYTES);
        let log = pair.log.as_ref().expect("it is kept");
        let answered = log
            .iter()
            .position(|(_, from, s)| *from == 1 && s.kind == SegmentKind::OpenReply);
        let first_low = log
            .iter()
            .position(|(_, from, s)| *from == 0 && s.class != 0);
        assert!(first_low > answered);
        let (_, _, low) = log[first_low.expect("there is a tail")];
        assert!(low.has_flag(Segment::PROOF_FLAG), "{low:?}");
        assert_eq!(pair.connection(0).stats().retransmitted, 0);
    }
    // A server that receives the tail first has the proof that it needs.
    let late = |now: Time, from: usize, s: &mut Segment, arrivals: &mut Vec<Time>| {
        let front = from == 0 && s.class == 0 && s.kind == SegmentKind::Data;
        arrivals.push(now + ms(if front { 15 } else { 10 }));
    };
    run(&rc3(), reno(), late, 100 * MSS_BYTES);
}

/// A path with changes: of its delay, and of the packet size that a router accepts, for the tail or
/// for all packets.
#[test]
fn case_24_the_path_changes() {
    let change = Time::ZERO + ms(30);
    for (before, after) in [(10, 60), (60, 10)] {
        let path = move |now: Time, _: usize, _: &mut Segment, arrivals: &mut Vec<Time>| {
            arrivals.push(now + ms(if now < change { before } else { after }));
        };
        let pair = run(&rc3(), reno(), path, 600 * MSS_BYTES);
        assert_eq!(
            pair.connection(0).stats().timeouts,
            0,
            "from {before} to {after} ms"
        );
    }
    // Full packets of the tail do not fit; its last, short one does.
    let lose = |_: usize, s: &Segment| s.class != 0 && u64::from(s.length) == MSS_BYTES;
    let pair = run(
        &rc3(),
        reno(),
        class_delays(ms(10), lose),
        300 * MSS_BYTES + 1,
    );
    let tail = pair
        .connection(0)
        .rc3_stats()
        .expect("the second loop was used");
    assert_eq!(tail.arrived.iter().sum::<u64>(), 1);
    assert_eq!(pair.connection(0).stats().retransmitted, 0);
    // A change of address is handled by the driver: the connection has none.
}

/// The receiver stores no more than it advertised, however the holes lie, and acknowledges each
/// packet at most once.
#[test]
fn case_25_memory_and_acknowledgements_of_the_receiver() {
    let buffer = 2_000 * MSS_BYTES;
    let config = TransportConfig {
        receive_buffer: buffer as u32,
        ..rc3()
    };
    let every_second = |from: usize, s: &Segment| {
        from == 0
            && s.kind == SegmentKind::Data
            && s.number.0.is_multiple_of(2)
            && s.transmission < 3
    };
    let mut pair = Pair::new(
        &config,
        reno(),
        class_delays(ms(10), every_second),
        [10_000 * MSS_BYTES, 0],
    );
    let mut most = 0;
    for _ in 0..200_000 {
        if !pair.step(secs(60)) {
            break;
        }
        if let Some(receiver) = &pair.ends[1].connection {
            let held = receiver
                .rc3_arrivals()
                .map_or(0, |arrived| arrived.held_bytes);
            assert!(held <= buffer);
            most = most.max(receiver.memory_bytes());
        }
    }
    assert!(pair.received(1) > 0);
    // A range takes 24 bytes, and there are at most as many ranges as half the packets in the
    // window.
    assert!(most < 200_000, "{most} bytes");

    let pair = run(
        &rc3(),
        reno(),
        class_delays(ms(10), no_loss),
        2_000 * MSS_BYTES,
    );
    let data = sent(&pair).len() as u64;
    assert!(
        pair.ends[1].sent_acks <= data + 2,
        "{} for {data}",
        pair.ends[1].sent_acks
    );
}

/// A receiver with little memory accepts everything it advertised, and the flow completes.
#[test]
fn case_25_a_receiver_with_little_memory() {
    for buffer in [
        1,
        MSS_BYTES / 2,
        2 * MSS_BYTES,
        INITIAL_WINDOW_SEGMENTS * MSS_BYTES + 1,
    ] {
        let little = TransportConfig {
            receive_buffer: buffer as u32,
            ..rc3()
        };
        let bytes = (buffer * 20).min(100 * MSS_BYTES);
        let mut pair = Pair::with([rc3(), little], reno(), Delay(ms(1)), [bytes, 0]);
        pair.run(secs(10_000));
        assert_eq!(pair.received(1), bytes, "a buffer of {buffer}");
        assert!(
            pair.connection(1)
                .rc3_arrivals()
                .is_none_or(|arrived| arrived.refused == 0)
        );
    }
}

/// Wasted transmissions of RC3: both ends' counts match the actual number.
#[test]
fn case_26_waste() {
    for (low, every) in [(8, 5), (13, 7), (25, 3)] {
        let lose = |from: usize, s: &Segment| {
            from == 0 && s.class != 0 && s.number.0.is_multiple_of(every)
        };
        let mut pair = run(&rc3(), reno(), class_delays(ms(low), lose), 600 * MSS_BYTES);
        pair.run(secs(1));
        let low_sent: Vec<Segment> = sent(&pair)
            .iter()
            .map(|(_, s)| *s)
            .filter(|s| s.class != 0)
            .collect();
        let dropped = low_sent
            .iter()
            .filter(|s| s.number.0.is_multiple_of(every))
            .count() as u64;
        let tail = *pair
            .connection(0)
            .rc3_stats()
            .expect("the second loop was used");
        let arrived = pair.connection(1).rc3_arrivals().expect("something came");
        assert_eq!(tail.sent.iter().sum::<u64>(), low_sent.len() as u64);
        assert_eq!(
            arrived.arrived.iter().sum::<u64>(),
            low_sent.len() as u64 - dropped
        );
        let both: Vec<_> = low_sent
            .iter()
            .filter(|s| s.number.0 % every != 0)
            .filter(|low| {
                sent(&pair)
                    .iter()
                    .any(|(_, first)| first.class == 0 && first.number == low.number)
            })
            .collect();
        // A packet that arrives twice is wasted once.
        assert_eq!(
            tail.duplicates,
            both.len() as u64,
            "the tail takes {low} ms"
        );
        assert!(tail.unconfirmed().iter().sum::<u64>() >= dropped);
        assert!(tail.unconfirmed().iter().sum::<u64>() <= dropped + both.len() as u64);
        let first = count(&pair, 0);
        assert_eq!(
            first + low_sent.len() as u64 - both.len() as u64 - dropped,
            600,
            "the tail takes {low} ms"
        );
    }
}

/// Only a connection request creates a connection, with or without a class.
#[test]
fn case_23_no_connection_from_a_tail() {
    let mut data = Segment::default();
    (data.kind, data.class, data.band, data.length) = (SegmentKind::Data, 1, 1, 100);
    data.number = SequenceNumber(7);
    let config = std::sync::Arc::new(rc3());
    assert!(Connection::accept(&config, Time::ZERO, &data).is_none());
    let mut client = Connection::connect(&config, Time::ZERO);
    client.write(100 * MSS_BYTES);
    client.handle(
        Time::ZERO,
        &data,
        &SideData::default(),
        &mut Native::new_reno(),
    );
    assert_eq!(client.classes(Time::ZERO), 1, "only the request waits");
}
