//! The RTT of the empty path, and how it stays known.
//!
//! A law that holds a queue sees no empty path. A windowed minimum then rises by the queue with
//! every window, and the law adds its queue on top, again and again. So the shortest RTT counts
//! until it is measured anew: every 10 s the rate is halved until the RTT falls no further, as BBR
//! does with its window (its PROBE_RTT). The site's own queue keeps what is not sent meanwhile, and
//! the link runs empty for about an RTT: 0.3 % of its time at 50 ms.
//!
//! A path with jitter delays packets by more the denser they are, without a queue ([`RttNoise`]).
//! The RTT of the empty path is therefore not the least RTT. It is the RTT of the slowest packets
//! of the empty path, which is the same for every load: by the mean and the noise while little is
//! sent, and in a drain the greatest RTT once the RTT falls no further. The law aims at its queue
//! above that. The noise of the busy path is therefore in the target.

use ccplane_datapath::RttNoise;
use ccplane_units::{Duration, Time};

/// How often (Copa's and BBR's window of the shortest RTT). Shorter costs more, longer and a route
/// that became longer is taken for a queue for that time.
const EVERY: Duration = Duration::from_secs(10);
/// What is left of the rate meanwhile. A queue of 10 ms is gone after 20 ms where we are alone, and
/// where ten share the link after 200.
pub(super) const LEFT: f64 = 0.5;
/// An RTT within this of the shortest is the shortest: there is no need to look.
const NEAR: f64 = 1.03;
/// A drain that found no new least RTT for so many RTTs is over: it shows an RTT after it began.
const STILL: f64 = 1.5;
/// The longest drain: beside others who fill the queue it never ends.
const LONGEST: Duration = Duration::from_secs(1);
/// Beside others the RTT at a drain's end may be their queue. It is believed when nothing shorter
/// was seen for so long: three drains.
const BELIEVED: Duration = Duration::from_secs(30);
/// Time over which the RTT is averaged for the shortest, in parts of the noise. Over less time a
/// few fast packets in a row look like a shorter path. Over more, a law that swings hides the empty
/// path.
const AVERAGED: f64 = 16.0;
/// Time without a backlog after which the mean RTT has no queue of ours in it: that of the noise's
/// samples. After less it has a queue in it, which is then taken for the path until the next drain.
/// With more, a site that pauses for less is held to the fastest packets for longer.
const QUIET: Duration = Duration::from_secs(1);
/// The shortest RTT while nothing is limited is of the last one to two of these, as the datapath's
/// own is.
const HALF: Duration = Duration::from_secs(5);

/// What is known of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    noise: RttNoise,
    /// The RTT, averaged, seconds; 0 before the first.
    rtt: f64,
    /// The last RTT, seconds.
    last: f64,
    /// RTT of the empty path, seconds; 0 before the first RTT.
    shortest: f64,
    /// While nothing is limited: the shortest of this and of the last [`HALF`], seconds, and the
    /// end of this one.
    recent: f64,
    before: f64,
    ends: Time,
    /// True if the noise was known when the shortest was measured. A limit may begin before that.
    /// Then it is measured when the site has sent less than it may for [`QUIET`], or by a drain.
    checked: bool,
    /// When the site last had a backlog.
    busy: Time,
    /// When an RTT was near it.
    near: Time,
    /// When the last drain ended.
    drained: Time,
    drain: Option<Drain>,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    began: Time,
    /// The least RTT since, seconds, and when.
    least: f64,
    at: Time,
    /// The greatest RTT since then, seconds.
    slowest: f64,
}

impl Path {
    /// The RTT of the empty path, seconds.
    pub fn base(&self) -> f64 {
        self.shortest
    }

    /// Noise of the RTT, seconds.
    pub fn noise(&self) -> f64 {
        self.noise.get()
    }

    /// Whether the rate is to be halved now.
    pub fn drains(&self) -> bool {
        self.drain.is_some()
    }

    /// Adds the RTT of packets that arrived in the last `elapsed` seconds.
    pub fn measured(&mut self, rtt: f64, elapsed: f64) {
        self.noise.add(rtt);
        self.last = rtt;
        if self.rtt == 0.0 {
            self.rtt = rtt;
        }
        self.rtt += elapsed / (elapsed + AVERAGED * self.noise.get()) * (rtt - self.rtt);
    }

    /// While nothing is limited no queue of ours is in the RTT. `told` is the datapath's own
    /// windowed minimum.
    pub fn free(&mut self, now: Time, told: f64) {
        (self.near, self.drained, self.busy, self.drain) = (now, now, now, None);
        self.checked = self.noise.is_known();
        if !self.checked {
            self.shortest = told;
            (self.recent, self.before) = (f64::INFINITY, f64::INFINITY);
            return;
        }
        if now >= self.ends {
            self.before = if now >= self.ends + HALF {
                f64::INFINITY
            } else {
                self.recent
            };
            self.recent = f64::INFINITY;
            self.ends = now + HALF;
        }
        self.recent = self.recent.min(self.slowest(false));
        self.shortest = self.recent.min(self.before);
    }

    /// RTT of the slowest packets by what is known now, seconds. The noise takes a second to rise
    /// where the load falls, and the RTT falls at once: without a backlog the RTT is the mean of as
    /// long.
    fn slowest(&self, backlogged: bool) -> f64 {
        self.noise.slowest(if backlogged {
            self.rtt
        } else {
            self.rtt.max(self.noise.mean())
        })
    }

