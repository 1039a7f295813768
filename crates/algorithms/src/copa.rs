//! Copa: Arun and Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet",
//! NSDI 2018.
//!
//! Copa moves its window towards the rate 1/(δ·d_q), d_q the queueing delay: so each flow keeps
//! about 1/δ packets in the queue, which a crowd of Copa flows empties once in five round trips.
//! Where it does not empty, somebody fills buffers, and Copa raises 1/δ as Reno would raise a
//! window (section 2.2).
//!
//! The program compares rates and moves the window at each ACK. The agent keeps the least RTT of
//! ten seconds, the velocity, and δ, once a round trip.

use std::collections::VecDeque;
use std::str::FromStr;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, boxed};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Bytes, Duration, Time};

use crate::least::Least;
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "copa",
    doc: "Copa (NSDI 2018): 1/δ packets in the queue, and as Reno where others fill it",
    parameters: &[
        ParameterDoc {
            name: "mode",
            default: "auto",
            values: "auto | default",
            doc: "auto: competes where others fill the buffer; default: never",
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
            doc: "how the window shrinks: by half of what the flow has too much in the queue, or by the velocity (the paper's form, which swings on long and fast paths)",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(boxed(Copa {
        mode: parameters.choice(
            "mode",
            Mode::default(),
            &[("auto", Mode::Auto), ("default", Mode::Default)],
        )?,
        patience: 1.0 / parameters.read("delta", Delta(DELTA))?.0,
        descent: parameters.choice(
            "descent",
            Descent::default(),
            &[("excess", Descent::Excess), ("velocity", Descent::Velocity)],
        )?,
    }))
}

/// δ of the default mode (section 2.1). Larger keeps less in the queue and loses throughput to
/// noise in the RTT.
const DELTA: f64 = 0.5;
/// RTT_min is the least over so long (section 2.1). Shorter, and a queue that does not empty is
/// soon taken for the path; longer, and a longer path after a change of route is taken for a queue.
const RTT_MIN_OVER: Duration = Duration::from_secs(10);
/// The velocity doubles once the direction remained the same for so many RTTs: three in section
/// 2.1, and one more because RTT_standing, a minimum, shows a queue that shrinks at once but one
/// that grows late (as `mvfst` has it). Fewer, and it doubles in the ordinary oscillation of five
/// RTTs; more, and it is slow to find a new rate.
const SAME_BEFORE_DOUBLING: u32 = 4;
/// Without a nearly empty queue in so many RTTs others fill it (section 2.2): Copa flows alone
/// empty it once in five.
const EMPTY_WITHIN: usize = 5;
/// RTT_max is the largest of so many RTTs (section 2.2).
const RTT_MAX_OVER: usize = 4;
/// "Nearly empty": d_q below this part of RTT_max − RTT_min (section 2.2).
const NEARLY_EMPTY: f64 = 0.1;
/// A queue with less than this many of the flow's own packets counts as empty, too (ours, not the
/// paper's). Where n flows share a link, a queue that all of them take for empty has about one
/// packet of each. A tenth of an oscillation of few packets is less than that. More would overlook
/// others who fill a buffer; a flow beside them has 1/δ there.
const OWN_IN_EMPTY: f64 = 1.0;
/// Beyond this part of packets lost the window shrinks, in any mode: the authors' code, not the
/// paper. Less would answer losses that are not congestion; more would keep a small buffer
/// overflowing.
const SUSTAINED_LOSS: f64 = 0.1;
/// To this part (authors' code).
const AFTER_SUSTAINED_LOSS: f64 = 0.7;
/// Packets over which losses are counted, at least: a lost packet of few is no loss rate.
const LOSS_OVER: f64 = 20.0;
/// Round trips that jitter is measured over: as many as flows take to empty the queue once, so that
/// one of them is without their own movement. Fewer take a movement for jitter; more hold on to
/// jitter that has gone.
const JITTER_ROUNDS: usize = 5;
/// Bias of RTT_standing over the smallest mean above the least RTT, and over the mean step between
/// least RTTs. The smaller product is 0.9 to 3 times the bias for evenly distributed jitter of ±5
/// ms at 1,000 to 8,000 packets/s and RTTs of 15 to 100 ms, in order and out of order. Less takes
/// jitter for a queue; more leaves a queue of the difference.
const ABOVE_LEAST: f64 = 3.0;
const LEAST_STEPS: f64 = 8.0;
/// Part of the bound that is the flow's own movement of its queue, over the time of 1/δ packets.
/// Less takes the movement for jitter: with 1.0 the queue of ten packets at 24 Mbit/s was 1.5
/// packets longer. More misses jitter of the difference.
const OWN_MOVEMENT: f64 = 1.5;
/// Most that 1/δ becomes, packets. As many in a queue as a large window; where this is little, so
/// is the flow's share.
const MOST_PATIENCE: f64 = 65_536.0;
/// Least window, packets (authors' code): with one, a delayed ACK would stop the flow.
const LEAST_WINDOW: f64 = 2.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Auto,
    Default,
}

