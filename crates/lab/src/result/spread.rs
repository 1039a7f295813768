//! How far a mean over several runs may be from the truth, and how that is known.

use serde::{Deserialize, Serialize};

/// What is said of the mean of several runs of a contender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeanInterval {
    /// The 95 % confidence interval by Student's t.
    #[default]
    StudentT,
    /// Two runs are too few for an interval: their mean stands with both values.
    Range,
    /// All runs gave the same figures.
    Same,
}

/// How far figures that are means may be off: for each column `C` of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread<C = Columns> {
    /// How many runs: seeds, or repeats.
    pub seeds: u64,
    /// What the numbers below are.
    #[serde(default)]
    pub interval: MeanInterval,
    /// Half the width of the interval or range.
    #[serde(flatten)]
    pub half: C,
    /// The lower end of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<C>,
    /// Its upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<C>,
}

/// A number for each column of a run's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    /// Of [`Figures::goodput_mbit`](super::ContenderMetrics::goodput_mbit).
    pub goodput_mbit: f64,
    /// Of [`Figures::utilisation`](super::ContenderMetrics::utilisation).
    pub utilisation: f64,
    /// Of [`Figures::delay_mean_ms`](super::ContenderMetrics::delay_mean_ms).
    pub delay_mean_ms: f64,
    /// Of [`Figures::delay_p50_ms`](super::ContenderMetrics::delay_p50_ms).
    pub delay_p50_ms: f64,
    /// Of [`Figures::delay_p95_ms`](super::ContenderMetrics::delay_p95_ms).
    pub delay_p95_ms: f64,
    /// Of [`Figures::delay_p99_ms`](super::ContenderMetrics::delay_p99_ms).
    pub delay_p99_ms: f64,
    /// Of [`Figures::retransmissions`](super::ContenderMetrics::retransmissions).
    #[serde(rename = "retransmitted_segments")]
    pub retransmissions: f64,
    /// Of [`Figures::queue_drops`](super::ContenderMetrics::queue_drops).
    pub queue_drops: f64,
    /// Of [`Figures::jain`](super::ContenderMetrics::jain).
    pub jain: f64,
}

/// A number for each column of a workload's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsColumns {
    /// Of [`Totals::count`](super::WorkloadTotals::count).
    pub count: f64,
    /// Of [`Totals::goodput_mbit`](super::WorkloadTotals::goodput_mbit).
    pub goodput_mbit: f64,
    /// Of [`Totals::share`](super::WorkloadTotals::share).
    pub share: f64,
    /// Of [`Totals::retransmissions`](super::WorkloadTotals::retransmissions).
    #[serde(rename = "retransmitted_segments")]
    pub retransmissions: f64,
    /// Of [`Totals::jain`](super::WorkloadTotals::jain).
    pub jain: f64,
}

/// One of several runs of a contender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EachRun {
    /// Its seed, or its number among the repeats.
    pub seed: u64,
    /// Its figures.
    pub figures: Columns,
}
