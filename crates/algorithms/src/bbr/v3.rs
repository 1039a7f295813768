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

use super::filter::MaxFilter;
use super::full_pipe::FullPipe;
use super::min_rtt::{MinRtt, ProbeRttEpisode};
use super::model3::{Bounds, LOSS_THRESH};
use super::program::{self, Version};
use super::seen::{BbrReport, ReportEvents};
use super::start::Start;
use super::{
    ControlSink, Dice, GAIN_UNIT, MIN_PIPE_CWND_SEGMENTS, PROBE_RTT_INTERVAL,
    REQUIRED_CAPABILITIES, UNBOUNDED, UNITY_PACING_GAIN, paced, probe_rtt_us, scale, volume,
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
    Down,
    Cruise,
    Refill,
    Up,
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
    from_up: bool,
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
    acks: AckPhase,
    dice: Dice,
    last: BbrReport,
    /// Maximum bandwidth of the previous and the current probing cycle (`BBR.max_bw_filter`).
    bandwidth: [u64; 2],
    told_bw: u64,
    min_rtt: MinRtt,
    extra: MaxFilter,
    pipe: FullPipe,
    full: bool,
    bounds: Bounds,
    undo: Undo,
    /// Loss round: in progress, ACKs with losses in it, and the total lost or marked before it.
    losing: bool,
    losses: u64,
    lost_before: u64,
    /// `BBR.bw_latest` and `BBR.inflight_latest`.
    latest: (u64, u64),
    /// Data in flight at the start of this round, and the total lost or marked until then.
    round_flight: u64,
    round_lost: u64,
    /// Round in which the state began. Its first packets are acknowledged one round later.
    since_round: u64,
    /// `BBR.cycle_stamp`, `BBR.bw_probe_wait` and `BBR.rounds_since_probe_up`.
    cycle_us: u64,
    wait_us: u64,
    rounds_since_up: u64,
    /// `BBR.bw_probe_up_rounds`.
    up_rounds: u32,
    /// `BBR.is_bw_probe_sample`, `BBR.prev_probe_too_high` and `BBR.prev_probe_precautionary`.
    probe_sample: bool,
    too_high: bool,
    precautionary: bool,
    start: Start,
    told: InstalledValues,
}

