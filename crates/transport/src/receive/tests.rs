//! Acknowledgements that become due, and their contents.

use ccplane_units::Duration;

use super::*;

const MSS_BYTES: u32 = 1_000;

/// Receiver, clock and configuration.
struct TestReceiver {
    receiver: Receiver,
    config: TransportConfig,
    now: Time,
}

impl TestReceiver {
    /// Disables the immediate acknowledgements at the start of a stream.
    fn new() -> TestReceiver {
        TestReceiver::with(TransportConfig {
            mss: MSS_BYTES as u16,
            quick_acks: 0,
            ..TransportConfig::default()
        })
    }

    fn with(config: TransportConfig) -> TestReceiver {
        TestReceiver {
            receiver: Receiver::new(&config),
            config,
            now: Time::ZERO + Duration::from_secs(1),
        }
    }

    /// Receives a full segment. Returns true if an acknowledgement is due immediately.
    fn receive_full(&mut self, number: u32) -> bool {
        self.receive(&data(number))
    }

    fn receive(&mut self, segment: &Segment) -> bool {
        self.receiver.on_data(
            (self.now, self.now),
            segment,
            &SideData::default(),
            &Proof::default(),
            &self.config,
        );
        self.receiver.check();
        self.receiver.is_ack_due(0)
    }

    /// Sends an acknowledgement.
    fn send_ack(&mut self) -> (Segment, SideData) {
        let (mut segment, mut side) = (Segment::default(), SideData::default());
        self.receiver
            .acknowledge(self.now, &mut segment, &mut side, &self.config);
        (segment, side)
    }

    fn ranges(&mut self) -> Vec<(u32, u32)> {
        let (_, side) = self.send_ack();
        side.ranges()
            .iter()
            .map(|range| (range.start.0, range.end.0))
            .collect()
    }
}

fn data(number: u32) -> Segment {
    let mut segment = Segment::default();
    (segment.kind, segment.number, segment.transmission) =
        (SegmentKind::Data, SequenceNumber(number), 1);
    segment.length = MSS_BYTES as u16;
    segment.set_offset(u64::from(number) * u64::from(MSS_BYTES));
    segment
}

/// RFC 5681 section 4.2: an ACK for at least every second full-sized segment, and within 500 ms of
/// the first unacknowledged one.
#[test]
fn every_second_segment_is_acknowledged_and_one_alone_after_a_while() {
    let mut alone = TestReceiver::new();
    assert!(!alone.receive_full(0));
    assert_eq!(
        alone.receiver.ack_deadline,
        alone.now + alone.config.ack_delay
    );
    assert!(alone.config.ack_delay <= Duration::from_millis(500));
    assert!(alone.receive_full(1));
    assert_eq!(alone.send_ack().0.ack, SequenceNumber(2));
    assert_eq!(alone.receiver.ack_deadline, Time::MAX);
    alone.receive_full(2);
    alone.now = alone.receiver.ack_deadline;
    alone.receiver.on_timeout(alone.now);
    assert!(alone.receiver.is_ack_due(0));
}

/// RFC 5681 section 4.2: out-of-order data is acknowledged at once, and so is a segment that fills
/// a gap.
#[test]
fn a_gap_is_told_at_once_and_so_is_its_end() {
    let mut alone = TestReceiver::new();
    for number in [1, 3, 0, 2] {
        assert!(alone.receive_full(number), "{number}");
        alone.send_ack();
    }
    assert_eq!(
        (alone.receiver.next, alone.receiver.offset),
        (SequenceNumber(4), 4 * u64::from(MSS_BYTES))
    );
    assert!(!alone.receive_full(4), "in order again");
}

