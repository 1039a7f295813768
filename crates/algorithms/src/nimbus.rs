//! Nimbus: delay control with elasticity detection (Goyal, Narayan, Cangialosi, Narayana, Alizadeh,
//! Balakrishnan, "Elasticity Detection: A Building Block for Internet Congestion Control", SIGCOMM
//! 2022, arXiv 1802.08730). "Reference" is the authors' code, ccp-project/nimbus, branch
//! queue-control, which Bundler uses.
//!
//! The rate always carries a [`Pulse`]. Every 10 ms the program reports the send rate and the
//! receive rate. A [`Detector`] decides whether the cross traffic responds to the pulse, and a
//! [`ModeSwitch`] selects delay control or competitive mode. These parts are independent of flows
//! and programs, so any controller that regulates a bottleneck's queue by a rate can use them.

mod capacity;
mod competitive;
mod delay;
mod elasticity;
mod mode_switch;
mod pulse;
mod spectrum;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY, TwoBucketMin};
use ccplane_units::{Rate, Time};

use crate::cubic::Cubic;
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub use capacity::CapacityEstimate;
pub use delay::{Basic, Copa, DelayInputs, DelayMode, QueueTargetBounds};
pub use elasticity::{
    Capacity, Detector, PULSE_BAND_HALF_WIDTH_HZ, Reading, SAMPLE_INTERVAL, Sample, WINDOW_SAMPLES,
};
pub use mode_switch::{ModeSwitch, NimbusMode};
pub use pulse::{COMPETITIVE_PULSE_HZ, DELAY_PULSE_HZ, PULSE_SIZE, Pulse};
pub use spectrum::{BINS_PER_HZ, Fourier, Spectra, SpectrumKind, band};

use competitive::Competitor;

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "nimbus",
    doc: "Nimbus (SIGCOMM 2022): delay control, and Cubic while pulses detect elastic cross \
        traffic",
    parameters: &[
        ParameterDoc {
            name: "delay",
            default: "basic",
            values: "basic | copa",
            doc: "control law that keeps the queue short: BasicDelay, or the reference's \
                Copa-like window",
        },
        ParameterDoc {
            name: "competitive",
            default: "cubic",
            values: "cubic | off",
            doc: "control law next to elastic cross traffic; `off`: always controls delay",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(box_algorithm(Nimbus::new(
        parameters.choice(
            "delay",
            DelayMode::default(),
            &[("basic", DelayMode::Basic), ("copa", DelayMode::Copa)],
        )?,
        parameters.choice(
            "competitive",
            Competitive::default(),
            &[("cubic", Competitive::Cubic), ("off", Competitive::Off)],
        )?,
    )))
}

/// Behaviour in the presence of elastic cross traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Competitive {
    /// Cubic (RFC 9438).
    #[default]
    Cubic,
    /// Delay control only.
    Off,
}

/// Samples between two spectra: two 512-point FFTs per 100 ms. The reference computes them for
/// every sample, but η changes over seconds.
const SPECTRUM_INTERVAL_SAMPLES: u32 = 10;
/// Minimum rate as a fraction of the capacity (reference): enough to detect a response again.
const RATE_CAPACITY_SHARE_MIN: f64 = 0.05;
/// Maximum rate as a fraction of the capacity, so that an estimate that is too low by half can
/// still grow to the true value.
const RATE_CAPACITY_SHARE_MAX: f64 = 2.0;
/// Window as a multiple of rate · RTT, so that the rate is the limit (reference).
const WINDOW_BDPS: f64 = 2.0;
/// Packets per ACK above which the window includes room for packets that await an ACK.
const STRETCH_ACK_PACKETS: f64 = 4.0;
/// Decay per report of the largest burst of acknowledged packets.
const BURST_DECAY: f64 = 0.995;
/// Minimum window, segments.
const WINDOW_SEGMENTS_MIN: f64 = 4.0;
/// Maximum rate, bytes/s, and maximum window, bytes: beyond every link.
const RATE_BYTES_PER_SECOND_MAX: f64 = 1e15;
/// Age in intervals of the receive rate from which competitive mode starts: before the new cross
/// traffic could show in the spectrum (reference: 5 s).
const COMPETITIVE_RATE_AGE_SAMPLES: usize = 500;

