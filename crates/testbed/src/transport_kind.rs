//! Transports of real packets: the kernel's TCP, ccplane's transport over UDP, or QUIC.

use ccplane_link::AgentAddress;
use ccplane_quic::Stack;
use ccplane_units::Duration;

/// An agent in another process.
#[derive(Clone, Debug)]
pub struct RemoteAgent {
    /// Address that the agent serves at.
    pub address: AgentAddress,
    /// Timeout of a silent CCP agent. `None`: it is dropped only when its connection closes.
    pub timeout: Option<Duration>,
}

/// Transport protocol of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// The kernel's TCP.
    Tcp,
    /// ccplane's transport over UDP, with RC3's second loop if the scenario's `[transport]` enables
    /// it.
    Udp,
    /// QUIC, with one of the supported stacks.
    Quic(Stack),
}
