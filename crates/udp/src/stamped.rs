//! Datagrams with the kernel's time stamps (`SO_TIMESTAMPING`): when the driver, or the interface
//! itself, had each of them.
//!
//! `quinn-udp` gives no stamps of departures and none of an interface, so the system calls are made
//! here: many datagrams a call, in both directions, as it does. The difference is segmentation
//! offload. A large packet that the kernel or the interface cuts, or that the receiver joins, has
//! one stamp for all its datagrams: the burst error that DX's authors had to calibrate away. So
//! each datagram is a packet of its own here, and passes the stack alone (docs/transfer.md has the
//! cost). Where one interrupt brings many packets, their stamps are still too close together.
//!
//! The kernel counts what it sends on a socket, and queues the stamp of each with its number
//! (`SOF_TIMESTAMPING_OPT_ID`), without the packet (`OPT_TSONLY`), as an error to be read.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, TimestampingFlag,
    Timestamps, recvmmsg, sendmmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use super::realtime::KernelStamp;
use super::socket::Marks;

/// Datagrams a call, in either direction. More would spare calls; this many already leave less than
/// a tenth of the cost to them.
pub(super) const MOST: usize = 32;

/// Room for the control messages of a datagram: stamps 64, ECN 24, interface and address 40, and a
/// report of an error 64.
const CONTROL: usize = 256;

/// `SO_EE_ORIGIN_TIMESTAMPING` and `SCM_TSTAMP_SND` of linux/errqueue.h: a stamp and not an error,
/// of when the driver had the packet.
const STAMP: u8 = 4;
const SENT: u32 = 0;

/// `SOF_TIMESTAMPING_OPT_TX_SWHW`: the kernel's stamp too where there is one of the interface
/// (Linux 4.13).
const BOTH: u32 = 1 << 14;

/// Whose stamps are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamping {
    /// Nobody's: times are when user space sends and reads.
    #[default]
    Off,
    /// The kernel's, as its driver has a packet. Every interface that Linux knows gives them for
    /// arrivals, nearly every one for departures.
    Software,
    /// The interface's, where it gives them and they are switched on, and otherwise the kernel's.
    Hardware,
}

/// Numbers of the kernel's stamps, and whether they can be relied on.
#[derive(Debug)]
pub(super) struct Stamps {
    stamping: Stamping,
    departures: bool,
    /// The number that the kernel will give the next datagram.
    next: u32,
    /// A datagram that found no room has no number: since Linux 6.9.
    exact: bool,
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub from: SocketAddr,
    pub marks: Marks,
    pub length: usize,
    /// Bytes of each datagram, where the kernel joined several; the last may be shorter.
    pub each: usize,
    pub stamp: KernelStamp,
}

impl Stamps {
    /// Switches stamps on: of arrivals, and of departures if those are wanted too.
    pub fn switch_on(
        socket: &UdpSocket,
        stamping: Stamping,
        departures: bool,
    ) -> io::Result<Stamps> {
        // A datagram that the kernel joined to others would share their stamp.
        let _ = setsockopt(socket, sockopt::UdpGroSegment, &false);
        set(socket, flags(stamping, departures))?;
        Ok(Stamps {
            stamping,
            departures,
            next: 0,
            exact: has_exact_numbers(),
        })
    }

    /// Switches them off again.
    pub fn switch_off(socket: &UdpSocket) -> io::Result<()> {
        let _ = setsockopt(socket, sockopt::UdpGroSegment, &true);
        set(socket, TimestampingFlag::empty())
    }

    /// Whether departures are stamped.
    pub fn departures(&self) -> bool {
        self.departures
    }

