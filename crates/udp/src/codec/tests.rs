use ccplane_units::Time;
use proptest::prelude::*;

use super::*;

fn ranges() -> impl Strategy<Value = (Vec<(u32, u32)>, bool)> {
    (
        prop::collection::vec(any::<(u32, u32)>(), 0..=SACK_RANGES_MAX),
        any::<bool>(),
    )
}

prop_compose! {
    fn segments()(
        kind in prop::sample::select(vec![
            SegmentKind::Ack,
            SegmentKind::Data,
            SegmentKind::Open,
            SegmentKind::OpenReply,
            SegmentKind::Abort,
            SegmentKind::PathProbe,
            SegmentKind::PathReply,
        ]),
        flags in 0u8..16, (class, band) in (0..CLASS_COUNT, 0u8..8), transmission: u8,
        (number, ack, window, offset) in (any::<u32>(), any::<u32>(), any::<u32>(), 0u64..1 << 48),
        echo in prop::option::of((any::<u32>(), 1u8..)),
        counts in prop::option::of((any::<u32>(), 1u32..)),
        length: u16,
        (list, duplicate) in ranges(),
        stamps in prop::option::of(any::<(u64, u64, u64)>()),
        part in prop::option::of((any::<u16>(), 1u16..)),
        (sum, nonce, mark, echo_mark) in any::<(u16, u16, u16, u16)>(),
    ) -> (Segment, SideData, Proof, usize) {
        let mut segment = Segment::default();
        (segment.kind, segment.flags) = (kind, flags);
        (segment.class, segment.transmission) = (class, transmission);
        segment.echo_band = if class == 0 { 0 } else { band };
        (segment.number, segment.ack) = (SequenceNumber(number), SequenceNumber(ack));
        segment.window = window;
        if let Some((number, transmission)) = echo {
            (segment.echo, segment.echo_transmission) = (SequenceNumber(number), transmission);
        }
        (segment.ce_packets, segment.ce_bytes) = counts.unwrap_or_default();
        let mut payload = 0;
        match kind {
            SegmentKind::Data => {
                segment.set_offset(offset);
                segment.length = length % 2000;
                payload = usize::from(segment.length);
            }
            SegmentKind::Open | SegmentKind::OpenReply | SegmentKind::PathReply => {
                segment.length = length;
            }
            SegmentKind::Ack | SegmentKind::Abort | SegmentKind::PathProbe => {}
        }
        let mut side = SideData::default();
        if segment.has_side() {
            for (index, (start, end)) in list.into_iter().enumerate() {
                let range = Range { start: SequenceNumber(start), end: SequenceNumber(end) };
                if index == 0 && duplicate {
                    side.set_duplicate(range);
                } else {
                    assert!(side.push(range));
                }
            }
            if let Some((t1, t2, t3)) = stamps {
                (side.stamped, side.t1) = (true, Time::from_nanos(t1));
                if kind == SegmentKind::Ack {
                    (side.t2, side.t3) = (Time::from_nanos(t2), Time::from_nanos(t3));
                }
            }
            if let Some((begin, whole)) = part.filter(|_| kind == SegmentKind::Data) {
                side.part = SegmentPart { begin, whole };
            }
            if side.is_empty() {
                segment.flags &= !Segment::SIDE_FLAG;
            }
        }
        let mut proof = Proof::default();
        if matches!(kind, SegmentKind::Ack | SegmentKind::Data) {
            proof.sum = sum;
            proof.echo = if segment.echo_transmission == 0 { 0 } else { echo_mark };
        }
        if kind == SegmentKind::Data {
            (proof.nonce, proof.mark) = (nonce, mark);
        }
        (segment, side, proof, payload)
    }
}

