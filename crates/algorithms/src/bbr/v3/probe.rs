//! Bandwidth probing: the states of ProbeBW, their transitions, and the long-term bound.

use super::{
    AckPhase, Bbr3Flow, BbrState, DEFAULT_CWND_GAIN, PROBE_DOWN_PACING_GAIN, PROBE_UP_CWND_GAIN,
    PROBE_UP_PACING_GAIN, is_too_much, troubles,
};
use crate::bbr::full_pipe::FullPipe;
use crate::bbr::seen::{BbrReport, ReportEvents};
use crate::bbr::{ControlSink, MIN_PIPE_CWND_SEGMENTS, UNBOUNDED, UNITY_PACING_GAIN, paced};

/// T_bbr is 2 to 3 s, and T_reno at most 62 or 63 rounds ("Design Considerations for Choosing
/// Constant Parameters"). Longer intervals find free bandwidth late. Shorter ones cause losses too
/// often for Reno and Cubic to reach their share.
const PROBE_WAIT_BASE_US: u64 = 2_000_000;
const PROBE_WAIT_RANDOM_US: u64 = 1_000_000;
const RENO_ROUNDS_MAX: u64 = 63;

impl Bbr3Flow {
    /// `AdaptLongTermModel` ("ProbeBW Algorithm Details"). Returns true if it changed the state.
    pub(super) fn adapt_long_term(
        &mut self,
        seen: &BbrReport,
        rounds: u64,
        orders: &mut impl ControlSink,
    ) -> bool {
        let probes = matches!(
            self.state,
            BbrState::Down | BbrState::Cruise | BbrState::Refill | BbrState::Up
        );
        let round_passed = rounds > 0 && seen.rounds > self.since_round;
        if self.acks == AckPhase::Starting && round_passed {
            self.acks = AckPhase::Feedback;
        }
        if self.acks == AckPhase::Stopping && round_passed {
            self.probe_sample = false;
            self.acks = AckPhase::Ordinary;
            if probes && seen.bw > 0 {
                // `AdvanceMaxBwFilter`
                self.bandwidth = [self.bandwidth[1], 0];
            }
            if probes && self.precautionary && !self.too_high {
                self.refill(seen, orders);
                return true;
            }
        }
        let lost = troubles(seen).saturating_sub(self.round_lost);
        if is_too_much(lost, self.round_flight) {
            return self.probe_sample && self.handle_too_high(seen, orders);
        }
        if self.bounds.long < UNBOUNDED && rounds > 0 {
            self.bounds.long = self.bounds.long.max(self.round_flight);
            if matches!(self.state, BbrState::Up) && self.is_limited_by_long_term(seen) {
                self.raise_long_term();
            }
        }
        false
    }

    /// `HandleInflightTooHigh` ("Probing for Bandwidth In ProbeBW"). The data in flight when the
    /// lost packets were sent is that at the start of the round.
    fn handle_too_high(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) -> bool {
        self.too_high = true;
        self.probe_sample = false;
        let target = self.bdp().min(seen.window);
        self.bounds.too_high(self.round_flight, target);
        if matches!(self.state, BbrState::Up) {
            self.undo.from_up = true;
            self.down(seen, orders);
            return true;
        }
        false
    }

    /// Returns true if the flow fills its window and the long-term bound limits that window.
    fn is_limited_by_long_term(&self, seen: &BbrReport) -> bool {
        let used = seen
            .flight
            .saturating_add(self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
            >= seen.window;
        used && seen.window >= self.told.cap
    }

    /// `RaiseInflightLongtermSlope` and `ProbeInflightLongtermUpward`: by 1, 2, 4, … segments per
    /// round. The draft spreads them over the round; here the increase comes at its start.
    fn raise_long_term(&mut self) {
        let growth = self.mss.saturating_mul(1 << self.up_rounds);
        self.bounds.long = self.bounds.long.saturating_add(growth);
        self.up_rounds = (self.up_rounds + 1).min(30);
    }

    /// `UpdateProbeBWCyclePhase` ("ProbeBW Algorithm Details").
    pub(super) fn probe_bandwidth(
        &mut self,
        seen: &BbrReport,
        rounds: u64,
        orders: &mut impl ControlSink,
    ) {
        match self.state {
            BbrState::Down | BbrState::Cruise if self.is_time_to_probe(seen) => {
                self.refill(seen, orders)
            }
            BbrState::Down if seen.events.has(ReportEvents::QUEUE_DRAINED) => self.cruise(orders),
            BbrState::Refill if rounds > 0 && seen.rounds > self.since_round => {
                self.probe_sample = true;
                self.up(seen, orders);
            }
            BbrState::Up => {
                if seen.events.has(ReportEvents::PROBE_STOPPED) {
                    self.precautionary = true;
                    self.too_high = false;
                    self.down(seen, orders);
                } else if self.bounds.long < UNBOUNDED && self.is_limited_by_long_term(seen) {
                    self.pipe = FullPipe::from(seen.bw.max(self.last.bw));
                } else if self.pipe.now {
                    self.too_high = false;
                    self.down(seen, orders);
                }
            }
            _ => {}
        }
    }

    /// `IsTimeToProbeBW` ("Design Considerations for Choosing Constant Parameters"). `reno_rounds`
    /// is `IsRenoCoexistenceProbeTime`'s.
    fn is_time_to_probe(&self, seen: &BbrReport) -> bool {
        let reno_rounds = (self.bdp().min(seen.window) / self.mss).min(RENO_ROUNDS_MAX);
        seen.now > self.cycle_us.saturating_add(self.wait_us) || self.rounds_since_up >= reno_rounds
    }

    pub(super) fn down(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        self.losing = false;
        self.latest = (0, 0);
        self.pick_wait(seen);
        self.acks = AckPhase::Stopping;
        self.since_round = seen.rounds;
        self.state = BbrState::Down;
        orders.set("gain", paced(PROBE_DOWN_PACING_GAIN));
        orders.set("cwnd_gain", DEFAULT_CWND_GAIN);
        orders.set("draining", self.bounds.with_headroom(self.mss));
    }

    /// `PickProbeWait`.
    fn pick_wait(&mut self, seen: &BbrReport) {
        self.rounds_since_up = self.dice.below(2);
        self.wait_us = PROBE_WAIT_BASE_US + self.dice.below(PROBE_WAIT_RANDOM_US);
        self.cycle_us = seen.now;
    }

    pub(super) fn cruise(&mut self, orders: &mut impl ControlSink) {
        self.state = BbrState::Cruise;
        orders.set("gain", UNITY_PACING_GAIN);
        orders.set("draining", 0);
    }

    pub(super) fn refill(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        self.bounds.forget_short();
        self.up_rounds = 0;
        self.precautionary = false;
        self.acks = AckPhase::Ordinary;
        self.since_round = seen.rounds;
        self.state = BbrState::Refill;
        orders.set("gain", UNITY_PACING_GAIN);
        orders.set("draining", 0);
    }

    fn up(&mut self, seen: &BbrReport, orders: &mut impl ControlSink) {
        self.acks = AckPhase::Starting;
        self.pipe = FullPipe::from(seen.bw);
        self.since_round = seen.rounds;
        self.state = BbrState::Up;
        orders.set("gain", paced(PROBE_UP_PACING_GAIN));
        orders.set("cwnd_gain", PROBE_UP_CWND_GAIN);
    }
}
