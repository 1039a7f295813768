//! What tests of this crate share.

use std::path::Path;

/// What this host lacks to load BPF programs.
pub fn cannot_load() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it loads BPF programs: run it as root".to_owned());
    }
    let btf = Path::new("/sys/kernel/btf/vmlinux");
    (!btf.exists()).then(|| format!("this kernel has no {}", btf.display()))
}

/// Says loudly that `test` did not run, or fails where that is not allowed.
pub fn skip(test: &str, reason: &str) {
    assert!(!must_run(), "SKIPPED: {test}: {reason}");
    eprintln!("SKIPPED: {test}: {reason}");
}

/// Nothing may be skipped.
pub fn must_run() -> bool {
    std::env::var_os("CCPLANE_NO_SKIP").is_some_and(|value| value == "1")
}

/// Held by whoever registers a congestion control, or loads what other tests count: one at a time
/// over the whole host.
pub fn lock_host() -> nix::fcntl::Flock<std::fs::File> {
    let file = std::fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open("/run/lock/ccplane.lock")
        .expect("as root");
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive).expect("flock works")
}
