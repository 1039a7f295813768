//! Windowed minimum RTT over long windows, in constant memory.

use std::collections::VecDeque;

use ccplane_datapath::INFINITY;
use ccplane_units::{Duration, Time};

/// Sub-windows per window (RFC 6817, 4.2: BASE_HISTORY). With fewer, a large part of the history
/// expires at once.
const BASE_HISTORY_PARTS: u64 = 10;

/// Minimum of the last nine to ten tenths of the window, µs. One minimum is stored per tenth, as
/// RFC 6817's `update_base_delay` stores one per minute.
#[derive(Clone, Debug)]
pub(crate) struct WindowedMin {
    window: Duration,
    /// Start time and minimum of each sub-window.
    sub_windows: VecDeque<(Time, u64)>,
}

impl WindowedMin {
    pub fn new(over: Duration) -> WindowedMin {
        WindowedMin {
            window: over,
            sub_windows: VecDeque::new(),
        }
    }

    /// Adds a sample, [`INFINITY`] if there is none. Returns the minimum, or `None` before the
    /// first sample.
    pub fn update(&mut self, now: Time, rtt: u64) -> Option<u64> {
        if rtt < INFINITY {
            match self.sub_windows.back_mut() {
                Some((began, least)) if now.since(*began) < self.window / BASE_HISTORY_PARTS => {
                    *least = rtt.min(*least)
                }
                _ => self.sub_windows.push_back((now, rtt)),
            }
        }
        // The newest sub-window never expires: an old minimum is better than none.
        while self.sub_windows.len() > 1
            && self
                .sub_windows
                .front()
                .is_some_and(|(began, _)| now.since(*began) >= self.window)
        {
            self.sub_windows.pop_front();
        }
        self.sub_windows.iter().map(|(_, least)| *least).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_lasts_nine_to_ten_parts() {
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let mut least = WindowedMin::new(Duration::from_secs(600));
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
        assert_eq!(least.sub_windows.len(), 10);
        assert_eq!(least.update(at(602), INFINITY), Some(50));
        // After a long gap, earlier minima have expired.
        assert_eq!(least.update(at(9_000), 90), Some(90));
        assert_eq!(
            least.update(at(19_000), INFINITY),
            Some(90),
            "the last is never too old"
        );
    }
}
