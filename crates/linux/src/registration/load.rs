//! Opens the BPF object, fits it to this kernel and to an algorithm's programs, loads and registers
//! it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ccplane_datapath::{Capabilities, Limits, Program};
use ccplane_units::Duration;
use libbpf_rs::btf::types::{FuncProto, Ptr, Struct};
use libbpf_rs::{
    AsRawLibbpf, Btf, Link, MapCore, MapMut, Object, ObjectBuilder, OpenObject, ReferencesType,
};

use crate::codegen::pad;
use crate::error::LoadError;
use crate::map::layout::{self, PADS, PROGRAMS, Plane, ProgramSlot, Slot, ops};
use crate::map::memory::{Access, Shared};
use crate::map::ring::Ring;
use crate::map::table::Table;
use crate::registration::log::{Listener, verifier_reason};
use crate::stamp::Storage;
use crate::{clock, codegen};

/// Built by `bpf/build.sh`, which also checks that it is what the sources make.
static OBJECT: &[u8] = include_bytes!("../../bpf/prebuilt/ccplane.bpf.o");

/// `BPF_F_LINK`: the registration hangs on a link, and goes with it.
const F_LINK: u32 = 1 << 13;

/// One algorithm, as the kernel gets it.
#[derive(Clone, Debug)]
pub struct AlgorithmSpec {
    /// The name by which the agent knows it.
    pub name: Arc<str>,
    /// The name by which sockets choose it, `ccp_<name>`; at most 15 bytes.
    pub kernel_name: String,
    /// Its programs: the first four run as generated code where they fit a pad, others in the
    /// interpreter.
    pub programs: Vec<Arc<Program>>,
    /// How long a report that is not urgent may wait.
    pub latency: Duration,
    /// What it needs; with [`Capabilities::ECN`] its connections use ECN.
    pub needs: Capabilities,
    /// What it needs, and what it uses where it is there; with [`Capabilities::TIMERS`] its
    /// programs run at a time without an ACK too, and with [`Capabilities::KEEPS_WINDOW`] the
    /// window stays as it is over idle times.
    pub wants: Capabilities,
    /// The program that decides everything, where one does: flows run it without an agent.
    pub alone: Option<Alone>,
}

/// A program that flows run by themselves.
#[derive(Clone, Debug)]
pub struct Alone {
    /// It.
    pub program: Arc<Program>,
    /// Its variable that is 1 on a flow that lived before.
    pub begun: Option<u8>,
    /// It sets pacing rates, so that the rate of what steered before need not be lifted.
    pub paces: bool,
}

impl AlgorithmSpec {
    /// True when its flows have timers.
    pub(crate) fn timed(&self) -> bool {
        self.wants.contains(Capabilities::TIMERS)
    }

    /// True when its flows keep their window over idle times.
    fn keeps_window(&self) -> bool {
        self.wants.contains(Capabilities::KEEPS_WINDOW)
    }
}

impl From<&ccplane_agent::Hosted> for AlgorithmSpec {
    fn from(hosted: &ccplane_agent::Hosted) -> AlgorithmSpec {
        AlgorithmSpec {
            name: hosted.name.clone(),
            kernel_name: hosted.kernel_name.clone(),
            programs: hosted
                .programs
                .iter()
                .map(|program| program.code.clone())
                .collect(),
            latency: hosted.latency,
            needs: hosted.needs,
            wants: hosted.wants,
            alone: hosted.alone().map(|(program, begun)| Alone {
                program: program.code.clone(),
                begun,
                paces: hosted.paces(),
            }),
        }
    }
}

