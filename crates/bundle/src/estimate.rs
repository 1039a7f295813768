//! What feedback says of the path: RTT, the rates S and R, losses, order, marks and queueing delay.
//!
//! S and R are of the same packets: what left between two boundaries, by the sendbox' clock, and
//! what arrived between them, by the receivebox'. No rate needs both clocks. They are taken over
//! the last RTT, as the paper has them (section 4.5), or the last [`RATES_OVER`] where that is
//! less.

use std::collections::VecDeque;

use ccplane_datapath::RttNoise;
use ccplane_datapath::{OneWay, Stamps};
use ccplane_units::{Bytes, Duration, Rate, Time};

use crate::feedback::Feedback;
use crate::sent::Boundary;

/// A minimum of RTTs covers the last 5 to 10 s (Copa's window). Shorter, and a standing queue is
/// taken for the path. Longer, and a path that has become longer is taken for a queue for that
/// long.
pub const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// Rates are taken over at most this: half a period of the pulse of 5 Hz by which a bundle finds
/// others. Over 130 ms, the RTT of 50 ms under a buffer of 80, the rates have less than half of the
/// pulse in them, and over 200 ms nothing. Over less time they are those of bursts.
pub const RATES_OVER: Duration = Duration::from_millis(100);
/// Epochs that rates are taken over at most: at one each 2 ms, 128 ms.
const EPOCHS: usize = 64;
/// Weight of a new RTT in the smoothed one (RFC 6298, section 2).
const SRTT_GAIN: u64 = 8;

/// The estimates of one direction of one pair of boxes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimate {
    epochs: VecDeque<Epoch>,
    rtt: Option<Duration>,
    srtt: Duration,
    min: Least,
    noise: RttNoise,
    sent: Rate,
    received: Rate,
    one_way: OneWay,
}

/// A boundary that left and arrived.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    left: Time,
    left_bytes: u64,
    came: Time,
    came_bytes: u64,
}

impl Estimate {
    /// Feedback came of a boundary that left, later than all before. False where it is of a
    /// boundary that was heard of already.
    pub fn take(&mut self, now: Time, boundary: &Boundary, feedback: &Feedback) -> bool {
        if self
            .epochs
            .back()
            .is_some_and(|last| last.left >= boundary.at)
        {
            return false;
        }
        let rtt = now
            .since(boundary.at)
            .saturating_sub(feedback.hold)
            .max(LEAST_RTT);
        self.rtt = Some(rtt);
        let srtt = if self.srtt == Duration::ZERO {
            rtt
        } else {
            (self.srtt * (SRTT_GAIN - 1) + rtt) / SRTT_GAIN
        };
        self.srtt = srtt;
        self.min.take(now, rtt);
        self.one_way.sample(
            now,
            &Stamps {
                t1: boundary.at,
                t2: feedback.came,
                t3: feedback.came + feedback.hold,
                t4: now,
            },
        );
        self.epochs.push_back(Epoch {
            left: boundary.at,
            left_bytes: boundary.bytes,
            came: feedback.came,
            came_bytes: feedback.bytes_then,
        });
        self.measure(rtt.min(RATES_OVER));
        true
    }

    /// The rates over so much time: from the youngest epoch that is at least as old, or from the
    /// oldest there is.
    fn measure(&mut self, over: Duration) {
        let Some(&newest) = self.epochs.back() else {
            return;
        };
        let before = |epoch: &Epoch| newest.left.since(epoch.left) >= over;
        let old = self.epochs.iter().take_while(|epoch| before(epoch)).count();
        // What is older than the one that counts is of no use any more.
        self.epochs.drain(..old.saturating_sub(1));
        if self.epochs.len() > EPOCHS {
            self.epochs.pop_front();
        }
        let Some(&oldest) = self.epochs.front() else {
            return;
        };
        let (leaving, coming) = (
            newest.left.since(oldest.left),
            newest.came.since(oldest.came),
        );
        if leaving > Duration::ZERO && coming > Duration::ZERO {
            let bytes = |newest: u64, oldest: u64| Bytes::new(newest.saturating_sub(oldest));
            self.sent = Rate::of(bytes(newest.left_bytes, oldest.left_bytes), leaving);
            self.received = Rate::of(bytes(newest.came_bytes, oldest.came_bytes), coming);
        }
    }

