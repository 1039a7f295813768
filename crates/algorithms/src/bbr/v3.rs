//! BBR version 3. Names in code quotes are from draft-ietf-ccwg-bbr (see [`super`]).
//!
//! ```text
//! Startup ──full──> Drain ──drained──> Down ──drained──> Cruise
//! Down, Cruise ──time to probe──> Refill ──one round──> Up ──full, or too much loss──> Down
//! any state ──min RTT expired──> ProbeRtt ──200 ms and a round──> Cruise, or Startup until full
//! spurious loss ──> Refill if the loss ended Up, Startup if it ended Startup
//! ```

mod probe;
#[cfg(test)]
mod tests;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};

use super::bounds::{Bounds, LOSS_THRESH};
use super::full_pipe::FullPipe;
use super::initial_pacing::InitialPacing;
use super::max_filter::MaxFilter;
use super::min_rtt::{MinRtt, ProbeRttEpisode};
use super::program::{self, Version};
use super::report::{BbrReport, ReportEvents};
use super::{
    ControlSink, GAIN_UNIT, MIN_PIPE_CWND_SEGMENTS, PROBE_RTT_INTERVAL, REQUIRED_CAPABILITIES,
    SplitMix64, UNBOUNDED, UNITY_PACING_GAIN, paced, probe_rtt_us, scale, volume,
};
use crate::{AlgorithmDoc, BadParameter, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "bbr3",
    doc: "BBR version 3 (draft-ietf-ccwg-bbr): like version 1, with bounds derived from losses",
    parameters: &[PROBE_RTT_INTERVAL],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(box_algorithm(Bbr3 {
        probe_rtt_us: probe_rtt_us(parameters)?,
    }))
}

/// `BBR.StartupPacingGain`, 4 ln 2: the smallest gain that doubles the rate each round.
const STARTUP_PACING_GAIN: u64 = 27_700;
/// `BBR.DrainPacingGain`, the inverse of Startup's window gain: drains its queue within about a
/// round.
const DRAIN_PACING_GAIN: u64 = 5_000;
/// Pacing gains of ProbeBW_DOWN and ProbeBW_UP. Given 1.25, 0.9 is the lowest gain with which flows
/// converge to approximate fairness ("ProbeBW_DOWN").
const PROBE_DOWN_PACING_GAIN: u64 = 9_000;
const PROBE_UP_PACING_GAIN: u64 = 12_500;
/// `BBR.DefaultCwndGain`; 2.25 in ProbeBW_UP, so that the window does not limit the probe.
const DEFAULT_CWND_GAIN: u64 = 20_000;
const PROBE_UP_CWND_GAIN: u64 = 22_500;
/// `BBR.ProbeRTTCwndGain`: half a BDP drains the queue and keeps the link half busy.
const PROBE_RTT_CWND_GAIN: u64 = 5_000;
/// `BBRStartupFullLossCnt`: lost ranges in a round that end Startup. Counted here as ACKs that
/// detect losses, as in Linux' version 3.
const STARTUP_FULL_LOSS_COUNT: u64 = 6;
/// Drain ends after 3 rounds in case the bandwidth was overestimated ("Drain").
const DRAIN_ROUNDS_MAX: u64 = 3;
/// `BBR.ExtraAckedFilterLen`; one round in Startup.
const EXTRA_ACKED_FILTER_ROUNDS: u64 = 10;

/// BBR version 3.
pub struct Bbr3 {
    probe_rtt_us: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum BbrState {
    Startup,
    Drain,
    ProbeBwDown,
    ProbeBwCruise,
    ProbeBwRefill,
    ProbeBwUp,
    ProbeRtt(ProbeRttEpisode),
}

/// Phase of the ACKs currently arriving (`BBR.ack_phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Ordinary,
    Starting,
    Feedback,
    Stopping,
}

/// State before a reaction to losses, restored if they were spurious.
#[derive(Clone, Copy, Debug, Default)]
struct Undo {
    bounds: Bounds,
    from_startup: bool,
    from_probe_bw_up: bool,
}

/// Values installed in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InstalledValues {
    cap: u64,
    cap_bw: u64,
    bonus: u64,
    probing: u64,
}

