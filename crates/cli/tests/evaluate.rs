//! `ccplane evaluate`: its output for people and for scripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::unwrapped;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    command
        .arg("evaluate")
        .args(arguments)
        .env_remove("CCPLANE_LOG");
    command
}

fn evaluate(arguments: &[&str]) -> Output {
    command(arguments)
        .output()
        .expect("the binary under test starts")
}

fn folder(name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    let text = path.display().to_string();
    (path, text)
}

/// Returns the exit code and standard error, with line wrapping removed.
fn said(arguments: &[&str]) -> (i32, String) {
    let output = evaluate(arguments);
    let text = unwrapped(&output.stderr);
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn an_evaluation_writes_its_results_and_is_not_overwritten() {
    let (path, out) = folder("evaluate");
    let arguments = [
        "--alg", "reno", "--quick", "--only", "start-up", "--out", &out, "--json",
    ];
    let output = evaluate(&arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    let said_json: Value = serde_json::from_str(&text).expect("one JSON object");
    let question = &said_json["questions"][0];
    assert_eq!(
        (question["name"].as_str(), said_json["algorithm"].as_str()),
        (Some("start-up"), Some("reno"))
    );
    assert!(
        question["places"][0]["to_80_percent_ms"].as_f64() > Some(0.0),
        "{question}"
    );
    let page = fs::read(path.join("evaluation.html")).expect("the page");
    let kept: Value =
        serde_json::from_slice(&fs::read(path.join("evaluation.json")).expect("the figures"))
            .unwrap();
    assert_eq!(kept["questions"], said_json["questions"]);
    assert!(!path.join("parts").exists());

    let (code, text) = said(&arguments);
    assert!(
        code == 2 && text.contains("exists and is not empty") && text.contains("--force"),
        "{text}"
    );
    let (code, text) = said(&[&arguments[..], &["--resume"]].concat());
    assert!(code == 2 && text.contains("is finished"), "{text}");
    assert!(
        command(&[&arguments[..], &["--force"]].concat())
            .env("CCPLANE_THREADS", "1")
            .output()
            .expect("the binary under test starts")
            .status
            .success()
    );
    assert_eq!(
        fs::read(path.join("evaluation.html")).expect("the page"),
        page
    );
}

#[test]
fn an_interrupted_evaluation_resumes() {
    let (path, out) = folder("evaluate-interrupted");
    let arguments = [
        "--alg",
        "reno",
        "--quick",
        "--only",
        "loss,reno,changes",
        "--out",
        &out,
    ];
    let mut running = command(&arguments)
        .env("CCPLANE_THREADS", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary under test starts");
    let parts = || fs::read_dir(path.join("parts")).map_or(0, Iterator::count);
    while parts() == 0 && running.try_wait().expect("it is ours").is_none() {
        std::thread::yield_now();
    }
    let interrupt = Command::new("kill")
        .args(["-INT", &running.id().to_string()])
        .status();
    assert!(interrupt.expect("there is a kill").success());
    let output = running.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(130) && text.contains("--resume"),
        "{text}"
    );
    assert!(parts() > 0 && !path.join("evaluation.html").exists());

    let (code, text) = said(&arguments);
    assert!(
        code == 2 && text.contains("interrupted evaluation"),
        "{text}"
    );
    assert!(
        evaluate(&[&arguments[..], &["--resume"]].concat())
            .status
            .success()
    );
    let resumed = fs::read(path.join("evaluation.html")).expect("the page");
    assert!(
        evaluate(&[&arguments[..], &["--force"]].concat())
            .status
            .success()
    );
    assert_eq!(
        fs::read(path.join("evaluation.html")).expect("the page"),
        resumed
    );
}

#[test]
fn invalid_questions_and_algorithms_are_errors() {
    let (_, out) = folder("evaluate-wrong");
    let (code, text) = said(&["--alg", "reno", "--only", "shalow-buffer", "--out", &out]);
    assert!(
        code == 2 && text.contains("did you mean `shallow-buffer`?"),
        "{text}"
    );
    let (code, text) = said(&["--alg", "cubik", "--out", &out]);
    assert!(
        code == 2 && text.contains("did you mean `cubic`?"),
        "{text}"
    );
    let (code, _) = said(&["--quick"]);
    assert_eq!(code, 2);
    let output = evaluate(&[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("shallow-buffer") && text.contains("RFC 9743"),
        "{text}"
    );
}
