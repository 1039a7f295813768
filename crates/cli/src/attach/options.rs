//! Options of `attach` on the command line and in the environment. Options that a configuration
//! file can also set are an `Option`: `None` defers to the file, then to the default.

use std::net::SocketAddr;
use std::path::PathBuf;

use ccplane_agent::Tag;
use ccplane_gateway::config::Ports;
use ccplane_lab::Contender;
use ccplane_units::{Bytes, Duration, Rate};
use clap::Args;

use crate::paths::PathsArgs;
use crate::remote_agent::RemoteAgentArgs;

fn kernel_name(name: &str) -> Result<String, String> {
    match ccplane_linux::is_kernel_name(name) && name.len() > "ccp_".len() {
        true => Ok(name.to_owned()),
        false => Err(
            "expected `ccp_` followed by up to eleven letters, digits, `_` or `.`, such as \
             ccp_east"
                .to_owned(),
        ),
    }
}

#[derive(Args)]
pub struct AttachArgs {
    /// Configuration file [default: /etc/ccplane/ccplane.toml, if it exists]. Options and
    /// environment variables override it.
    #[arg(
        long,
        value_name = "FILE",
        env = "CCPLANE_CONFIG",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
    /// Algorithms, separated by commas, with parameters: `cubic:report=10ms`. Sockets select them
    /// as ccp_NAME. They replace the configuration's algorithms and its rules.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        env = "CCPLANE_ALG",
        hide_env_values = true
    )]
    pub(crate) alg: Vec<Contender>,
    #[command(flatten)]
    pub(crate) remote_agent: RemoteAgentArgs,
    /// Name of the algorithm in the kernel, in place of ccp_NAME: `ccp_east`. All network
    /// namespaces of a kernel share these names, so a second `attach` of the same algorithm needs
    /// another one, and its own --state and --bpffs.
    #[arg(long, value_name = "NAME", value_parser = kernel_name)]
    pub(crate) kernel_name: Option<String>,
    /// Tag passed to the algorithm with every flow, for algorithms that control groups of flows:
    /// `site=paris`. At most 8 tags of 64 bytes each.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) tag: Vec<Tag>,
    /// Also control new connections of this cgroup, with the first algorithm. This option and the
    /// next three replace the configuration's rules.
    #[arg(
        long,
        value_name = "PATH",
        env = "CCPLANE_CGROUP",
        hide_env_values = true
    )]
    pub(crate) cgroup: Option<PathBuf>,
    /// Also control new connections to this prefix, with the first algorithm.
    #[arg(
        long,
        value_name = "PREFIX",
        env = "CCPLANE_TO",
        hide_env_values = true
    )]
    pub(crate) to: Option<String>,
    /// Also control new connections of these server ports, with the first algorithm: `443`,
    /// `8000-8999`. The server port is the peer's for connections opened here, and this host's for
    /// accepted ones.
    #[arg(
        long,
        value_name = "PORTS",
        env = "CCPLANE_PORT",
        hide_env_values = true
    )]
    pub(crate) port: Option<Ports>,
    /// Also control all new connections of this host, with the first algorithm.
    #[arg(long, conflicts_with_all = ["cgroup", "to", "port"], env = "CCPLANE_SYSTEM", hide_env_values = true)]
    pub(crate) system: bool,
    /// Devices whose packets carry time stamps, for algorithms that use one-way delay, such as dx.
    /// Sockets of the cgroup, or of every process, offer and answer the time-stamp option
    /// (docs/one-way-delay.md).
    #[arg(long, value_name = "DEVICES", value_delimiter = ',')]
    pub(crate) dev: Vec<String>,
    /// Percentage of the selected connections to control, chosen at random.
    #[arg(long, value_name = "N", default_value_t = 100, env = "CCPLANE_PERCENT", hide_env_values = true, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) percent: u8,
    /// Upper limit on the pacing rate of every flow.
    #[arg(
        long,
        value_name = "RATE",
        env = "CCPLANE_MAX_RATE",
        hide_env_values = true
    )]
    pub(crate) max_rate: Option<Rate>,
    /// Lower limit on the window of every flow.
    #[arg(
        long,
        value_name = "BYTES",
        env = "CCPLANE_MIN_CWND",
        hide_env_values = true
    )]
    pub(crate) min_cwnd: Option<Bytes>,
    /// Upper limit on the window of every flow.
    #[arg(
        long,
        value_name = "BYTES",
        env = "CCPLANE_MAX_CWND",
        hide_env_values = true
    )]
    pub(crate) max_cwnd: Option<Bytes>,
    /// Agent timeout: after this time without a heartbeat, flows run on the datapath's own NewReno
    /// [default: 500ms; for an agent on another host, 3 round trips to it plus 200ms].
    #[arg(
        long,
        value_name = "TIME",
        env = "CCPLANE_FALLBACK_AFTER",
        hide_env_values = true
    )]
    pub(crate) fallback_after: Option<Duration>,
    /// Capacity of each algorithm's flow table. Flows beyond it run on the datapath's own NewReno
    /// until a slot is free [default: 65536, fewer on a host with little memory].
    #[arg(long, value_name = "N", env = "CCPLANE_MAX_FLOWS", hide_env_values = true, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) max_flows: Option<u32>,
    /// Let processes of every user select the algorithms; otherwise CAP_NET_ADMIN is required.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", env = "CCPLANE_ANY_USER", hide_env_values = true)]
    pub(crate) any_user: Option<bool>,
    #[command(flatten)]
    pub(crate) paths: PathsArgs,
    /// Address to serve Prometheus metrics on, under /metrics.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "CCPLANE_METRICS",
        hide_env_values = true
    )]
    pub(crate) metrics: Option<SocketAddr>,
    /// Keep the registration when this process ends, for the next `attach`. Until then, flows run
    /// on the fallback.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", env = "CCPLANE_KEEP", hide_env_values = true)]
    pub(crate) keep: Option<bool>,
    /// Watch algorithm files such as `./mine.ccp`: a changed file takes effect for live flows too;
    /// a file with errors changes nothing.
    #[arg(long, conflicts_with = "agent")]
    pub(crate) watch: bool,
    /// Run algorithms in Python inside this process, as this user. Without it, they run confined in
    /// a process of another user.
    #[arg(long)]
    pub(crate) trusted: bool,
    /// User that algorithms in Python run as, a name or a number [default: nobody, if started by
    /// root].
    #[arg(long = "as", value_name = "USER", conflicts_with = "trusted")]
    pub(crate) run_as: Option<String>,
}
