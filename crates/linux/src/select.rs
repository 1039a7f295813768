//! Selection of the connections to control: a cgroup, addresses, the whole system, or a percentage
//! of these.
//!
//! New connections get their congestion control from a `sock_ops` program on a cgroup when they
//! connect or are accepted. Its link is pinned, so the rule outlives the process that made it;
//! removing the pin ends it immediately. A socket that selected a `ccp_*` itself keeps it. Live
//! connections are switched by a socket iterator.
//!
//! Several rules may be active at once ([`replace`]); the first that matches a connection applies.

pub(crate) mod arms;

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use ccplane_units::Prefix;
use libbpf_rs::{Iter, Link, Object, ObjectBuilder, ProgramMut};

use crate::error::LoadError;
use crate::namespace;
use crate::registration::log::{LibbpfLog, verifier_reason};
use crate::registration::pin::{mount_bpffs, remove_link};
use crate::select::arms::{Arms, NO_ARM};

/// Built by `bpf/build.sh`.
static OBJECT: &[u8] = include_bytes!("../bpf/prebuilt/select.bpf.o");

/// Folder of the rules' pins, named `NAME-NUMBER` after the congestion control. Names of congestion
/// controls contain no `-`.
fn pins() -> PathBuf {
    crate::registration::paths::bpffs().join("ccplane/select")
}

/// Connections to control. All conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Sockets of processes in this cgroup (version 2) and those below it; `None`: of every
    /// process.
    pub cgroup: Option<PathBuf>,
    /// Address of the peer.
    pub to: Option<Prefix>,
    /// Port of the server: remote on outgoing connections, local on accepted ones.
    pub ports: Option<RangeInclusive<u16>>,
    /// Explicit request for the whole system, if nothing above narrows it.
    pub system: bool,
    /// Percentage of the matching connections, 1 to 100, drawn at random per connection.
    pub percent: u8,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cgroup {
            Some(path) => write!(f, "cgroup {}", path.display())?,
            None => f.write_str("the whole system")?,
        }
        if let Some(to) = &self.to {
            write!(f, ", to {to}")?;
        }
        match self
            .ports
            .as_ref()
            .map(|ports| (ports.start(), ports.end()))
        {
            None => {}
            Some((first, last)) if first == last => write!(f, ", port {first}")?,
            Some((first, last)) => write!(f, ", ports {first}-{last}")?,
        }
        match self.percent {
            100 => Ok(()),
            percent => write!(f, ", {percent} %"),
        }
    }
}

/// Returns address and mask in IPv6 form.
fn to_v6(to: &Prefix) -> (u128, u128) {
    let (address, bits) = match to.network() {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 96 + u32::from(to.bits())),
        IpAddr::V6(v6) => (v6, u32::from(to.bits())),
    };
    (
        address.into(),
        u128::MAX.checked_shl(128 - bits).unwrap_or(0),
    )
}

/// Connections could not be selected or switched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The percentage is out of range.
    #[error("a share of {0} % is not valid; use 1 to 100")]
    BadPercent(u8),
    /// The path is not a cgroup.
    #[error(
        "{path} is not a cgroup of version 2: {reason}; `systemd-cgls` or `cat /proc/PID/cgroup` \
        lists cgroups"
    )]
    NotACgroup {
        /// The given path.
        path: PathBuf,
        /// Reason of the rejection.
        reason: String,
    },
    /// No cgroup hierarchy of version 2 is mounted.
    #[error("cgroup v2 is not mounted; mount it with `mount -t cgroup2 none /sys/fs/cgroup`")]
    NoCgroups,
    /// The congestion control does not exist, or its name is too long.
    #[error(
        "the kernel has no congestion control `{0}`; `sysctl \
        net.ipv4.tcp_available_congestion_control` lists the available ones"
    )]
    Unknown(String),
    /// Loading or pinning failed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The program could not be attached, or the iterator did not run.
    #[error("{what} failed: {source}")]
    Bpf {
        /// Operation that failed.
        what: String,
        /// Error of the loader.
        #[source]
        source: libbpf_rs::Error,
    },
}

pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> SelectError {
    let what = what.into();
    move |source| SelectError::Bpf { what, source }
}