    /// Looks at the RTT while a limit is in force. `backlogged`: the limit is what the site sends.
    /// `alone`: no others share the link. `may`: a drain would help, as it does not where others
    /// keep the queue full.
    pub fn seen(&mut self, now: Time, backlogged: bool, alone: bool, may: bool) {
        let rtt = self.last;
        let known = self.noise.is_known();
        let seen = if known { self.slowest(backlogged) } else { rtt };
        self.shortest = self.shortest.min(seen);
        if backlogged {
            self.busy = now;
        } else if known && !self.checked && now.since(self.busy) >= QUIET {
            (self.shortest, self.checked) = (seen, true);
        }
        if self.rtt <= self.shortest * NEAR {
            self.near = now;
        }
        let due = now.since(self.near.max(self.drained)) >= EVERY;
        match &mut self.drain {
            None if may && due => {
                self.drain = Some(Drain {
                    began: now,
                    least: rtt,
                    at: now,
                    slowest: rtt,
                });
            }
            None => {}
            Some(drain) => {
                drain.slowest = drain.slowest.max(rtt);
                if rtt < drain.least {
                    (drain.least, drain.at, drain.slowest) = (rtt, now, rtt);
                }
                let still = now.since(drain.at).as_secs_f64() > STILL * rtt;
                if still || !may || now.since(drain.began) >= LONGEST {
                    let slowest = drain.slowest;
                    if still && may && (alone || now.since(self.near) >= BELIEVED) {
                        (self.shortest, self.checked) = (slowest, true);
                    }
                    (self.drain, self.drained) = (None, now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ccplane_agent::dice::Dice;

    use super::*;

    /// Each 10 ms for so long, RTTs from what the path has now.
    fn run(
        path: &mut Path,
        from: &mut Time,
        seconds: f64,
        alone: bool,
        rtt: impl Fn(bool) -> f64,
    ) -> u32 {
        let mut drained = 0;
        for _ in 0..(seconds * 100.0) as u32 {
            *from += Duration::from_millis(10);
            let now = rtt(path.drains());
            path.measured(now, 0.01);
            path.seen(*from, true, alone, true);
            drained += u32::from(path.drains());
        }
        drained
    }

    /// Some seconds without a limit on an empty path of 50 ms.
    fn free(path: &mut Path, now: Time) {
        for _ in 0..800 {
            path.measured(0.05, 0.01);
            path.free(now, 0.05);
        }
    }

    fn close(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 0.000_1
    }

    #[test]
    fn a_standing_queue_does_not_become_the_path() {
        let (mut path, mut now) = (Path::default(), Time::ZERO);
        free(&mut path, now);
        // The queue stands at 10 ms and goes when the rate is halved.
        let drained = run(&mut path, &mut now, 100.0, true, |drains| {
            if drains { 0.05 } else { 0.06 }
        });
        assert!(close(path.base(), 0.05), "{}", path.base());
        // Nine times about an RTT and a half: 1 % of the time at half the rate.
        assert!((50..=110).contains(&drained), "{drained}");
    }

    #[test]
    fn a_path_that_is_often_empty_is_not_drained() {
        let (mut path, mut now) = (Path::default(), Time::ZERO);
        free(&mut path, now);
        assert_eq!(run(&mut path, &mut now, 100.0, true, |_| 0.051), 0);
    }

    #[test]
    fn a_route_that_became_longer_is_found_within_a_window() {
        let (mut path, mut now) = (Path::default(), Time::ZERO);
        free(&mut path, now);
        run(&mut path, &mut now, 11.0, true, |drains| {
            if drains { 0.08 } else { 0.09 }
        });
        assert!(close(path.base(), 0.08), "{}", path.base());
        // Beside others it takes three, since it may be their queue.
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
        let (mut path, mut now) = (Path::default(), Time::ZERO);
        let mut dice = Dice(1);
        let mut draw = |range: f64| range * dice.below(1_000_000) as f64 / 1e6;
        // Idle packets take 40 to 60 ms, those of a busy site 56 to 60.
        for _ in 0..1_000 {
            now += Duration::from_millis(10);
            path.measured(0.04 + draw(0.02), 0.01);
            path.free(now, 0.04);
        }
        assert!((0.058..0.075).contains(&path.base()), "{}", path.base());
        for _ in 0..3_000 {
            now += Duration::from_millis(10);
            path.measured(0.056 + draw(0.004), 0.01);
            path.seen(now, true, true, true);
        }
        assert!((0.058..0.063).contains(&path.base()), "{}", path.base());
        // The site falls idle. The path is as slow as before for the packets to come.
        for _ in 0..1_000 {
            now += Duration::from_millis(10);
            path.measured(0.04 + draw(0.02), 0.01);
            path.seen(now, false, true, true);
        }
        assert!((0.058..0.063).contains(&path.base()), "{}", path.base());
    }

    #[test]
    fn a_drain_ends_where_it_cannot_succeed() {
        let (mut path, mut now) = (Path::default(), Time::ZERO);
        free(&mut path, now);
        let others = std::cell::Cell::new(0.2);
        // Somebody else's queue falls and falls.
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
