//! Delay control: BasicDelay, or the reference's simplified Copa. Each holds its state and computes
//! a rate from current measurements. Independent of flows and programs, so any controller that
//! regulates a bottleneck's queue by a rate can use them.

/// Delay-control law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelayMode {
    /// BasicDelay, Nimbus' own law.
    #[default]
    Basic,
    /// Simplified Copa of the reference.
    Copa,
}

/// Inputs of a delay-control law. Rates in bytes/s, times in seconds.
#[derive(Clone, Copy, Debug)]
pub struct DelayInputs {
    /// S: send rate of the data acknowledged last.
    pub s: f64,
    /// ẑ: cross traffic.
    pub z: f64,
    /// µ: capacity.
    pub mu: f64,
    /// Current RTT.
    pub rtt: f64,
    /// Base RTT.
    pub base_rtt: f64,
    /// Bytes acknowledged since the last update.
    pub acked: f64,
    /// Segment size, bytes.
    pub mss: f64,
    /// Bounds of the target queueing delay.
    pub target_bounds: QueueTargetBounds,
}

/// Bounds of the target queueing delay, seconds. Each law's own target is a fraction of the base
/// RTT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueTargetBounds {
    /// Lower bound.
    pub min: f64,
    /// Upper bound.
    pub max: f64,
    /// Maximum change of Copa's window per RTT, as a fraction of the window. On short paths its
    /// velocity would exceed the window.
    pub step: f64,
}

impl QueueTargetBounds {
    /// No bounds, as in Nimbus.
    pub const UNBOUNDED: QueueTargetBounds = QueueTargetBounds {
        min: 0.0,
        max: f64::INFINITY,
        step: f64::INFINITY,
    };
}

/// α: gain for spare capacity (arXiv 1802.08730, 4.1, and the reference).
const ALPHA: f64 = 0.8;
/// β: gain for the deviation from the target delay.
const BETA: f64 = 0.5;
/// Target RTT relative to the base RTT (reference: `init_delay_threshold`). Below it the pulse
/// would empty the queue, which invalidates ẑ.
pub const TARGET_RTT_RATIO: f64 = 1.25;
/// Decrease of a raised target per interval of 10 ms.
const TARGET_DECREASE_PER_INTERVAL: f64 = 0.005;
/// Recovery of a lowered target per interval: 0.05 per second.
const TARGET_RECOVERY_PER_INTERVAL: f64 = 0.000_5;
/// Loss rate that indicates a buffer shorter than the target. Random loss is lower.
const OVERFLOW_LOSS_RATE: f64 = 0.02;
/// Decay of the loss counters per interval: a time constant of half a second.
const LOSS_COUNTER_DECAY: f64 = 0.98;
/// S/R above which the queue grows. Losses at other times are not an overflow.
const QUEUE_GROWTH_RATIO: f64 = 1.05;
/// Minimum target queue, packets at the capacity: below it, one packet or one delayed ACK looks
/// like an excessive queue. Not in the reference; for slow links and short paths.
const QUEUE_TARGET_PACKETS_MIN: f64 = 4.0;

/// State of BasicDelay.
#[derive(Clone, Copy, Debug)]
pub struct Basic {
    /// Target RTT over the base RTT.
    target: f64,
    /// Bytes lost, and bytes lost or acknowledged, over the last half second.
    lost_bytes: f64,
    total_bytes: f64,
}

impl Basic {
    /// Starts at an RTT of `ratio` times the base RTT. The target decreases from there, so that
    /// taking over a full queue does not stall the flow.
    pub fn starting_at(ratio: f64) -> Basic {
        Basic {
            target: ratio.max(TARGET_RTT_RATIO),
            lost_bytes: 0.0,
            total_bytes: 0.0,
        }
    }

    /// Updates the target after an interval with `lost` bytes. In a buffer shorter than the target,
    /// which the source does not consider, the law would keep the buffer full. The target is then
    /// set halfway between an empty queue and the current one.
    pub fn update_target(&mut self, now: &DelayInputs, lost: f64) {
        self.lost_bytes = LOSS_COUNTER_DECAY * self.lost_bytes + lost;
        self.total_bytes = LOSS_COUNTER_DECAY * self.total_bytes + lost + now.acked;
        // (ẑ + S)/µ equals S/R.
        let grows = now.z + now.s > QUEUE_GROWTH_RATIO * now.mu;
        let usual = TARGET_RTT_RATIO.min(1.0 + now.target_bounds.max / now.base_rtt);
        if lost > 0.0 && grows && self.lost_bytes > OVERFLOW_LOSS_RATE * self.total_bytes {
            self.target = self
                .target
                .min((1.0 + now.rtt / now.base_rtt) / 2.0)
                .max(1.0);
            (self.lost_bytes, self.total_bytes) = (0.0, 0.0);
        } else if self.target > usual {
            self.target = (self.target - TARGET_DECREASE_PER_INTERVAL).max(usual);
        } else {
            self.target = (self.target + TARGET_RECOVERY_PER_INTERVAL).min(usual);
        }
    }

