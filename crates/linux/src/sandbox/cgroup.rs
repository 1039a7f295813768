//! A cgroup that limits memory and tasks of one process and its children.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::unistd::Pid;

/// Controllers required for the limits.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// Prefix of the cgroups' names, followed by the PID of the creator.
const NAME_PREFIX: &str = "ccplane-sandbox-";

/// A cgroup. Dropping it kills the processes in it and removes it.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup (version 2) with these limits, below this process's own cgroup or next to
    /// it.
    pub fn create(memory_bytes: u64, tasks: u64) -> io::Result<Cgroup> {
        let missing = |what: &str| io::Error::new(io::ErrorKind::Unsupported, what.to_owned());
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mounted = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (folder, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then_some(folder)
        });
        let mounted = Path::new(mounted.ok_or_else(|| missing("cgroup v2 is not mounted"))?);
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let own = mounted.join(own.ok_or_else(|| {
            missing(
                "this process is not in a cgroup of \
            version 2",
            )
        })?);
        let parents = own
            .ancestors()
            .take(2)
            .filter(|folder| folder.starts_with(mounted));
        let mut last =
            missing("the cgroup of this process does not delegate the memory and pids controllers");
        for parent in parents.filter(|parent| delegates_controllers(parent)) {
            remove_stale(parent);
            match Cgroup::create_in(parent, memory_bytes, tasks) {
                Ok(cgroup) => return Ok(cgroup),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    fn create_in(parent: &Path, memory_bytes: u64, tasks: u64) -> io::Result<Cgroup> {
        static CGROUP_COUNT: AtomicU32 = AtomicU32::new(0);
        let number = CGROUP_COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("{NAME_PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&folder)?;
        let cgroup = Cgroup(folder);
        fs::write(cgroup.0.join("memory.max"), memory_bytes.to_string())?;
        fs::write(cgroup.0.join("pids.max"), tasks.to_string())?;
        // Absent on kernels without swap.
        let _ = fs::write(cgroup.0.join("memory.swap.max"), "0");
        Ok(cgroup)
    }

    /// Moves a process into the cgroup.
    pub(super) fn add(&self, process: Pid) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), process.to_string())
    }
}

impl Drop for Cgroup {
    #[expect(clippy::disallowed_methods, reason = "waits for other processes")]
    fn drop(&mut self) {
        // The file exists since Linux 5.14. Before, the end of the supervisor has ended the other
        // processes.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..50 {
            match fs::remove_dir(&self.0) {
                Err(why) if why.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                _ => return,
            }
        }
    }
}

/// Returns true if the controllers are enabled for children of this cgroup.
fn delegates_controllers(folder: &Path) -> bool {
    let list = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
    let has = |wanted: &&str| {
        list.split_whitespace()
            .any(|controller| controller == *wanted)
    };
    CONTROLLERS.iter().all(has)
}

/// Removes cgroups of processes that no longer exist.
fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name
            .to_str()
            .and_then(|name| name.strip_prefix(NAME_PREFIX)?.split('-').next())
            .and_then(|pid| pid.parse::<u32>().ok());
        if process.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_and_stale_cgroups_removed() {
        let parent = std::env::temp_dir().join(format!("ccplane-cgroup-{}", std::process::id()));
        let dead = parent.join(format!("{NAME_PREFIX}4294967294-0"));
        fs::create_dir_all(&dead).unwrap();
        assert!(!delegates_controllers(&parent));
        fs::write(parent.join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        assert!(delegates_controllers(&parent));
        remove_stale(&parent);
        assert!(!dead.exists());
        let cgroup = Cgroup::create_in(&parent, 1 << 30, 64).unwrap();
        let read = |name: &str| fs::read_to_string(cgroup.0.join(name)).unwrap();
        assert_eq!(
            (read("memory.max"), read("pids.max")),
            ("1073741824".into(), "64".into())
        );
        remove_stale(&parent);
        assert!(cgroup.0.exists(), "its process is running");
        fs::remove_dir_all(&parent).unwrap();
    }
}
