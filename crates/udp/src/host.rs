//! One UDP socket, its connections, and the loop that runs them: on the caller's thread, nothing in
//! the background.

mod classes;
mod handshakes;
mod sending;
mod stamping;
mod waiting;
mod width;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ccplane_agent::datapath::{Datapath, Shared};
use ccplane_agent::{FlowInfo, Tables};
use ccplane_datapath::Capabilities;
use ccplane_link::Clock;
use ccplane_link::Pollable;
use ccplane_transport::{
    CAPABILITIES, Config, Connection, Ecn, Kind, Native, Segment, Side, State, Stats,
};
use ccplane_units::{Bytes, Duration, Rate, Time};

use self::classes::{Classes, Seen};
use self::handshakes::Handshakes;
use crate::batch::Batch;
use crate::codec::CodecError;
use crate::endpoint::{Arrival, Counters, Dropped, Endpoint, LEAST, Limits, mss, overhead};
use crate::error::{UdpError, passes};
use crate::flow::{Congestion, Flow, Steering};
use crate::path::RAISE;
use crate::socket::{Inbox, Socket};
use crate::stamped::Stamping;
use crate::stamps::HostStamps;
use crate::tls::{Refused, Tls};

/// Bytes of the largest datagram that the path carries, without the IP and UDP headers, on an
/// Ethernet: 1500 less 48 for IPv6. Under IPv4 20 more would fit; one size for both keeps a name
/// that has both kinds of address simple.
pub const DATAGRAM: usize = 1452;

/// Calls to receive in one round.
const CALLS: usize = 4;

/// The pacing quantum of a real clock: a thread wakes some 60 µs late, and one system call for many
/// datagrams is what makes them cheap. Linux' own pacing sends about 1 ms at once. Longer is
/// burstier for the network, shorter costs CPU.
const QUANTUM: Duration = Duration::from_micros(500);

/// Bytes that a peer's datagram may have more than ours: none, unless it is no peer's.
const BEYOND: usize = 64;

/// Room for an answer to a hello. Our side of a handshake takes less than three times the smallest
/// hello, 1,644 bytes.
const ANSWER: usize = 2048;

/// What an owner chooses for a socket and its connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to bind. Port 0 is any free one.
    pub local: SocketAddr,
    /// Bytes of a datagram without IP and UDP headers, [`LEAST`] at least; [`DATAGRAM`] unless the
    /// path is known. Up to 65,507 on loopback.
    pub datagram: usize,
    /// Bytes of each connection that may be under way, in either direction: memory that a
    /// connection takes at most, twice.
    pub window: usize,
    /// Who this host is, and whom it believes; without it everything is for all to read.
    pub tls: Option<Tls>,
    /// The Differentiated Services codepoint of what leaves, 0 to 63.
    pub dscp: u8,
    /// Whose time stamps are taken: of connections of ours where [`Config::stamps`] asks for them,
    /// and of those of others whose data is stamped, for as long as there are any.
    pub stamping: Stamping,
    /// The rate of this host's own link, if stamps of packets that were handed over or noticed
    /// together are to be spread over what they take there ([`burst`](ccplane_datapath::burst)).
    /// Too low, and stamps are off by up to a burst's length, so it is not guessed.
    pub link: Option<Rate>,
    /// The rest; MSS, header, receive buffer and pacing quantum follow from the above.
    pub config: Config,
    /// What controls connections that others open.
    pub accepted: Native,
}

/// A socket and its connections. Its loop runs on the caller's thread; nothing runs in the
/// background.
pub struct Host {
    socket: Socket,
    clock: Clock,
    config: Arc<Config>,
    window: usize,
    dscp: u8,
    native: Native,
    datagram: usize,
    sealed: bool,
    endpoint: Endpoint,
    /// Lent out while it is read.
    inbox: Option<Box<Inbox>>,
    batch: Batch,
    answer: Box<[u8]>,
    flows: BTreeMap<u64, Flow>,
    accepted: VecDeque<u64>,
    steering: Option<Steering>,
    /// Everything that had arrived was taken, and nothing is known to have arrived since.
    drained: bool,
    /// The kernel has no room for the batch.
    blocked: bool,
    trouble: Option<io::Error>,
    refusals: u64,
    raise: Duration,
    /// Whose probe of its path is being sent.
    probing: Option<u64>,
    warned: Vec<Dropped>,
    stamping: Stamping,
    link: Option<Rate>,
    /// While the kernel stamps.
    stamps: Option<Box<HostStamps>>,
    /// Somebody's data is stamped, and the kernel does not stamp yet.
    wants_stamps: bool,
    /// What it does about classes below the ordinary one.
    classes: Classes,
    /// What went wrong while a datagram was answered.
    broken: Option<UdpError>,
    /// While it listens under TLS.
    handshakes: Option<Box<Handshakes>>,
    unanswered: u64,
}

