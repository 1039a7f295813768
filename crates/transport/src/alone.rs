//! One end of an open connection without a peer, for the tests of its parts: the test says what is
//! written, what comes back and when.

use std::ops::Range;
use std::sync::Arc;

use ccplane_datapath::Outcome;
use ccplane_units::{Duration, Time};

use crate::config::Config;
use crate::connection::{Connection, State};
use crate::control::{Ack, Control, Event};
use crate::number::Number;
use crate::segment::{Segment, Side};

/// Bytes of payload in a segment.
pub(crate) const MSS: u64 = 1_000;
/// The one RTT sample so far. It makes the RTO 220 ms: 200 ms are Linux' minimum.
pub(crate) const RTT: Duration = Duration::from_millis(20);
/// Bytes that the peer takes, unless an answer says otherwise.
const WINDOW: u32 = 1 << 24;

/// The end, its clock and its control.
pub(crate) struct Alone {
    pub connection: Connection,
    pub now: Time,
    /// The control's answer to every event.
    pub says: Outcome,
}

/// A control that says one thing and keeps the last event.
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
    /// A window of so many segments. Segments are numbered from 0.
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

    /// Time passes, milliseconds.
    pub fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// The application writes so many full segments. Returns the numbers of those that leave.
    pub fn write(&mut self, segments: u64) -> Vec<u32> {
        self.connection.write(segments * MSS);
        self.leaving()
    }

    /// What may leave now.
    pub fn segments(&mut self) -> Vec<Segment> {
        let mut left = Vec::new();
        while self.connection.has(self.now, 0) {
            let segment = self.connection.transmit(self.now, 0, &mut Side::default());
            left.push(segment.expect("`has` promised a segment"));
            self.check();
        }
        left
    }

    /// The numbers of what may leave now.
    pub fn leaving(&mut self) -> Vec<u32> {
        self.segments()
            .iter()
            .map(|segment| segment.number.0)
            .collect()
    }

    /// An acknowledgement arrives. Returns the event that the control sees.
    pub fn hear(&mut self, answer: Answer) -> Option<Ack> {
        let mut control = self.listener();
        self.connection
            .handle(self.now, &answer.segment, &answer.side, &mut control);
        self.check();
        control.told
    }

    /// The control sets its window without an ACK, as an agent does.
    pub fn command(&mut self) {
        let mut control = self.listener();
        self.connection.on_control_deadline(self.now, &mut control);
        self.check();
    }

    /// Time passes until a timer tells the control something or lets a segment leave. Returns the
    /// event that the control sees.
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

    /// A closed connection has given its scoreboard back.
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

/// An acknowledgement.
pub(crate) struct Answer {
    pub segment: Segment,
    pub side: Side,
}

/// Everything before this segment has arrived; the one before it is answered.
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
    /// These have arrived too; the last of them is answered.
    pub fn sack(mut self, range: Range<u32>) -> Answer {
        self.side.push(crate::Range {
            start: Number(range.start),
            end: Number(range.end),
        });
        self.segment.flags |= Segment::SIDE;
        self.echo(range.end.wrapping_sub(1), 1)
    }

    /// This segment arrived twice.
    pub fn twice(mut self, number: u32) -> Answer {
        self.side.set_duplicate(crate::Range {
            start: Number(number),
            end: Number(number + 1),
        });
        self.segment.flags |= Segment::SIDE;
        self
    }

    /// This sending of this segment is answered.
    pub fn echo(mut self, number: u32, transmission: u8) -> Answer {
        (self.segment.echo, self.segment.echo_transmission) = (Number(number), transmission);
        self
    }

    /// So many segments had arrived with CE by now.
    pub fn marked(mut self, packets: u32) -> Answer {
        (self.segment.ce_packets, self.segment.ce_bytes) = (packets, packets * MSS as u32);
        self
    }

    /// The peer takes so many bytes beyond what it acknowledges.
    pub fn window(mut self, bytes: u32) -> Answer {
        self.segment.window = bytes;
        self
    }
}
