//! Each rule on its own. `tests/join.rs` checks that joined packets are reproduced by segmentation.

use super::*;
use crate::{Frame, Head};

/// A packet whose lengths and checksums are filled in by `done`.
#[derive(Clone)]
struct Packet(Vec<u8>);

impl Packet {
    /// Returns packet `index` of a TCP or UDP flow with this payload; `size` is the payload of the
    /// packets before it.
    fn of(ip: usize, tcp: bool, index: u16, payload: usize, size: usize) -> Packet {
        let mut bytes = vec![0; ip + if tcp { 32 } else { 8 }];
        if ip == IPV4_HEADER_BYTES {
            (bytes[0], bytes[1], bytes[6], bytes[8]) = (0x45, 0b10, 0x40, 64);
            write_word(&mut bytes, 4, 0xfffe_u16.wrapping_add(index));
            bytes[9] = if tcp { TCP } else { UDP };
            (12..20).for_each(|i| bytes[i] = i as u8);
        } else {
            (bytes[0], bytes[1], bytes[7]) = (0x60, 0x23, 64);
            bytes[6] = if tcp { TCP } else { UDP };
            (8..40).for_each(|i| bytes[i] = i as u8);
        }
        bytes[ip..ip + 4].copy_from_slice(&[0x30, 0x39, 0x14, 0x51]);
        if tcp {
            let sequence = 0xffff_f000_u32.wrapping_add(u32::from(index) * size as u32);
            bytes[ip + 4..ip + 8].copy_from_slice(&sequence.to_be_bytes());
            bytes[ip + 8..ip + 16].copy_from_slice(&[0, 0, 0, 9, 8 << 4, ACK, 1, 0]);
            bytes[ip + 20..ip + 32].copy_from_slice(&[1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
        }
        bytes.extend((0..payload).map(|i| (i * 7 + usize::from(index)) as u8));
        Packet(bytes).done(ip)
    }

    /// Fills in lengths and checksums.
    fn done(mut self, ip: usize) -> Packet {
        let length = self.0.len();
        let bytes = &mut self.0;
        let v4 = bytes[0] >> 4 == 4;
        let protocol = if v4 { bytes[9] } else { bytes[6] };
        if v4 {
            write_word(bytes, 2, length as u16);
            let header = usize::from(bytes[0] & 0xf) * 4;
            write_ipv4_checksum(&mut bytes[..header]);
        } else {
            write_word(bytes, 4, (length - IPV6_HEADER_BYTES) as u16);
        }
        let check = ip
            + if protocol == TCP {
                TCP_CHECKSUM_OFFSET
            } else {
                UDP_CHECKSUM_OFFSET
            };
        if protocol == UDP {
            write_word(bytes, ip + 4, (length - ip) as u16);
        }
        write_word(bytes, check, 0);
        let sum = transport_checksum(bytes, ip, protocol);
        write_word(
            bytes,
            check,
            if sum == 0 && protocol == UDP {
                0xffff
            } else {
                sum
            },
        );
        self
    }

    /// Applies a change and recomputes the checksums.
    fn with(mut self, ip: usize, change: impl FnOnce(&mut Vec<u8>)) -> Packet {
        change(&mut self.0);
        self.done(ip)
    }
}

/// Four packets of a flow.
fn flow(ip: usize, tcp: bool) -> Vec<Packet> {
    (0..4)
        .map(|index| Packet::of(ip, tcp, index, 1_000, 1_000))
        .collect()
}

/// Returns the packets per run after joining; each run is segmented again and compared.
fn runs(packets: &[Packet]) -> Vec<u16> {
    let mut joiner = Joiner::new(true);
    let (mut runs, mut out) = (Vec::new(), Vec::new());
    let mut end = |joiner: &mut Joiner| {
        let packets = joiner.packets();
        if let Some(bytes) = joiner.finish() {
            let frame = Frame::parse(bytes).expect("well formed");
            assert_eq!(frame.packets(), packets);
            runs.push(packets);
            for index in 0..packets {
                let mut head = Head::default();
                out.push(
                    frame
                        .write_packet(bytes, index, false, &mut head)
                        .expect("well formed")
                        .concat(),
                );
            }
        }
    };
    for packet in packets {
        if !joiner.add(&packet.0).expect("a packet") {
            end(&mut joiner);
            assert!(
                joiner.add(&packet.0).expect("a packet"),
                "every packet starts a run"
            );
        }
    }
    end(&mut joiner);
    assert_eq!(
        out,
        packets
            .iter()
            .map(|packet| packet.0.clone())
            .collect::<Vec<_>>()
    );
    runs
}

fn kinds() -> [(usize, bool); 4] {
    [
        (IPV4_HEADER_BYTES, true),
        (IPV4_HEADER_BYTES, false),
        (IPV6_HEADER_BYTES, true),
        (IPV6_HEADER_BYTES, false),
    ]
}

#[test]
fn packets_of_a_flow_are_one_run_and_a_shorter_one_ends_it() {
    for (ip, tcp) in kinds() {
        assert_eq!(runs(&flow(ip, tcp)), [4]);
        let mut packets = flow(ip, tcp);
        packets[2] = Packet::of(ip, tcp, 2, 999, 1_000);
        assert_eq!(runs(&packets), [3, 1], "{ip} {tcp}");
        packets[2] = Packet::of(ip, tcp, 2, 1_001, 1_000);
        // A longer one starts another run; without sequence numbers the next one continues it.
        let expected: &[u16] = if tcp { &[2, 1, 1] } else { &[2, 2] };
        assert_eq!(runs(&packets), expected, "{ip} {tcp}");
    }
}

#[test]
fn frame_headers_match_the_kernel() {
    let mut joiner = Joiner::new(true);
    for packet in flow(IPV4_HEADER_BYTES, true) {
        assert!(joiner.add(&packet.0).expect("a packet"));
    }
    assert_eq!((joiner.packets(), joiner.is_complete()), (4, false));
    let frame = joiner.finish().expect("four packets");
    let field = |at: usize| u16::from_ne_bytes([frame[at], frame[at + 1]]);
    assert_eq!(frame[..2], [NEEDS_CHECKSUM, GSO_TCPV4]);
    assert_eq!([2, 4, 6, 8].map(field), [52, 1_000, 20, 16]);
    let packet = &frame[VNET_HEADER_BYTES..];
    assert_eq!((packet.len(), read_word(packet, 2)), (4_052, 4_052));
    assert_eq!(checksum(&packet[..20]), 0);
    assert_eq!(read_word(packet, 36), pseudo_header_sum(packet, TCP, 4_032));
    assert_eq!((joiner.packets(), joiner.finish()), (0, None));
}

#[test]
fn psh_and_fin_end_a_run_and_cwr_starts_one() {
    for ip in [IPV4_HEADER_BYTES, IPV6_HEADER_BYTES] {
        let flagged = |at: usize, flag: u8| {
            let mut packets = flow(ip, true);
            packets[at] = packets[at].clone().with(ip, |bytes| bytes[ip + 13] |= flag);
            runs(&packets)
        };
        for flag in [0x01, 0x08, 0x09] {
            assert_eq!(flagged(1, flag), [2, 2]);
            assert_eq!(flagged(0, flag), [1, 3]);
        }
        assert_eq!(flagged(0, CWR), [4]);
        assert_eq!(flagged(2, CWR), [2, 2]);
        // SYN, RST, URG; ECE differs from no flag.
        for flag in [0x02, 0x04, 0x20] {
            assert_eq!(flagged(1, flag), [1, 1, 2]);
        }
        assert_eq!(flagged(1, ECE), [1, 1, 2]);
        let mut all = flow(ip, true);
        for packet in &mut all {
            *packet = packet.clone().with(ip, |bytes| bytes[ip + 13] |= ECE);
        }
        assert_eq!(runs(&all), [4]);
    }
    for (ip, kind) in [
        (IPV4_HEADER_BYTES, GSO_TCPV4),
        (IPV6_HEADER_BYTES, GSO_TCPV6),
    ] {
        let mut joiner = Joiner::new(true);
        for (index, packet) in flow(ip, true).into_iter().enumerate() {
            let packet = packet.with(ip, |bytes| {
                bytes[ip + 13] |= if index == 0 { CWR } else { 0 }
            });
            assert!(joiner.add(&packet.0).expect("a packet"));
        }
        let frame = joiner.finish().expect("four packets");
        assert_eq!(
            frame[1],
            kind | GSO_ECN,
            "only the first packet has it, also after segmentation by a kernel"
        );
    }
    let mut joiner = Joiner::new(true);
    let end = flow(IPV4_HEADER_BYTES, true)[0]
        .clone()
        .with(IPV4_HEADER_BYTES, |bytes| {
            bytes[IPV4_HEADER_BYTES + 13] |= 0x08
        });
    assert!(joiner.add(&end.0).expect("a packet") && joiner.is_complete());
}

/// Changes the third packet so that it belongs to another flow, or was not sent with the others.
#[test]
fn headers_that_differ_are_not_joined() {
    let changed = |ip: usize, tcp: bool, at: usize, value: u8| {
        let mut packets = flow(ip, tcp);
        packets[2] = packets[2].clone().with(ip, |bytes| bytes[at] ^= value);
        let runs = runs(&packets);
        assert!(
            runs[0] == 2 && runs.iter().sum::<u16>() == 4,
            "{ip} {tcp} {at}: {runs:?}"
        );
    };
    for tcp in [true, false] {
        // Type of service and ECN; identification; DF, reserved bit, fragment bits; time to live;
        // addresses.
        for (at, value) in [
            (1, 1),
            (1, 4),
            (5, 1),
            (6, 0x40),
            (6, 0x80),
            (6, 0x20),
            (7, 1),
            (8, 1),
            (15, 1),
            (19, 1),
        ] {
            changed(IPV4_HEADER_BYTES, tcp, at, value);
        }
        // Traffic class, flow label; hop limit; addresses.
        for (at, value) in [(0, 1), (1, 0x10), (1, 1), (3, 1), (7, 1), (23, 1), (39, 1)] {
            changed(IPV6_HEADER_BYTES, tcp, at, value);
        }
        for ip in [IPV4_HEADER_BYTES, IPV6_HEADER_BYTES] {
            changed(ip, tcp, ip + 1, 1);
            changed(ip, tcp, ip + 3, 1);
        }
    }
    for ip in [IPV4_HEADER_BYTES, IPV6_HEADER_BYTES] {
        // Sequence, acknowledgement, reserved bits, window, urgent pointer, timestamp.
        for at in [7, 11, 12, 15, 19, 27, 31] {
            changed(ip, true, ip + at, 1);
        }
    }
}

#[test]
fn out_of_order_packets_end_the_run() {
    for (ip, tcp) in [
        (IPV4_HEADER_BYTES, true),
        (IPV4_HEADER_BYTES, false),
        (IPV6_HEADER_BYTES, true),
    ] {
        let mut packets = flow(ip, tcp);
        packets.swap(1, 2);
        assert_eq!(runs(&packets), [1, 1, 1, 1], "{ip} {tcp}");
        packets.swap(1, 2);
        packets.remove(1);
        assert_eq!(runs(&packets), [1, 2], "{ip} {tcp}");
        let again = packets[0].clone();
        packets.insert(0, again);
        assert_eq!(runs(&packets), [1, 1, 2], "{ip} {tcp}");
    }
}

#[test]
fn options_and_fragments_and_empty_packets_are_alone() {
    let mut packets = flow(IPV4_HEADER_BYTES, true);
    for packet in &mut packets {
        // Four NOP bytes.
        let mut with = vec![0x46];
        with.extend(&packet.0[1..20]);
        with.extend([1; 4]);
        with.extend(&packet.0[20..]);
        *packet = Packet(with).done(24);
    }
    assert_eq!(runs(&packets), [1; 4], "options");
    for bits in [0x20, 0x01] {
        let fragments: Vec<_> = flow(IPV4_HEADER_BYTES, false)
            .into_iter()
            .map(|packet| packet.with(IPV4_HEADER_BYTES, |bytes| bytes[6] = bits))
            .collect();
        assert_eq!(runs(&fragments), [1; 4], "fragments");
    }
    for (ip, tcp) in kinds() {
        let empty: Vec<_> = (0..3)
            .map(|index| Packet::of(ip, tcp, index, 0, 0))
            .collect();
        assert_eq!(runs(&empty), [1; 3]);
        // Bytes after the packet.
        let mut longer = flow(ip, tcp);
        longer[1].0.push(0);
        assert_eq!(runs(&longer), [1, 1, 2]);
    }
    // ICMP.
    let other: Vec<_> = flow(IPV4_HEADER_BYTES, true)
        .into_iter()
        .map(|packet| packet.with(IPV4_HEADER_BYTES, |bytes| bytes[9] = 1))
        .collect();
    assert_eq!(runs(&other), [1; 4]);
}

#[test]
fn a_wrong_checksum_is_not_made_right_by_joining() {
    for (ip, tcp) in kinds() {
        for wrong in 0..4 {
            let mut packets = flow(ip, tcp);
            *packets[wrong].0.last_mut().expect("a payload") ^= 1;
            let expected: &[u16] = [&[1, 3][..], &[1, 1, 2], &[2, 1, 1], &[3, 1]][wrong];
            assert_eq!(runs(&packets), expected, "{ip} {tcp} {wrong}");
        }
    }
    let mut packets = flow(IPV4_HEADER_BYTES, true);
    packets[1].0[10] ^= 1;
    assert_eq!(runs(&packets), [1, 1, 2], "the header's");
    // UDP without a checksum.
    let without: Vec<_> = flow(IPV4_HEADER_BYTES, false)
        .into_iter()
        .map(|mut packet| {
            packet.0[26..28].fill(0);
            packet
        })
        .collect();
    assert_eq!(runs(&without), [1; 4]);
}

#[test]
fn a_run_is_as_long_as_an_ip_packet_and_one_of_udp_64_packets() {
    let many = |ip, tcp, size: usize, count| {
        let packets: Vec<_> = (0..count)
            .map(|index| Packet::of(ip, tcp, index, size, size))
            .collect();
        runs(&packets)
    };
    // 52 + 45 × 1448 = 65 212.
    assert_eq!(many(IPV4_HEADER_BYTES, true, 1_448, 100), [45, 45, 10]);
    // 72 + 47 × 1392 = 65 496.
    assert_eq!(many(IPV6_HEADER_BYTES, true, 1_392, 100), [47, 47, 6]);
    assert_eq!(many(IPV6_HEADER_BYTES, false, 100, 150), [64, 64, 22]);
    assert_eq!(many(IPV4_HEADER_BYTES, true, 100, 150), [150]);
}

#[test]
fn udp_is_joined_where_the_device_takes_it() {
    let mut joiner = Joiner::new(false);
    let packets = flow(IPV6_HEADER_BYTES, false);
    assert!(joiner.add(&packets[0].0).expect("a packet") && joiner.is_complete());
    assert!(!joiner.add(&packets[1].0).expect("a packet"));
    let alone = joiner.finish().expect("one packet");
    assert_eq!(
        (&alone[..VNET_HEADER_BYTES], &alone[VNET_HEADER_BYTES..]),
        (&[0; VNET_HEADER_BYTES][..], &packets[0].0[..]),
        "unchanged"
    );
}

#[test]
fn invalid_packets_are_errors_and_keep_the_run() {
    let mut joiner = Joiner::new(true);
    let packets = flow(IPV4_HEADER_BYTES, true);
    assert!(joiner.add(&packets[0].0).expect("a packet"));
    assert!(joiner.add(&[]).is_err() && joiner.add(&[0x45; 65_536]).is_err());
    assert!(joiner.add(&packets[1].0).expect("a packet"));
    assert_eq!(joiner.packets(), 2);
}
