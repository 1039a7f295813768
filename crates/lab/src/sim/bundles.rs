//! Bundles in the simulator: creation and samples.

use ccplane_bundle::{
    PacketNumbering, RATE_AVERAGING_TIME_MAX, SendboxConfig, SendboxMode, Status,
};
use ccplane_sim::{BundleId, BundleSpec, LinkId, World};
use ccplane_units::{Bytes, Duration, Rate, Time};

use super::job::{Job, RunControls};
use crate::error::Error;
use crate::result::{BundleChange, BundleMetrics, BundleSample};

impl Job<'_> {
    /// Adds all bundles of the scenario.
    pub(super) fn add_bundles<'j>(
        &'j self,
        sim: &mut World,
        controls: &mut RunControls<'j>,
        seed: u64,
    ) -> Result<Vec<BundleId>, Error> {
        let mut ids = Vec::with_capacity(self.scenario.bundles.len());
        let bundles = self.scenario.bundles.iter().zip(&self.plan.bundles);
        for ((bundle, (from, to)), index) in bundles.zip(0..) {
            let agent = controls.bundle_agent(sim, bundle.algorithm.as_ref())?;
            let own = SendboxConfig::default();
            let sendbox = SendboxConfig {
                queue: bundle.queues(SendboxConfig::QUEUE),
                mtu: self.scenario.mtu() + bundle.overhead,
                min_rate: bundle.min_rate.unwrap_or(own.min_rate),
                max_rate: bundle.max_rate.unwrap_or(own.max_rate),
                numbering: if bundle.by_hash {
                    PacketNumbering::Hash
                } else {
                    PacketNumbering::Counter
                },
                observe_only: bundle.observe_only || agent.is_none(),
                seed: seed.wrapping_add(index),
            };
            let spec = BundleSpec {
                from: *from,
                to: *to,
                agent,
                sendbox,
                overhead: bundle.overhead,
            };
            let id = sim.add_bundle(spec).map_err(|error| {
                let source = self.scenario.source();
                Error::Scenario(source.problem_from_error(
                    bundle.span.clone(),
                    "this bundle",
                    &error,
                ))
            })?;
            ids.push(id);
        }
        Ok(ids)
    }
}

/// Samples a bundle.
pub(super) fn sample(sim: &World, bundle: BundleId, now: u64) -> Option<BundleSample> {
    let status = sim.bundle(bundle)?;
    let gauges = sim.bundle_gauges(bundle);
    let gauge = |name: &str| {
        let named = gauges.iter().find(|(known, _)| *known == name);
        named.map_or(0.0, |(_, value)| *value)
    };
    Some(BundleSample {
        at_ns: now,
        mode: match status.mode {
            SendboxMode::Open => 0,
            SendboxMode::Delay => 1,
            SendboxMode::PassThrough => 2,
        },
        limit_mbit: status.rate.map_or(0.0, mbit),
        received_mbit: mbit(status.path.received),
        waiting_bytes: status.backlog.bytes,
        rtt_ms: ms(status.path.rtt),
        min_rtt_ms: ms(status.path.min_rtt),
        eta: gauge("eta"),
        capacity_mbit: gauge("capacity") * 8.0 / 1e6,
        cross_mbit: gauge("cross") * 8.0 / 1e6,
        ..BundleSample::default()
    })
}

/// Fills in the values that the bundle would have measured at each sample if every packet were
/// answered, from this link's log. The packet answered now left the link's queue earlier by the
/// remaining forward delay plus the delay of the answer.
pub(super) fn fill_actual(
    sim: &World,
    bundle: BundleId,
    link: LinkId,
    samples: &mut [BundleSample],
) {
    let Some(way) = sim.bundle_base_delays(bundle, link) else {
        return;
    };
    let crossings = sim.crossings(link);
    // Cumulative bytes up to each crossing. The log is ordered by departure even if packets
    // overtake each other.
    let before: Vec<u64> = crossings
        .iter()
        .scan(0, |sum, crossing| {
            *sum += u64::from(crossing.bytes);
            Some(*sum)
        })
        .collect();
    let left_by =
        |ns: u64| crossings.partition_point(|crossing| crossing.departure.as_nanos() <= ns);
    let bytes_by = |count: usize| {
        count
            .checked_sub(1)
            .and_then(|last| before.get(last))
            .map_or(0, |bytes| *bytes)
    };
    for sample in samples {
        let Some(left) = sample
            .at_ns
            .checked_sub((way.after_queue + way.backward).as_nanos())
        else {
            continue;
        };
        let count = left_by(left);
        let Some(last) = count.checked_sub(1).and_then(|last| crossings.get(last)) else {
            continue;
        };
        let rtt = way.forward + way.backward + last.sojourn;
        let over = rtt.min(RATE_AVERAGING_TIME_MAX);
        let bytes = bytes_by(count) - bytes_by(left_by(left.saturating_sub(over.as_nanos())));
        sample.actual_rtt_ms = ms(rtt);
        sample.actual_received_mbit = mbit(Rate::from_bytes_over(Bytes::new(bytes), over));
    }
}

/// Returns the metrics of a bundle. Shares and delays exclude the time before `warm`.
pub(super) fn bundle_metrics(
    sim: &World,
    bundle: BundleId,
    name: String,
    samples: &[BundleSample],
    warm: Duration,
) -> BundleMetrics {
    let Some(Status { totals, .. }) = sim.bundle(bundle) else {
        return BundleMetrics::default();
    };
    let changes = sim
        .bundle_changes(bundle)
        .iter()
        .map(|change| BundleChange {
            at_s: change.at.since(Time::ZERO).as_secs_f64(),
            to: change.to.name().to_owned(),
            why: change.reason.name().to_owned(),
        });
    let counted = samples.partition_point(|sample| sample.at_ns < warm.as_nanos());
    BundleMetrics {
        name,
        arrived: totals.received,
        missing: totals.missing,
        dropped: totals.dropped,
        out_of_order_share: totals.out_of_order as f64 / totals.received.max(1) as f64,
        changes: changes.collect(),
        ..BundleMetrics::default()
    }
    .with_samples(&samples[counted..])
}

fn mbit(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64 / 1e6
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