    /// Another numbering begins: epochs of the one before do not go together with those of the new.
    pub fn renumber(&mut self) {
        self.epochs.clear();
    }

    /// Nothing that was measured says anything of now: after a silence, or on another path.
    pub fn forget(&mut self) {
        *self = Estimate::default();
    }

    /// The last RTT, without the time that the receivebox held it.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Smoothed; zero before the first.
    pub fn srtt(&self) -> Duration {
        self.srtt
    }

    /// The least of the last [`MIN_RTT_WINDOW`].
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min.get()
    }

    /// Adds the last RTT to its noise. Call it each tick in which there was one, so that samples
    /// are as far apart as the algorithm's.
    pub fn add_noise(&mut self) {
        if let Some(rtt) = self.rtt {
            self.noise.add(rtt.as_secs_f64());
        }
    }

    /// Difference of RTTs that jitter makes; zero on a steady path.
    pub fn jitter(&self) -> Duration {
        Duration::from_nanos((self.noise.range() * 1e9) as u64)
    }

    /// S: the rate at which packets left; zero before two boundaries were heard of.
    pub fn sent(&self) -> Rate {
        self.sent
    }

    /// R: the rate at which the same packets arrived.
    pub fn received(&self) -> Rate {
        self.received
    }

    /// One-way delay and the queueing delay in it.
    pub fn one_way(&self) -> &OneWay {
        &self.one_way
    }
}

/// An RTT below it is one in which a clock stood still: 1 µs.
const LEAST_RTT: Duration = Duration::from_micros(1);

/// The least of one to two halves of [`MIN_RTT_WINDOW`]. [`OneWay`] has one, too, of stamps that
/// wrap: it knows no RTT above 2.1 s.
#[derive(Clone, Copy, Debug, Default)]
struct Least {
    recent: Option<Duration>,
    before: Option<Duration>,
    ends: Time,
}

impl Least {
    fn take(&mut self, now: Time, value: Duration) {
        let half = MIN_RTT_WINDOW / 2;
        if now >= self.ends {
            let stale = now >= self.ends + half;
            self.before = if stale { None } else { self.recent };
            self.recent = None;
            self.ends = now + half;
        }
        self.recent = Some(self.recent.map_or(value, |least| least.min(value)));
    }

    fn get(&self) -> Option<Duration> {
        self.recent.into_iter().chain(self.before).min()
    }
}

/// The share of packets that come out of order, over the last ten seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// Packets and those out of order, by the second, the present one first.
    seconds: [(u64, u64); SECONDS],
    /// When the present second ends.
    ends: Time,
}

/// Time over which reordering is judged. The paper's figures are of runs of a minute; ours is how
/// long a path may look split before it counts as split.
pub const SECONDS: usize = 10;
/// Fewer packets than this say nothing of a share of 5 %: ten of them.
pub const ENOUGH: u64 = 200;

impl Order {
    /// So many packets came since the last time, so many of them out of order.
    pub fn take(&mut self, now: Time, packets: u64, out_of_order: u64) {
        if now >= self.ends {
            let second = Duration::from_secs(1);
            let passed = 1 + now.since(self.ends).as_nanos() / second.as_nanos();
            let shift = usize::try_from(passed).unwrap_or(SECONDS).min(SECONDS);
            self.seconds.rotate_right(shift);
            self.seconds[..shift].fill((0, 0));
            self.ends = now + second;
        }
        let (all, out) = &mut self.seconds[0];
        *all += packets;
        *out += out_of_order.min(packets);
    }

