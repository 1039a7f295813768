//! What a site's boxes did.

use serde::{Deserialize, Serialize};

use crate::metrics::Distribution;

/// A bundle in a run; where there are several seeds, all are means over them but the changes, which
/// are the first one's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BundleFigures {
    /// `site a -> site b`
    pub name: String,
    /// Share of the time without a limit.
    pub open_share: f64,
    /// Share of the time in which its rate kept the network's queue short.
    pub delay_share: f64,
    /// Share of the time in which it let traffic pass.
    pub passing_share: f64,
    /// Mean time that its queue is long, at the rate at which it lets go, while it is limited;
    /// absent where it never is.
    pub box_queue_ms: Option<f64>,
    /// The same while it lets traffic pass.
    pub passing_queue_ms: Option<f64>,
    /// Median of the RTT above its least, which is the network's queue.
    pub network_queue_p50_ms: f64,
    /// 95th percentile.
    pub network_queue_p95_ms: f64,
    /// Packets that arrived at the other side.
    pub arrived: u64,
    /// Packets that did not.
    pub missing: u64,
    /// Packets that its queue dropped.
    pub dropped: u64,
    /// Packets out of order, of those that arrived.
    pub out_of_order_share: f64,
    /// Every change of mode.
    pub changes: Vec<BundleChange>,
}

/// A change of mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BundleChange {
    /// When, seconds.
    pub at_s: f64,
    /// `open`, `delay` or `passing`.
    pub to: String,
    /// Why, in a word.
    pub why: String,
}

/// A look at a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BundleSample {
    /// When, ns.
    pub at_ns: u64,
    /// 0 open, 1 delay, 2 passing.
    pub mode: u8,
    /// The limit, Mbit/s; 0 without.
    pub limit_mbit: f64,
    /// What arrives, Mbit/s.
    pub received_mbit: f64,
    /// What waits in the box, bytes.
    pub waiting_bytes: u64,
    /// RTT, and the least of ten seconds, ms.
    pub rtt_ms: f64,
    /// See `rtt_ms`.
    pub min_rtt_ms: f64,
    /// η as the algorithm says it; 0 where it says none.
    pub eta: f64,
    /// The capacity as the algorithm estimates it, Mbit/s.
    pub capacity_mbit: f64,
    /// The cross traffic, likewise.
    pub cross_mbit: f64,
    /// What `rtt_ms` would be now if every packet were answered: by the log of the drawn link, of
    /// the last packet that would have been answered by now. 0 where it is not known: before the
    /// first, or where the bundle does not cross that link.
    #[serde(default)]
    pub actual_rtt_ms: f64,
    /// What `received_mbit` would be then, over one such RTT. It is of all that crosses the drawn
    /// link, so it is the bundle's where nobody else does.
    #[serde(default)]
    pub actual_received_mbit: f64,
}

impl BundleSample {
    /// How long the box' queue is at the rate at which it lets go, ms; `None` where there is no
    /// limit.
    pub fn box_queue_ms(&self) -> Option<f64> {
        (self.limit_mbit > 0.0).then(|| self.waiting_bytes as f64 * 8.0 / 1e3 / self.limit_mbit)
    }

    /// How long the box' queue is at the link's capacity, as the algorithm knows it, ms; `None`
    /// where it knows none.
    pub fn link_queue_ms(&self) -> Option<f64> {
        (self.capacity_mbit > 0.0)
            .then(|| self.waiting_bytes as f64 * 8.0 / 1e3 / self.capacity_mbit)
    }

    /// The RTT above its least, which is the network's queue, ms; `None` where no RTT is known.
    pub fn network_queue_ms(&self) -> Option<f64> {
        (self.min_rtt_ms > 0.0).then(|| (self.rtt_ms - self.min_rtt_ms).max(0.0))
    }
}

impl BundleFigures {
    /// Takes what the samples say.
    #[must_use]
    pub fn of_samples(self, samples: &[BundleSample]) -> BundleFigures {
        let share = |mode: u8| {
            let of_it = samples.iter().filter(|sample| sample.mode == mode).count();
            of_it as f64 / samples.len().max(1) as f64
        };
        let mean = |modes: &[u8]| {
            let queues = samples.iter().filter(|sample| modes.contains(&sample.mode));
            Distribution::new(queues.filter_map(BundleSample::box_queue_ms)).mean()
        };
        let network = Distribution::new(samples.iter().filter_map(BundleSample::network_queue_ms));
        BundleFigures {
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

    /// Means over several runs of one bundle.
    pub(crate) fn over(runs: &[&BundleFigures]) -> BundleFigures {
        let Some(first) = runs.first() else {
            return BundleFigures::default();
        };
        let mean = |value: fn(&BundleFigures) -> Option<f64>| {
            Distribution::new(runs.iter().filter_map(|run| value(run))).mean()
        };
        let plain = |value: fn(&BundleFigures) -> Option<f64>| mean(value).unwrap_or(0.0);
        let count = |value: fn(&BundleFigures) -> u64| {
            let all: u64 = runs.iter().map(|run| value(run)).sum();
            (all as f64 / runs.len() as f64).round() as u64
        };
        BundleFigures {
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