/// A flow's model of its path.
pub struct Bbr3Flow {
    mss: u64,
    pub(super) state: BbrState,
    ack_phase: AckPhase,
    rng: SplitMix64,
    last_report: BbrReport,
    /// Maximum bandwidth of the previous and the current probing cycle (`BBR.max_bw_filter`).
    max_bw_filter: [u64; 2],
    installed_bw: u64,
    min_rtt: MinRtt,
    extra_acked: MaxFilter,
    full_pipe: FullPipe,
    full_bw_reached: bool,
    bounds: Bounds,
    undo: Undo,
    /// Loss round: in progress, ACKs with losses in it, and the total lost or marked before it.
    in_loss_round: bool,
    losses: u64,
    lost_before: u64,
    /// `BBR.bw_latest` and `BBR.inflight_latest`.
    latest: (u64, u64),
    /// Data in flight at the start of this round, and the total lost or marked until then.
    round_inflight: u64,
    round_lost: u64,
    /// Round in which the state began. Its first packets are acknowledged one round later.
    state_start_round: u64,
    /// `BBR.cycle_stamp`, `BBR.bw_probe_wait` and `BBR.rounds_since_probe_up`.
    cycle_stamp_us: u64,
    bw_probe_wait_us: u64,
    rounds_since_probe_up: u64,
    /// `BBR.bw_probe_up_rounds`.
    bw_probe_up_rounds: u32,
    /// `BBR.is_bw_probe_sample`, `BBR.prev_probe_too_high` and `BBR.prev_probe_precautionary`.
    is_bw_probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    initial_pacing: InitialPacing,
    installed: InstalledValues,
}

impl Bbr3Flow {
    pub(super) fn new(mss: u64, dice: SplitMix64, probe_rtt_us: u64) -> Bbr3Flow {
        Bbr3Flow {
            mss: mss.max(1),
            state: BbrState::Startup,
            ack_phase: AckPhase::Ordinary,
            rng: dice,
            last_report: BbrReport::default(),
            max_bw_filter: [0; 2],
            installed_bw: 0,
            min_rtt: MinRtt::new(probe_rtt_us),
            extra_acked: MaxFilter::new(1),
            full_pipe: FullPipe::default(),
            full_bw_reached: false,
            bounds: Bounds::default(),
            undo: Undo::default(),
            in_loss_round: false,
            losses: 0,
            lost_before: 0,
            latest: (0, 0),
            round_inflight: 0,
            round_lost: 0,
            state_start_round: 0,
            cycle_stamp_us: 0,
            bw_probe_wait_us: 0,
            rounds_since_probe_up: 0,
            bw_probe_up_rounds: 0,
            is_bw_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            initial_pacing: InitialPacing::new(STARTUP_PACING_GAIN),
            installed: InstalledValues {
                cap: UNBOUNDED,
                cap_bw: UNBOUNDED,
                bonus: 0,
                probing: 1,
            },
        }
    }
}

impl Algorithm for Bbr3 {
    type Flow = Bbr3Flow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new()
            .with("bbr3", program_source(true))
            .with("unmarked", program_source(false))
    }

    fn required_capabilities(&self) -> Capabilities {
        REQUIRED_CAPABILITIES
    }

    /// BBR paces at its own rate, so an idle period is not followed by a burst.
    fn requested_capabilities(&self) -> Capabilities {
        self.required_capabilities()
            .union(Capabilities::KEEPS_WINDOW)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Bbr3Flow {
        let dice = control
            .flow_id()
            .map_or(SplitMix64(0), SplitMix64::for_flow);
        let marks = Capabilities::ECN
            .missing_from(control.capabilities())
            .is_empty();
        control.set_program(if marks { "bbr3" } else { "unmarked" }, &[]);
        let mut flow = Bbr3Flow::new(info.mss.get(), dice, self.probe_rtt_us);
        flow.initial_pacing.on_open(info, control);
        flow
    }

    fn on_report(&mut self, flow: &mut Bbr3Flow, report: &Report<'_>, control: &mut Control<'_>) {
        if let Some(seen) = BbrReport::read(report.fields()) {
            flow.decide(&seen, control);
        }
    }
}

