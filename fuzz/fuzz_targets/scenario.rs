//! Arbitrary text as a scenario file: a scenario, or a problem with a line of the file and a fix.
#![no_main]

use std::path::Path;

use ccplane_scenario::Scenario;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // Files named in the text do not exist.
    if let Err(problem) = Scenario::parse("fuzz.toml", text, Path::new("/nonexistent")) {
        assert!(problem.line() >= 1 && problem.line() <= text.lines().count().max(1) + 1);
        assert!(!problem.message().is_empty());
    }
});
