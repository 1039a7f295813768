//! Packet taps: copies of the packets that an interface receives or sends.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::wire::bind_to_interface;
use crate::{Error, interface};

/// Packets that a tap copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapDirection {
    /// Packets that arrive at the interface.
    Received,
    /// Packets that leave the interface, after its queue.
    Sent,
}

/// `SKF_AD_OFF + SKF_AD_PKTTYPE`, linux/filter.h: the packet type as seen by the socket.
const PACKET_TYPE: u32 = 0xffff_f004;
/// Type of an outgoing packet, linux/if_packet.h.
const PACKET_OUTGOING: u32 = 4;
/// Return value of a filter that accepts a packet in full length.
const WHOLE_PACKET: u32 = u32::MAX;

/// Opens a non-blocking packet socket of an interface in the calling thread's namespace. It gets a
/// copy of each packet of this direction, beginning with the Ethernet header.
pub fn packet_tap(name: &str, direction: TapDirection) -> Result<OwnedFd, Error> {
    let failed = |e: io::Error| Error::system(format!("observe the packets of {name}"), e);
    let index = interface::index(name)? as libc::c_int;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Without a protocol nothing is received until it is bound to one interface.
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, flags, None).map_err(|e| failed(e.into()))?;
    attach_filter(&socket, &mut filter(direction)).map_err(failed)?;
    bind_to_interface(&socket, index).map_err(failed)?;
    Ok(socket)
}

/// Returns the filter, a program of the classic BPF.
fn filter(direction: TapDirection) -> [libc::sock_filter; 4] {
    let statement = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (if_outgoing, otherwise) = match direction {
        TapDirection::Sent => (0, 1),
        TapDirection::Received => (1, 0),
    };
    [
        statement(
            libc::BPF_LD | libc::BPF_B | libc::BPF_ABS,
            0,
            0,
            PACKET_TYPE,
        ),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            if_outgoing,
            otherwise,
            PACKET_OUTGOING,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, WHOLE_PACKET),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

fn attach_filter(socket: &OwnedFd, filter: &mut [libc::sock_filter; 4]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel reads `program` and the four statements that it points to. Both outlive
    // the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&program).cast(),
            mem::size_of_val(&program) as libc::socklen_t,
        )
    };
    Errno::result(result)?;
    Ok(())
}
