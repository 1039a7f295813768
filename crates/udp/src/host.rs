//! One UDP socket, its connections, and the loop that drives them on the caller's thread.

mod classes;
mod handshakes;
mod path_mtu;
mod sending;
mod stamping;
mod waiting;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ccplane_agent::datapath::{Datapath, DatapathCore};
use ccplane_agent::{FlowInfo, ProgramTables};
use ccplane_datapath::Capabilities;
use ccplane_link::Pollable;
use ccplane_link::ThreadClock;
use ccplane_transport::{
    CAPABILITIES, Connection, ConnectionState, ConnectionStats, Ecn, Native, Segment, SegmentKind,
    SideData, TransportConfig,
};
use ccplane_units::{Bytes, Duration, Rate, Time};

use self::classes::{Classes, DatagramMark};
use self::handshakes::Handshakes;
use crate::batch::GsoBatch;
use crate::codec::CodecError;
use crate::endpoint::{
    DatagramOutcome, DropCounters, DropReason, Endpoint, ListenLimits, MIN_PLPMTU, mss, overhead,
};
use crate::error::{UdpError, passes};
use crate::flow::{UdpCongestion, UdpDatapath, UdpFlow};
use crate::host_timestamps::HostTimestamps;
use crate::kernel_timestamps::Stamping;
use crate::pmtu_search::PMTU_RAISE_TIMER;
use crate::socket::{Inbox, Socket};
use crate::tls::{HandshakeError, Tls};

/// Default datagram size: UDP payload on Ethernet, 1500 bytes less 48 for IPv6 and UDP. IPv4 would
/// leave 20 more; one size for both keeps names that resolve to both families simple.
pub const DATAGRAM_BYTES_DEFAULT: usize = 1452;

/// Receive calls per turn.
const RECEIVE_CALLS_PER_TURN: usize = 4;

/// Pacing quantum on a real clock. A thread wakes about 60 µs late, and sending many datagrams per
/// system call is what makes them cheap. Linux' own pacing sends about 1 ms at once. A longer
/// quantum is burstier on the network; a shorter one costs CPU.
const PACING_QUANTUM: Duration = Duration::from_micros(500);

/// Receive buffer space beyond the local datagram size, bytes. A peer's datagrams never need it.
const RECEIVE_MARGIN_BYTES: usize = 64;

/// Buffer for an answer to a hello. The server's flight takes less than three times the smallest
/// hello, 1,644 bytes.
const ANSWER_BYTES_MAX: usize = 2048;

/// Options of a socket and its connections.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// Local address. Port 0 selects any free port.
    pub local: SocketAddr,
    /// Datagram size in bytes without IP and UDP headers: at least [`MIN_PLPMTU`];
    /// [`DATAGRAM_BYTES_DEFAULT`] unless the path is known. Up to 65,507 on loopback.
    pub datagram_bytes: usize,
    /// Send and receive buffer of each connection, bytes: the most data in flight in either
    /// direction. A connection takes up to twice as much memory.
    pub window: usize,
    /// Identity of this host and the peers it trusts; without it all data is sent in plain text.
    pub tls: Option<Tls>,
    /// Differentiated Services codepoint of outgoing packets, 0 to 63.
    pub dscp: u8,
    /// Source of timestamps: used for own connections if [`TransportConfig::stamps`] is set, and
    /// for others while a peer sends timestamped data.
    pub stamping: Stamping,
    /// Rate of this host's own link, used to spread the timestamps of packets that were sent or
    /// received in a burst over their serialization times ([`burst`](ccplane_datapath::burst)). It
    /// is not guessed: with too low a rate, timestamps are off by up to the length of a burst.
    pub link_rate: Option<Rate>,
    /// Transport configuration. MSS, header size, receive buffer and pacing quantum are derived
    /// from the options above.
    pub config: TransportConfig,
    /// Congestion control of accepted connections.
    pub accept_congestion: Native,
}

