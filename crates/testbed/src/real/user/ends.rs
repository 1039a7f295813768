//! Interface between a run and the ends of connections, independent of the transport.

use std::net::SocketAddr;

use ccplane_units::Duration;
use ccplane_workload::NodeId;

use ccplane_lab::Error;
use ccplane_lab::result::{SecondLoop, TcpInfo};

/// One end of a connection: index of its host and connection ID there.
pub(super) type UserEnd = (usize, u64);

/// Length of the flow ID at the beginning of every stream. It is not counted as payload.
pub(super) const FLOW_ID_BYTES: usize = 4;

/// State of the flow ID at an accepting end.
pub(super) enum FlowIdStatus {
    Pending,
    /// The connection ended before it arrived.
    Closed,
    Received([u8; FLOW_ID_BYTES]),
}

/// Operations of a run on connections.
pub(super) trait UserEnds {
    /// Opens a connection of a workload between two hosts. Returns the opening end and its address.
    fn connect(
        &mut self,
        workload: usize,
        from: NodeId,
        to: NodeId,
    ) -> Result<(UserEnd, SocketAddr), Error>;

    /// Returns the next accepted connection.
    fn accept(&mut self) -> Option<UserEnd>;

    /// Reads the flow ID from the data that has arrived.
    fn read_flow_id(&mut self, end: UserEnd) -> FlowIdStatus;

    /// Reads and discards all data that has arrived, and returns its length.
    fn read(&mut self, end: UserEnd) -> usize;

    /// Writes as much as fits and returns the number of bytes.
    fn write(&mut self, end: UserEnd, bytes: &[u8]) -> usize;

    /// Writes at most `most` arbitrary bytes and returns the number of bytes.
    fn write_fill(&mut self, end: UserEnd, most: usize) -> usize;

    /// Ends the stream after the data written so far.
    fn finish(&mut self, end: UserEnd);

    /// Returns true if the connection has failed.
    fn has_failed(&self, end: UserEnd) -> bool;

    /// Closes the connection and notifies the peer, if there is one.
    fn close(&mut self, end: UserEnd);

    /// Returns the connection's state as `tcp_info`. Fields that the transport does not provide are
    /// 0.
    fn tcp_info(&mut self, end: UserEnd) -> Option<TcpInfo>;

    /// Returns the number of packets whose contents were retransmitted.
    fn retransmitted(&mut self, end: UserEnd) -> Option<u64>;

    /// Returns true if the connection is on its fallback.
    fn fell_back(&self, end: UserEnd) -> bool;

    /// Returns the counters of RC3's second loop.
    fn second_loop(&self, _end: UserEnd) -> SecondLoop {
        SecondLoop::default()
    }

    /// Receives and sends. If there is nothing to do it waits, at most `longest`.
    fn poll(&mut self, longest: Duration) -> Result<(), Error>;
}
