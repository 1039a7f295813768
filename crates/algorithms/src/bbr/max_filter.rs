//! Windowed maximum filter.

use std::collections::VecDeque;

/// Maximum of the last `window` time units, where only updates advance time: without updates,
/// values do not expire. Linux' `minmax_running_max` approximates the runners-up; this filter is
/// exact.
#[derive(Clone, Debug)]
pub(super) struct MaxFilter {
    window: u64,
    /// Increasing times and decreasing values, with at most one entry per time unit.
    best: VecDeque<(u64, u64)>,
}

impl MaxFilter {
    pub fn new(window: u64) -> MaxFilter {
        MaxFilter {
            window,
            best: VecDeque::new(),
        }
    }

    /// Adds a value and returns the maximum of the window. `now` does not decrease.
    pub fn update(&mut self, now: u64, value: u64) -> u64 {
        self.best
            .retain(|(at, _)| now.saturating_sub(*at) <= self.window);
        while self.best.back().is_some_and(|(_, last)| *last <= value) {
            self.best.pop_back();
        }
        if self.best.back().is_none_or(|(at, _)| *at < now) {
            self.best.push_back((now, value));
        }
        self.get()
    }

    /// Returns the maximum; 0 before the first value.
    pub fn get(&self) -> u64 {
        self.best.front().map_or(0, |(_, value)| *value)
    }

    /// Changes the window from the next update on.
    pub fn set_window(&mut self, window: u64) {
        self.window = window;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_filter_returns_the_window_maximum(
            window in 0u64..12,
            values in prop::collection::vec((0u64..3, 0u64..20), 1..200),
        ) {
            let mut filter = MaxFilter::new(window);
            let mut all: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (step, value) in values {
                now += step;
                all.push((now, value));
                let expected = all
                    .iter()
                    .filter(|(at, _)| now - at <= window)
                    .map(|(_, value)| *value)
                    .max();
                prop_assert_eq!(Some(filter.update(now, value)), expected);
                prop_assert!(filter.best.len() as u64 <= window + 1);
            }
        }
    }
}
