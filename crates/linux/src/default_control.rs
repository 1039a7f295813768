//! The default congestion control of network namespaces, `net.ipv4.tcp_congestion_control`.
//!
//! The kernel resolves the name once, when the sysctl is written, and keeps a reference to the
//! object. A default therefore outlives its registration: new sockets use an orphan that no agent
//! controls and that `flows` does not show, even after another registration has taken its name.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::namespace;
use crate::registration::pin;

const DEFAULT_SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const AVAILABLE_SYSCTL: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Replacements, tried after the default of this process's namespace. Every kernel has Reno, and
/// every namespace may use it; Cubic may be restricted.
const NATIVE_CONTROLS: [&str; 2] = ["cubic", "reno"];

/// The default of one network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultControl {
    /// Path of the namespace's file; `None` for the namespace of this process.
    pub namespace: Option<PathBuf>,
    /// Name of the congestion control.
    pub control: String,
    /// The registration of this name no longer exists.
    pub orphaned: bool,
}

impl DefaultControl {
    /// Describes the namespace for a message.
    pub fn namespace_description(&self) -> String {
        self.namespace.as_deref().map_or_else(
            || "this network namespace".to_owned(),
            |path| format!("the network namespace {}", path.display()),
        )
    }

    /// Returns the shell command that writes the default.
    pub fn sysctl_command(&self, to: &str) -> String {
        let enter = self.namespace.as_deref().map_or_else(String::new, |path| {
            format!("nsenter --net={} ", path.display())
        });
        format!("{enter}sysctl -w net.ipv4.tcp_congestion_control={to}")
    }

    fn write(&self, to: &str) -> io::Result<()> {
        let write = || fs::write(DEFAULT_SYSCTL, to);
        match &self.namespace {
            None => write(),
            Some(path) => namespace::run_inside(&File::open(path)?, write),
        }
    }
}

/// A default that could not be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot change net.ipv4.tcp_congestion_control of {}, which is {}; run `{}` and try again",
    .default.namespace_description(), .default.control, .default.sysctl_command(.to)
)]
pub struct DefaultError {
    /// The default that could not be replaced.
    pub default: DefaultControl,
    /// Name of the intended replacement.
    pub to: String,
    /// Error of the system call.
    #[source]
    pub source: io::Error,
}

/// Returns the default of every network namespace that this process can enter, its own first.
pub fn defaults() -> Vec<DefaultControl> {
    let available = fs::read_to_string(AVAILABLE_SYSCTL).unwrap_or_default();
    let available: Vec<&str> = available.split_whitespace().collect();
    let read = || fs::read_to_string(DEFAULT_SYSCTL);
    let default = |namespace: Option<PathBuf>, text: String| {
        let control = text.trim().to_owned();
        let orphaned =
            !control.is_empty() && !available.is_empty() && !available.contains(&control.as_str());
        DefaultControl {
            namespace,
            control,
            orphaned,
        }
    };
    let number = |file: &File| {
        file.metadata()
            .map(|status| (status.dev(), status.ino()))
            .ok()
    };
    let own = namespace::open_own().ok().as_ref().and_then(number);
    let here = read().ok().map(|text| default(None, text));
    let others = namespace::open_all_with_paths()
        .into_iter()
        .filter(|(_, file)| own.is_none() || number(file) != own)
        .filter_map(|(path, file)| {
            Some(default(
                Some(path),
                namespace::run_inside(&file, read).ok()?,
            ))
        });
    here.into_iter().chain(others).collect()
}

/// Replaces the registration `only` wherever it is the default. Without `only`, replaces every
/// attached registration and every orphan of ccplane. Returns the former defaults, each with its
/// replacement.
///
/// # Errors
/// The first default that could not be replaced. The others are replaced nevertheless.
pub fn restore(
    only: Option<&str>,
    to: Option<&str>,
) -> Result<Vec<(DefaultControl, String)>, Box<DefaultError>> {
    let attached = pin::attached();
    let ours = |default: &DefaultControl| match only {
        Some(only) => default.control == only,
        None => {
            attached.contains(&default.control)
                || (default.orphaned && default.control.starts_with("ccp_"))
        }
    };
    let all = defaults();
    let own = all
        .first()
        .filter(|first| first.namespace.is_none() && !first.orphaned && !ours(first));
    let candidates: Vec<&str> = match to {
        Some(to) => vec![to],
        None => own
            .map(|own| own.control.as_str())
            .into_iter()
            .chain(NATIVE_CONTROLS)
            .collect(),
    };
    let (mut restored, mut failed) = (Vec::new(), None);
    for default in all.iter().filter(|default| ours(default)) {
        match replace(default, &candidates) {
            Ok(to) => restored.push((default.clone(), to)),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(restored), |error| Err(Box::new(error)))
}

/// Writes the first of `candidates` that the namespace accepts.
fn replace(default: &DefaultControl, candidates: &[&str]) -> Result<String, DefaultError> {
    let mut failed = None;
    for to in candidates {
        match default.write(to) {
            Ok(()) => return Ok((*to).to_owned()),
            Err(source) => failed = failed.or(Some((to, source))),
        }
    }
    let (to, source) = failed.unwrap_or((&NATIVE_CONTROLS[1], io::ErrorKind::NotFound.into()));
    Err(DefaultError {
        default: default.clone(),
        to: (*to).to_owned(),
        source,
    })
}

/// Rewrites every default with the name of a new registration, since the kernel still refers to the
/// previous object.
///
/// # Errors
/// The first default that could not be written.
pub fn rebind(name: &str) -> Result<(), Box<DefaultError>> {
    let bound = defaults()
        .into_iter()
        .filter(|default| default.control == name);
    let failed: Option<DefaultError> = bound
        .filter_map(|default| replace(&default, &[name]).err())
        .reduce(|first, _| first);
    failed.map_or(Ok(()), |error| Err(Box::new(error)))
}
