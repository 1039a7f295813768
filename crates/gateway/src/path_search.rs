//! Search for the path MTU of a peer with acknowledged probes: datagram packetization layer path
//! MTU discovery (DPLPMTUD, RFC 8899).
//!
//! ```text
//!                  MAX_PROBES lost, size <= PLPMTU: black hole, PLPMTU = BASE
//!                 +----------------------------------------------------+
//!                 v                                                    |
//!   start ---> Searching --- nothing left to try, or limit ---> Complete (confirms every 10 s)
//!                 ^                                                    |
//!                 +------------ PMTU_RAISE_TIMER, new limit -----------+
//! ```
//!
//! It differs from the RFC in two points. Until the first search ends, packets may be as long as
//! the limit allows, because most paths carry them. And a probe counts as lost only if a short
//! packet sent after it, the witness, is acknowledged. So the MTU does not shrink in an outage, nor
//! for a peer that does not answer probes.

use ccplane_units::{Duration, Time};

/// Every host accepts packets of this size (RFC 791, section 3.1). Smaller reports are ignored,
/// because they can be forged.
pub const MIN_PLPMTU: u32 = 576;
/// Size after a black hole (RFC 8899, section 5.1.2). Over IPv6 it fits every path.
const BASE_PLPMTU: u32 = 1_200;
/// Consecutive losses of a size before it counts as too long (RFC 8899, section 5.1.2).
const MAX_PROBES: u8 = 3;
/// Wait for an acknowledgement: the longer of 1 s (RFC 8899, section 5.1.1) and three smoothed
/// RTTs.
const PROBE_TIMER: Duration = Duration::from_secs(1);
const PROBE_TIMER_RTTS: u64 = 3;
/// Interval between confirmations of the current MTU while long packets are sent. If the path MTU
/// shrinks, connections stall for up to this time plus five seconds.
const CONFIRMATION_TIMER: Duration = Duration::from_secs(10);
/// Interval after which longer packets are tried again (RFC 8899, section 5.1.1).
const PMTU_RAISE_TIMER: Duration = Duration::from_secs(600);
/// Upper bound of the backoff while the peer acknowledges nothing.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The search ends when no more than this can be gained, bytes.
const SEARCH_PRECISION_BYTES: u32 = 8;

/// A probe to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePacket {
    /// Bytes of the inner packet; 0 for the shortest possible.
    pub size: u32,
    /// Identifier that the acknowledgement echoes.
    pub token: u32,
}

/// State of a search, for the status output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchState {
    /// The peer has not acknowledged any probe.
    Unconfirmed,
    /// Sizes are being probed.
    Searching,
    /// The current MTU is confirmed and no larger size works.
    Complete,
}

impl SearchState {
    /// Returns the name used by `status --json`.
    pub const fn name(self) -> &'static str {
        match self {
            SearchState::Unconfirmed => "unconfirmed",
            SearchState::Searching => "searching",
            SearchState::Complete => "complete",
        }
    }
}

/// Result of processing an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The probe was delivered.
    Arrived,
    /// The witness was delivered, the probe before it was lost.
    Lost,
    /// The acknowledgement matches nothing outstanding.
    Unknown,
}

/// Counters of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCounts {
    /// Probes sent, not counting witnesses.
    pub probes: u64,
    /// Probes lost.
    pub lost: u64,
    /// Times that the current MTU turned into a black hole.
    pub black_holes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    probe: ProbePacket,
    sent: Time,
}

#[derive(Clone, Copy, Debug)]
enum SearchPhase {
    Searching,
    Complete { confirm_at: Time, raise_at: Time },
}

/// DPLPMTUD state of one path.
#[derive(Clone, Debug)]
pub struct PathSearch {
    /// MAX_PLPMTU: the lower of the configured MTU and the MTU that routers reported.
    limit: u32,
    /// PLPMTU: MTU in use.
    mtu: u32,
    /// Last size confirmed on the current path.
    confirmed: Option<u32>,
    /// Smallest size that was lost; `limit` + 1 if there is none.
    smallest_lost: u32,
    phase: SearchPhase,
    /// PROBED_SIZE.
    candidate: u32,
    /// PROBE_COUNT.
    losses: u8,
    probe: Option<Outstanding>,
    witness: Option<Outstanding>,
    next_at: Time,
    backoff: Duration,
    peer_answers: bool,
    used: bool,
    last_token: u32,
    counts: SearchCounts,
}

