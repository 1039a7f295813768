//! Whether a bundle is limited, and why: the modes and every way from one to another.
//!
//! A bundle is open, without a limit, until there is a queue in the network that could be moved. It
//! opens again, at once, when its limit can no longer be right: when the other side is silent, when
//! packets take several paths, when nobody steers. Opening never harms: it is what the site had
//! before.
//!
//! A queue counts only if packets of the bundle stand in it. A ping behind the packets of others is
//! no reason for a limit at the rate of pings, and the rate of an idle site is no measure of the
//! line.

use std::collections::VecDeque;

use ccplane_units::{Duration, Rate, Time};

/// What the sendbox does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// No limit: packets leave as they come.
    Open,
    /// The rate keeps the network's queue short, so that the queue stands here.
    Delay,
    /// Others fill the network's queue: traffic passes, with as much queue here as the pulses of
    /// the rate need.
    Passing,
}

/// Why it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// There has been no queue in the network yet that could be moved.
    Start,
    /// There is one.
    Queue,
    /// The cross traffic answers to the queue.
    Elastic,
    /// It does no longer.
    Inelastic,
    /// The receivebox says nothing, though packets are out.
    Silent,
    /// Packets come out of order: they take several paths, and no single queue is theirs.
    Multipath,
    /// It is asked to observe and to limit nothing.
    Observe,
    /// Someone said so.
    ByHand,
    /// The agent is silent.
    Agent,
}

impl Reason {
    /// All, in order.
    pub const ALL: [Reason; 9] = [
        Reason::Start,
        Reason::Queue,
        Reason::Elastic,
        Reason::Inelastic,
        Reason::Silent,
        Reason::Multipath,
        Reason::Observe,
        Reason::ByHand,
        Reason::Agent,
    ];

    /// One word, as events and metrics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Start => "start",
            Reason::Queue => "queue",
            Reason::Elastic => "elastic",
            Reason::Inelastic => "inelastic",
            Reason::Silent => "silent",
            Reason::Multipath => "multipath",
            Reason::Observe => "observe",
            Reason::ByHand => "by_hand",
            Reason::Agent => "agent",
        }
    }
}

impl Mode {
    /// One word, as events and metrics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Open => "open",
            Mode::Delay => "delay",
            Mode::Passing => "passing",
        }
    }
}

/// Whether an algorithm lets traffic pass, by what it says of its bundle: the gauge `mode`, 1 where
/// it does.
pub fn passes(gauges: &[(&str, f64)]) -> bool {
    gauges
        .iter()
        .any(|(name, value)| *name == "mode" && *value == 1.0)
}

/// A change, with what was known then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModeChange {
    /// When.
    pub at: Time,
    /// Before.
    pub from: Mode,
    /// From now on.
    pub to: Mode,
    /// Why.
    pub reason: Reason,
    /// What was known.
    pub seen: Seen,
}

/// What is known of a path when its mode is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The last RTT; zero before the first.
    pub rtt: Duration,
    /// The least of the last 10 s.
    pub min_rtt: Duration,
    /// Difference of RTTs that jitter makes.
    pub jitter: Duration,
    /// S.
    pub sent: Rate,
    /// R.
    pub received: Rate,
    /// The share of packets out of order; `None` while too few came.
    pub out_of_order: Option<f64>,
    /// Bytes that wait in the sendbox.
    pub waiting: u64,
}

/// A queue stands in the network when the RTT is above so much of the least ... (issue's 1.25, the
/// target of BasicDelay: below it there is less queue than a limit would leave anyway).
const QUEUE_RATIO: (u64, u64) = (5, 4);
/// ... and so much: on a path of a millisecond a quarter is a few packets.
const QUEUE_SLACK: Duration = Duration::from_micros(500);
/// Fewest bytes of the bundle in the network's queue for a queue that can be moved: four full
/// packets. With fewer, a ping would begin a limit at its own rate, and a late packet would count
/// as a queue. With more, slow lines would begin their limit late.
const OWN_QUEUE_BYTES: u64 = 6_000;
/// Time without a queue, here or in the network, after which a bundle has no limit. If it is
/// longer, the algorithm takes the rate of an idle site for the line's. If it is shorter, each
/// pause of a busy site costs the queue of a slow start.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// In so many feedbacks in a row. One may be a packet that was late; more would let the queue grow
/// for longer.
const IN_A_ROW: u8 = 2;
/// From this share of packets out of order on, packets take several paths (paper, section 5.2: at
/// most 0.4 % with one path, at least 20 % with several).
const MULTIPATH: f64 = 0.05;
/// Below this share they take one again ...
const ONE_PATH: f64 = 0.01;
/// ... after so long. Shorter and a path that is split now and then would be limited in between.
const ONE_PATH_FOR: Duration = Duration::from_secs(30);
/// Changes that are kept until someone asks.
const KEPT: usize = 64;

