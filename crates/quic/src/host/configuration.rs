//! Configuration of noq and quinn. noq is a successor of quinn and has the same types.

/// Defines the configuration for the types of the crate `$proto`: `transport_config` and
/// `endpoint_configs`. `$hook` is the method of [`QuicPlane`](crate::QuicPlane) for the stack.
macro_rules! define_configuration {
    ($stack:expr, $proto:ident, $hook:ident, [$($native:ident => $control:ident),+]) => {
        /// Returns the transport configuration with its congestion control.
        fn transport_config(
            options: &$crate::host::HostOptions,
        ) -> Result<$proto::TransportConfig, $crate::host::HostError> {
            use $crate::host::{Native, QuicCongestion};
            let window = $proto::VarInt::from_u32(options.window());
            let idle_timeout = options
                .idle_timeout
                .and_then(|idle| $proto::IdleTimeout::try_from(idle.to_std()).ok());
            let mut config = $proto::TransportConfig::default();
            config
                .stream_receive_window(window)
                .receive_window(window)
                .send_window(options.window().into())
                .datagram_receive_buffer_size(None)
                .max_concurrent_uni_streams($proto::VarInt::from_u32(0))
                .max_concurrent_bidi_streams($proto::VarInt::from_u32(1))
                .max_idle_timeout(idle_timeout);
            match &options.congestion {
                QuicCongestion::Steered(plane) => {
                    config.congestion_controller_factory(plane.$hook()?)
                }
                $(QuicCongestion::Native(Native::$native) => config.congestion_controller_factory(
                    std::sync::Arc::new($proto::congestion::$control::default()),
                ),)+
                QuicCongestion::Native(other) => return Err(other.unsupported_by($stack).into()),
            };
            Ok(config)
        }

        /// Returns the configuration of a client or of a server.
        fn endpoint_configs(
            options: &$crate::host::HostOptions,
            role: &$crate::host::HostRole<'_>,
            transport: $proto::TransportConfig,
        ) -> Result<
            (Option<$proto::ClientConfig>, Option<$proto::ServerConfig>),
            $crate::host::HostError,
        > {
            use std::sync::Arc;
            use $crate::host::{ALPN_PROTOCOL, HostError, HostRole};
            use $proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
            // The TLS configuration lacks the initial cipher suite that QUIC requires.
            let unusable = |why: $proto::crypto::rustls::NoInitialCipherSuite| HostError::Start {
                stack: $stack.name(),
                why: why.to_string(),
            };
            let transport = Arc::new(transport);
            match role {
                HostRole::Client(trusted) => {
                    let tls = ccplane_link::identity::client(ALPN_PROTOCOL, *trusted, None)?;
                    let crypto = QuicClientConfig::try_from(tls).map_err(unusable)?;
                    let mut config = $proto::ClientConfig::new(Arc::new(crypto));
                    config.transport_config(transport);
                    Ok((Some(config), None))
                }
                HostRole::Server(identity) => {
                    let tls = identity.server(ALPN_PROTOCOL, &[])?;
                    let crypto = QuicServerConfig::try_from(tls).map_err(unusable)?;
                    let mut config = $proto::ServerConfig::with_crypto(Arc::new(crypto));
                    config.transport_config(transport);
                    config.max_incoming(options.connections_max);
                    Ok((None, Some(config)))
                }
            }
        }
    };
}

pub(super) use define_configuration;
