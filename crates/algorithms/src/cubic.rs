//! Cubic: RFC 9438.

use ccplane_agent::{DynAlgorithm, FlowInfo};
use ccplane_units::Time;

use crate::window::{INTERVAL, Law, Reporting, Round, Split, made};
use crate::{AlgorithmDoc, BadParameter, Exit, ParameterDoc, Parameters, WindowOptions};

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
            doc: "how slow start ends before the first loss: Linux' HyStart, HyStart++, or not at all",
        },
        ParameterDoc {
            name: "friendly",
            default: "linux",
            values: "linux | rfc9438",
            doc: "how the Reno-friendly window goes on from the window before the loss: as before it, or by a whole segment an RTT (RFC 9438, 4.3)",
        },
        ParameterDoc {
            name: "fast_convergence",
            default: "true",
            values: "true | false",
            doc: "give way to new flows by remembering less than the window at a loss that comes early (RFC 9438, 4.7)",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let split = Split::read(parameters)?;
    // HyStart looks at single ACKs, so it is part of the program.
    let exit = match split {
        Split::Datapath => parameters.choice("hystart", Exit::default(), &Exit::WORDS)?,
        Split::Agent => Exit::Off,
    };
    let cubic = Cubic {
        fast_convergence: parameters.read("fast_convergence", true)?,
        alpha_from_prior: parameters.choice("friendly", ALPHA, &ALPHAS)?,
        growth_before_loss: if exit == Exit::Linux {
            LINUX_GROWTH_BEFORE_LOSS
        } else {
            0.0
        },
    };
    let options = WindowOptions::read(parameters, REPORT)?;
    Ok(made(cubic, split, options, exit))
}

/// Default of `report`. The cubic is a function of time: with reports once a round trip of 20 ms
/// the growth after a loss is late, and the queueing delay on a link with random losses is not the
/// native one's. Intervals below 10 ms cost wake-ups, and were not nearer to it in ten seeds. On
/// paths below 10 ms, 10 ms is several round trips: growth that was right for the first fills the
/// queue in the others.
const REPORT: Reporting = Reporting::AtMost(INTERVAL);

/// C, segments/s³ (RFC 9438, 5.1). Larger probes sooner after a loss and is less fair to Reno.
const C: f64 = 0.4;
/// β_cubic (RFC 9438, 4.6): what is kept at a loss. The program's text has the same.
const BETA: f64 = 0.7;
/// α_cubic (RFC 9438, 4.3, equation 4): growth of the Reno-friendly estimate that, with β_cubic,
/// has Reno's mean window.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// What `friendly` may be, and α from the window before the loss on with it.
const ALPHAS: [(&str, f64); 2] = [("linux", ALPHA), ("rfc9438", 1.0)];
/// Most that the window grows in an RTT (RFC 9438, 4.2: target is at most 1.5 cwnd).
const MOST_GROWTH: f64 = 0.5;
/// Linux, while no loss has shown the capacity: `cnt` at most 20, so at least a twentieth an RTT.
const LINUX_GROWTH_BEFORE_LOSS: f64 = 0.05;

/// The law of RFC 9438. Windows in segments, time in seconds.
pub struct Cubic {
    fast_convergence: bool,
    /// α once W_est has reached the window before the reduction. 1 says the RFC (4.3): from there
    /// on as Reno. Linux, and so most of those that a flow meets, stays with α_cubic; with 1 a flow
    /// has 5 to 10 % more where losses are rare and random.
    alpha_from_prior: f64,
    /// Least growth an RTT, as a part of the window, until a first loss; 0 as the RFC has it.
    growth_before_loss: f64,
}

impl Cubic {
    /// What is kept of the window at a loss.
    pub(crate) const KEPT: f64 = BETA;

    /// As Linux has it, with its growth before a first loss.
    pub(crate) fn linux() -> Cubic {
        Cubic {
            growth_before_loss: LINUX_GROWTH_BEFORE_LOSS,
            ..Cubic::standard()
        }
    }

    /// The law alone, for those who compete by it in a part of their time.
    pub(crate) fn standard() -> Cubic {
        Cubic {
            fast_convergence: true,
            alpha_from_prior: ALPHA,
            growth_before_loss: 0.0,
        }
    }
}

