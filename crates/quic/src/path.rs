//! One path of one QUIC connection, as a state machine: what a stack tells of packets goes in,
//! window and pacing rate come out.
//!
//! A stack's congestion-control hook tells less than a datapath's flow wants to know. What is
//! missing is made here, once for all stacks: samples of the delivery rate and the RTT, when a
//! reduction begins and ends, proportional rate reduction towards the agent's threshold, and what
//! undoes it. How the signals are derived, where that differs from ccplane's transport
//! (`crates/transport/src/control.rs`):
//!
//! | signal | derivation |
//! | --- | --- |
//! | `Ack.bytes_acked`, `packets_acked` | what the left edge newly passed: bytes, those that were misordered before included; packets, without them |
//! | `Ack.bytes_misordered`, `packets_misordered` | acknowledged while an older packet is outstanding |
//! | `Ack.ecn_bytes`, `ecn_packets` | marks as the stack counts them; one packet for an event where it does not count |
//! | `Ack.lost_pkts_sample` | packets that the stack declared lost; it does so after the acknowledgement that shows it, so in a call of its own |
//! | `Flow.bytes_pending` | no stack says it; what is in flight, and a packet more unless the application has nothing more to send |
//! | `Flow.rtt_sample_us` | time since the sending of the latest newly acknowledged packet, the peer's delay included |
//! | `Flow.was_timeout` | 1 in the call that brings persistent congestion (RFC 9002, 7.6); what was acknowledged with it is told in the next |
//! | `Flow.mss` | the largest UDP payload that the path carries; all bytes are of UDP payload |
//! | `Flow.in_recovery` | 1 from a loss or mark until a packet that was sent since is acknowledged |
//! | `Flow.paced` | always 1: each stack paces, also without an ordered rate (RFC 9002, 7.7) |
//! | one-way delays | never |

mod packets;
mod window;

use ccplane_datapath::{Outcome, Signals, Transport};
use ccplane_transport::{DeliveryRate, Phase, RateSample, Rtt, Stamp};
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::FlowInfo;

use packets::{Packets, Settled, forgotten_before};
use window::{Brought, Window};

/// A packet that was lost may still arrive for so many retransmission timeouts after it left, which
/// undoes a reduction. Less misses long reordering; more keeps 32 bytes for each lost packet that
/// much longer.
const KEEP_LOST: u64 = 2;

/// The smallest packet size that a path has (RFC 9000, 14: 1200 bytes), for stacks that say less.
const LEAST_MSS: u16 = 1_200;

/// One path: its packets in flight, its window, and what a call has gathered so far.
#[derive(Clone, Debug)]
pub struct Path {
    packets: Packets,
    window: Window,
    rate: DeliveryRate,
    rtt: Rtt,
    /// The latest moment that the stack told. Its clock must not go back; where it does, this
    /// stands still.
    now: Time,
    /// The latest packet acknowledged so far: when it left. And the latest before the call under
    /// way, by which the stack has judged what is lost.
    latest_sent: Time,
    judged_by: Time,
    gathered: Gathered,
    /// What was acknowledged with persistent congestion, for the next call.
    held: Acked,
    /// How the window was used in this round, which ends when the left edge comes to `round_end`
    /// (Linux' `tcp_cwnd_validate`).
    most_flying: u32,
    round_end: u64,
    cwnd_limited: bool,
    /// Acknowledged in the latest call, at that time, and not yet counted by a reduction: its
    /// losses come in a call of their own.
    uncounted: (Time, u32),
    acked_bytes: u64,
    lost_packets: u64,
    strays: u64,
}

/// What came since the last call of the control.
#[derive(Clone, Copy, Debug, Default)]
struct Gathered {
    newly: u32,
    newly_bytes: u64,
    /// Of them, behind the left edge: they had been taken for lost.
    late: u32,
    late_bytes: u64,
    latest: Option<Latest>,
    largest: Option<u64>,
    lost: u32,
    /// The latest packet that was lost, in the order of sending.
    largest_lost: Option<u64>,
    marks: u32,
    mark_bytes: u64,
    persistent: bool,
    spurious: bool,
}

