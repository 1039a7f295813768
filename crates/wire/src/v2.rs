//! Version 2: ccplane's own framing of the same events and commands, for links on one host and
//! between hosts.
//!
//! A packet starts with [`MAGIC`] and [`VERSION`], so that a peer of another version gets an error
//! instead of a misread packet. Any number of messages follow: u8 kind, u8 flags, u16 length of the
//! rest. All fields are little-endian; a text is a u8 length and UTF-8. Values have 64 bits;
//! addresses are IPv4 or IPv6.

mod program;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{read_commands, read_events};
pub use write::PacketWriter;

/// First byte of every packet; not a type of a version-1 message.
pub const MAGIC: u8 = 0xcc;
/// Version of this framing.
pub const VERSION: u8 = 2;
/// Maximum bytes of a packet: below the default buffer size of a local socket.
pub const PACKET_BYTES_MAX: usize = 65_536;

pub(crate) mod kind {
    pub const READY: u8 = 1;
    pub const FLOW_OPENED: u8 = 2;
    pub const REPORT: u8 = 3;
    pub const FLOW_CLOSED: u8 = 4;
    pub const REFUSED: u8 = 5;
    pub const INSTALLED: u8 = 6;
    pub const INSTALL: u8 = 16;
    pub const SET_PROGRAM: u8 = 17;
    pub const UPDATE: u8 = 18;
    pub const HEARTBEAT: u8 = 19;
    pub const OFFER: u8 = 20;
    pub const RELEASE: u8 = 21;
}

/// Flag of an urgent report, and of a flow that was already live.
pub(crate) const URGENT_OR_LIVE_FLAG: u8 = 1;

/// Targets of updates.
pub(crate) mod target {
    pub const VAR: u8 = 0;
    pub const CWND: u8 = 1;
    pub const RATE: u8 = 2;
    pub const SSTHRESH: u8 = 3;
    pub const MICROS: u8 = 4;
}

/// Reasons for a refusal.
pub(crate) mod reason {
    pub const UNKNOWN_PROGRAM: u8 = 0;
    pub const UNKNOWN_FLOW: u8 = 1;
    pub const BAD_TARGET: u8 = 2;
    pub const TABLE_FULL: u8 = 3;
    pub const TOO_MANY_VARS: u8 = 4;
    pub const MISSING: u8 = 5;
    pub const INVALID: u8 = 6;
    pub const UNSUPPORTED: u8 = 7;
    pub const OTHER: u8 = 8;
    pub const NO_RELEASE: u8 = 9;
}
