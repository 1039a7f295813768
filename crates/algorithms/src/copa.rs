//! Copa: Arun and Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet",
//! NSDI 2018.
//!
//! Copa moves its window towards the target rate 1/(δ·d_q), where d_q is the queueing delay. Each
//! flow then keeps about 1/δ packets in the queue, and a group of Copa flows empties the queue once
//! in five round trips. If the queue does not empty, a buffer-filling flow shares it. Copa then
//! adapts 1/δ by AIMD (section 2.2).
//!
//! The program compares rates and moves the window on each ACK. Once per round trip, the agent
//! updates the ten-second minimum RTT, the velocity and δ.

use std::collections::VecDeque;
use std::str::FromStr;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Bytes, Duration, Time};

use crate::windowed_min::WindowedMin;
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "copa",
    doc: "Copa (NSDI 2018): keeps 1/δ packets in the queue, and competes like Reno where others \
        fill it",
    parameters: &[
        ParameterDoc {
            name: "mode",
            default: "auto",
            values: "auto | default",
            doc: "auto: competes where others fill the buffer; default: never competes",
        },
        ParameterDoc {
            name: "delta",
            default: "0.5",
            values: "packets^-1, 0.01 to 2",
            doc: "δ of the default mode: a flow keeps about 1/δ packets in the queue",
        },
        ParameterDoc {
            name: "descent",
            default: "excess",
            values: "excess | velocity",
            doc: "how the window shrinks: by half of the flow's excess in the queue, or by the \
                velocity (as in the paper; oscillates on long, fast paths)",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(box_algorithm(Copa {
        mode: parameters.choice(
            "mode",
            CopaMode::default(),
            &[("auto", CopaMode::Auto), ("default", CopaMode::Default)],
        )?,
        inverse_delta: 1.0 / parameters.read("delta", Delta(DELTA))?.0,
        descent: parameters.choice(
            "descent",
            Descent::default(),
            &[("excess", Descent::Excess), ("velocity", Descent::Velocity)],
        )?,
    }))
}

/// δ of the default mode (section 2.1). A larger δ keeps fewer packets in the queue and loses
/// throughput to RTT noise.
const DELTA: f64 = 0.5;
/// Filter window of RTT_min (section 2.1). A shorter window soon mistakes a standing queue for
/// propagation delay. A longer one mistakes a route change to a longer path for a queue.
const RTT_MIN_WINDOW: Duration = Duration::from_secs(10);
/// RTTs with the same direction before the velocity doubles. Section 2.1 has three. One is added
/// because RTT_standing is a minimum: it shows a shrinking queue at once but a growing one late (as
/// in `mvfst`). With fewer, the velocity doubles in the ordinary oscillation of five RTTs. With
/// more, Copa is slow to find a new rate.
const VELOCITY_DOUBLING_RTTS: u32 = 4;
/// A queue that was not nearly empty in this many RTTs is filled by other flows (section 2.2). Copa
/// flows alone empty it once in five.
const EMPTY_QUEUE_RTTS_MAX: usize = 5;
/// Filter window of RTT_max, RTTs (section 2.2).
const RTT_MAX_WINDOW_RTTS: usize = 4;
/// "Nearly empty": d_q is below this fraction of RTT_max − RTT_min (section 2.2).
const NEARLY_EMPTY_QUEUE_RATIO: f64 = 0.1;
/// A queue that holds fewer of the flow's own packets than this also counts as empty (not in the
/// paper). When n flows share a link, the queue that all of them consider empty holds about one
/// packet of each. If the oscillation is only a few packets, a tenth of it is less than that. A
/// larger value would overlook buffer-filling flows: next to them, a flow keeps 1/δ packets in the
/// queue.
const EMPTY_QUEUE_OWN_PACKETS_MAX: f64 = 1.0;
/// Loss rate above which the window shrinks in every mode. From the authors' code, not the paper. A
/// lower limit would react to losses that are not congestion. A higher one would keep a small
/// buffer overflowing.
const SUSTAINED_LOSS_RATE: f64 = 0.1;
/// Factor applied to the window at sustained loss (authors' code).
const SUSTAINED_LOSS_BETA: f64 = 0.7;
/// Minimum number of packets for a loss rate: with fewer, one lost packet is not significant.
const LOSS_RATE_PACKETS_MIN: f64 = 20.0;
/// Filter window of the jitter estimate, round trips: the period in which flows empty the queue
/// once, so that at least one of them is free of their own queue changes. A shorter window mistakes
/// queue changes for jitter. A longer one keeps jitter that has ended.
const JITTER_WINDOW_RTTS: usize = 5;
/// Bias of RTT_standing relative to two measures: the smallest mean excess over the round's minimum
/// RTT, and the mean step between successive minima. The smaller product is 0.9 to 3 times the true
/// bias for uniform jitter of ±5 ms at 1,000 to 8,000 packets/s and RTTs of 15 to 100 ms, both in
/// order and reordered. Smaller factors mistake jitter for a queue. Larger ones leave a queue of
/// the difference.
const STANDING_BIAS_PER_EXCESS: f64 = 3.0;
const STANDING_BIAS_PER_STEP: f64 = 8.0;
/// Factor of the allowance for queue changes caused by the flow itself, relative to the
/// serialization time of 1/δ packets. A smaller factor mistakes them for jitter: with 1.0, a queue
/// of ten packets at 24 Mbit/s was 1.5 packets longer. A larger one misses jitter of the
/// difference.
const OWN_QUEUE_CHANGE_FACTOR: f64 = 1.5;
/// Upper bound of 1/δ, packets: as much as a large window. If it is too small, the flow's share is
/// too.
const INVERSE_DELTA_PACKETS_MAX: f64 = 65_536.0;
/// Minimum window, packets (authors' code). With one packet, a delayed ACK would stall the flow.
const WINDOW_PACKETS_MIN: f64 = 2.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CopaMode {
    #[default]
    Auto,
    Default,
}

/// Decrease of the window. The program implements `Excess`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Descent {
    /// Half of the flow's excess in the queue per RTT, at least 1/δ packets. Not in the paper.
    #[default]
    Excess,
    /// v/δ packets per RTT (section 2.1).
    Velocity,
}

