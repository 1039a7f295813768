//! One window for a whole group: that of as many Cubic flows as the group is to be.
//!
//! The members' reports feed it together, as in the Congestion Manager (RFC 3124; Balakrishnan,
//! Rahul, Seshan, SIGCOMM 1999): one state for all flows on a path. Losses of one round trip are
//! one congestion event, whichever members they are of (as in the conservative algorithm for
//! coupled flows of RFC 8699, section 5.3.2). Each member's datapath reduces its own part at once,
//! since an agent that is far would be late; what the others have to give follows with the agent's
//! next word.
//!
//! A group that is to be K flows has K Cubic windows. A lost packet is one of theirs, drawn by
//! their sizes, since which member sent it says nothing; and each is reduced once in a round trip.

use ccplane_agent::dice::Dice;
use ccplane_units::{Duration, Time};

use crate::Cubic;
use crate::cubic::State;
use crate::window::{Law, Round};

/// Least window of a flow, segments (RFC 9438, 4.6).
const LEAST: f64 = 2.0;
/// Draws for the losses of one report: with four for each window at most 2 % of the windows are
/// missed that so many losses would hit.
const DRAWS: u64 = 4;

/// It grows in steps of this. Longer is coarser than Cubic's own reports; shorter is work for
/// nothing.
const STEP: Duration = Duration::from_millis(5);

/// The window of a group, segments.
pub(super) struct Window {
    law: Cubic,
    flows: Vec<Flow>,
    /// The members are in slow start, each by itself, and the group has what they have.
    starting: bool,
    /// How many reductions there were.
    epoch: u64,
    /// Cuts that members made by themselves in this one.
    cuts: u32,
    acked: f64,
    counted: f64,
    grown: Time,
    dice: Dice,
}

/// One of the Cubic flows that the group is.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    law: State,
    window: f64,
    /// Its window before it was reduced in this epoch.
    before: Option<f64>,
}

impl Window {
    /// That of so many flows, which are in slow start.
    pub fn new(flows: u32) -> Window {
        Window {
            law: Cubic::linux(),
            flows: vec![Flow::default(); flows.max(1) as usize],
            starting: true,
            epoch: 0,
            cuts: 0,
            acked: 0.0,
            counted: 0.0,
            grown: Time::ZERO,
            dice: Dice(0),
        }
    }

    /// Whether the members are in slow start.
    pub fn is_starting(&self) -> bool {
        self.starting
    }

    /// Slow start is over; together the members have so many segments.
    pub fn begin(&mut self, total: f64) {
        self.starting = false;
        self.set(total);
    }

    /// A member that others steered before brings its window.
    pub fn add(&mut self, segments: f64) {
        self.set(self.total() + segments);
    }

    fn set(&mut self, total: f64) {
        let each = total / self.flows.len() as f64;
        self.flows
            .iter_mut()
            .for_each(|flow| flow.window = each.max(LEAST));
    }

    /// The whole, segments.
    pub fn total(&self) -> f64 {
        self.flows.iter().map(|flow| flow.window).sum()
    }

    /// As how many flows it counts.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// How many reductions there were: what a member has heard of is what its losses are judged by.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// So many segments were acknowledged, and so many of them while a window limited sending.
    pub fn heard(&mut self, acked: f64, counted: f64) {
        self.acked += acked;
        self.counted += counted;
    }

    /// Grows by what was heard since the last step, where it is time for one. `rtt` in seconds.
    pub fn grow(&mut self, now: Time, rtt: f64) {
        if self.starting || now.since(self.grown) < STEP {
            return;
        }
        self.grown = now;
        let flows = self.flows.len() as f64;
        let (acked, counted) = (self.acked / flows, self.counted / flows);
        (self.acked, self.counted) = (0.0, 0.0);
        for flow in &mut self.flows {
            let window = flow.window;
            let round = Round {
                now,
                window,
                acked,
                counted,
                rtt,
            };
            let growth = self.law.growth(&mut flow.law, &round);
            // More than a segment for one that was acknowledged is slow start.
            flow.window += (growth * counted / window).min(counted);
        }
    }

