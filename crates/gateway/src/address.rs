//! An address of the gateway's interface: `10.8.0.1/24`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ccplane_units::{Prefix, PrefixError};

/// An address of an interface, and how many of its bits are those of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub bits: u8,
}

/// Why a text is no address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// No address, or no bits of one.
    #[error(transparent)]
    Text(#[from] PrefixError),
    /// Unspecified, or multicast.
    #[error(
        "no address that a host can have; write an address and the bits of its network as 10.7.0.1/24 or fd07::1/64"
    )]
    NoHost,
}

impl FromStr for InterfaceAddress {
    type Err = BadAddress;

    /// `10.7.0.1/24`; without bits the address is alone in its network.
    fn from_str(text: &str) -> Result<InterfaceAddress, BadAddress> {
        let (address, bits) = Prefix::split(text)?;
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
    fn a_host_can_have_it() {
        let read = |text: &str| text.parse::<InterfaceAddress>();
        assert_eq!(
            read("10.7.0.1/24").map(|one| one.to_string()),
            Ok("10.7.0.1/24".into())
        );
        assert_eq!(read("fd07::1").map(|one| one.bits), Ok(128));
        assert_eq!(read("0.0.0.0/8"), Err(BadAddress::NoHost));
        assert_eq!(
            read("10.7.0.1/33"),
            Err(BadAddress::Text(PrefixError::Bits { most: 32 }))
        );
    }
}
