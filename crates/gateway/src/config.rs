//! Gateway configuration: a TOML file, parsed and checked as a whole. docs/gateway.md is the
//! reference.
//!
//! [`GatewayConfig::parse`] returns either a consistent configuration or the first [`Problem`],
//! with file, line, reason and fix. A configuration prints itself as a file with every default
//! written out; parsing that file returns the same configuration.

mod change;
mod check;
mod classes;
mod file;
mod listen;
mod print;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ccplane_qdisc::{ClassSpec, ClassesSpec, QueueSpec, Size};
use ccplane_scenario::{FileError, Problem, SourceText};
use ccplane_units::{Duration, Prefix, Rate};

pub use change::{ConfigChange, changes};
pub use classes::{
    ClassConfig, ClassifierInput, Dscp, Match, MatchParseError, Ports, Protocol, classify,
};
pub use listen::{
    AttachMetricsService, BadListenAddress, GatewayMetricsService, ListenAddress, ListenService,
    TunnelService,
};

use super::address::InterfaceAddress;
use super::keys::{PresharedKey, PrivateKey, PublicKey};

/// Gateway configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConfig {
    /// This site.
    pub site: SiteConfig,
    /// The other sites, in the order of the file.
    pub peers: Vec<PeerConfig>,
    /// Traffic classes of every peer's queue, at least one. The last class takes all packets that
    /// match no other.
    pub classes: Vec<ClassConfig>,
    /// Listening address of the metrics endpoint; `None` disables it.
    pub metrics: Option<SocketAddr>,
}

/// Settings of this site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Private key file as written in the configuration, relative to the configuration's directory.
    pub key: PathBuf,
    /// Local UDP address.
    pub listen: SocketAddr,
    /// Name of the TUN device.
    pub device: String,
    /// Addresses of the TUN device: this site's end of every tunnel.
    pub addresses: Vec<InterfaceAddress>,
    /// MTU of the TUN device: longest inner packet, bytes.
    pub mtu: u32,
    /// Limit on the sum of the rates to all peers.
    pub uplink_rate: Option<Rate>,
    /// Copies the DSCP of the inner packet to the outer header, where the network between the sites
    /// can read it. Otherwise the outer DSCP is 0.
    pub copy_dscp: bool,
}

/// Settings of another site.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerConfig {
    /// Name for logs, status and metrics.
    pub name: String,
    /// WireGuard public key, which identifies the peer.
    pub public_key: PublicKey,
    /// Preshared secret, mixed into the handshake in addition to the keys.
    pub preshared_key: Option<PresharedKey>,
    /// Address of the peer; `None` until the peer initiates a handshake.
    pub endpoint: Option<PeerEndpoint>,
    /// Networks routed to the peer (WireGuard's AllowedIPs).
    pub prefixes: Vec<Prefix>,
    /// The peer's tunnel address, to which this gateway sends its feedback and control messages.
    /// Without it nothing is measured and traffic passes through unshaped.
    pub address: Option<IpAddr>,
    /// Congestion control algorithm that sets the rate to the peer.
    pub algorithm: AlgorithmSpec,
    /// Queue for packets to the peer.
    pub queue: QueueSpec,
    /// Limit of the queue, as time at the highest possible rate; `None` keeps the limit of
    /// [`queue`](PeerConfig::queue).
    pub buffer: Option<Duration>,
    /// Lower bound of the rate limit.
    pub min_rate: Rate,
    /// Upper bound of the rate limit. In open mode there is no limit, so traffic may exceed it.
    pub max_rate: Option<Rate>,
}

/// Address of a peer: a host (IP address or DNS name) and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerEndpoint {
    host: String,
    port: u16,
}

/// Algorithm and its parameters, written as `bundler:law=copa`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlgorithmSpec {
    /// Name in the algorithm registry.
    pub name: String,
    /// `key=value` pairs.
    pub parameters: Vec<(String, String)>,
}

/// Checks that an algorithm and its parameters exist. The error has the form `reason; fix`.
pub type AlgorithmCheck<'a> = &'a dyn Fn(&AlgorithmSpec) -> Result<(), String>;

/// Defaults; docs/gateway.md repeats them. 1420 is WireGuard's MTU: 1500 less 80 bytes of outer
/// headers over IPv6.
const MTU_DEFAULT: u32 = 1_420;
const DEVICE_DEFAULT: &str = "ccplane0";
const ALGORITHM_DEFAULT: &str = "bundler";
/// The scheduling policy of the Bundler paper and its 15 Mbit (1.875 MB) limit. The 16384 buckets
/// make collisions rare among a thousand flows.
const QUEUE_DEFAULT: &str = "sfq:limit=1.875MB:depth=1250:flows=1250:divisor=16384";
/// Minimum rate of the Bundler reference implementation.
const RATE_MIN_DEFAULT: Rate = Rate::from_bits_per_sec(1_000_000);
/// Name of the catch-all class that is added when the file has none.
const CATCH_ALL_CLASS: &str = "rest";

