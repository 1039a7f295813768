//! TUN devices: IP packets of a namespace, read and written as files.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

use crate::{Error, interface};

/// How many packets the kernel keeps for the reader before it drops: 100 ms of full packets at 1 Gbit/s. Too few and
/// a reader that sleeps for a while loses packets that its link should have queued; the count of what was lost is in
/// [`interface_stats`](crate::interface_stats).
const QUEUE_LEN: u32 = 10_000;

/// A TUN device: what its namespace sends through it is read here, what is written here is received there.
///
/// The device exists as long as this value.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Makes a device of this name in the calling thread's namespace, up, with these addresses (and prefix lengths).
    /// Packets are at most `mtu` bytes and come whole, checksums included: no offload is offered to the namespace.
    /// The kernel's own IPv6 chatter (neighbour discovery, multicast reports) is kept off unless an address is IPv6.
    pub fn create(name: &str, mtu: u32, addresses: &[(IpAddr, u8)]) -> Result<Tun, Error> {
        let path = "/dev/net/tun";
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => Error::NoTunDriver,
                _ => Error::system(format!("open {path}"), e),
            })?;
        let mut request = interface::request(name)?;
        // TUN_EXCL: never take over a device that somebody else made.
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes the ifreq that it is given, nothing else.
        let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TUNSETIFF, &mut request) };
        Errno::result(result).map_err(|e| match e {
            Errno::EBUSY | Errno::EINVAL => Error::Exists {
                what: format!("the interface {name}"),
                remove: format!("ip link delete {name}"),
            },
            _ => Error::system(format!("make the interface {name}"), e),
        })?;
        let tun = Tun {
            file,
            name: name.into(),
        };
        let v6 = addresses.iter().any(|(address, _)| address.is_ipv6());
        // A kernel without IPv6 has nothing to switch off.
        let chatter = format!(
            "net/ipv6/conf/{name}/{}",
            if v6 { "router_solicitations" } else { "disable_ipv6" }
        );
        let _ = interface::set_sysctl(&chatter, if v6 { "0" } else { "1" });
        interface::set_mtu(name, mtu)?;
        interface::set_queue_len(name, QUEUE_LEN)?;
        interface::up(name)?;
        for (address, prefix) in addresses {
            interface::add_address(name, *address, *prefix)?;
        }
        Ok(tun)
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one packet; `None` when there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.file).read(buffer) {
                Ok(length) => return Ok(Some(length)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives one packet to the namespace.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
