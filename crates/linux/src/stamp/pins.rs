//! Timestamps that outlive the process that attached them: pinned under bpffs, observed from
//! outside, removed by `detach`.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore, MapHandle, Object, libbpf_sys};

use super::device::{DeviceState, Hook};
use super::plane::{DeviceNote, StampPlane};
use super::{StampCounters, Storage};
use crate::error::LoadError;
use crate::map::layout::LAYOUT_VERSION;
use crate::map::memory::{Access, SharedMemory};
use crate::namespace;
use crate::registration::load::map_fd;
use crate::registration::pin::{
    bpf, entries, mount_bpffs, names, pinned_by_all_layouts, remove_link,
};

/// Folder of the pins, with one subfolder per layout and, below, per congestion control.
fn pins() -> PathBuf {
    crate::registration::paths::bpffs().join("ccplane/stamps")
}

const PLANE_PIN: &str = "plane";
const STORAGE_PIN: &str = "storage";
const SOCKETS_PIN: &str = "sockets";

fn directory(kernel_name: &str) -> PathBuf {
    pins().join(LAYOUT_VERSION.to_string()).join(kernel_name)
}

/// Returns every folder of pins, of all layouts. The first versions had no subfolder per layout.
fn directories() -> impl Iterator<Item = PathBuf> {
    let first = entries(&pins()).filter(|directory| directory.join(PLANE_PIN).is_file());
    pinned_by_all_layouts(&pins()).chain(first)
}

/// The folder where attachments are pinned as they are made. Dropping it removes them, unless
/// `keep` was called.
pub(super) struct Pins {
    directory: PathBuf,
    keep: bool,
}

impl Pins {
    /// Pins the maps, including the notes of devices before any are written.
    pub fn create(kernel_name: &str, object: &Object) -> Result<Pins, LoadError> {
        mount_bpffs()?;
        let directory = directory(kernel_name);
        let failed = || LoadError::io(format!("making {}", directory.display()));
        std::fs::create_dir_all(directory.parent().unwrap_or(&directory)).map_err(failed())?;
        std::fs::create_dir(&directory).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => LoadError::Attached {
                name: kernel_name.to_owned(),
                path: directory.clone(),
            },
            _ => failed()(error),
        })?;
        let pins = Pins {
            directory,
            keep: false,
        };
        pin_fd(
            &map_fd(object, ".data.stamps")?,
            &pins.directory.join(PLANE_PIN),
        )?;
        pin_fd(
            &map_fd(object, "stamps")?,
            &pins.directory.join(STORAGE_PIN),
        )?;
        Ok(pins)
    }

    pub fn pin_sockets(&self, link: &mut Link) -> Result<(), LoadError> {
        link.pin(self.directory.join(SOCKETS_PIN))
            .map_err(bpf("pinning the link to the cgroup"))
    }

    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if !self.keep {
            remove(&self.directory);
            remove_empty_folders();
        }
    }
}

/// Note and pins of one device.
pub(super) struct DevicePin<'a> {
    pub note: &'a DeviceNote,
    pub number: usize,
    pub pins: Option<&'a Pins>,
}

impl DevicePin<'_> {
    pub fn pin(&self, link: &OwnedFd, hook: Hook) -> Result<(), LoadError> {
        match self.pins {
            Some(pins) => pin_fd(link, &link_path(&pins.directory, hook, self.number)),
            None => Ok(()),
        }
    }

    /// Removes the note and the pins of a restored device.
    pub fn clear(&self) {
        self.note.clear();
        for hook in [Hook::Egress, Hook::Ingress] {
            if let Some(pins) = self.pins {
                remove_link(&link_path(&pins.directory, hook, self.number));
            }
        }
    }
}

fn link_path(directory: &Path, hook: Hook, number: usize) -> PathBuf {
    let program = match hook {
        Hook::Egress => "depart",
        Hook::Ingress => "arrive",
    };
    directory.join(format!("{program}-{number}"))
}

fn pin_fd(fd: &OwnedFd, path: &Path) -> Result<(), LoadError> {
    let failed = || LoadError::io(format!("pinning {}", path.display()));
    let text = CString::new(path.as_os_str().as_bytes())
        .map_err(std::io::Error::from)
        .map_err(failed())?;
    // SAFETY: the descriptor is open and the string NUL-terminated, and both outlive the call.
    match unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), text.as_ptr()) } {
        0 => Ok(()),
        code => Err(failed()(std::io::Error::from_raw_os_error(-code))),
    }
}

/// Attached timestamps, observed from outside.
pub struct ObservedStamps {
    name: String,
    plane: SharedMemory<StampPlane>,
}

impl ObservedStamps {
    /// Opens the timestamps of this congestion control; `None` if it has none.
    pub fn open(kernel_name: &str) -> Result<Option<ObservedStamps>, LoadError> {
        let plane = open_plane(&directory(kernel_name))?;
        Ok(plane.map(|plane| ObservedStamps {
            name: kernel_name.to_owned(),
            plane,
        }))
    }

    /// Returns the name of the congestion control.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counters.
    pub fn counters(&self) -> StampCounters {
        self.plane[0].counters()
    }
}

