//! `ccplane doctor`: checks what this host supports, and names the missing package, capability or
//! setting.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;

use crate::exit::{Failure, FailureKind};
use crate::{confine, sandbox};

/// Feature that a failed check disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Kernel TCP as a datapath: `run`, `attach`, `bench kernel`.
    KernelTcp,
    /// The emulator: `run`, `emu`, `paper`.
    Emulator,
    /// Optional: nothing fails without it.
    Comfort,
}

/// Result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// Feature that needs it.
    pub need: Need,
    /// Set if the check passed.
    pub ok: bool,
    /// Observed state.
    pub found: String,
    /// Fix, if the check failed.
    pub fix: Option<String>,
}

fn check(name: &'static str, need: Need, ok: bool, found: impl Into<String>, fix: &str) -> Check {
    Check {
        name,
        need,
        ok,
        found: found.into(),
        fix: (!ok).then(|| fix.to_owned()),
    }
}

/// Runs all checks. Changes nothing.
pub fn examine() -> Vec<Check> {
    vec![
        kernel(),
        btf(),
        capabilities(Need::KernelTcp),
        jit(),
        bpffs(),
        tun(),
        namespaces(),
        cgroup2(),
        algorithms(),
        default_controls(),
        confinement(),
    ]
}

/// Fails if a check for `needs` fails. The failure lists everything missing, and commands that work
/// without it.
pub fn require(needs: &[Need]) -> Result<(), Failure> {
    let missing: Vec<Check> = examine()
        .into_iter()
        .filter(|c| !c.ok && needs.contains(&c.need))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = missing
        .iter()
        .map(|c| {
            format!(
                "{}: {}; {}",
                c.name,
                c.found,
                c.fix.as_deref().unwrap_or("no known fix")
            )
        })
        .collect();
    Err(Failure::text(
        FailureKind::Unsupported,
        format!(
            "this host lacks what the command requires:\n  - {}",
            list.join("\n  - ")
        ),
    )
    .hint(format!(
        "{UNPRIVILEGED_COMMANDS} work without privileges; `ccplane doctor` shows all checks"
    )))
}

/// Commands without requirements.
const UNPRIVILEGED_COMMANDS: &str = "`ccplane run --datapath sim`, `ccplane evaluate`, `ccplane \
    paper --datapath sim`, `ccplane send`, `ccplane recv` and `ccplane check PROGRAM`";

/// Fails if this process may not read the kernel's BPF state. `what` describes the command's
/// action.
pub fn require_bpf_access(what: &str) -> Result<(), Failure> {
    match missing_capabilities(&[CAP_BPF]) {
        none if none.is_empty() => Ok(()),
        missing => {
            let text = format!(
                "permission denied: {what}, but this process lacks {}",
                missing.join(", ")
            );
            Err(Failure::text(FailureKind::Unsupported, text).hint("run it as root (sudo)"))
        }
    }
}

/// Runs the command: prints a table, or JSON.
pub fn run(json: bool) -> Result<(), Failure> {
    let checks = examine();
    let able = |need| checks.iter().all(|c| c.ok || c.need != need);
    if json {
        let object = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "kernel_tcp": able(Need::KernelTcp),
            "emulator": able(Need::Emulator),
            "simulator": true,
            "transport": true,
            "checks": checks,
        });
        println!("{object}");
        return Ok(());
    }
    for c in &checks {
        let mark = if c.ok {
            "ok     "
        } else if c.need == Need::Comfort {
            "note   "
        } else {
            "MISSING"
        };
        println!("{mark}  {:<28} {}", c.name, c.found);
        if let Some(fix) = &c.fix {
            println!("         {:<28} -> {fix}", "");
        }
    }
    let word = |yes| if yes { "yes" } else { "no" };
    println!();
    println!(
        "kernel TCP as a datapath (run, attach): {}",
        word(able(Need::KernelTcp))
    );
    println!(
        "emulated links (run, emu, paper):       {}",
        word(able(Need::Emulator))
    );
    println!("simulator, evaluation (run, evaluate):  yes");
    println!("our transport over UDP (send, recv):    yes");
    match missing_capabilities(&ATTACH_CAPABILITIES) {
        none if none.is_empty() => Ok(()),
        missing => {
            let text = format!(
                "permission denied: this process lacks {}",
                missing.join(", ")
            );
            let hint = format!(
                "run it as root (sudo) to check everything; {UNPRIVILEGED_COMMANDS} work without \
                 privileges"
            );
            Err(Failure::text(FailureKind::Unsupported, text).hint(hint))
        }
    }
}

