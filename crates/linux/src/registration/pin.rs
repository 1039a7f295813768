//! Registrations that outlive their process: pinned under bpffs, adopted by the next agent, removed
//! by `detach`. Also removes registrations left by a dead process on kernels without links (before
//! Linux 6.4).

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object};

use ccplane_units::Time;

use crate::error::LoadError;
use crate::kernel::AlgorithmCounters;
use crate::map::layout::{LAYOUT_VERSION, PlaneLayout};
use crate::map::memory::{Access, SharedMemory};
use crate::map::table::FlowView;
use crate::registration::load::RegistrationMemory;
use crate::registration::paths::bpffs;

const LINK_PIN: &str = "link";
/// Maps by the names of their pins and their names in the object.
const PINNED_MAPS: [(&str, &str); 5] = [
    ("plane", ".data.plane"),
    ("table", "table"),
    ("programs", "programs"),
    ("ring", "ring"),
    // Never opened, only kept: timers end when neither a process nor a pin holds their map.
    ("timers", "timers"),
];

/// Folder of all pinned registrations of this layout.
fn root() -> PathBuf {
    bpffs().join("ccplane").join(LAYOUT_VERSION.to_string())
}

/// Folder of the pins of registration `name`.
fn directory(name: &str) -> PathBuf {
    root().join(name)
}

/// Mounts bpffs unless it is mounted.
pub(crate) fn mount_bpffs() -> Result<(), LoadError> {
    let mounted = nix::sys::statfs::statfs(bpffs())
        .is_ok_and(|fs| fs.filesystem_type() == nix::sys::statfs::FsType(libc::BPF_FS_MAGIC as _));
    if mounted {
        return Ok(());
    }
    nix::mount::mount(
        Some("bpf"),
        bpffs(),
        Some("bpf"),
        nix::mount::MsFlags::empty(),
        Some("mode=700"),
    )
    .map_err(std::io::Error::from)
    .map_err(LoadError::io(format!(
        "mounting bpffs on {} (as root: mount -t bpf bpf {0})",
        bpffs().display()
    )))
}

/// Pins a registration, completely or not at all.
pub(crate) fn pin(
    name: &str,
    link: &mut Link,
    object: &Object,
    links: bool,
) -> Result<PathBuf, LoadError> {
    mount_bpffs()?;
    let directory = directory(name);
    let mut pin_all = || {
        std::fs::create_dir_all(&directory)
            .map_err(LoadError::io(format!("making {}", directory.display())))?;
        for (pin, map) in PINNED_MAPS {
            let map = object.maps().find(|m| m.name() == map);
            let map = map.ok_or_else(|| LoadError::Mismatch(format!("it has no map {pin}")))?;
            let mut handle = MapHandle::try_from(&map).map_err(bpf("duplicating a map"))?;
            handle
                .pin(directory.join(pin))
                .map_err(bpf("pinning a map"))?;
        }
        link.pin(directory.join(LINK_PIN))
            .map_err(bpf("pinning the registration"))?;
        if !links {
            // Without links this is the map itself, and dropping it would unregister.
            link.disconnect();
        }
        Ok(())
    };
    match pin_all() {
        Ok(()) => Ok(directory),
        Err(error) => {
            remove_pins(&directory);
            Err(error)
        }
    }
}

/// Opens the memory of a pinned registration.
pub(crate) fn open(name: &str, access: Access) -> Result<(PathBuf, RegistrationMemory), LoadError> {
    let directory = directory(name);
    let looked = presence_in(&directory);
    match looked.map_err(LoadError::io(format!("looking at {}", directory.display())))? {
        Presence::Present => {}
        Presence::Partial(pin) => {
            let name = name.to_owned();
            return Err(LoadError::Incomplete { name, pin });
        }
        Presence::Gone => {
            return Err(LoadError::NotAttached {
                name: name.to_owned(),
                path: directory,
            });
        }
    }
    let map = |pin: &str| {
        MapHandle::from_pinned_path(directory.join(pin)).map_err(bpf("opening a pinned map"))
    };
    let fd = |map: &MapHandle| -> Result<OwnedFd, LoadError> {
        map.as_fd()
            .try_clone_to_owned()
            .map_err(LoadError::io("duplicating a map's descriptor"))
    };
    let (plane, table, programs, ring) =
        (map("plane")?, map("table")?, map("programs")?, map("ring")?);
    let memory = RegistrationMemory::map(
        fd(&plane)?,
        fd(&table)?,
        fd(&programs)?,
        fd(&ring)?,
        [table.max_entries(), ring.max_entries()],
        access,
    )?;
    Ok((directory, memory))
}

/// An attached algorithm, observed from outside. Its agent may be another process, or dead.
pub struct PinnedView {
    name: String,
    memory: RegistrationMemory,
}

