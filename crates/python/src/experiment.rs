//! Experiments and the command line with Python algorithms.
#![expect(clippy::disallowed_methods, reason = "polls for Ctrl-C in real time")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ccplane_algorithms::Registry;
use ccplane_lab::scenario::{BadSeeds, ReadError, Scenario, Seeds};
use ccplane_lab::{Contender, Error as Unusable, Progress, RunOptions, Sim, files, table};
use ccplane_report::Provenance;
use ccplane_report::html::{escape, note};
use miette::{GraphicalReportHandler, GraphicalTheme};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::Error;
use crate::algorithm::{register, with_files};

/// Interval for polling signals, the maximum delay of Ctrl-C.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs a command line and returns its exit code.
#[pyfunction]
pub(crate) fn command(
    py: Python<'_>,
    words: Vec<OsString>,
    classes: Vec<Bound<'_, PyAny>>,
) -> PyResult<u8> {
    let registry = with_files(register(Registry::builtin(), &classes)?);
    Ok(py.detach(|| ccplane::status(words, registry)))
}

/// Compiles a program. Returns the names of its report and control variables as JSON, or raises an
/// error with position and fix.
#[pyfunction]
pub(crate) fn check(text: &str) -> PyResult<String> {
    let compiled = ccplane_lang::compile(text, &ccplane_lang::ProgramLimits::default())
        .map_err(|why| Error::new_err(why.to_string()))?;
    let reports: Vec<&str> = compiled.report_names().collect();
    let controls: Vec<&str> = compiled.control_names().collect();
    let found = serde_json::json!({ "reports": reports, "controls": controls });
    Ok(found.to_string())
}

/// Compiles a program. Returns its errors, or its warnings if there are none, as JSON.
#[pyfunction]
pub(crate) fn compile(text: &str) -> String {
    let found = match ccplane_lang::compile(text, &ccplane_lang::ProgramLimits::default()) {
        Ok(program) => program.warnings(),
        Err(errors) => Some(errors),
    };
    let problem = |problem: &ccplane_lang::Problem| {
        // Positions in Python count characters, not bytes.
        let before = text.get(..problem.span().start as usize).unwrap_or(text);
        serde_json::json!({
            "at": before.chars().count(),
            "message": problem.message(),
            "fix": problem.fix(),
            "warning": problem.code().is_warning(),
        })
    };
    let problems: Vec<_> = found
        .iter()
        .flat_map(|found| found.problems())
        .map(problem)
        .collect();
    serde_json::json!({ "problems": problems }).to_string()
}

/// Returns the provenance of results: build, machine and day, as JSON.
#[pyfunction]
pub(crate) fn provenance(command: String) -> PyResult<String> {
    let provenance = Provenance::now(ccplane::build(), command, false);
    serde_json::to_string(&provenance).map_err(|why| Error::new_err(why.to_string()))
}

/// Result of a run.
#[pyclass(module = "ccplane", frozen)]
pub(crate) struct RunResult {
    result: ccplane_lab::result::RunResult,
    text: String,
}

#[pymethods]
impl RunResult {
    /// Content of `summary.json`.
    fn summary_json(&self) -> String {
        files::summary(&self.result).to_string()
    }

    /// Hash of all events of the simulation.
    #[getter]
    fn digest(&self) -> Option<&str> {
        self.result.digest.as_deref()
    }

    /// Writes the page and data files to a folder, like `ccplane run --out`. Returns the path of
    /// the page.
    fn write(&self, folder: PathBuf) -> PyResult<PathBuf> {
        let failed = |why: files::WriteError| Error::new_err(why.to_string());
        std::fs::create_dir_all(&folder)
            .map_err(|why| Error::new_err(format!("{}: {why}", folder.display())))?;
        let provenance = Provenance::now(ccplane::build(), "ccplane.run(…)".to_owned(), false);
        let page = files::write(&self.result, &folder, &provenance).map_err(failed)?;
        files::write_scenario(&self.text, &folder).map_err(failed)?;
        Ok(page)
    }
}

/// Returns the tables of a run for a notebook, from the content of `summary.json`. They have no
/// style of their own, and so follow the notebook's light or dark theme.
#[pyfunction]
pub(crate) fn html(summary: &str) -> PyResult<String> {
    let result: ccplane_lab::result::RunResult =
        serde_json::from_str(summary).map_err(|why| Error::new_err(why.to_string()))?;
    let title = result.title.as_deref().unwrap_or("ccplane");
    let mut out = format!("<p><strong>{}</strong></p>", escape(title));
    for table in table::all(&result) {
        // The style of the page puts units on a line of their own.
        out += &table.to_html().replace("<small>", "<br/><small>");
    }
    if !result.note.is_empty() {
        out += &note(&result.note);
    }
    for (label, complaint) in result.complaints() {
        out += &note(&format!("{label}: {complaint}"));
    }
    Ok(out)
}