fn kernel() -> Check {
    let release = nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_else(|e| format!("unknown ({e})"));
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let ok = version >= (6, 0);
    check(
        "kernel",
        Need::KernelTcp,
        ok,
        release,
        "use Linux 6.0 or later: Debian 12 has 6.1 (apt-get install linux-image-amd64)",
    )
}

fn btf() -> Check {
    let path = "/sys/kernel/btf/vmlinux";
    match fs::read(path) {
        Ok(bytes) => {
            let name = b"bpf_struct_ops_tcp_congestion_ops";
            let has = bytes.windows(name.len()).any(|w| w == name);
            check(
                "kernel BTF with TCP struct_ops",
                Need::KernelTcp,
                has,
                if has {
                    format!("{path}, {} KiB", bytes.len() / 1024)
                } else {
                    "BTF without tcp_congestion_ops".into()
                },
                "the kernel was built without CONFIG_BPF_JIT or CONFIG_INET: use a distribution \
                 kernel",
            )
        }
        Err(e) => {
            let why = if e.kind() == ErrorKind::NotFound {
                "absent".to_owned()
            } else {
                e.to_string()
            };
            check(
                "kernel BTF with TCP struct_ops",
                Need::KernelTcp,
                false,
                format!("{path}: {why}"),
                "use a kernel with CONFIG_DEBUG_INFO_BTF=y, such as that of Debian 11 or later \
                 (apt-get install linux-image-amd64)",
            )
        }
    }
}

/// Bits of the effective capability set (include/uapi/linux/capability.h).
const ATTACH_CAPABILITIES: [(u32, &str); 3] = [(12, "CAP_NET_ADMIN"), (38, "CAP_PERFMON"), CAP_BPF];
const CAP_BPF: (u32, &str) = (39, "CAP_BPF");

/// Before Linux 6.4, leftovers of a dead process are found by scanning all maps of the kernel,
/// which takes this capability.
const MAP_SCAN_CAPABILITY: (u32, &str) = (21, "CAP_SYS_ADMIN");

fn capabilities(need: Need) -> Check {
    let links = ccplane_linux::KernelFeatures::detect().is_ok_and(|kernel| kernel.links);
    let wanted: Vec<(u32, &str)> = ATTACH_CAPABILITIES
        .into_iter()
        .chain((!links).then_some(MAP_SCAN_CAPABILITY))
        .collect();
    let missing = missing_capabilities(&wanted);
    check(
        "capabilities",
        need,
        missing.is_empty(),
        if missing.is_empty() {
            wanted
                .iter()
                .map(|(_, name)| *name)
                .collect::<Vec<_>>()
                .join(", ")
        } else {
            format!("lacks {}", missing.join(", "))
        },
        "run as root (sudo), or grant the missing capabilities with setcap; for the systemd unit, \
         use the drop-in",
    )
}

