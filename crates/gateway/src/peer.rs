//! State of one peer that both forwarding threads use: tunnel, endpoint, sendbox and receivebox.
//!
//! One lock protects all of it, because the sendbox must see packet numbers in the order in which
//! the tunnel assigns them, and handshakes, keepalives and control messages use numbers too.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccplane_bundle::{
    BoxMessage, Feedback, PROBE_BYTES, PacketNumbering, Probe, ProbeAck, Receivebox, Sendbox,
    SendboxConfig,
};
use ccplane_host::FramePacket as Kept;
use ccplane_qdisc::{Ecn, Packet};
use ccplane_units::{Duration, Rate, Time};

use super::config::{GatewayConfig, PeerConfig, SiteConfig};
use super::control;
use super::error::GatewayError;
use super::path_search::{ProbeOutcome, ProbePacket};
use super::peer_path::PeerPath;
use super::tunnel::{DATA_OVERHEAD_BYTES, Refusal, SealOutcome, Tunnel, TunnelNumber};

/// Bytes of UDP and IPv4 header, and of UDP and IPv6 header.
const OUTER_V4_BYTES: u32 = 28;
const OUTER_V6_BYTES: u32 = 48;

/// Previous sessions whose packets are still recognised. They cover the packets in flight during a
/// rekey.
const PREVIOUS_SESSIONS_MAX: usize = 4;

/// Feedback is itself a packet of the reverse bundle. If only such packets arrive, feedback is sent
/// after this many of them, but not more often than every `FEEDBACK_ONLY_INTERVAL_MIN`.
const FEEDBACK_ONLY_PACKETS: u32 = 8;
/// Keeps two idle gateways from answering each other's feedback. Short enough that ten unanswered
/// packets do not count as silence, which starts after 250 ms.
const FEEDBACK_ONLY_INTERVAL_MIN: Duration = Duration::from_millis(200);

/// A packet in the sendbox: its handle in the store and its size on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendboxPacket {
    /// Handle in the sending thread's store.
    pub packet: Kept,
    /// Bytes of encapsulation.
    pub encapsulation_bytes: u16,
}

impl Packet for SendboxPacket {
    fn bytes(&self) -> u32 {
        self.packet.bytes() + u32::from(self.encapsulation_bytes)
    }

    fn flow_hash(&self) -> u32 {
        self.packet.flow_hash()
    }

    fn class(&self) -> u8 {
        self.packet.class()
    }

    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }

    fn mark_ce(&mut self) {
        self.packet.mark_ce();
    }
}

/// Counters of a peer's packets, in addition to those of its sendbox and receivebox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Packets dropped because no session with the peer could be established in time.
    pub unreachable: u64,
    /// Packets received from the peer for the site.
    pub received: u64,
    /// Bytes of `received`, without the encapsulation.
    pub received_bytes: u64,
    /// Sessions under which packets were sent.
    pub handshakes: u64,
    /// Datagrams dropped as replays or as older than the replay window.
    pub replayed: u64,
    /// Datagrams of an unknown session.
    pub unknown_session: u64,
    /// Datagrams that failed authentication.
    pub forged: u64,
    /// Packets whose source address is not routed to the peer.
    pub foreign_source: u64,
    /// Packets from the site that posed as control messages of this gateway and were dropped.
    pub spoofed_control: u64,
    /// Packets dropped because they arrived with a CE mark for a transport without ECN.
    pub ce_without_ect: u64,
    /// Control messages that were malformed or implausible.
    pub bad_messages: u64,
    /// Batches with datagrams that exceeded the path MTU.
    pub too_long: u64,
    /// IPv4 packets that exceeded the path MTU and were fragmented.
    pub fragmented: u64,
    /// Packets that exceeded the path MTU and were dropped with an ICMP message to their senders.
    pub too_big: u64,
}

impl PeerCounts {
    /// Counts a refused datagram.
    pub(crate) fn count_refused(&mut self, why: Refusal) {
        *match why {
            Refusal::Replayed => &mut self.replayed,
            Refusal::UnknownSession => &mut self.unknown_session,
            Refusal::Forged => &mut self.forged,
        } += 1;
    }
}

/// A peer and its settings. New settings create another `Peer` that shares the same `state`.
pub(crate) struct Peer {
    pub index: u32,
    pub config: PeerConfig,
    /// Tunnel addresses, this site's and the peer's, used by control messages. `None` if either is
    /// unknown.
    pub tunnel_addresses: Option<[IpAddr; 2]>,
    pub state: Arc<Mutex<PeerState>>,
}

