//! Columns of the table of runs: the metrics of a contender, each with its unit in the name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::metrics::longest_stall;
use crate::result::{Completions, ContenderResult, FlowMetrics, SizeClass, WorkloadTotals};
use ccplane_units::stats;

/// Cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Number in the unit of its column.
    Number(f64),
    /// Text.
    Text(String),
    /// No value: the axis or metric does not apply to the run.
    Missing,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Number(number) => write!(f, "{number}"),
            Cell::Text(text) => f.write_str(text),
            Cell::Missing => Ok(()),
        }
    }
}

/// Metrics of a run by column. Counts are whole numbers.
pub(super) type Metrics = Vec<(String, f64)>;

/// Columns whose values are whole numbers.
const COUNTS: [&str; 10] = [
    "retransmitted_segments",
    "queue_drops",
    "random_losses",
    "timeouts",
    "flows_completed",
    "flows_unfinished",
    "flows",
    "drops",
    "drops_anywhere",
    "marks",
];

/// Returns true if a column contains whole numbers.
pub(super) fn is_count(column: &str) -> bool {
    let last = column.rsplit('.').next().unwrap_or(column);
    COUNTS.contains(&last)
}

/// Returns the metrics of a run. Names of workloads, links, bundles and size classes are part of
/// their columns: `workload.web.goodput_mbit`.
pub(super) fn metrics(result: &ContenderResult) -> Metrics {
    let mut all = Columns::default();
    let m = &result.metrics;
    all.add("goodput_mbit", m.goodput_mbit);
    all.add("utilisation", m.utilisation);
    all.add("delay_mean_ms", m.delay_mean_ms);
    all.add("delay_p50_ms", m.delay_p50_ms);
    all.add("delay_p95_ms", m.delay_p95_ms);
    all.add("delay_p99_ms", m.delay_p99_ms);
    all.add("retransmitted_segments", m.retransmissions as f64);
    all.add("queue_drops", m.queue_drops as f64);
    all.add("random_losses", m.random_losses as f64);
    all.add("timeouts", result.series.timeouts.map(|n| n as f64));
    all.add("jain", m.jain);
    all.add(
        "drops_anywhere",
        result.series.dropped_anywhere.map(|n| n as f64),
    );
    all.add("wait_mean_us", result.series.waited_mean_us);
    all.add("stall_max_ms", longest_stall_ms(result));
    let flows = |value: fn(&FlowMetrics) -> f64| stats::mean(m.flows.iter().map(value));
    all.add("srtt_mean_ms", flows(|flow| flow.srtt_mean_ms));
    all.add("cwnd_mean_segments", flows(|flow| flow.cwnd_mean));
    if let Some(completions) = &m.completions {
        all.completions("", completions);
    }
    for workload in &result.workloads {
        let prefix = format!("workload.{}.", workload.name);
        all.totals(&prefix, &workload.totals);
        if let Some(completions) = &workload.completions {
            all.completions(&prefix, completions);
        }
    }
    for algorithm in result
        .algorithms
        .iter()
        .filter(|_| result.algorithms.len() > 1)
    {
        let name = algorithm.algorithm.as_deref().unwrap_or("uncontrolled");
        all.totals(&format!("algorithm.{name}."), &algorithm.totals);
    }
    for link in &m.links {
        let prefix = format!("link.{}.", link.name);
        all.add(&format!("{prefix}utilisation"), link.utilisation);
        all.add(&format!("{prefix}delay_mean_ms"), link.delay_mean_ms);
        all.add(&format!("{prefix}drops"), link.drops as f64);
        all.add(&format!("{prefix}marks"), link.marks as f64);
    }
    for bundle in &m.bundles {
        let prefix = format!("bundle.{}.", bundle.name);
        all.add(&format!("{prefix}open_share"), bundle.open_share);
        all.add(&format!("{prefix}delay_share"), bundle.delay_share);
        all.add(&format!("{prefix}passing_share"), bundle.passing_share);
        all.add(&format!("{prefix}box_queue_ms"), bundle.box_queue_ms);
        let network = bundle.network_queue_p50_ms;
        all.add(&format!("{prefix}network_queue_p50_ms"), network);
        let network = bundle.network_queue_p95_ms;
        all.add(&format!("{prefix}network_queue_p95_ms"), network);
        all.add(
            &format!("{prefix}out_of_order_share"),
            bundle.out_of_order_share,
        );
    }
    // On real packets, the load of the machine belongs to the result.
    if result.audit.simulation.is_none() {
        all.add("process_cpu_percent", result.host.process_cpu_percent);
        all.add("machine_cpu_percent", result.host.machine_cpu_percent);
    }
    all.0
}

/// Returns the longest time in which a compared flow without end received nothing in order, ms.
fn longest_stall_ms(result: &ContenderResult) -> Option<f64> {
    let flows = result.series.flows.iter().take(result.metrics.flows.len());
    let stalls = flows.map(|samples| longest_stall(samples.iter().map(|s| (s.at_ns, s.received))));
    stalls.max().map(|ns| ns as f64 / 1e6)
}

#[derive(Default)]
struct Columns(Metrics);

impl Columns {
    fn add(&mut self, name: &str, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.0.push((name.to_owned(), value));
        }
    }

    fn totals(&mut self, prefix: &str, totals: &WorkloadTotals) {
        self.add(&format!("{prefix}flows"), totals.count as f64);
        self.add(&format!("{prefix}goodput_mbit"), totals.goodput_mbit);
        self.add(&format!("{prefix}share"), totals.share);
        let retransmissions = totals.retransmissions.map(|n| n as f64);
        self.add(&format!("{prefix}retransmitted_segments"), retransmissions);
        self.add(&format!("{prefix}jain"), totals.jain);
    }

    fn completions(&mut self, prefix: &str, completions: &Completions) {
        let several = completions.classes.len() > 2;
        for class in &completions.classes {
            // The class of all flows has no name in its columns.
            if class.label == "all" {
                self.class(prefix, class);
            } else if several {
                self.class(&format!("{prefix}size.{}.", class.label), class);
            }
        }
        let unfinished = completions.unfinished as f64;
        self.add(&format!("{prefix}flows_unfinished"), unfinished);
    }

    fn class(&mut self, prefix: &str, class: &SizeClass) {
        self.add(&format!("{prefix}flows_completed"), class.flows as f64);
        if class.flows == 0 {
            return;
        }
        self.add(&format!("{prefix}completion_mean_ms"), class.mean_ms);
        self.add(&format!("{prefix}completion_p50_ms"), class.p50_ms);
        self.add(&format!("{prefix}completion_p99_ms"), class.p99_ms);
        self.add(&format!("{prefix}slowdown_mean"), class.slowdown_mean);
        self.add(&format!("{prefix}slowdown_p50"), class.slowdown_p50);
        self.add(&format!("{prefix}slowdown_p99"), class.slowdown_p99);
    }
}
