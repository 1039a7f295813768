//! The command `ccplane`, one file a subcommand, as a library: a program with algorithms of its own
//! calls [`main_with`] and has every subcommand, with them in it (`examples/aimd.rs`).
#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod agent_command;
mod algorithms;
mod arena;
mod attach;
mod bench;
mod check;
mod compare;
mod config;
mod confine;
mod detach;
mod doctor;
mod elsewhere;
mod emu;
mod escape;
mod evaluate;
mod examples;
mod exit;
mod flows;
mod gateway;
mod identity;
mod interrupt;
mod keys;
mod link_rate;
mod listeners;
mod log;
mod manual;
mod metrics;
mod new;
mod paper;
mod places;
#[doc(hidden)]
pub mod program;
mod program_text;
mod python;
mod qdisc;
mod quic;
mod recv;
mod results;
mod run;
mod sandbox;
mod send;
mod steering;
mod transfer;
mod version1;

pub use ccplane_agent as agent;
pub use ccplane_algorithms::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters, Registry};
pub use ccplane_lab::result::RunResult;
pub use ccplane_units as units;
pub use sandbox::{GivenFile, given_file};

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::Failure;

/// A congestion-control plane: algorithms run outside the datapath and steer real traffic.
#[derive(Parser)]
#[command(
    name = "ccplane",
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    common: program::Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an experiment: algorithms one after the other on an emulated link, with a table and a
    /// report page.
    Run(run::RunArgs),
    /// Put the results of several runs on one page: what differs, everybody's figures, a picture.
    Compare(compare::CompareArgs),
    /// Look at a datapath program: diagnostics, tree, bytecode, eBPF, worst-case cost.
    Check(check::CheckArgs),
    /// Make a crate to write an algorithm in.
    New(new::NewArgs),
    /// Steer this host's own TCP with algorithms, until Ctrl-C.
    Attach(attach::AttachArgs),
    /// Look at the configuration of `attach`.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Remove everything that `attach` left, also after a kill.
    Detach(detach::DetachArgs),
    /// Show the live flows of attached algorithms, and what each algorithm has done.
    Flows(flows::FlowsArgs),
    /// Serve datapaths elsewhere: on this host over Unix sockets, on others over TLS.
    Agent(agent_command::AgentArgs),
    /// Make the keys by which an agent and datapaths on other hosts know each other.
    Keys(keys::KeysArgs),
    /// List the algorithms and their parameters.
    Algorithms,
    /// Run a command behind an emulated link.
    Emu(Box<emu::EmuArgs>),
    /// Send a file or standard input to a `ccplane recv` on another host, over UDP, steered by an
    /// algorithm.
    Send(send::SendArgs),
    /// Receive what `ccplane send` sends.
    Recv(recv::RecvArgs),
    /// Send and receive a file over QUIC, steered by any of ccplane's algorithms or by the stack's
    /// own.
    #[command(subcommand)]
    Quic(quic::QuicCommand),
    /// Queues of a Linux host or router that serve the low classes of `send --rc3` last.
    #[command(subcommand)]
    Qdisc(qdisc::QdiscCommand),
    /// A box between a site and another: the queue to it stands here, and is scheduled. WireGuard
    /// between the sites.
    #[command(subcommand)]
    Gateway(gateway::GatewayCommand),
    /// Measure what ccplane costs, beside the reference.
    ///
    /// It is the program ccplane-bench, next to ccplane or in PATH. `cargo build --release -p
    /// ccplane-bench` builds it from ccplane's sources.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Run a published experiment and set its figures beside the paper's.
    ///
    /// It is the program ccplane-paper, next to ccplane or in PATH. `cargo build --release -p
    /// ccplane-paper` builds it from ccplane's sources.
    Paper(paper::PaperArgs),
    /// Ask an algorithm what RFC 9743 asks of a new congestion control: verdicts, figures, a page.
    Evaluate(evaluate::EvaluateArgs),
    /// Score algorithms in seconds, against those that are in use: a gate, and what a score is made
    /// of.
    Arena(arena::ArenaArgs),
    /// Say what this host can do, and what is missing.
    Doctor,
    /// Print what completes words of this command, for bash, zsh or fish.
    Completions(manual::CompletionsArgs),
    /// Write man pages: one for each command.
    Man(manual::ManArgs),
}

