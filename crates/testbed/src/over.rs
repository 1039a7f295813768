//! What carries real packets: the kernel's TCP, ccplane's transport over UDP, or QUIC.

use ccplane_link::AgentAddress;
use ccplane_quic::Stack;
use ccplane_units::{Duration, Rate};

/// The largest packet on the emulated path, IP header included.
pub const MTU: u32 = 1500;

/// For how long a full packet waited, µs, whose sojourn at a link of this rate was so many ms: what it takes on the wire itself is
/// no queue.
pub fn waited_us(sojourn_ms: f64, rate: Rate) -> f64 {
    let wire_us = f64::from(MTU) * 1e6 / rate.bytes_per_sec() as f64;
    (sojourn_ms * 1e3 - wire_us).max(0.0)
}

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
pub enum Over {
    /// The kernel's TCP.
    Tcp,
    /// ccplane's transport over UDP; with RC3's second loop where the scenario's `[transport]` has it.
    Udp,
    /// QUIC, by one of its stacks.
    Quic(Stack),
}