/// What a call tells of acknowledgements: in order, and out of it.
#[derive(Clone, Copy, Debug, Default)]
struct Acked {
    packets: u32,
    bytes: u64,
    misordered: u32,
    misordered_bytes: u64,
}

impl Acked {
    fn add(&mut self, other: &Acked) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.misordered += other.misordered;
        self.misordered_bytes += other.misordered_bytes;
    }
}

/// Of the newly acknowledged packets the one that left last.
#[derive(Clone, Copy, Debug)]
struct Latest {
    at: Time,
    stamp: Stamp,
    app_limited: bool,
    order: u64,
}

impl Path {
    /// A path of packets of at most `mss` bytes, with RFC 9002's initial window (7.2).
    pub fn new(now: Time, mss: u16) -> Path {
        let mss = u64::from(mss.max(LEAST_MSS));
        Path {
            packets: Packets::default(),
            window: Window::new(mss, Path::initial_window(mss)),
            rate: DeliveryRate::default(),
            rtt: Rtt::default(),
            now,
            latest_sent: Time::ZERO,
            judged_by: Time::ZERO,
            gathered: Gathered::default(),
            held: Acked::default(),
            most_flying: 0,
            round_end: 0,
            cwnd_limited: false,
            uncounted: (Time::ZERO, 0),
            acked_bytes: 0,
            lost_packets: 0,
            strays: 0,
        }
    }

    /// The path after this one: it keeps what is known of window and round-trip time, and has sent
    /// nothing (RFC 9000, 9.4 lets a stack do so where only the port changed).
    #[must_use]
    pub fn successor(&self) -> Path {
        let mut path = Path::new(self.now, 0);
        path.window = Window::new(self.window.mss, self.window.steered());
        path.window.ssthresh = self.window.ssthresh;
        path.window.rate = self.window.rate;
        path.rtt = self.rtt;
        path
    }

    /// The most bytes that may be in flight.
    pub fn window(&self) -> u64 {
        self.window.cwnd
    }

    /// The slow-start threshold, bytes; `u64::MAX` before the first reduction.
    pub fn ssthresh(&self) -> u64 {
        self.window.ssthresh
    }

    /// The pacing rate that the control ordered; nothing where it ordered none, and the stack paces
    /// as it does by itself.
    pub fn pacing(&self) -> Option<Rate> {
        (self.window.rate != 0).then(|| Rate::from_bytes_per_sec(self.window.rate))
    }

    /// Most bytes that may leave at once at that rate: what is due in a millisecond, from two
    /// packets to 64 KiB. Fewer wake a fast sender more often, more overflow short queues.
    pub fn quantum(&self) -> u64 {
        self.quantum_at(Rate::from_bytes_per_sec(self.window.rate))
    }

    /// The same at another rate.
    pub fn quantum_at(&self, rate: Rate) -> u64 {
        let due = rate.bytes_in(Duration::from_millis(1)).get();
        due.min(1 << 16).max(2 * self.window.mss)
    }

    /// The largest UDP payload that the path carries, bytes.
    pub fn mss(&self) -> u64 {
        self.window.mss
    }

    /// Bytes in flight.
    pub fn bytes_in_flight(&self) -> u64 {
        self.packets.flying_bytes()
    }

    /// Smoothed RTT; zero before the first sample.
    pub fn srtt(&self) -> Duration {
        self.rtt.smoothed()
    }

    /// The least RTT of the last five minutes; zero before the first sample.
    pub fn min_rtt(&self) -> Duration {
        self.rtt.least()
    }

    /// From a loss or mark until its reduction is over.
    pub fn in_recovery(&self) -> bool {
        self.window.in_recovery()
    }

    /// The latest moment that the stack told.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Bytes acknowledged so far.
    pub fn acked_bytes(&self) -> u64 {
        self.acked_bytes
    }

    /// Packets lost so far.
    pub fn lost_packets(&self) -> u64 {
        self.lost_packets
    }

    /// What the stack told of packets that this path never sent, or that had settled before.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// What an agent is told when it begins to steer the path.
    pub fn info(&self, live: bool) -> FlowInfo {
        FlowInfo {
            init_cwnd: Bytes::new(self.window.cwnd),
            mss: Bytes::new(self.window.mss),
            cwnd: Bytes::new(self.window.cwnd),
            ssthresh: Bytes::new(self.window.ssthresh),
            rate: Rate::from_bytes_per_sec(self.window.rate),
            srtt: self.rtt.smoothed(),
            live,
            ..FlowInfo::default()
        }
    }

