//! Test network between sites: forwards packets between TUN devices by the last byte of the
//! destination address.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ccplane_gateway::too_big;
use ccplane_host::{FRAME_BYTES_MAX, Frame, Tun};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Longest queue of a rate-limited network.
const QUEUE: Duration = Duration::from_millis(100);
/// UDP port of every gateway.
const PORT: u16 = 51_820;
const V4_HEAD: usize = 20;

/// Properties of the network, adjustable while it runs.
#[derive(Debug)]
pub struct NetworkPath {
    /// Rate to each site, bytes per second; 0 for no limit.
    pub rate: AtomicU64,
    /// Path MTU, bytes. Longer packets are dropped with an ICMP message.
    pub mtu: AtomicU32,
    /// True to drop longer packets without an ICMP message.
    pub silent: AtomicBool,
    /// Source port that a NAT assigns to datagrams of the first site (IPv4); 0 disables the NAT.
    pub port: AtomicU16,
    /// True to drop all packets to the first site.
    pub deaf: AtomicBool,
    /// Packets dropped because they exceeded the MTU or were sent to a port of an old NAT mapping.
    pub refused: AtomicU64,
    /// Highest DSCP seen in an outer IPv4 header.
    pub dscp: AtomicU8,
}

/// The network; runs until it is dropped.
pub struct Network {
    pub way: Arc<NetworkPath>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Packets in flight to a site.
struct Line {
    busy: Instant,
    packets: VecDeque<(Instant, Vec<u8>)>,
}

impl Network {
    pub fn between(ends: Vec<Tun>) -> Network {
        let way = Arc::new(NetworkPath {
            rate: AtomicU64::new(0),
            mtu: AtomicU32::new(u32::MAX),
            silent: AtomicBool::new(false),
            port: AtomicU16::new(0),
            deaf: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            dscp: AtomicU8::new(0),
        });
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, stopped) = (Arc::clone(&way), Arc::clone(&stop));
        Network {
            way,
            stop,
            thread: Some(thread::spawn(move || carry(&ends, &seen, &stopped))),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[expect(clippy::disallowed_methods, reason = "a network runs in real time")]
fn carry(ends: &[Tun], way: &NetworkPath, stopped: &AtomicBool) {
    let mut frame = vec![0; FRAME_BYTES_MAX];
    let line = |_: &Tun| Line {
        busy: Instant::now(),
        packets: VecDeque::new(),
    };
    let mut lines: Vec<Line> = ends.iter().map(line).collect();
    while !stopped.load(Relaxed) {
        let next = lines
            .iter()
            .filter_map(|line| Some(line.packets.front()?.0))
            .min();
        let patience = next.map_or(Duration::from_millis(50), |at| {
            at.saturating_duration_since(Instant::now())
        });
        let mut readable: Vec<PollFd<'_>> = ends
            .iter()
            .map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN))
            .collect();
        let _ = poll(
            &mut readable,
            PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO),
        );
        for (line, end) in lines.iter_mut().zip(ends) {
            while line
                .packets
                .front()
                .is_some_and(|(at, _)| *at <= Instant::now())
            {
                let _ = line
                    .packets
                    .pop_front()
                    .map(|(_, packet)| end.write([&packet, &[]]));
            }
        }
        for (from, end) in ends.iter().enumerate() {
            while let Ok(Some(length)) = end.read(&mut frame) {
                take(from, &mut frame[..length], ends, &mut lines, way);
            }
        }
    }
}

/// Forwards one packet of a site.
#[expect(clippy::disallowed_methods, reason = "a network runs in real time")]
fn take(from: usize, frame: &mut [u8], ends: &[Tun], lines: &mut [Line], way: &NetworkPath) {
    let head = frame.len() - Frame::packet(frame).len();
    let packet = &mut frame[head..];
    let last = match packet.first().map(|first| first >> 4) {
        Some(4) => packet[19],
        Some(6) if packet.len() >= 40 => packet[39],
        _ => return,
    };
    let to = usize::from(last).wrapping_sub(1);
    let Some(line) = lines.get_mut(to) else {
        return;
    };
    if to == 0 && way.deaf.load(Relaxed) {
        return;
    }
    if packet[0] >> 4 == 4 {
        way.dscp.fetch_max(packet[1] >> 2, Relaxed);
    }
    let mtu = way.mtu.load(Relaxed);
    if packet.len() > mtu as usize {
        way.refused.fetch_add(1, Relaxed);
        if way.silent.load(Relaxed) {
            return;
        }
        let mut room = vec![0; head + too_big::ICMPV6_MESSAGE_BYTES_MAX];
        if let Some(bytes) = too_big::answer(packet, mtu, &mut room[head..]) {
            let _ = ends[from].write([&room[..head + bytes], &[]]);
        }
        return;
    }
    if !translate(from, to, packet, way.port.load(Relaxed)) {
        way.refused.fetch_add(1, Relaxed);
        return;
    }
    let rate = way.rate.load(Relaxed);
    if rate == 0 && line.packets.is_empty() {
        let _ = ends[to].write([frame, &[]]);
        return;
    }
    let now = Instant::now();
    let at = line.busy.max(now)
        + Duration::from_nanos(packet.len() as u64 * 1_000_000_000 / rate.max(1));
    if at.duration_since(now) <= QUEUE {
        line.busy = at;
        line.packets.push_back((at, frame.to_vec()));
    }
}

/// Applies the NAT. Returns false for a datagram to a port of an old mapping.
fn translate(from: usize, to: usize, packet: &mut [u8], port: u16) -> bool {
    let is_udp = packet[0] == 0x45 && packet[9] == 17 && packet.len() >= V4_HEAD + 8;
    if port == 0 || !is_udp {
        return true;
    }
    let (own, seen) = (PORT.to_be_bytes(), port.to_be_bytes());
    let udp = &mut packet[V4_HEAD..];
    match (from, to) {
        (0, _) if udp[..2] == own => udp[..2].copy_from_slice(&seen),
        (_, 0) if udp[2..4] == seen => udp[2..4].copy_from_slice(&own),
        (0, _) => return true,
        _ => return false,
    }
    // UDP over IPv4 may omit the checksum (RFC 768).
    udp[6..8].fill(0);
    true
}
