//! quinn with its own driver.

use std::sync::Arc;

use ::quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, TokioRuntime, VarInt};

use super::connection::{AsyncConnection, StackFuture, Step};
use super::{AsyncEndpoint, HandshakeSender, Runtime};
use crate::Stack;
use crate::host::configuration::define_configuration;
use crate::host::{HostError, HostOptions, HostRole, QuicStats};

define_configuration!(Stack::Quinn, quinn_proto, quinn, [
    NewReno => NewRenoConfig, Cubic => CubicConfig, Bbr => BbrConfig
]);

/// Creates a driver whose connections are quinn's.
pub fn driver(options: &HostOptions, role: &HostRole<'_>) -> Result<Runtime, HostError> {
    let (client, server) = endpoint_configs(options, role, transport_config(options)?)?;
    Runtime::start(options, async |socket, handshakes| {
        let (config, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
        let endpoint = Endpoint::new(config, server, socket, runtime)?;
        let idle = endpoint.clone();
        let (accepting, unverified_max) = (endpoint.clone(), options.unverified_max());
        tokio::spawn(accept(accepting, handshakes, unverified_max));
        let connect = |config: ClientConfig| {
            Box::new(move |to| -> StackFuture<Step> {
                let (endpoint, config) = (endpoint.clone(), config.clone());
                Box::pin(async move {
                    let name = ccplane_link::identity::SUBJECT_NAME;
                    let connecting = endpoint.connect_with(config, to, name)?;
                    Ok(established(connecting.await?, true))
                })
            }) as _
        };
        Ok(AsyncEndpoint {
            connect: client.map(connect),
            idle: Box::pin(async move { idle.wait_idle().await }),
        })
    })
}

/// Accepts connections until the endpoint ends.
async fn accept(endpoint: Endpoint, handshakes: HandshakeSender, unverified_max: usize) {
    // Cloned for each handshake of a peer with an unverified address.
    let unverified = Arc::new(());
    while let Some(incoming) = endpoint.accept().await {
        let verified = incoming.remote_address_validated();
        if !verified && Arc::strong_count(&unverified) > unverified_max {
            // Cannot fail, since the address is unverified.
            let _ = incoming.retry();
            continue;
        }
        let unverified = (!verified).then(|| Arc::clone(&unverified));
        let handshake = async move {
            let _unverified = unverified;
            Ok(established(incoming.await?, false))
        };
        // Fails if the host was dropped.
        let _ = handshakes.send(Box::pin(handshake)).await;
    }
}

fn established(connection: Connection, client: bool) -> Step {
    let opening = connection.clone();
    let stream = async move {
        let (send, receive) = match client {
            true => opening.open_bi().await?,
            false => opening.accept_bi().await?,
        };
        let stopped = send.stopped();
        let acknowledged = async {
            match stopped.await? {
                None => Ok(Step::SentAll),
                Some(code) => Err(format!("the peer stopped the stream: {code}").into()),
            }
        };
        let send = (Box::new(send) as _, Box::pin(acknowledged) as _);
        Ok(Step::Opened(send, Box::new(receive)))
    };
    Step::Connected(Box::new(connection), Box::pin(stream))
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