/// How to register.
#[derive(Clone, Debug)]
pub struct Options {
    /// The owner's limits, which hold for algorithm and fallback.
    pub limits: Limits,
    /// Flows that the table of an algorithm holds, a slot each. One more runs the fallback, is
    /// counted, and looks for a free slot again every second. Network namespaces other than the one
    /// of the thread that loads or adopts hold at most a quarter each, and three quarters together.
    pub flows: u32,
    /// Bytes of an algorithm's ring of reports, a power of two. At 100,000 reports/s of 100 bytes a
    /// reader that pauses for 100 ms needs one MiB; a report that finds no room keeps its values
    /// for the next.
    pub ring_bytes: u32,
    /// Keep the registration when this process ends, so that a new agent takes the live flows over
    /// ([`crate::Kernel::adopt`]).
    pub pin: bool,
    /// Let processes without CAP_NET_ADMIN choose the algorithm.
    pub unrestricted: bool,
    /// Read the time stamps that [`Stamps`](crate::stamp::Stamps) leaves beside sockets; without it
    /// nothing is spent on them.
    pub stamps: Option<Storage>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            flows: 4096,
            ring_bytes: 1 << 20,
            pin: false,
            unrestricted: true,
            stamps: None,
        }
    }
}

/// Bytes that a table of [`most_flows`] may take. More would be memory that few hosts miss but all
/// pay for.
const TABLE_BYTES: usize = 64 << 20;

/// The largest power of two of flows, up to 65,536, whose table stays within 64 MB. Timers take as
/// much again.
pub const fn most_flows() -> u32 {
    let mut flows = 1 << 16;
    while flows as usize * size_of::<Slot>() > TABLE_BYTES {
        flows /= 2;
    }
    flows
}

/// A registered object: what holds it in the kernel, and its mapped memory.
pub(crate) struct Loaded {
    /// Before the object: without real links (before Linux 6.4) it stands on the object's file
    /// descriptor.
    pub link: Link,
    pub object: Object,
    pub memory: Memory,
    pub pads: Pads,
    pub features: KernelFeatures,
}

/// Which program's code each pad of an object has.
pub(crate) type Pads = [Option<Arc<Program>>; PADS];

/// The object's mask of pads with code.
const FILLED: &str = ".rodata.pads";
/// Whether it reads time stamps, and the map where they are.
const STAMPED: &str = ".rodata.stamped";
const STAMPS: &str = "stamps";
/// Whether flows have timers, and the map where those are.
const TIMED: &str = ".rodata.timed";
/// Flows keep their window over idle times.
const KEEPS: &str = ".rodata.keeps";
const TIMERS: &str = "timers";
/// The maps that objects of one registration have in common.
const SHARED: [&str; 7] = [
    ".data.plane",
    "table",
    "vacant",
    "programs",
    "ring",
    "states",
    TIMERS,
];

/// The memory of one registration.
pub(crate) struct Memory {
    pub table: Table,
    pub programs: Shared<ProgramSlot>,
    pub ring: Ring,
}

/// What the running kernel has, from its type information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFeatures {
    /// `cong_control` takes (sk, ack, flag, rate_sample), since Linux 6.10; before, (sk,
    /// rate_sample).
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
        if btf
            .type_by_name::<Struct>("bpf_struct_ops_tcp_congestion_ops")
            .is_none()
        {
            return Err(old(
                "it has no struct_ops for TCP (CONFIG_BPF_SYSCALL, CONFIG_BPF_JIT)",
            ));
        }
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
    let mut pads = [const { None }; PADS];
    for (pad, program) in pads.iter_mut().zip(&spec.programs) {
        *pad = codegen::compile(program).is_ok().then(|| program.clone());
    }
    let mut object = build(spec, &pads, options, features, &[])?;
    let memory = Memory::of(&object, options)?;
    prepare(&memory, &pads, spec, options);
    set_home(memory.plane())?;
    let link = register(&mut object, spec, features)?;
    Ok(Loaded {
        link,
        object,
        memory,
        pads,
        features,
    })
}

/// The object with the programs' code in its pads, loaded; over maps that are there already, or
/// over new ones.
pub(crate) fn build(
    spec: &AlgorithmSpec,
    pads: &Pads,
    options: &Options,
    features: KernelFeatures,
    shared: &[(&str, OwnedFd)],
) -> Result<Object, LoadError> {
    let mut bytes = OBJECT.to_vec();
    let mut filled = 0u32;
    for (index, program) in pads.iter().enumerate() {
        // Who chose the pads knows that it fits.
        if let Some(code) = program
            .as_deref()
            .and_then(|program| codegen::compile(program).ok())
        {
            pad::patch(&mut bytes, index, &code)?;
            filled |= 1 << index;
        }
    }
    let listener = Listener::new();
    let mut open = ObjectBuilder::default()
        .open_memory(&bytes)
        .map_err(failure("opening the BPF object", &listener))?;
    fit(&mut open, spec, filled, options, features, shared)
        .map_err(failure("fitting the BPF object to this kernel", &listener))?;
    open.load()
        .map_err(failure("loading the BPF object", &listener))
}

