//! Capabilities and scheduling priority of the process, and dropping capabilities.

use crate::error::LoadError;

/// The capabilities of `capability.h` that matter here.
const REQUIRED_CAPABILITIES: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_DAC_OVERRIDE: u32 = 1;

/// Returns the names of the capabilities that loading needs and this process lacks.
pub(crate) fn missing_capabilities() -> String {
    let effective = capability_set("CapEff:");
    let has = |bit: u32| effective >> bit & 1 == 1;
    let lacks = REQUIRED_CAPABILITIES
        .iter()
        .filter(|(bit, _)| !has(*bit) && !has(CAP_SYS_ADMIN));
    let names: Vec<&str> = lacks.map(|(_, name)| *name).collect();
    names.join(", ")
}

/// Checks the capabilities for loading, before anything is changed.
pub(crate) fn require_capabilities() -> Result<(), LoadError> {
    match missing_capabilities() {
        none if none.is_empty() => Ok(()),
        missing => Err(LoadError::NotPermitted { missing }),
    }
}

/// Reads a capability set of this thread.
fn capability_set(set: &str) -> u64 {
    std::fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix(set))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}

/// _LINUX_CAPABILITY_VERSION_3: one [`Header`] and two [`Data`].
pub(crate) const CAPABILITY_VERSION: u32 = 0x2008_0522;

#[repr(C)]
pub(crate) struct Header {
    pub version: u32,
    pub pid: i32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops all capabilities of this thread, and of threads and processes that it starts from now on;
/// other threads keep theirs. Mapped memory and open descriptors keep working: after loading, the
/// agent needs privileges only to pin, to detach and to load again.
///
/// This guards against mistakes, not against malice: threads share memory and files, and the user
/// ID is unchanged.
pub fn drop_capabilities() -> std::io::Result<()> {
    restrict_capabilities(0)
}

/// Like [`drop_capabilities`], but keeps CAP_DAC_OVERRIDE, if held, to open files of other users.
pub(crate) fn keep_access_to_files() -> std::io::Result<()> {
    restrict_capabilities(1 << CAP_DAC_OVERRIDE)
}

/// Keeps those of this thread's capabilities that loading, observing and detaching need, and those
/// numbered in `also`. Drops the others, and sets no_new_privs so that neither this thread nor its
/// children gain any by running a program.
pub fn keep_capabilities(also: &[u32]) -> std::io::Result<()> {
    let needed = REQUIRED_CAPABILITIES
        .iter()
        .map(|(bit, _)| *bit)
        .chain([CAP_NET_ADMIN]);
    restrict_capabilities(
        needed
            .chain(also.iter().copied())
            .fold(0, |all, bit| all | 1 << bit),
    )
}

/// Drops all capabilities like [`drop_capabilities`] but keeps `CAP_NET_ADMIN`, if held, for
/// callers that change devices and routes while they run. Also reduces the bounding set if
/// permitted.
pub fn keep_net_admin() -> std::io::Result<()> {
    limit_bounding_set(1 << CAP_NET_ADMIN)?;
    restrict_capabilities(1 << CAP_NET_ADMIN)
}

/// Removes all other capabilities from this thread's bounding set. Without `CAP_SETPCAP` the set
/// stays unchanged, which is harmless with no_new_privs.
fn limit_bounding_set(wanted: u64) -> std::io::Result<()> {
    for bit in 0..u64::BITS {
        // SAFETY: no memory is passed, and both calls concern the calling thread only.
        let (there, dropped) = unsafe {
            let there = libc::prctl(libc::PR_CAPBSET_READ, bit);
            let drops = there == 1 && wanted >> bit & 1 == 0;
            (
                there,
                if drops {
                    libc::prctl(libc::PR_CAPBSET_DROP, bit)
                } else {
                    0
                },
            )
        };
        if there < 0 {
            // Past the last capability of this kernel.
            break;
        }
        if dropped < 0 {
            let why = std::io::Error::last_os_error();
            return if why.raw_os_error() == Some(libc::EPERM) {
                Ok(())
            } else {
                Err(why)
            };
        }
    }
    Ok(())
}

/// Sets no_new_privs: programs run by this thread and its children gain no privileges.
pub fn no_new_privileges() -> std::io::Result<()> {
    // SAFETY: no memory is passed, and the call concerns the calling thread only.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn restrict_capabilities(wanted: u64) -> std::io::Result<()> {
    // Otherwise a program run by root would regain all capabilities.
    no_new_privileges()?;
    let kept = wanted & capability_set("CapPrm:");
    let header = Header {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let data = [kept as u32, (kept >> 32) as u32].map(|part| Data {
        effective: part,
        permitted: part,
        inheritable: 0,
    });
    // SAFETY: both structures have the layout of capset(2) version 3 (one header, two data) and
    // outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[repr(C)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    slice_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Raises the scheduling priority of this thread: nice -10 if permitted (CAP_SYS_NICE) and not
/// better already, and slices of 100 µs, for which Linux 6.12 and later preempt threads with longer
/// slices on wake-up. A thread with another scheduling policy is left alone.
pub(crate) fn raise_thread_priority() {
    // SAFETY: neither call passes memory; 0 is the calling thread.
    let (policy, nice) = unsafe {
        (
            libc::sched_getscheduler(0),
            libc::getpriority(libc::PRIO_PROCESS, 0),
        )
    };
    if policy != libc::SCHED_OTHER {
        return;
    }
    let mut wanted = Scheduling {
        size: size_of::<Scheduling>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        slice_ns: 100_000,
        deadline_ns: 0,
        period_ns: 0,
    };
    for nice in [nice.min(-10), nice] {
        wanted.nice = nice;
        // SAFETY: `wanted` is a sched_attr of the first version, whose size it states, and outlives
        // the call; 0 is the calling thread.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } == 0 {
            return;
        }
    }
    tracing::debug!(
        "cannot raise the priority of the agent's thread: {}",
        std::io::Error::last_os_error()
    );
}
