//! Connection: both halves, its states, and the methods by which a driver runs it.
//!
//! `send` is the sending half, `receive` the receiving half. `handshake` opens a connection. `rc3`
//! sends the end of the stream at low priority.

use std::sync::Arc;

use ccplane_qdisc::CLASS_COUNT;
use ccplane_units::{Duration, Time};

use crate::config::TransportConfig;
use crate::control::{Ack, CongestionControl, ControlEvent};
use crate::error::ConnectionError;
use crate::number::SequenceNumber;
use crate::proof::{NonceKey, Proof};
use crate::rc3::Rc3Loop;
use crate::receive::Receiver;
use crate::segment::{Segment, SegmentKind, SideData};
use crate::send::flight::Flight;
use crate::send::pacer::Pacer;
use crate::send::rack::Rack;
use crate::send::rate::DeliveryRate;
use crate::send::recovery::{Repair, WindowClamp};
use crate::send::rtt::Rtt;
use crate::stats::ConnectionStats;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionState {
    /// Client that waits for the server's answer.
    Opening,
    /// Server that has answered and waits for the client to prove its address.
    Accepting,
    /// Client that has the server's first answer and waits for the second. It may send. Each of its
    /// segments carries the proof of its address.
    ValidatingAddress,
    /// Established: both sides may send.
    Open,
    /// Both streams are complete. Late retransmissions are still acknowledged for a while.
    Draining,
    /// The connection has ended; [`Connection::failure`] returns the reason if it failed.
    Closed,
}

/// Congestion state of the sending half (Linux's `tcp_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RecoveryPhase {
    /// No reduction is in progress.
    Open,
    /// The window is being reduced after an ECN mark.
    Reduction,
    /// Losses are being repaired.
    Recovery,
    /// Slow start after a retransmission timeout.
    Loss,
}

/// One end of a connection: a reliable byte stream in each direction. It tracks lengths and
/// offsets, not the bytes themselves.
#[derive(Debug)]
#[repr(C)]
pub struct Connection {
    pub(crate) config: Arc<TransportConfig>,
    pub(crate) flight: Flight,
    /// Congestion window in packets.
    pub(crate) window: u32,
    /// Full segments of new data that may be sent without another check (set by `update_quota`).
    pub(crate) quota: u32,
    pub(crate) mss: u16,
    pub(crate) state: ConnectionState,
    pub(crate) phase: RecoveryPhase,
    pub(crate) retransmitted: u32,
    /// Length of the stream written so far, and the right edge of the peer's window, bytes.
    pub(crate) written: u64,
    pub(crate) peer_window_end: u64,
    /// cwnd and ssthresh, bytes.
    pub(crate) cwnd: u64,
    pub(crate) ssthresh: u64,
    pub(crate) rate: DeliveryRate,
    pub(crate) rtt: Rtt,
    pub(crate) rack: Rack,
    /// Times of the last delivery and of the last transmission of new data. The RTO counts from the
    /// former.
    pub(crate) last_delivery: Time,
    pub(crate) last_new_data: Time,
    /// Time of the next timer check. It may be too early, but never too late.
    pub(crate) deadline: Time,
    pub(crate) pacer: Pacer,
    pub(crate) receiver: Receiver,
    pub(crate) repair: Option<Box<Repair>>,
    /// Use of the window (Linux's `tcp_cwnd_validate`): maximum packets outstanding in this round,
    /// which ends at `usage_round_end`.
    pub(crate) outstanding_max: u32,
    pub(crate) usage_round_end: SequenceNumber,
    /// CE counts in the peer's last ACK.
    pub(crate) ce_packets: u32,
    pub(crate) ce_bytes: u32,
    pub(crate) rc3: Option<Box<Rc3Loop>>,
    /// Present if the peer must prove receipt.
    pub(crate) nonce_key: Option<Box<NonceKey>>,
    /// Time of the last segment from the peer. While a client opens: time of its first request.
    pub(crate) last_received: Time,
    pub(crate) timeouts: u16,
    /// Consecutive timeouts.
    pub(crate) backoff: u8,
    /// Consecutive zero-window probes, or proofs of address, without an answer.
    pub(crate) unanswered: u8,
    pub(crate) failure: Option<ConnectionError>,
    /// In class 0 nothing but acknowledgements can be sent.
    pub(crate) has_only_acks: bool,
    pub(crate) flags: Flags,
}

