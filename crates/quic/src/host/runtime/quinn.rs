//! quinn with its own driver.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::quinn::{Connection, Endpoint, EndpointConfig, Incoming, SendStream, TokioRuntime, VarInt};

use super::connection::{AsyncConnection, NewConnection, StackFuture};
use super::{AsyncEndpoint, Runtime, connection};
use crate::Stack;
use crate::host::configuration::define_configuration;
use crate::host::{HostError, HostOptions, HostRole, QuicStats};

define_configuration!(Stack::Quinn, quinn_proto, quinn, [
    NewReno => NewRenoConfig, Cubic => CubicConfig, Bbr => BbrConfig
]);

/// Creates a driver whose connections are quinn's.
pub fn driver(options: &HostOptions, role: &HostRole<'_>) -> Result<Runtime, HostError> {
    let (client, server) = endpoint_configs(options, role, transport_config(options)?)?;
    Runtime::start(options, client.is_some(), |socket| {
        let (config, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
        let mut endpoint = Endpoint::new(config, server, socket, runtime)?;
        if let Some(client) = client {
            endpoint.set_default_client_config(client);
        }
        Ok(Box::new(Quinn {
            accepting: accept(&endpoint),
            endpoint,
            unverified: Arc::new(()),
            unverified_max: options.unverified_max(),
        }))
    })
}

struct Quinn {
    endpoint: Endpoint,
    accepting: Pin<Box<dyn Future<Output = Option<Incoming>> + Send>>,
    /// Cloned for each handshake of a peer with an unverified address.
    unverified: Arc<()>,
    unverified_max: usize,
}

fn accept(endpoint: &Endpoint) -> Pin<Box<dyn Future<Output = Option<Incoming>> + Send>> {
    let endpoint = endpoint.clone();
    Box::pin(async move { endpoint.accept().await })
}

impl AsyncEndpoint for Quinn {
    fn connect(&self, to: SocketAddr) -> StackFuture<NewConnection> {
        let endpoint = self.endpoint.clone();
        Box::pin(async move {
            let connecting = endpoint.connect(to, ccplane_link::identity::SUBJECT_NAME)?;
            Ok(established(connecting.await?, true))
        })
    }

    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<StackFuture<NewConnection>>> {
        loop {
            let Some(incoming) = ready!(self.accepting.as_mut().poll(context)) else {
                return Poll::Ready(None);
            };
            self.accepting = accept(&self.endpoint);
            let verified = incoming.remote_address_validated();
            if !verified && Arc::strong_count(&self.unverified) > self.unverified_max {
                // Cannot fail, since the address is unverified.
                let _ = incoming.retry();
                continue;
            }
            let unverified = (!verified).then(|| Arc::clone(&self.unverified));
            return Poll::Ready(Some(Box::pin(async move {
                let _unverified = unverified;
                Ok(established(incoming.await?, false))
            })));
        }
    }

    fn wait_idle(&self) -> StackFuture<()> {
        let endpoint = self.endpoint.clone();
        Box::pin(async move {
            endpoint.wait_idle().await;
            Ok(())
        })
    }
}

fn established(connection: Connection, client: bool) -> NewConnection {
    let opening = connection.clone();
    let stream = async move {
        let stream = if client {
            opening.open_bi().await
        } else {
            opening.accept_bi().await
        };
        let (send, receive) = stream?;
        Ok((Box::new(send) as _, Box::new(receive) as _))
    };
    (Box::new(connection), Box::pin(stream))
}

impl AsyncConnection for Connection {
    fn stats(&self) -> QuicStats {
        let path = Connection::stats(self).path;
        QuicStats {
            srtt: path.rtt.into(),
            cwnd: path.cwnd,
            ssthresh: None,
            pacing_rate: None,
            mtu: path.current_mtu,
            sent: path.sent_packets,
            lost: path.lost_packets,
        }
    }

    fn close(&self, code: u32) {
        Connection::close(self, VarInt::from_u32(code), &[]);
    }
}

impl connection::SendStream for SendStream {
    fn finish(mut self: Box<Self>) -> StackFuture<()> {
        Box::pin(async move {
            SendStream::finish(&mut self)?;
            match self.stopped().await? {
                None => Ok(()),
                Some(code) => Err(format!("the peer stopped the stream: {code}").into()),
            }
        })
    }
}
