//! Loss recovery: what a reduction is, when it begins and ends, and how a spurious one is undone.
//!
//! It behaves as ccplane's datapath in Linux (`crates/linux/bpf/recovery.h`). A loss, a mark or a
//! timeout begins a reduction. The reduction lasts until everything sent before it is acknowledged.
//! The threshold is half the window unless the control says another. Proportional rate reduction
//! brings the window there; after a timeout the window is one segment.
//!
//! A spurious reduction is undone: window and threshold return. There are three proofs. Every
//! segment marked lost has arrived by a transmission before the mark, as the echo in ACKs says
//! (Eifel, RFC 3522). Every retransmission was a duplicate (DSACK, RFC 3708). The first progress
//! after a timeout comes from a transmission before it (F-RTO, RFC 5682).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use ccplane_datapath::Outcome;
use ccplane_units::Time;

use crate::connection::{Connection, Phase};
use crate::control::Ack;
use crate::number::Number;
use crate::ranges::RangeSet;
use crate::send::lost::LostQueue;
use crate::send::prr::Prr;
use crate::send::rack::Reordering;
use crate::stamps::Stamped;

/// State that a connection needs only when something goes wrong. Allocated at the first loss, mark
/// or SACK, and kept until the connection is idle.
#[derive(Clone, Debug)]
pub(crate) struct Repair {
    /// What the peer has SACKed.
    pub sacked: RangeSet,
    /// Segments marked lost, in the order of retransmission.
    pub queue: LostQueue,
    /// Retransmitted, the oldest first. Entries that are no longer `REPEATED` are skipped.
    pub repeats: VecDeque<Number>,
    pub prr: Prr,
    /// The window after the repair under way, bytes.
    pub target: u64,
    pub withheld: Withheld,
    /// While the control's window is withheld: that window, bytes; 0 where the control has set none
    /// since.
    pub asked: u64,
    /// After an idle time: the largest window in force now, and the window before, at which the
    /// restart is over.
    pub resume_limit: u64,
    pub resume_until: u64,
    /// RecoveryPoint: the repair ends when everything before this is acknowledged.
    pub high: Number,
    pub undo: Undo,
    pub reordering: Reordering,
    /// RACK's reordering timer: when the next segment counts as lost.
    pub reorder_at: Time,
    /// TLP.end_seq: a probe is over when everything before this is acknowledged.
    pub probe_end: Number,
    /// The segment that the probe retransmitted; `probe_end` where it sent new data.
    pub probe: Number,
    /// Boxed: most connections have none, and with them inline a large fat tree took a tenth
    /// longer.
    pub stamps: Option<Box<Stamped>>,
}

/// Reason why the window in force is smaller than the window of the control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Withheld {
    /// The control's window is in force.
    #[default]
    No,
    /// A timeout, and no segment was delivered since: one segment is in force.
    Timeout,
    /// A restart after an idle time: the window in force grows by what is delivered.
    Idle,
}

/// What is needed to undo a reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undo {
    /// Window and threshold before; 0 when there is nothing to undo.
    pub cwnd: u64,
    pub ssthresh: u64,
    /// Segments marked lost, and how many of them proved to have arrived before the mark.
    pub marks: u32,
    pub wrong: u32,
    /// Retransmissions less reported duplicates, and reported duplicates.
    pub repeats: u32,
    pub duplicates: u32,
    /// The first progress after a timeout came from a transmission before it.
    pub early: bool,
}

impl Repair {
    pub fn new(next: Number) -> Repair {
        Repair {
            sacked: RangeSet::default(),
            queue: LostQueue::default(),
            repeats: VecDeque::new(),
            prr: Prr::default(),
            target: 0,
            withheld: Withheld::No,
            asked: 0,
            resume_limit: 0,
            resume_until: 0,
            high: next,
            undo: Undo::default(),
            reordering: Reordering::default(),
            reorder_at: Time::MAX,
            probe_end: next,
            probe: next,
            stamps: None,
        }
    }

    pub fn heap_bytes(&self) -> usize {
        size_of::<Repair>()
            + self.stamps.as_ref().map_or(0, |_| size_of::<Stamped>())
            + self.sacked.heap_bytes()
            + self.queue.heap_bytes()
            + self.repeats.capacity() * size_of::<Number>()
    }
}

