//! What `attach` is asked for on the command line or in the environment. What a file may say too is
//! an `Option`: `None` leaves it to the file, and then to the default.

use std::net::SocketAddr;
use std::path::PathBuf;

use ccplane_agent::Tag;
use ccplane_gateway::config::Ports;
use ccplane_lab::Contender;
use ccplane_units::{Bytes, Duration, Rate};
use clap::Args;

use crate::elsewhere::ElsewhereArgs;
use crate::places::PlacesArgs;

fn kernel_name(name: &str) -> Result<String, String> {
    match ccplane_linux::is_kernel_name(name) && name.len() > "ccp_".len() {
        true => Ok(name.to_owned()),
        false => Err(
            "a name is `ccp_` and up to eleven letters, digits, `_` or `.`: ccp_east".to_owned(),
        ),
    }
}

/// What to steer, and how far.
#[derive(Args)]
pub struct AttachArgs {
    /// Read this configuration [default: /etc/ccplane/ccplane.toml, if it is there]. Options, and
    /// variables of the environment, are above what it says.
    #[arg(
        long,
        value_name = "FILE",
        env = "CCPLANE_CONFIG",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
    /// Algorithms, separated by commas; with parameters: `cubic:report=10ms`. Sockets choose them
    /// as ccp_NAME. They replace those of the configuration, and its rules.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        env = "CCPLANE_ALG",
        hide_env_values = true
    )]
    pub(crate) alg: Vec<Contender>,
    #[command(flatten)]
    pub(crate) elsewhere: ElsewhereArgs,
    /// Register the algorithm under this name in the kernel, not as ccp_NAME: `ccp_east`. Names are
    /// one for all network namespaces of a kernel, so that a second `attach` of the same algorithm
    /// needs another, and its own --state and --bpffs.
    #[arg(long, value_name = "NAME", value_parser = kernel_name)]
    pub(crate) kernel_name: Option<String>,
    /// Say this of every flow to its algorithm, for one that decides over groups of flows:
    /// `site=paris`. Up to 8 times, of 64 bytes each.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) tag: Vec<Tag>,
    /// Also steer new connections of this cgroup, with the first algorithm. This and the next three
    /// replace the configuration's rules.
    #[arg(
        long,
        value_name = "PATH",
        env = "CCPLANE_CGROUP",
        hide_env_values = true
    )]
    pub(crate) cgroup: Option<PathBuf>,
    /// Also steer new connections to this prefix, with the first algorithm.
    #[arg(
        long,
        value_name = "PREFIX",
        env = "CCPLANE_TO",
        hide_env_values = true
    )]
    pub(crate) to: Option<String>,
    /// Also steer new connections to servers' ports: `443`, `8000-8999`. The peer's port of a
    /// connection that is made here, this host's of one that is accepted; with the first algorithm.
    #[arg(
        long,
        value_name = "PORTS",
        env = "CCPLANE_PORT",
        hide_env_values = true
    )]
    pub(crate) port: Option<Ports>,
    /// Also steer all new connections of this host, with the first algorithm.
    #[arg(long, conflicts_with_all = ["cgroup", "to", "port"], env = "CCPLANE_SYSTEM", hide_env_values = true)]
    pub(crate) system: bool,
    /// Stamp what leaves and comes by these devices, for an algorithm that wants one-way delay,
    /// such as dx: sockets of the cgroup, or of every process, offer and answer the option of time
    /// stamps (docs/one-way-delay.md).
    #[arg(long, value_name = "DEVICES", value_delimiter = ',')]
    pub(crate) dev: Vec<String>,
    /// Steer only this share of the connections so selected, chosen at random.
    #[arg(long, value_name = "N", default_value_t = 100, env = "CCPLANE_PERCENT", hide_env_values = true, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) percent: u8,
    /// Owner's limit: no flow paces faster.
    #[arg(
        long,
        value_name = "RATE",
        env = "CCPLANE_MAX_RATE",
        hide_env_values = true
    )]
    pub(crate) max_rate: Option<Rate>,
    /// Owner's limit: no window is smaller.
    #[arg(
        long,
        value_name = "BYTES",
        env = "CCPLANE_MIN_CWND",
        hide_env_values = true
    )]
    pub(crate) min_cwnd: Option<Bytes>,
    /// Owner's limit: no window is larger.
    #[arg(
        long,
        value_name = "BYTES",
        env = "CCPLANE_MAX_CWND",
        hide_env_values = true
    )]
    pub(crate) max_cwnd: Option<Bytes>,
    /// Owner's limit: after this long without a sign of the agent, flows run on the datapath's own
    /// NewReno [default: 500ms, of an agent on another host 3 round trips to it and 200ms].
    #[arg(
        long,
        value_name = "TIME",
        env = "CCPLANE_FALLBACK_AFTER",
        hide_env_values = true
    )]
    pub(crate) fallback_after: Option<Duration>,
    /// Flows that the table of each algorithm holds; further ones run on the datapath's own NewReno
    /// until a place is free [default: 65536, of a host with little memory fewer].
    #[arg(long, value_name = "N", env = "CCPLANE_MAX_FLOWS", hide_env_values = true, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) max_flows: Option<u32>,
    /// Let processes of every user choose the algorithms; else only those with CAP_NET_ADMIN may.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", env = "CCPLANE_ANY_USER", hide_env_values = true)]
    pub(crate) any_user: Option<bool>,
    #[command(flatten)]
    pub(crate) places: PlacesArgs,
    /// Serve Prometheus figures here, under /metrics.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "CCPLANE_METRICS",
        hide_env_values = true
    )]
    pub(crate) metrics: Option<SocketAddr>,
    /// Leave the registration when this process ends, for the next `attach`; in between, flows run
    /// on the fallback.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", env = "CCPLANE_KEEP", hide_env_values = true)]
    pub(crate) keep: Option<bool>,
    /// Watch the files of algorithms such as `./mine.ccp`: one that has changed comes into force
    /// for live flows too, one that has become wrong changes nothing.
    #[arg(long, conflicts_with = "agent")]
    pub(crate) watch: bool,
    /// Run algorithms that are Python files in this process, as this user. Without it, a process of
    /// another user runs them, confined.
    #[arg(long)]
    pub(crate) trusted: bool,
    /// Run algorithms that are Python files as this user, a name or a number [default: nobody, if
    /// root calls].
    #[arg(long = "as", value_name = "USER", conflicts_with = "trusted")]
    pub(crate) run_as: Option<String>,
}
