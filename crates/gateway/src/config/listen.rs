//! Addresses on which a service listens.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::str::FromStr;

/// Service with a [`ListenAddress`]. Errors show its examples.
pub trait ListenService {
    /// Example of an address and port.
    const EXAMPLE: &'static str;
    /// Example of an address of both families and the same port.
    const EXAMPLE_BOTH_FAMILIES: &'static str;
    /// Name of the hosts that connect.
    const CLIENTS: &'static str;
}

/// Tunnel of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelService {}

/// Metrics of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayMetricsService {}

/// Metrics of `ccplane attach`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMetricsService {}

impl ListenService for TunnelService {
    const EXAMPLE: &'static str = "0.0.0.0:51820";
    const EXAMPLE_BOTH_FAMILIES: &'static str = "[::]:51820";
    const CLIENTS: &'static str = "peers";
}

impl ListenService for GatewayMetricsService {
    const EXAMPLE: &'static str = "127.0.0.1:9465";
    const EXAMPLE_BOTH_FAMILIES: &'static str = "[::]:9465";
    const CLIENTS: &'static str = "clients";
}

impl ListenService for AttachMetricsService {
    const EXAMPLE: &'static str = "127.0.0.1:9464";
    const EXAMPLE_BOTH_FAMILIES: &'static str = "[::]:9464";
    const CLIENTS: &'static str = "clients";
}

/// Address and fixed port of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress<S = AttachMetricsService>(pub SocketAddr, PhantomData<S>);

/// Error of parsing a [`ListenAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadListenAddress<S = AttachMetricsService> {
    /// The text is not an IP address with a port.
    Syntax,
    /// The port is 0, so that clients would not know where to connect.
    Port(PhantomData<S>),
}

impl<S: ListenService> fmt::Display for BadListenAddress<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (example, both) = (S::EXAMPLE, S::EXAMPLE_BOTH_FAMILIES);
        match self {
            BadListenAddress::Syntax => write!(
                f,
                "not an address and port; write {example}, or {both} for both families"
            ),
            BadListenAddress::Port(_) => write!(
                f,
                "no port; add the port that {} connect to, as {example}",
                S::CLIENTS
            ),
        }
    }
}

impl<S: ListenService + fmt::Debug> std::error::Error for BadListenAddress<S> {}

impl<S: ListenService> FromStr for ListenAddress<S> {
    type Err = BadListenAddress<S>;

    fn from_str(text: &str) -> Result<ListenAddress<S>, BadListenAddress<S>> {
        let address: SocketAddr = text.trim().parse().map_err(|_| BadListenAddress::Syntax)?;
        match address.port() {
            0 => Err(BadListenAddress::Port(PhantomData)),
            _ => Ok(ListenAddress(address, PhantomData)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<S: ListenService + fmt::Debug>(example: &str, both_families: &str) {
        for text in [example, both_families] {
            let address: ListenAddress<S> = text.parse().unwrap();
            assert_eq!(address.0.to_string(), text);
        }
        let port = example.rsplit_once(':').unwrap().1;
        let errors = ["", port, "[::1]:0"].map(|text| text.parse::<ListenAddress<S>>());
        let [empty, only_port, no_port] = errors.map(|error| error.unwrap_err().to_string());
        assert_eq!(empty, only_port);
        assert_eq!(
            empty,
            format!(
                "not an address and port; write {example}, or {both_families} for both families"
            )
        );
        assert!(no_port.starts_with("no port; ") && no_port.ends_with(example));
    }

    #[test]
    fn errors_show_the_port_of_the_service() {
        check::<TunnelService>("0.0.0.0:51820", "[::]:51820");
        check::<GatewayMetricsService>("127.0.0.1:9465", "[::]:9465");
        check::<AttachMetricsService>("127.0.0.1:9464", "[::]:9464");
    }
}
