//! Loss recovery: start and end of a reduction, and the undo of a spurious one.
//!
//! It behaves like ccplane's datapath in Linux (`crates/linux/bpf/recovery.h`). A loss, a mark or a
//! timeout starts a reduction, which lasts until everything sent before it is acknowledged. The
//! threshold is half the window unless the control sets another. Proportional rate reduction moves
//! the window to the threshold; after a timeout the window is one segment.
//!
//! The undo of a spurious reduction restores window and threshold. There are three proofs of a
//! spurious reduction. Every segment marked lost was delivered by a transmission before the mark,
//! according to the echo in ACKs (Eifel, RFC 3522). Every retransmission was a duplicate (DSACK,
//! RFC 3708). The first progress after a timeout is due to a transmission before it (F-RTO, RFC
//! 5682).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use ccplane_datapath::Outcome;
use ccplane_units::Time;

use crate::connection::{Connection, RecoveryPhase};
use crate::control::Ack;
use crate::number::SequenceNumber;
use crate::ranges::RangeSet;
use crate::send::lost_queue::LostQueue;
use crate::send::prr::Prr;
use crate::send::rack::Reordering;
use crate::stamps::LastExchange;

/// Recovery state, allocated at the first loss, mark or SACK and kept until the connection is idle.
#[derive(Clone, Debug)]
pub(crate) struct Repair {
    /// Ranges SACKed by the peer.
    pub sacked: RangeSet,
    /// Segments marked lost, in the order of retransmission.
    pub lost_queue: LostQueue,
    /// Retransmitted segments, the oldest first. Entries without `RETRANSMITTED_FLAG` are skipped.
    pub retransmitted: VecDeque<SequenceNumber>,
    pub prr: Prr,
    /// Window after the current repair, bytes.
    pub target: u64,
    pub clamp: WindowClamp,
    /// The control's window while it is withheld, bytes; 0 if the control has set none since.
    pub requested_window: u64,
    /// After an idle time: the maximum window now, and the window before, at which the restart
    /// ends.
    pub resume_limit: u64,
    pub resume_until: u64,
    /// RecoveryPoint: the repair ends when everything before this number is acknowledged.
    pub recovery_point: SequenceNumber,
    pub undo: Undo,
    pub reordering: Reordering,
    /// RACK's reordering timer: time of the next loss mark.
    pub reorder_deadline: Time,
    /// TLP.end_seq: the probe ends when everything before this number is acknowledged.
    pub tlp_end_seq: SequenceNumber,
    /// Segment that the probe retransmitted; equals `tlp_end_seq` if it sent new data.
    pub probe_segment: SequenceNumber,
    /// Boxed, as most connections have none. Stored inline, they made the simulation of a large fat
    /// tree 10 % slower.
    pub stamps: Option<Box<LastExchange>>,
}

/// Reason why the window in force is smaller than the control's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WindowClamp {
    /// The control's window is in force.
    #[default]
    Unclamped,
    /// After a timeout, until the first delivery: the window is one segment.
    Timeout,
    /// Restart after an idle time: the window grows by the delivered data.
    Idle,
}

/// State to detect and undo a spurious reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undo {
    /// Window and threshold before the reduction; 0 if there is nothing to undo.
    pub cwnd: u64,
    pub ssthresh: u64,
    /// Segments marked lost, and those of them that were delivered by a transmission before the
    /// mark.
    pub losses_marked: u32,
    pub spurious_marks: u32,
    /// Retransmissions minus reported duplicates, and reported duplicates.
    pub undo_retrans: u32,
    pub duplicates: u32,
    /// The first progress after a timeout was due to a transmission before it.
    pub early: bool,
}

impl Repair {
    pub fn new(next: SequenceNumber) -> Repair {
        Repair {
            sacked: RangeSet::default(),
            lost_queue: LostQueue::default(),
            retransmitted: VecDeque::new(),
            prr: Prr::default(),
            target: 0,
            clamp: WindowClamp::Unclamped,
            requested_window: 0,
            resume_limit: 0,
            resume_until: 0,
            recovery_point: next,
            undo: Undo::default(),
            reordering: Reordering::default(),
            reorder_deadline: Time::MAX,
            tlp_end_seq: next,
            probe_segment: next,
            stamps: None,
        }
    }

    pub fn heap_bytes(&self) -> usize {
        size_of::<Repair>()
            + self
                .stamps
                .as_ref()
                .map_or(0, |_| size_of::<LastExchange>())
            + self.sacked.heap_bytes()
            + self.lost_queue.heap_bytes()
            + self.retransmitted.capacity() * size_of::<SequenceNumber>()
    }
}

impl Connection {
    pub(crate) fn repair_mut(&mut self) -> &mut Repair {
        let next = self.flight.next();
        self.repair
            .get_or_insert_with(|| Box::new(Repair::new(next)))
    }