/// RFC 2018 section 4: the first block contains the segment that arrived last; the blocks reported
/// last follow.
#[test]
fn the_block_of_the_latest_arrival_comes_first() {
    let mut alone = TestReceiver::new();
    alone.receive_full(2);
    assert_eq!(alone.ranges(), [(2, 3)]);
    alone.receive_full(6);
    assert_eq!(alone.ranges(), [(6, 7), (2, 3)]);
    alone.receive_full(3);
    assert_eq!(alone.ranges(), [(2, 4), (6, 7)]);
    for number in [8, 10, 12] {
        alone.receive_full(number);
    }
    assert_eq!(
        alone.ranges(),
        [(12, 13), (10, 11), (8, 9), (2, 4)],
        "there is room for four"
    );
}

/// RFC 2883 section 4: a duplicate is reported once, as the first block, followed by ranges.
#[test]
fn a_duplicate_is_told_once_and_first() {
    let mut alone = TestReceiver::new();
    alone.receive_full(0);
    alone.receive_full(2);
    alone.send_ack();
    assert!(alone.receive_full(0), "at once");
    let (_, side) = alone.send_ack();
    assert_eq!(
        side.duplicate().map(|range| range.start),
        Some(SequenceNumber(0))
    );
    assert_eq!(side.ranges().len(), 1);
    assert_eq!(alone.send_ack().1.duplicate(), None);
    alone.receive_full(2);
    assert_eq!(
        alone.send_ack().1.duplicate().map(|range| range.start),
        Some(SequenceNumber(2))
    );
}

/// RFC 9293 section 3.10.7.4, first: data beyond the window is dropped but acknowledged.
#[test]
fn data_beyond_the_window_is_dropped() {
    let mut alone = TestReceiver::with(TransportConfig {
        mss: MSS_BYTES as u16,
        receive_buffer: 3 * MSS_BYTES,
        quick_acks: 0,
        ..TransportConfig::default()
    });
    assert!(alone.receive_full(3));
    let (segment, side) = alone.send_ack();
    assert_eq!(
        (segment.ack, side.ranges()),
        (SequenceNumber(0), [].as_slice())
    );
    assert_eq!(
        alone
            .receiver
            .rc3_arrivals()
            .map(|arrivals| arrivals.refused),
        Some(1)
    );
    assert!(alone.receive_full(2), "within the window, out of order");
    assert_eq!(alone.ranges(), [(2, 3)]);
}

/// RFC 9293 section 3.8.6 (SHLD-14): the right edge of the window never moves back. Section
/// 3.8.6.2.2: it advances by at least two segments, or half of the buffer.
#[test]
fn the_window_moves_in_steps_and_forwards_only() {
    let mut alone = TestReceiver::with(TransportConfig {
        mss: MSS_BYTES as u16,
        receive_buffer: 10 * MSS_BYTES,
        quick_acks: 0,
        ..TransportConfig::default()
    });
    let mut edge = 0;
    for number in 0..8 {
        alone.receive_full(number);
        let (segment, _) = alone.send_ack();
        let told = alone.receiver.offset + u64::from(segment.window);
        assert!(told >= edge, "{told} after {edge}");
        edge = told;
    }
    assert_eq!(edge, u64::from(10 * MSS_BYTES), "nothing was read");
    assert_eq!(
        alone.receiver.read(u64::from(MSS_BYTES), &alone.config),
        u64::from(MSS_BYTES)
    );
    assert_eq!(
        alone.send_ack().0.window,
        2 * MSS_BYTES,
        "a single segment sends no ACK"
    );
    alone.receiver.read(u64::from(MSS_BYTES), &alone.config);
    assert!(
        alone.receiver.is_ack_due(0),
        "the sender has little window left: an update is sent"
    );
    assert_eq!(alone.send_ack().0.window, 4 * MSS_BYTES);
}

