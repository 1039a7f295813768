//! The datapath's view of an agent in another process.

use std::os::fd::BorrowedFd;
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
/// `unix:`. A query sets options: `ccp:PATH?timeout=2s`, `tls://HOST:PORT?keys=DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAddress {
    /// ccplane agent on this host: version 2 over a Unix socket.
    Unix(PathBuf),
    /// CCP agent: version 1 over a Unix datagram socket.
    Ccp(CcpAddress),
    /// ccplane agent on another host: version 2 over TLS.
    #[cfg(feature = "tls")]
    Tls(TlsAddress),
    /// Several agents, one of which is active: the first that answers, with failover to the next.
    Failover(Vec<AgentAddress>),
}

/// Address of a CCP agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CcpAddress {
    /// Path of the agent's socket.
    pub path: PathBuf,
    /// Agent timeout, counted from the agent's last message, because CCP agents send no
    /// heartbeats. `None`: the agent is alive while its socket exists.
    pub timeout: Option<Duration>,
}

impl FromStr for CcpAddress {
    type Err = BadAddress;

    /// Parses `PATH`, optionally followed by `?timeout=TIME`.
    fn from_str(text: &str) -> Result<CcpAddress, BadAddress> {
        let (path, timeout) = match text.split_once('?') {
            None => (text, None),
            Some((path, option)) => {
                let timeout = option
                    .strip_prefix("timeout=")
                    .and_then(|time| time.parse::<Duration>().ok())
                    .filter(|timeout| *timeout > Duration::ZERO);
                let invalid = || BadAddress::CcpOption(option.to_owned());
                (path, Some(timeout.ok_or_else(invalid)?))
            }
        };
        match path {
            "" => Err(BadAddress::Syntax),
            path => Ok(CcpAddress {
                path: path.into(),
                timeout,
            }),
        }
    }
}

impl std::fmt::Display for CcpAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ccp:{}", self.path.display())?;
        match self.timeout {
            Some(timeout) => write!(f, "?timeout={timeout}"),
            None => Ok(()),
        }
    }
}

/// Error of parsing an [`AgentAddress`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadAddress {
    /// Not an address.
    #[error(
        "not an address of an agent; write unix:PATH (`ccplane agent --unix PATH`), \
        tls://HOST:PORT (`ccplane agent --tls`), or ccp:PATH (a CCP agent, such as \
        ccp:/tmp/ccp/portus)"
    )]
    Syntax,
    /// An option of a CCP agent's address that does not exist or has an invalid value.
    #[error(
        "`{}` is not an option of a CCP agent's address; the only one is its timeout, as in \
        ccp:/tmp/ccp/portus?timeout=2s",
        .0.escape_debug()
    )]
    CcpOption(String),
    /// A timeout for an agent with heartbeats.
    #[error(
        "`?timeout=` applies to CCP agents only (ccp:PATH), because ccplane's agents send \
        heartbeats; remove it, or set `fallback_after` in `attach --limits`"
    )]
    Timeout,
}

impl FromStr for AgentAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<AgentAddress, BadAddress> {
        let path = match text.split_once(':') {
            Some(("ccp", address)) => return address.parse().map(AgentAddress::Ccp),
            _ if text.contains("?timeout=") => return Err(BadAddress::Timeout),
            #[cfg(feature = "tls")]
            Some(("tls", address)) => {
                let address = address.strip_prefix("//").ok_or(BadAddress::Syntax)?;
                return address.parse().map(AgentAddress::Tls);
            }
            Some(("unix", path)) => path,
            _ => text,
        };
        match path {
            "" => Err(BadAddress::Syntax),
            path => Ok(AgentAddress::Unix(path.into())),
        }
    }
}

impl std::fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AgentAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            AgentAddress::Ccp(address) => address.fmt(f),
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
    /// Creates an unconnected transport for flows of `algorithm`.
    pub fn connection(&self, algorithm: &str) -> Box<dyn AgentConnection> {
        match self {
            AgentAddress::Unix(path) => Box::new(Uplink::new(path)),
            AgentAddress::Ccp(address) => Box::new(super::CcpUplink::new(address, algorithm)),
            #[cfg(feature = "tls")]
            AgentAddress::Tls(address) => Box::new(TlsUplink::new(address)),
            AgentAddress::Failover(all) => Box::new(Failover::new(
                all.iter().map(|one| one.connection(algorithm)).collect(),
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
                AgentAddress::Ccp(CcpAddress {
                    path: "/tmp/ccp/portus".into(),
                    timeout: None,
                }),
            ),
            (
                "ccp:/tmp/ccp/portus?timeout=2s",
                AgentAddress::Ccp(CcpAddress {
                    path: "/tmp/ccp/portus".into(),
                    timeout: Some(Duration::from_secs(2)),
                }),
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
            assert_eq!(
                bad.parse::<AgentAddress>(),
                Err(BadAddress::Syntax),
                "{bad}"
            );
        }
        for option in ["timeout=2", "timeout=0s", "timeut=2s", ""] {
            let invalid = BadAddress::CcpOption(option.to_owned());
            let text = format!("ccp:/a?{option}");
            assert_eq!(text.parse::<AgentAddress>(), Err(invalid), "{text}");
        }
        for with_heartbeats in ["unix:/a", "/a", "tls://host:1"] {
            let text = format!("{with_heartbeats}?timeout=2s");
            assert_eq!(
                text.parse::<AgentAddress>(),
                Err(BadAddress::Timeout),
                "{text}"
            );
        }
    }

    #[test]
    fn the_address_of_a_ccp_agent_round_trips() {
        for timeout in [
            None,
            Some(Duration::from_secs(2)),
            Some(Duration::from_millis(1_500)),
            Some(Duration::from_nanos(1)),
            Some(Duration::MAX),
        ] {
            let address = CcpAddress {
                path: "/tmp/ccp/portus".into(),
                timeout,
            };
            let text = address.to_string();
            assert_eq!(text.contains("?timeout="), timeout.is_some(), "{text}");
            assert_eq!(text.parse(), Ok(AgentAddress::Ccp(address)), "{text}");
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
        let both = AgentAddress::failover(vec![one, two]).unwrap();
        assert!(both.is_remote());
        assert_eq!(both.to_string(), "tls://a:1 or tls://b:2");
        let AgentAddress::Failover(all) = both else {
            panic!("two addresses")
        };
        let keys = all.iter().map(|one| match one {
            AgentAddress::Tls(address) => address.keys.clone(),
            _ => None,
        });
        let expected: Vec<Option<PathBuf>> = vec![None, Some("/own".into())];
        assert_eq!(keys.collect::<Vec<_>>(), expected);
    }
}
