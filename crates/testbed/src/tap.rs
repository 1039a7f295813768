//! Record of the packets that cross a link in the kernel, from two packet taps with kernel
//! timestamps: one where packets arrive, one where they leave the queue.
//!
//! The timestamps are taken in the kernel, so a thread that waits for a processor does not move
//! them. Packets of the two taps are matched by IP identification, source port and sequence number.
//! The queue is first-in, first-out, but processors that enqueue at the same time may pass the first
//! tap in another order.

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use ccplane_host::{Namespace, TapDirection, packet_tap};
use ccplane_lab::Error;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::error::BackendError;
use crate::traffic::monotonic_ns;

/// Socket buffer of a tap, bytes: a third of a second of full-sized packets at 1 Gbit/s.
const TAP_BUFFER_BYTES: usize = 64 << 20;
/// Bytes read of each packet: the headers of Ethernet, IPv4 with options, and the ports and
/// sequence number of TCP.
const HEADER_BYTES: usize = 14 + 60 + 8;
const ETHERNET_HEADER_BYTES: usize = 14;
/// Packets that a tap records: 192 MB, and a minute and a half of full-sized packets at 1 Gbit/s.
/// With more a long run takes the machine's memory; with fewer its record is incomplete.
const RECORD_PACKETS_MAX: usize = 8_000_000;
/// Packets per system call.
const BATCH_PACKETS: usize = 64;
/// Longest time before the end of the run is noticed.
const STOP_LATENCY_MS: u8 = 50;
/// Arrivals searched for a departure. More drops in a row are impossible: a packet departs while
/// that many arrive, even if each of them is of minimum size.
const SEARCH_PACKETS_MAX: usize = 65_536;

/// A running record of a link.
pub(crate) struct LinkTap {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<[TapRecord; 2]>>>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, ns.
    clock_offset_ns: u64,
}

/// A packet at a tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TapPacket {
    /// `CLOCK_REALTIME`, ns.
    at_ns: u64,
    key: u64,
    /// Length of the IP packet.
    bytes: u32,
}

/// Packets at a tap, in the order of their arrival there.
#[derive(Debug, Default)]
struct TapRecord {
    packets: Vec<TapPacket>,
    /// Packets without a timestamp, and those beyond [`RECORD_PACKETS_MAX`].
    lost: u64,
}

impl TapRecord {
    fn add(&mut self, packet: Option<TapPacket>) {
        match packet {
            Some(packet) if self.packets.len() < RECORD_PACKETS_MAX => self.packets.push(packet),
            _ => self.lost += 1,
        }
    }
}

/// A packet that crossed the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkPacket {
    /// Arrival at the link, `CLOCK_MONOTONIC` ns.
    pub arrived_ns: u64,
    /// Time until departure, ns.
    pub sojourn_ns: u64,
    /// Length of the IP packet.
    pub bytes: u32,
    pub source_port: u16,
}

/// Record of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct TapReport {
    /// Packets in the order of their departure.
    pub packets: Vec<LinkPacket>,
    /// Packets that arrived before one that departed, and did not depart.
    pub drops: u64,
    /// Departures without an arrival, and packets that a tap saw without recording them.
    pub unmatched: u64,
}

