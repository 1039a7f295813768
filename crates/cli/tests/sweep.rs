//! `ccplane sweep` through the command: results, interruptions, shares of several machines, mistakes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::eventually;

const SCENARIO: &str = "\
duration = \"2s\"
contenders = [\"reno\", \"cubic\"]
[topology.dumbbell]
rate = \"10mbit\"
rtt = \"20ms\"
loss = \"0.2%\"
[[workload]]
bulk = {}
";

const SWEEP: &str = "\
scenario = \"base.toml\"
seeds = \"1..3\"
[grid]
topology.dumbbell.queue = [\"droptail:0.5bdp\", \"droptail:2bdp\"]
topology.dumbbell.rate = [\"5mbit\", \"10mbit\"]
";

/// Runs of [`SWEEP`].
const RUNS: u64 = 2 * 2 * 2 * 3;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ccplane-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("base.toml"), SCENARIO).unwrap();
        fs::write(path.join("sweep.toml"), SWEEP).unwrap();
        Folder(path)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
        command.arg("sweep").args(words).current_dir(&self.0);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs the command with `--json`, which succeeds, and returns its object.
    fn json(&self, words: &[&str]) -> Value {
        let output = self.run(&[words, &["--json"]].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn error(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = self.run(words);
        let text = crate::common::unwrapped(&output.stderr);
        (output.status.code(), text)
    }

    fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.0.join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_sweep_writes_tables_and_a_page_once() {
    let folder = Folder::new("sweep");
    let done = folder.json(&["sweep.toml", "--out", "out", "--keep", "flows,series"]);
    assert_eq!((&done["runs"], &done["made"]), (&RUNS.into(), &RUNS.into()));
    assert_eq!(done["failed"], 0);
    for file in [
        "runs.parquet",
        "timing.parquet",
        "flows.parquet",
        "sweep.html",
        "sweep.json",
        "sweep.toml",
        "scenario.toml",
    ] {
        assert!(!folder.read(&format!("out/{file}")).is_empty(), "{file}");
    }
    let csv = String::from_utf8(folder.read("out/runs.csv")).unwrap();
    assert_eq!(csv.lines().count() as u64, RUNS + 1);
    let first = csv.lines().nth(1).unwrap();
    let id = first.split(',').next().unwrap();
    assert!(
        !folder
            .read(&format!("out/series/{id}/series.csv"))
            .is_empty()
    );
    let again = folder.json(&["sweep.toml", "--out", "out"]);
    assert_eq!(again["made"], 0);
    assert_eq!(String::from_utf8(folder.read("out/runs.csv")).unwrap(), csv);
    // Nothing is left of the writing.
    let hidden = fs::read_dir(folder.0.join("out")).unwrap().flatten();
    let hidden = hidden.filter(|entry| entry.file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0);
}

#[test]
fn a_killed_sweep_loses_no_finished_run() {
    let folder = Folder::new("killed");
    let text = SWEEP.replace("1..3", "1..200");
    fs::write(folder.0.join("sweep.toml"), &text).unwrap();
    let mut child = folder
        .command(&["sweep.toml", "--out", "out", "--threads", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let finished = folder.0.join("out/finished.jsonl");
    let lines = || fs::read_to_string(&finished).map_or(0, |text| text.lines().count());
    eventually("some runs are finished", || lines() > 20);
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    let text = fs::read_to_string(&finished).unwrap();
    let complete = text.matches('\n').count();
    fs::write(folder.0.join("sweep.toml"), SWEEP.replace("1..3", "1..4")).unwrap();
    let done = folder.json(&["sweep.toml", "--out", "out"]);
    // All points run with one seed before the next one starts.
    let wanted = 8 * 4;
    assert_eq!(done["made"], wanted - complete.min(wanted));
    let fresh = folder.json(&["sweep.toml", "--out", "fresh"]);
    assert_eq!(fresh["made"], wanted);
    assert_eq!(folder.read("out/runs.csv"), folder.read("fresh/runs.csv"));
    assert_eq!(
        folder.read("out/runs.parquet"),
        folder.read("fresh/runs.parquet")
    );
}

#[test]
fn shares_of_several_machines_merge_to_the_same_bytes() {
    let folder = Folder::new("merge");
    folder.json(&["sweep.toml", "--out", "whole"]);
    for share in ["1/2", "2/2"] {
        let out = format!("share-{}", share.replace('/', "-"));
        let done = folder.json(&["sweep.toml", "--out", &out, "--shard", share]);
        assert_eq!(done["made"], RUNS / 2);
    }
    let done = folder.json(&["merge", "share-1-2", "share-2-2", "--out", "merged"]);
    assert_eq!(done["finished"], RUNS);
    for file in ["runs.csv", "runs.parquet", "sweep.json", "sweep.toml"] {
        let (whole, merged) = (format!("whole/{file}"), format!("merged/{file}"));
        assert!(folder.read(&whole) == folder.read(&merged), "{file}");
    }
    // Another grid is not a share of this one.
    fs::write(folder.0.join("sweep.toml"), SWEEP.replace("5mbit", "6mbit")).unwrap();
    folder.json(&["sweep.toml", "--out", "other", "--limit", "1"]);
    let (code, text) = folder.error(&["merge", "share-1-2", "other", "--out", "x"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("are not shares of the same sweep"), "{text}");
    let (code, text) = folder.error(&["merge", "nowhere", "--out", "x"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("nowhere/sweep.json"), "{text}");
}

#[test]
fn a_dry_run_counts_and_writes_nothing() {
    let folder = Folder::new("dry");
    let counted = folder.json(&["sweep.toml", "--dry-run"]);
    assert_eq!(counted["runs"], RUNS);
    assert!(counted["time_s"].as_f64().unwrap() > 0.0);
    assert!(counted["bytes"].as_f64().unwrap() > 1000.0);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
    folder.json(&["sweep.toml", "--out", "out", "--limit", "5"]);
    let counted = folder.json(&["sweep.toml", "--out", "out", "--dry-run"]);
    assert_eq!(counted["finished"], 5);
}

#[test]
fn a_mistake_is_shown_with_its_line_before_the_first_run() {
    let folder = Folder::new("mistakes");
    let wrong = |from: &str, to: &str| {
        let file = folder.0.join("sweep.toml");
        fs::write(&file, SWEEP.replace(from, to)).unwrap();
        let (code, text) = folder.error(&["sweep.toml", "--out", "out"]);
        assert_eq!(code, Some(2), "{text}");
        assert!(!Path::new(&folder.0.join("out")).exists(), "{text}");
        text
    };
    let text = wrong("droptail:2bdp", "droptial:2bdp");
    assert!(
        text.contains("droptial") && text.contains("sweep.toml"),
        "{text}"
    );
    let text = wrong("scenario = \"base.toml\"", "scenario = \"bse.toml\"");
    assert!(text.contains("bse.toml cannot be read"), "{text}");
    let text = wrong("[grid]", "[grid]\nback = [0.5]");
    assert!(text.contains("nothing uses the axis `back`"), "{text}");
    fs::write(folder.0.join("sweep.toml"), SWEEP).unwrap();
    // The folder of something else is not touched.
    let (code, text) = folder.error(&["sweep.toml", "--out", "."]);
    assert_eq!(code, Some(2));
    assert!(text.contains("contains no sweep"), "{text}");
    let (code, _) = folder.error(&["sweep.toml", "--out", "out", "--threads", "0"]);
    assert_eq!(code, Some(2));
    let (code, _) = folder.error(&["sweep.toml", "--out", "out", "--shard", "3/2"]);
    assert_eq!(code, Some(2));
}
