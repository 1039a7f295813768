//! Result folder of a sweep: its plan, the tables and the page.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ccplane_lab::Error;
use ccplane_lab::sweep::{self, PlannedSweep, RunStore, RunTable, behaviour_version};
use serde_json::json;

#[cfg(feature = "host")]
use super::parquet;
use crate::exit::{Failure, FailureKind};
use crate::run::failure;

/// File of the plan.
pub(super) const PLAN_FILE: &str = "sweep.json";
/// Copies of the sweep file and of its scenario.
pub(super) const SOURCE_FILES: [&str; 2] = ["sweep.toml", "scenario.toml"];
const RUNS_FILE: &str = "runs.csv";
const PAGE_FILE: &str = "sweep.html";

/// Result folder of a sweep.
pub struct SweepFolder {
    out: PathBuf,
}

impl SweepFolder {
    /// Opens or creates a folder, and locks it. Refuses one with files of something else.
    pub fn open(out: &Path) -> Result<(SweepFolder, RunStore), Failure> {
        let is_taken = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
        if (is_taken && !out.join(sweep::FINISHED_FILE).exists()) || out.is_file() {
            let what = format!("{} exists and contains no sweep", out.display());
            let hint = "choose another folder with --out";
            return Err(Failure::text(FailureKind::Usage, what).hint(hint));
        }
        let store = RunStore::open(out).map_err(|error| failure(Error::Store(error)))?;
        let out = out.to_owned();
        Ok((SweepFolder { out }, store))
    }

    /// Writes the plan, and copies of the sweep file and of its scenario.
    pub fn write_plan<'t>(
        &self,
        planned: &PlannedSweep,
        texts: impl Iterator<Item = &'t str>,
    ) -> Result<(), Failure> {
        for (name, text) in SOURCE_FILES.iter().zip(texts) {
            write(&self.out, name, text)?;
        }
        let text = serde_json::to_string(planned).unwrap_or_default();
        write(&self.out, PLAN_FILE, text)
    }

    /// Writes all tables and the page of the finished runs. `command` reproduces them.
    pub fn write_tables(
        &self,
        planned: &PlannedSweep,
        store: &RunStore,
        flows: bool,
        command: &str,
    ) -> Result<SweepSummary, Failure> {
        let out = &self.out;
        let runs = RunTable::of_runs(planned, store);
        write(out, RUNS_FILE, runs.to_csv())?;
        #[cfg(feature = "host")]
        {
            write(out, "runs.parquet", parquet::encode(&runs)?)?;
            let timing = RunTable::of_timing(planned, store);
            write(out, "timing.parquet", parquet::encode(&timing)?)?;
            let table = RunTable::of_flows(planned, store);
            if flows || table.rows() > 0 {
                write(out, "flows.parquet", parquet::encode(&table)?)?;
            }
        }
        #[cfg(not(feature = "host"))]
        if flows {
            write(
                out,
                "flows.csv",
                RunTable::of_flows(planned, store).to_csv(),
            )?;
        }
        let provenance = crate::build().to_string();
        let page = sweep::page(planned, &runs, command, &provenance);
        write(out, PAGE_FILE, page)?;
        let failed = runs.column("error").map_or(0, |errors| {
            (0..runs.rows())
                .filter(|row| !errors.text(*row).is_empty())
                .count()
        });
        Ok(SweepSummary {
            runs: planned.ids.len(),
            finished: runs.rows(),
            failed,
            page: out.join(PAGE_FILE),
            out: out.to_owned(),
        })
    }
}

/// Writes a file completely or not at all, so that a reader never sees half of a table.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    // No other file of the folder has this name.
    let mut draft = path.as_os_str().to_owned();
    draft.push(".draft");
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    fs::write(&draft, content)?;
    fs::rename(&draft, path)
}

/// Writes a table as `path` with the suffixes `.csv` and, if the program has it, `.parquet`.
pub fn write_table(path: &Path, table: &RunTable) -> io::Result<()> {
    #[cfg(feature = "host")]
    write_parquet(path, table)?;
    write_whole(&path.with_extension("csv"), table.to_csv().as_bytes())
}

/// Writes a table as `path` with the suffix `.parquet`.
#[cfg(feature = "host")]
pub fn write_parquet(path: &Path, table: &RunTable) -> io::Result<()> {
    let bytes = parquet::encode(table).map_err(|why| io::Error::other(why.sentence()))?;
    write_whole(&path.with_extension("parquet"), &bytes)
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    let path = folder.join(name);
    let written = write_whole(&path, content.as_ref());
    written.map_err(|why| {
        let what = format!("cannot write {}: {why}", path.display());
        Failure::text(FailureKind::Failed, what)
            .hint("free some space, and repeat the command: finished runs are not repeated")
    })
}

/// Result of a sweep for the terminal and for programs.
pub struct SweepSummary {
    /// Number of runs of the whole sweep.
    pub runs: usize,
    /// Number of finished runs.
    pub finished: usize,
    /// Number of runs without metrics.
    pub failed: usize,
    page: PathBuf,
    out: PathBuf,
}

impl SweepSummary {
    /// Prints the result; `made` is the number of runs of this process.
    pub fn print(&self, made: Option<usize>, json: bool) {
        let page = fs::canonicalize(&self.page).unwrap_or_else(|_| self.page.clone());
        if json {
            let object = json!({
                "schema": sweep::SWEEP_SCHEMA,
                "behaviour": behaviour_version(),
                "runs": self.runs,
                "finished": self.finished,
                "failed": self.failed,
                "made": made,
                "out": self.out.display().to_string(),
                "report": page.display().to_string(),
            });
            println!("{object}");
            return;
        }
        let made = made.map_or(String::new(), |made| format!(", {made} of them now"));
        println!("{} of {} runs are finished{made}", self.finished, self.runs);
        if self.failed > 0 {
            tracing::warn!(
                "{} runs failed: the column `error` of {} has the reasons",
                self.failed,
                self.out.join(RUNS_FILE).display()
            );
        }
        println!("table: {}", self.out.join(RUNS_FILE).display());
        println!("report: {}", page.display());
    }
}
