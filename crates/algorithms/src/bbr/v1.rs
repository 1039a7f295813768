//! BBR version 1, as in Linux 6.x. Names in code quotes are from `net/ipv4/tcp_bbr.c`.
//!
//! ```text
//! Startup ──full──> Drain ──drained──> ProbeBw
//! any state ──min RTT expired──> ProbeRtt ──200 ms and a round──> ProbeBw, or Startup until full
//! ```

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::Capabilities;

use super::filter::MaxFilter;
use super::full_pipe::FullPipe;
use super::min_rtt::{MinRtt, ProbeRttEpisode};
use super::policer::{Policer, RoundTotals};
use super::program::{self, Version};
use super::seen::{BbrReport, ReportEvents};
use super::start::Start;
use super::{
    ControlSink, Dice, GAIN_UNIT, MIN_PIPE_CWND_SEGMENTS, PROBE_RTT_INTERVAL,
    REQUIRED_CAPABILITIES, UNBOUNDED, UNITY_PACING_GAIN, paced, probe_rtt_us, volume,
};
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "bbr",
    doc: "BBR version 1, as in Linux 6.x: sends at the measured bandwidth, with at most two BDP \
        in flight",
    parameters: &[
        PROBE_RTT_INTERVAL,
        ParameterDoc {
            name: "policer",
            default: "true",
            values: "true | false",
            doc: "detect policers and follow their rate (Linux' long-term bandwidth)",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(box_algorithm(Bbr {
        probe_rtt_us: probe_rtt_us(parameters)?,
        policer: parameters.read("policer", true)?,
    }))
}

/// `bbr_high_gain`, 2/ln 2: the smallest gain that doubles the rate each round, with ACKs one round
/// late.
const STARTUP_PACING_GAIN: u64 = 28_850;
/// `bbr_drain_gain`, its inverse: drains the queue of one STARTUP round in about a round.
const DRAIN_PACING_GAIN: u64 = 3_466;
/// `bbr_pacing_gain`: the first two of the cycle's eight gains; the others are 1. A gain above 1.25
/// finds bandwidth faster but builds a deeper queue. The second gain drains the queue of the first.
const PROBE_UP_PACING_GAIN: u64 = 12_500;
const PROBE_DOWN_PACING_GAIN: u64 = 7_500;
/// `CYCLE_LEN`; as a phase, it stands for no cycle.
const CYCLE_LEN: u64 = 8;
/// `bbr_cwnd_gain`: one BDP for the pipe, and one for delayed or aggregated ACKs.
const CWND_GAIN: u64 = 20_000;
/// `bbr_bw_rtts`: a cycle and two rounds. A shorter window forgets the bandwidth of the last probe
/// before the next one.
const BW_FILTER_ROUNDS: u64 = CYCLE_LEN + 2;
/// `bbr_extra_acked_win_rtts`: two windows of 5 rounds, of which the maximum counts.
const EXTRA_ACKED_WINDOW_ROUNDS: u64 = 5;
/// `bbr_extra_acked_max_us`: at most the data delivered in 100 ms.
const EXTRA_ACKED_MAX_US: u64 = 100_000;

/// BBR version 1.
pub struct Bbr {
    probe_rtt_us: u64,
    policer: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum BbrMode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt(ProbeRttEpisode),
}

/// A flow's model of its path.
pub struct BbrFlow {
    mss: u64,
    pub(super) mode: BbrMode,
    dice: Dice,
    last: BbrReport,
    bandwidth: MaxFilter,
    /// First round whose bandwidth samples count. Samples from PROBE_RTT do not measure the path's
    /// capacity.
    samples_from: u64,
    min_rtt: MinRtt,
    pipe: FullPipe,
    full: bool,
    extra: [u64; 2],
    extra_rounds: u64,
    policer: Policer,
    /// Maximum bandwidth in the reports of this round, bytes/s.
    round_bw: u64,
    start: Start,
    /// Values installed in the program: maximum bandwidth, policer rate, and window allowance for
    /// aggregation.
    told_bw: u64,
    told_cap: u64,
    told_bonus: u64,
    /// Installed value of the round from which losses are reported at once.
    told_due: u64,
}

impl BbrFlow {
    pub(super) fn new(mss: u64, dice: Dice, probe_rtt_us: u64) -> BbrFlow {
        BbrFlow {
            mss: mss.max(1),
            mode: BbrMode::Startup,
            dice,
            last: BbrReport::default(),
            bandwidth: MaxFilter::new(BW_FILTER_ROUNDS),
            samples_from: 0,
            min_rtt: MinRtt::new(probe_rtt_us),
            pipe: FullPipe::default(),
            full: false,
            extra: [0; 2],
            extra_rounds: 0,
            policer: Policer::default(),
            round_bw: 0,
            start: Start::with(STARTUP_PACING_GAIN),
            told_bw: 0,
            told_cap: UNBOUNDED,
            told_bonus: 0,
            told_due: 0,
        }
    }
}

impl Algorithm for Bbr {
    type Flow = BbrFlow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("bbr", text())
    }

    fn needs(&self) -> Capabilities {
        REQUIRED_CAPABILITIES
    }

    /// BBR paces at its own rate, so an idle period is not followed by a burst.
    fn wants(&self) -> Capabilities {
        self.needs().with(Capabilities::KEEPS_WINDOW)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> BbrFlow {
        let dice = control.this().map_or(Dice(0), Dice::of);
        let due = if self.policer { 0 } else { UNBOUNDED };
        control.program("bbr", &[("due", due)]);
        let mut flow = BbrFlow::new(info.mss.get(), dice, self.probe_rtt_us);
        flow.start.open(info, control);
        flow
    }

    fn on_report(&mut self, flow: &mut BbrFlow, report: &Report<'_>, control: &mut Control<'_>) {
        if let Some(seen) = BbrReport::read(report.fields()) {
            self.decide(flow, &seen, control);
        }
    }
}

impl Bbr {
    #[cfg(test)]
    pub(super) fn standard() -> Bbr {
        Bbr {
            probe_rtt_us: 10_000_000,
            policer: true,
        }
    }

    pub(super) fn decide(
        &self,
        flow: &mut BbrFlow,
        seen: &BbrReport,
        orders: &mut impl ControlSink,
    ) {
        let rounds = seen.rounds.saturating_sub(flow.last.rounds);
        flow.start.see(seen, flow.mss, orders);
        flow.round_bw = flow.round_bw.max(seen.bw);
        flow.measure_bandwidth(seen, orders);
        if self.policer {
            flow.look_for_policer(seen, rounds, orders);
        }
        flow.measure_aggregation(seen, rounds, orders);
        if seen.events.has(ReportEvents::TIMEOUT) || seen.events.has(ReportEvents::UNDO) {
            flow.pipe = FullPipe::default();
        }
        flow.check_full(rounds, orders);
        flow.check_drain(seen, orders);
        flow.check_rtt(seen, orders);
        if rounds > 0 {
            flow.round_bw = 0;
        }
        flow.last = *seen;
    }
}

/// `bbr_update_model`, report by report.
impl BbrFlow {
    fn bw(&self) -> u64 {
        self.policer
            .rate()
            .unwrap_or(UNBOUNDED)
            .min(self.bandwidth.get())
    }

    fn measure_bandwidth(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        self.told_bw = self.told_bw.max(seen.bw);
        if seen.bw > 0 && (seen.rounds >= self.samples_from || seen.bw >= self.bandwidth.get()) {
            self.bandwidth.update(seen.rounds, seen.bw);
        }
        if self.bandwidth.get() != self.told_bw {
            self.told_bw = self.bandwidth.get();
            orders.set("max_bw", self.told_bw);
        }
    }

    fn look_for_policer(&mut self, seen: &BbrReport, rounds: u64, orders: &mut impl ControlSink) {
        if seen.events.has(ReportEvents::UNDO) {
            self.policer.reset();
        }
        let passed = RoundTotals {
            rounds,
            round: seen.rounds,
            delivered: seen.delivered,
            lost: seen.lost,
            newly_lost: seen.lost.saturating_sub(self.last.lost),
            // Linux marks data sent in PROBE_RTT as application-limited.
            app_limited: seen.events.has(ReportEvents::APP_LIMITED)
                || matches!(self.mode, BbrMode::ProbeRtt(_)),
            now_us: seen.now,
        };
        let cycling = matches!(self.mode, BbrMode::ProbeBw);
        let ended = self.policer.update(&passed, cycling);
        let cap = self.policer.rate().unwrap_or(UNBOUNDED);
        let changed = cap != self.told_cap;
        if changed {
            self.told_cap = cap;
            orders.set("cap_bw", cap);
        }
        if cycling && (ended || changed) {
            self.cycle(seen, orders);
        }
        if self.policer.due() != self.told_due {
            self.told_due = self.policer.due();
            orders.set("due", self.told_due);
        }
    }

    fn measure_aggregation(
        &mut self,
        seen: &BbrReport,
        rounds: u64,
        orders: &mut impl ControlSink,
    ) {
        self.extra_rounds = self.extra_rounds.saturating_add(rounds);
        if self.extra_rounds >= EXTRA_ACKED_WINDOW_ROUNDS {
            self.extra_rounds = 0;
            self.extra = [0, self.extra[0]];
        }
        self.extra[0] = self.extra[0].max(seen.extra);
        if self.full {
            let extra = self.extra[0].max(self.extra[1]);
            let bonus = extra.min(volume(self.bw(), EXTRA_ACKED_MAX_US));
            if bonus != self.told_bonus {
                self.told_bonus = bonus;
                orders.set("bonus", bonus);
            }
        }
    }

    /// `bbr_check_full_bw_reached`.
    fn check_full(&mut self, rounds: u64, orders: &mut impl ControlSink) {
        if self.full
            || rounds == 0
            || self.round_bw == 0
            || matches!(self.mode, BbrMode::ProbeRtt(_))
        {
            return;
        }
        self.pipe.update(self.bandwidth.get(), rounds);
        if self.pipe.now {
            self.full = true;
            orders.set("full", 1);
        }
    }

    fn check_drain(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        match self.mode {
            BbrMode::Startup if self.full => {
                self.mode = BbrMode::Drain;
                orders.set("gain", paced(DRAIN_PACING_GAIN));
                orders.set("draining", UNBOUNDED);
            }
            // The program detected the drained queue and already paces at the bandwidth.
            BbrMode::Drain if seen.events.has(ReportEvents::QUEUE_DRAINED) => {
                self.probe_bandwidth(seen, orders)
            }
            _ => {}
        }
    }

    /// `bbr_update_min_rtt`.
    fn check_rtt(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        let before = self.min_rtt.us;
        let expired = self.min_rtt.update(seen.rtt, seen.now);
        if self.min_rtt.us > before {
            orders.set("min_rtt", self.min_rtt.us);
        }
        // After an idle period, the first samples measure an empty path, as in PROBE_RTT.
        let idle = seen.events.has(ReportEvents::IDLE) || self.last.events.has(ReportEvents::IDLE);
        if let BbrMode::ProbeRtt(dip) = &mut self.mode {
            if dip.is_over(seen.flight, seen.rounds, seen.now) {
                let before = dip.before;
                self.end_probe_rtt(before, seen, orders);
            }
        } else if expired && !idle {
            let window = self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS);
            self.mode = BbrMode::ProbeRtt(ProbeRttEpisode::new(window, seen.window, seen.rounds));
            orders.set("gain", UNITY_PACING_GAIN);
            orders.set("draining", 0);
            orders.set("phase", CYCLE_LEN);
            orders.set("cap", window);
            self.samples_from = u64::MAX;
        }
    }

    fn end_probe_rtt(&mut self, window: u64, seen: &BbrReport, orders: &mut impl ControlSink) {
        self.min_rtt.renew(seen.now);
        orders.set("cap", UNBOUNDED);
        orders.window(window.max(seen.window));
        // One round until data sent from now on is acknowledged, and one until all ACKs of that
        // round have arrived.
        self.samples_from = seen.rounds + 2;
        if self.full {
            self.probe_bandwidth(seen, orders);
        } else {
            self.mode = BbrMode::Startup;
            orders.set("gain", paced(STARTUP_PACING_GAIN));
        }
    }

    fn probe_bandwidth(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        self.mode = BbrMode::ProbeBw;
        orders.set("cwnd_gain", CWND_GAIN);
        self.cycle(seen, orders);
    }

    /// `bbr_reset_probe_bw_mode`: the cycle starts in a random phase other than the draining one,
    /// to desynchronize flows. At a policer's rate there is no cycle.
    fn cycle(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        let phase = match self.policer.rate() {
            Some(_) => CYCLE_LEN,
            None => (CYCLE_LEN - self.dice.below(CYCLE_LEN - 1)) % CYCLE_LEN,
        };
        orders.set("phase", phase);
        orders.set("stamp", seen.now);
        orders.set(
            "gain",
            paced(if phase == 0 {
                PROBE_UP_PACING_GAIN
            } else {
                GAIN_UNIT
            }),
        );
    }
}