/// How the window shrinks. The program's text has the excess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Descent {
    /// By half of the flow's excess in the queue an RTT, by 1/δ packets at least. Ours.
    #[default]
    Excess,
    /// By v/δ packets an RTT (section 2.1).
    Velocity,
}

struct Delta(f64);

impl FromStr for Delta {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Delta, &'static str> {
        match text.parse() {
            Ok(delta) if (0.01..=2.0).contains(&delta) => Ok(Delta(delta)),
            _ => Err("it is a number from 0.01 to 2"),
        }
    }
}

/// The algorithm.
pub struct Copa {
    mode: Mode,
    /// 1/δ of the default mode, packets.
    patience: f64,
    descent: Descent,
}

/// State of a flow.
pub struct Flow {
    /// Segment size, bytes.
    mss: f64,
    base: Least,
    velocity: Velocity,
    rounds: Rounds,
    jitter: Jitter,
    /// 1/δ now, packets.
    patience: f64,
    /// Packets acknowledged and lost since losses were last judged.
    acked: f64,
    lost: f64,
    /// 1/δ was last halved.
    halved: Time,
    /// The window last shrank for sustained loss.
    retreated: Time,
    told: Orders,
}

/// What the program has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Orders {
    base: u64,
    noise: u64,
    unit: u64,
    velocity: u64,
    upwards: u64,
}

/// How fast the window moves, in units of 1/δ packets an RTT.
#[derive(Clone, Copy, Debug)]
struct Velocity {
    value: f64,
    upwards: bool,
    /// RTTs in which the window went the same way.
    same: u32,
    /// Window at the last look, bytes.
    window: u64,
}

impl Velocity {
    fn new(window: u64) -> Velocity {
        Velocity {
            value: 1.0,
            upwards: true,
            same: 0,
            window,
        }
    }

    /// A round trip ended with this window. `most` bounds the velocity so that the window at most
    /// doubles or vanishes in an RTT (authors' code).
    fn update(&mut self, window: u64, most: f64) {
        let upwards = window > self.window;
        self.window = window;
        if upwards != self.upwards {
            (self.upwards, self.same, self.value) = (upwards, 0, 1.0);
            return;
        }
        self.same = self.same.saturating_add(1);
        if self.same >= SAME_BEFORE_DOUBLING {
            self.value *= 2.0;
        }
        self.value = self.value.min(most).max(1.0);
    }
}

/// Least and largest RTT (µs) of the last round trips.
#[derive(Clone, Debug, Default)]
struct Rounds(VecDeque<(u64, u64)>);

impl Rounds {
    fn push(&mut self, least: u64, most: u64) {
        self.0.push_front((least, most));
        self.0.truncate(EMPTY_WITHIN);
    }

