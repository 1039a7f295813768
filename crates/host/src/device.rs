//! TUN devices: the IP packets of a namespace, read and written through a file descriptor.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

use crate::{Error, Frame, interface};

/// Packets that the kernel queues for the reader: 100 ms of full-sized packets at 1 Gbit/s. With
/// fewer, a reader that sleeps for a while loses packets that its emulated link should have queued.
/// Drops are counted in [`interface_stats`](crate::interface_stats).
const QUEUE_PACKETS: u32 = 10_000;

/// Offloads that a device offers to the namespace that sends through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// None: packets of at most the MTU, with complete checksums.
    #[default]
    None,
    /// Segmentation and checksums: a [`Frame`](crate::Frame) may contain many packets of one flow,
    /// of TCP or, since Linux 6.2, UDP.
    Segmentation,
}

/// A TUN device. Packets sent through it by its namespace are read here; packets written here are
/// received there.
///
/// Every packet follows a virtio-net header; [`Frame`](crate::Frame) reads and writes both. The
/// device exists as long as this value, unless it is [persistent](Tun::persistent).
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    adopted: bool,
    /// The kernel supports UDP super-packets.
    udp_segmentation: bool,
}

/// Requirement on a device that is attached to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attach {
    /// Creates a device; fails if one of this name exists.
    New,
    /// Attaches to an existing device that no process holds.
    Existing,
}

impl Tun {
    /// Creates a device of this name in the calling thread's namespace and brings it up with these
    /// addresses and prefix lengths. Packets are at most `mtu` bytes; with segmentation offload a
    /// frame may contain many of them. The kernel's own IPv6 traffic (neighbour discovery,
    /// multicast reports) is disabled unless an address is IPv6.
    pub fn create(
        name: &str,
        mtu: u32,
        addresses: &[(IpAddr, u8)],
        offload: Offload,
    ) -> Result<Tun, Error> {
        let tun = Tun::attach(name, Attach::New, offload)?;
        tun.configure(mtu, addresses)?;
        Ok(tun)
    }

    /// Creates a device like [`create`](Tun::create) that persists after this value and its
    /// process, with its addresses and the routes through it. While no process holds it, packets
    /// sent through it are dropped. [`Tun::remove`] removes it.
    ///
    /// An existing TUN device of this name that no process holds is [adopted](Tun::adopted): its
    /// MTU and queue length are set, and the addresses are added to the ones it has (for IPv4 it
    /// has only one, the last). The kernel reopens the queue of an adopted device within
    /// milliseconds and drops packets sent before.
    pub fn persistent(
        name: &str,
        mtu: u32,
        addresses: &[(IpAddr, u8)],
        offload: Offload,
    ) -> Result<Tun, Error> {
        let tun = match Tun::attach(name, Attach::New, offload) {
            Err(Error::Exists { .. }) => Tun::attach(name, Attach::Existing, offload)?,
            made => made?,
        };
        tun.configure(mtu, addresses)?;
        // Last: a device whose setup failed is not left behind.
        tun.set_persistent(true)?;
        Ok(tun)
    }

    /// Removes a persistent device of the calling thread's namespace, together with the routes
    /// through it. Returns false if the interface does not exist. An interface that is not a TUN
    /// device, or that a process holds, is an error and stays.
    pub fn remove(name: &str) -> Result<bool, Error> {
        if !interface::exists(name)? {
            return Ok(false);
        }
        let tun = Tun::attach(name, Attach::Existing, Offload::None)?;
        tun.set_persistent(false)?;
        Ok(true)
    }

