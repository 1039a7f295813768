//! Provenance of results: the program, machine, day and command that produced them.
//!
//! Provenance is stored with the results but takes no part in comparing or caching them: it enters
//! neither a digest nor the cache key of a part.

use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, fs};

use serde::{Deserialize, Serialize};

/// Placeholder for a value that the host does not report.
const UNKNOWN_VALUE: &str = "unknown";

/// Name of the provenance member in a JSON object of results.
pub const PROVENANCE_MEMBER: &str = "provenance";

/// Source version of the program, recorded at build time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Git commit, or `unknown`.
    pub commit: String,
    /// True if the sources differed from the commit; `None` if unknown.
    pub dirty: Option<bool>,
}

impl Default for Build {
    fn default() -> Build {
        Build {
            commit: UNKNOWN_VALUE.to_owned(),
            dirty: None,
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = self.commit.get(..12).unwrap_or(&self.commit);
        let dirty = match self.dirty {
            Some(true) => ", modified",
            Some(false) => "",
            None => ", possibly modified",
        };
        write!(f, "commit {commit}{dirty}")
    }
}

/// Provenance of a set of results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Git commit that the program was built from, or `unknown`.
    pub commit: String,
    /// True if the sources differed from the commit; absent if unknown.
    pub dirty: Option<bool>,
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// CPUs available to the process.
    pub cores: usize,
    /// Command line that produced the results.
    pub command: String,
    /// Start date, UTC: `2026-01-31`.
    pub day: String,
    /// True for the shortened version of an experiment, whose results must not be quoted.
    pub quick: bool,
    /// Attempts on real packets, disturbed ones included; 1 for results without such parts.
    pub attempts: usize,
    /// Load averages over 1, 5 and 15 minutes at the start.
    pub load: [f64; 3],
}

impl Provenance {
    /// Collects the provenance of results that start now on this machine.
    pub fn now(build: Build, command: String, quick: bool) -> Provenance {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Provenance {
            commit: build.commit,
            dirty: build.dirty,
            kernel: some(read("/proc/sys/kernel/osrelease").trim()),
            cpu: some(cpu(&read("/proc/cpuinfo"))),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            command,
            day: today(),
            quick,
            attempts: 1,
            load: load(&read("/proc/loadavg")),
        }
    }

    /// Returns the source version, the only part that results in virtual time depend on.
    pub fn build(&self) -> Build {
        Build {
            commit: self.commit.clone(),
            dirty: self.dirty,
        }
    }

    /// Formats day, program and machine for a page.
    pub fn describe_environment(&self) -> String {
        let [one, ..] = self.load;
        format!(
            "{}, {}; Linux {}, {}, {} CPUs, load {one:.2}",
            self.day,
            self.build(),
            self.kernel,
            self.cpu,
            self.cores,
        )
    }

    /// Formats everything in one line, for a page or a terminal.
    pub fn to_line(&self) -> String {
        let version = if self.quick { "quick" } else { "full" };
        format!(
            "{}; {version}, {} attempts",
            self.describe_environment(),
            self.attempts
        )
    }

    /// Converts to JSON for an object of results.
    pub fn to_json(&self) -> serde_json::Value {
        // Infallible: the struct has only strings and numbers.
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn some(text: &str) -> String {
    if text.is_empty() { UNKNOWN_VALUE } else { text }.to_owned()
}

/// Returns the first model name in `/proc/cpuinfo`; some architectures have none.
fn cpu(info: &str) -> &str {
    let named = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    named.map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']).trim())
}

fn load(text: &str) -> [f64; 3] {
    let mut values = text
        .split_whitespace()
        .map(|word| word.parse().unwrap_or(0.0));
    [(); 3].map(|()| values.next().unwrap_or(0.0))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the date is only printed; no result depends on it"
)]
fn today() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    day(now.map_or(0, |since| since.as_secs()))
}

/// Converts seconds since the Unix epoch to a UTC date.
fn day(seconds: u64) -> String {
    let leap = |year: u64| {
        (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
    };
    let mut days = seconds / 86_400;
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_follow_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_251_199, "2024-02-29"),
            (1_709_251_200, "2024-03-01"),
            (4_107_542_400, "2100-03-01"),
            (1_798_761_599, "2026-12-31"),
        ] {
            assert_eq!(day(seconds), date);
        }
    }

    #[test]
    fn missing_machine_information_is_not_an_error() {
        assert_eq!(some(cpu("processor : 0\n")), "unknown");
        assert_eq!(
            cpu("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n"),
            "A CPU @ 2 GHz"
        );
        assert_eq!(load("0.50 1.25 nonsense 1/2 3"), [0.5, 1.25, 0.0]);
        assert_eq!(load(""), [0.0; 3]);
        let here = Provenance::now(Build::default(), "ccplane paper x".to_owned(), true);
        assert_eq!(
            (here.commit.as_str(), here.dirty, here.quick),
            ("unknown", None, true)
        );
        assert!(here.cores >= 1 && here.to_line().contains("quick"));
        assert_eq!(here.build(), Build::default());
        assert_eq!(
            Build::default().to_string(),
            "commit unknown, possibly modified"
        );
    }
}