struct Delta(f64);

impl FromStr for Delta {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Delta, &'static str> {
        match text.parse() {
            Ok(delta) if (0.01..=2.0).contains(&delta) => Ok(Delta(delta)),
            _ => Err("expected a number from 0.01 to 2"),
        }
    }
}

/// Copa.
pub struct Copa {
    mode: CopaMode,
    /// 1/δ of the default mode, packets.
    inverse_delta: f64,
    descent: Descent,
}

/// State of a flow.
pub struct CopaFlow {
    /// Segment size, bytes.
    mss: f64,
    rtt_min: WindowedMin,
    velocity: Velocity,
    rounds: Rounds,
    jitter: Jitter,
    /// Current 1/δ, packets.
    inverse_delta: f64,
    /// Packets acknowledged and lost since the loss rate was last evaluated.
    acked: f64,
    lost: f64,
    /// Time at which 1/δ was last halved.
    last_halving: Time,
    /// Time at which the window last shrank for sustained loss.
    last_retreat: Time,
    installed: InstalledCopa,
}

/// Variables installed in the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct InstalledCopa {
    rtt_min: u64,
    noise: u64,
    unit: u64,
    velocity: u64,
    upwards: u64,
}

/// Velocity of the window (section 2.1).
#[derive(Clone, Copy, Debug)]
struct Velocity {
    /// v, in units of 1/δ packets per RTT.
    v: f64,
    upwards: bool,
    /// RTTs in a row in which the window moved in the same direction.
    same_direction_rtts: u32,
    /// Window at the last update, bytes.
    window: u64,
}

impl Velocity {
    fn new(window: u64) -> Velocity {
        Velocity {
            v: 1.0,
            upwards: true,
            same_direction_rtts: 0,
            window,
        }
    }

