//! Opens the BPF object, fits it to this kernel and to an algorithm's programs, loads and registers it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ccplane_datapath::{Capabilities, Limits, Program};
use ccplane_units::Duration;
use libbpf_rs::btf::types::{FuncProto, Ptr, Struct};
use libbpf_rs::{Btf, Link, MapCore, Object, ObjectBuilder, OpenObject, ReferencesType};

use crate::error::LoadError;
use crate::layout::{self, PADS, PROGRAMS, Plane, ProgramSlot, Slot, ops};
use crate::log::{Listener, verifier_reason};
use crate::memory::{Access, Shared};
use crate::ring::Ring;
use crate::{clock, codegen, pad};

/// Built by `bpf/build.sh`, which also checks that it is what the sources make.
static OBJECT: &[u8] = include_bytes!("../bpf/prebuilt/ccplane.bpf.o");

/// `BPF_F_LINK`: the registration hangs on a link, and goes with it.
const F_LINK: u32 = 1 << 13;

/// One algorithm, as the kernel gets it.
#[derive(Clone, Debug)]
pub struct AlgorithmSpec {
    /// The name by which the agent knows it.
    pub name: Arc<str>,
    /// The name by which sockets choose it, `ccp_<name>`; at most 15 bytes.
    pub kernel_name: String,
    /// Its programs: the first four run as generated code where they fit a pad, others in the interpreter.
    pub programs: Vec<Arc<Program>>,
    /// How long a report that is not urgent may wait.
    pub latency: Duration,
    /// What it needs; with [`Capabilities::ECN`] its connections use ECN.
    pub needs: Capabilities,
}

impl From<&ccplane_agent::Hosted> for AlgorithmSpec {
    fn from(hosted: &ccplane_agent::Hosted) -> AlgorithmSpec {
        AlgorithmSpec {
            name: hosted.name.clone(),
            kernel_name: hosted.kernel_name.clone(),
            programs: hosted.programs.iter().map(|program| program.code.clone()).collect(),
            latency: hosted.latency,
            needs: hosted.needs,
        }
    }
}

/// How to register.
#[derive(Clone, Debug)]
pub struct Options {
    /// The owner's limits, which hold for algorithm and fallback.
    pub limits: Limits,
    /// Flows that the table of an algorithm holds; one more goes to the fallback and is counted. 832 bytes each.
    pub flows: u32,
    /// Bytes of an algorithm's ring of reports, a power of two. At 100,000 reports/s of 100 bytes a reader that pauses
    /// for 100 ms needs one MiB; a report that finds no room keeps its values for the next.
    pub ring_bytes: u32,
    /// Keep the registration when this process ends, so that a new agent takes the live flows over ([`crate::Kernel::adopt`]).
    pub pin: bool,
    /// Let processes without CAP_NET_ADMIN choose the algorithm.
    pub unrestricted: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            flows: 4096,
            ring_bytes: 1 << 20,
            pin: false,
            unrestricted: true,
        }
    }
}

/// A registered object: what holds it in the kernel, and its mapped memory.
pub(crate) struct Loaded {
    /// Before the object: without real links (before Linux 6.4) it stands on the object's file descriptor.
    pub link: Link,
    pub object: Object,
    pub memory: Memory,
    /// Whether the link is a real one.
    pub links: bool,
}

/// The memory of one registration.
pub(crate) struct Memory {
    pub plane: Shared<Plane>,
    pub table: Shared<Slot>,
    pub programs: Shared<ProgramSlot>,
    pub ring: Ring,
}

/// What the running kernel has, from its type information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFeatures {
    /// `cong_control` takes (sk, ack, flag, rate_sample), since Linux 6.10; before, (sk, rate_sample).
    pub four_arguments: bool,
    /// Registrations hang on links, since Linux 6.4.
    pub links: bool,
}

