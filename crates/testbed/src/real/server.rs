//! Event loop of the receivers: accepts connections, reads and counts bytes per flow, writes
//! responses on request, and receives datagrams.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ccplane_units::Duration;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::mailbox::Mailbox;
use super::socket::{self, BLOCK_BYTES, DATAGRAM_HEADER_BYTES};
use super::write_marks::WriteMarks;
use crate::traffic::{self, monotonic_ns};

/// Orders from the senders' loop. The first one for a flow is [`ServerOrder::Expect`].
#[derive(Debug)]
pub(super) enum ServerOrder {
    /// Connections from this address belong to this flow. Their bytes count for the flow and its
    /// workload. If `awaited` is above 0, [`WriteArrival`] is sent when that number of bytes has
    /// been read.
    Expect {
        peer: SocketAddr,
        flow: u32,
        received: [Arc<AtomicU64>; 2],
        awaited: u64,
    },
    /// A write ends at byte `total` of the stream: [`WriteArrival`] is sent once it has been read.
    AwaitRead { flow: u32, total: u64 },
    /// Writes this number of bytes back; with `finish` the stream ends after them.
    WriteBack { flow: u32, bytes: u64, finish: bool },
    /// The flow is no longer of interest.
    Discard { flow: u32 },
}

/// The oldest awaited write of a flow has been read, at this `CLOCK_MONOTONIC` time.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteArrival {
    pub flow: u32,
    pub at_ns: u64,
}

/// Events processed before the mailbox is checked.
const EVENTS_PER_TURN_MAX: usize = 64;
/// Datagrams read before other sockets get a turn.
const DATAGRAMS_PER_TURN_MAX: usize = 64;
/// Interval at which an idle loop checks if the run has ended.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

// Epoll tokens: the number of a flow, or one of these.
const MAILBOX_TOKEN: u64 = u64::MAX;
const LISTENER_TOKEN_BASE: u64 = 1 << 40;
const SINK_TOKEN_BASE: u64 = 1 << 41;

/// A connection that was or will be accepted.
#[derive(Debug)]
struct AcceptedConnection {
    stream: Option<TcpStream>,
    received: [Arc<AtomicU64>; 2],
    read: u64,
    awaited_writes: WriteMarks,
    /// Bytes to write back.
    unsent: u64,
    finish: bool,
    /// This end has shut down its stream.
    is_shut_down: bool,
    /// The peer has ended its stream.
    peer_ended: bool,
    interest: EpollFlags,
}

/// State of the event loop.
pub(super) struct ServerLoop<'r> {
    epoll: Epoll,
    listeners: Vec<TcpListener>,
    sinks: Vec<(UdpSocket, Arc<AtomicU64>)>,
    orders: &'r Mailbox<ServerOrder>,
    arrivals: &'r Mailbox<WriteArrival>,
    /// Bytes received by all flows together.
    total: &'r AtomicU64,
    flows: HashMap<u32, AcceptedConnection>,
    /// Flows that are not connected yet, by the client's address.
    expected: HashMap<SocketAddr, u32>,
    /// Accepted connections without a [`ServerOrder::Expect`] so far.
    unmatched: HashMap<SocketAddr, TcpStream>,
    buffer: Box<[u8]>,
}

impl<'r> ServerLoop<'r> {
    /// Creates the loop with these sockets. Each sink has a counter of bytes on the wire.
    pub fn new(
        listeners: Vec<TcpListener>,
        sinks: Vec<(UdpSocket, Arc<AtomicU64>)>,
        orders: &'r Mailbox<ServerOrder>,
        told: &'r Mailbox<WriteArrival>,
        total: &'r AtomicU64,
    ) -> io::Result<ServerLoop<'r>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(orders, EpollEvent::new(EpollFlags::EPOLLIN, MAILBOX_TOKEN))?;
        for (key, listener) in (LISTENER_TOKEN_BASE..).zip(&listeners) {
            epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        }
        for (key, (sink, _)) in (SINK_TOKEN_BASE..).zip(&sinks) {
            epoll.add(sink, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        }
        Ok(ServerLoop {
            epoll,
            listeners,
            sinks,
            orders,
            arrivals: told,
            total,
            flows: HashMap::new(),
            expected: HashMap::new(),
            unmatched: HashMap::new(),
            buffer: vec![0x5a; BLOCK_BYTES].into_boxed_slice(),
        })
    }

    /// Runs until `end_ns` or until `stop` is set, and returns the time of the end.
    pub fn run(&mut self, end_ns: u64, stop: &AtomicBool) -> io::Result<u64> {
        let mut events = [EpollEvent::empty(); EVENTS_PER_TURN_MAX];
        loop {
            let now = monotonic_ns();
            if now >= end_ns || stop.load(Ordering::Relaxed) {
                return Ok(now);
            }
            let left = Duration::from_nanos(end_ns - now);
            let count = socket::ready(&self.epoll, &mut events, left.min(STOP_POLL_INTERVAL))?;
            for event in events.iter().take(count) {
                match event.data() {
                    MAILBOX_TOKEN => self.process_orders()?,
                    key if key >= SINK_TOKEN_BASE => {
                        self.drain_sink((key - SINK_TOKEN_BASE) as usize)
                    }
                    key if key >= LISTENER_TOKEN_BASE => {
                        self.accept((key - LISTENER_TOKEN_BASE) as usize)?
                    }
                    key => self.serve_connection(key as u32, event.events()),
                }
            }
        }
    }

    /// Closes all connections with a reset: data in flight does not count for any result.
    pub fn reset(self) {
        let streams = self.flows.values().filter_map(|flow| flow.stream.as_ref());
        streams.for_each(traffic::reset_on_close);
    }

