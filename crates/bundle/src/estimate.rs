//! Path estimates from feedback: RTT, the rates S and R, loss, reordering, CE marks and queueing
//! delay.
//!
//! S and R cover the same packets: those sent between two boundaries, by the sendbox's clock, and
//! those received between them, by the receivebox's clock. So neither rate depends on both clocks.
//! They are averaged over the last RTT, as in the paper (section 4.5), but not over more than
//! [`RATE_AVERAGING_TIME_MAX`].

use std::collections::VecDeque;

use ccplane_datapath::{ExchangeStamps, HalfWindowMin, OneWay, RttNoise};
use ccplane_units::{Bytes, Duration, Rate, Time};

use crate::boundaries::Boundary;
use crate::feedback::Feedback;

/// The minimum RTT covers the last 5 to 10 s (Copa's window). With a shorter window, a standing
/// queue would be mistaken for propagation delay; with a longer one, an increase of the propagation
/// delay would be mistaken for a queue for that long.
pub const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// Longest averaging time of the rates: half a period of the 5 Hz pulses that detect elastic cross
/// traffic. Over 130 ms (a base RTT of 50 ms plus a buffer of 80 ms) the rates contain less than
/// half of the pulse, and over 200 ms, a full period, none of it. Over a shorter time they would
/// measure bursts.
pub const RATE_AVERAGING_TIME_MAX: Duration = Duration::from_millis(100);
/// Limit of stored epochs: 128 ms at one per 2 ms.
const EPOCHS_MAX: usize = 64;
/// Inverse weight of a new sample in the smoothed RTT (RFC 6298, section 2).
const SRTT_INVERSE_GAIN: u64 = 8;

/// Estimates for one direction of a bundle.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectionEstimate {
    epochs: VecDeque<Epoch>,
    rtt: Option<Duration>,
    srtt: Duration,
    /// The filter in [`OneWay`] uses timestamps that wrap and covers RTTs only up to 2.1 s.
    min_rtt_filter: HalfWindowMin<Duration>,
    noise: RttNoise,
    sending_rate: Rate,
    receiving_rate: Rate,
    one_way: OneWay,
}

/// Send and receive state at an acknowledged boundary.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    sent_at: Time,
    sent_bytes: u64,
    received_at: Time,
    received_bytes: u64,
}

impl DirectionEstimate {
    /// Updates the estimates with feedback for `boundary`. Returns false if it is not newer than
    /// the last one.
    pub fn update(&mut self, now: Time, boundary: &Boundary, feedback: &Feedback) -> bool {
        if self
            .epochs
            .back()
            .is_some_and(|last| last.sent_at >= boundary.sent_at)
        {
            return false;
        }
        let rtt = now
            .since(boundary.sent_at)
            .saturating_sub(feedback.hold)
            .max(RTT_MIN);
        self.rtt = Some(rtt);
        let srtt = if self.srtt == Duration::ZERO {
            rtt
        } else {
            (self.srtt * (SRTT_INVERSE_GAIN - 1) + rtt) / SRTT_INVERSE_GAIN
        };
        self.srtt = srtt;
        self.min_rtt_filter
            .update(now.as_nanos(), MIN_RTT_WINDOW.as_nanos() / 2, rtt);
        self.one_way.sample(
            now,
            &ExchangeStamps {
                t1: boundary.sent_at,
                t2: feedback.received_at,
                t3: feedback.received_at + feedback.hold,
                t4: now,
            },
        );
        self.epochs.push_back(Epoch {
            sent_at: boundary.sent_at,
            sent_bytes: boundary.bytes,
            received_at: feedback.received_at,
            received_bytes: feedback.boundary_bytes,
        });
        self.update_rates(rtt.min(RATE_AVERAGING_TIME_MAX));
        true
    }

    /// Computes the rates over the given time: from the youngest epoch that is at least that old,
    /// or else from the oldest one.
    fn update_rates(&mut self, over: Duration) {
        let Some(&newest) = self.epochs.back() else {
            return;
        };
        let before = |epoch: &Epoch| newest.sent_at.since(epoch.sent_at) >= over;
        let old = self.epochs.iter().take_while(|epoch| before(epoch)).count();
        // Drop the epochs before that one.
        self.epochs.drain(..old.saturating_sub(1));
        if self.epochs.len() > EPOCHS_MAX {
            self.epochs.pop_front();
        }
        let Some(&oldest) = self.epochs.front() else {
            return;
        };
        let (leaving, coming) = (
            newest.sent_at.since(oldest.sent_at),
            newest.received_at.since(oldest.received_at),
        );
        if leaving > Duration::ZERO && coming > Duration::ZERO {
            let bytes = |newest: u64, oldest: u64| Bytes::new(newest.saturating_sub(oldest));
            self.sending_rate =
                Rate::from_bytes_over(bytes(newest.sent_bytes, oldest.sent_bytes), leaving);
            self.receiving_rate =
                Rate::from_bytes_over(bytes(newest.received_bytes, oldest.received_bytes), coming);
        }
    }

    /// Drops the epochs: packet numbers restart after a rekey, and epochs must not span two
    /// sessions.
    pub fn clear_epochs(&mut self) {
        self.epochs.clear();
    }

