//! Opens the BPF object, adapts it to this kernel and to an algorithm's programs, loads it and
//! registers it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ccplane_datapath::{Capabilities, OperatorLimits, Program};
use ccplane_units::Duration;
use libbpf_rs::btf::types::{FuncProto, Ptr, Struct};
use libbpf_rs::{
    AsRawLibbpf, Btf, Link, MapCore, MapMut, Object, ObjectBuilder, OpenObject, ReferencesType,
};

use crate::codegen::pad;
use crate::error::LoadError;
use crate::map::layout::{self, FlowSlot, PAD_COUNT, PROGRAMS_MAX, PlaneLayout, ProgramSlot, ops};
use crate::map::memory::{Access, SharedMemory};
use crate::map::ring::RingBuffer;
use crate::map::table::FlowTable;
use crate::registration::log::{LibbpfLog, verifier_reason};
use crate::stamp::Storage;
use crate::{clock, codegen};

/// Built by `bpf/build.sh`, whose `--check` verifies that it matches the sources.
static OBJECT: &[u8] = include_bytes!("../../bpf/prebuilt/ccplane.bpf.o");

/// `BPF_F_LINK`: the registration belongs to a link and ends with it.
const BPF_F_LINK: u32 = 1 << 13;

/// One algorithm, as registered with the kernel.
#[derive(Clone, Debug)]
pub struct AlgorithmSpec {
    /// Name of the algorithm in the agent.
    pub name: Arc<str>,
    /// Name by which sockets select it, `ccp_<name>`; at most 15 bytes.
    pub kernel_name: String,
    /// Programs: the first four run as generated code if they fit a pad, the others in the
    /// interpreter.
    pub programs: Vec<Arc<Program>>,
    /// Longest delay of a report that is not urgent.
    pub latency: Duration,
    /// Required capabilities; [`Capabilities::ECN`] enables ECN on its connections.
    pub needs: Capabilities,
    /// Required and optional capabilities. With [`Capabilities::TIMERS`] its programs also run by
    /// timer, without an ACK; with [`Capabilities::KEEPS_WINDOW`] the window is kept over idle
    /// periods.
    pub wants: Capabilities,
    /// The standalone program, if the algorithm needs no agent.
    pub standalone: Option<StandaloneSpec>,
}

/// A program that flows run without an agent.
#[derive(Clone, Debug)]
pub struct StandaloneSpec {
    /// The program.
    pub program: Arc<Program>,
    /// Index of the variable that is set to 1 on a flow that ran before.
    pub resumed_var: Option<u8>,
    /// The program sets pacing rates; otherwise an earlier program's rate is cleared.
    pub sets_rate: bool,
}

impl AlgorithmSpec {
    /// Returns true if its flows have timers.
    pub(crate) fn has_timers(&self) -> bool {
        self.wants.contains(Capabilities::TIMERS)
    }

    /// Returns true if its flows keep their window over idle periods.
    fn keeps_window(&self) -> bool {
        self.wants.contains(Capabilities::KEEPS_WINDOW)
    }
}

impl From<&ccplane_agent::HostedAlgorithm> for AlgorithmSpec {
    fn from(hosted: &ccplane_agent::HostedAlgorithm) -> AlgorithmSpec {
        AlgorithmSpec {
            name: hosted.name.clone(),
            kernel_name: hosted.kernel_name.clone(),
            programs: hosted
                .programs
                .iter()
                .map(|program| program.code.clone())
                .collect(),
            latency: hosted.latency,
            needs: hosted.required,
            wants: hosted.requested,
            standalone: hosted
                .standalone_program()
                .map(|(program, begun)| StandaloneSpec {
                    program: program.code.clone(),
                    resumed_var: begun,
                    sets_rate: hosted.sets_rate(),
                }),
        }
    }
}

/// Options of a registration.
#[derive(Clone, Debug)]
pub struct RegistrationOptions {
    /// Limits of the operator, for algorithm and fallback alike.
    pub limits: OperatorLimits,
    /// Flows that the table of an algorithm holds, one slot each. A flow without a slot runs the
    /// fallback, is counted, and retries every second. Network namespaces other than the one of the
    /// loading or adopting thread hold at most a quarter each, and three quarters together.
    pub flows: u32,
    /// Size of an algorithm's report ring in bytes, a power of two. At 100,000 reports/s of 100
    /// bytes, a reader that pauses for 100 ms needs 1 MiB. If the ring is full, a report's values
    /// are carried over to the next one.
    pub ring_bytes: u32,
    /// Keeps the registration when this process ends, so that a new agent can take over the live
    /// flows ([`crate::Kernel::adopt`]).
    pub pin: bool,
    /// Lets processes without CAP_NET_ADMIN select the algorithm.
    pub unrestricted: bool,
    /// Reads the timestamps that [`Stamps`](crate::stamp::StampPrograms) leaves in socket storage.
    /// `None` costs nothing.
    pub stamps: Option<Storage>,
}

