//! Non-blocking sockets of the kernel's TCP, with the same options at both ends.
//!
//! A socket belongs to the namespace of the thread that opens it. Any thread may use it afterwards.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollEvent};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind,
    connect as nix_connect, getsockopt, listen as nix_listen, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;

use ccplane_units::Duration;

/// Bytes per read or write, as in iperf3: large enough to make the cost of system calls small.
pub(super) const BLOCK_BYTES: usize = 128 << 10;

/// Backlog of the listeners: a burst of a thousand connections fits without retries.
const LISTEN_BACKLOG: i32 = 4096;

/// Headers of a datagram on the wire: IPv4 and UDP.
pub(super) const DATAGRAM_HEADER_BYTES: u32 = 28;

/// Raises the limit of open files to the hard limit: a connection takes two here.
pub(super) fn allow_many_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // If this fails, a run with many flows reports the limit.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Sets both buffers, beyond the system's limit if permitted.
fn set_buffers(fd: &impl AsFd, bytes: usize) -> io::Result<()> {
    if setsockopt(fd, sockopt::RcvBufForce, &bytes).is_err() {
        setsockopt(fd, sockopt::RcvBuf, &bytes)?;
    }
    if setsockopt(fd, sockopt::SndBufForce, &bytes).is_err() {
        setsockopt(fd, sockopt::SndBuf, &bytes)?;
    }
    Ok(())
}

/// Sets the DSCP of all packets that an IPv4 socket sends. TCP sockets keep their ECN bits
/// (`__ip_sock_set_tos`), and those of datagrams are 0.
fn set_dscp(fd: &impl AsFd, dscp: u8) -> io::Result<()> {
    Ok(setsockopt(fd, sockopt::Ipv4Tos, &i32::from(dscp << 2))?)
}

fn stream() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(
        AddressFamily::Inet,
        SockType::Stream,
        flags,
        SockProtocol::Tcp,
    )?)
}

/// Opens a listener on any address of its namespace and a free port. The connections that it
/// accepts use `congestion`.
pub(super) fn listen(congestion: &str, buffer: usize) -> io::Result<TcpListener> {
    let fd = stream()?;
    // Set before `listen`: the window scale is fixed by the handshake, and accepted sockets inherit
    // the options.
    set_buffers(&fd, buffer)?;
    setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion))?;
    setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    bind(fd.as_raw_fd(), &SockaddrStorage::from(any))?;
    nix_listen(&fd, Backlog::new(LISTEN_BACKLOG)?)?;
    Ok(TcpListener::from(fd))
}

/// Error when starting a connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The socket could not be created or configured. All other connections would fail too.
    Socket(io::Error),
    /// This connection failed; it counts as a failed flow.
    Connection,
}

/// Starts a connection with this congestion control. It is established once the socket is writable.
///
/// `at_once`: sends small writes without delay (no Nagle), like the simulator's transport. `dscp`:
/// marks every packet of this end, from the SYN on. The other end's packets are not marked.
pub(super) fn connect(
    from: IpAddr,
    to: SocketAddr,
    congestion: &str,
    buffer: usize,
    at_once: bool,
    dscp: u8,
) -> Result<TcpStream, ConnectError> {
    let made = || -> io::Result<OwnedFd> {
        let fd = stream()?;
        setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion))?;
        set_buffers(&fd, buffer)?;
        if at_once {
            setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
        }
        set_dscp(&fd, dscp)?;
        // The port is chosen by `connect`, which has the whole 4-tuple: one port can serve
        // connections to many hosts.
        setsockopt(&fd, sockopt::IpBindAddressNoPort, &true)?;
        bind(
            fd.as_raw_fd(),
            &SockaddrStorage::from(SocketAddr::new(from, 0)),
        )?;
        Ok(fd)
    };
    let fd = made().map_err(ConnectError::Socket)?;
    match nix_connect(fd.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(TcpStream::from(fd)),
        Err(_) => Err(ConnectError::Connection),
    }
}

/// Returns the result of a connection attempt, once the socket is writable.
pub(super) fn outcome(stream: &TcpStream) -> io::Result<()> {
    match getsockopt(stream, sockopt::SocketError)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Opens a socket that sends datagrams with a DSCP from one host to another.
pub(super) fn datagrams(from: IpAddr, to: SocketAddr, dscp: u8) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((from, 0))?;
    set_dscp(&socket, dscp)?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    Ok(socket)
}

/// Opens a socket that receives datagrams to any address of its namespace.
pub(super) fn sink(buffer: usize) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_nonblocking(true)?;
    set_buffers(&socket, buffer)?;
    Ok(socket)
}

/// Returns the ready events. If there are none, waits at most `longest`, with nanosecond
/// resolution, which `epoll_wait` does not have.
pub(super) fn ready(
    epoll: &Epoll,
    events: &mut [EpollEvent],
    longest: Duration,
) -> io::Result<usize> {
    let look = |events: &mut [EpollEvent]| match epoll.wait(events, 0_u8) {
        Err(Errno::EINTR) => Ok(0),
        looked => looked,
    };
    let there = look(events)?;
    if there > 0 || longest == Duration::ZERO {
        return Ok(there);
    }
    let mut fds = [PollFd::new(epoll.0.as_fd(), PollFlags::POLLIN)];
    match ppoll(
        &mut fds,
        Some(TimeSpec::from_duration(longest.to_std())),
        None,
    ) {
        Ok(0) | Err(Errno::EINTR) => Ok(0),
        Ok(_) => Ok(look(events)?),
        Err(error) => Err(error.into()),
    }
}
