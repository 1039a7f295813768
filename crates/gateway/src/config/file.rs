//! The configuration file's syntax, before settings are checked against each other.

use std::net::IpAddr;
use std::str::FromStr;

use ccplane_qdisc::QueueSpec;
use ccplane_scenario::{ParsedValue, SpannedValue, ValueOrList};
use ccplane_units::{Duration, Prefix, Rate};
use serde::Deserialize;
use toml::Spanned;

use super::classes::{Dscp, Ports, Protocol};
use super::{AlgorithmSpec, GatewayMetricsService, ListenAddress, PeerEndpoint, TunnelService};
use crate::address::InterfaceAddress;
use crate::keys::{PresharedKey, PublicKey};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GatewayFile {
    pub site: SiteTable,
    #[serde(default)]
    pub peer: Vec<Spanned<PeerTable>>,
    #[serde(default)]
    pub class: Vec<Spanned<ClassTable>>,
    pub metrics: Option<Metrics>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SiteTable {
    pub key: Spanned<String>,
    pub listen: SpannedValue<ListenAddress<TunnelService>>,
    pub device: Option<Spanned<String>>,
    pub addresses: Spanned<Vec<SpannedValue<InterfaceAddress>>>,
    pub mtu: Option<Spanned<u32>>,
    pub uplink_rate: Option<SpannedValue<Rate>>,
    #[serde(default)]
    pub copy_dscp: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    pub listen: SpannedValue<ListenAddress<GatewayMetricsService>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerTable {
    pub name: Option<Spanned<String>>,
    pub public_key: SpannedValue<PublicKey>,
    pub preshared_key: Option<SpannedValue<PresharedKey>>,
    pub endpoint: Option<SpannedValue<PeerEndpoint>>,
    pub prefixes: Spanned<Vec<SpannedValue<Prefix>>>,
    pub address: Option<SpannedValue<FarEnd>>,
    pub algorithm: Option<SpannedValue<AlgorithmSpec>>,
    pub queue: Option<SpannedValue<QueueSpec>>,
    pub buffer: Option<SpannedValue<Duration>>,
    pub min: Option<SpannedValue<Rate>>,
    pub max: Option<SpannedValue<Rate>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassTable {
    pub name: Option<Spanned<String>>,
    #[serde(rename = "match")]
    pub matches: Option<Spanned<Match>>,
    pub level: Option<Spanned<u8>>,
    pub weight: Option<Spanned<u32>>,
    pub queue: Option<SpannedValue<QueueSpec>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Match {
    #[serde(default)]
    pub dscp: ValueOrList<ParsedValue<Dscp>>,
    #[serde(default)]
    pub prefix: ValueOrList<ParsedValue<Prefix>>,
    #[serde(default)]
    pub port: ValueOrList<ParsedValue<Ports>>,
    #[serde(default)]
    pub proto: ValueOrList<ParsedValue<Protocol>>,
}

/// Tunnel address of a peer.
#[derive(Clone, Copy)]
pub(super) struct FarEnd(pub IpAddr);

impl FromStr for FarEnd {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<FarEnd, &'static str> {
        text.trim()
            .parse()
            .map(FarEnd)
            .map_err(|_| "not an IP address; write 10.7.0.2 or fd07::2")
    }
}
