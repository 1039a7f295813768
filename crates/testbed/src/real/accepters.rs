//! The loop at the receivers' end: accepts, reads and counts by flow, answers when it is told to,
//! takes datagrams.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ccplane_units::Duration;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::mail::Mailbox;
use super::marks::WriteMarks;
use super::socket::{self, BLOCK_BYTES, DATAGRAM_HEADER_BYTES};
use crate::traffic::{self, monotonic_ns};

/// What the other loop wants of this one. Of a flow, [`ServerOrder::Expect`] comes first.
#[derive(Debug)]
pub(super) enum ServerOrder {
    /// Connections from that address belong to this flow. Their bytes count for the flow and its
    /// workload. If `awaited` is above 0, [`WriteArrival`] is sent when that number of bytes has been
    /// read.
    Expect {
        peer: SocketAddr,
        flow: u32,
        received: [Arc<AtomicU64>; 2],
        awaited: u64,
    },
    /// A write has ended at `total` bytes of the stream: [`WriteArrival`] is sent when they have been
    /// read.
    Await { flow: u32, total: u64 },
    /// Write so many bytes back; with `finish` they are the last.
    Answer { flow: u32, bytes: u64, finish: bool },
    /// Nobody is interested in it any more.
    Forget { flow: u32 },
}

/// The oldest awaited write of a flow has been read, at this time of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteArrival {
    pub flow: u32,
    pub at_ns: u64,
}

/// Events looked at before the mail is.
const EVENTS_PER_TURN_MAX: usize = 64;
/// Datagrams read before somebody else has a turn.
const DATAGRAMS_PER_TURN_MAX: usize = 64;
/// How long nothing may happen before it looks whether the run is over.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

// What an event is of: a flow by its number, or one of these.
const MAILBOX_TOKEN: u64 = u64::MAX;
const LISTENER_TOKEN_BASE: u64 = 1 << 40;
const SINK_TOKEN_BASE: u64 = 1 << 41;

/// A connection that was accepted, or will be.
#[derive(Debug)]
struct AcceptedConnection {
    stream: Option<TcpStream>,
    received: [Arc<AtomicU64>; 2],
    read: u64,
    awaited: WriteMarks,
    /// To be written back.
    left: u64,
    finish: bool,
    /// Its own stream is ended.
    shut: bool,
    /// The other end has ended its stream.
    ended: bool,
    watched: EpollFlags,
}

/// See the module.
pub(super) struct Accepters<'r> {
    epoll: Epoll,
    listeners: Vec<TcpListener>,
    sinks: Vec<(UdpSocket, Arc<AtomicU64>)>,
    orders: &'r Mailbox<ServerOrder>,
    told: &'r Mailbox<WriteArrival>,
    /// Bytes that arrived, of all flows together.
    total: &'r AtomicU64,
    flows: HashMap<u32, AcceptedConnection>,
    /// Flows that are not connected yet, by where they come from.
    expected: HashMap<SocketAddr, u32>,
    /// Connections of which nobody has told yet.
    strangers: HashMap<SocketAddr, TcpStream>,
    block: Box<[u8]>,
}

impl<'r> Accepters<'r> {
    /// With these sockets, each sink with its counter of bytes on the wire.
    pub fn new(
        listeners: Vec<TcpListener>,
        sinks: Vec<(UdpSocket, Arc<AtomicU64>)>,
        orders: &'r Mailbox<ServerOrder>,
        told: &'r Mailbox<WriteArrival>,
        total: &'r AtomicU64,
    ) -> io::Result<Accepters<'r>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(orders, EpollEvent::new(EpollFlags::EPOLLIN, MAILBOX_TOKEN))?;
        for (key, listener) in (LISTENER_TOKEN_BASE..).zip(&listeners) {
            epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        }
        for (key, (sink, _)) in (SINK_TOKEN_BASE..).zip(&sinks) {
            epoll.add(sink, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        }
        Ok(Accepters {
            epoll,
            listeners,
            sinks,
            orders,
            told,
            total,
            flows: HashMap::new(),
            expected: HashMap::new(),
            strangers: HashMap::new(),
            block: vec![0x5a; BLOCK_BYTES].into_boxed_slice(),
        })
    }