/// UDP socket and its connections. The loop runs on the caller's thread; there are no background
/// threads.
pub struct UdpHost {
    socket: Socket,
    clock: ThreadClock,
    config: Arc<TransportConfig>,
    window: usize,
    dscp: u8,
    accept_congestion: Native,
    datagram_bytes: usize,
    sealed: bool,
    endpoint: Endpoint,
    /// Taken out while it is being read.
    inbox: Option<Box<Inbox>>,
    batch: GsoBatch,
    answer: Box<[u8]>,
    flows: BTreeMap<u64, UdpFlow>,
    accepted: VecDeque<u64>,
    steering: Option<UdpDatapath>,
    /// Set if the socket was read until empty and has not been reported readable since.
    drained: bool,
    /// Set if the kernel's send buffer is full.
    blocked: bool,
    last_error: Option<io::Error>,
    refusals: u64,
    raise_timer: Duration,
    /// Connection whose path MTU probe is being sent.
    probing: Option<u64>,
    warned_reasons: Vec<DropReason>,
    stamping: Stamping,
    link_rate: Option<Rate>,
    /// Present while the kernel timestamps packets.
    stamps: Option<Box<HostTimestamps>>,
    /// A peer sends timestamped data, and kernel timestamps are not enabled yet.
    wants_stamps: bool,
    /// State of the lower priority classes.
    classes: Classes,
    /// Error while answering a datagram, returned after the receive call.
    pending_error: Option<UdpError>,
    /// Present while listening under TLS.
    handshakes: Option<Box<Handshakes>>,
    unanswered: u64,
}

impl UdpHost {
    /// Binds a socket.
    pub fn bind(options: UdpOptions) -> Result<UdpHost, UdpError> {
        let local = options.local;
        let mut socket = Socket::bind(local).map_err(|why| UdpError::Bind {
            address: local,
            why,
        })?;
        let datagram = options
            .datagram_bytes
            .clamp(MIN_PLPMTU, crate::socket::DATAGRAM_BYTES_MAX);
        let window = options.window.next_power_of_two();
        let (sealed, stamps) = (options.tls.is_some(), options.config.stamps);
        let headers = if local.is_ipv4() { 28 } else { 48 }; // IP and UDP
        let config = Arc::new(TransportConfig {
            mss: mss(datagram, sealed, stamps),
            header_bytes: headers + overhead(sealed, stamps),
            receive_buffer: u32::try_from(window).unwrap_or(u32::MAX),
            pacing_quantum: PACING_QUANTUM,
            discard: false,
            ..options.config
        });
        // Pacing sleeps for less than the kernel's default timer slack of 50 µs, which would delay
        // every wake-up.
        let _ = nix::sys::prctl::set_timerslack(1_000);
        let clock = ThreadClock::new();
        let mut kernel = None;
        if stamps && options.stamping != Stamping::Off {
            socket
                .set_timestamping(options.stamping, true)
                .map_err(UdpError::Stamps)?;
            kernel = Some(Box::new(HostTimestamps::new(clock, options.link_rate)));
        }
        let batch = GsoBatch::new(socket.batch_max());
        let classes = Classes::new(&socket, config.rc3.is_some());
        Ok(UdpHost {
            socket,
            clock,
            endpoint: Endpoint::new(config.clone(), datagram, options.tls),
            config,
            window,
            dscp: options.dscp & 63,
            accept_congestion: options.accept_congestion,
            datagram_bytes: datagram,
            sealed,
            inbox: Some(Box::default()),
            batch,
            answer: vec![0; ANSWER_BYTES_MAX].into_boxed_slice(),
            flows: BTreeMap::new(),
            accepted: VecDeque::new(),
            steering: None,
            drained: false,
            blocked: false,
            last_error: None,
            refusals: 0,
            raise_timer: PMTU_RAISE_TIMER,
            probing: None,
            warned_reasons: Vec::new(),
            stamping: options.stamping,
            link_rate: options.link_rate,
            stamps: kernel,
            wants_stamps: false,
            classes,
            pending_error: None,
            handshakes: None,
            unanswered: 0,
        })
    }

