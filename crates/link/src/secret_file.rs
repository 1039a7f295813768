//! Files that only their owner can read, for private keys and data stored with them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Error of a file with a secret, or of a file stored with one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretFileError {
    /// The file or directory cannot be read.
    #[error("cannot read {}: {why}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        why: io::Error,
    },
    /// The file or directory cannot be created or written.
    #[error("cannot write {}: {why}", .path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        why: io::Error,
    },
    /// Other users may read the file.
    #[error("other users can read the private key in {} (mode {mode:04o}); chmod 600 \
        {}", .path.display(), .path.display())]
    Exposed {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
}

impl SecretFileError {
    /// Returns the kind of the operating system's error.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            SecretFileError::Read { why, .. } | SecretFileError::Write { why, .. } => {
                Some(why.kind())
            }
            SecretFileError::Exposed { .. } => None,
        }
    }
}

/// Returns a closure that converts an error of reading this path.
pub(crate) fn read_error(path: &Path) -> impl Fn(io::Error) -> SecretFileError {
    let path = path.to_owned();
    move |why| SecretFileError::Read {
        path: path.clone(),
        why,
    }
}

/// Returns a closure that converts an error of writing this path.
fn write_error(path: &Path) -> impl Fn(io::Error) -> SecretFileError {
    let path = path.to_owned();
    move |why| SecretFileError::Write {
        path: path.clone(),
        why,
    }
}

/// Returns whether a file exists. Fails if that is unknown, as in a directory that this user may
/// not search.
pub fn exists(path: &Path) -> Result<bool, SecretFileError> {
    path.try_exists().map_err(read_error(path))
}

/// Reads a file. Fails if it has more than `bytes_max` bytes.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, SecretFileError> {
    File::open(path)
        .and_then(|file| read_all(file, bytes_max))
        .map_err(read_error(path))
}

/// Reads a file with a secret. Fails if users other than the owner may read it.
pub fn read_secret(path: &Path, bytes_max: u64) -> Result<Vec<u8>, SecretFileError> {
    let file = File::open(path).map_err(read_error(path))?;
    // Check the open file, not the path, so that the file checked is the file read.
    let metadata = file.metadata().map_err(read_error(path))?;
    let mode = metadata.permissions().mode();
    if is_exposed(mode) {
        return Err(SecretFileError::Exposed {
            path: path.to_owned(),
            mode: mode & 0o7777,
        });
    }
    read_all(file, bytes_max).map_err(read_error(path))
}

/// Returns true if a file of this mode can be read by users other than its owner.
pub fn is_exposed(mode: u32) -> bool {
    mode & 0o077 != 0
}

fn read_all(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let why = format!("the file has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Creates a file for its owner only, atomically. Returns false if the file exists, even if another
/// process created it concurrently.
pub fn write_new(path: &Path, text: &str) -> Result<bool, SecretFileError> {
    let part = write_temporary(path, text).map_err(write_error(path))?;
    let linked = fs::hard_link(&part, path);
    fs::remove_file(&part).map_err(write_error(path))?;
    match linked {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        other => other.map(|()| true).map_err(write_error(path)),
    }
}

/// Creates or replaces a file for its owner only, atomically.
pub fn replace(path: &Path, text: &str) -> Result<(), SecretFileError> {
    let part = write_temporary(path, text).map_err(write_error(path))?;
    fs::rename(&part, path)
        .inspect_err(|_| drop(fs::remove_file(&part)))
        .map_err(write_error(path))
}

/// Writes a temporary file next to `path`. It must not exist: other users could read a file they
/// had created in advance.
fn write_temporary(path: &Path, text: &str) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let part = path.with_file_name(name);
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)?;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.sync_all());
    written
        .map(|()| part.clone())
        .inspect_err(|_| drop(fs::remove_file(&part)))
}

/// Creates a directory for its owner only, including missing parents.
pub fn make_folder(path: &Path) -> Result<(), SecretFileError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(write_error(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_atomically_and_foreign_files_are_not_written() {
        let folder = std::env::temp_dir().join(format!("ccplane-private-{}", std::process::id()));
        make_folder(&folder.join("deep")).unwrap();
        let path = folder.join("deep/key");
        assert!(write_new(&path, "one").unwrap());
        assert!(!write_new(&path, "two").unwrap());
        assert_eq!(read_secret(&path, 3).unwrap(), b"one");
        replace(&path, "three").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"three");
        assert!(
            read(&path, 4)
                .unwrap_err()
                .to_string()
                .contains("more than 4 bytes")
        );
        assert_eq!(fs::read_dir(folder.join("deep")).unwrap().count(), 1);
        assert!(exists(&path).unwrap() && !exists(&folder.join("other")).unwrap());
        // A path through a file can neither exist nor be created.
        let inside = path.join("key");
        const READ: &str = "cannot read ";
        const WRITE: &str = "cannot write ";
        for (error, expected) in [
            (exists(&inside).unwrap_err(), READ),
            (read(&inside, 5).unwrap_err(), READ),
            (read_secret(&inside, 5).unwrap_err(), READ),
            (write_new(&inside, "one").unwrap_err(), WRITE),
            (replace(&inside, "one").unwrap_err(), WRITE),
            (make_folder(&inside).unwrap_err(), WRITE),
        ] {
            let text = error.to_string();
            assert!(text.starts_with(expected), "{text}");
            assert!(text.contains("deep/key/key: Not a directory"), "{text}");
            assert_eq!(error.kind(), Some(io::ErrorKind::NotADirectory));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            read_secret(&path, 5),
            Err(SecretFileError::Exposed { mode: 0o644, .. })
        ));
        // Another process's file at the temporary path.
        let part = folder.join(format!("deep/key.{}", std::process::id()));
        fs::write(&part, "").unwrap();
        assert!(replace(&path, "four").is_err() && write_new(&path, "four").is_err());
        assert_eq!(fs::read(&part).unwrap(), b"");
        assert_eq!(read(&path, 5).unwrap(), b"three");
        fs::remove_dir_all(&folder).unwrap();
    }
}
