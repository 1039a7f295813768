//! Responder for handshakes initiated by peers, separate from established tunnels.
//!
//! Initiations arrive at a socket of their own, served by this thread, so a flood of them fills
//! that socket's buffer and does not slow down the forwarding threads. Replies to unknown addresses
//! use the same socket, because each of them may wait for ARP. Replies to peers use the tunnels'
//! socket, in the order of their packet numbers.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use ccplane_udp::{GcraBucket, Inbox, Socket, SourceLimiter, passes, source_of};
use ccplane_units::{Duration, Time};

use super::receive::{BUFFER_BYTES, STOP_LATENCY_MAX, send, update_endpoint};
use super::{GatewayState, PeerMap, wait_readable};
use crate::error::GatewayError;
use crate::peer::{Peer, PeerState};
use crate::tunnel::{DatagramKind, Recipient, TunnelNumber};

/// Rate (per second) and burst of initiations from the address of a peer. A peer starts a handshake
/// every two minutes and retransmits after 5 s, and several peers may share an address.
const PEER_INITIATIONS_PER_SECOND: u64 = 10;
const PEER_INITIATIONS_BURST: u64 = 20;
/// Rate (per second) and burst of initiations from any other address.
const SOURCE_INITIATIONS_PER_SECOND: u64 = 50;
const SOURCE_INITIATIONS_BURST: u64 = 100;
/// Rate (per second) and burst of cookie replies to all unknown addresses: 0.75 Mbit/s on the wire.
/// Without the limit, a flood from forged sources would use much of an uplink.
const COOKIES_PER_SECOND: u64 = 1_000;
const COOKIES_BURST: u64 = 100;
/// Interval between updates of the peers' addresses.
const REVIEW_INTERVAL: Duration = Duration::from_millis(250);
/// The thread sleeps this many times as long as the last batch took, so a flood gets at most a
/// quarter of a CPU.
const PAUSE_FACTOR: u64 = 3;
/// Longest pause. The socket buffer holds the initiations that arrive in this time at 20,000 per
/// second.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Rate limits for initiations.
struct Admission {
    /// Current endpoints of the peers, as source prefixes of the rate limiter.
    peers: HashSet<IpAddr>,
    last_review: Option<Time>,
    peer_limiter: SourceLimiter,
    unknown_limiter: SourceLimiter,
    cookies: GcraBucket,
}

/// Decision about an initiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitiationVerdict {
    /// Answered, even under load.
    Peer,
    /// Answered; under load with a cookie reply.
    Unknown,
    Dropped,
}

impl Admission {
    fn new() -> Admission {
        Admission {
            peers: HashSet::new(),
            last_review: None,
            peer_limiter: SourceLimiter::new(PEER_INITIATIONS_PER_SECOND, PEER_INITIATIONS_BURST),
            unknown_limiter: SourceLimiter::new(
                SOURCE_INITIATIONS_PER_SECOND,
                SOURCE_INITIATIONS_BURST,
            ),
            cookies: GcraBucket::new(COOKIES_PER_SECOND, COOKIES_BURST),
        }
    }

    /// Updates the addresses of peers if that is due. `peers` is called only then.
    fn review<I: Iterator<Item = IpAddr>>(&mut self, now: Time, peers: impl FnOnce() -> I) {
        if self
            .last_review
            .is_some_and(|last| now.since(last) < REVIEW_INTERVAL)
        {
            return;
        }
        self.last_review = Some(now);
        self.peers.clear();
        self.peers.extend(peers().map(source_of));
    }

    fn admit(&mut self, now: Time, from: IpAddr) -> InitiationVerdict {
        if self.peers.contains(&source_of(from)) && self.peer_limiter.admit(now, from) {
            InitiationVerdict::Peer
        } else if self.unknown_limiter.admit(now, from) {
            InitiationVerdict::Unknown
        } else {
            InitiationVerdict::Dropped
        }
    }
}

pub(crate) struct Handshakes {
    shared: Arc<GatewayState>,
    /// Receives initiations and sends replies to unknown addresses.
    socket: Socket,
    /// Sends replies to peers.
    data_socket: Socket,
    admission: Admission,
    buffer: Box<[u8]>,
}

impl Handshakes {
    pub fn new(shared: Arc<GatewayState>, socket: Socket, data: Socket) -> Handshakes {
        Handshakes {
            shared,
            socket,
            data_socket: data,
            admission: Admission::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
        }
    }

