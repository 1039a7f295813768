//! Configuration checks: each setting by itself, then all settings against each other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ccplane_link::secret_file::is_exposed;
use ccplane_qdisc::{ClassSpec, QueueSpec};
use ccplane_scenario::{Problem, SourceText, SpannedValue};
use ccplane_units::{Duration, Prefix, Rate};
use toml::Spanned;

use super::file::{self, FarEnd, GatewayFile};
use super::{
    ALGORITHM_DEFAULT, AlgorithmCheck, AlgorithmSpec, CATCH_ALL_CLASS, ClassConfig, DEVICE_DEFAULT,
    GatewayConfig, MTU_DEFAULT, Match, PeerConfig, QUEUE_DEFAULT, RATE_MIN_DEFAULT, SiteConfig,
};
use crate::address::InterfaceAddress;
use crate::keys::{PrivateKey, PublicKey};
use crate::routes::{PeerId, Routes};

/// Minimum link MTU of IPv6 (RFC 8200, section 5).
const MTU_MIN: u32 = 1_280;
/// Longest inner packet: the longest UDP payload, 65,507 bytes, less WireGuard's 32 bytes and a
/// margin that also covers the 40-byte IPv6 header.
const MTU_MAX: u32 = 65_400;
/// Peers per gateway. The peer index takes 12 bits of the session index in WireGuard messages.
pub(crate) const PEERS_MAX: usize = 1 << 12;
/// Classes per configuration. Each class is a separate queue for every peer, and more than a
/// handful are hard to tell apart in practice.
const CLASSES_MAX: usize = 32;
/// Bounds of `buffer`. Below 1 ms the queue holds less than one packet at 10 Mbit/s; above 10 s it
/// holds packets that their receivers no longer need.
const BUFFER_MIN: Duration = Duration::from_millis(1);
const BUFFER_MAX: Duration = Duration::from_secs(10);
/// RTT assumed when a queue's byte limit is checked. Queues that depend on the path's RTT are
/// refused.
const ASSUMED_RTT: Duration = Duration::from_millis(50);
/// IFNAMSIZ less the terminating NUL (linux/if.h).
const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// Checks a whole file.
pub(super) fn config(
    source: SourceText<'_>,
    file: &GatewayFile,
    knows: AlgorithmCheck<'_>,
) -> Result<GatewayConfig, Problem> {
    let context = GatewayContext {
        source,
        check_algorithm: knows,
    };
    let site = context.site(&file.site)?;
    let peers = context.peers(&file.peer, &site)?;
    Ok(GatewayConfig {
        classes: context.classes(&file.class, site.mtu)?,
        metrics: file.metrics.as_ref().map(|at| at.listen.get_ref().0.0),
        site,
        peers,
    })
}

/// Reads the private key that a file names and refuses it if it belongs to one of the peers.
/// `folder` is the directory of the configuration file.
pub(super) fn key(
    source: SourceText<'_>,
    file: &GatewayFile,
    folder: &Path,
) -> Result<PrivateKey, Problem> {
    let at = &file.site.key;
    let key = PrivateKey::read(&folder.join(at.get_ref()))
        .map_err(|why| source.problem_from_error(at, "this key", &why))?;
    let own = key.public();
    let mut keys = file.peer.iter().map(|peer| &peer.get_ref().public_key);
    match keys.find(|peer| peer.get_ref().0 == own) {
        Some(peer) => Err(source.problem(
            peer.span(),
            "the peer's key is this site's own",
            "own key",
            "write the key that `ccplane gateway keys FILE` prints at the other site",
        )),
        None => Ok(key),
    }
}

/// Refuses a file with a preshared key that other users can read, as for private key files.
pub(super) fn secrecy(
    source: SourceText<'_>,
    file: &GatewayFile,
    mode: u32,
) -> Result<(), Problem> {
    let mut peers = file.peer.iter().map(Spanned::get_ref);
    match peers.find(|peer| peer.preshared_key.is_some()) {
        // Points at the public key: messages quote the line, and the secret must not appear.
        Some(peer) if is_exposed(mode) => Err(source.problem(
            peer.public_key.span(),
            format!(
                "other users can read this file (mode {:04o}), which contains a preshared key",
                mode & 0o7777
            ),
            "of this peer",
            format!("chmod 600 {}", source.file),
        )),
        _ => Ok(()),
    }
}

