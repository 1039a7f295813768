//! Metrics of connections, by algorithm and never by address, and the liveness of agents.

use std::fmt;
use std::time::Duration;

use ccplane_linux::{Arm, CALLBACK_TIME_BASE, ConnectionTotals, Histogram, RATE_BASE, RTT_BASE};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{Labels, counter, gauge};

/// Connection metrics of one algorithm.
#[derive(Clone, Debug, Default)]
pub struct ConnectionStats {
    /// Name in the kernel, `ccp_<name>`.
    pub algorithm: String,
    /// Totals of its flows since registration.
    pub totals: ConnectionTotals,
    /// Liveness of its agent; `None` for a standalone program.
    pub agent: Option<AgentStats>,
    /// Time per callback, ns; `None` if callbacks run in another process.
    pub callbacks: Option<Histogram>,
    /// Callbacks that raised an exception; `None` if an external agent runs them.
    pub exceptions: Option<u64>,
}

/// Liveness of an agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentStats {
    /// Time since the last heartbeat.
    pub heartbeat_age: Duration,
    /// Set while `heartbeat_age` is within the operator's agent timeout.
    pub up: bool,
}

/// Adds the metrics of algorithms, and of the arms of a comparison.
pub fn add(registry: &mut Registry, stats: &[ConnectionStats], arms: &[Arm]) {
    let named = |algorithm: &String| -> Labels { vec![("algorithm", algorithm.clone())] };
    let all: Vec<_> = stats
        .iter()
        .map(|s| (named(&s.algorithm), s.totals))
        .collect();
    totals(registry, "", "of the algorithm's flows", &all);
    // Only algorithms with a comparison have arms.
    let compared = arms.iter().filter(|arm| {
        arm.steered != ConnectionTotals::default() || arm.control != ConnectionTotals::default()
    });
    let arms: Vec<_> = compared
        .flat_map(|arm| {
            [("steered", arm.steered), ("control", arm.control)].map(|(name, sum)| (arm, name, sum))
        })
        .map(|(arm, name, sum)| {
            let mut labels = named(&arm.algorithm);
            labels.push(("arm", name.to_owned()));
            (labels, sum)
        })
        .collect();
    if !arms.is_empty() {
        totals(
            registry,
            "arm_",
            "of the connections that a rule's percentage selects, and of as many others",
            &arms,
        );
    }
    let agents = || {
        stats
            .iter()
            .filter_map(|s| Some((named(&s.algorithm), s.agent?)))
    };
    gauge(
        registry,
        "agent_up",
        "1 while the agent's last heartbeat is younger than the agent timeout",
        agents().map(|(labels, agent)| (labels, f64::from(u8::from(agent.up)))),
    );
    gauge(
        registry,
        "agent_heartbeat_age_seconds",
        "Time since the agent's last heartbeat",
        agents().map(|(labels, agent)| (labels, agent.heartbeat_age.as_secs_f64())),
    );
    let exceptions = stats
        .iter()
        .filter_map(|s| Some((named(&s.algorithm), s.exceptions?)));
    let help = "Callbacks that raised an exception; their flows run NewReno";
    counter(registry, "callback_exceptions", help, exceptions);
    let callbacks = stats
        .iter()
        .filter_map(|s| Some((named(&s.algorithm), s.callbacks?)));
    let family = Histograms {
        base: CALLBACK_TIME_BASE,
        scale: 1e9,
        series: callbacks.collect(),
    };
    let help = "Time spent in the algorithm's callbacks per batch of events or timers";
    registry.register("callback_seconds", help, family);
    gauge(
        registry,
        "build_info",
        "Version and commit of this program",
        [(
            vec![
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
                ("commit", env!("CCPLANE_COMMIT").to_owned()),
            ],
            1.0,
        )],
    );
}

