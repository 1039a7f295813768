//! Network namespaces: which there are, work inside, and the cookie by which BPF programs, and
//! notes of devices, know one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::sched::{CloneFlags, setns};

/// asm-generic/socket.h
const SO_NETNS_COOKIE: libc::c_int = 71;

/// That of the calling thread.
pub(crate) fn own() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Every network namespace that a process lives in or that has a name, opened, each once.
pub(crate) fn all() -> Vec<File> {
    all_by_path()
        .into_iter()
        .map(|(_, namespace)| namespace)
        .collect()
}

/// The same with their paths: of its name where it has one, of a process otherwise.
pub(crate) fn all_by_path() -> Vec<(PathBuf, File)> {
    let entries = |path: &str| {
        std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    let of_processes = entries("/proc").map(|process| process.join("ns/net"));
    let opened = entries("/run/netns")
        .chain(of_processes)
        .filter_map(|path| Some((File::open(&path).ok()?, path)));
    let mut all = BTreeMap::new();
    for (namespace, path) in opened {
        if let Ok(status) = namespace.metadata() {
            all.entry((status.dev(), status.ino()))
                .or_insert((path, namespace));
        }
    }
    all.into_values().collect()
}

/// Does `work` inside, in a thread of its own, because that moves there.
pub(crate) fn inside<T: Send>(
    namespace: &impl AsFd,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = namespace.as_fd();
    let body = || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        work()
    };
    std::thread::scope(|scope| scope.spawn(body).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that went there panicked")))
}

/// Its cookie, which no other gets while the host runs.
pub(crate) fn cookie(namespace: &impl AsFd) -> io::Result<u64> {
    inside(namespace, own_cookie)
}

/// Cookie of the calling thread's network namespace. Needs no privilege.
pub(crate) fn own_cookie() -> io::Result<u64> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut cookie = 0u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the kernel writes the eight bytes of `cookie`, which outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    nix::errno::Errno::result(result)?;
    Ok(cookie)
}

/// The one with this cookie, if the calling thread or a process is in it, or it has a name.
pub(crate) fn with_cookie(wanted: u64) -> Option<File> {
    own()
        .into_iter()
        .chain(all())
        .find(|namespace| cookie(namespace).is_ok_and(|cookie| cookie == wanted))
}