    /// Opens the driver and attaches to a device.
    fn attach(name: &str, attach: Attach, offload: Offload) -> Result<Tun, Error> {
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
        let mut request = interface::ifreq(name)?;
        let mut flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if attach == Attach::New {
            flags |= libc::IFF_TUN_EXCL;
        }
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes only the ifreq passed to it.
        let result =
            unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TUNSETIFF, &mut request) };
        Errno::result(result).map_err(|e| match (attach, e) {
            (Attach::New, Errno::EBUSY | Errno::EINVAL) => Error::Exists {
                what: format!("the interface {name}"),
                remove: format!("ip link delete {name}"),
            },
            (Attach::New, _) => Error::system(format!("create the interface {name}"), e),
            (Attach::Existing, Errno::EBUSY) => Error::InUse { name: name.into() },
            (Attach::Existing, Errno::EINVAL) => Error::NotTun { name: name.into() },
            (Attach::Existing, _) => Error::system(format!("adopt the interface {name}"), e),
        })?;
        let mut tun = Tun {
            file,
            name: name.into(),
            adopted: attach == Attach::Existing,
            udp_segmentation: false,
        };
        if tun.adopted {
            tun.reset_settings()?;
        }
        if offload == Offload::Segmentation {
            tun.udp_segmentation = tun.offer_segmentation()?;
        }
        Ok(tun)
    }

    /// Configures the interface and brings it up.
    fn configure(&self, mtu: u32, addresses: &[(IpAddr, u8)]) -> Result<(), Error> {
        let name = &self.name;
        let v6 = addresses.iter().any(|(address, _)| address.is_ipv6());
        // Fails harmlessly on a kernel without IPv6.
        let set = |variable: &str, value: &str| {
            let _ = interface::set_sysctl(&format!("net/ipv6/conf/{name}/{variable}"), value);
        };
        set("disable_ipv6", if v6 { "0" } else { "1" });
        if v6 {
            set("router_solicitations", "0");
        }
        interface::set_mtu(name, mtu)?;
        interface::set_queue_len(name, QUEUE_PACKETS)?;
        interface::bring_up(name)?;
        for (address, prefix) in addresses {
            interface::add_address(name, *address, *prefix)?;
        }
        Ok(())
    }

    /// Resets an adopted device to the state of a new one: the header length that
    /// [`Frame`](crate::Frame) expects, and no offloads.
    fn reset_settings(&self) -> Result<(), Error> {
        let what = || format!("configure the interface {}", self.name);
        let mut length = Frame::frame_bytes(0) as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads an int at the pointer, which outlives the call.
        let result = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                libc::TUNSETVNETHDRSZ,
                &raw mut length,
            )
        };
        Errno::result(result).map_err(|e| Error::system(what(), e))?;
        self.set_offload(0).map_err(|e| Error::system(what(), e))
    }

    /// Makes the device persistent, or not.
    fn set_persistent(&self, stay: bool) -> Result<(), Error> {
        let stay = libc::c_ulong::from(stay);
        // SAFETY: TUNSETPERSIST takes its argument by value and accesses no memory of ours.
        Errno::result(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETPERSIST, stay) })
            .map_err(|e| {
                Error::system(
                    format!("change the persistence of the interface {}", self.name),
                    e,
                )
            })?;
        Ok(())
    }

    /// Offers segmentation and checksum offload to the namespace. Returns true if UDP segmentation
    /// is included.
    fn offer_segmentation(&self) -> Result<bool, Error> {
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        // A kernel before 6.2 rejects the set if it includes UDP.
        if self.set_offload(tcp | udp).is_ok() {
            return Ok(true);
        }
        self.set_offload(tcp).map_err(|e| {
            Error::system(
                format!("enable segmentation offload on the interface {}", self.name),
                e,
            )
        })?;
        Ok(false)
    }

    fn set_offload(&self, features: libc::c_uint) -> Result<(), Errno> {
        let features = libc::c_ulong::from(features);
        // SAFETY: TUNSETOFFLOAD takes its argument by value and accesses no memory of ours.
        Errno::result(unsafe {
            libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD, features)
        })?;
        Ok(())
    }

    /// Returns true if the device existed before and was left by another owner.
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// Returns true if the device accepts UDP super-packets, which requires
    /// [segmentation](Offload::Segmentation) and Linux 6.2. It accepts TCP super-packets in any
    /// case.
    pub fn supports_udp_segmentation(&self) -> bool {
        self.udp_segmentation
    }

    /// Returns the name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one frame, including its header; `None` if there is none. A frame longer than the
    /// buffer is truncated.
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

    /// Sends one frame, in two pieces, to the namespace.
    pub fn write(&self, pieces: [&[u8]; 2]) -> io::Result<()> {
        (&self.file)
            .write_vectored(&pieces.map(IoSlice::new))
            .map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
