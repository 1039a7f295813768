//! Continues interrupted experiments: a backend that stores every finished run and does not repeat
//! stored ones.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use ccplane_algorithms::Registry;
use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::error::Error;
use crate::parts::Parts;
use crate::progress::Progress;
use crate::report_log::ReportLog;
use crate::result::{ContenderResult, Series, Setup};
use crate::run::{Backend, PreparedRun};
use crate::scenario::{Scenario, Seeds};

/// Backend whose finished runs are stored in a folder, one file each.
///
/// A stored run replaces the run of the same scenario, contender, seed and build of the program.
pub struct ResumableBackend<'a> {
    inner: &'a dyn Backend,
    stored: Parts,
    reused: AtomicUsize,
    inputs: String,
}

/// Finished run, with the parts that the result's own JSON leaves out.
#[derive(Deserialize)]
struct StoredRun {
    result: ContenderResult,
    series: Series,
    reports: ReportLog,
}

/// Borrowed [`StoredRun`].
#[derive(Serialize)]
struct RunToStore<'r> {
    result: &'r ContenderResult,
    series: &'r Series,
    reports: &'r ReportLog,
}

impl<'a> ResumableBackend<'a> {
    /// Wraps a backend, with the folder of its finished runs. `inputs` is a text that differs if a
    /// run differs for another reason than its scenario and the contender's program file.
    pub fn new(inner: &'a dyn Backend, folder: &Path, inputs: String) -> ResumableBackend<'a> {
        ResumableBackend {
            inner,
            stored: Parts::of_this_build(folder),
            reused: AtomicUsize::new(0),
            inputs,
        }
    }

    /// Returns the number of runs that were stored already.
    pub fn reused(&self) -> usize {
        self.reused.load(Ordering::Relaxed)
    }
}

/// Returns the content of a contender's program file, which can change without its name; `None` for
/// other contenders.
pub fn program_file(contender: &Contender) -> Option<Vec<u8>> {
    let file = contender.file().filter(|file| file.is_file())?;
    // A file that cannot be read fails when it is compiled, with its reason.
    Some(std::fs::read(file).unwrap_or_default())
}

impl Backend for ResumableBackend<'_> {
    fn prepare<'s>(
        &'s self,
        scenario: &'s Scenario,
        registry: &'s Registry,
    ) -> Result<Box<dyn PreparedRun + 's>, Error> {
        let mut shared = scenario.clone();
        // A run depends on its own contender and seed only.
        shared.contenders.clear();
        // Other contenders move the rest of the text.
        shared.text.clear();
        shared.content_hash = [0; 32];
        shared.topology_span = 0..0;
        for workload in &mut shared.workloads {
            workload.span = 0..0;
        }
        for bundle in &mut shared.bundles {
            bundle.span = 0..0;
        }
        shared.seeds = Seeds::one(0);
        Ok(Box::new(ResumableRun {
            inner: self.inner.prepare(scenario, registry)?,
            backend: self,
            scenario: format!("{} {} {shared:?}", self.inner.name(), self.inputs),
        }))
    }

    fn is_real(&self) -> bool {
        self.inner.is_real()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn supports_rate(&self, scenario: &Scenario) -> bool {
        self.inner.supports_rate(scenario)
    }
}

struct ResumableRun<'s> {
    inner: Box<dyn PreparedRun + 's>,
    backend: &'s ResumableBackend<'s>,
    /// Everything that a run depends on, except its contender, its seed and the program.
    scenario: String,
}

impl ResumableRun<'_> {
    /// Returns the name of a run's file, and the key under which it is valid.
    fn name_and_key(&self, contender: Option<&Contender>, seed: u64) -> (String, String) {
        let program = contender.and_then(program_file);
        let contender = contender.map_or_else(String::new, Contender::to_string);
        let hash = |text: &str| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        };
        let name = format!("{:016x}.json", hash(&format!("{contender} {seed}")));
        let scenario = format!("{} {program:?}", self.scenario);
        let key = format!("{contender} {seed} {:016x}", hash(&scenario));
        (name, key)
    }
}

