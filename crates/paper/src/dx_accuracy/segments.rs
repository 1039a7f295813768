//! Slides 19 and 20 on real packets: a TCP connection of this kernel fills the emulated link and
//! measures with the kernel's timestamps of its own packets, another socket sends a full packet
//! every 25 ms, and the emulator's log is the truth.
//!
//! The application writes one segment per packet time, so the queue is empty between the packets of
//! the other sender, as with a host whose own link has the bottleneck's rate. At 1 Gbit/s this is
//! not possible: neither a thread nor the emulator is accurate to the 12 µs of a packet there.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_emu::PacketRecord;
use ccplane_lab::Error;
use ccplane_testbed::BackendError;
use ccplane_testbed::ends::{TrafficEnds, inside};
use ccplane_testbed::longest_stall;
use ccplane_testbed::machine::MachineWatch;
use ccplane_testbed::traffic::{monotonic_ns, wait_until};
use ccplane_units::Duration;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, getsockopt, recvmsg, setsockopt, sockopt,
};

use super::real::{
    DRAIN_NS, ENABLE_NS, PAYLOAD_BYTES, SCM_TSTAMP_SND, joined, nanos, stamp_departures,
    start_emulator, write_blocks,
};
use super::rows::{SATURATED, SwitchSample};
use crate::program::disturbances_cell;

/// A packet takes 120 µs, so the connection fills 99 % of the link. The rest drains the queue
/// before the next packet of the other sender.
const WRITE_INTERVAL_NS: u64 = 121_200;
const PROBE_INTERVAL_NS: u64 = 25_000_000;
/// Slow start is over, and its queue has drained.
const SETTLE_NS: u64 = 500_000_000;
const READ_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(20);

/// Packets of both senders.
struct Traffic {
    /// Ports of the connection's receiver and of the other sender's packets.
    ports: [u16; 2],
    /// Payload of a segment.
    segment_bytes: usize,
    /// Timestamps of each segment in the driver and at the receiver, ns; 0 if unknown.
    departures: Vec<i64>,
    arrivals: Vec<i64>,
}

/// Returns the packets of the connection, whose delays include constants, and disturbances.
pub(super) fn samples(length: Duration) -> Result<(Vec<SwitchSample>, Option<String>), Error> {
    let emulator = start_emulator()?;
    let watch = MachineWatch::start();
    let traffic = traffic(&TrafficEnds::of(&emulator), length)?;
    let mut disturbances = watch.finish().disturbances(longest_stall(2.0));
    let report = emulator.finish();
    let report = report.map_err(|error| BackendError::from_emulator(error, false))?;
    let [mut segments, mut probes] = traffic.ports.map(|port| {
        let full = |record: &&PacketRecord| {
            record.destination_port == port && usize::from(record.bytes) > traffic.segment_bytes
        };
        report.forward.records().filter(full).collect::<Vec<_>>()
    });
    segments.sort_by_key(|record| record.arrived);
    probes.sort_by_key(|record| record.arrived);
    if !report.audit.passed {
        disturbances.push("the emulator was late or missed a packet".to_owned());
    }
    // Segments are neither lost nor reordered before the queue: they have the log's order.
    let complete = segments.len() == traffic.departures.len();
    if !complete {
        let (log, sent) = (segments.len(), traffic.departures.len());
        disturbances.push(format!(
            "the emulator's log has {log} segments of {sent} that were written, so none was \
             compared"
        ));
    }
    let stamps = traffic.departures.iter().zip(&traffic.arrivals);
    let sample = |(record, (sent, arrived)): (&&PacketRecord, (&i64, &i64))| SwitchSample {
        run: SATURATED,
        at: record.arrived.as_nanos() as i64,
        probes: probes.partition_point(|probe| probe.arrived <= record.arrived) as u64,
        truth: record.sojourn().map_or(0, |time| time.as_nanos() as i64),
        exact: None,
        hardware: None,
        software: None,
        kernel: (complete && *sent != 0 && *arrived != 0).then(|| arrived - sent),
    };
    let samples = segments.iter().zip(stamps).map(sample).collect();
    Ok((samples, disturbances_cell(&disturbances)))
}

/// Sends the packets of both senders for `length` after the start.
fn traffic(ends: &TrafficEnds, length: Duration) -> Result<Traffic, Error> {
    const ACTION: &str = "measure the packets of a connection between two namespaces";
    let to = ends.address;
    let (sink, listener) = inside(&ends.receiver, ACTION, || {
        Ok((UdpSocket::bind((to, 0))?, TcpListener::bind((to, 0))?))
    })?;
    let (prober, sender) = inside(&ends.sender, ACTION, || {
        let prober = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        Ok((prober, TcpStream::connect(listener.local_addr()?)?))
    })?;
    let run = || -> io::Result<Traffic> {
        let (receiver, _) = listener.accept()?;
        let (segment_bytes, probe_address) = (prepare(&sender, &receiver)?, sink.local_addr()?);
        wait_until(monotonic_ns() + ENABLE_NS);
        let stop = &AtomicBool::new(false);
        let (departures, arrivals) = thread::scope(|scope| {
            let writer = scope.spawn(|| Ok(write(&sender, segment_bytes, WRITE_INTERVAL_NS, stop)));
            let reader = scope.spawn(|| read(&receiver, segment_bytes, stop));
            let sent = send_probes(length, || {
                prober.send_to(&[0; PAYLOAD_BYTES], probe_address)
            });
            stop.store(true, Ordering::Relaxed);
            // The last segments are still in the queue.
            wait_until(monotonic_ns() + DRAIN_NS);
            let _ = sender.shutdown(Shutdown::Both);
            let (departures, arrivals) = (joined(writer), joined(reader));
            sent?;
            Ok::<_, io::Error>((departures?, arrivals?))
        })?;
        Ok(Traffic {
            ports: [listener.local_addr()?.port(), probe_address.port()],
            segment_bytes,
            departures,
            arrivals,
        })
    };
    run().map_err(Error::traffic(ACTION, ""))
}

