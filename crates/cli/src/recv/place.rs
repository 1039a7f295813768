//! Where `ccplane recv` puts what it receives. A file has its name when it is complete; until then it lies beside its place, hidden, and
//! what there is of it after an interruption is where the next attempt goes on.
#![expect(
    clippy::disallowed_methods,
    reason = "how old a file is, is by the clock of its folder"
)]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ccplane_files::wire::{Entry, What};
use ccplane_files::{BLOCK, Hash, name};

use crate::exit::{Failure, Kind};

/// Unfinished files of which nobody has heard for so long are removed when something comes to their folder again.
const FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 3600);
/// Names that are tried beside one that is taken.
const MOST_NAMES: u64 = 10_000;

/// Where transfers go.
#[derive(Clone, Debug)]
pub enum Target {
    /// To this file, one transfer.
    File {
        /// The file.
        path: PathBuf,
        /// Whether one that exists is replaced.
        force: bool,
    },
    /// To files of their own in this folder.
    Folder(PathBuf),
    /// To standard output, one transfer.
    Stdout,
    /// To a device or a pipe that exists, such as `/dev/null`.
    Device(PathBuf),
}

impl Target {
    /// From what the user wrote; refuses what could not be stored later.
    pub fn parse(out: &Path, force: bool) -> Result<Target, Failure> {
        if out == Path::new("-") {
            return Ok(Target::Stdout);
        }
        match fs::metadata(out) {
            Ok(about) if about.is_dir() => Ok(Target::Folder(out.to_owned())),
            Ok(about) if !about.is_file() => Ok(Target::Device(out.to_owned())),
            Ok(_) if !force => Err(exists(out)),
            Ok(_) => Ok(Target::File {
                path: out.to_owned(),
                force,
            }),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                let folder = folder(out);
                if !folder.is_dir() {
                    let text = format!("there is no folder {} for --out", folder.display());
                    return Err(Failure::text(Kind::Usage, text));
                }
                Ok(Target::File {
                    path: out.to_owned(),
                    force,
                })
            }
            Err(why) => Err(Failure::text(Kind::Usage, format!("--out {}: {why}", out.display()))),
        }
    }

    /// Whether it takes one transfer only.
    pub fn is_single(&self) -> bool {
        matches!(self, Target::File { .. } | Target::Stdout)
    }

    /// Where an entry goes, `n` being the number of its transfer; `None` where it has no name there.
    pub fn place(&self, entry: &Entry, hidden: bool) -> Result<Option<PathBuf>, String> {
        match self {
            Target::Stdout | Target::Device(_) => Ok(None),
            Target::File { path, .. } => Ok(Some(path.clone())),
            Target::Folder(_) if entry.name.is_empty() => Ok(None),
            Target::Folder(folder) => {
                let inside = name::path(&entry.name, hidden).map_err(|why| why.to_string())?;
                Ok(Some(folder.join(inside)))
            }
        }
    }

    /// Makes the folders on the way to a place, none of which may be a link: it could lead elsewhere.
    pub fn make_folders(&self, place: &Path) -> Result<(), String> {
        let Target::Folder(root) = self else { return Ok(()) };
        let Ok(inside) = place.strip_prefix(root) else {
            return Ok(());
        };
        let mut path = root.clone();
        for component in inside.components() {
            path.push(component);
            match path.symlink_metadata() {
                Ok(about) if about.is_dir() => {}
                Ok(_) => return Err(format!("{} is in the way: it is no folder", path.display())),
                Err(why) if why.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir(&path).map_err(|why| cannot_write(&path, &why))?;
                }
                Err(why) => return Err(cannot_write(&path, &why)),
            }
        }
        Ok(())
    }

    /// Whether so many bytes more find room, or why not.
    pub fn has_room(&self, bytes: u64) -> Result<(), String> {
        let place = match self {
            Target::Stdout | Target::Device(_) => return Ok(()),
            Target::File { path, .. } => folder(path),
            Target::Folder(path) => path,
        };
        let Ok(about) = nix::sys::statvfs::statvfs(place) else {
            return Ok(());
        };
        let free = about.blocks_available().saturating_mul(about.fragment_size());
        match bytes <= free {
            true => Ok(()),
            false => Err(format!(
                "there is no room in {}: {} are wanted, {} are free",
                place.display(),
                human(bytes),
                human(free)
            )),
        }
    }

    /// What is there of an entry already, from an interrupted transfer or an earlier one.
    ///
    /// Of a file that is there in whole the sender hears hashes, by which it could guess what is in it: so it has to be `known`, by
    /// the key or from an earlier transfer to this process.
    pub fn found(&self, entry: &Entry, place: &Path, known: bool) -> Found {
        let What::File { bytes, .. } = entry.what else {
            return Found::Nothing;
        };
        if entry.name.is_empty() {
            return Found::Nothing;
        }
        if let Target::Folder(_) = self
            && known
            && let Ok(about) = place.symlink_metadata()
            && about.is_file()
            && about.len() == bytes
        {
            return Found::Whole(place.to_owned());
        }
        let part = name::part(place, &entry.name, bytes);
        let Some(file) = claim(&part, false) else {
            return Found::Nothing;
        };
        match file.metadata() {
            Ok(about) if (BLOCK..=bytes).contains(&about.len()) => {
                Found::Part(Part { path: part, file }, about.len() / BLOCK * BLOCK)
            }
            _ => Found::Nothing,
        }
    }

    /// Opens the place of an entry, for what comes from its beginning on. `n`: the number of its transfer.
    pub fn open(&self, entry: &Entry, place: Option<&Path>, n: u64) -> Result<Sink, String> {
        let force = matches!(self, Target::File { force: true, .. });
        let several = matches!(self, Target::Folder(_));
        match (self, place) {
            (Target::Stdout, _) => Ok(Sink::to(Box::new(io::stdout()), "standard output".to_owned())),
            (Target::Device(path), _) => {
                let file = OpenOptions::new()
                    .write(true)
                    .open(path)
                    .map_err(|why| cannot_write(path, &why))?;
                Ok(Sink::to(Box::new(file), path.display().to_string()))
            }
            (Target::Folder(folder), None) => Sink::numbered(folder, n),
            (Target::File { path, .. }, None) => Sink::begin(entry, path, force, several),
            (_, Some(place)) => Sink::begin(entry, place, force, several),
        }
    }

    /// Has the file system write down what it was given, where that was not done file by file.
    pub fn sync(&self) -> Result<(), String> {
        let Target::Folder(path) = self else { return Ok(()) };
        let all = File::open(path).and_then(|folder| Ok(nix::unistd::syncfs(&folder)?));
        all.map_err(|why| cannot_write(path, &why))
    }
}

