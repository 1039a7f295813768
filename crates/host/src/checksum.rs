//! The Internet checksum (RFC 1071), and access to 16-bit words.

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
    let addresses = match packet.first().map(|first| first >> 4) {
        Some(4) => 12..20,
        _ => 8..40,
    };
    let sum = add(
        sum(packet.get(addresses).unwrap_or_default()),
        protocol.into(),
    );
    add(sum, length)
}

/// Returns the checksum: the complement of the sum.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
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

pub(crate) fn read_word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn write_word(bytes: &mut [u8], at: usize, value: u16) {
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
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 0..2_000), cut in 0.0..1.0_f64,
        ) {
            prop_assert_eq!(sum(&bytes), plain(&bytes));
            let (first, rest) = bytes.split_at((bytes.len() as f64 * cut) as usize);
            prop_assert_eq!(extend_sum(sum(first), first.len(), rest), plain(&bytes));
        }
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
