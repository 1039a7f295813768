//! The link between hosts: version 2 in frames over TLS 1.3, each end with a key ([`make_keys`]).
//! docs/remote.md is its page.
//!
//! [`TlsLink`] is an agent's end, [`TlsUplink`] a datapath's.

mod keys;
mod link;
mod revocations;
mod strangers;
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

pub use keys::{KEYS, KeyError, Keys, Made, Role, make as make_keys, revoke as revoke_key};
pub use link::TlsLink;
pub use uplink::{FarError, TlsUplink};

use ccplane_units::Duration;

use super::BadAddress;
use super::random::random;

/// Where an agent on another host serves, and where the key for it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsAddress {
    /// Its name or its address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The folder of keys; [`KEYS`] where nobody said.
    pub keys: Option<PathBuf>,
}

impl FromStr for TlsAddress {
    type Err = BadAddress;

    /// `HOST:PORT`, `[IPV6]:PORT`, with `?keys=DIR` behind it or without.
    fn from_str(text: &str) -> Result<TlsAddress, BadAddress> {
        let (place, keys) = match text.split_once('?') {
            None => (text, None),
            Some((place, option)) => {
                let folder = option
                    .strip_prefix("keys=")
                    .filter(|folder| !folder.is_empty());
                (place, Some(PathBuf::from(folder.ok_or(BadAddress)?)))
            }
        };
        let (host, port) = place.rsplit_once(':').ok_or(BadAddress)?;
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
            _ => Err(BadAddress),
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

/// A far agent's silence after which flows fall back is so many round trips: a heartbeat on its
/// way, one that is late, and the next.
const ROUND_TRIPS: u64 = 3;
/// And this: what TCP waits at least before it sends again what was lost (200 ms, as Linux has RFC
/// 6298). Less would take every lost packet of the connection for a dead agent; more would leave
/// flows longer on their last window.
const AND: Duration = Duration::from_millis(200);

/// The silence of an agent on another host after which flows fall back, where their owner has not
/// said it.
pub fn far_silence(round_trip: Duration) -> Duration {
    round_trip * ROUND_TRIPS + AND
}

/// This process' number, drawn once.
fn process() -> u64 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    *PROCESS.get_or_init(random)
}
