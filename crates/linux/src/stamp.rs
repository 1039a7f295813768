//! Timestamps of both ends for kernel TCP: a TCP option offered on the SYN, programs that stamp
//! packets where they leave and enter devices, and the samples that the congestion control reads on
//! the same ACK.
//!
//! [`StampPrograms::load`] loads the programs.
//! [`Options::stamps`](crate::RegistrationOptions::stamps) gives registrations access to the
//! samples. The programs are then attached to sockets ([`StampPrograms::attach_sockets`]) and to
//! devices ([`StampPrograms::attach_device`]). They stay attached as long as the value lives, or,
//! if [pinned](StampPrograms::load_pinned) and [kept](StampPrograms::leave_attached), until
//! [`detach`].
//!
//! When the process is killed, unpinned links are removed with it. Two changes remain: the limit of
//! one segment per packet, and the filters before Linux 6.6. [`detach`] undoes them from notes that
//! are pinned before a device is changed. Without pins they remain, which suits only devices that
//! end with the process.

mod device;
mod netlink;
#[cfg(test)]
mod oracle;
mod pins;
mod plane;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use libbpf_rs::{Link, Object, ObjectBuilder, ProgramMut};

pub(crate) use self::pins::storage;
pub use self::pins::{ObservedStamps, attached, detach, observe};
pub use self::plane::StampCounters;
pub use crate::cost::Cost;

use self::device::StampDevice;
use self::pins::{DevicePin, Pins};
use self::plane::{DEVICES_MAX, NAMES_MAX, NAMESPACES_MAX, StampPlane};
use crate::cost::run_times;
use crate::error::LoadError;
use crate::map::memory::{Access, Plain, SharedMemory};
use crate::map::ring::RingBuffer;
use crate::namespace;
use crate::registration::load::{failure, map_fd};
use crate::registration::log::LibbpfLog;

/// Built by `bpf/build.sh`.
static OBJECT: &[u8] = include_bytes!("../bpf/prebuilt/stamp.bpf.o");

/// Size of the ring of arrivals in bytes: one second of full-sized packets at 1 Gbit/s.
const RING_BYTES: usize = 1 << 22;

// SAFETY: `StampPlane` is `repr(C)` and consists of atomics and private padding that is never read,
// so every bit pattern is valid.
unsafe impl Plain for StampPlane {}

/// The timestamp programs and their attachments.
pub struct StampPrograms {
    devices: Vec<StampDevice>,
    sockets: Option<Link>,
    pins: Option<Pins>,
    object: Object,
    plane: SharedMemory<StampPlane>,
    arrivals: Option<RingBuffer>,
}

/// The socket storage that holds the timestamps, for registrations that read them.
#[derive(Clone, Debug)]
pub struct Storage(Arc<OwnedFd>);

impl AsFd for Storage {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Arrival of a stamped packet, as seen by the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedArrival {
    /// Arrival time, CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// Departure time by the sender's clock, ns modulo 2^32.
    pub sent: u32,
    /// Size of TCP header and payload, bytes.
    pub bytes: u32,
    /// Port of the receiver.
    pub local_port: u16,
    /// Port of the sender.
    pub remote_port: u16,
}

impl StampPrograms {
    /// Loads the programs, for sockets with these congestion controls. With `record`, every arrival
    /// is recorded for [`drain_arrivals`](StampPrograms::drain_arrivals).
    pub fn load(kernel_names: &[&str], record: bool) -> Result<StampPrograms, LoadError> {
        crate::privilege::require_capabilities()?;
        if let Some(name) = kernel_names.get(NAMES_MAX) {
            return Err(LoadError::Mismatch(format!(
                "at most {NAMES_MAX} congestion controls can use timestamps at once, and `{name}` \
                is one more"
            )));
        }
        let listener = LibbpfLog::new();
        let mut open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(failure("opening the timestamp BPF object", &listener))?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let fitted = match name.as_str() {
                ".rodata.recording" => map.set_initial_value(&u32::from(record).to_ne_bytes()),
                // A ring has at least one page.
                "arrivals" => map.set_max_entries(if record { RING_BYTES as u32 } else { 4096 }),
                _ => Ok(()),
            };
            fitted.map_err(failure("configuring the timestamp BPF object", &listener))?;
        }
        let object = open
            .load()
            .map_err(failure("loading the timestamp BPF object", &listener))?;
        let plane: SharedMemory<StampPlane> =
            SharedMemory::map(map_fd(&object, ".data.stamps")?.as_fd(), 1, Access::Write)
                .map_err(LoadError::io("mapping the timestamp counters"))?;
        plane[0].set_names(kernel_names);
        let arrivals = record
            .then(|| {
                RingBuffer::new(map_fd(&object, "arrivals")?, RING_BYTES, Access::Write)
                    .map_err(LoadError::io("mapping the ring of arrivals"))
            })
            .transpose()?;
        Ok(StampPrograms {
            devices: Vec::new(),
            sockets: None,
            pins: None,
            object,
            plane,
            arrivals,
        })
    }

    /// Loads the programs for sockets with one congestion control, and pins them under its name.
    /// Later attachments are pinned as they are made. Dropping this removes all of them, unless it
    /// is [kept](StampPrograms::leave_attached). After a kill, [`detach`] removes them.
    pub fn load_pinned(kernel_name: &str) -> Result<StampPrograms, LoadError> {
        let mut stamps = StampPrograms::load(&[kernel_name], false)?;
        stamps.pins = Some(Pins::create(kernel_name, &stamps.object)?);
        Ok(stamps)
    }

