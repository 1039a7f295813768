//! Datagram packetization layer path MTU discovery of an open connection (RFC 8899, section 5),
//! without I/O.
//!
//! The handshake finds a size that the path carries. From there the search moves up a table of
//! sizes with one probe at a time: a datagram padded to the next size, which the peer answers.
//! Probes carry no data, and losing one is not a congestion signal. After three unanswered probes
//! of a size the search pauses for [`PMTU_RAISE_TIMER`]. If full datagrams stop arriving
//! ([`Flow::detect_black_hole`](super::flow::UdpFlow)), the size falls to [`BASE_PLPMTU`], then to
//! [`MIN_PLPMTU`], and the search restarts at once.

use ccplane_units::{Duration, Time};

use crate::endpoint::{BASE_PLPMTU, MIN_PLPMTU, hello_sizes};

/// Pause of the search (`PMTU_RAISE_TIMER`, 600 s, RFC 8899, section 5.1.1). A shorter pause finds
/// a larger path MTU sooner, but sends three useless probes more often.
pub const PMTU_RAISE_TIMER: Duration = Duration::from_secs(600);

/// Minimum time before an unanswered probe is repeated; at least three smoothed RTTs
/// (`PROBE_TIMER`, RFC 8899, section 5.1.1: at least 1 s if the RTT is known). A shorter time
/// mistakes late answers for losses; a longer one slows the search.
const PROBE_TIMER: Duration = Duration::from_secs(1);

/// Unanswered probes after which a size counts as too large (`MAX_PROBES`, RFC 8899, section
/// 5.1.2). With fewer, random loss looks like a small path MTU; with more, the search takes longer.
const MAX_PROBES: u8 = 3;

/// Path MTU search of one connection.
#[derive(Clone, Debug)]
pub(crate) struct PmtuSearch {
    /// Datagram size that the path is known to carry, bytes.
    size: usize,
    /// Largest datagram size that both ends accept, bytes.
    size_max: usize,
    raise_timer: Duration,
    /// Size being probed, and the number of probes sent for it.
    candidate: Option<usize>,
    probes_sent: u8,
    /// Time of the next action.
    due: Time,
}

impl PmtuSearch {
    /// Creates the search of a connection whose handshake found `size`, with an upper limit of
    /// `most`.
    pub fn new(now: Time, size: usize, most: usize, raise: Duration) -> PmtuSearch {
        let mut path = PmtuSearch {
            size,
            size_max: most.max(size),
            raise_timer: raise,
            candidate: None,
            probes_sent: 0,
            due: Time::MAX,
        };
        path.pause(now);
        path
    }

    /// Returns the datagram size that the path carries, bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the time of the next [`probe`](PmtuSearch::probe).
    pub fn next_deadline(&self) -> Time {
        self.due
    }

    /// Returns the size of the probe to send now, in bytes, if one is due.
    pub fn probe(&mut self, now: Time, srtt: Duration) -> Option<usize> {
        if now < self.due {
            return None;
        }
        let larger = hello_sizes(self.size_max)
            .filter(|size| *size > self.size)
            .min();
        let Some(larger) = larger.filter(|_| self.probes_sent < MAX_PROBES) else {
            self.pause(now);
            return None;
        };
        self.probes_sent += 1;
        self.candidate = Some(larger);
        self.due = now + PROBE_TIMER.max(srtt * 3);
        Some(larger)
    }

    /// Postpones the probe because nothing can be sent now.
    pub fn postpone(&mut self, now: Time) {
        if self.due != Time::MAX {
            self.due = self.due.max(now + PROBE_TIMER);
        }
    }

    /// Handles the answer to a probe of `size` bytes. Returns true if the path MTU has grown.
    pub fn on_reply(&mut self, now: Time, size: usize) -> bool {
        // An answer to an earlier probe may predate a reduction of the path MTU.
        if self.candidate != Some(size) {
            return false;
        }
        self.size = size;
        self.begin(now);
        true
    }

    /// Pauses the search because this host's own link rejected the probe.
    pub fn on_refused(&mut self, now: Time) {
        self.pause(now);
    }

    /// Reduces the size after full datagrams have stopped arriving. Returns true if there was a
    /// smaller one.
    pub fn on_black_hole(&mut self, now: Time) -> bool {
        let smaller = [BASE_PLPMTU, MIN_PLPMTU]
            .into_iter()
            .find(|size| *size < self.size);
        if let Some(smaller) = smaller {
            self.size = smaller;
            self.begin(now + PROBE_TIMER);
        }
        smaller.is_some()
    }

    /// Continues the search at `then` with the next size, if there is one.
    fn begin(&mut self, then: Time) {
        (self.candidate, self.probes_sent) = (None, 0);
        self.due = if self.size < self.size_max {
            then
        } else {
            Time::MAX
        };
    }

