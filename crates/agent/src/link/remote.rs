//! An agent in another process, as a datapath sees it.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::str::FromStr;

use ccplane_units::{Duration, Time};
use ccplane_wire::{Command, Event};

use super::{LinkError, Uplink};

/// A datapath's way to an agent in another process.
///
/// After each [`connect`](Remote::connect) that made a connection, the datapath announces itself and every live flow, since the
/// agent may be a new one. Without a connection it tries again now and then, and its flows run the fallback.
pub trait Remote: Send {
    /// Connects, if it is not connected; an error when no agent is there.
    fn connect(&mut self, now: Time) -> Result<(), LinkError>;

    /// True while an agent is there, as far as is known.
    fn is_connected(&self) -> bool;

    /// Takes an event for the agent. Where a report is not taken, leave it in the flow
    /// (do not call [`report_queued`](ccplane_datapath::Flow::report_queued)): nothing measured is lost.
    fn event(&mut self, event: &Event<'_>) -> Sent;

    /// Sends what was taken, if there is room; true if nothing is left.
    fn flush(&mut self) -> bool;

    /// Gives the commands that have arrived, and those that are due, to `sink`. Never blocks.
    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Command));

    /// When to call [`receive`](Remote::receive) at the latest.
    fn next_deadline(&self) -> Option<Time>;

    /// What to wait on for commands, and for room.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// It goes with the next flush.
    Yes,
    /// The agent does not keep up: the event was not taken.
    Full,
    /// There is no agent: the event was not taken.
    NoAgent,
}

/// Where an agent serves, as a person writes it: `unix:PATH`, `ccp:PATH`, or a path alone, which is `unix:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAddress {
    /// ccplane's own link, version 2.
    Unix(PathBuf),
    /// A CCP agent's datagram socket, version 1.
    Ccp(PathBuf),
}

/// Why an address could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an agent's address is unix:PATH, of `ccplane agent --unix PATH`, or ccp:PATH, of a CCP agent such as ccp:/tmp/ccp/portus"
)]
pub struct BadAddress;

impl FromStr for AgentAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<AgentAddress, BadAddress> {
        let address = match text.split_once(':') {
            Some(("unix", path)) => AgentAddress::Unix(path.into()),
            Some(("ccp", path)) => AgentAddress::Ccp(path.into()),
            _ => AgentAddress::Unix(text.into()),
        };
        match &address {
            AgentAddress::Unix(path) | AgentAddress::Ccp(path) if path.as_os_str().is_empty() => Err(BadAddress),
            _ => Ok(address),
        }
    }
}

impl std::fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AgentAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            AgentAddress::Ccp(path) => write!(f, "ccp:{}", path.display()),
        }
    }
}

impl AgentAddress {
    /// A way there, not connected yet, for flows of `algorithm`. `silence`: see [`Foreign`](crate::Foreign); ccplane's own
    /// agents say by heartbeats that they live.
    pub fn remote(&self, algorithm: &str, silence: Option<Duration>) -> Box<dyn Remote> {
        match self {
            AgentAddress::Unix(path) => Box::new(Uplink::new(path)),
            AgentAddress::Ccp(path) => Box::new(super::CcpUplink::new(path, algorithm, silence)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for (text, expected) in [
            ("unix:/run/a", AgentAddress::Unix("/run/a".into())),
            ("ccp:/tmp/ccp/portus", AgentAddress::Ccp("/tmp/ccp/portus".into())),
            ("/run/with:colon", AgentAddress::Unix("/run/with:colon".into())),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
        for bad in ["", "ccp:", "unix:"] {
            assert_eq!(bad.parse::<AgentAddress>(), Err(BadAddress), "{bad}");
        }
    }
}
