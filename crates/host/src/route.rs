//! Routes of the calling thread's namespace: which interface takes what is sent where.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::sys::socket::AddressFamily;

use crate::Error;
use crate::interface::{control, index, mask_v4, name_bytes, sockaddr_v4};

/// The largest metric that both families take: IPv4's is one less than a signed number of 16 bits
/// (`struct rtentry`).
const MOST_METRIC: u16 = 32_766;

/// A route in the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to: an address of the network, whose bits beyond the prefix do not count.
    pub destination: IpAddr,
    /// How many of its bits name the network; 0 is what has no better route.
    pub prefix: u8,
    /// Through which interface.
    pub interface: String,
    /// The next router there, of the destination's family; `None` if the interface leads to the
    /// destination itself.
    pub gateway: Option<IpAddr>,
    /// Of two routes to the same network the lower metric is taken: 1 to 32766. A fallback, taken
    /// when the better one is gone, has the higher.
    pub metric: u16,
}

impl Route {
    /// Adds it; `false` if the same one is there already.
    pub fn add(&self) -> Result<bool, Error> {
        let added = self.check().and_then(|()| self.change(libc::SIOCADDRT));
        self.outcome(added, io::ErrorKind::AlreadyExists, "add")
    }

    /// Removes it; `false` if it is not there. A route also goes with its interface, and when that
    /// goes down.
    pub fn remove(&self) -> Result<bool, Error> {
        let removed = self.check().and_then(|()| self.change(libc::SIOCDELRT));
        self.outcome(removed, io::ErrorKind::NotFound, "remove")
    }

    fn outcome(
        &self,
        result: io::Result<()>,
        already: io::ErrorKind,
        verb: &str,
    ) -> Result<bool, Error> {
        let Route {
            destination,
            prefix,
            interface,
            ..
        } = self;
        match result {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == already => Ok(false),
            // No such route, and no such interface any more: neither has a kind of its own.
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

    fn check(&self) -> io::Result<()> {
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !(1..=MOST_METRIC).contains(&self.metric) {
            return wrong("its metric has to be from 1 to 32766");
        }
        if self.prefix > if self.destination.is_ipv4() { 32 } else { 128 } {
            return wrong("its prefix is longer than the address");
        }
        if self
            .gateway
            .is_some_and(|gateway| gateway.is_ipv4() != self.destination.is_ipv4())
        {
            return wrong("its gateway is of the other address family");
        }
        Ok(())
    }

    /// `SIOCADDRT` or `SIOCDELRT`.
    fn change(&self, request: libc::c_ulong) -> io::Result<()> {
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
                // SAFETY: an rtentry of zeros is valid: numbers, addresses and null pointers.
                let mut route: libc::rtentry = unsafe { mem::zeroed() };
                route.rt_dst =
                    sockaddr_v4(Ipv4Addr::from(u32::from(destination) & u32::from(mask)));
                route.rt_genmask = sockaddr_v4(mask);
                if let Some(IpAddr::V4(gateway)) = self.gateway {
                    route.rt_gateway = sockaddr_v4(gateway);
                }
                route.rt_flags = flags;
                // One more than what the kernel shows, "for binary compatibility"; 0 is none.
                route.rt_metric = if self.metric == 0 {
                    0
                } else {
                    self.metric as libc::c_short + 1
                };
                route.rt_dev = name.as_mut_ptr();
                control(AddressFamily::Inet, request, &mut route)
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
                control(AddressFamily::Inet6, request, &mut route)
            }
        }
    }
}

/// `struct in6_rtmsg` of linux/ipv6_route.h, whose fields libc keeps to itself.
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

/// Sends what has no better route, of the address family of `family`, to `interface` (of the
/// calling thread's namespace), before everything with a metric.
pub fn add_default_route(interface: &str, family: IpAddr) -> Result<(), Error> {
    let (destination, metric) = match family {
        IpAddr::V4(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        IpAddr::V6(_) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 1),
    };
    let route = Route {
        destination,
        prefix: 0,
        interface: interface.into(),
        gateway: None,
        metric,
    };
    route
        .change(libc::SIOCADDRT)
        .map_err(|e| Error::system(format!("add a default route through {interface}"), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_route_is_refused_before_the_kernel_sees_it() {
        let route = Route {
            destination: "192.0.2.0".parse().expect("an address"),
            prefix: 24,
            interface: "lo".into(),
            gateway: None,
            metric: 100,
        };
        assert!(route.check().is_ok());
        let wrong = [
            Route {
                metric: 0,
                ..route.clone()
            },
            Route {
                metric: 32_767,
                ..route.clone()
            },
            Route {
                prefix: 33,
                ..route.clone()
            },
            Route {
                gateway: "fd00::1".parse().ok(),
                ..route.clone()
            },
        ];
        for route in wrong {
            let error = route.add().expect_err("it is wrong").to_string();
            assert!(
                error.contains("add the route to 192.0.2.0/") && error.contains(": its "),
                "{error}"
            );
        }
        let v6 = Route {
            destination: "fd00::".parse().expect("an address"),
            prefix: 128,
            ..route
        };
        assert!(v6.check().is_ok());
    }
}