    /// Accepts up to `most` connections at a time.
    pub fn listen(&mut self, connections_max: usize) -> Result<(), UdpError> {
        self.listen_with_limits(ListenLimits::connections(connections_max))
    }

    /// Accepts connections within limits. Under TLS it binds a second socket to the same address;
    /// the calling thread must be in the network namespace of the first.
    pub fn listen_with_limits(&mut self, limits: ListenLimits) -> Result<(), UdpError> {
        let mut secret = [0; 32];
        random(&mut secret)?;
        if self.sealed && self.handshakes.is_none() {
            self.split_handshakes()?;
        }
        self.endpoint.listen(secret, limits);
        Ok(())
    }

    /// Sets the agent that controls [`UdpCongestion::Steered`] connections, within limits.
    pub fn set_agent(
        &mut self,
        channel: impl Pollable + 'static,
        limits: ccplane_datapath::OperatorLimits,
    ) {
        let tables = ProgramTables::new(limits, self.capabilities());
        let shared = DatapathCore::new(
            std::process::id(),
            "udp",
            tables,
            Box::new(channel) as Box<dyn Pollable>,
        );
        self.steering = Some(Datapath::new(self.now(), shared));
    }

    /// Opens a connection and returns its identifier.
    pub fn connect(&mut self, to: SocketAddr, congestion: UdpCongestion) -> Result<u64, UdpError> {
        let failed = |why| UdpError::Socket {
            what: "enable error reports",
            why,
        };
        self.socket.enable_error_reports().map_err(failed)?;
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
            UdpCongestion::Native(native) => Some(native),
            UdpCongestion::Steered(algorithm) => {
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
                    steering.poll(now);
                }
                None
            }
        };
        self.flows
            .insert(id, UdpFlow::new(connection, native, self.window));
        Ok(id)
    }

    /// Returns the next accepted connection.
    pub fn accept(&mut self) -> Option<u64> {
        self.accepted.pop_front()
    }

    /// Runs one turn: receives, runs expired timers, sends. If there was nothing to do, waits up to
    /// `longest` for the next event.
    pub fn poll(&mut self, timeout: Duration) -> Result<(), UdpError> {
        if self.process()? {
            Ok(())
        } else {
            self.wait(timeout)
        }
    }

    /// Runs one turn of several hosts on one thread; waits if none of them had anything to do.
    pub fn poll_all(hosts: &mut [UdpHost], timeout: Duration) -> Result<(), UdpError> {
        let mut busy = false;
        for host in hosts.iter_mut() {
            busy |= host.process()?;
        }
        if busy {
            Ok(())
        } else {
            UdpHost::wait_all(hosts, timeout)
        }
    }

    /// Runs one turn without waiting. Returns true if there was anything to do.
    fn process(&mut self) -> Result<bool, UdpError> {
        let mut busy = !self.drained && self.receive()?;
        busy |= self.receive_handshakes()?;
        let now = self.now();
        let (mut narrower, mut due) = (None, false);
        for (id, flow) in &mut self.flows {
            flow.on_timers(now, *id, &mut self.steering);
            if flow.detect_black_hole(now) {
                narrower = Some(*id);
            }
            due |= flow.next_path_check() <= now;
            if let Some(mut lent) = self
                .steering
                .as_mut()
                .and_then(|steering| steering.flow(*id))
            {
                flow.record_state(lent.user_data());
            }
        }
        // One per turn; the others are handled in the next turns.
        if let Some(id) = narrower {
            self.on_black_hole(now, id);
        }
        if due {
            self.search_due_paths(now)?;
        }
        if let Some(steering) = &mut self.steering {
            steering.poll(now);
        }
        if self.transmit()? {
            busy = true;
            self.drained = false; // datagrams may have arrived meanwhile
        }
        Ok(busy)
    }

    /// Returns the current time of the clock that all of this host's times refer to.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns the datapath capabilities of this host's connections.
    pub fn capabilities(&self) -> Capabilities {
        if self.config.stamps {
            CAPABILITIES.union(Capabilities::ONE_WAY_DELAY)
        } else {
            CAPABILITIES
        }
    }

    /// Returns the local address.
    pub fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Returns the peer address of a connection.
    pub fn peer(&self, id: u64) -> Option<SocketAddr> {
        self.endpoint.address(id)
    }

    /// Returns the counters of dropped datagrams.
    pub fn counters(&self) -> DropCounters {
        self.endpoint.counters()
    }

    /// Returns the kernel's last error about an undeliverable datagram. It may explain why a peer
    /// does not answer.
    pub fn last_error(&self) -> Option<&io::Error> {
        self.last_error.as_ref()
    }

    /// Returns true if a client was rejected since the last call because of the limit on all
    /// connections.
    pub fn was_crowded(&mut self) -> bool {
        self.endpoint.was_crowded()
    }

    /// Returns the number of "connection refused" errors (ICMP port unreachable).
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Returns the reason for which TLS failed, if it did; the connection is then closed.
    pub fn handshake_error(&self, id: u64) -> Option<&HandshakeError> {
        self.endpoint.handshake_error(id)
    }

    /// Returns the number of key updates of a connection.
    pub fn key_updates(&self, id: u64) -> u64 {
        self.endpoint.key_updates(id)
    }

    /// Sends a liveness probe to a connection's peer.
    pub fn probe(&mut self, id: u64) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.connection.probe();
        }
    }

    /// Returns the state machine of a connection.
    pub fn connection(&self, id: u64) -> Option<&Connection> {
        self.flows.get(&id).map(|flow| &flow.connection)
    }

    /// Returns the statistics of a connection.
    pub fn stats(&self, id: u64) -> Option<ConnectionStats> {
        self.connection(id).map(Connection::stats)
    }

    /// Returns true if an agent-controlled connection is in its datapath's fallback; `None` if no
    /// agent controls it.
    pub fn in_fallback(&self, id: u64) -> Option<bool> {
        self.flows.get(&id)?;
        self.steering.as_ref()?.in_fallback(id)
    }

    /// Returns a contiguous buffer for the next payload; empty if the send buffer is full. Call
    /// [`commit_write`](UdpHost::commit_write) with the bytes used.
    pub fn write_buffer(&mut self, id: u64) -> &mut [u8] {
        self.flows
            .get_mut(&id)
            .map(UdpFlow::write_buffer)
            .unwrap_or_default()
    }

    /// Sends the first `bytes` bytes of [`write_buffer`](UdpHost::write_buffer).
    pub fn commit_write(&mut self, id: u64, bytes: usize) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.commit_write(bytes);
        }
    }

    /// Ends the outgoing stream.
    pub fn finish(&mut self, id: u64) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.connection.finish();
        }
    }

    /// Returns received data in two slices. Call [`consume`](UdpHost::consume) with the bytes used.
    pub fn received(&self, id: u64) -> (&[u8], &[u8]) {
        self.flows
            .get(&id)
            .map(UdpFlow::received)
            .unwrap_or_default()
    }

    /// Frees the first `bytes` bytes of [`received`](UdpHost::received).
    pub fn consume(&mut self, id: u64, bytes: usize) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.consume(bytes);
        }
    }

    /// Closes a connection and sends a single abort to the peer.
    pub fn abort(&mut self, id: u64) -> Result<(), UdpError> {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.connection.abort();
        }
        self.transmit()?;
        self.remove(id);
        Ok(())
    }

    /// Removes a connection.
    pub fn remove(&mut self, id: u64) {
        let now = self.now();
        self.endpoint.remove(now, id);
        if let (Some(flow), Some(steering)) = (self.flows.remove(&id), &mut self.steering) {
            let figures = flow.connection.stats();
            steering.close(now, id, Bytes::new(figures.acked), u64::from(figures.lost));
        }
        if self.classes.reads_marks && !self.flows.values().any(|flow| flow.uses_lower_classes) {
            self.classes.stop_receiving();
        }
        if self.stamps.is_some()
            && !self.config.stamps
            && !self.flows.values().any(|flow| flow.peer_sends_timestamps)
        {
            self.disable_timestamps();
        }
    }

    /// Receives datagrams. Returns true if there were any.
    fn receive(&mut self) -> Result<bool, UdpError> {
        let mut busy = false;
        for _ in 0..RECEIVE_CALLS_PER_TURN {
            let (some, more) = self.receive_some()?;
            busy |= some;
            self.drained = !more;
            if !more {
                break;
            }
        }
        Ok(busy)
    }

    /// Makes one receive call. Returns true if anything arrived, and true if there may be more.
    fn receive_some(&mut self) -> Result<(bool, bool), UdpError> {
        // Always present here: the inbox is taken only for the duration of this function.
        let mut inbox = self.inbox.take().unwrap_or_default();
        let came = if self.stamps.is_some() {
            self.receive_stamped(&mut inbox)
        } else if self.classes.reads_marks {
            self.receive_marked(&mut inbox)
        } else {
            self.receive_plain(&mut inbox)
        };
        self.inbox = Some(inbox);
        if let Some(why) = self.pending_error.take() {
            return Err(why);
        }
        let came = match came {
            Ok(came) => came,
            Err(why) => {
                self.on_socket_error(why, "receive")?;
                (true, true)
            }
        };
        // Datagrams coalesced before GRO is disabled would share a timestamp, so timestamps are
        // enabled only when the socket is empty.
        if self.wants_stamps && !came.1 {
            self.enable_timestamps();
        }
        Ok(came)
    }

    fn receive_plain(&mut self, inbox: &mut Inbox) -> io::Result<(bool, bool)> {
        let now = self.clock.now();
        let received = self.socket.receive(inbox)?;
        let came = (!received.is_empty(), received.is_full());
        let mut side = SideData::default();
        received.for_each(|address, ecn, datagram| {
            let seen = DatagramMark { ecn, dscp: None };
            self.on_datagram((now, now), address, seen, datagram, &mut side);
        });
        Ok(came)
    }

    #[inline]
    fn on_datagram(
        &mut self,
        (now, arrived): (Time, Time),
        address: SocketAddr,
        seen: DatagramMark,
        datagram: &mut [u8],
        side: &mut SideData,
    ) {
        let size = datagram.len();
        let arrival = self
            .endpoint
            .receive(now, address, datagram, side, &mut self.answer);
        let (id, mut segment, proof, payload) = match arrival {
            Ok(DatagramOutcome::Segment(id, segment, proof, payload)) => {
                (id, segment, proof, payload)
            }
            Ok(DatagramOutcome::Accepted {
                id,
                open,
                segment,
                proof,
                payload,
            }) => {
                let Some(mut connection) = accept(&self.config, now, &open) else {
                    return self.endpoint.remove(now, id);
                };
                // Without a key the client's acknowledgements could not be verified.
                if let Err(why) = require_proof(&mut connection) {
                    self.pending_error.get_or_insert(why);
                    return self.endpoint.remove(now, id);
                }
                self.flows.insert(
                    id,
                    UdpFlow::new(
                        connection,
                        Some(self.accept_congestion.clone()),
                        self.window,
                    ),
                );
                self.accepted.push_back(id);
                (id, segment, proof, payload)
            }
            Ok(DatagramOutcome::Answer(length, each)) => {
                return self.send_answer(address, length, each);
            }
            Ok(DatagramOutcome::Alert(length)) => {
                self.send_answer(address, length, length);
                return warn(
                    &mut self.warned_reasons,
                    address,
                    DropReason::HandshakeFailed,
                );
            }
            Ok(DatagramOutcome::Nothing) => return,
            Ok(DatagramOutcome::HelloRequested(id)) => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.connection.resend_open();
                }
                return;
            }
            Ok(DatagramOutcome::HandshakeFailed(id) | DatagramOutcome::IntegrityLimit(id)) => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.connection.abort();
                }
                return;
            }
            Err(why) => return warn(&mut self.warned_reasons, address, why),
        };
        match segment.kind {
            SegmentKind::PathProbe => return self.answer_probe(id, size),
            SegmentKind::PathReply => {
                return self.on_path_reply(now, id, usize::from(segment.length));
            }
            _ => {}
        }
        segment.ecn = Ecn::from_bits(seen.ecn);
        if segment.class != 0 {
            self.record_band(&mut segment, seen.dscp);
        }
        let stamped = segment.has_side() && side.stamped;
        let answers = stamped && segment.kind == SegmentKind::Ack;
        if answers
            && self.socket.stamps_departures()
            && let Some(stamps) = &mut self.stamps
        {
            stamps.set_departure(side, now);
        }
        if let Some(flow) = self.flows.get_mut(&id) {
            let mut payload = payload;
            if segment.has_side() && side.part.whole != 0 {
                let Some(whole) = flow.on_part(&segment, side.part, &datagram[payload]) else {
                    return;
                };
                (segment, payload) = (whole, 0..0);
            }
            flow.peer_sends_timestamps |= stamped;
            flow.uses_lower_classes |= segment.class != 0 && segment.kind == SegmentKind::Data;
            let dropped = flow.connection.one_way().dropped();
            flow.on_segment(
                (now, arrived),
                id,
                &segment,
                (side, &proof),
                &datagram[payload],
                &mut self.steering,
            );
            if answers && side.stamped && flow.connection.one_way().dropped() == dropped {
                flow.record_delay(now);
            }
        }
        if stamped && !answers {
            self.wants_stamps = self.stamps.is_none() && self.stamping != Stamping::Off;
            // Only class 0 is acknowledged at once with its timestamps. In lower classes the
            // acknowledgement waits for its turn.
            if segment.class == 0
                && let Err(why) = self.acknowledge(id, now)
            {
                self.pending_error.get_or_insert(why);
            }
        }
    }

    /// Handles a socket error: errors about an earlier datagram are recorded, any other is fatal.
    fn on_socket_error(&mut self, why: io::Error, what: &'static str) -> Result<(), UdpError> {
        if !passes(&why) {
            return Err(UdpError::Socket { what, why });
        }
        self.batch.set_limit(self.socket.batch_max());
        let why = self.socket.unreachable().unwrap_or(why);
        self.record_error(why);
        Ok(())
    }

    fn record_error(&mut self, why: io::Error) {
        self.refusals += u64::from(why.kind() == io::ErrorKind::ConnectionRefused);
        self.last_error = Some(why);
    }

    /// Returns true if a connection is closed, normally or not.
    pub fn is_closed(&self, id: u64) -> bool {
        self.connection(id)
            .is_none_or(|c| c.state() == ConnectionState::Closed)
    }

    /// Returns the full datagram size, bytes.
    pub fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }
}

