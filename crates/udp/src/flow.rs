//! One connection of a [`Host`](super::UdpHost): its state machine and the buffers of its two
//! streams.

use ccplane_agent::FlowInfo;
use ccplane_agent::datapath::Datapath;
use ccplane_link::Pollable;
use ccplane_transport::{
    Connection, ConnectionState, Native, Proof, Segment, SegmentKind, SegmentPart, SideData,
};
use ccplane_units::{Bytes, Time};

use super::host_timestamps::DelayHistogram;
use super::pmtu_search::PmtuSearch;
use super::reassembly::SegmentReassembly;
use super::ring::StreamRing;

/// Congestion control of a connection.
#[derive(Clone, Debug)]
pub enum UdpCongestion {
    /// One of the transport's built-in algorithms.
    Native(Native),
    /// The agent's algorithm of this name.
    Steered(String),
}

/// Datapath of the agent-controlled connections.
pub(super) type UdpDatapath = Datapath<Box<dyn Pollable>>;

/// Consecutive timeouts after which the peer is probed. A single extra timeout happens on every
/// lossy path.
const PROBE_TIMEOUTS: u8 = 2;

pub(super) struct UdpFlow {
    pub connection: Connection,
    /// Built-in control; `None` if an agent controls the connection.
    native: Option<Native>,
    /// Sent stream data until it is acknowledged.
    send_ring: StreamRing,
    /// Received data until the application reads it.
    receive_ring: StreamRing,
    /// Bytes written by the application, and read by it.
    written: u64,
    consumed: u64,
    /// True if the peer sends timestamps.
    pub peer_sends_timestamps: bool,
    /// True if the peer sends data in lower-priority classes.
    pub uses_lower_classes: bool,
    /// Time of the last liveness probe and the number of consecutive timeouts at that time.
    last_probe: Option<(Time, u8)>,
    /// Path MTU discovery, once the connection is open.
    pub path: Option<PmtuSearch>,
    /// Reassembly of segments that arrive in parts.
    reassembly: SegmentReassembly,
    /// One-way queueing delays of sent packets, once timestamps are available.
    pub delays: Option<Box<DelayHistogram>>,
}

/// Runs `$run` with the controller of `$flow` bound to `$control`; yields `None` if the controller
/// is gone.
macro_rules! controlled {
    ($flow:expr, $id:expr, $steering:expr, |$control:ident| $run:expr) => {
        match (
            &mut $flow.native,
            $steering.as_mut().and_then(|s| s.flow($id)),
        ) {
            (Some($control), _) => Some($run),
            (None, Some(mut agent)) => {
                let $control = &mut agent;
                Some($run)
            }
            (None, None) => None,
        }
    };
}

impl UdpFlow {
    /// Creates a flow with send and receive buffers of `window` bytes each.
    pub fn new(connection: Connection, native: Option<Native>, window: usize) -> UdpFlow {
        UdpFlow {
            connection,
            native,
            send_ring: StreamRing::new(window),
            receive_ring: StreamRing::new(window),
            written: 0,
            consumed: 0,
            peer_sends_timestamps: false,
            uses_lower_classes: false,
            last_probe: None,
            path: None,
            reassembly: SegmentReassembly::default(),
            delays: None,
        }
    }

    /// Processes a received segment. `arrived` is the kernel's receive timestamp if there is one.
    #[inline]
    pub fn on_segment(
        &mut self,
        (now, arrived): (Time, Time),
        id: u64,
        segment: &Segment,
        (side, proof): (&SideData, &Proof),
        payload: &[u8],
        steering: &mut Option<UdpDatapath>,
    ) {
        if segment.kind == SegmentKind::Data {
            self.store_payload(segment.offset(), payload);
        }
        controlled!(self, id, steering, |control| self
            .connection
            .handle_with_proof((now, arrived), segment, side, proof, control));
    }

    /// Stores the payload of a part; returns the whole segment once all parts are here.
    #[cold]
    pub fn on_part(
        &mut self,
        segment: &Segment,
        part: SegmentPart,
        payload: &[u8],
    ) -> Option<Segment> {
        self.store_payload(segment.offset(), payload);
        self.reassembly
            .insert(segment, part, self.connection.received())
    }

    /// Records the current state of the connection in `info`, for an agent that takes over.
    pub fn record_state(&self, info: &mut FlowInfo) {
        info.cwnd = Bytes::new(self.connection.cwnd());
        info.ssthresh = Bytes::new(self.connection.ssthresh());
        info.srtt = self.connection.srtt();
    }

