//! What the sites' hosts do to each other: a bulk connection, small packets, full packets at a
//! rate, round trips.
#![expect(clippy::disallowed_methods, reason = "a benchmark keeps to the clock")]

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrStorage, getsockopt, recvmmsg, sendmmsg, setsockopt, sockopt,
};

use super::sites::{MTU, Sites};
use crate::Error;

/// IPv4's and UDP's headers.
const HEADERS: usize = 28;
/// What a packet has around it on the wire: WireGuard's header and tag, UDP, IPv4.
const AROUND: usize = 32 + HEADERS;
/// Packets that one call sends or receives.
const AT_ONCE: usize = 64;
/// Who receives looks so often whether it is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// One TCP connection as fast as it goes.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    /// What the receiving host got, Gbit/s.
    pub gbps: f64,
    /// CPU of the sending site's box for each packet of data, acknowledgements included, µs.
    pub send_us: f64,
    /// The same of the receiving site's.
    pub receive_us: f64,
}

/// Packets one by one.
#[derive(Clone, Copy, Debug)]
pub struct Packets {
    /// That came, a second.
    pub per_s: f64,
    /// CPU of both boxes for each of them, halved, µs.
    pub us: f64,
    /// Bytes on the wire in a tunnel, a second, between the first and the last of them.
    pub rate: f64,
    /// CPU of the sending site's box, in percent of one.
    pub near_cpu_pct: f64,
}

/// From one host to the other for `length` after `warm_up`.
pub fn bulk(sites: &Sites, warm_up: Duration, length: Duration) -> Result<Bulk, Error> {
    let failed = || Error::because("carry a connection between the sites");
    let address = sites.hosts[1];
    let listener = sites.spaces[1]
        .run(|| TcpListener::bind((address, 0)))?
        .map_err(failed())?;
    let to = listener.local_addr().map_err(failed())?;
    let mut source = sites.spaces[0]
        .run(|| TcpStream::connect(to))?
        .map_err(failed())?;
    let (mut sink, _) = listener.accept().map_err(failed())?;
    thread::scope(|scope| {
        let writer = source.try_clone().map_err(failed())?;
        scope.spawn(move || {
            let data = vec![0; 256 * 1024];
            // It ends with the connection.
            while source.write_all(&data).is_ok() {}
        });
        let measured = received(sites, &mut sink, warm_up, length).map_err(failed());
        let segment = getsockopt(&writer, sockopt::TcpMaxSeg).map_err(|why| failed()(why.into()));
        let _ = sink.shutdown(Shutdown::Both);
        let _ = writer.shutdown(Shutdown::Both);
        let (bytes, took, cpu) = measured?;
        let packets = bytes as f64 / f64::from(segment?);
        let us = |ns: u64| ns as f64 / 1e3 / packets;
        Ok(Bulk {
            gbps: bytes as f64 * 8.0 / took.as_nanos() as f64,
            send_us: us(cpu[0]),
            receive_us: us(cpu[1]),
        })
    })
}

/// Bytes that come, for how long, and the boxes' CPU time meanwhile.
fn received(
    sites: &Sites,
    sink: &mut TcpStream,
    warm_up: Duration,
    length: Duration,
) -> io::Result<(u64, Duration, [u64; 2])> {
    let mut buffer = vec![0; 256 * 1024];
    let mut read = || -> io::Result<u64> {
        match sink.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => Ok(bytes as u64),
        }
    };
    let start = Instant::now();
    while start.elapsed() < warm_up {
        read()?;
    }
    let (begun, before) = (Instant::now(), sites.cpu_ns());
    let mut bytes = 0;
    while begun.elapsed() < length {
        bytes += read()?;
    }
    Ok((bytes, begun.elapsed(), since(sites, before)))
}

fn since(sites: &Sites, before: [u64; 2]) -> [u64; 2] {
    let after = sites.cpu_ns();
    [0, 1].map(|site| after[site].saturating_sub(before[site]))
}

/// Packets of `bytes`, IP header included, `rate` a second from one host to the other, each by
/// itself, in bursts of `burst`.
pub fn packets(
    sites: &Sites,
    bytes: usize,
    rate: f64,
    burst: Duration,
    warm_up: Duration,
    length: Duration,
) -> Result<Packets, Error> {
    let failed = || Error::because("carry packets between the sites");
    let [near, far] = sites.udp_pair()?;
    far.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
    // A host that is kept waiting is not what is measured.
    setsockopt(&far, sockopt::RcvBufForce, &(32 << 20)).map_err(|why| failed()(why.into()))?;
    let (stop, payload) = (
        AtomicBool::new(false),
        vec![0; bytes.min(MTU as usize) - HEADERS],
    );
    thread::scope(|scope| {
        let sending = scope.spawn(|| offer(&near, &payload, rate, burst, &stop));
        let measured = count(&far, warm_up, length, || sites.cpu_ns());
        stop.store(true, Ordering::Relaxed);
        let sent = sending
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the sender panicked")));
        let counted = measured
            .and_then(|counted| sent.map(|()| counted))
            .map_err(failed())?;
        let (took, wall) = (counted.between.as_secs_f64(), counted.wall.as_secs_f64());
        let [near, far] = counted.cpu;
        let came = counted.packets as f64;
        Ok(Packets {
            per_s: came / took,
            us: (near + far) as f64 / 2e3 / came,
            rate: came * (bytes + AROUND) as f64 / took,
            near_cpu_pct: near as f64 / 1e7 / wall,
        })
    })
}

