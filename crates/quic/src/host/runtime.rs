//! Stacks that bring a driver of their own, quinn and s2n-quic: they run in an asynchronous runtime on a thread of the host's, and only bytes
//! and figures cross over.
//!
//! A connection has a pipe: what the application wrote waits in it for the stack, what has arrived waits for the application. Either side
//! wakes the other, by an event of the kernel in one direction and of the runtime in the other.
#![expect(clippy::disallowed_methods, reason = "the times of its logs")]

#[cfg(feature = "host-quinn")]
pub(super) mod quinn;
#[cfg(feature = "host-s2n")]
pub(super) mod s2n;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, ready};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Instant;

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use super::qlog::Qlog;
use super::{Driver, HostError, LISTENS, Options, Stats, code};

/// Bytes that wait in a pipe in each direction. With fewer the two threads wake each other more often; more hide longer from the sender what
/// the stack has room for.
const ROOM: usize = 256 << 10;
/// How long a host that goes away waits at most until the peers of its connections may have heard of it.
const FAREWELL: std::time::Duration = std::time::Duration::from_millis(200);
/// The socket's buffer for what arrives, as ccplane's own sockets have it.
const KERNEL_BUFFER: usize = 4 << 20;

/// An endpoint of a stack.
trait Endpoint: 'static {
    type Link: Link;

    fn connect(&self, to: SocketAddr) -> impl Future<Output = Result<Self::Link, String>> + 'static;

    /// The next connection that a peer opens, with its handshake to come: dropped before that, it is refused. Nothing once the endpoint is
    /// over. An endpoint that opens connections waits for ever.
    fn accept(&mut self) -> impl Future<Output = Option<impl Future<Output = Result<Self::Link, String>> + 'static>>;

    /// Until the peers may have heard that their connections are over.
    fn settle(&mut self) -> impl Future<Output = ()>;
}

/// A connection of a stack.
trait Link: 'static {
    type Sending: Sending;
    type Receiving: AsyncRead + Unpin;

    /// Its one stream: the client opens it.
    fn stream(&mut self, client: bool) -> impl Future<Output = Result<(Self::Sending, Self::Receiving), String>>;

    /// What tells its figures, from any thread.
    fn figures(&self) -> Figures;

    fn close(&self, code: u32);
}

/// What tells the figures of a connection.
type Figures = Arc<dyn Fn() -> Stats + Send + Sync>;

/// The half of a stream that sends.
trait Sending: AsyncWrite + Unpin {
    /// Ends it, and waits until everything is acknowledged.
    fn finish(&mut self) -> impl Future<Output = Result<(), String>>;
}

/// A host whose stack runs on another thread.
pub(super) struct Runtime {
    stack: &'static str,
    local: SocketAddr,
    client: bool,
    qlog: Option<PathBuf>,
    shared: Arc<Shared>,
    /// The thread ends when this is dropped.
    orders: Option<UnboundedSender<(SocketAddr, Arc<Pipe>)>>,
    thread: Option<thread::JoinHandle<()>>,
    connections: BTreeMap<u64, Connection>,
    accepted: VecDeque<u64>,
    next: u64,
}

/// What the two threads share.
struct Shared {
    /// Something happened on the runtime's side.
    event: EventFd,
    /// It is set, so that it need not be set again.
    rung: AtomicBool,
    accepted: Mutex<VecDeque<Arc<Pipe>>>,
}

impl Shared {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // It cannot be full: it is read whenever it was rung.
            let _ = self.event.write(1);
        }
    }
}

/// A connection, as the application sees it.
struct Connection {
    pipe: Arc<Pipe>,
    /// A copy of the pipe's.
    failure: Option<String>,
    log: Option<Qlog>,
}

/// What crosses over of one connection.
struct Pipe {
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// The application wrote, ended its stream, or closed; and it made room for what arrives.
    wrote: Notify,
    took: Notify,
    closed: Notify,
}

#[derive(Default)]
struct State {
    connected: bool,
    figures: Option<Figures>,
    /// To the stack, and from it.
    out: Vec<u8>,
    arrived: VecDeque<u8>,
    /// The application's stream ends here; its owner has no more to do with it: well, or not.
    finished: bool,
    close: Option<bool>,
    sent_all: bool,
    /// The peer's stream has ended, which is read once nothing of it waits any more.
    ended: bool,
    failure: Option<String>,
    over: bool,
}