    /// Resets all estimates, which are obsolete after a silence or a path change.
    pub fn reset(&mut self) {
        *self = DirectionEstimate::default();
    }

    /// Returns the last RTT, without the receivebox's hold time.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Returns the smoothed RTT; zero before the first sample.
    pub fn srtt(&self) -> Duration {
        self.srtt
    }

    /// Returns the minimum RTT of the last [`MIN_RTT_WINDOW`].
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt_filter.get()
    }

    /// Adds the last RTT to the noise estimate. To be called in each tick with a new RTT, so that
    /// the samples are spaced like the algorithm's.
    pub fn add_noise(&mut self) {
        if let Some(rtt) = self.rtt {
            self.noise.add(rtt.as_secs_f64());
        }
    }

    /// Returns the RTT variation caused by jitter; zero on a steady path.
    pub fn jitter(&self) -> Duration {
        Duration::from_nanos((self.noise.range() * 1e9) as u64)
    }

    /// Returns S, the sending rate; zero before two boundaries have been acknowledged.
    pub fn sending_rate(&self) -> Rate {
        self.sending_rate
    }

    /// Returns R, the receiving rate of the same packets.
    pub fn receiving_rate(&self) -> Rate {
        self.receiving_rate
    }

    /// Returns the one-way delay estimate, including queueing delay.
    pub fn one_way(&self) -> &OneWay {
        &self.one_way
    }
}

/// Lower bound of RTT samples; smaller values only occur if a clock did not advance.
const RTT_MIN: Duration = Duration::from_micros(1);

/// Fraction of packets that arrive out of order, over the last ten seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReorderingShare {
    /// Packets and out-of-order packets per second, the current second first.
    seconds: [(u64, u64); REORDERING_WINDOW_SECONDS],
    /// End of the current second.
    second_end: Time,
}

/// Averaging time of the reordering fraction, in seconds. The paper's results are averages over one
/// minute; we limit how long a multipath route goes unnoticed.
pub const REORDERING_WINDOW_SECONDS: usize = 10;
/// Minimum number of packets for a meaningful fraction: 5 % of them are ten packets.
pub const REORDERING_PACKETS_MIN: u64 = 200;

impl ReorderingShare {
    /// Adds packets that arrived since the last call, and how many of them were out of order.
    pub fn add(&mut self, now: Time, packets: u64, out_of_order: u64) {
        if now >= self.second_end {
            let second = Duration::from_secs(1);
            let passed = 1 + now.since(self.second_end).as_nanos() / second.as_nanos();
            let shift = usize::try_from(passed)
                .unwrap_or(REORDERING_WINDOW_SECONDS)
                .min(REORDERING_WINDOW_SECONDS);
            self.seconds.rotate_right(shift);
            self.seconds[..shift].fill((0, 0));
            self.second_end = now + second;
        }
        let (all, out) = &mut self.seconds[0];
        *all += packets;
        *out += out_of_order.min(packets);
    }