impl Connection {
    pub(crate) fn repair_mut(&mut self) -> &mut Repair {
        let next = self.flight.next();
        self.repair
            .get_or_insert_with(|| Box::new(Repair::new(next)))
    }

    /// A reduction begins. The control may set another threshold in the call that follows.
    #[cold]
    pub(crate) fn begin_reduction(&mut self, phase: Phase) {
        let (cwnd, ssthresh, next) = (self.cwnd, self.ssthresh, self.flight.next());
        debug_assert!(
            phase != Phase::Open && self.phase <= phase,
            "{phase:?} after {:?}",
            self.phase
        );
        let half = (cwnd / 2 / self.mss()).max(2) * self.mss();
        let repair = self.repair_mut();
        repair.undo.cwnd = cwnd;
        repair.undo.ssthresh = ssthresh;
        repair.target = half;
        repair.high = next;
        repair.prr = Prr::default();
        self.ssthresh = half;
        self.phase = phase;
    }

    /// Ends, begins and undoes repairs after an ACK.
    pub(crate) fn judge(&mut self, ack: &mut Ack) {
        if self.phase != Phase::Open {
            self.try_undo(ack);
        }
        let Some(repair) = self.repair.as_ref() else {
            debug_assert!(
                self.phase == Phase::Open,
                "a reduction has begun without its end"
            );
            return;
        };
        if self.phase != Phase::Open && !self.flight.una().before(repair.high) {
            self.end_repair();
        }
        let late_duplicates = self.phase == Phase::Open && repair_duplicates(&self.repair);
        if late_duplicates {
            self.try_undo(ack);
        }
        if ack.lost > 0 && self.phase < Phase::Recovery {
            if self.phase == Phase::Open {
                self.forget_undo(ack.lost);
                self.begin_reduction(Phase::Recovery);
                ack.reduces = true;
            }
            let next = self.flight.next();
            self.phase = Phase::Recovery;
            self.repair_mut().high = next;
        }
    }

    /// Restarts the counts for undo, with `marks` segments marked lost.
    fn forget_undo(&mut self, marks: u32) {
        self.repair_mut().undo = Undo {
            marks,
            ..Undo::default()
        };
    }

    /// Everything sent before the repair began is acknowledged. The window becomes the reduction's
    /// target in whole segments, as the reduction itself counts. A fraction would stay in it until
    /// the next loss.
    #[cold]
    pub(crate) fn end_repair(&mut self) {
        debug_assert!(self.phase != Phase::Open, "no repair is under way");
        if let Some(repair) = self.repair.as_ref()
            && self.phase != Phase::Loss
        {
            let mss = self.mss();
            self.set_asked((repair.target / mss).max(1) * mss);
        }
        self.phase = Phase::Open;
        self.repair_mut().reordering.end_of_recovery();
    }

    fn try_undo(&mut self, ack: &mut Ack) {
        let Some(repair) = self.repair.as_mut() else {
            return;
        };
        let undo = &repair.undo;
        let all_wrong = undo.marks > 0 && undo.wrong >= undo.marks;
        let all_duplicates = undo.duplicates > 0 && undo.repeats == 0 && self.flight.lost() == 0;
        let early = undo.early && self.phase == Phase::Loss;
        if undo.cwnd == 0 || !(all_wrong || all_duplicates || early) {
            return;
        }
        let Undo { cwnd, ssthresh, .. } = std::mem::take(&mut repair.undo);
        self.flight.undo_losses(repair.queue.drain());
        self.rack.look_again(self.flight.una());
        if repair.withheld == Withheld::Timeout {
            repair.withheld = Withheld::No;
        }
        self.set_cwnd(cwnd.max(self.cwnd));
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.phase = Phase::Open;
        self.flags.answered = true;
        self.backoff = 0;
        ack.undone = true;
    }