impl Pipe {
    fn new(shared: &Arc<Shared>) -> Arc<Pipe> {
        Arc::new(Pipe {
            shared: Arc::clone(shared),
            state: Mutex::new(State::default()),
            wrote: Notify::new(),
            took: Notify::new(),
            closed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime's side changes something that the application wants to know.
    fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.shared.ring();
    }
}

impl Runtime {
    /// Begins a stack of this name on a thread of its own. `make` is called there, in the runtime.
    fn start<E: Endpoint>(
        options: &Options,
        client: bool,
        make: impl FnOnce(UdpSocket) -> Result<E, String> + Send + 'static,
    ) -> Result<Runtime, HostError> {
        let stack = options.stack.name();
        if options.max_rate.is_some() {
            return Err(HostError::NoLimit { stack });
        }
        let address = options.local;
        let bind = |why| HostError::Bind { address, why };
        let socket = UdpSocket::bind(address).map_err(bind)?;
        // With the permission to exceed the system's limit, or else up to it.
        if setsockopt(&socket, sockopt::RcvBufForce, &KERNEL_BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &KERNEL_BUFFER).map_err(|why| bind(why.into()))?;
        }
        let local = socket.local_addr().map_err(bind)?;
        let failed = |why: io::Error| HostError::Start {
            stack,
            why: why.to_string(),
        };
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let shared = Arc::new(Shared {
            event: EventFd::from_value_and_flags(0, flags).map_err(|why| failed(why.into()))?,
            rung: AtomicBool::new(false),
            accepted: Mutex::new(VecDeque::new()),
        });
        let (orders, taken) = unbounded_channel();
        let (began, begins) = mpsc::channel();
        let (of_thread, most) = (Arc::clone(&shared), options.most);
        let thread = thread::Builder::new()
            .name("ccplane-quic-io".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(why) => return drop(began.send(Err(why.to_string()))),
                };
                LocalSet::new().block_on(&runtime, async move {
                    match make(socket) {
                        Ok(endpoint) => {
                            // Who waits for it is there.
                            let _ = began.send(Ok(()));
                            serve(endpoint, taken, &of_thread, most).await;
                        }
                        Err(why) => drop(began.send(Err(why))),
                    }
                });
            })
            .map_err(failed)?;
        let begun = begins.recv().unwrap_or_else(|_| Err("its thread ended".to_owned()));
        begun.map_err(|why| HostError::Start { stack, why })?;
        Ok(Runtime {
            stack,
            local,
            client,
            qlog: options.qlog.clone(),
            shared,
            orders: Some(orders),
            thread: Some(thread),
            connections: BTreeMap::new(),
            accepted: VecDeque::new(),
            next: 1,
        })
    }

    fn keep(&mut self, pipe: Arc<Pipe>) -> u64 {
        let id = self.next;
        self.next += 1;
        let log = Qlog::of(self.qlog.as_deref(), id, self.client, Instant::now());
        let failure = None;
        self.connections.insert(id, Connection { pipe, failure, log });
        id
    }

    fn of(&self, id: u64) -> Option<(&Pipe, MutexGuard<'_, State>)> {
        let pipe = &*self.connections.get(&id)?.pipe;
        Some((pipe, pipe.state()))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // It ends soon, and if it panicked there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl Driver for Runtime {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn connect(&mut self, to: SocketAddr) -> Result<u64, HostError> {
        let failed = |why: &str| HostError::Connect {
            to,
            why: why.to_owned(),
        };
        if !self.client {
            return Err(failed(LISTENS));
        }
        let pipe = Pipe::new(&self.shared);
        let sent = self.orders.as_ref().map(|orders| orders.send((to, Arc::clone(&pipe))));
        match sent {
            Some(Ok(())) => Ok(self.keep(pipe)),
            _ => Err(failed("the stack's thread has ended")),
        }
    }

    fn accepted(&mut self) -> Option<u64> {
        self.accepted.pop_front()
    }

    fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        let Some((pipe, mut state)) = self.of(id) else { return 0 };
        let count = bytes.len().min(ROOM.saturating_sub(state.out.len()));
        if !state.connected || state.finished || count == 0 {
            return 0;
        }
        state.out.extend_from_slice(bytes.get(..count).unwrap_or_default());
        drop(state);
        pipe.wrote.notify_one();
        count
    }

    fn finish(&mut self, id: u64) {
        if let Some((pipe, mut state)) = self.of(id) {
            state.finished = true;
            drop(state);
            pipe.wrote.notify_one();
        }
    }

    fn read(&mut self, id: u64, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        let Some((pipe, mut state)) = self.of(id) else { return 0 };
        let count = state.arrived.len().min(most);
        let (first, second) = state.arrived.as_slices();
        let split = first.len().min(count);
        for part in [first.get(..split), second.get(..count - split)].into_iter().flatten() {
            if !part.is_empty() {
                take(part);
            }
        }
        state.arrived.drain(..count);
        drop(state);
        if count > 0 {
            pipe.took.notify_one();
        }
        count
    }

    fn has_sent_all(&self, id: u64) -> bool {
        self.of(id).is_some_and(|(_, state)| state.sent_all)
    }

    fn has_read_all(&self, id: u64) -> bool {
        self.of(id)
            .is_some_and(|(_, state)| state.ended && state.arrived.is_empty())
    }

    fn is_connected(&self, id: u64) -> bool {
        self.of(id).is_some_and(|(_, state)| state.connected)
    }

    fn failure(&self, id: u64) -> Option<&str> {
        self.connections.get(&id)?.failure.as_deref()
    }

    fn stats(&mut self, id: u64) -> Option<Stats> {
        let figures = self.of(id)?.1.figures.clone();
        Some(figures.map_or_else(Stats::default, |figures| figures()))
    }

    fn close(&mut self, id: u64, well: bool) {
        if let Some((pipe, mut state)) = self.of(id) {
            state.close.get_or_insert(well);
            drop(state);
            pipe.closed.notify_one();
        }
    }

    fn count(&self) -> usize {
        self.connections.len()
    }

    fn work(&mut self) -> Result<bool, HostError> {
        let rung = self.shared.rung.swap(false, Ordering::AcqRel);
        // Also where it was not rung: who rang last may have written after the look before.
        let written = self.shared.event.read().is_ok();
        let arriving = std::mem::take(&mut *self.shared.accepted.lock().unwrap_or_else(PoisonError::into_inner));
        for pipe in arriving {
            let id = self.keep(pipe);
            self.accepted.push_back(id);
        }
        let now = Instant::now();
        self.connections.retain(|_, connection| {
            let state = connection.pipe.state();
            if connection.failure.is_none() && state.failure.is_some() {
                connection.failure = state.failure.clone();
            }
            let over = state.over && state.close.is_some();
            let due = connection.log.as_ref().is_some_and(|log| log.is_due(now));
            let figures = if due { state.figures.clone() } else { None };
            drop(state);
            if let (Some(log), Some(figures)) = (&mut connection.log, figures) {
                log.note(now, &figures());
            }
            !over
        });
        // It ends after this, or by itself, and then nothing more comes from it.
        if self.thread.as_ref().is_none_or(thread::JoinHandle::is_finished) {
            return Err(HostError::Ended { stack: self.stack });
        }
        Ok(rung || written)
    }

    fn awaits(&self) -> (BorrowedFd<'_>, PollFlags, Option<Instant>) {
        (self.shared.event.as_fd(), PollFlags::POLLIN, None)
    }
}

