//! Sandbox of this process, entered before it runs an untrusted Python file.
//!
//! System calls are allowed by name. All others fail with EPERM, an exception in Python, because
//! libraries probe for some and do without. Calls that only an attack makes end the process with
//! SIGSYS. The process keeps threads, bounded memory, its open descriptors, and read access to
//! files outside /dev, /proc, /sys and /run. [`bound`] limits the CPU time.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope, path_beneath_rules,
};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::getpid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::exit::{Failure, FailureKind};

/// Limit of the address space, bytes. Beyond it an algorithm gets a MemoryError. An interpreter
/// with numpy and its threads uses some hundred megabytes.
pub(crate) const ADDRESS_SPACE_BYTES_MAX: u64 = 4 << 30;

/// Limit of private writable memory, bytes, for a process that only simulates one algorithm.
const SIMULATION_MEMORY_BYTES_MAX: u64 = 512 << 20;

/// Limit of all memory of such a process, bytes, where a cgroup accounts for it. It includes the
/// interpreter's file pages and pipes.
pub(crate) const SIMULATION_CGROUP_BYTES_MAX: u64 = 1 << 30;

/// Limit of bytes written to a file, in practice standard error, since no other file can be opened
/// for writing. A lower limit kills processes that print a lot.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// Limit of open descriptors. Pipes and sockets hold memory that no other limit covers; a lower
/// limit breaks event loops.
const DESCRIPTORS_MAX: u64 = 256;

/// Folders of the root with devices and the state of the kernel and of other processes.
const STATE_FOLDERS: [&str; 4] = ["dev", "proc", "sys", "run"];

/// Devices that an interpreter reads.
const READABLE_DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

/// Limits the memory of this process to 512 MB and its CPU time to `seconds`, after which the
/// kernel kills it. [`confine`] later prevents it from raising the limits.
pub(crate) fn bound(seconds: u64) -> Result<(), Failure> {
    // The soft limit sends SIGXCPU; a process that catches it has one more second.
    setrlimit(Resource::RLIMIT_CPU, seconds, seconds + 1)
        .and_then(|()| {
            setrlimit(
                Resource::RLIMIT_DATA,
                SIMULATION_MEMORY_BYTES_MAX,
                SIMULATION_MEMORY_BYTES_MAX,
            )
        })
        .map_err(|why| {
            Failure::text(
                FailureKind::Unsupported,
                format!("cannot limit the CPU time and memory of a Python file: {why}"),
            )
        })
}

/// Returns the feature this kernel lacks to run an untrusted file.
pub(crate) fn required() -> Option<&'static str> {
    let seccomp = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let trap = seccomp.split_whitespace().any(|action| action == "trap");
    match (ccplane_linux::sandbox::landlock_abi(), trap) {
        (0, _) => Some("Landlock"),
        (_, false) => Some("seccomp"),
        _ => None,
    }
}

/// Returns the optional parts of Landlock that this kernel lacks. Without Landlock's first version,
/// files are refused.
pub(crate) fn missing() -> impl Iterator<Item = String> {
    const LANDLOCK_ABI_FEATURES: [(u32, &str); 2] = [
        (4, "Landlock network rules (Linux 6.7)"),
        (
            6,
            "Landlock scopes of signals and abstract sockets (Linux 6.12)",
        ),
    ];
    let abi = ccplane_linux::sandbox::landlock_abi();
    let missing = LANDLOCK_ABI_FEATURES
        .into_iter()
        .filter(move |(since, _)| abi < *since);
    missing.map(|(_, name)| name.to_owned())
}

