//! Options shared by all commands, and the wrapper that runs a command: log, errors, exit code.

use clap::Args;

use crate::exit::Failure;
use crate::{log, output};

/// Options shared by all commands.
#[derive(Args)]
pub(crate) struct Common {
    /// Print one JSON object on one line instead of text.
    #[arg(long, short = 'j', global = true)]
    pub json: bool,
    /// Log more: -v information, -vv debugging.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Runs a command with its log and error renderer, and returns the exit code.
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
    // Flushes the log before the final error.
    log::flush();
    output::end(outcome.unwrap_or_else(|failure| failure.report(common.json)))
}
