//! One process per name: names of congestion controls are global to the host, across namespaces.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::error::LoadError;
use crate::registration::paths::state;

/// Retries if a lock file disappears between opening and locking, because its holder exited.
const RETRIES_MAX: usize = 100;

/// Lock on a name, held while this process serves it. The kernel releases it however the process
/// ends.
pub(crate) struct NameLock {
    path: PathBuf,
    _file: Flock<File>,
    /// Lock on the folder of the pins, once it exists.
    pins: Option<Flock<File>>,
}

/// Permissions of a lock file. A user who can open it could lock it and keep the next agent out.
const LOCK_FILE_MODE: u32 = 0o600;

impl NameLock {
    pub fn acquire(name: &str) -> Result<NameLock, LoadError> {
        let path = state().join(format!("{name}.lock"));
        let failed = |what: &str| LoadError::io(format!("{what} {}", path.display()));
        for _ in 0..RETRIES_MAX {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(state())
                .map_err(failed("creating the directory of"))?;
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(LOCK_FILE_MODE)
                .open(&path);
            let mut file = match file {
                // The folder was removed with the last lock in it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                file => file.map_err(failed("opening"))?,
            };
            // Earlier versions left files that everybody could read.
            file.set_permissions(Permissions::from_mode(LOCK_FILE_MODE))
                .map_err(failed("setting the permissions of"))?;
            let mut pid = String::new();
            file.read_to_string(&mut pid).map_err(failed("reading"))?;
            let mut held = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
                LoadError::Running {
                    name: name.to_owned(),
                    pid: pid.trim().to_owned(),
                }
            })?;
            if !is_same_file(&held, &path) {
                // removed by its holder; another process may hold a new file of this name
                continue;
            }
            let write = |file: &mut File| {
                file.set_len(0)?;
                file.rewind()?;
                writeln!(file, "{}", std::process::id())
            };
            write(&mut held).map_err(failed("writing"))?;
            return Ok(NameLock {
                path,
                _file: held,
                pins: None,
            });
        }
        Err(failed("locking")(std::io::ErrorKind::ResourceBusy.into()))
    }

    /// Locks the folder of the pins as well. Otherwise two processes with different state folders
    /// could control the same flow table.
    pub fn lock_pins(&mut self, directory: &Path) -> Result<(), LoadError> {
        let failed = LoadError::io(format!("opening {}", directory.display()));
        let folder = File::open(directory).map_err(failed)?;
        let held = Flock::lock(folder, FlockArg::LockExclusiveNonblock).map_err(|_| {
            LoadError::Steered {
                path: directory.to_owned(),
            }
        })?;
        self.pins = Some(held);
        Ok(())
    }
}

/// Removes the lock file of a name held by this process, for an exit without dropping the holder.
/// Another process may take the name from then on.
pub fn abandon_name(name: &str) {
    let path = state().join(format!("{name}.lock"));
    if std::fs::read_to_string(&path).is_ok_and(|pid| pid.trim() == std::process::id().to_string())
    {
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir(state());
    }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        // While the lock is held: a process that opened the file before sees in `take` that it is
        // gone.
        let _ = std::fs::remove_file(&self.path);
        // Fails, as intended, while other names are held.
        let _ = std::fs::remove_dir(state());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{missing_requirement, skip};

    #[test]
    fn a_name_has_one_holder_and_leaves_no_file() {
        if let Some(reason) = missing_requirement() {
            return skip("a_name_has_one_holder_and_leaves_no_file", &reason);
        }
        let first = NameLock::acquire("t_lock").unwrap_or_else(|error| panic!("{error}"));
        match NameLock::acquire("t_lock").map(drop) {
            Err(LoadError::Running { name, pid }) => {
                assert_eq!(
                    (name.as_str(), pid),
                    ("t_lock", std::process::id().to_string())
                );
            }
            other => panic!("{other:?}"),
        }
        let path = first.path.clone();
        let mode = std::fs::metadata(&path).expect("it is held").mode() & 0o777;
        assert_eq!(mode, LOCK_FILE_MODE, "other users could lock the file");
        drop(first);
        assert!(!path.exists());
        drop(NameLock::acquire("t_lock").unwrap_or_else(|error| panic!("{error}")));
    }
}
