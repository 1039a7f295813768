//! A UDP socket that sends and receives many datagrams a system call, with their ECN codepoint and
//! DSCP.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, SockaddrStorage, bind, getsockopt,
    sendmsg, setsockopt, socket, sockopt,
};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

use super::realtime::KernelStamp;
use super::stamped::{self, Arrived, Stamping, Stamps};

/// Bytes of the largest UDP datagram over IPv4, and of a batch that the kernel cuts.
pub const LARGEST: usize = 65_507;

/// Buffers a receiving call fills, each with what the kernel joined. More would spare calls on a
/// host with many cores; eight are half a megabyte, which a core's cache holds.
const BUFFERS: usize = 8;
const BUFFER: usize = 1 << 16;

/// Requested size of the kernel's socket buffers, bytes. Below the bandwidth-delay product of the
/// fastest path, a burst that arrives while this process is not running is lost. The kernel
/// includes its own overhead in the size, and grants less without root.
const KERNEL_BUFFER: usize = 32 << 20;

/// Requested size of the receive buffer for handshakes, bytes: some 600 short datagrams, or 100 of
/// full size. What a flood sends beyond it is dropped by the kernel.
const HANDSHAKE_BUFFER: usize = 256 << 10;
/// Requested size of the send buffer for answers to handshakes, bytes. The kernel doubles it and
/// counts 768 bytes per short answer. So some 85 of them wait for ARP at a time, which keeps most
/// of the 1,024 entries of the neighbour table for others.
const ANSWER_BUFFER: usize = 32 << 10;

/// Pattern of the first byte of the datagrams that begin a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstByte {
    /// Bits to compare.
    pub mask: u8,
    /// Their values.
    pub value: u8,
}

/// The socket.
#[derive(Debug)]
pub struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    stamps: Option<Stamps>,
    /// The kernel and the device cut a batch into datagrams.
    cuts: Cell<bool>,
    /// Datagrams in a batch where it is cut.
    most: usize,
    /// Nothing was refused yet.
    smooth: Cell<bool>,
}

/// How a datagram is marked in its IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The two bits of ECN: 0 not capable, 1 ECT(1), 2 ECT(0), 3 congestion experienced.
    pub ecn: u8,
    /// The six bits of the Differentiated Services codepoint (RFC 2474).
    pub dscp: u8,
}

impl Marks {
    /// From the byte of the IP header (RFC 2474, RFC 3168).
    pub(super) fn of(byte: u8) -> Marks {
        Marks {
            ecn: byte & 3,
            dscp: byte >> 2,
        }
    }
}

/// Datagrams that came in one call.
pub struct Inbox {
    buffers: Box<[u8]>,
    meta: [RecvMeta; BUFFERS],
    /// With stamps each datagram has a buffer of its own.
    arrived: Vec<Arrived>,
}

