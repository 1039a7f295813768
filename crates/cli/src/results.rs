//! Result folder of a run. Results of an earlier run stay in it until the new ones are complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::exit::{Failure, FailureKind};

/// Parent of the result folders without `--out`: `ccplane-results/run-1`, `run-2` and so on.
const RESULTS_FOLDER: &str = "ccplane-results";

/// Time within which the program that opens a page reports a failure.
const OPENER_TIMEOUT: Duration = Duration::from_secs(1);

/// Files that a run writes to its folder.
const RESULT_FILES: [&str; 14] = [
    "summary.json",
    "host.json",
    "workloads.csv",
    "runs.csv",
    "stamps.csv",
    "report.html",
    "scenario.toml",
    "series.csv",
    "bins.csv",
    "flows.csv",
    "reports.csv",
    "completions.csv",
    "links.csv",
    "bundles.csv",
];
/// Prefixes of folders that a run writes: per seed, of packets, of new results next to old ones, and
/// of finished runs.
const RESULT_FOLDER_PREFIXES: [&str; 4] =
    ["seed-", "packets", UNFINISHED_PREFIX, FINISHED_RUNS_FOLDER];
/// Prefix of the folder for new results inside a folder with old ones.
const UNFINISHED_PREFIX: &str = "unfinished-";

/// Folder of the runs that are finished, until all are.
const FINISHED_RUNS_FOLDER: &str = "finished-runs";

/// Result folder of a run in progress. If it has no old results, files are written directly to it.
/// Otherwise they are staged in a folder inside, and replace the old results when the run is
/// complete.
pub struct ResultFolder {
    path: PathBuf,
    /// Folder of the new files: `path`, or a folder inside it.
    staging: PathBuf,
    /// Folders created for this run, innermost first, removed again if they stay empty.
    created: Vec<PathBuf>,
}

impl ResultFolder {
    /// Opens `asked`, or a new folder without it. `asked` may contain old results only if `force`
    /// is set. Fails immediately if the folder is not writable, since the run may take hours.
    pub fn open(asked: Option<&Path>, force: bool) -> Result<ResultFolder, Failure> {
        let path = asked.map_or_else(|| default_folder(Path::new(RESULTS_FOLDER)), Path::to_owned);
        let unusable = |why| unusable(&path, &why);
        let has_old = !created_by_run(&path).map_err(unusable)?.is_empty();
        if has_old && !force {
            let what = format!("{} contains the results of another run", path.display());
            return Err(Failure::text(FailureKind::Usage, what).hint(
                "choose another folder with --out, omit --out for a new one, or replace the old \
                 results with --force",
            ));
        }
        let staging = match has_old {
            true => first_free(|number| path.join(format!("{UNFINISHED_PREFIX}{number}"))),
            false => path.clone(),
        };
        let missing = staging
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let mut folder = ResultFolder {
            created: missing.map(Path::to_owned).collect(),
            path: path.clone(),
            staging,
        };
        fs::create_dir_all(&folder.staging).map_err(unusable)?;
        folder.probe().map_err(unusable)?;
        // Deepest first, the order of removal.
        folder
            .created
            .sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        Ok(folder)
    }

    /// Opens a folder with the finished part of an interrupted run, to complete it in place. A
    /// folder without results is a new one.
    pub fn resume(path: &Path) -> Result<ResultFolder, Failure> {
        let old = created_by_run(path).map_err(|why| unusable(path, &why))?;
        if !old.is_empty() && !path.join(FINISHED_RUNS_FOLDER).is_dir() {
            let what = format!("{} contains no interrupted run", path.display());
            return Err(Failure::text(FailureKind::Usage, what).hint(
                "--out is the folder that the interrupted run named; a complete run is replaced \
                 with --force",
            ));
        }
        let folder = ResultFolder {
            path: path.to_owned(),
            staging: path.to_owned(),
            created: Vec::new(),
        };
        fs::create_dir_all(path).map_err(|why| unusable(path, &why))?;
        folder.probe().map_err(|why| unusable(path, &why))?;
        Ok(folder)
    }

    /// Returns the folder for runs that are finished while others are not.
    pub fn finished_runs(&self) -> PathBuf {
        self.staging.join(FINISHED_RUNS_FOLDER)
    }

    /// Returns the folder that the run writes to.
    pub fn staging(&self) -> &Path {
        &self.staging
    }

