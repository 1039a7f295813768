//! Network namespaces with a name known to `ip netns`.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{FsType, statfs};
use nix::unistd::Pid;

use crate::{Error, interface};

/// Folder of the names of `ip netns`.
const NETNS_DIRECTORY: &str = "/run/netns";
/// Prefix of all names created here.
const NAME_PREFIX: &str = "ccplane-";
/// File system type of namespaces, `NSFS_MAGIC` in linux/magic.h.
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);

/// A network namespace created here.
///
/// Its loopback interface is up, and it has no other. The kernel removes it once this value and
/// every process inside are gone, even after `kill -9`. Clones refer to the same namespace.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    fd: OwnedFd,
}

impl Namespace {
    /// Creates a namespace. The name must start with `ccplane-`.
    pub fn create(name: &str) -> Result<Namespace, Error> {
        let rest = name.strip_prefix(NAME_PREFIX).unwrap_or_default();
        if rest.is_empty()
            || !rest
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        {
            return Err(Error::BadName {
                name: name.into(),
                what: "a network namespace",
                why: "use `ccplane-` followed by letters, digits and `-_.`",
            });
        }
        let fd = run_in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|e| Error::system(format!("create the network namespace {name}"), e))?;
            interface::bring_up("lo")?;
            let path = "/proc/thread-self/ns/net";
            Ok(OwnedFd::from(
                fs::File::open(path).map_err(|e| Error::system(format!("open {path}"), e))?,
            ))
        })?;
        let target = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
        let link = name_path(name);
        fs::create_dir_all(NETNS_DIRECTORY)
            .map_err(|e| Error::system(format!("create {NETNS_DIRECTORY}"), e))?;
        std::os::unix::fs::symlink(target, &link).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists {
                what: format!("the network namespace {name}"),
                remove: format!("ip netns delete {name}"),
            },
            _ => Error::system(format!("write {}", link.display()), e),
        })?;
        Ok(Namespace(Arc::new(Inner {
            name: name.into(),
            fd,
        })))
    }

    /// Returns the name, for `ip netns exec`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Moves the calling thread into the namespace permanently. Threads and processes that it
    /// starts inherit the namespace.
    pub fn enter(&self) -> Result<(), Error> {
        setns(&self.0.fd, CloneFlags::CLONE_NEWNET)
            .map_err(|e| Error::system(format!("enter the network namespace {}", self.0.name), e))
    }

    /// Runs `work` inside, in a thread of its own. Sockets that it opens stay in the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        run_in_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// Makes `command` start inside.
    pub fn enter_on_spawn<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command, Error> {
        let fd = self
            .0
            .fd
            .try_clone()
            .map_err(|e| Error::system("duplicate a descriptor", e))?;
        // SAFETY: between fork and exec the closure makes one system call on a descriptor that it
        // owns; it neither allocates nor takes a lock.
        Ok(unsafe {
            command.pre_exec(move || setns(&fd, CloneFlags::CLONE_NEWNET).map_err(io::Error::from))
        })
    }

    /// Ends every other process inside: by SIGTERM, and after `timeout` by SIGKILL.
    #[expect(clippy::disallowed_methods, reason = "processes end in real time")]
    pub fn end_processes(&self, timeout: Duration) {
        let end = |signal| {
            let inside = self.processes();
            for process in &inside {
                // It may have ended already.
                let _ = kill(*process, signal);
            }
            !inside.is_empty()
        };
        if !end(Signal::SIGTERM) {
            return;
        }
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline && !self.processes().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        end(Signal::SIGKILL);
    }

    /// Returns the processes inside, except this one and zombies.
    fn processes(&self) -> Vec<Pid> {
        let identity = |path: &str| fs::read_link(path).ok();
        let own = identity(&format!("/proc/self/fd/{}", self.0.fd.as_raw_fd()));
        let Ok(all) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .filter(|&pid| pid != std::process::id())
            .filter(|pid| own.is_some() && identity(&format!("/proc/{pid}/ns/net")) == own)
            .filter_map(|pid| Some(Pid::from_raw(i32::try_from(pid).ok()?)))
            .collect()
    }

    /// Sets a variable below `/proc/sys/` for this namespace, for example `net/ipv4/tcp_rmem`.
    pub fn set_sysctl(&self, variable: &str, value: &str) -> Result<(), Error> {
        self.run(|| interface::set_sysctl(variable, value))?
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // If this fails, the namespace still ends with its descriptor, and the next sweep removes
        // the name.
        let _ = fs::remove_file(name_path(&self.name));
    }
}

/// Runs `work` in the network namespace that has this name in `ip netns`, created by any program,
/// in a thread of its own. Sockets that it opens stay in there.
pub fn run_in_namespace<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if !plain {
        return Err(Error::BadName {
            name: name.into(),
            what: "a network namespace",
            why: "`ip netns list` lists the names",
        });
    }
    run_in_thread(|| {
        let what = || format!("enter the network namespace {name}");
        let file = fs::File::open(name_path(name)).map_err(|e| Error::system(what(), e))?;
        setns(&file, CloneFlags::CLONE_NEWNET).map_err(|e| Error::system(what(), e))?;
        Ok(work())
    })
}

/// Removes the names of namespaces whose owner is gone. Returns the names.
pub fn remove_stale_names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(NETNS_DIRECTORY) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_ours(path) && !is_alive(path) && fs::remove_file(path).is_ok())
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect()
}

fn is_ours(path: &Path) -> bool {
    let named = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(NAME_PREFIX));
    // `ip netns add` creates plain files, which are not ours.
    named && path.is_symlink()
}

fn is_alive(path: &Path) -> bool {
    statfs(path).is_ok_and(|fs| fs.filesystem_type() == NSFS_MAGIC)
}

fn name_path(name: &str) -> PathBuf {
    Path::new(NETNS_DIRECTORY).join(name)
}

/// Runs `work` in a temporary thread, so that the caller stays in its own namespace.
fn run_in_thread<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