/// Boolean state of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// The application has finished the stream.
    pub finishing: bool,
    /// The segment with the end of the stream was cut.
    pub fin_cut: bool,
    /// One segment may exceed the window: a tail-loss probe.
    pub tail_probe: bool,
    /// A zero-window probe is due.
    pub window_probe: bool,
    /// A tail-loss probe is in flight.
    pub tail_probe_in_flight: bool,
    /// A handshake segment or an abort must be sent.
    pub handshake_due: bool,
    /// The window limited sending in this round.
    pub cwnd_limited: bool,
    /// The control has set a window since the last timeout.
    pub control_answered: bool,
    /// An agent or a program controls the connection.
    pub steered: bool,
}

impl Flags {
    /// Returns true if data must take the general path: a probe is due or in flight, or the
    /// handshake must send.
    #[inline(always)]
    pub fn needs_slow_path(&self) -> bool {
        self.tail_probe | self.tail_probe_in_flight | self.handshake_due
    }
}

impl Connection {
    /// Opens a connection as a client.
    pub fn connect(config: &Arc<TransportConfig>, now: Time) -> Connection {
        let mut connection = Connection::new(config, ConnectionState::Opening, now);
        connection.flags.handshake_due = true;
        connection.last_delivery = now;
        connection.deadline = now + config.initial_rto;
        connection
    }

    /// Accepts `segment`, a client's [`SegmentKind::Open`], as a server. Returns `None` for any
    /// other kind.
    pub fn accept(
        config: &Arc<TransportConfig>,
        now: Time,
        segment: &Segment,
    ) -> Option<Connection> {
        if segment.kind != SegmentKind::Open {
            return None;
        }
        let mut connection = Connection::new(config, ConnectionState::Accepting, now);
        connection.on_open(now, segment);
        Some(connection)
    }

    pub(crate) fn new(
        config: &Arc<TransportConfig>,
        state: ConnectionState,
        now: Time,
    ) -> Connection {
        let first = SequenceNumber(config.first_number);
        let mss = config.mss.max(1);
        let window = u32::from(config.initial_window.max(1));
        Connection {
            config: Arc::clone(config),
            flight: Flight::new(first),
            window,
            quota: 0,
            mss,
            state,
            phase: RecoveryPhase::Open,
            written: 0,
            peer_window_end: 0,
            cwnd: u64::from(window) * u64::from(mss),
            ssthresh: u64::MAX,
            rate: DeliveryRate::default(),
            rtt: Rtt::default(),
            rack: Rack::new(first),
            last_delivery: now,
            last_new_data: now,
            deadline: Time::MAX,
            pacer: Pacer::new(config.max_bytes_per_sec(), config.rc3.is_some()),
            receiver: Receiver::new(config),
            repair: None,
            rc3: None,
            nonce_key: None,
            outstanding_max: 0,
            usage_round_end: first,
            ce_packets: 0,
            ce_bytes: 0,
            last_received: now,
            retransmitted: 0,
            timeouts: 0,
            backoff: 0,
            unanswered: 0,
            failure: None,
            has_only_acks: false,
            flags: Flags::default(),
        }
    }

    /// Appends `bytes` to the stream. Afterwards there may be a segment to send and another
    /// deadline. The length saturates at 2^48 - 1 bytes (281 TB), which serves as "unlimited".
    pub fn write(&mut self, bytes: u64) {
        if !self.flags.finishing && self.is_alive() {
            self.written = self.written.saturating_add(bytes).min(STREAM_BYTES_MAX);
            self.invalidate();
            if self.is_blocked() {
                self.deadline = Time::ZERO; // a zero-window probe may now be due
            }
        }
    }

    /// Ends the stream after the data written so far.
    pub fn finish(&mut self) {
        if !self.flags.finishing {
            self.flags.finishing = true;
            self.invalidate();
        }
    }

    /// Aborts the connection and notifies the peer once.
    pub fn abort(&mut self) {
        if self.is_alive() {
            self.abort_with(ConnectionError::Aborted);
        }
    }

    /// Bytes received in order and not yet read. The driver holds their contents.
    #[inline]
    pub fn readable(&self) -> u64 {
        self.receiver.readable()
    }