proptest! {
    #[test]
    fn encoding_round_trips(
        (segment, side, proof, payload) in segments(),
        to: u64,
        from in prop::option::of((any::<u64>(), any::<u16>())),
        sealed in prop::option::of(any::<(bool, u32)>()),
        said in prop::option::of((any::<u16>(), prop::collection::vec(any::<u8>(), 0..300))),
    ) {
        let from = from.map(|(id, mss)| ClientAddress { id, mss });
        let cover = match (&said, sealed) {
            (Some(_), None) => Cover::Handshake,
            (Some(_), Some(_)) => Cover::SealedHandshake,
            (None, Some((phase, number))) => Cover::Sealed { phase, number },
            (None, None) => Cover::Plain,
        };
        let envelope = Envelope { to, from, cover };
        let mut out = vec![0; ENVELOPE_BYTES_MAX + CRYPTO_HEADER_BYTES + 300 + HEADER_BYTES_MAX];
        let start = envelope.write(&mut out).unwrap();
        let mut head = start;
        if let Some((offset, bytes)) = &said {
            let part = Crypto {
                offset: *offset,
                bytes,
            };
            let length = part.write(&mut out[start..]).unwrap();
            prop_assert_eq!(Crypto::read(&out[start..]), Ok((part, length)));
            prop_assert!(Crypto::read(&out[start..start + length - 1]).is_err());
            prop_assert_eq!(part.write(&mut vec![0; length - 1]), None);
            head += length;
        }
        let written = write(
            &segment,
            &mut side.clone(),
            &mut out[head..],
            HEADER_BYTES_MAX,
            |_| proof,
        )
        .unwrap();
        prop_assert_eq!(written, length(&segment, &side));
        out.truncate(head + written);
        out.resize(out.len() + payload, 0xaa);

        prop_assert_eq!(Envelope::read(&out), Ok((envelope, start)));
        let mut found = SideData::default();
        prop_assert_eq!(
            read(&out[head..], &mut found),
            Ok((segment, proof, written))
        );
        prop_assert_eq!(found, side);
        fuzz::segment(&out);
        // A header without its last byte is truncated. An extra byte counts as payload, which not
        // every kind allows.
        prop_assert!(payload > 0 || read(&out[head..out.len() - 1], &mut found).is_err());
        out.push(0);
        prop_assert_eq!(
            read(&out[head..], &mut found).is_ok(),
            matches!(
                segment.kind,
                SegmentKind::Data | SegmentKind::Open | SegmentKind::PathProbe
            )
        );
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        fuzz::segment(&bytes);
        let mut datagram = vec![VERSION << 4];
        datagram.extend(&bytes);
        fuzz::segment(&datagram);
    }

    #[test]
    fn ranges_that_do_not_fit_are_left_away(
        (segment, side, ..) in segments(),
        room in 0..HEADER_BYTES_MAX,
    ) {
        let mut out = [0; HEADER_BYTES_MAX];
        let mut cut = side;
        let Some(written) = write(&segment, &mut cut, &mut out, room, |_| Proof::default()) else {
            let mut least = side;
            while least.pop() {}
            prop_assert!(length(&segment, &least) > room);
            return Ok(());
        };
        prop_assert!(written <= room);
        prop_assert!(side.ranges().starts_with(cut.ranges()));
        let left = side.ranges().len() - cut.ranges().len();
        // The byte with the range count is dropped together with the last range.
        let freed = if cut.is_empty() { 9 } else { 8 };
        prop_assert!(
            left == 0 || written + freed > room,
            "{left} ranges dropped, {written} of {room} bytes used"
        );
    }
}