    fn process_orders(&mut self) -> io::Result<()> {
        for order in self.orders.take() {
            match order {
                ServerOrder::Expect {
                    peer,
                    flow,
                    received,
                    awaited,
                } => {
                    let accepted = AcceptedConnection {
                        stream: None,
                        received,
                        read: 0,
                        awaited_writes: WriteMarks::starting_with(awaited),
                        unsent: 0,
                        finish: false,
                        is_shut_down: false,
                        peer_ended: false,
                        interest: EpollFlags::empty(),
                    };
                    self.flows.insert(flow, accepted);
                    match self.unmatched.remove(&peer) {
                        Some(stream) => self.attach(flow, stream)?,
                        None => drop(self.expected.insert(peer, flow)),
                    }
                }
                ServerOrder::AwaitRead { flow, total } => {
                    let Some(accepted) = self.flows.get_mut(&flow) else {
                        continue;
                    };
                    accepted.awaited_writes.push(total);
                    tell(
                        self.arrivals,
                        flow,
                        &mut accepted.awaited_writes,
                        accepted.read,
                    );
                }
                ServerOrder::WriteBack {
                    flow,
                    bytes,
                    finish,
                } => {
                    if let Some(accepted) = self.flows.get_mut(&flow) {
                        accepted.unsent += bytes;
                        accepted.finish |= finish;
                        self.serve_connection(flow, EpollFlags::EPOLLOUT);
                    }
                }
                ServerOrder::Discard { flow } => drop(self.flows.remove(&flow)),
            }
        }
        Ok(())
    }

    fn accept(&mut self, which: usize) -> io::Result<()> {
        for _ in 0..EVENTS_PER_TURN_MAX {
            let Some(listener) = self.listeners.get(which) else {
                break;
            };
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    // The client gave up while it was in the accept queue.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => return Err(error),
                },
            };
            stream.set_nonblocking(true)?;
            match self.expected.remove(&peer) {
                Some(flow) => self.attach(flow, stream)?,
                None => drop(self.unmatched.insert(peer, stream)),
            }
        }
        Ok(())
    }

    /// Attaches the accepted connection to its flow.
    fn attach(&mut self, flow: u32, stream: TcpStream) -> io::Result<()> {
        // A flow that has been dropped meanwhile drops its connection too.
        if let Some(accepted) = self.flows.get_mut(&flow) {
            accepted.interest = EpollFlags::EPOLLIN;
            self.epoll
                .add(&stream, EpollEvent::new(accepted.interest, flow.into()))?;
            accepted.stream = Some(stream);
            self.serve_connection(flow, EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT);
        }
        Ok(())
    }

    /// Reads and writes at most one block. An error ends only this connection.
    fn serve_connection(&mut self, flow: u32, events: EpollFlags) {
        let Some(accepted) = self.flows.get_mut(&flow) else {
            return;
        };
        let Some(stream) = &mut accepted.stream else {
            return;
        };
        let idle = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            )
        };
        let mut broken = false;
        let writable = events.intersects(EpollFlags::EPOLLOUT | EpollFlags::EPOLLERR);
        if events != EpollFlags::EPOLLOUT && !accepted.peer_ended {
            match stream.read(&mut self.buffer) {
                Ok(0) => accepted.peer_ended = true,
                Ok(count) => {
                    accepted.read += count as u64;
                    for received in &accepted.received {
                        received.fetch_add(count as u64, Ordering::Relaxed);
                    }
                    self.total.fetch_add(count as u64, Ordering::Relaxed);
                    tell(
                        self.arrivals,
                        flow,
                        &mut accepted.awaited_writes,
                        accepted.read,
                    );
                }
                Err(error) => broken = !idle(&error),
            }
        }
        if accepted.unsent > 0 && writable && !broken {
            let most = BLOCK_BYTES.min(usize::try_from(accepted.unsent).unwrap_or(BLOCK_BYTES));
            match stream.write(&self.buffer[..most]) {
                Ok(count) => accepted.unsent -= count as u64,
                Err(error) => broken = !idle(&error),
            }
        }
        if accepted.unsent == 0 && accepted.finish && !accepted.is_shut_down {
            accepted.is_shut_down = true;
            broken |= stream.shutdown(Shutdown::Write).is_err();
        }
        // All data has been written and read.
        let over = accepted.unsent == 0 && accepted.peer_ended;
        if broken || over {
            self.flows.remove(&flow);
            return;
        }
        let mut wanted = EpollFlags::empty();
        wanted.set(EpollFlags::EPOLLIN, !accepted.peer_ended);
        wanted.set(EpollFlags::EPOLLOUT, accepted.unsent > 0);
        if wanted != accepted.interest
            && self
                .epoll
                .modify(&*stream, &mut EpollEvent::new(wanted, flow.into()))
                .is_ok()
        {
            accepted.interest = wanted;
        }
    }

    fn drain_sink(&mut self, which: usize) {
        let Some((sink, received)) = self.sinks.get(which) else {
            return;
        };
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            // Errors such as ICMP unreachable do not affect the next datagram.
            let Ok(count) = sink.recv(&mut self.buffer) else {
                return;
            };
            let bytes = count as u64 + u64::from(DATAGRAM_HEADER_BYTES);
            received.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// Reports the writes that have been read.
fn tell(told: &Mailbox<WriteArrival>, flow: u32, awaited: &mut WriteMarks, read: u64) {
    let passed = awaited.remove_read(read);
    if passed > 0 {
        let at_ns = monotonic_ns();
        (0..passed).for_each(|_| told.send(WriteArrival { flow, at_ns }));
    }
}
