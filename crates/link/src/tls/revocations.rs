//! List of revoked keys.

use std::collections::HashMap;
use std::path::PathBuf;

use ccplane_units::{Duration, Time};

use super::{KeyError, keys};
use crate::identity::Fingerprint;
use crate::warning::Warning;

/// Interval between reads of the list; connections of a revoked key must be closed within a second.
const RELOAD_INTERVAL: Duration = Duration::from_millis(250);
/// The list as last read from its file.
pub(super) struct Revocations {
    path: PathBuf,
    keys: HashMap<Fingerprint, String>,
    next_read: Time,
    warning: Warning,
}

impl Revocations {
    pub fn read(path: PathBuf) -> Result<Revocations, KeyError> {
        let keys = keys::revoked(&path)?;
        Ok(Revocations {
            path,
            keys,
            next_read: Time::ZERO,
            warning: Warning::default(),
        })
    }

    pub fn contains(&self, key: &Fingerprint) -> bool {
        self.keys.contains_key(key)
    }

    /// Reads the file again if that is due. Returns whether it changed. If it cannot be read, the
    /// last list stays in force.
    pub fn reload_if_due(&mut self, now: Time) -> bool {
        if now < self.next_read {
            return false;
        }
        self.next_read = now + RELOAD_INTERVAL;
        match keys::revoked(&self.path) {
            Ok(keys) => std::mem::replace(&mut self.keys, keys) != self.keys,
            Err(why) => {
                if let Some(times) = self.warning.due(now) {
                    tracing::warn!(%why, times, "cannot reload the list of revoked keys; the \
                        previous list stays in force");
                }
                false
            }
        }
    }
}
