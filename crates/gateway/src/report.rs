//! What there is to see of a gateway, for people, scripts and tests.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ccplane_bundle::{ClassStatus, Mode, Reason};
use ccplane_units::{Duration, Time};
use serde::Serialize;

use super::forward::Shared;
use super::pair::Pair;

/// A gateway at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Seconds since it began.
    pub uptime: f64,
    /// Its device.
    pub device: String,
    /// Where it listens.
    pub listen: String,
    /// It measures and limits nothing.
    pub observe: bool,
    /// Its peers, in the order of their places.
    pub peers: Vec<PeerReport>,
    /// Datagrams that no peer sent.
    pub datagrams_of_nobody: u64,
    /// Handshakes of strangers beyond the limits.
    pub handshakes_dropped: u64,
    /// Packets of the site to where no peer is.
    pub packets_without_route: u64,
    /// Packets of the site that found no memory.
    pub packets_without_memory: u64,
    /// Packets for the site that its device did not take.
    pub packets_refused: u64,
}

/// A peer at a moment. Times are in ms but where the name says seconds, rates in bits/s.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerReport {
    /// Its name.
    pub name: String,
    /// Its key.
    pub public_key: String,
    /// Where it is, if that is known.
    pub endpoint: Option<String>,
    /// Seconds since keys were agreed on; `None` without keys.
    pub keys_age_seconds: Option<f64>,
    /// `open`, `delay` or `passing`.
    pub mode: &'static str,
    /// Why, in one word, as events have it; `plain` where no box answers, `no_address` where none
    /// can.
    pub reason: &'static str,
    /// Why, as a sentence.
    pub why: String,
    /// Seconds in this mode.
    pub since_seconds: f64,
    /// The limit; `None`: no limit.
    pub rate: Option<u64>,
    /// S, what is sent.
    pub sent: u64,
    /// R, what arrives.
    pub received: u64,
    /// The last round trip.
    pub rtt: f64,
    /// The least one of 10 s.
    pub min_rtt: f64,
    /// What packets wait in the network.
    pub in_network: Option<f64>,
    /// Packets in the queue here.
    pub queue_packets: u64,
    /// Their bytes.
    pub queue_bytes: u64,
    /// Its classes, in the order of the configuration.
    pub classes: Vec<ClassReport>,
    /// The share of packets out of order of the last 10 s; `None` while too few came.
    pub out_of_order: Option<f64>,
    /// Bytes of the longest packet to it.
    pub mtu: u32,
    /// Bytes of the longest packet that is known to arrive there.
    pub mtu_confirmed: Option<u32>,
    /// `unconfirmed`, `searching` or `complete`.
    pub mtu_search: &'static str,
    /// A packet in so many is measured.
    pub every: u32,
    /// What the algorithm says.
    pub gauges: BTreeMap<&'static str, f64>,
    /// Counts since the beginning.
    pub counts: BTreeMap<&'static str, u64>,
    /// How often each reason changed the mode.
    pub changes: BTreeMap<&'static str, u64>,
}

/// A class of a peer's queue at a moment; counts are since there are these classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Packets that wait.
    pub queue_packets: u64,
    /// Their bytes.
    pub queue_bytes: u64,
    /// Packets that left the queue.
    pub sent_packets: u64,
    /// Their bytes on the wire.
    pub sent_bytes: u64,
    /// Packets that were dropped.
    pub dropped_packets: u64,
}