impl PathSearch {
    /// Starts a search with an MTU of `limit` bytes.
    pub fn new(limit: u32) -> PathSearch {
        PathSearch {
            limit,
            mtu: limit,
            confirmed: None,
            smallest_lost: limit.saturating_add(1),
            phase: SearchPhase::Searching,
            candidate: limit,
            losses: 0,
            probe: None,
            witness: None,
            next_at: Time::ZERO,
            backoff: Duration::ZERO,
            peer_answers: false,
            used: false,
            last_token: 0,
            counts: SearchCounts::default(),
        }
    }

    /// Returns the MTU in use, bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Returns the largest confirmed size, bytes.
    pub fn confirmed(&self) -> Option<u32> {
        self.confirmed.filter(|_| self.peer_answers)
    }

    /// Returns the smallest size that was lost, if any.
    pub fn smallest_lost(&self) -> Option<u32> {
        (self.smallest_lost <= self.limit).then_some(self.smallest_lost)
    }

    /// Returns the state of the search.
    pub fn state(&self) -> SearchState {
        match self.phase {
            _ if !self.peer_answers => SearchState::Unconfirmed,
            SearchPhase::Searching => SearchState::Searching,
            SearchPhase::Complete { .. } => SearchState::Complete,
        }
    }

    /// Returns the counters since the start.
    pub fn counts(&self) -> SearchCounts {
        self.counts
    }

    /// Records a packet of the site. Only packets above the minimum size matter.
    #[inline]
    pub fn on_sent(&mut self, size: usize) {
        self.used |= size > MIN_PLPMTU as usize;
    }

    /// Sets the upper limit. A higher limit takes effect at once while the peer answers no probes;
    /// otherwise it is probed first.
    pub fn set_limit(&mut self, now: Time, limit: u32) {
        if limit == self.limit {
            return;
        }
        self.limit = limit;
        if self.mtu > limit || !self.peer_answers {
            self.mtu = limit;
        }
        self.restart(now);
    }

    /// Restarts the search because the path may have changed. The current MTU stays in use until it
    /// is known to be too large.
    pub fn restart(&mut self, now: Time) {
        self.confirmed = None;
        self.smallest_lost = self.limit.saturating_add(1);
        (self.phase, self.candidate, self.losses) = (SearchPhase::Searching, self.limit, 0);
        (self.probe, self.witness) = (None, None);
        (self.next_at, self.backoff) = (now, Duration::ZERO);
    }

    /// Returns the probe or witness to be sent now, if any.
    pub fn poll(&mut self, now: Time, srtt: Duration) -> Option<ProbePacket> {
        let timer = PROBE_TIMER.max(srtt * PROBE_TIMER_RTTS);
        if let Some(witness) = self.witness {
            if now.since(witness.sent) >= timer {
                // Not even the short packet was acknowledged: the size is not the cause.
                (self.probe, self.witness) = (None, None);
                self.backoff = (self.backoff * 2).max(timer).min(BACKOFF_MAX.max(timer));
                self.next_at = now + self.backoff;
            }
            return None;
        }
        if let Some(probe) = self.probe {
            if now.since(probe.sent) < timer {
                return None;
            }
            let witness = self.packet(0);
            self.witness = Some(Outstanding {
                probe: witness,
                sent: now,
            });
            return Some(witness);
        }
        if now < self.next_at || !self.is_due(now) {
            return None;
        }
        self.used = false;
        self.counts.probes += 1;
        let probe = self.packet(self.candidate);
        self.probe = Some(Outstanding { probe, sent: now });
        Some(probe)
    }

    /// Returns whether the candidate is to be probed. Starts another search if the raise timer has
    /// expired.
    fn is_due(&mut self, now: Time) -> bool {
        let SearchPhase::Complete {
            confirm_at,
            raise_at,
        } = self.phase
        else {
            return true;
        };
        if self.losses > 0 {
            return true;
        }
        if !self.used {
            return false;
        }
        if self.mtu < self.limit && raise_at <= now {
            self.smallest_lost = self.limit.saturating_add(1);
            (self.phase, self.candidate) = (SearchPhase::Searching, self.limit);
            return true;
        }
        confirm_at <= now
    }