    /// Updates the velocity at the end of a round trip with this window. `v_max` bounds it so that
    /// the window at most doubles or vanishes in an RTT (authors' code).
    fn update(&mut self, window: u64, v_max: f64) {
        let upwards = window > self.window;
        self.window = window;
        if upwards != self.upwards {
            (self.upwards, self.same_direction_rtts, self.v) = (upwards, 0, 1.0);
            return;
        }
        self.same_direction_rtts = self.same_direction_rtts.saturating_add(1);
        if self.same_direction_rtts >= VELOCITY_DOUBLING_RTTS {
            self.v *= 2.0;
        }
        self.v = self.v.min(v_max).max(1.0);
    }
}

/// Minimum and maximum RTT of the last round trips, µs.
#[derive(Clone, Debug, Default)]
struct Rounds(VecDeque<(u64, u64)>);

impl Rounds {
    fn push(&mut self, min_rtt: u64, max_rtt: u64) {
        self.0.push_front((min_rtt, max_rtt));
        self.0.truncate(EMPTY_QUEUE_RTTS_MAX);
    }

    /// Returns true if the queue was nearly empty in one of the rounds, for a flow with this window
    /// in packets, or if there are too few rounds to decide.
    fn was_nearly_empty(&self, rtt_min: u64, window: f64) -> bool {
        let rtt_max = self
            .0
            .iter()
            .take(RTT_MAX_WINDOW_RTTS)
            .map(|(_, most)| *most)
            .max();
        let Some(rtt_max) = rtt_max.filter(|_| self.0.len() == EMPTY_QUEUE_RTTS_MAX) else {
            return true;
        };
        let d_q = |rtt: u64| rtt.saturating_sub(rtt_min) as f64;
        self.0.iter().any(|(least, _)| {
            // Section 2.2: d_q < 0.1 (RTT_max − RTT_min)
            let nearly_empty = d_q(*least) < NEARLY_EMPTY_QUEUE_RATIO * d_q(rtt_max);
            nearly_empty || d_q(*least) * window < EMPTY_QUEUE_OWN_PACKETS_MAX * *least as f64
        })
    }
}

/// Jitter estimate. Per round trip: the minimum RTT, and the excess of the mean over it, µs.
#[derive(Clone, Debug, Default)]
struct Jitter(VecDeque<(u64, u64)>);

impl Jitter {
    fn push(&mut self, round: &RoundSample) {
        if round.in_slow_start {
            return self.0.clear();
        }
        self.0
            .push_front((round.min_rtt, round.mean_rtt.saturating_sub(round.min_rtt)));
        self.0.truncate(JITTER_WINDOW_RTTS);
    }

    /// Upper bound of the bias of RTT_standing, the minimum RTT of half a round trip, over RTT_min
    /// due to jitter on an empty queue, µs.
    ///
    /// If the path preserves packet order, each packet waits for those before it, and small RTTs
    /// are rare: the bias follows the excess of the mean over the round's minimum. If the path
    /// reorders packets, every round trip includes some that were not delayed, and the bias follows
    /// the difference between the minima of successive rounds.
    fn bias(&self) -> f64 {
        if self.0.len() < JITTER_WINDOW_RTTS {
            return 0.0;
        }
        let above = self.0.iter().map(|(_, above)| *above).min().unwrap_or(0);
        let successive = self.0.iter().zip(self.0.iter().skip(1));
        let steps: u64 = successive.map(|((a, _), (b, _))| a.abs_diff(*b)).sum();
        let step = steps as f64 / (JITTER_WINDOW_RTTS - 1) as f64;
        (STANDING_BIAS_PER_EXCESS * above as f64).min(STANDING_BIAS_PER_STEP * step)
    }
}

