//! Options shared by all commands, and the wrapper that runs a command: log, errors, exit code.

use clap::Args;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

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
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let variable = std::env::var("CCPLANE_LOG").ok();
    let filter = variable
        .and_then(|directives| directives.parse().ok())
        .unwrap_or_else(|| Targets::new().with_default(level));
    // A program that embeds the command may have a subscriber, or run a second command line.
    let text = tracing_subscriber::fmt::layer()
        .with_writer(log::Log)
        .with_ansi(output::coloured());
    let _ = tracing_subscriber::registry()
        .with(text.with_filter(filter))
        .try_init();
    output::draw_errors();
    let outcome = run();
    // Flushes the log before the final error.
    log::flush();
    output::end(outcome.unwrap_or_else(|failure| failure.report(common.json)))
}
