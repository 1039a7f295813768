//! Options of every command, and the frame in which a command runs: log, errors, exit code.

use clap::Args;

use crate::exit::Failure;
use crate::{log, output};

/// Options that every command takes.
#[derive(Args)]
pub(crate) struct Common {
    /// Print one JSON object on one line instead of text.
    #[arg(long, short = 'j', global = true)]
    pub json: bool,
    /// More about what happens: -v information, -vv debugging.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Runs a command with its log and its way of drawing errors, and returns the exit code.
pub(crate) fn finish(common: &Common, run: impl FnOnce() -> Result<u8, Failure>) -> u8 {
    let level = match common.verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("CCPLANE_LOG").unwrap_or_else(|_| level.into());
    // A program that embeds the command may have a subscriber, or run a second command line.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log::Log)
        .with_ansi(output::coloured())
        .try_init();
    output::draw_errors();
    let outcome = run();
    // The log comes before the final error.
    log::flush();
    output::end(outcome.unwrap_or_else(|failure| failure.report(common.json)))
}
