//! Descriptors on which a driver waits for an agent's commands.

use std::os::fd::BorrowedFd;

use ccplane_agent::datapath::{AgentChannel, InlineChannel};

/// Channel to an agent for drivers that wait in `poll`.
pub trait Pollable: AgentChannel {
    /// Returns the descriptor that becomes readable when commands arrive. `None` if the agent runs
    /// in the datapath's own thread, or while no agent is connected.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Pollable for InlineChannel {}

impl<W: Pollable + ?Sized> Pollable for Box<W> {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).as_fd()
    }
}
