//! TLS 1.3 for datagrams, as QUIC has it (RFC 9001): `rustls` makes the handshake's bytes and the
//! keys, here is where both go.
//!
//! The handshake's bytes travel in parts beside our own handshake. Then every packet is sealed in
//! place under keys that both ends forget and replace by new ones long before they wear out.
//! Identifiers, kinds of datagrams and lengths stay visible, nothing else.

mod handshake;
mod keys;
mod replay;

use std::sync::Arc;

use ccplane_link::identity::{Fingerprint, Identity, IdentityError};
use rustls::{ClientConfig, ServerConfig};

pub(crate) use handshake::{Handshake, Level};
pub use handshake::{MOST, Refused};
pub(crate) use keys::{Keys, Unopened};
pub use keys::{TAG, Tampered};
pub use replay::Replay;

/// The protocol (ALPN): this transport, in its second version.
const PROTOCOL: &[u8] = b"ccplane/2";

/// Who an endpoint is to others, and whom it believes.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(crate) client: Option<Arc<ClientConfig>>,
    pub(crate) server: Option<Arc<ServerConfig>>,
    /// Clients prove their address before TLS begins.
    pub(crate) retry: bool,
    /// Packets under one key, where a test asks for less than the cipher bears.
    pub(crate) renew_after: Option<u64>,
}

impl Tls {
    /// Of a client that believes this fingerprint, or anybody where there is none. It shows `own`
    /// to a server that asks for it.
    pub fn client(
        trusted: Option<Fingerprint>,
        own: Option<&Identity>,
    ) -> Result<Tls, IdentityError> {
        let config = ccplane_link::identity::client(PROTOCOL, trusted, own)?;
        Ok(Tls {
            client: Some(Arc::new(config)),
            server: None,
            retry: false,
            renew_after: None,
        })
    }

    /// Of a server. Where there are `clients`, it takes connections of nobody else.
    pub fn server(identity: &Identity, clients: &[Fingerprint]) -> Result<Tls, IdentityError> {
        let config = identity.server(PROTOCOL, clients)?;
        Ok(Tls {
            client: None,
            server: Some(Arc::new(config)),
            retry: false,
            renew_after: None,
        })
    }

    /// A server's: every client proves its address before TLS begins, for one more round trip.
    pub fn with_retry(mut self) -> Tls {
        self.retry = true;
        self
    }

    /// Keys are renewed after so many packets: for tests, as the cipher's own limit is millions.
    #[doc(hidden)]
    pub fn renewing_after(mut self, packets: u64) -> Tls {
        self.renew_after = Some(packets);
        self
    }
}