    /// Runs until the gateway stops.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread yields CPU time to others"
    )]
    pub fn run(mut self) -> Result<(), GatewayError> {
        let mut inbox = Inbox::new();
        while !self.shared.is_stopped() {
            self.wait()?;
            let begin = self.shared.now();
            let table = self.shared.table();
            let received = match self.socket.receive(&mut inbox) {
                Ok(received) => received,
                Err(why) if passes(&why) => continue,
                Err(why) => return Err(GatewayError::system("receive handshakes")(why)),
            };
            let mut outcome = Ok(());
            received.for_each(|from, _, datagram| {
                let taken = self.on_datagram(begin, &table, from, datagram);
                outcome = std::mem::replace(&mut outcome, Ok(())).and(taken);
            });
            outcome?;
            let pause = (self.shared.now().since(begin) * PAUSE_FACTOR).min(PAUSE_MAX);
            std::thread::sleep(pause.to_std());
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), GatewayError> {
        wait_readable(&self.socket, STOP_LATENCY_MAX)
            .map_err(GatewayError::system("wait for handshakes"))
    }

    fn on_datagram(
        &mut self,
        now: Time,
        table: &PeerMap,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Result<(), GatewayError> {
        let shared = &self.shared;
        let address = from.ip().to_canonical();
        self.admission.review(now, || {
            let endpoints = table.iter().filter_map(|peer| peer.lock().endpoint);
            endpoints.map(|endpoint| endpoint.ip())
        });
        let admitted = self.admission.admit(now, address);
        let dropped = || shared.counts.handshakes.fetch_add(1, Ordering::Relaxed);
        let whom = match admitted {
            InitiationVerdict::Peer => {
                shared
                    .demux
                    .identify_unlimited(address, datagram, &mut self.buffer)
            }
            InitiationVerdict::Unknown => {
                shared.demux.identify(address, datagram, &mut self.buffer)
            }
            InitiationVerdict::Dropped => {
                dropped();
                return Ok(());
            }
        };
        let peer = match whom {
            Recipient::Answer(bytes) => {
                let answered = self.admission.cookies.admit(now)
                    && send(&self.socket, from, &self.buffer[..bytes])?;
                if !answered {
                    dropped();
                }
                return Ok(());
            }
            Recipient::Peer(key) => table.by_key.get(&key).and_then(|place| table.peer(*place)),
            Recipient::Index(_) | Recipient::Unknown => None,
        };
        let Some(peer) = peer else {
            shared
                .counts
                .unknown_datagrams
                .fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let mut state = peer.lock();
        match state.tunnel.open(address, datagram, &mut self.buffer) {
            DatagramKind::Refused(why) => state.counts.count_refused(why),
            DatagramKind::Handshake { answer, authentic } => {
                finish_handshake(
                    shared,
                    &self.data_socket,
                    (peer, state),
                    from,
                    (answer, authentic),
                    &mut self.buffer,
                )?;
            }
            // An initiation never carries a packet.
            DatagramKind::Packet { .. } => {}
        }
        Ok(())
    }
}

/// Sends the results of a peer's handshake: the reply in `room`, and the packets that were queued
/// until keys were available. The peer stays locked until the last one is sent, which keeps packet
/// numbers in order.
pub(super) fn finish_handshake(
    shared: &GatewayState,
    data: &Socket,
    (peer, mut state): (&Peer, MutexGuard<'_, PeerState>),
    from: SocketAddr,
    (answer, authentic): (usize, bool),
    room: &mut [u8],
) -> Result<(), GatewayError> {
    let now = shared.now();
    if authentic {
        update_endpoint(shared, peer, &mut state, from);
    }
    if answer > 0 {
        // The reply has a packet number if it is a keepalive.
        if let Some(number) = TunnelNumber::parse(&room[..answer]) {
            state.on_sent(now, number, answer);
        }
        send(data, from, &room[..answer])?;
    }
    while let Some((bytes, number)) = state.tunnel.next_queued(room) {
        if let Some(number) = number {
            state.on_sent(now, number, bytes);
        }
        send(data, from, &room[..bytes])?;
    }
    drop(state);
    // Packets in the sendbox may have been waiting for these keys.
    shared.wake();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PEER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn a_flood_of_forged_sources_leaves_the_handshakes_of_peers() {
        let mut admission = Admission::new();
        let mut now = Time::ZERO;
        let (mut cookies, mut peers, mut asked) = (0, 0, 0);
        for n in 0..100_000_u32 {
            now += Duration::from_micros(50);
            admission.review(now, || [PEER_ADDRESS].into_iter());
            let forged = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n));
            if admission.admit(now, forged) == InitiationVerdict::Unknown {
                cookies += u64::from(admission.cookies.admit(now));
            }
            if n % 10_000 == 0 {
                asked += 1;
                peers += u32::from(admission.admit(now, PEER_ADDRESS) == InitiationVerdict::Peer);
            }
        }
        assert_eq!(peers, asked);
        assert!(
            cookies <= 5 * COOKIES_PER_SECOND + COOKIES_BURST,
            "{cookies} in 5 s"
        );
    }

    #[test]
    fn a_flood_from_one_address_is_cut_to_its_share() {
        let mut admission = Admission::new();
        admission.review(Time::ZERO, || [PEER_ADDRESS].into_iter());
        let mut outcomes = [0_u64; 3];
        for n in 0..100_000 {
            let now = Time::ZERO + Duration::from_micros(50) * n;
            outcomes[match admission.admit(now, PEER_ADDRESS) {
                InitiationVerdict::Peer => 0,
                InitiationVerdict::Unknown => 1,
                InitiationVerdict::Dropped => 2,
            }] += 1;
        }
        let [peer, stranger, dropped] = outcomes;
        assert!(
            peer <= 5 * PEER_INITIATIONS_PER_SECOND + PEER_INITIATIONS_BURST,
            "{outcomes:?}"
        );
        assert!(
            stranger <= 5 * SOURCE_INITIATIONS_PER_SECOND + SOURCE_INITIATIONS_BURST,
            "{outcomes:?}"
        );
        assert!(dropped > 99_000, "{outcomes:?}");
    }
}
