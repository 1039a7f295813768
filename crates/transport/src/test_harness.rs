//! Test harness: one end of an open connection without a peer. A test writes data, injects
//! acknowledgements and advances the clock.

use std::ops::Range;
use std::sync::Arc;

use ccplane_datapath::{Outcome, Signals};
use ccplane_units::{Duration, Time};

use crate::config::TransportConfig;
use crate::connection::{Connection, ConnectionState};
use crate::control::{Ack, CongestionControl, ControlEvent};
use crate::number::SequenceNumber;
use crate::segment::{Segment, SideData};

/// Payload of a full segment, bytes.
pub(crate) const MSS_BYTES: u64 = 1_000;
/// RTT sample taken before the test starts. It makes the RTO 220 ms, as Linux's minimum adds 200
/// ms.
pub(crate) const RTT: Duration = Duration::from_millis(20);
/// Default receive window of the peer, bytes.
const RECEIVE_WINDOW_BYTES: u32 = 1 << 24;

/// Connection under test, its clock and its congestion control.
pub(crate) struct TestEnd {
    pub connection: Connection,
    pub now: Time,
    /// Outcome that the control returns for every event.
    pub outcome: Outcome,
    /// Signals of the last event.
    pub signals: Signals,
}

/// Control that returns a fixed outcome and records the last event.
struct Listener {
    outcome: Outcome,
    last_ack: Option<Ack>,
    signals: Signals,
}

impl CongestionControl for Listener {
    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        self.last_ack = Some(event.ack);
        self.signals = event.signals();
        self.outcome
    }

    fn on_deadline(&mut self, _event: &ControlEvent<'_>) -> Outcome {
        self.outcome
    }
}

impl TestEnd {
    /// Opens a connection with an initial window of `window` segments. Segments are numbered from
    /// 0.
    pub fn new(window: u16) -> TestEnd {
        TestEnd::with_config(TransportConfig {
            initial_window: window,
            ..TransportConfig::default()
        })
    }

    pub fn with_config(config: TransportConfig) -> TestEnd {
        let config = Arc::new(TransportConfig {
            mss: MSS_BYTES as u16,
            ..config
        });
        let now = Time::ZERO + Duration::from_secs(1);
        let mut connection = Connection::new(&config, ConnectionState::Open, now);
        connection.peer_window_end = u64::from(RECEIVE_WINDOW_BYTES);
        connection.rtt.sample(RTT, now);
        connection.rearm();
        TestEnd {
            connection,
            now,
            outcome: Outcome::default(),
            signals: Signals::default(),
        }
    }

    /// Advances the clock by `ms` milliseconds.
    pub fn advance_ms(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Writes `segments` full segments. Returns the numbers of the segments sent.
    pub fn write(&mut self, segments: u64) -> Vec<u32> {
        self.connection.write(segments * MSS_BYTES);
        self.send_numbers()
    }

    /// Sends and returns every segment that may be sent now.
    pub fn send_all(&mut self) -> Vec<Segment> {
        let mut left = Vec::new();
        while self.connection.has_segment(self.now, 0) {
            let segment = self
                .connection
                .transmit(self.now, 0, &mut SideData::default());
            left.push(segment.expect("`has` returned true"));
            self.check();
        }
        left
    }

    /// Sends every segment that may be sent now and returns their numbers.
    pub fn send_numbers(&mut self) -> Vec<u32> {
        self.send_all()
            .iter()
            .map(|segment| segment.number.0)
            .collect()
    }

    /// Delivers an acknowledgement. Returns the event passed to the control.
    pub fn deliver_ack(&mut self, answer: TestAck) -> Option<Ack> {
        let mut control = self.listener();
        self.connection
            .handle(self.now, &answer.segment, &answer.side, &mut control);
        self.signals = control.signals;
        self.check();
        control.last_ack
    }

    /// Runs the control's deadline: it sets its window without an ACK, as an agent does.
    pub fn run_control_deadline(&mut self) {
        let mut control = self.listener();
        self.connection.on_control_deadline(self.now, &mut control);
        self.check();
    }

    /// Advances the clock until a timer calls the control or allows a segment. Returns the event
    /// passed to the control.
    pub fn wait_for_timer(&mut self) -> Option<Ack> {
        for _ in 0..100 {
            let Some(at) = self.connection.next_timeout() else {
                break;
            };
            self.now = self.now.max(at);
            let mut control = self.listener();
            self.connection.on_timeout(self.now, &mut control);
            self.signals = control.signals;
            self.check();
            if control.last_ack.is_some() || self.connection.has_segment(self.now, 0) {
                return control.last_ack;
            }
        }
        None
    }

    /// Checks the scoreboard. A closed connection has already freed it.
    fn check(&self) {
        if self.connection.state() != ConnectionState::Closed {
            self.connection.flight.check();
        }
    }

    fn listener(&self) -> Listener {
        Listener {
            outcome: self.outcome,
            last_ack: None,
            signals: self.signals,
        }
    }
}

/// Acknowledgement to inject.
pub(crate) struct TestAck {
    pub segment: Segment,
    pub side: SideData,
}

/// Cumulative ACK up to `number`, triggered by the first transmission of the segment before it.
pub(crate) fn ack(number: u32) -> TestAck {
    let mut segment = Segment::default();
    segment.ack = SequenceNumber(number);
    segment.window = RECEIVE_WINDOW_BYTES;
    (segment.echo, segment.echo_transmission) = (segment.ack.previous(), u8::from(number > 0));
    TestAck {
        segment,
        side: SideData::default(),
    }
}

impl TestAck {
    /// Adds a SACK range. Its last segment becomes the one that triggered the ACK.
    pub fn sack(mut self, range: Range<u32>) -> TestAck {
        self.side.push(crate::Range {
            start: SequenceNumber(range.start),
            end: SequenceNumber(range.end),
        });
        self.segment.flags |= Segment::SIDE_FLAG;
        self.echo(range.end.wrapping_sub(1), 1)
    }

    /// Reports a segment as a duplicate (DSACK).
    pub fn duplicate_of(mut self, number: u32) -> TestAck {
        self.side.set_duplicate(crate::Range {
            start: SequenceNumber(number),
            end: SequenceNumber(number + 1),
        });
        self.segment.flags |= Segment::SIDE_FLAG;
        self
    }

    /// Sets the transmission that triggered the ACK.
    pub fn echo(mut self, number: u32, transmission: u8) -> TestAck {
        (self.segment.echo, self.segment.echo_transmission) =
            (SequenceNumber(number), transmission);
        self
    }

    /// Sets the cumulative count of CE-marked segments.
    pub fn ce_marked(mut self, packets: u32) -> TestAck {
        (self.segment.ce_packets, self.segment.ce_bytes) = (packets, packets * MSS_BYTES as u32);
        self
    }

    /// Sets the receive window, bytes beyond the cumulative ACK.
    pub fn receive_window(mut self, bytes: u32) -> TestAck {
        self.segment.window = bytes;
        self
    }
}
