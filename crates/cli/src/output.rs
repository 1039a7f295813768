//! Standard output that may be closed or full. The command finishes its work first, cleanup above
//! all, and reports the output error in its exit code. The macros below shadow the standard
//! library's, which panic on such an error.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};

use std::sync::OnceLock;

use miette::Diagnostic;

use crate::escape;
use crate::exit::{Failure, FailureKind};

/// Exit status that shells report for a writer whose pipe was closed: 128 + SIGPIPE.
const BROKEN_PIPE_STATUS: u8 = 141;

/// First error of standard output. Nothing is written after it.
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

/// Writes text to standard output. For a terminal, control characters are escaped, because the text
/// contains names from peers and files. Files and pipes (JSON above all) get the text unchanged.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    static IS_TERMINAL: OnceLock<bool> = OnceLock::new();
    match IS_TERMINAL.get_or_init(|| io::stdout().is_terminal()) {
        true => write_raw(escape::lines(&text.to_string())),
        false => write_raw(text),
    }
}

/// Writes a line to standard error, with control characters escaped.
pub(crate) fn write_error(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", escape::lines(&text.to_string()));
}

/// Renders an error or a warning. Colour codes are its only control characters.
pub(crate) fn drawn(report: impl Diagnostic + Send + Sync + 'static) -> String {
    escape::drawn(&format!("{:?}", miette::Report::new(report)), coloured())
}

/// Writes a rendered error or warning to standard error.
pub(crate) fn draw(report: impl Diagnostic + Send + Sync + 'static) {
    let _ = writeln!(io::stderr(), "{}", drawn(report));
}

/// Writes trusted text to standard output, control characters included.
pub(crate) fn write_raw(text: impl fmt::Display) {
    if OUTPUT_ERROR.get().is_none()
        && let Err(why) = write!(io::stdout(), "{text}")
    {
        let _ = OUTPUT_ERROR.set(why);
    }
}

/// Returns true if standard output has failed.
pub(crate) fn lost() -> bool {
    OUTPUT_ERROR.get().is_some()
}

/// Returns true if standard error gets colours: at a terminal, unless `NO_COLOR` or
/// `CLICOLOR_FORCE` overrides it (no-color.org, bixense.com/clicolors).
pub(crate) fn coloured() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let forced =
        std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
    !set("NO_COLOR") && (forced || io::stderr().is_terminal())
}

/// Installs the error renderer, with colours according to [`coloured`]. Lines are wrapped at a
/// terminal only: in a file or a log a wrapped path could be neither searched for nor copied.
pub(crate) fn draw_errors() {
    let coloured = coloured();
    let wrapped = io::stderr().is_terminal();
    // The hook can be set only once. A program that embeds the command may have set its own.
    let _ = miette::set_hook(Box::new(move |_| {
        let options = miette::MietteHandlerOpts::new();
        Box::new(options.color(coloured).wrap_lines(wrapped).build())
    }));
}

/// Flushes the output and returns the exit code of a command that otherwise ended with `code`. A
/// broken pipe ends the command silently; any other output error is reported.
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
        .hint("the command itself is complete; only its output is lost")
        .report(false),
    }
}
