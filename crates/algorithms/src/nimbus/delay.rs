//! The mode that keeps the queue short: BasicDelay, or Nimbus' simple Copa. Each has a state, and
//! gives a rate for what is seen now. They know nothing of flows and programs: they serve
//! everything that controls a bottleneck's queue by a rate.

/// Which law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelayMode {
    /// Nimbus' own.
    #[default]
    Basic,
    /// The window of Copa's form that the reference has.
    Copa,
}

/// What a law looks at; rates in bytes/s, times in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// S: the rate at which we sent what was acknowledged last.
    pub sent: f64,
    /// ẑ: the cross traffic.
    pub cross: f64,
    /// µ: the capacity.
    pub capacity: f64,
    /// RTT.
    pub rtt: f64,
    /// RTT of an empty queue.
    pub base: f64,
    /// Bytes acknowledged since the last time.
    pub acked: f64,
    /// Segment, bytes.
    pub mss: f64,
    /// Bounds of the queue that a law aims at.
    pub aim: Aim,
}

/// Bounds of the queue that a law aims at, seconds. A law's own aim is a part of the shortest RTT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aim {
    /// At least so much.
    pub least: f64,
    /// At most so much.
    pub most: f64,
    /// And Copa's window moves in an RTT by at most such a part of it: on short paths its velocity
    /// is more than the window.
    pub step: f64,
}

impl Aim {
    /// The law's own (what Nimbus does).
    pub const FREE: Aim = Aim {
        least: 0.0,
        most: f64::INFINITY,
        step: f64::INFINITY,
    };
}

/// α: how fast spare capacity is taken (arXiv 1802.08730, 4.1, and the reference).
const ALPHA: f64 = 0.8;
/// β: how fast the queue is brought to its target.
const BETA: f64 = 0.5;
/// The target as a part of the shortest RTT (reference: `init_delay_threshold`). Below it the pulse
/// would empty the queue, and ẑ would mean nothing.
pub const TARGET: f64 = 1.25;
/// By how much the target comes down after each interval of 10 ms, where it began above.
const COMES_DOWN: f64 = 0.005;
/// By how much it comes up again each interval after losses brought it down: 0.05 a second.
const COMES_UP: f64 = 0.000_5;
/// Losses above this part of what is sent show that the buffer ends below the target: random ones
/// are fewer.
const TOO_MANY_LOST: f64 = 0.02;
/// What is kept of the counts of losses after an interval: half a second of them.
const LOSSES_KEPT: f64 = 0.98;
/// A queue grows where S is so many times R: losses at another time are not an overflow.
const GROWS: f64 = 1.05;
/// Least target above the shortest RTT, packets at the capacity: below it one packet, or one
/// acknowledgement for two, looks like a queue that is too long (ours, for slow links and short
/// paths).
const LEAST_QUEUE: f64 = 4.0;

/// BasicDelay's state.
#[derive(Clone, Copy, Debug)]
pub struct Basic {
    /// The RTT aimed at, over the shortest.
    target: f64,
    /// Bytes of the last half second: lost, and all.
    lost: f64,
    all: f64,
}

impl Basic {
    /// At an RTT of so many times the shortest: the target comes down from there, so that taking
    /// over a full queue does not stop the flow.
    pub fn at(ratio: f64) -> Basic {
        Basic {
            target: ratio.max(TARGET),
            lost: 0.0,
            all: 0.0,
        }
    }

    /// An interval in which so many bytes were lost. In a buffer that is shorter than the target
    /// (which the source does not think of) the law would fill it for ever: the target goes to the
    /// middle between an empty queue and this one.
    pub fn interval(&mut self, now: &Now, lost: f64) {
        self.lost = LOSSES_KEPT * self.lost + lost;
        self.all = LOSSES_KEPT * self.all + lost + now.acked;
        // ẑ + S over µ is S over R.
        let grows = now.cross + now.sent > GROWS * now.capacity;
        let usual = TARGET.min(1.0 + now.aim.most / now.base);
        if lost > 0.0 && grows && self.lost > TOO_MANY_LOST * self.all {
            self.target = self.target.min((1.0 + now.rtt / now.base) / 2.0).max(1.0);
            (self.lost, self.all) = (0.0, 0.0);
        } else if self.target > usual {
            self.target = (self.target - COMES_DOWN).max(usual);
        } else {
            self.target = (self.target + COMES_UP).min(usual);
        }
    }

