//! Sockets whose packets the kernel stamps (`SO_TIMESTAMPING`), software stamps of CLOCK_REALTIME,
//! and the clock itself for what user space sees.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

/// linux/net_tstamp.h: SOFTWARE, RX_SOFTWARE, TX_SOFTWARE, TX_SCHED, TX_ACK, OPT_ID, OPT_TSONLY.
const SOFTWARE: u32 = 1 << 4;
const RECEIVED: u32 = 1 << 3;
const SENT: u32 = 1 << 1;
const SCHEDULED: u32 = 1 << 8;
const ACKNOWLEDGED: u32 = 1 << 9;
const NUMBERED: u32 = 1 << 7 | 1 << 11;

/// Room for the control messages of a packet.
const CONTROL: usize = 512;

/// The largest datagram that is sent here.
const LARGEST: usize = 2_048;

/// What of a packet's way was stamped (linux/errqueue.h, `SCM_TSTAMP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The driver had it.
    Sent,
    /// It came to the device's queue.
    Scheduled,
    /// TCP heard that it arrived.
    Acknowledged,
}

/// Datagrams with a number in their first bytes.
pub(super) struct Datagrams {
    socket: UdpSocket,
}

/// One that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub number: u64,
    pub from: SocketAddr,
    /// When the kernel had it, and when user space did, ns.
    pub kernel: u64,
    pub user: u64,
}

impl Datagrams {
    /// On any free port of this address; a receive waits so long at most.
    pub fn bind(address: std::net::IpAddr, patience: std::time::Duration) -> io::Result<Datagrams> {
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_read_timeout(Some(patience))?;
        stamp(&socket, SOFTWARE | RECEIVED | SENT | NUMBERED)?;
        // Where nobody stamped arrivals before, the kernel switches it on a little later.
        until(clock() + 50_000_000);
        Ok(Datagrams { socket })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends so many bytes under this number; when user space did, ns.
    pub fn send(&self, to: SocketAddr, number: u64, bytes: usize) -> io::Result<u64> {
        let mut contents = [0; LARGEST];
        contents[..8].copy_from_slice(&number.to_be_bytes());
        let now = clock();
        self.socket
            .send_to(&contents[..bytes.clamp(8, LARGEST)], to)?;
        Ok(now)
    }

    /// The next that arrives; `None` when none came in time.
    pub fn receive(&self) -> io::Result<Option<Arrived>> {
        let mut contents = [0; LARGEST];
        let mut slices = [IoSliceMut::new(&mut contents)];
        let mut control = vec![0; CONTROL];
        let received = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::empty(),
        );
        let received = match received {
            Ok(received) => received,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
            Err(why) => return Err(why.into()),
        };
        let user = clock();
        let mut kernel = None;
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampsns(stamps) = message {
                kernel = Some(nanos(stamps.system));
            }
        }
        let from = received
            .address
            .as_ref()
            .and_then(SockaddrStorage::as_sockaddr_in);
        let from = from.map(|from| SocketAddr::from((from.ip(), from.port())));
        let whole = received.bytes >= 8;
        let mut number = [0; 8];
        number.copy_from_slice(&contents[..8]);
        Ok(match (from, kernel) {
            (Some(from), Some(kernel)) if whole => Some(Arrived {
                number: u64::from_be_bytes(number),
                from,
                kernel,
                user,
            }),
            _ => None,
        })
    }

    /// The stamps of departures that are there: the n-th datagram's, counted from 0.
    pub fn departures(&self, mut take: impl FnMut(u64, u64)) {
        told(&self.socket, |what, number, ns| {
            if what == What::Sent {
                take(u64::from(number), ns);
            }
        });
    }
}

/// Has the kernel stamp a TCP connection's writes, by the place of their last byte in the stream:
/// when they came to the device's queue, and when they were acknowledged.
pub(super) fn stamp_writes(stream: &std::net::TcpStream) -> io::Result<()> {
    stamp(stream, SOFTWARE | SCHEDULED | ACKNOWLEDGED | NUMBERED)
}

/// The stamps that wait in a socket's error queue: what happened, to which, when in ns.
pub(super) fn told(socket: &impl AsRawFd, mut take: impl FnMut(What, u32, u64)) {
    loop {
        let mut contents = [0; 8];
        let mut slices = [IoSliceMut::new(&mut contents)];
        let mut control = vec![0; CONTROL];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let Ok(received) =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)
        else {
            return;
        };
        let (mut when, mut which) = (None, None);
        for message in received.cmsgs().into_iter().flatten() {
            match message {
                ControlMessageOwned::ScmTimestampsns(stamps) => when = Some(nanos(stamps.system)),
                ControlMessageOwned::Ipv4RecvErr(error, _) => {
                    let what = [What::Sent, What::Scheduled, What::Acknowledged];
                    which = what
                        .get(error.ee_info as usize)
                        .map(|what| (*what, error.ee_data));
                }
                _ => {}
            }
        }
        if let (Some(when), Some((what, number))) = (when, which) {
            take(what, number, when);
        }
    }
}

fn stamp(socket: &impl AsFd, flags: u32) -> io::Result<()> {
    Ok(setsockopt(
        socket,
        sockopt::Timestamping,
        &TimestampingFlag::from_bits_retain(flags),
    )?)
}

fn nanos(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// The clock of the kernel's stamps, ns.
#[expect(
    clippy::disallowed_methods,
    reason = "real packets are stamped in real time"
)]
pub(super) fn clock() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, nanos)
}

/// Waits until the clock shows so many ns.
#[expect(clippy::disallowed_methods, reason = "real packets leave in real time")]
pub(super) fn until(ns: u64) {
    std::thread::sleep(std::time::Duration::from_nanos(ns.saturating_sub(clock())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_loopback_are_stamped() {
        let patience = std::time::Duration::from_secs(1);
        let [a, b] = [0, 1].map(|_| Datagrams::bind([127, 0, 0, 1].into(), patience).unwrap());
        for number in 0..20 {
            let sent = a.send(b.address().unwrap(), number, 1_000).unwrap();
            let arrived = b.receive().unwrap().expect("loopback loses nothing");
            assert_eq!(
                (arrived.number, arrived.from),
                (number, a.address().unwrap())
            );
            assert!(sent <= arrived.kernel && arrived.kernel <= arrived.user);
            let mut departed = Vec::new();
            a.departures(|number, ns| departed.push((number, ns)));
            assert_eq!(departed.len(), 1);
            assert!(
                departed[0].0 == number && sent <= departed[0].1 && departed[0].1 <= arrived.user
            );
        }
    }
}