struct GatewayContext<'a> {
    source: SourceText<'a>,
    check_algorithm: AlgorithmCheck<'a>,
}

impl GatewayContext<'_> {
    fn site(&self, site: &file::SiteTable) -> Result<SiteConfig, Problem> {
        Ok(SiteConfig {
            key: PathBuf::from(site.key.get_ref()),
            listen: site.listen.get_ref().0.0,
            device: self.device(site.device.as_ref())?,
            addresses: self.addresses(&site.addresses)?,
            mtu: self.mtu(site.mtu.as_ref())?,
            uplink_rate: site.uplink_rate.as_ref().map(|rate| rate.get_ref().0),
            copy_dscp: site.copy_dscp,
        })
    }

    fn device(&self, device: Option<&Spanned<String>>) -> Result<String, Problem> {
        let Some(device) = device else {
            return Ok(DEVICE_DEFAULT.to_owned());
        };
        let name = device.get_ref();
        // The kernel's rule (dev_valid_name), less characters that are awkward in shells and file
        // names.
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if name.is_empty()
            || name.len() > INTERFACE_NAME_BYTES_MAX
            || !name.bytes().all(fits)
            || matches!(name.as_str(), "." | "..")
        {
            return Err(self.source.problem(
                device,
                format!("`{}` is not a valid interface name", name.escape_debug()),
                "here",
                format!("use 1 to {INTERFACE_NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`"),
            ));
        }
        Ok(name.clone())
    }

    fn addresses(
        &self,
        written: &Spanned<Vec<SpannedValue<InterfaceAddress>>>,
    ) -> Result<Vec<InterfaceAddress>, Problem> {
        let addresses = written.get_ref().iter();
        self.source.check_distinct(
            "address",
            addresses.map(|one| (one.get_ref().0.address, one.span())),
            "remove one of them",
        )?;
        let mut all: Vec<InterfaceAddress> = Vec::new();
        for address in written.get_ref() {
            let one = address.get_ref().0;
            if one.address.is_ipv4() && all.iter().any(|before| before.address.is_ipv4()) {
                let fix = "give at most one IPv4 address; IPv6 addresses are not limited";
                return Err(self.source.problem(
                    address,
                    "the device already has an IPv4 address",
                    "a second one",
                    fix,
                ));
            }
            all.push(one);
        }
        if all.is_empty() {
            return Err(self.source.problem(
                written,
                "the tunnel device has no address",
                "empty",
                "give one that no other site uses, as [\"10.7.0.1/24\"]",
            ));
        }
        Ok(all)
    }

    fn mtu(&self, mtu: Option<&Spanned<u32>>) -> Result<u32, Problem> {
        let Some(mtu) = mtu else {
            return Ok(MTU_DEFAULT);
        };
        let bytes = *mtu.get_ref();
        let problem = |what: String, fix: String| Err(self.source.problem(mtu, what, "here", fix));
        match bytes {
            ..MTU_MIN => problem(
                format!("packets of {bytes} bytes are too short"),
                format!(
                    "give at least {MTU_MIN}, the minimum of IPv6; {MTU_DEFAULT} fits most paths"
                ),
            ),
            MTU_MIN..=MTU_MAX => Ok(bytes),
            _ => problem(
                format!("packets of {bytes} bytes do not fit into a datagram"),
                format!("give at most {MTU_MAX}; {MTU_DEFAULT} fits most paths"),
            ),
        }
    }

    fn peers(
        &self,
        written: &[Spanned<file::PeerTable>],
        site: &SiteConfig,
    ) -> Result<Vec<PeerConfig>, Problem> {
        if written.is_empty() || written.len() > PEERS_MAX {
            let (what, fix) = match written.get(PEERS_MAX) {
                None => (
                    "the configuration has no peer",
                    "add a [[peer]] with its public_key and prefixes".to_owned(),
                ),
                Some(_) => (
                    "too many peers",
                    format!("a gateway has at most {PEERS_MAX}"),
                ),
            };
            let span = written.get(PEERS_MAX).map_or(0..0, Spanned::span);
            return Err(self.source.problem(span, what, "here", fix));
        }
        let peers = written
            .iter()
            .map(|peer| self.peer(peer.get_ref(), site))
            .collect::<Result<Vec<PeerConfig>, Problem>>()?;
        self.distinct(written, &peers)?;
        let routes = self.routes(written, site)?;
        for (place, (written, peer)) in written.iter().zip(&peers).enumerate() {
            self.reaches(
                written.get_ref(),
                peer,
                PeerId(place as u32),
                &peers,
                &routes,
            )?;
        }
        Ok(peers)
    }

    fn peer(&self, peer: &file::PeerTable, site: &SiteConfig) -> Result<PeerConfig, Problem> {
        let public_key = peer.public_key.get_ref().0;
        let prefixes: Vec<Prefix> = peer
            .prefixes
            .get_ref()
            .iter()
            .map(|prefix| prefix.get_ref().0)
            .collect();
        if prefixes.is_empty() {
            return Err(self.source.problem(
                &peer.prefixes,
                "this peer has no prefixes",
                "empty",
                "give its networks and its tunnel address, as [\"10.8.0.0/16\", \"10.7.0.2/32\"]",
            ));
        }
        let address = self.peer_address(peer, &prefixes, site)?;
        let (min, max) = (
            peer.min
                .as_ref()
                .map_or(RATE_MIN_DEFAULT, |min| min.get_ref().0),
            peer.max.as_ref().map(|max| max.get_ref().0),
        );
        if let (Some(max), Some(at)) = (max, peer.max.as_ref().or(peer.min.as_ref()))
            && max < min
        {
            return Err(self.source.problem(
                at,
                format!("`max` ({max}) is below `min` ({min})"),
                "here",
                "give a `max` above `min`; the default of `min` is 1mbit",
            ));
        }
        Ok(PeerConfig {
            name: self.peer_name(peer, public_key)?,
            public_key,
            preshared_key: peer.preshared_key.as_ref().map(|key| key.get_ref().0),
            endpoint: self.endpoint(peer, site)?,
            prefixes,
            address,
            algorithm: self.algorithm(peer.algorithm.as_ref(), peer.public_key.span())?,
            queue: match self.queue(peer.queue.as_ref(), site.mtu)? {
                Some(queue) => queue,
                None => self.default_queue(&peer.public_key)?,
            },
            buffer: self.buffer(peer.buffer.as_ref(), max.or(site.uplink_rate))?,
            min_rate: min,
            max_rate: max,
        })
    }

    fn peer_name(&self, peer: &file::PeerTable, key: PublicKey) -> Result<String, Problem> {
        let Some(name) = &peer.name else {
            return Ok(key.short());
        };
        let text = name.get_ref();
        if text.is_empty()
            || text.len() > 64
            || text.chars().any(|c| c.is_control() || c.is_whitespace())
        {
            return Err(self.source.problem(
                name,
                format!("`{}` is not a valid peer name", text.escape_debug()),
                "here",
                "use 1 to 64 characters without spaces: commands take the name as one word",
            ));
        }
        Ok(text.clone())
    }

    fn endpoint(
        &self,
        peer: &file::PeerTable,
        site: &SiteConfig,
    ) -> Result<Option<super::PeerEndpoint>, Problem> {
        let Some(written) = &peer.endpoint else {
            return Ok(None);
        };
        let endpoint = &written.get_ref().0;
        if let Some(SocketAddr::V6(v6)) = endpoint.literal()
            && site.listen.is_ipv4()
            && v6.ip().to_ipv4_mapped().is_none()
        {
            return Err(self.source.problem(
                written,
                "an IPv6 address, but this site listens on IPv4",
                "not reachable",
                format!("listen on [::]:{}, which accepts both", site.listen.port()),
            ));
        }
        Ok(Some(endpoint.clone()))
    }

    /// Returns the peer's tunnel address: the configured one, or else the first prefix that is a
    /// single host.
    fn peer_address(
        &self,
        peer: &file::PeerTable,
        prefixes: &[Prefix],
        site: &SiteConfig,
    ) -> Result<Option<IpAddr>, Problem> {
        let Some(written) = &peer.address else {
            let mut hosts = prefixes
                .iter()
                .filter(|prefix| prefix.is_host())
                .map(Prefix::network);
            return Ok(hosts.find(|host| has_family(site, *host)));
        };
        let FarEnd(address) = written.get_ref().0;
        if !has_family(site, address) {
            return Err(self.source.problem(
                written,
                format!("this site has no address of the same family as {address}"),
                "here",
                "add one to the site's `addresses`",
            ));
        }
        if !prefixes.iter().any(|prefix| prefix.contains(address)) {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            return Err(self.source.problem(
                written,
                format!("none of the peer's prefixes contains {address}"),
                "here",
                format!("add \"{address}/{bits}\" to its `prefixes`"),
            ));
        }
        Ok(Some(address))
    }

    /// Returns the configured algorithm or the default. Problems with the default are shown at
    /// `peer`.
    fn algorithm(
        &self,
        written: Option<&SpannedValue<AlgorithmSpec>>,
        peer: Range<usize>,
    ) -> Result<AlgorithmSpec, Problem> {
        let default = AlgorithmSpec {
            name: ALGORITHM_DEFAULT.to_owned(),
            parameters: Vec::new(),
        };
        let algorithm = written.map_or(default, |written| written.get_ref().0.clone());
        let span = written.map_or(peer, Spanned::span);
        (self.check_algorithm)(&algorithm)
            .map_err(|why| self.source.problem_from_error(span, "this algorithm", &why))?;
        Ok(algorithm)
    }

    fn queue(
        &self,
        written: Option<&SpannedValue<QueueSpec>>,
        mtu: u32,
    ) -> Result<Option<QueueSpec>, Problem> {
        let Some(written) = written else {
            return Ok(None);
        };
        let queue = written.get_ref().0;
        if queue.has_fixed_rate() {
            let names: Vec<_> = QueueSpec::variable_rate_names().collect();
            return Err(self.source.problem(
                written,
                "this queue has a fixed rate, but the gateway's rate changes continuously",
                "this queue",
                format!("use one of {}", names.join(", ")),
            ));
        }
        queue
            .limit(None, ASSUMED_RTT, mtu)
            .map_err(|why| self.source.problem_from_error(written, "this queue", &why))?;
        Ok(Some(queue))
    }

    fn default_queue<T>(&self, at: &Spanned<T>) -> Result<QueueSpec, Problem> {
        QUEUE_DEFAULT
            .parse()
            .map_err(|why| self.source.problem_from_error(at, "its queue", &why))
    }

    /// Checks `buffer`, which is converted to bytes at the highest rate and therefore requires one.
    fn buffer(
        &self,
        written: Option<&SpannedValue<Duration>>,
        rate: Option<Rate>,
    ) -> Result<Option<Duration>, Problem> {
        let Some(written) = written else {
            return Ok(None);
        };
        let buffer = written.get_ref().0;
        if !(BUFFER_MIN..=BUFFER_MAX).contains(&buffer) {
            return Err(self.source.problem(
                written,
                format!("a buffer of {buffer} is out of range"),
                "here",
                format!("give {BUFFER_MIN} to {BUFFER_MAX}; 150ms holds the bursts of a site"),
            ));
        }
        if rate.is_none() {
            return Err(self.source.problem(
                written,
                format!("a buffer of {buffer} needs a rate, but no maximum rate is set"),
                "here",
                "set `max` or the site's `uplink_rate`, or give the queue its own limit, as \
                \"sfq:limit=1.875MB:depth=1250\"",
            ));
        }
        Ok(Some(buffer))
    }

    /// Checks that names and public keys are unique.
    fn distinct(
        &self,
        written: &[Spanned<file::PeerTable>],
        peers: &[PeerConfig],
    ) -> Result<(), Problem> {
        let keys = written.iter().map(|at| &at.get_ref().public_key);
        self.source.check_distinct(
            "public key",
            keys.map(|key| (key.get_ref().0, key.span())),
            "each site has its own key; put all prefixes of a site into one [[peer]]",
        )?;
        let spans = written.iter().map(|at| {
            let peer = at.get_ref();
            let name = peer.name.as_ref();
            name.map_or(peer.public_key.span(), Spanned::span)
        });
        self.source.check_distinct(
            "peer name",
            peers.iter().map(|peer| &peer.name).zip(spans),
            "give it another `name`",
        )
    }

    /// Builds the routes. Refuses duplicate prefixes and this site's own addresses.
    fn routes(
        &self,
        written: &[Spanned<file::PeerTable>],
        site: &SiteConfig,
    ) -> Result<Routes, Problem> {
        let mut owners: BTreeMap<Prefix, PeerId> = BTreeMap::new();
        for (place, peer) in written.iter().enumerate() {
            for prefix in peer.get_ref().prefixes.get_ref() {
                let one = prefix.get_ref().0;
                if one.is_host()
                    && site
                        .addresses
                        .iter()
                        .any(|own| own.address == one.network())
                {
                    return Err(self.source.problem(
                        prefix,
                        format!("{} is this site's own address", one.network()),
                        "here",
                        "give the tunnel address of the other site",
                    ));
                }
                if let Some(other) = owners.insert(one, PeerId(place as u32)) {
                    let whose = if other.0 as usize == place {
                        "this peer"
                    } else {
                        "another peer"
                    };
                    return Err(self.source.problem(
                        prefix,
                        format!("{one} already belongs to {whose}"),
                        "again",
                        "assign each network to one peer; of nested networks, the longer prefix \
                        wins",
                    ));
                }
            }
        }
        Ok(Routes::new(owners))
    }

    /// Checks that the peer's endpoint is not routed into a tunnel, and that its tunnel address is
    /// routed to this peer.
    fn reaches(
        &self,
        written: &file::PeerTable,
        peer: &PeerConfig,
        id: PeerId,
        peers: &[PeerConfig],
        routes: &Routes,
    ) -> Result<(), Problem> {
        let name = |id: PeerId| {
            peers
                .get(id.0 as usize)
                .map_or("", |peer| peer.name.as_str())
        };
        if let (Some(at), Some(endpoint)) = (
            &written.endpoint,
            peer.endpoint
                .as_ref()
                .and_then(super::PeerEndpoint::literal),
        ) && let Some(through) = routes.lookup(endpoint.ip().to_canonical())
        {
            return Err(self.source.problem(
                at,
                format!(
                    "{} lies in a prefix of `{}`: its datagrams would be routed into the tunnel",
                    endpoint.ip(),
                    name(through)
                ),
                "here",
                "replace that prefix by smaller ones that do not contain the endpoint",
            ));
        }
        if let (Some(at), Some(address)) = (&written.address, peer.address)
            && let Some(other) = routes.lookup(address).filter(|owner| *owner != id)
        {
            return Err(self.source.problem(
                at,
                format!("{address} lies in a longer prefix of `{}`", name(other)),
                "here",
                "add the address to this peer's `prefixes`",
            ));
        }
        Ok(())
    }

    fn classes(
        &self,
        written: &[Spanned<file::ClassTable>],
        mtu: u32,
    ) -> Result<Vec<ClassConfig>, Problem> {
        if let Some(last) = written.get(CLASSES_MAX) {
            return Err(self.source.problem(
                last,
                "too many classes",
                "here",
                format!("use at most {CLASSES_MAX}"),
            ));
        }
        let mut all: Vec<ClassConfig> = Vec::new();
        for (place, class) in written.iter().enumerate() {
            let one = self.class(class, place, mtu)?;
            if all.last().is_some_and(|before| before.matches.is_none()) {
                return Err(self.source.problem(
                    class,
                    "the class before this one takes all remaining packets",
                    "never reached",
                    "put the class without `match` last",
                ));
            }
            all.push(one);
        }
        let spans = written.iter().map(|at| {
            let name = at.get_ref().name.as_ref();
            name.map_or(at.span(), Spanned::span)
        });
        self.source.check_distinct(
            "class name",
            all.iter().map(|class| &class.name).zip(spans),
            "give it another `name`",
        )?;
        if all.last().is_none_or(|last| last.matches.is_some()) {
            let level = all.iter().map(|class| class.level).max().unwrap_or(0);
            if let Some(taken) = written
                .iter()
                .zip(&all)
                .find(|(_, class)| class.name == CATCH_ALL_CLASS)
                .map(|(at, _)| at)
            {
                let fix = "give it another `name`, or remove its `match`: this name is reserved \
                    for packets that match no class";
                return Err(self.source.problem(
                    taken,
                    format!("the class `{CATCH_ALL_CLASS}` has a `match`"),
                    "here",
                    fix,
                ));
            }
            all.push(ClassConfig {
                name: CATCH_ALL_CLASS.to_owned(),
                matches: None,
                level,
                weight: 1,
                queue: None,
            });
        }
        Ok(all)
    }

    fn class(
        &self,
        written: &Spanned<file::ClassTable>,
        place: usize,
        mtu: u32,
    ) -> Result<ClassConfig, Problem> {
        let w = written.get_ref();
        const WEIGHT_MAX: u32 = ClassSpec::WEIGHT_MAX;
        if let Some(weight) = &w.weight {
            let (what, fix) = match *weight.get_ref() {
                0 => (
                    "a class of weight 0 is never served",
                    "give at least 1".to_owned(),
                ),
                1..=WEIGHT_MAX => ("", String::new()),
                _ => (
                    "the weight is too large",
                    format!("give at most {WEIGHT_MAX}; only the ratio of weights matters"),
                ),
            };
            if !what.is_empty() {
                return Err(self.source.problem(weight, what, "here", fix));
            }
        }
        if let Some(name) = w
            .name
            .as_ref()
            .filter(|name| name.get_ref().trim().is_empty())
        {
            return Err(self.source.problem(
                name,
                "no name",
                "here",
                "give a name, or omit `name`",
            ));
        }
        let matches = w.matches.as_ref().map(|at| {
            let m = at.get_ref();
            let matches = Match {
                dscp: m.dscp.values(),
                prefixes: m.prefix.values(),
                ports: m.port.values(),
                protocols: m.proto.values(),
            };
            if matches.is_empty() {
                return Err(self.source.problem(
                    at,
                    "`match` has no condition",
                    "empty",
                    "give `dscp`, `prefix`, `port` or `proto`, or omit `match` to take all \
                    remaining packets",
                ));
            }
            Ok(matches)
        });
        let matches = matches.transpose()?;
        let unnamed = || match matches {
            Some(_) => format!("class{}", place + 1),
            None => CATCH_ALL_CLASS.to_owned(),
        };
        Ok(ClassConfig {
            name: w
                .name
                .as_ref()
                .map_or_else(unnamed, |name| name.get_ref().clone()),
            level: w.level.as_ref().map_or(0, |level| *level.get_ref()),
            weight: w.weight.as_ref().map_or(1, |weight| *weight.get_ref()),
            queue: self.queue(w.queue.as_ref(), mtu)?,
            matches,
        })
    }
}

fn has_family(site: &SiteConfig, address: IpAddr) -> bool {
    site.addresses
        .iter()
        .any(|own| own.address.is_ipv4() == address.is_ipv4())
}