    /// Starts a reduction. The control may set another threshold in the call that follows.
    #[cold]
    pub(crate) fn begin_reduction(&mut self, phase: RecoveryPhase) {
        let (cwnd, ssthresh, next) = (self.cwnd, self.ssthresh, self.flight.next());
        debug_assert!(
            phase != RecoveryPhase::Open && self.phase <= phase,
            "{phase:?} after {:?}",
            self.phase
        );
        let half = (cwnd / 2 / self.mss()).max(2) * self.mss();
        let repair = self.repair_mut();
        repair.undo.cwnd = cwnd;
        repair.undo.ssthresh = ssthresh;
        repair.target = half;
        repair.recovery_point = next;
        repair.prr = Prr::default();
        self.ssthresh = half;
        self.phase = phase;
    }

    /// Ends, starts and undoes repairs after an ACK.
    pub(crate) fn update_recovery(&mut self, ack: &mut Ack) {
        if self.phase != RecoveryPhase::Open {
            self.try_undo(ack);
        }
        let Some(repair) = self.repair.as_ref() else {
            debug_assert!(self.phase == RecoveryPhase::Open, "a reduction has an end");
            return;
        };
        if self.phase != RecoveryPhase::Open && !self.flight.una().is_before(repair.recovery_point)
        {
            self.end_repair();
        }
        let late_duplicates =
            self.phase == RecoveryPhase::Open && all_retransmissions_duplicate(&self.repair);
        if late_duplicates {
            self.try_undo(ack);
        }
        if ack.lost > 0 && self.phase < RecoveryPhase::Recovery {
            if self.phase == RecoveryPhase::Open {
                self.reset_undo(ack.lost);
                self.begin_reduction(RecoveryPhase::Recovery);
                ack.starts_reduction = true;
            }
            let next = self.flight.next();
            self.phase = RecoveryPhase::Recovery;
            self.repair_mut().recovery_point = next;
        }
    }

    /// Resets the undo counters, with `marks` segments marked lost.
    fn reset_undo(&mut self, marks: u32) {
        self.repair_mut().undo = Undo {
            losses_marked: marks,
            ..Undo::default()
        };
    }

    /// Ends the repair: everything sent before it is acknowledged. The window becomes the target of
    /// the reduction in whole segments, as the reduction itself counts. A fraction would remain
    /// until the next loss.
    #[cold]
    pub(crate) fn end_repair(&mut self) {
        debug_assert!(
            self.phase != RecoveryPhase::Open,
            "no retransmission is in flight"
        );
        if let Some(repair) = self.repair.as_ref()
            && self.phase != RecoveryPhase::Loss
        {
            let mss = self.mss();
            self.set_control_window((repair.target / mss).max(1) * mss);
        }
        self.phase = RecoveryPhase::Open;
        self.repair_mut().reordering.on_recovery_end();
    }

    fn try_undo(&mut self, ack: &mut Ack) {
        let Some(repair) = self.repair.as_mut() else {
            return;
        };
        let undo = &repair.undo;
        let all_wrong = undo.losses_marked > 0 && undo.spurious_marks >= undo.losses_marked;
        let all_duplicates =
            undo.duplicates > 0 && undo.undo_retrans == 0 && self.flight.lost() == 0;
        let early = undo.early && self.phase == RecoveryPhase::Loss;
        if undo.cwnd == 0 || !(all_wrong || all_duplicates || early) {
            return;
        }
        let Undo { cwnd, ssthresh, .. } = std::mem::take(&mut repair.undo);
        self.flight.undo_losses(repair.lost_queue.drain());
        self.rack.restart_scan(self.flight.una());
        if repair.clamp == WindowClamp::Timeout {
            repair.clamp = WindowClamp::Unclamped;
        }
        self.set_cwnd(cwnd.max(self.cwnd));
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.phase = RecoveryPhase::Open;
        self.flags.control_answered = true;
        self.backoff = 0;
        ack.undone = true;
    }

    /// Applies the outcome of a control call.
    #[inline(always)]
    pub(crate) fn apply(&mut self, ack: &Ack, outcome: &Outcome) {
        if let Some(rate) = outcome.rate {
            self.pacer
                .set_control_rate(rate, self.config.max_bytes_per_sec());
        }
        if self.clamp() != WindowClamp::Unclamped && self.apply_clamped(ack, outcome) {
            // The control's window is withheld.
        } else if matches!(
            self.phase,
            RecoveryPhase::Reduction | RecoveryPhase::Recovery
        ) {
            let safe = ack.bytes > 0 && ack.lost == 0;
            self.apply_repairing(safe, ack.delivered(), outcome.cwnd, outcome.ssthresh);
        } else {
            if let Some(ssthresh) = outcome.ssthresh {
                self.ssthresh = ssthresh.max(self.mss() * 2);
            }
            if let Some(cwnd) = outcome.cwnd {
                self.flags.control_answered |= !outcome.clamped;
                self.set_control_window(cwnd);
            }
            if self.phase == RecoveryPhase::Loss && (outcome.cwnd.is_none() || outcome.clamped) {
                self.restart_after_loss(ack.bytes > 0, ack.delivered());
            }
        }
        self.update_pacing_rate();
    }