    /// Reads up to `bytes` bytes. Returns the number read.
    pub fn read(&mut self, bytes: u64) -> u64 {
        self.receiver.read(bytes, &self.config)
    }

    /// Processes a received segment. `side` is used only if the segment has [`Segment::SIDE_FLAG`].
    #[inline(always)]
    pub fn handle(
        &mut self,
        now: Time,
        segment: &Segment,
        side: &SideData,
        control: &mut impl CongestionControl,
    ) {
        self.handle_at(now, now, segment, side, control);
    }

    /// Processes a received segment with a separate arrival time. `arrived` comes from the clock of
    /// the host's stamps and serves only as t2 or t4.
    #[inline(always)]
    pub fn handle_at(
        &mut self,
        now: Time,
        arrived: Time,
        segment: &Segment,
        side: &SideData,
        control: &mut impl CongestionControl,
    ) {
        self.handle_checked(now, arrived, segment, side, &Proof::default(), control);
    }

    /// Processes a received segment with its nonces. If the peer must prove receipt
    /// ([`Connection::require_proof`]), a false claim ends the connection.
    #[inline(always)]
    pub fn handle_with_proof(
        &mut self,
        (now, arrived): (Time, Time),
        segment: &Segment,
        side: &SideData,
        proof: &Proof,
        control: &mut impl CongestionControl,
    ) {
        if self.check_proof(segment, side, proof) {
            self.handle_checked(now, arrived, segment, side, proof, control);
        }
    }

    #[inline(always)]
    fn handle_checked(
        &mut self,
        now: Time,
        arrived: Time,
        segment: &Segment,
        side: &SideData,
        proof: &Proof,
        control: &mut impl CongestionControl,
    ) {
        let rare = self.state != ConnectionState::Open
            || segment.kind > SegmentKind::Data
            || segment.flags & SLOW_PATH_FLAGS != 0
            || segment.class >= CLASS_COUNT;
        if rare && !self.on_slow_path(now, segment) {
            return;
        }
        self.last_received = now;
        if segment.kind == SegmentKind::Data {
            self.receiver
                .on_data((now, arrived), segment, side, proof, &self.config);
        }
        self.on_ack(now, arrived, segment, side, control);
        if self.receiver.is_complete() {
            self.start_draining(now);
        }
    }

    /// Returns when to call [`Connection::on_timeout`]. The time may be earlier than needed, so a
    /// driver can keep one timer per connection and query again when it fires.
    #[inline(always)]
    pub fn next_timeout(&self) -> Option<Time> {
        let next = self.deadline.min(self.receiver.ack_deadline);
        (next != Time::MAX).then_some(next)
    }

    /// Returns when pacing allows the next packet. `None`: it may be sent now, or there is none.
    #[inline(always)]
    pub fn next_send(&self, now: Time) -> Option<Time> {
        if self.pacer.rate() == 0 || self.pacer.can_send(now) {
            None
        } else {
            self.next_send_paced(now)
        }
    }

    /// Returns the next send time while pacing holds class 0 back. Only the operator's limit holds
    /// RC3 back.
    fn next_send_paced(&self, now: Time) -> Option<Time> {
        let next = self.pacer.next_rc3();
        if next > now && self.has_rc3_segment() {
            return Some(next);
        }
        self.wants_to_send().then_some(self.pacer.next_send)
    }

    /// Runs the control's deadline ([`CongestionControl::next_deadline`]).
    pub fn on_control_deadline(&mut self, now: Time, control: &mut impl CongestionControl) {
        let event = ControlEvent {
            now,
            ack: Ack::default(),
            connection: self,
        };
        let outcome = control.on_deadline(&event);
        self.apply(&Ack::default(), &outcome);
        self.update_quota();
    }

    /// State of the connection.
    #[inline(always)]
    pub fn state(&self) -> ConnectionState {
        self.state
    }

    /// Reason for the end of the connection; `None` if it is open or ended normally.
    pub fn failure(&self) -> Option<ConnectionError> {
        self.failure
    }

    /// Returns true if everything written is acknowledged, including the end of the stream.
    #[inline(always)]
    pub fn all_acked(&self) -> bool {
        self.flags.fin_cut && self.flight.is_empty()
    }

    /// Bytes received in order.
    #[inline(always)]
    pub fn received(&self) -> u64 {
        self.receiver.offset
    }

