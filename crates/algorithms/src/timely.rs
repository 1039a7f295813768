//! TIMELY: R. Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM
//! 2015; and its variant with a unique fixed point: Y. Zhu, M. Ghobadi, V. Misra, J. Padhye, "ECN
//! or Delay", CoNEXT 2016, section 4.3.
//!
//! TIMELY is rate-based. The program reports each segment completion (section 4 of the paper: 16 to
//! 64 KB) with the RTT of its last packet. The agent adjusts the rate by the sign and size of the
//! RTT gradient. TIMELY has no window, so the agent limits the data in flight to twice the
//! bandwidth-delay product of the rate.

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Bytes, Rate, Time};

use crate::base_rtt::{BaseRtt, FULL_SIZED_SAMPLE_CONDITION};
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "timely",
    doc: "TIMELY (SIGCOMM 2015): adjusts the rate by the RTT gradient, between two RTT thresholds",
    parameters: &[
        ParameterDoc {
            name: "law",
            default: "original",
            values: "original | patched",
            doc: "the paper's version, or the one of Zhu et al. (CoNEXT 2016), which has a single \
                fixed point and is therefore fair",
        },
        ParameterDoc {
            name: "t_low",
            default: "auto",
            values: "auto | a duration such as 50us",
            doc: "below this RTT the rate only grows; auto: 2.5 times the minimum RTT of \
                full-sized packets",
        },
        ParameterDoc {
            name: "t_high",
            default: "auto",
            values: "auto | a duration such as 500us",
            doc: "above this RTT the rate only falls; auto: 25 times the minimum RTT of \
                full-sized packets",
        },
        ParameterDoc {
            name: "delta",
            default: "10mbit",
            values: "a rate",
            doc: "additive increase per completion; five times as much after five completions \
                without an RTT increase",
        },
        ParameterDoc {
            name: "beta",
            default: "auto",
            values: "auto | above 0 to 1",
            doc: "multiplicative decrease; auto: 0.8, patched 0.008",
        },
        ParameterDoc {
            name: "alpha",
            default: "0.875",
            values: "above 0 to 1",
            doc: "weight of a new RTT difference in the average",
        },
        ParameterDoc {
            name: "segment",
            default: "16KiB",
            values: "bytes, at least 1500",
            doc: "acknowledged bytes per completion; at most one completion per minimum RTT",
        },
    ],
};

// Values of the paper as in HPCC's ns-3 code (facts/dx.md 6).

/// α. A smaller α smooths more noise and reacts later.
const ALPHA: f64 = 0.875;
/// β of the paper and of the patched algorithm (CoNEXT 2016). A larger β empties the link at a
/// single RTT increase.
const BETA: f64 = 0.8;
const PATCHED_BETA: f64 = 0.008;
/// T_low and T_high relative to the minimum RTT: 50 and 500 µs at 20 µs. T_low is the burst
/// tolerated: if lower, segment bursts count as queues. T_high bounds the delay: if lower, the
/// gradient has no range to act in.
const T_LOW_RTT_RATIO: f64 = 2.5;
const T_HIGH_RTT_RATIO: f64 = 25.0;
/// The RTT gradient is normalized by the base RTT, but at least by the serialization time of this
/// many full packets. With fewer, a single packet in the queue of a slow link looks like
/// congestion. 16 packets at 10 Gbit/s are the paper's 20 µs.
const GRADIENT_BASE_PACKETS_MIN: f64 = 16.0;
/// δ. A larger δ takes free bandwidth sooner and adds as much to the queue.
const DELTA: Rate = Rate::from_bytes_per_sec(1_250_000);
/// Completions without an RTT increase before hyperactive increase, and its multiple of δ (section
/// 5.1).
const HAI_COMPLETIONS: u32 = 5;
/// Segment size, bytes: the smallest in the paper. A larger one means fewer reports and longer
/// bursts at low rates.
const SEGMENT_SIZE: Bytes = Bytes::new(16 << 10);
/// Factor applied to the rate at a loss, at most once per RTT as in TCP. The paper's networks are
/// lossless.
const LOSS_RATE_FACTOR: f64 = 0.5;
/// Window as a multiple of rate · RTT. With less, the window instead of the rate would shape the
/// traffic. The minimum in segments keeps a low rate from waiting for delayed ACKs.
const WINDOW_BDPS: f64 = 2.0;
const WINDOW_SEGMENTS_MIN: u64 = 10;
/// Minimum rate, as the divisor of δ: a stopped flow would receive no feedback. A larger divisor
/// recovers more slowly.
const RATE_MIN_DIVISOR: f64 = 10.0;
/// Maximum rate, bytes/s: 10 Tbit/s.
const RATE_BYTES_PER_SECOND_MAX: f64 = 1.25e12;

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let law = parameters.choice(
        "law",
        TimelyVariant::default(),
        &[
            ("original", TimelyVariant::Original),
            ("patched", TimelyVariant::Patched),
        ],
    )?;
    let beta = match law {
        TimelyVariant::Original => BETA,
        TimelyVariant::Patched => PATCHED_BETA,
    };
    let delta = parameters.read("delta", DELTA)?.bytes_per_sec();
    let segment = parameters.read("segment", SEGMENT_SIZE)?.get();
    if !(1500..=1 << 30).contains(&segment) {
        return Err(BadParameter::value(
            "segment",
            segment.to_string(),
            "1500 bytes to 1 GiB",
        ));
    }
    let (low, high) = (
        parameters.micros_or_auto("t_low")?,
        parameters.micros_or_auto("t_high")?,
    );
    if let (Some(low), Some(high)) = (low, high)
        && low >= high
    {
        return Err(BadParameter::value(
            "t_low",
            format!("{low}us"),
            "below t_high",
        ));
    }
    Ok(box_algorithm(Timely {
        variant: law,
        low,
        high,
        delta: delta as f64,
        beta: match parameters.get("beta") {
            Some("auto") => beta,
            _ => parameters.in_range("beta", beta, 0.0, 1.0)?,
        },
        alpha: parameters.in_range("alpha", ALPHA, 0.0, 1.0)?,
        segment,
    }))
}

