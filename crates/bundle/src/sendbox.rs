//! The near end of a bundle: where its queue stands and is scheduled, at the rate that an algorithm
//! sets.
//!
//! The driver gives it packets and the receivebox's feedback, sends what it releases, and runs the
//! algorithm's program through [`Sendbox::drive`] every 10 ms. The sendbox decides whether there is
//! a limit ([`Mode`]); the algorithm sets it.
//!
//! To the algorithm the bundle is a flow. What it is told each 10 ms:
//!
//! | signal | of a bundle |
//! | --- | --- |
//! | `Ack.bytes_acked`, `packets_acked` | what arrived at the receivebox since the last time |
//! | `Ack.lost_pkts_sample` | packets that became missing |
//! | `Ack.ecn_bytes`, `ecn_packets` | packets that arrived marked; bytes by full packets |
//! | `Flow.bytes_in_flight`, `packets_in_flight` | sent, and not known to have arrived or to be missing |
//! | `Flow.bytes_pending` | **the sendbox' queue now** |
//! | `Flow.rate_outgoing`, `rate_incoming` | S and R, of the same packets, over the last RTT, at most 100 ms |
//! | `Flow.rtt_sample_us`, `srtt_us`, `min_rtt_us` | without the time that the receivebox held its feedback; the minimum of 10 s |
//! | `Flow.was_timeout` | the receivebox fell silent |
//! | `Flow.app_limited` | the queue was empty at some time since the last one |
//! | `Flow.cwnd_limited` | there is a limit, and a queue behind it |
//! | `Flow.paced` | there is a limit |
//! | `Ack.owd_ns` … `Flow.queue_delay_ns` | from the stamps of boundaries, [`OneWay`](ccplane_datapath::OneWay) |
//! | `Flow.mss` | a full packet |
//! | `Rate`, `Cwnd` | the limit in force, 0 while there is none; the window that makes it |
//!
//! What a program or an agent sets while there is no limit has no effect.

use ccplane_datapath::{Capabilities, Outcome, Signals, SteeredFlow, Transport};
use ccplane_qdisc::{
    Backlog, ClassesSpec, Drops, Packet, QueueSpec, QueueSpecError, SfqConfig, Size, Verdict,
};
use ccplane_units::{Bytes, Duration, Rate, Time};

use crate::estimate::{Estimate, Order};
use crate::feedback::{Feedback, Notice};
use crate::ledger::{Counts, Heard, Ledger, Unlikely};
use crate::mark::{Every, Marks};
use crate::mode::{Mode, ModeChange, Modes, Reason, Seen};
use crate::scheduler::{ClassStatus, Scheduler};
use crate::sent::Boundary;

/// What a bundle can do for its algorithm.
pub const CAPABILITIES: Capabilities = Capabilities::CWND
    .with(Capabilities::PACING)
    .with(Capabilities::RTT)
    .with(Capabilities::DELIVERY_RATE)
    .with(Capabilities::ECN)
    .with(Capabilities::TIMERS)
    .with(Capabilities::ONE_WAY_DELAY)
    .with(Capabilities::KEEPS_WINDOW);

/// Time between two runs of the algorithm's program (paper, section 6: 10 ms). A pulse of 6 Hz has
/// 17 of them.
pub const TICK: Duration = Duration::from_millis(10);
/// Silence is no feedback for so many RTTs ... (ours: feedback comes several times an RTT, so that
/// 16 and more were lost in a row.)
const SILENT_RTTS: u64 = 4;
/// ... and for so long, ten times the longest time between two.
const SILENT: Duration = Duration::from_millis(250);
/// With at least so many packets sent since the last feedback came: what a receivebox was not sent
/// it cannot answer.
const SILENT_PACKETS: u64 = 10;
/// Feedback of a numbering that ended counts for so many RTTs more: what was under way.
const OLD_RTTS: u64 = 2;
/// A window is never told as less than this, packets (RFC 6928): while nothing is known.
const INITIAL_WINDOW: u64 = 10;

/// How a sendbox is made.
#[derive(Clone, Debug, PartialEq)]
pub struct SendboxConfig {
    /// What schedules the queue: a queue for each class, of which [`Packet::class`] says which.
    /// Without classes it is one, as `spec.into()` makes it.
    pub queue: ClassesSpec,
    /// Bytes of a full packet, on the wire.
    pub mtu: u32,
    /// The limit is never below this, whatever the algorithm says. Too low and a mistake stops the
    /// site; too high and the queue stays in a network that is slower.
    pub min: Rate,
    /// Nor above this: the site's own uplink, where it is known.
    pub max: Rate,
    /// How packets are numbered.
    pub marks: Marks,
    /// Measure and limit nothing.
    pub observe: bool,
    /// Queues that draw random numbers draw them from it.
    pub seed: u64,
}

