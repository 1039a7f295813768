//! The command `ccplane`: one file a subcommand.
#![forbid(unsafe_code)]

mod doctor;
mod exit;
mod metrics;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A congestion-control plane: algorithms run outside the datapath and steer real traffic.
#[derive(Parser)]
#[command(name = "ccplane", version, about, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    /// Print one JSON object on one line instead of text.
    #[arg(long, short = 'j', global = true)]
    json: bool,
    /// More about what happens: -v information, -vv debugging.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what this host can do, and what is missing.
    Doctor,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("CCPLANE_LOG").unwrap_or_else(|_| level.into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let outcome = match cli.command {
        Command::Doctor => doctor::run(cli.json),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(cli.json),
    }
}
