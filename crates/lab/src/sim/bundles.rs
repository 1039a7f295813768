//! Bundles of a scenario in the simulator: how they are made, and what is seen of them.

use ccplane_bundle::{Marks, Mode, SendboxConfig, Status};
use ccplane_sim::{BundleId, BundleSpec, World};
use ccplane_units::{Duration, Rate, Time};

use super::one::{Controls, Job};
use super::plan;
use crate::error::Error;
use crate::result::{BundleChange, BundleFigures, BundleSample};

impl Job<'_> {
    /// Adds every bundle.
    pub(super) fn add_bundles<'j>(
        &'j self,
        sim: &mut World,
        controls: &mut Controls<'j>,
        seed: u64,
    ) -> Result<Vec<BundleId>, Error> {
        let mut ids = Vec::with_capacity(self.scenario.bundles.len());
        for (index, bundle) in self.scenario.bundles.iter().enumerate() {
            let node = |name| plan::node(self.scenario, &self.plan.network, name).map_err(Error::Scenario);
            let (from, to) = (node(&bundle.from)?, node(&bundle.to)?);
            let agent = controls.of_bundle(sim, bundle.algorithm.as_ref())?;
            let own = SendboxConfig::default();
            let sendbox = SendboxConfig {
                queue: bundle.queue.unwrap_or(own.queue),
                mtu: plan::mtu(self.scenario) + bundle.overhead,
                min: bundle.min.unwrap_or(own.min),
                max: bundle.max.unwrap_or(own.max),
                marks: if bundle.by_hash { Marks::Hash } else { Marks::Counter },
                observe: bundle.observe || agent.is_none(),
                seed: seed.wrapping_add(index as u64),
            };
            let spec = BundleSpec {
                from,
                to,
                agent,
                sendbox,
                overhead: bundle.overhead,
            };
            let id = sim.add_bundle(spec).map_err(|error| {
                let text = error.to_string();
                let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
                Error::Scenario(
                    self.scenario
                        .source()
                        .problem(bundle.span.clone(), what, "this bundle", fix),
                )
            })?;
            ids.push(id);
        }
        Ok(ids)
    }
}

/// A look at a bundle.
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
            Mode::Open => 0,
            Mode::Delay => 1,
            Mode::Passing => 2,
        },
        limit_mbit: status.rate.map_or(0.0, mbit),
        received_mbit: mbit(status.seen.received),
        waiting_bytes: status.backlog.bytes,
        rtt_ms: ms(status.seen.rtt),
        min_rtt_ms: ms(status.seen.min_rtt),
        eta: gauge("eta"),
        capacity_mbit: gauge("capacity") * 8.0 / 1e6,
        cross_mbit: gauge("cross") * 8.0 / 1e6,
    })
}

/// What a bundle did in a run; what came before `warm` is not in shares and delays.
pub(super) fn figures(
    sim: &World,
    bundle: BundleId,
    name: String,
    samples: &[BundleSample],
    warm: Duration,
) -> BundleFigures {
    let Some(Status { totals, .. }) = sim.bundle(bundle) else {
        return BundleFigures::default();
    };
    let changes = sim.bundle_changes(bundle).iter().map(|change| BundleChange {
        at_s: change.at.since(Time::ZERO).as_secs_f64(),
        to: change.to.name().to_owned(),
        why: change.reason.name().to_owned(),
    });
    let counted = samples.partition_point(|sample| sample.at_ns < warm.as_nanos());
    BundleFigures {
        name,
        arrived: totals.arrived,
        missing: totals.missing,
        dropped: totals.dropped,
        out_of_order_share: totals.out_of_order as f64 / totals.arrived.max(1) as f64,
        changes: changes.collect(),
        ..BundleFigures::default()
    }
    .of_samples(&samples[counted..])
}

fn mbit(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64 / 1e6
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
