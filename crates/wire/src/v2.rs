//! Version 2: ccplane's own framing of the same events and commands, for links on one host and
//! between hosts.
//!
//! A packet begins with [`MAGIC`] and [`VERSION`], so that a peer of another version is told so and
//! not misread. Then come any number of messages: u8 kind, u8 flags, u16 length of what follows.
//! All little-endian; a text is a u8 length and UTF-8. Values are 64 bits wide, addresses of either
//! family.

mod program;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{read_commands, read_events};
pub use write::Packet;

/// First byte of every packet: no type of a version-1 message.
pub const MAGIC: u8 = 0xcc;
/// The version of this framing.
pub const VERSION: u8 = 2;
/// Most bytes of a packet: what a local socket takes with its default buffers, with room to spare.
pub const MAX_PACKET: usize = 65_536;

/// Message kinds.
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

/// Flag of a report that is urgent, and of a flow that lived before.
pub(crate) const FLAG: u8 = 1;

/// Targets of updates.
pub(crate) mod target {
    pub const VAR: u8 = 0;
    pub const CWND: u8 = 1;
    pub const RATE: u8 = 2;
    pub const SSTHRESH: u8 = 3;
    pub const MICROS: u8 = 4;
}

/// Reasons of a refusal.
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