/// Nimbus.
pub struct Nimbus {
    delay: DelayMode,
    competitive: Competitive,
    cubic: Cubic,
    fourier: Fourier,
}

/// State of a flow: 6 KiB of samples and less than 1 KiB of other state, constant over its
/// lifetime.
pub struct NimbusFlow {
    mss: f64,
    /// Start of the pulse train.
    pulse_start: Time,
    /// Time of the next sample.
    next_sample: Time,
    last_report: Time,
    unread_samples: u32,
    /// Rate without the pulse, bytes/s; 0 while the program is in slow start.
    rate: f64,
    detector: Detector,
    capacity: CapacityEstimate,
    switch: ModeSwitch,
    basic: Basic,
    copa: Copa,
    competitor: Competitor,
    /// Maximum packets acknowledged by one ACK, with slow decay.
    burst: f64,
    /// Mean send rate, receive rate (bytes/s) and RTT (seconds) of the last report that contained
    /// ACKs; 0 before the first.
    sent: f64,
    received: f64,
    rtt: f64,
    /// Recent minimum RTT, which is free of most jitter.
    recent_min_rtt: RecentMinRtt,
}

/// RTT samples whose minimum measures the queue (as many as in HyStart). With fewer, jitter looks
/// like a queue when a report has two ACKs. With more, a slow flow notices a queue later.
const QUEUE_SAMPLES_MIN: u64 = 8;

/// Minimum RTT of at least the last [`QUEUE_SAMPLES_MIN`] samples, seconds. A bucket ends once it
/// has that many samples and, as a report adds its samples all at once, often has more. The bucket
/// before it therefore counts only until then, which [`ccplane_datapath::HalfWindowMin`] does not
/// support.
#[derive(Clone, Copy, Debug)]
struct RecentMinRtt {
    buckets: TwoBucketMin<f64>,
    /// Samples in the current bucket.
    samples: u64,
}

impl Default for RecentMinRtt {
    fn default() -> RecentMinRtt {
        RecentMinRtt {
            buckets: TwoBucketMin::new(f64::INFINITY),
            samples: 0,
        }
    }
}

impl RecentMinRtt {
    /// Adds a report's minimum RTT, seconds, of this many samples.
    fn add(&mut self, least: f64, samples: u64) {
        if self.samples >= QUEUE_SAMPLES_MIN {
            self.buckets.rotate(least);
            self.samples = 0;
        } else {
            self.buckets.add(least);
        }
        self.samples = self.samples.saturating_add(samples);
    }

    fn get(&self) -> f64 {
        if self.samples >= QUEUE_SAMPLES_MIN {
            self.buckets.recent()
        } else {
            self.buckets.min()
        }
    }
}

impl Nimbus {
    /// Creates the algorithm with these control laws.
    pub fn new(delay: DelayMode, competitive: Competitive) -> Nimbus {
        Nimbus {
            delay,
            competitive,
            cubic: Cubic::standard(),
            fourier: Fourier::new(),
        }
    }

    /// Adds the samples due at `now` and evaluates the spectrum when it is due.
    fn observe(&mut self, flow: &mut NimbusFlow, now: Time, sample: Sample, rtt: f64, base: f64) {
        // After a long gap, the old samples belong to a different pulse train.
        if now.since(flow.next_sample) > SAMPLE_INTERVAL * (WINDOW_SAMPLES as u64 / 4) {
            flow.detector.clear();
            flow.next_sample = now;
        }
        // `Time::MAX` has no next sample.
        while flow.next_sample <= now && flow.next_sample < Time::MAX {
            flow.next_sample += SAMPLE_INTERVAL;
            flow.detector.push(sample);
            let ages = flow.switch.mode() == NimbusMode::Delay;
            flow.capacity.push(now, f64::from(sample.r), ages);
            flow.unread_samples += 1;
        }
        if flow.unread_samples < SPECTRUM_INTERVAL_SAMPLES {
            return;
        }
        let capacity = flow.capacity.get();
        let Some(reading) = flow
            .detector
            .evaluate(&mut self.fourier, capacity, flow.frequency())
        else {
            return;
        };
        let _ = flow.capacity.learn(reading.capacity);
        let changed = self.competitive != Competitive::Off
            && flow
                .switch
                .update(now, &reading, flow.unread_samples, capacity);
        flow.unread_samples = 0;
        if changed {
            flow.start_mode(rtt, base);
        }
    }
}

