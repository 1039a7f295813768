//! Sending end of a bundle: holds and schedules its queue, at the rate set by an algorithm.
//!
//! The driver passes it packets and the receivebox's feedback, sends the packets it releases, and
//! runs the algorithm's program through [`Sendbox::drive`] every 10 ms. The sendbox decides whether
//! there is a limit ([`SendboxMode`]); the algorithm sets its value.
//!
//! To the algorithm the bundle is a flow with these signals, updated every 10 ms:
//!
//! | signal | value for a bundle |
//! | --- | --- |
//! | `Ack.bytes_acked`, `packets_acked` | received since the last tick |
//! | `Ack.lost_pkts_sample` | newly missing packets |
//! | `Ack.ecn_bytes`, `ecn_packets` | packets with a CE mark; bytes of as many full packets |
//! | `Flow.bytes_in_flight`, `packets_in_flight` | sent, neither received nor missing |
//! | `Flow.bytes_pending` | **current queue of the sendbox** |
//! | `Flow.rate_outgoing`, `rate_incoming` | S and R over the last RTT, at most 100 ms |
//! | `Flow.rtt_sample_us`, `srtt_us`, `min_rtt_us` | without hold time; minimum of 10 s |
//! | `Flow.was_timeout` | feedback stopped |
//! | `Flow.app_limited` | the queue was empty at some point since the last tick |
//! | `Flow.cwnd_limited` | there is a limit, and a queue |
//! | `Flow.paced` | there is a limit |
//! | `Ack.owd_ns` … `Flow.queue_delay_ns` | [`OneWay`](ccplane_datapath::OneWay), per boundary |
//! | `Flow.mss` | a full packet |
//! | `Rate`, `Cwnd` | limit in force, or 0; the corresponding window |
//!
//! Rates and windows set by a program or an agent have no effect while there is no limit.

use ccplane_datapath::{Capabilities, Outcome, Signals, SteeredFlow, Transport};
use ccplane_qdisc::{
    Backlog, ClassesSpec, Drops, Packet, QueueSpec, QueueSpecError, SfqConfig, Size, Verdict,
};
use ccplane_units::{Bytes, Duration, Rate, Time};

use crate::boundaries::Boundary;
use crate::epoch::{EpochSize, PacketNumbering};
use crate::estimate::{DirectionEstimate, ReorderingShare};
use crate::feedback::{Feedback, Notice};
use crate::ledger::{FeedbackOutcome, ImplausibleFeedback, Ledger, NumberingCounts};
use crate::mode::{ModeChange, Modes, PathObservation, Reason, SendboxMode};
use crate::scheduler::{ClassStatus, Scheduler};

/// Capabilities of a bundle as a flow of a datapath.
pub const CAPABILITIES: Capabilities = Capabilities::CWND
    .union(Capabilities::PACING)
    .union(Capabilities::RTT)
    .union(Capabilities::DELIVERY_RATE)
    .union(Capabilities::ECN)
    .union(Capabilities::TIMERS)
    .union(Capabilities::ONE_WAY_DELAY)
    .union(Capabilities::KEEPS_WINDOW);

/// Interval between runs of the algorithm's program (paper, section 6: 10 ms). A pulse of 6 Hz
/// spans 17 of them.
pub const TICK_INTERVAL: Duration = Duration::from_millis(10);
/// The receivebox is silent after this many RTTs without feedback (our choice: feedback is sent
/// several times per RTT, so at least 16 messages in a row must be lost), ...
const SILENCE_RTTS: u64 = 4;
/// ... but not before this time, ten times the longest interval between two messages ...
const SILENCE_TIME_MIN: Duration = Duration::from_millis(250);
/// ... and only if at least this many packets were sent since the last feedback, because a
/// receivebox without packets sends none.
const SILENCE_PACKETS_MIN: u64 = 10;
/// Feedback for the previous session counts for this many RTTs, for packets in flight.
const PREVIOUS_SESSION_RTTS: u64 = 2;
/// Lower bound of the window reported to the program while nothing is measured, packets (RFC 6928).
const INITIAL_WINDOW_PACKETS: u64 = 10;

