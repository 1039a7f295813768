//! What a queue and the log know of a packet: its flow, its class, its ECN field and its ports, read from its headers.

use ccplane_qdisc::{Ecn, marking};

/// One packet of a frame in the store, as queues see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// Where its frame is.
    pub(crate) frame: u32,
    /// Which of the frame's packets it is.
    pub(crate) index: u16,
    pub(crate) bytes: u16,
    flow: u32,
    class: u8,
    ecn: Ecn,
    /// Whether a queue marked it on the way.
    pub(crate) marked: bool,
}

impl Packet {
    /// A packet of a frame with these headers.
    pub(crate) fn new(frame: u32, index: u16, bytes: u16, headers: &Headers) -> Packet {
        Packet {
            frame,
            index,
            bytes,
            flow: headers.flow,
            class: headers.class,
            ecn: headers.ecn,
            marked: false,
        }
    }
}

impl ccplane_qdisc::Packet for Packet {
    fn bytes(&self) -> u32 {
        u32::from(self.bytes)
    }

    fn flow_hash(&self) -> u32 {
        self.flow
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        self.marked |= self.ecn != Ecn::Ce;
        self.ecn = Ecn::Ce;
    }
}

/// What is read from the headers of an IP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    /// Of sender and receiver, 0 if it is neither TCP nor UDP.
    pub(crate) ports: [u16; 2],
    flow: u32,
    class: u8,
    ecn: Ecn,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

impl Headers {
    /// Reads them; for IPv6 without extension headers. What is cut off or no IP packet has the flow and class of
    /// nothing in particular.
    pub(crate) fn of(packet: &[u8]) -> Headers {
        Headers::read(packet).unwrap_or(Headers {
            class: class(0),
            ..Headers::default()
        })
    }

    fn read(packet: &[u8]) -> Option<Headers> {
        let first = u16::from_be_bytes([*packet.first()?, *packet.get(1)?]);
        let (traffic_class, protocol, header, addresses) = match first >> 12 {
            4 => (
                first as u8,
                *packet.get(9)?,
                usize::from(packet[0] & 0xf) * 4,
                packet.get(12..20)?,
            ),
            6 => ((first >> 4) as u8, *packet.get(6)?, 40, packet.get(8..40)?),
            _ => return None,
        };
        // A later fragment has no ports, and the first one goes with it.
        let fragment = first >> 12 == 4 && u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
        let ports = match packet.get(header..header + 4) {
            Some(&[a, b, c, d]) if !fragment && matches!(protocol, TCP | UDP) => {
                [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
            }
            _ => [0; 2],
        };
        Some(Headers {
            ports,
            flow: flow(addresses, protocol, ports),
            class: class(traffic_class >> 2),
            ecn: Ecn::from_bits(traffic_class),
        })
    }
}

/// The band of a differentiated-services code point (RFC 2474): 0 for what is urgent, 1 for best effort and all that
/// is nearly as good, and below that 2 for RFC 8622's lower effort and the CS1 that served for it before, and 3, 4, 5
/// for the lower classes of [`marking`].
fn class(dscp: u8) -> u8 {
    const CS1: u8 = 8;
    const CS5: u8 = 40;
    match dscp {
        CS5.. => 0,
        CS1 => 2,
        _ => 1 + marking::class_of(dscp),
    }
}

/// A number that differs between most pairs of flows: every word of the 5-tuple is folded in by a multiplication.
fn flow(addresses: &[u8], protocol: u8, ports: [u16; 2]) -> u32 {
    // The fractional part of the golden ratio, odd: every bit of a word reaches the upper half of the product.
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let last = u64::from(protocol) << 32 | u64::from(ports[0]) << 16 | u64::from(ports[1]);
    let words = addresses
        .chunks(4)
        .map(|word| word.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
    let mixed = words.chain([last]).fold(0, |hash: u64, word| {
        let product = (hash ^ word).wrapping_mul(MIX);
        product ^ product >> 32
    });
    (mixed.wrapping_mul(MIX) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn packet(header: &[u8], at: usize, ports: [u8; 4]) -> Vec<u8> {
        let mut packet = header.to_vec();
        packet.resize(at, 0);
        packet.extend(ports);
        packet
    }

    #[test]
    fn ports_are_found_where_there_are_any() {
        let ports_of = |packet: &[u8]| Headers::of(packet).ports;
        let tcp = packet(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6], 20, [0x30, 0x39, 0x14, 0x51]);
        assert_eq!(ports_of(&tcp), [12_345, 5_201]);
        let with_options = packet(&[0x47, 0, 0, 0, 0, 0, 0, 0, 64, 17], 28, [0, 1, 0, 2]);
        assert_eq!(ports_of(&with_options), [1, 2]);
        let v6 = packet(&[0x60, 0, 0, 0, 0, 0, 17, 64], 40, [0, 3, 0, 4]);
        assert_eq!(ports_of(&v6), [3, 4]);
        let fragment = packet(&[0x45, 0, 0, 0, 0, 0, 0, 1, 64, 6], 20, [9, 9, 9, 9]);
        let icmp = packet(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1], 20, [9, 9, 9, 9]);
        for other in [&fragment[..], &icmp, &tcp[..22], &tcp[..5], &[0x45], &[], &[0x10; 60]] {
            assert_eq!(ports_of(other), [0, 0], "{other:?}");
        }
    }

    #[test]
    fn ecn_and_class_are_read_from_both_families() {
        let read = |packet: &[u8]| {
            let headers = Headers::of(packet);
            (headers.ecn, headers.class)
        };
        let v4 = |tos: u8| packet(&[0x45, tos], 20, [0; 4]);
        let v6 = |class: u8| packet(&[0x60 | class >> 4, class << 4], 40, [0; 4]);
        for (dscp, band) in [
            (0, 1),
            (46, 0),
            (48, 0),
            (8, 2),
            (1, 2),
            (3, 3),
            (11, 4),
            (19, 5),
            (5, 1),
            (7, 1),
            (10, 1),
            (34, 1),
        ] {
            for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
                let tos = dscp << 2 | ecn as u8;
                assert_eq!(read(&v4(tos)), (ecn, band), "{dscp}");
                assert_eq!(read(&v6(tos)), (ecn, band), "{dscp}");
            }
        }
        assert_eq!(read(&[0x45]), (Ecn::NotEct, 1));
    }

    #[test]
    fn flows_fall_into_different_buckets() {
        let mut buckets = BTreeSet::new();
        for port in 0..256_u16 {
            let [high, low] = (40_000 + port).to_be_bytes();
            let tcp = packet(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6], 20, [high, low, 0x14, 0x51]);
            assert_eq!(Headers::of(&tcp).flow, Headers::of(&tcp).flow);
            buckets.insert(Headers::of(&tcp).flow % 1_024);
        }
        // 256 random draws out of 1024 hit 227 different ones on average, with a deviation of 5.
        assert!(buckets.len() > 200, "{}", buckets.len());
    }
}
