//! Test harness: one end of an open connection without a peer. A test writes data, injects
//! acknowledgements and advances the clock.

use std::ops::Range;
use std::sync::Arc;

use ccplane_datapath::Outcome;
use ccplane_units::{Duration, Time};

use crate::config::Config;
use crate::connection::{Connection, State};
use crate::control::{Ack, Control, Event};
use crate::number::Number;
use crate::segment::{Segment, Side};

/// Payload of a full segment, bytes.
pub(crate) const MSS: u64 = 1_000;
/// RTT sample taken before the test starts. It makes the RTO 220 ms, as Linux's minimum adds 200
/// ms.
pub(crate) const RTT: Duration = Duration::from_millis(20);
/// Default receive window of the peer, bytes.
const WINDOW: u32 = 1 << 24;

/// Connection under test, its clock and its congestion control.
pub(crate) struct Alone {
    pub connection: Connection,
    pub now: Time,
    /// Outcome that the control returns for every event.
    pub says: Outcome,
}

/// Control that returns a fixed outcome and records the last event.
struct Listener {
    says: Outcome,
    told: Option<Ack>,
}

impl Control for Listener {
    fn on_event(&mut self, event: &Event<'_>) -> Outcome {
        self.told = Some(event.ack);
        self.says
    }

    fn on_deadline(&mut self, _event: &Event<'_>) -> Outcome {
        self.says
    }
}

impl Alone {
    /// Opens a connection with an initial window of `window` segments. Segments are numbered from
    /// 0.
    pub fn new(window: u16) -> Alone {
        Alone::with(Config {
            initial_window: window,
            ..Config::default()
        })
    }

    pub fn with(config: Config) -> Alone {
        let config = Arc::new(Config {
            mss: MSS as u16,
            ..config
        });
        let now = Time::ZERO + Duration::from_secs(1);
        let mut connection = Connection::new(&config, State::Open, now);
        connection.limit = u64::from(WINDOW);
        connection.rtt.sample(RTT, now);
        connection.rearm();
        Alone {
            connection,
            now,
            says: Outcome::default(),
        }
    }

    /// Advances the clock by `ms` milliseconds.
    pub fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Writes `segments` full segments. Returns the numbers of the segments sent.
    pub fn write(&mut self, segments: u64) -> Vec<u32> {
        self.connection.write(segments * MSS);
        self.leaving()
    }

    /// Sends and returns every segment that may be sent now.
    pub fn segments(&mut self) -> Vec<Segment> {
        let mut left = Vec::new();
        while self.connection.has(self.now, 0) {
            let segment = self.connection.transmit(self.now, 0, &mut Side::default());
            left.push(segment.expect("`has` promised a segment"));
            self.check();
        }
        left
    }

    /// Sends every segment that may be sent now and returns their numbers.
    pub fn leaving(&mut self) -> Vec<u32> {
        self.segments()
            .iter()
            .map(|segment| segment.number.0)
            .collect()
    }

    /// Delivers an acknowledgement. Returns the event passed to the control.
    pub fn hear(&mut self, answer: Answer) -> Option<Ack> {
        let mut control = self.listener();
        self.connection
            .handle(self.now, &answer.segment, &answer.side, &mut control);
        self.check();
        control.told
    }

    /// Runs the control's deadline: it sets its window without an ACK, as an agent does.
    pub fn command(&mut self) {
        let mut control = self.listener();
        self.connection.on_control_deadline(self.now, &mut control);
        self.check();
    }

    /// Advances the clock until a timer calls the control or allows a segment. Returns the event
    /// passed to the control.
    pub fn wait(&mut self) -> Option<Ack> {
        for _ in 0..100 {
            let Some(at) = self.connection.next_timeout() else {
                break;
            };
            self.now = self.now.max(at);
            let mut control = self.listener();
            self.connection.on_timeout(self.now, &mut control);
            self.check();
            if control.told.is_some() || self.connection.has(self.now, 0) {
                return control.told;
            }
        }
        None
    }

    /// Checks the scoreboard. A closed connection has already freed it.
    fn check(&self) {
        if self.connection.state() != State::Closed {
            self.connection.flight.check();
        }
    }

    fn listener(&self) -> Listener {
        Listener {
            says: self.says,
            told: None,
        }
    }
}

/// Acknowledgement to inject.
pub(crate) struct Answer {
    pub segment: Segment,
    pub side: Side,
}

/// Cumulative ACK up to `number`, triggered by the first transmission of the segment before it.
pub(crate) fn ack(number: u32) -> Answer {
    let mut segment = Segment::default();
    segment.ack = Number(number);
    segment.window = WINDOW;
    (segment.echo, segment.echo_transmission) = (segment.ack.previous(), u8::from(number > 0));
    Answer {
        segment,
        side: Side::default(),
    }
}

impl Answer {
    /// Adds a SACK range. Its last segment becomes the one that triggered the ACK.
    pub fn sack(mut self, range: Range<u32>) -> Answer {
        self.side.push(crate::Range {
            start: Number(range.start),
            end: Number(range.end),
        });
        self.segment.flags |= Segment::SIDE;
        self.echo(range.end.wrapping_sub(1), 1)
    }

    /// Reports a segment as a duplicate (DSACK).
    pub fn twice(mut self, number: u32) -> Answer {
        self.side.set_duplicate(crate::Range {
            start: Number(number),
            end: Number(number + 1),
        });
        self.segment.flags |= Segment::SIDE;
        self
    }

    /// Sets the transmission that triggered the ACK.
    pub fn echo(mut self, number: u32, transmission: u8) -> Answer {
        (self.segment.echo, self.segment.echo_transmission) = (Number(number), transmission);
        self
    }

    /// Sets the cumulative count of CE-marked segments.
    pub fn marked(mut self, packets: u32) -> Answer {
        (self.segment.ce_packets, self.segment.ce_bytes) = (packets, packets * MSS as u32);
        self
    }

    /// Sets the receive window, bytes beyond the cumulative ACK.
    pub fn window(mut self, bytes: u32) -> Answer {
        self.segment.window = bytes;
        self
    }
}
