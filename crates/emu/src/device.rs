//! The two ends of an emulated path: TUN devices of namespaces, or interfaces that lead to wires.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ccplane_host::{LINK_HEADER, Tun, Wire};

/// One end.
#[derive(Debug)]
pub(crate) enum Device {
    Tun(Tun),
    Wire(Wire),
}

impl Device {
    /// Bytes in front of each frame that belong to the link and go with it to the other end.
    pub(crate) fn lead(&self) -> usize {
        match self {
            Device::Tun(_) => 0,
            Device::Wire(_) => LINK_HEADER,
        }
    }

    /// One frame behind its lead; `None` when there is none.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Device::Tun(tun) => tun.read(buffer),
            Device::Wire(wire) => wire.read(buffer),
        }
    }

    /// Hands one over.
    pub(crate) fn write(&self, lead: &[u8], pieces: [&[u8]; 2]) -> io::Result<()> {
        match self {
            Device::Tun(tun) => tun.write(pieces),
            Device::Wire(wire) => wire.write(lead, pieces),
        }
    }
}

impl From<Tun> for Device {
    fn from(tun: Tun) -> Device {
        Device::Tun(tun)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Device::Tun(tun) => tun.as_fd(),
            Device::Wire(wire) => wire.as_fd(),
        }
    }
}
