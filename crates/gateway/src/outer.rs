//! ECN and DSCP in the outer header.
//!
//! The ECN field follows RFC 6040: encapsulation copies it to the outer header, and decapsulation
//! combines inner and outer fields. Encapsulation copies the DSCP if configured; decapsulation
//! keeps the inner DSCP (the pipe model of RFC 2983).

use ccplane_host::headers::traffic_class;
use ccplane_qdisc::Ecn;

/// Returns the ECN field after decapsulation (RFC 6040, figure 4), or `None` if the packet must be
/// dropped: it carries a CE mark for a transport without ECN, which only a loss can signal.
pub fn combine(inner: Ecn, outer: Ecn) -> Option<Ecn> {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => None,
        (Ecn::NotEct, _) => Some(Ecn::NotEct),
        (_, Ecn::Ce) => Some(Ecn::Ce),
        (Ecn::Ect0, Ecn::Ect1) => Some(Ecn::Ect1),
        (inner, _) => Some(inner),
    }
}

/// Returns the ECN field of an IP packet.
pub fn ecn(packet: &[u8]) -> Ecn {
    Ecn::from_bits(traffic_class(packet))
}

/// Returns the DSCP of an IP packet (RFC 2474).
pub fn dscp(packet: &[u8]) -> u8 {
    traffic_class(packet) >> 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Ecn; 4] = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce];

    #[test]
    fn ports_are_read_from_both_families() {
        let class = 46 << 2 | 1;
        for packet in [[0x45, class], [0x60 | class >> 4, class << 4 | 0xf]] {
            assert_eq!((dscp(&packet), ecn(&packet)), (46, Ecn::Ect1));
        }
        assert_eq!((dscp(&[0x45]), ecn(&[])), (0, Ecn::NotEct));
    }

    /// RFC 6040, figure 4: one row per inner field.
    #[test]
    fn ecn_propagation_follows_rfc_6040() {
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