/// Offers packets, each millisecond or so what is due by then.
fn offer(
    socket: &UdpSocket,
    payload: &[u8],
    rate: f64,
    burst: Duration,
    stop: &AtomicBool,
) -> io::Result<()> {
    let _ = nix::sys::prctl::set_timerslack(1);
    let pieces = [IoSlice::new(payload)];
    let all: Vec<&[IoSlice<'_>]> = vec![&pieces; AT_ONCE];
    let nowhere: Vec<Option<SockaddrStorage>> = vec![None; AT_ONCE];
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(AT_ONCE, None);
    let begun = Instant::now();
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let mut due = ((begun.elapsed().as_secs_f64() * rate) as u64).saturating_sub(sent);
        // Who was kept waiting for long does not make up for it.
        let most = (rate * 0.01) as u64 + 1;
        sent += due.saturating_sub(most);
        due = due.min(most);
        while due > 0 {
            let now = (due as usize).min(AT_ONCE);
            let slices = &all[..now];
            let taken = sendmmsg(
                socket.as_raw_fd(),
                &mut headers,
                slices,
                &nowhere[..now],
                [],
                MsgFlags::empty(),
            )?
            .count();
            sent += taken as u64;
            due -= taken as u64;
        }
        thread::sleep(burst);
    }
    Ok(())
}

/// Packets that came.
struct Counted {
    /// But the first.
    packets: u64,
    /// From the first to the last.
    between: Duration,
    /// For which CPU time was counted.
    wall: Duration,
    cpu: [u64; 2],
}

fn count(
    socket: &UdpSocket,
    warm_up: Duration,
    length: Duration,
    cpu: impl Fn() -> [u64; 2],
) -> io::Result<Counted> {
    let mut buffers = vec![[0; 2_048]; AT_ONCE];
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(AT_ONCE, None);
    let mut receive = || -> io::Result<u64> {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
            .iter_mut()
            .map(|buffer| [IoSliceMut::new(buffer)])
            .collect();
        let flags = MsgFlags::MSG_WAITFORONE;
        let came = recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            slices.iter_mut(),
            flags,
            None,
        )?
        .count();
        Ok(came as u64)
    };
    let start = Instant::now();
    while start.elapsed() < warm_up {
        receive()?;
    }
    receive()?;
    let (begun, before) = (Instant::now(), cpu());
    let (mut packets, mut last) = (0, begun);
    while begun.elapsed() < length {
        packets += receive()?;
        last = Instant::now();
    }
    let after = cpu();
    Ok(Counted {
        packets,
        between: last - begun,
        wall: begun.elapsed(),
        cpu: [0, 1].map(|site| after[site].saturating_sub(before[site])),
    })
}

/// Round trips of small datagrams, one after another with pauses: the median, µs.
pub fn round_trip_us(sites: &Sites, samples: usize) -> Result<f64, Error> {
    // Long enough for both processors to sleep, and nothing that a timer is a multiple of.
    const GAP: Duration = Duration::from_micros(2_370);
    let failed = || Error::because("send a datagram there and back");
    let [near, far] = sites.udp_pair()?;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
    }
    let stop = AtomicBool::new(false);
    let mut took = thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if let Ok(bytes) = far.recv(&mut buffer) {
                    let _ = far.send(&buffer[..bytes]);
                }
            }
        });
        let mut took = Vec::with_capacity(samples);
        let mut buffer = [0; 64];
        for sample in 0..samples as u64 {
            thread::sleep(GAP);
            let begun = Instant::now();
            let sent = near.send(&sample.to_be_bytes());
            // One that comes too late is of an earlier sample, and no answer to this one.
            while sent.is_ok() {
                match near.recv(&mut buffer) {
                    Ok(_) if buffer[..8] == sample.to_be_bytes() => {
                        took.push(begun.elapsed().as_nanos() as f64 / 1e3);
                        break;
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        took
    });
    if took.len() < samples / 2 {
        return Err(Error::failed(format!(
            "of {samples} datagrams {} came back",
            took.len()
        )));
    }
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}