/// Confines this process, which must have a single thread, to the allowed system calls and readable
/// files.
pub(crate) fn confine() -> Result<(), Failure> {
    let failed = |what: &str, why: &dyn std::fmt::Display| {
        Failure::text(
            FailureKind::Unsupported,
            format!("cannot confine a Python file: {what}: {why}"),
        )
        .hint(
            "this requires Linux 5.13 or later with Landlock and seccomp; check with `ccplane \
             doctor`, or use --sandbox off to run the file unconfined",
        )
    };
    // Landlock does not apply to threads that already exist, and confined code could write to their
    // stacks.
    let threads = fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return Err(failed(
            "the process must be single-threaded",
            &format!("{threads} threads are running"),
        ));
    }
    ccplane_linux::no_new_privileges().map_err(|why| failed("no new privileges", &why))?;
    setrlimit(
        Resource::RLIMIT_AS,
        ADDRESS_SPACE_BYTES_MAX,
        ADDRESS_SPACE_BYTES_MAX,
    )
    .and_then(|()| setrlimit(Resource::RLIMIT_FSIZE, OUTPUT_BYTES_MAX, OUTPUT_BYTES_MAX))
    .and_then(|()| setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX, DESCRIPTORS_MAX))
    // No core dump contains its memory, and no process of the user can trace it.
    .and_then(|()| prctl::set_dumpable(false))
    .map_err(|why| failed("limits of memory and output", &why))?;
    // An older kernel enforces the subset it supports.
    let abi = ABI::V6;
    let folders = fs::read_dir("/").map_err(|why| failed("cannot read the root folder", &why))?;
    let readable: Vec<PathBuf> = folders
        .flatten()
        .filter(|folder| {
            STATE_FOLDERS
                .iter()
                .all(|state| folder.file_name() != *state)
        })
        .map(|folder| folder.path())
        .chain(READABLE_DEVICES.map(PathBuf::from))
        .collect();
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
        .and_then(|rules| rules.scope(Scope::from_all(abi)))
        .and_then(|rules| rules.create())
        .and_then(|rules| {
            rules.add_rules(path_beneath_rules(
                &readable,
                AccessFs::ReadFile | AccessFs::ReadDir,
            ))
        })
        .and_then(|rules| rules.restrict_self())
        .map_err(|why| failed("Landlock", &why))?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(failed(
            "Landlock",
            &"not supported by this kernel, or disabled",
        ));
    }
    ccplane_linux::sandbox::report_refused_calls()
        .map_err(|why| failed("reports of refused system calls", &why))?;
    // The last filter forbids installing further ones.
    for filter in [
        without_clone3(),
        without_forbidden(),
        with_report(),
        allowed_only(),
    ] {
        filter
            .and_then(|filter| seccompiler::apply_filter(&filter).map_err(|why| why.to_string()))
            .map_err(|why| failed("seccomp", &why))?;
    }
    Ok(())
}

/// System calls of an interpreter and of our threads, with any arguments.
const ALLOWED_SYSCALLS: &[libc::c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    // Open descriptors.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // File metadata.
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    // Threads, and signals to the process itself.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    // Restricted by `with_report`.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Answered with ENOSYS by `without_clone3`.
    libc::SYS_clone3,
    // Time, random numbers and identity.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_getrlimit,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

/// System calls that exist on some architectures only.
#[cfg(target_arch = "x86_64")]
const ARCH_ALLOWED_SYSCALLS: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getpgrp,
    libc::SYS_lstat,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ARCH_ALLOWED_SYSCALLS: &[libc::c_long] = &[];

macro_rules! named {
    ($($call:ident)*) => { &[$((libc::$call, stringify!($call))),*] };
}

/// System calls that only an attack makes; they end the process. No library that an algorithm
/// imports needs them, and most of them change state outside this process.
const FORBIDDEN_SYSCALLS: &[(libc::c_long, &str)] = named![
    // Files: names, modes, owners, times and attributes of existing ones. Creating a file merely
    // fails, since Python tries to write its caches.
    SYS_unlinkat SYS_renameat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_mknodat SYS_truncate SYS_fchmod SYS_fchmodat
    SYS_fchown SYS_fchownat SYS_utimensat SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_removexattr SYS_lremovexattr
    SYS_fremovexattr SYS_open_by_handle_at SYS_fanotify_init
    // Programs and other processes. Forking merely fails: some modules run helpers to query the
    // host.
    SYS_execve SYS_execveat SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_process_mrelease
    SYS_pidfd_getfd SYS_pidfd_send_signal SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_kcmp
    SYS_sched_setscheduler SYS_sched_setparam SYS_sched_setattr SYS_setpriority SYS_ioprio_set
    // Identity and namespaces.
    SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setfsuid SYS_setfsgid SYS_setgroups
    SYS_capset SYS_unshare SYS_setns SYS_chroot SYS_pivot_root SYS_mount SYS_umount2 SYS_move_mount SYS_open_tree
    SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr
    // The kernel and the host.
    SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_add_key SYS_request_key SYS_keyctl SYS_init_module SYS_finit_module
    SYS_delete_module SYS_kexec_load SYS_reboot SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex
    SYS_sethostname SYS_setdomainname SYS_acct SYS_swapon SYS_swapoff SYS_quotactl SYS_quotactl_fd SYS_syslog
    SYS_vhangup
];

#[cfg(target_arch = "x86_64")]
const ARCH_FORBIDDEN_SYSCALLS: &[(libc::c_long, &str)] = named![
    SYS_unlink SYS_rename SYS_link SYS_symlink SYS_mknod SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes
    SYS_futimesat SYS_fchmodat2 SYS_iopl SYS_ioperm SYS_modify_ldt SYS_kexec_file_load
];
#[cfg(not(target_arch = "x86_64"))]
const ARCH_FORBIDDEN_SYSCALLS: &[(libc::c_long, &str)] = &[];

/// System calls that end the process only with certain arguments.
const FORBIDDEN_SYSCALL_USES: &[(libc::c_long, &str)] = &[
    (libc::SYS_kill, "kill of another process"),
    (libc::SYS_tgkill, "tgkill of another process"),
    (libc::SYS_ioctl, "input to a terminal (ioctl)"),
    (libc::SYS_fcntl, "signals to another process (fcntl)"),
];

/// Returns the name of a system call that ended the process.
pub(crate) fn forbidden_name(number: i64) -> Option<&'static str> {
    let mut all = FORBIDDEN_SYSCALLS
        .iter()
        .chain(ARCH_FORBIDDEN_SYSCALLS)
        .chain(FORBIDDEN_SYSCALL_USES);
    let found = all.find(|(known, _)| *known == number);
    found.map(|(_, name)| name.strip_prefix("SYS_").unwrap_or(name))
}