/// Variant of the algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TimelyVariant {
    #[default]
    Original,
    Patched,
}

struct Timely {
    variant: TimelyVariant,
    /// Thresholds, µs; `None` derives them from the minimum RTT.
    low: Option<f64>,
    high: Option<f64>,
    /// bytes/s
    delta: f64,
    beta: f64,
    alpha: f64,
    /// bytes
    segment: u64,
}

/// State of a flow. Rates in bytes/s, times in µs.
#[derive(Clone, Debug)]
struct TimelyFlow {
    mss: u64,
    base_rtt: BaseRtt,
    initial: f64,
    /// 0 before the first RTT sample.
    rate: f64,
    prev_rtt: f64,
    /// rtt_diff: moving average of the difference between successive RTTs.
    rtt_diff: f64,
    /// Completions in a row without an RTT increase.
    calm_completions: u32,
    /// Time of the last reduction for a loss.
    last_loss_reduction: Time,
}

impl Timely {
    /// Updates the rate after a completion with this RTT: algorithm 1 of the paper, or algorithm 2
    /// of Zhu et al.
    fn on_completion(&self, flow: &mut TimelyFlow, rtt: f64, base: f64, grows: bool) {
        let difference = if flow.prev_rtt > 0.0 {
            rtt - flow.prev_rtt
        } else {
            0.0
        };
        flow.prev_rtt = rtt;
        flow.rtt_diff = (1.0 - self.alpha) * flow.rtt_diff + self.alpha * difference;
        let unit = base
            .max(GRADIENT_BASE_PACKETS_MIN * flow.base_rtt.packet_time() as f64)
            .max(1.0);
        let gradient = flow.rtt_diff / unit;
        let low = self.low.unwrap_or(T_LOW_RTT_RATIO * base);
        let high = self.high.unwrap_or(T_HIGH_RTT_RATIO * base).max(low);
        let delta = if grows { self.delta } else { 0.0 };
        flow.calm_completions = if gradient <= 0.0 {
            flow.calm_completions.saturating_add(1)
        } else {
            0
        };
        flow.rate = if rtt < low {
            flow.rate + delta
        } else if rtt > high {
            flow.rate * (1.0 - self.beta * (1.0 - high / rtt))
        } else {
            match self.variant {
                TimelyVariant::Original if gradient <= 0.0 => {
                    let times = if flow.calm_completions >= HAI_COMPLETIONS {
                        f64::from(HAI_COMPLETIONS)
                    } else {
                        1.0
                    };
                    flow.rate + times * delta
                }
                TimelyVariant::Original => flow.rate * (1.0 - self.beta * gradient.min(1.0)),
                TimelyVariant::Patched => {
                    // The weight is linear between gradients of −1/4 and 1/4.
                    let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
                    let error = (rtt - low) / low;
                    delta * (1.0 - weight) + flow.rate * (1.0 - self.beta * weight * error).max(0.0)
                }
            }
        };
        self.clamp_rate(flow);
    }

