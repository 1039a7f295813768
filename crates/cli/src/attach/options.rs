//! Options of `attach` on the command line and in the environment. Options that a configuration
//! file can also set are an `Option`: `None` defers to the file, then to the default.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use ccplane_agent::Tag;
use ccplane_gateway::config::Ports;
use ccplane_lab::Contender;
use ccplane_units::{Bytes, Duration, Rate};
use clap::Args;

use crate::config::FLOW_TABLE_BOUNDS;
use crate::key_values;
use crate::remote_agent::RemoteAgentArgs;
use crate::sandbox::SandboxArgs;

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
    /// another one, and its own folders (docs/attach.md).
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
    /// Limits that the datapath enforces, with the names of the configuration's `[limits]`:
    /// `max_rate`, an upper limit on the pacing rate of every flow; `min_cwnd` and `max_cwnd`,
    /// limits on its window; `fallback_after`, the time without a heartbeat of the agent after
    /// which flows run on the datapath's own NewReno [default: 500ms; for an agent on another host,
    /// 3 round trips to it plus 200ms]; `max_flows`, the capacity of each algorithm's flow table
    /// [default: 65536, fewer on a host with little memory].
    #[arg(
        long,
        value_name = "SETTINGS",
        env = "CCPLANE_LIMITS",
        hide_env_values = true
    )]
    pub(crate) limits: Option<LimitsArg>,
    /// Let processes of every user select the algorithms; otherwise CAP_NET_ADMIN is required.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", env = "CCPLANE_ANY_USER", hide_env_values = true)]
    pub(crate) any_user: Option<bool>,
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
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// Limits on the command line or in the environment. `None`: not set there.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitsArg {
    pub(crate) min_cwnd: Option<Bytes>,
    pub(crate) max_cwnd: Option<Bytes>,
    pub(crate) max_rate: Option<Rate>,
    pub(crate) fallback_after: Option<Duration>,
    pub(crate) max_flows: Option<u32>,
}

impl FromStr for LimitsArg {
    type Err = String;

    fn from_str(text: &str) -> Result<LimitsArg, String> {
        const KEYS: [&str; 5] = [
            "max_rate",
            "min_cwnd",
            "max_cwnd",
            "fallback_after",
            "max_flows",
        ];
        let mut limits = LimitsArg::default();
        for setting in key_values::parse(text, &KEYS, "max_rate=1gbit,min_cwnd=4kB")? {
            match setting.key {
                "max_rate" => limits.max_rate = Some(setting.parse()?),
                "min_cwnd" => limits.min_cwnd = Some(setting.parse()?),
                "max_cwnd" => limits.max_cwnd = Some(setting.parse()?),
                "fallback_after" => limits.fallback_after = Some(setting.parse()?),
                "max_flows" => {
                    let slots: u32 = setting.parse()?;
                    if !FLOW_TABLE_BOUNDS.contains(&slots) {
                        let (least, most) = (FLOW_TABLE_BOUNDS.start(), FLOW_TABLE_BOUNDS.end());
                        return Err(setting.error(format!(
                            "`max_flows` is not a number from {least} to {most}"
                        )));
                    }
                    limits.max_flows = Some(slots);
                }
                key => unreachable!("`{key}` is not in KEYS"),
            }
        }
        Ok(limits)
    }
}