/// Opens every attached algorithm.
pub fn observe() -> Result<Vec<PinnedView>, LoadError> {
    let root = root();
    let paths =
        list_directory(&root).map_err(LoadError::io(format!("listing {}", root.display())))?;
    let mut here: Vec<String> = paths
        .into_iter()
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    here.sort();
    here.iter().map(|name| PinnedView::open(name)).collect()
}

impl PinnedView {
    /// Opens the registration `kernel_name`.
    pub fn open(kernel_name: &str) -> Result<PinnedView, LoadError> {
        let (_, memory) = open(kernel_name, Access::Read)?;
        Ok(PinnedView {
            name: kernel_name.to_owned(),
            memory,
        })
    }

    /// Returns the kernel name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the live flows, as published by the kernel.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> {
        self.memory.table.flows(0, &self.name)
    }

    /// Returns the counters.
    pub fn counters(&self) -> AlgorithmCounters {
        crate::registration::counters::read(&self.memory)
    }

    /// Returns the totals of ended flows.
    pub fn ended_totals(&self) -> crate::ConnectionTotals {
        crate::map::totals::ended_totals(self.memory.plane())
    }

    /// Returns true if the flows run a program that needs no agent.
    pub fn is_standalone(&self) -> bool {
        self.memory
            .plane()
            .own
            .load(std::sync::atomic::Ordering::Relaxed)
            != 0
    }

    /// Returns the time since the agent's last heartbeat.
    pub fn heartbeat_age(&self) -> ccplane_units::Duration {
        crate::clock::now().since(self.last_heartbeat())
    }

    /// Returns the agent timeout, after which flows fall back.
    pub fn fallback_after(&self) -> ccplane_units::Duration {
        let plane = self.memory.plane();
        let nanos = plane
            .fallback_after_ns
            .load(std::sync::atomic::Ordering::Relaxed);
        ccplane_units::Duration::from_nanos(nanos)
    }

    /// Returns the time of the agent's last heartbeat, on CLOCK_MONOTONIC.
    pub fn last_heartbeat(&self) -> Time {
        Time::from_nanos(
            self.memory
                .plane()
                .heartbeat_ns
                .load(std::sync::atomic::Ordering::Relaxed),
        )
    }
}

/// Fails if `name` is pinned already.
pub(crate) fn ensure_not_attached(name: &str) -> Result<(), LoadError> {
    let path = directory(name);
    match path.exists() {
        true => Err(LoadError::Attached {
            name: name.to_owned(),
            path,
        }),
        false => Ok(()),
    }
}

/// Presence of a registration under bpffs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// All pins exist.
    Present,
    /// Some pins exist, but not this one.
    Partial(PathBuf),
    /// No pin exists: the registration was detached.
    Gone,
}

/// Checks for the registration `name` of this layout, without opening a descriptor.
///
/// # Errors
/// The folder could not be read, so the presence is unknown.
pub fn presence(name: &str) -> std::io::Result<Presence> {
    presence_in(&directory(name))
}

fn presence_in(directory: &Path) -> std::io::Result<Presence> {
    if !directory.try_exists()? {
        return Ok(Presence::Gone);
    }
    for pin in PINNED_MAPS.iter().map(|(pin, _)| *pin).chain([LINK_PIN]) {
        let pin = directory.join(pin);
        // Detaching removes the pins first and then the folder.
        if !pin.try_exists()? && directory.try_exists()? {
            return Ok(Presence::Partial(pin));
        }
    }
    Ok(match directory.try_exists()? {
        true => Presence::Present,
        false => Presence::Gone,
    })
}

/// Returns the attached kernel names of all layouts.
pub fn attached() -> Vec<String> {
    names(registrations())
}