    /// Sends `contents`, cut into datagrams of `size` bytes and a last one of at most that: how
    /// many were taken, and the kernel's number of the first. Fewer than all, or `WouldBlock`,
    /// while there is no room.
    pub fn send(
        &mut self,
        socket: &UdpSocket,
        to: SocketAddr,
        contents: &[u8],
        size: usize,
        marks: Marks,
    ) -> io::Result<(usize, u32)> {
        let byte = marks.dscp << 2 | marks.ecn & 3;
        let wide = i32::from(byte);
        let mark = if to.ip().to_canonical().is_ipv4() {
            ControlMessage::Ipv4Tos(&byte)
        } else {
            ControlMessage::Ipv6TClass(&wide)
        };
        let slices: Vec<[IoSlice<'_>; 1]> = contents
            .chunks(size.max(1))
            .take(MOST)
            .map(|datagram| [IoSlice::new(datagram)])
            .collect();
        let addresses = vec![Some(SockaddrStorage::from(to)); slices.len()];
        let mut headers = MultiHeaders::preallocate(slices.len(), Some(nix::cmsg_space!(i32)));
        let sent = sendmmsg(
            socket.as_raw_fd(),
            &mut headers,
            &slices,
            &addresses,
            [mark],
            MsgFlags::empty(),
        );
        let first = self.next;
        let count = match sent {
            Ok(sent) => sent.count(),
            Err(why) => {
                self.missed(socket, why)?;
                return Err(why.into());
            }
        };
        self.next = first.wrapping_add(count as u32);
        if count < slices.len() {
            // The call does not say why it stopped. A socket that could take more did not stop for
            // want of room.
            let why = if has_room(socket) {
                Errno::ENOBUFS
            } else {
                Errno::EAGAIN
            };
            self.missed(socket, why)?;
        }
        Ok((count, first))
    }

    /// A datagram was not taken: whether the kernel counted it depends on why, and on its version.
    fn missed(&mut self, socket: &UdpSocket, why: Errno) -> io::Result<()> {
        if !self.departures || (self.exact && why == Errno::EAGAIN) {
            return Ok(());
        }
        // The count begins anew when it is switched off and on.
        set(socket, flags(self.stamping, false))?;
        set(socket, flags(self.stamping, true))?;
        self.next = 0;
        Ok(())
    }
}

/// Whether the kernel would take a datagram, as far as the socket's own memory goes.
fn has_room(socket: &UdpSocket) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Takes up to [`MOST`] datagrams, or what the kernel joined of them, each into its part of
/// `buffers` of `size` bytes; none where nothing came.
pub(super) fn receive(
    socket: &UdpSocket,
    buffers: &mut [u8],
    size: usize,
    arrived: &mut Vec<Arrived>,
) -> io::Result<()> {
    arrived.clear();
    let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
        .chunks_exact_mut(size)
        .take(MOST)
        .map(|b| [IoSliceMut::new(b)])
        .collect();
    let mut headers = headers(slices.len());
    let received = match recvmmsg(
        socket.as_raw_fd(),
        &mut headers,
        slices.iter_mut(),
        MsgFlags::MSG_DONTWAIT,
        None,
    ) {
        Ok(received) => received,
        Err(Errno::EAGAIN) => return Ok(()),
        Err(why) => return Err(why.into()),
    };
    for message in received {
        let from = message.address.as_ref().and_then(address);
        let truncated = message.flags.contains(MsgFlags::MSG_TRUNC);
        let (mut byte, mut each, mut stamp) = (0, 0, KernelStamp::default());
        for control in message.cmsgs().into_iter().flatten() {
            match control {
                ControlMessageOwned::ScmTimestampsns(stamps) => stamp = of(&stamps),
                ControlMessageOwned::Ipv4Tos(tos) => byte = tos,
                ControlMessageOwned::Ipv6TClass(class) => byte = class as u8,
                ControlMessageOwned::UdpGroSegments(bytes) => {
                    each = usize::try_from(bytes).unwrap_or_default()
                }
                _ => {}
            }
        }
        // One that is too long for us is none of ours; it keeps its place, empty.
        let length = if truncated { 0 } else { message.bytes };
        arrived.push(Arrived {
            from: from.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0))),
            marks: Marks::of(byte),
            length,
            each: if each == 0 { length } else { each },
            stamp,
        });
    }
    Ok(())
}

