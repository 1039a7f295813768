//! The line below all delays: the delay of the empty path, by two clocks that are apart and drift.
//!
//! A packet that waits nowhere takes D. By clocks that differ by θ(t) it seems to take D + θ(t), and every other packet takes
//! longer. With clocks of constant frequency θ is a line, and a packet's wait is its distance above the line of those that waited
//! nowhere. Of all lines that no point is below, the one closest to the points is taken (Moon, Skelly and Towsley, "Estimation
//! and removal of clock skew from network delay measurements", INFOCOM 1999). It goes through the edge of the lower convex hull
//! that contains the mean of all times.
//!
//! It is the true line if two packets that met no queue are its anchors, the two ends of that edge. If those waited w1 and w2,
//! the fit is too high by the line through those two waits. At any time between the anchors that is at most max(w1, w2). Queueing
//! delays there are too small by as much, and never too large. The drift is off by |w1 - w2| over the time between the anchors.

/// Largest drift that is believed, ns a second: crystals keep 100 ppm, and far more is a queue that grew or a clock that was set.
const MOST_DRIFT: f64 = 1e6;

/// A packet: when, and how long it seemed to take, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// When it left, by the sender's clock: one of this host, so not negative.
    pub at: i64,
    /// Arrival less departure, by two clocks: whatever the other end says.
    pub delay: i64,
}

impl Point {
    /// How much longer it took than another.
    fn longer(self, other: Point) -> i128 {
        i128::from(self.delay) - i128::from(other.delay)
    }

    /// How much later it left.
    fn later(self, other: Point) -> i128 {
        i128::from(self.at) - i128::from(other.at)
    }
}

/// The line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Envelope {
    /// A point of it.
    pub anchor: Point,
    /// How fast it rises: drift of the receiver's clock against the sender's, ns a second (parts in 10^9).
    pub drift: f64,
    /// Between its two anchors, ns; 0 where there is one only.
    pub span: i64,
}

impl Envelope {
    /// Fits the line; `None` without points. `drifts`: where both clocks are one, it does not.
    pub fn fit(points: &[Point], drifts: bool) -> Option<Envelope> {
        let lowest = points.iter().copied().min_by_key(|point| (point.delay, point.at))?;
        let flat = Envelope {
            anchor: lowest,
            drift: 0.0,
            span: 0,
        };
        if !drifts {
            return Some(flat);
        }
        let hull = lower_hull(points);
        let total: i128 = points.iter().map(|point| i128::from(point.at)).sum();
        let mean = (total / points.len() as i128) as i64;
        let edge = hull.windows(2).find(|edge| edge[0].at <= mean && mean <= edge[1].at);
        let Some(&[a, b]) = edge else { return Some(flat) };
        let drift = b.longer(a) as f64 * 1e9 / b.later(a) as f64;
        if !(-MOST_DRIFT..=MOST_DRIFT).contains(&drift) {
            return Some(flat);
        }
        Some(Envelope {
            anchor: a,
            drift,
            span: b.at - a.at,
        })
    }

    /// How far a point is above the line, ns.
    pub fn above(&self, point: Point) -> f64 {
        point.longer(self.anchor) as f64 - point.later(self.anchor) as f64 * self.drift / 1e9
    }

    /// Where the line is at that time, ns.
    pub fn at(&self, at: i64) -> f64 {
        self.anchor.delay as f64 + (at - self.anchor.at) as f64 * self.drift / 1e9
    }
}

