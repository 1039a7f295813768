//! How well the emulator does, measured from outside: by ordinary sockets in its namespaces.
#![expect(clippy::disallowed_methods, reason = "a benchmark keeps to the clock")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

use ccplane_emu::{EmuConfig, EmuReport, Emulator, Error, Gso, LinkConfig, Timing};
use ccplane_host::Namespace;
use ccplane_link::ThreadClock;
use ccplane_qdisc::{LineSpec, QueueSpec, Size};
use ccplane_units::{Duration, Rate, Time};
use nix::sys::socket::{setsockopt, sockopt};

/// A full packet is this much of UDP payload and the IPv4 and UDP headers.
const PAYLOAD: usize = 1_472;
const HEADERS: u64 = 28;

/// Bulk TCP through links that only delay.
#[derive(Debug)]
pub struct Throughput {
    /// What the receiving application got, Gbit/s.
    pub gbps: f64,
    /// What the emulator did. A link at its limit is late: that is what the limit is.
    pub report: EmuReport,
}

/// Round trips through links that only delay.
#[derive(Debug)]
pub struct RttError {
    /// Median distance from the round-trip time asked for.
    pub p50: Duration,
    /// 99th percentile of the distance.
    pub p99: Duration,
    /// What the emulator did.
    pub report: EmuReport,
}

/// Throughput of one TCP connection with this delay each way, over `length` after a warm-up of two
/// seconds.
pub fn throughput(
    timing: Timing,
    gso: Gso,
    delay: Duration,
    length: Duration,
) -> Result<Throughput, Error> {
    bulk(
        timing,
        gso,
        LineSpec::Unlimited,
        QueueSpec::UNLIMITED,
        delay,
        length,
    )
}

/// One TCP connection through a drop-tail queue of one bandwidth-delay product, 10 ms each way,
/// over `length` after a warm-up of two seconds.
pub fn bottleneck(timing: Timing, rate: Rate, length: Duration) -> Result<Throughput, Error> {
    let delay = Duration::from_millis(10);
    let line = LineSpec::Constant(rate);
    bulk(timing, Gso::Auto, line, QueueSpec::ONE_BDP, delay, length)
}

fn bulk(
    timing: Timing,
    gso: Gso,
    line: LineSpec,
    queue: QueueSpec,
    delay: Duration,
    length: Duration,
) -> Result<Throughput, Error> {
    const WARM_UP: Duration = Duration::from_secs(2);
    let emulator = start(timing, gso, line, delay, queue)?;
    // Whatever this machine's default is. A kernel without it has Reno.
    let _ = emulator
        .sender_ns()
        .set_sysctl("net/ipv4/tcp_congestion_control", "cubic");
    for namespace in [emulator.sender_ns(), emulator.receiver_ns()] {
        // Windows large enough for 20 Gbit/s over 20 ms, and some more.
        namespace.set_sysctl("net/ipv4/tcp_rmem", "4096 131072 134217728")?;
        namespace.set_sysctl("net/ipv4/tcp_wmem", "4096 131072 134217728")?;
    }
    let clock = ThreadClock::new();
    let done = AtomicBool::new(false);
    let listener = inside(emulator.receiver_ns(), || {
        TcpListener::bind((emulator.receiver_addr(), 0))
    })?;
    let to = listener.local_addr().map_err(failed)?;
    let mut source = inside(emulator.sender_ns(), || TcpStream::connect(to))?;
    let (mut sink, _) = listener.accept().map_err(failed)?;
    let gbps = thread::scope(|scope| {
        scope.spawn(|| {
            let data = vec![0; 256 * 1024];
            while !done.load(Ordering::Relaxed) {
                if source.write_all(&data).is_err() {
                    break;
                }
            }
        });
        let measured = received_gbps(&mut sink, &clock, WARM_UP, length);
        done.store(true, Ordering::Relaxed);
        // A writer that waits for the window ends with the connection.
        drop(sink);
        measured
    })
    .map_err(failed)?;
    Ok(Throughput {
        gbps,
        report: emulator.finish()?,
    })
}

