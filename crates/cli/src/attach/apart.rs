//! An algorithm that is a Python file is not trusted with the host: a process of nobody runs it, which has no privilege and is confined, and this
//! one passes reports and commands on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ccplane_agent::link::AgentAddress;
use ccplane_lab::Contender;
use nix::unistd::{User, chown};

use super::exceptions::Exceptions;
use crate::exit::{Failure, Kind};
use crate::python::{child, folder_of};

/// How long its interpreter may take to read the file.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to end.
const LONGEST_END: Duration = Duration::from_secs(3);
/// How often it is looked whether it listens, or has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An agent in a process of its own, which ends with this.
pub(super) struct Apart {
    child: Child,
    folder: PathBuf,
    pub(super) address: AgentAddress,
    /// What its callbacks raise, of those that are counted there.
    pub(super) exceptions: Exceptions,
}

impl Apart {
    /// Starts an agent of these algorithms, and waits until it listens.
    #[expect(clippy::disallowed_methods, reason = "it waits for another process")]
    pub(super) fn start(algorithms: &[Contender], python: &Path) -> Result<Apart, Failure> {
        let failed = |what: &str, why: &dyn std::fmt::Display| Failure::text(Kind::Failed, format!("{what}: {why}"));
        let nobody = User::from_name("nobody")
            .ok()
            .flatten()
            .ok_or_else(|| failed("run Python as nobody", &"this host has no such user"))?;
        let mut command = child(python).map_err(|why| failed("start Python as nobody", &why))?;
        sweep();
        let folder = std::env::temp_dir().join(format!("{FOLDER}{}", std::process::id()));
        fs::create_dir(&folder).map_err(|why| failed(&format!("make {}", folder.display()), &why))?;
        let path = folder.join("agent.sock");
        let address = format!("unix:{}", path.display());
        let address = address.parse().map_err(|why| failed("name the agent's socket", &why))?;
        let names: Vec<String> = algorithms.iter().map(Contender::to_string).collect();
        command
            .args([
                "-m",
                "ccplane",
                "agent",
                "--confined",
                "--alg",
                &names.join(","),
                "--unix",
            ])
            .arg(&path);
        if let Some(folder) = folder_of(algorithms) {
            command.arg("--folder").arg(folder);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .uid(nobody.uid.as_raw())
            .gid(nobody.gid.as_raw());
        // Nobody makes the socket in it, and this process, which soon has no privilege over nobody's things, removes it.
        let prepared = chown(&folder, None, Some(nobody.gid))
            .map_err(std::io::Error::from)
            .and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o770)));
        let started = prepared.and_then(|()| command.spawn());
        let child = started.map_err(|why| {
            let _ = fs::remove_dir_all(&folder);
            failed("start Python as nobody", &why).hint(TRUSTED)
        })?;
        let mut apart = Apart {
            child,
            folder,
            address,
            exceptions: Exceptions::default(),
        };
        if let Some(told) = apart.child.stdout.take() {
            let exceptions = apart.exceptions.clone();
            let listen = move || match ccplane_linux::drop_capabilities() {
                Ok(()) => exceptions.listen(told),
                Err(error) => {
                    tracing::error!("what raises is not counted: the thread cannot give up its capabilities: {error}")
                }
            };
            let thread = std::thread::Builder::new().name("ccplane-told".into());
            thread
                .spawn(listen)
                .map_err(|why| failed("listen to Python as nobody", &why))?;
        }
        let begun = Instant::now();
        while !path.exists() {
            let ended = apart.child.try_wait().ok().flatten();
            if ended.is_some() || begun.elapsed() > PATIENCE {
                let what = "Python as nobody does not come up: what it said is above";
                return Err(Failure::text(Kind::Failed, what).hint(TRUSTED));
            }
            sleep(LOOK_EVERY);
        }
        Ok(apart)
    }
}

/// Removes the folders of processes that were killed.
pub(crate) fn sweep() {
    for folder in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = folder.file_name();
        let of = name
            .to_str()
            .and_then(|name| name.strip_prefix(FOLDER))
            .and_then(|pid| pid.parse::<u32>().ok());
        if of.is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
            // Where it is another user's, that one's own commands remove it.
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

/// How the folders of sockets begin, which end with the number of their process.
const FOLDER: &str = "ccplane-agent-";
const TRUSTED: &str = "nobody has to be able to read the file and the Python that ccplane is installed in; or --trusted, and it runs as this user";

#[expect(clippy::disallowed_methods, reason = "it waits for another process")]
impl Drop for Apart {
    fn drop(&mut self) {
        // It ends within a second when its input does, also when this process is killed. This one has no right to end it.
        drop(self.child.stdin.take());
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < LONGEST_END {
            sleep(LOOK_EVERY);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
