//! What `attach` is asked for, and what of it cannot be.

use std::net::SocketAddr;
use std::path::PathBuf;

use ccplane_agent::link::AgentAddress;
use ccplane_datapath::Limits;
use ccplane_lab::Contender;
use ccplane_linux::select::{self, Selection};
use ccplane_units::{Bytes, Duration, Rate};
use clap::Args;

use crate::exit::{Failure, Kind};
use crate::places::PlacesArgs;

/// What to steer, and how far.
#[derive(Args)]
pub struct AttachArgs {
    /// Algorithms, separated by commas; with parameters: `cubic:report=10ms`. Sockets choose them as ccp_NAME.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required_unless_present = "agent")]
    pub(super) alg: Vec<Contender>,
    /// Let an agent in another process run the algorithms: `unix:PATH` of a `ccplane agent --unix PATH`, which may be another
    /// user's and needs no privilege (without --alg, all that it has); `ccp:PATH` of a CCP agent such as portus.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) agent: Option<AgentAddress>,
    /// Owner's limit for a CCP agent, which has no heartbeats: it counts as silent this long after its last message. Without it, it
    /// counts as alive while its socket is there.
    #[arg(long, value_name = "TIME", requires = "agent")]
    pub(super) silence: Option<Duration>,
    /// Also steer new connections of this cgroup, with the first algorithm.
    #[arg(long, value_name = "PATH")]
    pub(super) cgroup: Option<PathBuf>,
    /// Also steer new connections to this prefix, with the first algorithm.
    #[arg(long, value_name = "PREFIX")]
    pub(super) to: Option<String>,
    /// Also steer all new connections of this host, with the first algorithm.
    #[arg(long, conflicts_with_all = ["cgroup", "to"])]
    pub(super) system: bool,
    /// Stamp what leaves and comes by these devices, for an algorithm that wants one-way delay, such as dx: sockets of the
    /// cgroup, or of every process, offer and answer the option of time stamps (docs/one-way-delay.md).
    #[arg(long, value_name = "DEVICES", value_delimiter = ',')]
    pub(super) dev: Vec<String>,
    /// Steer only this share of the connections so selected, chosen at random.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(super) percent: u8,
    /// Owner's limit: no flow paces faster.
    #[arg(long, value_name = "RATE")]
    pub(super) max_rate: Option<Rate>,
    /// Owner's limit: no window is smaller.
    #[arg(long, value_name = "BYTES")]
    pub(super) min_cwnd: Option<Bytes>,
    /// Owner's limit: no window is larger.
    #[arg(long, value_name = "BYTES")]
    pub(super) max_cwnd: Option<Bytes>,
    /// Owner's limit: after this long without a sign of the agent, flows run on the datapath's own NewReno.
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    pub(super) fallback_after: Duration,
    /// Flows that the table of each algorithm holds; further ones run on the datapath's own NewReno until a place is free.
    #[arg(long, value_name = "N", default_value_t = ccplane_linux::most_flows(), value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(super) max_flows: u32,
    /// Let processes of every user choose the algorithms; else only those with CAP_NET_ADMIN may.
    #[arg(long)]
    pub(super) any_user: bool,
    #[command(flatten)]
    pub(super) places: PlacesArgs,
    /// Serve Prometheus figures here, under /metrics.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) metrics: Option<SocketAddr>,
    /// Leave the registration when this process ends, for the next `attach`; in between, flows run on the fallback.
    #[arg(long)]
    pub(super) keep: bool,
    /// Watch the files of `--alg ./mine.ccp`: one that has changed comes into force for live flows too, one that has become wrong changes
    /// nothing.
    #[arg(long, conflicts_with = "agent")]
    pub(super) watch: bool,
}

pub(super) fn limits(args: &AttachArgs) -> Result<Limits, Failure> {
    let default = Limits::default();
    let limits = Limits {
        min_cwnd: args.min_cwnd.map_or(default.min_cwnd, Bytes::get),
        max_cwnd: args.max_cwnd.map_or(default.max_cwnd, Bytes::get),
        max_rate: args.max_rate.map_or(default.max_rate, Rate::bytes_per_sec),
        fallback_after: args.fallback_after,
    };
    if limits.min_cwnd > limits.max_cwnd {
        return Err(Failure::text(Kind::Usage, "--min-cwnd is above --max-cwnd").hint("no window satisfies both"));
    }
    if limits.fallback_after < Duration::from_millis(10) {
        return Err(Failure::text(
            Kind::Usage,
            format!("--fallback-after {} is too short", limits.fallback_after),
        )
        .hint("a pause of the scheduler would look like a dead agent: 100ms or more, 10ms at least"));
    }
    Ok(limits)
}

pub(super) fn selection(args: &AttachArgs) -> Result<Option<Selection>, Failure> {
    if args.cgroup.is_none() && args.to.is_none() && !args.system {
        if args.percent < 100 {
            return Err(Failure::text(Kind::Usage, "--percent of what?")
                .hint("it takes a share of what --cgroup, --to or --system selects"));
        }
        return Ok(None);
    }
    let to = args.to.as_deref().map(str::parse).transpose();
    let to = to.map_err(|e: select::BadPrefix| Failure::new(Kind::Usage, e))?;
    Ok(Some(Selection {
        cgroup: args.cgroup.clone(),
        to,
        system: args.system,
        percent: args.percent,
    }))
}
