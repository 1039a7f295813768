//! Timestamping at a device: two programs at its traffic-control hooks, and a limit of one segment
//! per super-packet.
//!
//! With tcx (Linux 6.6) each program is attached by a link, which ends with its last holder. On
//! older kernels the programs are filters of a clsact qdisc, which are removed when the device is
//! restored. If it has other filters, those and the qdisc stay.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{ErrorKind, ProgramMut, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder, libbpf_sys};
use nix::net::if_::if_nameindex;

use super::netlink;
use super::pins::DevicePin;
use crate::error::LoadError;
use crate::namespace;

/// `ARPHRD_ETHER`, `ARPHRD_LOOPBACK`: packets have an Ethernet header.
const ETHERNET_TYPES: [u16; 2] = [1, 772];
/// `ARPHRD_NONE`, `ARPHRD_RAWIP`, and tunnels over IPv4 and IPv6: packets start with the IP header.
const BARE_IP_TYPES: [u16; 4] = [0xfffe, 519, 768, 769];
/// Handle and priority of our filters without tcx, by which `detach` identifies them.
const FILTER_HANDLE: u32 = 0xccb;
const FILTER_PRIORITY: u32 = 0xccb;

/// A device with timestamp programs.
pub(crate) struct StampDevice {
    /// Index of its note.
    pub number: usize,
    pub state: DeviceState,
    links: Vec<OwnedFd>,
}

/// The device and its previous configuration.
pub(crate) struct DeviceState {
    pub index: u32,
    /// Network namespace of the device.
    pub namespace: File,
    /// Cookie of the namespace.
    pub cookie: u64,
    /// Previous limit of segments per super-packet.
    pub gso_max_segs: u32,
    /// Programs attached as filters rather than links: [`Hook::bit`] of each.
    pub filters: u32,
    /// The clsact qdisc of the filters was created by us.
    pub made_clsact: bool,
}

/// Returns the programs for a kind of device: for departures and for arrivals.
pub(crate) fn programs_for_kind(kind: u16) -> Option<[&'static str; 2]> {
    if ETHERNET_TYPES.contains(&kind) {
        Some(["depart_ether", "arrive_ether"])
    } else if BARE_IP_TYPES.contains(&kind) {
        Some(["depart_ip", "arrive_ip"])
    } else {
        None
    }
}

/// Finds the device of this name in the calling thread's namespace. Returns its configuration and
/// kind.
pub(crate) fn find(name: &str) -> Result<(DeviceState, u16), LoadError> {
    let failed = |what: &str| LoadError::io(format!("{what} the device {name}"));
    let all = if_nameindex()
        .map_err(io::Error::from)
        .map_err(failed("finding"))?;
    // `if_nametoindex` would accept the alias `lo:1` for `lo`; with this list a device has one
    // name.
    let index = all
        .iter()
        .find(|device| device.name().to_bytes() == name.as_bytes())
        .map(|device| device.index())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "this network namespace has no such device; `ip link` lists them",
            )
        })
        .map_err(failed("finding"))?;
    let device = netlink::query_device(index).map_err(failed("asking about"))?;
    let namespace = namespace::open_own().map_err(failed("opening the namespace of"))?;
    let place = DeviceState {
        index,
        cookie: namespace::cookie(&namespace).map_err(failed(
            "reading the cookie of the namespace \
            of",
        ))?,
        namespace,
        gso_max_segs: device.gso_max_segs,
        filters: 0,
        made_clsact: false,
    };
    Ok((place, device.kind))
}

impl StampDevice {
    /// Creates the value without programs, for [`attach`](StampDevice::attach).
    pub fn new(place: DeviceState, number: usize) -> StampDevice {
        StampDevice {
            number,
            state: place,
            links: Vec::new(),
        }
    }

    /// Attaches the programs in the calling thread's namespace and limits super-packets to one
    /// segment. The limit affects connections from now on, since a socket reads it when it selects
    /// its route. The note in `slot` is written before each change. If this fails, the caller must
    /// restore the device.
    pub fn attach(
        &mut self,
        name: &str,
        slot: &DevicePin<'_>,
        depart: &ProgramMut<'_>,
        arrive: &ProgramMut<'_>,
    ) -> Result<(), LoadError> {
        let failed = |what: &str| LoadError::io(format!("{what} {name}"));
        let index = self.state.index;
        slot.note.write(&self.state);
        let programs = [(Hook::Egress, depart), (Hook::Ingress, arrive)];
        for (hook, program) in programs {
            match attach_tcx(program, index, hook) {
                Ok(link) => {
                    slot.pin(&link, hook)?;
                    self.links.push(link);
                }
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) && self.links.is_empty() =>
                {
                    self.state.attach_filters(name, slot, programs)?;
                    break;
                }
                Err(error) => return Err(failed("attaching programs to")(error)),
            }
        }
        netlink::set_gso_max_segs(index, 1).map_err(failed("limiting super-packets of"))
    }

    /// Restores the device, except for the pins in its slot.
    pub fn restore_all(&mut self) -> io::Result<()> {
        self.links.clear();
        self.state.restore()
    }
}

