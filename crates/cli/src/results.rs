//! The folder of a run's results: never one that holds those of another run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::exit::{Failure, Kind};

/// Where results are kept without `--out`: `ccplane-results/run-1`, `run-2` and so on.
const HOME: &str = "ccplane-results";

/// What a run leaves in its folder.
const FILES: [&str; 14] = [
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
/// And folders: of each seed, and of packets.
const FOLDERS: [&str; 2] = ["seed-", "packets"];

/// The folder to write to: the one that was asked for, if it has no results or `force` says that they may go; else a new one.
pub fn folder(asked: Option<&Path>, force: bool) -> Result<PathBuf, Failure> {
    let Some(folder) = asked else {
        return Ok(next(Path::new(HOME)));
    };
    let unreadable = |why: io::Error| {
        Failure::text(Kind::Failed, format!("{} cannot be used: {why}", folder.display()))
            .hint("choose another folder with --out")
    };
    let old = left_by_a_run(folder).map_err(unreadable)?;
    if old.is_empty() {
        return Ok(folder.to_owned());
    }
    if !force {
        let what = format!("{} has the results of another run", folder.display());
        return Err(Failure::text(Kind::Usage, what).hint(
            "choose another folder with --out, leave --out away for a new one, or remove what is there with --force",
        ));
    }
    for path in old {
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(unreadable)?;
    }
    Ok(folder.to_owned())
}

/// The page of a comparison: the one that was asked for, if nothing is there or `force` says that it may go; else a new one.
pub fn page(asked: Option<&Path>, force: bool) -> Result<PathBuf, Failure> {
    let Some(page) = asked else {
        return Ok(first_free(|number| {
            Path::new(HOME).join(format!("compare-{number}.html"))
        }));
    };
    if page.exists() && !force {
        let what = format!("{} is there already", page.display());
        return Err(Failure::text(Kind::Usage, what)
            .hint("choose another name with --out, leave --out away for a new one, or replace it with --force"));
    }
    Ok(page.to_owned())
}

/// The first of `run-1`, `run-2`, … that is not there.
fn next(home: &Path) -> PathBuf {
    first_free(|number| home.join(format!("run-{number}")))
}

fn first_free(path: impl Fn(u64) -> PathBuf) -> PathBuf {
    let mut number = 1;
    while path(number).exists() {
        number += 1;
    }
    path(number)
}

/// Files and folders in `folder` as a run leaves them.
fn left_by_a_run(folder: &Path) -> io::Result<Vec<PathBuf>> {
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
            true => FOLDERS.iter().any(|folder| name.starts_with(folder)),
            false => FILES.contains(&&*name),
        };
        if ours {
            found.push(entry.path());
        }
    }
    Ok(found)
}
