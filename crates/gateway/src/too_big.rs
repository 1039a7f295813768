//! ICMP "fragmentation needed" (RFC 792, RFC 1191) and ICMPv6 "packet too big" (RFC 4443, section
//! 3.2) messages to the sender of a packet that exceeds the path MTU.
//!
//! Their source address is the packet's destination and not the gateway's own address: a host drops
//! incoming packets from one of its own addresses, and the gateway host sends some of these packets
//! itself.

use std::net::IpAddr;

use ccplane_host::headers::{
    DONT_FRAGMENT, ICMP, ICMP_HEADER_BYTES, ICMPV6, IpPayload, addresses, checksum,
    ip_header_bytes, read_word, transport_checksum, write_ip_header, write_word,
};

const ICMP_DESTINATION_UNREACHABLE: u8 = 3;
const ICMP_FRAGMENTATION_NEEDED: u8 = 4;
const ICMPV6_PACKET_TOO_BIG: u8 = 2;
/// ICMP types that are error messages; these never trigger another one (RFC 1122, section 3.2.2).
const ICMP_ERROR_TYPES: [u8; 5] = [3, 4, 5, 11, 12];
/// First ICMPv6 type that is not an error message (RFC 4443, section 2.1).
const ICMPV6_INFORMATIONAL_TYPE_MIN: u8 = 128;

/// Longest ICMP message over IPv4, which reaches every host (RFC 1812, section 4.3.2.3).
const ICMP_MESSAGE_BYTES_MAX: usize = 576;
/// Longest ICMPv6 message (RFC 4443, section 3.2).
pub const ICMPV6_MESSAGE_BYTES_MAX: usize = 1_280;

/// Writes the message for a packet longer than `mtu` bytes into `room`, which has at least
/// [`ICMPV6_MESSAGE_BYTES_MAX`] bytes, and returns its length. Returns `None` if no message may be
/// sent: for ICMP errors, source or destination addresses that are not unicast and, over IPv4,
/// fragments other than the first and packets that may be fragmented. An IPv6 fragment is answered,
/// because routers do not fragment IPv6 packets.
pub fn answer(packet: &[u8], mtu: u32, room: &mut [u8]) -> Option<usize> {
    let [source, destination] = addresses(packet)?;
    let payload = IpPayload::parse(packet)?;
    let icmp_type = packet.get(payload.offset).copied();
    let refused = match source {
        IpAddr::V4(_) => {
            payload.offset > packet.len()
                || payload.later_fragment
                || read_word(packet, 6) & DONT_FRAGMENT == 0
                || payload.protocol == ICMP
                    && icmp_type.is_none_or(|kind| ICMP_ERROR_TYPES.contains(&kind))
        }
        IpAddr::V6(_) => {
            payload.protocol == ICMPV6
                && !payload.later_fragment
                && icmp_type.is_none_or(|kind| kind < ICMPV6_INFORMATIONAL_TYPE_MIN)
        }
    };
    if refused || !is_host(source) || !is_host(destination) {
        return None;
    }
    let (protocol, message_bytes_max) = match source {
        IpAddr::V4(_) => (ICMP, ICMP_MESSAGE_BYTES_MAX),
        IpAddr::V6(_) => (ICMPV6, ICMPV6_MESSAGE_BYTES_MAX),
    };
    let head = ip_header_bytes(source);
    let quoted = packet
        .len()
        .min(message_bytes_max - head - ICMP_HEADER_BYTES);
    let length = head + ICMP_HEADER_BYTES + quoted;
    let answer = room.get_mut(..length)?;
    write_ip_header(answer, protocol, destination, source)?;
    let icmp = &mut answer[head..];
    icmp[..ICMP_HEADER_BYTES].fill(0);
    icmp[ICMP_HEADER_BYTES..].copy_from_slice(&packet[..quoted]);
    let check = match source {
        IpAddr::V4(_) => {
            (icmp[0], icmp[1]) = (ICMP_DESTINATION_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED);
            write_word(icmp, 6, u16::try_from(mtu).unwrap_or(u16::MAX));
            checksum(icmp)
        }
        IpAddr::V6(_) => {
            icmp[0] = ICMPV6_PACKET_TOO_BIG;
            icmp[4..8].copy_from_slice(&mtu.to_be_bytes());
            transport_checksum(answer, head, ICMPV6)
        }
    };
    write_word(answer, head + 2, check);
    Some(length)
}

