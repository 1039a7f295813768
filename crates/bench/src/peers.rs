//! Agents behind CCP's messages, each in a process of its own and measured in turns by one plain
//! datapath: ours, a peer that does nothing but answer, and, where one is given, one made of portus
//! (`examples/portus`).

pub mod client;
mod serve;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ccplane_report::TargetRange;
use ccplane_testbed::control_loop::LoopError;
use nix::unistd::Pid;
use serde_json::json;

use crate::rounds::{Turns, median};
use crate::{Error, Figures};

pub use serve::{answer, bound, serve_kernel};

/// Rounds in turns. Each gives a ratio; a verdict is undecided where they disagree.
pub const ROUNDS: usize = 3;

/// Whom ours is measured against.
#[derive(Clone, Debug, Default)]
pub struct Against {
    /// An agent made of portus: `portus-answer` of examples/portus.
    pub portus: Option<PathBuf>,
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Our agent.
    Ours,
    /// A peer that does nothing but answer.
    Bound,
    /// An agent made of portus.
    Portus,
}

/// `N` figures of everybody, by rounds.
pub struct Rounds<const N: usize>(Turns<Who, [f64; N]>);

impl Against {
    /// Measures with `measure`, round by round. Our agent and the bound are this program's hidden
    /// command `bench peer`. `updates`: reports are answered.
    pub fn rounds<const N: usize>(
        &self,
        updates: bool,
        measure: impl Fn(&Path) -> Result<[f64; N], LoopError>,
    ) -> Result<Rounds<N>, Error> {
        let portus = self.portus.as_deref();
        let mut all = vec![Who::Ours, Who::Bound];
        all.extend(portus.map(|_| Who::Portus));
        let turns = Turns::take(ROUNDS, &all, |_, who| {
            let peer = Peer::start(who, portus, updates)?;
            Ok::<_, Error>(measure(&peer.path)?)
        })?;
        Ok(Rounds(turns))
    }
}

impl<const N: usize> Rounds<N> {
    /// Adds the median of each one's figure, and all rounds for scripts.
    pub fn add(&self, figures: &mut Figures, figure: usize, key: &str, unit: &'static str) {
        for (who, suffix) in [
            (Who::Ours, ""),
            (Who::Bound, "_bound"),
            (Who::Portus, "_portus"),
        ] {
            let values: Vec<f64> = self.0.of(who).iter().map(|run| run[figure]).collect();
            if !values.is_empty() {
                figures.fact(format!("{key}{suffix}_rounds"), json!(values));
                figures.add(format!("{key}{suffix}"), median(values), unit);
            }
        }
    }

    /// Adds ours over another's, judged by all rounds: their median, the least and the most.
    pub fn add_ratio(
        &self,
        figures: &mut Figures,
        figure: usize,
        key: &str,
        other: Who,
        aim: TargetRange,
    ) {
        let ratios = self.0.ratios(Who::Ours, other, |run| run[figure]);
        if ratios.is_empty() {
            return;
        }
        let range = ratios
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), ratio| {
                (low.min(*ratio), high.max(*ratio))
            });
        let (suffix, unit) = match other {
            Who::Portus => ("portus", "x portus"),
            _ => ("bound", "x bound"),
        };
        figures
            .add(format!("{key}_ratio_{suffix}"), median(ratios), unit)
            .target(aim)
            .in_turns(Some(range));
    }
}

/// The other end's process; it is killed with this value, or with this process.
pub(crate) struct Peer {
    child: Child,
    path: PathBuf,
}

impl Peer {
    fn start(who: Who, portus: Option<&Path>, updates: bool) -> Result<Peer, Error> {
        let failed = |what: String| Error::because(format!("{what} cannot be started"));
        let name = format!("ccplane-bench-{}", std::process::id());
        if let (Who::Portus, Some(program)) = (who, portus) {
            // Where portus' sockets are, always.
            let folder = Path::new("/tmp/ccp");
            std::fs::create_dir_all(folder).map_err(failed(folder.display().to_string()))?;
            let path = folder.join(&name);
            let mut command = Command::new(program);
            command.arg(&name).args(updates.then_some("--updates"));
            let mut command = command.stdout(Stdio::null()).stderr(Stdio::null());
            command = ccplane_host::die_with_parent(command);
            let child = command
                .spawn()
                .map_err(failed(program.display().to_string()))?;
            let peer = Peer { child, path };
            return match (0..100).any(|_| peer.is_there()) {
                true => Ok(peer),
                false => Err(Error::Failed {
                    what: format!(
                        "{} does not serve at {}",
                        program.display(),
                        peer.path.display()
                    ),
                    hint: Some("--portus takes `portus-answer`, which examples/portus builds"),
                }),
            };
        }
        let ours = std::env::current_exe().map_err(failed("this program".to_owned()))?;
        let who = if who == Who::Bound { "bound" } else { "ours" };
        Peer::run(&ours, who, updates.then_some("--updates"))
    }

    /// Starts `bench peer` of `program` with further arguments, and waits until it serves.
    pub(crate) fn run<'a>(
        program: &Path,
        who: &str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<Peer, Error> {
        let path = std::env::temp_dir().join(format!("ccplane-bench-{}.peer", std::process::id()));
        let mut command = Command::new(program);
        command.args(["peer", who]).arg(&path).args(arguments);
        command.stdout(Stdio::piped());
        let mut child = ccplane_host::die_with_parent(&mut command)
            .spawn()
            .map_err(Error::because("the other end cannot be started"))?;
        let said = child.stdout.take();
        let peer = Peer { child, path };
        let mut line = String::new();
        said.map(|said| BufReader::new(said).read_line(&mut line));
        match line.is_empty() {
            false => Ok(peer),
            true => Err(Error::failed(
                "the other end did not begin to serve: it says why above",
            )),
        }
    }

    /// Path of its socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its process.
    pub(crate) fn process(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Looked at every 20 ms.
    #[expect(clippy::disallowed_methods, reason = "a benchmark in real time")]
    fn is_there(&self) -> bool {
        thread::sleep(Duration::from_millis(20));
        self.path.exists()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for suffix in ["", ".peers", ".lock"] {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            let _ = std::fs::remove_file(path);
        }
    }
}
