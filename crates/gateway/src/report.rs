//! Status report of a gateway, for people, scripts and tests.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ccplane_bundle::{ClassStatus, Reason, SendboxMode};
use ccplane_units::{Duration, Time};
use serde::Serialize;

use super::forward::GatewayState;
use super::peer::Peer;

/// Snapshot of a gateway.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatewayReport {
    /// Time since the start, seconds.
    pub uptime: f64,
    /// Name of the TUN device.
    pub device: String,
    /// Address of the UDP socket.
    pub listen: String,
    /// True if the gateway only measures and sets no limits.
    pub observe: bool,
    /// Peers, by index.
    pub peers: Vec<PeerReport>,
    /// Datagrams that match no session of any peer.
    pub datagrams_of_nobody: u64,
    /// Initiations and cookie replies dropped by rate limits.
    pub handshakes_dropped: u64,
    /// Packets from the site without a route.
    pub packets_without_route: u64,
    /// Packets from the site dropped because the packet store was full.
    pub packets_without_memory: u64,
    /// Packets for the site that the TUN device rejected.
    pub packets_refused: u64,
}

/// Snapshot of a peer. Times are in ms unless the name ends in `seconds`; rates are in bits/s.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerReport {
    /// Name of the peer.
    pub name: String,
    /// Public key, base64.
    pub public_key: String,
    /// Current address, if known.
    pub endpoint: Option<String>,
    /// Age of the session, seconds; `None` without a session.
    pub keys_age_seconds: Option<f64>,
    /// `open`, `delay` or `passing`.
    pub mode: &'static str,
    /// Cause of the mode in one word, as in events; `plain` if the peer sends no feedback,
    /// `no_address` if its tunnel address is unknown.
    pub reason: &'static str,
    /// Cause of the mode as a sentence.
    pub why: String,
    /// Time in this mode, seconds.
    pub since_seconds: f64,
    /// Rate limit; `None` if there is none.
    pub rate: Option<u64>,
    /// S, the sending rate.
    pub sent: u64,
    /// R, the receiving rate.
    pub received: u64,
    /// Latest RTT.
    pub rtt: f64,
    /// Minimum RTT of the last 10 s.
    pub min_rtt: f64,
    /// Queueing delay in the network.
    pub in_network: Option<f64>,
    /// Packets queued in the sendbox.
    pub queue_packets: u64,
    /// Bytes queued in the sendbox.
    pub queue_bytes: u64,
    /// Traffic classes, in the order of the configuration.
    pub classes: Vec<ClassReport>,
    /// Fraction of out-of-order packets in the last 10 s; `None` if there were too few packets.
    pub out_of_order: Option<f64>,
    /// Path MTU in use, bytes.
    pub mtu: u32,
    /// Largest packet size that was confirmed, bytes.
    pub mtu_confirmed: Option<u32>,
    /// State of the path MTU search: `unconfirmed`, `searching` or `complete`.
    pub mtu_search: &'static str,
    /// Epoch size: one packet in this many is measured.
    pub every: u32,
    /// Gauges of the algorithm.
    pub gauges: BTreeMap<&'static str, f64>,
    /// Counters since the start.
    pub counts: BTreeMap<&'static str, u64>,
    /// Number of mode changes by reason.
    pub changes: BTreeMap<&'static str, u64>,
}

/// Snapshot of a traffic class. Counters start again when the classes are reconfigured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassReport {
    /// Name of the class.
    pub name: String,
    /// Packets queued.
    pub queue_packets: u64,
    /// Bytes queued.
    pub queue_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent, as on the wire.
    pub sent_bytes: u64,
    /// Packets dropped.
    pub dropped_packets: u64,
}

impl ClassReport {
    fn from_status((name, class): (&String, ClassStatus)) -> ClassReport {
        ClassReport {
            name: name.clone(),
            queue_packets: class.backlog.packets,
            queue_bytes: class.backlog.bytes,
            sent_packets: class.packets,
            sent_bytes: class.bytes,
            dropped_packets: class.dropped,
        }
    }
}

impl GatewayReport {
    pub(crate) fn snapshot(shared: &GatewayState) -> GatewayReport {
        let now = shared.now();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        GatewayReport {
            uptime: now.as_secs_f64(),
            device: shared.site.device.clone(),
            listen: shared.site.listen.to_string(),
            observe: shared.observe,
            peers: shared
                .table()
                .iter()
                .map(|peer| PeerReport::from_peer(now, peer))
                .collect(),
            datagrams_of_nobody: count(&shared.counts.unknown_datagrams),
            handshakes_dropped: count(&shared.counts.handshakes),
            packets_without_route: count(&shared.counts.no_route),
            packets_without_memory: count(&shared.counts.no_memory),
            packets_refused: count(&shared.counts.refused),
        }
    }
}

