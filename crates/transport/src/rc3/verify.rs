//! Whether the second loop does harm: it stops for good where the path does not keep the marking, or where class 0 waits because of it.

use ccplane_units::{Duration, Time};

use crate::connection::Connection;
use crate::number::Number;
use crate::ranges::MOST as MOST_RANGES;

/// Why the second loop of a connection stopped, for good; the flow goes on with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rc3Stop {
    /// The path does not keep the marking.
    #[error(
        "the path does not keep the marking: what was sent in class {class} arrived in class 0; ask for DSCP to be kept, or send without the second loop"
    )]
    Marking {
        /// As what it was sent.
        class: u8,
    },
    /// Class 0 waits longer since the second loop sends.
    #[error("class 0 waits beside it: a round trip takes {} ms at least, {} ms before; where the bottleneck has strict priority between classes, class 0 fills it by itself, else it needs that priority", .with.as_millis(), .without.as_millis())]
    Delay {
        /// The least RTT in a round of class 0 beside it.
        with: Duration,
        /// The least RTT of the connection.
        without: Duration,
    },
    /// What it sent lies in more pieces than are remembered.
    #[error(
        "what is sent at low priority and not acknowledged lies in {} pieces: the stream is written in bursts faster than class 0 follows; write less ahead",
        MOST_RANGES
    )]
    Scattered,
}

impl Rc3Stop {
    /// In two words, without what was measured: for counting.
    pub fn kind(self) -> &'static str {
        match self {
            Rc3Stop::Marking { .. } => "marking lost",
            Rc3Stop::Delay { .. } => "class 0 waits",
            Rc3Stop::Scattered => "too scattered",
        }
    }
}

/// How class 0 fares while the second loop sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// When it sent the first and the last segment of those that are on their way.
    first: Time,
    last: Time,
    /// A round of class 0 ends when this is acknowledged.
    end: Number,
    /// The least RTT, in it and in those before it that said too little, of segments that left between the first and an RTT after the last, and how many there were.
    least: Duration,
    samples: u32,
}

/// Rounds say something together when so many of their RTTs were taken: one of a large window, several of a small one. Fewer let a burst of
/// others' packets stop the second loop, more let it harm class 0 for longer.
const SAMPLES: u32 = 8;
/// The second loop stops when every packet of class 0 in a round took longer than the least RTT by a quarter of that, and this.
/// Queues that keep the classes apart delay class 0 by a packet a hop at most. A queue that does not is filled by the tail,
/// commonly to a whole RTT. Smaller than a quarter and the queue of other flows, or class 0's own, stops the second loop where
/// it does no harm; larger and class 0 waits longer before it stops. Below 2 ms a host's own delays would stop it.
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

    /// The second loop sends a segment; `alone`: none of its others is on its way.
    pub fn sends(&mut self, now: Time, alone: bool) {
        if alone {
            self.first = now;
        }
        self.last = now;
    }
}

impl Connection {
    /// An RTT of class 0: the second loop stops where class 0 waits because of it. The least of whole rounds is compared, as
    /// a burst of class 0 delays its own last packets, but not its first.
    #[cold]
    pub(crate) fn watch(&mut self, rtt: Duration, now: Time) {
        let (una, next, without, srtt) = (
            self.flight.una(),
            self.flight.next(),
            self.rtt.least(),
            self.rtt.smoothed(),
        );
        let verify = self.config.rc3.is_some_and(|rc3| rc3.verify);
        let Some(rc3) = self.rc3.as_deref_mut() else { return };
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
