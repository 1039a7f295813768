//! IP, TCP, UDP and ICMP headers: lengths and offsets, parsing, writing, and the Internet checksum
//! (RFC 1071).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

/// Length of an IPv4 header without options.
pub const IPV4_HEADER_BYTES: usize = 20;
/// Length of the longest IPv4 header.
pub const IPV4_HEADER_BYTES_MAX: usize = 60;
/// Length of an IPv6 header without extension headers.
pub const IPV6_HEADER_BYTES: usize = 40;
/// Length of a TCP header without options.
pub const TCP_HEADER_BYTES: usize = 20;
/// Length of a UDP header.
pub const UDP_HEADER_BYTES: usize = 8;
/// Length of an ICMP header.
pub const ICMP_HEADER_BYTES: usize = 8;
/// Length of an Ethernet header: addresses and type.
pub const ETHERNET_HEADER_BYTES: usize = 14;

/// IANA protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IANA protocol number of TCP.
pub const TCP: u8 = 6;
/// IANA protocol number of UDP.
pub const UDP: u8 = 17;
/// IANA protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Offset of the checksum in a TCP header.
pub const TCP_CHECKSUM_OFFSET: usize = 16;
/// Offset of the checksum in a UDP header.
pub const UDP_CHECKSUM_OFFSET: usize = 6;

/// "Don't fragment" in the word with the fragment offset (RFC 791, section 3.1).
pub const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments" in the same word.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// Fragment offset in the same word, in units of 8 bytes.
pub const FRAGMENT_OFFSET_MASK: u16 = 0x1fff;

/// Hop limit, or time to live, of packets that ccplane generates.
const HOP_LIMIT: u8 = 64;

/// Returns the position of source and destination address in an IP packet.
pub(crate) fn address_range(packet: &[u8]) -> Range<usize> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => 12..20,
        _ => 8..40,
    }
}

/// Returns the length of the IP header without options and extension headers.
pub const fn ip_header_bytes(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => IPV4_HEADER_BYTES,
        IpAddr::V6(_) => IPV6_HEADER_BYTES,
    }
}

/// Returns source and destination address of an IP packet, or `None` if the packet is truncated.
pub fn addresses(packet: &[u8]) -> Option<[IpAddr; 2]> {
    let bytes = packet.get(address_range(packet))?;
    match packet.first()? >> 4 {
        4 => {
            let [a, b, c, d, rest @ ..] = *bytes.first_chunk::<8>()?;
            Some([[a, b, c, d], rest].map(|octets| IpAddr::V4(Ipv4Addr::from(octets))))
        }
        6 => {
            let (source, destination) = bytes.split_at(16);
            let address = |bytes: &[u8]| Some(IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk()?)));
            Some([address(source)?, address(destination)?])
        }
        _ => None,
    }
}

/// Returns the traffic class, DSCP and ECN field, of an IP packet (RFC 2474, RFC 3168).
#[inline]
pub fn traffic_class(packet: &[u8]) -> u8 {
    match packet {
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        [_, second, ..] => *second,
        _ => 0,
    }
}

/// Payload of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPayload {
    /// IANA protocol number after the IPv6 extension headers.
    pub protocol: u8,
    /// Offset of the payload in the packet; it may be behind the end of a truncated packet.
    pub offset: usize,
    /// True if the packet is a fragment.
    pub fragment: bool,
    /// True if the packet is a fragment other than the first.
    pub later_fragment: bool,
    /// True if an IPv6 authentication header protects the payload.
    pub authenticated: bool,
}

/// IPv6 extension headers (RFC 8200, section 4; RFC 4302).
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
/// Each occurs once, destination options twice. Longer chains are not followed.
const EXTENSION_HEADERS_MAX: usize = 6;

