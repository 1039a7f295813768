//! A gateway's configuration: a TOML file, read and checked as a whole. docs/gateway.md is the
//! reference.
//!
//! [`Config::parse`] gives a configuration in which everything fits together, or the first
//! [`Problem`], with file, line, reason and fix. A configuration prints itself as a file with every
//! default written out, and that file reads as the same configuration.

mod change;
mod check;
mod classes;
mod file;
mod print;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ccplane_qdisc::{ClassSpec, ClassesSpec, QueueSpec, RedSpec, Size};
use ccplane_scenario::{Problem, Source};
use ccplane_units::{Duration, Prefix, Rate};

pub use change::{Change, changes};
pub use classes::{BadWord, Class, Dscp, Match, Ports, Protocol, Seen, class_of};

use super::address::InterfaceAddress;
use super::keys::{PresharedKey, PrivateKey, PublicKey};

/// A gateway's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// This site.
    pub site: Site,
    /// The others, in the order of the file.
    pub peers: Vec<Peer>,
    /// The classes of every peer's queue; the last one takes what no other does. At least one.
    pub classes: Vec<Class>,
    /// Where its metrics are served; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
}

/// This site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The file of its private key, as it is written: seen from the configuration's directory.
    pub key: PathBuf,
    /// Where datagrams come in.
    pub listen: SocketAddr,
    /// The name of the TUN device.
    pub device: String,
    /// The device's addresses: the ends of every tunnel at this site.
    pub addresses: Vec<InterfaceAddress>,
    /// The longest packet inside, bytes.
    pub mtu: u32,
    /// No more is sent to all peers together.
    pub uplink_rate: Option<Rate>,
    /// The outer header of a packet has its DSCP, which the network between then sees; else it has
    /// 0.
    pub copy_dscp: bool,
}

/// Another site.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// For people.
    pub name: String,
    /// Who it is.
    pub public_key: PublicKey,
    /// Secret that both sites share in addition to their keys.
    pub preshared_key: Option<PresharedKey>,
    /// Where it is, if that is known before it comes.
    pub endpoint: Option<Endpoint>,
    /// What lies behind it.
    pub prefixes: Vec<Prefix>,
    /// The tunnel's end there, to which the boxes' own datagrams go. Without one nothing is
    /// measured, and traffic passes unshaped.
    pub address: Option<IpAddr>,
    /// Who decides how fast is sent to it.
    pub algorithm: Algorithm,
    /// The queue to it.
    pub queue: QueueSpec,
    /// What waits in it at most, as a time at the highest rate that there can be; `None`: what the
    /// queue says.
    pub buffer: Option<Duration>,
    /// No limit is lower.
    pub min: Rate,
    /// No limit is higher. While there is none, what is sent may be more.
    pub max: Option<Rate>,
}

/// Where a peer is: an address or a name, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// An algorithm and its parameters, as `bundler:law=copa`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// As the registry knows it.
    pub name: String,
    /// `key=value` pairs.
    pub parameters: Vec<(String, String)>,
}

/// Says whether there is such an algorithm; else why not, as `reason; fix`.
pub type Knows<'a> = &'a dyn Fn(&Algorithm) -> Result<(), String>;

/// Why a file gives no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// It could not be read.
    #[error("the configuration {} cannot be read: {why}", .path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It cannot be meant.
    #[error(transparent)]
    Problem(#[from] Problem),
}

/// Defaults, also for [`Config`]'s page. 1420 is WireGuard's: 1500 less 80 bytes of outer headers
/// over IPv6.
const MTU: u32 = 1_420;
const DEVICE: &str = "ccplane0";
const ALGORITHM: &str = "bundler";
/// The paper's policy and its 15 Mbit, with enough buckets that few of a thousand flows share one.
const QUEUE: &str = "sfq:limit=1.875MB:depth=1250:flows=1250:divisor=16384";
/// The reference's floor.
const MIN: Rate = Rate::from_bits_per_sec(1_000_000);
/// The class of what no other takes, where the file has none.
const REST: &str = "rest";

impl Config {
    /// Reads a text. `file` is its name in problems.
    pub fn parse(file: &str, text: &str, knows: Knows<'_>) -> Result<Config, Problem> {
        let source = Source { file, text };
        let written = toml::from_str(text).map_err(|error| source.syntax_of(&error, REFERENCE))?;
        check::config(source, &written, knows)
    }

