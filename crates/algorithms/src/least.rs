//! The least RTT of a long time, in little memory.

use std::collections::VecDeque;

use ccplane_datapath::INFINITY;
use ccplane_units::{Duration, Time};

/// Parts of the time over which it looks (RFC 6817, 4.2: BASE_HISTORY). Fewer, and a large part of
/// the history goes at once.
const PARTS: u64 = 10;

/// The least sample of the last nine to ten tenths of a time, µs: a minimum for each tenth, as RFC
/// 6817's `update_base_delay` keeps one for each minute.
#[derive(Clone, Debug)]
pub(crate) struct Least {
    over: Duration,
    /// Beginnings of parts and their minima.
    parts: VecDeque<(Time, u64)>,
}

impl Least {
    pub fn over(over: Duration) -> Least {
        Least {
            over,
            parts: VecDeque::new(),
        }
    }

    /// Takes a sample, [`INFINITY`] where there is none. The least, or nothing while there was no
    /// sample.
    pub fn update(&mut self, now: Time, rtt: u64) -> Option<u64> {
        if rtt < INFINITY {
            match self.parts.back_mut() {
                Some((began, least)) if now.since(*began) < self.over / PARTS => {
                    *least = rtt.min(*least)
                }
                _ => self.parts.push_back((now, rtt)),
            }
        }
        // The last stays, however old it is: it is the best there is.
        while self.parts.len() > 1
            && self
                .parts
                .front()
                .is_some_and(|(began, _)| now.since(*began) >= self.over)
        {
            self.parts.pop_front();
        }
        self.parts.iter().map(|(_, least)| *least).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_is_kept_for_nine_to_ten_parts() {
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let mut least = Least::over(Duration::from_secs(600));
        assert_eq!(least.update(at(0), INFINITY), None);
        assert_eq!(least.update(at(1), 20), Some(20));
        assert_eq!(least.update(at(30), 50), Some(20));
        for minute in 1..10 {
            assert_eq!(
                least.update(at(1 + 60 * minute), 50),
                Some(20),
                "minute {minute}"
            );
        }
        assert_eq!(least.update(at(601), 60), Some(50));
        assert_eq!(least.parts.len(), 10);
        assert_eq!(least.update(at(602), INFINITY), Some(50));
        // After a long silence nothing of before counts.
        assert_eq!(least.update(at(9_000), 90), Some(90));
        assert_eq!(
            least.update(at(19_000), INFINITY),
            Some(90),
            "the last is never too old"
        );
    }
}