/// State of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    now: Memory,
    /// As it was before the last reduction, in case that was spurious (RFC 9438, 4.9).
    before: Memory,
    /// The last report, to know how long nothing counted.
    last: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// W_max; 0 when no loss has shown one.
    w_max: f64,
    /// cwnd_prior: the window before the last reduction.
    prior: f64,
    epoch: Option<Epoch>,
}

/// A stage of congestion avoidance, from the end of a recovery or of slow start.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// t = 0; moves on while the application limits sending (5.8).
    start: Time,
    /// The plateau: W_max, or the window at the start where it was above that already.
    origin: f64,
    /// When the plateau is reached, seconds.
    k: f64,
    /// W_est: the window that Reno would have.
    friendly: f64,
}

impl Epoch {
    /// Equation 2: K is the time that the cubic needs from the window at the start to the plateau.
    fn new(start: Time, window: f64, w_max: f64) -> Epoch {
        let origin = w_max.max(window);
        Epoch {
            start,
            origin,
            k: libm::cbrt((origin - window) / C),
            friendly: window,
        }
    }

    /// Equation 1.
    fn w_cubic(&self, t: f64) -> f64 {
        let x = t - self.k;
        C * x * x * x + self.origin
    }
}

impl Law for Cubic {
    type State = State;

    fn name(&self) -> &'static str {
        "cubic"
    }

    fn beta(&self) -> &'static str {
        "0.7"
    }

    fn open(&self, _info: &FlowInfo) -> State {
        State::default()
    }

    fn growth(&self, state: &mut State, round: &Round) -> f64 {
        let memory = &mut state.now;
        let window = round.window.max(1.0);
        // A stage begins with the first segment that counts: after the recovery, not in it.
        if memory.epoch.is_none() && round.counted == 0.0 {
            return 0.0;
        }
        let epoch = memory
            .epoch
            .get_or_insert_with(|| Epoch::new(round.now, window, memory.w_max));
        // Where no ACK came the path stood still, and not the application.
        if round.counted == 0.0 && round.acked > 0.0 {
            epoch.start += round.now.since(state.last.max(epoch.start));
        }
        state.last = round.now;

        let alpha = if epoch.friendly >= memory.prior {
            self.alpha_from_prior
        } else {
            ALPHA
        };
        epoch.friendly += alpha * round.counted / window;

        let t = round.now.since(epoch.start).as_secs_f64();
        let target = if epoch.w_cubic(t) < epoch.friendly {
            epoch.friendly + alpha
        } else {
            epoch.w_cubic(t + round.rtt)
        };
        let least = if memory.w_max == 0.0 {
            self.growth_before_loss * window
        } else {
            0.0
        };
        (target - window).clamp(least, MOST_GROWTH * window)
    }

    fn in_slow_start(&self, state: &mut State, now: Time) {
        state.now.epoch = None;
        state.last = now;
    }

    fn reduced(&self, state: &mut State, before: f64) {
        state.before = state.now;
        // Section 4.7. Linux compares in the same way.
        let gives_way = self.fast_convergence && before < state.now.w_max;
        let w_max = if gives_way {
            before * (1.0 + BETA) / 2.0
        } else {
            before
        };
        state.now = Memory {
            w_max,
            prior: before,
            epoch: None,
        };
    }

    fn timed_out(&self, state: &mut State) {
        // Section 4.8: the next stage has K = 0 and its plateau where it begins.
        state.now.w_max = 0.0;
        state.now.epoch = None;
    }

    fn undone(&self, state: &mut State) {
        state.now = state.before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a path stands still, time goes on; where the application sends less than it may, it
    /// does not (RFC 9438, 5.8).
    #[test]
    fn reports_without_an_ack_do_not_stop_the_clock() {
        let cubic = Cubic::standard();
        // A second of reports every 10 ms, of which some are without an ACK, or with ACKs that do
        // not count.
        let after_a_second = |acked: f64, counted: f64| -> f64 {
            let mut state = State::default();
            cubic.reduced(&mut state, 100.0);
            let mut growth = 0.0;
            for report in 0..=100u64 {
                let all = report % 10 == 0;
                let round = Round {
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
