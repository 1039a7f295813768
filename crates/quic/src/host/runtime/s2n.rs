//! s2n-quic on its own driver.

use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use s2n_quic::client::Connect;
use s2n_quic::connection::Handle;
use s2n_quic::provider::congestion_controller::{Bbr, Cubic, Endpoint as Controls};
use s2n_quic::provider::endpoint_limits::{self, ConnectionAttempt, Limiter, Outcome};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::{io, tls};
use s2n_quic::stream::{ReceiveStream, SendStream};
use s2n_quic::{Client, Connection, Server};

use super::Runtime;
use super::pipe::StatsReader;
use super::serve::{Sending, StackConnection, StackEndpoint};
use crate::Stack;
use crate::host::{
    ALPN_PROTOCOL, HostError, HostOptions, HostRole, Native, QuicCongestion, QuicStats,
};

/// Creates a host whose connections are s2n-quic's.
pub fn host(options: HostOptions, side: &HostRole<'_>) -> Result<Runtime, HostError> {
    match options.congestion.clone() {
        QuicCongestion::Steered(plane) => with(&options, side, plane.s2n()?),
        QuicCongestion::Native(Native::Cubic) => with(&options, side, Cubic::default()),
        QuicCongestion::Native(Native::Bbr2) => with(&options, side, Bbr::default()),
        QuicCongestion::Native(other) => Err(other.unsupported_by(Stack::S2n).into()),
    }
}

fn with(
    options: &HostOptions,
    side: &HostRole<'_>,
    control: impl Controls,
) -> Result<Runtime, HostError> {
    let limits = limits(options).map_err(cannot)?;
    match side {
        HostRole::Client(trusted) => {
            let tls = tls::rustls::Client::from(ccplane_link::identity::client(
                ALPN_PROTOCOL,
                *trusted,
                None,
            )?);
            Runtime::start(options, true, move |socket| {
                let client = Client::builder().with_tls(tls).map_err(text)?;
                let client = client.with_io(line(socket)?).map_err(text)?;
                let client = client.with_limits(limits).map_err(text)?;
                let client = client.with_event(Meter).map_err(text)?;
                let client = client.with_congestion_controller(control).map_err(text)?;
                client.start().map(S2n::Client).map_err(text)
            })
        }
        HostRole::Server(identity) => {
            let tls = tls::rustls::Server::from(identity.server(ALPN_PROTOCOL, &[])?);
            let at_most = StreamLimit {
                connections_max: options.connections_max,
                ordinary: endpoint_limits::Default::builder()
                    .with_inflight_handshake_limit(options.unproved_max())
                    .and_then(|limits| limits.build())
                    .map_err(|never| -> HostError { match never {} })?,
            };
            Runtime::start(options, false, move |socket| {
                let server = Server::builder().with_tls(tls).map_err(text)?;
                let server = server.with_io(line(socket)?).map_err(text)?;
                let server = server.with_limits(limits).map_err(text)?;
                let server = server.with_endpoint_limits(at_most).map_err(text)?;
                let server = server.with_event(Meter).map_err(text)?;
                let server = server.with_congestion_controller(control).map_err(text)?;
                server.start().map(S2n::Server).map_err(text)
            })
        }
    }
}

fn line(socket: UdpSocket) -> Result<io::tokio::Provider, String> {
    let handle = tokio::runtime::Handle::current();
    let line = io::tokio::Builder::default()
        .with_handle(handle)
        .with_rx_socket(socket)
        .map_err(text)?;
    line.build().map_err(text)
}

/// Idle timeout longer than any run. Zero would disable the timeout (RFC 9000, section 18.2), but
/// s2n-quic asserts that a connection always has a timer or data to send, and a debug build panics.
const DISABLED_IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

fn limits(options: &HostOptions) -> Result<Limits, String> {
    let window = u64::from(options.window());
    let idle = options
        .idle_timeout
        .map_or(DISABLED_IDLE_TIMEOUT, |idle| idle.to_std());
    let limits = Limits::new().with_data_window(window).map_err(text)?;
    let limits = limits
        .with_bidirectional_local_data_window(window)
        .map_err(text)?;
    let limits = limits
        .with_bidirectional_remote_data_window(window)
        .map_err(text)?;
    let limits = limits
        .with_max_send_buffer_size(options.window())
        .map_err(text)?;
    let limits = limits
        .with_max_open_remote_bidirectional_streams(1)
        .map_err(text)?;
    let limits = limits
        .with_max_open_remote_unidirectional_streams(0)
        .map_err(text)?;
    limits.with_max_idle_timeout(idle).map_err(text)
}

/// Limits the number of connections, including those in a handshake; otherwise applies s2n-quic's
/// default limits.
struct StreamLimit {
    connections_max: usize,
    ordinary: endpoint_limits::Default,
}

impl Limiter for StreamLimit {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        if attempt.connection_count >= self.connections_max {
            return Outcome::close();
        }
        self.ordinary.on_connection_attempt(attempt)
    }
}

