//! Paths of attached algorithms, for users without write access to the default ones.

use std::ffi::OsString;
use std::path::PathBuf;

use ccplane_linux::RegistrationPaths;

/// Environment variable with the folder for the locks of attached algorithms.
pub const STATE_VARIABLE: &str = "CCPLANE_STATE";
/// Environment variable with the folder to pin attached algorithms in: a mounted bpffs, or a folder
/// of one.
pub const BPFFS_VARIABLE: &str = "CCPLANE_BPFFS";

/// Sets the paths of this process from the environment, which `attach`, `flows` and `detach` share.
/// Must run before anything is attached or read.
pub fn apply() {
    let given = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
    let chosen = ccplane_linux::set_paths(paths(given(STATE_VARIABLE), given(BPFFS_VARIABLE)));
    if !chosen {
        tracing::warn!(
            "{STATE_VARIABLE} and {BPFFS_VARIABLE} have no effect: the paths are already in use"
        );
    }
}

fn paths(state: Option<OsString>, bpffs: Option<OsString>) -> RegistrationPaths {
    let default = RegistrationPaths::default();
    RegistrationPaths {
        state: state.map_or(default.state, PathBuf::from),
        bpffs: bpffs.map_or(default.bpffs, PathBuf::from),
    }
}
