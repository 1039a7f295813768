//! Identity of this host, and its form on a command line, for `ccplane send` and `recv`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ccplane_link::identity::{Fingerprint, Identity};

use crate::exit::{Failure, FailureKind};
use crate::steering::resolve;

/// Loads the identity in `file`, or in the default file; creates it if there is none.
pub fn load(file: Option<&Path>) -> Result<Identity, Failure> {
    let file = match file {
        Some(file) => file.to_owned(),
        None => default_path().ok_or_else(|| {
            Failure::text(
                FailureKind::Usage,
                "no folder for the certificate: HOME is not set",
            )
            .hint("give a file with --identity FILE")
        })?,
    };
    Identity::load(&file).map_err(|why| Failure::new(FailureKind::Usage, why))
}

/// Loads the identity without creating it: `None` if `file` is not given and the default file does
/// not exist.
pub fn load_known(file: Option<&Path>) -> Result<Option<Identity>, Failure> {
    let known = file.is_some() || default_path().is_some_and(|place| place.exists());
    known.then(|| load(file)).transpose()
}

fn default_path() -> Option<PathBuf> {
    let of = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let configuration =
        of("XDG_CONFIG_HOME").or_else(|| of("HOME").map(|home| home.join(".config")));
    configuration.map(|configuration| configuration.join("ccplane/identity"))
}

/// Parses the address and fingerprint of a receiver, as `ccplane recv` prints them on the other
/// host. A remote address without a fingerprint is refused unless `insecure` is set.
pub fn receiver(to: &str, insecure: bool) -> Result<(SocketAddr, Option<Fingerprint>), Failure> {
    let (address, fingerprint) = match to.split_once('#') {
        Some((address, fingerprint)) => (address, Some(fingerprint)),
        None => (to, None),
    };
    let fingerprint = fingerprint.map(str::parse::<Fingerprint>).transpose();
    let fingerprint = fingerprint.map_err(|why| {
        Failure::new(FailureKind::Usage, why)
            .hint("use the complete command that `ccplane recv` prints")
    })?;
    let to = resolve(
        address,
        "use HOST:PORT#FINGERPRINT, as `ccplane recv` prints it",
    )?;
    if fingerprint.is_none() && !insecure && !to.ip().to_canonical().is_loopback() {
        let text = format!(
            "{to} without a fingerprint: anyone on the path could impersonate the receiver"
        );
        let hint = "add the #FINGERPRINT that `ccplane recv` prints there, or use --insecure";
        return Err(Failure::text(FailureKind::Usage, text).hint(hint));
    }
    Ok((to, fingerprint))
}

/// Returns the address by which others reach this host, as far as it is known.
pub fn reached(local: SocketAddr) -> String {
    if !local.ip().is_unspecified() {
        return local.to_string();
    }
    let name = fs::read_to_string("/proc/sys/kernel/hostname");
    format!(
        "{}:{}",
        name.as_deref().map_or("HOST", str::trim),
        local.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_receivers_require_a_fingerprint_or_insecure() {
        let print = "ab".repeat(32);
        let known = receiver(&format!("192.0.2.1:4790#{print}"), false).unwrap();
        assert_eq!(known.0, "192.0.2.1:4790".parse().unwrap());
        assert_eq!(known.1.unwrap().to_string(), print);
        assert_eq!(receiver("127.0.0.1:4790", false).unwrap().1, None);
        assert_eq!(receiver("192.0.2.1:4790", true).unwrap().1, None);
        let why = receiver("192.0.2.1:4790", false).unwrap_err();
        assert!(why.to_string().contains("without a fingerprint"), "{why}");
        for bad in [
            "192.0.2.1:4790#",
            "192.0.2.1:4790#abcd",
            "127.0.0.1:4790#zz",
        ] {
            let why = receiver(bad, false).unwrap_err();
            assert!(why.to_string().contains("64 hexadecimal digits"), "{why}");
        }
    }
}