/// Runs a scenario in the simulator. `given` is the name of a shipped scenario, a path, or the text
/// of one; `folder` is the base of relative paths in a text.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "as `ccplane.run` has them")]
#[pyo3(signature = (given, folder, is_text, classes, contenders, seeds, threads))]
pub(crate) fn simulate(
    py: Python<'_>,
    given: String,
    folder: PathBuf,
    is_text: bool,
    classes: Vec<Bound<'_, PyAny>>,
    contenders: Option<Vec<String>>,
    seeds: Option<String>,
    threads: Option<usize>,
) -> PyResult<RunResult> {
    let registry = with_files(register(Registry::builtin(), &classes)?);
    let mut scenario = scenario(&given, is_text, &folder)?;
    if let Some(contenders) = contenders {
        let parse = |text: &String| {
            text.parse::<Contender>()
                .map_err(|why| PyValueError::new_err(why.to_string()))
        };
        scenario.contenders = contenders.iter().map(parse).collect::<PyResult<_>>()?;
    }
    let seeds: Option<Seeds> = seeds
        .map(|text| {
            text.parse()
                .map_err(|why: BadSeeds| PyValueError::new_err(why.to_string()))
        })
        .transpose()?;
    let options = RunOptions {
        seeds: seeds.unwrap_or(scenario.seeds),
        threads: threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
            .max(1),
        command: "ccplane.run(…)".to_owned(),
        repeat_command: "ccplane.run(…)".to_owned(),
    };
    let stop = Stop::default();
    let work = || ccplane_lab::run(&Sim::default(), &scenario, &registry, &options, &stop);
    let outcome = poll_signals(py, work, &stop, |_| Ok(()))?;
    let result = outcome.map_err(failed)?;
    Ok(RunResult {
        result,
        text: scenario.text,
    })
}

/// Reads a scenario from text, or by name or path.
pub(crate) fn scenario(given: &str, is_text: bool, folder: &Path) -> PyResult<Scenario> {
    match is_text {
        true => Scenario::parse("scenario", given, folder)
            .map_err(|why| failed(Unusable::Scenario(why))),
        false => Scenario::find(given.as_ref()).map_err(|why| failed(Unusable::ScenarioFile(why))),
    }
}

/// Converts an error, with its position in the file and the fix.
pub(crate) fn failed(why: Unusable) -> PyErr {
    let problem = match why {
        Unusable::Scenario(problem) | Unusable::ScenarioFile(ReadError::Problem(problem)) => {
            problem
        }
        other => return Error::new_err(other.to_string()),
    };
    let mut text = String::new();
    let plain =
        GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_links(false);
    match plain.render_report(&mut text, &problem) {
        Ok(()) => Error::new_err(text.trim().to_owned()),
        Err(_) => Error::new_err(problem.to_string()),
    }
}

/// Runs `work` on a thread of its own, without the GIL. Ctrl-C sets `stop`, and `work` must end soon
/// after. `tick` runs at every poll of the signals.
pub(crate) fn poll_signals<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send,
    stop: &Stop,
    tick: impl Fn(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        // The receiver outlives this thread: the scope joins it.
        scope.spawn(move || drop(sender.send(work())));
        // `detach` requires `Send`, which a `Receiver` behind a reference is not; the mutex
        // provides it.
        let receiver = Mutex::new(receiver);
        let wait = || {
            receiver
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv_timeout(SIGNAL_POLL_INTERVAL)
        };
        loop {
            match py.detach(wait) {
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(why) = py.check_signals().and_then(|()| tick(py)) {
                        stop.0.store(true, Ordering::Relaxed);
                        // The work polls the flag and ends soon.
                        while matches!(py.detach(wait), Err(RecvTimeoutError::Timeout)) {}
                        return Err(why);
                    }
                }
                Ok(outcome) => return Ok(outcome),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new_err("the simulation panicked"));
                }
            }
        }
    })
}

/// Cancels a simulation on Ctrl-C.
#[derive(Default)]
pub(crate) struct Stop(AtomicBool);

impl Progress for Stop {
    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
