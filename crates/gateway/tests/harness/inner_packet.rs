//! Treats arbitrary bytes as a packet of a site on a path with an arbitrary MTU. Checks that MSS
//! clamping and ICMP messages keep valid checksums, that no ICMP error triggers another one, and
//! that the fragments reassemble to the packet.

use ccplane_gateway::fragment::Fragments;
use ccplane_gateway::{mss, too_big};
use ccplane_host::headers::sum;

/// The first two bytes of `input` are the MTU, the rest is the packet.
pub fn holds(input: &[u8]) {
    let Some((head, packet)) = input.split_first_chunk::<2>() else {
        return;
    };
    let mtu = u32::from(u16::from_be_bytes(*head));
    let mut packet = packet.to_vec();
    let before = packet.clone();
    let lowered = mss::clamp(&mut packet, mtu);
    assert_eq!(packet != before, lowered);
    assert_eq!(
        sum(&packet),
        sum(&before),
        "the checksum compensates the changed word"
    );
    assert!(!mss::clamp(&mut packet, mtu));

    let mut room = [0; too_big::ICMPV6_MESSAGE_BYTES_MAX];
    if let Some(bytes) = too_big::answer(&packet, mtu, &mut room) {
        assert_eq!(
            too_big::answer(
                &room[..bytes],
                mtu,
                &mut [0; too_big::ICMPV6_MESSAGE_BYTES_MAX]
            ),
            None
        );
    }
    if let Some(mut fragments) = Fragments::split(&packet, mtu) {
        let mut joined = Vec::new();
        let mut room = vec![0; mtu as usize];
        while let Some(bytes) = fragments.next(&mut room) {
            joined.extend_from_slice(&room[usize::from(room[0] & 0xf) * 4..bytes]);
        }
        let end = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        assert_eq!(joined, packet[usize::from(packet[0] & 0xf) * 4..end]);
    }
}
