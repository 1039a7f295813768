//! State machine of one path of a QUIC connection: packet events in, window and pacing rate out.
//!
//! A stack's congestion-control hook reports less than a datapath flow needs. The rest is derived
//! here, once for all stacks: samples of delivery rate and RTT, the start and end of reductions,
//! proportional rate reduction towards the agent's threshold, and undoing a reduction. Signals are
//! derived as follows where that differs from ccplane's transport
//! (`crates/transport/src/control.rs`):
//!
//! - `Ack.bytes_acked`, `packets_acked`: newly passed by the left edge. The bytes include those
//!   previously reported as misordered; the packets do not.
//! - `Ack.bytes_misordered`, `packets_misordered`: acknowledged while an older packet is
//!   outstanding.
//! - `Ack.ecn_bytes`, `ecn_packets`: CE marks as counted by the stack; one packet per event if it
//!   does not count them.
//! - `Ack.lost_pkts_sample`: packets that the stack declared lost. It does so after the ACK that
//!   reveals them, in a call of its own.
//! - `Flow.bytes_pending`: reported by no stack. Bytes in flight, plus one packet unless the
//!   application has nothing more to send.
//! - `Flow.rtt_sample_us`: time since the latest newly acknowledged packet was sent, the peer's ACK
//!   delay included.
//! - `Flow.was_timeout`: 1 in the call that reports persistent congestion (RFC 9002, section 7.6).
//!   Packets acknowledged with it are reported in the next call.
//! - `Flow.mss`: largest UDP payload that the path carries; all bytes are UDP payload.
//! - `Flow.in_recovery`: 1 from a loss or mark until a packet sent after it is acknowledged.
//! - `Flow.paced`: always 1, since each stack paces even if no rate is set (RFC 9002, section 7.7).
//! - One-way delays: never.

mod packets;
mod window;

use ccplane_datapath::{Outcome, Signals, Transport};
use ccplane_transport::{DeliveryRate, RateSample, RecoveryPhase, Rtt, Stamp};
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::FlowInfo;

use packets::{PacketTracker, SentPacket, forgotten_before};
use window::{PathWindow, WindowInput};

/// Time in RTOs after sending for which a lost packet is remembered: if all lost packets arrive
/// after all, the reduction is undone. A shorter time misses long reordering; a longer one keeps 32
/// bytes per lost packet.
const LOST_PACKET_MEMORY_RTOS: u64 = 2;

/// Smallest packet size of a path (RFC 9000, section 14), for stacks that report less, bytes.
const MSS_MIN: u16 = 1_200;

/// One path: packets in flight, window, and events of the current call.
#[derive(Clone, Debug)]
pub struct QuicPath {
    packets: PacketTracker,
    window: PathWindow,
    rate: DeliveryRate,
    rtt: Rtt,
    /// Latest time reported by the stack; it never decreases, even if the stack's clock does.
    now: Time,
    /// Send time of the latest packet acknowledged so far, and the same before the current call,
    /// which is the time up to which the stack has detected losses.
    latest_sent: Time,
    losses_known_until: Time,
    event: AckEvent,
    /// Packets acknowledged together with persistent congestion, to be reported in the next call.
    deferred: AckTotals,
    /// Window usage of the current round, which ends when the left edge reaches `round_end` (Linux'
    /// `tcp_cwnd_validate`).
    max_packets_out: u32,
    round_end: u64,
    cwnd_limited: bool,
    /// Time of the latest call, and its acknowledged packets that no reduction has counted yet:
    /// their losses are reported in a separate call.
    uncounted_acked: (Time, u32),
    acked_bytes: u64,
    lost_packets: u64,
    unknown_packets: u64,
}

/// Events since the last call of the control.
#[derive(Clone, Copy, Debug, Default)]
struct AckEvent {
    newly_acked: u32,
    newly_acked_bytes: u64,
    /// Acknowledged packets behind the left edge, which had been declared lost.
    late_acked: u32,
    late_acked_bytes: u64,
    latest: Option<Latest>,
    largest: Option<u64>,
    lost: u32,
    /// Latest lost packet, in the order of sending.
    largest_lost: Option<u64>,
    marks: u32,
    mark_bytes: u64,
    persistent_congestion: bool,
    spurious: bool,
}

