//! Member: its measurements, its demand, and the values sent to it.

use ccplane_agent::{Control, FlowInfo};
use ccplane_datapath::INFINITY;
use ccplane_units::{Duration, Time};

use super::MEMBER_WINDOW_SEGMENTS_MIN;
use super::window::GroupWindow;

/// Gain of the moving average of the smoothed RTT. Parts are proportional to it. A larger gain
/// would move them with every queue, which all members share.
const SRTT_GAIN: f64 = 1.0 / 16.0;
/// Minimum time over which the demand is measured, otherwise a round trip. With less, a single
/// burst is decisive.
const DEMAND_PERIOD_MIN: Duration = Duration::from_millis(10);
/// A member that sends less than this fraction of its pacing rate, with more to send, has another
/// bottleneck. Near 1, a late ACK looks like one. Far below 1, the unused rate is wasted.
const PACING_SHORTFALL_RATIO: f64 = 0.8;
/// Consecutive periods of that. A higher pacing rate takes a few to be reached. With more, the
/// unused rate is wasted for longer.
const PACING_SHORTFALL_PERIODS: u32 = 8;
/// Room to grow for a member limited by its application or the network, relative to its usage. With
/// less, it discovers additional capacity more slowly. With more, the others lose more.
const GROWTH_HEADROOM: f64 = 1.25;
/// Round trips without a delivery after which a member is idle. With fewer, a loss at the end of a
/// window makes it idle. With more, its part is wasted for longer.
const IDLE_RTTS: f64 = 4.0;
/// Time before a new member can be idle, seconds: a handshake, and a distant agent.
const NEW_MEMBER_GRACE_SECONDS: f64 = 1.0;
/// Smaller increases of the pacing rate are not sent. Decreases always are, so that the sum keeps
/// to the limit.
const RATE_INCREASE_MIN: f64 = 1.005;

/// Report of the program, in its order of variables.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberReport {
    /// Bytes delivered; those that count for growth; those delivered while the application had more
    /// to send.
    pub acked: u64,
    pub counted: u64,
    pub busy: u64,
    /// Packets lost that may belong to a new round trip, and others.
    pub lost: u64,
    pub late: u64,
    /// Maximum bytes in flight.
    pub inflight: u64,
    pub timeouts: u64,
    pub undos: u64,
    pub srtt: u64,
    /// Window; in a recovery, the window before it.
    pub cwnd: u64,
    /// Reductions by the program itself, in total.
    pub reductions: u64,
    /// Reductions of the group that the program had received.
    pub epoch: u64,
    pub in_slow_start: bool,
}

impl MemberReport {
    pub fn read(fields: &[u64]) -> Option<MemberReport> {
        let mut fields = fields.iter().copied();
        let mut next = || fields.next();
        Some(MemberReport {
            acked: next()?,
            counted: next()?,
            busy: next()?,
            lost: next()?,
            late: next()?,
            inflight: next()?,
            timeouts: next()?,
            undos: next()?,
            srtt: next()?,
            cwnd: next()?,
            reductions: next()?,
            epoch: next()?,
            in_slow_start: next()? != 0,
        })
    }
}

/// Values sent to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberOrder {
    wish: u64,
    stamp: u64,
    seen: u64,
    pub pace: u64,
}

impl MemberOrder {
    /// Returns the values with the names of the program's variables.
    pub fn values_by_name(&self) -> [(&'static str, u64); 4] {
        [
            ("wish", self.wish),
            ("stamp", self.stamp),
            ("seen", self.seen),
            ("pace", self.pace),
        ]
    }
}

/// Flow of the algorithm.
pub(super) struct Member {
    /// Member of the group. Other flows have their own windows.
    pub in_group: bool,
    /// Index of its key's owner.
    pub owner: usize,
    pub weight: f64,
    pub mss: f64,
    /// Window of a flow that has no part of the group's.
    pub own_window: Option<GroupWindow>,
    /// Bytes.
    pub cwnd: f64,
    /// Smoothed RTT, seconds; 0 before the first sample.
    pub rtt: f64,
    /// True without a recent delivery.
    pub idle: bool,
    /// Demand: segments, and bytes/s.
    pub demand_segments: f64,
    pub demand_rate: f64,
    /// Part of the rate, bytes/s; 0 without a limit.
    pub pacing_rate: u64,
    /// Part of the window, segments.
    pub share: f64,
    wish: u64,
    stamp: u64,
    reductions: u64,
    installed: Option<MemberOrder>,
    joined: Time,
    /// Time of the last delivery, if any.
    last_delivery: Option<Time>,
    /// Start of the period in which the next three are counted.
    period_start: Time,
    acked: f64,
    busy: f64,
    flight: f64,
    /// Consecutive periods below its pacing rate.
    slow_periods: u32,
    /// True if its bottleneck is something other than its pacing rate.
    is_limited_elsewhere: bool,
}

impl Member {
    pub fn new(now: Time, info: &FlowInfo, inside: bool, owner: usize, weight: f64) -> Member {
        Member {
            in_group: inside,
            owner,
            weight,
            mss: info.mss.get().max(1) as f64,
            own_window: None,
            cwnd: info.cwnd.get() as f64,
            rtt: info.srtt.as_secs_f64(),
            idle: false,
            demand_segments: f64::INFINITY,
            demand_rate: f64::INFINITY,
            pacing_rate: 0,
            share: 0.0,
            wish: INFINITY,
            stamp: 0,
            reductions: 0,
            installed: None,
            joined: now,
            last_delivery: None,
            period_start: now,
            acked: 0.0,
            busy: 0.0,
            flight: 0.0,
            slow_periods: 0,
            is_limited_elsewhere: false,
        }
    }