    /// Returns true if the peer's whole stream has arrived.
    #[inline(always)]
    pub fn all_received(&self) -> bool {
        self.receiver.is_complete()
    }

    /// Statistics of the connection.
    pub fn stats(&self) -> ConnectionStats {
        ConnectionStats::from_connection(self)
    }

    /// Frees memory that is not needed now. A driver with many connections calls it when one
    /// becomes idle.
    pub fn shrink(&mut self) {
        self.receiver.shrink();
        if self.flight.is_empty() {
            self.flight.free();
            if self.phase == RecoveryPhase::Open && self.clamp() == WindowClamp::Unclamped {
                self.repair = None;
            }
            self.release_rc3();
        }
    }

    /// Memory of the connection in bytes, including the size of the struct.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Connection>()
            + self.flight.heap_bytes()
            + self.pacer.heap_bytes()
            + self.receiver.heap_bytes()
            + self.repair.as_ref().map_or(0, |repair| repair.heap_bytes())
            + self.rc3.as_ref().map_or(0, |rc3| rc3.heap_bytes())
            + self.nonce_key.as_ref().map_or(0, |_| size_of::<NonceKey>())
    }
}

/// Queries for congestion controls.
impl Connection {
    /// Maximum payload per segment, bytes.
    #[inline(always)]
    pub fn mss(&self) -> u64 {
        u64::from(self.mss)
    }

    /// Congestion window in force, bytes.
    #[inline(always)]
    pub fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// Congestion window in force, packets.
    #[inline(always)]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Slow-start threshold, bytes; `u64::MAX` before the first loss.
    #[inline(always)]
    pub fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    /// Pacing rate in force, bytes/s; 0 when not paced.
    #[inline(always)]
    pub fn rate(&self) -> u64 {
        self.pacer.rate()
    }

    /// Estimated packets in flight.
    #[inline(always)]
    pub fn in_flight(&self) -> u32 {
        self.flight.in_flight()
    }

    /// Packets sent and not cumulatively acknowledged.
    #[inline(always)]
    pub fn outstanding(&self) -> u32 {
        self.flight.outstanding()
    }

    /// First unacknowledged number (SND.UNA).
    #[inline(always)]
    pub fn una(&self) -> SequenceNumber {
        self.flight.una()
    }

    /// Number of the next new segment (SND.NXT).
    #[inline(always)]
    pub fn next(&self) -> SequenceNumber {
        self.flight.next()
    }

    /// Bytes written and not cumulatively acknowledged.
    #[inline(always)]
    pub fn pending(&self) -> u64 {
        self.written - self.flight.una_offset()
    }

    /// Time of the last segment from the peer.
    pub fn last_received(&self) -> Time {
        self.last_received
    }

    /// Consecutive timeouts without progress in between.
    pub fn consecutive_timeouts(&self) -> u8 {
        self.backoff
    }

    /// Changes the segment size after a path MTU change, up to the size that the peer accepts. The
    /// window in bytes stays the same.
    pub fn set_mss(&mut self, mss: u16) {
        let mss = mss.clamp(1, self.config.mss.max(1));
        if mss != self.mss {
            self.mss = mss;
            self.set_cwnd(self.cwnd);
            self.invalidate();
        }
    }

    /// Sends a keep-alive probe: a segment without data, which the peer acknowledges immediately.
    pub fn probe(&mut self) {
        if matches!(
            self.state,
            ConnectionState::Open | ConnectionState::Draining
        ) {
            self.flags.window_probe = true;
            self.invalidate();
        }
    }

    /// Smoothed RTT; zero before the first sample.
    #[inline(always)]
    pub fn srtt(&self) -> Duration {
        self.rtt.srtt()
    }

    /// Minimum RTT of the last five minutes; zero before the first sample.
    #[inline(always)]
    pub fn min_rtt(&self) -> Duration {
        self.rtt.min_rtt()
    }

    /// Congestion state.
    #[inline(always)]
    pub fn phase(&self) -> RecoveryPhase {
        self.phase
    }

    /// Returns true from the loss, mark or timeout that started a reduction until everything sent
    /// before it is acknowledged.
    #[inline(always)]
    pub fn in_recovery(&self) -> bool {
        self.phase != RecoveryPhase::Open
    }

