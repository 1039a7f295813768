//! The path to which portus 0.6 and 0.7 answer.
//!
//! They take a datapath's address for a name in their own folder: a datapath bound to `/tmp/a.sock`
//! gets its answers at `/tmp/ccp//tmp/a.sock`. A symbolic link there leads to the socket. Later
//! versions answer to the address itself.
//!
//! The folder is the agent's and may be another user's. No step below it follows a symbolic link,
//! so that nothing is made elsewhere.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

/// A symbolic link to a socket, removed when this is dropped.
#[derive(Debug)]
pub(super) struct DerivedPath {
    /// Folder and name of the link.
    link: (OwnedFd, OsString),
    _folders: Folders,
}

/// The folder of every portus agent.
const PORTUS: &str = "/tmp/ccp";

impl DerivedPath {
    /// Links the path that an agent of portus at `agent` derives from `socket`, which is absolute.
    /// An agent outside of portus' folder is none of portus, and needs no link.
    pub(super) fn of(agent: &Path, socket: &Path) -> Option<Result<DerivedPath, Errno>> {
        let folder = agent.parent()?;
        (folder == Path::new(PORTUS)).then(|| DerivedPath::create(folder, socket))
    }

    /// Links `folder` + `socket` to `socket`.
    fn create(folder: &Path, socket: &Path) -> Result<DerivedPath, Errno> {
        let mut names: Vec<OsString> = Vec::new();
        for component in socket.components() {
            match component {
                Component::RootDir => {}
                Component::Normal(name) => names.push(name.to_owned()),
                _ => return Err(Errno::EINVAL),
            }
        }
        let name = names.pop().ok_or(Errno::EINVAL)?;
        let mut folders = Folders(Vec::new());
        let mut here = open(AT_FDCWD, folder)?;
        for name in names {
            let made = match mkdirat(&here, name.as_os_str(), Mode::from_bits_truncate(0o755)) {
                Ok(()) => true,
                Err(Errno::EEXIST) => false,
                Err(why) => return Err(why),
            };
            let next = open(here.as_fd(), Path::new(&name));
            if made {
                folders.0.push((here, name));
            }
            here = next?;
        }
        symlinkat(socket, &here, name.as_os_str())?;
        Ok(DerivedPath {
            link: (here, name),
            _folders: folders,
        })
    }
}

impl Drop for DerivedPath {
    fn drop(&mut self) {
        let (folder, name) = &self.link;
        // Nothing to do where the agent removed it.
        let _ = unlinkat(folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }
}

/// Folders that were made for a link, each with its parent, outermost first. They are removed when
/// this is dropped.
#[derive(Debug)]
struct Folders(Vec<(OwnedFd, OsString)>);

impl Drop for Folders {
    fn drop(&mut self) {
        for (parent, name) in self.0.drain(..).rev() {
            // A folder with the links of other datapaths stays.
            let _ = unlinkat(&parent, name.as_os_str(), UnlinkatFlags::RemoveDir);
        }
    }
}

fn open(at: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn what_portus_0_6_sends_to_its_own_path_arrives() {
        let place = std::env::temp_dir().join(format!("ccplane-derived-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let socket = place.join("datapath.sock");
        let datapath = UnixDatagram::bind(&socket).unwrap();
        // As its `send` makes it.
        let derived = format!("{}/{}", place.display(), socket.display());
        let made = [(); 2].map(|()| DerivedPath::create(&place, &socket));
        assert!(matches!(made, [Ok(_), Err(Errno::EEXIST)]));
        UnixDatagram::unbound()
            .unwrap()
            .send_to(b"install", &derived)
            .unwrap();
        let mut buffer = [0; 16];
        assert_eq!(datapath.recv(&mut buffer).unwrap(), 7);
        drop(made);
        let left = || {
            fs::read_dir(&place)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        };
        assert_eq!(left(), ["datapath.sock"]);

        // Nothing is made behind a link of the agent's.
        let other = place.join("other");
        fs::create_dir(&other).unwrap();
        let first = socket.components().nth(1).unwrap();
        symlink(&other, place.join(first)).unwrap();
        assert!(DerivedPath::create(&place, &socket).is_err());
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        assert!(DerivedPath::of(&place.join("agent"), &socket).is_none());
        fs::remove_dir_all(&place).unwrap();
    }
}