impl CopaFlow {
    /// Updates mode and δ (section 2.2), velocity (section 2.1) and the program's variables at the
    /// end of a round trip.
    fn round(&mut self, copa: &Copa, now: Time, round: &RoundSample) {
        let rtt_min = self
            .rtt_min
            .update(now, round.min_rtt)
            .unwrap_or(round.min_rtt);
        self.installed.rtt_min = rtt_min;
        self.rounds.push(round.min_rtt, round.max_rtt);
        self.jitter.push(round);
        let own = OWN_QUEUE_CHANGE_FACTOR * copa.inverse_delta * self.mss * rtt_min as f64
            / round.cwnd.max(1) as f64;
        self.installed.noise = (self.jitter.bias() - own).max(0.0) as u64;
        let base_with_noise = rtt_min + self.installed.noise;
        if copa.mode == CopaMode::Default
            || round.in_slow_start
            || self
                .rounds
                .was_nearly_empty(base_with_noise, round.cwnd as f64 / self.mss)
        {
            self.inverse_delta = copa.inverse_delta;
        } else {
            self.inverse_delta = (self.inverse_delta + 1.0).min(INVERSE_DELTA_PACKETS_MAX);
        }
        let unit = self.inverse_delta * self.mss;
        let v_max = round.cwnd as f64 / unit;
        if round.in_slow_start {
            self.velocity = Velocity::new(round.cwnd);
        } else {
            self.velocity.update(round.cwnd, v_max);
        }
        self.installed.unit = unit as u64;
        self.installed.velocity = self.velocity.v as u64;
        self.installed.upwards = u64::from(self.velocity.upwards);
    }

    /// Halves 1/δ after a loss in competitive mode, at most once per RTT and not below the default
    /// mode's value (section 2.2: "δ ≤ 0.5").
    fn halve(&mut self, copa: &Copa, now: Time, srtt: Duration) {
        if self.inverse_delta > copa.inverse_delta && now.since(self.last_halving) > srtt {
            self.last_halving = now;
            self.inverse_delta = (self.inverse_delta / 2.0).max(copa.inverse_delta);
            self.installed.unit = (self.inverse_delta * self.mss) as u64;
        }
    }

    /// Returns the window after sustained loss, bytes, if the loss rate exceeds the limit. At most
    /// once per RTT: losses that occur before the smaller window takes effect do not count.
    fn retreat(
        &mut self,
        now: Time,
        srtt: Duration,
        acked: f64,
        lost: f64,
        cwnd: u64,
    ) -> Option<Bytes> {
        if now.since(self.last_retreat) <= srtt {
            (self.acked, self.lost) = (0.0, 0.0);
            return None;
        }
        self.acked += acked;
        self.lost += lost;
        let sent = self.acked + self.lost;
        if sent < LOSS_RATE_PACKETS_MIN {
            return None;
        }
        let sustained = self.lost > SUSTAINED_LOSS_RATE * sent;
        (self.acked, self.lost) = (0.0, 0.0);
        let least = WINDOW_PACKETS_MIN * self.mss;
        sustained.then(|| {
            self.last_retreat = now;
            Bytes::new((cwnd as f64 * SUSTAINED_LOSS_BETA).max(least) as u64)
        })
    }
}

/// Measurements of one round trip. Times in µs, `cwnd` in bytes.
struct RoundSample {
    min_rtt: u64,
    max_rtt: u64,
    mean_rtt: u64,
    cwnd: u64,
    in_slow_start: bool,
}