impl DeviceState {
    /// Attaches the programs as filters.
    fn attach_filters(
        &mut self,
        name: &str,
        slot: &DevicePin<'_>,
        programs: [(Hook, &ProgramMut<'_>); 2],
    ) -> Result<(), LoadError> {
        // The note is written first and corrected afterwards. A kill in between could remove an
        // administrator's qdisc that has no filters.
        self.made_clsact = true;
        slot.note.write(self);
        let made = make_clsact(self.index);
        self.made_clsact = matches!(made, Ok(true));
        slot.note.write(self);
        made?;
        for (hook, program) in programs {
            self.filters |= hook.bit();
            slot.note.write(self);
            if let Err(source) = filter_hook(program.as_fd(), self.index, hook).attach() {
                self.filters &= !hook.bit();
                slot.note.write(self);
                return Err(match source.kind() {
                    ErrorKind::AlreadyExists => LoadError::Stamped(name.to_owned()),
                    _ => LoadError::Bpf {
                        what: "attaching a program to a clsact qdisc",
                        log: String::new(),
                        source,
                    },
                });
            }
        }
        Ok(())
    }

    /// Restores the super-packet limit and removes our filters. A device that no longer exists
    /// needs neither.
    pub fn restore(&self) -> io::Result<()> {
        let restored = namespace::run_inside(&self.namespace, || {
            // A limit changed in the meantime is left alone.
            if netlink::query_device(self.index)?.gso_max_segs == 1 {
                netlink::set_gso_max_segs(self.index, self.gso_max_segs)?;
            }
            self.remove_filters()
        });
        match restored {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            restored => restored,
        }
    }

    /// Removes our filters, and the qdisc if it was created for them and has no others. Something
    /// noted may never have been attached, which the kernel reports as ENOENT or EINVAL.
    fn remove_filters(&self) -> io::Result<()> {
        // The program does not matter, but the call needs an open descriptor.
        let nothing = File::open("/dev/null")?;
        for hook in [Hook::Egress, Hook::Ingress] {
            if self.filters & hook.bit() != 0
                && let Err(error) = filter_hook(nothing.as_fd(), self.index, hook).detach()
                && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput)
            {
                return Err(io::Error::other(error));
            }
        }
        if self.made_clsact && !netlink::has_filters(self.index)? {
            let mut hook = clsact_hook(self.index);
            // SAFETY: `hook` is a complete structure that states its size and outlives the call.
            let code = unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) };
            if ![0, -libc::ENOENT, -libc::EINVAL].contains(&code) {
                return Err(io::Error::from_raw_os_error(-code));
            }
        }
        Ok(())
    }
}

/// Attachment point at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Egress,
    Ingress,
}

impl Hook {
    /// Returns the bit in `filters` of a note.
    fn bit(self) -> u32 {
        match self {
            Hook::Egress => 1,
            Hook::Ingress => 2,
        }
    }
}

/// Attaches a program by a link. Arrivals are stamped by the first program of the device and
/// departures by the last one: both closest to the wire.
fn attach_tcx(program: &ProgramMut<'_>, index: u32, hook: Hook) -> io::Result<OwnedFd> {
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
    // SAFETY: the program's descriptor is open, and the options are a complete structure that
    // states its size and outlives the call, which keeps no pointer.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            index as i32,
            kind,
            &raw mut options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Creates a clsact qdisc at the device. Returns true if there was none.
fn make_clsact(index: u32) -> Result<bool, LoadError> {
    let mut hook = clsact_hook(index);
    // SAFETY: `hook` is a complete structure that states its size and outlives the call.
    match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) } {
        0 => Ok(true),
        code if code == -libc::EEXIST => Ok(false),
        code => Err(LoadError::io(
            "creating a clsact qdisc (used before Linux 6.6, which added tcx; it needs the modules \
            sch_ingress and cls_bpf)",
        )(io::Error::from_raw_os_error(-code))),
    }
}

fn clsact_hook(index: u32) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as libbpf_sys::size_t,
        ifindex: index as i32,
        attach_point: libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS,
        ..Default::default()
    }
}

/// Returns the hook with our filter's handle and priority. Attaching fails if a filter is already
/// there.
fn filter_hook(fd: std::os::fd::BorrowedFd<'_>, index: u32, hook: Hook) -> TcHook {
    let mut builder = TcHookBuilder::new(fd);
    builder
        .ifindex(index as i32)
        .handle(FILTER_HANDLE)
        .priority(FILTER_PRIORITY);
    builder.hook(match hook {
        Hook::Egress => TC_EGRESS,
        Hook::Ingress => TC_INGRESS,
    })
}

