//! Networks, and addresses in them, as `10.8.0.0/16` and `10.8.0.1/24`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network: an address whose host bits are zero, and how many bits it fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    network: IpAddr,
    bits: u8,
}

/// An address of an interface, and how many of its bits are those of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub bits: u8,
}

/// Why a text is no network or address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {fix}")]
pub struct BadPrefix {
    reason: &'static str,
    fix: String,
}

const EXAMPLE: &str = "write a network as 10.8.0.0/16 or fd08::/48";
const EXAMPLE_ADDRESS: &str = "write an address and the bits of its network as 10.7.0.1/24 or fd07::1/64";

impl Prefix {
    /// The network that this address lies in, of so many bits; `None` if no address has as many.
    pub fn of(address: IpAddr, bits: u8) -> Option<Prefix> {
        let network = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits.into())?).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128_u32.checked_sub(bits.into())?).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        };
        Some(Prefix { network, bits })
    }

    /// Its first address.
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// How many bits it fixes.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether it is one address.
    pub fn is_host(&self) -> bool {
        self.bits == width(self.network)
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4() && Prefix::of(address, self.bits) == Some(*self)
    }

    /// Whether all of another one lies in it.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.bits <= other.bits && self.contains(other.network)
    }
}

/// Bits of an address of this family.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn split(text: &str, example: &'static str) -> Result<(IpAddr, u8), BadPrefix> {
    let fail = |reason| BadPrefix {
        reason,
        fix: example.to_owned(),
    };
    let (address, bits) = match text.trim().split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text.trim(), None),
    };
    let address: IpAddr = address.parse().map_err(|_| fail("no IP address"))?;
    let widest = width(address);
    let digits = |bits: &str| !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    match bits {
        None => Ok((address, widest)),
        Some(bits) if digits(bits) => match bits.parse() {
            Ok(bits) if bits <= widest => Ok((address, bits)),
            _ => Err(fail("more bits than the address has")),
        },
        Some(_) => Err(fail("no number of bits after the slash")),
    }
}

impl FromStr for Prefix {
    type Err = BadPrefix;

    /// `10.8.0.0/16`; one address needs no bits.
    fn from_str(text: &str) -> Result<Prefix, BadPrefix> {
        let (address, bits) = split(text, EXAMPLE)?;
        match Prefix::of(address, bits) {
            Some(prefix) if prefix.network == address => Ok(prefix),
            Some(prefix) => Err(BadPrefix {
                reason: "an address within the network, not the network itself",
                fix: format!("write {prefix} for all of it, or {address} for this one address"),
            }),
            None => Err(BadPrefix {
                reason: "more bits than the address has",
                fix: EXAMPLE.to_owned(),
            }),
        }
    }
}

impl FromStr for InterfaceAddress {
    type Err = BadPrefix;

    /// `10.7.0.1/24`; without bits the address is alone in its network.
    fn from_str(text: &str) -> Result<InterfaceAddress, BadPrefix> {
        let (address, bits) = split(text, EXAMPLE_ADDRESS)?;
        if address.is_unspecified() || address.is_multicast() {
            return Err(BadPrefix {
                reason: "no address that a host can have",
                fix: EXAMPLE_ADDRESS.to_owned(),
            });
        }
        Ok(InterfaceAddress { address, bits })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        assert!(prefix("10.1.2.3").is_host());
    }

    #[test]
    fn a_bad_one_says_what_to_write() {
        let why = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        assert!(
            why("10.8.0.1/16").contains("write 10.8.0.0/16"),
            "{}",
            why("10.8.0.1/16")
        );
        for (text, reason) in [
            ("ten", "no IP address"),
            ("10.0.0.0/33", "more bits"),
            ("::/x", "no number of bits"),
            ("::/+1", "no number"),
        ] {
            assert!(why(text).contains(reason), "{}", why(text));
        }
        assert!("0.0.0.0/8".parse::<InterfaceAddress>().is_err());
        assert_eq!(
            "10.7.0.1/24".parse::<InterfaceAddress>().unwrap().to_string(),
            "10.7.0.1/24"
        );
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(v6: bool, address: u128, bits in 0..=128_u8) {
            let address = if v6 { IpAddr::V6(Ipv6Addr::from_bits(address)) } else { IpAddr::V4(Ipv4Addr::from_bits(address as u32)) };
            if let Some(net) = Prefix::of(address, bits) {
                prop_assert!(net.contains(address));
                prop_assert_eq!(net.to_string().parse::<Prefix>(), Ok(net));
            } else {
                prop_assert!(!v6 && bits > 32);
            }
        }
    }
}
