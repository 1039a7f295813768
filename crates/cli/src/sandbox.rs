//! Processes for untrusted Python files, from the caller's side.
//!
//! The process starts as another user and in namespaces ([`ccplane_linux::sandbox`]), reads the
//! [`SandboxRequest`] from standard input, and confines itself ([`crate::confine`]) before it reads
//! a file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ccplane_lab::Contender;
use ccplane_linux::sandbox::{self, Cgroup, Namespaces, SandboxProgram, SandboxedProcess};
use clap::Args;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::{Group, User, geteuid};
use serde::{Deserialize, Serialize};

use crate::confine;
use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::log;

/// Size limit of an algorithm's file. A trained policy can have some megabytes; a higher limit lets
/// a file fill the memory.
const ALGORITHM_FILE_BYTES_MAX: u64 = 16 << 20;
/// Longest forwarded line of standard error, bytes.
const STDERR_LINE_BYTES_MAX: u64 = 4 << 10;
/// Forwarded bytes of standard error. A lower limit cuts tracebacks; a higher one floods the
/// caller's terminal.
const STDERR_BYTES_MAX: u64 = 256 << 10;
/// Interval at which the end of the process is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time limit for draining the pipe after the process has ended, since another process may hold it
/// open and write. A shorter limit loses output that a busy host has not read yet.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of tasks in the cgroup.
const CGROUP_TASKS_MAX: u64 = 512;

/// Environment variables that the process inherits: an interpreter needs them for its files and its
/// language. Others may be secrets of the caller.
const INHERITED_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "LC_ALL"];

/// Sandbox of algorithms in Python, an option of `arena` and `attach`.
#[derive(Args)]
pub(crate) struct SandboxArgs {
    /// User that algorithms in Python run as, a name or a number, in a process of their own that
    /// cannot write files, run programs or use the network, with 512 MB of memory [default: nobody,
    /// if started by root]. `off` runs them inside this process, with all of its permissions.
    #[arg(long, value_name = "USER|off")]
    sandbox: Option<String>,
}

impl SandboxArgs {
    /// Returns true if algorithms in Python run in this process.
    pub(crate) fn is_off(&self) -> bool {
        self.sandbox.as_deref() == Some("off")
    }

    /// Returns the user of the processes; `None` is the caller's own.
    pub(crate) fn user(&self) -> Result<Option<RunAs>, Failure> {
        RunAs::resolve(self.sandbox.as_deref().filter(|_| !self.is_off()))
    }
}

/// User that the processes run as.
#[derive(Clone, Debug)]
pub(crate) struct RunAs {
    name: String,
    user: u32,
    group: u32,
}

impl RunAs {
    /// Returns the user given by --sandbox, a name or a number. Without one, root's processes run
    /// as nobody; `None` is the caller's own user.
    fn resolve(given: Option<&str>) -> Result<Option<RunAs>, Failure> {
        let wrong = |what: String| {
            Failure::text(
                FailureKind::Usage,
                format!("--sandbox {}: {what}", given.unwrap_or_default()),
            )
        };
        let known = |user: User| RunAs {
            name: user.name,
            user: user.uid.as_raw(),
            group: user.gid.as_raw(),
        };
        let number = given.and_then(|given| given.parse::<u32>().ok());
        let found = match (given, number) {
            (_, Some(number)) => User::from_uid(number.into()),
            (given, None) => User::from_name(given.unwrap_or("nobody")),
        };
        let found = found.map_err(|why| wrong(format!("cannot look up users: {why}")))?;
        let user = match (found.map(known), number) {
            (Some(user), _) => user,
            (None, Some(number)) if number != u32::MAX => RunAs {
                name: number.to_string(),
                user: number,
                group: number,
            },
            // Falls back to the usual number on hosts without the user.
            (None, None) if given.is_none() => RunAs {
                name: "nobody".into(),
                user: 65_534,
                group: Group::from_name("nogroup")
                    .ok()
                    .flatten()
                    .map_or(65_534, |group| group.gid.as_raw()),
            },
            (None, _) => {
                return Err(wrong("this host has no such user".to_owned())
                    .hint("list the users with `getent passwd`, or give a numeric user ID"));
            }
        };
        match geteuid().as_raw() {
            0 => Ok(Some(user)),
            own if given.is_none() || own == user.user => Ok(None),
            _ => Err(
                wrong("only root can run a process as another user".to_owned()).hint(
                    "remove --sandbox to run it as the current user, or run the command as root",
                ),
            ),
        }
    }

