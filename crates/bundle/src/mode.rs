//! Modes of a bundle, with and without a rate limit, and the transitions between them.
//!
//! A bundle starts in open mode, without a limit, and stays there until the network has a queue
//! that can be moved to the sendbox. It returns to open mode at once when the limit is no longer
//! justified: without feedback, on multiple paths, or without an agent. Open mode is always safe,
//! because it is how the site's traffic behaves without a sendbox.
//!
//! Only a queue that contains packets of the bundle counts. A ping queued behind the traffic of
//! others must not start a limit at the rate of pings, and the rate of an idle site does not
//! measure the link.

use std::collections::VecDeque;

use ccplane_units::{Duration, Rate, Time};

/// Mode of a sendbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SendboxMode {
    /// No limit: packets are sent as they arrive.
    Open,
    /// The rate limit keeps the network's queue short, so the queue builds up in the sendbox.
    Delay,
    /// Elastic cross traffic fills the network's queue. Traffic passes through, with only the queue
    /// in the sendbox that the rate pulses need.
    PassThrough,
}

/// Reason for a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// There has been no queue in the network that could be moved.
    Start,
    /// There is a queue in the network.
    Queue,
    /// The cross traffic is elastic: it responds to the queue.
    Elastic,
    /// The cross traffic is no longer elastic.
    Inelastic,
    /// There is no feedback although packets are in flight.
    NoFeedback,
    /// Packets arrive out of order, so they take several paths without a common queue.
    Multipath,
    /// The sendbox is configured to observe only.
    Observe,
    /// The operator disabled the limit.
    Operator,
    /// The agent does not respond.
    Agent,
}

impl Reason {
    /// All reasons, in order of their discriminants.
    pub const ALL: [Reason; 9] = [
        Reason::Start,
        Reason::Queue,
        Reason::Elastic,
        Reason::Inelastic,
        Reason::NoFeedback,
        Reason::Multipath,
        Reason::Observe,
        Reason::Operator,
        Reason::Agent,
    ];

    /// Returns the name used in events and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Start => "start",
            Reason::Queue => "queue",
            Reason::Elastic => "elastic",
            Reason::Inelastic => "inelastic",
            Reason::NoFeedback => "silent",
            Reason::Multipath => "multipath",
            Reason::Observe => "observe",
            Reason::Operator => "by_hand",
            Reason::Agent => "agent",
        }
    }
}

impl SendboxMode {
    /// Returns the name used in events and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            SendboxMode::Open => "open",
            SendboxMode::Delay => "delay",
            SendboxMode::PassThrough => "passing",
        }
    }
}

/// Returns whether an algorithm has selected pass-through mode, which it reports as a value of 1 of
/// its gauge `mode`.
pub fn wants_pass_through(gauges: &[(&str, f64)]) -> bool {
    gauges
        .iter()
        .any(|(name, value)| *name == "mode" && *value == 1.0)
}

/// A mode change, with the path state at that time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModeChange {
    /// Time of the change.
    pub at: Time,
    /// Previous mode.
    pub from: SendboxMode,
    /// New mode.
    pub to: SendboxMode,
    /// Reason for the change.
    pub reason: Reason,
    /// Path state at the time of the change.
    pub path: PathObservation,
}

/// Path state on which the mode depends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathObservation {
    /// Last RTT; zero before the first sample.
    pub rtt: Duration,
    /// Minimum RTT of the last 10 s.
    pub min_rtt: Duration,
    /// RTT variation caused by jitter.
    pub jitter: Duration,
    /// S, the sending rate.
    pub sent: Rate,
    /// R, the receiving rate.
    pub received: Rate,
    /// Fraction of out-of-order packets; `None` if there were too few packets.
    pub out_of_order: Option<f64>,
    /// Bytes queued in the sendbox.
    pub waiting: u64,
}