/// Makes the kernel offer it to sockets.
pub(crate) fn register(
    object: &mut Object,
    spec: &AlgorithmSpec,
    features: KernelFeatures,
) -> Result<Link, LoadError> {
    let listener = Listener::new();
    operations_map(object, features)?
        .attach_struct_ops()
        .map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::AlreadyExists => LoadError::NameTaken(spec.kernel_name.clone()),
            _ => failure("registering the congestion control", &listener)(error),
        })
}

/// Puts another object behind a registration: new flows run it, live ones go on in the one they
/// began with.
pub(crate) fn replace(
    link: &mut Link,
    object: &mut Object,
    features: KernelFeatures,
) -> Result<(), LoadError> {
    let listener = Listener::new();
    let map = operations_map(object, features)?;
    // SAFETY: both are live objects of libbpf; the link was made by `attach_struct_ops`, the kind
    // that this takes.
    let result = unsafe {
        libbpf_rs::libbpf_sys::bpf_link__update_map(
            link.as_libbpf_object().as_ptr(),
            map.as_libbpf_object().as_ptr(),
        )
    };
    match result {
        0 => Ok(()),
        code => Err(failure("updating the registration", &listener)(
            libbpf_rs::Error::from_raw_os_error(-code),
        )),
    }
}

fn operations_map(object: &mut Object, features: KernelFeatures) -> Result<MapMut<'_>, LoadError> {
    let name = operations(features);
    let map = object.maps_mut().find(|map| map.name() == name);
    map.ok_or_else(|| LoadError::Mismatch(format!("it has no map {name}")))
}