    /// Whether the queue was nearly empty in one of them, for a flow of so many packets. While they
    /// are too few to tell, it was.
    fn was_nearly_empty(&self, base: u64, window: f64) -> bool {
        let most = self
            .0
            .iter()
            .take(RTT_MAX_OVER)
            .map(|(_, most)| *most)
            .max();
        let Some(most) = most.filter(|_| self.0.len() == EMPTY_WITHIN) else {
            return true;
        };
        let queue = |rtt: u64| rtt.saturating_sub(base) as f64;
        self.0.iter().any(|(least, _)| {
            let little = queue(*least) < NEARLY_EMPTY * queue(most);
            little || queue(*least) * window < OWN_IN_EMPTY * *least as f64
        })
    }
}

/// Least RTT of the last round trips, and their mean RTT above it, µs: what jitter shows of itself.
#[derive(Clone, Debug, Default)]
struct Jitter(VecDeque<(u64, u64)>);

impl Jitter {
    fn push(&mut self, round: &Round) {
        if round.slow {
            return self.0.clear();
        }
        self.0
            .push_front((round.least, round.mean.saturating_sub(round.least)));
        self.0.truncate(JITTER_ROUNDS);
    }

    /// Bound of what jitter adds to RTT_standing, the least RTT of half a round trip, over RTT_min
    /// where there is no queue; µs.
    ///
    /// Where packets keep their order, each waits for those before it, and small RTTs are rare: the
    /// bias follows the mean of a round trip above its least RTT. Where packets overtake, every
    /// round trip has some that were not delayed, and the bias follows how far the least RTTs of
    /// successive round trips differ.
    fn bias(&self) -> f64 {
        if self.0.len() < JITTER_ROUNDS {
            return 0.0;
        }
        let above = self.0.iter().map(|(_, above)| *above).min().unwrap_or(0);
        let successive = self.0.iter().zip(self.0.iter().skip(1));
        let steps: u64 = successive.map(|((a, _), (b, _))| a.abs_diff(*b)).sum();
        let step = steps as f64 / (JITTER_ROUNDS - 1) as f64;
        (ABOVE_LEAST * above as f64).min(LEAST_STEPS * step)
    }
}

impl Flow {
    /// A round trip ended: mode and δ (section 2.2), velocity (2.1), and what the program is to
    /// have.
    fn round(&mut self, copa: &Copa, now: Time, round: &Round) {
        let base = self.base.update(now, round.least).unwrap_or(round.least);
        self.told.base = base;
        self.rounds.push(round.least, round.most);
        self.jitter.push(round);
        let own = OWN_MOVEMENT * copa.patience * self.mss * base as f64 / round.cwnd.max(1) as f64;
        self.told.noise = (self.jitter.bias() - own).max(0.0) as u64;
        let base = base + self.told.noise;
        if copa.mode == Mode::Default
            || round.slow
            || self
                .rounds
                .was_nearly_empty(base, round.cwnd as f64 / self.mss)
        {
            self.patience = copa.patience;
        } else {
            self.patience = (self.patience + 1.0).min(MOST_PATIENCE);
        }
        let unit = self.patience * self.mss;
        let most = round.cwnd as f64 / unit;
        if round.slow {
            self.velocity = Velocity::new(round.cwnd);
        } else {
            self.velocity.update(round.cwnd, most);
        }
        self.told.unit = unit as u64;
        self.told.velocity = self.velocity.value as u64;
        self.told.upwards = u64::from(self.velocity.upwards);
    }

    /// A loss halves 1/δ where Copa competes, once an RTT; never below that of the default mode ("δ
    /// ≤ 0.5").
    fn halve(&mut self, copa: &Copa, now: Time, srtt: Duration) {
        if self.patience > copa.patience && now.since(self.halved) > srtt {
            self.halved = now;
            self.patience = (self.patience / 2.0).max(copa.patience);
            self.told.unit = (self.patience * self.mss) as u64;
        }
    }

