//! What the tests of the command on a real kernel share.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// How long a process may take to do what it is asked. Less fails on a busy machine; more makes a
/// failure slow to see.
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

/// Whether BPF programs can be loaded; says so where they cannot.
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

/// Held by whoever registers a congestion control in a test: names are global to the host.
pub fn lock_host() -> Flock<File> {
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open("/run/lock/ccplane.lock");
    Flock::lock(lock.expect("as root"), FlockArg::LockExclusive).expect("flock works")
}

/// A copy of the command that everybody may run. Another process writes it: what another test
/// starts while this one writes would hold the copy open, and it could not be run.
pub fn copy_command(to: &Path) {
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_ccplane"))
        .arg(to)
        .status();
    assert!(copied.expect("cp is there").success());
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("ours");
}