/// An error of the loader, with the verifier's reason where it was the verifier.
pub(crate) fn failure(
    what: &'static str,
    listener: &Listener,
) -> impl Fn(libbpf_rs::Error) -> LoadError {
    move |source| match verifier_reason(&listener.text()) {
        Some((program, reason)) => LoadError::Refused { program, reason },
        None if source.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
            LoadError::NotPermitted {
                missing: crate::privilege::missing(),
            }
        }
        None => LoadError::Bpf {
            what,
            log: listener.text(),
            source,
        },
    }
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
    filled: u32,
    options: &Options,
    features: KernelFeatures,
    shared: &[(&str, OwnedFd)],
) -> Result<(), libbpf_rs::Error> {
    let unfit = || libbpf_rs::Error::from_raw_os_error(libc::EINVAL);
    for mut map in open.maps_mut() {
        let name = map.name().to_str().ok_or_else(unfit)?.to_owned();
        match name.as_str() {
            "table" | "vacant" => map.set_max_entries(options.flows)?,
            "ring" => map.set_max_entries(options.ring_bytes)?,
            FILLED => map.set_initial_value(&filled.to_ne_bytes())?,
            STAMPED => map.set_initial_value(&u32::from(options.stamps.is_some()).to_ne_bytes())?,
            TIMED => map.set_initial_value(&u32::from(spec.timed()).to_ne_bytes())?,
            KEEPS => map.set_initial_value(&u32::from(spec.keeps_window()).to_ne_bytes())?,
            TIMERS if spec.timed() => map.set_max_entries(options.flows)?,
            STAMPS => {
                if let Some(storage) = &options.stamps {
                    map.reuse_fd(storage.as_fd())?;
                }
            }
            "ccplane_ops" | "ccplane_ops_2" => {
                let wanted = name == operations(features);
                map.set_autocreate(wanted)?;
                if wanted {
                    let flags = map.map_flags() & if features.links { !0 } else { !F_LINK };
                    map.set_map_flags(flags)?;
                    let value = map.initial_value_mut().filter(|v| v.len() == ops::SIZE);
                    name_operations(value.ok_or_else(unfit)?, spec, options);
                }
            }
            _ => {}
        }
        if let Some((_, fd)) = shared.iter().find(|(shared, _)| *shared == name) {
            map.reuse_fd(fd.as_fd())?;
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

fn name_operations(value: &mut [u8], spec: &AlgorithmSpec, options: &Options) {
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
    if options.stamps.is_none() {
        // No program where there is nothing to answer.
        value[ops::IN_ACK_EVENT].fill(0);
    }
}

/// Second descriptors of what every object of a registration works on.
pub(crate) fn shared_maps(object: &Object) -> Result<Vec<(&'static str, OwnedFd)>, LoadError> {
    SHARED
        .iter()
        .map(|&name| Ok((name, map_fd(object, name)?)))
        .collect()
}

pub(crate) fn map_fd(object: &Object, name: &str) -> Result<OwnedFd, LoadError> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| LoadError::Mismatch(format!("it has no map {name}")))?;
    map.as_fd()
        .try_clone_to_owned()
        .map_err(LoadError::io("duplicating a map's descriptor"))
}

impl Memory {
    fn of(object: &Object, options: &Options) -> Result<Memory, LoadError> {
        Memory::map(
            map_fd(object, ".data.plane")?,
            map_fd(object, "table")?,
            map_fd(object, "programs")?,
            map_fd(object, "ring")?,
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
        let plane = Shared::map(plane.as_fd(), 1, access).map_err(failed("plane"))?;
        let slots =
            Shared::map(table.as_fd(), flows as usize, access).map_err(failed("flow table"))?;
        Ok(Memory {
            table: Table::new(plane, slots),
            programs: Shared::map(programs.as_fd(), PROGRAMS, access)
                .map_err(failed("programs"))?,
            ring: Ring::new(ring, ring_bytes as usize, access).map_err(failed("ring"))?,
        })
    }

    pub fn plane(&self) -> &Plane {
        self.table.plane()
    }
}

/// Writes limits and programs before anything runs.
fn prepare(memory: &Memory, pads: &Pads, spec: &AlgorithmSpec, options: &Options) {
    use std::sync::atomic::Ordering::Relaxed;
    let plane = memory.plane();
    let now = clock::now();
    plane.start_us.store(now.as_micros(), Relaxed);
    plane.slots.store(options.flows, Relaxed);
    plane.timed.store(spec.timed().into(), Relaxed);
    plane.heartbeat_ns.store(now.as_nanos(), Relaxed);
    plane.reader.store(layout::READER_IDLE, Relaxed);
    set_limits(plane, &options.limits);
    for (slot, program) in memory.programs.iter().zip(pads) {
        if let Some(program) = program {
            crate::registration::programs::write(slot, program, &[]);
        }
    }
}

/// Leaves the part of the table that other network namespaces cannot take to the one of this
/// thread.
pub(crate) fn set_home(plane: &Plane) -> Result<(), LoadError> {
    let cookie = crate::namespace::own_cookie();
    let cookie = cookie.map_err(LoadError::io(
        "reading the cookie of this network namespace",
    ))?;
    plane
        .home
        .store(cookie, std::sync::atomic::Ordering::Relaxed);
    Ok(())
}

/// Puts the owner's limits into force, for live flows too.
pub(crate) fn set_limits(plane: &Plane, limits: &Limits) {
    use std::sync::atomic::Ordering::Relaxed;
    plane.fallback_after_ns.store(
        limits.fallback_after.as_nanos().min(i64::MAX as u64),
        Relaxed,
    );
    set_window_and_rate(plane, limits);
}

/// Those that may change while an agent runs.
pub(crate) fn set_window_and_rate(plane: &Plane, limits: &Limits) {
    use std::sync::atomic::Ordering::Relaxed;
    plane.min_cwnd.store(limits.min_cwnd, Relaxed);
    plane.max_cwnd.store(limits.max_cwnd, Relaxed);
    plane.max_rate.store(limits.max_rate, Relaxed);
}
