//! Handshakes that peers begin, apart from the packets of tunnels that are up.
//!
//! Initiations arrive at a socket of their own, and this thread answers them. A flood fills that
//! socket's buffers, and costs the other threads nothing. Answers to strangers leave by the same
//! socket, as each of them may wait for ARP. Answers to peers leave by the socket of the tunnels,
//! in the order of their numbers.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use ccplane_udp::{Bucket, Inbox, Socket, SourceLimiter, passes, source_of};
use ccplane_units::{Duration, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::receive::{BUFFER_BYTES, STOP_SEEN_WITHIN, moved_to, send};
use super::{Shared, Table};
use crate::error::GatewayError;
use crate::pair::{Half, Pair};
use crate::tunnel::{For, Number, Opened};

/// Initiations from the address of a peer, per second and at once. A peer begins one every two
/// minutes, and repeats it after 5 s. Several peers may share an address.
const PEER_RATE: u64 = 10;
const PEER_BURST: u64 = 20;
/// Initiations of one stranger's address, per second and at once.
const SOURCE_RATE: u64 = 50;
const SOURCE_BURST: u64 = 100;
/// Cookies for all strangers, per second and at once: 0.75 Mbit/s on the wire. A flood of forged
/// sources would take much of an uplink otherwise.
const COOKIE_RATE: u64 = 1_000;
const COOKIE_BURST: u64 = 100;
/// Time between two looks at where peers are.
const REVIEW_INTERVAL: Duration = Duration::from_millis(250);
/// The thread pauses for this multiple of the time that a batch took: a flood gets a quarter of a
/// processor at most.
const PAUSE_FACTOR: u64 = 3;
/// Longest pause. The socket's buffer holds what 20,000 initiations per second send in it.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Limits on initiations.
struct Admission {
    /// Sources of the addresses that peers were last heard at.
    peers: HashSet<IpAddr>,
    reviewed: Option<Time>,
    of_peers: SourceLimiter,
    of_strangers: SourceLimiter,
    cookies: Bucket,
}

/// Treatment of an initiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admitted {
    /// It is answered, also under load.
    Peer,
    /// It is answered, under load by a cookie.
    Stranger,
    Dropped,
}

impl Admission {
    fn new() -> Admission {
        Admission {
            peers: HashSet::new(),
            reviewed: None,
            of_peers: SourceLimiter::new(PEER_RATE, PEER_BURST),
            of_strangers: SourceLimiter::new(SOURCE_RATE, SOURCE_BURST),
            cookies: Bucket::new(COOKIE_RATE, COOKIE_BURST),
        }
    }

    /// Updates the addresses of peers. `peers` is called if that is due.
    fn review<I: Iterator<Item = IpAddr>>(&mut self, now: Time, peers: impl FnOnce() -> I) {
        if self
            .reviewed
            .is_some_and(|last| now.since(last) < REVIEW_INTERVAL)
        {
            return;
        }
        self.reviewed = Some(now);
        self.peers.clear();
        self.peers.extend(peers().map(source_of));
    }

    fn admit(&mut self, now: Time, from: IpAddr) -> Admitted {
        if self.peers.contains(&source_of(from)) && self.of_peers.admit(now, from) {
            Admitted::Peer
        } else if self.of_strangers.admit(now, from) {
            Admitted::Stranger
        } else {
            Admitted::Dropped
        }
    }
}

/// The thread of handshakes.
pub(crate) struct Handshakes {
    shared: Arc<Shared>,
    /// Receives initiations, and sends answers to strangers.
    socket: Socket,
    /// Sends answers to peers.
    data: Socket,
    admission: Admission,
    room: Box<[u8]>,
}

impl Handshakes {
    pub fn new(shared: Arc<Shared>, socket: Socket, data: Socket) -> Handshakes {
        Handshakes {
            shared,
            socket,
            data,
            admission: Admission::new(),
            room: vec![0; BUFFER_BYTES].into_boxed_slice(),
        }
    }

