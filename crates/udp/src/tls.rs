//! TLS 1.3 for datagrams as in QUIC (RFC 9001): `rustls` produces the handshake bytes and the keys;
//! this module transports and applies them.
//!
//! TLS handshake bytes are carried in fragments next to the transport's own handshake. After it,
//! every packet is sealed in place, and both ends replace their keys long before they wear out.
//! Only identifiers, datagram types and lengths remain visible.

mod handshake;
mod keys;
mod replay;

use std::sync::Arc;

use ccplane_link::identity::{Fingerprint, Identity, IdentityError};
use rustls::{ClientConfig, ServerConfig};

pub(crate) use handshake::{Handshake, Level};
pub use handshake::{HandshakeError, LEVEL_BYTES_MAX};
pub(crate) use keys::{Keys, OpenFailure};
pub use keys::{OpenError, TAG_BYTES};
pub use replay::Replay;

/// ALPN protocol identifier: the second version of this transport.
const ALPN_PROTOCOL: &[u8] = b"ccplane/2";

/// Identity of an endpoint and the peers it trusts.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(crate) client: Option<Arc<ClientConfig>>,
    pub(crate) server: Option<Arc<ServerConfig>>,
    /// Clients have to prove their address before TLS starts.
    pub(crate) retry: bool,
    /// Packets per key, if a test sets fewer than the cipher allows.
    pub(crate) rekey_after: Option<u64>,
}

impl Tls {
    /// Creates a client's configuration that trusts the given fingerprint, or any server if there
    /// is none. It presents `own` if the server asks for a certificate.
    pub fn client(
        trusted: Option<Fingerprint>,
        own: Option<&Identity>,
    ) -> Result<Tls, IdentityError> {
        let config = ccplane_link::identity::client(ALPN_PROTOCOL, trusted, own)?;
        Ok(Tls {
            client: Some(Arc::new(config)),
            server: None,
            retry: false,
            rekey_after: None,
        })
    }

    /// Creates a server's configuration. If `clients` is not empty, only these clients may connect.
    pub fn server(identity: &Identity, clients: &[Fingerprint]) -> Result<Tls, IdentityError> {
        let config = identity.server(ALPN_PROTOCOL, clients)?;
        Ok(Tls {
            client: None,
            server: Some(Arc::new(config)),
            retry: false,
            rekey_after: None,
        })
    }

    /// Makes every client prove its address before TLS starts, at the cost of another round trip.
    pub fn with_retry(mut self) -> Tls {
        self.retry = true;
        self
    }

    /// Updates keys after `packets` packets. For tests, since the cipher's limit is in the
    /// millions.
    #[doc(hidden)]
    pub fn with_rekey_after(mut self, packets: u64) -> Tls {
        self.rekey_after = Some(packets);
        self
    }
}
