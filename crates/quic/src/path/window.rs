//! Congestion window of a path, and its reductions.
//!
//! The rules are the same as in ccplane's transport (`crates/transport/src/send/recovery.rs`) and
//! its Linux datapath. A loss or a mark starts a reduction. Its target is half the window unless
//! the control sets another threshold, and proportional rate reduction (RFC 9937) moves the window
//! there. After persistent congestion the window falls to the minimum at once (RFC 9002, section
//! 7.6.2). A reduction that proves spurious is undone. Otherwise it ends when a packet sent after
//! its start is acknowledged (RFC 9002, section 7.3.2).

use ccplane_datapath::Outcome;
use ccplane_transport::{Prr, RecoveryPhase};

/// Minimum window, packets (RFC 9002, section 7.2).
const MINIMUM_WINDOW_PACKETS: u64 = 2;

/// Maximum window, bytes: 281 TB, so that sums of windows and packets fit into 64 bits.
const WINDOW_BYTES_MAX: u64 = 1 << 48;

/// Window, threshold and rate of a path.
#[derive(Clone, Debug)]
pub(crate) struct PathWindow {
    /// Largest packet, bytes.
    pub mss: u64,
    /// Current window, bytes.
    pub cwnd: u64,
    /// Slow-start threshold, bytes; `u64::MAX` before the first reduction.
    pub ssthresh: u64,
    /// Pacing rate set by the control, bytes/s; 0 if none.
    pub rate: u64,
    phase: RecoveryPhase,
    /// Window after the current reduction, bytes.
    target: u64,
    /// Order of the packet whose acknowledgement ends the reduction.
    recovery_end: u64,
    prr: Prr,
    /// Window and threshold before the reduction; `None` if there is nothing to undo.
    undo_state: Option<(u64, u64)>,
    /// Packets declared lost in the reduction, and how many of them arrived after all.
    lost_packets: u32,
    spurious_losses: u32,
    /// Set once the control has set a window since the last persistent congestion.
    window_set: bool,
    persistent_stage: PersistentStage,
    /// Window set by the control while it is withheld.
    requested_cwnd: Option<u64>,
}

/// Stage of persistent congestion in which the control's window is withheld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PersistentStage {
    Inactive,
    /// In the call that reports it.
    Reporting,
    /// From that call until the next ACK.
    Waiting,
}

/// Events of one call that affect the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowInput {
    /// Packets newly acknowledged and not counted by an earlier call.
    pub newly_acked: u32,
    /// "safeACK" of RFC 9937: the left edge advanced and nothing was lost.
    pub safe_ack: bool,
    /// Packets declared lost in this call.
    pub lost: u32,
    /// Packets and bytes in flight.
    pub in_flight: u32,
    pub bytes_in_flight: u64,
}

impl PathWindow {
    pub fn new(mss: u64, cwnd: u64) -> PathWindow {
        PathWindow {
            mss,
            cwnd,
            ssthresh: u64::MAX,
            rate: 0,
            phase: RecoveryPhase::Open,
            target: 0,
            recovery_end: 0,
            prr: Prr::default(),
            undo_state: None,
            lost_packets: 0,
            spurious_losses: 0,
            window_set: false,
            persistent_stage: PersistentStage::Inactive,
            requested_cwnd: None,
        }
    }

    /// Returns true from a loss or mark until its reduction ends.
    pub fn in_recovery(&self) -> bool {
        self.phase != RecoveryPhase::Open
    }

    /// Returns true during proportional rate reduction.
    pub fn is_reducing(&self) -> bool {
        matches!(
            self.phase,
            RecoveryPhase::Reduction | RecoveryPhase::Recovery
        )
    }

    /// Returns the window as the control sees and sets it: during a reduction, its target.
    pub fn control_cwnd(&self) -> u64 {
        if self.is_reducing() && self.prr.has_started() {
            self.clamp(self.target)
        } else {
            self.requested_cwnd
                .map_or(self.cwnd, |asked| self.clamp(asked))
        }
    }

