//! Bulk traffic: N TCP connections that always have data to send, each with its own congestion
//! control, and a sampler that reads the state of all of them at a fixed interval.
//!
//! A socket belongs to the network namespace of the thread that opens it, and any thread may use it
//! afterwards. Therefore [`listen`], [`connect`] and [`Diag::open`] are called inside a namespace,
//! and [`transfer`] anywhere.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ccplane_lab::result::Sample;
use ccplane_units::{Bytes, Duration};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, getsockopt,
    listen as nix_listen, setsockopt, socket, sockopt,
};
use nix::time::{ClockId, clock_gettime};

use crate::diag::Diag;

/// Bytes per read or write, as in iperf3: large enough to make the cost of system calls small.
const BLOCK_BYTES: usize = 128 << 10;

/// Timeout of a blocked read or write, after which the thread checks if the run has ended.
const SOCKET_WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(100);

/// Timeout of a connection attempt: allows several retransmissions of the SYN.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Result of a transfer.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Time of the first write, `CLOCK_MONOTONIC` nanoseconds.
    pub started_ns: u64,
    /// Time during which bytes were counted.
    pub elapsed_ns: u64,
    /// Addresses of the senders.
    pub senders: Vec<SocketAddr>,
    /// Samples of each flow in time order: the first at 0, the last at `elapsed_ns`.
    pub flows: Vec<Vec<Sample>>,
}

/// Returns the socket buffer size for a path that holds at most `in_flight` bytes (bandwidth-delay
/// product and queue): four times that, from 4 MiB to 1 GiB. The kernel charges about twice the
/// payload, and the sender stores both unacknowledged and unsent data. A smaller buffer would limit
/// flows by the receiver's window instead of the congestion control; a larger one only costs
/// memory. Setting it on the socket disables the kernel's auto-tuning, which would affect
/// comparisons.
pub fn buffer_for(in_flight: Bytes) -> usize {
    usize::try_from(in_flight.get().saturating_mul(4))
        .unwrap_or(usize::MAX)
        .clamp(4 << 20, 1 << 30)
}

/// Opens a listener on a free port of `ip`, in the calling thread's network namespace.
pub fn listen(ip: IpAddr, buffer: usize) -> io::Result<TcpListener> {
    let fd = tcp_socket(ip)?;
    // Before `listen`: the window scale is fixed by the handshake.
    if setsockopt(&fd, sockopt::RcvBufForce, &buffer).is_err() {
        setsockopt(&fd, sockopt::RcvBuf, &buffer)?;
    }
    bind(
        std::os::fd::AsRawFd::as_raw_fd(&fd),
        &SockaddrStorage::from(SocketAddr::new(ip, 0)),
    )?;
    nix_listen(&fd, Backlog::new(1024)?)?;
    Ok(TcpListener::from(fd))
}

/// Sets the congestion control of connections that `listener` accepts from now on. One that needs
/// ECN makes them negotiate it and echo each mark (RFC 8257, section 3.2).
pub fn listen_under(listener: &TcpListener, congestion: &str) -> io::Result<()> {
    Ok(setsockopt(
        listener,
        sockopt::TcpCongestion,
        &OsString::from(congestion),
    )?)
}

/// Connects to `to` with this congestion control, in the calling thread's network namespace.
/// Returns `ErrorKind::NotFound` if the kernel does not have the congestion control.
pub fn connect(to: SocketAddr, congestion: &str, buffer: usize) -> io::Result<TcpStream> {
    let fd = tcp_socket(to.ip())?;
    setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion))?;
    if setsockopt(&fd, sockopt::SndBufForce, &buffer).is_err() {
        setsockopt(&fd, sockopt::SndBuf, &buffer)?;
    }
    let stream = TcpStream::from(fd);
    // The send timeout bounds `connect` too.
    stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
    nix::sys::socket::connect(
        std::os::fd::AsRawFd::as_raw_fd(&stream),
        &SockaddrStorage::from(to),
    )?;
    let in_force = getsockopt(&stream, sockopt::TcpCongestion)?;
    let in_force = in_force.to_string_lossy();
    if in_force.trim_end_matches('\0') != congestion {
        return Err(io::Error::other(format!(
            "congestion control {congestion} was requested, but the socket has {in_force}"
        )));
    }
    Ok(stream)
}

