//! DSCPs of the classes: one table for senders, queues and configuration.
//!
//! | class | DSCP | bits | meaning | byte without ECN |
//! | --- | --- | --- | --- | --- |
//! | 0 | 0 | `000000` | default forwarding (RFC 2474) | 0x00 |
//! | 1 | 1 | `000001` | lower effort (LE, RFC 8622): served last where supported | 0x04 |
//! | 2 | 3 | `000011` | local use (RFC 2474, section 6, pool 2) | 0x0c |
//! | 3 | 11 | `001011` | local use, pool 2 | 0x2c |
//! | 4 | 19 | `010011` | local use, pool 2 | 0x4c |
//!
//! No unconfigured device may serve a packet of a lower class before one of class 0. Three legacy
//! interpretations of the byte restrict the choice of local-use codepoints:
//!
//! - The low-delay bit of RFC 791's TOS has the value 4 in the DSCP. Linux' `ip_tos2prio` maps it
//!   to interactive traffic, which `pfifo_fast` and `prio` serve first. RC3's own marking (DSCPs
//!   1–4) sets it for its lowest level. No codepoint of the table sets it, so Linux treats them all
//!   as best effort or bulk.
//! - Wi-Fi uses the upper three bits as the 802.11 user priority: 0 is best effort, 1 and 2 are
//!   background, 4 and above are video and voice. Here these bits are 0, 1 and 2. A router that
//!   still weighs by RFC 791's precedence serves classes 3 and 4 slightly better than routine
//!   traffic; this is the one interpretation that cannot be satisfied.
//! - Hops that clear the precedence bits (RFC 9435 lists them) leave 1 unchanged and turn all
//!   others into 3, which is still low.
//!
//! The two ECN bits of the byte are not part of the marking: compare only the upper six bits, or
//! all packets of ECN-capable flows are missed.

/// Number of classes below class 0.
pub const LOW_CLASS_COUNT: u8 = 4;

/// DSCP by class (see the [module](self)).
const DSCP_OF_CLASS: [u8; 1 + LOW_CLASS_COUNT as usize] = [0, 1, 3, 11, 19];

/// Returns the DSCP of a class; classes beyond the last share its DSCP.
#[inline]
pub const fn dscp_of(class: u8) -> u8 {
    let last = DSCP_OF_CLASS.len() - 1;
    let class = class as usize;
    DSCP_OF_CLASS[if class < last { class } else { last }]
}

/// Returns the class of a DSCP; 0 if it is not in the table.
#[inline]
pub const fn class_of(dscp: u8) -> u8 {
    match dscp {
        1 => 1,
        3 => 2,
        11 => 3,
        19 => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ip_tos2prio` of net/ipv4/route.c, indexed by the TOS bits without the last, and the band of
    /// each priority in `pfifo_fast` and in `tc`'s default `prio`: band 0 is served first, and best
    /// effort is in band 1.
    const PRIORITY_OF_TOS: [usize; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];
    const BAND_OF_PRIORITY: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

    fn legacy_band(dscp: u8, ecn: u8) -> u8 {
        let tos = usize::from(dscp << 2 | ecn);
        BAND_OF_PRIORITY[PRIORITY_OF_TOS[(tos & 0x1e) >> 1]]
    }

    #[test]
    fn no_class_is_served_before_best_effort_by_who_reads_the_byte_the_old_ways() {
        for class in 0..=LOW_CLASS_COUNT {
            for ecn in 0..4 {
                assert!(legacy_band(dscp_of(class), ecn) >= 1, "class {class}");
            }
            let user_priority = dscp_of(class) >> 3;
            assert!(user_priority <= 2, "class {class}: video or voice on Wi-Fi");
            let cleared = dscp_of(class) & 7;
            assert!(
                class_of(cleared) >= class.min(1),
                "class {class} becomes ordinary where precedence is cleared"
            );
        }
        // RC3's own marking would have its lowest level served first.
        assert_eq!(legacy_band(4, 0), 0);
    }

    #[test]
    fn classes_and_codepoints_tell_each_other() {
        for class in 0..=LOW_CLASS_COUNT {
            assert_eq!(class_of(dscp_of(class)), class);
        }
        assert_eq!(dscp_of(200), dscp_of(LOW_CLASS_COUNT));
        let others = (0..=255).filter(|dscp| class_of(*dscp) != 0).count();
        assert_eq!(others, usize::from(LOW_CLASS_COUNT));
    }
}