/// The part of a peer that is behind the lock.
pub(crate) struct PeerState {
    pub tunnel: Tunnel,
    /// Source of the last authenticated datagram, or else the configured endpoint.
    pub endpoint: Option<SocketAddr>,
    /// Time of the last `endpoint` event.
    pub last_endpoint_event: Option<Time>,
    /// Path MTU to the peer.
    pub path: PeerPath,
    pub sendbox: Sendbox<SendboxPacket>,
    /// Names of the traffic classes.
    pub classes: Vec<String>,
    pub receivebox: Receivebox,
    /// Time of the last feedback from the peer's receivebox. `None` until there is one; a plain
    /// WireGuard peer never sends any.
    pub last_feedback: Option<Time>,
    pub counts: PeerCounts,
    /// Acknowledgement of a path MTU probe, to be sent.
    pub probe_ack: Option<ProbeAck>,
    /// Gauges that the algorithm reports for the bundle.
    pub gauges: Vec<(&'static str, f64)>,
    /// True if a packet has arrived that warrants feedback: one for the site, or a notice.
    feedback_warranted: bool,
    /// Other packets of the tunnel since the last feedback, and the time of that feedback.
    packets_since_feedback: u32,
    last_feedback_sent: Time,
    /// Session of outgoing packets, and sessions of incoming packets, the latest first.
    send_session: Option<u32>,
    receive_sessions: [Option<u32>; PREVIOUS_SESSIONS_MAX],
}

impl Peer {
    /// Locks the peer. Ignores poisoning: each packet changes little, and the next one corrects it.
    pub fn lock(&self) -> MutexGuard<'_, PeerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerState {
    pub fn new(
        now: Time,
        tunnel: Tunnel,
        peer: &PeerConfig,
        config: &GatewayConfig,
        observe: bool,
    ) -> Result<PeerState, GatewayError> {
        let sendbox = Sendbox::new(now, &sendbox_config(peer, config, observe)).map_err(|why| {
            GatewayError::Queue {
                peer: peer.name.clone(),
                why,
            }
        })?;
        Ok(PeerState {
            tunnel,
            endpoint: None,
            last_endpoint_event: None,
            path: PeerPath::new(config.site.mtu),
            sendbox,
            classes: class_names(config),
            receivebox: Receivebox::new(PacketNumbering::Counter),
            last_feedback: None,
            counts: PeerCounts::default(),
            probe_ack: None,
            gauges: Vec::new(),
            feedback_warranted: false,
            packets_since_feedback: 0,
            last_feedback_sent: now,
            send_session: None,
            receive_sessions: [None; PREVIOUS_SESSIONS_MAX],
        })
    }

    /// Records a datagram of `datagram` bytes sent with this number.
    pub fn on_sent(&mut self, now: Time, number: TunnelNumber, datagram: usize) {
        if self.send_session != Some(number.session) {
            self.counts.handshakes += 1;
            self.send_session = Some(number.session);
            self.sendbox.start_session(now, number.session);
        }
        self.sendbox
            .on_sent(now, number.counter, wire_bytes(datagram, self.endpoint));
    }

    /// Records a datagram received with this number from this address.
    pub fn on_received(
        &mut self,
        now: Time,
        number: TunnelNumber,
        datagram: usize,
        from: SocketAddr,
        ecn: Ecn,
    ) {
        if self.receive_sessions[0] != Some(number.session) {
            if self.receive_sessions.contains(&Some(number.session)) {
                // A packet in flight during the rekey: the receivebox counts only the latest
                // session.
                return;
            }
            self.receive_sessions.rotate_right(1);
            self.receive_sessions[0] = Some(number.session);
            self.receivebox.start_session(number.session);
        }
        let bytes = wire_bytes(datagram, Some(from));
        self.receivebox.on_packet(now, number.counter, bytes, ecn);
        self.packets_since_feedback = self.packets_since_feedback.saturating_add(1);
    }

    /// Marks the last packet as one for the site.
    pub fn warrant_feedback(&mut self) {
        self.feedback_warranted = true;
    }

    /// Returns the feedback that is due.
    pub fn poll_feedback(&mut self, now: Time) -> Option<Feedback> {
        self.next_feedback().filter(|due| *due <= now)?;
        let feedback = self.receivebox.poll(now)?;
        (
            self.feedback_warranted,
            self.packets_since_feedback,
            self.last_feedback_sent,
        ) = (false, 0, now);
        Some(feedback)
    }

    /// Returns the time at which feedback is due.
    pub fn next_feedback(&self) -> Option<Time> {
        let due = self.receivebox.next_deadline()?;
        if self.feedback_warranted {
            return Some(due);
        }
        (self.packets_since_feedback >= FEEDBACK_ONLY_PACKETS)
            .then(|| due.max(self.last_feedback_sent + FEEDBACK_ONLY_INTERVAL_MIN))
    }

