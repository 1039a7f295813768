//! Any text as a scenario's file: a scenario, or a problem at a line of the file with a way out.
#![no_main]

use std::path::Path;

use ccplane_scenario::Scenario;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // No file that it may name is there.
    if let Err(problem) = Scenario::parse("fuzz.toml", text, Path::new("/nonexistent")) {
        assert!(problem.line() >= 1 && problem.line() <= text.lines().count().max(1) + 1);
        assert!(!problem.message().is_empty());
    }
});