    /// The share; `None` while too few packets came.
    pub fn share(&self) -> Option<f64> {
        let (all, out) = self
            .seconds
            .iter()
            .fold((0, 0), |sum, second| (sum.0 + second.0, sum.1 + second.1));
        (all >= ENOUGH).then(|| out as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::Every;

    fn ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn feedback(came: Time, bytes: u64, hold: Duration) -> Feedback {
        Feedback {
            session: 0,
            boundary: 0,
            came,
            bytes_then: bytes,
            hold,
            every: Every::ONE,
            packets: 0,
            bytes,
            out_of_order: 0,
            missing: 0,
            marked: 0,
        }
    }

    /// Boundaries each 10 ms that leave at `sent` bytes a ms and arrive `way` ms later, at
    /// `received`, by a clock 1000 s ahead.
    fn run(estimate: &mut Estimate, from: u64, rounds: u64, sent: u64, received: u64, hold: u64) {
        for n in from..from + rounds {
            let boundary = Boundary {
                number: n,
                at: ms(1_000 + 10 * n),
                bytes: sent * 10 * n,
            };
            // What arrives more slowly comes later, so that the bytes are the same.
            let came = ms(1_000_000 + 1_025 + 10 * n * sent / received);
            let back = ms(1_000 + 50 + 10 * n + hold);
            assert!(estimate.take(
                back,
                &boundary,
                &feedback(came, sent * 10 * n, Duration::from_millis(hold))
            ));
        }
    }

    #[test]
    fn rates_and_rtt_by_hand() {
        let mut estimate = Estimate::default();
        run(&mut estimate, 0, 20, 12_000, 6_000, 7);
        assert_eq!(
            estimate.rtt(),
            Some(Duration::from_millis(50)),
            "without the hold time"
        );
        assert_eq!(estimate.min_rtt(), estimate.rtt());
        assert_eq!(estimate.sent(), Rate::from_bytes_per_sec(12_000_000));
        assert_eq!(estimate.received(), Rate::from_bytes_per_sec(6_000_000));
        // Of 50 ms and no more: the rate of before is forgotten after as much.
        assert_eq!(estimate.epochs.len(), 6);
    }

    #[test]
    fn rates_of_a_long_path_are_those_of_the_last_100_ms() {
        let mut estimate = Estimate::default();
        // Half as fast from the 40th boundary on.
        for n in 0..60 {
            let boundary = Boundary {
                number: n,
                at: ms(1_000 + 10 * n),
                bytes: if n < 40 {
                    100_000 * n
                } else {
                    4_000_000 + 50_000 * (n - 40)
                },
            };
            let said = feedback(ms(1_100 + 10 * n), boundary.bytes, Duration::ZERO);
            assert!(estimate.take(ms(1_200 + 10 * n), &boundary, &said));
            if n == 50 {
                assert_eq!(
                    estimate.sent(),
                    Rate::from_bytes_per_sec(5_000_000),
                    "nothing of before"
                );
            }
        }
        assert_eq!(estimate.rtt(), Some(Duration::from_millis(200)));
        assert_eq!(estimate.received(), Rate::from_bytes_per_sec(5_000_000));
    }

    #[test]
    fn feedback_of_the_same_boundary_says_nothing_new() {
        let mut estimate = Estimate::default();
        run(&mut estimate, 0, 3, 1_000, 1_000, 0);
        let boundary = Boundary {
            number: 2,
            at: ms(1_020),
            bytes: 20_000,
        };
        assert!(!estimate.take(ms(1_100), &boundary, &feedback(ms(1), 0, Duration::ZERO)));
        assert_eq!(estimate.rtt(), Some(Duration::from_millis(50)));
    }

    #[test]
    fn the_least_rtt_expires() {
        let mut least = Least::default();
        least.take(ms(0), Duration::from_millis(50));
        for second in 1..20 {
            least.take(ms(1_000 * second), Duration::from_millis(80));
            let held = least.get() == Some(Duration::from_millis(50));
            assert_eq!(held, second < 10, "at {second} s");
        }
    }

    #[test]
    fn order_is_judged_over_ten_seconds() {
        let mut order = Order::default();
        order.take(ms(0), 199, 20);
        assert_eq!(order.share(), None);
        order.take(ms(100), 1, 0);
        assert_eq!(order.share(), Some(0.1));
        order.take(ms(5_000), 200, 0);
        assert_eq!(order.share(), Some(0.05));
        order.take(ms(12_000), 0, 0);
        assert_eq!(order.share(), Some(0.0), "the first second is forgotten");
        order.take(ms(60_000), 0, 0);
        assert_eq!(order.share(), None);
    }
}
