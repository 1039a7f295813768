//! A member: what it reported, what it can use, and what it was told.

use ccplane_agent::{Control, FlowInfo};
use ccplane_datapath::INFINITY;
use ccplane_units::{Duration, Time};

use super::LEAST_SEGMENTS;
use super::window::Window;

/// Of a new smoothed RTT in what is kept. Parts are in proportion to it: with more they would move
/// with every queue, which is the same for all.
const GAIN: f64 = 1.0 / 16.0;
/// Least time over which it is judged what a member can use; else a round trip. Shorter and one
/// burst decides.
const PERIOD: Duration = Duration::from_millis(10);
/// One that sends less than this part of its pace, though it has more to send, is held by something
/// else. Near 1 a late ACK looks like that; far below it, what it leaves is lost.
const SHORT: f64 = 0.8;
/// So many periods on end, that is. A pace that rose needs some to be reached; with more, what it
/// leaves is lost for as long.
const SHORT_PERIODS: u32 = 8;
/// A member whom its application or the network holds may have so much more than it used, to grow.
/// With less it is slower to find that it could use more; with more, more is lost to the others.
const ROOM: f64 = 1.25;
/// Without a word for so many round trips, it is idle. With fewer, a lost packet at the end of a
/// window makes it idle; with more, its part is lost for as long.
const SILENT: f64 = 4.0;
/// Nobody who has just come is idle before this, seconds: a handshake, and an agent that is far.
const PATIENCE: f64 = 1.0;
/// Smaller rises of a pace are not worth a command; falls always are, for the sum keeps to the
/// limit.
const RISE: f64 = 1.005;

/// A report of the program, in its order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// Bytes delivered, and those of them that count for growth, and those while the application
    /// had more.
    pub acked: u64,
    pub counted: u64,
    pub busy: u64,
    /// Packets lost that may be of a new round trip, and others.
    pub lost: u64,
    pub late: u64,
    /// Most bytes in flight.
    pub flight: u64,
    pub timeouts: u64,
    pub undos: u64,
    pub srtt: u64,
    /// The window; in a recovery the one before.
    pub cwnd: u64,
    /// Reductions that it made by itself, ever.
    pub cuts: u64,
    /// Reductions of the group that it had heard of.
    pub epoch: u64,
    pub slow: bool,
}

impl Heard {
    pub fn read(fields: &[u64]) -> Option<Heard> {
        let mut fields = fields.iter().copied();
        let mut next = || fields.next();
        Some(Heard {
            acked: next()?,
            counted: next()?,
            busy: next()?,
            lost: next()?,
            late: next()?,
            flight: next()?,
            timeouts: next()?,
            undos: next()?,
            srtt: next()?,
            cwnd: next()?,
            cuts: next()?,
            epoch: next()?,
            slow: next()? != 0,
        })
    }
}

/// What its program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    wish: u64,
    stamp: u64,
    seen: u64,
    pub pace: u64,
}

impl Order {
    /// By the names of the program's variables.
    pub fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("wish", self.wish),
            ("stamp", self.stamp),
            ("seen", self.seen),
            ("pace", self.pace),
        ]
    }
}

/// A flow of the algorithm.
pub(super) struct Member {
    /// Of the group. Others have windows of their own.
    pub inside: bool,
    /// Index of the owner of its key.
    pub owner: usize,
    pub weight: f64,
    pub mss: f64,
    /// Where its window is no part of the group's.
    pub own: Option<Window>,
    /// Bytes.
    pub cwnd: f64,
    /// Smoothed, seconds; 0 before the first.
    pub rtt: f64,
    /// Fell silent.
    pub idle: bool,
    /// Most that it can use: segments, and bytes/s.
    pub wants_segments: f64,
    pub wants_rate: f64,
    /// Its part of the rate, bytes/s; 0 without one.
    pub pace: u64,
    /// Its part of a window, segments.
    pub part: f64,
    wish: u64,
    stamp: u64,
    cuts: u64,
    told: Option<Order>,
    came: Time,
    /// When something was delivered last; nothing yet.
    heard: Option<Time>,
    /// Since when the next three are counted.
    since: Time,
    acked: f64,
    busy: f64,
    flight: f64,
    /// Periods on end in which it was short of its pace.
    short: u32,
    /// Something else than its pace holds it.
    held: bool,
}

impl Member {
    pub fn new(now: Time, info: &FlowInfo, inside: bool, owner: usize, weight: f64) -> Member {
        Member {
            inside,
            owner,
            weight,
            mss: info.mss.get().max(1) as f64,
            own: None,
            cwnd: info.cwnd.get() as f64,
            rtt: info.srtt.as_secs_f64(),
            idle: false,
            wants_segments: f64::INFINITY,
            wants_rate: f64::INFINITY,
            pace: 0,
            part: 0.0,
            wish: INFINITY,
            stamp: 0,
            cuts: 0,
            told: None,
            came: now,
            heard: None,
            since: now,
            acked: 0.0,
            busy: 0.0,
            flight: 0.0,
            short: 0,
            held: false,
        }
    }

