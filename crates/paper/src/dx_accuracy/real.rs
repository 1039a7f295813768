//! Real packets: UDP datagrams and their answers, with the kernel's timestamps, next to a TCP
//! connection.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};

use ccplane_emu::{EmuConfig, Emulator, Gso, LinkConfig, PacketRecord, Timing};
use ccplane_lab::Error;
use ccplane_qdisc::{LineSpec, QueueSpec, Size};
use ccplane_testbed::ends::{TrafficEnds, inside};
use ccplane_testbed::machine::MachineWatch;
use ccplane_testbed::traffic::{drain, monotonic_ns, wait_until};
use ccplane_testbed::{BackendError, longest_stall, wire};
use ccplane_udp::{DatagramMarks, Inbox, Socket, Stamping};
use ccplane_units::{Duration, Rate};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use super::rows::{Exchange, Probe};
use crate::program::disturbances_cell;

/// The connection writes at 1 Gbit/s, far below the capacity of virtual devices.
const WRITE_BYTES: usize = 16 << 10;
const WRITE_INTERVAL_NS: u64 = 131_072;
/// Payload of a datagram that fills a packet.
pub(super) const PAYLOAD_BYTES: usize = 1_472;
const RECEIVE_TIMEOUT_MS: u16 = 20;
/// If no other socket stamps arrivals, the kernel enables it a little later.
pub(super) const ENABLE_NS: u64 = 50_000_000;
pub(super) const DRAIN_NS: u64 = 100_000_000;
/// Of linux/net_tstamp.h, and the values of `ee_info` in linux/errqueue.h.
const SOF_TIMESTAMPING_TX_SCHED: TimestampingFlag = TimestampingFlag::from_bits_retain(1 << 8);
const SOF_TIMESTAMPING_TX_ACK: TimestampingFlag = TimestampingFlag::from_bits_retain(1 << 9);
pub(super) const SCM_TSTAMP_SND: u32 = 0;
const SCM_TSTAMP_SCHED: u32 = 1;
const SCM_TSTAMP_ACK: u32 = 2;

/// Run of the emulator.
pub(super) const EMULATOR: &str = "emulator";

/// Part of a measurement, with the time per datagram.
struct Phase {
    run: &'static str,
    burst: u64,
    interval_ns: u64,
}

/// Slides 7 to 17: the connection alone, with bursts, and with single packets. There is no
/// bottleneck.
pub(super) fn direct(length: Duration) -> Result<Vec<Exchange>, Error> {
    let all = [
        ("alone", 0, length.as_nanos()),
        ("bursts", 16, 200_000),
        ("paced", 1, 200_000),
    ];
    let phases = all.map(|(run, burst, interval_ns)| Phase {
        run,
        burst,
        interval_ns,
    });
    let ends = wire::make(None)?;
    let (_, writes, datagrams) = traffic(&ends, [0, WRITE_INTERVAL_NS], &phases, length)?;
    Ok([writes, datagrams].concat())
}

/// The roles of slides 18 to 20 exchanged: a packet every 25 ms through a queue that the connection
/// fills after the first half second. Returns the packets, whose delays include constants, and
/// disturbances.
pub(super) fn emulated(length: Duration) -> Result<(Vec<Probe>, Option<String>), Error> {
    let emulator = start_emulator()?;
    let watch = MachineWatch::start();
    let phase = Phase {
        run: EMULATOR,
        burst: 1,
        interval_ns: 25_000_000,
    };
    let ends = TrafficEnds::of(&emulator);
    let (port, _, exchanges) = traffic(&ends, [500_000_000, 0], &[phase], length)?;
    let mut disturbances = watch.finish().disturbances(longest_stall(2.0));
    let report = emulator.finish();
    let report = report.map_err(|error| BackendError::from_emulator(error, false))?;
    let of_probe = |record: &&PacketRecord| record.destination_port == port;
    let mut log: Vec<&PacketRecord> = report.forward.records().filter(of_probe).collect();
    log.sort_by_key(|record| record.arrived);
    if !report.audit.passed || log.len() != exchanges.len() {
        disturbances.push("the emulator was late or missed a packet".to_owned());
    }
    // Packets are neither lost nor reordered before the queue: they have the log's order.
    let both = exchanges.iter().zip(&log);
    let known = both.filter(|(exchange, _)| exchange.t1 != 0 && exchange.t2 != 0);
    let probe = |(exchange, record): (&Exchange, &&PacketRecord)| Probe {
        run: exchange.run,
        truth: record.sojourn().map_or(0, |time| time.as_nanos() as i64),
        measured: exchange.t2 - exchange.t1,
    };
    let disturbances = disturbances_cell(&disturbances);
    Ok((known.map(probe).collect(), disturbances))
}

