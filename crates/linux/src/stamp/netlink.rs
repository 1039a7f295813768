//! Minimal rtnetlink: queries a device and its filters in the calling thread's network namespace,
//! and sets its super-packet limit.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

// From linux/netlink.h, linux/rtnetlink.h, linux/if_link.h and linux/pkt_sched.h.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
/// Parents of the filters of a clsact qdisc: ingress and egress.
const CLSACT_PARENTS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];
const IFLA_GSO_MAX_SEGS: u16 = 40;
const HEADER_BYTES: usize = 16;
const LINK_MESSAGE_BYTES: usize = 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// Attributes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkDevice {
    /// `ARPHRD_*`: type of the link-layer header.
    pub kind: u16,
    /// Maximum segments of a super-packet.
    pub gso_max_segs: u32,
}

/// Queries a device.
pub(crate) fn query_device(index: u32) -> io::Result<LinkDevice> {
    let answer = request(RTM_GETLINK, NLM_F_REQUEST, index, &link_message(&[]))?;
    parse(&answer).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the reply does not describe a \
            device",
        )
    })
}

/// Sets the maximum segments of a super-packet.
pub(crate) fn set_gso_max_segs(index: u32, segments: u32) -> io::Result<()> {
    let mut attribute = Vec::with_capacity(ATTRIBUTE_HEADER_BYTES + 4);
    attribute.extend(((ATTRIBUTE_HEADER_BYTES + 4) as u16).to_ne_bytes());
    attribute.extend(IFLA_GSO_MAX_SEGS.to_ne_bytes());
    attribute.extend(segments.to_ne_bytes());
    request(
        RTM_NEWLINK,
        NLM_F_REQUEST | NLM_F_ACK,
        index,
        &link_message(&attribute),
    )
    .map(drop)
}

/// Returns true if the device has a clsact qdisc with filters.
pub(crate) fn has_filters(index: u32) -> io::Result<bool> {
    for parent in CLSACT_PARENTS {
        let mut filter = Vec::with_capacity(12);
        filter.extend([0; 4]); // any handle
        filter.extend(parent.to_ne_bytes());
        filter.extend([0; 4]); // any priority and protocol
        // The first message is either a filter or the end of the list.
        let answer = request(RTM_GETTFILTER, NLM_F_REQUEST | NLM_F_DUMP, index, &filter)?;
        if u16_at(&answer, 4) == Some(RTM_NEWTFILTER) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Builds the part of a link message after the index.
fn link_message(attributes: &[u8]) -> Vec<u8> {
    // Flags and change mask.
    [&[0; 8], attributes].concat()
}

/// Sends one request and returns the first part of its answer.
fn request(kind: u16, flags: u16, index: u32, rest: &[u8]) -> io::Result<Vec<u8>> {
    let socket: OwnedFd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let length = HEADER_BYTES + 8 + rest.len();
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]); // sequence number and port: not needed with one request per socket
    message.extend([0; 4]); // family, padding, and device type
    message.extend(index.to_ne_bytes());
    message.extend(rest);
    sendto(
        socket.as_raw_fd(),
        &message,
        &NetlinkAddr::new(0, 0),
        MsgFlags::empty(),
    )?;
    let mut answer = vec![0; 32 << 10];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    answer.truncate(length);
    match (u16_at(&answer, 4), u32_at(&answer, HEADER_BYTES)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(answer),
        (Some(NLMSG_ERROR), Some(code)) => {
            Err(io::Error::from_raw_os_error((code as i32).wrapping_neg()))
        }
        _ => Ok(answer),
    }
}

fn parse(answer: &[u8]) -> Option<LinkDevice> {
    let mut device = LinkDevice {
        kind: u16_at(answer, HEADER_BYTES + 2)?,
        gso_max_segs: 0,
    };
    let mut at = HEADER_BYTES + LINK_MESSAGE_BYTES;
    while let (Some(length), Some(kind)) = (u16_at(answer, at), u16_at(answer, at + 2)) {
        if usize::from(length) < ATTRIBUTE_HEADER_BYTES {
            break;
        }
        if kind == IFLA_GSO_MAX_SEGS {
            device.gso_max_segs = u32_at(answer, at + ATTRIBUTE_HEADER_BYTES)?;
        }
        at += usize::from(length).next_multiple_of(4);
    }
    (u16_at(answer, 4)? == RTM_NEWLINK).then_some(device)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(two.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_missing_devices_are_errors() {
        let lo = query_device(1).expect("every namespace has it");
        assert_eq!(lo.kind, 772, "ARPHRD_LOOPBACK");
        assert!(lo.gso_max_segs > 1, "{lo:?}");
        has_filters(1).expect("any process may query");
        let error = query_device(0x7fff_0000).expect_err("there is none");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        for length in 0..40 {
            assert_eq!(parse(&vec![0; length]), None);
        }
    }
}