impl NimbusFlow {
    fn frequency(&self) -> f64 {
        match self.switch.mode() {
            NimbusMode::Delay => DELAY_PULSE_HZ,
            NimbusMode::Competitive => COMPETITIVE_PULSE_HZ,
        }
    }

    /// Initializes the controller of the new mode, given the RTT and the base RTT, seconds.
    fn start_mode(&mut self, rtt: f64, base: f64) {
        match self.switch.mode() {
            NimbusMode::Competitive => {
                let rate = f64::from(self.detector.sample_ago(COMPETITIVE_RATE_AGE_SAMPLES).r);
                self.competitor = Competitor::with_window(rate * rtt / self.mss);
            }
            NimbusMode::Delay => self.basic = Basic::starting_at(rtt / base),
        }
    }

    /// Returns the rate with the pulse, bytes/s.
    fn rate_with_pulse(&self, now: Time) -> f64 {
        let capacity = self.capacity.get();
        let periods = now.since(self.pulse_start).as_secs_f64() * self.frequency();
        (self.rate + PULSE_SIZE * capacity * Pulse::at(periods))
            .max(RATE_CAPACITY_SHARE_MIN * capacity)
    }
}

impl Algorithm for Nimbus {
    type Flow = NimbusFlow;

    fn name(&self) -> &str {
        "nimbus"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("nimbus", PROGRAM)
    }

    fn required_capabilities(&self) -> Capabilities {
        let rates = Capabilities::PACING.union(Capabilities::DELIVERY_RATE);
        Capabilities::CWND.union(Capabilities::RTT).union(rates)
    }

