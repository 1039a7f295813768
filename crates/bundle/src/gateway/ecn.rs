//! The ECN field through a tunnel (RFC 6040): copied to the outer header as a packet goes in, and brought together with what the
//! network made of it as it comes out.

use ccplane_qdisc::Ecn;

/// What comes out of a tunnel (RFC 6040, figure 4); `None` where the packet is dropped: the network marked what its sender would not
/// understand, and only a loss tells it.
pub fn combine(inner: Ecn, outer: Ecn) -> Option<Ecn> {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => None,
        (Ecn::NotEct, _) => Some(Ecn::NotEct),
        (_, Ecn::Ce) => Some(Ecn::Ce),
        (Ecn::Ect0, Ecn::Ect1) => Some(Ecn::Ect1),
        (inner, _) => Some(inner),
    }
}

/// The field of an IP packet.
pub fn of(packet: &[u8]) -> Ecn {
    match packet {
        [first, second, ..] if first >> 4 == 6 => Ecn::from_bits(second >> 4),
        [_, second, ..] => Ecn::from_bits(*second),
        _ => Ecn::NotEct,
    }
}

/// Sets the field of an IP packet, with the header's checksum.
pub fn set(packet: &mut [u8], ecn: Ecn) {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 20 => {
            let before = word(packet, 0);
            packet[1] = packet[1] & !3 | ecn as u8;
            // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
            let sum = u32::from(!word(packet, 10)) + u32::from(!before) + u32::from(word(packet, 0));
            let folded = (sum & 0xffff) + (sum >> 16);
            let check = !((folded & 0xffff) + (folded >> 16)) as u16;
            packet[10..12].copy_from_slice(&check.to_be_bytes());
        }
        // Bits 4 to 11 are the traffic class, its last two the field.
        Some(6) if packet.len() >= 2 => packet[1] = packet[1] & !0x30 | (ecn as u8) << 4,
        _ => {}
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Ecn; 4] = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce];

    /// RFC 6040, figure 4, by rows of the inner field.
    #[test]
    fn what_comes_out_is_what_the_standard_says() {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        let table = [
            [Some(NotEct), Some(NotEct), Some(NotEct), None],
            [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)],
            [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)],
            [Some(Ce), Some(Ce), Some(Ce), Some(Ce)],
        ];
        for (inner, row) in ALL.into_iter().zip(table) {
            assert_eq!(ALL.map(|outer| combine(inner, outer)), row, "{inner:?}");
        }
    }

    #[test]
    fn a_field_that_is_set_is_read_and_the_checksum_holds() {
        let mut v4 = vec![0; 24];
        v4[..20].copy_from_slice(&[
            0x45, 0xb8, 0, 24, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 7, 0, 1, 10, 8, 0, 1,
        ]);
        let total = |packet: &[u8]| {
            let sum: u32 = packet[..20]
                .chunks(2)
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                .sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            ((sum & 0xffff) + (sum >> 16)) as u16
        };
        let check = !total(&v4);
        v4[10..12].copy_from_slice(&check.to_be_bytes());
        let mut v6 = vec![0x6b, 0x80, 0, 0, 0, 0, 17, 64];
        for ecn in ALL {
            set(&mut v4, ecn);
            assert_eq!((of(&v4), v4[1] & !3, total(&v4)), (ecn, 0xb8, 0xffff));
            set(&mut v6, ecn);
            assert_eq!((of(&v6), v6[0], v6[1] & !0x30), (ecn, 0x6b, 0x80));
        }
        for short in [&mut [][..], &mut [0x45], &mut [0x60]] {
            set(short, Ecn::Ce);
        }
    }
}