    /// Leaves everything that is pinned in place, even after this process has ended, until
    /// [`detach`].
    pub fn leave_attached(mut self) {
        if let Some(pins) = &mut self.pins {
            pins.keep();
            self.devices.clear();
        }
    }

    /// Returns the storage from which a registration reads the samples.
    pub fn storage(&self) -> Result<Storage, LoadError> {
        Ok(Storage(Arc::new(map_fd(&self.object, "stamps")?)))
    }

    /// Limits the programs to sockets of this namespace. Each further call adds a namespace. Must
    /// precede [`attach_sockets`](StampPrograms::attach_sockets).
    pub fn add_namespace(&mut self, namespace: &impl AsFd) -> Result<(), LoadError> {
        let cookie = namespace::cookie(namespace)
            .map_err(LoadError::io("reading the cookie of a network namespace"))?;
        let free = self.plane[0]
            .netns
            .iter()
            .find(|cookie| cookie.load(Relaxed) == 0);
        let free = free.ok_or_else(|| {
            LoadError::Mismatch(format!("sockets of at most {NAMESPACES_MAX} namespaces"))
        })?;
        free.store(cookie, Relaxed);
        Ok(())
    }

    /// Attaches to the sockets, including listening ones, that processes in this cgroup (version 2)
    /// and below create from now on; without a cgroup, to those of every process.
    pub fn attach_sockets(
        &mut self,
        cgroup: Option<&Path>,
    ) -> Result<(), crate::select::SelectError> {
        let path = crate::select::cgroup(cgroup)?;
        let directory =
            File::open(&path).map_err(LoadError::io(format!("opening {}", path.display())))?;
        let mut link = program(&self.object, "option")?
            .attach_cgroup(directory.as_raw_fd())
            .map_err(crate::select::bpf(format!(
                "attaching to {}",
                path.display()
            )))?;
        if let Some(pins) = &self.pins {
            pins.pin_sockets(&mut link)?;
        }
        self.sockets = Some(link);
        Ok(())
    }

    /// Stamps packets that leave and enter by this device of the calling thread's namespace, and
    /// limits packets to one segment, so that each has its own timestamp.
    pub fn attach_device(&mut self, name: &str) -> Result<(), LoadError> {
        let (place, kind) = device::find(name)?;
        let [depart, arrive] = device::programs_for_kind(kind).ok_or_else(|| {
            let what = format!(
                "device {name} has type {kind} (ARPHRD); only Ethernet and bare IP devices \
                    are supported"
            );
            LoadError::io(format!("attaching to {name}"))(std::io::Error::other(what))
        })?;
        let [depart, arrive] = [
            program(&self.object, depart)?,
            program(&self.object, arrive)?,
        ];
        let number = self.plane[0]
            .devices
            .iter()
            .position(|note| note.is_free())
            .ok_or_else(|| {
                let what = format!(
                    "the timestamp programs are already attached to {DEVICES_MAX} \
                    devices, the maximum"
                );
                LoadError::io(format!("attaching to {name}"))(std::io::Error::other(what))
            })?;
        let mut device = StampDevice::new(place, number);
        let attached = device.attach(name, &self.slot(number), &depart, &arrive);
        match attached {
            Ok(()) => self.devices.push(device),
            Err(_) => self.restore_device(device),
        }
        attached
    }

    fn slot(&self, number: usize) -> DevicePin<'_> {
        DevicePin {
            note: &self.plane[0].devices[number],
            number,
            pins: self.pins.as_ref(),
        }
    }

    /// Restores a device. If that fails, its note and all pins stay, so that [`detach`] can retry.
    fn restore_device(&mut self, mut device: StampDevice) {
        match device.restore_all() {
            Ok(()) => self.slot(device.number).clear(),
            Err(error) => {
                let index = device.state.index;
                tracing::warn!(
                    "cannot restore device {index}: {error}; if it is pinned, `ccplane detach` \
                    tries again"
                );
                self.pins.iter_mut().for_each(Pins::keep);
            }
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> StampCounters {
        self.plane[0].counters()
    }

    /// Passes the packets that arrived since the last call to `each`, if arrivals are recorded.
    /// They are queued in a ring of 4 MiB and dropped when it is full.
    pub fn drain_arrivals(&mut self, mut each: impl FnMut(StampedArrival)) {
        let Some(ring) = &mut self.arrivals else {
            return;
        };
        loop {
            let batch = ring.batch(1024);
            for words in &batch.records {
                if let &[at_ns, first, second] = *words {
                    each(StampedArrival {
                        at_ns,
                        sent: first as u32,
                        bytes: (first >> 32) as u32,
                        local_port: second as u16,
                        remote_port: (second >> 32) as u16,
                    });
                }
            }
            let (end, empty) = (batch.end, batch.records.is_empty());
            ring.release(end);
            if empty {
                return;
            }
        }
    }

    /// Returns the kernel's run-time statistics of each program since it was loaded. They count
    /// only while `kernel.bpf_stats_enabled` is 1, and include their own overhead of some tens of
    /// ns per call.
    pub fn run_times(&self) -> Vec<Cost> {
        run_times(&self.object)
    }
}

impl Drop for StampPrograms {
    fn drop(&mut self) {
        for device in std::mem::take(&mut self.devices) {
            self.restore_device(device);
        }
    }
}

fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, LoadError> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or_else(|| LoadError::Mismatch(format!("it has no program {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_this_layout() {
        let open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .expect("it is an object");
        let plane = open
            .maps()
            .find(|map| map.name() == ".data.stamps")
            .expect("its plane");
        assert_eq!(plane.value_size() as usize, size_of::<StampPlane>());
    }
}
