//! Interface addresses in CIDR notation, for example `10.8.0.1/24`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ccplane_units::{Prefix, PrefixError};

/// Interface address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceAddress {
    /// The host address.
    pub address: IpAddr,
    /// Prefix length of the address's network.
    pub bits: u8,
}

/// Error of parsing an [`InterfaceAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// The address or the prefix length is missing or malformed.
    #[error(transparent)]
    Text(#[from] PrefixError),
    /// The address is unspecified or multicast.
    #[error(
        "not a host address; write an address with its prefix length, as 10.7.0.1/24 or fd07::1/64"
    )]
    NoHost,
}

impl FromStr for InterfaceAddress {
    type Err = BadAddress;

    /// Parses `10.7.0.1/24`. Without a prefix length the network contains only this address (/32 or
    /// /128).
    fn from_str(text: &str) -> Result<InterfaceAddress, BadAddress> {
        let (address, bits) = Prefix::parse_cidr(text)?;
        if address.is_unspecified() || address.is_multicast() {
            return Err(BadAddress::NoHost);
        }
        Ok(InterfaceAddress { address, bits })
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_addresses_are_accepted() {
        let read = |text: &str| text.parse::<InterfaceAddress>();
        assert_eq!(
            read("10.7.0.1/24").map(|one| one.to_string()),
            Ok("10.7.0.1/24".into())
        );
        assert_eq!(read("fd07::1").map(|one| one.bits), Ok(128));
        assert_eq!(read("0.0.0.0/8"), Err(BadAddress::NoHost));
        assert_eq!(
            read("10.7.0.1/33"),
            Err(BadAddress::Text(PrefixError::InvalidLength {
                bits_max: 32
            }))
        );
    }
}
