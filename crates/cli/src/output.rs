//! Standard output that may close or be full: the command does what it has to do, above all clean
//! up, and says it by its exit code at the end. The macros of this file stand for those of the
//! standard library in this crate, which panic.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};

use std::sync::OnceLock;

use miette::Diagnostic;

use crate::escape;
use crate::exit::{Failure, FailureKind};

/// What a shell says of a tool that wrote to a pipe which nobody reads any more: 128 + SIGPIPE.
const BROKEN_PIPE_STATUS: u8 = 141;

/// The first error of standard output. Nothing is written after it.
static OUTPUT_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints to standard output.
macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

/// Prints a line to standard output.
macro_rules! println {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line to standard error, without control characters. An error is ignored: there is no
/// other place to report it.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::write_error(format_args!($($text)*)) };
}

/// Writes text to standard output. A terminal gets no control characters: names of peers and in
/// files are part of the text. Files and pipes get the text as it is, JSON above all.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    static IS_TERMINAL: OnceLock<bool> = OnceLock::new();
    match IS_TERMINAL.get_or_init(|| io::stdout().is_terminal()) {
        true => write_raw(escape::lines(&text.to_string())),
        false => write_raw(text),
    }
}

/// Writes a line to standard error, without control characters.
pub(crate) fn write_error(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", escape::lines(&text.to_string()));
}

/// Draws an error or a warning. Colours are its only control characters.
pub(crate) fn drawn(report: impl Diagnostic + Send + Sync + 'static) -> String {
    escape::drawn(&format!("{:?}", miette::Report::new(report)), coloured())
}

/// Writes a drawn error or warning to standard error.
pub(crate) fn draw(report: impl Diagnostic + Send + Sync + 'static) {
    let _ = writeln!(io::stderr(), "{}", drawn(report));
}

/// Writes text of ours to standard output, control characters included.
pub(crate) fn write_raw(text: impl fmt::Display) {
    if OUTPUT_ERROR.get().is_none()
        && let Err(why) = write!(io::stdout(), "{text}")
    {
        let _ = OUTPUT_ERROR.set(why);
    }
}

/// Whether standard output took no more.
pub(crate) fn lost() -> bool {
    OUTPUT_ERROR.get().is_some()
}

/// Whether standard error is written in colour: at a terminal, unless `NO_COLOR` or
/// `CLICOLOR_FORCE` say otherwise (no-color.org, bixense.com/clicolors).
pub(crate) fn coloured() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let forced =
        std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
    !set("NO_COLOR") && (forced || io::stderr().is_terminal())
}

/// Errors and warnings are drawn in colour where [`coloured`] says so.
pub(crate) fn draw_errors() {
    let coloured = coloured();
    // It is set once; who embeds the command may have set its own.
    let _ = miette::set_hook(Box::new(move |_| {
        let options = miette::MietteHandlerOpts::new();
        Box::new(options.color(coloured).build())
    }));
}

/// The exit code of a command that otherwise ended with `code`: a pipe that nobody reads is a quiet
/// end, everything else that keeps output from being written is an error.
pub(crate) fn end(code: u8) -> u8 {
    crate::log::flush();
    if let Err(why) = io::stdout().flush() {
        let _ = OUTPUT_ERROR.set(why);
    }
    match OUTPUT_ERROR.get() {
        None => code,
        Some(why) if why.kind() == ErrorKind::BrokenPipe => BROKEN_PIPE_STATUS,
        Some(why) => Failure::text(
            FailureKind::Failed,
            format!("cannot write to standard output: {why}"),
        )
        .hint("what the command had to do is done; only what it says of that is lost")
        .report(false),
    }
}