    /// Sets the packet size; the window keeps its bytes.
    pub fn set_mss(&mut self, mss: u64) {
        self.mss = mss;
        self.set(self.cwnd);
    }

    /// Records that a packet was sent.
    pub fn on_sent(&mut self) {
        if self.is_reducing() {
            self.prr.on_sent();
        }
    }

    /// Records that a packet declared lost has arrived.
    pub fn on_spurious_loss(&mut self) {
        self.spurious_losses = self.spurious_losses.saturating_add(1);
    }

    /// Returns true if the loss of the packet with this order starts a reduction: none is in
    /// progress, and the packet was sent after the start of the last one.
    pub fn starts_reduction(&self, order: u64) -> bool {
        !self.in_recovery() && order >= self.recovery_end
    }

    /// Starts a reduction. `next` is the order of the next packet.
    pub fn start_reduction(&mut self, phase: RecoveryPhase, next: u64) {
        let half = (self.cwnd / 2 / self.mss).max(MINIMUM_WINDOW_PACKETS) * self.mss;
        self.undo_state = Some((self.cwnd, self.ssthresh));
        self.target = half;
        self.ssthresh = half;
        self.prr = Prr::default();
        (self.lost_packets, self.spurious_losses) = (0, 0);
        self.phase = phase;
        self.recovery_end = next;
        (self.persistent_stage, self.requested_cwnd) = (PersistentStage::Inactive, None);
    }

    /// Records packets declared lost during the reduction.
    pub fn on_lost(&mut self, packets: u32) {
        self.lost_packets = self.lost_packets.saturating_add(packets);
        if self.phase == RecoveryPhase::Reduction && packets > 0 {
            self.phase = RecoveryPhase::Recovery;
        }
    }

    /// Starts over after persistent congestion.
    pub fn on_persistent_congestion(&mut self, next: u64) {
        if !self.in_recovery() {
            self.start_reduction(RecoveryPhase::Loss, next);
        }
        self.phase = RecoveryPhase::Loss;
        self.recovery_end = next;
        self.window_set = false;
        self.persistent_stage = PersistentStage::Reporting;
        self.requested_cwnd = None;
    }

    /// Sets the minimum window after the control was called with persistent congestion, and
    /// overrides the control's own.
    pub fn enforce_min_window(&mut self) {
        if self.phase == RecoveryPhase::Loss {
            self.set(MINIMUM_WINDOW_PACKETS * self.mss);
            self.persistent_stage = PersistentStage::Waiting;
        }
    }

    /// Withholds the control's window until the first ACK after the one that revealed persistent
    /// congestion. Returns true if the outcome needs no further handling.
    fn withhold(&mut self, outcome: &Outcome, newly: u32) -> bool {
        if self.persistent_stage == PersistentStage::Inactive {
            return false;
        }
        if !outcome.clamped {
            self.requested_cwnd = outcome.cwnd.or(self.requested_cwnd);
        }
        if self.persistent_stage == PersistentStage::Reporting || newly == 0 {
            return true;
        }
        self.persistent_stage = PersistentStage::Inactive;
        let Some(asked) = self.requested_cwnd.take() else {
            return false;
        };
        self.window_set = true;
        self.set(asked);
        true
    }

    /// Ends the reduction if the acknowledged packet was sent after its start. The window becomes
    /// the target, rounded down to whole packets as in the reduction itself.
    pub fn on_acked(&mut self, order: u64) {
        if !self.in_recovery() || order < self.recovery_end {
            return;
        }
        if self.phase != RecoveryPhase::Loss {
            self.set(self.target / self.mss * self.mss);
        }
        self.phase = RecoveryPhase::Open;
    }