/// Returns the congestion controls that the kernel has loaded.
pub fn available() -> Vec<String> {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map(|names| names.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Returns true if the kernel has, or can load, this congestion control.
pub fn exists(congestion: &str) -> bool {
    tcp_socket(IpAddr::from([127, 0, 0, 1]))
        .and_then(|fd| {
            Ok(setsockopt(
                &fd,
                sockopt::TcpCongestion,
                &OsString::from(congestion),
            )?)
        })
        .is_ok()
}

fn tcp_socket(ip: IpAddr) -> io::Result<OwnedFd> {
    let family = if ip.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    Ok(socket(
        family,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Tcp,
    )?)
}

/// Accepts the peers of `senders` and returns them in the same order.
pub fn accept(listener: &TcpListener, senders: &[TcpStream]) -> io::Result<Vec<TcpStream>> {
    // The connections are established, so they are in the accept queue or have failed: the timeout
    // is rarely used.
    setsockopt(
        listener,
        sockopt::ReceiveTimeout,
        &nix::sys::time::TimeVal::new(5, 0),
    )?;
    let mut accepted: Vec<(SocketAddr, TcpStream)> = Vec::with_capacity(senders.len());
    for _ in senders {
        let (stream, peer) = listener.accept()?;
        accepted.push((peer, stream));
    }
    senders
        .iter()
        .map(|sender| {
            let local = sender.local_addr()?;
            let found = accepted.iter().position(|(peer, _)| *peer == local);
            let at = found
                .ok_or_else(|| io::Error::other(format!("unexpected connection to {local}")))?;
            Ok(accepted.swap_remove(at).1)
        })
        .collect()
}

/// Parameters of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct TrafficPlan {
    /// Duration of sending.
    pub duration: Duration,
    /// Sampling interval of each socket.
    pub sample_every: Duration,
}

/// Sends on every connection as fast as its congestion control allows, samples all of them, and
/// resets them at the end: queued data does not count for any result. `watch` receives all samples
/// each time one was taken, also the last one, and returns false to end the transfer.
pub fn transfer(
    senders: Vec<TcpStream>,
    receivers: Vec<TcpStream>,
    mut diag: Diag,
    plan: &TrafficPlan,
    mut watch: impl FnMut(u64, &[Vec<Sample>]) -> bool,
) -> io::Result<Transfer> {
    let addresses: Vec<(SocketAddr, SocketAddr)> = senders
        .iter()
        .map(|s| Ok((s.local_addr()?, s.peer_addr()?)))
        .collect::<io::Result<_>>()?;
    let received: Vec<AtomicU64> = receivers.iter().map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let mut flows = vec![Vec::new(); senders.len()];

    let mut look = |flows: &mut [Vec<Sample>], at_ns: u64| -> io::Result<()> {
        // All receive counters are read first: querying the kernel about a thousand sockets takes a
        // second on busy CPUs.
        for (samples, count) in flows.iter_mut().zip(&received) {
            // A broken connection keeps its last state; its goodput shows the failure.
            let tcp = samples.last().map(|s: &Sample| s.tcp).unwrap_or_default();
            let received = count.load(Ordering::Relaxed);
            samples.push(Sample {
                at_ns,
                received,
                tcp,
            });
        }
        for (samples, (local, peer)) in flows.iter_mut().zip(&addresses) {
            if let (Some(sample), Some(tcp)) = (samples.last_mut(), diag.query(*local, *peer)?) {
                sample.tcp = tcp;
            }
        }
        Ok(())
    };
    // Held until all threads are running: if a hundred are already sending, the rest take seconds
    // to start.
    let gate = RwLock::new(());
    thread::scope(|scope| {
        let (stop, flows, gate) = (&stop, &mut flows, &gate);
        let run = || -> io::Result<(u64, u64)> {
            let closed = gate.write();
            for (stream, count) in receivers.into_iter().zip(&received) {
                let body = move || drain(stream, count, stop);
                thread::Builder::new()
                    .name("lab-receive".into())
                    .spawn_scoped(scope, body)?;
            }
            for stream in senders {
                let body = move || {
                    drop(gate.read());
                    fill(stream, stop);
                };
                thread::Builder::new()
                    .name("lab-send".into())
                    .spawn_scoped(scope, body)?;
            }
            let started = monotonic_ns();
            drop(closed);
            let mut next = started;
            loop {
                let now = monotonic_ns();
                look(flows, now - started)?;
                let goes_on = watch(now - started, flows);
                if !goes_on || now - started >= plan.duration.as_nanos() {
                    return Ok((started, now - started));
                }
                // Keeps to the sampling grid even after a late sample; missed ones are skipped.
                next = (next + plan.sample_every.as_nanos().max(1_000_000))
                    .max(now)
                    .min(started + plan.duration.as_nanos());
                wait_until(next);
            }
        };
        let outcome = run();
        stop.store(true, Ordering::Relaxed);
        outcome
    })
    .map(|(started_ns, elapsed_ns)| Transfer {
        started_ns,
        elapsed_ns,
        senders: addresses.iter().map(|(local, _)| *local).collect(),
        flows,
    })
}

fn fill(mut stream: TcpStream, stop: &AtomicBool) {
    let block = vec![0x5a; BLOCK_BYTES];
    if stream.set_write_timeout(Some(SOCKET_WAIT_MAX)).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&block) {
            Ok(_) => {}
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => break, // broken: the flow's samples no longer change
        }
    }
    reset_on_close(&stream);
}