    pub(crate) fn group(&self) -> u32 {
        self.group
    }
}

/// Algorithm file that the caller has read for this process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GivenFile {
    /// Path as a contender names it.
    pub name: String,
    /// Absolute path.
    pub path: PathBuf,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// First line of a process's standard input, as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SandboxRequest {
    /// Files that contenders name. The caller reads them, since the process may lack permission.
    pub(crate) files: Vec<GivenFile>,
    /// Texts of the scenarios to run.
    pub(crate) scenarios: Vec<String>,
    /// CPU time limit, s.
    pub(crate) cpu_seconds: Option<u64>,
    /// Folder that the paths of algorithms are relative to.
    pub(crate) folder: Option<PathBuf>,
}

impl SandboxRequest {
    /// Reads the files among these contenders.
    pub(crate) fn collect<'a>(
        contenders: impl IntoIterator<Item = &'a Contender>,
    ) -> Result<SandboxRequest, String> {
        let mut given = SandboxRequest::default();
        let is_file = |path: &&str| [".py", ".ccp"].iter().any(|end| path.ends_with(end));
        for path in contenders
            .into_iter()
            .map(Contender::algorithm)
            .filter(is_file)
        {
            given.files.push(GivenFile {
                name: path.to_owned(),
                path: std::path::absolute(path).unwrap_or_else(|_| path.into()),
                bytes: read_file(path)?,
            });
        }
        Ok(given)
    }

    /// Reads the caller's request, and keeps its files for [`given_file`].
    pub(crate) fn receive() -> Result<SandboxRequest, Failure> {
        let mut line = Vec::new();
        let read = io::stdin().lock().read_until(b'\n', &mut line);
        let given = read.and_then(|_| serde_json::from_slice(&line).map_err(io::Error::from));
        let mut given: SandboxRequest = given.map_err(|why| {
            Failure::text(
                FailureKind::Failed,
                format!("cannot read the request of the parent process: {why}"),
            )
        })?;
        let files = std::mem::take(&mut given.files);
        *GIVEN_FILES.lock().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(given)
    }

    /// Sends the request to a process.
    pub(crate) fn send(&self, mut to: impl io::Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)
    }
}

static GIVEN_FILES: Mutex<Vec<GivenFile>> = Mutex::new(Vec::new());

/// Returns an algorithm file that the caller has read for this process.
pub fn given_file(name: &str) -> Option<GivenFile> {
    let files = GIVEN_FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.iter().find(|file| file.name == name).cloned()
}

fn read_file(path: &str) -> Result<Vec<u8>, String> {
    // Opening a pipe would block.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let file = file.map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => format!("{path}: there is no such file"),
        _ => format!("{path} cannot be read: {why}"),
    })?;
    let mut text = Vec::new();
    match file.metadata() {
        Ok(status) if status.is_file() => {}
        Ok(_) => return Err(format!("{path} is not a regular file")),
        Err(why) => return Err(format!("{path} cannot be read: {why}")),
    }
    let read = file
        .take(ALGORITHM_FILE_BYTES_MAX + 1)
        .read_to_end(&mut text);
    match read {
        Ok(_) if text.len() as u64 > ALGORITHM_FILE_BYTES_MAX => Err(format!(
            "{path} is longer than {ALGORITHM_FILE_BYTES_MAX} bytes"
        )),
        Ok(_) => Ok(text),
        Err(why) => Err(format!("{path} cannot be read: {why}")),
    }
}

/// Starts Python processes.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) python: PathBuf,
    /// `None` is the caller's user.
    pub(crate) user: Option<RunAs>,
    /// Memory limit of the cgroup, bytes.
    pub(crate) memory: u64,
    /// Unavailable protections; `None` before the first start.
    missing: Mutex<Option<BTreeSet<String>>>,
}

impl Sandbox {
    pub(crate) fn new(python: &Path, user: Option<RunAs>, memory: u64) -> Sandbox {
        Sandbox {
            python: python.to_owned(),
            user,
            memory,
            missing: Mutex::default(),
        }
    }

