//! Rate of this host's own link, as given by the user or reported by the driver.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::str::FromStr;

use ccplane_host::{interface_of, link_speed};
use ccplane_units::Rate;

use crate::exit::{Failure, FailureKind};

/// Value of `--link-rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRate {
    /// An explicit rate.
    Given(Rate),
    /// The rate reported by the driver of the link's device. It is not estimated from traffic: an
    /// estimate that is too low would make stamps wrong by a whole burst.
    Auto,
}

impl FromStr for LinkRate {
    type Err = String;

    fn from_str(word: &str) -> Result<LinkRate, String> {
        if word == "auto" {
            return Ok(LinkRate::Auto);
        }
        let rate = word.parse::<Rate>().map(LinkRate::Given);
        rate.map_err(|why| format!("{why}; or use auto for the rate that the driver reports"))
    }
}

impl LinkRate {
    /// Returns the rate of the link that a socket at `local` uses, towards `peer` if it is known.
    pub fn resolve(self, local: SocketAddr, peer: Option<SocketAddr>) -> Result<Rate, Failure> {
        match self {
            LinkRate::Given(rate) => Ok(rate),
            LinkRate::Auto => query_link_speed(local, peer).map_err(|why| {
                Failure::text(FailureKind::Usage, format!("--link-rate auto: {why}"))
                    .hint("give the rate, such as --link-rate 10gbit")
            }),
        }
    }
}

fn query_link_speed(local: SocketAddr, peer: Option<SocketAddr>) -> Result<Rate, String> {
    let address = match peer {
        Some(peer) => source(local, peer).map_err(|e| format!("no route to {peer}: {e}"))?,
        None => local.ip(),
    };
    if address.is_unspecified() {
        return Err(format!("{local} does not select a single device"));
    }
    let device =
        interface_of(address).ok_or_else(|| format!("no device has the address {address}"))?;
    let speed = link_speed(&device)
        .ok_or_else(|| format!("the driver of {device} does not report a rate"))?;
    Ok(Rate::from_bits_per_sec(speed))
}

/// Returns the source address for packets to `peer`.
fn source(local: SocketAddr, peer: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind(SocketAddr::new(local.ip(), 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use ccplane_host::Namespace;

    use super::*;

    #[test]
    fn a_rate_is_a_number_or_auto() {
        assert_eq!(
            "10gbit".parse(),
            Ok(LinkRate::Given(Rate::from_bits_per_sec(10_000_000_000)))
        );
        assert_eq!("auto".parse(), Ok(LinkRate::Auto));
        for wrong in ["0mbit", "fast", ""] {
            assert!(wrong.parse::<LinkRate>().is_err(), "{wrong:?}");
        }
    }

    /// The device is looked up in the calling thread's namespace, whichever namespace `/sys` shows.
    /// A `veth` reports 10 Gbit/s.
    #[test]
    fn the_rate_of_a_device_in_this_namespace_is_read() {
        const TEST_NAME: &str = "the_rate_of_a_device_in_this_namespace_is_read";
        if !nix::unistd::geteuid().is_root() {
            assert!(
                std::env::var_os("CCPLANE_NO_SKIP").is_none(),
                "{TEST_NAME}: not root"
            );
            return eprintln!("SKIPPED: {TEST_NAME}: it creates a namespace, as root");
        }
        ccplane_host::remove_stale_names();
        let namespace =
            Namespace::create(&format!("ccplane-speed-{}", std::process::id())).unwrap();
        for line in [
            "link add speed0 type veth peer name speed1",
            "addr add 192.0.2.1/30 dev speed0",
            "link set speed1 up",
            "link set speed0 up",
        ] {
            let mut ip = Command::new("ip");
            let ip = namespace.enter_on_spawn(ip.args(line.split(' '))).unwrap();
            assert!(ip.status().unwrap().success(), "ip {line}");
        }
        let rate = Ok(Rate::from_bits_per_sec(10_000_000_000));
        let any: SocketAddr = ([0, 0, 0, 0], 0).into();
        let (own, peer) = (([192, 0, 2, 1], 0).into(), ([192, 0, 2, 2], 9).into());
        assert_eq!(namespace.run(|| query_link_speed(own, None)).unwrap(), rate);
        assert_eq!(
            namespace.run(|| query_link_speed(any, Some(peer))).unwrap(),
            rate
        );
    }

    /// Loopback reports no speed, and no host has an address of TEST-NET-1.
    #[test]
    fn an_unknown_rate_is_an_error_with_the_device() {
        let any: SocketAddr = ([0, 0, 0, 0], 0).into();
        let loopback: SocketAddr = ([127, 0, 0, 1], 9).into();
        assert_eq!(
            query_link_speed(any, Some(loopback)),
            Err("the driver of lo does not report a rate".to_owned())
        );
        assert_eq!(
            query_link_speed(loopback, None),
            Err("the driver of lo does not report a rate".to_owned())
        );
        assert_eq!(
            query_link_speed(any, None),
            Err("0.0.0.0:0 does not select a single device".to_owned())
        );
        let nowhere = ([192, 0, 2, 1], 0).into();
        assert_eq!(
            query_link_speed(nowhere, None),
            Err("no device has the address 192.0.2.1".to_owned())
        );
    }
}
