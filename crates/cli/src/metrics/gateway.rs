//! Metrics of a gateway: its own, one set per peer (by name), and one set per class of a peer's
//! queue. They contain no addresses and no keys.

use ccplane_bundle::SendboxMode;
use ccplane_gateway::{ClassReport, GatewayReport, PeerReport};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::{Labels, counter, gauge};

/// Value of a peer; `None` while unknown.
type Value = fn(&PeerReport) -> Option<f64>;
/// Counter of a class.
type ClassCount = fn(&ClassReport) -> u64;

const MODES: [SendboxMode; 3] = [
    SendboxMode::Open,
    SendboxMode::Delay,
    SendboxMode::PassThrough,
];

const VALUES: [(&str, &str, Value); 15] = [
    (
        "limit_bytes_per_second",
        "Rate limit; absent without one",
        |p| p.rate.map(bytes),
    ),
    (
        "sent_rate_bytes_per_second",
        "S: sending rate, on the wire",
        |p| Some(bytes(p.sent)),
    ),
    (
        "arrived_rate_bytes_per_second",
        "R: arrival rate at the peer, on the wire",
        |p| Some(bytes(p.received)),
    ),
    (
        "rtt_seconds",
        "Last round-trip time; absent before the first",
        |p| seconds(p.rtt),
    ),
    (
        "min_rtt_seconds",
        "Minimum round-trip time over 10 s",
        |p| seconds(p.min_rtt),
    ),
    (
        "network_queue_seconds",
        "Queueing delay in the network",
        |p| p.in_network.map(|ms| ms / 1e3),
    ),
    ("queue_packets", "Packets in the local queue", |p| {
        Some(p.queue_packets as f64)
    }),
    ("queue_bytes", "Queued bytes, on the wire", |p| {
        Some(p.queue_bytes as f64)
    }),
    (
        "out_of_order_ratio",
        "Share of packets received out of order over 10 s",
        |p| p.out_of_order,
    ),
    ("mtu_bytes", "Largest packet to the peer", |p| {
        Some(p.mtu.into())
    }),
    (
        "mtu_confirmed_bytes",
        "Largest packet confirmed to arrive at the peer",
        |p| p.mtu_confirmed.map(f64::from),
    ),
    (
        "mark_packets",
        "Epoch size in packets, of which one is measured",
        |p| Some(p.every.into()),
    ),
    (
        "keys_age_seconds",
        "Age of the session keys; absent without keys",
        |p| p.keys_age_seconds,
    ),
    ("mode_age_seconds", "Time since the last mode change", |p| {
        Some(p.since_seconds)
    }),
    ("unshaped", "1 while the peer sends no feedback", |p| {
        Some(f64::from(u8::from(matches!(
            p.reason,
            "plain" | "no_address" | "no_keys"
        ))))
    }),
];

const CLASS_VALUES: [(&str, &str, ClassCount); 2] = [
    (
        "class_queue_packets",
        "Packets of a class in the local queue",
        |c| c.queue_packets,
    ),
    ("class_queue_bytes", "Queued bytes, on the wire", |c| {
        c.queue_bytes
    }),
];

const CLASS_COUNTS: [(&str, &str, ClassCount); 3] = [
    (
        "class_sent_packets",
        "Packets of a class sent from its queue",
        |c| c.sent_packets,
    ),
    ("class_sent_bytes", "Queued bytes, on the wire", |c| {
        c.sent_bytes
    }),
    (
        "class_dropped_packets",
        "Packets of a class dropped by its queue",
        |c| c.dropped_packets,
    ),
];

