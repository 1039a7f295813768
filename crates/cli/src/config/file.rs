//! The configuration as it stands in its file, before anything is checked against anything else.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use ccplane_gateway::config::Ports;
use ccplane_lab::Contender;
use ccplane_scenario::Text;
use ccplane_units::{Bytes, Duration, Prefix, Rate};
use serde::Deserialize;
use toml::Spanned;

/// A quantity with its place.
pub(super) type Q<T> = Spanned<Text<T>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub algorithms: Option<Spanned<Vec<Q<Contender>>>>,
    pub metrics: Option<Q<Listen>>,
    pub keep: Option<Spanned<bool>>,
    pub any_user: Option<Spanned<bool>>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub rule: Vec<Spanned<Rule>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub min_cwnd: Option<Q<Bytes>>,
    pub max_cwnd: Option<Q<Bytes>>,
    pub max_rate: Option<Q<Rate>>,
    pub fallback_after: Option<Q<Duration>>,
    pub max_flows: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub algorithm: Spanned<String>,
    pub cgroup: Option<Spanned<PathBuf>>,
    pub to: Option<Q<Prefix>>,
    pub port: Option<Q<Ports>>,
    #[serde(default)]
    pub system: bool,
    pub percent: Option<Spanned<i64>>,
}

/// Where metrics are served.
pub(super) struct Listen(pub SocketAddr);

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Listen, &'static str> {
        let no = |_| "no address and port; write them as 127.0.0.1:9464";
        text.trim().parse().map(Listen).map_err(no)
    }
}
