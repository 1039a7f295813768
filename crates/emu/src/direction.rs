//! One direction of the path as a state machine: packets in, packets out at their time. No clock, no device.

use std::collections::VecDeque;

use ccplane_qdisc::{Delay, FifoLink, Limit, LineSpec, Loss};
use ccplane_units::{Duration, Probability, Time};

use crate::LinkConfig;
use crate::log::{Fate, LinkLog, Record, Summary};
use crate::store::Store;

/// A link with the packets that are in it.
#[derive(Debug)]
pub(crate) struct Direction {
    loss: Loss,
    link: FifoLink,
    delay: Delay,
    /// Admitted and not yet delivered, in order; the last ones wait in `link`, the others are past it.
    inside: VecDeque<Admitted>,
    store: Store,
    log: LinkLog,
    /// When the packet before the oldest one was due: nothing overtakes, whatever the delay becomes.
    last_due: Time,
}

#[derive(Clone, Copy, Debug)]
struct Admitted {
    arrived: Time,
    departs: Time,
    due: Time,
    summary: Summary,
}

impl Direction {
    /// An empty link; a trace begins at `now`.
    pub(crate) fn new(config: &LinkConfig, limit: Limit, store: Store, log: LinkLog, now: Time) -> Direction {
        Direction {
            loss: Loss::new(config.loss, config.seed),
            link: FifoLink::new(&config.line, limit, now),
            delay: Delay::new(config.delay),
            inside: VecDeque::with_capacity(4_096),
            store,
            log,
            last_due: now,
        }
    }

