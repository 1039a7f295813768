//! `ccplane bench …`: what ccplane costs, measured here and now, beside the reference.
//!
//! Every command prints a table of its figures with the aim and the reference, or one JSON object
//! on one line.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use ccplane_agent::Agent;
use ccplane_bench::peers::{self, Against};
use ccplane_bench::{
    Error, Figures, agent, arena, capi, control_loop, datapath, dx, emu, gateway, kernel, quic,
    sim, transport,
};
use ccplane_datapath::Capabilities;
use ccplane_lab::Contender;
use ccplane_report::Provenance;
use ccplane_units::Duration;
use clap::{Args, Subcommand, ValueEnum};

use crate::Registry;
use crate::doctor::{self, Need};
use crate::escape::printable;
use crate::exit::{Failure, Kind};
use crate::interrupt;
use crate::python;
use crate::run::{self, command_line, percent_bar};

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
    udp: Option<PathBuf>,
}

/// Where the reference's agent is.
#[derive(Args)]
pub struct AgainstArgs {
    /// An agent made of portus to measure in turns with ours: `portus-answer` of examples/portus.
    #[arg(long, value_name = "PATH")]
    portus: Option<PathBuf>,
}

impl AgainstArgs {
    fn against(&self) -> Against {
        Against {
            portus: self.portus.clone(),
        }
    }
}

