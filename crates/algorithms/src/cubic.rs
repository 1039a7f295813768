//! Cubic, RFC 9438.

use ccplane_agent::{DynAlgorithm, FlowInfo};
use ccplane_units::Time;

use crate::window::{AckedRound, REPORT_INTERVAL, Reporting, Split, WindowLaw, made};
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters, SlowStartExit, WindowOptions};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "cubic",
    doc: "Cubic (RFC 9438), with HyStart or HyStart++ (RFC 9406)",
    parameters: &[
        ParameterDoc {
            default: "auto",
            ..WindowOptions::REPORT
        },
        WindowOptions::SLOW_START,
        WindowOptions::SPLIT,
        ParameterDoc {
            name: "hystart",
            default: "linux",
            values: "linux | rfc9406 | off",
            doc: "how slow start ends before the first loss: Linux' HyStart, HyStart++, or only \
                at a loss",
        },
        ParameterDoc {
            name: "friendly",
            default: "linux",
            values: "linux | rfc9438",
            doc: "growth of the Reno-friendly window beyond the window before the loss: as \
                before, or a whole segment per RTT (RFC 9438, 4.3)",
        },
        ParameterDoc {
            name: "fast_convergence",
            default: "true",
            values: "true | false",
            doc: "yield to new flows: remember less than the window if a loss comes early (RFC \
                9438, 4.7)",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let split = Split::read(parameters)?;
    // HyStart examines single ACKs, so it runs in the datapath program.
    let exit = match split {
        Split::Datapath => {
            parameters.choice("hystart", SlowStartExit::default(), &SlowStartExit::WORDS)?
        }
        Split::Agent | Split::Periodic => SlowStartExit::Off,
    };
    let cubic = Cubic {
        fast_convergence: parameters.read("fast_convergence", true)?,
        alpha_from_prior: parameters.choice("friendly", ALPHA_CUBIC, &FRIENDLY_ALPHAS)?,
        growth_before_loss: if exit == SlowStartExit::Linux {
            LINUX_INITIAL_GROWTH_PER_RTT_MIN
        } else {
            0.0
        },
    };
    let options = WindowOptions::read(parameters, REPORT_DEFAULT)?;
    Ok(made(cubic, split, options, exit))
}

/// Default of `report`. The cubic function depends on time. With one report per RTT of 20 ms,
/// growth after a loss is late, and the queueing delay on a link with random losses differs from
/// native Cubic's. Intervals below 10 ms cost wake-ups and were no closer to native in ten seeds.
/// On paths with an RTT below 10 ms, a 10 ms interval spans several rounds: growth computed for the
/// first would fill the queue in the others.
const REPORT_DEFAULT: Reporting = Reporting::AtMost(REPORT_INTERVAL);

/// C, segments/s³ (RFC 9438, 5.1). A larger C probes sooner after a loss and is less fair to Reno.
const C: f64 = 0.4;
/// β_cubic, the multiplicative decrease factor (RFC 9438, 4.6). The program repeats it as a
/// decimal.
const BETA_CUBIC: f64 = 0.7;
/// α_cubic, the additive increase of W_est (RFC 9438, 4.3, equation 4): with a decrease by β_cubic,
/// it gives W_est Reno's mean window.
const ALPHA_CUBIC: f64 = 3.0 * (1.0 - BETA_CUBIC) / (1.0 + BETA_CUBIC);
/// Values of `friendly`, with the α that applies once W_est has reached cwnd_prior.
const FRIENDLY_ALPHAS: [(&str, f64); 2] = [("linux", ALPHA_CUBIC), ("rfc9438", 1.0)];
/// Upper bound of the growth per RTT as a fraction of cwnd (RFC 9438, 4.2: target is at most 1.5
/// cwnd).
const GROWTH_PER_RTT_MAX: f64 = 0.5;
/// Lower bound of the growth per RTT before the first loss, as a fraction of cwnd. Linux caps `cnt`
/// at 20 there.
const LINUX_INITIAL_GROWTH_PER_RTT_MIN: f64 = 0.05;

/// Cubic. Windows are in segments, times in seconds.
pub struct Cubic {
    fast_convergence: bool,
    /// α once W_est ≥ cwnd_prior. RFC 9438, 4.3 sets it to 1, the increase of Reno. Linux, which
    /// most competing flows run, keeps α_cubic. With 1, a flow gets 5 to 10 % more where losses are
    /// rare and random.
    alpha_from_prior: f64,
    /// Lower bound of the growth per RTT before the first loss, as a fraction of cwnd; 0 in the
    /// RFC.
    growth_before_loss: f64,
}

impl Cubic {
    /// Fraction of the window kept at a loss.
    pub(crate) const LOSS_WINDOW_FACTOR: f64 = BETA_CUBIC;

    /// Cubic with Linux' minimum growth before the first loss.
    pub(crate) fn linux() -> Cubic {
        Cubic {
            growth_before_loss: LINUX_INITIAL_GROWTH_PER_RTT_MIN,
            ..Cubic::standard()
        }
    }

    /// Cubic as in the RFC, for algorithms that use it in their competitive mode.
    pub(crate) fn standard() -> Cubic {
        Cubic {
            fast_convergence: true,
            alpha_from_prior: ALPHA_CUBIC,
            growth_before_loss: 0.0,
        }
    }
}

/// State of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct CubicState {
    current: CubicMemory,
    /// State before the last reduction, restored if the reduction was spurious (RFC 9438, 4.9).
    undo: CubicMemory,
    /// Time of the last report, to measure application-limited periods.
    last_report: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct CubicMemory {
    /// W_max; 0 before the first loss.
    w_max: f64,
    /// cwnd_prior: the window before the last reduction.
    cwnd_prior: f64,
    epoch: Option<Epoch>,
}

/// Congestion avoidance stage: from the end of recovery or slow start.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// epoch_start. Advances while the flow is application-limited (RFC 9438, 5.8).
    epoch_start: Time,
    /// W_max of equation 1, the plateau of the cubic. If cwnd_epoch is larger, it replaces the
    /// flow's W_max (Linux' `bic_origin_point`).
    w_max: f64,
    /// K: time from epoch_start to the plateau, seconds.
    k: f64,
    /// W_est: the window that Reno would have.
    w_est: f64,
}