    /// Equation 4 of the paper: S + α(µ − z − S) − β·µ/RTT·(RTT − target).
    pub fn rate(&self, now: &DelayInputs) -> f64 {
        let least = now
            .target_bounds
            .min
            .max(QUEUE_TARGET_PACKETS_MIN * now.mss / now.mu);
        let target = (self.target * now.base_rtt).max(now.base_rtt + least);
        now.s + ALPHA * (now.mu - now.z - now.s) - BETA * now.mu / now.rtt * (now.rtt - target)
    }
}

/// Reference: queueing up to 1.2 times the base RTT does not count.
const COPA_TARGET_RTT_RATIO: f64 = 1.2;
/// Reference: 1.9/2, in the role of Copa's δ.
const COPA_DELTA: f64 = 0.95;
/// Reference: the window moves by v segments per half window acknowledged.
const COPA_SEGMENTS_PER_HALF_WINDOW: f64 = 0.5;
/// Maximum velocity (branch queue-control; 100,000 in master).
const COPA_VELOCITY_MAX: f64 = 32.0;
/// Minimum window, bytes.
const COPA_WINDOW_BYTES_MIN: f64 = 15_000.0;

/// Simplified Copa of the reference. It differs from the published Copa (algorithm `copa`):
/// queueing is measured from 1.2 times the base RTT, δ is 0.95, and the velocity doubles every RTT.
#[derive(Clone, Copy, Debug)]
pub struct Copa {
    /// Bytes.
    window: f64,
    velocity: f64,
    /// Increases minus decreases in this RTT, and their sign in the previous RTT.
    direction: i32,
    previous_direction: i32,
    /// Seconds since the RTT began.
    elapsed: f64,
}

impl Copa {
    /// Starts with this window, bytes.
    pub fn with_window(window: f64) -> Copa {
        Copa {
            window: window.max(COPA_WINDOW_BYTES_MIN),
            velocity: 1.0,
            direction: 0,
            previous_direction: 0,
            elapsed: 0.0,
        }
    }

    /// Raises the window to at least `window` bytes. A window that kept decreasing would have to
    /// recover first.
    pub fn raise_to(&mut self, window: f64) {
        self.window = self.window.max(window);
    }

