//! Driver for stacks with an async API, quinn and s2n-quic.
//!
//! The stack's own tasks and the handshakes of incoming connections run in a tokio runtime with one
//! thread. The application's thread polls the futures of connections and their streams; a waker
//! signals an eventfd, which ends the wait for the next event.
#![expect(clippy::disallowed_methods, reason = "the clock of its logs")]

mod connection;
#[cfg(feature = "host-quinn")]
pub(super) mod quinn;
#[cfg(feature = "host-s2n")]
pub(super) mod s2n;
#[cfg(test)]
mod tests;

use std::future::{Future, ready};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use super::connections::ConnectionTable;
use super::{Connection, Driver, HostError, HostOptions, LISTENING_HOST_ERROR};
use connection::{RuntimeConnection, StackError, StackFuture, Step};

/// Size of the socket's receive buffer, bytes.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Incoming handshakes that wait for the application's thread. The others wait in the stack, which
/// limits their number. With fewer the thread is woken for each; more would take memory from peers
/// without a limit of the stack.
const INCOMING_MAX: usize = 64;

/// Longest wait for the peers to be notified when a host is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Client or server of a stack.
struct AsyncEndpoint {
    /// Starts a connection. `None` for a server.
    connect: Option<Box<dyn Fn(SocketAddr) -> StackFuture<Step> + Send>>,
    /// Waits until the peers have probably been notified of closed connections.
    idle: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Sender of the handshakes of incoming connections. The endpoint drops it when it ends.
type HandshakeSender = Sender<StackFuture<Step>>;

/// Waker of the application's thread.
struct EventWaker {
    /// Ends the wait for the next event.
    event: Arc<EventFd>,
    woken: AtomicBool,
}

impl EventWaker {
    /// Creates a waker that is set.
    fn new(event: Arc<EventFd>) -> Arc<EventWaker> {
        let woken = AtomicBool::new(true);
        Arc::new(EventWaker { event, woken })
    }

    /// Requests a poll in the next turn.
    fn set(&self) {
        self.woken.store(true, Ordering::Release);
    }

    /// Returns true if a poll was requested since the last call.
    fn take(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for EventWaker {
    fn wake(self: Arc<Self>) {
        self.set();
        // The counter cannot overflow, since every turn reads it.
        let _ = self.event.write(1);
    }
}

/// Endpoint of a stack with its connections and its runtime.
pub(super) struct Runtime {
    stack: &'static str,
    local: SocketAddr,
    waker: Arc<EventWaker>,
    table: ConnectionTable<RuntimeConnection>,
    endpoint: AsyncEndpoint,
    connections_max: usize,
    /// Incoming handshakes that have not started. Closed when the endpoint has ended: its socket
    /// failed, or the stack panicked.
    incoming: Receiver<StackFuture<Step>>,
    handshakes: JoinSet<Result<Step, StackError>>,
    runtime: tokio::runtime::Runtime,
}

impl Runtime {
    /// Starts a stack. `make` creates its endpoint inside the runtime.
    fn start(
        options: &HostOptions,
        make: impl AsyncFnOnce(UdpSocket, HandshakeSender) -> Result<AsyncEndpoint, StackError>,
    ) -> Result<Runtime, HostError> {
        let stack = options.stack.name();
        if options.max_rate.is_some() {
            return Err(HostError::NoLimit { stack });
        }
        // The stacks' drivers write the traffic-class byte of each packet, with ECN bits only.
        if options.dscp != 0 {
            return Err(HostError::NoDscp { stack });
        }
        let address = options.local;
        let bind = |why| HostError::Bind { address, why };
        let socket = UdpSocket::bind(address).map_err(bind)?;
        // With `CAP_NET_ADMIN` the size may exceed the system's limit.
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES))
            .map_err(|why| bind(why.into()))?;
        let local = socket.local_addr().map_err(bind)?;
        let start = || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("ccplane-quic-io")
                .enable_all()
                .build()?;
            let (sender, incoming) = channel(INCOMING_MAX);
            let endpoint = runtime.block_on(make(socket, sender))?;
            let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
            let event = EventFd::from_value_and_flags(0, flags)?;
            Ok(Runtime {
                stack,
                local,
                waker: EventWaker::new(Arc::new(event)),
                table: ConnectionTable::new(options),
                endpoint,
                connections_max: options.connections_max,
                incoming,
                handshakes: JoinSet::new(),
                runtime,
            })
        };
        start().map_err(|why: StackError| {
            let why = why.to_string();
            HostError::Start { stack, why }
        })
    }

    fn insert(&mut self, client: bool, handshake: StackFuture<Step>) -> u64 {
        let waker = EventWaker::new(Arc::clone(&self.waker.event));
        self.table.insert(client, |qlog| {
            RuntimeConnection::new(waker, handshake, qlog)
        })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        for connection in self.table.connections.values_mut() {
            connection.close(false);
        }
        self.table.connections.clear();
        if !self.incoming.is_closed() {
            let idle = &mut self.endpoint.idle;
            // A peer that is not notified by then notices the end by its idle timeout.
            let close = async { tokio::time::timeout(CLOSE_TIMEOUT, idle).await };
            let _ = self.runtime.block_on(close);
        }
    }
}

impl Driver for Runtime {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn connect(&mut self, to: SocketAddr) -> Result<u64, HostError> {
        let Some(connect) = &self.endpoint.connect else {
            let why = LISTENING_HOST_ERROR.to_owned();
            return Err(HostError::Connect { to, why });
        };
        let handshake = connect(to);
        Ok(self.insert(true, handshake))
    }

    fn accept(&mut self) -> Option<u64> {
        self.table.accepted.pop_front()
    }

    fn connection(&self, id: u64) -> Option<&dyn Connection> {
        Some(self.table.connections.get(&id)?)
    }

    fn connection_mut(&mut self, id: u64) -> Option<&mut dyn Connection> {
        Some(self.table.connections.get_mut(&id)?)
    }

    fn connection_count(&self) -> usize {
        self.table.connections.len()
    }

    fn process(&mut self) -> Result<bool, HostError> {
        let mut busy = self.waker.event.read().is_ok();
        let runtime = self.runtime.handle().clone();
        let _context = runtime.enter();
        self.table
            .connections
            .retain(|_, connection| !connection.closed);
        let waker = Arc::clone(&self.waker).into();
        let context = &mut Context::from_waker(&waker);
        while let Poll::Ready(Some(handshake)) = self.incoming.poll_recv(context) {
            // Otherwise it is dropped, which refuses the connection.
            if self.handshakes.len() + self.table.connections.len() < self.connections_max {
                self.handshakes.spawn(handshake);
            }
        }
        while let Poll::Ready(Some(outcome)) = self.handshakes.poll_join_next(context) {
            // Failed incoming handshakes are not reported.
            if let Ok(Ok(established)) = outcome {
                self.insert(false, Box::pin(ready(Ok(established))));
            }
        }
        let now = Instant::now();
        for connection in self.table.connections.values_mut() {
            busy |= connection.process(now);
        }
        if self.incoming.is_closed() {
            return Err(HostError::Ended { stack: self.stack });
        }
        Ok(busy)
    }

    fn wait_source(&self) -> (BorrowedFd<'_>, PollFlags, Option<Instant>) {
        (self.waker.event.as_fd(), PollFlags::POLLIN, None)
    }
}
