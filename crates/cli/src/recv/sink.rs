//! The place of one entry. A file has its name when it is complete; until then it lies beside its place, hidden.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ccplane_files::wire::{Entry, What};
use ccplane_files::{Hash, name};

use super::target::{cannot_write, folder};
use super::unfinished::Part;

/// Names that are tried beside one that is taken.
const MOST_NAMES: u64 = 10_000;

/// Dropped before [`store`](Sink::store) or [`keep`](Sink::keep), it leaves nothing.
pub struct Sink {
    to: Box<dyn Write + Send>,
    name: String,
    place: Option<Place>,
}

/// A file that has its name only when it is complete.
struct Place {
    /// The same file as `Sink::to`.
    part: Part,
    path: PathBuf,
    taken: Taken,
    executable: bool,
}

/// What is done where the name is taken at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// What is there is replaced.
    Replace,
    /// It is an error.
    Refuse,
    /// Both are kept, unless they are the same.
    Beside,
    /// It has a number, and gets the next one.
    Next(u64),
}

impl Sink {
    /// Something that has no name to get.
    pub fn plain(to: Box<dyn Write + Send>, name: String) -> Sink {
        Sink { to, name, place: None }
    }

    /// For an entry from its beginning on.
    pub fn begin(entry: &Entry, place: &Path, taken: Taken) -> Result<Sink, String> {
        let bytes = entry.what.bytes();
        let usual = name::part(place, &entry.name, bytes.unwrap_or(u64::MAX));
        // A stream's bytes may be others the next time.
        let part = Part::begin(&usual, bytes.is_some() && !entry.name.is_empty())?;
        Sink::new(part, entry, place, taken)
    }

    /// For an entry from this byte on, of which an earlier attempt left what is before.
    pub fn resume(mut part: Part, entry: &Entry, place: &Path, taken: Taken, from: u64) -> Result<Sink, String> {
        let moved = part
            .file
            .set_len(from)
            .and_then(|()| part.file.seek(SeekFrom::Start(from)));
        moved.map_err(|why| cannot_write(&part.path, &why))?;
        Sink::new(part, entry, place, taken)
    }

    fn new(part: Part, entry: &Entry, place: &Path, taken: Taken) -> Result<Sink, String> {
        let to = part.file.try_clone().map_err(|why| cannot_write(&part.path, &why))?;
        Ok(Sink {
            to: Box::new(to),
            name: place.display().to_string(),
            place: Some(Place {
                part,
                path: place.to_owned(),
                taken,
                executable: matches!(entry.what, What::File { executable: true, .. }),
            }),
        })
    }

    /// For what has no name: the first number in a folder, from `n` on, that nobody has. Its unfinished file, which only one can create, is
    /// the claim on its name; that the name is free is looked at after that, since who had the claim before gave the file its name
    /// before he gave the claim up.
    pub fn numbered(folder: &Path, n: u64) -> Result<Sink, String> {
        let entry = Entry {
            name: Vec::new(),
            what: What::Stream,
        };
        for n in n.. {
            let path = folder.join(numbered(n));
            let part = match Part::create(&name::part(&path, &[], 0)) {
                Ok(part) => part,
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(why) => return Err(cannot_write(&path, &why)),
            };
            if path.symlink_metadata().is_ok() {
                let _ = fs::remove_file(&part.path);
                continue;
            }
            return Sink::new(part, &entry, &path, Taken::Next(n));
        }
        Err(format!("no number is free in {}", folder.display()))
    }

    /// Adds bytes; an error names the place.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.to
            .write_all(bytes)
            .map_err(|why| format!("cannot write {}: {why}", self.name))
    }

    /// The transfer is interrupted: what the next attempt can use stays. How many bytes that are.
    pub fn keep(mut self) -> u64 {
        let bytes = self
            .place
            .as_ref()
            .filter(|place| place.part.again)
            .map_or(0, |place| place.part.blocks());
        if bytes > 0 {
            self.place = None;
        }
        bytes
    }

    /// All is there, and has this hash: it gets its name, which it says. With `sync` the file and its name outlive a loss of power when
    /// this returns.
    pub fn store(mut self, hash: &Hash, sync: bool) -> Result<String, String> {
        self.give_name(hash, sync)
            .map_err(|why| format!("cannot write {}: {why}", self.name))
    }

    fn give_name(&mut self, hash: &Hash, sync: bool) -> io::Result<String> {
        self.to.flush()?;
        let Some(place) = &mut self.place else {
            return Ok(self.name.clone());
        };
        if place.executable {
            let mode = place.part.file.metadata()?.permissions().mode();
            let mode = fs::Permissions::from_mode(mode | (mode & 0o444) >> 2);
            place.part.file.set_permissions(mode)?;
        }
        if sync {
            place.part.file.sync_all()?;
        }
        place.name(hash)?;
        if sync {
            File::open(folder(&place.path))?.sync_all()?;
        }
        Ok(place.path.display().to_string())
    }
}

impl Place {
    /// Only [`Taken::Replace`] replaces what is there: a link, unlike a rename, never does.
    fn name(&mut self, hash: &Hash) -> io::Result<()> {
        if self.taken == Taken::Replace {
            return fs::rename(&self.part.path, &self.path);
        }
        let wanted = self.path.clone();
        for n in 2..MOST_NAMES {
            match fs::hard_link(&self.part.path, &self.path) {
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => return outcome,
            }
            match &mut self.taken {
                Taken::Beside if is_same(&self.path, self.part.file.metadata()?.len(), hash) => return Ok(()),
                Taken::Beside => self.path = name::another(&wanted, n),
                Taken::Next(number) => {
                    *number += 1;
                    self.path.set_file_name(numbered(*number));
                }
                Taken::Refuse | Taken::Replace => break,
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Whether a file is there with this length and hash.
fn is_same(path: &Path, bytes: u64, hash: &Hash) -> bool {
    let about = path.symlink_metadata();
    if !about.is_ok_and(|about| about.is_file() && about.len() == bytes) {
        return false;
    }
    let mut hasher = blake3::Hasher::new();
    let read = File::open(path).and_then(|file| hasher.update_reader(file).map(drop));
    read.is_ok() && *hasher.finalize().as_bytes() == *hash
}

/// The name of the `n`-th transfer in a folder that has no name of its own.
fn numbered(n: u64) -> String {
    format!("received-{n:04}")
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            // Gone already where it was renamed.
            let _ = fs::remove_file(&place.part.path);
        }
    }
}
