//! What tests on real packets need of the host. A test says what is missing and is skipped, or
//! fails where nothing may be skipped.

#![allow(dead_code, reason = "no file of tests needs all of it")]

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{Flock, FlockArg};

/// Whether this process may make namespaces.
pub fn privileged(test: &str) -> bool {
    let there = nix::unistd::geteuid().is_root() && Path::new("/dev/net/tun").exists();
    has(test, "root and /dev/net/tun", there)
}

/// The same for loading congestion controls into the kernel.
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

/// Held by a test that is not to be disturbed by others of this process, or counts what the process
/// leaves behind.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that registers congestion controls, whose names are global to the host, or loads
/// the machine. Processes exclude each other too.
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