/// Returns the last components of the paths, sorted and without duplicates.
pub(crate) fn names(paths: impl Iterator<Item = PathBuf>) -> Vec<String> {
    let mut names: Vec<String> = paths
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Lists a folder. One that does not exist is empty; any other error is returned.
fn list_directory(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(path) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub(crate) fn entries(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn registrations() -> impl Iterator<Item = PathBuf> {
    pinned_by_all_layouts(&bpffs().join("ccplane"))
}

/// Returns everything pinned below `root` by any layout.
pub(crate) fn pinned_by_all_layouts(root: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let layouts: Vec<PathBuf> = entries(root).collect();
    layouts
        .into_iter()
        // Layouts are numbers; other parts of ccplane may have pins next to them.
        .filter(|path| {
            path.file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|n| n.parse::<u32>().is_ok())
        })
        .flat_map(move |layout| entries(&layout).collect::<Vec<_>>())
}

/// Detaches all registrations, or only `only`, of every layout, even if the process that attached
/// them was killed. New sockets can no longer select them. Live ones run the fallback until they
/// end. Returns the removed names.
///
/// Network namespaces that have one as their default get a native congestion control first. If that
/// fails, nothing is removed.
pub fn detach(only: Option<&str>) -> Result<Vec<String>, LoadError> {
    crate::default_control::restore(only, None)?;
    let mut removed = Vec::new();
    for directory in registrations() {
        let Some(name) = directory
            .file_name()
            .and_then(|name| name.to_str())
            .map(str::to_owned)
        else {
            continue;
        };
        if only.is_some_and(|only| only != name) {
            continue;
        }
        stop_standalone(&directory);
        let link = directory.join(LINK_PIN);
        match MapHandle::from_pinned_path(&link) {
            // Before Linux 6.4 the pin is the map, and deleting its element unregisters.
            Ok(map) => drop(map.delete(&0u32.to_ne_bytes())),
            Err(_) => {
                // From 6.10 on a link can be detached while an agent holds it. Before, it ends with
                // its last holder.
                let _ = Link::open(&link).and_then(|link| link.detach());
            }
        }
        remove_pins(&directory);
        unregister_leftover(&name)?;
        // Removes the lock file of a killed agent; a live one keeps it.
        drop(crate::registration::lock::NameLock::acquire(&name));
        removed.push(name);
    }
    for path in [root(), bpffs().join("ccplane")] {
        // Fails, as intended, if something else is still pinned there.
        let _ = std::fs::remove_dir(path);
    }
    Ok(removed)
}

/// Stops the standalone program of live flows, which then run NewReno. Skips other layouts, whose
/// memory cannot be interpreted.
fn stop_standalone(directory: &Path) {
    if directory.parent() == Some(&root())
        && let Ok(map) = MapHandle::from_pinned_path(directory.join("plane"))
        && let Ok(plane) = SharedMemory::<PlaneLayout>::map(map.as_fd(), 1, Access::Write)
    {
        plane[0].own.store(0, std::sync::atomic::Ordering::SeqCst);
    }
}

fn remove_pins(directory: &Path) {
    for pin in PINNED_MAPS.iter().map(|(pin, _)| *pin).chain([LINK_PIN]) {
        let _ = std::fs::remove_file(directory.join(pin));
    }
    let _ = std::fs::remove_dir(directory);
}

/// Removes a pinned link if it exists.
pub(crate) fn remove_link(pin: &Path) {
    if pin.exists()
        && let Ok(link) = Link::open(pin)
    {
        // The kernel detaches it once the pin is gone; an explicit detach is complete before this
        // returns.
        let _ = link.detach();
    }
    let _ = std::fs::remove_file(pin);
}

/// Unregisters `name` if a dead process left it registered on a kernel without links. The caller
/// holds the name's lock, so no live process serves it.
pub(crate) fn unregister_leftover(name: &str) -> Result<(), LoadError> {
    let mut wanted = [0; 16];
    wanted[..name.len().min(15)].copy_from_slice(&name.as_bytes()[..name.len().min(15)]);
    let ours = libbpf_rs::query::MapInfoIter::default().filter(|info| {
        info.ty == MapType::StructOps && info.name.to_string_lossy().starts_with("ccplane_ops")
    });
    for info in ours {
        let Ok(map) = MapHandle::from_map_id(info.id) else {
            continue;
        };
        let value = map
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .ok()
            .flatten();
        if value.is_some_and(|value| value.windows(wanted.len()).any(|part| part == wanted)) {
            // With links the kernel refuses, and the registration ends with its link anyway.
            let _ = map.delete(&0u32.to_ne_bytes());
        }
    }
    Ok(())
}

pub(crate) fn bpf(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> LoadError {
    move |source| LoadError::Bpf {
        what,
        log: String::new(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_pins_are_named_and_unreadable_directories_are_errors() {
        let directory = std::env::temp_dir().join(format!("ccplane-pins-{}", std::process::id()));
        assert_eq!(presence_in(&directory).unwrap(), Presence::Gone);
        std::fs::create_dir(&directory).unwrap();
        for pin in PINNED_MAPS.iter().map(|(pin, _)| *pin).chain([LINK_PIN]) {
            assert_eq!(
                presence_in(&directory).unwrap(),
                Presence::Partial(directory.join(pin))
            );
            std::fs::write(directory.join(pin), "").unwrap();
        }
        assert_eq!(presence_in(&directory).unwrap(), Presence::Present);
        // Lookups below a file fail.
        assert!(list_directory(&directory.join(LINK_PIN)).is_err());
        remove_pins(&directory);
        assert!(list_directory(&directory).unwrap().is_empty());
    }
}