impl Socket {
    /// Binds to an address; port 0 is any free one. Datagrams are never fragmented.
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        let io = UdpSocket::bind(address)?;
        let state = UdpSocketState::new((&io).into())?;
        let most = state.max_gso_segments();
        // `quinn-udp` asks for the time of arrival too, and has then room for one control message
        // too few: of what the kernel joined, the ECN bits, which come last, would be lost.
        setsockopt(&io, sockopt::ReceiveTimestampns, &false)?;
        // With the permission to exceed the system's limit, or else up to it.
        if setsockopt(&io, sockopt::RcvBufForce, &KERNEL_BUFFER).is_err() {
            setsockopt(&io, sockopt::RcvBuf, &KERNEL_BUFFER)?;
        }
        let local = io.local_addr()?;
        Ok(Socket {
            io,
            state,
            local,
            stamps: None,
            cuts: Cell::new(true),
            most,
            smooth: Cell::new(true),
        })
    }

    /// Binds a second socket to the same address, which from now on receives all datagrams that
    /// begin with such a byte. A flood of them fills its buffers and not those of this socket, and
    /// so do answers that are sent by it and wait for ARP. Both sockets have to be of one network
    /// namespace.
    ///
    /// The two form a reuseport group. This socket is bound exclusively, so nobody else is in it.
    pub fn split_handshakes(&self, first: FirstByte) -> io::Result<Socket> {
        setsockopt(&self.io, sockopt::ReusePort, &true)?;
        let family = match self.local {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let second = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&second, sockopt::ReusePort, &true)?;
        setsockopt(&second, sockopt::RcvBuf, &HANDSHAKE_BUFFER)?;
        setsockopt(&second, sockopt::SndBuf, &ANSWER_BUFFER)?;
        bind(second.as_raw_fd(), &SockaddrStorage::from(self.local))?;
        let second = UdpSocket::from(second);
        // Fails if the second socket is in another namespace and has a group of its own.
        self.select_second(first)?;
        let state = UdpSocketState::new((&second).into())?;
        setsockopt(&second, sockopt::ReceiveTimestampns, &false)?;
        // Datagrams that the kernel joins would be sorted by the first of them.
        setsockopt(&second, sockopt::UdpGroSegment, &false)?;
        let split = Socket {
            most: state.max_gso_segments(),
            io: second,
            state,
            local: self.local,
            stamps: None,
            cuts: Cell::new(true),
            smooth: Cell::new(true),
        };
        // What came before the program was attached may be of either kind.
        let mut inbox = Inbox::new();
        while !split.receive(&mut inbox)?.is_empty() {}
        Ok(split)
    }

    /// Attaches the program of the reuseport group: 1, the second socket, for a datagram that
    /// begins a handshake, and 0 for any other. An empty one ends the program, which is 0 too.
    fn select_second(&self, first: FirstByte) -> io::Result<()> {
        let step = |code: u32, jt, jf, k: u32| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        let mut program = [
            step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0),
            step(
                libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
                0,
                0,
                first.mask.into(),
            ),
            step(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                0,
                1,
                first.value.into(),
            ),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 1),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        ];
        let program = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        Ok(setsockopt(
            &self.io,
            sockopt::AttachReusePortCbpf,
            &program,
        )?)
    }

    /// The same socket for another thread: what arrives comes to whoever asks first. Stamps are not
    /// taken along.
    pub fn try_clone(&self) -> io::Result<Socket> {
        let io = self.io.try_clone()?;
        let state = UdpSocketState::new((&io).into())?;
        let most = state.max_gso_segments();
        setsockopt(&io, sockopt::ReceiveTimestampns, &false)?;
        Ok(Socket {
            io,
            state,
            local: self.local,
            stamps: None,
            cuts: Cell::new(true),
            most,
            smooth: Cell::new(true),
        })
    }

    /// The address that it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Makes the kernel stamp what arrives from now on, and what is sent if `departures` are
    /// wanted. [`Stamping::Off`] ends it. Afterwards use `send_each` and `receive_each`.
    pub fn stamp(&mut self, stamping: Stamping, departures: bool) -> io::Result<()> {
        self.stamps = match stamping {
            Stamping::Off => {
                if self.stamps.is_some() {
                    Stamps::switch_off(&self.io)?;
                }
                None
            }
            _ => Some(Stamps::switch_on(&self.io, stamping, departures)?),
        };
        Ok(())
    }

    /// Whether what arrives is stamped.
    pub(crate) fn is_stamped(&self) -> bool {
        self.stamps.is_some()
    }

    /// Whether what is sent is stamped too.
    pub(crate) fn stamps_departures(&self) -> bool {
        self.stamps.as_ref().is_some_and(Stamps::departures)
    }

    /// How many datagrams one [`send`](Socket::send) may hold.
    pub fn batch(&self) -> usize {
        if self.is_stamped() {
            stamped::MOST
        } else if self.cuts.get() {
            self.most
        } else {
            1
        }
    }

    /// Sends `contents`, cut into datagrams of `size` bytes and a last one of at most that, each a
    /// packet of its own: how many of them the kernel took, and its number of the first, by which
    /// [`departures`](Socket::departures) knows them. `WouldBlock` while there is no room.
    pub(crate) fn send_each(
        &mut self,
        to: SocketAddr,
        contents: &[u8],
        size: usize,
        marks: Marks,
    ) -> io::Result<(usize, u32)> {
        match &mut self.stamps {
            Some(stamps) => stamps.send(&self.io, to, contents, size, marks),
            None => self.send(to, contents, size, marks).map(|taken| (taken, 0)),
        }
    }

    /// Takes what has arrived, with its marking in full, which [`receive`](Socket::receive) does
    /// not tell.
    pub fn receive_marked<'a>(&self, inbox: &'a mut Inbox) -> io::Result<Stamped<'a>> {
        self.receive_each(inbox, BUFFER)
    }

    /// Bytes that were sent and wait in a queue or a driver of this host, with the kernel's
    /// overhead.
    pub(crate) fn unsent(&self) -> io::Result<usize> {
        ccplane_host::unsent_bytes(self.io.as_fd())
    }

    /// Bytes that may wait there before a [`send`](Socket::send) finds no room.
    pub(crate) fn send_buffer(&self) -> usize {
        getsockopt(&self.io, sockopt::SndBuf).unwrap_or_default()
    }

    /// Takes what has arrived, with the kernel's stamps; datagrams of at most `longest` bytes.
    pub(crate) fn receive_each<'a>(
        &self,
        inbox: &'a mut Inbox,
        longest: usize,
    ) -> io::Result<Stamped<'a>> {
        let size = longest.clamp(1, BUFFER);
        stamped::receive(&self.io, &mut inbox.buffers, size, &mut inbox.arrived)?;
        Ok(Stamped { inbox, size })
    }

    /// Gives the numbers and stamps of what was sent, as far as they are known by now; and what the
    /// network said of a datagram that could not be delivered, if anything.
    pub(crate) fn departures(&self, take: impl FnMut(u32, KernelStamp)) -> Option<io::Error> {
        stamped::departures(&self.io, take)
    }

    /// Sends `contents`, cut into datagrams of `size` bytes and a last one of at most that: how
    /// many of them the kernel took, which is all but where it has to have them one by one and runs
    /// out of room. `WouldBlock` while there is no room at all.
    ///
    /// `quinn-udp` allocates nothing for it. But it writes the whole traffic-class byte and offers
    /// only its two ECN bits, loses a batch that is not cut, and after one refusal marks nothing
    /// any more. So what has a DSCP, and all from the first refusal on, goes through `sendmsg` with
    /// the byte in full.
    pub fn send(
        &self,
        to: SocketAddr,
        contents: &[u8],
        size: usize,
        marks: Marks,
    ) -> io::Result<usize> {
        if marks.dscp != 0 || !self.smooth.get() {
            return self.send_marked(to, contents, size, marks);
        }
        let transmit = Transmit {
            destination: to,
            ecn: EcnCodepoint::from_bits(marks.ecn),
            contents,
            segment_size: Some(size),
            src_ip: None,
        };
        match self.state.try_send((&self.io).into(), &transmit) {
            Ok(()) => Ok(contents.len().div_ceil(size.max(1))),
            Err(why)
                if [Errno::EIO, Errno::EINVAL]
                    .map(|no| Some(no as i32))
                    .contains(&why.raw_os_error()) =>
            {
                self.smooth.set(false);
                self.send_marked(to, contents, size, marks)
            }
            Err(why) => Err(why),
        }
    }

    /// As one batch, or one by one where those are not cut: the kernel says so only when it is
    /// given one.
    fn send_marked(
        &self,
        to: SocketAddr,
        contents: &[u8],
        size: usize,
        marks: Marks,
    ) -> io::Result<usize> {
        let size = size.max(1);
        let count = contents.len().div_ceil(size);
        if count > 1 && self.cuts.get() {
            match self.send_cut(to, contents, Some(size), marks) {
                Err(Errno::EIO | Errno::EINVAL) => {}
                sent => return Ok(sent.map(|()| count)?),
            }
        }
        let mut taken = 0;
        for datagram in contents.chunks(size) {
            match self.send_cut(to, datagram, None, marks) {
                Ok(()) => taken += 1,
                Err(Errno::EAGAIN) if taken > 0 => break,
                Err(why) => return Err(why.into()),
            }
        }
        if count > 1 {
            // Each of them passes, so it was the cutting, and not their address.
            self.cuts.set(false);
        }
        Ok(taken)
    }

    /// One call: one datagram, or one that is cut into such of `size` bytes.
    fn send_cut(
        &self,
        to: SocketAddr,
        contents: &[u8],
        size: Option<usize>,
        marks: Marks,
    ) -> Result<(), Errno> {
        let byte = marks.dscp << 2 | marks.ecn & 3;
        let (wide, size) = (i32::from(byte), size.map(|size| size as u16));
        let mark = if to.ip().to_canonical().is_ipv4() {
            ControlMessage::Ipv4Tos(&byte)
        } else {
            ControlMessage::Ipv6TClass(&wide)
        };
        let cut = size.as_ref().map(ControlMessage::UdpGsoSegments);
        let both = [mark, cut.unwrap_or(mark)];
        let control = if cut.is_some() { &both[..] } else { &both[..1] };
        let text = [io::IoSlice::new(contents)];
        let to = SockaddrStorage::from(to);
        sendmsg(
            self.io.as_raw_fd(),
            &text,
            control,
            MsgFlags::empty(),
            Some(&to),
        )?;
        Ok(())
    }

    /// Takes what has arrived, up to some hundred datagrams; false if there is nothing.
    ///
    /// `quinn-udp` gives the ECN bits of what was received but not its DSCP: who needs that calls
    /// [`receive_marked`](Socket::receive_marked), at the price of some allocations a call.
    pub fn receive<'a>(&self, inbox: &'a mut Inbox) -> io::Result<Received<'a>> {
        let mut chunks = inbox.buffers.chunks_exact_mut(BUFFER);
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let filled = match self
            .state
            .recv((&self.io).into(), &mut slices, &mut inbox.meta)
        {
            Ok(filled) => filled,
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => 0,
            Err(why) => return Err(why),
        };
        Ok(Received {
            buffers: &mut inbox.buffers,
            meta: &inbox.meta[..filled],
        })
    }

    /// Keeps what routers and other hosts say of datagrams that could not be delivered, for
    /// `unreachable`. Anybody can forge that: it is for who has no connection yet.
    pub fn hear_errors(&self) -> io::Result<()> {
        self.state.enable_transport_errors((&self.io).into())
    }

    /// What a router or the other host said of a datagram that could not be delivered, if anything
    /// was said.
    pub(crate) fn unreachable(&self) -> Option<io::Error> {
        if self.is_stamped() {
            // With departures they come with those.
            let alone = !self.stamps_departures();
            return alone.then(|| self.departures(|_, _| ())).flatten();
        }
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
            arrived: Vec::new(),
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

/// What one call received, with stamps.
pub struct Stamped<'a> {
    inbox: &'a mut Inbox,
    size: usize,
}

