//! Transports of real packets: the kernel's TCP, ccplane's transport over UDP, or QUIC.

use ccplane_quic::Stack;

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
