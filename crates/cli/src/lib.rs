//! The command `ccplane` as a library, with one file per subcommand. A program with its own
//! algorithms calls [`main_with`] and gets every subcommand with them (`examples/aimd.rs`). Without
//! the feature `host` the library contains the simulator only, and hands other commands over to the
//! installed command (`installed.rs`).
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "host"),
    allow(dead_code, unused_macros, reason = "the host commands use the rest")
)]

#[macro_use]
mod output;

#[cfg(feature = "host")]
mod agent_command;
mod algorithms;
#[cfg(feature = "host")]
mod arena;
#[cfg(feature = "host")]
mod attach;
#[cfg(feature = "host")]
mod bench;
#[cfg(feature = "host")]
mod check;
mod command_groups;
mod common;
mod compare;
#[cfg(feature = "host")]
mod completion;
#[cfg(feature = "host")]
mod config;
#[cfg(feature = "host")]
mod confine;
#[cfg(feature = "host")]
mod contender;
#[cfg(feature = "host")]
mod detach;
#[cfg(feature = "host")]
mod doctor;
#[cfg(feature = "host")]
mod emu;
mod escape;
mod evaluate;
mod examples;
#[cfg(feature = "host")]
mod exceptions;
mod exit;
#[cfg(feature = "host")]
mod flows;
#[cfg(feature = "host")]
mod gateway;
#[cfg(feature = "host")]
mod identity;
#[cfg(any(test, not(feature = "host")))]
#[cfg_attr(feature = "host", allow(dead_code, reason = "used only by its tests"))]
mod installed;
mod interrupt;
#[cfg(feature = "host")]
mod key_values;
#[cfg(feature = "host")]
mod keys;
#[cfg(feature = "host")]
mod link_rate;
#[cfg(feature = "host")]
mod listeners;
mod log;
#[cfg(feature = "host")]
mod manual;
#[cfg(feature = "host")]
mod metrics;
#[cfg(feature = "host")]
mod new;
#[cfg(feature = "host")]
mod paper;
#[cfg(feature = "host")]
mod paths;
#[doc(hidden)]
#[cfg(feature = "host")]
pub mod program;
mod program_file;
#[cfg(feature = "host")]
mod python;
#[cfg(feature = "host")]
mod qdisc;
#[cfg(feature = "host")]
mod recv;
#[cfg(feature = "host")]
mod remote_agent;
mod results;
mod run;
#[cfg(feature = "host")]
mod sandbox;
#[cfg(feature = "host")]
mod send;
#[cfg(feature = "host")]
mod steering;
mod sweep;
mod threads;
#[cfg(feature = "host")]
mod transfer;
mod version1;