/// Allowed ioctl requests: terminal detection and descriptor flags. TIOCSTI, which types into a
/// terminal, is not among them.
const IOCTL_REQUESTS: [u64; 6] = [
    libc::TCGETS,
    libc::TIOCGWINSZ,
    libc::FIONREAD,
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::FIONCLEX,
];

/// Allowed fcntl commands. F_SETOWN, which would send signals to other processes, is not among
/// them.
const FCNTL_COMMANDS: [libc::c_int; 6] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
];

/// From asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

/// Allowed prctl options: names of threads and of memory.
const PRCTL_OPTIONS: [libc::c_int; 3] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];

/// Flags of openat that go beyond opening a file for reading.
const OPEN_WRITE_FLAGS: libc::c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_APPEND
    | (libc::O_TMPFILE & !libc::O_DIRECTORY);

/// Makes clone3 fail with ENOSYS, so that the C library creates threads with clone. A filter cannot
/// inspect the flags of clone3, which are in memory.
fn without_clone3() -> Result<BpfProgram, String> {
    let rules = [(libc::SYS_clone3, Vec::new())].into();
    program(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
    )
}

/// Ends the process at calls that only an attack makes, by a signal whose handler reports them.
fn without_forbidden() -> Result<BpfProgram, String> {
    let calls = FORBIDDEN_SYSCALLS.iter().chain(ARCH_FORBIDDEN_SYSCALLS);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls.map(|(call, _)| (*call, Vec::new())).collect();
    let own = u64::from(getpid().as_raw().unsigned_abs());
    // `kill(0)` signals the process's own group, which contains no other process.
    let others = || -> Result<SeccompRule, String> {
        let not =
            |value| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value);
        let conditions = [own, 0].map(not).into_iter().collect::<Result<_, _>>();
        conditions
            .and_then(SeccompRule::new)
            .map_err(|why| why.to_string())
    };
    rules.insert(libc::SYS_kill, vec![others()?]);
    rules.insert(libc::SYS_tgkill, vec![others()?]);
    rules.insert(
        libc::SYS_ioctl,
        equal(1, &[libc::TIOCSTI, libc::TIOCLINUX])?,
    );
    let signals = [libc::F_SETOWN, F_SETOWN_EX, F_SETSIG].map(|command| command as u64);
    rules.insert(libc::SYS_fcntl, equal(1, &signals)?);
    program(rules, SeccompAction::Allow, SeccompAction::Trap)
}