/// Makes closing the socket reset the connection, which discards queued data.
pub fn reset_on_close(stream: &TcpStream) {
    let reset = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // Fails only if the connection is already gone.
    let _ = setsockopt(stream, sockopt::Linger, &reset);
}

/// Reads and counts bytes until `stop` is set or the stream ends.
pub fn drain(mut stream: TcpStream, count: &AtomicU64, stop: &AtomicBool) {
    let mut block = vec![0; BLOCK_BYTES];
    if stream.set_read_timeout(Some(SOCKET_WAIT_MAX)).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(n) => {
                count.fetch_add(n as u64, Ordering::Relaxed);
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => break,
        }
    }
}

/// Returns `CLOCK_MONOTONIC` in nanoseconds, the clock of the emulator's log.
#[expect(clippy::disallowed_methods, reason = "clock of real traffic")]
pub fn monotonic_ns() -> u64 {
    // Cannot fail for this clock; 0 would only appear as an absurd duration.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|t| t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_nsec().unsigned_abs())
        .unwrap_or(0)
}

/// Sleeps until [`monotonic_ns`] reaches `ns`.
#[expect(
    clippy::disallowed_methods,
    reason = "real traffic is measured in real time"
)]
pub fn wait_until(ns: u64) {
    thread::sleep(std::time::Duration::from_nanos(
        ns.saturating_sub(monotonic_ns()),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_flows_over_loopback_are_counted_and_sampled() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let listener = listen(here, 4 << 20).unwrap();
        let to = listener.local_addr().unwrap();
        let senders: Vec<_> = (0..2)
            .map(|_| connect(to, "reno", 4 << 20).unwrap())
            .collect();
        let receivers = accept(&listener, &senders).unwrap();
        let mut seen = 0;
        let t = transfer(
            senders,
            receivers,
            Diag::open().unwrap(),
            &TrafficPlan {
                duration: Duration::from_millis(300),
                sample_every: Duration::from_millis(20),
            },
            |_, _| {
                seen += 1;
                true
            },
        )
        .unwrap();
        assert!(t.elapsed_ns >= 300_000_000);
        assert_eq!(t.flows.len(), 2);
        for flow in &t.flows {
            assert!(flow.len() >= 4 && flow.len() <= 17, "{} looks", flow.len());
            let last = flow.last().unwrap();
            assert!(
                last.received > 1_000_000,
                "loopback carries more than {} bytes in 0.3 s",
                last.received
            );
            assert!(last.tcp.bytes_acked > 0 && last.tcp.cwnd >= 2);
            assert!(
                flow.windows(2)
                    .all(|w| w[0].at_ns < w[1].at_ns && w[0].received <= w[1].received)
            );
        }
        assert!(seen >= 3);
    }

    #[test]
    fn an_unknown_congestion_control_is_not_found() {
        let listener = listen(IpAddr::from([127, 0, 0, 1]), 4 << 20).unwrap();
        let error = connect(listener.local_addr().unwrap(), "no_such_cc", 4 << 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!exists("no_such_cc") && exists("reno"));
        assert!(available().iter().any(|name| name == "reno"));
    }
}
