//! A [`Place`]: the simulator, in virtual time. A run is a function of scenario, contender and seed
//! alone.

mod bundles;
mod episode;
mod instant;
mod look;
mod one;
mod plan;
mod stamps;

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_qdisc::Limit;
use ccplane_sim::{Carrier, Workload};
use ccplane_units::{Duration, Rate};

use crate::contender::Contender;
use crate::error::Error;
use crate::progress::Progress;
use crate::result::{ContenderResult, Setup};
use crate::run::{Place, Prepared};
use crate::scenario::{Kind, Scenario, Seeds};
pub use episode::Episode;
use one::Job;
pub use one::{broken, mixture, native};
pub use plan::switched_on;
pub use plan::{Pairs, Plan, second_loop};
pub use stamps::put_stamps;

/// The simulator: virtual time, as many runs at once as there are threads.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    /// A folder for the packets of the drawn link, a pcapng file a run; `None` keeps none, and
    /// costs nothing.
    pub packet_logs: Option<PathBuf>,
}

impl Place for Sim {
    fn prepare<'s>(
        &'s self,
        scenario: &'s Scenario,
        registry: &'s Registry,
    ) -> Result<Box<dyn Prepared + 's>, Error> {
        check(scenario, registry)?;
        let plan = Plan::new(scenario).map_err(Error::Scenario)?;
        // Bins are one round trip wide, as on real packets, but not narrower than there are looks.
        let bin = plan.rtt.max(scenario.sample_every);
        Ok(Box::new(Job {
            scenario,
            plan,
            registry,
            bin,
            packet_logs: self.packet_logs.as_deref(),
        }))
    }

    fn is_real(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "simulator"
    }
}

impl Prepared for Job<'_> {
    fn setup(&self) -> Setup {
        setup(self.scenario, &self.plan, "simulator", self.bin)
    }

    /// A panic is an error that says how to see it again.
    fn run(
        &self,
        contender: Option<&Contender>,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<ContenderResult, Error> {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            self.simulate(contender, seed, progress)
        }));
        outcome.unwrap_or_else(|payload| {
            let text = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            Err(broken(format!("it panicked: {}", text.unwrap_or_default())))
        })
    }
}

/// Virtual time in all runs together.
pub fn virtual_time(scenario: &Scenario, seeds: Seeds) -> Duration {
    let runs = seeds
        .count()
        .saturating_mul(scenario.contenders.len().max(1) as u64);
    Duration::from_nanos(scenario.duration.as_nanos().saturating_mul(runs))
}

/// Whether the simulator's transport has a control of this name.
pub fn known_control(name: &str) -> Result<(), Error> {
    one::native(name).map(drop)
}

/// Every algorithm that the scenario names, before anything runs.
fn check(scenario: &Scenario, registry: &Registry) -> Result<(), Error> {
    let own = scenario
        .workloads
        .iter()
        .filter_map(|workload| workload.algorithm.as_ref());
    let boxes = scenario
        .bundles
        .iter()
        .filter_map(|bundle| bundle.algorithm.as_ref());
    let all = scenario.contenders.iter().chain(own).chain(boxes);
    for contender in all.chain(scenario.hosts_of_bundles()) {
        match contender {
            Contender::Native { name } => drop(one::native(name)?),
            Contender::Ccplane { name, parameters } => {
                let parameters = parameters
                    .iter()
                    .fold(Parameters::new(), |all, (name, value)| {
                        all.with(name, value)
                    });
                registry.by_name(name, &parameters)?;
            }
        }
    }
    Ok(())
}

/// What a result says of a scenario, wherever it runs; seeds are added where they are known.
pub fn setup(scenario: &Scenario, plan: &Plan, datapath: &str, bin: Duration) -> Setup {
    let main = plan.network.spec(plan.main);
    let line = main.map(|spec| spec.line.clone());
    let rate = line
        .and_then(|line| line.mean_rate())
        .unwrap_or(Rate::from_bytes_per_sec(0));
    let rtt = plan.rtt;
    let limit = main.and_then(|spec| spec.queue.limit(Some(rate), spec.rtt, spec.mtu).ok());
    let lasting = |w: &crate::scenario::Workload| match w.kind {
        Kind::Of(Workload::Bulk {
            flows, bytes: None, ..
        }) => Some(flows as usize),
        Kind::Of(Workload::Paced {
            carrier: Carrier::Stream { .. },
            ..
        }) => Some(1),
        _ => None,
    };
    let ours =
        |w: &crate::scenario::Workload| w.algorithm.is_none() || scenario.contenders.is_empty();
    Setup {
        datapath: datapath.to_owned(),
        network: plan.name.clone(),
        link: plan
            .name
            .as_ref()
            .map(|_| plan.network.link_name(plan.main)),
        rate: plan.line_name.clone().unwrap_or_else(|| rate.to_string()),
        rate_mbit: rate.bytes_per_sec() as f64 * 8.0 / 1e6,
        rtt_ms: rtt.as_secs_f64() * 1e3,
        queue: main.map_or(String::new(), |spec| spec.queue.to_string()),
        queue_bytes: limit.and_then(|limit| match limit {
            Limit::Bytes(bytes) => Some(bytes),
            Limit::Packets(packets) => {
                Some(packets.saturating_mul(u64::from(main.map_or(1500, |spec| spec.mtu))))
            }
            Limit::Unlimited => None,
        }),
        bdp_bytes: rate.bytes_in(rtt).get(),
        loss: main.map_or(String::new(), |spec| spec.loss.to_string()),
        flows: scenario
            .workloads
            .iter()
            .enumerate()
            .filter(|(_, w)| ours(w))
            .filter_map(|(index, w)| Some(lasting(w)? * plan.pairs.get(index)?.count()))
            .sum(),
        duration_s: scenario.duration.as_secs_f64(),
        bin_ms: bin.as_nanos() as f64 / 1e6,
        sample_ms: scenario.sample_every.as_nanos() as f64 / 1e6,
        ..Setup::default()
    }
}
