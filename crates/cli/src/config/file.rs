//! Configuration as written in the file, before any check across settings.

use std::path::PathBuf;

use ccplane_gateway::config::{ListenAddress, Ports};
use ccplane_lab::Contender;
use ccplane_scenario::SpannedValue;
use ccplane_units::{Bytes, Duration, Prefix, Rate};
use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigFile {
    pub algorithms: Option<Spanned<Vec<SpannedValue<Contender>>>>,
    pub metrics: Option<SpannedValue<ListenAddress>>,
    pub keep: Option<Spanned<bool>>,
    pub any_user: Option<Spanned<bool>>,
    #[serde(default)]
    pub limits: LimitsTable,
    #[serde(default)]
    pub rule: Vec<Spanned<Rule>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsTable {
    pub min_cwnd: Option<SpannedValue<Bytes>>,
    pub max_cwnd: Option<SpannedValue<Bytes>>,
    pub max_rate: Option<SpannedValue<Rate>>,
    pub fallback_after: Option<SpannedValue<Duration>>,
    pub max_flows: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub algorithm: Spanned<String>,
    pub cgroup: Option<Spanned<PathBuf>>,
    pub to: Option<SpannedValue<Prefix>>,
    pub port: Option<SpannedValue<Ports>>,
    #[serde(default)]
    pub system: bool,
    pub percent: Option<Spanned<i64>>,
}