/// Pins the layout byte for byte: a change requires a new version number.
#[test]
fn known_bytes() {
    let mut side = SideData::default();
    side.push(Range {
        start: SequenceNumber(7),
        end: SequenceNumber(9),
    });
    let mut ack = Segment::default();
    (ack.flags, ack.class, ack.transmission, ack.echo_band) = (Segment::SIDE_FLAG, 2, 1, 1);
    (ack.number, ack.ack, ack.window) = (SequenceNumber(1), SequenceNumber(5), 0x0102_0304);
    (ack.echo, ack.echo_transmission) = (SequenceNumber(8), 2);
    (ack.ce_packets, ack.ce_bytes) = (3, 4344);
    let envelope = Envelope {
        to: 0x1122_3344_5566_7788,
        from: None,
        cover: Cover::Sealed {
            phase: true,
            number: 6,
        },
    };
    let mut out = [0; 100];
    let head = envelope.write(&mut out).unwrap();
    let proof = Proof {
        nonce: 0x0b0c,
        mark: 0x0d0e,
        sum: 0xa1a2,
        echo: 0xa3a4,
    };
    let written = write(&ack, &mut side, &mut out[head..], 80, |_| proof).unwrap();
    #[rustfmt::skip]
    let expected = [
        0x3a, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0, 6,
        0b0011_1000, 0x28, 1, 0, 0, 0, 1, 0, 0, 0, 5, 1, 2, 3, 4,
        0xa1, 0xa2, 0, 0, 0, 8, 2, 0xa3, 0xa4, 0, 0, 0, 3, 0, 0, 0x10, 0xf8, 1, 0, 0, 0, 7, 0, 0,
        0, 9,
    ];
    assert_eq!(out[..head + written], expected);

    let mut data = Segment::default();
    (data.kind, data.transmission) = (SegmentKind::Data, 1);
    data.set_offset(0x0102_0304_0506);
    let written = write(&data, &mut SideData::default(), &mut out, 80, |_| proof).unwrap();
    assert_eq!(written, 27, "a plain segment of data costs 9 + 27 bytes");
    assert_eq!(
        out[15..27],
        [1, 2, 3, 4, 5, 6, 0xa1, 0xa2, 0x0b, 0x0c, 0x0d, 0x0e]
    );

    data.flags = Segment::SIDE_FLAG;
    let mut side = SideData::default();
    (side.part.begin, side.part.whole) = (0x0201, 0x0605);
    let written = write(&data, &mut side, &mut out, 80, |_| proof).unwrap();
    assert_eq!(
        out[27..written],
        [0x20, 2, 1, 6, 5],
        "a fragment has its offset and the total length"
    );

    let (mut probe, mut reply) = (Segment::default(), Segment::default());
    (probe.kind, reply.kind) = (SegmentKind::PathProbe, SegmentKind::PathReply);
    (probe.length, reply.length) = (1472, 1472);
    assert_eq!(
        write(&probe, &mut SideData::default(), &mut out, 80, |_| proof),
        Some(15)
    );
    assert_eq!(
        out[0], 5,
        "the length is not encoded: it follows from the datagram"
    );
    assert_eq!(
        write(&reply, &mut SideData::default(), &mut out, 80, |_| proof),
        Some(17)
    );
    assert_eq!((out[0], &out[15..17]), (6, &[0x05, 0xc0][..]));
}

#[test]
fn each_kind_of_garbage_has_its_name() {
    let mut side = SideData::default();
    let ack =
        |first: u8, second: u8, rest: &[u8]| [&[first, second, 1][..], &[0; 12], rest].concat();
    let cases: [(Vec<u8>, CodecError); 14] = [
        (vec![], CodecError::Short),
        (ack(0, 0, &[])[..14].to_vec(), CodecError::Short),
        (ack(7, 0, &[]), CodecError::Kind(7)),
        (ack(0x20, 0, &[]), CodecError::Reserved),
        (ack(0, 0x80, &[]), CodecError::Class(8)),
        (ack(1, 0xf0, &[0; 6]), CodecError::Class(15)),
        (ack(8, 0, &[0, 0, 0, 0, 0, 1, 0]), CodecError::Empty("echo")),
        (ack(16, 0, &[0; 10]), CodecError::Empty("ECN count")),
        (ack(0, 8, &[0, 0, 0]), CodecError::Empty("list of ranges")),
        (ack(0, 8, &[0, 0, 5]), CodecError::Ranges(5)),
        (ack(0, 0, &[0, 0, 9]), CodecError::Payload(1)),
        (ack(0, 8, &[0, 0, 0x20, 0, 1, 0, 2]), CodecError::Reserved),
        (
            ack(
                1,
                8,
                &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 1, 0, 0],
            ),
            CodecError::Empty("part"),
        ),
        (ack(6, 0, &[0, 1, 2]), CodecError::Payload(1)),
    ];
    for (bytes, why) in cases {
        assert_eq!(read(&bytes, &mut side), Err(why));
    }
    let other = Envelope::read(&[0x12; 40]).unwrap_err();
    assert_eq!(other, CodecError::Version(1));
    assert!(other.to_string().contains("instead of 3"), "{other}");
    assert_eq!(Envelope::read(&[0x38; 40]), Err(CodecError::Reserved));
    assert_eq!(Envelope::read(&[0x31; 16]), Err(CodecError::Short));
    assert_eq!(Crypto::read(&[0, 0, 0, 3, 1, 2]), Err(CodecError::Short));
}
