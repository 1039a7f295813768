//! TUN devices: IP packets of a namespace, read and written as files.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

use crate::{Error, Frame, interface};

/// How many packets the kernel keeps for the reader before it drops: 100 ms of full packets at 1
/// Gbit/s. Too few and a reader that sleeps for a while loses packets that its link should have
/// queued; the count of what was lost is in [`interface_stats`](crate::interface_stats).
const QUEUE_LEN: u32 = 10_000;

/// What a device does for the namespace that sends through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Nothing: packets of at most the MTU, checksums complete.
    #[default]
    None,
    /// Segmentation and checksums: a [`Frame`](crate::Frame) may stand for many packets of one
    /// flow, TCP or, since Linux 6.2, UDP.
    Segmentation,
}

/// A TUN device: what its namespace sends through it is read here, what is written here is received
/// there.
///
/// Every packet has a virtio-net header in front; [`Frame`](crate::Frame) reads and writes both.
/// The device exists as long as this value, unless it is [persistent](Tun::persistent).
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    adopted: bool,
    /// The kernel knows super-packets of UDP.
    udp_runs: bool,
}

/// Whether a device has to be new.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attach {
    /// Never take over a device that somebody else made.
    New,
    /// One that is there, and that nobody holds.
    Existing,
}

impl Tun {
    /// Makes a device of this name in the calling thread's namespace, up, with these addresses (and
    /// prefix lengths). Packets are at most `mtu` bytes; what is read may stand for many of them,
    /// if `offload` says so. The kernel's own IPv6 chatter (neighbour discovery, multicast reports)
    /// is kept off unless an address is IPv6.
    pub fn create(
        name: &str,
        mtu: u32,
        addresses: &[(IpAddr, u8)],
        offload: Offload,
    ) -> Result<Tun, Error> {
        let tun = Tun::attach(name, Attach::New, offload)?;
        tun.set_up(mtu, addresses)?;
        Ok(tun)
    }

    /// The same for a device that stays when this value and its process are gone, with its
    /// addresses and the routes through it: while nobody holds it, what is sent through it is
    /// dropped. If a TUN device of that name is there and nobody holds it, it is
    /// [adopted](Tun::adopted): its MTU and queue are set anew, and the addresses added to those
    /// that it has (in IPv4 it has only one, the last given). The kernel opens the queue of an
    /// adopted device again within milliseconds, and drops what is sent before that.
    /// [`Tun::remove`] removes it.
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
        tun.set_up(mtu, addresses)?;
        // Last: what could not be set up leaves no device behind.
        tun.persist(true)?;
        Ok(tun)
    }

    /// Removes a persistent device of the calling thread's namespace; `false` if there is no such
    /// interface. Routes through it go with it. One that is no TUN device, or that a process holds,
    /// is left alone and an error.
    pub fn remove(name: &str) -> Result<bool, Error> {
        if !interface::exists(name)? {
            return Ok(false);
        }
        let tun = Tun::attach(name, Attach::Existing, Offload::None)?;
        tun.persist(false)?;
        Ok(true)
    }

    /// Opens the driver and takes a device.
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
        let mut request = interface::request(name)?;
        let mut flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if attach == Attach::New {
            flags |= libc::IFF_TUN_EXCL;
        }
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes the ifreq that it is given, nothing else.
        let result =
            unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TUNSETIFF, &mut request) };
        Errno::result(result).map_err(|e| match (attach, e) {
            (Attach::New, Errno::EBUSY | Errno::EINVAL) => Error::Exists {
                what: format!("the interface {name}"),
                remove: format!("ip link delete {name}"),
            },
            (Attach::New, _) => Error::system(format!("make the interface {name}"), e),
            (Attach::Existing, Errno::EBUSY) => Error::InUse { name: name.into() },
            (Attach::Existing, Errno::EINVAL) => Error::NotTun { name: name.into() },
            (Attach::Existing, _) => Error::system(format!("take over the interface {name}"), e),
        })?;
        let mut tun = Tun {
            file,
            name: name.into(),
            adopted: attach == Attach::Existing,
            udp_runs: false,
        };
        if tun.adopted {
            tun.forget_settings()?;
        }
        if offload == Offload::Segmentation {
            tun.udp_runs = tun.offer_segmentation()?;
        }
        Ok(tun)
    }

    /// Gives the interface all that it needs to be used.
    fn set_up(&self, mtu: u32, addresses: &[(IpAddr, u8)]) -> Result<(), Error> {
        let name = &self.name;
        let v6 = addresses.iter().any(|(address, _)| address.is_ipv6());
        // A kernel without IPv6 has nothing to switch off.
        let set = |variable: &str, value: &str| {
            let _ = interface::set_sysctl(&format!("net/ipv6/conf/{name}/{variable}"), value);
        };
        set("disable_ipv6", if v6 { "0" } else { "1" });
        if v6 {
            set("router_solicitations", "0");
        }
        interface::set_mtu(name, mtu)?;
        interface::set_queue_len(name, QUEUE_LEN)?;
        interface::up(name)?;
        for (address, prefix) in addresses {
            interface::add_address(name, *address, *prefix)?;
        }
        Ok(())
    }

    /// Makes an adopted device as a new one: with the header that [`Frame`](crate::Frame) knows,
    /// and nothing offered.
    fn forget_settings(&self) -> Result<(), Error> {
        let what = || format!("set up the interface {}", self.name);
        let mut length = Frame::longest(0) as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads an int from where it is told to, which outlives the call.
        let result = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                libc::TUNSETVNETHDRSZ,
                &raw mut length,
            )
        };
        Errno::result(result).map_err(|e| Error::system(what(), e))?;
        self.offer(0).map_err(|e| Error::system(what(), e))
    }

    /// Makes the device stay, or go with its owner.
    fn persist(&self, stay: bool) -> Result<(), Error> {
        let stay = libc::c_ulong::from(stay);
        // SAFETY: TUNSETPERSIST takes its argument by value and touches no memory of ours.
        Errno::result(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETPERSIST, stay) })
            .map_err(|e| {
                Error::system(format!("make the interface {} stay or go", self.name), e)
            })?;
        Ok(())
    }

    /// Lets the namespace send super-packets and leave checksums to whoever segments; says whether
    /// UDP's are among them.
    fn offer_segmentation(&self) -> Result<bool, Error> {
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        // A kernel before 6.2 knows nothing of UDP's and refuses the whole.
        if self.offer(tcp | udp).is_ok() {
            return Ok(true);
        }
        self.offer(tcp).map_err(|e| {
            Error::system(
                format!("offer segmentation on the interface {}", self.name),
                e,
            )
        })?;
        Ok(false)
    }

    fn offer(&self, features: libc::c_uint) -> Result<(), Errno> {
        let features = libc::c_ulong::from(features);
        // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
        Errno::result(unsafe {
            libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD, features)
        })?;
        Ok(())
    }

    /// Whether the device was there before, left by another owner.
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// Whether it takes super-packets of UDP: where [segmentation](Offload::Segmentation) was asked
    /// for and the kernel (since 6.2) knows them. It takes those of TCP in any case.
    pub fn takes_udp_runs(&self) -> bool {
        self.udp_runs
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one frame, header included; `None` when there is none. What does not fit in the buffer
    /// is cut off.
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
