//! UDP socket that sends and receives many datagrams per system call, with their ECN codepoint and
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

use super::clock_converter::KernelStamp;
use super::kernel_timestamps::{self, KernelStamps, StampedDatagram, Stamping};

/// Bytes of the largest UDP datagram over IPv4, and of the largest GSO batch.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Buffers per receive call, each for one GRO batch. More would save calls on a host with many
/// cores; eight take half a megabyte, which fits into a core's cache.
const RECEIVE_BUFFERS: usize = 8;
const RECEIVE_BUFFER_BYTES: usize = 1 << 16;

/// Requested size of the kernel's socket buffers, bytes. If it is smaller than the bandwidth-delay
/// product of the fastest path, a burst that arrives while this process is not running is lost. The
/// kernel counts its own overhead, and grants less without root.
const KERNEL_BUFFER_BYTES: usize = 32 << 20;

/// Requested receive buffer of the handshake socket, bytes: about 600 short or 100 full datagrams.
/// The kernel drops what a flood sends beyond it.
const HANDSHAKE_BUFFER_BYTES: usize = 256 << 10;
/// Requested send buffer of the handshake socket, bytes. The kernel doubles it and counts 768 bytes
/// per short answer. At most about 85 answers thus wait for ARP at a time, which leaves most of the
/// 1,024 entries of the neighbour table to others.
const ANSWER_BUFFER_BYTES: usize = 32 << 10;

/// Pattern of the first byte of handshake datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstByte {
    /// Bits to compare.
    pub mask: u8,
    /// Expected values of those bits.
    pub value: u8,
}

/// UDP socket with batched I/O.
#[derive(Debug)]
pub struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    stamps: Option<KernelStamps>,
    /// Set while GSO works: the kernel or the device splits a batch into datagrams.
    gso_enabled: Cell<bool>,
    /// Datagrams per GSO batch.
    gso_datagrams_max: usize,
    /// Set until the first send error.
    quinn_send_works: Cell<bool>,
}

/// ECN and DSCP marks in the IP header of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramMarks {
    /// ECN codepoint: 0 not ECN-capable, 1 ECT(1), 2 ECT(0), 3 congestion experienced.
    pub ecn: u8,
    /// Differentiated Services codepoint, six bits (RFC 2474).
    pub dscp: u8,
}

impl DatagramMarks {
    /// Decodes the traffic-class byte of the IP header (RFC 2474, RFC 3168).
    pub(super) fn from_byte(byte: u8) -> DatagramMarks {
        DatagramMarks {
            ecn: byte & 3,
            dscp: byte >> 2,
        }
    }
}

/// Buffers for the datagrams of one receive call.
pub struct Inbox {
    buffers: Box<[u8]>,
    meta: [RecvMeta; RECEIVE_BUFFERS],
    /// Metadata of timestamped datagrams, each in a buffer of its own.
    arrived: Vec<StampedDatagram>,
}