    /// Works until this time, or until it is to stop; when that was.
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
                    MAILBOX_TOKEN => self.obey()?,
                    key if key >= SINK_TOKEN_BASE => self.swallow((key - SINK_TOKEN_BASE) as usize),
                    key if key >= LISTENER_TOKEN_BASE => {
                        self.accept((key - LISTENER_TOKEN_BASE) as usize)?
                    }
                    key => self.turn(key as u32, event.events()),
                }
            }
        }
    }

    /// Lets go of all connections, which are reset: what is on its way belongs to no figure.
    pub fn reset(self) {
        let streams = self.flows.values().filter_map(|flow| flow.stream.as_ref());
        streams.for_each(traffic::reset_on_close);
    }

    fn obey(&mut self) -> io::Result<()> {
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
                        awaited: WriteMarks::starting_with(awaited),
                        left: 0,
                        finish: false,
                        shut: false,
                        ended: false,
                        watched: EpollFlags::empty(),
                    };
                    self.flows.insert(flow, accepted);
                    match self.strangers.remove(&peer) {
                        Some(stream) => self.begin(flow, stream)?,
                        None => drop(self.expected.insert(peer, flow)),
                    }
                }
                ServerOrder::Await { flow, total } => {
                    let Some(accepted) = self.flows.get_mut(&flow) else {
                        continue;
                    };
                    accepted.awaited.push(total);
                    tell(self.told, flow, &mut accepted.awaited, accepted.read);
                }
                ServerOrder::Answer {
                    flow,
                    bytes,
                    finish,
                } => {
                    if let Some(accepted) = self.flows.get_mut(&flow) {
                        accepted.left += bytes;
                        accepted.finish |= finish;
                        self.turn(flow, EpollFlags::EPOLLOUT);
                    }
                }
                ServerOrder::Forget { flow } => drop(self.flows.remove(&flow)),
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
                    // One that gave up while it waited.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => return Err(error),
                },
            };
            stream.set_nonblocking(true)?;
            match self.expected.remove(&peer) {
                Some(flow) => self.begin(flow, stream)?,
                None => drop(self.strangers.insert(peer, stream)),
            }
        }
        Ok(())
    }

    /// A flow's connection is there.
    fn begin(&mut self, flow: u32, stream: TcpStream) -> io::Result<()> {
        // A flow that was given up meanwhile takes its connection with it.
        if let Some(accepted) = self.flows.get_mut(&flow) {
            accepted.watched = EpollFlags::EPOLLIN;
            self.epoll
                .add(&stream, EpollEvent::new(accepted.watched, flow.into()))?;
            accepted.stream = Some(stream);
            self.turn(flow, EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT);
        }
        Ok(())
    }

    /// One block each way, as far as there is one. A connection that breaks ends only itself.
    fn turn(&mut self, flow: u32, events: EpollFlags) {
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
        if events != EpollFlags::EPOLLOUT && !accepted.ended {
            match stream.read(&mut self.block) {
                Ok(0) => accepted.ended = true,
                Ok(count) => {
                    accepted.read += count as u64;
                    for received in &accepted.received {
                        received.fetch_add(count as u64, Ordering::Relaxed);
                    }
                    self.total.fetch_add(count as u64, Ordering::Relaxed);
                    tell(self.told, flow, &mut accepted.awaited, accepted.read);
                }
                Err(error) => broken = !idle(&error),
            }
        }
        if accepted.left > 0 && writable && !broken {
            let most = BLOCK_BYTES.min(usize::try_from(accepted.left).unwrap_or(BLOCK_BYTES));
            match stream.write(&self.block[..most]) {
                Ok(count) => accepted.left -= count as u64,
                Err(error) => broken = !idle(&error),
            }
        }
        if accepted.left == 0 && accepted.finish && !accepted.shut {
            accepted.shut = true;
            broken |= stream.shutdown(Shutdown::Write).is_err();
        }
        // It has said all and heard all.
        let over = accepted.left == 0 && accepted.ended;
        if broken || over {
            self.flows.remove(&flow);
            return;
        }
        let mut wanted = EpollFlags::empty();
        wanted.set(EpollFlags::EPOLLIN, !accepted.ended);
        wanted.set(EpollFlags::EPOLLOUT, accepted.left > 0);
        if wanted != accepted.watched
            && self
                .epoll
                .modify(&*stream, &mut EpollEvent::new(wanted, flow.into()))
                .is_ok()
        {
            accepted.watched = wanted;
        }
    }

    fn swallow(&mut self, which: usize) {
        let Some((sink, received)) = self.sinks.get(which) else {
            return;
        };
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            // Whatever the network says of a datagram, the next one may come.
            let Ok(count) = sink.recv(&mut self.block) else {
                return;
            };
            let bytes = count as u64 + u64::from(DATAGRAM_HEADER_BYTES);
            received.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// Reports the writes that have been read.
fn tell(told: &Mailbox<WriteArrival>, flow: u32, awaited: &mut WriteMarks, read: u64) {
    let passed = awaited.pass(read);
    if passed > 0 {
        let at_ns = monotonic_ns();
        (0..passed).for_each(|_| told.send(WriteArrival { flow, at_ns }));
    }
}
