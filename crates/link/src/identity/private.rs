//! Files that their owner alone may read: private keys, and what lies beside them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a file with a secret was not read.
#[derive(Debug)]
pub enum Unreadable {
    /// It cannot be read.
    Failed(io::Error),
    /// Others than its owner may read it: its permissions.
    Exposed(u32),
}

/// Reads a file. More than `most` bytes are an error.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    all_of(File::open(path)?, most)
}

/// The same of a file with a secret, which its owner alone may read.
pub fn read_secret(path: &Path, most: u64) -> Result<Vec<u8>, Unreadable> {
    let file = File::open(path).map_err(Unreadable::Failed)?;
    // Of the open file, so that what was checked is what is read.
    let mode = file
        .metadata()
        .map_err(Unreadable::Failed)?
        .permissions()
        .mode()
        & 0o777;
    if mode & 0o077 != 0 {
        return Err(Unreadable::Exposed(mode));
    }
    all_of(file, most).map_err(Unreadable::Failed)
}

fn all_of(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Writes a file for its owner alone, whole or not at all. One that is there already stays, also
/// where another process is sooner: then it is false.
pub fn write_new(path: &Path, text: &str) -> io::Result<bool> {
    let part = beside(path, text)?;
    let linked = fs::hard_link(&part, path);
    fs::remove_file(&part)?;
    match linked {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        other => other.map(|()| true),
    }
}

/// Writes a file for its owner alone, whole or not at all, in place of one that is there.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let part = beside(path, text)?;
    fs::rename(&part, path).inspect_err(|_| drop(fs::remove_file(&part)))
}

/// Writes a file beside `path`. It is a new one: of a file that somebody else had put there, others
/// could read what is written.
fn beside(path: &Path, text: &str) -> io::Result<PathBuf> {
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

/// Makes a folder for its owner alone, and those that lead to it.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_or_stays_and_nobody_elses_is_written_to() {
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
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            read_secret(&path, 5),
            Err(Unreadable::Exposed(0o644))
        ));
        // Somebody else's, where the part would be.
        let part = folder.join(format!("deep/key.{}", std::process::id()));
        fs::write(&part, "").unwrap();
        assert!(replace(&path, "four").is_err() && write_new(&path, "four").is_err());
        assert_eq!(fs::read(&part).unwrap(), b"");
        assert_eq!(read(&path, 5).unwrap(), b"three");
        fs::remove_dir_all(&folder).unwrap();
    }
}