    /// Undoes the last reduction if it was spurious: all packets declared lost have arrived, or the
    /// stack reports it.
    pub fn undo(&mut self, reported_spurious: bool) -> bool {
        let all_wrong = self.lost_packets > 0 && self.spurious_losses >= self.lost_packets;
        if !(all_wrong || reported_spurious) {
            return false;
        }
        let Some((cwnd, ssthresh)) = self.undo_state.take() else {
            return false;
        };
        self.set(cwnd.max(self.cwnd));
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.phase = RecoveryPhase::Open;
        (self.persistent_stage, self.requested_cwnd) = (PersistentStage::Inactive, None);
        self.window_set = true;
        (self.lost_packets, self.spurious_losses) = (0, 0);
        true
    }

    /// Applies the control's outcome.
    pub fn apply(&mut self, outcome: &Outcome, input: &WindowInput) {
        self.rate = outcome.rate.unwrap_or(self.rate);
        if self.is_reducing() {
            return self.apply_reducing(outcome, input);
        }
        if let Some(ssthresh) = outcome.ssthresh {
            self.ssthresh = ssthresh.max(MINIMUM_WINDOW_PACKETS * self.mss);
        }
        if self.withhold(outcome, input.newly_acked) {
            return;
        }
        if let Some(cwnd) = outcome.cwnd {
            self.window_set |= !outcome.clamped;
            self.set(cwnd);
        }
        let unanswered = outcome.cwnd.is_none() || outcome.clamped;
        if self.phase == RecoveryPhase::Loss
            && unanswered
            && !self.window_set
            && self.cwnd < self.ssthresh
        {
            // Slow start up to the threshold, until the control sets a window.
            self.set((self.cwnd + u64::from(input.newly_acked) * self.mss).min(self.ssthresh));
        }
    }

    /// Applies the outcome during a reduction, in which the control sees and sets the window after
    /// it. The control may lower it, but not raise it, since a program that adds acknowledged bytes
    /// is not aware of the reduction. A control that sets an infinite threshold (BBR) does not use
    /// reductions; its window takes effect at once.
    fn apply_reducing(&mut self, outcome: &Outcome, input: &WindowInput) {
        let seen = self.control_cwnd();
        if let Some(ssthresh) = outcome.ssthresh {
            self.ssthresh = ssthresh.max(MINIMUM_WINDOW_PACKETS * self.mss);
        }
        if self.ssthresh == u64::MAX {
            self.target = outcome.cwnd.unwrap_or(seen);
            self.prr = Prr::default();
            return self.set(self.target);
        }
        match (outcome.cwnd, outcome.ssthresh) {
            (Some(cwnd), _) if cwnd < seen => {
                self.target = cwnd.max(MINIMUM_WINDOW_PACKETS * self.mss)
            }
            (None, Some(_)) => self.target = self.ssthresh,
            _ => {}
        }
        let target = u32::try_from(self.target / self.mss)
            .unwrap_or(u32::MAX)
            .max(1);
        let WindowInput {
            newly_acked: newly,
            safe_ack: safe,
            lost,
            in_flight: flying,
            ..
        } = *input;
        // RecoverFS includes the packets just declared lost (RFC 9937, section 6).
        match self.prr.window(target, flying, flying + lost, newly, safe) {
            Some(packets) => {
                let more = u64::from(packets.saturating_sub(flying)) * self.mss;
                self.set(input.bytes_in_flight + more);
            }
            // Losses in a separate call: the window shrinks with the packets in flight, so the room
            // granted by the preceding ACK is unchanged.
            None => self.set(self.cwnd.saturating_sub(u64::from(lost) * self.mss)),
        }
    }

    fn set(&mut self, cwnd: u64) {
        self.cwnd = self.clamp(cwnd);
    }

