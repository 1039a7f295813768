//! Network namespaces: enumeration, running code inside one, and the cookies that identify them to
//! BPF programs and in pinned state.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::sched::{CloneFlags, setns};

/// From asm-generic/socket.h.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Opens the network namespace of the calling thread.
pub(crate) fn open_own() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Opens every network namespace that has a process or a name, each once.
pub(crate) fn open_all() -> Vec<File> {
    open_all_with_paths()
        .into_iter()
        .map(|(_, namespace)| namespace)
        .collect()
}

/// Like [`open_all`], with paths: under its name if it has one, else under a process.
pub(crate) fn open_all_with_paths() -> Vec<(PathBuf, File)> {
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

/// Runs `work` inside the namespace, in a thread of its own, since setns(2) moves the thread.
pub(crate) fn run_inside<T: Send>(
    namespace: &impl AsFd,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = namespace.as_fd();
    let body = || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        work()
    };
    std::thread::scope(|scope| scope.spawn(body).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
}

/// Returns the namespace's cookie, which is unique until the host reboots.
pub(crate) fn cookie(namespace: &impl AsFd) -> io::Result<u64> {
    run_inside(namespace, own_cookie)
}

/// Returns the cookie of the calling thread's network namespace. Needs no privilege.
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

/// Finds the namespace with this cookie if the calling thread or a process is in it, or it has a
/// name.
pub(crate) fn find_by_cookie(wanted: u64) -> Option<File> {
    open_own()
        .into_iter()
        .chain(open_all())
        .find(|namespace| cookie(namespace).is_ok_and(|cookie| cookie == wanted))
}
