//! A gateway as a whole: made, reloaded, stopped.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ccplane_host::{Offload, Route, Tun};
use ccplane_udp::{FirstByte, Socket as Udp};
use ccplane_units::Prefix;

use super::config::{Change, Config, Peer, changes};
use super::error::GatewayError;
use super::forward::{
    Direction, Handshakes, Makes, Receiving, Reload, Sending, Shared, find, resolve,
};
use super::keys::PrivateKey;
use super::report::Report;
use super::status::Socket;
use super::tunnel::{Door, INITIATION};

/// Routes into the tunnels are taken before those of this metric or more: who has another way for
/// when the gateway is gone gives it a higher one.
const METRIC: u16 = 50;
/// Names of endpoints are asked for again so often while the peer does not answer.
const NAMES: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(200);

/// A gateway that runs.
pub struct Gateway {
    shared: Arc<Shared>,
    config: Mutex<Config>,
    threads: Vec<JoinHandle<Result<(), GatewayError>>>,
}

/// Sockets of a gateway, bound to one address.
#[derive(Debug)]
pub struct Listener {
    data: Udp,
    /// Initiations arrive here.
    handshakes: Udp,
}

impl Listener {
    /// Binds the sockets.
    pub fn bind(address: SocketAddr) -> std::io::Result<Listener> {
        let data = Udp::bind(address)?;
        let handshakes = data.split_handshakes(FirstByte {
            mask: u8::MAX,
            value: INITIATION,
        })?;
        Ok(Listener { data, handshakes })
    }
}

/// A thread that ends, by a panic too, ends them all.
struct EndsAll(Arc<Shared>);

impl Drop for EndsAll {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What a gateway is assembled of, beside its device.
struct Parts {
    shared: Arc<Shared>,
    listener: Listener,
    back: Udp,
    answers: Udp,
    status: Option<Socket>,
}

impl Gateway {
    /// Starts it. `observe` measures and limits nothing; `socket` is where it answers.
    ///
    /// The device stays if the process is killed, and its addresses and routes with it: the next
    /// start takes them over.
    pub fn start(
        config: Config,
        key: &PrivateKey,
        makes: Makes,
        observe: bool,
        socket: &Path,
    ) -> Result<Gateway, GatewayError> {
        Gateway::start_and_settle(config, key, makes, observe, socket, || Ok(()))
    }

    /// The same; `settle` is called when all is done that takes more than `CAP_NET_ADMIN`, and
    /// before any thread begins: it may give up all other capabilities.
    pub fn start_and_settle(
        config: Config,
        key: &PrivateKey,
        makes: Makes,
        observe: bool,
        socket: &Path,
        settle: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<Gateway, GatewayError> {
        let status = Socket::bind(socket)?;
        let listen = config.site.listen;
        let listener = Listener::bind(listen).map_err(|why| GatewayError::Listen {
            address: listen,
            why,
        })?;
        settle().map_err(GatewayError::system("give up capabilities"))?;
        Gateway::launch(config, key, makes, observe, listener, Some(status))
    }

    /// The same with sockets that are bound already to where the configuration listens, perhaps in
    /// another namespace than the calling thread's, where the device comes to be. It answers nobody
    /// but by [`report`](Gateway::report).
    pub fn start_over(
        listener: Listener,
        config: Config,
        key: &PrivateKey,
        makes: Makes,
        observe: bool,
    ) -> Result<Gateway, GatewayError> {
        Gateway::launch(config, key, makes, observe, listener, None)
    }

    fn launch(
        config: Config,
        key: &PrivateKey,
        makes: Makes,
        observe: bool,
        listener: Listener,
        status: Option<Socket>,
    ) -> Result<Gateway, GatewayError> {
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|why| {
            GatewayError::system("get random numbers")(std::io::Error::other(why))
        })?;
        let door = Door::new(key, u32::from_ne_bytes(random));
        let mut shared = Shared::new(config.site.clone(), door, makes, observe)?;
        shared.asks_ways = status.is_some();
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
                "the interface {} was there, with its addresses and routes",
                config.site.device
            );
            shared.events.tell(shared.now(), "", "adopted", text);
        }
        let device = config.site.device.clone();
        let parts = Parts {
            shared,
            listener,
            back,
            answers,
            status,
        };
        Gateway::assemble(config, parts, tun).inspect_err(|_| {
            // What does not start leaves nothing behind.
            let _ = Tun::remove(&device);
        })
    }

    fn assemble(config: Config, parts: Parts, tun: Tun) -> Result<Gateway, GatewayError> {
        let Parts {
            shared,
            listener,
            back,
            answers,
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
        shared.turn(Direction::Send);
        shared.turn(Direction::Receive);
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
        // It is not waited for: a name server that does not answer holds it for long.
        gateway.spawn("gateway-names", |shared| {
            find_names(shared);
            Ok(())
        })?;
        Ok(gateway)
    }

    fn spawn(
        &self,
        name: &str,
        work: impl FnOnce(&Arc<Shared>) -> Result<(), GatewayError> + Send + 'static,
    ) -> Result<JoinHandle<Result<(), GatewayError>>, GatewayError> {
        let ends_all = EndsAll(Arc::clone(&self.shared));
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&ends_all.0));
        thread.map_err(GatewayError::system("start a thread"))
    }

    /// Whether it goes on: nobody has stopped it, and nothing went wrong.
    pub fn is_running(&self) -> bool {
        !self.shared.stopped()
    }

    /// Returns how long a thread that forwards packets has not begun another turn. Both begin one
    /// in every 100 ms, also without packets, unless they are stuck.
    pub fn stuck_for(&self) -> Duration {
        self.shared.stuck_for().to_std()
    }

    /// What there is to see.
    pub fn report(&self) -> Report {
        Report::of(&self.shared)
    }

    /// What says what there is to see, as [`report`](Gateway::report), for another thread.
    pub fn reporter(&self) -> impl Fn() -> Report + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || Report::of(&shared)
    }

    /// Goes over to another configuration; what was done. One that asks for a restart, or of which
    /// something cannot be made, changes nothing.
    pub fn reload(&self, to: Config) -> Result<Vec<Change>, Refused> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let all = changes(&config, &to);
        if let Some(fixed) = all.iter().find(|change| change.is_fixed()) {
            return Err(Refused::Restart(fixed.to_string()));
        }
        let moved = all.iter().filter_map(|change| match change {
            Change::Added(peer) => Some(&**peer),
            // Under another preshared key the tunnel is a new one.
            Change::Changed { from, to }
                if from.endpoint != to.endpoint || from.preshared_key != to.preshared_key =>
            {
                Some(&**to)
            }
            _ => None,
        });
        let found = find(&self.shared, moved);
        let new = all.iter().filter_map(|change| match change {
            Change::Added(peer) | Change::Changed { to: peer, .. } => Some(&**peer),
            _ => None,
        });
        let (done, outcome) = sync_channel(1);
        let made = new
            .clone()
            .try_for_each(|peer| add_routes(&to, peer))
            .map_err(Refused::from)
            .and_then(|()| {
                let to = to.clone();
                self.shared.order(Reload { to, found, done });
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
                .tell(self.shared.now(), "", "reload", change.to_string());
        }
        Ok(all)
    }

    /// What the sending thread says of an order. One that has ended says nothing.
    #[expect(clippy::disallowed_methods, reason = "who reloads waits in real time")]
    fn await_outcome(&self, outcome: &Receiver<Result<(), GatewayError>>) -> Result<(), Refused> {
        loop {
            match outcome.recv_timeout(LOOK) {
                Ok(outcome) => return outcome.map_err(Refused::from),
                Err(RecvTimeoutError::Timeout) if !self.shared.stopped() => {}
                Err(_) => return Err(Refused::Stopping),
            }
        }
    }

    /// Stops it and takes the device away; what went wrong, if it stopped by itself.
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

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A setting that cannot be changed while it runs.
    #[error("{0}; nothing was changed")]
    Restart(String),
    /// Something could not be made.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The gateway ends.
    #[error("the gateway is stopping")]
    Stopping,
}

