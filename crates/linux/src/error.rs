//! Errors of the kernel datapath. Each message states what failed, where, the kernel's reason and
//! the likely fix.

use crate::codegen::pad::PadError;

/// An algorithm could not be registered, adopted or detached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernel does not accept the name.
    #[error(
        "`{0}` cannot be the name of a congestion control: the kernel takes 1 to 15 letters, digits, `_` and `.`; give the algorithm a shorter kernel name"
    )]
    BadName(String),
    /// Another process serves this name.
    #[error(
        "`{name}` is served by process {pid} already: names are global to the host; stop that process, or `ccplane detach --to cubic` removes what it left"
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
        "{} is steered by another ccplane process, with another --state: give it the same --state, or choose another --bpffs and --kernel-name",
        .path.display()
    )]
    Steered {
        /// Folder of the pins.
        path: std::path::PathBuf,
    },
    /// The kernel has a congestion control of this name that is not ccplane's.
    #[error(
        "the kernel has a congestion control `{0}` already, and it is not held by a ccplane process: `bpftool struct_ops list` shows it; remove it there, or choose another kernel name"
    )]
    NameTaken(String),
    /// The name is pinned already.
    #[error("`{name}` is attached already ({path} exists): `ccplane detach` removes it")]
    Attached {
        /// Name of the congestion control.
        name: String,
        /// Folder of the pins.
        path: std::path::PathBuf,
    },
    /// There is no pinned algorithm to adopt.
    #[error("`{name}` is not attached: {path} does not exist; `ccplane attach` makes it")]
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
        "`{name}` is attached, but {pin} is missing, without which it cannot be taken over: `ccplane detach {name}` removes the rest; then attach anew"
    )]
    Incomplete {
        /// Name of the congestion control.
        name: String,
        /// Path of the missing pin.
        pin: std::path::PathBuf,
    },
    /// Timestamps are attached to a device that cannot be reached to detach them.
    #[error(
        "the time stamps of `{name}` are at a device of a network namespace that cannot be found from here: no process in /proc is in it, and /run/netns has no name of it. If it is gone its device is too, and `rm -r {path}` removes what is left; where a mount or an open file elsewhere holds it, `nsenter --net=FILE ccplane detach` removes them"
    )]
    Elsewhere {
        /// Congestion control that uses the timestamps.
        name: String,
        /// Folder of the pins.
        path: std::path::PathBuf,
    },
    /// The device has timestamp filters already.
    #[error(
        "device {0} has time stamps already: `ccplane detach` removes them; if it finds none, `tc filter del dev {0} egress pref 3275` and the same for ingress do"
    )]
    Stamped(String),
    /// The process may not load BPF programs.
    #[error(
        "this process may not load BPF programs (missing: {missing}): run it as root, or grant it CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted {
        /// Missing capabilities.
        missing: String,
    },
    /// The kernel has no BTF type information.
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux): it needs CONFIG_DEBUG_INFO_BTF=y; Debian's and Ubuntu's own kernels have it"
    )]
    NoBtf,
    /// The kernel lacks a required feature.
    #[error(
        "this kernel ({release}) cannot take a TCP congestion control in BPF: {missing}; Linux 6.0 is the oldest that can"
    )]
    OldKernel {
        /// Release as in `uname -r`.
        release: String,
        /// Missing feature.
        missing: String,
    },
    /// The verifier rejected a program.
    #[error(
        "the kernel's verifier refused the BPF program `{program}`; please report it with `uname -r`. Its reason:\n{reason}"
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
        "the program of {name} has no place in the kernel: {why}; `ccplane detach {name}` frees those of earlier ones"
    )]
    NoPlace {
        /// Name of the congestion control.
        name: String,
        /// Reason of the refusal.
        why: ccplane_wire::Refusal,
    },
    /// The datapath lacks a capability that a standalone program needs.
    #[error(
        "{name} cannot steer its flows: {why}; --dev attaches time stamps for one-way delay, and what an earlier `attach` \
         registered without these gets them after `ccplane detach {name}`"
    )]
    Lacks {
        /// Name of the congestion control.
        name: String,
        /// Missing capabilities.
        why: ccplane_wire::Refusal,
    },
    /// A BPF object does not have the expected contents.
    #[error(
        "the BPF object does not fit this crate: {0}; rebuild it with crates/linux/bpf/build.sh"
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