    /// Memory to put the next packet in, of at most `bytes`; then say how long it was with
    /// [`arrive`](Direction::arrive). `None` when memory is used up.
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.store.room(bytes)
    }

    /// A packet came, and is in the first `bytes` of [`room`](Direction::room).
    pub(crate) fn arrive(&mut self, now: Time, summary: Summary) {
        self.log.arrived += 1;
        if self.loss.next_is_lost() {
            self.log.add(Record::new(now, summary, Fate::Lost));
            return;
        }
        match self.link.enqueue(now, u32::from(summary.bytes)) {
            Ok(departs) => {
                self.store.keep(usize::from(summary.bytes));
                self.inside.push_back(Admitted {
                    arrived: now,
                    departs,
                    due: self.delay.arrives(departs),
                    summary,
                });
            }
            Err(_) => self.log.add(Record::new(now, summary, Fate::QueueFull)),
        }
    }

    /// When the oldest packet is to be delivered.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.inside.front().map(|oldest| oldest.due)
    }

    /// The oldest packet.
    pub(crate) fn oldest(&mut self) -> Option<&[u8]> {
        let oldest = self.inside.front()?;
        Some(self.store.oldest(usize::from(oldest.summary.bytes)))
    }

    /// The oldest packet has been delivered.
    pub(crate) fn delivered(&mut self) {
        if let Some(oldest) = self.inside.pop_front() {
            self.store.forget(usize::from(oldest.summary.bytes));
            self.last_due = oldest.due;
            let fate = Fate::Departed(oldest.departs);
            self.log.add(Record::new(oldest.arrived, oldest.summary, fate));
        }
    }

    /// Changes the line. What waits is planned anew.
    pub(crate) fn set_line(&mut self, now: Time, line: &LineSpec) {
        self.link.set_line(now, line);
        self.plan();
    }

    /// Changes the delay of what has not left the queue; what is past it arrives as planned.
    pub(crate) fn set_delay(&mut self, now: Time, delay: Duration) {
        self.delay.set(delay);
        self.link.advance(now);
        self.plan();
    }

    /// Changes the probability of random loss for the packets to come.
    pub(crate) fn set_loss(&mut self, probability: Probability) {
        self.loss.set_probability(probability);
    }

    fn plan(&mut self) {
        let departures = self.link.departures();
        let past = self.inside.len().saturating_sub(departures.len());
        let last_past = past.checked_sub(1).and_then(|last| self.inside.get(last));
        self.delay
            .replan_after(last_past.map_or(self.last_due, |packet| packet.due));
        for (packet, departs) in self.inside.iter_mut().skip(past).zip(departures) {
            packet.departs = departs;
            packet.due = self.delay.arrives(departs);
        }
    }

    /// Counters and records so far.
    pub(crate) fn log(&self) -> &LinkLog {
        &self.log
    }

    /// Bytes that have not left the queue.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.link.backlog().bytes
    }

    /// The log, at the end.
    pub(crate) fn finish(mut self) -> LinkLog {
        self.log.inside = self.inside.len() as u64;
        self.log
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Rate;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Packet(u16),
        Rate(u64),
        Delay(u64),
        Loss(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            10 => (40_u16..1_501).prop_map(Step::Packet),
            1 => (10_000_u64..20_000_000).prop_map(Step::Rate),
            1 => (0_u64..50_000_000).prop_map(Step::Delay),
            1 => (0_u64..1 << 31).prop_map(Step::Loss),
        ]
    }

    fn direction(rate: u64) -> Direction {
        let config = LinkConfig {
            line: LineSpec::Constant(Rate::from_bytes_per_sec(rate)),
            delay: Duration::from_millis(5),
            ..LinkConfig::default()
        };
        let store = Store::new(1 << 20);
        Direction::new(&config, Limit::Packets(20), store, LinkLog::new(usize::MAX), Time::ZERO)
    }

    /// Takes what is due by `now`; every packet carries the number that it was given.
    fn take(link: &mut Direction, now: Time, taken: &mut Vec<(Time, u8)>) {
        while let Some(due) = link.next_due()
            && due <= now
        {
            let number = link.oldest().expect("one is due")[0];
            taken.push((due, number));
            link.delivered();
        }
    }

    proptest! {
        #[test]
        fn nothing_overtakes_or_disappears(steps in proptest::collection::vec((0_u64..3_000_000, step()), 1..200)) {
            let mut link = direction(1_000_000);
            let (mut now, mut taken, mut sent) = (Time::ZERO, Vec::new(), 0_u8);
            for (gap, step) in steps {
                now += Duration::from_nanos(gap);
                take(&mut link, now, &mut taken);
                match step {
                    Step::Packet(bytes) => {
                        let room = link.room(1_500).expect("20 packets and the delay's fit");
                        room[0] = sent;
                        sent += 1;
                        link.arrive(now, Summary { bytes, ..Summary::default() });
                    }
                    Step::Rate(rate) => link.set_line(now, &LineSpec::Constant(Rate::from_bytes_per_sec(rate))),
                    Step::Delay(delay) => link.set_delay(now, Duration::from_nanos(delay)),
                    Step::Loss(parts) => link.set_loss(Probability::from_parts(parts)),
                }
                let log = link.log();
                let inside = link.inside.len() as u64;
                prop_assert_eq!(log.arrived, log.delivered + log.queue_drops + log.losses + inside);
            }
            take(&mut link, Time::MAX, &mut taken);
            prop_assert!(taken.is_sorted(), "in order of time and of number");
            let log = link.finish();
            prop_assert_eq!(log.arrived, u64::from(sent));
            prop_assert_eq!(log.delivered, taken.len() as u64);
            prop_assert!(log.records().filter_map(Record::sojourn).count() == taken.len());
        }
    }

    #[test]
    fn a_shorter_delay_holds_for_what_waits_and_lets_nothing_overtake() {
        // 1 ms a packet.
        let mut link = direction(1_500_000);
        for _ in 0..3 {
            link.room(1_500).expect("room");
            link.arrive(
                Time::ZERO,
                Summary {
                    bytes: 1_500,
                    ..Summary::default()
                },
            );
        }
        // The first has left the queue and stays due at 6 ms; the others cannot come before it.
        link.set_delay(Time::from_micros(1_500), Duration::ZERO);
        let dues: Vec<_> = link.inside.iter().map(|packet| packet.due.as_micros()).collect();
        assert_eq!(dues, [6_000, 6_000, 6_000]);
        link.set_delay(Time::from_micros(1_600), Duration::from_millis(10));
        let dues: Vec<_> = link.inside.iter().map(|packet| packet.due.as_micros()).collect();
        assert_eq!(dues, [6_000, 12_000, 13_000]);
    }
}
