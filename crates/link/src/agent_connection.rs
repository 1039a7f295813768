//! The datapath's view of an agent in another process.

use std::os::fd::BorrowedFd;
#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;

use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

#[cfg(feature = "tls")]
use super::tls::{TlsAddress, TlsUplink};
use super::{Failover, LinkError, Uplink};

/// Transport from a datapath to an agent in another process.
///
/// After each successful [`connect`](AgentConnection::connect) the datapath announces itself and
/// every live flow, because the agent may have restarted. Without a connection it retries with
/// backoff, and its flows run the fallback.
pub trait AgentConnection: Send {
    /// Connects if not connected. Returns an error if no agent answers, or
    /// [`LinkError::Connecting`] if the attempt is still in progress. Never blocks; call it again
    /// to make progress.
    fn connect(&mut self, now: Time) -> Result<(), LinkError>;

    /// Returns the time from `now` after which to call [`connect`](AgentConnection::connect) again
    /// if it failed.
    fn next_attempt(&self, now: Time) -> Duration;

    /// Returns the minimum RTT measured to an agent on another host.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Returns whether an agent is connected, as far as is known.
    fn is_connected(&self) -> bool;

    /// Queues an event for the agent. If a report is refused, leave it in the flow (do not call
    /// [`report_queued`](ccplane_datapath::Flow::report_queued)), so that no measurement is lost.
    fn queue_event(&mut self, event: &WireEvent<'_>) -> SendOutcome;

    /// Sends queued events if there is room. Returns whether the queue is empty.
    fn flush(&mut self) -> bool;

    /// Passes the commands that have arrived and those that are due to `sink`. Never blocks.
    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(WireCommand));

    /// Returns the latest time for the next call of [`receive`](AgentConnection::receive) and
    /// [`flush`](AgentConnection::flush).
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Returns the descriptor to poll, for commands and for writability.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Result of queueing an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SendOutcome {
    /// Queued for the next flush.
    Queued,
    /// Refused: the agent does not keep up.
    Full,
    /// Refused: no agent is connected.
    NoAgent,
}

/// Address of an agent: `unix:PATH`, `ccp:PATH`, `tls://HOST:PORT`, or a plain path, which means
/// `unix:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAddress {
    /// ccplane agent on this host: version 2 over a Unix socket.
    Unix(PathBuf),
    /// CCP agent: version 1 over a Unix datagram socket.
    Ccp(PathBuf),
    /// ccplane agent on another host: version 2 over TLS.
    #[cfg(feature = "tls")]
    Tls(TlsAddress),
    /// Several agents, one of which is active: the first that answers, with failover to the next.
    Failover(Vec<AgentAddress>),
}

/// Error of parsing an [`AgentAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an address of an agent; write unix:PATH (`ccplane agent --unix PATH`), tls://HOST:PORT \
    (`ccplane agent --tls`), or ccp:PATH (a CCP agent, such as ccp:/tmp/ccp/portus)"
)]
pub struct BadAddress;

impl FromStr for AgentAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<AgentAddress, BadAddress> {
        let address = match text.split_once(':') {
            Some(("unix", path)) => AgentAddress::Unix(path.into()),
            Some(("ccp", path)) => AgentAddress::Ccp(path.into()),
            #[cfg(feature = "tls")]
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
            #[cfg(feature = "tls")]
            AgentAddress::Tls(address) => address.fmt(f),
            AgentAddress::Failover(all) => {
                let names: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&names.join(" or "))
            }
        }
    }
}

impl AgentAddress {
    /// Creates an unconnected transport for flows of `algorithm`. `silence` is for CCP agents, see
    /// [`Foreign`](ccplane_agent::CcpV1Client); ccplane agents send heartbeats instead.
    pub fn connection(
        &self,
        algorithm: &str,
        agent_timeout: Option<Duration>,
    ) -> Box<dyn AgentConnection> {
        match self {
            AgentAddress::Unix(path) => Box::new(Uplink::new(path)),
            AgentAddress::Ccp(path) => {
                Box::new(super::CcpUplink::new(path, algorithm, agent_timeout))
            }
            #[cfg(feature = "tls")]
            AgentAddress::Tls(address) => Box::new(TlsUplink::new(address)),
            AgentAddress::Failover(all) => Box::new(Failover::new(
                all.iter()
                    .map(|one| one.connection(algorithm, agent_timeout))
                    .collect(),
            )),
        }
    }

    /// Combines addresses into one with failover; `None` if there are none.
    pub fn failover(mut addresses: Vec<AgentAddress>) -> Option<AgentAddress> {
        match addresses.len() {
            0 | 1 => addresses.pop(),
            _ => Some(AgentAddress::Failover(addresses)),
        }
    }

    /// Sets the key directory for TLS addresses that do not name one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_keys(self, folder: &Path) -> AgentAddress {
        match self {
            AgentAddress::Tls(mut address) => {
                address.keys.get_or_insert_with(|| folder.to_owned());
                AgentAddress::Tls(address)
            }
            AgentAddress::Failover(all) => {
                AgentAddress::Failover(all.into_iter().map(|one| one.with_keys(folder)).collect())
            }
            here => here,
        }
    }

    /// Returns whether an agent is on another host, so that network outages can silence it.
    pub fn is_remote(&self) -> bool {
        match self {
            AgentAddress::Unix(_) | AgentAddress::Ccp(_) => false,
            #[cfg(feature = "tls")]
            AgentAddress::Tls(_) => true,
            AgentAddress::Failover(all) => all.iter().any(AgentAddress::is_remote),
        }
    }
}

#[cfg(all(test, feature = "tls"))]
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
        let both = AgentAddress::failover(vec![one, two])
            .unwrap()
            .with_keys(Path::new("/etc/k"));
        assert!(both.is_remote());
        assert_eq!(both.to_string(), "tls://a:1 or tls://b:2");
        let AgentAddress::Failover(all) = both else {
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
