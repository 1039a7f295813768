//! Hands a command line over to the installed `ccplane` command. A program built on the core alone
//! does this for everything that the core cannot do: real packets and all host commands.
//!
//! The program's own algorithms run in a second process of the same program, an agent on a Unix
//! socket. The installed command inherits the write end of the agent's standard input, so the agent
//! ends with the command, even after SIGKILL. If the agent ends first, its flows fall back as with
//! any agent.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::Registry;
use ccplane_lab::{Contender, read};
use ccplane_link::{Local, WaitStrategy, serve};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::mkdtemp;

use crate::exit::{Failure, FailureKind};
use crate::run::{COMMAND_LINE_VARIABLE, command_line};

/// First argument of the agent process.
const AGENT_SUBCOMMAND: &str = "serve-algorithms";
/// Printed by the agent once its socket exists.
const READY_MESSAGE: &str = "ready\n";
/// Environment variable with the path of the installed command.
const COMMAND_VARIABLE: &str = "CCPLANE_COMMAND";
/// Path of the command that created the crate, recorded at build time.
const BUILD_COMMAND: Option<&str> = option_env!("CCPLANE_COMMAND");
/// Subcommands that accept `--agent`.
const STEERING_COMMANDS: [&str; 3] = ["run", "attach", "send"];
/// Options that take algorithm names.
const ALGORITHM_OPTIONS: [&str; 2] = ["--alg", "--vs"];
/// Option that selects the agent.
const AGENT_OPTION: &str = "--agent";
/// Longest name of a congestion control in the kernel, bytes (`TCP_CA_NAME_MAX` - 1).
const KERNEL_NAME_BYTES_MAX: usize = 15;
/// Epilogue of the list of commands.
pub(crate) const AFTER_HELP: &str = "The installed command, which this program starts, provides \
    runs on real packets and all other commands (`ccplane --help`).";

/// Runs the agent if these are the arguments of an agent process. Returns its exit code.
pub(crate) fn agent_process(words: &[OsString], registry: &Registry) -> Option<u8> {
    if words.get(1).is_none_or(|word| word != AGENT_SUBCOMMAND) {
        return None;
    }
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let socket = PathBuf::from(words.get(2)?);
    let names: Vec<String> = words.iter().skip(3).map(text).collect();
    Some(match run_agent(&socket, &names, registry) {
        Ok(()) => 0,
        Err(failure) => failure.report(false),
    })
}

/// Folder of the socket, removed on drop, even after a panic of an algorithm.
struct AgentFolder<'a>(&'a Path);

impl Drop for AgentFolder<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.0);
    }
}

/// Serves these algorithms until standard input is closed.
fn run_agent(socket: &Path, names: &[String], registry: &Registry) -> Result<(), Failure> {
    let _folder = socket.parent().map(AgentFolder);
    let mut agent = host(names, registry)?;
    let mut link = Local::bind(socket).map_err(|why| Failure::new(FailureKind::Failed, why))?;
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        ended.store(true, Ordering::Relaxed);
    };
    let started = thread::Builder::new().spawn(wait).and_then(|_| {
        let mut out = io::stdout().lock();
        out.write_all(READY_MESSAGE.as_bytes())
            .and_then(|()| out.flush())
    });
    started.map_err(|why| {
        Failure::text(
            FailureKind::Failed,
            format!("cannot start the agent: {why}"),
        )
    })?;
    serve(&mut agent, &mut [&mut link], WaitStrategy::default(), &stop)
        .map_err(|why| Failure::new(FailureKind::Failed, why))
}

/// Creates an agent that hosts the algorithms of these contenders.
fn host(names: &[String], registry: &Registry) -> Result<Agent, Failure> {
    let mut agent = Agent::new(AgentOptions::default());
    for name in names {
        let contender: Contender = name
            .parse()
            .map_err(|why| Failure::new(FailureKind::Usage, why))?;
        let Contender::Ccplane { name, parameters } = &contender else {
            continue;
        };
        let algorithm = registry
            .by_name(name, &read(parameters))
            .map_err(|why| Failure::new(FailureKind::Usage, why))?;
        let taken: Vec<&str> = agent
            .hosted_algorithms()
            .map(|one| one.kernel_name.as_str())
            .collect();
        let kernel_name = free_name(&algorithm.kernel_name(), &taken);
        agent
            .add_as(contender.agent_name(), kernel_name, algorithm)
            .map_err(|why| Failure::new(FailureKind::Failed, why))?;
    }
    Ok(agent)
}

