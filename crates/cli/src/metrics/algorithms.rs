//! Metrics of `attach`: flows, reports, ring losses, fallbacks and faults per algorithm.

use prometheus_client::registry::Registry;

use super::{Labels, counter, gauge};

/// Counters of one algorithm since its registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AlgorithmStats {
    /// Name in the kernel, `ccp_<name>`.
    pub algorithm: String,
    /// Live flows.
    pub flows: u64,
    /// Live flows without a slot in the flow table: they run on the fallback, invisible to the
    /// agent, until a slot is free.
    pub flows_without_slot: u64,
    /// Live flows on the fallback, with or without a slot.
    pub flows_in_fallback: u64,
    /// Reports queued by the datapath.
    pub reports: u64,
    /// Reports that found the ring full. Their contents stay with the flow.
    pub ring_losses: u64,
    /// Transitions of a flow to the fallback.
    pub fallbacks: u64,
    /// Arithmetic faults of programs (overflow, division by zero).
    pub faults: u64,
    /// New flows that found the flow table full.
    pub table_full: u64,
    /// The part of `table_full` where only the quota of the network namespace was exhausted.
    pub share_full: u64,
    /// Counters of the algorithm's time stamps, if it uses them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamps: Option<StampStats>,
}

/// Counters of an algorithm's time stamps since they were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StampStats {
    /// Live flows whose queueing delay is measured with stamps; the others use the RTT.
    pub flows: u64,
    /// Exchanges of stamps that yielded a one-way delay.
    pub samples: u64,
    /// Implausible exchanges, dropped.
    pub impossible: u64,
    /// Packets stamped at transmission.
    pub departed: u64,
    /// Packets stamped at reception.
    pub arrived: u64,
    /// Super-packets that were not stamped.
    pub bursts: u64,
    /// Connections that negotiated stamps.
    pub agreed: u64,
    /// Connections whose peer does not support stamps.
    pub not_agreed: u64,
    /// Options that arrived through a device that does not stamp.
    pub unstamped: u64,
    /// Malformed options.
    pub malformed: u64,
    /// Segments whose other options left no room.
    pub no_room: u64,
}

/// Builds the metrics, labelled by algorithm.
pub fn registry(stats: &[AlgorithmStats]) -> Registry {
    type Count = fn(&AlgorithmStats) -> u64;
    let labels = |s: &AlgorithmStats| -> Labels { vec![("algorithm", s.algorithm.clone())] };
    let gauges: [(&str, &str, Count); 3] = [
        ("flows", "Live flows", |s| s.flows),
        (
            "flows_without_slot",
            "Live flows without a slot in the flow table",
            |s| s.flows_without_slot,
        ),
        (
            "flows_in_fallback",
            "Live flows that run on the datapath's fallback",
            |s| s.flows_in_fallback,
        ),
    ];
    let counters: [(&str, &str, Count); 6] = [
        ("reports", "Reports queued by the datapath", |s| s.reports),
        (
            "ring_losses",
            "Reports deferred because the ring was full; their measurements are delayed, not lost",
            |s| s.ring_losses,
        ),
        ("fallbacks", "Switches of a flow to the fallback", |s| {
            s.fallbacks
        }),
        (
            "program_faults",
            "Arithmetic faults in datapath programs",
            |s| s.faults,
        ),
        (
            "table_full",
            "New flows rejected because the flow table was full",
            |s| s.table_full,
        ),
        (
            "share_full",
            "New flows rejected because their network namespace had used up its share",
            |s| s.share_full,
        ),
    ];
    let mut registry = Registry::with_prefix("ccplane");
    for (name, help, value) in gauges {
        gauge(
            &mut registry,
            name,
            help,
            stats.iter().map(|s| (labels(s), value(s) as f64)),
        );
    }
    for (name, help, value) in counters {
        counter(
            &mut registry,
            name,
            help,
            stats.iter().map(|s| (labels(s), value(s))),
        );
    }
    type Stamps = fn(&StampStats) -> u64;
    let of_stamps: [(&str, &str, Stamps); 10] = [
        (
            "stamp_samples",
            "Time-stamp exchanges that gave a one-way delay",
            |s| s.samples,
        ),
        (
            "stamp_impossible",
            "Time-stamp exchanges with implausible values",
            |s| s.impossible,
        ),
        ("stamp_departed", "Packets stamped on transmission", |s| {
            s.departed
        }),
        ("stamp_arrived", "Packets stamped on reception", |s| {
            s.arrived
        }),
        ("stamp_bursts", "Super-packets not stamped", |s| s.bursts),
        (
            "stamp_agreed",
            "Connections that negotiated time stamps",
            |s| s.agreed,
        ),
        (
            "stamp_not_agreed",
            "Connections whose peer does not support time stamps",
            |s| s.not_agreed,
        ),
        (
            "stamp_unstamped",
            "Time-stamp options received on a device that does not stamp",
            |s| s.unstamped,
        ),
        ("stamp_malformed", "Malformed time-stamp options", |s| {
            s.malformed
        }),
        (
            "stamp_no_room",
            "Segments whose other options left no space for time stamps",
            |s| s.no_room,
        ),
    ];
    if stats.iter().any(|s| s.stamps.is_some()) {
        for (name, help, value) in of_stamps {
            let stamped = stats
                .iter()
                .filter_map(|s| Some((labels(s), value(s.stamps.as_ref()?))));
            counter(&mut registry, name, help, stamped);
        }
    }
    registry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_appears_once_per_metric() {
        let stats = ["ccp_reno", "ccp_cubic"].map(|name| AlgorithmStats {
            algorithm: name.into(),
            flows: 3,
            reports: 12_345,
            ..AlgorithmStats::default()
        });
        let text = crate::metrics::text(registry(&stats), 0, crate::metrics::Format::OpenMetrics);
        assert!(
            text.contains("ccplane_flows{algorithm=\"ccp_reno\"} 3.0"),
            "{text}"
        );
        assert!(
            text.contains("ccplane_reports_total{algorithm=\"ccp_cubic\"} 12345"),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn promtool_accepts_the_metrics_of_attach() {
        let stats = [AlgorithmStats {
            algorithm: "ccp_dx".into(),
            stamps: Some(StampStats::default()),
            ..AlgorithmStats::default()
        }];
        let connections = [crate::metrics::ConnectionStats {
            algorithm: "ccp_dx".into(),
            agent: Some(crate::metrics::AgentStats::default()),
            callbacks: Some(ccplane_linux::Histogram::default()),
            exceptions: Some(0),
            ..Default::default()
        }];
        let mut registry = registry(&stats);
        crate::metrics::add_connections(&mut registry, &connections, &[]);
        crate::metrics::promtool(registry);
    }
}