    /// Bytes in memory, its own size included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Path>() + self.packets.heap_bytes()
    }

    /// The path carries packets of another size.
    pub fn set_mss(&mut self, mss: u16) {
        self.window.set_mss(u64::from(mss.max(LEAST_MSS)));
    }

    /// A packet left that asks for an acknowledgement. One that is larger than the path is known to
    /// carry is a probe for that: it takes no part in congestion control.
    pub fn sent(&mut self, now: Time, number: u64, bytes: u16) {
        self.advance(now);
        if u64::from(bytes) > self.window.mss {
            return;
        }
        let stamp = self.rate.on_send(self.now, self.packets.flying() == 0);
        let limited = self.rate.is_app_limited();
        self.packets.sent(self.now, number, bytes, stamp, limited);
        self.window.on_sent();
        self.note_usage(self.packets.flying_bytes() + self.window.mss > self.window.cwnd);
    }

    /// The stack had data to send, and the window kept it back.
    pub fn limited_by_window(&mut self) {
        self.note_usage(true);
    }

    /// A packet that left at `sent` is acknowledged. Numbers begin anew in each space, so that one
    /// is believed only with its time.
    pub fn acked(&mut self, now: Time, number: u64, sent: Time) {
        self.advance(now);
        let edge = self.packets.edge();
        match self.packets.acked(number, sent) {
            Some(settled) => self.gather(&settled, edge),
            None => self.strays += 1,
        }
    }

    /// One of the packets that left at `sent` is acknowledged, of a stack that tells no numbers.
    pub fn acked_one_of(&mut self, now: Time, sent: Time) {
        self.advance(now);
        let edge = self.packets.edge();
        match self.packets.acked_of(sent) {
            Some(settled) => self.gather(&settled, edge),
            None => self.strays += 1,
        }
    }

    /// An acknowledgement brought so many bytes, of packets that are no newer than this one, which
    /// left at `sent`: the newest that are outstanding, of a stack that tells no others. What they
    /// have more (negative) or fewer bytes than were told, for the next call.
    pub fn acked_no_later(&mut self, now: Time, number: u64, sent: Time, bytes: i64) -> i64 {
        self.advance(now);
        let (mut left, mut next) = (bytes, self.packets.order_of(number, sent));
        while left > 0 {
            let edge = self.packets.edge();
            let Some(settled) = next.and_then(|order| self.packets.acked_no_later(order)) else {
                self.strays += 1;
                return 0;
            };
            left -= i64::try_from(settled.bytes.max(1)).unwrap_or(i64::MAX);
            next = settled.order.checked_sub(1);
            self.gather(&settled, edge);
        }
        left
    }

    /// The stack takes this packet for lost, which left at `sent`. Where an earlier acknowledgement
    /// was believed to be its own, that was the one of an older packet: the newest of those that
    /// are outstanding is the lost one.
    pub fn lost_no_later(&mut self, now: Time, number: u64, sent: Time) {
        self.advance(now);
        match self.packets.lost_no_later(number, sent) {
            Some((order, _)) => self.note_lost(order),
            None => self.strays += 1,
        }
    }

    /// The stack has dropped so many bytes, as with the keys of the handshake, and they were not
    /// lost: the oldest.
    pub fn dropped(&mut self, bytes: u64) {
        let mut left = bytes;
        while left > 0 {
            let Some((_, size)) = self.packets.oldest_dropped() else {
                return;
            };
            left = left.saturating_sub(size.max(1));
        }
    }

    /// The stack takes a packet for lost.
    pub fn lost(&mut self, now: Time, number: u64, bytes: u16) {
        self.advance(now);
        let Some(order) = self.packets.lost(number, bytes) else {
            self.strays += 1;
            return;
        };
        self.note_lost(order);
    }

    /// So many bytes were lost, of packets that left no later than `until`: the oldest, of a stack
    /// that does not say which.
    pub fn lost_until(&mut self, now: Time, until: Time, bytes: u64) {
        self.advance(now);
        let mut left = bytes;
        while left > 0 {
            let Some((order, size)) = self.packets.oldest_lost(until) else {
                self.strays += 1;
                return;
            };
            left = left.saturating_sub(size.max(1));
            self.note_lost(order);
        }
    }

    /// What was lost lasted for long enough to be persistent congestion (RFC 9002, 7.6).
    pub fn persistent(&mut self) {
        self.gathered.persistent = true;
    }

    /// So many packets, of so many bytes, arrived with CE.
    pub fn marked(&mut self, packets: u32, bytes: u64) {
        self.gathered.marks = self.gathered.marks.saturating_add(packets);
        self.gathered.mark_bytes = self.gathered.mark_bytes.saturating_add(bytes);
    }

    /// The stack found that everything that it took for lost in the last reduction has arrived.
    pub fn spurious(&mut self) {
        self.gathered.spurious = true;
    }

    /// All that one acknowledgement, or one timer, brought has been told: the control is called,
    /// once, if it was anything. `app_limited`: the application has nothing more to send.
    pub fn end_of_event(
        &mut self,
        now: Time,
        app_limited: bool,
        control: impl FnOnce(&Transport, &Signals) -> Outcome,
    ) {
        self.advance(now);
        let gathered = std::mem::take(&mut self.gathered);
        let says = gathered.newly | gathered.lost | gathered.marks != 0
            || gathered.spurious
            || gathered.persistent;
        if !says {
            return;
        }
        let (rtt, sample) = self.sample(&gathered);
        let forget = forgotten_before(self.now, self.judged_by, self.rtt.smoothed(), rtt);
        let rto = self
            .rtt
            .rto(Duration::from_secs(1), Duration::from_millis(10));
        let passed = self.packets.settle(forget, self.now - rto * KEEP_LOST);
        self.judged_by = self.latest_sent;
        let in_order = passed.packets + gathered.late;
        let in_order_bytes = passed.bytes + gathered.late_bytes;
        let mut acked = Acked {
            packets: in_order,
            bytes: in_order_bytes + passed.earlier_bytes,
            misordered: gathered.newly.saturating_sub(in_order),
            misordered_bytes: gathered.newly_bytes.saturating_sub(in_order_bytes),
        };
        acked.add(&std::mem::take(&mut self.held));
        if gathered.persistent {
            // As a retransmission timeout it comes without an acknowledgement: a program that adds
            // what is acknowledged would answer it with that.
            self.held = std::mem::take(&mut acked);
        }

        let undone = self.judge(&gathered);
        let flying = self.packets.flying();
        let flying_bytes = self.packets.flying_bytes();
        let signals = Signals {
            bytes_acked: acked.bytes,
            packets_acked: acked.packets.into(),
            bytes_misordered: acked.misordered_bytes,
            packets_misordered: acked.misordered.into(),
            ecn_packets: gathered.marks.into(),
            ecn_bytes: gathered.mark_bytes,
            lost_pkts_sample: gathered.lost.into(),
            bytes_in_flight: flying_bytes,
            bytes_pending: flying_bytes + if app_limited { 0 } else { self.window.mss },
            packets_in_flight: flying.into(),
            rate_incoming: sample.incoming(self.window.mss),
            rate_outgoing: sample.outgoing(self.window.mss),
            rtt_sample_us: rtt.as_micros(),
            was_timeout: gathered.persistent.into(),
            srtt_us: self.rtt.smoothed().as_micros(),
            min_rtt_us: self.rtt.least().as_micros(),
            mss: self.window.mss,
            app_limited: sample.app_limited.into(),
            in_recovery: self.window.in_recovery().into(),
            undone: undone.into(),
            cwnd_limited: self.is_cwnd_limited().into(),
            paced: 1,
            ..Signals::default()
        };
        let transport = Transport {
            cwnd: self.window.steered(),
            rate: self.window.rate,
            ssthresh: self.window.ssthresh,
            now: self.now,
        };
        let outcome = control(&transport, &signals);

        let newly = self.take_uncounted(gathered.newly);
        let brought = Brought {
            newly,
            safe: signals.bytes_acked > 0 && gathered.lost == 0,
            lost: gathered.lost,
            flying,
            flying_bytes,
        };
        self.window.apply(&outcome, &brought);
        if gathered.persistent {
            self.window.restart();
        }
        if app_limited && flying_bytes + self.window.mss <= self.window.cwnd {
            self.rate.limit_by_application(flying);
        }
    }
}

