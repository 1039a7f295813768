//! Two noq endpoints in virtual time with a link between them; runs with the same seed are
//! identical.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, Connection, ConnectionEvent, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, FourTuple, ServerConfig, StreamId, Transmit, TransportConfig, VarInt,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Path from the client to the server; the reverse path has the same delay and no rate limit.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Rate, bytes/s.
    pub rate: u64,
    /// One-way delay.
    pub delay: Duration,
    /// Queue capacity, bytes.
    pub buffer: u64,
    /// Drops every n-th datagram; 0 disables it.
    pub loses: u64,
    /// Queue length above which datagrams are marked with CE, bytes.
    pub marks: u64,
    /// Delays every n-th datagram by 5 ms, so that others overtake it; 0 disables it.
    pub delays: u64,
    /// Interval and number of changes of the client's port, each of which gives the server a new
    /// path.
    pub rebinds: Option<(Duration, u16)>,
    /// Start and end of an outage.
    pub out: Option<(Duration, Duration)>,
}

impl Link {
    /// Returns a path of 96 Mbit/s, 20 ms RTT and a buffer of one BDP.
    pub fn ordinary() -> Link {
        Link {
            rate: 12_000_000,
            delay: Duration::from_millis(10),
            buffer: 240_000,
            loses: 0,
            marks: u64::MAX,
            delays: 0,
            rebinds: None,
            out: None,
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Datagrams forwarded and dropped by the link.
    pub carried: u64,
    pub dropped: u64,
    /// Stream bytes received.
    pub arrived: u64,
    /// Time of the last receipt.
    pub last: Duration,
    /// Longest queue in the second half of the run, and its mean at arrivals there, bytes.
    pub queue_max: u64,
    pub queue_mean: u64,
    /// Congestion window, sampled every 10 ms.
    pub windows: Vec<u64>,
    /// Error that ended the connection early, if any.
    pub ended: Option<String>,
    pub lost: u64,
    pub spurious: u64,
    /// Times and sizes of the client's datagrams.
    pub departures: Vec<(Duration, u64)>,
}

struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    inbound: VecDeque<(Instant, bool, Vec<u8>)>,
    remote: SocketAddr,
    /// Error that ended its connection, if any.
    ended: Option<String>,
}

impl End {
    fn new(server: Option<ServerConfig>, seed: u8, remote: SocketAddr) -> End {
        let mut config = EndpointConfig::default();
        config.rng_seed(Some([seed; 32]));
        End {
            endpoint: Endpoint::new(Arc::new(config), server.map(Arc::new), false),
            connection: None,
            inbound: VecDeque::new(),
            remote,
            ended: None,
        }
    }

    /// Processes datagrams that have arrived and timers that are due.
    fn take(&mut self, now: Instant) {
        let mut answer = Vec::new();
        while self.inbound.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, marked, data) = self.inbound.pop_front().unwrap();
            let ecn = Some(if marked {
                noq_proto::EcnCodepoint::Ce
            } else {
                noq_proto::EcnCodepoint::Ect0
            });
            let path = FourTuple::from_remote(self.remote);
            match self
                .endpoint
                .handle(now, path, ecn, data.as_slice().into(), &mut answer)
            {
                Some(DatagramEvent::NewConnection(incoming)) => {
                    let (handle, connection) = self
                        .endpoint
                        .accept(incoming, now, &mut answer, None)
                        .unwrap();
                    self.connection = Some((handle, connection));
                }
                Some(DatagramEvent::ConnectionEvent(_, event)) => self.give(event),
                _ => {}
            }
        }
        if let Some((_, connection)) = &mut self.connection
            && connection.poll_timeout().is_some_and(|due| due <= now)
        {
            connection.handle_timeout(now);
        }
    }

    fn give(&mut self, event: ConnectionEvent) {
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_event(event);
        }
    }

    fn events(&mut self) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            if let Event::ConnectionLost { reason } = event {
                self.ended.get_or_insert(reason.to_string());
            }
        }
    }

    fn send(&mut self, now: Instant, mut out: impl FnMut(Transmit, &[u8])) {
        let Some((_, connection)) = &mut self.connection else {
            return;
        };
        let mut buffer = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, NonZeroUsize::MIN, &mut buffer) {
            out(transmit, &buffer);
            buffer.clear();
        }
    }

    fn due(&mut self) -> Option<Instant> {
        let timer = self
            .connection
            .as_mut()
            .and_then(|(_, connection)| connection.poll_timeout());
        let arrival = self.inbound.front().map(|(at, ..)| *at);
        timer.into_iter().chain(arrival).min()
    }
}

/// Runs an unlimited transfer for the duration `lasts` to a server with noq's default control.
/// `turn` is called at every step, for an agent in virtual time.
#[allow(dead_code, reason = "each test binary uses a part of it")]
pub fn run(
    link: Link,
    sender: TransportConfig,
    epoch: Instant,
    lasts: Duration,
    turn: impl FnMut(Instant),
) -> Outcome {
    between(link, sender, TransportConfig::default(), epoch, lasts, turn)
}

