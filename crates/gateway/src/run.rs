//! Starting, reloading and stopping a gateway.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ccplane_host::{MainRoute, Offload, Tun};
use ccplane_udp::{FirstByte, Socket as Udp};
use ccplane_units::Prefix;

use super::config::{ConfigChange, GatewayConfig, PeerConfig, changes};
use super::error::GatewayError;
use super::forward::{
    AlgorithmFactory, ForwardingThread, GatewayState, Handshakes, Receiving, Reload, Sending,
    resolve, resolve_endpoints,
};
use super::keys::PrivateKey;
use super::report::GatewayReport;
use super::status::Socket;
use super::tunnel::{HandshakeDemux, INITIATION_TYPE};

/// Metric of the routes into the tunnels. Backup routes for when the gateway is down need a higher
/// metric.
const ROUTE_METRIC: u16 = 50;
/// Interval between DNS lookups of a peer's endpoint while there is no session with it.
const DNS_INTERVAL: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A running gateway.
pub struct Gateway {
    shared: Arc<GatewayState>,
    config: Mutex<GatewayConfig>,
    threads: Vec<JoinHandle<Result<(), GatewayError>>>,
}

/// UDP sockets of a gateway, bound to one address.
#[derive(Debug)]
pub struct GatewayListener {
    data: Udp,
    /// Receives initiations.
    handshakes: Udp,
}

impl GatewayListener {
    /// Binds the sockets.
    pub fn bind(address: SocketAddr) -> std::io::Result<GatewayListener> {
        let data = Udp::bind(address)?;
        let handshakes = data.split_handshakes(FirstByte {
            mask: u8::MAX,
            value: INITIATION_TYPE,
        })?;
        Ok(GatewayListener { data, handshakes })
    }
}

/// Stops the gateway when dropped. Each thread owns one, so that all threads stop when one ends or
/// panics.
struct StopOnExit(Arc<GatewayState>);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Everything a gateway consists of, except its device.
struct GatewayParts {
    shared: Arc<GatewayState>,
    listener: GatewayListener,
    receive_socket: Udp,
    handshake_reply_socket: Udp,
    status: Option<Socket>,
}

impl Gateway {
    /// Starts a gateway. With `observe` it measures but does not limit. `socket` is the path of its
    /// status socket.
    ///
    /// If the process is killed, the device, its addresses and its routes remain; the next start
    /// adopts them.
    pub fn start(
        config: GatewayConfig,
        key: &PrivateKey,
        makes: AlgorithmFactory,
        observe: bool,
        socket: &Path,
    ) -> Result<Gateway, GatewayError> {
        Gateway::start_with_setup(config, key, makes, observe, socket, || Ok(()))
    }

    /// Starts a gateway like [`start`](Gateway::start). Calls `settle` before any thread starts and
    /// when only `CAP_NET_ADMIN` is still needed, so that the process can drop all other
    /// capabilities.
    pub fn start_with_setup(
        config: GatewayConfig,
        key: &PrivateKey,
        makes: AlgorithmFactory,
        observe: bool,
        socket: &Path,
        settle: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<Gateway, GatewayError> {
        let status = Socket::bind(socket)?;
        let listen = config.site.listen;
        let listener = GatewayListener::bind(listen).map_err(|why| GatewayError::Listen {
            address: listen,
            why,
        })?;
        settle().map_err(GatewayError::system("drop capabilities"))?;
        Gateway::launch(config, key, makes, observe, listener, Some(status))
    }

    /// Starts a gateway with bound sockets, which may belong to another network namespace than the
    /// calling thread. The device is created in the thread's namespace. There is no status socket;
    /// use [`report`](Gateway::report).
    pub fn start_with_listener(
        listener: GatewayListener,
        config: GatewayConfig,
        key: &PrivateKey,
        makes: AlgorithmFactory,
        observe: bool,
    ) -> Result<Gateway, GatewayError> {
        Gateway::launch(config, key, makes, observe, listener, None)
    }

    fn launch(
        config: GatewayConfig,
        key: &PrivateKey,
        makes: AlgorithmFactory,
        observe: bool,
        listener: GatewayListener,
        status: Option<Socket>,
    ) -> Result<Gateway, GatewayError> {
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|why| {
            GatewayError::system("get random numbers")(std::io::Error::other(why))
        })?;
        let door = HandshakeDemux::new(key, u32::from_ne_bytes(random));
        let mut shared = GatewayState::new(config.site.clone(), door, makes, observe)?;
        shared.queries_path_mtu = status.is_some();
        let shared = Arc::new(shared);
        let clone = || {
            listener
                .data
                .try_clone()
                .map_err(GatewayError::system("duplicate a socket"))
        };
        let (back, answers) = (clone()?, clone()?);
        let addresses: Vec<_> = config
            .site
            .addresses
            .iter()
            .map(|own| (own.address, own.bits))
            .collect();
        let tun = Tun::persistent(
            &config.site.device,
            config.site.mtu,
            &addresses,
            Offload::Segmentation,
        )?;
        if tun.adopted() {
            let text = format!(
                "adopted the existing interface {} with its addresses and routes",
                config.site.device
            );
            shared.events.record(shared.now(), "", "adopted", text);
        }
        let device = config.site.device.clone();
        let parts = GatewayParts {
            shared,
            listener,
            receive_socket: back,
            handshake_reply_socket: answers,
            status,
        };
        Gateway::assemble(config, parts, tun).inspect_err(|_| {
            // Removes the device of a failed start.
            let _ = Tun::remove(&device);
        })
    }