    /// Losses that a member saw, which had heard of `heard` reductions. `cut`: it has reduced its
    /// own part for them. `timed_out`: they came to light by a timeout, when nothing of the whole
    /// group was under way.
    pub fn lost(&mut self, packets: u64, heard: u64, cut: bool, timed_out: bool) {
        if self.starting || packets == 0 {
            return;
        }
        if cut && heard >= self.epoch {
            self.epoch = self.epoch.wrapping_add(1);
            self.cuts = 0;
            self.flows.iter_mut().for_each(|flow| flow.before = None);
        } else if self.flows.iter().all(|flow| flow.before.is_none()) {
            // Of before the first reduction, without one.
            return;
        }
        self.cuts += u32::from(cut);
        for _ in 0..packets.min(DRAWS * self.flows.len() as u64) {
            let hit = self.draw();
            let flow = &mut self.flows[hit];
            if flow.before.is_none() {
                flow.before = Some(flow.window);
                self.law.reduced(&mut flow.law, flow.window);
                flow.window = (flow.window * Cubic::KEPT).max(LEAST);
            }
            if timed_out {
                self.law.timed_out(&mut flow.law);
            }
        }
    }

    /// The reduction was for nothing, as its member found out; where it was that of others, too, it
    /// stays.
    pub fn undo(&mut self, heard: u64) {
        // The member may have heard of the reduction that it began, or not yet.
        if self.cuts != 1 || heard.saturating_add(1) < self.epoch {
            return;
        }
        self.cuts = 0;
        for flow in &mut self.flows {
            if let Some(window) = flow.before.take() {
                self.law.undone(&mut flow.law);
                flow.window = flow.window.max(window);
            }
        }
    }

    /// A flow, by the sizes of their windows.
    fn draw(&mut self) -> usize {
        if self.flows.len() == 1 {
            return 0;
        }
        let mut at = self.dice.below(1 << 32) as f64 / (1u64 << 32) as f64 * self.total();
        let hit = self.flows.iter().position(|flow| {
            at -= flow.window;
            at < 0.0
        });
        hit.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(flows: u32, total: f64) -> Window {
        let mut window = Window::new(flows);
        window.begin(total);
        window
    }

    #[test]
    fn losses_of_a_round_trip_count_once() {
        let mut window = begun(1, 100.0);
        window.lost(1, 0, true, false);
        assert_eq!((window.total(), window.epoch()), (70.0, 1));
        // Other members lose of what they sent before they heard of it.
        window.lost(5, 0, true, false);
        window.lost(3, 1, false, false);
        assert_eq!((window.total(), window.epoch()), (70.0, 1));
        // One that had heard of it loses again.
        window.lost(1, 1, true, false);
        assert_eq!((window.total(), window.epoch()), (49.0, 2));
    }

    #[test]
    fn a_reduction_for_nothing_is_undone_unless_others_made_it_too() {
        let mut window = begun(1, 100.0);
        window.lost(1, 0, true, false);
        window.undo(0);
        assert_eq!(window.total(), 100.0);
        window.lost(1, 1, true, false);
        window.lost(1, 1, true, false);
        window.undo(1);
        assert_eq!(window.total(), 70.0);
        // An old one is not that of now.
        window.lost(1, 2, true, false);
        window.undo(0);
        assert_eq!(window.total(), 49.0);
    }

    #[test]
    fn of_several_flows_a_lost_packet_reduces_one_and_many_all() {
        let mut window = begun(10, 1_000.0);
        window.lost(1, 0, true, false);
        assert!((window.total() - 970.0).abs() < 1e-9, "{}", window.total());
        window.lost(2, 0, false, false);
        let total = window.total();
        assert!((910.0 - 1e-9..970.0).contains(&total), "{total}");
        window.lost(1_000_000, 0, false, false);
        assert!((window.total() - 700.0).abs() < 31.0, "{}", window.total());
    }

    /// Two flows of half the window grow as one flow of half the window does, twice.
    #[test]
    fn it_grows_as_its_flows_do() {
        let grown = |flows: u32| {
            let mut window = begun(flows, 100.0 * f64::from(flows));
            window.lost(u64::MAX, 0, true, false);
            let mut now = Time::from_micros(0);
            for _ in 0..500 {
                now += Duration::from_millis(10);
                window.heard(35.0 * f64::from(flows), 35.0 * f64::from(flows));
                window.grow(now, 0.02);
            }
            window.total() / f64::from(flows)
        };
        assert!(grown(1) > 75.0, "{}", grown(1));
        assert!(
            (grown(1) - grown(2)).abs() < 1e-6,
            "{} {}",
            grown(1),
            grown(2)
        );
    }

    #[test]
    fn before_slow_start_is_over_nothing_is_decided() {
        let mut window = Window::new(1);
        window.heard(10.0, 10.0);
        window.grow(Time::from_micros(1), 0.02);
        window.lost(1, 0, true, false);
        assert!(window.is_starting() && window.epoch() == 0);
    }

    #[test]
    fn no_flow_falls_below_two_segments() {
        let mut window = begun(2, 0.0);
        for heard in 0..20 {
            window.lost(100, heard, true, true);
        }
        assert_eq!(window.total(), 4.0);
    }
}
