//! Unix sockets that belong to one user.
//!
//! Ownership of a path changes under a lock on its directory, so replacing the socket of a dead
//! agent is atomic with respect to other agents. On exit an agent removes the path only if it still
//! refers to its own socket.

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

/// Attempts to take the directory lock, and the pause between them: one second in total. The lock
/// is held for a few system calls. Fewer attempts would fail on a busy host; many more would delay
/// the error if a process never releases the lock.
const LOCK_ATTEMPTS_MAX: u32 = 200;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// A bound socket; dropping it removes the path.
#[derive(Debug)]
pub(super) struct BoundSocket {
    pub fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket's path. The open socket keeps the inode number from being
    /// reused.
    inode: Option<Inode>,
}

type Inode = (u64, u64);

impl BoundSocket {
    /// Binds to `path`, with mode 0600 from the start. Replaces the socket of a dead process.
    pub fn new(path: &Path, kind: SockType) -> Result<BoundSocket, LinkError> {
        let failed = |what| {
            move |why| LinkError::Bind {
                path: path.to_owned(),
                what,
                why,
            }
        };
        let fd = open(kind).map_err(failed("socket"))?;
        let address = UnixAddr::new(path).map_err(failed("the path is not valid"))?;
        // A socket's mode before `bind` is the mode of its path, less the umask.
        fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR).map_err(failed("set the mode of the socket"))?;
        let _lock = lock_folder(path).map_err(failed("lock the directory"))?;
        match bind(fd.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(Errno::EADDRINUSE) => {
                remove_if_dead(path, &address, kind)?;
                bind(fd.as_raw_fd(), &address).map_err(failed("bind"))?;
            }
            Err(why) => return Err(failed("bind")(why)),
        }
        let bound = BoundSocket {
            fd,
            path: path.to_owned(),
            inode: inode(path),
        };
        if kind == SockType::SeqPacket {
            // Listen while the lock is held: a socket that does not listen yet looks dead.
            let backlog = Backlog::new(128).unwrap_or(Backlog::MAXCONN);
            if let Err(why) = listen(&bound.fd, backlog) {
                bound.remove();
                return Err(failed("listen")(why));
            }
        }
        Ok(bound)
    }

    /// Removes the path if it refers to this socket. The caller holds the directory lock.
    fn remove(&self) {
        if self.inode.is_some() && inode(&self.path) == self.inode {
            // Ignore errors: the path may already be gone.
            let _ = unlink(&self.path);
        }
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        // Without the lock, leave the path: the next agent finds it dead and replaces it.
        if let Ok(_lock) = lock_folder(&self.path) {
            self.remove();
        }
    }
}

fn inode(path: &Path) -> Option<Inode> {
    stat(path).ok().map(|there| (there.st_dev, there.st_ino))
}

/// Takes the lock that agents use for the directory of `path`; dropping the file releases it. The
/// directory itself is locked, so no lock file remains.
#[expect(clippy::disallowed_methods, reason = "the driver of the agent's clock")]
fn lock_folder(path: &Path) -> Result<File, Errno> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let errno = |why: std::io::Error| Errno::from_raw(why.raw_os_error().unwrap_or(0));
    let folder = File::open(folder).map_err(errno)?;
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_INTERVAL),
            Err(TryLockError::Error(why)) => return Err(errno(why)),
        }
    }
    Err(Errno::EWOULDBLOCK)
}

/// Opens a socket that is non-blocking and close-on-exec.
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
    let there = stat(path).map_err(failed("stat"))?;
    if SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
        return Err(LinkError::NoSocket(path.to_owned()));
    }
    let probe = open(kind).map_err(failed("socket"))?;
    match connect(probe.as_raw_fd(), address) {
        Err(Errno::ECONNREFUSED) => unlink(path).map_err(failed(
            "remove the socket of a dead \
            agent",
        )),
        _ => Err(LinkError::InUse(path.to_owned())),
    }
}

/// Returns whether a peer's user is trusted: this process's user or root.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == Uid::effective().as_raw()
}

/// Returns whether an error is transient.
pub(super) fn is_transient(why: Errno) -> bool {
    matches!(why, Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR)
}