/// Configuration of the BPF programs: `wanted` in `bpf/select.bpf.c`.
#[derive(Default)]
pub(crate) struct SelectionRules {
    from: [u8; 16],
    to: [u8; 16],
    prefix: u128,
    mask: u128,
    percent: u32,
    /// First and last port.
    ports: [u32; 2],
    /// Arm of the selected connections.
    arm: u32,
}

impl SelectionRules {
    /// Encodes the configuration, with addresses in network byte order.
    fn to_bytes(&self) -> Vec<u8> {
        let (prefix, mask) = (self.prefix.to_be_bytes(), self.mask.to_be_bytes());
        let numbers = [self.percent, self.ports[0], self.ports[1], self.arm].map(u32::to_ne_bytes);
        [&self.from, &self.to, &prefix, &mask, &numbers.concat()[..]].concat()
    }
}

/// Checks whether `selection` is possible, before anything is registered for it.
pub fn validate(selection: &Selection) -> Result<(), SelectError> {
    cgroup_path(selection).map(drop)
}

/// Returns the folder of the selection's cgroup.
fn cgroup_path(selection: &Selection) -> Result<PathBuf, SelectError> {
    if !(1..=100).contains(&selection.percent) {
        return Err(SelectError::BadPercent(selection.percent));
    }
    cgroup(selection.cgroup.as_deref())
}

/// A rule that gives new connections a congestion control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Kernel name of the congestion control.
    pub kernel_name: String,
    /// Connections that the rule matches.
    pub selection: Selection,
}

/// Gives new connections of `selection` the congestion control `kernel_name` until [`detach`], even
/// after this process has ended. An earlier rule for the same congestion control is replaced.
pub fn attach(kernel_name: &str, selection: &Selection) -> Result<(), SelectError> {
    let kernel_name = kernel_name.to_owned();
    let selection = selection.clone();
    replace(
        std::slice::from_ref(&kernel_name.clone()),
        &[Choice {
            kernel_name,
            selection,
        }],
        None,
    )
}

/// Replaces all rules of the congestion controls `names` by `choices`, until [`detach`], even after
/// this process has ended. The first rule that matches a connection applies. Rules of a narrower
/// cgroup precede those of a wider one. With `arms`, rules with a percentage also watch an equal
/// number of unselected connections.
///
/// # Errors
/// The earlier rules remain in force, and none of the new ones is.
pub fn replace(
    names: &[String],
    choices: &[Choice],
    arms: Option<&Arms>,
) -> Result<(), SelectError> {
    for choice in choices {
        padded(&choice.kernel_name)?;
        cgroup_path(&choice.selection)?;
        ensure_registered(&choice.kernel_name)?;
    }
    let earlier: Vec<(PathBuf, String)> =
        pinned().filter(|(_, name)| names.contains(name)).collect();
    if !choices.is_empty() {
        mount_bpffs()?;
        std::fs::create_dir_all(pins())
            .map_err(LoadError::io(format!("making {}", pins().display())))?;
    }
    let mut links = choices
        .iter()
        .map(|choice| attach_rule(choice, arms))
        .collect::<Result<Vec<_>, _>>()?;
    let mut made = Vec::new();
    for (link, choice) in links.iter_mut().zip(choices) {
        let pin = unused_pin(&choice.kernel_name);
        if let Err(source) = link.pin(&pin) {
            made.iter().for_each(|pin: &PathBuf| remove_link(pin));
            return Err(bpf(format!("pinning {}", pin.display()))(source));
        }
        made.push(pin);
    }
    // The new rules are active by now, so no connection is missed while the old ones are removed.
    earlier.iter().for_each(|(pin, _)| remove_link(pin));
    Ok(())
}

/// Attaches one rule, which is active as long as the link exists.
fn attach_rule(choice: &Choice, arms: Option<&Arms>) -> Result<Link, SelectError> {
    let selection = &choice.selection;
    let path = cgroup_path(selection)?;
    let (prefix, mask) = selection.to.as_ref().map(to_v6).unwrap_or_default();
    let ports = selection.ports.clone().unwrap_or(0..=u16::MAX);
    let wanted = SelectionRules {
        to: padded(&choice.kernel_name)?,
        prefix,
        mask,
        percent: selection.percent.into(),
        ports: [*ports.start(), *ports.end()].map(u32::from),
        arm: match (arms, selection.percent) {
            (Some(arms), 1..100) => arms.entry(&choice.kernel_name),
            _ => NO_ARM,
        },
        ..SelectionRules::default()
    };
    let cgroup = File::open(&path).map_err(LoadError::io(format!("opening {}", path.display())))?;
    let object = load("choose", &wanted, arms)?;
    program(&object, "choose")?
        .attach_cgroup(cgroup.as_raw_fd())
        .map_err(bpf(format!("attaching to {}", path.display())))
}

