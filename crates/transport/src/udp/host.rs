//! One UDP socket, its connections, and the loop that runs them: on the caller's thread, nothing in the background.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use ccplane_agent::link::Clock;
use ccplane_datapath::Capabilities;
use ccplane_units::{Duration, Rate, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::batch::Batch;
use super::error::UdpError;
use super::flow::{Congestion, Flow};
use super::socket::{Inbox, Marks, Socket};
use super::stamped::Stamping;
use super::stamps::{Delays, HostStamps};
use super::steer::Steering;
use crate::crypto::Key;
use crate::endpoint::{Arrival, Counters, Dropped, Endpoint, mss, overhead};
use crate::{CAPABILITIES, Config, Connection, Ecn, Kind, Native, Segment, Side, State, Stats};

/// Bytes of the largest datagram that the path carries, without the IP and UDP headers, on an Ethernet: 1500 less 48 for IPv6.
/// Under IPv4 20 more would fit; one size for both keeps a name that has both kinds of address simple.
pub const DATAGRAM: usize = 1452;

/// The smallest that makes sense: IPv6's least MTU of 1280 less headers.
const LEAST: usize = 512;

/// Segments a connection sends before what has arrived is looked at again: a few of the kernel's batches. More, and
/// acknowledgements wait while the burst grows; fewer, and each round of the loop does little.
const BURST: usize = 256;

/// Calls to receive in one round.
const CALLS: usize = 4;

/// The pacing quantum of a real clock: a thread wakes some 60 µs late, and one system call for many datagrams is what makes them
/// cheap. Linux' own pacing sends about 1 ms at once. Longer is burstier for the network, shorter costs CPU.
const QUANTUM: Duration = Duration::from_micros(500);

/// Bytes that a peer's datagram may have more than ours: none, unless it is no peer's.
const BEYOND: usize = 64;

/// Bytes of the first datagram of all, which its answer must not exceed; the answer's buffer.
const ANSWER: usize = 256;

/// What an owner chooses for a socket and its connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to bind. Port 0 is any free one.
    pub local: SocketAddr,
    /// Bytes of a datagram without IP and UDP headers; [`DATAGRAM`] unless the path is known. Up to 65,507 on loopback.
    pub datagram: usize,
    /// Bytes of each connection that may be under way, in either direction: memory that a connection takes at most, twice.
    pub window: usize,
    /// The key that both ends share, if there is one.
    pub key: Option<Key>,
    /// The Differentiated Services codepoint of what leaves, 0 to 63.
    pub dscp: u8,
    /// Whose time stamps are taken: of connections of ours where [`Config::stamps`] asks for them, and of those of others whose data
    /// is stamped, for as long as there are any.
    pub stamping: Stamping,
    /// The rate of this host's own link, if stamps of packets that were handed over or noticed together are to be spread over what they
    /// take there ([`burst`](ccplane_datapath::burst)). Too low, and stamps are off by up to a burst's length, so it is not guessed.
    pub link: Option<Rate>,
    /// The rest; MSS, header, receive buffer and pacing quantum follow from the above.
    pub config: Config,
    /// What controls connections that others open.
    pub accepted: Native,
}

/// A socket and its connections. See the [module](self).
pub struct Host {
    socket: Socket,
    clock: Clock,
    config: Arc<Config>,
    window: usize,
    dscp: u8,
    native: Native,
    datagram: usize,
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
    warned: Vec<Dropped>,
    stamping: Stamping,
    link: Option<Rate>,
    /// While the kernel stamps.
    stamps: Option<Box<HostStamps>>,
    /// Somebody's data is stamped, and the kernel does not stamp yet.
    wants_stamps: bool,
    /// What went wrong while a datagram was answered.
    broken: Option<UdpError>,
}