pub use ccplane_agent as agent;
pub use ccplane_algorithms::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters, Registry};
pub use ccplane_lab::result::RunResult;
pub use ccplane_units as units;
#[cfg(feature = "host")]
pub use sandbox::{GivenFile, given_file};
#[doc(hidden)]
pub use sweep::{SweepFolder, machine_name, thread_cpu_time};

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
    common: common::Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an experiment: algorithms one after another on an emulated link, with a table and a
    /// report page.
    Run(run::RunArgs),
    /// Compare the results of several runs on one page: differences, metrics of every contender, a
    /// chart.
    Compare(compare::CompareArgs),
    #[cfg(feature = "host")]
    /// Check a datapath program: diagnostics, tree, bytecode, eBPF, worst-case cost.
    Check(check::CheckArgs),
    #[cfg(feature = "host")]
    /// Create an algorithm to start from: a program file, a Python file or a Rust crate.
    New(new::NewArgs),
    #[cfg(feature = "host")]
    /// Control this host's own TCP with algorithms, until Ctrl-C.
    Attach(attach::AttachArgs),
    #[cfg(feature = "host")]
    /// Check or show the configuration of `attach`.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    #[cfg(feature = "host")]
    /// Remove everything that `attach` left behind, even after SIGKILL.
    Detach(detach::DetachArgs),
    #[cfg(feature = "host")]
    /// Show the live flows of attached algorithms, and the totals of each algorithm.
    Flows(flows::FlowsArgs),
    #[cfg(feature = "host")]
    /// Serve datapaths of other processes: on this host over Unix sockets, on other hosts over TLS.
    Agent(agent_command::AgentArgs),
    #[cfg(feature = "host")]
    /// Create the keys with which an agent and datapaths on other hosts authenticate each other, or
    /// print this host's fingerprint.
    Keys(keys::KeysArgs),
    /// List the algorithms and their parameters, or show one.
    Algorithms(algorithms::AlgorithmsArgs),
    #[cfg(feature = "host")]
    /// Run a command behind an emulated link.
    Emu(Box<emu::EmuArgs>),
    #[cfg(feature = "host")]
    /// Send a file or standard input to a `ccplane recv` on another host, over UDP or QUIC, under
    /// control of an algorithm.
    Send(send::SendArgs),
    #[cfg(feature = "host")]
    /// Receive files from `ccplane send`.
    Recv(recv::RecvArgs),
    #[cfg(feature = "host")]
    /// Set up queues of a Linux host or router that serve the low classes of `send --rc3` last.
    #[command(subcommand)]
    Qdisc(qdisc::QdiscCommand),
    #[cfg(feature = "host")]
    /// Run a gateway between sites: it paces the traffic to each other site and schedules the queue
    /// locally, over WireGuard.
    #[command(subcommand)]
    Gateway(gateway::GatewayCommand),
    #[cfg(feature = "host")]
    /// Benchmark ccplane against reference implementations.
    ///
    /// The program ccplane-bench implements this command. It must be next to ccplane or in PATH.
    /// `cargo build --release -p ccplane-bench` builds it from ccplane's sources.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    #[cfg(feature = "host")]
    /// Reproduce a published experiment and compare the results with the paper.
    ///
    /// The program ccplane-paper implements this command. It must be next to ccplane or in PATH.
    /// `cargo build --release -p ccplane-paper` builds it from ccplane's sources.
    Paper(paper::PaperArgs),
    /// Run a grid of scenarios on all CPUs or on several machines, and write one table with a row per
    /// run.
    Sweep(sweep::SweepArgs),
    /// Evaluate an algorithm against the criteria of RFC 9743: verdicts, metrics, a page.
    Evaluate(evaluate::EvaluateArgs),
    #[cfg(feature = "host")]
    /// Score algorithms against established ones in seconds: a gate, and a score with its parts.
    Arena(arena::ArenaArgs),
    #[cfg(feature = "host")]
    /// Check what this host supports, and show what is missing.
    Doctor,
    #[cfg(feature = "host")]
    /// Print a completion script for bash, zsh or fish.
    Completions(completion::CompletionsArgs),
    #[cfg(feature = "host")]
    /// Write man pages, one per command.
    Man(manual::ManArgs),
}

/// Runs the text of a scenario file (`docs/scenarios.md`) in the simulator with these algorithms,
/// for use in tests. Runs every seed of the scenario, on one thread.
pub fn simulate(scenario: &str, registry: &Registry) -> Result<RunResult, ccplane_lab::Error> {
    let here = std::path::Path::new(".");
    let scenario = ccplane_lab::scenario::Scenario::parse("scenario", scenario, here)
        .map_err(ccplane_lab::Error::Scenario)?;
    let options = ccplane_lab::RunOptions {
        seeds: scenario.seeds,
        threads: 1,
        command: String::new(),
        repeat_command: String::new(),
    };
    ccplane_lab::run(
        &ccplane_lab::Sim::default(),
        &scenario,
        registry,
        &options,
        &ccplane_lab::NoProgress,
    )
}

/// Returns the commit that this program was built from, for the provenance of results.
pub fn build() -> ccplane_report::provenance::Build {
    ccplane_report::provenance::Build {
        commit: env!("CCPLANE_COMMIT").to_owned(),
        dirty: env!("CCPLANE_DIRTY").parse().ok(),
    }
}

/// Returns the command-line parser, with examples.
fn command() -> clap::Command {
    let command = command_groups::with_groups(examples::with_examples(Cli::command()));
    #[cfg(not(feature = "host"))]
    let command = command.after_help(installed::AFTER_HELP);
    command
}

/// Runs the command line of this process with these algorithms and those in program files.
pub fn main_with(registry: Registry) -> ExitCode {
    status(std::env::args_os(), registry).into()
}

