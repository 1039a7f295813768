//! Stamps at a device: two programs at its traffic-control hooks, and super-packets of one segment.
//!
//! Where the kernel has tcx (Linux 6.6) each program hangs on a link, which goes with its last holder; before, they are
//! filters of a clsact qdisc, which are removed when this is dropped, or by `detach`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{ProgramMut, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder, libbpf_sys};
use nix::sched::{CloneFlags, setns};

use super::netlink;
use crate::error::LoadError;

/// `ARPHRD_ETHER`, `ARPHRD_LOOPBACK`: an Ethernet header on each packet.
const ETHERNET: [u16; 2] = [1, 772];
/// `ARPHRD_NONE`, `ARPHRD_RAWIP`, and the tunnels over IPv4 and IPv6: packets begin with the IP header.
const BARE: [u16; 4] = [0xfffe, 519, 768, 769];
/// Of our filters, where there is no tcx: so that `detach` finds them, and nobody else's.
const HANDLE: u32 = 0xccb;
const PRIORITY: u32 = 0xccb;

/// One device with stamps; without them again when this is dropped.
pub(crate) struct Device {
    pub place: Place,
    pub hooks: Option<[OwnedFd; 2]>,
    keep: bool,
}

/// Which device, and what it was before.
pub(crate) struct Place {
    pub name: String,
    pub index: u32,
    /// Its namespace.
    pub namespace: File,
    /// Segments of a super-packet before.
    pub gso_max_segs: u32,
    /// Filters, not links, have the programs.
    pub filters: bool,
    /// And the clsact qdisc that they are at was made for them.
    pub made_clsact: bool,
}

/// The programs for a kind of device: what stamps departures, what stamps arrivals.
pub(crate) fn programs(kind: u16) -> Option<[&'static str; 2]> {
    if ETHERNET.contains(&kind) {
        Some(["depart_ether", "arrive_ether"])
    } else if BARE.contains(&kind) {
        Some(["depart_ip", "arrive_ip"])
    } else {
        None
    }
}

/// The device of this name in the calling thread's namespace, and its kind.
pub(crate) fn find(name: &str) -> Result<(Place, u16), LoadError> {
    let failed = |what: &str| LoadError::io(format!("{what} the device {name}"));
    let index = nix::net::if_::if_nametoindex(name)
        .map_err(|_| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "this network namespace has no such device; `ip link` lists them",
            )
        })
        .map_err(failed("finding"))?;
    let device = netlink::device(index).map_err(failed("asking about"))?;
    let namespace = File::open("/proc/thread-self/ns/net").map_err(failed("opening the namespace of"))?;
    let place = Place {
        name: name.to_owned(),
        index,
        namespace,
        gso_max_segs: device.gso_max_segs,
        filters: false,
        made_clsact: false,
    };
    Ok((place, device.kind))
}

impl Device {
    /// Attaches in the calling thread's namespace, and limits super-packets to one segment, for connections from now on: a
    /// socket asks its device when it chooses its route.
    pub fn attach(place: Place, depart: &ProgramMut<'_>, arrive: &ProgramMut<'_>) -> Result<Device, LoadError> {
        let failed = |what: String| move |error| LoadError::io(what)(error);
        let mut device = Device {
            place,
            hooks: None,
            keep: false,
        };
        let index = device.place.index;
        let links = tcx(depart, index, Hook::Egress).and_then(|d| Ok([d, tcx(arrive, index, Hook::Ingress)?]));
        match links {
            Ok(links) => device.hooks = Some(links),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                device.place.filters = true;
                device.place.made_clsact = make_clsact(index)?;
                filter(depart, index, Hook::Egress)?;
                filter(arrive, index, Hook::Ingress)?;
            }
            Err(error) => return Err(failed(format!("attaching programs to {}", device.place.name))(error)),
        }
        netlink::set_gso_max_segs(index, 1)
            .map_err(failed(format!("limiting super-packets of {}", device.place.name)))?;
        Ok(device)
    }

    /// It stays as it is when this is dropped.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.keep {
            self.hooks = None;
            self.place.restore();
        }
    }
}

impl Place {
    /// Super-packets as before, and no filters of ours. A device that is gone needs neither.
    pub fn restore(&self) {
        let restore = || {
            if setns(&self.namespace, CloneFlags::CLONE_NEWNET).is_err() {
                return;
            }
            // Who raised it meanwhile knows better.
            if netlink::device(self.index).is_ok_and(|device| device.gso_max_segs == 1) {
                let _ = netlink::set_gso_max_segs(self.index, self.gso_max_segs);
            }
            if self.filters {
                remove_filters(self.index, self.made_clsact);
            }
        };
        // A thread of its own, because it moves to the device's namespace.
        std::thread::scope(|scope| {
            let _ = scope.spawn(restore).join();
        });
    }
}

/// Where at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Egress,
    Ingress,
}

/// Hangs a program on a link. The one for arrivals is the first of its device, the one for departures the last: nearest to
/// the wire.
fn tcx(program: &ProgramMut<'_>, index: u32, hook: Hook) -> io::Result<OwnedFd> {
    let kind = match hook {
        Hook::Egress => libbpf_sys::BPF_TCX_EGRESS,
        Hook::Ingress => libbpf_sys::BPF_TCX_INGRESS,
    };
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: if hook == Hook::Ingress {
            libbpf_sys::BPF_F_BEFORE
        } else {
            0
        },
        ..Default::default()
    };
    // SAFETY: the program's descriptor is open, and the options are a whole structure that states its size and outlives
    // the call, which keeps no pointer.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_fd().as_raw_fd(), index as i32, kind, &raw mut options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A clsact qdisc at the device; true when there was none.
fn make_clsact(index: u32) -> Result<bool, LoadError> {
    let mut hook = clsact(index);
    // SAFETY: a whole structure that states its size and outlives the call.
    match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) } {
        0 => Ok(true),
        code if code == -libc::EEXIST => Ok(false),
        code => Err(LoadError::io(
            "making a clsact qdisc (no tcx before Linux 6.6; it needs the modules sch_ingress and cls_bpf)",
        )(io::Error::from_raw_os_error(-code))),
    }
}

fn clsact(index: u32) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as libbpf_sys::size_t,
        ifindex: index as i32,
        attach_point: libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS,
        ..Default::default()
    }
}

fn hook_at(fd: std::os::fd::BorrowedFd<'_>, index: u32, hook: Hook) -> TcHook {
    let mut builder = TcHookBuilder::new(fd);
    builder
        .ifindex(index as i32)
        .replace(true)
        .handle(HANDLE)
        .priority(PRIORITY);
    builder.hook(match hook {
        Hook::Egress => TC_EGRESS,
        Hook::Ingress => TC_INGRESS,
    })
}

fn filter(program: &ProgramMut<'_>, index: u32, hook: Hook) -> Result<(), LoadError> {
    let attached = hook_at(program.as_fd(), index, hook).attach();
    attached.map(drop).map_err(|source| LoadError::Bpf {
        what: "attaching a program to a clsact qdisc",
        log: String::new(),
        source,
    })
}

/// Removes our filters, and the qdisc where it was made for them.
fn remove_filters(index: u32, made_clsact: bool) {
    if made_clsact {
        let mut hook = clsact(index);
        // SAFETY: a whole structure that states its size and outlives the call.
        unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) };
        return;
    }
    // Which program it was does not matter, only that something is open.
    if let Ok(nothing) = File::open("/dev/null") {
        for hook in [Hook::Egress, Hook::Ingress] {
            let _ = hook_at(nothing.as_fd(), index, hook).detach();
        }
    }
}
