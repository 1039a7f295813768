//! Base RTT, and how it stays valid under a standing queue.
//!
//! A control law that holds a queue never samples the empty path. A windowed minimum then absorbs
//! the queue with every window, and the law adds its queue on top each time. The base RTT is
//! therefore kept until it is measured anew: every 10 s the rate is halved until the RTT stops
//! decreasing, as BBR reduces its window in PROBE_RTT. The site's own queue absorbs what is not
//! sent meanwhile, and the link is idle for about an RTT: 0.3 % of the time at 50 ms.
//!
//! A path with jitter delays packets more when they are denser, even without a queue
//! ([`RttNoise`]). The base RTT is therefore not the minimum RTT but the RTT of the slowest packets
//! on the empty path, which does not depend on the load. At low load it is derived from the mean
//! and the noise, and in a drain it is the maximum RTT once the RTT has stopped decreasing. The
//! law's target is relative to it and thus includes the noise of the loaded path.

use ccplane_datapath::{HalfWindowMin, RttNoise};
use ccplane_units::{Duration, Time};

/// Interval between drains (the minimum RTT window of Copa and BBR). A shorter interval costs more.
/// A longer one mistakes a longer route for a queue until it ends.
const DRAIN_INTERVAL: Duration = Duration::from_secs(10);
/// Factor applied to the rate in a drain. A queue of 10 ms drains in 20 ms if the flow is alone,
/// and in 200 ms if ten flows share the link.
pub(super) const DRAIN_RATE_FACTOR: f64 = 0.5;
/// An RTT within this factor of the base RTT confirms it, so no drain is necessary.
const BASE_RTT_TOLERANCE: f64 = 1.03;
/// RTTs without a new minimum that end a drain, whose effect is visible one RTT after its start.
const DRAIN_END_RTTS: f64 = 1.5;
/// Maximum length of a drain: next to buffer-filling flows it would never end.
const DRAIN_DURATION_MAX: Duration = Duration::from_secs(1);
/// Next to other flows, the RTT at the end of a drain may include their queue. It is accepted if no
/// shorter RTT was measured for this long: three drains.
const BASE_RTT_EXPIRY: Duration = Duration::from_secs(30);
/// Averaging time of the RTT for the base RTT, as a multiple of the noise. With less, a few fast
/// packets in a row look like a shorter path. With more, an oscillating law hides the empty path.
const RTT_AVERAGING_NOISES: f64 = 16.0;
/// Time without a backlog after which the mean RTT contains no queue of this site: the window of
/// the noise samples. With less, it contains a queue that is then taken for the path until the next
/// drain. With more, a site that pauses for less is held to the fastest packets for longer.
const EMPTY_BACKLOG_PERIOD: Duration = Duration::from_secs(1);
/// Half of the window of the base RTT without a limit, as in the datapath's own minimum.
const BASE_RTT_HALF_WINDOW: Duration = Duration::from_secs(5);

/// State of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathEstimate {
    noise: RttNoise,
    /// Averaged RTT, seconds; 0 before the first sample.
    rtt: f64,
    /// Last RTT, seconds.
    last: f64,
    /// Base RTT, seconds; 0 before the first sample.
    base_rtt: f64,
    /// Minimum RTT of the slowest packets without a limit, seconds.
    unlimited_min: HalfWindowMin<f64>,
    /// True if the noise was known when the base RTT was measured. A limit may begin before that.
    /// The base RTT is then measured once the site has sent less than its rate for
    /// [`EMPTY_BACKLOG_PERIOD`], or by a drain.
    checked: bool,
    /// Last time with a backlog.
    last_backlog: Time,
    /// Last time with an RTT near the base RTT.
    last_near_base: Time,
    /// End of the last drain.
    last_drain_end: Time,
    drain: Option<Drain>,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    began: Time,
    /// Minimum RTT in the drain, seconds, and its time.
    min_rtt: f64,
    min_rtt_at: Time,
    /// Maximum RTT since that minimum, seconds.
    max_rtt: f64,
}

impl PathEstimate {
    /// Returns the base RTT, seconds.
    pub fn base(&self) -> f64 {
        self.base_rtt
    }