    /// Applies what a control asked for.
    #[inline(always)]
    pub(crate) fn apply(&mut self, ack: &Ack, outcome: &Outcome) {
        if let Some(rate) = outcome.rate {
            self.pacer.order(rate, self.config.max_bytes_per_sec());
        }
        if self.withheld() != Withheld::No && self.apply_withheld(ack, outcome) {
            // The control's window waits.
        } else if matches!(self.phase, Phase::Reduction | Phase::Recovery) {
            let safe = ack.bytes > 0 && ack.lost == 0;
            self.apply_repairing(safe, ack.delivered(), outcome.cwnd, outcome.ssthresh);
        } else {
            if let Some(ssthresh) = outcome.ssthresh {
                self.ssthresh = ssthresh.max(self.mss() * 2);
            }
            if let Some(cwnd) = outcome.cwnd {
                self.flags.answered |= !outcome.limited;
                self.set_asked(cwnd);
            }
            if self.phase == Phase::Loss && (outcome.cwnd.is_none() || outcome.limited) {
                self.restart_after_loss(ack.bytes > 0, ack.delivered());
            }
        }
        self.follow_window();
    }

    /// Reason why the control's window is not in force.
    #[inline(always)]
    pub(crate) fn withheld(&self) -> Withheld {
        self.repair
            .as_ref()
            .map_or(Withheld::No, |repair| repair.withheld)
    }

    /// Puts the control's window into force, as far as a restart after an idle time allows.
    #[inline(always)]
    fn set_asked(&mut self, window: u64) {
        if self.withheld() == Withheld::No {
            return self.set_cwnd(window);
        }
        let repair = self.repair_mut();
        repair.asked = window;
        let limit = repair.resume_limit;
        self.set_cwnd(window.min(limit));
    }

    /// Keeps the control's window back after a timeout or an idle time. Returns whether the outcome
    /// needs nothing else.
    ///
    /// Between a timeout and the first delivery after it, one segment is in force (RFC 5681, 3.1):
    /// nothing says that the path carries more than that, whatever the control has computed. After
    /// an idle time the window in force grows by what is delivered (RFC 5681, 4.1), until it
    /// reaches the window of the control or the window before.
    #[cold]
    #[inline(never)]
    fn apply_withheld(&mut self, ack: &Ack, outcome: &Outcome) -> bool {
        let grown = u64::from(ack.delivered()) * self.mss();
        if self.withheld() == Withheld::Idle {
            let repair = self.repair_mut();
            repair.resume_limit = repair.resume_limit.saturating_add(grown);
            let (asked, limit, over) = (
                repair.asked,
                repair.resume_limit,
                repair.resume_limit >= repair.resume_until,
            );
            if over {
                repair.withheld = Withheld::No;
            }
            if self.phase == Phase::Open && outcome.cwnd.is_none() {
                self.set_cwnd(if over { asked } else { asked.min(limit) });
            }
            return false;
        }
        if matches!(self.phase, Phase::Reduction | Phase::Recovery) {
            // The same ACK has ended the repair and begun another.
            self.repair_mut().withheld = Withheld::No;
            return false;
        }
        let repair = self.repair_mut();
        if let Some(cwnd) = outcome.cwnd
            && !outcome.limited
        {
            repair.asked = cwnd;
        }
        let asked = repair.asked;
        if let Some(ssthresh) = outcome.ssthresh {
            self.ssthresh = ssthresh.max(self.mss() * 2);
        }
        if grown == 0 {
            return true;
        }
        self.repair_mut().withheld = Withheld::No;
        if asked == 0 {
            return false;
        }
        self.flags.answered = true;
        self.set_cwnd(asked);
        true
    }

    /// During a repair a control sees and sets the window after it. It may only lower that: a
    /// program that adds what is acknowledged does not know of repairs. A control that sets the
    /// threshold to infinity, as BBR does, has no use for the proportional reduction. Its window is
    /// in force at once.
    #[cold]
    #[inline(never)]
    fn apply_repairing(
        &mut self,
        safe: bool,
        newly: u32,
        cwnd: Option<u64>,
        ssthresh: Option<u64>,
    ) {
        let seen = self.steered_cwnd();
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
            return self.set_asked(window);
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

    /// Slow start up to the threshold after a timeout, until program or agent sets a window.
    #[cold]
    fn restart_after_loss(&mut self, advances: bool, newly: u32) {
        if self.flags.steered && !self.flags.answered && advances && self.cwnd < self.ssthresh {
            let step = u64::from(newly) * self.mss();
            self.set_cwnd((self.cwnd + step).min(self.ssthresh));
        }
    }
}

fn repair_duplicates(repair: &Option<Box<Repair>>) -> bool {
    repair
        .as_ref()
        .is_some_and(|repair| repair.undo.duplicates > 0 && repair.undo.repeats == 0)
}
