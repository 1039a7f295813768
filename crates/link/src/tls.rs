//! Link between hosts: version-2 messages in frames over TLS 1.3, with a key at each end
//! ([`make_keys`]). docs/remote.md describes it.
//!
//! [`TlsLink`] is the agent's end, [`TlsUplink`] the datapath's.

mod keys;
mod link;
mod pending_connections;
mod revocations;
mod stream;
mod tenants;
#[cfg(test)]
mod tests;
mod trust;
mod uplink;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;

pub use keys::{
    KEY_DIRECTORY, KeyError, Keys, NewKeys, Role, make as make_keys, revoke as revoke_key,
};
pub use link::TlsLink;
pub use uplink::{RemoteAgentError, TlsUplink};

use ccplane_units::Duration;

use super::BadAddress;
use super::random::random;

/// Address of an agent on another host, and the key for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsAddress {
    /// DNS name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Directory of the key files; `None` means [`KEY_DIRECTORY`].
    pub keys: Option<PathBuf>,
}

impl FromStr for TlsAddress {
    type Err = BadAddress;

    /// Parses `HOST:PORT` or `[IPV6]:PORT`, optionally followed by `?keys=DIR`.
    fn from_str(text: &str) -> Result<TlsAddress, BadAddress> {
        let (place, keys) = match text.split_once('?') {
            None => (text, None),
            Some((place, option)) => {
                let folder = option
                    .strip_prefix("keys=")
                    .filter(|folder| !folder.is_empty());
                (
                    place,
                    Some(PathBuf::from(folder.ok_or(BadAddress::Syntax)?)),
                )
            }
        };
        let (host, port) = place.rsplit_once(':').ok_or(BadAddress::Syntax)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let named = bare.is_some() || !host.contains(':');
        match port.parse() {
            Ok(port) if port > 0 && named && !host.is_empty() && !host.contains('/') => {
                Ok(TlsAddress {
                    host: host.to_owned(),
                    port,
                    keys,
                })
            }
            _ => Err(BadAddress::Syntax),
        }
    }
}

impl fmt::Display for TlsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "tls://[{}]:{}", self.host, self.port),
            false => write!(f, "tls://{}:{}", self.host, self.port),
        }
    }
}

/// RTTs in the silence timeout of a remote agent: one heartbeat in flight, one delayed, and the
/// next.
const SILENCE_RTTS: u64 = 3;
/// Constant part of the silence timeout: TCP's minimum retransmission timeout (200 ms in Linux; RFC
/// 6298). If it were shorter, every packet loss of the connection would look like a dead agent; if
/// longer, flows would keep their last window for longer.
const SILENCE_MARGIN: Duration = Duration::from_millis(200);

/// Returns the default silence timeout of an agent on another host, after which flows run the
/// fallback.
pub fn remote_agent_timeout(round_trip: Duration) -> Duration {
    round_trip * SILENCE_RTTS + SILENCE_MARGIN
}

/// Returns a random number that identifies this process.
fn process() -> u64 {
    static PROCESS_ID: OnceLock<u64> = OnceLock::new();
    *PROCESS_ID.get_or_init(random)
}
