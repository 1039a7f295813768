//! BBR version 1, as in Linux 6.x. Names in code quotes are from `net/ipv4/tcp_bbr.c`.
//!
//! ```text
//! Startup ──full──> Drain ──drained──> ProbeBw
//! any state ──min RTT expired──> ProbeRtt ──200 ms and a round──> ProbeBw, or Startup until full
//! ```

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::Capabilities;

use super::full_pipe::FullPipe;
use super::initial_pacing::InitialPacing;
use super::max_filter::MaxFilter;
use super::min_rtt::{MinRtt, ProbeRttEpisode};
use super::policer::{Policer, RoundTotals};
use super::program::{self, Version};
use super::report::{BbrReport, ReportEvents};
use super::{
    ControlSink, GAIN_UNIT, MIN_PIPE_CWND_SEGMENTS, PROBE_RTT_INTERVAL, REQUIRED_CAPABILITIES,
    SplitMix64, UNBOUNDED, UNITY_PACING_GAIN, paced, probe_rtt_us, volume,
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
    rng: SplitMix64,
    last_report: BbrReport,
    bandwidth: MaxFilter,
    /// First round whose bandwidth samples count. Samples from PROBE_RTT do not measure the path's
    /// capacity.
    first_sample_round: u64,
    min_rtt: MinRtt,
    full_pipe: FullPipe,
    full_bw_reached: bool,
    extra_acked: [u64; 2],
    extra_acked_rounds: u64,
    policer: Policer,
    /// Maximum bandwidth in the reports of this round, bytes/s.
    round_bw: u64,
    initial_pacing: InitialPacing,
    /// Values installed in the program: maximum bandwidth, policer rate, and window allowance for
    /// aggregation.
    installed_bw: u64,
    installed_cap: u64,
    installed_bonus: u64,
    /// Installed value of the round from which losses are reported at once.
    installed_due: u64,
}

impl BbrFlow {
    pub(super) fn new(mss: u64, dice: SplitMix64, probe_rtt_us: u64) -> BbrFlow {
        BbrFlow {
            mss: mss.max(1),
            mode: BbrMode::Startup,
            rng: dice,
            last_report: BbrReport::default(),
            bandwidth: MaxFilter::new(BW_FILTER_ROUNDS),
            first_sample_round: 0,
            min_rtt: MinRtt::new(probe_rtt_us),
            full_pipe: FullPipe::default(),
            full_bw_reached: false,
            extra_acked: [0; 2],
            extra_acked_rounds: 0,
            policer: Policer::default(),
            round_bw: 0,
            initial_pacing: InitialPacing::new(STARTUP_PACING_GAIN),
            installed_bw: 0,
            installed_cap: UNBOUNDED,
            installed_bonus: 0,
            installed_due: 0,
        }
    }
}

