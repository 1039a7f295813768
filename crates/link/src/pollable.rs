//! Descriptors on which a driver waits for an agent's commands.

use std::os::fd::BorrowedFd;

use ccplane_agent::datapath::{Here, Way};

/// Channel to an agent for drivers that wait in `poll`.
pub trait Pollable: Way {
    /// Returns the descriptor that becomes readable when commands arrive. `None` if the agent runs
    /// in the datapath's own thread, or while no agent is connected.
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