impl Socket {
    /// Binds to an address; port 0 selects any free port. Datagrams are never fragmented.
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        let io = UdpSocket::bind(address)?;
        let state = UdpSocketState::new((&io).into())?;
        let most = state.max_gso_segments();
        // `quinn-udp` also enables receive timestamps but has one control message too few for them:
        // on GRO batches the ECN bits, which come last, would be lost.
        setsockopt(&io, sockopt::ReceiveTimestampns, &false)?;
        // With `CAP_NET_ADMIN` the size may exceed the system's limit.
        if setsockopt(&io, sockopt::RcvBufForce, &KERNEL_BUFFER_BYTES).is_err() {
            setsockopt(&io, sockopt::RcvBuf, &KERNEL_BUFFER_BYTES)?;
        }
        let local = io.local_addr()?;
        Ok(Socket {
            io,
            state,
            local,
            stamps: None,
            gso_enabled: Cell::new(true),
            gso_datagrams_max: most,
            quinn_send_works: Cell::new(true),
        })
    }

    /// Binds a second socket to the same address, which from now on receives all datagrams whose
    /// first byte matches `first`. A flood of handshakes, or answers that wait for ARP, then fills
    /// the second socket's buffers and not this one's. Both sockets must be in the same network
    /// namespace.
    ///
    /// The two form a reuseport group. This socket was bound exclusively, so no other socket can be
    /// in the group.
    pub fn split_handshakes(&self, first: FirstByte) -> io::Result<Socket> {
        setsockopt(&self.io, sockopt::ReusePort, &true)?;
        let family = match self.local {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let second = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&second, sockopt::ReusePort, &true)?;
        setsockopt(&second, sockopt::RcvBuf, &HANDSHAKE_BUFFER_BYTES)?;
        setsockopt(&second, sockopt::SndBuf, &ANSWER_BUFFER_BYTES)?;
        bind(second.as_raw_fd(), &SockaddrStorage::from(self.local))?;
        let second = UdpSocket::from(second);
        // Fails if the second socket is in another namespace and thus in a group of its own.
        self.select_second(first)?;
        let state = UdpSocketState::new((&second).into())?;
        setsockopt(&second, sockopt::ReceiveTimestampns, &false)?;
        // A GRO batch would be classified by its first datagram.
        setsockopt(&second, sockopt::UdpGroSegment, &false)?;
        let split = Socket {
            gso_datagrams_max: state.max_gso_segments(),
            io: second,
            state,
            local: self.local,
            stamps: None,
            gso_enabled: Cell::new(true),
            quinn_send_works: Cell::new(true),
        };
        // Datagrams that arrived before the program was attached may be of either kind.
        let mut inbox = Inbox::new();
        while !split.receive(&mut inbox)?.is_empty() {}
        Ok(split)
    }

    /// Attaches the selection program of the reuseport group. It returns 1, the second socket, for
    /// a handshake datagram, else 0. On an empty datagram the load aborts the program, which also
    /// selects 0.
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

    /// Duplicates the socket for another thread; each datagram is delivered to one of the two.
    /// Timestamps are not enabled on the copy.
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
            gso_enabled: Cell::new(true),
            gso_datagrams_max: most,
            quinn_send_works: Cell::new(true),
        })
    }

    /// Returns the local address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Enables kernel timestamps for received datagrams, and for sent ones if `departures` is set;
    /// [`Stamping::Off`] disables them. While enabled, use `send_numbered` and
    /// `receive_timestamped`.
    pub fn set_timestamping(&mut self, stamping: Stamping, departures: bool) -> io::Result<()> {
        self.stamps = match stamping {
            Stamping::Off => {
                if self.stamps.is_some() {
                    KernelStamps::switch_off(&self.io)?;
                }
                None
            }
            _ => Some(KernelStamps::switch_on(&self.io, stamping, departures)?),
        };
        Ok(())
    }

    /// Returns true if received datagrams are timestamped.
    pub(crate) fn is_stamped(&self) -> bool {
        self.stamps.is_some()
    }

    /// Returns true if sent datagrams are timestamped.
    pub(crate) fn stamps_departures(&self) -> bool {
        self.stamps.as_ref().is_some_and(KernelStamps::departures)
    }

    /// Returns the maximum number of datagrams per [`send`](Socket::send).
    pub fn batch_max(&self) -> usize {
        if self.is_stamped() {
            kernel_timestamps::DATAGRAMS_PER_CALL_MAX
        } else if self.gso_enabled.get() {
            self.gso_datagrams_max
        } else {
            1
        }
    }

    /// Sends `contents` as datagrams of `size` bytes, the last of which may be shorter, each as a
    /// packet of its own. Returns the number of datagrams accepted and the kernel's number of the
    /// first, which identifies it in [`read_departures`](Socket::read_departures). `WouldBlock` if
    /// there is no room.
    pub fn send_numbered(
        &mut self,
        to: SocketAddr,
        contents: &[u8],
        size: usize,
        marks: DatagramMarks,
    ) -> io::Result<(usize, u32)> {
        match &mut self.stamps {
            Some(stamps) => stamps.send(&self.io, to, contents, size, marks),
            None => self.send(to, contents, size, marks).map(|taken| (taken, 0)),
        }
    }

    /// Receives datagrams with their full marks; [`receive`](Socket::receive) does not report the
    /// DSCP.
    pub fn receive_marked<'a>(&self, inbox: &'a mut Inbox) -> io::Result<StampedBatch<'a>> {
        self.receive_timestamped(inbox, RECEIVE_BUFFER_BYTES)
    }

    /// Returns the bytes queued in this host's qdiscs and drivers, including the kernel's overhead.
    pub(crate) fn unsent(&self) -> io::Result<usize> {
        ccplane_host::unsent_bytes(self.io.as_fd())
    }

    /// Returns the size of the send buffer in bytes.
    pub(crate) fn send_buffer(&self) -> usize {
        getsockopt(&self.io, sockopt::SndBuf).unwrap_or_default()
    }

    /// Receives datagrams of at most `longest` bytes with their kernel timestamps.
    pub(crate) fn receive_timestamped<'a>(
        &self,
        inbox: &'a mut Inbox,
        longest: usize,
    ) -> io::Result<StampedBatch<'a>> {
        let size = longest.clamp(1, RECEIVE_BUFFER_BYTES);
        kernel_timestamps::receive(&self.io, &mut inbox.buffers, size, &mut inbox.arrived)?;
        Ok(StampedBatch { inbox, size })
    }

    /// Passes the numbers and timestamps of sent datagrams to `take`, as far as they are known.
    /// Returns the last network error about an undeliverable datagram.
    pub fn read_departures(&self, take: impl FnMut(u32, KernelStamp)) -> Option<io::Error> {
        kernel_timestamps::departures(&self.io, take)
    }

    /// Sends `contents` as datagrams of `size` bytes, the last of which may be shorter. Returns the
    /// number of datagrams accepted: all of them, unless they have to be sent one by one and the
    /// buffer fills up. `WouldBlock` if there is no room at all.
    ///
    /// `quinn-udp` sends without allocating. But it writes the entire traffic-class byte while it
    /// offers only the two ECN bits, loses the batch if GSO fails, and stops marking after one
    /// error. Datagrams with a DSCP, and all datagrams after the first error, are therefore sent
    /// with `sendmsg` and the full byte.
    pub fn send(
        &self,
        to: SocketAddr,
        contents: &[u8],
        size: usize,
        marks: DatagramMarks,
    ) -> io::Result<usize> {
        if marks.dscp != 0 || !self.quinn_send_works.get() {
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
                self.quinn_send_works.set(false);
                self.send_marked(to, contents, size, marks)
            }
            Err(why) => Err(why),
        }
    }

    /// Sends a batch, or single datagrams if GSO does not work, which the kernel reports only when
    /// it is tried.
    fn send_marked(
        &self,
        to: SocketAddr,
        contents: &[u8],
        size: usize,
        marks: DatagramMarks,
    ) -> io::Result<usize> {
        let size = size.max(1);
        let count = contents.len().div_ceil(size);
        if count > 1 && self.gso_enabled.get() {
            match self.send_once(to, contents, Some(size), marks) {
                Err(Errno::EIO | Errno::EINVAL) => {}
                sent => return Ok(sent.map(|()| count)?),
            }
        }
        let mut taken = 0;
        for datagram in contents.chunks(size) {
            match self.send_once(to, datagram, None, marks) {
                Ok(()) => taken += 1,
                Err(Errno::EAGAIN) if taken > 0 => break,
                Err(why) => return Err(why.into()),
            }
        }
        if count > 1 {
            // The single datagrams were accepted, so the error was due to GSO and not to the
            // address.
            self.gso_enabled.set(false);
        }
        Ok(taken)
    }

    /// Makes one system call for one datagram, or for a GSO batch of datagrams of `size` bytes.
    fn send_once(
        &self,
        to: SocketAddr,
        contents: &[u8],
        size: Option<usize>,
        marks: DatagramMarks,
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

    /// Receives up to about a hundred datagrams; empty if there are none.
    ///
    /// `quinn-udp` reports the ECN bits of received datagrams but not their DSCP.
    /// [`receive_marked`](Socket::receive_marked) does, at the cost of a few allocations per call.
    pub fn receive<'a>(&self, inbox: &'a mut Inbox) -> io::Result<ReceivedBatch<'a>> {
        let mut chunks = inbox.buffers.chunks_exact_mut(RECEIVE_BUFFER_BYTES);
        let mut slices: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let filled = match self
            .state
            .recv((&self.io).into(), &mut slices, &mut inbox.meta)
        {
            Ok(filled) => filled,
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => 0,
            Err(why) => return Err(why),
        };
        Ok(ReceivedBatch {
            buffers: &mut inbox.buffers,
            meta: &inbox.meta[..filled],
        })
    }

    /// Enables reports of undeliverable datagrams (ICMP errors) for `unreachable`. They can be
    /// forged by anyone and are meant for connections that are not open yet.
    pub fn enable_error_reports(&self) -> io::Result<()> {
        self.state.enable_transport_errors((&self.io).into())
    }

    /// Returns the last network error about an undeliverable datagram.
    pub(crate) fn unreachable(&self) -> Option<io::Error> {
        if self.is_stamped() {
            // With transmit timestamps, errors are read together with them.
            let alone = !self.stamps_departures();
            return alone.then(|| self.read_departures(|_, _| ())).flatten();
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
    /// Allocates the buffers of one call, half a megabyte.
    pub fn new() -> Inbox {
        Inbox {
            buffers: vec![0; RECEIVE_BUFFERS * RECEIVE_BUFFER_BYTES].into_boxed_slice(),
            meta: [RecvMeta::default(); RECEIVE_BUFFERS],
            arrived: Vec::new(),
        }
    }
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::new()
    }
}

