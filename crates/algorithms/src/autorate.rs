//! cake-autorate's control law, for comparison: the current practice on links of variable rate
//! (github.com/lynxthecat/cake-autorate, version 3: `defaults.sh`, and "Update shaper rates" in
//! `cake-autorate.sh`).
//!
//! It has three configured rates. It raises its rate while the load is high and the delay low. It
//! lowers it by 1 to 25 % when 3 of the last 6 delay samples exceed their baseline by 30 ms. At low
//! load it returns to the base rate. Delay and load come from the datapath; the original pings
//! reflectors.

use std::str::FromStr;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Duration, Rate, Time, stats};

use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "autorate",
    doc: "cake-autorate's control law, for comparison: moves between three given rates by load \
        and by delay above a baseline",
    parameters: &[
        ParameterDoc {
            name: "min",
            default: "5mbit",
            values: "a rate",
            doc: "minimum rate",
        },
        ParameterDoc {
            name: "base",
            default: "20mbit",
            values: "a rate",
            doc: "initial rate, to which it returns under low load",
        },
        ParameterDoc {
            name: "max",
            default: "80mbit",
            values: "a rate",
            doc: "maximum rate",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let rate = |name: &str| {
        let documented = DOC
            .parameters
            .iter()
            .find(|p| p.name == name)
            .map_or("", |p| p.default);
        let text = parameters.get(name).unwrap_or(documented);
        let read =
            Rate::from_str(text).map_err(|why| BadParameter::value(name, text, why.to_string()))?;
        match read.bytes_per_sec() {
            0 => Err(BadParameter::value(name, text, "a rate above 0")),
            bytes => Ok((bytes as f64).min(RATE_BYTES_PER_SECOND_MAX)),
        }
    };
    let (least, base, most) = (rate("min")?, rate("base")?, rate("max")?);
    if least > base || base > most {
        let text = parameters.get("base").unwrap_or("20mbit");
        return Err(BadParameter::value(
            "base",
            text,
            "expected `min` <= `base` <= `max`",
        ));
    }
    Ok(box_algorithm(Autorate {
        min_rate: least,
        base_rate: base,
        max_rate: most,
    }))
}

// Constants of `defaults.sh`.

/// Interval between delay samples: 6 pingers, each every 300 ms.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// Delay above the baseline that counts as delayed, seconds (`owd_delta_delay_thr_ms`).
const OWD_DELTA_DELAY_THRESHOLD_SECONDS: f64 = 0.030;
/// Samples in the detection window, and delayed samples that mean bufferbloat
/// (`bufferbloat_detection_window`, `_thr`).
const DETECTION_WINDOW_SAMPLES: usize = 6;
const DETECTION_THRESHOLD_SAMPLES: usize = 3;
/// Factor applied to the rate on bufferbloat: from the first at a mean delay of
/// [`OWD_DELTA_DELAY_THRESHOLD_SECONDS`] to the second at the third, seconds
/// (`shaper_rate_min_adjust_down_bufferbloat`, `_max_`, `avg_owd_delta_max_adjust_down_thr_ms`).
const ADJUST_DOWN_BUFFERBLOAT_MIN: f64 = 0.99;
const ADJUST_DOWN_BUFFERBLOAT_MAX: f64 = 0.75;
const ADJUST_DOWN_DELAY_SECONDS_MAX: f64 = 0.060;
/// Time after a decrease without another change (`bufferbloat_refractory_period_ms`): as long as
/// the window takes to refill.
const BUFFERBLOAT_REFRACTORY_PERIOD: Duration = Duration::from_millis(300);
/// Factor applied to the rate at high load: from the first at a mean delay of the third, seconds,
/// or less, to the second at [`OWD_DELTA_DELAY_THRESHOLD_SECONDS`]
/// (`shaper_rate_max_adjust_up_load_high`, `_min_`, `avg_owd_delta_max_adjust_up_thr_ms`).
const ADJUST_UP_LOAD_HIGH_MAX: f64 = 1.04;
const ADJUST_UP_LOAD_HIGH_MIN: f64 = 1.0;
const ADJUST_UP_DELAY_SECONDS_MIN: f64 = 0.010;
/// Interval of load measurements (`monitor_achieved_rates_interval_ms`), each of which allows one
/// increase.
const LOAD_INTERVAL: Duration = Duration::from_millis(200);
/// Load above this fraction of the rate is high (`high_load_thr`).
const HIGH_LOAD_THRESHOLD: f64 = 0.75;
/// Factor by which the rate approaches the base rate at low load
/// (`shaper_rate_adjust_down_load_low`, `_up_`) ...
const ADJUST_DOWN_LOAD_LOW: f64 = 0.99;
const ADJUST_UP_LOAD_LOW: f64 = 1.01;
/// ... once per this interval (`decay_refractory_period_ms`).
const DECAY_REFRACTORY_PERIOD: Duration = Duration::from_secs(1);
/// Weight of a sample below and above the baseline (`alpha_baseline_decrease`, `_increase`).
const ALPHA_BASELINE_DECREASE: f64 = 0.9;
const ALPHA_BASELINE_INCREASE: f64 = 0.001;

/// Window of a transport as a multiple of rate · RTT, and minimum in segments, so that the rate is
/// the limit. A shaper has no window.
const WINDOW_BDPS: f64 = 2.0;
const WINDOW_SEGMENTS_MIN: f64 = 10.0;
/// Maximum rate, bytes/s: beyond every link.
const RATE_BYTES_PER_SECOND_MAX: f64 = 1e15;

/// cake-autorate's law with its three rates, bytes/s.
pub struct Autorate {
    min_rate: f64,
    base_rate: f64,
    max_rate: f64,
}

/// State of a flow.
pub struct AutorateFlow {
    mss: f64,
    /// A transport's own flow, which has a window.
    has_window: bool,
    /// Rate of the shaper, bytes/s.
    rate: f64,
    /// Baseline delay, seconds; 0 before the first sample.
    baseline: f64,
    /// Delays above the baseline, and the index of the oldest.
    deltas: [f64; DETECTION_WINDOW_SAMPLES],
    oldest: usize,
    /// Time of the next delay sample, and of the last load measurement.
    next_sample: Time,
    load_measured_at: Time,
    bytes: f64,
    /// Time of the last delivery.
    last_delivery: Time,
    /// Load, bytes/s, and whether it has not yet led to an increase.
    achieved_rate: f64,
    fresh: bool,
    last_bufferbloat: Time,
    last_decay: Time,
}

impl AutorateFlow {
    /// Adds a delay sample, seconds.
    fn add_sample(&mut self, now: Time, delay: f64, limits: &Autorate) {
        if self.baseline == 0.0 {
            self.baseline = delay;
        }
        let weight = if delay >= self.baseline {
            ALPHA_BASELINE_INCREASE
        } else {
            ALPHA_BASELINE_DECREASE
        };
        self.baseline += weight * (delay - self.baseline);
        self.deltas[self.oldest] = delay - self.baseline;
        self.oldest = (self.oldest + 1) % DETECTION_WINDOW_SAMPLES;
        // Thresholds include the serialization time of a packet at this rate.
        let packet = self.mss / self.rate;
        let threshold = OWD_DELTA_DELAY_THRESHOLD_SECONDS + packet;
        let delayed = self
            .deltas
            .iter()
            .filter(|delta| **delta > threshold)
            .count();
        let mean = stats::mean(self.deltas).unwrap_or(0.0);
        let rests = now.since(self.last_bufferbloat) <= BUFFERBLOAT_REFRACTORY_PERIOD;
        if delayed >= DETECTION_THRESHOLD_SAMPLES {
            if !rests {
                let part = ((mean - threshold)
                    / (ADJUST_DOWN_DELAY_SECONDS_MAX - OWD_DELTA_DELAY_THRESHOLD_SECONDS))
                    .clamp(0.0, 1.0);
                self.rate *= ADJUST_DOWN_BUFFERBLOAT_MIN
                    - part * (ADJUST_DOWN_BUFFERBLOAT_MIN - ADJUST_DOWN_BUFFERBLOAT_MAX);
                (self.last_bufferbloat, self.last_decay) = (now, now);
            }
        } else if self.achieved_rate > HIGH_LOAD_THRESHOLD * self.rate {
            if self.fresh && !rests {
                let part = ((threshold - mean)
                    / (OWD_DELTA_DELAY_THRESHOLD_SECONDS - ADJUST_UP_DELAY_SECONDS_MIN))
                    .clamp(0.0, 1.0);
                self.rate *= ADJUST_UP_LOAD_HIGH_MIN
                    + part * (ADJUST_UP_LOAD_HIGH_MAX - ADJUST_UP_LOAD_HIGH_MIN);
                (self.fresh, self.last_decay) = (false, now);
            }
        } else if now.since(self.last_decay) > DECAY_REFRACTORY_PERIOD {
            self.rate = if self.rate > limits.base_rate {
                (self.rate * ADJUST_DOWN_LOAD_LOW).max(limits.base_rate)
            } else {
                (self.rate * ADJUST_UP_LOAD_LOW).min(limits.base_rate)
            };
            self.last_decay = now;
        }
        self.rate = self.rate.clamp(limits.min_rate, limits.max_rate);
    }

    /// Adds bytes delivered since the last call.
    fn add_load(&mut self, now: Time, bytes: f64) {
        self.bytes += bytes;
        let over = now.since(self.load_measured_at);
        if over >= LOAD_INTERVAL {
            self.achieved_rate = self.bytes / over.as_secs_f64();
            (self.bytes, self.load_measured_at, self.fresh) = (0.0, now, true);
        }
    }
}

impl Algorithm for Autorate {
    type Flow = AutorateFlow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("autorate", PROGRAM)
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
            .union(Capabilities::PACING)
            .union(Capabilities::RTT)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> AutorateFlow {
        let now = control.now();
        let rate = self.base_rate as u64;
        control.set_program("autorate", &[("rate", rate)]);
        AutorateFlow {
            mss: info.mss.get().max(1) as f64,
            has_window: control.capabilities().contains(Capabilities::RECOVERY),
            rate: self.base_rate,
            baseline: 0.0,
            deltas: [0.0; DETECTION_WINDOW_SAMPLES],
            oldest: 0,
            next_sample: now,
            load_measured_at: now,
            bytes: 0.0,
            last_delivery: now,
            achieved_rate: 0.0,
            fresh: false,
            last_bufferbloat: now,
            last_decay: now,
        }
    }

    fn on_report(
        &mut self,
        flow: &mut AutorateFlow,
        report: &Report<'_>,
        control: &mut Control<'_>,
    ) {
        let &[acked, rtt, base, began] = report.fields() else {
            return;
        };
        let now = control.now();
        flow.add_load(now, acked as f64);
        if acked > 0 {
            flow.last_delivery = now;
        }
        if began != 0 {
            flow.rate = (began as f64).clamp(self.min_rate, self.max_rate);
        }
        if rtt < INFINITY && now >= flow.next_sample {
            flow.next_sample = now + SAMPLE_INTERVAL;
            // Only the forward path has this queue, so the excess of the RTT is the one-way
            // queueing delay.
            if flow.baseline == 0.0 && base < INFINITY {
                flow.baseline = base.min(rtt).max(1) as f64 / 1e6;
            }
            let rtt = rtt.max(1) as f64 / 1e6;
            // Without deliveries the RTT is the last one, and the queue that caused it has drained.
            let idle = now.since(flow.last_delivery).as_secs_f64()
                > SAMPLE_INTERVAL.as_secs_f64().max(2.0 * rtt);
            let delay = if idle && flow.baseline > 0.0 {
                flow.baseline
            } else {
                rtt
            };
            flow.add_sample(now, delay, self);
        }
        let rtt = if rtt < INFINITY {
            rtt as f64 / 1e6
        } else {
            0.0
        };
        let window = match flow.has_window {
            true => (WINDOW_BDPS * flow.rate * rtt).max(WINDOW_SEGMENTS_MIN * flow.mss),
            false => 0.0,
        };
        control.set_variable("rate", (flow.rate as u64).max(1));
        control.set_variable("window", window.min(RATE_BYTES_PER_SECOND_MAX) as u64);
        control.gauge("capacity", flow.rate);
        control.gauge("achieved", flow.achieved_rate);
    }
}

/// The program. The agent sets rate and window and receives a report every 10 ms. When a gateway
/// starts to limit at the receive rate, the agent continues from that rate. `Micros` is not part of
/// a clause's condition, so that a gateway's tick runs the program, and no timer does.
const PROGRAM: &str = "(def
    (Report (volatile acked 0) (rtt +infinity) (base +infinity) (volatile began 0))
    (const INTERVAL 9ms)
    (rate 0) (window 0) (before 0))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.base Flow.min_rtt_us)
    (if (&& (== before 0) (> Rate 0))
        (do (:= rate Rate) (:= Report.began Rate)))
    (:= before Rate)
    (fallthrough))