/// Configuration of a sendbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SendboxConfig {
    /// Queue per class; [`Packet::class`] selects the class. `spec.into()` creates a single class.
    pub queue: ClassesSpec,
    /// Bytes of a full packet on the wire.
    pub mtu: u32,
    /// Lower bound of the limit, enforced against the algorithm. If it is too low, an error of the
    /// algorithm can stop the site's traffic; if it is too high, the queue stays in a network with
    /// less capacity.
    pub min_rate: Rate,
    /// Upper bound of the limit: the rate of the site's uplink, if known.
    pub max_rate: Rate,
    /// Packet numbering.
    pub numbering: PacketNumbering,
    /// True to measure without ever setting a limit.
    pub observe_only: bool,
    /// Seed for queues that use random numbers.
    pub seed: u64,
}

impl SendboxConfig {
    /// SFQ with 1.875 MB as in the published sendbox. The number of buckets makes collisions rare
    /// among a thousand flows.
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
    /// [`QUEUE`](SendboxConfig::QUEUE) for all packets and a minimum of 1 Mbit/s, as in the
    /// published sendbox.
    fn default() -> SendboxConfig {
        SendboxConfig {
            queue: SendboxConfig::QUEUE.into(),
            mtu: 1_500,
            min_rate: Rate::from_bits_per_sec(1_000_000),
            max_rate: Rate::from_bytes_per_sec(u64::MAX / 16),
            numbering: PacketNumbering::Counter,
            observe_only: false,
            seed: 0,
        }
    }
}

/// Sending end of a bundle.
#[derive(Clone, Debug)]
pub struct Sendbox<P> {
    scheduler: Scheduler<P>,
    config: SendboxConfig,
    ledger: Ledger,
    estimate: DirectionEstimate,
    reordering: ReorderingShare,
    modes: Modes,
    control: BundleOrders,
    since_tick: TickCounters,
    next_tick: Time,
    /// Packets sent since the last feedback, and the time at which they reached
    /// [`SILENCE_PACKETS_MIN`].
    unanswered_packets: u64,
    unanswered_since: Option<Time>,
    /// Drops of queues that were replaced; the current queue counts its own.
    totals: SendboxTotals,
    /// Path MTU probes in flight.
    probes_in_flight: u64,
}

/// Rate and window set by the algorithm since the limit started.
#[derive(Clone, Copy, Debug, Default)]
struct BundleOrders {
    /// R at the start of the limit, bytes/s.
    start_rate: u64,
    rate: Option<u64>,
    cwnd: Option<u64>,
}

/// Signals accumulated since the last tick.
#[derive(Clone, Copy, Debug, Default)]
struct TickCounters {
    counts: NumberingCounts,
    /// True if the queue was empty at some point.
    was_queue_empty: bool,
    silent: bool,
    /// True if a new boundary was acknowledged.
    boundary_acked: bool,
}

/// Counters since the start, for all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendboxTotals {
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, as on the wire.
    pub bytes: u64,
    /// Packets dropped by the sendbox's queues.
    pub dropped: u64,
    /// Packets received by the receivebox.
    pub received: u64,
    /// Bytes received by the receivebox.
    pub received_bytes: u64,
    /// Packets missing at the receivebox.
    pub missing: u64,
    /// Packets that arrived out of order.
    pub out_of_order: u64,
    /// Packets that arrived with a CE mark.
    pub marked: u64,
    /// Feedback messages received.
    pub feedback: u64,
    /// Feedback messages that arrived after newer ones.
    pub stale_feedback: u64,
    /// Feedback messages that were implausible.
    pub implausible_feedback: u64,
}

