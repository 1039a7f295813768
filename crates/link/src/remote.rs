//! An agent in another process, as a datapath sees it.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ccplane_units::{Duration, Time};
use ccplane_wire::{Command, Event};

use super::tls::{TlsAddress, TlsUplink};
use super::{LinkError, Several, Uplink};

/// A datapath's way to an agent in another process.
///
/// After each [`connect`](Remote::connect) that made a connection, the datapath announces itself
/// and every live flow, since the agent may be a new one. Without a connection it tries again now
/// and then, and its flows run the fallback.
pub trait Remote: Send {
    /// Connects, if it is not connected; an error when no agent is there, [`LinkError::Connecting`]
    /// where that is not known yet. Never blocks: it goes as far as it can, and goes on when it is
    /// called again.
    fn connect(&mut self, now: Time) -> Result<(), LinkError>;

    /// How soon after `now` to call [`connect`](Remote::connect) again, where it was an error.
    fn next_attempt(&self, now: Time) -> Duration;

    /// The shortest round trip that was measured to the agent, where it is on another host.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// True while an agent is there, as far as is known.
    fn is_connected(&self) -> bool;

    /// Takes an event for the agent. Where a report is not taken, leave it in the flow (do not call
    /// [`report_queued`](ccplane_datapath::Flow::report_queued)): nothing measured is lost.
    fn event(&mut self, event: &Event<'_>) -> Sent;

    /// Sends what was taken, if there is room; true if nothing is left.
    fn flush(&mut self) -> bool;

    /// Gives the commands that have arrived, and those that are due, to `sink`. Never blocks.
    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Command));

    /// When to call [`receive`](Remote::receive) and [`flush`](Remote::flush) at the latest.
    fn next_deadline(&self) -> Option<Time> {
        None
    }

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

/// Where an agent serves, as a person writes it: `unix:PATH`, `ccp:PATH`, `tls://HOST:PORT`, or a
/// path alone, which is `unix:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAddress {
    /// ccplane's own link, version 2.
    Unix(PathBuf),
    /// A CCP agent's datagram socket, version 1.
    Ccp(PathBuf),
    /// An agent on another host, version 2 over TLS.
    Tls(TlsAddress),
    /// Several, of which one steers: the first, and the next when it is gone.
    Several(Vec<AgentAddress>),
}

/// Why an address could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an agent's address is unix:PATH, of `ccplane agent --unix PATH`; tls://HOST:PORT, of `ccplane agent --tls`; or ccp:PATH, of a CCP agent \
     such as ccp:/tmp/ccp/portus"
)]
pub struct BadAddress;

impl FromStr for AgentAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<AgentAddress, BadAddress> {
        let address = match text.split_once(':') {
            Some(("unix", path)) => AgentAddress::Unix(path.into()),
            Some(("ccp", path)) => AgentAddress::Ccp(path.into()),
            Some(("tls", place)) => {
                AgentAddress::Tls(place.strip_prefix("//").ok_or(BadAddress)?.parse()?)
            }
            _ => AgentAddress::Unix(text.into()),
        };
        match &address {
            AgentAddress::Unix(path) | AgentAddress::Ccp(path) if path.as_os_str().is_empty() => {
                Err(BadAddress)
            }
            _ => Ok(address),
        }
    }
}

impl std::fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AgentAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            AgentAddress::Ccp(path) => write!(f, "ccp:{}", path.display()),
            AgentAddress::Tls(address) => address.fmt(f),
            AgentAddress::Several(all) => {
                let names: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&names.join(" or "))
            }
        }
    }
}

impl AgentAddress {
    /// A way there, not connected yet, for flows of `algorithm`. `silence`: see
    /// [`Foreign`](ccplane_agent::Foreign); ccplane's own agents say by heartbeats that they live.
    pub fn remote(&self, algorithm: &str, silence: Option<Duration>) -> Box<dyn Remote> {
        match self {
            AgentAddress::Unix(path) => Box::new(Uplink::new(path)),
            AgentAddress::Ccp(path) => Box::new(super::CcpUplink::new(path, algorithm, silence)),
            AgentAddress::Tls(address) => Box::new(TlsUplink::new(address)),
            AgentAddress::Several(all) => Box::new(Several::new(
                all.iter()
                    .map(|one| one.remote(algorithm, silence))
                    .collect(),
            )),
        }
    }

    /// That of these that is to steer; nothing where there is none.
    pub fn one_of(mut all: Vec<AgentAddress>) -> Option<AgentAddress> {
        match all.len() {
            0 | 1 => all.pop(),
            _ => Some(AgentAddress::Several(all)),
        }
    }

    /// With this folder of keys, for agents on other hosts of which no other was said.
    #[must_use]
    pub fn with_keys(self, folder: &Path) -> AgentAddress {
        match self {
            AgentAddress::Tls(mut address) => {
                address.keys.get_or_insert_with(|| folder.to_owned());
                AgentAddress::Tls(address)
            }
            AgentAddress::Several(all) => {
                AgentAddress::Several(all.into_iter().map(|one| one.with_keys(folder)).collect())
            }
            here => here,
        }
    }

    /// Whether an agent is on another host: it is silent when the network is.
    pub fn is_far(&self) -> bool {
        match self {
            AgentAddress::Unix(_) | AgentAddress::Ccp(_) => false,
            AgentAddress::Tls(_) => true,
            AgentAddress::Several(all) => all.iter().any(AgentAddress::is_far),
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
            (
                "ccp:/tmp/ccp/portus",
                AgentAddress::Ccp("/tmp/ccp/portus".into()),
            ),
            (
                "/run/with:colon",
                AgentAddress::Unix("/run/with:colon".into()),
            ),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
        for bad in [
            "",
            "ccp:",
            "unix:",
            "tls:",
            "tls:host:1",
            "tls://host",
            "tls://:1",
            "tls://host:0",
            "tls://host:65536",
            "tls://::1:4700",
            "tls://host/path:1",
            "tls://host:1?keys=",
            "tls://host:1?other=x",
        ] {
            assert_eq!(bad.parse::<AgentAddress>(), Err(BadAddress), "{bad}");
        }
    }

    #[test]
    fn an_agent_on_another_host_has_a_port_and_keys() {
        let read = |text: &str| match text.parse() {
            Ok(AgentAddress::Tls(TlsAddress { host, port, keys })) => (host, port, keys),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(
            read("tls://agent.example:4700"),
            ("agent.example".to_owned(), 4700, None)
        );
        assert_eq!(
            read("tls://[2001:db8::1]:1?keys=/a/b"),
            ("2001:db8::1".to_owned(), 1, Some("/a/b".into()))
        );
        let one: AgentAddress = "tls://a:1".parse().unwrap();
        let two: AgentAddress = "tls://b:2?keys=/own".parse().unwrap();
        let both = AgentAddress::one_of(vec![one, two])
            .unwrap()
            .with_keys(Path::new("/etc/k"));
        assert!(both.is_far());
        assert_eq!(both.to_string(), "tls://a:1 or tls://b:2");
        let AgentAddress::Several(all) = both else {
            panic!("two")
        };
        let keys = all.iter().map(|one| match one {
            AgentAddress::Tls(address) => address.keys.clone(),
            _ => None,
        });
        let expected: Vec<Option<PathBuf>> = vec![Some("/etc/k".into()), Some("/own".into())];
        assert_eq!(keys.collect::<Vec<_>>(), expected);
    }
}
