//! `ccplane gateway check`: the effect of a configuration, in full.

use std::path::Path;

use ccplane_gateway::config::{ClassConfig, GatewayConfig, Match, PeerConfig};

use super::read;
use crate::Registry;
use crate::exit::Failure;

pub fn run(file: &Path, registry: &Registry, json: bool) -> Result<(), Failure> {
    let (config, key) = read(file, registry)?;
    let public = key.public().to_string();
    if json {
        let peers: Vec<_> = config.peers.iter().map(|peer| peer.name.as_str()).collect();
        let classes: Vec<_> = config
            .classes
            .iter()
            .map(|class| class.name.as_str())
            .collect();
        let object = serde_json::json!({
            "file": file, "public_key": public, "peers": peers, "classes": classes,
            "effective": config.without_secrets().to_string(),
        });
        println!("{object}");
        return Ok(());
    }
    let site = &config.site;
    println!("{}: no errors", file.display());
    println!("  this site    key {public}");
    println!("               listens on {}, UDP", site.listen);
    let addresses: Vec<String> = site.addresses.iter().map(ToString::to_string).collect();
    println!(
        "               creates interface {} with {}, packets of up to {} bytes",
        site.device,
        addresses.join(" and "),
        site.mtu
    );
    if let Some(rate) = site.uplink_rate {
        println!("               limits the total rate of all peers to {rate}");
    }
    if site.copy_dscp {
        println!("               copies the DSCP of each packet to the outer header");
    }
    if let Some(address) = config.metrics {
        println!("               serves metrics at http://{address}/metrics");
    }
    config
        .peers
        .iter()
        .for_each(|peer| show_peer(&config, peer));
    if config.classes.len() > 1 {
        config.classes.iter().for_each(show_class);
    }
    println!("\n# With all defaults{}", hidden(&config));
    println!("{}", config.without_secrets());
    Ok(())
}

/// Returns the heading's note on secrets, which are not printed.
fn hidden(config: &GatewayConfig) -> &'static str {
    match config.peers.iter().any(|peer| peer.preshared_key.is_some()) {
        true => ", without `preshared_key`",
        false => "",
    }
}

fn show_peer(config: &GatewayConfig, peer: &PeerConfig) {
    println!("  peer {}", peer.name);
    println!("               key {}", peer.public_key);
    if peer.preshared_key.is_some() {
        println!("               has a preshared key (hidden)");
    }
    match &peer.endpoint {
        Some(endpoint) => println!("               endpoint {endpoint}"),
        None => println!(
            "               has no endpoint here: it must initiate the handshake, from any address"
        ),
    }
    let prefixes: Vec<String> = peer.prefixes.iter().map(ToString::to_string).collect();
    println!(
        "               receives packets to {}; packets from other sources are dropped",
        prefixes.join(", ")
    );
    for (outer, other) in within(config, peer) {
        println!(
            "               except {outer}, which is part of these prefixes and belongs to {other}"
        );
    }
    match peer.address {
        Some(address) => {
            println!("               is measured through {address}, its tunnel address")
        }
        None => println!(
            "               is neither measured nor shaped: no prefix is a single address; set \
             `address` to its tunnel address"
        ),
    }
    let most = peer
        .effective_max_rate(&config.site)
        .map_or("no limit".to_owned(), |rate| rate.to_string());
    println!(
        "               rate set by {}, {} to {most}",
        peer.algorithm, peer.min_rate
    );
    println!("               queue {}", peer.limited_queue(&config.site));
}

fn show_class(class: &ClassConfig) {
    let what = class
        .matches
        .as_ref()
        .map_or("all other packets".to_owned(), Match::to_string);
    let queue = class
        .queue
        .map_or("the peer's".to_owned(), |queue| queue.to_string());
    println!("  class {}", class.name);
    println!("               {what}");
    println!(
        "               level {}, weight {}, queue {queue}",
        class.level, class.weight
    );
}

/// Returns longer prefixes of other peers that lie within this peer's, with the peers' names.
fn within<'a>(config: &'a GatewayConfig, peer: &'a PeerConfig) -> Vec<(String, &'a str)> {
    let others = config
        .peers
        .iter()
        .filter(|other| other.public_key != peer.public_key);
    others
        .flat_map(|other| other.prefixes.iter().map(move |prefix| (prefix, other)))
        .filter(|(inner, _)| peer.prefixes.iter().any(|outer| outer.covers(inner)))
        .map(|(inner, other)| (inner.to_string(), other.name.as_str()))
        .collect()
}