impl LinkTap {
    /// Starts to record the packets that arrive at the first device and leave through the second.
    pub fn start(bridge: &Namespace, devices: [&str; 2]) -> Result<LinkTap, Error> {
        let [arrivals, departures] = devices;
        let opened = bridge.run(|| {
            Ok([
                packet_tap(arrivals, TapDirection::Received)?,
                packet_tap(departures, TapDirection::Sent)?,
            ])
        });
        let host = |error| BackendError::from_host(error, false);
        let taps = opened.map_err(host)?.map_err(host)?;
        let fail = || Error::traffic("observe the packets of the link", "");
        for tap in &taps {
            setsockopt(tap, sockopt::RcvBufForce, &TAP_BUFFER_BYTES)
                .and_then(|()| setsockopt(tap, sockopt::ReceiveTimestampns, &true))
                .map_err(|error| fail()(error.into()))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("lab-tap".into()).spawn({
            let stop = stop.clone();
            move || read_all(&taps, &stop)
        });
        Ok(LinkTap {
            stop,
            thread: Some(thread.map_err(fail())?),
            clock_offset_ns: realtime_ns().saturating_sub(monotonic_ns()),
        })
    }

    /// Stops and returns the record. The senders have stopped before.
    pub fn finish(mut self) -> Result<TapReport, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let fail = || Error::traffic("observe the packets of the link", "");
        let ended = self.thread.take().map(JoinHandle::join);
        let taps = match ended {
            Some(Ok(taps)) => taps.map_err(fail())?,
            _ => return Err(fail()(io::Error::other("the thread of the taps panicked"))),
        };
        Ok(matched(&taps, self.clock_offset_ns))
    }
}

impl Drop for LinkTap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads both taps until `stop` is set and nothing is left.
fn read_all(taps: &[OwnedFd; 2], stop: &AtomicBool) -> io::Result<[TapRecord; 2]> {
    // Without the privilege it runs at normal priority; the buffers hold some time.
    let _ = ccplane_host::raise_priority();
    let mut records = [TapRecord::default(), TapRecord::default()];
    let mut buffers = vec![[0; HEADER_BYTES]; BATCH_PACKETS];
    let space = nix::cmsg_space!(TimeSpec);
    let mut headers = MultiHeaders::preallocate(BATCH_PACKETS, Some(space));
    loop {
        // Read before the taps: what arrived before the stop is not missed.
        let last = stop.load(Ordering::Relaxed);
        let mut found = false;
        for (tap, record) in taps.iter().zip(&mut records) {
            while read_batch(tap, &mut buffers, &mut headers, record)? {
                found = true;
            }
        }
        if last {
            return Ok(records);
        }
        if !found {
            let mut waiting = taps
                .each_ref()
                .map(|tap| PollFd::new(tap.as_fd(), PollFlags::POLLIN));
            match poll(&mut waiting, PollTimeout::from(STOP_LATENCY_MS)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Reads up to a batch. Returns false if there was none.
fn read_batch(
    tap: &OwnedFd,
    buffers: &mut [[u8; HEADER_BYTES]],
    headers: &mut MultiHeaders<SockaddrStorage>,
    record: &mut TapRecord,
) -> io::Result<bool> {
    // Timestamp, if there is one, and length of each packet.
    let mut seen = [(None, 0); BATCH_PACKETS];
    let mut count = 0;
    {
        let mut free = buffers.iter_mut();
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH_PACKETS] =
            std::array::from_fn(|_| [IoSliceMut::new(free.next().map_or(&mut [], |one| one))]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let received = match recvmmsg(tap.as_raw_fd(), headers, &mut slices, flags, None) {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            // The interface is gone with its namespace.
            Err(Errno::ENETDOWN) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        for (message, seen) in received.zip(&mut seen) {
            let stamp = message.cmsgs().ok().and_then(|mut controls| {
                controls.find_map(|control| match control {
                    ControlMessageOwned::ScmTimestampns(at) => Some(nanoseconds(at)),
                    _ => None,
                })
            });
            *seen = (stamp, message.bytes);
            count += 1;
        }
    }
    for ((stamp, bytes), head) in seen[..count].iter().zip(buffers.iter()) {
        let head = &head[..(*bytes).min(HEADER_BYTES)];
        if let Some(packet) = parse(head, stamp.unwrap_or(0)) {
            record.add(stamp.map(|_| packet));
        }
    }
    Ok(count > 0)
}

/// Parses the headers of a frame; `None` unless it is IPv4 and not a later fragment.
fn parse(frame: &[u8], at_ns: u64) -> Option<TapPacket> {
    let (ethernet, ip) = frame.split_at_checked(ETHERNET_HEADER_BYTES)?;
    if ethernet[12..] != [0x08, 0x00] || ip.len() < 20 {
        return None;
    }
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte))
    };
    let rest = ip.get(4 * usize::from(ip[0] & 0xf)..)?;
    let (port, sequence) = (rest.get(..2)?, rest.get(4..8)?);
    Some(TapPacket {
        at_ns,
        key: number(&ip[4..6]) << 48 | number(port) << 32 | number(sequence),
        bytes: number(&ip[2..4]) as u32,
    })
}

/// Matches the packets of the two taps.
fn matched([arrivals, departures]: &[TapRecord; 2], clock_offset_ns: u64) -> TapReport {
    let mut report = TapReport {
        unmatched: arrivals.lost + departures.lost,
        ..TapReport::default()
    };
    let arrivals = &arrivals.packets;
    let mut overtaken: HashMap<u64, TapPacket> = HashMap::new();
    let mut next = 0;
    for departure in &departures.packets {
        let waiting = arrivals.get(next..).unwrap_or_default();
        let is_same = |arrival: &TapPacket| arrival.key == departure.key;
        let arrival = match overtaken.remove(&departure.key) {
            Some(arrival) => arrival,
            None => match waiting.iter().take(SEARCH_PACKETS_MAX).position(is_same) {
                Some(before) => {
                    overtaken.extend(waiting[..before].iter().map(|one| (one.key, *one)));
                    next += before + 1;
                    waiting[before]
                }
                None => {
                    report.unmatched += 1;
                    continue;
                }
            },
        };
        report.packets.push(LinkPacket {
            arrived_ns: arrival.at_ns.saturating_sub(clock_offset_ns),
            sojourn_ns: departure.at_ns.saturating_sub(arrival.at_ns),
            bytes: departure.bytes,
            source_port: (departure.key >> 32) as u16,
        });
    }
    report.drops = overtaken.len() as u64;
    report
}

#[expect(
    clippy::disallowed_methods,
    reason = "clock of the kernel's timestamps"
)]
fn realtime_ns() -> u64 {
    // Cannot fail for this clock.
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, nanoseconds)
}

