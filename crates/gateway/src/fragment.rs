//! Fragmentation of IPv4 packets that exceed the path MTU and do not set "don't fragment" (RFC 791,
//! section 3.2).

use ccplane_host::headers::{
    DONT_FRAGMENT, FRAGMENT_OFFSET_MASK, IPV4_HEADER_BYTES, IPV4_HEADER_BYTES_MAX, MORE_FRAGMENTS,
    read_word, write_ipv4_checksum, write_word,
};

/// Granularity of fragment offsets, bytes.
const FRAGMENT_OFFSET_UNIT_BYTES: usize = 8;
/// "Copied" flag of an option: it is repeated in every fragment.
const OPTION_COPIED_FLAG: u8 = 0x80;

/// Iterator over the fragments of a packet.
#[derive(Debug)]
pub struct Fragments<'a> {
    packet: &'a [u8],
    head: usize,
    /// Header of every fragment but the first.
    later: [u8; IPV4_HEADER_BYTES_MAX],
    later_head: usize,
    mtu: usize,
    /// Offset of the next fragment's payload in `packet`.
    at: usize,
    end: usize,
}

impl<'a> Fragments<'a> {
    /// Splits a packet into fragments of at most `mtu` bytes. Returns `None` if the packet must not
    /// be fragmented, or if `mtu` is too small for a header and 8 bytes of payload.
    pub fn split(packet: &'a [u8], mtu: u32) -> Option<Fragments<'a>> {
        let first = *packet.first()?;
        let head = usize::from(first & 0xf) * 4;
        let header = packet.get(..head.max(IPV4_HEADER_BYTES))?;
        let end = usize::from(read_word(header, 2));
        let mtu = usize::try_from(mtu).ok()?;
        let may = read_word(header, 6) & DONT_FRAGMENT == 0;
        if first >> 4 != 4
            || head < IPV4_HEADER_BYTES
            || !may
            || end <= head
            || end > packet.len()
            || mtu < IPV4_HEADER_BYTES_MAX + FRAGMENT_OFFSET_UNIT_BYTES
        {
            return None;
        }
        let (later, later_head) = later_header(header);
        Some(Fragments {
            packet,
            head,
            later,
            later_head,
            mtu,
            at: head,
            end,
        })
    }

    /// Writes the next fragment into `room`, which has at least `mtu` bytes, and returns its
    /// length; `None` after the last.
    pub fn next(&mut self, room: &mut [u8]) -> Option<usize> {
        if self.at >= self.end {
            return None;
        }
        let header = if self.at == self.head {
            &self.packet[..self.head]
        } else {
            &self.later[..self.later_head]
        };
        let payload_max =
            (self.mtu - header.len()) / FRAGMENT_OFFSET_UNIT_BYTES * FRAGMENT_OFFSET_UNIT_BYTES;
        let rest = self.end - self.at;
        let last = rest <= self.mtu - header.len();
        let payload = if last { rest } else { payload_max };
        let length = header.len() + payload;
        let fragment = room.get_mut(..length)?;
        fragment[..header.len()].copy_from_slice(header);
        fragment[header.len()..].copy_from_slice(&self.packet[self.at..self.at + payload]);
        let before = read_word(self.packet, 6);
        let offset = (before & FRAGMENT_OFFSET_MASK)
            + ((self.at - self.head) / FRAGMENT_OFFSET_UNIT_BYTES) as u16;
        // If the packet is itself a fragment, its last part keeps the packet's own "more fragments"
        // flag.
        let more = if last {
            before & MORE_FRAGMENTS
        } else {
            MORE_FRAGMENTS
        };
        let flags = before & !(MORE_FRAGMENTS | FRAGMENT_OFFSET_MASK)
            | more
            | offset & FRAGMENT_OFFSET_MASK;
        let head = &mut fragment[..header.len()];
        write_word(head, 2, length as u16);
        write_word(head, 6, flags);
        write_ipv4_checksum(head);
        self.at += payload;
        Some(length)
    }
}

/// Returns the header with only its copied options, and the header's length.
fn later_header(header: &[u8]) -> ([u8; IPV4_HEADER_BYTES_MAX], usize) {
    let mut later = [0; IPV4_HEADER_BYTES_MAX];
    later[..IPV4_HEADER_BYTES].copy_from_slice(&header[..IPV4_HEADER_BYTES]);
    let (mut at, mut to) = (IPV4_HEADER_BYTES, IPV4_HEADER_BYTES);
    while let Some(&kind) = header.get(at) {
        let length = match (kind, header.get(at + 1)) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(length)) if *length >= 2 => usize::from(*length),
            // A malformed option ends the list.
            _ => break,
        };
        let Some(option) = header.get(at..at + length) else {
            break;
        };
        if kind & OPTION_COPIED_FLAG != 0 {
            later[to..to + length].copy_from_slice(option);
            to += length;
        }
        at += length;
    }
    let length = to.next_multiple_of(4);
    later[0] = 0x40 | (length / 4) as u8;
    (later, length)
}