    fn clamp_rate(&self, flow: &mut TimelyFlow) {
        flow.rate = flow
            .rate
            .max(self.delta / RATE_MIN_DIVISOR)
            .min(RATE_BYTES_PER_SECOND_MAX);
    }
}

impl Algorithm for Timely {
    type Flow = TimelyFlow;

    fn name(&self) -> &str {
        "timely"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("timely", self.program())
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
            .union(Capabilities::PACING)
            .union(Capabilities::RTT)
    }

    /// TIMELY paces at its own rate, so an idle period is not followed by a burst.
    fn requested_capabilities(&self) -> Capabilities {
        self.required_capabilities()
            .union(Capabilities::KEEPS_WINDOW)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> TimelyFlow {
        control.set_program("timely", &[]);
        TimelyFlow {
            mss: info.mss.get().max(1),
            base_rtt: BaseRtt::new(),
            initial: info.cwnd.get().max(info.init_cwnd.get()).max(1) as f64,
            rate: 0.0,
            prev_rtt: 0.0,
            rtt_diff: 0.0,
            calm_completions: 0,
            last_loss_reduction: Time::ZERO,
        }
    }

    fn on_report(&mut self, flow: &mut TimelyFlow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[_acked, lost, timeouts, rtt, full_rtt, min_rtt, srtt, idle] = report.fields() else {
            return;
        };
        let Some(base) = flow.base_rtt.update(full_rtt, min_rtt) else {
            return;
        };
        if rtt == 0 || rtt >= INFINITY {
            return;
        }
        let (rtt, base) = (rtt as f64, (base as f64).min(rtt as f64).max(1.0));
        if flow.rate == 0.0 {
            // Initial rate: the window at the start, or at takeover, per RTT.
            flow.rate = flow.initial / rtt * 1e6;
            self.clamp_rate(flow);
        }
        if lost > 0 || timeouts > 0 {
            let since = control.now().since(flow.last_loss_reduction);
            if flow.last_loss_reduction == Time::ZERO || since.as_micros() >= srtt.min(INFINITY) {
                flow.last_loss_reduction = control.now();
                flow.rate *= LOSS_RATE_FACTOR;
                self.clamp_rate(flow);
            }
        } else {
            self.on_completion(flow, rtt, base, idle == 0);
        }
        let window = (WINDOW_BDPS * flow.rate * rtt / 1e6) as u64;
        control.set_rate(Rate::from_bytes_per_sec(flow.rate as u64));
        control.set_cwnd(Bytes::new(
            window.max(flow.mss.saturating_mul(WINDOW_SEGMENTS_MIN)),
        ));
    }
}

impl Timely {
    fn program(&self) -> String {
        format!(
            "(def
    (Report
        (volatile acked 0) (volatile lost 0) (volatile timeouts 0) (rtt 0) \
        (volatile full_rtt +infinity)
        (min_rtt +infinity) (srtt +infinity) (volatile idle false)))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked Ack.bytes_misordered))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.rtt (if (< Flow.rtt_sample_us +infinity) Flow.rtt_sample_us))
    (if {FULL_SIZED_SAMPLE_CONDITION}
        (:= Report.full_rtt (min Report.full_rtt Flow.rtt_sample_us)))
    (:= Report.min_rtt Flow.min_rtt_us)
    (:= Report.srtt Flow.srtt_us)
    (:= Report.idle (|| Report.idle Flow.app_limited))
    (:= Report.timeouts (+ Report.timeouts (if Flow.was_timeout 1 0)))
    (fallthrough))
(when (|| (> Ack.lost_pkts_sample 0) Flow.was_timeout
          (&& (>= Report.acked {}) (>= Micros Flow.min_rtt_us)))
    (:= Micros 0)
    (report))