    fn assemble(
        config: GatewayConfig,
        parts: GatewayParts,
        tun: Tun,
    ) -> Result<Gateway, GatewayError> {
        let GatewayParts {
            shared,
            listener,
            receive_socket: back,
            handshake_reply_socket: answers,
            status,
        } = parts;
        let tun = Arc::new(tun);
        let sending = Sending::new(
            Arc::clone(&shared),
            listener.data,
            Arc::clone(&tun),
            config.clone(),
        )?;
        let receiving = Receiving::new(Arc::clone(&shared), back, tun);
        let handshakes = Handshakes::new(Arc::clone(&shared), listener.handshakes, answers);
        config
            .peers
            .iter()
            .try_for_each(|peer| add_routes(&config, peer))?;
        shared.record_turn(ForwardingThread::Send);
        shared.record_turn(ForwardingThread::Receive);
        let mut gateway = Gateway {
            shared,
            config: Mutex::new(config),
            threads: Vec::new(),
        };
        let send = gateway.spawn("gateway-send", move |_| sending.run())?;
        gateway.threads.push(send);
        let receive = gateway.spawn("gateway-receive", move |_| receiving.run())?;
        gateway.threads.push(receive);
        let handshakes = gateway.spawn("gateway-greet", move |_| handshakes.run())?;
        gateway.threads.push(handshakes);
        if let Some(status) = status {
            let answers = gateway.spawn("gateway-answers", move |shared| {
                status.serve(shared);
                Ok(())
            })?;
            gateway.threads.push(answers);
        }
        // Not joined by `stop`, because a DNS lookup can block for a long time.
        gateway.spawn("gateway-names", |shared| {
            resolve_pending_names(shared);
            Ok(())
        })?;
        Ok(gateway)
    }

    fn spawn(
        &self,
        name: &str,
        work: impl FnOnce(&Arc<GatewayState>) -> Result<(), GatewayError> + Send + 'static,
    ) -> Result<JoinHandle<Result<(), GatewayError>>, GatewayError> {
        let ends_all = StopOnExit(Arc::clone(&self.shared));
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&ends_all.0));
        thread.map_err(GatewayError::system("start a thread"))
    }

    /// Returns whether the gateway is running, neither stopped nor failed.
    pub fn is_running(&self) -> bool {
        !self.shared.is_stopped()
    }

    /// Returns the time since a forwarding thread last started a turn. Even without packets both
    /// threads start one at least every 100 ms, unless they are stuck.
    pub fn stalled_for(&self) -> Duration {
        self.shared.stalled_for().to_std()
    }

    /// Returns a snapshot of the gateway.
    pub fn report(&self) -> GatewayReport {
        GatewayReport::snapshot(&self.shared)
    }

    /// Returns a closure that calls [`report`](Gateway::report), for use in another thread.
    pub fn reporter(&self) -> impl Fn() -> GatewayReport + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || GatewayReport::snapshot(&shared)
    }

    /// Switches to another configuration and returns the changes. If a change needs a restart or
    /// fails, nothing is changed.
    pub fn reload(&self, to: GatewayConfig) -> Result<Vec<ConfigChange>, ReloadError> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let all = changes(&config, &to);
        if let Some(fixed) = all.iter().find(|change| change.is_fixed()) {
            return Err(ReloadError::Restart(fixed.to_string()));
        }
        let moved = all.iter().filter_map(|change| match change {
            ConfigChange::Added(peer) => Some(&**peer),
            // A different preshared key needs a new tunnel.
            ConfigChange::Changed { from, to }
                if from.endpoint != to.endpoint || from.preshared_key != to.preshared_key =>
            {
                Some(&**to)
            }
            _ => None,
        });
        let found = resolve_endpoints(&self.shared, moved);
        let new = all.iter().filter_map(|change| match change {
            ConfigChange::Added(peer) | ConfigChange::Changed { to: peer, .. } => Some(&**peer),
            _ => None,
        });
        let (done, outcome) = sync_channel(1);
        let made = new
            .clone()
            .try_for_each(|peer| add_routes(&to, peer))
            .map_err(ReloadError::from)
            .and_then(|()| {
                let to = to.clone();
                self.shared.request_reload(Reload {
                    config: to,
                    addresses: found,
                    result: done,
                });
                self.await_outcome(&outcome)
            });
        if let Err(why) = made {
            new.for_each(|peer| remove_routes(&to, peer, &config));
            return Err(why);
        }
        let before = std::mem::replace(&mut *config, to);
        for peer in &before.peers {
            remove_routes(&before, peer, &config);
        }
        for change in &all {
            self.shared
                .events
                .record(self.shared.now(), "", "reload", change.to_string());
        }
        Ok(all)
    }

    /// Waits for the sending thread's result of a reload. Returns [`ReloadError::Stopping`] if the
    /// gateway stops first.
    #[expect(clippy::disallowed_methods, reason = "a reload waits in real time")]
    fn await_outcome(
        &self,
        outcome: &Receiver<Result<(), GatewayError>>,
    ) -> Result<(), ReloadError> {
        loop {
            match outcome.recv_timeout(POLL_INTERVAL) {
                Ok(outcome) => return outcome.map_err(ReloadError::from),
                Err(RecvTimeoutError::Timeout) if !self.shared.is_stopped() => {}
                Err(_) => return Err(ReloadError::Stopping),
            }
        }
    }

    /// Stops the gateway and removes its device. Returns the error that stopped it, if any.
    pub fn stop(mut self) -> Result<(), GatewayError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), GatewayError> {
        self.shared.stop();
        let mut outcome = Ok(());
        let mut panicked = None;
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(ended) => outcome = outcome.and(ended),
                Err(panic) => panicked = panicked.or(Some(panic)),
            }
        }
        let removed = Tun::remove(&self.shared.site.device);
        if let Some(panic) = panicked {
            std::panic::resume_unwind(panic);
        }
        outcome.and(removed.map(|_| ()).map_err(GatewayError::from))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            let _ = self.end();
        }
    }
}