/// Returns whether an address can belong to a host. IPv4: not in 0.0.0.0/8, multicast, reserved or
/// broadcast. IPv6: neither `::` nor multicast.
fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => matches!(v4.octets()[0], 1..=223),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{
        Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice, icmpv4,
    };
    use proptest::prelude::*;

    use super::*;

    const ADDRESS_A: [u8; 4] = [10, 1, 0, 1];
    const ADDRESS_B: [u8; 4] = [10, 2, 0, 1];
    const ADDRESS_A_V6: [u8; 16] = [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const ADDRESS_B_V6: [u8; 16] = [0xfd, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    fn datagram(v6: bool, payload: usize) -> Vec<u8> {
        let builder = if v6 {
            PacketBuilder::ipv6(ADDRESS_A_V6, ADDRESS_B_V6, 64)
        } else {
            PacketBuilder::ipv4(ADDRESS_A, ADDRESS_B, 64)
        };
        let builder = builder.udp(1, 2);
        let mut packet = vec![0; builder.size(payload)];
        builder
            .write_to_slice(&mut packet, &vec![7; payload])
            .unwrap();
        packet
    }

    proptest! {
        /// Parsed by `etherparse`, whose checksums must agree.
        #[test]
        fn the_sender_is_told_how_long_packets_may_be(
            v6: bool,
            payload in 0_usize..3_000,
            mtu in 576_u32..2_000,
        ) {
            let packet = datagram(v6, payload);
            let mut room = [0xaa; ICMPV6_MESSAGE_BYTES_MAX];
            let bytes = answer(&packet, mtu, &mut room).unwrap();
            let longest = if v6 {
                ICMPV6_MESSAGE_BYTES_MAX
            } else {
                ICMP_MESSAGE_BYTES_MAX
            };
            prop_assert!(bytes <= longest, "{} bytes", bytes);
            let read = SlicedPacket::from_ip(&room[..bytes]).unwrap();
            let quoted = match (read.net, read.transport) {
                (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
                    prop_assert_eq!(
                        (ip.header().source(), ip.header().destination()),
                        (ADDRESS_B, ADDRESS_A)
                    );
                    prop_assert_eq!(
                        ip.header().to_header().calc_header_checksum(),
                        ip.header().header_checksum()
                    );
                    let header = icmp.header();
                    let next_hop_mtu = mtu as u16;
                    prop_assert_eq!(
                        &header.icmp_type,
                        &Icmpv4Type::DestinationUnreachable(
                            icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu }
                        )
                    );
                    prop_assert_eq!(
                        header.icmp_type.calc_checksum(icmp.payload()),
                        header.checksum
                    );
                    icmp.payload().to_vec()
                }
                (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
                    prop_assert_eq!(
                        (ip.header().source(), ip.header().destination()),
                        (ADDRESS_B_V6, ADDRESS_A_V6)
                    );
                    let header = icmp.header();
                    prop_assert_eq!(&header.icmp_type, &Icmpv6Type::PacketTooBig { mtu });
                    let sum = header
                        .icmp_type
                        .calc_checksum(ADDRESS_B_V6, ADDRESS_A_V6, icmp.payload())
                        .unwrap();
                    prop_assert_eq!(sum, header.checksum);
                    icmp.payload().to_vec()
                }
                other => panic!("{other:?}"),
            };
            prop_assert!(packet.starts_with(&quoted) && quoted.len() >= packet.len().min(500));
        }

        #[test]
        fn no_bytes_harm_it(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..100),
            v6: bool,
            mtu: u32,
            room in 0_usize..1_300,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0xf };
            }
            let mut room = vec![0; room];
            if let Some(length) = answer(&bytes, mtu, &mut room) {
                prop_assert!(length <= room.len());
            }
        }
    }

    /// Makes an IPv6 packet a fragment of an ICMPv6 message with this offset. The fragment header
    /// replaces the first 8 bytes of the payload; the byte behind it is `icmp_type`.
    fn insert_fragment(packet: &mut [u8], offset: u8, icmp_type: u8) {
        const FRAGMENT: u8 = 44;
        packet[6] = FRAGMENT;
        packet[40..48].copy_from_slice(&[ICMPV6, 0, 0, offset | 1, 0, 0, 0, 7]);
        packet[48] = icmp_type;
    }

    #[test]
    fn icmp_errors_are_sent_only_where_allowed() {
        let told =
            |packet: &[u8]| answer(packet, 576, &mut [0; ICMPV6_MESSAGE_BYTES_MAX]).is_some();
        let (v4, v6) = (datagram(false, 1_000), datagram(true, 1_000));
        assert!(told(&v4) && told(&v6));
        let changes: [fn(&mut Vec<u8>); 8] = [
            |p| p[6] &= !0x40,              // may be fragmented
            |p| p[7] = 1,                   // not the first fragment
            |p| (p[9], p[20]) = (ICMP, 3),  // ICMP error
            |p| (p[9], p[20]) = (ICMP, 11), // another ICMP error
            |p| p[12..16].fill(0),          // unspecified source
            |p| p[12] = 224,                // multicast source
            |p| p[16..20].fill(255),        // broadcast destination
            |p| p.truncate(19),             // truncated
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut packet = v4.clone();
            change(&mut packet);
            assert!(!told(&packet), "{n}");
        }
        let changes: [fn(&mut Vec<u8>); 7] = [
            |p| (p[6], p[40]) = (ICMPV6, 1),                      // ICMPv6 error
            |p| (p[6], p[40]) = (ICMPV6, 127),                    // another ICMPv6 error
            |p| (p[6], p[40], p[41], p[48]) = (60, ICMPV6, 0, 1), // error behind options
            |p| insert_fragment(p, 0, 1),                         // error in a first fragment
            |p| p[8..24].fill(0),                                 // unspecified source
            |p| p[24] = 0xff,                                     // multicast destination
            |p| p.truncate(39),                                   // truncated
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut packet = v6.clone();
            change(&mut packet);
            assert!(!told(&packet), "{n}");
        }
        let answered: [fn(&mut Vec<u8>); 4] = [
            |p| (p[6], p[40]) = (ICMPV6, 128), // echo request
            |p| insert_fragment(p, 0, 128),    // echo request in a first fragment
            |p| insert_fragment(p, 8, 1),      // later fragment, whose bytes are not a header
            |p| (p[6], p[41]) = (60, 255),     // extension header longer than the packet
        ];
        for (n, change) in answered.iter().enumerate() {
            let mut packet = v6.clone();
            change(&mut packet);
            assert!(told(&packet), "{n}");
        }
        let mut echo = v4.clone();
        (echo[9], echo[20]) = (ICMP, 8);
        assert!(told(&echo), "an echo request is not an error");
        let mut options = v4;
        options.truncate(40);
        options[0] = 0x4f;
        assert!(!told(&options), "options behind the end of the packet");
    }
}
