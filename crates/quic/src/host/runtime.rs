//! Host for stacks with their own drivers, quinn and s2n-quic: they run in an async runtime on a
//! separate thread, and only bytes and statistics are exchanged with it.
//!
//! Each connection has a pipe that buffers written data for the stack and received data for the
//! application. The runtime wakes the application with an eventfd; the application wakes the
//! runtime with a `Notify`.
#![expect(clippy::disallowed_methods, reason = "the time origin of its logs")]

mod pipe;
#[cfg(feature = "host-quinn")]
pub(super) mod quinn;
#[cfg(feature = "host-s2n")]
pub(super) mod s2n;
mod serve;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, mpsc};
use std::thread;
use std::time::Instant;

use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use super::qlog::{ConnectionClose, Qlog};
use super::{Driver, HostError, HostOptions, LISTENING_HOST_ERROR, QuicStats, code};
use pipe::{PIPE_BYTES, PipeBuffers, PipeState, StreamPipe};
use serve::{StackEndpoint, serve};

/// Size of the socket's receive buffer, bytes.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Host whose stack runs on another thread.
pub(super) struct Runtime {
    stack: &'static str,
    local: SocketAddr,
    client: bool,
    qlog: Option<PathBuf>,
    shared: Arc<PipeBuffers>,
    /// Requests to connect; the thread ends when the sender is dropped.
    connect_requests: Option<UnboundedSender<(SocketAddr, Arc<StreamPipe>)>>,
    thread: Option<thread::JoinHandle<()>>,
    connections: BTreeMap<u64, RuntimeConnection>,
    accepted: VecDeque<u64>,
    next_id: u64,
}

/// Application side of a connection.
struct RuntimeConnection {
    pipe: Arc<StreamPipe>,
    /// Copy of the pipe's failure.
    failure: Option<String>,
    qlog: Option<Qlog>,
}

