//! Time stamps of both ends on the kernel's own TCP: a TCP option that the SYN offers, programs
//! that stamp packets where they leave and arrive at devices, and the samples that the congestion
//! control reads on the same ACK.
//!
//! [`Stamps::load`] loads the programs. [`Options::stamps`](crate::Options::stamps) lets
//! registrations read what they leave beside sockets. Then they are attached to sockets
//! ([`Stamps::attach_sockets`]) and to devices ([`Stamps::attach_device`]). They stay for as long
//! as the value lives, or, where they are [pinned](Stamps::pinned) and [kept](Stamps::keep), until
//! [`detach`].
//!
//! When the process is killed, links go with it unless they are pinned. What does not go with it,
//! that devices take one segment a packet, and before Linux 6.6 the filters, is undone by
//! [`detach`] from notes, which are pinned before a device is touched. Without pins it stays: those
//! are for devices that go with the process too.

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

use libbpf_rs::{Link, Object, ObjectBuilder, Program, ProgramMut};

pub(crate) use self::pins::storage;
pub use self::pins::{ObservedStamps, attached, detach, observe};
pub use self::plane::StampCounters;

use self::device::Device;
use self::pins::{Pins, Slot};
use self::plane::{DEVICES, NAMES, NAMESPACES, Plane};
use crate::error::LoadError;
use crate::map::memory::{Access, Plain, Shared};
use crate::map::ring::Ring;
use crate::namespace;
use crate::registration::load::{failure, map_fd};
use crate::registration::log::Listener;

/// Built by `bpf/build.sh`.
static OBJECT: &[u8] = include_bytes!("../bpf/prebuilt/stamp.bpf.o");

/// Bytes of the ring of arrivals: a second of full packets at 1 Gbit/s.
const RING: usize = 1 << 22;

// SAFETY: atomics, and private padding that nobody reads; any bits are valid.
unsafe impl Plain for Plane {}

/// Programs that stamp, and what they are attached to.
pub struct Stamps {
    devices: Vec<Device>,
    sockets: Option<Link>,
    pins: Option<Pins>,
    object: Object,
    plane: Shared<Plane>,
    arrivals: Option<Ring>,
}

/// Where the stamps of a socket are, for the registrations that read them.
#[derive(Clone, Debug)]
pub struct Storage(Arc<OwnedFd>);

impl AsFd for Storage {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A stamped packet that arrived: what the receiver knows of its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrived, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// When it left, by its sender's clock, nanoseconds modulo 2^32.
    pub sent: u32,
    /// Its TCP header and payload, bytes.
    pub bytes: u32,
    /// The receiver's port.
    pub local_port: u16,
    /// The sender's port.
    pub remote_port: u16,
}