(when (< Flow.rtt_sample_us +infinity)
    (:= Report.rtt Flow.rtt_sample_us)
    (fallthrough))
(when true
    (if (> rate 0) (:= Rate rate))
    (if (&& Flow.in_recovery (> window 0)) (:= Ssthresh 18446744073709551615))
    (if (> window 0) (:= Cwnd window))
    (if (> Micros INTERVAL)
        (do (:= Micros 0) (report))))
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::script::{Script, everything};

    const RATE_LIMITS: Autorate = Autorate {
        min_rate: 1e6,
        base_rate: 2e6,
        max_rate: 10e6,
    };

    fn flow(rate: f64) -> AutorateFlow {
        AutorateFlow {
            mss: 1.0,
            has_window: true,
            rate,
            baseline: 0.05,
            deltas: [0.0; DETECTION_WINDOW_SAMPLES],
            oldest: 0,
            next_sample: Time::ZERO,
            load_measured_at: Time::ZERO,
            bytes: 0.0,
            last_delivery: Time::ZERO,
            achieved_rate: 0.0,
            fresh: false,
            last_bufferbloat: Time::ZERO,
            last_decay: at(1_000),
        }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Delivers samples every 50 ms with this delay above the baseline and this load, starting at
    /// one second. Returns the final rate.
    fn run(flow: &mut AutorateFlow, samples: u64, above: f64, load: f64) -> f64 {
        for n in 0..samples {
            let now = at(1_000 + 50 * n);
            flow.add_load(now, load * 0.05);
            flow.baseline = 0.05;
            flow.add_sample(now, 0.05 + above, &RATE_LIMITS);
        }
        flow.rate
    }

    #[test]
    fn three_delayed_samples_of_six_lower_the_rate() {
        // Two are not enough. With the third, the mean of six is still below the threshold, so the
        // rate falls by 1 %.
        assert_eq!(run(&mut flow(4e6), 2, 0.05, 0.0), 4e6);
        assert!((run(&mut flow(4e6), 3, 0.05, 0.0) / 3.96e6 - 1.0).abs() < 0.001);
        // Once per 300 ms: the next decrease, with a mean equal to the samples, follows 350 ms
        // later. At twice the threshold it is a quarter.
        let rate = run(&mut flow(4e6), 10, 0.061, 0.0);
        assert!((rate / (3.96e6 * 0.75) - 1.0).abs() < 0.01, "{rate}");
        let rate = run(&mut flow(4e6), 10, 0.045, 0.0);
        assert!((rate / (3.96e6 * 0.87) - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn load_without_delay_raises_the_rate_once_per_measurement() {
        // Two seconds are ten measurements.
        let rate = run(&mut flow(1e6), 40, 0.0, 1e9);
        let times = (rate / 1e6).ln_by(ADJUST_UP_LOAD_HIGH_MAX);
        assert!((9.0..=11.0).contains(&times), "{times}");
        // Halfway between 10 and 30 ms the increase is half as large, and at the threshold it is
        // zero.
        let half = run(&mut flow(1e6), 40, 0.02, 1e9);
        assert!((half / 1e6).ln_by(1.02) > 8.0 && half < rate, "{half}");
        assert!(run(&mut flow(1e6), 40, 0.029_9, 1e9) < 1.06e6);
        assert_eq!(
            run(&mut flow(9e6), 400, 0.0, 1e9),
            10e6,
            "and no more than the most"
        );
    }

    #[test]
    fn without_load_the_rate_returns_to_base() {
        let (down, up) = (
            run(&mut flow(4e6), 200, 0.0, 0.0),
            run(&mut flow(1e6), 200, 0.0, 0.0),
        );
        // About 1 % per second, for ten seconds.
        assert!((0.89..0.92).contains(&(down / 4e6)), "{down}");
        assert!((1.09..1.12).contains(&(up / 1e6)), "{up}");
        assert_eq!(run(&mut flow(4e6), 4_000, 0.0, 0.0), 2e6);
        assert_eq!(run(&mut flow(1e6), 4_000, 0.0, 0.0), 2e6);
    }

    #[test]
    fn the_baseline_falls_at_once_and_rises_slowly() {
        let mut flow = flow(4e6);
        flow.add_sample(at(0), 0.02, &RATE_LIMITS);
        assert!((flow.baseline - 0.023).abs() < 1e-9);
        flow.add_sample(at(50), 0.123, &RATE_LIMITS);
        assert!((flow.baseline - 0.023_1).abs() < 1e-9);
    }

    #[test]
    fn a_limit_set_by_the_gateway_is_the_starting_point() {
        let mut script = Script::new("autorate", "min=8mbit,base=16mbit,max=80mbit");
        let mut tick = |force: Option<u64>| {
            if let Some(force) = force {
                script.transport.rate = force;
            }
            let _ = script.ack(Duration::from_millis(10), |s| s.bytes_acked = 10_000);
            script.transport.rate
        };
        tick(Some(0));
        assert_eq!(tick(Some(0)), 2_000_000);
        // The gateway limits at 40 Mbit/s.
        tick(Some(5_000_000));
        assert_eq!(tick(None), 5_000_000);
    }

    #[test]
    fn delays_from_before_a_pause_are_ignored() {
        let mut script = Script::new("autorate", "min=8mbit,base=16mbit,max=80mbit");
        script.transport.rate = 5_000_000;
        let mut run = |ticks: u64, rtt_us: u64, acked: u64| {
            for _ in 0..ticks {
                let _ = script.ack(Duration::from_millis(10), |s| {
                    (s.bytes_acked, s.rtt_sample_us, s.min_rtt_us) = (acked, rtt_us, 50_000);
                });
            }
            script.transport.rate
        };
        run(20, 50_000, 40_000);
        let bloated = run(30, 200_000, 40_000);
        assert!((3_000_000..5_000_000).contains(&bloated), "{bloated}");
        let silent = run(500, 200_000, 0);
        assert!((2_000_000..bloated).contains(&silent), "{silent}");
    }

    #[test]
    fn rates_out_of_order_are_refused() {
        for wrong in ["min=30mbit", "max=10mbit", "min=0mbit", "base=fast"] {
            let parameters = wrong.parse().expect("well-formed");
            assert!(
                Registry::builtin()
                    .by_name("autorate", &parameters)
                    .is_err(),
                "{wrong}"
            );
        }
        assert!(Script::on(everything(), "autorate", "min=1mbit,base=1mbit,max=1mbit").is_some());
    }

    /// Logarithm to an arbitrary base.
    trait LnBy {
        fn ln_by(self, base: f64) -> f64;
    }

    impl LnBy for f64 {
        fn ln_by(self, base: f64) -> f64 {
            libm::log(self) / libm::log(base)
        }
    }
}