impl Runtime {
    /// Starts a stack on a thread of its own. `make` runs there, inside the runtime.
    fn start<E: StackEndpoint>(
        options: &HostOptions,
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
        // With `CAP_NET_ADMIN` the size may exceed the system's limit.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES)
                .map_err(|why| bind(why.into()))?;
        }
        let local = socket.local_addr().map_err(bind)?;
        let failed = |why: io::Error| HostError::Start {
            stack,
            why: why.to_string(),
        };
        let shared = Arc::new(PipeBuffers::new().map_err(failed)?);
        let (orders, taken) = unbounded_channel();
        let (began, begins) = mpsc::channel();
        let (of_thread, most) = (Arc::clone(&shared), options.connections_max);
        let thread = thread::Builder::new()
            .name("ccplane-quic-io".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(why) => return drop(began.send(Err(why.to_string()))),
                };
                LocalSet::new().block_on(&runtime, async move {
                    match make(socket) {
                        Ok(endpoint) => {
                            // The receiver is waiting in this call.
                            let _ = began.send(Ok(()));
                            serve(endpoint, taken, &of_thread, most).await;
                        }
                        Err(why) => drop(began.send(Err(why))),
                    }
                });
            })
            .map_err(failed)?;
        let begun = begins
            .recv()
            .unwrap_or_else(|_| Err("its thread ended".to_owned()));
        begun.map_err(|why| HostError::Start { stack, why })?;
        Ok(Runtime {
            stack,
            local,
            client,
            qlog: options.qlog.clone(),
            shared,
            connect_requests: Some(orders),
            thread: Some(thread),
            connections: BTreeMap::new(),
            accepted: VecDeque::new(),
            next_id: 1,
        })
    }

    fn insert(&mut self, pipe: Arc<StreamPipe>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let log = Qlog::open(self.qlog.as_deref(), id, self.client, Instant::now());
        let failure = None;
        self.connections.insert(
            id,
            RuntimeConnection {
                pipe,
                failure,
                qlog: log,
            },
        );
        id
    }

    fn connection(&self, id: u64) -> Option<(&StreamPipe, MutexGuard<'_, PipeState>)> {
        let pipe = &*self.connections.get(&id)?.pipe;
        Some((pipe, pipe.state()))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.connect_requests.take());
        if let Some(thread) = self.thread.take() {
            // The thread ends soon; a panic cannot be reported any more.
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
            return Err(failed(LISTENING_HOST_ERROR));
        }
        let pipe = StreamPipe::new(&self.shared);
        let sent = self
            .connect_requests
            .as_ref()
            .map(|orders| orders.send((to, Arc::clone(&pipe))));
        match sent {
            Some(Ok(())) => Ok(self.insert(pipe)),
            _ => Err(failed("the stack's thread has ended")),
        }
    }

    fn accept(&mut self) -> Option<u64> {
        self.accepted.pop_front()
    }

    fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        let Some((pipe, mut state)) = self.connection(id) else {
            return 0;
        };
        let count = bytes
            .len()
            .min(PIPE_BYTES.saturating_sub(state.send_buffer.len()));
        if !state.connected || state.finished || count == 0 {
            return 0;
        }
        state
            .send_buffer
            .extend_from_slice(bytes.get(..count).unwrap_or_default());
        drop(state);
        pipe.write_notify.notify_one();
        count
    }

    fn finish(&mut self, id: u64) {
        if let Some((pipe, mut state)) = self.connection(id) {
            state.finished = true;
            drop(state);
            pipe.write_notify.notify_one();
        }
    }

    fn read(&mut self, id: u64, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        let Some((pipe, mut state)) = self.connection(id) else {
            return 0;
        };
        let count = state.receive_buffer.len().min(most);
        let (first, second) = state.receive_buffer.as_slices();
        let split = first.len().min(count);
        for part in [first.get(..split), second.get(..count - split)]
            .into_iter()
            .flatten()
        {
            if !part.is_empty() {
                take(part);
            }
        }
        state.receive_buffer.drain(..count);
        drop(state);
        if count > 0 {
            pipe.read_notify.notify_one();
        }
        count
    }

    fn has_sent_all(&self, id: u64) -> bool {
        self.connection(id).is_some_and(|(_, state)| state.sent_all)
    }

    fn has_read_all(&self, id: u64) -> bool {
        self.connection(id)
            .is_some_and(|(_, state)| state.fin_received && state.receive_buffer.is_empty())
    }

    fn is_connected(&self, id: u64) -> bool {
        self.connection(id)
            .is_some_and(|(_, state)| state.connected)
    }

    fn failure(&self, id: u64) -> Option<&str> {
        self.connections.get(&id)?.failure.as_deref()
    }

    fn stats(&mut self, id: u64) -> Option<QuicStats> {
        let read_stats = self.connection(id)?.1.stats_reader.clone();
        Some(read_stats.map_or_else(QuicStats::default, |read_stats| read_stats()))
    }

    fn close(&mut self, id: u64, well: bool) {
        if let Some((pipe, mut state)) = self.connection(id) {
            state.close.get_or_insert(well);
            drop(state);
            pipe.close_notify.notify_one();
        }
    }

    fn connection_count(&self) -> usize {
        self.connections.len()
    }

    fn process(&mut self) -> Result<bool, HostError> {
        let rung = self.shared.take_signal();
        let arriving = std::mem::take(&mut *self.shared.accepted());
        for pipe in arriving {
            let id = self.insert(pipe);
            self.accepted.push_back(id);
        }
        let now = Instant::now();
        self.connections.retain(|_, connection| {
            let state = connection.pipe.state();
            if connection.failure.is_none() && state.failure.is_some() {
                connection.failure = state.failure.clone();
            }
            let closed = match (&connection.failure, state.close) {
                (Some(why), _) => Some(ConnectionClose::for_reason(why)),
                (None, Some(well)) => Some(ConnectionClose::by_application(code(well))),
                (None, None) => None,
            };
            let over = state.task_ended && state.close.is_some();
            let due = connection.qlog.as_ref().is_some_and(|log| log.is_due(now));
            let read_stats = if due {
                state.stats_reader.clone()
            } else {
                None
            };
            drop(state);
            if let (Some(log), Some(read_stats)) = (&mut connection.qlog, read_stats) {
                log.record_metrics(now, &read_stats());
            }
            if let Some(closed) = closed
                && let Some(log) = connection.qlog.take()
            {
                log.close(now, &closed);
            }
            !over
        });
        // The thread ends only after the host, or on a failure of the stack.
        if self
            .thread
            .as_ref()
            .is_none_or(thread::JoinHandle::is_finished)
        {
            return Err(HostError::Ended { stack: self.stack });
        }
        Ok(rung)
    }

    fn wait_source(&self) -> (BorrowedFd<'_>, PollFlags, Option<Instant>) {
        (self.shared.event(), PollFlags::POLLIN, None)
    }
}