    /// S + α(µ − z − S) − β µ/RTT (RTT − target): equation 4 of the paper.
    pub fn rate(&self, now: &Now) -> f64 {
        let least = now.aim.least.max(LEAST_QUEUE * now.mss / now.capacity);
        let target = (self.target * now.base).max(now.base + least);
        now.sent + ALPHA * (now.capacity - now.cross - now.sent)
            - BETA * now.capacity / now.rtt * (now.rtt - target)
    }
}

/// Reference: a queueing delay below 1.2 times the shortest RTT does not count.
const COPA_TARGET: f64 = 1.2;
/// Reference: 1.9/2, which stands where Copa has δ.
const COPA_DELTA: f64 = 0.95;
/// Reference: the step is v segments in half a window acknowledged.
const COPA_STEP: f64 = 0.5;
/// Most velocity (branch queue-control; master has 100,000).
const COPA_FASTEST: f64 = 32.0;
/// Least window, bytes.
const COPA_LEAST: f64 = 15_000.0;

/// The reference's law of Copa's form. It is not Copa's published one (that is the algorithm
/// `copa`): its target is counted from 1.2 times the shortest RTT, its δ is 0.95, and velocity
/// doubles every RTT.
#[derive(Clone, Copy, Debug)]
pub struct Copa {
    /// Bytes.
    window: f64,
    velocity: f64,
    /// Reports up less reports down in this RTT, and the sign of the RTT before.
    direction: i32,
    before: i32,
    /// Seconds since the RTT began.
    elapsed: f64,
}

impl Copa {
    /// From a window in bytes.
    pub fn at(window: f64) -> Copa {
        Copa {
            window: window.max(COPA_LEAST),
            velocity: 1.0,
            direction: 0,
            before: 0,
            elapsed: 0.0,
        }
    }

    /// Its window is held at so many bytes at least: one that went on falling would have to come
    /// back first.
    pub fn hold(&mut self, window: f64) {
        self.window = self.window.max(window);
    }

    /// The rate, `elapsed` seconds after the last call.
    pub fn rate(&mut self, now: &Now, elapsed: f64) -> f64 {
        let target = (COPA_TARGET * now.base)
            .min(now.base + now.aim.most)
            .max(now.base + now.aim.least);
        let up = now.rtt * now.mss > (now.rtt - target) * COPA_DELTA * self.window;
        self.direction += if up { 1 } else { -1 };
        self.elapsed += elapsed;
        if self.elapsed > now.rtt {
            let same = self.direction.signum() * self.before.signum() > 0;
            self.velocity = if same {
                (2.0 * self.velocity).min(COPA_FASTEST)
            } else {
                1.0
            };
            (self.before, self.direction, self.elapsed) = (self.direction, 0, 0.0);
        }
        let step = (self.velocity * now.mss * now.acked / (COPA_STEP * self.window))
            .min(now.aim.step * now.acked);
        let most = (2.0 * now.capacity * now.rtt).max(COPA_LEAST);
        self.window = (self.window + if up { step } else { -step }).clamp(COPA_LEAST, most);
        self.window / now.rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
        sent: 10e6,
        cross: 0.0,
        capacity: 12e6,
        rtt: 0.05,
        base: 0.05,
        acked: 100_000.0,
        mss: 1_500.0,
        aim: Aim::FREE,
    };

