//! quinn on its own driver.

use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;

use ::quinn::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use ::quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ::quinn::{
    ClientConfig, Connection, EndpointConfig, IdleTimeout, RecvStream, SendStream, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};

use super::Runtime;
use super::pipe::StatsReader;
use super::serve::{Sending, StackConnection, StackEndpoint};
use crate::Stack;
use crate::host::{
    ALPN_PROTOCOL, HostError, HostOptions, HostRole, Native, QuicCongestion, QuicStats,
};

/// Creates a host whose connections are quinn's.
pub fn host(options: HostOptions, side: &HostRole<'_>) -> Result<Runtime, HostError> {
    let transport = Arc::new(transport(&options)?);
    let (mut client, mut server) = (None, None);
    match side {
        HostRole::Client(trusted) => {
            let crypto = QuicClientConfig::try_from(ccplane_link::identity::client(
                ALPN_PROTOCOL,
                *trusted,
                None,
            )?)
            .map_err(unusable)?;
            let mut config = ClientConfig::new(Arc::new(crypto));
            config.transport_config(transport);
            client = Some(config);
        }
        HostRole::Server(identity) => {
            let crypto = QuicServerConfig::try_from(identity.server(ALPN_PROTOCOL, &[])?)
                .map_err(unusable)?;
            let mut config = ServerConfig::with_crypto(Arc::new(crypto));
            config.transport_config(transport);
            config.max_incoming(options.connections_max);
            server = Some(config);
        }
    }
    let unproved_max = options.unproved_max();
    Runtime::start(&options, client.is_some(), move |socket: UdpSocket| {
        let accepts = server.is_some();
        let runtime = Arc::new(TokioRuntime);
        let mut endpoint =
            ::quinn::Endpoint::new(EndpointConfig::default(), server, socket, runtime)
                .map_err(|why| why.to_string())?;
        if let Some(client) = client {
            endpoint.set_default_client_config(client);
        }
        Ok(Quinn {
            endpoint,
            is_server: accepts,
            unverified: Rc::new(()),
            unverified_max: unproved_max,
        })
    })
}

struct Quinn {
    endpoint: ::quinn::Endpoint,
    is_server: bool,
    /// Cloned for each handshake of a peer with an unverified address.
    unverified: Rc<()>,
    unverified_max: usize,
}

impl StackEndpoint for Quinn {
    type Link = Connection;

    fn connect(
        &self,
        to: SocketAddr,
    ) -> impl Future<Output = Result<Connection, String>> + 'static {
        let connecting = self
            .endpoint
            .connect(to, ccplane_link::identity::SUBJECT_NAME);
        async move {
            let connecting = connecting.map_err(|why| why.to_string())?;
            connecting.await.map_err(|why| why.to_string())
        }
    }

    async fn accept(
        &mut self,
    ) -> Option<impl Future<Output = Result<Connection, String>> + 'static> {
        if !self.is_server {
            std::future::pending::<()>().await;
        }
        loop {
            let incoming = self.endpoint.accept().await?;
            let proved = incoming.remote_address_validated();
            if !proved && Rc::strong_count(&self.unverified) > self.unverified_max {
                // Cannot fail, since the address is unverified.
                let _ = incoming.retry();
                continue;
            }
            let unproved = (!proved).then(|| Rc::clone(&self.unverified));
            return Some(async move {
                let _unproved = unproved;
                incoming.await.map_err(|why| why.to_string())
            });
        }
    }

    async fn wait_idle(&mut self) {
        self.endpoint.wait_idle().await;
    }
}

impl StackConnection for Connection {
    type Sending = SendStream;
    type Receiving = RecvStream;

    async fn stream(&mut self, client: bool) -> Result<(SendStream, RecvStream), String> {
        let stream = if client {
            self.open_bi().await
        } else {
            self.accept_bi().await
        };
        stream.map_err(|why| why.to_string())
    }

    fn stats_reader(&self) -> StatsReader {
        let connection = self.clone();
        Arc::new(move || {
            let path = connection.stats().path;
            QuicStats {
                srtt: path.rtt.into(),
                cwnd: path.cwnd,
                ssthresh: None,
                pacing_rate: None,
                mtu: path.current_mtu,
                sent: path.sent_packets,
                lost: path.lost_packets,
            }
        })
    }

    fn close(&self, code: u32) {
        Connection::close(self, VarInt::from_u32(code), &[]);
    }
}

impl Sending for SendStream {
    async fn finish(&mut self) -> Result<(), String> {
        SendStream::finish(self).map_err(|why| why.to_string())?;
        match self.stopped().await {
            Ok(None) => Ok(()),
            Ok(Some(code)) => Err(format!("the peer stopped the stream: {code}")),
            Err(why) => Err(why.to_string()),
        }
    }
}

fn transport(options: &HostOptions) -> Result<TransportConfig, HostError> {
    let mut config = TransportConfig::default();
    let window = options.window();
    config
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(window))
        .send_window(window.into())
        .datagram_receive_buffer_size(None)
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_concurrent_bidi_streams(VarInt::from_u32(1));
    let timeout = options
        .idle_timeout
        .and_then(|idle| IdleTimeout::try_from(idle.to_std()).ok());
    config.max_idle_timeout(timeout);
    match &options.congestion {
        QuicCongestion::Steered(plane) => config.congestion_controller_factory(plane.quinn()?),
        QuicCongestion::Native(Native::NewReno) => {
            config.congestion_controller_factory(Arc::new(NewRenoConfig::default()))
        }
        QuicCongestion::Native(Native::Cubic) => {
            config.congestion_controller_factory(Arc::new(CubicConfig::default()))
        }
        QuicCongestion::Native(Native::Bbr) => {
            config.congestion_controller_factory(Arc::new(BbrConfig::default()))
        }
        QuicCongestion::Native(other) => return Err(other.unsupported_by(Stack::Quinn).into()),
    };
    Ok(config)
}

/// Converts the error for a TLS configuration without the initial cipher suite that QUIC requires.
fn unusable(why: impl std::fmt::Display) -> HostError {
    HostError::Start {
        stack: Stack::Quinn.name(),
        why: why.to_string(),
    }
}
