//! The RTT of the empty path, and how it stays known.
//!
//! A law that holds a queue sees no empty path. A windowed minimum then rises by the queue with every window, and the law adds its queue
//! on top, again and again. So the shortest RTT counts until it is measured anew: every 10 s the rate is halved until the RTT falls no
//! further, as BBR does with its window (its PROBE_RTT). The site's own queue keeps what is not sent meanwhile, and the link runs
//! empty for about an RTT: 0.3 % of its time at 50 ms.

use ccplane_units::{Duration, Time};

/// How often (Copa's and BBR's window of the shortest RTT). Shorter costs more, longer and a route that became longer is taken for a queue
/// for that time.
const EVERY: Duration = Duration::from_secs(10);
/// What is left of the rate meanwhile. A queue of 10 ms is gone after 20 ms where we are alone, and where ten share the link after 200.
pub(super) const LEFT: f64 = 0.5;
/// An RTT within this of the shortest is the shortest: there is no need to look.
const NEAR: f64 = 1.03;
/// A drain that found no new least RTT for so many RTTs is over: it shows an RTT after it began.
const STILL: f64 = 1.5;
/// The longest drain: beside others who fill the queue it never ends.
const LONGEST: Duration = Duration::from_secs(1);
/// Beside others the RTT at a drain's end may be their queue. It is believed when nothing shorter was seen for so long: three drains.
const BELIEVED: Duration = Duration::from_secs(30);

/// What is known of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    /// Seconds; 0 before the first RTT.
    shortest: f64,
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
}

impl Path {
    /// The RTT of the empty path, seconds.
    pub fn base(&self) -> f64 {
        self.shortest
    }

    /// Whether the rate is to be halved now.
    pub fn drains(&self) -> bool {
        self.drain.is_some()
    }

    /// While nothing is limited the datapath's own windowed minimum holds, and no queue of ours is in it.
    pub fn free(&mut self, now: Time, rtt: f64, told: f64) {
        *self = Path {
            shortest: told.min(rtt),
            near: now,
            drained: now,
            drain: None,
        };
    }

    /// An RTT, seconds, while a limit is in force. `alone`: no others share the link. `may`: a drain would help, as it does not
    /// where others keep the queue full.
    pub fn seen(&mut self, now: Time, rtt: f64, alone: bool, may: bool) {
        if self.shortest == 0.0 || rtt < self.shortest {
            self.shortest = rtt;
        }
        if rtt <= self.shortest * NEAR {
            self.near = now;
        }
        match &mut self.drain {
            None if may && now.since(self.near.max(self.drained)) >= EVERY => {
                self.drain = Some(Drain {
                    began: now,
                    least: rtt,
                    at: now,
                });
            }
            None => {}
            Some(drain) => {
                if rtt < drain.least {
                    (drain.least, drain.at) = (rtt, now);
                }
                let still = now.since(drain.at).as_secs_f64() > STILL * rtt;
                if still || !may || now.since(drain.began) >= LONGEST {
                    let least = drain.least;
                    if still && may && (alone || now.since(self.near) >= BELIEVED) {
                        self.shortest = least;
                    }
                    (self.drain, self.drained) = (None, now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each 10 ms for so long, RTTs from what the path has now.
    fn run(path: &mut Path, from: &mut Time, seconds: f64, alone: bool, rtt: impl Fn(bool) -> f64) -> u32 {
        let mut drained = 0;
        for _ in 0..(seconds * 100.0) as u32 {
            *from += Duration::from_millis(10);
            path.seen(*from, rtt(path.drains()), alone, true);
            drained += u32::from(path.drains());
        }
        drained
    }

    #[test]
    fn a_standing_queue_does_not_become_the_path() {
        let (mut path, mut now) = (Path::default(), Time::ZERO);
        path.free(now, 0.05, 0.05);
        // The queue stands at 10 ms and goes when the rate is halved.
        let drained = run(
            &mut path,
            &mut now,
            100.0,
            true,
            |drains| if drains { 0.05 } else { 0.06 },
        );
        assert_eq!(path.base(), 0.05);
        // Nine times about an RTT and a half: 1 % of the time at half the rate.
        assert!((50..=110).contains(&drained), "{drained}");
    }

    #[test]
    fn a_path_that_is_often_empty_is_not_drained() {
        let (mut path, mut now) = (Path::default(), Time::ZERO);
        path.free(now, 0.05, 0.05);
        assert_eq!(run(&mut path, &mut now, 100.0, true, |_| 0.051), 0);
    }

    #[test]
    fn a_route_that_became_longer_is_found_within_a_window() {
        let (mut path, mut now) = (Path::default(), Time::ZERO);
        path.free(now, 0.05, 0.05);
        run(
            &mut path,
            &mut now,
            11.0,
            true,
            |drains| if drains { 0.08 } else { 0.09 },
        );
        assert_eq!(path.base(), 0.08);
        // Beside others it takes three, since it may be their queue.
        path.free(now, 0.05, 0.05);
        run(
            &mut path,
            &mut now,
            25.0,
            false,
            |drains| if drains { 0.08 } else { 0.09 },
        );
        assert_eq!(path.base(), 0.05);
        run(
            &mut path,
            &mut now,
            10.0,
            false,
            |drains| if drains { 0.08 } else { 0.09 },
        );
        assert_eq!(path.base(), 0.08);
    }

    #[test]
    fn a_drain_ends_where_it_cannot_succeed() {
        let (mut path, mut now) = (Path::default(), Time::ZERO);
        path.free(now, 0.05, 0.05);
        let others = std::cell::Cell::new(0.2);
        // Somebody else's queue falls and falls.
        let drained = run(&mut path, &mut now, 20.5, false, |_| {
            others.set(others.get() * 0.999_9);
            others.get()
        });
        assert!((90..=110).contains(&drained), "a second and no more: {drained}");
        assert_eq!(path.base(), 0.05);
    }
}
