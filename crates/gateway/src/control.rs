//! Control messages between the two gateways of a tunnel. They travel inside it, as UDP between the
//! tunnel addresses, port 28317.

use std::net::{IpAddr, SocketAddr};

use ccplane_bundle::FEEDBACK_PORT;
use ccplane_host::headers::{
    DONT_FRAGMENT, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, IpPayload, UDP, UDP_HEADER_BYTES,
    addresses, ip_header_bytes, read_word, write_udp_headers,
};

/// Longest packet that [`write`] produces: IPv6, UDP and the longest message.
pub const CONTROL_PACKET_BYTES_MAX: usize =
    IPV6_HEADER_BYTES + UDP_HEADER_BYTES + ccplane_bundle::FEEDBACK_BYTES;

/// Writes a packet with this message and returns its length. Returns `None` if the addresses are of
/// different families or `room` is too small.
pub fn write(from: IpAddr, to: IpAddr, message: &[u8], room: &mut [u8]) -> Option<usize> {
    let head = head_bytes(to);
    let packet = room.get_mut(..head + message.len())?;
    packet[head..].copy_from_slice(message);
    let [from, to] = [from, to].map(|address| SocketAddr::new(address, FEEDBACK_PORT));
    write_udp_headers(packet, from, to)?;
    Some(packet.len())
}

/// Returns the bytes of IP and UDP header in front of a message.
pub const fn head_bytes(to: IpAddr) -> usize {
    ip_header_bytes(to) + UDP_HEADER_BYTES
}

/// Returns the message in a packet between these addresses, or `None` if it is any other packet.
/// The checksum is not verified, because the tunnel authenticates packets. Other hosts of the
/// peer's site cannot forge a message: its gateway drops every packet for which [`is_message`] is
/// true.
pub fn read(packet: &[u8], from: IpAddr, to: IpAddr) -> Option<&[u8]> {
    let udp = datagram(packet, from, to)?;
    let length = read_word(udp.get(..UDP_HEADER_BYTES)?, 4);
    udp.get(UDP_HEADER_BYTES..usize::from(length))
}

/// Returns whether the gateway at `to` would accept a packet as a message from the gateway at
/// `from`.
pub fn is_message(packet: &[u8], from: IpAddr, to: IpAddr) -> bool {
    datagram(packet, from, to).is_some()
}

