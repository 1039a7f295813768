//! Echoes as in the paper: by a process at the other end of a Unix socket, and by the kernel over
//! Netlink.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use ccplane_lab::Error;
use ccplane_testbed::traffic::monotonic_ns;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::next_to_busy_threads;

/// Hidden command that serves the other end in another process.
pub const COMMAND: &str = "echo-datagrams";
/// Size of a message, bytes: about that of a report.
const MESSAGE: usize = 64;
/// Exchanges before the measurement, which fill caches.
const WARM_UP: usize = 500;
/// Timeout after which the other end counts as gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Echoes the messages of the standard input, a Unix datagram socket, until it fails.
pub fn serve() -> io::Result<()> {
    let socket = UnixDatagram::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut message = [0; MESSAGE];
    loop {
        let length = socket.recv(&mut message)?;
        socket.send(message.get(..length).unwrap_or_default())?;
    }
}

/// Times exchanges with another process.
pub(super) fn unix(exchanges: usize, busy_threads: usize) -> Result<Vec<Duration>, Error> {
    let measure = || -> io::Result<Vec<Duration>> {
        let (here, there) = UnixDatagram::pair()?;
        here.set_read_timeout(Some(PATIENCE))?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg(COMMAND)
            .stdin(Stdio::from(OwnedFd::from(there)));
        let mut child = ccplane_host::die_with_parent(&mut command).spawn()?;
        let mut answer = [0; MESSAGE];
        let times = timed(exchanges, || {
            here.send(&[7; MESSAGE])?;
            here.recv(&mut answer).map(|_| ())
        });
        child.kill()?;
        child.wait()?;
        times
    };
    next_to_busy_threads(busy_threads, measure)
        .map_err(Error::traffic("time echoes over a Unix socket", ""))
}

/// Times exchanges with the kernel, which acknowledges a message without a request.
pub(super) fn netlink(exchanges: usize, busy_threads: usize) -> Result<Vec<Duration>, Error> {
    // linux/netlink.h: a message of type NOOP that requests an acknowledgement.
    const NLMSG_NOOP: u16 = 1;
    const NLM_F_REQUEST: u16 = 1;
    const NLM_F_ACK: u16 = 4;
    let measure = || -> io::Result<Vec<Duration>> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            flags,
            SockProtocol::NetlinkRoute,
        )?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(5, 0))?;
        let mut message = [0; MESSAGE];
        message[..4].copy_from_slice(&(MESSAGE as u32).to_ne_bytes());
        message[4..6].copy_from_slice(&NLMSG_NOOP.to_ne_bytes());
        message[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        let mut answer = [0; 256];
        timed(exchanges, || {
            sendto(
                socket.as_raw_fd(),
                &message,
                &NetlinkAddr::new(0, 0),
                MsgFlags::empty(),
            )?;
            recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
            Ok(())
        })
    };
    next_to_busy_threads(busy_threads, measure)
        .map_err(Error::traffic("time Netlink's acknowledgements", ""))
}

/// Returns the times of exchanges after a warm-up.
fn timed(
    exchanges: usize,
    mut exchange: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(exchanges);
    for n in 0..WARM_UP + exchanges {
        let begun = monotonic_ns();
        exchange()?;
        if n >= WARM_UP {
            times.push(Duration::from_nanos(monotonic_ns() - begun));
        }
    }
    Ok(times)
}
