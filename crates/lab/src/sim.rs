//! The simulator, in virtual time: a [`Backend`] whose runs are a function of scenario, contender
//! and seed alone.

mod bundles;
mod episode;
mod job;
mod sampling;
mod stamps;

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;

use ccplane_algorithms::Registry;
use ccplane_units::Duration;

use crate::contender::Contender;
use crate::error::Error;
use crate::progress::Progress;
use crate::result::{ContenderResult, Setup};
use crate::run::{Backend, PreparedRun};
use crate::scenario::{Scenario, Seeds};
pub use episode::Episode;
use job::Job;
pub use job::broken;
pub use stamps::{put_stamps, stamp_model};

/// Simulator backend. It makes as many runs in parallel as there are threads.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    /// Folder for pcapng files of the drawn link's packets, one per run; `None` writes none.
    pub packet_logs: Option<PathBuf>,
}

impl Backend for Sim {
    fn prepare<'s>(
        &'s self,
        scenario: &'s Scenario,
        registry: &'s Registry,
    ) -> Result<Box<dyn PreparedRun + 's>, Error> {
        let mut job = Job::new(scenario, registry)?;
        // Bins are one RTT wide, as on real packets, but not narrower than the sample interval.
        job.bin = job.plan.rtt.max(scenario.sample_every);
        job.packet_logs = self.packet_logs.as_deref();
        Ok(Box::new(job))
    }

    fn is_real(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "simulator"
    }
}

impl PreparedRun for Job<'_> {
    fn setup(&self) -> Setup {
        Setup::new(self.scenario, &self.plan, "simulator", self.bin)
    }

    /// Makes one run. A panic becomes an error with the command that reproduces it.
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
            Err(broken(format!(
                "the simulation panicked: {}",
                text.unwrap_or_default()
            )))
        })
    }
}

/// Returns the virtual time of all runs together.
pub fn virtual_time(scenario: &Scenario, seeds: Seeds) -> Duration {
    let runs = seeds
        .count()
        .saturating_mul(scenario.contenders.len().max(1) as u64);
    Duration::from_nanos(scenario.duration.as_nanos().saturating_mul(runs))
}