/// Acknowledgements of a call, in order and out of order.
#[derive(Clone, Copy, Debug, Default)]
struct AckTotals {
    packets: u32,
    bytes: u64,
    misordered: u32,
    misordered_bytes: u64,
}

impl AckTotals {
    fn add(&mut self, other: &AckTotals) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.misordered += other.misordered;
        self.misordered_bytes += other.misordered_bytes;
    }
}

/// Newly acknowledged packet that was sent last.
#[derive(Clone, Copy, Debug)]
struct Latest {
    sent_at: Time,
    stamp: Stamp,
    app_limited: bool,
    order: u64,
}

impl QuicPath {
    /// Creates a path for packets of at most `mss` bytes with the initial window of RFC 9002
    /// (section 7.2).
    pub fn new(now: Time, mss: u16) -> QuicPath {
        let mss = u64::from(mss.max(MSS_MIN));
        QuicPath {
            packets: PacketTracker::default(),
            window: PathWindow::new(mss, QuicPath::initial_window(mss)),
            rate: DeliveryRate::default(),
            rtt: Rtt::default(),
            now,
            latest_sent: Time::ZERO,
            losses_known_until: Time::ZERO,
            event: AckEvent::default(),
            deferred: AckTotals::default(),
            max_packets_out: 0,
            round_end: 0,
            cwnd_limited: false,
            uncounted_acked: (Time::ZERO, 0),
            acked_bytes: 0,
            lost_packets: 0,
            unknown_packets: 0,
        }
    }

    /// Returns the path that replaces this one after a migration: it keeps window and RTT, and has
    /// sent nothing. RFC 9000, section 9.4 allows this if only the port changed.
    #[must_use]
    pub fn migrate(&self) -> QuicPath {
        let mut path = QuicPath::new(self.now, 0);
        path.window = PathWindow::new(self.window.mss, self.window.control_cwnd());
        path.window.ssthresh = self.window.ssthresh;
        path.window.rate = self.window.rate;
        path.rtt = self.rtt;
        path
    }

    /// Returns the congestion window, bytes.
    pub fn window(&self) -> u64 {
        self.window.cwnd
    }

    /// Returns the slow-start threshold in bytes; `u64::MAX` before the first reduction.
    pub fn ssthresh(&self) -> u64 {
        self.window.ssthresh
    }

    /// Returns the pacing rate set by the control; `None` if it set none and the stack chooses its
    /// own.
    pub fn pacing_rate(&self) -> Option<Rate> {
        (self.window.rate != 0).then(|| Rate::from_bytes_per_sec(self.window.rate))
    }

    /// Returns the largest burst at the pacing rate, bytes: one millisecond's worth, between two
    /// packets and 64 KiB. A smaller burst wakes a fast sender more often; a larger one overflows
    /// short queues.
    pub fn send_quantum(&self) -> u64 {
        self.send_quantum_at(Rate::from_bytes_per_sec(self.window.rate))
    }

    /// Returns the largest burst at the given rate, bytes.
    pub fn send_quantum_at(&self, rate: Rate) -> u64 {
        let due = rate.bytes_in(Duration::from_millis(1)).get();
        due.min(1 << 16).max(2 * self.window.mss)
    }

    /// Returns the largest UDP payload that the path carries, bytes.
    pub fn mss(&self) -> u64 {
        self.window.mss
    }

    /// Returns the bytes in flight.
    pub fn bytes_in_flight(&self) -> u64 {
        self.packets.bytes_in_flight()
    }

    /// Returns the smoothed RTT; zero before the first sample.
    pub fn srtt(&self) -> Duration {
        self.rtt.srtt()
    }

    /// Returns the smallest RTT of the last five minutes; zero before the first sample.
    pub fn min_rtt(&self) -> Duration {
        self.rtt.min_rtt()
    }

    /// Returns true from a loss or mark until its reduction ends.
    pub fn in_recovery(&self) -> bool {
        self.window.in_recovery()
    }

    /// Returns the latest time reported by the stack.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the total of acknowledged bytes.
    pub fn acked_bytes(&self) -> u64 {
        self.acked_bytes
    }

    /// Returns the total of lost packets.
    pub fn lost_packets(&self) -> u64 {
        self.lost_packets
    }

    /// Returns the number of events for packets that this path never sent, or that were already
    /// acknowledged or lost.
    pub fn unknown_packets(&self) -> u64 {
        self.unknown_packets
    }

