//! Where registrations are pinned and where their locks lie. Whoever may not write to the usual
//! places chooses others.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Two folders, the same for every process that attaches, looks at or detaches the same
/// registrations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Locks, one a name.
    pub state: PathBuf,
    /// Pins: a mounted bpffs, or a folder of one.
    pub bpffs: PathBuf,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            state: "/run/ccplane".into(),
            bpffs: "/sys/fs/bpf".into(),
        }
    }
}

static PLACES: OnceLock<Places> = OnceLock::new();

/// Chooses for this process, before anything is attached or looked at. False: it is too late.
#[must_use]
pub fn choose_places(places: Places) -> bool {
    PLACES.set(places.clone()).is_ok() || *chosen() == places
}

fn chosen() -> &'static Places {
    PLACES.get_or_init(Places::default)
}

pub(crate) fn state() -> &'static Path {
    &chosen().state
}

pub(crate) fn bpffs() -> &'static Path {
    &chosen().bpffs
}