    /// Returns the noise of the RTT, seconds.
    pub fn noise(&self) -> f64 {
        self.noise.noise()
    }

    /// Returns true during a drain, when the rate is to be halved.
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Adds the RTT of packets that arrived in the last `elapsed` seconds.
    pub fn add_sample(&mut self, rtt: f64, elapsed: f64) {
        self.noise.add(rtt);
        self.last = rtt;
        if self.rtt == 0.0 {
            self.rtt = rtt;
        }
        self.rtt +=
            elapsed / (elapsed + RTT_AVERAGING_NOISES * self.noise.noise()) * (rtt - self.rtt);
    }

    /// Updates the base RTT without a limit, when the RTT includes no queue of this bundle.
    /// `datapath_base` is the datapath's windowed minimum, seconds.
    pub fn update_unlimited(&mut self, now: Time, datapath_base: f64) {
        (
            self.last_near_base,
            self.last_drain_end,
            self.last_backlog,
            self.drain,
        ) = (now, now, now, None);
        self.checked = self.noise.is_known();
        if !self.checked {
            self.base_rtt = datapath_base;
            return;
        }
        let slowest = self.slowest(false);
        let half_window = BASE_RTT_HALF_WINDOW.as_nanos();
        self.base_rtt = self
            .unlimited_min
            .update(now.as_nanos(), half_window, slowest);
    }

    /// Returns the RTT of the slowest packets, seconds. When the load decreases, the noise takes a
    /// second to rise while the RTT decreases at once. Without a backlog the RTT is therefore
    /// averaged over the same time.
    fn slowest(&self, backlogged: bool) -> f64 {
        self.noise.slowest(if backlogged {
            self.rtt
        } else {
            self.rtt.max(self.noise.mean())
        })
    }

