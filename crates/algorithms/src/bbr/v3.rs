//! BBR version 3, as in draft-ietf-ccwg-bbr-06. Functions, fields and constants have the draft's
//! names, and "section" without a document is one of the draft. The modules follow its sections:
//!
//! | section | module |
//! | --- | --- |
//! | 5.3.1 Startup | [`startup`] |
//! | 5.3.2 Drain | [`drain`] |
//! | 5.3.3 ProbeBW | [`probe_bw`] |
//! | 5.3.4 ProbeRTT | [`probe_rtt`] |
//! | 5.5 network path model | [`model`], [`bounds`] |
//! | 5.5.10 and 5.5.11 losses and spurious losses | [`congestion`] |
//! | 5.6 control parameters | [`control`], [`program`] |
//!
//! ```text
//! Startup ──full──> Drain ──drained──> Down ──drained──> Cruise
//! Down, Cruise ──time to probe──> Refill ──one round──> Up ──full, or too much loss──> Down
//! any state ──min RTT expired──> ProbeRtt ──200 ms and a round──> Cruise, or Startup until full
//! spurious loss ──> Refill if the loss ended Up, Startup if it ended Startup
//! ```

mod bounds;
mod congestion;
mod control;
mod drain;
mod model;
mod probe_bw;
mod probe_rtt;
mod program;
mod startup;
#[cfg(test)]
mod tests;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::Capabilities;

use bounds::Bounds;
use congestion::{Undo, lost_or_marked};
use control::{InstalledValues, STARTUP_PACING_GAIN};
use program::program_source;

use super::full_pipe::FullPipe;
use super::initial_pacing::InitialPacing;
use super::max_filter::MaxFilter;
use super::min_rtt::{MinRtt, ProbeRttEpisode};
use super::report::{BbrReport, ReportEvents};
use super::{
    ControlSink, PROBE_RTT_INTERVAL, REQUIRED_CAPABILITIES, SplitMix64, UNBOUNDED, probe_rtt_us,
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

/// BBR.ack_phase (section 2.14): meaning of the ACKs that arrive now for the bandwidth probing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// A flow's model of its path.
pub struct Bbr3Flow {
    mss: u64,
    pub(super) state: BbrState,
    ack_phase: AckPhase,
    rng: SplitMix64,
    last_report: BbrReport,
    /// Maximum bandwidth of the previous and the current probing cycle (section 2.11).
    max_bw_filter: [u64; 2],
    installed_bw: u64,
    min_rtt: MinRtt,
    extra_acked_filter: MaxFilter,
    full_pipe: FullPipe,
    full_bw_reached: bool,
    bounds: Bounds,
    undo: Undo,
    /// A loss round is in progress.
    is_loss_in_round: bool,
    /// ACKs with losses in the loss round.
    loss_events_in_round: u64,
    /// Total lost or marked before the loss round, bytes.
    loss_round_start_lost: u64,
    /// Maxima of the last round: delivery rate, bytes/s, and delivered volume, bytes (section
    /// 2.10).
    bw_latest: u64,
    inflight_latest: u64,
    /// RS.tx_in_flight and P.lost of the packets that this round acknowledges (section 5.5.10.2):
    /// data in flight and the total lost or marked when the round began, bytes.
    tx_in_flight: u64,
    tx_lost: u64,
    /// Round in which the state began (StartRound, section 5.5.1). Its first packets are
    /// acknowledged one round later.
    state_start_round: u64,
    // ProbeBW state (section 2.14)
    cycle_stamp_us: u64,
    bw_probe_wait_us: u64,
    rounds_since_probe_up: u64,
    bw_probe_up_rounds: u32,
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
            ack_phase: AckPhase::Init,
            rng: dice,
            last_report: BbrReport::default(),
            max_bw_filter: [0; 2],
            installed_bw: 0,
            min_rtt: MinRtt::new(probe_rtt_us),
            extra_acked_filter: MaxFilter::new(1),
            full_pipe: FullPipe::default(),
            full_bw_reached: false,
            bounds: Bounds::default(),
            undo: Undo::default(),
            is_loss_in_round: false,
            loss_events_in_round: 0,
            loss_round_start_lost: 0,
            bw_latest: 0,
            inflight_latest: 0,
            tx_in_flight: 0,
            tx_lost: 0,
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
            .map_or(SplitMix64(0), ccplane_agent::rng::for_flow);
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
            flow.update_on_report(&seen, control);
        }
    }
}

impl Bbr3Flow {
    /// UpdateModelAndState and UpdateControlParameters (section 5.2.3), report by report.
    pub(super) fn update_on_report(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        let rounds = report.rounds.saturating_sub(self.last_report.rounds);
        self.initial_pacing.on_report(report, self.mss, sink);
        self.update_model(report, rounds);
        self.update_congestion_signals(report);
        if report.events.has(ReportEvents::UNDO) {
            self.handle_spurious_loss_detection(report, sink);
        }
        self.check_full_bw_reached(report, rounds, sink);
        // The draft calls CheckStartupDone first. Here Drain begins after CheckDrainDone: the
        // report that ends Startup precedes the program's first ACK in Drain, and thus cannot end
        // Drain.
        self.check_drain_done(report, sink);
        self.check_startup_done(report, sink);
        if self.full_bw_reached && !self.adapt_long_term_model(report, rounds, sink) {
            self.update_probe_bw_cycle_phase(report, rounds, sink);
        }
        self.check_probe_rtt(report, sink);
        if rounds > 0 {
            (self.tx_in_flight, self.tx_lost) = (report.inflight, lost_or_marked(report));
        }
        self.install_values(report, sink);
        self.last_report = *report;
    }
}
