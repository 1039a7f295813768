//! `ccplane arena` as used by a search program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{RunCommand, ccplane, fails, printed, unused_path, write_file};

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output:?}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn a_failed_candidate_has_a_reason_and_score_zero() {
    let stuck = write_file(
        "arena-stuck.ccp",
        "(algorithm stuck) (def) (when true (:= Cwnd Flow.mss))",
    );
    let vegas = root().join("crates/algorithms/text/vegas.ccp");
    let on_threads = |number: &str| {
        ccplane("arena --against cubic --json")
            .args([&stuck, &vegas])
            .env("CCPLANE_THREADS", number)
            .run()
    };
    let output = on_threads("1");
    assert_eq!(output.status.code(), Some(1));
    let told = object(&output);
    let [failed, passed] = [0, 1].map(|n| &told["candidates"][n]);
    assert_eq!(
        (&failed["score"], &failed["gate_passed"]),
        (&0.0.into(), &false.into()),
        "{failed}"
    );
    assert!(
        failed["reasons"][0]
            .as_str()
            .is_some_and(|why| why.contains("%")),
        "{failed}"
    );
    assert_eq!(passed["gate_passed"], true, "{passed}");
    assert!(
        passed["parts"]["delay"]
            .as_f64()
            .is_some_and(|part| part > 1.0),
        "Vegas waits less than Cubic: {passed}"
    );
    assert_eq!(passed["links"].as_array().map(Vec::len), Some(6));
    let again = on_threads("2");
    assert_eq!(again.stdout, output.stdout, "threads change nothing");

    // The worst link is written as a scenario that runs.
    let scenario = passed["links"][0]["scenario"].as_str().expect("a text");
    let scenario = write_file("arena-worst.toml", scenario);
    let out = unused_path("arena-worst");
    printed(ccplane("run").arg(scenario).arg("--out").arg(out));

    let gate = printed(ccplane("arena --suite gate").arg(&vegas));
    assert!(gate.contains("passed") && !gate.contains("score"), "{gate}");
    fails(ccplane("arena --against cubik").arg(&vegas), 2, &[]);
}

#[test]
fn the_worst_run_is_explained_with_the_clauses_in_force_and_a_baseline() {
    let text = "(algorithm stuck)\n(def)\n(when Flow.was_timeout (:= Cwnd 9000))\n(when true (:= Cwnd (* 2 Flow.mss)))";
    let stuck = write_file("explained-stuck.ccp", text);
    let explain = |more: &str| {
        ccplane("arena explain --suite gate")
            .arg(&stuck)
            .args(more.split_whitespace())
            .run()
    };
    let output = explain("--json");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = object(&output);
    let worst = &told["worst"];
    assert!(
        worst["place"]
            .as_str()
            .is_some_and(|place| place.starts_with("the gate, ")),
        "{told}"
    );
    assert!(
        worst["event"]
            .as_str()
            .is_some_and(|event| event.contains("Mbit/s")),
        "{told}"
    );
    let clause = &worst["in_force"][0];
    assert_eq!(
        (&clause["what"], &clause["line"]),
        (&"true".into(), &4.into()),
        "{told}"
    );
    assert!(
        clause["times"].as_u64().is_some_and(|times| times > 2),
        "{told}"
    );
    let rows = worst["trace"].as_array().expect("rows");
    assert!(rows.len() > 6, "{told}");
    for row in rows {
        let [own, other] = ["candidate", "baseline"]
            .map(|who| row[who]["window_bytes"].as_u64().unwrap_or_default());
        assert!(own == 2 * 1448 && other > own, "{row}");
    }
    let said = explain("");
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.contains("gate FAILED") && said.contains("minimum") && said.contains("Active from"),
        "{said}"
    );

    // A candidate that passes has a worst link too; an algorithm with an agent shows its callback.
    let output = "arena explain cubic --against copa --json".run();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let worst = &object(&output)["worst"];
    assert_eq!(worst["baseline"], "copa", "{worst}");
    assert!(
        worst["in_force"][0]["what"]
            .as_str()
            .is_some_and(|what| what.starts_with("on_report")),
        "{worst}"
    );
    let absent = "arena explain absent.ccp --json".run();
    assert_eq!(
        (absent.status.code(), &object(&absent)["worst"]),
        (Some(1), &Value::Null)
    );
}

#[test]
fn a_search_without_a_model_finds_its_way_through_it() {
    let out = unused_path("evolved");
    let text = root().join("crates/algorithms/text/reno.ccp");
    let output = Command::new("python3")
        .arg(root().join("examples/evolve.py"))
        .arg(&text)
        .args(["--minutes", "0.01", "--children", "4"])
        .args(["--ccplane", env!("CARGO_BIN_EXE_ccplane")])
        .arg("--out")
        .arg(&out)
        .output()
        .expect("python3 is there, as for other tests");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.contains("generation 1: best 0.") && said.contains("has not seen"),
        "{said}"
    );
    assert!(out.join("best.ccp").exists());
}

#[test]
fn a_page_is_written_and_replaced_only_with_force() {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("arena-page/arena.html");
    for extension in ["html", "csv", "parquet"] {
        let _ = fs::remove_file(page.with_extension(extension));
    }
    let path = page.display().to_string();
    let arena = |more: &[&str]| {
        ccplane("arena vegas --against cubic --json --out")
            .arg(&path)
            .args(more)
            .run()
    };
    let output = arena(&[]);
    assert_eq!(object(&output)["page"], *path);
    let html = fs::read_to_string(&page).expect("a page");
    for part in [
        "Leaderboard",
        "Goodput and delay",
        "cubic (baseline)",
        "Best score: vegas",
    ] {
        assert!(html.contains(part), "no {part} in {html}");
    }
    // One row per run, those of the gate before those of the score.
    let runs = fs::read_to_string(page.with_extension("csv")).expect("a table");
    assert!(runs.starts_with("run,part,case,algorithm,seed,"), "{runs}");
    let parts: Vec<&str> = runs
        .lines()
        .skip(1)
        .filter_map(|line| line.split(',').nth(1))
        .collect();
    assert!(parts.is_sorted() && parts.contains(&"score"), "{parts:?}");
    assert!(page.with_extension("parquet").exists());
    let again = arena(&[]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert!(arena(&["--force"]).status.success());
    // A table of something else stays, too.
    fs::remove_file(&page).expect("the page");
    let again = arena(&[]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    let table = page.with_extension("csv");
    fails(ccplane("arena vegas --out").arg(&table), 2, &["arena.html"]);
}
