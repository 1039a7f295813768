//! TUN devices: IP packets of a namespace, read and written as files.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

use crate::{Error, interface};

/// How many packets the kernel keeps for the reader before it drops: 100 ms of full packets at 1 Gbit/s. Too few and
/// a reader that sleeps for a while loses packets that its link should have queued; the count of what was lost is in
/// [`interface_stats`](crate::interface_stats).
const QUEUE_LEN: u32 = 10_000;

/// What a device does for the namespace that sends through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Nothing: packets of at most the MTU, checksums complete.
    #[default]
    None,
    /// Segmentation and checksums: a [`Frame`](crate::Frame) may stand for many packets of one flow, TCP or, since
    /// Linux 6.2, UDP.
    Segmentation,
}

/// A TUN device: what its namespace sends through it is read here, what is written here is received there.
///
/// Every packet has a virtio-net header in front; [`Frame`](crate::Frame) reads and writes both. The device exists as
/// long as this value.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Makes a device of this name in the calling thread's namespace, up, with these addresses (and prefix lengths).
    /// Packets are at most `mtu` bytes; what is read may stand for many of them, if `offload` says so.
    /// The kernel's own IPv6 chatter (neighbour discovery, multicast reports) is kept off unless an address is IPv6.
    pub fn create(name: &str, mtu: u32, addresses: &[(IpAddr, u8)], offload: Offload) -> Result<Tun, Error> {
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
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
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
        if offload == Offload::Segmentation {
            tun.offer_segmentation()?;
        }
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

    /// Lets the namespace send super-packets and leave checksums to whoever segments.
    fn offer_segmentation(&self) -> Result<(), Error> {
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        let offer = |features: libc::c_uint| {
            let features = libc::c_ulong::from(features);
            // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
            Errno::result(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD, features) })
        };
        // A kernel before 6.2 knows nothing of UDP's and refuses the whole.
        offer(tcp | udp)
            .or_else(|_| offer(tcp))
            .map_err(|e| Error::system(format!("offer segmentation on the interface {}", self.name), e))?;
        Ok(())
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one frame, header included; `None` when there is none. What does not fit in the buffer is cut off.
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

    /// Gives one frame, made of these pieces, to the namespace.
    pub fn write(&self, pieces: [&[u8]; 2]) -> io::Result<()> {
        (&self.file).write_vectored(&pieces.map(IoSlice::new)).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
