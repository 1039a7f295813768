//! Interfaces of the calling thread's namespace: state, addresses, MTU and statistics.

use std::fs;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::Error;

/// Maximum length of an interface name including the terminating NUL, linux/if.h.
const NAME_BYTES_MAX: usize = libc::IFNAMSIZ;

/// Drop counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStats {
    /// Outgoing packets that were dropped; on a TUN device because its queue was full.
    pub tx_dropped: u64,
    /// Incoming packets that were dropped before the host processed them.
    pub rx_dropped: u64,
}

/// Returns the statistics of an interface in the calling thread's namespace.
pub fn interface_stats(name: &str) -> Result<InterfaceStats, Error> {
    let path = "/proc/thread-self/net/dev";
    let text = fs::read_to_string(path).map_err(|e| Error::system(format!("read {path}"), e))?;
    parse_stats(&text, name).ok_or_else(|| {
        Error::system(
            format!("read the statistics of {name}"),
            io::Error::from(io::ErrorKind::NotFound),
        )
    })
}

/// Returns true if the kernel supports IPv6.
pub fn has_ipv6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6").exists()
}

/// Makes every address of an IPv4 network local to the calling thread's namespace: sockets may bind
/// to any of them, and packets to any of them are received.
///
/// On the loopback interface a whole network is local, like 127.0.0.0/8. `address` is the one that
/// the interface shows.
pub fn add_local_network(address: Ipv4Addr, prefix: u8) -> Result<(), Error> {
    // With a label of its own; without one it would replace 127.0.0.1.
    add_address("lo:hosts", IpAddr::V4(address), prefix)
}

/// Sets a variable below `/proc/sys/` in the calling thread's namespace.
pub(crate) fn set_sysctl(variable: &str, value: &str) -> Result<(), Error> {
    fs::write(format!("/proc/sys/{variable}"), value)
        .map_err(|e| Error::system(format!("set {variable} to `{value}`"), e))
}

/// Reads a variable below `/proc/sys/` in the calling thread's namespace.
pub(crate) fn sysctl(variable: &str) -> Result<String, Error> {
    fs::read_to_string(format!("/proc/sys/{variable}"))
        .map_err(|e| Error::system(format!("read {variable}"), e))
}

/// Brings an interface up.
pub(crate) fn bring_up(name: &str) -> Result<(), Error> {
    let what = || format!("bring the interface {name} up");
    let mut request = ifreq(name)?;
    ioctl(AddressFamily::Inet, libc::SIOCGIFFLAGS, &mut request)
        .map_err(|e| Error::system(what(), e))?;
    // SAFETY: SIOCGIFFLAGS has written this field of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    ioctl(AddressFamily::Inet, libc::SIOCSIFFLAGS, &mut request)
        .map_err(|e| Error::system(what(), e))
}

/// Returns the MTU of an interface in bytes.
pub fn mtu(name: &str) -> Result<u32, Error> {
    let mut request = ifreq(name)?;
    ioctl(AddressFamily::Inet, libc::SIOCGIFMTU, &mut request)
        .map_err(|e| Error::system(format!("read the MTU of {name}"), e))?;
    // SAFETY: SIOCGIFMTU has written this field of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
}

/// Sets the MTU of an interface in bytes.
pub fn set_mtu(name: &str, bytes: u32) -> Result<(), Error> {
    let mut request = ifreq(name)?;
    request.ifr_ifru.ifru_mtu = bytes as libc::c_int;
    ioctl(AddressFamily::Inet, libc::SIOCSIFMTU, &mut request)
        .map_err(|e| Error::system(format!("set the MTU of {name} to {bytes}"), e))
}

/// Sets the number of packets that the kernel queues before it drops.
pub(crate) fn set_queue_len(name: &str, packets: u32) -> Result<(), Error> {
    let mut request = ifreq(name)?;
    request.ifr_ifru.ifru_metric = packets as libc::c_int;
    ioctl(AddressFamily::Inet, libc::SIOCSIFTXQLEN, &mut request)
        .map_err(|e| Error::system(format!("set the queue of {name} to {packets} packets"), e))
}

/// Adds an address to an interface, with its prefix as an on-link route. Succeeds if the address is
/// there already. An interface has only one IPv4 address set this way, so a new one replaces it; it
/// may have any number of IPv6 addresses.
pub fn add_address(name: &str, address: IpAddr, prefix: u8) -> Result<(), Error> {
    let what = || format!("give {name} the address {address}/{prefix}");
    match address {
        IpAddr::V4(v4) => {
            let mut request = ifreq(name)?;
            request.ifr_ifru.ifru_addr = sockaddr_v4(v4);
            ioctl(AddressFamily::Inet, libc::SIOCSIFADDR, &mut request)
                .map_err(|e| Error::system(what(), e))?;
            request.ifr_ifru.ifru_netmask = sockaddr_v4(mask_v4(prefix));
            ioctl(AddressFamily::Inet, libc::SIOCSIFNETMASK, &mut request)
                .map_err(|e| Error::system(what(), e))
        }
        IpAddr::V6(v6) => {
            let mut request = libc::in6_ifreq {
                ifr6_addr: in6_addr(v6),
                ifr6_prefixlen: u32::from(prefix.min(128)),
                ifr6_ifindex: index(name)? as libc::c_int,
            };
            match ioctl(AddressFamily::Inet6, libc::SIOCSIFADDR, &mut request) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                added => added.map_err(|e| Error::system(what(), e))?,
            }
            wait_for_address(v6).map_err(|e| Error::system(what(), e))
        }
    }
}