    /// Its window in segments.
    pub fn segments(&self) -> f64 {
        self.cwnd / self.mss
    }

    /// Takes a report in. True when it gave way by itself since the last.
    pub fn hear(&mut self, now: Time, heard: &Heard) -> bool {
        if (1..INFINITY).contains(&heard.srtt) {
            let rtt = heard.srtt as f64 / 1e6;
            self.rtt += if self.rtt > 0.0 {
                GAIN * (rtt - self.rtt)
            } else {
                rtt
            };
        }
        self.cwnd = heard.cwnd as f64;
        let cut = heard.cuts > self.cuts;
        self.cuts = heard.cuts;
        if heard.acked > 0 && self.idle {
            // It begins anew: what it sent in the time of silence says nothing of what it can use.
            self.idle = false;
            self.since = now;
            (self.acked, self.busy, self.flight) = (0.0, 0.0, 0.0);
            self.wants_all();
        }
        self.acked += heard.acked as f64;
        self.busy += heard.busy as f64;
        self.flight = self.flight.max(heard.flight as f64);
        if heard.acked > 0 {
            self.heard = Some(now);
            // At once, where it is its application that had less before.
            if heard.busy >= heard.acked / 2 && !self.held {
                self.wants_all();
            }
        }
        let elapsed = now.since(self.since).as_secs_f64();
        if elapsed >= self.rtt.max(PERIOD.as_secs_f64()) {
            self.judge(elapsed);
            self.since = now;
            (self.acked, self.busy, self.flight) = (0.0, 0.0, 0.0);
        }
        cut
    }

    /// What it can use, by a period.
    fn judge(&mut self, elapsed: f64) {
        if self.acked == 0.0 {
            return;
        }
        let rate = self.acked / elapsed;
        if self.busy < self.acked / 2.0 {
            (self.short, self.held) = (0, false);
            self.wants_rate = ROOM * rate;
            self.wants_segments = ROOM * self.flight / self.mss + LEAST_SEGMENTS;
            return;
        }
        let pace = self.pace as f64;
        self.short = if rate < SHORT * pace {
            self.short + 1
        } else {
            0
        };
        let wants = ROOM * rate;
        if self.held && wants > pace * RISE {
            // It is its part that holds it now.
            (self.short, self.held) = (0, false);
            self.wants_all();
        } else if self.held || self.short >= SHORT_PERIODS {
            self.held = true;
            self.wants_rate = wants;
        }
    }

    fn wants_all(&mut self) {
        (self.wants_rate, self.wants_segments) = (f64::INFINITY, f64::INFINITY);
    }

    /// Whether it fell silent. `every`: seconds between its reports.
    pub fn look(&mut self, now: Time, every: f64) {
        let silent = match self.heard {
            Some(heard) => now.since(heard).as_secs_f64() > SILENT * self.rtt.max(every),
            None => now.since(self.came).as_secs_f64() > PATIENCE,
        };
        if silent && !self.idle {
            self.idle = true;
            (self.short, self.held) = (0, false);
            (self.wants_segments, self.wants_rate) = (LEAST_SEGMENTS, 0.0);
        }
    }

    /// Sets its part of a window: so many segments, or slow start.
    pub fn wish(&mut self, starting: bool, segments: f64, epoch: u64) {
        self.stamp = epoch;
        self.part = if starting {
            self.segments().floor()
        } else {
            segments
        };
        self.wish = match starting {
            true => INFINITY,
            false => ((segments.max(LEAST_SEGMENTS) * self.mss) as u64).min(INFINITY - 1),
        };
    }

    /// What it is to be told, which counts as told.
    pub fn order(&mut self) -> Order {
        let order = Order {
            wish: self.wish,
            stamp: self.stamp,
            seen: self.cuts,
            pace: self.pace,
        };
        self.told = Some(order);
        order
    }

    /// The same where it is news.
    pub fn news(&mut self) -> Option<Order> {
        let told = self.told?;
        let rises = self.pace > told.pace && (self.pace as f64) < told.pace as f64 * RISE;
        let same = self.wish == told.wish && self.stamp == told.stamp && self.cuts == told.seen;
        if same && (rises || self.pace == told.pace) {
            return None;
        }
        Some(self.order())
    }

    /// For people.
    pub fn tell(&self, members: f64, window: Option<f64>, control: &mut Control<'_>) {
        if !self.inside {
            return;
        }
        control.gauge("members", members);
        if let Some(window) = window {
            control.gauge("group_window", window);
        }
        if self.pace > 0 {
            control.gauge("share", self.pace as f64);
        }
    }
}