    /// Updates the state under a limit. `backlogged`: the limit determines the site's rate.
    /// `alone`: no other flows share the link. `may_drain`: a drain could help, which it cannot if
    /// other flows keep the queue full.
    pub fn update_limited(&mut self, now: Time, backlogged: bool, alone: bool, may_drain: bool) {
        let rtt = self.last;
        let known = self.noise.is_known();
        let seen = if known { self.slowest(backlogged) } else { rtt };
        self.base_rtt = self.base_rtt.min(seen);
        if backlogged {
            self.last_backlog = now;
        } else if known && !self.checked && now.since(self.last_backlog) >= EMPTY_BACKLOG_PERIOD {
            (self.base_rtt, self.checked) = (seen, true);
        }
        if self.rtt <= self.base_rtt * BASE_RTT_TOLERANCE {
            self.last_near_base = now;
        }
        let due = now.since(self.last_near_base.max(self.last_drain_end)) >= DRAIN_INTERVAL;
        match &mut self.drain {
            None if may_drain && due => {
                self.drain = Some(Drain {
                    began: now,
                    min_rtt: rtt,
                    min_rtt_at: now,
                    max_rtt: rtt,
                });
            }
            None => {}
            Some(drain) => {
                drain.max_rtt = drain.max_rtt.max(rtt);
                if rtt < drain.min_rtt {
                    (drain.min_rtt, drain.min_rtt_at, drain.max_rtt) = (rtt, now, rtt);
                }
                let still = now.since(drain.min_rtt_at).as_secs_f64() > DRAIN_END_RTTS * rtt;
                if still || !may_drain || now.since(drain.began) >= DRAIN_DURATION_MAX {
                    let slowest = drain.max_rtt;
                    if still
                        && may_drain
                        && (alone || now.since(self.last_near_base) >= BASE_RTT_EXPIRY)
                    {
                        (self.base_rtt, self.checked) = (slowest, true);
                    }
                    (self.drain, self.last_drain_end) = (None, now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ccplane_agent::rng::SplitMix64;

    use super::*;

    /// Runs for `seconds` with an RTT sample per 10 ms.
    fn run(
        path: &mut PathEstimate,
        from: &mut Time,
        seconds: f64,
        alone: bool,
        rtt: impl Fn(bool) -> f64,
    ) -> u32 {
        let mut drained = 0;
        for _ in 0..(seconds * 100.0) as u32 {
            *from += Duration::from_millis(10);
            let now = rtt(path.is_draining());
            path.add_sample(now, 0.01);
            path.update_limited(*from, true, alone, true);
            drained += u32::from(path.is_draining());
        }
        drained
    }

    /// Runs for 8 s without a limit on an empty path of 50 ms.
    fn free(path: &mut PathEstimate, now: Time) {
        for _ in 0..800 {
            path.add_sample(0.05, 0.01);
            path.update_unlimited(now, 0.05);
        }
    }

    fn close(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 0.000_1
    }

    #[test]
    fn a_standing_queue_does_not_become_the_path() {
        let (mut path, mut now) = (PathEstimate::default(), Time::ZERO);
        free(&mut path, now);
        // The queue is constant at 10 ms and drains when the rate is halved.
        let drained = run(&mut path, &mut now, 100.0, true, |drains| {
            if drains { 0.05 } else { 0.06 }
        });
        assert!(close(path.base(), 0.05), "{}", path.base());
        // Nine drains of about 1.5 RTTs: 1 % of the time at half the rate.
        assert!((50..=110).contains(&drained), "{drained}");
    }

    #[test]
    fn a_path_that_is_often_empty_is_not_drained() {
        let (mut path, mut now) = (PathEstimate::default(), Time::ZERO);
        free(&mut path, now);
        assert_eq!(run(&mut path, &mut now, 100.0, true, |_| 0.051), 0);
    }

    #[test]
    fn a_route_that_became_longer_is_found_within_a_window() {
        let (mut path, mut now) = (PathEstimate::default(), Time::ZERO);
        free(&mut path, now);
        run(&mut path, &mut now, 11.0, true, |drains| {
            if drains { 0.08 } else { 0.09 }
        });
        assert!(close(path.base(), 0.08), "{}", path.base());
        // Next to other flows it takes three drains, because it may be their queue.
        free(&mut path, now);
        run(&mut path, &mut now, 25.0, false, |drains| {
            if drains { 0.08 } else { 0.09 }
        });
        assert!(close(path.base(), 0.05), "{}", path.base());
        run(&mut path, &mut now, 10.0, false, |drains| {
            if drains { 0.08 } else { 0.09 }
        });
        assert!(close(path.base(), 0.08), "{}", path.base());
    }

    #[test]
    fn jitter_is_no_queue_and_a_drain_measures_it_under_load() {
        let (mut path, mut now) = (PathEstimate::default(), Time::ZERO);
        let mut dice = SplitMix64(1);
        let mut draw = |range: f64| range * dice.below(1_000_000) as f64 / 1e6;
        // The RTT is 40 to 60 ms when idle and 56 to 60 ms under load.
        for _ in 0..1_000 {
            now += Duration::from_millis(10);
            path.add_sample(0.04 + draw(0.02), 0.01);
            path.update_unlimited(now, 0.04);
        }
        assert!((0.058..0.075).contains(&path.base()), "{}", path.base());
        for _ in 0..3_000 {
            now += Duration::from_millis(10);
            path.add_sample(0.056 + draw(0.004), 0.01);
            path.update_limited(now, true, true, true);
        }
        assert!((0.058..0.063).contains(&path.base()), "{}", path.base());
        // The site becomes idle. For later packets the path is as slow as before.
        for _ in 0..1_000 {
            now += Duration::from_millis(10);
            path.add_sample(0.04 + draw(0.02), 0.01);
            path.update_limited(now, false, true, true);
        }
        assert!((0.058..0.063).contains(&path.base()), "{}", path.base());
    }

    #[test]
    fn a_drain_ends_where_it_cannot_succeed() {
        let (mut path, mut now) = (PathEstimate::default(), Time::ZERO);
        free(&mut path, now);
        let others = std::cell::Cell::new(0.2);
        // A queue of other flows that keeps decreasing.
        let drained = run(&mut path, &mut now, 20.5, false, |_| {
            others.set(others.get() * 0.999_9);
            others.get()
        });
        assert!(
            (90..=110).contains(&drained),
            "a second and no more: {drained}"
        );
        assert!(close(path.base(), 0.05), "{}", path.base());
    }
}