/// The network has a queue if the RTT exceeds the minimum RTT by this factor (1.25, the target of
/// BasicDelay: a limit would leave a smaller queue than that anyway) ...
const QUEUE_RTT_RATIO: (u64, u64) = (5, 4);
/// ... and by this time: on a path of 1 ms, a quarter is only a few packets.
const QUEUE_DELAY_MIN: Duration = Duration::from_micros(500);
/// Minimum bytes of the bundle in the network's queue for a queue that can be moved: four full
/// packets. With fewer, a ping would start a limit at its own rate, and a single delayed packet
/// would count as a queue. With more, the limit would start late on slow links.
const OWN_QUEUE_BYTES_MIN: u64 = 6_000;
/// Time without a queue, in the sendbox or in the network, after which the limit ends. If it were
/// longer, the algorithm would take the rate of an idle site for the link's capacity; if it were
/// shorter, each pause of a busy site would cost the queue of a slow start.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Consecutive feedback messages with a queue that start a limit. A single one may be a delayed
/// packet; more would let the queue grow for longer.
const QUEUE_SAMPLES_MIN: u8 = 2;
/// Fraction of out-of-order packets above which packets take several paths (paper, section 5.2: at
/// most 0.4 % on one path, at least 20 % on several).
const MULTIPATH_REORDERING_MIN: f64 = 0.05;
/// Fraction below which they take a single path again ...
const SINGLE_PATH_REORDERING_MAX: f64 = 0.01;
/// ... after this time. If it were shorter, a path that is split occasionally would be limited in
/// between.
const SINGLE_PATH_PERIOD: Duration = Duration::from_secs(30);
/// Limit of stored mode changes.
const MODE_CHANGES_MAX: usize = 64;

/// Mode state machine.
#[derive(Clone, Debug)]
pub(crate) struct Modes {
    mode: SendboxMode,
    reason: Reason,
    since: Time,
    observe: bool,
    disabled_by_operator: bool,
    silent: bool,
    agent_gone: bool,
    multipath: bool,
    /// Time since which reordering has been low; `None` unless `multipath`.
    one_path_since: Option<Time>,
    congested_samples: u8,
    /// Last time at which packets of the bundle were queued, in the sendbox or in the network.
    last_queued: Time,
    /// True if there has been no queue for [`IDLE_TIMEOUT`].
    idle: bool,
    /// True if the algorithm has selected pass-through mode.
    pass_through: bool,
    events: VecDeque<ModeChange>,
    /// Number of changes per reason, in the order of [`Reason::ALL`].
    counts: [u64; Reason::ALL.len()],
}

impl Modes {
    pub fn new(now: Time, observe: bool) -> Modes {
        Modes {
            mode: SendboxMode::Open,
            reason: if observe {
                Reason::Observe
            } else {
                Reason::Start
            },
            since: now,
            observe,
            disabled_by_operator: false,
            silent: false,
            agent_gone: false,
            multipath: false,
            one_path_since: None,
            congested_samples: 0,
            last_queued: now,
            idle: false,
            pass_through: false,
            events: VecDeque::new(),
            counts: [0; Reason::ALL.len()],
        }
    }

    pub fn mode(&self) -> SendboxMode {
        self.mode
    }

    pub fn reason(&self) -> Reason {
        self.reason
    }

    pub fn since(&self) -> Time {
        self.since
    }

    pub fn counts(&self) -> &[u64; Reason::ALL.len()] {
        &self.counts
    }

    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// Returns the oldest mode change that was not returned before.
    pub fn next_change(&mut self) -> Option<ModeChange> {
        self.events.pop_front()
    }

    /// Processes feedback for a new boundary. Returns whether a limit started.
    pub fn on_feedback(&mut self, now: Time, seen: &PathObservation) -> bool {
        self.silent = false;
        self.update_multipath(now, seen.out_of_order);
        let (times, over) = QUEUE_RTT_RATIO;
        let own_bytes = seen
            .received
            .bytes_in(seen.rtt.saturating_sub(seen.min_rtt))
            .get();
        let is_own = own_bytes >= OWN_QUEUE_BYTES_MIN;
        let full = is_own && seen.rtt > seen.min_rtt * times / over + QUEUE_DELAY_MIN + seen.jitter;
        self.congested_samples = if full {
            self.congested_samples.saturating_add(1)
        } else {
            0
        };
        // A limit that starts now must not end at once for idleness.
        self.idle = now.since(self.last_queued) >= IDLE_TIMEOUT
            && self.congested_samples < QUEUE_SAMPLES_MIN;
        if is_own || seen.waiting > 0 {
            self.last_queued = now;
        }
        self.update_mode(now, seen)
    }