    /// Runs until the gateway stops.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread leaves time to others"
    )]
    pub fn run(mut self) -> Result<(), GatewayError> {
        let mut inbox = Inbox::new();
        while !self.shared.stopped() {
            self.wait()?;
            let begin = self.shared.now();
            let table = self.shared.table();
            let received = match self.socket.receive(&mut inbox) {
                Ok(received) => received,
                Err(why) if passes(&why) => continue,
                Err(why) => return Err(GatewayError::system("receive handshakes")(why)),
            };
            let mut outcome = Ok(());
            received.each(|from, _, datagram| {
                let taken = self.take(begin, &table, from, datagram);
                outcome = std::mem::replace(&mut outcome, Ok(())).and(taken);
            });
            outcome?;
            let pause = (self.shared.now().since(begin) * PAUSE_FACTOR).min(PAUSE_MAX);
            std::thread::sleep(pause.to_std());
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), GatewayError> {
        let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let timeout = TimeSpec::from_duration(STOP_SEEN_WITHIN.to_std());
        match ppoll(&mut polled, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(why) => Err(GatewayError::system("wait for handshakes")(why.into())),
        }
    }

    fn take(
        &mut self,
        now: Time,
        table: &Table,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Result<(), GatewayError> {
        let shared = &self.shared;
        let address = from.ip().to_canonical();
        self.admission.review(now, || {
            let endpoints = table.all().filter_map(|pair| pair.lock().endpoint);
            endpoints.map(|endpoint| endpoint.ip())
        });
        let admitted = self.admission.admit(now, address);
        let dropped = || shared.counts.handshakes.fetch_add(1, Ordering::Relaxed);
        let whom = match admitted {
            Admitted::Peer => shared.door.initiator(address, datagram, &mut self.room),
            Admitted::Stranger => shared.door.whom(address, datagram, &mut self.room),
            Admitted::Dropped => {
                dropped();
                return Ok(());
            }
        };
        let pair = match whom {
            For::Answer(bytes) => {
                let answered = self.admission.cookies.admit(now)
                    && send(&self.socket, from, &self.room[..bytes])?;
                if !answered {
                    dropped();
                }
                return Ok(());
            }
            For::Peer(key) => table.by_key.get(&key).and_then(|place| table.pair(*place)),
            For::Place(_) | For::Nobody => None,
        };
        let Some(pair) = pair else {
            shared.counts.nobody.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let mut half = pair.lock();
        match half.tunnel.open(address, datagram, &mut self.room) {
            Opened::Refused(why) => half.counts.refuse(why),
            Opened::Handshake { answer, authentic } => {
                finish(
                    shared,
                    &self.data,
                    (pair, half),
                    from,
                    (answer, authentic),
                    &mut self.room,
                )?;
            }
            // An initiation holds no packet.
            Opened::Packet { .. } => {}
        }
        Ok(())
    }
}

/// Sends what a handshake of a peer leads to: the answer in `room`, and packets that waited for
/// keys. The peer stays locked until the last of them has left, which keeps their order.
pub(super) fn finish(
    shared: &Shared,
    data: &Socket,
    (pair, mut half): (&Pair, MutexGuard<'_, Half>),
    from: SocketAddr,
    (answer, authentic): (usize, bool),
    room: &mut [u8],
) -> Result<(), GatewayError> {
    let now = shared.now();
    if authentic {
        moved_to(shared, pair, &mut half, from);
    }
    if answer > 0 {
        // An answer that is a keepalive has a number.
        if let Some(number) = Number::of(&room[..answer]) {
            half.left(now, number, answer);
        }
        send(data, from, &room[..answer])?;
    }
    while let Some((bytes, number)) = half.tunnel.rest(room) {
        if let Some(number) = number {
            half.left(now, number, bytes);
        }
        send(data, from, &room[..bytes])?;
    }
    drop(half);
    // Packets may have waited for these keys.
    shared.wake();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn a_flood_of_forged_sources_leaves_the_handshakes_of_peers() {
        let mut admission = Admission::new();
        let mut now = Time::ZERO;
        let (mut cookies, mut peers, mut asked) = (0, 0, 0);
        for n in 0..100_000_u32 {
            now += Duration::from_micros(50);
            admission.review(now, || [PEER].into_iter());
            let forged = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n));
            if admission.admit(now, forged) == Admitted::Stranger {
                cookies += u64::from(admission.cookies.admit(now));
            }
            if n % 10_000 == 0 {
                asked += 1;
                peers += u32::from(admission.admit(now, PEER) == Admitted::Peer);
            }
        }
        assert_eq!(peers, asked);
        assert!(
            cookies <= 5 * COOKIE_RATE + COOKIE_BURST,
            "{cookies} in 5 s"
        );
    }

    #[test]
    fn a_flood_from_one_address_is_cut_to_its_share() {
        let mut admission = Admission::new();
        admission.review(Time::ZERO, || [PEER].into_iter());
        let mut outcomes = [0_u64; 3];
        for n in 0..100_000 {
            let now = Time::ZERO + Duration::from_micros(50) * n;
            outcomes[match admission.admit(now, PEER) {
                Admitted::Peer => 0,
                Admitted::Stranger => 1,
                Admitted::Dropped => 2,
            }] += 1;
        }
        let [peer, stranger, dropped] = outcomes;
        assert!(peer <= 5 * PEER_RATE + PEER_BURST, "{outcomes:?}");
        assert!(stranger <= 5 * SOURCE_RATE + SOURCE_BURST, "{outcomes:?}");
        assert!(dropped > 99_000, "{outcomes:?}");
    }
}
