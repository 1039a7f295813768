//! Subcommands that are separate programs: `ccplane NAME …` executes `ccplane-NAME`, as in git.
//!
//! `ccplane-paper` and `ccplane-bench` are such programs. They use this library, which contains
//! what they share with the command: options, exit codes, progress bars and signals.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use clap::FromArgMatches;
use nix::unistd::{AccessFlags, access};

pub use crate::bench::{
    AgainstArgs, BenchCommand, BenchPeer, CapiArgs, DxArgs, GatewayArgs, KernelArgs, PeerArgs,
    QuicArgs, SimArgs,
};
pub use crate::contender::add;
pub use crate::doctor::{Need, require};
pub use crate::escape::printable;
pub use crate::exit::{Failure, FailureKind};
pub use crate::interrupt::{flag, raised};
pub use crate::paper::{PaperArgs, PaperBackend};
pub use crate::python::bench as python_bench;
pub use crate::remote_agent::find_agents;
pub use crate::run::{RunDatapath, failure, percent_bar, show};
pub use crate::sweep::{KeptData, SweepRequest, SweepSummary, write_parquet, write_table};
pub use crate::threads::threads;

use crate::common::{Common, finish};
use crate::{Registry, output, program_file, run};

/// Commands of `ccplane --help` that are separate programs.
const PROGRAM_COMMANDS: [&str; 2] = ["bench", "paper"];

/// Main function of the program `ccplane-NAME`, which has the command line of `ccplane NAME`.
pub fn main<A: FromArgMatches>(
    name: &str,
    registry: Registry,
    run: impl FnOnce(&A, &Registry, bool) -> Result<(), Failure>,
) -> ExitCode {
    let registry = registry.with_files(|path| program_file::read(path));
    let words = ["ccplane".into(), name.into()].into_iter();
    let words = words.chain(std::env::args_os().skip(1));
    let command =
        crate::command().mut_subcommand(name, |command| command.version(env!("CARGO_PKG_VERSION")));
    let given = command.get_matches_from(words);
    let (_, own) = given.subcommand().unwrap_or((name, &given));
    let arguments = A::from_arg_matches(own).unwrap_or_else(|error| error.exit());
    let common = Common::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    finish(&common, || {
        run(&arguments, &registry, common.json).map(|()| 0)
    })
    .into()
}

/// Returns the command line of this process, a program `ccplane-NAME`.
pub fn command_line(name: &str) -> String {
    run::quoted(&format!("ccplane {name}"))
}

/// Writes a line to standard output, which may be closed or full.
pub fn print_line(text: impl fmt::Display) {
    output::write(format_args!("{text}\n"));
}

/// Writes lines to standard output, which may be closed or full.
pub fn print_lines(text: impl fmt::Display) {
    output::write(format_args!("{text}"));
}

/// Returns the path of a program: in the folder of this one, or in a folder of PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A relative folder would depend on the working directory.
    let path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let mut all = own_folder().into_iter().chain(path);
    all.find_map(|folder| Some(folder.join(name)).filter(|file| is_program(file)))
}

/// Returns the path of the command `ccplane`.
pub fn find_ccplane() -> Result<PathBuf, Failure> {
    find("ccplane").ok_or_else(|| absent("ccplane", "ccplane", "cli"))
}

/// Returns the folder of the running program, with links resolved.
fn own_folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.parent().map(Path::to_owned)
}

fn is_program(file: &Path) -> bool {
    file.is_file() && access(file, AccessFlags::X_OK).is_ok()
}

/// Executes the program of this command line, unless the command is built in or there is no such
/// program. Returns an error if the program cannot be started.
pub(crate) fn hand_over(words: &[OsString], ours: &clap::Command) -> Result<(), Failure> {
    let Some(call) = Call::parse(words) else {
        return Ok(());
    };
    let is_ours =
        ours.find_subcommand(call.name).is_some() && !PROGRAM_COMMANDS.contains(&call.name);
    if is_ours || call.is_python_bench() {
        return Ok(());
    }
    let Some(program) = find(&format!("ccplane-{}", call.name)) else {
        return Ok(());
    };
    let why = process::Command::new(&program)
        .args(call.options)
        .args(call.words)
        .args(call.help)
        .exec();
    let what = format!("{} cannot be run: {why}", program.display());
    Err(Failure::text(FailureKind::Unsupported, what).hint("rebuild or reinstall it"))
}

