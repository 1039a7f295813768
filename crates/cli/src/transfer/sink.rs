//! Destination of one received file.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use super::name;
use super::new_file::{Folder, NewFile};
use super::target::{cannot_write, numbered};

/// Alternative names to try. A folder with more is a mistake.
const ALTERNATIVE_NAMES_MAX: u64 = 10_000;

/// Destination of one received file. Dropped before [`store`](Sink::store), it leaves nothing
/// behind.
pub(crate) struct Sink {
    output: Output,
    /// Path or description to display.
    display_name: String,
}

enum Output {
    /// Standard output, a device or a pipe.
    Plain(Box<dyn Write + Send>),
    /// File that gets its name when it is complete.
    File {
        new: NewFile,
        folder: Folder,
        name: OsString,
        on_conflict: NameConflict,
        executable: bool,
    },
}

/// Behaviour if the name is taken when the file is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameConflict {
    /// Replaces the existing file.
    Replace,
    /// Fails.
    Refuse,
    /// Uses `name-2`, `name-3` and so on.
    Alternative,
    /// Uses the next number.
    Number(u64),
}

impl Sink {
    /// Creates a sink that writes directly, without a name to set at the end.
    pub fn plain(to: Box<dyn Write + Send>, shown: String) -> Sink {
        Sink {
            output: Output::Plain(to),
            display_name: shown,
        }
    }

    /// Creates a file in a folder.
    pub fn file(
        folder: &Folder,
        name: OsString,
        on_conflict: NameConflict,
        executable: bool,
    ) -> Result<Sink, String> {
        let path = folder.path().join(&name);
        let new = folder
            .create(&name)
            .map_err(|why| cannot_write(&path, &why))?;
        Ok(Sink {
            display_name: path.display().to_string(),
            output: Output::File {
                new,
                folder: folder.clone(),
                name,
                on_conflict,
                executable,
            },
        })
    }

    /// Writes bytes. Errors name the destination.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let written = match &mut self.output {
            Output::Plain(to) => to.write_all(bytes),
            Output::File { new, .. } => new.file.write_all(bytes),
        };
        written.map_err(|why| cannot_write(Path::new(&self.display_name), &why))
    }

    /// Gives the complete file its name and returns it for display. With `sync`, contents and name
    /// survive a power failure.
    pub fn store(mut self, sync: bool) -> Result<String, String> {
        self.publish(sync)
            .map_err(|why| cannot_write(Path::new(&self.display_name), &why))?;
        Ok(self.display_name)
    }

    fn publish(&mut self, sync: bool) -> io::Result<()> {
        let (new, folder, name, taken, executable) = match &mut self.output {
            Output::Plain(to) => return to.flush(),
            Output::File {
                new,
                folder,
                name,
                on_conflict: taken,
                executable,
            } => (new, folder, name, taken, executable),
        };
        if *executable {
            new.make_executable()?;
        }
        if sync {
            new.sync()?;
        }
        let named = link(new, name, *taken)?;
        if sync {
            new.sync_name()?;
        }
        self.display_name = folder.path().join(named).display().to_string();
        Ok(())
    }
}

/// Gives a file its name, and returns the name. Only [`NameConflict::Replace`] replaces a file: a
/// hard link, unlike a rename, fails if the name exists.
fn link(new: &NewFile, wanted: &OsString, on_conflict: NameConflict) -> io::Result<OsString> {
    if on_conflict == NameConflict::Replace {
        return new.replace(wanted).map(|()| wanted.clone());
    }
    let mut name = wanted.clone();
    for n in 1..ALTERNATIVE_NAMES_MAX {
        match new.link(&name) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => return outcome.map(|()| name),
        }
        name = match on_conflict {
            NameConflict::Alternative => name::alternative(wanted, n + 1),
            NameConflict::Number(first) => numbered(first + n),
            NameConflict::Refuse | NameConflict::Replace => break,
        };
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
