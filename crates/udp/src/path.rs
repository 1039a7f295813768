//! What a connection's path carries while it is open: datagram packetization-layer path MTU
//! discovery (RFC 8899, section 5), without its input and output.
//!
//! The handshake finds a size that is carried. From there the search goes upwards by a table, a
//! probe at a time: a datagram padded to the next size, which the other end answers. A lost probe
//! says nothing of congestion, and no data is in it. Where three of a size are not answered the
//! search rests, and begins again after [`RAISE`]. Where full datagrams cease to arrive
//! ([`Flow::is_stuck`](super::flow::Flow)) the size falls to [`BASE`], then to [`LEAST`], and the
//! search begins at once.

use ccplane_units::{Duration, Time};

use crate::endpoint::{BASE, LEAST, sizes};

/// Until the search begins again (RFC 8899, 5.1.1: `PMTU_RAISE_TIMER`, 600 s). Shorter finds a
/// wider path sooner, and sends probes for nothing more often: three in this time.
pub const RAISE: Duration = Duration::from_secs(600);

/// Until a probe that was not answered is sent again, and three smoothed RTTs at least (RFC 8899,
/// 5.1.1: `PROBE_TIMER`, 1 s at least where the RTT is known). Shorter takes a late answer for
/// none, longer makes the search slower.
const PROBE: Duration = Duration::from_secs(1);

/// Probes of a size that are not answered before it is taken for too large (RFC 8899, 5.1.2:
/// `MAX_PROBES`). Fewer mistake loss for a narrow path, more take longer.
const MOST_PROBES: u8 = 3;

/// The search of one connection.
#[derive(Clone, Debug)]
pub(crate) struct PathSize {
    /// Bytes of a datagram that the path carries, as far as is known.
    size: usize,
    /// Bytes of the largest that both ends take.
    most: usize,
    raise: Duration,
    /// What was tried last and not answered, and how often.
    trying: Option<usize>,
    tries: u8,
    /// When something is to be done.
    due: Time,
}

impl PathSize {
    /// Of a connection whose handshake found `size`, and that would take `most`.
    pub fn new(now: Time, size: usize, most: usize, raise: Duration) -> PathSize {
        let mut path = PathSize {
            size,
            most: most.max(size),
            raise,
            trying: None,
            tries: 0,
            due: Time::MAX,
        };
        path.rest(now);
        path
    }

    /// Bytes of a datagram that the path carries.
    pub fn size(&self) -> usize {
        self.size
    }

    /// When [`probe`](PathSize::probe) has something to do.
    pub fn next(&self) -> Time {
        self.due
    }

    /// The datagram to try now, if one is due, bytes.
    pub fn probe(&mut self, now: Time, srtt: Duration) -> Option<usize> {
        if now < self.due {
            return None;
        }
        let larger = sizes(self.most).filter(|size| *size > self.size).min();
        let Some(larger) = larger.filter(|_| self.tries < MOST_PROBES) else {
            self.rest(now);
            return None;
        };
        self.tries += 1;
        self.trying = Some(larger);
        self.due = now + PROBE.max(srtt * 3);
        Some(larger)
    }

    /// Nothing can be sent now.
    pub fn put_off(&mut self, now: Time) {
        if self.due != Time::MAX {
            self.due = self.due.max(now + PROBE);
        }
    }

    /// A probe of so many bytes has arrived; whether the path is wider than was known.
    pub fn on_reply(&mut self, now: Time, size: usize) -> bool {
        // What was tried before the path became narrower says nothing of it now.
        if self.trying != Some(size) {
            return false;
        }
        self.size = size;
        self.begin(now);
        true
    }

    /// This host's own link does not take what was tried.
    pub fn on_refused(&mut self, now: Time) {
        self.rest(now);
    }

    /// Datagrams of the size that was known do not arrive any more; whether there is a smaller one.
    pub fn on_black_hole(&mut self, now: Time) -> bool {
        let smaller = [BASE, LEAST].into_iter().find(|size| *size < self.size);
        if let Some(smaller) = smaller {
            self.size = smaller;
            self.begin(now + PROBE);
        }
        smaller.is_some()
    }

    /// The search goes on at `then` with the next size, if there is one.
    fn begin(&mut self, then: Time) {
        (self.trying, self.tries) = (None, 0);
        self.due = if self.size < self.most {
            then
        } else {
            Time::MAX
        };
    }