impl Stamps {
    /// Loads the programs, for sockets under these congestion controls. With `record` every arrival
    /// is kept for [`arrivals`](Stamps::arrivals).
    pub fn load(kernel_names: &[&str], record: bool) -> Result<Stamps, LoadError> {
        crate::privilege::require()?;
        if let Some(name) = kernel_names.get(NAMES) {
            return Err(LoadError::Mismatch(format!(
                "{NAMES} congestion controls may want time stamps at once, and `{name}` is one more"
            )));
        }
        let listener = Listener::new();
        let mut open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(failure("opening the BPF object of time stamps", &listener))?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let fitted = match name.as_str() {
                ".rodata.recording" => map.set_initial_value(&u32::from(record).to_ne_bytes()),
                // A ring has at least a page.
                "arrivals" => map.set_max_entries(if record { RING as u32 } else { 4096 }),
                _ => Ok(()),
            };
            fitted.map_err(failure("fitting the BPF object of time stamps", &listener))?;
        }
        let object = open
            .load()
            .map_err(failure("loading the BPF object of time stamps", &listener))?;
        let plane: Shared<Plane> =
            Shared::map(map_fd(&object, ".data.stamps")?.as_fd(), 1, Access::Write)
                .map_err(LoadError::io("mapping the counters of time stamps"))?;
        plane[0].want(kernel_names);
        let arrivals = record
            .then(|| {
                Ring::new(map_fd(&object, "arrivals")?, RING, Access::Write)
                    .map_err(LoadError::io("mapping the ring of arrivals"))
            })
            .transpose()?;
        Ok(Stamps {
            devices: Vec::new(),
            sockets: None,
            pins: None,
            object,
            plane,
            arrivals,
        })
    }

    /// Loads the programs, for sockets under one congestion control, and pins them under its name.
    /// Later attachments are pinned as soon as they are made. Dropping this removes all of it,
    /// unless it is [kept](Stamps::keep). After a kill [`detach`] removes it.
    pub fn pinned(kernel_name: &str) -> Result<Stamps, LoadError> {
        let mut stamps = Stamps::load(&[kernel_name], false)?;
        stamps.pins = Some(Pins::make(kernel_name, &stamps.object)?);
        Ok(stamps)
    }

    /// Leaves everything that is pinned as it is, also after this process ended, until [`detach`].
    pub fn keep(mut self) {
        if let Some(pins) = &mut self.pins {
            pins.keep();
            self.devices.clear();
        }
    }

    /// What a registration needs to read the samples.
    pub fn storage(&self) -> Result<Storage, LoadError> {
        Ok(Storage(Arc::new(map_fd(&self.object, "stamps")?)))
    }

    /// Only sockets of this namespace take part; said again, of that one too. Before
    /// [`attach_sockets`](Stamps::attach_sockets).
    pub fn confine(&mut self, namespace: &impl AsFd) -> Result<(), LoadError> {
        let cookie = namespace::cookie(namespace).map_err(LoadError::io(
            "asking for the cookie of a network namespace",
        ))?;
        let free = self.plane[0]
            .netns
            .iter()
            .find(|cookie| cookie.load(Relaxed) == 0);
        let free = free.ok_or_else(|| {
            LoadError::Mismatch(format!("sockets of {NAMESPACES} namespaces at most"))
        })?;
        free.store(cookie, Relaxed);
        Ok(())
    }

    /// Takes part with the sockets, listening ones included, that processes of this cgroup (version
    /// 2) and of those below it make from now on. Without a cgroup: of every process.
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

    /// What leaves and comes by this device of the calling thread's namespace is stamped, and goes
    /// in packets of one segment, so that each has its own stamp.
    pub fn attach_device(&mut self, name: &str) -> Result<(), LoadError> {
        let (place, kind) = device::find(name)?;
        let [depart, arrive] = device::programs(kind).ok_or_else(|| {
            let what =
                format!("device {name} is of kind {kind} (ARPHRD), and only Ethernet and bare IP can be stamped");
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
                let what = format!("these time stamps are at {DEVICES} devices already, and that is as many as can be");
                LoadError::io(format!("attaching to {name}"))(std::io::Error::other(what))
            })?;
        let mut device = Device::new(place, number);
        let attached = device.attach(name, &self.slot(number), &depart, &arrive);
        match attached {
            Ok(()) => self.devices.push(device),
            Err(_) => self.put_back(device),
        }
        attached
    }

    fn slot(&self, number: usize) -> Slot<'_> {
        Slot {
            note: &self.plane[0].devices[number],
            number,
            pins: self.pins.as_ref(),
        }
    }

    /// A device as it was before. Where that fails its note is what [`detach`] tries again with,
    /// and stays with all that is pinned.
    fn put_back(&mut self, mut device: Device) {
        match device.put_back() {
            Ok(()) => self.slot(device.number).clear(),
            Err(error) => {
                let index = device.place.index;
                tracing::warn!(
                    "device {index} could not be put back: {error}; if it was pinned `ccplane detach` tries again"
                );
                self.pins.iter_mut().for_each(Pins::keep);
            }
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> StampCounters {
        self.plane[0].counters()
    }

    /// Hands over the packets that arrived since the last call, where they are recorded. They wait
    /// in a ring of 4 MiB, and what finds it full is not kept.
    pub fn arrivals(&mut self, mut each: impl FnMut(Arrival)) {
        let Some(ring) = &mut self.arrivals else {
            return;
        };
        loop {
            let batch = ring.batch(1024);
            for words in &batch.records {
                if let &[at_ns, first, second] = *words {
                    each(Arrival {
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

    /// What the kernel's own statistics say of each program since it was loaded. They only count
    /// while `kernel.bpf_stats_enabled` is 1, and include what the counting itself takes, some tens
    /// of ns a call.
    pub fn costs(&self) -> Vec<Cost> {
        let ours: Vec<u32> = self
            .object
            .progs_mut()
            .filter_map(|p| Program::id_from_fd(p.as_fd()).ok())
            .collect();
        libbpf_rs::query::ProgInfoIter::default()
            .filter(|info| ours.contains(&info.id))
            .map(|info| Cost {
                program: info.name.to_string_lossy().into_owned(),
                ns: info.run_time_ns,
                calls: info.run_cnt,
            })
            .collect()
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        for device in std::mem::take(&mut self.devices) {
            self.put_back(device);
        }
    }
}

/// What a program took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Its name in `bpf/stamp.bpf.c`.
    pub program: String,
    /// All calls together, nanoseconds.
    pub ns: u64,
    /// How often it was called.
    pub calls: u64,
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
        assert_eq!(plane.value_size() as usize, size_of::<Plane>());
    }
}