fn nanoseconds(at: TimeSpec) -> u64 {
    at.tv_sec().unsigned_abs() * 1_000_000_000 + at.tv_nsec().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: u8, sequence: u8) -> Vec<u8> {
        let mut frame = vec![0; 14];
        frame[12] = 8;
        frame.extend([
            0x45, 0, 5, 220, 0, id, 0, 0, 64, 6, 0, 0, 10, 78, 0, 1, 10, 79, 0, 1,
        ]);
        frame.extend([0x9c, 0x40, 0, 80, 0, 0, 0, sequence]);
        frame
    }

    #[test]
    fn packets_are_matched_and_those_that_did_not_depart_were_dropped() {
        let record = |seen: &[(u64, u8)]| {
            let mut record = TapRecord::default();
            for (ns, id) in seen {
                record.add(parse(&frame(*id, *id), *ns));
            }
            record
        };
        let arrivals = record(&[(1_000, 1), (1_010, 2), (1_015, 5), (1_020, 3), (1_030, 4)]);
        // The second is dropped, the ninth has no arrival, and the third and the fifth change places.
        let mut departures = record(&[(1_100, 1), (1_150, 9), (1_200, 3), (1_250, 5)]);
        // A packet without a timestamp.
        departures.add(None);
        let report = matched(&[arrivals, departures], 500);
        assert_eq!((report.drops, report.unmatched), (1, 2));
        let packet = |arrived_ns, sojourn_ns| LinkPacket {
            arrived_ns,
            sojourn_ns,
            bytes: 1_500,
            source_port: 40_000,
        };
        let expected = [packet(500, 100), packet(520, 180), packet(515, 235)];
        assert_eq!(report.packets, expected);
    }

    #[test]
    fn other_frames_are_ignored() {
        for length in 0..42 {
            assert_eq!(parse(&frame(1, 1)[..length], 0), None, "{length}");
        }
        let mut arp = frame(1, 1);
        arp[13] = 6;
        assert_eq!(parse(&arp, 0), None);
    }
}
