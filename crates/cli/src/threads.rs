//! Number of threads of the simulator.

use std::ffi::OsStr;

use crate::exit::{Failure, FailureKind};

/// Environment variable with the number of threads. Results do not depend on it.
pub const THREADS_VARIABLE: &str = "CCPLANE_THREADS";

/// Returns the number of threads: one per CPU that this process may use, unless the environment
/// sets another.
pub fn threads() -> Result<usize, Failure> {
    parse(std::env::var_os(THREADS_VARIABLE).as_deref())
}

/// Parses the variable's value. An empty one counts as unset.
fn parse(value: Option<&OsStr>) -> Result<usize, Failure> {
    let Some(text) = value.filter(|text| !text.is_empty()) else {
        return Ok(std::thread::available_parallelism().map_or(1, usize::from));
    };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| {
        let what = format!("{THREADS_VARIABLE}: {text:?} is not a number of threads");
        Failure::text(FailureKind::Usage, what)
            .hint("set it to 1 or more, or unset it for one thread per CPU")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn the_variable_sets_the_number_of_threads() {
        for (text, number) in [("1", 1), ("3", 3), ("1000", 1000)] {
            assert_eq!(parse(Some(OsStr::new(text))).ok(), Some(number));
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        for unset in [None, Some(OsStr::new(""))] {
            assert_eq!(parse(unset).ok(), Some(cpus));
        }
    }

    #[test]
    fn invalid_numbers_of_threads_are_usage_errors() {
        let invalid = ["0", "-1", "two", "1.5", "2 ", "99999999999999999999"];
        let not_unicode = OsStr::from_bytes(&[0xff]);
        for text in invalid.map(OsStr::new).iter().chain([&not_unicode]) {
            let failure = parse(Some(text)).expect_err("not a number of threads");
            assert_eq!(failure.kind, FailureKind::Usage);
            let sentence = failure.sentence();
            assert!(
                sentence.starts_with(&format!("CCPLANE_THREADS: {text:?} is not a number"))
                    && sentence.contains("unset it"),
                "{sentence}"
            );
        }
    }
}