/// Reads the stamps of departures, and errors that the network reported: the last of them.
pub(super) fn departures(
    socket: &UdpSocket,
    mut take: impl FnMut(u32, KernelStamp),
) -> Option<io::Error> {
    let mut trouble = None;
    loop {
        let mut buffers = [0; MOST];
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
            .chunks_exact_mut(1)
            .map(|b| [IoSliceMut::new(b)])
            .collect();
        let mut headers = headers(MOST);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let Ok(received) = recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            slices.iter_mut(),
            flags,
            None,
        ) else {
            return trouble;
        };
        let mut count = 0;
        for message in received {
            count += 1;
            let mut stamp = None;
            for control in message.cmsgs().into_iter().flatten() {
                match control {
                    ControlMessageOwned::ScmTimestampsns(stamps) => stamp = Some(of(&stamps)),
                    ControlMessageOwned::Ipv4RecvErr(error, _)
                    | ControlMessageOwned::Ipv6RecvErr(error, _) => {
                        if error.ee_origin != STAMP {
                            trouble = Some(io::Error::from_raw_os_error(error.ee_errno as i32));
                        } else if let (Some(stamp), SENT) = (stamp, error.ee_info) {
                            take(error.ee_data, stamp);
                        }
                    }
                    _ => {}
                }
            }
        }
        if count < MOST {
            return trouble;
        }
    }
}

/// New for every call: the kernel writes into them how much of the room it used, and only so much
/// would be offered the next time.
fn headers(count: usize) -> MultiHeaders<SockaddrStorage> {
    MultiHeaders::preallocate(count, Some(Vec::with_capacity(CONTROL)))
}

fn set(socket: &UdpSocket, flags: TimestampingFlag) -> io::Result<()> {
    setsockopt(socket, sockopt::Timestamping, &flags).map_err(io::Error::from)
}

fn flags(stamping: Stamping, departures: bool) -> TimestampingFlag {
    use TimestampingFlag as F;
    let software = F::SOF_TIMESTAMPING_SOFTWARE | F::SOF_TIMESTAMPING_RX_SOFTWARE;
    let numbered = F::SOF_TIMESTAMPING_OPT_ID | F::SOF_TIMESTAMPING_OPT_TSONLY;
    match (stamping, departures) {
        (Stamping::Off, _) => F::empty(),
        (Stamping::Software, false) => software,
        (Stamping::Software, true) => software | numbered | F::SOF_TIMESTAMPING_TX_SOFTWARE,
        (Stamping::Hardware, false) => {
            software | F::SOF_TIMESTAMPING_RAW_HARDWARE | F::SOF_TIMESTAMPING_RX_HARDWARE
        }
        (Stamping::Hardware, true) => {
            flags(Stamping::Hardware, false)
                | numbered
                | F::SOF_TIMESTAMPING_TX_SOFTWARE
                | F::SOF_TIMESTAMPING_TX_HARDWARE
                | F::from_bits_retain(BOTH)
        }
    }
}

fn of(stamps: &Timestamps) -> KernelStamp {
    let ns = |time: TimeSpec| {
        let ns = (time.tv_sec() as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(time.tv_nsec() as u64);
        (ns != 0).then_some(ns)
    };
    KernelStamp {
        software: ns(stamps.system),
        hardware: ns(stamps.hw_raw),
    }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage
        .as_sockaddr_in()
        .map(|a| SocketAddr::from((a.ip(), a.port())));
    v4.or_else(|| {
        storage
            .as_sockaddr_in6()
            .map(|a| SocketAddr::from((a.ip(), a.port())))
    })
}

/// Whether a datagram that finds no room is not counted: "make sk_tskey more predictable in error
/// path", Linux 6.9.
fn has_exact_numbers() -> bool {
    let release =
        nix::sys::utsname::uname().map(|uname| uname.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_default();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(9))
}
