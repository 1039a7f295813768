//! IP prefixes: `10.8.0.0/16`, `fd08::/48`, or a single address.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// IP prefix: a network address, whose host bits are zero, and the prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    network: IpAddr,
    bits: u8,
}

/// Error from parsing a [`Prefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixError {
    /// There is no address before the slash.
    MissingAddress,
    /// The prefix length is missing, or longer than the address.
    InvalidLength {
        /// Maximum prefix length of the address family.
        bits_max: u8,
    },
    /// The host bits of the address are not zero.
    HostBitsSet {
        /// Address in the text.
        address: IpAddr,
        /// Network that contains it.
        network: Prefix,
    },
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixError::MissingAddress => {
                f.write_str("not an IP address; write 10.8.0.0/16, 192.0.2.7 or fd08::/48")
            }
            PrefixError::InvalidLength { bits_max } => write!(
                f,
                "invalid prefix length; it must be a number from 0 to {bits_max}"
            ),
            PrefixError::HostBitsSet { address, network } => write!(
                f,
                "the address has host bits set; write {network} for the whole network, or \
                 {address} for the single address"
            ),
        }
    }
}

impl core::error::Error for PrefixError {}

impl Prefix {
    /// Returns the prefix of this length that contains `address`; `None` if the length is too
    /// large.
    #[inline]
    pub fn containing(address: IpAddr, bits: u8) -> Option<Prefix> {
        let network = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX
                    .checked_shl(32_u32.checked_sub(bits.into())?)
                    .unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX
                    .checked_shl(128_u32.checked_sub(bits.into())?)
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        };
        Some(Prefix { network, bits })
    }

    /// Parses an address with a prefix length, as in `10.7.0.1/24`; without one, the length is that
    /// of a host.
    pub fn parse_cidr(text: &str) -> Result<(IpAddr, u8), PrefixError> {
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError::MissingAddress)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        // Only digits: Rust's integer parser accepts a sign.
        let digits = |bits: &&str| bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = match bits {
            None => Some(bits_max),
            Some(bits) => Some(bits).filter(digits).and_then(|bits| bits.parse().ok()),
        };
        match bits {
            Some(bits) if bits <= bits_max => Ok((address, bits)),
            _ => Err(PrefixError::InvalidLength { bits_max }),
        }
    }

    /// Returns the network address.
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// Returns the prefix length.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns true if the prefix is a single address.
    pub fn is_host(&self) -> bool {
        self.bits == if self.network.is_ipv4() { 32 } else { 128 }
    }

    /// Returns true if the prefix contains the address. On the gateway's per-packet path.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4()
            && Prefix::containing(address, self.bits) == Some(*self)
    }

    /// Returns true if the prefix contains all addresses of another.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.bits <= other.bits && self.contains(other.network)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Parses `10.8.0.0/16`; a single address needs no prefix length.
    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let (address, bits) = Prefix::parse_cidr(text)?;
        let network = Prefix::containing(address, bits).ok_or(PrefixError::MissingAddress)?;
        match network.network == address {
            true => Ok(network),
            false => Err(PrefixError::HostBitsSet { address, network }),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::string::ToString;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    #[test]
    fn a_network_holds_its_addresses_and_no_others() {
        let net = prefix("10.8.0.0/15");
        for (address, inside) in [
            ("10.8.0.0", true),
            ("10.9.255.255", true),
            ("10.10.0.0", false),
            ("::1", false),
        ] {
            assert_eq!(net.contains(address.parse().unwrap()), inside, "{address}");
        }
        assert!(prefix("0.0.0.0/0").contains("255.1.2.3".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("::".parse().unwrap()));
        assert!(prefix("fd08::/16").covers(&prefix("fd08:1::/32")));
        assert!(!prefix("fd08:1::/32").covers(&prefix("fd08::/16")));
        assert!(prefix("10.1.2.3").is_host() && prefix("::1").is_host());
        assert_eq!(prefix("10.1.2.3"), prefix("10.1.2.3/32"));
    }

    #[test]
    fn a_bad_one_says_what_to_write() {
        for (text, says) in [
            (
                "10.8.0.1/16",
                "write 10.8.0.0/16 for the whole network, or 10.8.0.1 for",
            ),
            ("2001:db8::1/32", "write 2001:db8::/32 for the whole"),
            ("ten", "not an IP address"),
            ("", "not an IP address"),
            ("10.0.0.0/33", "0 to 32"),
            ("10.0.0.0/", "0 to 32"),
            ("::/129", "0 to 128"),
            ("::/x", "invalid prefix length"),
            ("::/+1", "invalid prefix length"),
        ] {
            let why = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(v6: bool, address: u128, bits in 0..=128_u8) {
            let address = if v6 {
                IpAddr::V6(Ipv6Addr::from_bits(address))
            } else {
                IpAddr::V4(Ipv4Addr::from_bits(address as u32))
            };
            if let Some(net) = Prefix::containing(address, bits) {
                prop_assert!(net.contains(address));
                prop_assert_eq!(net.to_string().parse::<Prefix>(), Ok(net));
            } else {
                prop_assert!(!v6 && bits > 32);
            }
        }

        #[test]
        fn one_bit_off_is_another_network(address: u32, bits in 1..=32_u8) {
            let net = Prefix::containing(Ipv4Addr::from_bits(address).into(), bits).expect("valid");
            prop_assert!(!net.contains(Ipv4Addr::from_bits(address ^ 1 << (32 - bits)).into()));
        }
    }
}