    /// Returns true if the window limited sending in this round. In slow start more than half of
    /// the window in use suffices, so that the window can grow ahead of the application (Linux's
    /// `tcp_is_cwnd_limited`).
    #[inline(always)]
    pub fn cwnd_limited(&self) -> bool {
        self.flags.cwnd_limited
            || (self.cwnd < self.ssthresh && self.window < self.outstanding_max.saturating_mul(2))
    }
}

/// Internals shared by the modules of the connection.
impl Connection {
    /// Returns true if the connection is neither closed nor draining.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(
            self.state,
            ConnectionState::Closed | ConnectionState::Draining
        )
    }

    /// Invalidates the cached result of `update_quota`: there may be something to send.
    pub(crate) fn invalidate(&mut self) {
        (self.quota, self.has_only_acks) = (0, false);
    }

    /// Updates the pacing rate from the window, if pacing is enabled.
    #[inline(always)]
    pub(crate) fn update_pacing_rate(&mut self) {
        if self.config.pacing {
            let limit = self.config.max_bytes_per_sec();
            self.pacer
                .set_window_rate(self.cwnd, self.ssthresh, self.rtt.srtt(), limit);
        }
    }

    pub(crate) fn fail(&mut self, failure: ConnectionError) {
        self.failure = Some(failure);
        self.close();
    }

    pub(crate) fn close(&mut self) {
        self.state = ConnectionState::Closed;
        self.invalidate();
        self.deadline = Time::MAX;
        self.receiver.ack_deadline = Time::MAX;
        self.free();
        self.clear_echoes();
        self.release_rc3();
    }

    /// Frees the state of data in flight. The one-way delay estimate stays for the final
    /// statistics.
    fn free(&mut self) {
        self.flight.free();
        let stamps = self.repair.take().and_then(|repair| repair.stamps);
        if stamps.is_some() {
            self.repair_mut().stamps = stamps;
        }
    }

    /// Sets the window, bytes; at least one segment.
    #[inline]
    pub(crate) fn set_cwnd(&mut self, cwnd: u64) {
        let mss = u32::from(self.mss);
        debug_assert!(
            mss > 0,
            "the constructor, `take_terms` and `set_mss` keep it above 0"
        );
        self.window = match u32::try_from(cwnd) {
            Ok(cwnd) => (cwnd / mss).max(1),
            Err(_) => u32::try_from(cwnd / u64::from(mss)).unwrap_or(u32::MAX),
        };
        self.cwnd = cwnd.max(u64::from(mss));
    }

    /// Window that a control reads and sets. During a reduction it is the window after the
    /// reduction; while the control's window is withheld, it is that window.
    #[inline(always)]
    pub(crate) fn control_cwnd(&self) -> u64 {
        match (self.phase, self.repair.as_ref()) {
            (RecoveryPhase::Reduction | RecoveryPhase::Recovery, Some(repair))
                if repair.prr.has_started() =>
            {
                repair.target
            }
            (_, Some(repair))
                if repair.clamp != WindowClamp::Unclamped && repair.requested_window != 0 =>
            {
                repair.requested_window
            }
            _ => self.cwnd,
        }
    }

    /// Enters [`ConnectionState::Draining`] once both streams are complete. Late retransmissions
    /// are acknowledged until none has arrived for three timeouts.
    #[cold]
    fn start_draining(&mut self, now: Time) {
        if self.all_acked() && self.receiver.is_complete() {
            self.state = ConnectionState::Draining;
            self.invalidate();
            self.deadline = now + self.rto().max(self.config.initial_rto) * 3;
            self.receiver.ack_deadline = Time::MAX;
            self.free();
        }
    }

    pub(crate) fn rto(&self) -> Duration {
        self.rtt.rto(self.config.initial_rto, self.config.min_rto)
    }
}

/// Maximum stream length, bytes: the range of a segment's offset.
const STREAM_BYTES_MAX: u64 = (1 << 48) - 1;

/// Segment flags that the fast path does not handle.
const SLOW_PATH_FLAGS: u8 = Segment::PROOF_FLAG | Segment::PROBE_FLAG;

/// Both ends of a flow with native Cubic (104 bytes) stay below 1 KB, with room for the driver's
/// own state.
const _: () = assert!(size_of::<Connection>() <= 400 && size_of::<crate::Native>() <= 104);