/// Protects the SIGSYS handler: kills the process if it installs another one.
fn with_report() -> Result<BpfProgram, String> {
    let conditions = [
        SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            libc::SIGSYS as u64,
        ),
        SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0),
    ];
    let rule = conditions
        .into_iter()
        .collect::<Result<_, _>>()
        .and_then(SeccompRule::new);
    let rules = [(
        libc::SYS_rt_sigaction,
        vec![rule.map_err(|why| why.to_string())?],
    )]
    .into();
    program(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

/// Allows the listed calls only.
fn allowed_only() -> Result<BpfProgram, String> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED_SYSCALLS
        .iter()
        .chain(ARCH_ALLOWED_SYSCALLS)
        .map(|call| (*call, Vec::new()))
        .collect();
    let own = u64::from(getpid().as_raw().unsigned_abs());
    let words =
        |values: &[libc::c_int]| values.iter().map(|value| *value as u64).collect::<Vec<_>>();
    let thread = libc::CLONE_THREAD as u64;
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWCGROUP;
    let threads = SeccompCmpOp::MaskedEq(thread | namespaces as u64);
    rules.insert(libc::SYS_clone, vec![only(0, threads, thread)?]);
    // Only private mappings: shared anonymous memory is not counted as data of the process.
    let kind = SeccompCmpOp::MaskedEq(libc::MAP_TYPE as u64);
    let without_file = SeccompCmpOp::MaskedEq(libc::MAP_ANONYMOUS as u64);
    let private = only(3, kind, libc::MAP_PRIVATE as u64)?;
    rules.insert(libc::SYS_mmap, vec![private, only(3, without_file, 0)?]);
    rules.insert(
        libc::SYS_openat,
        vec![only(2, SeccompCmpOp::MaskedEq(OPEN_WRITE_FLAGS as u64), 0)?],
    );
    rules.insert(libc::SYS_ioctl, equal(1, &IOCTL_REQUESTS)?);
    rules.insert(libc::SYS_fcntl, equal(1, &words(&FCNTL_COMMANDS))?);
    rules.insert(libc::SYS_prctl, equal(0, &words(&PRCTL_OPTIONS))?);
    // Connected stream sockets only: a datagram socket could send to any Unix socket of the host.
    rules.insert(libc::SYS_socketpair, vec![stream_pair()?]);
    // Signals to this process only.
    rules.insert(libc::SYS_tgkill, equal(0, &[own])?);
    rules.insert(libc::SYS_kill, equal(0, &[own])?);
    // Limits can be read but not set: root could raise them.
    let read = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0);
    let read = read.and_then(|read| SeccompRule::new(vec![read]));
    rules.insert(
        libc::SYS_prlimit64,
        vec![read.map_err(|why| why.to_string())?],
    );
    program(
        rules,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
    )
}

fn stream_pair() -> Result<SeccompRule, String> {
    // The other bits of the type are flags.
    const SOCK_TYPE_MASK: u64 = 0xf;
    let of =
        |argument, how, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value);
    let conditions = [
        of(0, SeccompCmpOp::Eq, libc::AF_UNIX as u64),
        of(
            1,
            SeccompCmpOp::MaskedEq(SOCK_TYPE_MASK),
            libc::SOCK_STREAM as u64,
        ),
    ];
    let rule = conditions
        .into_iter()
        .collect::<Result<_, _>>()
        .and_then(SeccompRule::new);
    rule.map_err(|why| why.to_string())
}

/// Matches a call whose argument equals one of `values`.
fn equal(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, String> {
    let rules = values
        .iter()
        .map(|value| only(argument, SeccompCmpOp::Eq, *value));
    rules.collect()
}

/// Matches a call by one argument. The kernel uses the lower 32 bits of each of these arguments.
fn only(argument: u8, how: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(|why| why.to_string())
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, String> {
    TargetArch::try_from(std::env::consts::ARCH)
        .and_then(|arch| SeccompFilter::new(rules, others, these, arch))
        .and_then(BpfProgram::try_from)
        .map_err(|why| why.to_string())
}