impl KernelFeatures {
    /// Reads them.
    pub fn detect() -> Result<KernelFeatures, LoadError> {
        let btf = Btf::from_vmlinux().map_err(|_| LoadError::NoBtf)?;
        let old = |missing: &str| LoadError::OldKernel {
            release: nix::sys::utsname::uname()
                .map(|name| name.release().to_string_lossy().into_owned())
                .unwrap_or_default(),
            missing: missing.to_owned(),
        };
        let operations: Struct = btf
            .type_by_name("tcp_congestion_ops")
            .ok_or_else(|| old("it has no struct tcp_congestion_ops"))?;
        let arguments = operations
            .iter()
            .find(|member| member.name.is_some_and(|name| name == "cong_control"))
            .and_then(|member| btf.type_by_id::<Ptr>(member.ty))
            .and_then(|pointer| FuncProto::try_from(pointer.referenced_type()).ok())
            .map(|function| function.iter().count())
            .ok_or_else(|| old("its tcp_congestion_ops has no cong_control"))?;
        Ok(KernelFeatures {
            four_arguments: arguments >= 4,
            links: btf.type_by_name::<Struct>("bpf_struct_ops_link").is_some(),
        })
    }
}

/// True for a name that the kernel takes.
pub(crate) fn valid_name(name: &str) -> bool {
    (1..16).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
}

/// Loads and registers one algorithm.
pub(crate) fn load(spec: &AlgorithmSpec, options: &Options) -> Result<Loaded, LoadError> {
    let features = KernelFeatures::detect()?;
    let listener = Listener::new();
    let bpf = |what: &'static str| {
        let listener = &listener;
        move |source: libbpf_rs::Error| match verifier_reason(&listener.text()) {
            Some((program, reason)) => LoadError::Refused { program, reason },
            None if source.kind() == libbpf_rs::ErrorKind::PermissionDenied => LoadError::NotPermitted {
                missing: crate::privilege::missing(),
            },
            None => LoadError::Bpf {
                what,
                log: listener.text(),
                source,
            },
        }
    };
    let (bytes, compiled) = compile(&spec.programs)?;
    let mut open = ObjectBuilder::default()
        .open_memory(&bytes)
        .map_err(bpf("opening the BPF object"))?;
    fit(&mut open, spec, options, features).map_err(bpf("fitting the BPF object to this kernel"))?;
    let object = open.load().map_err(bpf("loading the BPF object"))?;
    let memory = Memory::of(&object, options)?;
    prepare(&memory, spec, options, &compiled);
    let name = operations(features);
    let mut object = object;
    let link = object
        .maps_mut()
        .find(|map| map.name() == name)
        .ok_or_else(|| LoadError::Mismatch(format!("it has no map {name}")))?
        .attach_struct_ops()
        .map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::AlreadyExists => LoadError::NameTaken(spec.kernel_name.clone()),
            _ => bpf("registering the congestion control")(error),
        })?;
    Ok(Loaded {
        link,
        object,
        memory,
        links: features.links,
    })
}

/// The object with the programs' code in its pads, and which of them got one.
fn compile(programs: &[Arc<Program>]) -> Result<(Vec<u8>, Vec<bool>), LoadError> {
    let mut bytes = OBJECT.to_vec();
    let mut compiled = vec![false; programs.len().min(PADS)];
    for (index, (program, compiled)) in programs.iter().zip(&mut compiled).enumerate() {
        match codegen::compile(program) {
            Ok(code) => {
                pad::patch(&mut bytes, index, &code)?;
                *compiled = true;
            }
            Err(error) => tracing::warn!(uid = program.uid(), %error, "this program runs in the interpreter"),
        }
    }
    Ok((bytes, compiled))
}

fn operations(features: KernelFeatures) -> &'static str {
    if features.four_arguments {
        "ccplane_ops"
    } else {
        "ccplane_ops_2"
    }
}