/// Error of a reload, which has changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The setting cannot change while the gateway runs.
    #[error("{0}; nothing was changed")]
    Restart(String),
    /// A resource could not be created.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The gateway is stopping.
    #[error("the gateway is stopping")]
    Stopping,
}

fn routes<'a>(
    config: &'a GatewayConfig,
    peer: &'a PeerConfig,
) -> impl Iterator<Item = MainRoute> + 'a {
    // The kernel derives the route to the device's own network from its address.
    let own = |prefix: &&Prefix| {
        let addresses = &config.site.addresses;
        addresses.iter().any(|own| {
            Prefix::containing(own.address, own.bits).is_some_and(|net| net.covers(prefix))
        })
    };
    peer.prefixes
        .iter()
        .filter(move |prefix| !own(prefix))
        .map(|prefix| MainRoute {
            destination: prefix.network(),
            prefix: prefix.bits(),
            interface: config.site.device.clone(),
            gateway: None,
            metric: ROUTE_METRIC,
        })
}

fn add_routes(config: &GatewayConfig, peer: &PeerConfig) -> Result<(), GatewayError> {
    routes(config, peer).try_for_each(|route| route.add().map(|_| ()).map_err(GatewayError::from))
}

/// Removes the routes to a peer that no current peer uses.
fn remove_routes(config: &GatewayConfig, peer: &PeerConfig, now: &GatewayConfig) {
    let wanted: Vec<MainRoute> = now
        .peers
        .iter()
        .flat_map(|peer| routes(now, peer))
        .collect();
    for route in routes(config, peer).filter(|route| !wanted.contains(route)) {
        if let Err(why) = route.remove() {
            tracing::warn!("cannot remove a route: {why}");
        }
    }
}

/// Repeats DNS lookups for peers without a session.
#[expect(clippy::disallowed_methods, reason = "DNS lookups happen in real time")]
fn resolve_pending_names(shared: &GatewayState) {
    let mut waited = Duration::ZERO;
    while !shared.is_stopped() {
        thread::sleep(POLL_INTERVAL);
        waited += POLL_INTERVAL;
        if waited < DNS_INTERVAL {
            continue;
        }
        waited = Duration::ZERO;
        for peer in shared.table().iter() {
            if shared.is_stopped() {
                return;
            }
            let Some(endpoint) = peer
                .config
                .endpoint
                .as_ref()
                .filter(|endpoint| endpoint.literal().is_none())
            else {
                continue;
            };
            if peer.lock().tunnel.is_established() {
                continue;
            }
            if let Ok(found) = resolve(endpoint, shared.site.listen) {
                let mut state = peer.lock();
                if state.endpoint != Some(found) && !state.tunnel.is_established() {
                    state.endpoint = Some(found);
                    drop(state);
                    let text = format!("{endpoint} resolved to {found}");
                    shared
                        .events
                        .record(shared.now(), &peer.config.name, "endpoint", text);
                }
            }
        }
    }
}
