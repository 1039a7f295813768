//! Paths of attached algorithms, for users without write access to the default ones.

use std::path::PathBuf;

use ccplane_linux::RegistrationPaths;
use clap::Args;

/// Path options of `attach`, `flows` and `detach`.
#[derive(Args)]
pub struct PathsArgs {
    /// Folder for the locks of attached algorithms.
    #[arg(long, value_name = "DIR", default_value_os_t = RegistrationPaths::default().state)]
    state: PathBuf,
    /// Folder to pin attached algorithms in: a mounted bpffs, or a folder of one.
    #[arg(long, value_name = "DIR", default_value_os_t = RegistrationPaths::default().bpffs)]
    bpffs: PathBuf,
}

impl PathsArgs {
    /// Sets the paths of this process. Must run before anything is attached or read.
    pub fn apply(&self) {
        let chosen = ccplane_linux::set_paths(RegistrationPaths {
            state: self.state.clone(),
            bpffs: self.bpffs.clone(),
        });
        if !chosen {
            tracing::warn!("--state and --bpffs have no effect: the paths are already in use");
        }
    }
}