/// Starts an emulator of 100 Mbit/s with a known queue.
pub(super) fn start_emulator() -> Result<Emulator, Error> {
    let link = |line| LinkConfig {
        line,
        delay: Duration::from_millis(1),
        queue: QueueSpec::DropTail(Size::Packets(250)),
        ..LinkConfig::default()
    };
    let emulator = Emulator::start(EmuConfig {
        // A packet takes 120 µs, far longer than the emulator is late.
        forward: link(LineSpec::Constant(Rate::from_bits_per_sec(100_000_000))),
        reverse: link(LineSpec::Unlimited),
        timing: Timing::Precise,
        // Segments that the kernel passes on together would share a timestamp.
        gso: Gso::Off,
        ..EmuConfig::default()
    });
    emulator.map_err(|error| BackendError::from_emulator(error, false))
}

/// Sends the datagrams of each phase for `length`, next to a connection that writes from a time on
/// at an interval, ns. Returns the receiver's port, the writes, and the datagrams in their order.
fn traffic(
    ends: &TrafficEnds,
    writes: [u64; 2],
    phases: &[Phase],
    length: Duration,
) -> Result<(u16, Vec<Exchange>, Vec<Exchange>), Error> {
    const ACTION: &str = "measure packets between two namespaces";
    let to = ends.address;
    let (mut far, listener) = inside(&ends.receiver, ACTION, || {
        Ok((stamped(to)?, TcpListener::bind((to, 0))?))
    })?;
    let (mut near, sender) = inside(&ends.sender, ACTION, || {
        let near = stamped(Ipv4Addr::UNSPECIFIED.into())?;
        Ok((near, TcpStream::connect(listener.local_addr()?)?))
    })?;
    let (receiver, _) = listener.accept().map_err(Error::traffic(ACTION, ""))?;
    wait_until(monotonic_ns() + ENABLE_NS);
    let (stop, to) = (&AtomicBool::new(false), far.local());
    let measured = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&sender, writes, stop));
        scope.spawn(|| drain(receiver, &AtomicU64::new(0), stop));
        let answers = scope.spawn(|| answer(&mut far, stop));
        let mut exchanges = Vec::new();
        let sent = phases
            .iter()
            .try_for_each(|phase| request(&mut near, to, phase, length, &mut exchanges));
        // The last datagrams are still in the queue.
        wait_until(monotonic_ns() + DRAIN_NS);
        stop.store(true, Ordering::Relaxed);
        let answers = joined(answers);
        let _ = sender.shutdown(Shutdown::Both);
        let writes = joined(writer);
        sent?;
        for (number, received, sent) in answers? {
            if let Some(exchange) = exchanges.get_mut(number) {
                (exchange.t2, exchange.t3) = (received, sent);
            }
        }
        Ok((to.port(), writes?, exchanges))
    });
    measured.map_err(Error::traffic(ACTION, ""))
}

pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    let panicked = |_| Err(io::Error::other("a thread panicked"));
    thread.join().unwrap_or_else(panicked)
}

/// Opens a socket with timestamps.
fn stamped(address: IpAddr) -> io::Result<Socket> {
    let mut socket = Socket::bind((address, 0).into())?;
    socket.set_timestamping(Stamping::Software, true)?;
    Ok(socket)
}

/// Sends a datagram with a number, which becomes the kernel's if none is refused.
fn send(socket: &mut Socket, to: SocketAddr, number: usize) -> io::Result<()> {
    let mut payload = [0; PAYLOAD_BYTES];
    payload[..8].copy_from_slice(&(number as u64).to_be_bytes());
    socket.send_numbered(to, &payload, PAYLOAD_BYTES, DatagramMarks::default())?;
    Ok(())
}

/// Receives the next datagrams: sender, number and timestamp. There are none after a timeout, and
/// while the timestamps of departures are not read.
fn receive(socket: &Socket, inbox: &mut Inbox) -> io::Result<Vec<(SocketAddr, usize, i64)>> {
    let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut ready, RECEIVE_TIMEOUT_MS)?;
    let mut all = Vec::new();
    let batch = socket.receive_marked(inbox)?;
    batch.for_each(|from, _, stamp, payload| {
        if let (Some(number), Some(ns)) = (payload.first_chunk(), stamp.software) {
            all.push((from, u64::from_be_bytes(*number) as usize, ns as i64));
        }
    });
    Ok(all)
}

