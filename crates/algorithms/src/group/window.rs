//! One window for a whole group: the sum of K Cubic windows.
//!
//! The members' reports feed it jointly, as in the Congestion Manager (RFC 3124; Balakrishnan,
//! Rahul, Seshan, SIGCOMM 1999): one congestion state for all flows on a path. Losses within one
//! round trip are one congestion event, whichever members they affect (as in the conservative
//! algorithm for coupled flows of RFC 8699, section 5.3.2). Each member's datapath reduces its own
//! part at once, because a distant agent would be late. The other members' reductions follow with
//! the agent's next command.
//!
//! The group has K Cubic windows. A lost packet is attributed to one of them at random, weighted by
//! size, because the member that sent it is irrelevant. Each window is reduced at most once per
//! round trip.

use ccplane_agent::rng::SplitMix64;
use ccplane_units::{Duration, Time};

use crate::Cubic;
use crate::cubic::CubicState;
use crate::window::{AckedRound, WindowLaw};

/// Minimum window of a flow, segments (RFC 9438, 4.6).
const WINDOW_SEGMENTS_MIN: f64 = 2.0;
/// Maximum random draws per window for the losses of one report. With four, at most 2 % of the
/// windows that all losses would hit are missed.
const LOSS_DRAWS_MAX: u64 = 4;

/// Growth interval. A longer one is coarser than Cubic's own reports. A shorter one wastes work.
const GROWTH_INTERVAL: Duration = Duration::from_millis(5);

/// Window of a group, segments.
pub(super) struct GroupWindow {
    law: Cubic,
    flows: Vec<VirtualFlow>,
    /// True in slow start, which each member performs itself; the group's window is their sum.
    in_slow_start: bool,
    /// Number of reductions so far.
    epoch: u64,
    /// Members that reduced their own part in this epoch.
    own_reductions: u32,
    acked: f64,
    counted: f64,
    last_growth: Time,
    rng: SplitMix64,
}

/// One of the Cubic flows that the group stands for.
#[derive(Clone, Copy, Debug, Default)]
struct VirtualFlow {
    law: CubicState,
    window: f64,
    /// Window before its reduction in this epoch.
    prior_window: Option<f64>,
}

impl GroupWindow {
    /// Creates the window of this many flows, in slow start.
    pub fn new(flows: u32) -> GroupWindow {
        GroupWindow {
            law: Cubic::linux(),
            flows: vec![VirtualFlow::default(); flows.max(1) as usize],
            in_slow_start: true,
            epoch: 0,
            own_reductions: 0,
            acked: 0.0,
            counted: 0.0,
            last_growth: Time::ZERO,
            rng: SplitMix64(0),
        }
    }

    /// Returns true if the members are in slow start.
    pub fn is_starting(&self) -> bool {
        self.in_slow_start
    }

    /// Ends slow start; the members' windows sum to `total` segments.
    pub fn begin(&mut self, total: f64) {
        self.in_slow_start = false;
        self.set(total);
    }

    /// Adds the window of a live flow that joins.
    pub fn add(&mut self, segments: f64) {
        self.set(self.total() + segments);
    }

    fn set(&mut self, total: f64) {
        let each = total / self.flows.len() as f64;
        self.flows
            .iter_mut()
            .for_each(|flow| flow.window = each.max(WINDOW_SEGMENTS_MIN));
    }

    /// Returns the sum of all windows, segments.
    pub fn total(&self) -> f64 {
        self.flows.iter().map(|flow| flow.window).sum()
    }

    /// Returns the number of flows that the group stands for.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the number of reductions. A member's losses are attributed by the reductions it has
    /// seen.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Adds segments acknowledged; `counted` of them count for growth.
    pub fn add_acked(&mut self, acked: f64, counted: f64) {
        self.acked += acked;
        self.counted += counted;
    }

    /// Grows by the segments added since the last step, if a step is due. `rtt` in seconds.
    pub fn grow(&mut self, now: Time, rtt: f64) {
        if self.in_slow_start || now.since(self.last_growth) < GROWTH_INTERVAL {
            return;
        }
        self.last_growth = now;
        let flows = self.flows.len() as f64;
        let (acked, counted) = (self.acked / flows, self.counted / flows);
        (self.acked, self.counted) = (0.0, 0.0);
        for flow in &mut self.flows {
            let window = flow.window;
            let round = AckedRound {
                now,
                window,
                acked,
                counted,
                rtt,
            };
            let growth = self.law.growth(&mut flow.law, &round);
            // Growth by more than a segment per segment acknowledged would be slow start.
            flow.window += (growth * counted / window).min(counted);
        }
    }