impl Bbr3Flow {
    /// `UpdateModelAndState` ("Per-ACK Steps"), report by report.
    pub(super) fn decide(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        let rounds = report.rounds.saturating_sub(self.last_report.rounds);
        self.initial_pacing.on_report(report, self.mss, sink);
        self.measure(report, rounds);
        self.note_losses(report);
        if report.events.has(ReportEvents::UNDO) {
            self.handle_spurious_loss(report, sink);
        }
        self.check_full_bw_reached(report, rounds, sink);
        self.check_startup_and_drain_done(report, sink);
        if self.full_bw_reached && !self.adapt_long_term_model(report, rounds, sink) {
            self.update_probe_bw_cycle_phase(report, rounds, sink);
        }
        self.check_probe_rtt(report, sink);
        if rounds > 0 {
            (self.round_inflight, self.round_lost) = (report.inflight, lost_or_marked(report));
        }
        self.install_values(report, sink);
        self.last_report = *report;
    }

    fn max_bw(&self) -> u64 {
        self.max_bw_filter[0].max(self.max_bw_filter[1])
    }

    /// `BBR.bdp`, bytes. Ten segments before the first RTT sample, when it is not used.
    fn bdp(&self) -> u64 {
        if self.min_rtt.us == INFINITY {
            return self.mss.saturating_mul(10);
        }
        volume(self.max_bw().min(self.bounds.bw_shortterm), self.min_rtt.us)
    }

    /// `UpdateMaxBw`, `UpdateACKAggregation` and `UpdateLatestDeliverySignals`.
    fn measure(&mut self, report: &BbrReport, rounds: u64) {
        self.max_bw_filter[1] = self.max_bw_filter[1].max(report.bw);
        self.installed_bw = self.installed_bw.max(report.bw);
        self.rounds_since_probe_up = self.rounds_since_probe_up.saturating_add(rounds);
        self.extra_acked.set_window(if self.full_bw_reached {
            EXTRA_ACKED_FILTER_ROUNDS
        } else {
            1
        });
        self.extra_acked.update(report.rounds, report.extra_acked);
        // A round without losses or marks restarts the measurement. Otherwise it continues to the
        // end of the loss round.
        if rounds > 0 && !self.in_loss_round {
            self.latest = (0, 0);
        }
        self.latest.0 = self.latest.0.max(report.losses.bw_latest);
        self.latest.1 = self.latest.1.max(report.losses.inflight_latest);
    }

    /// `NoteLoss`, and `AdaptLowerBoundsFromCongestion` at the end of a loss round ("When not
    /// Probing for Bandwidth"). A CE mark counts as a loss ("ECN").
    fn note_losses(&mut self, report: &BbrReport) {
        let new = lost_or_marked(report) > lost_or_marked(&self.last_report);
        if new && !self.in_loss_round {
            self.in_loss_round = true;
            self.losses = 0;
            self.lost_before = lost_or_marked(&self.last_report);
            self.undo = Undo {
                bounds: self.bounds,
                ..Undo::default()
            };
        }
        self.losses = self.losses.saturating_add(u64::from(new));
        if self.in_loss_round && report.losses.rounds > self.last_report.losses.rounds {
            let probing = matches!(
                self.state,
                BbrState::Startup | BbrState::ProbeBwRefill | BbrState::ProbeBwUp
            );
            if !probing {
                let (bw, volume) = self.latest;
                self.bounds
                    .adapt_lower_bounds(self.max_bw(), report.cwnd, bw, volume);
            } else if matches!(self.state, BbrState::Startup) {
                self.check_startup_high_loss(report);
            }
            self.in_loss_round = false;
            self.latest = (0, 0);
        }
    }

    /// `CheckStartupHighLoss` ("Exiting Startup Based on Packet Loss"): a loss round ended with
    /// more than 2 % lost, detected by at least six ACKs.
    fn check_startup_high_loss(&mut self, report: &BbrReport) {
        let lost = lost_or_marked(report).saturating_sub(self.lost_before);
        if self.losses >= STARTUP_FULL_LOSS_COUNT && is_inflight_too_high(lost, self.round_inflight)
        {
            self.undo.from_startup = true;
            self.full_bw_reached = true;
            self.bounds.inflight_longterm = self.bdp().max(self.latest.1);
        }
    }

