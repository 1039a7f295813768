//! Where attached algorithms are kept, for users who may not write to the usual places.

use std::path::PathBuf;

use ccplane_linux::Places;
use clap::Args;

/// The same for `attach`, `flows` and `detach`.
#[derive(Args)]
pub struct PlacesArgs {
    /// Where the locks of attached algorithms lie.
    #[arg(long, value_name = "DIR", default_value_os_t = Places::default().state)]
    state: PathBuf,
    /// Where attached algorithms are pinned: a mounted bpffs, or a folder of one.
    #[arg(long, value_name = "DIR", default_value_os_t = Places::default().bpffs)]
    bpffs: PathBuf,
}

impl PlacesArgs {
    /// Chooses them for this process, which has attached and looked at nothing yet.
    pub fn choose(&self) {
        let chosen = ccplane_linux::set_paths(Places {
            state: self.state.clone(),
            bpffs: self.bpffs.clone(),
        });
        if !chosen {
            tracing::warn!("--state and --bpffs come too late");
        }
    }
}
