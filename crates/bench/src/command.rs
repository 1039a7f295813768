//! The program `ccplane-bench`: what ccplane costs, measured here and now, beside the reference.
//!
//! Every command prints a table of its figures with the aim and the reference, or one JSON object
//! on one line.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use ccplane::program::{
    self, AgainstArgs, BenchCommand, BenchPeer, CapiArgs, Failure, FailureKind, GatewayArgs, Need,
    PeerArgs, QuicArgs, SimArgs, percent_bar, print_line, print_lines, printable, require,
};
use ccplane_agent::Agent;
use ccplane_algorithms::Registry;
use ccplane_datapath::Capabilities;
use ccplane_lab::Contender;
use ccplane_report::Provenance;
use ccplane_units::Duration;

use crate::peers::{self, Against};
use crate::{
    Error, Figures, agent, arena, capi, control_loop, datapath, dx, emu, gateway, kernel, quic,
    sim, sweep, transport,
};

/// Runs the command line of this process, that of `ccplane bench`, with these algorithms.
pub fn main_with(registry: Registry) -> ExitCode {
    program::main("bench", registry, run)
}

/// Runs a benchmark.
fn run(command: &BenchCommand, registry: &Registry, json: bool) -> Result<(), Failure> {
    // Before the load is our own.
    let quick = matches!(
        command,
        BenchCommand::Gateway(GatewayArgs { quick: true, .. })
            | BenchCommand::Quic(QuicArgs { quick: true })
    );
    let provenance = Provenance::now(ccplane::build(), program::command_line("bench"), quick);
    let figures = match command {
        BenchCommand::Datapath => datapath::run().map_err(failure)?,
        BenchCommand::Capi(CapiArgs { udp }) => {
            capi::run(udp.as_deref(), registry).map_err(failure)?
        }
        BenchCommand::ControlLoop(args) => {
            let lacks = require(&[Need::KernelTcp])
                .err()
                .map(|lacks| lacks.to_string());
            control_loop::run(&against(args), lacks).map_err(failure)?
        }
        BenchCommand::Agent(args) => agent::run(&against(args)).map_err(failure)?,
        BenchCommand::Kernel(args) => {
            let program = std::env::current_exe().map_err(Error::because("find this program"));
            let options = kernel::Options {
                flows: args.flows.clone(),
                run: args.duration,
                rounds: args.rounds,
                program: program.map_err(failure)?,
            };
            require(&[Need::Emulator, Need::KernelTcp])?;
            with_bar(|step| kernel::run(&options, registry, step))?
        }
        BenchCommand::Dx(args) => {
            has_stamps(&args.alg, registry)?;
            let options = dx::Options {
                contender: args.alg.clone(),
                run: args.duration,
                rounds: args.rounds,
            };
            require(&[Need::Emulator, Need::KernelTcp])?;
            with_bar(|step| dx::run(&options, registry, step))?
        }
        BenchCommand::Transport => transport::run().map_err(failure)?,
        BenchCommand::Sim(SimArgs {
            only_incast_ms: None,
        }) => sim::run().map_err(failure)?,
        BenchCommand::Sim(SimArgs {
            only_incast_ms: Some(length),
        }) => {
            print_line(sim::only_incast(*length).map_err(failure)?);
            return Ok(());
        }
        BenchCommand::Emu => {
            require(&[Need::Emulator])?;
            emu::run().map_err(failure)?
        }
        BenchCommand::Gateway(args) => {
            let (run, rounds) = match args.quick {
                true => (Duration::from_millis(500), 2),
                false => (args.duration, args.rounds),
            };
            require(&[Need::Emulator])?;
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
            require(&[Need::Emulator, Need::KernelTcp])?;
            with_bar(|step| quic::run(&options, registry, step))?
        }
        BenchCommand::Arena => {
            let lacks = require(&[Need::KernelTcp])
                .err()
                .map(|lacks| lacks.to_string());
            arena::run(registry, lacks).map_err(failure)?
        }
        BenchCommand::Sweep => sweep::run(registry).map_err(failure)?,
        BenchCommand::Python => return Err(program::python_bench(registry.python(), json)),
        BenchCommand::Peer(args) => return peer(args, registry),
    };
    if json {
        print_line(figures.to_json(&provenance));
    } else {
        print_lines(figures.to_table());
        print_line(provenance.to_line());
    }
    Ok(())
}

fn against(args: &AgainstArgs) -> Against {
    Against {
        portus: args.portus.clone(),
    }
}

/// Measures with a bar of progress, until Ctrl-C.
fn with_bar(
    measure: impl FnOnce(&mut dyn FnMut(f64, &str) -> bool) -> Result<Figures, Error>,
) -> Result<Figures, Failure> {
    let stop = program::flag()?;
    let bar = percent_bar();
    let measured = measure(&mut |share, next| {
        bar.set_message(printable(next));
        bar.set_position((share * 100.0) as u64);
        !program::raised(&stop)
    });
    bar.finish_and_clear();
    measured.map_err(failure)
}

/// The queue is told from time stamps, which the kernel's own controls and those that go without
/// have none of.
fn has_stamps(alg: &Contender, registry: &Registry) -> Result<(), Failure> {
    let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
    program::add(&mut agent, alg, registry)?;
    if agent
        .hosted_algorithms()
        .all(|hosted| hosted.requested.contains(Capabilities::ONE_WAY_DELAY))
    {
        return Ok(());
    }
    Err(Failure::text(
        FailureKind::Usage,
        format!("`{alg}` asks for no time stamps, from which the queue is told"),
    )
    .hint(
        "give dx with other parameters, such as dx:headroom=200us, or another algorithm of delay",
    ))
}

/// Runs the other end, until it is killed.
fn peer(args: &PeerArgs, registry: &Registry) -> Result<(), Failure> {
    let bound = || print_line("bound");
    let outcome = match args.who {
        BenchPeer::Bound => peers::bound(&args.path, args.updates, bound),
        BenchPeer::Ours => peers::answer(&args.path, args.updates, &AtomicBool::new(false), bound),
        BenchPeer::Agent => {
            let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
            program::add(&mut agent, &args.alg, registry)?;
            peers::serve_kernel(&args.path, &mut agent, &AtomicBool::new(false), bound)
        }
    };
    outcome.map_err(|error| Failure::new(FailureKind::Failed, error))
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Missing(failure) => *failure,
        Error::Lab(error) => program::failure(error),
        Error::Program(error) => Failure::diagnostic(FailureKind::Failed, error),
        Error::Failed {
            what,
            hint: Some(hint),
        } => Failure::text(FailureKind::Failed, what).hint(hint),
        error => Failure::new(FailureKind::Failed, error),
    }
}
