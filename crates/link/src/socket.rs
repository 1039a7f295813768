//! Unix sockets that belong to one user.
//!
//! A path changes hands under a lock on its folder: who finds a dead agent's path, removes it and
//! binds its own does so before anybody else looks. At its end an agent removes the path only if
//! its own socket is still there.

use std::fs::{File, TryLockError};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::sys::stat::{Mode, SFlag, fchmod, stat};
use nix::unistd::{Uid, unlink};

use crate::LinkError;

/// How often a lock that somebody holds is tried again, and how long between: a second in all.
/// Holders keep it for some system calls. Fewer tries would fail on a busy machine; many more would
/// let a process that never lets go keep an agent from saying so.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// A bound socket; its path goes when it goes.
#[derive(Debug)]
pub(super) struct Bound {
    pub fd: OwnedFd,
    path: PathBuf,
    /// What this socket is in its folder. The socket holds it, so that no other can have the same
    /// number.
    inode: Option<Inode>,
}

type Inode = (u64, u64);

impl Bound {
    /// Binds to `path`, mode 0600 from the first moment on. A path left behind by a dead process is
    /// taken over.
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
        let _lock = lock_folder(path).map_err(failed("the lock of its folder"))?;
        match bind(fd.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(Errno::EADDRINUSE) => {
                remove_if_dead(path, &address, kind)?;
                bind(fd.as_raw_fd(), &address).map_err(failed("bind"))?;
            }
            Err(why) => return Err(failed("bind")(why)),
        }
        let bound = Bound {
            fd,
            path: path.to_owned(),
            inode: inode(path),
        };
        if kind == SockType::SeqPacket {
            // Before the lock goes: a socket that does not listen yet looks dead.
            let backlog = Backlog::new(128).unwrap_or(Backlog::MAXCONN);
            if let Err(why) = listen(&bound.fd, backlog) {
                bound.remove();
                return Err(failed("listen")(why));
            }
        }
        Ok(bound)
    }

    /// Removes the path if this socket is what it leads to; the folder is locked.
    fn remove(&self) {
        if self.inode.is_some() && inode(&self.path) == self.inode {
            // Nothing to do where somebody removed it meanwhile.
            let _ = unlink(&self.path);
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Without the lock the path stays: the next agent finds it dead and takes it over.
        if let Ok(_lock) = lock_folder(&self.path) {
            self.remove();
        }
    }
}

fn inode(path: &Path) -> Option<Inode> {
    stat(path).ok().map(|there| (there.st_dev, there.st_ino))
}

/// Locks the folder of `path` among agents, as long as the file lives. The folder itself is locked,
/// so that no lock file stays behind.
#[expect(clippy::disallowed_methods, reason = "part of the agent's driver")]
fn lock_folder(path: &Path) -> Result<File, Errno> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let errno = |why: std::io::Error| Errno::from_raw(why.raw_os_error().unwrap_or(0));
    let folder = File::open(folder).map_err(errno)?;
    for _ in 0..LOCK_TRIES {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(why)) => return Err(errno(why)),
        }
    }
    Err(Errno::EWOULDBLOCK)
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