/// Runs a command line, whose first word is the program, and returns its exit code. Two kinds of
/// command lines end the process instead: usage errors (and `--help`), and commands that are
/// separate programs (`ccplane-NAME`), which replace the process.
pub fn status(words: impl IntoIterator<Item = OsString>, registry: Registry) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    #[cfg(feature = "host")]
    let command = command();
    #[cfg(feature = "host")]
    if completion::complete(&words, &command, &registry) {
        return 0;
    }
    #[cfg(feature = "host")]
    if let Err(failure) = program::hand_over(&words, &command) {
        return failure.report(false);
    }
    #[cfg(feature = "host")]
    if registry.python().is_none()
        && let Err(failure) = python::hand_over(&words)
    {
        return failure.report(false);
    }
    let registry = registry.with_files(|path| program_file::read(path));
    #[cfg(not(feature = "host"))]
    if let Some(code) = installed::agent_process(&words, &registry) {
        return code;
    }
    #[cfg(not(feature = "host"))]
    let given = match command().try_get_matches_from(&words) {
        Ok(given) => given,
        Err(why) if !why.use_stderr() || words.len() < 2 => why.exit(),
        // The installed command has more commands and options, and reports errors in the rest.
        Err(_) => {
            let json = words.iter().any(|word| word == "--json" || word == "-j");
            return installed::hand_over_words(&words, &registry).report(json);
        }
    };
    #[cfg(feature = "host")]
    let given = command.get_matches_from(words);
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|e| e.exit());
    common::finish(&cli.common, || {
        run_command(cli.command, registry, cli.common.json)
    })
}

/// Runs a command and returns its exit code.
fn run_command(command: Command, registry: Registry, json: bool) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(args, &registry, json),
        Command::Compare(args) => compare::run(&args, json),
        #[cfg(feature = "host")]
        Command::Check(args) => check::run(&args, json),
        #[cfg(feature = "host")]
        Command::New(args) => new::run(&args, json),
        #[cfg(feature = "host")]
        Command::Attach(args) => attach::run(&args, &registry, json),
        #[cfg(feature = "host")]
        Command::Config(command) => config::run(&command, &registry, json),
        #[cfg(feature = "host")]
        Command::Detach(args) => detach::run(&args, json),
        #[cfg(feature = "host")]
        Command::Flows(args) => flows::run(&args, json),
        #[cfg(feature = "host")]
        Command::Agent(args) => agent_command::run(&args, &registry, json),
        #[cfg(feature = "host")]
        Command::Keys(args) => keys::run(&args, json),
        Command::Algorithms(args) => algorithms::run(&args, &registry, json),
        #[cfg(feature = "host")]
        Command::Emu(args) => return emu::run(&args, json),
        #[cfg(feature = "host")]
        Command::Send(args) => send::run(&args, &registry, json),
        #[cfg(feature = "host")]
        Command::Recv(args) => recv::run(&args, json),
        #[cfg(feature = "host")]
        Command::Qdisc(command) => qdisc::run(&command, json),
        #[cfg(feature = "host")]
        Command::Gateway(command) => gateway::run(command, registry, json),
        #[cfg(feature = "host")]
        Command::Bench(bench::BenchCommand::Python) => Err(python::bench(registry.python(), json)),
        // `program::hand_over` did not find these programs.
        #[cfg(feature = "host")]
        Command::Bench(_) => Err(program::missing("bench")),
        #[cfg(feature = "host")]
        Command::Paper(_) => Err(program::missing("paper")),
        Command::Sweep(args) => sweep::run(&args, &registry, json),
        Command::Evaluate(args) => evaluate::run(&args, &registry, json),
        #[cfg(feature = "host")]
        Command::Arena(args) => return arena::run(&args, &registry, json),
        #[cfg(feature = "host")]
        Command::Doctor => doctor::run(json),
        #[cfg(feature = "host")]
        Command::Completions(args) => completion::print_script(&args),
        #[cfg(feature = "host")]
        Command::Man(args) => manual::man(&args, self::command(), json),
    }
    .map(|()| 0)
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;

    /// Upper limit of all long options together, without the global ones.
    const OPTIONS_MAX: usize = 150;

    /// Collects the long options of every command: the global ones and `--help` are left out.
    fn options(command: &clap::Command, path: &str, found: &mut Vec<(String, Vec<String>)>) {
        let names = command
            .get_arguments()
            .filter(|option| !option.is_global_set())
            .filter_map(|option| option.get_long())
            .filter(|name| !["help", "version"].contains(name))
            .map(str::to_owned)
            .collect();
        found.push((path.to_owned(), names));
        for inner in command.get_subcommands() {
            options(inner, &format!("{path} {}", inner.get_name()), found);
        }
    }

    #[test]
    fn the_command_has_at_most_150_options() {
        let mut found = Vec::new();
        options(&Cli::command(), "ccplane", &mut found);
        let count: usize = found.iter().map(|(_, names)| names.len()).sum();
        let table: Vec<String> = found
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(path, names)| format!("{:3} {path}: {}", names.len(), names.join(" ")))
            .collect();
        assert!(
            count <= OPTIONS_MAX,
            "{count} options, the limit is {OPTIONS_MAX}:\n{}",
            table.join("\n")
        );
    }
}