impl Host {
    /// Binds a socket.
    pub fn bind(options: Options) -> Result<Host, UdpError> {
        let local = options.local;
        let mut socket = Socket::bind(local).map_err(|why| UdpError::Bind {
            address: local,
            why,
        })?;
        let datagram = options.datagram.clamp(LEAST, crate::socket::LARGEST);
        let window = options.window.next_power_of_two();
        let (sealed, stamps) = (options.tls.is_some(), options.config.stamps);
        let headers = if local.is_ipv4() { 28 } else { 48 }; // of IP and UDP
        let config = Arc::new(Config {
            mss: mss(datagram, sealed, stamps),
            header_bytes: headers + overhead(sealed, stamps),
            receive_buffer: u32::try_from(window).unwrap_or(u32::MAX),
            pacing_quantum: QUANTUM,
            discard: false,
            ..options.config
        });
        // Pacing sleeps for less than the 50 µs that the kernel adds by default to spare wake-ups.
        let _ = nix::sys::prctl::set_timerslack(1_000);
        let clock = Clock::new();
        let mut kernel = None;
        if stamps && options.stamping != Stamping::Off {
            socket
                .stamp(options.stamping, true)
                .map_err(UdpError::Stamps)?;
            kernel = Some(Box::new(HostStamps::new(clock, options.link)));
        }
        let batch = Batch::new(socket.batch());
        let classes = Classes::new(&socket, config.rc3.is_some());
        Ok(Host {
            socket,
            clock,
            endpoint: Endpoint::new(config.clone(), datagram, options.tls),
            config,
            window,
            dscp: options.dscp & 63,
            native: options.accepted,
            datagram,
            sealed,
            inbox: Some(Box::default()),
            batch,
            answer: vec![0; ANSWER].into_boxed_slice(),
            flows: BTreeMap::new(),
            accepted: VecDeque::new(),
            steering: None,
            drained: false,
            blocked: false,
            trouble: None,
            refusals: 0,
            raise: RAISE,
            probing: None,
            warned: Vec::new(),
            stamping: options.stamping,
            link: options.link,
            stamps: kernel,
            wants_stamps: false,
            classes,
            broken: None,
            handshakes: None,
            unanswered: 0,
        })
    }

    /// Lets others open connections, `most` at a time.
    pub fn listen(&mut self, most: usize) -> Result<(), UdpError> {
        self.listen_within(Limits::connections(most))
    }

    /// Lets others open connections, within limits. Under TLS it binds a second socket to the same
    /// address: the calling thread has to be in the network namespace of the first.
    pub fn listen_within(&mut self, limits: Limits) -> Result<(), UdpError> {
        let mut secret = [0; 32];
        random(&mut secret)?;
        if self.sealed && self.handshakes.is_none() {
            self.split_handshakes()?;
        }
        self.endpoint.listen(secret, limits);
        Ok(())
    }

    /// Lets an agent steer the connections that ask for it, within limits.
    pub fn steer(&mut self, way: impl Pollable + 'static, limits: ccplane_datapath::Limits) {
        let tables = Tables::new(limits, self.capabilities());
        let shared = Shared::new(
            std::process::id(),
            "udp",
            tables,
            Box::new(way) as Box<dyn Pollable>,
        );
        self.steering = Some(Datapath::new(self.now(), shared));
    }

    /// Opens a connection, whose identifier it gives.
    pub fn connect(&mut self, to: SocketAddr, congestion: Congestion) -> Result<u64, UdpError> {
        let failed = |why| UdpError::Socket {
            what: "hear of errors",
            why,
        };
        self.socket.hear_errors().map_err(failed)?;
        let id = loop {
            let mut id = [0; 8];
            random(&mut id)?;
            if self.endpoint.connect(to, u64::from_be_bytes(id))? {
                break u64::from_be_bytes(id);
            }
        };
        let now = self.now();
        let mut connection = Connection::connect(&self.config, now);
        require_proof(&mut connection)?;
        let native = match congestion {
            Congestion::Native(native) => Some(native),
            Congestion::Steered(algorithm) => {
                if let Some(steering) = &mut self.steering {
                    let cwnd = Bytes::new(connection.cwnd());
                    let info = FlowInfo {
                        algorithm,
                        init_cwnd: cwnd,
                        cwnd,
                        mss: Bytes::new(connection.mss()),
                        local: self.socket.local(),
                        peer: to,
                        ..FlowInfo::default()
                    };
                    steering.open(now, id, info);
                    steering.turn(now);
                }
                None
            }
        };
        self.flows
            .insert(id, Flow::new(connection, native, self.window));
        Ok(id)
    }