/// Requests the timestamps of both ends. Returns the payload of a segment.
fn prepare(sender: &TcpStream, receiver: &TcpStream) -> io::Result<usize> {
    sender.set_nodelay(true)?;
    stamp_departures(sender, TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE)?;
    receiver.set_read_timeout(Some(READ_TIMEOUT))?;
    let arrivals = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    setsockopt(receiver, sockopt::Timestamping, &arrivals)?;
    Ok(getsockopt(sender, sockopt::TcpMaxSeg)? as usize)
}

/// Sends the packets of the other sender.
fn send_probes(length: Duration, send: impl Fn() -> io::Result<usize>) -> io::Result<()> {
    let mut next = monotonic_ns() + SETTLE_NS;
    let end = next + length.as_nanos();
    while next < end {
        wait_until(next);
        send()?;
        next += PROBE_INTERVAL_NS;
    }
    Ok(())
}

/// Writes a segment per interval. Returns the time at which the driver sent each, 0 if unknown.
fn write(
    stream: &TcpStream,
    segment_bytes: usize,
    interval_ns: u64,
    stop: &AtomicBool,
) -> Vec<i64> {
    let (segment, mut departures) = (vec![0; segment_bytes], Vec::new());
    let take = |written, kind, last_byte: u32, ns| {
        departures.resize(written, 0);
        // Segments of a burst share the timestamp of the last one. A retransmission keeps its
        // first time.
        let first = departures.get_mut(last_byte as usize / segment_bytes);
        if let Some(time) = first.filter(|time| kind == SCM_TSTAMP_SND && **time == 0) {
            *time = ns;
        }
    };
    let written = write_blocks(stream, &segment, interval_ns, stop, take);
    departures.resize(written, 0);
    departures
}

/// Reads segments. Returns the arrival of each, 0 if unknown: several that are read together have
/// the timestamp of the last one.
fn read(stream: &TcpStream, segment_bytes: usize, stop: &AtomicBool) -> io::Result<Vec<i64>> {
    let (mut buffer, mut control) = (vec![0; 64 << 10], vec![0; 512]);
    let (mut arrivals, mut position) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let (socket, flags) = (stream.as_raw_fd(), MsgFlags::empty());
        let received = match recvmsg::<()>(socket, &mut slices, Some(&mut control), flags) {
            Ok(received) => received,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        if received.bytes == 0 {
            break;
        }
        let stamp = received
            .cmsgs()
            .into_iter()
            .flatten()
            .find_map(|message| match message {
                ControlMessageOwned::ScmTimestampsns(stamps) => Some(nanos(stamps.system)),
                _ => None,
            });
        position += received.bytes;
        arrivals.resize(position / segment_bytes, 0);
        let whole = position % segment_bytes == 0;
        if let (true, Some(last), Some(ns)) = (whole, arrivals.last_mut(), stamp) {
            *last = ns;
        }
    }
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT_BYTES: usize = 1_448;

    /// Single segments over loopback have a departure and an arrival, in this order.
    #[test]
    fn segments_have_the_timestamps_of_both_ends() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (receiver, _) = listener.accept().expect("accepted");
        prepare(&sender, &receiver).expect("timestamps");
        wait_until(monotonic_ns() + ENABLE_NS);
        let stop = &AtomicBool::new(false);
        let (departures, arrivals) = thread::scope(|scope| {
            let writer = scope.spawn(|| Ok(write(&sender, SEGMENT_BYTES, 1_000_000, stop)));
            let reader = scope.spawn(|| read(&receiver, SEGMENT_BYTES, stop));
            wait_until(monotonic_ns() + 200_000_000);
            stop.store(true, Ordering::Relaxed);
            let _ = sender.shutdown(Shutdown::Both);
            (
                joined(writer).expect("written"),
                joined(reader).expect("read"),
            )
        });
        let pairs = departures.iter().zip(&arrivals);
        let known: Vec<i64> = pairs
            .filter(|(sent, arrived)| **sent != 0 && **arrived != 0)
            .map(|(sent, arrived)| arrived - sent)
            .collect();
        assert!(known.len() >= 10, "{departures:?} {arrivals:?}");
        for delay in known {
            // A busy machine delays the softirq of loopback, but not by a second.
            assert!((0..1_000_000_000).contains(&delay), "{delay} ns");
        }
    }
}
