//! Addresses on which a service listens.

use std::net::SocketAddr;
use std::str::FromStr;

/// Address and fixed port of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

/// Error of parsing a [`ListenAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadListenAddress {
    /// The text is not an IP address with a port.
    #[error("not an address and port; write 127.0.0.1:9464, or [::]:9464 for both families")]
    Syntax,
    /// The port is 0, so that clients would not know where to connect.
    #[error("no port; add the port that others connect to, as 127.0.0.1:9464")]
    Port,
}

impl FromStr for ListenAddress {
    type Err = BadListenAddress;

    fn from_str(text: &str) -> Result<ListenAddress, BadListenAddress> {
        let address: SocketAddr = text.trim().parse().map_err(|_| BadListenAddress::Syntax)?;
        match address.port() {
            0 => Err(BadListenAddress::Port),
            _ => Ok(ListenAddress(address)),
        }
    }
}
