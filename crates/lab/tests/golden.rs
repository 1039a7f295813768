//! The shipped scenarios and the examples of docs/scenarios.md: each runs, and its result is
//! unchanged.
//!
//! A changed digest means that simulations have changed. After an intended change,
//! `CCPLANE_GOLDEN=write` updates the file.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use ccplane_lab::scenario::Scenario;
use common::try_run;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn digest(scenario: &Scenario, threads: usize) -> String {
    let result = try_run(scenario, scenario.seeds, threads)
        .unwrap_or_else(|error| panic!("{}: {error}", scenario.file));
    for c in &result.contenders {
        assert!(
            c.audit.sound,
            "{}, {}: {:?}",
            scenario.file, c.label, c.audit.complaints
        );
        assert!(
            c.metrics.goodput_mbit > 0.0,
            "{}, {}: nothing got through",
            scenario.file,
            c.label
        );
    }
    result.digest.unwrap()
}

/// Returns the digests of the shipped scenarios, in the format of the file.
fn digests(threads: usize) -> String {
    let folder = root().join("scenarios");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    assert_eq!(files.len(), 22);
    let mut found = String::from(
        "# Digest of each scenario's result. crates/lab/tests/golden.rs explains when it may \
         change.\n",
    );
    for path in files {
        let scenario = Scenario::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let digest = digest(&scenario, threads);
        let name = path.file_stem().unwrap().to_string_lossy();
        found += &format!("{digest}  {name}\n");
    }
    found
}

fn golden() -> PathBuf {
    root().join("scenarios/golden.txt")
}

#[test]
fn shipped_scenarios_give_the_same_result_as_ever() {
    let found = digests(2);
    let golden = golden();
    if std::env::var("CCPLANE_GOLDEN").is_ok_and(|what| what == "write") {
        fs::write(&golden, &found).unwrap();
    }
    assert_eq!(fs::read_to_string(&golden).unwrap_or_default(), found);
}

#[test]
#[ignore = "long: every shipped scenario once more"]
fn results_do_not_depend_on_the_number_of_threads() {
    let found = digests(1);
    assert_eq!(fs::read_to_string(golden()).unwrap_or_default(), found);
}

#[test]
fn every_scenario_in_the_book_runs() {
    let mut count = 0;
    for page in ["docs/scenarios.md", "docs/simulator.md", "README.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for (i, block) in text.split("```toml\n").skip(1).enumerate() {
            let block = block.split("```").next().unwrap();
            let name = format!("{page}, example {}", i + 1);
            let scenario = Scenario::parse(&name, block, &root().join("scenarios"))
                .unwrap_or_else(|error| panic!("{error}"));
            digest(&scenario, 2);
            count += 1;
        }
    }
    assert!(count >= 6, "{count} examples");
}