    /// Starts a process of ccplane's package with these arguments, isolated (`-I`), outside the
    /// caller's folder. It inherits none of the caller's descriptors and environment, except for
    /// `variables`.
    pub(crate) fn start(
        &self,
        words: impl IntoIterator<Item = OsString>,
        variables: &[(&str, &str)],
    ) -> Result<(Process, PipeWriter), String> {
        let cgroup = Cgroup::create(self.memory, CGROUP_TASKS_MAX);
        let kept = INHERITED_VARIABLES
            .iter()
            .filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
        let variables = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        let isolated = ["-I", "-m", "ccplane"].map(OsString::from);
        let program = SandboxProgram {
            path: &self.python,
            arguments: isolated.into_iter().chain(words).collect(),
            environment: kept.chain(variables).collect(),
            user: self.user.as_ref().map(|user| (user.user, user.group)),
            cgroup: cgroup.as_ref().ok(),
        };
        let (sandboxed, streams) =
            sandbox::start(&program).map_err(|why| format!("cannot start its process: {why}"))?;
        let outside = cgroup.as_ref().err().or(sandboxed.cgroup_error.as_ref());
        let missing = missing(sandboxed.namespaces, outside);
        let mut known = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_default().extend(missing);
        drop(known);
        let ended = Arc::new(OnceLock::new());
        let output = |from| Output {
            pipe: from,
            ended: Arc::clone(&ended),
        };
        let (output, errors) = (output(streams.output), output(streams.errors));
        let relay = move || {
            // The thread only reads a pipe.
            let _ = ccplane_linux::drop_capabilities();
            relay(errors);
        };
        let relay = thread::Builder::new()
            .name("ccplane-errors".into())
            .spawn(relay);
        let relay = relay.map_err(|why| format!("cannot start its process: {why}"))?;
        let process = Process {
            python: self.python.clone(),
            user: self.user.as_ref().map(|user| user.name.clone()),
            sandboxed,
            output: Mutex::new(Some(output)),
            relay: Mutex::new(Some(relay)),
            ended,
            is_ending: AtomicBool::new(false),
            _cgroup: cgroup.ok(),
        };
        Ok((process, streams.input))
    }

    /// Returns the protections that this host lacks; `None` before the first start.
    pub(crate) fn missing(&self) -> Option<Vec<String>> {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing
            .as_ref()
            .map(|missing| missing.iter().cloned().collect())
    }

    /// Returns a warning about [`Sandbox::missing`], if anything is missing.
    pub(crate) fn warning(&self) -> Option<String> {
        let missing = self.missing().filter(|missing| !missing.is_empty())?;
        let what = missing.join(", ");
        Some(format!(
            "Python files ran without {what}, which this host does not support; see `ccplane \
             doctor`"
        ))
    }

    /// Returns the name of the user that the processes run as.
    pub(crate) fn user(&self) -> String {
        let own = || {
            User::from_uid(geteuid())
                .ok()
                .flatten()
                .map_or_else(|| geteuid().to_string(), |user| user.name)
        };
        self.user
            .as_ref()
            .map_or_else(own, |user| user.name.clone())
    }
}

/// Returns the protections that a process lacks.
fn missing(namespaces: Namespaces, cgroup: Option<&io::Error>) -> Vec<String> {
    let namespaces = namespaces.missing().map(|name| format!("{name} namespace"));
    let cgroup = cgroup.map(|why| format!("cgroup limits ({why})"));
    namespaces.chain(cgroup).chain(confine::missing()).collect()
}

/// Returns the protections that this host lacks, for `doctor`. Starts no program.
pub(crate) fn missing_here() -> Vec<String> {
    let user = RunAs::resolve(None)
        .ok()
        .flatten()
        .map(|user| (user.user, user.group));
    let cgroup = Cgroup::create(confine::SIMULATION_CGROUP_BYTES_MAX, CGROUP_TASKS_MAX);
    missing(sandbox::namespaces(user), cgroup.err().as_ref())
}

/// A started process. Dropping it kills the process and all of its descendants.
#[derive(Debug)]
pub(crate) struct Process {
    python: PathBuf,
    user: Option<String>,
    sandboxed: SandboxedProcess,
    output: Mutex<Option<Output>>,
    relay: Mutex<Option<thread::JoinHandle<()>>>,
    ended: Arc<OnceLock<Instant>>,
    /// Set by [`Process::end`].
    is_ending: AtomicBool,
    _cgroup: Option<Cgroup>,
}

