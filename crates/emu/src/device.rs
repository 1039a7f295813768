//! The two ends of an emulated path: TUN devices of namespaces, or interfaces used as wires.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ccplane_host::{LINK_HEADER, Tun, Wire};

/// One end of the path.
#[derive(Debug)]
pub(crate) enum Device {
    Tun(Tun),
    Wire(Wire),
}

impl Device {
    /// Returns the length of the link header before each frame, which is passed on to the other
    /// end.
    pub(crate) fn lead(&self) -> usize {
        match self {
            Device::Tun(_) => 0,
            Device::Wire(_) => LINK_HEADER,
        }
    }

    /// Reads one frame, after its link header; `None` if there is none.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Device::Tun(tun) => tun.read(buffer),
            Device::Wire(wire) => wire.read(buffer),
        }
    }

    /// Sends one frame.
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