impl Default for RegistrationOptions {
    fn default() -> RegistrationOptions {
        RegistrationOptions {
            limits: OperatorLimits::default(),
            flows: 4096,
            ring_bytes: 1 << 20,
            pin: false,
            unrestricted: true,
            stamps: None,
        }
    }
}

/// Upper limit of a table of [`flows_max`], bytes: a larger one would cost every host memory that
/// few need.
const TABLE_BYTES_MAX: usize = 64 << 20;

/// Returns the largest power of two of flows, up to 65,536, whose table stays within 64 MiB. Timers
/// take the same amount again.
pub const fn flows_max() -> u32 {
    let mut flows = 1 << 16;
    while flows as usize * size_of::<FlowSlot>() > TABLE_BYTES_MAX {
        flows /= 2;
    }
    flows
}

/// A registered object: its handle in the kernel, and its mapped memory.
pub(crate) struct LoadedObject {
    /// Dropped before the object: before Linux 6.4 (no links) it uses the object's descriptor.
    pub link: Link,
    pub object: Object,
    pub memory: RegistrationMemory,
    pub pads: Pads,
    pub features: KernelFeatures,
}

/// The program in each pad of an object.
pub(crate) type Pads = [Option<Arc<Program>>; PAD_COUNT];

/// Bit mask of filled pads.
const FILLED_PADS_MAP: &str = ".rodata.pads";
/// Flag that enables timestamps, and the map that holds them.
const STAMPED_MAP: &str = ".rodata.stamped";
const STAMPS_MAP: &str = "stamps";
/// Flag that enables timers.
const TIMED_MAP: &str = ".rodata.timed";
/// Flag that keeps the window over idle periods.
const KEEPS_WINDOW_MAP: &str = ".rodata.keeps";
const TIMERS_MAP: &str = "timers";
/// Maps shared by all objects of one registration.
const SHARED_MAPS: [&str; 7] = [
    ".data.plane",
    "table",
    "vacant",
    "programs",
    "ring",
    "states",
    TIMERS_MAP,
];

/// Mapped memory of one registration.
pub(crate) struct RegistrationMemory {
    pub table: FlowTable,
    pub programs: SharedMemory<ProgramSlot>,
    pub ring: RingBuffer,
}

/// Features of the running kernel, from its type information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFeatures {
    /// `cong_control` takes (sk, ack, flag, rate_sample) since Linux 6.10; before, (sk,
    /// rate_sample).
    pub four_arguments: bool,
    /// Registrations are links, since Linux 6.4.
    pub links: bool,
}

impl KernelFeatures {
    /// Detects the features of the running kernel.
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

/// Returns true for a name that the kernel accepts.
pub(crate) fn valid_name(name: &str) -> bool {
    (1..16).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
}

/// Loads and registers one algorithm.
pub(crate) fn load(
    spec: &AlgorithmSpec,
    options: &RegistrationOptions,
) -> Result<LoadedObject, LoadError> {
    let features = KernelFeatures::detect()?;
    let mut pads = [const { None }; PAD_COUNT];
    for (pad, program) in pads.iter_mut().zip(&spec.programs) {
        *pad = codegen::compile(program).is_ok().then(|| program.clone());
    }
    let mut object = build(spec, &pads, options, features, &[])?;
    let memory = RegistrationMemory::from_object(&object, options)?;
    prepare(&memory, &pads, spec, options);
    set_home_namespace(memory.plane())?;
    let link = register(&mut object, spec, features)?;
    Ok(LoadedObject {
        link,
        object,
        memory,
        pads,
        features,
    })
}

/// Builds and loads an object with the programs' code in its pads, over the maps in `shared` or new
/// ones.
pub(crate) fn build(
    spec: &AlgorithmSpec,
    pads: &Pads,
    options: &RegistrationOptions,
    features: KernelFeatures,
    shared: &[(&str, OwnedFd)],
) -> Result<Object, LoadError> {
    let mut bytes = OBJECT.to_vec();
    let mut filled = 0u32;
    for (index, program) in pads.iter().enumerate() {
        // The caller has checked that the programs fit.
        if let Some(code) = program
            .as_deref()
            .and_then(|program| codegen::compile(program).ok())
        {
            pad::patch(&mut bytes, index, &code)?;
            filled |= 1 << index;
        }
    }
    let listener = LibbpfLog::new();
    let mut open = ObjectBuilder::default()
        .open_memory(&bytes)
        .map_err(failure("opening the BPF object", &listener))?;
    configure(&mut open, spec, filled, options, features, shared)
        .map_err(failure("fitting the BPF object to this kernel", &listener))?;
    open.load()
        .map_err(failure("loading the BPF object", &listener))
}

/// Registers the congestion control, so that sockets can select it.
pub(crate) fn register(
    object: &mut Object,
    spec: &AlgorithmSpec,
    features: KernelFeatures,
) -> Result<Link, LoadError> {
    let listener = LibbpfLog::new();
    operations_map(object, features)?
        .attach_struct_ops()
        .map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::AlreadyExists => LoadError::NameTaken(spec.kernel_name.clone()),
            _ => failure("registering the congestion control", &listener)(error),
        })
}