    /// Reason why the control's window is not in force.
    #[inline(always)]
    pub(crate) fn clamp(&self) -> WindowClamp {
        self.repair
            .as_ref()
            .map_or(WindowClamp::Unclamped, |repair| repair.clamp)
    }

    /// Sets the control's window, as far as a restart after an idle time allows.
    #[inline(always)]
    fn set_control_window(&mut self, window: u64) {
        if self.clamp() == WindowClamp::Unclamped {
            return self.set_cwnd(window);
        }
        let repair = self.repair_mut();
        repair.requested_window = window;
        let limit = repair.resume_limit;
        self.set_cwnd(window.min(limit));
    }

    /// Withholds the control's window after a timeout or an idle time. Returns true if the outcome
    /// is fully applied.
    ///
    /// Between a timeout and the first delivery after it, the window is one segment (RFC 5681
    /// section 3.1), whatever the control has computed: there is no evidence that the path carries
    /// more. After an idle time the window grows by the delivered data (RFC 5681 section 4.1),
    /// until it reaches the control's window or the window before the idle time.
    #[cold]
    #[inline(never)]
    fn apply_clamped(&mut self, ack: &Ack, outcome: &Outcome) -> bool {
        let grown = u64::from(ack.delivered()) * self.mss();
        if self.clamp() == WindowClamp::Idle {
            let repair = self.repair_mut();
            repair.resume_limit = repair.resume_limit.saturating_add(grown);
            let (asked, limit, over) = (
                repair.requested_window,
                repair.resume_limit,
                repair.resume_limit >= repair.resume_until,
            );
            if over {
                repair.clamp = WindowClamp::Unclamped;
            }
            if self.phase == RecoveryPhase::Open && outcome.cwnd.is_none() {
                self.set_cwnd(if over { asked } else { asked.min(limit) });
            }
            return false;
        }
        if matches!(
            self.phase,
            RecoveryPhase::Reduction | RecoveryPhase::Recovery
        ) {
            // The same ACK has ended one repair and started another.
            self.repair_mut().clamp = WindowClamp::Unclamped;
            return false;
        }
        let repair = self.repair_mut();
        if let Some(cwnd) = outcome.cwnd
            && !outcome.clamped
        {
            repair.requested_window = cwnd;
        }
        let asked = repair.requested_window;
        if let Some(ssthresh) = outcome.ssthresh {
            self.ssthresh = ssthresh.max(self.mss() * 2);
        }
        if grown == 0 {
            return true;
        }
        self.repair_mut().clamp = WindowClamp::Unclamped;
        if asked == 0 {
            return false;
        }
        self.flags.control_answered = true;
        self.set_cwnd(asked);
        true
    }

    /// Applies an outcome during a repair. A control reads and sets the window after the repair,
    /// and may only lower it: a program that adds the acknowledged bytes is unaware of repairs. A
    /// control that sets the threshold to infinity, as BBR does, opts out of proportional rate
    /// reduction, and its window applies at once.
    #[cold]
    #[inline(never)]
    fn apply_repairing(
        &mut self,
        safe: bool,
        newly: u32,
        cwnd: Option<u64>,
        ssthresh: Option<u64>,
    ) {
        let seen = self.control_cwnd();
        let least = self.mss() * 2;
        let flying = self.in_flight();
        let outstanding = self.outstanding() - self.flight.sacked();
        if let Some(ssthresh) = ssthresh {
            self.ssthresh = ssthresh.max(least);
        }
        // The control set no threshold, so it does not reduce.
        if self.ssthresh == u64::MAX {
            let window = cwnd.unwrap_or(seen);
            let repair = self.repair_mut();
            repair.target = window;
            repair.prr = Prr::default();
            return self.set_control_window(window);
        }
        let (threshold, mss) = (self.ssthresh, self.mss());
        let repair = self.repair_mut();
        match (cwnd, ssthresh) {
            (Some(cwnd), _) if cwnd < seen => repair.target = cwnd.max(mss),
            (None, Some(_)) => repair.target = threshold,
            _ => {}
        }
        let target = u32::try_from(repair.target / mss)
            .unwrap_or(u32::MAX)
            .max(1);
        if let Some(window) = repair.prr.window(target, flying, outstanding, newly, safe) {
            self.set_cwnd(u64::from(window) * mss);
        }
    }

    /// Slow start up to the threshold after a timeout, until the program or agent sets a window.
    #[cold]
    fn restart_after_loss(&mut self, advances: bool, newly: u32) {
        if self.flags.steered
            && !self.flags.control_answered
            && advances
            && self.cwnd < self.ssthresh
        {
            let step = u64::from(newly) * self.mss();
            self.set_cwnd((self.cwnd + step).min(self.ssthresh));
        }
    }
}

fn all_retransmissions_duplicate(repair: &Option<Box<Repair>>) -> bool {
    repair
        .as_ref()
        .is_some_and(|repair| repair.undo.duplicates > 0 && repair.undo.undo_retrans == 0)
}
