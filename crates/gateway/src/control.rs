//! Control messages between the two gateways of a tunnel. They travel inside it, as UDP between the
//! tunnel addresses, port 28317.

use std::net::IpAddr;

use ccplane_host::checksum::{add, sum};

use ccplane_bundle::FEEDBACK_PORT;

const IPPROTO_UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;
const HOP_LIMIT: u8 = 64;

/// Longest packet that [`write`] produces: IPv6, UDP and the longest message.
pub const CONTROL_PACKET_BYTES_MAX: usize = 40 + UDP_HEADER_BYTES + ccplane_bundle::FEEDBACK_BYTES;

/// Writes a packet with this message and returns its length. Returns `None` if the addresses are of
/// different families or `room` is too small.
pub fn write(from: IpAddr, to: IpAddr, message: &[u8], room: &mut [u8]) -> Option<usize> {
    let udp_bytes = u16::try_from(UDP_HEADER_BYTES + message.len()).ok()?;
    let (head, addresses) = match (from, to) {
        (IpAddr::V4(_), IpAddr::V4(_)) => (20, 12..20),
        (IpAddr::V6(_), IpAddr::V6(_)) => (40, 8..40),
        _ => return None,
    };
    let length = head + usize::from(udp_bytes);
    let packet = room.get_mut(..length)?;
    packet.fill(0);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (packet[0], packet[8], packet[9]) = (0x45, HOP_LIMIT, IPPROTO_UDP);
            packet[2..4].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
            packet[12..16].copy_from_slice(&from.octets());
            packet[16..20].copy_from_slice(&to.octets());
            let check = !sum(&packet[..20]);
            packet[10..12].copy_from_slice(&check.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            (packet[0], packet[6], packet[7]) = (0x60, IPPROTO_UDP, HOP_LIMIT);
            packet[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
            packet[8..24].copy_from_slice(&from.octets());
            packet[24..40].copy_from_slice(&to.octets());
        }
        _ => return None,
    }
    packet[head..head + 2].copy_from_slice(&FEEDBACK_PORT.to_be_bytes());
    packet[head + 2..head + 4].copy_from_slice(&FEEDBACK_PORT.to_be_bytes());
    packet[head + 4..head + 6].copy_from_slice(&udp_bytes.to_be_bytes());
    packet[head + UDP_HEADER_BYTES..].copy_from_slice(message);
    let pseudo = add(
        sum(&packet[addresses]),
        add(u16::from(IPPROTO_UDP), udp_bytes),
    );
    let check = match !add(pseudo, sum(&packet[head..])) {
        // A checksum of zero means "no checksum" (RFC 768).
        0 => 0xffff,
        check => check,
    };
    packet[head + 6..head + 8].copy_from_slice(&check.to_be_bytes());
    Some(length)
}

/// Returns the bytes of IP and UDP header in front of a message.
pub const fn head_bytes(to: IpAddr) -> usize {
    match to {
        IpAddr::V4(_) => 20 + UDP_HEADER_BYTES,
        IpAddr::V6(_) => 40 + UDP_HEADER_BYTES,
    }
}

/// Returns the message in a packet between these addresses, or `None` if it is any other packet.
/// The checksum is not verified, because the tunnel authenticates packets. Other hosts of the
/// peer's site cannot forge a message: its gateway drops every packet for which [`is_message`] is
/// true.
pub fn read(packet: &[u8], from: IpAddr, to: IpAddr) -> Option<&[u8]> {
    let udp = datagram(packet, from, to)?;
    let length = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    udp.get(UDP_HEADER_BYTES..length)
}

/// Returns whether the gateway at `to` would accept a packet as a message from the gateway at
/// `from`.
pub fn is_message(packet: &[u8], from: IpAddr, to: IpAddr) -> bool {
    datagram(packet, from, to).is_some()
}

/// Returns the UDP header and payload of an unfragmented packet between these addresses to
/// [`FEEDBACK_PORT`].
fn datagram(packet: &[u8], from: IpAddr, to: IpAddr) -> Option<&[u8]> {
    let (head, source, destination, protocol) = match packet.first()? >> 4 {
        4 => {
            let whole = packet.get(6..8)? == [0, 0] || packet.get(6..8)? == [0x40, 0];
            if !whole {
                return None;
            }
            (
                usize::from(packet[0] & 0xf) * 4,
                packet.get(12..16)?,
                packet.get(16..20)?,
                packet.get(9)?,
            )
        }
        6 => (40, packet.get(8..24)?, packet.get(24..40)?, packet.get(6)?),
        _ => return None,
    };
    let is = |address: IpAddr, bytes: &[u8]| match address {
        IpAddr::V4(v4) => v4.octets() == bytes,
        IpAddr::V6(v6) => v6.octets() == bytes,
    };
    if *protocol != IPPROTO_UDP || !is(from, source) || !is(to, destination) {
        return None;
    }
    packet
        .get(head..)
        .filter(|udp| udp.get(2..4) == Some(&FEEDBACK_PORT.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use ccplane_host::IpHeaders;
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
            // UDP checksum, including the pseudo-header.
            let (head, addresses) = if v6 { (40, 8..40) } else { (20, 12..20) };
            let pseudo = add(sum(&packet[addresses]), add(u16::from(IPPROTO_UDP), (length - head) as u16));
            prop_assert_eq!(add(pseudo, sum(&packet[head..])), 0xffff);
            if !v6 {
                prop_assert_eq!(sum(&packet[..20]), 0xffff);
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