    /// `HandleSpuriousLossDetection` ("Handling a Spurious Loss Recovery").
    fn handle_spurious_loss(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        let Undo {
            bounds,
            from_startup,
            from_probe_bw_up: from_up,
        } = self.undo;
        self.in_loss_round = false;
        self.full_pipe = FullPipe::default();
        self.bounds.undo(&bounds);
        let dips = matches!(self.state, BbrState::ProbeRtt(_));
        if from_startup {
            self.full_bw_reached = false;
            sink.set_variable("full", 0);
            if !dips {
                self.reenter_startup(sink);
            }
        } else if from_up && !dips && !matches!(self.state, BbrState::ProbeBwUp) {
            self.start_probe_bw_refill(report, sink);
        }
        (self.undo.from_startup, self.undo.from_probe_bw_up) = (false, false);
    }

    fn check_full_bw_reached(
        &mut self,
        report: &BbrReport,
        rounds: u64,
        sink: &mut impl ControlSink,
    ) {
        let accelerates = matches!(self.state, BbrState::Startup | BbrState::ProbeBwUp);
        if rounds > 0 && report.bw > 0 && accelerates {
            self.full_pipe.update(report.bw, rounds);
            self.full_bw_reached |= self.full_pipe.full_bw_now;
        }
        if self.full_bw_reached && matches!(self.state, BbrState::Startup) {
            sink.set_variable("full", 1);
        }
    }

    /// `CheckStartupDone` and `CheckDrainDone`.
    fn check_startup_and_drain_done(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        match self.state {
            BbrState::Startup if self.full_bw_reached => {
                self.state = BbrState::Drain;
                self.state_start_round = report.rounds;
                sink.set_variable("gain", paced(DRAIN_PACING_GAIN));
                sink.set_variable("draining", UNBOUNDED);
            }
            BbrState::Drain
                if report.events.has(ReportEvents::QUEUE_DRAINED)
                    || report.rounds > self.state_start_round + DRAIN_ROUNDS_MAX =>
            {
                self.start_probe_bw_down(report, sink);
            }
            _ => {}
        }
    }

    fn reenter_startup(&mut self, sink: &mut impl ControlSink) {
        self.state = BbrState::Startup;
        self.full_pipe = FullPipe::default();
        sink.set_variable("gain", paced(STARTUP_PACING_GAIN));
        sink.set_variable("cwnd_gain", DEFAULT_CWND_GAIN);
        sink.set_variable("draining", 0);
    }

    /// `UpdateMinRTT` and `CheckProbeRTT` ("ProbeRTT Logic").
    fn check_probe_rtt(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        let before = self.min_rtt.us;
        // Uses the RTT before it expires. With a standing queue, a new RTT would make ProbeRTT's
        // window too large to drain it.
        let dip_window = scale(self.bdp(), PROBE_RTT_CWND_GAIN, GAIN_UNIT)
            .max(self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS));
        let expired = self.min_rtt.update(report.rtt, report.now_us);
        if self.min_rtt.us > before {
            sink.set_variable("min_rtt", self.min_rtt.us);
        }
        let idle = report.events.has(ReportEvents::IDLE)
            || self.last_report.events.has(ReportEvents::IDLE);
        if let BbrState::ProbeRtt(dip) = &mut self.state {
            if dip.is_done(report.inflight, report.rounds, report.now_us) {
                let before = dip.prior_cwnd;
                self.exit_probe_rtt(before, report, sink);
            }
        } else if expired && !idle {
            self.state =
                BbrState::ProbeRtt(ProbeRttEpisode::new(dip_window, report.cwnd, report.rounds));
            self.ack_phase = AckPhase::Stopping;
            self.state_start_round = report.rounds;
            sink.set_variable("gain", UNITY_PACING_GAIN);
            sink.set_variable("draining", 0);
        }
    }

    /// `ExitProbeRTT` ("Exiting ProbeRTT").
    fn exit_probe_rtt(&mut self, window: u64, report: &BbrReport, sink: &mut impl ControlSink) {
        self.min_rtt.renew(report.now_us);
        self.bounds.reset_short_term_model();
        sink.set_window(window.max(report.cwnd));
        if self.full_bw_reached {
            self.start_probe_bw_down(report, sink);
            self.start_probe_bw_cruise(sink);
        } else {
            self.reenter_startup(sink);
        }
    }

    /// `BoundCwndForModel` ("Bounding cwnd Based on Recent Congestion").
    fn bound_cwnd_for_model(&self) -> u64 {
        let cap = match self.state {
            BbrState::Startup | BbrState::Drain => UNBOUNDED,
            BbrState::ProbeBwDown | BbrState::ProbeBwRefill | BbrState::ProbeBwUp => {
                self.bounds.inflight_longterm
            }
            BbrState::ProbeBwCruise => self.bounds.inflight_with_headroom(self.mss),
            BbrState::ProbeRtt(dip) => dip.window.min(self.bounds.inflight_with_headroom(self.mss)),
        };
        cap.min(self.bounds.inflight_shortterm)
            .max(self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
    }

    /// Sends the values that changed.
    fn install_values(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        // Every ACK with losses matters in Startup and while probing. A precautionary probe
        // ("Precautionary Bandwidth Probing") ends at the data in flight at which the last probe
        // lost too much.
        let probing = match self.state {
            BbrState::ProbeBwUp
                if self.prev_probe_too_high && self.bounds.inflight_longterm < UNBOUNDED =>
            {
                2
            }
            BbrState::Startup => 1,
            _ => u64::from(self.is_bw_probe_sample),
        };
        let told = InstalledValues {
            cap: self.bound_cwnd_for_model(),
            cap_bw: self.bounds.bw_shortterm,
            bonus: self.extra_acked.get().min(report.cwnd),
            probing,
        };
        for (name, new, old) in [
            ("cap", told.cap, self.installed.cap),
            ("cap_bw", told.cap_bw, self.installed.cap_bw),
            ("bonus", told.bonus, self.installed.bonus),
            ("probing", told.probing, self.installed.probing),
        ] {
            if new != old {
                sink.set_variable(name, new);
            }
        }
        self.installed = told;
        if self.max_bw() != self.installed_bw {
            self.installed_bw = self.max_bw();
            sink.set_variable("max_bw", self.installed_bw);
        }
    }
}