/// Replaces the object of a registration: new flows run it, live ones continue in the object they
/// started with.
pub(crate) fn replace(
    link: &mut Link,
    object: &mut Object,
    features: KernelFeatures,
) -> Result<(), LoadError> {
    let listener = LibbpfLog::new();
    let map = operations_map(object, features)?;
    // SAFETY: both pointers are live libbpf objects, borrowed for the call; the link was made by
    // `attach_struct_ops`, as `bpf_link__update_map` requires.
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

/// Converts an error of the loader, with the verifier's reason if it rejected a program.
pub(crate) fn failure(
    what: &'static str,
    listener: &LibbpfLog,
) -> impl Fn(libbpf_rs::Error) -> LoadError {
    move |source| match verifier_reason(&listener.text()) {
        Some((program, reason)) => LoadError::Refused { program, reason },
        None if source.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
            LoadError::NotPermitted {
                missing: crate::privilege::missing_capabilities(),
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

/// Sets sizes, name and flags, and selects the variant that this kernel accepts.
fn configure(
    open: &mut OpenObject,
    spec: &AlgorithmSpec,
    filled: u32,
    options: &RegistrationOptions,
    features: KernelFeatures,
    shared: &[(&str, OwnedFd)],
) -> Result<(), libbpf_rs::Error> {
    let unfit = || libbpf_rs::Error::from_raw_os_error(libc::EINVAL);
    for mut map in open.maps_mut() {
        let name = map.name().to_str().ok_or_else(unfit)?.to_owned();
        match name.as_str() {
            "table" | "vacant" => map.set_max_entries(options.flows)?,
            "ring" => map.set_max_entries(options.ring_bytes)?,
            FILLED_PADS_MAP => map.set_initial_value(&filled.to_ne_bytes())?,
            STAMPED_MAP => {
                map.set_initial_value(&u32::from(options.stamps.is_some()).to_ne_bytes())?
            }
            TIMED_MAP => map.set_initial_value(&u32::from(spec.has_timers()).to_ne_bytes())?,
            KEEPS_WINDOW_MAP => {
                map.set_initial_value(&u32::from(spec.keeps_window()).to_ne_bytes())?
            }
            TIMERS_MAP if spec.has_timers() => map.set_max_entries(options.flows)?,
            STAMPS_MAP => {
                if let Some(storage) = &options.stamps {
                    map.reuse_fd(storage.as_fd())?;
                }
            }
            "ccplane_ops" | "ccplane_ops_2" => {
                let wanted = name == operations(features);
                map.set_autocreate(wanted)?;
                if wanted {
                    let flags = map.map_flags() & if features.links { !0 } else { !BPF_F_LINK };
                    map.set_map_flags(flags)?;
                    let value = map
                        .initial_value_mut()
                        .filter(|v| v.len() == ops::OPS_BYTES);
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

fn name_operations(value: &mut [u8], spec: &AlgorithmSpec, options: &RegistrationOptions) {
    let mut name = [0; 16];
    name[..spec.kernel_name.len()].copy_from_slice(spec.kernel_name.as_bytes());
    value[ops::NAME_RANGE].copy_from_slice(&name);
    let mut flags = 0;
    if options.unrestricted {
        flags |= ops::TCP_CONG_NON_RESTRICTED;
    }
    if Capabilities::ECN.missing_from(spec.needs).is_empty() {
        flags |= ops::TCP_CONG_NEEDS_ECN;
    }
    value[ops::FLAGS_RANGE].copy_from_slice(&flags.to_ne_bytes());
    if options.stamps.is_none() {
        // Without timestamps no ACK is forced.
        value[ops::IN_ACK_EVENT_RANGE].fill(0);
    }
}

/// Duplicates the descriptors of the maps shared by a registration's objects.
pub(crate) fn shared_maps(object: &Object) -> Result<Vec<(&'static str, OwnedFd)>, LoadError> {
    SHARED_MAPS
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

impl RegistrationMemory {
    fn from_object(
        object: &Object,
        options: &RegistrationOptions,
    ) -> Result<RegistrationMemory, LoadError> {
        RegistrationMemory::map(
            map_fd(object, ".data.plane")?,
            map_fd(object, "table")?,
            map_fd(object, "programs")?,
            map_fd(object, "ring")?,
            [options.flows, options.ring_bytes],
            Access::Write,
        )
    }

    /// Maps the memory of a registration.
    pub fn map(
        plane: OwnedFd,
        table: OwnedFd,
        programs: OwnedFd,
        ring: OwnedFd,
        [flows, ring_bytes]: [u32; 2],
        access: Access,
    ) -> Result<RegistrationMemory, LoadError> {
        let failed = |what: &str| LoadError::io(format!("mapping the {what}"));
        let plane = SharedMemory::map(plane.as_fd(), 1, access).map_err(failed("plane"))?;
        let slots = SharedMemory::map(table.as_fd(), flows as usize, access)
            .map_err(failed("flow table"))?;
        Ok(RegistrationMemory {
            table: FlowTable::new(plane, slots),
            programs: SharedMemory::map(programs.as_fd(), PROGRAMS_MAX, access)
                .map_err(failed("programs"))?,
            ring: RingBuffer::new(ring, ring_bytes as usize, access).map_err(failed("ring"))?,
        })
    }

    pub fn plane(&self) -> &PlaneLayout {
        self.table.plane()
    }
}

/// Writes limits and programs before anything runs.
fn prepare(
    memory: &RegistrationMemory,
    pads: &Pads,
    spec: &AlgorithmSpec,
    options: &RegistrationOptions,
) {
    use std::sync::atomic::Ordering::Relaxed;
    let plane = memory.plane();
    let now = clock::now();
    plane.start_us.store(now.as_micros(), Relaxed);
    plane.slots.store(options.flows, Relaxed);
    plane.timed.store(spec.has_timers().into(), Relaxed);
    plane.heartbeat_ns.store(now.as_nanos(), Relaxed);
    plane.reader.store(layout::READER_IDLE, Relaxed);
    set_limits(plane, &options.limits);
    for (slot, program) in memory.programs.iter().zip(pads) {
        if let Some(program) = program {
            crate::registration::programs::write(slot, program, &[]);
        }
    }
}

/// Reserves the part of the table that other network namespaces cannot take for this thread's
/// namespace.
pub(crate) fn set_home_namespace(plane: &PlaneLayout) -> Result<(), LoadError> {
    let cookie = crate::namespace::own_cookie();
    let cookie = cookie.map_err(LoadError::io(
        "reading the cookie of this network namespace",
    ))?;
    plane
        .home
        .store(cookie, std::sync::atomic::Ordering::Relaxed);
    Ok(())
}

/// Sets the operator's limits, for live flows too.
pub(crate) fn set_limits(plane: &PlaneLayout, limits: &OperatorLimits) {
    use std::sync::atomic::Ordering::Relaxed;
    plane.fallback_after_ns.store(
        limits.agent_timeout.as_nanos().min(i64::MAX as u64),
        Relaxed,
    );
    set_window_and_rate(plane, limits);
}

/// Sets the limits that may change while an agent runs.
pub(crate) fn set_window_and_rate(plane: &PlaneLayout, limits: &OperatorLimits) {
    use std::sync::atomic::Ordering::Relaxed;
    plane.min_cwnd.store(limits.min_cwnd, Relaxed);
    plane.max_cwnd.store(limits.max_cwnd, Relaxed);
    plane.max_rate.store(limits.max_rate, Relaxed);
}
