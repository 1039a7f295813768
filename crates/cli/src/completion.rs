//! `ccplane completions SHELL`: a script with which a shell completes the command line.
//!
//! The script runs the command for each completion, which includes the algorithms of the program and
//! the scenarios.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

use clap::builder::ValueParser;
use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use ccplane_lab::scenario::shipped;
use ccplane_lab::{AGENT_ADDRESS_STARTS, Contender};
use ccplane_transport::Native;

use crate::Registry;
use crate::exit::{Failure, FailureKind};

/// Environment variable with which the script asks for completions; its value is the shell.
const VARIABLE: &str = "CCPLANE_COMPLETE";

#[derive(Clone, Copy, ValueEnum)]
pub enum Shell {
    /// For `source <(ccplane completions bash)`.
    Bash,
    /// For a folder of `$fpath`, as `_ccplane`.
    Zsh,
    /// For `~/.config/fish/completions/ccplane.fish`.
    Fish,
}

#[derive(Args)]
pub struct CompletionsArgs {
    shell: Shell,
}

/// Completes at once if the script is loaded as the function `_ccplane` of `$fpath`.
const ZSH_AUTOLOAD: &str = "\nif [[ ${funcstack[1]} == _ccplane ]]; then\n    \
                            _clap_dynamic_completer_ccplane \"$@\"\nfi\n";

/// Prints the script, which finds `ccplane` in `PATH`.
pub fn print_script(args: &CompletionsArgs) -> Result<(), Failure> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let failed = |why: io::Error| Failure::text(FailureKind::Failed, why.to_string());
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "ccplane", "ccplane", "ccplane", &mut script)
        .map_err(failed)?;
    if matches!(args.shell, Shell::Zsh) {
        // zsh runs a file of `$fpath` as the function at the first completion.
        script.extend_from_slice(ZSH_AUTOLOAD.as_bytes());
    }
    io::stdout().write_all(&script).map_err(failed)
}

/// Prints the completions if a script asks for them. Returns false for any other command line.
pub fn complete(words: &[OsString], command: &Command, registry: &Registry) -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    let names = Names::new(registry);
    let asked = CompleteEnv::with_factory(|| with_names(command.clone(), &names))
        .var(VARIABLE)
        .try_complete(words, None);
    let is_completed = asked.unwrap_or_else(|why| why.exit());
    if is_completed {
        // Python does not flush this buffer at its exit. A closed pipe needs no completions.
        let _ = io::stdout().flush();
    }
    is_completed
}

/// Names of the registry's algorithms, and of these and native ones as contenders.
struct Names {
    algorithms: Vec<String>,
    contenders: Vec<String>,
}

impl Names {
    fn new(registry: &Registry) -> Names {
        let algorithms: Vec<String> = registry.names().map(str::to_owned).collect();
        let native = Native::NAMES.map(|name| format!("native:{name}"));
        Names {
            contenders: algorithms.iter().cloned().chain(native).collect(),
            algorithms,
        }
    }
}

/// Adds completers to the arguments that take names.
fn with_names(command: Command, names: &Names) -> Command {
    let contender = ValueParser::from(clap::value_parser!(Contender)).type_id();
    let command_name = command.get_name().to_owned();
    let add = |arg: Arg| {
        let is_list = arg.get_value_delimiter().is_some();
        let is_contender = arg.get_value_parser().type_id() == contender;
        let (names, is_list, has_paths) = match (&*command_name, arg.get_id().as_str()) {
            _ if is_contender => (names.contenders.clone(), is_list, true),
            ("algorithms", "name") => (names.algorithms.clone(), false, false),
            ("run", "scenario") => (shipped().map(str::to_owned).collect(), false, true),
            _ => return arg,
        };
        arg.add(ArgValueCompleter::new(NameCompleter {
            names,
            is_list,
            has_paths,
            has_agents: is_contender,
        }))
    };
    command
        .mut_args(add)
        .mut_subcommands(|command| with_names(command, names))
}

/// Completes a name or a path.
struct NameCompleter {
    names: Vec<String>,
    /// True if the value is a list of names, separated by commas.
    is_list: bool,
    /// True if a path can take the place of a name.
    has_paths: bool,
    /// True if the address of an agent can follow a name.
    has_agents: bool,
}

impl ValueCompleter for NameCompleter {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let text = current.to_string_lossy();
        let (earlier, last) = match text.rsplit_once(',').filter(|_| self.is_list) {
            Some((earlier, last)) => (format!("{earlier},"), last),
            None => (String::new(), &*text),
        };
        let names = self.names.iter().filter(|name| name.starts_with(last));
        let names = names.map(|name| CompletionCandidate::new(name.as_str()));
        let paths = match last.is_empty() || !self.has_paths {
            // All files of the folder would hide the names.
            true => Vec::new(),
            false => PathCompleter::file().complete(OsStr::new(last)),
        };
        let agents = match last.split_once('@').filter(|_| self.has_agents) {
            None => Vec::new(),
            Some((algorithm, address)) => {
                let agents = complete_agent(address).into_iter();
                agents
                    .map(|found| found.add_prefix(format!("{algorithm}@")))
                    .collect()
            }
        };
        names
            .chain(paths)
            .chain(agents)
            .map(|candidate| candidate.add_prefix(earlier.clone()))
            .collect()
    }
}

/// Completes the address of an agent: its scheme, and the path of its socket.
fn complete_agent(address: &str) -> Vec<CompletionCandidate> {
    let is_path = |start: &&str| !start.ends_with("//");
    for start in AGENT_ADDRESS_STARTS.into_iter().filter(is_path) {
        let scheme = start.trim_end_matches('/');
        if let Some(path) = address.strip_prefix(scheme).filter(|path| !path.is_empty()) {
            let sockets = PathCompleter::any().complete(OsStr::new(path));
            let sockets = sockets.into_iter();
            return sockets.map(|found| found.add_prefix(scheme)).collect();
        }
    }
    let starts = AGENT_ADDRESS_STARTS.into_iter();
    let starts = starts.filter(|start| start.starts_with(address));
    starts.map(CompletionCandidate::new).collect()
}