    fn packet(&mut self, size: u32) -> ProbePacket {
        self.last_token = self.last_token.wrapping_add(1);
        ProbePacket {
            size,
            token: self.last_token,
        }
    }

    /// Processes an acknowledgement of the probe `token`, which was received with `size` bytes.
    pub fn on_ack(&mut self, now: Time, token: u32, size: u32) -> ProbeOutcome {
        let is = |sent: Option<Outstanding>| sent.is_some_and(|sent| sent.probe.token == token);
        let arrived = is(self.probe) && size == self.candidate;
        if !arrived && !is(self.witness) {
            return ProbeOutcome::Unknown;
        }
        (self.probe, self.witness, self.backoff) = (None, None, Duration::ZERO);
        self.peer_answers = true;
        if arrived {
            self.losses = 0;
            self.on_probe_acked(now);
            return ProbeOutcome::Arrived;
        }
        self.counts.lost += 1;
        self.losses += 1;
        if self.losses >= MAX_PROBES {
            self.losses = 0;
            self.on_probe_lost(now);
        }
        ProbeOutcome::Lost
    }

    fn on_probe_acked(&mut self, now: Time) {
        self.confirmed = Some(self.candidate);
        if let SearchPhase::Complete { confirm_at, .. } = &mut self.phase {
            *confirm_at = now + CONFIRMATION_TIMER;
            return;
        }
        self.mtu = self.mtu.max(self.candidate);
        self.advance(now);
    }

    fn on_probe_lost(&mut self, now: Time) {
        self.smallest_lost = self.candidate;
        if self.candidate > self.mtu {
            return self.advance(now);
        }
        self.counts.black_holes += 1;
        self.confirmed = None;
        let least = MIN_PLPMTU.min(self.limit);
        if self.candidate <= least {
            return self.complete(now);
        }
        self.mtu = if self.candidate > BASE_PLPMTU {
            BASE_PLPMTU
        } else {
            least
        };
        (self.phase, self.candidate) = (SearchPhase::Searching, self.mtu);
    }

    /// Chooses the next candidate between the current MTU and the smallest lost size.
    fn advance(&mut self, now: Time) {
        if self.confirmed.is_none() {
            self.candidate = self.mtu;
        } else if self.smallest_lost.saturating_sub(self.mtu) <= SEARCH_PRECISION_BYTES
            || self.mtu >= self.limit
        {
            self.complete(now);
        } else if self.smallest_lost > self.limit {
            self.candidate = self.limit;
        } else {
            self.candidate = self.mtu.midpoint(self.smallest_lost);
        }
    }

