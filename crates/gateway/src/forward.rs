//! The threads that forward packets and the state they share. One thread forwards from the TUN
//! device to the peers, one in the other direction, and a third answers handshakes.

mod handshakes;
mod receive;
mod send;

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use ccplane_agent::DynAlgorithm;
use ccplane_link::ThreadClock;
use ccplane_units::{Duration, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

pub(crate) use handshakes::Handshakes;
pub(crate) use receive::Receiving;
pub(crate) use send::Sending;

use super::config::{AlgorithmSpec, GatewayConfig, PeerConfig, PeerEndpoint, SiteConfig};
use super::error::GatewayError;
use super::events::EventLog;
use super::keys::PublicKey;
use super::peer::Peer;
use super::routes::{PeerId, Routes};
use super::tunnel::HandshakeDemux;

/// Waits until the socket has a datagram, for `timeout` at most, or until a signal.
fn wait_readable(socket: &impl AsFd, timeout: Duration) -> std::io::Result<()> {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let timeout = TimeSpec::from_duration(timeout.to_std());
    match ppoll(&mut polled, Some(timeout), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

/// Factory of algorithms by configured name and parameters. The error has the form `reason; fix`.
pub type AlgorithmFactory =
    Arc<dyn Fn(&AlgorithmSpec) -> Result<Box<dyn DynAlgorithm>, String> + Send + Sync>;

/// State shared by the threads of a gateway.
pub(crate) struct GatewayState {
    pub clock: ThreadClock,
    /// Settings of this site. They never change while the gateway runs, except the uplink rate.
    pub site: SiteConfig,
    pub demux: HandshakeDemux,
    pub create_algorithm: AlgorithmFactory,
    pub observe: bool,
    /// True if the kernel may be queried for the path MTU of peers, which requires that the socket
    /// is in the network namespace of the threads.
    pub queries_path_mtu: bool,
    pub events: EventLog,
    pub counts: UnmatchedCounters,
    table: Mutex<Arc<PeerMap>>,
    reloads: Mutex<Vec<Reload>>,
    wake: EventFd,
    stop: AtomicBool,
    /// Start of the last turn of each forwarding thread in ns, indexed by [`ForwardingThread`].
    turn_starts: [AtomicU64; 2],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ForwardingThread {
    Send,
    Receive,
}

/// Counters of packets and datagrams that belong to no peer.
#[derive(Debug, Default)]
pub(crate) struct UnmatchedCounters {
    /// Datagrams that match no session of any peer.
    pub unknown_datagrams: AtomicU64,
    /// Initiations and cookie replies dropped by rate limits or a full socket.
    pub handshakes: AtomicU64,
    /// Packets from the site without a route.
    pub no_route: AtomicU64,
    /// Packets from the site dropped because the packet store was full.
    pub no_memory: AtomicU64,
    /// Packets that the TUN device rejected.
    pub refused: AtomicU64,
}

/// The current peers. A reload replaces the whole table.
#[derive(Default)]
pub(crate) struct PeerMap {
    /// Indexed by peer index; `None` marks a free slot.
    pub peers: Vec<Option<Arc<Peer>>>,
    pub by_key: BTreeMap<PublicKey, u32>,
    pub routes: Routes,
}

/// Resolved addresses of peers.
pub(crate) type PeerRoutes = BTreeMap<PublicKey, SocketAddr>;

/// A new configuration for the sending thread, with the channel for its result.
pub(crate) struct Reload {
    pub config: GatewayConfig,
    /// Resolved addresses of peers whose endpoint changed. Resolved beforehand, because a DNS
    /// lookup would delay packets.
    pub addresses: PeerRoutes,
    pub result: SyncSender<Result<(), GatewayError>>,
}

impl GatewayState {
    pub fn new(
        site: SiteConfig,
        door: HandshakeDemux,
        makes: AlgorithmFactory,
        observe: bool,
    ) -> Result<GatewayState, GatewayError> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(|why| GatewayError::system("create an eventfd")(why.into()))?;
        Ok(GatewayState {
            clock: ThreadClock::new(),
            site,
            demux: door,
            create_algorithm: makes,
            observe,
            queries_path_mtu: true,
            events: EventLog::default(),
            counts: UnmatchedCounters::default(),
            table: Mutex::default(),
            reloads: Mutex::default(),
            wake,
            stop: AtomicBool::new(false),
            turn_starts: Default::default(),
        })
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Records the start of a turn of a forwarding thread.
    pub fn record_turn(&self, direction: ForwardingThread) {
        self.turn_starts[direction as usize].store(self.now().as_nanos(), Ordering::Relaxed);
    }

    /// Returns the time since the less recent of the two threads started a turn.
    pub fn stalled_for(&self) -> Duration {
        let now = self.now();
        let last = self
            .turn_starts
            .iter()
            .map(|turn| turn.load(Ordering::Relaxed))
            .min();
        now.since(Time::from_nanos(last.unwrap_or_default()))
    }

    pub fn table(&self) -> Arc<PeerMap> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the table of peers.
    pub fn set_table(&self, table: PeerMap) {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    /// Queues a reload for the sending thread and wakes it.
    pub fn request_reload(&self, reload: Reload) {
        self.reloads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(reload);
        self.wake();
    }

    fn take_reloads(&self) -> Vec<Reload> {
        std::mem::take(&mut self.reloads.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes the sending thread.
    pub fn wake(&self) {
        // The write can only fail if a wake-up is already pending, which is sufficient.
        let _ = self.wake.write(1);
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl PeerMap {
    /// Returns the peer in a slot.
    pub fn peer(&self, index: u32) -> Option<&Arc<Peer>> {
        self.peers.get(index as usize)?.as_ref()
    }

    /// Puts a peer into its slot.
    pub fn insert(&mut self, peer: Peer) {
        let place = peer.index as usize;
        if self.peers.len() <= place {
            self.peers.resize_with(place + 1, || None);
        }
        self.by_key.insert(peer.config.public_key, peer.index);
        self.peers[place] = Some(Arc::new(peer));
    }

    /// Removes a peer.
    pub fn remove(&mut self, peer: &Peer) {
        // After a change of its preshared key, the peer's key already maps to a new slot.
        if self.by_key.get(&peer.config.public_key) == Some(&peer.index) {
            self.by_key.remove(&peer.config.public_key);
        }
        if let Some(place) = self.peers.get_mut(peer.index as usize) {
            *place = None;
        }
    }

    /// Iterates over all peers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.peers.iter().flatten()
    }

    /// Returns the first free slot.
    pub fn free_slot(&self) -> u32 {
        let place = self.peers.iter().position(Option::is_none);
        place.unwrap_or(self.peers.len()) as u32
    }

    /// Rebuilds the routes from the prefixes of all peers.
    pub fn rebuild_routes(&mut self) {
        let prefixes = self.peers.iter().flatten().flat_map(|peer| {
            let place = PeerId(peer.index);
            peer.config
                .prefixes
                .iter()
                .map(move |prefix| (*prefix, place))
        });
        self.routes = Routes::new(prefixes.collect::<Vec<_>>());
    }
}

/// Resolves the endpoints of peers. Names that cannot be resolved are left out and retried later.
pub(crate) fn resolve_endpoints<'a>(
    shared: &GatewayState,
    peers: impl IntoIterator<Item = &'a PeerConfig>,
) -> PeerRoutes {
    let mut all = PeerRoutes::new();
    for peer in peers {
        let Some(endpoint) = &peer.endpoint else {
            continue;
        };
        match resolve(endpoint, shared.site.listen) {
            Ok(found) => drop(all.insert(peer.public_key, found)),
            Err(why) => {
                let text = format!("cannot resolve {endpoint}: {why}");
                shared
                    .events
                    .record(shared.now(), &peer.name, "endpoint", text);
            }
        }
    }
    all
}

/// Resolves an endpoint to an address of a family that a socket bound to `listen` can reach.
pub(crate) fn resolve(endpoint: &PeerEndpoint, listen: SocketAddr) -> std::io::Result<SocketAddr> {
    let found = match endpoint.literal() {
        Some(address) => vec![address],
        None => (endpoint.host(), endpoint.port())
            .to_socket_addrs()?
            .collect(),
    };
    let reachable = |address: &SocketAddr| match (address, listen) {
        (SocketAddr::V4(v4), SocketAddr::V6(_)) => {
            Some(SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()))
        }
        (SocketAddr::V6(v6), SocketAddr::V4(_)) => v6
            .ip()
            .to_ipv4_mapped()
            .map(|v4| SocketAddr::new(v4.into(), v6.port())),
        _ => Some(*address),
    };
    found.iter().find_map(reachable).ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::AddrNotAvailable,
            "no address of a family that this site's socket can reach",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_reached_from_a_socket_of_the_other_family() {
        let at = |endpoint: &str, listen: &str| {
            resolve(&endpoint.parse().unwrap(), listen.parse().unwrap())
                .map(|address| address.to_string())
        };
        assert_eq!(at("192.0.2.1:5", "0.0.0.0:1").unwrap(), "192.0.2.1:5");
        assert_eq!(at("192.0.2.1:5", "[::]:1").unwrap(), "[::ffff:192.0.2.1]:5");
        assert_eq!(at("[2001:db8::1]:5", "[::]:1").unwrap(), "[2001:db8::1]:5");
        assert!(at("[2001:db8::1]:5", "0.0.0.0:1").is_err());
    }
}