/// Returns the total lost or marked, bytes.
fn lost_or_marked(report: &BbrReport) -> u64 {
    report.lost.saturating_add(report.losses.ce_marked)
}

/// `IsInflightTooHigh` ("Probing for Bandwidth In ProbeBW").
fn is_inflight_too_high(lost: u64, flight: u64) -> bool {
    lost > scale(flight, LOSS_THRESH.0, LOSS_THRESH.1)
}

/// Returns the program, which also measures loss rounds: from the first loss until data sent after
/// it is acknowledged. `marks`: the datapath counts ECN marks.
fn program_source(marks: bool) -> String {
    let stopped = ReportEvents::PROBE_STOPPED;
    let (marked_bytes, marked_packets) = if marks {
        ("Ack.ecn_bytes", "Ack.ecn_packets")
    } else {
        ("0", "0")
    };
    let down = paced(PROBE_DOWN_PACING_GAIN);
    program::program_source(&Version {
        gains: (paced(STARTUP_PACING_GAIN), DEFAULT_CWND_GAIN),
        report: "
        (loss_rounds 0) (volatile latest 0) (volatile volume 0) (marked 0)",
        control: " (probing 1)",
        sample: format!(
            "
    (:= Report.latest (max Report.latest bw))
    (if (< Flow.rtt_sample_us +infinity)
        (:= Report.volume (max Report.volume (/ (* bw Flow.rtt_sample_us) 1000000))))
    (:= Report.marked (+ Report.marked {marked_bytes}))"
        ),
        clauses: format!(
            "
# A loss round starts with the first loss and ends when the data in flight at that time is
# acknowledged or lost.
(when (&& (> loss_end 0) (> (+ Report.delivered Report.lost) loss_end))
    (:= loss_end 0)
    (:= Report.loss_rounds (+ Report.loss_rounds 1))
    (report)
    (fallthrough))
(when (> (+ Ack.lost_pkts_sample {marked_packets}) 0)
    (if (== loss_end 0) (:= loss_end (+ Report.delivered Report.lost Flow.bytes_in_flight)))
    (if (> probing 0) (report))
    (fallthrough))
# A cautious probe has reached the volume at which the last one lost too much.
(when (&& (== probing 2) (>= Report.flight cap))
    (:= probing 1)
    (:= gain {down})
    (:= Report.events (+ Report.events {stopped}))
    (report)
    (fallthrough))"
        ),
        drained: "(max bdp budget)",
        target: "(+ (max (+ (/ (* bdp cwnd_gain) 10000) bonus) budget) \
                 (if (> cwnd_gain 20000) (* 2 Flow.mss) 0))",
        cwnd_after_loss: "Cwnd",
        repair: "",
        conserve: "",
    })
}