/// How far the rate of a link that is offered half as much again as it can carry, by UDP, for
/// `length`, is from what was asked for: in per cent of that, IP headers included.
pub fn rate_error_pct(timing: Timing, asked: Rate, length: Duration) -> Result<f64, Error> {
    // Long enough to keep the link busy while a busy machine keeps the sender waiting.
    let queue = QueueSpec::DropTail(Size::Bytes(
        asked.bytes_in(Duration::from_millis(250)).get(),
    ));
    let emulator = start(
        timing,
        Gso::Auto,
        LineSpec::Constant(asked),
        Duration::from_millis(10),
        queue,
    )?;
    let (source, sink) = udp_pair(&emulator)?;
    // The receiver may be kept waiting by a busy machine, for 100 ms at 1 Gbit/s; the kernel counts
    // memory, not payload.
    setsockopt(&sink, sockopt::RcvBufForce, &(32 << 20)).map_err(|e| failed(e.into()))?;
    let to = sink.local_addr().map_err(failed)?;
    let clock = ThreadClock::new();
    let done = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        scope
            .spawn(|| in_time(|| offer(&source, to, asked.bytes_per_sec() * 3 / 2, &clock, &done)));
        let measured = join(scope.spawn(|| in_time(|| received_rate(&sink, &clock, length))));
        done.store(true, Ordering::Relaxed);
        measured
    })
    .map_err(failed)?;
    emulator.finish()?;
    let asked = asked.bytes_per_sec() as f64;
    Ok((measured - asked).abs() / asked * 100.0)
}

/// Round trips of small datagrams, `samples` of them, almost 200 a second, with nothing else on the
/// path.
pub fn idle_rtt_error(timing: Timing, asked: Duration, samples: usize) -> Result<RttError, Error> {
    let emulator = start(
        timing,
        Gso::Auto,
        LineSpec::Unlimited,
        asked / 2,
        QueueSpec::UNLIMITED,
    )?;
    let (source, echo) = udp_pair(&emulator)?;
    let to = echo.local_addr().map_err(failed)?;
    let clock = ThreadClock::new();
    let mut errors = thread::scope(|scope| {
        scope.spawn(|| in_time(|| send_back(&echo)));
        let sent = scope.spawn(|| in_time(|| send_stamps(&source, to, samples, &clock)));
        let errors = scope.spawn(|| in_time(|| receive_stamps(&source, asked, samples, &clock)));
        join(sent)?;
        join(errors)
    })
    .map_err(failed)?;
    errors.sort_unstable();
    let quantile = |percent: usize| {
        let index = (errors.len() * percent / 100).min(errors.len().saturating_sub(1));
        Duration::from_nanos(errors.get(index).copied().unwrap_or(0))
    };
    Ok(RttError {
        p50: quantile(50),
        p99: quantile(99),
        report: emulator.finish()?,
    })
}

fn start(
    timing: Timing,
    gso: Gso,
    line: LineSpec,
    delay: Duration,
    queue: QueueSpec,
) -> Result<Emulator, Error> {
    let shaped = LinkConfig {
        line,
        delay,
        queue,
        ..LinkConfig::default()
    };
    let back = LinkConfig {
        delay,
        ..LinkConfig::default()
    };
    Emulator::start(EmuConfig {
        forward: shaped,
        reverse: back,
        timing,
        gso,
        log_records: 0,
        ..EmuConfig::default()
    })
}

/// A socket at each end. Both give up when nothing comes for a second.
fn udp_pair(emulator: &Emulator) -> Result<(UdpSocket, UdpSocket), Error> {
    let at = |namespace, address: IpAddr| {
        inside(namespace, || {
            let socket = UdpSocket::bind((address, 0))?;
            socket.set_read_timeout(Some(std::time::Duration::from_secs(1)))?;
            Ok(socket)
        })
    };
    Ok((
        at(emulator.sender_ns(), emulator.sender_addr())?,
        at(emulator.receiver_ns(), emulator.receiver_addr())?,
    ))
}

/// Runs one end of a measurement. The link is measured, not who uses it: on a busy machine these
/// must not be what is slow.
fn in_time<T>(work: impl FnOnce() -> T) -> T {
    // Without the privilege they are ordinary, and so is the result.
    let _ = ccplane_host::raise_priority();
    work()
}

fn join<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("a thread of the benchmark panicked")))
}