/// RFC 8257 section 3.2: a change of the CE mark triggers an immediate ACK; marked bytes and
/// packets are counted.
#[test]
fn a_change_of_the_mark_is_told_at_once() {
    let mut alone = TestReceiver::with(TransportConfig {
        mss: MSS_BYTES as u16,
        quick_acks: 0,
        ack_every: 10,
        ..TransportConfig::default()
    });
    let arrives = |alone: &mut TestReceiver, number, ecn| {
        let mut segment = data(number);
        segment.ecn = ecn;
        let owes = alone.receive(&segment);
        if owes {
            alone.send_ack();
        }
        owes
    };
    assert!(!arrives(&mut alone, 0, Ecn::Ect0));
    assert!(arrives(&mut alone, 1, Ecn::Ce));
    assert!(!arrives(&mut alone, 2, Ecn::Ce));
    assert!(arrives(&mut alone, 3, Ecn::Ect0));
    let (segment, _) = alone.send_ack();
    assert_eq!((segment.ce_packets, segment.ce_bytes), (2, 2 * MSS_BYTES));
}

/// RFC 9293 section 3.10.4: the end of the stream counts when everything before it has arrived;
/// nothing is accepted behind it.
#[test]
fn the_end_waits_for_what_is_before_it() {
    let mut alone = TestReceiver::new();
    let mut last = data(1);
    last.flags |= Segment::FIN_FLAG;
    alone.receive(&last);
    assert!(!alone.receiver.is_complete());
    alone.receive_full(2);
    assert_eq!(alone.ranges(), [(1, 2)]);
    alone.receive_full(0);
    assert!(alone.receiver.is_complete());
    assert_eq!(alone.receiver.readable(), 2 * u64::from(MSS_BYTES));
}

/// The ACK names the transmission that triggered it, for Karn's algorithm (RFC 6298 section 3) and
/// Eifel (RFC 3522).
#[test]
fn echoes_identify_the_transmission() {
    let mut alone = TestReceiver::new();
    let mut again = data(0);
    again.transmission = 3;
    alone.receive(&again);
    let (segment, _) = alone.send_ack();
    assert_eq!(
        (segment.echo, segment.echo_transmission),
        (SequenceNumber(0), 3)
    );
}

/// Classes above 0 have their own ACKs: arrivals there give no RTT sample of class 0 and trigger no
/// ACK in it.
#[test]
fn a_class_answers_for_itself() {
    let mut alone = TestReceiver::new();
    let mut low = data(5);
    (low.class, low.band) = (1, 1);
    assert!(!alone.receive(&low));
    assert_eq!(alone.receiver.low_acks_due(), 0b10);
    let mut answer = Segment::default();
    answer.class = 1;
    let mut side = SideData::default();
    alone
        .receiver
        .acknowledge(alone.now, &mut answer, &mut side, &alone.config);
    assert_eq!((answer.echo, answer.echo_band), (SequenceNumber(5), 2));
    assert_eq!(side.ranges().len(), 1);
    assert_eq!(alone.receiver.low_acks_due(), 0);
}

/// Segments that no honest sender sends are refused: beyond the window or the end of the stream, or
/// with an offset that contradicts their number. Segments 0 and 1 have arrived, and the window ends
/// at byte 10,000.
#[test]
fn segments_in_impossible_positions_are_refused() {
    let last = SequenceNumber(2).wrapping_add(NUMBER_DISTANCE_MAX).0;
    let fin = Segment::FIN_FLAG;
    for (number, offset, length, flags, refused) in [
        (2, 2_000, 1_000, fin, false),
        (3, 3_000, 1_000, 0, false),
        (9, 9_000, 1_000, 0, false),
        (9, 9_001, 1_000, 0, true),
        // The same offset as the next segment: only an empty end of the stream.
        (3, 2_000, 1_000, 0, true),
        (3, 2_000, 0, fin, false),
        // The number of the next segment with a later offset.
        (2, 2_001, 10, 0, true),
        (2, 2_001, 10, fin, true),
        (3, 1_999, 10, 0, true),
        (3, 1_999, 10, fin, true),
        (last, 9_999, 1, 0, false),
        (last + 1, 9_999, 1, 0, true),
    ] {
        for class in [0, 1] {
            let mut alone = TestReceiver::with(TransportConfig {
                mss: MSS_BYTES as u16,
                receive_buffer: 10 * MSS_BYTES,
                ..TransportConfig::default()
            });
            alone.receive_full(0);
            alone.receive_full(1);
            let mut segment = data(number);
            segment.set_offset(offset);
            (segment.length, segment.flags, segment.class) = (length, flags, class);
            alone.receive(&segment);
            let count = |alone: &TestReceiver| {
                let arrivals = alone.receiver.rc3_arrivals();
                arrivals.map_or(0, |arrivals| arrivals.refused)
            };
            assert_eq!(count(&alone), u64::from(refused), "{segment:?}");
            // A refused segment is neither delivered nor stored.
            let accepted = alone.receiver.next == SequenceNumber(3) || alone.receiver.has_sack_info;
            assert_eq!(accepted, !refused, "{segment:?}");
        }
    }
}