    /// The search is over for now.
    fn rest(&mut self, now: Time) {
        self.begin(now + self.raise);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    /// Runs the search until `until` on a path that carries `carries` bytes at each time; when the
    /// size changed, and to what.
    fn search(
        path: &mut PathSize,
        from: Time,
        until: Time,
        carries: impl Fn(Time) -> usize,
    ) -> (Vec<(u64, usize)>, u32) {
        let (mut found, mut probes) = (Vec::new(), 0);
        let mut now = from;
        while path.next() <= until {
            now = now.max(path.next());
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
        let mut path = PathSize::new(at(0), 1232, 1472, RAISE);
        let (found, probes) = search(&mut path, at(0), at(599), |_| 9000);
        assert!(found.is_empty() && probes == 0, "{found:?}");
        let (found, probes) = search(&mut path, at(599), at(3600), |_| 9000);
        assert_eq!(path.size(), 1472);
        assert_eq!(found.first(), Some(&(600_020, 1252)), "{found:?}");
        let millis = found.last().map(|(ms, _)| *ms);
        assert!(millis < Some(601_000), "a step a round trip: {found:?}");
        assert_eq!(
            (probes as usize, path.next()),
            (found.len(), Time::MAX),
            "as wide as anybody wants"
        );
    }

    #[test]
    fn a_size_that_is_not_answered_is_tried_three_times_each_ten_minutes() {
        let mut path = PathSize::new(at(0), 1392, 1472, RAISE);
        let (found, probes) = search(&mut path, at(0), at(1900), |_| 1400);
        assert_eq!((found, probes, path.size()), (vec![], 9, 1392));
    }

    #[test]
    fn after_a_black_hole_the_search_begins_at_once() {
        let mut path = PathSize::new(at(0), 1472, 1472, RAISE);
        assert_eq!(path.next(), Time::MAX);
        assert!(path.on_black_hole(at(100)));
        assert_eq!(path.size(), BASE);
        let (found, _) = search(&mut path, at(100), at(110), |_| 1400);
        assert_eq!((path.size(), found.len()), (1392, 5), "{found:?}");
        // And again, to what nearly everything carries.
        assert!(path.on_black_hole(at(200)) && path.size() == BASE);
        assert!(path.on_black_hole(at(201)) && path.size() == LEAST);
        assert!(!path.on_black_hole(at(202)));
        // It is wide again ten minutes after the last try.
        search(&mut path, at(202), at(900), |now| {
            if now < at(300) { 600 } else { 1500 }
        });
        assert_eq!(path.size(), 1472);
    }

    #[test]
    fn an_answer_to_what_is_not_asked_changes_nothing() {
        let mut path = PathSize::new(at(0), 1232, 1472, RAISE);
        assert!(!path.on_reply(at(1), 1472));
        assert_eq!(path.probe(at(600), RTT), Some(1252));
        assert!(!path.on_reply(at(601), 1472));
        assert!(path.on_black_hole(at(602)));
        assert!(!path.on_reply(at(602), 1252), "that was before");
        // A link of this host that is too small ends the search.
        assert_eq!(path.probe(at(604), RTT), Some(996));
        path.on_refused(at(604));
        assert_eq!(path.next(), at(1204));
    }

    proptest! {
        /// Whatever the path does, the size stays within bounds and is one that was answered or is
        /// taken to be carried by all.
        #[test]
        fn the_size_is_never_one_that_was_not_answered(
            most in 600usize..9000, events in prop::collection::vec((0u8..4, 0u64..700), 0..60),
        ) {
            let mut path = PathSize::new(at(0), most.min(BASE), most, RAISE);
            let (mut now, mut asked, mut answered) = (at(0), 0, vec![most.min(BASE), BASE, LEAST]);
            for (event, seconds) in events {
                now += Duration::from_secs(seconds);
                match event {
                    0 | 1 => if let Some(size) = path.probe(now, RTT) {
                        prop_assert!(size > path.size() && size <= most);
                        asked = size;
                    },
                    2 => if path.on_reply(now, asked) {
                        answered.push(asked);
                    },
                    _ => {
                        path.on_black_hole(now);
                    }
                }
                prop_assert!(answered.contains(&path.size()) && path.size() <= most.max(LEAST));
                prop_assert!(path.size() == most || path.next() != Time::MAX);
            }
        }
    }
}
