//! Where `ccplane recv` puts what it receives: complete under its name, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

    /// A place for the `n`-th transfer.
    pub fn open(&self, n: u64) -> Result<Sink, String> {
        match self {
            Target::Stdout => Ok(Sink {
                to: Box::new(io::stdout()),
                name: "standard output".to_owned(),
                place: None,
            }),
            Target::Device(path) => {
                let file = OpenOptions::new()
                    .write(true)
                    .open(path)
                    .map_err(|why| cannot_write(path, why))?;
                Ok(Sink {
                    to: Box::new(file),
                    name: path.display().to_string(),
                    place: None,
                })
            }
            Target::File { path, force } => Sink::file(path, *force, n),
            Target::Folder(folder) => Sink::numbered(folder, n),
        }
    }
}

/// The place of one transfer. Dropped before [`finish`](Sink::finish), it leaves nothing.
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
    /// In a folder: its number, and whoever finds the name taken at the end has the next one.
    number: Option<u64>,
    /// The same file as `Sink::to`.
    file: File,
}

impl Sink {
    fn file(path: &Path, force: bool, n: u64) -> Result<Sink, String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let part = folder(path).join(format!(".{name}.{}-{n}.part", std::process::id()));
        let file = File::create_new(&part).map_err(|why| cannot_write(&part, why))?;
        Sink::part(part, path.to_owned(), force, None, file)
    }

    /// The first number in a folder, from `n` on, that nobody has. Its hidden file, which only one can create, is the claim on its
    /// name; that the name is free is looked at after that, since who had the claim before gave the file its name before he gave
    /// the claim up.
    fn numbered(folder: &Path, n: u64) -> Result<Sink, String> {
        for n in n.. {
            let path = folder.join(numbered(n));
            let part = folder.join(format!(".{}.part", numbered(n)));
            let file = match File::create_new(&part) {
                Ok(file) => file,
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(why) => return Err(cannot_write(&part, why)),
            };
            if path.symlink_metadata().is_ok() {
                let _ = fs::remove_file(&part);
                continue;
            }
            return Sink::part(part, path, false, Some(n), file);
        }
        Err(format!("no number is free in {}", folder.display()))
    }

    fn part(part: PathBuf, path: PathBuf, force: bool, number: Option<u64>, file: File) -> Result<Sink, String> {
        let to = file.try_clone().map_err(|why| cannot_write(&part, why))?;
        Ok(Sink {
            to: Box::new(to),
            name: path.display().to_string(),
            place: Some(Place {
                part,
                path,
                force,
                number,
                file,
            }),
        })
    }

    /// What a person calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds bytes; an error names the place.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.to
            .write_all(bytes)
            .map_err(|why| format!("cannot write {}: {why}", self.name))
    }

    /// All is there: it gets its name, which it says. When this returns, the file and its name outlive a loss of power.
    pub fn finish(mut self) -> Result<String, String> {
        self.store().map_err(|why| format!("cannot write {}: {why}", self.name))
    }

    fn store(&mut self) -> io::Result<String> {
        self.to.flush()?;
        let Some(place) = &mut self.place else {
            return Ok(self.name.clone());
        };
        place.file.sync_all()?;
        if place.force {
            fs::rename(&place.part, &place.path)?;
        } else {
            place.link()?;
        }
        File::open(folder(&place.path))?.sync_all()?;
        Ok(place.path.display().to_string())
    }
}

impl Place {
    /// Unlike a rename it never replaces what somebody put there meanwhile.
    fn link(&mut self) -> io::Result<()> {
        loop {
            match (fs::hard_link(&self.part, &self.path), &mut self.number) {
                (Err(why), Some(n)) if why.kind() == io::ErrorKind::AlreadyExists => {
                    *n += 1;
                    self.path.set_file_name(numbered(*n));
                }
                (outcome, _) => return outcome,
            }
        }
    }
}

/// The name of the `n`-th transfer in a folder.
fn numbered(n: u64) -> String {
    format!("received-{n:04}")
}

fn cannot_write(path: &Path, why: io::Error) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("ccplane-sink-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap().flatten();
            let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete_and_leaves_nothing_else() {
        let folder = Folder::new("file");
        let path = folder.0.join("out");
        let mut given_up = Target::parse(&path, false).unwrap().open(1).unwrap();
        given_up.write(b"half").unwrap();
        drop(given_up);
        assert!(folder.names().is_empty());

        let mut sink = Target::parse(&path, false).unwrap().open(1).unwrap();
        sink.write(b"whole").unwrap();
        assert!(!path.exists());
        sink.finish().unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), folder.names()),
            (b"whole".to_vec(), vec!["out".to_owned()])
        );

        let refused = Target::parse(&path, false).unwrap_err();
        assert!(refused.to_string().contains("exists"));
        let mut sink = Target::parse(&path, true).unwrap().open(2).unwrap();
        sink.write(b"new").unwrap();
        sink.finish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), folder.names().len()), (b"new".to_vec(), 1));
    }

    #[test]
    fn what_appears_meanwhile_is_not_replaced() {
        let folder = Folder::new("meanwhile");
        let path = folder.0.join("out");
        let sink = Target::parse(&path, false).unwrap().open(1).unwrap();
        fs::write(&path, "other").unwrap();
        let error = sink.finish().unwrap_err();
        assert!(error.contains("out") && error.contains("exists"), "{error}");
        assert_eq!((fs::read(&path).unwrap(), folder.names().len()), (b"other".to_vec(), 1));
    }

    #[test]
    fn transfers_at_the_same_time_have_names_of_their_own_and_none_is_lost() {
        let folder = Folder::new("claims");
        let target = Target::parse(&folder.0, false).unwrap();
        fs::write(folder.0.join("received-0001"), "before").unwrap();
        let mut sinks: Vec<_> = (1..=3).map(|n| target.open(n).unwrap()).collect();
        // Somebody else takes a name that was claimed.
        fs::write(folder.0.join("received-0003"), "meanwhile").unwrap();
        for (sink, text) in sinks.iter_mut().zip(["a", "b", "c"]) {
            sink.write(text.as_bytes()).unwrap();
        }
        let mut found = Vec::new();
        for sink in sinks {
            found.push(fs::read_to_string(sink.finish().unwrap()).unwrap());
        }
        assert_eq!(found, ["a", "b", "c"]);
        assert_eq!(folder.names().len(), 5, "{:?}", folder.names());
        assert_eq!(fs::read(folder.0.join("received-0001")).unwrap(), b"before");
        assert_eq!(fs::read(folder.0.join("received-0003")).unwrap(), b"meanwhile");
    }

    #[test]
    fn a_folder_takes_many_and_a_full_device_is_named() {
        let folder = Folder::new("many");
        let target = Target::parse(&folder.0, false).unwrap();
        assert!(!target.is_single());
        for n in [1, 1, 2] {
            target.open(n).unwrap().finish().unwrap();
        }
        assert_eq!(folder.names(), ["received-0001", "received-0002", "received-0003"]);

        let mut full = Target::parse(Path::new("/dev/full"), false).unwrap().open(1).unwrap();
        let error = full.write(&[0; 100]).unwrap_err();
        assert!(
            error.contains("/dev/full") && error.contains("No space left"),
            "{error}"
        );
        assert!(Target::parse(&folder.0.join("none/out"), false).is_err());
    }
}
