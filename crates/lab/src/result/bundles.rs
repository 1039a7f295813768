//! Results of bundles.

use serde::{Deserialize, Serialize};

use crate::metrics::Distribution;

/// Metrics of a bundle in a run. With several seeds they are means, except for `changes`, which
/// belong to the first seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BundleMetrics {
    /// Name: `site a -> site b`
    pub name: String,
    /// Share of the time without a rate limit.
    pub open_share: f64,
    /// Share of the time in delay mode, in which the rate keeps the network's queue short.
    pub delay_share: f64,
    /// Share of the time in pass-through mode.
    pub passing_share: f64,
    /// Mean queueing delay in the sendbox at its current rate, while it has a limit; absent if it
    /// never has one.
    pub box_queue_ms: Option<f64>,
    /// The same in pass-through mode.
    pub passing_queue_ms: Option<f64>,
    /// Median of the RTT above its minimum: the network's queueing delay.
    pub network_queue_p50_ms: f64,
    /// 95th percentile.
    pub network_queue_p95_ms: f64,
    /// Packets that arrived at the receivebox.
    pub arrived: u64,
    /// Packets that did not arrive.
    pub missing: u64,
    /// Packets dropped by the sendbox's queue.
    pub dropped: u64,
    /// Share of the arrived packets that were out of order.
    pub out_of_order_share: f64,
    /// Changes of mode.
    pub changes: Vec<BundleChange>,
}

/// Change of mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BundleChange {
    /// Time of the change, s.
    pub at_s: f64,
    /// New mode: `open`, `delay` or `passing`.
    pub to: String,
    /// Reason, in a word.
    pub why: String,
}

/// Sample of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BundleSample {
    /// Time, ns.
    pub at_ns: u64,
    /// Mode: 0 open, 1 delay, 2 pass-through.
    pub mode: u8,
    /// Rate limit, Mbit/s; 0 without a limit.
    pub limit_mbit: f64,
    /// Receive rate at the receivebox, Mbit/s.
    pub received_mbit: f64,
    /// Bytes queued in the sendbox.
    pub waiting_bytes: u64,
    /// RTT, ms. `min_rtt_ms`: its minimum over ten seconds.
    pub rtt_ms: f64,
    /// Minimum RTT over ten seconds, ms.
    pub min_rtt_ms: f64,
    /// The algorithm's η; 0 if it reports none.
    pub eta: f64,
    /// The algorithm's estimate of the capacity, Mbit/s.
    pub capacity_mbit: f64,
    /// The algorithm's estimate of the cross traffic, Mbit/s.
    pub cross_mbit: f64,
    /// Ideal `rtt_ms`, if every packet were answered: from the drawn link's log, for the last
    /// packet whose answer would have arrived by now. 0 if unknown: before the first packet, or if
    /// the bundle does not cross that link.
    #[serde(default)]
    pub actual_rtt_ms: f64,
    /// Ideal `received_mbit`, over one such RTT. It includes all traffic of the drawn link, so it
    /// is the bundle's own rate only if there is no other traffic.
    #[serde(default)]
    pub actual_received_mbit: f64,
}

impl BundleSample {
    /// Returns the queueing delay in the sendbox at its current rate, ms; `None` without a rate
    /// limit.
    pub fn box_queue_ms(&self) -> Option<f64> {
        (self.limit_mbit > 0.0).then(|| self.waiting_bytes as f64 * 8.0 / 1e3 / self.limit_mbit)
    }

    /// Returns the queueing delay that the sendbox's queue would have at the estimated capacity,
    /// ms; `None` without an estimate.
    pub fn link_queue_ms(&self) -> Option<f64> {
        (self.capacity_mbit > 0.0)
            .then(|| self.waiting_bytes as f64 * 8.0 / 1e3 / self.capacity_mbit)
    }

    /// Returns the RTT above its minimum, the network's queueing delay, ms; `None` without an RTT.
    pub fn network_queue_ms(&self) -> Option<f64> {
        (self.min_rtt_ms > 0.0).then(|| (self.rtt_ms - self.min_rtt_ms).max(0.0))
    }
}

impl BundleMetrics {
    /// Fills in the values that are computed from samples.
    #[must_use]
    pub fn with_samples(self, samples: &[BundleSample]) -> BundleMetrics {
        let share = |mode: u8| {
            let of_it = samples.iter().filter(|sample| sample.mode == mode).count();
            of_it as f64 / samples.len().max(1) as f64
        };
        let mean = |modes: &[u8]| {
            let queues = samples.iter().filter(|sample| modes.contains(&sample.mode));
            Distribution::new(queues.filter_map(BundleSample::box_queue_ms)).mean()
        };
        let network = Distribution::new(samples.iter().filter_map(BundleSample::network_queue_ms));
        BundleMetrics {
            open_share: share(0),
            delay_share: share(1),
            passing_share: share(2),
            box_queue_ms: mean(&[1, 2]),
            passing_queue_ms: mean(&[2]),
            network_queue_p50_ms: network.quantile(0.5).unwrap_or(0.0),
            network_queue_p95_ms: network.quantile(0.95).unwrap_or(0.0),
            ..self
        }
    }

    /// Returns the means over several runs of one bundle.
    pub(crate) fn mean_of(runs: &[&BundleMetrics]) -> BundleMetrics {
        let Some(first) = runs.first() else {
            return BundleMetrics::default();
        };
        let mean = |value: fn(&BundleMetrics) -> Option<f64>| {
            Distribution::new(runs.iter().filter_map(|run| value(run))).mean()
        };
        let plain = |value: fn(&BundleMetrics) -> Option<f64>| mean(value).unwrap_or(0.0);
        let count = |value: fn(&BundleMetrics) -> u64| {
            let all: u64 = runs.iter().map(|run| value(run)).sum();
            (all as f64 / runs.len() as f64).round() as u64
        };
        BundleMetrics {
            name: first.name.clone(),
            open_share: plain(|f| Some(f.open_share)),
            delay_share: plain(|f| Some(f.delay_share)),
            passing_share: plain(|f| Some(f.passing_share)),
            box_queue_ms: mean(|f| f.box_queue_ms),
            passing_queue_ms: mean(|f| f.passing_queue_ms),
            network_queue_p50_ms: plain(|f| Some(f.network_queue_p50_ms)),
            network_queue_p95_ms: plain(|f| Some(f.network_queue_p95_ms)),
            arrived: count(|f| f.arrived),
            missing: count(|f| f.missing),
            dropped: count(|f| f.dropped),
            out_of_order_share: plain(|f| Some(f.out_of_order_share)),
            changes: first.changes.clone(),
        }
    }
}
