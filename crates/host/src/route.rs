//! Routes of the calling thread's namespace.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::sys::socket::AddressFamily;

use crate::Error;
use crate::interface::{index, ioctl, mask_v4, name_bytes, sockaddr_v4};

/// Largest metric that both families accept: IPv4's is one below the maximum of a signed 16-bit
/// number (`struct rtentry`).
const METRIC_MAX: u16 = 32_766;

/// A route in the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MainRoute {
    /// Address of the destination network; bits beyond the prefix are ignored.
    pub destination: IpAddr,
    /// Prefix length in bits; 0 for a default route.
    pub prefix: u8,
    /// Outgoing interface.
    pub interface: String,
    /// Next hop, of the destination's family; `None` if the destination is on the interface's link.
    pub gateway: Option<IpAddr>,
    /// Metric, 1 to 32766. Of two routes to the same network the lower metric is used, so a
    /// fallback route has the higher one.
    pub metric: u16,
}

impl MainRoute {
    /// Adds the route. Returns false if it exists already.
    pub fn add(&self) -> Result<bool, Error> {
        let added = self
            .validate()
            .and_then(|()| self.ioctl_route(libc::SIOCADDRT));
        self.outcome(added, io::ErrorKind::AlreadyExists, "add")
    }

    /// Removes the route. Returns false if it does not exist. A route is also removed when its
    /// interface is removed or goes down.
    pub fn remove(&self) -> Result<bool, Error> {
        let removed = self
            .validate()
            .and_then(|()| self.ioctl_route(libc::SIOCDELRT));
        self.outcome(removed, io::ErrorKind::NotFound, "remove")
    }

    fn outcome(
        &self,
        result: io::Result<()>,
        already: io::ErrorKind,
        verb: &str,
    ) -> Result<bool, Error> {
        let MainRoute {
            destination,
            prefix,
            interface,
            ..
        } = self;
        match result {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == already => Ok(false),
            // ESRCH: no such route; ENODEV: the interface is gone. Neither has an `ErrorKind`.
            Err(e)
                if already == io::ErrorKind::NotFound
                    && matches!(e.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) =>
            {
                Ok(false)
            }
            Err(e) => Err(Error::system(
                format!("{verb} the route to {destination}/{prefix} through {interface}"),
                e,
            )),
        }
    }

    fn validate(&self) -> io::Result<()> {
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !(1..=METRIC_MAX).contains(&self.metric) {
            return wrong("the metric is not from 1 to 32766");
        }
        if self.prefix > if self.destination.is_ipv4() { 32 } else { 128 } {
            return wrong("the prefix is longer than the address");
        }
        if self
            .gateway
            .is_some_and(|gateway| gateway.is_ipv4() != self.destination.is_ipv4())
        {
            return wrong("the gateway has another address family");
        }
        Ok(())
    }

    /// Performs `SIOCADDRT` or `SIOCDELRT`.
    fn ioctl_route(&self, request: libc::c_ulong) -> io::Result<()> {
        let mut flags = libc::RTF_UP;
        if self.gateway.is_some() {
            flags |= libc::RTF_GATEWAY;
        }
        let device = |error: Error| match error {
            Error::System { source, .. } => source,
            other => io::Error::new(io::ErrorKind::InvalidInput, other.to_string()),
        };
        match self.destination {
            IpAddr::V4(destination) => {
                let mask = mask_v4(self.prefix);
                let mut name = name_bytes(&self.interface).map_err(device)?;
                // SAFETY: a zeroed rtentry is valid: it consists of numbers, addresses and null
                // pointers.
                let mut route: libc::rtentry = unsafe { mem::zeroed() };
                route.rt_dst =
                    sockaddr_v4(Ipv4Addr::from(u32::from(destination) & u32::from(mask)));
                route.rt_genmask = sockaddr_v4(mask);
                if let Some(IpAddr::V4(gateway)) = self.gateway {
                    route.rt_gateway = sockaddr_v4(gateway);
                }
                route.rt_flags = flags;
                // One more than the kernel shows, "for binary compatibility"; 0 is none.
                route.rt_metric = if self.metric == 0 {
                    0
                } else {
                    self.metric as libc::c_short + 1
                };
                route.rt_dev = name.as_mut_ptr();
                ioctl(AddressFamily::Inet, request, &mut route)
            }
            IpAddr::V6(destination) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix.min(128)))
                    .unwrap_or(0);
                let gateway = match self.gateway {
                    Some(IpAddr::V6(gateway)) => gateway.octets(),
                    _ => [0; 16],
                };
                let mut route = RouteV6 {
                    destination: Ipv6Addr::from(u128::from(destination) & mask).octets(),
                    source: [0; 16],
                    gateway,
                    kind: 0,
                    destination_bits: self.prefix.into(),
                    source_bits: 0,
                    metric: self.metric.into(),
                    info: 0,
                    flags: flags.into(),
                    interface: index(&self.interface).map_err(device)? as libc::c_int,
                };
                ioctl(AddressFamily::Inet6, request, &mut route)
            }
        }
    }
}

/// Mirrors `struct in6_rtmsg` of linux/ipv6_route.h, whose fields are private in libc.
#[repr(C)]
struct RouteV6 {
    destination: [u8; 16],
    source: [u8; 16],
    gateway: [u8; 16],
    kind: u32,
    destination_bits: u16,
    source_bits: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    interface: libc::c_int,
}

/// Adds a default route through `interface` in the calling thread's namespace, for the address
/// family of `family`. It precedes all routes with a metric.
pub fn add_default_route(interface: &str, family: IpAddr) -> Result<(), Error> {
    let (destination, metric) = match family {
        IpAddr::V4(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        IpAddr::V6(_) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 1),
    };
    let route = MainRoute {
        destination,
        prefix: 0,
        interface: interface.into(),
        gateway: None,
        metric,
    };
    route
        .ioctl_route(libc::SIOCADDRT)
        .map_err(|e| Error::system(format!("add a default route through {interface}"), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_routes_are_refused_before_the_system_call() {
        let route = MainRoute {
            destination: "192.0.2.0".parse().expect("an address"),
            prefix: 24,
            interface: "lo".into(),
            gateway: None,
            metric: 100,
        };
        assert!(route.validate().is_ok());
        let wrong = [
            (
                MainRoute {
                    metric: 0,
                    ..route.clone()
                },
                ": the metric is not from 1 to 32766",
            ),
            (
                MainRoute {
                    metric: 32_767,
                    ..route.clone()
                },
                ": the metric is not from 1 to 32766",
            ),
            (
                MainRoute {
                    prefix: 33,
                    ..route.clone()
                },
                ": the prefix is longer than the address",
            ),
            (
                MainRoute {
                    gateway: "fd00::1".parse().ok(),
                    ..route.clone()
                },
                ": the gateway has another address family",
            ),
        ];
        for (route, why) in wrong {
            let error = route.add().expect_err("the route is not valid").to_string();
            assert!(
                error.contains("add the route to 192.0.2.0/") && error.contains(why),
                "{error}"
            );
        }
        let v6 = MainRoute {
            destination: "fd00::".parse().expect("an address"),
            prefix: 128,
            ..route
        };
        assert!(v6.validate().is_ok());
    }
}