/// Runs an endpoint until its host is gone.
async fn serve<E: Endpoint>(
    mut endpoint: E,
    mut orders: UnboundedReceiver<(SocketAddr, Arc<Pipe>)>,
    shared: &Arc<Shared>,
    most: usize,
) {
    let pipes: Rc<RefCell<Vec<Weak<Pipe>>>> = Rc::default();
    // A clone for each connection that a peer opens, from before its handshake to its end.
    let accepted = Rc::new(());
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some((to, pipe)) = order else { break };
                note(&pipes, &pipe);
                let connecting = endpoint.connect(to);
                tokio::task::spawn_local(run(connecting, pipe, true));
            }
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { break };
                if Rc::strong_count(&accepted) > most {
                    // Dropped here.
                    continue;
                }
                let (shared, pipes, counted) = (Arc::clone(shared), Rc::clone(&pipes), Rc::clone(&accepted));
                tokio::task::spawn_local(async move {
                    let _counted = counted;
                    // Of one whose handshake fails nobody hears.
                    let Ok(link) = incoming.await else { return };
                    let pipe = Pipe::new(&shared);
                    note(&pipes, &pipe);
                    let waiting = || shared.accepted.lock().unwrap_or_else(PoisonError::into_inner);
                    waiting().push_back(Arc::clone(&pipe));
                    run(ready(Ok(link)), pipe, false).await;
                });
            }
        }
    }
    // What is still open is given up.
    for pipe in pipes.borrow().iter().filter_map(Weak::upgrade) {
        pipe.state().close.get_or_insert(false);
        pipe.closed.notify_one();
    }
    tokio::task::yield_now().await;
    let _ = tokio::time::timeout(FAREWELL, endpoint.settle()).await;
}

