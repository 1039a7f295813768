//! The rate of this host's own link, as a person says it or as its driver does.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::str::FromStr;

use ccplane_units::Rate;
use nix::ifaddrs::getifaddrs;

use crate::exit::{Failure, Kind};

/// What `--link-rate` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRate {
    /// So much.
    Given(Rate),
    /// What the driver of the link's device says. It is not estimated from what passes: a rate that is too low would make stamps wrong by a whole burst.
    Auto,
}

impl FromStr for LinkRate {
    type Err = String;

    fn from_str(word: &str) -> Result<LinkRate, String> {
        if word == "auto" {
            return Ok(LinkRate::Auto);
        }
        let rate = word.parse::<Rate>().map(LinkRate::Given);
        rate.map_err(|why| format!("{why}; or auto, for what the device's driver says"))
    }
}

impl LinkRate {
    /// The rate of the link by which a socket at `local` is reached, or reaches `peer` where that is known.
    pub fn of(self, local: SocketAddr, peer: Option<SocketAddr>) -> Result<Rate, Failure> {
        match self {
            LinkRate::Given(rate) => Ok(rate),
            LinkRate::Auto => asked(local, peer).map_err(|why| {
                Failure::text(Kind::Usage, format!("--link-rate auto: {why}")).hint("say it: --link-rate 10gbit")
            }),
        }
    }
}

fn asked(local: SocketAddr, peer: Option<SocketAddr>) -> Result<Rate, String> {
    let address = match peer {
        Some(peer) => source(local, peer).map_err(|e| format!("no way to {peer}: {e}"))?,
        None => local.ip(),
    };
    if address.is_unspecified() {
        return Err(format!("{local} is every device of this host"));
    }
    let device = device(address).ok_or_else(|| format!("no device of this host has the address {address}"))?;
    let file = format!("/sys/class/net/{device}/speed");
    // Mbit/s; -1 or an error where the link is down or has no speed (Documentation/ABI/testing/sysfs-class-net).
    let speed = fs::read_to_string(file)
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    match speed.and_then(|mbit| mbit.checked_mul(1_000_000)) {
        Some(bits) if bits > 0 => Ok(Rate::from_bits_per_sec(bits)),
        _ => Err(format!("the driver of {device} does not say how fast it is")),
    }
}

/// The address from which this host would send to `peer`.
fn source(local: SocketAddr, peer: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind(SocketAddr::new(local.ip(), 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

fn device(address: IpAddr) -> Option<String> {
    let of = |storage: nix::sys::socket::SockaddrStorage| -> Option<IpAddr> {
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    let mut all = getifaddrs().ok()?;
    let found = all.find(|one| one.address.and_then(of) == Some(address))?;
    Some(found.interface_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_said_or_asked_for() {
        assert_eq!(
            "10gbit".parse(),
            Ok(LinkRate::Given(Rate::from_bits_per_sec(10_000_000_000)))
        );
        assert_eq!("auto".parse(), Ok(LinkRate::Auto));
        for wrong in ["0mbit", "fast", ""] {
            assert!(wrong.parse::<LinkRate>().is_err(), "{wrong:?}");
        }
    }

    /// Loopback is a device without a speed, and no host has an address of TEST-NET-1.
    #[test]
    fn what_no_driver_says_is_an_error_that_names_the_device() {
        let any: SocketAddr = ([0, 0, 0, 0], 0).into();
        let loopback: SocketAddr = ([127, 0, 0, 1], 9).into();
        assert_eq!(
            asked(any, Some(loopback)),
            Err("the driver of lo does not say how fast it is".to_owned())
        );
        assert_eq!(
            asked(loopback, None),
            Err("the driver of lo does not say how fast it is".to_owned())
        );
        assert_eq!(
            asked(any, None),
            Err("0.0.0.0:0 is every device of this host".to_owned())
        );
        let nowhere = ([192, 0, 2, 1], 0).into();
        assert_eq!(
            asked(nowhere, None),
            Err("no device of this host has the address 192.0.2.1".to_owned())
        );
    }
}