/// Returns a server's connection with its answer already consumed, since the client has it.
fn accept(config: &Arc<TransportConfig>, now: Time, open: &Segment) -> Option<Connection> {
    let mut connection = Connection::accept(config, now, open)?;
    connection.transmit(now, 0, &mut SideData::default());
    Some(connection)
}

/// Logs the first datagram dropped for each reason that an operator can act on.
fn warn(warned: &mut Vec<DropReason>, address: SocketAddr, why: DropReason) {
    let telling = matches!(
        why,
        DropReason::NotEncrypted
            | DropReason::Encrypted
            | DropReason::Forged
            | DropReason::HandshakeFailed
            | DropReason::TooManyConnections
            | DropReason::Malformed(CodecError::Version(_))
    );
    if telling && !warned.contains(&why) {
        warned.push(why);
        tracing::warn!(
            "dropped a datagram from {address}: {why}; further ones of this kind are not logged"
        );
    }
}

/// Makes the peer prove what it acknowledges, with a random secret key.
fn require_proof(connection: &mut Connection) -> Result<(), UdpError> {
    let mut key = [0; 16];
    random(&mut key)?;
    connection.require_proof(&key);
    Ok(())
}

fn random(bytes: &mut [u8]) -> Result<(), UdpError> {
    getrandom::fill(bytes).map_err(|why| UdpError::Random(io::Error::other(why)))
}
