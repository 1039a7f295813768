//! What carries real packets: the kernel's TCP, ccplane's transport over UDP, or QUIC.

use ccplane_link::AgentAddress;
use ccplane_quic::Stack;
use ccplane_units::Duration;

/// An agent in another process.
#[derive(Clone, Debug)]
pub struct RemoteAgent {
    /// Where it serves.
    pub address: AgentAddress,
    /// How long a CCP agent may say nothing; without it, as long as it is there.
    pub silence: Option<Duration>,
}

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// The kernel's TCP.
    Tcp,
    /// ccplane's transport over UDP; with RC3's second loop where the scenario's `[transport]` has
    /// it.
    Udp,
    /// QUIC, by one of its stacks.
    Quic(Stack),
}
