//! Datagrams with kernel timestamps (`SO_TIMESTAMPING`), taken when the driver or the interface had
//! each of them.
//!
//! `quinn-udp` reports neither transmit timestamps nor those of an interface, so the system calls
//! are made here, also with many datagrams per call in both directions. The difference is
//! segmentation offload: a large packet split by the kernel or the interface, or coalesced by the
//! receiver, has a single timestamp for all its datagrams. DX's authors had to calibrate this burst
//! error away. Here each datagram is a packet of its own and traverses the stack alone
//! (docs/transfer.md gives the cost). If one interrupt delivers many packets, their timestamps are
//! still too close together.
//!
//! The kernel numbers the packets that it sends on a socket, and queues each timestamp with its
//! number (`SOF_TIMESTAMPING_OPT_ID`) and without the packet (`OPT_TSONLY`) on the error queue.

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

use super::clock_converter::KernelStamp;
use super::socket::DatagramMarks;

/// Datagrams per call, in either direction. At this number the calls already make up less than a
/// tenth of the cost.
pub(super) const DATAGRAMS_PER_CALL_MAX: usize = 32;

/// Buffer for a datagram's control messages, bytes: timestamps 64, ECN 24, interface and address
/// 40, and an error report 64.
const CONTROL_BUFFER_BYTES: usize = 256;

/// `SO_EE_ORIGIN_TIMESTAMPING` and `SCM_TSTAMP_SND` of linux/errqueue.h: the report is a timestamp
/// and not an error, taken when the driver had the packet.
const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;
const SCM_TSTAMP_SND: u32 = 0;

/// `SOF_TIMESTAMPING_OPT_TX_SWHW`: requests the kernel's timestamp in addition to the interface's
/// (Linux 4.13).
const SOF_TIMESTAMPING_OPT_TX_SWHW: u32 = 1 << 14;

/// Source of packet timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamping {
    /// User space: the times of the send and receive calls.
    #[default]
    Off,
    /// Kernel: the time at which its driver has a packet. Every Linux interface supports it for
    /// received packets, nearly every one for sent packets.
    Software,
    /// Network interface, if supported and enabled, else the kernel.
    Hardware,
}

/// Timestamping state of a socket.
#[derive(Debug)]
pub(super) struct KernelStamps {
    stamping: Stamping,
    departures: bool,
    /// Number that the kernel assigns to the next datagram.
    next_number: u32,
    /// Set if a datagram rejected for lack of room does not consume a number (since Linux 6.9).
    exact_numbers: bool,
}

/// Metadata of a received datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct StampedDatagram {
    pub from: SocketAddr,
    pub marks: DatagramMarks,
    pub length: usize,
    /// Bytes of each datagram in a GRO batch; the last may be shorter.
    pub segment_bytes: usize,
    pub stamp: KernelStamp,
}

impl KernelStamps {
    /// Enables timestamps for received datagrams, and for sent ones if `departures` is set.
    pub fn switch_on(
        socket: &UdpSocket,
        stamping: Stamping,
        departures: bool,
    ) -> io::Result<KernelStamps> {
        // Datagrams coalesced by GRO would share a timestamp.
        let _ = setsockopt(socket, sockopt::UdpGroSegment, &false);
        set(socket, flags(stamping, departures))?;
        Ok(KernelStamps {
            stamping,
            departures,
            next_number: 0,
            exact_numbers: has_exact_numbers(),
        })
    }

    /// Disables timestamps.
    pub fn switch_off(socket: &UdpSocket) -> io::Result<()> {
        let _ = setsockopt(socket, sockopt::UdpGroSegment, &true);
        set(socket, TimestampingFlag::empty())
    }

    /// Returns true if sent datagrams are timestamped.
    pub fn departures(&self) -> bool {
        self.departures
    }