impl Algorithm for Copa {
    type Flow = CopaFlow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("copa", PROGRAM)
    }

    /// RECOVERY is not required: Copa has no loss reduction that the datapath would have to carry
    /// out. A bundle has no loss recovery.
    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
            .union(Capabilities::PACING)
            .union(Capabilities::RTT)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> CopaFlow {
        let mss = info.mss.get().max(1) as f64;
        let told = InstalledCopa {
            rtt_min: INFINITY,
            noise: 0,
            unit: (self.inverse_delta * mss) as u64,
            velocity: 1,
            upwards: 1,
        };
        let slow = u64::from(!info.live);
        let by_excess = u64::from(self.descent == Descent::Excess);
        let variables = [
            ("unit", told.unit),
            ("slow", slow),
            ("by_excess", by_excess),
        ];
        control.set_program("copa", &variables);
        CopaFlow {
            mss,
            rtt_min: WindowedMin::new(RTT_MIN_WINDOW),
            velocity: Velocity::new(info.cwnd.get()),
            rounds: Rounds::default(),
            jitter: Jitter::default(),
            inverse_delta: self.inverse_delta,
            acked: 0.0,
            lost: 0.0,
            last_halving: Time::ZERO,
            last_retreat: Time::ZERO,
            installed: told,
        }
    }

    fn on_report(&mut self, flow: &mut CopaFlow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[
            acked,
            lost,
            timeouts,
            rounds,
            least,
            most,
            sum,
            samples,
            srtt,
            cwnd,
            slow,
        ] = report.fields()
        else {
            return;
        };
        let (now, before) = (control.now(), flow.installed);
        let srtt = (srtt < INFINITY).then(|| Duration::from_micros(srtt));
        if let Some(srtt) = srtt.filter(|_| lost > 0) {
            flow.halve(self, now, srtt);
        }
        let acked = acked as f64 / flow.mss;
        let retreat = flow.retreat(now, srtt.unwrap_or_default(), acked, lost as f64, cwnd);
        // After a timeout the program has already restarted in slow start.
        if let Some(window) = retreat.filter(|_| timeouts == 0) {
            control.set_cwnd(window);
            // Behind a policer there is no queue whose growth would end slow start.
            control.set_variable("slow", 0);
            control.set_variable("extra", 0);
        }
        if rounds > 0 && least < INFINITY {
            let slow = slow > 0;
            flow.round(
                self,
                now,
                &RoundSample {
                    min_rtt: least,
                    max_rtt: most,
                    mean_rtt: sum / samples.max(1),
                    cwnd,
                    in_slow_start: slow,
                },
            );
        }
        let InstalledCopa {
            rtt_min,
            noise,
            unit,
            velocity,
            upwards,
        } = flow.installed;
        for (name, now, before) in [
            ("rtt_min", rtt_min, before.rtt_min),
            ("noise", noise, before.noise),
            ("unit", unit, before.unit),
            ("velocity", velocity, before.velocity),
            ("upwards", upwards, before.upwards),
        ] {
            if now != before {
                control.set_variable(name, now);
            }
        }
    }
}

/// The program. `unit` is mss/δ in bytes, that is 1/δ packets. `rtt_min` and `rtt_standing` are
/// RTT_min and RTT_standing, `queue` is cwnd·d_q/RTT_standing.
///
/// RTT_standing is the minimum sample of the last srtt/2, kept in two buckets of srtt/4. The window
/// grows while cwnd/RTT_standing ≤ 1/(δ·d_q), that is cwnd·d_q ≤ RTT_standing·unit, by v/δ packets
/// per window acknowledged, and otherwise shrinks. `credit` holds the fraction of a byte.
///
/// With `by_excess` it shrinks by half of the excess per window acknowledged. The excess is the
/// flow's bytes in the queue, cwnd·d_q/RTT_standing, beyond `unit`. A change takes effect one and a
/// half RTTs later (the path, and RTT_standing). With less than a quarter of the excess, the queue
/// would never empty, which the mode switch relies on. With all of it, the window would oscillate,
/// as it does with the velocity, which overshoots by the amount it moves until the change takes
/// effect.
///
/// `noise` is the bias of RTT_standing over RTT_min due to jitter; the agent measures it. Receivers
/// that acknowledge more than four packets at once (`burst`, which decays by 1/64 per ACK) make a
/// window of w packets send w − burst packets in some RTTs and then none. The next ACK then waits
/// for the receiver's timer, and its RTT looks like a queue. In that case the flow paces at the
/// rate that the paper compares, w/RTT_standing, and `Cwnd` is `extra` bytes larger to cover the
/// packets that await an ACK at the receiver.
///
/// If the direction differs from the one that the agent's velocity applies to, the velocity is 1 at
/// once. Without `extra` the flow paces at 2·cwnd/RTT_standing. In recovery the program sets
/// ssthresh to the window that Copa wants, which makes it the target of the datapath's reduction:
/// Copa does not reduce for a loss.
const PROGRAM: &str = "(def
    (Report
        (volatile acked 0) (volatile lost 0) (volatile timeouts 0) (volatile rounds 0) \
        (least +infinity)
        (most 0) (sum 0) (samples 0) (srtt 0) (cwnd 0) (slow true))
    (rtt_min +infinity) (noise 0) (unit 0) (velocity 1) (upwards true) (by_excess true) \
    (slow true) (in_loss false)
    (rtt_standing +infinity) (recent +infinity) (older +infinity) (bucket 0) (age 0)
    (queue 0) (up true) (fresh false) (credit 0) (step 0) (window 0) (burst 0) (extra 0))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.srtt Flow.srtt_us)
    (fallthrough))
