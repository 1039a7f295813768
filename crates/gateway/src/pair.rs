//! One peer as both threads know it: the tunnel to it, where it is, and the two boxes at this end.
//!
//! All of it is behind one lock. What a packet is sealed under has to reach the sendbox in the
//! order of its numbers, and handshakes, keepalives and the boxes' own messages take numbers too.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccplane_bundle::{
    Feedback, Marks, Message, PROBE_BYTES, Probe, ProbeAck, Receivebox, Sendbox, SendboxConfig,
};
use ccplane_host::Packet as Kept;
use ccplane_qdisc::{Ecn, Packet};
use ccplane_units::{Duration, Rate, Time};

use super::config::{Config, Peer, Site};
use super::control;
use super::error::GatewayError;
use super::path::Path;
use super::path_search::{ProbeOutcome, ProbePacket};
use super::tunnel::{Number, OVERHEAD, Refusal, Sealed, Tunnel};

/// Bytes around a datagram: UDP and IPv4, or IPv6 with its longer header.
const OUTER_V4: u32 = 28;
const OUTER_V6: u32 = 48;

/// Sessions before the last one whose packets are still known: of these, what is under way when
/// keys change.
const SESSIONS_KEPT: usize = 4;

/// Feedback that comes is itself a packet of the bundle the other way. It is answered only where so
/// many of its like came ...
const ALIKE: u32 = 8;
/// ... and no oftener than this, so that two boxes without traffic do not talk of each other's
/// talk; and soon enough that ten of them do not count as silence, which begins after 250 ms.
const ALIKE_SOONEST: Duration = Duration::from_millis(200);

/// A packet of the sendbox: where it is kept, and what it is on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// In the sending thread's store.
    pub kept: Kept,
    /// What the tunnel adds.
    pub around: u16,
}

impl Packet for Waiting {
    fn bytes(&self) -> u32 {
        self.kept.bytes() + u32::from(self.around)
    }

    fn flow_hash(&self) -> u32 {
        self.kept.flow_hash()
    }

    fn class(&self) -> u8 {
        self.kept.class()
    }

    fn ecn(&self) -> Ecn {
        self.kept.ecn()
    }

    fn mark_ce(&mut self) {
        self.kept.mark_ce();
    }
}

/// What happened to a peer's packets beside what its boxes count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets for the peer that were dropped: it could not be called for too long.
    pub unreachable: u64,
    /// Packets that came, and their bytes inside.
    pub received: u64,
    /// See `received`.
    pub received_bytes: u64,
    /// Keys that packets left under.
    pub handshakes: u64,
    /// Datagrams that came again, or too late to be known.
    pub replayed: u64,
    /// Datagrams under keys that are not there.
    pub unknown_session: u64,
    /// Datagrams that the peer did not seal.
    pub forged: u64,
    /// Packets whose source is not behind the peer.
    pub foreign: u64,
    /// Packets of the site that posed as messages of this box, and were dropped.
    pub posed: u64,
    /// Packets that were marked on their way and whose sender would not understand it.
    pub marked_unable: u64,
    /// Messages of the other box that were malformed or could not be true.
    pub bad_messages: u64,
    /// Datagrams longer than the path takes.
    pub too_long: u64,
    /// Packets for the peer that were divided: they were longer than the path takes, and IPv4 that
    /// may be.
    pub divided: u64,
    /// Packets for the peer that were dropped: they were longer than the path takes. Their senders
    /// were told.
    pub too_big: u64,
}

impl Counts {
    /// Counts a datagram that was refused.
    pub(crate) fn refuse(&mut self, why: Refusal) {
        *match why {
            Refusal::Replayed => &mut self.replayed,
            Refusal::UnknownSession => &mut self.unknown_session,
            Refusal::Forged => &mut self.forged,
        } += 1;
    }
}

/// One peer. With other settings it is another value, of the same half.
pub(crate) struct Pair {
    pub place: u32,
    pub peer: Peer,
    /// The tunnel's ends, here and there, between which the boxes talk; `None` where one is not
    /// known.
    pub ends: Option<[IpAddr; 2]>,
    pub half: Arc<Mutex<Half>>,
}