/// Returns an unused pin for a rule of this congestion control.
fn unused_pin(kernel_name: &str) -> PathBuf {
    let pin = |number: u32| pins().join(format!("{kernel_name}-{number}"));
    (0..)
        .map(pin)
        .find(|pin| !pin.exists())
        .unwrap_or_else(|| pin(0))
}

/// Returns every pinned rule with its congestion control.
fn pinned() -> impl Iterator<Item = (PathBuf, String)> {
    let entries = std::fs::read_dir(pins()).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let file = entry.file_name().into_string().ok()?;
        let name = file.split_once('-').map_or(file.as_str(), |(name, _)| name);
        Some((entry.path(), name.to_owned()))
    })
}

/// Removes every rule, or those of the congestion control `only`, even if the process that made
/// them was killed. Returns the names of the congestion controls.
pub fn detach(only: Option<&str>) -> Result<Vec<String>, SelectError> {
    let mut removed: Vec<String> = pinned()
        .filter(|(_, name)| only.is_none_or(|only| only == name))
        .inspect(|(pin, _)| remove_link(pin))
        .map(|(_, name)| name)
        .collect();
    removed.sort();
    removed.dedup();
    for directory in pins().ancestors().take(2) {
        // Fails, as intended, if something else is still pinned there.
        let _ = std::fs::remove_dir(directory);
    }
    Ok(removed)
}

/// Returns the congestion controls that have rules.
pub fn chosen() -> Vec<String> {
    let mut names: Vec<String> = pinned().map(|(_, name)| name).collect();
    names.sort();
    names.dedup();
    names
}

/// Switches live connections in every network namespace of this host to the congestion control
/// `to`: those that use `only`, or any `ccp_*`. Includes listening sockets, so that connections
/// they accept follow. Windows are kept. Returns the number of sockets switched.
pub fn switch_flows(only: Option<&str>, to: &str) -> Result<usize, SelectError> {
    let wanted = SelectionRules {
        from: only.map(padded).transpose()?.unwrap_or_default(),
        to: padded(to)?,
        ..SelectionRules::default()
    };
    ensure_registered(to)?;
    let object = load("move", &wanted, None)?;
    let link = program(&object, "move")?
        .attach()
        .map_err(bpf("attaching the socket iterator"))?;
    let mut moved = 0;
    for namespace in namespace::open_all() {
        // The iterator walks the namespace of the thread that opens it. A namespace that no longer
        // exists has no sockets.
        let walked = namespace::run_inside(&namespace, || Ok(run_iterator(&link)));
        moved += walked.unwrap_or(Ok(0))?;
    }
    Ok(moved)
}

/// Runs the iterator over every socket of this thread's namespace. It outputs one byte per switched
/// socket.
fn run_iterator(link: &Link) -> Result<usize, SelectError> {
    let mut sockets = Iter::new(link).map_err(bpf("opening the socket iterator"))?;
    let mut moved = 0;
    let mut buffer = [0; 4096];
    loop {
        match sockets.read(&mut buffer) {
            Ok(0) => return Ok(moved),
            Ok(count) => moved += count,
            // It pauses after a million sockets without output.
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(LoadError::io("walking the sockets")(error).into()),
        }
    }
}

/// Checks that the kernel has a congestion control of this name.
fn ensure_registered(name: &str) -> Result<(), SelectError> {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    match available {
        Ok(names) if !names.split_whitespace().any(|available| available == name) => {
            Err(SelectError::Unknown(name.to_owned()))
        }
        _ => Ok(()),
    }
}

fn padded(name: &str) -> Result<[u8; 16], SelectError> {
    let mut padded = [0; 16];
    if name.is_empty() || name.len() > 15 {
        return Err(SelectError::Unknown(name.to_owned()));
    }
    padded[..name.len()].copy_from_slice(name.as_bytes());
    Ok(padded)
}

