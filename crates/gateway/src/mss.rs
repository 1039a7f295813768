//! TCP MSS clamping. Hosts announce an MSS that fits their own network. If ICMP "packet too big"
//! messages do not reach them, their connections would stall without the clamping.

use ccplane_host::headers::{
    IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, IpPayload, TCP, TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES,
    read_word, updated_checksum, write_word,
};

const SYN_FLAG: u8 = 0x02;
const FLAGS_OFFSET: usize = 13;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_MSS_BYTES: u8 = 4;

/// Lowers the MSS option of a SYN so that packets have at most `mtu` bytes: `mtu` less 40 bytes of
/// headers over IPv4 or 60 over IPv6 (RFC 6691). Returns whether the packet was changed. A SYN
/// without the option means an MSS of 536, or 1220 over IPv6, and needs no change.
#[inline]
pub fn clamp(packet: &mut [u8], mtu: u32) -> bool {
    let Some((at, head)) = tcp(packet) else {
        return false;
    };
    match packet.get(at + FLAGS_OFFSET) {
        Some(flags) if flags & SYN_FLAG != 0 => {}
        _ => return false,
    }
    let mss_max =
        u16::try_from(mtu.saturating_sub(head + TCP_HEADER_BYTES as u32)).unwrap_or(u16::MAX);
    lower(&mut packet[at..], mss_max).is_some()
}

/// Returns the offset of the TCP header and the length of the IP header without options and
/// extensions. Returns `None` for other protocols, for fragments other than the first, and for
/// segments protected by an authentication header.
#[inline]
fn tcp(packet: &[u8]) -> Option<(usize, u32)> {
    let payload = IpPayload::parse(packet)?;
    let head = match packet.first()? >> 4 {
        4 => IPV4_HEADER_BYTES,
        _ => IPV6_HEADER_BYTES,
    };
    let found = payload.protocol == TCP && !payload.later_fragment && !payload.authenticated;
    found.then_some((payload.offset, head as u32))
}

/// Lowers the MSS option in a TCP header. Returns `None` if there is nothing to change.
fn lower(segment: &mut [u8], mss_max: u16) -> Option<()> {
    let end = usize::from(*segment.get(12)? >> 4) * 4;
    let mut at = TCP_HEADER_BYTES;
    let place = loop {
        let options = segment.get(at..end)?;
        match *options {
            [OPTION_NOP, ..] => at += 1,
            [OPTION_END, ..] | [] => return None,
            [OPTION_MSS, OPTION_MSS_BYTES, _, _, ..] => break at + 2,
            [_, length, ..] if length >= 2 => at += usize::from(length),
            _ => return None,
        }
    };
    let old = read_word(segment, place);
    if old <= mss_max {
        return None;
    }
    write_word(segment, place, mss_max);
    // At an odd offset the value straddles two checksum words (RFC 1071, section 2, B).
    let word = |value: u16| {
        if place % 2 == 1 {
            value.swap_bytes()
        } else {
            value
        }
    };
    let before = read_word(segment, TCP_CHECKSUM_OFFSET);
    let sum = updated_checksum(before, word(old), word(mss_max));
    write_word(segment, TCP_CHECKSUM_OFFSET, sum);
    Some(())
}

#[cfg(test)]
mod tests {
    use ccplane_host::headers::{add, sum};
    use proptest::prelude::*;

    use super::*;