/// Descriptions of a report's counters, by name.
const COUNTER_DESCRIPTIONS: [(&str, &str); 29] = [
    ("sent_packets", "Packets sent to the peer"),
    ("sent_bytes", "Bytes sent to the peer, on the wire"),
    ("dropped_packets", "Packets dropped by the local queue"),
    ("arrived_packets", "Packets counted by the peer"),
    ("arrived_bytes", "Bytes counted by the peer, on the wire"),
    ("missing_packets", "Packets lost on the path to the peer"),
    (
        "out_of_order_packets",
        "Packets received out of order by the peer",
    ),
    (
        "marked_packets",
        "Packets received by the peer with a congestion mark",
    ),
    ("feedback", "Feedback messages from the peer"),
    (
        "feedback_late",
        "Feedback messages received too late to use",
    ),
    (
        "feedback_unlikely",
        "Feedback messages with implausible values",
    ),
    ("bad_messages", "Feedback messages malformed or implausible"),
    ("received_packets", "Packets received from the peer"),
    (
        "received_bytes",
        "Bytes received from the peer, inside the tunnel",
    ),
    ("handshakes", "Session keys used for sending"),
    (
        "unreachable_packets",
        "Packets dropped because the peer was unreachable",
    ),
    (
        "replayed",
        "Datagrams received twice, or too late for the replay window",
    ),
    ("unknown_session", "Datagrams with unknown keys"),
    ("forged", "Datagrams that failed authentication"),
    ("busy", "Handshakes dropped by the rate limit"),
    (
        "foreign_packets",
        "Packets dropped because their source is not behind the peer",
    ),
    (
        "posed_messages",
        "Packets from the site dropped because they imitated gateway messages",
    ),
    (
        "marked_unable_packets",
        "Packets dropped because they were marked but not ECN-capable inside",
    ),
    (
        "too_long",
        "Datagrams rejected by the path because of their length",
    ),
    (
        "too_big_packets",
        "Packets dropped because they exceeded the path MTU",
    ),
    ("divided_packets", "Packets sent in fragments"),
    ("mtu_probes", "Path MTU probes sent"),
    ("mtu_probes_lost", "Path MTU probes lost"),
    ("mtu_black_holes", "Path MTU black holes detected"),
];

/// Builds the metrics from one report.
pub fn registry(report: &GatewayReport) -> Registry {
    let mut registry = Registry::with_prefix("ccplane_gateway");
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "What runs", Info::new(version));
    let alone: [(&str, &str, f64); 2] = [
        (
            "uptime_seconds",
            "Time since the gateway started",
            report.uptime,
        ),
        (
            "observe",
            "1 if the gateway only measures (--observe)",
            f64::from(u8::from(report.observe)),
        ),
    ];
    for (name, help, value) in alone {
        let gauge = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    }
    let strays: [(&str, u64); 5] = [
        ("nobody", report.datagrams_of_nobody),
        ("handshake_limit", report.handshakes_dropped),
        ("no_route", report.packets_without_route),
        ("no_memory", report.packets_without_memory),
        ("refused_by_device", report.packets_refused),
    ];
    let strays = strays.map(|(why, count)| (vec![("reason", why.to_owned())], count));
    let help = "Datagrams from no known peer, and packets without a route";
    counter(&mut registry, "stray_packets", help, strays);
    add_peers(&mut registry, &report.peers);
    add_classes(&mut registry, &report.peers);
    registry
}

fn add_peers(registry: &mut Registry, peers: &[PeerReport]) {
    for (name, help, value) in VALUES {
        let known = peers
            .iter()
            .filter_map(|peer| Some((labels(peer), value(peer)?)));
        gauge(registry, name, help, known);
    }
    let modes = peers.iter().flat_map(|peer| {
        MODES.map(|mode| {
            let is = f64::from(u8::from(peer.mode == mode.name()));
            (with(peer, "mode", mode.name()), is)
        })
    });
    gauge(registry, "mode", "1 for the current mode", modes);
    let said = peers.iter().flat_map(|peer| {
        peer.gauges
            .iter()
            .map(|(name, value)| (with(peer, "name", name), *value))
    });
    gauge(
        registry,
        "algorithm",
        "Values reported by the algorithm, in its own units",
        said,
    );
    for (name, help) in COUNTER_DESCRIPTIONS {
        let counts = peers
            .iter()
            .filter_map(|peer| Some((labels(peer), *peer.counts.get(name)?)));
        counter(registry, name, help, counts);
    }
    let changes = peers.iter().flat_map(|peer| {
        peer.changes
            .iter()
            .map(|(reason, count)| (with(peer, "reason", reason), *count))
    });
    counter(registry, "mode_changes", "Mode changes by reason", changes);
}

fn add_classes(registry: &mut Registry, peers: &[PeerReport]) {
    let all = || {
        peers.iter().flat_map(|peer| {
            peer.classes
                .iter()
                .map(move |class| (with(peer, "class", &class.name), class))
        })
    };
    for (name, help, value) in CLASS_VALUES {
        gauge(
            registry,
            name,
            help,
            all().map(|(labels, class)| (labels, value(class) as f64)),
        );
    }
    for (name, help, value) in CLASS_COUNTS {
        counter(
            registry,
            name,
            help,
            all().map(|(labels, class)| (labels, value(class))),
        );
    }
}