    /// Reads a file and the private key that it names, which is nobody else's.
    pub fn read(path: &Path, knows: Knows<'_>) -> Result<(Config, PrivateKey), Unusable> {
        let failed = |why| Unusable::Read {
            path: path.to_owned(),
            why,
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        // The mode and the text are of one open file.
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        let text = io::read_to_string(file).map_err(failed)?;
        let name = path.display().to_string();
        let source = Source {
            file: &name,
            text: &text,
        };
        let written = toml::from_str(&text).map_err(|error| source.syntax_of(&error, REFERENCE))?;
        let config = check::config(source, &written, knows)?;
        check::secrecy(source, &written, mode)?;
        let key = check::key(source, &written, path.parent().unwrap_or(Path::new("")))?;
        Ok((config, key))
    }

    /// Returns the configuration without its secrets, to be shown.
    pub fn without_secrets(&self) -> Config {
        let mut shown = self.clone();
        shown
            .peers
            .iter_mut()
            .for_each(|peer| peer.preshared_key = None);
        shown
    }

    /// The queues to a peer, one for each class: its own, or the peer's.
    pub fn queues(&self, peer: &Peer) -> ClassesSpec {
        let queue = peer.limited_queue(&self.site);
        let class = |class: &Class| ClassSpec {
            level: class.level,
            weight: class.weight,
            queue: class.queue.unwrap_or(queue),
        };
        ClassesSpec {
            classes: self.classes.iter().map(class).collect(),
        }
    }

    /// The site's own address of a family, from which it speaks to a peer's.
    pub fn own_address(&self, family: IpAddr) -> Option<IpAddr> {
        let mut addresses = self.site.addresses.iter().map(|own| own.address);
        addresses.find(|own| own.is_ipv4() == family.is_ipv4())
    }
}

impl Peer {
    /// The highest rate that there can be.
    pub fn highest(&self, site: &Site) -> Option<Rate> {
        self.max.into_iter().chain(site.uplink_rate).min()
    }

    /// The queue with the limit that the buffer means.
    pub fn limited_queue(&self, site: &Site) -> QueueSpec {
        match (self.buffer, self.highest(site)) {
            (Some(buffer), Some(rate)) => {
                // A packet has to fit.
                let bytes = rate.bytes_in(buffer).get().max(u64::from(site.mtu) * 2);
                with_limit(self.queue, Size::Bytes(bytes))
            }
            _ => self.queue,
        }
    }
}

/// A queue that holds so much.
fn with_limit(queue: QueueSpec, limit: Size) -> QueueSpec {
    match queue {
        QueueSpec::DropTail(_) => QueueSpec::DropTail(limit),
        QueueSpec::Prio { bands, shared, .. } => QueueSpec::Prio {
            bands,
            shared,
            limit,
        },
        QueueSpec::Ecn { threshold, .. } => QueueSpec::Ecn { threshold, limit },
        QueueSpec::Sfq { config, .. } => QueueSpec::Sfq { config, limit },
        QueueSpec::Codel { config, .. } => QueueSpec::Codel { config, limit },
        QueueSpec::FqCodel { config, .. } => QueueSpec::FqCodel { config, limit },
        QueueSpec::Red(spec) => QueueSpec::Red(RedSpec { limit, ..spec }),
        QueueSpec::DualPi2 { config, .. } => QueueSpec::DualPi2 { config, limit },
        other => other,
    }
}

const REFERENCE: &str = "docs/gateway.md";

impl Endpoint {
    /// The address, where it is one and no name.
    pub fn literal(&self) -> Option<SocketAddr> {
        let host = self
            .host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let address: IpAddr = host.unwrap_or(&self.host).parse().ok()?;
        Some(SocketAddr::new(address, self.port))
    }

    /// The name or address, without the port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// A text that is no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; write an address or a name and a port, as 198.51.100.7:51820, [2001:db8::7]:51820 or site-b.example:51820"
)]
pub struct BadEndpoint(&'static str);

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Endpoint, BadEndpoint> {
        let (host, port) = text.trim().rsplit_once(':').ok_or(BadEndpoint("no port"))?;
        let port = match port.parse() {
            Ok(0) | Err(_) => {
                return Err(BadEndpoint("no port, which is a number from 1 to 65535"));
            }
            Ok(port) => port,
        };
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        match bracketed {
            Some(v6) if v6.parse::<std::net::Ipv6Addr>().is_ok() => {}
            Some(_) => return Err(BadEndpoint("no IPv6 address between the brackets")),
            None if host.contains(':') => {
                return Err(BadEndpoint("an IPv6 address without brackets"));
            }
            None => {
                let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
                if host.is_empty() || !host.bytes().all(fits) {
                    return Err(BadEndpoint("no name of a host"));
                }
            }
        }
        Ok(Endpoint {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A text that names no algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an algorithm; write its name and its parameters, as `bundler` or `bundler:law=basic`")]
pub struct BadAlgorithm;

impl FromStr for Algorithm {
    type Err = BadAlgorithm;

    fn from_str(text: &str) -> Result<Algorithm, BadAlgorithm> {
        let mut parts = text.trim().split(':');
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c))
        };
        let name = parts
            .next()
            .filter(|name| is_name(name))
            .ok_or(BadAlgorithm)?;
        let parameters = parts.map(|part| {
            let (key, value) = part.split_once('=').ok_or(BadAlgorithm)?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        });
        Ok(Algorithm {
            name: name.to_owned(),
            parameters: parameters.collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.parameters
            .iter()
            .try_for_each(|(key, value)| write!(f, ":{key}={value}"))
    }
}

#[cfg(test)]
mod tests;