    /// Updates the window and returns the rate; `elapsed` seconds have passed since the last call.
    pub fn rate(&mut self, now: &DelayInputs, elapsed: f64) -> f64 {
        let target = (COPA_TARGET_RTT_RATIO * now.base_rtt)
            .min(now.base_rtt + now.target_bounds.max)
            .max(now.base_rtt + now.target_bounds.min);
        let up = now.rtt * now.mss > (now.rtt - target) * COPA_DELTA * self.window;
        self.direction += if up { 1 } else { -1 };
        self.elapsed += elapsed;
        if self.elapsed > now.rtt {
            let same = self.direction.signum() * self.previous_direction.signum() > 0;
            self.velocity = if same {
                (2.0 * self.velocity).min(COPA_VELOCITY_MAX)
            } else {
                1.0
            };
            (self.previous_direction, self.direction, self.elapsed) = (self.direction, 0, 0.0);
        }
        let step = (self.velocity * now.mss * now.acked
            / (COPA_SEGMENTS_PER_HALF_WINDOW * self.window))
            .min(now.target_bounds.step * now.acked);
        let most = (2.0 * now.mu * now.rtt).max(COPA_WINDOW_BYTES_MIN);
        self.window =
            (self.window + if up { step } else { -step }).clamp(COPA_WINDOW_BYTES_MIN, most);
        self.window / now.rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY_LINK: DelayInputs = DelayInputs {
        s: 10e6,
        z: 0.0,
        mu: 12e6,
        rtt: 0.05,
        base_rtt: 0.05,
        acked: 100_000.0,
        mss: 1_500.0,
        target_bounds: QueueTargetBounds::UNBOUNDED,
    };

    #[test]
    fn basic_delay_by_hand() {
        // 10 + 0.8 · 2 − 0.5 · 12 / 50 ms · (50 ms − 62.5 ms) = 11.6 + 1.5 MB/s.
        let close =
            |rate: f64, expected: f64| assert!((rate - expected).abs() < 1.0, "{rate} {expected}");
        close(Basic::starting_at(1.0).rate(&BUSY_LINK), 13.1e6);
        // At the target without spare capacity, the rate is constant.
        let settled = DelayInputs {
            z: 2e6,
            rtt: 0.0625,
            ..BUSY_LINK
        };
        close(Basic::starting_at(1.0).rate(&settled), 10e6);
        // Started at twice the RTT it is in equilibrium there, and the target then decreases by 0.5
        // per second.
        let mut basic = Basic::starting_at(2.0);
        close(
            basic.rate(&DelayInputs {
                z: 2e6,
                rtt: 0.1,
                ..BUSY_LINK
            }),
            10e6,
        );
        (0..100).for_each(|_| basic.update_target(&BUSY_LINK, 0.0));
        assert!((basic.target - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_packet_is_not_a_queue() {
        // At 1 Mbit/s a packet takes 12 ms, and four of them more than a quarter of 50 ms.
        let slow = DelayInputs {
            s: 0.0,
            mu: 125_000.0,
            z: 125_000.0,
            rtt: 0.098,
            ..BUSY_LINK
        };
        assert!(Basic::starting_at(1.0).rate(&slow).abs() < 1.0);
    }

    #[test]
    fn a_buffer_shorter_than_the_target_brings_it_down() {
        let mut basic = Basic::starting_at(1.0);
        // A buffer of a tenth of an RTT, with a tenth of the traffic lost while sending above the
        // capacity.
        let over = DelayInputs {
            s: 13e6,
            rtt: 0.055,
            ..BUSY_LINK
        };
        (0..20).for_each(|_| basic.update_target(&over, 10_000.0));
        assert!((1.04..1.06).contains(&basic.target), "{}", basic.target);
        // Random loss of 1 % does not lower the target, nor does a higher loss rate while the queue
        // is stable.
        let mut random = Basic::starting_at(1.0);
        (0..10_000)
            .for_each(|i| random.update_target(&over, if i % 10 == 0 { 10_000.0 } else { 0.0 }));
        (0..10_000).for_each(|_| random.update_target(&BUSY_LINK, 10_000.0));
        assert_eq!(random.target, TARGET_RTT_RATIO);
        (0..10_000).for_each(|_| basic.update_target(&BUSY_LINK, 0.0));
        assert_eq!(basic.target, TARGET_RTT_RATIO);
    }

    #[test]
    fn an_aim_bounds_the_queue_of_long_and_of_short_paths() {
        let close =
            |rate: f64, expected: f64| assert!((rate - expected).abs() < 1.0, "{rate} {expected}");
        let aim = QueueTargetBounds {
            min: 0.002,
            max: 0.010,
            step: f64::INFINITY,
        };
        // At 100 ms, BasicDelay would target 25 ms and Copa 20 ms. Started there, BasicDelay
        // decreases to 10 ms.
        let long = DelayInputs {
            z: 2e6,
            rtt: 0.11,
            base_rtt: 0.1,
            target_bounds: aim,
            ..BUSY_LINK
        };
        let mut basic = Basic::starting_at(1.0);
        (0..100).for_each(|_| basic.update_target(&long, 0.0));
        close(basic.rate(&long), 10e6);
        let up =
            |now: &DelayInputs| Copa::with_window(100_000.0).rate(now, 0.01) * now.rtt > 100_000.0;
        let at = |base: f64, queue: f64, aim| DelayInputs {
            rtt: base + queue,
            base_rtt: base,
            target_bounds: aim,
            ..BUSY_LINK
        };
        // A packet of 1,500 bytes in a window of 100,000 is 1.7 ms of the RTT, which Copa allows
        // above its target.
        assert!(
            up(&at(0.1, 0.011, aim))
                && !up(&at(0.1, 0.012, aim))
                && up(&at(0.1, 0.020, QueueTargetBounds::UNBOUNDED))
        );
        // At 5 ms, a fifth of the base RTT is below the lower bound of 2 ms.
        assert!(
            up(&at(0.005, 0.001_9, aim))
                && !up(&at(0.005, 0.002_2, aim))
                && !up(&at(0.005, 0.001_9, QueueTargetBounds::UNBOUNDED))
        );
    }

    #[test]
    fn copa_by_hand() {
        let mut copa = Copa::with_window(100_000.0);
        // Below 1.2 times the base RTT it increases by 1 · 1500 · 100,000 / 50,000 = 3,000.
        assert!((copa.rate(&BUSY_LINK, 0.01) * 0.05 - 103_000.0).abs() < 1e-6);
        // At 200 ms, 0.2 · 1500 = 300 is less than 0.14 · 0.95 · 103,000 = 13,699: it decreases by
        // 1500 · 100,000 / 51,500 = 2,912.6.
        let full = DelayInputs {
            rtt: 0.2,
            ..BUSY_LINK
        };
        assert!((copa.rate(&full, 0.01) * 0.2 - 100_087.4).abs() < 0.1);
    }

    #[test]
    fn copa_s_velocity_doubles_each_rtt_in_one_direction_to_its_limit() {
        let mut copa = Copa::with_window(100_000.0);
        for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0] {
            copa.rate(
                &DelayInputs {
                    acked: 0.0,
                    ..BUSY_LINK
                },
                0.051,
            );
            assert_eq!(copa.velocity, expected);
        }
        copa.rate(
            &DelayInputs {
                acked: 0.0,
                rtt: 0.5,
                ..BUSY_LINK
            },
            0.51,
        );
        assert_eq!(copa.velocity, 1.0);
    }
}
