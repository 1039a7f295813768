//! Paths of known datapaths, stored in a file next to the agent's socket for its next start.
//!
//! CCP datapaths send READY once, when they start, and do not notice that an agent restarts. So the
//! agent stores their paths, and its successor installs its programs there without being asked. The
//! file is `PATH.peers`, one path per line, readable by its owner only. It remains when the agent
//! ends while datapaths are alive. Failing to write it is harmless: the next message of a datapath
//! also identifies it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::O_NOFOLLOW;

use super::socket;

/// Limit of stored paths, enough for all datapaths of a host. A lower limit would lose some;
/// without one, a datapath that keeps changing its path could fill the disk.
const PATHS_MAX: usize = 1 << 12;
/// Limit of the file, bytes: up to 107 for a socket's path and one for the newline.
const FILE_BYTES_MAX: u64 = 108 * PATHS_MAX as u64;

/// The stored paths.
#[derive(Debug)]
pub(super) struct KnownPeers {
    file: PathBuf,
    paths: HashSet<Vec<u8>>,
}

impl KnownPeers {
    /// Reads the paths stored by the previous agent at `socket`. Keeps those that are still sockets
    /// of this user or of root.
    pub fn read(socket: &Path) -> KnownPeers {
        let mut file = socket.as_os_str().to_owned();
        file.push(".peers");
        let mut remembered = KnownPeers {
            file: file.into(),
            paths: HashSet::new(),
        };
        let text = match remembered.text() {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return remembered,
            Err(why) => {
                let file = remembered.file.display();
                tracing::warn!(%why, %file, "cannot read the list of datapaths of the previous \
                    agent");
                return remembered;
            }
        };
        let lines = text
            .split(|byte| *byte == b'\n')
            .filter(|path| owner(path).is_some());
        remembered.paths = lines.take(PATHS_MAX).map(<[u8]>::to_vec).collect();
        remembered.rewrite();
        remembered
    }

    /// Returns the paths with their owners.
    pub fn paths(&self) -> Vec<(PathBuf, u32)> {
        let owned = |path: &Vec<u8>| Some((PathBuf::from(OsStr::from_bytes(path)), owner(path)?));
        let mut all: Vec<_> = self.paths.iter().filter_map(owned).collect();
        all.sort();
        all
    }

    /// Stores a path. Abstract names are not stored, because their owner cannot be determined.
    pub fn add(&mut self, path: &[u8]) {
        let plain = path.starts_with(b"/") && !path.contains(&b'\n');
        if !plain || self.paths.len() >= PATHS_MAX || !self.paths.insert(path.to_vec()) {
            return;
        }
        let line = [path, b"\n"].concat();
        let written = self.open(true).and_then(|mut file| file.write_all(&line));
        self.warn(written);
    }

    /// Reads the file. Fails if other users could have written it.
    fn text(&self) -> io::Result<Vec<u8>> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(O_NOFOLLOW)
            .open(&self.file)?;
        let there = file.metadata()?;
        if !there.is_file() || !socket::is_trusted(there.uid()) || there.mode() & 0o022 != 0 {
            return Err(io::Error::other(
                "other users can write the file; remove it",
            ));
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
        Ok(text)
    }

    fn rewrite(&self) {
        let mut text = Vec::new();
        for path in &self.paths {
            text.extend_from_slice(path);
            text.push(b'\n');
        }
        let written = if text.is_empty() {
            fs::remove_file(&self.file)
        } else {
            self.open(false).and_then(|mut file| file.write_all(&text))
        };
        self.warn(written);
    }

    fn open(&self, append: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).mode(0o600).custom_flags(O_NOFOLLOW);
        if append {
            options.append(true);
        } else {
            options.write(true).truncate(true);
        }
        options.open(&self.file)
    }

    fn warn(&self, written: io::Result<()>) {
        if let Err(why) = written {
            let file = self.file.display();
            tracing::warn!(%why, %file, "cannot write the list of datapaths; after a restart, \
                datapaths reappear with their next message");
        }
    }
}

impl Drop for KnownPeers {
    fn drop(&mut self) {
        // All datapaths are gone, so the next agent needs no file.
        if !self.paths.is_empty() && self.paths.iter().all(|path| owner(path).is_none()) {
            let _ = fs::remove_file(&self.file);
        }
    }
}

/// Returns the owner of the socket at `path` if it is a trusted user.
fn owner(path: &[u8]) -> Option<u32> {
    let there = fs::symlink_metadata(Path::new(OsStr::from_bytes(path))).ok()?;
    (path.starts_with(b"/") && there.file_type().is_socket() && socket::is_trusted(there.uid()))
        .then(|| there.uid())
}
