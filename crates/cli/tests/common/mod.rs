//! Helpers for tests of the command on a real kernel.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// Time limit for reactions of a process. A shorter one fails on a busy machine, a longer one
/// delays failures.
pub const REACTION_TIMEOUT: Duration = Duration::from_secs(20);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < REACTION_TIMEOUT,
            "not within {REACTION_TIMEOUT:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Undoes the line wrapping of messages: returns the text on one line, without the frame and with
/// single spaces. Lines are also wrapped behind `-` and `/` inside a word.
pub fn unwrapped(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).replace('│', " ");
    let mut line = String::new();
    for part in text.lines() {
        let mut before = line.chars().rev();
        let in_word = matches!(before.next(), Some('-' | '/'))
            && before.next().is_some_and(|before| before != ' ');
        if !line.is_empty() && !in_word {
            line.push(' ');
        }
        let words: Vec<&str> = part.split_whitespace().collect();
        line += &words.join(" ");
    }
    line.trim_end().to_owned()
}

/// Returns true if BPF programs can be loaded; otherwise reports the test as skipped.
pub fn can_run(test: &str) -> bool {
    if nix::unistd::geteuid().is_root()
        && fs::exists("/sys/kernel/btf/vmlinux").is_ok_and(|exists| exists)
    {
        return true;
    }
    let skipped =
        format!("SKIPPED: {test}: it loads BPF programs, as root and with /sys/kernel/btf/vmlinux");
    assert!(
        std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|value| value != "1"),
        "{skipped}"
    );
    eprintln!("{skipped}");
    false
}

/// Lock for tests that register congestion controls: names are global to the host.
pub fn lock_host() -> Flock<File> {
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open("/run/lock/ccplane.lock");
    Flock::lock(lock.expect("as root"), FlockArg::LockExclusive).expect("flock works")
}

/// Copies the command so that all users may run it. Another process writes the copy: a child that
/// another test forks during the write would inherit the open file, and executing it would fail
/// (ETXTBSY).
pub fn copy_command(to: &Path) {
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_ccplane"))
        .arg(to)
        .status();
    assert!(copied.expect("cp is there").success());
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("ours");
}