    /// Nimbus paces at its own rate, so an idle period is not followed by a burst.
    fn requested_capabilities(&self) -> Capabilities {
        self.required_capabilities()
            .union(Capabilities::KEEPS_WINDOW)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> NimbusFlow {
        let now = control.now();
        // A flow that is taken over continues from its window, the only information about the path.
        let rate = match info.srtt.as_secs_f64() {
            srtt if info.live && srtt > 0.0 => info.cwnd.get() as f64 / srtt,
            _ => 0.0,
        };
        control.set_program("nimbus", &[("starting", u64::from(rate == 0.0))]);
        let mss = info.mss.get().max(1) as f64;
        let window = info.cwnd.get() as f64;
        NimbusFlow {
            mss,
            pulse_start: now,
            next_sample: now,
            last_report: now,
            unread_samples: 0,
            rate,
            detector: Detector::new(),
            capacity: CapacityEstimate::default(),
            switch: ModeSwitch::new(now),
            basic: Basic::starting_at(1.0),
            copa: Copa::with_window(window),
            competitor: Competitor::with_window(window / mss),
            burst: 0.0,
            sent: 0.0,
            received: 0.0,
            rtt: 0.0,
            recent_min_rtt: RecentMinRtt::default(),
        }
    }

    fn on_report(&mut self, flow: &mut NimbusFlow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[
            acked,
            lost,
            reductions,
            timeouts,
            undos,
            sent,
            received,
            rates,
            rtt,
            rtts,
            least_rtt,
            base,
            burst,
            limited,
            starting,
        ] = report.fields()
        else {
            return;
        };
        if rates > 0 {
            flow.sent = sent as f64 / rates as f64;
            flow.received = received as f64 / rates as f64;
        }
        if rtts > 0 {
            flow.rtt = rtt as f64 / rtts as f64 / 1e6;
            flow.recent_min_rtt.add(least_rtt.max(1) as f64 / 1e6, rtts);
        }
        let (sent, received, rtt, standing) = (
            flow.sent,
            flow.received,
            flow.rtt,
            flow.recent_min_rtt.get(),
        );
        if base >= INFINITY || rtt == 0.0 || sent == 0.0 || received == 0.0 {
            return;
        }
        let now = control.now();
        let base = (base.max(1) as f64 / 1e6).min(standing);
        flow.burst = (flow.burst * BURST_DECAY).max(burst as f64);
        let acked = acked as f64;
        if limited == 0 {
            let sample = Sample {
                s: sent as f32,
                r: received as f32,
                queueing: (standing - base - flow.mss / received).max(0.0) as f32,
            };
            self.observe(flow, now, sample, rtt, base);
        }
        if starting != 0 {
            return;
        }
        let capacity = flow.capacity.get().max(flow.mss / rtt);
        if flow.rate == 0.0 {
            flow.rate = received.min(capacity);
            flow.copa = Copa::with_window(flow.rate * rtt);
        }
        match flow.switch.mode() {
            NimbusMode::Delay => {
                let seen = DelayInputs {
                    s: sent,
                    z: capacity * sent / received - sent,
                    mu: capacity,
                    rtt: standing,
                    base_rtt: base,
                    acked,
                    mss: flow.mss,
                    target_bounds: QueueTargetBounds::UNBOUNDED,
                };
                let elapsed = now.since(flow.last_report).as_secs_f64();
                flow.basic.update_target(&seen, lost as f64 * flow.mss);
                flow.rate = match self.delay {
                    DelayMode::Basic => flow.basic.rate(&seen),
                    DelayMode::Copa => flow.copa.rate(&seen, elapsed),
                };
            }
            NimbusMode::Competitive => {
                if undos > 0 {
                    flow.competitor.undo(&self.cubic);
                }
                if reductions > 0 || timeouts > 0 {
                    flow.competitor.reduce(&self.cubic, timeouts > 0);
                } else if limited == 0 {
                    flow.competitor
                        .acked(&self.cubic, now, acked / flow.mss, rtt);
                }
                flow.rate = flow.competitor.window() * flow.mss / rtt;
                flow.copa = Copa::with_window(flow.rate * rtt);
            }
        }
        flow.last_report = now;
        flow.rate = flow.rate.clamp(
            RATE_CAPACITY_SHARE_MIN * capacity,
            RATE_CAPACITY_SHARE_MAX * capacity,
        );
        let rate = flow.rate_with_pulse(now);
        let competes = flow.switch.mode() == NimbusMode::Competitive;
        control.set_rate(Rate::from_bytes_per_sec(
            rate.clamp(1.0, RATE_BYTES_PER_SECOND_MAX) as u64,
        ));
        let waiting = if flow.burst > STRETCH_ACK_PACKETS {
            WINDOW_BDPS * flow.burst * flow.mss
        } else {
            0.0
        };
        let window = (WINDOW_BDPS * rate * rtt + waiting)
            .max(WINDOW_SEGMENTS_MIN * flow.mss)
            .min(RATE_BYTES_PER_SECOND_MAX);
        control.set_variable("window", window as u64);
        control.set_variable("competes", u64::from(competes));
    }
}

/// The program; the agent sets the rate every 10 ms. Slow start doubles the window and paces at
/// twice its rate. It ends at a loss, or when all of `SAMPLES` packets in a row have an RTT a
/// quarter above the minimum, and the flow continues at the receive rate of that moment. With one
/// sample, jitter of ±5 ms ends slow start at a tenth of the link's rate. With eight, the longer
/// queue loses a hundred packets in a buffer of one BDP.
///
/// A report holds the sums of the rates and RTTs of its ACKs, and the agent takes their means. A
/// datapath without timers reports on the first ACK after 10 ms. That ACK is often a late one, with
/// a high RTT and a low receive rate: on its own, it held the rate at 8 % of a link with ±5 ms of
/// jitter. The queue is measured by the minimum of eight RTTs because ±5 ms of jitter raises the
/// mean to the target of a 40 ms path.
///
/// In competitive mode the program makes the first reduction of each recovery, and the agent's own
/// follows with the report. An infinite ssthresh keeps the datapath from reducing the window in
/// recovery because the rate is the limit.
const PROGRAM: &str = "(def
    (Report
        (volatile acked 0) (volatile lost 0) (volatile reductions 0) (volatile timeouts 0) \
        (volatile undos 0)
        (volatile sent 0) (volatile received 0) (volatile rates 0) (volatile rtt 0) \
        (volatile rtts 0)
        (volatile least_rtt +infinity) (base +infinity) (volatile burst 0) \
        (volatile limited false) (slow true))
    (const INTERVAL 10ms)
    (const SLACK 500us)
    (const STRETCHED 4)
    (const SAMPLES 4)
    (starting true) (window 0) (competes false) (recovering false)
    (round 0) (least +infinity) (floor +infinity)
    (samples 0) (shortest +infinity) (grown false))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.limited (|| Report.limited Flow.app_limited))
    (:= Report.base Flow.min_rtt_us)
    (fallthrough))
