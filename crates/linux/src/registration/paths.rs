//! Folders of pins and locks. Users without access to the defaults choose others.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Folders of pins and locks. Every process that attaches, observes or detaches a registration must
/// use the same ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationPaths {
    /// Folder of the lock files, one per name.
    pub state: PathBuf,
    /// Folder of the pins: a bpffs mount, or a folder in one.
    pub bpffs: PathBuf,
}

impl Default for RegistrationPaths {
    fn default() -> RegistrationPaths {
        RegistrationPaths {
            state: "/run/ccplane".into(),
            bpffs: "/sys/fs/bpf".into(),
        }
    }
}

static CHOSEN_PLACES: OnceLock<RegistrationPaths> = OnceLock::new();

/// Sets the folders of this process, before any are used. Returns false if others are in use
/// already.
#[must_use]
pub fn set_paths(places: RegistrationPaths) -> bool {
    CHOSEN_PLACES.set(places.clone()).is_ok() || *paths() == places
}

fn paths() -> &'static RegistrationPaths {
    CHOSEN_PLACES.get_or_init(RegistrationPaths::default)
}

pub(crate) fn state() -> &'static Path {
    &paths().state
}

pub(crate) fn bpffs() -> &'static Path {
    &paths().bpffs
}