    /// Returns the description of the flow for an agent that starts to control it.
    pub fn info(&self, live: bool) -> FlowInfo {
        FlowInfo {
            init_cwnd: Bytes::new(self.window.cwnd),
            mss: Bytes::new(self.window.mss),
            cwnd: Bytes::new(self.window.cwnd),
            ssthresh: Bytes::new(self.window.ssthresh),
            rate: Rate::from_bytes_per_sec(self.window.rate),
            srtt: self.rtt.srtt(),
            live,
            ..FlowInfo::default()
        }
    }

    /// Returns the memory used, including the struct itself, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<QuicPath>() + self.packets.heap_bytes()
    }

    /// Sets the largest packet size of the path, bytes.
    pub fn set_mss(&mut self, mss: u16) {
        self.window.set_mss(u64::from(mss.max(MSS_MIN)));
    }

    /// Records an ack-eliciting packet. A packet larger than the path's known MTU is an MTU probe
    /// and does not take part in congestion control.
    pub fn on_sent(&mut self, now: Time, number: u64, bytes: u16) {
        self.advance(now);
        if u64::from(bytes) > self.window.mss {
            return;
        }
        let stamp = self.rate.on_send(self.now, self.packets.in_flight() == 0);
        let limited = self.rate.is_app_limited();
        self.packets
            .on_sent(self.now, number, bytes, stamp, limited);
        self.window.on_sent();
        self.validate_cwnd(self.packets.bytes_in_flight() + self.window.mss > self.window.cwnd);
    }

    /// Records that the window kept the stack from sending data.
    pub fn on_cwnd_limited(&mut self) {
        self.validate_cwnd(true);
    }

    /// Records that a packet sent at `sent` was acknowledged. The time is needed because numbers
    /// restart in each packet number space.
    pub fn on_acked(&mut self, now: Time, number: u64, sent: Time) {
        self.advance(now);
        let edge = self.packets.left_edge();
        match self.packets.on_acked(number, sent) {
            Some(settled) => self.record_acked(&settled, edge),
            None => self.unknown_packets += 1,
        }
    }

    /// Records that one of the packets sent at `sent` was acknowledged, for stacks that do not
    /// report numbers.
    pub fn on_acked_sent_at(&mut self, now: Time, sent: Time) {
        self.advance(now);
        let edge = self.packets.left_edge();
        match self.packets.on_acked_sent_at(sent) {
            Some(settled) => self.record_acked(&settled, edge),
            None => self.unknown_packets += 1,
        }
    }

    /// Records an ACK of `bytes` bytes whose newest packet is this one, for stacks that report
    /// nothing else. The newest outstanding packets up to this one are assumed to be acknowledged.
    /// Returns `bytes` minus their size, at most zero, to be added in the next call.
    pub fn on_acked_up_to(&mut self, now: Time, number: u64, sent: Time, bytes: i64) -> i64 {
        self.advance(now);
        let (mut left, mut next) = (bytes, self.packets.order_of(number, sent));
        while left > 0 {
            let edge = self.packets.left_edge();
            let Some(settled) = next.and_then(|order| self.packets.on_acked_up_to(order)) else {
                self.unknown_packets += 1;
                return 0;
            };
            left -= i64::try_from(settled.bytes.max(1)).unwrap_or(i64::MAX);
            next = settled.order.checked_sub(1);
            self.record_acked(&settled, edge);
        }
        left
    }

    /// Records the loss of a packet sent at `sent`. If an earlier ACK was wrongly attributed to it,
    /// the newest outstanding packet before it is lost instead.
    pub fn on_lost_up_to(&mut self, now: Time, number: u64, sent: Time) {
        self.advance(now);
        match self.packets.on_lost_up_to(number, sent) {
            Some((order, _)) => self.record_lost(order),
            None => self.unknown_packets += 1,
        }
    }

    /// Removes the oldest packets, `bytes` bytes in all, which the stack discarded without a loss,
    /// for example with the handshake keys.
    pub fn on_discarded(&mut self, bytes: u64) {
        let mut left = bytes;
        while left > 0 {
            let Some((_, size)) = self.packets.discard_oldest() else {
                return;
            };
            left = left.saturating_sub(size.max(1));
        }
    }

    /// Records that the stack declared a packet lost.
    pub fn on_lost(&mut self, now: Time, number: u64, bytes: u16) {
        self.advance(now);
        let Some(order) = self.packets.on_lost(number, bytes) else {
            self.unknown_packets += 1;
            return;
        };
        self.record_lost(order);
    }

    /// Records the loss of `bytes` bytes of packets sent no later than `until`, for stacks that do
    /// not report which: the oldest are assumed lost.
    pub fn on_lost_until(&mut self, now: Time, until: Time, bytes: u64) {
        self.advance(now);
        let mut left = bytes;
        while left > 0 {
            let Some((order, size)) = self.packets.mark_oldest_lost(until) else {
                self.unknown_packets += 1;
                return;
            };
            left = left.saturating_sub(size.max(1));
            self.record_lost(order);
        }
    }

    /// Records that the losses amount to persistent congestion (RFC 9002, section 7.6).
    pub fn on_persistent_congestion(&mut self) {
        self.event.persistent_congestion = true;
    }

    /// Records packets that arrived with CE.
    pub fn on_ce_marks(&mut self, packets: u32, bytes: u64) {
        self.event.marks = self.event.marks.saturating_add(packets);
        self.event.mark_bytes = self.event.mark_bytes.saturating_add(bytes);
    }

    /// Records that all packets declared lost in the last reduction have arrived.
    pub fn on_spurious_loss(&mut self) {
        self.event.spurious = true;
    }

    /// Ends an event: everything that one ACK or timer revealed has been recorded. Calls the
    /// control once if there was anything. `app_limited` is set if the application has nothing more
    /// to send.
    pub fn finish_event(
        &mut self,
        now: Time,
        app_limited: bool,
        control: impl FnOnce(&Transport, &Signals) -> Outcome,
    ) {
        self.advance(now);
        let gathered = std::mem::take(&mut self.event);
        let says = gathered.newly_acked | gathered.lost | gathered.marks != 0
            || gathered.spurious
            || gathered.persistent_congestion;
        if !says {
            return;
        }
        let (rtt, sample) = self.take_sample(&gathered);
        let forget = forgotten_before(self.now, self.losses_known_until, self.rtt.srtt(), rtt);
        let rto = self
            .rtt
            .rto(Duration::from_secs(1), Duration::from_millis(10));
        let passed = self
            .packets
            .end_call(forget, self.now - rto * LOST_PACKET_MEMORY_RTOS);
        self.losses_known_until = self.latest_sent;
        let in_order = passed.packets + gathered.late_acked;
        let in_order_bytes = passed.bytes + gathered.late_acked_bytes;
        let mut acked = AckTotals {
            packets: in_order,
            bytes: in_order_bytes + passed.earlier_bytes,
            misordered: gathered.newly_acked.saturating_sub(in_order),
            misordered_bytes: gathered.newly_acked_bytes.saturating_sub(in_order_bytes),
        };
        acked.add(&std::mem::take(&mut self.deferred));
        if gathered.persistent_congestion {
            // Like a retransmission timeout it is reported without an ACK; otherwise a program that
            // adds acknowledged bytes would grow its window in response.
            self.deferred = std::mem::take(&mut acked);
        }

        let undone = self.update_recovery(&gathered);
        let flying = self.packets.in_flight();
        let flying_bytes = self.packets.bytes_in_flight();
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
            rate_incoming: sample.ack_rate(self.window.mss),
            rate_outgoing: sample.send_rate(self.window.mss),
            rtt_sample_us: rtt.as_micros(),
            was_timeout: gathered.persistent_congestion.into(),
            srtt_us: self.rtt.srtt().as_micros(),
            min_rtt_us: self.rtt.min_rtt().as_micros(),
            mss: self.window.mss,
            app_limited: sample.app_limited.into(),
            in_recovery: self.window.in_recovery().into(),
            undone: undone.into(),
            cwnd_limited: self.is_cwnd_limited().into(),
            paced: 1,
            ..Signals::default()
        };
        let transport = Transport {
            cwnd: self.window.control_cwnd(),
            rate: self.window.rate,
            ssthresh: self.window.ssthresh,
            now: self.now,
        };
        let outcome = control(&transport, &signals);

        let newly = self.take_uncounted(gathered.newly_acked);
        let brought = WindowInput {
            newly_acked: newly,
            safe_ack: signals.bytes_acked > 0 && gathered.lost == 0,
            lost: gathered.lost,
            in_flight: flying,
            bytes_in_flight: flying_bytes,
        };
        self.window.apply(&outcome, &brought);
        if gathered.persistent_congestion {
            self.window.enforce_min_window();
        }
        if app_limited && flying_bytes + self.window.mss <= self.window.cwnd {
            self.rate.set_app_limited(flying);
        }
    }
}

