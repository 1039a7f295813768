//! The list of revoked keys.

use std::collections::HashMap;
use std::path::PathBuf;

use ccplane_units::{Duration, Time};

use super::{KeyError, keys};
use crate::identity::Fingerprint;
use crate::warning::Warning;

/// How often the list of revoked keys is looked at: within a second of being revoked a key is to
/// count no more.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The list of revoked keys, as the file has it.
pub(super) struct Revocations {
    path: PathBuf,
    keys: HashMap<Fingerprint, String>,
    next: Time,
    trouble: Warning,
}

impl Revocations {
    pub fn read(path: PathBuf) -> Result<Revocations, KeyError> {
        let keys = keys::revoked(&path)?;
        Ok(Revocations {
            path,
            keys,
            next: Time::ZERO,
            trouble: Warning::default(),
        })
    }

    pub fn contain(&self, key: &Fingerprint) -> bool {
        self.keys.contains_key(key)
    }

    /// Looks at the file when it is time; true if it changed. One that cannot be read leaves what
    /// was known.
    pub fn look(&mut self, now: Time) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + LOOK_EVERY;
        match keys::revoked(&self.path) {
            Ok(keys) => std::mem::replace(&mut self.keys, keys) != self.keys,
            Err(why) => {
                if let Some(times) = self.trouble.due(now) {
                    tracing::warn!(%why, times, "which keys are revoked is not known anew: those of before are");
                }
                false
            }
        }
    }
}
