//! Detection of harm by RC3. RC3 stops for good if the path does not keep the DSCP marking, or if
//! it delays class 0.

use ccplane_units::{Duration, Time};

use crate::connection::Connection;
use crate::number::SequenceNumber;
use crate::ranges::RANGES_MAX as MOST_RANGES;

/// Reason why RC3 stopped on a connection, for good. Class 0 continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rc3Stop {
    /// The path does not keep the DSCP marking.
    #[error(
        "the path resets the marking: packets sent in class {class} arrived in class 0; have the \
        network preserve DSCP, or send without the second loop"
    )]
    Marking {
        /// Class in which the segment was sent.
        class: u8,
    },
    /// RC3 delays class 0.
    #[error("the second loop delays class 0: its minimum RTT is {} ms, and was {} ms before; \
        unless class 0 alone fills the bottleneck, the bottleneck needs strict priority between \
        classes", .with.as_millis(), .without.as_millis())]
    Delay {
        /// Minimum RTT of class 0 in a round while RC3 was active.
        with: Duration,
        /// Minimum RTT of the connection.
        without: Duration,
    },
    /// RC3's segments lie in more ranges than are tracked.
    #[error(
        "unacknowledged low-priority data is in {} pieces, because the stream is written in bursts \
        faster than class 0 sends; write less ahead",
        MOST_RANGES
    )]
    Scattered,
}

impl Rc3Stop {
    /// Short name without numbers, for counters.
    pub fn kind(self) -> &'static str {
        match self {
            Rc3Stop::Marking { .. } => "marking lost",
            Rc3Stop::Delay { .. } => "class 0 waits",
            Rc3Stop::Scattered => "too scattered",
        }
    }
}

/// RTT samples of class 0 while RC3 is active.
#[derive(Clone, Copy, Debug)]
pub(super) struct RttMonitor {
    /// Transmission times of the first and the last segment of RC3 in flight.
    first_sent: Time,
    last_sent: Time,
    /// The round of class 0 ends when everything before this number is acknowledged.
    round_end: SequenceNumber,
    /// Minimum RTT of class-0 segments sent while RC3 was active, over as many rounds as give
    /// `RTT_SAMPLES_MIN` samples; and the number of samples.
    min_rtt: Duration,
    samples: u32,
}

/// RTT samples needed for a decision: one round of a large window, several rounds of a small one.
/// With fewer, a burst of other traffic stops RC3; with more, RC3 harms class 0 for longer.
const RTT_SAMPLES_MIN: u32 = 8;
/// RC3 stops if the minimum RTT of a round exceeds the connection's minimum RTT by a quarter, and
/// by at least this much. Queues that separate the classes delay class 0 by at most a packet per
/// hop. RC3 fills other queues, commonly to a whole RTT. With less than a quarter, the queue of
/// other flows or of class 0 would stop RC3 although it does no harm. With more, class 0 waits
/// longer before RC3 stops. With less than 2 ms, scheduling delays of a host would stop it.
const DELAY_INCREASE_MIN: Duration = Duration::from_millis(2);

impl RttMonitor {
    pub fn new(next: SequenceNumber) -> RttMonitor {
        RttMonitor {
            first_sent: Time::ZERO,
            last_sent: Time::ZERO,
            round_end: next,
            min_rtt: Duration::MAX,
            samples: 0,
        }
    }

    /// Records a transmission of RC3. `alone`: no other segment of RC3 is in flight.
    pub fn on_sent(&mut self, now: Time, was_idle: bool) {
        if was_idle {
            self.first_sent = now;
        }
        self.last_sent = now;
    }
}

impl Connection {
    /// Takes an RTT sample of class 0, and stops RC3 if it delays class 0. Rounds are compared by
    /// their minimum RTT: a burst of class 0 delays its own last packets, but not its first.
    #[cold]
    pub(crate) fn on_class0_rtt(&mut self, rtt: Duration, now: Time) {
        let (una, next, without, srtt) = (
            self.flight.una(),
            self.flight.next(),
            self.rtt.min_rtt(),
            self.rtt.srtt(),
        );
        let verify = self.config.rc3.is_some_and(|rc3| rc3.verify);
        let Some(rc3) = self.rc3.as_deref_mut() else {
            return;
        };
        // Also after RC3 has stopped.
        rc3.on_cumulative_ack(una);
        if !verify || rc3.stats.stopped.is_some() {
            return;
        }
        let left = Time::from_nanos(now.as_nanos().saturating_sub(rtt.as_nanos()));
        let watch = &mut rc3.rtt_monitor;
        if left > watch.first_sent && left <= watch.last_sent + srtt && watch.last_sent > Time::ZERO
        {
            watch.min_rtt = watch.min_rtt.min(rtt);
            watch.samples += 1;
        }
        if una.is_before(watch.round_end) {
            return;
        }
        watch.round_end = next;
        if watch.samples < RTT_SAMPLES_MIN {
            return;
        }
        let with = watch.min_rtt;
        (watch.min_rtt, watch.samples) = (Duration::MAX, 0);
        if with > without + (without / 4).max(DELAY_INCREASE_MIN) {
            rc3.stats.stopped = Some(Rc3Stop::Delay { with, without });
        }
    }
}
