//! Prints a configuration as a file, with every default written out.

use std::fmt::{self, Display};

use ccplane_scenario::{toml_list as list, toml_string as text};

use super::{ClassConfig, GatewayConfig, Match, PeerConfig};

impl Display for GatewayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let site = &self.site;
        writeln!(f, "[site]")?;
        writeln!(f, "key = {}", text(site.key.to_string_lossy()))?;
        writeln!(f, "listen = {}", text(site.listen))?;
        writeln!(f, "device = {}", text(&site.device))?;
        writeln!(f, "addresses = {}", list(&site.addresses))?;
        writeln!(f, "mtu = {}", site.mtu)?;
        if let Some(rate) = site.uplink_rate {
            writeln!(f, "uplink_rate = {}", text(rate))?;
        }
        writeln!(f, "copy_dscp = {}", site.copy_dscp)?;
        self.peers.iter().try_for_each(|peer| self::peer(f, peer))?;
        self.classes
            .iter()
            .try_for_each(|class| self::class(f, class))?;
        match self.metrics {
            Some(metrics) => writeln!(f, "\n[metrics]\nlisten = {}", text(metrics)),
            None => Ok(()),
        }
    }
}

fn peer(f: &mut fmt::Formatter<'_>, peer: &PeerConfig) -> fmt::Result {
    writeln!(f, "\n[[peer]]\nname = {}", text(&peer.name))?;
    writeln!(f, "public_key = {}", text(peer.public_key))?;
    if let Some(key) = peer.preshared_key {
        writeln!(f, "preshared_key = {}", text(key))?;
    }
    if let Some(endpoint) = &peer.endpoint {
        writeln!(f, "endpoint = {}", text(endpoint))?;
    }
    writeln!(f, "prefixes = {}", list(&peer.prefixes))?;
    if let Some(address) = peer.address {
        writeln!(f, "address = {}", text(address))?;
    }
    writeln!(f, "algorithm = {}", text(&peer.algorithm))?;
    writeln!(f, "queue = {}", text(peer.queue))?;
    if let Some(buffer) = peer.buffer {
        writeln!(f, "buffer = {}", text(buffer))?;
    }
    writeln!(f, "min = {}", text(peer.min_rate))?;
    match peer.max_rate {
        Some(max) => writeln!(f, "max = {}", text(max)),
        None => Ok(()),
    }
}

fn class(f: &mut fmt::Formatter<'_>, class: &ClassConfig) -> fmt::Result {
    writeln!(f, "\n[[class]]\nname = {}", text(&class.name))?;
    if let Some(matches) = &class.matches {
        writeln!(f, "match = {{ {} }}", of(matches))?;
    }
    writeln!(f, "level = {}\nweight = {}", class.level, class.weight)?;
    match &class.queue {
        Some(queue) => writeln!(f, "queue = {}", text(queue)),
        None => Ok(()),
    }
}

/// Formats the conditions of a class, without the braces.
fn of(matches: &Match) -> String {
    fn setting<T: Display>(name: &str, values: &[T]) -> Option<String> {
        (!values.is_empty()).then(|| format!("{name} = {}", list(values)))
    }
    let parts = [
        setting("dscp", &matches.dscp),
        setting("prefix", &matches.prefixes),
        setting("port", &matches.ports),
        setting("proto", &matches.protocols),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
