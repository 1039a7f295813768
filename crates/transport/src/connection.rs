//! A connection: both halves of it, its life, and the verbs by which a driver runs it.
//!
//! `send` is the sending half in parts, `receive` the receiving half. `handshake` opens a
//! connection. `rc3` sends at low priority beside it.

use std::sync::Arc;

use ccplane_qdisc::MAX_CLASSES;
use ccplane_units::{Duration, Time};

use crate::config::Config;
use crate::control::{Ack, Control, Event};
use crate::error::Failure;
use crate::number::Number;
use crate::proof::{NonceKey, Proof};
use crate::rc3::Rc3Loop;
use crate::receive::Receiver;
use crate::segment::{Kind, Segment, Side};
use crate::send::flight::Flight;
use crate::send::pacer::Pacer;
use crate::send::rack::Rack;
use crate::send::rate::DeliveryRate;
use crate::send::recovery::{Repair, Withheld};
use crate::send::rtt::Rtt;
use crate::stats::Stats;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// A client that waits for the server's answer.
    Opening,
    /// A server that has answered and waits for the client to prove its address.
    Accepting,
    /// A client that has the server's first answer and waits for its second. It may send. Each of
    /// its segments proves its address.
    Proving,
    /// Data flows.
    Open,
    /// Both streams are complete. Late retransmissions are still answered, for a while.
    Draining,
    /// It has ended. [`Connection::failure`] says why, if it failed.
    Closed,
}

/// What the sending half is doing about losses (Linux' `tcp_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Nothing.
    Open,
    /// Reduces after a mark.
    Reduction,
    /// Repairs losses.
    Recovery,
    /// Starts again after a retransmission timeout.
    Loss,
}

/// One end of a connection: a reliable byte stream in either direction, without the bytes.
#[derive(Debug)]
#[repr(C)]
pub struct Connection {
    pub(crate) config: Arc<Config>,
    pub(crate) flight: Flight,
    /// The window in packets.
    pub(crate) window: u32,
    /// Full segments of new data that may leave without another check (`allot`).
    pub(crate) quota: u32,
    pub(crate) mss: u16,
    pub(crate) state: State,
    pub(crate) phase: Phase,
    pub(crate) retransmitted: u32,
    /// Length of the stream so far, and how far the peer's window reaches in it, bytes.
    pub(crate) written: u64,
    pub(crate) limit: u64,
    /// cwnd and ssthresh, bytes.
    pub(crate) cwnd: u64,
    pub(crate) ssthresh: u64,
    pub(crate) rate: DeliveryRate,
    pub(crate) rtt: Rtt,
    pub(crate) rack: Rack,
    /// When data was last delivered, and when new data was last sent. The RTO counts from the
    /// former.
    pub(crate) progress: Time,
    pub(crate) sent: Time,
    /// When to look at the timers. It may lie too early, never too late.
    pub(crate) deadline: Time,
    pub(crate) pacer: Pacer,
    pub(crate) receiver: Receiver,
    pub(crate) repair: Option<Box<Repair>>,
    /// Usage of the window (Linux' `tcp_cwnd_validate`): most packets outstanding in this round.
    /// The round ends at `usage_end`.
    pub(crate) most_out: u32,
    pub(crate) usage_end: Number,
    /// The peer's counts of CE in its last ACK.
    pub(crate) ce_packets: u32,
    pub(crate) ce_bytes: u32,
    pub(crate) rc3: Option<Box<Rc3Loop>>,
    /// Where the peer has to prove receipt.
    pub(crate) nonces: Option<Box<NonceKey>>,
    /// When the peer was last heard. While a client opens: when its first request left.
    pub(crate) heard: Time,
    pub(crate) timeouts: u16,
    /// Timeouts in a row.
    pub(crate) backoff: u8,
    /// Probes of a closed window in a row, or proofs, that nobody answered.
    pub(crate) unanswered: u8,
    pub(crate) failure: Option<Failure>,
    /// Nothing but acknowledgements waits in class 0.
    pub(crate) nothing_waits: bool,
    pub(crate) flags: Flags,
}

/// Facts about a connection that are true or false.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// The application has written all it will.
    pub finishing: bool,
    /// The segment with the end of the stream was made.
    pub fin_cut: bool,
    /// One segment may leave whatever the window says: a probe for a lost tail.
    pub tail_probe: bool,
    /// A probe of a closed window is due.
    pub window_probe: bool,
    /// A tail-loss probe is under way.
    pub probing: bool,
    /// Something of the handshake, or an abort, waits to leave.
    pub handshake: bool,
    /// The window limited sending in this round.
    pub cwnd_limited: bool,
    /// The control has set a window since the last timeout.
    pub answered: bool,
    /// An agent or a program steers.
    pub steered: bool,
}