impl Stamped<'_> {
    /// Whether there was anything.
    pub fn is_empty(&self) -> bool {
        self.inbox.arrived.is_empty()
    }

    /// As much as one call takes: there may be more.
    pub fn is_full(&self) -> bool {
        self.inbox.arrived.len() == stamped::MOST.min(self.inbox.buffers.len() / self.size)
    }

    /// The stamp and length of each, in the order of arrival.
    pub fn stamps(&self, mut take: impl FnMut(KernelStamp, usize)) {
        self.inbox
            .arrived
            .iter()
            .for_each(|arrived| take(arrived.stamp, arrived.length));
    }

    /// Gives each datagram to `take`, with its sender's address, marking and stamp.
    pub fn each(self, mut take: impl FnMut(SocketAddr, Marks, KernelStamp, &mut [u8])) {
        let buffers = self.inbox.buffers.chunks_exact_mut(self.size);
        for (buffer, arrived) in buffers.zip(&self.inbox.arrived) {
            let length = arrived.length.min(buffer.len());
            // An empty one has its place too.
            let (whole, rest) = buffer[..length].split_at_mut(arrived.each.min(length));
            take(arrived.from, arrived.marks, arrived.stamp, whole);
            for datagram in rest.chunks_mut(arrived.each.max(1)) {
                take(arrived.from, arrived.marks, arrived.stamp, datagram);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux cuts no more than 128 datagrams a call (`UDP_MAX_SEGMENTS`, once 64): what it says of
    /// more is what it says where a device cannot do what cutting needs.
    #[test]
    fn a_batch_arrives_with_its_marks_where_the_kernel_does_not_cut_it() {
        for (ecn, dscp) in [(2, 3), (1, 0), (0, 0)] {
            arrives_uncut(Marks { ecn, dscp });
        }
    }

    fn arrives_uncut(marks: Marks) {
        let here = "127.0.0.1:0".parse().unwrap();
        let (sender, receiver) = (Socket::bind(here).unwrap(), Socket::bind(here).unwrap());
        let contents: Vec<u8> = (0..=u8::MAX)
            .flat_map(|place| [place; 10])
            .chain([7; 4])
            .collect();

        // Nobody has port 0: nothing is learned of cutting.
        let nobody = SocketAddr::from(([127, 0, 0, 1], 0));
        let refused = sender.send(nobody, &contents[..20], 10, marks);
        assert_eq!(
            refused.unwrap_err().raw_os_error(),
            Some(Errno::EINVAL as i32)
        );
        assert!(sender.batch() > 1);

        assert_eq!(
            sender.send(receiver.local(), &contents, 10, marks).unwrap(),
            257
        );
        assert_eq!(sender.batch(), 1, "from now on one by one");
        assert_eq!(
            sender
                .send(receiver.local(), &contents[..15], 10, marks)
                .unwrap(),
            2
        );

        let (mut inbox, mut found) = (Inbox::new(), Vec::new());
        while found.len() < contents.len() + 15 {
            let received = receiver.receive_marked(&mut inbox).unwrap();
            received.each(|from, seen, _, datagram| {
                assert_eq!((from, seen), (sender.local(), marks));
                found.extend_from_slice(datagram);
            });
        }
        assert_eq!(found, [&contents[..], &contents[..15]].concat());
    }

    /// Datagrams that wait in a socket.
    fn waiting(socket: &Socket) -> Vec<Vec<u8>> {
        let (mut inbox, mut found) = (Inbox::new(), Vec::new());
        loop {
            let received = socket.receive(&mut inbox).unwrap();
            if received.is_empty() {
                return found;
            }
            received.each(|_, _, datagram| found.push(datagram.to_vec()));
        }
    }

    const BEGINS: FirstByte = FirstByte {
        mask: 0b110,
        value: 0b100,
    };

    #[test]
    fn datagrams_that_begin_a_handshake_arrive_at_the_second_socket() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = Socket::bind(address.parse().unwrap()) else {
                continue;
            };
            let second = socket.split_handshakes(BEGINS).unwrap();
            assert_eq!(second.local(), socket.local());
            let other = UdpSocket::bind(address).unwrap();
            let sent: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte; 20]).collect();
            for datagram in &sent {
                other.send_to(datagram, socket.local()).unwrap();
            }
            let (begin, rest): (Vec<_>, Vec<_>) =
                sent.into_iter().partition(|sent| sent[0] & 0b110 == 0b100);
            assert_eq!(waiting(&second), begin);
            assert_eq!(waiting(&socket), rest);
            // An answer comes from the address that was asked.
            second
                .send(other.local_addr().unwrap(), b"answer", 6, Marks::default())
                .unwrap();
            assert_eq!(other.recv_from(&mut [0; 10]).unwrap(), (6, socket.local()));
        }
    }

    #[test]
    fn a_flood_of_handshakes_leaves_the_first_sockets_buffer_to_others() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let second = socket.split_handshakes(BEGINS).unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        for n in 0..100_000 {
            let flood = [0b100; 1_000];
            other.send_to(&flood, socket.local()).unwrap();
            if n % 1_000 == 0 {
                other.send_to(b"\0data", socket.local()).unwrap();
            }
        }
        assert_eq!(waiting(&socket).len(), 100);
        let kept = waiting(&second).len();
        assert!((50..2_000).contains(&kept), "{kept}");
    }

    #[test]
    fn an_address_stays_exclusive_after_its_handshakes_are_split() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let _second = socket.split_handshakes(BEGINS).unwrap();
        let taken = Socket::bind(socket.local()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