impl Epoch {
    /// RFC 9438, equation 2: K = cbrt((W_max − cwnd_epoch)/C).
    fn new(epoch_start: Time, cwnd_epoch: f64, w_max: f64) -> Epoch {
        let w_max = w_max.max(cwnd_epoch);
        Epoch {
            epoch_start,
            w_max,
            k: libm::cbrt((w_max - cwnd_epoch) / C),
            w_est: cwnd_epoch,
        }
    }

    /// RFC 9438, equation 1: W_cubic(t) = C(t − K)³ + W_max.
    fn w_cubic(&self, t: f64) -> f64 {
        let x = t - self.k;
        C * x * x * x + self.w_max
    }
}

impl WindowLaw for Cubic {
    type State = CubicState;

    fn name(&self) -> &'static str {
        "cubic"
    }

    fn beta(&self) -> &'static str {
        "0.7"
    }

    fn open(&self, _info: &FlowInfo) -> CubicState {
        CubicState::default()
    }

    fn growth(&self, state: &mut CubicState, round: &AckedRound) -> f64 {
        let memory = &mut state.current;
        let cwnd = round.window.max(1.0);
        // The stage begins with the first segment counted for growth, after recovery.
        if memory.epoch.is_none() && round.counted == 0.0 {
            return 0.0;
        }
        let epoch = memory
            .epoch
            .get_or_insert_with(|| Epoch::new(round.now, cwnd, memory.w_max));
        // ACKs that do not count mean an application-limited flow, and the clock stops. No ACKs at
        // all mean that the path was stalled, and the clock runs on.
        if round.counted == 0.0 && round.acked > 0.0 {
            epoch.epoch_start += round.now.since(state.last_report.max(epoch.epoch_start));
        }
        state.last_report = round.now;

        // RFC 9438, 4.3: α_cubic may change once W_est reaches cwnd_prior.
        let alpha_cubic = if epoch.w_est >= memory.cwnd_prior {
            self.alpha_from_prior
        } else {
            ALPHA_CUBIC
        };
        // RFC 9438, equation 4: W_est = W_est + α_cubic · segments_acked / cwnd.
        epoch.w_est += alpha_cubic * round.counted / cwnd;

        // Reno-friendly region (4.3) if W_cubic(t) < W_est, otherwise W_cubic(t + RTT) (4.4, 4.5).
        let t = round.now.since(epoch.epoch_start).as_secs_f64();
        let target = if epoch.w_cubic(t) < epoch.w_est {
            epoch.w_est + alpha_cubic
        } else {
            epoch.w_cubic(t + round.rtt)
        };
        let least = if memory.w_max == 0.0 {
            self.growth_before_loss * cwnd
        } else {
            0.0
        };
        // The target is at most 1.5 cwnd (4.2).
        (target - cwnd).clamp(least, GROWTH_PER_RTT_MAX * cwnd)
    }

    fn in_slow_start(&self, state: &mut CubicState, now: Time) {
        state.current.epoch = None;
        state.last_report = now;
    }

    fn on_reduction(&self, state: &mut CubicState, cwnd: f64) {
        state.undo = state.current;
        // Fast convergence, RFC 9438, 4.7: W_max = cwnd · (1 + β_cubic)/2. Linux' comparison.
        let gives_way = self.fast_convergence && cwnd < state.current.w_max;
        let w_max = if gives_way {
            cwnd * (1.0 + BETA_CUBIC) / 2.0
        } else {
            cwnd
        };
        state.current = CubicMemory {
            w_max,
            cwnd_prior: cwnd,
            epoch: None,
        };
    }

    fn on_timeout(&self, state: &mut CubicState) {
        // RFC 9438, 4.8: the next stage starts at its plateau, so K = 0.
        state.current.w_max = 0.0;
        state.current.epoch = None;
    }

    fn on_undo(&self, state: &mut CubicState) {
        state.current = state.undo;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9438, 5.8: time runs on while the path is stalled, and stops while the flow is
    /// application-limited.
    #[test]
    fn reports_without_an_ack_do_not_stop_the_clock() {
        let cubic = Cubic::standard();
        // Reports every 10 ms for one second. Nine of ten have `acked` segments acknowledged, of
        // which `counted` count for growth.
        let after_a_second = |acked: f64, counted: f64| -> f64 {
            let mut state = CubicState::default();
            cubic.on_reduction(&mut state, 100.0);
            let mut growth = 0.0;
            for report in 0..=100u64 {
                let all = report % 10 == 0;
                let round = AckedRound {
                    now: Time::from_micros(report * 10_000),
                    window: 70.0,
                    acked: if all { 10.0 } else { acked },
                    counted: if all { 10.0 } else { counted },
                    rtt: 0.02,
                };
                growth = cubic.growth(&mut state, &round);
            }
            growth
        };
        let (busy, outages, limited) = (
            after_a_second(10.0, 10.0),
            after_a_second(0.0, 0.0),
            after_a_second(10.0, 0.0),
        );
        assert!((busy - outages).abs() < 0.01 * busy, "{busy}, {outages}");
        assert!(limited < 0.5 * busy, "{limited}, {busy}");
    }
}