/// Runs the text of a scenario file (`docs/scenarios.md`) in the simulator, with these algorithms:
/// for tests of them. Every seed that it names runs, on one thread.
pub fn simulate(scenario: &str, registry: &Registry) -> Result<RunResult, ccplane_lab::Error> {
    let here = std::path::Path::new(".");
    let scenario = ccplane_lab::scenario::Scenario::parse("scenario", scenario, here)
        .map_err(ccplane_lab::Error::Scenario)?;
    let options = ccplane_lab::Options {
        seeds: scenario.seeds,
        threads: 1,
        command: String::new(),
        repeat: String::new(),
    };
    ccplane_lab::run(
        &ccplane_lab::Sim::default(),
        &scenario,
        registry,
        &options,
        &ccplane_lab::Quiet,
    )
}

/// The sources that this program was built of, for whoever looks at figures later.
pub fn build() -> ccplane_report::provenance::Build {
    ccplane_report::provenance::Build {
        commit: env!("CCPLANE_COMMIT").to_owned(),
        dirty: env!("CCPLANE_DIRTY").parse().ok(),
    }
}

/// The command line as it is read.
fn command() -> clap::Command {
    examples::with_examples(Cli::command())
}

/// Runs the command line of this process, with these algorithms, and with those that are texts in
/// files.
pub fn main_with(registry: Registry) -> ExitCode {
    status(std::env::args_os(), registry).into()
}

/// Runs a command line, of which the first word is the program, and returns its exit code. Two kinds
/// of command lines end the process: wrong words, as `--help` does, and a command that is a program
/// of its own (`ccplane-NAME`), which replaces the process.
pub fn status(words: impl IntoIterator<Item = OsString>, registry: Registry) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    let command = command();
    if let Err(failure) = program::hand_over(&words, &command) {
        return failure.report(false);
    }
    if registry.python().is_none()
        && let Err(failure) = python::hand_over(&words)
    {
        return failure.report(false);
    }
    let registry = registry.with_files(|path| program_text::read(path));
    let given = command.get_matches_from(words);
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|e| e.exit());
    program::finish(&cli.common, || {
        run_command(cli.command, registry, cli.common.json)
    })
}

/// Runs a command and returns its exit code.
fn run_command(command: Command, registry: Registry, json: bool) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(args, &registry, json),
        Command::Compare(args) => compare::run(&args, json),
        Command::Check(args) => check::run(&args, json),
        Command::New(args) => new::run(&args, json),
        Command::Attach(args) => attach::run(&args, &registry, json),
        Command::Config(command) => config::run(&command, &registry, json),
        Command::Detach(args) => detach::run(&args, json),
        Command::Flows(args) => flows::run(&args, json),
        Command::Agent(args) => agent_command::run(&args, &registry, json),
        Command::Keys(args) => keys::run(&args, json),
        Command::Algorithms => {
            algorithms::run(&registry, json);
            Ok(())
        }
        Command::Emu(args) => return emu::run(&args, json),
        Command::Send(args) => send::run(&args, &registry, json),
        Command::Recv(args) => recv::run(&args, json),
        Command::Quic(command) => quic::run(&command, &registry, json),
        Command::Qdisc(command) => qdisc::run(&command, json),
        Command::Gateway(command) => gateway::run(command, registry, json),
        Command::Bench(bench::BenchCommand::Python) => Err(python::bench(registry.python(), json)),
        // Their programs were looked for before.
        Command::Bench(_) => Err(program::missing("bench")),
        Command::Paper(_) => Err(program::missing("paper")),
        Command::Evaluate(args) => evaluate::run(&args, &registry, json),
        Command::Arena(args) => return arena::run(&args, &registry, json),
        Command::Doctor => doctor::run(json),
        Command::Completions(args) => {
            manual::completions(&args, self::command());
            Ok(())
        }
        Command::Man(args) => manual::man(&args, self::command(), json),
    }
    .map(|()| 0)
}
