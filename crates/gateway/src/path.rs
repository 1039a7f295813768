//! How long packets to a peer may be: as long as the site's `mtu` says, or shorter where the way outside takes less.
//!
//! The kernel knows what routers say of the way (RFC 1191, RFC 8201) and is asked each second. Shorter than that, a packet of IPv4 that may be
//! divided is, and the sender of another is told.

use ccplane_host::{Frame, Tun, path_mtu};
use ccplane_units::{Duration, Time};

use super::forward::Shared;
use super::fragment::Fragments;
use super::pair::{Half, Pair, around};
use super::too_big;

/// In front of a packet for the device.
const FRAME_HEAD: usize = Frame::longest(0);

/// How often the kernel is asked. Each time costs some microseconds, and until then too long packets are lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Senders are told no oftener (RFC 4443, section 2.4 f): each connection has to hear it once.
const TELL_EVERY: Duration = Duration::from_millis(1);
/// Every host takes so much (RFC 791). A way that is said to take less is not believed: such messages can be forged.
const LEAST: u32 = 576;

/// How a packet leaves.
pub(crate) enum Fit<'a> {
    /// As it is.
    Whole,
    /// In fragments.
    Divided(Fragments<'a>),
    /// Not at all.
    Not,
}

/// The way to a peer.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    mtu: u32,
    looked: Option<Time>,
    told: Option<Time>,
    used: bool,
}

impl Path {
    /// One that is not known yet, with packets of at most `mtu` bytes.
    pub fn new(mtu: u32) -> Path {
        Path {
            mtu,
            looked: None,
            told: None,
            used: false,
        }
    }

    /// Bytes of the longest packet inside.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// How a packet leaves by it.
    #[inline]
    pub fn fit<'a>(&self, packet: &'a [u8]) -> Fit<'a> {
        if packet.len() <= self.mtu as usize {
            return Fit::Whole;
        }
        Fragments::of(packet, self.mtu).map_or(Fit::Not, Fit::Divided)
    }

    /// Something leaves.
    pub fn is_used(&mut self) {
        self.used = true;
    }

    /// Whether the sender of a packet may be told now.
    pub fn may_tell(&mut self, now: Time) -> bool {
        let may = self.told.is_none_or(|told| now.since(told) >= TELL_EVERY);
        if may {
            self.told = Some(now);
        }
        may
    }

    fn is_due(&self, now: Time) -> bool {
        self.used && self.looked.is_none_or(|looked| now.since(looked) >= LOOK_EVERY)
    }

    /// The path outside carries packets of so many bytes, part of which is the encapsulation. Returns whether that changes
    /// anything.
    fn found(&mut self, most: u32, outside: u32, around: u32) -> bool {
        let mtu = outside.saturating_sub(around).clamp(LEAST.min(most), most);
        std::mem::replace(&mut self.mtu, mtu) != mtu
    }
}

/// Asks the kernel about the way to a peer if it is time for that, or at once if a packet was too long for it. Whether anything changed.
pub(crate) fn look(shared: &Shared, pair: &Pair, now: Time, at_once: bool) -> bool {
    if !shared.asks_ways {
        return false;
    }
    let mut half = pair.lock();
    let Some(to) = half.endpoint.filter(|_| at_once || half.path.is_due(now)) else {
        return false;
    };
    (half.path.looked, half.path.used) = (Some(now), false);
    // A way that is gone says nothing of its length.
    let Ok(outside) = path_mtu(to) else { return false };
    let changed = half.path.found(shared.site.mtu, outside, around(Some(to)));
    if changed {
        let text = format!(
            "the way to {to} takes {outside} bytes, so packets inside have at most {}",
            half.path.mtu
        );
        shared.events.tell(now, &pair.peer.name, "path", text);
    }
    changed
}

/// Drops a packet that does not fit, and tells its sender.
pub(crate) fn refuse(now: Time, half: &mut Half, packet: &[u8], tun: &Tun) {
    half.counts.too_big += 1;
    if !half.path.may_tell(now) {
        return;
    }
    let mut frame = [0; FRAME_HEAD + too_big::LONGEST];
    if let Some(bytes) = too_big::answer(packet, half.path.mtu(), &mut frame[FRAME_HEAD..]) {
        // What the device does not take is lost, as on a wire.
        let _ = tun.write([&frame[..FRAME_HEAD + bytes], &[]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_as_long_as_both_ends_of_the_way_allow() {
        let mut path = Path::new(1_420);
        assert!(
            !path.found(1_420, 1_500, 60) && path.mtu() == 1_420,
            "more fits than may be"
        );
        assert!(path.found(1_420, 1_400, 60) && path.mtu() == 1_340);
        assert!(!path.found(1_420, 1_400, 60));
        assert!(path.found(1_420, 1_280, 80) && path.mtu() == 1_200);
        assert!(path.found(1_420, 100, 80) && path.mtu() == LEAST, "forged");
        assert!(
            path.found(1_420, 65_536, 80) && path.mtu() == 1_420,
            "and it is forgotten"
        );
    }

    #[test]
    fn the_kernel_is_asked_while_something_leaves_and_senders_are_told_in_turn() {
        let at = |ms: u64| Time::from_micros(ms * 1_000);
        let mut path = Path::new(1_420);
        assert!(!path.is_due(at(5_000)), "nothing has left");
        path.is_used();
        assert!(path.is_due(at(5_000)));
        path.looked = Some(at(5_000));
        assert!(!path.is_due(at(5_999)) && path.is_due(at(6_000)));
        assert!(path.may_tell(at(7)) && !path.may_tell(at(7)) && path.may_tell(at(8)));
    }
}
