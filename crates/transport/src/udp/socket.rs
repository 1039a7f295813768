//! A UDP socket that sends and receives many datagrams a system call, with their ECN codepoint and DSCP.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg, setsockopt, sockopt};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

/// Bytes of the largest UDP datagram over IPv4, and of a batch that the kernel cuts.
pub const LARGEST: usize = 65_507;

/// Buffers a receiving call fills, each with what the kernel joined. More would spare calls on a host with many
/// cores; eight are half a megabyte, which a core's cache holds.
const BUFFERS: usize = 8;
const BUFFER: usize = 1 << 16;

/// Wanted of the kernel's socket buffers, bytes. Below the bandwidth-delay product of the fastest path, a burst that comes
/// while this process is not running is lost; the kernel counts its own overhead in, and gives less to who is not root.
const KERNEL_BUFFER: usize = 32 << 20;

/// The socket.
#[derive(Debug)]
pub struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
}

/// How a datagram is marked in its IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The two bits of ECN: 0 not capable, 1 ECT(1), 2 ECT(0), 3 congestion experienced.
    pub ecn: u8,
    /// The six bits of the Differentiated Services codepoint (RFC 2474).
    pub dscp: u8,
}

/// Datagrams that came in one call.
pub struct Inbox {
    buffers: Box<[u8]>,
    meta: [RecvMeta; BUFFERS],
}

impl Socket {
    /// Binds to an address; port 0 is any free one. Datagrams are never fragmented.
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        let io = UdpSocket::bind(address)?;
        let state = UdpSocketState::new((&io).into())?;
        // `quinn-udp` asks for the time of arrival too, and has then room for one control message too few: of what the kernel
        // joined, the ECN bits, which come last, would be lost.
        setsockopt(&io, sockopt::ReceiveTimestampns, &false)?;
        // With the permission to exceed the system's limit, or else up to it.
        if setsockopt(&io, sockopt::RcvBufForce, &KERNEL_BUFFER).is_err() {
            setsockopt(&io, sockopt::RcvBuf, &KERNEL_BUFFER)?;
        }
        let local = io.local_addr()?;
        Ok(Socket { io, state, local })
    }

    /// The address that it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// How many datagrams one [`send`](Socket::send) may hold.
    pub fn batch(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends `contents`, cut into datagrams of `size` bytes and a last one of at most that. `WouldBlock` while there is no room.
    ///
    /// `quinn-udp` writes the whole traffic-class byte with every datagram and offers only its two ECN bits: a DSCP set on the
    /// socket would be lost. So what has a DSCP goes through `sendmsg` with the byte in full.
    pub fn send(&self, to: SocketAddr, contents: &[u8], size: usize, marks: Marks) -> io::Result<()> {
        if marks.dscp != 0 {
            return self.send_marked(to, contents, size, marks);
        }
        let transmit = Transmit {
            destination: to,
            ecn: EcnCodepoint::from_bits(marks.ecn),
            contents,
            segment_size: Some(size),
            src_ip: None,
        };
        self.state.try_send((&self.io).into(), &transmit)
    }

    fn send_marked(&self, to: SocketAddr, contents: &[u8], size: usize, marks: Marks) -> io::Result<()> {
        let byte = marks.dscp << 2 | marks.ecn & 3;
        let (wide, size) = (i32::from(byte), size as u16);
        let mark = if to.ip().to_canonical().is_ipv4() {
            ControlMessage::Ipv4Tos(&byte)
        } else {
            ControlMessage::Ipv6TClass(&wide)
        };
        let cut = ControlMessage::UdpGsoSegments(&size);
        let both = [mark, cut];
        let control = if contents.len() > usize::from(size) {
            &both[..]
        } else {
            &both[..1]
        };
        let text = [io::IoSlice::new(contents)];
        let to = SockaddrStorage::from(to);
        sendmsg(self.io.as_raw_fd(), &text, control, MsgFlags::empty(), Some(&to))?;
        Ok(())
    }

    /// Takes what has arrived, up to some hundred datagrams; false if there is nothing.
    ///
    /// `quinn-udp` gives the ECN bits of what was received but not its DSCP, which nothing here needs.
    pub fn receive<'a>(&self, inbox: &'a mut Inbox) -> io::Result<Received<'a>> {
        let mut chunks = inbox.buffers.chunks_exact_mut(BUFFER);
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let filled = match self.state.recv((&self.io).into(), &mut slices, &mut inbox.meta) {
            Ok(filled) => filled,
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => 0,
            Err(why) => return Err(why),
        };
        Ok(Received {
            buffers: &mut inbox.buffers,
            meta: &inbox.meta[..filled],
        })
    }

    /// Keeps what routers and other hosts say of datagrams that could not be delivered, for [`unreachable`](Socket::unreachable).
    /// Anybody can forge that: it is for who has no connection yet.
    pub fn hear_errors(&self) -> io::Result<()> {
        self.state.enable_transport_errors((&self.io).into())
    }

    /// What a router or the other host said of a datagram that could not be delivered, if anything was said.
    pub fn unreachable(&self) -> Option<io::Error> {
        let mut last = None;
        while let Ok(Some(error)) = self.state.recv_transport_error((&self.io).into()) {
            last = Some(io::Error::from_raw_os_error(error.raw_errno));
        }
        last
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl Inbox {
    /// Room for one call's datagrams, half a megabyte.
    pub fn new() -> Inbox {
        Inbox {
            buffers: vec![0; BUFFERS * BUFFER].into_boxed_slice(),
            meta: [RecvMeta::default(); BUFFERS],
        }
    }
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::new()
    }
}

/// What one call received.
pub struct Received<'a> {
    buffers: &'a mut [u8],
    meta: &'a [RecvMeta],
}

impl Received<'_> {
    /// Whether there was anything.
    pub fn is_empty(&self) -> bool {
        self.meta.is_empty()
    }

    /// As much as one call takes: there may be more.
    pub fn is_full(&self) -> bool {
        self.meta.len() == BUFFERS
    }

    /// Gives each datagram to `take`, with its sender's address and ECN bits.
    pub fn each(self, mut take: impl FnMut(SocketAddr, u8, &mut [u8])) {
        for (buffer, meta) in self.buffers.chunks_exact_mut(BUFFER).zip(self.meta) {
            let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
            let filled = &mut buffer[..meta.len.min(BUFFER)];
            for datagram in filled.chunks_mut(meta.stride.max(1)) {
                take(meta.addr, ecn, datagram);
            }
        }
    }
}
