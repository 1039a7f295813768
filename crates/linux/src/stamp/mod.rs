//! Time stamps of both ends on the kernel's own TCP: a TCP option that the SYN offers, programs that stamp packets where
//! they leave and arrive at devices, and the samples that the congestion control reads on the same ACK.
//!
//! [`Stamps::load`] loads the programs; [`Options::stamps`](crate::Options::stamps) lets registrations read what they leave
//! beside sockets. Then they are attached to sockets ([`Stamps::attach_sockets`]) and to devices
//! ([`Stamps::attach_device`]), for as long as the value lives, or, pinned, until [`detach`]. A process that is killed leaves
//! nothing that works on: links go with it.

mod device;
mod netlink;
mod pins;
mod plane;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use libbpf_rs::{Link, Object, ObjectBuilder, Program, ProgramMut};

pub(crate) use self::pins::storage;
pub use self::pins::{ObservedStamps, detach, observe};
pub use self::plane::StampCounters;

use self::device::Device;
use self::plane::{NAMES, NAMESPACES, Plane};
use crate::error::LoadError;
use crate::load::{failure, map_fd};
use crate::log::Listener;
use crate::memory::{Access, Plain, Shared};
use crate::ring::Ring;

/// Built by `bpf/build.sh`.
static OBJECT: &[u8] = include_bytes!("../../bpf/prebuilt/stamp.bpf.o");

/// Bytes of the ring of arrivals: a second of full packets at 1 Gbit/s.
const RING: usize = 1 << 22;

// SAFETY: atomics, and private padding that nobody reads; any bits are valid.
unsafe impl Plain for Plane {}

/// Programs that stamp, and what they are attached to.
pub struct Stamps {
    devices: Vec<Device>,
    sockets: Option<Link>,
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
    /// Loads the programs, for sockets under these congestion controls. With `record` every arrival is kept for
    /// [`arrivals`](Stamps::arrivals).
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
        let plane: Shared<Plane> = Shared::map(map_fd(&object, ".data.stamps")?.as_fd(), 1, Access::Write)
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
            object,
            plane,
            arrivals,
        })
    }

    /// What a registration needs to read the samples.
    pub fn storage(&self) -> Result<Storage, LoadError> {
        Ok(Storage(Arc::new(map_fd(&self.object, "stamps")?)))
    }

    /// Only sockets of this namespace take part; said again, of that one too. Before [`attach_sockets`](Stamps::attach_sockets).
    pub fn confine(&mut self, namespace: &impl AsFd) -> Result<(), LoadError> {
        let cookie = cookie_of(namespace)?;
        let free = self.plane[0].netns.iter().find(|cookie| cookie.load(Relaxed) == 0);
        let free = free.ok_or_else(|| LoadError::Mismatch(format!("sockets of {NAMESPACES} namespaces at most")))?;
        free.store(cookie, Relaxed);
        Ok(())
    }

    /// Sockets that processes of this cgroup (version 2) and of those below it make from now on, listening ones too, take
    /// part; without one, of every process.
    pub fn attach_sockets(&mut self, cgroup: Option<&Path>) -> Result<(), crate::select::SelectError> {
        let path = crate::select::cgroup(cgroup)?;
        let directory = File::open(&path).map_err(LoadError::io(format!("opening {}", path.display())))?;
        let link = program(&self.object, "option")?
            .attach_cgroup(directory.as_raw_fd())
            .map_err(crate::select::bpf(format!("attaching to {}", path.display())))?;
        self.sockets = Some(link);
        Ok(())
    }

    /// What leaves and comes by this device of the calling thread's namespace is stamped, and goes in packets of one
    /// segment, so that each has its own stamp.
    pub fn attach_device(&mut self, name: &str) -> Result<(), LoadError> {
        let (place, kind) = device::find(name)?;
        let [depart, arrive] = device::programs(kind).ok_or_else(|| {
            let what =
                format!("device {name} is of kind {kind} (ARPHRD), and only Ethernet and bare IP can be stamped");
            LoadError::io(format!("attaching to {name}"))(std::io::Error::other(what))
        })?;
        let device = Device::attach(place, &program(&self.object, depart)?, &program(&self.object, arrive)?)?;
        self.devices.push(device);
        Ok(())
    }

    /// What happened so far.
    pub fn counters(&self) -> StampCounters {
        self.plane[0].counters()
    }

    /// Hands over the packets that arrived since the last call, where they are recorded. They wait in a ring of 4 MiB, and
    /// what finds it full is not kept.
    pub fn arrivals(&mut self, mut each: impl FnMut(Arrival)) {
        let Some(ring) = &mut self.arrivals else { return };
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

    /// What the kernel's own statistics say of each program since it was loaded. They only count while
    /// `kernel.bpf_stats_enabled` is 1, and include what the counting itself takes, some tens of ns a call.
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

/// The cookie by which BPF programs know a network namespace.
fn cookie_of(namespace: &impl AsFd) -> Result<u64, LoadError> {
    use nix::sched::{CloneFlags, setns};
    let failed = || LoadError::io("asking for the cookie of a network namespace");
    let fd = namespace.as_fd();
    // A thread of its own, because it moves there.
    let asked = std::thread::scope(|scope| {
        scope
            .spawn(move || -> std::io::Result<u64> {
                setns(fd, CloneFlags::CLONE_NEWNET)?;
                let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
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
            })
            .join()
    });
    asked
        .unwrap_or_else(|_| Err(std::io::Error::other("the thread that asked panicked")))
        .map_err(failed())
}

/// asm-generic/socket.h
const SO_NETNS_COOKIE: libc::c_int = 71;

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
        let open = ObjectBuilder::default().open_memory(OBJECT).expect("it is an object");
        let plane = open.maps().find(|map| map.name() == ".data.stamps").expect("its plane");
        assert_eq!(plane.value_size() as usize, size_of::<Plane>());
    }
}