(when (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.packets_acked Ack.packets_misordered) 0))
    (:= Report.rtt (+ Report.rtt Flow.rtt_sample_us))
    (:= Report.rtts (+ Report.rtts 1))
    (:= Report.least_rtt (min Report.least_rtt Flow.rtt_sample_us))
    (if (! Flow.in_recovery) (:= Report.burst (max Report.burst Ack.packets_acked)))
    (fallthrough))
(when (&& (> (+ Ack.packets_acked Ack.packets_misordered) 0)
        (&& (> Flow.rate_outgoing 0) (> Flow.rate_incoming 0)))
    (:= Report.sent (+ Report.sent Flow.rate_outgoing))
    (:= Report.received (+ Report.received Flow.rate_incoming))
    (:= Report.rates (+ Report.rates 1))
    (fallthrough))
(when Flow.was_timeout
    (:= Report.timeouts (+ Report.timeouts 1))
    (report)
    (fallthrough))
(when Flow.undone
    (:= Report.undos (+ Report.undos 1))
    (report)
    (fallthrough))
(when (&& Flow.in_recovery (! recovering))
    (:= Report.reductions (+ Report.reductions 1))
    (if competes (:= Rate (* Rate 0.7)))
    (report)
    (fallthrough))
(when (&& starting (< Flow.srtt_us +infinity))
    (if Flow.cwnd_limited (:= Cwnd (+ Cwnd Ack.bytes_acked)))
    (:= Rate (/ (* Cwnd 2000000) Flow.srtt_us))
    (if (> Ack.now round)
        (do (:= floor (if (> round 0) least +infinity))
            (:= least +infinity)
            (:= round (+ Ack.now Flow.srtt_us))))
    (if (&& (< Flow.rtt_sample_us +infinity) (> Ack.packets_acked 0))
        (do (:= least (min least Flow.rtt_sample_us))
            (:= shortest (min shortest Flow.rtt_sample_us))
            (:= samples (+ samples Ack.packets_acked))))
    (if (>= samples SAMPLES)
        (do (:= grown (> shortest (+ SLACK (* (max Report.base \
            (if (> Report.burst STRETCHED) floor 0)) 1.25))))
            (:= shortest +infinity)
            (:= samples 0)))
    (if (|| Flow.in_recovery grown)
        (do (:= starting false)
            (if (> Report.rates 0) (:= Rate (/ Report.received Report.rates)))
            (report)))
    (fallthrough))
(when (> window 0)
    (if Flow.in_recovery (:= Ssthresh 18446744073709551615))
    (:= Cwnd window)
    (fallthrough))
(when true
    (:= recovering Flow.in_recovery)
    (:= Report.slow starting)
    (fallthrough))
(when (> Micros INTERVAL)
    (:= Micros 0)
    (report))
";

#[cfg(test)]
mod tests;
