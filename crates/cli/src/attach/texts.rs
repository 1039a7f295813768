//! `ccplane attach --watch`: a text that changes comes into force while it is attached.
//!
//! The process that steers gives up what loading takes, so it cannot load again. This one does nothing but watch: it starts the other with
//! `--keep`, and when a file has changed and is an algorithm, it ends that one and starts the next, which takes over the live flows.
//! In between the datapath goes on with the program that it has.

use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ccplane_host::die_with_parent;
use ccplane_lab::Contender;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{agents, detach, failed};
use crate::config::Settings;
use crate::exit::{Failure, Kind};
use crate::interrupt;
use crate::{Parameters, Registry};

/// How often files are looked at. A change counts when two looks have found the same: an editor may write in pieces.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the command until Ctrl-C or SIGTERM.
#[expect(clippy::disallowed_methods, reason = "files and processes change in real time")]
pub(super) fn run(settings: &Settings, registry: &Registry) -> Result<(), Failure> {
    let mut texts = texts(&settings.algorithms.value)?;
    // Also of those that are no texts: the other process keeps all of them.
    let specs = agents(&settings.algorithms.value, registry)?
        .into_iter()
        .flat_map(|one| one.specs);
    let names: Vec<String> = specs.map(|spec| spec.kernel_name).collect();
    let (stop, reload) = interrupt::flag_and_reload()?;
    let mut child = start()?;
    loop {
        if interrupt::raised(&stop) {
            end(&mut child)?;
            break;
        }
        if let Some(status) = child.try_wait().map_err(failed)? {
            leave(settings, &names)?;
            return Err(ended(status));
        }
        // The other process reads its configuration again; without one it ends, and this one with it.
        if reload.swap(false, Ordering::Relaxed) {
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGHUP).map_err(failed)?;
        }
        let mut again = false;
        for text in &mut texts {
            again |= text.look();
        }
        if again {
            end(&mut child)?;
            child = start()?;
        }
        std::thread::sleep(LOOK);
    }
    leave(settings, &names)
}

/// A file that is watched.
struct Text {
    path: String,
    parameters: Parameters,
    kernel_name: String,
    /// What is in force.
    source: String,
    /// What it was at the last look, if that was something else.
    seen: Option<String>,
    /// What was refused already: it is said once.
    refused: Option<String>,
}

fn texts(wanted: &[Contender]) -> Result<Vec<Text>, Failure> {
    let mut texts = Vec::new();
    for contender in wanted {
        if let Contender::Ccplane { name, parameters } = contender
            && name.ends_with(".ccp")
        {
            let parameters = parameters
                .iter()
                .fold(Parameters::new(), |all, (key, value)| all.with(key, value));
            let source = fs::read_to_string(name)
                .map_err(|e| Failure::text(Kind::Usage, format!("{name} cannot be read: {e}")))?;
            let kernel_name = named(name, &source, &parameters).map_err(|why| Failure::text(Kind::Usage, why))?;
            texts.push(Text {
                path: name.clone(),
                parameters,
                kernel_name,
                source,
                seen: None,
                refused: None,
            });
        }
    }
    match texts.is_empty() {
        true => Err(
            Failure::text(Kind::Usage, "--watch watches texts, and no algorithm is one")
                .hint("name a file, as in --alg ./mine.ccp; docs/text-algorithms.md"),
        ),
        false => Ok(texts),
    }
}

/// The kernel name of a text with these parameters, or what is wrong with it.
fn named(path: &str, source: &str, parameters: &Parameters) -> Result<String, String> {
    let text = source.to_owned();
    let registry = Registry::empty().with_files(move |_| Ok(text.clone()));
    let made = registry.by_name(path, parameters).map_err(|why| why.to_string())?;
    Ok(made.kernel_name())
}

impl Text {
    /// Whether there is another algorithm in the file now.
    fn look(&mut self) -> bool {
        // A file that is not there at this moment is being written.
        let Ok(now) = fs::read_to_string(&self.path) else {
            return false;
        };
        if now == self.source {
            self.seen = None;
            return false;
        }
        if self.seen.as_ref() != Some(&now) {
            self.seen = Some(now);
            return false;
        }
        self.seen = None;
        match named(&self.path, &now, &self.parameters) {
            Ok(name) if name == self.kernel_name => {
                eprintln!("{}: changed, and comes into force", self.path);
                self.source = now;
                return true;
            }
            _ if self.refused.as_ref() == Some(&now) => {}
            Ok(name) => {
                let Text { path, kernel_name, .. } = self;
                eprintln!(
                    "{path}: it has another name now, {name}: sockets know it as {kernel_name}, which goes on; start again for that"
                );
            }
            Err(why) => eprintln!("{why}\n{}: what is in force goes on", self.path),
        }
        self.refused = Some(now);
        false
    }
}

/// This command without `--watch`, with `--keep`.
fn start() -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(
        std::env::args_os()
            .skip(1)
            .filter(|word| word != "--watch" && !word.as_encoded_bytes().starts_with(b"--keep")),
    );
    command.arg("--keep");
    die_with_parent(&mut command).spawn().map_err(failed)
}

fn end(child: &mut Child) -> Result<(), Failure> {
    // It may have ended by itself.
    let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
    child.wait().map(|_| ()).map_err(failed)
}

fn ended(status: ExitStatus) -> Failure {
    Failure::text(Kind::Failed, format!("the process that steers has ended: {status}"))
}

/// Removes what was registered, unless it is to be kept.
fn leave(settings: &Settings, names: &[String]) -> Result<(), Failure> {
    match settings.keep.value {
        true => Ok(()),
        false => detach(names),
    }
}