/// Keeps sight of a connection, for the end.
fn note(pipes: &RefCell<Vec<Weak<Pipe>>>, pipe: &Arc<Pipe>) {
    let mut pipes = pipes.borrow_mut();
    pipes.retain(|pipe| pipe.strong_count() > 0);
    pipes.push(Arc::downgrade(pipe));
}

/// What runs a connection. However it ends, also by a panic of the stack's, the owner hears of it.
struct Task(Arc<Pipe>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.tell(|state| {
            state.over = true;
            if state.close.is_none() {
                state.failure.get_or_insert_with(|| "the stack failed".to_owned());
            }
        });
    }
}

/// Runs a connection until its owner closes it.
async fn run<L: Link>(begun: impl Future<Output = Result<L, String>>, pipe: Arc<Pipe>, client: bool) {
    let _task = Task(Arc::clone(&pipe));
    let begun = tokio::select! {
        biased;
        begun = begun => begun,
        () = pipe.closed.notified() => return,
    };
    match begun {
        Ok(mut link) => {
            let figures = link.figures();
            pipe.tell(|state| {
                state.connected = true;
                state.figures = Some(figures);
            });
            tokio::select! {
                outcome = carry(&mut link, &pipe, client) => {
                    if let Err(why) = outcome {
                        pipe.tell(|state| state.failure = Some(why));
                    }
                    pipe.closed.notified().await;
                }
                () = pipe.closed.notified() => {}
            }
            let well = pipe.state().close == Some(true);
            link.close(code(well));
            // The last figures stay; what they were taken from does not.
            let figures = pipe.state().figures.take();
            let last = figures.map(|figures| figures());
            pipe.tell(|state| state.figures = last.map(|last| Arc::new(move || last) as Figures));
        }
        Err(why) => {
            pipe.tell(|state| state.failure = Some(why));
            pipe.closed.notified().await;
        }
    }
}

/// Carries a connection's stream in both directions.
async fn carry<L: Link>(link: &mut L, pipe: &Pipe, client: bool) -> Result<(), String> {
    let (sending, receiving) = link.stream(client).await?;
    tokio::try_join!(send(sending, pipe), receive(receiving, pipe))?;
    Ok(())
}

async fn send(mut stream: impl Sending, pipe: &Pipe) -> Result<(), String> {
    let mut piece = Vec::new();
    loop {
        let finished = {
            let mut state = pipe.state();
            piece.clear();
            std::mem::swap(&mut piece, &mut state.out);
            state.finished
        };
        if !piece.is_empty() {
            pipe.shared.ring();
            stream.write_all(&piece).await.map_err(|why| why.to_string())?;
        } else if finished {
            stream.finish().await?;
            pipe.tell(|state| state.sent_all = true);
            return Ok(());
        } else {
            pipe.wrote.notified().await;
        }
    }
}

async fn receive(mut stream: impl AsyncRead + Unpin, pipe: &Pipe) -> Result<(), String> {
    let mut piece = vec![0; ROOM / 4];
    loop {
        while pipe.state().arrived.len() >= ROOM {
            pipe.took.notified().await;
        }
        let count = stream.read(&mut piece).await.map_err(|why| why.to_string())?;
        pipe.tell(|state| match piece.get(..count) {
            Some(bytes) if count > 0 => state.arrived.extend(bytes),
            _ => state.ended = true,
        });
        if count == 0 {
            return Ok(());
        }
    }
}