/// Opens the plane in a folder of pins; `None` if there is none, or one of another size, which
/// cannot be interpreted.
fn open_plane(directory: &Path) -> Result<Option<SharedMemory<StampPlane>>, LoadError> {
    let path = directory.join(PLANE_PIN);
    if !path.exists() {
        return Ok(None);
    }
    let map = MapHandle::from_pinned_path(&path).map_err(bpf("opening a pinned map"))?;
    if map.value_size() as usize != size_of::<StampPlane>() {
        return Ok(None);
    }
    let plane = SharedMemory::map(map.as_fd(), 1, Access::Read);
    plane
        .map(Some)
        .map_err(LoadError::io("mapping the timestamp counters"))
}

/// Returns the congestion controls with attached timestamps, of all layouts.
pub fn attached() -> Vec<String> {
    names(directories())
}

/// Opens all attached timestamps of this layout.
pub fn observe() -> Result<Vec<ObservedStamps>, LoadError> {
    attached()
        .iter()
        .filter_map(|name| ObservedStamps::open(name).transpose())
        .collect()
}

/// Returns the timestamp storage of an attached registration.
pub(crate) fn storage(kernel_name: &str) -> Option<Storage> {
    let map = MapHandle::from_pinned_path(directory(kernel_name).join(STORAGE_PIN)).ok()?;
    Some(Storage(Arc::new(map.as_fd().try_clone_to_owned().ok()?)))
}

/// Removes pinned timestamps, all or those of `only`, even if the process that attached them was
/// killed, and restores their devices in all namespaces. Returns the names of the congestion
/// controls that had some.
///
/// # Errors
/// The first reason why a device could not be restored. The pins of its set stay, with the notes
/// that a retry needs; all other sets are removed.
pub fn detach(only: Option<&str>) -> Result<Vec<String>, LoadError> {
    let wanted = |path: &PathBuf| only.is_none_or(|only| path.ends_with(only));
    let mut removed = Vec::new();
    let mut failed = None;
    for directory in directories().filter(wanted) {
        match restore_devices(&directory) {
            Ok(()) => {
                remove(&directory);
                removed.push(directory);
            }
            Err(why) => failed = failed.or(Some(why)),
        }
    }
    remove_empty_folders();
    match failed {
        None => Ok(names(removed.into_iter())),
        Some(why) => Err(why),
    }
}

/// Restores the devices noted in a folder of pins, or none if one of them cannot be found.
fn restore_devices(directory: &Path) -> Result<(), LoadError> {
    for place in noted_devices(directory)? {
        let what = || {
            format!(
                "restoring device {}, which {} describes",
                place.index,
                directory.display()
            )
        };
        place
            .restore()
            .map_err(|error| LoadError::io(what())(error))?;
    }
    Ok(())
}

/// Returns the devices noted in a folder of pins, except those that no longer exist.
fn noted_devices(directory: &Path) -> Result<Vec<DeviceState>, LoadError> {
    let ours = directory
        .parent()
        .is_some_and(|layout| layout.ends_with(LAYOUT_VERSION.to_string()));
    let plane = if ours { open_plane(directory)? } else { None };
    let Some(plane) = plane else {
        if directory.join(PLANE_PIN).exists() {
            tracing::warn!(
                "{} was created by another version of ccplane, whose device records cannot be \
                read; its devices stay limited to one segment per packet until `ip link set dev \
                DEVICE gso_max_segs 65535`, and before Linux 6.6 keep filters of priority 3275 \
                until `tc filter del dev DEVICE egress pref 3275`, and the same for ingress",
                directory.display()
            );
        }
        return Ok(Vec::new());
    };
    let notes = plane[0]
        .devices
        .iter()
        .enumerate()
        .filter(|(_, note)| !note.is_free());
    notes
        .filter_map(
            |(number, note)| match namespace::find_by_cookie(note.netns()) {
                Some(namespace) => Some(Ok(note.to_device_state(namespace))),
                None if !note.has_filters()
                    && is_detached(&link_path(directory, Hook::Egress, number)) =>
                {
                    None
                }
                None => Some(Err(LoadError::Elsewhere {
                    name: directory
                        .file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned(),
                    path: directory.to_owned(),
                })),
            },
        )
        .collect()
}

/// Returns true for a link whose device no longer exists.
fn is_detached(pin: &Path) -> bool {
    let info = Link::open(pin).and_then(|link| link.info());
    info.is_ok_and(|info| matches!(info.info, LinkTypeInfo::Tcx(tcx) if tcx.ifindex == 0))
}

fn remove(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.ends_with(PLANE_PIN) || path.ends_with(STORAGE_PIN) {
            let _ = std::fs::remove_file(&path);
        } else {
            remove_link(&path);
        }
    }
    let _ = std::fs::remove_dir(directory);
}

/// Removes empty parent folders.
fn remove_empty_folders() {
    let pins = pins();
    let layouts = std::fs::read_dir(&pins).into_iter().flatten().flatten();
    let above = pins.ancestors().take(2).map(Path::to_owned);
    for directory in layouts.map(|layout| layout.path()).chain(above) {
        // Fails, as intended, if something is still pinned there.
        let _ = std::fs::remove_dir(directory);
    }
}
