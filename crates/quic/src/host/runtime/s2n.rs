//! s2n-quic with its own driver.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use s2n_quic::client::Connect;
use s2n_quic::connection::Handle;
use s2n_quic::provider::congestion_controller::{Bbr, Cubic, Endpoint as Controls};
use s2n_quic::provider::endpoint_limits::{self, ConnectionAttempt, Limiter, Outcome};
use s2n_quic::provider::event::events::{MtuUpdated, PacketLost, PacketSent, RecoveryMetrics};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta as Meta, Subscriber};
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::{io, tls};
use s2n_quic::stream::SendStream;
use s2n_quic::{Client, Connection, Server};

use super::connection::{AsyncConnection, NewConnection, StackError, StackFuture};
use super::{AsyncEndpoint, Runtime, connection};
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
            Runtime::start(options, true, |socket| {
                let client = Client::builder()
                    .with_tls(tls::rustls::Client::from(tls))?
                    .with_io(provider(socket)?)?
                    .with_limits(limits(options)?)?
                    .with_event(StatsRecorder)?
                    .with_congestion_controller(control)?;
                Ok(Box::new(client.start()?))
            })
        }
        HostRole::Server(identity) => {
            let tls = identity.server(ALPN_PROTOCOL, &[])?;
            Runtime::start(options, false, |socket| {
                let server = Server::builder()
                    .with_tls(tls::rustls::Server::from(tls))?
                    .with_io(provider(socket)?)?
                    .with_limits(limits(options)?)?
                    .with_endpoint_limits(ConnectionLimiter::new(options)?)?
                    .with_event(StatsRecorder)?
                    .with_congestion_controller(control)?;
                Ok(Box::new(server.start()?))
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

impl ConnectionLimiter {
    fn new(options: &HostOptions) -> Result<ConnectionLimiter, StackError> {
        let default = endpoint_limits::Default::builder()
            .with_inflight_handshake_limit(options.unverified_max())?
            .build()?;
        Ok(ConnectionLimiter {
            connections_max: options.connections_max,
            default,
        })
    }
}

impl Limiter for ConnectionLimiter {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        if attempt.connection_count >= self.connections_max {
            return Outcome::close();
        }
        self.default.on_connection_attempt(attempt)
    }
}

impl AsyncEndpoint for Client {
    fn connect(&self, to: SocketAddr) -> StackFuture<NewConnection> {
        let to = Connect::new(to).with_server_name(ccplane_link::identity::SUBJECT_NAME);
        let attempt = Client::connect(self, to);
        Box::pin(async move { established(attempt.await?, true) })
    }

    fn wait_idle(&self) -> StackFuture<()> {
        let mut client = self.clone();
        Box::pin(async move { Ok(Client::wait_idle(&mut client).await?) })
    }
}

impl AsyncEndpoint for Server {
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<StackFuture<NewConnection>>> {
        let accepted = Server::poll_accept(self, context);
        accepted.map(|connection| {
            let established = established(connection?, false);
            Some(Box::pin(std::future::ready(established)) as _)
        })
    }

    /// A server of s2n-quic has no such function.
    fn wait_idle(&self) -> StackFuture<()> {
        Box::pin(async {
            tokio::time::sleep(SERVER_CLOSE_TIME).await;
            Ok(())
        })
    }
}

fn established(connection: Connection, client: bool) -> Result<NewConnection, StackError> {
    let (mut handle, mut acceptor) = connection.split();
    let stats = handle.query_event_context(SharedStats::clone)?;
    let connection = S2nConnection {
        handle: handle.clone(),
        stats,
    };
    let stream = async move {
        let stream = if client {
            handle.open_bidirectional_stream().await?
        } else {
            let stream = acceptor.accept_bidirectional_stream().await?;
            stream.ok_or("the peer closed the connection")?
        };
        let (receive, send) = stream.split();
        Ok((Box::new(send) as _, Box::new(receive) as _))
    };
    Ok((Box::new(connection), Box::pin(stream)))
}

struct S2nConnection {
    handle: Handle,
    stats: SharedStats,
}

impl AsyncConnection for S2nConnection {
    fn stats(&self) -> QuicStats {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        QuicStats {
            srtt: ccplane_units::Duration::from_nanos(load(&self.stats.srtt_ns)),
            cwnd: load(&self.stats.cwnd),
            mtu: u16::try_from(load(&self.stats.mtu)).unwrap_or(u16::MAX),
            sent: load(&self.stats.sent),
            lost: load(&self.stats.lost),
            ..QuicStats::default()
        }
    }

    fn close(&self, code: u32) {
        self.handle.close(code.into());
    }
}

impl connection::SendStream for SendStream {
    fn finish(mut self: Box<Self>) -> StackFuture<()> {
        Box::pin(async move { Ok(self.close().await?) })
    }
}

/// Statistics of a connection, written at every packet without a lock.
#[derive(Default)]
struct AtomicStats {
    srtt_ns: AtomicU64,
    cwnd: AtomicU64,
    mtu: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
}

type SharedStats = Arc<AtomicStats>;

/// Event subscriber that records the statistics of each connection.
struct StatsRecorder;

impl Subscriber for StatsRecorder {
    type ConnectionContext = SharedStats;

    fn create_connection_context(&mut self, _: &Meta, _: &ConnectionInfo) -> SharedStats {
        SharedStats::default()
    }

    fn on_packet_sent(&mut self, stats: &mut SharedStats, _: &Meta, _: &PacketSent) {
        stats.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn on_packet_lost(&mut self, stats: &mut SharedStats, _: &Meta, event: &PacketLost<'_>) {
        let lost = u64::from(!event.is_mtu_probe);
        stats.lost.fetch_add(lost, Ordering::Relaxed);
    }

    fn on_recovery_metrics(
        &mut self,
        stats: &mut SharedStats,
        _: &Meta,
        event: &RecoveryMetrics<'_>,
    ) {
        let srtt = u64::try_from(event.smoothed_rtt.as_nanos()).unwrap_or(u64::MAX);
        stats.srtt_ns.store(srtt, Ordering::Relaxed);
        let cwnd = event.congestion_window.into();
        stats.cwnd.store(cwnd, Ordering::Relaxed);
    }

    fn on_mtu_updated(&mut self, stats: &mut SharedStats, _: &Meta, event: &MtuUpdated) {
        let mtu = event.mtu.into();
        stats.mtu.store(mtu, Ordering::Relaxed);
    }
}