    /// Builds a SYN with `extensions` extension headers of 8 bytes each and these options, padded
    /// with end-of-list options.
    fn syn(v6: bool, extensions: usize, flags: u8, options: &[u8]) -> Vec<u8> {
        let mut tcp = vec![
            0x12, 0x34, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 0, flags, 0xff, 0xff, 0, 0, 0, 0,
        ];
        tcp.extend_from_slice(options);
        tcp.resize(tcp.len().next_multiple_of(4), OPTION_END);
        tcp[12] = (tcp.len() as u8 / 4) << 4;
        let mut packet = if v6 { vec![0; 40] } else { vec![0; 20] };
        if v6 {
            (packet[0], packet[6]) = (0x60, if extensions > 0 { 60 } else { TCP });
            packet[8..40].copy_from_slice(&std::array::from_fn::<u8, 32, _>(|n| n as u8 * 3));
            for n in 1..=extensions {
                packet.extend_from_slice(&[
                    if n == extensions { TCP } else { 43 },
                    0,
                    1,
                    4,
                    0,
                    0,
                    0,
                    0,
                ]);
            }
        } else {
            (packet[0], packet[9]) = (0x45, TCP);
            packet[12..20].copy_from_slice(&[10, 7, 0, 1, 10, 7, 0, 2]);
        }
        let at = packet.len();
        packet.extend_from_slice(&tcp);
        let length = (packet.len() - if v6 { 40 } else { 0 }) as u16;
        let place = if v6 { 4 } else { 2 };
        packet[place..place + 2].copy_from_slice(&length.to_be_bytes());
        let checksum = !whole(&packet, at);
        packet[at + TCP_CHECKSUM_OFFSET..at + TCP_CHECKSUM_OFFSET + 2]
            .copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    /// Returns the checksum over segment and pseudo-header: all ones if it is valid.
    fn whole(packet: &[u8], at: usize) -> u16 {
        let addresses = if packet[0] >> 4 == 6 { 8..40 } else { 12..20 };
        let length = (packet.len() - at) as u16;
        add(
            add(sum(&packet[addresses]), add(TCP.into(), length)),
            sum(&packet[at..]),
        )
    }

    /// Returns the announced MSS, as `etherparse` reads it.
    fn announced(packet: &[u8]) -> Option<u16> {
        let parsed = etherparse::SlicedPacket::from_ip(packet).unwrap();
        let Some(etherparse::TransportSlice::Tcp(tcp)) = parsed.transport else {
            panic!("no TCP")
        };
        tcp.options_iterator().find_map(|option| match option {
            Ok(etherparse::TcpOptionElement::MaximumSegmentSize(size)) => Some(size),
            _ => None,
        })
    }

    proptest! {
        #[test]
        fn the_mss_is_clamped_and_the_checksum_stays_valid(
            v6: bool,
            extensions in 0_usize..3,
            size: u16,
            mtu in 576_u32..9_000,
            flags in 0_u8..64,
            nothings in 0_usize..6,
            scale in 0_u8..15,
        ) {
            let mut options = vec![OPTION_NOP; nothings];
            options.extend_from_slice(&[3, 3, scale, OPTION_MSS, OPTION_MSS_BYTES]);
            options.extend_from_slice(&size.to_be_bytes());
            options.extend_from_slice(&[4, 2]);
            let extensions = if v6 { extensions } else { 0 };
            let mut packet = syn(v6, extensions, flags, &options);
            let (before, at) = (packet.clone(), if v6 { 40 + extensions * 8 } else { 20 });
            let mss_max = (mtu - if v6 { 60 } else { 40 }) as u16;
            let lowers = flags & SYN_FLAG != 0 && size > mss_max;
            prop_assert_eq!(clamp(&mut packet, mtu), lowers);
            prop_assert_eq!(
                announced(&packet),
                Some(if lowers { mss_max } else { size })
            );
            prop_assert_eq!(whole(&packet, at), 0xffff);
            let changed = packet.iter().zip(&before).filter(|(a, b)| a != b).count();
            let changed_max = if lowers { 4 } else { 0 };
            prop_assert!(changed <= changed_max, "{} bytes changed", changed);
        }

        #[test]
        fn no_bytes_harm_it(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            v6: bool,
            mtu: u32,
        ) {
            if let [first, ..] = &mut bytes[..] {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0xf };
            }
            let length = bytes.len();
            clamp(&mut bytes, mtu);
            prop_assert_eq!(bytes.len(), length);
        }
    }

    #[test]
    fn only_syn_packets_are_changed() {
        let option = [OPTION_MSS, OPTION_MSS_BYTES, 0x05, 0xb4];
        for change in [
            |p: &mut [u8]| p[9] = 17,
            |p: &mut [u8]| p[7] = 1,
            |p: &mut [u8]| p[0] = 0x55,
        ] {
            let mut packet = syn(false, 0, SYN_FLAG, &option);
            change(&mut packet);
            assert!(!clamp(&mut packet, 1_280));
        }
        for options in [
            &[][..],
            &[OPTION_END, OPTION_MSS, OPTION_MSS_BYTES, 5, 0xb4],
            &[OPTION_MSS, 3, 5, 0xb4],
            &[9, 0, 0, 0],
        ] {
            assert!(
                !clamp(&mut syn(false, 0, SYN_FLAG, options), 1_280),
                "{options:?}"
            );
        }
        assert!(clamp(&mut syn(false, 0, SYN_FLAG, &option), 1_280));
    }

    /// A changed segment would fail the verification of its authentication header.
    #[test]
    fn authenticated_segments_are_not_changed() {
        let option = [OPTION_MSS, OPTION_MSS_BYTES, 0x05, 0xb4];
        let mut packet = syn(true, 2, SYN_FLAG, &option);
        assert!(clamp(&mut packet.clone(), 1_280));
        // The first extension header becomes an authentication header of 8 bytes.
        (packet[6], packet[41]) = (51, 0);
        assert!(!clamp(&mut packet, 1_280));
    }
}
