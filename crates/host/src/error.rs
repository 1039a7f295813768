//! Errors of this crate, each with the cause and the remedy.

use std::io;

/// A namespace or a device could not be created or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process lacks the privileges for namespaces and devices.
    #[error("no permission to {what}; run as root, or with CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    Permission {
        /// Operation that failed.
        what: String,
    },
    /// The kernel or the container has no TUN driver.
    #[error(
        "/dev/net/tun does not exist; load the module with `modprobe tun`, or pass the device to \
        the container"
    )]
    NoTunDriver,
    /// The name is in use.
    #[error(
        "{what} already exists; choose another name, or remove it if it is unused (`{remove}`)"
    )]
    Exists {
        /// Kind and name of the existing object.
        what: String,
        /// Command that removes it.
        remove: String,
    },
    /// Another process holds the device.
    #[error("another process uses the interface {name}; stop that process or choose another name")]
    InUse {
        /// Name of the interface.
        name: String,
    },
    /// The interface is not a single-queue TUN device, the only kind that can be adopted.
    #[error(
        "the interface {name} is not a TUN device of ccplane, so it cannot be adopted or removed; \
        choose another name"
    )]
    NotTun {
        /// Name of the interface.
        name: String,
    },
    /// The host's own traffic depends on the interface.
    #[error(
        "the interface {name} carries a default route, and taking it over would disconnect this \
        host; use another interface"
    )]
    CarriesDefaultRoute {
        /// Name of the interface.
        name: String,
    },
    /// The interface is not Ethernet, as a wire requires.
    #[error(
        "the interface {name} is not Ethernet, so it cannot be joined to another; `ip link` shows \
        its type"
    )]
    NotEthernet {
        /// Name of the interface.
        name: String,
    },
    /// IPv4 forwarding is disabled, so address translation would have no effect.
    #[error(
        "this host does not forward packets (net.ipv4.ip_forward is 0); enable it with `sysctl -w \
        net.ipv4.ip_forward=1`"
    )]
    NotForwarding,
    /// nftables, which address translation requires, is not installed.
    #[error(
        "address translation needs the program nft, which is not installed; install it with \
        `apt-get install nftables`"
    )]
    NoNft,
    /// The name is not valid for an interface or a namespace.
    #[error("`{name}` is not a valid name for {what}: {why}")]
    BadName {
        /// The given name.
        name: String,
        /// Kind of object that it should name.
        what: &'static str,
        /// Rule that it violates.
        why: &'static str,
    },
    /// Any other error of the system.
    #[error("cannot {what}: {source}")]
    System {
        /// Operation that failed.
        what: String,
        /// Error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Returns the error of operation `what`, which failed with `source`.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        let (what, source) = (what.into(), source.into());
        match source.kind() {
            io::ErrorKind::PermissionDenied => Error::Permission { what },
            _ => Error::System { what, source },
        }
    }
}
