//! Packets as queues and logs see them: flow, class, ECN field, addresses and ports, parsed once
//! from the headers.

use std::net::IpAddr;

use ccplane_qdisc::{Ecn, marking};

use crate::headers::{IpPayload, TCP, UDP, address_range, addresses, traffic_class};

/// One packet of a frame in a [`Store`](crate::Store), for queues.
#[derive(Clone, Copy, Debug)]
pub struct FramePacket {
    /// Number of its frame, from [`Store::keep`](crate::Store::keep).
    pub frame: u32,
    /// Index in its frame.
    pub index: u16,
    /// Length in bytes, including the IP header.
    pub bytes: u16,
    flow: u32,
    class: u8,
    ecn: Ecn,
    /// A queue has marked it CE.
    pub marked: bool,
}

impl FramePacket {
    /// Creates a packet of a frame with these headers. Its class follows from its DSCP
    /// ([`IpHeaders::class`]).
    #[inline]
    pub fn new(frame: u32, index: u16, bytes: u16, headers: &IpHeaders) -> FramePacket {
        FramePacket {
            frame,
            index,
            bytes,
            flow: headers.flow,
            class: headers.class,
            ecn: headers.ecn,
            marked: false,
        }
    }

    /// Returns the packet with another class.
    #[inline]
    #[must_use]
    pub fn with_class(self, class: u8) -> FramePacket {
        FramePacket { class, ..self }
    }
}

impl ccplane_qdisc::Packet for FramePacket {
    #[inline]
    fn bytes(&self) -> u32 {
        u32::from(self.bytes)
    }

    #[inline]
    fn flow_hash(&self) -> u32 {
        self.flow
    }

    #[inline]
    fn class(&self) -> u8 {
        self.class
    }

    #[inline]
    fn ecn(&self) -> Ecn {
        self.ecn
    }

    #[inline]
    fn mark_ce(&mut self) {
        self.marked |= self.ecn != Ecn::Ce;
        self.ecn = Ecn::Ce;
    }
}

/// Fields parsed from the headers of an IP packet, as needed by classifiers and queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpHeaders {
    /// Source and destination; `None` if it is not an IP packet.
    pub addresses: Option<[IpAddr; 2]>,
    /// Source and destination port. 0 unless it is TCP or UDP, and in all fragments, of which only
    /// the first has ports.
    pub ports: [u16; 2],
    /// IANA protocol number after the IP header and IPv6 extension headers (6: TCP, 17: UDP).
    pub protocol: u8,
    /// Differentiated services code point (RFC 2474), without the two ECN bits.
    pub dscp: u8,
    /// The ECN field.
    pub ecn: Ecn,
    /// Hash of addresses, protocol and ports.
    pub flow: u32,
    /// Priority band of the DSCP. 0: urgent (CS5 and above, EF). 1: best effort and similar. 2:
    /// lower effort (RFC 8622), and CS1, its predecessor. 3, 4 and 5: the lower classes of
    /// [`marking`].
    pub class: u8,
}

impl IpHeaders {
    /// Parses the headers. A truncated or non-IP packet gets default fields and the best-effort
    /// class.
    pub fn parse(packet: &[u8]) -> IpHeaders {
        IpHeaders::read(packet).unwrap_or(IpHeaders {
            class: class(0),
            ..IpHeaders::default()
        })
    }