/// Returns the UDP header and payload of a packet between these addresses to [`FEEDBACK_PORT`].
/// The UDP header must follow the IP header immediately: a packet with IPv6 extension headers,
/// a fragment, or a packet with IPv4's reserved flag is not a message. [`write`] produces none.
fn datagram(packet: &[u8], from: IpAddr, to: IpAddr) -> Option<&[u8]> {
    let payload = IpPayload::parse(packet)?;
    if payload.protocol != UDP || addresses(packet)? != [from, to] {
        return None;
    }
    let follows = match from {
        IpAddr::V4(_) => {
            let flags_and_offset = read_word(packet.get(6..8)?, 0);
            payload.offset >= IPV4_HEADER_BYTES && flags_and_offset & !DONT_FRAGMENT == 0
        }
        IpAddr::V6(_) => payload.offset == IPV6_HEADER_BYTES,
    };
    packet
        .get(payload.offset..)
        .filter(|udp| follows && udp.get(2..4) == Some(&FEEDBACK_PORT.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use ccplane_host::IpHeaders;
    use ccplane_host::headers::{
        FRAGMENT_OFFSET_MASK, MORE_FRAGMENTS, checksum, transport_checksum, write_word,
    };
    use proptest::prelude::*;

    use super::*;

    fn ends(v6: bool) -> [IpAddr; 2] {
        match v6 {
            true => ["fd07::1".parse().unwrap(), "fd07::2".parse().unwrap()],
            false => ["10.7.0.1".parse().unwrap(), "10.7.0.2".parse().unwrap()],
        }
    }

    proptest! {
        #[test]
        fn control_messages_round_trip_to_the_peer_only(
            v6: bool,
            message in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let [from, to] = ends(v6);
            let mut room = [0xaa; 200];
            let length = write(from, to, &message, &mut room).unwrap();
            prop_assert!(length <= CONTROL_PACKET_BYTES_MAX);
            let packet = &room[..length];
            prop_assert_eq!(read(packet, from, to), Some(&message[..]));
            prop_assert!(is_message(packet, from, to) && !is_message(packet, to, from));
            prop_assert_eq!(read(packet, to, from), None);
            prop_assert_eq!(read(&packet[..length - 1], from, to), None);
            let headers = IpHeaders::parse(packet);
            prop_assert_eq!(headers.addresses, Some([from, to]));
            prop_assert_eq!(headers.ports, [FEEDBACK_PORT, FEEDBACK_PORT]);
            let head = head_bytes(to) - UDP_HEADER_BYTES;
            prop_assert_eq!(transport_checksum(packet, head, UDP), 0);
            if !v6 {
                prop_assert_eq!(checksum(&packet[..head]), 0);
            }
        }

        #[test]
        fn no_bytes_harm_the_reader(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..100),
            v6: bool,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0xf };
            }
            let [from, to] = ends(v6);
            prop_assert!(read(&bytes, from, to).is_none() || is_message(&bytes, from, to));
        }
    }

    fn message(v6: bool) -> Vec<u8> {
        let ([from, to], mut room) = (ends(v6), [0; 200]);
        let length = write(from, to, b"message", &mut room).unwrap();
        room[..length].to_vec()
    }

    fn assert_refused(packet: &[u8], v6: bool, why: &str) {
        let [from, to] = ends(v6);
        assert_eq!(read(packet, from, to), None, "{why}");
        assert!(!is_message(packet, from, to), "{why}");
    }

    #[test]
    fn only_a_datagram_without_fragmentation_flags_is_a_message() {
        let [from, to] = ends(false);
        let with_flags = |flags: u16| {
            let mut packet = message(false);
            write_word(&mut packet, 6, flags);
            packet
        };
        for flags in [0, DONT_FRAGMENT] {
            let packet = with_flags(flags);
            assert_eq!(read(&packet, from, to), Some(&b"message"[..]), "{flags:#x}");
        }
        for (flags, why) in [
            (0x8000, "the reserved flag"),
            (0x8000 | DONT_FRAGMENT, "the reserved flag and DF"),
            (MORE_FRAGMENTS, "the first fragment"),
            (DONT_FRAGMENT | MORE_FRAGMENTS, "the first fragment with DF"),
            (MORE_FRAGMENTS | 1, "a middle fragment"),
            (1, "the last fragment"),
            (FRAGMENT_OFFSET_MASK, "the last possible fragment"),
        ] {
            assert_refused(&with_flags(flags), false, why);
        }
    }

    #[test]
    fn a_message_has_no_ipv6_extension_headers() {
        // Numbers of RFC 8200 and RFC 4302. The header has 8 bytes in all of them, or 12 for
        // authentication.
        for (number, header_bytes, why) in [
            (0, 8, "hop-by-hop options"),
            (43, 8, "routing"),
            (44, 8, "an atomic fragment (RFC 6946)"),
            (51, 12, "authentication"),
            (60, 8, "destination options"),
        ] {
            let mut packet = message(true);
            packet[6] = number;
            let mut header = vec![0; header_bytes];
            header[0] = UDP;
            header[1] = u8::from(number == 51);
            packet.splice(IPV6_HEADER_BYTES..IPV6_HEADER_BYTES, header);
            let payload = packet.len() - IPV6_HEADER_BYTES;
            write_word(&mut packet, 4, payload as u16);
            let headers = IpHeaders::parse(&packet);
            assert_eq!(headers.ports, [FEEDBACK_PORT, FEEDBACK_PORT], "{why}");
            assert_refused(&packet, true, why);
        }
        let mut fragment = message(true);
        fragment[6] = 44;
        fragment.splice(
            IPV6_HEADER_BYTES..IPV6_HEADER_BYTES,
            [UDP, 0, 0, 1, 0, 0, 0, 9],
        );
        assert_refused(&fragment, true, "the first fragment");
    }

    #[test]
    fn an_invalid_header_length_is_no_message() {
        for words in 0..5 {
            let mut packet = message(false);
            packet[0] = 0x40 | words;
            assert_refused(&packet, false, "a header below 20 bytes");
        }
    }

    #[test]
    fn mixed_families_and_oversized_messages_are_refused() {
        let mut room = [0; 200];
        assert_eq!(write(ends(true)[0], ends(false)[0], &[], &mut room), None);
        assert_eq!(
            write(ends(true)[0], ends(true)[1], &[0; 100], &mut room[..60]),
            None
        );
    }
}
