//! Uncertainty of means over several runs.

use serde::{Deserialize, Serialize};

/// Kind of interval of the mean over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeanInterval {
    /// 95 % confidence interval of Student's t.
    #[default]
    StudentT,
    /// Range of both values: two runs are too few for a confidence interval.
    Range,
    /// All runs have equal metrics.
    Same,
}

/// Uncertainty of metrics that are means, for each column of a table `C`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread<C = Columns> {
    /// Number of runs (seeds or repeats).
    pub seeds: u64,
    /// Kind of the intervals below.
    #[serde(default)]
    pub interval: MeanInterval,
    /// Half of the width of the interval or range.
    #[serde(flatten)]
    pub half: C,
    /// Lower end of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<C>,
    /// Upper end of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<C>,
}

/// One value per column of a run's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    /// Column of [`goodput_mbit`](super::ContenderMetrics::goodput_mbit).
    pub goodput_mbit: f64,
    /// Column of [`utilisation`](super::ContenderMetrics::utilisation).
    pub utilisation: f64,
    /// Column of [`delay_mean_ms`](super::ContenderMetrics::delay_mean_ms).
    pub delay_mean_ms: f64,
    /// Column of [`delay_p50_ms`](super::ContenderMetrics::delay_p50_ms).
    pub delay_p50_ms: f64,
    /// Column of [`delay_p95_ms`](super::ContenderMetrics::delay_p95_ms).
    pub delay_p95_ms: f64,
    /// Column of [`delay_p99_ms`](super::ContenderMetrics::delay_p99_ms).
    pub delay_p99_ms: f64,
    /// Column of [`retransmissions`](super::ContenderMetrics::retransmissions).
    #[serde(rename = "retransmitted_segments")]
    pub retransmissions: f64,
    /// Column of [`queue_drops`](super::ContenderMetrics::queue_drops).
    pub queue_drops: f64,
    /// Column of [`jain`](super::ContenderMetrics::jain).
    pub jain: f64,
}

/// One value per column of a workload's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsColumns {
    /// Column of [`count`](super::WorkloadTotals::count).
    pub count: f64,
    /// Column of [`goodput_mbit`](super::WorkloadTotals::goodput_mbit).
    pub goodput_mbit: f64,
    /// Column of [`share`](super::WorkloadTotals::share).
    pub share: f64,
    /// Column of [`retransmissions`](super::WorkloadTotals::retransmissions).
    #[serde(rename = "retransmitted_segments")]
    pub retransmissions: f64,
    /// Column of [`jain`](super::WorkloadTotals::jain).
    pub jain: f64,
}

/// One of several runs of a contender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EachRun {
    /// Seed, or number of the repeat.
    pub seed: u64,
    /// Metrics of the run.
    #[serde(rename = "figures")]
    pub metrics: Columns,
}