impl Algorithm for Bbr {
    type Flow = BbrFlow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("bbr", program_source())
    }

    fn required_capabilities(&self) -> Capabilities {
        REQUIRED_CAPABILITIES
    }

    /// BBR paces at its own rate, so an idle period is not followed by a burst.
    fn requested_capabilities(&self) -> Capabilities {
        self.required_capabilities()
            .union(Capabilities::KEEPS_WINDOW)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> BbrFlow {
        let dice = control
            .flow_id()
            .map_or(SplitMix64(0), ccplane_agent::rng::for_flow);
        let due = if self.policer { 0 } else { UNBOUNDED };
        control.set_program("bbr", &[("due", due)]);
        let mut flow = BbrFlow::new(info.mss.get(), dice, self.probe_rtt_us);
        flow.initial_pacing.on_open(info, control);
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
        report: &BbrReport,
        sink: &mut impl ControlSink,
    ) {
        let rounds = report.rounds.saturating_sub(flow.last_report.rounds);
        flow.initial_pacing.on_report(report, flow.mss, sink);
        flow.round_bw = flow.round_bw.max(report.bw);
        flow.measure_bandwidth(report, sink);
        if self.policer {
            flow.detect_policer(report, rounds, sink);
        }
        flow.measure_aggregation(report, rounds, sink);
        if report.events.has(ReportEvents::TIMEOUT) || report.events.has(ReportEvents::UNDO) {
            flow.full_pipe = FullPipe::default();
        }
        flow.check_full_bw_reached(rounds, sink);
        flow.check_drain(report, sink);
        flow.update_min_rtt(report, sink);
        if rounds > 0 {
            flow.round_bw = 0;
        }
        flow.last_report = *report;
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

    fn measure_bandwidth(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        self.installed_bw = self.installed_bw.max(report.bw);
        if report.bw > 0
            && (report.rounds >= self.first_sample_round || report.bw >= self.bandwidth.get())
        {
            self.bandwidth.update(report.rounds, report.bw);
        }
        if self.bandwidth.get() != self.installed_bw {
            self.installed_bw = self.bandwidth.get();
            sink.set_variable("max_bw", self.installed_bw);
        }
    }

    fn detect_policer(&mut self, report: &BbrReport, rounds: u64, sink: &mut impl ControlSink) {
        if report.events.has(ReportEvents::UNDO) {
            self.policer.reset();
        }
        let passed = RoundTotals {
            rounds,
            round: report.rounds,
            delivered: report.delivered,
            lost: report.lost,
            newly_lost: report.lost.saturating_sub(self.last_report.lost),
            // Linux marks data sent in PROBE_RTT as application-limited.
            app_limited: report.events.has(ReportEvents::APP_LIMITED)
                || matches!(self.mode, BbrMode::ProbeRtt(_)),
            now_us: report.now_us,
        };
        let cycling = matches!(self.mode, BbrMode::ProbeBw);
        let ended = self.policer.update(&passed, cycling);
        let cap = self.policer.rate().unwrap_or(UNBOUNDED);
        let changed = cap != self.installed_cap;
        if changed {
            self.installed_cap = cap;
            sink.set_variable("cap_bw", cap);
        }
        if cycling && (ended || changed) {
            self.reset_probe_bw_mode(report, sink);
        }
        if self.policer.due_round() != self.installed_due {
            self.installed_due = self.policer.due_round();
            sink.set_variable("due", self.installed_due);
        }
    }

    fn measure_aggregation(
        &mut self,
        report: &BbrReport,
        rounds: u64,
        sink: &mut impl ControlSink,
    ) {
        self.extra_acked_rounds = self.extra_acked_rounds.saturating_add(rounds);
        if self.extra_acked_rounds >= EXTRA_ACKED_WINDOW_ROUNDS {
            self.extra_acked_rounds = 0;
            self.extra_acked = [0, self.extra_acked[0]];
        }
        self.extra_acked[0] = self.extra_acked[0].max(report.extra_acked);
        if self.full_bw_reached {
            let extra = self.extra_acked[0].max(self.extra_acked[1]);
            let bonus = extra.min(volume(self.bw(), EXTRA_ACKED_MAX_US));
            if bonus != self.installed_bonus {
                self.installed_bonus = bonus;
                sink.set_variable("bonus", bonus);
            }
        }
    }

    /// `bbr_check_full_bw_reached`.
    fn check_full_bw_reached(&mut self, rounds: u64, sink: &mut impl ControlSink) {
        if self.full_bw_reached
            || rounds == 0
            || self.round_bw == 0
            || matches!(self.mode, BbrMode::ProbeRtt(_))
        {
            return;
        }
        self.full_pipe.update(self.bandwidth.get(), rounds);
        if self.full_pipe.full_bw_now {
            self.full_bw_reached = true;
            sink.set_variable("full", 1);
        }
    }

    fn check_drain(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        match self.mode {
            BbrMode::Startup if self.full_bw_reached => {
                self.mode = BbrMode::Drain;
                sink.set_variable("gain", paced(DRAIN_PACING_GAIN));
                sink.set_variable("draining", UNBOUNDED);
            }
            // The program detected the drained queue and already paces at the bandwidth.
            BbrMode::Drain if report.events.has(ReportEvents::QUEUE_DRAINED) => {
                self.probe_bandwidth(report, sink)
            }
            _ => {}
        }
    }

    /// `bbr_update_min_rtt`.
    fn update_min_rtt(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        let before = self.min_rtt.us;
        let expired = self.min_rtt.update(report.rtt, report.now_us);
        if self.min_rtt.us > before {
            sink.set_variable("min_rtt", self.min_rtt.us);
        }
        // After an idle period, the first samples measure an empty path, as in PROBE_RTT.
        let idle = report.events.has(ReportEvents::IDLE)
            || self.last_report.events.has(ReportEvents::IDLE);
        if let BbrMode::ProbeRtt(dip) = &mut self.mode {
            if dip.is_done(report.inflight, report.rounds, report.now_us) {
                let before = dip.prior_cwnd;
                self.exit_probe_rtt(before, report, sink);
            }
        } else if expired && !idle {
            let window = self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS);
            self.mode = BbrMode::ProbeRtt(ProbeRttEpisode::new(window, report.cwnd, report.rounds));
            sink.set_variable("gain", UNITY_PACING_GAIN);
            sink.set_variable("draining", 0);
            sink.set_variable("phase", CYCLE_LEN);
            sink.set_variable("cap", window);
            self.first_sample_round = u64::MAX;
        }
    }

    fn exit_probe_rtt(&mut self, window: u64, report: &BbrReport, sink: &mut impl ControlSink) {
        self.min_rtt.renew(report.now_us);
        sink.set_variable("cap", UNBOUNDED);
        sink.set_window(window.max(report.cwnd));
        // One round until data sent from now on is acknowledged, and one until all ACKs of that
        // round have arrived.
        self.first_sample_round = report.rounds + 2;
        if self.full_bw_reached {
            self.probe_bandwidth(report, sink);
        } else {
            self.mode = BbrMode::Startup;
            sink.set_variable("gain", paced(STARTUP_PACING_GAIN));
        }
    }

    fn probe_bandwidth(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        self.mode = BbrMode::ProbeBw;
        sink.set_variable("cwnd_gain", CWND_GAIN);
        self.reset_probe_bw_mode(report, sink);
    }

    /// `bbr_reset_probe_bw_mode`: the cycle starts in a random phase other than the draining one,
    /// to desynchronize flows. At a policer's rate there is no cycle.
    fn reset_probe_bw_mode(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        let phase = match self.policer.rate() {
            Some(_) => CYCLE_LEN,
            None => (CYCLE_LEN - self.rng.below(CYCLE_LEN - 1)) % CYCLE_LEN,
        };
        sink.set_variable("phase", phase);
        sink.set_variable("stamp", report.now_us);
        sink.set_variable(
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
fn program_source() -> String {
    let (up, down) = (paced(PROBE_UP_PACING_GAIN), paced(PROBE_DOWN_PACING_GAIN));
    program::program_source(&Version {
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
        (:= next (&& next (|| (> Ack.lost_pkts_sample 0) \
            (>= Report.flight (+ {probed} (* 2 Flow.mss)))))))
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
        cwnd_after_loss: "(max Flow.mss (diff Cwnd (* Ack.lost_pkts_sample Flow.mss)))",
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
