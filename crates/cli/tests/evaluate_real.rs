//! `ccplane evaluate` and runs with several seeds on real packets.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::lock_host;

/// Returns true if links can be emulated; otherwise reports the test as skipped.
fn can_emulate(test: &str) -> bool {
    if nix::unistd::geteuid().is_root() && Path::new("/dev/net/tun").exists() {
        return true;
    }
    println!("SKIPPED: {test}: needs root and /dev/net/tun");
    assert!(
        std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|v| v != "1"),
        "it may not be skipped: needs root and /dev/net/tun"
    );
    false
}

/// The question with the shortest runs, on this host's own TCP.
#[test]
fn questions_are_asked_on_kernel_tcp_too() {
    if !can_emulate("questions_are_asked_on_kernel_tcp_too") {
        return;
    }
    let _host = lock_host();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("evaluate-linux");
    let _ = fs::remove_dir_all(&path);
    let out = path.display().to_string();
    let arguments = [
        "evaluate",
        "--alg",
        "reno",
        "--quick",
        "--datapath",
        "linux",
        "--only",
        "start-up",
        "--out",
        &out,
        "--json",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_ccplane"))
        .args(arguments)
        .output()
        .expect("the binary under test starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let question = &said["questions"][0];
    assert_eq!(said["datapath"], "Linux TCP", "{said}");
    assert_ne!(question["verdict"], "unanswered", "{question}");
    let took = |who: &str| question["places"][0][format!("{who}to_80_percent_ms")].as_f64();
    for who in ["", "reference_"] {
        // In steps of a round trip, within the run of three seconds.
        assert!(
            took(who).is_some_and(|ms| (20.0..3_000.0).contains(&ms)),
            "{question}"
        );
    }
    assert!(path.join("evaluation.html").exists());
}

/// One run per seed and contender, and the means of the runs.
#[test]
fn a_range_of_seeds_runs_on_real_packets() {
    if !can_emulate("a_range_of_seeds_runs_on_real_packets") {
        return;
    }
    let _host = lock_host();
    for datapath in ["linux", "udp"] {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("seeds-{datapath}"));
        let _ = fs::remove_dir_all(&path);
        let output = Command::new(env!("CARGO_BIN_EXE_ccplane"))
            .args(["run", "--datapath", datapath])
            .args(["--vs", "native:reno,native:cubic"])
            .args(["--seeds", "1..2", "--duration", "1s"])
            .args(["--rate", "24mbit", "--rtt", "10ms", "--json", "--out"])
            .arg(&path)
            .output()
            .expect("the binary under test starts");
        assert!(output.status.success(), "{output:?}");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(summary["setup"]["repeats"], 2, "{summary}");
        let contenders = summary["contenders"].as_array().expect("a list");
        assert_eq!(contenders.len(), 2, "{summary}");
        for contender in contenders {
            let runs = contender["runs"].as_array().expect("a list");
            let seeds: Vec<_> = runs.iter().map(|run| &run["seed"]).collect();
            assert_eq!(seeds, [&Value::from(1), &Value::from(2)], "{contender}");
            assert_eq!(contender["spread"]["seeds"], 2, "{contender}");
            let goodput = |of: &Value| of["figures"]["goodput_mbit"].as_f64().expect("a number");
            let goodputs = [goodput(&runs[0]), goodput(&runs[1])];
            let is_plausible = |rate: &f64| (5.0..24.0).contains(rate);
            assert!(goodputs.iter().all(is_plausible), "{contender}");
            let mean = (goodputs[0] + goodputs[1]) / 2.0;
            assert!((goodput(contender) - mean).abs() < 1e-6, "{contender}");
        }
        assert!(path.join("report.html").is_file());
    }
}