impl SendboxConfig {
    /// SFQ of 1.875 MB, as the published sendbox, with enough buckets that few of a thousand flows
    /// share one.
    pub const QUEUE: QueueSpec = QueueSpec::Sfq {
        config: SfqConfig {
            depth: 1_250,
            flows: 1_250,
            divisor: 16_384,
            ..SfqConfig::DEFAULT
        },
        limit: Size::Bytes(1_875_000),
    };
}

impl Default for SendboxConfig {
    /// [`QUEUE`](SendboxConfig::QUEUE) for all, and 1 Mbit/s at least, as the published sendbox.
    fn default() -> SendboxConfig {
        SendboxConfig {
            queue: SendboxConfig::QUEUE.into(),
            mtu: 1_500,
            min: Rate::from_bits_per_sec(1_000_000),
            max: Rate::from_bytes_per_sec(u64::MAX / 16),
            marks: Marks::Counter,
            observe: false,
            seed: 0,
        }
    }
}

/// The near end of a bundle.
#[derive(Clone, Debug)]
pub struct Sendbox<P> {
    scheduler: Scheduler<P>,
    config: SendboxConfig,
    ledger: Ledger,
    estimate: Estimate,
    order: Order,
    modes: Modes,
    orders: Orders,
    since_tick: SinceTick,
    next_tick: Time,
    /// Packets that left since the last feedback came, and when they became enough for silence to
    /// count.
    left_since: u64,
    unanswered: Option<Time>,
    /// Of what was dropped, what queues before this one did.
    totals: Totals,
    /// Probes of the path that are not known to have arrived.
    probes: u64,
}

/// What the algorithm ordered since there is a limit.
#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    /// R, when the limit began.
    start: u64,
    rate: Option<u64>,
    cwnd: Option<u64>,
}

/// What came since the last tick.
#[derive(Clone, Copy, Debug, Default)]
struct SinceTick {
    counts: Counts,
    /// The queue was empty at some time.
    empty: bool,
    silent: bool,
    /// A boundary was heard of.
    fresh: bool,
}

/// Counts of a sendbox' life, all numberings together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that left, and their bytes.
    pub packets: u64,
    /// See `packets`.
    pub bytes: u64,
    /// Packets that were dropped here.
    pub dropped: u64,
    /// Packets that arrived at the other side, and their bytes.
    pub arrived: u64,
    /// See `arrived`.
    pub arrived_bytes: u64,
    /// Packets missing there.
    pub missing: u64,
    /// Packets that arrived out of order.
    pub out_of_order: u64,
    /// Packets that arrived marked CE.
    pub marked: u64,
    /// Feedback that came.
    pub feedback: u64,
    /// Of it, what came after newer one.
    pub late: u64,
    /// Of it, what could not be true.
    pub unlikely: u64,
}

/// What there is to see of a sendbox.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// The mode, why, and since when.
    pub mode: Mode,
    /// See `mode`.
    pub reason: Reason,
    /// See `mode`.
    pub since: Time,
    /// The limit, if there is one.
    pub rate: Option<Rate>,
    /// RTT, rates and order.
    pub seen: Seen,
    /// What the newest boundary waited in the network's queues, if it is known.
    pub in_network: Option<Duration>,
    /// What waits here.
    pub backlog: Backlog,
    /// N.
    pub every: Every,
    /// How often each reason changed the mode, in the order of [`Reason::ALL`].
    pub changes: [u64; Reason::ALL.len()],
    /// Counts.
    pub totals: Totals,
}

impl<P: Packet> Sendbox<P> {
    /// A sendbox without packets, open.
    pub fn new(now: Time, config: &SendboxConfig) -> Result<Sendbox<P>, QueueSpecError> {
        let queue = config
            .queue
            .build(None, Duration::ZERO, config.mtu, config.seed)?;
        Ok(Sendbox {
            scheduler: Scheduler::new(queue, now),
            config: config.clone(),
            ledger: Ledger::new(config.marks),
            estimate: Estimate::default(),
            order: Order::default(),
            modes: Modes::new(now, config.observe),
            orders: Orders::default(),
            since_tick: SinceTick::default(),
            next_tick: now + TICK,
            left_since: 0,
            unanswered: None,
            totals: Totals::default(),
            probes: 0,
        })
    }

