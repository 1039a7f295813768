//! Where `ccplane recv` puts what it receives.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use ccplane_files::name;
use ccplane_files::wire::{Entry, What};

use super::sink::{Sink, Taken};
use super::unfinished::{Part, sweep};
use crate::exit::{Failure, Kind};

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

/// What there is of an entry.
pub enum Found {
    /// Nothing.
    Nothing,
    /// Whole blocks.
    Part(Part),
    /// A file with its name and length.
    Whole(PathBuf),
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

    /// Where an entry goes; `None` where it has no name there. `hidden`: names may begin with a dot.
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

    /// Whether a folder of the list can be there: it is, or nothing is. A link could lead elsewhere.
    pub fn check_folder(&self, place: &Path) -> Result<(), String> {
        match place.symlink_metadata() {
            Ok(about) if about.is_dir() => Ok(()),
            Ok(_) => Err(format!("{} is in the way: it is no folder", place.display())),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(why) => Err(cannot_write(place, &why)),
        }
    }

    /// Makes a folder of the list, whose own is there, and removes what has been forgotten in it.
    pub fn make_folder(&self, place: &Path) -> Result<(), String> {
        match fs::create_dir(place) {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(cannot_write(place, &why)),
            _ => sweep(place),
        }
        self.check_folder(place)
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

    /// What is there of an entry already, from an interrupted transfer or an earlier one. Of a file that is there in whole the sender hears
    /// hashes, by which a stranger could guess what is in it: so it has to be `trusted`. `parts`: unfinished ones count.
    pub fn found(&self, entry: &Entry, place: &Path, trusted: bool, parts: bool) -> Found {
        let What::File { bytes, .. } = entry.what else {
            return Found::Nothing;
        };
        if entry.name.is_empty() {
            return Found::Nothing;
        }
        let is_whole = || {
            place
                .symlink_metadata()
                .is_ok_and(|about| about.is_file() && about.len() == bytes)
        };
        if trusted && matches!(self, Target::Folder(_)) && is_whole() {
            return Found::Whole(place.to_owned());
        }
        let part = parts
            .then(|| Part::find(&name::part(place, &entry.name, bytes)))
            .flatten();
        match part {
            Some(part) if part.blocks() > 0 && part.blocks() <= bytes => Found::Part(part),
            _ => Found::Nothing,
        }
    }

    /// Opens the place of an entry, for what comes from its beginning on. `n`: the number of its transfer.
    pub fn open(&self, entry: &Entry, place: Option<&Path>, n: u64) -> Result<Sink, String> {
        match (self, place) {
            (Target::Stdout, _) => Ok(Sink::plain(Box::new(io::stdout()), "standard output".to_owned())),
            (Target::Device(path), _) => {
                let file = OpenOptions::new().write(true).open(path);
                let file = file.map_err(|why| cannot_write(path, &why))?;
                Ok(Sink::plain(Box::new(file), path.display().to_string()))
            }
            (Target::Folder(folder), None) => Sink::numbered(folder, n),
            (Target::File { path, .. }, None) => Sink::begin(entry, path, self.taken()),
            (_, Some(place)) => Sink::begin(entry, place, self.taken()),
        }
    }

    /// What is done where a name is taken.
    pub fn taken(&self) -> Taken {
        match self {
            Target::File { force: true, .. } => Taken::Replace,
            Target::Folder(_) => Taken::Beside,
            _ => Taken::Refuse,
        }
    }

    /// Has the file system write down what it was given, where that was not done file by file.
    pub fn sync(&self) -> Result<(), String> {
        let Target::Folder(path) = self else { return Ok(()) };
        let all = File::open(path).and_then(|folder| Ok(nix::unistd::syncfs(&folder)?));
        all.map_err(|why| cannot_write(path, &why))
    }
}

pub(super) fn cannot_write(path: &Path, why: &io::Error) -> String {
    format!("cannot write {}: {why}", path.display())
}

/// The folder that a file is in.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn exists(path: &Path) -> Failure {
    Failure::text(Kind::Usage, format!("{} exists", path.display())).hint("--force replaces it")
}

/// Bytes as a person reads them.
pub(super) fn human(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}