(when (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.bytes_acked Ack.bytes_misordered) 0))
    (if fresh
        (do (:= Report.least +infinity) (:= Report.most 0) (:= Report.sum 0) (:= Report.samples 0)
            (:= fresh false)))
    (:= Report.sum (+ Report.sum Flow.rtt_sample_us))
    (:= Report.samples (+ Report.samples 1))
    (:= Report.least (min Report.least Flow.rtt_sample_us))
    (:= Report.most (max Report.most Flow.rtt_sample_us))
    (:= rtt_min (min rtt_min Flow.rtt_sample_us))
    (:= age (diff Ack.now bucket))
    (if (> age (/ Flow.srtt_us 4))
        (do (:= older (if (> age (/ Flow.srtt_us 2)) +infinity recent))
            (:= recent +infinity)
            (:= bucket Ack.now)))
    (:= recent (min recent Flow.rtt_sample_us))
    (:= rtt_standing (min recent older))
    (:= queue (/ (* (diff Cwnd extra) (diff rtt_standing (+ rtt_min noise))) rtt_standing))
    (:= up (<= queue unit))
    (fallthrough))
(when Flow.was_timeout
    (:= Report.timeouts (+ Report.timeouts 1))
    (:= in_loss true)
    (:= slow true)
    (:= up true)
    (:= credit 0)
    (report)
    (fallthrough))
(when Flow.undone
    (:= slow false)
    (report)
    (fallthrough))
(when (> Ack.lost_pkts_sample 0)
    (report)
    (fallthrough))
(when true
    (:= slow (&& slow up))
    (:= burst (if Flow.in_recovery burst (max (* Flow.mss Ack.packets_acked) \
        (diff burst (/ burst 64)))))
    (:= window (if (> Cwnd (+ extra Flow.mss)) (- Cwnd extra) Cwnd))
    # Data delivered by this ACK. The cumulative ACK that ends a recovery covers data that was
    # SACKed, and counted, before.
    (:= step (min (+ Ack.bytes_acked Ack.bytes_misordered) \
        (* Flow.mss (+ Ack.packets_acked Ack.packets_misordered))))
    (if (! slow)
        (do (:= credit (+ credit (* step (if (&& by_excess (! up))
                (max unit (/ (diff queue unit) 2))
                (* unit (if (== up upwards) velocity 1))))))
            (:= step (/ credit window))
            (:= credit (diff credit (* step window)))))
    (if (! up)
        (:= window (max (diff window step) (* 2 Flow.mss)))
        # A flow paced at its window does not fill Cwnd, so half of the window in flight counts as
        # used.
        (if (|| Flow.cwnd_limited
                (&& (> extra 0) (> (* 2 (+ Flow.bytes_in_flight Ack.bytes_acked)) window)))
            (:= window (+ window step))))
    (:= in_loss (&& in_loss (|| Flow.in_recovery Flow.was_timeout)))
    (:= extra (if (|| slow in_loss Flow.in_recovery (<= burst (* 4 Flow.mss))) 0 burst))
    (if (&& Flow.in_recovery (! in_loss)) (:= Ssthresh window) (:= Cwnd (+ window extra)))
    (if (< rtt_standing +infinity) (:= Rate (if (> extra 0) (/ (* 1000000 window) rtt_standing) \
        (/ (* 2000000 window) rtt_standing))))
    (:= Report.cwnd window)
    (:= Report.slow slow)
    (fallthrough))
(when (> Micros (max Flow.srtt_us 1ms))
    (:= Micros 0)
    (:= Report.rounds 1)
    (:= fresh true)
    (report))
";

#[cfg(test)]
mod tests;