impl IpPayload {
    /// Finds the payload. Returns `None` if the packet is truncated or not an IP packet.
    #[inline]
    pub fn parse(packet: &[u8]) -> Option<IpPayload> {
        let first = *packet.first()?;
        match first >> 4 {
            4 => {
                let protocol = *packet.get(9)?;
                let fragment = read_word(packet, 6);
                Some(IpPayload {
                    protocol,
                    offset: usize::from(first & 0xf) * 4,
                    fragment: fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET_MASK) != 0,
                    later_fragment: fragment & FRAGMENT_OFFSET_MASK != 0,
                    authenticated: false,
                })
            }
            6 => IpPayload::parse_v6(packet),
            _ => None,
        }
    }

    /// Skips the extension headers of an IPv6 packet. A fragment's protocol is the first header of
    /// the fragmented part, the same in all fragments.
    fn parse_v6(packet: &[u8]) -> Option<IpPayload> {
        let mut payload = IpPayload {
            protocol: *packet.get(6)?,
            offset: IPV6_HEADER_BYTES,
            fragment: false,
            later_fragment: false,
            authenticated: false,
        };
        for _ in 0..EXTENSION_HEADERS_MAX {
            let at = payload.offset;
            let units = |packet: &[u8]| packet.get(at + 1).map(|units| usize::from(*units));
            let bytes = match payload.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => units(packet).map(|units| 8 + 8 * units),
                AUTHENTICATION => units(packet).map(|units| 8 + 4 * units),
                FRAGMENT => Some(8),
                _ => break,
            };
            let (Some(next), Some(bytes)) = (packet.get(at), bytes) else {
                break;
            };
            if payload.protocol == FRAGMENT {
                // Offset and the M flag; with both zero the packet is complete (RFC 6946).
                let place = packet.get(at + 2..at + 4)?;
                let place = read_word(place, 0);
                payload.fragment = place & 0xfff9 != 0;
                payload.later_fragment = place & 0xfff8 != 0;
            }
            payload.authenticated |= payload.protocol == AUTHENTICATION;
            (payload.protocol, payload.offset) = (*next, at + bytes);
            if payload.fragment {
                break;
            }
        }
        Some(payload)
    }
}

/// Writes the IP header of a packet, which fills `packet`, and returns the header's length. Returns
/// `None` if the addresses are of different families or the length is not valid.
pub fn write_ip_header(
    packet: &mut [u8],
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
) -> Option<usize> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = u16::try_from(packet.len()).ok()?;
            let head = packet.get_mut(..IPV4_HEADER_BYTES)?;
            head.fill(0);
            (head[0], head[8], head[9]) = (0x45, HOP_LIMIT, protocol);
            write_word(head, 2, length);
            head[12..16].copy_from_slice(&source.octets());
            head[16..20].copy_from_slice(&destination.octets());
            write_ipv4_checksum(head);
            Some(IPV4_HEADER_BYTES)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let length = u16::try_from(packet.len().checked_sub(IPV6_HEADER_BYTES)?).ok()?;
            let head = packet.get_mut(..IPV6_HEADER_BYTES)?;
            head.fill(0);
            (head[0], head[6], head[7]) = (0x60, protocol, HOP_LIMIT);
            write_word(head, 4, length);
            head[8..24].copy_from_slice(&source.octets());
            head[24..40].copy_from_slice(&destination.octets());
            Some(IPV6_HEADER_BYTES)
        }
        _ => None,
    }
}

/// Writes the IP and UDP headers of a packet whose payload is in place, and returns their length.
/// Returns `None` if the addresses are of different families or the length is not valid.
pub fn write_udp_headers(packet: &mut [u8], from: SocketAddr, to: SocketAddr) -> Option<usize> {
    let head = write_ip_header(packet, UDP, from.ip(), to.ip())?;
    let udp = packet.get_mut(head..)?;
    let length = u16::try_from(udp.len()).ok()?;
    let header = udp.get_mut(..UDP_HEADER_BYTES)?;
    write_word(header, 0, from.port());
    write_word(header, 2, to.port());
    write_word(header, 4, length);
    write_word(header, UDP_CHECKSUM_OFFSET, 0);
    let checksum = match transport_checksum(packet, head, UDP) {
        // A checksum of zero means "no checksum" (RFC 768).
        0 => 0xffff,
        checksum => checksum,
    };
    write_word(packet, head + UDP_CHECKSUM_OFFSET, checksum);
    Some(head + UDP_HEADER_BYTES)
}

/// Writes the checksum of an IPv4 header, including its options.
pub fn write_ipv4_checksum(header: &mut [u8]) {
    write_word(header, 10, 0);
    let value = checksum(header);
    write_word(header, 10, value);
}

/// Returns the checksum over the pseudo-header and the transport segment at `offset`, whose
/// checksum field is zero.
pub fn transport_checksum(packet: &[u8], offset: usize, protocol: u8) -> u16 {
    let segment = packet.get(offset..).unwrap_or_default();
    !add(
        pseudo_header_sum(packet, protocol, segment.len() as u16),
        sum(segment),
    )
}

/// Returns a checksum after a covered word changed (RFC 1624, equation 3).
pub fn updated_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// Returns the one's complement sum of 16-bit words; an odd byte at the end is padded with zero.
/// Zero only if all words are zero.
pub fn sum(bytes: &[u8]) -> u16 {
    // 32 bits at a time and in native byte order, which is corrected in the result (RFC 1071,
    // section 2, B).
    let mut words = bytes.chunks_exact(4);
    let native = |word: [u8; 4]| u64::from(u32::from_ne_bytes(word));
    let mut sum: u64 = words
        .by_ref()
        .map(|word| native([word[0], word[1], word[2], word[3]]))
        .sum();
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    sum += native(last);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::from_be_bytes((sum as u16).to_ne_bytes())
}