    /// Records that feedback has been missing for too long.
    pub fn on_feedback_timeout(&mut self, now: Time, seen: &PathObservation) {
        self.silent = true;
        self.update_mode(now, seen);
    }

    /// Records whether the agent responds.
    pub fn set_agent_gone(&mut self, now: Time, gone: bool, seen: &PathObservation) {
        if self.agent_gone != gone {
            self.agent_gone = gone;
            self.update_mode(now, seen);
        }
    }

    /// Records whether the algorithm has selected pass-through mode.
    pub fn set_pass_through(&mut self, now: Time, passing: bool, seen: &PathObservation) {
        if self.pass_through != passing {
            self.pass_through = passing;
            self.update_mode(now, seen);
        }
    }

    /// Disables the limit for the operator, or enables it again.
    pub fn set_disabled_by_operator(&mut self, now: Time, pass: bool, seen: &PathObservation) {
        self.disabled_by_operator = pass;
        self.update_mode(now, seen);
    }

    fn update_multipath(&mut self, now: Time, share: Option<f64>) {
        let Some(share) = share else { return };
        if share > MULTIPATH_REORDERING_MIN {
            self.multipath = true;
        }
        if !self.multipath || share >= SINGLE_PATH_REORDERING_MAX {
            self.one_path_since = None;
            return;
        }
        let since = *self.one_path_since.get_or_insert(now);
        if now.since(since) >= SINGLE_PATH_PERIOD {
            self.multipath = false;
            self.one_path_since = None;
        }
    }

    /// Returns the most important reason for open mode, if any.
    fn open_reason(&self) -> Option<Reason> {
        let reasons = [
            (self.disabled_by_operator, Reason::Operator),
            (self.observe, Reason::Observe),
            (self.agent_gone, Reason::Agent),
            (self.silent, Reason::NoFeedback),
            (self.multipath, Reason::Multipath),
        ];
        reasons
            .iter()
            .find(|(holds, _)| *holds)
            .map(|(_, reason)| *reason)
    }