/// The mode and all that it depends on.
#[derive(Clone, Debug)]
pub(crate) struct Modes {
    mode: Mode,
    reason: Reason,
    since: Time,
    observe: bool,
    by_hand: bool,
    silent: bool,
    agent_gone: bool,
    multipath: bool,
    /// Since when a multipath bundle has looked like one of a single path.
    one_path_since: Option<Time>,
    congested: u8,
    /// When packets of the bundle stood in a queue last, here or in the network.
    queued: Time,
    /// No queue for [`IDLE_TIME`].
    idle: bool,
    /// What the algorithm says: passing.
    passing: bool,
    events: VecDeque<ModeChange>,
    /// How often each reason led to a change, in the order of [`Reason::ALL`].
    counts: [u64; Reason::ALL.len()],
}

impl Modes {
    pub fn new(now: Time, observe: bool) -> Modes {
        Modes {
            mode: Mode::Open,
            reason: if observe {
                Reason::Observe
            } else {
                Reason::Start
            },
            since: now,
            observe,
            by_hand: false,
            silent: false,
            agent_gone: false,
            multipath: false,
            one_path_since: None,
            congested: 0,
            queued: now,
            idle: false,
            passing: false,
            events: VecDeque::new(),
            counts: [0; Reason::ALL.len()],
        }
    }