fn labels(peer: &PeerReport) -> Labels {
    vec![("peer", peer.name.clone())]
}

fn with(peer: &PeerReport, name: &'static str, value: &str) -> Labels {
    vec![("peer", peer.name.clone()), (name, value.to_owned())]
}

/// Converts bits/s to bytes/s.
fn bytes(rate: u64) -> f64 {
    rate as f64 / 8.0
}

/// Converts milliseconds to seconds. Zero means unknown.
fn seconds(ms: f64) -> Option<f64> {
    (ms > 0.0).then_some(ms / 1e3)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::metrics::{Format, text};

    fn report() -> GatewayReport {
        let peer = PeerReport {
            name: "site-b".into(),
            public_key: "secret".into(),
            endpoint: Some("198.51.100.7:51820".into()),
            keys_age_seconds: None,
            mode: "delay",
            reason: "queue",
            why: String::new(),
            since_seconds: 3.0,
            rate: Some(80_000_000),
            sent: 40_000_000,
            received: 0,
            rtt: 50.0,
            min_rtt: 0.0,
            in_network: Some(2.5),
            queue_packets: 3,
            queue_bytes: 4_500,
            classes: vec![ClassReport {
                name: "calls".into(),
                queue_packets: 1,
                queue_bytes: 200,
                sent_packets: 7,
                sent_bytes: 1_400,
                dropped_packets: 2,
            }],
            out_of_order: None,
            mtu: 1_420,
            mtu_confirmed: Some(1_400),
            mtu_search: "complete",
            every: 4,
            gauges: BTreeMap::from([("eta", 1.5)]),
            counts: BTreeMap::from([("sent_bytes", 12)]),
            changes: BTreeMap::from([("queue", 1), ("silent", 0)]),
        };
        GatewayReport {
            uptime: 9.0,
            device: "ccplane0".into(),
            listen: "0.0.0.0:51820".into(),
            observe: false,
            peers: vec![peer],
            datagrams_of_nobody: 4,
            handshakes_dropped: 5,
            packets_without_route: 0,
            packets_without_memory: 0,
            packets_refused: 0,
        }
    }

    #[test]
    fn promtool_accepts_the_metrics_of_a_gateway() {
        crate::metrics::promtool(registry(&report()));
    }

    #[test]
    fn values_have_base_units_and_unknown_ones_are_absent() {
        let text = text(registry(&report()), 0, Format::OpenMetrics);
        for line in [
            "ccplane_gateway_limit_bytes_per_second{peer=\"site-b\"} 10000000.0",
            "ccplane_gateway_rtt_seconds{peer=\"site-b\"} 0.05",
            "ccplane_gateway_network_queue_seconds{peer=\"site-b\"} 0.0025",
            "ccplane_gateway_mode{peer=\"site-b\",mode=\"delay\"} 1.0",
            "ccplane_gateway_mode{peer=\"site-b\",mode=\"open\"} 0.0",
            "ccplane_gateway_algorithm{peer=\"site-b\",name=\"eta\"} 1.5",
            "ccplane_gateway_sent_bytes_total{peer=\"site-b\"} 12",
            "ccplane_gateway_mode_changes_total{peer=\"site-b\",reason=\"silent\"} 0",
            "ccplane_gateway_class_queue_bytes{peer=\"site-b\",class=\"calls\"} 200.0",
            "ccplane_gateway_class_dropped_packets_total{peer=\"site-b\",class=\"calls\"} 2",
            "ccplane_gateway_stray_packets_total{reason=\"nobody\"} 4",
            "ccplane_gateway_stray_packets_total{reason=\"handshake_limit\"} 5",
            "ccplane_gateway_uptime_seconds 9.0",
            "ccplane_gateway_unread_scrapes_total 0",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
        }
        assert!(
            text.contains("ccplane_gateway_build_info{version=\""),
            "{text}"
        );
        for absent in [
            "198.51.100.7",
            "secret",
            "min_rtt_seconds{",
            "keys_age_seconds{",
            "out_of_order_ratio{",
        ] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }
}
