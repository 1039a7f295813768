//! `ccplane compare` on runs in the simulator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::common::unwrapped;

fn ccplane(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    command
        .current_dir(folder)
        .args(arguments)
        .env_remove("CCPLANE_LOG");
    command.output().expect("the binary under test starts")
}

/// Creates an empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder can be made");
    path
}

#[track_caller]
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = ccplane(folder, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the exit code and standard error, with line wrapping removed.
fn refused(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = ccplane(folder, arguments);
    let code = output.status.code().unwrap_or(-1);
    (code, unwrapped(&output.stderr))
}

fn simulate(folder: &Path, out: &str, more: &[&str]) {
    let usual = [
        "run",
        "--datapath",
        "sim",
        "--alg",
        "cubic",
        "--duration",
        "3s",
        "--out",
        out,
    ];
    done(folder, &[&usual[..], more].concat());
}

#[test]
fn runs_are_compared_side_by_side_with_differences_first() {
    let here = folder("compare-two");
    simulate(&here, "slow", &["--rate", "24mbit"]);
    simulate(&here, "fast", &["--rate", "96mbit", "--vs", "native:reno"]);
    let text = done(&here, &["compare", "slow", "fast"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].contains("set-up") && lines[0].contains("slow") && lines[0].contains("fast"),
        "{text}"
    );
    let rate = lines
        .iter()
        .find(|line| line.starts_with("link"))
        .expect("the rate differs");
    assert!(
        rate.contains("24mbit (24 Mbit/s)") && rate.contains("96mbit (96 Mbit/s)"),
        "{text}"
    );
    assert!(!text.contains("round-trip time"), "it is the same: {text}");
    // Three contenders in total, two of them in the second folder.
    let rows = |name: &str| lines.iter().filter(|line| line.contains(name)).count();
    assert_eq!((rows("cubic"), rows("native:reno")), (2, 1), "{text}");
    assert!(here.join("ccplane-results/compare-1.html").exists());

    let page =
        fs::read_to_string(here.join("ccplane-results/compare-1.html")).expect("it is there");
    for part in [
        "cubic, slow</text>",
        "native:reno, fast</text>",
        "The same in all",
        "round-trip time",
    ] {
        assert!(page.contains(part), "no {part:?}");
    }

    // JSON output, and a page at a given path.
    let text = done(
        &here,
        &["compare", "slow", "fast", "--json", "--out", "page.html"],
    );
    let object: Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!(object["page"], "page.html");
    assert!(
        object["differs"]
            .as_array()
            .expect("a list")
            .contains(&json!("link"))
    );
    let own: Value = serde_json::from_str(
        &fs::read_to_string(here.join("slow/summary.json")).expect("it is there"),
    )
    .expect("JSON");
    assert_eq!(
        object["runs"][0],
        json!({ "folder": "slow", "result": own })
    );
    let (code, said) = refused(&here, &["compare", "slow", "fast", "--out", "page.html"]);
    assert!(
        code == 2 && said.contains("page.html already exists") && said.contains("--force"),
        "{said}"
    );
    done(
        &here,
        &["compare", "slow", "fast", "--out", "page.html", "--force"],
    );
}

#[test]
fn several_seeds_have_an_ellipse_and_their_intervals() {
    let here = folder("compare-seeds");
    let lossy = ["--loss", "0.1%", "--rate", "24mbit", "--seeds", "1..4"];
    simulate(&here, "one", &lossy);
    simulate(&here, "two", &[&lossy[..], &["--rtt", "40ms"]].concat());
    let text = done(&here, &["compare", "one", "two", "--out", "page.html"]);
    assert!(text.matches('±').count() >= 4, "{text}");
    let page = fs::read_to_string(here.join("page.html")).expect("it is there");
    // Two dots and two ellipses with 48 corners each.
    let picture = page.split("<svg").nth(1).expect("a picture");
    assert_eq!(picture.matches("<circle").count(), 2, "{picture}");
    assert_eq!(picture.matches('L').count() / 48, 2, "{picture}");
}

/// Returns the names of the files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().display().to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn charts_are_saved_in_every_format_under_the_names_of_the_page() {
    let here = folder("compare-formats");
    simulate(&here, "slow", &["--rate", "24mbit"]);
    simulate(&here, "fast", &["--rate", "96mbit"]);
    done(
        &here,
        &[
            "compare", "slow", "fast", "--format", "svg", "--out", "charts",
        ],
    );
    done(
        &here,
        &[
            "compare", "slow", "fast", "--format", "csv", "--out", "values",
        ],
    );
    let svg = names(&here.join("charts"));
    assert_eq!(svg.len(), 3, "{svg:?}");
    let of = |name: &String| name.replace("charts-", "values-").replace(".svg", ".csv");
    assert_eq!(
        names(&here.join("values")),
        svg.iter().map(of).collect::<Vec<_>>()
    );

    done(&here, &["compare", "slow", "fast", "--out", "page.html"]);
    let page = fs::read_to_string(here.join("page.html")).expect("it is there");
    for name in &svg {
        let stem = name.trim_start_matches("charts-").trim_end_matches(".svg");
        assert!(page.contains(&format!("data-file=\"{stem}\"")), "{stem}");
        let text = fs::read_to_string(here.join("charts").join(name)).expect("it is there");
        assert!(
            text.starts_with("<svg ") && !text.contains("var("),
            "{text}"
        );
        assert!(text.contains("cubic, slow</text>"), "{text}");
    }
    assert!(
        page.contains("cubic in fast: ") && page.contains(" times the goodput of cubic in slow")
    );

    // The extension selects the format; one file has all charts.
    done(&here, &["compare", "slow", "fast", "--out", "all.svg"]);
    let all = fs::read_to_string(here.join("all.svg")).expect("it is there");
    assert_eq!(all.matches("font-weight=\"600\"").count(), 3, "{all}");
    done(&here, &["compare", "slow", "fast", "--out", "all.csv"]);
    let all = fs::read_to_string(here.join("all.csv")).expect("it is there");
    assert!(
        all.starts_with("chart,line,x,value\n") && all.lines().count() == 7,
        "{all}"
    );
    let text = done(
        &here,
        &["compare", "slow", "fast", "--format", "svg", "--json"],
    );
    let object: Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!(object["files"].as_array().map(Vec::len), Some(3), "{text}");

    let (code, said) = refused(
        &here,
        &[
            "compare", "slow", "fast", "--format", "csv", "--out", "x.svg",
        ],
    );
    assert!(
        code == 2 && said.contains("does not match the extension"),
        "{said}"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    command.current_dir(&here).env("PATH", "");
    let output = command
        .args(["compare", "slow", "fast", "--out", "all.pdf"])
        .output()
        .expect("the binary under test starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("librsvg2-bin") && !here.join("all.pdf").exists(),
        "{said}"
    );
}

#[test]
fn folders_without_a_run_are_refused_with_the_reason() {
    let here = folder("compare-bad");
    simulate(&here, "run", &[]);
    for (name, file, text) in [
        ("empty", "other.txt", ""),
        ("evaluation", "evaluation.json", "{}"),
        ("broken", "summary.json", "{"),
        ("old", "summary.json", "{\"version\": \"0.0.1\"}"),
        ("new", "summary.json", "{\"schema\": 99}"),
        ("odd", "summary.json", "{\"schema\": 1, \"version\": 7}"),
    ] {
        fs::create_dir_all(here.join(name)).expect("a folder can be made");
        fs::write(here.join(name).join(file), text).expect("a file can be written");
    }
    for (other, reason) in [
        ("absent", "there is no folder absent"),
        ("empty", "has no summary.json"),
        ("evaluation", "it is an evaluation"),
        ("broken", "broken/summary.json cannot be read"),
        ("old", "schema none"),
        ("new", "schema 99"),
        ("odd", "invalid type: integer `7`"),
        ("run", "named twice"),
        ("./run", "named twice"),
    ] {
        let (code, said) = refused(&here, &["compare", "run", other]);
        assert!(code == 2 && said.contains(reason), "{other}: {code} {said}");
        assert!(
            !here.join("ccplane-results").exists(),
            "{other}: nothing is written"
        );
    }
    let (code, said) = refused(&here, &["compare", "run"]);
    assert!(code == 2 && said.contains("2 values required"), "{said}");
}