impl Host {
    /// Binds a socket.
    pub fn bind(options: Options) -> Result<Host, UdpError> {
        let local = options.local;
        let mut socket = Socket::bind(local).map_err(|why| UdpError::Bind { address: local, why })?;
        let datagram = options.datagram.clamp(LEAST, super::socket::LARGEST);
        let window = options.window.next_power_of_two();
        let (sealed, stamps) = (options.key.is_some(), options.config.stamps);
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
            socket.stamp(options.stamping, true).map_err(no_stamps)?;
            kernel = Some(Box::new(HostStamps::new(clock, options.link)));
        }
        let batch = Batch::new(socket.batch());
        Ok(Host {
            socket,
            clock,
            endpoint: Endpoint::new(config.clone(), datagram, options.key),
            config,
            window,
            dscp: options.dscp & 63,
            native: options.accepted,
            datagram,
            inbox: Some(Box::default()),
            batch,
            answer: vec![0; ANSWER].into_boxed_slice(),
            flows: BTreeMap::new(),
            accepted: VecDeque::new(),
            steering: None,
            drained: false,
            blocked: false,
            trouble: None,
            warned: Vec::new(),
            stamping: options.stamping,
            link: options.link,
            stamps: kernel,
            wants_stamps: false,
            broken: None,
        })
    }

    /// Lets others open connections, `most` at a time.
    pub fn listen(&mut self, most: usize) -> Result<(), UdpError> {
        let mut secret = [0; 32];
        random(&mut secret)?;
        self.endpoint.listen(secret, most);
        Ok(())
    }

    /// Who steers the connections that ask for it.
    pub fn steer(&mut self, steering: Steering) {
        self.steering = Some(steering);
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
            if self.endpoint.connect(to, u64::from_be_bytes(id)) {
                break u64::from_be_bytes(id);
            }
        };
        let now = self.now();
        let connection = Connection::connect(&self.config, now);
        let native = match congestion {
            Congestion::Native(native) => Some(native),
            Congestion::Steered(algorithm) => {
                if let Some(steering) = &mut self.steering {
                    let addresses = (self.socket.local(), to);
                    steering.open(now, id, &algorithm, connection.cwnd(), connection.mss(), addresses);
                    steering.turn(now);
                }
                None
            }
        };
        self.flows
            .insert(id, Flow::new(connection, native, (self.window, self.window)));
        Ok(id)
    }

    /// The next connection that somebody opened.
    pub fn accepted(&mut self) -> Option<u64> {
        self.accepted.pop_front()
    }

    /// Runs once through everything: receives, takes deadlines, sends. Where there was nothing to do it waits for the next
    /// event, `longest` at most.
    pub fn turn(&mut self, longest: Duration) -> Result<(), UdpError> {
        let mut busy = !self.drained && self.receive()?;
        let now = self.now();
        for (id, flow) in &mut self.flows {
            flow.on_time(now, *id, &mut self.steering);
            if let Some(steering) = &mut self.steering {
                steering.note(*id, &flow.connection);
            }
        }
        if let Some(steering) = &mut self.steering {
            steering.turn(now);
        }
        if self.transmit()? {
            busy = true;
            self.drained = false; // much may have come meanwhile
        }
        if busy { Ok(()) } else { self.wait(longest) }
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

    /// The last thing that the kernel said of a datagram that could not be delivered: why nobody answers, perhaps.
    pub fn trouble(&self) -> Option<&io::Error> {
        self.trouble.as_ref()
    }

    /// The state machine of a connection.
    pub fn connection(&self, id: u64) -> Option<&Connection> {
        self.flows.get(&id).map(|flow| &flow.connection)
    }

    /// Figures of a connection.
    pub fn stats(&self, id: u64) -> Option<Stats> {
        self.connection(id).map(Connection::stats)
    }

    /// One-way queueing delays of what a connection sent, as far as its stamps tell.
    pub fn delays(&self, id: u64) -> Option<&Delays> {
        self.flows.get(&id).and_then(|flow| flow.delays.as_deref())
    }

    /// Acknowledgements that brought no sample, as the departure of what they answer was not known.
    pub fn missed_departures(&self) -> u64 {
        self.stamps.as_ref().map_or(0, |stamps| stamps.departures.missed())
    }

    /// Room for what is to be sent next, in one piece; empty while there is none. [`wrote`](Host::wrote) says how much was used.
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
            steering.close(now, id, &flow.connection);
        }
        if self.flows.is_empty() && self.stamps.is_some() && !self.config.stamps {
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
        } else {
            self.receive_plain(&mut inbox)
        };
        self.inbox = Some(inbox);
        match self.broken.take() {
            Some(why) => Err(why),
            None => came,
        }
    }

    fn receive_plain(&mut self, inbox: &mut Inbox) -> Result<(bool, bool), UdpError> {
        let now = self.clock.now();
        let received = match self.socket.receive(inbox) {
            Ok(received) => received,
            Err(why) => {
                self.hear(why, "receive")?;
                return Ok((true, true));
            }
        };
        let came = (!received.is_empty(), received.is_full());
        let mut side = Side::default();
        received.each(|address, ecn, datagram| self.take_datagram(now, now, address, ecn, datagram, &mut side));
        // What the kernel joined before would come as one: only with nothing left is it told not to.
        if self.wants_stamps && !came.1 {
            self.begin_stamps()?;
        }
        Ok(came)
    }

    /// The same with the kernel's stamps.
    fn receive_stamped(&mut self, inbox: &mut Inbox) -> Result<(bool, bool), UdpError> {
        let received = match self.socket.receive_each(inbox, self.datagram + BEYOND) {
            Ok(received) => received,
            Err(why) => {
                self.hear(why, "receive")?;
                return Ok((true, true));
            }
        };
        let came = (!received.is_empty(), received.is_full());
        let headers = if self.socket.local().is_ipv4() { 28 } else { 48 };
        let now = self.read_departures();
        if let Some(stamps) = &mut self.stamps {
            received.stamps(|stamp, length| stamps.came(stamp, now, headers + length as u32));
            stamps.complete();
        }
        let mut side = Side::default();
        let mut place = 0;
        received.each(|address, ecn, _, datagram| {
            let arrived = self.stamps.as_ref().map_or(now, |stamps| stamps.arrival(place, now));
            place += 1;
            self.take_datagram(now, arrived, address, ecn, datagram, &mut side);
        });
        Ok(came)
    }

    /// Reads what the kernel says of what was sent, before what came is looked at: what is answered has left. The present.
    fn read_departures(&mut self) -> Time {
        let Some(stamps) = &mut self.stamps else {
            return self.clock.now();
        };
        let now = stamps.begin();
        let bytes = u32::from(self.config.header_bytes) + u32::from(self.config.mss);
        // Without stamps of departures nothing but errors can be there, which come back from `receive` as well.
        if self.socket.stamps_departures()
            && let Some(why) = self
                .socket
                .departures(|number, stamp| stamps.left(number, stamp, now, bytes))
        {
            self.trouble = Some(why);
        }
        now
    }

    /// From now on the kernel stamps what comes.
    fn begin_stamps(&mut self) -> Result<(), UdpError> {
        self.wants_stamps = false;
        self.socket.stamp(self.stamping, false).map_err(no_stamps)?;
        self.batch.limit(self.socket.batch());
        self.stamps = Some(Box::new(HostStamps::new(self.clock, self.link)));
        Ok(())
    }

    /// Nobody's data is stamped any more: without stamps a packet costs less.
    fn end_stamps(&mut self) {
        if self.socket.stamp(Stamping::Off, false).is_ok() {
            self.batch.limit(self.socket.batch());
            self.stamps = None;
        }
    }

    #[inline]
    fn take_datagram(
        &mut self,
        now: Time,
        arrived: Time,
        address: SocketAddr,
        ecn: u8,
        datagram: &mut [u8],
        side: &mut Side,
    ) {
        let arrival = self.endpoint.receive(now, address, datagram, side, &mut self.answer);
        let (id, mut segment, payload) = match arrival {
            Ok(Arrival::Segment(id, segment, payload)) => (id, segment, payload),
            Ok(Arrival::Accepted {
                id,
                open,
                segment,
                payload,
            }) => {
                let Some(connection) = accept(&self.config, now, &open) else {
                    return self.endpoint.remove(now, id);
                };
                let windows = (self.window, self.window);
                self.flows
                    .insert(id, Flow::new(connection, Some(self.native.clone()), windows));
                self.accepted.push_back(id);
                (id, segment, payload)
            }
            Ok(Arrival::Answer(length)) => {
                // Lost where there is no room: the client asks again.
                let answer = &self.answer[..length];
                let _ = self.socket.send_each(address, answer, length, Marks::default());
                return;
            }
            Err(why) => return warn(&mut self.warned, address, why),
        };
        segment.ecn = Ecn::from_bits(ecn);
        let stamped = segment.has_side() && side.stamped;
        let answers = stamped && segment.kind == Kind::Ack;
        if answers
            && self.socket.stamps_departures()
            && let Some(stamps) = &mut self.stamps
        {
            stamps.correct(side, now);
        }
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.handle(
                (now, arrived),
                id,
                &segment,
                side,
                &datagram[payload],
                &mut self.steering,
            );
            if answers && side.stamped {
                flow.note_delay(now);
            }
        }
        if stamped && !answers {
            self.wants_stamps = self.stamps.is_none() && self.stamping != Stamping::Off;
            if let Err(why) = self.acknowledge(id, now) {
                self.broken.get_or_insert(why);
            }
        }
    }

    /// Answers stamped data at once: what came behind it in the same call is to have an answer of its own.
    fn acknowledge(&mut self, id: u64, now: Time) -> Result<(), UdpError> {
        // Where data leaves as well, an acknowledgement follows it.
        for _ in 0..2 {
            if self.blocked || !self.transmit_one(id, now)? {
                break;
            }
        }
        Ok(())
    }

    /// Sends what the connections have to send; whether there was anything.
    fn transmit(&mut self) -> Result<bool, UdpError> {
        let mut busy = false;
        if self.blocked {
            self.flush()?;
        }
        let mut after = None;
        while let Some(id) = self.next_flow(after) {
            after = Some(id);
            busy |= self.transmit_flow(id)?;
        }
        if !self.blocked {
            self.flush()?;
        }
        Ok(busy)
    }

    fn next_flow(&self, after: Option<u64>) -> Option<u64> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.flows.range((from, Unbounded)).next().map(|(id, _)| *id)
    }

    /// Sends what a connection has to send now; whether there was anything.
    fn transmit_flow(&mut self, id: u64) -> Result<bool, UdpError> {
        let now = self.clock.now();
        let mut sent = 0;
        while sent < BURST && !self.blocked && self.transmit_one(id, now)? {
            sent += 1;
        }
        Ok(sent > 0)
    }

    /// Sends the next segment of a connection, if there is one.
    #[inline]
    fn transmit_one(&mut self, id: u64, now: Time) -> Result<bool, UdpError> {
        let mut side = Side::default();
        let Some(segment) = self.flows.get_mut(&id).and_then(|flow| flow.transmit(now, &mut side)) else {
            return Ok(false);
        };
        let marks = Marks {
            ecn: segment.ecn as u8,
            dscp: dscp(self.dscp, segment.class),
        };
        self.send(id, &segment, &mut side, marks)?;
        Ok(true)
    }

    /// Puts a segment into the batch, and sends the batch first where it does not belong to it.
    fn send(&mut self, id: u64, segment: &Segment, side: &mut Side, marks: Marks) -> Result<(), UdpError> {
        let Some(flow) = self.flows.get(&id) else { return Ok(()) };
        let mut said = None;
        if let Some(stamps) = &mut self.stamps
            && segment.kind == Kind::Data
            && segment.has_side()
            && side.stamped
            && self.socket.stamps_departures()
        {
            side.t1 = stamps.departures.name(side.t1);
            said = Some(side.t1);
        }
        let fill = |out: &mut [u8]| flow.fill(segment, out);
        let Some((length, to)) = self.endpoint.write(id, segment, side, self.batch.room(), fill) else {
            debug_assert!(false, "a segment that does not fit its datagram: {segment:?}");
            return Ok(());
        };
        if !self.batch.add(length, to, marks, said) {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), UdpError> {
        let first = self.batch.first();
        self.blocked = false;
        let departures = self.stamps.as_mut().map(|stamps| &mut stamps.departures);
        match self.batch.send(&mut self.socket, departures) {
            Ok(()) => Ok(()),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                self.blocked = true;
                Ok(())
            }
            Err(why) if why.raw_os_error() == Some(Errno::EMSGSIZE as i32) => match first {
                Some((address, size)) => Err(UdpError::TooLong { address, size }),
                None => Ok(()),
            },
            Err(why) => self.hear(why, "send"),
        }
    }

    /// An error of the socket: what the network says of an earlier datagram is remembered, anything else is the end.
    fn hear(&mut self, why: io::Error, what: &'static str) -> Result<(), UdpError> {
        let errno = why.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
        let passes = matches!(
            errno,
            Errno::ECONNREFUSED
                | Errno::EHOSTUNREACH
                | Errno::ENETUNREACH
                | Errno::EHOSTDOWN
                | Errno::ENETDOWN
                | Errno::ENOPROTOOPT
                | Errno::EPROTO
                | Errno::EACCES
                | Errno::EPERM
                | Errno::EMSGSIZE
                | Errno::ENOBUFS
                | Errno::ENOMEM
                | Errno::EINTR
                // `quinn-udp` has met a device without segmentation offload, and does without from now on.
                | Errno::EIO
                | Errno::EINVAL
        );
        if !passes {
            return Err(UdpError::Socket { what, why });
        }
        self.batch.limit(self.socket.batch());
        self.trouble = Some(self.socket.unreachable().unwrap_or(why));
        Ok(())
    }

    fn wait(&mut self, longest: Duration) -> Result<(), UdpError> {
        // What the kernel has to say of departures would end the wait at once.
        let now = self.read_departures();
        let mut due = now + longest;
        for (id, flow) in &mut self.flows {
            due = due.min(flow.next(now, *id, &mut self.steering));
        }
        let steering = self.steering.as_ref();
        due = due.min(steering.and_then(Steering::next_deadline).unwrap_or(Time::MAX));
        let room = if self.blocked {
            PollFlags::POLLOUT
        } else {
            PollFlags::empty()
        };
        let link = steering.and_then(Steering::as_fd);
        let mut fds = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN | room),
            PollFd::new(link.unwrap_or(self.socket.as_fd()), PollFlags::POLLIN),
        ];
        let watched = if link.is_some() { &mut fds[..] } else { &mut fds[..1] };
        let timeout = TimeSpec::from_duration(due.since(now).to_std());
        match ppoll(watched, Some(timeout), None) {
            Ok(_) => {
                // Room to write, or nothing at all: nothing has come.
                let told = watched[0].revents();
                self.drained = told.is_some_and(|events| PollFlags::POLLOUT.contains(events));
                Ok(())
            }
            Err(Errno::EINTR) => Ok(()),
            Err(why) => Err(UdpError::Socket {
                what: "wait",
                why: why.into(),
            }),
        }
    }

    /// Whether a connection is over, well or not.
    pub fn is_over(&self, id: u64) -> bool {
        self.connection(id).is_none_or(|c| c.state() == State::Closed)
    }

    /// Bytes of a datagram.
    pub fn datagram(&self) -> usize {
        self.datagram
    }
}