    /// The next connection that somebody opened.
    pub fn accepted(&mut self) -> Option<u64> {
        self.accepted.pop_front()
    }

    /// Runs once through everything: receives, takes deadlines, sends. Where there was nothing to
    /// do it waits for the next event, `longest` at most.
    pub fn turn(&mut self, longest: Duration) -> Result<(), UdpError> {
        if self.work()? {
            Ok(())
        } else {
            self.wait(longest)
        }
    }

    /// The same for several that share a thread: it waits where none of them had anything to do.
    pub fn turn_all(hosts: &mut [Host], longest: Duration) -> Result<(), UdpError> {
        let mut busy = false;
        for host in hosts.iter_mut() {
            busy |= host.work()?;
        }
        if busy {
            Ok(())
        } else {
            Host::wait_all(hosts, longest)
        }
    }

    /// Runs once through everything; whether there was anything to do.
    fn work(&mut self) -> Result<bool, UdpError> {
        let mut busy = !self.drained && self.receive()?;
        busy |= self.receive_handshakes()?;
        let now = self.now();
        let (mut narrower, mut due) = (None, false);
        for (id, flow) in &mut self.flows {
            flow.on_time(now, *id, &mut self.steering);
            if flow.is_stuck(now) {
                narrower = Some(*id);
            }
            due |= flow.path_at() <= now;
            if let Some(mut lent) = self
                .steering
                .as_mut()
                .and_then(|steering| steering.flow(*id))
            {
                flow.note(lent.beside());
            }
        }
        // One in a round: the others are found in the next.
        if let Some(id) = narrower {
            self.narrow(now, id);
        }
        if due {
            self.look_at_paths(now)?;
        }
        if let Some(steering) = &mut self.steering {
            steering.turn(now);
        }
        if self.transmit()? {
            busy = true;
            self.drained = false; // much may have come meanwhile
        }
        Ok(busy)
    }

    /// The present, by the clock of all this host's times.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// What connections of this host can do for an algorithm.
    pub fn capabilities(&self) -> Capabilities {
        if self.config.stamps {
            CAPABILITIES.with(Capabilities::ONE_WAY_DELAY)
        } else {
            CAPABILITIES
        }
    }

    /// The address that it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// The address of a connection's other end.
    pub fn peer(&self, id: u64) -> Option<SocketAddr> {
        self.endpoint.address(id)
    }

    /// Datagrams dropped, by reason.
    pub fn counters(&self) -> Counters {
        self.endpoint.counters()
    }

    /// The last thing that the kernel said of a datagram that could not be delivered: why nobody
    /// answers, perhaps.
    pub fn trouble(&self) -> Option<&io::Error> {
        self.trouble.as_ref()
    }

    /// Returns true if a client was turned away since the last call, as there are as many
    /// connections as allowed of all addresses together.
    pub fn was_crowded(&mut self) -> bool {
        self.endpoint.was_crowded()
    }

    /// How often a host has said that nobody listens where a datagram went.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Why TLS did not come to be with a connection's peer, if it did not: the connection is over
    /// then.
    pub fn refused(&self, id: u64) -> Option<&Refused> {
        self.endpoint.refused(id)
    }

    /// How often a connection's keys were renewed.
    pub fn renewed(&self, id: u64) -> u64 {
        self.endpoint.renewed(id)
    }

