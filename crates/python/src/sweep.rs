//! Sweeps from Python: a plan whose runs are made here or by an executor, and the result folder.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ccplane::{SweepFolder, machine_name, thread_cpu_time};
use ccplane_algorithms::Registry;
use ccplane_lab::scenario::Sweep;
use ccplane_lab::sweep::{self, RunRow, RunStore, SweepOptions};
use ccplane_lab::{Error as RunError, NoProgress, Progress, Sim};
use pyo3::prelude::*;

use crate::Error;
use crate::algorithm::{register, with_files};
use crate::experiment::{Stop, failed, poll_signals};

/// Version of the simulated behaviour. Rows of different versions are not comparable.
#[pyfunction]
pub(crate) fn behaviour() -> &'static str {
    sweep::behaviour_version()
}

/// Plan of a sweep: every scenario was checked.
#[pyclass(module = "ccplane", frozen)]
pub(crate) struct SweepPlan {
    plan: sweep::SweepPlan,
    registry: Registry,
}

#[pymethods]
impl SweepPlan {
    /// Plans a sweep. Paths in `text` are relative to `folder`, and `name` is the name of the text
    /// in messages.
    #[new]
    fn new(
        py: Python<'_>,
        name: &str,
        text: &str,
        folder: PathBuf,
        classes: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<SweepPlan> {
        let registry = with_files(register(Registry::builtin(), &classes)?);
        let planned = py.detach(|| {
            let sweep = Sweep::parse(name, text, &folder)
                .map_err(|problem| failed(RunError::Scenario(problem)))?;
            sweep::SweepPlan::new(sweep, &Sim::default(), &registry).map_err(failed)
        });
        Ok(SweepPlan {
            plan: planned?,
            registry,
        })
    }

    /// Number of runs.
    #[getter]
    fn runs(&self) -> usize {
        self.plan.planned.ids.len()
    }

    /// Paths of all files that the runs need, besides the sweep's own.
    fn files(&self) -> Vec<PathBuf> {
        self.plan.files.iter().cloned().collect()
    }

    /// Makes one run. Returns its row as JSON.
    fn run(&self, py: Python<'_>, index: usize, flows: bool) -> PyResult<String> {
        let options = options(1, flows);
        let row = py.detach(|| {
            let (sim, registry) = (Sim::default(), &self.registry);
            let progress = NoProgress;
            self.plan
                .run_one(index, &sim, registry, &options, &progress)
        });
        let row = row.map_err(failed)?;
        serde_json::to_string(&row).map_err(|why| Error::new_err(why.to_string()))
    }

    /// Makes all missing runs on threads of this process. `progress` is called with the share done.
    fn run_missing(
        &self,
        py: Python<'_>,
        store: &SweepStore,
        threads: Option<usize>,
        flows: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        let options = options(threads.unwrap_or_else(cpus).max(1), flows);
        let shown = SweepProgress::default();
        let work = || {
            let (sim, registry) = (Sim::default(), &self.registry);
            let mut rows = store.rows();
            sweep::run(&self.plan, &sim, registry, &options, &mut rows, &shown)
        };
        let report = |py: Python<'_>| match &progress {
            Some(progress) => progress.call1(py, (shown.share(),)).map(drop),
            None => Ok(()),
        };
        let made = poll_signals(py, work, &shown.stop, report)?;
        made.map(drop).map_err(failed)
    }
}

fn options(threads: usize, flows: bool) -> SweepOptions {
    SweepOptions {
        threads,
        shard: None,
        limit: None,
        keep: None,
        flows,
        cpu_time: thread_cpu_time,
        machine: machine_name(),
    }
}

/// Result folder of a sweep, locked while the object exists.
#[pyclass(module = "ccplane", frozen)]
pub(crate) struct SweepStore {
    folder: SweepFolder,
    rows: Mutex<RunStore>,
}

impl SweepStore {
    fn rows(&self) -> MutexGuard<'_, RunStore> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl SweepStore {
    /// Opens or creates the folder, and writes the plan.
    #[new]
    fn new(out: PathBuf, plan: &SweepPlan) -> PyResult<SweepStore> {
        let opened = SweepFolder::open(&out);
        let (folder, rows) = opened.map_err(|why| Error::new_err(why.sentence()))?;
        let written = folder.write_plan(&plan.plan.planned, plan.plan.sweep().texts());
        written.map_err(|why| Error::new_err(why.sentence()))?;
        Ok(SweepStore {
            folder,
            rows: Mutex::new(rows),
        })
    }

    /// Returns the indices of the runs that are not finished.
    fn missing(&self, plan: &SweepPlan) -> Vec<usize> {
        let rows = self.rows();
        let ids = plan.plan.planned.ids.iter().enumerate();
        ids.filter(|(_, id)| !rows.contains(id))
            .map(|(index, _)| index)
            .collect()
    }

    /// Stores rows of a worker, each as JSON.
    fn add(&self, rows: Vec<String>) -> PyResult<()> {
        for row in rows {
            let row: RunRow =
                serde_json::from_str(&row).map_err(|why| Error::new_err(why.to_string()))?;
            let added = self.rows().add(row);
            added.map_err(|why| Error::new_err(why.to_string()))?;
        }
        Ok(())
    }

    /// Writes all tables and the page. Returns the numbers of runs, of finished ones and of failed
    /// ones.
    fn write(
        &self,
        py: Python<'_>,
        plan: &SweepPlan,
        flows: bool,
        command: &str,
    ) -> PyResult<(usize, usize, usize)> {
        let written = py.detach(|| {
            let rows = self.rows();
            let planned = &plan.plan.planned;
            self.folder.write_tables(planned, &rows, flows, command)
        });
        let summary = written.map_err(|why| Error::new_err(why.sentence()))?;
        Ok((summary.runs, summary.finished, summary.failed))
    }
}

/// Progress of the runs, polled by the thread that has the GIL.
#[derive(Default)]
struct SweepProgress {
    stop: Stop,
    /// Bits of the share done.
    share: AtomicU64,
}

impl SweepProgress {
    fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Ordering::Relaxed))
    }
}

impl Progress for SweepProgress {
    fn on_progress(&self, share: f64, _what: &str) {
        self.share.store(share.to_bits(), Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled()
    }
}
