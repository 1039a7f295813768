//! Connection metrics: samples of live flows, taken once a second, and the totals that the kernel
//! accumulates when flows end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ccplane_agent::Agent;
use ccplane_linux::{
    Arms, BUCKET_COUNT, CALLBACK_TIME_BASE, ConnectionTotals, Histogram, Observer, PinnedView,
};
use ccplane_units::Duration;

use crate::exceptions::{Exceptions, LastCounts};
use crate::metrics::{self, AgentStats, ConnectionStats};

/// Samples of one process during its lifetime.
pub(super) struct Samples {
    algorithms: Vec<AlgorithmSamples>,
    arms: Option<Arms>,
    fallback_after: Duration,
    exceptions: Exceptions,
}

struct AlgorithmSamples {
    name: String,
    /// Samples of live flows.
    live_samples: ConnectionTotals,
    /// Last exported values. A flow that ends during a scrape is in neither sum, yet counters must
    /// not decrease.
    exported: ConnectionTotals,
    callbacks: Option<Arc<Callbacks>>,
}

impl Samples {
    /// Creates the samples of these congestion controls, with callback times if the callbacks run
    /// in this process.
    pub fn new(
        algorithms: impl Iterator<Item = (String, Option<Arc<Callbacks>>)>,
        arms: Option<Arms>,
        fallback_after: Duration,
        exceptions: Exceptions,
    ) -> Samples {
        let algorithm = |(name, callbacks)| AlgorithmSamples {
            name,
            live_samples: ConnectionTotals::default(),
            exported: ConnectionTotals::default(),
            callbacks,
        };
        Samples {
            algorithms: algorithms.map(algorithm).collect(),
            arms,
            fallback_after,
            exceptions,
        }
    }

    /// Returns the comparison arms of rules with a share.
    pub fn arms(&self) -> Option<&Arms> {
        self.arms.as_ref()
    }

    /// Samples every live flow once.
    pub fn sample(&mut self, observed: &[PinnedView]) {
        for algorithm in &mut self.algorithms {
            let flows = observed
                .iter()
                .filter(|o| o.name() == algorithm.name)
                .flat_map(PinnedView::flows);
            flows.for_each(|flow| {
                algorithm
                    .live_samples
                    .add_sample(flow.srtt, flow.delivered_rate)
            });
        }
        if let Some(Err(error)) = self.arms.as_ref().map(Arms::sample) {
            tracing::debug!("cannot sample the watched connections: {error}");
        }
    }

    /// Adds the metrics to a scrape.
    pub fn add_metrics(
        &mut self,
        observed: &[PinnedView],
        registry: &mut prometheus_client::registry::Registry,
    ) -> Result<(), String> {
        let (silence, mut stats) = (self.fallback_after, Vec::new());
        for observed in observed {
            if let Some(algorithm) = self
                .algorithms
                .iter_mut()
                .find(|a| a.name == observed.name())
            {
                let exceptions = self.exceptions.get(observed.name());
                stats.push(ConnectionStats {
                    exceptions,
                    ..algorithm.stats(observed, silence)
                });
            }
        }
        let arms = self.arms.as_ref().map(Arms::read_totals).transpose();
        let arms = arms.map_err(|error| error.to_string())?.unwrap_or_default();
        metrics::add_connections(registry, &stats, &arms);
        Ok(())
    }
}

impl AlgorithmSamples {
    fn stats(&mut self, observed: &PinnedView, limit: Duration) -> ConnectionStats {
        // The order matters: a flow that ends in between is missed by this scrape and counted by
        // the next, never counted twice.
        let mut totals = observed.ended_totals().merged(&self.live_samples);
        for flow in observed.flows() {
            totals.add_counters(flow.acked, flow.retransmits, flow.lost);
        }
        totals.acked = totals.acked.max(self.exported.acked);
        totals.retransmits = totals.retransmits.max(self.exported.retransmits);
        totals.lost = totals.lost.max(self.exported.lost);
        self.exported = totals;
        let silence = (!observed.is_standalone()).then(|| observed.heartbeat_age());
        ConnectionStats {
            algorithm: self.name.clone(),
            totals,
            agent: silence.map(|silence| AgentStats {
                heartbeat_age: silence.to_std(),
                up: silence <= limit,
            }),
            callbacks: self.callbacks.as_ref().map(|callbacks| callbacks.read()),
            exceptions: None,
        }
    }
}

/// Callback times of an algorithm, written by its thread and read by another.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    counts: [AtomicU64; BUCKET_COUNT],
    sum_ns: AtomicU64,
}

impl Callbacks {
    fn read(&self) -> Histogram {
        Histogram {
            counts: std::array::from_fn(|i| self.counts[i].load(Relaxed)),
            sum: self.sum_ns.load(Relaxed),
        }
    }
}

/// Counts callback times and exceptions.
pub(super) struct CallbackObserver {
    callbacks: Arc<Callbacks>,
    exceptions: Exceptions,
    last: LastCounts,
}

impl CallbackObserver {
    pub fn new(callbacks: Arc<Callbacks>, exceptions: Exceptions) -> CallbackObserver {
        let last = LastCounts::default();
        CallbackObserver {
            callbacks,
            exceptions,
            last,
        }
    }
}

impl Observer for CallbackObserver {
    fn on_callbacks(&mut self, took: Duration, agent: &Agent) {
        let bucket = Histogram::bucket(CALLBACK_TIME_BASE, took.as_nanos());
        self.callbacks.counts[bucket].fetch_add(1, Relaxed);
        self.callbacks.sum_ns.fetch_add(took.as_nanos(), Relaxed);
        self.last
            .changes(agent, |name, count| self.exceptions.set(name, count));
    }
}
