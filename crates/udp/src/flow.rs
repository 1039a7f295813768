//! One connection of a [`Host`](super::Host): the state machine and the bytes of its two streams.

use ccplane_agent::FlowInfo;
use ccplane_agent::datapath::Datapath;
use ccplane_link::Pollable;
use ccplane_transport::{Connection, Kind, Native, Part, Proof, Segment, Side, State};
use ccplane_units::{Bytes, Time};

use super::parts::Parts;
use super::path::PathSize;
use super::ring::Ring;
use super::stamps::Delays;

/// What decides a connection's window.
#[derive(Clone, Debug)]
pub enum Congestion {
    /// One of the transport's own.
    Native(Native),
    /// The agent's algorithm of this name.
    Steered(String),
}

/// The datapath of the connections that an agent steers.
pub(super) type Steering = Datapath<Box<dyn Pollable>>;

/// Timeouts in a row after which a connection's peer is asked whether it is there. One more happens
/// to every lossy path.
const SUSPICIOUS: u8 = 2;

pub(super) struct Flow {
    pub connection: Connection,
    /// `None`: steered.
    native: Option<Native>,
    /// Written and not yet acknowledged.
    sending: Ring,
    /// Arrived and not yet taken by the application.
    receiving: Ring,
    /// Bytes that the application wrote, and took.
    written: u64,
    taken: u64,
    /// The other end stamps what it sends.
    pub stamped: bool,
    /// The other end sends data in classes below the ordinary one.
    pub low: bool,
    /// When its peer was asked for a sign of life between timeouts, and how many of those there had
    /// been in a row.
    asked: Option<(Time, u8)>,
    /// What its path carries, once it is open.
    pub path: Option<PathSize>,
    /// Segments that come in parts.
    parts: Parts,
    /// Of what was sent, once its stamps tell.
    pub delays: Option<Box<Delays>>,
}

/// Runs `$run` with whatever controls `$flow`, as a variable `$control`; nothing where that is
/// gone.
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

impl Flow {
    /// Returns a flow with `window` bytes for sending and as many for receiving.
    pub fn new(connection: Connection, native: Option<Native>, window: usize) -> Flow {
        Flow {
            connection,
            native,
            sending: Ring::new(window),
            receiving: Ring::new(window),
            written: 0,
            taken: 0,
            stamped: false,
            low: false,
            asked: None,
            path: None,
            parts: Parts::default(),
            delays: None,
        }
    }

    /// A segment arrived, now, or at another time by the host's stamps.
    #[inline]
    pub fn handle(
        &mut self,
        (now, arrived): (Time, Time),
        id: u64,
        segment: &Segment,
        (side, proof): (&Side, &Proof),
        payload: &[u8],
        steering: &mut Option<Steering>,
    ) {
        if segment.kind == Kind::Data {
            self.keep(segment.offset(), payload);
        }
        controlled!(self, id, steering, |control| self.connection.handle_proved(
            (now, arrived),
            segment,
            side,
            proof,
            control
        ));
    }

    /// Keeps the payload of a part of a segment; the segment, once all of it is here.
    #[cold]
    pub fn take_part(&mut self, segment: &Segment, part: Part, payload: &[u8]) -> Option<Segment> {
        self.keep(segment.offset(), payload);
        self.parts.take(segment, part, self.connection.received())
    }

    /// Notes how the connection does, for an agent that is new to it.
    pub fn note(&self, info: &mut FlowInfo) {
        info.cwnd = Bytes::new(self.connection.cwnd());
        info.ssthresh = Bytes::new(self.connection.ssthresh());
        info.srtt = self.connection.srtt();
    }

    /// Counts what the last acknowledgement told of queues.
    pub fn note_delay(&mut self, now: Time) {
        let connection = &self.connection;
        if let Some(delay) = connection.one_way().queue_delay(now, connection.srtt()) {
            self.delays.get_or_insert_default().add(delay);
        }
    }

    /// Keeps payload that lies within the window. Whether it counts is for the connection to say,
    /// which accepts nothing outside.
    fn keep(&mut self, offset: u64, payload: &[u8]) {
        let end = offset.saturating_add(payload.len() as u64);
        if offset >= self.taken && end <= self.taken + self.receiving.capacity() as u64 {
            self.receiving.copy_from(offset, payload);
        }
    }

    /// The next segment to send in a class.
    #[inline]
    pub fn transmit(&mut self, now: Time, class: u8, side: &mut Side) -> Option<Segment> {
        // Below class 0 to look costs as much as to send.
        if class != 0 || self.connection.has(now, class) {
            self.connection.transmit(now, class, side)
        } else {
            None
        }
    }

    /// Copies payload that is to be sent.
    #[inline]
    pub fn fill(&self, segment: &Segment, out: &mut [u8]) {
        self.sending.copy_to(segment.offset(), out);
    }

    /// Takes the deadlines that have come.
    pub fn on_time(&mut self, now: Time, id: u64, steering: &mut Option<Steering>) {
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

    /// Whether the peer answers small questions while full segments do not arrive, time after time:
    /// the path has become narrower, and no router says so (RFC 8899, 4.3: a black hole).
    pub fn is_stuck(&mut self, now: Time) -> bool {
        let timeouts = self.connection.timeouts_in_row();
        if timeouts < SUSPICIOUS || self.connection.outstanding() == 0 {
            self.asked = None;
            return false;
        }
        if let Some((at, then)) = self.asked {
            if timeouts > then && self.connection.heard() > at {
                self.asked = None;
                return true;
            }
            if timeouts == then {
                return false;
            }
        }
        self.asked = Some((now, timeouts));
        self.connection.probe();
        false
    }

    /// When its path is to be looked at: at once where nothing is known of it yet.
    #[inline]
    pub fn path_at(&self) -> Time {
        match self.connection.state() {
            State::Open => self.path.as_ref().map_or(Time::ZERO, PathSize::next),
            _ => Time::MAX,
        }
    }

    /// When to look at this connection again, if nothing arrives.
    pub fn next(&mut self, now: Time, id: u64, steering: &mut Option<Steering>) -> Time {
        let deadlines = [
            self.connection.next_timeout(),
            self.connection.next_send(now),
            Some(self.path_at()),
            // With nothing under way there is nothing to measure.
            self.control_deadline(id, steering)
                .filter(|_| self.connection.outstanding() > 0),
        ];
        deadlines.into_iter().flatten().min().unwrap_or(Time::MAX)
    }

    fn control_deadline(&mut self, id: u64, steering: &mut Option<Steering>) -> Option<Time> {
        use ccplane_transport::Control;
        controlled!(self, id, steering, |control| control.next_deadline()).flatten()
    }

    /// A piece of the room for what the application writes next.
    pub fn room(&mut self) -> &mut [u8] {
        let free = self.sending.capacity() as u64
            - self
                .connection
                .pending()
                .min(self.sending.capacity() as u64);
        self.sending.piece_mut(self.written, free as usize)
    }

    /// The application wrote so many bytes into [`room`](Flow::room).
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        self.connection.write(bytes as u64);
    }

    /// What arrived in order and was not taken, in two pieces.
    pub fn arrived(&self) -> (&[u8], &[u8]) {
        self.receiving
            .at(self.taken, self.connection.readable() as usize)
    }

    /// The application took so many bytes of it.
    pub fn take(&mut self, bytes: usize) {
        self.taken += self.connection.read(bytes as u64);
    }
}