",
            self.segment
        )
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Duration;

    use super::*;

    fn timely(law: TimelyVariant) -> Timely {
        Timely {
            variant: law,
            low: Some(50.0),
            high: Some(500.0),
            delta: 1.25e6,
            beta: if law == TimelyVariant::Original {
                0.8
            } else {
                0.008
            },
            alpha: 0.875,
            segment: 16384,
        }
    }

    fn flow(rate: f64, previous: f64) -> TimelyFlow {
        TimelyFlow {
            mss: 1448,
            base_rtt: BaseRtt::new(),
            initial: 14480.0,
            rate,
            prev_rtt: previous,
            rtt_diff: 0.0,
            calm_completions: 0,
            last_loss_reduction: Time::ZERO,
        }
    }

    fn after(law: TimelyVariant, previous: f64, rtt: f64) -> f64 {
        let mut flow = flow(1e9, previous);
        timely(law).on_completion(&mut flow, rtt, 20.0, true);
        flow.rate
    }

    #[test]
    fn below_and_above_the_thresholds_the_gradient_does_not_count() {
        assert_eq!(after(TimelyVariant::Original, 20.0, 49.0), 1e9 + 1.25e6);
        // 1 − 0.8 · (1 − 500/1000) = 0.6
        assert!((after(TimelyVariant::Original, 2000.0, 1000.0) - 0.6e9).abs() < 1.0);
    }

    #[test]
    fn between_the_thresholds_the_gradient_decides() {
        assert_eq!(
            after(TimelyVariant::Original, 120.0, 100.0),
            1e9 + 1.25e6,
            "falling: increase"
        );
        // An increase of 8 µs: rtt_diff is 7 µs and the gradient 0.35, so 1 − 0.8 · 0.35 = 0.72.
        assert!((after(TimelyVariant::Original, 92.0, 100.0) - 0.72e9).abs() < 1.0);
        assert!(
            after(TimelyVariant::Original, 60.0, 400.0) >= 0.2e9 - 1.0,
            "a decrease is at most β"
        );
    }

    #[test]
    fn five_calm_completions_start_hyperactive_increase() {
        let (timely, mut flow) = (timely(TimelyVariant::Original), flow(1e9, 100.0));
        let steps: Vec<f64> = (0..6)
            .map(|_| {
                let before = flow.rate;
                timely.on_completion(&mut flow, 100.0, 20.0, true);
                flow.rate - before
            })
            .collect();
        assert_eq!(steps, [1.25e6, 1.25e6, 1.25e6, 1.25e6, 6.25e6, 6.25e6]);
    }

    /// Each rate has one equilibrium RTT: at gradient 0 the weight is 1/2, and an increase of δ/2
    /// balances a decrease by β/2 times the error.
    #[test]
    fn patched_timely_has_one_fixed_point() {
        // 1.25e6 / 2 = 1e9 · 0.008 / 2 · error, so the error is 0.15625 and the RTT 50 · 1.15625.
        let rests = 50.0 * 1.156_25;
        assert!((after(TimelyVariant::Patched, rests, rests) - 1e9).abs() < 1.0);
        assert!(
            after(TimelyVariant::Patched, 55.0, 55.0) > 1e9
                && after(TimelyVariant::Patched, 60.0, 60.0) < 1e9
        );
    }

    #[test]
    fn the_agent_orders_rate_and_window_at_completions() {
        use crate::script::{MSS, Script, everything};
        let mut script = Script::new("timely", "t_low=50ms,t_high=500ms,segment=2kB");
        // The first RTT starts at the first ACK. The agent's action at its end takes effect from
        // the next ACK.
        script.round(Duration::from_millis(20));
        let _ = script.ack(Duration::from_millis(2), |_| {});
        let _ = script.ack(Duration::ZERO, |_| {});
        // 10 segments per 20 ms, plus δ; the window is twice that.
        assert_eq!(script.transport.rate, 500_000 + 1_250_000);
        assert_eq!(script.transport.cwnd, 2 * 35_000);
        let _ = script.ack(Duration::from_millis(1), |s| s.lost_pkts_sample = 1);
        let _ = script.ack(Duration::from_millis(1), |s| s.lost_pkts_sample = 1);
        let _ = script.ack(Duration::ZERO, |_| {});
        assert_eq!(script.transport.rate, 875_000, "half, and only once an RTT");
        assert!(script.transport.cwnd >= 10 * MSS);
        let without = Capabilities(everything().0 & !Capabilities::PACING.0);
        assert!(Script::on(without, "timely", "").is_none());
    }

    #[test]
    fn a_flow_with_nothing_to_send_does_not_grow() {
        let mut flow = flow(1e9, 100.0);
        timely(TimelyVariant::Original).on_completion(&mut flow, 30.0, 20.0, false);
        assert_eq!(flow.rate, 1e9);
    }

    #[test]
    fn parameters_out_of_range_are_refused_by_name() {
        for (text, part) in [
            ("beta=0", "beta"),
            ("alpha=2", "alpha"),
            ("delta=0mbit", "delta"),
            ("segment=100", "segment"),
            ("t_low=600us,t_high=500us", "t_low"),
            ("law=new", "law"),
        ] {
            let error = make(&text.parse().expect("well-formed"))
                .map(|_| ())
                .expect_err(text)
                .to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
