//! s2n-quic with its own driver.

use std::future::ready;
use std::net::UdpSocket;
use std::time::Duration;

use s2n_quic::client::Connect;
use s2n_quic::connection::Handle;
use s2n_quic::provider::congestion_controller::{Bbr, Cubic, Endpoint as Controls};
use s2n_quic::provider::endpoint_limits::{self, ConnectionAttempt, Limiter, Outcome};
use s2n_quic::provider::event::events::{MtuUpdated, PacketLost, PacketSent, RecoveryMetrics};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta as Meta, Subscriber};
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::{io, tls};
use s2n_quic::{Client, Connection, Server};

use super::connection::{AsyncConnection, StackError, Step};
use super::{AsyncEndpoint, Runtime};
use crate::Stack;
use crate::host::{
    ALPN_PROTOCOL, HostError, HostOptions, HostRole, Native, QuicCongestion, QuicStats,
};

/// Idle timeout longer than any run. Zero would disable the timeout (RFC 9000, section 18.2), but
/// s2n-quic asserts that a connection always has a timer or data to send, and a debug build panics.
const DISABLED_IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Wait for the closes of a server to be sent, within the next iterations of its driver.
const SERVER_CLOSE_TIME: Duration = Duration::from_millis(20);

/// Creates a driver whose connections are s2n-quic's.
pub fn driver(options: &HostOptions, role: &HostRole<'_>) -> Result<Runtime, HostError> {
    match &options.congestion {
        QuicCongestion::Steered(plane) => start(options, role, plane.s2n()?),
        QuicCongestion::Native(Native::Cubic) => start(options, role, Cubic::default()),
        QuicCongestion::Native(Native::Bbr2) => start(options, role, Bbr::default()),
        QuicCongestion::Native(other) => Err(other.unsupported_by(Stack::S2n).into()),
    }
}

fn start(
    options: &HostOptions,
    role: &HostRole<'_>,
    control: impl Controls,
) -> Result<Runtime, HostError> {
    match role {
        HostRole::Client(trusted) => {
            let tls = ccplane_link::identity::client(ALPN_PROTOCOL, *trusted, None)?;
            Runtime::start(options, async |socket, handshakes| {
                let client = Client::builder()
                    .with_tls(tls::rustls::Client::from(tls))?
                    .with_io(provider(socket)?)?
                    .with_limits(limits(options)?)?
                    .with_event(StatsRecorder)?
                    .with_congestion_controller(control)?;
                let client = client.start()?;
                let mut idle = client.clone();
                // The end of a client is not reported.
                tokio::spawn(async move { handshakes.closed().await });
                Ok(AsyncEndpoint {
                    connect: Some(Box::new(move |to| {
                        let name = ccplane_link::identity::SUBJECT_NAME;
                        let attempt = client.connect(Connect::new(to).with_server_name(name));
                        Box::pin(async move { Ok(established(attempt.await?, true)) })
                    })),
                    idle: Box::pin(async move { idle.wait_idle().await.unwrap_or_default() }),
                })
            })
        }
        HostRole::Server(identity) => {
            let tls = identity.server(ALPN_PROTOCOL, &[])?;
            Runtime::start(options, async |socket, handshakes| {
                let server = Server::builder()
                    .with_tls(tls::rustls::Server::from(tls))?
                    .with_io(provider(socket)?)?
                    .with_limits(limits(options)?)?
                    .with_endpoint_limits(ConnectionLimiter {
                        connections_max: options.connections_max,
                        default: endpoint_limits::Default::builder()
                            .with_inflight_handshake_limit(options.unverified_max())?
                            .build()?,
                    })?
                    .with_event(StatsRecorder)?
                    .with_congestion_controller(control)?;
                let mut server = server.start()?;
                tokio::spawn(async move {
                    while let Some(connection) = server.accept().await {
                        let established = ready(Ok(established(connection, false)));
                        // Fails if the host was dropped.
                        let _ = handshakes.send(Box::pin(established)).await;
                    }
                });
                Ok(AsyncEndpoint {
                    connect: None,
                    // s2n-quic has no such function for a server.
                    idle: Box::pin(async { tokio::time::sleep(SERVER_CLOSE_TIME).await }),
                })
            })
        }
    }
}

fn provider(socket: UdpSocket) -> Result<io::tokio::Provider, StackError> {
    let builder = io::tokio::Builder::default().with_handle(tokio::runtime::Handle::current());
    Ok(builder.with_rx_socket(socket)?.build()?)
}

fn limits(options: &HostOptions) -> Result<Limits, StackError> {
    let window = u64::from(options.window());
    let idle = options
        .idle_timeout
        .map_or(DISABLED_IDLE_TIMEOUT, |idle| idle.to_std());
    let limits = Limits::new()
        .with_data_window(window)?
        .with_bidirectional_local_data_window(window)?
        .with_bidirectional_remote_data_window(window)?
        .with_max_send_buffer_size(options.window())?
        .with_max_open_remote_bidirectional_streams(1)?
        .with_max_open_remote_unidirectional_streams(0)?
        .with_max_idle_timeout(idle)?;
    Ok(limits)
}

/// Limits the number of connections, including those in a handshake; otherwise applies s2n-quic's
/// default limits.
struct ConnectionLimiter {
    connections_max: usize,
    default: endpoint_limits::Default,
}

impl Limiter for ConnectionLimiter {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        if attempt.connection_count >= self.connections_max {
            return Outcome::close();
        }
        self.default.on_connection_attempt(attempt)
    }
}

fn established(connection: Connection, client: bool) -> Step {
    let (mut handle, mut acceptor) = connection.split();
    let connection = handle.clone();
    let stream = async move {
        let stream = if client {
            handle.open_bidirectional_stream().await?
        } else {
            let stream = acceptor.accept_bidirectional_stream().await?;
            stream.ok_or("the peer closed the connection")?
        };
        let (receive, send) = stream.split();
        // The shutdown waits for the acknowledgement.
        let send = (Box::new(send) as _, Box::pin(ready(Ok(Step::SentAll))) as _);
        Ok(Step::Opened(send, Box::new(receive)))
    };
    Step::Connected(Box::new(connection), Box::pin(stream))
}

impl AsyncConnection for Handle {
    fn stats(&self) -> QuicStats {
        // Fails only if the stack has panicked.
        self.query_event_context(QuicStats::clone)
            .unwrap_or_default()
    }

    fn close(&self, code: u32) {
        Handle::close(self, code.into());
    }
}

/// Event subscriber that records the statistics of each connection.
struct StatsRecorder;

impl Subscriber for StatsRecorder {
    type ConnectionContext = QuicStats;

    fn create_connection_context(&mut self, _: &Meta, _: &ConnectionInfo) -> QuicStats {
        QuicStats::default()
    }

    fn on_packet_sent(&mut self, stats: &mut QuicStats, _: &Meta, _: &PacketSent) {
        stats.sent += 1;
    }

    fn on_packet_lost(&mut self, stats: &mut QuicStats, _: &Meta, event: &PacketLost<'_>) {
        stats.lost += u64::from(!event.is_mtu_probe);
    }

    fn on_recovery_metrics(
        &mut self,
        stats: &mut QuicStats,
        _: &Meta,
        event: &RecoveryMetrics<'_>,
    ) {
        stats.srtt = event.smoothed_rtt.into();
        stats.cwnd = event.congestion_window.into();
    }

    fn on_mtu_updated(&mut self, stats: &mut QuicStats, _: &Meta, event: &MtuUpdated) {
        stats.mtu = event.mtu;
    }
}
