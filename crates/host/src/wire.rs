//! Ethernet interfaces as wires: everything that arrives is read, and everything written is sent.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::{fs, mem};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::uio::{readv, writev};

use crate::frame::{NEEDS_CHECKSUM, VNET_HEADER_BYTES};
use crate::headers::ETHERNET_HEADER_BYTES;
use crate::{Error, interface};

/// Length of the link header before a frame: the Ethernet header, plus two bytes of alignment.
pub const LINK_HEADER_BYTES: usize = 16;

/// Options of packet sockets that are missing in the libc crate, linux/if_packet.h.
const PACKET_ADD_MEMBERSHIP: libc::c_int = 1;
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const PACKET_MR_PROMISC: libc::c_ushort = 1;

/// Mirrors `struct packet_mreq`.
#[repr(C)]
struct Membership {
    interface: libc::c_int,
    kind: libc::c_ushort,
    address_length: libc::c_ushort,
    address: [u8; 8],
}

/// Binds a packet socket to the packets of all protocols on one interface.
pub(crate) fn bind_to_interface(socket: &OwnedFd, index: libc::c_int) -> io::Result<()> {
    // SAFETY: a zeroed sockaddr_ll is valid: it consists of numbers.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let length = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `address`, which outlives the call.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            length,
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// An interface used as a wire: all incoming packets are read, whatever their destination, and no
/// outgoing ones.
///
/// Frames are like those of a [`Tun`](crate::Tun) with
/// [segmentation](crate::Offload::Segmentation), after the Ethernet header.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
    name: String,
}

impl Wire {
    /// Opens an interface of the calling thread's namespace and brings it up. An interface with a
    /// default route is refused, since remote users of this host would be cut off.
    pub fn open(name: &str) -> Result<Wire, Error> {
        let what = || format!("open the interface {name} as a wire");
        if !interface::exists(name)? {
            return Err(Error::system(
                what(),
                io::Error::from(io::ErrorKind::NotFound),
            ));
        }
        if carries_default_route(name) {
            return Err(Error::CarriesDefaultRoute { name: name.into() });
        }
        let mut request = interface::ifreq(name)?;
        interface::ioctl(AddressFamily::Inet, libc::SIOCGIFHWADDR, &mut request)
            .map_err(|e| Error::system(what(), e))?;
        // SAFETY: SIOCGIFHWADDR has written this field of the union.
        let kind = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family;
        if kind != libc::ARPHRD_ETHER {
            return Err(Error::NotEthernet { name: name.into() });
        }
        let index = interface::index(name)? as libc::c_int;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol nothing is received until it is bound to one interface.
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)
            .map_err(|e| Error::system(what(), e))?;
        let wire = Wire {
            socket,
            name: name.into(),
        };
        let on: libc::c_int = 1;
        let everything = Membership {
            interface: index,
            kind: PACKET_MR_PROMISC,
            address_length: 0,
            address: [0; 8],
        };
        wire.set_option(PACKET_VNET_HDR, &on)
            .and_then(|()| wire.set_option(PACKET_IGNORE_OUTGOING, &on))
            .and_then(|()| wire.set_option(PACKET_ADD_MEMBERSHIP, &everything))
            .and_then(|()| bind_to_interface(&wire.socket, index))
            .map_err(|e| Error::system(what(), e))?;
        interface::bring_up(name)?;
        Ok(wire)
    }

    fn set_option<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of `value`, which outlives the call.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                std::ptr::from_ref(value).cast(),
                length,
            )
        };
        Errno::result(result)?;
        Ok(())
    }

    /// Returns the name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one frame, preceded by [`LINK_HEADER_BYTES`] bytes; `None` if there is none. A frame
    /// longer than the buffer is truncated.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some((link, frame)) = buffer.split_at_mut_checked(LINK_HEADER_BYTES) else {
            return Ok(Some(0));
        };
        let Some((header, packet)) = frame.split_at_mut_checked(VNET_HEADER_BYTES) else {
            return Ok(Some(0));
        };
        let read = loop {
            let mut pieces = [
                &mut header[..],
                &mut link[..ETHERNET_HEADER_BYTES],
                &mut packet[..],
            ]
            .map(IoSliceMut::new);
            match readv(&self.socket, &mut pieces) {
                Ok(read) => break read,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        };
        shift_offsets(header, |at| at.saturating_sub(ETHERNET_HEADER_BYTES as u16));
        Ok(Some(read + LINK_HEADER_BYTES - ETHERNET_HEADER_BYTES))
    }

    /// Sends one frame, in two pieces, with the link header of its arrival.
    pub fn write(&self, link: &[u8], pieces: [&[u8]; 2]) -> io::Result<()> {
        let [first, rest] = pieces;
        let (Some((header, packet)), Some(link)) = (
            first.split_first_chunk::<VNET_HEADER_BYTES>(),
            link.get(..ETHERNET_HEADER_BYTES),
        ) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut header = *header;
        shift_offsets(&mut header, |at| {
            at.saturating_add(ETHERNET_HEADER_BYTES as u16)
        });
        writev(
            &self.socket,
            &[&header[..], link, packet, rest].map(IoSlice::new),
        )?;
        Ok(())
    }
}

/// Shifts the offsets in a virtio-net header: the header length, and the start of the checksum.
fn shift_offsets(header: &mut [u8], by: impl Fn(u16) -> u16) {
    let partial = header[0] & NEEDS_CHECKSUM != 0;
    for (at, moves) in [(2, header[1] != 0), (6, partial)] {
        if moves {
            let moved = by(u16::from_ne_bytes([header[at], header[at + 1]]));
            header[at..at + 2].copy_from_slice(&moved.to_ne_bytes());
        }
    }
}

/// Returns true if the interface, in the calling thread's namespace, has a default route.
fn carries_default_route(name: &str) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (
        read("/proc/thread-self/net/route"),
        read("/proc/thread-self/net/ipv6_route"),
    );
    // Columns: interface, destination, gateway, flags, counts, metric, mask.
    let v4 = v4
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut v4 =
        v4.filter(|words| words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000"));
    // Columns: destination and prefix length, source and prefix length, next hop, metric, counts,
    // flags, interface.
    let v6 = v6
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut v6 = v6.filter(|words| {
        let flags = words
            .get(8)
            .and_then(|flags| u32::from_str_radix(flags, 16).ok());
        // The kernel's own entry rejects unrouted packets.
        let leads = flags.is_some_and(|flags| flags & u32::from(libc::RTF_REJECT) == 0);
        leads
            && words.get(1) == Some(&"00")
            && words
                .first()
                .is_some_and(|to| to.bytes().all(|b| b == b'0'))
    });
    v4.any(|words| words.first() == Some(&name)) || v6.any(|words| words.last() == Some(&name))
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