impl ClassReport {
    fn of((name, class): (&String, ClassStatus)) -> ClassReport {
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

impl Report {
    pub(crate) fn of(shared: &Shared) -> Report {
        let now = shared.now();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Report {
            uptime: now.as_secs_f64(),
            device: shared.site.device.clone(),
            listen: shared.site.listen.to_string(),
            observe: shared.observe,
            peers: shared
                .table()
                .all()
                .map(|pair| PeerReport::of(now, pair))
                .collect(),
            datagrams_of_nobody: count(&shared.counts.nobody),
            handshakes_dropped: count(&shared.counts.handshakes),
            packets_without_route: count(&shared.counts.no_route),
            packets_without_memory: count(&shared.counts.no_memory),
            packets_refused: count(&shared.counts.refused),
        }
    }
}

impl PeerReport {
    fn of(now: Time, pair: &Pair) -> PeerReport {
        let half = pair.lock();
        let status = half.sendbox.status(now);
        let (totals, counts, seen) = (status.totals, half.counts, status.seen);
        let search = half.path.search().counts();
        let age = half.tunnel.age();
        let fault = half.tunnel.fault();
        let (reason, why) = match (age, pair.ends, half.answered) {
            (None, ..) if let Some(fault) = fault => (fault.name(), fault.explanation().to_owned()),
            (None, ..) => ("no_keys", "no keys yet: the peer has not answered".to_owned()),
            (_, None, _) => (
                "no_address",
                "unshaped: no address of the tunnel at the peer is known, so nothing is measured; give `address`"
                    .to_owned(),
            ),
            (_, _, None) => (
                "plain",
                "unshaped: no ccplane answers there, so the peer may be plain WireGuard".to_owned(),
            ),
            _ => (status.reason.name(), sentence(status.mode, status.reason).to_owned()),
        };
        PeerReport {
            name: pair.peer.name.clone(),
            public_key: pair.peer.public_key.to_string(),
            endpoint: half.endpoint.map(|endpoint| endpoint.to_string()),
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
            classes: half
                .classes
                .iter()
                .zip(half.sendbox.classes())
                .map(ClassReport::of)
                .collect(),
            out_of_order: seen.out_of_order,
            mtu: half.path.mtu(),
            mtu_confirmed: half.path.search().confirmed(),
            mtu_search: half.path.search().state().name(),
            every: status.every.get(),
            gauges: half.gauges.iter().copied().collect(),
            counts: BTreeMap::from([
                ("sent_packets", totals.packets),
                ("sent_bytes", totals.bytes),
                ("dropped_packets", totals.dropped),
                ("arrived_packets", totals.arrived),
                ("arrived_bytes", totals.arrived_bytes),
                ("missing_packets", totals.missing),
                ("out_of_order_packets", totals.out_of_order),
                ("marked_packets", totals.marked),
                ("feedback", totals.feedback),
                ("feedback_late", totals.late),
                ("feedback_unlikely", totals.unlikely),
                ("unreachable_packets", counts.unreachable),
                ("received_packets", counts.received),
                ("received_bytes", counts.received_bytes),
                ("handshakes", counts.handshakes),
                ("replayed", counts.replayed),
                ("unknown_session", counts.unknown_session),
                ("forged", counts.forged),
                ("foreign_packets", counts.foreign),
                ("posed_messages", counts.posed),
                ("marked_unable_packets", counts.marked_unable),
                ("bad_messages", counts.bad_messages),
                ("too_long", counts.too_long),
                ("too_big_packets", counts.too_big),
                ("divided_packets", counts.divided),
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

/// Why a bundle is in its mode, for a person.
fn sentence(mode: Mode, reason: Reason) -> &'static str {
    match (mode, reason) {
        (Mode::Delay, _) => "limited: the queue stands here",
        (Mode::Passing, _) => "passing: others fill the network's queue",
        (Mode::Open, Reason::Start) => "open: there is no queue in the network to move",
        (Mode::Open, Reason::Silent) => "open: the other box is silent",
        (Mode::Open, Reason::Multipath) => "open: packets take several paths",
        (Mode::Open, Reason::Observe) => "open: it only observes",
        (Mode::Open, Reason::ByHand) => "open: by hand; `ccplane gateway control` ends it",
        (Mode::Open, Reason::Agent) => "open: the algorithm is silent",
        (Mode::Open, _) => "open",
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