/// Returns the folder of a cgroup, given as a path or as in `/proc/PID/cgroup`; without one, the
/// root cgroup.
pub(crate) fn cgroup(path: Option<&Path>) -> Result<PathBuf, SelectError> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounted = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, directory, kind) = (fields.next(), fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(directory))
    });
    let root = mounted.ok_or(SelectError::NoCgroups)?;
    let Some(path) = path else { return Ok(root) };
    let below = root.join(path.strip_prefix("/").unwrap_or(path));
    let found = if path.exists() {
        path.to_owned()
    } else {
        below
    };
    let not = |reason: String| SelectError::NotACgroup {
        path: path.to_owned(),
        reason,
    };
    let kind = nix::sys::statfs::statfs(&found)
        .map_err(|error| not(error.desc().to_owned()))?
        .filesystem_type();
    if kind != nix::sys::statfs::CGROUP2_SUPER_MAGIC || !found.is_dir() {
        return Err(not(format!("it is not under {}", root.display())));
    }
    Ok(found)
}

/// Loads one program of the object, using the maps of `arms`.
pub(crate) fn load(
    name: &str,
    wanted: &SelectionRules,
    arms: Option<&Arms>,
) -> Result<Object, SelectError> {
    let missing = crate::privilege::missing_capabilities();
    if !missing.is_empty() {
        return Err(LoadError::NotPermitted { missing }.into());
    }
    let said = LibbpfLog::new();
    let load = || {
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        for mut program in open.progs_mut() {
            let this = program.name() == name;
            program.set_autoload(this);
        }
        for mut map in open.maps_mut() {
            if let Some(shared) = arms.and_then(|arms| arms.map(map.name())) {
                map.reuse_fd(shared.as_fd())?;
            }
            if let Some(value) = map.initial_value_mut() {
                let bytes = wanted.to_bytes();
                value[..bytes.len()].copy_from_slice(&bytes);
            }
        }
        open.load()
    };
    load().map_err(|source| match verifier_reason(&said.text()) {
        Some((program, reason)) => LoadError::Refused { program, reason }.into(),
        None => SelectError::Bpf {
            what: "loading the BPF programs".to_owned(),
            source,
        },
    })
}

pub(crate) fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, SelectError> {
    let found = object.progs_mut().find(|program| program.name() == name);
    found.ok_or_else(|| LoadError::Mismatch(format!("it has no program {name}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_prefix_of_ipv4_is_one_of_ipv6() {
        let (address, mask) = to_v6(&prefix("10.0.0.0/8"));
        assert_eq!(address, 0xffff_0a00_0000);
        assert_eq!(mask, !0xff_ffff);
        assert_eq!(
            to_v6(&prefix("0.0.0.0/0")),
            (0xffff_0000_0000, !0xffff_ffff)
        );
        assert_eq!(to_v6(&prefix("::/0")), (0, 0));
        assert_eq!(to_v6(&prefix("::1")), (1, u128::MAX));
    }

    #[test]
    fn selections_are_printed_in_words() {
        let mut selection = Selection {
            cgroup: None,
            to: None,
            ports: None,
            system: true,
            percent: 100,
        };
        assert_eq!(selection.to_string(), "the whole system");
        selection.to = Some(prefix("10.0.0.0/8"));
        selection.cgroup = Some("/web".into());
        selection.percent = 5;
        assert_eq!(selection.to_string(), "cgroup /web, to 10.0.0.0/8, 5 %");
        selection.ports = Some(443..=443);
        assert_eq!(
            selection.to_string(),
            "cgroup /web, to 10.0.0.0/8, port 443, 5 %"
        );
    }

    #[test]
    fn invalid_input_is_refused_before_any_change() {
        let selection = Selection {
            cgroup: None,
            to: None,
            ports: None,
            system: true,
            percent: 0,
        };
        assert!(matches!(
            attach("ccp_x", &selection),
            Err(SelectError::BadPercent(0))
        ));
        let selection = Selection {
            percent: 100,
            cgroup: Some("/proc".into()),
            ..selection
        };
        assert!(matches!(
            attach("ccp_name_too_long", &selection),
            Err(SelectError::Unknown(_))
        ));
        if cgroup(None).is_ok() {
            let everywhere = Selection {
                cgroup: None,
                ..selection.clone()
            };
            assert!(matches!(
                attach("ccp_x", &everywhere),
                Err(SelectError::Unknown(_))
            ));
            assert!(matches!(
                attach("ccp_x", &selection),
                Err(SelectError::NotACgroup { .. })
            ));
        }
        assert!(chosen().iter().all(|name| name != "ccp_x"));
    }
}