    /// Pauses the search.
    fn pause(&mut self, now: Time) {
        self.begin(now + self.raise_timer);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    /// Runs the search until `until` on a path that carries `carries` bytes at each time. Returns
    /// the times and values of size changes, and the number of probes.
    fn search(
        path: &mut PmtuSearch,
        from: Time,
        until: Time,
        carries: impl Fn(Time) -> usize,
    ) -> (Vec<(u64, usize)>, u32) {
        let (mut found, mut probes) = (Vec::new(), 0);
        let mut now = from;
        while path.next_deadline() <= until {
            now = now.max(path.next_deadline());
            let Some(size) = path.probe(now, RTT) else {
                continue;
            };
            probes += 1;
            if size <= carries(now) {
                now += RTT;
                assert!(path.on_reply(now, size));
                found.push((now.since(Time::ZERO).as_millis(), path.size()));
            }
        }
        (found, probes)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_path_that_becomes_wider_is_found_after_the_timer() {
        let mut path = PmtuSearch::new(at(0), 1232, 1472, PMTU_RAISE_TIMER);
        let (found, probes) = search(&mut path, at(0), at(599), |_| 9000);
        assert!(found.is_empty() && probes == 0, "{found:?}");
        let (found, probes) = search(&mut path, at(599), at(3600), |_| 9000);
        assert_eq!(path.size(), 1472);
        assert_eq!(found.first(), Some(&(600_020, 1252)), "{found:?}");
        let millis = found.last().map(|(ms, _)| *ms);
        assert!(millis < Some(601_000), "one step per round trip: {found:?}");
        assert_eq!(
            (probes as usize, path.next_deadline()),
            (found.len(), Time::MAX),
            "the maximum"
        );
    }

    #[test]
    fn a_size_that_is_not_answered_is_tried_three_times_each_ten_minutes() {
        let mut path = PmtuSearch::new(at(0), 1392, 1472, PMTU_RAISE_TIMER);
        let (found, probes) = search(&mut path, at(0), at(1900), |_| 1400);
        assert_eq!((found, probes, path.size()), (vec![], 9, 1392));
    }

    #[test]
    fn after_a_black_hole_the_search_begins_at_once() {
        let mut path = PmtuSearch::new(at(0), 1472, 1472, PMTU_RAISE_TIMER);
        assert_eq!(path.next_deadline(), Time::MAX);
        assert!(path.on_black_hole(at(100)));
        assert_eq!(path.size(), BASE_PLPMTU);
        let (found, _) = search(&mut path, at(100), at(110), |_| 1400);
        assert_eq!((path.size(), found.len()), (1392, 5), "{found:?}");
        // A second black hole reduces the size to the minimum.
        assert!(path.on_black_hole(at(200)) && path.size() == BASE_PLPMTU);
        assert!(path.on_black_hole(at(201)) && path.size() == MIN_PLPMTU);
        assert!(!path.on_black_hole(at(202)));
        // The full size is found again ten minutes after the last attempt.
        search(&mut path, at(202), at(900), |now| {
            if now < at(300) { 600 } else { 1500 }
        });
        assert_eq!(path.size(), 1472);
    }

    #[test]
    fn unsolicited_probe_replies_are_ignored() {
        let mut path = PmtuSearch::new(at(0), 1232, 1472, PMTU_RAISE_TIMER);
        assert!(!path.on_reply(at(1), 1472));
        assert_eq!(path.probe(at(600), RTT), Some(1252));
        assert!(!path.on_reply(at(601), 1472));
        assert!(path.on_black_hole(at(602)));
        assert!(!path.on_reply(at(602), 1252), "an earlier probe");
        // A probe that the local link rejects ends the search.
        assert_eq!(path.probe(at(604), RTT), Some(996));
        path.on_refused(at(604));
        assert_eq!(path.next_deadline(), at(1204));
    }

    proptest! {
        /// Under arbitrary events, the size stays within bounds and is always one that was
        /// answered, or one of the base sizes.
        #[test]
        fn the_size_is_never_one_that_was_not_answered(
            most in 600usize..9000,
            events in prop::collection::vec((0u8..4, 0u64..700), 0..60),
        ) {
            let mut path = PmtuSearch::new(at(0), most.min(BASE_PLPMTU), most, PMTU_RAISE_TIMER);
            let (mut now, mut asked, mut answered) = (
                at(0),
                0,
                vec![most.min(BASE_PLPMTU), BASE_PLPMTU, MIN_PLPMTU],
            );
            for (event, seconds) in events {
                now += Duration::from_secs(seconds);
                match event {
                    0 | 1 => {
                        if let Some(size) = path.probe(now, RTT) {
                            prop_assert!(size > path.size() && size <= most);
                            asked = size;
                        }
                    }
                    2 => {
                        if path.on_reply(now, asked) {
                            answered.push(asked);
                        }
                    }
                    _ => {
                        path.on_black_hole(now);
                    }
                }
                prop_assert!(
                    answered.contains(&path.size()) && path.size() <= most.max(MIN_PLPMTU)
                );
                prop_assert!(path.size() == most || path.next_deadline() != Time::MAX);
            }
        }
    }
}