    /// Takes a packet in, or drops it or another.
    pub fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        self.since_tick.empty |= self.scheduler.backlog().packets == 0;
        self.scheduler.enqueue(now, packet, drops)
    }

    /// Whether a packet may leave by now.
    pub fn is_ready(&self, now: Time) -> bool {
        self.scheduler
            .next_ready()
            .is_some_and(|ready| ready <= now)
    }

    /// The next packet that leaves by now. Whoever sends it says so by [`left`](Sendbox::left).
    pub fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.scheduler.dequeue(now, drops)
    }

    /// A packet left under this number, with so many bytes on the wire.
    pub fn left(&mut self, now: Time, number: u64, bytes: u32) {
        self.ledger.left(now, number, bytes);
        self.totals.packets += 1;
        self.totals.bytes += u64::from(bytes);
        self.left_since += 1;
        if self.left_since == SILENT_PACKETS {
            self.unanswered = Some(now);
        }
    }

    /// Goes over to another queue, other classes perhaps. All that waits goes along, each packet as
    /// `again` gives it back: who changes what a class is says anew of which each is. What finds no
    /// room is dropped. What was measured and ordered stays.
    pub fn requeue(
        &mut self,
        now: Time,
        queue: &ClassesSpec,
        mut again: impl FnMut(P) -> P,
        drops: &mut impl Drops<P>,
    ) -> Result<(), QueueSpecError> {
        let fresh = queue.build(None, Duration::ZERO, self.config.mtu, self.config.seed)?;
        let mut old = std::mem::replace(&mut self.scheduler, Scheduler::new(fresh, now));
        self.scheduler.set_rate(now, old.rate());
        old.set_rate(now, None);
        // What a queue holds back for a time is taken as if that had come.
        while let Some(ready) = old.next_ready() {
            if let Some(packet) = old.dequeue(now.max(ready), drops) {
                let _ = self.scheduler.enqueue(now, again(packet), drops);
            }
        }
        self.totals.dropped += old.dropped();
        self.config.queue = queue.clone();
        Ok(())
    }

    /// Goes over to other bounds of the limit.
    pub fn set_bounds(&mut self, now: Time, min: Rate, max: Rate) {
        (self.config.min, self.config.max) = (min, max);
        self.apply(now);
    }

    /// Packets are numbered anew from now on. What is still heard of the numbering before counts
    /// for two RTTs more.
    pub fn renumber(&mut self, now: Time, session: u32) {
        self.probes = 0;
        let until = now + (self.estimate.srtt() * OLD_RTTS).max(SILENT);
        self.ledger.renumber(session, until);
        self.estimate.renumber();
    }

    /// What the receivebox says.
    pub fn feedback(&mut self, now: Time, feedback: &Feedback) -> Result<(), Unlikely> {
        self.totals.feedback += 1;
        match self.ledger.take(now, feedback) {
            Ok(Heard::News { counts, boundary }) => {
                self.count(now, &counts);
                if let Some(boundary) = boundary {
                    self.measure(now, &boundary, feedback);
                }
            }
            Ok(Heard::Late) => self.totals.late += 1,
            Err(why) => {
                self.totals.unlikely += 1;
                return Err(why);
            }
        }
        Ok(())
    }

    /// Records that a probe of the path left. Its loss is no sign of congestion (RFC 8899, section
    /// 3).
    pub fn probe_left(&mut self) {
        self.probes += 1;
    }

    /// Records that a probe arrived.
    pub fn probe_arrived(&mut self) {
        self.probes = self.probes.saturating_sub(1);
    }

    fn count(&mut self, now: Time, counts: &Counts) {
        let excused = counts.missing.min(self.probes);
        self.probes -= excused;
        let missing = counts.missing - excused;
        let tick = &mut self.since_tick.counts;
        tick.packets += counts.packets;
        tick.bytes += counts.bytes;
        tick.missing += missing;
        tick.marked += counts.marked;
        let totals = &mut self.totals;
        totals.arrived += counts.packets;
        totals.arrived_bytes += counts.bytes;
        totals.missing += missing;
        totals.out_of_order += counts.out_of_order;
        totals.marked += counts.marked;
        self.order.take(now, counts.packets, counts.out_of_order);
        (self.left_since, self.unanswered) = (0, None);
    }

    fn measure(&mut self, now: Time, boundary: &Boundary, feedback: &Feedback) {
        if !self.estimate.take(now, boundary, feedback) {
            return;
        }
        self.since_tick.fresh = true;
        let seen = self.seen();
        if self.modes.on_feedback(now, &seen) {
            self.begin();
        }
        self.apply(now);
    }

    /// A limit begins: at what arrives.
    fn begin(&mut self) {
        self.orders = Orders {
            start: self.estimate.received().bytes_per_sec(),
            ..Orders::default()
        };
    }

    /// Runs the algorithm's program if a tick or its own deadline has come; whether it was a tick.
    pub fn drive(&mut self, now: Time, flow: &mut impl SteeredFlow) -> bool {
        let ticks = now >= self.next_tick;
        if ticks {
            let signals = self.tick(now);
            let outcome = flow.on_ack(&self.transport(now), &signals);
            self.steer(now, &outcome);
        }
        if flow.next_deadline().is_some_and(|due| due <= now) {
            let outcome = flow.on_deadline(&self.transport(now));
            self.steer(now, &outcome);
        }
        ticks
    }

    /// What the program is told, each [`TICK`]. What came is counted from now on for the next one.
    pub fn tick(&mut self, now: Time) -> Signals {
        let missed = now.since(self.next_tick).as_nanos() / TICK.as_nanos();
        self.next_tick += TICK * (missed + 1);
        let tick = std::mem::take(&mut self.since_tick);
        if tick.fresh {
            self.estimate.add_noise();
        }
        let min_rtt = self.estimate.min_rtt().unwrap_or_default();
        self.ledger.tick(missed, TICK, min_rtt);
        let backlog = self.scheduler.backlog();
        let limited = self.modes.mode() != Mode::Open;
        let mss = u64::from(self.config.mtu);
        let (packets_in_flight, bytes_in_flight) = self.ledger.in_flight(mss);
        let estimate = &self.estimate;
        let counts = &tick.counts;
        let mut signals = Signals {
            bytes_acked: counts.bytes,
            packets_acked: counts.packets,
            lost_pkts_sample: counts.missing,
            ecn_packets: counts.marked,
            ecn_bytes: counts.marked.saturating_mul(mss).min(counts.bytes),
            bytes_in_flight,
            packets_in_flight,
            bytes_pending: backlog.bytes,
            rate_outgoing: estimate.sent().bytes_per_sec(),
            rate_incoming: estimate.received().bytes_per_sec(),
            rtt_sample_us: estimate.rtt().unwrap_or_default().as_micros(),
            srtt_us: estimate.srtt().as_micros(),
            min_rtt_us: min_rtt.as_micros(),
            was_timeout: u64::from(tick.silent),
            mss,
            app_limited: u64::from(tick.empty || backlog.packets == 0),
            cwnd_limited: u64::from(limited && backlog.packets > 0),
            paced: u64::from(limited),
            ..Signals::default()
        };
        estimate
            .one_way()
            .write(now, tick.fresh, estimate.srtt(), &mut signals);
        signals
    }

    /// Window and rate in force, as the program sees them.
    pub fn transport(&self, now: Time) -> Transport {
        let rate = match self.modes.mode() {
            Mode::Open => 0,
            _ => self.limit(),
        };
        let least = INITIAL_WINDOW * u64::from(self.config.mtu);
        let product = self.estimate.received().bytes_in(self.estimate.srtt());
        let window = product.get().max(least);
        Transport {
            cwnd: self.orders.cwnd.unwrap_or(window),
            rate,
            ssthresh: u64::MAX,
            now,
        }
    }

    /// What the program or the agent wants. It counts while there is a limit.
    pub fn steer(&mut self, now: Time, outcome: &Outcome) {
        let seen = self.seen();
        self.modes.on_agent(now, outcome.fallback, &seen);
        if self.modes.mode() != Mode::Open {
            self.orders.rate = outcome.rate.or(self.orders.rate);
            self.orders.cwnd = outcome.cwnd.or(self.orders.cwnd);
        }
        self.apply(now);
    }

    /// The algorithm lets traffic pass, or controls delay.
    pub fn passing(&mut self, now: Time, passing: bool) {
        let seen = self.seen();
        self.modes.on_passing(now, passing, &seen);
        if self.modes.mode() == Mode::Open {
            self.apply(now);
        }
    }

    /// Someone says that all is to pass, or that it is not any more.
    pub fn by_hand(&mut self, now: Time, pass: bool) {
        let seen = self.seen();
        self.modes.on_hand(now, pass, &seen);
        self.apply(now);
    }

    /// The smaller of the rate that was ordered and of what keeps the window that was; or the rate
    /// at which the limit began. Bytes/s.
    fn limit(&self) -> u64 {
        let by_window = self.orders.cwnd.map(|window| self.by_window(window));
        let ordered = self.orders.rate.into_iter().chain(by_window).min();
        let (min, max) = (
            self.config.min.bytes_per_sec(),
            self.config.max.bytes_per_sec(),
        );
        ordered
            .unwrap_or(self.orders.start)
            .clamp(min.min(max), max)
    }

    /// The rate that keeps a window in flight, bytes/s: what arrives, as an ACK clock would let go,
    /// and over an RTT what is missing to the window or too much. The window over the RTT would not
    /// keep it: that RTT is of an RTT ago, and while a queue grows more and more is in flight.
    /// Under it Copa swung between 10 and 190 Mbit/s on a link of 96.
    fn by_window(&self, window: u64) -> u64 {
        let received = self.estimate.received().bytes_per_sec();
        let (_, in_flight) = self.ledger.in_flight(u64::from(self.config.mtu));
        let missing =
            Rate::of(Bytes::new(window.abs_diff(in_flight)), self.estimate.srtt()).bytes_per_sec();
        if window >= in_flight {
            received.saturating_add(missing)
        } else {
            received.saturating_sub(missing)
        }
    }

    /// The scheduler gets the limit that follows from mode and orders.
    fn apply(&mut self, now: Time) {
        let rate = match self.modes.mode() {
            Mode::Open => {
                self.orders = Orders::default();
                None
            }
            _ => Some(Rate::from_bytes_per_sec(self.limit())),
        };
        self.scheduler.set_rate(now, rate);
    }

    /// Which packets are boundaries is to be told the other side, in a packet of the bundle.
    pub fn notice(&mut self, now: Time) -> Option<Notice> {
        self.ledger.notice(now)
    }

    /// When something is to be done: a packet leaves, the program runs, a notice is due, or silence
    /// begins.
    pub fn next_deadline(&self) -> Time {
        let times = [self.scheduler.next_ready(), self.silent_at()];
        times
            .into_iter()
            .flatten()
            .fold(self.next_tick.min(self.ledger.notice_due()), Time::min)
    }

    /// Call it when [`next_deadline`](Sendbox::next_deadline) has come, beside whatever else is due
    /// then.
    pub fn on_deadline(&mut self, now: Time) {
        if self.silent_at().is_some_and(|at| at <= now) {
            let seen = self.seen();
            self.modes.on_silence(now, &seen);
            self.since_tick.silent = true;
            (self.left_since, self.unanswered) = (0, None);
            self.ledger.forget();
            self.estimate.forget();
            self.order = Order::default();
            self.apply(now);
        }
    }

    /// When the receivebox has been silent for too long; `None` if it need say nothing, or is known
    /// to be silent.
    fn silent_at(&self) -> Option<Time> {
        let since = self.unanswered.filter(|_| !self.modes.silent())?;
        Some(since + (self.estimate.srtt() * SILENT_RTTS).max(SILENT))
    }

    fn seen(&self) -> Seen {
        Seen {
            rtt: self.estimate.rtt().unwrap_or_default(),
            min_rtt: self.estimate.min_rtt().unwrap_or_default(),
            jitter: self.estimate.jitter(),
            sent: self.estimate.sent(),
            received: self.estimate.received(),
            out_of_order: self.order.share(),
            waiting: self.scheduler.backlog().bytes,
        }
    }

    /// The oldest change of mode that nobody has asked for yet.
    pub fn event(&mut self) -> Option<ModeChange> {
        self.modes.event()
    }

    /// What waits here.
    pub fn backlog(&self) -> Backlog {
        self.scheduler.backlog()
    }

    /// Its classes, in their order.
    pub fn classes(&self) -> impl Iterator<Item = ClassStatus> + '_ {
        self.scheduler.classes()
    }

    /// How it schedules.
    pub fn queue(&self) -> &ClassesSpec {
        &self.config.queue
    }

    /// Bytes that left, on the wire, of all packets that have a number.
    pub fn left_bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// Smoothed RTT; zero before the first.
    pub fn srtt(&self) -> Duration {
        self.estimate.srtt()
    }

    /// When the program runs next.
    pub fn next_tick(&self) -> Time {
        self.next_tick
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.modes.mode()
    }

    /// What there is to see, at `now`.
    pub fn status(&self, now: Time) -> Status {
        let estimate = &self.estimate;
        Status {
            mode: self.modes.mode(),
            reason: self.modes.reason(),
            since: self.modes.since(),
            rate: self.scheduler.rate(),
            seen: self.seen(),
            in_network: estimate.one_way().queue_delay(now, estimate.srtt()),
            backlog: self.scheduler.backlog(),
            every: self.ledger.every(),
            changes: *self.modes.counts(),
            totals: Totals {
                dropped: self.totals.dropped + self.scheduler.dropped(),
                ..self.totals
            },
        }
    }
}