    /// Returns the fraction; `None` if there were too few packets.
    pub fn share(&self) -> Option<f64> {
        let (all, out) = self
            .seconds
            .iter()
            .fold((0, 0), |sum, second| (sum.0 + second.0, sum.1 + second.1));
        (all >= REORDERING_PACKETS_MIN).then(|| out as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::EpochSize;

    fn ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn feedback(came: Time, bytes: u64, hold: Duration) -> Feedback {
        Feedback {
            session: 0,
            boundary: 0,
            received_at: came,
            boundary_bytes: bytes,
            hold,
            epoch_size: EpochSize::SINGLE_PACKET,
            packets: 0,
            bytes,
            out_of_order: 0,
            missing: 0,
            marked: 0,
        }
    }

    /// Sends boundaries every 10 ms at `sent` bytes per ms and delivers them `way` ms later at
    /// `received`, by a clock that is 1000 s ahead.
    fn run(
        estimate: &mut DirectionEstimate,
        from: u64,
        rounds: u64,
        sent: u64,
        received: u64,
        hold: u64,
    ) {
        for n in from..from + rounds {
            let boundary = Boundary {
                number: n,
                sent_at: ms(1_000 + 10 * n),
                bytes: sent * 10 * n,
            };
            // At a lower receiving rate the boundaries arrive later, so that the byte counts match.
            let came = ms(1_000_000 + 1_025 + 10 * n * sent / received);
            let back = ms(1_000 + 50 + 10 * n + hold);
            assert!(estimate.update(
                back,
                &boundary,
                &feedback(came, sent * 10 * n, Duration::from_millis(hold))
            ));
        }
    }

    #[test]
    fn rates_and_rtt_by_hand() {
        let mut estimate = DirectionEstimate::default();
        run(&mut estimate, 0, 20, 12_000, 6_000, 7);
        assert_eq!(
            estimate.rtt(),
            Some(Duration::from_millis(50)),
            "without the hold time"
        );
        assert_eq!(estimate.min_rtt(), estimate.rtt());
        assert_eq!(
            estimate.sending_rate(),
            Rate::from_bytes_per_sec(12_000_000)
        );
        assert_eq!(
            estimate.receiving_rate(),
            Rate::from_bytes_per_sec(6_000_000)
        );
        // The window is 50 ms, so an older rate is forgotten after that time.
        assert_eq!(estimate.epochs.len(), 6);
    }

    #[test]
    fn rates_of_a_long_path_are_those_of_the_last_100_ms() {
        let mut estimate = DirectionEstimate::default();
        // The rate halves at the 40th boundary.
        for n in 0..60 {
            let boundary = Boundary {
                number: n,
                sent_at: ms(1_000 + 10 * n),
                bytes: if n < 40 {
                    100_000 * n
                } else {
                    4_000_000 + 50_000 * (n - 40)
                },
            };
            let said = feedback(ms(1_100 + 10 * n), boundary.bytes, Duration::ZERO);
            assert!(estimate.update(ms(1_200 + 10 * n), &boundary, &said));
            if n == 50 {
                assert_eq!(
                    estimate.sending_rate(),
                    Rate::from_bytes_per_sec(5_000_000),
                    "no earlier samples"
                );
            }
        }
        assert_eq!(estimate.rtt(), Some(Duration::from_millis(200)));
        assert_eq!(
            estimate.receiving_rate(),
            Rate::from_bytes_per_sec(5_000_000)
        );
    }

    /// RFC 6298, section 2: an eighth of the new one.
    #[test]
    fn the_smoothed_rtt_moves_by_an_eighth() {
        let mut estimate = DirectionEstimate::default();
        for (n, rtt, srtt) in [(0, 80, 80_000), (1, 160, 90_000), (2, 82, 89_000)] {
            let boundary = Boundary {
                number: n,
                sent_at: ms(1_000 + n),
                bytes: n,
            };
            let said = feedback(ms(1_000 + n), n, Duration::ZERO);
            assert!(estimate.update(ms(1_000 + n + rtt), &boundary, &said));
            assert_eq!(estimate.srtt(), Duration::from_micros(srtt));
        }
    }

    /// On a path with more epochs in an RTT than there is room for, the oldest one goes.
    #[test]
    fn the_number_of_epochs_is_bounded() {
        let mut estimate = DirectionEstimate::default();
        for n in 0..500 {
            let boundary = Boundary {
                number: n,
                sent_at: ms(1_000 + n),
                bytes: 1_000 * n,
            };
            let said = feedback(ms(1_025 + n), boundary.bytes, Duration::ZERO);
            assert!(estimate.update(ms(1_200 + n), &boundary, &said));
            assert!(estimate.epochs.len() <= EPOCHS_MAX);
        }
        assert_eq!(estimate.epochs.len(), EPOCHS_MAX);
        assert_eq!(estimate.sending_rate(), Rate::from_bytes_per_sec(1_000_000));
    }

    #[test]
    fn repeated_feedback_is_ignored() {
        let mut estimate = DirectionEstimate::default();
        run(&mut estimate, 0, 3, 1_000, 1_000, 0);
        let boundary = Boundary {
            number: 2,
            sent_at: ms(1_020),
            bytes: 20_000,
        };
        assert!(!estimate.update(ms(1_100), &boundary, &feedback(ms(1), 0, Duration::ZERO)));
        assert_eq!(estimate.rtt(), Some(Duration::from_millis(50)));
    }

    #[test]
    fn the_minimum_rtt_expires_after_its_window() {
        let mut estimate = DirectionEstimate::default();
        for n in 0..20 {
            let boundary = Boundary {
                number: n,
                sent_at: ms(1_000 * n),
                bytes: n,
            };
            let rtt = if n == 0 { 50 } else { 80 };
            let report = feedback(ms(1_000 * n), n, Duration::ZERO);
            assert!(estimate.update(ms(1_000 * n + rtt), &boundary, &report));
            let valid = estimate.min_rtt() == Some(Duration::from_millis(50));
            assert_eq!(valid, n < 10, "at {n} s");
        }
    }

    #[test]
    fn order_is_judged_over_ten_seconds() {
        let mut order = ReorderingShare::default();
        order.add(ms(0), 199, 20);
        assert_eq!(order.share(), None);
        order.add(ms(100), 1, 0);
        assert_eq!(order.share(), Some(0.1));
        order.add(ms(5_000), 200, 0);
        assert_eq!(order.share(), Some(0.05));
        order.add(ms(12_000), 0, 0);
        assert_eq!(order.share(), Some(0.0), "the first second has expired");
        order.add(ms(60_000), 0, 0);
        assert_eq!(order.share(), None);
    }

    #[test]
    fn each_second_expires_ten_seconds_later() {
        let mut order = ReorderingShare::default();
        // The seconds end at 1,000, 3,500 and 10,999 ms.
        order.add(ms(0), 200, 200);
        order.add(ms(2_500), 200, 0);
        order.add(ms(9_999), 0, 0);
        assert_eq!(order.share(), Some(0.5));
        order.add(ms(10_998), 200, 100);
        assert_eq!(order.share(), Some(0.5));
        order.add(ms(10_999), 0, 0);
        assert_eq!(order.share(), Some(0.25), "the first second has expired");
    }
}