    /// Replaces old results with the new, complete ones. Returns the folder.
    pub fn complete(self) -> Result<PathBuf, Failure> {
        let finished = self.finished_runs();
        if finished.is_dir() {
            fs::remove_dir_all(&finished).map_err(|why| unusable(&finished, &why))?;
        }
        if self.staging == self.path {
            return Ok(self.path.clone());
        }
        let unmoved = |why: io::Error| {
            let what = format!(
                "the old results in {} cannot be replaced: {why}",
                self.path.display()
            );
            Failure::text(FailureKind::Failed, what)
                .hint(format!("the new results are in {}", self.staging.display()))
        };
        let old = created_by_run(&self.path).map_err(unmoved)?;
        for path in old.iter().filter(|path| **path != self.staging) {
            match path.is_dir() {
                true => fs::remove_dir_all(path).map_err(unmoved)?,
                false => fs::remove_file(path).map_err(unmoved)?,
            }
        }
        for entry in fs::read_dir(&self.staging).map_err(unmoved)? {
            let entry = entry.map_err(unmoved)?;
            fs::rename(entry.path(), self.path.join(entry.file_name())).map_err(unmoved)?;
        }
        Ok(self.path.clone())
    }

    /// Returns a sentence on where the finished part of an incomplete run is, and how to continue.
    pub fn partial_results_note(&self) -> String {
        let staging = self.staging.display();
        let unchanged = match self.staging == self.path {
            true => "",
            false => "; the old results are unchanged",
        };
        let resume = match self.finished_runs().is_dir() {
            true => format!(
                "; to continue, repeat the command with `--resume --out {staging}` in place of its \
                 own --out and --force"
            ),
            false => String::new(),
        };
        format!("the finished part is in {staging}{unchanged}{resume}")
    }

    /// Checks that the folder is writable: writes and removes a file.
    fn probe(&self) -> io::Result<()> {
        let file = self
            .staging
            .join(format!(".ccplane-{}", std::process::id()));
        fs::write(&file, "")?;
        fs::remove_file(&file)
    }
}

impl Drop for ResultFolder {
    fn drop(&mut self) {
        // Folders that are not empty stay.
        for folder in &self.created {
            let _ = fs::remove_dir(folder);
        }
    }
}

fn unusable(folder: &Path, why: &io::Error) -> Failure {
    Failure::text(
        FailureKind::Failed,
        format!("{} cannot be written to: {why}", folder.display()),
    )
    .hint("choose another folder with --out")
}

/// Returns the path of a comparison with this extension, or its folder: `asked` if it does not
/// exist or `force` is set, or a new name without `asked`.
pub fn page(
    asked: Option<&Path>,
    extension: Option<&str>,
    force: bool,
) -> Result<PathBuf, Failure> {
    let Some(page) = asked else {
        let extension = extension.map_or(String::new(), |extension| format!(".{extension}"));
        return Ok(first_free(|number| {
            Path::new(RESULTS_FOLDER).join(format!("compare-{number}{extension}"))
        }));
    };
    if page.exists() && !force {
        let what = format!("{} already exists", page.display());
        return Err(Failure::text(FailureKind::Usage, what).hint(
            "choose another name with --out, omit --out for a new one, or replace it with --force",
        ));
    }
    Ok(page.to_owned())
}

/// Returns the first unused path of `run-1`, `run-2`, ….
fn default_folder(home: &Path) -> PathBuf {
    first_free(|number| home.join(format!("run-{number}")))
}

fn first_free(path: impl Fn(u64) -> PathBuf) -> PathBuf {
    let mut number = 1;
    while path(number).exists() {
        number += 1;
    }
    path(number)
}

/// Returns the files and folders in `folder` that a run has written.
fn created_by_run(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(why),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = match entry.file_type()?.is_dir() {
            true => RESULT_FOLDER_PREFIXES
                .iter()
                .any(|folder| name.starts_with(folder)),
            false => RESULT_FILES.contains(&&*name),
        };
        if ours {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Opens a page in the user's browser: `$BROWSER`, which is the name of one program without
/// arguments, otherwise `xdg-open`. A failure is only a warning, since the page exists.
pub fn open_page(page: &Path) {
    let browser = std::env::var_os("BROWSER").filter(|name| !name.is_empty());
    let program = browser.unwrap_or_else(|| "xdg-open".into());
    let page = fs::canonicalize(page).unwrap_or_else(|_| page.to_owned());
    let started = Command::new(&program)
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let program = Path::new(&program).display();
    match started.map(early_failure) {
        Ok(None) => {}
        Ok(Some(status)) => {
            tracing::warn!("{program} cannot open the page: {status}; set BROWSER to a browser");
        }
        Err(why) => {
            tracing::warn!(
                "cannot start {program} to open the page: {why}; set BROWSER to a browser"
            );
        }
    }
}

/// Returns the exit status of a program that fails within [`OPENER_TIMEOUT`]. A browser may run for
/// hours, and is left running.
#[expect(clippy::disallowed_methods, reason = "it waits for another process")]
fn early_failure(mut program: Child) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match program.try_wait() {
            Ok(Some(status)) => return (!status.success()).then_some(status),
            Ok(None) if start.elapsed() < OPENER_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => return None,
        }
    }
}
