//! Stamps that outlive the process which attached them: pinned under bpffs, looked at from outside, removed by `detach`.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use libbpf_rs::{Link, MapHandle, libbpf_sys};

use super::device::Place;
use super::plane::{DEVICES, Plane};
use super::{StampCounters, Stamps, Storage};
use crate::error::LoadError;
use crate::load::map_fd;
use crate::memory::{Access, Shared};
use crate::pin::{bpf, mount_bpffs};

/// By the congestion control that wants them.
const PINS: &str = "/sys/fs/bpf/ccplane/stamps";
const PLANE: &str = "plane";
const STORAGE: &str = "storage";

fn directory(kernel_name: &str) -> PathBuf {
    Path::new(PINS).join(kernel_name)
}

/// The congestion controls whose stamps are pinned.
fn pinned() -> Vec<String> {
    let entries = std::fs::read_dir(PINS).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

impl Stamps {
    /// Keeps everything as it is, also after this process ended, until [`detach`]: all of it or nothing.
    pub fn pin(&mut self, kernel_name: &str) -> Result<(), LoadError> {
        mount_bpffs()?;
        let directory = directory(kernel_name);
        if directory.exists() {
            return Err(LoadError::Attached {
                name: kernel_name.to_owned(),
                path: directory,
            });
        }
        let pinned = self.pin_all(&directory);
        match pinned {
            Ok(()) => self.devices.iter_mut().for_each(super::Device::keep),
            Err(_) => remove(&directory),
        }
        pinned
    }

    fn pin_all(&mut self, directory: &Path) -> Result<(), LoadError> {
        if self.devices.len() > DEVICES {
            return Err(LoadError::Mismatch(format!("{DEVICES} devices at most")));
        }
        std::fs::create_dir_all(directory).map_err(LoadError::io(format!("making {}", directory.display())))?;
        // The notes first: what is pinned can then be undone, wherever this is interrupted.
        for (note, device) in self.plane[0].devices.iter().zip(&self.devices) {
            note.gso_max_segs.store(device.place.gso_max_segs, Relaxed);
            note.filters.store(device.place.filters.into(), Relaxed);
            note.made_clsact.store(device.place.made_clsact.into(), Relaxed);
            note.index.store(device.place.index, Relaxed);
        }
        pin_fd(&map_fd(&self.object, ".data.stamps")?, &directory.join(PLANE))?;
        pin_fd(&map_fd(&self.object, "stamps")?, &directory.join(STORAGE))?;
        for device in &self.devices {
            let links = device.hooks.iter().flatten();
            for (link, hook) in links.zip(["depart", "arrive"]) {
                pin_fd(link, &directory.join(format!("{hook}-{}", device.place.index)))?;
            }
        }
        if let Some(link) = &mut self.sockets {
            link.pin(directory.join("sockets"))
                .map_err(bpf("pinning the link to the cgroup"))?;
        }
        Ok(())
    }
}

fn pin_fd(fd: &OwnedFd, path: &Path) -> Result<(), LoadError> {
    let failed = || LoadError::io(format!("pinning {}", path.display()));
    let text = CString::new(path.as_os_str().as_bytes())
        .map_err(std::io::Error::from)
        .map_err(failed())?;
    // SAFETY: an open descriptor and a string with its zero, which outlive the call.
    match unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), text.as_ptr()) } {
        0 => Ok(()),
        code => Err(failed()(std::io::Error::from_raw_os_error(-code))),
    }
}

/// Stamps that are attached, looked at from outside.
pub struct ObservedStamps {
    name: String,
    plane: Shared<Plane>,
}

impl ObservedStamps {
    /// Those of this congestion control; `None` where it has none.
    pub fn open(kernel_name: &str) -> Result<Option<ObservedStamps>, LoadError> {
        let path = directory(kernel_name).join(PLANE);
        if !path.exists() {
            return Ok(None);
        }
        let map = MapHandle::from_pinned_path(&path).map_err(bpf("opening a pinned map"))?;
        let plane =
            Shared::map(map.as_fd(), 1, Access::Read).map_err(LoadError::io("mapping the counters of time stamps"))?;
        Ok(Some(ObservedStamps {
            name: kernel_name.to_owned(),
            plane,
        }))
    }

    /// The congestion control.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What happened so far.
    pub fn counters(&self) -> StampCounters {
        self.plane[0].counters()
    }
}

/// Every pinned set of stamps.
pub fn observe() -> Result<Vec<ObservedStamps>, LoadError> {
    pinned()
        .iter()
        .filter_map(|name| ObservedStamps::open(name).transpose())
        .collect()
}

/// Where the stamps of an attached registration are.
pub(crate) fn storage(kernel_name: &str) -> Option<Storage> {
    let map = MapHandle::from_pinned_path(directory(kernel_name).join(STORAGE)).ok()?;
    Some(Storage(Arc::new(map.as_fd().try_clone_to_owned().ok()?)))
}

/// Removes pinned stamps, all or those of `only`, also when the process that attached them was killed. Called in the
/// namespace where they were attached. The names of the congestion controls that had some.
pub fn detach(only: Option<&str>) -> Result<Vec<String>, LoadError> {
    let names: Vec<String> = pinned()
        .into_iter()
        .filter(|name| only.is_none_or(|only| only == name))
        .collect();
    for name in &names {
        let directory = directory(name);
        for place in places(&directory.join(PLANE)) {
            place.restore();
        }
        remove(&directory);
    }
    for directory in [Path::new(PINS), Path::new(PINS).parent().unwrap_or(Path::new(PINS))] {
        // Fails, as it should, where something else is still pinned there.
        let _ = std::fs::remove_dir(directory);
    }
    Ok(names)
}

/// The devices that the notes of a plane name.
fn places(plane: &Path) -> Vec<Place> {
    let plane = MapHandle::from_pinned_path(plane)
        .ok()
        .and_then(|map| Shared::<Plane>::map(map.as_fd(), 1, Access::Read).ok());
    let Some(plane) = plane else { return Vec::new() };
    let noted = plane[0].devices.iter().filter(|note| note.index.load(Relaxed) != 0);
    noted
        .filter_map(|note| {
            Some(Place {
                name: String::new(),
                index: note.index.load(Relaxed),
                namespace: File::open("/proc/thread-self/ns/net").ok()?,
                gso_max_segs: note.gso_max_segs.load(Relaxed),
                filters: note.filters.load(Relaxed) != 0,
                made_clsact: note.made_clsact.load(Relaxed) != 0,
            })
        })
        .collect()
}

fn remove(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_link = path.file_name().is_some_and(|name| name != PLANE && name != STORAGE);
        if is_link && let Ok(link) = Link::open(&path) {
            // It goes with its pin in any case; this way before we return.
            let _ = link.detach();
        }
        let _ = std::fs::remove_file(&path);
    }
    let _ = std::fs::remove_dir(directory);
}