/// Waits until an IPv6 address is usable: the kernel confirms it a moment after it was added.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel has no notification, so this polls"
)]
fn wait_for_address(address: Ipv6Addr) -> io::Result<()> {
    const ATTEMPTS_MAX: u32 = 2_000;
    for _ in 1..ATTEMPTS_MAX {
        if UdpSocket::bind((address, 0)).is_ok() {
            return Ok(());
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
    UdpSocket::bind((address, 0)).map(|_| ())
}

/// Returns an interface request for `name`, with everything else zero.
pub(crate) fn ifreq(name: &str) -> Result<libc::ifreq, Error> {
    // SAFETY: a zeroed ifreq is valid: it consists of numbers, addresses and null pointers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_name = name_bytes(name)?;
    Ok(request)
}

/// Returns true if an interface of this name exists.
pub(crate) fn exists(name: &str) -> Result<bool, Error> {
    name_bytes(name)?;
    match nix::net::if_::if_nametoindex(name) {
        Ok(_) => Ok(true),
        Err(Errno::ENODEV) => Ok(false),
        Err(e) => Err(Error::system(format!("find the interface {name}"), e)),
    }
}

pub(crate) fn name_bytes(name: &str) -> Result<[libc::c_char; NAME_BYTES_MAX], Error> {
    let fits = !name.is_empty()
        && name.len() < NAME_BYTES_MAX
        && name.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    if !fits {
        return Err(Error::BadName {
            name: name.into(),
            what: "an interface",
            why: "use 1 to 15 printable characters without `/`",
        });
    }
    let mut bytes = [0; NAME_BYTES_MAX];
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(bytes)
}

pub(crate) fn index(name: &str) -> Result<u32, Error> {
    nix::net::if_::if_nametoindex(name)
        .map_err(|e| Error::system(format!("find the interface {name}"), e))
}

/// Performs one `ioctl` on a socket of this family. `argument` is the structure that the request is
/// defined with.
pub(crate) fn ioctl<T>(
    family: AddressFamily,
    request: libc::c_ulong,
    argument: &mut T,
) -> io::Result<()> {
    let socket: OwnedFd = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: the callers pair each request with the structure that it reads and writes
    // (netdevice(7), ipv6(7), rtentry in linux/route.h, linux/ethtool.h, linux/net_tstamp.h). The
    // kernel accesses nothing beyond it, and everything it points to outlives the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request, argument as *mut T) };
    Errno::result(result)?;
    Ok(())
}

/// Returns the network mask of `prefix` bits.
pub(crate) fn mask_v4(prefix: u8) -> Ipv4Addr {
    let bits = u32::from(prefix.min(32));
    Ipv4Addr::from(u32::MAX.checked_shl(32 - bits).unwrap_or(0))
}

pub(crate) fn sockaddr_v4(address: Ipv4Addr) -> libc::sockaddr {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(SocketAddrV4::new(address, 0).ip().octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: sockaddr is the generic form of sockaddr_in and has the same size; both consist of
    // plain numbers.
    unsafe { mem::transmute::<libc::sockaddr_in, libc::sockaddr>(address) }
}

fn in6_addr(address: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr {
        s6_addr: address.octets(),
    }
}

/// Finds an interface in `/proc/net/dev`: name, then eight receive and eight transmit counters.
fn parse_stats(text: &str, name: &str) -> Option<InterfaceStats> {
    let counters = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let mut numbers = counters
        .split_ascii_whitespace()
        .map(|number| number.parse().ok());
    Some(InterfaceStats {
        rx_dropped: numbers.nth(3)??,
        tx_dropped: numbers.nth(7)??,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_found_by_name_and_column() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo\n    \
             lo:       1       2    3    4    5     6          7         8        9      10   11   12   13\n \
             link0:     100   200    0   400    0     0          0         0      900    1000    0  1200    0\n";
        let stats = parse_stats(text, "link0");
        let expected = InterfaceStats {
            rx_dropped: 400,
            tx_dropped: 1200,
        };
        assert_eq!(stats, Some(expected));
        assert_eq!(parse_stats(text, "link"), None);
        assert_eq!(parse_stats("link0: 1 2", "link0"), None);
    }

    #[test]
    fn names_that_the_kernel_would_cut_are_refused() {
        assert!(name_bytes("link0").is_ok());
        for bad in ["", "sixteen-letters-", "a/b", "a b", "ä"] {
            assert!(
                matches!(name_bytes(bad), Err(Error::BadName { .. })),
                "{bad}"
            );
        }
    }
}
