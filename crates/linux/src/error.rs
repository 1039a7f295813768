//! Errors of the kernel datapath. Each message states what failed, where, the kernel's reason and
//! the likely fix.

use crate::codegen::pad::PadError;

/// An algorithm could not be registered, adopted or detached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernel does not accept the name.
    #[error(
        "`{0}` is not a valid name of a congestion control; give the algorithm a kernel name of 1 \
        to 15 letters, digits, `_` and `.`"
    )]
    BadName(String),
    /// Another process serves this name.
    #[error(
        "process {pid} already serves `{name}`, and names are global to the host; stop that \
        process, or remove what it left with `ccplane detach --to cubic`"
    )]
    Running {
        /// Name of the congestion control.
        name: String,
        /// Process that holds the name.
        pid: String,
    },
    /// A process with another state folder, and so another lock, controls the algorithm pinned
    /// here.
    #[error(
        "another ccplane process with another CCPLANE_STATE steers {}; use the same CCPLANE_STATE, \
        or choose another CCPLANE_BPFFS and --kernel-name",
        .path.display()
    )]
    Steered {
        /// Folder of the pins.
        path: std::path::PathBuf,
    },
    /// The kernel has a congestion control of this name that is not ccplane's.
    #[error(
        "the kernel already has a congestion control `{0}`, and no ccplane process holds it; \
        remove it (`bpftool struct_ops list` shows it) or choose another kernel name"
    )]
    NameTaken(String),
    /// The name is pinned already.
    #[error("`{name}` is already attached ({path} exists); remove it with `ccplane detach`")]
    Attached {
        /// Name of the congestion control.
        name: String,
        /// Folder of the pins.
        path: std::path::PathBuf,
    },
    /// There is no pinned algorithm to adopt.
    #[error("`{name}` is not attached: {path} does not exist; attach it with `ccplane attach`")]
    NotAttached {
        /// Name of the congestion control.
        name: String,
        /// Folder where the pins would be.
        path: std::path::PathBuf,
    },
    /// It is the default congestion control of a network namespace and cannot be replaced there.
    #[error(transparent)]
    Default(#[from] Box<crate::default_control::DefaultError>),
    /// A pin is missing.
    #[error(
        "`{name}` is attached, but cannot be taken over because {pin} is missing; run `ccplane \
        detach {name}` and attach it again"
    )]
    Incomplete {
        /// Name of the congestion control.
        name: String,
        /// Path of the missing pin.
        pin: std::path::PathBuf,
    },
    /// Timestamps are attached to a device that cannot be reached to detach them.
    #[error(
        "the timestamp programs of `{name}` are attached to a device in a network namespace that \
        cannot be found: no process in /proc is in it, and /run/netns has no name for it. If the \
        namespace no longer exists, remove the rest with `rm -r {path}`; if a mount or an open \
        file holds it, run `nsenter --net=FILE ccplane detach`"
    )]
    Elsewhere {
        /// Congestion control that uses the timestamps.
        name: String,
        /// Folder of the pins.
        path: std::path::PathBuf,
    },
    /// The device has timestamp filters already.
    #[error(
        "device {0} already has timestamp programs; remove them with `ccplane detach`, or if it \
        finds none, with `tc filter del dev {0} egress pref 3275` and the same for ingress"
    )]
    Stamped(String),
    /// The process may not load BPF programs.
    #[error(
        "no permission to load BPF programs (missing: {missing}); run as root, or grant CAP_BPF, \
        CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted {
        /// Missing capabilities.
        missing: String,
    },
    /// The kernel has no BTF type information.
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux); use a kernel with \
        CONFIG_DEBUG_INFO_BTF=y, such as the kernels of Debian and Ubuntu"
    )]
    NoBtf,
    /// The kernel lacks a required feature.
    #[error(
        "this kernel ({release}) does not support TCP congestion control in BPF: {missing}; use \
        Linux 6.0 or later"
    )]
    OldKernel {
        /// Release as in `uname -r`.
        release: String,
        /// Missing feature.
        missing: String,
    },
    /// The verifier rejected a program.
    #[error(
        "the kernel's verifier rejected the BPF program `{program}`; please report it with `uname \
        -r`. Its reason:\n{reason}"
    )]
    Refused {
        /// Name of the program in the object.
        program: String,
        /// Last lines of the verifier log.
        reason: String,
    },
    /// The object does not belong to this crate.
    #[error(transparent)]
    Pad(#[from] PadError),
    /// The kernel datapath has no room for a standalone program.
    #[error(
        "the kernel datapath has no room for the program of {name}: {why}; free the slots of \
        earlier programs with `ccplane detach {name}`"
    )]
    NoPlace {
        /// Name of the congestion control.
        name: String,
        /// Reason of the refusal.
        why: ccplane_wire::Refusal,
    },
    /// The datapath lacks a capability that a standalone program needs.
    #[error(
        "{name} cannot steer its flows: {why}; for one-way delay, attach timestamp programs with \
        --dev, after `ccplane detach {name}` if an earlier `attach` registered it without them"
    )]
    Lacks {
        /// Name of the congestion control.
        name: String,
        /// Missing capabilities.
        why: ccplane_wire::Refusal,
    },
    /// A BPF object does not have the expected contents.
    #[error(
        "the BPF object does not match this crate: {0}; rebuild it with crates/linux/bpf/build.sh"
    )]
    Mismatch(String),
    /// Any other error of the loader.
    #[error("{what} failed: {source}{}", log_suffix(log))]
    Bpf {
        /// Operation that failed.
        what: &'static str,
        /// Log of the loader.
        log: String,
        /// Error of the loader.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error("{what} failed: {source}")]
    Io {
        /// Operation that failed.
        what: String,
        /// Error of the system call.
        #[source]
        source: std::io::Error,
    },
}

fn log_suffix(lines: &str) -> String {
    if lines.is_empty() {
        String::new()
    } else {
        format!("\n{lines}")
    }
}

impl LoadError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> LoadError {
        let what = what.into();
        move |source| LoadError::Io { what, source }
    }
}
