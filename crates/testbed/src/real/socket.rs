//! Sockets of the kernel's TCP that never block, set up alike at both ends.
//!
//! A socket belongs to the namespace of the thread that opens it, and may be used from any thread
//! afterwards.

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

/// What one call writes or reads, as iperf3 does: large enough that system calls cost little.
pub(super) const BLOCK_BYTES: usize = 128 << 10;

/// Connections that wait to be accepted: a burst of a thousand is over before any has to try again.
const LISTEN_BACKLOG: i32 = 4096;

/// Headers of a datagram on the wire: IPv4 and UDP.
pub(super) const DATAGRAM_HEADER_BYTES: u32 = 28;

/// As many files as the system allows at all: a connection takes two here.
pub(super) fn allow_many_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Where it is not permitted, a run with many flows says what is missing.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Sets both buffers, beyond the system's limit where that is permitted.
fn set_buffers(fd: &impl AsFd, bytes: usize) -> io::Result<()> {
    if setsockopt(fd, sockopt::RcvBufForce, &bytes).is_err() {
        setsockopt(fd, sockopt::RcvBuf, &bytes)?;
    }
    if setsockopt(fd, sockopt::SndBufForce, &bytes).is_err() {
        setsockopt(fd, sockopt::SndBuf, &bytes)?;
    }
    Ok(())
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

/// A socket that accepts connections to any address of its namespace, on a port of its own. Where
/// it is given one, connections that it accepts use that congestion control.
pub(super) fn listen(congestion: &str, buffer: usize) -> io::Result<TcpListener> {
    let fd = stream()?;
    // Before `listen`: the window scale is fixed by the handshake, and what is accepted has what
    // the listener has.
    set_buffers(&fd, buffer)?;
    setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion))?;
    setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    bind(fd.as_raw_fd(), &SockaddrStorage::from(any))?;
    nix_listen(&fd, Backlog::new(LISTEN_BACKLOG)?)?;
    Ok(TcpListener::from(fd))
}

/// How a connection could not be begun.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// This machine gives no such socket: no other one would fare better.
    Socket(io::Error),
    /// This connection cannot be: it counts as failed.
    Connection,
}

/// Asks for a connection, under this congestion control; it is there when the socket can be written
/// to.
///
/// `at_once`: small pieces leave as they are written, as in the simulator, whose transport waits
/// for nothing (no Nagle).
pub(super) fn connect(
    from: IpAddr,
    to: SocketAddr,
    congestion: &str,
    buffer: usize,
    at_once: bool,
) -> Result<TcpStream, ConnectError> {
    let made = || -> io::Result<OwnedFd> {
        let fd = stream()?;
        setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion))?;
        set_buffers(&fd, buffer)?;
        if at_once {
            setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
        }
        // The port is chosen by `connect`, which knows both ends: one port serves connections to
        // many hosts.
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

/// What became of a connection that was asked for, once its socket can be written to.
pub(super) fn outcome(stream: &TcpStream) -> io::Result<()> {
    match getsockopt(stream, sockopt::SocketError)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A socket that sends datagrams from one host to another.
pub(super) fn datagrams(from: IpAddr, to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((from, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    Ok(socket)
}

/// A socket that takes datagrams to any address of its namespace.
pub(super) fn sink(buffer: usize) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_nonblocking(true)?;
    set_buffers(&socket, buffer)?;
    Ok(socket)
}

/// What is ready of all that is watched; where nothing is, waits for it, `longest` at most. A
/// nanosecond's resolution, which `epoll_wait` does not have.
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
