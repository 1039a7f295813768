//! Algorithms that are Python files: ccplane's Python package has this whole command, so that words with such a file are handed over to it, and so is its benchmark.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::exit::{Failure, Kind};

/// Options that take algorithms.
const OPTIONS: [&str; 3] = ["--alg", "--vs", "--against"];

/// Hands a command line over to Python, if an algorithm in it is a Python file: then it returns only when that cannot be.
pub(crate) fn hand_over(words: &[OsString]) -> Result<(), Failure> {
    let Some(file) = file_in(words) else { return Ok(()) };
    let mut all = vec!["-m".into(), "ccplane".into()];
    all.extend(words.iter().skip(1).cloned());
    Err(become_python(
        OsStr::new("python3"),
        &all,
        &format!("{file} is a Python file"),
    ))
}

/// Becomes the benchmark of the Python package; returns only when that cannot be. `within`: the interpreter of this process.
pub(crate) fn bench(within: Option<&Path>, json: bool) -> Failure {
    let python = within.map_or(OsStr::new("python3"), Path::as_os_str);
    let mut words: Vec<OsString> = vec!["-m".into(), "ccplane.bench".into()];
    words.extend(json.then(|| "--json".into()));
    become_python(python, &words, "the benchmark is the Python package's")
}

/// Runs Python with these words in place of this process, where it has the package. `because`: why Python is needed.
fn become_python(python: &OsStr, words: &[OsString], because: &str) -> Failure {
    let called = python.to_string_lossy();
    let cannot = |why: &dyn Display| format!("{because}, and {called} cannot be run: {why}");
    let has_package = Command::new(python)
        .args(["-c", "import ccplane"])
        .stderr(Stdio::null())
        .status();
    let what = match has_package {
        Ok(status) if status.success() => cannot(&Command::new(python).args(words).exec()),
        Ok(_) => format!("{because}, and this {called} has no package ccplane"),
        Err(why) => cannot(&why),
    };
    Failure::text(Kind::Unsupported, what)
        .hint("`make python` in ccplane's sources, then `pip install python/dist/*.whl` in the environment whose python3 comes first")
}

/// The first algorithm in these words that is a Python file.
fn file_in(words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let candidates = words.get(1) == Some(&"arena");
    for (n, word) in words.iter().enumerate().skip(1) {
        let value = match word.split_once('=') {
            Some((option, value)) if OPTIONS.contains(&option) => value,
            _ if OPTIONS.contains(&words[n - 1]) => word,
            _ if candidates && n > 1 => word,
            _ => continue,
        };
        let mut names = value.split(',').filter_map(|contender| contender.split(':').next());
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
    fn only_what_names_an_algorithm_is_looked_at() {
        let found = |words: &str| file_in(&words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            found("ccplane run --alg reno,./a.py:back=0.7 --vs native:reno"),
            Some("./a.py".to_owned())
        );
        assert_eq!(found("ccplane run --alg=b.py"), Some("b.py".to_owned()));
        assert_eq!(found("ccplane arena c.py --against cubic"), Some("c.py".to_owned()));
        assert_eq!(found("ccplane arena explain d.py"), Some("d.py".to_owned()));
        assert_eq!(found("ccplane send file.py host:4433 --alg cubic"), None);
        assert_eq!(found("ccplane"), None);
    }
}