/// The machinery.
impl Path {
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// A packet is acknowledged; before the call the left edge was at `edge`.
    fn gather(&mut self, settled: &Settled, edge: u64) {
        if settled.was_lost {
            self.window.on_wrong();
        }
        let gathered = &mut self.gathered;
        gathered.newly += 1;
        gathered.newly_bytes += settled.bytes;
        if settled.order < edge {
            gathered.late += 1;
            gathered.late_bytes += settled.bytes;
        }
        gathered.largest = gathered.largest.max(Some(settled.order));
        let newer = |known: &Latest| (known.at, known.order) < (settled.at, settled.order);
        if gathered.latest.as_ref().is_none_or(newer) {
            gathered.latest = Some(Latest {
                at: settled.at,
                stamp: settled.stamp,
                app_limited: settled.app_limited,
                order: settled.order,
            });
        }
        self.acked_bytes += settled.bytes;
        self.latest_sent = self.latest_sent.max(settled.at);
    }

    fn note_lost(&mut self, order: u64) {
        self.gathered.lost += 1;
        self.gathered.largest_lost = self.gathered.largest_lost.max(Some(order));
        self.lost_packets += 1;
    }

    fn sample(&mut self, gathered: &Gathered) -> (Duration, RateSample) {
        let Some(latest) = gathered.latest else {
            return (Duration::ZERO, RateSample::default());
        };
        let rtt = self.now.since(latest.at);
        self.rtt.sample(rtt, self.now);
        let sampled = (latest.at, &latest.stamp, latest.app_limited);
        let sample = self
            .rate
            .on_delivered(sampled, gathered.newly, self.now, self.rtt.least());
        (rtt, sample)
    }

