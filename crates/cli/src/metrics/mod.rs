//! The Prometheus endpoint: per algorithm its flows, reports, ring losses, fallbacks and faults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::exit::{Failure, Kind};

/// What one algorithm has done since it was registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AlgorithmStats {
    /// Name as the kernel knows it, `ccp_<name>`.
    pub algorithm: String,
    /// Live flows.
    pub flows: u64,
    /// Live flows that run on the fallback.
    pub flows_in_fallback: u64,
    /// Reports that the datapath queued.
    pub reports: u64,
    /// Reports that found the ring full; their contents stayed with the flow.
    pub ring_losses: u64,
    /// Times that a flow went to the fallback.
    pub fallbacks: u64,
    /// Arithmetic faults of programs (overflow, division by zero).
    pub faults: u64,
    /// New flows that found the flow table full and run on the fallback, unseen by the agent.
    pub table_full: u64,
    /// Its time stamps, where it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamps: Option<StampStats>,
}

/// What happened to the time stamps of an algorithm since they were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StampStats {
    /// Live flows whose queueing delay comes from stamps; the others go by the RTT.
    pub flows: u64,
    /// Exchanges of stamps that gave a one-way delay.
    pub samples: u64,
    /// Exchanges that cannot be true, dropped.
    pub impossible: u64,
    /// Packets stamped as they left.
    pub departed: u64,
    /// Packets stamped as they came.
    pub arrived: u64,
    /// Super-packets that were not stamped.
    pub bursts: u64,
    /// Connections that agreed on stamps.
    pub agreed: u64,
    /// Connections whose peer does not know them.
    pub not_agreed: u64,
    /// Options that came by a device that does not stamp.
    pub unstamped: u64,
    /// Options that are not as they should be.
    pub malformed: u64,
    /// Segments whose other options left no room.
    pub no_room: u64,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    algorithm: String,
}

/// The Prometheus text (OpenMetrics 1.0) of these figures.
pub fn render(stats: &[AlgorithmStats]) -> String {
    type Count = fn(&AlgorithmStats) -> u64;
    let gauges: [(&str, &str, Count); 2] = [
        ("flows", "Live flows", |s| s.flows),
        (
            "flows_in_fallback",
            "Live flows that run on the datapath's fallback",
            |s| s.flows_in_fallback,
        ),
    ];
    let counters: [(&str, &str, Count); 5] = [
        ("reports", "Reports queued by the datapath", |s| s.reports),
        (
            "ring_losses",
            "Reports that found the ring full; nothing measured is lost, only delayed",
            |s| s.ring_losses,
        ),
        ("fallbacks", "Times that a flow went to the fallback", |s| s.fallbacks),
        ("program_faults", "Arithmetic faults of datapath programs", |s| s.faults),
        ("table_full", "New flows that found the flow table full", |s| {
            s.table_full
        }),
    ];
    let mut registry = Registry::with_prefix("ccplane");
    for (name, help, value) in gauges {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for s in stats {
            family
                .get_or_create(&Labels {
                    algorithm: s.algorithm.clone(),
                })
                .set(value(s) as f64);
        }
        registry.register(name, help, family);
    }
    for (name, help, value) in counters {
        let family = Family::<Labels, Counter>::default();
        for s in stats {
            family
                .get_or_create(&Labels {
                    algorithm: s.algorithm.clone(),
                })
                .inc_by(value(s));
        }
        registry.register(name, help, family);
    }
    type Stamps = fn(&StampStats) -> u64;
    let of_stamps: [(&str, &str, Stamps); 10] = [
        (
            "stamp_samples",
            "Exchanges of time stamps that gave a one-way delay",
            |s| s.samples,
        ),
        (
            "stamp_impossible",
            "Exchanges of time stamps that cannot be true",
            |s| s.impossible,
        ),
        ("stamp_departed", "Packets stamped as they left", |s| s.departed),
        ("stamp_arrived", "Packets stamped as they came", |s| s.arrived),
        ("stamp_bursts", "Super-packets that were not stamped", |s| s.bursts),
        ("stamp_agreed", "Connections that agreed on time stamps", |s| s.agreed),
        (
            "stamp_not_agreed",
            "Connections whose peer does not know time stamps",
            |s| s.not_agreed,
        ),
        (
            "stamp_unstamped",
            "Options that came by a device that does not stamp",
            |s| s.unstamped,
        ),
        (
            "stamp_malformed",
            "Options of time stamps that are not as they should be",
            |s| s.malformed,
        ),
        (
            "stamp_no_room",
            "Segments whose other options left no room for stamps",
            |s| s.no_room,
        ),
    ];
    if stats.iter().any(|s| s.stamps.is_some()) {
        for (name, help, value) in of_stamps {
            let family = Family::<Labels, Counter>::default();
            for (s, stamps) in stats.iter().filter_map(|s| Some((s, s.stamps.as_ref()?))) {
                let algorithm = s.algorithm.clone();
                family.get_or_create(&Labels { algorithm }).inc_by(value(stamps));
            }
            registry.register(name, help, family);
        }
    }
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes everything that is written to it");
    text
}

/// Serves `/metrics` on `address` from a thread of its own, for as long as the process lives.
/// Each scrape calls `stats`.
pub fn serve(
    address: SocketAddr,
    stats: impl Fn() -> Vec<AlgorithmStats> + Send + Sync + 'static,
) -> Result<(), Failure> {
    let server = tiny_http::Server::http(address).map_err(|e| {
        Failure::text(
            Kind::Failed,
            format!("the metrics endpoint cannot listen on {address}: {e}"),
        )
        .hint("another process may have the port: choose another with --metrics ADDRESS:PORT")
    })?;
    let stats = Arc::new(stats);
    std::thread::spawn(move || {
        for request in server.incoming_requests() {
            let response = if request.url() == "/metrics" {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                let header = tiny_http::Header::from_bytes("Content-Type", kind).expect("a constant header is valid");
                tiny_http::Response::from_string(render(&stats())).with_header(header)
            } else {
                tiny_http::Response::from_string("see /metrics\n").with_status_code(404)
            };
            // A scraper that went away is not our fault.
            let _ = request.respond(response);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_every_algorithm_once_per_metric() {
        let stats = ["ccp_reno", "ccp_cubic"].map(|name| AlgorithmStats {
            algorithm: name.into(),
            flows: 3,
            reports: 12_345,
            ..AlgorithmStats::default()
        });
        let text = render(&stats);
        assert!(text.contains("ccplane_flows{algorithm=\"ccp_reno\"} 3.0"), "{text}");
        assert!(
            text.contains("ccplane_reports_total{algorithm=\"ccp_cubic\"} 12345"),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_scrape_over_http_gets_the_figures_of_the_moment() {
        use std::io::{Read, Write};
        let address: SocketAddr = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap()
        };
        serve(address, || {
            vec![AlgorithmStats {
                algorithm: "ccp_x".into(),
                fallbacks: 2,
                ..Default::default()
            }]
        })
        .unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains("ccplane_fallbacks_total{algorithm=\"ccp_x\"} 2"),
            "{answer}"
        );
        assert!(serve(address, Vec::new).is_err(), "the port is taken");
    }
}