impl QuicPath {
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Adds an acknowledged packet to the event. `edge` is the left edge before it was
    /// acknowledged.
    fn record_acked(&mut self, settled: &SentPacket, edge: u64) {
        if settled.was_lost {
            self.window.on_spurious_loss();
        }
        let gathered = &mut self.event;
        gathered.newly_acked += 1;
        gathered.newly_acked_bytes += settled.bytes;
        if settled.order < edge {
            gathered.late_acked += 1;
            gathered.late_acked_bytes += settled.bytes;
        }
        gathered.largest = gathered.largest.max(Some(settled.order));
        let newer =
            |known: &Latest| (known.sent_at, known.order) < (settled.sent_at, settled.order);
        if gathered.latest.as_ref().is_none_or(newer) {
            gathered.latest = Some(Latest {
                sent_at: settled.sent_at,
                stamp: settled.stamp,
                app_limited: settled.app_limited,
                order: settled.order,
            });
        }
        self.acked_bytes += settled.bytes;
        self.latest_sent = self.latest_sent.max(settled.sent_at);
    }

    fn record_lost(&mut self, order: u64) {
        self.event.lost += 1;
        self.event.largest_lost = self.event.largest_lost.max(Some(order));
        self.lost_packets += 1;
    }

    fn take_sample(&mut self, gathered: &AckEvent) -> (Duration, RateSample) {
        let Some(latest) = gathered.latest else {
            return (Duration::ZERO, RateSample::default());
        };
        let rtt = self.now.since(latest.sent_at);
        self.rtt.sample(rtt, self.now);
        let sampled = (latest.sent_at, &latest.stamp, latest.app_limited);
        let sample =
            self.rate
                .on_delivered(sampled, gathered.newly_acked, self.now, self.rtt.min_rtt());
        (rtt, sample)
    }