    /// Asks a connection's peer for a sign of life.
    pub fn probe(&mut self, id: u64) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.connection.probe();
        }
    }

    /// The state machine of a connection.
    pub fn connection(&self, id: u64) -> Option<&Connection> {
        self.flows.get(&id).map(|flow| &flow.connection)
    }

    /// Figures of a connection.
    pub fn stats(&self, id: u64) -> Option<Stats> {
        self.connection(id).map(Connection::stats)
    }

    /// Whether a connection that an agent steers is on its datapath's fallback; `None` for one that
    /// none steers.
    pub fn in_fallback(&self, id: u64) -> Option<bool> {
        self.flows.get(&id)?;
        self.steering.as_ref()?.in_fallback(id)
    }

    /// Room for the next payload, in one piece; empty while there is none. Tell
    /// [`wrote`](Host::wrote) how much was used.
    pub fn room(&mut self, id: u64) -> &mut [u8] {
        self.flows.get_mut(&id).map(Flow::room).unwrap_or_default()
    }

    /// So many bytes of [`room`](Host::room) are to be sent.
    pub fn wrote(&mut self, id: u64, bytes: usize) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.wrote(bytes);
        }
    }

    /// The stream ends here.
    pub fn finish(&mut self, id: u64) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.connection.finish();
        }
    }

    /// What arrived, in two pieces. [`take`](Host::take) says how much of it was used.
    pub fn arrived(&self, id: u64) -> (&[u8], &[u8]) {
        self.flows.get(&id).map(Flow::arrived).unwrap_or_default()
    }

    /// So many bytes of [`arrived`](Host::arrived) were used.
    pub fn take(&mut self, id: u64, bytes: usize) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.take(bytes);
        }
    }

    /// Gives a connection up, and tells the peer once.
    pub fn abort(&mut self, id: u64) -> Result<(), UdpError> {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.connection.abort();
        }
        self.transmit()?;
        self.remove(id);
        Ok(())
    }

    /// Forgets a connection.
    pub fn remove(&mut self, id: u64) {
        let now = self.now();
        self.endpoint.remove(now, id);
        if let (Some(flow), Some(steering)) = (self.flows.remove(&id), &mut self.steering) {
            let figures = flow.connection.stats();
            steering.close(now, id, Bytes::new(figures.acked), u64::from(figures.lost));
        }
        if self.classes.reads_marks && !self.flows.values().any(|flow| flow.low) {
            self.classes.end();
        }
        if self.stamps.is_some()
            && !self.config.stamps
            && !self.flows.values().any(|flow| flow.stamped)
        {
            self.end_stamps();
        }
    }

    /// Takes what has arrived; whether there was anything.
    fn receive(&mut self) -> Result<bool, UdpError> {
        let mut busy = false;
        for _ in 0..CALLS {
            let (some, more) = self.receive_some()?;
            busy |= some;
            self.drained = !more;
            if !more {
                break;
            }
        }
        Ok(busy)
    }

    /// Whether something came, and whether there may be more.
    fn receive_some(&mut self) -> Result<(bool, bool), UdpError> {
        // Cannot be missing: it is lent out only below.
        let mut inbox = self.inbox.take().unwrap_or_default();
        let came = if self.stamps.is_some() {
            self.receive_stamped(&mut inbox)
        } else if self.classes.reads_marks {
            self.receive_marked(&mut inbox)
        } else {
            self.receive_plain(&mut inbox)
        };
        self.inbox = Some(inbox);
        if let Some(why) = self.broken.take() {
            return Err(why);
        }
        let came = match came {
            Ok(came) => came,
            Err(why) => {
                self.hear(why, "receive")?;
                (true, true)
            }
        };
        // What the kernel joined before would come as one: only with nothing left is it told not
        // to.
        if self.wants_stamps && !came.1 {
            self.begin_stamps();
        }
        Ok(came)
    }

    fn receive_plain(&mut self, inbox: &mut Inbox) -> io::Result<(bool, bool)> {
        let now = self.clock.now();
        let received = self.socket.receive(inbox)?;
        let came = (!received.is_empty(), received.is_full());
        let mut side = Side::default();
        received.each(|address, ecn, datagram| {
            let seen = Seen { ecn, dscp: None };
            self.take_datagram((now, now), address, seen, datagram, &mut side);
        });
        Ok(came)
    }

    #[inline]
    fn take_datagram(
        &mut self,
        (now, arrived): (Time, Time),
        address: SocketAddr,
        seen: Seen,
        datagram: &mut [u8],
        side: &mut Side,
    ) {
        let size = datagram.len();
        let arrival = self
            .endpoint
            .receive(now, address, datagram, side, &mut self.answer);
        let (id, mut segment, proof, payload) = match arrival {
            Ok(Arrival::Segment(id, segment, proof, payload)) => (id, segment, proof, payload),
            Ok(Arrival::Accepted {
                id,
                open,
                segment,
                proof,
                payload,
            }) => {
                let Some(mut connection) = accept(&self.config, now, &open) else {
                    return self.endpoint.remove(now, id);
                };
                // Without a key no claim of the client could be checked.
                if let Err(why) = require_proof(&mut connection) {
                    self.broken.get_or_insert(why);
                    return self.endpoint.remove(now, id);
                }
                self.flows.insert(
                    id,
                    Flow::new(connection, Some(self.native.clone()), self.window),
                );
                self.accepted.push_back(id);
                (id, segment, proof, payload)
            }
            Ok(Arrival::Answer(length, each)) => {
                return self.send_answer(address, length, each);
            }
            Ok(Arrival::Alert(length)) => {
                self.send_answer(address, length, length);
                return warn(&mut self.warned, address, Dropped::Refused);
            }
            Ok(Arrival::Nothing) => return,
            Ok(Arrival::Again(id)) => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.connection.open_again();
                }
                return;
            }
            Ok(Arrival::Refused(id) | Arrival::Spent(id)) => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.connection.abort();
                }
                return;
            }
            Err(why) => return warn(&mut self.warned, address, why),
        };
        match segment.kind {
            Kind::PathProbe => return self.answer_probe(id, size),
            Kind::PathReply => return self.on_path_reply(now, id, usize::from(segment.length)),
            _ => {}
        }
        segment.ecn = Ecn::from_bits(seen.ecn);
        if segment.class != 0 {
            self.see(&mut segment, seen.dscp);
        }
        let stamped = segment.has_side() && side.stamped;
        let answers = stamped && segment.kind == Kind::Ack;
        if answers
            && self.socket.stamps_departures()
            && let Some(stamps) = &mut self.stamps
        {
            stamps.correct(side, now);
        }
        if let Some(flow) = self.flows.get_mut(&id) {
            let mut payload = payload;
            if segment.has_side() && side.part.whole != 0 {
                let Some(whole) = flow.take_part(&segment, side.part, &datagram[payload]) else {
                    return;
                };
                (segment, payload) = (whole, 0..0);
            }
            flow.stamped |= stamped;
            flow.low |= segment.class != 0 && segment.kind == Kind::Data;
            let dropped = flow.connection.one_way().dropped();
            flow.handle(
                (now, arrived),
                id,
                &segment,
                (side, &proof),
                &datagram[payload],
                &mut self.steering,
            );
            if answers && side.stamped && flow.connection.one_way().dropped() == dropped {
                flow.note_delay(now);
            }
        }
        if stamped && !answers {
            self.wants_stamps = self.stamps.is_none() && self.stamping != Stamping::Off;
            // Only class 0 is answered with its stamps. What came in a lower class waits for its
            // turn.
            if segment.class == 0
                && let Err(why) = self.acknowledge(id, now)
            {
                self.broken.get_or_insert(why);
            }
        }
    }

    /// An error of the socket: what the network says of an earlier datagram is remembered, anything
    /// else is the end.
    fn hear(&mut self, why: io::Error, what: &'static str) -> Result<(), UdpError> {
        if !passes(&why) {
            return Err(UdpError::Socket { what, why });
        }
        self.batch.limit(self.socket.batch());
        let why = self.socket.unreachable().unwrap_or(why);
        self.note_trouble(why);
        Ok(())
    }

    fn note_trouble(&mut self, why: io::Error) {
        self.refusals += u64::from(why.kind() == io::ErrorKind::ConnectionRefused);
        self.trouble = Some(why);
    }

    /// Whether a connection is over, well or not.
    pub fn is_over(&self, id: u64) -> bool {
        self.connection(id)
            .is_none_or(|c| c.state() == State::Closed)
    }

    /// Bytes of a datagram.
    pub fn datagram(&self) -> usize {
        self.datagram
    }
}

