//! Files that are not complete: found again by the next attempt to send them, read to be compared, and removed when nobody comes back.
#![expect(
    clippy::disallowed_methods,
    reason = "how old a file is, is by the clock of its folder"
)]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ccplane_files::{BLOCK, HASH, Hash, name};

use super::target::cannot_write;

/// Unfinished files of which nobody has heard for so long are removed when something comes to their folder again.
const FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 3600);
/// Names that are tried where the same comes several times at once.
const MOST_NAMES: u64 = 1000;

/// An unfinished file. Its lock is this process's: nobody else goes on with it.
pub struct Part {
    pub path: PathBuf,
    pub file: File,
    /// The next attempt finds it.
    pub again: bool,
}

impl Part {
    /// What an earlier attempt left there.
    pub fn find(path: &Path) -> Option<Part> {
        Part::claim(path, false)
    }

    /// An empty one, there or, where another transfer has that, beside it. `again`: the next attempt may go on with it.
    pub fn begin(path: &Path, again: bool) -> Result<Part, String> {
        if again && let Some(part) = Part::claim(path, true) {
            part.file.set_len(0).map_err(|why| cannot_write(path, &why))?;
            return Ok(part);
        }
        let mut n = 1;
        loop {
            let beside = name::another(path, n);
            match Part::create(&beside) {
                Ok(part) => return Ok(part),
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists && n < MOST_NAMES => n += 1,
                Err(why) => return Err(cannot_write(&beside, &why)),
            }
        }
    }

    /// A new one, which no later attempt looks for.
    pub fn create(path: &Path) -> io::Result<Part> {
        Ok(Part {
            path: path.to_owned(),
            file: File::create_new(path)?,
            again: false,
        })
    }

    /// Opens and locks it. In a folder of many users somebody else could have put it there, or a link: only a plain file of ours counts.
    fn claim(path: &Path, make: bool) -> Option<Part> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(make).truncate(false);
        let file = options
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .ok()?;
        let about = file.metadata().ok()?;
        if !about.is_file() || about.nlink() != 1 || about.uid() != nix::unistd::geteuid().as_raw() {
            return None;
        }
        match file.try_lock() {
            // File systems without locks say so.
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => return None,
        }
        Some(Part {
            path: path.to_owned(),
            file,
            again: true,
        })
    }

    /// Bytes of the whole blocks in it.
    pub fn blocks(&self) -> u64 {
        self.file.metadata().map_or(0, |about| about.len()) / BLOCK * BLOCK
    }

    /// Another handle of the same file, to read it.
    pub fn reader(&self) -> io::Result<File> {
        File::open(&self.path)
    }
}

/// Removes unfinished files of long ago from a folder.
pub fn sweep(folder: &Path) {
    let Ok(inside) = fs::read_dir(folder) else { return };
    for entry in inside.flatten() {
        if !name::is_part(entry.file_name().as_encoded_bytes()) {
            continue;
        }
        let age = entry.metadata().and_then(|about| about.modified());
        let old = age.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > FORGOTTEN));
        if old && Part::find(&entry.path()).is_some() {
            // Somebody else may be quicker.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Hashes a file from its beginning, a block at a time.
pub struct Hashing {
    file: Option<File>,
    /// Bytes in all, and so far.
    bytes: u64,
    at: u64,
    /// Of all so far.
    hasher: Box<blake3::Hasher>,
    buffer: Vec<u8>,
}

impl Hashing {
    /// Of so many bytes. What cannot be read has the wrong hashes, and is sent again.
    pub fn new(file: io::Result<File>, bytes: u64) -> Hashing {
        Hashing {
            file: file.ok(),
            bytes,
            at: 0,
            hasher: Box::default(),
            buffer: Vec::new(),
        }
    }

    /// The hash of the next block; `None` at the end.
    pub fn next(&mut self) -> Option<Hash> {
        let length = (self.bytes - self.at).min(BLOCK) as usize;
        if length == 0 {
            return None;
        }
        self.buffer.resize(length, 0);
        self.at += length as u64;
        let read = |file: &mut File| file.read_exact(&mut self.buffer).is_ok();
        if !self.file.as_mut().is_some_and(read) {
            self.file = None;
            return Some([0; HASH]);
        }
        self.hasher.update(&self.buffer);
        Some(*blake3::hash(&self.buffer).as_bytes())
    }

    /// The hash of all, to go on with; `None` before the end.
    pub fn finish(self) -> Option<Box<blake3::Hasher>> {
        (self.at == self.bytes).then_some(self.hasher)
    }
}
