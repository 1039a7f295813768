//! Helpers shared by the tests of this crate.

use std::path::Path;

/// Returns the reason why this host cannot load BPF programs, if any.
pub fn missing_requirement() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it loads BPF programs; run as root".to_owned());
    }
    let btf = Path::new("/sys/kernel/btf/vmlinux");
    (!btf.exists()).then(|| format!("this kernel has no {}", btf.display()))
}

/// Reports that `test` was skipped, or fails if skipping is not allowed.
pub fn skip(test: &str, reason: &str) {
    assert!(!must_run(), "SKIPPED: {test}: {reason}");
    eprintln!("SKIPPED: {test}: {reason}");
}

/// Returns true if no test may be skipped.
pub fn must_run() -> bool {
    std::env::var_os("CCPLANE_NO_SKIP").is_some_and(|value| value == "1")
}

/// Locks the host for a test that registers a congestion control or loads objects that other tests
/// count.
pub fn lock_host() -> nix::fcntl::Flock<std::fs::File> {
    let file = std::fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open("/run/lock/ccplane.lock")
        .expect("as root");
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive).expect("flock works")
}
