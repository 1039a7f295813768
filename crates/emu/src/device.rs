//! The two ends of an emulated path: TUN devices of namespaces, or interfaces used as wires.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ccplane_host::{LINK_HEADER_BYTES, Tun, Wire};

/// One end of the path.
#[derive(Debug)]
pub(crate) enum EmuDevice {
    Tun(Tun),
    Wire(Wire),
}

impl EmuDevice {
    /// Returns the length of the link header before each frame, which is passed on to the other
    /// end.
    pub(crate) fn link_header_bytes(&self) -> usize {
        match self {
            EmuDevice::Tun(_) => 0,
            EmuDevice::Wire(_) => LINK_HEADER_BYTES,
        }
    }

    /// Reads one frame, after its link header; `None` if there is none.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            EmuDevice::Tun(tun) => tun.read(buffer),
            EmuDevice::Wire(wire) => wire.read(buffer),
        }
    }

    /// Sends one frame.
    pub(crate) fn write(&self, link_header: &[u8], pieces: [&[u8]; 2]) -> io::Result<()> {
        match self {
            EmuDevice::Tun(tun) => tun.write(pieces),
            EmuDevice::Wire(wire) => wire.write(link_header, pieces),
        }
    }
}

impl From<Tun> for EmuDevice {
    fn from(tun: Tun) -> EmuDevice {
        EmuDevice::Tun(tun)
    }
}

impl AsFd for EmuDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            EmuDevice::Tun(tun) => tun.as_fd(),
            EmuDevice::Wire(wire) => wire.as_fd(),
        }
    }
}