/// Returns the failure for a program that was not found.
pub(crate) fn missing(name: &str) -> Failure {
    absent(&format!("ccplane {name}"), &format!("ccplane-{name}"), name)
}

fn absent(command: &str, program: &str, folder: &str) -> Failure {
    let own = own_folder().map_or("the folder of this program".to_owned(), |folder| {
        folder.display().to_string()
    });
    let what =
        format!("`{command}` needs the program {program}, which is neither in {own} nor in PATH");
    let hint = format!(
        "in ccplane's sources (in packages, /usr/share/ccplane/src), build it to target/release \
         with `cargo build --release -p {program}`, or install it into a folder of PATH with \
         `cargo install --path crates/{folder}`"
    );
    Failure::text(FailureKind::Unsupported, what).hint(hint)
}

/// Command line `ccplane [OPTIONS] NAME WORDS`.
#[derive(Debug, PartialEq, Eq)]
struct Call<'w> {
    options: &'w [OsString],
    name: &'w str,
    words: &'w [OsString],
    /// `--help`, for `ccplane help NAME WORDS`.
    help: Option<&'static str>,
}

impl Call<'_> {
    fn parse(all: &[OsString]) -> Option<Call<'_>> {
        let all = all.get(1..)?;
        let (options, rest) = all.split_at(all.iter().take_while(|word| is_common(word)).count());
        let (name, words) = rest.split_first()?;
        let (name, words, help) = match words.split_first() {
            Some((name, words)) if *rest[0] == *"help" => (name, words, Some("--help")),
            _ => (name, words, None),
        };
        let name = name.to_str()?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let is_name = !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain);
        is_name.then_some(Call {
            options,
            name,
            words,
            help,
        })
    }

    /// Returns true for `ccplane bench python`, which the Python package implements.
    fn is_python_bench(&self) -> bool {
        let mut words = self.words.iter().filter(|word| !is_common(word));
        self.name == "bench" && self.help.is_none() && words.next().is_some_and(|w| w == "python")
    }
}

/// Returns true if a word consists of global options, which take no value: `--json`, `-jv`.
fn is_common(word: &OsStr) -> bool {
    let letters = word.to_str().and_then(|word| word.strip_prefix('-'));
    let is_short =
        |letters: &str| !letters.is_empty() && letters.chars().all(|letter| "jv".contains(letter));
    letters.is_some_and(|rest| rest == "-json" || rest == "-verbose" || is_short(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_command_line_is_split_at_the_command() {
        let split = |text: &str| {
            let all = words(text);
            let join = |words: &[OsString]| words.join(OsStr::new(" ")).into_string().unwrap();
            Call::parse(&all).map(|call| {
                let help = call.help.is_some();
                (
                    join(call.options),
                    call.name.to_owned(),
                    join(call.words),
                    help,
                )
            })
        };
        let is = |options: &str, name: &str, words: &str, help| {
            Some((options.to_owned(), name.to_owned(), words.to_owned(), help))
        };
        assert_eq!(split("ccplane paper list"), is("", "paper", "list", false));
        assert_eq!(
            split("ccplane --json -vv bench -- --json"),
            is("--json -vv", "bench", "-- --json", false)
        );
        assert_eq!(split("ccplane help bench dx"), is("", "bench", "dx", true));
        assert_eq!(split("ccplane help"), is("", "help", "", false));
        for none in [
            "",
            "ccplane",
            "ccplane --help paper",
            "ccplane -- paper",
            "ccplane ../paper",
            "ccplane ./x",
            "ccplane -j",
        ] {
            assert_eq!(split(none), None, "{none}");
        }
    }

    #[test]
    fn bench_python_does_not_start_a_program() {
        let is = |text: &str| Call::parse(&words(text)).is_some_and(|call| call.is_python_bench());
        assert!(is("ccplane bench python --json") && is("ccplane -v bench --json python"));
        assert!(!is("ccplane bench dx python") && !is("ccplane help bench python"));
    }
}
