//! The ends of connections, whatever transport has them.

use std::net::SocketAddr;

use ccplane_units::Duration;
use ccplane_workload::NodeId;

use ccplane_lab::Error;
use ccplane_lab::result::{SecondLoop, TcpInfo};

/// One end of a connection: its host's place and its name there.
pub(super) type UserEnd = (usize, u64);

/// Bytes with which every stream begins: which flow it is. They count for nobody.
pub(super) const FLOW_ID_BYTES: usize = 4;

/// How what a peer writes begins.
pub(super) enum Begins {
    NotYet,
    /// It never will.
    Gone,
    With([u8; FLOW_ID_BYTES]),
}

/// What a run does with connections.
pub(super) trait UserEnds {
    /// Begins a connection of a workload between two hosts: its end and its address.
    fn connect(
        &mut self,
        workload: usize,
        from: NodeId,
        to: NodeId,
    ) -> Result<(UserEnd, SocketAddr), Error>;

    /// The next one that was accepted.
    fn accepted(&mut self) -> Option<UserEnd>;

    /// Takes its name from what has arrived.
    fn begins(&mut self, end: UserEnd) -> Begins;

    /// Reads all that has arrived, whose contents do not matter; how many bytes.
    fn read(&mut self, end: UserEnd) -> usize;

    /// Writes as much as there is room for; how many bytes.
    fn write(&mut self, end: UserEnd, bytes: &[u8]) -> usize;

    /// Writes what does not matter, so many bytes at most; how many.
    fn fill(&mut self, end: UserEnd, most: usize) -> usize;

    /// The stream ends with what was written.
    fn finish(&mut self, end: UserEnd);

    /// It is over, and not well.
    fn has_failed(&self, end: UserEnd) -> bool;

    /// It is not needed any more. Its peer is told, where there is one.
    fn end(&mut self, end: UserEnd);

    /// How it does, in the terms of Linux TCP; what the transport does not count is 0.
    fn look(&mut self, end: UserEnd) -> Option<TcpInfo>;

    /// Packets whose contents were sent again.
    fn retransmitted(&mut self, end: UserEnd) -> Option<u64>;

    /// Whether it runs without its agent.
    fn fell_back(&self, end: UserEnd) -> bool;

    /// What its second loop did.
    fn second_loop(&self, _end: UserEnd) -> SecondLoop {
        SecondLoop::default()
    }

    /// Receives and sends. Where there is nothing to do it waits, at most `longest`.
    fn turn(&mut self, longest: Duration) -> Result<(), Error>;
}