/// Sends every datagram back, until an empty one comes.
fn send_back(socket: &UdpSocket) {
    let mut buffer = [0; 64];
    while let Ok((length @ 1.., from)) = socket.recv_from(&mut buffer) {
        if socket.send_to(&buffer[..length], from).is_err() {
            break;
        }
    }
}

/// Sends the time, almost 200 times a second, and an empty datagram at the end.
fn send_stamps(
    socket: &UdpSocket,
    to: SocketAddr,
    samples: usize,
    clock: &ThreadClock,
) -> io::Result<()> {
    // Nothing that the delays are a multiple of, or the delivery of one would coincide with that of
    // another.
    const GAP: Duration = Duration::from_micros(5_370);
    for n in 0..samples {
        let at = Time::ZERO + GAP * n as u64;
        thread::sleep(at.since(clock.now()).to_std());
        socket.send_to(&clock.now().as_nanos().to_be_bytes(), to)?;
    }
    socket.send_to(&[], to).map(|_| ())
}

/// How far each round trip is from the time asked for, ns.
fn receive_stamps(
    socket: &UdpSocket,
    asked: Duration,
    samples: usize,
    clock: &ThreadClock,
) -> io::Result<Vec<u64>> {
    let mut errors = Vec::with_capacity(samples);
    let mut stamp = [0; 8];
    while errors.len() < samples {
        socket.recv(&mut stamp)?;
        let took = clock
            .now()
            .as_nanos()
            .saturating_sub(u64::from_be_bytes(stamp));
        errors.push(took.abs_diff(asked.as_nanos()));
    }
    Ok(errors)
}

/// Sends full packets at `rate` bytes per second, many in one call, a millisecond's worth or one
/// call's at a time.
fn offer(socket: &UdpSocket, to: SocketAddr, rate: u64, clock: &ThreadClock, done: &AtomicBool) {
    // What UDP carries in one datagram, were it not cut.
    const AT_ONCE: usize = 44;
    let size = PAYLOAD as u16 as i32;
    let packets = match setsockopt(socket, sockopt::UdpGsoSegment, &size) {
        Ok(()) => AT_ONCE,
        Err(_) => 1,
    };
    let payload = vec![0; packets * PAYLOAD];
    let mut sent = 0;
    while !done.load(Ordering::Relaxed) {
        let owed = Rate::from_bytes_per_sec(rate)
            .bytes_in(clock.now().since(Time::ZERO))
            .get();
        while sent < owed && socket.send_to(&payload, to).is_ok() {
            sent += packets as u64 * (PAYLOAD as u64 + HEADERS);
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Bytes per second between the first and the last packet of `length`, after the queue has filled.
fn received_rate(socket: &UdpSocket, clock: &ThreadClock, length: Duration) -> io::Result<f64> {
    const FILL: Duration = Duration::from_millis(750);
    let mut packet = [0; PAYLOAD + 1];
    let mut next = || -> io::Result<(Time, u64)> {
        let bytes = socket.recv(&mut packet)?;
        Ok((clock.now(), bytes as u64 + HEADERS))
    };
    let mut begin = next()?.0;
    let fill_until = begin + FILL;
    while begin < fill_until {
        begin = next()?.0;
    }
    let (mut end, mut bytes) = (begin, 0);
    while end < begin + length {
        let (at, packet) = next()?;
        end = at;
        bytes += packet;
    }
    Ok(bytes as f64 / end.since(begin).as_secs_f64())
}

/// Gbit/s that come from a stream in `length` after `warm_up`.
fn received_gbps(
    stream: &mut TcpStream,
    clock: &ThreadClock,
    warm_up: Duration,
    length: Duration,
) -> io::Result<f64> {
    let mut buffer = vec![0; 256 * 1024];
    let (mut begin, mut bytes) = (None, 0_usize);
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let now = clock.now();
        match begin {
            None if now.since(Time::ZERO) >= warm_up => begin = Some(now),
            None => {}
            Some(begin) => {
                bytes += count;
                if now.since(begin) >= length {
                    return Ok(bytes as f64 * 8.0 / now.since(begin).as_nanos() as f64);
                }
            }
        }
    }
}

fn inside<T: Send>(
    namespace: &Namespace,
    open: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, Error> {
    namespace.run(open)?.map_err(failed)
}

fn failed(source: io::Error) -> Error {
    Error::System {
        what: "carry the benchmark's traffic",
        source,
    }
}
