//! Takes from this process, before it runs a Python file that nobody vouches for, what steering and simulating do not need: writing files, other
//! programs and processes, the network, the system calls that change a kernel. Threads made later inherit it.
//!
//! Files can still be read as far as this user may. Processor time is bounded where [`bound`] was called before.

use std::collections::BTreeMap;

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus};
use nix::sys::resource::{Resource, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::exit::{Failure, Kind};

/// Address space, bytes. An algorithm that asks for more gets a MemoryError; an interpreter with numpy and its threads has some hundred megabytes.
const MEMORY: u64 = 4 << 30;

/// Private memory that can be written, bytes, of a process that only simulates one algorithm.
const LITTLE_MEMORY: u64 = 512 << 20;

/// Bounds the memory of this process to 512 MB and its processor time, after which the kernel ends it. For [`confine`], which keeps it from
/// raising them again.
pub(crate) fn bound(seconds: u64) -> Result<(), Failure> {
    // Who catches the signal for the first has a second left.
    setrlimit(Resource::RLIMIT_CPU, seconds, seconds + 1)
        .and_then(|()| setrlimit(Resource::RLIMIT_DATA, LITTLE_MEMORY, LITTLE_MEMORY))
        .map_err(|why| {
            Failure::text(
                Kind::Unsupported,
                format!("bound a Python file's time and memory: {why}"),
            )
        })
}

/// System calls that nothing here needs once it runs. They fail with EPERM, which is an exception in Python.
const REFUSED: [libc::c_long; 23] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_setrlimit,
];

/// Those that only some processors have.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: [libc::c_long; 2] = [libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: [libc::c_long; 0] = [];

/// From here on this thread, and those that it makes, cannot do these things any more.
pub(crate) fn confine() -> Result<(), Failure> {
    let failed = |what: &str, why: &dyn std::fmt::Display| {
        Failure::text(Kind::Unsupported, format!("confine a Python file: {what}: {why}"))
            .hint("kernels from 5.13 on have what it takes; `ccplane doctor` says which this is")
    };
    ccplane_linux::no_new_privileges().map_err(|why| failed("no new privileges", &why))?;
    setrlimit(Resource::RLIMIT_AS, MEMORY, MEMORY).map_err(|why| failed("bound its memory", &why))?;
    // What an older kernel does not know of it is left out.
    let abi = ABI::V4;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_write(abi))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
        .and_then(|rules| rules.create())
        .and_then(|rules| rules.restrict_self())
        .map_err(|why| failed("Landlock", &why))?;
    if status.ruleset == RulesetStatus::NotEnforced {
        tracing::warn!("this kernel has no Landlock: a Python file can write what this user may");
    }
    filter()
        .and_then(|filter| seccompiler::apply_filter(&filter).map_err(|why| why.to_string()))
        .map_err(|why| failed("seccomp", &why))
}

/// The filter of system calls. A new process is refused, a new thread is not.
fn filter() -> Result<BpfProgram, String> {
    let told = |why: &dyn std::fmt::Display| why.to_string();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED
        .iter()
        .chain(&REFUSED_HERE)
        .map(|call| (*call, Vec::new()))
        .collect();
    let thread = libc::CLONE_THREAD as u64;
    let no_thread = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), 0);
    let no_thread = SeccompRule::new(vec![no_thread.map_err(|why| told(&why))?]).map_err(|why| told(&why))?;
    rules.insert(libc::SYS_clone, vec![no_thread]);
    // Bounds can be read and not set: root might raise them.
    let sets = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let sets = SeccompRule::new(vec![sets.map_err(|why| told(&why))?]).map_err(|why| told(&why))?;
    rules.insert(libc::SYS_prlimit64, vec![sets]);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|why| told(&why))?;
    let refuse = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        arch,
    );
    refuse.and_then(BpfProgram::try_from).map_err(|why| told(&why))
}