/// The corners of the lower convex hull, from left to right (Andrew's monotone chain).
pub(super) fn lower_hull(points: &[Point]) -> Vec<Point> {
    let mut sorted = points.to_vec();
    sorted.sort_unstable();
    let mut hull: Vec<Point> = Vec::new();
    for point in sorted {
        if hull.last().is_some_and(|last| last.at == point.at) {
            continue; // not below it
        }
        while let [.., a, b] = hull[..]
            && !is_below(b, a, point)
        {
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// Whether b is below the line from a to c. Each product is of a time that is not negative and of a difference of delays:
/// 63 and 64 bits, so that it fits, which the difference of two might not.
fn is_below(b: Point, a: Point, c: Point) -> bool {
    b.later(a) * c.longer(a) > c.later(a) * b.longer(a)
}

/// How far the receiver's clock is ahead of the sender's, from both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clocks {
    /// In the middle of the measurement, ns, and by how much that may be wrong: half the round trip of the empty path, as NTP has it. The
    /// bound is certain, the middle is right where the empty path takes as long there as back.
    pub offset: f64,
    /// See there.
    pub offset_error: f64,
    /// Drift, parts in 10^9, as the mean of both directions, and half of how far they disagree.
    pub drift: f64,
    /// See there.
    pub drift_error: f64,
    /// What any two clocks of constant frequencies must lie between for no packet to arrive before it left: certain, and wide.
    pub drift_bounds: Option<(f64, f64)>,
    /// How far a queueing delay may be off for what the directions disagree, ns.
    pub queue_error: f64,
}

impl Clocks {
    /// `there`, `back`: the packets of both directions, with their lines, at times of the sender's clock.
    pub fn of(there: (&[Point], &Envelope), back: (&[Point], &Envelope)) -> Clocks {
        let times = there.0.iter().chain(back.0).map(|point| point.at);
        let (first, last) = times.fold((i64::MAX, i64::MIN), |(a, b), at| (a.min(at), b.max(at)));
        let middle = first + (last - first) / 2;
        let (forward, backward) = (there.1.at(middle), back.1.at(middle));
        let disagree = (there.1.drift + back.1.drift).abs() / 2.0;
        Clocks {
            offset: (forward - backward) / 2.0,
            offset_error: (forward + backward).abs() / 2.0,
            drift: (there.1.drift - back.1.drift) / 2.0,
            drift_error: disagree,
            drift_bounds: bounds(there.0, back.0),
            queue_error: disagree * (last - first) as f64 / 1e9,
        }
    }
}

/// The line θ must not be above any delay there, nor its negative above any delay back: how steep it can be.
fn bounds(there: &[Point], back: &[Point]) -> Option<(f64, f64)> {
    let (above, below) = (lower_hull(there), lower_hull(back));
    let most = flattest(above.iter().rev(), below.iter(), |a, b| a.later(b))?;
    let least = -flattest(above.iter(), below.iter().rev(), |a, b| b.later(a))?;
    Some((least, most))
}

/// Finds, among the lines from a corner b, at (b.at, -b.delay), to a corner a, at (a.at, a.delay), that is `apart` from it, above
/// zero, the one that rises least: ns a second. Corners are visited from the outside to the middle. Both hulls are convex, so
/// each step that makes the line flatter leads to the flattest, and none is visited twice. `None` where there is no such line, or
/// no line at all separates the upper corners from the lower ones.
fn flattest<'a>(
    above: impl Iterator<Item = &'a Point>,
    below: impl Iterator<Item = &'a Point>,
    apart: fn(Point, Point) -> i128,
) -> Option<f64> {
    let rise = |a: Point, b: Point| i128::from(a.delay) + i128::from(b.delay);
    let (mut above, mut below) = (above.copied().peekable(), below.copied().peekable());
    let (mut a, mut b) = (above.next()?, below.next()?);
    while apart(a, b) > 0 {
        // 65 and 63 bits, of which the first is at most 2^64.
        let flatter = |next: Point, to: Point| rise(next, to) * apart(a, b) < rise(a, b) * apart(next, to);
        if let Some(next) = above.next_if(|next| flatter(*next, b)) {
            a = next;
        } else if let Some(next) = below.next_if(|next| flatter(a, *next)) {
            b = next;
        } else {
            return Some(rise(a, b) as f64 * 1e9 / apart(a, b) as f64);
        }
    }
    // A step that made it flatter went past the other side: there a point that should be below is above.
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of 50 µs each way, between clocks that are apart and drift, with waits of which a share is zero.
    struct Path {
        offset: i64,
        ppm: f64,
        random: u64,
    }

    impl Path {
        fn draw(&mut self) -> u64 {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.random >> 33
        }

        /// A packet that waits: nothing once in `idle`, else up to `most` ns.
        fn wait(&mut self, idle: u64, most: u64) -> i64 {
            if self.draw().is_multiple_of(idle) {
                0
            } else {
                (self.draw() % most) as i64
            }
        }

        fn theta(&self, t: i64) -> i64 {
            self.offset + (t as f64 * self.ppm / 1e6) as i64
        }

        fn points(&mut self, count: i64, idle: u64, most: u64, sign: i64) -> (Vec<Point>, Vec<i64>) {
            (0..count)
                .map(|n| {
                    let t = n * 1_000_000;
                    let wait = self.wait(idle, most);
                    let delay = 50_000 + wait + sign * self.theta(t);
                    (Point { at: t, delay }, wait)
                })
                .unzip()
        }
    }

    #[test]
    fn waits_are_found_whatever_offset_and_drift() {
        for ppm in [0.0, 0.5, -20.0, 100.0, -100.0] {
            for offset in [0, 1 << 40, -(1 << 50)] {
                let mut path = Path { offset, ppm, random: 7 };
                let (points, waits) = path.points(10_000, 20, 3_000_000, 1);
                let line = Envelope::fit(&points, true).unwrap();
                assert!((line.drift - ppm * 1e3).abs() < 2.0, "{ppm} ppm: {}", line.drift);
                for (point, wait) in points.iter().zip(&waits) {
                    let found = line.above(*point);
                    assert!((found - *wait as f64).abs() < 5.0, "{ppm} ppm: {found} for {wait}");
                }
            }
        }
    }

    /// The anchors' waits are all that a fit can be wrong by, and the queue is never overstated between them.
    #[test]
    fn without_an_empty_path_the_error_is_what_the_anchors_waited() {
        let mut path = Path {
            offset: -999,
            ppm: 40.0,
            random: 3,
        };
        for seed in 0..20 {
            path.random = seed;
            let (points, waits) = path.points(3_000, u64::MAX, 200_000, 1);
            let line = Envelope::fit(&points, true).unwrap();
            let wait_at = |at: i64| waits[(at / 1_000_000) as usize] as f64;
            let ends = (line.anchor.at, line.anchor.at + line.span);
            let bound = wait_at(ends.0).max(wait_at(ends.1));
            let steep = (wait_at(ends.1) - wait_at(ends.0)).abs() * 1e9 / line.span as f64;
            assert!((line.drift - 40_000.0).abs() <= steep + 1.0);
            for (point, wait) in points
                .iter()
                .zip(&waits)
                .filter(|(p, _)| (ends.0..=ends.1).contains(&p.at))
            {
                let error = *wait as f64 - line.above(*point);
                assert!(
                    (-2.0..=bound + 2.0).contains(&error),
                    "seed {seed}: {error}, bound {bound}"
                );
            }
            assert!(points.iter().all(|point| line.above(*point) > -2.0));
        }
    }

    /// Packets that overtake each other, and interrupts that stamp several at once, late.
    #[test]
    fn reordering_changes_nothing_and_batching_only_what_it_adds() {
        let mut path = Path {
            offset: 5,
            ppm: -100.0,
            random: 11,
        };
        let (points, _) = path.points(5_000, 10, 1_000_000, 1);
        let line = Envelope::fit(&points, true).unwrap();
        let mut shuffled = points.clone();
        for index in (1..shuffled.len()).rev() {
            let other = path.draw() as usize % (index + 1);
            shuffled.swap(index, other);
        }
        assert_eq!(Envelope::fit(&shuffled, true), Some(line));
        // Every 20 µs an interrupt: up to as much is added, nothing for who came just before.
        let batched: Vec<Point> = points
            .iter()
            .map(|point| Point {
                delay: (point.at + point.delay).div_euclid(20_000) * 20_000 + 20_000 - point.at,
                ..*point
            })
            .collect();
        let late = Envelope::fit(&batched, true).unwrap();
        assert!((late.drift - line.drift).abs() < 20_000.0 / 5.0 * 2.0);
        for point in &batched {
            assert!((0.0..=1_020_100.0).contains(&(late.above(*point) + 1.0)));
        }
    }

    #[test]
    fn clocks_are_within_their_bounds() {
        for (ppm, offset) in [(100.0, 7_000_000), (-100.0, -7_000_000), (0.01, 0), (3.0, 1 << 44)] {
            let mut path = Path { offset, ppm, random: 5 };
            let (there, _) = path.points(10_000, 10, 2_000_000, 1);
            let (back, _) = path.points(10_000, 10, 40_000_000, -1);
            let lines = (
                Envelope::fit(&there, true).unwrap(),
                Envelope::fit(&back, true).unwrap(),
            );
            let clocks = Clocks::of((&there, &lines.0), (&back, &lines.1));
            let middle = path.theta(4_999_500_000) as f64;
            // The path takes as long there as back, so even the middle is right.
            assert!((clocks.offset - middle).abs() < 20.0, "{ppm}: {clocks:?}, {middle}");
            assert!((clocks.offset_error - 50_000.0).abs() < 100.0);
            assert!((clocks.drift - ppm * 1e3).abs() <= clocks.drift_error + 2.0);
            let (least, most) = clocks.drift_bounds.unwrap();
            assert!((least..=most).contains(&(ppm * 1e3)), "{least} to {most}");
            // Some 200 µs of round trip over 10 s.
            assert!(most - least < 45_000.0, "{least} to {most}");
        }
    }

    /// Whatever the points, the two slopes are those of the flattest and the steepest line of all pairs, and there are none exactly
    /// where no line is between.
    #[test]
    fn bounds_are_those_of_all_pairs() {
        let mut path = Path {
            offset: 0,
            ppm: 0.0,
            random: 1,
        };
        let (mut some, mut none) = (0, 0);
        for round in 0..2_000 {
            let count = 2 + path.draw() % 9;
            let tilt = path.draw() as i64 % 7 - 3;
            // The further apart in the mean, the likelier that a line fits between.
            let apart = path.draw() as i64 % 60;
            let mut side = |sign: i64| -> Vec<Point> {
                let mut one = || {
                    let at = (path.draw() % 40) as i64;
                    let wait = (path.draw() % 60) as i64;
                    let delay = apart - 20 + wait + sign * tilt * at;
                    Point { at, delay }
                };
                (0..count).map(|_| one()).collect()
            };
            let (there, back) = (side(1), side(-1));
            let pairs = || there.iter().flat_map(|a| back.iter().map(move |b| (a, b)));
            let slope = |(a, b): (&Point, &Point)| (a.delay + b.delay) as f64 * 1e9 / (a.at - b.at) as f64;
            let most = pairs().filter(|(a, b)| a.at > b.at).map(slope).reduce(f64::min);
            let least = pairs().filter(|(a, b)| a.at < b.at).map(slope).reduce(f64::max);
            let crossed = pairs().any(|(a, b)| a.at == b.at && a.delay + b.delay < 0);
            let expected = least.zip(most).filter(|(least, most)| !crossed && least <= most);
            assert_eq!(bounds(&there, &back), expected, "round {round}: {there:?}, {back:?}");
            *(if expected.is_some() { &mut some } else { &mut none }) += 1;
        }
        assert!(some > 300 && none > 300, "{some}, {none}");
    }

    /// A responder can make every point a corner: looking at each pair of these would take an hour.
    #[test]
    fn many_corners_are_no_work() {
        let convex: Vec<Point> = (0..1_000_000).map(|n| Point { at: n, delay: n * n }).collect();
        assert_eq!(lower_hull(&convex).len(), convex.len());
        let (least, most) = bounds(&convex, &convex).unwrap();
        // Both begin at zero; the next that left, 1 ns later, took 1 ns.
        assert_eq!((least, most), (-1e9, 1e9));
    }

    #[test]
    fn few_points_and_clocks_that_are_set_give_a_flat_line() {
        assert_eq!(Envelope::fit(&[], true), None);
        let one = Point { at: 5, delay: -7 };
        for points in [vec![one], vec![one, one], vec![one, Point { delay: 3, ..one }]] {
            let line = Envelope::fit(&points, true).unwrap();
            assert_eq!((line.anchor, line.drift, line.span), (one, 0.0, 0));
        }
        // Half a second back in a second is no drift.
        let set = [
            one,
            Point {
                at: 1_000_000_005,
                delay: -500_000_000,
            },
        ];
        assert_eq!(Envelope::fit(&set, true).unwrap().drift, 0.0);
        // One clock has no drift, whatever the queue did.
        let grows: Vec<Point> = (0..100)
            .map(|n| Point {
                at: n * 1_000_000,
                delay: n * 50,
            })
            .collect();
        assert_eq!(Envelope::fit(&grows, false).unwrap().above(grows[99]), 99.0 * 50.0);
    }
}
