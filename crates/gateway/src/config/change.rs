//! Differences between two configurations, so that a reload touches only what changed.

use std::fmt;

use super::{GatewayConfig, PeerConfig};
use crate::keys::PublicKey;

/// One difference. Peers are matched by public key.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigChange {
    /// A new peer.
    Added(Box<PeerConfig>),
    /// A peer that is no longer configured.
    Removed {
        /// Public key of the removed peer.
        public_key: PublicKey,
        /// Name of the removed peer.
        name: String,
    },
    /// A peer whose settings changed.
    Changed {
        /// Old settings.
        from: Box<PeerConfig>,
        /// New settings.
        to: Box<PeerConfig>,
    },
    /// The traffic classes changed.
    Classes,
    /// The uplink rate, shared by all peers, changed.
    Uplink,
    /// Copying of the DSCP to the outer header was switched on or off.
    CopyDscp,
    /// A setting that cannot change while the gateway runs.
    Fixed(&'static str),
}

impl ConfigChange {
    /// Returns whether the change needs a restart.
    pub fn is_fixed(&self) -> bool {
        matches!(self, ConfigChange::Fixed(_))
    }
}

/// Returns the changes that turn one configuration into the other; empty if they are equal. The
/// order of peers does not matter.
pub fn changes(from: &GatewayConfig, to: &GatewayConfig) -> Vec<ConfigChange> {
    let (a, b) = (&from.site, &to.site);
    let fixed = [
        // Compares the file name only; the key itself is read at startup.
        ("`key` of the site", a.key != b.key),
        ("`listen` of the site", a.listen != b.listen),
        ("`device` of the site", a.device != b.device),
        ("`addresses` of the site", a.addresses != b.addresses),
        ("`mtu` of the site", a.mtu != b.mtu),
        ("`listen` of the metrics", from.metrics != to.metrics),
    ];
    let of = |config: &GatewayConfig, key: PublicKey| {
        config
            .peers
            .iter()
            .find(|peer| peer.public_key == key)
            .cloned()
    };
    let mut all: Vec<ConfigChange> = Vec::new();
    all.extend(
        fixed
            .into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(name, _)| ConfigChange::Fixed(name)),
    );
    all.extend(
        from.peers
            .iter()
            .filter(|peer| of(to, peer.public_key).is_none())
            .map(|peer| ConfigChange::Removed {
                public_key: peer.public_key,
                name: peer.name.clone(),
            }),
    );
    for peer in &to.peers {
        let to = Box::new(peer.clone());
        match of(from, peer.public_key) {
            None => all.push(ConfigChange::Added(to)),
            Some(before) if before != *peer => all.push(ConfigChange::Changed {
                from: Box::new(before),
                to,
            }),
            Some(_) => {}
        }
    }
    let rest = [
        (ConfigChange::Classes, from.classes != to.classes),
        (ConfigChange::Uplink, a.uplink_rate != b.uplink_rate),
        (ConfigChange::CopyDscp, a.copy_dscp != b.copy_dscp),
    ];
    all.extend(
        rest.into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(change, _)| change),
    );
    all
}

impl fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigChange::Added(peer) => write!(f, "peer `{}` added", peer.name),
            ConfigChange::Removed { name, .. } => write!(f, "peer `{name}` removed"),
            ConfigChange::Changed { from, to } => {
                write!(
                    f,
                    "peer `{}` changed: {}",
                    from.name,
                    differences(from, to).join(", ")
                )
            }
            ConfigChange::Classes => f.write_str("classes changed"),
            ConfigChange::Uplink => f.write_str("uplink_rate changed"),
            ConfigChange::CopyDscp => f.write_str("copy_dscp changed"),
            ConfigChange::Fixed(name) => write!(f, "{name} changed, which requires a restart"),
        }
    }
}

/// Returns the names of the settings that differ.
fn differences(a: &PeerConfig, b: &PeerConfig) -> Vec<&'static str> {
    let all = [
        ("name", a.name != b.name),
        ("preshared_key", a.preshared_key != b.preshared_key),
        ("endpoint", a.endpoint != b.endpoint),
        ("prefixes", a.prefixes != b.prefixes),
        ("address", a.address != b.address),
        ("algorithm", a.algorithm != b.algorithm),
        ("queue", a.queue != b.queue),
        ("buffer", a.buffer != b.buffer),
        ("min", a.min_rate != b.min_rate),
        ("max", a.max_rate != b.max_rate),
    ];
    all.into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(name, _)| name)
        .collect()
}