/// Returns the program with the gain cycle (`bbr_is_next_cycle_phase`): a phase lasts the minimum
/// RTT. The first one also lasts until there is a loss or 1.25 BDP in flight. The second ends early
/// once at most a BDP is in flight.
fn text() -> String {
    let (up, down) = (paced(PROBE_UP_PACING_GAIN), paced(PROBE_DOWN_PACING_GAIN));
    program::text(&Version {
        gains: (paced(STARTUP_PACING_GAIN), STARTUP_PACING_GAIN),
        report: "",
        control: " (phase 8) (stamp 0) (conserving 0) (due 0)",
        sample: String::new(),
        clauses: format!(
            "
# A sampling interval of the policer detection starts and ends with a loss
# (`bbr_lt_bw_sampling`).
(when (&& (> Ack.lost_pkts_sample 0) (>= Report.rounds due))
    (report)
    (fallthrough))
# The gain cycle.
(when (< phase 8)
    (:= next (> (diff Ack.now stamp) min_rtt))
    (if (== phase 0)
        (:= next (&& next (|| (> Ack.lost_pkts_sample 0) (>= Report.flight (+ {probed} (* 2 Flow.mss)))))))
    (if (== phase 1) (:= next (|| next (<= Report.flight {quiet}))))
    (if next
        (do (:= phase (if (== phase 7) 0 (+ phase 1)))
            (:= stamp Ack.now)
            (:= gain (if (== phase 0) {up} (if (== phase 1) {down} {UNITY_PACING_GAIN})))))
    (fallthrough))",
            probed = quantized("(* bdp 1.25) budget"),
            quiet = quantized("bdp budget"),
        ),
        drained: &quantized("bdp budget"),
        target: &format!(
            "(+ {} (if (== phase 0) (* 2 Flow.mss) 0))",
            quantized("(/ (* bdp cwnd_gain) 10000) bonus budget")
        ),
        kept: "(max Flow.mss (diff Cwnd (* Ack.lost_pkts_sample Flow.mss)))",
        // Packet conservation for one round, because losses may mean that new flows arrived
        // (`bbr_set_cwnd_to_recover_or_restore`).
        repair: "
    (:= conserving (if Flow.was_timeout 0 (+ Report.rounds 1)))
    (:= round_end (+ Report.delivered Report.lost Flow.bytes_in_flight))
    (:= Cwnd (+ Flow.bytes_in_flight newly))",
        conserve: "
    (if (&& Flow.in_recovery (< Report.rounds conserving))
        (:= Report.window
            (min cap (max Cwnd (+ Flow.bytes_in_flight newly)))))",
    })
}

/// Rounds a sum of bytes up to an even number of segments (`bbr_quantization_budget`): with a BDP
/// below two segments, a window rounded down is too small for ACKs that cover two.
fn quantized(terms: &str) -> String {
    format!("(* (* 2 Flow.mss) (/ (+ {terms} (- (* 2 Flow.mss) 1)) (* 2 Flow.mss)))")
}

#[cfg(test)]
mod tests;
