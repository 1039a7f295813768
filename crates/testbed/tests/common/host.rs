//! Requirements of tests on real packets. A test whose requirement is missing is reported as
//! skipped, or fails if `CCPLANE_NO_SKIP` is 1.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{Flock, FlockArg};

/// Returns true if this process may create namespaces.
pub fn privileged(test: &str) -> bool {
    let there = nix::unistd::geteuid().is_root() && Path::new("/dev/net/tun").exists();
    has(test, "root and /dev/net/tun", there)
}

/// Returns true if it may also load congestion controls into the kernel.
pub fn steers(test: &str) -> bool {
    let there = || Path::new("/sys/kernel/btf/vmlinux").exists();
    privileged(test) && has(test, "/sys/kernel/btf/vmlinux", there())
}

fn has(test: &str, what: &str, there: bool) -> bool {
    if !there {
        println!("SKIPPED: {test}: needs {what}");
        assert!(
            std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|v| v != "1"),
            "{test} may not be skipped: needs {what}"
        );
    }
    there
}

/// Lock of tests that others of this process must not disturb, or that count resources of the
/// process.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lock of tests that register congestion controls, whose names are global to the host, or that
/// load the machine. It excludes other processes too.
pub fn registers() -> (MutexGuard<'static, ()>, Flock<File>) {
    let turn = alone();
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open("/run/lock/ccplane.lock")
        .unwrap();
    (turn, Flock::lock(file, FlockArg::LockExclusive).unwrap())
}