    /// Processes losses of a member that has seen `heard` reductions. `cut`: it has reduced its own
    /// part. `timed_out`: a timeout detected the losses, with nothing of the whole group in flight.
    pub fn on_losses(
        &mut self,
        packets: u64,
        known_epoch: u64,
        has_reduced: bool,
        timed_out: bool,
    ) {
        if self.in_slow_start || packets == 0 {
            return;
        }
        if has_reduced && known_epoch >= self.epoch {
            self.epoch = self.epoch.wrapping_add(1);
            self.own_reductions = 0;
            self.flows
                .iter_mut()
                .for_each(|flow| flow.prior_window = None);
        } else if self.flows.iter().all(|flow| flow.prior_window.is_none()) {
            // Losses from before the first reduction, without a reduction.
            return;
        }
        self.own_reductions += u32::from(has_reduced);
        for _ in 0..packets.min(LOSS_DRAWS_MAX * self.flows.len() as u64) {
            let hit = self.draw();
            let flow = &mut self.flows[hit];
            if flow.prior_window.is_none() {
                flow.prior_window = Some(flow.window);
                self.law.on_reduction(&mut flow.law, flow.window);
                flow.window = (flow.window * Cubic::LOSS_WINDOW_FACTOR).max(WINDOW_SEGMENTS_MIN);
            }
            if timed_out {
                self.law.on_timeout(&mut flow.law);
            }
        }
    }

    /// Undoes the last reduction, which its member found to be spurious, unless other members
    /// reduced as well.
    pub fn undo(&mut self, known_epoch: u64) {
        // The member may or may not have seen the reduction that it started.
        if self.own_reductions != 1 || known_epoch.saturating_add(1) < self.epoch {
            return;
        }
        self.own_reductions = 0;
        for flow in &mut self.flows {
            if let Some(window) = flow.prior_window.take() {
                self.law.on_undo(&mut flow.law);
                flow.window = flow.window.max(window);
            }
        }
    }

    /// Draws a flow at random, weighted by window.
    fn draw(&mut self) -> usize {
        if self.flows.len() == 1 {
            return 0;
        }
        let mut at = self.rng.below(1 << 32) as f64 / (1u64 << 32) as f64 * self.total();
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

    fn begun(flows: u32, total: f64) -> GroupWindow {
        let mut window = GroupWindow::new(flows);
        window.begin(total);
        window
    }

    #[test]
    fn losses_of_a_round_trip_count_once() {
        let mut window = begun(1, 100.0);
        window.on_losses(1, 0, true, false);
        assert_eq!((window.total(), window.epoch()), (70.0, 1));
        // Other members lose data sent before they saw the reduction.
        window.on_losses(5, 0, true, false);
        window.on_losses(3, 1, false, false);
        assert_eq!((window.total(), window.epoch()), (70.0, 1));
        // A member that has seen it loses again.
        window.on_losses(1, 1, true, false);
        assert_eq!((window.total(), window.epoch()), (49.0, 2));
    }

    #[test]
    fn spurious_reductions_are_undone_unless_others_agree() {
        let mut window = begun(1, 100.0);
        window.on_losses(1, 0, true, false);
        window.undo(0);
        assert_eq!(window.total(), 100.0);
        window.on_losses(1, 1, true, false);
        window.on_losses(1, 1, true, false);
        window.undo(1);
        assert_eq!(window.total(), 70.0);
        // An undo of an earlier reduction does not apply to the current one.
        window.on_losses(1, 2, true, false);
        window.undo(0);
        assert_eq!(window.total(), 49.0);
    }

    #[test]
    fn of_several_flows_a_lost_packet_reduces_one_and_many_all() {
        let mut window = begun(10, 1_000.0);
        window.on_losses(1, 0, true, false);
        assert!((window.total() - 970.0).abs() < 1e-9, "{}", window.total());
        window.on_losses(2, 0, false, false);
        let total = window.total();
        assert!((910.0 - 1e-9..970.0).contains(&total), "{total}");
        window.on_losses(1_000_000, 0, false, false);
        assert!((window.total() - 700.0).abs() < 31.0, "{}", window.total());
    }

    /// Two flows with half the window each grow like two separate flows.
    #[test]
    fn the_group_window_grows_like_its_flows() {
        let grown = |flows: u32| {
            let mut window = begun(flows, 100.0 * f64::from(flows));
            window.on_losses(u64::MAX, 0, true, false);
            let mut now = Time::from_micros(0);
            for _ in 0..500 {
                now += Duration::from_millis(10);
                window.add_acked(35.0 * f64::from(flows), 35.0 * f64::from(flows));
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
    fn nothing_is_decided_in_slow_start() {
        let mut window = GroupWindow::new(1);
        window.add_acked(10.0, 10.0);
        window.grow(Time::from_micros(1), 0.02);
        window.on_losses(1, 0, true, false);
        assert!(window.is_starting() && window.epoch() == 0);
    }

    #[test]
    fn no_flow_falls_below_two_segments() {
        let mut window = begun(2, 0.0);
        for heard in 0..20 {
            window.on_losses(100, heard, true, true);
        }
        assert_eq!(window.total(), 4.0);
    }
}
