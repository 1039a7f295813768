//! Compatibility with portus 0.6 and 0.7, which reply to the wrong path.
//!
//! These versions treat a datapath's address as a name in their own directory: a datapath bound to
//! `/tmp/a.sock` gets its replies at `/tmp/ccp//tmp/a.sock`. We create a symbolic link there that
//! points to the socket. Later versions reply to the address itself.
//!
//! The directory belongs to the agent, possibly another user. No lookup below it follows symbolic
//! links, so nothing can be created elsewhere.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

/// A symbolic link to a socket; dropping this removes the link.
#[derive(Debug)]
pub(super) struct DerivedPath {
    /// Directory and name of the link.
    link: (OwnedFd, OsString),
    _folders: Folders,
}

/// Default directory of portus agents.
const PORTUS_DIRECTORY: &str = "/tmp/ccp";

impl DerivedPath {
    /// Creates the link that a portus agent at `agent` derives from the absolute path `socket`.
    /// Returns `None` for agents outside the portus directory, which need no link.
    pub(super) fn create_for(agent: &Path, socket: &Path) -> Option<Result<DerivedPath, Errno>> {
        let folder = agent.parent()?;
        (folder == Path::new(PORTUS_DIRECTORY)).then(|| DerivedPath::create(folder, socket))
    }

    /// Creates a link at `folder` + `socket` that points to `socket`.
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
        // Ignore errors: the agent may have removed the link.
        let _ = unlinkat(folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }
}

/// Directories created for a link, outermost first, each with its parent. Dropping this removes
/// them.
#[derive(Debug)]
struct Folders(Vec<(OwnedFd, OsString)>);

impl Drop for Folders {
    fn drop(&mut self) {
        for (parent, name) in self.0.drain(..).rev() {
            // Fails for a directory that contains links of other datapaths, which must stay.
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
    fn replies_of_portus_0_6_arrive_on_its_derived_path() {
        let place = std::env::temp_dir().join(format!("ccplane-derived-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let socket = place.join("datapath.sock");
        let datapath = UnixDatagram::bind(&socket).unwrap();
        // The path that portus derives.
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

        // Nothing is created behind a symbolic link in the agent's directory.
        let other = place.join("other");
        fs::create_dir(&other).unwrap();
        let first = socket.components().nth(1).unwrap();
        symlink(&other, place.join(first)).unwrap();
        assert!(DerivedPath::create(&place, &socket).is_err());
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        assert!(DerivedPath::create_for(&place.join("agent"), &socket).is_none());
        fs::remove_dir_all(&place).unwrap();
    }
}