    fn clamp(&self, cwnd: u64) -> u64 {
        cwnd.clamp(MINIMUM_WINDOW_PACKETS * self.mss, WINDOW_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    fn brought(newly: u32, flying: u32) -> WindowInput {
        WindowInput {
            newly_acked: newly,
            safe_ack: false,
            lost: 0,
            in_flight: flying,
            bytes_in_flight: u64::from(flying) * MSS,
        }
    }

    /// First example of RFC 9937, section 7: the window follows the packets in flight down to the
    /// target without a burst.
    #[test]
    fn a_reduction_leads_the_window_to_the_threshold() {
        let mut window = PathWindow::new(MSS, 20 * MSS);
        window.start_reduction(RecoveryPhase::Recovery, 20);
        window.on_lost(1);
        let outcome = Outcome {
            ssthresh: Some(14 * MSS),
            ..Outcome::default()
        };
        let (mut flying, mut sent) = (19, 0);
        for ack in 0..18 {
            flying -= 1;
            let outcome = if ack == 0 {
                outcome
            } else {
                Outcome::default()
            };
            window.apply(&outcome, &brought(1, flying));
            let room = (window.cwnd / MSS) as u32 - flying;
            assert!(room <= 1, "a burst of {room}");
            (0..room).for_each(|_| window.on_sent());
            (flying, sent) = (flying + room, sent + room);
        }
        assert!(
            (13..=14).contains(&flying),
            "{flying} in flight, {sent} sent"
        );
        assert_eq!(window.control_cwnd(), 14 * MSS);
        window.on_acked(19);
        assert!(window.in_recovery());
        window.on_acked(20);
        assert_eq!((window.in_recovery(), window.cwnd), (false, 14 * MSS));
        assert!(!window.starts_reduction(19) && window.starts_reduction(20));
    }

    #[test]
    fn spurious_reductions_are_undone_once() {
        let mut window = PathWindow::new(MSS, 20 * MSS);
        window.start_reduction(RecoveryPhase::Recovery, 20);
        window.on_lost(2);
        window.on_spurious_loss();
        assert!(!window.undo(false));
        window.on_spurious_loss();
        assert!(window.undo(false));
        assert_eq!(
            (window.cwnd, window.ssthresh, window.in_recovery()),
            (20 * MSS, u64::MAX, false)
        );
        assert!(!window.undo(true), "nothing left to undo");
    }

    #[test]
    fn after_persistent_congestion_the_window_starts_over() {
        let mut window = PathWindow::new(MSS, 20 * MSS);
        window.on_persistent_congestion(20);
        window.enforce_min_window();
        assert_eq!((window.cwnd, window.ssthresh), (2 * MSS, 10 * MSS));
        window.apply(&Outcome::default(), &brought(4, 0));
        assert_eq!(window.cwnd, 6 * MSS);
        window.apply(&Outcome::default(), &brought(40, 0));
        assert_eq!(window.cwnd, 10 * MSS, "up to the threshold");
        let mut window = PathWindow::new(MSS, 20 * MSS);
        window.on_persistent_congestion(20);
        let outcome = Outcome {
            cwnd: Some(7 * MSS),
            ..Outcome::default()
        };
        // Persistent congestion is revealed by an ACK, which does not reflect the current state of
        // the path.
        window.apply(&outcome, &brought(1, 0));
        window.enforce_min_window();
        assert_eq!((window.cwnd, window.control_cwnd()), (2 * MSS, 7 * MSS));
        window.apply(&Outcome::default(), &brought(0, 2));
        assert_eq!(window.cwnd, 2 * MSS, "nothing was acknowledged");
        window.apply(&Outcome::default(), &brought(1, 1));
        assert_eq!((window.cwnd, window.control_cwnd()), (7 * MSS, 7 * MSS));
    }

    #[test]
    fn a_control_without_threshold_is_in_force_at_once() {
        let mut window = PathWindow::new(MSS, 20 * MSS);
        window.start_reduction(RecoveryPhase::Recovery, 20);
        let outcome = Outcome {
            cwnd: Some(17 * MSS),
            ssthresh: Some(u64::MAX),
            ..Outcome::default()
        };
        window.apply(&outcome, &brought(1, 18));
        assert_eq!(window.cwnd, 17 * MSS);
    }
}