/// Sizes, name, flags; and of the two variants the one that this kernel takes.
fn fit(
    open: &mut OpenObject,
    spec: &AlgorithmSpec,
    options: &Options,
    features: KernelFeatures,
) -> Result<(), libbpf_rs::Error> {
    let unfit = || libbpf_rs::Error::from_raw_os_error(libc::EINVAL);
    for mut map in open.maps_mut() {
        match map.name().to_str().ok_or_else(unfit)? {
            "table" | "vacant" => map.set_max_entries(options.flows)?,
            "ring" => map.set_max_entries(options.ring_bytes)?,
            name @ ("ccplane_ops" | "ccplane_ops_2") => {
                let wanted = name == operations(features);
                map.set_autocreate(wanted)?;
                if !wanted {
                    continue;
                }
                if !features.links {
                    let flags = map.map_flags() & !F_LINK;
                    map.set_map_flags(flags)?;
                }
                let value = map
                    .initial_value_mut()
                    .filter(|v| v.len() == ops::SIZE)
                    .ok_or_else(unfit)?;
                let mut name = [0; 16];
                name[..spec.kernel_name.len()].copy_from_slice(spec.kernel_name.as_bytes());
                value[ops::NAME].copy_from_slice(&name);
                let mut flags = 0;
                if options.unrestricted {
                    flags |= ops::NON_RESTRICTED;
                }
                if Capabilities::ECN.missing_from(spec.needs).is_empty() {
                    flags |= ops::NEEDS_ECN;
                }
                value[ops::FLAGS].copy_from_slice(&flags.to_ne_bytes());
            }
            _ => {}
        }
    }
    for mut program in open.progs_mut() {
        let unused = if features.four_arguments {
            "cong_control_2"
        } else {
            "cong_control"
        };
        if program.name() == unused {
            program.set_autoload(false);
        }
    }
    Ok(())
}

impl Memory {
    fn of(object: &Object, options: &Options) -> Result<Memory, LoadError> {
        let fd = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map = map.ok_or_else(|| LoadError::Mismatch(format!("it has no map {name}")))?;
            map.as_fd()
                .try_clone_to_owned()
                .map_err(LoadError::io("duplicating a map's descriptor"))
        };
        Memory::map(
            fd(".data.plane")?,
            fd("table")?,
            fd("programs")?,
            fd("ring")?,
            [options.flows, options.ring_bytes],
            Access::Write,
        )
    }

    /// Maps the memory of a registration from its maps.
    pub fn map(
        plane: OwnedFd,
        table: OwnedFd,
        programs: OwnedFd,
        ring: OwnedFd,
        [flows, ring_bytes]: [u32; 2],
        access: Access,
    ) -> Result<Memory, LoadError> {
        let failed = |what: &str| LoadError::io(format!("mapping the {what}"));
        Ok(Memory {
            plane: Shared::map(plane.as_fd(), 1, access).map_err(failed("plane"))?,
            table: Shared::map(table.as_fd(), flows as usize, access).map_err(failed("flow table"))?,
            programs: Shared::map(programs.as_fd(), PROGRAMS, access).map_err(failed("programs"))?,
            ring: Ring::new(ring, ring_bytes as usize, access).map_err(failed("ring"))?,
        })
    }

    pub fn plane(&self) -> &Plane {
        &self.plane[0]
    }
}

/// Writes limits and programs before anything runs.
fn prepare(memory: &Memory, spec: &AlgorithmSpec, options: &Options, compiled: &[bool]) {
    use std::sync::atomic::Ordering::Relaxed;
    let plane = memory.plane();
    let now = clock::now();
    plane.start_us.store(now.as_micros(), Relaxed);
    plane.slots.store(options.flows, Relaxed);
    plane.heartbeat_ns.store(now.as_nanos(), Relaxed);
    plane.reader.store(layout::READER_IDLE, Relaxed);
    set_limits(plane, &options.limits);
    let native = spec.programs.iter().take(PADS).zip(compiled).enumerate();
    for (index, (program, _)) in native.filter(|(_, (_, compiled))| **compiled) {
        crate::programs::write(&memory.programs[index], program, &[]);
    }
}

/// Puts the owner's limits into force, for live flows too.
pub(crate) fn set_limits(plane: &Plane, limits: &Limits) {
    use std::sync::atomic::Ordering::Relaxed;
    plane
        .fallback_after_ns
        .store(limits.fallback_after.as_nanos().min(i64::MAX as u64), Relaxed);
    plane.min_cwnd.store(limits.min_cwnd, Relaxed);
    plane.max_cwnd.store(limits.max_cwnd, Relaxed);
    plane.max_rate.store(limits.max_rate, Relaxed);
}