    /// Updates the mode from the current state. Returns whether a limit started.
    fn update_mode(&mut self, now: Time, seen: &PathObservation) -> bool {
        let limited = if self.pass_through {
            SendboxMode::PassThrough
        } else {
            SendboxMode::Delay
        };
        let (to, reason) = match (self.open_reason(), self.mode) {
            (Some(reason), _) => (SendboxMode::Open, reason),
            (None, SendboxMode::Open) if self.congested_samples >= QUEUE_SAMPLES_MIN => {
                (limited, Reason::Queue)
            }
            // The reason for open mode is gone, but there is no queue to move yet.
            (None, SendboxMode::Open) => (SendboxMode::Open, Reason::Start),
            (None, SendboxMode::Delay | SendboxMode::PassThrough) if self.idle => {
                (SendboxMode::Open, Reason::Start)
            }
            (None, SendboxMode::Delay) if self.pass_through => {
                (SendboxMode::PassThrough, Reason::Elastic)
            }
            (None, SendboxMode::PassThrough) if !self.pass_through => {
                (SendboxMode::Delay, Reason::Inelastic)
            }
            (None, mode) => (mode, self.reason),
        };
        if to == SendboxMode::Open && reason != Reason::Start {
            // A queue seen before open mode does not count afterwards.
            self.congested_samples = 0;
        }
        if (to, reason) == (self.mode, self.reason) {
            return false;
        }
        let from = self.mode;
        (self.mode, self.reason, self.since) = (to, reason, now);
        self.counts[reason as usize] += 1;
        if self.events.len() == MODE_CHANGES_MAX {
            self.events.pop_front();
        }
        self.events.push_back(ModeChange {
            at: now,
            from,
            to,
            reason,
            path: *seen,
        });
        from == SendboxMode::Open && to != SendboxMode::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Path state with this RTT in ms, a minimum RTT of 50 ms and 96 Mbit/s.
    fn seen(rtt: u64) -> PathObservation {
        PathObservation {
            rtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(50),
            received: Rate::from_bits_per_sec(96_000_000),
            ..PathObservation::default()
        }
    }

    fn out_of_order(share: f64) -> PathObservation {
        PathObservation {
            out_of_order: Some(share),
            ..seen(50)
        }
    }

    /// Returns a bundle that is limited after two queue observations.
    fn limited() -> Modes {
        let mut modes = Modes::new(at(0), false);
        assert!(!modes.on_feedback(at(1), &seen(64)));
        assert!(modes.on_feedback(at(2), &seen(64)));
        assert_eq!(
            (modes.mode(), modes.reason()),
            (SendboxMode::Delay, Reason::Queue)
        );
        modes
    }

    #[test]
    fn late_polls_and_pings_are_not_a_queue() {
        let mut modes = Modes::new(at(0), false);
        for (ms, bits) in [
            (0, 10_000),
            (10, 10_000),
            (20, 2_000_000),
            (30, 2_000_000),
            (40, 2_000_000),
        ] {
            let late = PathObservation {
                received: Rate::from_bits_per_sec(bits),
                ..seen(65)
            };
            assert!(!modes.on_feedback(at(ms), &late), "{bits} bit/s");
        }
        assert!(!modes.on_feedback(at(50), &seen(65)));
        assert!(
            modes.on_feedback(at(60), &seen(65)),
            "a busy link has a queue"
        );
    }

    #[test]
    fn a_limit_that_begins_after_an_idle_time_lasts() {
        let mut modes = Modes::new(at(0), false);
        // The operator keeps it open without a queue for 3 s; then a queue is seen twice.
        modes.set_disabled_by_operator(at(0), true, &seen(50));
        assert!(!modes.on_feedback(at(3_000), &seen(64)));
        modes.set_disabled_by_operator(at(3_001), false, &seen(50));
        assert!(!modes.on_feedback(at(6_500), &seen(64)));
        assert!(modes.on_feedback(at(9_900), &seen(64)));
        modes.set_pass_through(at(9_901), true, &seen(64));
        assert_eq!(modes.mode(), SendboxMode::PassThrough);
    }

    #[test]
    fn two_consecutive_queues_start_the_limit() {
        let mut modes = Modes::new(at(0), false);
        for (n, rtt) in [64, 50, 64, 63, 64, 50].into_iter().enumerate() {
            assert!(!modes.on_feedback(at(n as u64), &seen(rtt)), "{rtt}");
        }
        assert_eq!(
            (modes.mode(), modes.reason()),
            (SendboxMode::Open, Reason::Start)
        );
        limited();
    }

    /// One ping per second: 100 bytes per RTT.
    fn ping(rtt: u64) -> PathObservation {
        PathObservation {
            received: Rate::from_bytes_per_sec(2_000),
            ..seen(rtt)
        }
    }

    #[test]
    fn pings_that_wait_behind_others_begin_no_limit() {
        let mut modes = Modes::new(at(0), false);
        for second in 0..100 {
            assert!(!modes.on_feedback(at(second * 1_000), &ping(200)));
        }
        assert_eq!(modes.mode(), SendboxMode::Open);
    }

    #[test]
    fn a_bundle_without_a_queue_of_its_own_has_no_limit() {
        let mut modes = limited();
        modes.on_feedback(at(1_000), &seen(50));
        assert_eq!(modes.mode(), SendboxMode::Delay, "a pause");
        let waits = PathObservation {
            waiting: 1_500,
            ..ping(50)
        };
        for second in 2..10 {
            modes.on_feedback(at(second * 900), &waits);
        }
        assert_eq!(modes.mode(), SendboxMode::Delay, "a queue here");
        modes.on_feedback(at(9_000), &ping(200));
        modes.on_feedback(at(11_000), &ping(200));
        assert_eq!(
            (modes.mode(), modes.reason()),
            (SendboxMode::Open, Reason::Start)
        );
        // The next queue starts a limit like the first one.
        modes.on_feedback(at(20_000), &seen(64));
        assert!(modes.on_feedback(at(20_010), &seen(64)));
    }

    /// Every transition: an event on a limited bundle, the mode and reason after it, and the mode
    /// and reason after its end.
    #[test]
    fn every_transition() {
        type Step = fn(&mut Modes, bool, Time);
        let table: [(Step, SendboxMode, Reason, SendboxMode, Reason); 6] = [
            (
                |modes, on, now| modes.set_pass_through(now, on, &seen(64)),
                SendboxMode::PassThrough,
                Reason::Elastic,
                SendboxMode::Delay,
                Reason::Inelastic,
            ),
            (
                |modes, on, now| match on {
                    true => modes.on_feedback_timeout(now, &seen(64)),
                    false => drop(modes.on_feedback(now, &seen(50))),
                },
                SendboxMode::Open,
                Reason::NoFeedback,
                SendboxMode::Open,
                Reason::Start,
            ),
            (
                |modes, on, now| modes.set_agent_gone(now, on, &seen(64)),
                SendboxMode::Open,
                Reason::Agent,
                SendboxMode::Open,
                Reason::Start,
            ),
            (
                |modes, on, now| modes.set_disabled_by_operator(now, on, &seen(64)),
                SendboxMode::Open,
                Reason::Operator,
                SendboxMode::Open,
                Reason::Start,
            ),
            (
                |modes, on, now| match on {
                    true => drop(modes.on_feedback(now, &out_of_order(0.06))),
                    false => {
                        modes.on_feedback(now, &out_of_order(0.009));
                        modes.on_feedback(now + SINGLE_PATH_PERIOD, &out_of_order(0.009));
                    }
                },
                SendboxMode::Open,
                Reason::Multipath,
                SendboxMode::Open,
                Reason::Start,
            ),
            (
                // Observing is set at the start and never ends.
                |modes, on, now| {
                    if on {
                        *modes = Modes::new(now, true);
                        modes.on_feedback(now, &seen(64));
                        modes.on_feedback(now, &seen(64));
                    }
                },
                SendboxMode::Open,
                Reason::Observe,
                SendboxMode::Open,
                Reason::Observe,
            ),
        ];
        for (step, mode, reason, after, because) in table {
            let mut modes = limited();
            step(&mut modes, true, at(10));
            assert_eq!((modes.mode(), modes.reason()), (mode, reason));
            step(&mut modes, false, at(20));
            assert_eq!(
                (modes.mode(), modes.reason()),
                (after, because),
                "after {reason:?}"
            );
        }
    }

    #[test]
    fn a_split_path_is_not_one_again_before_half_a_minute() {
        let mut modes = limited();
        modes.on_feedback(at(10), &out_of_order(0.3));
        let mut now = 20;
        for share in [0.009, 0.02, 0.009] {
            for _ in 0..29 {
                modes.on_feedback(at(now), &out_of_order(share));
                now += 1_000;
            }
            assert_eq!(modes.reason(), Reason::Multipath);
        }
        modes.on_feedback(at(now + 1_000), &out_of_order(0.009));
        modes.on_feedback(at(now + 2_000), &out_of_order(0.009));
        assert_eq!(modes.reason(), Reason::Start);
        // A new limit needs a new queue.
        modes.on_feedback(at(now + 3_000), &seen(64));
        modes.on_feedback(at(now + 4_000), &seen(64));
        assert_eq!(modes.mode(), SendboxMode::Delay);
    }

    /// Events and metrics have these words: a change breaks dashboards.
    #[test]
    fn modes_and_reasons_have_names() {
        assert_eq!(
            Reason::ALL.map(Reason::name),
            [
                "start",
                "queue",
                "elastic",
                "inelastic",
                "silent",
                "multipath",
                "observe",
                "by_hand",
                "agent"
            ]
        );
        assert_eq!(
            [
                SendboxMode::Open,
                SendboxMode::Delay,
                SendboxMode::PassThrough
            ]
            .map(SendboxMode::name),
            ["open", "delay", "passing"]
        );
    }

    #[test]
    fn an_algorithm_passes_traffic_by_its_gauge_of_the_mode() {
        assert!(wants_pass_through(&[("rate", 0.0), ("mode", 1.0)]));
        assert!(!wants_pass_through(&[("rate", 1.0), ("mode", 0.0)]));
        assert!(!wants_pass_through(&[]));
    }

    /// At a least RTT of 50 ms, a queue begins above 62.5 ms, half a millisecond and the jitter.
    #[test]
    fn a_queue_is_judged_above_jitter_and_slack() {
        let us = Duration::from_micros;
        for (jitter, rtt, full) in [
            (0, 63_000, false),
            (0, 63_001, true),
            (2_000, 65_000, false),
            (2_000, 65_001, true),
        ] {
            let mut modes = Modes::new(at(0), false);
            let seen = PathObservation {
                rtt: us(rtt),
                jitter: us(jitter),
                ..seen(50)
            };
            modes.on_feedback(at(1), &seen);
            assert_eq!(modes.on_feedback(at(2), &seen), full, "{rtt} us");
        }
    }

    /// 6,000 bytes of the bundle's own in the network's queue of 14 ms.
    #[test]
    fn a_queue_is_the_bundles_own_from_four_full_packets_on() {
        for (bytes, own) in [
            (OWN_QUEUE_BYTES_MIN - 1, false),
            (OWN_QUEUE_BYTES_MIN, true),
        ] {
            let mut modes = Modes::new(at(0), false);
            let seen = PathObservation {
                received: Rate::from_bytes_per_sec(bytes * 1_000 / 14 + u64::from(own)),
                ..seen(64)
            };
            modes.on_feedback(at(1), &seen);
            assert_eq!(modes.on_feedback(at(2), &seen), own, "{bytes} bytes");
        }
    }

    #[test]
    fn changes_are_timed_and_repetitions_ignored() {
        let mut modes = limited();
        assert_eq!((modes.since(), modes.is_silent()), (at(2), false));
        modes.on_feedback_timeout(at(7), &seen(64));
        assert_eq!((modes.since(), modes.is_silent()), (at(7), true));
        modes.set_agent_gone(at(8), false, &seen(64));
        modes.set_pass_through(at(9), false, &seen(64));
        assert_eq!((modes.since(), modes.reason()), (at(7), Reason::NoFeedback));
        modes.on_feedback(at(10), &seen(50));
        assert_eq!((modes.since(), modes.is_silent()), (at(10), false));
    }

    #[test]
    fn feedback_leaves_a_bundle_that_passes_as_it_is() {
        let mut modes = limited();
        modes.set_pass_through(at(10), true, &seen(64));
        for ms in 11..20 {
            assert!(!modes.on_feedback(at(ms), &seen(64)));
            assert_eq!(
                (modes.mode(), modes.reason(), modes.since()),
                (SendboxMode::PassThrough, Reason::Elastic, at(10))
            );
        }
    }

    /// A share of exactly 5 % is of one path, and one of exactly 1 % does not end a split.
    #[test]
    fn shares_out_of_order_are_judged_at_their_bounds() {
        let mut modes = limited();
        modes.on_feedback(at(10), &out_of_order(MULTIPATH_REORDERING_MIN));
        assert_eq!(modes.mode(), SendboxMode::Delay);
        modes.on_feedback(at(20), &out_of_order(0.06));
        assert_eq!(modes.reason(), Reason::Multipath);
        modes.on_feedback(at(30), &out_of_order(SINGLE_PATH_REORDERING_MAX));
        modes.on_feedback(at(30) + SINGLE_PATH_PERIOD, &out_of_order(0.0));
        assert_eq!(modes.reason(), Reason::Multipath);
        // Feedback that says nothing of the order ends nothing.
        modes.on_feedback(at(40) + SINGLE_PATH_PERIOD, &seen(50));
        modes.on_feedback(at(30) + SINGLE_PATH_PERIOD * 2, &out_of_order(0.0));
        assert_eq!(modes.reason(), Reason::Start);
    }

    #[test]
    fn changes_are_reported_once_with_metrics() {
        let mut modes = limited();
        modes.on_feedback_timeout(at(9), &seen(64));
        modes.on_feedback_timeout(at(10), &seen(64));
        let first = modes.next_change().expect("it was limited");
        assert_eq!(
            (first.from, first.to, first.reason, first.at),
            (SendboxMode::Open, SendboxMode::Delay, Reason::Queue, at(2))
        );
        assert_eq!(first.path, seen(64));
        assert_eq!(
            modes.next_change().map(|change| change.reason),
            Some(Reason::NoFeedback)
        );
        assert_eq!(modes.next_change(), None);
        assert_eq!(modes.counts()[Reason::NoFeedback as usize], 1);
        // Unread changes do not accumulate.
        for n in 0..1_000 {
            modes.set_disabled_by_operator(at(n), n % 2 == 0, &seen(64));
        }
        assert_eq!(modes.events.len(), MODE_CHANGES_MAX);
        assert!(
            Reason::ALL
                .iter()
                .enumerate()
                .all(|(n, reason)| *reason as usize == n)
        );
    }
}