impl Flags {
    /// Data needs the general path now: a probe is due or under way, or the handshake has to send.
    #[inline(always)]
    pub fn rare(&self) -> bool {
        self.tail_probe | self.probing | self.handshake
    }
}

impl Connection {
    /// A client asks for a connection.
    pub fn connect(config: &Arc<Config>, now: Time) -> Connection {
        let mut connection = Connection::new(config, State::Opening, now);
        connection.flags.handshake = true;
        connection.progress = now;
        connection.deadline = now + config.initial_rto;
        connection
    }

    /// A server answers `segment`, a client's [`Kind::Open`]; `None` for anything else.
    pub fn accept(config: &Arc<Config>, now: Time, segment: &Segment) -> Option<Connection> {
        if segment.kind != Kind::Open {
            return None;
        }
        let mut connection = Connection::new(config, State::Accepting, now);
        connection.on_open(now, segment);
        Some(connection)
    }

    pub(crate) fn new(config: &Arc<Config>, state: State, now: Time) -> Connection {
        let first = Number(config.first_number);
        let mss = config.mss.max(1);
        let window = u32::from(config.initial_window.max(1));
        Connection {
            config: Arc::clone(config),
            flight: Flight::new(first),
            window,
            quota: 0,
            mss,
            state,
            phase: Phase::Open,
            written: 0,
            limit: 0,
            cwnd: u64::from(window) * u64::from(mss),
            ssthresh: u64::MAX,
            rate: DeliveryRate::default(),
            rtt: Rtt::default(),
            rack: Rack::new(first),
            progress: now,
            sent: now,
            deadline: Time::MAX,
            pacer: Pacer::new(config.max_bytes_per_sec(), config.rc3.is_some()),
            receiver: Receiver::new(config),
            repair: None,
            rc3: None,
            nonces: None,
            most_out: 0,
            usage_end: first,
            ce_packets: 0,
            ce_bytes: 0,
            heard: now,
            retransmitted: 0,
            timeouts: 0,
            backoff: 0,
            unanswered: 0,
            failure: None,
            nothing_waits: false,
            flags: Flags::default(),
        }
    }

    /// The application adds so many bytes to the stream. Afterwards there may be something to send,
    /// and another deadline. The length saturates at 2^48 - 1 bytes (281 TB), which serves as
    /// "without end".
    pub fn write(&mut self, bytes: u64) {
        if !self.flags.finishing && self.is_alive() {
            self.written = self.written.saturating_add(bytes).min(MOST_BYTES);
            self.invalidate();
            if self.is_blocked() {
                self.deadline = Time::ZERO; // from now on the closed window is to be probed
            }
        }
    }

    /// The stream ends with what was written.
    pub fn finish(&mut self) {
        if !self.flags.finishing {
            self.flags.finishing = true;
            self.invalidate();
        }
    }

    /// Gives the connection up; the peer is told once.
    pub fn abort(&mut self) {
        if self.is_alive() {
            self.give_up(Failure::Aborted);
        }
    }

    /// Bytes that arrived and were not read. Their contents are the driver's matter.
    #[inline]
    pub fn readable(&self) -> u64 {
        self.receiver.readable()
    }

    /// The application takes up to so many bytes. Returns how many it got.
    pub fn read(&mut self, bytes: u64) -> u64 {
        self.receiver.read(bytes, &self.config)
    }

    /// A segment has arrived now. `side` counts only where the segment says that it has one.
    #[inline(always)]
    pub fn handle(
        &mut self,
        now: Time,
        segment: &Segment,
        side: &Side,
        control: &mut impl Control,
    ) {
        self.handle_arrived(now, now, segment, side, control);
    }

    /// The same with a separate time stamp. `arrived` is by the clock of the host's stamps, and is
    /// used for t2 or t4 only.
    #[inline(always)]
    pub fn handle_arrived(
        &mut self,
        now: Time,
        arrived: Time,
        segment: &Segment,
        side: &Side,
        control: &mut impl Control,
    ) {
        self.handle_checked(now, arrived, segment, side, &Proof::default(), control);
    }