/// Snapshot of a sendbox.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// Current mode.
    pub mode: SendboxMode,
    /// Reason for the mode.
    pub reason: Reason,
    /// Time of the last mode change.
    pub since: Time,
    /// Rate limit; `None` if there is none.
    pub rate: Option<Rate>,
    /// Path state.
    pub path: PathObservation,
    /// Queueing delay of the newest boundary in the network, if known.
    pub in_network: Option<Duration>,
    /// Packets and bytes queued in the sendbox.
    pub backlog: Backlog,
    /// Epoch size.
    pub epoch_size: EpochSize,
    /// Number of mode changes per reason, in the order of [`Reason::ALL`].
    pub changes: [u64; Reason::ALL.len()],
    /// Counters since the start.
    pub totals: SendboxTotals,
}

impl<P: Packet> Sendbox<P> {
    /// Creates an empty sendbox in open mode.
    pub fn new(now: Time, config: &SendboxConfig) -> Result<Sendbox<P>, QueueSpecError> {
        let queue = config
            .queue
            .build(None, Duration::ZERO, config.mtu, config.seed)?;
        Ok(Sendbox {
            scheduler: Scheduler::new(queue, now),
            config: config.clone(),
            ledger: Ledger::new(config.numbering),
            estimate: DirectionEstimate::default(),
            reordering: ReorderingShare::default(),
            modes: Modes::new(now, config.observe_only),
            control: BundleOrders::default(),
            since_tick: TickCounters::default(),
            next_tick: now + TICK_INTERVAL,
            unanswered_packets: 0,
            unanswered_since: None,
            totals: SendboxTotals::default(),
            probes_in_flight: 0,
        })
    }