/// Nothing is accepted behind the end of the stream, and no end before data that has arrived.
#[test]
fn the_end_of_the_stream_is_behind_everything() {
    let refused = |alone: &TestReceiver| {
        let arrivals = alone.receiver.rc3_arrivals();
        arrivals.map_or(0, |arrivals| arrivals.refused)
    };
    let mut alone = TestReceiver::new();
    let mut end = data(5);
    (end.length, end.flags) = (0, Segment::FIN_FLAG);
    alone.receive(&end);
    alone.receive_full(4);
    assert_eq!(refused(&alone), 0);
    alone.receive_full(6);
    assert_eq!(refused(&alone), 1);
    assert_eq!(alone.ranges(), [(4, 6)]);

    let mut alone = TestReceiver::new();
    alone.receive_full(5);
    alone.receive(&data_with_end(3));
    assert_eq!(
        alone.ranges(),
        [(5, 6)],
        "an end before segment 5 is ignored"
    );
    alone.receive(&data_with_end(5));
    (0..5).for_each(|number| {
        alone.receive_full(number);
    });
    assert!(alone.receiver.is_complete());
}

fn data_with_end(number: u32) -> Segment {
    let mut segment = data(number);
    segment.flags |= Segment::FIN_FLAG;
    segment
}

/// The first segments are acknowledged at once, out of order or not. Lower classes do not count.
#[test]
fn immediate_acknowledgements_count_class_0() {
    let acked_at_once = |numbers: &[(u32, u8)]| {
        let mut alone = TestReceiver::with(TransportConfig {
            mss: MSS_BYTES as u16,
            quick_acks: 3,
            ack_every: 10,
            ..TransportConfig::default()
        });
        for (number, class) in numbers {
            let mut segment = data(*number);
            (segment.class, segment.band) = (*class, *class);
            alone.receive(&segment);
            alone.send_ack();
        }
        let first = numbers.len() as u32;
        (first..first + 5)
            .filter(|number| {
                let due = alone.receive_full(*number);
                alone.send_ack();
                due
            })
            .count()
    };
    assert_eq!(acked_at_once(&[]), 3);
    assert_eq!(acked_at_once(&[(1, 0), (0, 0)]), 1);
    assert_eq!(acked_at_once(&[(0, 1), (1, 1)]), 3);
}

/// RFC 8257 section 3.2: the state of the CE mark follows segments out of order too.
#[test]
fn a_mark_out_of_order_is_no_change_later() {
    let mut alone = TestReceiver::with(TransportConfig {
        mss: MSS_BYTES as u16,
        quick_acks: 0,
        ack_every: 10,
        ..TransportConfig::default()
    });
    let mut marked = |number| {
        let mut segment = data(number);
        segment.ecn = Ecn::Ce;
        let due = alone.receive(&segment);
        alone.send_ack();
        due
    };
    assert!(marked(1), "out of order");
    assert!(marked(0), "fills the gap");
    assert!(!marked(2), "the segment before was marked too");
}
