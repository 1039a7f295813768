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
}
