//! Runs untrusted algorithms in Python in a confined process of another user. This process relays
//! reports and commands.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ccplane_lab::Contender;
use ccplane_link::AgentAddress;
use nix::unistd::{Gid, chown};

use crate::confine::ADDRESS_SPACE_BYTES_MAX;
use crate::exceptions::Exceptions;
use crate::exit::{Failure, FailureKind};
use crate::python::folder_of;
use crate::sandbox::{Process, RunAs, Sandbox, SandboxRequest};

/// Time limit for the interpreter to read the file.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which the agent's socket is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Agent in a process of its own, which ends with this one.
pub(super) struct AgentProcess {
    process: Arc<Process>,
    folder: PathBuf,
    pub(super) address: AgentAddress,
    /// Exceptions in callbacks, as counted by the agent.
    pub(super) exceptions: Exceptions,
}

impl AgentProcess {
    /// Starts an agent with these algorithms and waits until its socket exists.
    #[expect(
        clippy::disallowed_methods,
        reason = "polls a child process with a timeout"
    )]
    pub(super) fn start(
        algorithms: &[Contender],
        python: &Path,
        user: Option<RunAs>,
    ) -> Result<AgentProcess, Failure> {
        let group = user.as_ref().map(RunAs::group);
        let sandbox = Sandbox::new(python, user, ADDRESS_SPACE_BYTES_MAX);
        let who = sandbox.user();
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            Failure::text(FailureKind::Failed, format!("{what}: {why}"))
        };
        let given = SandboxRequest {
            folder: folder_of(algorithms),
            ..SandboxRequest::collect(algorithms)
                .map_err(|why| Failure::text(FailureKind::Usage, why))?
        };
        sweep();
        let folder =
            std::env::temp_dir().join(format!("{SOCKET_FOLDER_PREFIX}{}", std::process::id()));
        fs::create_dir(&folder)
            .map_err(|why| failed(&format!("cannot create {}", folder.display()), &why))?;
        let path = folder.join("agent.sock");
        let names: Vec<String> = algorithms.iter().map(Contender::to_string).collect();
        let mut words: Vec<OsString> = ["agent", "--confined", "--alg"].map(OsString::from).into();
        words.extend([names.join(",").into(), "--unix".into(), path.clone().into()]);
        // The agent creates the socket in it; this process, which will soon lose its privileges
        // over files of others, removes it.
        let mode = if group.is_some() { 0o770 } else { 0o700 };
        let started = chown(&folder, None, group.map(Gid::from_raw))
            .map_err(std::io::Error::from)
            .and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(mode)))
            .map_err(|why| format!("cannot prepare {}: {why}", folder.display()))
            .and_then(|()| sandbox.start(words, &[]));
        let (process, to) = started.map_err(|why| {
            let _ = fs::remove_dir_all(&folder);
            failed(&format!("cannot run Python as {who}"), &why).hint(TRUSTED_USER_HINT)
        })?;
        let address = format!("unix:{}", path.display());
        let mut apart = AgentProcess {
            process: Arc::new(process),
            folder,
            address: address
                .parse()
                .map_err(|why| failed("invalid path of the agent's socket", &why))?,
            exceptions: Exceptions::default(),
        };
        given
            .send(to)
            .map_err(|why| failed(&format!("cannot run Python as {who}"), &why))?;
        let begun = Instant::now();
        while !path.exists() {
            let ended = apart.process.wait(POLL_INTERVAL);
            let why = match ended {
                Ok(None) if begun.elapsed() < STARTUP_TIMEOUT => continue,
                Ok(None) => format!(
                    "it did not create its socket within {} s",
                    STARTUP_TIMEOUT.as_secs()
                ),
                Ok(Some(status)) => apart
                    .process
                    .refused(status)
                    .unwrap_or_else(|| format!("it exited ({status}); see its messages above")),
                Err(why) => why,
            };
            apart.process.kill();
            return Err(
                failed(&format!("cannot run Python as {who}"), &why).hint(TRUSTED_USER_HINT)
            );
        }
        if let Some(warning) = sandbox.warning() {
            tracing::info!("{warning}");
        }
        apart.watch(names.join(", "))?;
        Ok(apart)
    }

    /// Starts the thread that counts exceptions and logs why the process ended.
    fn watch(&mut self, names: String) -> Result<(), Failure> {
        let (process, exceptions) = (Arc::clone(&self.process), self.exceptions.clone());
        let watch = move || {
            if let Err(error) = ccplane_linux::drop_capabilities() {
                tracing::error!(
                    "exceptions are not counted, as the thread cannot drop its capabilities: \
                     {error}"
                );
                return;
            }
            if let Some(told) = process.output() {
                exceptions.read_reports(told);
            }
            match process.wait(Duration::from_secs(1)) {
                _ if process.is_ending() => {}
                Ok(Some(status)) => {
                    let why = process
                        .refused(status)
                        .unwrap_or_else(|| status.to_string());
                    tracing::error!(
                        "{names}: the algorithm's process exited, and its flows run on the \
                         fallback: {why}"
                    );
                }
                Ok(None) => {}
                Err(why) => tracing::error!("{names}: {why}"),
            }
        };
        let thread = std::thread::Builder::new().name("ccplane-told".into());
        let started = thread.spawn(watch);
        started.map_err(|why| {
            Failure::text(
                FailureKind::Failed,
                format!("cannot start the thread that watches the agent's process: {why}"),
            )
        })?;
        Ok(())
    }
}

/// Removes the folders of killed processes.
pub(crate) fn sweep() {
    for folder in fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = folder.file_name();
        let of = name
            .to_str()
            .and_then(|name| name.strip_prefix(SOCKET_FOLDER_PREFIX))
            .and_then(|pid| pid.parse::<u32>().ok());
        if of.is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
            // Folders of another user are removed by that user's commands.
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

/// Prefix of the socket folders; the PID of their process follows.
const SOCKET_FOLDER_PREFIX: &str = "ccplane-agent-";
const TRUSTED_USER_HINT: &str = "that user needs read access to the Python installation that \
    contains ccplane; choose another user with --sandbox, or run the file in this process with \
    --sandbox off";

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.process.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