    /// The same with the segment's nonces. A peer that has to prove receipt
    /// ([`Connection::require_proof`]) and claims what it did not get ends the connection.
    #[inline(always)]
    pub fn handle_proved(
        &mut self,
        (now, arrived): (Time, Time),
        segment: &Segment,
        side: &Side,
        proof: &Proof,
        control: &mut impl Control,
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
        side: &Side,
        proof: &Proof,
        control: &mut impl Control,
    ) {
        let rare = self.state != State::Open
            || segment.kind > Kind::Data
            || segment.flags & RARE != 0
            || segment.class >= MAX_CLASSES;
        if rare && !self.on_rare(now, segment) {
            return;
        }
        self.heard = now;
        if segment.kind == Kind::Data {
            self.receiver
                .on_data((now, arrived), segment, side, proof, &self.config);
        }
        self.on_ack(now, arrived, segment, side, control);
        if self.receiver.ended() {
            self.drain(now);
        }
    }

    /// When to call [`Connection::on_timeout`]. It may be earlier than needed, so a driver may keep
    /// one timer for a connection and ask again when that fires.
    #[inline(always)]
    pub fn next_timeout(&self) -> Option<Time> {
        let next = self.deadline.min(self.receiver.ack_at);
        (next != Time::MAX).then_some(next)
    }

    /// When pacing lets the next packet leave. `None`: it may leave at once, or nothing waits.
    #[inline(always)]
    pub fn next_send(&self, now: Time) -> Option<Time> {
        if self.pacer.rate() == 0 || self.pacer.allows(now) {
            None
        } else {
            self.held_until(now)
        }
    }

    /// The same while class 0 is held back. Only the owner's limit holds RC3 back.
    fn held_until(&self, now: Time) -> Option<Time> {
        let next = self.pacer.next_low();
        if next > now && self.rc3_waits() {
            return Some(next);
        }
        self.wants_to_send().then_some(self.pacer.next)
    }

    /// The control's deadline has come ([`Control::next_deadline`]).
    pub fn on_control_deadline(&mut self, now: Time, control: &mut impl Control) {
        let event = Event {
            now,
            ack: Ack::default(),
            connection: self,
        };
        let outcome = control.on_deadline(&event);
        self.apply(&Ack::default(), &outcome);
        self.allot();
    }

    /// Where it is in its life.
    #[inline(always)]
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it ended, if it did not end well.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Everything written is acknowledged, the end of the stream included.
    #[inline(always)]
    pub fn sent_all(&self) -> bool {
        self.flags.fin_cut && self.flight.is_empty()
    }

    /// Bytes that arrived in order.
    #[inline(always)]
    pub fn received(&self) -> u64 {
        self.receiver.offset
    }

    /// The peer's whole stream has arrived.
    #[inline(always)]
    pub fn received_all(&self) -> bool {
        self.receiver.ended()
    }

    /// Figures for people and reports.
    pub fn stats(&self) -> Stats {
        Stats::of(self)
    }

    /// Gives back memory that is not needed now. A driver that keeps idle connections calls it once
    /// they are idle.
    pub fn shrink(&mut self) {
        self.receiver.shrink();
        if self.flight.is_empty() {
            self.flight.free();
            if self.phase == Phase::Open && self.withheld() == Withheld::No {
                self.repair = None;
            }
            self.release_rc3();
        }
    }

    /// What it takes in memory, bytes, its own size included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Connection>()
            + self.flight.heap_bytes()
            + self.receiver.heap_bytes()
            + self.repair.as_ref().map_or(0, |repair| repair.heap_bytes())
            + self.rc3.as_ref().map_or(0, |rc3| rc3.heap_bytes())
            + self.nonces.as_ref().map_or(0, |_| size_of::<NonceKey>())
    }
}

/// What a control may ask.
impl Connection {
    /// Most payload in a segment, bytes.
    #[inline(always)]
    pub fn mss(&self) -> u64 {
        u64::from(self.mss)
    }

    /// The congestion window in force, bytes.
    #[inline(always)]
    pub fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// The congestion window in force, packets.
    #[inline(always)]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// The slow-start threshold, bytes; `u64::MAX` before the first loss.
    #[inline(always)]
    pub fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    /// The pacing rate in force, bytes/s; 0 when not paced.
    #[inline(always)]
    pub fn rate(&self) -> u64 {
        self.pacer.rate()
    }

    /// Packets on their way, as far as is known.
    #[inline(always)]
    pub fn in_flight(&self) -> u32 {
        self.flight.in_flight()
    }

    /// Packets sent and not cumulatively acknowledged.
    #[inline(always)]
    pub fn outstanding(&self) -> u32 {
        self.flight.outstanding()
    }

    /// Everything before this number is acknowledged.
    #[inline(always)]
    pub fn una(&self) -> Number {
        self.flight.una()
    }

    /// The number that the next new segment will have.
    #[inline(always)]
    pub fn next(&self) -> Number {
        self.flight.next()
    }