impl PeerReport {
    fn from_peer(now: Time, peer: &Peer) -> PeerReport {
        let state = peer.lock();
        let status = state.sendbox.status(now);
        let (totals, counts, seen) = (status.totals, state.counts, status.path);
        let search = state.path.search().counts();
        let age = state.tunnel.age();
        let fault = state.tunnel.fault();
        let (reason, why) = match (age, peer.tunnel_addresses, state.last_feedback) {
            (None, ..) if let Some(fault) = fault => (fault.name(), fault.explanation().to_owned()),
            (None, ..) => (
                "no_keys",
                "no keys yet: the peer has not answered".to_owned(),
            ),
            (_, None, _) => (
                "no_address",
                "unshaped: the peer's tunnel address is unknown, so nothing is measured; set \
                `address`"
                    .to_owned(),
            ),
            (_, _, None) => (
                "plain",
                "unshaped: the peer does not run ccplane; it may be plain WireGuard".to_owned(),
            ),
            _ => (
                status.reason.name(),
                reason_text(status.mode, status.reason).to_owned(),
            ),
        };
        PeerReport {
            name: peer.config.name.clone(),
            public_key: peer.config.public_key.to_string(),
            endpoint: state.endpoint.map(|endpoint| endpoint.to_string()),
            keys_age_seconds: age.map(|age| age.as_secs_f64()),
            mode: status.mode.name(),
            reason,
            why,
            since_seconds: now.since(status.since).as_secs_f64(),
            rate: status.rate.map(|rate| rate.bits_per_sec()),
            sent: seen.sent.bits_per_sec(),
            received: seen.received.bits_per_sec(),
            rtt: ms(seen.rtt),
            min_rtt: ms(seen.min_rtt),
            in_network: status.in_network.map(ms),
            queue_packets: status.backlog.packets,
            queue_bytes: status.backlog.bytes,
            classes: state
                .classes
                .iter()
                .zip(state.sendbox.classes())
                .map(ClassReport::from_status)
                .collect(),
            out_of_order: seen.out_of_order,
            mtu: state.path.mtu(),
            mtu_confirmed: state.path.search().confirmed(),
            mtu_search: state.path.search().state().name(),
            every: status.epoch_size.get(),
            gauges: state.gauges.iter().copied().collect(),
            counts: BTreeMap::from([
                ("sent_packets", totals.packets),
                ("sent_bytes", totals.bytes),
                ("dropped_packets", totals.dropped),
                ("arrived_packets", totals.received),
                ("arrived_bytes", totals.received_bytes),
                ("missing_packets", totals.missing),
                ("out_of_order_packets", totals.out_of_order),
                ("marked_packets", totals.marked),
                ("feedback", totals.feedback),
                ("feedback_late", totals.stale_feedback),
                ("feedback_unlikely", totals.implausible_feedback),
                ("unreachable_packets", counts.unreachable),
                ("received_packets", counts.received),
                ("received_bytes", counts.received_bytes),
                ("handshakes", counts.handshakes),
                ("replayed", counts.replayed),
                ("unknown_session", counts.unknown_session),
                ("forged", counts.forged),
                ("foreign_packets", counts.foreign_source),
                ("posed_messages", counts.spoofed_control),
                ("marked_unable_packets", counts.ce_without_ect),
                ("bad_messages", counts.bad_messages),
                ("too_long", counts.too_long),
                ("too_big_packets", counts.too_big),
                ("divided_packets", counts.fragmented),
                ("mtu_probes", search.probes),
                ("mtu_probes_lost", search.lost),
                ("mtu_black_holes", search.black_holes),
            ]),
            changes: Reason::ALL
                .iter()
                .map(|reason| reason.name())
                .zip(status.changes)
                .collect(),
        }
    }
}

/// Explains a mode in a sentence.
fn reason_text(mode: SendboxMode, reason: Reason) -> &'static str {
    match (mode, reason) {
        (SendboxMode::Delay, _) => "limited: the queue is at this gateway",
        (SendboxMode::PassThrough, _) => "passing: other traffic fills the queue in the network",
        (SendboxMode::Open, Reason::Start) => {
            "open: the network has no queue that could be moved \
            here"
        }
        (SendboxMode::Open, Reason::NoFeedback) => "open: no feedback from the other gateway",
        (SendboxMode::Open, Reason::Multipath) => "open: packets take several paths",
        (SendboxMode::Open, Reason::Observe) => "open: observing only",
        (SendboxMode::Open, Reason::Operator) => {
            "open: set by hand; `ccplane gateway control` ends \
            it"
        }
        (SendboxMode::Open, Reason::Agent) => "open: the algorithm does not respond",
        (SendboxMode::Open, _) => "open",
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