/// Datagrams received by one call.
pub struct ReceivedBatch<'a> {
    buffers: &'a mut [u8],
    meta: &'a [RecvMeta],
}

impl ReceivedBatch<'_> {
    /// Returns true if nothing was received.
    pub fn is_empty(&self) -> bool {
        self.meta.is_empty()
    }

    /// Returns true if the call filled all buffers, so there may be more.
    pub fn is_full(&self) -> bool {
        self.meta.len() == RECEIVE_BUFFERS
    }

    /// Calls `take` with the sender's address, the ECN bits and the contents of each datagram.
    pub fn for_each(self, mut take: impl FnMut(SocketAddr, u8, &mut [u8])) {
        for (buffer, meta) in self
            .buffers
            .chunks_exact_mut(RECEIVE_BUFFER_BYTES)
            .zip(self.meta)
        {
            let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
            let filled = &mut buffer[..meta.len.min(RECEIVE_BUFFER_BYTES)];
            for datagram in filled.chunks_mut(meta.stride.max(1)) {
                take(meta.addr, ecn, datagram);
            }
        }
    }
}

/// Datagrams received by one call, with timestamps.
pub struct StampedBatch<'a> {
    inbox: &'a mut Inbox,
    size: usize,
}

impl StampedBatch<'_> {
    /// Returns true if nothing was received.
    pub fn is_empty(&self) -> bool {
        self.inbox.arrived.is_empty()
    }

    /// Returns true if the call filled all buffers, so there may be more.
    pub fn is_full(&self) -> bool {
        self.inbox.arrived.len()
            == kernel_timestamps::DATAGRAMS_PER_CALL_MAX.min(self.inbox.buffers.len() / self.size)
    }

    /// Calls `take` with the timestamp and length of each datagram, in the order of arrival.
    pub fn stamps(&self, mut take: impl FnMut(KernelStamp, usize)) {
        self.inbox
            .arrived
            .iter()
            .for_each(|arrived| take(arrived.stamp, arrived.length));
    }

    /// Calls `take` with the sender's address, marks, timestamp and contents of each datagram.
    pub fn for_each(self, mut take: impl FnMut(SocketAddr, DatagramMarks, KernelStamp, &mut [u8])) {
        let buffers = self.inbox.buffers.chunks_exact_mut(self.size);
        for (buffer, arrived) in buffers.zip(&self.inbox.arrived) {
            let length = arrived.length.min(buffer.len());
            // An empty datagram must be reported too, and `chunks_mut` would skip it.
            let (whole, rest) = buffer[..length].split_at_mut(arrived.segment_bytes.min(length));
            take(arrived.from, arrived.marks, arrived.stamp, whole);
            for datagram in rest.chunks_mut(arrived.segment_bytes.max(1)) {
                take(arrived.from, arrived.marks, arrived.stamp, datagram);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux splits at most 128 datagrams per call (`UDP_MAX_SEGMENTS`, formerly 64). Beyond that
    /// it returns the same error as for a device without the required offloads.
    #[test]
    fn a_batch_arrives_with_its_marks_where_the_kernel_does_not_cut_it() {
        for (ecn, dscp) in [(2, 3), (1, 0), (0, 0)] {
            arrives_uncut(DatagramMarks { ecn, dscp });
        }
    }

    fn arrives_uncut(marks: DatagramMarks) {
        let here = "127.0.0.1:0".parse().unwrap();
        let (sender, receiver) = (Socket::bind(here).unwrap(), Socket::bind(here).unwrap());
        let contents: Vec<u8> = (0..=u8::MAX)
            .flat_map(|place| [place; 10])
            .chain([7; 4])
            .collect();

        // The error for port 0 must not be mistaken for missing GSO support.
        let nobody = SocketAddr::from(([127, 0, 0, 1], 0));
        let refused = sender.send(nobody, &contents[..20], 10, marks);
        assert_eq!(
            refused.unwrap_err().raw_os_error(),
            Some(Errno::EINVAL as i32)
        );
        assert!(sender.batch_max() > 1);

        assert_eq!(
            sender.send(receiver.local(), &contents, 10, marks).unwrap(),
            257
        );
        assert_eq!(
            sender.batch_max(),
            1,
            "datagrams are sent one by one from now on"
        );
        assert_eq!(
            sender
                .send(receiver.local(), &contents[..15], 10, marks)
                .unwrap(),
            2
        );

        let (mut inbox, mut found) = (Inbox::new(), Vec::new());
        while found.len() < contents.len() + 15 {
            let received = receiver.receive_marked(&mut inbox).unwrap();
            received.for_each(|from, seen, _, datagram| {
                assert_eq!((from, seen), (sender.local(), marks));
                found.extend_from_slice(datagram);
            });
        }
        assert_eq!(found, [&contents[..], &contents[..15]].concat());
    }

    /// Returns the datagrams queued in a socket.
    fn waiting(socket: &Socket) -> Vec<Vec<u8>> {
        let (mut inbox, mut found) = (Inbox::new(), Vec::new());
        loop {
            let received = socket.receive(&mut inbox).unwrap();
            if received.is_empty() {
                return found;
            }
            received.for_each(|_, _, datagram| found.push(datagram.to_vec()));
        }
    }

    const HANDSHAKE_FIRST_BYTE: FirstByte = FirstByte {
        mask: 0b110,
        value: 0b100,
    };

    #[test]
    fn datagrams_that_begin_a_handshake_arrive_at_the_second_socket() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = Socket::bind(address.parse().unwrap()) else {
                continue;
            };
            let second = socket.split_handshakes(HANDSHAKE_FIRST_BYTE).unwrap();
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
            // Answers have the address of the listening socket as their source.
            second
                .send(
                    other.local_addr().unwrap(),
                    b"answer",
                    6,
                    DatagramMarks::default(),
                )
                .unwrap();
            assert_eq!(other.recv_from(&mut [0; 10]).unwrap(), (6, socket.local()));
        }
    }

    #[test]
    fn a_flood_of_handshakes_leaves_the_first_sockets_buffer_to_others() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let second = socket.split_handshakes(HANDSHAKE_FIRST_BYTE).unwrap();
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
        let _second = socket.split_handshakes(HANDSHAKE_FIRST_BYTE).unwrap();
        let taken = Socket::bind(socket.local()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
