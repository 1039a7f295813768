//! Unix sockets that belong to one user.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, connect, socket};
use nix::sys::stat::{Mode, SFlag, fchmod, stat};
use nix::unistd::{Uid, unlink};

use crate::LinkError;

/// A bound socket; its path goes when it goes.
#[derive(Debug)]
pub(super) struct Bound {
    pub fd: OwnedFd,
    path: PathBuf,
}

impl Bound {
    /// Binds to `path`, mode 0600 from the first moment on. A path left behind by a dead process is taken over.
    pub fn new(path: &Path, kind: SockType) -> Result<Bound, LinkError> {
        let failed = |what| {
            move |why| LinkError::Bind {
                path: path.to_owned(),
                what,
                why,
            }
        };
        let fd = open(kind).map_err(failed("socket"))?;
        let address = UnixAddr::new(path).map_err(failed("the path"))?;
        // The mode of a socket that is not bound yet is what its path gets, less the umask.
        fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR).map_err(failed("its mode"))?;
        match bind(fd.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(Errno::EADDRINUSE) => {
                remove_if_dead(path, &address, kind)?;
                bind(fd.as_raw_fd(), &address).map_err(failed("bind"))?;
            }
            Err(why) => return Err(failed("bind")(why)),
        }
        Ok(Bound {
            fd,
            path: path.to_owned(),
        })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Nothing to do where somebody removed it before.
        let _ = unlink(&self.path);
    }
}

/// A socket that never blocks and is not inherited.
pub(super) fn open(kind: SockType) -> Result<OwnedFd, Errno> {
    socket(
        AddressFamily::Unix,
        kind,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        None,
    )
}

fn remove_if_dead(path: &Path, address: &UnixAddr, kind: SockType) -> Result<(), LinkError> {
    let failed = |what| {
        move |why| LinkError::Bind {
            path: path.to_owned(),
            what,
            why,
        }
    };
    let there = stat(path).map_err(failed("what is there"))?;
    if SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
        return Err(LinkError::NoSocket(path.to_owned()));
    }
    let probe = open(kind).map_err(failed("socket"))?;
    match connect(probe.as_raw_fd(), address) {
        Err(Errno::ECONNREFUSED) => unlink(path).map_err(failed("remove what a dead agent left")),
        _ => Err(LinkError::InUse(path.to_owned())),
    }
}

/// Peers are processes of the same user or of root.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == Uid::effective().as_raw()
}

/// True for errors that pass by themselves.
pub(super) fn is_full(why: Errno) -> bool {
    matches!(why, Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR)
}