/// What is behind the lock.
pub(crate) struct Half {
    pub tunnel: Tunnel,
    /// Where it was heard last, or where it is said to be.
    pub endpoint: Option<SocketAddr>,
    /// When it was told last that this has changed.
    pub moved: Option<Time>,
    /// How long packets to it may be.
    pub path: Path,
    pub sendbox: Sendbox<Waiting>,
    /// Names of its classes.
    pub classes: Vec<String>,
    pub receivebox: Receivebox,
    /// Something was heard of the receivebox at the other end: it is no plain WireGuard.
    pub answered: Option<Time>,
    pub counts: Counts,
    /// Acknowledgement of a probe, to be sent.
    pub probe_ack: Option<ProbeAck>,
    /// What the algorithm says of the bundle.
    pub gauges: Vec<(&'static str, f64)>,
    /// Something came that is to be answered: a packet of the site, or a notice.
    news: bool,
    /// Other packets of the tunnel since the last feedback left, and when it did.
    alike: u32,
    told: Time,
    /// The session that packets leave under; and those that they came under, the last first.
    leaving: Option<u32>,
    coming: [Option<u32>; SESSIONS_KEPT],
}

impl Pair {
    /// Also where another thread panicked while it had it: what a packet changes is small, and the
    /// next one sets it right.
    pub fn lock(&self) -> MutexGuard<'_, Half> {
        self.half.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Half {
    pub fn new(
        now: Time,
        tunnel: Tunnel,
        peer: &Peer,
        config: &Config,
        observe: bool,
    ) -> Result<Half, GatewayError> {
        let sendbox = Sendbox::new(now, &sendbox(peer, config, observe)).map_err(|why| {
            GatewayError::Queue {
                peer: peer.name.clone(),
                why,
            }
        })?;
        Ok(Half {
            tunnel,
            endpoint: None,
            moved: None,
            path: Path::new(config.site.mtu),
            sendbox,
            classes: class_names(config),
            receivebox: Receivebox::new(Marks::Counter),
            answered: None,
            counts: Counts::default(),
            probe_ack: None,
            gauges: Vec::new(),
            news: false,
            alike: 0,
            told: now,
            leaving: None,
            coming: [None; SESSIONS_KEPT],
        })
    }

    /// A datagram of so many bytes leaves under this number.
    pub fn left(&mut self, now: Time, number: Number, datagram: usize) {
        if self.leaving != Some(number.session) {
            self.counts.handshakes += 1;
            self.leaving = Some(number.session);
            self.sendbox.renumber(now, number.session);
        }
        self.sendbox
            .left(now, number.counter, wire_bytes(datagram, self.endpoint));
    }

    /// A datagram came under this number, from this address.
    pub fn came(&mut self, now: Time, number: Number, datagram: usize, from: SocketAddr, ecn: Ecn) {
        if self.coming[0] != Some(number.session) {
            if self.coming.contains(&Some(number.session)) {
                // It was under way when the keys changed. Its numbering is over.
                return;
            }
            self.coming.rotate_right(1);
            self.coming[0] = Some(number.session);
            self.receivebox.renumber(number.session);
        }
        let bytes = wire_bytes(datagram, Some(from));
        self.receivebox.arrived(now, number.counter, bytes, ecn);
        self.alike = self.alike.saturating_add(1);
    }

    /// What came last was a packet for the site.
    pub fn is_news(&mut self) {
        self.news = true;
    }

    /// What the receivebox has to say now.
    pub fn speak(&mut self, now: Time) -> Option<Feedback> {
        self.speaks_at().filter(|due| *due <= now)?;
        let feedback = self.receivebox.poll(now)?;
        (self.news, self.alike, self.told) = (false, 0, now);
        Some(feedback)
    }

    /// When that is due.
    pub fn speaks_at(&self) -> Option<Time> {
        let due = self.receivebox.next_deadline()?;
        if self.news {
            return Some(due);
        }
        (self.alike >= ALIKE).then(|| due.max(self.told + ALIKE_SOONEST))
    }

    /// Seals a packet into `room`, and tells the sendbox: bytes of the datagram. `None` without
    /// keys.
    pub fn seal(&mut self, now: Time, packet: &[u8], room: &mut [u8]) -> Option<usize> {
        match self.tunnel.seal(packet, room) {
            Sealed::Datagram { bytes, number } => {
                self.path.is_used();
                self.left(now, number, bytes);
                Some(bytes)
            }
            Sealed::NoSession => None,
        }
    }

    /// Seals a message for the box at the other end.
    pub fn seal_message(
        &mut self,
        now: Time,
        ends: Option<[IpAddr; 2]>,
        message: &[u8],
        room: &mut [u8],
    ) -> Option<usize> {
        let [own, far] = ends?;
        let mut packet = [0; control::LONGEST];
        let bytes = control::write(own, far, message, &mut packet)?;
        self.seal(now, &packet[..bytes], room)
    }

    /// Returns the probe of the path that is due, if the other box is known to be one of ours.
    pub fn next_probe(&mut self, now: Time) -> Option<ProbePacket> {
        if self.answered.is_none() || !self.tunnel.is_established() {
            return None;
        }
        let srtt = self.sendbox.srtt();
        self.path.search_mut().poll(now, srtt)
    }

    /// Seals a probe into `room`. `scratch` takes the packet inside, once as a message and once as
    /// a whole.
    pub fn seal_probe(
        &mut self,
        now: Time,
        ends: Option<[IpAddr; 2]>,
        probe: ProbePacket,
        scratch: [&mut [u8]; 2],
        room: &mut [u8],
    ) -> Option<usize> {
        let [own, far] = ends?;
        let [message, packet] = scratch;
        let bytes = (probe.size as usize).saturating_sub(control::head_bytes(far));
        let message = message.get_mut(..bytes.max(PROBE_BYTES))?;
        let token = probe.token;
        if !(Probe { token }).encode(message) {
            return None;
        }
        let bytes = control::write(own, far, message, packet)?;
        let sealed = self.seal(now, packet.get(..bytes)?, room)?;
        if probe.size > 0 {
            self.sendbox.probe_left();
        }
        Some(sealed)
    }

    /// Takes a message of the box at the other end, in a packet of so many bytes.
    pub fn hear(&mut self, now: Time, message: &[u8], packet: usize) {
        match Message::decode(message) {
            Ok(Message::Feedback(feedback)) => {
                self.answered = Some(now);
                self.hear_feedback(now, &feedback);
            }
            Ok(Message::Notice(notice)) => {
                self.receivebox.notice(&notice);
                self.news = true;
            }
            Ok(Message::Probe(Probe { token })) => {
                let size = u32::try_from(packet).unwrap_or(u32::MAX);
                self.probe_ack = Some(ProbeAck { token, size });
            }
            Ok(Message::ProbeAck(ack)) => {
                if self.path.search_mut().on_ack(now, ack.token, ack.size) == ProbeOutcome::Arrived
                {
                    self.sendbox.probe_arrived();
                }
            }
            Err(_) => self.counts.bad_messages += 1,
        }
    }

    fn hear_feedback(&mut self, now: Time, feedback: &Feedback) {
        if self.sendbox.feedback(now, feedback).is_err() {
            self.counts.bad_messages += 1;
        }
    }
}

/// The names of all classes.
pub(crate) fn class_names(config: &Config) -> Vec<String> {
    config
        .classes
        .iter()
        .map(|class| class.name.clone())
        .collect()
}

/// How a peer's sendbox is made.
pub(crate) fn sendbox(peer: &Peer, config: &Config, observe: bool) -> SendboxConfig {
    let most = SendboxConfig::default().max;
    SendboxConfig {
        queue: config.queues(peer),
        mtu: full_packet(&config.site),
        min: peer.min,
        max: peer
            .highest(&config.site)
            .unwrap_or(most)
            .max(Rate::from_bytes_per_sec(1)),
        marks: Marks::Counter,
        observe,
        seed: 0,
    }
}

/// Bytes of a full packet on the wire, over the longer of the two headers.
pub(crate) fn full_packet(site: &Site) -> u32 {
    site.mtu + OVERHEAD as u32 + OUTER_V6
}

/// Bytes of a datagram on the wire.
fn wire_bytes(datagram: usize, far: Option<SocketAddr>) -> u32 {
    let outer = around(far) - OVERHEAD as u32;
    u32::try_from(datagram)
        .unwrap_or(u32::MAX)
        .saturating_add(outer)
}

/// Bytes around a packet on its way to this address.
pub(crate) fn around(far: Option<SocketAddr>) -> u32 {
    let v4 = far.is_none_or(|far| far.ip().to_canonical().is_ipv4());
    OVERHEAD as u32 + if v4 { OUTER_V4 } else { OUTER_V6 }
}
