//! The configuration file's syntax, before settings are checked against each other.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ccplane_qdisc::QueueSpec;
use ccplane_scenario::ParsedValue;
use ccplane_units::{Duration, Prefix, Rate};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::classes::{Dscp, Ports, Protocol};
use super::{AlgorithmSpec, PeerEndpoint};
use crate::address::InterfaceAddress;
use crate::keys::{PresharedKey, PublicKey};

/// Parsed quantity with its span in the file.
pub(super) type GatewayQuantity<T> = Spanned<ParsedValue<T>>;

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
    pub listen: GatewayQuantity<Listen>,
    pub device: Option<Spanned<String>>,
    pub addresses: Spanned<Vec<GatewayQuantity<InterfaceAddress>>>,
    pub mtu: Option<Spanned<u32>>,
    pub uplink_rate: Option<GatewayQuantity<Rate>>,
    #[serde(default)]
    pub copy_dscp: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    pub listen: GatewayQuantity<MetricsListen>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerTable {
    pub name: Option<Spanned<String>>,
    pub public_key: GatewayQuantity<PublicKey>,
    pub preshared_key: Option<GatewayQuantity<PresharedKey>>,
    pub endpoint: Option<GatewayQuantity<PeerEndpoint>>,
    pub prefixes: Spanned<Vec<GatewayQuantity<Prefix>>>,
    pub address: Option<GatewayQuantity<FarEnd>>,
    pub algorithm: Option<GatewayQuantity<AlgorithmSpec>>,
    pub queue: Option<GatewayQuantity<QueueSpec>>,
    pub buffer: Option<GatewayQuantity<Duration>>,
    pub min: Option<GatewayQuantity<Rate>>,
    pub max: Option<GatewayQuantity<Rate>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassTable {
    pub name: Option<Spanned<String>>,
    #[serde(rename = "match")]
    pub matches: Option<Spanned<Match>>,
    pub level: Option<Spanned<u8>>,
    pub weight: Option<Spanned<u32>>,
    pub queue: Option<GatewayQuantity<QueueSpec>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Match {
    #[serde(default)]
    pub dscp: ValueOrList<Dscp>,
    #[serde(default)]
    pub prefix: ValueOrList<Prefix>,
    #[serde(default)]
    pub port: ValueOrList<Ports>,
    #[serde(default)]
    pub proto: ValueOrList<Protocol>,
}

/// Address of the UDP socket.
pub(super) struct Listen(pub SocketAddr);

/// Address of the metrics endpoint.
pub(super) struct MetricsListen(pub SocketAddr);

/// Tunnel address of a peer.
#[derive(Clone, Copy)]
pub(super) struct FarEnd(pub IpAddr);

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Listen, &'static str> {
        let no =
            |_| "not an address and port; write 0.0.0.0:51820, or [::]:51820 for both families";
        text.trim().parse().map(Listen).map_err(no)
    }
}

impl FromStr for MetricsListen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<MetricsListen, &'static str> {
        let no = |_| "not an address and port; write 127.0.0.1:9465";
        text.trim().parse().map(MetricsListen).map_err(no)
    }
}

impl FromStr for FarEnd {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<FarEnd, &'static str> {
        text.trim()
            .parse()
            .map(FarEnd)
            .map_err(|_| "not an IP address; write 10.7.0.2 or fd07::2")
    }
}

/// A single value, or a list of values.
pub(super) struct ValueOrList<T>(pub Vec<T>);

impl<T> Default for ValueOrList<T> {
    fn default() -> ValueOrList<T> {
        ValueOrList(Vec::new())
    }
}

impl<'de, T> Deserialize<'de> for ValueOrList<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ValueOrList<T>, D::Error> {
        deserializer
            .deserialize_any(ValueOrListVisitor(PhantomData))
            .map(ValueOrList)
    }
}

struct ValueOrListVisitor<T>(PhantomData<T>);

impl<'de, T> Visitor<'de> for ValueOrListVisitor<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number, or a list of them")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(ParsedValue(element)) = elements.next_element::<ParsedValue<T>>()? {
            all.push(element);
        }
        Ok(all)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        let ParsedValue(one) =
            ParsedValue::<T>::deserialize(de::value::StrDeserializer::<E>::new(text))?;
        Ok(vec![one])
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<T>, E> {
        self.visit_str(&number.to_string())
    }
}