/// Adds the bytes `rest` to a sum over the preceding `first` bytes.
pub(crate) fn extend_sum(sum: u16, first: usize, rest: &[u8]) -> u16 {
    let more = self::sum(rest);
    // Data at an odd offset has its bytes swapped within the words (RFC 1071, section 2, B).
    add(
        sum,
        if first % 2 == 1 {
            more.swap_bytes()
        } else {
            more
        },
    )
}

/// Returns the sum over the pseudo-header of a segment of `length` bytes in this IP packet (RFC
/// 9293 section 3.1, RFC 8200 section 8.1).
pub(crate) fn pseudo_header_sum(packet: &[u8], protocol: u8, length: u16) -> u16 {
    let sum = add(
        sum(packet.get(address_range(packet)).unwrap_or_default()),
        protocol.into(),
    );
    add(sum, length)
}

/// Returns the checksum: the complement of the sum.
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// Adds two words in one's complement.
pub fn add(one: u16, other: u16) -> u16 {
    fold(u32::from(one) + u32::from(other))
}

/// Folds a sum of 16-bit words in one's complement.
pub(crate) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Reads a word in network byte order.
#[inline]
pub fn read_word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes a word in network byte order.
#[inline]
pub fn write_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Word by word, the definition in RFC 1071.
    fn plain(bytes: &[u8]) -> u16 {
        let words = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
        fold(words.sum())
    }

    proptest! {
        #[test]
        fn the_checksum_is_additive(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0), Just(0xff)],
                0..2_000,
            ),
            cut in 0.0..1.0_f64,
        ) {
            prop_assert_eq!(sum(&bytes), plain(&bytes));
            let (first, rest) = bytes.split_at((bytes.len() as f64 * cut) as usize);
            prop_assert_eq!(extend_sum(sum(first), first.len(), rest), plain(&bytes));
        }

        #[test]
        fn a_checksum_follows_a_changed_word(
            mut bytes in proptest::collection::vec(any::<u8>(), 20..60),
            new: u16,
        ) {
            write_ipv4_checksum(&mut bytes);
            let old = read_word(&bytes, 4);
            let updated = updated_checksum(read_word(&bytes, 10), old, new);
            write_word(&mut bytes, 4, new);
            write_word(&mut bytes, 10, updated);
            prop_assert_eq!(checksum(&bytes), 0);
        }

        #[test]
        fn a_written_header_is_parsed(
            v6: bool,
            source: u128,
            destination: u128,
            payload in 0_usize..2_000,
        ) {
            let address = |bits: u128| match v6 {
                true => IpAddr::V6(bits.into()),
                false => IpAddr::V4((bits as u32).into()),
            };
            let ends = [source, destination].map(address);
            let head = if v6 {
                IPV6_HEADER_BYTES
            } else {
                IPV4_HEADER_BYTES
            };
            let mut packet = vec![0xaa; head + payload];
            prop_assert_eq!(ip_header_bytes(ends[0]), head);
            prop_assert_eq!(
                write_ip_header(&mut packet, UDP, ends[0], ends[1]),
                Some(head)
            );
            prop_assert_eq!(addresses(&packet), Some(ends));
            let parsed = IpPayload::parse(&packet);
            let expected = IpPayload {
                protocol: UDP,
                offset: head,
                fragment: false,
                later_fragment: false,
                authenticated: false,
            };
            prop_assert_eq!(parsed, Some(expected));
            let length = read_word(&packet, if v6 { 4 } else { 2 });
            prop_assert_eq!(usize::from(length), if v6 { payload } else { packet.len() });
            prop_assert!(v6 || checksum(&packet[..head]) == 0);
            prop_assert!(packet[head..].iter().all(|byte| *byte == 0xaa));
        }
    }

    #[test]
    fn headers_of_mixed_families_or_without_room_are_not_written() {
        let (v4, v6) = (
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        );
        assert_eq!(write_ip_header(&mut [0; 60], UDP, v4, v6), None);
        assert_eq!(write_ip_header(&mut [0; 19], UDP, v4, v4), None);
        assert_eq!(write_ip_header(&mut [0; 39], UDP, v6, v6), None);
        assert_eq!(write_ip_header(&mut vec![0; 65_536], UDP, v4, v4), None);
    }

    #[test]
    fn the_checksum_matches_the_rfc_example() {
        // RFC 1071, section 3.
        assert_eq!(
            sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            0xddf2
        );
        assert_eq!(checksum(&[]), 0xffff);
    }
}
