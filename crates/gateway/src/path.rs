//! Longest packet to a peer: the site's `mtu`, or less where the path outside carries less.
//!
//! The kernel has what routers say of the path (RFC 1191, RFC 8201) and is asked each second. Where
//! routers drop silently, [`PathSearch`] finds what arrives. A longer packet of IPv4 that may be
//! divided is divided, and the sender of another one gets a message.

use ccplane_host::{Frame, Tun, path_mtu};
use ccplane_units::{Duration, Time};

use super::forward::Shared;
use super::fragment::Fragments;
use super::pair::{Half, Pair, around};
use super::path_search::{MIN_PLPMTU, PathSearch};
use super::too_big;

/// In front of a packet for the device.
const FRAME_HEAD: usize = Frame::longest(0);

/// How often the kernel is asked. Each time costs some microseconds, and until then too long
/// packets are lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Senders are told no oftener (RFC 4443, section 2.4 f): each connection has to hear it once.
const TELL_EVERY: Duration = Duration::from_millis(1);

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
    search: PathSearch,
    looked: Option<Time>,
    told: Option<Time>,
    used: bool,
}

impl Path {
    /// One that is not known yet, with packets of at most `mtu` bytes.
    pub fn new(mtu: u32) -> Path {
        Path {
            search: PathSearch::new(mtu),
            looked: None,
            told: None,
            used: false,
        }
    }

    /// Bytes of the longest packet inside.
    pub fn mtu(&self) -> u32 {
        self.search.mtu()
    }

    /// Search for it.
    pub fn search(&self) -> &PathSearch {
        &self.search
    }

    /// Search for it.
    pub fn search_mut(&mut self) -> &mut PathSearch {
        &mut self.search
    }

    /// How a packet leaves by it.
    #[inline]
    pub fn fit<'a>(&mut self, packet: &'a [u8]) -> Fit<'a> {
        self.search.on_sent(packet.len());
        if packet.len() <= self.mtu() as usize {
            return Fit::Whole;
        }
        Fragments::of(packet, self.mtu()).map_or(Fit::Not, Fit::Divided)
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
        self.used
            && self
                .looked
                .is_none_or(|looked| now.since(looked) >= LOOK_EVERY)
    }

    /// Records what routers say: the path outside carries packets of `outside` bytes, of which
    /// `around` are the encapsulation. Returns true if that changes anything.
    fn found(&mut self, now: Time, most: u32, outside: u32, around: u32) -> bool {
        let before = self.mtu();
        let limit = outside
            .saturating_sub(around)
            .clamp(MIN_PLPMTU.min(most), most);
        self.search.set_limit(now, limit);
        self.mtu() != before
    }
}

/// Asks the kernel about the way to a peer if it is time for that, or at once if a packet was too
/// long for it. Whether anything changed.
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
    let Ok(outside) = path_mtu(to) else {
        return false;
    };
    let changed = half
        .path
        .found(now, shared.site.mtu, outside, around(Some(to)));
    if changed {
        let text = format!(
            "the path to {to} carries {outside} bytes, so packets inside have at most {}",
            half.path.mtu()
        );
        shared.events.tell(now, &pair.peer.name, "path", text);
    }
    changed
}

/// Reports that the other box's acknowledgements changed how long packets may be.
pub(crate) fn tell_search(shared: &Shared, pair: &Pair, path: &Path, before: u32, now: Time) {
    let mtu = path.mtu();
    let text = match path.search.refused() {
        _ if mtu == before => return,
        Some(refused) if mtu < before => format!(
            "packets of {refused} bytes no longer arrive, and no router says so: packets inside have at most {mtu}"
        ),
        _ => {
            format!("packets inside have at most {mtu} bytes; the peer confirmed that these arrive")
        }
    };
    shared.events.tell(now, &pair.peer.name, "path", text);
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
        let mut found = |outside, around| {
            let changed = path.found(Time::ZERO, 1_420, outside, around);
            (changed, path.mtu())
        };
        assert_eq!(found(1_500, 60), (false, 1_420), "more fits than may be");
        assert_eq!(found(1_400, 60), (true, 1_340));
        assert_eq!(found(1_400, 60), (false, 1_340));
        assert_eq!(found(1_280, 80), (true, 1_200));
        assert_eq!(found(100, 80), (true, MIN_PLPMTU), "forged");
        assert_eq!(found(65_536, 80), (true, 1_420), "and it is forgotten");
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
