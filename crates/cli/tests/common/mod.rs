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
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns true if BPF programs can be loaded; otherwise reports the test as skipped.
pub fn can_run(test: &str) -> bool {
    if nix::unistd::geteuid().is_root()
        && fs::exists("/sys/kernel/btf/vmlinux").is_ok_and(|there| there)
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
