//! `ccplane evaluate` on kernel TCP.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::lock_host;

/// The question with the shortest runs, on this host's own TCP.
#[test]
fn questions_are_asked_on_kernel_tcp_too() {
    if !nix::unistd::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        println!("SKIPPED: questions_are_asked_on_kernel_tcp_too: needs root and /dev/net/tun");
        assert!(
            std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|v| v != "1"),
            "it may not be skipped: needs root and /dev/net/tun"
        );
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