impl PreparedRun for ResumableRun<'_> {
    fn setup(&self) -> Setup {
        self.inner.setup()
    }

    fn run(
        &self,
        contender: Option<&Contender>,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<ContenderResult, Error> {
        let stored = &self.backend.stored;
        let (name, key) = self.name_and_key(contender, seed);
        if let Some(run) = stored.kept::<StoredRun>(&name, &key) {
            let mut result = run.result;
            result.series = run.series;
            result.series.heard = run.reports;
            self.backend.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(result);
        }
        let result = self.inner.run(contender, seed, progress)?;
        // A run whose agent disappeared is not a result of its algorithm.
        if result.agent_gone.is_none() {
            let run = RunToStore {
                result: &result,
                series: &result.series,
                reports: &result.series.heard,
            };
            // Without its file, a run is only repeated after an interruption.
            let _ = stored.keep(&name, &key, &run);
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;
    use crate::run::{RunOptions, run};
    use crate::sim::Sim;

    fn scenario(duration: &str) -> Scenario {
        let text = format!(
            "contenders = [\"reno\", \"cubic\"]\nduration = \"{duration}\"\n\
             [topology.dumbbell]\nrate = \"10mbit\"\nrtt = \"20ms\"\n\
             [[workload]]\nbulk = {{}}\n"
        );
        Scenario::parse("test.toml", &text, Path::new("")).unwrap()
    }

    #[test]
    fn finished_runs_are_repeated_only_if_something_changed() {
        let folder = std::env::temp_dir().join(format!("ccplane-resume-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let (registry, sim) = (Registry::builtin(), Sim::default());
        let complete = |duration: &str, seeds: &str, inputs: &str| {
            let backend = ResumableBackend::new(&sim, &folder, inputs.to_owned());
            let options = RunOptions {
                seeds: seeds.parse().unwrap(),
                ..RunOptions::single(1, "")
            };
            let result = run(
                &backend,
                &scenario(duration),
                &registry,
                &options,
                &NoProgress,
            );
            let result = result.unwrap();
            let series: Vec<_> = result.contenders.iter().map(|c| &c.series).collect();
            let reports: Vec<_> = series.iter().map(|series| &series.heard).collect();
            let bytes = serde_json::to_string(&(&result.contenders, &series, &reports)).unwrap();
            (backend.reused(), bytes)
        };
        let (reused, fresh) = complete("2s", "1..2", "");
        assert_eq!(reused, 0);
        // Timings of the host are stored with a run.
        assert_eq!(complete("2s", "1..2", ""), (4, fresh));
        assert_eq!(complete("2s", "1..3", "").0, 4);
        assert_eq!(complete("2s", "1..2", "another build").0, 0);
        assert_eq!(complete("3s", "1..2", "another build").0, 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_changed_program_file_changes_the_key_of_its_own_runs() {
        let file = std::env::temp_dir().join(format!("ccplane-key-{}.ccp", std::process::id()));
        let (registry, sim) = (Registry::builtin(), Sim::default());
        let (scenario, folder) = (scenario("1s"), Path::new(""));
        let backend = ResumableBackend::new(&sim, folder, String::new());
        let run = ResumableRun {
            inner: sim.prepare(&scenario, &registry).unwrap(),
            backend: &backend,
            scenario: String::new(),
        };
        let contenders = [format!("{}:a=1", file.display()), "reno".to_owned()]
            .map(|name| name.parse::<Contender>().unwrap());
        let keys = || [0, 1].map(|n| run.name_and_key(contenders.get(n), 7));
        std::fs::write(&file, "one").unwrap();
        let before = keys();
        std::fs::write(&file, "two").unwrap();
        let after = keys();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((&before[0].0, &before[1]), (&after[0].0, &after[1]));
        assert_ne!(before[0].1, after[0].1);
    }
}