#[cfg(test)]
mod tests {
    use etherparse::Ipv4HeaderSlice;
    use proptest::prelude::*;

    use super::*;

    /// Builds a packet with these options (padded) and this payload.
    fn packet(options: &[u8], payload: &[u8], flags: u16) -> Vec<u8> {
        let mut packet = vec![
            0x40, 0, 0, 0, 0x12, 0x34, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1,
        ];
        packet.extend_from_slice(options);
        packet.resize(packet.len().next_multiple_of(4), 0);
        packet[0] |= (packet.len() / 4) as u8;
        packet.extend_from_slice(payload);
        let length = packet.len() as u16;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        packet
    }

    fn all(packet: &[u8], mtu: u32) -> Vec<Vec<u8>> {
        let mut fragments = Fragments::split(packet, mtu).unwrap();
        let mut room = [0; 9_000];
        std::iter::from_fn(|| {
            fragments
                .next(&mut room)
                .map(|bytes| room[..bytes].to_vec())
        })
        .collect()
    }

    proptest! {
        /// The fragments reassemble to the packet as RFC 791 specifies. `etherparse` reads offset,
        /// "more fragments", identification and the copied options.
        #[test]
        fn fragments_reassemble_to_the_packet(
            payload in proptest::collection::vec(any::<u8>(), 1..5_000),
            mtu in 68_u32..2_000,
            options in prop_oneof![
                Just(vec![]),
                Just(vec![1, 0x94, 4, 0, 0]),
                Just(vec![7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0x94, 4, 0, 0])
            ],
            offset in prop_oneof![Just(0_u16), 1_u16..4_000],
            more: bool,
        ) {
            let whole = packet(
                &options,
                &payload,
                offset | if more { MORE_FRAGMENTS } else { 0 },
            );
            let copied = options.windows(2).any(|two| two == [0x94, 4]);
            let fragments = all(&whole, mtu);
            let mut joined = Vec::new();
            for (n, fragment) in fragments.iter().enumerate() {
                prop_assert!(fragment.len() <= mtu as usize);
                let header = Ipv4HeaderSlice::from_slice(fragment).unwrap();
                prop_assert_eq!(usize::from(header.total_len()), fragment.len());
                prop_assert_eq!(
                    header.to_header().calc_header_checksum(),
                    header.header_checksum()
                );
                prop_assert_eq!(header.identification(), 0x1234);
                prop_assert_eq!(
                    usize::from(header.fragments_offset().value() - offset)
                        * FRAGMENT_OFFSET_UNIT_BYTES,
                    joined.len()
                );
                let last = n + 1 == fragments.len();
                prop_assert_eq!(header.more_fragments(), !last || more);
                let body = &fragment[header.slice().len()..];
                prop_assert!(last || body.len() % FRAGMENT_OFFSET_UNIT_BYTES == 0);
                if n > 0 {
                    prop_assert_eq!(
                        header.options(),
                        if copied { &[0x94, 4, 0, 0][..] } else { &[] }
                    );
                }
                joined.extend_from_slice(body);
            }
            prop_assert_eq!(joined, payload);
        }

        #[test]
        fn no_bytes_harm_it(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            mtu in 0_u32..200,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = 0x40 | *first & 0xf;
            }
            if let Some(mut fragments) = Fragments::split(&bytes, mtu) {
                let mut room = [0; 200];
                let mut count = 0;
                while fragments.next(&mut room).is_some() {
                    count += 1;
                }
                prop_assert!(count < 200);
            }
        }
    }

    #[test]
    fn packets_with_df_are_not_fragmented() {
        assert!(Fragments::split(&packet(&[], &[0; 100], DONT_FRAGMENT), 80).is_none());
        let mut v6 = packet(&[], &[0; 100], 0);
        v6[0] = 0x65;
        assert!(Fragments::split(&v6, 80).is_none());
        assert!(
            Fragments::split(&packet(&[], &[0; 100], 0), 67).is_none(),
            "RFC 791 requires at least 68"
        );
    }
}
