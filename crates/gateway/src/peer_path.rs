//! Path MTU of a peer: the site's `mtu`, or less if the path between the gateways has a smaller
//! MTU.
//!
//! The kernel stores the MTU that routers report (RFC 1191, RFC 8201); we query it every second. If
//! routers drop packets silently, [`PathSearch`] finds the MTU with probes. IPv4 packets that are
//! too long are fragmented if they allow it; otherwise their sender gets an ICMP message.

use ccplane_host::{Frame, Tun, path_mtu};
use ccplane_units::{Duration, Time};

use super::forward::GatewayState;
use super::fragment::Fragments;
use super::path_search::{MIN_PLPMTU, PathSearch};
use super::peer::{Peer, PeerState, encapsulation_overhead};
use super::too_big;

/// Bytes of the frame header in front of a packet for the TUN device.
const FRAME_HEADER_BYTES: usize = Frame::frame_bytes(0);

/// Interval between queries to the kernel. A query takes some microseconds; packets that are too
/// long are lost until the next one.
const MTU_QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between ICMP messages (RFC 4443, section 2.4 f). Each connection needs only
/// one.
const ICMP_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Treatment of a packet.
pub(crate) enum Fit<'a> {
    /// Sent as it is.
    Whole,
    /// Sent as fragments.
    Fragmented(Fragments<'a>),
    /// Dropped, with a message to the sender.
    TooBig,
}

/// Path MTU state of a peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerPath {
    search: PathSearch,
    last_query: Option<Time>,
    last_icmp: Option<Time>,
    used: bool,
}

impl PeerPath {
    /// Creates the state of an unknown path, for inner packets of at most `mtu` bytes.
    pub fn new(mtu: u32) -> PeerPath {
        PeerPath {
            search: PathSearch::new(mtu),
            last_query: None,
            last_icmp: None,
            used: false,
        }
    }

    /// Returns the longest inner packet, bytes.
    pub fn mtu(&self) -> u32 {
        self.search.mtu()
    }

    /// Returns the search for the path MTU.
    pub fn search(&self) -> &PathSearch {
        &self.search
    }

    /// Returns the search for the path MTU, mutably.
    pub fn search_mut(&mut self) -> &mut PathSearch {
        &mut self.search
    }

    /// Decides how a packet is sent.
    #[inline]
    pub fn fit<'a>(&mut self, packet: &'a [u8]) -> Fit<'a> {
        self.search.on_sent(packet.len());
        if packet.len() <= self.mtu() as usize {
            return Fit::Whole;
        }
        Fragments::split(packet, self.mtu()).map_or(Fit::TooBig, Fit::Fragmented)
    }

    /// Records that the path is in use.
    pub fn mark_used(&mut self) {
        self.used = true;
    }

    /// Returns whether an ICMP message may be sent now, and counts it if so.
    pub fn admit_icmp(&mut self, now: Time) -> bool {
        let may = self
            .last_icmp
            .is_none_or(|told| now.since(told) >= ICMP_INTERVAL_MIN);
        if may {
            self.last_icmp = Some(now);
        }
        may
    }

    fn is_due(&self, now: Time) -> bool {
        self.used
            && self
                .last_query
                .is_none_or(|looked| now.since(looked) >= MTU_QUERY_INTERVAL)
    }

    /// Records the MTU that routers report: `outer_mtu` bytes, including `overhead` bytes of
    /// encapsulation. Returns whether the MTU changed.
    fn on_path_mtu(&mut self, now: Time, mtu_max: u32, outer_mtu: u32, overhead: u32) -> bool {
        let before = self.mtu();
        let limit = outer_mtu
            .saturating_sub(overhead)
            .clamp(MIN_PLPMTU.min(mtu_max), mtu_max);
        self.search.set_limit(now, limit);
        self.mtu() != before
    }
}

/// Queries the kernel for the path MTU to a peer if that is due, or immediately with `at_once`.
/// Returns whether it changed.
pub(crate) fn query_path_mtu(shared: &GatewayState, peer: &Peer, now: Time, at_once: bool) -> bool {
    if !shared.queries_path_mtu {
        return false;
    }
    let mut state = peer.lock();
    let Some(to) = state.endpoint.filter(|_| at_once || state.path.is_due(now)) else {
        return false;
    };
    (state.path.last_query, state.path.used) = (Some(now), false);
    // No route at the moment: keep the last MTU.
    let Ok(outer_mtu) = path_mtu(to) else {
        return false;
    };
    let changed = state.path.on_path_mtu(
        now,
        shared.site.mtu,
        outer_mtu,
        encapsulation_overhead(Some(to)),
    );
    if changed {
        let text = format!(
            "the path to {to} carries packets of {outer_mtu} bytes; the tunnel MTU is now {} bytes",
            state.path.mtu()
        );
        shared.events.record(now, &peer.config.name, "path", text);
    }
    changed
}

/// Reports a change of the MTU that follows from the peer's acknowledgements of probes.
pub(crate) fn report_search(
    shared: &GatewayState,
    peer: &Peer,
    path: &PeerPath,
    before: u32,
    now: Time,
) {
    let mtu = path.mtu();
    let text = match path.search.smallest_lost() {
        _ if mtu == before => return,
        Some(refused) if mtu < before => format!(
            "packets of {refused} bytes are lost without an ICMP error; the tunnel MTU is now \
            {mtu} bytes"
        ),
        _ => {
            format!("the tunnel MTU is now {mtu} bytes, confirmed by the peer")
        }
    };
    shared.events.record(now, &peer.config.name, "path", text);
}

/// Drops a packet that is too long and sends an ICMP message to its sender.
pub(crate) fn send_too_big(now: Time, state: &mut PeerState, packet: &[u8], tun: &Tun) {
    state.counts.too_big += 1;
    if !state.path.admit_icmp(now) {
        return;
    }
    let mut frame = [0; FRAME_HEADER_BYTES + too_big::ICMPV6_MESSAGE_BYTES_MAX];
    if let Some(bytes) = too_big::answer(packet, state.path.mtu(), &mut frame[FRAME_HEADER_BYTES..])
    {
        // Ignore errors: like on a link, the message may be lost.
        let _ = tun.write([&frame[..FRAME_HEADER_BYTES + bytes], &[]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_is_the_minimum_of_path_and_configuration() {
        let mut path = PeerPath::new(1_420);
        let mut found = |outer_mtu, overhead| {
            let changed = path.on_path_mtu(Time::ZERO, 1_420, outer_mtu, overhead);
            (changed, path.mtu())
        };
        assert_eq!(
            found(1_500, 60),
            (false, 1_420),
            "the path carries more than `mtu`"
        );
        assert_eq!(found(1_400, 60), (true, 1_340));
        assert_eq!(found(1_400, 60), (false, 1_340));
        assert_eq!(found(1_280, 80), (true, 1_200));
        assert_eq!(found(100, 80), (true, MIN_PLPMTU), "forged");
        assert_eq!(
            found(65_536, 80),
            (true, 1_420),
            "the path carries more again"
        );
    }

    #[test]
    fn the_path_mtu_is_polled_while_sending_and_errors_are_rate_limited() {
        let at = |ms: u64| Time::from_micros(ms * 1_000);
        let mut path = PeerPath::new(1_420);
        assert!(!path.is_due(at(5_000)), "no packet was sent");
        path.mark_used();
        assert!(path.is_due(at(5_000)));
        path.last_query = Some(at(5_000));
        assert!(!path.is_due(at(5_999)) && path.is_due(at(6_000)));
        assert!(path.admit_icmp(at(7)) && !path.admit_icmp(at(7)) && path.admit_icmp(at(8)));
    }
}