    /// Returns the window in segments.
    pub fn segments(&self) -> f64 {
        self.cwnd / self.mss
    }

    /// Processes a report. Returns true if the program has reduced its part since the last one.
    pub fn on_report(&mut self, now: Time, report: &MemberReport) -> bool {
        if (1..INFINITY).contains(&report.srtt) {
            let rtt = report.srtt as f64 / 1e6;
            self.rtt += if self.rtt > 0.0 {
                SRTT_GAIN * (rtt - self.rtt)
            } else {
                rtt
            };
        }
        self.cwnd = report.cwnd as f64;
        let cut = report.reductions > self.reductions;
        self.reductions = report.reductions;
        if report.acked > 0 && self.idle {
            // Starts a new period: an idle period does not measure the demand.
            self.idle = false;
            self.period_start = now;
            (self.acked, self.busy, self.flight) = (0.0, 0.0, 0.0);
            self.set_demand_unlimited();
        }
        self.acked += report.acked as f64;
        self.busy += report.busy as f64;
        self.flight = self.flight.max(report.inflight as f64);
        if report.acked > 0 {
            self.last_delivery = Some(now);
            // Restores full demand at once if only the application was the limit before.
            if report.busy >= report.acked / 2 && !self.is_limited_elsewhere {
                self.set_demand_unlimited();
            }
        }
        let elapsed = now.since(self.period_start).as_secs_f64();
        if elapsed >= self.rtt.max(DEMAND_PERIOD_MIN.as_secs_f64()) {
            self.update_demand(elapsed);
            self.period_start = now;
            (self.acked, self.busy, self.flight) = (0.0, 0.0, 0.0);
        }
        cut
    }

    /// Updates the demand at the end of a period.
    fn update_demand(&mut self, elapsed: f64) {
        if self.acked == 0.0 {
            return;
        }
        let rate = self.acked / elapsed;
        if self.busy < self.acked / 2.0 {
            (self.slow_periods, self.is_limited_elsewhere) = (0, false);
            self.demand_rate = GROWTH_HEADROOM * rate;
            self.demand_segments =
                GROWTH_HEADROOM * self.flight / self.mss + MEMBER_WINDOW_SEGMENTS_MIN;
            return;
        }
        let pace = self.pacing_rate as f64;
        self.slow_periods = if rate < PACING_SHORTFALL_RATIO * pace {
            self.slow_periods + 1
        } else {
            0
        };
        let wants = GROWTH_HEADROOM * rate;
        if self.is_limited_elsewhere && wants > pace * RATE_INCREASE_MIN {
            // The pacing rate is the limit again.
            (self.slow_periods, self.is_limited_elsewhere) = (0, false);
            self.set_demand_unlimited();
        } else if self.is_limited_elsewhere || self.slow_periods >= PACING_SHORTFALL_PERIODS {
            self.is_limited_elsewhere = true;
            self.demand_rate = wants;
        }
    }

    fn set_demand_unlimited(&mut self) {
        (self.demand_rate, self.demand_segments) = (f64::INFINITY, f64::INFINITY);
    }

    /// Checks whether the member is idle. `every`: seconds between its reports.
    pub fn check_idle(&mut self, now: Time, every: f64) {
        let silent = match self.last_delivery {
            Some(heard) => now.since(heard).as_secs_f64() > IDLE_RTTS * self.rtt.max(every),
            None => now.since(self.joined).as_secs_f64() > NEW_MEMBER_GRACE_SECONDS,
        };
        if silent && !self.idle {
            self.idle = true;
            (self.slow_periods, self.is_limited_elsewhere) = (0, false);
            (self.demand_segments, self.demand_rate) = (MEMBER_WINDOW_SEGMENTS_MIN, 0.0);
        }
    }

    /// Sets its part of a window: `segments`, or slow start.
    pub fn set_share(&mut self, starting: bool, segments: f64, epoch: u64) {
        self.stamp = epoch;
        self.share = if starting {
            self.segments().floor()
        } else {
            segments
        };
        self.wish = match starting {
            true => INFINITY,
            false => {
                ((segments.max(MEMBER_WINDOW_SEGMENTS_MIN) * self.mss) as u64).min(INFINITY - 1)
            }
        };
    }

    /// Returns the values to send, and marks them as sent.
    pub fn take_order(&mut self) -> MemberOrder {
        let order = MemberOrder {
            wish: self.wish,
            stamp: self.stamp,
            seen: self.reductions,
            pace: self.pacing_rate,
        };
        self.installed = Some(order);
        order
    }

    /// Returns the values to send if they changed.
    pub fn take_changed_order(&mut self) -> Option<MemberOrder> {
        let told = self.installed?;
        let rises = self.pacing_rate > told.pace
            && (self.pacing_rate as f64) < told.pace as f64 * RATE_INCREASE_MIN;
        let same =
            self.wish == told.wish && self.stamp == told.stamp && self.reductions == told.seen;
        if same && (rises || self.pacing_rate == told.pace) {
            return None;
        }
        Some(self.take_order())
    }

    /// Exports gauges for monitoring.
    pub fn export_gauges(&self, members: f64, window: Option<f64>, control: &mut Control<'_>) {
        if !self.in_group {
            return;
        }
        control.gauge("members", members);
        if let Some(window) = window {
            control.gauge("group_window", window);
        }
        if self.pacing_rate > 0 {
            control.gauge("share", self.pacing_rate as f64);
        }
    }
}
