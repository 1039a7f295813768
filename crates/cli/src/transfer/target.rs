//! Destination of received files.

use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::name;
use super::new_file::Folder;
use super::sink::{NameConflict, Sink};
use super::wire::Header;
use crate::exit::{Failure, FailureKind};

/// Destination of transfers.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// One file, for one transfer.
    File {
        /// Folder of the file.
        folder: Folder,
        /// Name in the folder.
        name: OsString,
        /// Set if an existing file may be replaced.
        force: bool,
    },
    /// Files in a folder.
    Folder(Folder),
    /// Standard output, for one transfer.
    Stdout,
    /// An existing device or pipe, such as `/dev/null`.
    Device {
        path: PathBuf,
        /// Device and inode numbers of its node.
        id: (u64, u64),
    },
}

impl Destination {
    /// Parses `--out`. Refuses destinations that cannot be written later.
    pub fn parse(out: &Path, force: bool) -> Result<Destination, Failure> {
        if out == Path::new("-") {
            return Ok(Destination::Stdout);
        }
        let is_folder = out.as_os_str().as_bytes().ends_with(b"/");
        match fs::metadata(out) {
            Err(why) if is_folder && why.kind() == io::ErrorKind::NotFound => {
                fs::create_dir(out).map_err(|why| {
                    let text = format!("--out {}: cannot create the folder: {why}", out.display());
                    Failure::text(FailureKind::Usage, text).hint("create its parent folders first")
                })?;
                return Folder::open(out).map(Destination::Folder);
            }
            Ok(about) if about.is_dir() => return Folder::open(out).map(Destination::Folder),
            Ok(about) if !about.is_file() => return device(out, &about),
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::text(
                    FailureKind::Usage,
                    format!("--out {}: {why}", out.display()),
                ));
            }
            _ => {}
        }
        if !force && out.symlink_metadata().is_ok() {
            let text = format!("{} exists", out.display());
            return Err(Failure::text(FailureKind::Usage, text).hint("use --force to replace it"));
        }
        let Some(name) = out.file_name() else {
            return Err(Failure::text(
                FailureKind::Usage,
                format!("--out {} is not a file name", out.display()),
            ));
        };
        let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(Destination::File {
            folder: Folder::open(parent.unwrap_or(Path::new(".")))?,
            name: name.to_owned(),
            force,
        })
    }

    /// Returns true if the destination takes only one transfer.
    pub fn is_single(&self) -> bool {
        matches!(self, Destination::File { .. } | Destination::Stdout)
    }

    /// Opens the sink for a file that the sender describes. `hidden` allows names that start with a
    /// dot. `n` is the number of the transfer, for a file without a name.
    pub fn open(&self, header: &Header, hidden: bool, n: u64) -> Result<Sink, String> {
        self.check_room(header.bytes.unwrap_or(0))?;
        match self {
            Destination::Stdout => Ok(Sink::plain(
                Box::new(io::stdout()),
                "standard output".to_owned(),
            )),
            Destination::Device { path, id } => {
                let file = OpenOptions::new().write(true).open(path);
                let file = file.map_err(|why| cannot_write(path, &why))?;
                let about = file.metadata().map_err(|why| cannot_write(path, &why))?;
                if (about.dev(), about.ino()) != *id {
                    return Err(format!(
                        "{} has been replaced by another device or file",
                        path.display()
                    ));
                }
                Ok(Sink::plain(Box::new(file), path.display().to_string()))
            }
            Destination::File {
                folder,
                name,
                force,
            } => {
                let taken = if *force {
                    NameConflict::Replace
                } else {
                    NameConflict::Refuse
                };
                Sink::file(folder, name.clone(), taken, header.executable)
            }
            Destination::Folder(folder) if header.name.is_empty() => Sink::file(
                folder,
                numbered(n),
                NameConflict::Number(n),
                header.executable,
            ),
            Destination::Folder(folder) => {
                let name = name::entry(&header.name, hidden).map_err(|why| why.to_string())?;
                Sink::file(folder, name, NameConflict::Alternative, header.executable)
            }
        }
    }

    fn check_room(&self, bytes: u64) -> Result<(), String> {
        let (Destination::File { folder, .. } | Destination::Folder(folder)) = self else {
            return Ok(());
        };
        match folder.free_bytes() {
            Some(free) if bytes > free => Err(format!(
                "not enough space in {}: {} needed, {} free",
                folder.path().display(),
                human(bytes),
                human(free)
            )),
            _ => Ok(()),
        }
    }
}

/// Returns the destination for a device or pipe. Refuses a link owned by another user, who could
/// redirect it.
fn device(out: &Path, about: &Metadata) -> Result<Destination, Failure> {
    let is_foreign =
        |link: Metadata| link.is_symlink() && link.uid() != 0 && link.uid() != geteuid().as_raw();
    if out.symlink_metadata().is_ok_and(is_foreign) {
        let text = format!(
            "--out {} is a link to a device, created by another user",
            out.display()
        );
        return Err(
            Failure::text(FailureKind::Usage, text).hint("give the path of the device itself")
        );
    }
    Ok(Destination::Device {
        path: out.to_owned(),
        id: (about.dev(), about.ino()),
    })
}

/// Returns the name of transfer number `n`, for a file without a name.
pub(super) fn numbered(n: u64) -> OsString {
    format!("received-{n:04}").into()
}

pub(super) fn cannot_write(path: &Path, why: &io::Error) -> String {
    format!("cannot write {}: {why}", path.display())
}

/// Formats bytes for display.
pub(crate) fn human(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}