/// The codepoint of a class: `ordinary` of class 0; below it LE (RFC 8622), which networks treat as less than best effort, and
/// then the odd ones of the pool for local use (RFC 2474, section 6), which an emulator of ours tells apart.
fn dscp(ordinary: u8, class: u8) -> u8 {
    match class {
        0 => ordinary,
        1 => 1,
        2 => 3,
        3 => 5,
        _ => 7,
    }
}

/// A server's connection whose answer the client has already.
fn accept(config: &Arc<Config>, now: Time, open: &Segment) -> Option<Connection> {
    let mut connection = Connection::accept(config, now, open)?;
    connection.transmit(now, 0, &mut Side::default());
    Some(connection)
}

/// Says once of each kind what a person can do something about.
fn warn(warned: &mut Vec<Dropped>, address: SocketAddr, why: Dropped) {
    let telling = matches!(why, Dropped::Plain | Dropped::Sealed | Dropped::Forged | Dropped::Full);
    if telling && !warned.contains(&why) {
        warned.push(why);
        tracing::warn!("a datagram from {address} was dropped: {why}; more of its kind are dropped silently");
    }
}

fn no_stamps(why: io::Error) -> UdpError {
    UdpError::Socket {
        what: "have the kernel stamp packets",
        why,
    }
}

fn random(bytes: &mut [u8]) -> Result<(), UdpError> {
    getrandom::fill(bytes).map_err(|why| UdpError::Random(io::Error::other(why)))
}
