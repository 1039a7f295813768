//! Driver for stacks with an async API, quinn and s2n-quic.
//!
//! The stack's own tasks run in a tokio runtime with one thread. The application's thread polls the
//! futures of connections and their streams; a waker signals an eventfd, which ends the wait for
//! the next event.
#![expect(clippy::disallowed_methods, reason = "the clock of its logs")]

mod connection;
#[cfg(feature = "host-quinn")]
pub(super) mod quinn;
#[cfg(feature = "host-s2n")]
pub(super) mod s2n;
#[cfg(test)]
mod tests;
mod waker;

use std::future::ready;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{setsockopt, sockopt};

use super::connections::ConnectionTable;
use super::{Driver, HostError, HostOptions, LISTENING_HOST_ERROR};
use connection::{NewConnection, RuntimeConnection, StackError, StackFuture};
use waker::EventWaker;

/// Size of the socket's receive buffer, bytes.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Longest wait for the peers to be notified when a host is dropped.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(200);

/// Client or server of a stack.
trait AsyncEndpoint: Send {
    /// Starts a connection. The future completes with its handshake.
    fn connect(&self, _to: SocketAddr) -> StackFuture<NewConnection> {
        Box::pin(ready(Err(LISTENING_HOST_ERROR.into())))
    }

    /// Returns the next incoming connection as a future of its handshake; dropping the future
    /// refuses the connection. `None` if the endpoint has ended.
    fn poll_accept(
        &mut self,
        _context: &mut Context<'_>,
    ) -> Poll<Option<StackFuture<NewConnection>>> {
        Poll::Pending
    }

    /// Waits until the peers have probably been notified of closed connections.
    fn wait_idle(&self) -> StackFuture<()>;
}

/// Endpoint of a stack with its connections and its runtime.
pub(super) struct Runtime {
    stack: &'static str,
    local: SocketAddr,
    client: bool,
    connections_max: usize,
    /// Ends the wait for the next event.
    event: Arc<EventFd>,
    waker: Arc<EventWaker>,
    table: ConnectionTable<RuntimeConnection>,
    /// Handshakes of incoming connections.
    handshakes: Vec<StackFuture<NewConnection>>,
    endpoint: Box<dyn AsyncEndpoint>,
    ended: bool,
    runtime: tokio::runtime::Runtime,
}

impl Runtime {
    /// Starts a stack. `make` creates its endpoint inside the runtime.
    fn start(
        options: &HostOptions,
        client: bool,
        make: impl FnOnce(UdpSocket) -> Result<Box<dyn AsyncEndpoint>, StackError>,
    ) -> Result<Runtime, HostError> {
        let stack = options.stack.name();
        if options.max_rate.is_some() {
            return Err(HostError::NoLimit { stack });
        }
        let address = options.local;
        let bind = |why| HostError::Bind { address, why };
        let socket = UdpSocket::bind(address).map_err(bind)?;
        // With `CAP_NET_ADMIN` the size may exceed the system's limit.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES)
                .map_err(|why| bind(why.into()))?;
        }
        let local = socket.local_addr().map_err(bind)?;
        let failed = |why: StackError| HostError::Start {
            stack,
            why: why.to_string(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ccplane-quic-io")
            .enable_all()
            .build()
            .map_err(|why| failed(why.into()))?;
        let context = runtime.enter();
        let endpoint = make(socket).map_err(failed)?;
        drop(context);
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let event = EventFd::from_value_and_flags(0, flags).map_err(|why| failed(why.into()))?;
        let event = Arc::new(event);
        Ok(Runtime {
            stack,
            local,
            client,
            connections_max: options.connections_max,
            waker: EventWaker::new(&event),
            event,
            table: ConnectionTable::new(options),
            handshakes: Vec::new(),
            endpoint,
            ended: false,
            runtime,
        })
    }

    fn insert(&mut self, handshake: StackFuture<NewConnection>) -> u64 {
        let waker = EventWaker::new(&self.event);
        self.table.insert(self.client, |qlog| {
            RuntimeConnection::new(waker, handshake, qlog)
        })
    }

    /// Starts the handshakes of incoming connections, and inserts connections whose handshake is
    /// complete. Returns false if the endpoint has ended.
    fn accept_incoming(&mut self) -> bool {
        let waker = self.waker.waker();
        let context = &mut Context::from_waker(&waker);
        while let Poll::Ready(incoming) = self.endpoint.poll_accept(context) {
            let Some(handshake) = incoming else {
                return false;
            };
            let count = self.handshakes.len() + self.table.connections.len();
            if count < self.connections_max {
                self.handshakes.push(handshake);
            }
        }
        let mut complete = Vec::new();
        self.handshakes
            .retain_mut(|handshake| match handshake.as_mut().poll(context) {
                Poll::Pending => true,
                // Failed incoming handshakes are not reported.
                Poll::Ready(outcome) => {
                    complete.extend(outcome);
                    false
                }
            });
        for established in complete {
            self.insert(Box::pin(ready(Ok(established))));
        }
        true
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        for connection in self.table.connections.values_mut() {
            super::Connection::close(connection, false);
        }
        self.table.connections.clear();
        if self.ended {
            return;
        }
        let idle = self.endpoint.wait_idle();
        // A peer that is not notified by then notices the end by its idle timeout.
        let close = async { tokio::time::timeout(CLOSE_TIMEOUT, idle).await };
        let _ = self.runtime.block_on(close);
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
            return Err(failed(LISTENING_HOST_ERROR));
        }
        let handshake = self.endpoint.connect(to);
        Ok(self.insert(handshake))
    }

    fn accept(&mut self) -> Option<u64> {
        self.table.accepted.pop_front()
    }

    fn connection(&self, id: u64) -> Option<&dyn super::Connection> {
        Some(self.table.connections.get(&id)?)
    }

    fn connection_mut(&mut self, id: u64) -> Option<&mut dyn super::Connection> {
        Some(self.table.connections.get_mut(&id)?)
    }

    fn connection_count(&self) -> usize {
        self.table.connections.len()
    }

    fn process(&mut self) -> Result<bool, HostError> {
        let mut busy = self.event.read().is_ok();
        let runtime = self.runtime.handle().clone();
        let _context = runtime.enter();
        self.table
            .connections
            .retain(|_, connection| !connection.closed);
        if self.waker.take() && !self.ended {
            // An endpoint ends when its socket fails or the stack panics.
            let accepting = catch_unwind(AssertUnwindSafe(|| self.accept_incoming()));
            self.ended = !accepting.unwrap_or(false);
        }
        let now = Instant::now();
        for connection in self.table.connections.values_mut() {
            busy |= connection.process(now);
        }
        if self.ended {
            return Err(HostError::Ended { stack: self.stack });
        }
        Ok(busy)
    }

    fn wait_source(&self) -> (BorrowedFd<'_>, PollFlags, Option<Instant>) {
        (self.event.as_fd(), PollFlags::POLLIN, None)
    }
}