#[cfg(test)]
mod tests {
    use ccplane_host::Namespace;
    use libbpf_rs::ObjectBuilder;

    use super::super::plane::DeviceNote;
    use super::super::{StampPrograms, attached, detach};
    use super::*;
    use crate::testing::{lock_host, missing_requirement, skip};

    #[test]
    fn a_device_is_found_by_its_own_name() {
        for name in ["lo:1", "", "no-such-device"] {
            let error = find(name)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(error.contains("no such device"), "{name:?}: {error}");
        }
    }

    /// The path before Linux 6.6, whatever this kernel has.
    #[test]
    fn foreign_filters_are_kept_and_ours_are_not_replaced() {
        const TEST: &str = "foreign_filters_are_kept_and_ours_are_not_replaced";
        if let Some(reason) = missing_requirement() {
            return skip(TEST, &reason);
        }
        let _host = lock_host();
        let namespace =
            Namespace::create(&format!("ccplane-filters-{}", std::process::id())).expect("as root");
        namespace.run(filters).expect("inside");
    }

    fn filters() {
        let object = ObjectBuilder::default().open_memory(super::super::OBJECT);
        let object = object
            .expect("an object")
            .load()
            .expect("the verifier takes it");
        let program = |name: &str| {
            object
                .progs_mut()
                .find(|p| p.name() == name)
                .expect("it has")
        };
        let (depart, arrive) = (program("depart_ether"), program("arrive_ether"));
        let programs = [(Hook::Egress, &depart), (Hook::Ingress, &arrive)];
        let there = |hook| filter_hook(depart.as_fd(), 1, hook).query().ok();
        let attach = || {
            let note = DeviceNote::default();
            let mut place = find("lo").expect("every namespace has it").0;
            let slot = DevicePin {
                note: &note,
                number: 0,
                pins: None,
            };
            let attached = place.attach_filters("lo", &slot, programs);
            (place, note, attached)
        };

        let (first, note, attached) = attach();
        attached.unwrap_or_else(|error| panic!("{error}"));
        assert!(first.made_clsact && note.has_filters());
        let ours = [Hook::Egress, Hook::Ingress].map(there);
        assert!(ours.iter().all(Option::is_some), "{ours:?}");
        let (second, note, attached) = attach();
        assert!(matches!(attached, Err(LoadError::Stamped(_))));
        assert!(!second.made_clsact && !note.has_filters());
        second.restore().expect("nothing to restore");
        assert_eq!([Hook::Egress, Hook::Ingress].map(there), ours);

        let mut other = TcHookBuilder::new(arrive.as_fd());
        let mut other = other.ifindex(1).handle(7).priority(7).hook(TC_INGRESS);
        other.attach().expect("beside ours");
        // From the note, as in `detach`.
        note.write(&first);
        let noted = || note.to_device_state(namespace::open_own().expect("it exists"));
        noted().restore().expect("it exists");
        assert_eq!([Hook::Egress, Hook::Ingress].map(there), [None, None]);
        assert!(other.query().is_ok() && netlink::has_filters(1).expect("it exists"));
        other.detach().expect("it exists");
        noted().restore().expect("it exists");
        assert!(make_clsact(1).expect("as root"), "the qdisc remains");
        // Noted but not attached: with the qdisc, and without it.
        for _ in 0..2 {
            noted().restore().expect("nothing to restore");
        }
    }

    #[test]
    fn failed_restores_keep_their_record() {
        const TEST: &str = "failed_restores_keep_their_record";
        const NAME: &str = "reno";
        if let Some(reason) = missing_requirement() {
            return skip(TEST, &reason);
        }
        let _host = lock_host();
        let namespace =
            Namespace::create(&format!("ccplane-noted-{}", std::process::id())).expect("as root");
        let body = || {
            let limit = || {
                netlink::query_device(1)
                    .expect("the device is loopback")
                    .gso_max_segs
            };
            let before = limit();
            let mut stamps =
                StampPrograms::load_pinned(NAME).unwrap_or_else(|error| panic!("{error}"));
            stamps
                .attach_device("lo")
                .unwrap_or_else(|error| panic!("{error}"));
            // Simulates a refusal of the kernel: this namespace cannot be entered.
            stamps.devices[0].state.namespace = File::open("/dev/null").expect("it exists");
            drop(stamps);
            assert_eq!((attached(), limit()), (vec![NAME.to_owned()], 1));
            assert_eq!(detach(Some(NAME)).expect("restored from its note"), [NAME]);
            assert_eq!((attached(), limit()), (Vec::new(), before));
        };
        namespace.run(body).expect("inside");
    }
}
