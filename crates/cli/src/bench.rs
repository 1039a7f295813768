//! Arguments of `ccplane bench`, which the program `ccplane-bench` implements.

use std::path::PathBuf;

use ccplane_lab::Contender;
use ccplane_units::Duration;
use clap::{Args, Subcommand, ValueEnum};

/// Subcommands of `bench`.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// Benchmark the engine: ns per ACK, bytes per flow, µs per compilation.
    Datapath,
    /// Benchmark the functions of ccplane.h and libccp: ns per ACK, and a transport in C compared
    /// with ours.
    Capi(CapiArgs),
    /// Benchmark the control loop: from report to algorithm to update and back, in µs.
    ControlLoop(AgainstArgs),
    /// Benchmark the agent: reports and updates per second over the Unix link.
    Agent(AgainstArgs),
    /// Benchmark kernel TCP on loopback: ccp_reno against the kernel's own Reno, and the cost of
    /// isolating the algorithm in a verified program, a thread or another process.
    Kernel(KernelArgs),
    /// Benchmark DX on kernel TCP: the cost of time stamps, its standing queue compared with
    /// Cubic's, and a flooded ACK path.
    Dx(DxArgs),
    /// Benchmark the transport: ns per packet, bytes per flow, and its UDP driver compared with
    /// kernel TCP on loopback.
    Transport,
    /// Benchmark the simulator: ns per packet and link, bytes per flow, packet and host.
    Sim(SimArgs),
    /// Benchmark the emulator: maximum rate, rate accuracy, delay and lateness, with both timings.
    Emu,
    /// Benchmark the gateway: bulk and small packets, round trips and a rate limit compared with a
    /// bare forwarder, memory per bundle, outages.
    Gateway(GatewayArgs),
    /// Benchmark QUIC: the cost of ccplane on noq, and its performance compared with noq's own
    /// congestion control, on loopback and behind a link.
    Quic(QuicArgs),
    /// Benchmark the arena: CPU time per candidate, candidates per hour of a search, and, as root,
    /// the time until a changed program file controls kernel TCP.
    Arena,
    /// Benchmark sweeps: cost per run besides the simulation, memory of 10,000 runs, speed-up of two
    /// threads.
    Sweep,
    /// Benchmark algorithms and environments in Python: ns per callback, steps per second. Needs
    /// the Python package.
    Python,
    /// Run the peer process of `control-loop`, `agent` and `kernel`.
    #[command(hide = true)]
    Peer(PeerArgs),
}

/// Arguments of `bench capi`.
#[derive(Args)]
pub struct CapiArgs {
    /// Program built from examples/c/udp.c: its goodput and delay behind an emulated link are
    /// compared with our transport's.
    #[arg(long, value_name = "PATH")]
    pub udp: Option<PathBuf>,
}

/// Arguments of benchmarks with a reference agent.
#[derive(Args)]
pub struct AgainstArgs {
    /// Reference agent built with portus, measured interleaved with ours: `portus-answer` of
    /// examples/portus.
    #[arg(long, value_name = "PATH")]
    pub portus: Option<PathBuf>,
}

/// Arguments of `bench kernel`.
#[derive(Args)]
pub struct KernelArgs {
    /// Numbers of flows, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    pub flows: Vec<usize>,
    /// Length of each run.
    #[arg(long, default_value = "3s")]
    pub duration: Duration,
    /// Runs per condition and number of flows; results are medians.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
}

/// Arguments of `bench dx`.
#[derive(Args)]
pub struct DxArgs {
    /// Algorithm, with parameters: `dx:headroom=200us`.
    #[arg(long, value_name = "NAME", default_value = "dx")]
    pub alg: Contender,
    /// Length of each run.
    #[arg(long, default_value = "5s")]
    pub duration: Duration,
    /// Runs of each kind; results are medians.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
}

/// Arguments of `bench gateway`.
#[derive(Args)]
pub struct GatewayArgs {
    /// Length of each run.
    #[arg(long, default_value = "2s")]
    pub duration: Duration,
    /// Runs of each kind; results are medians.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Make two rounds of half a second: a check that it runs, without useful results.
    #[arg(long, conflicts_with_all = ["duration", "rounds"])]
    pub quick: bool,
}

/// Arguments of `bench quic`.
#[derive(Args)]
pub struct QuicArgs {
    /// Make two rounds of half a second on loopback and two of two seconds behind the link: a check
    /// that it runs, without useful results.
    #[arg(long)]
    pub quick: bool,
}

/// Arguments of `bench sim`.
#[derive(Args)]
pub struct SimArgs {
    /// Run only this many ms of the 50-to-1 incast and print only its hops, for callgrind.
    #[arg(long, hide = true)]
    pub only_incast_ms: Option<u64>,
}

/// Arguments of the hidden command for the peer process.
#[derive(Args)]
pub struct PeerArgs {
    /// Kind of peer.
    pub who: BenchPeer,
    /// Socket of the peer.
    pub path: PathBuf,
    /// Answer reports with updates.
    #[arg(long)]
    pub updates: bool,
    /// Algorithm of `agent`.
    #[arg(long, value_name = "NAME", default_value = "reno")]
    pub alg: Contender,
}

/// Peer process of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchPeer {
    /// An agent of ccplane.
    Ours,
    /// A loop around a bound socket, without an agent.
    Bound,
    /// An agent of ccplane for kernel TCP, with the algorithm of `--alg`.
    Agent,
}