/// How much to measure.
#[derive(Args)]
pub struct KernelArgs {
    /// Numbers of flows, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    flows: Vec<usize>,
    /// Length of each run.
    #[arg(long, default_value = "3s")]
    duration: Duration,
    /// Runs of each condition at each number of flows; the figures are medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// How much to measure.
#[derive(Args)]
pub struct DxArgs {
    /// The algorithm, with parameters: `dx:headroom=200us`.
    #[arg(long, value_name = "NAME", default_value = "dx")]
    alg: Contender,
    /// Length of each run.
    #[arg(long, default_value = "5s")]
    duration: Duration,
    /// Runs of each kind; the figures are medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// How much to measure.
#[derive(Args)]
pub struct GatewayArgs {
    /// Length of each run.
    #[arg(long, default_value = "2s")]
    duration: Duration,
    /// Runs of each kind; the figures are medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Two rounds of half a second: whether it runs, and no more.
    #[arg(long, conflicts_with_all = ["duration", "rounds"])]
    quick: bool,
}

/// How much to measure.
#[derive(Args)]
pub struct QuicArgs {
    /// Two rounds of half a second on loopback, two of two seconds behind the link: whether it
    /// runs, and no more.
    #[arg(long)]
    quick: bool,
}

/// What to run.
#[derive(Args)]
pub struct SimArgs {
    /// Only so many ms of the 50-to-1 incast, and nothing printed but its hops: what is run under
    /// callgrind.
    #[arg(long, hide = true)]
    only_incast_ms: Option<u64>,
}

/// The hidden command by which a process becomes the other end.
#[derive(Args)]
pub struct PeerArgs {
    who: Peer,
    path: PathBuf,
    /// Answers reports.
    #[arg(long)]
    updates: bool,
}

/// Who is the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    Ours,
    Bound,
}

/// Runs a benchmark.
pub fn run(command: &BenchCommand, registry: &Registry, json: bool) -> Result<(), Failure> {
    // Before the load is our own.
    let quick = matches!(
        command,
        BenchCommand::Gateway(GatewayArgs { quick: true, .. })
            | BenchCommand::Quic(QuicArgs { quick: true })
    );
    let provenance = Provenance::now(crate::build(), command_line(), quick);
    let figures = match command {
        BenchCommand::Datapath => datapath::run().map_err(failure)?,
        BenchCommand::Capi(CapiArgs { udp }) => {
            capi::run(udp.as_deref(), registry).map_err(failure)?
        }
        BenchCommand::ControlLoop(args) => {
            let lacks = doctor::require(&[Need::KernelTcp])
                .err()
                .map(|lacks| lacks.to_string());
            control_loop::run(&args.against(), lacks).map_err(failure)?
        }
        BenchCommand::Agent(args) => agent::run(&args.against()).map_err(failure)?,
        BenchCommand::Kernel(args) => {
            let options = kernel::Options {
                flows: args.flows.clone(),
                run: args.duration,
                rounds: args.rounds,
            };
            doctor::require(&[Need::Emulator, Need::KernelTcp])?;
            with_bar(|step| kernel::run(&options, registry, step))?
        }
        BenchCommand::Dx(args) => {
            has_stamps(&args.alg, registry)?;
            let options = dx::Options {
                contender: args.alg.clone(),
                run: args.duration,
                rounds: args.rounds,
            };
            doctor::require(&[Need::Emulator, Need::KernelTcp])?;
            with_bar(|step| dx::run(&options, registry, step))?
        }
        BenchCommand::Transport => transport::run().map_err(failure)?,
        BenchCommand::Sim(SimArgs {
            only_incast_ms: None,
        }) => sim::run().map_err(failure)?,
        BenchCommand::Sim(SimArgs {
            only_incast_ms: Some(length),
        }) => {
            println!("{}", sim::only_incast(*length).map_err(failure)?);
            return Ok(());
        }
        BenchCommand::Emu => {
            doctor::require(&[Need::Emulator])?;
            emu::run().map_err(failure)?
        }
        BenchCommand::Gateway(args) => {
            let (run, rounds) = match args.quick {
                true => (Duration::from_millis(500), 2),
                false => (args.duration, args.rounds),
            };
            doctor::require(&[Need::Emulator])?;
            with_bar(|step| gateway::run(&gateway::Options { run, rounds }, step))?
        }
        BenchCommand::Quic(QuicArgs { quick }) => {
            let seconds = Duration::from_secs;
            let options = if *quick {
                quic::Options {
                    run: (Duration::from_millis(500), seconds(2)),
                    rounds: (2, 2),
                }
            } else {
                quic::Options {
                    run: (seconds(2), seconds(10)),
                    rounds: (9, 5),
                }
            };
            doctor::require(&[Need::Emulator, Need::KernelTcp])?;
            with_bar(|step| quic::run(&options, registry, step))?
        }
        BenchCommand::Arena => {
            let lacks = doctor::require(&[Need::KernelTcp])
                .err()
                .map(|lacks| lacks.to_string());
            arena::run(registry, lacks).map_err(failure)?
        }
        BenchCommand::Python => return Err(python::bench(registry.python(), json)),
        BenchCommand::Peer(args) => return peer(args),
    };
    if json {
        println!("{}", figures.to_json(&provenance));
    } else {
        print!("{}", figures.to_table());
        println!("{}", provenance.line());
    }
    Ok(())
}

/// Measures with a bar of progress, until Ctrl-C.
fn with_bar(
    measure: impl FnOnce(&mut dyn FnMut(f64, &str) -> bool) -> Result<Figures, Error>,
) -> Result<Figures, Failure> {
    let stop = interrupt::flag()?;
    let bar = percent_bar();
    let measured = measure(&mut |share, next| {
        bar.set_message(printable(next));
        bar.set_position((share * 100.0) as u64);
        !interrupt::raised(&stop)
    });
    bar.finish_and_clear();
    measured.map_err(failure)
}

/// The queue is told from time stamps, which the kernel's own controls and those that go without
/// have none of.
fn has_stamps(alg: &Contender, registry: &Registry) -> Result<(), Failure> {
    let mut agent = Agent::new(ccplane_agent::Options::default());
    crate::attach::add(&mut agent, alg, registry)?;
    if agent
        .hosted()
        .all(|hosted| hosted.wants.contains(Capabilities::ONE_WAY_DELAY))
    {
        return Ok(());
    }
    Err(Failure::text(
        Kind::Usage,
        format!("`{alg}` asks for no time stamps, from which the queue is told"),
    )
    .hint(
        "give dx with other parameters, such as dx:headroom=200us, or another algorithm of delay",
    ))
}

/// Runs the other end, until it is killed.
fn peer(args: &PeerArgs) -> Result<(), Failure> {
    let bound = || println!("bound");
    let outcome = match args.who {
        Peer::Bound => peers::bound(&args.path, args.updates, bound),
        Peer::Ours => peers::answer(&args.path, args.updates, &AtomicBool::new(false), bound),
    };
    outcome.map_err(|error| Failure::new(Kind::Failed, error))
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Lab(error) => run::failure(error),
        Error::Program(error) => Failure::diagnostic(Kind::Failed, error),
        Error::Failed {
            what,
            hint: Some(hint),
        } => Failure::text(Kind::Failed, what).hint(hint),
        error => Failure::new(Kind::Failed, error),
    }
}