    /// Records the queueing delay measured by the last ACK.
    pub fn record_delay(&mut self, now: Time) {
        let connection = &self.connection;
        if let Some(delay) = connection.one_way().queue_delay(now, connection.srtt()) {
            self.delays.get_or_insert_default().add(delay);
        }
    }

    /// Stores payload that lies within the window. The connection decides separately whether the
    /// segment is valid and accepts nothing outside the window.
    fn store_payload(&mut self, offset: u64, payload: &[u8]) {
        let end = offset.saturating_add(payload.len() as u64);
        if offset >= self.consumed && end <= self.consumed + self.receive_ring.capacity() as u64 {
            self.receive_ring.copy_from(offset, payload);
        }
    }

    /// Returns the next segment to send in a class.
    #[inline]
    pub fn transmit(&mut self, now: Time, class: u8, side: &mut SideData) -> Option<Segment> {
        // For lower classes the check costs as much as the attempt to send.
        if class != 0 || self.connection.has_segment(now, class) {
            self.connection.transmit(now, class, side)
        } else {
            None
        }
    }

    /// Copies the payload of an outgoing segment to `out`.
    #[inline]
    pub fn copy_payload(&self, segment: &Segment, out: &mut [u8]) {
        self.send_ring.copy_to(segment.offset(), out);
    }

    /// Runs the timers that have expired.
    pub fn on_timers(&mut self, now: Time, id: u64, steering: &mut Option<UdpDatapath>) {
        if self.connection.next_timeout().is_some_and(|due| due <= now) {
            controlled!(self, id, steering, |control| self
                .connection
                .on_timeout(now, control));
        }
        if self
            .control_deadline(id, steering)
            .is_some_and(|due| due <= now)
        {
            controlled!(self, id, steering, |control| self
                .connection
                .on_control_deadline(now, control));
        }
    }

    /// Returns true if the peer answers small probes while full segments are repeatedly lost: the
    /// path MTU has shrunk without an ICMP message (a black hole, RFC 8899, section 4.3).
    pub fn detect_black_hole(&mut self, now: Time) -> bool {
        let timeouts = self.connection.consecutive_timeouts();
        if timeouts < PROBE_TIMEOUTS || self.connection.outstanding() == 0 {
            self.last_probe = None;
            return false;
        }
        if let Some((at, then)) = self.last_probe {
            if timeouts > then && self.connection.last_received() > at {
                self.last_probe = None;
                return true;
            }
            if timeouts == then {
                return false;
            }
        }
        self.last_probe = Some((now, timeouts));
        self.connection.probe();
        false
    }

    /// Returns the time of the next path MTU check; zero if nothing is known about the path yet.
    #[inline]
    pub fn next_path_check(&self) -> Time {
        match self.connection.state() {
            ConnectionState::Open => self
                .path
                .as_ref()
                .map_or(Time::ZERO, PmtuSearch::next_deadline),
            _ => Time::MAX,
        }
    }

    /// Returns the next deadline if nothing arrives before.
    pub fn next_deadline(
        &mut self,
        now: Time,
        id: u64,
        steering: &mut Option<UdpDatapath>,
    ) -> Time {
        let deadlines = [
            self.connection.next_timeout(),
            self.connection.next_send(now),
            Some(self.next_path_check()),
            // With nothing in flight there is nothing to measure.
            self.control_deadline(id, steering)
                .filter(|_| self.connection.outstanding() > 0),
        ];
        deadlines.into_iter().flatten().min().unwrap_or(Time::MAX)
    }

    fn control_deadline(&mut self, id: u64, steering: &mut Option<UdpDatapath>) -> Option<Time> {
        use ccplane_transport::CongestionControl;
        controlled!(self, id, steering, |control| control.next_deadline()).flatten()
    }

    /// Returns a contiguous part of the free send buffer.
    pub fn write_buffer(&mut self) -> &mut [u8] {
        let free = self.send_ring.capacity() as u64
            - self
                .connection
                .pending()
                .min(self.send_ring.capacity() as u64);
        self.send_ring.piece_mut(self.written, free as usize)
    }

    /// Records that the application wrote `bytes` bytes to [`room`](UdpFlow::room).
    pub fn commit_write(&mut self, bytes: usize) {
        self.written += bytes as u64;
        self.connection.write(bytes as u64);
    }

    /// Returns the in-order data that the application has not read yet, in two slices.
    pub fn received(&self) -> (&[u8], &[u8]) {
        self.receive_ring
            .at(self.consumed, self.connection.readable() as usize)
    }

    /// Records that the application has read `bytes` bytes.
    pub fn consume(&mut self, bytes: usize) {
        self.consumed += self.connection.read(bytes as u64);
    }
}