    /// The window after sustained loss, if that is what there is; bytes. Once an RTT: what is lost
    /// before the smaller window shows says nothing of it.
    fn retreat(
        &mut self,
        now: Time,
        srtt: Duration,
        acked: f64,
        lost: f64,
        cwnd: u64,
    ) -> Option<Bytes> {
        if now.since(self.retreated) <= srtt {
            (self.acked, self.lost) = (0.0, 0.0);
            return None;
        }
        self.acked += acked;
        self.lost += lost;
        let sent = self.acked + self.lost;
        if sent < LOSS_OVER {
            return None;
        }
        let sustained = self.lost > SUSTAINED_LOSS * sent;
        (self.acked, self.lost) = (0.0, 0.0);
        let least = LEAST_WINDOW * self.mss;
        sustained.then(|| {
            self.retreated = now;
            Bytes::new((cwnd as f64 * AFTER_SUSTAINED_LOSS).max(least) as u64)
        })
    }
}

/// What a report says of a round trip.
struct Round {
    least: u64,
    most: u64,
    mean: u64,
    cwnd: u64,
    slow: bool,
}

impl Algorithm for Copa {
    type Flow = Flow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("copa", PROGRAM)
    }

    /// Not that losses are repaired: it has no reduction for them that a datapath would have to
    /// carry out. A bundle repairs nothing.
    fn needs(&self) -> Capabilities {
        Capabilities::CWND
            .with(Capabilities::PACING)
            .with(Capabilities::RTT)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Flow {
        let mss = info.mss.get().max(1) as f64;
        let told = Orders {
            base: INFINITY,
            noise: 0,
            unit: (self.patience * mss) as u64,
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
        control.program("copa", &variables);
        Flow {
            mss,
            base: Least::over(RTT_MIN_OVER),
            velocity: Velocity::new(info.cwnd.get()),
            rounds: Rounds::default(),
            jitter: Jitter::default(),
            patience: self.patience,
            acked: 0.0,
            lost: 0.0,
            halved: Time::ZERO,
            retreated: Time::ZERO,
            told,
        }
    }

    fn on_report(&mut self, flow: &mut Flow, report: &Report<'_>, control: &mut Control<'_>) {
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
        let (now, before) = (control.now(), flow.told);
        let srtt = (srtt < INFINITY).then(|| Duration::from_micros(srtt));
        if let Some(srtt) = srtt.filter(|_| lost > 0) {
            flow.halve(self, now, srtt);
        }
        let acked = acked as f64 / flow.mss;
        let retreat = flow.retreat(now, srtt.unwrap_or_default(), acked, lost as f64, cwnd);
        // After a timeout the program has begun anew.
        if let Some(window) = retreat.filter(|_| timeouts == 0) {
            control.cwnd(window);
            // Behind a policer there is never a queue that would end slow start.
            control.set("slow", 0);
            control.set("extra", 0);
        }
        if rounds > 0 && least < INFINITY {
            let slow = slow > 0;
            flow.round(
                self,
                now,
                &Round {
                    least,
                    most,
                    mean: sum / samples.max(1),
                    cwnd,
                    slow,
                },
            );
        }
        let Orders {
            base,
            noise,
            unit,
            velocity,
            upwards,
        } = flow.told;
        for (name, now, before) in [
            ("base", base, before.base),
            ("noise", noise, before.noise),
            ("unit", unit, before.unit),
            ("velocity", velocity, before.velocity),
            ("upwards", upwards, before.upwards),
        ] {
            if now != before {
                control.set(name, now);
            }
        }
    }
}

/// The program's text. `unit` is mss/δ in bytes, so that 1/δ packets; `base` is RTT_min.
///
/// RTT_standing is the least sample of the last srtt/2, kept in two buckets of srtt/4. The window
/// grows while cwnd/RTT_standing is at most 1/(δ·d_q), that is cwnd·d_q ≤ RTT_standing·unit, by v/δ
/// packets for each window acknowledged, and shrinks else; `credit` keeps what is less than a byte.
///
/// With `by_excess` it shrinks by half of the excess for each window acknowledged: of the flow's
/// bytes in the queue, cwnd·d_q/RTT_standing, beyond `unit`. A change shows one RTT and a half
/// later (the path, and RTT_standing). A part of less than a quarter would never empty the queue,
/// which the mode's rule waits for; all of it would swing for ever, as the velocity does, which
/// passes the aim by what it moves until the aim shows.
///
/// `noise` is what jitter adds to RTT_standing over `base`; the agent measures it. Receivers that
/// acknowledge more than four packets at once (`burst`, which falls by 1/64 per ACK) make a window
/// of w packets send w − burst in some RTTs and then nothing, so that the next ACK waits for the
/// receiver's timer and its RTT looks like a queue. Then the flow paces at the rate the paper
/// compares, w/RTT_standing, and `Cwnd` has room for `extra` bytes more, which wait for an ACK at
/// the receiver.
///
/// A direction that is not the one for which the agent set the velocity has velocity 1 at once.
/// Otherwise it paces at 2·cwnd/RTT_standing. While a repair runs, window and target are told by
/// the threshold: Copa does not reduce for a loss, and what the datapath takes for the end of its
/// reduction is the window that Copa wants.
const PROGRAM: &str = "(def
    (Report
        (volatile acked 0) (volatile lost 0) (volatile timeouts 0) (volatile rounds 0) (least +infinity)
        (most 0) (sum 0) (samples 0) (srtt 0) (cwnd 0) (slow true))
    (base +infinity) (noise 0) (unit 0) (velocity 1) (upwards true) (by_excess true) (slow true) (in_loss false)
    (standing +infinity) (recent +infinity) (older +infinity) (bucket 0) (age 0)
    (queued 0) (up true) (fresh false) (credit 0) (step 0) (window 0) (burst 0) (extra 0))
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
    (:= base (min base Flow.rtt_sample_us))
    (:= age (diff Ack.now bucket))
    (if (> age (/ Flow.srtt_us 4))
        (do (:= older (if (> age (/ Flow.srtt_us 2)) +infinity recent))
            (:= recent +infinity)
            (:= bucket Ack.now)))
    (:= recent (min recent Flow.rtt_sample_us))
    (:= standing (min recent older))
    (:= queued (/ (* (diff Cwnd extra) (diff standing (+ base noise))) standing))
    (:= up (<= queued unit))
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
    (:= burst (if Flow.in_recovery burst (max (* Flow.mss Ack.packets_acked) (diff burst (/ burst 64)))))
    (:= window (if (> Cwnd (+ extra Flow.mss)) (- Cwnd extra) Cwnd))
    # What this ACK delivers: the cumulative ACK that ends a repair covers much that was SACKed, and
    # counted, before.
    (:= step (min (+ Ack.bytes_acked Ack.bytes_misordered) (* Flow.mss (+ Ack.packets_acked Ack.packets_misordered))))
    (if (! slow)
        (do (:= credit (+ credit (* step (if (&& by_excess (! up))
                (max unit (/ (diff queued unit) 2))
                (* unit (if (== up upwards) velocity 1))))))
            (:= step (/ credit window))
            (:= credit (diff credit (* step window)))))
    (if (! up)
        (:= window (max (diff window step) (* 2 Flow.mss)))
        # Paced at its window, the flow does not fill Cwnd: half of the window in flight counts as
        # used.
        (if (|| Flow.cwnd_limited
                (&& (> extra 0) (> (* 2 (+ Flow.bytes_in_flight Ack.bytes_acked)) window)))
            (:= window (+ window step))))
    (:= in_loss (&& in_loss (|| Flow.in_recovery Flow.was_timeout)))
    (:= extra (if (|| slow in_loss Flow.in_recovery (<= burst (* 4 Flow.mss))) 0 burst))
    (if (&& Flow.in_recovery (! in_loss)) (:= Ssthresh window) (:= Cwnd (+ window extra)))
    (if (< standing +infinity) (:= Rate (if (> extra 0) (/ (* 1000000 window) standing) (/ (* 2000000 window) standing))))
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