fn routes<'a>(config: &'a Config, peer: &'a Peer) -> impl Iterator<Item = Route> + 'a {
    // What the device's own network covers the kernel knows by its address.
    let own = |prefix: &&Prefix| {
        let addresses = &config.site.addresses;
        addresses
            .iter()
            .any(|own| Prefix::of(own.address, own.bits).is_some_and(|net| net.covers(prefix)))
    };
    peer.prefixes
        .iter()
        .filter(move |prefix| !own(prefix))
        .map(|prefix| Route {
            destination: prefix.network(),
            prefix: prefix.bits(),
            interface: config.site.device.clone(),
            gateway: None,
            metric: METRIC,
        })
}

fn add_routes(config: &Config, peer: &Peer) -> Result<(), GatewayError> {
    routes(config, peer).try_for_each(|route| route.add().map(|_| ()).map_err(GatewayError::from))
}

/// Takes away the routes to a peer that nobody has any more.
fn remove_routes(config: &Config, peer: &Peer, now: &Config) {
    let wanted: Vec<Route> = now
        .peers
        .iter()
        .flat_map(|peer| routes(now, peer))
        .collect();
    for route in routes(config, peer).filter(|route| !wanted.contains(route)) {
        if let Err(why) = route.remove() {
            tracing::warn!("a route stays: {why}");
        }
    }
}

/// Asks again for names of peers that do not answer.
#[expect(
    clippy::disallowed_methods,
    reason = "a name server is asked in real time"
)]
fn find_names(shared: &Shared) {
    let mut waited = Duration::ZERO;
    while !shared.stopped() {
        thread::sleep(LOOK);
        waited += LOOK;
        if waited < NAMES {
            continue;
        }
        waited = Duration::ZERO;
        for pair in shared.table().all() {
            if shared.stopped() {
                return;
            }
            let Some(endpoint) = pair
                .peer
                .endpoint
                .as_ref()
                .filter(|endpoint| endpoint.literal().is_none())
            else {
                continue;
            };
            if pair.lock().tunnel.is_established() {
                continue;
            }
            if let Ok(found) = resolve(endpoint, shared.site.listen) {
                let mut half = pair.lock();
                if half.endpoint != Some(found) && !half.tunnel.is_established() {
                    half.endpoint = Some(found);
                    drop(half);
                    let text = format!("{endpoint} is at {found}");
                    shared
                        .events
                        .tell(shared.now(), &pair.peer.name, "endpoint", text);
                }
            }
        }
    }
}