/// Returns `name`, or the first of `NAME.2`, `NAME.3`, … that is not taken.
fn free_name(name: &str, taken: &[&str]) -> String {
    let numbered = (2..).map(|number| {
        let end = format!(".{number}");
        let room = KERNEL_NAME_BYTES_MAX - end.len();
        name.chars().take(room).collect::<String>() + &end
    });
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| !taken.contains(&name.as_str()))
        .unwrap_or_default()
}

/// Replaces this process with the installed command, running these arguments. Returns only on
/// failure.
pub(crate) fn hand_over_words(words: &[OsString], registry: &Registry) -> Failure {
    match contenders_in(words) {
        Ok(contenders) => hand_over(words, &contenders, registry),
        Err(failure) => failure,
    }
}

/// Replaces this process with the installed command, running these arguments, and starts an agent
/// for these contenders if they need one. Returns only on failure.
pub(crate) fn hand_over(
    words: &[OsString],
    contenders: &[Contender],
    registry: &Registry,
) -> Failure {
    let own: Vec<&Contender> = contenders
        .iter()
        .filter(|contender| is_own(contender, registry))
        .collect();
    let has = |option: &str| {
        let with_value = format!("{option}=");
        words
            .iter()
            .filter_map(|word| word.to_str())
            .any(|word| word == option || word.starts_with(&with_value))
    };
    let (Some(first), false) = (own.first(), has(AGENT_OPTION) || has("--help") || has("-h"))
    else {
        return become_installed(&words[1.min(words.len())..], None);
    };
    let Some(place) = steering_command_end(words) else {
        let name = first.algorithm();
        let what = format!(
            "the installed ccplane, which runs this command, does not have this program's \
             algorithm `{name}`"
        );
        return Failure::text(FailureKind::Usage, what).hint(
            "enable the feature `host` of the dependency `ccplane` in Cargo.toml: this program \
             then has every command, and takes minutes to build",
        );
    };
    let mut names: Vec<String> = Vec::new();
    let runs_here = |contender: &&Contender| !contender.is_native() && contender.agent().is_none();
    for contender in contenders.iter().filter(runs_here) {
        let name = contender.to_string();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // Reports errors of an algorithm before any process is started.
    if let Err(failure) = host(&names, registry) {
        return failure;
    }
    match start_agent(&names) {
        Ok((agent, socket)) => {
            let mut all = words[1..place].to_vec();
            let mut address = OsString::from("unix:");
            address.push(&socket);
            all.extend([AGENT_OPTION.into(), address]);
            all.extend_from_slice(&words[place..]);
            become_installed(&all, Some(agent))
        }
        Err(why) => Failure::text(
            FailureKind::Failed,
            format!("cannot start the agent: {why}"),
        ),
    }
}

/// Returns true if the installed command lacks this algorithm or has a different one of this name.
fn is_own(contender: &Contender, registry: &Registry) -> bool {
    let name = contender.algorithm();
    let of = |registry: &Registry| registry.docs().find(|doc| doc.name == name).copied();
    let runs_here = !contender.is_native() && contender.agent().is_none();
    runs_here && of(registry).is_some_and(|doc| of(&Registry::builtin()) != Some(doc))
}

/// Returns the index after the subcommand if `words` invokes one that accepts `--agent`.
fn steering_command_end(words: &[OsString]) -> Option<usize> {
    let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
    let index = (1..words.len()).find(|index| !is_option(&words[*index]))?;
    let is_steering = STEERING_COMMANDS
        .iter()
        .any(|command| words[index] == *command);
    is_steering.then_some(index + 1)
}

/// Returns the algorithms named in these arguments.
fn contenders_in(words: &[OsString]) -> Result<Vec<Contender>, Failure> {
    let words: Vec<&str> = words
        .iter()
        .map(|word| word.to_str().unwrap_or_default())
        .collect();
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate().skip(1) {
        let value = match word.split_once('=') {
            Some((option, value)) if ALGORITHM_OPTIONS.contains(&option) => value,
            _ if ALGORITHM_OPTIONS.contains(&words[index - 1]) => word,
            // The candidates of `arena` are positional.
            _ if words[1] == "arena" && index > 1 && !word.starts_with('-') => word,
            _ => continue,
        };
        for text in value.split(',').filter(|text| !text.is_empty()) {
            let contender = text.parse();
            found.push(contender.map_err(|why| Failure::new(FailureKind::Usage, why))?);
        }
    }
    Ok(found)
}

/// Starts the agent. Returns it and the path of its socket, which exists.
fn start_agent(names: &[String]) -> io::Result<(Child, PathBuf)> {
    // Mode 0700 and a random name, which no other user can occupy first.
    let folder = mkdtemp(&std::env::temp_dir().join("ccplane-algorithms-XXXXXX"))?;
    let socket = folder.join("socket");
    let started = Command::new(std::env::current_exe()?)
        .arg(AGENT_SUBCOMMAND)
        .arg(&socket)
        .args(names)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C must reach only the command: the agent outlives it.
        .process_group(0)
        .spawn();
    let ready = started.and_then(|mut agent| {
        let mut line = String::new();
        if let Some(out) = agent.stdout.take() {
            BufReader::new(out.take(READY_MESSAGE.len() as u64)).read_line(&mut line)?;
        }
        if line == READY_MESSAGE {
            return Ok(agent);
        }
        let _ = agent.kill();
        Err(io::Error::other(format!("it exited ({})", agent.wait()?)))
    });
    match ready {
        Ok(agent) => Ok((agent, socket)),
        Err(why) => {
            let _ = fs::remove_file(&socket);
            let _ = fs::remove_dir(&folder);
            Err(why)
        }
    }
}

/// Replaces this process with the installed command running these arguments.
fn become_installed(words: &[OsString], agent: Option<Child>) -> Failure {
    let made_by = || {
        BUILD_COMMAND
            .filter(|path| Path::new(path).is_file())
            .map(OsString::from)
    };
    let command = std::env::var_os(COMMAND_VARIABLE)
        .or_else(made_by)
        .unwrap_or_else(|| "ccplane".into());
    // Clears FD_CLOEXEC, so that the agent's standard input stays open while the command runs.
    let inherit = |agent: &Child| match &agent.stdin {
        Some(input) => fcntl(input, FcntlArg::F_SETFD(FdFlag::empty())).map(drop),
        None => Ok(()),
    };
    let why = match agent.as_ref().map_or(Ok(()), inherit) {
        Ok(()) => Command::new(&command)
            .args(words)
            .env(COMMAND_LINE_VARIABLE, command_line())
            .exec(),
        Err(why) => why.into(),
    };
    // Closing the agent's standard input ends the agent.
    if let Some(mut agent) = agent {
        drop(agent.stdin.take());
        let _ = agent.wait();
    }
    let what = format!(
        "`{}` requires the installed command, but {} cannot be run: {why}",
        command_line(),
        command.to_string_lossy()
    );
    Failure::text(FailureKind::Unsupported, what).hint(format!(
        "install ccplane, or set {COMMAND_VARIABLE}=PATH; without it, this program has only `run` \
         in the simulator, `compare`, `evaluate` and `algorithms`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn agent_options_are_inserted_after_a_steering_command() {
        let place = |text: &str| steering_command_end(&words(text));
        assert_eq!(place("mine run --alg mine"), Some(2));
        assert_eq!(place("mine -v run --alg mine"), Some(3));
        assert_eq!(place("mine send a b"), Some(2));
        assert_eq!(place("mine recv send"), None);
        assert_eq!(place("mine check run"), None);
        assert_eq!(place("mine"), None);
    }

    #[test]
    fn algorithms_of_an_agent_have_distinct_kernel_names() {
        assert_eq!(free_name("ccp_mine", &[]), "ccp_mine");
        assert_eq!(
            free_name("ccp_mine", &["ccp_mine", "ccp_mine.2"]),
            "ccp_mine.3"
        );
        assert_eq!(
            free_name("ccp_elevenchars", &["ccp_elevenchars"]),
            "ccp_elevencha.2"
        );
        let names = ["reno", "reno:report=10ms"].map(str::to_owned);
        let agent = host(&names, &Registry::builtin()).expect("an agent");
        let hosted: Vec<_> = agent
            .hosted_algorithms()
            .map(|one| (one.name.to_string(), one.kernel_name.clone()))
            .collect();
        let expected = [("reno", "ccp_reno"), ("reno:report=10ms", "ccp_reno.2")];
        assert_eq!(
            hosted,
            expected.map(|(name, kernel)| (name.to_owned(), kernel.to_owned()))
        );
    }

    #[test]
    fn algorithms_are_found_on_a_command_line() {
        let found = |text: &str| {
            let found = contenders_in(&words(text)).expect("contenders");
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            found("mine attach --alg mine:back=0.8,cubic --vs=native:reno"),
            ["mine:back=0.8", "cubic", "native:reno"]
        );
        assert_eq!(found("mine send file host:1"), [""; 0]);
        assert_eq!(found("mine arena mine --json"), ["mine"]);
    }
}
