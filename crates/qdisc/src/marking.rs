//! How classes are marked on the wire: one table of Differentiated Services codepoints for whoever
//! sends, queues, or configures queues.
//!
//! | class | DSCP | bits | what it is | byte without ECN |
//! | --- | --- | --- | --- | --- |
//! | 0 | 0 | `000000` | default forwarding (RFC 2474) | 0x00 |
//! | 1 | 1 | `000001` | lower effort (LE, RFC 8622): networks that know it serve it last | 0x04 |
//! | 2 | 3 | `000011` | local use (RFC 2474, section 6, pool 2) | 0x0c |
//! | 3 | 11 | `001011` | local use, pool 2 | 0x2c |
//! | 4 | 19 | `010011` | local use, pool 2 | 0x4c |
//!
//! Below class 0 a packet must never be served before it, wherever nobody was asked. Three old
//! readings of the byte decide which of the codepoints for local use remain:
//!
//! - the low-delay bit of RFC 791's TOS is 4 in the DSCP, and Linux' `ip_tos2prio` takes whatever
//!   has it for interactive traffic, which `pfifo_fast` and `prio` serve first. RC3's own marking
//!   (DSCP 1 to 4) has that in its lowest level. None of these has it: they are best effort there,
//!   or bulk;
//! - Wi-Fi takes the upper three bits for the 802.11 user priority: 0 is best effort, 1 and 2 are
//!   background, from 4 on come video and voice. So these bits are 0, 1 and 2 here. A router that
//!   still weighs by RFC 791's precedence sees classes 3 and 4 a little above routine: the one
//!   reading that is not met;
//! - hops that clear the precedence bits (RFC 9435 has who does) leave 1 as it is and make 3 of all
//!   others: still low.
//!
//! The ECN bits beside it are no part of the marking: who compares the whole byte misses every
//! packet of a flow that uses ECN.

/// Classes below the ordinary one.
pub const LOW_CLASSES: u8 = 4;

/// By class, as the [module](self) has it.
const DSCP: [u8; 1 + LOW_CLASSES as usize] = [0, 1, 3, 11, 19];

/// The codepoint of a class. Classes beyond the last one have that of the last.
#[inline]
pub const fn dscp_of(class: u8) -> u8 {
    let last = DSCP.len() - 1;
    let class = class as usize;
    DSCP[if class < last { class } else { last }]
}

/// The class of a codepoint: 0 of all that are not in the table.
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

    /// `ip_tos2prio` of net/ipv4/route.c, by the TOS bits without the last, and the band of each
    /// priority in `pfifo_fast` and in `prio` as `tc` sets it up: 0 is served first, and best
    /// effort is in 1.
    const PRIORITY_OF_TOS: [usize; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];
    const BAND_OF_PRIORITY: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

    fn legacy_band(dscp: u8, ecn: u8) -> u8 {
        let tos = usize::from(dscp << 2 | ecn);
        BAND_OF_PRIORITY[PRIORITY_OF_TOS[(tos & 0x1e) >> 1]]
    }

    #[test]
    fn no_class_is_served_before_best_effort_by_who_reads_the_byte_the_old_ways() {
        for class in 0..=LOW_CLASSES {
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
        // RC3's own: the lowest level would be served first.
        assert_eq!(legacy_band(4, 0), 0);
    }

    #[test]
    fn classes_and_codepoints_tell_each_other() {
        for class in 0..=LOW_CLASSES {
            assert_eq!(class_of(dscp_of(class)), class);
        }
        assert_eq!(dscp_of(200), dscp_of(LOW_CLASSES));
        let others = (0..=255).filter(|dscp| class_of(*dscp) != 0).count();
        assert_eq!(others, usize::from(LOW_CLASSES));
    }
}