impl Bbr3Flow {
    pub(super) fn new(mss: u64, dice: Dice, probe_rtt_us: u64) -> Bbr3Flow {
        Bbr3Flow {
            mss: mss.max(1),
            state: BbrState::Startup,
            acks: AckPhase::Ordinary,
            dice,
            last: BbrReport::default(),
            bandwidth: [0; 2],
            told_bw: 0,
            min_rtt: MinRtt::new(probe_rtt_us),
            extra: MaxFilter::new(1),
            pipe: FullPipe::default(),
            full: false,
            bounds: Bounds::default(),
            undo: Undo::default(),
            losing: false,
            losses: 0,
            lost_before: 0,
            latest: (0, 0),
            round_flight: 0,
            round_lost: 0,
            since_round: 0,
            cycle_us: 0,
            wait_us: 0,
            rounds_since_up: 0,
            up_rounds: 0,
            probe_sample: false,
            too_high: false,
            precautionary: false,
            start: Start::with(STARTUP_PACING_GAIN),
            told: InstalledValues {
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
            .with("bbr3", text(true))
            .with("unmarked", text(false))
    }

    fn needs(&self) -> Capabilities {
        REQUIRED_CAPABILITIES
    }

    /// BBR paces at its own rate, so an idle period is not followed by a burst.
    fn wants(&self) -> Capabilities {
        self.needs().with(Capabilities::KEEPS_WINDOW)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Bbr3Flow {
        let dice = control.this().map_or(Dice(0), Dice::of);
        let marks = Capabilities::ECN
            .missing_from(control.capabilities())
            .is_empty();
        control.program(if marks { "bbr3" } else { "unmarked" }, &[]);
        let mut flow = Bbr3Flow::new(info.mss.get(), dice, self.probe_rtt_us);
        flow.start.open(info, control);
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
    pub(super) fn decide(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        let rounds = seen.rounds.saturating_sub(self.last.rounds);
        self.start.see(seen, self.mss, orders);
        self.measure(seen, rounds);
        self.note_losses(seen);
        if seen.events.has(ReportEvents::UNDO) {
            self.take_back(seen, orders);
        }
        self.check_full(seen, rounds, orders);
        self.check_start_and_drain(seen, orders);
        if self.full && !self.adapt_long_term(seen, rounds, orders) {
            self.probe_bandwidth(seen, rounds, orders);
        }
        self.check_rtt(seen, orders);
        if rounds > 0 {
            (self.round_flight, self.round_lost) = (seen.flight, troubles(seen));
        }
        self.tell(seen, orders);
        self.last = *seen;
    }

    fn max_bw(&self) -> u64 {
        self.bandwidth[0].max(self.bandwidth[1])
    }

    /// `BBR.bdp`, bytes. Ten segments before the first RTT sample, when it is not used.
    fn bdp(&self) -> u64 {
        if self.min_rtt.us == INFINITY {
            return self.mss.saturating_mul(10);
        }
        volume(self.max_bw().min(self.bounds.bw_short), self.min_rtt.us)
    }

    /// `UpdateMaxBw`, `UpdateACKAggregation` and `UpdateLatestDeliverySignals`.
    fn measure(&mut self, seen: &BbrReport, rounds: u64) {
        self.bandwidth[1] = self.bandwidth[1].max(seen.bw);
        self.told_bw = self.told_bw.max(seen.bw);
        self.rounds_since_up = self.rounds_since_up.saturating_add(rounds);
        self.extra.set_window(if self.full {
            EXTRA_ACKED_FILTER_ROUNDS
        } else {
            1
        });
        self.extra.update(seen.rounds, seen.extra);
        // A round without losses or marks restarts the measurement. Otherwise it continues to the
        // end of the loss round.
        if rounds > 0 && !self.losing {
            self.latest = (0, 0);
        }
        self.latest.0 = self.latest.0.max(seen.losses.bw);
        self.latest.1 = self.latest.1.max(seen.losses.volume);
    }

    /// `NoteLoss`, and `AdaptLowerBoundsFromCongestion` at the end of a loss round ("When not
    /// Probing for Bandwidth"). A CE mark counts as a loss ("ECN").
    fn note_losses(&mut self, seen: &BbrReport) {
        let new = troubles(seen) > troubles(&self.last);
        if new && !self.losing {
            self.losing = true;
            self.losses = 0;
            self.lost_before = troubles(&self.last);
            self.undo = Undo {
                bounds: self.bounds,
                ..Undo::default()
            };
        }
        self.losses = self.losses.saturating_add(u64::from(new));
        if self.losing && seen.losses.rounds > self.last.losses.rounds {
            let probing = matches!(
                self.state,
                BbrState::Startup | BbrState::Refill | BbrState::Up
            );
            if !probing {
                let (bw, volume) = self.latest;
                self.bounds.shorten(self.max_bw(), seen.window, bw, volume);
            } else if matches!(self.state, BbrState::Startup) {
                self.check_start_losses(seen);
            }
            self.losing = false;
            self.latest = (0, 0);
        }
    }

    /// `CheckStartupHighLoss` ("Exiting Startup Based on Packet Loss"): a loss round ended with
    /// more than 2 % lost, detected by at least six ACKs.
    fn check_start_losses(&mut self, seen: &BbrReport) {
        let lost = troubles(seen).saturating_sub(self.lost_before);
        if self.losses >= STARTUP_FULL_LOSS_COUNT && is_too_much(lost, self.round_flight) {
            self.undo.from_startup = true;
            self.full = true;
            self.bounds.long = self.bdp().max(self.latest.1);
        }
    }

    /// `HandleSpuriousLossDetection` ("Handling a Spurious Loss Recovery").
    fn take_back(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        let Undo {
            bounds,
            from_startup,
            from_up,
        } = self.undo;
        self.losing = false;
        self.pipe = FullPipe::default();
        self.bounds.undo(&bounds);
        let dips = matches!(self.state, BbrState::ProbeRtt(_));
        if from_startup {
            self.full = false;
            orders.set("full", 0);
            if !dips {
                self.start_again(orders);
            }
        } else if from_up && !dips && !matches!(self.state, BbrState::Up) {
            self.refill(seen, orders);
        }
        (self.undo.from_startup, self.undo.from_up) = (false, false);
    }

    fn check_full(&mut self, seen: &BbrReport, rounds: u64, orders: &mut impl ControlSink) {
        let accelerates = matches!(self.state, BbrState::Startup | BbrState::Up);
        if rounds > 0 && seen.bw > 0 && accelerates {
            self.pipe.update(seen.bw, rounds);
            self.full |= self.pipe.now;
        }
        if self.full && matches!(self.state, BbrState::Startup) {
            orders.set("full", 1);
        }
    }

    /// `CheckStartupDone` and `CheckDrainDone`.
    fn check_start_and_drain(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        match self.state {
            BbrState::Startup if self.full => {
                self.state = BbrState::Drain;
                self.since_round = seen.rounds;
                orders.set("gain", paced(DRAIN_PACING_GAIN));
                orders.set("draining", UNBOUNDED);
            }
            BbrState::Drain
                if seen.events.has(ReportEvents::QUEUE_DRAINED)
                    || seen.rounds > self.since_round + DRAIN_ROUNDS_MAX =>
            {
                self.down(seen, orders);
            }
            _ => {}
        }
    }

    fn start_again(&mut self, orders: &mut impl ControlSink) {
        self.state = BbrState::Startup;
        self.pipe = FullPipe::default();
        orders.set("gain", paced(STARTUP_PACING_GAIN));
        orders.set("cwnd_gain", DEFAULT_CWND_GAIN);
        orders.set("draining", 0);
    }

    /// `UpdateMinRTT` and `CheckProbeRTT` ("ProbeRTT Logic").
    fn check_rtt(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        let before = self.min_rtt.us;
        // Uses the RTT before it expires. With a standing queue, a new RTT would make ProbeRTT's
        // window too large to drain it.
        let dip_window = scale(self.bdp(), PROBE_RTT_CWND_GAIN, GAIN_UNIT)
            .max(self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS));
        let expired = self.min_rtt.update(seen.rtt, seen.now);
        if self.min_rtt.us > before {
            orders.set("min_rtt", self.min_rtt.us);
        }
        let idle = seen.events.has(ReportEvents::IDLE) || self.last.events.has(ReportEvents::IDLE);
        if let BbrState::ProbeRtt(dip) = &mut self.state {
            if dip.is_over(seen.flight, seen.rounds, seen.now) {
                let before = dip.before;
                self.end_probe_rtt(before, seen, orders);
            }
        } else if expired && !idle {
            self.state =
                BbrState::ProbeRtt(ProbeRttEpisode::new(dip_window, seen.window, seen.rounds));
            self.acks = AckPhase::Stopping;
            self.since_round = seen.rounds;
            orders.set("gain", UNITY_PACING_GAIN);
            orders.set("draining", 0);
        }
    }

    /// `ExitProbeRTT` ("Exiting ProbeRTT").
    fn end_probe_rtt(&mut self, window: u64, seen: &BbrReport, orders: &mut impl ControlSink) {
        self.min_rtt.renew(seen.now);
        self.bounds.forget_short();
        orders.window(window.max(seen.window));
        if self.full {
            self.down(seen, orders);
            self.cruise(orders);
        } else {
            self.start_again(orders);
        }
    }

    /// `BoundCwndForModel` ("Bounding cwnd Based on Recent Congestion").
    fn cap(&self) -> u64 {
        let cap = match self.state {
            BbrState::Startup | BbrState::Drain => UNBOUNDED,
            BbrState::Down | BbrState::Refill | BbrState::Up => self.bounds.long,
            BbrState::Cruise => self.bounds.with_headroom(self.mss),
            BbrState::ProbeRtt(dip) => dip.window.min(self.bounds.with_headroom(self.mss)),
        };
        cap.min(self.bounds.short)
            .max(self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
    }

    /// Sends the values that changed.
    fn tell(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        // Every ACK with losses matters in Startup and while probing. A precautionary probe
        // ("Precautionary Bandwidth Probing") ends at the data in flight at which the last probe
        // lost too much.
        let probing = match self.state {
            BbrState::Up if self.too_high && self.bounds.long < UNBOUNDED => 2,
            BbrState::Startup => 1,
            _ => u64::from(self.probe_sample),
        };
        let told = InstalledValues {
            cap: self.cap(),
            cap_bw: self.bounds.bw_short,
            bonus: self.extra.get().min(seen.window),
            probing,
        };
        for (name, new, old) in [
            ("cap", told.cap, self.told.cap),
            ("cap_bw", told.cap_bw, self.told.cap_bw),
            ("bonus", told.bonus, self.told.bonus),
            ("probing", told.probing, self.told.probing),
        ] {
            if new != old {
                orders.set(name, new);
            }
        }
        self.told = told;
        if self.max_bw() != self.told_bw {
            self.told_bw = self.max_bw();
            orders.set("max_bw", self.told_bw);
        }
    }
}

/// Returns the total lost or marked, bytes.
fn troubles(seen: &BbrReport) -> u64 {
    seen.lost.saturating_add(seen.losses.marked)
}

/// `IsInflightTooHigh` ("Probing for Bandwidth In ProbeBW").
fn is_too_much(lost: u64, flight: u64) -> bool {
    lost > scale(flight, LOSS_THRESH.0, LOSS_THRESH.1)
}

/// Returns the program, which also measures loss rounds: from the first loss until data sent after
/// it is acknowledged. `marks`: the datapath counts ECN marks.
fn text(marks: bool) -> String {
    let stopped = ReportEvents::PROBE_STOPPED;
    let (marked_bytes, marked_packets) = if marks {
        ("Ack.ecn_bytes", "Ack.ecn_packets")
    } else {
        ("0", "0")
    };
    let down = paced(PROBE_DOWN_PACING_GAIN);
    program::text(&Version {
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
        target: "(+ (max (+ (/ (* bdp cwnd_gain) 10000) bonus) budget) (if (> cwnd_gain 20000) (* 2 Flow.mss) 0))",
        kept: "Cwnd",
        repair: "",
        conserve: "",
    })
}
