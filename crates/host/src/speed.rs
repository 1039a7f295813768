//! Link speed of a network interface.

use std::mem;

use nix::sys::socket::AddressFamily;

use crate::interface::{ifreq, ioctl};

/// Mirrors `struct ethtool_link_settings` of linux/ethtool.h.
#[repr(C)]
struct LinkSettings {
    cmd: u32,
    /// Link speed, Mbit/s.
    speed: u32,
    /// Duplex, port, address, autonegotiation, crossover.
    unread: [u8; 7],
    mask_words: i8,
    /// Transceiver, master/slave state, rate matching, and reserved fields.
    rest: [u32; 8],
    /// Three masks of link modes, each of at most `i8::MAX` words.
    masks: [u32; 3 * 127],
}

/// The ethtool command `ETHTOOL_GLINKSETTINGS`.
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;

/// Returns the link speed of an interface of the calling thread's namespace in bit/s; `None` if its
/// driver does not report one.
pub fn link_speed(interface: &str) -> Option<u64> {
    // With zero mask words the kernel only returns the required number of words, negated.
    let words = query_settings(interface, 0)?.mask_words.checked_neg()?;
    match query_settings(interface, words)?.speed {
        0 | u32::MAX => None, // SPEED_UNKNOWN
        mbit => Some(u64::from(mbit) * 1_000_000),
    }
}

fn query_settings(interface: &str, mask_words: i8) -> Option<LinkSettings> {
    let mut settings = LinkSettings {
        cmd: ETHTOOL_GLINKSETTINGS,
        speed: 0,
        unread: [0; 7],
        mask_words,
        rest: [0; 8],
        masks: [0; 3 * 127],
    };
    let mut ask = ifreq(interface).ok()?;
    ask.ifr_ifru.ifru_data = (&raw mut settings).cast();
    ioctl(AddressFamily::Inet, libc::SIOCETHTOOL, &mut ask).ok()?;
    Some(settings)
}

const _: () = assert!(mem::offset_of!(LinkSettings, masks) == 48);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_without_a_speed_report_none() {
        for interface in ["lo", "ccplane-none", ""] {
            assert_eq!(link_speed(interface), None, "{interface:?}");
        }
    }
}