    /// Ends, undoes and begins reductions; whether one was undone.
    fn judge(&mut self, gathered: &Gathered) -> bool {
        let undone = self.window.undo(gathered.spurious);
        if let Some(largest) = gathered.largest {
            self.window.on_acked(largest);
        }
        let next = self.packets.next();
        if gathered.persistent {
            self.window.collapse(next);
        } else if gathered
            .largest_lost
            .is_some_and(|order| self.window.is_news(order))
        {
            self.window.begin(Phase::Recovery, next);
        } else if gathered.marks > 0 && !undone && !self.window.in_recovery() {
            self.window.begin(Phase::Reduction, next);
        }
        if self.window.in_recovery() {
            self.window.on_lost(gathered.lost);
        }
        undone
    }

    /// What a reduction counts as newly acknowledged in this call. An acknowledgement and the
    /// losses that it shows are two calls at one time: where the second begins the reduction, it
    /// counts what the first brought.
    fn take_uncounted(&mut self, newly: u32) -> u32 {
        let (at, before) = self.uncounted;
        let counts = if newly == 0 && at == self.now {
            before
        } else {
            newly
        };
        self.uncounted = (self.now, if self.window.is_reducing() { 0 } else { newly });
        counts
    }

    fn note_usage(&mut self, limited: bool) {
        let flying = self.packets.flying();
        let round_over = self.packets.edge() >= self.round_end;
        if limited || round_over || (!self.cwnd_limited && flying > self.most_flying) {
            self.cwnd_limited = limited;
            self.most_flying = flying;
            self.round_end = self.packets.next();
        }
    }

    /// The window limited sending in this round; in slow start it does while more than half of it
    /// is used (Linux' `tcp_is_cwnd_limited`).
    fn is_cwnd_limited(&self) -> bool {
        let slow_start = self.window.cwnd < self.window.ssthresh;
        self.cwnd_limited
            || (slow_start && self.window.cwnd < u64::from(self.most_flying) * 2 * self.window.mss)
    }

    fn initial_window(mss: u64) -> u64 {
        (10 * mss).min((2 * mss).max(14_720))
    }
}
