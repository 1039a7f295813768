//! How fast the link of a network interface is.

use std::mem;

use nix::sys::socket::AddressFamily;

use crate::interface::{control, request};

/// `struct ethtool_link_settings` of linux/ethtool.h.
#[repr(C)]
struct LinkSettings {
    cmd: u32,
    /// Mbit/s.
    speed: u32,
    /// Duplex, port, address, negotiation, crossover.
    unread: [u8; 7],
    mask_words: i8,
    /// Transceiver, roles, rate matching, and what is reserved.
    rest: [u32; 8],
    /// Of link modes, three masks: an `i8` counts no more words of one.
    masks: [u32; 3 * 127],
}

/// `ETHTOOL_GLINKSETTINGS`.
const GET_LINK_SETTINGS: u32 = 0x4c;

/// The rate of an interface of the calling thread's namespace, in bits a second, as its driver says
/// it; `None` where it does not.
pub fn link_speed(interface: &str) -> Option<u64> {
    // Asked for no masks the kernel answers with how many words one has, below zero, and with
    // nothing else.
    let words = ask(interface, 0)?.mask_words.checked_neg()?;
    match ask(interface, words)?.speed {
        0 | u32::MAX => None, // SPEED_UNKNOWN
        mbit => Some(u64::from(mbit) * 1_000_000),
    }
}

fn ask(interface: &str, mask_words: i8) -> Option<LinkSettings> {
    let mut settings = LinkSettings {
        cmd: GET_LINK_SETTINGS,
        speed: 0,
        unread: [0; 7],
        mask_words,
        rest: [0; 8],
        masks: [0; 3 * 127],
    };
    let mut ask = request(interface).ok()?;
    ask.ifr_ifru.ifru_data = (&raw mut settings).cast();
    control(AddressFamily::Inet, libc::SIOCETHTOOL, &mut ask).ok()?;
    Some(settings)
}

const _: () = assert!(mem::offset_of!(LinkSettings, masks) == 48);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_speed_says_none() {
        for interface in ["lo", "ccplane-none", ""] {
            assert_eq!(link_speed(interface), None, "{interface:?}");
        }
    }
}
