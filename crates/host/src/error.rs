//! What can go wrong, with the cause and the way out.

use std::io;

/// Why a namespace or a device could not be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Namespaces and devices need privileges that this process does not have.
    #[error("no permission to {what}; run as root, or with CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    Permission {
        /// What was tried.
        what: String,
    },
    /// The kernel, or the container, has no TUN driver.
    #[error(
        "there is no /dev/net/tun; load the module with `modprobe tun`, or give the container that device"
    )]
    NoTunDriver,
    /// Something of that name is there already.
    #[error(
        "{what} exists already; choose another name, or remove it if nobody uses it (`{remove}`)"
    )]
    Exists {
        /// The kind and name of what is there.
        what: String,
        /// The command that removes it.
        remove: String,
    },
    /// Another process has the device.
    #[error("another process holds the interface {name}; end it first, or choose another name")]
    InUse {
        /// The interface.
        name: String,
    },
    /// An interface that is no TUN device of one queue, which alone can be adopted.
    #[error(
        "the interface {name} is not a TUN device of ours: only such a one can be taken over or removed; choose another name"
    )]
    NotTun {
        /// The interface.
        name: String,
    },
    /// An interface that this host's own traffic depends on.
    #[error(
        "the interface {name} carries a default route: taking it over would cut this host off; use one that does not"
    )]
    CarriesDefaultRoute {
        /// The interface.
        name: String,
    },
    /// A wire is Ethernet's.
    #[error(
        "the interface {name} is not Ethernet, which alone can be joined to another; `ip link` says what it is"
    )]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// The kernel forwards nothing, so that translating addresses would not help.
    #[error(
        "this host does not forward packets (net.ipv4.ip_forward is 0); to let it: `sysctl -w net.ipv4.ip_forward=1`"
    )]
    NotForwarding,
    /// Addresses are translated by nftables.
    #[error(
        "translating addresses needs the program nft, and there is none; install it: `apt-get install nftables`"
    )]
    NoNft,
    /// A name that cannot be an interface's or a namespace's.
    #[error("`{name}` is no name for {what}: {why}")]
    BadName {
        /// The name given.
        name: String,
        /// What it should have named.
        what: &'static str,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// Any other refusal by the system.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// The error for `what` that the system refused with `source`.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        let (what, source) = (what.into(), source.into());
        match source.kind() {
            io::ErrorKind::PermissionDenied => Error::Permission { what },
            _ => Error::System { what, source },
        }
    }
}