/// Runs an unlimited transfer to a server with this configuration.
pub fn between(
    link: Link,
    sender: TransportConfig,
    receiving: TransportConfig,
    epoch: Instant,
    lasts: Duration,
    mut turn: impl FnMut(Instant),
) -> Outcome {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["server".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let certificate: CertificateDer<'static> = certificate.der().clone();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server_tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], private)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client_tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();

    let mut receiving = receiving;
    receiving
        .stream_receive_window(VarInt::from_u32(64 << 20))
        .receive_window(VarInt::from_u32(64 << 20));
    let mut server =
        ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server_tls).unwrap()));
    server.transport_config(Arc::new(receiving));
    let mut sender = sender;
    sender.send_window(64 << 20);
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client_tls).unwrap()));
    client.transport_config(Arc::new(sender));

    let (there, here): (SocketAddr, SocketAddr) =
        (([10, 0, 0, 1], 443).into(), ([10, 0, 0, 2], 444).into());
    let mut server = End::new(Some(server), 1, here);
    let mut client_end = End::new(None, 2, there);
    client_end.connection = Some(
        client_end
            .endpoint
            .connect(epoch, client, there, "server")
            .unwrap(),
    );

    let mut outcome = Outcome::default();
    let (mut now, end) = (epoch, epoch + lasts);
    let mut free = epoch;
    let (mut stream, mut incoming): (Option<StreamId>, Option<StreamId>) = (None, None);
    let chunk = vec![7u8; 1 << 16];
    let mut next_window = epoch;
    let (mut queue_sum, mut queue_count) = (0u64, 0u64);
    // The port does not change during the handshake.
    let mut rebinds = link
        .rebinds
        .map(|(every, times)| (every, times, epoch + Duration::from_millis(200)));
    while now < end {
        if let Some((every, left, due)) = &mut rebinds
            && now >= *due
            && *left > 0
        {
            server.remote.set_port(server.remote.port() + 1);
            *due += *every;
            *left -= 1;
        }
        client_end.take(now);
        server.take(now);
        turn(now);
        client_end.events();
        server.events();
        if let Some((_, connection)) = &mut client_end.connection {
            if stream.is_none() && !connection.is_handshaking() {
                stream = connection.streams().open(Dir::Uni);
            }
            if let Some(stream) = stream {
                while connection
                    .send_stream(stream)
                    .write(&chunk)
                    .is_ok_and(|written| written > 0)
                {}
            }
            while next_window <= now {
                let state = connection.congestion_state(noq_proto::PathId::ZERO);
                outcome
                    .windows
                    .push(state.map_or(0, |state| state.window()));
                next_window += Duration::from_millis(10);
            }
        }
        if let Some((_, connection)) = &mut server.connection {
            incoming = incoming.or_else(|| connection.streams().accept(Dir::Uni));
            if let Some(id) = incoming
                && let Ok(mut chunks) = connection.recv_stream(id).read(true)
            {
                while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                    outcome.arrived += chunk.bytes.len() as u64;
                    outcome.last = now - epoch;
                }
                let _ = chunks.finalize();
            }
        }
        client_end.send(now, |transmit, data| {
            let data = &data[..transmit.size];
            let waiting =
                free.saturating_duration_since(now).as_nanos() as u64 * link.rate / 1_000_000_000;
            let count = outcome.carried + outcome.dropped + 1;
            let every = |nth: u64| nth != 0 && count.is_multiple_of(nth);
            let out = link
                .out
                .is_some_and(|(from, to)| (from..to).contains(&(now - epoch)));
            let unlucky = every(link.loses) || out;
            outcome.departures.push((now - epoch, data.len() as u64));
            if now - epoch > lasts / 2 {
                outcome.queue_max = outcome.queue_max.max(waiting);
                (queue_sum, queue_count) = (queue_sum + waiting, queue_count + 1);
            }
            if unlucky || waiting + data.len() as u64 > link.buffer {
                outcome.dropped += 1;
                return;
            }
            outcome.carried += 1;
            free =
                free.max(now) + Duration::from_nanos(data.len() as u64 * 1_000_000_000 / link.rate);
            let late = if every(link.delays) {
                Duration::from_millis(5)
            } else {
                Duration::ZERO
            };
            let at = free + link.delay + late;
            let place = server.inbound.partition_point(|(other, ..)| *other <= at);
            server
                .inbound
                .insert(place, (at, waiting > link.marks, data.to_vec()));
        });
        server.send(now, |transmit, data| {
            client_end
                .inbound
                .push_back((now + link.delay, false, data[..transmit.size].to_vec()));
        });
        let due = [client_end.due(), server.due(), Some(end)]
            .into_iter()
            .flatten()
            .min()
            .unwrap();
        // Advance the clock even if a timer is due now: a timer that stays due would stop it.
        now = due.max(now + Duration::from_micros(10));
    }
    outcome.ended = client_end.ended.take().or(server.ended.take());
    outcome.queue_mean = queue_sum / queue_count.max(1);
    if let Some((_, connection)) = &mut client_end.connection {
        let stats = connection.path_stats(noq_proto::PathId::ZERO).unwrap();
        outcome.lost = stats.lost_packets;
        outcome.spurious = stats.spurious_congestion_events;
    }
    outcome
}