    fn complete(&mut self, now: Time) {
        self.candidate = self.mtu;
        self.phase = SearchPhase::Complete {
            confirm_at: now + CONFIRMATION_TIMER,
            raise_at: now + PMTU_RAISE_TIMER,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const MTU_LIMIT: u32 = 1_420;
    const TICK: Duration = Duration::from_millis(250);
    const RTT: Duration = Duration::from_millis(40);

    /// A path that silently drops packets above its MTU, with a peer that acknowledges probes.
    struct Path {
        search: PathSearch,
        now: Time,
        /// Path MTU, bytes; 0 in an outage.
        carries: u32,
        /// Random loss of one packet in this many; 0 disables it.
        drops_one_in: u64,
        random: u64,
        acks: VecDeque<(Time, ProbePacket)>,
        sent: u64,
    }

    impl Path {
        fn new(carries: u32) -> Path {
            Path {
                search: PathSearch::new(MTU_LIMIT),
                now: Time::ZERO,
                carries,
                drops_one_in: 0,
                random: 1,
                acks: VecDeque::new(),
                sent: 0,
            }
        }

        fn drops(&mut self) -> bool {
            // Step of Knuth's MMIX linear congruential generator.
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            self.drops_one_in > 0 && (self.random >> 33).is_multiple_of(self.drops_one_in)
        }

        /// Advances the time. If `used`, the site sends long packets.
        fn run(&mut self, time: Duration, used: bool) {
            let end = self.now + time;
            while self.now < end {
                while let Some((at, probe)) =
                    self.acks.front().copied().filter(|(at, _)| *at <= self.now)
                {
                    self.acks.pop_front();
                    self.search.on_ack(at, probe.token, probe.size);
                }
                if used {
                    self.search.on_sent(1_400);
                }
                if let Some(probe) = self.search.poll(self.now, RTT) {
                    self.sent += 1;
                    let size = probe.size.max(60);
                    if size <= self.carries && !self.drops() {
                        self.acks.push_back((self.now + RTT, probe));
                    }
                }
                assert!((MIN_PLPMTU..=self.search.limit).contains(&self.search.mtu));
                self.now += TICK;
            }
        }

        fn found(&self) -> (u32, SearchState) {
            (self.search.mtu(), self.search.state())
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_path_that_carries_everything_costs_one_probe_and_then_six_a_minute_in_use() {
        let mut path = Path::new(MTU_LIMIT);
        path.run(seconds(1), false);
        assert_eq!(
            (path.found(), path.sent),
            ((MTU_LIMIT, SearchState::Complete), 1)
        );
        path.run(seconds(3_600), false);
        assert_eq!(path.sent, 1, "no probes on an idle path");
        path.run(seconds(600), true);
        assert!((50..=60).contains(&path.sent), "{}", path.sent);
    }

    #[test]
    fn a_hole_from_the_start_is_found_within_five_seconds_and_measured_within_half_a_minute() {
        let mut path = Path::new(1_240);
        path.run(seconds(5), true);
        assert_eq!(path.search.mtu(), BASE_PLPMTU);
        path.run(seconds(25), true);
        let (mtu, state) = path.found();
        assert_eq!(state, SearchState::Complete);
        assert!(
            (1_240 - SEARCH_PRECISION_BYTES..=1_240).contains(&mtu),
            "{mtu}"
        );
        assert_eq!(path.search.confirmed(), Some(mtu));
        assert_eq!(path.search.counts().black_holes, 1);
    }

    #[test]
    fn a_path_that_shrinks_in_use_is_followed_and_one_that_grows_after_ten_minutes() {
        let mut path = Path::new(MTU_LIMIT);
        path.run(seconds(60), true);
        path.carries = 900;
        path.run(seconds(60), true);
        let (mtu, state) = path.found();
        assert!(
            (900 - SEARCH_PRECISION_BYTES..=900).contains(&mtu) && state == SearchState::Complete,
            "{mtu}"
        );
        path.carries = MTU_LIMIT;
        path.run(seconds(500), true);
        assert_eq!(path.search.mtu(), mtu, "not yet");
        path.run(seconds(120), true);
        assert_eq!(path.found(), (MTU_LIMIT, SearchState::Complete));
    }

    #[test]
    fn neither_an_outage_nor_a_peer_that_answers_no_probes_shrinks_anything() {
        let mut silent = Path::new(0);
        silent.run(seconds(600), true);
        assert_eq!(silent.found(), (MTU_LIMIT, SearchState::Unconfirmed));
        assert!(silent.sent <= 40, "{} probes in ten minutes", silent.sent);
        let mut path = Path::new(MTU_LIMIT);
        for outage in [1, 3, 10, 100] {
            path.run(seconds(30), true);
            path.carries = 0;
            path.run(seconds(outage), true);
            path.carries = MTU_LIMIT;
        }
        path.run(seconds(120), true);
        assert_eq!(path.found(), (MTU_LIMIT, SearchState::Complete));
        assert_eq!(path.search.counts().black_holes, 0);
    }

    #[test]
    fn router_reports_apply_at_once_and_increases_are_probed() {
        let mut path = Path::new(1_300);
        path.search.set_limit(path.now, 1_300);
        assert_eq!(path.search.mtu(), 1_300, "before any acknowledgement");
        path.run(seconds(2), true);
        assert_eq!(path.found(), (1_300, SearchState::Complete));
        path.search.set_limit(path.now, MTU_LIMIT);
        assert_eq!(path.search.mtu(), 1_300);
        path.run(seconds(60), true);
        let mtu = path.search.mtu();
        assert!(
            (1_300..1_300 + SEARCH_PRECISION_BYTES).contains(&mtu),
            "{mtu}"
        );
        // A peer that answers no probes: a higher limit applies at once.
        let mut plain = PathSearch::new(MTU_LIMIT);
        plain.set_limit(Time::ZERO, 1_300);
        plain.set_limit(Time::ZERO, MTU_LIMIT);
        assert_eq!(plain.mtu(), MTU_LIMIT);
    }

    #[test]
    fn a_new_path_restarts_the_search() {
        let mut path = Path::new(1_240);
        path.run(seconds(60), true);
        path.carries = 1_100;
        path.search.restart(path.now);
        path.run(seconds(60), true);
        let mtu = path.search.mtu();
        assert!(
            (1_100 - SEARCH_PRECISION_BYTES..=1_100).contains(&mtu),
            "{mtu}"
        );
        path.carries = MTU_LIMIT;
        path.search.restart(path.now);
        path.run(seconds(2), true);
        assert_eq!(path.found(), (MTU_LIMIT, SearchState::Complete));
    }

    /// Consecutive losses of a size look like a black hole, and the MTU is then too small until
    /// longer packets are tried again.
    #[test]
    fn random_loss_is_mistaken_for_a_black_hole_only_briefly() {
        for (one_in, permille_max) in [(100, 1), (50, 1), (20, 20), (10, 100)] {
            let (mut short, mut samples) = (0, 0);
            for (carries, random) in (MIN_PLPMTU..2_000).step_by(25).zip(0..) {
                let mut path = Path::new(carries);
                (path.drops_one_in, path.random) = (one_in, random);
                path.run(seconds(60), true);
                for _ in 0..360 {
                    path.run(seconds(10), true);
                    samples += 1;
                    let carried = path.carries.min(MTU_LIMIT);
                    short += u32::from(path.search.mtu() + SEARCH_PRECISION_BYTES < carried);
                }
            }
            assert!(
                short * 1_000 <= samples * permille_max,
                "{short} of {samples} samples with one loss in {one_in}"
            );
        }
    }

    proptest! {
        /// Whatever the path did before, the MTU in use converges to within the precision of the
        /// path MTU.
        #[test]
        fn any_path_is_found(
            steps in prop::collection::vec(
                (
                    prop_oneof![3 => MIN_PLPMTU..2_000_u32, 1 => Just(0)],
                    0..200_u64,
                    any::<bool>(),
                ),
                0..8,
            ),
            last in MIN_PLPMTU..2_000_u32,
        ) {
            let mut path = Path::new(MTU_LIMIT);
            for (carries, time, used) in steps {
                path.carries = carries;
                path.run(seconds(time), used);
            }
            path.carries = last;
            // Covers the longest backoff, one raise timer and two searches.
            path.run(BACKOFF_MAX + PMTU_RAISE_TIMER + seconds(120), true);
            let mtu = path.search.mtu();
            let carried = last.min(MTU_LIMIT);
            prop_assert!(
                mtu <= carried && mtu + SEARCH_PRECISION_BYTES >= carried,
                "{} of {}",
                mtu,
                carried
            );
        }

        /// No sequence of acknowledgements raises the MTU above the limit or confirms a size that
        /// was not sent.
        #[test]
        fn any_acknowledgement_is_taken(
            acks in prop::collection::vec(
                (
                    0..8_u32,
                    0..3_000_u32,
                    0..5_000_u64,
                    prop::option::of(100..9_000_u32),
                ),
                0..200,
            ),
        ) {
            let mut search = PathSearch::new(MTU_LIMIT);
            let mut now = Time::ZERO;
            let mut longest = 0;
            for (back, size, ms, limit) in acks {
                now += Duration::from_millis(ms);
                if let Some(limit) = limit {
                    search.set_limit(now, limit);
                }
                let token = search.poll(now, RTT).map_or(back, |probe| {
                    longest = longest.max(probe.size);
                    probe.token.wrapping_sub(back)
                });
                search.on_ack(now, token, size);
                prop_assert!(search.mtu() <= search.limit);
                prop_assert!(search.confirmed().is_none_or(|size| size <= longest));
            }
        }
    }
}