    /// Ends, undoes and starts reductions. Returns true if one was undone.
    fn update_recovery(&mut self, gathered: &AckEvent) -> bool {
        let undone = self.window.undo(gathered.spurious);
        if let Some(largest) = gathered.largest {
            self.window.on_acked(largest);
        }
        let next = self.packets.next_order();
        if gathered.persistent_congestion {
            self.window.on_persistent_congestion(next);
        } else if gathered
            .largest_lost
            .is_some_and(|order| self.window.starts_reduction(order))
        {
            self.window.start_reduction(RecoveryPhase::Recovery, next);
        } else if gathered.marks > 0 && !undone && !self.window.in_recovery() {
            self.window.start_reduction(RecoveryPhase::Reduction, next);
        }
        if self.window.in_recovery() {
            self.window.on_lost(gathered.lost);
        }
        undone
    }

    /// Returns the packets that a reduction counts as newly acknowledged in this call. An ACK and
    /// the losses that it reveals are two calls at the same time; if the second starts a reduction,
    /// it counts the packets of the first.
    fn take_uncounted(&mut self, newly: u32) -> u32 {
        let (at, before) = self.uncounted_acked;
        let counts = if newly == 0 && at == self.now {
            before
        } else {
            newly
        };
        self.uncounted_acked = (self.now, if self.window.is_reducing() { 0 } else { newly });
        counts
    }

    fn validate_cwnd(&mut self, limited: bool) {
        let flying = self.packets.in_flight();
        let round_over = self.packets.left_edge() >= self.round_end;
        if limited || round_over || (!self.cwnd_limited && flying > self.max_packets_out) {
            self.cwnd_limited = limited;
            self.max_packets_out = flying;
            self.round_end = self.packets.next_order();
        }
    }

    /// Returns true if the window limited sending in this round; in slow start also if more than
    /// half of it was used (Linux' `tcp_is_cwnd_limited`).
    fn is_cwnd_limited(&self) -> bool {
        let slow_start = self.window.cwnd < self.window.ssthresh;
        self.cwnd_limited
            || (slow_start
                && self.window.cwnd < u64::from(self.max_packets_out) * 2 * self.window.mss)
    }

    fn initial_window(mss: u64) -> u64 {
        (10 * mss).min((2 * mss).max(14_720))
    }
}