impl GatewayConfig {
    /// Parses and checks a configuration. `file` is the file name used in problems.
    pub fn parse(
        file: &str,
        text: &str,
        knows: AlgorithmCheck<'_>,
    ) -> Result<GatewayConfig, Problem> {
        let source = SourceText { file, text };
        check::config(source, &source.parse(REFERENCE_PAGE)?, knows)
    }

    /// Reads a configuration file and the private key it names. Refuses key material that other
    /// users could read.
    pub fn read(
        path: &Path,
        knows: AlgorithmCheck<'_>,
    ) -> Result<(GatewayConfig, PrivateKey), FileError> {
        let failed = |why| FileError::Read {
            path: path.to_owned(),
            why,
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        // Read the mode from the open file, not from the path, so that it belongs to the text we
        // parse.
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        let text = io::read_to_string(file).map_err(failed)?;
        let name = path.display().to_string();
        let source = SourceText {
            file: &name,
            text: &text,
        };
        let written = source.parse(REFERENCE_PAGE)?;
        let config = check::config(source, &written, knows)?;
        check::secrecy(source, &written, mode)?;
        let key = check::key(source, &written, path.parent().unwrap_or(Path::new("")))?;
        Ok((config, key))
    }

    /// Returns a copy without preshared keys, for display.
    pub fn without_secrets(&self) -> GatewayConfig {
        let mut shown = self.clone();
        shown
            .peers
            .iter_mut()
            .for_each(|peer| peer.preshared_key = None);
        shown
    }

    /// Returns the queues for a peer, one per class: the queue of the class, or else the peer's.
    pub fn queues(&self, peer: &PeerConfig) -> ClassesSpec {
        let queue = peer.limited_queue(&self.site);
        let class = |class: &ClassConfig| ClassSpec {
            level: class.level,
            weight: class.weight,
            queue: class.queue.unwrap_or(queue),
        };
        ClassesSpec {
            classes: self.classes.iter().map(class).collect(),
        }
    }

    /// Returns the site's tunnel address of the same family, the source of messages to a peer.
    pub fn tunnel_address(&self, family: IpAddr) -> Option<IpAddr> {
        let mut addresses = self.site.addresses.iter().map(|own| own.address);
        addresses.find(|own| own.is_ipv4() == family.is_ipv4())
    }
}

impl PeerConfig {
    /// Returns the highest rate the configuration allows: the lower of `max` and the site's uplink
    /// rate.
    pub fn effective_max_rate(&self, site: &SiteConfig) -> Option<Rate> {
        self.max_rate.into_iter().chain(site.uplink_rate).min()
    }

    /// Returns the peer's queue with its limit set from `buffer`, if both `buffer` and a highest
    /// rate exist.
    pub fn limited_queue(&self, site: &SiteConfig) -> QueueSpec {
        match (self.buffer, self.effective_max_rate(site)) {
            (Some(buffer), Some(rate)) => {
                // The queue must hold at least two packets.
                let bytes = rate.bytes_in(buffer).get().max(u64::from(site.mtu) * 2);
                self.queue.with_limit(Size::Bytes(bytes))
            }
            _ => self.queue,
        }
    }
}

const REFERENCE_PAGE: &str = "docs/gateway.md";

impl PeerEndpoint {
    /// Returns the socket address if the host is an IP address rather than a DNS name.
    pub fn literal(&self) -> Option<SocketAddr> {
        let host = self
            .host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let address: IpAddr = host.unwrap_or(&self.host).parse().ok()?;
        Some(SocketAddr::new(address, self.port))
    }

    /// Returns the DNS name or address without the port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Error of parsing an [`PeerEndpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write HOST:PORT, as 198.51.100.7:51820, [2001:db8::7]:51820 or site-b.example:51820")]
pub struct BadEndpoint(&'static str);

impl FromStr for PeerEndpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<PeerEndpoint, BadEndpoint> {
        let (host, port) = text.trim().rsplit_once(':').ok_or(BadEndpoint("no port"))?;
        let port = match port.parse() {
            Ok(0) | Err(_) => {
                return Err(BadEndpoint("the port is not a number from 1 to 65535"));
            }
            Ok(port) => port,
        };
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        match bracketed {
            Some(v6) if v6.parse::<std::net::Ipv6Addr>().is_ok() => {}
            Some(_) => return Err(BadEndpoint("the text in brackets is not an IPv6 address")),
            None if host.contains(':') => {
                return Err(BadEndpoint("an IPv6 address needs brackets"));
            }
            None => {
                let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
                if host.is_empty() || !host.bytes().all(fits) {
                    return Err(BadEndpoint("not a host name"));
                }
            }
        }
        Ok(PeerEndpoint {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for PeerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Error of parsing an [`AlgorithmSpec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an algorithm; write its name and parameters, as `bundler` or `bundler:law=basic`")]
pub struct BadAlgorithm;

impl FromStr for AlgorithmSpec {
    type Err = BadAlgorithm;

    fn from_str(text: &str) -> Result<AlgorithmSpec, BadAlgorithm> {
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
        Ok(AlgorithmSpec {
            name: name.to_owned(),
            parameters: parameters.collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for AlgorithmSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.parameters
            .iter()
            .try_for_each(|(key, value)| write!(f, ":{key}={value}"))
    }
}

#[cfg(test)]
mod tests;
