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
    assert!(
        std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|value| value != "1"),
        "SKIPPED: {test}: {reason}"
    );
    eprintln!("SKIPPED: {test}: {reason}");
}
