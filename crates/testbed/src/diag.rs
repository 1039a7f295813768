//! Reads `tcp_info` of a TCP socket through `inet_diag`, as `ss -ti` does.
//!
//! Each query is an exact lookup of one flow: a dump walks the whole hash table of connections,
//! which takes half a millisecond on a large machine. The layout is `struct tcp_info` in
//! `linux/tcp.h`, which only grows at its end; fields that an older kernel does not send read as 0.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use ccplane_lab::result::TcpInfo;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// A `sock_diag` netlink socket. It reaches the TCP sockets of the network namespace it was opened
/// in.
#[derive(Debug)]
pub struct Diag {
    socket: OwnedFd,
    answer: Vec<u8>,
}

// Constants of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const IPPROTO_TCP: u8 = 6;
const NETLINK_HEADER_BYTES: usize = 16;
const DIAG_REQUEST_BYTES: usize = 56;
const DIAG_REPLY_BYTES: usize = 72;

impl Diag {
    /// Opens the socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Diag> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )?;
        // The kernel answers within the `sendto` call. The timeout of a second only matters on a
        // badly overloaded machine.
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(1, 0))?;
        Ok(Diag {
            socket,
            answer: vec![0; 8192],
        })
    }

    /// Returns the state of the connection between `local` and `peer`, or `None` if there is none.
    pub fn query(&mut self, local: SocketAddr, peer: SocketAddr) -> io::Result<Option<TcpInfo>> {
        let fd = self.socket.as_raw_fd();
        sendto(
            fd,
            &request(local, peer),
            &NetlinkAddr::new(0, 0),
            MsgFlags::empty(),
        )?;
        let n = recv(fd, &mut self.answer, MsgFlags::empty())?;
        parse_answer(self.answer.get(..n).unwrap_or_default())
    }
}

fn request(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let (family, source, destination) = match (local.ip(), peer.ip()) {
        (IpAddr::V4(s), IpAddr::V4(d)) => (2u8, padded(s.octets()), padded(d.octets())),
        (s, d) => (10u8, mapped(s), mapped(d)),
    };
    let mut m = Vec::with_capacity(NETLINK_HEADER_BYTES + DIAG_REQUEST_BYTES);
    m.extend(((NETLINK_HEADER_BYTES + DIAG_REQUEST_BYTES) as u32).to_ne_bytes());
    m.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    m.extend(NLM_F_REQUEST.to_ne_bytes());
    m.extend([0; 8]); // sequence and port ID: not needed with one request at a time
    m.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    m.extend(u32::MAX.to_ne_bytes()); // all TCP states
    m.extend(local.port().to_be_bytes());
    m.extend(peer.port().to_be_bytes());
    m.extend(source);
    m.extend(destination);
    m.extend(0u32.to_ne_bytes()); // any interface
    m.extend([0xff; 8]); // INET_DIAG_NOCOOKIE
    m
}

fn padded(octets: [u8; 4]) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&octets);
    out
}

fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn parse_answer(bytes: &[u8]) -> io::Result<Option<TcpInfo>> {
    let garbled = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel's inet_diag answer is too short",
        )
    };
    let kind = u16_at(bytes, 4).ok_or_else(garbled)?;
    if kind == NLMSG_ERROR {
        let errno = u32_at(bytes, NETLINK_HEADER_BYTES)
            .ok_or_else(garbled)?
            .cast_signed()
            .saturating_neg();
        return if errno == libc::ENOENT {
            Ok(None)
        } else {
            Err(io::Error::from_raw_os_error(errno))
        };
    }
    let mut at = NETLINK_HEADER_BYTES + DIAG_REPLY_BYTES;
    while let (Some(len), Some(kind)) = (u16_at(bytes, at), u16_at(bytes, at + 2)) {
        let len = usize::from(len);
        if len < 4 {
            break;
        }
        if kind == INET_DIAG_INFO {
            return bytes
                .get(at + 4..at + len)
                .map(|info| Some(parse_info(info)))
                .ok_or_else(garbled);
        }
        at += len.next_multiple_of(4);
    }
    Ok(None)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..at + 2)
        .and_then(|b| b.try_into().ok())
        .map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map(u32::from_ne_bytes)
}

/// `TCPI_OPT_ECN` of `linux/tcp.h`.
const TCPI_OPT_ECN: u8 = 8;

/// Parses `struct tcp_info`; offsets as in `linux/tcp.h`.
fn parse_info(info: &[u8]) -> TcpInfo {
    let byte = |at: usize| info.get(at).copied().unwrap_or(0);
    let word = |at| u32_at(info, at).unwrap_or(0);
    let long = |at: usize| {
        info.get(at..at + 8)
            .and_then(|b| b.try_into().ok())
            .map(u64::from_ne_bytes)
            .unwrap_or(0)
    };
    TcpInfo {
        ca_state: byte(1),
        ecn: byte(5) & TCPI_OPT_ECN != 0,
        app_limited: byte(7) & 1 == 1,
        mss: word(16),
        unacked: word(24),
        lost: word(32),
        srtt_us: word(68),
        rttvar_us: word(72),
        ssthresh: word(76),
        cwnd: word(80),
        retrans: word(100),
        pacing_rate: long(104),
        bytes_acked: long(120),
        delivered_ce: word(196),
        min_rtt_us: word(148),
        delivery_rate: long(160),
        busy_us: long(168),
        rwnd_limited_us: long(176),
        sndbuf_limited_us: long(184),
        bytes_retrans: long(208),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_live_socket_answers_with_sane_values() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut b, _) = listener.accept().unwrap();
        let data = vec![7; 100_000];
        let reader = std::thread::spawn(move || b.read_exact(&mut vec![0; 100_000]).map(|()| b));
        a.write_all(&data).unwrap();
        let _b = reader.join().unwrap().unwrap();

        let (local, peer) = (a.local_addr().unwrap(), a.peer_addr().unwrap());
        let mut diag = Diag::open().unwrap();
        let info = diag
            .query(local, peer)
            .unwrap()
            .expect("the connection is open");
        assert!(info.cwnd >= 2, "{info:?}");
        assert!(info.mss > 500 && info.mss < 65_536, "{info:?}");
        assert!(
            info.srtt_us > 0 && info.min_rtt_us <= info.srtt_us.max(1000),
            "{info:?}"
        );
        // The SYN counts as one byte. The reader has all data, but its last ACK may still be in
        // flight.
        assert!(
            info.bytes_acked + u64::from(info.unacked) * u64::from(info.mss) >= 100_000,
            "{info:?}"
        );

        let nobody = SocketAddr::new(local.ip(), 1);
        assert_eq!(diag.query(nobody, nobody).unwrap(), None);
    }

    proptest! {
        #[test]
        fn no_answer_can_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            error in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if bytes.len() > 6 && !error {
                bytes[4] = 20;
                bytes[5] = 0;
            }
            let _ = parse_answer(&bytes);
        }
    }
}