/// What there is of an entry.
pub enum Found {
    /// Nothing.
    Nothing,
    /// Whole blocks, so many bytes.
    Part(Part, u64),
    /// A file with its name and length.
    Whole(PathBuf),
}

/// What came of an entry before. Its lock is this process's: nobody else goes on with it.
pub struct Part {
    path: PathBuf,
    file: File,
}

impl Part {
    /// Goes on with it, from this byte.
    pub fn resume(self, entry: &Entry, place: &Path, target: &Target, from: u64) -> Result<Sink, String> {
        let Part { path, mut file } = self;
        let moved = file.set_len(from).and_then(|()| file.seek(SeekFrom::Start(from)));
        moved.map_err(|why| cannot_write(&path, &why))?;
        let force = matches!(target, Target::File { force: true, .. });
        Sink::part(
            file,
            path,
            entry,
            place,
            force,
            matches!(target, Target::Folder(_)),
            true,
        )
    }

    /// Another handle of the same file, to read it.
    pub fn reader(&self) -> io::Result<File> {
        File::open(&self.path)
    }
}

/// A file for what is not complete, locked; `None` where another transfer has it, or where it is not there and not to be made.
fn claim(path: &Path, make: bool) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(make)
        .truncate(false)
        .open(path)
        .ok()?;
    match file.try_lock() {
        Ok(()) => Some(file),
        // File systems without locks.
        Err(TryLockError::Error(_)) => Some(file),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Removes unfinished files of long ago from a folder.
pub fn sweep(folder: &Path) {
    let Ok(inside) = fs::read_dir(folder) else { return };
    for entry in inside.flatten() {
        let called = entry.file_name();
        let called = called.as_encoded_bytes();
        if !(called.starts_with(b".") && called.ends_with(b".ccpart")) {
            continue;
        }
        let age = entry.metadata().and_then(|about| about.modified());
        let old = age.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > FORGOTTEN));
        if old && claim(&entry.path(), false).is_some() {
            // Somebody else may be quicker.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The place of one entry. Dropped before [`store`](Sink::store) or [`keep`](Sink::keep), it leaves nothing.
pub struct Sink {
    to: Box<dyn Write + Send>,
    name: String,
    place: Option<Place>,
}

/// A file that has its name only when it is complete.
struct Place {
    part: PathBuf,
    path: PathBuf,
    force: bool,
    /// It may have another name than it was sent under.
    several: bool,
    executable: bool,
    /// The next attempt finds it under this name.
    again: bool,
    /// In a folder, without a name: its number, and whoever finds the name taken at the end has the next one.
    number: Option<u64>,
    /// The same file as `Sink::to`.
    file: File,
}

impl Sink {
    fn to(to: Box<dyn Write + Send>, name: String) -> Sink {
        Sink { to, name, place: None }
    }

    fn begin(entry: &Entry, place: &Path, force: bool, several: bool) -> Result<Sink, String> {
        let bytes = entry.what.bytes().unwrap_or(u64::MAX);
        let usual = name::part(place, &entry.name, bytes);
        // A stream's bytes may be others the next time.
        let again = entry.what.bytes().is_some() && !entry.name.is_empty();
        if again && let Some(file) = claim(&usual, true) {
            file.set_len(0).map_err(|why| cannot_write(&usual, &why))?;
            return Sink::part(file, usual, entry, place, force, several, true);
        }
        // The same comes twice at once, or there is no such place: which it is, the next error tells.
        let mut n = 0;
        loop {
            n += 1;
            let part = usual.with_extension(format!("{}-{n}.ccpart", std::process::id()));
            match File::create_new(&part) {
                Ok(file) => return Sink::part(file, part, entry, place, force, several, false),
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists && n < MOST_NAMES => {}
                Err(why) => return Err(cannot_write(&part, &why)),
            }
        }
    }

    fn part(
        file: File,
        part: PathBuf,
        entry: &Entry,
        place: &Path,
        force: bool,
        several: bool,
        again: bool,
    ) -> Result<Sink, String> {
        let to = file.try_clone().map_err(|why| cannot_write(&part, &why))?;
        Ok(Sink {
            to: Box::new(to),
            name: place.display().to_string(),
            place: Some(Place {
                part,
                path: place.to_owned(),
                force,
                several,
                executable: matches!(entry.what, What::File { executable: true, .. }),
                again,
                number: None,
                file,
            }),
        })
    }

    /// The first number in a folder, from `n` on, that nobody has. Its hidden file, which only one can create, is the claim on its
    /// name; that the name is free is looked at after that, since who had the claim before gave the file its name before he gave
    /// the claim up.
    fn numbered(folder: &Path, n: u64) -> Result<Sink, String> {
        for n in n.. {
            let path = folder.join(numbered(n));
            let part = folder.join(format!(".{}.ccpart", numbered(n)));
            let file = match File::create_new(&part) {
                Ok(file) => file,
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(why) => return Err(cannot_write(&part, &why)),
            };
            if path.symlink_metadata().is_ok() {
                let _ = fs::remove_file(&part);
                continue;
            }
            let entry = Entry {
                name: Vec::new(),
                what: What::Stream,
            };
            let mut sink = Sink::part(file, part, &entry, &path, false, false, false)?;
            if let Some(place) = &mut sink.place {
                place.number = Some(n);
            }
            return Ok(sink);
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
        let Some(place) = &mut self.place else { return 0 };
        let bytes = place.file.metadata().map_or(0, |about| about.len()) / BLOCK * BLOCK;
        if !place.again || bytes == 0 {
            return 0;
        }
        self.place = None;
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
            let mode = place.file.metadata()?.permissions().mode();
            place
                .file
                .set_permissions(fs::Permissions::from_mode(mode | (mode & 0o444) >> 2))?;
        }
        if sync {
            place.file.sync_all()?;
        }
        if place.force {
            fs::rename(&place.part, &place.path)?;
        } else {
            place.link(hash)?;
        }
        if sync {
            File::open(folder(&place.path))?.sync_all()?;
        }
        Ok(place.path.display().to_string())
    }
}

impl Place {
    /// Unlike a rename it never replaces what is there: that and the new one are kept both, unless they are the same.
    fn link(&mut self, hash: &Hash) -> io::Result<()> {
        let wanted = self.path.clone();
        let mut n = 1;
        loop {
            match fs::hard_link(&self.part, &self.path) {
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists && n < MOST_NAMES => {}
                outcome => return outcome,
            }
            if self.several && self.number.is_none() && is_same(&self.path, self.file.metadata()?.len(), hash) {
                return Ok(());
            }
            n += 1;
            match &mut self.number {
                Some(number) => {
                    *number += 1;
                    self.path.set_file_name(numbered(*number));
                }
                None if self.several => self.path = name::another(&wanted, n),
                None => return Err(io::ErrorKind::AlreadyExists.into()),
            }
        }
    }
}

/// Whether a file is there with this length and hash.
fn is_same(path: &Path, bytes: u64, hash: &Hash) -> bool {
    let same = path
        .symlink_metadata()
        .is_ok_and(|about| about.is_file() && about.len() == bytes);
    let mut hasher = blake3::Hasher::new();
    same && File::open(path)
        .and_then(|file| Ok(*hasher.update_reader(file)?.finalize().as_bytes()))
        .is_ok_and(|of| of == *hash)
}

/// The name of the `n`-th transfer in a folder that has no name of its own.
fn numbered(n: u64) -> String {
    format!("received-{n:04}")
}

fn cannot_write(path: &Path, why: &io::Error) -> String {
    format!("cannot write {}: {why}", path.display())
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            // Gone already where it was renamed.
            let _ = fs::remove_file(&place.part);
        }
    }
}

fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn exists(path: &Path) -> Failure {
    Failure::text(Kind::Usage, format!("{} exists", path.display())).hint("--force replaces it")
}

/// Bytes as a person reads them.
pub fn human(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// Hashes what is there of an entry, a piece at a time.
pub struct Hashing {
    file: Option<File>,
    /// Bytes in all, and so far.
    bytes: u64,
    at: u64,
    /// Of all so far.
    pub hasher: Box<blake3::Hasher>,
    buffer: Vec<u8>,
}

impl Hashing {
    /// Of so many bytes from the beginning. What cannot be read has the wrong hashes, and is sent again.
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
        let read = self
            .file
            .as_mut()
            .is_some_and(|file| file.read_exact(&mut self.buffer).is_ok());
        if !read {
            self.file = None;
            return Some([0; ccplane_files::HASH]);
        }
        self.hasher.update(&self.buffer);
        Some(*blake3::hash(&self.buffer).as_bytes())
    }
}

/// How many bytes a receiver offers of what it found.
pub fn offered(found: &Found, bytes: u64) -> Option<u64> {
    match found {
        Found::Nothing => None,
        Found::Part(_, have) => Some(*have),
        Found::Whole(_) => Some(bytes),
    }
}

#[cfg(test)]
mod tests;
