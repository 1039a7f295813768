//! Control messages between the two gateways of a tunnel. They travel inside it, as UDP between the
//! tunnel addresses, port 28317.

use std::net::{IpAddr, SocketAddr};

use ccplane_bundle::FEEDBACK_PORT;
use ccplane_host::headers::{
    IPV6_HEADER_BYTES, IpPayload, UDP, UDP_HEADER_BYTES, addresses, ip_header_bytes, read_word,
    write_udp_headers,
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

/// Returns the UDP header and payload of an unfragmented packet between these addresses to
/// [`FEEDBACK_PORT`].
fn datagram(packet: &[u8], from: IpAddr, to: IpAddr) -> Option<&[u8]> {
    let payload = IpPayload::parse(packet)?;
    if payload.protocol != UDP || payload.fragment || addresses(packet)? != [from, to] {
        return None;
    }
    packet
        .get(payload.offset..)
        .filter(|udp| udp.get(2..4) == Some(&FEEDBACK_PORT.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use ccplane_host::IpHeaders;
    use ccplane_host::headers::{checksum, transport_checksum};
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
        fn control_messages_round_trip_to_the_peer_only(v6: bool, message in proptest::collection::vec(any::<u8>(), 0..80)) {
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
        fn no_bytes_harm_the_reader(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), v6: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0xf };
            }
            let [from, to] = ends(v6);
            prop_assert!(read(&bytes, from, to).is_none() || is_message(&bytes, from, to));
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
