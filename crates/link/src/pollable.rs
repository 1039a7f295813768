//! Descriptors on which a driver waits for the commands of an agent.

use std::os::fd::BorrowedFd;

use ccplane_agent::datapath::{Here, Way};

/// A way to an agent for drivers that wait in `poll`.
pub trait Pollable: Way {
    /// Returns the descriptor that becomes readable when commands arrive. `None` where the agent
    /// runs in the datapath's own thread, and while none is connected.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Pollable for Here {}

impl<W: Pollable + ?Sized> Pollable for Box<W> {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).as_fd()
    }
}