enum S2n {
    Client(Client),
    Server(Server),
}

impl StackEndpoint for S2n {
    type Link = S2nConnection;

    fn connect(
        &self,
        to: SocketAddr,
    ) -> impl Future<Output = Result<S2nConnection, String>> + 'static {
        let attempt = match self {
            S2n::Client(client) => Ok(client
                .connect(Connect::new(to).with_server_name(ccplane_link::identity::SUBJECT_NAME))),
            S2n::Server(_) => Err("the endpoint accepts connections".to_owned()),
        };
        async move { S2nConnection::new(attempt?.await.map_err(text)?) }
    }

    async fn accept(
        &mut self,
    ) -> Option<impl Future<Output = Result<S2nConnection, String>> + 'static> {
        let connection = match self {
            S2n::Client(_) => std::future::pending().await,
            S2n::Server(server) => server.accept().await?,
        };
        Some(async move { S2nConnection::new(connection) })
    }

    async fn wait_idle(&mut self) {
        match self {
            // An error concerns only one of the connections.
            S2n::Client(client) => drop(client.wait_idle().await),
            // Servers have no such wait; closes are sent within the next iterations of the driver.
            S2n::Server(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Connection with its counters.
struct S2nConnection {
    connection: Connection,
    handle: Handle,
    counts: Arc<S2nCounts>,
}

impl S2nConnection {
    fn new(connection: Connection) -> Result<S2nConnection, String> {
        let handle = connection.handle();
        let counts = handle
            .query_event_context(|counts: &Arc<S2nCounts>| Arc::clone(counts))
            .map_err(text)?;
        Ok(S2nConnection {
            connection,
            handle,
            counts,
        })
    }
}

impl StackConnection for S2nConnection {
    type Sending = SendStream;
    type Receiving = ReceiveStream;

    async fn stream(&mut self, client: bool) -> Result<(SendStream, ReceiveStream), String> {
        let stream = if client {
            self.connection
                .open_bidirectional_stream()
                .await
                .map_err(text)?
        } else {
            let opened = self
                .connection
                .accept_bidirectional_stream()
                .await
                .map_err(text)?;
            opened.ok_or_else(|| "the peer closed the connection".to_owned())?
        };
        let (receiving, sending) = stream.split();
        Ok((sending, receiving))
    }

    fn stats_reader(&self) -> StatsReader {
        let counts = Arc::clone(&self.counts);
        Arc::new(move || counts.read())
    }

    fn close(&self, code: u32) {
        self.handle.close(code.into());
    }
}

impl Sending for SendStream {
    async fn finish(&mut self) -> Result<(), String> {
        self.close().await.map_err(text)
    }
}

/// Event subscriber that counts packets and losses of each connection.
struct Meter;

#[derive(Default)]
struct S2nCounts {
    srtt_ns: AtomicU64,
    cwnd: AtomicU64,
    mtu: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
}

impl S2nCounts {
    fn read(&self) -> QuicStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        QuicStats {
            srtt: ccplane_units::Duration::from_nanos(of(&self.srtt_ns)),
            cwnd: of(&self.cwnd),
            ssthresh: None,
            pacing_rate: None,
            mtu: u16::try_from(of(&self.mtu)).unwrap_or(u16::MAX),
            sent: of(&self.sent),
            lost: of(&self.lost),
        }
    }
}

impl Subscriber for Meter {
    type ConnectionContext = Arc<S2nCounts>;

    fn create_connection_context(
        &mut self,
        _meta: &ConnectionMeta,
        _info: &ConnectionInfo,
    ) -> Arc<S2nCounts> {
        Arc::default()
    }

    fn on_packet_sent(
        &mut self,
        counts: &mut Arc<S2nCounts>,
        _: &ConnectionMeta,
        _: &events::PacketSent,
    ) {
        counts.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn on_packet_lost(
        &mut self,
        counts: &mut Arc<S2nCounts>,
        _: &ConnectionMeta,
        event: &events::PacketLost<'_>,
    ) {
        if !event.is_mtu_probe {
            counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_recovery_metrics(
        &mut self,
        counts: &mut Arc<S2nCounts>,
        _: &ConnectionMeta,
        event: &events::RecoveryMetrics<'_>,
    ) {
        let srtt = u64::try_from(event.smoothed_rtt.as_nanos()).unwrap_or(u64::MAX);
        counts.srtt_ns.store(srtt, Ordering::Relaxed);
        counts
            .cwnd
            .store(event.congestion_window.into(), Ordering::Relaxed);
    }

    fn on_mtu_updated(
        &mut self,
        counts: &mut Arc<S2nCounts>,
        _: &ConnectionMeta,
        event: &events::MtuUpdated,
    ) {
        counts.mtu.store(event.mtu.into(), Ordering::Relaxed);
    }
}

fn text(why: impl std::fmt::Display) -> String {
    why.to_string()
}

fn cannot(why: String) -> HostError {
    HostError::Start {
        stack: Stack::S2n.name(),
        why,
    }
}