    #[test]
    fn basic_delay_by_hand() {
        // 10 + 0.8 * 2 - 0.5 * 12 / 50 ms * (50 ms - 62.5 ms) = 11.6 + 1.5 Mbyte/s.
        let close =
            |rate: f64, expected: f64| assert!((rate - expected).abs() < 1.0, "{rate} {expected}");
        close(Basic::at(1.0).rate(&NOW), 13.1e6);
        // At the target and with nothing to spare it stays where it is.
        let settled = Now {
            cross: 2e6,
            rtt: 0.0625,
            ..NOW
        };
        close(Basic::at(1.0).rate(&settled), 10e6);
        // Taken over at twice the RTT, it is settled there, and 0.5 a second from it afterwards.
        let mut basic = Basic::at(2.0);
        close(
            basic.rate(&Now {
                cross: 2e6,
                rtt: 0.1,
                ..NOW
            }),
            10e6,
        );
        (0..100).for_each(|_| basic.interval(&NOW, 0.0));
        assert!((basic.target - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_packet_is_not_a_queue() {
        // 1 Mbit/s: a packet takes 12 ms, four of them more than a quarter of 50 ms.
        let slow = Now {
            sent: 0.0,
            capacity: 125_000.0,
            cross: 125_000.0,
            rtt: 0.098,
            ..NOW
        };
        assert!(Basic::at(1.0).rate(&slow).abs() < 1.0);
    }

    #[test]
    fn a_buffer_shorter_than_the_target_brings_it_down() {
        let mut basic = Basic::at(1.0);
        // A tenth of an RTT of buffer, a tenth lost of what is sent above the capacity.
        let over = Now {
            sent: 13e6,
            rtt: 0.055,
            ..NOW
        };
        (0..20).for_each(|_| basic.interval(&over, 10_000.0));
        assert!((1.04..1.06).contains(&basic.target), "{}", basic.target);
        // Neither random loss of 1 % does, nor more of it while the queue does not grow.
        let mut random = Basic::at(1.0);
        (0..10_000).for_each(|i| random.interval(&over, if i % 10 == 0 { 10_000.0 } else { 0.0 }));
        (0..10_000).for_each(|_| random.interval(&NOW, 10_000.0));
        assert_eq!(random.target, TARGET);
        (0..10_000).for_each(|_| basic.interval(&NOW, 0.0));
        assert_eq!(basic.target, TARGET);
    }

    #[test]
    fn an_aim_bounds_the_queue_of_long_and_of_short_paths() {
        let close =
            |rate: f64, expected: f64| assert!((rate - expected).abs() < 1.0, "{rate} {expected}");
        let aim = Aim {
            least: 0.002,
            most: 0.010,
            step: f64::INFINITY,
        };
        // 100 ms: Basic would aim at 25 ms, Copa at 20. Taken over from there, Basic comes down to
        // 10.
        let long = Now {
            cross: 2e6,
            rtt: 0.11,
            base: 0.1,
            aim,
            ..NOW
        };
        let mut basic = Basic::at(1.0);
        (0..100).for_each(|_| basic.interval(&long, 0.0));
        close(basic.rate(&long), 10e6);
        let up = |now: &Now| Copa::at(100_000.0).rate(now, 0.01) * now.rtt > 100_000.0;
        let at = |base: f64, queue: f64, aim| Now {
            rtt: base + queue,
            base,
            aim,
            ..NOW
        };
        // A packet of 1,500 bytes in 100,000 is 1.7 ms of the RTT, which Copa has above its aim.
        assert!(
            up(&at(0.1, 0.011, aim)) && !up(&at(0.1, 0.012, aim)) && up(&at(0.1, 0.020, Aim::FREE))
        );
        // 5 ms: a fifth is less than two.
        assert!(
            up(&at(0.005, 0.001_9, aim))
                && !up(&at(0.005, 0.002_2, aim))
                && !up(&at(0.005, 0.001_9, Aim::FREE))
        );
    }

    #[test]
    fn copa_by_hand() {
        let mut copa = Copa::at(100_000.0);
        // Below 1.2 base it goes up: by 1 * 1500 * 100,000 / 50,000 = 3,000.
        assert!((copa.rate(&NOW, 0.01) * 0.05 - 103_000.0).abs() < 1e-6);
        // At 200 ms: 0.2 * 1500 = 300 against 0.14 * 0.95 * 103,000 = 13,699: down, by 1500 *
        // 100,000 / 51,500 = 2,912.6.
        let full = Now { rtt: 0.2, ..NOW };
        assert!((copa.rate(&full, 0.01) * 0.2 - 100_087.4).abs() < 0.1);
    }

    #[test]
    fn copa_s_velocity_doubles_each_rtt_in_one_direction_to_its_limit() {
        let mut copa = Copa::at(100_000.0);
        for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0] {
            copa.rate(&Now { acked: 0.0, ..NOW }, 0.051);
            assert_eq!(copa.velocity, expected);
        }
        copa.rate(
            &Now {
                acked: 0.0,
                rtt: 0.5,
                ..NOW
            },
            0.51,
        );
        assert_eq!(copa.velocity, 1.0);
    }
}
