//! Whether RC3 does harm. It stops for good where the path does not keep the marking, or where
//! class 0 is delayed because of it.

use ccplane_units::{Duration, Time};

use crate::connection::Connection;
use crate::number::Number;
use crate::ranges::MOST as MOST_RANGES;

/// Why RC3 stopped on a connection, for good. Class 0 goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rc3Stop {
    /// The path does not keep the marking.
    #[error(
        "the path does not keep the marking: what was sent in class {class} arrived in class 0; ask for DSCP to be kept, or send without the second loop"
    )]
    Marking {
        /// The class in which it was sent.
        class: u8,
    },
    /// Class 0 is delayed while RC3 sends.
    #[error("class 0 waits beside it: a round trip takes {} ms at least, {} ms before; where the bottleneck has strict priority between classes, class 0 fills it by itself, else it needs that priority", .with.as_millis(), .without.as_millis())]
    Delay {
        /// Least RTT of class 0 in a round while RC3 was active.
        with: Duration,
        /// Least RTT of the connection.
        without: Duration,
    },
    /// RC3's segments lie in more ranges than are tracked.
    #[error(
        "what is sent at low priority and not acknowledged lies in {} pieces: the stream is written in bursts faster than class 0 follows; write less ahead",
        MOST_RANGES
    )]
    Scattered,
}

impl Rc3Stop {
    /// A short name without figures, for counting.
    pub fn kind(self) -> &'static str {
        match self {
            Rc3Stop::Marking { .. } => "marking lost",
            Rc3Stop::Delay { .. } => "class 0 waits",
            Rc3Stop::Scattered => "too scattered",
        }
    }
}

/// RTTs of class 0 while RC3 is active.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// When RC3 sent the first and the last of its segments in flight.
    first: Time,
    last: Time,
    /// A round of class 0 ends when this is acknowledged.
    end: Number,
    /// Smallest RTT of class-0 segments sent while RC3 was active, pooled over rounds until SAMPLES
    /// are in; and their number.
    least: Duration,
    samples: u32,
}

/// RTT samples needed for a verdict: one round of a large window, several of a small one. Fewer let
/// a burst of other traffic stop RC3, more let it harm class 0 for longer.
const SAMPLES: u32 = 8;
/// RC3 stops when the least RTT of a round exceeds the connection's least RTT by a quarter of that,
/// and by at least this. Queues that keep the classes apart delay class 0 by at most a packet per
/// hop. Other queues are filled by RC3, commonly to a whole RTT. Below a quarter, the queue of
/// other flows or of class 0 stops RC3 where it does no harm. Above it, class 0 waits longer before
/// RC3 stops. Below 2 ms a host's own delays would stop it.
const HARM: Duration = Duration::from_millis(2);

impl Watch {
    pub fn new(next: Number) -> Watch {
        Watch {
            first: Time::ZERO,
            last: Time::ZERO,
            end: next,
            least: Duration::MAX,
            samples: 0,
        }
    }

    /// RC3 sends a segment. `alone`: none of its others is in flight.
    pub fn sends(&mut self, now: Time, alone: bool) {
        if alone {
            self.first = now;
        }
        self.last = now;
    }
}

impl Connection {
    /// Takes an RTT sample of class 0, and stops RC3 where class 0 is delayed by it. Rounds are
    /// compared by their least RTT: a burst of class 0 delays its own last packets, but not its
    /// first.
    #[cold]
    pub(crate) fn watch(&mut self, rtt: Duration, now: Time) {
        let (una, next, without, srtt) = (
            self.flight.una(),
            self.flight.next(),
            self.rtt.least(),
            self.rtt.smoothed(),
        );
        let verify = self.config.rc3.is_some_and(|rc3| rc3.verify);
        let Some(rc3) = self.rc3.as_deref_mut() else {
            return;
        };
        // Also where it sends no more.
        rc3.forget_before(una);
        if !verify || rc3.stats.stopped.is_some() {
            return;
        }
        let left = Time::from_nanos(now.as_nanos().saturating_sub(rtt.as_nanos()));
        let watch = &mut rc3.watch;
        if left > watch.first && left <= watch.last + srtt && watch.last > Time::ZERO {
            watch.least = watch.least.min(rtt);
            watch.samples += 1;
        }
        if una.before(watch.end) {
            return;
        }
        watch.end = next;
        if watch.samples < SAMPLES {
            return;
        }
        let with = watch.least;
        (watch.least, watch.samples) = (Duration::MAX, 0);
        if with > without + (without / 4).max(HARM) {
            rc3.stats.stopped = Some(Rc3Stop::Delay { with, without });
        }
    }
}