    fn read(packet: &[u8]) -> Option<IpHeaders> {
        let addresses = addresses(packet)?;
        let IpPayload {
            protocol,
            offset: at,
            fragment,
            ..
        } = IpPayload::parse(packet)?;
        let ports = match packet.get(at..at + 4) {
            Some(&[a, b, c, d]) if !fragment && matches!(protocol, TCP | UDP) => {
                [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
            }
            _ => [0; 2],
        };
        let traffic_class = traffic_class(packet);
        Some(IpHeaders {
            addresses: Some(addresses),
            ports,
            protocol,
            dscp: traffic_class >> 2,
            ecn: Ecn::from_bits(traffic_class),
            flow: flow(packet.get(address_range(packet))?, protocol, ports),
            class: class(traffic_class >> 2),
        })
    }
}

/// Returns the [`IpHeaders::class`] of a DSCP.
fn class(dscp: u8) -> u8 {
    const CS1: u8 = 8;
    const CS5: u8 = 40;
    match dscp {
        CS5.. => 0,
        CS1 => 2,
        _ => 1 + marking::class_of(dscp),
    }
}

/// Hashes the 5-tuple: every word is mixed in by a multiplication.
fn flow(addresses: &[u8], protocol: u8, ports: [u16; 2]) -> u32 {
    // 2^64 divided by the golden ratio, odd: every bit of a word affects the upper half of the
    // product.
    const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let last = u64::from(protocol) << 32 | u64::from(ports[0]) << 16 | u64::from(ports[1]);
    let words = addresses
        .chunks(4)
        .map(|word| word.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
    let mixed = words.chain([last]).fold(0, |hash: u64, word| {
        let product = (hash ^ word).wrapping_mul(HASH_MULTIPLIER);
        product ^ product >> 32
    });
    (mixed.wrapping_mul(HASH_MULTIPLIER) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use super::*;

    fn packet(header: &[u8], at: usize, ports: [u8; 4]) -> Vec<u8> {
        let mut packet = header.to_vec();
        packet.resize(at, 0);
        packet.extend(ports);
        packet
    }

    #[test]
    fn ports_are_found_where_there_are_any() {
        let ports_of = |packet: &[u8]| IpHeaders::parse(packet).ports;
        let tcp = packet(
            &[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6],
            20,
            [0x30, 0x39, 0x14, 0x51],
        );
        assert_eq!(ports_of(&tcp), [12_345, 5_201]);
        let with_options = packet(&[0x47, 0, 0, 0, 0, 0, 0, 0, 64, 17], 28, [0, 1, 0, 2]);
        assert_eq!(ports_of(&with_options), [1, 2]);
        let v6 = packet(&[0x60, 0, 0, 0, 0, 0, 17, 64], 40, [0, 3, 0, 4]);
        assert_eq!(ports_of(&v6), [3, 4]);
        let fragment = packet(&[0x45, 0, 0, 0, 0, 0, 0, 1, 64, 6], 20, [9, 9, 9, 9]);
        let icmp = packet(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1], 20, [9, 9, 9, 9]);
        for other in [
            &fragment[..],
            &icmp,
            &tcp[..22],
            &tcp[..5],
            &[0x45],
            &[],
            &[0x10; 60],
        ] {
            assert_eq!(ports_of(other), [0, 0], "{other:?}");
        }
    }

    #[test]
    fn ecn_and_class_are_read_from_both_families() {
        let read = |packet: &[u8]| {
            let headers = IpHeaders::parse(packet);
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
    fn classifier_fields_are_read_from_both_families() {
        let mut v4 = packet(
            &[0x45, 46 << 2 | 1, 0, 0, 0, 0, 0x40, 0, 64, 17],
            20,
            [0, 53, 0x30, 0x39],
        );
        v4[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 7]);
        let headers = IpHeaders::parse(&v4);
        let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 7)].map(IpAddr::V4);
        assert_eq!(headers.addresses, Some(addresses));
        assert_eq!(
            (headers.protocol, headers.dscp, headers.ecn),
            (17, 46, Ecn::Ect1)
        );
        assert_eq!(headers.ports, [53, 12_345]);

        let mut v6 = packet(
            &[
                0x60 | 46 >> 2,
                (46 << 6) as u8 | 0b10 << 4,
                0,
                0,
                0,
                0,
                6,
                64,
            ],
            40,
            [0, 80, 0, 81],
        );
        v6[8] = 0xfd;
        v6[23] = 1;
        v6[39] = 2;
        let headers = IpHeaders::parse(&v6);
        let addresses = ["fd00::1", "::2"].map(|text| text.parse::<IpAddr>().expect("an address"));
        assert_eq!(headers.addresses, Some(addresses));
        assert_eq!(
            (headers.protocol, headers.dscp, headers.ecn),
            (6, 46, Ecn::Ect0)
        );
        assert_eq!(headers.ports, [80, 81]);

        // A fragment has everything but ports; a truncated packet has nothing.
        v4[7] = 1;
        assert_eq!(
            (IpHeaders::parse(&v4).ports, IpHeaders::parse(&v4).dscp),
            ([0; 2], 46)
        );
        let nothing = IpHeaders {
            class: 1,
            ..IpHeaders::default()
        };
        assert_eq!(IpHeaders::parse(&v4[..19]), nothing);
        assert_eq!(IpHeaders::parse(&v6[..39]), nothing);
    }

    #[test]
    fn transport_headers_are_found_after_extension_headers() {
        let v6 = |first: u8, rest: &[u8]| {
            let mut packet = vec![0; 40];
            (packet[0], packet[6]) = (0x60, first);
            packet.extend(rest);
            let headers = IpHeaders::parse(&packet);
            (headers.protocol, headers.ports)
        };
        let ports = [0, 80, 0, 81];
        use crate::headers::{AUTHENTICATION, FRAGMENT, HOP_BY_HOP, ROUTING};
        // Hop-by-hop options of 8 bytes, then a routing header of 16, then TCP.
        let options = [ROUTING, 0, 0, 0, 0, 0, 0, 0];
        let routing = [TCP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            v6(HOP_BY_HOP, &[&options[..], &routing, &ports].concat()),
            (TCP, [80, 81])
        );
        // An authentication header counts in units of four bytes, minus two.
        let authentication = [UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            v6(AUTHENTICATION, &[&authentication[..], &ports].concat()),
            (UDP, [80, 81])
        );
        // First, later and only fragment: ports only in the last case.
        for (place, expected) in [(1_u16, [0; 2]), (8 << 3, [0; 2]), (0, [80, 81])] {
            let [high, low] = place.to_be_bytes();
            let fragment = [TCP, 0, high, low, 0, 0, 0, 1];
            assert_eq!(
                v6(FRAGMENT, &[&fragment[..], &ports].concat()),
                (TCP, expected)
            );
        }
        // Truncated packets, and an endless chain.
        assert_eq!(v6(HOP_BY_HOP, &[]), (HOP_BY_HOP, [0; 2]));
        assert_eq!(v6(HOP_BY_HOP, &[ROUTING]), (HOP_BY_HOP, [0; 2]));
        assert_eq!(v6(HOP_BY_HOP, &[HOP_BY_HOP; 9 * 9]).0, HOP_BY_HOP);
    }

    #[test]
    fn the_class_follows_the_dscp_unless_set() {
        use ccplane_qdisc::Packet as _;
        let headers = IpHeaders::parse(&packet(&[0x45, 46 << 2 | 0b10], 20, [0; 4]));
        let packet = FramePacket::new(3, 2, 1_500, &headers);
        assert_eq!(
            (packet.class(), packet.flow_hash(), packet.ecn()),
            (0, headers.flow, Ecn::Ect0)
        );
        let mut other = packet.with_class(7);
        assert_eq!(
            (other.class(), other.flow_hash(), other.bytes()),
            (7, headers.flow, 1_500)
        );
        assert_eq!((other.frame, other.index), (3, 2));
        other.mark_ce();
        assert!(other.marked && other.ecn() == Ecn::Ce);
        assert!(
            size_of::<FramePacket>() <= 16,
            "queues hold millions of packets"
        );
    }

    #[test]
    fn flows_fall_into_different_buckets() {
        let mut buckets = BTreeSet::new();
        for port in 0..256_u16 {
            let [high, low] = (40_000 + port).to_be_bytes();
            let tcp = packet(
                &[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6],
                20,
                [high, low, 0x14, 0x51],
            );
            assert_eq!(IpHeaders::parse(&tcp).flow, IpHeaders::parse(&tcp).flow);
            buckets.insert(IpHeaders::parse(&tcp).flow % 1_024);
        }
        // 256 random draws out of 1024 hit 227 different ones on average, with a deviation of 5.
        assert!(buckets.len() > 200, "{}", buckets.len());
    }
}
