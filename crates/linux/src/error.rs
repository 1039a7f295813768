//! Why kernel TCP could not be steered: what, where, the kernel's own reason, and the likely fix.

use crate::codegen::pad::PadError;

/// Why an algorithm could not be registered, adopted or detached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The name is not one that the kernel takes.
    #[error(
        "`{0}` cannot be the name of a congestion control: the kernel takes 1 to 15 letters, digits, `_` and `.`; give the algorithm a shorter kernel name"
    )]
    BadName(String),
    /// Another process serves this name.
    #[error(
        "`{name}` is served by process {pid} already: names are global to the host; stop that process, or `ccplane detach --to cubic` removes what it left"
    )]
    Running {
        /// The name.
        name: String,
        /// Who holds it.
        pid: String,
    },
    /// Another process, whose lock lies in another folder, steers what is pinned here.
    #[error(
        "{} is steered by another ccplane process, with another --state: give it the same --state, or choose another --bpffs and --kernel-name",
        .path.display()
    )]
    Steered {
        /// The folder of the pins.
        path: std::path::PathBuf,
    },
    /// The kernel has a congestion control of this name that is not ours to remove.
    #[error(
        "the kernel has a congestion control `{0}` already, and it is not held by a ccplane process: `bpftool struct_ops list` shows it; remove it there, or choose another kernel name"
    )]
    NameTaken(String),
    /// Pins of this name exist.
    #[error("`{name}` is attached already ({path} exists): `ccplane detach` removes it")]
    Attached {
        /// The name.
        name: String,
        /// Where the pins are.
        path: std::path::PathBuf,
    },
    /// There is nothing to adopt.
    #[error("`{name}` is not attached: {path} does not exist; `ccplane attach` makes it")]
    NotAttached {
        /// The name.
        name: String,
        /// Where the pins would be.
        path: std::path::PathBuf,
    },
    /// It is the default congestion control of a network namespace and cannot be replaced there.
    #[error(transparent)]
    Default(#[from] Box<crate::default_control::DefaultError>),
    /// One of its pins is missing.
    #[error(
        "`{name}` is attached, but {pin} is missing, without which it cannot be taken over: `ccplane detach {name}` removes the rest; then attach anew"
    )]
    Incomplete {
        /// The name.
        name: String,
        /// The pin.
        pin: std::path::PathBuf,
    },
    /// Time stamps at a device that cannot be reached to be undone.
    #[error(
        "the time stamps of `{name}` are at a device of a network namespace that cannot be found from here: no process in /proc is in it, and /run/netns has no name of it. If it is gone its device is too, and `rm -r {path}` removes what is left; where a mount or an open file elsewhere holds it, `nsenter --net=FILE ccplane detach` removes them"
    )]
    Elsewhere {
        /// The congestion control that wants them.
        name: String,
        /// Where the pins are.
        path: std::path::PathBuf,
    },
    /// Filters that stamp are at the device.
    #[error(
        "device {0} has time stamps already: `ccplane detach` removes them; if it finds none, `tc filter del dev {0} egress pref 3275` and the same for ingress do"
    )]
    Stamped(String),
    /// The process may not load BPF programs.
    #[error(
        "this process may not load BPF programs (missing: {missing}): run it as root, or grant it CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted {
        /// The capabilities that it lacks.
        missing: String,
    },
    /// The kernel does not describe its types.
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux): it needs CONFIG_DEBUG_INFO_BTF=y; Debian's and Ubuntu's own kernels have it"
    )]
    NoBtf,
    /// The kernel cannot do it.
    #[error(
        "this kernel ({release}) cannot take a TCP congestion control in BPF: {missing}; Linux 6.0 is the oldest that can"
    )]
    OldKernel {
        /// `uname -r`
        release: String,
        /// What it lacks.
        missing: String,
    },
    /// The kernel refused a program.
    #[error(
        "the kernel's verifier refused the BPF program `{program}`; please report it with `uname -r`. Its reason:\n{reason}"
    )]
    Refused {
        /// Which program of the object.
        program: String,
        /// The last lines of the verifier.
        reason: String,
    },
    /// The object is not the one that belongs to this crate.
    #[error(transparent)]
    Pad(#[from] PadError),
    /// The program that flows are to run by themselves is not taken.
    #[error(
        "the program of {name} has no place in the kernel: {why}; `ccplane detach {name}` frees those of earlier ones"
    )]
    NoPlace {
        /// The congestion control.
        name: String,
        /// Why not.
        why: ccplane_wire::Refusal,
    },
    /// The program that flows are to run by themselves needs what they do not have.
    #[error(
        "{name} cannot steer its flows: {why}; --dev attaches time stamps for one-way delay, and what an earlier `attach` \
         registered without these gets them after `ccplane detach {name}`"
    )]
    Lacks {
        /// The congestion control.
        name: String,
        /// What is missing.
        why: ccplane_wire::Refusal,
    },
    /// An object of the kernel does not look as this crate made it.
    #[error(
        "the BPF object does not fit this crate: {0}; rebuild it with crates/linux/bpf/build.sh"
    )]
    Mismatch(String),
    /// Anything else in the loader.
    #[error("{what} failed: {source}{}", said(log))]
    Bpf {
        /// What was tried.
        what: &'static str,
        /// The loader's words.
        log: String,
        /// Its error.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error("{what} failed: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The error.
        #[source]
        source: std::io::Error,
    },
}

fn said(lines: &str) -> String {
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