/// Returns a server's connection, whose answer the client has already.
fn accept(config: &Arc<Config>, now: Time, open: &Segment) -> Option<Connection> {
    let mut connection = Connection::accept(config, now, open)?;
    connection.transmit(now, 0, &mut Side::default());
    Some(connection)
}

/// Says once of each kind what a person can do something about.
fn warn(warned: &mut Vec<Dropped>, address: SocketAddr, why: Dropped) {
    let telling = matches!(
        why,
        Dropped::Plain
            | Dropped::Sealed
            | Dropped::Forged
            | Dropped::Refused
            | Dropped::Full
            | Dropped::Malformed(CodecError::Version(_))
    );
    if telling && !warned.contains(&why) {
        warned.push(why);
        tracing::warn!(
            "a datagram from {address} was dropped: {why}; more of its kind are dropped silently"
        );
    }
}

/// Has the peer prove what it acknowledges, by a key that nobody else knows.
fn require_proof(connection: &mut Connection) -> Result<(), UdpError> {
    let mut key = [0; 16];
    random(&mut key)?;
    connection.require_proof(&key);
    Ok(())
}

fn random(bytes: &mut [u8]) -> Result<(), UdpError> {
    getrandom::fill(bytes).map_err(|why| UdpError::Random(io::Error::other(why)))
}