impl Process {
    /// Takes the process's standard output. It reaches its end soon after the process ends, even if
    /// another process holds the pipe open.
    pub(crate) fn output(&self) -> Option<Output> {
        self.output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Waits at most `longest` for the process to end.
    #[expect(
        clippy::disallowed_methods,
        reason = "polls a child process with a timeout"
    )]
    pub(crate) fn wait(&self, longest: Duration) -> Result<Option<ExitStatus>, String> {
        let status = self.sandboxed.wait(longest).map_err(|why| {
            let denied = why.kind() == io::ErrorKind::PermissionDenied;
            let hint = self.user.as_ref().filter(|_| denied).map_or_else(String::new, |user| {
                format!(
                    " as {user}; install Python and ccplane's package where {user} can read them, \
                     choose another user with --sandbox, or use --sandbox off"
                )
            });
            format!("{} cannot be run{hint}: {why}", self.python.display())
        });
        if !matches!(status, Ok(None)) {
            let _ = self.ended.set(Instant::now());
        }
        status
    }

    /// Returns true if the caller has ended the process or is about to.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Kills the process and all of its descendants, after forwarding their output.
    #[expect(clippy::disallowed_methods, reason = "kills a child process")]
    pub(crate) fn kill(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.sandboxed.kill(Duration::from_secs(3));
        let _ = self.ended.set(Instant::now());
        if let Some(relay) = self
            .relay
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            let _ = relay.join();
        }
    }

    /// Returns the reason if the process was killed for a forbidden system call.
    pub(crate) fn refused(&self, status: ExitStatus) -> Option<String> {
        (status.signal() == Some(Signal::SIGSYS as i32)).then(|| {
            let number = self.sandboxed.refused_syscall();
            let name = number
                .and_then(confine::forbidden_name)
                .unwrap_or("unknown");
            format!("it made a forbidden system call: {name}")
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Output pipe of a process.
#[derive(Debug)]
pub(crate) struct Output {
    pipe: PipeReader,
    ended: Arc<OnceLock<Instant>>,
}

impl Read for Output {
    #[expect(
        clippy::disallowed_methods,
        reason = "polls a child process with a timeout"
    )]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Must be read before polling: everything written before the end is then in the pipe.
            let ended = self.ended.get().map(Instant::elapsed);
            let timeout = if ended.is_some() {
                Duration::ZERO
            } else {
                POLL_INTERVAL
            };
            let mut waited = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            let ready = poll(
                &mut waited,
                PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO),
            );
            match (ready, ended) {
                (Ok(1..), Some(since)) if since > STDERR_DRAIN_TIMEOUT => return Ok(0),
                (Ok(1..), _) => return self.pipe.read(buffer),
                (_, Some(_)) => return Ok(0),
                (_, None) => {}
            }
        }
    }
}

/// Forwards the lines of a process's standard error, escaped and bounded.
fn relay(errors: Output) {
    let mut lines = BufReader::new(errors);
    let (mut line, mut passed) = (Vec::new(), 0);
    while let Ok(read @ 1..) = lines
        .by_ref()
        .take(STDERR_LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)
    {
        passed += read as u64;
        match passed {
            ..STDERR_BYTES_MAX => log::write(printable(
                String::from_utf8_lossy(&line).trim_end_matches('\n'),
            )),
            _ => {
                log::write("further output of this Python file is omitted");
                break;
            }
        }
        line.clear();
    }
    // Drains the pipe, so that the process never blocks on it.
    let _ = io::copy(&mut lines, &mut io::sink());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        if !geteuid().is_root() {
            return;
        }
        let found =
            |given| RunAs::resolve(given).map(|user| user.map(|user| (user.user, user.name)));
        assert_eq!(found(None).unwrap(), Some((65_534, "nobody".to_owned())));
        assert_eq!(found(Some("root")).unwrap(), Some((0, "root".to_owned())));
        assert_eq!(found(Some("0")).unwrap(), Some((0, "root".to_owned())));
        assert_eq!(
            found(Some("54321")).unwrap(),
            Some((54_321, "54321".to_owned()))
        );
        for wrong in ["no such", "4294967295", "-1", ""] {
            let why = found(Some(wrong)).unwrap_err();
            assert!(why.to_string().contains("no such user"), "{why}");
        }
    }

    #[test]
    fn output_ends_with_its_process_even_if_another_holds_the_pipe() {
        let (from, to) = io::pipe().unwrap();
        let ended = Arc::new(OnceLock::new());
        let mut output = Output {
            pipe: from,
            ended: Arc::clone(&ended),
        };
        io::Write::write_all(&mut &to, b"last words").unwrap();
        #[expect(clippy::disallowed_methods, reason = "reads a pipe in real time")]
        ended.set(Instant::now()).unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "last words");
        drop(to);
    }

    #[test]
    fn only_regular_files_of_bounded_length_are_read() {
        for (path, says) in [
            ("/dev/zero", "not a regular file"),
            ("/", "not a regular file"),
            ("/nowhere.py", "there is no such file"),
        ] {
            let why = read_file(path).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