    /// Bytes written and not cumulatively acknowledged.
    #[inline(always)]
    pub fn pending(&self) -> u64 {
        self.written - self.flight.una_offset()
    }

    /// When the peer was heard last.
    pub fn heard(&self) -> Time {
        self.heard
    }

    /// Timeouts in a row, without progress between them.
    pub fn timeouts_in_row(&self) -> u8 {
        self.backoff
    }

    /// From now on segments are cut no longer than this, which the peer has to take: the path has
    /// become narrower, or wider again. The window stays as it is, in bytes.
    pub fn set_mss(&mut self, mss: u16) {
        let mss = mss.clamp(1, self.config.mss.max(1));
        if mss != self.mss {
            self.mss = mss;
            self.set_cwnd(self.cwnd);
            self.invalidate();
        }
    }

    /// Asks an open connection's peer for a sign of life: a segment without data, which it answers
    /// at once.
    pub fn probe(&mut self) {
        if matches!(self.state, State::Open | State::Draining) {
            self.flags.window_probe = true;
            self.invalidate();
        }
    }

    /// Smoothed RTT; zero before the first sample.
    #[inline(always)]
    pub fn srtt(&self) -> Duration {
        self.rtt.smoothed()
    }

    /// The least RTT of the last five minutes; zero before the first sample.
    #[inline(always)]
    pub fn min_rtt(&self) -> Duration {
        self.rtt.least()
    }

    /// What it does about losses.
    #[inline(always)]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// From the loss, mark or timeout that began a reduction until everything sent before is
    /// acknowledged.
    #[inline(always)]
    pub fn in_recovery(&self) -> bool {
        self.phase != Phase::Open
    }

    /// The window limited sending in this round. In slow start also when more than half of the
    /// window is used, so that it can grow ahead of the application (Linux' `tcp_is_cwnd_limited`).
    #[inline(always)]
    pub fn cwnd_limited(&self) -> bool {
        self.flags.cwnd_limited
            || (self.cwnd < self.ssthresh && self.window < self.most_out.saturating_mul(2))
    }
}

/// The machinery that the other files share.
impl Connection {
    /// Neither over nor about to be.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, State::Closed | State::Draining)
    }

    /// Drops what is cached about sending: there may be something to send now.
    pub(crate) fn invalidate(&mut self) {
        (self.quota, self.nothing_waits) = (0, false);
    }

    /// Where pacing is on, its rate follows the window.
    #[inline(always)]
    pub(crate) fn follow_window(&mut self) {
        if self.config.pacing {
            let limit = self.config.max_bytes_per_sec();
            self.pacer
                .follow(self.cwnd, self.ssthresh, self.rtt.smoothed(), limit);
        }
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.close();
    }

    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
        self.invalidate();
        self.deadline = Time::MAX;
        self.receiver.ack_at = Time::MAX;
        self.free();
        self.forget_echoes();
        self.release_rc3();
    }

    /// Frees what was kept for data in flight. Only what time stamps have told stays, for final
    /// figures.
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

    /// The window that a control sees and sets. During a reduction it is the window after it, and
    /// while the control's window is withheld it is that window.
    #[inline(always)]
    pub(crate) fn steered_cwnd(&self) -> u64 {
        match (self.phase, self.repair.as_ref()) {
            (Phase::Reduction | Phase::Recovery, Some(repair)) if repair.prr.began() => {
                repair.target
            }
            (_, Some(repair)) if repair.withheld != Withheld::No && repair.asked != 0 => {
                repair.asked
            }
            _ => self.cwnd,
        }
    }

    /// Both streams are complete. Late retransmissions are answered until none has come for three
    /// timeouts.
    #[cold]
    fn drain(&mut self, now: Time) {
        if self.sent_all() && self.receiver.ended() {
            self.state = State::Draining;
            self.invalidate();
            self.deadline = now + self.rto().max(self.config.initial_rto) * 3;
            self.receiver.ack_at = Time::MAX;
            self.free();
        }
    }

    pub(crate) fn rto(&self) -> Duration {
        self.rtt.rto(self.config.initial_rto, self.config.min_rto)
    }
}

/// The longest stream, bytes: what a segment's offset holds.
const MOST_BYTES: u64 = (1 << 48) - 1;

/// Flags of segments that the ordinary path does not look at.
const RARE: u8 = Segment::PROOF | Segment::PROBE;

/// Both ends of a flow with native Cubic (104 bytes) stay below 1 KB, with room for the driver's
/// own state.
const _: () = assert!(size_of::<Connection>() <= 400 && size_of::<crate::Native>() <= 104);