/// Sends the bursts of a phase, and receives their answers.
fn request(
    socket: &mut Socket,
    to: SocketAddr,
    phase: &Phase,
    length: Duration,
    exchanges: &mut Vec<Exchange>,
) -> io::Result<()> {
    let (mut inbox, mut next) = (Inbox::new(), monotonic_ns());
    let end = next + length.as_nanos();
    while monotonic_ns() < end {
        wait_until(next);
        next += phase.burst.max(1) * phase.interval_ns;
        for _ in 0..phase.burst {
            exchanges.push(Exchange {
                run: phase.run,
                user: Some(-realtime_ns()),
                ..Exchange::default()
            });
            send(socket, to, exchanges.len() - 1)?;
        }
        let deadline = monotonic_ns() + u64::from(RECEIVE_TIMEOUT_MS) * 1_000_000;
        let mut missing = phase.burst as usize;
        while missing > 0 && monotonic_ns() < deadline {
            let answers = receive(socket, &mut inbox)?;
            missing = missing.saturating_sub(answers.len());
            for (_, number, ns) in answers {
                if let Some(exchange) = exchanges.get_mut(number) {
                    exchange.t4 = ns;
                    exchange.user = exchange.user.map(|sent| sent + realtime_ns());
                }
            }
            socket.read_departures(|number, stamp| {
                if let (Some(e), Some(ns)) = (exchanges.get_mut(number as usize), stamp.software) {
                    e.t1 = ns as i64;
                }
            });
        }
    }
    Ok(())
}

/// Answers datagrams. Returns their numbers, and the timestamps of their arrivals and answers.
fn answer(socket: &mut Socket, stop: &AtomicBool) -> io::Result<Vec<(usize, i64, i64)>> {
    let (mut inbox, mut answers) = (Inbox::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        for (from, number, received) in receive(socket, &mut inbox)? {
            send(socket, from, number)?;
            answers.push((number, received, 0));
        }
        socket.read_departures(|number, stamp| {
            if let (Some(a), Some(ns)) = (answers.get_mut(number as usize), stamp.software) {
                a.2 = ns as i64;
            }
        });
    }
    Ok(answers)
}

/// Writes from a time on at an interval, ns. Returns the writes: t1 is the time at which the last
/// byte reached the device's queue, t4 that of its ACK.
fn write(
    stream: &TcpStream,
    [start, interval]: [u64; 2],
    stop: &AtomicBool,
) -> io::Result<Vec<Exchange>> {
    stamp_departures(stream, SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_ACK)?;
    let (mut scheduled, mut writes) = (BTreeMap::new(), Vec::new());
    wait_until(monotonic_ns() + start);
    write_blocks(
        stream,
        &[0; WRITE_BYTES],
        interval,
        stop,
        |_, kind, byte, ns| match kind {
            // A retransmission keeps its first time.
            SCM_TSTAMP_SCHED => {
                scheduled.entry(byte).or_insert(ns);
            }
            SCM_TSTAMP_ACK => writes.extend(scheduled.remove(&byte).map(|t1| Exchange {
                run: "connection",
                t1,
                t4: ns.max(t1),
                ..Exchange::default()
            })),
            _ => {}
        },
    );
    Ok(writes)
}

/// Writes a block per interval, ns, until `stop`. Calls `take` with each timestamp of the socket:
/// number of blocks so far, kind, last byte, and ns. Returns the number of blocks.
pub(super) fn write_blocks(
    mut stream: &TcpStream,
    block: &[u8],
    interval: u64,
    stop: &AtomicBool,
    mut take: impl FnMut(usize, u32, u32, i64),
) -> usize {
    let (mut written, mut next) = (0, monotonic_ns());
    while !stop.load(Ordering::Relaxed) && stream.write_all(block).is_ok() {
        written += 1;
        reports(stream, |kind, byte, ns| take(written, kind, byte, ns));
        // A late write is not followed by a burst.
        next = (next + interval).max(monotonic_ns().saturating_sub(interval));
        wait_until(next);
    }
    written
}

/// Requests these timestamps of each write.
pub(super) fn stamp_departures(stream: &TcpStream, kinds: TimestampingFlag) -> io::Result<()> {
    use TimestampingFlag as F;
    let numbered = F::SOF_TIMESTAMPING_OPT_ID | F::SOF_TIMESTAMPING_OPT_TSONLY;
    let flags = F::SOF_TIMESTAMPING_SOFTWARE | kinds | numbered;
    Ok(setsockopt(stream, sockopt::Timestamping, &flags)?)
}

/// Reads the timestamps on a socket's error queue: kind, last byte, and ns.
fn reports(stream: &TcpStream, mut take: impl FnMut(u32, u32, i64)) {
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    loop {
        let (mut contents, mut control) = ([0; 8], vec![0; 512]);
        let mut slices = [IoSliceMut::new(&mut contents)];
        let socket = stream.as_raw_fd();
        let Ok(received) = recvmsg::<()>(socket, &mut slices, Some(&mut control), flags) else {
            return;
        };
        let mut stamp = None;
        for message in received.cmsgs().into_iter().flatten() {
            match (message, stamp) {
                (ControlMessageOwned::ScmTimestampsns(stamps), _) => stamp = Some(stamps.system),
                (ControlMessageOwned::Ipv4RecvErr(error, _), Some(stamp)) => {
                    take(error.ee_info, error.ee_data, nanos(stamp));
                }
                _ => {}
            }
        }
    }
}

pub(super) fn nanos(time: TimeSpec) -> i64 {
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

#[expect(clippy::disallowed_methods, reason = "clock of the timestamps")]
fn realtime_ns() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, nanos)
}
