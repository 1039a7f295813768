//! The command line of `ccplane bench`, which the program `ccplane-bench` runs.

use std::path::PathBuf;

use ccplane_lab::Contender;
use ccplane_units::Duration;
use clap::{Args, Subcommand, ValueEnum};

/// The benchmarks.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// The engine: ns an ACK, bytes a flow, µs a compilation.
    Datapath,
    /// The functions of ccplane.h and of libccp: ns an ACK; a transport in C beside ours.
    Capi(CapiArgs),
    /// The control loop: report to algorithm to update and back, in µs.
    ControlLoop(AgainstArgs),
    /// The agent: reports and updates a second over the Unix link.
    Agent(AgainstArgs),
    /// Kernel TCP on loopback: ccp_reno against the kernel's own Reno.
    Kernel(KernelArgs),
    /// DX on kernel TCP: what a time stamp costs, the queue that it leaves beside Cubic's, and the
    /// ACK path flooded.
    Dx(DxArgs),
    /// The transport: ns a packet, bytes a flow, and its UDP driver beside kernel TCP on loopback.
    Transport,
    /// The simulator: ns a packet over a link, bytes a flow, packet and host.
    Sim(SimArgs),
    /// The emulator: ceiling, rate, delay and lateness, with both timings.
    Emu,
    /// The gateway: bulk and small packets, round trips and a limit beside a bare forwarder, a
    /// bundle's memory, outages.
    Gateway(GatewayArgs),
    /// QUIC: what ccplane costs behind noq, and how it does beside noq's own control, on loopback
    /// and behind a link.
    Quic(QuicArgs),
    /// The arena: CPU time of a candidate, how many a search has in an hour, and, as root, how soon
    /// a changed text steers kernel TCP.
    Arena,
    /// Algorithms and environments in Python: ns a callback, steps a second. Needs the Python
    /// package.
    Python,
    /// The other end of `control-loop` and `agent`.
    #[command(hide = true)]
    Peer(PeerArgs),
}

/// Where a transport in C is.
#[derive(Args)]
pub struct CapiArgs {
    /// A program built of examples/c/udp.c: its goodput and delay behind an emulated link are set
    /// beside our transport's.
    #[arg(long, value_name = "PATH")]
    pub udp: Option<PathBuf>,
}

/// Where the reference's agent is.
#[derive(Args)]
pub struct AgainstArgs {
    /// An agent made of portus to measure in turns with ours: `portus-answer` of examples/portus.
    #[arg(long, value_name = "PATH")]
    pub portus: Option<PathBuf>,
}

/// How much to measure.
#[derive(Args)]
pub struct KernelArgs {
    /// Numbers of flows, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    pub flows: Vec<usize>,
    /// Length of each run.
    #[arg(long, default_value = "3s")]
    pub duration: Duration,
    /// Runs of each condition at each number of flows; the figures are medians.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
}

/// How much to measure.
#[derive(Args)]
pub struct DxArgs {
    /// The algorithm, with parameters: `dx:headroom=200us`.
    #[arg(long, value_name = "NAME", default_value = "dx")]
    pub alg: Contender,
    /// Length of each run.
    #[arg(long, default_value = "5s")]
    pub duration: Duration,
    /// Runs of each kind; the figures are medians.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
}

/// How much to measure.
#[derive(Args)]
pub struct GatewayArgs {
    /// Length of each run.
    #[arg(long, default_value = "2s")]
    pub duration: Duration,
    /// Runs of each kind; the figures are medians.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Two rounds of half a second: whether it runs, and no more.
    #[arg(long, conflicts_with_all = ["duration", "rounds"])]
    pub quick: bool,
}

/// How much to measure.
#[derive(Args)]
pub struct QuicArgs {
    /// Two rounds of half a second on loopback, two of two seconds behind the link: whether it
    /// runs, and no more.
    #[arg(long)]
    pub quick: bool,
}

/// What to run.
#[derive(Args)]
pub struct SimArgs {
    /// Only so many ms of the 50-to-1 incast, and nothing printed but its hops: what is run under
    /// callgrind.
    #[arg(long, hide = true)]
    pub only_incast_ms: Option<u64>,
}

/// The hidden command by which a process becomes the other end.
#[derive(Args)]
pub struct PeerArgs {
    /// The kind of agent.
    pub who: BenchPeer,
    /// Its socket.
    pub path: PathBuf,
    /// Answers reports.
    #[arg(long)]
    pub updates: bool,
}

/// Who is the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchPeer {
    /// An agent of ccplane.
    Ours,
    /// A loop around a bound socket, without an agent.
    Bound,
}
