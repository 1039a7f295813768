//! The program as a person meets it: bad input gives one clear message and an exit code, and
//! overwrites nothing.
//!
//! The name of the binary puts this crate's tests in the lane of tests on real packets
//! (`scripts/test`): a unit test runs a group of flows on kernel TCP.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane-paper"));
    command.env_remove("CCPLANE_LOG");
    command
}

/// Exit code and what was said.
fn outcome(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

#[track_caller]
fn fails(arguments: &[&str], code: i32, says: &[&str]) {
    let output = program().args(arguments).output();
    let (found, text) = outcome(&output.expect("the program under test starts"));
    assert_eq!(found, Some(code), "{arguments:?} said: {text}");
    for part in says {
        assert!(
            text.contains(part),
            "{arguments:?} does not say `{part}`: {text}"
        );
    }
    assert!(!text.contains("panicked"), "{text}");
}

fn scratch(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("the test's folder can be written");
    path.display().to_string()
}

#[test]
fn an_experiment_runs_where_it_can_and_overwrites_nothing() {
    fails(
        &["ccp-interval", "--datapath", "sim"],
        2,
        &["ccp-interval", "it runs on linux"],
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("thesis");
    fs::create_dir_all(&folder).expect("the test's folder can be made");
    fs::write(folder.join("thesis.tex"), "all of it").expect("and written");
    let out = folder.display().to_string();
    fails(
        &["ccp-incast", "--quick", "--out", &out],
        2,
        &["thesis", "--force"],
    );
    assert_eq!(fs::read_dir(&folder).expect("it is still there").count(), 1);
    let repeats = ["ccp-fidelity", "--datapath", "sim", "--repeats", "3"];
    fails(&repeats, 2, &["the number of repeats is 3", "kernel TCP"]);
}

#[test]
fn an_unknown_experiment_is_told_with_what_there_is() {
    fails(&["no-such"], 2, &["ccp-fct"]);
    fails(&["/no/such.py"], 2, &["/no/such.py"]);
    let script = scratch("without-sweep.py", "print(1)\n");
    fails(&[&script], 2, &["has no sweep", "without-sweep.toml"]);
    let script = scratch("without-metadata.py", "print(1)\n");
    scratch("without-metadata.toml", "scenario = \"01-one-flow\"\n");
    fails(&[&script], 2, &["# /// script", "docs/papers.md"]);
    let output = program().args(["--json", "no-such"]).output();
    let output = output.expect("the program under test starts");
    let object: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(object["kind"], "usage");
    let hint = object["hint"].as_str();
    assert!(hint.is_some_and(|hint| hint.contains("ccp-fidelity")));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn its_command_line_is_that_of_ccplane_paper() {
    let said = |arguments: &[&str]| {
        let output = program().args(arguments).output();
        let output = output.expect("the program under test starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let help = said(&["--help"]);
    for part in [
        "Usage: ccplane paper [OPTIONS] <NAME>",
        "--any-build",
        "ccplane paper list",
    ] {
        assert!(help.contains(part), "{part} is not in: {help}");
    }
    assert_eq!(
        said(&["--version"]),
        format!("ccplane-paper {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert!(said(&["list", "--json"]).starts_with("{\"experiments\":[{"));
}

#[test]
fn standard_output_that_closes_is_a_quiet_end() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = program().arg("list").stdout(writer).output();
    let (code, said) = outcome(&output.expect("the program under test starts"));
    assert_eq!((code, &*said), (Some(141), ""));
}

/// By `ccplane paper` where cargo has built the command next to this program; `cargo tests` does.
#[test]
fn ctrl_c_ends_a_run() {
    let own = Path::new(env!("CARGO_BIN_EXE_ccplane-paper"));
    let ccplane = own.with_file_name("ccplane");
    let mut command = match ccplane.is_file() {
        true => Command::new(ccplane),
        false => Command::new(own),
    };
    command.args((command.get_program() != own).then_some("paper"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted");
    let _ = fs::remove_dir_all(&out);
    let options = ["ccp-incast", "--datapath", "sim", "--quick", "--out"];
    let child = command
        .args(options)
        .env("CCPLANE_THREADS", "1")
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = child.spawn().expect("the program under test starts");
    while !out.is_dir() {
        assert!(
            child.try_wait().expect("ours").is_none(),
            "it ended by itself"
        );
        std::thread::yield_now();
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it runs");
    let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{said:?}");
}

/// The runs are kept, and the message says how to get Python.
#[test]
fn an_experiment_without_python_keeps_its_runs() {
    let script = scratch(
        "short.py",
        "# /// script\n# [tool.ccplane]\n# title = \"t\"\n# source = \"s\"\n# takes = \"1 s\"\n# ///\n",
    );
    let sweep = "[scenario]\nduration = \"1s\"\ncontenders = [\"reno\"]\n\
        topology.dumbbell = { rate = \"9mbit\", rtt = \"9ms\" }\nworkload = [{ bulk = {} }]\n";
    scratch("short.toml", sweep);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("short");
    let _ = fs::remove_dir_all(&out);
    let mut command = program();
    command.env("CCPLANE_PYTHON", "/no/such/python");
    let output = command.args([&script, "--out"]).arg(&out).output();
    let (code, text) = outcome(&output.expect("the program under test starts"));
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("/no/such/python") && text.contains("pip install polars matplotlib scipy"),
        "{text}"
    );
    assert!(out.join("sim/runs.parquet").exists());
    assert!(out.join("short.py").exists() && out.join("paper.py").exists());
}