/// Returns the names of the capabilities in `wanted` that this process lacks.
fn missing_capabilities(wanted: &[(u32, &'static str)]) -> Vec<&'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let lacks = wanted.iter().filter(|(bit, _)| effective & (1 << bit) == 0);
    lacks.map(|(_, name)| *name).collect()
}

fn jit() -> Check {
    let value = fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").unwrap_or_default();
    let on = !value.trim().starts_with('0');
    check(
        "BPF JIT",
        Need::KernelTcp,
        on,
        if on { "on" } else { "off" },
        "sysctl -w net.core.bpf_jit_enable=1 (struct_ops needs it)",
    )
}

fn bpffs() -> Check {
    let mounted = fs::read_to_string("/proc/mounts")
        .is_ok_and(|m| m.lines().any(|l| l.split(' ').nth(2) == Some("bpf")));
    check(
        "bpffs",
        Need::Comfort,
        mounted,
        if mounted { "mounted" } else { "not mounted" },
        "`ccplane attach` mounts it if it has CAP_SYS_ADMIN; otherwise, as root: mount -t bpf bpf \
         /sys/fs/bpf",
    )
}

/// Checks for default congestion controls whose registration is gone. New sockets still use them,
/// without an agent.
fn default_controls() -> Check {
    let orphans: Vec<_> = ccplane_linux::default_control::defaults()
        .into_iter()
        .filter(|default| default.orphaned)
        .collect();
    let found: Vec<String> = orphans
        .iter()
        .map(|default| {
            format!(
                "{} in {} is no longer registered",
                default.control,
                default.namespace_description()
            )
        })
        .collect();
    let fix = orphans
        .first()
        .map(|default| default.sysctl_command("cubic"))
        .unwrap_or_default();
    check(
        "default congestion control",
        Need::Comfort,
        orphans.is_empty(),
        if orphans.is_empty() {
            "registered".to_owned()
        } else {
            found.join(", ")
        },
        &format!("`ccplane detach` resets ccplane's own; manually: {fix}"),
    )
}

fn tun() -> Check {
    let exists = Path::new("/dev/net/tun").exists();
    check(
        "TUN device",
        Need::Emulator,
        exists,
        if exists {
            "/dev/net/tun"
        } else {
            "/dev/net/tun is absent"
        },
        "modprobe tun; in a container pass --device /dev/net/tun",
    )
}

fn namespaces() -> Check {
    let root = nix::unistd::geteuid().is_root();
    check(
        "network namespaces",
        Need::Emulator,
        root && Path::new("/proc/self/ns/net").exists(),
        if root { "root" } else { "not root" },
        "run as root (sudo): the emulator creates namespaces and TUN devices",
    )
}

fn cgroup2() -> Check {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let place = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| place.to_owned())
    });
    check(
        "cgroup v2",
        Need::Comfort,
        place.is_some(),
        place.unwrap_or_else(|| "not mounted".to_owned()),
        "required by `attach --cgroup`, `--to`, `--system` and `--percent`: mount -t cgroup2 none \
         /sys/fs/cgroup",
    )
}

fn algorithms() -> Check {
    let list = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap_or_default();
    let names: Vec<&str> = list.split_whitespace().collect();
    check(
        "congestion controls",
        Need::Comfort,
        ["reno", "cubic"].iter().all(|n| names.contains(n)),
        names.join(" "),
        "modprobe tcp_cubic, to compare with the kernel's own",
    )
}

fn confinement() -> Check {
    let name = "confinement of Python files";
    if let Some(required) = confine::required() {
        let fix = "use Linux 5.13 or later with seccomp, and with landlock in its `lsm=` list; \
            otherwise `arena` and `attach` refuse Python files without --sandbox off";
        return check(name, Need::Comfort, false, format!("no {required}"), fix);
    }
    let missing = sandbox::missing_here();
    let found = match missing.as_slice() {
        [] => "complete".to_owned(),
        missing => format!("without {}", missing.join(", ")),
    };
    let fix = "optional: Landlock and seccomp already confine them. Namespaces require user \
        namespaces or root; cgroup limits require a writable cgroup v2 with the controllers \
        memory and pids";
    check(name, Need::Comfort, missing.is_empty(), found, fix)
}
