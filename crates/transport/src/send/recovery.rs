//! Loss recovery: what a reduction is, when it begins and ends, and how a spurious one is undone.
//!
//! The semantics are those of ccplane's datapath in Linux (`crates/linux/bpf/recovery.h`). A loss, a mark or a timeout begins
//! a reduction, which lasts until everything sent before is acknowledged. The threshold is half the window until the
//! control says another; proportional rate reduction leads the window there, except after a timeout, when it is one segment.
//!
//! A reduction is spurious, and window and threshold return, when every segment that was marked lost proves to have
//! arrived by a transmission before the mark (the echo in ACKs says so: Eifel, RFC 3522), when every retransmission
//! was a duplicate (DSACK, RFC 3708), or, after a timeout, when the first progress comes from before it (F-RTO, RFC 5682).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use ccplane_datapath::Outcome;
use ccplane_units::Time;

use crate::connection::{Connection, Phase};
use crate::control::Ack;
use crate::number::Number;
use crate::ranges::RangeSet;
use crate::send::prr::Prr;
use crate::send::rack::Reordering;
use crate::stamps::Stamped;

/// What a connection needs only when something goes wrong. Made at the first trouble, kept until the connection is idle.
#[derive(Clone, Debug)]
pub(crate) struct Repair {
    /// What the peer has SACKed, as it said.
    pub sacked: RangeSet,
    /// Marked lost, to be sent again in this order; those that are not `LOST` any more are passed over.
    pub queue: VecDeque<Number>,
    /// Sent again, the oldest first; those that are not `REPEATED` any more are passed over.
    pub repeats: VecDeque<Number>,
    pub prr: Prr,
    /// The window after the repair under way, bytes.
    pub target: u64,
    /// The repair ends when everything before this is acknowledged.
    pub high: Number,
    pub undo: Undo,
    pub reordering: Reordering,
    /// When a segment will have been overtaken for long enough to be lost.
    pub reorder_at: Time,
    /// A tail-loss probe under way: over when everything before this is acknowledged.
    pub probe_end: Number,
    /// The segment that it sent again; `probe_end` when it sent new data.
    pub probe: Number,
    /// Aside, because most connections carry none: with them in here a large fat tree took a tenth longer.
    pub stamps: Option<Box<Stamped>>,
}

/// What is needed to undo a reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undo {
    /// Window and threshold before; 0 when there is nothing to undo.
    pub cwnd: u64,
    pub ssthresh: u64,
    /// Segments that were marked lost, and how many of them proved to have arrived before.
    pub marks: u32,
    pub wrong: u32,
    /// Retransmissions, less those that proved to be duplicates.
    pub repeats: u32,
    pub duplicates: u32,
    /// After a timeout: the first progress came from a transmission before it.
    pub early: bool,
}

impl Repair {
    pub fn new(next: Number) -> Repair {
        Repair {
            sacked: RangeSet::default(),
            queue: VecDeque::new(),
            repeats: VecDeque::new(),
            prr: Prr::default(),
            target: 0,
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
            + (self.queue.capacity() + self.repeats.capacity()) * size_of::<Number>()
    }
}

impl Connection {
    pub(crate) fn repair_mut(&mut self) -> &mut Repair {
        let next = self.flight.next();
        self.repair.get_or_insert_with(|| Box::new(Repair::new(next)))
    }

    /// A reduction begins. The control may say another threshold in the call that follows.
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

    /// Ends and begins repairs after an ACK, and undoes them.
    pub(crate) fn judge(&mut self, ack: &mut Ack) {
        if self.phase != Phase::Open {
            self.try_undo(ack);
        }
        let Some(repair) = self.repair.as_ref() else {
            debug_assert!(self.phase == Phase::Open, "a reduction has begun without its end");
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

    /// Counts for the undo begin anew with `marks` segments marked lost.
    fn forget_undo(&mut self, marks: u32) {
        self.repair_mut().undo = Undo {
            marks,
            ..Undo::default()
        };
    }

    /// Everything sent before the repair began is acknowledged. The window is what the reduction aimed at, in whole segments, as the
    /// reduction itself counts: a fraction would stay in it until the next loss.
    #[cold]
    pub(crate) fn end_repair(&mut self) {
        debug_assert!(self.phase != Phase::Open, "no repair is under way");
        if let Some(repair) = self.repair.as_ref()
            && self.phase != Phase::Loss
        {
            let mss = self.mss();
            self.set_cwnd((repair.target / mss).max(1) * mss);
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
        self.flight.undo_losses(repair.queue.drain(..));
        self.rack.look_again(self.flight.una());
        self.set_cwnd(cwnd.max(self.cwnd));
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.phase = Phase::Open;
        self.flags.answered = true;
        self.backoff = 0;
        ack.undone = true;
    }

    /// Puts what a control asked for into force.
    #[inline(always)]
    pub(crate) fn apply(&mut self, ack: &Ack, outcome: &Outcome) {
        if let Some(rate) = outcome.rate {
            self.pacer.order(rate, self.config.max_bytes_per_sec());
        }
        if matches!(self.phase, Phase::Reduction | Phase::Recovery) {
            let safe = ack.bytes > 0 && ack.lost == 0;
            self.apply_repairing(safe, ack.delivered(), outcome.cwnd, outcome.ssthresh);
        } else {
            if let Some(ssthresh) = outcome.ssthresh {
                self.ssthresh = ssthresh.max(self.mss() * 2);
            }
            if let Some(cwnd) = outcome.cwnd {
                self.flags.answered |= !outcome.limited;
                self.set_cwnd(cwnd);
            }
            if self.phase == Phase::Loss && (outcome.cwnd.is_none() || outcome.limited) {
                self.restart_after_loss(ack.bytes > 0, ack.delivered());
            }
        }
        self.follow_window();
    }

    /// While a repair runs, a control sees and sets the window that will hold after it. It may lower it there; a program
    /// that adds what is acknowledged does not know of repairs. One that sets the threshold to infinity has no use for the
    /// proportional reduction (BBR): its window is in force at once.
    #[cold]
    #[inline(never)]
    fn apply_repairing(&mut self, safe: bool, newly: u32, cwnd: Option<u64>, ssthresh: Option<u64>) {
        let seen = self.steered_cwnd();
        let least = self.mss() * 2;
        let flying = self.in_flight();
        let outstanding = self.outstanding() - self.flight.sacked();
        if let Some(ssthresh) = ssthresh {
            self.ssthresh = ssthresh.max(least);
        }
        // No threshold: the control does not reduce. Its window is in force, as when nothing is under repair.
        if self.ssthresh == u64::MAX {
            let window = cwnd.unwrap_or(seen);
            let repair = self.repair_mut();
            repair.target = window;
            repair.prr = Prr::default();
            return self.set_cwnd(window);
        }
        let (threshold, mss) = (self.ssthresh, self.mss());
        let repair = self.repair_mut();
        match (cwnd, ssthresh) {
            (Some(cwnd), _) if cwnd < seen => repair.target = cwnd.max(mss),
            (None, Some(_)) => repair.target = threshold,
            _ => {}
        }
        let target = u32::try_from(repair.target / mss).unwrap_or(u32::MAX).max(1);
        if let Some(window) = repair.prr.window(target, flying, outstanding, newly, safe) {
            self.set_cwnd(u64::from(window) * mss);
        }
    }

    /// After a timeout, until program or agent says otherwise: slow start up to the threshold.
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