    /// Enqueues a packet. May drop it or another one.
    pub fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        self.since_tick.was_queue_empty |= self.scheduler.backlog().packets == 0;
        self.scheduler.enqueue(now, packet, drops)
    }

    /// Returns whether a packet may be sent at `now`.
    pub fn is_ready(&self, now: Time) -> bool {
        self.scheduler
            .next_ready()
            .is_some_and(|ready| ready <= now)
    }

    /// Returns the next packet that may be sent at `now`. The driver reports its transmission with
    /// [`on_sent`](Sendbox::on_sent).
    pub fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.scheduler.dequeue(now, drops)
    }

    /// Records a packet sent with this number and this many bytes on the wire.
    pub fn on_sent(&mut self, now: Time, number: u64, bytes: u32) {
        self.ledger.on_sent(now, number, bytes);
        self.totals.packets += 1;
        self.totals.bytes += u64::from(bytes);
        self.unanswered_packets += 1;
        if self.unanswered_packets == SILENCE_PACKETS_MIN {
            self.unanswered_since = Some(now);
        }
    }

    /// Replaces the queues, possibly with other classes. Moves all queued packets, after `again`
    /// has assigned each its new class. Packets that do not fit are dropped. Measurements and the
    /// limit are kept.
    pub fn requeue(
        &mut self,
        now: Time,
        queue: &ClassesSpec,
        mut reclassify: impl FnMut(P) -> P,
        drops: &mut impl Drops<P>,
    ) -> Result<(), QueueSpecError> {
        let fresh = queue.build(None, Duration::ZERO, self.config.mtu, self.config.seed)?;
        let mut old = std::mem::replace(&mut self.scheduler, Scheduler::new(fresh, now));
        self.scheduler.set_rate(now, old.rate());
        old.set_rate(now, None);
        // Also move packets that the queue would hold back, as if their time had come.
        while let Some(ready) = old.next_ready() {
            if let Some(packet) = old.dequeue(now.max(ready), drops) {
                let _ = self.scheduler.enqueue(now, reclassify(packet), drops);
            }
        }
        self.totals.dropped += old.dropped();
        self.config.queue = queue.clone();
        Ok(())
    }

    /// Sets the bounds of the limit.
    pub fn set_bounds(&mut self, now: Time, min: Rate, max: Rate) {
        (self.config.min_rate, self.config.max_rate) = (min, max);
        self.apply_limit(now);
    }

    /// Starts a new session with new packet numbers. Feedback for the previous session counts for
    /// two more RTTs.
    pub fn start_session(&mut self, now: Time, session: u32) {
        self.probes_in_flight = 0;
        let until = now + (self.estimate.srtt() * PREVIOUS_SESSION_RTTS).max(SILENCE_TIME_MIN);
        self.ledger.start_session(session, until);
        self.estimate.clear_epochs();
    }

    /// Processes feedback.
    pub fn on_feedback(
        &mut self,
        now: Time,
        feedback: &Feedback,
    ) -> Result<(), ImplausibleFeedback> {
        self.totals.feedback += 1;
        match self.ledger.on_feedback(now, feedback) {
            Ok(FeedbackOutcome::Newer { counts, boundary }) => {
                self.add_counts(now, &counts);
                if let Some(boundary) = boundary {
                    self.update_estimate(now, &boundary, feedback);
                }
            }
            Ok(FeedbackOutcome::Stale) => self.totals.stale_feedback += 1,
            Err(why) => {
                self.totals.implausible_feedback += 1;
                return Err(why);
            }
        }
        Ok(())
    }

    /// Records a path MTU probe. Its loss does not indicate congestion (RFC 8899, section 3).
    pub fn on_probe_sent(&mut self) {
        self.probes_in_flight += 1;
    }

    /// Records the acknowledgement of a probe.
    pub fn on_probe_acked(&mut self) {
        self.probes_in_flight = self.probes_in_flight.saturating_sub(1);
    }

    fn add_counts(&mut self, now: Time, counts: &NumberingCounts) {
        let excused = counts.missing.min(self.probes_in_flight);
        self.probes_in_flight -= excused;
        let missing = counts.missing - excused;
        let tick = &mut self.since_tick.counts;
        tick.packets += counts.packets;
        tick.bytes += counts.bytes;
        tick.missing += missing;
        tick.marked += counts.marked;
        let totals = &mut self.totals;
        totals.received += counts.packets;
        totals.received_bytes += counts.bytes;
        totals.missing += missing;
        totals.out_of_order += counts.out_of_order;
        totals.marked += counts.marked;
        self.reordering
            .add(now, counts.packets, counts.out_of_order);
        (self.unanswered_packets, self.unanswered_since) = (0, None);
    }

    fn update_estimate(&mut self, now: Time, boundary: &Boundary, feedback: &Feedback) {
        if !self.estimate.update(now, boundary, feedback) {
            return;
        }
        self.since_tick.boundary_acked = true;
        let seen = self.observe_path();
        if self.modes.on_feedback(now, &seen) {
            self.start_limit();
        }
        self.apply_limit(now);
    }

    /// Starts a limit at the receiving rate.
    fn start_limit(&mut self) {
        self.control = BundleOrders {
            start_rate: self.estimate.receiving_rate().bytes_per_sec(),
            ..BundleOrders::default()
        };
    }

    /// Runs the algorithm's program if a tick or its own deadline is due. Returns whether it was a
    /// tick.
    pub fn drive(&mut self, now: Time, flow: &mut impl SteeredFlow) -> bool {
        let ticks = now >= self.next_tick;
        if ticks {
            let signals = self.tick(now);
            let outcome = flow.on_ack(&self.transport(now), &signals);
            self.apply_outcome(now, &outcome);
        }
        if flow.next_deadline().is_some_and(|due| due <= now) {
            let outcome = flow.on_deadline(&self.transport(now));
            self.apply_outcome(now, &outcome);
        }
        ticks
    }

    /// Returns the program's signals for a tick, due every [`TICK_INTERVAL`], and starts
    /// accumulating the next ones.
    pub fn tick(&mut self, now: Time) -> Signals {
        let missed = now.since(self.next_tick).as_nanos() / TICK_INTERVAL.as_nanos();
        self.next_tick += TICK_INTERVAL * (missed + 1);
        let tick = std::mem::take(&mut self.since_tick);
        if tick.boundary_acked {
            self.estimate.add_noise();
        }
        let min_rtt = self.estimate.min_rtt().unwrap_or_default();
        self.ledger.tick(missed, TICK_INTERVAL, min_rtt);
        let backlog = self.scheduler.backlog();
        let limited = self.modes.mode() != SendboxMode::Open;
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
            rate_outgoing: estimate.sending_rate().bytes_per_sec(),
            rate_incoming: estimate.receiving_rate().bytes_per_sec(),
            rtt_sample_us: estimate.rtt().unwrap_or_default().as_micros(),
            srtt_us: estimate.srtt().as_micros(),
            min_rtt_us: min_rtt.as_micros(),
            was_timeout: u64::from(tick.silent),
            mss,
            app_limited: u64::from(tick.was_queue_empty || backlog.packets == 0),
            cwnd_limited: u64::from(limited && backlog.packets > 0),
            paced: u64::from(limited),
            ..Signals::default()
        };
        estimate
            .one_way()
            .write(now, tick.boundary_acked, estimate.srtt(), &mut signals);
        signals
    }

    /// Returns the window and rate in force, as the program sees them.
    pub fn transport(&self, now: Time) -> Transport {
        let rate = match self.modes.mode() {
            SendboxMode::Open => 0,
            _ => self.limit(),
        };
        let least = INITIAL_WINDOW_PACKETS * u64::from(self.config.mtu);
        let product = self
            .estimate
            .receiving_rate()
            .bytes_in(self.estimate.srtt());
        let window = product.get().max(least);
        Transport {
            cwnd: self.control.cwnd.unwrap_or(window),
            rate,
            ssthresh: u64::MAX,
            now,
        }
    }

    /// Applies the rate and window set by the program or the agent. They have no effect without a
    /// limit.
    pub fn apply_outcome(&mut self, now: Time, outcome: &Outcome) {
        let seen = self.observe_path();
        self.modes.set_agent_gone(now, outcome.fallback, &seen);
        if self.modes.mode() != SendboxMode::Open {
            self.control.rate = outcome.rate.or(self.control.rate);
            self.control.cwnd = outcome.cwnd.or(self.control.cwnd);
        }
        self.apply_limit(now);
    }

    /// Records whether the algorithm has selected pass-through mode.
    pub fn set_pass_through(&mut self, now: Time, passing: bool) {
        let seen = self.observe_path();
        self.modes.set_pass_through(now, passing, &seen);
        if self.modes.mode() == SendboxMode::Open {
            self.apply_limit(now);
        }
    }

    /// Disables the limit for the operator, or enables it again.
    pub fn set_disabled_by_operator(&mut self, now: Time, pass: bool) {
        let seen = self.observe_path();
        self.modes.set_disabled_by_operator(now, pass, &seen);
        self.apply_limit(now);
    }

    /// Returns the limit in bytes/s: the lower of the rate that was set and the rate that keeps the
    /// window in flight, or the initial rate if neither was set.
    fn limit(&self) -> u64 {
        let by_window = self.control.cwnd.map(|window| self.rate_for_window(window));
        let ordered = self.control.rate.into_iter().chain(by_window).min();
        let (min, max) = (
            self.config.min_rate.bytes_per_sec(),
            self.config.max_rate.bytes_per_sec(),
        );
        ordered
            .unwrap_or(self.control.start_rate)
            .clamp(min.min(max), max)
    }

    /// Returns the rate in bytes/s that keeps a window in flight: the receiving rate, as with an
    /// ACK clock, corrected by the difference between window and bytes in flight, spread over one
    /// RTT. Window divided by RTT would not work: the RTT is one RTT old, so while a queue grows,
    /// more and more bytes are in flight. With it, Copa oscillated between 10 and 190 Mbit/s on a
    /// 96 Mbit/s link.
    fn rate_for_window(&self, window: u64) -> u64 {
        let received = self.estimate.receiving_rate().bytes_per_sec();
        let (_, in_flight) = self.ledger.in_flight(u64::from(self.config.mtu));
        let missing =
            Rate::from_bytes_over(Bytes::new(window.abs_diff(in_flight)), self.estimate.srtt())
                .bytes_per_sec();
        if window >= in_flight {
            received.saturating_add(missing)
        } else {
            received.saturating_sub(missing)
        }
    }

    /// Passes the limit that follows from the mode to the scheduler.
    fn apply_limit(&mut self, now: Time) {
        let rate = match self.modes.mode() {
            SendboxMode::Open => {
                self.control = BundleOrders::default();
                None
            }
            _ => Some(Rate::from_bytes_per_sec(self.limit())),
        };
        self.scheduler.set_rate(now, rate);
    }

    /// Returns a notice to be sent as a packet of the bundle, if one is due.
    pub fn poll_notice(&mut self, now: Time) -> Option<Notice> {
        self.ledger.poll_notice(now)
    }

    /// Returns the next deadline: a packet, a run of the program, a notice, or the start of
    /// silence.
    pub fn next_deadline(&self) -> Time {
        let times = [self.scheduler.next_ready(), self.feedback_deadline()];
        times.into_iter().flatten().fold(
            self.next_tick.min(self.ledger.next_notice_time()),
            Time::min,
        )
    }

    /// Handles the start of silence. To be called at [`next_deadline`](Sendbox::next_deadline), in
    /// addition to the calls for packets, program and notices.
    pub fn on_deadline(&mut self, now: Time) {
        if self.feedback_deadline().is_some_and(|at| at <= now) {
            let seen = self.observe_path();
            self.modes.on_feedback_timeout(now, &seen);
            self.since_tick.silent = true;
            (self.unanswered_packets, self.unanswered_since) = (0, None);
            self.ledger.clear_last_counts();
            self.estimate.reset();
            self.reordering = ReorderingShare::default();
            self.apply_limit(now);
        }
    }

    /// Returns the time at which missing feedback counts as silence; `None` if none is expected or
    /// silence has already been declared.
    fn feedback_deadline(&self) -> Option<Time> {
        let since = self.unanswered_since.filter(|_| !self.modes.is_silent())?;
        Some(since + (self.estimate.srtt() * SILENCE_RTTS).max(SILENCE_TIME_MIN))
    }

    fn observe_path(&self) -> PathObservation {
        PathObservation {
            rtt: self.estimate.rtt().unwrap_or_default(),
            min_rtt: self.estimate.min_rtt().unwrap_or_default(),
            jitter: self.estimate.jitter(),
            sent: self.estimate.sending_rate(),
            received: self.estimate.receiving_rate(),
            out_of_order: self.reordering.share(),
            waiting: self.scheduler.backlog().bytes,
        }
    }

    /// Returns the oldest mode change that was not returned before.
    pub fn next_mode_change(&mut self) -> Option<ModeChange> {
        self.modes.next_change()
    }

    /// Returns the packets and bytes queued.
    pub fn backlog(&self) -> Backlog {
        self.scheduler.backlog()
    }

    /// Iterates over the classes in their order.
    pub fn classes(&self) -> impl Iterator<Item = ClassStatus> + '_ {
        self.scheduler.classes()
    }

    /// Returns the configuration of the queues.
    pub fn queue(&self) -> &ClassesSpec {
        &self.config.queue
    }

    /// Returns the total bytes sent on the wire, of all numbered packets.
    pub fn sent_bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// Returns the smoothed RTT; zero before the first sample.
    pub fn srtt(&self) -> Duration {
        self.estimate.srtt()
    }

    /// Returns the time of the next run of the program.
    pub fn next_tick(&self) -> Time {
        self.next_tick
    }

    /// Returns the mode.
    pub fn mode(&self) -> SendboxMode {
        self.modes.mode()
    }

    /// Returns a snapshot at `now`.
    pub fn status(&self, now: Time) -> Status {
        let estimate = &self.estimate;
        Status {
            mode: self.modes.mode(),
            reason: self.modes.reason(),
            since: self.modes.since(),
            rate: self.scheduler.rate(),
            path: self.observe_path(),
            in_network: estimate.one_way().queue_delay(now, estimate.srtt()),
            backlog: self.scheduler.backlog(),
            epoch_size: self.ledger.epoch_size(),
            changes: *self.modes.counts(),
            totals: SendboxTotals {
                dropped: self.totals.dropped + self.scheduler.dropped(),
                ..self.totals
            },
        }
    }
}