    /// Sends `contents` as datagrams of `size` bytes, the last of which may be shorter. Returns the
    /// number of datagrams accepted and the kernel's number of the first. If there is no room it
    /// accepts fewer, or returns `WouldBlock`.
    pub fn send(
        &mut self,
        socket: &UdpSocket,
        to: SocketAddr,
        contents: &[u8],
        size: usize,
        marks: DatagramMarks,
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
            .take(DATAGRAMS_PER_CALL_MAX)
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
        let first = self.next_number;
        let count = match sent {
            Ok(sent) => sent.count(),
            Err(why) => {
                self.resynchronize(socket, why)?;
                return Err(why.into());
            }
        };
        self.next_number = first.wrapping_add(count as u32);
        if count < slices.len() {
            // `sendmmsg` does not report why it stopped. If the socket is writable, the reason was
            // not a full buffer.
            let why = if has_room(socket) {
                Errno::ENOBUFS
            } else {
                Errno::EAGAIN
            };
            self.resynchronize(socket, why)?;
        }
        Ok((count, first))
    }

    /// Resynchronizes the numbers after a rejected datagram. Whether the kernel counted it depends
    /// on the error and on the kernel version.
    fn resynchronize(&mut self, socket: &UdpSocket, why: Errno) -> io::Result<()> {
        if !self.departures || (self.exact_numbers && why == Errno::EAGAIN) {
            return Ok(());
        }
        // Disabling and enabling resets the kernel's counter.
        set(socket, flags(self.stamping, false))?;
        set(socket, flags(self.stamping, true))?;
        self.next_number = 0;
        Ok(())
    }
}

/// Returns true if the socket's send buffer has room.
fn has_room(socket: &UdpSocket) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Receives up to [`DATAGRAMS_PER_CALL_MAX`] datagrams or GRO batches, each into its own `size`
/// bytes of `buffers`.
pub(super) fn receive(
    socket: &UdpSocket,
    buffers: &mut [u8],
    size: usize,
    arrived: &mut Vec<StampedDatagram>,
) -> io::Result<()> {
    arrived.clear();
    let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
        .chunks_exact_mut(size)
        .take(DATAGRAMS_PER_CALL_MAX)
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
        // A datagram longer than the buffer is not from a peer; it is kept as an empty one so that
        // indices still match.
        let length = if truncated { 0 } else { message.bytes };
        arrived.push(StampedDatagram {
            from: from.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0))),
            marks: DatagramMarks::from_byte(byte),
            length,
            segment_bytes: if each == 0 { length } else { each },
            stamp,
        });
    }
    Ok(())
}

/// Reads transmit timestamps and network errors from the error queue. Returns the last error.
pub(super) fn departures(
    socket: &UdpSocket,
    mut take: impl FnMut(u32, KernelStamp),
) -> Option<io::Error> {
    let mut trouble = None;
    loop {
        let mut buffers = [0; DATAGRAMS_PER_CALL_MAX];
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
            .chunks_exact_mut(1)
            .map(|b| [IoSliceMut::new(b)])
            .collect();
        let mut headers = headers(DATAGRAMS_PER_CALL_MAX);
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
                        if error.ee_origin != SO_EE_ORIGIN_TIMESTAMPING {
                            trouble = Some(io::Error::from_raw_os_error(error.ee_errno as i32));
                        } else if let (Some(stamp), SCM_TSTAMP_SND) = (stamp, error.ee_info) {
                            take(error.ee_data, stamp);
                        }
                    }
                    _ => {}
                }
            }
        }
        if count < DATAGRAMS_PER_CALL_MAX {
            return trouble;
        }
    }
}

/// Allocates headers for one call. They cannot be reused: the kernel overwrites the control
/// buffer's length with the length used.
fn headers(count: usize) -> MultiHeaders<SockaddrStorage> {
    MultiHeaders::preallocate(count, Some(Vec::with_capacity(CONTROL_BUFFER_BYTES)))
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
                | F::from_bits_retain(SOF_TIMESTAMPING_OPT_TX_SWHW)
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

/// Returns true if the kernel does not count a datagram rejected for lack of room: "make sk_tskey
/// more predictable in error path", Linux 6.9.
fn has_exact_numbers() -> bool {
    let release =
        nix::sys::utsname::uname().map(|uname| uname.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_default();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(9))
}