    pub fn mode(&self) -> Mode {
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

    pub fn silent(&self) -> bool {
        self.silent
    }

    /// The oldest change that nobody has asked for yet.
    pub fn event(&mut self) -> Option<ModeChange> {
        self.events.pop_front()
    }

    /// Feedback of a new boundary came. Whether the bundle became limited with it.
    pub fn on_feedback(&mut self, now: Time, seen: &Seen) -> bool {
        self.silent = false;
        self.judge_order(now, seen.out_of_order);
        let (times, over) = QUEUE_RATIO;
        let own_bytes = seen
            .received
            .bytes_in(seen.rtt.saturating_sub(seen.min_rtt))
            .get();
        let is_own = own_bytes >= OWN_QUEUE_BYTES;
        let full = is_own && seen.rtt > seen.min_rtt * times / over + QUEUE_SLACK + seen.jitter;
        self.congested = if full {
            self.congested.saturating_add(1)
        } else {
            0
        };
        // A limit that begins now is no idle one.
        self.idle = now.since(self.queued) >= IDLE_TIME && self.congested < IN_A_ROW;
        if is_own || seen.waiting > 0 {
            self.queued = now;
        }
        self.settle(now, seen)
    }

    /// The receivebox has said nothing for too long.
    pub fn on_silence(&mut self, now: Time, seen: &Seen) {
        self.silent = true;
        self.settle(now, seen);
    }

    /// Whether the agent steers.
    pub fn on_agent(&mut self, now: Time, gone: bool, seen: &Seen) {
        if self.agent_gone != gone {
            self.agent_gone = gone;
            self.settle(now, seen);
        }
    }

    /// Whether the algorithm lets traffic pass.
    pub fn on_passing(&mut self, now: Time, passing: bool, seen: &Seen) {
        if self.passing != passing {
            self.passing = passing;
            self.settle(now, seen);
        }
    }

    /// Someone says that all is to pass, or that it is not.
    pub fn on_hand(&mut self, now: Time, pass: bool, seen: &Seen) {
        self.by_hand = pass;
        self.settle(now, seen);
    }

    fn judge_order(&mut self, now: Time, share: Option<f64>) {
        let Some(share) = share else { return };
        if share > MULTIPATH {
            self.multipath = true;
        }
        if !self.multipath || share >= ONE_PATH {
            self.one_path_since = None;
            return;
        }
        let since = *self.one_path_since.get_or_insert(now);
        if now.since(since) >= ONE_PATH_FOR {
            self.multipath = false;
            self.one_path_since = None;
        }
    }

    /// Why there can be no limit now, the strongest reason first.
    fn opened_by(&self) -> Option<Reason> {
        let reasons = [
            (self.by_hand, Reason::ByHand),
            (self.observe, Reason::Observe),
            (self.agent_gone, Reason::Agent),
            (self.silent, Reason::Silent),
            (self.multipath, Reason::Multipath),
        ];
        reasons
            .iter()
            .find(|(holds, _)| *holds)
            .map(|(_, reason)| *reason)
    }

    /// Goes to the mode that follows from all that is known; whether the bundle became limited with
    /// it.
    fn settle(&mut self, now: Time, seen: &Seen) -> bool {
        let limited = if self.passing {
            Mode::Passing
        } else {
            Mode::Delay
        };
        let (to, reason) = match (self.opened_by(), self.mode) {
            (Some(reason), _) => (Mode::Open, reason),
            (None, Mode::Open) if self.congested >= IN_A_ROW => (limited, Reason::Queue),
            // What opened it is over, but there is no queue to move yet.
            (None, Mode::Open) => (Mode::Open, Reason::Start),
            (None, Mode::Delay | Mode::Passing) if self.idle => (Mode::Open, Reason::Start),
            (None, Mode::Delay) if self.passing => (Mode::Passing, Reason::Elastic),
            (None, Mode::Passing) if !self.passing => (Mode::Delay, Reason::Inelastic),
            (None, mode) => (mode, self.reason),
        };
        if to == Mode::Open && reason != Reason::Start {
            // What was seen before it opened does not count afterwards.
            self.congested = 0;
        }
        if (to, reason) == (self.mode, self.reason) {
            return false;
        }
        let from = self.mode;
        (self.mode, self.reason, self.since) = (to, reason, now);
        self.counts[reason as usize] += 1;
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(ModeChange {
            at: now,
            from,
            to,
            reason,
            seen: *seen,
        });
        from == Mode::Open && to != Mode::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// An RTT of so many ms where the least is 50, at 96 Mbit/s.
    fn seen(rtt: u64) -> Seen {
        Seen {
            rtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(50),
            received: Rate::from_bits_per_sec(96_000_000),
            ..Seen::default()
        }
    }

    fn out_of_order(share: f64) -> Seen {
        Seen {
            out_of_order: Some(share),
            ..seen(50)
        }
    }

    /// One in which a queue was found.
    fn limited() -> Modes {
        let mut modes = Modes::new(at(0), false);
        assert!(!modes.on_feedback(at(1), &seen(64)));
        assert!(modes.on_feedback(at(2), &seen(64)));
        assert_eq!((modes.mode(), modes.reason()), (Mode::Delay, Reason::Queue));
        modes
    }

    #[test]
    fn a_call_or_a_ping_that_was_late_is_no_queue() {
        let mut modes = Modes::new(at(0), false);
        for (ms, bits) in [
            (0, 10_000),
            (10, 10_000),
            (20, 2_000_000),
            (30, 2_000_000),
            (40, 2_000_000),
        ] {
            let late = Seen {
                received: Rate::from_bits_per_sec(bits),
                ..seen(65)
            };
            assert!(!modes.on_feedback(at(ms), &late), "{bits} bit/s");
        }
        assert!(!modes.on_feedback(at(50), &seen(65)));
        assert!(
            modes.on_feedback(at(60), &seen(65)),
            "a busy line has a queue"
        );
    }

    #[test]
    fn a_limit_that_begins_after_an_idle_time_lasts() {
        let mut modes = Modes::new(at(0), false);
        // By hand it stays open, and nothing waits for 3 s; then a queue is seen twice.
        modes.on_hand(at(0), true, &seen(50));
        assert!(!modes.on_feedback(at(3_000), &seen(64)));
        modes.on_hand(at(3_001), false, &seen(50));
        assert!(!modes.on_feedback(at(6_500), &seen(64)));
        assert!(modes.on_feedback(at(9_900), &seen(64)));
        modes.on_passing(at(9_901), true, &seen(64));
        assert_eq!(modes.mode(), Mode::Passing);
    }

    #[test]
    fn it_is_limited_when_a_queue_was_seen_twice_in_a_row() {
        let mut modes = Modes::new(at(0), false);
        for (n, rtt) in [64, 50, 64, 63, 64, 50].into_iter().enumerate() {
            assert!(!modes.on_feedback(at(n as u64), &seen(rtt)), "{rtt}");
        }
        assert_eq!((modes.mode(), modes.reason()), (Mode::Open, Reason::Start));
        limited();
    }

    /// A ping a second, of 100 bytes in an RTT.
    fn ping(rtt: u64) -> Seen {
        Seen {
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
        assert_eq!(modes.mode(), Mode::Open);
    }

    #[test]
    fn a_bundle_without_a_queue_of_its_own_has_no_limit() {
        let mut modes = limited();
        modes.on_feedback(at(1_000), &seen(50));
        assert_eq!(modes.mode(), Mode::Delay, "a pause");
        let waits = Seen {
            waiting: 1_500,
            ..ping(50)
        };
        for second in 2..10 {
            modes.on_feedback(at(second * 900), &waits);
        }
        assert_eq!(modes.mode(), Mode::Delay, "a queue here");
        modes.on_feedback(at(9_000), &ping(200));
        modes.on_feedback(at(11_000), &ping(200));
        assert_eq!((modes.mode(), modes.reason()), (Mode::Open, Reason::Start));
        // The next queue begins a limit as the first one did.
        modes.on_feedback(at(20_000), &seen(64));
        assert!(modes.on_feedback(at(20_010), &seen(64)));
    }

    /// Every transition: what happens to a limited bundle, the mode and reason after it, and those
    /// after it is over.
    #[test]
    fn every_transition() {
        type Step = fn(&mut Modes, bool, Time);
        let table: [(Step, Mode, Reason, Mode, Reason); 6] = [
            (
                |modes, on, now| modes.on_passing(now, on, &seen(64)),
                Mode::Passing,
                Reason::Elastic,
                Mode::Delay,
                Reason::Inelastic,
            ),
            (
                |modes, on, now| match on {
                    true => modes.on_silence(now, &seen(64)),
                    false => drop(modes.on_feedback(now, &seen(50))),
                },
                Mode::Open,
                Reason::Silent,
                Mode::Open,
                Reason::Start,
            ),
            (
                |modes, on, now| modes.on_agent(now, on, &seen(64)),
                Mode::Open,
                Reason::Agent,
                Mode::Open,
                Reason::Start,
            ),
            (
                |modes, on, now| modes.on_hand(now, on, &seen(64)),
                Mode::Open,
                Reason::ByHand,
                Mode::Open,
                Reason::Start,
            ),
            (
                |modes, on, now| match on {
                    true => drop(modes.on_feedback(now, &out_of_order(0.06))),
                    false => {
                        modes.on_feedback(now, &out_of_order(0.009));
                        modes.on_feedback(now + ONE_PATH_FOR, &out_of_order(0.009));
                    }
                },
                Mode::Open,
                Reason::Multipath,
                Mode::Open,
                Reason::Start,
            ),
            (
                // Observing is from the start on.
                |modes, on, now| {
                    if on {
                        *modes = Modes::new(now, true);
                        modes.on_feedback(now, &seen(64));
                        modes.on_feedback(now, &seen(64));
                    }
                },
                Mode::Open,
                Reason::Observe,
                Mode::Open,
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
        // And then it needs a queue again.
        modes.on_feedback(at(now + 3_000), &seen(64));
        modes.on_feedback(at(now + 4_000), &seen(64));
        assert_eq!(modes.mode(), Mode::Delay);
    }

    #[test]
    fn changes_are_told_once_with_figures_and_counted() {
        let mut modes = limited();
        modes.on_silence(at(9), &seen(64));
        modes.on_silence(at(10), &seen(64));
        let first = modes.event().expect("it was limited");
        assert_eq!(
            (first.from, first.to, first.reason, first.at),
            (Mode::Open, Mode::Delay, Reason::Queue, at(2))
        );
        assert_eq!(first.seen, seen(64));
        assert_eq!(
            modes.event().map(|change| change.reason),
            Some(Reason::Silent)
        );
        assert_eq!(modes.event(), None);
        assert_eq!(modes.counts()[Reason::Silent as usize], 1);
        // What nobody asks for does not fill the memory.
        for n in 0..1_000 {
            modes.on_hand(at(n), n % 2 == 0, &seen(64));
        }
        assert_eq!(modes.events.len(), KEPT);
        assert!(
            Reason::ALL
                .iter()
                .enumerate()
                .all(|(n, reason)| *reason as usize == n)
        );
    }
}
