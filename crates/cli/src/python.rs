//! Hands command lines with a Python file over to ccplane's Python package, which contains the
//! whole command, and its benchmark too.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ccplane_lab::Contender;

use crate::contender::is_python;
use crate::exit::{Failure, FailureKind};

/// Options that take algorithm names.
const ALGORITHM_OPTIONS: [&str; 3] = ["--alg", "--vs", "--against"];

/// Hands the command line over to Python if an algorithm in it is a Python file. In that case it
/// returns only on failure.
pub(crate) fn hand_over(words: &[OsString]) -> Result<(), Failure> {
    let Some(file) = python_file_in(words) else {
        return Ok(());
    };
    let mut all = vec!["-m".into(), "ccplane".into()];
    all.extend(words.iter().skip(1).cloned());
    Err(become_python(
        OsStr::new("python3"),
        &all,
        &format!("{file} is a Python file"),
    ))
}

/// Replaces this process with the benchmark of the Python package. Returns only on failure.
/// `within`: interpreter of this process.
pub fn bench(within: Option<&Path>, json: bool) -> Failure {
    let python = within.map_or(OsStr::new("python3"), Path::as_os_str);
    let mut words: Vec<OsString> = vec!["-m".into(), "ccplane.bench".into()];
    words.extend(json.then(|| "--json".into()));
    become_python(
        python,
        &words,
        "the benchmark is part of the Python package",
    )
}

/// Returns an isolated interpreter (`-I`). It imports modules only from the standard library and
/// its `site-packages`, never from the working directory, `PYTHONPATH` or the user's own site.
/// Otherwise a `json.py` next to an algorithm would run with the privileges of the caller.
pub(crate) fn isolated(python: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(python);
    command.arg("-I");
    command
}

/// Returns the folder that a child process must [`enter`] to find these Python files: the working
/// directory, if a path is relative.
pub(crate) fn folder_of(contenders: &[Contender]) -> Option<PathBuf> {
    let relative = |one: &Contender| is_python(one) && Path::new(one.algorithm()).is_relative();
    contenders
        .iter()
        .any(relative)
        .then(std::env::current_dir)?
        .ok()
}

/// Changes to the folder that the paths of algorithms are relative to. A process of another user
/// may lack permission; it already has the files, and only modules next to them are out of reach.
pub(crate) fn enter(folder: Option<&Path>) -> Result<(), Failure> {
    match folder.map_or(Ok(()), std::env::set_current_dir) {
        Err(why) if why.kind() != io::ErrorKind::PermissionDenied => {
            let folder = folder.unwrap_or(Path::new("")).display();
            let what = format!("the algorithm's process cannot enter the folder {folder}: {why}");
            Err(Failure::text(FailureKind::Failed, what))
        }
        _ => Ok(()),
    }
}

/// Replaces this process with Python running these arguments, if Python has the package. `because`:
/// why Python is needed. The working directory stays, for the paths on the command line.
fn become_python(python: &OsStr, words: &[OsString], because: &str) -> Failure {
    let called = python.to_string_lossy();
    let cannot = |why: &dyn Display| format!("{because}, but {called} cannot be run: {why}");
    let has_package = isolated(python)
        .current_dir("/")
        .args(["-c", "import ccplane"])
        .stderr(Stdio::null())
        .status();
    let what = match has_package {
        Ok(status) if status.success() => cannot(&isolated(python).args(words).exec()),
        Ok(_) => format!(
            "{because}, but {called} does not find the package ccplane (it runs with -I, which \
             ignores PYTHONPATH and the user's site-packages)"
        ),
        Err(why) => cannot(&why),
    };
    Failure::text(FailureKind::Unsupported, what).hint(
        "build the wheel with `make python` in ccplane's sources, install it into a virtual \
         environment with `pip install python/dist/*.whl`, and put that environment's python3 \
         first in PATH",
    )
}

/// Returns the first algorithm in these arguments that is a Python file.
fn python_file_in(words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words
        .iter()
        .map(|word| word.to_str().unwrap_or_default())
        .collect();
    let candidates = words.get(1) == Some(&"arena");
    for (n, word) in words.iter().enumerate().skip(1) {
        let value = match word.split_once('=') {
            Some((option, value)) if ALGORITHM_OPTIONS.contains(&option) => value,
            _ if ALGORITHM_OPTIONS.contains(&words[n - 1]) => word,
            _ if candidates && n > 1 => word,
            _ => continue,
        };
        let mut names = value
            .split(',')
            .filter_map(|contender| contender.split(':').next());
        if let Some(file) = names.find(|name| name.ends_with(".py")) {
            return Some(file.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_algorithm_options_are_searched_for_python_files() {
        let found =
            |words: &str| python_file_in(&words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            found("ccplane run --alg reno,./a.py:back=0.7 --vs native:reno"),
            Some("./a.py".to_owned())
        );
        assert_eq!(found("ccplane run --alg=b.py"), Some("b.py".to_owned()));
        assert_eq!(
            found("ccplane arena c.py --against cubic"),
            Some("c.py".to_owned())
        );
        assert_eq!(found("ccplane arena explain d.py"), Some("d.py".to_owned()));
        assert_eq!(found("ccplane send file.py host:4433 --alg cubic"), None);
        assert_eq!(found("ccplane"), None);
    }
}