    /// Encrypts a packet into `room` and records it in the sendbox. Returns the length of the
    /// datagram, or `None` without a session.
    pub fn seal(&mut self, now: Time, packet: &[u8], room: &mut [u8]) -> Option<usize> {
        match self.tunnel.seal(packet, room) {
            SealOutcome::Datagram { bytes, number } => {
                self.path.mark_used();
                self.on_sent(now, number, bytes);
                Some(bytes)
            }
            SealOutcome::NoSession => None,
        }
    }

    /// Encrypts a control message for the peer.
    pub fn seal_message(
        &mut self,
        now: Time,
        ends: Option<[IpAddr; 2]>,
        message: &[u8],
        room: &mut [u8],
    ) -> Option<usize> {
        let [own, far] = ends?;
        let mut packet = [0; control::CONTROL_PACKET_BYTES_MAX];
        let bytes = control::write(own, far, message, &mut packet)?;
        self.seal(now, &packet[..bytes], room)
    }

    /// Returns the path MTU probe that is due, if the peer is known to be a ccplane gateway.
    pub fn next_probe(&mut self, now: Time) -> Option<ProbePacket> {
        if self.last_feedback.is_none() || !self.tunnel.is_established() {
            return None;
        }
        let srtt = self.sendbox.srtt();
        self.path.search_mut().poll(now, srtt)
    }

    /// Encrypts a probe into `room`. `scratch` holds the message and the inner packet.
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
            self.sendbox.on_probe_sent();
        }
        Some(sealed)
    }

    /// Processes a control message of the peer from an inner packet of `packet` bytes.
    pub fn on_control_message(&mut self, now: Time, message: &[u8], packet: usize) {
        match BoxMessage::decode(message) {
            Ok(BoxMessage::Feedback(feedback)) => {
                self.last_feedback = Some(now);
                self.on_feedback(now, &feedback);
            }
            Ok(BoxMessage::Notice(notice)) => {
                self.receivebox.on_notice(&notice);
                self.feedback_warranted = true;
            }
            Ok(BoxMessage::Probe(Probe { token })) => {
                let size = u32::try_from(packet).unwrap_or(u32::MAX);
                self.probe_ack = Some(ProbeAck { token, size });
            }
            Ok(BoxMessage::ProbeAck(ack)) => {
                if self.path.search_mut().on_ack(now, ack.token, ack.size) == ProbeOutcome::Arrived
                {
                    self.sendbox.on_probe_acked();
                }
            }
            Err(_) => self.counts.bad_messages += 1,
        }
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback) {
        if self.sendbox.on_feedback(now, feedback).is_err() {
            self.counts.bad_messages += 1;
        }
    }
}

/// Returns the names of all classes.
pub(crate) fn class_names(config: &GatewayConfig) -> Vec<String> {
    config
        .classes
        .iter()
        .map(|class| class.name.clone())
        .collect()
}

/// Returns the settings of a peer's sendbox.
pub(crate) fn sendbox_config(
    peer: &PeerConfig,
    config: &GatewayConfig,
    observe: bool,
) -> SendboxConfig {
    let default_max_rate = SendboxConfig::default().max_rate;
    SendboxConfig {
        queue: config.queues(peer),
        mtu: full_packet(&config.site),
        min_rate: peer.min_rate,
        max_rate: peer
            .effective_max_rate(&config.site)
            .unwrap_or(default_max_rate)
            .max(Rate::from_bytes_per_sec(1)),
        numbering: PacketNumbering::Counter,
        observe_only: observe,
        seed: 0,
    }
}

/// Returns the bytes of a full packet on the wire, assuming the longer outer header (IPv6).
pub(crate) fn full_packet(site: &SiteConfig) -> u32 {
    site.mtu + DATA_OVERHEAD_BYTES as u32 + OUTER_V6_BYTES
}

/// Returns the bytes of a datagram on the wire.
fn wire_bytes(datagram: usize, far: Option<SocketAddr>) -> u32 {
    let outer = encapsulation_overhead(far) - DATA_OVERHEAD_BYTES as u32;
    u32::try_from(datagram)
        .unwrap_or(u32::MAX)
        .saturating_add(outer)
}

/// Returns the bytes of encapsulation towards this address.
pub(crate) fn encapsulation_overhead(far: Option<SocketAddr>) -> u32 {
    let v4 = far.is_none_or(|far| far.ip().to_canonical().is_ipv4());
    DATA_OVERHEAD_BYTES as u32 + if v4 { OUTER_V4_BYTES } else { OUTER_V6_BYTES }
}