/// Adds the metrics of one set of connections.
fn totals(registry: &mut Registry, prefix: &str, whose: &str, all: &[(Labels, ConnectionTotals)]) {
    type Count = fn(&ConnectionTotals) -> u64;
    let counters: [(&str, &str, Count); 3] = [
        ("acked_bytes", "Bytes acknowledged", |t| t.acked),
        ("retransmitted_packets", "Packets retransmitted", |t| {
            t.retransmits
        }),
        ("lost_packets", "Packets marked lost", |t| t.lost),
    ];
    for (name, help, value) in counters {
        let values = all
            .iter()
            .map(|(labels, totals)| (labels.clone(), value(totals)));
        counter(
            registry,
            &format!("{prefix}{name}"),
            &format!("{help} {whose}"),
            values,
        );
    }
    type Of = fn(&ConnectionTotals) -> Histogram;
    let histograms: [(&str, &str, u32, f64, Of); 2] = [
        (
            "rtt_seconds",
            "Smoothed round-trip times",
            RTT_BASE,
            1e6,
            |t| t.rtt,
        ),
        (
            "delivery_rate_bytes_per_second",
            "Delivery rates",
            RATE_BASE,
            1.0,
            |t| t.rate,
        ),
    ];
    for (name, help, base, scale, of) in histograms {
        let series = all
            .iter()
            .map(|(labels, totals)| (labels.clone(), of(totals)))
            .collect();
        let help = format!("{help} {whose}, sampled once a second and at the end of each flow");
        registry.register(
            format!("{prefix}{name}"),
            help,
            Histograms {
                base,
                scale,
                series,
            },
        );
    }
}

/// Precomputed histograms, one per series.
#[derive(Debug)]
struct Histograms {
    /// Base of the bucket bounds.
    base: u32,
    /// Recorded units per unit of the metric.
    scale: f64,
    series: Vec<(Labels, Histogram)>,
}

impl EncodeMetric for Histograms {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (labels, histogram) in &self.series {
            let bounds = Histogram::bounds(self.base).map(|bound| bound as f64 / self.scale);
            let buckets: Vec<(f64, u64)> = bounds
                .chain([f64::INFINITY])
                .zip(histogram.counts)
                .collect();
            let count = histogram.counts.iter().sum();
            let sum = histogram.sum as f64 / self.scale;
            encoder
                .encode_family(labels)?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cumulative_and_end_with_all() {
        let mut totals = ConnectionTotals::default();
        for us in [50, 100, 1 << 40] {
            totals.rtt.add(RTT_BASE, us);
        }
        let stats = ConnectionStats {
            algorithm: "ccp_cubic".into(),
            totals,
            agent: Some(AgentStats::default()),
            exceptions: Some(2),
            ..ConnectionStats::default()
        };
        let elsewhere = ConnectionStats {
            algorithm: "ccp_copa".into(),
            ..ConnectionStats::default()
        };
        let mut registry = Registry::with_prefix("ccplane");
        add(&mut registry, &[stats, elsewhere], &[]);
        let text = crate::metrics::text(registry, 0, crate::metrics::Format::OpenMetrics);
        for line in [
            "ccplane_rtt_seconds_bucket{le=\"0.000064\",algorithm=\"ccp_cubic\"} 1",
            "ccplane_rtt_seconds_bucket{le=\"0.000128\",algorithm=\"ccp_cubic\"} 2",
            "ccplane_rtt_seconds_bucket{le=\"+Inf\",algorithm=\"ccp_cubic\"} 3",
            "ccplane_rtt_seconds_count{algorithm=\"ccp_cubic\"} 3",
            "ccplane_acked_bytes_total{algorithm=\"ccp_cubic\"} 0",
            "ccplane_agent_up{algorithm=\"ccp_cubic\"} 0.0",
            "ccplane_callback_exceptions_total{algorithm=\"ccp_cubic\"} 2",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let unknown = "callback_exceptions_total{algorithm=\"ccp_copa\"}";
        assert!(!text.contains(unknown), "absent, not zero: {text}");
        let no_agent = "agent_up{algorithm=\"ccp_copa\"}";
        assert!(!text.contains(no_agent), "no agent: {text}");
        assert!(!text.contains("arm="), "no comparison: {text}");
    }

    #[test]
    fn both_arms_of_an_algorithm_are_reported() {
        let steered = ConnectionTotals {
            acked: 7,
            ..ConnectionTotals::default()
        };
        let arm = Arm {
            algorithm: "ccp_copa".into(),
            steered,
            control: ConnectionTotals::default(),
        };
        let mut registry = Registry::with_prefix("ccplane");
        add(&mut registry, &[], &[arm]);
        let text = crate::metrics::text(registry, 0, crate::metrics::Format::OpenMetrics);
        for (arm, bytes) in [("steered", 7), ("control", 0)] {
            let line = format!(
                "ccplane_arm_acked_bytes_total{{algorithm=\"ccp_copa\",arm=\"{arm}\"}} {bytes}"
            );
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }
}
